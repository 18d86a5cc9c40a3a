"""The raw log beside a calibration: every repeat as it was measured, so that nothing is lost when a run ends.

The first line says what is measured on what; the others are repeats of a place, or findings (acceptance, a
proof) once they stand. A run that resumes takes up from there.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final, Self

from calibrate.kept_findings import KINDS, Finding
from specmath.append_log import AppendLog, kept_lines
from specmath.calibrations import PARTS, Place
from specmath.errors import AccessError, DataError, SpecmathError, shown, shown_path
from specmath.record_yaml import LIMITS

SCHEMA: Final = "specmath.calibration-log/1"
AT_LEAST_S: Final = 1e-9
AT_MOST_S: Final = 1e5
"""Seconds that a repeat may take; outside them something else was measured."""
MOST_LOAD: Final = 1e6
_REMEDY: Final = "give --fresh to start anew, or another file with -o"


class RawLog:
    """An open log, held by one run at a time. Use it as a context manager.

    Args:
        path: Where it lies.
        setup: What is measured on what.
        load: Of the machine as this run begins.
        resume: Whether an interrupted run is taken up, which must be of the same set-up.
        fresh: Whether such a run is forgotten.

    Attributes:
        repeats: Seconds of each place measured before this run took it up.
        findings: Findings kept before, by kind.
        load: Of the machine as this run began or, where it was higher, the one that it takes up.

    Raises:
        AccessError: an interrupted run lies there and neither was asked for; another run writes it; the file
            cannot be used.
        DataError: it is of another set-up, or broken.
    """

    def __init__(
        self, path: Path, setup: Mapping[str, Any], *, load: float = 0.0, resume: bool, fresh: bool
    ) -> None:
        self.repeats: dict[Place, list[float]] = {}
        self.findings: dict[str, list[Finding]] = {}
        self.load = load
        self._lock = _locked(path)
        try:
            kept_bytes = 0
            if os.fstat(self._lock).st_size and not fresh:
                if not resume:
                    problem = "is the log of a run that did not end; give --resume to take it up"
                    raise AccessError(shown_path(path), f"{problem}, or {_REMEDY}")
                kept_bytes = self._taken_up(path, setup)
            self._log = AppendLog(path, kept_bytes)
            if not kept_bytes:
                self._log.append({"schema": SCHEMA, "setup": dict(setup), "load": load})
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.__exit__()
        os.close(self._lock)

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
        self.load = max(self.load, _load(head, where))
        for name in [*setup, *(name for name in head["setup"] if name not in setup)]:
            before, now = head["setup"].get(name), setup.get(name)
            if before != json.loads(json.dumps(now)):
                problem = f"was measured with {name} {shown(str(before))}, not {shown(str(now))}"
                raise DataError(where, f"{problem}; {_REMEDY}")
        for number, (line, _) in enumerate(lines[1:], 2):
            self._take(line, f"{where}: line {number}")
        return lines[-1][1]

    def _take(self, line: dict[str, Any], where: str) -> None:
        if "place" not in line:
            kind, document = next(iter(line.items()), ("", None))
            if kind not in KINDS or len(line) != 1:
                told = shown(", ".join(line)[:80])
                raise DataError(
                    where, f"must be a repeat or one of {', '.join(KINDS)}, got {told}; {_REMEDY}"
                )
            if not isinstance(document, dict):
                raise DataError(where, f"{kind}: must be a table; {_REMEDY}")
            self.findings.setdefault(kind, []).append(Finding(where, document))
            return
        self.repeats.setdefault(_place(line["place"], where), []).append(_seconds(line, where))


def _locked(path: Path) -> int:
    """The file, made where there is none, held against other runs until it is closed or the process ends."""
    where = shown_path(path)
    try:
        if path.exists() and not S_ISREG(path.stat().st_mode):  # a pipe would be waited for
            raise AccessError(where, "is no regular file; give another file with -o")
        held = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as fault:
        raise AccessError(where, f"cannot be used ({fault.strerror or fault})") from fault
    try:
        import fcntl

        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # a system without such locks
        pass
    except OSError as fault:
        if fault.errno in (errno.EWOULDBLOCK, errno.EACCES):
            os.close(held)
            problem = "is being written by another run; wait for it, or give another file with -o"
            raise AccessError(where, problem) from fault
    return held


def _load(head: Mapping[str, Any], where: str) -> float:
    value = head.get("load", 0.0)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_LOAD:
        return float(value)
    raise DataError(f"{where}: line 1", f"load: must be between 0 and {MOST_LOAD:g}; {_REMEDY}")


def _place(value: Any, where: str) -> Place:
    try:
        part, batch, width, context = value
        sizes = {"batch": batch, "width": width, "context": context}
        is_sized = all(
            type(value) is int and LIMITS[name][0] <= value <= LIMITS[name][1]
            for name, value in sizes.items()
        )
        if part in PARTS and is_sized:
            return Place(part=part, batch=batch, width=width, context=context)
    except (TypeError, ValueError, SpecmathError):
        pass
    raise DataError(where, f"place: must be [part, batch, width, context]; {_REMEDY}")


def _seconds(line: Mapping[str, Any], where: str) -> float:
    value = line.get("seconds")
    if isinstance(value, int | float) and not isinstance(value, bool) and AT_LEAST_S <= value <= AT_MOST_S:
        return float(value)
    raise DataError(where, f"seconds: must be between {AT_LEAST_S:g} and {AT_MOST_S:g}; {_REMEDY}")
