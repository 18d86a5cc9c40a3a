"""Results of any question whose acceptance a serving engine told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from specmath.engines.source_law import SourceLaw
from specmath.results import CHUNK_ROWS, Advice, Block, Cell, Columns, Result


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
        return tuple(dict.fromkeys([*self.law.advice, *self.notes, *self.result.warnings]))

    @property
    def verdict(self) -> str:
        return self.result.verdict

    @property
    def derivation(self) -> tuple[str, ...]:
        return self.result.derivation

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.result.blocks

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        return self.result.chunks(size)
