"""The ways out of a result: plain cells, axes told in brief."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specmath.results import Cell, brief, cells


@pytest.mark.parametrize(
    ("values", "told"),
    [
        pytest.param(np.array([4]), 4, id="one value"),
        pytest.param(np.array([0.5, 0.7]), [0.5, 0.7], id="some"),
        pytest.param(np.array([]), None, id="none"),
        pytest.param(np.arange(32), list(range(32)), id="as many as are listed"),
        pytest.param(np.arange(33), "0 … 32 (33 values)", id="many whole numbers"),
        pytest.param(
            np.linspace(0.123456789, 1, 33),
            "0.123456789 … 1 (33 values)",
            id="many numbers, to the last digit",
        ),
        pytest.param(
            np.array([f"law {n:02}.0" for n in range(50)], dtype=object),
            "law 00.0 … law 49.0 (50 values)",
            id="many texts",
        ),
        pytest.param(np.array(["a", "b"], dtype=object), ["a", "b"], id="some texts"),
    ],
)
def test_an_axis_in_brief(values: np.ndarray[Any, Any], told: Cell) -> None:
    assert brief(values) == told
    assert type(brief(values)) is type(told)


@pytest.mark.parametrize(
    ("column", "plain"),
    [
        pytest.param(np.array([1.5, np.nan, -np.inf]), [1.5, None, None], id="floats"),
        pytest.param(
            np.array([[0.5, np.nan], [0.25, 1.0]]), [[0.5, None], [0.25, 1.0]], id="vectors, as array"
        ),
        pytest.param([[0.5, float("inf"), None], []], [[0.5, None, None], []], id="vectors, as lists"),
        pytest.param([(0.5, 2, "a"), [np.float64(0.5)]], [[0.5, 2, "a"], [0.5]], id="mixed"),
        pytest.param([[[1, 195]], None], [[[1, 195]], None], id="nested"),
        pytest.param([np.array([0.5, np.nan])], [[0.5, None]], id="an array in a cell"),
    ],
)
def test_cells_are_plain_values(column: Any, plain: list[Cell]) -> None:
    assert repr(list(cells(column))) == repr(plain)
