"""A table of the user's runs as records that can be paired to measurements.

One row a run, columns by name: `k` (0 for a run without speculation), `batch`, `context`,
`acceptance_length`, and the time as `tpot_s`, `tpot_ms` or `tokens_per_s` (of all sequences together), that
of the plain arm beside it as `plain_tpot_s`, `plain_tpot_ms` or `plain_tokens_per_s`, or `speedup`. The
names that benchmarks of engines write are understood too. Columns that name a set-up (`hardware`, `engine`,
`target`, …) choose the rows that belong to the question. Other columns are ignored, and that is said.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from specmath.checks import MAX_K
from specmath.errors import DataError, InputError, shown
from specmath.measurements import AGREEMENT, Run, repeat_doubts
from specmath.results import Advice
from specmath.row_files import Row, described, file_name, read_rows

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
_COUNTS: Final = ("k", "batch")
_LIMITS: Final = {"k": (0, MAX_K), "batch": (1, 1e9), "context": (0, 1e9)}
"""Least and most of a column, as a file of a calibration takes them too."""
MISS: Final = 0.1
"""Share by which a throughput may miss the time per token beside it: prefill and waiting are in it, too."""
_SECONDS: Final = {"tpot_s": 1.0, "tpot_ms": 1e-3}
_COLUMNS: Final = (
    *("k", "batch", "context", "acceptance_length", "speedup"),
    *(prefix + name for prefix in ("", "plain_") for name in (*_SECONDS, "tokens_per_s")),
)

SETUP_COLUMNS: Final = (
    *("hardware", "engine", "target", "method", "draft", "tp", "dp", "ep", "pp", "weights", "kv"),
)
"""Columns that say which set-up ran, named as in `MeasuredSpeedup`."""
_OF_DRAFTING: Final = ("method", "draft")
Differs = Callable[[str, object], bool]
"""Whether what a row says in one of the `SETUP_COLUMNS` is another set-up than that of the question."""


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
    path: str | Path, *, defaults: RunDefaults | None = None, differs: Differs | None = None
) -> tuple[tuple[Run, ...], tuple[Advice, ...]]:
    """The runs of a file, and what a reader must know about it (columns and rows that were left out).

    Args:
        path: A `.csv`, `.jsonl` or `.json` file; `-` reads JSONL from stdin.
        defaults: What holds where a column is missing or a cell empty.
        differs: Tells rows of another set-up, which are left out; None takes every row.

    Raises:
        AccessError: if the file cannot be read.
        DataError: naming line and column, for what is no table, a missing column, or a value out of place;
            and where every row is of another set-up.
    """
    where, rows = file_name(path), _rows(path)
    notes: tuple[Advice, ...] = ()
    if differs is not None:
        rows, left_out = _kept(where, rows, differs)
        notes = (*left_out, *_mixed(where, rows))
    runs, said = _runs(where, rows, defaults, sets_up=differs is not None)
    return runs, (*notes, *said)


def read_one_setup(
    path: str | Path, *, set_up: Mapping[str, str], defaults: RunDefaults | None = None
) -> tuple[tuple[Run, ...], dict[str, str], tuple[Advice, ...]]:
    """The runs of the one set-up of a file, what the file says of it, and what a reader must know.

    Args:
        path: As for `read_runs`.
        set_up: Value by column of `SETUP_COLUMNS`, which choose the rows; an empty cell goes with every
            value, and a run without speculation with every way to draft.
        defaults: What holds where a column is missing or a cell empty.

    Raises:
        AccessError: if the file cannot be read.
        DataError: for what is no table of runs.
        InputError: for a set-up that no row is of, and where rows of several set-ups are left.
    """
    where, rows = file_name(path), _rows(path)
    _require_columns(where, rows, set_up)
    rows, _ = _kept(where, rows, lambda column, cell: column in set_up and not _same(cell, set_up[column]))
    stated = _stated_values(rows)
    several = {column: values for column, values in stated.items() if len(values) > 1}
    if several:
        told = "; ".join(f"{column} {_listed(values)}" for column, values in several.items())
        column, (first, *_) = next(iter(several.items()))
        problem = (
            f"{where} holds runs of several set-ups ({told}); name one, as {column}={shown(str(first))[1:-1]}"
        )
        raise InputError("set_up", problem)
    runs, said = _runs(where, rows, defaults, sets_up=True)
    return runs, {column: str(values[0]) for column, values in stated.items()}, said


def _rows(path: str | Path) -> list[Row]:
    rows = list(read_rows(path, most=MAX_RUNS))
    if not rows:
        raise DataError(file_name(path), "holds no run; give a row for each")
    return rows


def _kept(where: str, rows: Sequence[Row], differs: Differs) -> tuple[list[Row], tuple[Advice, ...]]:
    """The rows that may be of the set-up, and what is said of the others."""
    judge = cache(differs)
    judged = [(row, _strange(row, judge)) for row in rows]
    strange = [found for _, found in judged if found is not None]
    kept = [row for row, found in judged if found is None]
    if not kept:
        problem = f"holds no run of this set-up: {strange[0]}; ask about that, or mend the column"
        raise DataError(where, problem)
    return kept, tuple(_left_out(where, strange, len(kept)))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What was seen on the way.

    Attributes:
        ignored: Columns that mean nothing here, in their order.
        apart: For each row whose two times differ, its place and their ratio.
    """

    ignored: dict[str, None]
    apart: dict[str, float]


def _runs(
    where: str, rows: Sequence[Row], defaults: RunDefaults | None, *, sets_up: bool
) -> tuple[tuple[Run, ...], tuple[Advice, ...]]:
    """The runs, and what a reader must know of them."""
    seen = _Seen({}, {})
    runs = tuple(_run(row, defaults, seen) for row in rows)
    ignored = [name for name in seen.ignored if not (sets_up and name in SETUP_COLUMNS)]
    return runs, (*_note(where, ignored), *_times_apart(seen.apart), *repeat_doubts(runs))


def _times_apart(apart: Mapping[str, float]) -> Iterator[Advice]:
    if apart:
        place, ratio = max(apart.items(), key=lambda one: abs(math.log(one[1])))
        yield Advice(
            code="times-differ",
            text=f"{len(apart)} rows hold a time per token and a throughput that differ, most {place}, where "
            f"batch / throughput is {ratio:.3g} times the time: the time is used",
            remedy="prefill and waiting are in a throughput; otherwise check the units, and the batch",
        )


def _require_columns(where: str, rows: Sequence[Row], set_up: Mapping[str, str]) -> None:
    """Raises InputError for a column that names no set-up, or a value that no row has."""
    stated = _stated_values(rows)
    for column, value in set_up.items():
        if column not in SETUP_COLUMNS:
            told = f"{shown(column)} is no column of a set-up; they are {', '.join(SETUP_COLUMNS)}"
            raise InputError("set_up", told)
        if not any(_same(cell, value) for cell in stated.get(column, ())):
            there = _listed(stated.get(column, [])) or "nothing"
            raise InputError("set_up", f"{where} has no {column} {shown(value)}; the column holds {there}")


def _stated_values(rows: Sequence[Row]) -> dict[str, list[object]]:
    """The different values of each column of a set-up, as they are first written; none of an empty column."""
    found: dict[str, dict[str, object]] = {}
    for row in rows:
        for column, cell in _stated(row):
            found.setdefault(column, {}).setdefault(_plain(cell), cell)
    return {column: list(found[column].values()) for column in SETUP_COLUMNS if column in found}


def _same(cell: object, value: str) -> bool:
    return _plain(cell) == _plain(value)


def _plain(cell: object) -> str:
    """A cell as it is compared: case is none, and 8.0 is 8."""
    text = str(cell).strip().casefold()
    return text.removesuffix(".0")


def _strange(row: Row, differs: Differs) -> str | None:
    """What a row says of another set-up; None where it may be of this one."""
    for column, cell in _stated(row):
        if differs(column, cell):
            return f"line {row.line} has {column} {shown(cell)}"
    return None


def _stated(row: Row) -> Iterator[tuple[str, object]]:
    """The set-up as a row states it; of a run without speculation not how it would draft."""
    k = next((row.cells[name] for name in row.cells if _ALIASES.get(name, name) == "k"), None)
    is_plain = str(k).strip() in ("0", "0.0")
    for column in SETUP_COLUMNS:
        cell = row.cells.get(column)
        if cell is not None and not (is_plain and column in _OF_DRAFTING):
            yield column, cell if isinstance(cell, str | int | float) else described(cell)


def _left_out(where: str, strange: Sequence[str], kept: int) -> Iterator[Advice]:
    if strange:
        yield Advice(
            code="rows-of-another-set-up",
            text=f"{where}: {len(strange)} of {len(strange) + kept} rows left out, they name another set-up "
            f"({strange[0]})",
            remedy="ask about the set-up that was measured to use them",
        )


def _mixed(where: str, rows: Sequence[Row]) -> Iterator[Advice]:
    """Several set-ups among the rows that the question does not tell apart."""
    for column, values in _stated_values(rows).items():
        if len(values) > 1:
            yield Advice(
                code="several-set-ups",
                text=f"{where}: rows of several set-ups count as one: {column} {_listed(values)}",
                remedy=f"keep the rows of one {column}",
            )


def _listed(values: Sequence[object]) -> str:
    return ", ".join(map(shown, values[:4]))


def _note(where: str, ignored: Sequence[str]) -> tuple[Advice, ...]:
    if not ignored:
        return ()
    near = {name: _near(name, _COLUMNS) for name in ignored}
    spelt = [shown(name)[1:-1] + (f" (call it {near[name]})" if near[name] else "") for name in ignored]
    told = ", ".join(spelt[:6]) + (", …" if len(ignored) > 6 else "")
    return (
        Advice(
            code="columns-ignored",
            text=f"{where}: not used: {told}",
            remedy=f"the columns read are {', '.join(_COLUMNS)}",
        ),
    )


def _run(row: Row, told: RunDefaults | None, seen: _Seen) -> Run:
    """One run; what must be known of it is added to what was seen."""
    cells: dict[str, float] = {}
    for name in row.cells:
        column = _ALIASES.get(name, name)
        if column not in _COLUMNS:
            seen.ignored[name] = None
        elif (value := _value(row, name, column)) is not None:
            if column in cells:
                raise row.fault(f"{shown(name)} repeats {column}")
            cells[column] = value
    defaults = told or RunDefaults()
    k, batch = (
        _count(row, cells, name, getattr(defaults, name), has_option=told is not None) for name in _COUNTS
    )
    run = Run(
        k=k,
        batch=batch,
        context=cells.get("context", defaults.context),
        acceptance_length=cells.get("acceptance_length"),
        seconds_per_token=_seconds(row, cells, "", batch, seen),
        plain_s=_seconds(row, cells, "plain_", batch, seen),
        speedup=cells.get("speedup"),
        where=row.where,
    )
    if run.seconds_per_token is None and run.speedup is None and (k or run.plain_s is None):
        _refuse_near(row, (*_SECONDS, "tokens_per_s"), "the time per token")
    if k and run.acceptance_length is None:
        _refuse_near(row, ("acceptance_length",), "acceptance_length")
    return run


def _value(row: Row, name: str, column: str) -> float | None:
    least, most = _LIMITS.get(column, (-math.inf, math.inf))
    return row.number(name, low=least, high=most, whole=column in _COUNTS)


def _count(
    row: Row, cells: Mapping[str, float], column: str, default: int | None, *, has_option: bool
) -> int:
    value = cells.get(column, default)
    if value is None:
        _refuse_near(row, (column,), column)
        remedy = f", or give --{column}" if has_option else ""
        raise row.fault(f"{column}: is missing; add the column{remedy}")
    return int(value)


def _refuse_near(row: Row, columns: Sequence[str], wanted: str) -> None:
    """Raises the fault of a row that lacks a column, where one of another spelling is there."""
    found = ((name, _near(name, columns)) for name in row.cells if name not in (*_COLUMNS, *_ALIASES))
    for name, near in found:
        if near is not None:
            raise row.fault(f"{wanted}: is missing; call the column {shown(name)} {near}")


def _near(name: str, columns: Sequence[str]) -> str | None:
    """The column that another spelling stands for: `TPOT (ms)`, `Batch size`, `contexts`."""
    plain = re.sub("[^a-z0-9]+", "_", name.lower()).strip("_")
    return next((column for column in columns if plain in (column, f"{column}_size", f"{column}s")), None)


def _seconds(row: Row, cells: Mapping[str, float], arm: str, batch: int, seen: _Seen) -> float | None:
    """Seconds per token of one sequence, however the row tells them; the first of them that it has."""
    told = {
        arm + name: cells[arm + name] * factor for name, factor in _SECONDS.items() if arm + name in cells
    }
    seconds = next(iter(told.values()), None)
    if any(abs(one - (seconds or 0.0)) > AGREEMENT * abs(one) for one in told.values()):
        raise row.fault(f"{' and '.join(told)} contradict each other; leave one of them out")
    throughput = cells.get(f"{arm}tokens_per_s")
    if throughput is None:
        return seconds
    if throughput <= 0:
        raise row.fault(f"{arm}tokens_per_s: must be above 0, got {throughput:g}")
    if seconds is None:
        return batch / throughput
    if seconds > 0 and abs((ratio := batch / throughput / seconds) - 1) > MISS:
        seen.apart[row.where] = ratio
    return seconds
