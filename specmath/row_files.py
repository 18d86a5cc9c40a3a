"""Rows of a table from a file, CSV, JSONL or JSON, whatever its columns mean.

In CSV the header names the columns, in JSONL each line is an object, in JSON the objects stand alone or in
lists. A cell without content is None, text is stripped. What is no such table is refused in one line that
names file, line and column.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from specmath.errors import DataError, InputError, shown, shown_path
from specmath.strict_json import LONGEST_NUMBER, json_entries, json_lines
from specmath.text_files import file_text, stdin_text
from specmath.units import parse_quantity

_REMEDY: Final = "name a .csv, .jsonl or .json file"


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a file.

    Attributes:
        file: Name of the file, for messages.
        line: Where the row begins, counted from 1.
        cells: Value by column, as CSV or JSON has it; None for an empty cell.
    """

    file: str
    line: int
    cells: Mapping[str, Any]

    @property
    def where(self) -> str:
        """File and line, for messages."""
        return f"{self.file}: line {self.line}"

    def fault(self, problem: str) -> DataError:
        """The error to raise for what is wrong in this row."""
        return DataError(self.file, problem, entry=f"line {self.line}")

    def number(
        self, column: str, *, low: float = -math.inf, high: float = math.inf, whole: bool = False
    ) -> float | None:
        """The number in a column, in base units; None where the cell is empty or the column missing.

        Raises:
            DataError: for anything else than a finite number from `low` to `high`.
        """
        value = self.cells.get(column)
        try:
            return None if value is None else number_in(value, low=low, high=high, whole=whole)
        except ValueError as fault:
            raise self.fault(f"{column}: {fault}") from None


def read_rows(path: str | Path, *, most: float = math.inf) -> Iterator[Row]:
    """The rows of a `.csv`, `.jsonl` or `.json` file of at most 32 MiB; `-` is JSONL from stdin.

    Args:
        path: The file.
        most: Rows above which the file is refused.

    Raises:
        AccessError: where it cannot be read.
        DataError: naming file and line, for what is no table.
    """
    file = file_name(path)
    if str(path) == "-":
        text, ending = stdin_text(remedy="pipe JSONL into it"), ".jsonl"
    else:
        text, ending = file_text(path, remedy=_REMEDY), Path(path).suffix.lower()
    if ending not in _READERS:
        raise DataError(file, f"is no .csv, .jsonl or .json file, but {ending or 'without an ending'}")
    for number, (line, cells) in enumerate(_READERS[ending](text, file), 1):
        if number > most:
            raise DataError(file, f"has more than {most:,} rows; split it")
        yield Row(file, line, {name: _content(cell) for name, cell in cells.items()})


def file_name(path: str | Path) -> str:
    """The name of a file of rows, for messages."""
    return "stdin" if str(path) == "-" else shown_path(path)


def number_in(value: Any, *, low: float = -math.inf, high: float = math.inf, whole: bool = False) -> float:
    """A finite number from `low` to `high`: that of JSON, or text with an optional prefix (`8k`).

    Raises:
        ValueError: saying what the number must be, and what it is.

    >>> number_in("8k"), number_in(3, whole=True)
    (8000.0, 3.0)
    """
    number, hint = _number(value)
    if math.isfinite(number) and low <= number <= high and not (whole and number % 1):
        return number
    kind = "a whole number" if whole else "a number"
    if high < math.inf:
        kind += f" from {low:g} to {high:g}"
    elif low > -math.inf:
        kind += f" of at least {low:g}"
    raise ValueError(f"must be {kind}, got {described(value)}{hint}")


def described(value: Any) -> str:
    """A cell as an error line may show it; of a list or object only that it is one.

    >>> described("fast"), described([[[1]]])
    ("'fast'", 'a list')
    """
    if isinstance(value, dict | list):  # whose repr may be nested too deeply, or long to make
        return "an object" if isinstance(value, dict) else "a list"
    return shown(value)


def _number(value: Any) -> tuple[float, str]:
    """The number, NaN where there is none, and what to write instead of it where that is known."""
    if isinstance(value, str) and len(value) <= LONGEST_NUMBER:
        if value.isdecimal() and value.isascii():  # most cells of a long table, ten times as fast
            return float(value), ""
        if value.lower() == "nan":
            return _number(math.nan)
        try:
            return parse_quantity("", value), ""
        except InputError as fault:
            _, semicolon, remedy = fault.problem.partition(";")
            return math.nan, semicolon + remedy
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan, ""
    if value != value:
        return math.nan, "; leave out what is not known"
    try:
        return float(value), ""
    except OverflowError:
        return math.inf, ""


def _content(cell: Any) -> Any:
    return (cell.strip() or None) if isinstance(cell, str) else cell


_Rows = Iterator[tuple[int, Mapping[str, Any]]]


def _csv_rows(text: str, file: str) -> _Rows:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    line = 1
    try:
        header = [name.strip().replace("-", "_") for name in next(reader, [])]  # as options are typed, too
        _refuse_repeats(header, file)
        line = reader.line_num + 1
        for cells in reader:
            if any(cell.strip() for cell in cells):
                if len(cells) != len(header):
                    problem = f"has {len(cells)} cells, the header {len(header)}"
                    raise DataError(file, problem, entry=f"line {line}")
                yield line, dict(zip(header, cells, strict=True))
            line = reader.line_num + 1
    except csv.Error as fault:
        raise DataError(file, f"is no CSV: {fault}", entry=f"line {line}") from None


def _refuse_repeats(header: list[str], file: str) -> None:
    names = sorted(filter(None, header))  # pandas leaves the name of its index out
    if twice := [name for name, following in pairwise(names) if name == following]:
        raise DataError(file, f"column {shown(twice[0])} stands twice", entry="line 1")


def _jsonl_rows(text: str, file: str) -> _Rows:
    return _objects(json_lines(text, file), file)


def _json_rows(text: str, file: str) -> _Rows:
    return _objects(json_entries(text, file), file)


def _objects(values: Iterator[tuple[int, Any]], file: str) -> _Rows:
    for line, value in values:
        if not isinstance(value, dict):
            problem = f'must be a JSON object such as {{"k": 3}}, got {described(value)}'
            raise DataError(file, problem, entry=f"line {line}")
        yield line, value


_READERS: Final[dict[str, Callable[[str, str], _Rows]]] = {
    ".csv": _csv_rows,
    ".jsonl": _jsonl_rows,
    ".json": _json_rows,
}
