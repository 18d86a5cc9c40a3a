"""Files that `--measured` names, beside pairs that are typed.

runs.csv, runs.jsonl, runs.json               a table of runs
h100.yaml, h100.yaml,temperature=1            a calibration, and which of its acceptances
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from specmath.errors import DataError, InputError, shown, shown_path

if TYPE_CHECKING:
    from specmath.calibrations import Calibration, MeasuredRuns

_TABLES: Final = (".csv", ".jsonl", ".json")
_BEGINNING: Final = 2_000
_FILE: Final = re.compile(r"(?P<path>.*?\.ya?ml)(?:,(?P<choice>.*))?", re.IGNORECASE | re.DOTALL)


class NamedFile(NamedTuple):
    """A calibration file as it is typed, and which of its acceptances."""

    path: str
    choice: str | None


def calibration_named(text: str) -> NamedFile | None:
    """The YAML file that a measurement names; None where it is something else.

    >>> calibration_named("my.yaml,temperature=1")
    NamedFile(path='my.yaml', choice='temperature=1')
    >>> calibration_named("k=3,speedup=1.7")
    """
    found = _FILE.fullmatch(text)
    return None if found is None else NamedFile(found["path"], found["choice"])


def names_a_file(text: str) -> bool:
    """Whether a measurement is a file, not a pair as it is typed.

    >>> names_a_file("runs.csv"), names_a_file("h100.yaml,temperature=1"), names_a_file("k=3,speedup=1.7")
    (True, True, False)
    """
    return "=" not in text or text.lower().endswith(_TABLES) or calibration_named(text) is not None


def refuse_calibrations(sources: Sequence[str]) -> None:
    """A calibration is no output of an engine, from which α would be read."""
    for source in sources:
        if calibration_named(source) is None:
            continue
        with suppress(OSError), Path(source).open("rb") as file:
            if b"\nschema: specmath.calibration/" in b"\n" + file.read(_BEGINNING):
                problem = "is a calibration: a question takes its acceptance by --measured, as in"
                raise DataError(shown_path(source), f"{problem} `specmath speedup --measured FILE.yaml`")


def read_named(named: NamedFile) -> Calibration | MeasuredRuns:
    """What the file holds; a choice among acceptances belongs to passes alone."""
    from specmath.calibration_files import read_calibration
    from specmath.calibrations import MeasuredRuns

    record = read_calibration(Path(named.path))
    if isinstance(record, MeasuredRuns) and named.choice is not None:
        problem = "chooses an acceptance, and this file holds runs, each with its own; drop it"
        raise InputError("measured", f"{shown(named.choice)} {problem}")
    return record
