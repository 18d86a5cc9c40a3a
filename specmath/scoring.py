"""How far predictions lie from measurements: error, bias, order, sign, coverage, and what an anchor buys.

The error of a prediction P of a measured M is P/M − 1. Rows of one set-up share its machine, its models and
its mistakes; where each set-up shall count once, its n rows weigh 1/n each, so that no row is chosen and
none is dropped. Weighted quantiles are those of numpy (linear) when all weights are equal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, require_range
from specmath.errors import InputError

MAX_ANCHORS: Final = 64
"""Most rows of a set-up that serve as anchors, lest pairs grow with the square of its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What a set of predictions is worth. NaN stands for what the rows cannot tell.

    Attributes:
        rows: Predictions scored.
        setups: Set-ups they come from.
        median_error: Median of |P/M − 1|.
        p90_error: Its 90th percentile.
        bias: Median of P/M − 1; above 0 is optimistic.
        log_correlation: Pearson correlation of log P with log M; NaN below 3 rows and for constants.
        sign: Share of rows on the right side of 1.
        balanced_sign: Mean of the shares of slowdowns (M < 1) and of gains (M > 1) on the right side of 1.
        slowdowns: Rows with M < 1.
        slowdowns_in_range: Share of them whose range reaches below 1.
        coverage: Share of rows within [low, high].
        width: Median of high/low.
    """

    rows: int
    setups: int
    median_error: float
    p90_error: float
    bias: float
    log_correlation: float
    sign: float
    balanced_sign: float
    slowdowns: int
    slowdowns_in_range: float
    coverage: float
    width: float


def score_predictions(
    predicted: npt.ArrayLike,
    measured: npt.ArrayLike,
    *,
    low: npt.ArrayLike | None = None,
    high: npt.ArrayLike | None = None,
    setups: Sequence[Hashable] | None = None,
    each_setup_once: bool = False,
) -> Score:
    """The score of predicted speed-ups against measured ones.

    Args:
        predicted: Speed-ups, above 0.
        measured: Measured speed-ups of the same rows, above 0.
        low: Low ends of the ranges; None for predictions without range.
        high: High ends; given with `low`.
        setups: What each row is a measurement of; None takes every row for a set-up of its own.
        each_setup_once: Whether the n rows of a set-up weigh 1/n each instead of 1.

    Raises:
        InputError: for values at or below 0, and lengths that differ.

    >>> score = score_predictions([1.1, 2.0, 0.9], [1.0, 2.0, 1.8])
    >>> round(score.median_error, 12), round(score.bias, 12)
    (0.1, 0.0)
    """
    guess, truth = _same_length(predicted=predicted, measured=measured)
    names = list(range(guess.size)) if setups is None else list(setups)
    if len(names) != guess.size:
        raise InputError("setups", f"must name each of the {guess.size} rows, got {len(names)}")
    weights = setup_weights(names) if each_setup_once else np.ones(guess.size)
    error, hits = guess / truth - 1, (guess < 1) == (truth < 1)
    slow, gain = truth < 1, truth > 1
    covered, width, reaching = _of_ranges(low, high, truth, weights)
    return Score(
        rows=guess.size,
        setups=len(set(names)),
        median_error=weighted_quantile(np.abs(error), 0.5, weights),
        p90_error=weighted_quantile(np.abs(error), 0.9, weights),
        bias=weighted_quantile(error, 0.5, weights),
        log_correlation=_correlation(np.log(guess), np.log(truth), weights),
        sign=_share(hits, weights),
        balanced_sign=(_share(hits[slow], weights[slow]) + _share(hits[gain], weights[gain])) / 2,
        slowdowns=int(slow.sum()),
        slowdowns_in_range=_share(reaching[slow], weights[slow]),
        coverage=covered,
        width=width,
    )


def setup_weights(setups: Sequence[Hashable]) -> FloatArray:
    """Weight 1/n of each row of a set-up with n rows.

    >>> setup_weights(["a", "b", "b"]).tolist()
    [1.0, 0.5, 0.5]
    """
    counts: dict[Hashable, int] = {}
    for setup in setups:
        counts[setup] = counts.get(setup, 0) + 1
    return np.array([1 / counts[setup] for setup in setups])


def weighted_quantile(values: npt.ArrayLike, share: float, weights: npt.ArrayLike | None = None) -> float:
    """The value below which a share of the weight lies, linear between rows; NaN without rows.

    Row i of the sorted values stands at (C_i − (w_i + w_1)/2) / (C_n − (w_n + w_1)/2), C the running sum of
    the weights: at (i − 1)/(n − 1) for equal ones.

    >>> weighted_quantile([3, 1, 2], 0.5), weighted_quantile([1, 2, 3], 0.5, [1, 1, 3])
    (2.0, 2.25)
    """
    given = np.asarray(values, dtype=np.float64)
    if given.size < 2:
        return float(given[0]) if given.size else np.nan
    order = np.argsort(given, kind="stable")
    weight = np.ones(given.size) if weights is None else np.asarray(weights, dtype=np.float64)[order]
    place = np.cumsum(weight) - (weight + weight[0]) / 2
    return float(np.interp(share, place / place[-1], given[order]))


def anchored_predictions(
    predicted: npt.ArrayLike, measured: npt.ArrayLike, setups: Sequence[Hashable]
) -> tuple[npt.NDArray[np.int64], FloatArray, FloatArray]:
    """What one measured row does for the others of its set-up: every ordered pair (anchor, row).

    In a set-up of more than `MAX_ANCHORS` rows, that many spread evenly over it are the anchors.

    The anchor's measured over predicted value is the factor that the model missed; the row's prediction is
    multiplied by it. With R = E/S this is the factor on the step cost, as E is known in both rows.

    Returns:
        The rows' places, their corrected predictions, and weights that let each row count once.

    >>> rows, corrected, weights = anchored_predictions([2.0, 3.0, 5.0], [1.0, 2.0, 5.0], ["a", "a", "b"])
    >>> rows.tolist(), corrected.round(3).tolist(), weights.tolist()
    ([1, 0], [1.5, 1.333], [1.0, 1.0])
    """
    guess, truth = _same_length(predicted=predicted, measured=measured)
    pairs = [_anchored_pairs(np.array(members)) for members in _groups(setups)]
    anchors, rows = np.concatenate([np.zeros((2, 0), dtype=np.int64), *pairs], axis=1)
    weights = 1 / np.bincount(rows, minlength=guess.size)[rows]
    return rows, guess[rows] * truth[anchors] / guess[anchors], weights


def _anchored_pairs(members: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Anchors and rows of one set-up, every anchor with every other row, as two lines of places."""
    spread = np.linspace(0, members.size - 1, min(members.size, MAX_ANCHORS)).round().astype(np.int64)
    pairs = np.stack([one.ravel() for one in np.meshgrid(members[spread], members, indexing="ij")])
    return pairs[:, pairs[0] != pairs[1]]


def left_out_line(k: npt.ArrayLike, step: npt.ArrayLike, series: Sequence[Hashable]) -> FloatArray:
    """The step cost of each row from a straight line in k through the other k of its series.

    E · TPOT = (v + o)·T_AR + c·T_AR·k, so a line in k is what theory expects of a chain; the step cost may be
    in seconds or in plain steps. Least squares on relative errors. NaN in series of fewer than three k.

    >>> left_out_line([1, 2, 3, 1], [1.1, 1.2, 1.3, 2.0], ["a", "a", "a", "b"]).round(12).tolist()
    [1.1, 1.2, 1.3, nan]
    """
    drafts, cost = _same_length(k=k, step=step)
    line = np.full(drafts.shape, np.nan)
    for members in map(np.array, _groups(series)):
        lengths = np.unique(drafts[members])
        for length in lengths if lengths.size >= 3 else ():
            others = members[drafts[members] != length]
            slope, start = np.polyfit(drafts[others], cost[others], 1, w=1 / cost[others])
            line[members[drafts[members] == length]] = start + slope * length
    return line


def range_floor(
    predicted: npt.ArrayLike,
    measured: npt.ArrayLike,
    *,
    share: float = 0.8,
    weights: npt.ArrayLike | None = None,
) -> tuple[float, float]:
    """Factors (least, most) so that [P/least, P·most] holds a share of the rows, the rest half on each side.

    Both are at least 1: a predictor that is always too optimistic still claims its own value.

    >>> least, most = range_floor([2.0] * 5, [1.0, 1.6, 2.0, 2.5, 4.0], share=1.0)
    >>> round(least, 9), round(most, 9)
    (2.0, 2.0)
    """
    guess, truth = _same_length(predicted=predicted, measured=measured)
    upper = (1 + float(require_range("share", share, 0, 1))) / 2
    over = weighted_quantile(np.log(guess / truth), upper, weights)
    under = weighted_quantile(np.log(truth / guess), upper, weights)
    return float(np.exp(max(over, 0.0))), float(np.exp(max(under, 0.0)))


def left_out_ranges(
    predicted: npt.ArrayLike,
    measured: npt.ArrayLike,
    sources: Sequence[Hashable],
    setups: Sequence[Hashable],
    *,
    share: float = 0.8,
) -> tuple[FloatArray, FloatArray]:
    """The range of each row by the `range_floor` of all other sources, each set-up once; NaN with one source.

    What a floor is worth shows on sources that had no part in it.
    """
    guess, truth = _same_length(predicted=predicted, measured=measured)
    low, high = np.full(guess.shape, np.nan), np.full(guess.shape, np.nan)
    weights = setup_weights(setups)
    for members in _groups(sources):
        others = np.setdiff1d(np.arange(guess.size), members)
        if others.size:
            least, most = range_floor(guess[others], truth[others], share=share, weights=weights[others])
            low[members], high[members] = guess[members] / least, guess[members] * most
    return low, high


def _groups(setups: Sequence[Hashable]) -> Iterator[list[int]]:
    members: dict[Hashable, list[int]] = {}
    for place, setup in enumerate(setups):
        members.setdefault(setup, []).append(place)
    return iter(members.values())


def _same_length(**columns: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    (first, one), (second, other) = (
        (name, np.atleast_1d(require_range(name, column, above=0))) for name, column in columns.items()
    )
    if one.shape != other.shape or one.ndim != 1:
        raise InputError(second, f"must be as long as {first}, got shapes {other.shape} and {one.shape}")
    return one, other


def _of_ranges(
    low: npt.ArrayLike | None, high: npt.ArrayLike | None, truth: FloatArray, weights: FloatArray
) -> tuple[float, float, npt.NDArray[np.float64]]:
    """Coverage, median width, and which ranges reach below 1 (NaN without ranges)."""
    if low is None or high is None:
        return np.nan, np.nan, np.full(truth.shape, np.nan)
    least, most = _same_length(low=low, high=high)
    if least.shape != truth.shape or (least > most).any():
        raise InputError("high", "must be at least low, one for each row")
    inside = (least <= truth) & (truth <= most)
    return _share(inside, weights), weighted_quantile(most / least, 0.5, weights), (least < 1).astype(float)


def _share(hits: npt.NDArray[np.generic], weights: FloatArray) -> float:
    return float(np.average(hits.astype(float), weights=weights)) if hits.size else np.nan


def _correlation(one: FloatArray, other: FloatArray, weights: FloatArray) -> float:
    if one.size < 3 or np.ptp(one) < 1e-12 or np.ptp(other) < 1e-12:
        return np.nan
    covariance = np.cov(one, other, aweights=weights)
    return float(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))
