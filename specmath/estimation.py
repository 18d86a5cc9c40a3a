"""The acceptance probability behind what an engine reports: an acceptance length, a ratio, or counters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.acceptance import power_sum
from specmath.checks import (
    MAX_K,
    FloatArray,
    IntArray,
    Numbers,
    like_inputs,
    require_acceptance_length,
    require_count,
    require_range,
)
from specmath.errors import InputError

Z_95 = 1.959963984540054
"""Half width of the central 95 % of a standard normal law."""


def alpha_from_acceptance_length(acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> Numbers:
    """The constant acceptance probability that yields an acceptance length at draft length k.

    Solves 1 + α + ... + α^k = E, whose left side rises in α from 1 to k + 1.

    Args:
        acceptance_length: Mean tokens per step E, the bonus token included, in [1, k + 1].
        k: Draft tokens per step, a whole number from 1 to 10,000.

    Returns:
        α in [0, 1]: 0 at E = 1, 1 at E = k + 1.

    Raises:
        InputError: acceptance_length outside [1, k + 1] (as it is where accepted draft tokens alone are
            counted), or k out of range.

    Source: moment estimator; Leviathan et al. 2023 (arXiv:2211.17192), equation 1, solved for α.

    >>> alpha_from_acceptance_length(1.75, 2)
    0.5
    """
    drafted = require_count("k", k, 1, MAX_K)
    return like_inputs(
        _alpha_from_accepted(require_acceptance_length(acceptance_length, drafted) - 1.0, drafted)
    )


def alpha_from_accepted_over_drafted(accepted_over_drafted: npt.ArrayLike, k: npt.ArrayLike) -> Numbers:
    """The constant acceptance probability behind the share of draft tokens that were accepted.

    Solves α (1 + α + ... + α^(k−1)) / k = accepted / drafted. The two are equal at k = 1 only.

    Args:
        accepted_over_drafted: Accepted over drafted tokens, in [0, 1].
        k: Draft tokens per step, the same in every step, a whole number from 1 to 10,000.

    Returns:
        α in [0, 1], at least the share itself.

    Raises:
        InputError: accepted_over_drafted or k out of range.

    >>> alpha_from_accepted_over_drafted(0.375, 2)
    0.5
    """
    share, drafted = (
        require_range("accepted_over_drafted", accepted_over_drafted, 0, 1),
        require_count("k", k, 1, MAX_K),
    )
    return like_inputs(_alpha_from_accepted(share * drafted, drafted))


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterEstimate:
    """What the counters of one run with a fixed k say about acceptance.

    `standard_error`, the interval and the test take all trials as independent. Steps of one request are
    not: with few requests the true spread is larger.

    Attributes:
        k: Draft tokens per step.
        drafts: Steps that drafted.
        drafted: Draft tokens proposed.
        accepted: Draft tokens accepted.
        trials: Draft tokens that were judged, that is all but those behind a rejection; every step adds its
            accepted tokens and, unless all k were accepted, one rejection.
        accepted_over_drafted: Share of the drafted tokens that were accepted; not alpha.
        acceptance_length: Mean tokens per step, the bonus token included.
        alpha: Maximum-likelihood estimate of the constant acceptance probability: accepted / trials.
        standard_error: Of alpha; 0 where alpha is 0 or 1, which says nothing about how sure that is.
        alpha_low: Lower end of the 95 % Wilson interval; below 1 even where no step ended in a rejection.
        alpha_high: Upper end of the same interval; above 0 even where nothing was accepted.
        survival: Share of steps whose first i tokens were all accepted, i = 1..k.
        conditional: Acceptance at position i given that all before it were; NaN where that never was.
        conditional_standard_error: Of each conditional; NaN likewise.
        chi_square: Pearson's statistic against one constant alpha; NaN where nothing can be compared.
        degrees_of_freedom: Positions that were ever judged, less one.
        p_value: Probability of a chi_square at least as large if alpha were constant; NaN likewise.
    """

    k: int
    drafts: int
    drafted: int
    accepted: int
    trials: int
    accepted_over_drafted: float
    acceptance_length: float
    alpha: float
    standard_error: float
    alpha_low: float
    alpha_high: float
    survival: tuple[float, ...]
    conditional: tuple[float, ...]
    conditional_standard_error: tuple[float, ...]
    chi_square: float
    degrees_of_freedom: int
    p_value: float


def alpha_from_counters(drafts: int, accepted_per_position: Sequence[int]) -> CounterEstimate:
    """Acceptance probability, its error and its constancy, from counts of accepted tokens by position.

    With D drafts, n_i of them accepted up to position i: α = Σ n_i / (D + Σ_{i<k} n_i), accepted tokens
    over judged ones, which maximises the likelihood; standard error √(α (1 − α) / judged);
    a_i = n_i / n_(i−1); constancy χ² = Σ n_(i−1) (a_i − α)² / (α (1 − α)). Every step drafts the same k
    tokens; steps cut short by the end of a sequence are left out.

    Args:
        drafts: Steps that drafted, at least 1.
        accepted_per_position: Steps in which the first i tokens were all accepted, for i = 1..k.

    Returns:
        The estimate with its 95 % interval. Without any rejection alpha is 1 and alpha_high is 1, so that
        alpha_low is a one-sided bound.

    Raises:
        InputError: no drafts, no positions, or counts that rise with position or exceed the drafts.

    >>> estimate = alpha_from_counters(100, [50, 25])
    >>> estimate.alpha, estimate.acceptance_length, estimate.trials
    (0.5, 1.75, 150)
    """
    counts = _require_counts(drafts, accepted_per_position)
    judged, accepted = counts[:-1], counts[1:]
    trials, total = int(judged.sum()), int(accepted.sum())
    alpha = total / trials
    conditional, spread = _proportions(accepted, judged)
    chi_square = _chi_square(conditional, judged, alpha)
    compared = int(np.count_nonzero(judged)) - 1
    low, high = wilson_interval(total, trials)
    return CounterEstimate(
        k=accepted.size,
        drafts=int(drafts),
        drafted=int(drafts) * accepted.size,
        accepted=total,
        trials=trials,
        accepted_over_drafted=total / (int(drafts) * accepted.size),
        acceptance_length=1.0 + total / int(drafts),
        alpha=alpha,
        standard_error=math.sqrt(alpha * (1.0 - alpha) / trials),
        alpha_low=low,
        alpha_high=high,
        survival=tuple((accepted / int(drafts)).tolist()),
        conditional=tuple(conditional.tolist()),
        conditional_standard_error=tuple(spread.tolist()),
        chi_square=chi_square,
        degrees_of_freedom=compared,
        p_value=chi_square_p_value(chi_square, compared) if chi_square >= 0 else math.nan,
    )


def chi_square_p_value(chi_square: float, degrees_of_freedom: int) -> float:
    """Probability that a chi-square variable of that many degrees of freedom is at least `chi_square`.

    Q(s, y) with s = dof / 2, y = χ² / 2: Q(1/2, y) = erfc(√y), Q(1, y) = exp(−y), then
    Q(s + 1, y) = Q(s, y) + y^s exp(−y) / Γ(s + 1). Every term is positive.

    Args:
        chi_square: Statistic, at least 0.
        degrees_of_freedom: A whole number of at least 1.

    Returns:
        Probability from 1 (at 0) towards 0.

    Raises:
        InputError: an argument out of range.

    Source: Abramowitz and Stegun, 26.4.4 and 26.4.5.

    >>> round(chi_square_p_value(5.991, 2), 4)
    0.05
    """
    y = float(require_range("chi_square", chi_square, 0)) / 2.0
    half_degrees = int(require_count("degrees_of_freedom", degrees_of_freedom, 1)) / 2.0
    if y == 0.0:
        return 1.0
    s = half_degrees % 1.0 or 1.0
    total = math.erfc(math.sqrt(y)) if s == 0.5 else math.exp(-y)
    while s < half_degrees:
        total += math.exp(s * math.log(y) - y - math.lgamma(s + 1.0))
        s += 1.0
    return min(total, 1.0)


def _alpha_from_accepted(accepted: FloatArray, k: IntArray) -> FloatArray:
    """Root of α + α² + ... + α^k = m, bisected between bounds that meet at m = 0, at m = k and for k = 1."""
    accepted, k = np.broadcast_arrays(accepted, k)
    low, high = np.maximum(accepted / k, accepted / (1.0 + accepted)), np.minimum(accepted, 1.0)
    for _ in range(60):  # halves an interval no wider than 1 down to rounding
        middle = (low + high) / 2.0
        short = middle * power_sum(middle, k - 1) < accepted
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return high


def _require_counts(drafts: int, accepted_per_position: Sequence[int]) -> IntArray:
    """The drafts, then the counts by position: each entry is what the next position was judged on."""
    steps = require_count("drafts", drafts)
    accepted = require_count("accepted_per_position", accepted_per_position)
    if steps.ndim or accepted.ndim != 1:
        raise InputError(
            "accepted_per_position", "must be a flat list of counts, beside one number of drafts"
        )
    if steps == 0:
        raise InputError("drafts", "no drafts: nothing was proposed, so nothing tells alpha")
    counts = np.concatenate([steps[None], accepted])
    rising = np.flatnonzero(np.diff(counts) > 0)
    if rising.size:
        position = int(rising[0])
        before = f"{counts[position]} at position {position}" if position else f"{steps} drafts"
        raise InputError(
            "accepted_per_position",
            f"cannot rise: {counts[position + 1]} at position {position + 1} after {before}; give, for each "
            "position, the steps in which it and all before it were accepted",
        )
    return counts


def _proportions(accepted: IntArray, judged: IntArray) -> tuple[FloatArray, FloatArray]:
    with np.errstate(invalid="ignore"):
        share = accepted / judged
        return share, np.sqrt(share * (1.0 - share) / judged)


def _chi_square(conditional: FloatArray, judged: IntArray, alpha: float) -> float:
    known = judged > 0
    if np.count_nonzero(known) < 2 or alpha in (0.0, 1.0):
        return math.nan
    return float(np.sum(judged[known] * (conditional[known] - alpha) ** 2) / (alpha * (1.0 - alpha)))


def wilson_interval(successes: float, trials: float) -> tuple[float, float]:
    """Proportions whose own 95 % range still holds the one observed (Wilson 1927); trials above 0.

    The lower end solves (n + z²) p² − (2s + z²) p + s²/n = 0; written as s²/n over the larger root's
    numerator it is exactly 0 at s = 0. The upper end is the same for failures.
    """
    failures = trials - successes
    half = Z_95 * math.sqrt(successes * failures / trials + Z_95**2 / 4.0)
    low = successes**2 / trials / (successes + Z_95**2 / 2.0 + half)
    return low, 1.0 - failures**2 / trials / (failures + Z_95**2 / 2.0 + half)
