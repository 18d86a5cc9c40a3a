"""`specmath speedup`: how much faster, at this batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specmath.cli.options import (
    BATCH_HELP,
    K_HELP,
    AcceptanceOptions,
    DeviceOptions,
    MeasuredOptions,
    OutputOptions,
    PairOptions,
    RatioOptions,
    SourceOptions,
    with_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmath.comparisons import DrafterComparison
    from specmath.forecast import SpeedupTable
    from specmath.laws import AcceptanceLaw
    from specmath.sources import StepTimeSource


@with_options
def speedup(
    acceptance: AcceptanceOptions,
    k: Annotated[
        str | None,
        typer.Option("--k", metavar="k", help=K_HELP),
    ] = None,
    batch: Annotated[str | None, typer.Option(metavar="B", help=BATCH_HELP)] = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="C",
            help="Tokens in the KV cache, per sequence. \\[default: 0, or the smallest calibrated]",
        ),
    ] = None,
    *,
    device: DeviceOptions,
    pair: PairOptions,
    ratios: RatioOptions,
    measured: MeasuredOptions,
    source: SourceOptions,
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
    from specmath.cli.calibrated import settled, typed_contexts
    from specmath.cli.cases import chosen_cases, step_time_cases
    from specmath.cli.drafts import draft_choices
    from specmath.cli.from_source import taken_from
    from specmath.cli.laws import acceptance_laws, draft_lengths
    from specmath.cli.output import emit
    from specmath.cli.text import given_or, parse_number
    from specmath.cli.timed_lengths import with_timed_lengths
    from specmath.forecast import forecast_speedup

    taken = taken_from(acceptance, source, k, measured=measured, pair=pair)
    acceptance, k, measured = taken.acceptance, taken.k, taken.measured
    batches = parse_axis("batch", given_or(batch, given_or(taken.batch, "1")), whole=True)
    contexts = typed_contexts(context)
    choice, *others = choices = draft_choices(acceptance, pair)
    table: SpeedupTable | DrafterComparison
    laws: Sequence[AcceptanceLaw]
    k_axis: Sequence[int]
    if others:
        from specmath.cli.comparison import comparison

        table = comparison(
            choices,
            k=k,
            batch=batches,
            context=contexts or [0.0],
            case=case,
            device=device,
            pair=pair,
            ratios=ratios,
            measured=measured,
        )
    else:
        typed_k = k if choice.k is None else choice.k
        known = settled(
            choice.acceptance, measured, device, pair, context=contexts, ratios=ratios, k=[typed_k]
        )
        if typed_k is None:
            known, typed_k = with_timed_lengths(known, choice.acceptance)
        cases: tuple[StepTimeSource, ...]
        cases = step_time_cases(choice, device, pair, ratios) if known.source is None else known.cases()
        if known.measured.measured:
            from specmath.cli.measured import question

            asked = question(
                known.acceptance,
                known.measured,
                known.device,
                source=cases[0],
                k=typed_k,
                batch=batches,
                context=known.context,
            )
            laws, k_axis, cases = asked.laws, asked.k, asked.with_measured(cases)
        else:
            k_axis = draft_lengths(typed_k, known.acceptance)
            laws = acceptance_laws(known.acceptance, k_axis)
        shown = chosen_cases(cases, case)
        table = forecast_speedup(laws, k_axis, batches, cases=shown, context=known.context)
    floor = None if at_least is None else parse_number("at_least", at_least)
    emit(taken.told(table), output)
    if floor is not None and table.lowest < floor:
        typer.echo(f"specmath: lowest speed-up {table.lowest:.4g} is below --at-least {floor:g}", err=True)
        raise typer.Exit(3)
