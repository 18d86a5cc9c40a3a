"""Closed forms over four ratios: acceptance length E, verify cost v, draft cost c and overhead o.

The three costs are measured in plain decoding steps (one forward pass of the target on one token per
sequence, with its own overhead). A speculative step then costs R = v + c·k + o plain steps and yields E
tokens, so that the speed-up is E / R. Every textbook formula is this one with some costs fixed.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from specmath.acceptance import expected_tokens
from specmath.checks import (
    MAX_K,
    Counts,
    Numbers,
    like_inputs,
    require_acceptance_length,
    require_count,
    require_range,
)

TIE: Final = 1e-12
"""Relative difference below which two speed-ups are one: well above rounding, far below any use."""


def step_cost(
    k: npt.ArrayLike, *, draft_cost: npt.ArrayLike, verify_cost: npt.ArrayLike, overhead: npt.ArrayLike
) -> Numbers:
    """What one speculative step costs, in plain decoding steps.

    R = v + c·k + o. It is also the acceptance length at which the step just pays for itself.

    Assumes k draft passes, one after another. For a drafter that proposes all k tokens in one pass, count
    that pass in o and take c = 0.

    Args:
        k: Draft tokens per step, a whole number of at least 0.
        draft_cost: c, one draft pass over one plain step, at least 0.
        verify_cost: v, the target's pass over k + 1 tokens over one plain step, above 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.

    Returns:
        R in plain steps, above 0; v + o at k = 0.

    Raises:
        InputError: an argument outside its range.

    Source: Leviathan et al. 2023 (arXiv:2211.17192), section 3.3, with v and o written out.

    >>> step_cost(4, draft_cost=0.25, verify_cost=1.5, overhead=0.5)
    3.0
    """
    drafting = require_range("draft_cost", draft_cost, 0) * require_count("k", k, 0, MAX_K)
    verifying = require_range("verify_cost", verify_cost, above=0)
    return like_inputs(verifying + drafting + require_range("overhead", overhead, 0))


def speedup(
    alpha: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    draft_cost: npt.ArrayLike,
    verify_cost: npt.ArrayLike,
    overhead: npt.ArrayLike,
) -> Numbers:
    """Speed-up over plain decoding at a constant acceptance probability.

    S = E(α, k) / (v + c·k + o), E from `expected_tokens`, the denominator from `step_cost`.

    Assumes a constant acceptance probability, and the same batch in both decoders.

    Args:
        alpha: Acceptance probability α of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number of at least 0.
        draft_cost: c, one draft pass over one plain step, at least 0.
        verify_cost: v, the target's pass over k + 1 tokens over one plain step, above 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.

    Returns:
        Speed-up, a ratio above 0; 1 at k = 0, v = 1, o = 0.

    Raises:
        InputError: an argument outside its range.

    Source: Leviathan et al. 2023 (arXiv:2211.17192), theorem 3.8, with v and o written out.

    >>> speedup(0.5, 2, draft_cost=0.125, verify_cost=1.25, overhead=0.25)
    1.0
    """
    return speedup_from_acceptance_length(
        expected_tokens(alpha, k), k, draft_cost=draft_cost, verify_cost=verify_cost, overhead=overhead
    )


def speedup_from_acceptance_length(
    acceptance_length: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    draft_cost: npt.ArrayLike,
    verify_cost: npt.ArrayLike,
    overhead: npt.ArrayLike,
) -> Numbers:
    """Speed-up over plain decoding at a measured acceptance length, whatever law lies behind it.

    S = E / (v + c·k + o).

    Args:
        acceptance_length: E, mean tokens per step with the bonus token, in [1, k + 1].
        k: Draft tokens per step, a whole number of at least 0.
        draft_cost: c, one draft pass over one plain step, at least 0.
        verify_cost: v, the target's pass over k + 1 tokens over one plain step, above 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.

    Returns:
        Speed-up, a ratio above 0.

    Raises:
        InputError: an argument outside its range.

    Source: own form of Leviathan et al. 2023 (arXiv:2211.17192), theorem 3.8, with E left open.

    >>> speedup_from_acceptance_length(3.0, 4, draft_cost=0.25, verify_cost=1.5, overhead=0.5)
    1.0
    """
    tokens = require_acceptance_length(acceptance_length, require_count("k", k, 0, MAX_K))
    cost = step_cost(k, draft_cost=draft_cost, verify_cost=verify_cost, overhead=overhead)
    return like_inputs(tokens / cost)


def leviathan_speedup(alpha: npt.ArrayLike, k: npt.ArrayLike, *, draft_cost: npt.ArrayLike) -> Numbers:
    """Speed-up where the target verifies k + 1 tokens in the time of one: the textbook formula.

    S = E(α, k) / (1 + c·k), that is v = 1 and o = 0.

    Assumes a memory-bound target and no host time: true of small batches on an ideal machine.

    Args:
        alpha: Acceptance probability α of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number of at least 0.
        draft_cost: c, one draft pass over one plain step, at least 0.

    Returns:
        Speed-up, a ratio above 0; 1 at k = 0. Some k gives more than 1 exactly where α > c.

    Raises:
        InputError: an argument outside its range.

    Source: Leviathan et al. 2023 (arXiv:2211.17192), theorem 3.8; corollary 3.9 for α > c.

    >>> leviathan_speedup(0.5, 2, draft_cost=0.125)
    1.4
    """
    return speedup(alpha, k, draft_cost=draft_cost, verify_cost=1.0, overhead=0.0)


def compute_bound_speedup(alpha: npt.ArrayLike, k: npt.ArrayLike, *, draft_cost: npt.ArrayLike) -> Numbers:
    """Speed-up where every verified token costs as much as a plain step: the large-batch limit.

    S = E(α, k) / (k + 1 + c·k), that is v = k + 1 and o = 0.

    Assumes a target far above the ridge, so that its time grows with the tokens in the pass.

    Args:
        alpha: Acceptance probability α of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number of at least 0.
        draft_cost: c, one draft pass over one plain step, at least 0; here a ratio of FLOPs.

    Returns:
        Speed-up, never above 1; 1 at k = 0, and at α = 1 with a free draft.

    Raises:
        InputError: an argument outside its range.

    Source: own form: `speedup` with v = k + 1.

    >>> compute_bound_speedup(0.5, 2, draft_cost=0.25)
    0.5
    """
    widths = require_count("k", k, 0, MAX_K) + 1
    return speedup(alpha, k, draft_cost=draft_cost, verify_cost=widths, overhead=0.0)


def lumped_speedup(alpha: npt.ArrayLike, k: npt.ArrayLike, *, overhead: npt.ArrayLike) -> Numbers:
    """Speed-up where all that speculation adds to a plain step is known as one lump.

    S = E(α, k) / (1 + o), o being drafting, wider verification and host time together.

    Args:
        alpha: Acceptance probability α of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number of at least 0.
        overhead: o, everything beyond one plain step, in plain steps, at least 0.

    Returns:
        Speed-up, a ratio above 0; E itself at o = 0.

    Raises:
        InputError: an argument outside its range.

    Source: own form: `speedup` with v = 1 and the draft passes counted in o.

    >>> lumped_speedup(0.5, 2, overhead=0.75)
    1.0
    """
    return speedup(alpha, k, draft_cost=0.0, verify_cost=1.0, overhead=overhead)


def lookup_speedup(
    alpha: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    match_rate: npt.ArrayLike,
    verify_cost: npt.ArrayLike,
    overhead: npt.ArrayLike,
) -> Numbers:
    """Speed-up of a draft that is looked up in the text (n-gram, suffix) and sometimes finds nothing.

    S = (1 + h·A) / (h·v + 1 − h + o) with A = E(α, k) − 1 draft tokens accepted after a match.

    Assumes batch 1, where a step without a match is a plain step. In a batch all sequences share the pass,
    which then costs T(B, 1 + h·k): use `speedup_from_acceptance_length` with that as v, and E = 1 + h·A.

    Args:
        alpha: Acceptance probability α of one draft token once a match was found, in [0, 1].
        k: Draft tokens per matched step, a whole number of at least 0.
        match_rate: h, share of steps that find a match, in [0, 1].
        verify_cost: v of a matched step, over one plain step, above 0.
        overhead: o, host time of every step (the search) over one plain step, at least 0.

    Returns:
        Speed-up, a ratio above 0; 1 / (1 + o) at h = 0.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation (tokens and time averaged over both kinds of step), checked by simulation.

    >>> lookup_speedup(1.0, 4, match_rate=0.5, verify_cost=1.5, overhead=0.25)
    2.0
    """
    matched = require_range("match_rate", match_rate, 0, 1)
    cost = matched * require_range("verify_cost", verify_cost, above=0) + (1.0 - matched)
    tokens = 1.0 + matched * (expected_tokens(alpha, k) - 1.0)
    return like_inputs(tokens / (cost + require_range("overhead", overhead, 0)))


def operations_ratio(alpha: npt.ArrayLike, k: npt.ArrayLike, *, draft_flops_ratio: npt.ArrayLike) -> Numbers:
    """Arithmetic work per emitted token, over that of plain decoding.

    (k·ĉ + k + 1) / E(α, k): k draft passes and k + 1 target tokens, for E tokens kept.

    Args:
        alpha: Acceptance probability α of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number of at least 0.
        draft_flops_ratio: ĉ, FLOPs per token of the draft over those of the target, at least 0.

    Returns:
        A ratio of at least 1; 1 at k = 0.

    Raises:
        InputError: an argument outside its range.

    Source: Leviathan et al. 2023 (arXiv:2211.17192), theorem 3.11.

    >>> operations_ratio(0.5, 2, draft_flops_ratio=0.25)
    2.0
    """
    drafts = require_count("k", k, 0, MAX_K)
    operations = drafts * require_range("draft_flops_ratio", draft_flops_ratio, 0) + drafts + 1
    return like_inputs(operations / expected_tokens(alpha, k))


def kept_share(alpha: npt.ArrayLike, k: npt.ArrayLike) -> Numbers:
    """Share of the tokens that the target verifies which end up in the output.

    E(α, k) / (k + 1). vLLM once reported it as system efficiency.

    Args:
        alpha: Acceptance probability α of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number of at least 0.

    Returns:
        A share from 1 / (k + 1) at α = 0 to 1 at α = 1 or k = 0.

    Raises:
        InputError: an argument outside its range.

    Source: vLLM's metric `system_efficiency`; the law of E is Leviathan et al. 2023, equation 1.

    >>> kept_share(0.5, 1)
    0.75
    """
    return like_inputs(expected_tokens(alpha, k) / (require_count("k", k, 0, MAX_K) + 1))


def best_k(
    alpha: npt.ArrayLike,
    *,
    draft_cost: npt.ArrayLike,
    verify_cost: npt.ArrayLike = 1.0,
    verify_slope: npt.ArrayLike = 0.0,
    overhead: npt.ArrayLike = 0.0,
    max_k: npt.ArrayLike,
) -> Counts:
    """The draft length of the largest speed-up, 0 where speculation does not pay.

    argmax over k of E(α, k) / (v0 + slope·k + c·k + o), against 1 for k = 0 (speculation off). Every k is
    tried; speed-ups equal to one part in 10¹² are a tie, which the smaller k wins.

    Assumes a constant acceptance probability, and a verify cost that is a straight line in k.

    Args:
        alpha: Acceptance probability α of one draft token, in [0, 1].
        draft_cost: c, one draft pass over one plain step, at least 0.
        verify_cost: v0, what the verify cost tends to at k = 0, above 0.
        verify_slope: What each draft token adds to the verify cost, at least 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.
        max_k: Longest draft to try, a whole number from 0 to 10,000.

    Returns:
        k as an int, or an array of them; from 0 to `max_k`, which it reaches where drafts cost nothing.

    Raises:
        InputError: an argument outside its range.

    Source: own: exhaustive search, checked by the stopping rule for a concave E over a straight cost.

    >>> best_k(0.5, draft_cost=0.125, max_k=8)
    2
    >>> best_k(0.5, draft_cost=0.5, max_k=8)
    0
    """
    survival = require_range("alpha", alpha, 0, 1)
    limit = require_count("max_k", max_k, 0, MAX_K)
    per_token = require_range("draft_cost", draft_cost, 0) + require_range("verify_slope", verify_slope, 0)
    fixed = require_range("verify_cost", verify_cost, above=0) + require_range("overhead", overhead, 0)
    shape = np.broadcast_shapes(survival.shape, limit.shape, per_token.shape, fixed.shape)
    power, tokens, best = np.ones(shape), np.ones(shape), np.ones(shape)
    chosen = np.zeros(shape, dtype=np.int64)
    for k in range(1, int(limit.max()) + 1):
        power *= survival
        tokens += power
        candidate = tokens / (fixed + per_token * k)
        better = (candidate > best * (1.0 + TIE)) & (k <= limit)
        np.copyto(best, candidate, where=better)
        np.copyto(chosen, k, where=better)
    return int(chosen) if chosen.ndim == 0 else chosen
