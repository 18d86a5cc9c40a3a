"""A table for the terminal, laid out to fit it; plain text at full width anywhere else.

A cell is never cut short. Where the columns do not fit, headers, vectors and long texts are wrapped; if
that is not enough the least important columns are left out, and a line says which.

Importing this module imports rich.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import Final, TextIO

from rich.cells import chop_cells
from rich.console import Console
from rich.text import Text

from specmath.exporters.readable import (
    ReadableColumn,
    blocks_of,
    derivation_of,
    notes_of,
    told_columns,
)
from specmath.exporters.text import printable, screen_width
from specmath.results import Result

WRAPPED_WIDTH: Final = 24
"""Width of vectors and long texts once they are wrapped."""
_GAP: Final = 2
_VERDICT_STYLES: Final = {"FASTER": "bold green", "SLOWER": "bold red", "TOO CLOSE": "bold yellow"}
_NOTE_STYLES: Final = {"for": "dim", "note": "", "assumes": "dim", "warning": "yellow"}


@dataclass(frozen=True, slots=True)
class _Laid:
    """A column whose header and cells are broken into lines, and the width they take."""

    column: ReadableColumn
    header: str
    cells: Sequence[str]
    width: int


def write(result: Result, stream: TextIO, explain: bool = False) -> None:
    """Verdict, table, notes. Colour and width are the terminal's; `NO_COLOR` and `TERM=dumb` are heeded."""
    # With NO_COLOR rich leaves out colours, but not bold and dim; without a colour system it leaves out all.
    # FORCE_COLOR is for a pager behind stdout, not for the files that are written meanwhile.
    plain = os.environ.get("NO_COLOR") or not (stream.isatty() or stream is sys.stdout)
    console = Console(file=stream, color_system=None if plain else "auto")
    if console.width < 1:  # COLUMNS=0 says that nobody knows
        console.width = get_terminal_size().columns
    show(result, console, explain, fit=stream.isatty())


def show(result: Result, console: Console, explain: bool = False, *, fit: bool = True) -> None:
    """The same on a given console: within its width, or with `fit` off as wide as the text is."""
    columns = [_laid(column) for column in told_columns(result)]
    shown = _fitted(columns, console.width) if fit else columns
    head, *rows = _lines(shown) if shown else [""]
    verdict, notes = result.verdict, notes_of(result, explain)  # whatever may fail, before the first line
    blocks, steps = blocks_of(result), derivation_of(result) if explain else []

    def say(text: str, style: str = "", wrap: bool = fit) -> None:
        console.print(Text(text, style), soft_wrap=not wrap)

    if verdict:
        say(printable(verdict) + "\n", _verdict_style(verdict))
    if shown:
        say(head, "bold", wrap=False)
        say("\n".join(["─" * _total(shown), *rows, ""]), wrap=False)
    if len(shown) < len(columns):
        say(_left_out(columns, shown), "dim")
    for block in blocks:
        say(f"{block.label}:", "bold")
        say(f"{block.text}\n", wrap=False)  # to be pasted: a break of ours would be in the way
    for note in notes:
        say(f"{note.kind}: {note.text}", _NOTE_STYLES[note.kind])
    if steps:
        say(f"\n{result.derivation_title}:\n  " + "\n  ".join(steps))


def _fitted(columns: Sequence[_Laid], width: int) -> list[_Laid]:
    """The columns that fit: as they are if they do, else wrapped, the least important left out."""
    if _total(columns) <= width:
        return list(columns)
    kept = {place: _wrapped(laid.column) for place, laid in enumerate(columns)}
    while _total(kept.values()) > width and len(kept) > 1:
        # Of two that matter alike the right one goes.
        del kept[min(kept, key=lambda place: (columns[place].column.importance, -place))]
    for place, laid in kept.items():
        if _total(kept.values()) + columns[place].width - laid.width <= width:
            kept[place] = columns[place]
    return [_chopped(laid, width) for laid in kept.values()]


def _laid(column: ReadableColumn) -> _Laid:
    return _Laid(column, column.header, column.cells, max(map(screen_width, (column.header, *column.cells))))


def _wrapped(column: ReadableColumn) -> _Laid:
    """The column at its narrowest: a vector broken at slashes, a text and the header at blanks."""
    cells = column.cells
    if not column.numeric:
        cells = [_broken(cell, "/" if column.vector else " ", WRAPPED_WIDTH) for cell in cells]
    lines = [line for cell in cells for line in cell.split("\n")]
    width = max(map(screen_width, (*column.header.split(), *lines)))
    return _Laid(column, _broken(column.header, " ", width), cells, width)


def _broken(text: str, at: str, width: int) -> str:
    """The text on lines of at most `width`, where its parts allow it."""
    lines = [""]
    for part in text.split(at):
        longer = f"{lines[-1]}{at}{part}" if lines[-1] else part
        if lines[-1] and screen_width(longer + at.rstrip()) > width:
            lines[-1] += at.rstrip()
            lines.append(part)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def _chopped(laid: _Laid, width: int) -> _Laid:
    """The column in a terminal narrower than a single word of it."""
    if laid.width <= width:
        return laid
    header, *cells = ("\n".join(chop_cells(text, width)) for text in (laid.column.header, *laid.column.cells))
    return _Laid(laid.column, header, cells, width)


def _total(columns: Collection[_Laid]) -> int:
    return sum(laid.width for laid in columns) + _GAP * (len(columns) - 1)


def _lines(columns: Sequence[_Laid]) -> Iterator[str]:
    """Header and rows, each one text of one or more lines; headers stand on the rule below them."""
    yield _row([laid.header for laid in columns], columns, above=True)
    for row in zip(*(laid.cells for laid in columns), strict=True):
        yield _row(row, columns)


def _row(cells: Sequence[str], columns: Sequence[_Laid], *, above: bool = False) -> str:
    stacks = [cell.split("\n") for cell in cells]
    height = max(map(len, stacks))
    blanks = [[""] * (height - len(stack)) for stack in stacks]
    full = [blank + stack if above else stack + blank for stack, blank in zip(stacks, blanks, strict=True)]
    lines = (
        (_padded(text, laid) for text, laid in zip(line, columns, strict=True))
        for line in zip(*full, strict=True)
    )
    return "\n".join((" " * _GAP).join(line).rstrip() for line in lines)


def _padded(text: str, laid: _Laid) -> str:
    blank = " " * (laid.width - screen_width(text))
    return blank + text if laid.column.numeric else text + blank


def _left_out(columns: Sequence[_Laid], shown: Sequence[_Laid]) -> str:
    kept = {id(laid.column) for laid in shown}
    headers = [laid.column.header for laid in columns if id(laid.column) not in kept]
    return f"left out for want of width: {', '.join(headers)} (-f md shows all)"


def _verdict_style(verdict: str) -> str:
    return next((style for start, style in _VERDICT_STYLES.items() if verdict.startswith(start)), "bold")
