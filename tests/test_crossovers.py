"""Crossovers: the scan against closed forms, the textbook's values, and every way a curve can lie."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import ConstantAcceptance, expected_tokens
from specmath.breakevens import roofline_breakeven_batch
from specmath.catalogue import load_hardware
from specmath.crossovers import _edge, _intervals, _wins, find_crossovers
from specmath.errors import InputError
from specmath.forecast import forecast_speedup
from specmath.mixtures import LookupAcceptance
from specmath.model_counts import model_from_counts
from specmath.roofline_source import roofline_cases
from specmath.trees import best_tree

PAIR = roofline_cases(load_hardware("h100-sxm"), model_from_counts("70B"), model_from_counts("1B"))


def row_of(alpha: float, k: int, **options: Any) -> dict[str, Any]:
    return next(find_crossovers(ConstantAcceptance(alpha), k, source=PAIR[0], **options).rows())


@pytest.mark.parametrize(("alpha", "breakeven"), [(0.8, 195.1), (0.7, 160.4)])
def test_the_textbook_breakeven_batches(alpha: float, breakeven: float) -> None:
    """Post 3's pair; the catalogue's 989.4 TFLOP/s moves the first from 195.1 to 195.2."""
    found = row_of(alpha, 4)
    assert found["breakeven_batch"] * 989 / 989.4 == pytest.approx(breakeven, abs=0.05)
    assert found["winning_batches"] == [[1, int(found["breakeven_batch"])]]
    assert found["wins"] == "below"


@settings(deadline=None, max_examples=60)
@given(st.floats(0.3, 0.99), st.integers(1, 12))
def test_the_bisected_batch_is_the_closed_form(alpha: float, k: int) -> None:
    found = row_of(alpha, k, max_batch=512)
    closed = roofline_breakeven_batch(
        expected_tokens(alpha, k), k, ridge=PAIR[0].ridge_tokens, draft_cost=1 / 70
    )
    if found["wins"] == "below" and closed > 1.01:
        assert found["breakeven_batch"] == pytest.approx(float(closed), rel=1e-9)
    else:
        assert not closed > 1.01
        assert found["breakeven_batch"] is None


def test_winning_batches_are_those_whose_speedup_exceeds_one() -> None:
    law = LookupAcceptance(0.5, ConstantAcceptance(0.9))
    source = roofline_cases(load_hardware("l4"), model_from_counts("47B/13B"), None, match_rate=0.5)[0]
    found = next(find_crossovers(law, 6, source=source, max_batch=600).rows())
    table = forecast_speedup(law, 6, np.arange(1, 601), cases=[source])
    winning = {row["batch"] for row in table.rows() if float(str(row["speedup"])) > 1}
    intervals: Any = found["winning_batches"]
    told = {batch for first, last in intervals for batch in range(first, last + 1)}
    assert told == winning


def test_never_and_always() -> None:
    assert row_of(0.01, 8) | {"wins": "never", "breakeven_batch": None, "winning_batches": []} == row_of(
        0.01, 8
    )
    small = row_of(0.8, 4, max_batch=100)
    assert small["wins"] == "always"
    assert small["breakeven_batch"] is None
    assert small["winning_batches"] == [[1, 100]]


@dataclass(frozen=True)
class Curve:
    """The wins of batches 1, 2, … as letters."""

    wins: str
    word: str
    intervals: list[tuple[int, int]]
    edge: float


@pytest.mark.parametrize(
    "curve",
    [
        Curve("WWWW", "always", [(1, 4)], 1),
        Curve("LLLL", "never", [], 1),
        Curve("WWLL", "below", [(1, 2)], 2),
        Curve("LLWW", "above", [(3, 4)], 3),
        Curve("LWWL", "within", [(2, 3)], 1),
        Curve("WLWW", "within", [(1, 1), (3, 4)], 1),
        Curve("W", "always", [(1, 1)], 1),
        Curve("L", "never", [], 1),
    ],
    ids=lambda curve: curve.wins,
)
def test_every_shape_of_curve_has_its_word(curve: Curve) -> None:
    found = _intervals(np.array([letter == "W" for letter in curve.wins]))
    assert found == curve.intervals
    assert _wins(found, len(curve.wins)) == curve.word
    assert _edge(found, curve.word) == curve.edge


def test_each_breakeven_value_makes_the_speedup_one() -> None:
    found = row_of(0.7, 4, batch=64)
    cost = PAIR[0].step_cost(4, 64, 0)
    v, c, length = float(cost.verify_cost), float(cost.draft_cost), found["acceptance_length"]
    assert found["speedup"] == pytest.approx(length / (v + 4 * c), rel=1e-14)
    assert float(expected_tokens(found["breakeven_alpha"], 4)) == pytest.approx(v + 4 * c, rel=1e-9)
    assert found["breakeven_acceptance_length"] == pytest.approx(v + 4 * c, rel=1e-14)
    assert length == pytest.approx(v + 4 * found["breakeven_draft_cost"], rel=1e-12)
    assert length == pytest.approx(found["breakeven_verify_cost"] + 4 * c, rel=1e-12)


def test_ridge_and_verify_bound_batch() -> None:
    found = row_of(0.7, 4)
    assert found["ridge_tokens"] == pytest.approx(989.4e12 / 3.35e12, rel=1e-14)
    assert found["verify_bound_batch"] == pytest.approx(989.4e12 / 3.35e12 / 5, rel=1e-14)


def test_a_tree_turns_compute_bound_earlier_and_has_no_breakeven_alpha() -> None:
    tree = best_tree((0.6, 0.2), 24, 4)
    found = next(find_crossovers(tree, 4, source=PAIR[0]).rows())
    assert found["verify_bound_batch"] == pytest.approx(989.4e12 / 3.35e12 / 25, rel=1e-14)
    assert found["breakeven_alpha"] is None


def test_many_rows_are_scanned_in_pieces_with_the_same_result() -> None:
    table = find_crossovers(
        ConstantAcceptance(np.linspace(0.3, 0.95, 7)), [2, 5], source=PAIR[0], max_batch=300
    )
    whole = list(table.rows())
    pieces = [chunk["wins"] for chunk in table.chunks(3)]
    assert [word for piece in pieces for word in piece] == [row["wins"] for row in whole]
    assert len(whole) == len(table) == 14


def test_a_breakeven_verify_cost_below_one_is_warned_of() -> None:
    table = find_crossovers(ConstantAcceptance(0.01), 8, source=PAIR[0])
    assert [advice.code for advice in table.warnings] == ["more-devices", "no-verify-cost-pays"]
    assert [
        advice.code for advice in find_crossovers(ConstantAcceptance(0.7), 4, source=PAIR[0]).warnings
    ] == ["more-devices"]


@pytest.mark.parametrize("options", [{"k": 0}, {"batch": 0}, {"max_batch": 0}, {"context": 4096}])
def test_what_is_wrong_is_refused_by_name(options: dict[str, Any]) -> None:
    arguments = {"k": 4} | options
    k = arguments.pop("k")
    name = next(iter(options))
    with pytest.raises(InputError, match=f"^{name}: "):
        list(find_crossovers(ConstantAcceptance(0.7), k, source=PAIR[0], **arguments).rows())
