"""Decoders with latent (MLA), sparse or compressed attention: model_type to traits."""

from __future__ import annotations

from typing import Final

from specmath.hf.compressed import hyper_connections, hyper_head
from specmath.hf.families_common import INDEXER, LLAMA, MLA, MOE, SHARED, TIED, shared_times_width
from specmath.hf.families_moe import DEEPSEEK_MOE
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import from_index_lists, listed, moe_after_dense, moe_everywhere, repeated, typed
from specmath.hf.weights import Weight, vector

DEEPSEEK: Final[Traits] = {**DEEPSEEK_MOE, **MLA}


DEEPSEEK_SPARSE: Final[Traits] = {**DEEPSEEK, **INDEXER}


def _dots_traits(fields: Fields) -> list[dict[str, object]]:
    """Layers that reuse the token list of the last full indexer have none of their own (GLM-5.2)."""
    kinds = fields.raw("indexer_types")
    n_layers = fields.count("n_layers")
    if not isinstance(kinds, list):
        return [{}] * n_layers
    return [{"index_shared": kind == "shared"} for kind in kinds[:n_layers]]


def _ratios(fields: Fields) -> list[dict[str, object]]:
    """Compression ratio of each layer, by number or by kind; the list may cover the MTP layer too."""
    kinds, rates = fields.raw("layer_types"), fields.raw("rates")
    if fields.raw("ratios") is None and isinstance(kinds, list) and isinstance(rates, dict):
        return [{"ratio": rates.get(kind, 0)} for kind in kinds]
    return [{"ratio": ratio} for ratio in fields.per_layer("listed_ratios", fields.count("n_layers"))]


DEEPSEEK_V4: Final[Traits] = {
    **MOE,
    **SHARED,
    "index_heads": INDEXER["index_heads"],
    "index_dim": INDEXER["index_dim"],
    "topk_entries": key("index_topk"),
    "head_dim": key("head_dim"),
    "n_kv_heads": 1,
    "q_lora_rank": key("q_lora_rank"),
    "o_lora_rank": key("o_lora_rank"),
    "o_groups": key("o_groups"),
    "window": key("sliding_window"),
    "ratios": key("compress_ratios", default=None, quiet=True),
    "rates": key("compress_rates", default=None, quiet=True),
    "listed_ratios": key("compress_ratios"),
    "streams": key("hc_mult"),
    "mixers": repeated("compressed"),
    "ffns": moe_everywhere,
    "layer_traits": _ratios,
    "layer_extras": hyper_connections,
    "model_extras": hyper_head,
    "mtp": "compressed",
}


def _kimi_layers(fields: Fields) -> list[str]:
    return list(typed(from_index_lists("full_layers", "kda_layers", "mla", "kda", base=1))(fields))


KIMI_LINEAR: Final[Traits] = {
    **MOE,
    **MLA,
    "q_lora_rank": key("q_lora_rank", default=None, null=None, quiet=True),
    "first_dense": key("first_k_dense_replace", default=0),
    "shared_width": shared_times_width,
    "ffns": listed(moe_after_dense),
    "full_layers": key("linear_attn_config.full_attn_layers"),
    "kda_layers": key("linear_attn_config.kda_layers"),
    "linear_heads": key("linear_attn_config.num_heads", "linear_num_heads"),
    "linear_dim": key("linear_attn_config.head_dim", "linear_head_dim"),
    "conv_kernel": key("linear_attn_config.short_conv_kernel_size", "linear_conv_kernel_dim"),
    "full_rank_gate": key("linear_attn_config.use_full_rank_gate", default=False, quiet=True),
    "output_gate": lambda fields: "separate" if fields.flag("mla_gate") else "none",
    "mla_gate": key("mla_use_output_gate", default=False, quiet=True),
    "expert_latent": key("routed_expert_hidden_size", default=None, quiet=True),
    "latent_norm": key("latent_moe_use_norm", default=False, quiet=True),
    "residual_block": key("attn_res_block_size", default=None, quiet=True),
    "layer_extras": lambda fields: _residual_queries(fields, 4),
    "model_extras": lambda fields: _residual_queries(fields, 2),
    "full_mixer": "mla",
    "linear_mixer": "kda",
    "mixers": _kimi_layers,
}


def _residual_queries(fields: Fields, rows: int) -> list[Weight]:
    """Attention over earlier blocks' residuals: a query and a norm before each sublayer and at the end."""
    if not fields.optional("residual_block"):
        return []
    return [vector("attn_res", rows * fields.count("hidden"))]


FAMILIES: Final[dict[str, Traits]] = {
    "minicpm3": {**LLAMA, **MLA, **TIED},
    "youtu": {**LLAMA, **MLA, **TIED, "mlp_bias": False},
    "deepseek_v2": DEEPSEEK,
    "deepseek_vl_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": DEEPSEEK_SPARSE,
    "deepseek_v4": DEEPSEEK_V4,
    "kimi_k2": DEEPSEEK,
    "glm4_moe_lite": {**DEEPSEEK, "first_dense": key("first_k_dense_replace", default=1)},
    "glm_moe_dsa": {
        **DEEPSEEK_SPARSE,
        "indexer_types": key("indexer_types", default=None, quiet=True),
        "layer_traits": _dots_traits,
    },
    "longcat_flash": {
        **MOE,
        **MLA,
        "mlp_width": key("ffn_hidden_size"),
        "n_layers": key("num_layers", "num_hidden_layers"),
        "router_bias": key("router_bias", default=False, quiet=True),
        "router_rows": lambda fields: fields.count("n_experts") + fields.size("zero_experts"),
        "zero_experts": key("zero_expert_num", default=0),
        "mixer_norms": 2,
        "ffn_norms": 2,
        "mixers": repeated("double_mla"),
        "ffns": lambda fields: ["double_mlp_moe"] * fields.count("n_layers"),
        "notes": [
            "Tokens may choose experts that do nothing; all chosen ones are counted as working, the most."
        ],
    },
    "kimi_linear": KIMI_LINEAR,
}
"""model_type, without a `_text` ending, to the family's fields."""
