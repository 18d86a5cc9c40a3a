"""What prompt tokens cost a model pair: a pass of the target, attention, a pass of the drafter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from specmath.checks import FloatArray
from specmath.mixed_steps import PromptCosts
from specmath.model import ModelShape
from specmath.roofline import ForwardPass
from specmath.roofline_source import Roofline
from specmath.sources import BatchSource
from specmath.traffic import Traffic

_BENEATH = ("typical", "source", "model", "roofline")
"""Attributes under which sources keep the source that they correct."""
_MANY = 1024.0
"""Tokens of a pass over which what one token costs is taken."""
HEAD = "head"
"""Name of the weights that make logits, which a prompt needs for its last token alone."""


def prompt_costs(source: BatchSource, traffic: Traffic, chunk_tokens: int, *, drafting: bool) -> PromptCosts:
    """Prefill by the roofline beneath a source; where there is none, by the source's plain steps.

    Args:
        source: Step times.
        traffic: Prompts, and what of them is cached.
        chunk_tokens: Prefill tokens of a step at most.
        drafting: Whether a drafter is loaded: it loses cache hits.
    """
    roof = roofline_beneath(source)
    if roof is None:
        return PromptCosts(
            pass_s=lambda tokens: np.asarray(source.step_cost(0, np.maximum(tokens, 1), 0).plain_s),
            assumptions=(
                "a prompt token costs what one more sequence costs a plain step without a cache; attention "
                "over the prompt and the drafter's prefill are not known, and left out",
            ),
        )
    run = _without_rereads(roof)
    ranks, host_s = roof.layout.dp, roof.host.plain_step_s

    def pass_s(tokens: FloatArray) -> FloatArray:
        return np.asarray(run.time(ranks, np.maximum(tokens / ranks, 1.0), 0)) + host_s

    keys = _mean_keys(traffic, chunk_tokens, drafting=drafting)
    return PromptCosts(
        pass_s=pass_s,
        attention_s=_attention_s(run, keys) / ranks,
        draft_s=_draft_s(roof),
        assumptions=_assumptions(roof),
    )


def roofline_beneath(source: object) -> Roofline | None:
    """The roofline that a source is made of or corrects; None where it has none."""
    for _ in range(len(_BENEATH) + 1):
        if isinstance(source, Roofline):
            return source
        source = next((getattr(source, name) for name in _BENEATH if hasattr(source, name)), None)
    return None


def _without_rereads(roof: Roofline) -> ForwardPass:
    """Passes of the target as prefill runs them: keys read once, and no state kept for each token."""
    efficiency = replace(
        roof.efficiency, kv_reread=0.0, latent_reread=0.0, state_snapshots=False, graph_sizes=None
    )
    return roof.with_constants(efficiency, roof.host).target_pass()


def _mean_keys(traffic: Traffic, chunk_tokens: int, *, drafting: bool) -> float:
    """Keys before a computed prompt token beyond those of its own chunk, a mean over all computed tokens."""
    tokens = keys = 0.0
    for one in traffic.classes:
        hits = one.hits(drafting=drafting)
        computed = one.share * (one.prompt_tokens - hits)
        tokens += computed
        keys += computed * (one.prompt_tokens + hits - min(chunk_tokens, one.prompt_tokens - hits)) / 2
    return keys / tokens


def _attention_s(run: ForwardPass, keys: float) -> float:
    """Seconds that a prompt token spends on so many keys before it, at the arithmetic of all layers."""
    none, all_keys = (
        sum(float(part.flops_s) for part in run.parts(1, _MANY, context) if "attention" in part.name)
        for context in (0.0, keys)
    )
    return (all_keys - none) / _MANY


def _draft_s(roof: Roofline) -> float:
    """Seconds of the drafter's pass for a prompt token: its arithmetic, the logits left out."""
    model, draft = roof.drafter.resident, roof.draft_pass()
    if model is None or draft is None or not _keeps_a_cache(model):
        return 0.0
    token_s = sum(float(part.flops_s) for part in draft.parts(1, _MANY, 0)) / _MANY
    return token_s * _share_without_head(model)


def _keeps_a_cache(model: ModelShape) -> bool:
    return model.counts_only or model.has_kv or model.state_bytes > 0


def _share_without_head(model: ModelShape) -> float:
    """Share of the multiplied parameters that are not the table of logits."""
    dense = sum(group.multiplied_params for group in model.weights)
    head = sum(group.multiplied_params for group in model.weights if group.name == HEAD)
    active = dense + sum(group.active_params for group in model.experts)
    return 1.0 - head / active if active else 1.0


def _assumptions(roof: Roofline) -> tuple[str, ...]:
    told = [
        "prompt tokens ride in the pass of the target, whose logits count for each of them; measured "
        "corrections are of decoding steps, and prefill is left as the model has it"
    ]
    if roof.drafter.resident is not None and _draft_s(roof) > 0:
        told.append(f"every prompt passes through {roof.drafter.name}, too, at its arithmetic alone")
    return tuple(told)
