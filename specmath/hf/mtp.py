"""The multi-token-prediction module that some models carry: one more layer that drafts from their last state.

It normalises the hidden state and the next token's embedding, projects the pair to the model's width, runs
one decoder layer and a norm. Table and head are the model's own: borrowed, yet the head is read each pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from specmath.hf.assembly import Formats, attention_groups, expert_groups, weight_groups
from specmath.hf.compressed import hyper_head
from specmath.hf.fields import Fields
from specmath.hf.layers import Block, blocks
from specmath.hf.weights import LayerKind, Part, Weight, matrix, norm
from specmath.model import DraftHead, ModelShape

_OWN_PREFIX: Final = ("plain_layer", "window_mlp", "blocks")
"""Styles whose weights stand under `mtp.` in the checkpoint, not behind the last layer."""


def module(
    fields: Fields, kinds: list[LayerKind], formats: Formats, kv_cache_dtype: str, assumed: list[str]
) -> ModelShape | None:
    """One MTP layer as a small model, or None; says in `assumed` what was left out."""
    count = fields.size("mtp_layers") if fields.knows("mtp_layers") else 0
    if not count:
        return None
    style = fields.raw("mtp") if fields.knows("mtp") else None
    if style is None:
        assumed.append(f"{count} MTP layers are named, but their shape is not known; they are left out.")
        return None
    parts = blocks(fields, _kinds(fields, kinds, style), first_layer=len(kinds))
    if style in _OWN_PREFIX:
        parts = [Block(layers=block.layers, part=_prefixed(block.part)) for block in parts]
    assumed.append(f"The MTP module is no part of the totals; layers named {count}, counted one.")
    return ModelShape(
        name="mtp",
        source="the same file",
        weights=weight_groups(parts, _outside(fields, style), formats),
        experts=expert_groups(parts, formats),
        attention=attention_groups(parts, kv_cache_dtype),
        hidden=fields.count("hidden"),
        n_layers=1,
        vocab=fields.count("vocab"),
        activation_dtype=formats.dtype,
        draft=DraftHead(kind="mtp", one_pass=False, draft_vocab=fields.count("vocab")),
    )


def _kinds(fields: Fields, kinds: list[LayerKind], style: str) -> list[LayerKind]:
    if style == "window_mlp":
        window = next((kind for kind in kinds if kind.mixer == "window"), kinds[-1])
        return [replace(window, ffn="mlp")]
    if style == "blocks":
        return [LayerKind(mixer=mixer, ffn=ffn) for mixer, ffn in fields.raw("mtp_blocks")]
    last = kinds[-1]
    if style == "plain_layer":
        return [LayerKind(mixer="full", ffn=last.ffn)]
    return [
        last.having(index_shared=False, ratio=0) if style == "compressed" else last.having(index_shared=False)
    ]


def _outside(fields: Fields, style: str) -> list[Weight]:
    hidden, vocab = fields.count("hidden"), fields.count("vocab")
    weights = matrix("mtp.eh_proj", "fusion", hidden, 2 * hidden)
    for name in ("enorm", "hnorm", "norm"):
        weights += norm(fields, f"mtp.{name}", hidden)
    if style == "compressed":
        weights += hyper_head(fields)
    return [*weights, borrowed_head(vocab, hidden)]


def borrowed_head(vocab: int, hidden: int) -> Weight:
    """The target's head: read in every draft pass, stored once, with the target."""
    return Weight(path="lm_head", role="head", params=vocab * hidden, in_features=hidden, borrowed=True)


def _prefixed(part: Part) -> Part:
    experts = (replace(group, weights=_under_mtp(group.weights)) for group in part.experts)
    return replace(part, weights=_under_mtp(part.weights), experts=tuple(experts))


def _under_mtp(weights: tuple[Weight, ...]) -> tuple[Weight, ...]:
    return tuple(replace(weight, path=f"mtp.layers.0.{weight.path}") for weight in weights)
