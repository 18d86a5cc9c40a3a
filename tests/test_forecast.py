"""Grids of speed-ups: every cell equals the scalar formula, in every way of reading the grid."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import BetaAcceptance, ConstantAcceptance, PositionAcceptance, expected_tokens
from specmath.catalogue import load_hardware
from specmath.drafters.draft_model import DraftModel
from specmath.drafters.lookup import Lookup
from specmath.errors import InputError
from specmath.forecast import SpeedupTable, forecast_speedup
from specmath.laws import AcceptanceLaw
from specmath.mixtures import ContextAcceptance, LookupAcceptance
from specmath.model_counts import model_from_counts
from specmath.ratios import best_k, speedup
from specmath.roofline_source import roofline_cases
from specmath.sources import Ratios
from specmath.trees import best_tree
from specmath.verdicts import judgement

CASES = roofline_cases(
    load_hardware("h100-sxm"), model_from_counts("70B"), DraftModel(model_from_counts("1B"))
)


def textbook(alpha: float, k: int, batch: int) -> float:
    """Max of bytes and FLOPs, written out with the catalogue's two H100 figures."""
    ridge = 989.4e12 / 3.35e12
    plain = max(1.0, batch / ridge)
    return float(expected_tokens(alpha, k)) * plain / (k * plain / 70 + max(1.0, batch * (k + 1) / ridge))


def test_every_cell_of_a_grid_is_the_textbook_formula() -> None:
    alphas, ks, batches = [0.0, 0.35, 0.8, 1.0], [0, 1, 4, 8], [1, 59, 60, 295, 296, 2000]
    table = forecast_speedup(ConstantAcceptance(np.array(alphas)), ks, batches, cases=CASES)
    rows = [row for row in table.rows() if row["case"] == "ideal"]
    assert len(table) == 3 * len(rows)
    for row, (alpha, k, batch) in zip(rows, itertools.product(alphas, ks, batches), strict=True):
        assert (row["alpha"], row["k"], row["batch"]) == (alpha, k, batch)
        assert row["speedup"] == pytest.approx(textbook(alpha, k, batch), rel=1e-12)


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=4),
    st.lists(st.integers(0, 20), min_size=1, max_size=4),
    st.lists(st.integers(1, 5000), min_size=1, max_size=4),
    st.integers(1, 7),
)
def test_chunks_of_any_size_are_the_same_rows(
    alphas: list[float], ks: list[int], batches: list[int], size: int
) -> None:
    table = forecast_speedup(ConstantAcceptance(np.array(alphas)), ks, batches, cases=CASES)
    whole = next(table.chunks())
    pieces = list(table.chunks(size))
    assert sum(len(piece["k"]) for piece in pieces) == len(table)
    for key in table.keys:
        joined = np.concatenate([np.asarray(piece[key]) for piece in pieces])
        assert joined.tolist() == pytest.approx(np.asarray(whole[key]).tolist(), nan_ok=True)


def test_times_and_ratios_of_a_row_belong_together() -> None:
    for row in forecast_speedup(ConstantAcceptance(0.7), 4, 64, cases=CASES).rows():
        numbers = {key: value for key, value in row.items() if isinstance(value, float)}
        assert numbers["draft_s"] / numbers["target_s"] == pytest.approx(numbers["draft_cost"], rel=1e-14)
        assert numbers["verify_s"] / numbers["target_s"] == pytest.approx(numbers["verify_cost"], rel=1e-14)
        assert 4 * numbers["draft_s"] + numbers["verify_s"] == pytest.approx(numbers["step_s"], rel=1e-14)
        tokens_per_s = numbers["acceptance_length"] / numbers["step_s"]
        assert tokens_per_s * numbers["target_s"] == pytest.approx(numbers["speedup"], rel=1e-14)


def test_typed_ratios_are_the_closed_form_and_know_no_seconds() -> None:
    source = Ratios(draft_cost=0.05, verify_cost=1.1, overhead=0.02)
    (row,) = forecast_speedup(ConstantAcceptance(0.8), 5, cases=[source]).rows()
    assert row["case"] == "ratios"
    expected = speedup(0.8, 5, draft_cost=0.05, verify_cost=1.1, overhead=0.02)
    assert row["speedup"] == pytest.approx(expected, rel=1e-14)
    assert all(row[key] is None for key in ("target_s", "draft_s", "verify_s", "step_s"))
    assert row["speedup_low"] is row["speedup_high"] is None


@given(st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 0.5))
def test_the_best_k_is_the_closed_form_of_best_k(alpha: float, draft_cost: float, slope: float) -> None:
    source = Ratios(draft_cost=draft_cost, verify_slope=slope)
    (row,) = forecast_speedup(ConstantAcceptance(alpha), 3, cases=[source]).rows()
    best = int(best_k(alpha, draft_cost=draft_cost, verify_slope=slope, max_k=16))
    at_best = [1.0] + [
        float(speedup(alpha, k, draft_cost=draft_cost, verify_cost=1 + slope * k, overhead=0))
        for k in range(1, 17)
    ]
    # 1e-11: `best_k` takes speed-ups closer than 1e-12 for equal, the table does not.
    assert row["best_speedup"] == pytest.approx(at_best[best], rel=1e-11)
    assert at_best[int(str(row["best_k"]))] == pytest.approx(max(at_best), rel=1e-12)


def test_without_a_batch_it_is_one_sequence_at_context_0() -> None:
    (row,) = forecast_speedup(ConstantAcceptance(0.7), 4, cases=CASES[:1]).rows()
    assert (row["batch"], row["context"]) == (1, 0)


def test_no_draft_is_a_plain_step() -> None:
    for row in forecast_speedup(ConstantAcceptance(0.7), 0, [1, 500], cases=CASES).rows():
        assert row["speedup"] == 1.0


def test_laws_of_all_kinds_stand_side_by_side() -> None:
    laws: list[AcceptanceLaw] = [
        ConstantAcceptance(np.array([0.5, 0.6])),
        PositionAcceptance((0.8, 0.7, 0.6, 0.5)),
        BetaAcceptance(5.6, 2.3),
        best_tree((0.6, 0.2), 6, 4),
    ]
    table = forecast_speedup(laws, [2, 4], 8, cases=CASES[:1])
    rows = list(table.rows())
    assert [row["alpha"] for row in rows] == [0.5, 0.5, 0.6, 0.6] + [None] * 6
    assert [row["acceptance_length"] for row in rows[4:8]] == pytest.approx(
        [float(law.acceptance_length(k)) for law in laws[1:3] for k in (2, 4)], rel=1e-15
    )
    assert table.acceptance.max_k == 4
    assert all(int(str(row["best_k"])) <= 4 for row in rows)


def test_a_tree_pays_for_every_node_it_verifies() -> None:
    tree = best_tree((0.6, 0.2), 30, 4)
    batch = 64
    (row,) = forecast_speedup(tree, 4, batch, cases=CASES[:1]).rows()
    ridge = 989.4e12 / 3.35e12
    # A level of the draft is 30/4 tokens of each sequence on average, beyond the ridge too.
    step = 4 / 70 * max(1.0, batch * 7.5 / ridge) + max(1.0, batch * 31 / ridge)
    assert row["speedup"] == pytest.approx(float(tree.acceptance_length(4)) / step, rel=1e-12)
    chain = ConstantAcceptance(0.6)
    together = list(forecast_speedup([chain, tree], 4, batch, cases=CASES[:1]).rows())
    assert together[1] == row
    assert together[0]["verify_cost"] == pytest.approx(batch * 5 / ridge, rel=1e-12)


def test_a_law_by_context_is_read_at_each_context() -> None:
    law = ContextAcceptance((0, 15), (ConstantAcceptance(0.9), ConstantAcceptance(0.1)))
    source = Ratios(draft_cost=0)
    rows = list(forecast_speedup(law, 2, cases=[source], context=[0, 3, 15]).rows())
    middle = (float(expected_tokens(0.9, 2)) + float(expected_tokens(0.1, 2))) / 2  # log 4 is half of log 16
    assert [row["speedup"] for row in rows] == pytest.approx([2.71, middle, 1.11], rel=1e-12)


def test_a_lookup_draft_takes_law_and_cost_together() -> None:
    cases = roofline_cases(load_hardware("h100-sxm"), model_from_counts("70B"), Lookup(0.4))
    law = LookupAcceptance(0.4, ConstantAcceptance(0.9))
    (row,) = forecast_speedup(law, 8, 1, cases=cases[:1]).rows()
    assert row["draft_cost"] == 0
    assert row["speedup"] == pytest.approx(1 + 0.4 * (float(expected_tokens(0.9, 8)) - 1), rel=1e-12)


@pytest.mark.parametrize(
    ("value", "low", "high", "word"),
    [
        (1.08, None, None, "TOO CLOSE TO CALL"),
        (1.09, None, None, "FASTER"),
        (0.93, None, None, "TOO CLOSE TO CALL"),
        (0.92, None, None, "SLOWER"),
        (1.5, 0.9, 1.9, "TOO CLOSE TO CALL"),
        (1.05, 1.01, 1.2, "FASTER"),
        (0.9, 0.8, 0.99, "SLOWER"),
    ],
)
def test_judgement(value: float, low: float | None, high: float | None, word: str) -> None:
    assert judgement(value, low, high) == word


def test_the_verdict_counts_set_ups_and_the_lowest_is_of_the_leading_case() -> None:
    table = forecast_speedup(ConstantAcceptance(0.7), 4, [1, 160, 512], cases=CASES)
    assert table.verdict.startswith(
        "FASTER at batch 1, TOO CLOSE TO CALL at 160, SLOWER at 512: 0.55× to 2.62×"
    )
    assert table.lowest == pytest.approx(textbook(0.7, 4, 512), rel=1e-12)


def test_a_result_explains_itself() -> None:
    table = forecast_speedup(ConstantAcceptance(0.7), 4, 64, cases=CASES)
    assert table.inputs["alpha"] == 0.7
    assert table.inputs["hardware"] == "h100-sxm"
    assert "neither a forecast nor a bound" in table.assumptions[0]
    assert any("2.7731" in line for line in table.derivation)
    assert table.derivation[-1].endswith(f"= {textbook(0.7, 4, 64):.4f}")


def test_all_speedups_at_once_are_those_of_the_rows() -> None:
    laws: list[AcceptanceLaw] = [ConstantAcceptance(0.5), best_tree((0.6, 0.2), 9, 8)]
    table = forecast_speedup(laws, [1, 4, 8], [1, 64, 512], cases=CASES)
    assert table.speedups().shape == table.shape == (2, 3, 3, 1, 3)
    assert table.speedups().ravel().tolist() == [row["speedup"] for row in table.rows()]


def test_to_frame_holds_the_rows() -> None:
    table = forecast_speedup(ConstantAcceptance(np.array([0.5, 0.9])), [1, 4], [1, 64], cases=CASES)
    frame = table.to_frame()
    assert list(frame.columns) == list(table.keys)
    assert len(frame) == len(table) == 24
    for row, record in zip(table.rows(), frame.to_dict("records"), strict=True):
        for key, value in row.items():
            other = record[key]
            assert (value is None and math.isnan(other)) or value == other


def make(**changes: object) -> SpeedupTable:
    arguments: dict[str, object] = {"k": 4, "batch": 8, "context": 0, "cases": CASES[:1]} | changes
    law = arguments.pop("law", ConstantAcceptance(0.7))
    return forecast_speedup(law, arguments.pop("k"), arguments.pop("batch"), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 2.5}, "k: must be a whole number"),
        ({"k": -1}, "k: must be a whole number"),
        ({"k": []}, "k: is empty"),
        ({"batch": 0}, "batch: must be a whole number from 1 to 1000000000, got 0"),
        ({"batch": float("nan")}, "batch: must be a whole number"),
        ({"context": -5}, "context: must be at least 0"),
        ({"context": "8k"}, "context: must be a number"),
        ({"cases": ()}, "cases: must be a list"),
        ({"law": ()}, "acceptance: must be a law"),
        ({"law": PositionAcceptance((0.8, 0.7))}, "k: must be at most 2, got 4"),
    ],
)
def test_what_is_wrong_is_refused_by_name(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        make(**changes)
