"""`specmath crossover`: up to which batch does it pay?"""

from __future__ import annotations

from typing import Annotated

import typer

from specmath.cli.options import (
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


@with_options
def crossover(
    acceptance: AcceptanceOptions,
    k: Annotated[
        str | None,
        typer.Option("--k", metavar="k", help=K_HELP),
    ] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            metavar="B",
            help="Batch at which break-even values and flip points are taken. "
            r"\[default: 1, or what ran in a step of --from]",
        ),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="C",
            help="Tokens in the KV cache, per sequence. \\[default: 0, or the smallest calibrated]",
        ),
    ] = None,
    max_batch: Annotated[
        str | None,
        typer.Option(metavar="B", help="Largest batch tried. \\[default: 4096]"),
    ] = None,
    *,
    device: DeviceOptions,
    pair: PairOptions,
    ratios: RatioOptions,
    measured: MeasuredOptions,
    source: SourceOptions,
    flips: Annotated[
        bool, typer.Option("--flips", help="Instead: what would turn the answer at this batch, ranked.")
    ] = False,
    output: OutputOptions,
) -> None:
    """Up to which batch does it pay, and what would turn the answer?"""
    from specmath.cli.calibrated import settled, typed_contexts
    from specmath.cli.cases import refuse_ratios, roofline
    from specmath.cli.from_source import taken_from
    from specmath.cli.measured import question
    from specmath.cli.output import emit
    from specmath.cli.progress import progress_shown
    from specmath.cli.text import given_or, parse_count
    from specmath.cli.timed_lengths import with_timed_lengths
    from specmath.crossovers import SCAN_LIMIT, find_crossovers
    from specmath.flips import flip_points

    refuse_ratios(ratios, "a crossover")
    taken = taken_from(acceptance, source, k, measured=measured, pair=pair)
    at_batch = parse_count("batch", given_or(batch, given_or(taken.batch, "1")))
    contexts = typed_contexts(context)
    known = settled(taken.acceptance, taken.measured, device, pair, context=contexts, k=[taken.k])
    typed_k = taken.k
    if typed_k is None and not flips:
        known, typed_k = with_timed_lengths(known, taken.acceptance)
    times = known.source or roofline(known.acceptance, known.device, known.pair)[0]
    limit = SCAN_LIMIT if max_batch is None else parse_count("max_batch", max_batch)
    if known.source is not None:
        times = known.source.tried_up_to(limit)
    asked = question(
        known.acceptance,
        known.measured,
        known.device,
        source=times,
        k=typed_k,
        batch=[at_batch],
        context=known.context,
    )
    answer = flip_points if flips else find_crossovers
    with progress_shown("trying every input" if flips else "trying every batch") as progress:
        table = answer(
            asked.laws,
            asked.k,
            source=asked.corrected(times),
            batch=at_batch,
            context=known.context,
            max_batch=limit,
            progress=progress,
        )
        emit(taken.told(table), output)
