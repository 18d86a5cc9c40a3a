"""Text Generation Inference: one summary, of the tokens that a step yields beyond the first.

`tgi_request_skipped_tokens` takes an observation for each request and step, prefill steps among them with 0.
There is no count of drafts, and none of drafted tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from specmath.engines.content import Exposition, Format, Sample
from specmath.engines.spec_counts import count
from specmath.engines.telemetry import Load, Telemetry
from specmath.engines.values import by_model, mean_observed, named, summed
from specmath.results import Advice

ENGINE: Final = "tgi"
SKIPPED: Final = "request_skipped_tokens"


def read_metrics(exposition: Exposition) -> list[Telemetry]:
    """Telemetry in TGI's /metrics."""
    return [
        _model_telemetry(exposition, model, samples)
        for model, samples in by_model(exposition, ENGINE).items()
    ]


def _model_telemetry(exposition: Exposition, model: str | None, samples: Sequence[Sample]) -> Telemetry:
    accepted, steps = summed(samples, f"{SKIPPED}_sum"), summed(samples, f"{SKIPPED}_count")
    speculates = bool(accepted and steps)
    return Telemetry(
        engine=ENGINE,
        version=exposition.version,
        model=model,
        source=exposition.source,
        scope=exposition.scope,
        k=_longest(samples) if speculates else None,
        accepted=accepted if speculates else None,
        acceptance_length=1 + accepted / steps if accepted and steps else None,
        generated=accepted + steps if accepted is not None and steps else None,
        steps=steps,
        load=Load(
            running=summed(samples, "batch_current_size"),
            waiting=summed(samples, "queue_size"),
            prompt_tokens=summed(samples, "request_input_length_sum"),
            time_per_token_s=mean_observed(samples, "request_mean_time_per_token_duration"),
        ),
        notes=exposition.notes + _notes(accepted, steps, summed(samples, "request_generated_tokens_count")),
    )


def _longest(samples: Sequence[Sample]) -> int | None:
    """The most tokens that a step yielded beyond the first, from the summary's highest quantile."""
    highest = [
        count(sample.value)
        for sample in named(samples, SKIPPED)
        if sample.labels.get("quantile") in ("1", "1.0")
    ]
    largest = max((value for value in highest if value is not None and value <= 512), default=0.0)
    return round(largest) or None


def _notes(accepted: float | None, steps: float | None, requests: float | None) -> tuple[Advice, ...]:
    if not accepted or not steps:
        return (
            Advice(
                code="no-data",
                text="no step yielded more than one token: without --speculate TGI counts just the same",
                remedy="start TGI with --speculate, and read /metrics after some requests",
            ),
        )
    prefills = f", {requests:.0f} of finished requests among them" if requests else ""
    return (
        Advice(
            code="all-steps",
            text=f"TGI counts neither drafts nor drafted tokens: the length is over all {steps:.0f} steps, "
            f"prefills and steps without a draft included{prefills}, and so a lower bound of a draft's",
            remedy="give --k as set with --speculate; k is the longest draft seen accepted otherwise",
        ),
    )


FORMATS: Final = (Format(engine=ENGINE, name="TGI metrics", read_exposition=read_metrics),)
