"""vLLM's JSON: per-request metrics in responses, results of `vllm bench serve`, and `LLM.get_metrics()`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from specmath.engines.content import Exposition, Sample
from specmath.engines.spec_counts import MAX_POSITIONS, added, count, counts, tail_sums
from specmath.engines.synthetic_load import synthetic_notes
from specmath.engines.telemetry import Load, ReportedRate, RequestCounts, Telemetry
from specmath.engines.vllm_metrics import read_exposition
from specmath.results import Advice

_REQUEST_KEYS: Final = ("num_spec_steps", "num_draft_tokens", "num_accepted_draft_tokens")
MAX_STEPS: Final = 10_000_000
"""Most steps of one request that are listed one by one."""
_BENCH_KEYS: Final = ("total_output_tokens", "mean_tpot_ms", "tokenizer_id", "model_id")


def read_document(document: Any, source: str) -> list[Telemetry]:
    """Telemetry of a parsed vLLM document, or of the objects of a JSONL file; empty for another engine's."""
    entries = document if isinstance(document, list) else [document]
    tables = [entry for entry in entries if isinstance(entry, dict)]
    if samples := _samples(tables):
        return read_exposition(Exposition(samples=tuple(samples), source=source))
    if runs := [_bench(table, source) for table in tables if _is_bench(table)]:
        return runs
    return _requests(document, source)


def _samples(metrics: list[dict[str, Any]]) -> list[Sample]:
    """The records of `LLM.get_metrics()` as samples; empty where the tables are something else."""
    if not any("vllm" in str(table.get("name", ""))[:20] for table in metrics):
        return []
    found: list[Sample] = []
    for table in metrics:
        name, labels = table.get("name"), table.get("labels")
        if isinstance(name, str) and isinstance(labels, dict | None):
            texts = {str(key): str(value) for key, value in (labels or {}).items()}
            found += (Sample(*sample) for sample in _values(name, texts, table))
    return found


def _values(
    name: str, labels: dict[str, str], table: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, str], float]]:
    plain = (("", "value"), ("_sum", "sum"), ("_count", "count"))
    for suffix, key in plain:
        value = table.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300:
            yield name + suffix, labels, float(value)
    for position, value in enumerate(counts(table.get("values"))):
        yield name, {**labels, "position": str(position)}, value


def _is_bench(table: Mapping[str, Any]) -> bool:
    return "spec_decode_num_drafts" in table or (
        all(key in table for key in _BENCH_KEYS) and "accept_length" not in table
    )


def _bench(table: Mapping[str, Any], source: str) -> Telemetry:
    """One run of `vllm bench serve`: its rate is in percent, its positions are shares of the drafts."""
    drafts, drafted = count(table.get("spec_decode_num_drafts")), count(table.get("spec_decode_draft_tokens"))
    shares = counts(table.get("spec_decode_per_position_acceptance_rates"))
    percent, model = count(table.get("spec_decode_acceptance_rate")), table.get("model_id")
    output, completed = count(table.get("total_output_tokens")), count(table.get("completed"))
    rate = ReportedRate(
        name="spec_decode_acceptance_rate", value=(percent or 0) / 100, meaning="accepted/drafted"
    )
    return Telemetry(
        engine="vllm",
        version="0.14.0 or newer" if drafts is not None else None,
        model=model if isinstance(model, str) else None,
        source=source,
        scope="difference",
        k=len(shares) or None,
        k_varies=bool(shares and drafts and drafted is not None and drafted < len(shares) * drafts - 0.5),
        drafts=drafts,
        drafted=drafted,
        accepted=count(table.get("spec_decode_accepted_tokens")),
        accepted_at=tuple(_whole(share * drafts) for share in shares) if drafts is not None else shares,
        acceptance_length=count(table.get("spec_decode_acceptance_length")),
        reported_rate=rate if percent is not None else None,
        generated=output - completed if output is not None and completed is not None else None,
        steps=_gaps(table.get("itls")),
        load=_bench_load(table, completed),
        notes=(
            *(() if drafts is not None else (_nothing_drafted(),)),
            *synthetic_notes(
                table.get("dataset_name"),
                requests=completed,
                prompt_tokens=count(table.get("total_input_tokens")),
                output_tokens=output,
            ),
        ),
    )


def _whole(value: float) -> float:
    """A count that went through a division: the whole number beside it."""
    return float(round(value)) if abs(value - round(value)) < 1e-6 * max(1.0, value) else value


def _gaps(waits: Any) -> float | None:
    """Gaps between stream chunks of all requests, saved with --save-detailed: one a step."""
    if not isinstance(waits, list) or not all(isinstance(one, list) for one in waits):
        return None
    return float(sum(map(len, waits)))


def _bench_load(table: Mapping[str, Any], completed: float | None) -> Load:
    def seconds(key: str) -> float | None:
        value = count(table.get(key))
        return value / 1000 if value else None

    latency, duration = seconds("mean_e2el_ms"), count(table.get("duration"))
    by_latency = completed * latency / duration if completed and latency and duration else None
    return Load(
        running=count(table.get("max_concurrency")) or by_latency,
        prompt_tokens=count(table.get("total_input_tokens")),
        step_s=seconds("mean_itl_ms"),
        time_per_token_s=seconds("mean_tpot_ms"),
        tokens_per_s=count(table.get("output_throughput")),
    )


def _nothing_drafted() -> Advice:
    text = "the benchmark saw no draft token: speculation is off, or metrics could not be read"
    return Advice(code="speculation-off", text=text, remedy="start the server with --speculative-config")


@dataclass(frozen=True, slots=True)
class _Request:
    """The speculation metrics of one request, checked."""

    counts: RequestCounts
    k: int
    drafted_at: tuple[float, ...]
    model: str | None
    generated: float | None


def _requests(document: Any, source: str) -> list[Telemetry]:
    """Requests pooled by model. A stream's chunks repeat an id, so the last of an id counts."""
    latest: dict[str, _Request] = {}
    broken = 0
    for number, (metrics, response) in enumerate(_metrics(document)):
        request = _request(metrics, response)
        if request is None:
            broken += 1
        else:
            latest[_id_of(response) or f"#{number}"] = request
    models = dict.fromkeys(request.model for request in latest.values())
    notes = (_broken(broken),) if broken else ()
    return [
        _pooled([request for request in latest.values() if request.model == model], model, source, notes)
        for model in models
    ]


def _metrics(document: Any) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Every table of speculation metrics in the document, with the response around it."""
    waiting: list[tuple[Any, Mapping[str, Any]]] = [(document, {})]
    while waiting:
        value, response = waiting.pop()
        if isinstance(value, list):
            waiting.extend((entry, response) for entry in reversed(value) if isinstance(entry, list | dict))
        elif isinstance(value, dict):
            if all(key in value for key in _REQUEST_KEYS):
                yield value, response
                continue
            inner = value if "id" in value or "usage" in value or "model" in value else response
            waiting.extend(
                (entry, inner) for entry in reversed(value.values()) if isinstance(entry, list | dict)
            )


def _id_of(response: Mapping[str, Any]) -> str | None:
    name = response.get("id")
    return name if isinstance(name, str) and name else None


def _request(metrics: Mapping[str, Any], response: Mapping[str, Any]) -> _Request | None:
    steps, drafted, accepted = (count(metrics.get(key)) for key in _REQUEST_KEYS)
    if steps is None or drafted is None or accepted is None or accepted > drafted or steps > drafted:
        return None
    histogram = counts(metrics.get("acceptance_histogram"))
    if histogram and (sum(histogram) != steps or sum(tail_sums(histogram)) != accepted):
        return None
    model, usage = response.get("model"), response.get("usage")
    k = count(metrics.get("num_spec_tokens")) or max(len(histogram) - 1, 0)
    return _Request(
        RequestCounts(drafts=steps, drafted=drafted, accepted=accepted, histogram=histogram),
        int(min(k, MAX_POSITIONS)),
        _drafted_at(counts(metrics.get("per_step_drafted"), most=MAX_STEPS), steps),
        model if isinstance(model, str) else None,
        count(usage.get("completion_tokens")) if isinstance(usage, dict) else None,
    )


def _drafted_at(by_step: tuple[float, ...], steps: float) -> tuple[float, ...]:
    """Drafts that held at least 1, 2, … tokens; empty where steps are not listed one by one."""
    drafts = [int(tokens) for tokens in by_step if tokens >= 1]
    if len(drafts) != steps or not drafts or max(drafts) > MAX_POSITIONS:
        return ()
    histogram = [0.0] * (max(drafts) + 1)
    for tokens in drafts:
        histogram[tokens] += 1
    return tail_sums(histogram)


def _pooled(requests: list[_Request], model: str | None, source: str, notes: tuple[Advice, ...]) -> Telemetry:
    told = [request.counts for request in requests if request.counts.drafts]
    drafts, drafted = sum(one.drafts for one in told), sum(one.drafted for one in told)
    complete = all(one.histogram for one in told)
    histogram = _summed(one.histogram for one in told) if complete else ()
    k = max((request.k for request in requests), default=0)
    listed = all(request.drafted_at for request in requests if request.counts.drafts)
    generated, steps = _all_steps(requests)
    base = Telemetry(engine="vllm", version="0.29.0 or newer", model=model, source=source, scope="requests")
    return replace(
        base,
        k=k or None,
        k_varies=bool(k) and drafted < k * drafts - 0.5,
        drafts=float(drafts),
        drafted=float(drafted),
        accepted=float(sum(one.accepted for one in told)),
        accepted_at=tail_sums(histogram),
        drafted_at=_summed(request.drafted_at for request in requests) if listed else (),
        histogram=histogram,
        requests=tuple(told),
        generated=generated,
        steps=steps,
        notes=notes,
    )


def _summed(lists: Iterable[tuple[float, ...]]) -> tuple[float, ...]:
    summed: tuple[float, ...] = ()
    for values in lists:
        summed = added(summed, values)
    return summed


def _all_steps(requests: list[_Request]) -> tuple[float | None, float | None]:
    """Tokens after the first, and the steps that made them: each yields one token more than it accepts."""
    if any(request.generated is None for request in requests):
        return None, None
    generated = sum(max((request.generated or 0) - 1, 0) for request in requests)
    steps = generated - sum(request.counts.accepted for request in requests)
    if steps < sum(request.counts.drafts for request in requests):  # tokens beyond a stop were counted
        return generated, None
    return generated, steps


def _broken(number: int) -> Advice:
    text = (
        f"the metrics of {number} request{'s' if number > 1 else ''} contradict themselves and were left out"
    )
    return Advice(code="requests-left-out", text=text, remedy="take the responses as the server gave them")
