"""Weeks of a serving engine's metrics as a calibration: the step with speculation beside the step without.

Each part of the time tells a mean step, the requests in it and the prompt tokens prefilled beside them. The
regression of the first on the others parts the step from the load, in each arm on its own:

    step = fixed + per_request·running + per_prefill_token·prefill

A day with speculation off among weeks with it on gives both arms, and so pairs at batches that both saw. The
mean step of a part is that of requests, so it leans to its busier minutes; both arms lean alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import numpy as np

from calibrate.history_fits import LEAST_INTERVALS, Arm, arms_of
from calibrate.history_points import step_points
from calibrate.runs import line_advice
from specmath import __version__
from specmath.calibrations import MeasuredRuns
from specmath.checks import MAX_K, FloatArray, require_count, require_range
from specmath.engines.fetching import USUAL, Limits
from specmath.engines.history import Interval, ask_intervals
from specmath.engines.prometheus_ranges import parse_range
from specmath.errors import DataError, shown
from specmath.k_lines import run_lines
from specmath.measurements import Measurement, doubts
from specmath.results import Advice

MOST_INTERVALS: Final = 1_000
"""Three quarters of an hour of a month: short, so that the load hardly changes in one."""
SURE: Final = 0.03
"""Relative standard error up to which a fitted step is taken without the prefill that it was seen with."""
UNSURE: Final = 0.1
"""The same beyond which two steps make no pair."""
MAX_CONTEXT: Final = 1e9
"""Most tokens of a sequence that a file of a calibration takes."""
_SHARES: Final = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Where in the load that both arms saw pairs are formed."""

_NO_CONTEXT: Final = Advice(
    code="context-unknown",
    text="no series tells how many tokens a sequence has in the cache: the pairs stand at context 0",
    remedy="name the mean context of the requests",
)


def calibrate_history(
    source: str,
    *,
    engine: str | None = None,
    version: str | None = None,
    k: int | None = None,
    context: float = 0.0,
    limits: Limits = USUAL,
    progress: Callable[[int, int], None] | None = None,
    now_s: float | None = None,
) -> MeasuredRuns:
    """What weeks of metrics tell of the step with speculation and without.

    Args:
        source: `prometheus:URL`, as `specmath.engines.history.ask_history` takes it.
        engine: Name of the engine, where recognition needs help.
        version: Version of the engine, which no series tells.
        k: Draft tokens per step, where the engine does not tell.
        context: Tokens in the cache of a sequence, which no series tells.
        limits: Time for each answer, and size.
        progress: Called with queries done and in all.
        now_s: The present, in seconds since 1970.

    Returns:
        Both arms, and pairs at batches that both saw; of a single arm its fit alone, with what to do.

    Raises:
        AccessError: the server does not answer.
        DataError: it has no series of a serving engine, those of several models, or too few steps.
        InputError: the source is malformed, or k or the context out of range; nothing was asked then.
    """
    if k is not None:
        require_count("k", k, 1, MAX_K)
    require_range("context", context, 0, MAX_CONTEXT)
    intervals = ask_intervals(
        source,
        most=MOST_INTERVALS,
        engine=engine,
        version=version,
        limits=limits,
        progress=progress,
        now_s=now_s,
    )
    where = _require_one_model(intervals, source)
    points, left_out = step_points(intervals, k)
    arms, thin = arms_of(points)
    if not arms:
        raise DataError(where, _nothing(len(points), left_out))
    plain, speculative = _parted(arms)
    pairs, notes = ((), ()) if plain is None else _pairs(plain, speculative, context)
    lines = run_lines(pairs)
    warnings = (
        *notes,
        *_of_arms(plain, speculative, thin),
        *_left_out(len(intervals), left_out),
        *doubts(pairs),
        *(note for note in line_advice(pairs, lines) if note.code != "one-k"),
    )
    return MeasuredRuns(
        source=where,
        origin="history",
        machine=_machine(intervals),
        runs=pairs,
        lines=lines,
        arms=tuple(arm.fit for arm in arms),
        warnings=warnings,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        specmath_version=__version__,
    )


def _require_one_model(intervals: Sequence[Interval], source: str) -> str:
    """The name of the source; DataError where steps of several models would be mixed."""
    if not intervals:
        shown_source = parse_range(source, 0.0).shown  # a password in it is never printed
        raise DataError(shown_source, "tells nothing of a serving engine; ask for a longer range")
    where = intervals[0].telemetry.source
    served = list(dict.fromkeys((one.telemetry.engine, one.telemetry.model) for one in intervals))
    if len(served) > 1:
        told = ", ".join(f"{engine} with {shown(model)}" for engine, model in served[:4])
        raise DataError(where, f'holds several models ({told}); name one, as ?match=model_name="…"')
    return where


def _parted(arms: Sequence[Arm]) -> tuple[Arm | None, list[Arm]]:
    plain = next((arm for arm in arms if arm.k == 0), None)
    return plain, [arm for arm in arms if arm.k > 0]


def _machine(intervals: Sequence[Interval]) -> dict[str, str | float | int]:
    """Of the last interval, which tells most of what runs now."""
    record = intervals[-1].telemetry
    told = {
        "engine": record.engine,
        "version": record.version,
        "model": record.model,
        "method": record.method,
    }
    return {name: value for name, value in told.items() if value}


# ---------------------------------------------------------------- pairs


def _pairs(
    plain: Arm, speculative: Sequence[Arm], context: float
) -> tuple[tuple[Measurement, ...], tuple[Advice, ...]]:
    """Both arms at the same batch and prefill, and what must be known about them.

    All draft lengths stand at the same batches where they have any in common, so that lines over k are drawn.
    """
    pairs: list[Measurement] = []
    notes: list[Advice] = []
    shared = _common_batches([plain, *speculative]).size > 0
    for arms in [list(speculative)] if shared else [[arm] for arm in speculative]:
        batches = _common_batches([plain, *arms])
        if not batches.size:
            notes += [_no_common_batch(plain, arm) for arm in arms]
            continue
        prefill = _prefill([plain, *arms], batches)
        notes += _of_prefill(prefill)
        for arm in arms:
            errors = np.hypot(plain.relative_error(batches, prefill), arm.relative_error(batches, prefill))
            notes += _unsure(arm, batches, errors)
            pairs += _of_arm(plain, arm, batches[errors <= UNSURE], prefill, context)
    if pairs and not context:
        notes.append(_NO_CONTEXT)
    return tuple(pairs), tuple(notes)


def _of_arm(
    plain: Arm, arm: Arm, batches: FloatArray, prefill: float, context: float
) -> Iterator[Measurement]:
    length = arm.fit.acceptance_length
    steps = zip(batches, plain.step_s(batches, prefill), arm.step_s(batches, prefill), strict=True)
    for batch, plain_s, step_s in steps:
        yield Measurement(
            k=arm.k,
            batch=int(batch),
            acceptance_length=length,
            context=context,
            plain_s=float(plain_s),
            speculative_s=float(step_s) / length,
        )


def _common_batches(arms: Sequence[Arm]) -> FloatArray:
    """Whole batches across the load that all arms saw; none where there is none."""
    low = max(arm.fit.running_low for arm in arms)
    high = min(arm.fit.running_high for arm in arms)
    seen = [one.running for arm in arms for one in arm.points if low <= one.running <= high]
    if low > high or not seen:
        return np.zeros(0)
    found = np.unique(np.round(np.quantile(seen, _SHARES)))
    return np.asarray(found[found >= 1])


def _prefill(arms: Sequence[Arm], batches: FloatArray) -> float:
    """None where all arms are sure of their steps without any, else what they saw."""
    if all(np.all(arm.relative_error(batches, 0.0) <= SURE) for arm in arms):
        return 0.0
    return float(np.median([one.prefill for arm in arms for one in arm.points]))


# ---------------------------------------------------------------- what must be known


def _no_common_batch(plain: Arm, arm: Arm) -> Advice:
    ranges = [f"{one.fit.running_low:.3g} to {one.fit.running_high:.3g}" for one in (plain, arm)]
    return Advice(
        code="no-common-batch",
        text=f"without speculation {ranges[0]} requests ran, with k = {arm.k} {ranges[1]}: no batch is "
        "known of both",
        remedy="switch speculation off over a whole day of the usual load",
    )


def _of_prefill(prefill: float) -> Iterator[Advice]:
    if prefill:
        yield Advice(
            code="prefill-in-pairs",
            text=f"prefill goes with the load, so the pairs hold {prefill:.3g} prefilled tokens per "
            "step in both arms",
            remedy="compare with a forecast of decoding alone with care; more days tell them apart",
        )


def _unsure(arm: Arm, batches: FloatArray, errors: FloatArray) -> Iterator[Advice]:
    """Pairs whose ratio is hardly known, and those that are left out for it."""
    remedy = "leave speculation off for more hours of that load, and ask again"
    if (errors > UNSURE).any():
        told = ", ".join(f"{batch:g}" for batch in batches[errors > UNSURE])
        text = f"k = {arm.k}: at batch {told} the two steps are not known to {UNSURE:.0%}, and make no pair"
        yield Advice(code="unknown-pairs", text=text, remedy=remedy)
    if (unsure := (errors > SURE) & (errors <= UNSURE)).any():
        told = ", ".join(f"{batch:g}" for batch in batches[unsure])
        text = f"k = {arm.k}: at batch {told} the ratio of the steps is known to ±{errors[unsure].max():.0%}"
        yield Advice(code="uncertain-pairs", text=text, remedy=remedy)


def _of_arms(plain: Arm | None, speculative: Sequence[Arm], thin: Mapping[int, int]) -> Iterator[Advice]:
    """What one arm alone, several k, or k of too few intervals mean."""
    if plain is None:
        yield Advice(
            code="one-arm",
            text=f"speculation was never off{_for_lack(thin.get(0))}: this is its own step, beside no other",
            remedy="switch speculation off for a day of the usual load, and ask again",
        )
    if not speculative:
        few = sum(count for k, count in thin.items() if k)
        yield Advice(
            code="one-arm",
            text=f"speculation was never on{_for_lack(few)}: this is the plain step, beside no other",
            remedy="switch speculation on for a day of the usual load, and ask again",
        )
    lengths = sorted([*(arm.k for arm in speculative), *(k for k in thin if k)])
    if speculative and len(lengths) > 1:
        unused = [k for k in lengths if k in thin]
        without = f"; k = {', '.join(map(str, unused))} ran too briefly" if unused else ""
        yield Advice(
            code="several-k",
            text=f"k was {', '.join(map(str, lengths))} in turn, and each has its own fit{without}",
            remedy="shorten ?range= to the time of one k to see it alone",
        )


def _for_lack(intervals: int | None) -> str:
    return f" for {LEAST_INTERVALS} intervals (for {intervals} it was)" if intervals else ""


def _left_out(number: int, left_out: Counter[str]) -> Iterator[Advice]:
    if left_out:
        yield Advice(
            code="intervals-left-out",
            text=f"of {number} intervals {left_out.total()} are left out: {_reasons(left_out)}",
            remedy="nothing is to be done unless they are many; then ask for the time in which the load ran",
        )


def _reasons(left_out: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in left_out.most_common())


def _nothing(points: int, left_out: Counter[str]) -> str:
    why = f" ({_reasons(left_out)} left out)" if left_out else ""
    return (
        f"has {points} intervals to draw a step from, of {LEAST_INTERVALS} at least{why}; ask for more days"
    )
