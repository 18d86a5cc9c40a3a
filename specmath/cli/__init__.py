"""The command line: `specmath COMMAND`.

Exit status 0; 2 for a command line that is wrong in itself; 1 for what meets the world (unknown name, file);
3 where `--at-least` is missed. An error is one line on stderr, without a traceback unless `--debug` is given.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

DEFAULTS_FILE = "specmath.toml"
"""A project's defaults, in the current folder; see `specmath.cli.defaults`."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it: 128 + SIGINT."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its status."""
    # numpy's BLAS starts a thread per core, which spin for 0.1 s with nothing to do: no command multiplies
    # matrices large enough for two.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(50_000)  # imports leave no cycles behind; looking for them takes 4 % of start-up
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # so that half-written files are cleared away before the process ends
            signal.signal(getattr(signal, name), lambda number, _: sys.exit(128 + number))
    try:
        sys.stdout, sys.stderr = (_utf8(stream) for stream in (sys.stdout, sys.stderr))
        status = run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def run(arguments: list[str]) -> int:
    """Run the command line; returns the exit status. Every fault becomes one line on stderr here."""
    import typer

    from specmath.cli.app import COMMANDS, command_tree
    from specmath.errors import SpecmathError

    # The base of all usage errors, in click and in the copy of click that newer typers carry.
    usage_error: Any = typer.BadParameter.__mro__[2]
    named, with_defaults = next(iter(arguments), ""), os.path.lexists(DEFAULTS_FILE)
    command = command_tree(*([named] if named in COMMANDS and not with_defaults else []))
    defaults: dict[str, Any] = {}
    try:
        if with_defaults:
            defaults = _defaults(command, arguments)
        status = command.main(arguments, prog_name="specmath", standalone_mode=False, default_map=defaults)
    except (SpecmathError, usage_error, typer.Abort, KeyboardInterrupt, MemoryError, OSError) as error:
        if "--debug" in arguments:
            raise
        message, status = _one_line(error, next(iter(defaults.values()), {}), named)
        _say(f"specmath: error: {message}")
    else:
        if status == INTERRUPTED:  # typer turns Ctrl-C into this exit status
            _say("specmath: error: interrupted; no complete result was written")
    return status if isinstance(status, int) else 0


def _utf8(stream: Any) -> Any:
    """The stream, able to say α and µs in an ASCII locale; a closed one leads nowhere."""
    if stream is None:
        return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - lives as long as the process
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8")
    return stream


def _defaults(command: Any, arguments: list[str]) -> dict[str, Any]:
    """What a `specmath.toml` sets for the command that is about to run; said on stderr."""
    from specmath.cli.defaults import Command, project_defaults

    name = next(iter(arguments), "")
    leaves = {key: leaf for key, leaf in command.commands.items() if not hasattr(leaf, "commands")}
    if name not in leaves or name == "init" or {"-h", "--help"} & set(arguments):
        return {}
    commands = {key: Command.of(leaf.params) for key, leaf in leaves.items()}
    values = project_defaults(name, commands, arguments)
    if values:
        shown = {key: "true" if value is True else str(value) for key, value in values.items()}
        told = ", ".join(f"{key.replace('_', '-')} = {value}" for key, value in shown.items())
        _say(f"specmath: defaults from {DEFAULTS_FILE}: {told}")
    return {name: values}


def _one_line(error: BaseException, defaults: dict[str, Any], command: str) -> tuple[str, int]:
    """What an error says, and its exit status; a fault that `specmath.toml` brought in is the file's."""
    from specmath.cli.text import option, parameter
    from specmath.errors import InputError, SpecmathError

    if isinstance(error, InputError):
        told = f"{option(error.name, command)}: {error.problem}"
        is_default = parameter(error.name, command) in defaults
        return (f"specmath.toml: {told}", 1) if is_default else (told, error.exit_code)
    if isinstance(error, SpecmathError):
        return str(error), error.exit_code
    if hasattr(error, "format_message"):
        return error.format_message() or "name one of the commands listed above", 2
    if isinstance(error, MemoryError):
        return "out of memory; ask for fewer values at once", 1
    if isinstance(error, OSError):
        return f"{error.filename or 'output'}: {error.strerror or error}", 1
    return "interrupted", INTERRUPTED


def _say(line: str) -> None:
    """One line on stderr, harmless whatever a file put into it."""
    from contextlib import suppress

    from specmath.exporters.text import printable

    with suppress(OSError):
        sys.stderr.write(printable(" ".join(line.split())) + "\n")
