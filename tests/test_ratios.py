"""Speed-up and its presets, operations, kept share and best k, each against an independent route."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from specmath import ratios
from specmath.errors import InputError
from specmath.ratios import (
    best_k,
    compute_bound_speedup,
    kept_share,
    leviathan_speedup,
    lookup_speedup,
    lumped_speedup,
    operations_ratio,
    speedup,
    speedup_from_acceptance_length,
    step_cost,
)

EXACT = 1e-12
untimed = settings(deadline=None)
GOLDEN = json.loads((Path(__file__).parent / "data" / "closed_form.json").read_text(encoding="utf-8"))
OWN_ROWS = [row for row in GOLDEN if row["fn"] in ("speedup", "operations_ratio")]

probabilities = st.floats(0, 1)
draft_lengths = st.integers(0, 40)
costs = st.floats(0, 3)
verify_costs = st.floats(0.5, 20)


def exact_tokens(alpha: Fraction, k: int) -> Fraction:
    return sum((alpha**i for i in range(k + 1)), Fraction(0))


@pytest.mark.parametrize("row", OWN_ROWS, ids=lambda row: f"{row['fn']}-{row['alpha']}-{row['k']}")
def test_golden_values(row: dict[str, Any]) -> None:
    arguments = {key: value for key, value in row.items() if key not in ("fn", "value")}
    assert getattr(ratios, row["fn"])(**arguments) == pytest.approx(row["value"], rel=EXACT)


def test_golden_rows_are_there() -> None:
    assert {row["fn"] for row in OWN_ROWS} == {"speedup", "operations_ratio"}
    assert len(OWN_ROWS) >= 20


@untimed
@given(
    alpha=st.fractions(0, 1, max_denominator=64),
    k=st.integers(0, 12),
    c=st.fractions(0, 2, max_denominator=64),
    v=st.fractions(Fraction(1, 2), 8, max_denominator=64),
    o=st.fractions(0, 2, max_denominator=64),
)
def test_against_exact_fractions(alpha: Fraction, k: int, c: Fraction, v: Fraction, o: Fraction) -> None:
    tokens, cost = exact_tokens(alpha, k), v + c * k + o
    settings = {"draft_cost": float(c), "verify_cost": float(v), "overhead": float(o)}
    a = float(alpha)
    pairs = [
        (step_cost(k, **settings), cost),
        (speedup(a, k, **settings), tokens / cost),
        (speedup_from_acceptance_length(min(float(tokens), k + 1), k, **settings), tokens / cost),
        (leviathan_speedup(a, k, draft_cost=float(c)), tokens / (1 + c * k)),
        (compute_bound_speedup(a, k, draft_cost=float(c)), tokens / (k + 1 + c * k)),
        (lumped_speedup(a, k, overhead=float(o)), tokens / (1 + o)),
        (operations_ratio(a, k, draft_flops_ratio=float(c)), (k * c + k + 1) / tokens),
        (kept_share(a, k), tokens / (k + 1)),
    ]
    for got, expected in pairs:
        assert got == pytest.approx(float(expected), rel=EXACT)


def test_lookup_speedup_against_simulation() -> None:
    """Steps drawn one by one: a match or none, then draft tokens kept until the first one refused."""
    alpha, k, match_rate, verify_cost, overhead, steps = 0.8, 5, 0.35, 1.4, 0.1, 200_000
    rng = np.random.default_rng(20_240_501)
    matched = rng.random(steps) < match_rate
    kept = np.cumprod(rng.random((steps, k)) < alpha, axis=1).sum(axis=1)
    tokens = 1.0 + matched * kept
    seconds = np.where(matched, verify_cost, 1.0) + overhead
    simulated = tokens.sum() / seconds.sum()
    residual = tokens - simulated * seconds  # linearised error of a ratio of means
    error = residual.std() / (np.sqrt(steps) * seconds.mean())
    formula = lookup_speedup(alpha, k, match_rate=match_rate, verify_cost=verify_cost, overhead=overhead)
    assert error < 0.003
    assert abs(formula - simulated) < 4 * error


@untimed
@given(alpha=probabilities, k=draft_lengths, v=verify_costs, o=costs)
def test_lookup_that_always_or_never_matches(alpha: float, k: int, v: float, o: float) -> None:
    always = lookup_speedup(alpha, k, match_rate=1.0, verify_cost=v, overhead=o)
    assert always == pytest.approx(speedup(alpha, k, draft_cost=0.0, verify_cost=v, overhead=o), rel=EXACT)
    never = lookup_speedup(alpha, k, match_rate=0.0, verify_cost=v, overhead=o)
    assert never == pytest.approx(1 / (1 + o), rel=EXACT)


def test_plain_decoding_is_the_unit() -> None:
    assert speedup(0.7, 0, draft_cost=0.3, verify_cost=1.0, overhead=0.0) == 1.0
    assert compute_bound_speedup(0.7, 0, draft_cost=0.3) == 1.0
    assert compute_bound_speedup(1.0, 7, draft_cost=0.0) == 1.0
    assert lumped_speedup(0.5, 3, overhead=0.0) == 1.875


@untimed
@given(alpha=probabilities, k=draft_lengths, c=costs, v=verify_costs, o=costs, step=st.floats(0, 1))
def test_directions(alpha: float, k: int, c: float, v: float, o: float, step: float) -> None:
    """Better acceptance never slows, dearer drafts, verification or host time never speed up."""
    here = speedup(alpha, k, draft_cost=c, verify_cost=v, overhead=o)
    slack = 1 + EXACT
    assert speedup(min(1.0, alpha + step), k, draft_cost=c, verify_cost=v, overhead=o) * slack >= here
    assert speedup(alpha, k, draft_cost=c + step, verify_cost=v, overhead=o) <= here * slack
    assert speedup(alpha, k, draft_cost=c, verify_cost=v + step, overhead=o) <= here * slack
    assert speedup(alpha, k, draft_cost=c, verify_cost=v, overhead=o + step) <= here * slack
    assert here * v <= (k + 1) * slack
    assert compute_bound_speedup(alpha, k, draft_cost=c) <= slack


def test_acceptance_next_to_certain_is_never_refused() -> None:
    """E may touch k + 1 by rounding, as a sum of shares may pass it: neither is a user's mistake."""
    lengths = np.arange(200)
    speedups = speedup(np.nextafter(1.0, 0.0), lengths, draft_cost=0.0, verify_cost=1.0, overhead=0.0)
    np.testing.assert_allclose(speedups, lengths + 1.0, rtol=EXACT)
    rounded = speedup_from_acceptance_length(np.nextafter(5.0, 6), 4, draft_cost=0, verify_cost=5, overhead=0)
    assert rounded == 1.0


def scanned_best_k(alpha: float, c: float, v0: float, slope: float, o: float, max_k: int) -> int:
    speedups = [1.0]
    for k in range(1, max_k + 1):
        speedups.append(float(speedup(alpha, k, draft_cost=c, verify_cost=v0 + slope * k, overhead=o)))
    return next(k for k, value in enumerate(speedups) if value >= max(speedups) * (1 - EXACT))


def first_k_that_stops(alpha: float, c: float, v0: float, slope: float, o: float, max_k: int) -> int:
    """E is concave and the cost a straight line: the first k whose next token earns less than it costs."""
    tokens, cost = 1.0, v0 + o
    for k in range(max_k):
        if alpha ** (k + 1) * cost <= tokens * (slope + c):
            return k
        tokens, cost = tokens + alpha ** (k + 1), cost + slope + c
    return max_k


@untimed
@given(
    alpha=probabilities,
    c=st.floats(0, 1),
    v0=st.floats(0.8, 3),
    slope=st.floats(0, 0.5),
    o=st.floats(0, 1),
    max_k=st.integers(0, 24),
)
def test_best_k_is_the_best_of_all(
    alpha: float, c: float, v0: float, slope: float, o: float, max_k: int
) -> None:
    chosen = best_k(alpha, draft_cost=c, verify_cost=v0, verify_slope=slope, overhead=o, max_k=max_k)
    assert chosen == scanned_best_k(alpha, c, v0, slope, o, max_k)


@untimed
@given(
    alpha=st.floats(0.05, 0.95),
    c=st.floats(0.01, 1),
    v0=st.floats(1, 3),
    slope=st.floats(0, 0.5),
    o=st.floats(0, 1),
)
def test_best_k_against_the_stopping_rule(alpha: float, c: float, v0: float, slope: float, o: float) -> None:
    stop = first_k_that_stops(alpha, c, v0, slope, o, max_k=24)
    at_stop, at_next = (
        float(speedup(alpha, k, draft_cost=c, verify_cost=v0 + slope * k, overhead=o))
        for k in (stop, stop + 1)
    )
    assume(abs(at_stop - 1) > 1e-9)
    assume(abs(at_next / at_stop - 1) > 1e-9)  # on a tie, rounding would choose
    expected = stop if at_stop > 1 else 0
    assert best_k(alpha, draft_cost=c, verify_cost=v0, verify_slope=slope, overhead=o, max_k=24) == expected


@pytest.mark.parametrize(
    ("alpha", "draft_cost", "max_k", "expected"),
    [
        pytest.param(0.5, 0.2, 8, 1, id="S(1) = S(2) = 1.25: a tie, the shorter draft wins"),
        pytest.param(0.25, 0.25, 8, 0, id="alpha = c: S(1) = 1 is no gain, off"),
        pytest.param(1.0, 0.1, 8, 8, id="alpha = 1: every token pays"),
        pytest.param(0.0, 0.0, 8, 0, id="alpha = 0: nothing is ever kept"),
        pytest.param(0.9, 0.0, 8, 8, id="free drafts: the longest"),
        pytest.param(0.9, 0.01, 0, 0, id="max_k = 0: off"),
    ],
)
def test_best_k_at_the_edges(alpha: float, draft_cost: float, max_k: int, expected: int) -> None:
    assert best_k(alpha, draft_cost=draft_cost, max_k=max_k) == expected


LEVIATHAN_ROWS = [
    # task, draft, temperature, alpha, c, k and predicted speed-up as printed, best k by exact search
    ("EnDe", "T5-small", 0, 0.75, 0.02, 7, 3.2, 9),
    ("EnDe", "T5-base", 0, 0.80, 0.04, 7, 3.3, 9),
    ("EnDe", "T5-large", 0, 0.82, 0.11, 7, 2.5, 6),
    ("EnDe", "T5-small", 1, 0.62, 0.02, 7, 2.3, 6),
    ("EnDe", "T5-base", 1, 0.68, 0.04, 5, 2.4, 6),
    ("EnDe", "T5-large", 1, 0.71, 0.11, 3, 2.0, 4),
    ("CNN/DM", "T5-small", 0, 0.65, 0.02, 5, 2.4, 7),
    ("CNN/DM", "T5-base", 0, 0.73, 0.04, 5, 2.6, 7),
    ("CNN/DM", "T5-large", 0, 0.74, 0.11, 3, 2.0, 4),
    ("CNN/DM", "T5-small", 1, 0.53, 0.02, 5, 1.9, 5),
    ("CNN/DM", "T5-base", 1, 0.55, 0.04, 3, 1.8, 4),
    ("CNN/DM", "T5-large", 1, 0.56, 0.11, 3, 1.6, 3),
]


@pytest.mark.parametrize(
    ("alpha", "draft_cost", "k", "printed", "best"),
    [
        pytest.param(*numbers, id=f"Leviathan 2023 tables 2 and 4: {task} {draft} T={temperature}")
        for task, draft, temperature, *numbers in LEVIATHAN_ROWS
    ],
)
def test_predictions_printed_by_leviathan(
    alpha: float, draft_cost: float, k: int, printed: float, best: int
) -> None:
    """Printed α and c are rounded to two digits, the speed-up to one: the intervals have to meet."""
    low = leviathan_speedup(alpha - 0.005, k, draft_cost=draft_cost + 0.005)
    high = leviathan_speedup(alpha + 0.005, k, draft_cost=draft_cost - 0.005)
    assert low <= printed + 0.05
    assert high >= printed - 0.05
    assert best_k(alpha, draft_cost=draft_cost, max_k=30) == best


@untimed
@given(alpha=probabilities, c=probabilities)
def test_some_k_pays_exactly_where_alpha_exceeds_c(alpha: float, c: float) -> None:
    """Leviathan et al. 2023, corollary 3.9; and then k = 1 already gains (1 + α) / (1 + c)."""
    assume(abs(alpha - c) > 1e-9)
    chosen = best_k(alpha, draft_cost=c, max_k=64)
    assert (chosen > 0) == (alpha > c)
    if alpha > c:
        assert leviathan_speedup(alpha, chosen, draft_cost=c) >= (1 + alpha) / (1 + c) * (1 - EXACT)


ALPHAS = np.array([[0.0], [0.4], [1.0]])
LENGTHS = np.array([0, 1, 5])
BROADCASTS: list[tuple[str, Callable[[Any, Any], Any]]] = [
    ("step_cost", lambda a, k: step_cost(k, draft_cost=a, verify_cost=1.5, overhead=0.2)),
    ("speedup", lambda a, k: speedup(a, k, draft_cost=0.1, verify_cost=1.5, overhead=0.2)),
    (
        "speedup_from_acceptance_length",
        lambda a, k: speedup_from_acceptance_length(
            1 + a * k, k, draft_cost=0.1, verify_cost=1.5, overhead=0.2
        ),
    ),
    ("leviathan_speedup", lambda a, k: leviathan_speedup(a, k, draft_cost=0.1)),
    ("compute_bound_speedup", lambda a, k: compute_bound_speedup(a, k, draft_cost=0.1)),
    ("lumped_speedup", lambda a, k: lumped_speedup(a, k, overhead=0.3)),
    ("lookup_speedup", lambda a, k: lookup_speedup(0.9, k, match_rate=a, verify_cost=1.2, overhead=0.01)),
    ("operations_ratio", lambda a, k: operations_ratio(a, k, draft_flops_ratio=0.1)),
    ("kept_share", kept_share),
    ("best_k", lambda a, k: best_k(a, draft_cost=0.05, overhead=0.1, max_k=k)),
]


@pytest.mark.parametrize(("name", "function"), BROADCASTS, ids=[name for name, _ in BROADCASTS])
def test_arrays_equal_scalars_cell_by_cell(name: str, function: Callable[[Any, Any], Any]) -> None:
    table = function(ALPHAS, LENGTHS)
    assert table.shape == (3, 3)
    for (i, j), cell in np.ndenumerate(table):
        scalar = function(float(ALPHAS[i, 0]), int(LENGTHS[j]))
        assert type(scalar) is (int if name == "best_k" else float)
        assert scalar == pytest.approx(cell, rel=EXACT)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: speedup(1.2, 4, draft_cost=0.1, verify_cost=1, overhead=0),
            "alpha: must be between 0 and 1, got 1.2",
            id="alpha above 1",
        ),
        pytest.param(
            lambda: step_cost(4.5, draft_cost=0.1, verify_cost=1, overhead=0),
            "k: must be a whole number from 0 to 10000, got 4.5",
            id="half a token",
        ),
        pytest.param(
            lambda: step_cost(4, draft_cost=-0.1, verify_cost=1, overhead=0),
            "draft_cost: must be at least 0, got -0.1",
            id="negative draft cost",
        ),
        pytest.param(
            lambda: step_cost(4, draft_cost=0.1, verify_cost=0, overhead=0),
            "verify_cost: must be above 0, got 0",
            id="free verification",
        ),
        pytest.param(
            lambda: lumped_speedup(0.5, 4, overhead=float("nan")),
            "overhead: must be at least 0, got nan",
            id="overhead NaN",
        ),
        pytest.param(
            lambda: speedup_from_acceptance_length(
                [2.0, 5.5], [3, 4], draft_cost=0.1, verify_cost=1, overhead=0
            ),
            "acceptance_length: counts the bonus token, so must be between 1 and 5, got 5.5",
            id="more tokens than a step can give",
        ),
        pytest.param(
            lambda: speedup_from_acceptance_length(0.7, 4, draft_cost=0.1, verify_cost=1, overhead=0),
            "acceptance_length: counts the bonus token, so must be between 1 and 5, got 0.7",
            id="accepted tokens without the bonus",
        ),
        pytest.param(
            lambda: lookup_speedup(0.9, 4, match_rate=1.1, verify_cost=1, overhead=0),
            "match_rate: must be between 0 and 1, got 1.1",
            id="match rate above 1",
        ),
        pytest.param(
            lambda: operations_ratio(0.9, 4, draft_flops_ratio=-1),
            "draft_flops_ratio: must be at least 0, got -1",
            id="negative FLOPs",
        ),
        pytest.param(
            lambda: best_k(0.9, draft_cost=0.1, verify_slope=-0.1, max_k=4),
            "verify_slope: must be at least 0, got -0.1",
            id="verification that gets cheaper",
        ),
        pytest.param(
            lambda: best_k(0.9, draft_cost=0.1, max_k=-1),
            "max_k: must be a whole number from 0 to 10000, got -1",
            id="negative length",
        ),
    ],
)
def test_refusals_name_parameter_rule_and_value(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
