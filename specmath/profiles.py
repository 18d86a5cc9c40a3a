"""Profiles: how far one kind of software is from the datasheet, as constants with a low and a high end.

A profile holds evidence about components (kernels, launches, host work), each constant with its sources,
and is never fitted to a speed-up. Where the catalogue has matrix products measured on the very part, those
replace the profile's general shares, and its low and high ends move along.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from specmath.accelerator import Accelerator, Measurement, Source
from specmath.checks import require_count
from specmath.errors import InputError
from specmath.execution import Efficiency, HostTimes

MOST_FLOOR = 100.0
"""Largest floor of a range; a range of a hundredfold says nothing any more."""
LONGEST_S = 10.0
"""Longest time that a constant may be; those of real software are below 0.1 s."""
LARGEST = 1e6
"""Largest of the other constants: kernels, bytes, readings."""
_HOST = frozenset(field.name for field in fields(HostTimes))
_DEVICE = frozenset(field.name for field in fields(Efficiency)) - {
    "graph_sizes",
    "state_snapshots",
    "row_limit",
}
CONSTANTS = _DEVICE | _HOST
"""Names of the constants that a profile may give."""
SHARES = frozenset(
    name for name in _DEVICE if name.endswith(("efficiency", "memory", "compute")) or name == "expert_overlap"
)
"""Constants that are shares, and stay at most 1 wherever the ends move."""
FAST_LINK_BYTES_PER_S = 100e9
"""One-way bandwidth from which a link counts as a fabric between devices, not as a host's bus."""
BUS_LATENCY_FACTOR = 3.75
"""A collective over a host's bus takes about 30 µs where one over NVLink takes 8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """One constant of a profile.

    Attributes:
        low, typical, high: Its value, and the ends of what was seen, in SI units.
        sources: Where it comes from.
        note: How it was read off, or that it is a judgement.
    """

    low: float
    typical: float
    high: float
    sources: tuple[Source, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        if not self.low <= self.typical <= self.high:
            ends = f"{self.low:g}, {self.typical:g}, {self.high:g}"
            raise InputError("constant", f"must have low <= typical <= high, got {ends}")


def require_constant(name: str, constant: Constant) -> None:
    """Refuse a constant that no pass could run with, whatever the part. Raises InputError with its name."""
    for value in (constant.low, constant.typical, constant.high):
        most = LONGEST_S if name.endswith("_s") else LARGEST
        if not value <= most and name != "sharpness":
            raise InputError(name, f"must be at most {most:g}, got {value:g}")
        if name in _HOST:
            HostTimes(**{name: value})
        else:
            Efficiency(**{name: value})  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """How far one engine mode is from the datasheet.

    Attributes:
        name: typical, vllm, sglang, tensorrt-llm, transformers, llama.cpp, mlx, cpu.
        title: In words.
        constants: By the name of a field of `Efficiency` or `HostTimes`; what is missing is ideal.
        captured: Whether passes are replayed from captured graphs; False for eager code.
        row_limit: Tokens up to which quantised weights are read row by row.
        library_products: Whether it runs the vendors' matrix products, so that those measured on a part hold.
        least, most: Floor of the range: the speed-up divided and multiplied by these is never left out.
        notes: What a reader should know.
    """

    name: str
    title: str
    constants: Mapping[str, Constant]
    captured: bool = True
    row_limit: int = 1
    library_products: bool = True
    least: float = 1.0
    most: float = 1.0
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if strange := sorted(set(self.constants) - CONSTANTS):
            raise InputError(
                strange[0], f"is no constant of a profile; they are {', '.join(sorted(CONSTANTS))}"
            )
        require_count("row_limit", self.row_limit, 1, 4096)
        for name in ("least", "most"):
            if not 1 <= (floor := getattr(self, name)) <= MOST_FLOOR:
                raise InputError(name, f"must be at least 1 and at most {MOST_FLOOR:g}, got {floor:g}")

    def swings(self) -> Iterator[tuple[str, str]]:
        """Each constant with each of its ends that differs from its typical value."""
        for name, constant in self.constants.items():
            for end in ("low", "high"):
                if getattr(constant, end) != constant.typical:
                    yield name, end

    def on(
        self,
        part: Accelerator,
        *,
        link_bytes_per_s: float | None = None,
        graph_sizes: tuple[int, ...] | None = None,
        swing: tuple[str, str] | None = None,
    ) -> tuple[Efficiency, HostTimes]:
        """The constants on one part, all typical or one of them at an end.

        Args:
            part: The accelerator; what was measured on it replaces the general shares.
            link_bytes_per_s: The link used, one way; a slow one has a longer latency.
            graph_sizes: Captured sizes, if they are known.
            swing: A constant and its end, "low" or "high".
        """
        measured = measured_constants(part) if self.library_products else {}
        ends = {} if swing is None else dict([swing])
        given = {
            name: self.value(name, ends.get(name, "typical"), measured=measured.get(name))
            for name in self.constants
        }
        link = part.link_bytes_per_s if link_bytes_per_s is None else link_bytes_per_s
        if "link_latency_s" in given and (link is None or link < FAST_LINK_BYTES_PER_S):
            given["link_latency_s"] *= BUS_LATENCY_FACTOR
        sizes = graph_sizes if graph_sizes is not None else None if self.captured else ()
        device: dict[str, Any] = {name: value for name, value in given.items() if name in _DEVICE}
        host = {name: value for name, value in given.items() if name in _HOST}
        return Efficiency(**device, row_limit=self.row_limit, graph_sizes=sizes), HostTimes(**host)

    def value(self, name: str, end: str, *, measured: float | None = None) -> float:
        """A constant at its low, typical or high end; one measured on a part takes the place of the typical.

        Its ends then move along by the same factor; a share stays at most 1.
        """
        constant = self.constants[name]
        value = float(getattr(constant, end))
        if measured is not None:
            value = measured if end == "typical" else measured * value / constant.typical
        return min(value, 1.0) if name in SHARES else value


def measured_constants(part: Accelerator) -> dict[str, float]:
    """Shares and latency of matrix products that the catalogue has measured on this part.

    `memory_efficiency` and `product_latency_s` come together from the fit of latency against bytes of
    weights, else the share from streaming large weights; the narrow shares from the fp8 and fp4 fits over it.
    """
    fits = {found.dtype: found for found in part.measured if found.what == "gemm_latency_fit"}
    found: dict[str, float] = {}
    plain = fits.get("bf16") or fits.get("fp16")
    stream = next((one for one in part.measured if one.what == "weight_stream"), None)
    if plain is not None and plain.bytes_per_s is not None:
        found["memory_efficiency"] = plain.bytes_per_s / part.memory_bytes_per_s
        for name, dtype in (("eight_bit_memory", "fp8"), ("four_bit_memory", "fp4")):
            narrow = fits.get(dtype)
            if narrow is not None and narrow.bytes_per_s is not None:
                found[name] = min(narrow.bytes_per_s / plain.bytes_per_s, 1.0)
        if plain.fixed_s is not None:
            found["product_latency_s"] = plain.fixed_s
    elif stream is not None and stream.bytes_per_s is not None:
        found["memory_efficiency"] = stream.bytes_per_s / part.memory_bytes_per_s
    return {name: min(value, 1.0) for name, value in (found | _measured_rates(part)).items()}


def _measured_rates(part: Accelerator) -> dict[str, float]:
    """Shares of the peaks that large products reach."""
    shares = {one.dtype: _share(part, one) for one in part.measured if one.what == "gemm"}
    plain = shares.get("bf16") or shares.get("fp16")
    if plain is None:
        return {}
    found = {"compute_efficiency": plain}
    for name, dtype in (("eight_bit_compute", "fp8"), ("four_bit_compute", "fp4")):
        if narrow := shares.get(dtype):
            found[name] = min(narrow / plain, 1.0)
    return found


def _share(part: Accelerator, measured: Measurement) -> float | None:
    peak = part.peak_flops_per_s.get(measured.dtype or "")
    return None if measured.flops_per_s is None or not peak else min(measured.flops_per_s / peak, 1.0)
