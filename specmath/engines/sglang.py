"""SGLang's JSON: generate responses, /server_info and bench_serving; metrics and logs are read next door.

A response's `spec_verify_ct` counts the verifications of a request. Versions up to 0.5.3 tell nothing else;
later ones tell drafted and accepted tokens and a histogram, under names that 0.5.12 changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from statistics import fmean
from typing import Any, Final

from specmath.engines.content import Format
from specmath.engines.sglang_log import SglangLog
from specmath.engines.sglang_metrics import ENGINE, read_metrics
from specmath.engines.sglang_rates import chain_note, tree_note
from specmath.engines.spec_counts import added, count, counts, mean, require_possible, tail_sums, total
from specmath.engines.synthetic_load import synthetic_notes
from specmath.engines.telemetry import Load, ReportedRate, RequestCounts, Telemetry
from specmath.engines.values import mapping, objects, positive, text
from specmath.errors import DataError
from specmath.results import Advice

METHODS: Final = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "STANDALONE": "draft-model",
    "NGRAM": "ngram",
    "DFLASH": "dflash",
    "DSPARK": "dspark",
}
ACCEPTED_KEYS: Final = ("spec_num_correct_drafts", "spec_accept_token_num")
DRAFTED_KEYS: Final = ("spec_num_proposed_drafts", "spec_draft_token_num")
HISTOGRAM_KEYS: Final = ("spec_correct_drafts_histogram", "spec_accept_histogram")
CHANCE_OF_A_CHAIN: Final = 1e-3
"""Below this likelihood that a chain never went on beyond its histogram, the draft was a tree."""


# ---------------------------------------------------------------- generate responses


def read_responses(document: Any, source: str) -> list[Telemetry]:
    """Telemetry of generate responses: one, a batch, lines of them, or the chunks of a stream."""
    infos = _infos(document)
    if not infos:
        return []
    verified = [info for info in infos if positive(info.get("spec_verify_ct"))]
    if not verified:
        return [_without_verification(infos, source)]
    counted = [counts for counts in map(_request, verified) if counts is not None]
    if len(counted) < len(verified):
        return [_lengths_only(verified, source)]
    return [require_possible(_counted(verified, counted, source))]


def _infos(document: Any) -> list[Mapping[str, Any]]:
    """The meta_info of each request; of the chunks of one request the last, which counts all of it."""
    holders = [
        holder for response in objects(document) for holder in (response, *objects(response.get("choices")))
    ]
    infos = [
        info
        for info in (mapping(holder.get("meta_info")) for holder in holders)
        if "completion_tokens" in info
    ]
    finished = [info for info in infos if info.get("finish_reason", "unknown") is not None]
    by_request = {text(info.get("id")) or place: info for place, info in enumerate(infos)}
    return finished or list(by_request.values())


def _first(info: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((info[key] for key in keys if key in info), None)


def _request(info: Mapping[str, Any]) -> RequestCounts | None:
    """Counts of a request; None up to 0.5.3, which does not tell them."""
    drafts = count(info.get("spec_verify_ct"))
    drafted, accepted = count(_first(info, DRAFTED_KEYS)), count(_first(info, ACCEPTED_KEYS))
    if drafts is None or drafted is None or accepted is None:
        return None
    histogram = counts(_first(info, HISTOGRAM_KEYS))
    return RequestCounts(drafts=drafts, drafted=drafted, accepted=accepted, histogram=histogram)


def _counted(infos: list[Mapping[str, Any]], requests: list[RequestCounts], source: str) -> Telemetry:
    drafts = sum(request.drafts for request in requests)
    drafted = sum(request.drafted for request in requests)
    accepted = sum(request.accepted for request in requests)
    full = all(request.histogram for request in requests)
    histogram = reduce(added, (request.histogram for request in requests)) if full else ()
    shape = _shape(requests, histogram)
    return Telemetry(
        engine=ENGINE,
        version="0.5.12 or newer" if ACCEPTED_KEYS[0] in infos[0] else "0.5.4 to 0.5.11",
        source=source,
        scope="requests",
        k=shape.k,
        k_varies=shape.varies,
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        histogram=histogram,
        accepted_at=tail_sums(histogram),
        reported_rate=_reported(infos),
        requests=tuple(requests),
        generated=total(count(info.get("completion_tokens")) for info in infos),
        load=_response_load(infos),
        notes=shape.notes,
    )


@dataclass(frozen=True, slots=True)
class _Shape:
    """Draft tokens of a step, or levels of a tree."""

    k: int | None
    varies: bool = False
    notes: tuple[Advice, ...] = ()


def _shape(requests: Sequence[RequestCounts], histogram: Sequence[float]) -> _Shape:
    """The draft as drafted/drafts and the histogram tell it: a chain of k, or a tree of counted nodes."""
    widths = {request.drafted / request.drafts for request in requests}
    width = max(widths)
    varies = len(widths) > 1 or width != round(width)
    nodes, depth = min(round(width), 512), len(histogram) - 1
    if depth >= 1 and depth < nodes and not varies and _unlikely_a_chain(histogram):
        return _Shape(depth, notes=(tree_note(nodes, depth),))
    presumed = () if varies or depth == nodes or not nodes else (chain_note(nodes + 1),)
    return _Shape(nodes or None, varies, presumed)


def _unlikely_a_chain(histogram: Sequence[float]) -> bool:
    """Whether drafts that got as far as any did would, in a chain, have got further."""
    accepted = sum(depth * steps for depth, steps in enumerate(histogram))
    trials = accepted + sum(histogram)
    return trials > 0 and (1 - accepted / trials) ** min(histogram[-1], 1e4) < CHANCE_OF_A_CHAIN


def _reported(infos: Sequence[Mapping[str, Any]]) -> ReportedRate | None:
    """The rate of a single response; those of several have no common one."""
    rate = count(infos[0].get("spec_accept_rate")) if len(infos) == 1 else None
    if rate is None:
        return None
    return ReportedRate(name="spec_accept_rate", value=rate, meaning="accepted/drafted")


def _lengths_only(infos: list[Mapping[str, Any]], source: str) -> Telemetry:
    """Responses that count verifications alone: tokens per verification, with the first token in."""
    told = [info for info in infos if positive(info.get("completion_tokens"))]
    drafts = total(count(info["spec_verify_ct"]) for info in told)
    generated = total(count(info["completion_tokens"]) for info in told)
    length = mean(generated, drafts)
    return Telemetry(
        engine=ENGINE,
        version="up to 0.5.3",
        source=source,
        scope="requests",
        drafts=drafts,
        acceptance_length=length if length and length >= 1 else None,
        generated=generated,
        steps=drafts,
        load=_response_load(told),
        notes=(
            Advice(
                code="first-tokens",
                text=f"completion_tokens/spec_verify_ct has in it the first token of {len(told)} requests, "
                "though no verification made it: the length is high by requests/verifications",
                remedy="use SGLang 0.5.9 or newer for counts of accepted and drafted tokens",
            ),
        ),
    )


def _without_verification(infos: list[Mapping[str, Any]], source: str) -> Telemetry:
    return Telemetry(
        engine=ENGINE,
        source=source,
        scope="requests",
        generated=total(count(info.get("completion_tokens")) for info in infos),
        load=_response_load(infos),
        notes=(
            Advice(
                code="no-data",
                text="the responses tell of no verification: speculation was off",
                remedy="start the server with --speculative-algorithm",
            ),
        ),
    )


def _response_load(infos: Sequence[Mapping[str, Any]]) -> Load:
    prompt = total(count(info.get("prompt_tokens")) for info in infos)
    hits = total(count(info.get("cached_tokens")) for info in infos)
    return Load(
        prompt_tokens=prompt,
        prefix_queries=prompt if hits is not None else None,
        prefix_hits=hits,
    )


# ---------------------------------------------------------------- /server_info


def read_server_info(document: Any, source: str) -> list[Telemetry]:
    """Telemetry in /server_info, or in the answer of a router that lists several servers."""
    found = mapping(document)
    servers = [found, *objects(found.get("decode")), *(document if isinstance(document, list) else ())]
    return [_server(mapping(server), source) for server in servers if _is_server(server)]


def _is_server(server: Any) -> bool:
    states = mapping(server).get("internal_states")
    return bool(objects(states)) and ("speculative_algorithm" in server or "model_path" in server)


def _server(server: Mapping[str, Any], source: str) -> Telemetry:
    states = objects(server["internal_states"])
    lengths = [count(state.get("avg_spec_accept_length")) for state in states]
    told = [length for length in lengths if length is not None and 1 <= length < 512]
    draft_tokens, steps = (
        _whole(server, "speculative_num_draft_tokens"),
        _whole(server, "speculative_num_steps"),
    )
    notes: tuple[Advice, ...] = ()
    if not told:
        notes += (_no_figure("avg_spec_accept_length"),)
    if draft_tokens and steps and draft_tokens > steps + 1:
        notes += (tree_note(draft_tokens - 1, steps),)
    if len(told) > 1:
        notes += (_unweighted(told),)
    return Telemetry(
        engine=ENGINE,
        version=text(server.get("version")),
        model=text(server.get("served_model_name")) or text(server.get("model_path")),
        source=source,
        scope="since start",
        method=METHODS.get(text(server.get("speculative_algorithm")) or ""),
        k=steps or (draft_tokens - 1 if draft_tokens else None) or None,
        k_varies=server.get("speculative_adaptive") is True,
        acceptance_length=fmean(told) if told else None,
        load=Load(tokens_per_s=total(positive(state.get("last_gen_throughput")) for state in states)),
        notes=notes,
    )


def _whole(server: Mapping[str, Any], key: str) -> int | None:
    value = positive(server.get(key))
    return round(value) if value is not None and value <= 512 else None


def _no_figure(name: str) -> Advice:
    return Advice(
        code="no-data",
        text=f"the server had no {name}: speculation is off, or nothing had been decoded",
        remedy="ask again after some requests",
    )


def _unweighted(lengths: Sequence[float]) -> Advice:
    return Advice(
        code="ranks-unweighted",
        text=f"{len(lengths)} data-parallel ranks, lengths {min(lengths):.3f} to {max(lengths):.3f}, "
        "each counted alike: their steps are not told",
        remedy="read /metrics where the ranks' loads differ",
    )


# ---------------------------------------------------------------- bench_serving


def read_bench(document: Any, source: str) -> list[Telemetry]:
    """Telemetry of each line of bench_serving's JSONL."""
    return [_bench(line, source) for line in objects(document) if _is_bench(line)]


def _is_bench(line: Mapping[str, Any]) -> bool:
    if not {"backend", "accept_length", "output_throughput"} <= line.keys():
        return False
    return line["accept_length"] is not None or (text(line["backend"]) or "").startswith("sglang")


def _bench(line: Mapping[str, Any], source: str) -> Telemetry:
    length = count(line["accept_length"])
    told = length is not None and 1 <= length < 512
    info = next(iter(read_server_info(line.get("server_info"), source)), None)
    milliseconds = positive(line.get("mean_tpot_ms"))
    lifetime = Advice(
        code="lifetime-average",
        text="accept_length is the server's average since its start, not that of this run",
        remedy="restart the server before a run, or read /metrics before and after",
    )
    return Telemetry(
        engine=ENGINE,
        version=info.version if info else None,
        model=info.model if info else text(line.get("model")) or text(line.get("model_id")),
        source=source,
        scope="since start",
        method=info.method if info else None,
        k=info.k if info else None,
        acceptance_length=length if told else None,
        load=Load(
            running=count(line.get("concurrency")),
            prompt_tokens=count(line.get("total_input_tokens")),
            time_per_token_s=milliseconds / 1e3 if milliseconds is not None else None,
            tokens_per_s=positive(line.get("output_throughput")),
        ),
        notes=(
            lifetime if told else _no_figure("accept_length"),
            *synthetic_notes(
                line.get("dataset_name"),
                requests=count(line.get("completed")),
                prompt_tokens=count(line.get("total_input_tokens")),
                output_tokens=count(line.get("total_output_tokens")),
            ),
        ),
    )


def refuse_adaptive_config(document: Any, source: str) -> list[Telemetry]:
    """Empty; DataError for a file of --speculative-adaptive-config, which is an input and no result."""
    found = mapping(document)
    tiers = [found] if "candidate_steps" in found else list(found.values())
    if tiers and all("candidate_steps" in mapping(tier) for tier in tiers):
        problem = "is what SGLang is told of adaptive speculation, and holds no measurement"
        raise DataError(source, f"{problem}; give the server's metrics or log")
    return []


FORMATS: Final = (
    Format(engine=ENGINE, name="SGLang metrics", read_exposition=read_metrics),
    Format(engine=ENGINE, name="SGLang generate responses", read_document=read_responses),
    Format(engine=ENGINE, name="SGLang server info", read_document=read_server_info),
    Format(engine=ENGINE, name="SGLang bench_serving results", read_document=read_bench),
    Format(engine=ENGINE, name="SGLang adaptive configuration", read_document=refuse_adaptive_config),
    Format(engine=ENGINE, name="SGLang server log", log=SglangLog),
)
