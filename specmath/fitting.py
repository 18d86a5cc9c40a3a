"""The fitting core: constants from measured times whose noise is relative.

Corrections from anchors, lines through runs and laws of calibrated passes take their constants from here:

    least_squares   linear least squares in which chosen coefficients are at least 0, exactly
    robust_fit      the same over and over, outlying entries losing weight; standard errors at the end
    left_out        what a fit to all other groups says of each entry

Times over their measured values are fitted to 1, so that a miss of 3 percent counts alike at any size.
Pure numpy, no knowledge of models or machines.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray

BoolArray = npt.NDArray[np.bool_]
Solver = Callable[[FloatArray], tuple[FloatArray, FloatArray]]
"""From the weights of the entries to (rows, coefficients), so that rows @ coefficients is near 1: a row holds
the slope of an entry in each coefficient, over its measured time."""

DEPENDENT = 1e-10
"""Columns that another one explains to within this share are taken as one."""
MILD_ROUNDS = 8
MOST_ROUNDS = 40
SETTLED = 1e-5
"""Change of the weights at which solving again ends."""
HUBER = 1.345
ORDINARY, GIVEN_UP = 2.5, 5.0
"""In standard deviations: from where on Huber's rule takes weight off; up to where an error counts in full,
and from where on not at all."""
NORMAL_MEDIAN = 0.6745
"""Median distance from the mean of a normal distribution, in standard deviations."""
LEAST_SCALE = 1e-9
"""Relative noise below which times are exact but for rounding."""


def least_squares(
    columns: FloatArray,
    values: FloatArray,
    *,
    weights: FloatArray | None = None,
    signed: BoolArray | None = None,
) -> FloatArray:
    """Coefficients c that minimise Σ weight·(columns @ c − value)², those not signed being at least 0.

    Tries which coefficients are held at 0, none first; the first choice whose solution is at least 0, and
    which no held one would improve, is the minimum, because the sum is convex. That are at most 2^columns
    small solutions: meant for up to about seven columns. Of columns that say the same the first is kept.

    Args:
        columns: One row per entry.
        values: One per entry.
        weights: One per entry, at least 0; all alike if None.
        signed: Which coefficients may be below 0; all if None.

    Returns:
        One coefficient per column; NaN where those that may not be held are not told apart.

    Source: the conditions of Karush, Kuhn and Tucker.

    >>> columns = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    >>> least_squares(columns, np.array([5.0, 7.0, 9.0])).round(9).tolist()
    [3.0, 2.0]
    >>> falling = np.array([4.0, 3.0, 2.0])  # the slope is −1, so held at 0, which leaves the mean
    >>> least_squares(columns, falling, signed=np.array([True, False])).round(9).tolist()
    [3.0, 0.0]
    """
    root = np.ones(len(values)) if weights is None else np.sqrt(weights)
    bounded = np.zeros(columns.shape[1], dtype=bool) if signed is None else ~signed
    rows = columns * root[:, None]
    size = np.linalg.norm(rows, axis=0)
    size[size == 0] = 1.0
    basis, triangle = np.linalg.qr(rows / size)
    goal = basis.T @ (values * root)
    for free in _free_sets(bounded):
        part = triangle[:, free]
        solved, _, rank, _ = np.linalg.lstsq(part, goal, rcond=DEPENDENT)
        if rank < free.sum() or np.any(solved[bounded[free]] < 0):
            continue
        pull = triangle.T @ (goal - part @ solved)
        if np.all(pull[~free] <= DEPENDENT * max(float(np.linalg.norm(goal)), LEAST_SCALE)):
            coefficients = np.zeros(bounded.size)
            coefficients[free] = solved / size[free]
            return coefficients
    return np.full(bounded.size, np.nan)


def _free_sets(bounded: BoolArray) -> Iterator[BoolArray]:
    """Which coefficients are not held at 0: all of them first, only those without a bound last."""
    places = np.flatnonzero(bounded)
    for held in range(places.size + 1):
        for kept in itertools.combinations(places, places.size - held):
            free = ~bounded
            free[list(kept)] = True
            yield free


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustFit:
    """Coefficients, and how far to trust them.

    Attributes:
        rows: Slope of each entry in each coefficient, over its measured time.
        coefficients: One per column.
        covariance: Of the coefficients, as if none were held at 0; 0 for those that the entries do not tell.
        errors: Fitted over measured time minus 1, of each entry.
        weights: From 1 down to 0 of each entry; an entry of weight 0 did not take part.
        scale: Standard deviation of the errors of those that did.
    """

    rows: FloatArray
    coefficients: FloatArray
    covariance: FloatArray
    errors: FloatArray
    weights: FloatArray
    scale: float


def linear_solver(columns: FloatArray, seconds: FloatArray, signed: BoolArray) -> Solver:
    """The solver of times that are sums of `columns`, each times a coefficient."""
    rows = columns / seconds[:, None]

    def solved(weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        return rows, least_squares(rows, np.ones(len(rows)), weights=weights, signed=signed)

    return solved


def robust_fit(solver: Solver, entries: int, signed: BoolArray) -> RobustFit:
    """The coefficients that most entries agree on, with their covariance.

    Solves again and again with weights from the errors of the last solution: first by Huber's rule, which no
    start leads astray, then by one under which ordinary errors count in full, and one far off not at all.
    Errors are measured in their own spread, each raised by its leverage first: an entry that pulls the fit to
    itself hides its error.

    Args:
        solver: Solves for given weights.
        entries: How many there are.
        signed: Which coefficients may be below 0.

    Source: Huber, Robust Statistics (1981), chapter 7; Hampel's three-part weights.

    >>> columns, seconds = np.ones((5, 1)), np.array([2.0, 2.0, 2.0, 2.0, 9.0])
    >>> fit = robust_fit(linear_solver(columns, seconds, np.array([False])), 5, np.array([False]))
    >>> fit.coefficients.round(9).tolist(), fit.weights.tolist()
    ([2.0], [1.0, 1.0, 1.0, 1.0, 0.0])
    """
    weights = np.ones(entries)
    for turn in range(MOST_ROUNDS):
        rows, coefficients = solver(weights)
        errors = rows @ coefficients - 1
        free = (signed & rows.any(axis=0)) | (coefficients > 0)
        deviations, scale = _deviations(rows[:, free], errors, weights)
        used, weights = weights, _huber(deviations) if turn < MILD_ROUNDS else _hampel(deviations)
        if turn > MILD_ROUNDS and np.all(np.abs(weights - used) < SETTLED):
            break
    told = _told_apart(rows * np.sqrt(used)[:, None], free)
    covariance = np.zeros((free.size, free.size))
    covariance[np.ix_(told, told)] = _covariance(rows[:, told], errors, used)
    return RobustFit(
        rows=rows,
        coefficients=coefficients,
        covariance=covariance,
        errors=errors,
        weights=used,
        scale=scale,
    )


def _huber(deviations: FloatArray) -> FloatArray:
    return HUBER / np.maximum(np.abs(deviations), HUBER)


def _hampel(deviations: FloatArray) -> FloatArray:
    return np.clip((GIVEN_UP - np.abs(deviations)) / (GIVEN_UP - ORDINARY), 0.0, 1.0)


def _deviations(rows: FloatArray, errors: FloatArray, weights: FloatArray) -> tuple[FloatArray, float]:
    """Errors in standard deviations, leverage taken out; and that standard deviation."""
    root = np.sqrt(weights)[:, None]
    basis, _ = np.linalg.qr(rows * root)
    leverage = np.minimum(np.sum(basis**2, axis=1), 1 - LEAST_SCALE)
    raised = np.abs(errors) / np.sqrt(1 - leverage)
    exact = min(rows.shape[1], len(errors)) - 1  # so many errors a fit can bring to 0
    scale = max(float(np.median(np.sort(raised)[max(exact, 0) :])) / NORMAL_MEDIAN, LEAST_SCALE)
    return raised / scale, scale


def _told_apart(rows: FloatArray, free: BoolArray) -> BoolArray:
    """The free coefficients, and those held at 0 that the entries could tell from them.

    A coefficient that happens to be held may truly be above 0; the others are known no better for it.
    """
    told = free.copy()
    size = np.linalg.norm(rows, axis=0)
    alike = rows / np.where(size > 0, size, 1.0)
    for place in np.flatnonzero(~free):
        wider = told | (np.arange(free.size) == place)
        if np.linalg.matrix_rank(alike[:, wider], tol=DEPENDENT) == wider.sum():
            told = wider
    return told


def _covariance(rows: FloatArray, errors: FloatArray, weights: FloatArray) -> FloatArray:
    """Covariance of the coefficients of weighted least squares; 0 where no entry is left to tell it."""
    freedom = float(weights.sum()) - rows.shape[1]
    if freedom < 1:
        return np.zeros((rows.shape[1], rows.shape[1]))
    variance = float(np.sum(weights * errors**2)) / freedom
    size = np.linalg.norm(
        rows, axis=0
    )  # of columns in units as far apart as s and 1/s, the inverse would lose some
    alike = rows / size
    inverse = np.linalg.pinv(alike.T @ (weights[:, None] * alike), hermitian=True)
    return np.asarray(variance * inverse / np.outer(size, size))


def left_out(groups: npt.ArrayLike, predicted: Callable[[BoolArray], FloatArray]) -> FloatArray:
    """What a fit to all other groups says of each entry.

    Args:
        groups: Label of the group of each entry.
        predicted: From the entries to fit to, to what the fit says of all entries.

    >>> seconds = np.array([1.0, 3.0, 8.0])
    >>> left_out([0, 0, 1], lambda others: np.full(3, seconds[others].mean())).tolist()
    [8.0, 8.0, 2.0]
    """
    labels = np.asarray(groups)
    found = np.full(labels.shape, np.nan)
    for label in np.unique(labels):
        inside = labels == label
        found[inside] = predicted(~inside)[inside]
    return found
