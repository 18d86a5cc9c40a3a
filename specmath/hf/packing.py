"""How quantised matrices are packed: bits, the block that shares a scale, and the layouts known by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specmath.number_formats import NumberFormat, scaled

PER_TENSOR: Final = 0
"""Block size that stands for one scale a tensor, too little to count."""
PER_CHANNEL: Final = -1
"""Block size that stands for one scale a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Bits, block and scales of a quantised matrix; the bytes follow once its width is known.

    Attributes:
        name: Name of the format.
        bits: Bits of one value.
        block: Values that share a scale; 0 for a whole tensor, -1 for a row.
        scale_bytes: Bytes of a scale.
        zero_bytes: Bytes of a zero point.
        compute_dtype: Dtype of the product; None for that of the activations.
    """

    name: str
    bits: float
    block: int
    scale_bytes: float = 2.0
    zero_bytes: float = 0.0
    compute_dtype: str | None = None

    def at(self, in_features: int) -> NumberFormat:
        """The format of a matrix whose rows are `in_features` long."""
        block = in_features if self.block == PER_CHANNEL else self.block
        width = self.bits / 8
        if block > 0:
            width = scaled(self.bits, block, scale_bytes=self.scale_bytes, zero_bytes=self.zero_bytes)
        return NumberFormat(name=self.name, bytes_per_param=width, compute_dtype=self.compute_dtype)


ALGORITHMS: Final[dict[str, Packed | None]] = {
    "fp8": Packed(name="fp8", bits=8, block=PER_TENSOR, compute_dtype="fp8"),
    "fp8-pb-wo": Packed(name="fp8", bits=8, block=128 * 128, scale_bytes=4),
    "fp8-per-channel-per-token": Packed(
        name="fp8", bits=8, block=PER_CHANNEL, scale_bytes=4, compute_dtype="fp8"
    ),
    "nvfp4": Packed(name="nvfp4", bits=4, block=16, scale_bytes=1, compute_dtype="fp4"),
    "nvfp4-awq": Packed(name="nvfp4", bits=4, block=16, scale_bytes=1, compute_dtype="fp4"),
    "w4a16-nvfp4": Packed(name="nvfp4", bits=4, block=16, scale_bytes=1),
    "mxfp4": Packed(name="mxfp4", bits=4, block=32, scale_bytes=1),
    "fp4": Packed(name="mxfp4", bits=4, block=32, scale_bytes=1, compute_dtype="fp8"),
    "w4a8-mxfp4-fp8": Packed(name="mxfp4", bits=4, block=32, scale_bytes=1, compute_dtype="fp8"),
    "mxfp8": Packed(name="mxfp8", bits=8, block=32, scale_bytes=1, compute_dtype="fp8"),
    "w4a16-awq": Packed(name="int4", bits=4, block=128, scale_bytes=2),
    "w4a16": Packed(name="int4", bits=4, block=128, scale_bytes=2),
    "w4a8-awq": Packed(name="int4", bits=4, block=128, scale_bytes=2, compute_dtype="fp8"),
    "w8a16": Packed(name="int8", bits=8, block=PER_CHANNEL, scale_bytes=2),
    "int8": Packed(name="int8", bits=8, block=PER_CHANNEL, scale_bytes=2, compute_dtype="int8"),
    "w8a8-sq-per-channel": Packed(
        name="int8", bits=8, block=PER_CHANNEL, scale_bytes=2, compute_dtype="int8"
    ),
    "bf16": None,
    "none": None,
    "": None,
}
"""ModelOpt's names of layouts; None leaves the weights alone."""
