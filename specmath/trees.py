"""Draft trees: several ranked candidates at each position, verified in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import fsum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specmath.checks import Counts, FloatArray, require_count, require_range
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw, like_counts
from specmath.units import exact_text

MAX_NODES = 4_096
"""Largest tree accepted, several times what engines verify in one pass."""

Path = tuple[int, ...]
"""A node: the 0-based ranks on the way to it from the root; (0, 1) is the second choice after the first."""


class _Level(NamedTuple):
    """The nodes at one depth: how many, P(one of them is accepted), P(one is and none of its children)."""

    nodes: int
    reach: float
    stop: float


@dataclass(frozen=True, slots=True)
class RankedTree(AcceptanceLaw):
    """A draft tree whose r-th ranked child is the accepted one with probability P[r], given its parent was.

    A node is accepted with the product of P over its path; p_i is the sum of these products at depth i, and
    E = 1 + Σ over all nodes. k cuts the tree to its first k levels; beyond its depth nothing is added.

    Nodes are drafted tokens, without the root (the last token emitted): a chain of k tokens has k nodes.
    Engines such as SGLang count the root as well; see `width`.

    Attributes:
        ranks: P[0], P[1], ...: in [0, 1], with a sum of at most 1.
        paths: Every node once, in any order, with its parent: a node (0, 1) needs a node (0,).

    Source: Chen et al. 2024, Sequoia (arXiv:2402.12374); static trees as in Medusa (arXiv:2401.10774).

    >>> RankedTree((0.5, 0.25), ((0,), (1,), (0, 0))).acceptance_length(2)  # 1 + 1/2 + 1/4 + 1/4
    2.0
    """

    ranks: tuple[float, ...]
    paths: tuple[Path, ...]
    _levels: tuple[_Level, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", _require_ranks(self.ranks))
        object.__setattr__(self, "paths", _require_paths(self.paths, len(self.ranks)))
        object.__setattr__(self, "_levels", _levels(self.ranks, self.paths))

    @property
    def nodes(self) -> int:
        """Drafted tokens, the root not counted."""
        return len(self.paths)

    @property
    def depth(self) -> int:
        """Levels below the root: the most tokens that a step can accept."""
        return len(self._levels) - 1

    @property
    def label(self) -> str:
        return f"ranks={'/'.join(map(exact_text, self.ranks))} nodes={self.nodes}"

    @property
    def assumption(self) -> str:
        return (
            "the child of each rank is accepted with the same probability at every depth and in every "
            "context; a draft pass of the tree is priced at one token per sequence"
        )

    def ceiling(self) -> float:
        """Acceptance length of the whole tree."""
        return float(self.acceptance_length(self.depth))

    def width(self, k: npt.ArrayLike) -> Counts:
        """Tokens of one sequence in a verify pass: the root and the nodes of the first k levels."""
        up_to = np.cumsum([1, *(level.nodes for level in self._levels[1:])])
        return like_counts(up_to[np.minimum(self._require_k(k), self.depth)])

    def draft_passes(self, k: npt.ArrayLike) -> Counts:
        """Draft passes of a step, one a level: k, at most the depth of the tree."""
        return like_counts(np.minimum(self._require_k(k), self.depth))

    def _reach(self, k: int) -> FloatArray:
        return _padded([level.reach for level in self._levels[: k + 1]], k + 1)

    def _stops(self, k: int) -> FloatArray:
        return _padded([level.stop for level in self._levels[:k]], k)


def uniform_tree(ranks: Sequence[float], branching: Sequence[int]) -> RankedTree:
    """The tree in which every node at depth d has the first branching[d] ranks as children.

    Args:
        ranks: P[0], P[1], ...: probability that the child of each rank is the accepted one; sum at most 1.
        branching: Children of the root, of each node at depth 1, and so on; each from 1 to the number of
            ranks.

    Returns:
        The tree; (1, 1, 1) is a chain of three tokens.

    Raises:
        InputError: ranks or branching out of range, or more than 4,096 nodes.

    Source: Miao et al. 2023, SpecInfer (arXiv:2305.09781), expansion-based trees.

    >>> uniform_tree((0.5, 0.25), (2, 1)).paths
    ((0,), (1,), (0, 0), (1, 0))
    """
    counts = require_count("branching", branching, 1, len(_require_ranks(ranks)))
    if counts.ndim != 1:
        raise InputError("branching", "must be a flat list, one number of children for each depth")
    paths: list[Path] = []
    level: list[Path] = [()]
    for children in counts.tolist():
        if len(paths) + len(level) * children > MAX_NODES:
            raise InputError("branching", f"makes a tree of more than {MAX_NODES:,} nodes")
        level = [(*parent, rank) for parent in level for rank in range(children)]
        paths += level
    return RankedTree(tuple(ranks), tuple(paths))


def best_tree(ranks: Sequence[float], nodes: int, depth_limit: int) -> RankedTree:
    """The tree of that many nodes with the largest acceptance length.

    E is the sum of path products, and no node has a larger one than its parent, so the n nodes with the
    largest path products are a tree, and no other tree of n nodes sums to more. Equal products: the
    shallower node is taken first, so that the tree needs no draft pass for nothing.

    Args:
        ranks: P[0], P[1], ...: probability that the child of each rank is the accepted one; sum at most 1.
        nodes: Drafted tokens without the root, a whole number from 0 to 4,096.
        depth_limit: Most levels below the root, that is draft passes, at least 0.

    Returns:
        The tree. With one rank it is a chain.

    Raises:
        InputError: an argument out of range, or more nodes than ranks and depth allow.

    Source: own derivation; the dynamic programme of Chen et al. 2024, Sequoia (arXiv:2402.12374), has the
    same optimum.

    >>> best_tree((0.6, 0.3), nodes=3, depth_limit=4).paths  # 0.6, 0.6², 0.3
    ((0,), (1,), (0, 0))
    """
    chances = _require_ranks(ranks)
    wanted, limit = _one("nodes", nodes, MAX_NODES), _one("depth_limit", depth_limit)
    likely = sorted(range(len(chances)), key=lambda rank: -chances[rank])
    paths: list[Path] = []
    frontier: list[tuple[float, int, Path, int, float]] = []

    def offer(parent: Path, parent_product: float, place: int) -> None:
        """The place-th likeliest child of a node; the next one is offered once it is taken."""
        if place < len(likely) and len(parent) < limit:
            product = parent_product * chances[likely[place]]
            heappush(frontier, (-product, len(parent), (*parent, likely[place]), place, parent_product))

    offer((), 1.0, 0)
    while len(paths) < wanted:
        if not frontier:
            raise InputError(
                "nodes",
                f"must be at most {len(paths)} for {len(chances)} ranks and {limit} levels, got {wanted}",
            )
        negative, _, path, place, parent_product = heappop(frontier)
        paths.append(path)
        offer(path, -negative, 0)
        offer(path[:-1], parent_product, place + 1)
    return RankedTree(chances, tuple(paths))


def _require_ranks(ranks: Sequence[float]) -> tuple[float, ...]:
    chances = require_range("ranks", ranks, 0, 1)
    if chances.ndim != 1:
        raise InputError("ranks", "must be a flat list, one probability for each rank")
    total = fsum(chances)
    if total > 1.0 + 1e-9:  # decimals that sum to 1 on paper may exceed it by rounding
        raise InputError(
            "ranks", f"must sum to at most 1, as one child at most is accepted; got {total:.12g}"
        )
    return tuple(chances.tolist())


def _require_paths(paths: Sequence[Sequence[int]], n_ranks: int) -> tuple[Path, ...]:
    """The paths sorted by depth, every one checked: not empty, known ranks, its parent present, no twin."""
    if len(paths) > MAX_NODES:
        raise InputError("paths", f"must be at most {MAX_NODES:,} nodes, got {len(paths):,}")
    known: set[Path] = {()}
    ordered = sorted((_require_path(path, n_ranks) for path in paths), key=lambda path: (len(path), path))
    for path in ordered:
        if path in known:
            raise InputError(
                "paths", f"names the node {path} twice" if path else "names the root; leave it out"
            )
        if path[:-1] not in known:
            raise InputError("paths", f"lacks {path[:-1]}, the parent of {path}")
        known.add(path)
    return tuple(ordered)


def _require_path(path: Sequence[int], n_ranks: int) -> Path:
    if len(path) == 0:
        return ()
    return tuple(require_count("paths", path, 0, n_ranks - 1).tolist())


def _levels(ranks: tuple[float, ...], paths: tuple[Path, ...]) -> tuple[_Level, ...]:
    product: dict[Path, float] = {(): 1.0}
    refused: dict[Path, float] = {(): 1.0}
    for path in paths:
        parent, chance = path[:-1], ranks[path[-1]]
        product[path] = product[parent] * chance
        refused[path] = 1.0
        refused[parent] = max(0.0, refused[parent] - chance)
    by_depth: list[list[Path]] = [[] for _ in range(len(paths[-1]) + 1)] if paths else [[]]
    for path in product:
        by_depth[len(path)].append(path)
    return tuple(
        _Level(len(level), fsum(product[p] for p in level), fsum(product[p] * refused[p] for p in level))
        for level in by_depth
    )


def _one(name: str, value: int, high: int | None = None) -> int:
    count = require_count(name, value, 0, high)
    if count.ndim:
        raise InputError(name, "must be one number, not a list")
    return int(count)


def _padded(values: list[float], size: int) -> FloatArray:
    return np.array(values + [0.0] * (size - len(values)))
