"""TensorRT-LLM: iteration statistics as a JSON list, and Prometheus series per iteration and per request.

The list is the body of trtllm-serve's /metrics and of LLM.get_stats(), emptied by reading. Of the Prometheus
series `num_draft_tokens` and `num_accepted_tokens` count iterations, while `drafted_tokens` and
`accepted_tokens`, by position, count finished requests: no other engine counts drafts by their true length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import ceil
from statistics import fmean
from typing import Any, Final

from specmath.engines.content import Exposition, Format, Sample
from specmath.engines.spec_counts import added, count, counts, mean, require_possible, tail_sums, total
from specmath.engines.telemetry import Load, Telemetry
from specmath.engines.values import (
    by_model,
    by_position,
    mapping,
    mean_observed,
    objects,
    percentile,
    positive,
    summed,
)
from specmath.results import Advice

ENGINE: Final = "tensorrt-llm"
PREFIX: Final = "trtllm"
_NOTHING: Final[tuple[float, ...]] = ()

# ---------------------------------------------------------------- iteration statistics


@dataclass(frozen=True, slots=True)
class _Iteration:
    """One iteration of one attention-DP rank, with the speculation counted once for all ranks."""

    row: Mapping[str, Any]
    spec: Mapping[str, Any]

    @property
    def drafts(self) -> float:
        return count(self.spec.get("numRequestsWithDraftTokens")) or 0.0

    @property
    def drafted(self) -> float:
        return count(self.spec.get("numDraftTokens")) or 0.0

    @property
    def accepted(self) -> float:
        return count(self.spec.get("numAcceptedTokens")) or 0.0

    @property
    def batching(self) -> Mapping[str, Any]:
        return mapping(self.row.get("inflightBatchingStats"))

    @property
    def generating(self) -> float:
        return count(self.batching.get("numGenRequests")) or 0.0

    @property
    def decodes_alone(self) -> bool:
        return self.generating > 0 and not count(self.batching.get("numContextRequests"))


def read_iterations(document: Any, source: str) -> list[Telemetry]:
    """Telemetry of iteration statistics: one list, several readings one after the other, or lines."""
    rows = [row for row in objects(document) if _is_iteration(row)]
    if not rows:
        return []
    iterations = [_Iteration(row, mapping(row.get("specDecodingStats"))) for row in rows]
    verifying = [one for one in iterations if one.drafts and one.drafted and not _is_copy(one.row)]
    widths = {one.drafted / one.drafts for one in verifying}
    return [
        require_possible(
            Telemetry(
                engine=ENGINE,
                source=source,
                scope="intervals",
                k=ceil(min(max(widths), 512) - 1e-9) if widths else None,
                k_varies=len(widths) > 1 or any(width != round(width) for width in widths),
                drafts=sum(one.drafts for one in verifying),
                drafted=sum(one.drafted for one in verifying),
                accepted=sum(one.accepted for one in verifying),
                load=_iteration_load(iterations, verifying),
                notes=_iteration_notes(iterations, verifying),
            )
        )
    ]


def _is_iteration(row: Mapping[str, Any]) -> bool:
    return "iterLatencyMS" in row and bool(
        row.keys() & {"iter", "numActiveRequests", "inflightBatchingStats", "specDecodingStats"}
    )


def _is_copy(row: Mapping[str, Any]) -> bool:
    """Whether an attention-DP rank repeats what rank 0 says of speculation."""
    return bool(count(row.get("attentionDpRank")))


def _iteration_load(iterations: Sequence[_Iteration], verifying: Sequence[_Iteration]) -> Load:
    decoding = [one for one in verifying or iterations if one.decodes_alone]
    seconds = [positive(one.row.get("iterLatencyMS")) for one in decoding]
    drafting = [positive(one.spec.get("iterLatencyMS")) for one in verifying]
    running = _by_iteration(iterations)
    cache = mapping(iterations[-1].row.get("kvCacheStats"))
    reused, missed = count(cache.get("reusedBlocks")), count(cache.get("missedBlocks"))
    block = positive(cache.get("tokensPerBlock"))
    told = reused is not None and missed is not None and block is not None
    return Load(
        running=fmean(running) if running else None,
        running_p95=percentile(Counter(running), 0.95),
        waiting=_mean(count(one.row.get("numQueuedRequests")) for one in iterations),
        cache_usage=_mean(_cache_share(one) for one in iterations),
        prompt_tokens=total(count(one.batching.get("numCtxTokens")) for one in iterations),
        prefix_queries=((reused or 0) + (missed or 0)) * (block or 0) if told else None,
        prefix_hits=(reused or 0) * (block or 0) if told else None,
        step_s=_milli(_mean(seconds)),
        draft_s=_milli(_mean(drafting)),
    )


def _by_iteration(iterations: Sequence[_Iteration]) -> list[float]:
    """Requests that generate in an iteration, over all attention-DP ranks; none where none does."""
    running: dict[object, float] = {}
    for place, one in enumerate(iterations):
        number = count(one.row.get("iter")) if one.row.get("attentionDpRank") is not None else None
        place_of = ("row", place) if number is None else ("iteration", number)
        running[place_of] = running.get(place_of, 0.0) + one.generating
    return [requests for requests in running.values() if requests]


def _cache_share(one: _Iteration) -> float | None:
    blocks = mapping(one.row.get("kvCacheStats"))
    return mean(count(blocks.get("usedNumBlocks")), count(blocks.get("maxNumBlocks")))


def _mean(values: Any) -> float | None:
    told = [value for value in values if value is not None]
    return fmean(told) if told else None


def _milli(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def _iteration_notes(iterations: Sequence[_Iteration], verifying: Sequence[_Iteration]) -> tuple[Advice, ...]:
    notes: list[Advice] = []
    if not verifying:
        notes.append(
            Advice(
                code="no-data",
                text=f"none of {len(iterations)} iterations verified a draft token",
                remedy="set speculative_config, and read the statistics while requests are decoded",
            )
        )
    generating = [one for one in iterations if one.generating and not _is_copy(one.row)]
    off = sum(not one.drafts for one in generating)
    if verifying and off:
        notes.append(
            Advice(
                code="steps-without-draft",
                text=f"{off} of {len(generating)} decoding iterations drafted nothing and are left out",
                remedy="see draft_len_schedule, max_concurrency and acceptance_rate_threshold",
            )
        )
    dropped = max((count(one.row.get("statsDroppedFrames")) or 0.0 for one in iterations), default=0.0)
    if dropped:
        notes.append(
            Advice(
                code="statistics-dropped",
                text=f"{dropped:.0f} iterations were dropped before they were read: the engine keeps 1000",
                remedy="read /metrics more often",
            )
        )
    return tuple(notes)


# ---------------------------------------------------------------- recorded histograms


def read_histograms(document: Any, source: str) -> list[Telemetry]:
    """Telemetry of the files that TLLM_DFLASH_ACCEPT_STATS_DIR makes, one per rank."""
    recorded = [counts(entry.get("accepted_draft_hist")) for entry in objects(document)]
    ranks = dict.fromkeys(one for one in recorded if one)  # tensor-parallel ranks record the same
    histogram = reduce(added, ranks, _NOTHING)
    drafts = sum(histogram)
    if not drafts:
        return []
    return [
        Telemetry(
            engine=ENGINE,
            source=source,
            scope="requests",
            k=len(histogram) - 1 or None,
            drafts=drafts,
            accepted=sum(accepted * steps for accepted, steps in enumerate(histogram)),
            accepted_at=tail_sums(histogram),
            histogram=tuple(histogram),
        )
    ]


# ---------------------------------------------------------------- Prometheus


def read_metrics(exposition: Exposition) -> list[Telemetry]:
    """Telemetry of each model that a TensorRT-LLM exposition speaks of."""
    return [
        require_possible(_model_telemetry(exposition, model, samples))
        for model, samples in by_model(exposition, PREFIX).items()
    ]


def _model_telemetry(exposition: Exposition, model: str | None, samples: Sequence[Sample]) -> Telemetry:
    drafted_at = by_position(samples, "spec_decode_drafted_tokens_total", "token_position")
    finished = positive(sum(drafted_at)) is not None
    accepted_at = by_position(samples, "spec_decode_accepted_tokens_total", "token_position")
    drafted = summed(samples, "spec_decode_num_draft_tokens_total")
    accepted = summed(samples, "spec_decode_num_accepted_tokens_total")
    used = tuple(value for value in drafted_at if value)
    return Telemetry(
        engine=ENGINE,
        version=exposition.version,
        model=model,
        source=exposition.source,
        scope=exposition.scope,
        k=len(used) or None,
        k_varies=len(set(used)) > 1,
        drafts=used[0] if finished else 0.0 if drafted == 0 else None,
        drafted=sum(used) if finished else drafted,
        accepted=sum(accepted_at) if finished else accepted,
        accepted_at=(*accepted_at, *[0.0] * len(used))[: len(used)] if finished else (),
        drafted_at=used if finished else (),
        generated=summed(samples, "generation_tokens_total"),
        load=_metrics_load(samples),
        notes=exposition.notes + _metrics_notes(drafted, accepted, finished=finished),
    )


def _metrics_load(samples: Sequence[Sample]) -> Load:
    step_s = positive(summed(samples, "iteration_latency_seconds"))
    overhead = summed(samples, "spec_decode_draft_overhead")
    return Load(
        running=summed(samples, "num_generation_requests"),
        waiting=summed(samples, "num_requests_waiting"),
        cache_usage=summed(samples, "kv_cache_utilization"),
        prompt_tokens=summed(samples, "prompt_tokens_total"),
        step_s=step_s,
        draft_s=step_s * overhead if step_s and overhead and overhead < 1 else None,
        time_per_token_s=mean_observed(samples, "time_per_output_token_seconds"),
    )


def _metrics_notes(drafted: float | None, accepted: float | None, *, finished: bool) -> tuple[Advice, ...]:
    if finished:
        running = (
            f"; with those that run the engine counts {accepted or 0:.0f} of {drafted:.0f}" if drafted else ""
        )
        return (
            Advice(
                code="finished-requests",
                text=f"the counts by position are those of finished requests{running}",
                remedy="let many requests finish between two readings",
            ),
        )
    if drafted:
        return (
            Advice(
                code="drafts-unknown",
                text="the engine counts drafted and accepted tokens, but no drafts: k must be known",
                remedy="give --k, or start the server with return_perf_metrics for counts by position",
            ),
        )
    return (
        Advice(
            code="no-data",
            text="no series counts a draft token: speculation is off, or the version is too old",
            remedy="read the iteration statistics, /metrics with enable_iter_perf_stats, which 1.1 has too",
        ),
    )


FORMATS: Final = (
    Format(engine=ENGINE, name="TensorRT-LLM iteration statistics", read_document=read_iterations),
    Format(engine=ENGINE, name="TensorRT-LLM accept statistics", read_document=read_histograms),
    Format(engine=ENGINE, name="TensorRT-LLM Prometheus metrics", read_exposition=read_metrics),
)
