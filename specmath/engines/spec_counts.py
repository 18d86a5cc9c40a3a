"""Counts as engines tell them: what may be one, how positions line up, and a record checked for sense."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

from specmath.checks import MAX_COUNT
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError, shown

MAX_POSITIONS: Final = 10_000
"""Most draft positions an engine may report; drafters go to a few dozen."""


def count(value: Any) -> float | None:
    """`value` where it can be a count, else None: a number, finite, not negative, at most 2**53.

    >>> count(3), count(2.0), count(-1), count(float("nan")), count("3"), count(True)
    (3.0, 2.0, None, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= MAX_COUNT else None


def counts(values: Any, *, most: int = MAX_POSITIONS) -> tuple[float, ...]:
    """A list of counts; empty where it is no list, is longer than `most`, or an entry is no count.

    >>> counts([3, 1]), counts([3, -1])
    ((3.0, 1.0), ())
    """
    if not isinstance(values, list | tuple) or len(values) > most:
        return ()
    found = [count(value) for value in values]
    return () if None in found else tuple(value for value in found if value is not None)


def added(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    """Two histograms or lists of positions added, the shorter one ending in zeros.

    >>> added((5, 2), (1, 1, 1))
    (6, 3, 1)
    """
    length = max(len(first), len(second))
    padded = [(*values, *[0] * (length - len(values))) for values in (first, second)]
    return tuple(one + other for one, other in zip(*padded, strict=True))


def tail_sums(histogram: Sequence[float]) -> tuple[float, ...]:
    """Steps that accepted at least 1, 2, … tokens, from the steps that accepted 0, 1, … of them.

    >>> tail_sums((39, 1, 0, 3))
    (4, 3, 3)
    """
    sums: list[float] = []
    for steps in reversed(histogram[1:]):
        sums.append(steps + (sums[-1] if sums else 0))
    return tuple(reversed(sums))


def mean(total: float | None, number: float | None) -> float | None:
    """total/number, None where it does not exist, or only as infinity: number may be any float of a file.

    >>> mean(3, 2), mean(3, 0), mean(3, 1e-310)
    (1.5, None, None)
    """
    if total is None or not number:
        return None
    quotient = total / number
    return quotient if math.isfinite(quotient) else None


def total(values: Iterable[float | None]) -> float | None:
    """The sum of what is told; None where nothing is.

    >>> total([1, None, 2]), total([None])
    (3, None)
    """
    told = [value for value in values if value is not None]
    return sum(told) if told else None


def require_possible(telemetry: Telemetry) -> Telemetry:
    """The same record; DataError where its counts contradict each other beyond rounding.

    No draft can have more tokens accepted than it drafted, every draft holds at least one token, and a
    position is reached no more often than the one before it. Rounded sources are given 1 %, and one.
    """
    for part, whole, rule in _bounds(telemetry):
        if part > whole * 1.01 + 1:
            where = telemetry.source or telemetry.engine
            problem = f"{rule}, {part:.12g} against {whole:.12g}: no running engine counts so"
            raise DataError(where, f"{problem}; take it again", entry=_entry(telemetry))
    return telemetry


def _bounds(telemetry: Telemetry) -> Iterator[tuple[float, float, str]]:
    """A part, the whole it cannot exceed, and what is wrong where it does."""
    drafts, drafted, accepted = telemetry.drafts, telemetry.drafted, telemetry.accepted
    if drafted is not None:
        yield accepted or 0, drafted, "more draft tokens were accepted than drafted"
        yield drafts or 0, drafted, "there are more drafts than draft tokens"
    first = math.inf if drafts is None else drafts
    for before, after in pairwise((first, *telemetry.accepted_at)):
        yield after, before, "more drafts reached a position than the one before it"


def _entry(telemetry: Telemetry) -> str:
    return "" if telemetry.model is None else f"model {shown(telemetry.model)}"
