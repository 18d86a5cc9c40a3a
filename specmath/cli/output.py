"""Where a result goes: the terminal, a pipe or a file."""

from __future__ import annotations

import sys

from specmath.cli.options import OutputOptions
from specmath.errors import InputError
from specmath.results import Result
from specmath.tables import FORMATS, format_of, notes, save, write

DATA_ONLY = ("csv", "latex")
"""Formats that hold rows alone; assumptions and warnings go to stderr."""


def emit(result: Result, options: OutputOptions) -> None:
    """Write the result as the options say."""
    if options.format is not None and options.format not in FORMATS:
        raise InputError("format", f"must be one of {', '.join(FORMATS)}, got {options.format!r}")
    if options.output is None or options.output == "-":
        form = options.format or ("table" if sys.stdout.isatty() else "md")
        write(result, sys.stdout, form, explain=options.explain)
    else:
        form = options.format or format_of(options.output)
        save(result, options.output, form, explain=options.explain)
    if form in DATA_ONLY:
        for line in notes(result, explain=options.explain):
            sys.stderr.write(line + "\n")
