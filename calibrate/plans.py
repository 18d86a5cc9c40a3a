"""What a calibration would do, for a dry run: the grid, its memory and about its time. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import torch

from calibrate.grid import USABLE_SHARE, Grid, Models, default_grid
from calibrate.machine import catalogue_device, device_name, free_bytes
from calibrate.models import default_dtype, model_shape
from calibrate.opened import asked_texts, chains, chosen_device, chosen_regime
from calibrate.plan_times import PlannedTime, Speed, planned_time
from calibrate.requests import PARTS, Request
from specmath.accelerator import Accelerator
from specmath.calibrations import Place
from specmath.catalogue import load_hardware
from specmath.errors import AccessError
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
from specmath.units import format_quantity

_CPU_SPEED: Final = Speed(bytes_per_s=10e9, flops_per_s=50e9)
"""Of a core that nothing is known of: for an estimate of minutes, no more."""
_NARROW: Final = "bf16"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a plan is made for.

    Attributes:
        name: Of the device.
        is_gpu: Whether the defaults are those of a GPU.
        free_bytes: Memory free before the weights are loaded; None where it is not known.
        dtype: Of weights and cache where none is asked for.
        part: Its name in the catalogue; None where it has none.
    """

    name: str
    is_gpu: bool
    free_bytes: float | None
    dtype: str
    part: str | None

    def speed(self, dtype: str) -> Speed:
        """Bytes and FLOP per second, of its catalogue entry where it has one."""
        if self.part is None:
            return _CPU_SPEED
        known: Accelerator = load_hardware(self.part)
        return Speed(bytes_per_s=known.memory_bytes_per_s, flops_per_s=known.peak(dtype).flops_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Places of one part that share their fate: every width at every context and batch."""

    part: str
    batches: tuple[int, ...]
    widths: tuple[int, ...]
    contexts: tuple[int, ...]
    left_out: str | None


@dataclass(frozen=True, kw_only=True)
class PlanTable(Result):
    """The places that would be timed, and those left out with the reason; alike ones share a row.

    Attributes:
        request: What was asked.
        grid: The places.
        models: The pair and the memory, which say why a place is left out.
        where: The device.
        time: About what it takes.
        dtype: Of weights and cache.
        narrow_places: Places that would fit in bf16; None where that is the dtype, or all fit.
    """

    schema: ClassVar[str] = "specmath.calibration_plan/1"
    keys: ClassVar[tuple[str, ...]] = ("part", "batch", "pass_width", "context", "left_out")

    request: Request
    grid: Grid
    models: Models
    where: str
    time: PlannedTime
    dtype: str
    narrow_places: int | None = None

    @property
    def inputs(self) -> Mapping[str, Cell]:
        told: dict[str, Cell] = {"target": self.request.target, "draft": self.request.draft}
        return told | {
            "device": self.where,
            "dtype": self.dtype,
            "memory_bytes": self.grid.peak_bytes or None,
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        limit = format_quantity(self.request.limit_s, "s")
        parts = [part for part in PARTS if part not in self.request.skip]
        told = " and ".join(("timing", *parts)) if len(parts) < 2 else "timing, acceptance and proof"
        return (
            f"nothing was loaded or timed: the time is a guess from sizes alone, of {told}; timing goes on "
            f"until medians are known to 1 %, on a noisy machine up to the time limit of {limit}",
            "the least time is at the rates of the datasheet, or of one core at 10 GB/s and 50 GFLOP/s; "
            "loading and compiling are not counted",
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        if self.narrow_places is None:
            return ()
        cells = len(self.grid.places) + len(self.grid.left_out)
        return (
            Advice(
                code="fits-in-bf16",
                text=f"in {_NARROW} {self.narrow_places} of {cells} cells fit, in {self.dtype} "
                f"{len(self.grid.places)}",
                remedy=f"give --dtype {_NARROW}",
            ),
        )

    @property
    def verdict(self) -> str:
        places, left_out = len(self.grid.places), len(self.grid.left_out)
        if not any(place.part == "target" for place in self.grid.places):
            hint = f"; give --dtype {_NARROW}, in which some fit" if self.narrow_places else ""
            return f"nothing can be timed on {self.where}: {self.grid.left_out[0][1]}{hint}"
        memory = self.grid.peak_bytes
        held = f", {format_quantity(memory, 'B')} at most" if memory else ""
        out = f"; {left_out} do not fit" if left_out else ""
        return f"{places} cells on {self.where}{held}, {self.time.text}{out}"

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def _groups(self) -> list[_Group]:
        timed = _grouped(self.grid.places)
        by_kind: dict[bool, list[Place]] = {}
        for place, reason in self.grid.left_out:
            by_kind.setdefault(reason.startswith("needs"), []).append(place)
        left_out = [
            replace(group, left_out=_reason_of(group, self.models, is_memory))
            for is_memory, places in sorted(by_kind.items())
            for group in _grouped(places)
        ]
        return timed + left_out

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        groups = self._groups
        for start in range(0, len(groups), size):
            some = groups[start : start + size]
            yield {
                "part": [group.part for group in some],
                "batch": [list(group.batches) for group in some],
                "pass_width": [list(group.widths) for group in some],
                "context": [list(group.contexts) for group in some],
                "left_out": [group.left_out for group in some],
            }


def _grouped(places: Sequence[Place]) -> list[_Group]:
    """Places in as few rows as say which they are: contexts of equal widths, batches of equal contexts."""
    groups: list[_Group] = []
    for part in dict.fromkeys(place.part for place in places):
        by_batch: dict[int, dict[int, list[int]]] = {}
        for place in places:
            if place.part == part:
                by_batch.setdefault(place.batch, {}).setdefault(place.context, []).append(place.width)
        alike: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
        for batch, widths_of in by_batch.items():
            for widths in dict.fromkeys(map(tuple, widths_of.values())):
                contexts = tuple(one for one, some in widths_of.items() if tuple(some) == widths)
                alike.setdefault((widths, contexts), []).append(batch)
        groups += [
            _Group(part=part, batches=tuple(batches), widths=widths, contexts=contexts, left_out=None)
            for (widths, contexts), batches in alike.items()
        ]
    return groups


def _reason_of(group: _Group, models: Models, is_memory: bool) -> str:
    """Why none of a group can run, from its least demanding place to its most."""
    if not is_memory:
        shapes = [shape for shape in (models.target, models.draft) if shape and shape.max_context]
        longest = min(shape.max_context or 0 for shape in shapes)
        ends = [end(group.contexts) + end(group.widths) for end in (min, max)]
        return f"{_span(f'{end:,}' for end in ends)} tokens are more than the {longest:,} that the pair takes"
    needed = [
        models.needed_bytes(end(group.batches), end(group.contexts), end(group.widths)) for end in (min, max)
    ]
    usable = format_quantity(USABLE_SHARE * (models.free_bytes or 0), "B")
    return f"needs {_span(format_quantity(end, 'B') for end in needed)}, {usable} are usable"


def _span(ends: Iterable[str]) -> str:
    return " to ".join(dict.fromkeys(ends))


def planned(request: Request) -> PlanTable:
    """What a request would time, on the device that it would run on, or on a part of the catalogue.

    Raises:
        AccessError, DataError, InputError, UnknownNameError: as opening the pair would.
    """
    machine = _machine(request)
    texts = asked_texts(request)
    dtype = request.dtype or machine.dtype
    models, grid = _on(machine, request, dtype)
    narrow = None
    if dtype == "fp32" and any(reason.startswith("needs") for _, reason in grid.left_out):
        narrow = len(_on(machine, request, _NARROW)[1].places)
    return PlanTable(
        request=request,
        grid=grid,
        models=models,
        where=machine.name,
        time=planned_time(request, grid, models, machine.speed(dtype), prompts=len(texts)),
        dtype=dtype,
        narrow_places=narrow if narrow and narrow > len(grid.places) else None,
    )


def _machine(request: Request) -> Machine:
    """The device of a request; a part of the catalogue stands in for one that is elsewhere."""
    part = None if request.device is None else _part(request.device)
    if part is not None:
        return Machine(
            name=part.name, is_gpu=True, free_bytes=part.memory_bytes, dtype=_NARROW, part=part.name
        )
    try:
        device = chosen_device(request.device)
    except AccessError as fault:
        hint = "; --device h100-sxm, or another part of the catalogue, is planned for without it"
        raise AccessError(fault.where, fault.problem + hint) from fault
    chosen_regime(request, device)
    name = device_name(device)
    return Machine(
        name=name,
        is_gpu=device.type == "cuda",
        free_bytes=free_bytes(device),
        dtype=default_dtype(device),
        part=catalogue_device(name),
    )


def _part(device: str) -> Accelerator | None:
    """The catalogue entry of that name; None for a device of torch."""
    try:
        torch.device(device)
    except RuntimeError:
        known = catalogue_device(device)
        return None if known is None else load_hardware(known)
    return None


def _on(machine: Machine, request: Request, dtype: str) -> tuple[Models, Grid]:
    """The pair in a dtype, and its grid."""
    models = Models(
        target=model_shape(request.target, dtype=dtype),
        draft=None if request.is_lookup else model_shape(request.draft, dtype=dtype),
        free_bytes=machine.free_bytes,
    )
    return models, default_grid(
        models,
        on_gpu=machine.is_gpu,
        batches=request.batches,
        contexts=request.contexts,
        ks=chains(request.ks, request.quick),
        quick=request.quick,
    )
