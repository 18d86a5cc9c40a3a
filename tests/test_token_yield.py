"""The table of `specmath tokens` against the laws and hand arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from specmath.acceptance import BetaAcceptance, ConstantAcceptance
from specmath.mixtures import LookupAcceptance
from specmath.token_yield import tokens_per_step
from specmath.trees import best_tree


def test_one_row_by_hand() -> None:
    (row,) = tokens_per_step(ConstantAcceptance(0.5), 3).rows()
    assert row["survival"] == [0.5, 0.25, 0.125]
    assert row["conditional"] == [0.5, 0.5, 0.5]
    assert row["accepted_pmf"] == [0.5, 0.25, 0.125, 0.125]
    assert row["acceptance_length"] == 1.875
    assert row["ceiling"] == 2.0
    assert row["accepted_over_drafted"] == pytest.approx(0.875 / 3, rel=1e-15)
    assert row["kept_share"] == pytest.approx(1.875 / 4, rel=1e-15)
    assert row["variance"] == pytest.approx(0.25 + 4 * 0.125 + 9 * 0.125 - 0.875**2, rel=1e-14)
    assert (row["accepted_p10"], row["accepted_p50"], row["accepted_p90"]) == (0, 0, 3)


def test_unbounded_and_undefined_are_none() -> None:
    (sure,) = tokens_per_step(ConstantAcceptance(1.0), 2).rows()
    assert sure["ceiling"] is None
    assert sure["acceptance_length"] == 3
    (heavy,) = tokens_per_step(BetaAcceptance(2.0, 0.5), 2).rows()
    assert heavy["ceiling"] is None
    (off,) = tokens_per_step(ConstantAcceptance(0.7), 0).rows()
    assert off["accepted_over_drafted"] is None
    assert off["accepted_pmf"] == [1.0]
    (dead,) = tokens_per_step(ConstantAcceptance(0.0), 2).rows()
    assert dead["conditional"] == [0.0, None]


def test_shares_count_the_tokens_that_were_drafted() -> None:
    tree = best_tree((0.6, 0.3), 6, 2)
    (row,) = tokens_per_step(tree, 2).rows()
    length = float(tree.acceptance_length(2))
    assert row["accepted_over_drafted"] == pytest.approx((length - 1) / 6, rel=1e-14)
    assert row["kept_share"] == pytest.approx(length / 7, rel=1e-14)
    (row,) = tokens_per_step(LookupAcceptance(0.5, ConstantAcceptance(0.5)), 2).rows()
    assert row["acceptance_length"] == 1.375
    assert row["accepted_over_drafted"] == pytest.approx(0.375, rel=1e-14)  # 0.75 of the 2 tokens of a match
    assert row["kept_share"] == pytest.approx(1.375 / 2, rel=1e-14)  # 1 + 0.5·2 tokens verified


def test_rows_run_over_laws_then_k() -> None:
    table = tokens_per_step(ConstantAcceptance(np.array([0.5, 0.7])), [1, 2])
    assert [(row["alpha"], row["k"]) for row in table.rows()] == [(0.5, 1), (0.5, 2), (0.7, 1), (0.7, 2)]
    assert table.verdict == ""
    expected = "α = 0.7: 2.773 tokens per step, of 5 at best with k = 4"
    assert tokens_per_step(ConstantAcceptance(0.7), 4).verdict == expected
