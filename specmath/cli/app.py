"""The command tree. Each command is a thin skin over one public function of the library.

Start-up is a feature: a command line that names its command builds that command alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from specmath import __version__

COMMANDS: dict[str, tuple[str, ...]] = {
    "tokens": (
        "specmath tokens --alpha 0.7 --k 4",
        "specmath tokens --rates .8/.7/.6 --k 1:3 -f md",
    ),
    "speedup": (
        "specmath speedup --alpha 0.7 --k 4 --batch 64",
        "specmath speedup --alpha 0.5:0.9:0.1 --k 1:8 --batch 1:256:x2 -o grid.csv",
    ),
    "crossover": (
        "specmath crossover --alpha 0.8 --k 1:8 --hardware h200-sxm --target 47B/13B --draft 1B -f md",
        "specmath crossover --alpha 0.7 --k 4 --batch 64 --flips",
    ),
    "schedule": (
        "specmath schedule --alpha 0.7 --batches 1=.2,8=.5,64=.3",
        "specmath schedule --beta 5.6/2.3 --batches 1:256:x2 --target qwen3-32b --draft qwen3-0.6b "
        "--context 2k --engine vllm@0.32",
    ),
    "load": (
        "specmath load --rate 5 --prompt 2k --output-tokens 300 --alpha .7 --k 4 --target llama-3.1-8b "
        "--draft eagle3-llama-3.1-8b --engine vllm@0.32",
        "specmath load --rate 1:16:x2 --class share=.3,prompt=2k,output=300,alpha=.6 "
        "--class share=.7,prompt=500,output=150,alpha=.8 --slo ttft=500ms,tpot=30ms --target llama-3.1-8b "
        "--draft eagle3-llama-3.1-8b -f md",
    ),
    "diagnose": (
        "specmath diagnose k=1,acceptance-length=1.69,off=465.3tok/s@1,on=260.4tok/s@1 --engine vllm "
        "--method mtp",
        "specmath diagnose runs.csv --hardware h100-sxm --engine vllm --target llama-3.1-8b "
        "--draft eagle3-llama-3.1-8b --causes -f md",
    ),
    "alpha": (
        "specmath alpha metrics.txt --since earlier.txt",
        "specmath alpha --drafts 1000 --positions 760/530/360",
    ),
    "init": ("specmath init http://localhost:8000", "specmath init https://host/v1 --model llama -o a.toml"),
    "check": (
        "specmath check --engine vllm@0.32 --speculative-config '{method: mtp, num_spec_tokens: 2}' --pp 2",
        "specmath check --log server.log --requests sample.jsonl --target qwen3-32b --draft qwen3-0.6b -f md",
    ),
    "calibrate": (
        "specmath calibrate --target models/target --draft models/draft -o pair.yaml",
        "specmath calibrate --target random:llama-3.1-8b --draft random:llama-3.2-1b --dry-run",
    ),
    "accuracy": ("specmath accuracy", "specmath accuracy --data runs.csv --by engine -f md"),
    "show": (),
}
"""Commands as the help page has them, each in a module and a function of its name, with worked examples."""


def command_tree(*names: str) -> Any:
    """The command line with these commands, all of them where none is named."""
    app = typer.Typer(
        name="specmath",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    app.callback(help="Does speculative decoding pay? Expected tokens, speed-up, crossover batch.")(_root)
    for name in names or COMMANDS:
        command = getattr(import_module(f"specmath.cli.{name}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(epilog=examples(*COMMANDS[name]))(command)
    return typer.main.get_command(app)


def examples(*lines: str) -> str:
    """Worked examples for the foot of a help page."""
    return "Examples:\n\n" + "\n\n".join(f"$ {line}" for line in lines)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specmath {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """The options before a command."""
