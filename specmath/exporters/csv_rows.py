"""CSV after RFC 4180: a header of keys, full precision, an empty cell where a value does not exist."""

from __future__ import annotations

import re
from typing import Final, TextIO

from specmath.exporters.columnwise import encoded
from specmath.exporters.text import printable, vector_text
from specmath.results import Cell, Result

_NEEDS_QUOTES: Final = re.compile(r'[,"]|^\s|\s$|^$')


def write(result: Result, stream: TextIO, explain: bool = False) -> None:
    """All rows. Notes have no place in a CSV; `specmath.tables.notes` gives them."""
    chunks = result.chunks()
    chunk = next(chunks, None)  # before the header: where it fails, nothing is written
    stream.write(",".join(map(_cell, result.keys)) + "\r\n")
    while chunk is not None:
        columns = [encoded(chunk[key], _cell, "/".join) for key in result.keys]
        # A row of one empty cell is quoted: readers skip blank lines.
        stream.writelines((row or '""') + "\r\n" for row in map(",".join, zip(*columns, strict=True)))
        chunk = next(chunks, None)


def _cell(value: Cell) -> str:
    """Numbers as Python's shortest exact text, lists as slash vectors, text quoted where it must be.

    >>> print(_cell(0.1), _cell(True), _cell([0.8, 0.7]), _cell('a, "b"'))
    0.1 true 0.8/0.7 "a, ""b""\"
    """
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    text = printable(value) if isinstance(value, str) else vector_text(value, _item)
    return '"' + text.replace('"', '""') + '"' if _NEEDS_QUOTES.search(text) else text


def _item(value: Cell) -> str:
    return printable(value) if isinstance(value, str) else _cell(value)
