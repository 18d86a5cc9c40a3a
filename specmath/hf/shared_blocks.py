"""Zamba2: a few transformer blocks that many layers share, each through a projection and adapters of its own.

A shared block is stored once and read every time a layer runs it. Its input is the hidden state beside the
embedding, twice the model's width.
"""

from __future__ import annotations

from dataclasses import replace

from specmath.hf.attention import grouped
from specmath.hf.feed_forward import dense
from specmath.hf.fields import Fields
from specmath.hf.recurrent import mamba2
from specmath.hf.weights import Part, Weight, matrix, vector


def _block(fields: Fields) -> Part:
    """One shared block: attention over twice the width, MLP, two norms."""
    hidden, wide = fields.count("hidden"), 2 * fields.count("hidden")
    norms = (
        vector("shared_transformer.input_layernorm", wide),
        vector("shared_transformer.pre_ff_layernorm", hidden),
    )
    return grouped(fields.with_traits({"attention_in": wide})) + dense(fields) + Part(weights=norms)


def hybrid(fields: Fields) -> Part:
    """A layer that runs a shared block, projects its output and goes on with its own Mamba-2."""
    hidden, rank, width = fields.count("hidden"), fields.count("adapter_rank"), fields.count("mlp_width")
    block = _block(fields)
    weights = [replace(weight, borrowed=True) for weight in block.weights]
    weights += matrix("linear", "attention", hidden, hidden)
    weights += matrix("mlp.adapter.down", "mlp", rank, hidden) + matrix(
        "mlp.adapter.up", "mlp", 2 * width, rank
    )
    if fields.flag("attention_adapters"):
        for name in ("q", "k", "v"):
            weights += matrix(f"self_attn.{name}_adapter.down", "attention", rank, 2 * hidden)
            weights += matrix(f"self_attn.{name}_adapter.up", "attention", 2 * hidden, rank)
    return Part(weights=tuple(weights), caches=block.caches) + mamba2(fields)


def stored_blocks(fields: Fields) -> list[Weight]:
    """The shared blocks themselves, whose reading is counted with the layers."""
    copies = fields.count("shared_blocks", 1, 100)
    return [replace(weight, params=copies * weight.params, reads=0) for weight in _block(fields).weights]
