"""Where a result goes: the terminal, a pipe or a file."""

from __future__ import annotations

import os
import sys

from specmath.cli.options import OutputOptions
from specmath.errors import AccessError, InputError
from specmath.results import Result
from specmath.tables import FORMATS, chosen_format, notes, save, write

DATA_ONLY = ("csv", "latex")
"""Formats that hold rows alone; assumptions and warnings go to stderr."""


def emit(result: Result, options: OutputOptions) -> None:
    """Write the result as the options say."""
    if options.format is not None and options.format not in FORMATS:
        raise InputError("format", f"must be one of {', '.join(FORMATS)}, got {options.format!r}")
    if options.output is None or options.output == "-":
        form = options.format or ("table" if sys.stdout.isatty() else "md")
        _to_stdout(result, form, options.explain)
    else:
        form = chosen_format(options.output, options.format)
        try:
            save(result, options.output, form, explain=options.explain)
        except BrokenPipeError:
            return  # `-o /dev/stdout | head`: the reader has what it wanted
    if form in DATA_ONLY:
        for line in notes(result, explain=options.explain):
            sys.stderr.write(line + "\n")


def _to_stdout(result: Result, form: str, explain: bool) -> None:
    try:
        write(result, sys.stdout, form, explain=explain)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has what it wanted (`| head`). Python would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise AccessError("stdout", f"{error.strerror}; what was written so far is incomplete") from error
