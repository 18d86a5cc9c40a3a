"""The history of a serving engine in a Prometheus server: weeks at varying load, with restarts in between.

`prometheus:URL?range=14d&step=5m&match=model_name="x"` names it. Samples are read as they are and increases
are formed here: Prometheus' own `increase` extrapolates, and sees no restart that spared a series.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, isfinite
from typing import Any, Final
from urllib.parse import urlencode

from specmath.engines.content import Exposition, Sample
from specmath.engines.fetching import USUAL, Limits, Reply, get, require_good
from specmath.engines.increases import (
    ENGINES,
    RUNNING,
    Part,
    Points,
    Series,
    added,
    part_at,
    parts_of,
    short_name,
)
from specmath.engines.prometheus_ranges import Range, lasting, parse_range
from specmath.engines.reading import Source
from specmath.engines.recognition import read_scrape
from specmath.engines.telemetry import Telemetry
from specmath.engines.values import mapping, objects, percentile, text
from specmath.errors import AccessError, DataError, InputError
from specmath.results import Advice
from specmath.strict_json import json_document

PARTS: Final = 24
"""Intervals that a range is divided into, to show how load and acceptance change."""
SAMPLES_A_PART: Final = 8
"""Samples of a part where the step is free: enough for the mean of a gauge."""
LEAST_SAMPLES: Final = 2
QUERY_POINTS: Final = 1_000
"""Points of a series in one answer."""
MAX_SAMPLES: Final = 4_000_000
_NAMES: Final = (
    "spec_[a-z_]+",
    "(generation|prompt)_tokens_total",
    "iteration_tokens_total_count",
    "(inter_token_latency|(request_)?time_per_output_token)_seconds_(sum|count)",
    "time_to_first_token_seconds_count",
    "num_(requests_running|requests_waiting|running_reqs|queue_reqs|preemptions_total)",
    "((gpu|kv)_cache_usage_perc|kv_cache_utilization|token_usage|gen_throughput)",
    "(gpu_)?prefix_cache_(queries|hits)(_total)?",
    "tokens_predicted(_seconds)?_total|prompt_tokens_cached_total|n_busy_slots_per_decode",
    "requests_(processing|deferred)|num_generation_requests",
    "iteration_latency_seconds(_sum|_count)?",
    "request_skipped_tokens_(sum|count)",
)
"""Series that readers use, as PromQL's regular expressions match them; the rest stays in the server."""
_QUERY: Final = f"(ray_)?({'|'.join(ENGINES)})[:_]({'|'.join(_NAMES)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A part of a range, in seconds since 1970, and what was counted of one model in it.

    Attributes:
        start_s: Where it begins.
        end_s: Where it ends.
        telemetry: Of one model.
        restarts: How often counters of any engine began anew in it.
    """

    start_s: float
    end_s: float
    telemetry: Telemetry
    restarts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Telemetry of each model over a whole range, and over those parts in which it drafted."""

    telemetry: tuple[Telemetry, ...]
    intervals: tuple[Interval, ...]


def read_history(
    source: str, *, engine: str | None = None, version: str | None = None, since: Source | None = None
) -> list[Telemetry]:
    """Telemetry of each model over the range that `prometheus:URL` names; see `ask_history`.

    Raises:
        InputError: with `since`, which a range has no use for.
    """
    if since is not None:
        raise InputError("since", "goes with a scrape; a Prometheus server takes ?range=, as 14d")
    return list(ask_history(source, engine=engine, version=version).telemetry)


def ask_history(
    source: str,
    *,
    engine: str | None = None,
    version: str | None = None,
    limits: Limits = USUAL,
    progress: Callable[[int, int], None] | None = None,
    now_s: float | None = None,
) -> History:
    """What a Prometheus server recorded of serving engines.

    Gauges are means over time, those of running requests over the time in which any ran.

    Args:
        source: `prometheus:URL` with `range` (1d by default), `step` (a thousandth of it), `end` (now) and
            `match` (label matchers, with commas between them).
        engine: Name of the engine, where recognition needs help.
        version: Version of the engine, which no series tells.
        limits: Time for each answer, and size.
        progress: Called with queries done and in all.
        now_s: The present, in seconds since 1970.

    Raises:
        AccessError: the server does not answer.
        DataError: it has no series of a serving engine, refuses the query, or is no Prometheus.
        InputError: the source is malformed.
    """
    cut = _cut(source, limits, progress, now_s, lambda _: PARTS)
    intervals = [one for one in _intervals(cut, engine, version) if has_drafted(one.telemetry)]
    whole = read_scrape(_exposition(added(cut.parts, cut.series), cut.asked, version), engine=engine)
    records = tuple(_told(record, cut.series, intervals, len(cut.restarts)) for record in whole)
    return History(telemetry=records, intervals=tuple(intervals))


def ask_intervals(
    source: str,
    *,
    most: int,
    engine: str | None = None,
    version: str | None = None,
    limits: Limits = USUAL,
    progress: Callable[[int, int], None] | None = None,
    now_s: float | None = None,
) -> tuple[Interval, ...]:
    """Equal parts of the range that a Prometheus server was asked for, with speculation and without.

    Args:
        source: As for `ask_history`; so are the arguments that follow.
        most: Parts, from 1 to a thousand; less where they would hold fewer than `LEAST_SAMPLES`.

    Returns:
        A record for each part and model of which anything is known.
    """

    def count(asked: Range) -> int:
        return min(max(int((asked.end_s - asked.start_s) / (LEAST_SAMPLES * asked.step_s)), 1), most)

    points = SAMPLES_A_PART * most
    return tuple(_intervals(_cut(source, limits, progress, now_s, count, points), engine, version))


def has_drafted(record: Telemetry) -> bool:
    """Whether speculation was on, as far as a record of a part of time tells.

    >>> has_drafted(Telemetry(engine="vllm", scope="difference", drafts=0, steps=100))
    False
    """
    return bool(record.drafts or record.drafted or record.acceptance_length)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cut:
    """Series of a range, what they say of each of its parts, and the moments of restarts."""

    asked: Range
    series: Mapping[Series, Points]
    edges: list[float]
    parts: list[Part]
    restarts: list[float]


def _cut(
    source: str,
    limits: Limits,
    progress: Callable[[int, int], None] | None,
    now_s: float | None,
    count: Callable[[Range], int],
    points: int = QUERY_POINTS,
) -> _Cut:
    """The series of a source, in as many parts as `count` says."""
    asked = parse_range(source, time.time() if now_s is None else now_s, points)
    series = _series(asked, limits, progress)
    if not series:
        named = f" with {asked.matchers}" if asked.matchers else ""
        remedy = "let it scrape the engine's /metrics, or ask for a longer range"
        raise DataError(asked.shown, f"has no series of a serving engine{named}; {remedy}")
    number = count(asked)
    width_s = (asked.end_s - asked.start_s) / number
    edges = [asked.start_s + index * width_s for index in range(number + 1)]
    parts, restarts = parts_of(series, edges)
    return _Cut(asked=asked, series=series, edges=edges, parts=parts, restarts=restarts)


def _intervals(cut: _Cut, engine: str | None, version: str | None) -> Iterator[Interval]:
    restarts = Counter(part_at(moment, cut.edges) for moment in cut.restarts)
    for index, part in enumerate(cut.parts):
        for record in _read(_exposition(part, cut.asked, version), engine):
            ends = {"start_s": cut.edges[index], "end_s": cut.edges[index + 1]}
            yield Interval(**ends, telemetry=record, restarts=restarts[index])


# ---------------------------------------------------------------- the answers


def _series(
    asked: Range, limits: Limits, progress: Callable[[int, int], None] | None
) -> dict[Series, Points]:
    """Every series asked for, its points in order of time; a long range takes several queries."""
    found: dict[Series, Points] = {}
    span_s = QUERY_POINTS * asked.step_s
    queries = ceil((asked.end_s - asked.start_s) / span_s)
    samples = 0
    for number in range(queries):
        if progress is not None:
            progress(number, queries)
        start_s = asked.start_s + number * span_s
        end_s = min(start_s + span_s - asked.step_s, asked.end_s) if number < queries - 1 else asked.end_s
        for one, points in _answered(asked, start_s, end_s, limits):
            found.setdefault(one, []).extend(points)
            samples += len(points)
            if samples > MAX_SAMPLES:
                problem = f"has more than {MAX_SAMPLES:,} samples"
                raise DataError(asked.shown, f"{problem}; give a longer ?step= or ?match= fewer engines")
    if progress is not None:
        progress(queries, queries)
    return found


def _answered(asked: Range, start_s: float, end_s: float, limits: Limits) -> Iterator[tuple[Series, Points]]:
    matchers = f",{asked.matchers}" if asked.matchers else ""
    query = f'{{__name__=~"{_QUERY}"{matchers}}}'
    fields = {"query": query, "start": f"{start_s:.3f}", "end": f"{end_s:.3f}", "step": f"{asked.step_s:g}"}
    try:
        data = _data(get(f"{asked.url}/api/v1/query_range?{urlencode(fields)}", limits), asked)
    except (AccessError, DataError) as fault:  # the whole query would fill the line
        raise type(fault)(asked.shown, fault.problem) from None
    for entry in objects(data.get("result")):
        labels = {str(key): str(value) for key, value in mapping(entry.get("metric")).items()}
        name = labels.pop("__name__", "")
        if name and (points := list(_points(entry.get("values")))):
            yield (name, frozenset(labels.items())), points


def _data(reply: Reply, asked: Range) -> Mapping[str, Any]:
    """The data of an answer; the server's own words where it refuses."""
    try:
        answer = mapping(json_document(reply.text, asked.shown))
    except DataError:
        answer = {}
    if answer.get("status") == "error":
        said = (text(answer.get("error")) or text(answer.get("errorType")) or "no reason given")[:160]
        raise DataError(asked.shown, f"Prometheus refuses the query: {said}; change range, step or match")
    require_good(reply)
    if answer.get("status") != "success":
        raise DataError(
            asked.shown, "is no Prometheus server; give its base URL, as prometheus:http://HOST:9090"
        )
    return mapping(answer.get("data"))


def _points(values: Any) -> Iterator[tuple[float, float]]:
    """Moment and value of each sample that has one: NaN and infinities are none."""
    for pair in values if isinstance(values, list) else ():
        try:
            moment, value = float(pair[0]), float(pair[1])
        except (TypeError, ValueError, LookupError, OverflowError):
            continue
        if isfinite(moment) and isfinite(value) and value >= 0:
            yield moment, value


# ---------------------------------------------------------------- what they tell


def _exposition(part: Part, asked: Range, version: str | None) -> Exposition:
    samples = tuple(Sample(name, dict(labels), value) for (name, labels), value in part.items())
    return Exposition(samples=samples, scope="difference", source=asked.shown, version=version)


def _read(part: Exposition, engine: str | None) -> list[Telemetry]:
    """What a part tells; a part without any sample tells nothing."""
    try:
        return read_scrape(part, engine=engine)
    except DataError:
        return []


def _told(
    record: Telemetry, series: Mapping[Series, Points], intervals: Sequence[Interval], restarts: int
) -> Telemetry:
    """A record with the load's percentile, and with notes on restarts and on what changed over the range."""
    running = Counter(
        value
        for (name, labels), points in series.items()
        if short_name(name) in RUNNING and dict(labels).get("model_name", record.model) == record.model
        for _, value in points
        if value
    )
    notes = [*record.notes]
    if restarts:
        times = "once" if restarts == 1 else f"{restarts} times"
        told = f"counters restarted {times} in the range, and count from zero since"
        notes.append(Advice(code="counters-reset", text=told, remedy="nothing is lost but a step at each"))
    own = [one for one in intervals if one.telemetry.model == record.model]
    if changes := _changes(own):
        notes.append(changes)
    load = replace(record.load, running_p95=percentile(running, 0.95))
    return replace(record, load=load, notes=tuple(notes))


def _changes(intervals: Sequence[Interval]) -> Advice | None:
    """How running batch and acceptance length move over the range; None where they hold still."""
    running = [one.telemetry.load.running for one in intervals]
    batches = [batch for batch in running if batch]
    lengths = [length for one in intervals if (length := _length(one.telemetry)) is not None]
    told = []
    if batches and max(batches) > 1.5 * min(batches):
        told.append(f"running batch from {min(batches):.3g} to {max(batches):.3g}")
    if lengths and max(lengths) - min(lengths) > 0.1:
        told.append(f"acceptance length from {min(lengths):.3g} to {max(lengths):.3g}")
    if not told:
        return None
    width = lasting(round(intervals[0].end_s - intervals[0].start_s))
    text = f"over intervals of {width}: {' and '.join(told)}"
    return Advice(code="load-varies", text=text, remedy="ask for a shorter range to see one load alone")


def _length(record: Telemetry) -> float | None:
    if record.drafts and record.accepted is not None:
        return 1 + record.accepted / record.drafts
    return record.acceptance_length
