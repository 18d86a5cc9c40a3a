"""Decoders with two-matrix MLPs and layer norms, and T5: model_type to traits."""

from __future__ import annotations

from typing import Final

from specmath.hf.families_common import DECODER, OLD_STYLE, same_as, times, window_key
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import typed, windowed
from specmath.hf.weights import Weight, matrix, norm, vector


def _falcon_kv_heads(fields: Fields) -> int:
    """New Falcons name their KV heads; old ones have one, or all with multi_query false."""
    if fields.flag("new_architecture"):
        return fields.count("kv_named")
    return 1 if fields.flag("multi_query") else fields.count("n_heads")


def _falcon_mixer_norms(fields: Fields) -> int:
    two = fields.raw("parallel_norms")
    if fields.flag("new_architecture") and two is None:
        two = 2
    return 2 if two == 2 and fields.flag("new_architecture") else 1


FALCON: Final[Traits] = {
    **OLD_STYLE,
    "n_layers": key("num_hidden_layers", "n_layer"),
    "multi_query": key("multi_query", default=True),
    "new_architecture": key("new_decoder_architecture", default=False),
    "kv_named": key("num_kv_heads", "n_head_kv", default=same_as("n_heads")),
    "n_kv_heads": _falcon_kv_heads,
    "mlp_width": key("ffn_hidden_size", default=times("hidden", 4), quiet=True),
    "parallel": key("parallel_attn", default=True),
    "parallel_norms": key("num_ln_in_parallel_attn", default=None, quiet=True),
    "mixer_norms": _falcon_mixer_norms,
    "ffn_norms": lambda fields: 0 if fields.flag("new_architecture") or fields.flag("parallel") else 1,
    "bias": key("bias", default=False),
    "qkv_bias": same_as("bias"),
    "o_bias": same_as("bias"),
    "mlp_bias": same_as("bias"),
}


GPT2: Final[Traits] = {
    **OLD_STYLE,
    "mlp_width": key("n_inner", default=times("hidden", 4), quiet=True),
    "positions": key("n_positions", "n_ctx"),
}


MPT: Final[Traits] = {
    **OLD_STYLE,
    "n_kv_heads": key("attn_config.kv_n_heads", default=same_as("n_heads"), quiet=True),
    "ratio": key("expansion_ratio", default=4),
    "mlp_width": lambda fields: fields.count("ratio") * fields.count("hidden"),
    "qkv_bias": False,
    "o_bias": False,
    "mlp_bias": False,
    "norm": "layernorm_no_bias",
}


OPT: Final[Traits] = {
    **OLD_STYLE,
    "mlp_width": key("ffn_dim"),
    "qkv_bias": key("enable_bias", default=True),
    "o_bias": key("enable_bias", default=True),
    "mlp_bias": key("enable_bias", default=True),
    "norm": lambda fields: "layernorm" if fields.flag("affine") else "none",
    "affine": key("layer_norm_elementwise_affine", default=True, quiet=True),
    "max_positions": key("max_position_embeddings"),
    "positions": lambda fields: fields.count("max_positions") + 2,
    "pre_norm": key("do_layer_norm_before", default=True),
    "final_norm": same_as("pre_norm"),
    "embedding_dim": key("word_embed_proj_dim", default=same_as("hidden")),
}


PHI: Final[Traits] = {
    **OLD_STYLE,
    "tie": key("tie_word_embeddings", default=False),
    "ffn_norms": 0,
    "head_bias": True,
    "with_qk_norm": key("qk_layernorm", default=False, quiet=True),
    "qk_norm": lambda fields: "head" if fields.flag("with_qk_norm") else "none",
}


STARCODER2: Final[Traits] = {
    **OLD_STYLE,
    "qkv_bias": key("use_bias", default=True),
    "o_bias": key("use_bias", default=True),
    "mlp_bias": key("use_bias", default=True),
    "gated": lambda fields: fields.text("mlp_type") == "gated",
    "mlp_type": key("mlp_type", default="default", quiet=True),
    "window": window_key(),
    "mixers": windowed,
}


def _relative_positions(fields: Fields) -> list[Weight]:
    """The projection of relative positions that Transformer-XL attention adds to a layer."""
    if fields.text("relative") != "transformer_xl":
        raise fields.error("relative", "is known as transformer_xl only")
    return matrix(
        "self_attn.r_proj",
        "attention",
        fields.count("n_heads") * fields.count("head_dim"),
        fields.count("hidden"),
    )


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
    "notes": ["The cache is that of decoder self-attention; each source token caches as much again, once."],
}


FAMILIES: Final[dict[str, Traits]] = {
    "phi": PHI,
    "starcoder2": STARCODER2,
    "persimmon": {
        **OLD_STYLE,
        "tie": key("tie_word_embeddings", default=False),
        "qk_norm": lambda fields: "head" if fields.flag("qk") else "none",
        "qk": key("qk_layernorm", default=True),
    },
    "jais2": {
        **OLD_STYLE,
        "tie": key("tie_word_embeddings", default=False),
        "qkv_bias": key("attention_bias", default=True),
        "o_bias": key("attention_bias", default=True),
        "mlp_bias": key("mlp_bias", default=True),
    },
    "gpt2": GPT2,
    "gpt_sw3": GPT2,
    "gpt_bigcode": {
        **GPT2,
        "multi_query": key("multi_query", default=True),
        "n_kv_heads": lambda fields: 1 if fields.flag("multi_query") else fields.count("n_heads"),
    },
    "gpt_neox": {
        **OLD_STYLE,
        "tie": key("tie_word_embeddings", default=False),
        "qkv_bias": key("attention_bias", default=True),
        "o_bias": key("attention_bias", default=True),
    },
    "gpt_neo": {
        **OLD_STYLE,
        "qkv_bias": False,
        "positions": key("max_position_embeddings"),
        "mlp_width": key("intermediate_size", default=times("hidden", 4), quiet=True),
        "window": key("window_size", default=256),
        "layer_types": key("attention_layers", default=None, quiet=True),
        "layer_type_names": {"global": "full", "local": "window"},
        "mixers": typed(
            lambda fields: [("full", "window")[layer % 2] for layer in range(fields.count("n_layers"))]
        ),
    },
    "gptj": {
        **OLD_STYLE,
        "tie": key("tie_word_embeddings", default=False),
        "mlp_width": key("n_inner", default=times("hidden", 4), quiet=True),
        "qkv_bias": False,
        "o_bias": False,
        "ffn_norms": 0,
        "head_bias": True,
    },
    "codegen": {
        **OLD_STYLE,
        "tie": key("tie_word_embeddings", default=False),
        "mlp_width": key("n_inner", default=times("hidden", 4), quiet=True),
        "qkv_bias": False,
        "o_bias": False,
        "ffn_norms": 0,
        "head_bias": True,
    },
    "bloom": {**OLD_STYLE, "mlp_width": times("hidden", 4), "embedding_norm": "layernorm"},
    "falcon": FALCON,
    "refinedweb": FALCON,
    "refinedwebmodel": FALCON,
    "mpt": MPT,
    "opt": OPT,
    "xglm": {**OLD_STYLE, "n_heads": key("attention_heads"), "mlp_width": key("ffn_dim")},
    "biogpt": {
        **OLD_STYLE,
        "max_positions": key("max_position_embeddings"),
        "positions": lambda fields: fields.count("max_positions") + 2,
    },
    "chinchilla": {
        **DECODER,
        "norm": "rms",
        "gated": False,
        "tie": key("tie_word_embeddings"),
        "relative": key("relative_position_encoding"),
        "layer_extras": lambda fields: _relative_positions(fields),
    },
    "t5": T5,
    "mt5": T5,
}
"""model_type, without a `_text` ending, to the family's fields."""
