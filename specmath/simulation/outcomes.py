"""A simulated run: what became of every request, every step that was taken, and the summary of both."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, require_range
from specmath.errors import UnknownNameError
from specmath.simulation.replicas import STEP_FIELDS, Outcomes
from specmath.simulation.requests import Requests
from specmath.simulation.statistics import (
    COOL_DOWN,
    WARM_UP,
    ServiceLevel,
    Spread,
    Summary,
    falls_behind,
    growth_per_s,
    in_system,
    lasts_long_enough,
    no_spread,
    spread_of,
    time_mean,
)


@dataclass(frozen=True, slots=True)
class _Window:
    """The part of a run that is measured: from one arrival to another."""

    requests: slice
    start_s: float
    end_s: float

    @property
    def span_s(self) -> float:
        return self.end_s - self.start_s

    def place(self, times: FloatArray) -> FloatArray:
        """Times as positions in the window, from 0 to 1."""
        return (times - self.start_s) / self.span_s

    def holds(self, times: FloatArray) -> npt.NDArray[np.bool_]:
        return (times >= self.start_s) & (times < self.end_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationResult:
    """What a run did.

    Attributes:
        requests: The requests, in order of arrival.
        outcomes: What became of each.
        steps: Runs of like steps, one row each, columns as in `STEP_FIELDS`; replicas one after the other.
        late: End and length of the gaps that preemptions made.
        replicas: How many there are.
        recomputed: Tokens prefilled once more after preemptions.
        kv_peak: Largest share of the cache's room held; NaN where the room is not known.
        most_running: Most sequences running at once in a replica.
    """

    requests: Requests
    outcomes: Outcomes
    steps: FloatArray
    late: FloatArray
    replicas: int
    recomputed: int
    kv_peak: float
    most_running: int

    @property
    def ttft_s(self) -> FloatArray:
        """Time from arrival to the first token, by request."""
        return self.outcomes.first_token_s - self.requests.arrival_s

    @property
    def end_to_end_s(self) -> FloatArray:
        """Time from arrival to the last token, by request."""
        return self.outcomes.finish_s - self.requests.arrival_s

    @property
    def tpot_s(self) -> FloatArray:
        """Time per token after the first, by request; NaN for outputs of one token."""
        later = np.where(self.requests.output_tokens > 1, self.requests.output_tokens - 1.0, np.nan)
        return (self.outcomes.finish_s - self.outcomes.first_token_s) / later

    def summary(
        self,
        level: ServiceLevel | None = None,
        *,
        class_name: str | None = None,
        warm_up: float = WARM_UP,
        cool_down: float = COOL_DOWN,
    ) -> Summary:
        """The run in numbers, without its start and its end.

        Args:
            level: What a request must meet to count for goodput; without one every finished request does.
            class_name: A class of traffic: waiting, latencies, rates and goodput are then its own, gaps do
                not exist, and what belongs to the steps is of all classes.
            warm_up: Share of the requests left out at the start.
            cool_down: Share left out at the end.

        Raises:
            InputError: for shares that leave nothing.
            UnknownNameError: for a class that the run does not have.
        """
        window = self._window(
            float(require_range("warm_up", warm_up, 0, 0.9)),
            float(require_range("cool_down", cool_down, 0, 0.09)),
        )
        return _Measured(self, window, self._members(class_name)).summary(level or ServiceLevel())

    def _window(self, warm_up: float, cool_down: float) -> _Window:
        count = len(self.requests)
        first = int(warm_up * count)
        last = max(first, math.ceil((1 - cool_down) * count) - 1)
        start, end = self.requests.arrival_s[[first, last]].tolist()
        if end <= start:  # all at once
            end = float(self.outcomes.finish_s.max())
        return _Window(slice(first, last + 1), start, end)

    def _members(self, class_name: str | None) -> npt.NDArray[np.bool_] | None:
        if class_name is None:
            return None
        if class_name not in self.requests.names:
            told = f"the classes are {', '.join(self.requests.names)}"
            raise UnknownNameError("class", class_name, self.requests.names, told)
        return np.asarray(self.requests.class_index == self.requests.names.index(class_name))


class _Measured:
    """A result seen through its window."""

    def __init__(
        self, result: SimulationResult, window: _Window, members: npt.NDArray[np.bool_] | None
    ) -> None:
        self.result, self.window, self.members = result, window, members
        self.step = dict(zip(STEP_FIELDS, result.steps.T, strict=True))
        lasted = self.step["steps"] * self.step["step_s"]
        start = np.maximum(self.step["start_s"], window.start_s)
        end = np.minimum(self.step["start_s"] + lasted, window.end_s)
        self.seconds = np.maximum(end - start, 0.0)
        self.inside = self.seconds / lasted
        self.at = window.place(start)

    def summary(self, level: ServiceLevel) -> Summary:
        result = self.result
        growth = self._growth_per_s()
        stays = self._stays()
        settled = lasts_long_enough(stays) or (growth > 0 and self._falls_behind())
        steady = not (settled and growth)
        count, rate = self._arrivals()
        decoding, decoding_error = self._over_time("decoding")
        running, running_error = self._over_time("running")
        step = {name: float(self.inside @ column) for name, column in self.step.items()}
        served = float((self.inside * self.step["steps"]) @ self.step["decoding"])
        drafted = float((self.inside * self.step["steps"] * self.step["decoding"]) @ self.step["k"])
        spreads = self._spreads()
        lasting = {"tpot_s": spreads["tpot_s"], "gap_s": self._gaps()}
        waiting = {name: spreads[name] if steady else no_spread() for name in ("wait_s", "ttft_s")}
        waiting["end_to_end_s"] = spreads["end_to_end_s"] if steady else no_spread()
        return Summary(
            requests=count,
            rate_per_s=rate,
            settled=settled,
            steady=steady,
            growth_per_s=growth,
            stays=stays,
            **waiting,
            **lasting,
            token_s=self._token_s(),
            decoding=decoding,
            decoding_error=decoding_error,
            running=running,
            running_error=running_error,
            utilisation=float(self.seconds.sum()) / (self.window.span_s * result.replicas),
            tokens_per_s=(step["decoded"] + step["firsts"]) / self.window.span_s,
            requests_per_s=self._finished_per_s(),
            goodput_per_s=rate * self._share_meeting(level) if steady else math.nan,
            tokens_per_step=_ratio(step["decoded"], served),
            k_mean=_ratio(drafted, served),
            prefill_tokens_per_step=_ratio(step["prefill_tokens"], step["steps"]),
            preemptions=int(result.outcomes.preemptions.sum()),
            recomputed_tokens=result.recomputed,
            kv_peak=result.kv_peak,
            most_running=result.most_running,
        )

    def _growth_per_s(self) -> float:
        """Rise of the requests in the system; 0 where the second half, behind any filling, shows none."""
        window, arrivals, ends = self.window, self.result.requests.arrival_s, self.result.outcomes.finish_s
        middle = (window.start_s + window.end_s) / 2
        lasting = growth_per_s(arrivals, ends, middle, window.end_s)
        return growth_per_s(arrivals, ends, window.start_s, window.end_s) if lasting else 0.0

    def _stays(self) -> float:
        """Mean stays of requests of any class that the window lasts, without their wait for a place."""
        outcomes = self.result.outcomes
        stays_s = (outcomes.finish_s - outcomes.admitted_s)[self.window.requests]
        return self.window.span_s / max(float(stays_s.mean()), 1e-12)

    def _falls_behind(self) -> bool:
        """Whether the second half of the window shows overload, though the window is short."""
        requests, window = self.result.requests, self.window
        edges = window.start_s + window.span_s * np.array([0.5, 0.75, 1.0])
        begin, lasted = self.step["start_s"], self.step["steps"] * self.step["step_s"]
        tokens_per_s = (self.step["decoded"] + self.step["firsts"]) / lasted
        spans = np.minimum(begin + lasted, edges[1:, None]) - np.maximum(begin, edges[:-1, None])
        delivered = np.maximum(spans, 0) @ tokens_per_s / np.diff(edges)
        times = np.linspace(edges[:-1], edges[1:], 100)
        inside = in_system(requests.arrival_s, self.result.outcomes.finish_s, times).mean(axis=0)
        wanted = float(requests.output_tokens[window.requests].sum()) / window.span_s
        return falls_behind(delivered, inside, wanted)

    def _arrivals(self) -> tuple[int, float]:
        """Requests measured, and their rate: the first of them opens the window and is not counted in it."""
        chosen = self._of_requests(np.ones(len(self.result.requests)))
        return int(chosen.sum()), float(max(1.0, chosen.size - 1) / self.window.span_s * chosen.mean())

    def _of_requests(self, values: FloatArray) -> FloatArray:
        """Values of the requests measured; 0 stands for no request of the class."""
        kept = values if self.members is None else np.where(self.members, values, 0.0)
        return kept[self.window.requests]

    def _chosen(self, values: FloatArray) -> FloatArray:
        """Values of the requests measured, NaN for those of other classes."""
        kept = values if self.members is None else np.where(self.members, values, np.nan)
        return kept[self.window.requests]

    def _spreads(self) -> dict[str, Spread]:
        result = self.result
        columns = {
            "wait_s": result.outcomes.admitted_s - result.requests.arrival_s,
            "ttft_s": result.ttft_s,
            "tpot_s": result.tpot_s,
            "end_to_end_s": result.end_to_end_s,
        }
        return {name: spread_of(self._chosen(values)) for name, values in columns.items()}

    def _gaps(self) -> Spread:
        """Every step brings tokens to every decoding sequence; a preemption makes a gap of its own."""
        if self.members is not None:
            return no_spread()
        begun = self.window.holds(self.step["start_s"]) & (self.step["decoding"] > 0)
        ends, lengths = self.result.late.T
        late = self.window.holds(ends)
        weights = (self.step["steps"] * self.step["decoding"])[begun]
        return spread_of(
            np.concatenate([self.step["step_s"][begun], lengths[late]]),
            np.concatenate([weights, np.ones(int(late.sum()))]),
            self.window.place(np.concatenate([self.step["start_s"][begun], ends[late]])),
        )

    def _over_time(self, name: str) -> tuple[float, float]:
        return time_mean(self.step[name], self.seconds, self.at, self.window.span_s)

    def _token_s(self) -> float:
        outcomes, later = self.result.outcomes, self.result.requests.output_tokens - 1
        seconds = self._of_requests(outcomes.finish_s - outcomes.first_token_s)
        return _ratio(float(seconds.sum()), float(self._of_requests(later.astype(float)).sum()))

    def _finished_per_s(self) -> float:
        finished = self.window.holds(self.result.outcomes.finish_s)
        mine = finished if self.members is None else finished & self.members
        return float(mine.sum()) / self.window.span_s

    def _share_meeting(self, level: ServiceLevel) -> float:
        """Share of the requests measured that meet the level; an output of one token meets any TPOT."""
        result = self.result
        meeting = np.ones(len(result.requests), dtype=bool)
        for limit, values in (
            (level.ttft_s, result.ttft_s),
            (level.tpot_s, np.nan_to_num(result.tpot_s)),
            (level.gap_s, result.outcomes.longest_gap_s),
            (level.end_to_end_s, result.end_to_end_s),
        ):
            if limit is not None:
                meeting &= values <= limit
        counted = self._of_requests(np.ones(meeting.size))
        return _ratio(float(counted @ meeting[self.window.requests]), float(counted.sum()))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
