"""One HTML page that needs nothing else: it can be mailed or archived."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, TextIO

from specmath.exporters.frames import text_frame
from specmath.exporters.readable import (
    ReadableColumn,
    blocks_of,
    derivation_of,
    notes_of,
    told_columns,
)
from specmath.exporters.text import CODE_SPAN, printable
from specmath.results import Result

_PAGE: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem; }}
td:first-child {{ white-space: nowrap; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .75rem; text-align: left; border-bottom: 1px solid #8885; }}
th {{ border-bottom: 2px solid #888; vertical-align: bottom; }}
{numeric}</style>
</head>
<body>
{body}
</body>
</html>
"""


def write(result: Result, stream: TextIO, explain: bool = False) -> None:
    """Verdict, table, notes, and with `explain` the derivation."""
    columns = told_columns(result)
    blocks = [text_frame(columns).to_html(index=False, border=0, justify="left")] if columns else []
    if result.verdict:
        blocks.insert(0, f"<p><strong>{_prose(printable(result.verdict))}</strong></p>")
    blocks += [
        f"<p>{escape(block.label)}:</p>\n<pre><code>{escape(block.text)}</code></pre>"
        for block in blocks_of(result)
    ]
    if notes := notes_of(result, explain):
        items = (f"<li>{note.kind.capitalize()}: {_prose(note.text)}</li>" for note in notes)
        blocks.append("\n".join(("<ul>", *items, "</ul>")))
    if explain and (steps := derivation_of(result)):
        blocks.append(f"<p>{result.derivation_title}:</p>\n<pre>" + escape("\n".join(steps)) + "</pre>")
    title, numeric, body = escape(result.schema), _alignment(columns), "\n".join(blocks)
    stream.write(_PAGE.format(title=title, numeric=numeric, body=body))


def _alignment(columns: Sequence[ReadableColumn]) -> str:
    places = [
        f"th:nth-child({n}), td:nth-child({n})" for n, column in enumerate(columns, 1) if column.numeric
    ]
    return ", ".join(places) + " { text-align: right; }\n" if places else ""


def _prose(text: str) -> str:
    """A sentence of ours: what stands in backticks is code."""
    return CODE_SPAN.sub(r"<code>\1</code>", escape(text))
