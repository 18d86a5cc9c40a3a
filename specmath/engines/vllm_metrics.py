"""vLLM's Prometheus series: the counters of V1, and what can be trusted of V0.

V1 counts drafts (request-steps with at least one draft token), draft tokens, accepted tokens without the
bonus, and drafts by the position they reached. V0 adds its running totals to its counters at every log
interval, so that they grow with the square of time: they are refused, and its two gauges are read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from specmath.engines.content import Exposition, Sample
from specmath.engines.spec_counts import MAX_POSITIONS, count, mean
from specmath.engines.telemetry import Load, ReportedRate, Telemetry
from specmath.results import Advice

_OWN: Final = re.compile(r"(?:ray_)?vllm[:_]")
_COUNTER: Final = re.compile(
    r"spec_decode_num_(?:drafts|draft_tokens|accepted_tokens(?:_per_pos)?)(?:_total)?\Z"
)
_FOREIGN: Final = ("lmdeploy", "llamacpp", "trtllm", "sglang", "tgi", "aiperf")
_DRAFTS: Final = "spec_decode_num_drafts"
_DRAFTED: Final = "spec_decode_num_draft_tokens"
_ACCEPTED: Final = "spec_decode_num_accepted_tokens"
_PER_POSITION: Final = "spec_decode_num_accepted_tokens_per_pos"
_EFFICIENCY: Final = "spec_decode_efficiency"
_V0_RATE: Final = "spec_decode_draft_acceptance_rate"
_V0: Final = (_EFFICIENCY, _V0_RATE, "spec_decode_num_emitted_tokens")
_STEP: Final = ("inter_token_latency_seconds", "time_per_output_token_seconds")
"""One observation for each request and step, whatever the number of tokens; the second name is the older."""
_PER_TOKEN: Final = "request_time_per_output_token_seconds"
_FIRST: Final = "time_to_first_token_seconds"
_ITERATIONS: Final = "iteration_tokens_total_count"
_DIFFUSION: Final = "diffusion_num_denoising_steps"
_FAMILIES: Final = (
    (f"{_PER_TOKEN}_count", "0.11.0 or newer"),
    (f"{_STEP[0]}_count", "0.10.2 or newer"),
    ("kv_cache_usage_perc", "0.9.2 or newer"),
    (_DRAFTS, "0.8.5 or newer"),
    (_DRAFTED, "0.8.3 or newer"),
)
"""Series by the version that first had them, the newest first."""
_RUNNING: Final = "num_requests_running"
_WAITING: Final = "num_requests_waiting"
_CACHE: Final = ("kv_cache_usage_perc", "gpu_cache_usage_perc")
_QUERIES: Final = ("prefix_cache_queries", "gpu_prefix_cache_queries")
_HITS: Final = ("prefix_cache_hits", "gpu_prefix_cache_hits")
_OTHERS: Final = ("generation_tokens", "prompt_tokens", "num_preemptions", "request_success", _ITERATIONS)
_KNOWN: Final = frozenset(
    (
        *(_DRAFTS, _DRAFTED, _ACCEPTED, _PER_POSITION, *_V0, _DIFFUSION),
        *(_RUNNING, _WAITING, *_CACHE, *_QUERIES, *_HITS, *_OTHERS),
        *(f"{name}_{part}" for name in (*_STEP, _PER_TOKEN, _FIRST) for part in ("sum", "count")),
    )
)

_Labels = frozenset[tuple[str, str]]


def read_exposition(exposition: Exposition) -> list[Telemetry]:
    """Telemetry of each model of a vLLM server, engines of one model added up; empty for another engine's.

    Recognised by the prefix `vllm:` (or `vllm_`, `ray_vllm_`); where a fork or a gateway changed or dropped
    it, by the names of the speculation counters.
    """
    prefixes = _changed_prefixes(exposition.samples)
    models: dict[str | None, _Model] = defaultdict(_Model)
    for sample in exposition.samples:
        name = _short(sample.name, prefixes)
        if name in _KNOWN:
            labels = sample.labels
            models[labels.get("model_name") or labels.get("model")].take(str(name), labels, sample.value)
    if len(models) > 1 and None in models and not models[None].has(_DRAFTED):
        del models[None]  # series of the process beside those of its models
    notes = (*exposition.notes, *_prefix_notes(prefixes))
    return [_telemetry(name, model, exposition, notes) for name, model in models.items()]


def _changed_prefixes(samples: Iterable[Sample]) -> tuple[str, ...]:
    """What stands before the speculation counters where it is neither vLLM's prefix nor another engine's."""
    found = dict.fromkeys(
        sample.name[: match.start()] for sample in samples if (match := _COUNTER.search(sample.name))
    )
    return tuple(
        prefix for prefix in found if not _OWN.match(prefix) and not any(name in prefix for name in _FOREIGN)
    )


def _prefix_notes(prefixes: tuple[str, ...]) -> tuple[Advice, ...]:
    if not prefixes:
        return ()
    text = "the series do not bear vLLM's prefix and were read as vLLM's by the rest of their names"
    remedy = "name the engine where it is another one"
    return (Advice(code="prefix-unknown", text=text, remedy=remedy),)


def _short(name: str, prefixes: tuple[str, ...]) -> str | None:
    """The name without prefix and `_total`; None for a series of something else."""
    if own := _OWN.match(name):
        return name[own.end() :].removesuffix("_total")
    prefix = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
    return None if prefix is None else name[len(prefix) :].removesuffix("_total")


@dataclass
class _Model:
    """The series of one model by short name, then by labels."""

    series: dict[str, dict[_Labels, float]] = field(default_factory=lambda: defaultdict(dict))
    seen: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)

    def take(self, name: str, labels: Mapping[str, str], value: float) -> None:
        self.seen.add(name)
        if count(value) is not None:
            self.series[name][frozenset(labels.items())] = value
        elif value == value:  # NaN is how an engine writes that it has no data
            self.refused.add(name)

    def has(self, name: str) -> bool:
        return bool(self.series.get(name))

    def values(self, *names: str) -> list[float]:
        """The values, by engine, of the first of `names` that is there."""
        return next((list(self.series[name].values()) for name in names if self.has(name)), [])

    def total(self, *names: str) -> float | None:
        values = self.values(*names)
        return sum(values) if values else None

    def mean(self, *names: str) -> float | None:
        values = self.values(*names)
        return sum(values) / len(values) if values else None

    def positions(self) -> tuple[float, ...]:
        """Drafts that reached each position, summed over engines, up to the first that is missing."""
        reached: dict[str, float] = defaultdict(float)
        for labels, value in self.series.get(_PER_POSITION, {}).items():
            reached[dict(labels).get("position", "")] += value
        known = next((place for place in range(len(reached)) if str(place) not in reached), len(reached))
        return tuple(reached[str(place)] for place in range(min(known, MAX_POSITIONS)))


def _telemetry(
    name: str | None, model: _Model, exposition: Exposition, notes: tuple[Advice, ...]
) -> Telemetry:
    known = Telemetry(engine="vllm", scope=exposition.scope, source=exposition.source, model=name)
    read = _v0 if model.seen & set(_V0) else _v1
    told = read(known, model)
    return replace(told, notes=(*notes, *told.notes, *_count_notes(model)))


def _v1(known: Telemetry, model: _Model) -> Telemetry:
    drafts, drafted, positions = model.total(_DRAFTS), model.total(_DRAFTED), model.positions()
    full = drafts is not None and drafted is not None and drafted > len(positions) * drafts - 0.5
    generated, first = model.total("generation_tokens"), model.total(f"{_FIRST}_count", "request_success")
    return replace(
        known,
        version=next((version for name, version in _FAMILIES if name in model.seen), None),
        k=len(positions) or None,
        k_varies=bool(positions and drafts) and not full,
        drafts=drafts,
        drafted=drafted,
        accepted=model.total(_ACCEPTED),
        accepted_at=positions,
        generated=None if generated is None else max(generated - (first or 0), 0),
        steps=model.total(*(f"{name}_count" for name in _STEP)),
        load=_v1_load(model),
        notes=_v1_notes(model, drafted),
    )


def _v1_load(model: _Model) -> Load:
    steps = model.total(*(f"{name}_count" for name in _STEP))
    return replace(
        _gauges(model),
        running=_requests_in_a_step(model, steps),
        preemptions=model.total("num_preemptions"),
        prompt_tokens=model.total("prompt_tokens"),
        prefix_queries=model.total(*_QUERIES),
        prefix_hits=model.total(*_HITS),
        step_s=mean(model.total(*(f"{name}_sum" for name in _STEP)), steps),
        time_per_token_s=mean(model.total(f"{_PER_TOKEN}_sum"), model.total(f"{_PER_TOKEN}_count")),
    )


def _requests_in_a_step(model: _Model, steps: float | None) -> float | None:
    """Request-steps over steps of an engine, a prompt's counted as one; else what ran when it was scraped."""
    iterations, first = model.total(_ITERATIONS), model.total(f"{_FIRST}_count")
    if iterations and steps is not None and first is not None:
        return (steps + first) / iterations
    return model.mean(_RUNNING)


def _gauges(model: _Model) -> Load:
    return Load(running=model.mean(_RUNNING), waiting=model.total(_WAITING), cache_usage=model.mean(*_CACHE))


def _v1_notes(model: _Model, drafted: float | None) -> tuple[Advice, ...]:
    notes = []
    if drafted is None:
        notes.append(_without_speculation(model))
    elif _DRAFTS not in model.seen:
        text = "vLLM 0.8.3 and 0.8.4 count neither drafts nor positions"
        notes.append(Advice(code="no-drafts-counter", text=text, remedy="give k, or use vLLM 0.8.5 or newer"))
    engines = len(model.values(_RUNNING))
    if engines > 1:
        text = f"{engines} engines added up; `running` is the mean requests in a step of one of them"
        remedy = "forecast for the batch of one engine"
        notes.append(Advice(code="engines-summed", text=text, remedy=remedy))
    return tuple(notes)


def _without_speculation(model: _Model) -> Advice:
    if _DIFFUSION in model.seen:
        text = "the model decodes by diffusion, which is no speculation: its counters mean something else"
        return Advice(code="diffusion", text=text, remedy="no acceptance rate exists; compare step times")
    text = "there are no speculation counters: speculation is off, and the step time is the plain one"
    return Advice(code="speculation-off", text=text, remedy="start the server with --speculative-config")


def _v0(known: Telemetry, model: _Model) -> Telemetry:
    rate = model.mean(_V0_RATE)
    meaning = "accepted/drafted, tokens after a rejection counted"
    refused = Advice(
        code="v0-counters",
        text="the counters of vLLM's V0 engine add running totals up, so they are left out, differences, too",
        remedy="give k: acceptance length = efficiency·(k + 1); or read the log, which has the counts",
    )
    return replace(
        known,
        version="0.6.6 to 0.9.2, V0 engine",
        efficiency=model.mean(_EFFICIENCY),
        reported_rate=None if rate is None else ReportedRate(name=_V0_RATE, value=rate, meaning=meaning),
        scope="since start",
        load=replace(_gauges(model), prompt_tokens=model.total("prompt_tokens")),
        notes=(refused,),
    )


def _count_notes(model: _Model) -> tuple[Advice, ...]:
    if not model.refused:
        return ()
    text = f"left out, being no possible count: {', '.join(sorted(model.refused)[:4])}"
    return (Advice(code="impossible-counts", text=text, remedy="take the scrape again"),)
