"""Tokens that steps yield, drawn from the law of accepted tokens of each class of traffic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, IntArray
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw

_STREAM_TOKENS = 2**15
"""Draws made at a time: each costs some ten nanoseconds then, a call by itself a hundred times as much."""


class Yields:
    """Tokens per sequence and step, 1 + accepted, as one endless stream for each class and k.

    A stream is read in order and depends on nothing but its seed, so that the tokens of a run do not depend
    on how many steps are taken at a time.
    """

    def __init__(self, laws: Sequence[AcceptanceLaw], ks: Iterable[int], entropy: Sequence[int]) -> None:
        self._streams = {
            (place, k): _Stream(_lost(law, k), np.random.default_rng([*entropy, place, k]))
            for place, law in enumerate(laws)
            for k in set(ks)
        }

    def ahead(self, class_index: int, k: int, count: int) -> IntArray:
        """The next `count` draws, which stay in the stream until they are `taken`."""
        return self._streams[class_index, k].ahead(count)

    def taken(self, class_index: int, k: int, count: int) -> None:
        """Leave the next `count` draws behind."""
        self._streams[class_index, k].at += count


class _Stream:
    """Draws of 1 + accepted by the inverse of the law's distribution function."""

    def __init__(self, lost: FloatArray, rng: np.random.Generator) -> None:
        self.lost = lost
        self.rng = rng
        self.held: IntArray = np.empty(0, dtype=np.int64)
        self.at = 0

    def ahead(self, count: int) -> IntArray:
        if self.at + count > self.held.size:
            fresh = self.rng.random(max(count, _STREAM_TOKENS))
            drawn = 1 + np.searchsorted(self.lost, fresh, side="right")
            self.held, self.at = np.concatenate([self.held[self.at :], drawn]), 0
        return self.held[self.at : self.at + count]


def _lost(law: AcceptanceLaw, k: int) -> FloatArray:
    """P(N ≤ j) for j = 0 … k − 1; a uniform draw at or above it has more than j accepted."""
    chances = law.accepted_pmf(k)
    if chances.ndim != 1:
        raise InputError("law", "must be one law for each class here, without arrays")
    return np.asarray(np.minimum(chances[:-1].cumsum(), 1.0))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Steps of decoding that go by at once.

    Attributes:
        steps: How many.
        yields: Tokens of each sequence, or of every one.
        total: Tokens in all.
        last: Those of the last step.
    """

    steps: int
    yields: IntArray | int
    total: int
    last: int


def stretch_of(draws: IntArray, left: IntArray, spare: float) -> Stretch:
    """Steps up to the first finish or the end of the room, whichever comes first.

    A step may be taken while the tokens of those before it leave its look-ahead slots free.

    Args:
        draws: Tokens of steps to come, one row a step, one column a sequence.
        left: Tokens that each sequence lacks.
        spare: Tokens for which there is room beside the look-ahead slots.
    """
    if len(draws) == 1:
        total = int(draws[0].sum())
        return Stretch(1, draws[0], total, total)
    reached = draws.cumsum(axis=0)
    filled = reached.sum(axis=1)
    steps = min(len(draws), 1 + int(np.searchsorted(filled, spare, side="right")))
    finishing: npt.NDArray[np.bool_] = np.any(reached >= left, axis=1)
    first = int(finishing.argmax())
    if finishing[first]:
        steps = min(steps, first + 1)
    total = int(filled[steps - 1])
    return Stretch(steps, reached[steps - 1], total, total - int(filled[steps - 2]) if steps > 1 else total)
