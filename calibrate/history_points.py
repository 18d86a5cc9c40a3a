"""From parts of a history to points of a regression: load and step time, with speculation and without."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from specmath.engines.history import Interval, has_drafted
from specmath.engines.load_shares import prefilled_tokens
from specmath.engines.telemetry import Telemetry
from specmath.measurements import MAX_SECONDS, MIN_SECONDS

LEAST_STEPS: Final = 500
"""Steps of requests below which the mean of an interval is chance."""
ALIKE: Final = 0.1
"""How far the share of steps that draft, and the length of drafts, may lie from their median: beyond it
speculation was on, or k another, for a part of the interval only."""

RESTART: Final = "with a restart"
FEW: Final = "with too few steps"
MIXED: Final = "in which speculation was switched or k changed"
UNTIMED: Final = "without step time or running requests"
NO_K: Final = "whose k is not told"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPoint:
    """The mean step in a part of time.

    Attributes:
        middle_s: Middle of the part, seconds since 1970.
        k: Draft tokens per step; 0 without speculation.
        running: Requests in a step.
        prefill: Prompt tokens computed in a step, beside the requests that generate.
        step_s: Seconds of a step.
        steps: Steps of requests.
        acceptance_length: Mean tokens of a step of a request; 1 without speculation.
        drafting: Share of the steps that drafted; 1 where not told.
        draft_length: Mean tokens of a draft; k where not told.
    """

    middle_s: float
    k: int
    running: float
    prefill: float
    step_s: float
    steps: float
    acceptance_length: float = 1.0
    drafting: float = 1.0
    draft_length: float = 0.0


def step_points(intervals: Iterable[Interval], k: int | None = None) -> tuple[list[StepPoint], Counter[str]]:
    """The points that intervals of one model make, and why the others make none.

    Args:
        intervals: Parts of time, with speculation or without.
        k: Draft tokens per step where the engine does not tell.
    """
    points: list[StepPoint] = []
    left_out: Counter[str] = Counter()
    for interval in intervals:
        found = _point(interval, k)
        if isinstance(found, str):
            left_out[found] += 1
        else:
            points.append(found)
    whole = _unmixed(points)
    if mixed := len(points) - len(whole):
        left_out[MIXED] += mixed
    return whole, left_out


def _point(interval: Interval, k: int | None) -> StepPoint | str:
    """The point of an interval, or what it lacks."""
    record, load = interval.telemetry, interval.telemetry.load
    is_on = has_drafted(record)
    length = _tokens_per_step(record) if is_on else 1.0
    steps = _steps(record, length)
    if interval.restarts:
        return RESTART
    if steps < LEAST_STEPS:
        return FEW
    step_s = load.step_s
    if step_s is None and load.time_per_token_s is not None:
        step_s = load.time_per_token_s * length
    if not load.running or step_s is None or not MIN_SECONDS <= step_s <= MAX_SECONDS:
        return UNTIMED
    told = (record.k or k) if is_on else 0
    if told is None:
        return NO_K
    counted = record.drafted if is_on and record.drafts else None
    return StepPoint(
        middle_s=(interval.start_s + interval.end_s) / 2,
        k=told,
        running=load.running,
        prefill=(prefilled_tokens(record) or 0.0) * load.running / steps,
        step_s=step_s,
        steps=steps,
        acceptance_length=min(length, told + 1.0),
        drafting=record.drafts / record.steps if record.drafts and record.steps else 1.0,
        draft_length=counted / record.drafts if counted and record.drafts else float(told),
    )


def _tokens_per_step(record: Telemetry) -> float:
    """E over all steps of requests, those that drafted nothing with one token."""
    steps = record.steps or record.drafts
    if steps and record.accepted is not None:
        return 1 + record.accepted / steps
    return record.acceptance_length or 1.0


def _steps(record: Telemetry, length: float) -> float:
    """Steps of requests, from whatever tells them."""
    return record.steps or record.drafts or (record.generated or 0.0) / length


def _unmixed(points: Sequence[StepPoint]) -> list[StepPoint]:
    """The points whose speculation was the same over the whole interval."""
    arms: dict[int, list[StepPoint]] = defaultdict(list)
    for point in points:
        arms[point.k].append(point)
    usual = {
        k: (median(one.drafting for one in arm), median(one.draft_length for one in arm))
        for k, arm in arms.items()
    }
    return [point for point in points if _is_usual(point, *usual[point.k])]


def _is_usual(point: StepPoint, drafting: float, draft_length: float) -> bool:
    near = abs(point.draft_length - draft_length) <= ALIKE * draft_length
    return near and abs(point.drafting - drafting) <= ALIKE * drafting
