"""How far a set-up is from those that were measured, and what that adds to the error of a forecast."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray
from specmath.verdicts import REPEAT_NOISE

DRIFT = 0.17
"""How the error of an anchored profile grows with the distance from what was measured: this times the root of
the doublings counted by `doublings_away`.

Set on 417 public measurements of 87 set-ups, each anchoring every other of its set-up, set-ups counting once:
no `covering_drift` at a share of 80 % that all sources but one ask for, whichever is left out, is larger.
With it 82 % lie within the range, whose mean half-width of 21 % is less than half that of the profile alone.
By the rows `set-ups of several rows` of `specmath accuracy`, run in November 2026, the anchor takes the
median error of the speed-up from 13 % to 7 %, the ninetieth percentile from 34 % to 31 %."""
DATASHEET_DRIFT = 0.35
"""The same of a source that knows no range of its own: the ideal roofline, on the same measurements."""
CONTEXT_SHARE = 0.25
"""Weight of a doubling of context among distances: over context alone the same errors grow that much less."""
CONTEXT_GRAIN = 1024.0
"""Tokens of context that make no difference: doublings of context are counted beyond them."""
SPANNED = 3
"""Values measured of an axis from which on the error between them is that of leaving one out."""
Place = tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]
"""Where a set-up stands: k, batch, context, width and passes."""


def doublings_away(points: Collection[tuple[float, float, float, float, float]], place: Place) -> FloatArray:
    """Doublings of k + 1, batch, context (those a quarter), widening and passes to what was measured.

    A chain of k verifies k + 1 tokens and drafts k times; a tree that verifies N tokens is log2(N/(k + 1))
    doublings from it, a drafter of fewer passes as many as it has fewer. The nearest point counts; along an
    axis with `SPANNED` values or more, their span.

    Args:
        points: k, batch, context, width and passes of each measured set-up.
        place: The same of those asked about; they broadcast.

    >>> doublings_away([(3, 8, 0, 4, 3)], (3, [8, 32], 0, 4, 3)).tolist()
    [0.0, 2.0]
    >>> doublings_away([(3, 8, 0, 4, 3)], (3, 8, 0, [4, 64], 3)).tolist()  # a tree of 64 nodes
    [0.0, 4.0]
    """
    axes = _axes(*place)
    spans = [np.unique(axis) for axis in _axes(*np.transpose(list(points)))]
    distance = np.zeros(np.broadcast_shapes(*(axis.shape for axis in axes)))
    near = [number for number, values in enumerate(spans) if values.size < SPANNED]
    for number, values in enumerate(spans):
        if number not in near:
            beyond = np.maximum(values[0] - axes[number], axes[number] - values[-1])
            distance = distance + np.maximum(beyond, 0)
    nearest = np.full(distance.shape, np.inf) if near else np.zeros(distance.shape)
    for point in {tuple(float(_axes(*point)[number]) for number in near) for point in points}:
        steps = np.zeros(distance.shape)
        for number, value in zip(near, point, strict=True):
            steps = steps + np.abs(axes[number] - value)
        nearest = np.minimum(nearest, steps)
    return np.asarray(distance + nearest)


def covering_drift(
    errors: npt.ArrayLike,
    doublings: npt.ArrayLike,
    *,
    share: float,
    weights: npt.ArrayLike,
    own: npt.ArrayLike = np.inf,
) -> float:
    """The least drift with which a share of anchored forecasts lies within the range; infinite if none does.

        |error| ≤ min(sqrt(w² + drift²·D), own), w the logarithm of 1 + the repeat noise

    Args:
        errors: log(predicted/measured) of each forecast.
        doublings: D, its distance from the anchor.
        share: Share of the weight to be covered, in (0, 1].
        weights: Weight of each forecast.
        own: Log half-width of the range of the source itself, which caps it.

    >>> round(covering_drift([0.0, 0.5, 0.9], [1, 4, 1], share=0.6, weights=[1, 1, 1]), 3)  # (0.25 - 0.006)/4
    0.247
    """
    missed, away = np.abs(np.asarray(errors, dtype=float)), np.asarray(doublings, dtype=float)
    weight = np.asarray(weights, dtype=float)
    beyond = np.maximum(missed**2 - np.log1p(REPEAT_NOISE) ** 2, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.where(beyond > 0, np.sqrt(beyond / away), 0.0)
    needed = np.where(missed > own, np.inf, needed)
    order = np.argsort(needed, kind="stable")
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(needed[order][np.searchsorted(reached, share - 1e-12)])


def _axes(
    k: npt.ArrayLike,
    batch: npt.ArrayLike,
    context: npt.ArrayLike,
    width: npt.ArrayLike,
    passes: npt.ArrayLike,
) -> tuple[FloatArray, ...]:
    """Where set-ups stand on axes whose unit is a doubling."""
    drafts, sequences, cached, tokens, runs = (
        np.asarray(value, dtype=float) for value in (k, batch, context, width, passes)
    )
    return (
        np.asarray(np.log2(drafts + 1)),
        np.asarray(np.log2(sequences)),
        np.asarray(CONTEXT_SHARE * np.log2(cached + CONTEXT_GRAIN)),
        np.asarray(np.log2(tokens / (drafts + 1))),
        np.asarray(np.log2((runs + 1) / (drafts + 1))),
    )
