"""Where a calibration is written: tried before anything is measured, read back before it is put there."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specmath.calibrations import Calibration, MeasuredRuns


def calibration_path(name: str, *, quietly: bool = False) -> Path:
    """Where the calibration will lie; all that could refuse it there does so before anything is measured."""
    from specmath.calibration_files import ENDINGS
    from specmath.errors import AccessError, InputError, shown_path

    path = Path(name)
    if path.suffix not in ENDINGS:
        raise InputError("output", f"must end in {' or '.join(ENDINGS)}, got {shown_path(name)}")
    if not path.absolute().parent.is_dir():
        raise AccessError(shown_path(name), "the folder does not exist; create it or choose another path")
    _require_writable(path)
    replaced = _replaced(path)
    if replaced and not quietly:
        sys.stderr.write(f"specmath: {shown_path(name)} holds {replaced}, which this run replaces\n")
    return path


def _require_writable(path: Path) -> None:
    """That a file can be put there: a nameless one is made in the folder, and nothing stays."""
    import tempfile

    from specmath.errors import AccessError, shown_path

    if path.is_dir():
        raise AccessError(shown_path(path), "is a folder; give the name of a file in it")
    if path.exists() and not path.is_file():
        raise AccessError(shown_path(path), "is no regular file; choose another path")
    if path.exists() and not os.access(path, os.W_OK):
        raise AccessError(shown_path(path), "is write-protected; choose another path")
    try:
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            pass
    except (OSError, RuntimeError) as fault:  # the latter for links in a circle
        problem = getattr(fault, "strerror", None) or str(fault)
        raise AccessError(shown_path(path), f"cannot be written ({problem}); choose another path") from fault


def _replaced(path: Path) -> str:
    """The calibration that lies there, in words; empty for none. Anything else is not written over."""
    from specmath.calibration_files import SCHEMA
    from specmath.errors import AccessError, DataError, shown_path
    from specmath.strict_yaml import read_yaml

    if not path.exists() or not path.stat().st_size:
        return ""
    try:
        top = read_yaml(path)
        schema, created = top.optional_text("schema") or "", top.optional_text("created") or ""
    except DataError:
        schema = created = ""
    if not schema.startswith(SCHEMA.rpartition("/")[0] + "/"):
        raise AccessError(shown_path(path), "is no calibration, and would be lost; choose another path")
    return f"the calibration of {created}" if created else "a calibration"


def write_checked(record: Calibration | MeasuredRuns, path: Path) -> None:
    """Writes what was measured, once a draft of the file has been read back."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from specmath.calibration_files import read_calibration, write_calibration
    from specmath.errors import AccessError, DataError, shown_path

    try:
        with TemporaryDirectory() as folder:
            draft = Path(folder) / path.name
            write_calibration(record, draft)
            read_calibration(draft)
    except DataError as fault:
        problem = f"is not written, as nothing would read it: {fault.problem}; calibrate again with --fresh"
        raise DataError(shown_path(path), problem) from fault
    except AccessError as fault:
        raise AccessError(shown_path(path), fault.problem) from fault
    write_calibration(record, path)
