"""`specmath crossover`: up to which batch does it pay?"""

from __future__ import annotations

from typing import Annotated

import typer

from specmath.cli.options import (
    K_HELP,
    AcceptanceOptions,
    DeviceOptions,
    OutputOptions,
    PairOptions,
    RatioOptions,
    with_options,
)


@with_options
def crossover(
    acceptance: AcceptanceOptions,
    k: Annotated[
        str | None,
        typer.Option("--k", metavar="k", help=K_HELP),
    ] = None,
    batch: Annotated[
        str, typer.Option(metavar="B", help="Batch at which break-even α, E, c and v are taken.")
    ] = "1",
    context: Annotated[str, typer.Option(metavar="C", help="Tokens in the KV cache, per sequence.")] = "0",
    max_batch: Annotated[str, typer.Option(metavar="B", help="Largest batch tried.")] = "4096",
    *,
    device: DeviceOptions,
    pair: PairOptions,
    ratios: RatioOptions,
    output: OutputOptions,
) -> None:
    """Up to which batch does it pay, and what would turn the answer?"""
    from specmath.axes import parse_axis
    from specmath.cli.cases import refuse_ratios, roofline
    from specmath.cli.laws import acceptance_laws, draft_lengths
    from specmath.cli.output import emit
    from specmath.cli.text import parse_count
    from specmath.crossovers import find_crossovers

    refuse_ratios(ratios, "a crossover")
    k_axis = draft_lengths(k, acceptance)
    table = find_crossovers(
        acceptance_laws(acceptance, k_axis),
        k_axis,
        source=roofline(acceptance, device, pair)[0],
        batch=parse_count("batch", batch),
        context=parse_axis("context", context),
        max_batch=parse_count("max_batch", max_batch),
    )
    emit(table, output)
