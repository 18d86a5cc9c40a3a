"""How far a law drawn from cells may be off where nothing was timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specmath.calibrations import PartFit
from specmath.checks import FloatArray, Numbers, like_inputs
from specmath.fitting import NORMAL_MEDIAN
from specmath.pass_laws import DraftLaw, HostLaw, PassLaw

Law = PassLaw | DraftLaw | HostLaw

_STEP = 1e-4
"""Relative step of a constant in which the slope of a law is taken."""


def prediction_error(
    law: Law, fit: PartFit, batch: npt.ArrayLike, width: npt.ArrayLike, context: npt.ArrayLike
) -> Numbers:
    """Relative standard error of what a law says of a pass that was not timed.

    The root of the sum of squares of two things: what each constant's standard error moves the pass by, and
    the standard deviation that the median left-out error stands for. Assumes constants independent of each
    other. Among the cells they pull against each other, so that this overstates; far beyond the cells one
    term rules, and it is right.

    Args:
        law: As `fit` tells it.
        fit: How it was drawn.
        batch: Sequences, above 0.
        width: Tokens of each, at least 1; of a draft, k.
        context: Tokens of each in the cache, at least 0.

    Returns:
        One standard error over the time of the pass, at least 0.

    >>> from specmath.calibrations import FittedConstant
    >>> constant = FittedConstant(name="weights_s", value=2.0, standard_error=0.1, largest_share=1.0)
    >>> fit = PartFit(part="target", constants=(constant,), errors=(0.0,), left_out_errors=(0.0,))
    >>> law = PassLaw(weights_s=2.0, compute_s_per_token=3.0)
    >>> round(prediction_error(law, fit, 1, 1, 0), 9)  # 0.1 of 5 seconds
    0.02
    """
    seconds = _seconds(law, batch, width, context)
    missed = np.abs(np.array(fit.left_out_errors))
    missed = missed[np.isfinite(missed)]
    spread = float(np.median(missed)) / NORMAL_MEDIAN if missed.size else 0.0
    variance = np.full(seconds.shape, spread**2)
    for constant in fit.constants:
        if constant.standard_error is not None and constant.value > 0:
            lowered: dict[str, Any] = {constant.name: constant.value * (1 - _STEP)}
            moved = seconds - _seconds(replace(law, **lowered), batch, width, context)
            variance += (moved / (_STEP * constant.value) * constant.standard_error / seconds) ** 2
    return like_inputs(np.sqrt(variance))


def _seconds(law: Law, batch: npt.ArrayLike, width: npt.ArrayLike, context: npt.ArrayLike) -> FloatArray:
    if isinstance(law, PassLaw):
        return np.asarray(law.pass_s(batch, width, context))
    if isinstance(law, DraftLaw):
        return np.asarray(law.chain_s(width, batch, context))
    return np.asarray(np.broadcast_arrays(law.host_s(batch, width), context)[0])
