"""Decoders with recurrent layers, alone or among attention: model_type to traits."""

from __future__ import annotations

from typing import Any, Final

from specmath.hf.families_common import BIASES, DECODER, EXPERT_COUNT, MOE, same_as, times
from specmath.hf.fields import Fields, Traits, key, shown
from specmath.hf.patterns import (
    dense_everywhere,
    every_nth_full,
    listed,
    moe_after_dense,
    moe_by_sparse_step,
    repeated,
    typed,
)

MOE_OR_DENSE: Final[Traits] = {
    **MOE,
    "n_experts": key(*EXPERT_COUNT.names, default=0, null=0, quiet=True),
    "moe_step": key("decoder_sparse_step", default=1, quiet=True),
    "dense_layers": key("mlp_only_layers", default=[], quiet=True),
    "ffns": listed(moe_by_sparse_step),
}


DELTA_NET: Final[Traits] = {
    "linear_key_heads": key("linear_num_key_heads"),
    "linear_value_heads": key("linear_num_value_heads"),
    "linear_key_dim": key("linear_key_head_dim"),
    "linear_value_dim": key("linear_value_head_dim"),
    "conv_kernel": key("linear_conv_kernel_dim"),
    "linear_mixer": "delta_net",
    "period": key("full_attention_interval", default=4),
    "mixers": typed(every_nth_full("linear", "period")),
}


QWEN_NEXT: Final[Traits] = {
    **MOE_OR_DENSE,
    **DELTA_NET,
    "qkv_bias": key("attention_bias", default=False),
    "o_bias": key("attention_bias", default=False),
    "qk_norm": "head",
    "output_gate": "elementwise",
    "shared_width": key("shared_expert_intermediate_size", default=0),
    "shared_gate": True,
    "mtp": "plain_layer",
}


MAMBA2: Final[Traits] = {
    "ssm_mixer": "mamba2",
    "linear_mixer": "mamba2",
    "ssm_norm": True,
    "conv_bias": key("mamba_conv_bias", "use_conv_bias", default=True),
    "ssm_bias": key("mamba_proj_bias", default=False),
    "ssm_out_bias": same_as("ssm_bias"),
}


_BAMBA_SSM: Final[Traits] = {
    **MAMBA2,
    "ssm_heads": key("mamba_n_heads"),
    "ssm_groups": key("mamba_n_groups"),
    "ssm_state": key("mamba_d_state"),
    "conv_kernel": key("mamba_d_conv"),
    "expand": key("mamba_expand", default=2),
    "ssm_inner": lambda fields: int(fields.count("expand") * fields.count("hidden")),
}


MAMBA1: Final[Traits] = {
    "ssm_mixer": "mamba",
    "ssm_norm": False,
    "ssm_state": key("mamba_d_state", "state_size", "d_state", default=16),
    "conv_kernel": key("mamba_d_conv", "conv_kernel", "d_conv", default=4),
    "conv_bias": key("mamba_conv_bias", "use_conv_bias", default=True),
    "ssm_bias": key("mamba_proj_bias", "use_bias", default=False),
    "expand": key("mamba_expand", "expand", default=2),
    "ssm_inner": lambda fields: fields.count("expand") * fields.count("hidden"),
    "rank_named": key("mamba_dt_rank", "time_step_rank", default="auto", quiet=True),
    "ssm_rank": lambda fields: (
        -(-fields.count("hidden") // 16) if fields.raw("rank_named") == "auto" else fields.count("rank_named")
    ),
}


_NO_FFN: Final[Traits] = {
    "n_heads": 1,
    "n_kv_heads": 1,
    "head_dim": 1,
    "mlp_width": 0,
    "ffn_norms": 0,
    "ffns": lambda fields: ["none"] * fields.count("n_layers"),
}


def _lfm2_width(fields: Fields) -> int:
    """LFM2 writes a nominal width and uses two thirds of it, rounded up to a multiple."""
    width = fields.count("nominal_width")
    if not fields.flag("adjust"):
        return width
    shrunk, unit = int(2 * width / 3), fields.count("multiple")
    multiplier = fields.raw("multiplier")
    if not isinstance(multiplier, int | float) or not 0 < multiplier < 1000:
        raise fields.error("multiplier", f"must be a number above 0, got {shown(multiplier)}")
    shrunk = int(multiplier * shrunk)
    return -(-shrunk // unit) * unit


LFM2: Final[Traits] = {
    **DECODER,
    "tie": key("tie_word_embeddings", "tie_embedding", default=True),
    "nominal_width": key("block_ff_dim", "intermediate_size"),
    "adjust": key("block_auto_adjust_ff_dim", default=True),
    "multiple": key("block_multiple_of", default=256),
    "multiplier": key("block_ffn_dim_multiplier", default=1.0),
    "mlp_width": _lfm2_width,
    "qk_norm": "head",
    "conv_kernel": key("conv_L_cache"),
    "conv_bias": key("conv_bias", default=False),
    "full_layers": key("full_attn_idxs"),
    "mixers": typed(lambda fields: _lfm2_layers(fields)),
    "embedding_norm": "none",
}


def _lfm2_layers(fields: Fields) -> list[str]:
    full = set(fields.numbers("full_layers"))
    return ["full" if layer in full else "short_conv" for layer in range(fields.count("n_layers"))]


def _by_period(mixer: str) -> Any:
    """Attention on every n-th layer from an offset on, another mixer elsewhere (Jamba)."""

    def mixers(fields: Fields) -> list[str]:
        period, offset = fields.count("attention_period"), fields.size("attention_offset")
        return ["full" if layer % period == offset else mixer for layer in range(fields.count("n_layers"))]

    return mixers


def _jamba_ffns(fields: Fields) -> list[str]:
    period, offset = fields.count("expert_period"), fields.size("expert_offset")
    sparse = fields.size("n_experts") > 1
    return [
        "moe" if sparse and layer % period == offset else "mlp" for layer in range(fields.count("n_layers"))
    ]


def _attention_at(fields: Fields) -> list[str]:
    chosen = fields.numbers("attention_layers") if fields.raw("attention_layers") is not None else []
    return ["full" if layer in chosen else "mamba2" for layer in range(fields.count("n_layers"))]


def _minimax_layers(fields: Fields) -> list[str]:
    listed_kinds = fields.raw("attention_kinds")
    if listed_kinds is None:
        return list(
            typed(
                lambda inner: [("full", "lightning")[layer % 2] for layer in range(inner.count("n_layers"))]
            )(fields)
        )
    return [
        "full" if kind else "lightning"
        for kind in fields.per_layer("attention_kinds", fields.count("n_layers"))
    ]


MINIMAX: Final[Traits] = {
    **MOE,
    "expert_width": key("intermediate_size"),
    "mlp_width": 0,
    "attention_kinds": key("attn_type_list", default=None, quiet=True),
    "linear_mixer": "lightning",
    "mixers": _minimax_layers,
}


def _griffin(fields: Fields) -> list[str]:
    names = {"recurrent": "rg_lru", "attention": "window"}
    pattern = [names.get(str(entry), "?") for entry in fields.items("block_types")]
    if "?" in pattern or not pattern:
        raise fields.error("block_types", "must name recurrent and attention blocks")
    return [pattern[layer % len(pattern)] for layer in range(fields.count("n_layers"))]


def _rwkv5_width(fields: Fields) -> int:
    """3.5 times the width, rounded down to a multiple of 32, where the file says null."""
    return fields.optional("given_width") or int(3.5 * fields.count("hidden")) // 32 * 32


RWKV5: Final[Traits] = {
    **DECODER,
    **_NO_FFN,
    "norm": "layernorm",
    "linear_dim": key("head_size"),
    "attention_width": key("attention_hidden_size", default=same_as("hidden"), quiet=True),
    "given_width": key("intermediate_size", default=None, null=None, quiet=True),
    "mlp_width": _rwkv5_width,
    "mixers": repeated("rwkv5"),
    "ffn_norms": 1,
    "ffns": lambda fields: ["rwkv"] * fields.count("n_layers"),
    "embedding_norm": "layernorm",
    "max_context": None,
}

FAMILIES: Final[dict[str, Traits]] = {
    "qwen3_next": QWEN_NEXT,
    "qwen3_5": {**QWEN_NEXT, "ffns": dense_everywhere},
    "qwen3_5_moe": QWEN_NEXT,
    "lfm2": LFM2,
    "lfm2_moe": {
        **MOE,
        **LFM2,
        "mlp_width": key("intermediate_size"),
        "first_dense": key("num_dense_layers", default=2),
        "ffns": listed(moe_after_dense),
    },
    "bamba": {
        **DECODER,
        **BIASES,
        **_BAMBA_SSM,
        "attention_layers": key("attn_layer_indices", default=None, quiet=True),
        "mixers": typed(_attention_at),
    },
    "granitemoehybrid": {
        **MOE,
        **BIASES,
        **_BAMBA_SSM,
        "mlp_bias": False,
        "expert_width": key("intermediate_size"),
        "mlp_width": 0,
        "n_experts": key("num_local_experts", default=0, quiet=True),
        "shared_width": key("shared_intermediate_size", default=1024),
        "ffns": lambda fields: ["moe" if fields.size("n_experts") else "shared"] * fields.count("n_layers"),
        "mixers": typed(repeated("mamba2")),
    },
    "falcon_h1": {
        **DECODER,
        **BIASES,
        **_BAMBA_SSM,
        "ssm_inner": key(
            "mamba_d_ssm", default=lambda fields: fields.count("expand") * fields.count("hidden"), quiet=True
        ),
        "ssm_norm": key("mamba_rms_norm", default=False),
        "ssm_out_bias": key("projectors_bias", default=False),
        "o_bias": key("attention_bias", default=False),
        "mixers": repeated("parallel_mamba2"),
    },
    "jamba": {
        **MOE,
        **MAMBA1,
        "ssm_norm": True,
        "expert_width": key("intermediate_size"),
        "expert_period": key("expert_layer_period", default=2),
        "expert_offset": key("expert_layer_offset", default=1),
        "attention_period": key("attn_layer_period", default=8),
        "attention_offset": key("attn_layer_offset", default=4),
        "mixers": _by_period("mamba"),
        "ffns": _jamba_ffns,
    },
    "mamba": {
        **DECODER,
        **_NO_FFN,
        **MAMBA1,
        "tie": key("tie_word_embeddings", default=True),
        "n_layers": key("num_hidden_layers", "n_layer"),
        "ssm_inner": key("intermediate_size", "d_inner", default=times("hidden", 2), quiet=True),
        "mixers": repeated("mamba"),
    },
    "falcon_mamba": {
        **DECODER,
        **_NO_FFN,
        **MAMBA1,
        "tie": key("tie_word_embeddings", default=True),
        "ssm_inner": key("intermediate_size", default=times("hidden", 2), quiet=True),
        "mixers": repeated("mamba"),
    },
    "mamba2": {
        **DECODER,
        **_NO_FFN,
        **MAMBA2,
        "ssm_heads": key("num_heads"),
        "ssm_state": key("state_size"),
        "ssm_groups": key("n_groups"),
        "conv_kernel": key("conv_kernel", default=4),
        "expand": key("expand", default=2),
        "ssm_bias": key("use_bias", default=False),
        "ssm_inner": lambda fields: fields.count("expand") * fields.count("hidden"),
        "mixers": repeated("mamba2"),
    },
    "minimax": MINIMAX,
    "minimax_text_01": MINIMAX,
    "recurrent_gemma": {
        **DECODER,
        "tie": key("tie_word_embeddings", default=True),
        "qkv_bias": key("attention_bias", default=False),
        "o_bias": True,
        "mlp_bias": True,
        "inner_width": key("intermediate_size"),
        "mlp_width": lambda fields: fields.count("inner_width") // 2,
        "lru_width": key("lru_width", default=same_as("hidden"), quiet=True),
        "conv_kernel": key("conv1d_width", default=4),
        "block_types": key("block_types", "_block_types"),
        "window": key("attention_window_size", default=2048),
        "mixers": _griffin,
    },
    "rwkv5": RWKV5,
    "rwkv": {
        **DECODER,
        **_NO_FFN,
        "norm": "layernorm",
        "attention_width": key("attention_hidden_size", default=same_as("hidden"), quiet=True),
        "mlp_width": key("intermediate_size", default=times("hidden", 4), quiet=True),
        "mixers": repeated("rwkv"),
        "ffn_norms": 1,
        "ffns": lambda fields: ["rwkv"] * fields.count("n_layers"),
        "embedding_norm": "layernorm",
        "max_context": None,
    },
}
"""model_type, without a `_text` ending, to the family's fields."""
