"""Quantisation blocks: which module is stored how.

A block becomes a `Scheme`: rules from module names to formats, a list of exclusions, and a default for
the linear layers no rule names. Embedding, head, norms and router keep 16 bits unless a rule names them.
Scales and zero points are counted: a block of values shares one scale, and one zero point where the
method has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from specmath.errors import DataError
from specmath.hf.fields import shown
from specmath.hf.module_names import ModuleNames
from specmath.hf.packing import ALGORITHMS, PER_CHANNEL, PER_TENSOR, Packed
from specmath.hf.quantization_fields import (
    by_algorithm,
    cache_dtype,
    excluded_modules,
    listed_names,
    table_of,
    whole_number,
)
from specmath.model import QUANTIZED_ROLES

_REACHED: Final = QUANTIZED_ROLES | {"experts"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """What a quantisation block says, ready to be asked per module.

    Attributes:
        name: Method, for the list of what was read.
        default: Format of linear layers that no rule names; None leaves them alone.
        rules: Module names and their format; None in a rule leaves them alone. The first match counts.
        excluded: Modules left alone.
        experts_only: True where only routed experts are quantised (gpt-oss).
        kv_cache_dtype: Dtype of the cache; None where the block names none.
    """

    name: str
    default: Packed | None
    rules: tuple[tuple[ModuleNames, Packed | None], ...] = ()
    excluded: ModuleNames
    experts_only: bool = False
    kv_cache_dtype: str | None = None

    @property
    def numbered(self) -> bool:
        """Whether any rule or exclusion names single layers."""
        return self.excluded.numbered or any(names.numbered for names, _ in self.rules)

    def packed(self, path: str, layer: int | None, role: str) -> Packed | None:
        """How a module is packed, or None where it keeps the plain dtype."""
        if self.excluded.covers(path, layer):
            return None
        for names, packed in self.rules:
            if names.covers(path, layer):
                return packed
        reached = role == "experts" if self.experts_only else role in _REACHED
        return self.default if reached else None


def read_scheme(block: Any, where: str) -> Scheme | None:
    """The scheme of a `quantization_config` or of an `hf_quant_config.json`; None where there is none."""
    if block is None:
        return None
    if not isinstance(block, Mapping):
        raise DataError(where, f"quantization_config: must be a table, got {shown(block)}")
    inner = block.get("quantization")
    flat = {**block, **inner} if isinstance(inner, Mapping) else dict(block)
    method = str(flat.get("quant_method") or _guessed_method(flat)).lower().replace("_", "-")
    if not method:
        raise DataError(where, "quantization_config: quant_method is missing, and no field tells the method")
    reader = _READERS.get(method)
    if reader is None:
        known = ", ".join(sorted(_READERS))
        raise DataError(where, f"quantization_config: quant_method {method!r} is not known; one of {known}")
    try:
        return reader(flat, where)
    except DataError:
        raise
    except ValueError as error:  # a pattern of module names
        raise DataError(where, f"quantization_config: {error}") from error


def _guessed_method(block: Mapping[str, Any]) -> str:
    """The method of a block that names none, by a field only that method has."""
    for field, method in (
        ("quant_algo", "modelopt"),
        ("config_groups", "compressed-tensors"),
        ("load_in_4bit", "bitsandbytes"),
        ("w_bit", "awq"),
        ("desc_act", "gptq"),
        ("weight_block_size", "fp8"),
    ):
        if field in block:
            return method
    return "mlx" if {"bits", "group_size"} <= set(block) else ""


def _fp8(block: Mapping[str, Any], where: str) -> Scheme:
    """FP8 with a scale a block of 128 x 128, a row or a tensor; experts may be in another format."""
    size = block.get("weight_block_size")
    sizes = size if isinstance(size, list) and size else [PER_TENSOR]
    area = 1
    for length in sizes:
        area *= whole_number({"weight_block_size": length}, where, "weight_block_size")
    activations = "fp8" if block.get("activation_scheme") is not None else None
    packed = Packed(name="fp8", bits=8, block=area, scale_bytes=4, compute_dtype=activations)
    rules: list[tuple[ModuleNames, Packed | None]] = []
    expert_algo = block.get("moe_quant_algo") or block.get("expert_dtype")
    if expert_algo is not None:
        rules.append((ModuleNames(["experts"]), by_algorithm(str(expert_algo), block, where)))
    return Scheme(
        name="fp8",
        default=packed,
        rules=tuple(rules),
        excluded=excluded_modules(block),
        kv_cache_dtype=cache_dtype(block, where),
    )


def _fbgemm(block: Mapping[str, Any], where: str) -> Scheme:
    packed = Packed(name="fp8", bits=8, block=PER_CHANNEL, scale_bytes=4, compute_dtype="fp8")
    return Scheme(name="fbgemm_fp8", default=packed, excluded=excluded_modules(block))


def _integer(block: Mapping[str, Any], where: str) -> Scheme:
    """AWQ, GPTQ and AutoRound: integers in groups with a 16-bit scale and a packed zero point."""
    bits = whole_number(block, where, "bits", "w_bit")
    group = whole_number(block, where, "group_size", "q_group_size", default=128)
    packed = _grouped(bits, group)
    rules: list[tuple[ModuleNames, Packed | None]] = []
    for names, own in (*table_of(block.get("dynamic")).items(), *table_of(block.get("extra_config")).items()):
        negative, plain = names.startswith("-:"), names.removeprefix("-:").removeprefix("+:")
        pattern = f"re:{plain}" if names[:2] in ("-:", "+:") else plain
        own_bits = whole_number(table_of(own), where, "bits", default=bits)
        own_group = whole_number(table_of(own), where, "group_size", default=group)
        rules.append(
            (ModuleNames([pattern]), None if negative or own_bits >= 16 else _grouped(own_bits, own_group))
        )
    if block.get("lm_head") is True:
        rules.append((ModuleNames(["lm_head"]), packed))
    return Scheme(name=f"int{bits}", default=packed, rules=tuple(rules), excluded=excluded_modules(block))


def _grouped(bits: int, group: int) -> Packed:
    block = PER_CHANNEL if group <= 0 else group
    return Packed(name=f"int{bits}", bits=bits, block=block, scale_bytes=2, zero_bytes=bits / 8)


def _mlx(block: Mapping[str, Any], where: str) -> Scheme:
    """MLX: groups with a 16-bit scale and bias, or the block formats; table and head are quantised, too."""
    packed = _of_mlx(block, where)
    own = [(name, value) for name, value in block.items() if isinstance(value, Mapping | bool)]
    rules: list[tuple[ModuleNames, Packed | None]] = [
        (ModuleNames([name]), _of_mlx({**block, **value}, where) if isinstance(value, Mapping) else None)
        for name, value in own
        if value is not True
    ]
    rules.append((ModuleNames(["embed_tokens", "lm_head"]), packed))
    return Scheme(name=packed.name, default=packed, rules=tuple(rules), excluded=ModuleNames([]))


def _of_mlx(block: Mapping[str, Any], where: str) -> Packed:
    mode = str(block.get("mode") or "affine")
    if mode != "affine":
        packed = by_algorithm(mode, block, where)
        if packed is None:
            raise DataError(where, f"quantization.mode: {mode!r} quantises nothing")
        return replace(packed, compute_dtype=None)
    bits = whole_number(block, where, "bits", default=4)
    group = whole_number(block, where, "group_size", default=64)
    return Packed(name=f"int{bits}", bits=bits, block=group, scale_bytes=2, zero_bytes=2)


def _bitsandbytes(block: Mapping[str, Any], where: str) -> Scheme:
    if block.get("load_in_4bit") or block.get("_load_in_4bit"):
        nested = block.get("bnb_4bit_use_double_quant")
        scale = 1 + 4 / 256 if nested else 4
        packed = Packed(name="nf4", bits=4, block=64, scale_bytes=scale)
    else:
        packed = Packed(name="int8", bits=8, block=PER_CHANNEL, scale_bytes=4, compute_dtype="int8")
    return Scheme(name="bitsandbytes", default=packed, excluded=excluded_modules(block))


def _groups(block: Mapping[str, Any], where: str) -> Scheme:
    """compressed-tensors and the newer ModelOpt files: groups of targets, each with its own weights."""
    default: Packed | None = None
    rules: list[tuple[ModuleNames, Packed | None]] = []
    for group in table_of(block.get("config_groups")).values():
        packed = _compressed(table_of(table_of(group).get("weights")), group, block, where)
        targets = listed_names(table_of(group), "targets")
        if "Linear" in targets or not targets:
            default = packed
        named = [target for target in targets if target != "Linear"]
        if named:
            rules.append((ModuleNames(named), packed))
    own = _by_layer(block, where)
    return Scheme(
        name=str(block.get("quant_method") or "compressed-tensors"),
        default=default,
        rules=(*own, *rules),
        excluded=excluded_modules(block),
        kv_cache_dtype=cache_dtype(block, where),
    )


def _by_layer(block: Mapping[str, Any], where: str) -> tuple[tuple[ModuleNames, Packed | None], ...]:
    """A table of modules, thousands of them in large mixtures, as one rule for each format."""
    names: dict[Packed | None, list[object]] = {}
    for name, layer in table_of(block.get("quantized_layers")).items():
        own = table_of(layer)
        packed = by_algorithm(str(own.get("quant_algo")), own, where)
        names.setdefault(packed, []).append(name)
    return tuple((ModuleNames(patterns), packed) for packed, patterns in names.items())


def _compressed(
    weights: Mapping[str, Any], group: Any, block: Mapping[str, Any], where: str
) -> Packed | None:
    if not weights:
        return None
    bits = whole_number(weights, where, "num_bits", default=8)
    floating = weights.get("type") == "float"
    inputs = table_of(table_of(group).get("input_activations"))
    size = whole_number(weights, where, "group_size", default=PER_TENSOR)
    if weights.get("strategy") == "channel":
        size = PER_CHANNEL
    if weights.get("strategy") == "block":
        size = _block_area(weights, where)
    layout = str(table_of(group).get("format") or block.get("format") or "")
    if floating and bits == 4:
        tiny = "mxfp4" if "mxfp4" in layout or size == 32 else "nvfp4"
        return Packed(
            name=tiny, bits=4, block=size or 16, scale_bytes=1, compute_dtype="fp4" if inputs else None
        )
    compute = None
    if inputs:
        compute = "fp8" if floating and whole_number(inputs, where, "num_bits", default=8) == 8 else "int8"
    name = f"fp{bits}" if floating else f"int{bits}"
    zero = 0.0 if weights.get("symmetric", True) else bits / 8
    return Packed(name=name, bits=bits, block=size, scale_bytes=2, zero_bytes=zero, compute_dtype=compute)


def _block_area(weights: Mapping[str, Any], where: str) -> int:
    structure = weights.get("block_structure")
    if not isinstance(structure, list) or not structure:
        return PER_TENSOR
    area = 1
    for length in structure:
        area *= whole_number({"block_structure": length}, where, "block_structure")
    return area


def _modelopt(block: Mapping[str, Any], where: str) -> Scheme | None:
    """ModelOpt: one algorithm, or a table of layers for mixed precision."""
    if "config_groups" in block:
        return _groups(block, where)
    algorithm = str(block.get("quant_algo") or "")
    mixed = algorithm.upper() == "MIXED_PRECISION"
    own = _by_layer(block, where)
    return Scheme(
        name=algorithm or "modelopt",
        default=None if mixed else by_algorithm(algorithm, block, where),
        rules=own,
        excluded=excluded_modules(block),
        kv_cache_dtype=cache_dtype(block, where),
    )


def _mxfp4(block: Mapping[str, Any], where: str) -> Scheme:
    return Scheme(
        name="mxfp4", default=ALGORITHMS["mxfp4"], excluded=excluded_modules(block), experts_only=True
    )


_READERS: Final[dict[str, Callable[[Mapping[str, Any], str], Scheme | None]]] = {
    "fp8": _fp8,
    "fbgemm-fp8": _fbgemm,
    "awq": _integer,
    "awq-marlin": _integer,
    "gptq": _integer,
    "gptq-marlin": _integer,
    "auto-round": _integer,
    "intel/auto-round": _integer,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _groups,
    "modelopt": _modelopt,
    "modelopt-fp4": _modelopt,
    "modelopt-mixed": _modelopt,
    "mlx": _mlx,
    "mxfp4": _mxfp4,
}
