"""One forward pass taken apart: bytes, FLOPs, time and bound of each component."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from specmath.accelerator import Accelerator
from specmath.checks import require_count, require_range
from specmath.memory import weight_bytes_per_device
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
from specmath.roofline import ForwardPass, PassPart
from specmath.units import format_quantity


def take_apart(
    run: ForwardPass,
    *,
    part: Accelerator,
    batch: int,
    tokens: float,
    context: float,
    name: str = "ideal",
    described: str = "",
) -> PassTable:
    """The components of one pass of `run` on `part`, with their share of the time.

    Args:
        run: The forward passes of a model, spread over devices.
        part: The device, for the assumptions.
        batch: Sequences, at least 1.
        tokens: Tokens per sequence: 1 for a plain step, k + 1 to verify k.
        context: Tokens in the cache of each sequence.
        name: Name of the profile whose constants `run` has.
        described: What that profile is, as its first assumption; empty for the ideal.
    """
    return PassTable(
        run=run,
        part=part,
        name=name,
        described=described,
        batch=int(require_count("batch", batch, 1)),
        tokens=float(require_range("tokens", tokens, 1)),
        context=float(require_range("context", context, 0)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTable(Result):
    """A row per component, then the total. Bytes and FLOPs are those of one device.

    `bound` is bytes or FLOPs, whichever takes longer; latency for what takes time without either. The last
    row, `total`, adds up.
    """

    schema: ClassVar[str] = "specmath.pass/1"
    keys: ClassVar[tuple[str, ...]] = (
        "component",
        "traffic_bytes",
        "flops",
        "bytes_s",
        "flops_s",
        "time_s",
        "share",
        "bound",
    )

    run: ForwardPass
    part: Accelerator
    name: str
    described: str
    batch: int
    tokens: float
    context: float

    @property
    def parts(self) -> list[PassPart]:
        """The components that take any time."""
        parts = self.run.parts(self.batch, self.tokens, self.context)
        return [part for part in parts if float(part.seconds) > 0]

    def __len__(self) -> int:
        return len(self.parts) + 1

    @property
    def inputs(self) -> Mapping[str, Cell]:
        layout = self.run.layout
        degrees = {name: getattr(layout, name) for name in ("tp", "dp", "ep", "pp")}
        return {
            "model": self.run.model.name,
            "hardware": self.part.name,
            "profile": self.name if self.described else None,
            "batch": self.batch,
            "tokens_per_sequence": self.tokens,
            "context": self.context,
            **{name: degree if degree > 1 else None for name, degree in degrees.items()},
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        ideal = f"ideal: datasheet peaks of {self.part.name}, no overhead; neither a forecast nor a bound"
        return (
            self.described or ideal,
            "components run one after another; bytes and FLOPs are those of one device",
            *self.run.model.assumed,
        )

    @property
    def verdict(self) -> str:
        seconds, plain = (
            float(np.asarray(self.run.time(self.batch, tokens, self.context))) for tokens in (self.tokens, 1)
        )
        ratio = "" if self.tokens == 1 else f", {seconds / plain:.3f} plain passes"
        told = f"{format_quantity(seconds, 's')}{ratio}"
        if self.described:
            return f"{told} by the {self.name} profile of {self.part.name}, the host's time left out"
        return f"{told} at the ideal roofline, a datasheet figure, not a forecast"

    @property
    def warnings(self) -> tuple[Advice, ...]:
        weights = weight_bytes_per_device(self.run.model, self.run.layout)
        if weights <= self.part.memory_bytes:
            return ()
        needed, room = (format_quantity(size, "B") for size in (weights, self.part.memory_bytes))
        text = f"{needed} of weights a device do not fit its {room}"
        return (Advice(code="weights-do-not-fit", text=text, remedy="quantise, or add devices"),)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        rows = [*map(self._row, self.parts), self._total()]
        for start in range(0, len(rows), size):
            yield {key: [row[key] for row in rows[start : start + size]] for key in self.keys}

    def _row(self, part: PassPart) -> dict[str, Cell]:
        total = float(np.asarray(self.run.time(self.batch, self.tokens, self.context)))
        return {
            "component": part.name,
            "traffic_bytes": float(part.bytes),
            "flops": float(part.flops),
            "bytes_s": float(part.bytes_s),
            "flops_s": float(part.flops_s),
            "time_s": float(part.seconds),
            "share": float(part.seconds) / total,
            "bound": str(part.bound),
        }

    def _total(self) -> dict[str, Cell]:
        parts = self.parts
        memory = [part for part in parts if part.name != "communication"]
        return {
            "component": "total",
            "traffic_bytes": sum(float(part.bytes) for part in memory),
            "flops": sum(float(part.flops) for part in parts),
            "bytes_s": None,
            "flops_s": None,
            "time_s": sum(float(part.seconds) for part in parts),
            "share": 1.0,
            "bound": None,
        }
