"""What would turn the answer? The flip point of every input, one at a time, the nearest first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import FloatArray, IntArray, require_count, require_range
from specmath.flip_inputs import HARDWARE_REACH, WIDTHS, FlipInput, flip_inputs
from specmath.laws import AcceptanceLaw
from specmath.results import CHUNK_ROWS, Cell, Columns, Result, brief
from specmath.sources import BatchSource
from specmath.units import format_quantity, format_significant
from specmath.verdicts import judgement
from specmath.winning import LARGEST_SCAN, Progress, SetUps

_WORDS: Final = {
    "alpha": "α",
    "match_rate": "match rate",
    "acceptance_length": "acceptance length",
    "draft_cost": "draft cost",
    "verify_cost": "verify cost",
    "memory_bytes_per_s": "memory bandwidth",
    "peak_flops_per_s": "peak",
    "link_bytes_per_s": "link",
    "target_bytes_per_param": "bytes a target weight",
    "draft_bytes_per_param": "bytes a draft weight",
}
_TOLD_BY: Final = {"acceptance_length": ("alpha", "match_rate"), "overhead": ("verify_cost",)}
"""Inputs that turn the answer as others do; a short list leaves them to these."""
MAX_BATCH: Final = 4096
"""Largest batch tried unless the caller says otherwise."""
_BISECTIONS: Final = 34  # a step of a grid, a tenth of the value or so, down to ten digits


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """Where one input turns the answer, all others as they are.

    Attributes:
        input: The input, by its key.
        unit: Its base unit; empty for a pure number.
        value: What it is now.
        whole: Whether it takes whole numbers only; its flip points are then the first that turn the answer.
        below: Nearest value below `value` at which the answer is another; None where there is none.
        above: The same above.
    """

    input: str
    unit: str
    value: float
    whole: bool
    below: float | None
    above: float | None

    @property
    def turns(self) -> bool:
        """Whether it can turn the answer at all."""
        return self.below is not None or self.above is not None

    @property
    def nearest(self) -> float | None:
        """The flip point that takes the smaller relative change."""
        points = [point for point in (self.below, self.above) if point is not None]
        return min(points, key=self._distance, default=None)

    @property
    def distance(self) -> float:
        """|ln| of the change to the nearest flip point; infinite where there is none.

        Contexts, overheads and whatever is 0 now are counted from −1, since they begin at 0.
        """
        return math.inf if self.nearest is None else self._distance(self.nearest)

    def _distance(self, point: float) -> float:
        offset = 1.0 if self.input in ("context", "overhead") or self.value == 0 else 0.0
        if point + offset <= 0:
            return math.inf
        return abs(math.log((point + offset) / (self.value + offset)))

    @property
    def text(self) -> str:
        """The flip points in words.

        >>> Flip(input="alpha", unit="", value=0.7, whole=False, below=0.25, above=None).text
        'α < 0.25'
        >>> Flip(input="k", unit="", value=4, whole=True, below=None, above=9).text
        'k ≥ 9'
        """
        name = _WORDS.get(self.input, self.input)
        points = self.points
        return " or ".join(f"{name} {point}" for point in points) if points else f"{name}: nowhere"

    @property
    def points(self) -> list[str]:
        """The flip points as conditions on the input, the one below first."""
        below, above = ("≤", "≥") if self.whole else ("<", ">")
        ends = ((below, self.below), (above, self.above))
        return [f"{sign} {_shown(point, self.unit)}" for sign, point in ends if point is not None]


def set_up_flips(
    law: AcceptanceLaw, k: int, source: BatchSource, batch: int, context: float, max_batch: int = MAX_BATCH
) -> list[Flip]:
    """The flips of one set-up, by rising distance; last the inputs that cannot turn the answer."""
    found = [_flip(one) for one in flip_inputs(law, k, source, batch, context, max_batch)]
    return sorted(found, key=lambda flip: flip.distance)


def nearest_flips(flips: Sequence[Flip], count: int = 3) -> str:
    """The nearest flip points in words; empty where nothing turns the answer."""
    names = {flip.input for flip in flips}
    told = [flip for flip in flips if flip.turns and names.isdisjoint(_TOLD_BY.get(flip.input, ()))]
    return ", ".join(flip.text for flip in told[:count])


def flip_lines(flips: Sequence[Flip], batch: int) -> list[str]:
    """All flip points in words, a line each way."""
    turning = "; ".join(flip.text for flip in flips if flip.turns)
    fixed = ", ".join(_WORDS.get(flip.input, flip.input) for flip in flips if not flip.turns)
    lines = [f"the answer at batch {batch} turns at {turning}"] if turning else []
    return lines + ([f"alone, these cannot turn it: {fixed}"] if fixed else [])


def flip_points(
    acceptance: AcceptanceLaw | Sequence[AcceptanceLaw],
    k: npt.ArrayLike,
    *,
    source: BatchSource,
    batch: int = 1,
    context: npt.ArrayLike = 0,
    max_batch: int = MAX_BATCH,
    progress: Progress | None = None,
) -> FlipTable:
    """What would turn the answer: where each input, the others as they are, carries S across 1.

    Each input is followed both ways from its value, on a grid and then by bisection, so that a curve that
    turns several times is told by the nearest flip on each side. Whole inputs are tried one by one.

    Args:
        acceptance: A law or several.
        k: Draft tokens per step, each at least 1.
        source: Step times that depend on the batch. Bandwidth, peak, link and widths of weights are moved
            where the source is a roofline, or holds one.
        batch: The batch at which the question is asked.
        context: Tokens in the KV cache per sequence, one or many.
        max_batch: Largest batch tried.
        progress: Called with the set-ups done and the set-ups in all.

    Raises:
        InputError: for a value out of range, or a k beyond what a law answers for.
    """
    axis = AcceptanceAxis.of(acceptance)
    axis.require_match_rate(source.match_rate)
    table = FlipTable(
        acceptance=axis,
        k=axis.draft_lengths(k, at_least=1),
        context=np.atleast_1d(require_range("context", context, 0)).ravel(),
        source=source,
        batch=int(require_count("batch", batch, 1, LARGEST_SCAN)),
        flips=(),
    )
    limit = int(require_count("max_batch", max_batch, 1, LARGEST_SCAN))
    total = len(axis) * table.k.size * table.context.size
    found = []
    for done, (law, drafts, length) in enumerate(table.set_ups(), start=1):
        found.append(tuple(set_up_flips(law, drafts, source, table.batch, length, limit)))
        if progress is not None:
            progress(done, total)
    return table.holding(tuple(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipTable(Result):
    """The inputs of each set-up of a grid laws × k × context, ranked by how small a change turns the answer.

    `rank` and the flip points are None where an input cannot turn it within the range that is tried.
    `change` is the factor on `value` that leads to the nearest flip point.
    """

    schema: ClassVar[str] = "specmath.flips/1"
    keys: ClassVar[tuple[str, ...]] = (
        "case",
        "alpha",
        "law",
        "k",
        "batch",
        "context",
        "speedup",
        "speedup_low",
        "speedup_high",
        "rank",
        "input",
        "now",
        "turns_at",
        "unit",
        "value",
        "flips_below",
        "flips_above",
        "change",
    )

    data_keys: ClassVar[tuple[str, ...]] = ("unit", "value", "flips_below", "flips_above")

    acceptance: AcceptanceAxis
    k: IntArray
    context: FloatArray
    source: BatchSource
    batch: int
    flips: tuple[tuple[Flip, ...], ...]

    def holding(self, flips: tuple[tuple[Flip, ...], ...]) -> FlipTable:
        """The same grid with the flips of each of its set-ups."""
        return FlipTable(
            acceptance=self.acceptance,
            k=self.k,
            context=self.context,
            source=self.source,
            batch=self.batch,
            flips=flips,
        )

    def set_ups(self) -> Iterator[tuple[AcceptanceLaw, int, float]]:
        """Law, k and context of each set-up, in the order of the rows."""
        for place in range(len(self.acceptance)):
            law = self.acceptance.law(place)
            for k in self.k.tolist():
                yield from ((law, k, context) for context in self.context.tolist())

    def __len__(self) -> int:
        return sum(map(len, self.flips))

    @property
    def inputs(self) -> Mapping[str, Cell]:
        axes: dict[str, Cell] = {"k": brief(self.k), "batch": self.batch, "context": brief(self.context)}
        return self.acceptance.inputs | axes | dict(self.source.inputs)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "one input moves at a time, c, v and o as ratios; rates of the hardware by up to "
            f"{HARDWARE_REACH:g} times either way, weights between {WIDTHS[0]:g} and {WIDTHS[1]:g} bytes; "
            "memory plays no part",
            "ranked by the relative change that turns the answer; contexts, overheads and what is 0 now "
            "are counted from −1",
            *self.source.assumptions,
            *self.acceptance.assumptions,
        )

    @property
    def verdict(self) -> str:
        if len(self.flips) != 1:
            return ""
        row: Any = next(self.rows())
        low, high = row["speedup_low"], row["speedup_high"]
        word = judgement(row["speedup"], low, high)
        span = f"{row['speedup']:.2f}×" + ("" if low is None else f" ({low:.2f} to {high:.2f})")
        turns = nearest_flips(self.flips[0]) or "nothing that is moved alone"
        return f"{word} at batch {self.batch}: {span} {self.source.basis}; S = 1 at {turns}"

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        rows = list(self._rows())
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            yield {key: [row[key] for row in some] for key in self.keys}

    def _rows(self) -> Iterator[dict[str, Cell]]:
        for (law, k, context), flips in zip(self.set_ups(), self.flips, strict=True):
            axis = AcceptanceAxis.of(law)
            length = float(np.asarray(law.at(context).acceptance_length(k)))
            steps = SetUps(
                source=self.source,
                length=np.array([length]),
                k=np.array([k]),
                width=np.array([law.width(k)]),
                passes=np.array([law.draft_passes(k)]),
                context=np.array([context]),
            ).steps(self.batch)
            speedup, high, low = [length / float(one[0]) for one in steps] + [None] * (3 - len(steps))
            about: dict[str, Cell] = {
                "case": self.source.case,
                "alpha": float(axis.alpha[0]) if np.isfinite(axis.alpha[0]) else None,
                "law": str(axis.labels[0]),
                "k": k,
                "batch": self.batch,
                "context": context,
                "speedup": speedup,
                "speedup_low": low,
                "speedup_high": high,
            }
            for rank, flip in enumerate(flips, start=1):
                point = flip.nearest
                yield about | {
                    "rank": rank if flip.turns else None,
                    "input": flip.input,
                    "now": _shown(flip.value, flip.unit),
                    "turns_at": " or ".join(flip.points) or None,
                    "unit": flip.unit,
                    "value": flip.value,
                    "flips_below": flip.below,
                    "flips_above": flip.above,
                    "change": point / flip.value if point is not None and flip.value else None,
                }


def _flip(one: FlipInput) -> Flip:
    """The nearest flip points of an input, both ways."""
    now = bool(one.wins(np.array([one.value]))[0])
    below, above = (_first_flip(one.wins, grid, now, one.whole) for grid in (one.below, one.above))
    return Flip(input=one.name, unit=one.unit, value=one.value, whole=one.whole, below=below, above=above)


def _first_flip(
    wins: Callable[[FloatArray], npt.NDArray[np.bool_]], grid: FloatArray, now: bool, whole: bool
) -> float | None:
    """The first point along the grid, which begins at the present value, with another answer."""
    if grid.size < 2:
        return None
    turned = np.flatnonzero(wins(grid) != now)
    if turned.size == 0:
        return None
    kept, flipped = float(grid[max(turned[0] - 1, 0)]), float(grid[turned[0]])
    if whole:
        return flipped
    for _ in range(_BISECTIONS):
        middle = (kept + flipped) / 2
        if bool(wins(np.array([middle]))[0]) == now:
            kept = middle
        else:
            flipped = middle
    return flipped


def _shown(value: float, unit: str) -> str:
    return format_quantity(value, unit, 3) if unit else format_significant(value, 3)
