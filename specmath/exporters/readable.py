"""Columns and notes for a reader: the one source of terminal tables, Markdown, LaTeX and HTML.

A column has one display unit, in its header, and one number of decimals, so that its points line up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import NamedTuple

from specmath.columns import Column, column_of
from specmath.errors import InputError
from specmath.exporters.text import printable, rounded, vector_text
from specmath.results import Block, Cell, Result, cells
from specmath.units import display_scale, format_significant

MAX_ROWS = 10_000
"""More rows than this nobody reads; they are refused, with the formats that take them."""
MAX_NUMBERS = 1_000_000
"""Cells, each number of a vector counted: as many as 10,000 rows of the usual width hold."""
SHOWN_ASSUMPTIONS = 3
ABSENT = "–"


@dataclass(frozen=True, slots=True)
class ReadableColumn:
    """A header and its cells as text. `numeric` columns align to the right, `vector` cells may break at /."""

    header: str
    cells: list[str]
    importance: int
    numeric: bool
    vector: bool


class Note(NamedTuple):
    """A line below the table; `kind` is for, note, assumes or warning."""

    kind: str
    text: str


def readable_columns(result: Result) -> list[ReadableColumn]:
    """The columns that tell something, as text.

    A column without any value is left out, and so is one that repeats a single input in every row: the
    inputs stand in a line of their own.

    Raises:
        InputError: for more than 10,000 rows or a million numbers.
    """
    if len(result) > MAX_ROWS:
        raise InputError(
            "format",
            f"a readable table ends at {MAX_ROWS:,} rows, this one has {len(result):,}; "
            "use csv, json or parquet",
        )
    gathered: dict[str, list[Cell]] = {key: [] for key in result.shown_keys}
    held = 0
    for chunk in result.chunks():
        for key, values in gathered.items():
            column = cells(chunk[key])
            values.extend(column)
            held += sum(len(value) if isinstance(value, list) else 1 for value in column)
        if held > MAX_NUMBERS:
            raise InputError(
                "format", f"a readable table ends at {MAX_NUMBERS:,} numbers; use csv, json or parquet"
            )
    told = {key for key, values in gathered.items() if _is_told(result.inputs.get(key), values)}
    return [
        _readable(column_of(key), values)
        for key, values in gathered.items()
        if key not in told and (not values or any(value is not None for value in values))
    ]


def told_columns(result: Result) -> list[ReadableColumn]:
    """The columns of a page or a screen: none where there are no rows and the verdict says it all."""
    return readable_columns(result) if len(result) or not result.verdict else []


def notes_of(result: Result, explain: bool) -> list[Note]:
    """Inputs, remarks, assumptions (the first three unless `explain`) and warnings with their remedies."""
    assumptions = [rounded(printable(text)) for text in result.assumptions]
    shown = assumptions if explain else assumptions[:SHOWN_ASSUMPTIONS]
    if hidden := len(assumptions) - len(shown):
        shown[-1] += f" ({hidden} more with --explain)"
    warnings = [
        rounded(printable(f"{advice.text.rstrip('.')}; {advice.remedy}")) for advice in result.warnings
    ]
    inputs = _inputs_text(result)
    return [
        *([Note("for", inputs)] if inputs else []),
        *(Note("note", rounded(printable(text))) for text in result.remarks),
        *(Note("assumes", text) for text in shown),
        *(Note("warning", text) for text in warnings),
    ]


def blocks_of(result: Result) -> list[Block]:
    """What is to be pasted elsewhere, its lines harmless to show."""
    return [
        Block(
            printable(block.label),
            printable(block.language),
            "\n".join(printable(line) for line in block.text.split("\n")),
        )
        for block in result.blocks
    ]


def derivation_of(result: Result) -> list[str]:
    """The steps that lead to the first row."""
    return [rounded(printable(step)) for step in result.derivation]


def _is_told(given: Cell, values: Sequence[Cell]) -> bool:
    """Whether the line of inputs already says what every row of the column repeats."""
    return given is not None and not isinstance(given, list) and all(value == given for value in values)


def _inputs_text(result: Result) -> str:
    """The inputs as `k 4, batch 64, bandwidth 3.35 TB/s`, each in the words and the unit of its column."""
    parts = []
    for key, value in result.inputs.items():
        if value is not None and value != []:
            column = _readable(column_of(key), [value])
            title, _, unit = column.header.partition(" (")
            parts.append(" ".join(part for part in (title, column.cells[0], unit.rstrip(")")) if part))
    return ", ".join(parts)


def _readable(column: Column, values: Sequence[Cell]) -> ReadableColumn:
    numbers = list(_numbers(values))
    divisor, unit = display_scale(numbers, column.unit)
    vector = any(isinstance(value, list) for value in values)
    texts = any(isinstance(value, str) for value in values)
    write_number = _number_writer(
        [number / divisor for number in numbers], column.decimals, grouped=not vector
    )

    def text(value: Cell) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, int | float):
            return write_number(value / divisor) if isfinite(value) else ABSENT
        if isinstance(value, list):
            return vector_text(value, text) or ABSENT
        return ABSENT if value is None else rounded(printable(value))

    return ReadableColumn(
        header=printable(f"{column.title} ({unit})" if unit else column.title),
        cells=[text(value) for value in values],
        importance=column.importance,
        numeric=bool(numbers) and not vector and not texts,
        vector=vector,
    )


def _numbers(values: Sequence[Cell]) -> Iterator[float]:
    for value in values:
        if isinstance(value, list):
            yield from _numbers(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            yield value


def _number_writer(numbers: list[float], decimals: int | None, *, grouped: bool) -> Callable[[float], str]:
    """One way of writing every number of a column; thousands are set apart once one has five digits."""
    largest = max(map(abs, numbers), default=0.0)
    comma = "," if grouped and largest >= 10_000 else ""
    digits = _common_decimals(numbers) if decimals is None else decimals
    if digits is None or largest >= 1e15:
        return lambda number: format_significant(number) if abs(number) < 1e15 else f"{number:.3e}"
    return lambda number: f"{number:z{comma}.{digits}f}"


def _common_decimals(numbers: list[float]) -> int | None:
    """Decimals that give the largest number four significant digits and the smallest two, as few as hold.

    None where no common number does: the column spans too many powers of ten.
    """
    sizes = [abs(number) for number in numbers if number]
    if not sizes:
        return 0
    wanted = max(0, 3 - floor(log10(max(sizes))))
    needed = max(wanted, 1 - floor(log10(min(sizes))))
    if needed > wanted + 2 or needed > 8:
        return None
    while needed and all(f"{number:.{needed}f}".endswith("0") for number in sizes):
        needed -= 1
    return needed
