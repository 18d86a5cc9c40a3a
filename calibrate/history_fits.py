"""The regression of a step on the load: what is fixed, what a running request and a prefilled token add."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from calibrate.history_points import StepPoint
from specmath.arm_fits import ArmFit
from specmath.checks import FloatArray
from specmath.fitting import BoolArray, RobustFit, left_out, linear_solver, robust_fit

LEAST_INTERVALS: Final = 8
"""Intervals below which three constants are not drawn."""
TENTHS: Final = 10
UNTOLD: Final = 1e-6
"""Share of the largest spread of points below which they do not vary in a direction at all."""
_POSITIVE: Final = np.zeros(3, dtype=bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The step of one k, or of none, as a law of the load.

    Attributes:
        k: Draft tokens per step; 0 without speculation.
        fit: What is told of it.
        points: What it was drawn from.
        robust: The constants with their covariance.
    """

    k: int
    fit: ArmFit
    points: tuple[StepPoint, ...]
    robust: RobustFit

    def step_s(self, running: FloatArray, prefill: float) -> FloatArray:
        """Seconds of a step with so many requests, and so many prompt tokens beside them."""
        return np.asarray(_columns(running, np.full(running.shape, prefill)) @ self.robust.coefficients)

    def relative_error(self, running: FloatArray, prefill: float) -> FloatArray:
        """Standard error of `step_s` over it, infinite where the points do not tell.

        That of a fit without bounds: a constant held at 0 is not for that known to be 0.
        """
        wanted = _columns(running, np.full(running.shape, prefill))
        rows = self.robust.rows * np.sqrt(self.robust.weights)[:, None]
        size = np.linalg.norm(rows, axis=0)
        size[size == 0] = 1.0
        _, spread, directions = np.linalg.svd(rows / size, full_matrices=False)
        parts = (wanted / size) @ directions.T
        told = spread > UNTOLD * spread[0]
        error = self.robust.scale * np.linalg.norm(parts[:, told] / spread[told], axis=1)
        beyond = np.linalg.norm(parts[:, ~told], axis=1) > UNTOLD * np.linalg.norm(parts, axis=1)
        return np.asarray(np.where(beyond, np.inf, error / self.step_s(running, prefill)))


def arms_of(points: Sequence[StepPoint]) -> tuple[tuple[Arm, ...], dict[int, int]]:
    """An arm for each k with enough points, that with most points first; and how many points others have."""
    by_k: dict[int, list[StepPoint]] = defaultdict(list)
    for point in points:
        by_k[point.k].append(point)
    ordered = sorted(by_k.items(), key=lambda item: -len(item[1]))
    arms = tuple(_arm(k, found) for k, found in ordered if len(found) >= LEAST_INTERVALS)
    return arms, {k: len(found) for k, found in by_k.items() if len(found) < LEAST_INTERVALS}


def _arm(k: int, points: Sequence[StepPoint]) -> Arm:
    running = np.array([one.running for one in points])
    columns = _columns(running, np.array([one.prefill for one in points]))
    seconds = np.array([one.step_s for one in points])
    steps = np.array([one.steps for one in points])
    lengths = np.array([one.acceptance_length for one in points])
    robust = _drawn(columns, seconds)
    fixed_s, per_request, per_token = robust.coefficients.tolist()
    errors = [math.sqrt(max(variance, 0.0)) or None for variance in np.diag(robust.covariance)]
    fit = ArmFit(
        k=k or None,
        acceptance_length=float(np.average(lengths, weights=steps)),
        intervals=len(points),
        running_low=float(np.quantile(running, 0.05)),
        running_high=float(np.quantile(running, 0.95)),
        prefill=float(np.median(columns[:, 2])),
        fixed_s=fixed_s,
        s_per_request=per_request,
        s_per_prefill_token=per_token,
        fixed_error_s=errors[0],
        error_per_request=errors[1],
        error_per_prefill_token=errors[2],
        error=float(np.median(np.abs(robust.errors))),
        left_out_error=_left_out_error(columns, seconds),
    )
    return Arm(k=k, fit=fit, points=tuple(points), robust=robust)


def _columns(running: FloatArray, prefill: FloatArray) -> FloatArray:
    return np.stack([np.ones(running.shape), running, prefill], axis=-1)


def _drawn(columns: FloatArray, seconds: FloatArray) -> RobustFit:
    return robust_fit(linear_solver(columns, seconds, _POSITIVE), len(seconds), _POSITIVE)


def _left_out_error(columns: FloatArray, seconds: FloatArray) -> float:
    """Neighbours in time are alike, so a tenth of the time is left out as a whole."""
    tenths = np.arange(len(seconds)) * TENTHS // len(seconds)

    def predicted(others: BoolArray) -> FloatArray:
        return np.asarray(columns @ _drawn(columns[others], seconds[others]).coefficients)

    return float(np.median(np.abs(left_out(tenths, predicted) / seconds - 1)))
