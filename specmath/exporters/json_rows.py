"""JSON: one document, its rows one a line, written as they are evaluated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, TextIO

from specmath import __version__
from specmath.exporters.columnwise import encoded
from specmath.results import Cell, Result, cells

_encode: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
_UNSAFE: Final = re.compile(r"[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def write(result: Result, stream: TextIO, explain: bool = False) -> None:
    """`heading` and, last, `rows`: base units, full precision, null where a value does not exist."""
    chunks = result.chunks()
    head = [f"  {_text(key)}: {_text(value)},\n" for key, value in heading(result, explain).items()]
    chunk = next(chunks, None)  # before the head: where it fails, nothing is written
    stream.writelines(["{\n", *head, '  "rows": ['])
    row_of = "    {" + ", ".join(_text(key).replace("%", "%%") + ": %s" for key in result.keys) + "}"
    separator = "\n"
    while chunk is not None:
        columns = [encoded(chunk[key], _text, _list) for key in result.keys]
        for row in map(row_of.__mod__, zip(*columns, strict=True)):
            stream.write(separator + row)
            separator = ",\n"
        chunk = next(chunks, None)
    stream.write("\n  ]\n}\n" if separator != "\n" else "]\n}\n")


def heading(result: Result, explain: bool = False) -> dict[str, Any]:
    """What a file says about its rows; JSON puts it before them, Parquet into its metadata."""
    warnings = [{"code": told.code, "text": told.text, "remedy": told.remedy} for told in result.warnings]
    pasted = [
        {"label": block.label, "language": block.language, "text": block.text} for block in result.blocks
    ]
    config = {"config": pasted} if pasted else {}
    derivation = {"derivation": list(result.derivation)} if explain else {}
    return {
        "schema": result.schema,
        "specmath_version": __version__,
        "verdict": result.verdict,
        "inputs": dict(zip(result.inputs, cells(list(result.inputs.values())), strict=True)),
        "assumptions": list(result.assumptions),
        "warnings": warnings,
        **config,
        **{name: [_row(row) for row in rows] for name, rows in result.details.items()},
        **derivation,
    }


def _row(row: Mapping[str, Cell]) -> dict[str, Cell]:
    return dict(zip(row, cells(list(row.values())), strict=True))


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _text(value: Cell | dict[str, Any]) -> str:
    """A value as JSON that is safe to show: what a terminal might obey is written as an escape."""
    if isinstance(value, float):
        return float.__repr__(value)
    text = _encode(value)
    return text if text.isascii() else _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
