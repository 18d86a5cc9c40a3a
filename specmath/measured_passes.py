"""Times of passes between the sizes that were measured: a law, corrected by what it missed nearby."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from specmath.anchor_distance import doublings_away
from specmath.calibrations import Cell
from specmath.checks import FloatArray


@dataclass(frozen=True, slots=True)
class _Level:
    """Residuals at one value of an axis; below it widths, else levels of the next axis."""

    values: FloatArray
    below: tuple[_Level, ...] | FloatArray

    def at(self, *place: FloatArray) -> FloatArray:
        """Joined straight along each axis, the outermost first; beyond its ends the end is kept."""
        first, *rest = place
        if isinstance(self.below, np.ndarray):
            return np.interp(first, self.values, self.below)
        position = np.interp(first, self.values, np.arange(self.values.size))
        before = np.unique(np.floor(position)).astype(int)
        found: FloatArray = np.zeros(())
        near = np.union1d(before, np.minimum(before + 1, self.values.size - 1))  # no other has a share
        for number in near.tolist():
            share = np.maximum(1 - np.abs(position - number), 0)
            found = found + share * self.below[number].at(*rest)
        return found


@dataclass(frozen=True)
class MeasuredPasses:
    """The cells of one part beside its law.

        T = law · exp(residual), residual = log(measured/law)

    The residual is joined straight in log width, then in log batch, then in context; it is that of the cell
    where one was measured, and that of the nearest end outside.

    Attributes:
        cells: What was timed, no place twice.
        law_s: Seconds of the law at each.
    """

    cells: tuple[Cell, ...]
    residuals: _Level

    @classmethod
    def beside(cls, cells: Sequence[Cell], law_s: npt.ArrayLike) -> MeasuredPasses | None:
        """The cells with what the law misses; None without cells, or where the law takes no time."""
        told = np.broadcast_to(np.asarray(law_s, dtype=float), len(cells))
        if not cells or not np.all(told > 0):
            return None
        seconds = np.array([cell.seconds for cell in cells])
        sizes = np.array([_place(cell) for cell in cells])
        axes = np.column_stack([sizes[:, 2], np.log(sizes[:, 0]), np.log(sizes[:, 1])])
        return cls(tuple(cells), _levels(axes, np.log(seconds / told)))

    def corrected(
        self, law_s: npt.ArrayLike, batch: FloatArray, width: FloatArray, context: FloatArray
    ) -> FloatArray:
        """Seconds of passes whose law is given; all broadcast."""
        residual = self.residuals.at(context, np.log(batch), np.log(np.maximum(width, 1)))
        return np.asarray(law_s * np.exp(residual))

    @cached_property
    def places(self) -> frozenset[tuple[int, int, int]]:
        """Batch, width and context of each cell."""
        return frozenset(map(_place, self.cells))

    def span(self, axis: int) -> tuple[int, int]:
        """Least and most that was measured of batch (0), width (1) or context (2)."""
        values = self.values(axis)
        return values[0], values[-1]

    def values(self, axis: int) -> list[int]:
        """What was measured of batch (0), width (1) or context (2), in rising order."""
        return self._axes[axis]

    @cached_property
    def _axes(self) -> tuple[list[int], ...]:
        return tuple(sorted({place[axis] for place in self.places}) for axis in range(3))

    @cached_property
    def _largest_batches(self) -> tuple[FloatArray, FloatArray]:
        """Each context, and the largest batch that was timed there or at a longer one."""
        largest: dict[int, int] = {}
        for batch, _, context in self.places:
            largest[context] = max(batch, largest.get(context, 0))
        contexts = np.array(sorted(largest), dtype=float)
        batches = np.array([largest[context] for context in sorted(largest)], dtype=float)
        return contexts, np.maximum.accumulate(batches[::-1])[::-1]

    def largest_batch(self, context: npt.ArrayLike) -> FloatArray:
        """The largest batch that was timed at a context or at a longer one; beyond all, at the longest."""
        contexts, most = self._largest_batches
        found = np.searchsorted(contexts, np.asarray(context, dtype=float))
        return np.asarray(most[np.minimum(found, contexts.size - 1)])

    def doublings_outside(
        self, batch: npt.ArrayLike, width: npt.ArrayLike, context: npt.ArrayLike
    ) -> FloatArray:
        """Doublings from a pass to the measured range, those of context a quarter; 0 inside."""
        held, tokens = self.largest_batch(context), np.asarray(width, dtype=float)
        ends = [self.span(axis) for axis in range(3)]
        middle = [np.sqrt(max(low, 1) * max(high, 1)) if low < high else low for low, high in ends]
        corners = [(b, w, c) for b, w, c in (tuple(end[0] for end in ends), middle, [end[1] for end in ends])]
        points = {(w - 1.0, float(b), float(c), w, w - 1.0) for b, w, c in corners}
        sequences = np.asarray(batch, dtype=float)
        outside = doublings_away(points, (tokens - 1, sequences, context, tokens, tokens - 1))
        return np.asarray(outside + np.log2(np.maximum(np.minimum(sequences, ends[0][1]) / held, 1)))


def _place(cell: Cell) -> tuple[int, int, int]:
    return cell.place.batch, cell.place.width, cell.place.context


def _levels(axes: FloatArray, residuals: FloatArray) -> _Level:
    """Residuals by the first axis, then by the others."""
    values = np.unique(axes[:, 0])
    if axes.shape[1] == 1:
        return _Level(values, residuals[np.argsort(axes[:, 0])])
    below = [axes[:, 0] == value for value in values]
    return _Level(values, tuple(_levels(axes[here, 1:], residuals[here]) for here in below))
