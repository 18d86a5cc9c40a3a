"""Additive costs as a source: its scan of whole batches against the closed forms of B* and C_crit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from specmath.acceptance import ConstantAcceptance, expected_tokens
from specmath.additive import AdditiveCost, additive_breakeven, critical_context
from specmath.additive_source import Additive
from specmath.crossovers import find_crossovers
from specmath.errors import InputError

MACHINE = AdditiveCost(
    weights_s=8e-3,
    kv_s_per_token=1e-8,
    compute_s_per_token=5e-5,
    kv_reread=0.0,
    draft_fixed_s=1e-3,
    draft_s_per_sequence=1e-5,
    draft_kv_s_per_token=1e-9,
    overhead_s=2e-3,
    plain_overhead_s=1e-3,
)
SOURCE = Additive(cost=MACHINE, name="a machine")

costs = st.builds(
    AdditiveCost,
    weights_s=st.floats(1e-3, 2e-2),
    kv_s_per_token=st.floats(0, 5e-8),
    compute_s_per_token=st.floats(0, 1e-4),
    kv_reread=st.floats(0, 1),
    draft_fixed_s=st.floats(0, 2e-3),
    draft_s_per_sequence=st.floats(0, 2e-5),
    draft_kv_s_per_token=st.floats(0, 5e-9),
    overhead_s=st.floats(0, 5e-3),
    plain_overhead_s=st.floats(0, 2e-3),
)
lengths = st.integers(1, 12)
contexts = st.integers(0, 100_000)
untimed = settings(deadline=None)


def advantage_s(cost: AdditiveCost, length: float, k: int, batch: float, context: float) -> float:
    """Seconds that a step saves, E·T_AR − T_step, by the source."""
    step = Additive(cost=cost, name="generated").step_cost(k, batch, context)
    return float((length - step.in_plain_steps) * step.plain_s)


def test_a_step_taken_apart_by_hand() -> None:
    """k = 3, B = 10, C = 2000, in milliseconds.

    Plain: 8 + 0.2 + 0.5 + 1 = 9.7. Draft pass: 1 + 0.1 + 0.02 = 1.12. Verification: 8 + 0.2 + 2 = 10.2.
    """
    step = SOURCE.step_cost(3, 10, 2000)
    assert float(step.plain_s) == pytest.approx(9.7e-3, rel=1e-14)
    assert float(step.draft_cost) == pytest.approx(1.12 / 9.7, rel=1e-14)
    assert float(step.draft_passes) == 3
    assert float(step.verify_cost) == pytest.approx(10.2 / 9.7, rel=1e-14)
    assert float(step.overhead) == pytest.approx(2 / 9.7, rel=1e-14)
    assert float(step.in_plain_steps) == pytest.approx((3 * 1.12 + 10.2 + 2) / 9.7, rel=1e-14)


def test_a_cache_read_again_is_verification() -> None:
    """ρ = 1/2, k = 3: the 0.2 ms of the cache 2.5 times."""
    again = AdditiveCost(
        weights_s=8e-3,
        kv_s_per_token=1e-8,
        compute_s_per_token=5e-5,
        kv_reread=0.5,
        draft_fixed_s=0,
        draft_s_per_sequence=0,
        draft_kv_s_per_token=0,
        overhead_s=0,
        plain_overhead_s=0,
    )
    step = Additive(cost=again, name="a machine").step_cost(3, 10, 2000)
    assert float(step.verify_cost) == pytest.approx((8 + 0.5 + 2) / 8.7, rel=1e-14)
    assert float(step.draft_cost) == float(step.overhead) == 0


@untimed
@given(costs, lengths, st.integers(1, 4096), contexts)
def test_the_step_is_that_of_the_machine(cost: AdditiveCost, k: int, batch: int, context: int) -> None:
    step = Additive(cost=cost, name="generated").step_cost(k, batch, context)
    assert float(step.plain_s) == pytest.approx(cost.plain_step_s(batch, context), rel=1e-14)
    assert float(step.in_plain_steps * step.plain_s) == pytest.approx(
        cost.speculative_step_s(k, batch, context), rel=1e-12
    )
    verify_s = cost.weights_s + cost.kv_s_per_token * batch * context * (1 + cost.kv_reread * k)
    verify_s += cost.compute_s_per_token * batch * (k + 1)
    assert float(step.verify_cost * step.plain_s) == pytest.approx(verify_s, rel=1e-11)


def test_arrays_broadcast_to_the_cells_one_by_one() -> None:
    k, batch, context = np.array([1, 4]), np.array([[1], [9]]), np.array([[[0.0]], [[500.0]]])
    grid = SOURCE.step_cost(k, batch, context).in_plain_steps
    assert grid.shape == (2, 2, 2)
    for c, b, d in np.ndindex(grid.shape):
        alone = SOURCE.step_cost(int(k[d]), int(batch[b, 0]), float(context[c, 0, 0]))
        assert grid[c, b, d] == float(alone.in_plain_steps)


@untimed
@given(costs, st.floats(0.05, 0.99), lengths, contexts)
def test_the_scan_finds_the_closed_form(cost: AdditiveCost, alpha: float, k: int, context: int) -> None:
    """Batches 1 to 300 one by one; a break-even batch outside that reads as always or never."""
    last = 300
    source = Additive(cost=cost, name="generated")
    row: dict[str, Any] = next(
        find_crossovers(ConstantAcceptance(alpha), k, source=source, context=context, max_batch=last).rows()
    )
    length = float(np.asarray(expected_tokens(alpha, k)))
    closed = additive_breakeven(cost, length, k, context)
    batch = float(np.asarray(closed.breakeven_batch))
    # At a whole B* rounding decides which side the batch falls on.
    assume(math.isnan(batch) or abs(batch - round(batch)) > 1e-6)
    assume(abs(advantage_s(cost, length, k, 1, context)) > 1e-12)
    if closed.wins == "below" and batch < last:
        assert row["wins"] == "below"
        assert row["winning_batches"] == [[1, math.floor(batch)]]
        assert row["breakeven_batch"] == pytest.approx(batch, rel=1e-6)
    elif closed.wins == "above" and batch < last:
        assert row["wins"] == "above"
        assert row["winning_batches"] == [[math.ceil(batch), last]]
        assert row["breakeven_batch"] == pytest.approx(batch, rel=1e-6)
    else:
        wins_at_once = closed.wins in ("below", "always")
        assert row["wins"] == ("always" if wins_at_once else "never")


@untimed
@given(costs, st.floats(0.05, 0.99), lengths)
def test_beyond_the_critical_context_a_larger_batch_helps(cost: AdditiveCost, alpha: float, k: int) -> None:
    length = float(np.asarray(expected_tokens(alpha, k)))
    source = Additive(cost=cost, name="generated")
    critical = float(source.critical_context(length, k))

    def gain_per_sequence(context: float) -> float:
        return advantage_s(cost, length, k, 1001, context) - advantage_s(cost, length, k, 1, context)

    if math.isnan(critical):
        assert gain_per_sequence(1e6) <= 1e-9 * float(np.asarray(cost.plain_step_s(1001, 1e6)))
        return
    assume(1 < critical < 1e7)
    step_s = float(np.asarray(cost.plain_step_s(1001, critical)))
    # At C_crit the KV gain balances this loss per sequence; below rounding of the step no sign can be seen.
    loss_s = cost.compute_s_per_token * (k + 1 - length) + k * cost.draft_s_per_sequence
    assume(1000 * loss_s > 1e-6 * step_s)
    assert abs(gain_per_sequence(critical)) < 1e-9 * step_s * (k + 1)
    assert gain_per_sequence(2 * critical) > 0
    assert gain_per_sequence(critical / 2) < 0


def test_the_winning_batches_turn_at_the_critical_context() -> None:
    """k = 3, E = 3.439 (α = 0.9): numerator 2.439·8 − 3 − (2 − 3.439) = 17.951 ms.

    D = 0.05·(4 − 3.439) + 3·0.01 − G·C with G = 2.439·1e-5 − 3·1e-6 = 2.139e-5 ms: 0.05805 − G·C ms, so
    C_crit = 2713.9 and B* at context 0 is 17.951/0.05805 = 309.2.
    """
    rows: list[dict[str, Any]] = list(
        find_crossovers(
            ConstantAcceptance(0.9), 3, source=SOURCE, context=[0, 1000, 2713, 2715, 9000], max_batch=4096
        ).rows()
    )
    assert [row["critical_context"] for row in rows] == pytest.approx([2713.88] * 5, abs=0.01)
    assert rows[0]["breakeven_batch"] == pytest.approx(309.23, abs=0.01)
    assert rows[1]["breakeven_batch"] == pytest.approx(17.951 / (0.05805 - 0.02139), rel=1e-9)
    # Close to C_crit the break-even batch runs away, beyond it there is none.
    assert [row["wins"] for row in rows] == ["below", "below", "always", "always", "always"]


def test_speculation_may_win_above_a_batch_only() -> None:
    """Draft and overhead eat more than the weights save; at 50k every sequence saves cache reads."""
    heavy = AdditiveCost(
        weights_s=4e-3,
        kv_s_per_token=1e-8,
        compute_s_per_token=1e-5,
        kv_reread=0.0,
        draft_fixed_s=4e-3,
        draft_s_per_sequence=0.0,
        draft_kv_s_per_token=0.0,
        overhead_s=0.0,
        plain_overhead_s=0.0,
    )
    # k = 3, E = 3.439: (2.439·4 − 12)/(0.01·0.561 − 2.439e-5·5e4) = −2.244/−1.21389 = 1.8486.
    row: dict[str, Any] = next(
        find_crossovers(
            ConstantAcceptance(0.9),
            3,
            source=Additive(cost=heavy, name="a machine"),
            context=50_000,
            max_batch=100,
        ).rows()
    )
    assert row["wins"] == "above"
    assert row["breakeven_batch"] == pytest.approx(1.8486, abs=5e-5)
    assert row["winning_batches"] == [[2, 100]]


def test_the_critical_context_is_that_of_the_closed_form() -> None:
    found = SOURCE.critical_context([1.5, 2.5, 3.9], [3, 3, 3])
    assert found == pytest.approx(np.asarray(critical_context(MACHINE, [1.5, 2.5, 3.9], 3)), rel=1e-15)


def test_what_the_source_says_of_itself() -> None:
    assert SOURCE.case == "additive"
    assert SOURCE.basis.endswith("a machine")
    assert SOURCE.inputs["costs"] == "a machine"
    assert SOURCE.inputs["weights_s"] == 8e-3
    assert SOURCE.warnings == ()
    assert math.isnan(SOURCE.ridge_tokens)
    for limit in SOURCE.max_batches([1, 2], [[0], [9], [99]]):
        assert limit.shape == (3, 2)
        assert np.isnan(limit).all()
    (line,) = SOURCE.derivation(3, 10, 2000, width=4, passes=3)
    assert "T_AR = 0.0097 s" in line
    assert "R = 1.6041" in line  # (3·1.12 + 10.2 + 2)/9.7


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: SOURCE.step_cost(-1, 1, 0), "k"),
        (lambda: SOURCE.step_cost(2, 0, 0), "batch"),
        (lambda: SOURCE.step_cost(2, 1, -1), "context"),
    ],
)
def test_what_is_wrong_is_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: "):
        call()


def test_a_tree_is_priced_by_its_width() -> None:
    """(1 + 0.5·64·1000·1e-5·(1 + 0.5·19) + 0.01·64·20) over (1 + 0.32 + 0.64) plain seconds."""
    cost = AdditiveCost(
        weights_s=1.0,
        kv_s_per_token=0.5e-5,
        compute_s_per_token=0.01,
        kv_reread=0.5,
        draft_fixed_s=0.0,
        draft_s_per_sequence=0.0,
        draft_kv_s_per_token=0.0,
        overhead_s=0.0,
        plain_overhead_s=0.0,
    )
    step = Additive(cost=cost, name="by hand").step_cost(4, 64, 1000, width=20)
    assert float(step.verify_cost) == pytest.approx((1 + 0.32 * 10.5 + 12.8) / (1 + 0.32 + 0.64), rel=1e-14)
