"""Timing places to a stated precision: all warmed up first, then in rounds of shuffled order.

A machine drifts: it heats up, clocks fall, a neighbour wakes. Rounds over all places spread such a change
over every cell instead of putting it into the last ones, and a few places timed at start, middle and end
show how large it was. torch is needed for `CudaTimer` alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Protocol

from specmath.calibrations import Cell, Place
from specmath.results import Advice

Work = Callable[[], object]
Progress = Callable[[float, float], None]
"""Told seconds done and seconds expected in all."""

MIN_REPEATS: Final = 5
MAX_REPEATS: Final = 200
WARM_UPS: Final = 3
DRIFT_CELLS: Final = 3
DRIFT_REPEATS: Final = 3
DRIFT_THRESHOLD: Final = 0.05
_MEDIAN_ERROR: Final = 1.2533 / 1.349
"""Standard error of a median over (interquartile range / √n), for a normal spread."""
_OUT_OF_MEMORY: Final = ("out of memory", "can't allocate memory", "not enough memory")


class Timer(Protocol):
    """Seconds that a piece of work takes."""

    def seconds(self, work: Work) -> float:
        """Do the work once and say how long it took."""


@dataclass(frozen=True, slots=True)
class ClockTimer:
    """A clock read before and after; `synchronise` waits for a device that works in the background."""

    clock: Callable[[], float] = time.perf_counter
    synchronise: Callable[[], object] | None = None

    def seconds(self, work: Work) -> float:
        """Seconds between the two readings."""
        if self.synchronise:
            self.synchronise()
        start = self.clock()
        work()
        if self.synchronise:
            self.synchronise()
        return self.clock() - start


class CudaTimer:
    """Events on the stream of a CUDA device: launches it waits for count, the host's last wait does not."""

    def __init__(self, device: object = None) -> None:
        import torch  # heavy: only where a device is timed

        self._cuda = torch.cuda
        self._device = torch.device(str(device)) if device is not None else None

    def seconds(self, work: Work) -> float:
        """Seconds between the two events."""
        start, end = (self._cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self._cuda.synchronize(self._device)
        with self._cuda.device(self._device):
            start.record()
            work()
            end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What came of timing.

    Attributes:
        cells: One for each place that was timed, in the order asked for.
        skipped: Places that could not run, and why.
        drift: Median relative change of the places timed again at the middle and the end of the run, the
            larger of the two; None where nothing was timed.
        warnings: What a reader must know.
    """

    cells: tuple[Cell, ...]
    skipped: tuple[tuple[Place, str], ...] = ()
    drift: float | None = None
    warnings: tuple[Advice, ...] = ()


def measure(
    places: Sequence[Place],
    prepare: Callable[[Place], Work],
    timer: Timer,
    *,
    precision: float = 0.01,
    seed: int = 0,
    budget_s: float | None = None,
    min_repeats: int = MIN_REPEATS,
    max_repeats: int = MAX_REPEATS,
    known: Mapping[Place, Sequence[float]] | None = None,
    told: Callable[[Place, float], None] | None = None,
    progress: Progress | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Time every place until its median is known to `precision`, or the budget is spent.

    Args:
        places: What to time; a place given twice is timed once.
        prepare: Makes a place ready and returns what to time. Running out of memory skips the place.
        timer: Times one repeat.
        precision: Relative standard error of a median below which a place is done.
        seed: Of the order within the rounds.
        budget_s: Seconds for warming up and timing together; the least number of repeats comes first.
        min_repeats: Repeats that each place gets.
        max_repeats: Repeats at which a place is done, however noisy.
        known: Repeats of an earlier run, which count.
        told: Called after every repeat, before anything else happens.
        progress: Called with seconds done and expected.
        clock: Behind the budget and the progress.

    Returns:
        Medians, quartiles and counts; what was skipped; how much the machine drifted.
    """
    rule = _Rule(precision, min_repeats, max_repeats)
    repeats = {place: list((known or {}).get(place, ())) for place in places}
    run = _Run(repeats, rule, timer, told, progress, clock, budget_s)
    run.prepare([place for place in repeats if not rule.is_met(repeats[place])], prepare)
    run.note_drift(0)
    order = random.Random(seed)
    while pending := run.pending():
        order.shuffle(pending)
        for place in pending:
            run.repeat(place)
        if run.is_half_done():
            run.note_drift(1)
    run.note_drift(2)
    cells = tuple(cell_of(place, values) for place, values in repeats.items() if values)
    return Measured(cells=cells, skipped=tuple(run.skipped), drift=run.drift(), warnings=run.warnings())


def cell_of(place: Place, repeats: Sequence[float]) -> Cell:
    """Median and quartiles of the repeats of a place.

    >>> cell_of(Place(part="target", batch=1, width=1, context=0), [4.0, 1.0, 2.0, 3.0, 5.0]).high_s
    4.0
    """
    low, middle, high = (_quantile(sorted(repeats), share) for share in (0.25, 0.5, 0.75))
    return Cell(place=place, seconds=middle, low_s=low, high_s=high, repeats=len(repeats))


def median_error(repeats: Sequence[float]) -> float:
    """Relative standard error of the median, from the interquartile range, which outliers leave alone.

    1.2533·(IQR/1.349)/√n over the median, as for a normal spread.

    >>> median_error([2.0, 2.0, 2.0, 9.0, 2.0])
    0.0
    """
    values = sorted(repeats)
    spread = _quantile(values, 0.75) - _quantile(values, 0.25)
    return _MEDIAN_ERROR * spread / len(values) ** 0.5 / _quantile(values, 0.5) if spread else 0.0


def out_of_memory_reason(error: BaseException) -> str | None:
    """One line on an error that says there is too little memory; None for any other.

    >>> out_of_memory_reason(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB.\\nSee docs"))
    'CUDA out of memory. Tried to allocate 2 GiB.'
    >>> out_of_memory_reason(RuntimeError("shape mismatch"))
    """
    text = next(iter(str(error).splitlines()), "")
    if isinstance(error, MemoryError):
        return (text or "out of memory")[:200]
    if isinstance(error, RuntimeError) and any(sign in text.lower() for sign in _OUT_OF_MEMORY):
        return text[:200]
    return None


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


@dataclass(frozen=True, slots=True)
class _Rule:
    """When a place has been timed often enough."""

    precision: float
    least: int
    most: int

    def is_met(self, repeats: Sequence[float]) -> bool:
        if len(repeats) < self.least:
            return False
        return len(repeats) >= self.most or median_error(repeats) <= self.precision

    def missing(self, repeats: Sequence[float]) -> int:
        """Repeats still to come, as far as can be told."""
        if self.is_met(repeats):
            return 0
        if len(repeats) < self.least:
            return self.least - len(repeats)
        needed = len(repeats) * (median_error(repeats) / self.precision) ** 2
        return max(1, round(min(needed, self.most)) - len(repeats))


@dataclass(slots=True)
class _Run:
    """The state of one call of `measure`."""

    repeats: dict[Place, list[float]]
    rule: _Rule
    timer: Timer
    told: Callable[[Place, float], None] | None
    progress: Progress | None
    clock: Callable[[], float]
    budget_s: float | None
    works: dict[Place, Work] = field(default_factory=dict)
    warm_s: dict[Place, float] = field(default_factory=dict)
    left_s: dict[Place, float] = field(default_factory=dict)
    skipped: list[tuple[Place, str]] = field(default_factory=list)
    witnesses: list[Place] = field(default_factory=list)
    seen: dict[int, list[float]] = field(default_factory=dict)
    started_s: float = 0.0
    timing_since_s: float = 0.0

    def prepare(self, places: Sequence[Place], prepare: Callable[[Place], Work]) -> None:
        """Make every place ready and run it a few times, so that none is timed beside a cold one."""
        self.started_s = self.clock()
        for number, place in enumerate(places, 1):
            try:
                self._warm_up(place, prepare(place))
            except (RuntimeError, MemoryError) as error:
                self._skip(place, error)
            spent = self._spent_s()
            self._report((len(places) - number) * (spent + self._expected_s()) / number)
        by_time = sorted(self.works, key=lambda place: self.warm_s[place])
        step = max(1, len(by_time) // (2 * DRIFT_CELLS))  # of the quicker half: they cost little
        self.witnesses = by_time[: DRIFT_CELLS * step : step]
        self.timing_since_s = self.clock()

    def _warm_up(self, place: Place, work: Work) -> None:
        for _ in range(WARM_UPS):
            self.warm_s[place] = self.timer.seconds(work)
        self.works[place] = work
        self._note_left(place)

    def _note_left(self, place: Place) -> None:
        self.left_s[place] = self.rule.missing(self.repeats[place]) * self.warm_s[place]

    def _skip(self, place: Place, error: RuntimeError | MemoryError) -> None:
        reason = out_of_memory_reason(error)
        if reason is None:
            raise error
        self.works.pop(place, None)
        self.left_s.pop(place, None)
        if place in self.witnesses:
            self.witnesses.clear()  # the change of those left is no change of the machine alone
        self.skipped.append((place, reason))

    def pending(self) -> list[Place]:
        """Places to be timed in the next round."""
        return [place for place in self.works if not self._is_done(place)]

    def _is_done(self, place: Place) -> bool:
        repeats = self.repeats[place]
        return self.rule.is_met(repeats) or (self._is_spent() and len(repeats) >= self.rule.least)

    def _is_spent(self) -> bool:
        return self.budget_s is not None and self._spent_s() >= self.budget_s

    def repeat(self, place: Place) -> None:
        """Time a place once more, unless the budget ran out within the round."""
        if self._is_done(place):
            return
        try:
            seconds = self.timer.seconds(self.works[place])
        except (RuntimeError, MemoryError) as error:
            self._skip(place, error)
            return
        self.repeats[place].append(seconds)
        self._note_left(place)
        if self.told:
            self.told(place, seconds)
        self._report()

    def is_half_done(self) -> bool:
        """Whether the middle of the run is reached for the first time."""
        return 1 not in self.seen and self.clock() - self.timing_since_s >= self._expected_s()

    def note_drift(self, stage: int) -> None:
        """Time the witnesses: 0 at the start, 1 in the middle, 2 at the end."""
        timed = [
            [self.timer.seconds(self.works[place]) for _ in range(DRIFT_REPEATS)] for place in self.witnesses
        ]
        self.seen[stage] = [median(values) for values in timed]

    def drift(self) -> float | None:
        """The larger of the changes from start to middle and from start to end."""
        if not self.witnesses:
            return None
        changes = [
            median(now / before - 1 for now, before in zip(self.seen[stage], self.seen[0], strict=True))
            for stage in (1, 2)
            if stage in self.seen
        ]
        return max(changes, key=abs)

    def warnings(self) -> tuple[Advice, ...]:
        """On drift and on places that stayed noisy."""
        found, drift = [], self.drift()
        if drift is not None and abs(drift) > DRIFT_THRESHOLD:
            text = (
                f"the same passes took {drift:+.1%} in the middle or at the end of the run, against its start"
            )
            remedy = "repeat on an idle machine, with fixed clocks where the device has them"
            found.append(Advice(code="drift", text=text, remedy=remedy))
        timed = [values for values in self.repeats.values() if values]
        errors = [error for error in map(median_error, timed) if error > self.rule.precision]
        if errors:
            text = f"{len(errors)} of {len(timed)} medians are not known to {self.rule.precision:.1%}; "
            text += f"the worst has a standard error of {max(errors):.1%}"
            found.append(
                Advice(code="noisy-cells", text=text, remedy="give more --time-limit, or free the machine")
            )
        return tuple(found)

    def _spent_s(self) -> float:
        return self.clock() - self.started_s

    def _expected_s(self) -> float:
        """Seconds still to come for the places that are ready."""
        missing = sum(self.left_s.values())
        return missing if self.budget_s is None else min(missing, max(0.0, self.budget_s - self._spent_s()))

    def _report(self, further_s: float = 0.0) -> None:
        if self.progress:
            spent = self._spent_s()
            self.progress(spent, spent + self._expected_s() + further_s)
