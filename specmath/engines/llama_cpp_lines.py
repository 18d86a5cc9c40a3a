"""What the lines of llama.cpp's log say: those of a request, and the cumulative ones of each way to draft."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, floor
from typing import Final

from specmath.engines.spec_counts import mean
from specmath.engines.telemetry import ReportedRate
from specmath.results import Advice

METHODS: Final = {
    "draft": "draft-model",
    "draft-simple": "draft-model",
    "draft-eagle3": "eagle3",
    "draft-mtp": "mtp",
    "draft-dflash": "dflash",
    "draft-dspark": "dspark",
}
WIDEST: Final = 512
"""Draft tokens of one step that are believed."""

_RATES: Final = r"\(([0-9., ]{1,4000})\)"
_REQUEST: Final = re.compile(
    r"draft acceptance(?: rate)? = \d{1,3}\.\d{1,9} "
    r"\( {0,12}(\d{1,12}) accepted / {0,12}(\d{1,12}) generated\)"
    r"(?:, mean (?:acceptance length|len) = {0,8}(\d{1,6}\.\d{1,6}))?"
    r"(?:, acceptance rate per position = " + _RATES + ")?"
)
_POSITIONS: Final = re.compile(r"\bacc per pos = " + _RATES)
_STATISTICS: Final = re.compile(
    r"statistics {1,40}([\w-]{1,40}): #calls(?:\(b,g,a\))? = {0,20}\d{1,18}"
    r"(?: {1,20}\d{1,18} {1,20}(\d{1,18}))?,"
    r" #gen drafts = {0,20}(\d{1,18}), #acc drafts = {0,20}\d{1,18},"
    r" #gen tokens = {0,20}(\d{1,18}), #acc tokens = {0,20}(\d{1,18})"
)
_STATISTICS_RATES: Final = re.compile(r"#acc rate/pos = " + _RATES)
_DURATIONS: Final = re.compile(
    r"dur\(b,g,a\) = (\d{1,15}\.\d{1,6}), (\d{1,15}\.\d{1,6}), (\d{1,15}\.\d{1,6}) ms"
)


@dataclass(frozen=True, slots=True)
class RequestLine:
    """The line of one request: counts, and what of length and positions the build prints."""

    accepted: float
    drafted: float
    length: float | None
    rates: tuple[float, ...]

    @property
    def drafts(self) -> float | None:
        """The number of drafts for which length and positions print as they do; None where many do."""
        if not self.accepted:
            return float(ceil(self.drafted / len(self.rates))) if self.rates else None
        if self.length is None and not self.rates:
            return None
        return _full_drafts(self.drafted, *self._bounds())

    def _bounds(self) -> tuple[float, float]:
        """Fewest and most drafts with which accepted/drafts prints as it does."""
        low, high = self.drafted / WIDEST, self.drafted
        printed = ((self.length or 1) - 1, 0.005), (sum(self.rates), 0.0005 * len(self.rates))
        for extra, half in printed:  # half of the last digit
            if extra > half:
                low = max(low, self.accepted / (extra + half))
                high = min(high, self.accepted / (extra - half))
        return low, high


def _full_drafts(drafted: float, low: float, high: float) -> float:
    """The whole number within bounds that full drafts come to, all but the last; else their middle.

    >>> _full_drafts(273, 67.5, 69.3), _full_drafts(300, 70, 72)  # 69 of four tokens but the last; none
    (69.0, 71.0)
    """
    middle = round((low + high) / 2)
    widths = range(max(floor(drafted / max(high, 1)), 1), min(ceil(drafted / max(low, 1)), WIDEST) + 1)
    full = [count for count in (ceil(drafted / width) for width in widths) if low <= count <= high]
    return float(max(min(full, key=lambda count: abs(count - middle), default=middle), 1))


@dataclass(frozen=True, slots=True)
class Way:
    """What one way to draft has done since the start.

    Attributes:
        drafts: Drafts verified.
        drafted, accepted: Their tokens.
        rates: Share of drafts that accepted at least 1, 2, … tokens.
        seconds: Time spent on drafting.
    """

    drafts: float
    drafted: float
    accepted: float
    rates: tuple[float, ...]
    seconds: float | None


def request_line(line: str) -> RequestLine | None:
    """A request's acceptance.

    >>> request_line("draft acceptance = 0.64479 (  167 accepted /   259 generated), mean len =  2.92").drafts
    87.0
    """
    found = _REQUEST.search(line) if "draft acceptance" in line else None
    if found is None:
        return None
    length = float(found[3]) if found[3] else None
    return RequestLine(float(found[1]), float(found[2]), length, _rates(found[4]))


def position_line(line: str) -> tuple[float, ...]:
    """Rates by position on a line of their own; empty on any other."""
    found = _POSITIONS.search(line) if "acc per pos" in line else None
    return _rates(found[1]) if found else ()


def statistics_line(line: str) -> tuple[str, Way] | None:
    """The name of a way to draft, written with dashes, and its counts."""
    found = _STATISTICS.search(line) if "statistics " in line else None
    if found is None:
        return None
    rates, durations = _STATISTICS_RATES.search(line), _DURATIONS.search(line)
    way = Way(
        drafts=float(found[2] or found[3]),  # older builds count the drafts made, not those verified
        drafted=float(found[4]),
        accepted=float(found[5]),
        rates=_rates(rates[1]) if rates else (),
        seconds=sum(map(float, durations.groups())) / 1e3 if durations else None,
    )
    return found[1].replace("_", "-"), way


def _rates(listed: str | None) -> tuple[float, ...]:
    """Rates as printed; empty where one is no rate."""
    try:
        rates = [float(part) for part in (listed or "").split(",") if part.strip()]
    except ValueError:
        return ()
    return tuple(rates) if all(0 <= rate <= 1 for rate in rates) else ()


def counted(rates: Iterable[float], drafts: float) -> tuple[float, ...]:
    """Drafts that reached each position, from the rates as printed.

    >>> counted((0.795, 0.614, 0.466), 88)
    (70.0, 54.0, 41.0)
    """
    return tuple(float(round(rate * drafts)) for rate in rates)


def method_of(ways: Mapping[str, Way]) -> str | None:
    """How drafts are made, where all are made in one way."""
    used = {name for name, way in ways.items() if way.drafts}
    methods = {"ngram" if name.startswith("ngram") else METHODS.get(name, name) for name in used}
    return methods.pop() if len(methods) == 1 else None


def reported_rate(accepted: float, drafted: float) -> ReportedRate | None:
    """What the log calls draft acceptance."""
    rate = mean(accepted, drafted)
    return (
        None
        if rate is None
        else ReportedRate(name="draft acceptance", value=rate, meaning="accepted/drafted")
    )


def drafts_unknown(where: str) -> Advice:
    """That drafts are not counted."""
    return Advice(
        code="drafts-unknown",
        text=f"{where} no drafts: known are tokens per pass of the target, plain passes included",
        remedy="read /metrics, or the log of a build from June 2026 on; or give --k if every draft is full",
    )


def drafts_recovered() -> Advice:
    """That drafts were not counted, but follow from what is printed."""
    return Advice(
        code="drafts-recovered",
        text="the log prints no drafts: each request's number is the one that its mean length allows",
        remedy="read /metrics for counted ones",
    )


def several_ways(ways: Iterable[tuple[str, Way]]) -> Advice:
    """That drafts of several sources were taken together."""
    shares = [f"{name} {way.accepted:.0f} of {way.drafted:.0f}" for name, way in sorted(ways)]
    return Advice(
        code="several-drafters",
        text=f"drafts come from {len(shares)} sources, taken together here: {', '.join(shares[:8])}",
        remedy="run one of them alone for its own acceptance",
    )
