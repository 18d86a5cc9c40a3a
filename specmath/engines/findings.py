"""What stands out in an estimate of acceptance, in words: each finding with its remedy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from specmath.beta_fits import has_two_peaks
from specmath.engines.estimates import AcceptanceEstimate
from specmath.engines.rules import LOOKUP
from specmath.results import Advice

MISMATCHED: Final = 0.5
"""α below it seldom pays: the draft does not know the target's text."""
COLLAPSED: Final = 0.3
"""Acceptance of the first token below it, with a sound pair, points at what stands before the token."""
USELESS: Final = 0.1
"""Share of drafts below which a position is hardly ever reached."""
UNSURE: Final = 0.05
"""Half width of the interval of α from which more data is asked for."""
_WIDER: Final = 1.1
"""Ratio of errors from which it is told that requests differ."""
FULL_SHARE: Final = 0.95
"""Share of the steps from which on all count as drafting: the last steps of requests seldom do."""


def findings(estimate: AcceptanceEstimate, *, match_rate: str | None = None) -> tuple[Advice, ...]:
    """What a reader must know before using the estimate, what voids it first.

    Args:
        estimate: What `estimate_acceptance` returned.
        match_rate: The share of the steps that a question takes to draft; None where it takes none.
    """
    return tuple(_found(estimate, match_rate))


def _found(estimate: AcceptanceEstimate, match_rate: str | None) -> Iterator[Advice]:
    yield from _unknown(estimate)
    yield from _low_acceptance(estimate)
    yield from _length(estimate)
    yield from _shape(estimate)
    yield from _varying(estimate)
    yield from _steps_without_drafts(estimate, match_rate)
    yield from _clusters(estimate)
    yield from _few(estimate)
    yield from estimate.telemetry.notes


def _unknown(estimate: AcceptanceEstimate) -> Iterator[Advice]:
    presumed = estimate.totals.presumed
    if estimate.alpha is None:
        text = "α is not told: the source gives no k, the draft tokens per step"
        yield Advice(code="k-unknown", text=text, remedy="give the server's num_speculative_tokens as --k")
    elif presumed == "drafts":
        text = (
            "drafts are not counted: every step is taken to have drafted, and α is higher where some did not"
        )
        yield Advice(code="drafts-presumed", text=text, remedy="give k as --k, or read the server's metrics")
    elif presumed == "k":
        text = f"drafts are not counted: each is taken to hold all {estimate.k} tokens"
        yield Advice(code="full-drafts", text=text, remedy="where drafts vary in length, α is another")


def _low_acceptance(estimate: AcceptanceEstimate) -> Iterator[Advice]:
    """A draft that does not fit its target, and whether it fails from the first token on."""
    alpha, first = estimate.alpha, next(iter(estimate.conditional), math.nan)
    later = max((one for one in estimate.conditional[1:] if one > 0), default=0.0)
    if first < COLLAPSED and (not later or later > 1.5 * first):
        after = f", against {later:.0%} further on" if later else ""
        told = f"the first draft token is accepted in {first:.0%} of the drafts{after}"
        text = f"{told}: the pair disagrees on what stands before it"
        remedy = (
            "compare tokenizer, chat template and revision of draft and target, then the draft's own config"
        )
        yield Advice(code="collapse-at-first", text=text, remedy=remedy)
    elif alpha is not None and alpha.alpha < MISMATCHED:
        seems = " seems to" if alpha.alpha_high >= MISMATCHED else " does"
        text = (
            f"α = {alpha.alpha:.2f}, below {MISMATCHED}: the draft{seems} not match this target or this text"
        )
        remedy = "take a draft trained for this target, or a small k; measure on your own prompts"
        yield Advice(code="mismatched-draft", text=text, remedy=remedy)


def _length(estimate: AcceptanceEstimate) -> Iterator[Advice]:
    """Positions that hardly any draft reaches."""
    survival = () if estimate.counts is None else estimate.counts.survival
    reached = sum(share >= USELESS for share in survival)
    if 0 < reached < len(survival):
        told = f"beyond position {reached} fewer than {USELESS:.0%} of the drafts are still accepted"
        text = f"{told}, and k is {len(survival)}"
        remedy = f"try k = {reached} or less; `specmath schedule` finds the best"
        yield Advice(code="k-beyond-use", text=text, remedy=remedy)


def _shape(estimate: AcceptanceEstimate) -> Iterator[Advice]:
    """Acceptance that differs by position, and what that hints at."""
    if estimate.is_constant:
        return
    by_position = estimate.conditional if estimate.counts is None else estimate.counts.conditional
    told = [one for one in by_position if not math.isnan(one)]
    test = f"χ² {estimate.chi_square:.4g}, p {_small(estimate.p_value)}"
    if estimate.counts is None:
        test = f"{test}, even with shorter drafts cut in the way that suits one α best"
    text = f"acceptance {_way(told)}, {_listed(told)} ({test})"
    if estimate.beta is None:
        text, remedy = f"{text}: one α is a mean at this k alone", "use the rates by position, as --from does"
        yield Advice(code="not-constant", text=text, remedy=remedy)
        return
    a, b = float(estimate.beta.a), float(estimate.beta.b)
    text = f"{text}: easy and hard passages alternate, as by Beta({a:.3g}, {b:.3g})"
    remedy = f"extrapolate over k with --beta {a:.4g}/{b:.4g}, not with one α"
    yield Advice(code="not-constant", text=text, remedy=remedy)
    if has_two_peaks(estimate.beta):
        text = "drafts are accepted from end to end or not at all, which hints at two workloads in one figure"
        yield Advice(code="two-workloads", text=text, remedy="measure each kind of request on its own")


def _way(rates: list[float]) -> str:
    """How acceptance goes along the positions."""
    if rates == sorted(rates):
        return "rises with position"
    return "falls with position" if rates == sorted(rates, reverse=True) else "differs between positions"


def _varying(estimate: AcceptanceEstimate) -> Iterator[Advice]:
    told, totals = estimate.telemetry, estimate.totals
    if not told.k_varies:
        return
    mean = f", {totals.drafted / totals.drafts:.2f} on average" if totals.drafted and totals.drafts else ""
    text = f"drafts vary in length{mean}"
    if told.drafted_at:
        text = f"{text}; rates are over the drafts that reached each position"
        yield Advice(code="k-varies", text=text, remedy="α is of drafts as the engine cuts them")
        return
    if estimate.bounds is not None and not estimate.is_constant:
        ranged = ", ".join(f"{low:.2f} to {high:.2f}" for low, high in estimate.bounds.conditional[1:7])
        missing = f"{estimate.bounds.missing:,.0f} tokens short of full drafts"
        text = f"{text}, {missing}: acceptance from position 2 on lies within {ranged}"
        remedy = "the lower ends, which give the E counted, are what --from takes; full drafts do better"
        yield Advice(code="k-varies", text=text, remedy=remedy)
        return
    text = f"{text}, and shorter ones dilute the rates of later positions, which are no acceptance rates"
    remedy = "fix k for a measurement, without tiers or a threshold of the draft"
    yield Advice(code="k-varies", text=text, remedy=remedy)


def _steps_without_drafts(estimate: AcceptanceEstimate, match_rate: str | None) -> Iterator[Advice]:
    """Steps that no speculation counter holds."""
    share, whole = estimate.drafting_share, estimate.tokens_per_step
    lookup = (estimate.telemetry.method or "").startswith(LOOKUP)
    if share < FULL_SHARE and not math.isnan(whole):
        over = f"over all steps it is {whole:.3f} tokens per step, not {estimate.acceptance_length:.3f}"
        text = f"{share:.1%} of the steps drafted; {over}"
        remedy = f"for a lookup draft (n-gram, suffix) give --match-rate {share:.3g} beside α; else see why"
        if match_rate is not None:
            remedy = f"the forecast takes it in by a match rate of {match_rate}"
        yield Advice(code="steps-without-drafts", text=text, remedy=remedy)
    elif lookup and math.isnan(whole):
        text = "a lookup draft proposes nothing in some steps, and these are in no counter"
        yield Advice(code="steps-without-drafts", text=text, remedy="read the metrics, which count all steps")


def _clusters(estimate: AcceptanceEstimate) -> Iterator[Advice]:
    if estimate.clustering > _WIDER:
        wider = f"{estimate.clustering:.1f} times that of independent steps"
        text = f"requests differ: the error of α over {estimate.clusters} requests is {wider}, and is used"
        yield Advice(code="clustered", text=text, remedy="more requests narrow it, not longer ones")


def _few(estimate: AcceptanceEstimate) -> Iterator[Advice]:
    alpha, counted, name = estimate.alpha, estimate.totals.trials, "drafts"
    if estimate.clustering > _WIDER:
        counted, name = estimate.clusters, "requests"
    half = math.nan if alpha is None else (alpha.alpha_high - alpha.alpha_low) / 2.0
    if alpha is not None and counted and half > UNSURE:
        text = f"few {name}, {counted:,.0f}: α lies between {alpha.alpha_low:.2f} and {alpha.alpha_high:.2f}"
        wanted = _rounded(counted * (2.0 * half / UNSURE) ** 2)
        yield Advice(code=f"few-{name}", text=text, remedy=f"count about {wanted:,} for ±{UNSURE / 2}")


def _listed(values: list[float]) -> str:
    shown = [f"{value:.2f}" for value in values[:6]]
    return ", ".join(shown) + (", …" if len(values) > 6 else "")


def _small(probability: float) -> str:
    return "below 0.001" if probability < 0.001 else f"{probability:.2g}"


def _rounded(number: float) -> int:
    """Two significant digits, rounded up."""
    step: int = 10 ** max(math.floor(math.log10(max(number, 1.0))) - 1, 0)
    return math.ceil(number / step) * step
