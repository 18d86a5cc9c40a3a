"""The acceptance law that a source of telemetry stands for, in a question about some k."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from specmath.engines.estimates import AcceptanceEstimate
from specmath.engines.findings import findings
from specmath.errors import DataError
from specmath.results import Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLaw:
    """How a question takes the acceptance of a source.

    Attributes:
        estimate: What the source says.
        alpha: One probability for all positions; None where rates are given instead.
        rates: Acceptance by position given that all before were accepted; empty where alpha is given.
        match_rate: Share of the steps that drafted, which a lookup draft needs beside α; None where not told.
        notes: What must be known about the law, beside the findings.
        applied_match_rate: The match rate that the question was asked with; None where with none.
    """

    estimate: AcceptanceEstimate
    alpha: float | None
    rates: tuple[float, ...]
    match_rate: float | None
    notes: tuple[Advice, ...]
    applied_match_rate: str | None = None

    @property
    def advice(self) -> tuple[Advice, ...]:
        """Findings about the estimate, then notes on the law."""
        return (*findings(self.estimate, match_rate=self.applied_match_rate), *self.notes)

    @property
    def sentence(self) -> str:
        """Where the acceptance came from, with counts and interval."""
        told, alpha = self.estimate.telemetry, self.estimate.alpha
        version = f" {told.version}" if told.version else ""
        counted = f", {self.estimate.totals.drafts:,.0f} drafts" if self.estimate.totals.drafts else ""
        at_k = f" at k = {self.estimate.k}" if self.estimate.k else ""
        ranged = ""
        if alpha is not None and not math.isnan(alpha.alpha_low):
            ranged = f", 95 % {alpha.alpha_low:.3f} to {alpha.alpha_high:.3f}"
        value = "" if alpha is None else f": α = {alpha.alpha:.4f}{ranged}"
        used = "" if self.alpha is not None else ", taken by position since it differs between them"
        where = f"{told.source or 'typed counts'} ({told.engine}{version}{counted}{at_k})"
        return f"acceptance from {where}{value}{used}"


def source_law(estimate: AcceptanceEstimate, *, longest_k: int | None = None) -> SourceLaw:
    """The law behind an estimate: one α, or rates by position where a test refuses one α.

    Of drafts cut short the rates are those counted, a cut draft taken as rejected, which give the E counted.
    Beyond the measured positions rates go on by the Beta law where acceptance rises, else at the last rate.

    Args:
        estimate: What `estimate_acceptance` returned.
        longest_k: The longest draft asked about; None for those measured.

    Raises:
        DataError: the source does not tell α.

    >>> from specmath.engines.estimates import estimate_acceptance
    >>> from specmath.engines.telemetry import Telemetry
    >>> told = Telemetry(engine="vllm", scope="since start", k=2, drafts=1000, accepted_at=(500, 400))
    >>> source_law(estimate_acceptance(told)).rates
    (0.5, 0.8)
    """
    alpha = estimate.alpha
    if alpha is None:
        where = estimate.telemetry.source or "typed counts"
        raise DataError(
            where, "does not tell k, the draft tokens per step, so α cannot be told; give one --k"
        )
    notes = list(_notes(estimate, longest_k))
    share = estimate.drafting_share
    rates = () if estimate.is_constant else _rates(estimate, longest_k)
    return SourceLaw(
        estimate=estimate,
        alpha=None if rates else alpha.alpha,
        rates=rates,
        match_rate=None if math.isnan(share) else share,
        notes=tuple(notes),
    )


def _rates(estimate: AcceptanceEstimate, longest_k: int | None) -> tuple[float, ...]:
    """The measured conditionals, 0 where none was ever judged, and what goes on beyond them.

    Of drafts cut short those as counted: the engine cuts the next ones, too, and they give the E counted.
    """
    measured = estimate.conditional if estimate.counts is None else estimate.counts.conditional
    told = [0.0 if math.isnan(one) else one for one in measured]
    beyond = range(len(told), max(longest_k or 0, len(told)))
    if estimate.beta is None:
        return (*told, *[told[-1]] * len(beyond))
    a, b = float(estimate.beta.a), float(estimate.beta.b)
    return (*told, *[(a + place) / (a + b + place) for place in beyond])


def _notes(estimate: AcceptanceEstimate, longest_k: int | None) -> Iterator[Advice]:
    k = estimate.measured_k
    if k is None or longest_k is None or longest_k <= k:
        return
    how = "one α at all positions"
    if not estimate.is_constant:
        how = "the last rate held" if estimate.beta is None else "the Beta law of the measured positions"
    yield Advice(
        code="extrapolated",
        text=f"acceptance was measured at k = {k}; up to k = {longest_k} it is extrapolated by {how}",
        remedy=f"stay at k up to {k}, or measure with a longer draft",
    )
