"""The best tree for every k, against the tree built for that k alone and brute force."""

from __future__ import annotations

import numpy as np
import pytest

from specmath.acceptance import ConstantAcceptance
from specmath.best_trees import BestTree
from specmath.errors import InputError
from specmath.trees import RankedTree, best_tree

RANKS = (0.6, 0.2, 0.1)


def test_every_k_has_the_tree_built_for_it() -> None:
    law, ks = BestTree(RANKS, 16), np.arange(3, 9)
    alone = [best_tree(RANKS, 16, int(k)) for k in ks]
    lengths = [tree.acceptance_length(int(k)) for tree, k in zip(alone, ks, strict=True)]
    assert np.asarray(law.acceptance_length(ks)).tolist() == lengths
    assert np.asarray(law.width(ks)).tolist() == [17] * len(ks)
    variances = [tree.accepted_variance(int(k)) for tree, k in zip(alone, ks, strict=True)]
    assert np.asarray(law.accepted_variance(ks)).tolist() == variances
    for tree, k in zip(alone, ks, strict=True):
        assert law.accepted_pmf(int(k)).tolist() == tree.accepted_pmf(int(k)).tolist()
        assert law.quantile(0.9, int(k)) == tree.quantile(0.9, int(k))


def test_a_known_value_by_brute_force() -> None:
    """16 nodes, at most 4 deep: the 16 largest products of up to four of .6, .2, .1."""
    products = [1.0]
    every: list[float] = []
    for _ in range(4):
        products = [product * rank for product in products for rank in RANKS]
        every += products
    expected = 1 + sum(sorted(every, reverse=True)[:16])
    assert BestTree(RANKS, 16).acceptance_length(4) == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(3.3112, abs=5e-5)


def test_a_depth_too_small_for_the_budget_takes_what_it_holds() -> None:
    law = BestTree((0.6, 0.2), 10)
    assert law.width([0, 1, 2, 3]).tolist() == [1, 3, 7, 11]  # type: ignore[union-attr]
    assert law.acceptance_length(0) == 1
    assert law.acceptance_length(1) == pytest.approx(1.8, rel=1e-15)


def test_one_rank_is_a_chain() -> None:
    law, chain = BestTree((0.7,), 5), ConstantAcceptance(0.7)
    ks = np.arange(0, 6)
    assert np.asarray(law.acceptance_length(ks)).tolist() == pytest.approx(
        np.asarray(chain.acceptance_length(ks)).tolist(), rel=1e-14
    )
    assert law.ceiling() == pytest.approx(float(chain.acceptance_length(5)), rel=1e-14)


def test_levels_that_no_tree_needs_build_none(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    def counted(ranks: tuple[float, ...], nodes: int, depth_limit: int) -> RankedTree:
        built.append(depth_limit)
        return best_tree(ranks, nodes, depth_limit)

    monkeypatch.setattr("specmath.best_trees.best_tree", counted)
    law, ks = BestTree((0.4, 0.3, 0.2), 16), np.arange(1, 400)  # seen by no other test: trees are kept
    lengths = np.asarray(law.acceptance_length(ks))
    assert max(built) <= 4 * law.tree(399).depth
    alone = [best_tree((0.4, 0.3, 0.2), 16, k).ceiling() for k in (3, 4, 5, 6, 50)]
    assert lengths[[2, 3, 4, 5, 49]].tolist() == alone
    assert set(lengths[50:].tolist()) == {alone[-1]}


@pytest.mark.parametrize(
    ("ranks", "nodes", "name"), [((0.9, 0.3), 4, "ranks"), ((0.5,), 0.5, "nodes"), ((0.5,), -1, "nodes")]
)
def test_what_is_wrong_is_refused_by_name(ranks: tuple[float, ...], nodes: int, name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: "):
        BestTree(ranks, nodes)
