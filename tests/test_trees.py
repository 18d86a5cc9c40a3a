"""Draft trees: expectation, and the best tree against brute force and Sequoia's dynamic programme."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from heapq import heappush
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import ConstantAcceptance, acceptance_ceiling
from specmath.errors import InputError
from specmath.trees import MAX_NODES, RankedTree, best_tree, uniform_tree

RANKS = (0.6, 0.2, 0.1)
MEDUSA_LIKE = ((0,), (0, 0), (1,), (0, 1), (0, 0, 0), (2,), (1, 0))
untimed = settings(deadline=None)

rank_tables = st.lists(st.floats(0, 1), min_size=1, max_size=3).map(
    lambda weights: tuple(w / 3 for w in weights)
)


def tree_tokens(ranks: tuple[float, ...], paths: tuple[tuple[int, ...], ...]) -> float:
    """1 for the root, and for every node the product of the ranks on its path."""
    return 1 + sum(prod(ranks[rank] for rank in path) for path in paths)


def closed_sets(n_ranks: int, nodes: int, depth: int) -> Iterator[frozenset[tuple[int, ...]]]:
    """Every set of that many nodes that holds the parent of each of its nodes."""
    grown: set[frozenset[tuple[int, ...]]] = {frozenset()}
    for _ in range(nodes):
        grown = {
            chosen | {(*parent, rank)}
            for chosen in grown
            for parent in ((), *chosen)
            for rank in range(n_ranks)
            if len(parent) < depth and (*parent, rank) not in chosen
        }
    yield from grown


def sequoia_tokens(ranks: tuple[float, ...], size: int, depth: int) -> float:
    """Sequoia's programme over (nodes with the root, children of the root), with a depth limit."""

    @cache
    def best(n: int, levels: int) -> float:
        return max(with_children(n, b, levels) for b in range(len(ranks) + 1))

    @cache
    def with_children(n: int, b: int, levels: int) -> float:
        if n == 1:
            return 1.0
        if b == 0 or levels == 0:
            return -np.inf
        subtrees = ((m, ranks[b - 1] * best(m, levels - 1)) for m in range(1, n))
        return max((with_children(n - m, b - 1, levels) + gain for m, gain in subtrees), default=-np.inf)

    return best(size, depth)


@untimed
@given(ranks=rank_tables, nodes=st.integers(0, 5), depth=st.integers(1, 4))
def test_best_tree_against_all_trees(ranks: tuple[float, ...], nodes: int, depth: int) -> None:
    possible = list(closed_sets(len(ranks), nodes, depth))
    if not possible:
        with pytest.raises(InputError, match="nodes: must be at most"):
            best_tree(ranks, nodes, depth)
        return
    tree = best_tree(ranks, nodes, depth)
    assert frozenset(tree.paths) in possible
    assert tree.ceiling() == pytest.approx(
        max(tree_tokens(ranks, tuple(paths)) for paths in possible), rel=1e-12
    )


@pytest.mark.parametrize(
    "size", [2, 5, 8, 16, 32, 64]
)  # of the root too; at most 85 for 4 ranks and 3 levels
@pytest.mark.parametrize("depth", [3, 5, 64])
@pytest.mark.parametrize("ranks", [(*RANKS, 0.05), (0.75, 0.1, 0.05, 0.02), (0.3, 0.3, 0.2, 0.0)], ids=str)
def test_best_tree_against_the_dynamic_programme(ranks: tuple[float, ...], size: int, depth: int) -> None:
    tree = best_tree(ranks, size - 1, depth)
    assert tree.nodes == size - 1
    assert tree.depth <= depth
    assert tree.ceiling() == pytest.approx(sequoia_tokens(ranks, size, depth), rel=1e-12)


def test_equal_products_take_the_shallower_node() -> None:
    assert best_tree((0.5, 0.25), 2, 5).paths == ((0,), (1,))  # 0.25 either way, one draft pass less


@pytest.mark.parametrize("nodes", [1, 5, 9, 40])
def test_ranks_may_come_in_any_order(nodes: int) -> None:
    tree, renamed = best_tree((0.6, 0.2, 0.1), nodes, 4), best_tree((0.2, 0.1, 0.6), nodes, 4)
    assert renamed.ceiling() == pytest.approx(tree.ceiling(), rel=1e-14)
    assert renamed.width([1, 2, 3, 4]).tolist() == tree.width([1, 2, 3, 4]).tolist()  # type: ignore[union-attr]


def test_the_best_tree_of_many_ranks_looks_at_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: list[object] = []

    def counted(heap: list[Any], item: Any) -> None:
        pushed.append(item)
        heappush(heap, item)

    monkeypatch.setattr("specmath.trees.heappush", counted)
    tree = best_tree((0.0001,) * 5_000, 200, 9)
    assert tree.paths == tuple((rank,) for rank in range(200))
    assert len(pushed) <= 2 * 200 + 1


def test_growth_of_trees_and_of_chains() -> None:
    """Where some child is always right, twice the nodes add the same each time; a chain ends."""
    gains = np.diff([best_tree((0.6, 0.25, 0.15), nodes, 99).ceiling() for nodes in (32, 64, 128, 256, 512)])
    np.testing.assert_allclose(gains, gains.mean(), rtol=0.05)
    assert gains.mean() > 0.5
    chain = best_tree((0.5,), 60, 60)
    assert chain.ceiling() == pytest.approx(acceptance_ceiling(0.5), rel=1e-12)


@untimed
@given(alpha=st.floats(0, 1), k=st.integers(1, 12))
def test_a_tree_of_one_rank_is_a_chain(alpha: float, k: int) -> None:
    tree, chain = uniform_tree((alpha,), (1,) * k), ConstantAcceptance(alpha)
    assert tree == best_tree((alpha,), k, k)
    np.testing.assert_allclose(tree.survival(k), chain.survival(k), rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(tree.accepted_pmf(k), chain.accepted_pmf(k), rtol=1e-12, atol=1e-300)
    assert tree.accepted_variance(k) == pytest.approx(chain.accepted_variance(k), rel=1e-12, abs=1e-300)
    assert tree.width(k) == chain.width(k) == k + 1


@pytest.mark.parametrize(
    ("branching", "nodes", "tokens"),
    [
        pytest.param((3,), 3, 1 + 0.9, id="one level: the sum of the ranks"),
        pytest.param((2, 1), 4, 1 + 0.8 + 0.8 * 0.6, id="two, then one each"),
        pytest.param((3, 2, 1), 15, 1 + 0.9 * (1 + 0.8 * (1 + 0.6)), id="Horner over the levels"),
    ],
)
def test_uniform_tree(branching: tuple[int, ...], nodes: int, tokens: float) -> None:
    tree = uniform_tree(RANKS, branching)
    assert tree.nodes == nodes
    assert tree.depth == len(branching)
    assert tree.acceptance_length(tree.depth) == pytest.approx(tokens, rel=1e-14)


def test_a_given_shape_level_by_level() -> None:
    tree = RankedTree(RANKS, MEDUSA_LIKE)
    assert tree.nodes == 7
    assert tree.paths == ((0,), (1,), (2,), (0, 0), (0, 1), (1, 0), (0, 0, 0))
    np.testing.assert_allclose(tree.survival(3), [0.9, 0.36 + 0.12 + 0.12, 0.216])
    np.testing.assert_array_equal(tree.width([0, 1, 2, 3]), [1, 4, 7, 8])
    for k in range(4):
        assert tree.acceptance_length(k) == pytest.approx(
            tree_tokens(RANKS, tuple(path for path in MEDUSA_LIKE if len(path) <= k))
        )


def test_levels_beyond_the_tree_add_nothing() -> None:
    tree = RankedTree(RANKS, MEDUSA_LIKE)
    assert tree.acceptance_length(9) == tree.acceptance_length(3) == tree.ceiling()
    assert tree.width(9) == 8
    np.testing.assert_allclose(tree.accepted_pmf(5)[4:], 0.0)
    assert tree.conditional(5)[3] == 0.0
    assert np.isnan(tree.conditional(5)[4])


def test_a_tree_without_nodes_is_plain_decoding() -> None:
    tree = RankedTree(RANKS, ())
    assert (tree.nodes, tree.depth, tree.ceiling(), tree.width(3)) == (0, 0, 1.0, 1)
    assert tree.accepted_pmf(2).tolist() == [1.0, 0.0, 0.0]
    assert best_tree(RANKS, 0, 5) == tree


def test_ranks_that_sum_to_1_by_rounding() -> None:
    tree = uniform_tree((0.05, 0.05, 0.9), (3, 3))  # 1 − .05 − .05 − .9 is −1.1e-16 in floats
    assert tree.accepted_pmf(2).tolist() == pytest.approx([0, 0, 1], abs=1e-15)
    assert (tree.accepted_pmf(2) >= 0).all()


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        pytest.param(
            lambda: RankedTree(RANKS, ((0, 0),)), r"paths: lacks \(0,\), the parent of \(0, 0\)", id="parent"
        ),
        pytest.param(
            lambda: RankedTree(RANKS, ((0,), (0,))), r"paths: names the node \(0,\) twice", id="twin"
        ),
        pytest.param(lambda: RankedTree(RANKS, ((),)), "paths: names the root; leave it out", id="root"),
        pytest.param(lambda: RankedTree(RANKS, ((3,),)), "paths: .*from 0 to 2, got 3", id="unknown rank"),
        pytest.param(lambda: RankedTree(RANKS, ((-1,),)), "paths: .*got -1", id="negative rank"),
        pytest.param(lambda: RankedTree((0.7, 0.5), ()), r"ranks: must sum to at most 1, .*1\.2", id="sum"),
        pytest.param(lambda: RankedTree((1.5,), ()), "ranks: must be between 0 and 1", id="rank"),
        pytest.param(lambda: RankedTree(((0.5,),), ()), "ranks: must be a flat list", id="nested"),  # type: ignore[arg-type]
        pytest.param(lambda: uniform_tree(RANKS, (4,)), "branching: .*from 1 to 3, got 4", id="branching"),
        pytest.param(
            lambda: uniform_tree(RANKS, (3,) * 9), "branching: .*more than 4,096 nodes", id="too wide"
        ),
        pytest.param(lambda: uniform_tree(RANKS, 3), "branching: must be a flat list", id="flat"),  # type: ignore[arg-type]
        pytest.param(
            lambda: best_tree(RANKS, 13, 2), "nodes: must be at most 12 for 3 ranks and 2 levels", id="room"
        ),
        pytest.param(lambda: best_tree(RANKS, MAX_NODES + 1, 20), "nodes: .*from 0 to 4096", id="too many"),
        pytest.param(lambda: best_tree(RANKS, 3, -1), "depth_limit: ", id="depth"),
        pytest.param(lambda: best_tree(RANKS, [3], 4), "nodes: must be one number", id="list of nodes"),  # type: ignore[arg-type]
        pytest.param(
            lambda: RankedTree((1.0,), tuple((0,) * d for d in range(1, 2)) * (MAX_NODES + 1)),
            "paths: must be at most 4,096 nodes, got 4,097",
            id="too many paths",
        ),
    ],
)
def test_errors_name_the_node_and_the_remedy(call: Callable[[], object], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        call()
