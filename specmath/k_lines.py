"""The step time against k, a line: its intercept is verification and overhead, its slope a draft pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, Numbers, like_inputs, require_range
from specmath.errors import InputError
from specmath.measurements import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class KLine:
    """E·TPOT = intercept_s + slope_s·k, and how well it holds.

    Attributes:
        intercept_s: (v + o)·T_AR, seconds of verification and overhead.
        slope_s: c·T_AR, seconds of a draft pass and of one more token verified.
        errors: Relative error of the line at each measurement.
        left_out_errors: The same of the line through all other measurements; NaN where those have one k.
    """

    intercept_s: float
    slope_s: float
    errors: tuple[float, ...]
    left_out_errors: tuple[float, ...]

    def step_s(self, k: npt.ArrayLike) -> Numbers:
        """Seconds of a speculative step at draft length k."""
        return like_inputs(self.intercept_s + self.slope_s * require_range("k", k, 0))

    def in_plain_steps(self, plain_s: float) -> tuple[float, float]:
        """(v + o, c): intercept and slope in plain steps of `plain_s` seconds."""
        seconds = float(require_range("plain_s", plain_s, above=0))
        return self.intercept_s / seconds, self.slope_s / seconds


def k_line(measurements: Sequence[Measurement]) -> KLine:
    """The least-squares line of the step time E·TPOT over k, at one batch and context.

        E·TPOT = (v + o)·T_AR + c·T_AR·k

    Assumes a chain drafted token by token; what verifying one more token costs is in the slope too.

    Args:
        measurements: At two k or more, of one batch and context, with times.

    Raises:
        InputError: for measurements without times, of several batches or contexts, or with one k only.

    Source: own derivation from S = E/(v + c·k + o); checked against four published series.

    >>> times = {1: 5.0, 3: 7.0}
    >>> line = k_line(
    ...     [Measurement(k=k, batch=1, acceptance_length=2.0, speculative_s=s) for k, s in times.items()]
    ... )
    >>> round(line.intercept_s, 9), round(line.slope_s, 9)  # steps of 10 and 14 seconds
    (8.0, 2.0)
    """
    k = np.array([float(one.k) for one in measurements])
    step_s = np.array([one.step_s for one in measurements])
    if np.isnan(step_s).any():
        raise InputError("speculative_s", "is missing: a line over k needs the time per token of each run")
    if len({(one.batch, one.context) for one in measurements}) > 1:
        raise InputError("batch", "must be the same in all measurements of a line over k, and so the context")
    if np.unique(k).size < 2:
        raise InputError("k", "must have two values at least for a line over k")
    intercept, slope = _line(k, step_s)
    errors = (intercept + slope * k) / step_s - 1
    left_out = [_left_out_error(k, step_s, place) for place in range(k.size)]
    return KLine(
        intercept_s=intercept,
        slope_s=slope,
        errors=tuple(errors.tolist()),
        left_out_errors=tuple(left_out),
    )


def _line(k: FloatArray, step_s: FloatArray) -> tuple[float, float]:
    slope = float(np.sum((k - k.mean()) * step_s) / np.sum((k - k.mean()) ** 2))
    return float(step_s.mean() - slope * k.mean()), slope


def _left_out_error(k: FloatArray, step_s: FloatArray, place: int) -> float:
    others = np.arange(k.size) != place
    if np.unique(k[others]).size < 2:
        return float("nan")
    intercept, slope = _line(k[others], step_s[others])
    return float((intercept + slope * k[place]) / step_s[place] - 1)
