"""Fields that the quantisation blocks of several methods share, read and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from specmath.errors import DataError
from specmath.hf.fields import shown
from specmath.hf.module_names import ModuleNames
from specmath.hf.packing import ALGORITHMS, Packed


def whole_number(block: Mapping[str, Any], where: str, *names: str, default: int | None = None) -> int:
    """The first of these fields as a whole number in its range. Raises DataError, one line."""
    for name in names:
        value = block.get(name)
        if value is None:
            continue
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or value != int(max(-1, min(value, 2**20)))
        ):
            wanted = f"must be a whole number from -1 to {2**20:,}"
            raise DataError(where, f"quantization_config.{name}: {wanted}, got {shown(value)}")
        if name.endswith("group_size") and value != -1 and value < 8:
            raise DataError(
                where, f"quantization_config.{name}: must be -1 or at least 8, got {shown(value)}"
            )
        if "bits" in name and not 1 <= value <= 32:
            raise DataError(where, f"quantization_config.{name}: must be 1 to 32, got {shown(value)}")
        return int(value)
    if default is None:
        raise DataError(where, f"quantization_config.{names[0]}: is missing")
    return default


def listed_names(block: Mapping[str, Any], *fields: str) -> list[object]:
    """Module names in these fields, lists and single names alike."""
    found: list[object] = []
    for field in fields:
        value = block.get(field)
        found += value if isinstance(value, list) else [value] if isinstance(value, str) else []
    return found


_EXCLUDED_IN: Final = (
    "ignore",
    "ignored_layers",
    "exclude",
    "exclude_modules",
    "modules_to_not_convert",
    "modules_to_skip",
    "llm_int8_skip_modules",
)


def excluded_modules(block: Mapping[str, Any]) -> ModuleNames:
    """The modules that a block leaves alone, by whichever field its method uses."""
    return ModuleNames(listed_names(block, *_EXCLUDED_IN))


def table_of(value: Any) -> Mapping[str, Any]:
    """The value where it is a table, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def by_algorithm(algorithm: str, block: Mapping[str, Any], where: str) -> Packed | None:
    """The format an algorithm of ModelOpt or MLX names, with the block's own group size."""
    key = algorithm.lower().replace("_", "-")
    if key not in ALGORITHMS:
        raise DataError(where, f"quantization_config.quant_algo: {algorithm!r} is not known")
    packed = ALGORITHMS[key]
    size = whole_number(block, where, "group_size", default=packed.block if packed else 0)
    if packed is None or size <= 0 or packed.block <= 0 or packed.block > 1024:
        return packed
    return replace(packed, block=size)


def cache_dtype(block: Mapping[str, Any], where: str) -> str | None:
    """Dtype of the KV cache, where the block names one."""
    scheme, algorithm = table_of(block.get("kv_cache_scheme")), block.get("kv_cache_quant_algo")
    if scheme:
        kind = "fp8" if scheme.get("type") == "float" else "int8"
        return {8: kind, 4: "nvfp4" if kind == "fp8" else "int4"}.get(
            whole_number(scheme, where, "num_bits", default=8)
        )
    named = str(algorithm).lower() if algorithm else ""
    return named if named in ("fp8", "int8", "nvfp4") else None
