"""The acceptance probability behind counts that engines keep: by position, in total, with drafts cut short.

Counts may be fractions, since some engines round them. The trial of a position is a draft that proposed a
token there and had all before it accepted; a rejection ends the draft, so that later positions are censored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specmath.acceptance import ConstantAcceptance
from specmath.checks import FloatArray, require_range
from specmath.errors import InputError
from specmath.estimation import Z_95, chi_square_p_value, wilson_interval


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaEstimate:
    """An acceptance probability with its error.

    Attributes:
        alpha: The estimate.
        standard_error: Of alpha, all trials taken as independent; NaN where no number of trials is known.
        alpha_low, alpha_high: Central 95 % interval; NaN likewise.
    """

    alpha: float
    standard_error: float = math.nan
    alpha_low: float = math.nan
    alpha_high: float = math.nan

    def widened(self, standard_error: float, reach: float = Z_95) -> AlphaEstimate:
        """The same alpha with a larger error, its interval that of as many trials as would leave it.

        Args:
            standard_error: The error; a smaller one than before changes nothing.
            reach: How many standard errors the interval reaches out.
        """
        if not standard_error > self.standard_error or not 0 < self.alpha < 1:
            return self
        trials = self.alpha * (1.0 - self.alpha) / (standard_error * reach / Z_95) ** 2
        low, high = wilson_interval(self.alpha * trials, trials)
        return AlphaEstimate(
            alpha=self.alpha,
            standard_error=standard_error,
            alpha_low=min(low, self.alpha_low),
            alpha_high=max(high, self.alpha_high),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionCounts:
    """Trials and acceptances by draft position.

    Attributes:
        judged: Drafts that proposed a token at position 1, 2, … and had all before it accepted.
        accepted: Those of them whose token there was accepted.
    """

    judged: tuple[float, ...]
    accepted: tuple[float, ...]

    @property
    def conditional(self) -> tuple[float, ...]:
        """Acceptance at each position given that all before it were; NaN where that never was."""
        pairs = zip(self.accepted, self.judged, strict=True)
        return tuple(accepted / judged if judged else math.nan for accepted, judged in pairs)

    @property
    def survival(self) -> tuple[float, ...]:
        """Share of drafts whose first 1, 2, … tokens are all accepted, had they proposed as many."""
        return tuple(np.nancumprod(self.conditional).tolist())

    @property
    def alpha(self) -> AlphaEstimate:
        """Maximum likelihood for one constant probability: accepted over judged, with Wilson's interval."""
        trials, accepted = math.fsum(self.judged), math.fsum(self.accepted)
        low, high = wilson_interval(accepted, trials)
        alpha = accepted / trials
        spread = math.sqrt(alpha * (1.0 - alpha) / trials)
        return AlphaEstimate(alpha=alpha, standard_error=spread, alpha_low=low, alpha_high=high)

    @property
    def chi_square(self) -> float:
        """Pearson's statistic against one constant probability; NaN where nothing can be compared."""
        alpha = math.fsum(self.accepted) / math.fsum(self.judged)
        if self.degrees_of_freedom < 1 or alpha in (0.0, 1.0):
            return math.nan
        pairs = zip(self.accepted, self.judged, strict=True)
        off = math.fsum((accepted - alpha * judged) ** 2 / judged for accepted, judged in pairs if judged)
        return off / (alpha * (1.0 - alpha))

    @property
    def degrees_of_freedom(self) -> int:
        """Positions ever judged, less one."""
        return sum(judged > 0 for judged in self.judged) - 1

    @property
    def p_value(self) -> float:
        """Probability of a chi_square at least as large if alpha were constant; NaN likewise."""
        found = self.chi_square
        return math.nan if math.isnan(found) else chi_square_p_value(found, self.degrees_of_freedom)

    def conditional_intervals(self) -> tuple[tuple[float, float], ...]:
        """Wilson's 95 % interval of each conditional; NaN where nothing was judged."""
        pairs = zip(self.accepted, self.judged, strict=True)
        return tuple(wilson_interval(*pair) if pair[1] > 0 else (math.nan, math.nan) for pair in pairs)


def counts_by_position(
    drafts: float, accepted_at: Sequence[float], *, drafted_at: Sequence[float] = ()
) -> PositionCounts:
    """Trials by position, where every draft has one length or the drafts that reach each position are told.

    judged_1 = D, judged_i = n_(i−1); where only d_i drafts propose i tokens, judged_i = n_(i−1) d_i/d_(i−1).
    The latter assumes that the length of a draft says nothing about its acceptance.

    Args:
        drafts: Drafts D, above 0.
        accepted_at: Drafts that accepted at least 1, 2, … tokens, n_i; cut to the drafts before where
            rounding made them exceed these.
        drafted_at: Drafts that proposed at least 1, 2, … tokens, d_i; none where all propose all.

    Raises:
        InputError: no drafts, no positions, or a count below 0.

    >>> counts_by_position(100, [50, 25]).alpha.alpha
    0.5
    >>> counts_by_position(100, [50, 10], drafted_at=[100, 40]).conditional  # 20 of the 50 drafted on
    (0.5, 0.5)
    """
    total = float(require_range("drafts", drafts, above=0))
    if not accepted_at:
        raise InputError("accepted_at", "is empty; give the drafts that accepted at least 1, 2, … tokens")
    reached = [total, *require_range("accepted_at", list(accepted_at), 0).tolist()]
    proposed = require_range("drafted_at", list(drafted_at), 0).tolist() if drafted_at else []
    shares = _kept_shares(proposed, len(reached) - 1)
    judged: list[float] = []
    accepted: list[float] = []
    for (before, after), share in zip(pairwise(reached), shares, strict=True):
        judged.append((min(before, accepted[-1]) if accepted else before) * share)
        accepted.append(min(after, judged[-1]))
    return PositionCounts(judged=tuple(judged), accepted=tuple(accepted))


def _kept_shares(drafted_at: Sequence[float], positions: int) -> list[float]:
    """Share of the drafts of each position that propose a token at the next one, too."""
    if not drafted_at:
        return [1.0] * positions
    if len(drafted_at) < positions:
        raise InputError("drafted_at", f"must have as many positions as accepted_at, {positions}")
    pairs = list(pairwise(drafted_at))[: positions - 1]
    return [1.0, *(min(after / before, 1.0) if before else 0.0 for before, after in pairs)]


def counts_of_cut_drafts(
    drafts: float, accepted_at: Sequence[float], drafted: float
) -> tuple[PositionCounts, ...]:
    """Trials by position where drafts of less than k tokens occur and only their total is told.

    The later positions are then tried less often than n_(i−1) says. Which drafts were cut is not known, so
    three ways of cutting are given: every position is proposed by the same share of the drafts before it
    (the middle one, and first); all cuts come after the first token; all come before the last position that
    accepted anything.

    Args:
        drafts: Drafts D, above 0.
        accepted_at: Drafts that accepted at least 1, 2, … tokens; positions behind the last above 0 are left
            out, since nothing shows that they were proposed.
        drafted: Draft tokens in all, at least D.

    >>> even, early, late = counts_of_cut_drafts(100, [50, 10], 140)  # 40 drafts of two, 60 of one
    >>> [round(trials, 9) for trials in even.judged]
    [100.0, 20.0]
    """
    total = float(require_range("drafts", drafts, above=0))
    positions = max((place for place, reached in enumerate(accepted_at, 1) if reached > 0), default=1)
    reached = tuple(accepted_at[:positions])
    beyond = min(max(float(drafted) / total, 1.0), float(positions)) - 1.0
    if positions == 1:
        return (counts_by_position(total, reached),) * 3
    share = bisected(lambda s: math.fsum(s**place for place in range(1, positions)), beyond)
    even = [share**place for place in range(positions)]
    early = [1.0, *[beyond / (positions - 1)] * (positions - 1)]
    late = [min(1.0, max(beyond - place + 1.0, 0.0)) for place in range(positions)]
    spreads = (even, early, late)
    return tuple(
        counts_by_position(total, reached, drafted_at=[total * one for one in each]) for each in spreads
    )


def alpha_of_totals(accepted: float, drafts: float, lengths: Mapping[int, float]) -> AlphaEstimate:
    """The constant alpha behind accepted tokens and drafts, without counts by position.

    Solves m(α) = A/D, m = Σ w_L (α + … + α^L) over the draft lengths L; standard error √(Var/D)/m'(α). The
    interval holds every α whose own mean lies within 1.96 √(Var(α)/D) of A/D; at L = 1 it is Wilson's.

    Args:
        accepted: Draft tokens accepted A, at least 0.
        drafts: Drafts D, above 0.
        lengths: Share of the drafts by their length, the shares summing to 1.

    Returns:
        The estimate: 0 where nothing was accepted, 1 where all was.

    >>> round(alpha_of_totals(75, 100, {2: 1.0}).alpha, 12)
    0.5
    """
    mean = float(require_range("accepted", accepted, 0)) / float(require_range("drafts", drafts, above=0))
    mean = min(mean, math.fsum(share * length for length, share in lengths.items()))
    alpha = bisected(lambda a: mean_accepted(a, lengths), mean)
    low = bisected(lambda a: mean_accepted(a, lengths) + _half_width(a, lengths, drafts), mean)
    rejected = bisected(
        lambda b: _half_width(1.0 - b, lengths, drafts) - mean_accepted(1.0 - b, lengths), -mean
    )
    high = 1.0 - rejected  # sought from 1 down: at α = 0 the range has no width
    error = _half_width(alpha, lengths, drafts) / Z_95 / slope(alpha, lengths)
    return AlphaEstimate(
        alpha=alpha, standard_error=error, alpha_low=min(low, alpha), alpha_high=max(high, alpha)
    )


def slope(alpha: float, lengths: Mapping[int, float]) -> float:
    """Derivative of the mean accepted tokens in alpha, Σ w_L Σ i α^(i−1); at least the share of L ≥ 1.

    >>> slope(0.5, {2: 1.0})
    2.0
    """
    powers = {length: np.arange(1, length + 1) for length in lengths}
    return math.fsum(
        share * float(np.sum(powers[length] * alpha ** (powers[length] - 1.0)))
        for length, share in lengths.items()
    )


def equal_lengths(drafted: float, drafts: float) -> dict[int, float]:
    """The two neighbouring lengths whose mean is drafted/drafts, by share.

    >>> equal_lengths(250, 100)
    {2: 0.5, 3: 0.5}
    """
    mean = max(drafted / drafts, 1.0)
    short = math.floor(mean + 1e-9)
    longer = max(mean - short, 0.0)
    return {short: 1.0 - longer, short + 1: longer} if longer else {short: 1.0}


def spread_lengths(drafted: float, drafts: float, k: int) -> dict[int, float]:
    """Lengths as unequal as they can be with that mean: 1 and k. Acceptance is then at its largest.

    >>> spread_lengths(200, 100, 3)
    {1: 0.5, 3: 0.5}
    """
    share = (max(drafted / drafts, 1.0) - 1.0) / (k - 1.0) if k > 1 else 0.0
    share = min(share, 1.0)
    return {length: part for length, part in ((1, 1.0 - share), (max(k, 1), share)) if part} or {1: 1.0}


def bisected(rising: Callable[[float], float], wanted: float) -> float:
    """Where a function that rises over [0, 1] reaches `wanted`; an end where it does not.

    >>> round(bisected(lambda x: x * x, 0.25), 12)
    0.5
    """
    if rising(0.0) >= wanted:
        return 0.0
    if rising(1.0) < wanted:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):  # halves an interval of 1 down to rounding
        middle = (low + high) / 2.0
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return high


def mean_accepted(alpha: float, lengths: Mapping[int, float]) -> float:
    """Mean accepted tokens of drafts of these lengths, Σ w_L (α + … + α^L).

    >>> mean_accepted(0.5, {2: 1.0})
    0.75
    """
    law = ConstantAcceptance(alpha)
    return math.fsum(
        share * (float(law.acceptance_length(length)) - 1.0) for length, share in lengths.items()
    )


def _half_width(alpha: float, lengths: Mapping[int, float], drafts: float) -> float:
    """Half of the 95 % range of the mean accepted tokens of that many drafts."""
    law = ConstantAcceptance(alpha)
    variance = math.fsum(share * float(law.accepted_variance(length)) for length, share in lengths.items())
    return Z_95 * math.sqrt(variance / drafts)


def length_standard_error(survival: Sequence[float], drafts: float) -> float:
    """Standard error of the acceptance length, √(Var N / D), from the survival observed over D drafts.

    >>> length_standard_error([0.5], 100)
    0.05
    """
    reach: FloatArray = np.asarray(survival, dtype=np.float64)
    weights = 2.0 * np.arange(1, reach.size + 1) - 1.0
    return math.sqrt(max(float(weights @ reach - reach.sum() ** 2), 0.0) / drafts)
