"""How numbers are stored and multiplied: bytes per value, scales included, and the dtype of the matmul.

A weight-only format saves bytes and computes in 16 bit; a format whose activations are quantised too
computes in its own width. The names of compute dtypes are those of the hardware catalogue's peaks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specmath.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberFormat:
    """One way of storing a weight.

    Attributes:
        name: What tables call it (`nvfp4`).
        bytes_per_param: Bytes of one parameter with its share of scales and zero points.
        compute_dtype: The dtype its matrix product runs in; None: that of the activations.
    """

    name: str
    bytes_per_param: float
    compute_dtype: str | None


def scaled(bits: float, block: int, *, scale_bytes: float = 0.0, zero_bytes: float = 0.0) -> float:
    """Bytes per value of `bits` bits whose blocks of `block` values share one scale and one zero point.

    >>> scaled(4, 16, scale_bytes=1)
    0.5625
    """
    return bits / 8 + (scale_bytes + zero_bytes) / block


PLAIN: Final = {
    "fp32": NumberFormat(name="fp32", bytes_per_param=4.0, compute_dtype="fp32"),
    "bf16": NumberFormat(name="bf16", bytes_per_param=2.0, compute_dtype="bf16"),
    "fp16": NumberFormat(name="fp16", bytes_per_param=2.0, compute_dtype="fp16"),
}
"""Unquantised storage."""

QUANTIZED: Final = {
    name: NumberFormat(name=name, bytes_per_param=width, compute_dtype=compute)
    for name, width, compute in (
        ("fp8", scaled(8, 128 * 128, scale_bytes=4), "fp8"),
        ("int8", 1.0, "int8"),
        ("int4", scaled(4, 128, scale_bytes=2, zero_bytes=2), None),
        ("nf4", scaled(4, 64, scale_bytes=4), None),
        ("nvfp4", scaled(4, 16, scale_bytes=1), "fp4"),
        ("mxfp4", scaled(4, 32, scale_bytes=1), None),
    )
}
"""Usual layouts of each quantisation: fp8 in blocks of 128 x 128, int4 in groups of 128 with a 16-bit
scale and zero point, nvfp4 in blocks of 16, mxfp4 in blocks of 32 (multiplied in 16 bit)."""

CACHE_BYTES: Final = {
    "fp32": 4.0,
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "int4": 0.5,
    "nvfp4": 0.5625,
}
"""Bytes of one cached key or value element; a scale per tensor or head is too little to count."""

ALIASES: Final = {
    "float32": "fp32",
    "float": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float8": "fp8",
}


def dtype_name(text: str) -> str:
    """The short name of a dtype: `torch.bfloat16` and `bfloat16` are `bf16`; unknown text stays as it is."""
    plain = text.removeprefix("torch.").lower()
    return ALIASES.get(plain, plain)


def plain_format(dtype: str) -> NumberFormat:
    """The unquantised format of that name. Raises InputError for any other."""
    if dtype_name(dtype) in QUANTIZED:
        raise InputError("dtype", f"{dtype} quantises weights; a dtype is one of {', '.join(PLAIN)}")
    return _pick("dtype", dtype, PLAIN)


def quantized_format(quantization: str) -> NumberFormat:
    """The usual layout of that quantisation. Raises InputError for any other."""
    return _pick("quantization", quantization, QUANTIZED)


def cache_bytes(kv_cache_dtype: str) -> float:
    """Bytes of one key or value element in a cache of that dtype."""
    name = dtype_name(kv_cache_dtype)
    if name not in CACHE_BYTES:
        raise InputError(
            "kv_cache_dtype", f"{kv_cache_dtype!r} is not known; use one of {', '.join(CACHE_BYTES)}"
        )
    return CACHE_BYTES[name]


def _pick(parameter: str, text: str, formats: dict[str, NumberFormat]) -> NumberFormat:
    name = dtype_name(text)
    if name not in formats:
        raise InputError(parameter, f"{text!r} is not known; use one of {', '.join(formats)}")
    return formats[name]
