"""Up to which rate a policy pays: where its gain ends, and where its range reaches 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from specmath.load_arms import Arm, LoadQuestion
from specmath.queueing import Service

_SHARES = (0.001, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.96, 0.99)
"""Shares of the highest rate that both arms reach, at which a gain is looked for on the way up."""
_HALVINGS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Rates of all replicas up to which a policy is faster than plain decoding, from the lowest rates on.

    Attributes:
        gain_per_s: Where its speed-up falls to 1; 0 where it gains at no rate, infinite where it gains up to
            the rate at which one of the two is overloaded.
        range_per_s: The same of the low end of its range; NaN where the source knows none.
    """

    gain_per_s: float
    range_per_s: float


def reach_of(question: LoadQuestion, arm: Arm) -> Reach | None:
    """Up to which rate an arm pays; None where nothing fits, or for off."""
    off = question.services["off", 0]
    if arm.service is None or off is None or arm.policy == "off":
        return None
    highest = min(
        question.bare_arm(name, service, 1.0).highest_rate_per_s
        for name, service in (("off", off), (arm.policy, arm.service))
    )

    def ends(service: Service) -> float:
        def gains(rate: float) -> bool:
            own, plain = (question.bare_arm(arm.policy, one, rate).tpot_s for one in (service, off))
            return own < plain

        return _last(gains, highest)

    dearest = question.at_ends(arm.service)[0] if question.has_range else None
    return Reach(gain_per_s=ends(arm.service), range_per_s=math.nan if dearest is None else ends(dearest))


def _last(gains: Callable[[float], bool], highest: float) -> float:
    """Rate at which a gain that begins at the lowest rates first ends."""
    low = 0.0
    for share in _SHARES:
        if not gains(share * highest):
            break
        low = share * highest
    else:
        return math.inf
    if not low:
        return 0.0
    high = share * highest
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if gains(middle) else (low, middle)
    return low
