"""What in measurements looks wrong beside a model of the same set-up: units, arms, another machine."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from specmath.measurements import Measurement
from specmath.results import Advice
from specmath.sources import StepCost
from specmath.units import format_quantity
from specmath.verdicts import REPEAT_NOISE

FAR: Final = 3.0
"""Times or parts of the modelled plain step beyond which a measured one is doubted."""
DEAR: Final = 1.5
"""Times the modelled R from which a slowdown may be a gain whose arms were swapped."""
NEAR: Final = 1.25
"""How near to the modelled R the swapped arms must come for that."""


def doubts_beside_model(
    measurements: Sequence[Measurement], modelled: Sequence[StepCost]
) -> tuple[Advice, ...]:
    """Plain steps far from the model's, and slowdowns that would be the expected gain with the arms swapped.

    Args:
        measurements: What was measured.
        modelled: The step of the same set-ups by the model.
    """
    pairs = list(zip(measurements, modelled, strict=True))
    plain = [(one, one.plain_step_s / float(cost.plain_s)) for one, cost in pairs]
    strange = [(one, ratio) for one, ratio in plain if ratio > FAR or ratio < 1 / FAR]
    return (*_far_plain_step(strange), *_swapped(pairs))


def _far_plain_step(strange: Sequence[tuple[Measurement, float]]) -> Iterator[Advice]:
    """The farthest of them, with its likely reason."""
    if not strange:
        return
    one, ratio = max(strange, key=lambda found: abs(math.log(found[1])))
    measured = format_quantity(one.plain_step_s, "s")
    expected = format_quantity(one.plain_step_s / ratio, "s")
    yield Advice(
        code="plain-step-far-from-the-model",
        text=f"measurement {one.where or one.text}: a plain step of {measured} is {ratio:.2g} times the "
        f"modelled {expected}",
        remedy=f"{_likely_reason(one, ratio)}; if it is right, check --hardware, --target and their formats",
    )


def _likely_reason(one: Measurement, ratio: float) -> str:
    if one.batch > 1 and 1 / 2 < ratio / one.batch < 2:
        return "tok/s counts all sequences together; this looks like the throughput of one"
    if one.batch > 1 and 1 / 2 < ratio * one.batch < 2:
        return "times are per output token of one sequence; this looks like the time over all of them"
    if ratio > 300 or ratio < 1 / 300:
        return "check the unit, s for ms or the like"
    return "check the unit, and whether a throughput is that of all sequences together"


def _swapped(pairs: Sequence[tuple[Measurement, StepCost]]) -> Iterator[Advice]:
    """The first slowdown that is dearer than modelled and would be the modelled step the other way round.

    E then exceeds the modelled R: by the model there should be a gain.
    """
    for one, cost in pairs:
        speedup, expected = one.times_faster, float(cost.in_plain_steps)
        turned = one.acceptance_length * speedup
        dear = one.in_plain_steps > DEAR * expected
        if speedup * (1 + REPEAT_NOISE) < 1 and dear and 1 / NEAR < turned / expected < NEAR:
            yield Advice(
                code="arms-may-be-swapped",
                text=f"measurement {one.where or one.text}: slower with speculation, S = {speedup:.3g}, "
                f"though E = {one.acceptance_length:.3g} exceeds the modelled R = {expected:.3g}; "
                f"the other way round R would be {turned:.3g}",
                remedy="check whether off and on are swapped: off is the run without speculation",
            )
            return
