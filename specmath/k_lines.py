"""The step time against k, a line: its intercept is verification and overhead, its slope a draft pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

from specmath.calibrations import RunLine
from specmath.checks import FloatArray, Numbers, like_inputs, require_range
from specmath.errors import InputError
from specmath.fitting import BoolArray, least_squares, left_out
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
    intercept, slope = least_squares(_columns(k), step_s)
    return KLine(
        intercept_s=float(intercept),
        slope_s=float(slope),
        errors=tuple(((intercept + slope * k) / step_s - 1).tolist()),
        left_out_errors=tuple(_left_out_errors(np.arange(k.size), k, step_s).tolist()),
    )


def _columns(k: FloatArray) -> FloatArray:
    return np.stack([np.ones(k.size), k], axis=-1)


def _left_out_errors(groups: npt.ArrayLike, k: FloatArray, step_s: FloatArray) -> FloatArray:
    """Relative error, at each measurement, of the line through those of all other groups."""
    columns = _columns(k)

    def predicted_s(others: BoolArray) -> FloatArray:
        return np.asarray(columns @ least_squares(columns[others], step_s[others]))

    return np.asarray(left_out(groups, predicted_s) / step_s - 1)


def run_lines(measurements: Sequence[Measurement]) -> tuple[RunLine, ...]:
    """The line over k of each batch and context at which two k or more were timed, smallest batch first.

    Args:
        measurements: Of one set-up; those without times tell no line.

    Returns:
        The lines; none where each batch and context has one k.

    >>> times = {1: 5.0, 3: 7.0}
    >>> [line] = run_lines(
    ...     [
    ...         Measurement(k=k, batch=4, acceptance_length=2.0, speculative_s=s, plain_s=8.0)
    ...         for k, s in times.items()
    ...     ]
    ... )
    >>> round(line.intercept_s, 9), round(line.slope_s, 9), line.plain_s, line.worst_left_out
    (8.0, 2.0, 8.0, None)
    """
    places: dict[tuple[int, float], list[Measurement]] = {}
    for one in measurements:
        if not math.isnan(one.step_s):
            places.setdefault((one.batch, one.context), []).append(one)
    several = {place: group for place, group in places.items() if len({one.k for one in group}) > 1}
    return tuple(_run_line(several[place]) for place in sorted(several))


def _run_line(group: Sequence[Measurement]) -> RunLine:
    line = k_line(group)
    plain = [one.plain_step_s for one in group if not math.isnan(one.plain_step_s)]
    k = np.array([float(one.k) for one in group])
    left_out_errors = _left_out_errors(k, k, np.array([one.step_s for one in group]))
    return RunLine(
        batch=group[0].batch,
        context=group[0].context,
        intercept_s=line.intercept_s,
        slope_s=line.slope_s,
        plain_s=fmean(plain) if plain else None,
        worst_error=max(map(abs, line.errors)),
        worst_left_out=float(np.abs(left_out_errors).max()) if np.unique(k).size > 2 else None,
    )
