"""Dimensions of the model classes, for tables that hold only what differs from them.

A multimodal wrapper or a speculators file may write its text model as a difference from the class: the
table of LLaVA-1.5 says `llama` and a vocabulary, nothing else. Such a nested table is completed from here
and the completion listed; a file of its own never is, a missing dimension there is an error.
"""

from __future__ import annotations

from typing import Any, Final

_COLUMNS: Final = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)
_DIMENSIONS: Final[dict[str, tuple[int | None, ...]]] = {
    "llama": (4096, 11008, 32, 32, None, None, 32000),
    "mistral": (4096, 14336, 32, 32, 8, None, 32000),
    "ministral3": (4096, 14336, 34, 32, 8, 128, 131072),
    "mixtral": (4096, 14336, 32, 32, 8, None, 32000),
    "qwen2": (4096, 22016, 32, 32, 32, None, 151936),
    "qwen2_vl": (8192, 29568, 80, 64, 8, None, 152064),
    "qwen2_5_vl": (8192, 29568, 80, 64, 8, None, 152064),
    "qwen3": (4096, 22016, 32, 32, 32, 128, 151936),
    "qwen3_vl": (4096, 22016, 32, 32, 32, 128, 151936),
    "gemma": (3072, 24576, 28, 16, 16, 256, 256000),
    "gemma2": (2304, 9216, 26, 8, 4, 256, 256000),
    "gemma3": (2304, 9216, 26, 8, 4, 256, 262208),
    "gemma4": (2304, 9216, 30, 8, 4, 256, 262144),
    "llama4": (5120, 8192, 48, 40, 8, 128, 202048),
    "phi": (2048, 8192, 24, 32, None, None, 51200),
    "phi3": (3072, 8192, 32, 32, None, None, 32064),
    "cohere": (8192, 22528, 40, 64, None, None, 256000),
    "cohere2": (8192, 22528, 40, 64, None, 128, 256000),
    "granite": (4096, 11008, 32, 32, None, None, 32000),
    "smollm3": (2048, 11008, 36, 16, 4, None, 128256),
    "starcoder2": (3072, 12288, 30, 24, 2, None, 49152),
    "opt": (768, None, 12, 12, None, None, 50272),
}
_FURTHER: Final[dict[str, dict[str, Any]]] = {
    "mixtral": {"num_local_experts": 8, "num_experts_per_tok": 2},
    "llama4": {"num_local_experts": 16, "num_experts_per_tok": 1, "intermediate_size_mlp": 16384},
    "opt": {"ffn_dim": 3072, "max_position_embeddings": 2048},
    "gemma4": {"sliding_window": 512, "hidden_size_per_layer_input": 256},
}


def class_dimensions(model_type: str) -> dict[str, Any]:
    """File fields and class defaults of a model_type; empty where they are not on record.

    >>> class_dimensions("gemma3_text")["num_attention_heads"]
    8
    """
    name = model_type.lower().removesuffix("_text")
    row = _DIMENSIONS.get(name, ())
    sizes = {field: size for field, size in zip(_COLUMNS, row, strict=False) if size is not None}
    return {**sizes, **_FURTHER.get(name, {})}
