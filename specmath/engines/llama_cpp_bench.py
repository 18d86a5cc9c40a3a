"""llama.cpp's benchmarks: no acceptance, but the time of a step by batch, and of a pass by its width."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from specmath.engines.spec_counts import count
from specmath.engines.telemetry import Telemetry
from specmath.engines.values import objects, positive
from specmath.results import Advice

ENGINE: Final = "llama.cpp"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Times of an engine without speculation: what verification costs, not what it accepts.

    Attributes:
        engine: The engine.
        source: File it was read from, fit to be printed.
        model: The model, where told.
        decode_s: Seconds of a decoding step, one token for each request, by batch.
        pass_s: Seconds of a pass over that many tokens of one request, by width: a verification of k draft
            tokens has the width k + 1.
        context: Mean tokens in the cache of a request meanwhile, where told.
    """

    engine: str
    source: str
    model: str | None
    decode_s: Mapping[int, float]
    pass_s: Mapping[int, float]
    context: float | None = None


def step_times(document: Any, source: str) -> StepTimes | None:
    """Times in the JSON of llama-batched-bench or llama-bench; None where it is neither's.

    Of several runs at one batch or width the median is taken.
    """
    rows = objects(document)
    batched = [row for row in rows if _is_batched(row)]
    plain = [row for row in rows if _is_plain(row)]
    if not batched and not plain:
        return None
    decode = [(_whole(row["pl"]), _each(row["t_tg"], row["tg"])) for row in batched]
    decode += [(1, _each(row["avg_ns"], row["n_gen"], 1e9)) for row in plain if positive(row["n_gen"])]
    widths = [row for row in plain if positive(row["n_prompt"]) and not positive(row["n_gen"])]
    models = {row.get("model_type") or row.get("model_filename") for row in plain}
    name = models.pop() if len(models) == 1 else None
    return StepTimes(
        engine=ENGINE,
        source=source,
        model=name if isinstance(name, str) else None,
        decode_s=_medians(decode),
        pass_s=_medians((_whole(row["n_prompt"]), _each(row["avg_ns"], 1, 1e9)) for row in widths),
        context=_context(batched),
    )


def read_benchmark(document: Any, source: str) -> list[Telemetry]:
    """A record that says why there is none: the benchmarks of llama.cpp do not speculate."""
    if step_times(document, source) is None:
        return []
    return [
        Telemetry(
            engine=ENGINE,
            source=source,
            scope="requests",
            notes=(
                Advice(
                    code="step-times-only",
                    text="the file holds times of steps and passes, and nothing on acceptance",
                    remedy="use it for the cost of verification, and take α from a server's metrics or log",
                ),
            ),
        )
    ]


def _is_batched(row: Mapping[str, Any]) -> bool:
    return all(positive(row.get(key)) for key in ("pl", "tg", "t_tg"))


def _is_plain(row: Mapping[str, Any]) -> bool:
    counted = count(row.get("n_prompt")) is not None and count(row.get("n_gen")) is not None
    return counted and positive(row.get("avg_ns")) is not None


def _whole(value: Any) -> int:
    return int(count(value) or 0)


def _each(time: Any, tokens: Any, per_second: float = 1.0) -> float | None:
    """Seconds of one of so many tokens."""
    times, steps = positive(time), positive(tokens)
    return times / steps / per_second if times is not None and steps is not None else None


def _medians(pairs: Iterable[tuple[int, float | None]]) -> dict[int, float]:
    runs: dict[int, list[float]] = {}
    for place, seconds in pairs:
        if place > 0 and seconds is not None:
            runs.setdefault(place, []).append(seconds)
    return {place: median(runs[place]) for place in sorted(runs)}


def _context(batched: Iterable[Mapping[str, Any]]) -> float | None:
    """Prompt and half of the generation, where all runs have the same."""
    contexts = {(count(row.get("pp")) or 0) + (count(row["tg"]) or 0) / 2 for row in batched}
    return contexts.pop() if len(contexts) == 1 else None
