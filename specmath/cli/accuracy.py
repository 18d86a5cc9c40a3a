"""`specmath accuracy`: how wrong is this tool?"""

from __future__ import annotations

from typing import Annotated

import typer

from specmath.cli.options import OutputOptions, with_options
from specmath.errors import InputError


@with_options
def accuracy(
    data: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Your own rows, JSONL or CSV; - reads JSONL from stdin."),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Whose predictions: own for that of each row's engine, one for all (vllm, …), or ideal.",
        ),
    ] = "own",
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT", help="Strata of collection, engine, method, batch, context, tp or source."
        ),
    ] = None,
    rows: Annotated[bool, typer.Option("--rows", help="Every row with prediction, range and error.")] = False,
    worst: Annotated[
        str | None, typer.Option(metavar="N", help="The N rows that are furthest off, worst first.")
    ] = None,
    left_out: Annotated[
        bool, typer.Option("--left-out", help="Why rows have no prediction, counted.")
    ] = False,
    *,
    output: OutputOptions,
) -> None:
    """How wrong is this tool? Public measurements, or your own, rerun beside trivial rivals."""
    from specmath.accuracy import rerun_measurements
    from specmath.accuracy_tables import accuracy_table, left_out_table, point_table
    from specmath.cli.output import emit
    from specmath.cli.text import parse_count
    from specmath.measurement_files import read_measurements

    asked = {"by": by is not None, "rows": rows, "worst": worst is not None, "left_out": left_out}
    chosen = [name for name, given in asked.items() if given]
    if len(chosen) > 1:
        raise InputError(chosen[1], f"excludes --{chosen[0].replace('_', '-')}; each is a table of its own")
    measured = None if data is None else read_measurements(data)
    rerun = rerun_measurements(measured, predictor=profile)
    if left_out:
        emit(left_out_table(rerun), output)
    elif rows or worst is not None:
        emit(point_table(rerun, worst=None if worst is None else parse_count("worst", worst)), output)
    else:
        emit(accuracy_table(rerun, by=by), output)
