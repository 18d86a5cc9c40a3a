"""From series sampled over time to what was counted in each part of a range, restarts taken into account."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from statistics import fmean
from typing import Final

from specmath.engines.content import Sample
from specmath.engines.exposition import is_total, process_of
from specmath.engines.values import bare_name

RUNNING: Final = (
    "num_requests_running",
    "num_running_reqs",
    "requests_processing",
    "num_generation_requests",
)
"""Gauges of the requests in a step, by engine."""
_ZERO_IS_IDLE: Final = (*RUNNING, "spec_accept_length", "spec_accept_rate", "gen_throughput")
"""Gauges that say nothing while nothing runs."""
ENGINES: Final = ("vllm", "sglang", "trtllm", "llamacpp", "lmdeploy", "tgi")

Series = tuple[str, frozenset[tuple[str, str]]]
"""Name and labels."""
Points = list[tuple[float, float]]
"""Seconds and value, in order of time."""
Part = dict[Series, float]
"""Increase of each total and mean of each gauge in a part of a range."""


def short_name(name: str) -> str:
    """A name without the prefix of its engine.

    >>> short_name("vllm:num_requests_running"), short_name("up")
    ('num_requests_running', 'up')
    """
    return next((short for engine in ENGINES if (short := bare_name(name, engine))), name)


def parts_of(series: Mapping[Series, Points], edges: list[float]) -> tuple[list[Part], list[float]]:
    """Increases and means between each two edges, and the moments of the restarts seen, in order.

    Where a total of a process fell, the process restarted, and all its totals count from zero. A total that
    appears beside others of its process counts from zero, too; of a process that appears the first sample is
    where counting begins.
    """
    parts: list[Part] = [{} for _ in edges[1:]]
    totals = {one: points for one, points in series.items() if is_total(one[0], {})}
    restarts: list[float] = []
    for members in _processes(totals).values():
        fell = sorted({moment for points in members.values() for moment in _falls(points)})
        restarts += fell
        begins_s = min(points[0][0] for points in members.values())
        for one, points in members.items():
            for moment, grown in _increments(points, fell, begins_s):
                part = parts[part_at(moment, edges)]
                part[one] = part.get(one, 0.0) + grown
    for one, points in series.items():
        if one not in totals:
            _add_means(parts, one, points, edges)
    return parts, sorted(restarts)


def added(parts: Iterable[Part], series: Mapping[Series, Points]) -> Part:
    """The parts together: increases added up, gauges averaged over all their points."""
    whole: Part = defaultdict(float)
    for part in parts:
        for one, value in part.items():
            if is_total(one[0], {}):
                whole[one] += value
    for one, points in series.items():
        if not is_total(one[0], {}) and (told := _telling(one, points)):
            whole[one] = fmean(value for _, value in told)
    return dict(whole)


def _processes(totals: Mapping[Series, Points]) -> Mapping[object, dict[Series, Points]]:
    found: dict[object, dict[Series, Points]] = defaultdict(dict)
    for one, points in totals.items():
        found[process_of(Sample(one[0], dict(one[1]), 0.0))][one] = points
    return found


def _falls(points: Points) -> Iterator[float]:
    was = points[0][1]
    for moment, value in points:
        if value < was * (1 - 1e-9):
            yield moment
        was = value


def _increments(points: Points, fell: list[float], begins_s: float) -> Iterator[tuple[float, float]]:
    """Moment and growth since the sample before it, or since zero after a restart or at a first use."""
    first_s, first = points[0]
    if first_s > begins_s:
        yield first_s, first
    for (was_s, was), (moment, value) in pairwise(points):
        restarted = bisect_right(fell, moment) > bisect_right(fell, was_s)
        yield moment, value if restarted else max(value - was, 0.0)


def _telling(one: Series, points: Points) -> Points:
    idle = short_name(one[0]) in _ZERO_IS_IDLE
    return [(moment, value) for moment, value in points if value or not idle]


def _add_means(parts: list[Part], one: Series, points: Points, edges: list[float]) -> None:
    values: dict[int, list[float]] = defaultdict(list)
    for moment, value in _telling(one, points):
        values[part_at(moment, edges)].append(value)
    for index, found in values.items():
        parts[index][one] = fmean(found)


def part_at(moment: float, edges: list[float]) -> int:
    """The part that a moment ends: what it counted lies before it."""
    return min(max(bisect_left(edges, moment) - 1, 0), len(edges) - 2)
