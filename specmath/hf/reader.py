"""A parsed `config.json` to a `ModelShape`: family, layers, formats, groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from specmath.errors import DataError
from specmath.hf import drafters, mtp
from specmath.hf.assembly import Formats, attention_groups, expert_groups, state_groups, weight_groups
from specmath.hf.class_defaults import class_dimensions
from specmath.hf.document import parse_document, text_part
from specmath.hf.families import ARCHITECTURES, FAMILIES, family_of
from specmath.hf.fields import Fields, Traits, shown
from specmath.hf.layers import blocks, outside_layers
from specmath.hf.patterns import layer_kinds
from specmath.hf.quantization import Scheme, read_scheme
from specmath.model import ModelShape
from specmath.number_formats import PLAIN, dtype_name

_STATE_DTYPES: Final = ("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
_SHAPING: Final = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "moe_num_experts",
    "kv_lora_rank",
    "q_lora_rank",
    "linear_attn_config",
    "linear_num_value_heads",
    "mamba_d_state",
    "ssm_state_size",
    "hybrid_override_pattern",
    "block_configs",
    "index_topk",
    "compress_ratios",
    "num_kv_shared_layers",
    "shared_expert_intermediate_size",
    "n_shared_experts",
    "moe_intermediate_size",
)
"""Fields that change a layout; one that is set and that the family does not read is refused."""


def read_config(
    text: str, where: str, *, name: str = "", source: str = "", draft_kind: str | None = None
) -> ModelShape:
    """The shape of the model that the text of a `config.json` describes.

    Args:
        text: Content of the file.
        where: What error messages call it.
        name: Name of the model; by default what the file calls itself, else `where`.
        source: Where the figures come from; `where` by default.
        draft_kind: Read the file as a draft head of that kind (eagle, eagle3, medusa, ...): the first EAGLE
            heads look like one-layer Llamas. None goes by what the file says.

    Raises:
        DataError: one line with the file and the field that is missing, wrong or not known.
    """
    return model_shape(parse_document(text, where), where, name=name, source=source, draft_kind=draft_kind)


def model_shape(
    document: Mapping[str, Any],
    where: str,
    *,
    name: str = "",
    source: str = "",
    draft_kind: str | None = None,
) -> ModelShape:
    """The shape of the model that a parsed `config.json` describes; see `read_config`."""
    name, source = name or where, source or where
    if draft_kind or drafters.is_draft(document):
        return drafters.draft_shape(document, where, name=name, source=source, kind=draft_kind)
    config, nested = text_part(document, where)
    if drafters.is_draft(config):
        return drafters.draft_shape(config, where, name=name, source=source)
    fields, assumed = fields_of(config, where, nested=nested)
    outer, inner = document.get("tie_word_embeddings"), config.get("tie_word_embeddings")
    if outer is not None and outer != inner:
        assumed.append(
            f"tie_word_embeddings is {outer} in the wrapper and {inner} inside: the inner one counts."
        )
    return _assembled(fields, assumed, name=name, source=source)


def fields_of(config: Mapping[str, Any], where: str, *, nested: bool) -> tuple[Fields, list[str]]:
    """The fields of a text model seen through its family; a nested table may leave out class dimensions."""
    model_type, traits, assumed = _family(config, where)
    defaults = class_dimensions(model_type) if nested else {}
    taken = sorted(set(defaults) - set(config))
    if taken:
        listed = ", ".join(f"{field}={shown(defaults[field])}" for field in taken)
        assumed.append(f"Absent from the nested table, class defaults of {model_type}: {listed}.")
    return Fields({**defaults, **config}, traits, where), assumed


def _family(config: Mapping[str, Any], where: str) -> tuple[str, Traits, list[str]]:
    """model_type and traits, and a sentence where the architecture's name had to tell the family."""
    named = config.get("model_type")
    traits = family_of(named) if isinstance(named, str) else None
    if isinstance(named, str) and traits is not None:
        return named, traits, []
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else ""
    known = ARCHITECTURES.get(first.lower()) if isinstance(first, str) else None
    if known is not None:
        sentence = f"model_type {named!r} is not known; counted as {first}, its architecture."
        return known, FAMILIES[known], [sentence]
    if named in (None, ""):
        raise DataError(where, "model_type: is missing, and architectures names none that is known")
    from difflib import get_close_matches  # only an error pays for this import

    near = get_close_matches(str(named).lower(), list(FAMILIES), n=3)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise DataError(
        where,
        f"model_type: {shown(named)} is not a layout this version knows{hint}; "
        "counts alone can be given as TOTAL or TOTAL/ACTIVE",
    )


def _assembled(fields: Fields, assumed: list[str], *, name: str, source: str) -> ModelShape:
    kinds = layer_kinds(fields)
    layer_blocks = blocks(fields, kinds)
    outside = outside_layers(fields)
    scheme = read_scheme(_quantization(fields.config), fields.where)
    dtype = plain_dtype(fields, assumed)
    formats = Formats(dtype, scheme)
    kv_dtype = (scheme and scheme.kv_cache_dtype) or dtype
    _refuse_unread(fields)
    _note_scheme(scheme, assumed)
    _note_oddities(fields, len(kinds), assumed)
    assumed += fields.raw("notes") if fields.knows("notes") else []
    module = mtp.module(fields, kinds, formats, kv_dtype, assumed)
    if fields.defaulted:
        listed = ", ".join(f"{field}={shown(value)}" for field, value in sorted(fields.defaulted.items()))
        assumed.append(f"Absent fields, class defaults of {fields.config.get('model_type')}: {listed}.")
    return ModelShape(
        name=name,
        source=source,
        weights=weight_groups(layer_blocks, outside.weights, formats),
        experts=expert_groups(layer_blocks, formats),
        attention=attention_groups(layer_blocks, kv_dtype),
        states=state_groups(layer_blocks, _state_width(fields.config)),
        hidden=fields.count("hidden"),
        n_layers=len(kinds),
        vocab=fields.count("vocab"),
        activation_dtype=dtype,
        max_context=_max_context(fields),
        mtp=module,
        assumed=tuple(assumed),
    )


def plain_dtype(fields: Fields, assumed: list[str]) -> str:
    """The dtype of unquantised weights: 16 bits unless the file says 16 bits of another kind."""
    named = fields.config.get("torch_dtype") or fields.config.get("dtype")
    short = dtype_name(named) if isinstance(named, str) else ""
    if short in ("bf16", "fp16"):
        return short
    if short == "fp32":
        assumed.append("The file says float32; engines serve such weights in 16 bits, counted as bf16.")
    elif short in ("", "auto"):
        assumed.append("No dtype in the file: counted as bf16.")
    elif short not in PLAIN:
        assumed.append(f"dtype {short!r} says nothing about the unquantised weights: counted as bf16.")
    return "bf16"


def _quantization(config: Mapping[str, Any]) -> Any:
    """The quantisation block; the dtype of experts that stands beside it goes with it (DeepSeek V4)."""
    block = config.get("quantization_config", config.get("quantization"))  # the second is MLX's
    if isinstance(block, Mapping) and isinstance(config.get("expert_dtype"), str):
        return {**block, "expert_dtype": config["expert_dtype"]}
    return block


def _note_scheme(scheme: Scheme | None, assumed: list[str]) -> None:
    if scheme is not None:
        assumed.append(f"Weights are stored as the quantisation block says ({scheme.name}), scales counted.")
    if scheme is not None and scheme.kv_cache_dtype:
        assumed.append(f"The KV cache is {scheme.kv_cache_dtype}, as the quantisation block says.")


def _note_oddities(fields: Fields, n_layers: int, assumed: list[str]) -> None:
    """What a reader of the counts should know of this file."""
    if n_layers == 1:
        assumed.append(
            "One decoder layer: if this is an EAGLE head, read it as one: table and head are the target's."
        )


def _refuse_unread(fields: Fields) -> None:
    """A field that changes the layout but means nothing to the family would make every count wrong."""
    for field in _SHAPING:
        value = fields.config.get(field)
        if value and not fields.reads(field):
            family = fields.config.get("model_type")
            problem = f"{shown(value)} is no part of the {family!r} layout as known here"
            raise DataError(fields.where, f"{field}: {problem}")


def _state_width(config: Mapping[str, Any]) -> float:
    """Bytes of a recurrent state element: the dtype the file names, 4 where it names none."""
    named = next((config[field] for field in _STATE_DTYPES if isinstance(config.get(field), str)), "float32")
    known = PLAIN.get(dtype_name(named))
    return known.bytes_per_param if known else 4.0


def _max_context(fields: Fields) -> int | None:
    value = fields.raw("max_context")
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**62
    return int(value) if usable else None
