"""Decoders with routed experts and plain full attention: model_type to traits."""

from __future__ import annotations

from typing import Any, Final

from specmath.hf.families_common import (
    AFTER_DENSE,
    BIASES,
    EXPERT_COUNT,
    MOE,
    QK_SWITCH,
    SAME_WIDTH,
    SHARED,
    SPARSE_STEP,
    WINDOW,
    shared_times_width,
)
from specmath.hf.families_dense import QWEN2, QWEN3
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import listed, moe_between, moe_everywhere, repeated, typed, windowed

QWEN_MOE: Final[Traits] = {**MOE, **QWEN3, **SPARSE_STEP, "mixers": repeated("full")}


MIXTRAL: Final[Traits] = {**MOE, **SAME_WIDTH, "mlp_width": 0, "window": WINDOW, "mixers": windowed}


DEEPSEEK_MOE: Final[Traits] = {
    **MOE,
    **BIASES,
    **SHARED,
    **AFTER_DENSE,
    "mlp_bias": False,
    "mtp": "last_layer",
}


GLM_MOE: Final[Traits] = {**DEEPSEEK_MOE, **QK_SWITCH, "o_bias": False}


GRANITE_MOE: Final[Traits] = {**MOE, **BIASES, **SAME_WIDTH, "mlp_width": 0, "mlp_bias": False}


HUNYUAN_MOE: Final[Traits] = {
    **MOE,
    "qkv_bias": key("attention_bias", default=False),
    "o_bias": key("attention_bias", default=False),
    "qk_norm": lambda fields: "head" if fields.flag("use_qk_norm") else "none",
    "use_qk_norm": key("use_qk_norm", default=True),
    "expert_width": key("moe_intermediate_size", "intermediate_size"),
    "shared_count": key("num_shared_expert", default=1),
    "shared_width": lambda fields: _zipped_product(fields, "shared_count", "expert_width"),
}


def _zipped_product(fields: Fields, left: str, right: str) -> list[int]:
    n_layers = fields.count("n_layers")
    pairs = zip(fields.per_layer(left, n_layers), fields.per_layer(right, n_layers), strict=True)
    return [first * second for first, second in pairs]


ERNIE_MOE: Final[Traits] = {
    **MOE,
    "tie": key("tie_word_embeddings", default=True),
    "qkv_bias": key("use_bias", default=False),
    "o_bias": key("use_bias", default=False),
    "mlp_bias": key("use_bias", default=False),
    "head_bias": key("use_bias", default=False),
    "router_correction": True,
    "shared_width": shared_times_width,
    "moe_first": key("moe_layer_start_index", default=1),
    "moe_last": key("moe_layer_end_index", default=-1),
    "moe_step": key("moe_layer_interval", default=1),
    "ffns": listed(moe_between),
}


def _first(name: str) -> Any:
    """The first of a list: text and image experts stand side by side in one field."""

    def number(fields: Fields) -> Any:
        value = fields.raw(name)
        return value[0] if isinstance(value, list) and value else value

    return number


ERNIE_VL: Final[Traits] = {
    **ERNIE_MOE,
    "experts_of_both": EXPERT_COUNT,
    "widths_of_both": key("moe_intermediate_size"),
    "n_experts": _first("experts_of_both"),
    "expert_width": _first("widths_of_both"),
    "notes": ["Experts for image tokens are left out, as vision towers are."],
}


DBRX: Final[Traits] = {
    **MOE,
    "n_kv_heads": key("attn_config.kv_n_heads"),
    "n_experts": key("ffn_config.moe_num_experts"),
    "top_k": key("ffn_config.moe_top_k"),
    "expert_width": key("ffn_config.ffn_hidden_size"),
    "norm": "layernorm_no_bias",
    "mlp_width": 0,
}


BAILING: Final[Traits] = {
    **DEEPSEEK_MOE,
    "qkv_bias": key("use_qkv_bias", default=False),
    "o_bias": key("use_bias", default=False),
    "use_qk_norm": key("use_qk_norm", default=False),
    "qk_norm": lambda fields: "head" if fields.flag("use_qk_norm") else "none",
}


FAMILIES: Final[dict[str, Traits]] = {
    "mixtral": MIXTRAL,
    "phimoe": {
        **MIXTRAL,
        "norm": "layernorm",
        "qkv_bias": key("attention_bias", default=False),
        "o_bias": key("attention_bias", default=False),
        "head_bias": key("lm_head_bias", default=False),
    },
    "qwen2_moe": {
        **MOE,
        **QWEN2,
        **SPARSE_STEP,
        "qkv_bias": key("qkv_bias", default=True),
        "shared_width": key("shared_expert_intermediate_size"),
        "shared_gate": True,
        "mixers": repeated("full"),
    },
    "qwen3_moe": QWEN_MOE,
    "qwen3_vl_moe": QWEN_MOE,
    "qwen3_omni_moe": QWEN_MOE,
    "deepseek": DEEPSEEK_MOE,
    "glm4_moe": GLM_MOE,
    "glm4v_moe": GLM_MOE,
    "dots1": {**DEEPSEEK_MOE, "qk_norm": "head", "window": WINDOW, "mixers": typed(repeated("full"))},
    "bailing_moe": BAILING,
    "bailing_moe_v2": {**BAILING, "qk_norm": "head"},
    "olmoe": {
        **MOE,
        **SAME_WIDTH,
        "mlp_width": 0,
        "qkv_bias": key("attention_bias", default=False),
        "o_bias": key("attention_bias", default=False),
        "qk_norm": "whole",
    },
    "flex_olmo": {
        **MOE,
        **SAME_WIDTH,
        "mlp_width": 0,
        "qkv_bias": key("attention_bias", default=False),
        "o_bias": key("attention_bias", default=False),
        "qk_norm": "whole",
    },
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": {**GRANITE_MOE, "shared_width": key("shared_intermediate_size", default=0)},
    "aria": {
        **MOE,
        **BIASES,
        **SAME_WIDTH,
        **SHARED,
        "mlp_width": 0,
        "shared_count": key("moe_num_shared_experts", default=2),
    },
    "jetmoe": {
        **MOE,
        **SAME_WIDTH,
        "tie": key("tie_word_embeddings", default=True),
        "head_dim": key("kv_channels"),
        "n_kv_heads": key("num_key_value_heads"),
        "n_heads": lambda fields: fields.count("n_kv_heads") * fields.count("top_k"),
        "mixers": repeated("expert_attention"),
        "ffns": lambda fields: ["biased_moe"] * fields.count("n_layers"),
    },
    "hunyuan_v1_moe": HUNYUAN_MOE,
    "hunyuan": HUNYUAN_MOE,
    "ernie4_5_moe": ERNIE_MOE,
    "ernie4_5_moe_vl": ERNIE_VL,
    "ernie4_5_vl_moe": ERNIE_VL,
    "dbrx": DBRX,
    "solar_open": {**DEEPSEEK_MOE, "o_bias": False, "mlp_width": 0, "ffns": listed(moe_everywhere)},
    "hy_v3": {
        **DEEPSEEK_MOE,
        "mlp_bias": key("mlp_bias", default=False),
        "qk_norm": "head",
        "first_dense": key("first_k_dense_replace", default=1),
    },
}
"""model_type, without a `_text` ending, to the family's fields."""
