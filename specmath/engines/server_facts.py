"""What a running server tells about its set-up, in the words of each engine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from specmath.engines.content import Exposition
from specmath.engines.servers import INFO, Server
from specmath.engines.sglang import METHODS
from specmath.engines.spec_counts import count, mean
from specmath.engines.values import by_model, mapping, mean_observed, positive, summed, text

_PREFIXES: Final = {"tensorrt-llm": "trtllm", "llama.cpp": "llamacpp"}
_SPECULATION: Final = re.compile(
    r"SpeculativeConfig\(method='([^']{0,100})', model='?([^',)]{0,300})'?, num_spec_tokens=(\d{1,4})"
)
_SETTING: Final = re.compile(r"\b(\w{1,60})=(?:torch\.)?'?([\w.-]{1,60})")
_VLLM_METHODS: Final = {"draft_model": "draft-model", "ngram_gpu": "ngram"}
_NONE: Final = ("none", "auto", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """A server's set-up; None where it does not tell.

    Attributes:
        model: Name or path of the target.
        context_limit: Most tokens of a sequence.
        mean_context: Mean tokens in the cache of a sequence: prompts, and half of the answers.
        max_requests: Most requests that run at a time.
        tp, dp, pp, ep: Degrees of parallelism.
        dtype, quantization, kv_cache_dtype: As the engine names them.
        method: How it drafts.
        draft: Name or path of the draft.
        k: Draft tokens per step.
    """

    model: str | None = None
    context_limit: int | None = None
    mean_context: float | None = None
    max_requests: int | None = None
    tp: int | None = None
    dp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dtype: str | None = None
    quantization: str | None = None
    kv_cache_dtype: str | None = None
    method: str | None = None
    draft: str | None = None
    k: int | None = None


def facts_of(server: Server, model: str | None = None) -> ServerFacts:
    """The set-up of a server; of several models, that of the one named."""
    listed = [one for one in server.models() if model is None or one.get("id") == model]
    first = listed[0] if listed else {}
    facts = _READERS.get(server.engine or "", lambda _: ServerFacts())(server)
    return replace(
        facts,
        model=facts.model or _named(first.get("root")) or _named(first.get("id")) or model,
        context_limit=facts.context_limit or _whole(first.get("max_model_len")),
        mean_context=_mean_context(server.metrics, server.engine, model),
        kv_cache_dtype=facts.kv_cache_dtype or _cache_dtype(server.metrics),
    )


def _mean_context(metrics: Exposition | None, engine: str | None, model: str | None) -> float | None:
    if metrics is None or engine is None:
        return None
    models = by_model(metrics, _PREFIXES.get(engine, engine))
    samples = [one for name, found in models.items() if model in (None, name) for one in found]
    prompt, answer = (mean_observed(samples, f"request_{part}_tokens") for part in ("prompt", "generation"))
    if prompt is None:
        requests = summed(samples, "num_requests_total")
        prompt, answer = (
            mean(summed(samples, f"{part}_tokens_total"), requests) for part in ("prompt", "generation")
        )
    return None if prompt is None or answer is None else prompt + answer / 2


def _cache_dtype(metrics: Exposition | None) -> str | None:
    samples = metrics.samples if metrics else ()
    labels = (one.labels for one in samples if one.name.endswith("cache_config_info"))
    return next((_named(one.get("cache_dtype")) for one in labels), None)


def _vllm(server: Server) -> ServerFacts:
    config = mapping(server.document(INFO[0])).get("vllm_config")
    if isinstance(config, dict):
        return _vllm_sections(config)
    shown = (text(config) or "")[:20_000]
    told = dict(reversed(_SETTING.findall(shown)))
    speculation = _SPECULATION.search(shown)
    method, draft, k = speculation.groups() if speculation else (None, None, None)
    return ServerFacts(
        context_limit=_whole(told.get("max_seq_len")),
        tp=_whole(told.get("tensor_parallel_size")),
        pp=_whole(told.get("pipeline_parallel_size")),
        dp=_whole(told.get("data_parallel_size")),
        dtype=_named(told.get("dtype")),
        quantization=_named(told.get("quantization")),
        kv_cache_dtype=_named(told.get("kv_cache_dtype")),
        method=_vllm_method(method),
        draft=_named(draft),
        k=_whole(k),
    )


def _vllm_sections(config: Mapping[str, Any]) -> ServerFacts:
    model, spread, speculation, scheduler, cache = (
        mapping(config.get(f"{name}_config"))
        for name in ("model", "parallel", "speculative", "scheduler", "cache")
    )
    return ServerFacts(
        model=_named(model.get("model")),
        context_limit=_whole(model.get("max_model_len")),
        max_requests=_whole(scheduler.get("max_num_seqs")),
        tp=_whole(spread.get("tensor_parallel_size")),
        pp=_whole(spread.get("pipeline_parallel_size")),
        dp=_whole(spread.get("data_parallel_size")),
        dtype=_named(model.get("dtype")),
        quantization=_named(model.get("quantization")),
        kv_cache_dtype=_named(cache.get("cache_dtype")),
        method=_vllm_method(_named(speculation.get("method"))),
        draft=_named(speculation.get("model")),
        k=_whole(speculation.get("num_speculative_tokens")),
    )


def _vllm_method(method: str | None) -> str | None:
    if method is None:
        return None
    return "mtp" if method.endswith("_mtp") else _VLLM_METHODS.get(method, method)


def _sglang(server: Server) -> ServerFacts:
    told = mapping(server.document(*INFO, "/get_model_info"))
    told = {**mapping(told.get("server_args")), **told}
    steps, tokens = (
        _whole(told.get("speculative_num_steps")),
        _whole(told.get("speculative_num_draft_tokens")),
    )
    return ServerFacts(
        model=_named(told.get("model_path")),
        context_limit=_whole(told.get("context_length")),
        max_requests=_whole(told.get("max_running_requests")),
        tp=_whole(told.get("tp_size")),
        dp=_whole(told.get("dp_size")),
        pp=_whole(told.get("pp_size")),
        ep=_whole(told.get("ep_size")),
        dtype=_named(told.get("dtype")),
        quantization=_named(told.get("quantization")),
        kv_cache_dtype=_named(told.get("kv_cache_dtype")),
        method=METHODS.get(text(told.get("speculative_algorithm")) or ""),
        draft=_named(told.get("speculative_draft_model_path")),
        k=steps or (tokens - 1 if tokens and tokens > 1 else None),
    )


def _llama_cpp(server: Server) -> ServerFacts:
    told = mapping(server.document("/props"))
    settings = mapping(told.get("default_generation_settings"))
    return ServerFacts(
        model=_named(told.get("model_path")) or _named(told.get("model_alias")),
        context_limit=_whole(settings.get("n_ctx")),
        max_requests=_whole(told.get("total_slots")),
        k=_whole(mapping(settings.get("params")).get("speculative.n_max")),
    )


def _tgi(server: Server) -> ServerFacts:
    told = mapping(server.document("/info"))
    return ServerFacts(
        model=_named(told.get("model_id")),
        context_limit=_whole(told.get("max_total_tokens")),
        max_requests=_whole(told.get("max_concurrent_requests")),
        dtype=_named(told.get("model_dtype")),
        quantization=_named(told.get("quantize")),
    )


_READERS: Final = {"vllm": _vllm, "sglang": _sglang, "llama.cpp": _llama_cpp, "tgi": _tgi}


def _whole(value: Any) -> int | None:
    """A whole number from 1 to 10 million, also as text."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < 9 else None
    found = positive(count(value))
    return int(found) if found is not None and found <= 1e7 and found == int(found) else None


def _named(value: Any) -> str | None:
    """A text of at most 300 characters that names something."""
    found = text(value)
    return found[:300] if found and found.strip().lower() not in _NONE else None
