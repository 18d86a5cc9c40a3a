"""What to ask a Prometheus server for: `prometheus:URL?range=14d&step=5m&match=model_name="x"`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, isfinite
from typing import Final
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from specmath.engines.addresses import parse_address, shown_url
from specmath.errors import InputError, shown

PREFIX: Final = "prometheus:"
MAX_POINTS: Final = 11_000
"""Most points of a series that Prometheus gives out at once; here those of a whole range."""
_OPTIONS: Final = ("range", "step", "end", "match")
_DURATION: Final = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|[smhdwy])){1,8}")
_PART: Final = re.compile(r"([\d.]+)(ms|[smhdwy])")
_SECONDS: Final = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_MATCHER: Final = re.compile(r'([A-Za-z_]\w{0,99})(=~|!~|!=|=)("[^"\\]{0,500}"|[^",{}\\]{1,500})')


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What to ask a Prometheus server for: its address, seconds since 1970, seconds, label matchers."""

    url: str
    start_s: float
    end_s: float
    step_s: float
    matchers: str = ""

    @property
    def shown(self) -> str:
        """The server and the time, for messages."""
        return f"{shown_url(self.url)} over {lasting(self.end_s - self.start_s)}"


def parse_range(source: str, now_s: float, points: int = 1_000) -> Range:
    """What a `prometheus:URL` asks for, in so many points if it names no step; InputError where malformed.

    >>> asked = parse_range("prometheus:http://host:9090?range=2h&step=1m", 10_000)
    >>> asked.url, asked.start_s, asked.step_s
    ('http://host:9090', 2800.0, 60.0)
    """
    where = source.removeprefix(PREFIX).strip().removeprefix("//")
    try:
        parts = urlsplit(where if "://" in where else f"http://{where}")
    except ValueError as error:
        raise InputError("source", f"{shown(source)} is no address ({error})") from error
    options = parse_qsl(parts.query, keep_blank_values=True)
    given = dict(options)
    if strays := [key for key in given if key not in _OPTIONS]:
        taken = f"prometheus:URL takes {', '.join(_OPTIONS)}"
        raise InputError("source", f"unknown option {shown(strays[0])}; {taken}")
    end_s = _moment(given["end"]) if "end" in given else now_s
    range_s = _duration("range", given.get("range", "1d"))
    step_s = _duration("step", given["step"]) if "step" in given else max(15.0, ceil(range_s / points))
    if not 1 <= range_s / step_s <= MAX_POINTS:
        problem = f"range over step must be from 1 to {MAX_POINTS:,}, got {range_s / step_s:.6g}"
        raise InputError("source", f"{problem}; change ?step=")
    matchers = ",".join(_matchers(value) for key, value in options if key == "match")
    path = parts.path.rstrip("/").removesuffix("/api/v1")
    url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    parse_address(url)  # so that an error shows what was typed, not the query that is made of it
    return Range(url=url, start_s=end_s - range_s, end_s=end_s, step_s=step_s, matchers=matchers)


def _duration(name: str, typed: str) -> float:
    if not _DURATION.fullmatch(typed):
        raise InputError("source", f"?{name}= must be a time as 14d, 6h or 5m, got {shown(typed)}")
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(typed))
    if not 0 < seconds <= 10 * _SECONDS["y"]:
        raise InputError("source", f"?{name}= must be above 0 and at most 10y, got {shown(typed)}")
    return seconds


def _moment(typed: str) -> float:
    try:
        seconds = float(typed) if re.fullmatch(r"[\d.]+", typed) else _instant(typed)
    except (ValueError, OverflowError):
        seconds = float("nan")
    if not (isfinite(seconds) and 0 <= seconds < 1e11):
        raise InputError("source", f"?end= must be a time as 2026-11-01T12:00 in UTC, got {shown(typed)}")
    return seconds


def _instant(typed: str) -> float:
    moment = datetime.fromisoformat(typed)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _matchers(typed: str) -> str:
    """Label matchers as PromQL has them; quotes may be left out."""
    written, rest = [], typed.strip().removeprefix("{").removesuffix("}")
    while rest:
        match = _MATCHER.match(rest)
        if match is None or rest[match.end() :][:1] not in ("", ","):
            raise InputError(
                "source", f'?match= takes matchers as model_name="x",job="y", got {shown(typed)}'
            )
        label, sign, value = match.groups()
        written.append(f'{label}{sign}"{value.strip(chr(34))}"')
        rest = rest[match.end() + 1 :].strip()
    return ",".join(written)


def lasting(seconds: float) -> str:
    """A span of time in its largest fitting unit.

    >>> lasting(14 * 86_400), lasting(90), lasting(5400)
    ('14 d', '90 s', '90 min')
    """
    for name, unit in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= unit and seconds % unit < 1e-6 * seconds:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:g} s"
