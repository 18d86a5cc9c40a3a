"""Models known by their parameter counts alone: the textbook's models."""

from __future__ import annotations

import re
from typing import Final

from specmath.errors import InputError
from specmath.model import ModelShape, WeightGroup
from specmath.units import parse_quantity

_COUNTS: Final = re.compile(r"\s*\d[\d.]*\s*[kMBTG]?(?:\s*/\s*\d[\d.]*\s*[kMBTG]?)?\s*")


def looks_like_counts(text: str) -> bool:
    """Whether a text stands for counts rather than for a name.

    >>> looks_like_counts("70B"), looks_like_counts("47B/13B"), looks_like_counts("qwen3-32b")
    (True, True, False)
    """
    return _COUNTS.fullmatch(text) is not None


def model_from_counts(text: str) -> ModelShape:
    """A model known by its counts alone, from `70B` or, total and active, `47B/13B`.

    >>> model_from_counts("47B/13B").multiplied_params
    13000000000
    """
    total, slash, active = text.partition("/")
    active_params = parse_quantity("active_params", active) if slash else None
    return counts_model(text.strip(), parse_quantity("total_params", total), active_params)


def counts_model(
    name: str, total_params: float, active_params: float | None = None, bytes_per_param: float = 2.0
) -> ModelShape:
    """A model known by its counts alone: the bytes of all its parameters, the FLOPs of the active ones.

    One dense component, no cache, no layers: the textbook model, and the textbook MoE where fewer are
    active. Such an MoE reads every expert in every pass, which is too slow at small batch.

    Args:
        name: What to call it.
        total_params: Stored parameters, from 1 to 1e16.
        active_params: Parameters one token is multiplied with, at most the total; None for all.
        bytes_per_param: Bytes of one parameter, above 0 and at most 16.

    >>> counts_model("47B/13B", 47e9, 13e9).weight_bytes
    94000000000.0
    """
    total = _whole("total_params", total_params)
    active = total if active_params is None else _whole("active_params", active_params)
    if active > total:
        raise InputError("active_params", f"must be at most the total of {total:,}, got {active:,}")
    if not 0 < bytes_per_param <= 16:
        raise InputError("bytes_per_param", f"must be above 0 and at most 16, got {bytes_per_param!r}")
    group = WeightGroup(
        name="all",
        stored_params=total,
        read_params=total,
        multiplied_params=active,
        bytes_per_param=float(bytes_per_param),
        compute_dtype="bf16",
    )
    assumed = ["Known by its count alone: no KV cache, no layers, every parameter read in each pass."]
    if active < total:
        assumed.append("All experts are read in every pass, which is too slow at small batch.")
    return ModelShape(name=name, source="counts given by the user", weights=(group,), assumed=tuple(assumed))


def _whole(name: str, value: float) -> int:
    if not 1 <= value <= 1e16:
        raise InputError(name, f"must be between 1 and 1e16 parameters, got {value!r}")
    return round(value)
