"""MLX: mlx-lm's `from_draft`, one for each token, and the rounds that mlx-vlm counts.

A step of mlx-lm yields the accepted draft tokens and then one of the target's, so each token that is not
from the draft ends a step, and the run of draft tokens before it is what the step accepted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any, Final

from specmath.engines.content import Format
from specmath.engines.spec_counts import count, mean, require_possible, tail_sums, total
from specmath.engines.telemetry import Load, RequestCounts, Telemetry
from specmath.engines.values import mapping, objects, positive, text
from specmath.results import Advice

ENGINE: Final = "mlx"
LONGEST: Final = 512

# ---------------------------------------------------------------- mlx-lm


def read_stream(document: Any, source: str) -> list[Telemetry]:
    """Telemetry in the responses of stream_generate, of one request or of several one after the other."""
    tokens = [entry for entry in objects(document) if isinstance(entry.get("from_draft"), bool)]
    if not tokens:
        return []
    histogram, cut = _runs(tokens)
    accepted = float(sum(depth * steps for depth, steps in enumerate(histogram)))
    speculates = accepted > 0 or cut > 0
    drafts = float(sum(histogram))
    return [
        Telemetry(
            engine=ENGINE,
            source=source,
            scope="requests",
            k=max(len(histogram) - 1, 0) or None,
            drafts=drafts if speculates else None,
            accepted=accepted if speculates else None,
            accepted_at=tail_sums(histogram) if speculates else (),
            histogram=histogram if speculates else (),
            generated=float(len(tokens)),
            steps=drafts or None,
            load=Load(tokens_per_s=positive(tokens[-1].get("generation_tps"))),
            notes=_stream_notes(histogram, cut, speculates=speculates),
        )
    ]


def _runs(tokens: Iterable[Mapping[str, Any]]) -> tuple[tuple[float, ...], int]:
    """Steps by accepted tokens, and the tokens of steps that the end of a request cut short."""
    runs: Counter[int] = Counter()
    run = cut = 0
    for token in tokens:
        if token["from_draft"]:
            run += 1
        else:
            runs[min(run, LONGEST)] += 1
            run = 0
        if token.get("finish_reason") is not None:
            cut, run = cut + run, 0
    return tuple(float(runs[depth]) for depth in range(max(runs, default=-1) + 1)), cut + run


def _stream_notes(histogram: tuple[float, ...], cut: int, *, speculates: bool) -> tuple[Advice, ...]:
    if not speculates:
        return (
            Advice(
                code="no-data",
                text="no token is from a draft: without a draft model the stream looks just the same",
                remedy="generate with --draft-model",
            ),
        )
    longest = max(len(histogram) - 1, 0)
    left = f"; {cut} tokens of steps that the end of a request cut short are left out" if cut else ""
    return (
        Advice(
            code="longest-seen",
            text=f"drafted tokens are not told: k is the longest run accepted, {longest}{left}",
            remedy="give --k as set with --num-draft-tokens",
        ),
    )


# ---------------------------------------------------------------- mlx-vlm


def read_rounds(document: Any, source: str) -> list[Telemetry]:
    """Telemetry in the timings of mlx-vlm's responses, which count rounds."""
    timings = [mapping(entry.get("timings")) for entry in objects(document)]
    requests = [request for request in map(_request, timings) if request is not None]
    if not requests:
        return []
    kinds = {text(one.get("draft_kind")) for one in timings if "draft_rounds" in one}
    drafts, drafted = sum(one.drafts for one in requests), sum(one.drafted for one in requests)
    widths = {one.drafted / one.drafts for one in requests if one.drafts}
    return [
        require_possible(
            Telemetry(
                engine=ENGINE,
                source=source,
                scope="requests",
                method=kinds.pop() if len(kinds) == 1 else None,
                k=ceil(min(max(widths), LONGEST)) or None if widths else None,
                k_varies=len(widths) > 1 or any(width != round(width) for width in widths),
                drafts=drafts,
                drafted=drafted,
                accepted=sum(one.accepted for one in requests),
                requests=tuple(one for one in requests if one.drafts),
                generated=total(count(one.get("predicted_n")) for one in timings),
                load=Load(time_per_token_s=_time_per_token(timings)),
            )
        )
    ]


def _request(timings: Mapping[str, Any]) -> RequestCounts | None:
    drafts, drafted = count(timings.get("draft_rounds")), count(timings.get("draft_n"))
    accepted = count(timings.get("draft_n_accepted"))
    if drafts is None or drafted is None or accepted is None:
        return None
    return RequestCounts(drafts=drafts, drafted=drafted, accepted=accepted)


def _time_per_token(timings: Iterable[Mapping[str, Any]]) -> float | None:
    pairs = [(positive(one.get("predicted_ms")), positive(one.get("predicted_n"))) for one in timings]
    told = [(milliseconds, tokens) for milliseconds, tokens in pairs if milliseconds and tokens]
    seconds = sum(milliseconds for milliseconds, _ in told) / 1e3
    return mean(seconds or None, sum(tokens for _, tokens in told))


FORMATS: Final = (
    Format(engine=ENGINE, name="mlx-lm stream", read_document=read_stream),
    Format(engine=ENGINE, name="mlx-vlm responses", read_document=read_rounds),
)
