"""DeepSeek V4: one shared key-value vector a token inside a short window, compressed vectors before it.

Every layer attends to the last tokens at full detail. A layer with compression ratio r keeps one vector per
r tokens besides; at a small ratio an indexer picks among them, at a large one all are attended.
"""

from __future__ import annotations

from typing import Final

from specmath.hf.attention import index_cache
from specmath.hf.fields import Fields
from specmath.hf.weights import Cache, Part, Weight, matrix, norm, vector

_INDEXED_BELOW: Final = 16
"""Ratios below this come with an indexer; the published ones are 4 (indexed) and 128 (not)."""
_ATTN: Final = "self_attn"


def mixer(fields: Fields) -> Part:
    """Attention of one layer with compression ratio `ratio`; 0 for the window alone."""
    heads, width, hidden = fields.count("n_heads"), fields.count("head_dim"), fields.count("hidden")
    query_rank, out_rank = fields.count("q_lora_rank"), fields.count("o_lora_rank")
    weights = matrix(f"{_ATTN}.wq_a", "attention", query_rank, hidden)
    weights += norm(fields, f"{_ATTN}.q_norm", query_rank)
    weights += matrix(f"{_ATTN}.wq_b", "attention", heads * width, query_rank)
    weights += matrix(f"{_ATTN}.wkv", "attention", width, hidden)
    weights += norm(fields, f"{_ATTN}.kv_norm", width)
    weights += [
        Weight(path=f"{_ATTN}.wo_a", role="attention", params=heads * width * out_rank, in_features=width)
    ]
    weights += matrix(f"{_ATTN}.wo_b", "attention", hidden, fields.count("o_groups") * out_rank)
    weights.append(vector(f"{_ATTN}.attn_sink", heads))
    near = Cache(
        name="window",
        elements=width,
        flops_per_pair=4 * heads * width,
        kv_heads=1,
        window=fields.count("window", 1, 2**62),
    )
    part = Part(weights=tuple(weights), caches=(near,))
    ratio = fields.size("ratio")
    return part + _compressor(fields, ratio, heads, width) if ratio else part


def _compressor(fields: Fields, ratio: int, heads: int, width: int) -> Part:
    hidden, indexed = fields.count("hidden"), ratio < _INDEXED_BELOW
    overlap = 2 if indexed else 1
    weights = _pooling(f"{_ATTN}.compressor", hidden, overlap * width, width, ratio)
    far = Cache(
        name=f"compressed_{ratio}",
        elements=width,
        flops_per_pair=4 * heads * width,
        kv_heads=1,
        top_k=fields.count("topk_entries") if indexed else None,
        tokens_per_entry=ratio,
    )
    caches = [far]
    if indexed:
        index_heads, index_width = fields.count("index_heads"), fields.count("index_dim")
        weights += _pooling(f"{_ATTN}.indexer.compressor", hidden, 2 * index_width, index_width, ratio)
        weights += matrix(
            f"{_ATTN}.indexer.wq_b", "attention", index_heads * index_width, fields.count("q_lora_rank")
        )
        weights += matrix(f"{_ATTN}.indexer.weights_proj", "attention", index_heads, hidden)
        caches.append(index_cache(index_heads, index_width, ratio))
    return Part(weights=tuple(weights), caches=tuple(caches))


def _pooling(path: str, hidden: int, rows: int, width: int, ratio: int) -> list[Weight]:
    """Learned pooling of `ratio` tokens into one vector: values, gates, a bias for each place, a norm."""
    weights = matrix(f"{path}.wkv", "attention", rows, hidden) + matrix(
        f"{path}.wgate", "attention", rows, hidden
    )
    return [*weights, vector(f"{path}.ape", ratio * rows), vector(f"{path}.norm", width)]


def hyper_connections(fields: Fields) -> list[Weight]:
    """Parallel residual streams of one layer: mixing maps before attention and before the MLP."""
    streams, hidden = fields.count("streams"), fields.count("hidden")
    rows = (2 + streams) * streams
    return [vector(f"hc_{name}", rows * streams * hidden + rows + 3) for name in ("attn", "ffn")]


def hyper_head(fields: Fields) -> list[Weight]:
    """The map that merges the residual streams before the final norm."""
    streams, hidden = fields.count("streams"), fields.count("hidden")
    return [vector("hc_head", streams * streams * hidden + streams + 1)]
