"""Shares that follow from what else an engine did: prefill among the tokens of passes, prefix-cache hits."""

from __future__ import annotations

from specmath.diagnosis.setup import Observed
from specmath.engines.estimates import AcceptanceEstimate
from specmath.engines.telemetry import Telemetry


def prefilled_tokens(telemetry: Telemetry) -> float | None:
    """Prompt tokens computed, those found in the prefix cache left out; None where not told.

    >>> from specmath.engines.telemetry import Load
    >>> load = Load(prompt_tokens=100, prefix_queries=100, prefix_hits=40)
    >>> prefilled_tokens(Telemetry(engine="vllm", scope="since start", load=load))
    60
    """
    load = telemetry.load
    if load.prompt_tokens is None or load.prefix_queries is None or load.prefix_hits is None:
        return load.prompt_tokens
    return min(load.prompt_tokens, max(load.prefix_queries - load.prefix_hits, 0))


def prefill_share(telemetry: Telemetry) -> float | None:
    """Share of the tokens of all passes that were prompt tokens; None where either is not told.

    A decoding step verifies the last token and the draft.
    """
    prompt, steps = prefilled_tokens(telemetry), telemetry.steps
    if steps is None:
        steps = telemetry.drafts
    if prompt is None or steps is None or not prompt + steps:
        return None
    return prompt / (prompt + steps + (telemetry.drafted or 0))


def prefix_hit_rate(telemetry: Telemetry) -> float | None:
    """Share of the prompt tokens looked up in the prefix cache that were there; None where not told."""
    load = telemetry.load
    if not load.prefix_queries or load.prefix_hits is None:
        return None
    return load.prefix_hits / load.prefix_queries


def observed_of(estimate: AcceptanceEstimate) -> Observed:
    """What a diagnosis takes from a source: its step, prefill, tokens, idle steps and survival."""
    share, tokens = estimate.drafting_share, estimate.tokens_per_step
    return Observed(
        step_s=estimate.telemetry.load.step_s,
        prefill_share=prefill_share(estimate.telemetry),
        draftless_share=None if share != share else 1.0 - share,
        tokens_per_step=None if tokens != tokens else tokens,
        survival=() if estimate.counts is None else estimate.counts.survival,
    )
