"""`specmath check`: what will break or bite if I switch it on?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from specmath.cli.options import OutputOptions, engine_completion, model_completion, with_options

if TYPE_CHECKING:
    from specmath.model import ModelShape

BROKEN = 1
"""Exit status where something breaks."""
_COUNTS = ("k", "tp", "dp", "pp", "draft_tp", "max_num_seqs", "context")


@with_options
def check(
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[@VERSION]",
            help="vllm, sglang, tensorrt-llm, llama.cpp, lmdeploy, tgi, mlx, transformers; else that of "
            "--log.",
            autocompletion=engine_completion,
        ),
    ] = None,
    speculative_config: Annotated[
        str | None,
        typer.Option(
            metavar="JSON|FILE",
            help="vLLM's speculative config: JSON, single quotes, YAML, --speculative-config.key value, or "
            "a file.",
        ),
    ] = None,
    server_args: Annotated[
        str | None,
        typer.Option(
            metavar='"…"|FILE', help="The server's command line or flags, or the file of them (YAML too)."
        ),
    ] = None,
    log: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its start-up log, from the first line on.")
    ] = None,
    requests: Annotated[
        str | None, typer.Option(metavar="FILE.jsonl", help="A sample of requests, one body a line.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="A catalogue name, config.json or its folder, hub id.",
            autocompletion=model_completion,
        ),
    ] = None,
    draft: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="The draft or head, as --target.", autocompletion=model_completion
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(metavar="eagle3|mtp|ngram|…", help="How it drafts; else inferred.")
    ] = None,
    k: Annotated[str | None, typer.Option("--k", metavar="k", help="Draft tokens per step.")] = None,
    tp: Annotated[str | None, typer.Option(metavar="N", help="Tensor parallelism of the target.")] = None,
    dp: Annotated[str | None, typer.Option(metavar="N", help="Data parallelism.")] = None,
    pp: Annotated[str | None, typer.Option(metavar="N", help="Pipeline stages.")] = None,
    draft_tp: Annotated[
        str | None, typer.Option(metavar="N", help="Tensor parallelism of the draft.")
    ] = None,
    max_num_seqs: Annotated[
        str | None, typer.Option(metavar="B", help="Sequences that run at once at most.")
    ] = None,
    context: Annotated[str | None, typer.Option(metavar="C", help="Tokens of the longest sequence.")] = None,
    *,
    output: OutputOptions,
) -> None:
    """What will break or bite if I switch speculation on? Each finding with its evidence and remedy.

    Give any of: engine and version, speculative config, the server's arguments or log, requests, models.
    Exit status 0 where nothing breaks, 1 where something does.
    """
    from specmath.cli.output import emit
    from specmath.cli.text import parse_count
    from specmath.compatibility.question import check_speculation
    from specmath.errors import InputError

    typed = {
        "k": k,
        "tp": tp,
        "dp": dp,
        "pp": pp,
        "draft_tp": draft_tp,
        "max_num_seqs": max_num_seqs,
        "context": context,
    }
    if [log, requests, target, draft].count("-") > 1:
        raise InputError("requests", "- is taken already; stdin can be read once")
    counts: dict[str, Any] = {
        name: parse_count(name, text) for name, text in typed.items() if text is not None
    }
    table = check_speculation(
        engine,
        speculative_config=speculative_config,
        server_args=server_args,
        log=log,
        requests=requests,
        target=_shape("target", target),
        draft=_shape("draft", draft, method),
        method=_known_method(method),
        **counts,
    )
    emit(table, output)
    if table.count("breaks"):
        raise typer.Exit(BROKEN)


def _shape(role: str, name: str | None, method: str | None = None) -> ModelShape | None:
    from specmath.cli.models import model
    from specmath.cli.options import DeviceOptions

    if name is None:
        return None
    kind = None if method in (None, "draft-model", "pard", "mtp", "ngram", "suffix") else method
    return model(role, name, DeviceOptions(), draft_kind=kind)


def _known_method(method: str | None) -> str | None:
    from specmath.drafters.methods import METHODS
    from specmath.errors import InputError

    if method is not None and method not in METHODS:
        raise InputError("method", f"{method!r} is none of {', '.join(METHODS)}")
    return method
