"""What a roofline assumes, in words: the sentences under its tables and the lines of its derivation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from specmath.accelerator import Accelerator
from specmath.execution import Efficiency, HostTimes
from specmath.memory import MEMORY_SHARE, Residents
from specmath.model import ModelShape
from specmath.results import Advice
from specmath.roofline import ForwardPass
from specmath.units import format_quantity

LIMIT_TEXTS: Final[dict[str, tuple[str, ...]]] = {
    "": (),
    "memory": ("memory_bound: both passes free of FLOPs and communication; c is a ratio of bytes",),
    "compute": ("compute_bound: both passes free of bytes and communication; c is a ratio of FLOPs",),
}
"""What the two limits of the roofline assume."""


def roofline_text(part: Accelerator, target: ModelShape) -> str:
    """What the ideal is, and that it is no forecast."""
    peaks = (
        f"{format_quantity(part.peak(dtype).flops_per_s, 'FLOP/s')} {dtype} dense"
        for dtype in sorted(target.compute_dtypes)
    )
    rates = ", ".join([*peaks, format_quantity(part.memory_bytes_per_s, "B/s")])
    return (
        f"ideal: datasheet peaks of {part.name} ({rates}), no overhead; "
        "real software differs, so this is neither a forecast nor a bound, and has no range"
    )


def model_texts(models: Sequence[ModelShape]) -> tuple[str, ...]:
    """What a pass of each model reads; models known by their counts share a sentence."""
    counts = " and ".join(model.name for model in models if model.counts_only)
    known = "known by parameter counts alone: context 0, no KV cache, no communication"
    whole = tuple(_model_text(model) for model in models if not model.counts_only)
    return (*whole, f"{counts} {known}") if counts else whole


def _model_text(model: ModelShape) -> str:
    weights, cache = (format_quantity(size, "B") for size in (model.weight_bytes, model.kv_bytes_per_token))
    return f"{model.name}: {weights} of weights, {cache} of cache per token"


def memory_text(residents: Residents) -> str:
    """What a largest batch fills."""
    if not residents.known:
        return "the largest batch is not known, since the cache of the target is not"
    memory = f"{MEMORY_SHARE:.0%} of the {format_quantity(residents.memory_bytes, 'B')} of a device"
    return f"largest batches fill {memory} with weights, cache and states; activations are not counted"


def layout_texts(residents: Residents, efficiency: Efficiency) -> tuple[str, ...]:
    """What spreading over devices and routing to experts assume."""
    devices, draft_devices = residents.target_layout.devices, residents.draft_layout.devices
    texts = []
    if residents.draft is not None and draft_devices < devices:
        texts.append(f"the draft runs on {draft_devices} of the {devices} devices; --draft-tp spreads it")
    if devices > 1:
        latency = efficiency.link_latency_s
        each = f"{format_quantity(latency, 's')} each" if latency else "no latency"
        texts.append(f"collectives take their bytes over the link and {each}")
    if residents.target.experts:
        texts.append(_routing_text(efficiency))
    return tuple(texts)


def _routing_text(efficiency: Efficiency) -> str:
    if efficiency.routing_skew == 0 and efficiency.expert_overlap == 1:
        return "tokens choose experts independently and evenly, and experts sit evenly on their ranks"
    skew = f"popularity falls as rank^-{efficiency.routing_skew:g}"
    overlap = f"a drafted token counts as {efficiency.expert_overlap:g} of an independent one"
    return f"experts: {skew}, {overlap}, and they sit evenly on their ranks"


def pair_warnings(residents: Residents, *, spans_hosts: bool) -> tuple[Advice, ...]:
    """What does not fit together: vocabularies, heads and ranks, hosts and links."""
    target, draft, tp = residents.target, residents.draft, residents.target_layout.tp
    found = []
    if draft is not None and target.vocab and draft.vocab and target.vocab != draft.vocab:
        text = f"vocabularies differ: {target.vocab:,} entries of the target, {draft.vocab:,} of the draft"
        remedy = "check that both use one tokenizer; padding alone does no harm"
        found.append(Advice(code="vocabularies-differ", text=text, remedy=remedy))
    if target.released_in is not None:
        text = f"{target.name} is released in {target.released_in}, and counted in {target.activation_dtype}"
        remedy = f"give --quantization {target.released_in}"
        found.append(Advice(code="released-format", text=text, remedy=remedy))
    heads = {group.kv_heads for group in target.attention if group.kv_heads > 1}
    if any(count % tp and tp % count for count in heads):
        text = f"tp {tp} divides no {'/'.join(map(str, sorted(heads)))} KV heads of {target.name}"
        found.append(
            Advice(code="uneven-heads", text=text, remedy="engines refuse this; take a power of two")
        )
    if spans_hosts and not target.counts_only:
        text = f"{residents.target_layout.devices} devices are priced as if one link joined them all"
        found.append(
            Advice(code="several-hosts", text=text, remedy="give the slowest link between them as --link")
        )
    return tuple(found)


def dtype_texts(part: Accelerator, target: ModelShape) -> tuple[str, ...]:
    """Dtypes that the part computes in a wider one."""
    peaks = {dtype: part.peak(dtype) for dtype in sorted(target.compute_dtypes)}
    return tuple(
        f"{part.name} has no {dtype} path: computed in {peak.dtype}"
        for dtype, peak in peaks.items()
        if peak.widened
    )


def device_warnings(part: Accelerator, residents: Residents) -> tuple[Advice, ...]:
    """For models known by their counts: what the counts leave out that matters."""
    if residents.known:
        return ()
    return (*_too_large(part, residents), *map(_textbook_moe, _sparse_counts(residents)))


def _sparse_counts(residents: Residents) -> list[ModelShape]:
    models = [model for model in (residents.target, residents.draft) if model is not None]
    return [model for model in models if model.multiplied_params < model.dense_params]


def _textbook_moe(model: ModelShape) -> Advice:
    return Advice(
        code="textbook-moe",
        text=f"{model.name} is priced as if every pass read all its experts: at small batch the plain step "
        "comes out too slow, and the speed-up too high",
        remedy="name a catalogue model or give its config.json, whose experts are counted",
    )


def _too_large(part: Accelerator, residents: Residents) -> tuple[Advice, ...]:
    models = [model for model in (residents.target, residents.draft) if model is not None]
    size, given = sum(model.weight_bytes for model in models), residents.target_layout.devices
    wanted = math.ceil(size / part.memory_bytes)
    if wanted <= given:
        return ()
    weights, room = (format_quantity(bytes_, "B") for bytes_ in (size, part.memory_bytes))
    text = f"{weights} of weights do not fit the {room} of a {part.name}: at least {wanted} are needed"
    remedy = (
        f"the ratios stand if both models are split {wanted} ways at no communication cost; "
        f"the seconds are those of {given}"
    )
    return (Advice(code="more-devices", text=text, remedy=remedy),)


def host_texts(host: HostTimes) -> tuple[str, ...]:
    """What the host adds to a step, where it takes any time."""
    times = {
        "plain step": host.plain_step_s,
        "speculative step": host.speculative_step_s,
        "draft pass": host.draft_pass_s,
        "looked-up token": host.lookup_token_s,
    }
    taken = ", ".join(f"{format_quantity(time, 's')} a {name}" for name, time in times.items() if time)
    return (f"host: {taken}",) if taken else ()


def pass_text(symbol: str, run: ForwardPass, batch: int, tokens: float, context: float) -> str:
    """One pass as the sum of its parts, each with what bounds it."""
    parts = [part for part in run.parts(batch, tokens, context) if np.any(part.seconds > 0)]
    terms = (f"{part.name} {format_quantity(float(part.seconds), 's')} by {part.bound}" for part in parts)
    total = format_quantity(float(np.asarray(run.time(batch, tokens, context))), "s")
    return f"{symbol}, {tokens:g} tokens of {batch} sequences: {' + '.join(terms)} = {total}"
