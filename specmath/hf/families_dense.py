"""Decoders with one dense MLP a layer: model_type to traits."""

from __future__ import annotations

from typing import Any, Final

from specmath.hf.families_common import (
    BIASES,
    DECODER,
    LLAMA,
    MLA,
    OLD_STYLE,
    given_head_width,
    same_as,
    times,
)
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import alternating, every_nth_full, repeated, typed, window_or_full, windowed
from specmath.hf.weights import Weight, matrix, vector

_TIED: Final[Traits] = {"tie": key("tie_word_embeddings", default=True)}


def _window(default: int | None = None) -> Any:
    """A `sliding_window` where null means none and absence the class default."""
    return key("sliding_window", default=default, null=None, quiet=default is None)


def _qwen_windows(fields: Fields) -> list[str]:
    """Full attention unless `use_sliding_window`; then a window from layer `max_window_layers` on."""
    n_layers = fields.count("n_layers")
    if not fields.flag("use_window"):
        return ["full"] * n_layers
    first, local = fields.size("first_window"), window_or_full(fields)
    return ["full" if layer < first else local for layer in range(n_layers)]


_QWEN_WINDOWS: Final[Traits] = {
    "window": key("sliding_window", default=None, quiet=True),
    "use_window": key("use_sliding_window", default=False, quiet=True),
    "first_window": key("max_window_layers", default=28),
}


def _qwen_typed(fields: Fields) -> list[str]:
    return _qwen_windows(fields) if not fields.flag("use_window") else list(typed(_qwen_windows)(fields))


QWEN2: Final[Traits] = {**DECODER, **_QWEN_WINDOWS, "qkv_bias": True, "mixers": _qwen_typed}
QWEN3: Final[Traits] = {
    **DECODER,
    **BIASES,
    **_QWEN_WINDOWS,
    "mlp_bias": False,
    "qk_norm": "head",
    "mixers": _qwen_typed,
}
GEMMA: Final[Traits] = {
    **DECODER,
    **_TIED,
    "head_dim": key("head_dim", default=256),
    "qkv_bias": key("attention_bias", default=False),
    "o_bias": key("attention_bias", default=False),
}
GEMMA2: Final[Traits] = {
    **GEMMA,
    "mixer_norms": 2,
    "ffn_norms": 2,
    "window": _window(4096),
    "mixers": typed(alternating),
}
GEMMA3: Final[Traits] = {
    **GEMMA2,
    "qk_norm": "head",
    "period": key("sliding_window_pattern", "_sliding_window_pattern", default=6),
    "mixers": typed(every_nth_full("window", "period")),
}
COHERE: Final[Traits] = {
    **LLAMA,
    **_TIED,
    "mlp_bias": False,
    "norm": "layernorm_no_bias",
    "ffn_norms": 0,
    "qk_norm": lambda fields: "each_head" if fields.flag("use_qk_norm") else "none",
    "use_qk_norm": key("use_qk_norm", default=False, quiet=True),
}
GLM: Final[Traits] = {
    **DECODER,
    "qkv_bias": key("attention_bias", default=True),
    "head_dim": given_head_width("head_dim"),
}


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
PHI3: Final[Traits] = {**DECODER, "window": _window(), "mixers": windowed}
MISTRAL: Final[Traits] = {**DECODER, "window": _window(4096), "mixers": windowed}
STARCODER2: Final[Traits] = {
    **OLD_STYLE,
    "qkv_bias": key("use_bias", default=True),
    "o_bias": key("use_bias", default=True),
    "mlp_bias": key("use_bias", default=True),
    "gated": lambda fields: fields.text("mlp_type") == "gated",
    "mlp_type": key("mlp_type", default="default", quiet=True),
    "window": _window(),
    "mixers": windowed,
}
STABLELM: Final[Traits] = {
    **DECODER,
    "norm": "layernorm",
    "qkv_bias": key("use_qkv_bias", default=False),
    "parallel": key("use_parallel_residual", default=False),
    "ffn_norms": lambda fields: 0 if fields.flag("parallel") else 1,
    "with_qk_norm": key("qk_layernorm", default=False, quiet=True),
    "qk_norm": lambda fields: "each_head" if fields.flag("with_qk_norm") else "none",
    "qk_norm_kind": "layernorm_no_bias",
}
OLMO2: Final[Traits] = {**LLAMA, "mlp_bias": False, "qk_norm": "whole"}
EXAONE4: Final[Traits] = {
    **DECODER,
    "qk_norm": "head",
    "window": _window(4096),
    "spelled": key("sliding_window_pattern", default=4),
    "mixers": typed(lambda fields: _spelled_windows(fields)),
}


def _spelled_windows(fields: Fields) -> list[str]:
    """A pattern of letters (L a window, G full attention) repeated over the layers, or a period."""
    n_layers, pattern, local = fields.count("n_layers"), fields.raw("spelled"), window_or_full(fields)
    if isinstance(pattern, str) and pattern:
        letters = [pattern[layer % len(pattern)] for layer in range(n_layers)]
        return [
            "full" if letter == "G" or layer == n_layers - 1 else local
            for layer, letter in enumerate(letters)
        ]
    period = fields.count("spelled")
    return ["full" if (layer + 1) % period == 0 else local for layer in range(n_layers)]


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


def _numbers(count: int) -> Any:
    """A few learned numbers in every layer."""
    return lambda fields: [vector("act_fn", count)]


def _differential(fields: Fields) -> list[Weight]:
    """Two pairs of vectors a layer weigh the two softmax maps of differential attention."""
    return [vector("self_attn.lambda", 4 * fields.count("head_dim"))]


def _sub_norms(fields: Fields) -> list[Weight]:
    """BitNet normalises before the output projections too."""
    inner, width = fields.count("n_heads") * fields.count("head_dim"), fields.count("mlp_width")
    return [vector("self_attn.attn_sub_norm", inner), vector("mlp.ffn_sub_norm", width)]


FAMILIES: Final[dict[str, Traits]] = {
    "llama": LLAMA,
    "yi": LLAMA,
    "mistral": MISTRAL,
    "ministral": {**DECODER, "window": _window(4096), "mixers": typed(windowed)},
    "ministral3": {**DECODER, "window": _window(), "mixers": windowed},
    "mistral3": MISTRAL,
    "arcee": {**LLAMA, "gated": False},
    "apertus": {**LLAMA, "gated": False, "mlp_bias": False, "qk_norm": "head", "layer_extras": _numbers(2)},
    "cwm": {
        **LLAMA,
        "window": _window(8192),
        "mixers": typed(every_nth_full("window", "period")),
        "period": 4,
    },
    "granite": LLAMA,
    "helium": LLAMA,
    "hyperclovax": {
        **LLAMA,
        "post_norm": key("use_post_norm", default=True),
        "mixer_norms": lambda fields: 1 + fields.flag("post_norm"),
        "ffn_norms": lambda fields: 1 + fields.flag("post_norm"),
    },
    "granite_swa": {**LLAMA, **_TIED, "sinks": True, "window": _window(128), "mixers": typed(windowed)},
    "iquestcoder": LLAMA,
    "exaone": {**LLAMA, "n_layers": key("num_layers", "num_hidden_layers")},
    "seed_oss": {
        **LLAMA,
        "qkv_bias": key("attention_bias", default=True),
        "o_bias": key("attention_out_bias", default=False),
    },
    "smollm3": {
        **LLAMA,
        **_TIED,
        "window": _window(),
        "mixers": _qwen_typed,
        "use_window": _QWEN_WINDOWS["use_window"],
        "first_window": 0,
    },
    "internlm": {**DECODER, "qkv_bias": key("bias", default=True), "o_bias": key("bias", default=True)},
    "internlm2": {**DECODER, "qkv_bias": key("bias", default=False), "o_bias": key("bias", default=False)},
    "internlm3": {
        **LLAMA,
        "qkv_bias": key("qkv_bias", "attention_bias", default=False),
        "o_bias": key("bias", "attention_bias", default=False),
        "mlp_bias": key("bias", "mlp_bias", default=False),
    },
    "baichuan": DECODER,
    "orion": {**DECODER, "norm": "layernorm"},
    "xverse": DECODER,
    "minicpm": {**LLAMA, **_TIED, "mlp_bias": False},
    "minicpm3": {**LLAMA, **MLA, **_TIED},
    "youtu": {**LLAMA, **MLA, **_TIED, "mlp_bias": False},
    "qwen": {
        **DECODER,
        "qkv_bias": True,
        "double_width": key("intermediate_size"),
        "mlp_width": lambda fields: fields.count("double_width") // 2,
    },
    "qwen2": QWEN2,
    "qwen2_vl": QWEN2,
    "qwen2_5_vl": QWEN2,
    "qwen2_5_omni_thinker": QWEN2,
    "mimo": QWEN2,
    "qwen3": QWEN3,
    "qwen3_vl": {**QWEN3, "mixers": repeated("full")},
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "vaultgemma": {**GEMMA, "window": _window(4096), "mixers": typed(alternating)},
    "gemma3": GEMMA3,
    "phi": PHI,
    "phi3": PHI3,
    "phi4mm": {**PHI3, **_TIED},
    "phi4_multimodal": PHI3,
    "stablelm": STABLELM,
    "starcoder2": STARCODER2,
    "olmo": {
        **DECODER,
        "norm": "none",
        "qkv_bias": key("attention_bias", default=False),
        "o_bias": key("attention_bias", default=False),
    },
    "olmo2": OLMO2,
    "olmo3": {
        **OLMO2,
        "window": _window(4096),
        "period": 4,
        "mixers": typed(every_nth_full("window", "period")),
    },
    "cohere": COHERE,
    "cohere2": {
        **COHERE,
        "qk_norm": "none",
        "head_dim": given_head_width("head_dim"),
        "window": _window(4096),
        "period": key("sliding_window_pattern", default=4),
        "mixers": typed(every_nth_full("window", "period")),
    },
    "exaone4": EXAONE4,
    "glm": GLM,
    "glm4": {**GLM, "mixer_norms": 2, "ffn_norms": 2},
    "chatglm": {
        **DECODER,
        "n_layers": key("num_layers", "num_hidden_layers"),
        "vocab": key("padded_vocab_size", "vocab_size"),
        "multi_query": key("multi_query_attention", default=False),
        "kv_named": key("multi_query_group_num", default=1),
        "n_kv_heads": lambda fields: fields.count("kv_named" if fields.flag("multi_query") else "n_heads"),
        "head_dim": given_head_width("kv_channels"),
        "mlp_width": key("ffn_hidden_size"),
        "all_bias": key("add_bias_linear", default=False),
        "qkv_extra": key("add_qkv_bias", default=False),
        "qkv_bias": lambda fields: fields.flag("all_bias") or fields.flag("qkv_extra"),
        "o_bias": same_as("all_bias"),
        "mlp_bias": same_as("all_bias"),
        "norm": lambda fields: "rms" if fields.flag("rms") else "layernorm",
        "rms": key("rmsnorm", default=True),
    },
    "hunyuan_v1_dense": {
        **LLAMA,
        "mlp_bias": False,
        "qk_norm": lambda fields: "head" if fields.flag("use_qk_norm") else "none",
        "use_qk_norm": key("use_qk_norm", default=True),
    },
    "ernie4_5": {
        **DECODER,
        **_TIED,
        "qkv_bias": key("use_bias", default=False),
        "o_bias": key("use_bias", default=False),
        "mlp_bias": key("use_bias", default=False),
    },
    "diffllama": {**LLAMA, "mlp_bias": False, "layer_extras": _differential},
    "bitnet": {**LLAMA, "mlp_bias": False, "layer_extras": _sub_norms},
    "nemotron": {**LLAMA, "gated": False, "norm": "layernorm"},
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
    "nanochat": {**DECODER, "norm": "none", "gated": False},
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
}
"""model_type, without a `_text` ending, to the family's fields."""
