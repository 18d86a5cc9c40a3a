"""Measured passes that no smooth law explains: cliffs and dips between neighbours, and lone outliers.

Neighbours differ in one thing: in width at one batch and context, or in batch at one width and context.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from specmath.calibrations import IDENTIFIED_SHARE, Cell, Flag, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A cell, what the law says of it, whether the fit gave it up, and how far its repeats spread.

    Its quartiles lie `spread_s` apart, or those of most cells do: few repeats may be close by chance.
    """

    cell: Cell
    law_s: float
    is_outlier: bool
    spread_s: float

    @property
    def tokens(self) -> int:
        """What a line of neighbours is ordered by."""
        return self.cell.place.batch * self.cell.place.width


def judged_cells(
    cells: Sequence[Cell], errors: Sequence[float], outliers: Sequence[bool]
) -> tuple[Judged, ...]:
    """Cells of one part beside the relative errors of their law, and whether the fit gave them up."""
    typical = median((cell.high_s - cell.low_s) / cell.seconds for cell in cells)
    return tuple(
        Judged(
            cell=cell,
            law_s=cell.seconds * (1 + error),
            is_outlier=outlier,
            spread_s=max(cell.high_s - cell.low_s, typical * cell.seconds),
        )
        for cell, error, outlier in zip(cells, errors, outliers, strict=True)
    )


def cell_flags(judged: Sequence[Judged]) -> tuple[Flag, ...]:
    """What stands out among cells of one part, in the order of their places; each once."""
    found: dict[tuple[Place, str], Flag] = {}
    for one in judged:
        if one.is_outlier:
            _add(found, Flag(place=one.cell.place, kind="far-off", ratio=one.cell.seconds / one.law_s))
    for line in _lines(judged):
        for flag in (*_dips(line), *_cliffs(line)):
            _add(found, flag)
    return tuple(sorted(found.values(), key=lambda flag: (flag.place, flag.kind)))


def _add(found: dict[tuple[Place, str], Flag], flag: Flag) -> None:
    known = found.get((flag.place, flag.kind))
    if known is None or abs(flag.ratio - 1) > abs(known.ratio - 1):
        found[flag.place, flag.kind] = flag


def _lines(judged: Sequence[Judged]) -> Iterator[list[Judged]]:
    """Cells of one batch and context over width, and of one width and context over batch."""
    lines: dict[tuple[str, int, int], list[Judged]] = {}
    for one in judged:
        place = one.cell.place
        lines.setdefault(("batch", place.batch, place.context), []).append(one)
        lines.setdefault(("width", place.width, place.context), []).append(one)
    for line in lines.values():
        yield sorted(line, key=lambda one: one.tokens)


def _dips(line: Sequence[Judged]) -> Iterator[Flag]:
    """More work in less time, beyond the spread of both cells."""
    for less, more in pairwise(line):
        if less.cell.seconds - more.cell.seconds > less.spread_s + more.spread_s:
            yield _flag(more, "dip", less)


def _cliffs(line: Sequence[Judged]) -> Iterator[Flag]:
    """Steps up: a rise that neither the law explains, nor the slope before it, nor the one after.

    Between two slopes of a smooth law lies no steeper one, be the law curved up or down. What is left has to
    exceed the spread of both cells and a tenth of the time, and to last: a single cell above or below its
    neighbours is no step.
    """
    for place, (less, more) in enumerate(pairwise(line)):
        before, after = line[max(place - 1, 0) : place], line[place + 2 : place + 3]
        slopes = [_slope(one, less) for one in before] + [_slope(more, one) for one in after]
        step_s = _step_s(less, more, slopes)
        lasting = [_step_s(one, more, slopes) for one in before] + [
            _step_s(less, one, slopes) for one in after
        ]
        if min(step_s, *lasting, step_s) > IDENTIFIED_SHARE * less.cell.seconds:
            yield _flag(more, "cliff", less)


def _step_s(less: Judged, more: Judged, slopes: Iterable[float]) -> float:
    """What is left of the rise from one cell to another, the spread of both taken off."""
    explained_s = max(
        more.law_s - less.law_s, 0.0, *(slope * (more.tokens - less.tokens) for slope in slopes)
    )
    rise_s = more.cell.seconds - less.cell.seconds
    return rise_s - explained_s - less.spread_s - more.spread_s


def _slope(less: Judged, more: Judged) -> float:
    return (more.cell.seconds - less.cell.seconds) / (more.tokens - less.tokens)


def _flag(one: Judged, kind: str, neighbour: Judged) -> Flag:
    return Flag(place=one.cell.place, kind=kind, ratio=one.cell.seconds / neighbour.cell.seconds)
