"""Scores of predictions, by hand on tables small enough for it, and against numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from specmath.errors import InputError
from specmath.scoring import (
    anchored_predictions,
    left_out_line,
    left_out_ranges,
    range_floor,
    score_predictions,
    setup_weights,
    weighted_quantile,
)

# Five rows: errors +10 %, −20 %, 0, +50 %, +25 %.
MEASURED = [1.0, 2.0, 0.8, 0.8, 1.6]
PREDICTED = [1.1, 1.6, 0.8, 1.2, 2.0]


def test_errors_by_hand() -> None:
    score = score_predictions(PREDICTED, MEASURED)
    assert score.rows == score.setups == 5
    assert score.median_error == pytest.approx(0.20, rel=1e-12)  # of 0, .1, .2, .25, .5
    assert score.p90_error == pytest.approx(0.25 + 0.6 * 0.25, rel=1e-12)  # place 3.6 of 0 … 4
    assert score.bias == pytest.approx(0.10, rel=1e-12)  # of −.2, 0, .1, .25, .5


def test_signs_by_hand() -> None:
    score = score_predictions(PREDICTED, MEASURED)
    # Measured 1.0 is neither slowdown nor gain; one slowdown of two is called, both gains are.
    assert score.slowdowns == 2
    assert score.balanced_sign == pytest.approx((1 / 2 + 2 / 2) / 2)
    assert score.sign == pytest.approx(4 / 5)


def test_a_measured_tie_is_neither_slowdown_nor_gain() -> None:
    score = score_predictions([0.9, 0.9, 1.1], [1.0, 0.8, 1.2])
    assert score.balanced_sign == 1.0
    assert score.sign == pytest.approx(2 / 3)


def test_ranges_by_hand() -> None:
    low, high = [1.0, 1.0, 0.5, 0.9, 1.8], [1.2, 1.8, 1.0, 1.8, 2.7]
    score = score_predictions(PREDICTED, MEASURED, low=low, high=high)
    assert score.coverage == pytest.approx(2 / 5)  # the first and the third
    assert score.width == pytest.approx(1.8)  # of 1.2, 1.8, 2, 2, 1.5
    assert score.slowdowns_in_range == 1.0  # .5 and .9 reach below 1


def test_without_ranges_or_slowdowns_nothing_is_claimed() -> None:
    score = score_predictions([1.5, 1.5], [1.2, 1.4])
    unknown = (score.coverage, score.width, score.slowdowns_in_range, score.balanced_sign)
    assert all(math.isnan(value) for value in (*unknown, score.log_correlation))


def test_each_setup_once_lets_its_rows_share_one_weight() -> None:
    # One row off by 10 %, three of another set-up off by 30 %: places 0, 2/3, 1 and 4/3 of 4/3.
    predicted, measured = [1.1, 1.3, 1.3, 1.3], [1.0] * 4
    plain = score_predictions(predicted, measured, setups=list("abbb"))
    once = score_predictions(predicted, measured, setups=list("abbb"), each_setup_once=True)
    assert plain.setups == once.setups == 2
    assert plain.median_error == pytest.approx(0.3)
    assert once.median_error == pytest.approx(0.1 + 0.2 * (0.5 * 4 / 3 - 0) / (2 / 3), rel=1e-12)
    assert setup_weights(list("abbb")).tolist() == [1, 1 / 3, 1 / 3, 1 / 3]


def test_log_correlation_is_pearsons_of_the_logs() -> None:
    score = score_predictions(PREDICTED, MEASURED)
    assert score.log_correlation == pytest.approx(np.corrcoef(np.log(PREDICTED), np.log(MEASURED))[0, 1])
    assert math.isnan(score_predictions([1.6] * 5, MEASURED).log_correlation)


def test_a_repeated_row_weighs_like_a_weight_of_two_in_the_correlation() -> None:
    thrice = score_predictions([1.1, 1.1, 1.6, 2.0], [1.0, 1.0, 2.0, 1.6], setups=list("aabc"))
    once = score_predictions(
        [1.1, 1.1, 1.6, 2.0], [1.0, 1.0, 2.0, 1.6], setups=list("aabc"), each_setup_once=True
    )
    alone = score_predictions([1.1, 1.6, 2.0], [1.0, 2.0, 1.6])
    assert once.log_correlation == pytest.approx(alone.log_correlation)
    assert thrice.log_correlation != pytest.approx(alone.log_correlation)


@given(
    st.lists(st.floats(0.01, 100), min_size=1, max_size=40),
    st.floats(0, 1),
    st.floats(0.1, 10),
)
def test_equal_weights_give_numpys_quantile(values: list[float], share: float, weight: float) -> None:
    own = weighted_quantile(values, share, [weight] * len(values))
    assert own == pytest.approx(float(np.quantile(values, share)), rel=1e-9)


def test_an_anchor_removes_a_factor_that_a_setup_shares() -> None:
    measured = np.array([1.0, 2.0, 3.0, 1.5])
    missed = np.array([1.3, 1.3, 1.3, 0.7])  # the fourth is alone in its set-up
    rows, corrected, weights = anchored_predictions(measured * missed, measured, ["a", "a", "a", "b"])
    assert sorted(rows.tolist()) == [0, 0, 1, 1, 2, 2]
    np.testing.assert_allclose(corrected, measured[rows], rtol=1e-12)
    assert weights.sum() == pytest.approx(3)


def test_an_anchor_is_a_factor_on_the_step_cost() -> None:
    """E/(f·R) with f = R_measured/R_predicted of the anchor, whatever the acceptance lengths."""
    lengths, steps, modelled = np.array([2.5, 3.5]), np.array([1.4, 2.0]), np.array([1.2, 1.5])
    rows, corrected, _ = anchored_predictions(lengths / modelled, lengths / steps, ["a", "a"])
    factor = steps / modelled
    expected = {1: lengths[1] / (factor[0] * modelled[1]), 0: lengths[0] / (factor[1] * modelled[0])}
    assert dict(zip(rows.tolist(), corrected.tolist(), strict=True)) == pytest.approx(expected)


def test_setups_of_one_row_have_no_anchor() -> None:
    rows, corrected, weights = anchored_predictions([1.0, 2.0], [1.0, 2.0], ["a", "b"])
    assert rows.size == corrected.size == weights.size == 0


def test_the_line_leaves_every_row_of_that_k_out() -> None:
    # 1 + .1·k but for both rows at k = 3: their line knows nothing of them.
    k, step = [1, 2, 3, 3, 4], [1.1, 1.2, 9.0, 8.0, 1.4]
    line = left_out_line(k, step, ["a"] * 5)
    assert line[2] == pytest.approx(1.3)
    assert line[3] == pytest.approx(1.3)


def test_two_k_make_no_line_to_test() -> None:
    assert np.isnan(left_out_line([1, 1, 2], [1.0, 1.1, 1.2], ["a"] * 3)).all()


def test_a_floor_holds_its_share_and_never_excludes_the_prediction() -> None:
    """Measured 1.0, 1.1, … 2.0 of predicted 1.5: four fifths lie within the second and the last but one."""
    measured = np.linspace(1.0, 2.0, 11)
    least, most = range_floor(np.full(11, 1.5), measured, share=0.8)
    assert 1.5 / least == pytest.approx(1.1)
    assert 1.5 * most == pytest.approx(1.9)
    assert range_floor([2.0, 2.0, 2.0], [1.0, 1.0, 1.0], share=0.5) == pytest.approx((2.0, 1.0))
    assert range_floor([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], share=0.5) == pytest.approx((1.0, 2.0))


def test_a_source_has_no_part_in_its_own_range() -> None:
    predicted, measured = [1.0] * 4, [0.5, 0.8, 1.25, 4.0]
    low, high = left_out_ranges(predicted, measured, ["a", "b", "b", "c"], list(range(4)), share=1.0)
    assert low.tolist() == pytest.approx([0.8, 0.5, 0.5, 0.5])
    assert high.tolist() == pytest.approx([4.0, 4.0, 4.0, 1.25])
    assert np.isnan(left_out_ranges([1.0], [1.0], ["a"], ["a"])[0]).all()


def test_a_floor_counts_each_setup_once() -> None:
    """Three rows of one set-up weigh as one: the median lies between that set-up and the two others."""
    sources, setups = ["x"] * 5 + ["y"], ["a", "a", "a", "b", "c", "d"]
    low, _ = left_out_ranges([1.0] * 6, [0.5, 0.5, 0.5, 0.8, 0.8, 1.0], sources, setups, share=0.0)
    # Places of log 1.25, 1.25, 2, 2, 2: 0, 1, 5/3, 2, 7/3; the middle, 7/6, is a quarter of the way to 2.
    assert low[5] == pytest.approx(1 / (1.25 * (2 / 1.25) ** 0.25))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(([1.0, 2.0], [1.0]), "measured: must be as long as predicted", id="lengths"),
        pytest.param(([0.0], [1.0]), "predicted: must be above 0, got 0", id="zero"),
        pytest.param(([1.0], [math.nan]), "measured: must be above 0, got nan", id="nan"),
        pytest.param(([[1.0]], [[1.0]]), "measured: must be as long as predicted", id="shape"),
    ],
)
def test_refusals(arguments: tuple[Sequence[float], Sequence[float]], text: str) -> None:
    with pytest.raises(InputError, match=text):
        score_predictions(*arguments)


def test_refused_ranges_and_names() -> None:
    with pytest.raises(InputError, match="high: must be at least low"):
        score_predictions([1.0], [1.0], low=[2.0], high=[1.0])
    with pytest.raises(InputError, match="setups: must name each of the 1 rows, got 2"):
        score_predictions([1.0], [1.0], setups=["a", "b"])


def test_large_setups_have_some_anchors_and_every_row() -> None:
    predicted = np.linspace(1, 2, 1_000)
    rows, corrected, weights = anchored_predictions(predicted, predicted * 1.5, ["a"] * 1_000)
    assert set(rows.tolist()) == set(range(1_000))
    assert rows.size == 1_000 * 64 - 64
    assert corrected == pytest.approx(predicted[rows] * 1.5)
    assert np.bincount(rows, weights) == pytest.approx(np.ones(1_000))
