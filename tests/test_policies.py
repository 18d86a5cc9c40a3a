"""Means over a load, the best single k and tiers: against explicit steps and against every assignment."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.errors import InputError
from specmath.policies import best_static_k, mixed_speedup, plain_time_shares, schedule_regret, tier_ks


@st.composite
def tables(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Token costs by k and batch, and weights by batch."""
    n_ks, n_batches = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    row = st.lists(st.integers(1, 40), min_size=n_batches, max_size=n_batches)
    costs = draw(st.lists(row, min_size=n_ks, max_size=n_ks))
    weights = draw(st.lists(st.integers(0, 5), min_size=n_batches, max_size=n_batches).filter(any))
    return np.array(costs) / 16, weights


def test_the_mean_is_that_of_a_run_step_by_step() -> None:
    """A minute of plain decoding at three batches, and the same tokens again with speculation."""
    plain_step = {1: Fraction(10, 1000), 8: Fraction(12, 1000), 64: Fraction(30, 1000)}
    sd_step = {1: Fraction(14, 1000), 8: Fraction(20, 1000), 64: Fraction(90, 1000)}
    length = Fraction(5, 2)
    minutes = {1: Fraction(12), 8: Fraction(30), 64: Fraction(18)}
    sd_time = Fraction(0)
    for batch, seconds in minutes.items():
        tokens = seconds / plain_step[batch] * batch
        sd_time += tokens / (length * batch) * sd_step[batch]
    speedups = [float(length * plain_step[batch] / sd_step[batch]) for batch in minutes]
    shares = [float(seconds) for seconds in minutes.values()]
    assert mixed_speedup(speedups, shares) == pytest.approx(float(sum(minutes.values()) / sd_time), rel=1e-14)


def test_shares_of_steps_become_shares_of_time() -> None:
    """1000 plain steps of which half take 10 ms, three tenths 12 ms, a fifth 30 ms."""
    shares = plain_time_shares([500, 300, 200], [0.010, 0.012, 0.030])
    assert shares.tolist() == pytest.approx([5 / 14.6, 3.6 / 14.6, 6 / 14.6], rel=1e-14)


def test_regret() -> None:
    assert schedule_regret(2.0, 2.0) == 0
    assert schedule_regret(1.0, 4.0) == 0.75
    assert schedule_regret(3.0, 2.0) == -0.5


@settings(deadline=None)
@given(tables())
def test_the_best_single_k_is_found_among_all(table: tuple[np.ndarray[Any, Any], list[int]]) -> None:
    costs, weights = table
    totals = [sum(w * c for w, c in zip(weights, row, strict=True)) for row in costs.tolist()]
    assert totals[int(best_static_k(costs, weights))] == pytest.approx(min(totals), rel=1e-12)


@settings(deadline=None, max_examples=200)
@given(tables(), st.sampled_from([0.0, 0.01, 0.1, 0.5, 3.0]))
def test_tiers_are_the_best_of_all_assignments(
    table: tuple[np.ndarray[Any, Any], list[int]], bar: float
) -> None:
    costs, weights = table
    shares = np.array(weights) / sum(weights)

    def objective(ks: tuple[int, ...]) -> float:
        paid = sum(share * costs[k, place] for place, (k, share) in enumerate(zip(ks, shares, strict=True)))
        return float(paid) + bar * sum(a != b for a, b in itertools.pairwise(ks))

    everything = itertools.product(range(len(costs)), repeat=costs.shape[1])
    found = tuple(tier_ks(costs, weights, bar).tolist())
    assert objective(found) == pytest.approx(min(map(objective, everything)), rel=1e-12)


def test_without_a_bar_each_batch_has_its_best_k() -> None:
    costs = np.random.default_rng(1).uniform(0.3, 1.5, (9, 500))
    assert (tier_ks(costs, np.ones(500)) == costs.argmin(axis=0)).all()


def test_a_tie_changes_nothing() -> None:
    costs = [[1.0, 1.0, 1.0, 0.5], [0.5, 1.0, 1.0, 0.5]]
    assert tier_ks(costs, [1, 1, 1, 1]).tolist() == [1, 1, 1, 1]
    assert int(best_static_k([[1.0], [1.0]], [1])) == 0


def test_long_loads_keep_small_differences() -> None:
    """A weight of 1e-11 beside one of 1 still decides where the tier ends."""
    costs = np.ones((2, 2001))
    costs[1, :1200] = 0.9
    costs[1, 1200:] = 1.1
    weights = np.full(2001, 1e-11)
    weights[[0, 2000]] = 1
    assert np.flatnonzero(np.diff(tier_ks(costs, weights))).tolist() == [1199]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda: mixed_speedup([1, 0], [1, 1]), id="speed-up 0"),
        pytest.param(lambda: mixed_speedup([1, 2], [0, 0]), id="no time"),
        pytest.param(lambda: mixed_speedup([1, 2], [1, -1]), id="negative time"),
        pytest.param(lambda: tier_ks([1, 2], [1, 1]), id="one axis"),
        pytest.param(lambda: tier_ks([[1, 2]], [1, 1], -0.1), id="negative bar"),
        pytest.param(lambda: plain_time_shares([1], [0]), id="a step of 0 s"),
        pytest.param(lambda: schedule_regret(1, 0), id="no best"),
        pytest.param(lambda: best_static_k([[float("nan")]], [1]), id="NaN"),
    ],
)
def test_refusals(call: Any) -> None:
    with pytest.raises(InputError):
        call()
