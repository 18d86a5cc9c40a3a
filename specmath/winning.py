"""Which batches win: the scan over every whole batch, and the break-even batch between two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, IntArray
from specmath.sources import BatchSource, StepCost

LARGEST_SCAN = 2**20
"""Largest batch that a question may name: no engine runs a million sequences in a step."""
SCAN_CELLS = 2_000_000
"""Cells (set-ups × batches) whose step costs are held at a time."""

Intervals = list[tuple[int, int]]
"""First and last batch of each run of winning batches."""
Progress = Callable[[int, int], None]
"""Called now and then with the rows done and the rows in all."""
_BISECTIONS = 60  # halves an interval of width 1 down to rounding
_END_BISECTIONS = 20  # a range is evaluated at many constants, and its ends are no exact figures


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUps:
    """Set-ups as equally long arrays: acceptance length, draft length, tokens verified, passes, context."""

    source: BatchSource
    length: FloatArray
    k: IntArray
    width: IntArray
    passes: IntArray
    context: FloatArray

    def step_cost(self, batch: npt.ArrayLike) -> StepCost:
        """Step costs of all set-ups; `batch` broadcasts against them."""
        return self.source.step_cost(self.k, batch, self.context, width=self.width, passes=self.passes)

    def steps(self, batch: npt.ArrayLike) -> list[FloatArray]:
        """R as it is and, where the source knows a range, the least and the most it may be."""
        return [self.step_cost(batch).in_plain_steps, *self._bounds(batch)]

    def _bounds(self, batch: npt.ArrayLike) -> tuple[FloatArray, ...]:
        bounds = self.source.step_bounds(self.k, batch, self.context, width=self.width, passes=self.passes)
        return bounds or ()

    def _steps_at(self, batch: FloatArray, end: int) -> FloatArray:
        """One of `steps`, without the trouble of the others."""
        return self._bounds(batch)[end - 1] if end else self.step_cost(batch).in_plain_steps

    def winning(self, max_batch: int, done: Callable[[int], None]) -> list[list[Intervals]]:
        """The winning intervals of each set-up, by each of `steps`; `done` is called for each set-up.

        The step cost knows nothing of acceptance, so set-ups that differ in it alone share one curve.
        """
        keys = np.stack([self.k, self.width, self.passes, self.context])
        _, first, place = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        order, sizes = np.argsort(place.ravel(), kind="stable"), np.bincount(place.ravel())
        members = np.split(order, np.cumsum(sizes)[:-1])
        found: list[list[Intervals]] = [[] for _ in range(self.k.size)]
        for curve, rows in zip(self._curves(first, max_batch), members, strict=True):
            for row in rows.tolist():
                found[row] = [intervals_of(self.length[row] > steps) for steps in curve]
                done(row)
        return [list(each) for each in zip(*found, strict=True)]

    def _curves(self, rows: IntArray, max_batch: int) -> Iterator[list[FloatArray]]:
        """R over the batches 1 … max_batch of these rows, one after the other."""
        batches = np.arange(1, max_batch + 1)[:, None]
        block = max(1, SCAN_CELLS // max_batch)
        for start in range(0, rows.size, block):
            some = self.of(rows[start : start + block])
            shape = (max_batch, some.k.size)
            curves = [np.broadcast_to(steps, shape).T.copy() for steps in some.steps(batches)]
            yield from map(list, zip(*curves, strict=True))

    def of(self, rows: IntArray) -> SetUps:
        """Some of the set-ups."""
        return SetUps(
            source=self.source,
            length=self.length[rows],
            k=self.k[rows],
            width=self.width[rows],
            passes=self.passes[rows],
            context=self.context[rows],
        )

    def breakeven_batch(self, found: Sequence[Intervals], max_batch: int, end: int) -> FloatArray:
        """The real batch at which S = 1, bisected between a winning and a losing neighbour.

        `end` says by which of `steps`. NaN where the answer is not `below` or `above` one batch.
        """
        words = np.array([wins(intervals, max_batch) for intervals in found])
        winning = np.array([edge(intervals, word) for intervals, word in zip(found, words, strict=True)])
        losing = winning + np.where(words == "above", -1.0, 1.0)
        known = np.isin(words, ("below", "above"))
        if not known.any():
            return np.full(words.size, np.nan)
        for _ in range(_END_BISECTIONS if end else _BISECTIONS):
            middle = np.where(known, (winning + losing) / 2, 1.0)
            pays = self.length > self._steps_at(middle, end)
            winning, losing = np.where(pays, middle, winning), np.where(pays, losing, middle)
        return np.where(known, winning, np.nan)


def intervals_of(winning: npt.NDArray[np.bool_]) -> Intervals:
    """First and last batch of each run of wins; element 0 is batch 1.

    >>> intervals_of(np.array([True, True, False, True]))
    [(1, 2), (4, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], winning, [False]])))
    return [(int(first) + 1, int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]


def clipped(intervals: Intervals, limit: float) -> Intervals:
    """The intervals up to a largest batch.

    >>> clipped([(1, 5), (8, 20), (30, 40)], 12.0)
    [(1, 5), (8, 12)]
    """
    return [(first, int(min(last, limit))) for first, last in intervals if first <= limit]


def wins(intervals: Intervals, max_batch: int) -> str:
    """The shape of the winning intervals in one word: always, never, below, above or within."""
    if not intervals:
        return "never"
    first, last = intervals[0]
    if len(intervals) > 1 or (first > 1 and last < max_batch):
        return "within"
    if first > 1:
        return "above"
    return "always" if last == max_batch else "below"


def edge(intervals: Intervals, word: str) -> float:
    """The winning batch next to the break-even batch; 1 where there is none to seek."""
    if word == "below":
        return float(intervals[0][1])
    return float(intervals[0][0]) if word == "above" else 1.0


def spelled(intervals: Sequence[Sequence[int]]) -> str:
    """Intervals in words.

    >>> spelled([(1, 2), (4, 4)])
    '1–2, 4'
    """
    return ", ".join(f"{first}–{last}" if first < last else f"{first}" for first, last in intervals)
