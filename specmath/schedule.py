"""Which k at which batch? Off, the best static k, tiers of k and adaptive verification, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.batch_policies import Load, PolicyRow, compare_policies
from specmath.checks import FloatArray, IntArray, require_count, require_range
from specmath.errors import InputError
from specmath.forecast import BEST_K_LIMIT
from specmath.laws import AcceptanceLaw
from specmath.policies import MAX_WEIGHT, SCAN_LIMIT, plain_time_shares
from specmath.question_advice import question_advice
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result, brief
from specmath.schedule_text import (
    load_sentence,
    loads_sentence,
    recommended_policy,
    schedule_warnings,
)
from specmath.sources import BatchSource
from specmath.winning import Progress

WeightUnit = Literal["time", "steps"]
SWITCH_COST = 0.01
"""What a change of k must save unless the caller says otherwise; less is seen in no single measurement."""
LONGEST_K = 256
"""Longest draft tried; best k are below 20, and the cost of a schedule grows with the square."""
MAX_CELLS = 1_250_000
"""Most steps priced: every k to 16 at every batch to the largest takes some ten seconds."""
TOLD_LOADS = 3
"""Set-ups up to which the verdict speaks of each."""


def plan_schedule(
    acceptance: AcceptanceLaw | Sequence[AcceptanceLaw],
    *,
    source: BatchSource,
    batches: Mapping[int, float] | npt.ArrayLike,
    weights_are: WeightUnit = "time",
    context: npt.ArrayLike = 0,
    k_max: int | None = None,
    switch_cost: float = SWITCH_COST,
    zero_tier_cost: float | None = None,
    progress: Progress | None = None,
) -> ScheduleTable:
    """Every policy for the draft length over a histogram of batches, for each acceptance law and context.

    Off; the best static k; tiers, that is the best k by batch with neighbours merged unless a change of k
    earns `switch_cost`; the best k at every batch, which regrets are measured against; and adaptive
    verification. The same tokens are decoded at the same batches under each of them, so that the speed-up
    of a policy is total plain time over its total time, Σ w / Σ (w / S).

    Every whole batch between the least listed and the largest is tried with every k, since neither curve
    need be monotone: experts and captured graphs make steps. Batches that are not listed decide only where
    between two listed ones a tier ends.

    Args:
        acceptance: A law or several.
        source: Step times that depend on the batch; typed ratios do not.
        batches: Weight by batch, or batches that weigh alike; whole numbers from 1 to 65,536.
        weights_are: What the weights are shares of: the `time` of plain decoding, which a gauge of running
            requests shows when it is sampled with speculation off, or its `steps`.
        context: Tokens in the KV cache per sequence, one or many; each is planned by itself.
        k_max: Longest draft tried, from 1 to `LONGEST_K`; by default 16, or as far as the laws go.
        switch_cost: Share of the best static k's time that each change of k must save, at least 0. It is a
            bar and not charged.
        zero_tier_cost: What a step of a tier with k = 0 costs beyond a plain one, in plain steps, at least
            0: an engine that may draft again is not off. None takes 0 and warns where it matters.
        progress: Called with the set-ups done and the set-ups in all.

    Raises:
        InputError: for a value out of range, or a k beyond what a law answers for.

    >>> from specmath.acceptance import ConstantAcceptance
    >>> from specmath.additive import AdditiveCost
    >>> from specmath.additive_source import Additive
    >>> free_draft = AdditiveCost(weights_s=1, kv_s_per_token=0, compute_s_per_token=0.25, kv_reread=0,
    ...                           draft_fixed_s=0, draft_s_per_sequence=0, draft_kv_s_per_token=0,
    ...                           overhead_s=0, plain_overhead_s=0)
    >>> table = plan_schedule(ConstantAcceptance(0.5), source=Additive(cost=free_draft, name="toy"),
    ...                       batches=[1, 100], k_max=1)
    >>> [(tier.first_batch, tier.last_batch, tier.k) for tier in table.tiers[0]]  # 1.5(1 + B/4) > 1 + B/2
    [(1, 3, 1), (4, 100, 0)]
    """
    axis = AcceptanceAxis.of(acceptance)
    axis.require_match_rate(source.match_rate)
    listed, weights = _histogram(batches)
    longest = _longest(axis, source) if k_max is None else _k_max(axis, k_max)
    _refuse_large_grid(listed, longest)
    if weights_are not in ("time", "steps"):
        raise InputError("weights_are", f"must be time or steps, got {weights_are!r}")
    contexts = np.atleast_1d(require_range("context", context, 0)).ravel()
    cost = float(require_range("zero_tier_cost", 0 if zero_tier_cost is None else zero_tier_cost, 0, 1e6))
    bar = float(require_range("switch_cost", switch_cost, 0, 1))
    loads = [
        Load(
            source=source,
            law=axis.law(position).at(float(where)),
            context=float(where),
            batches=listed,
            time_share=_time_shares(source, listed, weights, float(where), weights_are),
            k_max=longest,
            switch_cost=bar,
            zero_tier_cost=cost,
        )
        for position in range(len(axis))
        for where in contexts
    ]
    return ScheduleTable(
        acceptance=axis,
        source=source,
        batches=listed,
        weights=weights,
        weights_are=weights_are,
        context=contexts,
        k_max=longest,
        switch_cost=bar,
        zero_tier_cost=zero_tier_cost,
        policies=tuple(_compared(loads, progress)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTable(Result):
    """The policies of every set-up (laws × contexts), one row each; tiers follow their sum one by one.

    Attributes:
        policies: The rows of each set-up, contexts running fastest.
    """

    schema: ClassVar[str] = "specmath.schedule/1"
    keys: ClassVar[tuple[str, ...]] = (
        "case",
        "alpha",
        "law",
        "context",
        *(field.name for field in fields(PolicyRow)),
    )

    acceptance: AcceptanceAxis
    source: BatchSource
    batches: IntArray
    weights: FloatArray
    weights_are: WeightUnit
    context: FloatArray
    k_max: int
    switch_cost: float
    zero_tier_cost: float | None
    policies: tuple[tuple[PolicyRow, ...], ...]

    def __len__(self) -> int:
        return sum(map(len, self.policies))

    @property
    def tiers(self) -> tuple[tuple[PolicyRow, ...], ...]:
        """The tiers of each set-up in rising batches; a single one where one k serves all batches best."""
        by_policy = (
            {name: [row for row in rows if row.policy == name] for name in ("tier", "tiers")}
            for rows in self.policies
        )
        return tuple(tuple(rows["tier"] or rows["tiers"]) for rows in by_policy)

    @property
    def recommended(self) -> tuple[PolicyRow, ...]:
        """The policy that the verdict recommends for each set-up: `tiers`, or `static`, whose k may be 0."""
        return tuple(recommended_policy({row.policy: row for row in rows}) for rows in self.policies)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        alike = len(set(self.weights.tolist())) == 1
        asked: dict[str, Cell] = {
            "batches": brief(self.batches),
            "weights": None if alike else brief(self.weights),
            "context": brief(self.context),
            "k_max": self.k_max,
            "switch_cost": self.switch_cost,
            "zero_tier_cost": self.zero_tier_cost,
        }
        return self.acceptance.inputs | asked | dict(self.source.inputs)

    @property
    def assumptions(self) -> tuple[str, ...]:
        leading, *others = self.source.assumptions
        return (
            leading,
            f"weights are shares of the {self.weights_are} of plain decoding; each policy decodes the same "
            "tokens at the same batches, though speculation changes the batch at a given load",
            *others,
            *self.acceptance.assumptions,
            f"every whole batch and k from 0 to {self.k_max} is tried; k = 0 is plain decoding, but a tier "
            f"with it costs {self.zero_tier_cost or 0:g} plain steps more",
            f"a change of k must save {self.switch_cost:.1%} of the best static k's time; changing is free",
            "regret is against the best k at every batch, off included and free",
            "adaptive verification drafts k tokens in every step and verifies the likeliest of the batch: "
            "`adaptive` knows their position only, `adaptive_oracle` each step's acceptance beforehand; "
            "choosing costs nothing, and the batch holds the law's own mix of steps",
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        found = [*schedule_warnings(self.policies, self.zero_tier_cost), *self.source.warnings]
        busiest = int(self.batches[int(np.argmax(self.weights))])
        static = [row.k for rows in self.policies for row in rows if row.policy == "static" and row.k]
        drafted = [int(row.k) for rows in self.policies for row in rows if row.k]
        found += question_advice(
            self.acceptance, self.source, longest_k=max(drafted, default=0), context=self.context
        )
        found += self.source.warnings_at(int(max(static, default=1)), self.batches, busiest)
        return tuple(dict.fromkeys(found))

    @property
    def verdict(self) -> str:
        if len(self.policies) > TOLD_LOADS:
            return f"{loads_sentence(self.policies, self.switch_cost)}, {self.source.basis}"
        told = [load_sentence(rows, self.switch_cost) for rows in self.policies]
        names = [f"{name}: " if len(told) > 1 else "" for name in self._names()]
        return f"{'; '.join(map(''.join, zip(names, told, strict=True)))}, {self.source.basis}"

    def _names(self) -> Iterator[str]:
        """What sets each set-up apart."""
        for position in range(len(self.acceptance)):
            for context in self.context.tolist():
                law = [self.acceptance.law(position).label] if len(self.acceptance) > 1 else []
                yield ", ".join([*law, *([f"context {context:,.0f}"] if self.context.size > 1 else [])])

    @property
    def derivation(self) -> tuple[str, ...]:
        rows = {row.policy: row for row in self.policies[0]}
        static, law = rows["static"], self.acceptance.law(0).at(float(self.context[0]))
        batch, k = int(self.batches[0]), static.k or static.next_k or 0
        width, passes = int(law.width(k)), int(law.draft_passes(k))
        step = self.source.derivation(k, batch, float(self.context[0]), width=width, passes=passes)
        return (
            f"at batch {batch:,} and k = {k}:",
            law.derivation(k),
            *step,
            f"over all batches Σ w / Σ (w / S) = {static.speedup:.4f} with k = {static.k}, "
            f"{rows['per_batch'].speedup:.4f} with the best k at each",
        )

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        numbered = [(place, row) for place, rows in enumerate(self.policies) for row in rows]
        for start in range(0, len(numbered), size):
            yield self._columns(numbered[start : start + size])

    def _columns(self, numbered: Sequence[tuple[int, PolicyRow]]) -> Columns:
        law, context = np.divmod([place for place, _ in numbered], self.context.size)
        columns: Columns = {
            "case": [self.source.case] * len(numbered),
            "alpha": self.acceptance.alpha[law],
            "law": self.acceptance.labels[law],
            "context": self.context[context],
        }
        for field in fields(PolicyRow):
            columns[field.name] = [getattr(row, field.name) for _, row in numbered]
        columns["marks"] = [", ".join(row.marks) or None for _, row in numbered]
        return columns


def _compared(loads: Sequence[Load], progress: Progress | None) -> Iterator[tuple[PolicyRow, ...]]:
    for done, load in enumerate(loads, 1):
        yield compare_policies(load)
        if progress is not None:
            progress(done, len(loads))


def _longest(axis: AcceptanceAxis, source: BatchSource) -> int:
    """As far as the laws and the drafter go, up to the usual limit."""
    return min(limit for limit in (BEST_K_LIMIT, axis.max_k, source.max_k) if limit is not None)


def _k_max(axis: AcceptanceAxis, k_max: int) -> int:
    """The longest draft asked for, within what every law answers for."""
    longest = int(require_count("k_max", k_max, 1, LONGEST_K))
    if axis.max_k is not None and longest > axis.max_k:
        raise InputError(
            "k_max", f"must be at most {axis.max_k}, as far as the acceptance goes, got {longest}"
        )
    return longest


def _refuse_large_grid(batches: IntArray, longest: int) -> None:
    cells = int(batches[-1] - batches[0] + 1) * (longest + 1)
    if cells > MAX_CELLS:
        asked = (
            f"every k to {longest} at every batch from {batches[0]:,} to {batches[-1]:,} is {cells:,} steps"
        )
        raise InputError("k_max", f"{asked}, more than {MAX_CELLS:,}; lower it or the largest batch")


def _histogram(batches: Mapping[int, float] | npt.ArrayLike) -> tuple[IntArray, FloatArray]:
    """Batches in rising order and their weights."""
    if isinstance(batches, Mapping):
        given = require_count("batches", list(batches), 1, SCAN_LIMIT)
        weights = np.array(list(batches.values()), dtype=np.float64)
        if not ((weights >= 0) & (weights <= MAX_WEIGHT)).all() or not weights.any():
            told = ", ".join(f"{weight:g}" for weight in weights[:8])
            raise InputError(
                "batches", f"weights must be from 0 to {MAX_WEIGHT:g}, and one above 0, got {told}"
            )
    else:
        given = np.unique(require_count("batches", batches, 1, SCAN_LIMIT))
        weights = np.ones(given.size)
    order = np.argsort(given)
    return given[order], weights[order]


def _time_shares(
    source: BatchSource, batches: IntArray, weights: FloatArray, context: float, weights_are: WeightUnit
) -> FloatArray:
    if weights_are == "time":
        return np.asarray(weights / weights.sum())
    plain_s = source.step_cost(0, batches, context).plain_s
    return plain_time_shares(weights, np.broadcast_to(plain_s, batches.shape))
