"""`specmath diagnose`: why is it slower than it should be?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from specmath.cli.options import (
    LAWS,
    AcceptanceOptions,
    DeviceOptions,
    MeasuredOptions,
    OutputOptions,
    PairOptions,
    SourceOptions,
    with_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmath.cli.calibrated import Settled
    from specmath.cli.from_source import Taken
    from specmath.cli.measured import Asked
    from specmath.diagnosis.setup import SetUp
    from specmath.sources import BatchSource


@with_options
def diagnose(
    source: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="A CSV, JSONL or JSON file of runs, or a measured pair as for --measured; several add up.",
            show_default=False,
        ),
    ] = None,
    *,
    acceptance: AcceptanceOptions,
    k: Annotated[
        str | None, typer.Option("--k", metavar="k", help="Draft tokens of a measurement that names none.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="B", help="Batch of a measurement that names none.")
    ] = None,
    context: Annotated[
        str, typer.Option(metavar="C", help="Context of a measurement that names none.")
    ] = "0",
    causes: Annotated[
        bool, typer.Option("--causes", help="A row for each cause, with its remedy, check and evidence.")
    ] = False,
    device: DeviceOptions,
    pair: PairOptions,
    measured: MeasuredOptions,
    engine_output: SourceOptions,
    output: OutputOptions,
) -> None:
    """Why is it slower than it should be? The measured step beside the model's, and the likely causes.

    Takes pairs with and without speculation, as k=1,speedup=.56,acceptance-length=1.69, or a file of runs.
    With --hardware, --target and --draft or --method they stand beside the engine's profile and datasheet.
    """
    from specmath.axes import parse_axis
    from specmath.cli.calibrated import settled
    from specmath.cli.from_source import taken_from
    from specmath.cli.measured import faults_of_measured, measured_pairs
    from specmath.cli.output import emit
    from specmath.diagnosis.table import diagnose as diagnosed
    from specmath.errors import InputError

    given = MeasuredOptions(measured=[*(source or []), *(measured.measured or [])])
    taken = taken_from(acceptance, engine_output, k, measured=given, pair=pair)
    contexts = parse_axis("context", context)
    known = settled(taken.acceptance, taken.measured, device, pair, context=contexts, needs_law=False)
    texts = _of_all_steps(replace(taken, measured=known.measured))
    if not texts:
        raise InputError("measured", _missing(taken))
    expected, beside = _expected(known)
    asked = _asked(taken.acceptance, taken.k, taken.batch if batch is None else batch, contexts)
    setup = _setup(expected, device, pair)
    with faults_of_measured():
        pairs, notes = measured_pairs(texts, asked)
        table = diagnosed(
            pairs, source=expected, beside=beside, setup=setup, observed=taken.observed, notes=notes
        )
    emit(taken.told(table.as_causes() if causes else table), output)


def _missing(taken: Taken) -> str:
    """Why there is nothing to diagnose: a plain run was left out, or none was named."""
    for note in taken.notes:
        return f"{note.text}; {note.remedy}"
    return "is missing: name a file of runs, or a pair as k=3,speedup=1.2,…"


def _of_all_steps(taken: Taken) -> list[str]:
    """The measurements, pairs at the source's k with its tokens per step: its steps were what was timed.

    The acceptance of the steps that drafted, which a forecast takes, would make the step of a lookup dearer.
    """
    from specmath.axes import parse_record
    from specmath.cli.measured import FIELDS
    from specmath.cli.named_files import names_a_file

    texts, length = taken.measured.measured or [], taken.observed.tokens_per_step
    if taken.law is None or length is None:
        return texts
    own_k = str(taken.law.estimate.measured_k)
    whole = []
    for text in texts:
        record = {} if names_a_file(text) else parse_record("measured", text, FIELDS)
        is_open = record and "acceptance_length" not in record and record.get("k", taken.k) == own_k
        whole.append(f"{text},acceptance-length={length!r}" if is_open else text)
    return whole


def _asked(
    acceptance: AcceptanceOptions, k: str | None, batch: str | None, context: Sequence[float]
) -> Asked:
    """What a measurement takes from the options."""
    from specmath.axes import parse_axis
    from specmath.cli.laws import acceptance_laws
    from specmath.cli.measured import Asked

    k_axis = [] if k is None else parse_axis("k", k, whole=True)
    given = any(getattr(acceptance, name) is not None for name in LAWS)
    return Asked(
        laws=acceptance_laws(acceptance, k_axis) if given else [],
        k=k_axis,
        batch=[] if batch is None else parse_axis("batch", batch, whole=True),
        context=context,
    )


def _expected(known: Settled) -> tuple[BatchSource | None, tuple[BatchSource, ...]]:
    """What sets the expectations, and the datasheet beside it; nothing where no target is named."""
    from specmath.cli.cases import roofline
    from specmath.errors import InputError

    if known.source is not None:
        leading, *others = known.cases()
    elif known.pair.target is None:
        stray = {"hardware": known.device.hardware, "draft": known.pair.draft}
        if strays := [name for name, value in stray.items() if value]:
            raise InputError(strays[0], "needs --target beside it, to know what a step should cost")
        return None, ()
    else:
        leading, *others = roofline(known.acceptance, known.device, known.pair)
    return leading, tuple(one for one in others if one.case == "ideal")


def _setup(expected: BatchSource | None, device: DeviceOptions, pair: PairOptions) -> SetUp:
    """What the model tells, or as much of it as the options do; one device for the draft only if typed."""
    from specmath.axes import parse_axis
    from specmath.cli.cases import DEFAULT_ENGINE, engine_choice
    from specmath.cli.models import degree
    from specmath.cli.text import given_or
    from specmath.diagnosis.setup import SetUp
    from specmath.profile_catalogue import IDEAL_PROFILE, load_profile

    draft_tp = None if pair.draft_tp is None else degree("draft_tp", pair.draft_tp)
    if expected is not None:
        known = SetUp.of(expected)
        if expected.case == "calibrated":
            known = replace(known, engine=_own_name(engine_choice(device).profile))
        return known if known.draft_tp != 1 else replace(known, draft_tp=draft_tp)
    engine = engine_choice(device).profile
    if engine not in (DEFAULT_ENGINE, IDEAL_PROFILE):
        load_profile(engine, hardware_file=device.hardware_file)  # refuses a name that none has
    graphs = device.graph_sizes
    return SetUp(
        engine=_own_name(engine),
        method=given_or(pair.method, ""),
        tp=degree("tp", device.tp),
        draft_tp=draft_tp,
        quantised=None if device.quantization is None else True,
        graph_sizes=() if graphs is None else tuple(parse_axis("graph_sizes", graphs, whole=True)),
    )


def _own_name(profile: str) -> str:
    """The engine that a profile is of; empty for those of none."""
    from specmath.cli.cases import DEFAULT_ENGINE
    from specmath.profile_catalogue import IDEAL_PROFILE

    return "" if profile in (DEFAULT_ENGINE, IDEAL_PROFILE) else profile
