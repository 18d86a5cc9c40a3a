"""The command line: `specmath COMMAND`.

Exit status 0; 2 for a command line that is wrong in itself; 1 for what meets the world (unknown name, file);
3 where `--at-least` is missed. An error is one line on stderr, without a traceback unless `--debug` is given.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 + SIGINT."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit status. Every fault becomes one line on stderr here."""
    import typer

    from specmath.cli.app import app
    from specmath.errors import SpecmathError

    # The base of all usage errors, in click and in the copy of click that newer typers carry.
    usage_error: Any = typer.BadParameter.__mro__[2]
    try:
        status = typer.main.get_command(app).main(arguments, prog_name="specmath", standalone_mode=False)
    except (SpecmathError, usage_error, typer.Abort, KeyboardInterrupt) as error:
        if "--debug" in arguments:
            raise
        message, status = _one_line(error)
        sys.stderr.write(f"specmath: error: {' '.join(message.split())}\n")
    return status if isinstance(status, int) else 0


def _one_line(error: BaseException) -> tuple[str, int]:
    """What an error says in one line, and its exit status."""
    from specmath.cli.inputs import option
    from specmath.errors import InputError, SpecmathError

    if isinstance(error, InputError):
        return f"{option(error.name)}: {error.problem}", error.exit_code
    if isinstance(error, SpecmathError):
        return str(error), error.exit_code
    if hasattr(error, "format_message"):
        return error.format_message(), 2
    return "interrupted", INTERRUPTED
