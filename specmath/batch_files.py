"""A histogram of batches from a file of rows with the columns `batch` and `weight`.

Without a weight a row counts once, so that samples of a gauge of running requests do as they are. Rows of
the same batch add up; batch 0 is an idle engine and left out. Other columns are not read.
"""

from __future__ import annotations

from pathlib import Path

from specmath.errors import DataError
from specmath.policies import MAX_WEIGHT, SCAN_LIMIT
from specmath.row_files import file_name, read_rows


def read_batches(path: str | Path) -> dict[int, float]:
    """Weight by batch, in rising order, from a `.csv` or `.jsonl` file.

    Args:
        path: The file, `.json` too; `-` reads JSONL from stdin.

    Raises:
        AccessError: where it cannot be read.
        DataError: for anything else than such rows; names file, line and column.
    """
    weights: dict[int, float] = {}
    for row in read_rows(path):
        batch = row.number("batch", low=0, high=SCAN_LIMIT, whole=True)
        weight = row.number("weight", low=0, high=MAX_WEIGHT)
        if batch is None:
            raise row.fault("batch: is missing")
        if batch:
            weights[int(batch)] = weights.get(int(batch), 0.0) + (1.0 if weight is None else weight)
    if not any(weights.values()):
        raise DataError(file_name(path), "holds no batch of at least 1 with a weight above 0")
    return dict(sorted(weights.items()))
