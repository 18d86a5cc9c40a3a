"""Softmax attention of one layer: its weights, its cache and its work per pair of query and cached token.

Grouped heads cache one key and one value a KV head; work is 2 FLOPs per multiply-add over the query heads,
2 x heads x (key width + value width). MLA caches one compressed vector and one rotary part, shared by all
heads; its work is that of the absorbed form used in decoding, 2 x heads x (2 x rank + rotary width).
"""

from __future__ import annotations

from specmath.hf.fields import Fields
from specmath.hf.weights import Cache, Experts, Part, Weight, matrix, norm, vector

_ATTN = "self_attn"


def grouped(fields: Fields, name: str = "full", window: int | None = None) -> Part:
    """Multi-head, grouped or multi-query attention, whole or inside a window."""
    heads, kv_heads = fields.count("n_heads"), fields.count("n_kv_heads")
    if heads % kv_heads:
        raise fields.error("n_kv_heads", f"must divide the {heads} attention heads, got {kv_heads}")
    width, value_width = fields.count("head_dim"), fields.count("v_head_dim")
    borrows = fields.flag("borrows_kv")
    weights = _projections(fields, heads, kv_heads, width, value_width, borrows)
    weights += _head_norms(fields, heads, kv_heads, width, borrows)
    if fields.flag("sinks"):
        weights.append(vector(f"{_ATTN}.sinks", heads))
    cache = Cache(
        name=name + ("_borrowed_kv" if borrows else ""),
        elements=0 if borrows else kv_heads * (width + value_width),
        flops_per_pair=2 * heads * (width + value_width),
        kv_heads=kv_heads,
        window=window,
    )
    return Part(weights=tuple(weights), caches=(cache,))


def _projections(
    fields: Fields, heads: int, kv_heads: int, width: int, value_width: int, borrows: bool
) -> list[Weight]:
    inward, hidden = fields.count("attention_in"), fields.count("hidden")
    qkv_bias = fields.flag("qkv_bias")
    gate = fields.choice("output_gate", ("none", "elementwise", "per_head", "separate"))
    query_rows = heads * width * (2 if gate == "elementwise" else 1)
    weights = matrix(f"{_ATTN}.q_proj", "attention", query_rows, inward, qkv_bias)
    if not borrows:
        weights += matrix(f"{_ATTN}.k_proj", "attention", kv_heads * width, inward, fields.flag("k_bias"))
        if not fields.flag("k_is_v"):
            weights += matrix(f"{_ATTN}.v_proj", "attention", kv_heads * value_width, inward, qkv_bias)
    weights += matrix(f"{_ATTN}.o_proj", "attention", hidden, heads * value_width, fields.flag("o_bias"))
    if gate == "per_head":
        weights += matrix(f"{_ATTN}.g_proj", "attention", heads, inward)
    if gate == "separate":
        weights += matrix(f"{_ATTN}.gate_proj", "attention", heads * value_width, inward)
    return weights


def _head_norms(fields: Fields, heads: int, kv_heads: int, width: int, borrows: bool) -> list[Weight]:
    """Norms of queries and keys: over one head, over each head separately, or over the whole projection."""
    kind = fields.choice("qk_norm", ("none", "head", "each_head", "whole", "whole_equal"))
    if kind == "none":
        return []
    per_query, per_key = {
        "head": (width, width),
        "each_head": (heads * width, kv_heads * width),
        "whole": (heads * width, kv_heads * width),
        "whole_equal": (fields.count("hidden"), fields.count("hidden")),
    }[kind]
    norm_kind = fields.text("qk_norm_kind")
    queries = norm(fields, f"{_ATTN}.q_norm", per_query, norm_kind)
    return queries if borrows else queries + norm(fields, f"{_ATTN}.k_norm", per_key, norm_kind)


def mixture(fields: Fields) -> Part:
    """Mixture of attention heads (JetMoE): routed query and output maps over one set of keys and values."""
    hidden, kv_heads, width = fields.count("hidden"), fields.count("n_kv_heads"), fields.count("head_dim")
    n_experts, top_k, inner = fields.count("n_experts"), fields.count("top_k"), kv_heads * width
    expert = (
        *matrix(f"{_ATTN}.experts.input_linear", "experts", inner, hidden),
        *matrix(f"{_ATTN}.experts.output_linear", "experts", hidden, inner),
    )
    weights = matrix(f"{_ATTN}.kv_proj", "attention", 2 * inner, hidden)
    weights += matrix(f"{_ATTN}.router", "router", n_experts, hidden)
    cache = Cache(name="full", elements=2 * inner, flops_per_pair=4 * top_k * inner, kv_heads=kv_heads)
    return Part(
        weights=(*weights, vector(f"{_ATTN}.bias", hidden)),
        caches=(cache,),
        experts=(Experts(n_experts=n_experts, top_k=top_k, weights=expert),),
    )


def latent(fields: Fields, name: str = "mla") -> Part:
    """Multi-head latent attention, with an indexer where the family has one."""
    hidden, heads = fields.count("hidden"), fields.count("n_heads")
    rank, rope = fields.count("kv_lora_rank"), fields.size("qk_rope_dim")
    nope, value_width = fields.size("qk_nope_dim"), fields.count("v_head_dim")
    query_rank, bias = fields.optional("q_lora_rank"), fields.flag("qkv_bias")
    weights: list[Weight] = []
    if query_rank is None:
        weights += matrix(f"{_ATTN}.q_proj", "attention", heads * (nope + rope), hidden)
    else:
        weights += matrix(f"{_ATTN}.q_a_proj", "attention", query_rank, hidden, bias)
        weights += norm(fields, f"{_ATTN}.q_a_layernorm", query_rank)
        weights += matrix(f"{_ATTN}.q_b_proj", "attention", heads * (nope + rope), query_rank)
    weights += matrix(f"{_ATTN}.kv_a_proj_with_mqa", "attention", rank + rope, hidden, bias)
    weights += norm(fields, f"{_ATTN}.kv_a_layernorm", rank)
    weights += matrix(f"{_ATTN}.kv_b_proj", "attention", heads * (nope + value_width), rank)
    weights += matrix(f"{_ATTN}.o_proj", "attention", hidden, heads * value_width, fields.flag("o_bias"))
    if fields.choice("output_gate", ("none", "separate")) == "separate":
        weights += matrix(f"{_ATTN}.g_proj", "attention", heads * value_width, hidden)
    sparse = fields.optional("index_topk")
    cache = Cache(
        name=f"{name}_sparse" if sparse else name,
        elements=rank + rope,
        flops_per_pair=2 * heads * (2 * rank + rope),
        kv_heads=1,
        top_k=sparse,
    )
    part = Part(weights=tuple(weights), caches=(cache,))
    if not sparse or fields.flag("index_shared"):
        return part
    return part + _indexer(fields, query_rank or hidden)


def _indexer(fields: Fields, query_in: int) -> Part:
    """The small heads that score every cached token and pick those attended (DeepSeek sparse attention)."""
    hidden, heads, width = fields.count("hidden"), fields.count("index_heads"), fields.count("index_dim")
    weights = matrix(f"{_ATTN}.indexer.wq_b", "attention", heads * width, query_in)
    weights += matrix(f"{_ATTN}.indexer.wk", "attention", width, hidden)
    weights += norm(fields, f"{_ATTN}.indexer.k_norm", width, "layernorm")
    weights += matrix(f"{_ATTN}.indexer.weights_proj", "attention", heads, hidden)
    return Part(weights=tuple(weights), caches=(index_cache(heads, width),))


def index_cache(heads: int, width: int, tokens_per_entry: int = 1) -> Cache:
    """The indexer's own keys, one head shared by its queries; every cached entry is scored."""
    return Cache(
        name="indexer",
        elements=width,
        flops_per_pair=2 * heads * width,
        kv_heads=1,
        tokens_per_entry=tokens_per_entry,
    )


def block_sparse(fields: Fields) -> Part:
    """Grouped heads over blocks of tokens that a few indexer heads choose (MiniMax)."""
    part = grouped(fields, "block_sparse")
    hidden, heads, width = fields.count("hidden"), fields.count("index_heads"), fields.count("index_dim")
    weights = matrix(f"{_ATTN}.index_q_proj", "attention", heads * width, hidden)
    weights += matrix(f"{_ATTN}.index_k_proj", "attention", width, hidden)
    weights += norm(fields, f"{_ATTN}.index_q_norm", width)
    weights += norm(fields, f"{_ATTN}.index_k_norm", width)
    main = part.caches[0]
    chosen = Cache(
        name=main.name,
        elements=main.elements,
        flops_per_pair=main.flops_per_pair,
        kv_heads=main.kv_heads,
        top_k=fields.count("index_topk_blocks") * fields.count("index_block"),
    )
    return Part(weights=part.weights + tuple(weights), caches=(chosen, index_cache(heads, width)))
