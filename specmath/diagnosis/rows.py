"""Rows of a diagnosis: measured, expected, and lines over k."""

from __future__ import annotations

import math
from collections.abc import Sequence

from specmath.diagnosis.steps import ModelledStep, Step, has_times
from specmath.k_lines import KLine
from specmath.measurements import Measurement
from specmath.results import Cell


def measured_row(step: Step, errors: tuple[float, float]) -> dict[str, Cell]:
    """R, (R − 1)/k and the errors of the line over k."""
    pair = step.pair
    return {
        "case": "measured",
        **_place(pair),
        "speedup": pair.times_faster,
        "step_cost": step.steps,
        "token_cost": (step.steps - 1) / pair.k,
        "target_s": pair.plain_step_s,
        "step_s": pair.step_s,
        "line_error": errors[0],
        "left_out_error": errors[1],
    }


def modelled_row(pair: Measurement, case: str, step: ModelledStep) -> dict[str, Cell]:
    """What a source makes of the step of this measurement."""
    return {
        "case": case,
        **_place(pair),
        "speedup": pair.acceptance_length / step.steps,
        "step_cost": step.steps,
        "step_cost_low": step.low,
        "step_cost_high": step.high,
        "token_cost": (step.steps - 1) / pair.k,
        "fixed_cost": step.verify_cost + step.overhead,
        "verify_cost": step.verify_cost,
        "draft_cost": step.draft_cost,
        "overhead": step.overhead,
        "target_s": step.plain_s,
        "step_s": step.steps * step.plain_s,
    }


def line_row(steps: Sequence[Step], line: KLine) -> dict[str, Cell]:
    """v + o and c of a line over k, in plain steps."""
    plain = [step.pair.plain_step_s for step in steps] if has_times(steps) else [1.0]
    unit = sum(plain) / len(plain)
    fixed, slope = line.in_plain_steps(unit)
    return {
        "case": "line over k",
        "batch": steps[0].pair.batch,
        "context": steps[0].pair.context,
        "fixed_cost": fixed,
        "draft_cost": slope,
        "target_s": unit if has_times(steps) else math.nan,
    }


def _place(pair: Measurement) -> dict[str, Cell]:
    return {
        "k": pair.k,
        "batch": pair.batch,
        "context": pair.context,
        "acceptance_length": pair.acceptance_length,
    }
