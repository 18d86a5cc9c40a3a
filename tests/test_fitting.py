"""The fitting core against the conditions of a minimum, against NumPy, and against seeded noise."""

from __future__ import annotations

import numpy as np
import pytest

from specmath.checks import FloatArray
from specmath.fitting import BoolArray, RobustFit, least_squares, left_out, linear_solver, robust_fit

SIGNED = np.array([False, False])


def random_columns(rng: np.random.Generator, columns: int) -> tuple[FloatArray, FloatArray]:
    return rng.uniform(0.1, 3, (12, columns)), rng.uniform(0, 5, 12)


@pytest.mark.parametrize("seed", range(20))
def test_without_bounds_it_is_numpys_least_squares(seed: int) -> None:
    columns, values = random_columns(np.random.default_rng(seed), 3)
    expected = np.linalg.lstsq(columns, values, rcond=None)[0]
    np.testing.assert_allclose(least_squares(columns, values), expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_no_small_change_that_keeps_the_bounds_improves_the_fit(seed: int) -> None:
    """The sum is convex, so a minimum among neighbours is the minimum."""
    rng = np.random.default_rng(seed)
    columns, values = random_columns(rng, 5)
    weights, signed = rng.uniform(0, 2, 12), np.array([True, False, False, False, False])
    best = least_squares(columns, values, weights=weights, signed=signed)
    assert np.all(best[~signed] >= 0)

    def missed(coefficients: FloatArray) -> float:
        return float(np.sum(weights * (columns @ coefficients - values) ** 2))

    for change in rng.normal(scale=1e-3, size=(200, 5)):
        other = np.where(signed, best + change, np.maximum(best + change, 0))
        assert missed(other) >= missed(best) - 1e-12


def test_some_of_these_problems_have_coefficients_at_their_bound() -> None:
    held = 0
    for seed in range(60):
        columns, values = random_columns(np.random.default_rng(seed), 5)
        held += int(np.sum(least_squares(columns, values, signed=np.zeros(5, dtype=bool)) == 0))
    assert 60 < held < 240


def test_of_columns_that_say_the_same_the_first_is_kept() -> None:
    ones = np.ones((4, 1))
    found = least_squares(np.hstack([ones, 2 * ones]), np.full(4, 6.0), signed=SIGNED)
    assert found.tolist() == pytest.approx([6.0, 0.0])


def test_columns_that_may_not_be_held_and_say_the_same_have_no_answer() -> None:
    assert np.isnan(least_squares(np.ones((4, 2)), np.full(4, 6.0))).all()


def test_columns_of_very_different_size_are_told_apart() -> None:
    kv = np.array([0.0, 1e6, 2e6, 5e6])
    columns = np.stack([np.ones(4), kv], axis=-1)
    found = least_squares(columns, 1e-3 + 4e-9 * kv, signed=SIGNED)
    assert found.tolist() == pytest.approx([1e-3, 4e-9], rel=1e-9)


def line(rng: np.random.Generator, noise: float) -> tuple[FloatArray, FloatArray]:
    """Times 4 + 0.5·t with relative noise, at 40 t from 1 to 40."""
    tokens = np.arange(1.0, 41.0)
    columns = np.stack([np.ones(40), tokens], axis=-1)
    return columns, (4 + 0.5 * tokens) * (1 + noise * rng.standard_normal(40))


def fitted(columns: FloatArray, seconds: FloatArray, signed: BoolArray = SIGNED) -> RobustFit:
    return robust_fit(linear_solver(columns, seconds, signed), len(seconds), signed)


@pytest.mark.parametrize("seed", range(20))
def test_outlying_entries_do_not_move_the_constants(seed: int) -> None:
    columns, seconds = line(np.random.default_rng(seed), 0.01)
    undisturbed = fitted(columns, seconds)
    seconds[[2, 20, 39]] *= 1.5  # the last one has the most leverage
    disturbed = fitted(columns, seconds)
    errors = np.sqrt(np.diag(disturbed.covariance))
    assert np.all(np.abs(disturbed.coefficients - undisturbed.coefficients) < 2 * errors)
    assert np.flatnonzero(disturbed.weights == 0).tolist() == [2, 20, 39]
    plain = least_squares(columns / seconds[:, None], np.ones(40), signed=SIGNED)
    assert np.max(np.abs(plain - undisturbed.coefficients) / errors) > 3, "the outliers matter at all"


def test_standard_errors_are_those_that_seeded_noise_shows() -> None:
    """Of 500 fits, the root mean square of (found − true)/standard error is 1 to within its own noise."""
    rng = np.random.default_rng(7)
    fits = [fitted(*line(rng, 0.02)) for _ in range(500)]
    z = np.array([(fit.coefficients - (4, 0.5)) / np.sqrt(np.diag(fit.covariance)) for fit in fits])
    assert np.sqrt(np.mean(z**2, axis=0)).tolist() == pytest.approx([1, 1], abs=3.5 / np.sqrt(2 * 500))


def test_noise_is_found_as_it_was_put_in() -> None:
    rng = np.random.default_rng(8)
    scales = [fitted(*line(rng, 0.02)).scale for _ in range(200)]
    assert float(np.mean(scales)) == pytest.approx(0.02, rel=0.05)


def test_a_coefficient_held_at_0_leaves_the_others_as_uncertain_as_they_are() -> None:
    """t and t² are alike: not to know the second is not to know the first."""
    rng = np.random.default_rng(1)
    columns, seconds = line(rng, 0.01)
    curved = np.column_stack([columns, columns[:, 1] ** 2])
    fits = [fitted(curved, line(rng, 0.01)[1], np.zeros(3, dtype=bool)) for _ in range(40)]
    held = [fit for fit in fits if fit.coefficients[2] == 0]
    free = [fit for fit in fits if fit.coefficients[2] > 0]
    assert held
    assert free
    of_held, of_free = (np.mean([fit.covariance[1, 1] for fit in some]) for some in (held, free))
    assert of_held == pytest.approx(of_free, rel=0.3)
    assert of_held > 4 * fitted(columns, seconds).covariance[1, 1]


def test_exact_times_give_exact_constants_and_no_outliers() -> None:
    columns, seconds = line(np.random.default_rng(0), 0.0)
    fit = fitted(columns, seconds)
    assert fit.coefficients.tolist() == pytest.approx([4, 0.5], rel=1e-12)
    assert np.all(fit.weights == 1)


def test_as_many_entries_as_coefficients_tell_no_standard_error() -> None:
    columns, seconds = line(np.random.default_rng(0), 0.01)
    fit = fitted(columns[[0, 30]], seconds[[0, 30]])
    assert fit.errors.tolist() == pytest.approx([0, 0], abs=1e-12)
    assert not fit.covariance.any()


def test_refits_without_an_entry_equal_the_error_over_what_leverage_leaves() -> None:
    """For least squares the left-out error is e/(1 − h): one fit gives them all, another way."""
    columns, seconds = line(np.random.default_rng(3), 0.05)
    hat = columns @ np.linalg.inv(columns.T @ columns) @ columns.T
    expected = (hat @ seconds - seconds) / (1 - np.diag(hat))
    found = left_out(np.arange(40), lambda others: columns @ least_squares(columns[others], seconds[others]))
    np.testing.assert_allclose(found - seconds, expected, rtol=1e-8)


def test_a_group_is_left_out_as_one() -> None:
    groups = np.array(["a", "b", "a", "c"])
    seen: list[list[bool]] = []

    def predicted(others: BoolArray) -> FloatArray:
        seen.append(others.tolist())
        return np.full(4, float(others.sum()))

    assert left_out(groups, predicted).tolist() == [2, 3, 2, 3]
    assert seen == [[False, True, False, True], [True, False, True, True], [True, True, True, False]]
