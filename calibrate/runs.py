"""A table of anybody's runs as a calibration: what verification and a draft pass cost, by the line over k.

    E·TPOT = (v + o)·T_AR + c·T_AR·k

needs k, batch, time per output token and acceptance length of each run. A run without speculation (k = 0) at
the same batch and context gives T_AR; without one the line is in seconds alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from specmath import __version__
from specmath.calibrations import MeasuredRuns, RunLine
from specmath.errors import DataError
from specmath.k_lines import run_lines
from specmath.measurements import Measurement, context_text, doubts, paired
from specmath.results import Advice
from specmath.row_files import file_name
from specmath.run_files import RunDefaults, read_one_setup

MOST_PAIRS: Final = 5_000
"""Runs with speculation that a file of a calibration holds, with room for a long name of the table."""
LINE_MISS: Final = 0.05
"""Relative error of a line from which on the steps are no line in k."""
FAR_K: Final = 3
"""From this k on a second one is best measured at 1, below it at k + `FAR_K`."""


def calibrate_runs(
    path: str | Path, *, set_up: Mapping[str, str] | None = None, defaults: RunDefaults | None = None
) -> MeasuredRuns:
    """What a table of runs of one set-up tells about the cost of a step.

    A speculative run without a plain one at its batch and context is kept: it tells the line in seconds.

    Args:
        path: A `.csv`, `.jsonl` or `.json` file; `-` reads JSONL from stdin.
        set_up: Value by column of `specmath.run_files.SETUP_COLUMNS`, to choose one set-up of several.
        defaults: What holds where a column is missing or a cell empty.

    Raises:
        AccessError: if the file cannot be read.
        DataError: naming the line, for what is no table of runs; for one without a speculative run, or with
            more of them than a calibration holds.
        InputError: for several set-ups of which none is named: their steps have no line in common.
    """
    runs, stated, notes = read_one_setup(path, set_up=set_up or {}, defaults=defaults)
    pairs = paired(runs)
    where = file_name(path)
    if not pairs:
        raise DataError(where, "holds no run with speculation; add rows with k of 1 or more")
    if len(pairs) > MOST_PAIRS:
        told = f"holds {len(pairs):,} runs with speculation, of {MOST_PAIRS:,} at most in a calibration"
        raise DataError(where, f"{told}; average repeats, or keep the rows of fewer batches")
    lines = run_lines(pairs)
    return MeasuredRuns(
        source=where,
        origin="runs",
        machine=stated,
        runs=pairs,
        lines=lines,
        warnings=(*notes, *doubts(pairs), *line_advice(pairs, lines)),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        specmath_version=__version__,
    )


def line_advice(pairs: Sequence[Measurement], lines: Sequence[RunLine]) -> tuple[Advice, ...]:
    """What a reader of the lines must know: what they lack, what contradicts them, what to measure next."""
    return (
        *_of_one_k(pairs),
        *_of_ratios(pairs),
        *_without_plain(pairs),
        *_unchecked(lines),
        *_impossible(lines),
        *_bent(lines),
    )


def _of_one_k(pairs: Sequence[Measurement]) -> Iterator[Advice]:
    lone = {place: group for place, group in _grouped(pairs).items() if len({one.k for one in group}) == 1}
    for k in sorted({group[0].k for group in lone.values()}):
        places = _told(place for place, group in lone.items() if group[0].k == k)
        other = 1 if k >= FAR_K else k + FAR_K
        yield Advice(
            code="one-k",
            text=f"{places}: k = {k} alone, which does not part verification from drafting",
            remedy=f"run k = {other} at the same batch and context, and add the row",
        )


def _of_ratios(pairs: Sequence[Measurement]) -> Iterator[Advice]:
    """The line in plain steps of a place where speed-ups alone are known."""
    bare = [group for group in _grouped(pairs).values() if all(math.isnan(one.step_s) for one in group)]
    in_steps = [
        replace(one, speedup=None, plain_s=1.0, speculative_s=1 / one.times_faster)
        for group in bare
        for one in group
    ]
    for line in run_lines(in_steps):
        yield Advice(
            code="speed-ups-alone",
            text=f"{_told([_place(line)])}: speed-ups alone give v + o = {line.intercept_s:.4g} and "
            f"c = {line.slope_s:.4g}, and no seconds",
            remedy="add the time per token of one arm (tpot_ms or tokens_per_s) to have the line in the file",
        )


def _without_plain(pairs: Sequence[Measurement]) -> Iterator[Advice]:
    places = [
        place
        for place, group in _grouped(pairs).items()
        if any(math.isnan(one.times_faster) for one in group)
    ]
    if places:
        yield Advice(
            code="no-plain-run",
            text=f"{_told(places)}: no run without speculation: the line is in seconds, not in plain steps",
            remedy="add a row with k = 0 at the same batch and context",
        )


def _unchecked(lines: Sequence[RunLine]) -> Iterator[Advice]:
    if places := [_place(line) for line in lines if line.worst_left_out is None]:
        yield Advice(
            code="two-k",
            text=f"{_told(places)}: two k give a line and no error of it",
            remedy="run a third k at the same batch and context",
        )


def _impossible(lines: Sequence[RunLine]) -> Iterator[Advice]:
    if places := [_place(line) for line in lines if line.slope_s < 0 or line.intercept_s <= 0]:
        yield Advice(
            code="impossible-line",
            text=f"{_told(places)}: by the line a draft pass or verification takes no time at all",
            remedy="take k, E and TPOT from the same runs, and check that E counts the bonus token",
        )


def _bent(lines: Sequence[RunLine]) -> Iterator[Advice]:
    if bent := [line for line in lines if line.worst_error > LINE_MISS]:
        worst = max(line.worst_error for line in bent)
        yield Advice(
            code="no-line",
            text=f"{_told(map(_place, bent))}: the line misses a step by {worst:.1%}, so steps do not grow "
            "evenly with k",
            remedy="use the measured k alone there; look for an end of the captured graph sizes between them",
        )


_Place = tuple[float, float]


def _place(line: RunLine) -> _Place:
    return line.batch, line.context


def _grouped(pairs: Sequence[Measurement]) -> dict[_Place, list[Measurement]]:
    places: dict[_Place, list[Measurement]] = {}
    for one in sorted(pairs, key=lambda pair: (pair.batch, pair.context)):
        places.setdefault((one.batch, one.context), []).append(one)
    return places


def _told(places: Iterable[_Place]) -> str:
    """Batches and contexts in words, at most four of them."""
    listed = sorted(places)
    told = "; ".join(f"batch {batch:g}, context {context_text(context)}" for batch, context in listed[:4])
    return told + (f" and {len(listed) - 4} more" if len(listed) > 4 else "")
