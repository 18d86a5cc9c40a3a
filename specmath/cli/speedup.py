"""`specmath speedup`: how much faster, at this batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specmath.cli.options import (
    K_HELP,
    AcceptanceOptions,
    DeviceOptions,
    MeasuredOptions,
    OutputOptions,
    PairOptions,
    RatioOptions,
    with_options,
)

if TYPE_CHECKING:
    from specmath.comparisons import DrafterComparison
    from specmath.forecast import SpeedupTable


@with_options
def speedup(
    acceptance: AcceptanceOptions,
    k: Annotated[
        str | None,
        typer.Option("--k", metavar="k", help=K_HELP),
    ] = None,
    batch: Annotated[str, typer.Option(metavar="B", help="Sequences in the pass.")] = "1",
    context: Annotated[str, typer.Option(metavar="C", help="Tokens in the KV cache, per sequence.")] = "0",
    *,
    device: DeviceOptions,
    pair: PairOptions,
    ratios: RatioOptions,
    measured: MeasuredOptions,
    at_least: Annotated[
        str | None, typer.Option(metavar="S", help="Exit 3 if the speed-up falls short of S anywhere.")
    ] = None,
    case: Annotated[
        str | None,
        typer.Option(metavar="ideal,memory_bound,compute_bound", help="Cases to show. \\[default: all]"),
    ] = None,
    output: OutputOptions,
) -> None:
    """How much faster is decoding, at this batch? With several drafts: which of them pays most?

    Numbers may be lists (1,4,16) and ranges (1:256:x2, 0.5:0.9:0.1); several make a table.
    """
    from specmath.axes import parse_axis
    from specmath.cli.cases import chosen_cases, step_time_cases
    from specmath.cli.drafts import draft_choices
    from specmath.cli.laws import acceptance_laws, draft_lengths
    from specmath.cli.output import emit
    from specmath.cli.text import parse_number
    from specmath.forecast import forecast_speedup

    batches, contexts = parse_axis("batch", batch, whole=True), parse_axis("context", context)
    choice, *others = choices = draft_choices(acceptance, pair)
    table: SpeedupTable | DrafterComparison
    if others:
        from specmath.cli.comparison import comparison

        table = comparison(
            choices,
            k=k,
            batch=batches,
            context=contexts,
            case=case,
            device=device,
            pair=pair,
            ratios=ratios,
            measured=measured,
        )
    else:
        k_axis = draft_lengths(k if choice.k is None else choice.k, choice.acceptance)
        laws = acceptance_laws(choice.acceptance, k_axis)
        cases = step_time_cases(choice, device, pair, ratios)
        if measured.measured:
            from specmath.cli.measured import Asked, with_measurements

            asked = Asked(laws=laws, k=k_axis, batch=batches, context=contexts)
            cases = with_measurements(cases, measured, asked)
        table = forecast_speedup(laws, k_axis, batches, cases=chosen_cases(cases, case), context=contexts)
    floor = None if at_least is None else parse_number("at_least", at_least)
    emit(table, output)
    if floor is not None and table.lowest < floor:
        typer.echo(f"specmath: lowest speed-up {table.lowest:.4g} is below --at-least {floor:g}", err=True)
        raise typer.Exit(3)
