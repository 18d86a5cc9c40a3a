"""Decoders with routed experts, all attending: model_type to traits."""

from __future__ import annotations

from typing import Any, Final

from specmath.hf.compressed import hyper_connections, hyper_head
from specmath.hf.families_common import (
    BIASES,
    EXPERT_COUNT,
    INDEXER,
    MLA,
    MOE,
    TOP_K,
    given_head_width,
    same_as,
    shared_times_width,
)
from specmath.hf.families_dense import COHERE, EXAONE4, GEMMA3, QWEN2, QWEN3
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import (
    LAYER_TYPES,
    every_nth_full,
    listed,
    moe_after_dense,
    moe_between,
    moe_by_sparse_step,
    moe_everywhere,
    moe_from_list,
    repeated,
    typed,
    window_or_full,
    windowed,
)
from specmath.hf.weights import Weight, matrix, norm, table, vector

_SAME_WIDTH: Final[Traits] = {"expert_width": key("intermediate_size")}
"""Families whose intermediate_size is the width of an expert."""
_SHARED: Final[Traits] = {"shared_width": shared_times_width}
_AFTER_DENSE: Final[Traits] = {"ffns": listed(moe_after_dense)}
_QK_SWITCH: Final[Traits] = {
    "use_qk_norm": key("use_qk_norm", default=False),
    "qk_norm": lambda fields: "head" if fields.flag("use_qk_norm") else "none",
}
_SPARSE_STEP: Final[Traits] = {
    "n_experts": key(*EXPERT_COUNT.names, default=0, quiet=True),
    "moe_step": key("decoder_sparse_step", default=1),
    "dense_layers": key("mlp_only_layers", default=[], quiet=True),
    "ffns": listed(moe_by_sparse_step),
}
_QWEN_MOE: Final[Traits] = {**MOE, **QWEN3, **_SPARSE_STEP, "mixers": repeated("full")}
_WINDOW: Final = key("sliding_window", default=None, quiet=True)

MIXTRAL: Final[Traits] = {**MOE, **_SAME_WIDTH, "mlp_width": 0, "window": _WINDOW, "mixers": windowed}
DEEPSEEK_MOE: Final[Traits] = {
    **MOE,
    **BIASES,
    **_SHARED,
    **_AFTER_DENSE,
    "mlp_bias": False,
    "mtp": "last_layer",
}
DEEPSEEK: Final[Traits] = {**DEEPSEEK_MOE, **MLA}
DEEPSEEK_SPARSE: Final[Traits] = {**DEEPSEEK, **INDEXER}
GLM_MOE: Final[Traits] = {**DEEPSEEK_MOE, **_QK_SWITCH, "o_bias": False}
GRANITE_MOE: Final[Traits] = {**MOE, **BIASES, **_SAME_WIDTH, "mlp_width": 0, "mlp_bias": False}


def _dots_traits(fields: Fields) -> list[dict[str, object]]:
    """Layers that reuse the token list of the last full indexer have none of their own (GLM-5.2)."""
    kinds = fields.raw("indexer_types")
    n_layers = fields.count("n_layers")
    if not isinstance(kinds, list):
        return [{}] * n_layers
    return [{"index_shared": kind == "shared"} for kind in kinds[:n_layers]]


def _llama4_moe(fields: Fields) -> list[str]:
    return list(moe_from_list(fields))


def _gemma4_kv(fields: Fields) -> list[dict[str, object]]:
    """Full layers have their own head width and count; the last ones borrow the cache of an earlier layer."""
    n_layers = fields.count("n_layers")
    first_borrower = n_layers - fields.size("n_borrowing")
    traits: list[dict[str, object]] = []
    for layer, mixer in enumerate(fields.raw("mixers")):
        own: dict[str, object] = {"borrows_kv": layer >= first_borrower}
        if mixer == "full":
            own["head_dim"] = own["v_head_dim"] = fields.count("global_head_dim")
            if fields.flag("k_eq_v"):
                own |= {"k_is_v": True, "n_kv_heads": fields.count("global_kv_heads")}
        if layer >= first_borrower and fields.flag("double_wide"):
            own["mlp_width"] = 2 * fields.count("mlp_width")
        traits.append(own)
    return traits


def _gemma3n_kv(fields: Fields) -> list[dict[str, object]]:
    n_layers = fields.count("n_layers")
    first_borrower = n_layers - fields.size("n_borrowing")
    return [{"borrows_kv": layer >= first_borrower} for layer in range(n_layers)]


def _gemma3n_layer(fields: Fields) -> list[Weight]:
    """Alternating-update streams and a low-rank residual beside the per-layer input."""
    hidden, streams, rank = fields.count("hidden"), fields.count("streams"), fields.count("laurel_rank")
    weights = [vector("altup", 2 * hidden + hidden * streams + streams**2 + streams**3)]
    weights += matrix("laurel.linear_left", "mlp", rank, hidden) + matrix(
        "laurel.linear_right", "mlp", hidden, rank
    )
    return [*weights, *norm(fields, "laurel.post_laurel_norm", hidden), *_per_layer_inputs(fields)]


def _gemma3n_model(fields: Fields) -> list[Weight]:
    hidden, streams = fields.count("hidden"), fields.count("streams")
    weights: list[Weight] = []
    for number in range(streams - 1):
        weights += matrix(f"altup_projections.{number}", "mlp", hidden, hidden)
        weights += matrix(f"altup_unembed_projections.{number}", "mlp", hidden, hidden)
    return weights + _per_layer_table(fields)


GEMMA3N: Final[Traits] = {
    **GEMMA3,
    "window": key("sliding_window", default=512),
    "period": 5,
    "n_borrowing": key("num_kv_shared_layers", default=15),
    "streams": key("altup_num_inputs", default=4),
    "laurel_rank": key("laurel_rank", default=64),
    "per_layer_dim": key("hidden_size_per_layer_input", default=256),
    "per_layer_vocab": key("vocab_size_per_layer_input", default=262144),
    "layer_traits": _gemma3n_kv,
    "layer_extras": _gemma3n_layer,
    "model_extras": _gemma3n_model,
}
GEMMA4: Final[Traits] = {
    **MOE,
    **GEMMA3,
    "n_experts": key("num_experts", default=0, null=0, quiet=True),
    "top_k": key("top_k_experts", default=0, null=0, quiet=True),
    "expert_width": key("moe_intermediate_size", "expert_intermediate_size", default=0, null=0, quiet=True),
    "head_dim": key("head_dim", default=256),
    "v_head_dim": same_as("head_dim"),
    "global_head_dim": key("global_head_dim", default=512),
    "global_kv_heads": key("num_global_key_value_heads", default=same_as("n_kv_heads"), quiet=True),
    "k_eq_v": key("attention_k_eq_v", default=False, quiet=True),
    "double_wide": key("use_double_wide_mlp", default=False, quiet=True),
    "n_borrowing": key("num_kv_shared_layers", default=0, quiet=True),
    "per_layer_dim": key("hidden_size_per_layer_input", default=256, quiet=False),
    "per_layer_vocab": key("vocab_size_per_layer_input", default=same_as("vocab"), quiet=True),
    "moe_block": key("enable_moe_block", default=False, quiet=True),
    "ffns": lambda fields: ["gemma4_moe" if fields.flag("moe_block") else "mlp"] * fields.count("n_layers"),
    "layer_traits": _gemma4_kv,
    "layer_extras": lambda fields: _per_layer_inputs(fields),
    "model_extras": lambda fields: _per_layer_table(fields),
}


def _per_layer_inputs(fields: Fields) -> list[Weight]:
    """A small input of its own for every layer: gate, projection and norm."""
    hidden, width = fields.count("hidden"), fields.size("per_layer_dim")
    if not width:
        return []
    weights = matrix("per_layer_input_gate", "mlp", width, hidden)
    weights += matrix("per_layer_projection", "mlp", hidden, width)
    return weights + norm(fields, "post_per_layer_input_norm", hidden)


def _per_layer_table(fields: Fields) -> list[Weight]:
    """The table behind these inputs, only looked up, and the projection that joins it."""
    width = fields.size("per_layer_dim")
    if not width:
        return []
    columns = fields.count("n_layers") * width
    weights = [table("embed_tokens_per_layer", fields.count("per_layer_vocab") * columns)]
    weights += matrix("per_layer_model_projection", "mlp", columns, fields.count("hidden"))
    return weights + norm(fields, "per_layer_projection_norm", width)


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
    "window": _WINDOW,
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


def _ratios(fields: Fields) -> list[dict[str, object]]:
    """Compression ratio of each layer, by number or by kind; the list may cover the MTP layer too."""
    kinds, rates = fields.raw("layer_types"), fields.raw("rates")
    if fields.raw("ratios") is None and isinstance(kinds, list) and isinstance(rates, dict):
        return [{"ratio": rates.get(kind, 0)} for kind in kinds]
    return [{"ratio": ratio} for ratio in fields.per_layer("listed_ratios", fields.count("n_layers"))]


DEEPSEEK_V4: Final[Traits] = {
    **MOE,
    **_SHARED,
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


def _hunyuan_top_k(fields: Fields) -> Any:
    return fields.raw("top_k_named")


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
    "ffns": listed(_llama4_moe),
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
        **_SPARSE_STEP,
        "qkv_bias": key("qkv_bias", default=True),
        "shared_width": key("shared_expert_intermediate_size"),
        "shared_gate": True,
        "mixers": repeated("full"),
    },
    "qwen3_moe": _QWEN_MOE,
    "qwen3_vl_moe": _QWEN_MOE,
    "qwen3_omni_moe_thinker": _QWEN_MOE,
    "qwen3_omni_moe": _QWEN_MOE,
    "deepseek": DEEPSEEK_MOE,
    "deepseek_v2": DEEPSEEK,
    "deepseek_vl_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,
    "deepseek_v32": DEEPSEEK_SPARSE,
    "deepseek_v4": DEEPSEEK_V4,
    "kimi_k2": DEEPSEEK,
    "glm4_moe": GLM_MOE,
    "glm4v_moe": GLM_MOE,
    "glm4_moe_lite": {**DEEPSEEK, "first_dense": key("first_k_dense_replace", default=1)},
    "glm_moe_dsa": {
        **DEEPSEEK_SPARSE,
        "indexer_types": key("indexer_types", default=None, quiet=True),
        "layer_traits": _dots_traits,
    },
    "dots1": {**DEEPSEEK_MOE, "qk_norm": "head", "window": _WINDOW, "mixers": typed(repeated("full"))},
    "bailing_moe": BAILING,
    "bailing_moe_v2": {**BAILING, "qk_norm": "head"},
    "olmoe": {
        **MOE,
        **_SAME_WIDTH,
        "mlp_width": 0,
        "qkv_bias": key("attention_bias", default=False),
        "o_bias": key("attention_bias", default=False),
        "qk_norm": "whole",
    },
    "flex_olmo": {
        **MOE,
        **_SAME_WIDTH,
        "mlp_width": 0,
        "qkv_bias": key("attention_bias", default=False),
        "o_bias": key("attention_bias", default=False),
        "qk_norm": "whole",
    },
    "granitemoe": GRANITE_MOE,
    "granitemoeshared": {**GRANITE_MOE, "shared_width": key("shared_intermediate_size", default=0)},
    "granitemoe_swa": {
        **GRANITE_MOE,
        "shared_width": key("shared_intermediate_size", default=0),
        "sinks": True,
        "window": key("sliding_window", default=128),
        "mixers": typed(windowed),
    },
    "aria": {
        **MOE,
        **BIASES,
        **_SAME_WIDTH,
        **_SHARED,
        "mlp_width": 0,
        "shared_count": key("moe_num_shared_experts", default=2),
    },
    "mellum": {
        **_QWEN_MOE,
        "window": key("sliding_window", default=1024),
        "mixers": typed(repeated("full")),
        "ffns": listed(moe_everywhere),
    },
    "jetmoe": {
        **MOE,
        **_SAME_WIDTH,
        "tie": key("tie_word_embeddings", default=True),
        "head_dim": key("kv_channels"),
        "n_kv_heads": key("num_key_value_heads"),
        "n_heads": lambda fields: fields.count("n_kv_heads") * fields.count("top_k"),
        "mixers": repeated("expert_attention"),
        "ffns": lambda fields: ["biased_moe"] * fields.count("n_layers"),
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
            "Tokens may choose experts that do nothing; top-k is counted as if all chosen ones worked, the most."
        ],
    },
    "gpt_oss": GPT_OSS,
    "llama4": LLAMA4,
    "gemma3n": GEMMA3N,
    "gemma4": GEMMA4,
    "gemma4_unified": {**GEMMA4, "per_layer_dim": 0},
    "mimo_v2_flash": MIMO_V2,
    "mimo_v2": MIMO_V2,
    "step3p5": STEP,
    "step3p7": STEP,
    "minimax_m2": MINIMAX_M2,
    "minimax_m3": MINIMAX_M3,
    "minimax_m3_vl": MINIMAX_M3,
    "hunyuan_v1_moe": HUNYUAN_MOE,
    "hunyuan": HUNYUAN_MOE,
    "ernie4_5_moe": ERNIE_MOE,
    "exaone_moe": {
        **EXAONE4,
        **MOE,
        **_SHARED,
        **_AFTER_DENSE,
        "qk_norm": "head",
        "mixers": EXAONE4["mixers"],
        "window": EXAONE4["window"],
        "first_dense": key("first_k_dense_replace", default=1),
    },
    "dbrx": DBRX,
    "solar_open": {**DEEPSEEK_MOE, "o_bias": False, "mlp_width": 0, "ffns": listed(moe_everywhere)},
    "hy_v3": {
        **DEEPSEEK_MOE,
        "mlp_bias": key("mlp_bias", default=False),
        "qk_norm": "head",
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
        **_SHARED,
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

_ = (LAYER_TYPES, TOP_K, given_head_width)
