"""The raw log beside a calibration: every repeat as it was measured, so that nothing is lost when a run ends.

The first line says what is measured on what; the others are repeats of a place, or findings (acceptance, a
proof) once they stand. A run that resumes takes up from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

from specmath.append_log import AppendLog, kept_lines
from specmath.calibrations import PARTS, Place
from specmath.errors import AccessError, DataError, SpecmathError, shown, shown_path

SCHEMA: Final = "specmath.calibration-log/1"
AT_LEAST_S: Final = 1e-9
AT_MOST_S: Final = 1e5
"""Seconds that a repeat may take; outside them something else was measured."""
_REMEDY: Final = "give --fresh to start anew, or another file with -o"


class RawLog:
    """An open log. Use it as a context manager.

    Args:
        path: Where it lies.
        setup: What is measured on what.
        resume: Whether an interrupted run is taken up, which must be of the same set-up.
        fresh: Whether such a run is forgotten.

    Attributes:
        repeats: Seconds of each place measured before this run took it up.
        findings: Documents of findings kept before, by kind.

    Raises:
        AccessError: an interrupted run lies there and neither was asked for; the file cannot be used.
        DataError: it is of another set-up, or broken.
    """

    def __init__(self, path: Path, setup: Mapping[str, Any], *, resume: bool, fresh: bool) -> None:
        self.repeats: dict[Place, list[float]] = {}
        self.findings: dict[str, list[dict[str, Any]]] = {}
        kept_bytes = 0
        if path.exists() and not fresh:
            if not resume:
                problem = "is the log of a run that did not end; give --resume to take it up"
                raise AccessError(shown_path(path), f"{problem}, or {_REMEDY}")
            kept_bytes = self._taken_up(path, setup)
        self._log = AppendLog(path, kept_bytes)
        if not kept_bytes:
            self._log.append({"schema": SCHEMA, "setup": dict(setup)})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.__exit__()

    def tell(self, place: Place, seconds: float) -> None:
        """Keep one repeat."""
        self._log.append({"place": [place.part, place.batch, place.width, place.context], "seconds": seconds})

    def keep(self, kind: str, finding: Mapping[str, Any]) -> None:
        """Keep a finding: an acceptance, a proof."""
        self._log.append({kind: dict(finding)})

    def _taken_up(self, path: Path, setup: Mapping[str, Any]) -> int:
        """Reads what was kept, which must be of this very set-up; the bytes that it takes."""
        where = shown_path(path)
        lines = kept_lines(path, _REMEDY)
        if not lines:
            return 0
        head = lines[0][0]
        if head.get("schema") != SCHEMA or not isinstance(head.get("setup"), dict):
            raise DataError(where, f"is no log of a calibration; {_REMEDY}")
        for name in {*head["setup"], *setup}:
            before, now = head["setup"].get(name), setup.get(name)
            if before != json.loads(json.dumps(now)):
                problem = f"was measured with {name} {shown(str(before))}, not {shown(str(now))}"
                raise DataError(where, f"{problem}; {_REMEDY}")
        for number, (line, _) in enumerate(lines[1:], 2):
            self._take(line, f"{where}: line {number}")
        return lines[-1][1]

    def _take(self, line: dict[str, Any], where: str) -> None:
        if "place" not in line:
            for kind, finding in line.items():
                if isinstance(finding, dict):
                    self.findings.setdefault(kind, []).append(finding)
            return
        self.repeats.setdefault(_place(line["place"], where), []).append(_seconds(line, where))


def _place(value: Any, where: str) -> Place:
    try:
        part, batch, width, context = value
        if part in PARTS and all(type(number) is int for number in (batch, width, context)):
            return Place(part=part, batch=batch, width=width, context=context)
    except (TypeError, ValueError, SpecmathError):
        pass
    raise DataError(where, f"place: must be [part, batch, width, context]; {_REMEDY}")


def _seconds(line: Mapping[str, Any], where: str) -> float:
    value = line.get("seconds")
    if isinstance(value, int | float) and not isinstance(value, bool) and AT_LEAST_S <= value <= AT_MOST_S:
        return float(value)
    raise DataError(where, f"seconds: must be between {AT_LEAST_S:g} and {AT_MOST_S:g}; {_REMEDY}")
