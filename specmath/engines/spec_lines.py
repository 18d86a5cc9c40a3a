"""The `SpecDecoding metrics` line of vLLM's V1 engine, whose wording LMDeploy took over.

Each line covers one interval and is then reset, so lines are added up. None prints the number of drafts; it
is recovered from the rounded figures: accepted/(length − 1), accepted/Σ positions, at most k tokens a draft.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Final

from specmath.checks import MAX_COUNT
from specmath.engines.spec_counts import added
from specmath.engines.telemetry import ReportedRate
from specmath.results import Advice

MARK: Final = "SpecDecoding metrics: "
_ACCEPTED: Final = re.compile(r"\bAccepted: (\d{1,16}) tokens\b")
_DRAFTED: Final = re.compile(r"\bDrafted: (\d{1,16}) tokens\b")
_LENGTH: Final = re.compile(r"\bMean acceptance length: (\d{1,6}\.\d+)(?=,|$)")
_POSITIONS: Final = re.compile(r"\bPer-position acceptance rate: ([\d., ]+)")
_POSITION_ERROR: Final = 0.0005001
"""Half of the last digit printed, and a little for the floats."""
_LENGTH_ERROR: Final = 0.005001


@dataclass(frozen=True, slots=True)
class SpecLine:
    """One line: counts, and the figures that are rounded.

    Attributes:
        accepted, drafted: Draft tokens of the interval.
        length: Mean acceptance length as printed; None where not told.
        positions: Shares of the drafts that reached each position.
    """

    accepted: int
    drafted: int
    length: float | None = None
    positions: tuple[float, ...] = ()


def spec_line(line: str) -> SpecLine | None:
    """The figures of a line; None where it is another one, is cut off, or contradicts itself.

    >>> spec_line("SpecDecoding metrics: Accepted: 1284 tokens, Drafted: 2400 tokens")
    SpecLine(accepted=1284, drafted=2400, length=None, positions=())
    """
    _, mark, rest = line.partition(MARK)
    accepted, drafted = _ACCEPTED.search(rest), _DRAFTED.search(rest)
    if not (mark and accepted and drafted):
        return None
    if int(accepted[1]) > int(drafted[1]) or int(drafted[1]) > MAX_COUNT:
        return None
    length, positions = _LENGTH.search(rest), _POSITIONS.search(rest)
    found = SpecLine(
        int(accepted[1]),
        int(drafted[1]),
        float(length[1]) if length else None,
        _shares(positions[1]) if positions else (),
    )
    return found if _agrees(found) else None


def _agrees(line: SpecLine) -> bool:
    """Whether length and positions tell the same, the bonus token in or out; a line that was cut does not."""
    if line.length is None or not line.positions or not line.drafted:
        return True
    gap = line.length - sum(line.positions)
    error = _LENGTH_ERROR + _POSITION_ERROR * len(line.positions)
    return min(abs(gap), abs(gap - 1)) <= error


def _shares(text: str) -> tuple[float, ...]:
    """Shares that never grow; empty where one is no share, as in a line that was cut."""
    parts = text.strip(" ,").split(", ")
    if not all(re.fullmatch(r"[01]\.\d{3}", part) for part in parts):
        return ()
    shares = tuple(map(float, parts))
    ordered = all(after <= before for before, after in zip((1.0, *shares), shares, strict=False))
    return shares if ordered else ()


@dataclass(frozen=True, slots=True)
class Drafts:
    """How many drafts a line covers: the likeliest number, and what the rounding leaves open."""

    low: float
    likely: float
    high: float


def drafts_of(line: SpecLine) -> Drafts | None:
    """The number of drafts behind the figures; None where neither length nor positions are printed.

    Where full-length drafts, drafted/k, agree with the rounded figures they are taken, since most drafters
    draft nothing else; otherwise the middle of what agrees.

    >>> drafts_of(SpecLine(3250, 6000, 2.62, (0.75, 0.525, 0.35)))
    Drafts(low=2000.0, likely=2000.0, high=2001.0)
    """
    if line.drafted == 0:
        return Drafts(0.0, 0.0, 0.0)
    if line.length is None and not line.positions:
        return None
    full = line.drafted / len(line.positions) if line.positions else 1.0
    low, high = math.ceil(full), line.drafted
    for lowest, highest in (_by_positions(line), _by_length(line)):
        inside = max(low, math.ceil(lowest)), math.floor(min(high, highest))
        if inside[0] <= inside[1]:  # else the engine left invalid draft tokens out of `drafted`
            low, high = inside
    if line.accepted == 0:  # nothing tells, and no rate depends on it
        return Drafts(float(low), float(low), float(low))
    likely = low if line.positions and low == full else round((low + high) / 2)
    return Drafts(float(low), float(likely), float(high))


def _by_positions(line: SpecLine) -> tuple[float, float]:
    error = sum(_POSITION_ERROR for share in line.positions)
    return _quotients(line.accepted, sum(line.positions), error)


def _by_length(line: SpecLine) -> tuple[float, float]:
    """From the length; that of 0.8.5 leaves the bonus out, which the positions give away."""
    if line.length is None:
        return 0.0, math.inf
    share = sum(line.positions)
    without_bonus = bool(line.positions) and abs(line.length - share) < abs(line.length - 1 - share)
    return _quotients(line.accepted, line.length - (0 if without_bonus else 1), _LENGTH_ERROR)


def _quotients(accepted: int, per_draft: float, error: float) -> tuple[float, float]:
    if accepted == 0:
        return 0.0, math.inf
    lowest = accepted / (per_draft + error) if per_draft + error > 0 else 0.0
    return lowest, accepted / (per_draft - error) if per_draft > error else math.inf


@dataclass
class Intervals:
    """Lines added up in constant memory."""

    lines: int = 0
    accepted: int = 0
    drafted: int = 0
    drafts: Drafts | None = field(default_factory=lambda: Drafts(0.0, 0.0, 0.0))
    positions: tuple[float, ...] = ()
    unplaced: int = 0
    barren: int = 0
    lengths: set[int] = field(default_factory=set)

    def add(self, line: SpecLine) -> None:
        """Take one more line."""
        drafts = drafts_of(line)
        self.lines += 1
        self.accepted += line.accepted
        self.drafted += line.drafted
        if drafts is None or self.drafts is None:
            self.drafts = None
            return
        self.drafts = Drafts(
            *(one + other for one, other in zip(_ends(self.drafts), _ends(drafts), strict=True))
        )
        self.unplaced += bool(line.drafted and not line.positions)
        self.barren += bool(line.drafted and not line.accepted)
        if line.positions:
            self.lengths.add(len(line.positions))
            self.positions = added(self.positions, _reached(line, drafts.likely))

    @property
    def k(self) -> int | None:
        """Positions of the longest line."""
        return max(self.lengths, default=None)

    @property
    def varies(self) -> bool:
        """Whether drafts were shorter than k."""
        if self.k is None or self.drafts is None:
            return False
        return len(self.lengths) > 1 or self.drafted < self.k * self.drafts.low - 0.5

    def reached(self) -> tuple[float, ...]:
        """Drafts that reached each position; empty where lines hid theirs."""
        return () if self.unplaced or self.drafts is None else self.positions

    def rate(self, name: str) -> ReportedRate | None:
        """The engine's rate of all lines together."""
        if not self.drafted:
            return None
        return ReportedRate(name=name, value=self.accepted / self.drafted, meaning="accepted/drafted")

    def notes(self) -> tuple[Advice, ...]:
        """How the drafts were found, and how far off they may be."""
        if self.drafts is None:
            text = "the log of vLLM 0.8.3 and 0.8.4 tells neither drafts nor positions"
            return (Advice(code="no-drafts-counter", text=text, remedy="give k, or use vLLM 0.8.5 or newer"),)
        if not self.drafts.likely:
            return ()
        off = max(self.drafts.high - self.drafts.likely, self.drafts.likely - self.drafts.low)
        lines = "1 log line" if self.lines == 1 else f"{self.lines} log lines"
        text = f"{self.drafts.likely:.0f} drafts were recovered from rounded figures of {lines}"
        if off:
            text += f", within {100 * off / self.drafts.likely:.2g} %"
        if self.barren:
            text += f"; full length was taken in {self.barren} of them, which accepted nothing"
        remedy = "read /metrics instead, which counts drafts"
        return (Advice(code="drafts-recovered", text=text, remedy=remedy),)


def _ends(drafts: Drafts) -> tuple[float, float, float]:
    return drafts.low, drafts.likely, drafts.high


def _reached(line: SpecLine, drafts: float) -> tuple[float, ...]:
    """Drafts by position: whole numbers where three digits tell them, else shares of the tokens accepted."""
    whole = tuple(float(round(share * drafts)) for share in line.positions)
    if sum(whole) == line.accepted:
        return whole
    share = sum(line.positions)
    return tuple(min(drafts, line.accepted * one / share) for one in line.positions) if share else whole
