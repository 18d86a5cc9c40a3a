"""Decoders described block by block: Nemotron-H, searched architectures, Zamba2."""

from __future__ import annotations

from typing import Final

from specmath.hf.families_common import BIASES, DECODER, EXPERT_COUNT, MOE, TOP_K, same_as, times
from specmath.hf.families_recurrent import MAMBA2
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import typed
from specmath.hf.shared_blocks import stored_blocks

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
    "n_layers": key("num_hidden_layers", default=lambda fields: len(_blocks(fields)), quiet=True),
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


ZAMBA2: Final[Traits] = {
    **DECODER,
    **MAMBA2,
    "tie": key("tie_word_embeddings", default=True),
    "head_dim": lambda fields: 2 * fields.count("hidden") // fields.count("n_heads"),
    "mlp_width": key("intermediate_size", "ffn_hidden_size", default=times("hidden", 4), quiet=True),
    "mlp_bias": key("add_bias_linear", default=False),
    "ssm_heads": key("n_mamba_heads", default=8),
    "ssm_groups": key("mamba_ngroups", default=1),
    "ssm_state": key("mamba_d_state"),
    "ssm_bias": key("add_bias_linear", default=False),
    "conv_kernel": key("mamba_d_conv", default=4),
    "conv_bias": True,
    "expand": key("mamba_expand", default=2),
    "ssm_inner": lambda fields: fields.count("expand") * fields.count("hidden"),
    "shared_blocks": key("num_mem_blocks", default=1),
    "adapter_rank": key("adapter_rank", default=128),
    "attention_adapters": key("use_shared_attention_adapter", default=False),
    "layer_types": key("layers_block_type", "layer_types"),
    "layer_type_names": {"hybrid": "shared_attention"},
    "mixers": typed([]),
    "ffn_norms": 0,
    "ffns": lambda fields: ["none"] * fields.count("n_layers"),
    "model_extras": stored_blocks,
}


FAMILIES: Final[dict[str, Traits]] = {
    "zamba2": ZAMBA2,
    "nemotron_h": NEMOTRON_H,
    "nemotron-nas": DECI,
    "deci": DECI,
}
"""model_type, without a `_text` ending, to the family's fields."""
