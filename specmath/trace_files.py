"""Traces of requests from a file: arrivals with the lengths of prompts and outputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from specmath.errors import DataError
from specmath.row_files import Row, file_name, read_rows
from specmath.traffic import MAX_LENGTH, Trace

COLUMNS = {
    "arrival_s": ("arrival_s", "timestamp", "arrived_at", "arrival_time"),
    "prompt_tokens": ("prompt_tokens", "input_length", "ContextTokens", "num_prefill_tokens", "input_tokens"),
    "output_tokens": (
        "output_tokens",
        "output_length",
        "GeneratedTokens",
        "num_decode_tokens",
        "completion_tokens",
    ),
    "class": ("class",),
}
"""Names of the columns in files: our own, then those of public traces."""
MAX_ROWS = 1_000_000
MAX_TIME_S = 1e12


def read_trace(path: str | Path) -> Trace:
    """The requests of a `.csv`, `.jsonl` or `.json` file, in order of arrival.

    Columns: `arrival_s` (seconds from any start), `prompt_tokens`, `output_tokens`, and `class`, a name,
    where there are several. Names of public traces are understood, too; other columns are not read.

    Args:
        path: The file; `-` reads JSONL from stdin.

    Returns:
        The trace, its first arrival at 0 s.

    Raises:
        AccessError: where it cannot be read.
        DataError: for an empty file, a missing value, or one out of range; names file, line and column.
    """
    found = [_request(row) for row in read_rows(path, most=MAX_ROWS)]
    if not found:
        raise DataError(file_name(path), "holds no request; give arrival_s, prompt_tokens, output_tokens")
    found.sort(key=lambda request: request[0])
    arrivals, prompts, outputs, classes = zip(*found, strict=True)
    names = tuple(dict.fromkeys(classes))
    return Trace(
        arrival_s=np.array(arrivals) - arrivals[0],
        prompt_tokens=np.array(prompts, dtype=np.int64),
        output_tokens=np.array(outputs, dtype=np.int64),
        class_of=np.array([names.index(name) for name in classes], dtype=np.int64),
        names=names,
    )


def _request(row: Row) -> tuple[float, int, int, str]:
    name = row.cells.get("class")
    return (
        _number(row, "arrival_s", 0, MAX_TIME_S),
        int(_number(row, "prompt_tokens", 1, MAX_LENGTH, whole=True)),
        int(_number(row, "output_tokens", 1, MAX_LENGTH, whole=True)),
        "all" if name is None else str(name),
    )


def _number(row: Row, column: str, low: float, high: float, *, whole: bool = False) -> float:
    """The number under any name of a column."""
    named = next((name for name in COLUMNS[column] if row.cells.get(name) is not None), column)
    value = row.number(named, low=low, high=high, whole=whole)
    if value is None:
        raise row.fault(f"{column}: is missing")
    return value
