"""`specmath tokens`: how many tokens does a step yield?"""

from __future__ import annotations

from typing import Annotated

import typer

from specmath.cli.options import AcceptanceOptions, OutputOptions, with_options


@with_options
def tokens(
    acceptance: AcceptanceOptions,
    k: Annotated[str, typer.Option("--k", metavar="k", help="Draft tokens per step.")] = "4",
    context: Annotated[str, typer.Option(metavar="C", help="Context, for --alpha-at.")] = "0",
    *,
    output: OutputOptions,
) -> None:
    """How many tokens does a step yield?"""
    from specmath.axes import parse_axis
    from specmath.cli.inputs import acceptance_laws
    from specmath.cli.output import emit
    from specmath.token_yield import tokens_per_step

    k_axis = parse_axis("k", k, whole=True)
    laws = acceptance_laws(acceptance, k_axis)
    emit(tokens_per_step(laws, k_axis, context=parse_axis("context", context)), output)
