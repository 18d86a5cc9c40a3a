"""What the times of a part are sums of: cells as arrays, and one column for each constant of a law."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.calibrations import Cell
from specmath.checks import FloatArray
from specmath.errors import InputError
from specmath.experts import expected_experts
from specmath.fitting import BoolArray, least_squares
from specmath.pass_laws import MAX_SHARPNESS

LEAST_SHARPNESS = 1.1
"""Below, a corner is all but a plain sum, in which its two fixed times are one."""
TRIED = (6, 16)
REFINED = 4
"""How many sharpnesses and corners are tried, and how many of the best of them are refined."""
FINEST = 1e-5
"""Step in 1/s and log c at which refining ends: far below what noise leaves open."""
MOST_STEPS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Cells of one part as arrays, one entry each."""

    batch: FloatArray
    width: FloatArray
    context: FloatArray
    seconds: FloatArray

    @classmethod
    def of(cls, cells: Sequence[Cell], part: str) -> Sizes:
        """The cells of one part, in their order.

        Raises:
            InputError: where there are none, or one takes no time.
        """
        chosen = [cell for cell in cells if cell.place.part == part]
        if not chosen:
            raise InputError("cells", f"must hold at least one of part {part}")
        if not all(0 < cell.seconds < float("inf") for cell in chosen):
            raise InputError("cells", f"must take more than 0 seconds each; one of part {part} does not")
        return cls(
            batch=np.array([float(cell.place.batch) for cell in chosen]),
            width=np.array([float(cell.place.width) for cell in chosen]),
            context=np.array([float(cell.place.context) for cell in chosen]),
            seconds=np.array([float(cell.seconds) for cell in chosen]),
        )

    def at(self, chosen: BoolArray) -> Sizes:
        """The entries chosen."""
        return Sizes(
            batch=self.batch[chosen],
            width=self.width[chosen],
            context=self.context[chosen],
            seconds=self.seconds[chosen],
        )

    @property
    def tokens(self) -> FloatArray:
        """t = B·q, tokens of a pass."""
        return self.batch * self.width

    @property
    def cached(self) -> FloatArray:
        """KV = B·C, tokens in the cache."""
        return self.batch * self.context

    @property
    def alike(self) -> npt.NDArray[np.int64]:
        """A number for each batch and width."""
        places = np.stack([self.batch, self.width], axis=-1)
        return np.unique(places, axis=0, return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Which terms a law of the target's pass has beside reading weights and computing tokens.

    Attributes:
        rereads: Whether the cache may be read once more per further token of a sequence.
        expert_counts: N routed experts of a layer and K that a token visits; None for a dense model.
    """

    rereads: bool = True
    expert_counts: tuple[int, int] | None = None

    def sum_columns(self, sizes: Sizes) -> dict[str, FloatArray]:
        """Columns of the plain sum, by the name of the constant."""
        straight = {"weights_s": np.ones(sizes.tokens.size), "compute_s_per_token": sizes.tokens}
        return straight | self.further_columns(sizes)

    def corner_columns(self, sizes: Sizes, sharpness: float, corner: float) -> dict[str, FloatArray]:
        """Columns of the form with a corner at `corner` tokens: its slopes in its constants, there.

        The term (w^s + (τ·t)^s)^(1/s) is the sum of its slopes in w and τ, each times the constant, since it
        doubles with both; so these columns rebuild it. That of the sharpness is for τ = 1.
        """
        tokens, s = sizes.tokens, sharpness
        height = corner_height(tokens, sharpness, corner)
        power = (np.minimum(tokens, corner) / np.maximum(tokens, corner)) ** s
        turn = power * np.log(np.minimum(tokens, corner) / np.maximum(tokens, corner)) / (s * (1 + power))
        edge = {
            "weights_s": (corner / height) ** (s - 1),
            "compute_s_per_token": tokens * (tokens / height) ** (s - 1),
            "sharpness": height * (turn - np.log1p(power) / s**2),
        }
        return edge | self.further_columns(sizes, with_corner=True)

    def further_columns(self, sizes: Sizes, *, with_corner: bool = False) -> dict[str, FloatArray]:
        """Columns of what is neither reading weights nor computing."""
        further = {}
        if with_corner:
            further["fixed_s"] = np.ones(sizes.tokens.size)
        if np.ptp(sizes.cached) > 0:  # else it is not told from a fixed time
            further["kv_once"] = sizes.cached
            if self.rereads:
                further["kv_each"] = sizes.cached * sizes.width
        if self.expert_counts is not None:
            experts, top_k = self.expert_counts
            further["experts_s"] = np.asarray(expected_experts(experts, top_k, sizes.tokens)) / experts
        return further


def corner_height(tokens: FloatArray, sharpness: float, corner: float) -> FloatArray:
    """(corner^s + t^s)^(1/s), without powers that overflow.

    >>> corner_height(np.array([3.0]), 2.0, 4.0).tolist()
    [5.0]
    """
    ratio = np.minimum(tokens, corner) / np.maximum(tokens, corner)
    return np.asarray(np.maximum(tokens, corner) * (1 + ratio**sharpness) ** (1 / sharpness))


class CornerSolver:
    """Finds sharpness s and corner c = w/τ for given weights: the best of a few, then along the tangent.

    At one s and c all else is linear, the height h = (c^s + t^s)^(1/s) being the column of τ.
    """

    def __init__(self, sizes: Sizes, terms: Terms) -> None:
        columns = terms.corner_columns(sizes, 2.0, 1.0)
        self.names = tuple(columns)
        self.signed = np.array([name == "sharpness" for name in columns])
        self._sizes, self._terms = sizes, terms
        self._least = np.array([1 / MAX_SHARPNESS, math.log(sizes.tokens.min() / 4)])
        self._most = np.array([1 / LEAST_SHARPNESS, math.log(sizes.tokens.max() * 4)])
        self._linear = list(terms.further_columns(sizes, with_corner=True).values())
        self._place: FloatArray | None = None
        self._retries = 2

    @property
    def sharpness(self) -> float:
        """s as it was found last."""
        return 1.0 if self._place is None else float(1 / self._place[0])

    def __call__(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slopes over the measured times, and coefficients; that of the sharpness is 0: none is better."""
        starts = [] if self._place is None else [self._place]
        at_sharpest = bool(starts) and starts[0][0] <= self._least[0]  # where a wrong start gets stuck
        if not starts or (at_sharpest and self._retries):
            starts += self._best_tried(weights)
            self._retries -= at_sharpest
        ends = [self._refined(place, weights) for place in starts]
        self._place = min(ends, key=lambda place: self._miss(place, weights))
        return self._tangent(self._place, weights)

    def _tangent(self, place: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        sharpness, corner = _named(place)
        compute_s, *others = self._solved(self._rows(place), weights, 0).tolist()
        columns = self._terms.corner_columns(self._sizes, sharpness, corner)
        room = float(min(place[0] - self._least[0], self._most[0] - place[0]))
        columns["sharpness"] = columns["sharpness"] * (compute_s if room > FINEST else 0.0)
        edge = {"weights_s": compute_s * corner, "compute_s_per_token": compute_s, "sharpness": 0.0}
        rest = iter(others)
        coefficients = [edge[name] if name in edge else next(rest) for name in columns]
        return np.stack(list(columns.values()), axis=-1) / self._sizes.seconds[:, None], np.array(
            coefficients
        )

    def _best_tried(self, weights: FloatArray) -> list[FloatArray]:
        axes = [np.linspace(*ends) for ends in zip(self._least, self._most, TRIED, strict=True)]
        places = [np.array(place) for place in itertools.product(*axes)]
        return sorted(places, key=lambda place: self._miss(place, weights))[:REFINED]

    def _refined(self, place: FloatArray, weights: FloatArray) -> FloatArray:
        for _ in range(MOST_STEPS):
            place, last = self._nearer(place, weights), place
            if np.max(np.abs(place - last)) < FINEST:
                break
        return place

    def _nearer(self, place: FloatArray, weights: FloatArray) -> FloatArray:
        """Where the tangent has the best place, or as far on the way as the fit gets better."""
        sharpness, corner = _named(place)
        columns = self._terms.corner_columns(self._sizes, sharpness, corner)
        slopes = np.stack([-(sharpness**2) * columns["sharpness"], corner * columns["weights_s"]], axis=-1)
        rows = np.concatenate([slopes / self._sizes.seconds[:, None], self._rows(place)], axis=1)
        *moved, compute_s = self._solved(rows, weights, 2)[:3].tolist()
        if not compute_s > 0:
            return place
        way, least = np.array(moved) / compute_s, self._miss(place, weights)
        for share in (1.0, 0.5, 0.25, 0.1):
            there: FloatArray = np.clip(place + share * way, self._least, self._most)
            if self._miss(there, weights) < least:
                return there
        return place

    def _rows(self, place: FloatArray) -> FloatArray:
        """Columns of all that is linear at one place, over the measured times, that of τ first."""
        height = corner_height(self._sizes.tokens, *_named(place))
        return np.stack([height, *self._linear], axis=-1) / self._sizes.seconds[:, None]

    def _solved(self, rows: FloatArray, weights: FloatArray, signed: int) -> FloatArray:
        may_be_below_0 = np.arange(rows.shape[1]) < signed
        return least_squares(rows, np.ones(len(rows)), weights=weights, signed=may_be_below_0)

    def _miss(self, place: FloatArray, weights: FloatArray) -> float:
        rows = self._rows(place)
        errors = rows @ self._solved(rows, weights, 0) - 1
        return float(np.sum(weights * errors**2))


def _named(place: FloatArray) -> tuple[float, float]:
    """Sharpness and corner of a place, which is (1/s, log c): a law moves evenly with these two."""
    return 1 / float(place[0]), math.exp(float(place[1]))
