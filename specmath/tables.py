"""Any result in any format: to a stream, to a file, and its notes apart.

    table   a table for the terminal, as wide as the terminal allows
    md      Markdown that pastes into a design document
    csv     full precision, base units, unit in the key
    json    the same with inputs, assumptions and warnings
    latex   a booktabs tabular
    html    one page that needs nothing else
    parquet the rows of csv and the rest of json; to a file only, needs pyarrow

Reader's formats (table, md, latex, html) choose one display unit per column, leave out columns without any
value, and end at 10,000 rows. Data formats never change a unit or a digit and have no limit.
"""

from __future__ import annotations

import io
from importlib import import_module
from pathlib import Path
from typing import Any, Final, TextIO

from specmath.errors import AccessError, InputError
from specmath.exporters.readable import blocks_of, derivation_of, notes_of
from specmath.results import Result

_EXPORTERS: Final = {
    "table": "terminal",
    "md": "markdown",
    "csv": "csv_rows",
    "json": "json_rows",
    "latex": "latex",
    "html": "html_page",
    "parquet": "parquet",
}
FORMATS: Final = tuple(_EXPORTERS)
"""Names of the formats; all but parquet go to a stream."""
ENDINGS: Final = {
    ".csv": "csv",
    ".json": "json",
    ".md": "md",
    ".tex": "latex",
    ".html": "html",
    ".parquet": "parquet",
    ".txt": "table",
}
"""Which format the ending of a file name asks for."""


def write(result: Result, stream: TextIO, format: str, *, explain: bool = False) -> None:
    """Writes `result` to an open text stream.

    Args:
        result: What a question returned.
        stream: Where to. A terminal gets colours and a table that fits it; anything else plain text
            (stdout gets colours too where `FORCE_COLOR` asks for them).
        format: One of `FORMATS` except parquet.
        explain: All assumptions instead of three, and how the first row was obtained.

    Raises:
        InputError: for an unknown format, parquet, or too many rows for a reader's format.
    """
    if format == "parquet":
        raise InputError("format", "parquet is not text; write it to a file, rows.parquet")
    _exporter(format).write(result, stream, explain)


def save(result: Result, path: str | Path, format: str | None = None, *, explain: bool = False) -> None:
    """Writes `result` to a file, whole or not at all.

    Args:
        result: What a question returned.
        path: Where to; its ending names the format (`ENDINGS`).
        format: One of `FORMATS`, for a path whose ending names none.
        explain: As in `write`.

    Raises:
        InputError: for an unknown ending or format, two that contradict each other, or too many rows for a
            reader's format.
        AccessError: where the file cannot be written, or pyarrow is missing.
    """
    from specmath.files import atomic_write  # brings hashlib, through secrets

    chosen = chosen_format(path, format)
    exporter = _exporter(chosen)
    with atomic_write(path) as file:
        if chosen == "parquet":
            exporter.write(result, file, explain)
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            exporter.write(result, text, explain)
        finally:
            text.detach()  # flushes; the file is closed by whoever opened it


def chosen_format(path: str | Path, format: str | None = None) -> str:
    """The format that the ending of a file name asks for; where it asks for none, the one given.

    Raises:
        InputError: for a given format that contradicts the ending, or where neither tells.

    >>> chosen_format("sweep.CSV"), chosen_format("sweep", "csv")
    ('csv', 'csv')
    """
    asked = ENDINGS.get(Path(path).suffix.lower(), format)
    if asked is None:
        raise InputError(
            "path", f"{str(path)!r} names no known format; end it in one of {', '.join(ENDINGS)}"
        )
    if format not in (None, asked):
        raise InputError(
            "format", f"{format!r} contradicts {str(path)!r}, whose ending asks for {asked}; change either"
        )
    return asked


def notes(result: Result, explain: bool = False) -> list[str]:
    """The lines that belong to a table: what is to be pasted, assumptions (three unless `explain`), warnings,
    derivation.

    CSV and LaTeX have no place for them; the other formats contain them.
    """
    pasted = [f"{block.label}:\n{block.text}\n" for block in blocks_of(result)]
    lines = pasted + [f"{note.kind}: {note.text}" for note in notes_of(result, explain)]
    return lines + [f"derivation: {step}" for step in derivation_of(result) if explain]


def _exporter(format: str) -> Any:
    """The module that writes a format, imported on first use: rich, pandas and pyarrow are heavy."""
    if format not in _EXPORTERS:
        raise InputError("format", f"{format!r} is unknown; use one of {', '.join(FORMATS)}")
    try:
        return import_module(f"specmath.exporters.{_EXPORTERS[format]}")
    except ModuleNotFoundError as missing:
        if format != "parquet":
            raise
        raise AccessError(format, f'needs {missing.name}; run `pip install "specmath[parquet]"`') from missing
