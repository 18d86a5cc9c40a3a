"""SGLang's /metrics: gauges of the last log interval on each rank, and counters of finished requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from specmath.engines.content import Exposition, Sample
from specmath.engines.sglang_rates import Rate, Reading, chain_note, meanings_of, reading_of, tree_note
from specmath.engines.spec_counts import count, total
from specmath.engines.telemetry import Load, ReportedRate, Telemetry
from specmath.engines.values import by_model, dotted, mean_observed, named, positive, summed
from specmath.results import Advice

ENGINE: Final = "sglang"
FROM_0_5_13: Final = ("spec_num_steps", "spec_num_draft_tokens", "spec_verify_calls_total")
OWN: Final = (*FROM_0_5_13, "spec_accept_length", "generation_tokens_total", "num_running_reqs")
NARROWED: Final = {
    ("0.5.9 to 0.5.12", Rate.WITH_BONUS): "0.5.9 or 0.5.10",
    ("0.5.9 to 0.5.12", Rate.DRAFTS_ONLY): "0.5.11 or 0.5.12",
}
"""Families that the meaning of the rate divides."""
TIMES_PER_TOKEN: Final = (
    "request_time_per_output_token_seconds",
    "time_per_output_token_seconds",
    "inter_token_latency_seconds",  # shared out among the tokens of a chunk, so per token too
)


@dataclass(frozen=True, slots=True)
class Schedulers:
    """Gauges by scheduler, one per data-parallel rank: copies on its tensor-parallel ranks are left out."""

    samples: Sequence[Sample]

    def of(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        """A gauge by scheduler: the copy of the lowest rank that is not 0, since 0 stands for no data."""
        gauges: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in sorted(named(self.samples, name), key=_ranks):
            value = count(sample.value)
            if value is not None and not gauges.get(_scheduler(sample)):
                gauges[_scheduler(sample)] = value
        return gauges

    def sum(self, name: str) -> float | None:
        return total(self.of(name).values())

    def mean(self, name: str) -> float | None:
        gauges = self.of(name)
        return fmean(gauges.values()) if gauges else None

    def most(self, name: str) -> int | None:
        """A whole gauge, the largest of the schedulers; None where it is absent or 0."""
        largest = max(self.of(name).values(), default=0.0)
        return round(largest) or None if largest < 512 else None


def read_metrics(exposition: Exposition) -> list[Telemetry]:
    """Telemetry of each model that an SGLang exposition speaks of."""
    return [
        _model_telemetry(exposition, model, samples)
        for model, samples in by_model(exposition, ENGINE).items()
        if any(sample.name in OWN for sample in samples)  # a router's series tell of no model
    ]


def _model_telemetry(exposition: Exposition, model: str | None, samples: list[Sample]) -> Telemetry:
    gauges = Schedulers(samples)
    version, allowed = _family(exposition.version, samples)
    length = _mean_length(gauges)
    reading, reported = _rate(gauges, allowed)
    generated = summed(samples, "generation_tokens_total")
    steps = positive(summed(samples, "spec_verify_calls_total"))
    whole = _whole_run_length(generated, steps, summed(samples, "num_requests_total"))
    windowed = whole is not None and (exposition.scope == "difference" or length is None)
    nodes, depth = gauges.most("spec_num_draft_tokens"), gauges.most("spec_num_steps")
    return Telemetry(
        engine=ENGINE,
        version=NARROWED.get((version or "", reading.meaning), version),
        model=model,
        source=exposition.source,
        scope=exposition.scope if windowed else "last interval",
        k=depth or (reading.draft_tokens - 1 if reading.draft_tokens else None),
        k_varies=bool(gauges.sum("spec_cap_length")),
        acceptance_length=whole if windowed else length,
        reported_rate=reported,
        generated=generated,
        steps=steps,
        load=_load(gauges, samples),
        notes=exposition.notes
        + _notes(length, windowed=windowed, whole=whole, steps=steps)
        + _rate_notes(reading, reported)
        + _shape_notes(nodes, depth, reading),
    )


def _ranks(sample: Sample) -> tuple[tuple[int, str], ...]:
    """The ranks of a sample as a key that sorts 2 before 10."""
    return tuple(
        (len(value), value) for name, value in sorted(sample.labels.items()) if name.endswith("_rank")
    )


def _scheduler(sample: Sample) -> tuple[tuple[str, str], ...]:
    """The labels that copies on the ranks of one scheduler share."""
    copies = {name for name in sample.labels if name.endswith("_rank")} - {"dp_rank"} | {"pid"}
    return tuple(sorted((name, value) for name, value in sample.labels.items() if name not in copies))


def _family(version: str | None, samples: Sequence[Sample]) -> tuple[str | None, tuple[Rate, ...]]:
    """The version or family of versions, and what the rate can mean in it."""
    if dotted(version):
        return version, meanings_of(version)
    if any(sample.name in FROM_0_5_13 for sample in samples):
        return "0.5.13 or newer", (Rate.DRAFTS_ONLY,)
    rated = named(samples, "spec_accept_rate")
    if not rated:
        return ("before 0.5.4" if named(samples, "spec_accept_length") else None), meanings_of(None)
    if any("moe_ep_rank" in sample.labels for sample in rated):
        return "0.5.9 to 0.5.12", meanings_of(None)
    if any("tp_rank" in sample.labels for sample in rated):
        return "0.5.4 to 0.5.8", (Rate.WITH_BONUS,)
    return None, meanings_of(None)


def _mean_length(gauges: Schedulers) -> float | None:
    """The length over all schedulers, each weighted by its steps, tokens/length; None where all are 0."""
    lengths = {place: length for place, length in gauges.of("spec_accept_length").items() if length >= 1}
    if not lengths:
        return None
    throughputs = gauges.of("gen_throughput")
    tokens = {place: throughputs.get(place) or 0.0 for place in lengths}
    if not all(tokens.values()):
        return fmean(lengths.values())
    return sum(tokens.values()) / sum(tokens[place] / length for place, length in lengths.items())


def _rate(gauges: Schedulers, allowed: tuple[Rate, ...]) -> tuple[Reading, ReportedRate | None]:
    """The engine's own rate, and what it means: the same on every scheduler, or unknown."""
    lengths, rates = gauges.of("spec_accept_length"), gauges.of("spec_accept_rate")
    pairs = [
        (lengths[place], rate) for place, rate in rates.items() if rate > 0 and lengths.get(place, 0) >= 1
    ]
    if not pairs:
        return Reading(Rate.UNKNOWN), None
    readings = {reading_of(length, rate, allowed=allowed) for length, rate in pairs}
    meanings = {reading.meaning for reading in readings}
    meaning = meanings.pop() if len(meanings) == 1 else Rate.UNKNOWN
    reading = readings.pop() if len(readings) == 1 else Reading(meaning)
    mean = fmean(rate for _, rate in pairs)
    return reading, ReportedRate(name="spec_accept_rate", value=mean, meaning=reading.meaning.value)


def _whole_run_length(generated: float | None, steps: float | None, requests: float | None) -> float | None:
    """Tokens of a verification over the whole scope: the first token of a request comes from its prefill."""
    if steps is None or generated is None:
        return None
    verified = generated - requests if requests and generated - requests >= steps else generated
    return verified / steps if verified >= steps else None


def _load(gauges: Schedulers, samples: Sequence[Sample]) -> Load:
    prompt = summed(samples, "prompt_tokens_total")
    hits = summed(samples, "cached_tokens_total")
    times = (mean_observed(samples, name) for name in TIMES_PER_TOKEN)
    return Load(
        running=gauges.sum("num_running_reqs"),
        waiting=gauges.sum("num_queue_reqs"),
        preemptions=gauges.sum("num_retracted_requests_total"),
        cache_usage=gauges.mean("token_usage"),
        prompt_tokens=prompt,
        prefix_queries=prompt if hits is not None else None,
        prefix_hits=hits,
        time_per_token_s=next((time for time in times if time is not None), None),
        tokens_per_s=positive(gauges.sum("gen_throughput")),
    )


def _notes(
    length: float | None, *, windowed: bool, whole: float | None, steps: float | None
) -> tuple[Advice, ...]:
    if length is None and whole is None:
        return (
            Advice(
                code="no-data",
                text="the acceptance length is 0 or absent: speculation is off, or nothing has been decoded",
                remedy="read it while a server started with --speculative-algorithm decodes",
            ),
        )
    if windowed:
        return (
            Advice(
                code="finished-requests",
                text="spec_verify_calls_total grows when a request ends: long ones fall into a later window",
                remedy="let the two readings lie far apart against the length of a request",
            ),
        )
    overall = f"; over {steps:.0f} verifications of finished requests it is {whole:.3f}" if whole else ""
    return (
        Advice(
            code="last-interval",
            text=f"the gauge covers the last interval of the log, 40 steps by default{overall}",
            remedy="read twice and give both, or read the server's log, for more than one interval",
        ),
    )


def _rate_notes(reading: Reading, reported: ReportedRate | None) -> tuple[Advice, ...]:
    if reported is None or reading.meaning is not Rate.UNKNOWN:
        return ()
    return (
        Advice(
            code="rate-unknown",
            text=f"spec_accept_rate {reported.value:.3f} may be {reported.meaning}: the length alone is used",
            remedy="name the version, sglang@0.5.9",
        ),
    )


def _shape_notes(nodes: int | None, depth: int | None, reading: Reading) -> tuple[Advice, ...]:
    if nodes and depth and nodes > depth + 1:
        return (tree_note(nodes - 1, depth),)
    return (chain_note(reading.draft_tokens),) if reading.draft_tokens and not depth else ()
