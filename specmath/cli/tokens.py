"""`specmath tokens`: how many tokens does a step yield?"""

from __future__ import annotations

from typing import Annotated

import typer

from specmath.cli.options import K_HELP, AcceptanceOptions, OutputOptions, SourceOptions, with_options


@with_options
def tokens(
    acceptance: AcceptanceOptions,
    k: Annotated[
        str | None,
        typer.Option("--k", metavar="k", help=K_HELP),
    ] = None,
    context: Annotated[str, typer.Option(metavar="C", help="Context, for --alpha-at.")] = "0",
    *,
    source: SourceOptions,
    output: OutputOptions,
) -> None:
    """How many tokens does a step yield?"""
    from specmath.axes import parse_axis
    from specmath.cli.from_source import taken_from
    from specmath.cli.laws import acceptance_laws, draft_lengths
    from specmath.cli.output import emit
    from specmath.token_yield import tokens_per_step

    taken = taken_from(acceptance, source, k)
    k_axis = draft_lengths(taken.k, taken.acceptance)
    laws = acceptance_laws(taken.acceptance, k_axis)
    emit(taken.told(tokens_per_step(laws, k_axis, context=parse_axis("context", context))), output)
