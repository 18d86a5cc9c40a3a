"""What readers are given: the text of a source, already taken apart into samples, lines or a document.

A reader is a function per format. `recognise` asks the formats in turn, so each must be quick to say no, and
must say yes to its own engine's output only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specmath.engines.telemetry import Telemetry
from specmath.results import Advice


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of an exposition.

    Attributes:
        name: Name with its suffix (`_total`, `_sum`, `_bucket`), colons as written.
        labels: Labels.
        value: Value; may be NaN.
    """

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposition:
    """A Prometheus or OpenMetrics exposition, or the difference of two.

    Attributes:
        samples: Samples in order.
        types: Type of each metric family by name, where told: counter, gauge, histogram, summary.
        scope: `since start` for one scrape, `difference` for two.
        source: Where it came from, fit to be printed.
        notes: Resets and lines that were left out.
        version: The engine's version, where the user named it or another endpoint told it.
    """

    samples: tuple[Sample, ...]
    types: Mapping[str, str] = field(default_factory=dict)
    scope: str = "since start"
    source: str = ""
    notes: tuple[Advice, ...] = ()
    version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format of one engine.

    Attributes:
        engine: Name of the engine.
        name: Name of the format in words, for messages.
        read_exposition: Telemetry of each model in an exposition; empty where it is another engine's.
        read_document: Telemetry in a parsed JSON document (objects of a JSONL file come as a list); empty
            where it is another's.
        log: Makes a reader of log lines; None where the engine has no log format.
    """

    engine: str
    name: str
    read_exposition: Callable[[Exposition], list[Telemetry]] | None = None
    read_document: Callable[[Any, str], list[Telemetry]] | None = None
    log: Callable[[str], LogReader] | None = None


class LogReader:
    """Reads a log line by line in constant memory; `result` may be asked at any time."""

    def __init__(self, source: str) -> None:
        self.source = source

    def feed(self, line: str) -> bool:
        """Take one line; True where it told something about speculation."""
        raise NotImplementedError

    def result(self) -> list[Telemetry]:
        """What the lines told so far; empty where they told nothing."""
        raise NotImplementedError


def fed(reader: LogReader, lines: Iterable[str]) -> list[Telemetry]:
    """The result of a reader after all lines."""
    for line in lines:
        reader.feed(line)
    return reader.result()
