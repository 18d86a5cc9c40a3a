"""Rules for a draft that yields too little, whatever its step costs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from specmath.acceptance import ConstantAcceptance
from specmath.checks import FloatArray
from specmath.diagnosis.causes import Cause, cause
from specmath.diagnosis.steps import NOISE, Step, Symptoms

COLLAPSED = 1.12
MISMATCHED_ALPHA = 0.5
MAX_TRIED = 64
"""Longest k that is tried instead."""
LONG_DRAFT = 8
"""k from which most of a step is surely spent on the draft tokens."""


def acceptance_causes(symptoms: Symptoms) -> Iterator[Cause]:
    """What is wrong with the acceptance, and whether k is too long for it."""
    yield from _poor(symptoms)
    yield from _too_long(symptoms)
    yield from _misses(symptoms)


def _poor(symptoms: Symptoms) -> Iterator[Cause]:
    step = min(symptoms.steps, key=lambda one: one.alpha if one.is_chain else math.inf)
    length, k = step.pair.acceptance_length, step.pair.k
    if length <= COLLAPSED and not symptoms.setup.is_lookup:
        text = f"E = {length:.2f} at k {k}: hardly a draft token is accepted"
        yield cause("acceptance-collapse", 0.9 if k > 1 else 0.7, text)
    elif step.alpha < MISMATCHED_ALPHA:
        fit = (
            0.6 - 0.35 * symptoms.dearness
            if step.pair.times_faster < 1.15
            else 0.3 - 0.15 * symptoms.dearness
        )
        yield cause("low-acceptance", fit, f"E = {length:.2f} at k {k} is α = {step.alpha:.2f}")


def _too_long(symptoms: Symptoms) -> Iterator[Cause]:
    for steps, _ in symptoms.lines:
        longest, best = max(steps, key=_k), max(steps, key=lambda one: one.pair.times_faster)
        gain = best.pair.times_faster / longest.pair.times_faster - 1
        if _k(best) < _k(longest) and gain > NOISE - 1:
            text = (
                f"k {_k(longest)} gives {longest.pair.times_faster:.2f} and k {_k(best)} "
                f"{best.pair.times_faster:.2f}, {gain:.0%} more, as measured"
            )
            yield cause("draft-too-long", 0.6, text)
    if not symptoms.lines and symptoms.worst.is_chain:
        yield from _too_long_for_its_cost(symptoms, symptoms.worst)


def _too_long_for_its_cost(symptoms: Symptoms, step: Step) -> Iterator[Cause]:
    """The best k at this α, the excess of R being spread as R itself is."""
    lengths = np.arange(1, min(step.pair.k, MAX_TRIED))
    if not lengths.size:
        return
    speedups = _speedups(symptoms, step, lengths)
    best = int(np.argmax(speedups))
    k, speedup = int(lengths[best]), float(speedups[best])
    gain = speedup / step.pair.times_faster - 1
    if gain > NOISE - 1:
        text = (
            f"at α = {step.alpha:.2f} and {step.dearest_draft_cost:.2f} plain steps a draft token k "
            f"{k} would "
            f"give {speedup:.2f}, k {step.pair.k} gives {step.pair.times_faster:.2f}"
        )
        most = 0.7 if step.pair.k >= LONG_DRAFT else 0.55
        yield cause("draft-too-long", min(0.3 + 0.6 * gain, most), text)


def _speedups(symptoms: Symptoms, step: Step, k: npt.NDArray[np.int64]) -> FloatArray:
    pair = step.pair
    if symptoms.source is None:
        steps = 1 + (step.steps - 1) * k / pair.k
    else:
        steps = step.ratio * symptoms.source.step_cost(k, pair.batch, pair.context).in_plain_steps
    return np.asarray(ConstantAcceptance(step.alpha).acceptance_length(k) / np.maximum(steps, 1e-9))


def _misses(symptoms: Symptoms) -> Iterator[Cause]:
    """The share of steps with a match that would explain the speed-up, where E counts these alone.

    An E of the whole run has its misses in it, and no share of them makes a slowdown.
    """
    step, told, whole = symptoms.worst, symptoms.observed.draftless_share, symptoms.observed.tokens_per_step
    accepted = step.pair.acceptance_length - 1
    if not symptoms.setup.is_lookup or step.ratio <= 1 or accepted <= 0:
        return
    if whole is not None and step.pair.acceptance_length <= whole * NOISE:
        return
    matched = min((step.pair.times_faster - 1) / accepted, 1.0)
    if told is not None:
        text, fit = f"{told:.0%} of the steps had no draft at all", 0.9 if told > 0.1 else 0.1
    elif matched <= 0:
        text, fit = f"a speed-up of {step.pair.times_faster:.2f} takes more than steps without a match", 0.2
    else:
        text = f"a match in {matched:.0%} of the steps would explain {step.pair.times_faster:.2f}"
        fit = 0.7
    yield cause(
        "lookup-misses", fit, f"{text}; E = {step.pair.acceptance_length:.2f} counts steps with a match"
    )


def _k(step: Step) -> int:
    return step.pair.k
