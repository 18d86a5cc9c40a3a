"""The table of `specmath tokens` against the laws and hand arithmetic."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from specmath.acceptance import BetaAcceptance, ConstantAcceptance
from specmath.best_trees import BestTree
from specmath.mixtures import ContextAcceptance, LookupAcceptance
from specmath.token_yield import CHUNK_NUMBERS, tokens_per_step
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


LAWS = [
    ConstantAcceptance(0.3),
    BetaAcceptance(2.0, 0.5),
    ConstantAcceptance(1.0),
    BestTree((0.5, 0.2, 0.1), 12),
    LookupAcceptance(0.5, ConstantAcceptance(0.0)),
    ContextAcceptance((2_048, 16_384), (ConstantAcceptance(0.6), ConstantAcceptance(0.1))),
]


def test_every_row_is_that_of_its_own_law_k_and_context() -> None:
    """Rows of one law and k are evaluated together; here each is evaluated alone."""
    ks, contexts = [3, 0, 5], [0, 5_000]
    rows = tokens_per_step(LAWS, ks, context=contexts).rows()
    for row, (law, k, context) in zip(rows, product(LAWS, ks, contexts), strict=True):
        own = law.at(context)
        assert (row["k"], row["context"]) == (k, context)
        assert row["law"] == ("constant" if isinstance(law, ConstantAcceptance) else law.label)
        assert row["acceptance_length"] == own.acceptance_length(k)
        assert row["variance"] == own.accepted_variance(k)
        assert row["standard_deviation"] == np.sqrt(own.accepted_variance(k))
        assert row["accepted_p90"] == own.quantile(0.9, k)
        for key in ("survival", "conditional", "accepted_pmf"):
            expected = [None if np.isnan(value) else value for value in getattr(own, key)(k).tolist()]
            assert row[key] == expected


def test_many_alphas_are_the_same_alone_and_together() -> None:
    alphas = np.linspace(0, 1, 41)
    rows = tokens_per_step(ConstantAcceptance(alphas), [4, 2]).rows()
    alone = [next(tokens_per_step(ConstantAcceptance(a), k).rows()) for a in alphas.tolist() for k in (4, 2)]
    for row, own in zip(rows, alone, strict=True):
        assert row.keys() == own.keys()
        for key in ("survival", "conditional", "accepted_pmf", "acceptance_length", "variance", "kept_share"):
            together, single = (np.array(one[key], dtype=float) for one in (row, own))
            np.testing.assert_allclose(together, single, rtol=1e-14, atol=1e-300)
        for key in ("alpha", "k", "ceiling", "accepted_p10", "accepted_p50", "accepted_p90"):
            assert row[key] == own[key]


@pytest.mark.parametrize("size", [1, 5, 100])
def test_chunks_join_without_a_seam(size: int) -> None:
    table = tokens_per_step(LAWS, [3, 1], context=[0, 5_000])
    chunks = list(table.chunks(size))
    assert max(len(chunk["k"]) for chunk in chunks) <= size
    for key in table.keys:
        assert [value for chunk in chunks for value in chunk[key]] == [row[key] for row in table.rows()]


def test_a_chunk_of_long_drafts_is_short() -> None:
    """A row of k = 3,000 holds 9,001 numbers in its vectors; a chunk never many of them."""
    table = tokens_per_step(ConstantAcceptance(0.7), np.arange(2_900, 3_001))
    lengths = [len(chunk["k"]) for chunk in table.chunks()]
    assert sum(lengths) == 101
    assert max(lengths) * 9_001 <= CHUNK_NUMBERS
    (longest,) = tokens_per_step(ConstantAcceptance(0.7), 10_000).rows()
    assert len(np.asarray(longest["survival"])) == 10_000
