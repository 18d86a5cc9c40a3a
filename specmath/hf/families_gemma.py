"""The Gemma families: sandwich norms, mixed windows, per-layer inputs, borrowed caches."""

from __future__ import annotations

from typing import Final

from specmath.hf.families_common import DECODER, MOE, TIED, same_as, window_key
from specmath.hf.fields import Fields, Traits, key
from specmath.hf.patterns import alternating, every_nth_full, typed
from specmath.hf.weights import Weight, matrix, norm, table, vector

GEMMA: Final[Traits] = {
    **DECODER,
    **TIED,
    "head_dim": key("head_dim", default=256),
    "qkv_bias": key("attention_bias", default=False),
    "o_bias": key("attention_bias", default=False),
}


GEMMA2: Final[Traits] = {
    **GEMMA,
    "mixer_norms": 2,
    "ffn_norms": 2,
    "window": window_key(4096),
    "mixers": typed(alternating),
}


GEMMA3: Final[Traits] = {
    **GEMMA2,
    "qk_norm": "head",
    "period": key("sliding_window_pattern", "_sliding_window_pattern", default=6),
    "mixers": typed(every_nth_full("window", "period")),
}


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
    hidden, streams = fields.count("hidden"), fields.count("streams", 1, 64)
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


FAMILIES: Final[dict[str, Traits]] = {
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "vaultgemma": {**GEMMA, "window": window_key(4096), "mixers": typed(alternating)},
    "gemma3": GEMMA3,
    "gemma3n": GEMMA3N,
    "gemma4": GEMMA4,
    "gemma4_unified": {**GEMMA4, "per_layer_dim": 0},
}
"""model_type, without a `_text` ending, to the family's fields."""
