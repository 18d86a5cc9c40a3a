"""From `--measured` to measurements, and from step-time sources to sources that agree with them.

    k=3,batch=8,speedup=1.7,acceptance-length=2.8      a pair
    off=3120tok/s@32,on=5180tok/s@32                   both arms, of all sequences together, at batch 32
    off=14.2ms@8,on=8.1ms@8                            both arms, per output token of a sequence
    runs.csv, runs.jsonl, runs.json                    a table of runs
    server.yaml                                        runs that `specmath calibrate` took from outside

What a measurement leaves out is taken from the question: its only k, its only batch, its first context, and
the acceptance that its options name. Where they name none, the question takes that of the measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from specmath.acceptance_axis import AcceptanceAxis
from specmath.anchors import anchored
from specmath.axes import parse_record
from specmath.cli.calibrated import names_no_law
from specmath.cli.laws import acceptance_laws, draft_lengths, match_rate
from specmath.cli.measured_setups import AskedSetup
from specmath.cli.named_files import calibration_named, names_a_file, read_named
from specmath.cli.options import AcceptanceOptions, DeviceOptions, MeasuredOptions
from specmath.cli.text import parse_count, parse_number
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.measured_acceptance import acceptance_contradiction, measured_law
from specmath.measurements import Measurement, Run, paired
from specmath.results import Advice
from specmath.sources import BatchSource, StepTimeSource
from specmath.units import parse_quantity

FIELDS = ("k", "batch", "context", "acceptance_length", "speedup", "off", "on")
_Arm = tuple[float, bool, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the question is about, for what a measurement leaves out.

    Attributes:
        laws: Acceptance laws; none where the measurements are to tell it.
        k: Draft lengths.
        batch: Batches.
        context: Contexts.
        setup: Models, machine and engine; None where rows of any are taken.
    """

    laws: Sequence[AcceptanceLaw]
    k: Sequence[int]
    batch: Sequence[int]
    context: Sequence[float]
    setup: AskedSetup | None = None

    @property
    def only_k(self) -> int | None:
        return self.k[0] if len(self.k) == 1 else None

    @property
    def only_batch(self) -> int | None:
        return self.batch[0] if len(self.batch) == 1 else None

    def law(self, context: float) -> AcceptanceLaw | None:
        """The one law asked about; None where there are several, or none."""
        if not self.laws:
            return None
        axis = AcceptanceAxis.of(self.laws)
        return axis.law(0).at(context) if len(axis) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The acceptance and the draft lengths of a question, and what was measured of its set-up.

    Attributes:
        laws: Acceptance laws, those of the options or that of the measurements.
        k: Draft lengths asked about.
        batch: Batches, to warn beyond the measured ones.
        pairs: What was measured; none without `--measured`.
        notes: What a reader must know about it.
        taken: What the question took from it, as sentences.
    """

    laws: Sequence[AcceptanceLaw]
    k: Sequence[int]
    batch: Sequence[int]
    pairs: tuple[Measurement, ...] = ()
    notes: tuple[Advice, ...] = ()
    taken: tuple[str, ...] = ()

    def corrected(self, source: BatchSource) -> BatchSource:
        """The source corrected by what was measured; the source itself where nothing was."""
        if not self.pairs:
            return source
        with faults_of_measured():
            return anchored(source, self.pairs).asked(self.batch, notes=self.notes, taken=self.taken)

    def with_measured(self, cases: tuple[StepTimeSource, ...]) -> tuple[StepTimeSource, ...]:
        """The cases with the measured one in front, in the place of the profile's."""
        if not self.pairs:
            return cases
        leading = self.corrected(cast("BatchSource", cases[0]))
        return (leading, *(cases if cases[0].case == "ideal" else cases[1:]))


def question(
    acceptance: AcceptanceOptions,
    measured: MeasuredOptions,
    device: DeviceOptions,
    *,
    source: StepTimeSource,
    k: str | None,
    batch: Sequence[int],
    context: Sequence[float],
    default_k: Sequence[int] | None = None,
    longest_k: int | None = None,
) -> Question:
    """What is asked, with its measurements.

    Args:
        acceptance: The options that name the law; none of them takes that of the measurements.
        measured: The measurements, as text.
        device: The options behind the source.
        source: Step times of the set-up asked about.
        k: Draft lengths as typed.
        batch: Batches.
        context: Contexts.
        default_k: What a measurement's k is where it names none and none is typed; None for that of the
            acceptance.
        longest_k: The longest draft asked about, 0 where it follows from the acceptance; None for that of k.
    """
    k_axis = draft_lengths(k, acceptance)
    open_law = bool(measured.measured) and names_no_law(acceptance)
    laws = [] if open_law else acceptance_laws(acceptance, k_axis)
    if not measured.measured:
        return Question(laws=laws, k=k_axis, batch=batch)
    if source.case == "ratios":
        problem = (
            "corrects a model of the step; typed ratios are no model: give --hardware, --target, --draft"
        )
        raise InputError("measured", problem)
    own_k = k_axis if k is not None or default_k is None else default_k
    setup = AskedSetup.of(source, device)
    asked = Asked(laws=laws, k=own_k, batch=batch, context=context, setup=setup)
    with faults_of_measured():
        pairs, notes = measured_pairs(measured.measured, asked)
    notes = (*notes, *acceptance_contradiction(laws, pairs))
    if not open_law:
        return Question(laws=laws, k=k_axis, batch=batch, pairs=pairs, notes=notes)
    k_axis = [max(pair.k for pair in pairs)] if k is None else k_axis
    longest = max(k_axis) if longest_k is None else longest_k
    law, told = _law_of(pairs, acceptance, longest)
    return Question(laws=[law], k=k_axis, batch=batch, pairs=pairs, notes=notes, taken=(told,))


def _law_of(
    pairs: Sequence[Measurement], acceptance: AcceptanceOptions, longest_k: int
) -> tuple[AcceptanceLaw, str]:
    """The measured law; of a lookup draft that of the steps with a match."""
    if acceptance.match_rate is None:
        return measured_law(pairs, longest_k=longest_k)
    from specmath.mixtures import LookupAcceptance

    rate = match_rate(acceptance)
    if any(pair.acceptance_length - 1 > rate * pair.k for pair in pairs):
        raise InputError("match_rate", f"{rate:g} is too small for the acceptance length that was measured")
    in_matched = [
        replace(pair, acceptance_length=1 + (pair.acceptance_length - 1) / rate if rate else 1.0)
        for pair in pairs
    ]
    law, told = measured_law(in_matched, longest_k=longest_k)
    return LookupAcceptance(rate, law), f"once matched: {told}"


@contextmanager
def faults_of_measured() -> Iterator[None]:
    """What is wrong with a measurement is wrong with `--measured`."""
    try:
        yield
    except InputError as fault:
        if fault.name == "measured":
            raise
        raise InputError("measured", f"{fault.name.replace('_', '-')}: {fault.problem}") from fault


def measured_pairs(texts: Sequence[str], asked: Asked) -> tuple[tuple[Measurement, ...], tuple[Advice, ...]]:
    """The pairs that records and files of runs make, and what a reader must know about them."""
    runs: list[Run] = []
    whole: list[Measurement] = []
    notes: list[Advice] = []
    for text in texts:
        if calibration_named(text) is not None:
            taken, said = _taken_from_outside(text)
            whole += taken
        else:
            found, said = _file(text, asked) if names_a_file(text) else ([_typed(text, asked)], [])
            runs += found
        notes += said
    pairs = (*paired(_with_lengths(runs, asked)), *whole)
    if not pairs:
        raise InputError("measured", "holds no run with speculation; give `on` too, or a speed-up")
    return tuple(_shaped(pair, asked) for pair in pairs), tuple(notes)


def _taken_from_outside(text: str) -> tuple[list[Measurement], list[Advice]]:
    """The pairs of a calibration file of runs."""
    from specmath.calibrations import Calibration

    named = calibration_named(text)
    assert named is not None
    record = read_named(named)
    if isinstance(record, Calibration):
        raise InputError("measured", f"{named.path} is a calibration of passes, and holds no runs")
    places = (f"{Path(named.path).name}: run {number}" for number, _ in enumerate(record.runs, start=1))
    told = [replace(run, where=run.where or place) for run, place in zip(record.runs, places, strict=True)]
    return told, list(record.warnings)


def _file(text: str, asked: Asked) -> tuple[list[Run], list[Advice]]:
    from specmath.run_files import RunDefaults, read_runs  # only a file pays for csv and json

    defaults = RunDefaults(k=asked.only_k, batch=asked.only_batch, context=asked.context[0])
    differs = None if asked.setup is None else asked.setup.differs
    runs, notes = read_runs(Path(text), defaults=defaults, differs=differs)
    return list(runs), list(notes)


def _typed(text: str, asked: Asked) -> Run:
    record = parse_record("measured", text, FIELDS)
    arms: dict[str, _Arm] = {name: _arm(name, record[name]) for name in ("off", "on") if name in record}
    batch = _batch(record, arms, asked)
    off, on = (_seconds(arms.get(name), batch) for name in ("off", "on"))
    speculative = on is not None or "speedup" in record
    k = _k(record, asked) if speculative or off is None else 0
    return Run(
        k=k,
        batch=batch,
        context=_number(record, "context", asked.context[0]),
        acceptance_length=_number(record, "acceptance_length", None),
        seconds_per_token=off if k == 0 else on,
        plain_s=None if k == 0 else off,
        speedup=_number(record, "speedup", None),
    )


def _arm(name: str, text: str) -> _Arm:
    """The figure of one arm, whether it is a throughput of all sequences, and the batch behind the @."""
    figure, at, batch = text.partition("@")
    is_rate = figure.rstrip().endswith("tok/s")
    if not (is_rate or figure.rstrip().endswith("s")):
        problem = "needs a unit: 3120tok/s of all sequences together, or 14.2ms per output token of one"
        raise InputError("measured", f"{name}={figure} {problem}")
    value = parse_quantity("measured", figure, "tok/s" if is_rate else "s")
    if value <= 0:
        raise InputError("measured", f"{name}={figure} must be above 0")
    return value, is_rate, parse_count("measured", batch) if at else None


def _seconds(arm: _Arm | None, batch: int) -> float | None:
    """Seconds per output token of one sequence."""
    if arm is None:
        return None
    value, is_rate, _ = arm
    return batch / value if is_rate else value


def _batch(record: Mapping[str, str], arms: Mapping[str, _Arm], asked: Asked) -> int:
    named = {batch for _, _, batch in arms.values() if batch is not None}
    if "batch" in record:
        named.add(parse_count("measured", record["batch"]))
    if len(named) > 1:
        told = " and ".join(str(batch) for batch in sorted(named))
        raise InputError("measured", f"names batch {told}; both arms must run at one batch")
    batch = next(iter(named), asked.only_batch)
    if batch is None:
        raise InputError(
            "measured", f"lacks its batch, and the question has {_count_word(asked.batch)}; add batch=8"
        )
    if batch < 1:
        raise InputError("measured", f"batch must be at least 1, got {batch}")
    return batch


def _k(record: Mapping[str, str], asked: Asked) -> int:
    if "k" in record:
        k: int | None = parse_count("measured", record["k"])
    else:
        k = asked.only_k
    if k is None:
        raise InputError("measured", f"lacks its k, and the question has {_count_word(asked.k)}; add k=3")
    if k < 1:
        raise InputError("measured", f"k must be at least 1, got {k}; a run without speculation is off=…")
    return k


def _count_word(axis: Sequence[int]) -> str:
    return "several" if len(axis) else "none"


def _number(record: Mapping[str, str], key: str, default: Any) -> Any:
    return parse_number("measured", record[key]) if key in record else default


def _with_lengths(runs: Sequence[Run], asked: Asked) -> Iterator[Run]:
    """The runs, those without an acceptance length with that of the question's law."""
    for run in runs:
        law = asked.law(run.context)
        if run.k == 0 or run.acceptance_length is not None:
            yield run
        elif law is None:
            several = "is missing, and several acceptances are asked about"
            problem = (
                several if asked.laws else "is missing; add it to the measurement, or give --alpha or its kin"
            )
            raise InputError("acceptance_length", problem)
        else:
            yield replace(run, acceptance_length=float(law.acceptance_length(run.k)))


def _shaped(pair: Measurement, asked: Asked) -> Measurement:
    """The measurement with the tree of the question's law, where it is one."""
    law = asked.law(pair.context)
    if law is None or (law.max_k is not None and pair.k > law.max_k):
        return pair
    width, passes = int(law.width(pair.k)), int(law.draft_passes(pair.k))
    return pair if (width, passes) == (pair.k + 1, pair.k) else replace(pair, width=width, passes=passes)
