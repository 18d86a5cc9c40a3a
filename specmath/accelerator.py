"""One accelerator as a record: rates, memory, links, and where the figures come from.

`specmath.catalogue` makes it from YAML. It checks itself, so that one typed in Python obeys the same rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Final, Literal

from specmath.errors import InputError, shown

DTYPE_BYTES: Final[Mapping[str, float]] = MappingProxyType(
    {
        "fp32": 4.0,
        "tf32": 4.0,  # stored as fp32, multiplied with 10 bits of mantissa
        "bf16": 2.0,
        "fp16": 2.0,
        "fp8": 1.0,
        "int8": 1.0,
        "fp6": 0.75,
        "fp4": 0.5,
        "int4": 0.5,
    }
)
"""Bytes of one stored weight by dtype, without the scales of a quantised format."""

HALF_DTYPES: Final = ("bf16", "fp16")  # preferred one first
KINDS: Final = ("gpu", "cpu", "soc", "apu", "npu", "tpu")
CONFIDENCES: Final = ("high", "medium", "low")
MEMORY_BASES: Final = ("reported", "gib", "decimal", "assumed")
SOURCE_KINDS: Final = ("vendor", "table", "measurement", "report", "derived")
MEASUREMENTS: Final = (
    *("max_matmul", "gemm", "compute"),  # compared with the peak of a dtype
    *("weight_stream", "gemm_latency_fit", "read", "copy", "peer_copy"),  # compared with a bandwidth
)

_PATHS: Final[Mapping[str, tuple[str, ...]]] = {  # by dtype, those to compute in: the first that the part has
    "fp32": ("fp32",),
    "tf32": ("tf32", "fp32"),
    "bf16": ("bf16",),  # fp32 could hold it, but no engine runs it so: the user has to choose
    "fp16": ("fp16", "fp32"),  # bf16 is no wider: it has fewer bits of mantissa
    "fp8": ("fp8", *HALF_DTYPES),
    "int8": ("int8", *HALF_DTYPES),
    "fp6": ("fp6", "fp8", *HALF_DTYPES),
    "fp4": ("fp4", "fp6", "fp8", *HALF_DTYPES),
    "int4": HALF_DTYPES,  # weight-only: unpacked to 16 bits before it is multiplied
}

_RATIO_BANDS: Final = (
    # dtype, compared with, lowest and highest ratio; wider than any of the parts in the catalogue
    ("bf16", "fp16", 0.2, 5.0),
    ("bf16", "fp32", 0.9, 70.0),
    ("fp16", "fp32", 0.9, 70.0),
    ("bf16", "tf32", 0.9, 3.8),
    ("fp8", "bf16", 0.9, 4.1),
    ("fp8", "fp16", 0.9, 4.1),
    ("int8", "bf16", 0.02, 8.2),  # Blackwell Ultra all but dropped int8
    ("int8", "fp16", 0.02, 8.2),
    ("fp6", "fp8", 0.9, 2.2),
    ("fp4", "fp8", 0.9, 4.2),
)
_RIDGE_BAND: Final = (1.0, 10_000.0)
_UNIT_SLIP: Final = "is a unit prefix missing or wrong?"
_MEASURED_CEILING: Final = 1.1  # clocks above the one behind the peak have been seen, 10 percent have not


class Rates(Mapping[str, float]):
    """FLOP/s by dtype: an immutable mapping, unlike a dict hashable and unlike a proxy picklable."""

    __slots__ = ("_by_dtype",)

    def __init__(self, by_dtype: Mapping[str, float] | Iterable[tuple[str, float]] = ()) -> None:
        self._by_dtype = dict(by_dtype)

    def __getitem__(self, dtype: str) -> float:
        return self._by_dtype[dtype]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_dtype)

    def __len__(self) -> int:
        return len(self._by_dtype)

    def __hash__(self) -> int:
        return hash(frozenset(self._by_dtype.items()))

    def __repr__(self) -> str:
        return f"Rates({self._by_dtype})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The rate at which a part multiplies weights of some dtype.

    Attributes:
        flops_per_s: Dense rate in FLOP/s (OP/s for int8).
        dtype: The dtype that is computed in.
        widened: Whether that is another one than was asked for.
    """

    flops_per_s: float
    dtype: str
    widened: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a figure comes from.

    Attributes:
        key: Short name in the catalogue's list of sources.
        title: What it is.
        kind: One of `SOURCE_KINDS`.
        date: `2026-09` or `2026-09-30`, of the edition or the look-up; None where it is not known.
    """

    key: str
    title: str
    kind: str
    date: str | None = None

    def __post_init__(self) -> None:
        _require_choice("kind", self.kind, SOURCE_KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What somebody reached on the part. Never used as a peak.

    Attributes:
        what: One of `MEASUREMENTS`, which docs/hardware.md explains.
        source: Who measured.
        dtype: None where the figure belongs to none.
        flops_per_s: Typical rate in FLOP/s; None where no rate of computing was measured.
        best_flops_per_s: 90th percentile of the same; None where there is none.
        bytes_per_s: Typical bandwidth in B/s; None where no bandwidth was measured.
        best_bytes_per_s: Best of the same; None where there is none.
        fixed_s: Time in s of a product without its bytes; None except for `gemm_latency_fit`.
        fraction_of_peak: In (0, 1]; None unless the source gives nothing but a fraction.
        conditions: What was special about the run; empty where nothing was.
    """

    what: str
    source: Source
    dtype: str | None = None
    flops_per_s: float | None = field(default=None, metadata={"between": (1.0, 1e22)})
    best_flops_per_s: float | None = field(default=None, metadata={"between": (1.0, 1e22)})
    bytes_per_s: float | None = field(default=None, metadata={"between": (1.0, 1e18)})
    best_bytes_per_s: float | None = field(default=None, metadata={"between": (1.0, 1e18)})
    fixed_s: float | None = field(default=None, metadata={"between": (1e-12, 1.0)})
    fraction_of_peak: float | None = field(default=None, metadata={"between": (1e-6, 1.0)})
    conditions: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One device as software sees it: what a rank of tensor parallelism runs on.

    Attributes:
        name: Its name in the catalogue, `h100-sxm`.
        title: Its full name.
        vendor: Who sells it.
        kind: One of `KINDS`.
        peak_flops_per_s: Dense rate by dtype in FLOP/s (int8: OP/s), with FP32 accumulation. A dtype that
            is missing has no path of its own; `peak` says what then happens.
        memory_bytes: Bytes that software can allocate at most.
        memory_bytes_per_s: Peak memory bandwidth in B/s.
        confidence: `high`, `medium` or `low`.
        sources: Where the figures come from, at least one.
        form_factor: `SXM5`, `PCIe`; None where not given.
        release_year: None where not given.
        aliases: Other names of exactly this part.
        fp16_accumulate_flops_per_s: Faster rates of parts that halve FP32 accumulation; no peaks. Else empty.
        memory_type: `HBM3`; None where not given.
        memory_basis: Origin of `memory_bytes`, one of `MEMORY_BASES`; None where not given.
        marketed_memory: The label, `80 GB`; None where not given.
        link_type: Link to its peers; None where there is none or it is not known.
        link_bytes_per_s: All its links together, one direction, in B/s; None with `link_type`.
        host_link_type: Link to the host; None where there is none (shared memory) or it is not known.
        host_link_bytes_per_s: The same, one direction, in B/s; None with `host_link_type`.
        llc_bytes: Last cache before the memory, or SRAM under software control; None where not known.
        compute_units: SMs, CUs or cores; None where not known.
        tdp_w: Power of board or module in W; None where not known.
        usd_per_hour: One list price per device and hour; None where there is none.
        price_source: Whose price; None without one.
        price_date: `2026-10`; None where not known.
        measured: What people reached on it.
        notes: What a reader should know.
        checked: `2026-11`, when the figures were last compared with their sources; None where not given.

    Raises:
        InputError: a figure that is not positive, or rates that cannot all be dense figures of one part.
    """

    name: str
    title: str
    vendor: str
    kind: str
    peak_flops_per_s: Mapping[str, float]
    memory_bytes: float = field(metadata={"between": (1e6, 1e15)})
    memory_bytes_per_s: float = field(metadata={"between": (1e6, 1e18)})
    confidence: str
    sources: tuple[Source, ...]
    form_factor: str | None = None
    release_year: int | None = field(default=None, metadata={"between": (1980, 2100)})
    aliases: tuple[str, ...] = ()
    fp16_accumulate_flops_per_s: Mapping[str, float] = field(default_factory=Rates)
    memory_type: str | None = None
    memory_basis: str | None = None
    marketed_memory: str | None = None
    link_type: str | None = None
    link_bytes_per_s: float | None = field(default=None, metadata={"between": (1e6, 1e18)})
    host_link_type: str | None = None
    host_link_bytes_per_s: float | None = field(default=None, metadata={"between": (1e6, 1e18)})
    llc_bytes: float | None = field(default=None, metadata={"between": (1e3, 1e15)})
    compute_units: int | None = field(default=None, metadata={"between": (1, 1e8)})
    tdp_w: float | None = field(default=None, metadata={"between": (0.01, 1e6)})
    usd_per_hour: float | None = field(default=None, metadata={"between": (1e-6, 1e6)})
    price_source: Source | None = None
    price_date: str | None = None
    measured: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()
    checked: str | None = None

    def __post_init__(self) -> None:
        _require_choice("kind", self.kind, KINDS)
        _require_choice("confidence", self.confidence, CONFIDENCES)
        _require_choice("memory_basis", self.memory_basis, (*MEMORY_BASES, None))
        if not self.sources:
            raise InputError("sources", "must say where the figures come from; name at least one source")
        if len(self.title) > 100:
            raise InputError("title", f"must have at most 100 characters, got {len(self.title)}")
        _require_figures(self)
        for name in ("peak_flops_per_s", "fp16_accumulate_flops_per_s"):
            object.__setattr__(self, name, _require_rates(name, getattr(self, name)))
        _require_dense(self.peak_flops_per_s)
        self._require_ridge()
        for measurement in self.measured:
            self._require_measurement(measurement)

    @property
    def half_dtype(self) -> str:
        """The 16-bit dtype it multiplies in, bf16 before fp16; fp32 where it has neither."""
        return next((dtype for dtype in HALF_DTYPES if dtype in self.peak_flops_per_s), "fp32")

    def peak(self, dtype: str) -> Peak:
        """The dense rate for weights stored in `dtype`.

        A dtype without a path of its own runs at the next wider one: fp4 → fp6 → fp8 → 16 bits, int8 → 16
        bits, fp16 → fp32. int4 is weight-only: it is always unpacked to 16 bits.

        Args:
            dtype: One of `DTYPE_BYTES`.

        Raises:
            InputError: an unknown dtype, or one that nothing on the part can stand in for (bf16 on a V100).

        >>> t4_like = Accelerator(
        ...     name="t4-like", title="T4-like", vendor="me", kind="gpu", confidence="low",
        ...     peak_flops_per_s={"fp16": 64e12, "fp32": 8e12}, memory_bytes=16e9, memory_bytes_per_s=320e9,
        ...     sources=(Source(key="guess", title="a guess", kind="derived"),),
        ... )
        >>> t4_like.peak("fp8")
        Peak(flops_per_s=64000000000000.0, dtype='fp16', widened=True)
        >>> t4_like.peak("bf16")
        Traceback (most recent call last):
        specmath.errors.InputError: dtype: T4-like has no bf16; use fp16 (`--dtype fp16`)
        """
        _require_choice("dtype", dtype, tuple(DTYPE_BYTES))
        for path in _PATHS[dtype]:
            if path in self.peak_flops_per_s:
                return Peak(flops_per_s=self.peak_flops_per_s[path], dtype=path, widened=path != dtype)
        usable = next(name for name in (*HALF_DTYPES, *DTYPE_BYTES) if name in self.peak_flops_per_s)
        raise InputError("dtype", f"{self.title} has no {dtype}; use {usable} (`--dtype {usable}`)")

    def fraction_of_peak(
        self, measurement: Measurement, which: Literal["typical", "best"] = "typical"
    ) -> float | None:
        """A measured rate over its peak (of the dtype, the link, the memory); None where not measured."""
        best = which == "best"
        flops = measurement.best_flops_per_s if best else measurement.flops_per_s
        if flops is not None:
            return flops / self.peak(measurement.dtype or self.half_dtype).flops_per_s
        rate = measurement.best_bytes_per_s if best else measurement.bytes_per_s
        peak = self.link_bytes_per_s if measurement.what == "peer_copy" else self.memory_bytes_per_s
        if rate is not None and peak is not None:
            return rate / peak
        return None if best else measurement.fraction_of_peak

    def _require_ridge(self) -> None:
        fastest = max(self.peak_flops_per_s.values())
        if not _RIDGE_BAND[0] <= fastest / self.memory_bytes_per_s <= _RIDGE_BAND[1]:
            rates = f"{fastest:g} FLOP/s over {self.memory_bytes_per_s:g} B/s"
            raise InputError("peak_flops_per_s", f"{rates} cannot be; {_UNIT_SLIP}")

    def _require_measurement(self, measurement: Measurement) -> None:
        _require_choice("measured.what", measurement.what, MEASUREMENTS)
        _require_choice("measured.dtype", measurement.dtype, (*DTYPE_BYTES, None))
        if not _require_figures(measurement, "measured."):
            raise InputError("measured", f"{measurement.what} has no figure")
        for which in ("typical", "best"):
            try:
                fraction = self.fraction_of_peak(measurement, which)
            except InputError as error:  # the part has no such dtype
                raise InputError(f"measured.{error.name}", error.problem) from error
            if fraction is not None and fraction > _MEASURED_CEILING:
                problem = f"{measurement.what} is {fraction:.2f} of the peak; one of the two is wrong"
                raise InputError("measured", problem)


def _require_figures(record: Accelerator | Measurement, prefix: str = "") -> int:
    """How many figures the record has; each has to lie between bounds that are wider than any part."""
    count = 0
    for part in fields(record):
        value = getattr(record, part.name)
        if "between" in part.metadata and value is not None:
            _require_between(prefix + part.name, value, *part.metadata["between"])
            count += 1
    return count


def _require_choice(name: str, value: str | None, choices: tuple[str | None, ...]) -> None:
    if value not in choices:
        raise InputError(name, f"must be one of {', '.join(filter(None, choices))}, got {shown(value)}")


def _require_between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        hint = f"; {_UNIT_SLIP}" if "bytes" in name or "flops" in name else ""
        raise InputError(name, f"must be between {low:g} and {high:g}, got {value:g}{hint}")


def _require_rates(name: str, rates: Mapping[str, float]) -> Rates:
    for dtype, rate in rates.items():
        _require_choice(name, dtype, tuple(key for key in DTYPE_BYTES if key != "int4"))
        _require_between(f"{name}.{dtype}", rate, 1.0, 1e22)
    return Rates(rates)


def _require_dense(peaks: Mapping[str, float]) -> None:
    """Refuse rates that cannot all be dense: a sparse one is twice too large beside its neighbours."""
    if not any(dtype in peaks for dtype in (*HALF_DTYPES, "fp32")):
        raise InputError("peak_flops_per_s", "must have at least one of bf16, fp16, fp32")
    for dtype, other, low, high in _RATIO_BANDS:
        if dtype in peaks and other in peaks and not low <= peaks[dtype] / peaks[other] <= high:
            ratio = f"{dtype} is {peaks[dtype] / peaks[other]:.3g} times {other}, outside {low:g} to {high:g}"
            raise InputError("peak_flops_per_s", f"{ratio}; is one of them sparse? Give dense rates")
