"""The diagnosis in one sentence, and the one measurement that would separate what looks alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specmath.diagnosis.causes import LIKELY, OUTRIGHT, POSSIBLE, Cause, cause
from specmath.diagnosis.steps import NOISE, Symptoms
from specmath.results import Advice

_WORDS = {
    "graphs-lost": "CUDA graphs lost on the speculative path",
    "host-per-step": "host work in every step",
    "host-per-request": "host work per request",
}
"""Codes that read badly as words."""
_FIXED = ("graphs-lost", "host-per-step")
_PER_TOKEN = ("draft-not-captured", "draft-at-target-tp", "draft-too-large", "experts-read", "quantised-rows")
_PER_SEQUENCE = ("host-per-request", "compute-bound", "beyond-captured-graphs")
_OF_E = ("acceptance-from-another-run", "bonus-left-out", "ratio-taken-for-alpha", "other-baseline")


def within_expectation(symptoms: Symptoms) -> Iterator[Cause]:
    """That nothing is wrong, as far as the steps are within what is expected."""
    step = symptoms.worst
    if symptoms.best.steps < 1 / NOISE or step.ratio > step.ends[1] / step.expected.steps:
        return
    low, high = step.ends
    place = f"k {step.pair.k}, batch {step.pair.batch}"
    text = f"R = {step.steps:.2f} at {place}, {step.expected.steps:.2f} ({low:.2f} to {high:.2f}) expected"
    if step.ratio <= NOISE:
        yield cause("as-expected", 0.7, f"{text}: too close to tell a cause from noise")
    else:
        yield cause("as-expected", 0.55 * (1 - step.dearness), f"{text}: within the range")


def causes_told(causes: Sequence[Cause]) -> Iterator[Advice]:
    """The causes as warnings; those that are merely not ruled out in one."""
    shown = [one for one in causes if one.fit >= POSSIBLE]
    for place, one in enumerate(shown, 1):
        seen = f" (seen in {one.evidence})" if one.fit >= LIKELY and one.code != "as-expected" else ""
        text = f"cause {place}, {one.likelihood}: {words(one.code)}: {one.text}"
        yield Advice(code=one.code, text=text, remedy=f"{one.remedy}; to check: {one.check}{seen}")
    if rest := [words(one.code) for one in causes if one.fit < POSSIBLE]:
        yield Advice(
            code="not-ruled-out", text=f"not ruled out: {', '.join(rest)}", remedy="all causes with --causes"
        )


def verdict_of(symptoms: Symptoms, causes: Sequence[Cause]) -> str:
    """The state in capitals, the step beside what is expected, the first cause."""
    step = symptoms.worst
    told = [f"{one.steps:.2f}" for one in sorted(symptoms.steps, key=lambda one: one.steps)]
    steps = told[0] if told[0] == told[-1] else f"{told[0]} to {told[-1]}"
    by = "public measurements" if symptoms.source is None else f"the {symptoms.source.case} model"
    expected = f"where {by} would have {step.expected.steps:.2f}"
    where = f" at k {step.pair.k}, batch {step.pair.batch}" if len(symptoms.steps) > 1 else ""
    sentence = f"{_state(symptoms, causes)}: a step costs {steps} plain ones, {expected}{where}"
    leading = next((one for one in causes if one.code != "as-expected"), None)
    if leading is not None and (leading is causes[0] or leading.fit >= LIKELY):
        sentence += f"; {leading.likelihood}: {words(leading.code)}"
    return sentence


def words(code: str) -> str:
    """A cause in words."""
    return _WORDS.get(code, code.replace("-", " "))


def _state(symptoms: Symptoms, causes: Sequence[Cause]) -> str:
    outright = {one.code for one in causes if one.fit >= OUTRIGHT}
    if "baseline-beyond-the-roof" in outright:
        return "BASELINE BEYOND THE BANDWIDTH ROOF"
    if "draft-and-target-swapped" in outright:
        return "DRAFT AND TARGET SWAPPED"
    if symptoms.best.steps < 1 / NOISE:
        return "SPEED-UP BEYOND E"
    step = symptoms.worst
    if step.steps > step.ends[1]:
        return "DEARER THAN EXPECTED"
    if step.ratio > NOISE:
        return "WITHIN THE RANGE, ABOVE ITS MIDDLE"
    return "CHEAPER THAN EXPECTED" if symptoms.best.steps < symptoms.best.ends[0] else "AS EXPECTED"


def separating_measurement(symptoms: Symptoms, causes: Sequence[Cause]) -> tuple[Advice, ...]:
    """The causes that the evidence cannot tell apart, and the one measurement that would."""
    if not causes or causes[0].fit >= OUTRIGHT or causes[0].code == "as-expected":
        return ()
    alike = [
        one for one in causes if one.fit >= max(POSSIBLE, 0.6 * causes[0].fit) and one.code != "as-expected"
    ]
    if len(alike) < 2:
        return ()
    text = f"these measurements cannot tell apart: {', '.join(words(one.code) for one in alike)}"
    return (
        Advice(code="not-separable", text=text, remedy=_measurement(symptoms, {one.code for one in alike})),
    )


def _measurement(symptoms: Symptoms, codes: set[str]) -> str:
    pairs = [step.pair for step in symptoms.steps]
    k, batch = max(pair.k for pair in pairs), max(pair.batch for pair in pairs)
    several_k, several_batches = len({pair.k for pair in pairs}) > 1, len({pair.batch for pair in pairs}) > 1
    fixed, token, sequence = (bool(codes & set(group)) for group in (_FIXED, _PER_TOKEN, _PER_SEQUENCE))
    if symptoms.best.steps < 1 / NOISE:
        return "time a plain and a speculative step of one server: their ratio is R, and the latter is E·TPOT"
    if not several_k and ((fixed and token) or "draft-too-long" in codes):
        other = 1 if k > 1 else 3
        return f"measure k {other} at batch {batch} too: a fixed cost stays, one per draft token changes"
    if sequence and not several_batches:
        other = max(1, batch // 8)
        return (
            f"measure batch {other if other < batch else 8} at k {k} too: a cost per sequence changes with it"
        )
    if codes & set(_OF_E):
        return "read the engine's own step time (vLLM: inter-token latency): it must equal E·TPOT"
    if {"graphs-lost", "host-per-step"} <= codes:
        return (
            "run both arms with graphs off: what was lost to graphs then costs both alike, host work does not"
        )
    return "profile one step: time of the draft passes, of the verification, and between kernels"
