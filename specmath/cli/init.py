"""`specmath init`: a `specmath.toml` with what a running server tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specmath.cli import DEFAULTS_FILE

if TYPE_CHECKING:
    from specmath.engines.servers import Server
    from specmath.engines.telemetry import Telemetry


def init(
    url: Annotated[str, typer.Argument(metavar="URL", help="A server's base URL, as http://localhost:8000.")],
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The one model meant, as the engine names it.")
    ] = None,
    source_engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="The engine, where recognition needs help.")
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write; - for stdout.")
    ] = DEFAULTS_FILE,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Write a specmath.toml with what a running server tells, and list what it cannot see.

    Engine, model, acceptance, k, load and parallelism become the defaults of every command in
    this folder. What no server tells stands there as comments to fill in. Only GET is sent.
    """
    import sys

    from specmath.engines.project_file import project_file
    from specmath.engines.servers import ask_server
    from specmath.errors import shown_path

    _refuse_existing(output, force)
    server = ask_server(url)
    written = project_file(server, _record(server, model, source_engine))
    if output == "-":
        sys.stdout.write(written.text)
        told = sys.stderr
    else:
        _write(output, written.text)
        sys.stdout.write(f"wrote {shown_path(output)}: {', '.join(written.known)}\n")
        told = sys.stdout
    told.write(f"not seen, there as comments or stand-ins: {', '.join(written.missing)}\n")


def _refuse_existing(output: str, force: bool) -> None:
    import os

    from specmath.errors import AccessError, shown_path

    if output != "-" and not force and os.path.lexists(output):
        raise AccessError(
            shown_path(output), "is there already; replace it with --force, or choose another -o"
        )


def _record(server: Server, model: str | None, engine: str | None) -> Telemetry | None:
    """What the server tells of the model meant; None where it tells nothing of speculation."""
    from specmath.engines.server_telemetry import telemetry_of
    from specmath.errors import DataError, InputError, UnknownNameError

    try:
        found = telemetry_of(server, engine=engine)
    except DataError:
        if server.metrics is not None or not server.models():
            raise
        found = []
    names = [record.model for record in found if record.model]
    chosen = [record for record in found if model is None or record.model == model]
    if model is not None and found and not chosen:
        raise UnknownNameError("model", model, names, f"the server has {', '.join(names) or 'no names'}")
    if len(chosen) > 1:
        raise InputError("model", f"is missing: the server has {len(chosen)}; pick one: {', '.join(names)}")
    return chosen[0] if chosen else None


def _write(output: str, text: str) -> None:
    from specmath.files import atomic_write

    with atomic_write(output) as file:
        file.write(text.encode())
