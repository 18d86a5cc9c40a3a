"""A LaTeX tabular with booktabs rules."""

from __future__ import annotations

from typing import Final, TextIO

from specmath.exporters.frames import text_frame
from specmath.exporters.readable import readable_columns
from specmath.results import Result

_SIGNS: Final = str.maketrans(
    {
        "α": r"$\alpha$",
        "µ": r"\textmu{}",
        "×": r"$\times$",
        "·": r"$\cdot$",
        "−": "$-$",
        "≤": r"$\le$",
        "≥": r"$\ge$",
        "–": "--",
        "…": r"\ldots{}",
        "|": r"\textbar{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "[": "{[}",  # after a row's \\ a bracket or a star would be its argument
        "*": "{*}",
    }
)
"""What pdflatex has no letter for, or would set as another sign."""


def write(result: Result, stream: TextIO, explain: bool = False) -> None:
    """The table alone. Notes have no place in it; `specmath.tables.notes` gives them."""
    import pandas as pd  # heavy: only where LaTeX is asked for

    columns = readable_columns(result)
    alignment = "".join("r" if column.numeric else "l" for column in columns)
    with pd.option_context("styler.render.max_elements", 10**9):  # pandas 2 drops rows beyond 262,144 cells
        table = text_frame(columns).to_latex(index=False, escape=True, column_format=alignment)
    stream.write("% needs \\usepackage{booktabs}\n" + table.translate(_SIGNS))
