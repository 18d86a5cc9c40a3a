"""Decoders with routed experts and mixed, windowed or block-sparse attention: model_type to traits."""

from __future__ import annotations

from typing import Final

from specmath.hf.families_common import AFTER_DENSE, MOE, SHARED, WINDOW, same_as
from specmath.hf.families_dense import COHERE, EXAONE4
from specmath.hf.families_moe import DEEPSEEK_MOE, GRANITE_MOE, MIXTRAL, QWEN_MOE
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import (
    every_nth_full,
    listed,
    moe_after_dense,
    moe_everywhere,
    moe_from_list,
    repeated,
    typed,
    window_or_full,
    windowed,
)


def _mimo_mixers(fields: Fields) -> list[str]:
    pattern = fields.per_layer("pattern", fields.count("n_layers"))
    local = window_or_full(fields)
    return [local if entry else "full" for entry in pattern]


def _mimo_traits(fields: Fields) -> list[dict[str, object]]:
    """Window layers have their own head counts and widths, and a learned sink a head."""
    own: dict[str, object] = {
        "n_heads": fields.count("swa_heads"),
        "n_kv_heads": fields.count("swa_kv_heads"),
        "head_dim": fields.count("swa_head_dim"),
        "v_head_dim": fields.count("swa_v_head_dim"),
        "sinks": fields.flag("window_sinks"),
    }
    return [
        own if mixer != "full" else {"sinks": fields.flag("full_sinks")} for mixer in fields.raw("mixers")
    ]


MIMO_V2: Final[Traits] = {
    **DEEPSEEK_MOE,
    "qkv_bias": key("attention_bias", default=False),
    "o_bias": False,
    "v_head_dim": key("v_head_dim", default=same_as("head_dim")),
    "window": key("sliding_window", "sliding_window_size"),
    "pattern": key("hybrid_layer_pattern"),
    "mixers": typed(_mimo_mixers),
    "swa_heads": key("swa_num_attention_heads", default=same_as("n_heads")),
    "swa_kv_heads": key("swa_num_key_value_heads"),
    "swa_head_dim": key("swa_head_dim", default=same_as("head_dim")),
    "swa_v_head_dim": key("swa_v_head_dim", default=same_as("v_head_dim")),
    "window_sinks": key("add_swa_attention_sink_bias", default=True),
    "full_sinks": key("add_full_attention_sink_bias", default=False),
    "layer_traits": _mimo_traits,
    "mtp_layers": 3,
    "mtp": "window_mlp",
}


def _step_traits(fields: Fields) -> list[dict[str, object]]:
    other = fields.raw("other_attention")
    if not isinstance(other, dict):
        return [{}] * fields.count("n_layers")
    names = {"num_attention_heads": "n_heads", "num_attention_groups": "n_kv_heads", "head_dim": "head_dim"}
    own = {code: other[name] for name, code in names.items() if name in other}
    return [own if mixer != "full" else {} for mixer in fields.raw("mixers")]


STEP: Final[Traits] = {
    **MOE,
    "n_kv_heads": key("num_attention_groups", "num_key_value_heads"),
    "n_experts": key("moe_num_experts", "num_experts", "n_routed_experts"),
    "top_k": key("moe_top_k", "num_experts_per_tok"),
    "shared_width": key("share_expert_dim", "share_expert_dims", "n_shared_experts", default=0),
    "qk_norm": "head",
    "output_gate": lambda fields: "per_head" if fields.flag("head_gate") else "none",
    "head_gate": key("use_head_wise_attn_gate", default=True),
    "window": WINDOW,
    "mixers": typed(windowed),
    "moe_layers": key("moe_layers_enum", default=None, quiet=True),
    "ffns": lambda fields: moe_from_list(fields) if fields.raw("moe_layers") else moe_after_dense(fields),
    "other_attention": key("attention_other_setting", default=None, quiet=True),
    "layer_traits": _step_traits,
}


def _minimax_m3_mixers(fields: Fields) -> list[str]:
    if fields.raw("layer_types") is not None:
        return list(typed([])(fields))
    flags = fields.per_layer("sparse_layers", fields.count("n_layers"))
    return ["block_sparse" if flag else "full" for flag in flags]


MINIMAX_M2: Final[Traits] = {
    **MIXTRAL,
    "expert_width": key("intermediate_size", "moe_intermediate_size"),
    "mixers": repeated("full"),
    "qk_norm": lambda fields: "whole" if fields.flag("use_qk_norm") else "none",
    "use_qk_norm": key("use_qk_norm", default=True),
}


MINIMAX_M3: Final[Traits] = {
    **MOE,
    "qk_norm": "head",
    "expert_width": key("moe_intermediate_size", "intermediate_size"),
    "mlp_width": key("dense_intermediate_size"),
    "shared_one": key("shared_intermediate_size", default=0),
    "shared_count": key("n_shared_experts", default=1),
    "shared_width": lambda fields: fields.size("shared_one") * fields.size("shared_count"),
    "index_heads": key("sparse_attention_config.sparse_num_index_heads", "index_n_heads"),
    "index_dim": key("sparse_attention_config.sparse_index_dim", "index_head_dim"),
    "index_block": key("sparse_attention_config.sparse_block_size", "index_block_size"),
    "index_topk_blocks": key("sparse_attention_config.sparse_topk_blocks", "index_topk_blocks"),
    "sparse_layers": key("sparse_attention_config.sparse_attention_freq"),
    "layer_type_names": {"minimax_m3_sparse": "block_sparse", "sparse_attention": "block_sparse"},
    "mixers": _minimax_m3_mixers,
    "ffns": listed(moe_after_dense),
}


LLAMA4: Final[Traits] = {
    **MOE,
    "qkv_bias": key("attention_bias", default=False),
    "o_bias": key("attention_bias", default=False),
    "expert_width": key("intermediate_size"),
    "mlp_width": key("intermediate_size_mlp"),
    "shared_width": key("intermediate_size"),
    "moe_step": key("interleave_moe_layer_step", default=1),
    "dense_layers": [],
    "moe_layers": key("moe_layers", default=None, quiet=True),
    "ffns": listed(moe_from_list),
    "window": key("attention_chunk_size", default=8192),
    "period": key("no_rope_layer_interval", default=4),
    "mixers": typed(every_nth_full("chunked", "period")),
}


GPT_OSS: Final[Traits] = {
    **MIXTRAL,
    "qkv_bias": key("attention_bias", default=True),
    "o_bias": key("attention_bias", default=True),
    "sinks": True,
    "router_bias": True,
    "expert_bias": True,
    "window": key("sliding_window", default=128),
    "mixers": typed(
        lambda fields: [("window", "full")[layer % 2] for layer in range(fields.count("n_layers"))]
    ),
}


FAMILIES: Final[dict[str, Traits]] = {
    "granitemoe_swa": {
        **GRANITE_MOE,
        "shared_width": key("shared_intermediate_size", default=0),
        "sinks": True,
        "window": key("sliding_window", default=128),
        "mixers": typed(windowed),
    },
    "mellum": {
        **QWEN_MOE,
        "window": key("sliding_window", default=1024),
        "mixers": typed(repeated("full")),
        "ffns": listed(moe_everywhere),
    },
    "gpt_oss": GPT_OSS,
    "llama4": LLAMA4,
    "mimo_v2_flash": MIMO_V2,
    "mimo_v2": MIMO_V2,
    "step3p5": STEP,
    "step3p7": STEP,
    "minimax_m2": MINIMAX_M2,
    "minimax_m3": MINIMAX_M3,
    "minimax_m3_vl": MINIMAX_M3,
    "exaone_moe": {
        **EXAONE4,
        **MOE,
        **SHARED,
        **AFTER_DENSE,
        "qk_norm": "head",
        "mixers": EXAONE4["mixers"],
        "window": EXAONE4["window"],
        "first_dense": key("first_k_dense_replace", default=1),
    },
    "cohere2_moe": {
        **MOE,
        **COHERE,
        "ffns": listed(moe_everywhere),
        "tie": key("tie_word_embeddings", default=True),
        "norm": "layernorm_no_bias",
        "ffn_norms": 0,
        "expert_width": key("intermediate_size"),
    },
    "afmoe": {
        **MOE,
        **SHARED,
        "qkv_bias": key("attention_bias", default=False),
        "o_bias": key("attention_bias", default=False),
        "router_correction": True,
        "qk_norm": "head",
        "mixer_norms": 2,
        "ffn_norms": 2,
        "output_gate": "separate",
        "first_dense": key("num_dense_layers", default=1),
        "ffns": listed(moe_after_dense),
        "window": key("sliding_window", default=1024),
        "period": key("global_attn_every_n_layers", default=4),
        "mixers": typed(every_nth_full("window", "period")),
    },
}
"""model_type, without a `_text` ending, to the family's fields."""
