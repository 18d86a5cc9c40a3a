"""Trials of drafts cut short: bounds that hold every way of cutting, and what they refuse."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from specmath.counted_acceptance import PositionCounts
from specmath.cut_bounds import bounds_of_cut_drafts


def test_bounds_by_hand() -> None:
    """Six tokens missing: of six drafts at position 4, of three from 3 on, or of two from 2 on."""
    found = bounds_of_cut_drafts(100, (60, 50, 40, 39), 394, 4)
    assert found.missing == 6
    assert found.judged_high == (100.0, 60.0, 50.0, 40.0)
    assert found.judged_low == (100.0, 58.0, 47.0, 39.0)
    assert found.conditional[3] == (39 / 40, 1.0)
    assert found.degrees_of_freedom == 3


def test_full_drafts_leave_pearsons_statistic() -> None:
    found = bounds_of_cut_drafts(1000, (800, 400, 300), 3000, 3)
    full = PositionCounts(judged=(1000, 800, 400), accepted=(800, 400, 300))
    assert found.judged_low == found.judged_high == full.judged
    assert found.chi_square <= full.chi_square
    assert found.chi_square == pytest.approx(full.chi_square, rel=0.02)
    assert found.conditional_intervals() == full.conditional_intervals()


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=60),
)
def test_every_way_of_cutting_lies_within(drafts: list[tuple[int, int]]) -> None:
    """Drafts of one to four tokens, each with what it accepted, counted one by one."""
    cut = [(length, min(length, accepted)) for length, accepted in drafts]
    at = [sum(accepted >= place for _, accepted in cut) for place in range(1, 5)]
    judged = [
        sum(length >= place and accepted >= place - 1 for length, accepted in cut) for place in range(1, 5)
    ]
    found = bounds_of_cut_drafts(len(cut), at, sum(length for length, _ in cut), 4)
    for low, true, high in zip(found.judged_low, judged, found.judged_high, strict=True):
        assert low - 1e-9 <= true <= high
    whole = PositionCounts(judged=tuple(map(float, judged)), accepted=tuple(map(float, at)))
    if not math.isnan(whole.chi_square) and not math.isnan(found.chi_square):
        assert found.chi_square <= whole.chi_square * 1.001 + 1e-4  # α is tried on a grid


def test_the_least_statistic_is_that_of_trials_tried_one_by_one() -> None:
    reached = (1000.0, 500.0, 360.0, 290.0)
    found = bounds_of_cut_drafts(1000, reached[1:], 2940, 3)
    seconds, thirds = (np.linspace(low, high, 121) for low, high in ((470, 500), (300, 360)))
    least = min(
        sum((a - alpha * j) ** 2 / j for a, j in zip(reached[1:], (1000, *judged), strict=True))
        / (alpha * (1 - alpha))
        for judged in product(seconds[::10], thirds[::10])
        for alpha in np.linspace(0.5, 0.8, 301)
    )
    assert found.chi_square == pytest.approx(least, rel=1e-3)


def test_nothing_to_compare() -> None:
    alone = bounds_of_cut_drafts(10, (5,), 10, 1)
    assert math.isnan(alone.chi_square)
    assert math.isnan(alone.p_value)
    empty = bounds_of_cut_drafts(10, (5, 0, 0), 12, 3)
    assert math.isnan(empty.conditional[2][0])
    assert math.isnan(empty.conditional_intervals()[2][0])
    assert all(before >= after for before, after in pairwise(empty.judged_high))
