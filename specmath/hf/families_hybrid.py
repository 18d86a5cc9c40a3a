"""Decoders with recurrent or mixed layers: model_type to traits."""

from __future__ import annotations

from typing import Any, Final

from specmath.hf.families_common import (
    BIASES,
    DECODER,
    EXPERT_COUNT,
    MLA,
    MOE,
    TOP_K,
    same_as,
    shared_times_width,
    times,
)
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import (
    dense_everywhere,
    every_nth_full,
    from_index_lists,
    listed,
    moe_after_dense,
    moe_by_sparse_step,
    repeated,
    typed,
)
from specmath.hf.weights import Weight, matrix, norm, vector

_MOE_OR_DENSE: Final[Traits] = {
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
    **_MOE_OR_DENSE,
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
    "head_dim": 1,
    "mlp_width": 0,
    "ffn_norms": 0,
    "ffns": lambda fields: ["none"] * fields.count("n_layers"),
}
_PATTERN_LETTERS: Final = {
    "M": ("ssm", "none"),
    "*": ("full", "none"),
    "-": ("none", "mlp"),
    "E": ("none", "moe"),
}
_PATTERN_WORDS: Final = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}


def _blocks(fields: Fields) -> list[tuple[str, str]]:
    """Single blocks, by letter or by word: each layer is a mixer or a feed-forward, not both."""
    pattern = fields.raw("pattern")
    if isinstance(pattern, list):
        pattern = "".join(
            _PATTERN_WORDS.get(entry, "?") if isinstance(entry, str) else "?" for entry in pattern
        )
    if not isinstance(pattern, str) or not set(pattern) <= set(_PATTERN_LETTERS):
        raise fields.error("pattern", "must be a pattern of M, *, - and E, or of their names")
    blocks = [_PATTERN_LETTERS[letter] for letter in pattern]
    return [("mamba2" if mixer == "ssm" else mixer, ffn) for mixer, ffn in blocks]


NEMOTRON_H: Final[Traits] = {
    **MOE,
    **BIASES,
    **MAMBA2,
    "pattern": key("hybrid_override_pattern", "layers_block_type"),
    "n_layers": key("num_hidden_layers", default=lambda fields: len(fields.raw("pattern")), quiet=True),
    "mixers": lambda fields: [mixer for mixer, _ in _blocks(fields)],
    "ffns": lambda fields: [ffn for _, ffn in _blocks(fields)],
    "mixer_norms": 1,
    "ffn_norms": 1,
    "norms_follow_parts": True,
    "gated": False,
    "ssm_heads": key("mamba_num_heads"),
    "ssm_head_dim": key("mamba_head_dim"),
    "ssm_inner": lambda fields: fields.count("ssm_heads") * fields.count("ssm_head_dim"),
    "ssm_groups": key("n_groups"),
    "ssm_state": key("ssm_state_size"),
    "conv_kernel": key("conv_kernel"),
    "ssm_bias": key("use_bias", "mamba_proj_bias", default=False),
    "conv_bias": key("use_conv_bias", default=True),
    "n_experts": key(*EXPERT_COUNT.names, default=0, quiet=True),
    "top_k": TOP_K,
    "expert_latent": key("moe_latent_size", default=None, quiet=True),
    "shared_one": key("moe_shared_expert_intermediate_size", default=0, quiet=True),
    "shared_width": lambda fields: fields.size("shared_one") * fields.size("shared_count"),
    "shared_count": key("n_shared_experts", default=1, quiet=True),
    "mtp": "blocks",
    "mtp_pattern": key("mtp_hybrid_override_pattern", "mtp_layers_block_type", default="*E"),
    "mtp_blocks": lambda fields: _blocks(fields.with_traits({"pattern": fields.raw("mtp_pattern")})),
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


def _lfm2_width(fields: Fields) -> int:
    """LFM2 writes a nominal width and uses two thirds of it, rounded up to a multiple."""
    width = fields.count("nominal_width")
    if not fields.flag("adjust"):
        return width
    shrunk, unit = int(2 * width / 3), fields.count("multiple")
    multiplier = fields.raw("multiplier")
    shrunk = int(multiplier * shrunk) if multiplier is not None else shrunk
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
    full = set(fields.items("full_layers"))
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
    chosen = fields.raw("attention_layers") or []
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


def _griffin(fields: Fields) -> list[str]:
    names = {"recurrent": "rg_lru", "attention": "window"}
    pattern = [names.get(str(entry), "?") for entry in fields.items("block_types")]
    if "?" in pattern or not pattern:
        raise fields.error("block_types", "must name recurrent and attention blocks")
    return [pattern[layer % len(pattern)] for layer in range(fields.count("n_layers"))]


def _deci_mixers(fields: Fields) -> list[str]:
    """Layers of a searched architecture: attention may be left out, or be a single matrix."""
    kinds: list[str] = []
    for block in fields.items("block_configs"):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict) or attention.get("replace_with_linear"):
            raise fields.error("block_configs", "must hold a table of attention without replace_with_linear")
        kinds.append("none" if attention.get("no_op") else "full")
    return kinds


def _deci_ffns(fields: Fields) -> list[str]:
    kinds: list[str] = []
    for block in fields.items("block_configs"):
        ffn = block.get("ffn") if isinstance(block, dict) else None
        if not isinstance(ffn, dict) or ffn.get("replace_with_linear"):
            raise fields.error("block_configs", "must hold a table of ffn without replace_with_linear")
        kinds.append("none" if ffn.get("no_op") else "mlp")
    return kinds


def _deci_traits(fields: Fields) -> list[dict[str, object]]:
    """KV heads from the size of a group, width from a multiple of hidden, rounded up to 256."""
    traits: list[dict[str, object]] = []
    for block in fields.items("block_configs"):
        own: dict[str, object] = {}
        if group := block["attention"].get("n_heads_in_group"):
            own["n_kv_heads"] = fields.count("n_heads") // group
        multiple, width = block["ffn"].get("ffn_mult"), block["ffn"].get("intermediate_size")
        if multiple is not None:
            width = -(-int(2 * multiple * fields.count("hidden") / 3) // 256) * 256
        traits.append(own | ({"mlp_width": width} if width else {}))
    return traits


DECI: Final[Traits] = {
    **DECODER,
    **BIASES,
    "n_kv_heads": same_as("n_heads"),
    "mlp_width": 0,
    "block_configs": key("block_configs"),
    "mixers": _deci_mixers,
    "ffns": _deci_ffns,
    "layer_traits": _deci_traits,
}


def _cross_attention(fields: Fields) -> list[Weight]:
    """Decoder attention over the encoder's output, with its norm; its cache is one entry a source token."""
    hidden, inner = fields.count("hidden"), fields.count("n_heads") * fields.count("head_dim")
    weights: list[Weight] = []
    for name in ("q", "k", "v"):
        weights += matrix(f"EncDecAttention.{name}", "attention", inner, hidden)
    weights += matrix("EncDecAttention.o", "attention", hidden, inner)
    return weights + norm(fields, "EncDecAttention.layer_norm", hidden)


def _encoder(fields: Fields) -> list[Weight]:
    """The encoder runs once a request: stored, not read by a decoding step; and both position biases."""
    hidden, heads, width = fields.count("hidden"), fields.count("n_heads"), fields.count("mlp_width")
    attention = 4 * hidden * heads * fields.count("head_dim")
    layer = attention + (3 if fields.flag("gated") else 2) * hidden * width + 2 * hidden
    biases = fields.count("buckets") * heads
    encoder = fields.count("encoder_layers") * layer + hidden + biases
    return [
        Weight(path="encoder", role="encoder", params=encoder, reads=0),
        vector("relative_attention_bias", biases),
    ]


T5: Final[Traits] = {
    **DECODER,
    "encoder_layers": key("num_layers"),
    "n_layers": key("num_decoder_layers", "num_layers"),
    "head_dim": key("d_kv"),
    "mlp_width": key("d_ff"),
    "activation": key("feed_forward_proj", default="relu"),
    "gated": lambda fields: fields.text("activation").startswith("gated"),
    "buckets": key("relative_attention_num_buckets", default=32),
    "tie": key("tie_word_embeddings", default=True),
    "layer_extras": _cross_attention,
    "model_extras": _encoder,
}

FAMILIES: Final[dict[str, Traits]] = {
    "qwen3_next": QWEN_NEXT,
    "qwen3_5": {**QWEN_NEXT, "ffns": dense_everywhere},
    "qwen3_5_moe": QWEN_NEXT,
    "nemotron_h": NEMOTRON_H,
    "nemotron-nas": DECI,
    "deci": DECI,
    "t5": T5,
    "mt5": T5,
    "kimi_linear": KIMI_LINEAR,
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
    "minimax": {
        **MOE,
        "expert_width": key("intermediate_size"),
        "mlp_width": 0,
        "attention_kinds": key("attn_type_list", default=None, quiet=True),
        "linear_mixer": "lightning",
        "mixers": _minimax_layers,
    },
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
