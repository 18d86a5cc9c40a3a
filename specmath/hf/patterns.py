"""Which layer is what: the many ways in which files spell a pattern of layers.

Each function takes the fields and returns one kind of mixer, or of feed-forward, for every layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specmath.hf.fields import MAX_LAYERS, Fields
from specmath.hf.weights import LayerKind

LAYER_TYPES: Final = {
    "full_attention": "full",
    "attention": "full",
    "global_attention": "full",
    "sliding_attention": "window",
    "local_attention": "window",
    "sliding_window_attention": "window",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "recurrent": "recurrent",
    "conv": "short_conv",
    "mamba": "ssm",
    "mamba2": "ssm",
    "hybrid": "hybrid",
    "moe": "none",
    "mlp": "none",
}
"""Names in `layer_types` and its like, and the mixer they mean; the family says what linear or ssm is."""
FFN_TYPES: Final = {"dense": "mlp", "sparse": "moe", "moe": "moe", "hash_moe": "moe", "mlp": "mlp"}
_PER_LAYER: Final = (
    "mlp_width",
    "n_heads",
    "n_kv_heads",
    "n_experts",
    "top_k",
    "expert_width",
    "shared_width",
)
"""Fields that some files give as a list, one entry a layer."""


def layer_kinds(fields: Fields) -> list[LayerKind]:
    """The kind of every layer of the model, in order."""
    n_layers = fields.count("n_layers", 1, MAX_LAYERS)
    mixers, ffns = fields.raw("mixers"), fields.raw("ffns")
    spelled = "pattern" if fields.knows("pattern") else "layer_types"
    for what, listed_kinds in ((spelled, mixers), ("ffn_types", ffns)):
        if len(listed_kinds) != n_layers:
            raise fields.error(what, f"has {len(listed_kinds)} entries for {n_layers} layers")
    kinds = [LayerKind(mixer=mixer, ffn=ffn) for mixer, ffn in zip(mixers, ffns, strict=True)]
    for name in _PER_LAYER:
        if fields.knows(name) and _is_listed(fields, name):
            values = fields.per_layer(name, n_layers)
            kinds = [kind.having(**{name: value}) for kind, value in zip(kinds, values, strict=True)]
    if not fields.knows("layer_traits"):
        return kinds
    traits: list[dict[str, object]] = fields.raw("layer_traits")
    return [kind.having(**own) for kind, own in zip(kinds, traits, strict=True)]


def _is_listed(fields: Fields, name: str) -> bool:
    """Whether a field is a list of unequal entries; fields that no layer of the model uses are not asked."""
    needed = {"n_heads": "", "n_kv_heads": "", "mlp_width": "mlp"}.get(name, "moe")
    if not any(needed in ffn for ffn in fields.raw("ffns")):
        return False
    value = fields.raw(name)
    return isinstance(value, list) and any(entry != value[0] for entry in value)


def repeated(mixer: str) -> Any:
    """Every layer the same."""
    return lambda fields: [mixer] * fields.count("n_layers", 0, MAX_LAYERS)


def windowed(fields: Fields) -> list[str]:
    """A window on every layer where one is set and shorter than the context; full attention otherwise."""
    return [window_or_full(fields)] * fields.count("n_layers", 0, MAX_LAYERS)


def window_or_full(fields: Fields) -> str:
    """What a layer meant to have a window is: a window at least as long as the context never bites."""
    window, longest = fields.optional("window"), fields.optional("max_context")
    return "full" if window is None or (longest is not None and window >= longest) else "window"


def typed(otherwise: Any) -> Any:
    """From `layer_types` where the file has it, from the family's rule where it has not."""

    def mixers(fields: Fields) -> list[str]:
        listed = fields.raw("layer_types")
        if listed is None:
            return otherwise(fields) if callable(otherwise) else list(otherwise)
        names = {
            **LAYER_TYPES,
            **(fields.raw("layer_type_names") if fields.knows("layer_type_names") else {}),
        }
        kinds = [_named(fields, names, entry) for entry in fields.items("layer_types")]
        return [_resolved(fields, kind) for kind in kinds]

    return mixers


def _named(fields: Fields, names: Mapping[str, str], entry: object, field: str = "layer_types") -> str:
    if not isinstance(entry, str) or entry not in names:
        raise fields.error(field, f"{entry!r} is not a kind of layer this version knows")
    return names[entry]


def _resolved(fields: Fields, kind: str) -> str:
    if kind == "window":
        return window_or_full(fields)
    if kind in ("full", "linear", "ssm", "recurrent") and fields.knows(f"{kind}_mixer"):
        return str(fields.raw(f"{kind}_mixer"))
    return kind


def every_nth_full(otherwise: str, period: str) -> Any:
    """Layer n, 2n, ... full, the others of another kind; the file names n in the field `period`."""

    def mixers(fields: Fields) -> list[str]:
        step, other = fields.count(period), _resolved(fields, otherwise)
        layers = range(1, fields.count("n_layers", 0, MAX_LAYERS) + 1)
        return ["full" if layer % step == 0 else other for layer in layers]

    return mixers


def alternating(fields: Fields) -> list[str]:
    """Window, full, window, ..."""
    local = window_or_full(fields)
    return [local if layer % 2 == 0 else "full" for layer in range(fields.count("n_layers", 0, MAX_LAYERS))]


def from_index_lists(full: str, linear: str, full_kind: str, linear_kind: str, base: int) -> Any:
    """From lists of layer numbers, counted from `base`; a layer in neither list is refused."""

    def mixers(fields: Fields) -> list[str]:
        chosen = {
            **dict.fromkeys(fields.numbers(linear), linear_kind),
            **dict.fromkeys(fields.numbers(full), full_kind),
        }
        numbers = range(base, base + fields.count("n_layers", 0, MAX_LAYERS))
        missing = [number for number in numbers if number not in chosen]
        if missing:
            raise fields.error(full, f"layer {missing[0]} stands in neither list of layer numbers")
        return [chosen[number] for number in numbers]

    return mixers


def dense_everywhere(fields: Fields) -> list[str]:
    """A dense MLP in every layer."""
    return ["mlp"] * fields.count("n_layers", 0, MAX_LAYERS)


def moe_everywhere(fields: Fields) -> list[str]:
    """Experts in every layer."""
    return ["moe"] * fields.count("n_layers", 0, MAX_LAYERS)


def listed(otherwise: Any) -> Any:
    """From `mlp_layer_types` where the file has it, from the family's rule where it has not."""

    def ffns(fields: Fields) -> list[str]:
        if fields.raw("ffn_types") is None:
            kinds: list[str] = otherwise(fields)
            return kinds
        return [_named(fields, FFN_TYPES, entry, "ffn_types") for entry in fields.items("ffn_types")]

    return ffns


def moe_after_dense(fields: Fields) -> list[str]:
    """`first_dense` dense layers, then experts on every `moe_step`-th layer, or by a list of 0 and 1."""
    n_layers, first = fields.count("n_layers", 0, MAX_LAYERS), fields.size("first_dense")
    if not fields.size("n_experts"):
        return ["mlp"] * n_layers
    if isinstance(fields.raw("moe_step"), list):
        return ["moe" if flag else "mlp" for flag in fields.per_layer("moe_step", n_layers)]
    every = fields.count("moe_step")
    return ["moe" if layer >= first and layer % every == 0 else "mlp" for layer in range(n_layers)]


def moe_by_sparse_step(fields: Fields) -> list[str]:
    """Experts on every n-th layer, counted from one, except layers named as dense (Qwen)."""
    n_layers, step = fields.count("n_layers", 0, MAX_LAYERS), fields.size("moe_step")
    dense = set(fields.numbers("dense_layers"))
    return [
        "moe"
        if fields.size("n_experts") and step and layer not in dense and (layer + 1) % step == 0
        else "mlp"
        for layer in range(n_layers)
    ]


def moe_from_list(fields: Fields) -> list[str]:
    """Experts on the layers named in `moe_layers`; else on every `moe_step`-th, counted from one."""
    n_layers = fields.count("n_layers", 0, MAX_LAYERS)
    named = fields.raw("moe_layers")
    if named is None:
        return moe_by_sparse_step(fields)
    if isinstance(named, str):
        parts = [part.strip() for part in named.split(",")]
        named = [int(part) if part.isdecimal() and len(part) < 6 else part for part in parts if part]
    numbers = set(fields.with_traits({"moe_layers": named}).numbers("moe_layers"))
    return ["moe" if layer in numbers else "mlp" for layer in range(n_layers)]


def moe_between(fields: Fields) -> list[str]:
    """Experts from a first to a last layer, every n-th of them (ERNIE)."""
    n_layers, step = fields.count("n_layers", 0, MAX_LAYERS), fields.count("moe_step")
    first, last = _first_number(fields, "moe_first"), _first_number(fields, "moe_last")
    last = n_layers - 1 if last < 0 else last
    return [
        "moe" if first <= layer <= last and (layer + 1) % step == 0 else "mlp" for layer in range(n_layers)
    ]


def _first_number(fields: Fields, name: str) -> int:
    """A number, or the first of a list: a vision model gives one for text and one for images."""
    value = fields.raw(name)
    value = value[0] if isinstance(value, list) and value else value
    if not isinstance(value, int):
        raise fields.error(name, f"must be a whole number, got {value!r}")
    return value
