"""What an engine's counts say about acceptance: α and the acceptance length, with their errors.

Only what the record supports is concluded. Where counts by position are told, α is their maximum-likelihood
value, every position censored at the first rejection; else it is solved from the acceptance length and k.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from specmath.acceptance import BetaAcceptance
from specmath.beta_fits import fitted_beta
from specmath.clustered_errors import interval_factor, ratio_standard_error
from specmath.counted_acceptance import (
    AlphaEstimate,
    PositionCounts,
    alpha_of_totals,
    counts_by_position,
    counts_of_cut_drafts,
    equal_lengths,
    length_standard_error,
    mean_accepted,
    slope,
    spread_lengths,
)
from specmath.cut_bounds import CutBounds, bounds_of_cut_drafts
from specmath.engines.telemetry import RequestCounts, Telemetry
from specmath.engines.totals import Totals, totals_of
from specmath.estimation import Z_95, wilson_interval

REFUSED: Final = 0.05
"""Constancy is refused where it would be this improbable."""
Interval = tuple[float, float]
UNKNOWN: Final[Interval] = (math.nan, math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceEstimate:
    """What one record of telemetry says about acceptance.

    Attributes:
        telemetry: The record.
        totals: Its totals, as far as they are told or follow.
        alpha: α with its error; None where it cannot be told, mostly because k is not known.
        basis: How α was found, in words.
        counts: Trials by position; None where positions are not told or shorter drafts dilute them.
        bounds: Bounds of the trials by position where shorter drafts dilute them and their tokens are told.
        acceptance_length: Mean tokens per step that drafted, the bonus token included; NaN where not told.
        length_interval: Its 95 % interval.
        survival: Share of drafts that accepted at least 1, 2, … tokens, as counted.
        conditional: The same given that all before were accepted.
        beta: Beta law, where acceptance rises with position.
        clustering: Standard error between requests over that of independent steps; NaN where requests are not
            told apart.
        clusters: Requests that tell it.
    """

    telemetry: Telemetry
    totals: Totals
    alpha: AlphaEstimate | None
    basis: str
    counts: PositionCounts | None
    bounds: CutBounds | None
    acceptance_length: float
    length_interval: Interval
    survival: tuple[float, ...]
    conditional: tuple[float, ...]
    beta: BetaAcceptance | None
    clustering: float
    clusters: int

    @property
    def k(self) -> int | None:
        """Draft tokens per step; None where not known."""
        return self.totals.k

    @property
    def measured_k(self) -> int | None:
        """The longest draft that the counts speak of; below k where shorter drafts occur."""
        if not self.telemetry.k_varies:
            return self.k
        reached = sum(one > 0 for one in self.telemetry.accepted_at)
        mean = (
            round(self.totals.drafted / self.totals.drafts)
            if self.totals.drafted and self.totals.drafts
            else 0
        )
        return reached or mean or self.k

    @property
    def chi_square(self) -> float:
        """Pearson's statistic of the conditionals against one constant; NaN where nothing can be compared.

        Where shorter drafts dilute the counts it is the least that any way of cutting leaves, and NaN unless
        even that refuses one constant.
        """
        if self.counts is not None:
            return self.counts.chi_square
        return self.bounds.chi_square if self.bounds and self.bounds.p_value < REFUSED else math.nan

    @property
    def p_value(self) -> float:
        """Its probability if acceptance were constant; NaN likewise."""
        if self.counts is not None:
            return self.counts.p_value
        found = self.bounds.p_value if self.bounds else math.nan
        return found if found < REFUSED else math.nan

    @property
    def is_constant(self) -> bool:
        """Whether nothing speaks against one probability at all positions."""
        return not self.p_value < REFUSED

    @property
    def accepted_over_drafted(self) -> float:
        """Accepted over drafted tokens; NaN where either is not told."""
        drafted, accepted = self.totals.drafted, self.totals.accepted
        return accepted / drafted if drafted and accepted is not None else math.nan

    @property
    def tokens_per_step(self) -> float:
        """Output tokens over request-steps, those without a draft included; NaN where not told."""
        generated, steps = self.telemetry.generated, self.telemetry.steps
        return generated / steps if generated is not None and steps else math.nan

    @property
    def drafting_share(self) -> float:
        """Share of the steps that drafted; NaN where not told."""
        drafts, steps = self.telemetry.drafts, self.telemetry.steps
        return min(drafts / steps, 1.0) if drafts is not None and steps else math.nan

    def survival_intervals(self) -> tuple[Interval, ...]:
        """Wilson's 95 % interval of each survival; NaN without a number of drafts."""
        drafts, told = self.telemetry.drafts, self.telemetry.drafted_at
        if not drafts:
            return (UNKNOWN,) * len(self.survival)
        of = [*told, *[0.0] * len(self.survival)] if told else [drafts] * len(self.survival)
        return tuple(
            wilson_interval(min(share, 1.0) * trials, trials) if trials > 0 else UNKNOWN
            for share, trials in zip(self.survival, of, strict=False)
        )

    def conditional_intervals(self) -> tuple[Interval, ...]:
        """Wilson's 95 % interval of each conditional, by bounds where it is diluted; NaN if never judged."""
        if self.bounds is not None:
            return self.bounds.conditional_intervals()
        if self.counts is None or not self.telemetry.drafts:
            return (UNKNOWN,) * len(self.conditional)
        return self.counts.conditional_intervals()


def estimate_acceptance(telemetry: Telemetry, *, k: int | None = None) -> AcceptanceEstimate:
    """What a record of telemetry says about acceptance.

    α = Σ n_i / Σ judged_i from counts by position; else the root of 1 + α + … + α^k = E. Steps are taken as
    independent unless counts by request tell how much more they differ.

    Args:
        telemetry: What a reader found, or counts typed by hand.
        k: Draft tokens per step, where the record does not tell; it wins over the record.

    Raises:
        DataError: no draft was verified, or the counts contradict k.

    Source: `specmath.estimation`, `specmath.counted_acceptance`, `specmath.clustered_errors`.

    >>> told = Telemetry(engine="vllm", scope="since start", k=2, drafts=100, accepted_at=(50, 25))
    >>> estimate = estimate_acceptance(told)
    >>> estimate.alpha.alpha, estimate.acceptance_length
    (0.5, 1.75)
    """
    totals = totals_of(telemetry, k)
    counts, reached = _counts(telemetry, totals), telemetry.accepted_at
    alpha, basis = _alpha(telemetry, totals, counts)
    clusters = [one for one in telemetry.requests if one.drafts > 0]
    length_error, clustering = _length_error(totals, counts, alpha), math.nan
    interval = _length_interval(totals, alpha, length_error)
    if len(clusters) > 1 and alpha is not None and alpha.standard_error > 0:
        between = _error_between(clusters, totals, alpha)
        clustering, reach = between / alpha.standard_error, interval_factor(len(clusters))
        alpha = alpha.widened(between, reach)
        wider = ratio_standard_error(*_columns(clusters)) * reach / Z_95
        interval = _length_interval(totals, alpha, max(length_error, wider))
    survival = _survival(telemetry, totals)
    rises = counts is not None and counts.p_value < REFUSED
    return AcceptanceEstimate(
        telemetry=telemetry,
        totals=totals,
        alpha=alpha,
        basis=basis,
        counts=counts,
        bounds=_bounds(telemetry, totals) if counts is None else None,
        acceptance_length=totals.acceptance_length,
        length_interval=interval,
        survival=survival,
        conditional=_ratios(survival) if reached else (),
        beta=fitted_beta(counts.judged, counts.accepted) if counts and rises else None,
        clustering=clustering,
        clusters=len(clusters),
    )


def _counts(telemetry: Telemetry, totals: Totals) -> PositionCounts | None:
    """Trials by position, where no shorter draft dilutes them."""
    reached = telemetry.accepted_at
    if not reached or (telemetry.k_varies and not telemetry.drafted_at):
        return None
    missing = 0 if telemetry.k_varies else (totals.k or 0) - len(reached)
    padded = (*reached, *[0.0] * missing)  # a histogram leaves out what never occurred
    told = telemetry.drafted_at if len(telemetry.drafted_at) >= len(padded) else ()
    return counts_by_position(telemetry.drafts or 1.0, padded, drafted_at=told)


def _bounds(telemetry: Telemetry, totals: Totals) -> CutBounds | None:
    """Bounds of the trials by position where shorter drafts dilute them and the missing tokens are known."""
    reached = telemetry.accepted_at
    if not (reached and telemetry.drafts and totals.drafted and totals.k) or len(reached) > totals.k:
        return None
    return bounds_of_cut_drafts(telemetry.drafts, reached, totals.drafted, totals.k)


def _alpha(
    telemetry: Telemetry, totals: Totals, counts: PositionCounts | None
) -> tuple[AlphaEstimate | None, str]:
    """α by the best that the record supports, and how it was found."""
    if counts is not None:
        found, basis = counts.alpha, "α is accepted over judged tokens by position, rejections ending a draft"
        return (found if telemetry.drafts else AlphaEstimate(alpha=found.alpha)), basis
    if telemetry.accepted_at and telemetry.drafts:
        return _of_cut_drafts(telemetry, totals)
    if totals.trials and totals.accepted is not None and totals.lengths:
        return _of_totals(telemetry, totals), totals.basis
    if totals.lengths and not math.isnan(totals.acceptance_length):
        found = alpha_of_totals(totals.acceptance_length - 1.0, 1.0, totals.lengths)
        return AlphaEstimate(alpha=found.alpha), f"{totals.basis}; how many steps it is of is not told"
    return None, "α cannot be told without k, the draft tokens per step"


def cut_counts(telemetry: Telemetry, totals: Totals) -> tuple[PositionCounts, ...]:
    """Trials by position for each way of cutting drafts, the one that α rests on first; needs drafts."""
    drafts = float(telemetry.drafts or 0)
    if totals.drafted is not None:
        return counts_of_cut_drafts(drafts, telemetry.accepted_at, totals.drafted)
    reached = telemetry.accepted_at[: max(sum(one > 0 for one in telemetry.accepted_at), 1)]
    return (counts_by_position(drafts, reached),)


def _of_cut_drafts(telemetry: Telemetry, totals: Totals) -> tuple[AlphaEstimate, str]:
    """α from positions that shorter drafts dilute; the interval holds every way in which they were cut."""
    ways = [one.alpha for one in cut_counts(telemetry, totals)]
    if len(ways) == 1:
        return ways[0], "α is a lower bound: shorter drafts count as rejections"
    found = AlphaEstimate(
        alpha=ways[0].alpha,
        standard_error=ways[0].standard_error,
        alpha_low=min(one.alpha_low for one in ways),
        alpha_high=max(one.alpha_high for one in ways),
    )
    basis = "drafts vary in length; α is found as if an equal share of them went on at each position"
    return found, f"{basis}, and the interval holds other ways of cutting, too"


def _of_totals(telemetry: Telemetry, totals: Totals) -> AlphaEstimate:
    """α from the mean of the accepted tokens; lengths that differ can only raise it."""
    accepted, trials = float(totals.accepted or 0), float(totals.trials or 0)
    found = alpha_of_totals(accepted, trials, totals.lengths)
    if not (telemetry.k_varies and totals.k and totals.drafted):
        return found
    most = alpha_of_totals(accepted, trials, spread_lengths(totals.drafted, trials, totals.k))
    return AlphaEstimate(
        alpha=found.alpha,
        standard_error=found.standard_error,
        alpha_low=found.alpha_low,
        alpha_high=max(found.alpha_high, most.alpha_high),
    )


def _error_between(clusters: list[RequestCounts], totals: Totals, alpha: AlphaEstimate) -> float:
    """Standard error of α from how much requests differ: by their trials, else by their acceptance length."""
    k = totals.k or 0
    if all(len(one.histogram) == k + 1 for one in clusters):
        judged = [one.accepted + one.drafts - one.histogram[k] for one in clusters]
        return ratio_standard_error([one.accepted for one in clusters], judged)
    return ratio_standard_error(*_columns(clusters)) / slope(alpha.alpha, _lengths(totals))


def _columns(clusters: list[RequestCounts]) -> tuple[list[float], list[float]]:
    return [one.accepted for one in clusters], [one.drafts for one in clusters]


def _lengths(totals: Totals) -> Mapping[int, float]:
    if not totals.lengths and totals.drafted and totals.trials:
        return equal_lengths(totals.drafted, totals.trials)
    return totals.lengths or {totals.k or 1: 1.0}


def _length_error(totals: Totals, counts: PositionCounts | None, alpha: AlphaEstimate | None) -> float:
    """Standard error of the acceptance length, steps taken as independent; NaN where it cannot be told."""
    if not totals.trials or alpha is None or math.isnan(totals.acceptance_length):
        return math.nan
    if counts is not None:
        return length_standard_error(counts.survival, totals.trials)
    return alpha.standard_error * slope(alpha.alpha, _lengths(totals))


def _length_interval(totals: Totals, alpha: AlphaEstimate | None, error: float) -> Interval:
    """The 95 % interval within what is possible; by that of α where every step ended alike."""
    if alpha is None or math.isnan(error) or math.isnan(alpha.alpha_low):
        return UNKNOWN
    if error == 0:
        lengths = _lengths(totals)
        return 1.0 + mean_accepted(alpha.alpha_low, lengths), 1.0 + mean_accepted(alpha.alpha_high, lengths)
    most = math.inf if totals.k is None else totals.k + 1.0
    half = Z_95 * error
    return max(totals.acceptance_length - half, 1.0), min(totals.acceptance_length + half, most)


def _survival(telemetry: Telemetry, totals: Totals) -> tuple[float, ...]:
    reached = telemetry.accepted_at
    if not telemetry.drafts:
        return reached
    told = telemetry.drafted_at
    of = told if len(told) >= len(reached) else [telemetry.drafts] * len(reached)
    return tuple(part / whole if whole else math.nan for part, whole in zip(reached, of, strict=False))


def _ratios(survival: tuple[float, ...]) -> tuple[float, ...]:
    before = (1.0, *survival)
    return tuple(after / first if first else math.nan for first, after in zip(before, survival, strict=False))
