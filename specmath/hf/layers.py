"""Kinds of layers to weights, caches and states: the tables of mixers and feed-forwards, and their sum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from specmath.hf import attention, compressed, feed_forward, recurrent, shared_blocks
from specmath.hf.fields import Fields
from specmath.hf.weights import LayerKind, Part, matrix, norm, table, vector

Sublayer = Callable[[Fields], Part]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Layers of one kind: their numbers, and what each of them holds."""

    layers: tuple[int, ...]
    part: Part


def _nothing(_: Fields) -> Part:
    return Part()


def _windowed(fields: Fields) -> Part:
    return attention.grouped(fields, "window", fields.count("window", 1, 2**62))


def _chunked(fields: Fields) -> Part:
    return attention.grouped(fields, "chunked", fields.count("window", 1, 2**62))


def _parallel_mamba2(fields: Fields) -> Part:
    return attention.grouped(fields) + recurrent.mamba2(fields)


def _both(fields: Fields) -> Part:
    """A dense MLP and experts beside each other (Gemma 4, Arctic)."""
    return feed_forward.dense(fields) + feed_forward.moe(fields)


def _double_latent(fields: Fields) -> Part:
    """Two attention sublayers in one layer (LongCat)."""
    return attention.latent(fields) + attention.latent(fields)


def _double_dense_moe(fields: Fields) -> Part:
    """Two dense MLPs, and experts beside the second half of the layer (LongCat)."""
    return feed_forward.dense(fields) + feed_forward.dense(fields) + feed_forward.moe(fields)


def _biased_moe(fields: Fields) -> Part:
    """Experts and one bias after their sum (JetMoE)."""
    return feed_forward.moe(fields) + Part(weights=(vector("mlp.bias", fields.count("hidden")),))


def _gemma4_moe(fields: Fields) -> Part:
    """Gemma 4: MLP and experts side by side, norms of their own, a scaled router."""
    extra = [
        vector("router.scale", fields.count("hidden")),
        vector("router.expert_scale", fields.count("n_experts")),
    ]
    norms = [vector(f"mlp.norm_{number}", fields.count("hidden")) for number in (1, 2, 3)]
    return _both(fields) + Part(weights=(*extra, *norms))


MIXERS: Final[dict[str, Sublayer]] = {
    "full": attention.grouped,
    "window": _windowed,
    "chunked": _chunked,
    "block_sparse": attention.block_sparse,
    "mla": attention.latent,
    "double_mla": _double_latent,
    "expert_attention": attention.mixture,
    "compressed": compressed.mixer,
    "delta_net": recurrent.delta_net,
    "kda": recurrent.kda,
    "mamba": recurrent.mamba,
    "mamba2": recurrent.mamba2,
    "parallel_mamba2": _parallel_mamba2,
    "short_conv": recurrent.short_conv,
    "lightning": recurrent.lightning,
    "rg_lru": recurrent.rg_lru,
    "rwkv": recurrent.rwkv,
    "rwkv5": recurrent.rwkv5,
    "shared_attention": shared_blocks.hybrid,
    "none": _nothing,
}
FFNS: Final[dict[str, Sublayer]] = {
    "mlp": feed_forward.dense,
    "moe": feed_forward.moe,
    "shared": feed_forward.shared,
    "both": _both,
    "double_mlp_moe": _double_dense_moe,
    "biased_moe": _biased_moe,
    "gemma4_moe": _gemma4_moe,
    "rwkv": recurrent.rwkv_channel_mix,
    "none": _nothing,
}


def layer_part(fields: Fields, kind: LayerKind) -> Part:
    """Everything one layer of that kind holds, norms included."""
    own = fields.with_traits(dict(kind.traits))
    if kind.mixer not in MIXERS or kind.ffn not in FFNS:
        raise fields.error("layer_types", f"layer of {kind.mixer!r} and {kind.ffn!r} is not known")
    part = MIXERS[kind.mixer](own) + FFNS[kind.ffn](own)
    hidden, weights = own.count("hidden"), list(part.weights)
    n_norms = own.size("mixer_norms") * (kind.mixer != "none") + own.size("ffn_norms") * (kind.ffn != "none")
    for number in range(n_norms):
        weights += norm(own, f"layer_norm_{number}", hidden)
    if own.knows("layer_extras"):
        weights += own.raw("layer_extras")
    return Part(weights=tuple(weights), caches=part.caches, states=part.states, experts=part.experts)


def blocks(fields: Fields, kinds: list[LayerKind], first_layer: int = 0) -> list[Block]:
    """Layers of equal kind together, in order of appearance."""
    numbers: dict[tuple[object, ...], list[int]] = {}
    samples: dict[tuple[object, ...], LayerKind] = {}
    for layer, kind in enumerate(kinds, first_layer):
        identity = (kind.mixer, kind.ffn, repr(kind.traits))
        numbers.setdefault(identity, []).append(layer)
        samples.setdefault(identity, kind)
    return [
        Block(layers=tuple(layers), part=layer_part(fields, samples[identity]))
        for identity, layers in numbers.items()
    ]


def outside_layers(fields: Fields) -> Part:
    """Embedding, positions, final norm and head.

    An untied input table is looked up, not read; a tied one is read as the head and stored once.
    """
    hidden, vocab = fields.count("hidden"), fields.count("vocab")
    width = fields.count("embedding_dim") if fields.knows("embedding_dim") else hidden
    tied = fields.flag("tie")
    weights = matrix("lm_head", "head", vocab, width)
    if not tied:
        weights += [table("embed_tokens", vocab * width, width)]
    if fields.flag("head_bias"):
        weights.append(vector("lm_head.bias", vocab))
    if width != hidden:
        weights += matrix("project_in", "mlp", hidden, width) + matrix("project_out", "mlp", width, hidden)
    positions = fields.size("positions")
    if positions:
        weights.append(vector("embed_positions", positions * hidden))
    weights += norm(fields, "embedding_norm", width, fields.text("embedding_norm"))
    if fields.flag("final_norm"):
        weights += norm(fields, "norm", hidden)
    if fields.knows("model_extras"):
        weights += fields.raw("model_extras")
    return Part(weights=tuple(weights))
