"""Rules for figures that cannot belong together: no machine takes such a step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from specmath.diagnosis.causes import Cause, cause
from specmath.diagnosis.steps import NOISE, Step, Symptoms
from specmath.units import format_quantity, format_significant


def inconsistencies(symptoms: Symptoms) -> Iterator[Cause]:
    """What says that something else was measured, or counted."""
    yield from beyond_the_roof(symptoms)
    yield from swapped_models(symptoms)
    yield from swapped_arms(symptoms)
    yield from step_against_clock(symptoms)
    step = symptoms.best
    if step.steps < 1 / NOISE:
        yield other_baseline(step)
        yield from bonus_left_out(step)
        yield from ratio_taken_for_alpha(step)
        yield another_run(step)
        return
    yield from slow_baseline(symptoms)
    if step.steps < step.ends[0]:
        yield from (_less(one) for one in (*bonus_left_out(step), *ratio_taken_for_alpha(step)))
        yield _less(another_run(step))


def beyond_the_roof(symptoms: Symptoms) -> Iterator[Cause]:
    """A plain step shorter than the datasheet allows."""
    step = max(symptoms.steps, key=lambda one: _or_zero(one.roof_s / one.pair.plain_step_s))
    times = step.roof_s / step.pair.plain_step_s
    if not times > 1.02:
        return
    took, roof = (format_quantity(value, "s", 3) for value in (step.pair.plain_step_s, step.roof_s))
    streams = math.ceil(step.pair.batch * times)
    text = (
        f"a plain step of {took} at batch {step.pair.batch} is beyond the bandwidth roof: reading the "
        "weights "
        f"alone takes {roof}, {format_significant(times, 3)} times as long; as a throughput it would need "
        f"{streams:,} streams at least"
    )
    yield cause("baseline-beyond-the-roof", 1.0 if times > 1.15 else 0.9, text)


def swapped_models(symptoms: Symptoms) -> Iterator[Cause]:
    """A draft larger than its target, or draft tokens dearer than those of the target."""
    setup, step = symptoms.setup, max(symptoms.steps, key=lambda one: one.dearest_draft_cost)
    draft, target = setup.draft_bytes, setup.target_bytes
    if draft is not None and target is not None and draft > target * NOISE:
        sizes = (
            f"{format_quantity(draft, 'B', 3)} of weights for a target of {format_quantity(target, 'B', 3)}"
        )
        yield cause("draft-and-target-swapped", 1.0, f"the draft is the larger model: {sizes}")
    elif step.dearest_draft_cost > 1 and setup.drafts_one_by_one and _may_be_swapped(step, draft, target):
        text = f"a draft token costs {step.dearest_draft_cost:.2f} plain steps: the draft is the slower model"
        yield cause("draft-and-target-swapped", 0.85, text)


def _may_be_swapped(step: Step, draft: float | None, target: float | None) -> bool:
    """Where the sizes are not known, and a draft pass would have to take much longer than the target."""
    return (draft is None or target is None) and step.steps > 2 * (step.pair.k + 1) / NOISE


def swapped_arms(symptoms: Symptoms) -> Iterator[Cause]:
    """A slowdown that is the expected speed-up upside down."""
    step = symptoms.worst
    turned = step.pair.acceptance_length * step.pair.times_faster
    if step.pair.times_faster > 1 / 1.3 or step.dearness < 1:
        return
    low, high = step.ends
    if low <= turned <= high:
        off = abs(math.log(turned / step.expected.steps)) / math.log(NOISE)
        text = (
            f"with the arms exchanged the speed-up is {1 / step.pair.times_faster:.2f} and R = {turned:.2f}, "
            f"where {step.expected.steps:.2f} is expected"
        )
        yield cause("arms-swapped", 0.3 if off < 2 else 0.2, text)


def step_against_clock(symptoms: Symptoms) -> Iterator[Cause]:
    """E·TPOT beside the step time that the engine itself tells."""
    told, step = symptoms.observed.step_s, symptoms.steps[0]
    if told is None or math.isnan(step.pair.step_s):
        return
    ratio = step.pair.step_s / told
    if max(ratio, 1 / ratio) > NOISE:
        text = (
            f"E·TPOT = {format_quantity(step.pair.step_s, 's', 3)}, and the engine's steps took "
            f"{format_quantity(told, 's', 3)}: E of the timed run is "
            f"{step.pair.acceptance_length / ratio:.2f}"
        )
        yield cause("acceptance-from-another-run", 0.92, text)


def other_baseline(step: Step) -> Cause:
    """A speed-up beyond E."""
    pair = step.pair
    text = f"speed-up {pair.times_faster:.3g} exceeds E = {pair.acceptance_length:.3g}: R = {step.steps:.2f}"
    if pair.times_faster > (pair.k + 1) * NOISE and step.is_chain:
        return cause(
            "other-baseline", 0.95, f"{text}, and no step of k = {pair.k} yields more than {pair.k + 1}"
        )
    if step.plain_ratio > 1.3:
        told = f"the plain step is {step.plain_ratio:.2f} times the expected one"
        return cause("other-baseline", 0.8, f"{text}; {told}")
    return cause("other-baseline", 0.5, text)


def slow_baseline(symptoms: Symptoms) -> Iterator[Cause]:
    """A plain step far above the model's, with a speed-up that gains by it."""
    step = max(symptoms.steps, key=lambda one: _or_zero(one.plain_ratio))
    if step.plain_ratio > 1.6:
        text = (
            f"the plain step took {format_quantity(step.pair.plain_step_s, 's', 3)}, "
            f"{step.plain_ratio:.2f} times "
            "the expected one: a baseline without graphs, on other hardware, or with prefill in it"
        )
        yield cause("other-baseline", 0.6 if step.ratio < 1 / NOISE else 0.35, text)


def bonus_left_out(step: Step) -> Iterator[Cause]:
    """E + 1 would fit."""
    pair = step.pair
    if step.is_chain and pair.acceptance_length + 1 <= pair.k + 1:
        fit = _fit_of(step, (pair.acceptance_length + 1) / pair.times_faster)
        told = f"with the bonus token E = {pair.acceptance_length + 1:.2f}"
        yield from _if_it_fits("bonus-left-out", step, fit, told, pair.acceptance_length + 1, best=0.85)


def ratio_taken_for_alpha(step: Step) -> Iterator[Cause]:
    """E = 1 + k·α would fit, α being what this E came from."""
    pair = step.pair
    if step.is_chain and pair.k > 1 and 0.05 < step.alpha < 0.995:
        length = 1 + pair.k * step.alpha
        told = f"were α = {step.alpha:.2f} accepted over drafted, E = {length:.2f}"
        fit = _fit_of(step, length / pair.times_faster)
        yield from _if_it_fits("ratio-taken-for-alpha", step, fit, told, length, best=0.8)


def another_run(step: Step) -> Cause:
    """Some other E would fit."""
    needed = step.pair.times_faster * step.expected.steps
    text = f"a step of {step.expected.steps:.2f} plain ones, as expected, needs E = {needed:.2f}"
    return cause("acceptance-from-another-run", 0.4 if needed <= step.pair.k + 1 else 0.1, text)


def _fit_of(step: Step, steps: float) -> float:
    """1 where R would be what is expected, 0 at twice the range from it."""
    low, high = step.ends
    reach = math.log(step.expected.steps / low if steps < step.expected.steps else high / step.expected.steps)
    return max(0.0, 1 - abs(math.log(steps / step.expected.steps)) / (2 * reach))


def _if_it_fits(
    code: str, step: Step, fit: float, told: str, length: float, *, best: float
) -> Iterator[Cause]:
    steps = length / step.pair.times_faster
    if fit > 0 and steps > 1 / NOISE:
        text = f"{told} and R = {steps:.2f}, where {step.expected.steps:.2f} is expected"
        yield cause(code, best * (0.5 + 0.5 * fit), text)


def _less(one: Cause) -> Cause:
    """The same where R is merely below its range: a cheap step is no contradiction."""
    return replace(one, fit=0.7 * one.fit)


def _or_zero(value: float) -> float:
    return 0.0 if math.isnan(value) else value
