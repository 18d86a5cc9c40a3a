"""How far a calibration can be trusted: its own error, where its measured range ends, what memory held."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from specmath.calibration_contradictions import missed_by_law
from specmath.calibrations import Calibration, Flag
from specmath.checks import FloatArray
from specmath.measured_passes import MeasuredPasses
from specmath.results import Advice
from specmath.sources import unknown_batches
from specmath.verdicts import REPEAT_NOISE

_SHARE: Final = 0.8
"""Share of the left-out cells whose error counts."""
_TIMED_ON_DEVICE: Final = ("target", "draft")
_FAR: Final = 5.0
"""Factor between a cell and its law from which on neither is to be believed, though no flag says so."""
_LISTED: Final = 8
_WIDE: Final = 1.2
"""Factor from which on a range is told as one, not as a percentage."""


def log_half_width(calibration: Calibration) -> float:
    """Logarithm by which R may be off where it was measured.

    With a proof its largest error, and the quartiles of the cells in quadrature; without one the repeat
    noise, the quartiles, the error of cells left out of the fit, and how far the machine drifted meanwhile.
    """
    spreads = [
        math.log(cell.high_s / cell.low_s) / 2
        for cell in calibration.cells
        if cell.place.part in _TIMED_ON_DEVICE
    ]
    spread = float(np.median(spreads)) if spreads else 0.0
    if calibration.proof:
        return math.hypot(spread, max(abs(math.log1p(row.error)) for row in calibration.proof))
    return math.hypot(spread, math.log1p(REPEAT_NOISE), _left_out(calibration), _drift(calibration))


def _drift(calibration: Calibration) -> float:
    """Logarithm by which the machine changed during the run; 0 where it is not told."""
    told = calibration.machine.get("drift", 0.0)
    return abs(math.log1p(max(told, -0.99))) if isinstance(told, int | float) else 0.0


def _left_out(calibration: Calibration) -> float:
    """The error that four in five left-out cells keep, of the worse of target and draft; 0 where not told."""
    found = [0.0]
    for fit in calibration.fits:
        errors = np.array([one for one in fit.left_out_errors if math.isfinite(one)])
        if fit.part in _TIMED_ON_DEVICE and errors.size:
            found.append(float(np.quantile(np.abs(np.log1p(np.maximum(errors, -0.99))), _SHARE)))
    return max(found)


def range_text(calibration: Calibration) -> str:
    """The error of the calibration, as an assumption."""
    width = f"the range is {_factor(math.exp(log_half_width(calibration)))} where measured"
    if not calibration.proof:
        return (
            f"{width} and widens outside; decoding end to end was not timed, so it rests on what repeats "
            "differ by, on quartiles, on cells left out of the fit and on drift"
        )
    errors = [row.error for row in calibration.proof]
    if len(errors) == 1:
        missed = f"off by {errors[0]:+.1%} in one run"
    else:
        typical = np.median(np.abs(errors))
        ends = f"from {min(errors):+.1%} to {max(errors):+.1%}"
        missed = f"off by {typical:.1%} (median) in {len(errors)} runs, {ends}"
    return f"{width} and widens outside; end to end the predicted speed-up was {missed}"


def _factor(factor: float) -> str:
    """A range about a value: `±4.0%`, or `÷1.70 … ×1.70` where a percentage would mislead."""
    return f"±{factor - 1:.1%}" if factor < _WIDE else f"÷{factor:.2f} … ×{factor:.2f}"


def contradiction_advice(steps: FloatArray, k: int, batch: npt.ArrayLike) -> Iterator[Advice]:
    """That cells contradict each other: a speculative step that is clearly shorter than a plain one.

    Args:
        steps: R at each batch.
        k: Draft tokens per step.
        batch: The batches.
    """
    short = np.atleast_1d(steps) < 1 / (1 + REPEAT_NOISE)
    if k and short.any():
        batches = np.broadcast_to(np.atleast_1d(batch), short.shape)
        place = int(np.argmin(np.atleast_1d(steps)))
        yield Advice(
            code="step-shorter-than-plain",
            text=f"at batch {batches[place]:,.0f} a step of k = {k} would take {np.min(steps):.2f} plain "
            "ones: cells contradict each other, as where other work ran beside them",
            remedy="calibrate again on an idle machine",
        )


def flag_advice(calibration: Calibration) -> Iterator[Advice]:
    """That the law and some cells contradict each other."""
    far = [flag for fit in calibration.fits for flag in fit.flags if flag.kind in ("far-off", "dip")]
    far = [flag for flag in far if flag.place.part in _TIMED_ON_DEVICE] or _unflagged(calibration)
    if far:
        worst = max(far, key=lambda flag: abs(math.log(flag.ratio)))
        where = f"batch {worst.place.batch}, {worst.place.width} tokens, context {worst.place.context:,}"
        yield Advice(
            code="cells-contradict",
            text=f"{len(far)} cells are far off the law, or below cells of less work; the worst is that of "
            f"{worst.place.part} at {where} ({worst.ratio:.2f} times)",
            remedy="kernels that switch do that, and noise; calibrate again to tell which",
        )


def _unflagged(calibration: Calibration) -> list[Flag]:
    """Cells that no fit explains, in a file without its flags."""
    found = []
    for part in _TIMED_ON_DEVICE:
        cells, logs = missed_by_law(calibration, part)
        found += [
            Flag(place=cell.place, kind="far-off", ratio=math.exp(log))
            for cell, log in zip(cells, logs, strict=True)
            if abs(log) > math.log(_FAR) and math.isfinite(log)
        ]
    return found


def beyond_the_model(calibration: Calibration, contexts: tuple[float, float] | None) -> Iterator[Advice]:
    """Contexts that are longer than the models read."""
    most = calibration.machine.get("max_context")
    if contexts is not None and isinstance(most, int) and contexts[1] > most:
        yield Advice(
            code="beyond-the-model",
            text=f"context {contexts[1]:,.0f} is longer than the {most:,} tokens that the pair takes",
            remedy="ask for shorter contexts, or calibrate a pair for longer ones",
        )


def outside_advice(
    calibration: Calibration,
    table: MeasuredPasses,
    *,
    batch: npt.ArrayLike | None = None,
    tokens: npt.ArrayLike | None = None,
    context: npt.ArrayLike | None = None,
) -> Iterator[Advice]:
    """A warning for each axis on which some of the values asked for were not measured.

    Args:
        calibration: What was measured.
        table: Its passes of the target.
        batch: Batches; None where they are not to be looked at.
        tokens: Tokens of a sequence in a pass.
        context: Tokens in the cache.
    """
    asked = (
        ("batch", batch, "--batch"),
        ("tokens of a pass", tokens, "--k"),
        ("context", context, "--context"),
    )
    for axis, (name, values, option) in enumerate(asked):
        if values is None:
            continue
        low, high = table.span(axis)
        ends = (float(np.min(values)), float(np.max(values)))
        for value in (one for one in dict.fromkeys(ends) if not low <= one <= high):
            measured = f"{low:,.0f} to {high:,.0f}" if low < high else f"{low:,.0f}"
            end, which = (high, "largest") if value > high else (low, "smallest")
            away = f", {value / end:.3g} times the {which} measured" if value and end else ""
            drafted = int(option == "--k")  # one token of a pass is none of the draft's
            told = _listed(
                [one - drafted for one in table.values(axis) if one > drafted], int(value) - drafted
            )
            yield Advice(
                code="outside-the-calibration",
                text=f"{name} {value:,.0f} is outside the calibration ({measured}){away}: the law "
                "goes on from the nearest cells and the range is wider",
                remedy=f"measure it: {_command(calibration)} {option} {told}"
                if value
                else f"give the tokens of a sequence as --context {low}, or as many as yours have",
            )


def corner_advice(
    calibration: Calibration, table: MeasuredPasses, batch: npt.ArrayLike, context: npt.ArrayLike
) -> Iterator[Advice]:
    """That a batch was measured, but not at so long a context."""
    sequences, cached = float(np.max(batch)), float(np.max(context))
    held = float(table.largest_batch(cached))
    if held < sequences <= table.span(0)[1] and cached <= table.span(2)[1]:
        yield Advice(
            code="outside-the-calibration",
            text=f"batch {sequences:,.0f} was not measured at context {cached:,.0f}, the largest there is "
            f"{held:,.0f}: the law goes on from the nearest cells and the range is wider",
            remedy=f"measure it: {_command(calibration)} --batch {sequences:.0f} --context {cached:.0f}",
        )


def padding_advice(calibration: Calibration, tokens: float) -> Iterator[Advice]:
    """That a pass is larger than the largest captured graph."""
    captured = calibration.last_captured_tokens
    if captured is not None and tokens > captured:
        yield Advice(
            code="beyond-the-captured-graphs",
            text=f"a pass of {tokens:,.0f} tokens is larger than the largest captured graph ({captured:,}): "
            "it is launched kernel by kernel, and its time may jump",
            remedy="capture larger graphs, or stay below that many tokens, batch · (k + 1)",
        )


def held_batches(
    calibration: Calibration, k: npt.ArrayLike, context: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Largest batch that memory held in both arms, NaN where nothing was left out for lack of memory.

    The cache takes as many tokens as in the largest pass that ran; both models were in memory meanwhile.
    """
    if not any(place.part == "target" and "memory" in why.lower() for place, why in calibration.skipped):
        return unknown_batches(k, context)
    places = [cell.place for cell in calibration.cells if cell.place.part == "target"]
    held = max(place.batch * (place.context + place.width) for place in places)
    drafts, cached = np.asarray(k, dtype=float), np.asarray(context, dtype=float)
    plain, speculative = np.broadcast_arrays(held // (cached + 1), held // (cached + drafts + 1))
    return np.asarray(plain), np.asarray(speculative)


def _listed(values: Sequence[int], asked: int) -> str:
    """The values measured and the one asked for, or their ends where they are many."""
    told = sorted({*values, asked})
    if len(told) > _LISTED:
        told = sorted({told[0], asked, told[-1]})
    return ",".join(map(str, told))


def _command(calibration: Calibration) -> str:
    draft = "ngram" if calibration.method == "ngram" else calibration.draft
    pair = f"--target {shlex.quote(calibration.target)} --draft {shlex.quote(draft)}"
    return f"specmath calibrate {pair} --regime {calibration.regime}"
