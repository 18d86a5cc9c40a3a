"""What most decoders share, in the code's names: the base every family starts from."""

from __future__ import annotations

from typing import Any, Final

from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import (
    dense_everywhere,
    listed,
    moe_after_dense,
    moe_by_sparse_step,
    moe_everywhere,
    repeated,
    typed,
)


def same_as(name: str) -> Any:
    """The value of another field."""
    return lambda fields: fields.raw(name)


def times(name: str, factor: int) -> Any:
    """A multiple of another field."""
    return lambda fields: factor * fields.count(name)


def head_width(fields: Fields) -> int:
    """hidden / heads, refused where it does not divide."""
    hidden, heads = fields.count("hidden"), fields.count("n_heads")
    if hidden % heads:
        raise fields.error("head_dim", f"is missing, and {hidden} is no multiple of {heads} heads")
    return hidden // heads


def given_head_width(*names: str) -> Any:
    """A head width where the file gives one above 0, hidden / heads where not."""
    given = key(*names, default=0, quiet=True)
    return lambda fields: fields.with_traits({"given": given}).size("given") or head_width(fields)


DECODER: Final[Traits] = {
    "n_layers": key("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": key("hidden_size", "n_embd", "d_model"),
    "vocab": key("vocab_size", "padded_vocab_size"),
    "n_heads": key("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "n_kv_heads": key("num_key_value_heads", "n_head_kv", "num_kv_heads", default=same_as("n_heads")),
    "head_dim": given_head_width("head_dim", "attention_head_dim", "hidden_size_per_head", "kv_channels"),
    "v_head_dim": same_as("head_dim"),
    "attention_in": same_as("hidden"),
    "mlp_width": key("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner"),
    "tie": key("tie_word_embeddings", default=False),
    "max_context": key(
        "max_position_embeddings",
        "n_positions",
        "max_seq_len",
        "seq_length",
        "model_max_length",
        "max_sequence_length",
        "max_seq_length",
        default=None,
        quiet=True,
    ),
    "window": None,
    "layer_types": key("layer_types", "layers_block_type", default=None, quiet=True),
    "mixers": typed(repeated("full")),
    "ffn_types": key("mlp_layer_types", default=None, quiet=True),
    "ffns": dense_everywhere,
    "gated": True,
    "mlp_bias": False,
    "mlp_down_bias": same_as("mlp_bias"),
    "qkv_bias": False,
    "k_bias": same_as("qkv_bias"),
    "o_bias": False,
    "qk_norm": "none",
    "qk_norm_kind": same_as("norm"),
    "output_gate": "none",
    "sinks": False,
    "borrows_kv": False,
    "k_is_v": False,
    "norm": "rms",
    "mixer_norms": 1,
    "ffn_norms": 1,
    "final_norm": True,
    "embedding_norm": "none",
    "positions": 0,
    "head_bias": False,
    "index_topk": None,
    "mtp_layers": key(
        "num_nextn_predict_layers",
        "mtp_num_hidden_layers",
        "num_mtp_modules",
        "n_predict",
        default=0,
        quiet=True,
    ),
}
"""A pre-norm decoder: RMS norms, gated MLP, grouped heads, no biases, untied head."""

BIASES: Final[Traits] = {
    "qkv_bias": key("attention_bias", default=False),
    "o_bias": key("attention_bias", default=False),
    "mlp_bias": key("mlp_bias", default=False),
}
"""The switches of the Llama classes."""

LLAMA: Final[Traits] = {**DECODER, **BIASES}

OLD_STYLE: Final[Traits] = {
    **DECODER,
    "gated": False,
    "norm": "layernorm",
    "qkv_bias": True,
    "o_bias": True,
    "mlp_bias": True,
    "tie": key("tie_word_embeddings", default=True),
}
"""Before Llama: two-matrix MLP, layer norms, biases everywhere, tied head."""

EXPERT_COUNT: Final = key(
    "num_local_experts",
    "n_routed_experts",
    "num_experts",
    "moe_num_experts",
    "num_routed_experts",
    "moe_num_primary_experts",
)
TOP_K: Final = key(
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
    "num_active_primary_experts",
)
SHARED_COUNT: Final = key(
    "n_shared_experts",
    "num_shared_experts",
    "num_shared_expert",
    "moe_num_shared_experts",
    default=0,
    quiet=True,
)


def shared_times_width(fields: Fields) -> int:
    """Shared experts of the routed experts' width, run as one wide MLP."""
    return fields.size("shared_count") * fields.count("expert_width")


MOE: Final[Traits] = {
    **DECODER,
    "n_experts": EXPERT_COUNT,
    "top_k": TOP_K,
    "expert_width": key("moe_intermediate_size", "expert_ffn_hidden_size"),
    "shared_count": SHARED_COUNT,
    "shared_width": 0,
    "shared_gate": False,
    "router_rows": same_as("n_experts"),
    "router_bias": False,
    "router_correction": False,
    "expert_bias": False,
    "expert_latent": None,
    "latent_norm": False,
    "first_dense": key("first_k_dense_replace", "num_dense_layers", default=0),
    "moe_step": key("moe_layer_freq", default=1, quiet=True),
    "ffns": listed(moe_everywhere),
}
"""Experts in every layer, no shared ones."""

MLA: Final[Traits] = {
    "kv_lora_rank": key("kv_lora_rank"),
    "q_lora_rank": key("q_lora_rank", null=None),
    "qk_nope_dim": key("qk_nope_head_dim"),
    "qk_rope_dim": key("qk_rope_head_dim"),
    "v_head_dim": key("v_head_dim"),
    "head_dim": lambda fields: fields.size("qk_nope_dim") + fields.size("qk_rope_dim"),
    "n_kv_heads": 1,
    "qkv_bias": key("attention_bias", default=False),
    "o_bias": key("attention_bias", default=False),
    "mixers": repeated("mla"),
}
"""Latent attention; the file's head_dim and num_key_value_heads mean nothing here."""

INDEXER: Final[Traits] = {
    "index_heads": key("index_n_heads"),
    "index_dim": key("index_head_dim"),
    "index_topk": key("index_topk"),
    "index_shared": False,
}


TIED: Final[Traits] = {"tie": key("tie_word_embeddings", default=True)}


def window_key(default: int | None = None) -> Any:
    """A `sliding_window` where null means none and absence the class default."""
    return key("sliding_window", default=default, null=None, quiet=default is None)


SAME_WIDTH: Final[Traits] = {"expert_width": key("intermediate_size")}
"""Families whose intermediate_size is the width of an expert."""


SHARED: Final[Traits] = {"shared_width": shared_times_width}


AFTER_DENSE: Final[Traits] = {"ffns": listed(moe_after_dense)}


QK_SWITCH: Final[Traits] = {
    "use_qk_norm": key("use_qk_norm", default=False),
    "qk_norm": lambda fields: "head" if fields.flag("use_qk_norm") else "none",
}


SPARSE_STEP: Final[Traits] = {
    "n_experts": key(*EXPERT_COUNT.names, default=0, quiet=True),
    "moe_step": key("decoder_sparse_step", default=1),
    "dense_layers": key("mlp_only_layers", default=[], quiet=True),
    "ffns": listed(moe_by_sparse_step),
}


WINDOW: Final = key("sliding_window", default=None, quiet=True)
