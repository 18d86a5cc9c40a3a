"""Which k a replica drafts in a step, as a function of the sequences that decode in it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from specmath.checks import MAX_K, require_count
from specmath.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPolicy:
    """Tiers of the running batch, each with its k; one tier is a fixed k, and k = 0 decodes plainly.

    The tier rises as soon as the batch reaches the first batch of a higher one. It falls only when the batch
    is more than `hysteresis` sequences below the first batch of its own.

    Attributes:
        ks: Draft length of each tier.
        first_batches: Smallest batch of each tier, rising from 0.
        hysteresis: Sequences by which the batch must fall below a tier before it is left.

    >>> tiers = BatchPolicy(ks=(4, 0), first_batches=(0, 32), hysteresis=4)
    >>> [tiers.tier_at(batch, 1) for batch in (32, 28, 27)], tiers.tier_at(31, 0)
    ([1, 1, 0], 0)
    """

    ks: tuple[int, ...]
    first_batches: tuple[int, ...] = (0,)
    hysteresis: int = 0

    def __post_init__(self) -> None:
        require_count("ks", self.ks, 0, MAX_K)
        require_count("hysteresis", self.hysteresis)
        firsts = require_count("first_batches", self.first_batches).tolist()
        if len(firsts) != len(self.ks):
            raise InputError("first_batches", f"must be one for each k, got {len(firsts)} for {len(self.ks)}")
        if firsts[0] != 0 or any(low >= high for low, high in pairwise(firsts)):
            raise InputError("first_batches", f"must rise from 0, got {self.first_batches}")

    @property
    def longest_k(self) -> int:
        """Longest draft of any tier: every running sequence keeps look-ahead slots for it."""
        return max(self.ks)

    def tier_at(self, batch: int, tier: int) -> int:
        """The tier of a step with `batch` decoding sequences, `tier` being that of the step before."""
        plain = bisect_right(self.first_batches, batch) - 1
        if plain >= tier or not self.hysteresis:
            return plain
        return min(tier, bisect_right(self.first_batches, batch + self.hysteresis) - 1)


def fixed_k(k: int) -> BatchPolicy:
    """One k at every batch.

    >>> fixed_k(3).longest_k
    3
    """
    return BatchPolicy(ks=(k,))


def k_by_batch(ks: Sequence[int]) -> BatchPolicy:
    """The k of each batch from 0 on, chosen anew in every step; the last one holds beyond.

    >>> table = k_by_batch([4, 4, 3, 0])
    >>> [table.ks[table.tier_at(batch, 0)] for batch in (1, 2, 50)]
    [4, 3, 0]
    """
    return BatchPolicy(ks=tuple(ks), first_batches=tuple(range(len(ks))))
