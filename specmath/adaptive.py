"""Adaptive verification: every step drafts k tokens of each sequence and verifies the likeliest of them.

Each step verifies the m draft tokens of the whole batch that are likeliest to survive, with m chosen to
maximise tokens per second, (N + Σ of the m largest survivals) / (draft(N) + verify(N + m)). What that earns
depends on what the engine knows about its drafts when it chooses:

    position   every sequence of a batch looks alike; only the position of a draft token tells its survival
    perfect    the acceptance of each step is known beforehand, an upper bound for any confidence head
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from specmath.acceptance import BetaAcceptance
from specmath.checks import FloatArray, IntArray, Numbers, like_inputs, require_range
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.mixtures import LookupAcceptance
from specmath.sources import BatchSource

Confidence = Literal["position", "perfect"]
NODES = 64
"""Acceptance probabilities that stand for a Beta law; its first 127 moments are exact with them."""
DEPTHS = 16
"""Verified tokens tried per drafted one: exact up to batch 16, beyond it m moves in steps of N/16."""


def adaptive_acceptance_length(
    law: AcceptanceLaw, k: int, verified: npt.ArrayLike, *, confidence: Confidence = "position"
) -> Numbers:
    """Mean tokens per sequence and step when the likeliest draft tokens of a large batch are verified.

        E = 1 + mean over the batch of the survivals that are verified, the largest first

    The batch holds the law's own mix of steps. With confidence in the position alone the survivals of each
    sequence are p_1, p_2, …, so that whole positions are verified one after the other. With perfect
    confidence a step of acceptance a has a, a², …, and a likely third token goes before an unlikely first.

    Args:
        law: A law of chains; only a Beta law (also of the matched steps of a lookup) knows how steps differ.
        k: Draft tokens per sequence and step.
        verified: Draft tokens verified per sequence, a mean over the batch, in [0, k].
        confidence: `position` or `perfect`.

    Returns:
        Tokens per step, from 1 (nothing verified) to the acceptance length of the law at k.

    Raises:
        InputError: for a value out of range, or a k beyond what the law answers for.

    Source: own derivation of the limit of large batches, checked by simulation.

    >>> from specmath.acceptance import ConstantAcceptance
    >>> adaptive_acceptance_length(ConstantAcceptance(0.5), 2, 1.5)  # all first tokens, half the second
    1.625
    """
    shares, survival = _survivals(law, k, confidence)
    depth = require_range("verified", verified, 0, k)
    order = np.argsort(-survival, axis=None, kind="stable")
    values = survival.ravel()[order]
    weights = np.broadcast_to(shares[:, None], survival.shape).ravel()[order]
    reached = np.concatenate([[0.0], np.cumsum(weights)])
    tokens = np.concatenate([[1.0], 1.0 + np.cumsum(weights * values)])
    return like_inputs(np.interp(depth, reached, tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveVerification:
    """What adaptive verification does at each batch of a load.

    Attributes:
        k: Draft tokens of each sequence in every step.
        verified: Mean draft tokens verified of each sequence, by batch.
        acceptance_length: Mean tokens per sequence and step, by batch.
        step_cost: The step in plain steps, by batch.
    """

    k: int
    verified: FloatArray
    acceptance_length: FloatArray
    step_cost: FloatArray

    @property
    def token_cost(self) -> FloatArray:
        """Time over that of plain decoding for the same tokens, 1 / S."""
        return self.step_cost / self.acceptance_length


def best_adaptive(
    law: AcceptanceLaw,
    source: BatchSource,
    batches: IntArray,
    *,
    context: float,
    time_share: FloatArray,
    k_max: int,
    confidence: Confidence = "position",
) -> AdaptiveVerification:
    """Adaptive verification with the draft length that decodes a load fastest.

    The draft length is one for all batches; the draft always runs in full, also where little is verified.

    Args:
        law: A law of chains.
        source: Step times; the verification of m tokens more than the N sequences costs a pass of N + m.
        batches: Batches of the load.
        context: Tokens in the KV cache per sequence.
        time_share: Share of plain time at each batch.
        k_max: Longest draft tried, at least 1.
        confidence: What the engine knows of its drafts.
    """
    tried = (
        _adaptive(law, source, batches, context=context, k=k, confidence=confidence)
        for k in range(1, k_max + 1)
    )
    return min(tried, key=lambda plan: float(plan.token_cost @ time_share))


def knows_spread(law: AcceptanceLaw) -> bool:
    """Whether the law says how steps differ, so that perfect confidence is worth something."""
    inner = law.matched if isinstance(law, LookupAcceptance) else law
    return isinstance(inner, BetaAcceptance)


def verification_width(verified: FloatArray, sequences: FloatArray) -> FloatArray:
    """Mean tokens per sequence of a pass, never above (N + m)/N: passes are padded to the next graph.

    >>> float(verification_width(np.array(1.0), np.array(4.0)))
    2.0
    """
    width = 1 + verified
    over = width * sequences > np.rint(width * sequences)
    return np.where(over, np.nextafter(width, 0), width)


def _adaptive(
    law: AcceptanceLaw,
    source: BatchSource,
    batches: IntArray,
    *,
    context: float,
    k: int,
    confidence: Confidence,
) -> AdaptiveVerification:
    depth = np.arange(k * DEPTHS + 1) / DEPTHS
    sequences = batches[:, None].astype(float)
    verified = np.floor(depth * sequences) / sequences  # whole tokens of the batch
    passes = int(law.draft_passes(k))
    full = source.step_cost(k, sequences, context, passes=passes)
    part = source.step_cost(
        k, sequences, context, width=verification_width(verified, sequences), passes=passes
    )
    steps = part.verify_cost + full.draft_cost * full.draft_passes + full.overhead
    steps = np.broadcast_to(steps, verified.shape)
    tokens = np.asarray(adaptive_acceptance_length(law, k, verified, confidence=confidence))
    best = np.argmax(tokens / steps, axis=1)[:, None]
    chosen = (np.take_along_axis(table, best, axis=1)[:, 0] for table in (verified, tokens, steps))
    verified_best, tokens_best, steps_best = chosen
    return AdaptiveVerification(
        k=k, verified=verified_best, acceptance_length=tokens_best, step_cost=steps_best
    )


def _survivals(law: AcceptanceLaw, k: int, confidence: Confidence) -> tuple[FloatArray, FloatArray]:
    """Kinds of steps by share, and the survivals of each kind by position."""
    if confidence not in ("position", "perfect"):
        raise InputError("confidence", f"must be position or perfect, got {confidence!r}")
    if confidence == "perfect" and isinstance(law, LookupAcceptance):
        shares, survival = _survivals(law.matched, k, confidence)
        return shares, float(law.match_rate) * survival
    if confidence == "perfect" and isinstance(law, BetaAcceptance):
        acceptance, shares = beta_nodes(float(law.a), float(law.b))
        return shares, acceptance[:, None] ** np.arange(1, k + 1)
    return np.ones(1), np.atleast_2d(law.survival(k))


def beta_nodes(a: float, b: float, count: int = NODES) -> tuple[FloatArray, FloatArray]:
    """Probabilities and shares that stand for Beta(a, b): the first 2·count − 1 moments are the law's own.

    Gauss–Jacobi quadrature by the eigenvalues of the Jacobi matrix (Golub and Welsch 1969).

    >>> nodes, shares = beta_nodes(1.0, 1.0, 2)
    >>> round(float(shares @ nodes**3), 12)  # the third moment of the uniform law
    0.25
    """
    n = np.arange(1, count)
    total = a + b - 2.0
    middle = np.empty(count)
    middle[0] = (a - b) / (a + b)
    middle[1:] = (a - b) / (2 * n + total) * (total / (2 * n + total + 2))
    # (n + total) / (2n + total − 1) is 1 at n = 1, also where both vanish.
    ratio = np.ones(count - 1)
    ratio[1:] = (n[1:] + total) / (2 * n[1:] + total - 1)
    share = 4 * n * ((n + b - 1) / (2 * n + total)) * ((n + a - 1) / (2 * n + total))
    beside = np.sqrt(share * ratio / (2 * n + total + 1))
    where, vectors = np.linalg.eigh(np.diag(middle) + np.diag(beside, 1) + np.diag(beside, -1))
    return np.clip((1 + where) / 2, 0.0, 1.0), vectors[0] ** 2
