"""α from positions, from totals, with drafts cut short: against brute force, closed forms and simulation."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from specmath.acceptance import BetaAcceptance, ConstantAcceptance
from specmath.beta_fits import fitted_beta, has_two_peaks
from specmath.checks import IntArray
from specmath.clustered_errors import interval_factor, ratio_standard_error
from specmath.counted_acceptance import (
    AlphaEstimate,
    alpha_of_totals,
    bisected,
    counts_by_position,
    counts_of_cut_drafts,
    equal_lengths,
    length_standard_error,
    mean_accepted,
    slope,
    spread_lengths,
)
from specmath.errors import InputError
from specmath.estimation import alpha_from_acceptance_length, alpha_from_counters, wilson_interval


def drawn(rng: np.random.Generator, alpha: float, lengths: IntArray) -> IntArray:
    """Accepted tokens of drafts of these lengths."""
    return np.asarray(np.minimum(rng.geometric(1.0 - alpha, lengths.size) - 1, lengths), dtype=np.int64)


def reached(accepted: IntArray, k: int) -> list[float]:
    return [float((accepted >= place).sum()) for place in range(1, k + 1)]


# ---------------------------------------------------------------- by position


def test_alpha_maximises_the_likelihood_of_all_drafts() -> None:
    """A grid over α of the likelihood of single drafts, which the estimator never forms."""
    histogram = (40, 25, 20, 15)
    grid = np.linspace(0.001, 0.999, 999)
    outcomes = [(1 - grid) * grid**place for place in range(3)] + [grid**3]
    likelihood = sum(steps * np.log(chance) for steps, chance in zip(histogram, outcomes, strict=True))
    found = counts_by_position(100, [60, 35, 15]).alpha.alpha
    assert found == pytest.approx(float(grid[np.argmax(likelihood)]), abs=6e-4)
    assert found == pytest.approx(float(Fraction(60 + 35 + 15, 100 + 60 + 35)), rel=1e-15)


@given(st.lists(st.integers(0, 500), min_size=1, max_size=8), st.integers(1, 500))
def test_whole_counts_agree_with_the_counters_of_the_library(drops: list[int], last: int) -> None:
    counts = [last + sum(drops[place:]) for place in range(len(drops) + 1)]
    mine, theirs = counts_by_position(counts[0], counts[1:]), alpha_from_counters(counts[0], counts[1:])
    assert mine.alpha.alpha == pytest.approx(theirs.alpha, rel=1e-12)
    assert mine.alpha.standard_error == pytest.approx(theirs.standard_error, rel=1e-9, abs=1e-12)
    assert (mine.alpha.alpha_low, mine.alpha.alpha_high) == pytest.approx(
        (theirs.alpha_low, theirs.alpha_high)
    )
    assert mine.conditional == pytest.approx(theirs.conditional, nan_ok=True)
    assert mine.chi_square == pytest.approx(theirs.chi_square, nan_ok=True)
    assert mine.p_value == pytest.approx(theirs.p_value, nan_ok=True)


def test_positions_with_their_own_drafted_counts_are_exact() -> None:
    """4,000 drafts of three and 2,000 of one, expected counts of a = 3/4, 18/25, 2/3 in exact fractions."""
    a = (Fraction(3, 4), Fraction(18, 25), Fraction(2, 3))
    reached_at = (6000 * a[0], 4000 * a[0] * a[1], 4000 * a[0] * a[1] * a[2])
    counts = counts_by_position(6000, [float(one) for one in reached_at], drafted_at=[6000, 4000, 4000])
    assert counts.conditional == pytest.approx([float(one) for one in a], rel=1e-12)
    assert counts.judged == pytest.approx([6000, 3000, 2160], rel=1e-12)
    assert counts.survival == pytest.approx([0.75, 0.54, 0.36], rel=1e-12)


def test_rounded_counts_that_rise_are_cut() -> None:
    assert counts_by_position(10, [10.4, 10.2]).conditional == (1.0, 1.0)


@pytest.mark.parametrize(
    ("drafts", "at", "drafted", "name"),
    [
        (0, [1], (), "drafts"),
        (1, [], (), "accepted_at"),
        (1, [-1], (), "accepted_at"),
        (9, [5, 1], (9,), "drafted_at"),
    ],
)
def test_impossible_counts_are_refused(
    drafts: float, at: list[float], drafted: tuple[float, ...], name: str
) -> None:
    with pytest.raises(InputError) as caught:
        counts_by_position(drafts, at, drafted_at=drafted)
    assert caught.value.name == name


@pytest.mark.parametrize(("alpha", "k", "drafts"), [(0.7, 5, 2000), (0.9, 3, 2000), (0.5, 8, 500)])
def test_the_spread_of_simulated_runs_is_the_standard_error(alpha: float, k: int, drafts: int) -> None:
    rng = np.random.default_rng(5)
    runs = [drawn(rng, alpha, np.full(drafts, k)) for _ in range(300)]
    for found in (
        [counts_by_position(drafts, reached(run, k)).alpha for run in runs],
        [alpha_of_totals(float(run.sum()), drafts, {k: 1.0}) for run in runs],
    ):
        values = [one.alpha for one in found]
        assert np.mean(values) == pytest.approx(alpha, abs=0.002)
        assert np.std(values) == pytest.approx(np.mean([one.standard_error for one in found]), rel=0.12)
        covered = np.mean([one.alpha_low <= alpha <= one.alpha_high for one in found])
        assert 0.91 <= covered <= 0.985


# ---------------------------------------------------------------- totals


@given(st.integers(1, 12), st.floats(0, 1), st.integers(1, 100_000))
def test_totals_solve_the_acceptance_length(k: int, share: float, drafts: int) -> None:
    accepted = share * k * drafts
    found = alpha_of_totals(accepted, drafts, {k: 1.0})
    assert found.alpha == pytest.approx(alpha_from_acceptance_length(min(1 + share * k, k + 1), k), abs=1e-9)
    assert 0 <= found.alpha_low <= found.alpha <= found.alpha_high <= 1
    assert found.standard_error >= 0


@given(st.integers(1, 5000), st.floats(0, 1))
def test_one_token_a_draft_gives_wilsons_interval(drafts: int, share: float) -> None:
    found = alpha_of_totals(share * drafts, drafts, {1: 1.0})
    assert (found.alpha_low, found.alpha_high) == pytest.approx(
        wilson_interval(share * drafts, drafts), abs=1e-9
    )


def test_nothing_accepted_still_has_an_upper_bound_and_everything_a_lower_one() -> None:
    none, every = alpha_of_totals(0, 50, {3: 1.0}), alpha_of_totals(150, 50, {3: 1.0})
    assert (none.alpha, none.alpha_low) == (0.0, 0.0)
    assert 0 < none.alpha_high < 0.1
    assert (every.alpha, every.alpha_high) == (1.0, 1.0)
    assert 0.9 < every.alpha_low < 1


def test_the_slope_is_the_derivative_of_the_mean() -> None:
    lengths = {1: 0.25, 4: 0.75}
    numeric = (mean_accepted(0.6 + 1e-6, lengths) - mean_accepted(0.6 - 1e-6, lengths)) / 2e-6
    assert slope(0.6, lengths) == pytest.approx(numeric, rel=1e-7)


def test_lengths_keep_their_mean() -> None:
    for drafted, drafts, k in product((100, 250, 333), (100,), (4, 8)):
        for lengths in (equal_lengths(drafted, drafts), spread_lengths(drafted, drafts, k)):
            assert math.fsum(lengths.values()) == pytest.approx(1)
            assert math.fsum(k * share for k, share in lengths.items()) == pytest.approx(drafted / drafts)


def test_unequal_lengths_ask_for_a_larger_alpha() -> None:
    equal = alpha_of_totals(150, 100, equal_lengths(300, 100)).alpha
    assert alpha_of_totals(150, 100, spread_lengths(300, 100, 5)).alpha > equal


def test_the_error_of_the_length_is_that_of_its_law() -> None:
    """Var N from the probabilities of 0, 1, … accepted tokens, summed one by one."""
    law, outcomes = ConstantAcceptance(0.7), range(5)
    chances = law.accepted_pmf(4)
    mean = sum(n * p for n, p in zip(outcomes, chances, strict=True))
    variance = sum((n - mean) ** 2 * p for n, p in zip(outcomes, chances, strict=True))
    assert length_standard_error(law.survival(4).tolist(), 250) == pytest.approx(math.sqrt(variance / 250))


def test_bisection_stays_within_its_range() -> None:
    assert (bisected(lambda x: x, -1), bisected(lambda x: x, 2)) == (0.0, 1.0)


# ---------------------------------------------------------------- drafts cut short


@pytest.mark.parametrize("alpha", [0.4, 0.7, 0.9])
def test_even_cuts_are_undone_exactly(alpha: float) -> None:
    """Expected counts where 80 % of the drafts of each position propose a further token."""
    drafts, share, k = 10_000.0, 0.8, 5
    at = [drafts * share**place * alpha ** (place + 1) for place in range(k)]
    drafted = sum(drafts * share**place for place in range(k))
    even, early, late = (one.alpha.alpha for one in counts_of_cut_drafts(drafts, at, drafted))
    assert even == pytest.approx(alpha, rel=1e-9)
    assert min(early, late) < alpha


def test_positions_that_nothing_reached_are_not_counted_as_rejections() -> None:
    """Tiers of 3 and of 1 on a server set to 8: 8080 accepted of 6000 + 3000 + 2160 judged (0.724)."""
    ways = counts_of_cut_drafts(6000, [4500, 2160, 1420, 0, 0, 0, 0, 0], 14_000)
    assert ways[0].alpha.alpha == pytest.approx(8080 / 11_160, abs=0.01)
    assert ways[1].alpha.alpha == pytest.approx(8080 / 11_160, rel=1e-9)  # the way these were cut
    assert counts_by_position(6000, [4500, 2160, 1420, 0, 0, 0, 0, 0]).alpha.alpha < 0.58  # what it would be


def test_without_shorter_drafts_all_ways_agree() -> None:
    ways = counts_of_cut_drafts(100, [60, 30], 200)
    assert {round(one.alpha.alpha, 12) for one in ways} == {round(90 / 160, 12)}


# ---------------------------------------------------------------- clusters


def test_the_error_between_clusters_is_that_of_simulated_runs() -> None:
    """60 requests of 40 steps, each with an α of its own: a third of the truth if steps were independent."""
    rng = np.random.default_rng(11)
    ratios, errors = [], []
    for _ in range(400):
        own = rng.beta(7, 3, 60)
        x = np.array([drawn(rng, alpha, np.full(40, 1)).sum() for alpha in own])
        ratios.append(x.sum() / 2400)
        errors.append(ratio_standard_error(x.tolist(), [40.0] * 60))
    assert np.mean(errors) == pytest.approx(np.std(ratios), rel=0.08)
    assert np.mean(errors) > 1.9 * math.sqrt(0.21 / 2400)


def test_two_clusters_by_hand() -> None:
    """r = 4/8, residuals ∓1: √(2/1·(1 + 1))/8."""
    assert ratio_standard_error([1, 3], [4, 4]) == pytest.approx(0.25)


def test_equal_clusters_have_no_error() -> None:
    assert ratio_standard_error([2, 4, 6], [1, 2, 3]) == 0


@pytest.mark.parametrize(("x", "y"), [([1.0], [2.0]), ([1.0, 1.0], [0.0, 0.0]), ([1.0, 1.0], [1.0])])
def test_clusters_that_tell_nothing_are_refused(x: list[float], y: list[float]) -> None:
    with pytest.raises(InputError):
        ratio_standard_error(x, y)


@pytest.mark.parametrize(
    ("clusters", "point"),
    [(2, 12.706), (3, 4.303), (5, 2.776), (6, 2.571), (11, 2.228), (31, 2.042), (10_001, 1.960)],
    ids=lambda value: str(value),
)
def test_the_reach_of_an_interval_is_students(clusters: int, point: float) -> None:
    """Table of Student's law, 97.5 %."""
    assert interval_factor(clusters) == pytest.approx(point, abs=0.004)


def test_a_wider_error_widens_the_interval_and_a_smaller_one_nothing() -> None:
    narrow = AlphaEstimate(alpha=0.7, standard_error=0.01, alpha_low=0.68, alpha_high=0.72)
    assert narrow.widened(0.005) is narrow
    wide = narrow.widened(0.05)
    assert (wide.alpha, wide.standard_error) == (0.7, 0.05)
    assert wide.alpha_high - wide.alpha_low == pytest.approx(4 * 0.05, rel=0.1)
    further = narrow.widened(0.05, 2.776)
    assert further.alpha_high - further.alpha_low > 1.3 * (wide.alpha_high - wide.alpha_low)


# ---------------------------------------------------------------- Beta


@pytest.mark.parametrize(("a", "b"), [(5.6, 2.3), (1.0, 1.0), (0.4, 0.3), (20.0, 60.0)])
def test_the_counts_of_a_beta_law_give_it_back(a: float, b: float) -> None:
    survival = BetaAcceptance(a, b).survival(8)
    judged = [1e6, *(1e6 * survival[:-1])]
    law = fitted_beta(judged, (1e6 * survival).tolist())
    assert law is not None
    assert (float(law.a), float(law.b)) == pytest.approx((a, b), rel=1e-4)
    assert has_two_peaks(law) is (a < 1)


def test_two_positions_give_the_closed_form() -> None:
    """a_1 = μ and a_2 = (μ + ρ)/(1 + ρ): ρ = (a_2 − μ)/(1 − a_2), here 3/4 of 0.4 … exactly."""
    law = fitted_beta([1000, 400], [400, 280])
    rho = (0.7 - 0.4) / 0.3
    assert law is not None
    assert (float(law.a), float(law.b)) == pytest.approx((0.4 / rho, 0.6 / rho), rel=1e-6)


@pytest.mark.parametrize(
    ("judged", "accepted"),
    [
        pytest.param([1000, 700], [700, 420], id="falls"),
        pytest.param([1000, 700, 490], [700, 490, 343], id="constant"),
        pytest.param([1000], [700], id="one position"),
        pytest.param([1000, 0], [0, 0], id="nothing accepted"),
        pytest.param([10, 10], [10, 10], id="everything accepted"),
    ],
)
def test_no_law_where_acceptance_does_not_rise(judged: list[float], accepted: list[float]) -> None:
    assert fitted_beta(judged, accepted) is None
