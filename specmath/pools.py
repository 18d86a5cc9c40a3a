"""Two pools for a mixed load: classes that gain from speculation apart from those that do not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import ClassVar

import numpy as np

from specmath.checks import require_range
from specmath.errors import InputError
from specmath.load_arms import Arm, LoadQuestion
from specmath.load_text import load_assumptions, load_inputs, source_warnings
from specmath.load_verdicts import rate_text
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
from specmath.traffic import MAX_RATE, Traffic

MOST_CLASSES = 6
"""Classes up to which every way to split them is tried."""
FULL = 0.8
"""Share of its highest rate that a replica is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRow:
    """One pool of a way to serve a traffic; a value that does not exist is NaN.

    Attributes:
        layout: The way: plain alone, speculative alone, or two pools.
        pool: plain or speculative.
        classes: Names of the classes it serves.
        k: Draft length.
        rate_per_s: Requests per second of the pool.
        engines: Replicas it needs; None where no number of them meets what is asked.
        devices: Devices of them.
        batch: Mean running sequences of one.
        tpot_s, ttft_s, e2e_s: Mean latencies.
        utilisation: Share of the highest rate.
    """

    layout: str
    pool: str
    classes: str
    k: int | None
    rate_per_s: float
    engines: int | None
    devices: int | None
    batch: float
    tpot_s: float
    ttft_s: float
    e2e_s: float
    utilisation: float


def find_pools(question: LoadQuestion, rate_per_s: float) -> PoolTable:
    """How many replicas a mixed load needs in one pool without and with speculation, and in two pools.

    Every class goes to one pool. All ways to split the classes are tried; the best needs the fewest replicas,
    and of those the least time per token. A replica gets at most 80 % of its highest rate, less where the
    service level says so.

    Args:
        question: From `load_question`; of at most six classes.
        rate_per_s: Requests per second of all classes together, above 0.

    Raises:
        InputError: for a value out of range, or too many classes.
    """
    rate = float(require_range("rate_per_s", rate_per_s, high=MAX_RATE, above=0))
    count = len(question.machine.traffic.classes)
    if count > MOST_CLASSES:
        raise InputError("classes", f"must be at most {MOST_CLASSES} to be split, got {count}")
    pools = _Pools(question, rate)
    plain, speculative = (False,) * count, (True,) * count
    splits = [split for split in product((False, True), repeat=count) if split not in (plain, speculative)]
    rows = [*pools.rows("plain alone", plain), *pools.rows("speculative alone", speculative)]
    if splits:
        best = min((pools.rows("two pools", split) for split in splits), key=_rank)
        rows += best
    return PoolTable(question=question, rate_per_s=rate, pools=tuple(rows))


class _Pools:
    def __init__(self, question: LoadQuestion, rate: float) -> None:
        self.question, self.rate = question, rate
        self.known: dict[tuple[bool, tuple[bool, ...]], PoolRow] = {}

    def rows(self, layout: str, split: tuple[bool, ...]) -> tuple[PoolRow, ...]:
        """The pools of a split: the classes marked draft, the others do not."""
        chosen = [(True, split), (False, tuple(not one for one in split))]
        found = [self._pool(drafting, of) for drafting, of in chosen if any(of)]
        return tuple(replace(row, layout=layout) for row in found)

    def _pool(self, drafting: bool, of: tuple[bool, ...]) -> PoolRow:
        if (drafting, of) not in self.known:
            self.known[drafting, of] = self._sized(drafting, of)
        return self.known[drafting, of]

    def _sized(self, drafting: bool, of: tuple[bool, ...]) -> PoolRow:
        """A pool with as many replicas as it needs."""
        machine = self.question.machine
        classes = [one for one, inside in zip(machine.traffic.classes, of, strict=True) if inside]
        share = sum(one.share for one in classes)
        scaled = tuple(replace(one, share=one.share / share) for one in classes)
        own = replace(machine, traffic=Traffic(rate_per_s=1.0, classes=scaled))
        rate = self.rate * share
        arm, count = _fewest(LoadQuestion(machine=own, replicas=1, level=self.question.level), rate, drafting)
        first = arm.latencies[0] if arm is not None and arm.latencies else None
        nothing = math.nan
        return PoolRow(
            layout="",
            pool="speculative" if drafting else "plain",
            classes=", ".join(one.name for one in classes),
            k=None if arm is None else arm.k,
            rate_per_s=rate,
            engines=count,
            devices=None if count is None else count * self.question.devices // self.question.replicas,
            batch=nothing if arm is None or arm.equilibrium is None else arm.equilibrium.batch,
            tpot_s=nothing if first is None else first.tpot_s,
            ttft_s=nothing if first is None else first.ttft_s,
            e2e_s=nothing if first is None else first.e2e_s,
            utilisation=nothing if arm is None else arm.utilisation,
        )


def _fewest(question: LoadQuestion, rate: float, drafting: bool) -> tuple[Arm | None, int | None]:
    """The arm with the fewest replicas that serve a rate, and their number; of equals, the quickest."""
    best: tuple[int, float, Arm] | None = None
    for (name, _), service in question.services.items():
        if service is None or name != ("static" if drafting else "off"):
            continue
        one = question.bare_arm(name, service, rate)
        room = FULL * one.highest_rate_per_s
        if question.has_level:
            room = min(room, question.goodput(service)[0])
        if room <= 0:
            continue
        count = math.ceil(rate / room)
        arm = question.bare_arm(name, service, rate / count)
        if best is None or (count, arm.tpot_s) < best[:2]:
            best = (count, arm.tpot_s, arm)
    return (None, None) if best is None else (best[2], best[0])


def _rank(rows: tuple[PoolRow, ...]) -> tuple[float, float]:
    counts = [math.inf if row.engines is None else row.engines for row in rows]
    times = [math.inf if math.isnan(row.tpot_s) else row.tpot_s * row.rate_per_s for row in rows]
    return sum(counts), sum(times)


@dataclass(frozen=True, kw_only=True)
class PoolTable(Result):
    """The pools of each way to serve a traffic.

    Attributes:
        question: The server and its requests.
        rate_per_s: Requests per second of all classes together.
        pools: The rows: plain alone, speculative alone, then the best two pools.
    """

    schema: ClassVar[str] = "specmath.pools/1"
    keys: ClassVar[tuple[str, ...]] = ("case", *(field.name for field in fields(PoolRow)))
    data_keys: ClassVar[tuple[str, ...]] = ("case",)

    question: LoadQuestion
    rate_per_s: float
    pools: tuple[PoolRow, ...]

    def __len__(self) -> int:
        return len(self.pools)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return {"rate_per_s": self.rate_per_s} | load_inputs(self.question)

    @property
    def assumptions(self) -> tuple[str, ...]:
        leading, *others = load_assumptions(self.question)
        told = (
            f"a replica is given at most {FULL:.0%} of its highest rate, less where the service level asks it"
        )
        return (leading, told, "every class goes to one pool; a router knows the class of a request", *others)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        longest = max((row.k or 0 for row in self.pools), default=0)
        batches = [row.batch for row in self.pools if not math.isnan(row.batch)]
        return tuple(source_warnings(self.question, longest, np.array(batches)))

    @property
    def verdict(self) -> str:
        layouts = {
            row.layout: tuple(one for one in self.pools if one.layout == row.layout) for row in self.pools
        }
        best = min(layouts, key=lambda name: _rank(layouts[name]))
        told = [f"{name} {_count_text(rows)}" for name, rows in layouts.items()]
        if math.isinf(_rank(layouts[best])[0]):
            return f"NONE SERVES IT at {rate_text(self.rate_per_s)}: {', '.join(told)}"
        parts = [f"{row.classes} → {row.engines} {row.pool}" for row in layouts[best]]
        basis = self.question.machine.source.basis
        return (
            f"{best.upper()}: {'; '.join(parts)} at {rate_text(self.rate_per_s)} ({', '.join(told)}), {basis}"
        )

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        for start in range(0, len(self.pools), size):
            part = self.pools[start : start + size]
            columns: Columns = {"case": [self.question.machine.source.case] * len(part)}
            for field in fields(PoolRow):
                columns[field.name] = [_finite(getattr(row, field.name)) for row in part]
            yield columns


def _count_text(rows: tuple[PoolRow, ...]) -> str:
    count = _rank(rows)[0]
    return "cannot" if math.isinf(count) else f"{count:g} replica{'s' if count > 1 else ''}"


def _finite(value: Cell) -> Cell:
    return None if isinstance(value, float) and math.isnan(value) else value
