"""The command tree. Each command is a thin skin over one public function of the library."""

from __future__ import annotations

from typing import Annotated

import typer

from specmath import __version__
from specmath.cli.crossover import crossover
from specmath.cli.show import show
from specmath.cli.speedup import speedup
from specmath.cli.tokens import tokens

app = typer.Typer(
    name="specmath",
    help="Does speculative decoding pay? Expected tokens, speed-up, crossover batch.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specmath {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Does speculative decoding pay? Expected tokens, speed-up, crossover batch."""


def examples(*lines: str) -> str:
    """Worked examples for the foot of a help page."""
    return "Examples:\n\n" + "\n\n".join(f"$ {line}" for line in lines)


app.command(
    epilog=examples("specmath tokens --alpha 0.7 --k 4", "specmath tokens --rates .8/.7/.6 --k 1:3 -f md")
)(tokens)
app.command(
    epilog=examples(
        "specmath speedup --alpha 0.7 --k 4 --batch 64",
        "specmath speedup --alpha 0.5:0.9:0.1 --k 1:8 --batch 1:256:x2 -o grid.csv",
    )
)(speedup)
app.command(
    epilog=examples(
        "specmath crossover --alpha 0.7 --k 4",
        "specmath crossover --alpha 0.8 --k 1:8 --hardware h200-sxm --target 47B/13B --draft 1B -f md",
    )
)(crossover)
app.add_typer(show, name="show", help="What is in the catalogue?")
