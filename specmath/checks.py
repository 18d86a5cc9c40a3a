"""Argument checks, done once at the entry of a public function; inner functions trust.

Scalars and arrays go through the same door: a check turns its value into a float64 array (an int64
array for counts), refuses NaN, infinity, text, booleans and empty arrays, and names the first offender.
`like_inputs` undoes the array where every input was a scalar, so that a float in gives a float out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specmath.errors import InputError, shown

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Numbers = float | FloatArray
"""A float, or an array of them; functions broadcast their arguments by numpy's rules."""
Counts = int | IntArray
"""An int, or an array of them."""

MAX_K = 10_000
"""Largest draft length accepted: the law of accepted tokens has k + 1 entries per cell."""
MAX_COUNT = 2**53
"""Largest count accepted: beyond it a float, in which counts are multiplied, skips whole numbers."""


def require_range(
    name: str,
    value: npt.ArrayLike,
    low: float | None = None,
    high: float | None = None,
    *,
    above: float | None = None,
) -> FloatArray:
    """`value` as float64, every element finite, in [low, high] and, if `above` is given, > above; −0 is 0.

    >>> float(require_range("alpha", 0.7, 0, 1))
    0.7
    >>> require_range("alpha", [0.5, 1.3], 0, 1)
    Traceback (most recent call last):
    specmath.errors.InputError: alpha: must be between 0 and 1, got 1.3
    """
    array = np.asarray(_numeric(name, value).astype(np.float64, copy=False) + 0.0)  # −0 + 0 is 0
    bad = ~np.isfinite(array)
    if low is not None:
        bad |= array < low
    if high is not None:
        bad |= array > high
    if above is not None:
        bad |= array <= above
    _refuse(name, array, bad, _describe_range(low, high, above))
    return array


def require_count(name: str, value: npt.ArrayLike, low: int = 0, high: int | None = None) -> IntArray:
    """`value` as int64, every element a whole number in [low, high]; 4.0 passes, 4.5 does not.

    Without `high` the limit is `MAX_COUNT`.

    >>> int(require_count("k", 4))
    4
    >>> require_count("k", 4.5)
    Traceback (most recent call last):
    specmath.errors.InputError: k: must be a whole number of at least 0, got 4.5
    """
    array = _numeric(name, value)
    limit = MAX_COUNT if high is None else high
    with np.errstate(invalid="ignore"):
        above = array > limit
        bad = ~np.isfinite(array) | (array != np.floor(array)) | (array < low) | above
    if high is None:
        _refuse(name, array, above, f"at most {MAX_COUNT} (2**53; beyond it a float is not exact)")
    text = f"a whole number of at least {low}" if high is None else f"a whole number from {low} to {high}"
    _refuse(name, array, bad, text)
    return array.astype(np.int64, copy=False)


def require_acceptance_length(value: npt.ArrayLike, k: IntArray) -> FloatArray:
    """Tokens per step as float64, every element in [1, k + 1]: the bonus token counts, and k drafts at most.

    >>> float(require_acceptance_length(2.5, np.asarray(4)))
    2.5
    >>> require_acceptance_length(0.8, np.asarray(4))
    Traceback (most recent call last):
    specmath.errors.InputError: acceptance_length: counts the bonus token, so must be between 1 and 5, got 0.8
    """
    tokens, most = np.broadcast_arrays(require_range("acceptance_length", value), k + 1)
    bad = (tokens < 1) | (tokens > most * (1.0 + 1e-9))  # a sum of shares may exceed k + 1 by rounding
    if bad.any():
        rule = f"counts the bonus token, so must be between 1 and {most[bad][0]}"
        raise InputError("acceptance_length", f"{rule}, got {_show(tokens[bad][0].item())}")
    return np.asarray(np.minimum(tokens, most))


def like_inputs(result: npt.NDArray[np.generic] | float) -> Numbers:
    """A 0-d result as a Python float, an array unchanged."""
    array = np.asarray(result, dtype=np.float64)
    return float(array) if array.ndim == 0 else array


def _numeric(name: str, value: npt.ArrayLike) -> npt.NDArray[np.number]:
    try:
        array = np.asarray(value)
        if array.dtype == object and {type(one) for one in array.flat} <= {int, float}:  # beyond 64 bits
            array = array.astype(np.float64)
    except ValueError:
        array = np.asarray(None)
    except OverflowError as fault:
        raise InputError(name, "must be within the range of a float, up to 1.8e308") from fault
    if array.dtype.kind not in "iuf":
        raise InputError(name, f"must be a number or an array of numbers, got {_show(value)}")
    if array.size == 0:
        raise InputError(name, "is empty; give at least one value")
    return array


def _refuse(name: str, array: npt.NDArray[np.number], bad: npt.NDArray[np.bool_], rule: str) -> None:
    if bad.any():
        raise InputError(name, f"must be {rule}, got {_show(array[bad].flat[0].item())}")


def _describe_range(low: float | None, high: float | None, above: float | None) -> str:
    if above is not None:
        return f"above {above:g}" + ("" if high is None else f" and at most {high:g}")
    if low is not None and high is not None:
        return f"between {low:g} and {high:g}"
    if low is not None:
        return f"at least {low:g}"
    return "a finite number" if high is None else f"at most {high:g}"


def _show(value: object) -> str:
    return f"{value:.12g}" if isinstance(value, float) else shown(value)
