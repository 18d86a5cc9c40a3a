"""llama.cpp: `timings` in responses, /metrics, and what its speed-bench client saves.

Responses count drafted and accepted tokens, but no drafts; where nothing was drafted they count neither. A
pass of the target yields the accepted tokens and one more, so predicted − accepted passes were made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, Final

from specmath.engines.content import Exposition, Format, Sample
from specmath.engines.llama_cpp_bench import read_benchmark
from specmath.engines.llama_cpp_lines import drafts_unknown
from specmath.engines.llama_cpp_log import LlamaCppLog
from specmath.engines.spec_counts import count, mean, require_possible, total
from specmath.engines.telemetry import Load, Telemetry
from specmath.engines.values import by_model, by_position, mapping, objects, positive, summed, text
from specmath.results import Advice

ENGINE: Final = "llama.cpp"
SIX_DIGITS: Final = 1e6
"""From here on /metrics rounds: it prints six significant digits."""
ROUNDING: Final = 2e-5

# ---------------------------------------------------------------- responses


def read_responses(document: Any, source: str) -> list[Telemetry]:
    """Telemetry in the `timings` of responses: one, lines of them, or the chunks of a stream."""
    responses = list(_finished(document))
    timings = [_timings(response) for response in responses]
    if not timings:
        return []
    drafted = [one for one in timings if count(one.get("draft_n")) is not None]
    accepted = total(count(one.get("draft_n_accepted")) for one in drafted)
    predicted = total(count(one.get("predicted_n")) for one in timings)
    passes = _passes(predicted, accepted)
    return [
        require_possible(
            Telemetry(
                engine=ENGINE,
                version=_common(text(response.get("system_fingerprint")) for response in responses),
                model=_common(text(response.get("model")) for response in responses),
                source=source,
                scope="requests",
                drafts=None if drafted else 0.0,
                drafted=total(count(one.get("draft_n")) for one in drafted) if drafted else 0.0,
                accepted=accepted if drafted else 0.0,
                generated=predicted,
                steps=passes,
                load=_timings_load(timings, predicted, passes),
                notes=(
                    drafts_unknown("timings count") if drafted else _nothing_drafted("no draft_n in timings"),
                ),
            )
        )
    ]


def _timings(response: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(response.get("timings"))


def _finished(document: Any) -> Iterator[Mapping[str, Any]]:
    """The responses; of the chunks of one the last, whose timings cover all of it."""
    last: dict[object, Mapping[str, Any]] = {}
    for place, response in enumerate(objects(document)):
        if _has_timings(response) and response.get("stop") is not False:
            chunk = (text(response.get("object")) or "").endswith(".chunk")
            last[(text(response.get("id")) if chunk else None) or place] = response
    return iter(last.values())


def _has_timings(response: Mapping[str, Any]) -> bool:
    """Whether llama.cpp timed it: mlx-vlm has timings too, with rounds in them."""
    timings = _timings(response)
    return {"predicted_n", "predicted_ms"} <= timings.keys() and "draft_rounds" not in timings


def _common(values: Iterator[str | None]) -> str | None:
    """The value that all responses share."""
    found = set(values)
    return found.pop() if len(found) == 1 else None


def _passes(predicted: float | None, accepted: float | None) -> float | None:
    """Passes of the target, those without a draft included."""
    if predicted is None or predicted <= (accepted or 0):
        return None
    return predicted - (accepted or 0)


def _timings_load(
    timings: Sequence[Mapping[str, Any]], predicted: float | None, passes: float | None
) -> Load:
    milliseconds = total(positive(one.get("predicted_ms")) for one in timings)
    seconds = milliseconds / 1e3 if milliseconds is not None else None
    prompt = total(count(one.get("prompt_n")) for one in timings)
    cached = total(count(one.get("cache_n")) for one in timings)
    return Load(
        prompt_tokens=prompt,
        prefix_queries=(prompt or 0) + cached if cached is not None else None,
        prefix_hits=cached,
        step_s=mean(seconds, passes),
        time_per_token_s=mean(seconds, predicted),
    )


def _nothing_drafted(cause: str) -> Advice:
    return Advice(
        code="no-data",
        text=f"{cause}: speculation was off, or never proposed anything",
        remedy="start llama-server with --spec-type and a draft model, and ask again",
    )


# ---------------------------------------------------------------- speed-bench


def read_speed_bench(document: Any, source: str) -> list[Telemetry]:
    """Telemetry in what the speed-bench client saves: counts by sample, or else by category."""
    saved = mapping(document)
    if not {"summary", "results"} <= saved.keys():
        return []
    rows = [row for row in objects(saved["results"]) if count(row.get("draft_n")) is not None]
    rows = rows or [row for row in objects(saved["summary"]) if "overall" not in row.values()]
    counted = [row for row in rows if count(row.get("draft_n")) is not None]
    if not counted:
        return []
    return [
        require_possible(
            Telemetry(
                engine=ENGINE,
                source=source,
                scope="requests",
                drafted=total(count(row["draft_n"]) for row in counted),
                accepted=total(count(row.get("draft_n_accepted")) for row in counted),
                notes=(drafts_unknown("timings count"),),
            )
        )
    ]


# ---------------------------------------------------------------- /metrics


def read_metrics(exposition: Exposition) -> list[Telemetry]:
    """Telemetry in llama-server's /metrics, whose series have no labels but the position."""
    return [
        require_possible(_model_telemetry(exposition, model, samples))
        for model, samples in by_model(exposition, "llamacpp").items()
    ]


def _model_telemetry(exposition: Exposition, model: str | None, samples: Sequence[Sample]) -> Telemetry:
    positions = by_position(samples, "spec_decode_num_accepted_tokens_per_pos_total", "position")
    drafts = summed(samples, "spec_decode_num_drafts_total")
    drafted = summed(samples, "spec_decode_num_draft_tokens_total")
    rounded = summed(samples, "spec_decode_num_accepted_tokens_total")
    accepted = sum(positions) if any(positions) else rounded
    generated = summed(samples, "tokens_predicted_total")
    width = mean(drafted, drafts) or 0.0
    k = max(len(positions), ceil(min(width, 512) * (1 - ROUNDING)))
    return Telemetry(
        engine=ENGINE,
        version=exposition.version,
        model=model,
        source=exposition.source,
        scope=exposition.scope,
        k=k or None,
        k_varies=0 < width < k * (1 - ROUNDING),
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        accepted_at=positions if drafts else (),
        generated=generated,
        steps=_passes(generated, accepted),
        load=_metrics_load(samples, generated, accepted),
        notes=exposition.notes + _metrics_notes(drafts, drafted, accepted, rounded),
    )


def _metrics_load(samples: Sequence[Sample], generated: float | None, accepted: float | None) -> Load:
    seconds = positive(summed(samples, "tokens_predicted_seconds_total"))
    prompt = summed(samples, "prompt_tokens_total")
    cached = summed(samples, "prompt_tokens_cached_total")
    return Load(
        running=positive(summed(samples, "n_busy_slots_per_decode")),
        waiting=summed(samples, "requests_deferred"),
        prompt_tokens=prompt,
        prefix_queries=(prompt or 0) + cached if cached is not None else None,
        prefix_hits=cached,
        step_s=mean(seconds, _passes(generated, accepted)),
        time_per_token_s=mean(seconds, generated),
    )


def _metrics_notes(
    drafts: float | None, drafted: float | None, accepted: float | None, rounded: float | None
) -> tuple[Advice, ...]:
    if not drafts:
        cause = "spec_decode_num_drafts_total is 0" if drafts == 0 else "/metrics has no spec_decode series"
        return (_nothing_drafted(cause),)
    if max(drafts, drafted or 0, rounded or 0) < SIX_DIGITS and accepted == rounded:
        return ()
    return (
        Advice(
            code="six-digits",
            text="llama-server prints its totals with six digits, so drafts and drafted tokens are rounded; "
            "accepted tokens are taken by position, which is exact",
            remedy="let two readings lie far apart, or restart the server before the first",
        ),
    )


FORMATS: Final = (
    Format(engine=ENGINE, name="llama.cpp metrics", read_exposition=read_metrics),
    Format(engine=ENGINE, name="llama.cpp responses", read_document=read_responses),
    Format(engine=ENGINE, name="llama.cpp speed-bench results", read_document=read_speed_bench),
    Format(engine=ENGINE, name="llama.cpp step times", read_document=read_benchmark),
    Format(engine=ENGINE, name="llama.cpp log", log=LlamaCppLog),
)
