"""How many tokens a speculative step yields: the laws of acceptance.

Functions for the textbook case of one constant acceptance probability, and the laws that need no other
law: constant, by position, Beta. Ranked trees are in `trees`, laws made of other laws in `mixtures`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
import numpy.typing as npt

from specmath.checks import MAX_K, FloatArray, IntArray, Numbers, like_inputs, require_count, require_range
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw, label_text
from specmath.units import exact_text

MAX_SHAPE = 1e12
"""Largest shape parameter of a Beta law accepted: no fit comes near, and a + 1 still differs from a."""


def expected_tokens(alpha: npt.ArrayLike, k: npt.ArrayLike) -> Numbers:
    """Mean tokens that one speculative step emits, the bonus token included.

    E = 1 + α + α² + ... + α^k, that is (1 − α^(k+1)) / (1 − α) away from α = 1; the sum loses no digit near
    it. Every draft token is accepted with the same probability α, given that all before it were.

    Args:
        alpha: Acceptance probability of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number from 0 to 10,000.

    Returns:
        Acceptance length in tokens per step: 1 at α = 0 or k = 0, k + 1 at α = 1.

    Raises:
        InputError: alpha or k out of range.

    Source: Leviathan et al. 2023 (arXiv:2211.17192), equation 1.

    >>> expected_tokens(0.5, 2)
    1.75
    """
    base = require_range("alpha", alpha, 0, 1)
    return like_inputs(power_sum(base, require_count("k", k, 0, MAX_K)))


def accepted_pmf(alpha: npt.ArrayLike, k: int) -> FloatArray:
    """Probabilities of 0, 1, ..., k accepted draft tokens in one step.

    P(N = j) = α^j (1 − α) for j < k, and P(N = k) = α^k: a geometric law cut at k.

    Args:
        alpha: Acceptance probability of one draft token, in [0, 1].
        k: Draft tokens per step, one whole number from 0 to 10,000.

    Returns:
        The probabilities on a new last axis of k + 1 entries; they sum to 1.

    Raises:
        InputError: alpha or k out of range.

    Source: Leviathan et al. 2023 (arXiv:2211.17192), section 3.1.

    >>> accepted_pmf(0.5, 2).tolist()
    [0.5, 0.25, 0.25]
    """
    return ConstantAcceptance(like_inputs(require_range("alpha", alpha, 0, 1))).accepted_pmf(k)


def accepted_variance(alpha: npt.ArrayLike, k: npt.ArrayLike) -> Numbers:
    """Variance of the accepted draft tokens (and so of the emitted ones) of one step.

    Var N = Σ (2i − 1) α^i − (Σ α^i)², i = 1..k, as a sum of positive terms (see `AcceptanceLaw`).

    Args:
        alpha: Acceptance probability of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number from 0 to 10,000.

    Returns:
        Variance in tokens²: 0 at α = 0, α = 1 and k = 0; α / (1 − α)² for k → ∞.

    Raises:
        InputError: alpha or k out of range.

    >>> accepted_variance(0.5, 1)
    0.25
    """
    return ConstantAcceptance(like_inputs(require_range("alpha", alpha, 0, 1))).accepted_variance(k)


def accepted_over_drafted(alpha: npt.ArrayLike, k: npt.ArrayLike) -> Numbers:
    """Share of all draft tokens that are accepted: what engines log as acceptance rate. It is not α.

    (E − 1) / k = α (1 + α + ... + α^(k−1)) / k. A rejection throws away the rest of the draft, so the share
    is below α for every k above 1.

    Args:
        alpha: Acceptance probability of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number from 0 to 10,000.

    Returns:
        A share from 0 (α = 0) to 1 (α = 1); NaN at k = 0, where nothing is drafted.

    Raises:
        InputError: alpha or k out of range.

    >>> accepted_over_drafted(0.5, 2)
    0.375
    """
    base, drafted = require_range("alpha", alpha, 0, 1), require_count("k", k, 0, MAX_K)
    with np.errstate(invalid="ignore"):
        return like_inputs(base * power_sum(base, drafted - 1) / drafted)


def acceptance_ceiling(alpha: npt.ArrayLike) -> Numbers:
    """Acceptance length that no draft length exceeds: 1 / (1 − α), the limit of E for k → ∞.

    Args:
        alpha: Acceptance probability of one draft token, in [0, 1].

    Returns:
        Tokens per step, from 1 (α = 0); infinite, that is unbounded, at α = 1.

    Raises:
        InputError: alpha out of range.

    >>> acceptance_ceiling(0.75)
    4.0
    """
    with np.errstate(divide="ignore"):
        return like_inputs(1.0 / (1.0 - require_range("alpha", alpha, 0, 1)))


def beta_expected_tokens(a: npt.ArrayLike, b: npt.ArrayLike, k: npt.ArrayLike) -> Numbers:
    """Mean tokens per step when the acceptance probability differs from step to step by a Beta(a, b) law.

    E = 1 + Σ p_i with p_i = Π (a + j) / (a + b + j), j = 0..i−1, the i-th moment of Beta(a, b). The
    constant law is its limit for a and b growing at a fixed a / (a + b) = α.

    Args:
        a, b: Shape parameters, above 0 and at most 1e12.
        k: Draft tokens per step, a whole number from 0 to 10,000.

    Returns:
        Acceptance length in tokens per step, from 1 (k = 0) to k + 1 (b → 0).

    Raises:
        InputError: a, b or k out of range.

    >>> beta_expected_tokens(1, 1, 2)  # 1 + 1/2 + 1/3, the moments of the uniform law
    1.8333333333333333
    """
    return BetaAcceptance(cast("Numbers", a), cast("Numbers", b)).acceptance_length(k)  # checked there


@dataclass(frozen=True, slots=True)
class ConstantAcceptance(AcceptanceLaw):
    """Every draft token is accepted with the same probability alpha, given that all before it were.

    Attributes:
        alpha: Acceptance probability in [0, 1], a number or an array.

    >>> ConstantAcceptance(0.5).survival(3).tolist()
    [0.5, 0.25, 0.125]
    """

    alpha: Numbers

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", like_inputs(require_range("alpha", self.alpha, 0, 1)))

    @property
    def label(self) -> str:
        return f"alpha={label_text(self.alpha)}"

    @property
    def assumption(self) -> str:
        return "every draft token is accepted with the same probability, given that all before it were"

    def ceiling(self) -> Numbers:
        return acceptance_ceiling(self.alpha)

    def acceptance_length(self, k: npt.ArrayLike) -> Numbers:
        return like_inputs(power_sum(np.asarray(self.alpha), self._require_k(k)))

    def conditional(self, k: int) -> FloatArray:
        alpha, position = np.asarray(self.alpha)[..., None], np.arange(self._one_k(k))
        return np.where((alpha > 0) | (position == 0), alpha, np.nan)

    def _reach(self, k: int) -> FloatArray:
        return np.asarray(np.asarray(self.alpha)[..., None] ** np.arange(k + 1))

    def _stops(self, k: int) -> FloatArray:
        alpha = np.asarray(self.alpha)[..., None]
        return np.asarray(alpha ** np.arange(k) * (1.0 - alpha))


@dataclass(frozen=True, slots=True)
class PositionAcceptance(AcceptanceLaw):
    """Acceptance given for each draft position, as engine counters report it.

    Rates measured with some k serve every smaller k. They say nothing about positions beyond; the ceiling is
    therefore the acceptance length at the last position given.

    Attributes:
        rates: One rate in [0, 1] for each position, first position first.
        kind: "conditional" for a_i, acceptance given that all before were accepted; "survival" for
            p_i, the share of steps whose first i tokens were all accepted, which never rises.

    >>> PositionAcceptance((0.8, 0.5)).survival(2).tolist()
    [0.8, 0.4]
    """

    rates: tuple[float, ...]
    kind: Literal["conditional", "survival"] = field(default="conditional", kw_only=True)

    def __post_init__(self) -> None:
        rates = require_range("rates", self.rates, 0, 1)
        if rates.ndim != 1:
            raise InputError("rates", "must be a flat list, one rate for each position")
        if self.kind not in ("conditional", "survival"):
            raise InputError("kind", f"must be 'conditional' or 'survival', got {self.kind!r}")
        rising = np.flatnonzero(np.diff(rates) > 0)
        if self.kind == "survival" and rising.size:
            first = rising[0]
            raise InputError(
                "rates",
                f"survival cannot rise from {rates[first]:g} at position {first + 1} to {rates[first + 1]:g} "
                "at the next; rates given that all before were accepted are of the conditional kind",
            )
        object.__setattr__(self, "rates", tuple(rates.tolist()))

    @property
    def label(self) -> str:
        name = "rates" if self.kind == "conditional" else "survival"
        return f"{name}={'/'.join(map(exact_text, self.rates))}"

    @property
    def assumption(self) -> str:
        return f"acceptance by position is as given, for drafts of up to {len(self.rates)} tokens"

    @property
    def max_k(self) -> int:
        return len(self.rates)

    @property
    def _limit_reason(self) -> str:
        return f"the rates cover {len(self.rates)} positions; a Beta law extrapolates"

    def ceiling(self) -> float:
        return float(self.acceptance_length(self.max_k))

    def _reach(self, k: int) -> FloatArray:
        rates = np.array((1.0, *self.rates[:k]))
        return rates if self.kind == "survival" else rates.cumprod()

    def _stops(self, k: int) -> FloatArray:
        reach = self._reach(k)
        if self.kind == "survival":
            return reach[:-1] - reach[1:]
        return np.asarray(reach[:-1] * (1.0 - np.array(self.rates[:k])))


@dataclass(frozen=True, slots=True)
class BetaAcceptance(AcceptanceLaw):
    """Acceptance that differs from step to step: each step draws its own probability from Beta(a, b).

    Acceptance then rises with position (a step that came far is a likely one), which is what engines
    measure where easy and hard passages alternate. The law to extrapolate over k with.

    Attributes:
        a: First shape parameter, a number or an array. The first token is accepted with a / (a + b).
        b: Second shape parameter. Both are above 0 and at most 1e12.

    >>> BetaAcceptance(1.0, 1.0).survival(3).round(6).tolist()
    [0.5, 0.333333, 0.25]
    """

    a: Numbers
    b: Numbers

    def __post_init__(self) -> None:
        for name in ("a", "b"):
            shape = require_range(name, getattr(self, name), high=MAX_SHAPE, above=0)
            object.__setattr__(self, name, like_inputs(shape))

    @property
    def label(self) -> str:
        return f"beta={label_text(self.a)}/{label_text(self.b)}"

    @property
    def assumption(self) -> str:
        return "the acceptance probability differs between steps by a Beta law and not within a step"

    def ceiling(self) -> Numbers:
        """1 + a / (b − 1); infinite for b ≤ 1, where the p_i fall so slowly that their sum diverges."""
        with np.errstate(divide="ignore"):
            return like_inputs(1.0 + np.asarray(self.a) / np.maximum(np.asarray(self.b) - 1.0, 0.0))

    def conditional(self, k: int) -> FloatArray:
        a, total, position = self._columns(self._one_k(k))
        return np.asarray((a + position) / (total + position))

    def _reach(self, k: int) -> FloatArray:
        a, total, position = self._columns(k)
        reach = np.ones((*total.shape[:-1], k + 1))
        np.cumprod((a + position) / (total + position), axis=-1, out=reach[..., 1:])
        return reach

    def _stops(self, k: int) -> FloatArray:
        _, total, position = self._columns(k)
        return np.asarray(self._reach(k)[..., :-1] * np.asarray(self.b)[..., None] / (total + position))

    def _columns(self, k: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        a, b = np.asarray(self.a)[..., None], np.asarray(self.b)[..., None]
        return a, a + b, np.arange(k, dtype=np.float64)


def power_sum(base: FloatArray, degree: IntArray) -> FloatArray:
    """1 + x + ... + x^k, 0 for k = −1: exact at x = 0 and x = 1, and as accurate as x between.

    The bits of n = k + 1, the number of terms, are taken from the lowest up. The sum S of the first 2^j terms
    doubles by S(2n) = S(n)(1 + x^n); where bit j is set, the sum R over the lower bits moves up:
    R ← S + x^(2^j)·R. Time grows as log k.
    """
    cells = np.nditer(
        [base, degree, None],
        flags=["external_loop", "buffered"],
        op_flags=[["readonly"], ["readonly"], ["writeonly", "allocate"]],
        op_dtypes=[np.float64, np.int16, np.float64],  # a count fits int16, and its bits come out faster
        casting="unsafe",
        buffersize=65_536,  # blocks that stay in cache: three times faster than whole arrays of a million
    )
    with cells:
        for x, k, total in cells:
            _sum_by_doubling(x, k + 1, total)
        return np.asarray(cells.operands[2])


def _sum_by_doubling(x: FloatArray, n: npt.NDArray[np.int16], total: FloatArray) -> None:
    total[...] = 0.0
    block, power = np.ones_like(x), x.copy()
    for bit in range(int(n.max()).bit_length()):
        if bit:
            block += block * power
            power *= power
        # R ≤ S, so the difference costs no digit of S + x·R, and no mask or branch is needed.
        total += (block + (power - 1.0) * total) * (n >> bit & 1)
