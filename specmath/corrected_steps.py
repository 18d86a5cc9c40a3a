"""The parts of a step whose total was corrected: draft passes, verification and overhead add up to it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray
from specmath.corrections import Correction
from specmath.sources import StepCost

LEAST_VERIFY = 0.05
"""Least share of a corrected step that is verification: a step never drafts alone."""


def corrected_step(
    cost: StepCost,
    correction: Correction,
    k: npt.ArrayLike,
    batch: npt.ArrayLike,
    *,
    plain_factor: npt.ArrayLike = 1.0,
) -> StepCost:
    """The step with R = correction.corrected(R of the model); its parts are what the correction says of each.

    Slope and growth scale all parts, an intercept goes to the overhead, a cost per draft token to the draft
    passes. Where a part would be negative, the rest is taken off the next: draft, overhead, verification.

    Args:
        cost: The step as modelled.
        correction: From the modelled R to the measured one.
        k: Draft tokens per step.
        batch: Sequences in the pass.
        plain_factor: Measured over modelled plain step.
    """
    drafts, multiple = np.asarray(k, dtype=float), correction.multiple(k, batch)
    draft_cost, overhead = _draft_and_overhead(cost, correction, drafts)
    if correction.is_factor:
        verify = correction.slope * cost.verify_cost * multiple
        return _step(cost, plain_factor, draft_cost * multiple, verify, overhead * multiple)
    total = correction.corrected(cost.in_plain_steps, drafts, batch)
    draft_cost, overhead = draft_cost * multiple, np.maximum(overhead, 0.0) * multiple
    rest = draft_cost * cost.draft_passes + overhead
    verify = np.maximum(total - rest, LEAST_VERIFY * total)
    kept = np.divide(total - verify, rest, out=np.zeros_like(total + rest), where=rest > 0)
    return _step(cost, plain_factor, draft_cost * kept, total - rest * kept, overhead * kept)


def _step(
    cost: StepCost,
    plain_factor: npt.ArrayLike,
    draft_cost: FloatArray,
    verify_cost: FloatArray,
    overhead: FloatArray,
) -> StepCost:
    return StepCost(
        plain_s=np.asarray(cost.plain_s * np.asarray(plain_factor)),
        draft_cost=np.asarray(draft_cost),
        draft_passes=cost.draft_passes,
        verify_cost=np.asarray(verify_cost),
        overhead=np.asarray(overhead),
    )


def _draft_and_overhead(
    cost: StepCost, correction: Correction, drafts: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Corrected draft cost before growth, at least 0, and overhead, which may be negative."""
    passes = cost.draft_passes
    overhead = correction.slope * cost.overhead + correction.intercept
    draft_cost = correction.slope * cost.draft_cost
    if not correction.per_token:
        return np.asarray(draft_cost), np.asarray(overhead)
    added = correction.per_token * drafts
    in_passes = np.divide(added, passes, out=np.zeros_like(added + passes), where=passes > 0)
    kept = np.maximum(draft_cost + in_passes, 0.0)
    return np.asarray(kept), np.asarray(overhead + added - (kept - draft_cost) * passes)
