"""llama.cpp's logs: a line for each request in three wordings, and cumulative lines of each way to draft.

| builds | a request's line |
| --- | --- |
| up to early 2026 | `draft acceptance rate = 0.57576 (  171 accepted /   297 generated)` |
| April and May 2026 | `draft acceptance = 0.57576 (…)` |
| June 2026 | `…, mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632)` |
| later | `…, mean len =  2.92`, and `acc per pos = (…)` on a line of its own |

Drafts are printed by none of them: they are the whole number that the printed length and positions allow.
The `statistics` lines count them, but over all requests since the start, and for each way to draft.
"""

from __future__ import annotations

import re
from copy import copy
from dataclasses import replace
from math import ceil
from typing import Final

from specmath.engines.content import LogReader
from specmath.engines.llama_cpp_lines import (
    RequestLine,
    Way,
    counted,
    drafts_recovered,
    drafts_unknown,
    method_of,
    position_line,
    reported_rate,
    request_line,
    several_ways,
    statistics_line,
)
from specmath.engines.llama_cpp_simple import SimpleRuns
from specmath.engines.spec_counts import added, mean, require_possible
from specmath.engines.telemetry import Load, RequestCounts, Telemetry
from specmath.results import Advice

ENGINE: Final = "llama.cpp"
MOST_WAYS: Final = 64
MOST_REQUESTS: Final = 4096
"""Requests kept one by one; of more, every second is let go, then every second of the rest."""
_EVAL: Final = re.compile(r"(prompt )?eval time = {0,12}(\d{1,15}\.\d{1,6}) ms / {0,12}(\d{1,12}) tokens")


class LlamaCppLog(LogReader):
    """Adds up the lines of requests; statistics lines are cumulative, so that the last of each counts."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.pending: RequestLine | None = None
        self.requests: list[RequestCounts] = []
        self.stride = 1
        self.seen = 0
        self.drafted = self.accepted = self.drafts = self.drafted_with_drafts = 0.0
        self.accepted_at: tuple[float, ...] = ()
        self.unplaced = self.longest = 0.0
        self.ways: dict[str, Way] = {}
        self.generated = self.prompt = self.milliseconds = 0.0
        self.simple = SimpleRuns()

    def feed(self, line: str) -> bool:
        """Take one line; True where it tells of drafts."""
        if "eval time = " in line:
            self._timed(line)
        elif request := request_line(line):
            self._close()
            self.pending = request
            return True
        elif self.pending and (rates := position_line(line)):
            self.pending = replace(self.pending, rates=rates)
            return True
        elif statistics := statistics_line(line):
            if statistics[0] in self.ways or len(self.ways) < MOST_WAYS:
                self.ways[statistics[0]] = statistics[1]
            return True
        return self.simple.feed(line)

    def _timed(self, line: str) -> None:
        found = _EVAL.search(line)
        if found is None:
            return
        if found[1]:
            self.prompt += float(found[3])
        else:
            self.generated += float(found[3])
            self.milliseconds += float(found[2])

    def _close(self) -> None:
        """Add the request whose lines have ended."""
        if self.pending is None:
            return
        request, self.pending = self.pending, None
        drafts = request.drafts
        self.drafted += request.drafted
        self.accepted += request.accepted
        if drafts:
            self.drafts += drafts
            self.drafted_with_drafts += request.drafted
            self.longest = max(self.longest, request.drafted / drafts, len(request.rates))
            self._keep(RequestCounts(drafts=drafts, drafted=request.drafted, accepted=request.accepted))
        if drafts and request.rates:
            self.accepted_at = added(self.accepted_at, counted(request.rates, drafts))
        else:
            self.unplaced += request.accepted
        self.seen += 1

    def _keep(self, request: RequestCounts) -> None:
        if self.seen % self.stride == 0:
            self.requests.append(request)
        if len(self.requests) >= MOST_REQUESTS:
            self.requests = self.requests[::2]
            self.stride *= 2

    def result(self) -> list[Telemetry]:
        """The lines so far as one record; empty where none told of drafts."""
        ended = copy(self)  # more lines of the last request may follow
        ended.requests = list(self.requests)
        ended._close()
        telemetry = ended._telemetry()
        return [] if telemetry is None else [require_possible(telemetry)]

    def _telemetry(self) -> Telemetry | None:
        if self.seen:
            counted = self._agree(self.drafted, self.accepted)
            return self._from_ways("requests") if counted else self._from_requests()
        run = self.simple.telemetry(self.source)
        if run is None or not self._agree(run.drafted, run.accepted):
            return run or (self._from_ways("since start") if self.ways else None)
        return replace(self._from_ways("requests"), k=run.k, generated=run.generated, steps=run.steps)

    def _agree(self, drafted: float | None, accepted: float | None) -> bool:
        """Whether statistics lines count the same drafts, so that they tell what the other lines lack."""
        ways = self.ways.values()
        same = sum(way.drafted for way in ways) == drafted and sum(way.accepted for way in ways) == accepted
        return bool(ways) and same

    def _from_requests(self) -> Telemetry:
        drafts = self._all_drafts()
        placed = self.accepted_at if drafts and not self.unplaced else ()
        return self._record(
            scope="requests",
            longest=max(self.longest, len(placed)),
            drafts=drafts,
            drafted=self.drafted,
            accepted=self.accepted,
            accepted_at=placed,
            notes=(drafts_unknown("this build's log prints") if drafts is None else drafts_recovered(),),
        )

    def _all_drafts(self) -> float | None:
        """Drafts of all requests; those of requests that do not tell are as long as those of the others."""
        if not self.drafts:
            return None
        return float(round(self.drafts * self.drafted / self.drafted_with_drafts))

    def _from_ways(self, scope: str) -> Telemetry:
        ways = list(self.ways.values())
        drafts = sum(way.drafts for way in ways)
        placed: tuple[float, ...] = ()
        for way in ways:
            placed = added(placed, counted(way.rates, way.drafts))
        told = drafts and all(way.rates or not way.accepted for way in ways)
        return self._record(
            scope=scope,
            longest=max(len(placed), *(mean(way.drafted, way.drafts) or 0.0 for way in ways)),
            drafts=drafts,
            drafted=sum(way.drafted for way in ways),
            accepted=sum(way.accepted for way in ways),
            accepted_at=placed if told else (),
            notes=(several_ways(self.ways.items()),) if len(ways) > 1 else (),
        )

    def _record(
        self,
        *,
        scope: str,
        longest: float,
        drafts: float | None,
        drafted: float,
        accepted: float,
        accepted_at: tuple[float, ...],
        notes: tuple[Advice, ...],
    ) -> Telemetry:
        k = ceil(longest - 1e-9) or None
        passes = self.generated - accepted if self.generated > accepted else None
        return Telemetry(
            engine=ENGINE,
            source=self.source,
            scope=scope,
            method=method_of(self.ways),
            k=k,
            k_varies=bool(k and drafts and drafted < k * drafts),
            drafts=drafts,
            drafted=drafted,
            accepted=accepted,
            accepted_at=accepted_at,
            reported_rate=reported_rate(accepted, drafted),
            requests=tuple(self.requests),
            generated=self.generated or None,
            steps=passes,
            load=self._load(passes),
            notes=notes,
        )

    def _load(self, passes: float | None) -> Load:
        seconds = self.milliseconds / 1e3 if self.milliseconds else None
        timed = [way for way in self.ways.values() if way.seconds]
        return Load(
            prompt_tokens=self.prompt or None,
            step_s=mean(seconds, passes),
            draft_s=mean(sum(way.seconds or 0.0 for way in timed) or None, sum(way.drafts for way in timed)),
            time_per_token_s=mean(seconds, self.generated),
        )
