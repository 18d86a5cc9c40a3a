"""A histogram of batches from a file: CSV with a header, or JSONL, with the columns `batch` and `weight`.

Without a weight a line counts once, so that samples of a gauge of running requests do as they are. Lines of
the same batch add up; batch 0 is an idle engine and left out. Other columns are not read.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from specmath.errors import AccessError, DataError, shown, shown_path

MAX_BYTES: Final = 32 * 2**20
"""Largest file read: some millions of samples."""
MAX_BATCH: Final = 65_536
MAX_WEIGHT: Final = 1e15


def read_batches(path: str | Path) -> dict[int, float]:
    """Weight by batch, in rising order, from a `.csv` or `.jsonl` file.

    Args:
        path: The file. CSV where it ends in `.csv`, else one JSON object a line.

    Raises:
        AccessError: where it cannot be read.
        DataError: for anything else than such rows; names file, line and column.
    """
    where = shown_path(path)
    text = _text(Path(path), where)
    rows = _csv_rows(text, where) if str(path).lower().endswith(".csv") else _json_rows(text, where)
    weights: dict[int, float] = {}
    for line, row in rows:
        entry = f"line {line}"
        if "batch" not in row:
            raise DataError(where, "column batch is missing", entry=entry)
        batch = _number(row["batch"], "batch", MAX_BATCH, where, entry)
        if not batch.is_integer():
            raise DataError(where, f"batch: must be a whole number, got {batch:g}", entry=entry)
        given = row.get("weight")
        weight = 1.0 if given in (None, "") else _number(given, "weight", MAX_WEIGHT, where, entry)
        if batch:
            weights[int(batch)] = weights.get(int(batch), 0.0) + weight
    if not any(weights.values()):
        raise DataError(where, "holds no batch of at least 1 with a weight above 0")
    return dict(sorted(weights.items()))


def _text(path: Path, where: str) -> str:
    try:
        if not S_ISREG(path.stat().st_mode):  # a pipe may keep its reader waiting for ever
            raise AccessError(where, "is a folder, pipe or device; name a CSV or JSONL file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is no possible path"
        raise AccessError(where, f"{reason.lower()}; name a CSV or JSONL file of batch,weight") from error
    if len(content) > MAX_BYTES:
        raise DataError(where, f"is larger than {MAX_BYTES // 2**20} MiB; add the samples up first")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(where, "is no UTF-8 text; expected CSV or JSONL") from None


def _csv_rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        if len(set(header)) < len(header):
            raise ValueError("a column stands twice in the header")
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise ValueError(f"has {len(cells)} cells, the header {len(header)}")
            yield reader.line_num, dict(zip(header, cells, strict=True))
    except (csv.Error, ValueError) as error:
        raise DataError(where, str(error), entry=f"line {max(reader.line_num, 1)}") from None


def _json_rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except RecursionError:
            raise DataError(where, "is nested too deeply", entry=f"line {number}") from None
        except ValueError:  # no JSON, or a number of too many digits
            raise DataError(where, f"is no JSON object, got {shown(line)}", entry=f"line {number}") from None
        if not isinstance(row, dict):
            raise DataError(where, f"must be a JSON object, got {shown(row)}", entry=f"line {number}")
        yield number, row


def _number(value: Any, name: str, high: float, where: str, entry: str) -> float:
    """A number from 0 to `high`, as a cell or as JSON has it."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 <= number <= high:
        raise DataError(
            where, f"{name}: must be a number from 0 to {high:g}, got {shown(value)}", entry=entry
        )
    return number
