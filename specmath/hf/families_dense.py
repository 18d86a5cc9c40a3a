"""Decoders of the Llama kind, one gated MLP a layer: model_type to traits."""

from __future__ import annotations

from typing import Any, Final

from specmath.hf.families_common import BIASES, DECODER, LLAMA, TIED, given_head_width, same_as, window_key
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import every_nth_full, repeated, typed, window_or_full, windowed
from specmath.hf.weights import Weight, vector


def _qwen_windows(fields: Fields) -> list[str]:
    """Full attention unless `use_sliding_window`; then a window from layer `max_window_layers` on."""
    n_layers = fields.count("n_layers")
    if not fields.flag("use_window"):
        return ["full"] * n_layers
    first, local = fields.size("first_window"), window_or_full(fields)
    return ["full" if layer < first else local for layer in range(n_layers)]


QWEN_WINDOWS: Final[Traits] = {
    "window": key("sliding_window", default=None, quiet=True),
    "use_window": key("use_sliding_window", default=False, quiet=True),
    "first_window": key("max_window_layers", default=28),
}


def qwen_mixers(fields: Fields) -> list[str]:
    return _qwen_windows(fields) if not fields.flag("use_window") else list(typed(_qwen_windows)(fields))


QWEN2: Final[Traits] = {**DECODER, **QWEN_WINDOWS, "qkv_bias": True, "mixers": qwen_mixers}


QWEN3: Final[Traits] = {
    **DECODER,
    **BIASES,
    **QWEN_WINDOWS,
    "mlp_bias": False,
    "qk_norm": "head",
    "mixers": qwen_mixers,
}


COHERE: Final[Traits] = {
    **LLAMA,
    **TIED,
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


PHI3: Final[Traits] = {**DECODER, "window": window_key(), "mixers": windowed}


MISTRAL: Final[Traits] = {**DECODER, "window": window_key(4096), "mixers": windowed}


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
    "window": window_key(4096),
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
    "ministral": {**DECODER, "window": window_key(4096), "mixers": typed(windowed)},
    "ministral3": {**DECODER, "window": window_key(), "mixers": windowed},
    "mistral3": MISTRAL,
    "arcee": {**LLAMA, "gated": False},
    "apertus": {**LLAMA, "gated": False, "mlp_bias": False, "qk_norm": "head", "layer_extras": _numbers(2)},
    "cwm": {
        **LLAMA,
        "window": window_key(8192),
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
    "granite_swa": {**LLAMA, **TIED, "sinks": True, "window": window_key(128), "mixers": typed(windowed)},
    "iquestcoder": LLAMA,
    "exaone": {**LLAMA, "n_layers": key("num_layers", "num_hidden_layers")},
    "seed_oss": {
        **LLAMA,
        "qkv_bias": key("attention_bias", default=True),
        "o_bias": key("attention_out_bias", default=False),
    },
    "smollm3": {
        **LLAMA,
        **TIED,
        "window": window_key(),
        "mixers": qwen_mixers,
        "use_window": QWEN_WINDOWS["use_window"],
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
    "minicpm": {**LLAMA, **TIED, "mlp_bias": False},
    "qwen": {
        **DECODER,
        "qkv_bias": True,
        "double_width": key("intermediate_size"),
        "mlp_width": lambda fields: fields.count("double_width") // 2,
    },
    "qwen2": QWEN2,
    "qwen2_vl": QWEN2,
    "qwen2_5_vl": QWEN2,
    "qwen2_5_omni": QWEN2,
    "qwen2_audio": QWEN2,
    "mimo": QWEN2,
    "qwen3": QWEN3,
    "qwen3_vl": {**QWEN3, "mixers": repeated("full")},
    "phi3": PHI3,
    "phi4mm": {**PHI3, **TIED},
    "phi4_multimodal": PHI3,
    "phi3_v": PHI3,
    "stablelm": STABLELM,
    "olmo": {
        **DECODER,
        "norm": "none",
        "qkv_bias": key("attention_bias", default=False),
        "o_bias": key("attention_bias", default=False),
    },
    "olmo2": OLMO2,
    "olmo3": {
        **OLMO2,
        "window": window_key(4096),
        "period": 4,
        "mixers": typed(every_nth_full("window", "period")),
    },
    "cohere": COHERE,
    "cohere2": {
        **COHERE,
        "qk_norm": "none",
        "head_dim": given_head_width("head_dim"),
        "window": window_key(4096),
        "period": key("sliding_window_pattern", default=4),
        "mixers": typed(every_nth_full("window", "period")),
    },
    "exaone4": EXAONE4,
    "glm": GLM,
    "glm4v": {**GLM, "mixer_norms": 2, "ffn_norms": 2},
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
        **TIED,
        "qkv_bias": key("use_bias", default=False),
        "o_bias": key("use_bias", default=False),
        "mlp_bias": key("use_bias", default=False),
    },
    "diffllama": {**LLAMA, "mlp_bias": False, "layer_extras": _differential},
    "bitnet": {**LLAMA, "mlp_bias": False, "layer_extras": _sub_norms},
    "nemotron": {**LLAMA, "gated": False, "norm": "layernorm"},
    "nanochat": {**DECODER, "norm": "none", "gated": False},
}
"""model_type, without a `_text` ending, to the family's fields."""
