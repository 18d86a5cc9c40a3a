"""What `show hardware` shows: all accelerators side by side, or one with everything known about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from specmath.accelerator import DTYPE_BYTES, KINDS, Accelerator, Measurement, Source
from specmath.breakevens import ridge_flops_per_byte, ridge_tokens
from specmath.catalogue import hardware_catalogue
from specmath.errors import InputError, UnknownNameError
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
from specmath.units import format_quantity, format_significant

_DENSE = "peaks are dense (no 2:4 sparsity), with FP32 accumulation"
_LINK = "links are the total of one device, one direction: half of the marketed figure"


def list_hardware(
    *, vendor: str | None = None, kind: str | None = None, hardware_file: str | Path | None = None
) -> HardwareList:
    """All accelerators of the catalogue, one a row.

    Args:
        vendor: Only this vendor's, in any case; None for all.
        kind: Only this kind: gpu, cpu, soc, apu, npu or tpu; None for all.
        hardware_file: A YAML file whose entries add to the catalogue or override it.

    Raises:
        InputError: an unknown kind.
        UnknownNameError: an unknown vendor.
        DataError, AccessError: as `load_hardware`.

    >>> [row["name"] for row in list_hardware(vendor="google", kind="tpu").rows()][:2]
    ['tpu-v4', 'tpu-v5e']
    """
    if kind is not None and kind not in KINDS:
        raise InputError("kind", f"must be one of {', '.join(KINDS)}, got {kind!r}")
    parts = tuple(hardware_catalogue(hardware_file=hardware_file).values())
    vendors = {part.vendor.lower() for part in parts}
    if vendor is not None and vendor.lower() not in vendors:
        raise UnknownNameError("vendor", vendor, vendors, f"known are {', '.join(sorted(vendors))}")
    wanted = tuple(
        part
        for part in parts
        if (vendor is None or part.vendor.lower() == vendor.lower()) and kind in (None, part.kind)
    )
    return HardwareList(accelerators=wanted, vendor=vendor, kind=kind)


def hardware_sheet(accelerator: Accelerator) -> HardwareSheet:
    """One accelerator, one row per dtype that it can run.

    >>> from specmath.catalogue import load_hardware
    >>> sheet = hardware_sheet(load_hardware("a100-sxm-80gb"))
    >>> [(row["dtype"], row["computes_in"]) for row in sheet.rows() if row["dtype"] in ("int8", "fp8")]
    [('fp8', 'bf16'), ('int8', 'int8')]
    """
    return HardwareSheet(accelerator=accelerator)


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareList(Result):
    """Accelerators side by side.

    Attributes:
        accelerators: One a row.
        vendor: The filter that was asked for; None without one.
        kind: The filter that was asked for; None without one.
    """

    accelerators: tuple[Accelerator, ...]
    vendor: str | None
    kind: str | None

    schema: ClassVar[str] = "specmath.hardware/1"
    keys: ClassVar[tuple[str, ...]] = (
        *("name", "title", "vendor", "kind", "release_year", "memory_bytes", "memory_bytes_per_s"),
        *("bf16_flops_per_s", "fp8_flops_per_s", "fp4_flops_per_s"),
        *("ridge_flops_per_byte", "ridge_tokens", "link_bytes_per_s"),
        *("tdp_w", "confidence"),
    )

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """The filters."""
        return {"vendor": self.vendor, "kind": self.kind}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the columns mean."""
        ridge = "ridge: tokens per pass at which 16-bit weights turn from memory-bound to compute-bound"
        return (
            _DENSE,
            f"{ridge} (bf16, or fp16 on parts without it)",
            f"{_LINK}; empty where there is none or its rate is not known",
            "confidence: high is a vendor figure confirmed independently, low is derived or disputed",
        )

    def __len__(self) -> int:
        return len(self.accelerators)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` accelerators at a time."""
        for start in range(0, len(self), size):
            rows = [self._row(part) for part in self.accelerators[start : start + size]]
            yield {key: [row[key] for row in rows] for key in self.keys}

    def _row(self, part: Accelerator) -> dict[str, Cell]:
        peaks = part.peak_flops_per_s
        return {
            "name": part.name,
            "title": part.title,
            "vendor": part.vendor,
            "kind": part.kind,
            "release_year": part.release_year,
            "memory_bytes": part.memory_bytes,
            "memory_bytes_per_s": part.memory_bytes_per_s,
            "bf16_flops_per_s": peaks.get("bf16"),
            "fp8_flops_per_s": peaks.get("fp8"),
            "fp4_flops_per_s": peaks.get("fp4"),
            "ridge_flops_per_byte": _ridge(part, part.half_dtype),
            "ridge_tokens": _ridge_tokens(part, part.half_dtype),
            "link_bytes_per_s": part.link_bytes_per_s,
            "tdp_w": part.tdp_w,
            "confidence": part.confidence,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareSheet(Result):
    """One accelerator: a row per dtype, everything else in the inputs, assumptions and derivation.

    Attributes:
        accelerator: The part.
    """

    accelerator: Accelerator

    schema: ClassVar[str] = "specmath.hardware-sheet/1"
    keys: ClassVar[tuple[str, ...]] = (
        *("dtype", "computes_in", "bytes_per_param", "peak_flops_per_s"),
        *("ridge_flops_per_byte", "ridge_tokens"),
    )

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """The figures of the part that do not depend on the dtype."""
        part = self.accelerator
        return {
            "hardware": part.name,
            "title": part.title,
            "aliases": list(part.aliases),
            "vendor": part.vendor,
            "kind": part.kind,
            "form_factor": part.form_factor,
            "release_year": part.release_year,
            "memory_bytes": part.memory_bytes,
            "memory_bytes_per_s": part.memory_bytes_per_s,
            "memory_type": part.memory_type,
            "memory_basis": part.memory_basis,
            "marketed_memory": part.marketed_memory,
            "llc_bytes": part.llc_bytes,
            "compute_units": part.compute_units,
            "link_type": part.link_type,
            "link_bytes_per_s": part.link_bytes_per_s,
            "host_link_type": part.host_link_type,
            "host_link_bytes_per_s": part.host_link_bytes_per_s,
            "tdp_w": part.tdp_w,
            "usd_per_hour": part.usd_per_hour,
            "confidence": part.confidence,
            "checked": part.checked,
            "sources": [source.title for source in part.sources],
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the figures mean and how far they can be trusted, then the notes of the entry."""
        part = self.accelerator
        checked = f", last checked {part.checked}" if part.checked else ""
        absent = [dtype for dtype in DTYPE_BYTES if not _runs(part, dtype)]
        return (
            f"{_DENSE}; a dtype without a path of its own computes in the next wider one, int4 in 16 bits",
            f"confidence {part.confidence}{checked}",
            *([f"cannot run: {', '.join(absent)}"] if absent else []),
            *([_LINK] if part.link_bytes_per_s else []),
            *([_price(part)] if part.usd_per_hour else []),
            *part.notes,
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """That the figures are weak, where they are."""
        if self.accelerator.confidence != "low":
            return ()
        text = f"the figures of {self.accelerator.name} are derived or disputed (confidence low)"
        remedy = "put better figures into a --hardware-file"
        return (Advice(code="low-confidence", text=text, remedy=remedy),)

    @property
    def derivation(self) -> tuple[str, ...]:
        """The ridge of the first row, the rates that are no peaks, what people measured, the sources."""
        part, first = self.accelerator, self._dtypes[0]
        rates = f"{_flops(part.peak(first).flops_per_s)} / {format_quantity(part.memory_bytes_per_s, 'B/s')}"
        per_byte = format_significant(_ridge(part, first))
        tokens = format_significant(_ridge_tokens(part, first))
        faster = part.fp16_accumulate_flops_per_s.items()
        return (
            f"ridge in {first}: {rates} = {per_byte} FLOP per byte",
            f"times {DTYPE_BYTES[first]:g} bytes over 2 FLOP per parameter and token: {tokens} tokens",
            *(f"{dtype} with FP16 accumulation, no peak: {_flops(rate)}" for dtype, rate in faster),
            *(_measured(part, measurement) for measurement in part.measured),
            *map(_described, _all_sources(part)),
        )

    def __len__(self) -> int:
        return len(self._dtypes)

    @property
    def _dtypes(self) -> list[str]:
        return [dtype for dtype in DTYPE_BYTES if _runs(self.accelerator, dtype)]

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` dtypes at a time."""
        for start in range(0, len(self), size):
            rows = [self._row(dtype) for dtype in self._dtypes[start : start + size]]
            yield {key: [row[key] for row in rows] for key in self.keys}

    def _row(self, dtype: str) -> dict[str, Cell]:
        part, peak = self.accelerator, self.accelerator.peak(dtype)
        return {
            "dtype": dtype,
            "computes_in": peak.dtype,
            "bytes_per_param": DTYPE_BYTES[dtype],
            "peak_flops_per_s": peak.flops_per_s,
            "ridge_flops_per_byte": _ridge(part, dtype),
            "ridge_tokens": _ridge_tokens(part, dtype),
        }


def _ridge(part: Accelerator, dtype: str) -> float:
    return float(ridge_flops_per_byte(part.peak(dtype).flops_per_s, part.memory_bytes_per_s))


def _ridge_tokens(part: Accelerator, dtype: str) -> float:
    peak = part.peak(dtype).flops_per_s
    return float(ridge_tokens(peak, part.memory_bytes_per_s, bytes_per_param=DTYPE_BYTES[dtype]))


def _runs(part: Accelerator, dtype: str) -> bool:
    try:
        part.peak(dtype)
    except InputError:
        return False
    return True


def _flops(rate: float) -> str:
    return format_quantity(rate, "FLOP/s")


def _all_sources(part: Accelerator) -> list[Source]:
    """The sources of the entry, of its price and of its measurements, each once."""
    priced_by = [part.price_source] if part.price_source else []
    return list(dict.fromkeys([*part.sources, *priced_by, *(figure.source for figure in part.measured)]))


def _described(source: Source) -> str:
    date = f", {source.date}" if source.date else ""
    return f"[{source.key}] {source.title} ({source.kind}{date})"


def _price(part: Accelerator) -> str:
    date = f" of {part.price_date}" if part.price_date else ""
    source = f" [{part.price_source.key}]" if part.price_source else ""
    return f"price: {part.usd_per_hour:g} USD per hour, one list price{date}{source}; put in your own"


def _measured(part: Accelerator, figure: Measurement) -> str:
    """One measurement as a line: `measured gemm in bf16: 798 TFLOP/s (0.81 of the peak), best ...`."""
    typical = _rate(figure.flops_per_s, figure.bytes_per_s, part.fraction_of_peak(figure))
    best = _rate(figure.best_flops_per_s, figure.best_bytes_per_s, part.fraction_of_peak(figure, "best"))
    parts = (
        typical,
        best and f"best {best}",
        figure.fixed_s and f"plus {format_quantity(figure.fixed_s, 's')} a product",
        figure.conditions,
    )
    what = figure.what.replace("_", " ") + (f" in {figure.dtype}" if figure.dtype else "")
    return f"measured {what}: {', '.join(part for part in parts if part)} [{figure.source.key}]"


def _rate(flops: float | None, bytes_per_s: float | None, fraction: float | None) -> str:
    """`798 TFLOP/s (0.81 of the peak)`, as far as its parts are known."""
    rate = _flops(flops) if flops else format_quantity(bytes_per_s, "B/s") if bytes_per_s else ""
    share = f"{fraction:.2f} of the peak" if fraction else ""
    return f"{rate} ({share})" if rate and share else rate or share
