"""AIPerf: the export of a run, with totals and a pooled histogram, and its records of requests.

Rates are percentages. The plain acceptance length is a mean over requests; the one over steps is called
`spec_decode_token_weighted_acceptance_length`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Final

from specmath.engines.content import Format
from specmath.engines.spec_counts import added, count, mean, require_possible, tail_sums, total
from specmath.engines.telemetry import Load, ReportedRate, RequestCounts, Telemetry
from specmath.engines.values import mapping, objects, positive, text
from specmath.results import Advice

ENGINE: Final = "aiperf"
HISTOGRAM: Final = "pooled_spec_decode_acceptance_histogram"
TOTALS: Final = ("total_spec_decode_steps", "total_draft_tokens", "total_accepted_draft_tokens")
LENGTHS: Final = ("spec_decode_token_weighted_acceptance_length", "spec_decode_acceptance_length")
RATES: Final = ("spec_decode_overall_draft_acceptance_rate", "spec_decode_draft_acceptance_rate")
PER_REQUEST: Final = ("spec_decode_steps", "spec_decode_draft_tokens", "spec_decode_accepted_draft_tokens")
_NOTHING: Final[tuple[float, ...]] = ()

# ---------------------------------------------------------------- a run


def read_export(document: Any, source: str) -> list[Telemetry]:
    """Telemetry in the JSON export of a run."""
    holder = mapping(document)
    for key in ("metrics", "records"):  # the native report holds its metrics apart
        holder = {**mapping(holder.get(key)), **holder}
    plain = isinstance(holder.get(LENGTHS[1]), dict)  # as a number it is `vllm bench serve`'s
    if not plain and not holder.keys() & {HISTOGRAM, *TOTALS, LENGTHS[0], *RATES}:
        return []
    drafts, drafted, accepted = (_metric(holder, name) for name in TOTALS)
    histogram = _histogram(holder.get(HISTOGRAM))
    length = next((found for found in (_metric(holder, name) for name in LENGTHS) if found), None)
    told = drafts if drafts is not None else (sum(histogram) or None)
    return [
        require_possible(
            Telemetry(
                engine=ENGINE,
                version=text(holder.get("aiperf_version")),
                model=_model(holder),
                source=source,
                scope="requests",
                k=_longest(histogram, drafts, drafted),
                k_varies=_varies(histogram, drafts, drafted),
                drafts=told,
                drafted=drafted,
                accepted=accepted if accepted is not None else _accepted(histogram),
                histogram=histogram,
                accepted_at=tail_sums(histogram),
                acceptance_length=length if told is None and length and length >= 1 else None,
                reported_rate=_reported(holder),
                load=_load(holder),
                notes=_notes(holder, told),
            )
        )
    ]


def _metric(holder: Mapping[str, Any], name: str) -> float | None:
    """A metric, given as a number or as an object of statistics."""
    value = holder.get(name)
    for key in ("avg", "value"):
        if isinstance(value, dict) and key in value:
            value = value[key]
    return count(value)


def _histogram(value: Any) -> tuple[float, ...]:
    """Steps by accepted tokens, given as an object that leaves out what did not occur."""
    steps: dict[int, float] = {}
    for accepted, number in mapping(value).items():
        told = count(number)
        if told is None or not (accepted.isascii() and accepted.isdigit() and len(accepted) <= 3):
            return ()
        steps[int(accepted)] = told
    return tuple(steps.get(accepted, 0.0) for accepted in range(max(steps, default=-1) + 1))


def _accepted(histogram: tuple[float, ...]) -> float | None:
    return float(sum(depth * steps for depth, steps in enumerate(histogram))) if histogram else None


def _longest(histogram: tuple[float, ...], drafts: float | None, drafted: float | None) -> int | None:
    """Draft tokens of a step: their mean where whole, and at least what was accepted of one."""
    width = min(mean(drafted, drafts) or 0.0, 512.0)
    return max(len(histogram) - 1, -int(-width // 1)) or None if width or histogram else None


def _varies(histogram: tuple[float, ...], drafts: float | None, drafted: float | None) -> bool:
    width = mean(drafted, drafts)
    return width is not None and (width != round(width) or width < len(histogram) - 1)


def _model(holder: Mapping[str, Any]) -> str | None:
    endpoint = mapping(mapping(holder.get("input_config")).get("endpoint"))
    names = endpoint.get("model_names")
    return text(names[0]) if isinstance(names, list) and len(names) == 1 else None


def _reported(holder: Mapping[str, Any]) -> ReportedRate | None:
    rates = ((name, _metric(holder, name)) for name in RATES)
    name, percent = next(((name, rate) for name, rate in rates if rate is not None), ("", None))
    if percent is None:
        return None
    meaning = "accepted/drafted" if name == RATES[0] else "accepted/drafted, mean over requests"
    return ReportedRate(name=name, value=percent / 100, meaning=meaning)


def _load(holder: Mapping[str, Any]) -> Load:
    between = positive(_metric(holder, "inter_token_latency"))
    unit = mapping(holder.get("inter_token_latency")).get("unit", "ms")
    return Load(
        time_per_token_s=between / 1e3 if between is not None and unit == "ms" else None,
        tokens_per_s=positive(_metric(holder, "output_token_throughput")),
    )


def _notes(holder: Mapping[str, Any], drafts: float | None) -> tuple[Advice, ...]:
    if drafts == 0:
        return (
            Advice(
                code="no-data",
                text="the run had no verification step",
                remedy="see whether the server speculates, and returns per-request metrics",
            ),
        )
    if drafts is None and _metric(holder, LENGTHS[0]) is None:
        return (
            Advice(
                code="mean-over-requests",
                text="a mean over requests is all that the export tells: long ones weigh no more in it",
                remedy="export with AIPerf 0.13 or newer, which adds the totals",
            ),
        )
    return ()


# ---------------------------------------------------------------- records of requests


def read_records(document: Any, source: str) -> list[Telemetry]:
    """Telemetry in the records of requests, lines of JSON."""
    metrics = [mapping(entry.get("metrics")) for entry in objects(document)]
    requests = [request for request in map(_request, metrics) if request is not None]
    if not requests:
        return []
    full = all(request.histogram for request in requests)
    histogram = reduce(added, (request.histogram for request in requests), _NOTHING) if full else ()
    drafts, drafted = sum(one.drafts for one in requests), sum(one.drafted for one in requests)
    return [
        require_possible(
            Telemetry(
                engine=ENGINE,
                source=source,
                scope="requests",
                k=_longest(histogram, drafts, drafted),
                k_varies=_varies(histogram, drafts, drafted),
                drafts=drafts,
                drafted=drafted,
                accepted=total(one.accepted for one in requests),
                histogram=histogram,
                accepted_at=tail_sums(histogram),
                requests=tuple(requests),
            )
        )
    ]


def _request(metrics: Mapping[str, Any]) -> RequestCounts | None:
    drafts, drafted, accepted = (_metric(metrics, name) for name in PER_REQUEST)
    if not drafts or drafted is None or accepted is None:
        return None
    return RequestCounts(drafts=drafts, drafted=drafted, accepted=accepted)


FORMATS: Final = (
    Format(engine=ENGINE, name="AIPerf export", read_document=read_export),
    Format(engine=ENGINE, name="AIPerf records", read_document=read_records),
)
