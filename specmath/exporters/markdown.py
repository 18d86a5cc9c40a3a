"""Markdown that pastes into a design document: verdict, GitHub table, bullets."""

from __future__ import annotations

import re
from typing import Final, TextIO

from specmath.exporters.readable import (
    ReadableColumn,
    blocks_of,
    derivation_of,
    notes_of,
    told_columns,
)
from specmath.exporters.text import CODE_SPAN, printable, screen_width
from specmath.results import Block, Result

_MARKUP: Final = re.compile(r"[\\`*\[\]<>|$~]|(?<![^\W_])_|_(?![^\W_])|&(?=#?\w+;)")

_TICKS: Final = re.compile("`+")


def write(result: Result, stream: TextIO, explain: bool = False) -> None:
    """Verdict in bold, the table, what is to be pasted, then assumptions and warnings as bullets."""
    columns = told_columns(result)
    blocks = [_table(columns)] if columns else []
    if result.verdict:
        blocks.insert(0, [f"**{_prose(printable(result.verdict))}**"])
    blocks += [
        lines for block in blocks_of(result) for lines in ([f"{escaped(block.label)}:"], _fenced(block))
    ]
    if notes := notes_of(result, explain):
        blocks.append([f"- {note.kind.capitalize()}: {_prose(note.text)}" for note in notes])
    if explain and (steps := derivation_of(result)):
        blocks += [[f"{result.derivation_title}:"], [f"    {step}" for step in steps]]
    stream.write("\n\n".join("\n".join(lines) for lines in blocks) + "\n")


def escaped(text: str) -> str:
    """Text that Markdown shows as it stands.

    >>> print(escaped("a|b *c* <d> e_f"))
    a\\|b \\*c\\* \\<d\\> e_f
    """
    return _MARKUP.sub(r"\\\g<0>", text)


def _prose(text: str) -> str:
    """A sentence of ours: what stands in backticks is code and needs no escape."""
    parts = CODE_SPAN.split(text)  # text, code, text, …
    return "".join(f"`{part}`" if place % 2 else escaped(part) for place, part in enumerate(parts))


def _fenced(block: Block) -> list[str]:
    """A code block behind a fence that no line of it can close."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(block.text)), default=0))
    return [f"{fence}{block.language}", *block.text.split("\n"), fence]


def _table(columns: list[ReadableColumn]) -> list[str]:
    padded = [_padded(column) for column in columns]
    return ["| " + " | ".join(row) + " |" for row in zip(*padded, strict=True)]


def _padded(column: ReadableColumn) -> list[str]:
    """Header, rule and cells of a column, equally wide."""
    texts = [escaped(text) for text in (column.header, *column.cells)]
    width = max(3, *map(screen_width, texts))
    blanks = [" " * (width - screen_width(text)) for text in texts]
    lines = [
        blank + text if column.numeric else text + blank for text, blank in zip(texts, blanks, strict=True)
    ]
    return [lines[0], "-" * (width - 1) + (":" if column.numeric else "-"), *lines[1:]]
