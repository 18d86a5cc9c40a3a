"""How many experts a pass touches: with even routing in closed form, else by the popularity of each."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, Numbers, like_inputs, require_count, require_range
from specmath.errors import InputError

_NODES = 1024
_MOST_TOKENS = 1e7


def expected_experts(experts: npt.ArrayLike, top_k: npt.ArrayLike, tokens: npt.ArrayLike) -> Numbers:
    """Expected number of distinct experts that `tokens` tokens touch in one MoE layer.

        U = N · (1 − (1 − K/N)^t)

    Assumes independent, uniform routing; real routing of neighbouring tokens overlaps, so U is a ceiling.

    Args:
        experts: N, routed experts of the layer, at least 1.
        top_k: K, experts a token is routed to, 0 … N.
        tokens: t, tokens in the pass, at least 0.

    Returns:
        Experts touched: 0 at t = 0, K at t = 1, towards N for many tokens.

    Source: MoESD (arXiv 2505.19645).

    >>> expected_experts(8, 2, 1), round(expected_experts(128, 8, 4), 1)
    (2.0, 29.1)
    """
    n = require_count("experts", experts, 1).astype(float)
    active = require_count("top_k", top_k, 0).astype(float)
    if np.any(active > n):
        raise InputError("top_k", "must not exceed experts")
    count = require_range("tokens", tokens, 0)
    return like_inputs(n * (1 - (1 - active / n) ** count))


def touched_experts(experts: int, top_k: int, tokens: FloatArray, skew: float) -> FloatArray:
    """Expected number of distinct experts when their popularity follows a Zipf law.

        U = Σ_i 1 − (1 − p_i)^t,   p_i = min(1, c · i^−skew),   Σ p_i = K

    Assumes that a token visits expert i with probability p_i, tokens independently. `skew` 0 is even routing
    and gives `expected_experts`. Between the nodes of a table over t, U is interpolated: a relative
    error below 5e-5 up to 10⁷ tokens, whatever the skew; more tokens count as 10⁷.

    Args:
        experts: N, routed experts of the layer.
        top_k: K, experts a token is routed to.
        tokens: t, tokens in the pass, at least 1.
        skew: Exponent of the Zipf law, 0 for even routing.

    >>> [float(touched_experts(8, 2, np.array(1.0), skew).round(6)) for skew in (0.0, 0.6)]
    [2.0, 2.0]
    """
    if skew == 0:
        return np.asarray(expected_experts(experts, top_k, tokens))
    nodes, touched = _skewed_table(experts, top_k, skew)
    return np.asarray(np.interp(np.log(tokens), nodes, touched))


def expert_popularity(experts: int, top_k: int, skew: float) -> FloatArray:
    """Probability that a token visits each expert, the most popular first; they add up to `top_k`.

    >>> expert_popularity(4, 2, 0.0).round(12).tolist()
    [0.5, 0.5, 0.5, 0.5]
    """
    weights = np.arange(1, experts + 1, dtype=float) ** -skew
    low, high = 0.0, top_k / float(weights[-1])
    for _ in range(100):  # Σ min(1, c·w) grows with c, from 0 to at least K at the upper end
        middle = (low + high) / 2
        low, high = (low, middle) if np.minimum(1, middle * weights).sum() > top_k else (middle, high)
    return np.asarray(np.minimum(1, high * weights))


@lru_cache(maxsize=64)
def _skewed_table(experts: int, top_k: int, skew: float) -> tuple[FloatArray, FloatArray]:
    nodes = np.linspace(0, np.log(_MOST_TOKENS), _NODES)
    missed = 1 - expert_popularity(experts, top_k, skew)
    return nodes, np.sum(1 - missed ** np.exp(nodes)[:, None], axis=1)
