"""Why is it slower than it should be? Measured steps beside the model's, and the likely causes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from specmath.anchors import MAX_MEASUREMENTS
from specmath.diagnosis.causes import OUTRIGHT, Cause
from specmath.diagnosis.dear_steps import dear_step_causes, split_text
from specmath.diagnosis.inconsistency import inconsistencies
from specmath.diagnosis.poor_acceptance import acceptance_causes
from specmath.diagnosis.rows import line_row, measured_row, modelled_row
from specmath.diagnosis.setup import NOTHING_OBSERVED, Observed, SetUp
from specmath.diagnosis.steps import NOISE, ModelledStep, Step, Symptoms
from specmath.diagnosis.verdict import causes_told, separating_measurement, verdict_of, within_expectation
from specmath.errors import InputError
from specmath.measurements import Measurement
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
from specmath.sources import BatchSource


def diagnose(
    measurements: Sequence[Measurement],
    *,
    source: BatchSource | None = None,
    beside: Sequence[BatchSource] = (),
    setup: SetUp | None = None,
    observed: Observed = NOTHING_OBSERVED,
    notes: Sequence[Advice] = (),
) -> DiagnosisTable:
    """Measured steps beside those that a model expects, and the causes that explain the difference.

        R = E/S      (R − 1)/k      E·TPOT = (v + o)·T_AR + c·T_AR·k

    Assumes that all measurements are of one set-up. Without a source, steps are judged by what public
    measurements show: R about 1.15 + 0.1·k, seldom more than 1.5 times that.

    Args:
        measurements: Pairs with and without speculation, one to `MAX_MEASUREMENTS`.
        source: What sets the expectations, usually an engine's profile.
        beside: Further sources to show; the one of case `ideal` sets the roof of the plain step.
        setup: What is known of the set-up; None for what the source tells.
        observed: What the engine tells of the speculative run.
        notes: Warnings of whoever read the measurements.

    Raises:
        InputError: for no measurement, too many, or one without a plain run and no model to take it from.

    Source: own derivation from S = E/(v + c·k + o); each cause names where it was seen.

    >>> pair = Measurement(k=1, batch=1, acceptance_length=1.69, plain_s=1 / 465, speculative_s=1 / 260)
    >>> table = diagnose([pair], setup=SetUp(engine="vllm", method="mtp"))  # R = 3.0
    >>> table.causes[0].code, table.causes[0].likelihood
    ('graphs-lost', 'likely')
    """
    pairs = tuple(measurements)
    if not 0 < len(pairs) <= MAX_MEASUREMENTS:
        raise InputError("measured", f"takes 1 to {MAX_MEASUREMENTS} measurements, got {len(pairs)}")
    known = SetUp.of(source) if setup is None else setup
    ideal = next((one for one in (*beside, source) if one is not None and one.case == "ideal"), None)
    expected = tuple(map(ModelledStep.usual, pairs)) if source is None else ModelledStep.of(source, pairs)
    roofs = _roofs_s(pairs, ideal, dense=not known.experts)
    steps = tuple(map(_step, pairs, expected, roofs))
    symptoms = Symptoms(steps=steps, setup=known, observed=observed, source=source)
    return DiagnosisTable(
        symptoms=symptoms,
        beside=tuple(beside),
        causes=_causes(symptoms),
        notes=(*notes, *_modelled_plain(pairs, source)),
    )


def _step(pair: Measurement, expected: ModelledStep, roof_s: float) -> Step:
    if math.isnan(pair.in_plain_steps):
        if math.isnan(expected.plain_s):
            place = pair.where or pair.text
            raise InputError("plain_s", f"is missing: {place} has no run without speculation, and no model")
        pair = replace(pair, plain_s=expected.plain_s)
    return Step(pair=pair, expected=expected, roof_s=roof_s)


def _roofs_s(pairs: Sequence[Measurement], ideal: BatchSource | None, *, dense: bool) -> list[float]:
    """Seconds to read the weights; experts as one sequence reads them, which is a bound for any routing."""
    if ideal is None:
        return [math.nan] * len(pairs)
    batches = [pair.batch if dense else 1 for pair in pairs]
    plain_s = ideal.step_cost([pair.k for pair in pairs], batches, 0).plain_s
    return [float(one) for one in np.broadcast_to(plain_s, len(pairs))]


def _modelled_plain(pairs: Sequence[Measurement], source: BatchSource | None) -> tuple[Advice, ...]:
    missing = [pair for pair in pairs if math.isnan(pair.in_plain_steps)]
    if source is None or not missing:
        return ()
    lacking = f"{len(missing)} of {len(pairs)} measurements lack a plain run"
    text = f"{lacking}: the plain step is the {source.case} model's"
    return (Advice(code="plain-step-modelled", text=text, remedy="measure it too: off=… at the same batch"),)


def _causes(symptoms: Symptoms) -> tuple[Cause, ...]:
    """The causes in order of fit, each once; none of a dear step where a figure is impossible."""
    odd = list(inconsistencies(symptoms))
    found = [*odd, *acceptance_causes(symptoms)]
    if symptoms.best.steps >= 1 / NOISE:
        found += dear_step_causes(symptoms)
        if not any(one.fit >= OUTRIGHT for one in odd):
            found += within_expectation(symptoms)
    best: dict[str, Cause] = {}
    for one in found:
        if one.fit > 0 and (one.code not in best or best[one.code].fit < one.fit):
            best[one.code] = one
    return tuple(sorted(best.values(), key=lambda one: (-one.fit, one.code)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisTable(Result):
    """Every measurement, what each source expects there, and the lines over k; the causes in order.

    Attributes:
        symptoms: The evidence.
        beside: Further sources that are shown.
        causes: What explains it, the likeliest first; `as_causes` makes rows of them.
        notes: Warnings of whoever read the measurements.
    """

    schema: ClassVar[str] = "specmath.diagnosis/1"
    keys: ClassVar[tuple[str, ...]] = (
        "case",
        "k",
        "batch",
        "context",
        "acceptance_length",
        "speedup",
        "step_cost",
        "step_cost_low",
        "step_cost_high",
        "token_cost",
        "fixed_cost",
        "verify_cost",
        "draft_cost",
        "overhead",
        "target_s",
        "step_s",
        "line_error",
        "left_out_error",
    )

    symptoms: Symptoms
    beside: tuple[BatchSource, ...]
    causes: tuple[Cause, ...]
    notes: tuple[Advice, ...] = ()

    def __len__(self) -> int:
        sources = (self.symptoms.source is not None) + len(self.beside)
        return len(self.symptoms.steps) * (1 + sources) + len(self.symptoms.lines)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        source, setup = self.symptoms.source, self.symptoms.setup
        if source is not None:
            return source.inputs
        return {"engine": setup.engine or None, "method": setup.method or None}

    @property
    def assumptions(self) -> tuple[str, ...]:
        source, split = self.symptoms.source, split_text(self.symptoms.parts)
        judged = (
            ("no model asked: judged by public measurements, R about 1.15 + 0.1·k, up to 1.5 times that",)
            if source is None
            else source.assumptions[:1]
        )
        return (
            "R = E/S is the step in plain ones; on a line over k its intercept is v + o, its slope c and one "
            "more token verified",
            *judged,
            *((f"of the cost beyond what is expected {split}",) if split else ()),
            "causes stand in order of how well the evidence fits; several may hold at once, and repeat runs "
            f"differ by {NOISE - 1:.0%}",
            *(() if source is None else source.assumptions[1:]),
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """The causes, the measurement that would tell them apart, then what the model warns of."""
        return (*causes_told(self.causes), *self.warnings_beside)

    @property
    def warnings_beside(self) -> tuple[Advice, ...]:
        """The warnings without the causes."""
        source = self.symptoms.source
        model = [] if source is None else [one for one in source.warnings if not one.until_measured]
        return (*separating_measurement(self.symptoms, self.causes), *self.notes, *model)

    @property
    def verdict(self) -> str:
        return verdict_of(self.symptoms, self.causes)

    @property
    def derivation(self) -> tuple[str, ...]:
        step, source = self.symptoms.steps[0], self.symptoms.source
        pair = step.pair
        first = (
            f"R = E/S = {pair.acceptance_length:.4g}/{pair.times_faster:.4g} = {step.steps:.4f}; "
            f"(R − 1)/k = {(step.steps - 1) / pair.k:.4f}"
        )
        if source is None:
            return (first,)
        width, passes = pair.width or pair.k + 1, pair.passes or pair.k
        return (
            first,
            *source.derivation(pair.k, pair.batch, int(pair.context), width=width, passes=passes),
        )

    def as_causes(self) -> CauseTable:
        """The causes as rows of their own."""
        return CauseTable(diagnosis=self)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        rows = list(self._rows())
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield {key: [row.get(key) for row in part] for key in self.keys}

    def _rows(self) -> Iterator[dict[str, Cell]]:
        errors = {
            step: pair
            for steps, line in self.symptoms.lines
            for step, pair in zip(steps, zip(line.errors, line.left_out_errors, strict=True), strict=True)
        }
        pairs, source = [step.pair for step in self.symptoms.steps], self.symptoms.source
        beside = [(one.case, ModelledStep.of(one, pairs)) for one in self.beside]
        for place, step in enumerate(self.symptoms.steps):
            yield measured_row(step, errors.get(step, (math.nan, math.nan)))
            if source is not None:
                yield modelled_row(step.pair, source.case, step.expected)
            for case, modelled in beside:
                yield modelled_row(step.pair, case, modelled[place])
        for steps, line in self.symptoms.lines:
            yield line_row(steps, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseTable(Result):
    """The causes of a diagnosis, one a row, the likeliest first.

    Attributes:
        diagnosis: What they explain.
    """

    schema: ClassVar[str] = "specmath.diagnosis-causes/1"
    keys: ClassVar[tuple[str, ...]] = (
        "rank",
        "cause",
        "likelihood",
        "fit",
        "shown_by",
        "remedy",
        "to_check",
        "seen_in",
    )

    diagnosis: DiagnosisTable

    def __len__(self) -> int:
        return len(self.diagnosis.causes)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return self.diagnosis.inputs

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.diagnosis.assumptions

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return self.diagnosis.warnings_beside

    @property
    def verdict(self) -> str:
        return self.diagnosis.verdict

    @property
    def derivation(self) -> tuple[str, ...]:
        return self.diagnosis.derivation

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        causes = self.diagnosis.causes
        for start in range(0, len(causes), size):
            part = causes[start : start + size]
            yield {
                "rank": list(range(start + 1, start + 1 + len(part))),
                "cause": [one.code for one in part],
                "likelihood": [one.likelihood for one in part],
                "fit": [one.fit for one in part],
                "shown_by": [one.text for one in part],
                "remedy": [one.remedy for one in part],
                "to_check": [one.check for one in part],
                "seen_in": [one.evidence for one in part],
            }
