"""Which k at which batch: means over a load, the best single k, tiers of k, and what each loses.

Everything is counted in token costs. The token cost of a policy at a batch is the time it needs for some
tokens over the time of plain decoding for the same tokens at the same batch, R / E = 1 / S; that of plain
decoding is 1. With the shares of plain time spent at each batch, the token cost of a load is their mean.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, IntArray, Numbers, like_inputs, require_range
from specmath.errors import InputError

_TIE = 1e-14
"""Gain below which a change of k is rounding: costs within the search differ by about 1."""

SCAN_LIMIT = 65_536
"""Largest batch of a histogram."""
MAX_WEIGHT = 1e15
"""Largest weight of a batch: a year of steps counted one by one stays far below."""


def mixed_speedup(speedup: npt.ArrayLike, time_share: npt.ArrayLike) -> Numbers:
    """Speed-up over a load whose plain decoding spends the given shares of its time at each batch.

        S = Σ w / Σ (w / S_B)

    The same tokens are decoded at the same batches; plain decoding takes w at batch B and the policy
    w / S_B. Hence the harmonic mean: a batch at which speculation loses costs more than one where it wins
    by as much earns.

    Args:
        speedup: Speed-up at each batch, above 0, on the last axis.
        time_share: Plain time at each batch, in any unit, at least 0 and not all 0; broadcasts.

    Returns:
        Total plain time over total time, between the least and the largest speed-up.

    Raises:
        InputError: for a value out of range.

    Source: own derivation, checked against a simulation of steps.

    >>> mixed_speedup([2.0, 1.0], [0.5, 0.5])  # 1 / (.25 + .5), not 1.5
    1.3333333333333333
    """
    speedups = require_range("speedup", speedup, above=0)
    shares = _shares(time_share)
    return like_inputs(1.0 / np.sum(shares / speedups, axis=-1))


def plain_time_shares(step_share: npt.ArrayLike, plain_s: npt.ArrayLike) -> FloatArray:
    """Shares of plain decoding time, from the shares of plain decoding *steps* and the time of one.

    Args:
        step_share: Steps at each batch, in any unit, at least 0 and not all 0, on the last axis.
        plain_s: Seconds of a plain step at each batch, above 0.

    Returns:
        Shares that sum to 1.

    Raises:
        InputError: for a value out of range.

    >>> plain_time_shares([0.5, 0.5], [0.01, 0.03]).tolist()
    [0.25, 0.75]
    """
    return _shares(_shares(step_share) * require_range("plain_s", plain_s, above=0))


def schedule_regret(speedup: npt.ArrayLike, best_speedup: npt.ArrayLike) -> Numbers:
    """Throughput that a policy leaves behind the best k at every batch, as a share: 1 − S / S_best.

    Args:
        speedup: Speed-up of the policy over a load, above 0.
        best_speedup: Speed-up of the best k at every batch over the same load, above 0.

    Returns:
        0 where nothing is lost; negative where a policy does better than any k, as adaptive verification may.

    Raises:
        InputError: for a value out of range.

    >>> schedule_regret(1.5, 2.0)
    0.25
    """
    reached = require_range("speedup", speedup, above=0)
    return like_inputs(1.0 - reached / require_range("best_speedup", best_speedup, above=0))


def best_static_k(token_cost: npt.ArrayLike, time_share: npt.ArrayLike) -> IntArray:
    """The single k that decodes a load fastest.

    Args:
        token_cost: 1 / S by k = 0, 1, … and by batch, the two last axes; above 0.
        time_share: Plain time at each batch, at least 0 and not all 0.

    Returns:
        The k of the least mean token cost; ties go to the smaller k.

    Raises:
        InputError: for a value out of range.

    >>> int(best_static_k([[1, 1], [0.5, 2]], [0.9, 0.1]))  # .45 + .2 beats 1
    1
    """
    costs = require_range("token_cost", token_cost, above=0)
    return np.asarray(np.argmin(costs @ _shares(time_share), axis=-1))


def tier_ks(token_cost: npt.ArrayLike, time_share: npt.ArrayLike, switch_cost: float = 0.0) -> IntArray:
    """The k at every batch that decodes a load fastest, where each change of k has to earn its keep.

    Of all assignments of a k to each batch, the one that minimises

        Σ_B w_B · token_cost[k_B, B] + switch_cost · number of changes of k from one batch to the next

    found by dynamic programming over the batches, exactly. `switch_cost` is a bar, not a time that passes.

    Args:
        token_cost: 1 / S by k = 0, 1, … and by batch in rising order, two axes; above 0.
        time_share: Plain time at each batch, at least 0 and not all 0.
        switch_cost: What a change of k must save, as a share of plain time, at least 0.

    Returns:
        One k per batch. Without a bar it is the best k at each batch. Ties change nothing, else they go to
        the smaller k.

    Raises:
        InputError: for a value out of range.

    >>> costs = [[1.0, 1.0, 1.0], [0.5, 0.9, 1.2]]
    >>> tier_ks(costs, [1, 1, 1]).tolist(), tier_ks(costs, [1, 1, 1], switch_cost=0.1).tolist()
    ([1, 1, 0], [1, 1, 1])
    """
    costs = require_range("token_cost", token_cost, above=0)
    if costs.ndim != 2:
        raise InputError("token_cost", "must have two axes, k and batch")
    bar = max(float(require_range("switch_cost", switch_cost, 0)), _TIE)
    paid = costs * _shares(time_share)
    n_ks, n_batches = paid.shape
    stay = np.arange(n_ks)
    came_from = np.empty((n_batches, n_ks), dtype=np.int64)
    total = np.zeros(n_ks)
    for batch in range(n_batches):
        total -= total.min()  # differences alone matter, and small ones keep their digits
        moves = total > bar
        came_from[batch] = np.where(moves, total.argmin(), stay)
        total = np.where(moves, bar, total) + paid[:, batch]
    chosen = np.empty(n_batches, dtype=np.int64)
    chosen[-1] = total.argmin()
    for batch in range(n_batches - 1, 0, -1):
        chosen[batch - 1] = came_from[batch, chosen[batch]]
    return chosen


def _shares(weights: npt.ArrayLike) -> FloatArray:
    """Weights as shares that sum to 1."""
    given = require_range("time_share", weights, 0)
    total = given.sum(axis=-1, keepdims=True)
    if not (total > 0).all():
        raise InputError("time_share", "is 0 at every batch; give at least one a weight above 0")
    return np.asarray(given / total)
