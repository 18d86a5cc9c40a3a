"""Readable columns as a pandas frame of text, for the formats that pandas writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specmath.exporters.readable import ReadableColumn

if TYPE_CHECKING:
    import pandas as pd


def text_frame(columns: Sequence[ReadableColumn]) -> pd.DataFrame:
    """One object column per readable column, under its header."""
    import pandas as pd  # heavy: only where LaTeX or HTML is asked for

    frame = pd.DataFrame({n: column.cells for n, column in enumerate(columns)}, dtype=object)
    return frame.set_axis([column.header for column in columns], axis="columns")
