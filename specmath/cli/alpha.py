"""`specmath alpha`: what is my α?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specmath.cli.options import OutputOptions, SourceOptions, Text, TypedCounts, with_options

if TYPE_CHECKING:
    from specmath.engines.telemetry import Telemetry


@with_options
def alpha(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="A server's URL, or a file: metrics, log, JSON of responses or of a benchmark; - for stdin.",
            show_default=False,
        ),
    ] = None,
    *,
    options: SourceOptions,
    counts: TypedCounts,
    k: Annotated[
        Text, typer.Option("--k", metavar="k", help="Draft tokens per step, where the source does not tell.")
    ] = None,
    output: OutputOptions,
) -> None:
    """What is my α, with which error? And the acceptance length, the rates by position, the load.

    Reads vLLM, SGLang, TensorRT-LLM, llama.cpp, LMDeploy, TGI, LM Studio, MLX and AIPerf, or typed counts.
    """
    from specmath.cli.output import emit
    from specmath.cli.text import parse_count
    from specmath.engines.alpha_table import alpha_table, speedup_command

    known = None if k is None else parse_count("k", k)
    records = _records(source or [], options, counts, known)
    next_step = ""
    if source and len(source) == len(records) == 1 and _can_be_shown(source[0]):
        beside = {"since": options.since, "model": options.model}
        next_step = speedup_command(source[0], **beside, record=records[0])
    emit(alpha_table(records, k=known, next_step=next_step), output)


def _can_be_shown(source: str) -> bool:
    """Whether a command may repeat the source: it can be read again, and tells no password."""
    from specmath.engines.addresses import shown_url

    return source != "-" and shown_url(source) == source


def _records(
    sources: list[str], options: SourceOptions, counts: TypedCounts, k: int | None
) -> list[Telemetry]:
    """The records of the sources, or the one of the counts typed."""
    from dataclasses import fields

    from specmath.cli.from_source import refuse_strays
    from specmath.cli.records import records_of
    from specmath.errors import InputError

    typed = [one.name for one in fields(counts) if getattr(counts, one.name) is not None]
    if sources and typed:
        raise InputError(typed[0], "excludes SOURCE: type the counts, or name what holds them")
    if sources:
        return records_of(sources, options)
    refuse_strays(options, "SOURCE")
    return [_typed(counts, k)]


def _typed(counts: TypedCounts, k: int | None) -> Telemetry:
    from specmath.axes import parse_axis, parse_vector
    from specmath.cli.text import parse_number
    from specmath.engines.typed_counts import typed_counts

    texts = {name: getattr(counts, name) for name in ("drafts", "drafted", "accepted", "acceptance_length")}
    numbers = {name: None if text is None else parse_number(name, text) for name, text in texts.items()}
    reached: list[float] = []
    if counts.positions is not None and "/" in counts.positions:
        reached = list(parse_vector("positions", counts.positions))
    elif counts.positions is not None:
        reached = [value for part in counts.positions.split(",") for value in parse_axis("positions", part)]
    return typed_counts(**numbers, accepted_at=reached, k=k)
