"""Service levels against the latencies of a load: what is missed, and what misses it by most."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specmath.latencies import Latency
from specmath.simulation.statistics import ServiceLevel

CAPACITY = "highest rate"
"""What ends a goodput rate where no level does before it."""
_ASKED = (
    ("TTFT", "ttft_s", "ttft_s"),
    ("TPOT", "tpot_s", "tpot_s"),
    ("gap p99", "gap_s", "itl_p99_s"),
    ("end to end", "end_to_end_s", "e2e_s"),
)
"""Name, field of the level, and field of the latency that it limits: means, and of gaps what 1 % exceed."""


def is_asked(level: ServiceLevel) -> bool:
    """Whether anything is asked of a request.

    >>> is_asked(ServiceLevel()), is_asked(ServiceLevel(tpot_s=0.03))
    (False, True)
    """
    return any(getattr(level, field) is not None for _, field, _ in _ASKED)


def level_shares(level: ServiceLevel, found: Sequence[Latency]) -> dict[str, float]:
    """Each limited latency of the worst class over its limit: above 1 where missed, or where not known."""
    shares: dict[str, float] = {}
    for name, field, latency in _ASKED:
        limit = getattr(level, field)
        if limit is not None:
            values = [getattr(one, latency) for one in found]
            shares[name] = max(math.inf if math.isnan(value) else value / limit for value in values)
    return shares


def missed_levels(level: ServiceLevel, found: Sequence[Latency]) -> tuple[str, ...]:
    """Names of what is missed, the worst first; none where every class meets the level."""
    shares = level_shares(level, found)
    return tuple(sorted((name for name in shares if shares[name] > 1), key=lambda name: -shares[name]))


def meets(level: ServiceLevel, found: Sequence[Latency]) -> bool:
    """Whether every class is within the level."""
    return not missed_levels(level, found)
