"""Columns of text for the row formats, made a column at a time: several times faster than cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from specmath.results import Cell, cells

_SAMPLE: Final = 1000


def encoded(column: np.ndarray[Any, Any] | Sequence[Cell], encode: Callable[[Cell], str]) -> Iterator[str]:
    """`encode` of every cell; numbers are written by `repr`, which CSV and JSON share.

    Grids repeat their values, so where a sample does, each distinct value is encoded once.

    >>> list(encoded(np.array([0.5, 0.5]), str.upper)), list(encoded(["a", "b"], str.upper))
    (['0.5', '0.5'], ['A', 'B'])
    """
    values = cells(column)
    kinds = set(map(type, values))
    if kinds in ({float}, {int}):
        encode = repr
    # Equal values of several types (1, 1.0, True) are written differently; lists have no hash.
    if len(kinds - {type(None)}) > 1 or list in kinds or len(set(values[:_SAMPLE])) * 2 > _SAMPLE:
        return map(encode, values)
    distinct = set(values)
    if float in kinds and 0.0 in distinct:  # equal to -0.0, and written differently too
        return map(encode, values)
    texts = {value: encode(value) for value in distinct}
    return map(texts.__getitem__, values)
