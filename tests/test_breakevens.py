"""Break-evens: each inverse put back into the speed-up, the roofline ones against a scan over batches."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from specmath import breakevens
from specmath.breakevens import (
    breakeven_acceptance_length,
    breakeven_alpha,
    breakeven_draft_cost,
    breakeven_draft_cost_from_acceptance_length,
    breakeven_verify_cost,
    breakeven_verify_cost_from_acceptance_length,
    ridge_flops_per_byte,
    ridge_tokens,
    roofline_breakeven_batch,
    verify_bound_batch,
)
from specmath.errors import InputError
from specmath.ratios import speedup, speedup_from_acceptance_length

EXACT = 1e-12
untimed = settings(deadline=None)
GOLDEN = json.loads((Path(__file__).parent / "data" / "closed_form.json").read_text(encoding="utf-8"))
OWN_ROWS = [row for row in GOLDEN if row["fn"].startswith("breakeven_")]

probabilities = st.floats(0, 1)
draft_lengths = st.integers(1, 24)
costs = st.floats(0, 2)
verify_costs = st.floats(0.5, 12)


@pytest.mark.parametrize("row", OWN_ROWS, ids=lambda row: f"{row['fn']}-{row['alpha']}-{row['k']}")
def test_golden_values(row: dict[str, Any]) -> None:
    arguments = {key: value for key, value in row.items() if key not in ("fn", "value")}
    assert getattr(breakevens, row["fn"])(**arguments) == pytest.approx(row["value"], rel=EXACT)


def test_golden_rows_are_there() -> None:
    assert {row["fn"] for row in OWN_ROWS} == {"breakeven_verify_cost"}
    assert len(OWN_ROWS) >= 10


@untimed
@given(k=draft_lengths, c=costs, v=verify_costs, o=costs)
def test_alpha_and_acceptance_length_give_speedup_one(k: int, c: float, v: float, o: float) -> None:
    alpha = breakeven_alpha(k, draft_cost=c, verify_cost=v, overhead=o)
    tokens = breakeven_acceptance_length(k, draft_cost=c, verify_cost=v, overhead=o)
    ends = [float(speedup(end, k, draft_cost=c, verify_cost=v, overhead=o)) for end in (0.0, 1.0)]
    assume(min(abs(end - 1) for end in ends) > 1e-12)  # nearer to 1, rounding decides
    if ends[1] < 1:
        assert math.isnan(alpha)
        assert math.isnan(tokens)
    elif ends[0] >= 1:
        assert (alpha, tokens) == (0.0, 1.0)
    else:
        assert speedup(alpha, k, draft_cost=c, verify_cost=v, overhead=o) == pytest.approx(1, rel=1e-9)
        assert speedup_from_acceptance_length(
            tokens, k, draft_cost=c, verify_cost=v, overhead=o
        ) == pytest.approx(1, rel=EXACT)


@untimed
@given(alpha=probabilities, k=draft_lengths, cost=costs, o=costs)
def test_costs_give_speedup_one(alpha: float, k: int, cost: float, o: float) -> None:
    v = breakeven_verify_cost(alpha, k, draft_cost=cost, overhead=o)
    if v > 1e-3:
        assert speedup(alpha, k, draft_cost=cost, verify_cost=v, overhead=o) == pytest.approx(1, rel=1e-9)
    else:
        assert speedup(alpha, k, draft_cost=cost, verify_cost=1e-3, overhead=o) <= 1 + 1e-9
    c = breakeven_draft_cost(alpha, k, verify_cost=1 + cost, overhead=o)
    if c >= 0:
        assert speedup(alpha, k, draft_cost=c, verify_cost=1 + cost, overhead=o) == pytest.approx(1, rel=1e-9)
    else:
        assert speedup(alpha, k, draft_cost=0, verify_cost=1 + cost, overhead=o) <= 1


@untimed
@given(k=st.integers(0, 24), share=probabilities, c=costs, v=verify_costs, o=costs)
def test_costs_at_a_measured_acceptance_length(k: int, share: float, c: float, v: float, o: float) -> None:
    """Put back, the break-even cost reproduces the acceptance length: c·k + v + o = E."""
    tokens = 1 + share * k
    verify = breakeven_verify_cost_from_acceptance_length(tokens, k, draft_cost=c, overhead=o)
    assert verify + c * k + o == pytest.approx(tokens, rel=EXACT, abs=1e-12 * (1 + c * k + o))
    draft = breakeven_draft_cost_from_acceptance_length(tokens, k, verify_cost=v, overhead=o)
    if k == 0:
        assert math.isnan(draft)
    else:
        assert draft * k + v + o == pytest.approx(tokens, rel=EXACT, abs=1e-12 * (v + o))


@pytest.mark.parametrize(
    ("k", "draft_cost", "verify_cost", "overhead", "alpha", "tokens"),
    [
        pytest.param(1, 0.1, 1.0, 0.0, 0.1, 1.1, id="k = 1: alpha = v + c + o - 1 = c"),
        pytest.param(1, 0.1, 1.2, 0.05, 0.35, 1.35, id="k = 1: alpha = v + c + o - 1"),
        pytest.param(2, 0.125, 1.25, 0.25, 0.5, 1.75, id="1 + 1/2 + 1/4 = 1.25 + 0.25 + 0.25"),
        pytest.param(3, 0.0, 4.0, 0.0, 1.0, 4.0, id="fully compute-bound: only alpha = 1 breaks even"),
        pytest.param(3, 0.01, 4.0, 0.0, math.nan, math.nan, id="dearer than k + 1 tokens: none"),
        pytest.param(3, 0.0, 0.9, 0.0, 0.0, 1.0, id="cheaper than a plain step: none is needed"),
        pytest.param(3, 0.0, 1.0, 0.0, 0.0, 1.0, id="as dear as a plain step"),
        pytest.param(0, 5.0, 1.0, 0.0, 0.0, 1.0, id="k = 0 at no cost: plain decoding"),
        pytest.param(0, 0.0, 1.0, 0.1, math.nan, math.nan, id="k = 0 with overhead: never"),
    ],
)
def test_acceptance_at_the_edges(
    k: int, draft_cost: float, verify_cost: float, overhead: float, alpha: float, tokens: float
) -> None:
    settings = {"draft_cost": draft_cost, "verify_cost": verify_cost, "overhead": overhead}
    assert breakeven_alpha(k, **settings) == pytest.approx(alpha, rel=1e-9, abs=1e-15, nan_ok=True)
    assert breakeven_acceptance_length(k, **settings) == pytest.approx(tokens, rel=EXACT, nan_ok=True)


def pass_time(weights_s: float, batch: int, tokens: int, ridge: float) -> float:
    """A pass of `tokens` per sequence: weights read once, or `batch * tokens` computed, the longer."""
    return weights_s * max(1.0, batch * tokens / ridge)


@untimed
@given(
    k=st.integers(1, 12),
    share=probabilities,
    ridge=st.floats(3, 400),
    c=st.floats(0, 1),
)
def test_roofline_breakeven_batch_against_a_scan(k: int, share: float, ridge: float, c: float) -> None:
    tokens = 1 + share * k
    breakeven = roofline_breakeven_batch(tokens, k, ridge=ridge, draft_cost=c)
    spare = tokens - c * k
    assume(abs(spare - 1) > 1e-9)
    assert math.isnan(breakeven) == (spare <= 1)
    if spare > 1:
        assert ridge / (k + 1) <= breakeven <= ridge * (1 + EXACT)
    for batch in range(1, 2 * math.ceil(ridge)):
        plain = pass_time(1.0, batch, 1, ridge)
        speculative = k * pass_time(c, batch, 1, ridge) + pass_time(1.0, batch, k + 1, ridge)
        gain = tokens * plain / speculative
        if abs(gain - 1) > 1e-9:
            assert (gain > 1) == (spare > 1 and batch < breakeven)


@untimed
@given(
    params=st.floats(1e6, 1e12),
    peak=st.floats(1e12, 1e16),
    bandwidth=st.floats(1e10, 1e13),
    width=st.sampled_from([0.5, 1.0, 2.0, 4.0]),
    share=st.floats(0.01, 1),
    k=st.integers(0, 12),
)
def test_ridge_is_where_bytes_and_flops_take_equally_long(
    params: float, peak: float, bandwidth: float, width: float, share: float, k: int
) -> None:
    tokens = ridge_tokens(peak, bandwidth, bytes_per_param=width, active_share=share)
    read_s = params * width / bandwidth
    assert 2 * params * share * tokens / peak == pytest.approx(read_s, rel=EXACT)
    batch = verify_bound_batch(tokens, k)
    assert 2 * params * share * batch * (k + 1) / peak == pytest.approx(read_s, rel=EXACT)
    assert ridge_flops_per_byte(peak, bandwidth) * bandwidth == pytest.approx(peak, rel=EXACT)


ONES = np.array([[0.2], [0.9]])
LENGTHS = np.array([0, 1, 4])
BROADCASTS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    (
        "breakeven_acceptance_length",
        lambda x, k: breakeven_acceptance_length(k, draft_cost=x, verify_cost=1.0),
    ),
    ("breakeven_alpha", lambda x, k: breakeven_alpha(k, draft_cost=x, verify_cost=1.1, overhead=0.1)),
    ("breakeven_draft_cost", lambda x, k: breakeven_draft_cost(x, k, verify_cost=1.1)),
    ("breakeven_verify_cost", lambda x, k: breakeven_verify_cost(x, k, draft_cost=0.1)),
    ("ridge_flops_per_byte", lambda x, k: ridge_flops_per_byte(1e15 * x, 1e12 * (k + 1))),
    ("ridge_tokens", lambda x, k: ridge_tokens(1e15, 1e12 * (k + 1), bytes_per_param=2, active_share=x)),
    ("verify_bound_batch", lambda x, k: verify_bound_batch(300 * x, k)),
    (
        "roofline_breakeven_batch",
        lambda x, k: roofline_breakeven_batch(1 + x * k, k, ridge=300.0, draft_cost=0.05),
    ),
]


@pytest.mark.parametrize(("name", "function"), BROADCASTS, ids=[name for name, _ in BROADCASTS])
def test_arrays_equal_scalars_cell_by_cell(name: str, function: Callable[[Any, Any], Any]) -> None:
    table = function(ONES, LENGTHS)
    assert table.shape == (2, 3)
    for (i, j), cell in np.ndenumerate(table):
        scalar = function(float(ONES[i, 0]), int(LENGTHS[j]))
        assert type(scalar) is float
        assert scalar == pytest.approx(cell, rel=EXACT, nan_ok=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: breakeven_alpha(-1, draft_cost=0.1, verify_cost=1),
            "k: must be a whole number from 0 to 10000, got -1",
            id="negative length",
        ),
        pytest.param(
            lambda: breakeven_acceptance_length(4, draft_cost=-1, verify_cost=1),
            "draft_cost: must be at least 0, got -1",
            id="negative draft cost",
        ),
        pytest.param(
            lambda: breakeven_draft_cost(0.5, 4, verify_cost=0),
            "verify_cost: must be above 0, got 0",
            id="free verification",
        ),
        pytest.param(
            lambda: breakeven_verify_cost(1.5, 4, draft_cost=0.1),
            "alpha: must be between 0 and 1, got 1.5",
            id="alpha above 1",
        ),
        pytest.param(
            lambda: breakeven_verify_cost_from_acceptance_length(5.5, 4, draft_cost=0.1),
            "acceptance_length: counts the bonus token, so must be between 1 and 5, got 5.5",
            id="more tokens than a step can give",
        ),
        pytest.param(
            lambda: breakeven_draft_cost_from_acceptance_length(0.5, 4, verify_cost=1),
            "acceptance_length: counts the bonus token, so must be between 1 and 5, got 0.5",
            id="accepted tokens without the bonus",
        ),
        pytest.param(
            lambda: ridge_flops_per_byte(0, 1e12),
            "peak_flops_per_s: must be above 0, got 0",
            id="no peak",
        ),
        pytest.param(
            lambda: ridge_tokens(1e15, 1e12, bytes_per_param=2, active_share=0),
            "active_share: must be above 0 and at most 1, got 0",
            id="no active parameter",
        ),
        pytest.param(
            lambda: ridge_tokens(1e15, 1e12, bytes_per_param=2, active_share=8),
            "active_share: must be above 0 and at most 1, got 8",
            id="share given as its inverse",
        ),
        pytest.param(
            lambda: verify_bound_batch(-1, 4), "ridge: must be above 0, got -1", id="negative ridge"
        ),
        pytest.param(
            lambda: roofline_breakeven_batch(6, 4, ridge=300, draft_cost=0.1),
            "acceptance_length: counts the bonus token, so must be between 1 and 5, got 6",
            id="roofline: more tokens than a step can give",
        ),
    ],
)
def test_refusals_name_parameter_rule_and_value(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
