"""What a calibration would do, for a dry run: the grid, its memory and about its time. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from calibrate.checkpoints import open_checkpoint
from calibrate.grid import Grid, Models, default_grid, estimated_s
from calibrate.machine import catalogue_device, device_name, free_bytes
from calibrate.models import RANDOM, default_dtype, random_shape
from calibrate.opened import chains, chosen_device
from calibrate.requests import PARTS, Request
from specmath.accelerator import Accelerator
from specmath.catalogue import load_hardware
from specmath.model import ModelShape
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
from specmath.units import format_quantity

_CPU_RATES = (10e9, 50e9)
"""Bytes and FLOP per second of a core that nothing is known of: for an estimate of minutes, no more."""


@dataclass(frozen=True, kw_only=True)
class PlanTable(Result):
    """The places that would be timed, and those left out with the reason.

    Attributes:
        request: What was asked.
        grid: The places.
        where: The device.
        seconds: About what timing takes.
        dtype: Of weights and cache.
    """

    schema: ClassVar[str] = "specmath.calibration_plan/1"
    keys: ClassVar[tuple[str, ...]] = ("part", "batch", "pass_width", "context", "left_out")

    request: Request
    grid: Grid
    where: str
    seconds: float
    dtype: str

    @property
    def inputs(self) -> Mapping[str, Cell]:
        told: dict[str, Cell] = {"target": self.request.target, "draft": self.request.draft}
        return told | {"device": self.where, "dtype": self.dtype, "memory_bytes": self.grid.peak_bytes}

    @property
    def assumptions(self) -> tuple[str, ...]:
        limit = format_quantity(self.request.limit_s, "s")
        parts = [part for part in PARTS if part not in self.request.skip]
        further = f"; {' and '.join(parts)} not counted" if parts else ""
        return (
            "nothing was loaded or timed: the time is a guess from sizes alone, of timing alone, which ends "
            f"at the time limit of {limit}{further}",
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return ()

    @property
    def verdict(self) -> str:
        places, left_out = len(self.grid.places), len(self.grid.left_out)
        if not any(place.part == "target" for place in self.grid.places):
            return f"nothing can be timed on {self.where}: {self.grid.left_out[0][1]}"
        memory = self.grid.peak_bytes
        held = f", {format_quantity(memory, 'B')} at most" if memory else ""
        out = f"; {left_out} do not fit" if left_out else ""
        return (
            f"{places} cells on {self.where}{held}, about {format_quantity(self.seconds, 's')} of timing{out}"
        )

    def __len__(self) -> int:
        return len(self.grid.places) + len(self.grid.left_out)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        rows = [*((place, None) for place in self.grid.places), *self.grid.left_out]
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            columns: Columns = {
                name: [getattr(place, name.removeprefix("pass_")) for place, _ in some]
                for name in self.keys[:-1]
            }
            yield columns | {"left_out": [reason for _, reason in some]}


def planned(request: Request) -> PlanTable:
    """What a request would time, on the device that it would run on.

    Raises:
        AccessError, DataError, InputError, UnknownNameError: as opening the pair would.
    """
    device = chosen_device(request.device)
    dtype = request.dtype or default_dtype(device)
    draft = None if request.is_lookup else _shape(request.draft, dtype)
    models = Models(target=_shape(request.target, dtype), draft=draft, free_bytes=free_bytes(device))
    grid = default_grid(
        models,
        on_gpu=device.type == "cuda",
        batches=request.batches,
        contexts=request.contexts,
        ks=chains(request.ks, request.quick),
        quick=request.quick,
    )
    name = device_name(device)
    bytes_per_s, flops_per_s = _rates(catalogue_device(name), dtype)
    seconds = estimated_s(grid, models, bytes_per_s=bytes_per_s, flops_per_s=flops_per_s)
    return PlanTable(
        request=request,
        grid=grid,
        where=name,
        seconds=min(seconds, request.limit_s) if grid.places else 0.0,
        dtype=dtype,
    )


def _shape(name: str, dtype: str) -> ModelShape | None:
    if name.startswith(RANDOM):
        return random_shape(name, dtype=dtype)
    shape = open_checkpoint(name).shape
    return shape and shape.with_dtype(dtype)


def _rates(part: str | None, dtype: str) -> tuple[float, float]:
    """Bytes and FLOP per second of a device, of its catalogue entry where it has one."""
    if part is None:
        return _CPU_RATES
    known: Accelerator = load_hardware(part)
    return known.memory_bytes_per_s, known.peak(dtype).flops_per_s
