"""What every law of acceptance answers, whatever its parameters.

A step drafts k tokens, the target accepts the first N of them and adds one of its own (the bonus token).
Everything follows from the survival p_i = P(N ≥ i) and from the probability of stopping after exactly
j < k accepted tokens, p_j − p_(j+1). Each law gives both without a difference of like numbers, so that
alpha = 0, alpha = 1, k = 0 and alpha = 1 − 1e-12 come out right by the same lines as all else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import fsum

import numpy as np
import numpy.typing as npt

from specmath.checks import (
    MAX_K,
    Counts,
    FloatArray,
    IntArray,
    Numbers,
    like_inputs,
    require_count,
    require_range,
)
from specmath.errors import InputError
from specmath.units import exact_text


class AcceptanceLaw(ABC):
    """Law of N, the draft tokens accepted in a step that drafts k.

    Parameters may be arrays; answers then have the parameters' shape, followed by one axis over
    positions or outcomes where a method says so. An array `k` broadcasts against them.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def label(self) -> str:
        """The law in a few characters, for a table: `alpha=0.7`."""

    @property
    @abstractmethod
    def assumption(self) -> str:
        """What the law takes for granted, as the end of a sentence."""

    @property
    def max_k(self) -> int | None:
        """Largest k that the law can answer for; None where there is no limit but `checks.MAX_K`."""
        return None

    @abstractmethod
    def ceiling(self) -> Numbers:
        """Limit of the acceptance length for growing k; infinite where it is unbounded."""

    @abstractmethod
    def _reach(self, k: int) -> FloatArray:
        """p_0 = 1, p_1, ..., p_k on a last axis of k + 1 entries."""

    @abstractmethod
    def _stops(self, k: int) -> FloatArray:
        """p_j − p_(j+1) for j = 0..k−1: the probability of exactly j accepted tokens, then a rejection."""

    def survival(self, k: int) -> FloatArray:
        """p_1, ..., p_k: the probability that the first i draft tokens are all accepted."""
        return self._reach(self._one_k(k))[..., 1:]

    def conditional(self, k: int) -> FloatArray:
        """a_1, ..., a_k: acceptance at position i given that all before it were; NaN where that never is."""
        reach = self._reach(self._one_k(k))
        with np.errstate(invalid="ignore"):
            return reach[..., 1:] / reach[..., :-1]

    def acceptance_length(self, k: npt.ArrayLike) -> Numbers:
        """E = 1 + Σ p_i: mean tokens per step, the bonus token included, in [1, k + 1]."""
        counts = self._require_k(k)
        return like_inputs(_entry(self._reach(int(counts.max())).cumsum(axis=-1), counts))

    def accepted_pmf(self, k: int) -> FloatArray:
        """Probabilities of 0, 1, ..., k accepted tokens, on a last axis of k + 1 entries."""
        top = self._one_k(k)
        return np.concatenate([self._stops(top), self._reach(top)[..., top:]], axis=-1)

    def accepted_variance(self, k: npt.ArrayLike) -> Numbers:
        """Variance of N, as a sum of positive terms.

        N grows by 1 with probability p_i at position i, and then all i − 1 before were accepted. Hence
        Var = Σ p_i [(1 − p_i) + 2 Σ_{j<i} (1 − p_j)], which is Σ (2i − 1) p_i − (Σ p_i)² without the
        difference.
        """
        counts = self._require_k(k)
        top = int(counts.max())
        lost = self._stops(top).cumsum(axis=-1)
        missing_before = lost.cumsum(axis=-1) - lost
        terms = np.zeros((*lost.shape[:-1], top + 1))
        terms[..., 1:] = self._reach(top)[..., 1:] * (lost + 2.0 * missing_before)
        return like_inputs(_entry(terms.cumsum(axis=-1), counts))

    def quantile(self, q: npt.ArrayLike, k: npt.ArrayLike) -> Counts:
        """Smallest n with P(N ≤ n) ≥ q, for q in [0, 1]; q, k and the parameters broadcast."""
        level, limit = require_range("q", q, 0, 1)[..., None], self._require_k(k)[..., None]
        top = int(limit.max())
        lost, reach = self._stops(top).cumsum(axis=-1), self._reach(top)[..., 1:]
        # Each half is read from its own end of the law, so that q = 0 and q = 1 are exact.
        passed = np.where(level < 0.5, lost < level, reach > 1.0 - level)
        return like_counts(np.sum(passed & (np.arange(top) < limit), axis=-1))

    def width(self, k: npt.ArrayLike) -> Counts:
        """Tokens of one sequence in a verify pass: the k drafted ones and the last one emitted."""
        return like_counts(self._require_k(k) + 1)

    def draft_passes(self, k: npt.ArrayLike) -> Counts:
        """Draft passes of a step, one after another: k, or fewer where what is drafted is not k deep."""
        return like_counts(self._require_k(k))

    def derivation(self, k: int) -> str:
        """The acceptance length as a sum with its numbers; of the first cell where parameters are arrays."""
        first = self._reach(self._one_k(k)).reshape(-1, k + 1)[0].tolist()
        terms = [f"{term:.4g}" for term in first]
        shown = terms if k < 8 else [*terms[:4], "...", terms[-1]]
        return f"E = {' + '.join(shown)} = {fsum(first):.4f} tokens per step ({self.label}, k = {k})"

    def drafted(self, k: npt.ArrayLike) -> Numbers:
        """Mean draft tokens of one sequence in a step; all but the last emitted token of a verify pass."""
        return like_inputs(np.asarray(self.width(k), dtype=np.float64) - 1.0)

    def at(self, context: npt.ArrayLike) -> AcceptanceLaw:
        """The law at that many tokens of context; the law itself unless it was given by context."""
        return self

    def covers(self, context: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each context lies within the range for which the law was given."""
        return np.ones(np.shape(context), dtype=bool)

    def _require_k(self, k: npt.ArrayLike) -> IntArray:
        counts = require_count("k", k, 0, MAX_K)
        if self.max_k is not None and counts.max() > self.max_k:
            raise InputError("k", f"must be at most {self.max_k}, got {counts.max()}: {self._limit_reason}")
        return counts

    @property
    def _limit_reason(self) -> str:
        """Why there is a `max_k`, and the remedy; a law that has one says it."""
        return ""

    def _one_k(self, k: int) -> int:
        counts = self._require_k(k)
        if counts.ndim:
            raise InputError("k", "must be one number here, not an array")
        return int(counts)


def _entry(table: FloatArray, index: IntArray) -> FloatArray:
    """table[..., index], the index broadcast against the leading axes of the table."""
    shape = np.broadcast_shapes(table.shape[:-1], index.shape)
    if table.ndim == 1:
        return np.asarray(table[index])
    wide = np.broadcast_to(table, (*shape, table.shape[-1]))
    return np.take_along_axis(wide, np.broadcast_to(index, shape)[..., None], axis=-1)[..., 0]


def like_counts(result: npt.NDArray[np.integer]) -> Counts:
    """A 0-d count as a Python int, an array as it is."""
    return int(result) if result.ndim == 0 else result.astype(np.int64, copy=False)


def label_text(value: Numbers) -> str:
    """A parameter as a label shows it, to the last digit; an array as its range.

    >>> label_text(0.7), label_text(np.array([0.5, 0.6, 0.9]))
    ('0.7', '0.5..0.9')
    """
    low, high = float(np.min(value)), float(np.max(value))
    return exact_text(low) if low == high else f"{exact_text(low)}..{exact_text(high)}"
