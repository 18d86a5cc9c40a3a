"""The policies of one load side by side: off, one k, tiers of k, the best k at every batch, adaptive."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from specmath.adaptive import Confidence, best_adaptive, knows_spread, verification_width
from specmath.checks import FloatArray, IntArray
from specmath.laws import AcceptanceLaw
from specmath.policies import best_static_k, schedule_regret, tier_ks
from specmath.sources import BatchSource
from specmath.verdicts import REPEAT_NOISE

UNLISTED_SHARE = 1e-6
"""Plain time given to all batches between the listed ones, so that they decide where one tier ends and the
next begins, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One acceptance law at one context, under a histogram of batches.

    Attributes:
        batches: The batches of the histogram, rising.
        time_share: Share of plain decoding time at each.
        k_max: Longest draft tried.
        switch_cost: Share of the best static k's time that a change of k must save.
        zero_tier_cost: What a step of a tier with k = 0 costs beyond a plain one, in plain steps.
    """

    source: BatchSource
    law: AcceptanceLaw
    context: float
    batches: IntArray
    time_share: FloatArray
    k_max: int
    switch_cost: float
    zero_tier_cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """What one policy does over the batches first … last, or one tier of it over its own.

    `k` is None where it changes from batch to batch; `gain` is over the best static k on the same batches;
    `next_k` loses `margin` of the throughput there. A value that does not exist is NaN or None. `marks` name
    what stands against a policy: `inside_error`, `below_switch_cost`, `beyond_memory`.
    """

    policy: str
    first_batch: int
    last_batch: int
    k: int | None
    time_share: float
    verified_tokens: float
    speedup: float
    speedup_low: float
    speedup_high: float
    gain: float
    gain_low: float
    gain_high: float
    regret: float
    next_k: int | None
    margin: float
    marks: tuple[str, ...]
    max_batch: float
    max_batch_speculative: float


def compare_policies(load: Load) -> tuple[PolicyRow, ...]:
    """Every policy over the load; the tiers follow their sum one by one."""
    return tuple(_Comparison(load).rows())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Span:
    """Some of the scanned batches, with the plain time spent at each."""

    places: IntArray
    shares: FloatArray

    def mean(self, token_cost: FloatArray) -> float:
        """Mean token cost; the costs are those of the span's batches, in order."""
        return float(token_cost @ self.shares / self.shares.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    """Token costs by batch: the estimate, and both ends of the source's range where it has one."""

    estimate: FloatArray
    ends: tuple[FloatArray, ...]
    width: FloatArray

    def on(self, span: _Span) -> _Costs:
        """The same on the batches of a span."""
        places = span.places
        ends = tuple(end[places] for end in self.ends)
        return _Costs(estimate=self.estimate[places], ends=ends, width=self.width[places])

    def speedups(self, span: _Span) -> tuple[float, float, float]:
        """Speed-up over a span: the estimate, its least and its largest value."""
        least, most = (1 / span.mean(end) for end in reversed(self.ends)) if self.ends else (np.nan, np.nan)
        return 1 / span.mean(self.estimate), least, most

    def gains_over(self, other: _Costs, span: _Span) -> tuple[float, float, float]:
        """Speed-up over another policy, less 1: the estimate, its least and its largest value.

        The ends of the range are compared like with like: what is wrong about one k is wrong about the
        next one, too.
        """
        gain = span.mean(other.estimate) / span.mean(self.estimate) - 1
        at_ends = [span.mean(b) / span.mean(a) - 1 for a, b in zip(self.ends, other.ends, strict=True)]
        if not at_ends:
            return gain, math.nan, math.nan
        return gain, min(gain, *at_ends), max(gain, *at_ends)


class _Comparison:
    """Token costs of every k at every whole batch from the least listed to the largest, and their rows."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.ks = np.arange(load.k_max + 1)
        self.scanned = np.arange(load.batches[0], load.batches[-1] + 1)
        self.widths, self.passes = (np.asarray(of(self.ks)) for of in (load.law.width, load.law.draft_passes))
        self.lengths = np.asarray(load.law.acceptance_length(self.ks))[:, None]
        cells: dict[str, Any] = {
            "k": self.ks[:, None],
            "batch": self.scanned,
            "context": load.context,
            "width": self.widths[:, None],
            "passes": self.passes[:, None],
        }
        self.table = self._token_costs(load.source.step_cost(**cells).in_plain_steps)
        self.ends = tuple(self._token_costs(end) for end in load.source.step_bounds(**cells) or ())
        self.whole = _Span(places=load.batches - load.batches[0], shares=load.time_share)
        self.static_k = int(best_static_k(self.table[:, self.whole.places], load.time_share))
        self.static = self._drafting(self.static_k)
        self.per_batch = self._drafting(self.table.argmin(axis=0))
        self.off_in_tiers = self.table.copy()
        self.off_in_tiers[0] += load.zero_tier_cost

    def _token_costs(self, steps: FloatArray) -> FloatArray:
        costs: FloatArray = np.broadcast_to(steps, (self.ks.size, self.scanned.size)) / self.lengths
        costs[0] = 1.0  # off is plain decoding
        return costs

    def _drafting(self, ks: IntArray | int, zero_cost: float = 0.0) -> _Costs:
        """Costs of drafting ks, one or one for each batch; `zero_cost` is what k = 0 costs beyond off."""
        chosen = np.broadcast_to(ks, self.scanned.shape)
        more = np.where(chosen == 0, zero_cost, 0.0)
        estimate, *ends = (table[chosen, np.arange(chosen.size)] + more for table in (self.table, *self.ends))
        return _Costs(estimate=estimate, ends=tuple(ends), width=self.widths[chosen].astype(float))

    def rows(self) -> Iterator[PolicyRow]:
        """The policies from the plainest on."""
        whole = self.whole
        yield self._row("off", 0, self._drafting(0).on(whole), whole)
        yield self._row("static", self.static_k, self.static.on(whole), whole, rivals=self.table)
        yield from self._tier_rows()
        best = self.per_batch.on(whole)
        yield self._row("per_batch", None, best, whole, deepest=self.load.k_max)
        if self.load.k_max and (self.widths == self.ks + 1).all():  # chains alone
            yield self._adaptive_row("adaptive", "position")
            if knows_spread(self.load.law):
                yield self._adaptive_row("adaptive_oracle", "perfect")

    def _tier_rows(self) -> Iterator[PolicyRow]:
        """The tiers together, then each of them where there are several."""
        load, whole = self.load, self.whole
        shares = np.full(self.scanned.size, UNLISTED_SHARE / self.scanned.size)
        shares[whole.places] += load.time_share
        bar = load.switch_cost * whole.mean(self.static.on(whole).estimate)
        ks = tier_ks(self.off_in_tiers, shares, bar)
        cuts = [0, *(np.flatnonzero(np.diff(ks)) + 1).tolist(), ks.size]
        tiers, static = self._drafting(ks, load.zero_tier_cost), self.static.on(whole)
        saved = whole.mean(static.estimate) - whole.mean(tiers.on(whole).estimate)
        # The search knows no engine that is off for good, which costs less than a tier with k = 0.
        if len(cuts) == 2 or saved < bar * (len(cuts) - 2):
            yield self._row("tiers", self.static_k, static, whole)
            return
        yield self._row("tiers", None, tiers.on(whole), whole, deepest=int(ks.max()))
        for first, last in pairwise(cuts):
            span = _Span(places=np.arange(first, last), shares=shares[first:last])
            yield self._row("tier", int(ks[first]), tiers.on(span), span, rivals=self.off_in_tiers)

    def _adaptive_row(self, policy: str, confidence: Confidence) -> PolicyRow:
        load, whole = self.load, self.whole
        plan = best_adaptive(
            load.law,
            load.source,
            load.batches,
            context=load.context,
            time_share=load.time_share,
            k_max=load.k_max,
            confidence=confidence,
        )
        cell: dict[str, Any] = {
            "k": plan.k,
            "batch": load.batches,
            "context": load.context,
            "width": (width := verification_width(plan.verified, load.batches.astype(float))),
            "passes": int(self.passes[plan.k]),
        }
        estimate = load.source.step_cost(**cell).in_plain_steps
        ends = tuple(end / estimate * plan.token_cost for end in load.source.step_bounds(**cell) or ())
        costs = _Costs(estimate=plan.token_cost, ends=ends, width=width)
        return self._row(policy, plan.k, costs, whole)

    def _row(
        self,
        policy: str,
        k: int | None,
        costs: _Costs,
        span: _Span,
        *,
        deepest: int | None = None,
        rivals: FloatArray | None = None,
    ) -> PolicyRow:
        """The row of a policy on a span, with the next best k among `rivals` where it has one k."""
        speedup, low, high = costs.speedups(span)
        gain, gain_low, gain_high = costs.gains_over(self.static.on(span), span)
        best = self.per_batch.on(span).speedups(span)[0]
        next_k, margin = (None, math.nan) if rivals is None or k is None else self._next(k, span, rivals)
        plain, speculative = self._largest_batches(deepest if k is None else k)
        last = int(self.scanned[span.places[-1]])
        too_little = policy in _RIVALS_OF_STATIC and gain < self.load.switch_cost
        marks = {
            "inside_error": not too_little and self._is_unsure(policy, k, costs, span),
            "below_switch_cost": too_little,
            "beyond_memory": last > (plain if k == 0 else speculative),  # never where it is not known
        }
        return PolicyRow(
            policy=policy,
            first_batch=int(self.scanned[span.places[0]]),
            last_batch=last,
            k=k,
            time_share=float(self.load.time_share[np.isin(self.whole.places, span.places)].sum()),
            # A lookup drafts in the share of steps that find a match; `width` is that of these.
            verified_tokens=1 + self.load.source.match_rate * (span.mean(costs.width) - 1),
            speedup=speedup,
            speedup_low=low,
            speedup_high=high,
            gain=gain,
            gain_low=gain_low,
            gain_high=gain_high,
            regret=float(schedule_regret(speedup, best)),
            next_k=next_k,
            margin=margin,
            marks=tuple(mark for mark, holds in marks.items() if holds),
            max_batch=plain,
            max_batch_speculative=speculative,
        )

    def _is_unsure(self, policy: str, k: int | None, costs: _Costs, span: _Span) -> bool:
        """Whether the range, or the noise, is larger than what sets the policy apart.

        One k for all batches is set beside off, and off beside the k that comes next to it; whatever else
        is offered instead of the best static k, beside that.
        """
        if policy == "off" or (policy == "tier" and k == self.static_k):
            return False
        rival = self.static
        if policy == "static":
            rival = self._drafting(0 if k else self._next(0, span, self.table)[0] or 0)
        gain, low, high = costs.gains_over(rival.on(span), span)
        return abs(gain) <= REPEAT_NOISE or low <= 0 <= high  # no range is no reason to doubt

    def _next(self, k: int, span: _Span, rivals: FloatArray) -> tuple[int | None, float]:
        """The best k but this one, and the share of the throughput it loses; none where there is no other."""
        costs = np.array([span.mean(row[span.places]) for row in rivals])
        others = np.where(self.ks == k, np.inf, costs)
        if self.ks.size == 1:
            return None, math.nan
        return int(others.argmin()), 1 - float(costs[k] / others.min())

    def _largest_batches(self, k: int | None) -> tuple[float, float]:
        plain, speculative = self.load.source.max_batches(k or 0, self.load.context)
        return float(plain), float(speculative)


_RIVALS_OF_STATIC = ("tiers", "per_batch", "adaptive", "adaptive_oracle")
