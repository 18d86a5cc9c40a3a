"""Where speculation just pays: one inverse of S = E / (v + c·k + o) per quantity, and the batches at
which the target turns compute-bound and the gain is used up.

Two rules hold for all of them. An acceptance (α or E) can only be what a law can give, so it is NaN
where even perfect acceptance does not pay, and its lowest value where none is needed. A cost is the plain
algebra: a break-even verify cost below 1, or draft cost below 0, says that no real cost pays and by how much.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specmath.acceptance import expected_tokens
from specmath.checks import (
    MAX_K,
    Numbers,
    like_inputs,
    require_acceptance_length,
    require_count,
    require_range,
)
from specmath.estimation import alpha_from_acceptance_length
from specmath.ratios import step_cost


def breakeven_acceptance_length(
    k: npt.ArrayLike, *, draft_cost: npt.ArrayLike, verify_cost: npt.ArrayLike, overhead: npt.ArrayLike = 0.0
) -> Numbers:
    """Acceptance length at which the speed-up is 1.

    E = v + c·k + o, the step cost, as far as a step of k drafts can reach it.

    Args:
        k: Draft tokens per step, a whole number of at least 0.
        draft_cost: c, one draft pass over one plain step, at least 0.
        verify_cost: v, the target's pass over k + 1 tokens over one plain step, above 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.

    Returns:
        E in tokens per step, bonus token included, in [1, k + 1]. 1 where the step costs no more than a
        plain one; NaN where even k + 1 tokens per step do not pay.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation: `step_cost` set equal to E.

    >>> breakeven_acceptance_length(4, draft_cost=0.25, verify_cost=1.5, overhead=0.5)
    3.0
    """
    cost = np.asarray(step_cost(k, draft_cost=draft_cost, verify_cost=verify_cost, overhead=overhead))
    return like_inputs(np.where(cost <= require_count("k", k) + 1, np.maximum(cost, 1.0), np.nan))


def breakeven_alpha(
    k: npt.ArrayLike, *, draft_cost: npt.ArrayLike, verify_cost: npt.ArrayLike, overhead: npt.ArrayLike = 0.0
) -> Numbers:
    """Acceptance probability at which the speed-up is 1.

    The α that solves E(α, k) = v + c·k + o. E rises with α, so there is at most one.

    Assumes that each draft token is accepted with the same probability α, given that all before it were.

    Args:
        k: Draft tokens per step, a whole number of at least 0.
        draft_cost: c, one draft pass over one plain step, at least 0.
        verify_cost: v, the target's pass over k + 1 tokens over one plain step, above 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.

    Returns:
        α in [0, 1]. 0 where the step costs no more than a plain one; NaN where even α = 1 does not pay.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation; at k = 1 it is v + c + o − 1, and c for v = 1, o = 0 (Leviathan et al. 2023,
    corollary 3.9).

    >>> breakeven_alpha(1, draft_cost=0.25, verify_cost=1.125, overhead=0.125)
    0.5
    """
    tokens = np.asarray(
        breakeven_acceptance_length(k, draft_cost=draft_cost, verify_cost=verify_cost, overhead=overhead)
    )
    reachable = ~np.isnan(tokens)
    drafts = np.maximum(require_count("k", k), 1)  # at k = 0 nothing is drafted and E = 1 needs no α
    alpha = alpha_from_acceptance_length(np.where(reachable, tokens, 1.0), drafts)
    return like_inputs(np.where(reachable, alpha, np.nan))


def breakeven_draft_cost(
    alpha: npt.ArrayLike, k: npt.ArrayLike, *, verify_cost: npt.ArrayLike, overhead: npt.ArrayLike = 0.0
) -> Numbers:
    """Draft cost at which the speed-up is 1.

    c = (E(α, k) − v − o) / k, the plain algebra.

    Assumes that each draft token is accepted with the same probability α, given that all before it were.

    Args:
        alpha: Acceptance probability α of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number of at least 0.
        verify_cost: v, the target's pass over k + 1 tokens over one plain step, above 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.

    Returns:
        c in plain steps per draft pass. Below 0 where not even a free draft pays; NaN at k = 0, where
        there is no draft pass.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation: S = 1 solved for c.

    >>> breakeven_draft_cost(0.5, 2, verify_cost=1.25)
    0.25
    """
    return breakeven_draft_cost_from_acceptance_length(
        expected_tokens(alpha, k), k, verify_cost=verify_cost, overhead=overhead
    )


def breakeven_draft_cost_from_acceptance_length(
    acceptance_length: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    verify_cost: npt.ArrayLike,
    overhead: npt.ArrayLike = 0.0,
) -> Numbers:
    """Draft cost at which the speed-up is 1, whatever law lies behind the acceptance length.

    c = (E − v − o) / k, the plain algebra.

    Args:
        acceptance_length: E, mean tokens per step with the bonus token, in [1, k + 1].
        k: Draft tokens per step, a whole number of at least 0.
        verify_cost: v, the target's pass over k + 1 tokens over one plain step, above 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.

    Returns:
        c in plain steps per draft pass. Below 0 where not even a free draft pays; NaN at k = 0, where
        there is no draft pass.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation: S = 1 solved for c.

    >>> breakeven_draft_cost_from_acceptance_length(3.0, 4, verify_cost=1.5, overhead=0.5)
    0.25
    """
    drafts = require_count("k", k, 0, MAX_K)
    spare = require_acceptance_length(acceptance_length, drafts)
    spare = spare - require_range("verify_cost", verify_cost, above=0)
    spare = spare - require_range("overhead", overhead, 0)
    return like_inputs(spare / np.where(drafts > 0, drafts, np.nan))


def breakeven_verify_cost(
    alpha: npt.ArrayLike, k: npt.ArrayLike, *, draft_cost: npt.ArrayLike, overhead: npt.ArrayLike = 0.0
) -> Numbers:
    """Verify cost at which the speed-up is 1.

    v = E(α, k) − c·k − o, the plain algebra.

    Assumes that each draft token is accepted with the same probability α, given that all before it were.

    Args:
        alpha: Acceptance probability α of one draft token, in [0, 1].
        k: Draft tokens per step, a whole number of at least 0.
        draft_cost: c, one draft pass over one plain step, at least 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.

    Returns:
        v in plain steps. Below 1 where no verify cost pays, a verify pass being no shorter than a plain one.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation: S = 1 solved for v.

    >>> breakeven_verify_cost(0.5, 2, draft_cost=0.125)
    1.5
    """
    return breakeven_verify_cost_from_acceptance_length(
        expected_tokens(alpha, k), k, draft_cost=draft_cost, overhead=overhead
    )


def breakeven_verify_cost_from_acceptance_length(
    acceptance_length: npt.ArrayLike,
    k: npt.ArrayLike,
    *,
    draft_cost: npt.ArrayLike,
    overhead: npt.ArrayLike = 0.0,
) -> Numbers:
    """Verify cost at which the speed-up is 1, whatever law lies behind the acceptance length.

    v = E − c·k − o, the plain algebra.

    Args:
        acceptance_length: E, mean tokens per step with the bonus token, in [1, k + 1].
        k: Draft tokens per step, a whole number of at least 0.
        draft_cost: c, one draft pass over one plain step, at least 0.
        overhead: o, host time of a speculative step over one plain step, at least 0.

    Returns:
        v in plain steps. Below 1 where no verify cost pays, a verify pass being no shorter than a plain one.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation: S = 1 solved for v.

    >>> breakeven_verify_cost_from_acceptance_length(3.0, 4, draft_cost=0.25, overhead=0.5)
    1.5
    """
    drafts = require_count("k", k, 0, MAX_K)
    spare = require_acceptance_length(acceptance_length, drafts)
    spare = spare - require_range("draft_cost", draft_cost, 0) * drafts
    return like_inputs(spare - require_range("overhead", overhead, 0))


def ridge_flops_per_byte(peak_flops_per_s: npt.ArrayLike, memory_bytes_per_s: npt.ArrayLike) -> Numbers:
    """FLOPs per byte at which an accelerator's compute and memory take equally long.

    peak / bandwidth.

    Args:
        peak_flops_per_s: Dense peak of the dtype computed in, in FLOP/s, above 0.
        memory_bytes_per_s: Memory bandwidth in B/s, above 0.

    Returns:
        FLOP per byte, above 0.

    Raises:
        InputError: an argument outside its range.

    Source: Williams et al. 2009, "Roofline: an insightful visual performance model".

    >>> ridge_flops_per_byte(989e12, 3.2e12)
    309.0625
    """
    peak = require_range("peak_flops_per_s", peak_flops_per_s, above=0)
    return like_inputs(peak / require_range("memory_bytes_per_s", memory_bytes_per_s, above=0))


def ridge_tokens(
    peak_flops_per_s: npt.ArrayLike,
    memory_bytes_per_s: npt.ArrayLike,
    *,
    bytes_per_param: npt.ArrayLike,
    active_share: npt.ArrayLike = 1.0,
) -> Numbers:
    """Tokens in one forward pass at which its matrix products turn from memory-bound to compute-bound.

    N* = peak·w / (2·bandwidth) / active share: P parameters of w bytes are read in P·w / bandwidth, and
    computed in 2·P·N / peak. Neither the model's size nor tensor parallelism enters.

    Assumes matrix products alone (no attention, no overhead). With a share below 1 it is the textbook
    mixture of experts, which reads all experts but computes with the active ones; at small batches a real
    one reads fewer.

    Args:
        peak_flops_per_s: Dense peak of the dtype computed in, in FLOP/s, above 0.
        memory_bytes_per_s: Memory bandwidth in B/s, above 0.
        bytes_per_param: w, bytes of a stored parameter, above 0: 2 for bf16, 0.5 for int4.
        active_share: Parameters a token uses over all parameters, in (0, 1]; 1 for a dense model.

    Returns:
        N* in tokens per pass, above 0.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation from the roofline model; the same count is in "How to Scale Your Model" (2025).

    >>> ridge_tokens(800e12, 4e12, bytes_per_param=2)
    200.0
    >>> ridge_tokens(800e12, 4e12, bytes_per_param=2, active_share=0.25)
    800.0
    """
    width = require_range("bytes_per_param", bytes_per_param, above=0)
    share = require_range("active_share", active_share, high=1, above=0)
    return like_inputs(ridge_flops_per_byte(peak_flops_per_s, memory_bytes_per_s) * width / (2.0 * share))


def verify_bound_batch(ridge: npt.ArrayLike, k: npt.ArrayLike) -> Numbers:
    """Batch from which the verify pass is compute-bound, so that drafted tokens are no longer free.

    B = N* / (k + 1): that batch puts N* tokens into a pass over k + 1 tokens a sequence.

    Args:
        ridge: N*, tokens per pass at the ridge, above 0, from `ridge_tokens`.
        k: Draft tokens per step, a whole number of at least 0.

    Returns:
        Sequences per pass, above 0, as a real number.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation from the roofline model.

    >>> verify_bound_batch(200.0, 4)
    40.0
    """
    return like_inputs(require_range("ridge", ridge, above=0) / (require_count("k", k, 0, MAX_K) + 1))


def roofline_breakeven_batch(
    acceptance_length: npt.ArrayLike, k: npt.ArrayLike, *, ridge: npt.ArrayLike, draft_cost: npt.ArrayLike
) -> Numbers:
    """Batch at which the speed-up of a dense pair has fallen to 1, from the ridge alone.

    B* = N*·(E − c·k) / (k + 1). Speculation wins below it.

    Assumes weights only (context 0, no overhead), a max-type roofline, and a draft with the target's ridge
    (same hardware and dtype), so that c, the ratio of their bytes, is also that of their FLOPs.

    In units of the time to read the target's weights a plain step takes 1 and a verify pass
    B·(k + 1) / N*, as long as N* / (k + 1) ≤ B ≤ N*; B* solves c·k + B·(k + 1) / N* = E. It always lies in
    that range: at least N* / (k + 1) because E − c·k > 1, at most N* because E ≤ k + 1 and c ≥ 0.
    Where E − c·k ≤ 1 drafting eats the gain even with free verification. Beyond N* the plain step is
    compute-bound too and S = E / (k + 1 + c·k) ≤ 1, so that it does not win again.

    Args:
        acceptance_length: E, mean tokens per step with the bonus token, in [1, k + 1].
        k: Draft tokens per step, a whole number of at least 0.
        ridge: N*, tokens per pass at the ridge, above 0, from `ridge_tokens`.
        draft_cost: c, bytes of the draft's weights over those of the target's, at least 0.

    Returns:
        B* in sequences, as a real number, in (N* / (k + 1), N*]; NaN where speculation never wins.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation, checked by a scan of the roofline over batches.

    >>> roofline_breakeven_batch(3.0, 4, ridge=200.0, draft_cost=0.125)
    100.0
    """
    drafts = require_count("k", k, 0, MAX_K)
    tokens = require_acceptance_length(acceptance_length, drafts)
    spare = tokens - require_range("draft_cost", draft_cost, 0) * drafts
    batch = require_range("ridge", ridge, above=0) * spare / (drafts + 1)
    return like_inputs(np.where(spare > 1.0, batch, np.nan))
