"""Results of any question whose acceptance a serving engine told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log
from typing import Any, Final

from specmath.engines.source_law import SourceLaw
from specmath.results import CHUNK_ROWS, Advice, Block, Cell, Columns, Result

APART: Final = 3.0
"""Factor between the step of a source and the one forecast from which they are not of the same thing."""
_LOOKED_AT: Final = 4096
"""Rows among which such a row is sought."""
_NEAR: Final = 1.25
"""Factor by which the batch of a row may differ from what ran and still be about that batch."""


def sourced(result: Result, law: SourceLaw, notes: tuple[Advice, ...] = ()) -> Result:
    """The same result, whose notes say where its acceptance came from.

    Args:
        result: What a question returned.
        law: The law of the source.
        notes: Further warnings.
    """
    layout = {"schema": result.schema, "keys": result.keys, "data_keys": result.data_keys, "__slots__": ()}
    kind = type(type(result).__name__, (_Sourced,), layout)
    wrapped: Result = kind(result=result, law=law, notes=notes)
    return wrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sourced(Result):
    """A result beside the law it was asked with; the layout of its rows is set for each kind of result."""

    result: Result
    law: SourceLaw
    notes: tuple[Advice, ...]

    def __len__(self) -> int:
        return len(self.result)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        told = self.law.estimate.telemetry
        origin: dict[str, Cell] = {"alpha_from": told.source or None, "source_engine": told.engine}
        return dict(self.result.inputs) | origin

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (self.law.sentence, *self.result.assumptions)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        apart = another_machine(self.result, self.law)
        return tuple(dict.fromkeys([*self.law.advice, *self.notes, *apart, *self.result.warnings]))

    @property
    def verdict(self) -> str:
        return self.result.verdict

    @property
    def shown_keys(self) -> tuple[str, ...]:
        return self.result.shown_keys

    @property
    def remarks(self) -> tuple[str, ...]:
        return self.result.remarks

    @property
    def derivation(self) -> tuple[str, ...]:
        return self.result.derivation

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.result.blocks

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        return self.result.chunks(size)


def another_machine(result: Result, law: SourceLaw) -> tuple[Advice, ...]:
    """A warning where the speculative step forecast is far from the one that the source took at that batch.

    The row looked at is of the leading case, at the source's k where there is one, among the first rows.
    """
    load = law.estimate.telemetry.load
    if not {"case", "batch", "k", "step_s"} <= set(result.keys) or not load.step_s or not load.running:
        return ()
    row = _nearest(next(result.chunks(_LOOKED_AT), {}), max(load.running, 1.0), law.estimate.measured_k)
    if row is None or 1 / APART <= row["step_s"] / load.step_s <= APART:
        return ()
    own = f"the source's own step took {load.step_s * 1e3:.4g} ms at batch {load.running:.3g}"
    forecast = f"the one forecast takes {row['step_s'] * 1e3:.4g} ms at batch {row['batch']:g}"
    text = f"{own}, {forecast}: the hardware, model or engine asked about is not the one that ran"
    remedy = "name what ran with --hardware, --target and --engine; else take α alone from this source"
    return (Advice(code="another-machine", text=text, remedy=remedy),)


def _nearest(columns: Columns, running: float, k: int | None) -> dict[str, Any] | None:
    """The row of the first case about the batch that ran, its step known, the source's k first."""
    names = ("case", "batch", "k", "step_s")
    columns_asked = (columns.get(name, ()) for name in names)
    rows: list[dict[str, Any]] = [
        dict(zip(names, row, strict=True)) for row in zip(*columns_asked, strict=True)
    ]
    near = [
        row
        for row in rows
        if row["case"] == rows[0]["case"]
        and row["step_s"] is not None
        and row["step_s"] > 0
        and 1 / _NEAR <= row["batch"] / running <= _NEAR
    ]
    return min(near, key=lambda row: (row["k"] != k, abs(log(row["batch"] / running))), default=None)
