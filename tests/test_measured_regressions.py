"""Published measurements that a formula must reproduce, each within the tolerance it was found to hold to."""

from __future__ import annotations

import numpy as np
import pytest

from specmath.acceptance import beta_expected_tokens, expected_tokens
from specmath.checks import FloatArray
from specmath.estimation import alpha_from_acceptance_length
from specmath.measured_speedups import MeasuredSpeedup
from specmath.measurement_files import public_measurements
from specmath.ratios import leviathan_speedup
from specmath.scoring import left_out_line
from specmath.setups import predictions, roofline_of

ROWS = {row.id: row for row in public_measurements()}


def ideal_speedup(row: MeasuredSpeedup) -> float:
    return predictions(roofline_of(row), [row])[0].speedup


def rows_of(prefix: str, first: int, last: int) -> list[MeasuredSpeedup]:
    return [ROWS[f"{prefix}-{number:02d}"] for number in range(first, last + 1)]


# Leviathan et al. 2023, tables 2 and 4: the speed-ups that the paper itself predicts from its α, γ and c.
LEVIATHAN = {
    "LEV-01": (0.02, 3.2),
    "LEV-02": (0.04, 3.3),
    "LEV-03": (0.11, 2.5),
    "LEV-04": (0.02, 2.3),
    "LEV-05": (0.04, 2.4),
    "LEV-06": (0.11, 2.0),
    "LEV-07": (0.02, 2.4),
    "LEV-08": (0.04, 2.6),
    "LEV-09": (0.11, 2.0),
    "LEV-10": (0.02, 1.9),
    "LEV-11": (0.04, 1.8),
    "LEV-12": (0.11, 1.6),
}


@pytest.mark.parametrize("name", LEVIATHAN)
def test_leviathans_own_predictions_to_rounding(name: str) -> None:
    row, (draft_cost, printed) = ROWS[name], LEVIATHAN[name]
    assert row.alpha is not None
    assert row.k is not None
    assert leviathan_speedup(row.alpha, row.k, draft_cost=draft_cost) == pytest.approx(printed, abs=0.105)


def step_s(rows: list[MeasuredSpeedup]) -> FloatArray:
    """E·TPOT: seconds of a speculative step."""
    times = [row.tpot_s or (row.plain_tpot_s or np.nan) / (row.speedup or np.nan) for row in rows]
    lengths = np.array([row.acceptance_length for row in rows], dtype=np.float64)
    return np.multiply(lengths, times)


K_LINES = [
    # rows, plain step in ms, (v + o) and c in plain steps; NaN where no plain step is given
    pytest.param(rows_of("V207", 1, 6), 7.07, 1.087, 0.105, id="vLLM 20780, EAGLE, k 2 to 7"),
    pytest.param(rows_of("V207", 7, 12), 7.07, 1.181, 0.144, id="vLLM 20780, EAGLE-3, k 2 to 7"),
    pytest.param(rows_of("TRT", 1, 5), 9.01, 0.987, 0.085, id="TensorRT-LLM, R1 with MTP, k 1 to 5"),
    pytest.param(rows_of("XLLM", 1, 5), np.nan, np.nan, np.nan, id="xLLM on an NPU, MTP, k 1 to 5"),
]


@pytest.mark.parametrize(("rows", "plain_ms", "rest", "draft_cost"), K_LINES)
def test_the_step_is_a_line_in_k_within_3_percent(
    rows: list[MeasuredSpeedup], plain_ms: float, rest: float, draft_cost: float
) -> None:
    k, step = np.array([row.k for row in rows], dtype=float), step_s(rows)
    slope, start = np.polyfit(k, step, 1)
    assert np.abs((start + slope * k) / step - 1).max() < 0.03
    if not np.isnan(plain_ms):
        assert start / (plain_ms / 1e3) == pytest.approx(rest, abs=0.02)
        assert slope / (plain_ms / 1e3) == pytest.approx(draft_cost, abs=0.005)


@pytest.mark.parametrize("rows", [pytest.param(case.values[0], id=case.id) for case in K_LINES])
def test_the_line_foretells_a_k_left_out_within_5_percent(rows: list[MeasuredSpeedup]) -> None:
    step = step_s(rows)
    line = left_out_line([row.k or 0 for row in rows], step, [0] * len(rows))
    assert np.abs(line / step - 1).max() < 0.05


def test_the_textbook_is_too_optimistic_where_the_line_holds() -> None:
    """vLLM 20780: E/(1 + c·k) with the fitted c is 5 to 7 % too high for EAGLE, 7 to 13 % for EAGLE-3."""
    for rows, draft_cost, low, high in (
        (rows_of("V207", 1, 6), 0.105, 0.04, 0.08),
        (rows_of("V207", 7, 12), 0.144, 0.06, 0.14),
    ):
        for row in rows:
            error = (row.acceptance_length or 0) / (1 + draft_cost * (row.k or 0)) / (row.speedup or 0) - 1
            assert low < error < high


def test_acceptance_of_an_n_gram_draft_follows_a_beta_law_within_2_percent() -> None:
    """TensorRT-LLM, translation, k 7 to 23: Beta(5.6, 2.3) holds; one α fitted at k = 7 falls short at 23."""
    rows = rows_of("TRTN", 4, 12)
    k = np.array([row.k for row in rows])
    lengths = np.array([row.acceptance_length for row in rows], dtype=float)
    assert np.abs(np.asarray(beta_expected_tokens(5.6, 2.3, k)) / lengths - 1).max() < 0.02
    alpha = alpha_from_acceptance_length(lengths[0], int(k[0]))
    assert float(expected_tokens(alpha, int(k[-1]))) / lengths[-1] - 1 < -0.1


def test_a_30b_a3b_loses_at_batch_1_on_the_ideal_roofline() -> None:
    """Qwen3-30B-A3B with EAGLE-3 on H100 in SGLang: all rows at batch 1 were slowdowns and come out so."""
    rows = [row for row in ROWS.values() if row.target == "qwen3-30b-a3b" and row.is_usable]
    alone = [row for row in rows if row.batch == 1]
    assert len(alone) == 10
    for row in alone:
        assert (row.speedup or 0) < 1
        assert ideal_speedup(row) < 1, row.id


@pytest.mark.parametrize(
    ("prefix", "method", "low", "high"),
    [
        pytest.param("E3S", "eagle", 0.2, 1.2, id="EAGLE"),
        pytest.param("E3S", "eagle3", 0.2, 1.0, id="EAGLE-3"),
    ],
)
def test_eagle_on_h100_is_reported_as_it_is(prefix: str, method: str, low: float, high: float) -> None:
    """EAGLE-3 paper, table 3: the ideal roofline is far too optimistic; nothing was tuned for it."""
    rows = [row for row in ROWS.values() if row.id.startswith(prefix) and row.method == method]
    errors = [ideal_speedup(row) / (row.speedup or 0) - 1 for row in rows]
    assert len(rows) == 9
    assert low < min(errors)
    assert max(errors) < high
