"""A tree draft that takes the best tree of its node budget at every depth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from specmath.checks import Counts, FloatArray, Numbers, like_inputs
from specmath.laws import AcceptanceLaw, like_counts
from specmath.trees import RankedTree, best_tree
from specmath.units import exact_text


@dataclass(frozen=True, slots=True)
class BestTree(AcceptanceLaw):
    """The best tree of a node budget, chosen anew for each k: k draft passes, at most k levels.

    A depth that cannot hold the budget (k levels of r ranks hold r + r² + … + r^k nodes) takes all it holds.

    Attributes:
        ranks: P[0], P[1], ...: probability that the child of each rank is the accepted one; sum at most 1.
        nodes: Drafted tokens without the root, at least 1; engines such as SGLang count the root as well.

    Source: own derivation, see `specmath.trees.best_tree`.

    >>> law = BestTree((0.5, 0.25), 2)
    >>> law.acceptance_length(1), law.acceptance_length(2)  # 1 + 1/2 + 1/4 either way
    (1.75, 1.75)
    >>> law.width(1)
    3
    """

    ranks: tuple[float, ...]
    nodes: int

    def __post_init__(self) -> None:
        self.tree(1)  # refuses ranks and nodes that are out of range

    @property
    def label(self) -> str:
        return f"ranks={'/'.join(map(exact_text, self.ranks))} best {self.nodes} nodes"

    @property
    def assumption(self) -> str:
        return f"{self.tree(1).assumption}; the tree is the best one of {self.nodes} nodes for each k"

    def tree(self, k: int) -> RankedTree:
        """The tree that is drafted with k passes."""
        return _tree(self.ranks, self.nodes, k)

    def ceiling(self) -> float:
        """Acceptance length of the best tree of any depth; a tree of n nodes is at most n deep."""
        return self.tree(self.nodes).ceiling()

    def width(self, k: npt.ArrayLike) -> Counts:
        """Tokens of one sequence in a verify pass: the root and the nodes of the tree for k."""
        return like_counts(self._by_k(k, lambda tree, depth: tree.width(depth)).astype(np.int64))

    def draft_passes(self, k: npt.ArrayLike) -> Counts:
        """Draft passes of a step: the depth of the tree for k, at most k."""
        return like_counts(self._by_k(k, lambda tree, depth: tree.depth).astype(np.int64))

    def acceptance_length(self, k: npt.ArrayLike) -> Numbers:
        """E = 1 + Σ path products of the tree for k."""
        return like_inputs(self._by_k(k, lambda tree, depth: tree.acceptance_length(depth)))

    def accepted_variance(self, k: npt.ArrayLike) -> Numbers:
        """Variance of the accepted tokens, of the tree for k."""
        return like_inputs(self._by_k(k, lambda tree, depth: tree.accepted_variance(depth)))

    def quantile(self, q: npt.ArrayLike, k: npt.ArrayLike) -> Counts:
        """Smallest n with P(N ≤ n) ≥ q, of the tree for k; q and k broadcast."""
        level, counts = np.broadcast_arrays(np.asarray(q, dtype=float), self._require_k(k))
        answers = [
            self.tree(int(one)).quantile(float(part), int(one))
            for part, one in zip(level.flat, counts.flat, strict=True)
        ]
        return like_counts(np.array(answers, dtype=np.int64).reshape(counts.shape))

    def _by_k(self, k: npt.ArrayLike, answer: Callable[[RankedTree, int], Numbers | Counts]) -> FloatArray:
        """What the tree for each k answers, in the shape of k."""
        counts = self._require_k(k)
        distinct, place = np.unique(counts, return_inverse=True)
        answers = np.array([answer(self.tree(depth), depth) for depth in distinct.tolist()], dtype=float)
        return np.asarray(answers[place].reshape(counts.shape))

    def _reach(self, k: int) -> FloatArray:
        return self.tree(k)._reach(k)

    def _stops(self, k: int) -> FloatArray:
        return self.tree(k)._stops(k)


@cache
def _tree(ranks: tuple[float, ...], nodes: int, k: int) -> RankedTree:
    if k > 1 and (shallower := _tree(ranks, nodes, k // 2)).depth < k // 2:
        return shallower  # half as many levels were more than it needs
    room, level = 0, 1
    for _ in range(k):
        level *= len(ranks)
        room += level
        if room >= nodes:
            break
    return best_tree(ranks, min(nodes, room) if nodes > 0 else nodes, k)
