"""Additive step times: every sign case, scans over whole batches, and a published H100 fit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.additive import AdditiveCost, additive_breakeven, critical_context
from specmath.errors import InputError

untimed = settings(deadline=None)

# H100, Llama-3.1-8B with an EAGLE draft, as fitted by SpecDecode-Bench (2026): 5.886 ms + 39.26 ns per KV
# token + 21.0 µs per token. Its 2.135 ms of drafting are those of a whole round of k = 3.
PUBLISHED = AdditiveCost(
    weights_s=5.88591e-3,
    kv_s_per_token=3.92646e-8,
    compute_s_per_token=2.10103e-5,
    kv_reread=0.0,
    draft_fixed_s=2.13526e-3 / 3,
    draft_s_per_sequence=8.4143e-7,
    draft_kv_s_per_token=0.0,
    overhead_s=0.0,
    plain_overhead_s=0.0,
)


@pytest.mark.parametrize(
    ("acceptance_length", "context", "batch"),
    [
        pytest.param(2.29, 100, 163, id="SpecDecode-Bench fit: E 2.29, context 100"),
        pytest.param(2.29, 300, 235, id="SpecDecode-Bench fit: E 2.29, context 300"),
        pytest.param(2.79, 100, 402, id="SpecDecode-Bench fit: E 2.79, context 100"),
    ],
)
def test_breakeven_batch_of_a_published_fit(acceptance_length: float, context: int, batch: int) -> None:
    answer = additive_breakeven(PUBLISHED, acceptance_length, 3, context)
    assert round(float(answer.breakeven_batch)) == batch
    assert answer.wins == "below"


@pytest.mark.parametrize(
    ("acceptance_length", "context"),
    [
        pytest.param(2.29, 759, id="SpecDecode-Bench fit: E 2.29"),
        pytest.param(2.79, 398, id="SpecDecode-Bench fit: E 2.79"),
    ],
)
def test_critical_context_of_a_published_fit(acceptance_length: float, context: int) -> None:
    critical = float(critical_context(PUBLISHED, acceptance_length, 3))
    assert round(critical) == context
    assert additive_breakeven(PUBLISHED, acceptance_length, 3, 1.001 * critical).wins == "always"
    assert additive_breakeven(PUBLISHED, acceptance_length, 3, 0.999 * critical).wins == "below"


def test_breakeven_acceptance_length_of_a_published_fit() -> None:
    """T_step / T_AR at k = 3, context 700, with 1.207 ms of engine time in both steps.

    Here the draft's own terms count as fitted: four tokens a round and sequence, its cache read once a round.
    """
    cost = dataclasses.replace(
        PUBLISHED,
        draft_s_per_sequence=4 / 3 * 8.4143e-7,
        draft_kv_s_per_token=2.37768e-9 / 3,
        overhead_s=1.20684e-3,
        plain_overhead_s=1.20684e-3,
    )
    batches = np.array([1, 8, 16, 32, 64, 128, 256, 512])
    needed = np.asarray(cost.speculative_step_s(3, batches, 700)) / cost.plain_step_s(batches, 700)
    assert " ".join(f"{value:.2f}" for value in needed) == "1.31 1.36 1.41 1.50 1.64 1.82 2.00 2.16"


def machine(**changes: float) -> AdditiveCost:
    """A machine of round numbers: a plain step takes 10 + B·C / 1000 + B seconds."""
    plain: dict[str, float] = dict.fromkeys((field.name for field in dataclasses.fields(AdditiveCost)), 0.0)
    return AdditiveCost(
        **plain | {"weights_s": 10.0, "kv_s_per_token": 1e-3, "compute_s_per_token": 1.0} | changes
    )


CASES: list[tuple[str, AdditiveCost, int, str, float]] = [
    # What a step gains whatever the batch, what each sequence takes away from it, at E = 2 and k = 3;
    # machine, context, and by hand: who wins, break-even batch.
    ("gain 10, loss 2", machine(), 0, "below", 5.0),
    ("gain 2.5, loss 2", machine(draft_fixed_s=2.5), 0, "below", 1.25),
    ("gain 1, loss 2: B* = 0.5 is no batch", machine(draft_fixed_s=3), 0, "never", math.nan),
    ("gain 2, loss 2: a tie at batch 1", machine(overhead_s=8), 0, "never", math.nan),
    ("gain 10, loss 0: critical context", machine(), 2000, "always", math.nan),
    ("gain 10, loss -1: long context", machine(), 3000, "always", math.nan),
    ("gain 0, loss 2", machine(overhead_s=10), 0, "never", math.nan),
    ("gain -2, loss 0", machine(overhead_s=12), 2000, "never", math.nan),
    ("gain 0, loss 0: S = 1 everywhere", machine(overhead_s=10), 2000, "never", math.nan),
    ("gain -8, loss -2", machine(overhead_s=18), 4000, "above", 4.0),
    ("gain -2, loss -2: a tie at batch 1", machine(overhead_s=12), 4000, "above", 1.0),
    ("gain -1, loss -2: B* = 0.5", machine(overhead_s=11), 4000, "always", math.nan),
    ("gain 0, loss -2", machine(overhead_s=10), 4000, "always", math.nan),
    ("gain 10 - 4 + 2*4, loss 2", machine(overhead_s=4, plain_overhead_s=4), 0, "below", 7.0),
    ("gain 10, loss 2 + 3*0.5", machine(draft_s_per_sequence=0.5), 0, "below", 10 / 3.5),
    ("gain 10, loss 1e-323: B* is no number", machine(compute_s_per_token=5e-324), 0, "always", math.nan),
]


@pytest.mark.parametrize(
    ("cost", "context", "wins", "batch"), [pytest.param(*numbers, id=name) for name, *numbers in CASES]
)
def test_every_sign_case(cost: AdditiveCost, context: int, wins: str, batch: float) -> None:
    answer = additive_breakeven(cost, 2.0, 3, context)
    assert answer.wins == wins
    assert answer.breakeven_batch == pytest.approx(batch, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize(
    ("cost", "context"),
    [
        pytest.param(machine(), 2000.0, id="2 s per sequence over 1 ms per token"),
        pytest.param(machine(draft_s_per_sequence=0.5), 3500.0, id="and 1.5 s of drafting"),
        pytest.param(machine(draft_kv_s_per_token=2e-4), 5000.0, id="draft cache takes 0.6 of the 1 ms"),
        pytest.param(machine(draft_kv_s_per_token=4e-4), math.nan, id="draft cache takes 1.2 of the 1 ms"),
        pytest.param(machine(kv_reread=0.25), 8000.0, id="re-reads take 0.75 of the 1 ms"),
        pytest.param(machine(kv_reread=0.5), math.nan, id="re-reads take 1.5 of the 1 ms"),
        pytest.param(machine(kv_s_per_token=0), math.nan, id="no cache to read"),
        pytest.param(machine(kv_s_per_token=5e-324), math.nan, id="no context is that long"),
    ],
)
def test_critical_context_by_hand(cost: AdditiveCost, context: float) -> None:
    assert critical_context(cost, 2.0, 3) == pytest.approx(context, rel=1e-12, nan_ok=True)


machines = st.builds(
    AdditiveCost,
    weights_s=st.floats(1e-3, 2e-2),
    kv_s_per_token=st.sampled_from([0.0]) | st.floats(1e-9, 1e-7),
    compute_s_per_token=st.floats(0, 1e-4),
    kv_reread=st.sampled_from([0.0, 1.0]) | st.floats(0, 1),
    draft_fixed_s=st.floats(0, 6e-3),
    draft_s_per_sequence=st.floats(0, 2e-5),
    draft_kv_s_per_token=st.sampled_from([0.0]) | st.floats(0, 2e-8),
    overhead_s=st.floats(0, 2e-2),
    plain_overhead_s=st.floats(0, 5e-3),
)
BATCHES = np.arange(1, 1025)


@untimed
@given(
    cost=machines,
    k=st.integers(0, 10),
    share=st.floats(0, 1),
    context=st.sampled_from([0, 100, 3000, 90_000]),
)
def test_breakeven_against_a_scan_over_batches(
    cost: AdditiveCost, k: int, share: float, context: int
) -> None:
    tokens = 1 + share * k
    answer = additive_breakeven(cost, tokens, k, context)
    plain = np.asarray(cost.plain_step_s(BATCHES, context))
    gain = tokens * plain / np.asarray(cost.speculative_step_s(k, BATCHES, context))
    expected = {
        "always": np.ones(BATCHES.size, dtype=bool),
        "never": np.zeros(BATCHES.size, dtype=bool),
        "below": answer.breakeven_batch > BATCHES,
        "above": answer.breakeven_batch < BATCHES,
    }
    clear = np.abs(gain - 1) > 1e-9  # nearer to 1, rounding decides
    np.testing.assert_array_equal((gain > 1)[clear], expected[str(answer.wins)][clear])


@untimed
@given(cost=machines, k=st.integers(1, 10), share=st.floats(0, 1), context=st.floats(0, 1e5))
def test_speedup_is_one_at_the_breakeven_batch(
    cost: AdditiveCost, k: int, share: float, context: float
) -> None:
    tokens = 1 + share * k
    answer = additive_breakeven(cost, tokens, k, context)
    crosses = answer.wins in ("below", "above")
    assert math.isnan(answer.breakeven_batch) == (not crosses)
    if crosses and answer.breakeven_batch < 1e6:
        batch = answer.breakeven_batch
        speculative = cost.speculative_step_s(k, batch, context)
        assert tokens * cost.plain_step_s(batch, context) == pytest.approx(speculative, rel=1e-9)


@untimed
@given(cost=machines, k=st.integers(1, 10), share=st.floats(0, 1))
def test_larger_batches_help_only_beyond_the_critical_context(
    cost: AdditiveCost, k: int, share: float
) -> None:
    """The advantage of a speculative step, E·T_AR − T_step, grows with the batch or shrinks with it."""
    tokens = 1 + share * k

    def advantage(batch: int, context: float) -> float:
        return float(tokens * cost.plain_step_s(batch, context) - cost.speculative_step_s(k, batch, context))

    critical = float(critical_context(cost, tokens, k))
    longest = 1e9 if math.isnan(critical) else 0.99 * critical
    rounding = 1e-12 * float(cost.plain_step_s(2, longest)) * (k + 1)
    assert advantage(2, longest) <= advantage(1, longest) + rounding
    if not math.isnan(critical):
        beyond = 1.01 * critical + 1
        rounding = 1e-12 * float(cost.plain_step_s(2, beyond)) * (k + 1)
        assert advantage(2, beyond) >= advantage(1, beyond) - rounding


fractions = st.fractions(0, 4, max_denominator=64)


@untimed
@given(values=st.lists(fractions, min_size=9, max_size=9), k=st.integers(0, 8), batch=st.integers(1, 64))
def test_step_times_against_exact_fractions(values: list[Fraction], k: int, batch: int) -> None:
    w, kappa, tau, rho, d0, d1, kappa_d, o_sd, o_ar = values
    w, rho, context = w + 1, rho / 4, 1000
    numbers = [float(value) for value in (w, kappa, tau, rho, d0, d1, kappa_d, o_sd, o_ar)]
    names = [field.name for field in dataclasses.fields(AdditiveCost)]
    cost = AdditiveCost(**dict(zip(names, numbers, strict=True)))
    plain = w + kappa * batch * context + tau * batch + o_ar
    draft = k * (d0 + d1 * batch + kappa_d * batch * context)
    reads = 1 + rho * k
    verify = w + kappa * batch * context * reads + tau * batch * (k + 1)
    assert cost.plain_step_s(batch, context) == pytest.approx(float(plain), rel=1e-12)
    assert cost.speculative_step_s(k, batch, context) == pytest.approx(
        float(draft + verify + o_sd), rel=1e-12
    )


def test_arrays_equal_scalars_cell_by_cell() -> None:
    lengths, contexts = np.array([[1.0], [2.0], [4.0]]), np.array([0, 1000, 5000])
    cost = machine(overhead_s=18, draft_s_per_sequence=0.5)
    table = additive_breakeven(cost, lengths, 3, contexts)
    critical = critical_context(cost, lengths, 3)
    assert isinstance(table.wins, np.ndarray)
    assert isinstance(table.breakeven_batch, np.ndarray)
    assert isinstance(critical, np.ndarray)
    assert table.wins.shape == table.breakeven_batch.shape == (3, 3)
    assert set(table.wins.flat) == {"above", "below", "never", "always"}
    for (i, j), wins in np.ndenumerate(table.wins):
        scalar = additive_breakeven(cost, float(lengths[i, 0]), 3, int(contexts[j]))
        assert type(scalar.wins) is str
        assert type(scalar.breakeven_batch) is float
        assert scalar.wins == wins
        assert scalar.breakeven_batch == pytest.approx(table.breakeven_batch[i, j], rel=1e-12, nan_ok=True)
        assert critical_context(cost, float(lengths[i, 0]), 3) == pytest.approx(critical[i, 0], nan_ok=True)
        steps = cost.speculative_step_s(3, 2, contexts)
        assert isinstance(steps, np.ndarray)
        assert cost.speculative_step_s(3, 2, int(contexts[j])) == pytest.approx(steps[j])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        pytest.param(
            lambda: machine(weights_s=0), "weights_s: must be above 0, got 0", id="a pass that reads nothing"
        ),
        pytest.param(
            lambda: machine(kv_reread=1.5),
            "kv_reread: must be between 0 and 1, got 1.5",
            id="re-read above 1",
        ),
        pytest.param(
            lambda: machine(draft_fixed_s=-1e-3),
            "draft_fixed_s: must be at least 0, got -0.001",
            id="negative time",
        ),
        pytest.param(
            lambda: machine().plain_step_s(0, 10), "batch: must be above 0, got 0", id="empty batch"
        ),
        pytest.param(
            lambda: machine().speculative_step_s(3, 1, -1),
            "context: must be at least 0, got -1",
            id="negative context",
        ),
        pytest.param(
            lambda: additive_breakeven(machine(), 2.0, 3, float("inf")),
            "context: must be at least 0, got inf",
            id="infinite context",
        ),
        pytest.param(
            lambda: additive_breakeven(machine(), 5.0, 3, 0),
            "acceptance_length: counts the bonus token, so must be between 1 and 4, got 5",
            id="more tokens than a step can give",
        ),
        pytest.param(
            lambda: critical_context(machine(), 0.5, 3),
            "acceptance_length: counts the bonus token, so must be between 1 and 4, got 0.5",
            id="accepted tokens without the bonus",
        ),
    ],
)
def test_refusals_name_parameter_rule_and_value(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value) == message
