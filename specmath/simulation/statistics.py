"""What a simulated run shows behind its start: quantiles with their errors, means over time, overload.

A run is measured over a window of arrivals. Errors are those of batch means: the window is cut into batches
that are long beside the memory of the queue, and the spread of their answers tells the error of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

import numpy as np

from specmath.checks import FloatArray, require_range
from specmath.errors import InputError
from specmath.results import Cell

WARM_UP = 0.1
"""Share of the requests left out at the start."""
COOL_DOWN = 0.05
"""Share left out at the end, behind which no more arrive."""
BATCHES = 20
"""Batches of batch means; the error of an error is then a sixth of it."""
LEAST_PER_BATCH = 10
"""Requests of a batch below which no error is told."""
LEVELS = (0.5, 0.95, 0.99)
_TREND_BATCHES = 10
_TREND_RANK = 0.8
"""Rank correlation with time from which the number of requests in the system is said to rise."""
_GROWTH_SHARE = 0.005
"""Share of the arrivals that the rise must leave behind to be overload."""
_SAMPLES = 100
_LEAST_STAYS = 10.0
"""Mean stays that a run must last for its trend to tell more than that the machine was filling."""
_BEHIND, _YIELD, _MORE = 0.8, 0.25, 1.1
"""A short run is overload all the same where less than the first of what arrives is delivered, though the
number of requests rose by the third, and where more of them raised the delivery by less than the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevel:
    """What a request must meet to count for goodput; None where nothing is asked.

    Attributes:
        ttft_s: Time to first token at most.
        tpot_s: Mean time per token after the first at most.
        gap_s: Longest time between two deliveries at most.
        end_to_end_s: Time to the last token at most.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    gap_s: float | None = None
    end_to_end_s: float | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None:
                require_range(field.name, value, above=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A quantity over requests, or over gaps between deliveries; NaN where there is none.

    Each `_error` is one standard error by batch means.
    """

    mean: float
    p50: float
    p95: float
    p99: float
    mean_error: float
    p50_error: float
    p95_error: float
    p99_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A run in numbers, all over its window; NaN where a value does not exist.

    Attributes:
        requests: Requests in the window.
        rate_per_s: Their rate of arrival.
        settled: Whether the run was long enough to tell steady from overload. In one that was not, the
            machine may still have been filling, and figures are those of its requests alone.
        steady: Whether the number of requests in the system stood still, or its rise tells nothing. It did
            not at overload; then waiting, TTFT, end-to-end time and goodput would only tell how long the run
            was, and are NaN.
        growth_per_s: Rise of the number of requests in the system per second, 0 where there is none.
        stays: Mean stays that the window lasted, from admission to the last token.
        wait_s: From arrival to admission.
        ttft_s: From arrival to the first token.
        tpot_s: From the first token to the last over the tokens after the first, of each request.
        token_s: The same over all tokens, so that a long output counts for more than a short one.
        gap_s: Between two deliveries to a request: inter-token latency as a reader sees it.
        end_to_end_s: From arrival to the last token.
        decoding: Mean decoding sequences over time, all replicas together, with its error.
        running: The same with those whose prompt is being read.
        utilisation: Share of the time in which a step runs, a mean over the replicas.
        tokens_per_s: Tokens delivered.
        requests_per_s: Requests finished.
        goodput_per_s: Requests that meet the service level.
        tokens_per_step: Mean tokens that a step delivers to a decoding sequence. It is below the acceptance
            length: what the last step of a request yields beyond its end is lost.
        k_mean: Mean k over the steps of decoding sequences.
        prefill_tokens_per_step: Mean prompt tokens of a step.
        preemptions: Times that a request was put back, over the whole run.
        recomputed_tokens: Tokens prefilled once more for it.
        kv_peak: Largest share of the cache's room held; NaN where the room is not known.
        most_running: Most sequences running at once in a replica.
    """

    requests: int
    rate_per_s: float
    settled: bool
    steady: bool
    growth_per_s: float
    stays: float
    wait_s: Spread
    ttft_s: Spread
    tpot_s: Spread
    token_s: float
    gap_s: Spread
    end_to_end_s: Spread
    decoding: float
    decoding_error: float
    running: float
    running_error: float
    utilisation: float
    tokens_per_s: float
    requests_per_s: float
    goodput_per_s: float
    tokens_per_step: float
    k_mean: float
    prefill_tokens_per_step: float
    preemptions: int
    recomputed_tokens: int
    kv_peak: float
    most_running: int

    @property
    def state(self) -> str:
        """steady, overload, or unsettled: too short to tell."""
        return ("steady" if self.steady else "overload") if self.settled else "unsettled"

    @property
    def requests_to_settle(self) -> int:
        """Requests of a run that would be long enough, if stays do not grow."""
        return math.ceil(1.5 * _LEAST_STAYS * self.requests / max(self.stays, 1e-3))

    def as_row(self) -> dict[str, Cell]:
        """One flat row, `ttft_p95_s` for `ttft_s.p95`; what does not exist is None."""
        row: dict[str, Cell] = {}
        for name, value in asdict(self).items():
            if isinstance(value, Mapping):
                stem = name.removesuffix("_s")
                row |= {f"{stem}_{part}_s": _cell(number) for part, number in value.items()}
            else:
                row[name] = _cell(value)
        return row

    @classmethod
    def from_row(cls, row: Mapping[str, Cell]) -> Summary:
        """The summary of such a row.

        Raises:
            InputError: where a value is missing or of another kind.
        """
        values: dict[str, Spread | float | int | bool] = {}
        for field in fields(cls):
            if field.type == "Spread":
                stem = field.name.removesuffix("_s")
                parts = {one.name: _float(row, f"{stem}_{one.name}_s") for one in fields(Spread)}
                values[field.name] = Spread(**parts)
            elif field.type == "float":
                values[field.name] = _float(row, field.name)
            else:
                values[field.name] = _whole(row, field.name, field.type == "bool")
        return cls(**values)  # type: ignore[arg-type]  # each by the type of its field


def spread_of(values: FloatArray, weights: FloatArray | None = None, at: FloatArray | None = None) -> Spread:
    """Mean and quantiles of values in order of time, NaN left out, with errors by batch means.

    Args:
        values: One value a request, or a value that several gaps share.
        weights: How many share it; 1 each where None.
        at: Position of each value in the window, from 0 to 1; spaced evenly where None.
    """
    there = ~np.isnan(values)
    shares = np.ones(values.size) if weights is None else weights
    places = np.arange(values.size) / max(1, values.size) if at is None else at
    values, shares, places = values[there], shares[there], places[there]
    whole = _statistics(values, shares)
    errors = np.full(whole.size, np.nan)
    if values.size >= BATCHES * LEAST_PER_BATCH:
        which = np.clip((places * BATCHES).astype(np.int64), 0, BATCHES - 1)
        parts = [_statistics(values[which == one], shares[which == one]) for one in range(BATCHES)]
        errors = _error(np.array(parts))
    names = ("mean", "p50", "p95", "p99")
    told = dict(zip(names, whole.tolist(), strict=True))
    told |= {f"{name}_error": error for name, error in zip(names, errors.tolist(), strict=True)}
    return Spread(**told)


def no_spread() -> Spread:
    """A quantity that does not exist."""
    return spread_of(np.empty(0))


def growth_per_s(arrival_s: FloatArray, finish_s: FloatArray, start_s: float, end_s: float) -> float:
    """Rise of the number of requests in the system per second from start to end; 0 where it is steady.

    It rises where its means over ten parts of the window climb in order, and by more than a hundredth or so
    of the arrivals, some requests, and three times the spread of a Poisson number.
    """
    times = start_s + (end_s - start_s) * (np.arange(_TREND_BATCHES * _SAMPLES) + 0.5) / (
        _TREND_BATCHES * _SAMPLES
    )
    inside = in_system(arrival_s, finish_s, times)
    means = inside.reshape(_TREND_BATCHES, _SAMPLES).mean(axis=1)
    order = np.arange(_TREND_BATCHES)
    centred = order - order.mean()
    rise = float(centred @ means / (centred @ centred)) * _TREND_BATCHES
    arrivals = np.searchsorted(arrival_s, end_s) - np.searchsorted(arrival_s, start_s)
    bar = max(10.0, _GROWTH_SHARE * float(arrivals), 3 * math.sqrt(float(means.mean())))
    rank = float(np.corrcoef(order, np.argsort(np.argsort(means)))[0, 1])
    return rise / (end_s - start_s) if rise > bar and rank >= _TREND_RANK else 0.0


def lasts_long_enough(stays: float) -> bool:
    """Whether a run of so many mean stays shows more than how the machine fills."""
    return stays >= _LEAST_STAYS


def falls_behind(delivered: FloatArray, inside: FloatArray, wanted: float) -> bool:
    """Whether a machine gives no more though more requests are there, and too little of what arrives.

    A machine that is filling delivers more with every request that joins; one at overload does not.

    Args:
        delivered: Tokens per second over the third and the fourth quarter of the run.
        inside: Mean requests in the system over both.
        wanted: Tokens per second that arrive.
    """
    more = float(inside[1] / max(inside[0], 1e-9))
    gained = float(delivered[1] / max(delivered[0], 1e-9))
    return bool(more > _MORE and delivered[1] < _BEHIND * wanted and gained - 1 < _YIELD * (more - 1))


def in_system(arrival_s: FloatArray, finish_s: FloatArray, times: FloatArray) -> FloatArray:
    """Requests that have come and not ended, at each time."""
    return np.asarray(np.searchsorted(arrival_s, times) - np.searchsorted(np.sort(finish_s), times))


def time_mean(values: FloatArray, seconds: FloatArray, at: FloatArray, span_s: float) -> tuple[float, float]:
    """Mean over time of a value that held for some seconds each, and its error by batch means.

    Args:
        values: The value, 0 in all time not covered.
        seconds: How long it held inside the window.
        at: Position in the window of that stretch, from 0 to 1.
        span_s: Length of the window.
    """
    which = np.clip((at * BATCHES).astype(np.int64), 0, BATCHES - 1)
    parts = np.bincount(which, values * seconds, BATCHES) / (span_s / BATCHES)
    return float(parts.mean()), float(_error(parts[:, None])[0])


def _error(parts: FloatArray) -> FloatArray:
    """Standard error of a mean of batches, one row each; NaN where a batch has no answer."""
    return np.asarray(parts.std(axis=0, ddof=1) / math.sqrt(len(parts)))


def _statistics(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Mean and the quantiles of `LEVELS`: the smallest value that so large a share does not exceed."""
    total = weights.sum()
    if not total:
        return np.full(1 + len(LEVELS), np.nan)
    order = np.argsort(values, kind="stable")
    below = weights[order].cumsum()
    places = np.searchsorted(below, np.array(LEVELS) * total)
    quantiles = values[order][np.minimum(places, values.size - 1)]
    return np.concatenate([[values @ weights / total], quantiles])


def _cell(value: Cell) -> Cell:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _float(row: Mapping[str, Cell], name: str) -> float:
    value = row.get(name, "missing")
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(name, f"must be a number or nothing, got {value!r}")
    return float(value)


def _whole(row: Mapping[str, Cell], name: str, flag: bool) -> int | bool:
    value = row.get(name, "missing")
    if not isinstance(value, bool if flag else int) or isinstance(value, bool) != flag:
        raise InputError(name, f"must be {'true or false' if flag else 'a whole number'}, got {value!r}")
    return value
