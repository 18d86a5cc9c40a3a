"""`specmath schedule`: which k at which batch?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from specmath.cli.options import (
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
    from collections.abc import Mapping, Sequence

_FILES = (".csv", ".jsonl")
_MEASURED_AT_K = ("acceptance_length", "accepted_over_drafted")


@with_options
def schedule(
    command_line: typer.Context,
    acceptance: AcceptanceOptions,
    batches: Annotated[
        str,
        typer.Option(
            metavar="1=.2,8=.5,64=.3",
            help="Weight by batch; or batches that weigh alike, as 1:256:x2; or a CSV or JSONL file of "
            "batch,weight.",
        ),
    ] = "1:256:x2",
    weights_are: Annotated[
        str,
        typer.Option(
            metavar="time|steps", help="What the weights share out: the time or the steps of plain decoding."
        ),
    ] = "time",
    context: Annotated[
        str | None,
        typer.Option(
            metavar="C",
            help="Tokens in the KV cache, per sequence. \\[default: 0, or the smallest calibrated]",
        ),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option(
            "--k",
            metavar="k",
            help="Draft tokens at which an acceptance length was measured; else, with --engine, a k to "
            "write the config of, without a plan.",
        ),
    ] = None,
    k_max: Annotated[
        str | None,
        typer.Option(
            metavar="k", help=r"Longest draft tried. \[default: 16, or as far as acceptance and draft go]"
        ),
    ] = None,
    switch_cost: Annotated[
        str,
        typer.Option(metavar="x", help="Share of the best static k's time that a change of k must save."),
    ] = "0.01",
    zero_tier_cost: Annotated[
        str | None,
        typer.Option(metavar="x", help="What a tier with k = 0 costs beyond a plain step, in plain steps."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="static|tiers|adaptive",
            help=r"Policy to write for the engine. \[default: what is recommended]",
        ),
    ] = None,
    *,
    device: DeviceOptions,
    pair: PairOptions,
    ratios: RatioOptions,
    measured: MeasuredOptions,
    source: SourceOptions,
    output: OutputOptions,
) -> None:
    """Which k at which batch? Off, the best static k, tiers, adaptive verification, side by side.

    With --engine NAME[@VERSION] it ends with what to paste for that engine.
    """
    from specmath.cli.calibrated import settled, typed_contexts
    from specmath.cli.cases import refuse_ratios, roofline
    from specmath.cli.configs import asks_for_fixed_k, fixed_config, with_config
    from specmath.cli.from_source import taken_from
    from specmath.cli.measured import question
    from specmath.cli.output import emit
    from specmath.cli.progress import progress_shown
    from specmath.cli.text import parse_count, parse_number
    from specmath.schedule import plan_schedule

    refuse_ratios(ratios, "a schedule")
    taken = taken_from(acceptance, source, k, measured=measured, pair=pair, longest_k=k_max)
    acceptance, measured = taken.acceptance, taken.measured
    typed_k = k if _is_typed(command_line, "k") and not measured.measured else None
    if policy in (None, "static") and typed_k is not None and asks_for_fixed_k(acceptance, device):
        config = fixed_config(typed_k, acceptance, device, pair, typed_contexts(context) or [0.0])
        emit(taken.told(config), output)
        return
    _refuse_missing_k(acceptance, k)
    contexts, load = typed_contexts(context), _load(batches)
    known = settled(acceptance, measured, device, pair, context=contexts, k=[k, k_max])
    acceptance, measured, device, pair = known.acceptance, known.measured, known.device, known.pair
    times = known.source or roofline(acceptance, device, pair)[0]
    longest = None if k_max is None else parse_count("k_max", k_max)
    asked = question(
        acceptance,
        measured,
        device,
        source=times,
        k=k,
        batch=list(load),
        context=known.context,
        default_k=[],
        longest_k=longest or 0,
    )
    with progress_shown("trying every k at every batch") as progress:
        table = plan_schedule(
            asked.laws,
            source=asked.corrected(times),
            batches=load,
            weights_are=weights_are,  # type: ignore[arg-type]  # checked there
            context=known.context,
            k_max=longest,
            switch_cost=parse_number("switch_cost", switch_cost),
            zero_tier_cost=None if zero_tier_cost is None else parse_number("zero_tier_cost", zero_tier_cost),
            progress=progress,
        )
    emit(taken.told(with_config(table, policy, acceptance, device, pair)), output)


def _is_typed(command_line: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line, and not in a file of defaults alone."""
    source = command_line.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_missing_k(acceptance: AcceptanceOptions, k: str | None) -> None:
    """A mean over drafts of one length says nothing before that length is known."""
    from specmath.cli.text import option
    from specmath.errors import InputError

    for name in _MEASURED_AT_K:
        if getattr(acceptance, name) is not None and k is None:
            raise InputError("k", f"is missing: {option(name)} needs the k at which it was measured")


def _load(text: str) -> Mapping[int, float] | Sequence[int]:
    """A record of weights by batch, an axis of batches that weigh alike, or the histogram of a file."""
    from specmath.axes import parse_axis, parse_record
    from specmath.cli.text import parse_count, parse_number
    from specmath.errors import InputError

    if text.lower().endswith(_FILES):
        from specmath.batch_files import read_batches  # only a file pays for csv and json

        return read_batches(text)
    if "=" not in text:
        return parse_axis("batches", text, whole=True)
    weights: dict[int, float] = {}
    for key, weight in parse_record("batches", text).items():
        batch = parse_count("batches", key)
        if batch in weights:
            raise InputError("batches", f"{batch} is given twice; keep one")
        weights[batch] = parse_number("batches", weight)
    return weights
