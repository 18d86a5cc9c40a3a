"""Errors of an acceptance rate whose steps come in requests, which are alike within and differ between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from specmath.checks import require_range
from specmath.errors import InputError
from specmath.estimation import Z_95

_FEW: Final = (12.706, 4.303, 3.182, 2.776)
"""97.5 % points of Student's law for 1 to 4 degrees of freedom."""


def ratio_standard_error(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Standard error of Σx/Σy over clusters: √(n/(n−1) Σ(x_r − r·y_r)²)/Σy, r = Σx/Σy.

    Clusters are independent of each other; nothing is assumed within one.

    Args:
        numerators: x of each cluster, two or more.
        denominators: y of each, at least 0, with a sum above 0.

    Raises:
        InputError: fewer than two clusters, or y that sum to 0.

    Source: Cochran, Sampling Techniques, ratio estimate over clusters.

    >>> ratio_standard_error([1.0, 3.0], [4.0, 4.0])
    0.25
    """
    x, y = require_range("numerators", list(numerators)), require_range("denominators", list(denominators), 0)
    if x.size < 2 or x.size != y.size or not y.sum() > 0:
        raise InputError("denominators", "must be those of two clusters or more, with a sum above 0")
    off = x - x.sum() / y.sum() * y
    return math.sqrt(x.size / (x.size - 1.0) * float(np.sum(off**2))) / float(y.sum())


def interval_factor(clusters: int) -> float:
    """By how many standard errors a 95 % interval reaches out, with an error taken from that many clusters.

    The 97.5 % point of Student's law with one degree of freedom less; 1.96 for many.

    Source: Abramowitz and Stegun, 26.7.5, for five degrees of freedom and more.

    >>> interval_factor(2), round(interval_factor(11), 3)
    (12.706, 2.228)
    """
    degrees = clusters - 1
    if degrees <= len(_FEW):
        return _FEW[max(degrees, 1) - 1]
    z = Z_95
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + math.fsum(term / degrees**power for power, term in enumerate(terms, 1))
