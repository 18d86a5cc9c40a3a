"""A table of the user's runs, CSV, JSONL or JSON, as records that can be paired to measurements.

One line or object a run, columns by name: `k` (0 for a run without speculation), `batch`, `context`,
`acceptance_length`, and the time as `tpot_s`, `tpot_ms` or `tokens_per_s` (of all sequences together), that
of the plain arm beside it as `plain_tpot_s`, `plain_tpot_ms` or `plain_tokens_per_s`, or `speedup`. The
names that benchmarks of engines write are understood too. Other columns are ignored, and that is said.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from specmath.errors import AccessError, DataError, InputError, shown, shown_path
from specmath.measurements import Run
from specmath.results import Advice
from specmath.units import parse_quantity

MAX_BYTES: Final = 10 * 10**6
"""Largest file read."""
MAX_RUNS: Final = 10_000
_ALIASES: Final = {
    "num_speculative_tokens": "k",
    "speculative_num_steps": "k",
    "max_concurrency": "batch",
    "spec_decode_acceptance_length": "acceptance_length",
    "accept_length": "acceptance_length",
    "mean_tpot_ms": "tpot_ms",
    "output_throughput": "tokens_per_s",
}
"""Columns of `vllm bench serve` and `sglang.bench_serving`, and what they are here."""
_SECONDS: Final = {"tpot_s": 1.0, "tpot_ms": 1e-3}
_COLUMNS: Final = (
    *("k", "batch", "context", "acceptance_length", "speedup"),
    *(prefix + name for prefix in ("", "plain_") for name in (*_SECONDS, "tokens_per_s")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDefaults:
    """What a run is taken to have been where its line does not say.

    Attributes:
        k: Draft tokens per step of a run with speculation.
        batch: Sequences in the pass.
        context: Tokens in the KV cache per sequence.
    """

    k: int | None = None
    batch: int | None = None
    context: float = 0.0


def read_runs(
    path: str | Path, *, defaults: RunDefaults | None = None
) -> tuple[tuple[Run, ...], tuple[Advice, ...]]:
    """The runs of a file, and what a reader must know about it (columns that were ignored).

    Args:
        path: A `.csv`, `.jsonl` or `.json` file; JSON holds one object or a list of them.
        defaults: What holds where a column is missing or a cell empty.

    Raises:
        AccessError: if the file cannot be read.
        DataError: naming line and column, for what is no table, a missing column, or a value out of place.
    """
    where, fallback = shown_path(path), defaults or RunDefaults()
    rows = list(_rows(Path(path), where))
    if not rows:
        raise DataError(where, "holds no run; give a line for each, or an object in a list")
    if len(rows) > MAX_RUNS:
        raise DataError(where, f"has more than {MAX_RUNS:,} runs")
    ignored: dict[str, None] = {}
    runs = tuple(_run(row, f"{where} line {line}", fallback, ignored) for line, row in rows)
    return runs, _note(where, list(ignored))


def _note(where: str, ignored: Sequence[str]) -> tuple[Advice, ...]:
    if not ignored:
        return ()
    told = ", ".join(shown(name)[1:-1] for name in ignored[:6]) + (", …" if len(ignored) > 6 else "")
    return (
        Advice(
            code="columns-ignored",
            text=f"{where}: not used: {told}",
            remedy=f"the columns read are {', '.join(_COLUMNS)}",
        ),
    )


def _rows(path: Path, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Line and content of each run."""
    text = _text(path, where)
    ending = path.suffix.lower()
    if ending == ".csv":
        return _csv_rows(text, where)
    if ending == ".jsonl":
        return _jsonl_rows(text, where)
    if ending == ".json":
        return _json_rows(text, where)
    raise DataError(where, f"is no .csv, .jsonl or .json file, but {ending or 'without an ending'}")


def _text(path: Path, where: str) -> str:
    try:
        if not S_ISREG(path.stat().st_mode):
            raise AccessError(where, "is no regular file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise AccessError(where, (fault.strerror or str(fault)).lower()) from fault
    except ValueError as fault:  # a NUL in the path
        raise AccessError(where, "is not a possible path") from fault
    if len(content) > MAX_BYTES:
        raise DataError(where, f"is larger than {MAX_BYTES // 10**6} MB")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        raise DataError(where, "is not UTF-8 text") from fault


def _csv_rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    table = csv.reader(io.StringIO(text), strict=True)
    try:
        header = [name.strip() for name in next(table, [])]
        if doubled := {name for name in header if header.count(name) > 1}:
            raise DataError(where, f"line 1: column {shown(min(doubled))} is there twice")
        for cells in table:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                problem = f"line {table.line_num}: {len(cells)} cells under {len(header)} columns"
                raise DataError(where, problem)
            yield table.line_num, dict(zip(header, cells, strict=True))
    except csv.Error as fault:
        raise DataError(where, f"line {table.line_num}: is no CSV: {fault}") from fault


def _jsonl_rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _mapping(_json(line, f"{where} line {number}"), f"{where} line {number}")


def _json_rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    document = _json(text, where)
    listed = document if isinstance(document, list) else [document]
    for number, entry in enumerate(listed, start=1):
        yield number, _mapping(entry, f"{where} entry {number}")


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as fault:
        raise DataError(where, "is nested too deeply") from fault
    except ValueError as fault:  # also a number of more digits than Python reads
        raise DataError(where, f"is no JSON: {str(fault).splitlines()[0]}") from fault


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DataError(where, f'must be an object such as {{"k": 3}}, got {shown(value)}')
    return value


def _run(row: Mapping[str, Any], where: str, defaults: RunDefaults, ignored: dict[str, None]) -> Run:
    """One run; the names of columns that mean nothing here are added to `ignored`."""
    cells: dict[str, float] = {}
    for name, value in row.items():
        column = _ALIASES.get(name, name)
        if column not in _COLUMNS:
            ignored[name] = None
        elif value is not None and value != "":
            if column in cells:
                raise DataError(where, f"column {shown(name)} repeats {column}")
            cells[column] = _number(value, column, where)
    batch = _count(cells, "batch", defaults.batch, where)
    return Run(
        k=_count(cells, "k", defaults.k, where),
        batch=batch,
        context=cells.get("context", defaults.context),
        acceptance_length=cells.get("acceptance_length"),
        seconds_per_token=_seconds(cells, "", batch, where),
        plain_s=_seconds(cells, "plain_", batch, where),
        speedup=cells.get("speedup"),
        where=where,
    )


def _number(value: Any, column: str, where: str) -> float:
    if isinstance(value, str):
        try:
            return parse_quantity(column, value)
        except InputError as fault:
            raise DataError(where, f"column {column}: {fault.problem}") from fault
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > sys.float_info.max:
        raise DataError(where, f"column {column}: {shown(value)} is no number")
    if value != value:
        raise DataError(where, f"column {column}: NaN is no number; leave the cell empty")
    return float(value)


def _count(cells: Mapping[str, float], column: str, default: int | None, where: str) -> int:
    value = cells.get(column, default)
    if value is None:
        raise DataError(where, f"column {column} is missing; add it, or give --{column}")
    least = 0 if column == "k" else 1
    if value != int(value) or value < least:
        raise DataError(where, f"column {column}: must be a whole number of at least {least}, got {value:g}")
    return int(value)


def _seconds(cells: Mapping[str, float], arm: str, batch: int, where: str) -> float | None:
    """Seconds per token of one sequence, however the line tells them; the first of them that it has."""
    for name, factor in _SECONDS.items():
        if arm + name in cells:
            return cells[arm + name] * factor
    throughput = cells.get(f"{arm}tokens_per_s")
    if throughput is None:
        return None
    if throughput <= 0:
        raise DataError(where, f"column {arm}tokens_per_s: must be above 0, got {throughput:g}")
    return batch / throughput
