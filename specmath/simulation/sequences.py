"""The running sequences of a replica: those whose prompt is being read, and those that decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, IntArray


@dataclass(slots=True)
class Prompt:
    """A request that is admitted, with the tokens of it still to be prefilled."""

    request: int
    left: int


@dataclass(frozen=True, slots=True)
class Decoder:
    """One decoding request.

    Attributes:
        request: Its number.
        left: Tokens still to come.
        longest_gap_s: Longest time between two of its deliveries so far.
        origin: Steps that the replica had taken before the request's first delivery, had it been served in
            every step since.
    """

    request: int
    left: int
    longest_gap_s: float
    origin: int


@dataclass(frozen=True, slots=True)
class PutBack:
    """What a preempted request keeps: the tokens it has got, how they came, and when the last one did."""

    emitted: int
    deliveries: int
    longest_gap_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class Decoders:
    """The decoding requests in order of admission, as parallel arrays of the fields of `Decoder`."""

    requests: IntArray
    left: IntArray
    longest_gap_s: FloatArray
    origin: IntArray

    @classmethod
    def of(cls, decoders: Sequence[Decoder]) -> Decoders:
        """These requests, in their order."""
        requests, left, origin = (
            np.array(values, dtype=np.int64)
            for values in (
                [one.request for one in decoders],
                [one.left for one in decoders],
                [one.origin for one in decoders],
            )
        )
        return cls(requests, left, np.array([one.longest_gap_s for one in decoders], dtype=float), origin)

    def __len__(self) -> int:
        return self.requests.size

    def chosen(self, which: npt.NDArray[np.bool_] | slice) -> Decoders:
        """Some of them, in order."""
        return Decoders(self.requests[which], self.left[which], self.longest_gap_s[which], self.origin[which])

    def with_more(self, other: Decoders) -> Decoders:
        """Others behind them."""
        return Decoders(
            np.concatenate([self.requests, other.requests]),
            np.concatenate([self.left, other.left]),
            np.concatenate([self.longest_gap_s, other.longest_gap_s]),
            np.concatenate([self.origin, other.origin]),
        )

    @property
    def last(self) -> Decoder:
        """The one admitted last."""
        return Decoder(
            int(self.requests[-1]), int(self.left[-1]), float(self.longest_gap_s[-1]), int(self.origin[-1])
        )
