"""The Beta law behind counts by position, where acceptance rises from position to position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from specmath.acceptance import BetaAcceptance
from specmath.checks import FloatArray, require_range

_SPREADS: Final = np.geomspace(1e-5, 1e3, 33)
"""1/(a + b) tried first; smaller is a constant probability, larger all or nothing."""
_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0


def fitted_beta(judged: Sequence[float], accepted: Sequence[float]) -> BetaAcceptance | None:
    """The Beta(a, b) law of greatest likelihood for trials and acceptances by position.

    With mean μ = a/(a + b) and ρ = 1/(a + b) the conditionals are a_i = (μ + (i−1)ρ)/(1 + (i−1)ρ). For each ρ
    the likelihood has one maximum in μ; over ρ the best of a grid is refined.

    Args:
        judged: Trials at position 1, 2, …, at least 0.
        accepted: Those accepted.

    Returns:
        The law; None where acceptance does not rise, so that a constant or a falling law fits as well, and
        where fewer than two positions tell.

    Source: maximum likelihood of the Beta-geometric law, own derivation.

    >>> law = fitted_beta([300, 150], [150, 100])  # 1/2, then 2/3: the moments of the uniform law
    >>> round(float(law.a), 3), round(float(law.b), 3)
    (1.0, 1.0)
    """
    trials, successes = require_range("judged", list(judged), 0), require_range("accepted", list(accepted), 0)
    told = trials > 0
    depth = np.arange(trials.size)[told].astype(np.float64)
    trials, successes = trials[told], np.minimum(successes[told], trials[told])
    if depth.size < 2 or not 0 < successes.sum() < trials.sum():
        return None
    likelihoods = [_profile(spread, trials, successes, depth) for spread in _SPREADS]
    best = int(np.argmax(likelihoods))
    if best == 0:
        return None
    low, high = math.log(_SPREADS[best - 1]), math.log(_SPREADS[min(best + 1, len(_SPREADS) - 1)])
    spread = math.exp(_highest(low, high, trials, successes, depth))
    mean = _mean(spread, trials, successes, depth)
    if not 0 < mean < 1:
        return None
    return BetaAcceptance(mean / spread, (1.0 - mean) / spread)


def has_two_peaks(law: BetaAcceptance) -> bool:
    """Whether the law has more weight near 0 and near 1 than between: a < 1 and b < 1.

    >>> has_two_peaks(BetaAcceptance(0.4, 0.3)), has_two_peaks(BetaAcceptance(5.6, 2.3))
    (True, False)
    """
    return bool(np.all(np.asarray(law.a) < 1) and np.all(np.asarray(law.b) < 1))


def _highest(low: float, high: float, trials: FloatArray, successes: FloatArray, depth: FloatArray) -> float:
    """The logarithm of the spread of greatest likelihood between two, by golden section."""
    for _ in range(60):
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        rises = _profile(math.exp(first), trials, successes, depth) < _profile(
            math.exp(second), trials, successes, depth
        )
        low, high = (first, high) if rises else (low, second)
    return (low + high) / 2.0


def _profile(spread: float, trials: FloatArray, successes: FloatArray, depth: FloatArray) -> float:
    """Logarithm of the likelihood at the best mean for a spread."""
    mean = _mean(spread, trials, successes, depth)
    share = (mean + depth * spread) / (1.0 + depth * spread)
    missing = (1.0 - mean) / (1.0 + depth * spread)
    failures = trials - successes
    with np.errstate(divide="ignore", invalid="ignore"):
        gained = np.where(successes > 0, successes * np.log(share), 0.0)
        lost = np.where(failures > 0, failures * np.log(missing), 0.0)
    return float(np.sum(gained + lost))


def _mean(spread: float, trials: FloatArray, successes: FloatArray, depth: FloatArray) -> float:
    """The mean of greatest likelihood for a spread: where Σ s_i/(μ + (i−1)ρ) falls to Σ f_i/(1 − μ)."""
    failures = float(np.sum(trials - successes))
    low, high = 0.0, 1.0
    for _ in range(55):
        middle = (low + high) / 2.0
        rises = float(np.sum(successes / (middle + depth * spread))) > failures / (1.0 - middle)
        low, high = (middle, high) if rises else (low, middle)
    return (low + high) / 2.0
