"""Gates: at which rate and batch to change k or switch off, hysteresis included."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np

from specmath.load_arms import LoadQuestion
from specmath.load_text import load_assumptions, load_inputs, source_warnings
from specmath.queueing import Queue
from specmath.results import CHUNK_ROWS, Advice, Block, Cell, Columns, Result
from specmath.simulation.policies import BatchPolicy


class EngineConfig(Protocol):
    """What a config of an engine offers; `specmath.engines.configs` makes them."""

    @property
    def inputs(self) -> Mapping[str, Cell]: ...

    @property
    def warnings(self) -> tuple[Advice, ...]: ...

    @property
    def blocks(self) -> tuple[Block, ...]: ...


def batch_policy(ks: Sequence[int], hysteresis: int = 0) -> BatchPolicy:
    """The tiers of a policy whose k at batches 1, 2, … are the given ones.

    >>> batch_policy([3, 3, 0]).first_batches
    (0, 3)
    """
    edges = [0, *(place + 1 for place, (low, high) in enumerate(pairwise(ks), 1) if low != high)]
    return BatchPolicy(
        ks=tuple(int(ks[max(edge - 1, 0)]) for edge in edges),
        first_batches=tuple(edges),
        hysteresis=hysteresis,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRow:
    """One tier of a gate.

    Attributes:
        first_batch: Batch from which it holds on the way up.
        last_batch: Last batch of it.
        falls_below: Batch below which it is left on the way down; None for the first tier.
        k: Draft length; 0 for off.
        from_rate_per_s: Rate of all replicas at which the tier below reaches it; 0 for the first tier, NaN
            where that tier is never brought there.
        back_rate_per_s: Rate at which the tier itself falls back; NaN for the first.
        first_speedup: Tokens per second of k over plain decoding at the first batch, prefill aside.
        last_speedup: The same at the last batch.
    """

    first_batch: int
    last_batch: int
    falls_below: int | None
    k: int
    from_rate_per_s: float
    back_rate_per_s: float
    first_speedup: float
    last_speedup: float


def gate_rows(question: LoadQuestion) -> tuple[GateRow, ...]:
    """The tiers of a machine as a gate with hysteresis.

    The running batch varies about its mean by about its root, so that a tier is left only when the batch is
    the root of its first batch below it: three in ten falls of chance alone are smaller than that.
    """
    service = question.machine.tiers
    if service is None:
        return ()
    policy = batch_policy(service.ks.tolist())
    tiers = list(zip(policy.first_batches, policy.ks, strict=True))
    ends = [first - 1 for first, _ in tiers[1:]] + [service.limits.max_batch]
    rows = []
    for place, ((first, k), last) in enumerate(zip(tiers, ends, strict=True)):
        start = max(first, 1)
        band = round(math.sqrt(start)) if place else 0
        below = tiers[place - 1][1] if place else 0
        rows.append(
            GateRow(
                first_batch=start,
                last_batch=last,
                falls_below=start - band if place else None,
                k=k,
                from_rate_per_s=_rate_at(question, below, start) if place else 0.0,
                back_rate_per_s=_rate_at(question, k, start - band) if place else math.nan,
                first_speedup=_speedup(question, k, start),
                last_speedup=_speedup(question, k, last),
            )
        )
    return tuple(rows)


def _rate_at(question: LoadQuestion, k: int, batch: int) -> float:
    """Rate of all replicas at which one k brings so many sequences into balance."""
    machine = question.machine
    service = machine.static(k) if k else machine.zero_tier
    if service is None or not 1 <= batch <= service.limits.max_batch:
        return math.nan
    return float(Queue(service, machine.traffic).sustained[batch - 1]) * question.replicas


def _speedup(question: LoadQuestion, k: int, batch: int) -> float:
    machine = question.machine
    tokens = machine.token_shares @ machine.lengths(np.array([k]))[0][:, 0]
    plain_s, step_s = machine.plain.step_s(batch, 0, 0), machine.drafting.step_s(batch, 0, k)
    return float(plain_s / step_s * tokens)


@dataclass(frozen=True, kw_only=True)
class GateTable(Result):
    """The tiers of a gate, one row each, with the config of an engine where one was asked for.

    Attributes:
        question: The machine and its replicas.
        tiers: The rows; none where nothing fits beside the drafter.
        config: What an engine is told; None without one.
    """

    schema: ClassVar[str] = "specmath.gate/1"
    keys: ClassVar[tuple[str, ...]] = ("case", *(field.name for field in fields(GateRow)))
    data_keys: ClassVar[tuple[str, ...]] = ("case",)

    question: LoadQuestion
    tiers: tuple[GateRow, ...]
    config: EngineConfig | None = None

    def __len__(self) -> int:
        return len(self.tiers)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return load_inputs(self.question) | ({} if self.config is None else dict(self.config.inputs))

    @property
    def assumptions(self) -> tuple[str, ...]:
        leading, *others = load_assumptions(self.question)
        return (
            leading,
            "a tier begins where its k ends most requests a second at that batch, if that saves a fifth of "
            "a per cent over all batches; it is left on the way down when the batch is its root below that; "
            "engines know no such band: a gate in front of them does",
            "rates are those at which the mean batch reaches an edge under the k that holds there",
            *others,
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        own = () if self.config is None else self.config.warnings
        longest = max((tier.k for tier in self.tiers), default=0)
        edges = np.array([float(tier.first_batch) for tier in self.tiers])
        return tuple(dict.fromkeys([*own, *source_warnings(self.question, longest, edges)]))

    @property
    def blocks(self) -> tuple[Block, ...]:
        return () if self.config is None else self.config.blocks

    @property
    def verdict(self) -> str:
        if not self.tiers:
            return "DOES NOT FIT: no request fits beside the drafter"
        told = [_tier_text(tier) for tier in self.tiers]
        if len(told) == 1:
            only = self.tiers[0]
            told = [f"{told[0]} to {only.last_batch}, {only.first_speedup:.2f}× to {only.last_speedup:.2f}×"]
        kind = "NO GATE" if len(self.tiers) == 1 else "GATE"
        return f"{kind}: {', then '.join(told)}, {self.question.machine.source.basis}"

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        for start in range(0, len(self.tiers), size):
            part = self.tiers[start : start + size]
            columns: Columns = {"case": [self.question.machine.source.case] * len(part)}
            for field in fields(GateRow):
                columns[field.name] = [_finite(getattr(tier, field.name)) for tier in part]
            yield columns


def find_gate(question: LoadQuestion, config: EngineConfig | None = None) -> GateTable:
    """The gate of a machine: batches and rates at which k changes, off included, with hysteresis."""
    return GateTable(question=question, tiers=gate_rows(question), config=config)


def _tier_text(tier: GateRow) -> str:
    what = f"k = {tier.k}" if tier.k else "no drafting"
    if tier.falls_below is None:
        return f"{what} from batch {tier.first_batch}"
    rate = "" if math.isnan(tier.from_rate_per_s) else f" (from {tier.from_rate_per_s:.3g}/s)"
    return f"{what} from batch {tier.first_batch}{rate} until below {tier.falls_below}"


def _finite(value: float | int | None) -> float | int | None:
    return None if value is None or math.isnan(value) else value
