"""What every question returns: a frozen record of columns, with its assumptions and warnings.

A result holds its inputs and evaluates its columns chunk by chunk, so that a table of ten million rows
costs no more memory than one of a hundred thousand. `rows()`, `to_frame()` and every file format are
made from `chunks()`; nothing else leaves a result. Values are in SI base units, the unit stands in
the key (`target_s`, `memory_bytes`); a value that does not exist is None, never NaN or infinity.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from specmath.units import exact_text

if TYPE_CHECKING:
    import pandas as pd

Cell = float | int | str | bool | list[Any] | None
"""One value of a row: what JSON can hold."""
Columns = dict[str, "np.ndarray[Any, Any] | Sequence[Cell]"]
"""Equally long columns by key. In a float array NaN stands for "does not exist"."""

CHUNK_ROWS = 65_536
"""Rows evaluated at a time: large enough that numpy dominates, small enough to stay in cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A warning as data.

    Attributes:
        code: Stable short name, for programs (`more-devices`).
        text: What is the matter, with the number that shows it.
        remedy: The one thing to do about it.
        until_measured: Whether it speaks of a forecast alone, and is over once a pair has been measured.
    """

    code: str
    text: str
    remedy: str
    until_measured: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """A text to be pasted elsewhere, as it stands.

    Attributes:
        label: What it is (`server`, `file spec.yaml`).
        language: Its language, as a fenced code block names it: sh, json, yaml, python.
        text: The text, without a line break at its end.
    """

    label: str
    language: str
    text: str


class Result(ABC):
    """Base of the records that questions return.

    Subclasses are frozen dataclasses; they set `schema`, `keys` and implement `chunks`.
    """

    __slots__ = ()

    schema: ClassVar[str]
    """Name and version of the row layout, `specmath.speedup/1`."""
    keys: ClassVar[tuple[str, ...]]
    """Column keys in the order in which they are written."""
    data_keys: ClassVar[tuple[str, ...]] = ()
    """Those of them that data formats alone write: a reader finds the same in the text of another column."""

    @property
    @abstractmethod
    def inputs(self) -> Mapping[str, Cell]:
        """What was asked, in base units, so that a table explains itself."""

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """What the numbers assume, the most important first, one sentence each."""

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """What a reader must know before using the numbers."""
        return ()

    @property
    def verdict(self) -> str:
        """The answer in one sentence; empty where there is nothing to judge."""
        return ""

    @property
    def shown_keys(self) -> tuple[str, ...]:
        """Keys of the columns that a reader's table has; data formats write all of them."""
        return tuple(key for key in self.keys if key not in self.data_keys)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader's table leaves to words; data formats have it in their columns."""
        return ()

    @property
    def derivation_title(self) -> str:
        """What `derivation` is headed."""
        return "Derivation of the first row"

    @property
    def derivation(self) -> tuple[str, ...]:
        """How the first row was obtained, step by step, with its numbers."""
        return ()

    @property
    def details(self) -> Mapping[str, Sequence[Mapping[str, Cell]]]:
        """Further rows by name, which data formats write beside their own; a reader finds them in words."""
        return {}

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Texts to be pasted elsewhere, the configuration of an engine for one."""
        return ()

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows."""

    @abstractmethod
    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` rows at a time, in row order."""

    def rows(self) -> Iterator[dict[str, Cell]]:
        """One plain dict a row: base units, None where a value does not exist."""
        for chunk in self.chunks():
            columns = [cells(chunk[key]) for key in self.keys]
            for values in zip(*columns, strict=True):
                yield dict(zip(self.keys, values, strict=True))

    def to_frame(self) -> pd.DataFrame:
        """The same rows as a pandas frame. A value that does not exist is NaN (None in text columns)."""
        import pandas as pd  # heavy: only where a frame is asked for

        frames = [pd.DataFrame({key: chunk[key] for key in self.keys}) for chunk in self.chunks()]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=list(self.keys))


def cells(column: np.ndarray[Any, Any] | Sequence[Cell]) -> Sequence[Cell]:
    """A column as plain Python values; NaN and infinity become None, inside lists too.

    >>> cells(np.array([1.5, np.nan]))
    [1.5, None]
    >>> cells([[0.8, float("nan")], None])
    [[0.8, None], None]
    """
    if isinstance(column, np.ndarray) and column.dtype.kind != "O":
        if column.dtype.kind != "f" or np.isfinite(column).all():
            return cast("Sequence[Cell]", column.tolist())
        plain = column.astype(object)
        plain[~np.isfinite(column)] = None
        return cast("Sequence[Cell]", plain.tolist())
    values: Sequence[Cell] = column.tolist() if isinstance(column, np.ndarray) else column
    if set(map(type, values)) <= {str, int, bool, type(None)}:
        return values
    return [_plain(value) for value in values]


def _plain(value: Any) -> Cell:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        if set(map(type, value)) <= {float, type(None)}:  # a vector, possibly of thousands
            return list(cells(np.array(value, dtype=np.float64)))
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def brief(values: np.ndarray[Any, Any]) -> Cell:
    """An axis for the `inputs` of a document: the value, the values, or first, last and count of many.

    >>> brief(np.array([4])), brief(np.array([1, 2])), brief(np.arange(100))
    (4, [1, 2], '0 … 99 (100 values)')
    """
    if values.size > 32:
        ends = cells(values[[0, -1]])
        first, last = (exact_text(end) if isinstance(end, int | float) else str(end) for end in ends)
        return f"{first} … {last} ({values.size} values)"
    listed = list(cells(values))
    return listed[0] if len(listed) == 1 else listed or None
