"""The command line: `specmath COMMAND`.

Exit status 0; 2 for a command line that is wrong in itself; 1 for what meets the world (unknown name, file);
3 where `--at-least` is missed. An error is one line on stderr, without a traceback unless `--debug` is given.
"""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Sequence
from typing import Any

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 + SIGINT."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status."""
    gc.set_threshold(50_000)  # imports leave no cycles behind; looking for them takes 4 % of start-up
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # α and µs in an ASCII locale
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit status. Every fault becomes one line on stderr here."""
    import typer

    from specmath.cli.app import app
    from specmath.errors import SpecmathError

    # The base of all usage errors, in click and in the copy of click that newer typers carry.
    usage_error: Any = typer.BadParameter.__mro__[2]
    command: Any = typer.main.get_command(app)
    try:
        defaults = _defaults(command, arguments)
        status = command.main(arguments, prog_name="specmath", standalone_mode=False, default_map=defaults)
    except (SpecmathError, usage_error, typer.Abort, KeyboardInterrupt) as error:
        if "--debug" in arguments:
            raise
        message, status = _one_line(error)
        sys.stderr.write(f"specmath: error: {message}\n")
    return status if isinstance(status, int) else 0


def _defaults(command: Any, arguments: list[str]) -> dict[str, Any]:
    """What a `specmath.toml` sets for the command that is about to run; said on stderr."""
    from specmath.cli.defaults import FILE, project_defaults

    name = next(iter(arguments), "")
    leaves = {key: leaf for key, leaf in command.commands.items() if not hasattr(leaf, "commands")}
    if name not in leaves or {"-h", "--help"} & set(arguments):
        return {}
    options = {key: [parameter.name for parameter in leaf.params] for key, leaf in leaves.items()}
    values = project_defaults(name, options, arguments)
    if values:
        told = ", ".join(f"{key.replace('_', '-')} = {value}" for key, value in values.items())
        sys.stderr.write(f"specmath: defaults from {FILE}: {told}\n")
    return {name: values}


def _one_line(error: BaseException) -> tuple[str, int]:
    """What an error says in one line, and its exit status."""
    from specmath.cli.inputs import option
    from specmath.errors import InputError, SpecmathError
    from specmath.exporters.text import printable

    if isinstance(error, InputError):
        message, status = f"{option(error.name)}: {error.problem}", error.exit_code
    elif isinstance(error, SpecmathError):
        message, status = str(error), error.exit_code
    elif hasattr(error, "format_message"):
        message, status = error.format_message() or "name one of the commands listed above", 2
    else:
        message, status = "interrupted", INTERRUPTED
    return printable(" ".join(message.split())), status
