"""Measurements of a set-up: what one plain and one speculative run say about the cost of a step.

A pair of runs of the same models on the same machine gives R = E/S, the speculative step in plain steps,
without any model of the machine. `paired` makes such pairs of single runs; `doubts` says which of them
look as if something else had been measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specmath.checks import require_acceptance_length, require_count, require_range
from specmath.errors import DataError, InputError
from specmath.results import Advice
from specmath.units import format_quantity
from specmath.verdicts import REPEAT_NOISE

MIN_SECONDS = 1e-8
"""Shortest time per token that is taken for one."""
MIN_SPEEDUP = 1e-4
"""Smallest ratio of two measured times that is taken for a speed-up."""
MAX_SECONDS = 1e5
"""Longest time per token that is taken for one, and not for a slip of units."""
MAX_SPEEDUP = 1e4
"""Largest ratio of two measured times that is taken for a speed-up."""
AGREEMENT = 0.02
"""How far a speed-up may differ from that of the two times beside it: it is often printed with two digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One set-up measured with speculation, beside the same set-up without it.

    Give the speed-up, or the time per output token of both arms, or the speculative time alone where only
    a line over k is wanted.

    Attributes:
        k: Draft tokens per step, at least 1; the depth of a tree.
        batch: Sequences in the pass, at least 1.
        acceptance_length: E of this very run, bonus token included, in [1, k + 1].
        context: Tokens in the KV cache per sequence, on average over the run.
        speedup: Measured S, above 0.
        plain_s: Seconds per output token of a sequence without speculation, T_AR.
        speculative_s: The same with speculation, T_step/E.
        width: Tokens of a sequence that a verification carries; None for the k + 1 of a chain.
        passes: Draft passes per step; None for k.
        where: Where the figures stand, for messages (`runs.csv: line 3`).

    >>> pair = Measurement(k=3, batch=8, acceptance_length=2.8, speedup=1.75)
    >>> round(pair.in_plain_steps, 12)  # 2.8 / 1.75
    1.6
    """

    k: int
    batch: int
    acceptance_length: float
    context: float = 0.0
    speedup: float | None = None
    plain_s: float | None = None
    speculative_s: float | None = None
    width: int | None = None
    passes: int | None = None
    where: str = ""

    def __post_init__(self) -> None:
        drafts = require_count("k", self.k, 1)
        require_count("batch", self.batch, 1)
        require_acceptance_length(self.acceptance_length, drafts)
        require_range("context", self.context, 0)
        for name, least, most in (
            ("speedup", MIN_SPEEDUP, MAX_SPEEDUP),
            ("plain_s", MIN_SECONDS, MAX_SECONDS),
            ("speculative_s", MIN_SECONDS, MAX_SECONDS),
        ):
            value = getattr(self, name)
            if value is not None and require_range(name, value, high=most, above=0) < least:
                raise InputError(name, f"must be at least {least:g}, got {value:g}")
        for name in ("width", "passes"):
            if getattr(self, name) is not None:
                require_count(name, getattr(self, name), 1)
        self._require_figures()

    def _require_figures(self) -> None:
        given, plain, speculative = self.speedup, self.plain_s, self.speculative_s
        if given is None and speculative is None:
            raise InputError("speedup", "is missing; give it, or the time per token of both arms")
        if given is not None and plain is not None and speculative is not None:
            of_times = plain / speculative
            if abs(given / of_times - 1) > AGREEMENT:
                problem = f"{given:g} contradicts the times beside it, which give {of_times:.3g}"
                raise InputError("speedup", f"{problem}; leave one of them out")

    @property
    def times_faster(self) -> float:
        """S; NaN where no plain run belongs to the measurement."""
        if self.plain_s is not None and self.speculative_s is not None:
            return self.plain_s / self.speculative_s
        return math.nan if self.speedup is None else self.speedup

    @property
    def in_plain_steps(self) -> float:
        """R = E/S: the speculative step in plain steps; NaN where no plain run belongs to it."""
        return self.acceptance_length / self.times_faster

    @property
    def plain_step_s(self) -> float:
        """Seconds of a plain step; NaN where only ratios were measured."""
        if self.plain_s is not None:
            return self.plain_s
        return math.nan if self.speculative_s is None else self.speculative_s * self.times_faster

    @property
    def step_s(self) -> float:
        """E·TPOT: seconds of a speculative step; NaN where only ratios were measured."""
        if self.speculative_s is not None:
            return self.acceptance_length * self.speculative_s
        return self.in_plain_steps * self.plain_step_s

    @property
    def text(self) -> str:
        """The measurement in a few words, as it would be typed."""
        told = f"k={self.k},batch={self.batch},context={self.context:g}"
        if math.isnan(self.times_faster):
            figure = f"TPOT {format_quantity(self.speculative_s or 0.0, 's')}"
        else:
            figure = f"speedup={self.times_faster:.4g}"
        return f"{told},{figure},acceptance-length={self.acceptance_length:.4g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One line of a table of runs. k = 0 is a run without speculation; what is not known is None.

    Attributes:
        k: Draft tokens per step; 0 without speculation.
        batch: Sequences in the pass.
        context: Tokens in the KV cache per sequence.
        acceptance_length: E, bonus token included; not asked for at k = 0.
        seconds_per_token: Time per output token of one sequence, of the arm that ran.
        plain_s: The same of the plain arm, where the line holds both.
        speedup: S, where the line says it.
        where: Where the line stands, for messages.
    """

    k: int
    batch: int
    context: float = 0.0
    acceptance_length: float | None = None
    seconds_per_token: float | None = None
    plain_s: float | None = None
    speedup: float | None = None
    where: str = ""


def paired(runs: Iterable[Run]) -> tuple[Measurement, ...]:
    """A measurement for every speculative run, the plain run of its batch and context beside it.

    A run that brings its own plain time or speed-up needs no partner. Repeated plain runs are averaged.

    Raises:
        InputError: for a speculative run without acceptance length or time, or a plain one without a time.
        DataError: the same, of a run that names its place in a file.

    >>> plain = Run(k=0, batch=1, seconds_per_token=0.007)
    >>> (pair,) = paired([plain, Run(k=2, batch=1, acceptance_length=2.1, seconds_per_token=0.005)])
    >>> round(pair.times_faster, 12)
    1.4
    """
    listed = list(runs)
    baselines: dict[tuple[int, float], list[float]] = {}
    for run in listed:
        if run.k == 0:
            baselines.setdefault((run.batch, run.context), []).append(_plain_time(run))
    return tuple(_measurement(run, baselines) for run in listed if run.k != 0)


def _plain_time(run: Run) -> float:
    seconds = run.plain_s if run.seconds_per_token is None else run.seconds_per_token
    if seconds is None:
        raise _at(run, "plain_s", "is missing: a run without speculation needs its time per token")
    return float(_checked(run, "plain_s", seconds))


def _measurement(run: Run, baselines: dict[tuple[int, float], list[float]]) -> Measurement:
    if run.acceptance_length is None:
        raise _at(
            run, "acceptance_length", f"is missing for k = {run.k}; a speed-up alone fixes no step cost"
        )
    plain = run.plain_s
    partners = baselines.get((run.batch, run.context))
    if plain is None and partners and run.seconds_per_token is not None:
        plain = sum(partners) / len(partners)
    try:
        return Measurement(
            k=run.k,
            batch=run.batch,
            acceptance_length=run.acceptance_length,
            context=run.context,
            speedup=run.speedup,
            plain_s=plain,
            speculative_s=run.seconds_per_token,
            where=run.where,
        )
    except InputError as fault:
        raise _at(run, fault.name, fault.problem) from fault


def _checked(run: Run, name: str, value: float) -> float:
    try:
        return float(require_range(name, value, high=MAX_SECONDS, above=0))
    except InputError as fault:
        raise _at(run, fault.name, fault.problem) from fault


def _at(run: Run, name: str, problem: str) -> InputError | DataError:
    """The fault of a run: of the file that it stands in, where it names one."""
    return DataError(run.where, f"{name}: {problem}") if run.where else InputError(name, problem)


def context_text(context: float) -> str:
    """A context as a message tells it; that of a table without one is 0, which no run has.

    >>> context_text(512.0), context_text(0.0)
    ('512', 'not told')
    """
    return f"{context:g}" if context else "not told"


def repeat_doubts(runs: Iterable[Run]) -> tuple[Advice, ...]:
    """Runs without speculation that `paired` averages, though they differ by more than repeats do."""
    groups: dict[tuple[int, float], list[tuple[float, Run]]] = {}
    for run in runs:
        if run.k == 0:
            groups.setdefault((run.batch, run.context), []).append((_plain_time(run), run))
    return tuple(advice for group in groups.values() if (advice := _repeat_doubt(group)) is not None)


def _repeat_doubt(group: Sequence[tuple[float, Run]]) -> Advice | None:
    (least_s, first), (most_s, last) = (end(group, key=lambda one: one[0]) for end in (min, max))
    if most_s <= least_s * (1 + REPEAT_NOISE):
        return None
    told = " and ".join(
        f"{run.where or 'a run'} ({format_quantity(seconds, 's')})"
        for seconds, run in ((least_s, first), (most_s, last))
    )
    return Advice(
        code="plain-runs-differ",
        text=f"{told} are both without speculation at batch {first.batch}, context "
        f"{context_text(first.context)}, and differ by {most_s / least_s - 1:.0%}: the mean of {len(group)} "
        "such runs is used",
        remedy="keep the rows of one machine and one load, or name what parts them in a column of the set-up",
    )


def doubts(measurements: Sequence[Measurement]) -> tuple[Advice, ...]:
    """What in the measurements looks as if something else had been measured, each with its likely reason.

    A speculative step can hardly be shorter than a plain one, so R = E/S below 1 by more than the repeat
    noise needs an explanation; R beyond twice k + 1 means that drafting token by token with the target
    itself would have cost less.
    """
    return tuple(advice for one in measurements if (advice := _doubt(one)) is not None)


def _doubt(one: Measurement) -> Advice | None:
    steps, most = one.in_plain_steps, 2.0 * (one.k + 1)
    place = f"measurement {one.where or one.text}"
    if steps < 1 / (1 + REPEAT_NOISE):
        text = f"speed-up {one.times_faster:.3g} exceeds E = {one.acceptance_length:.3g}"
        remedy = _reason_of_short_step(one)
        return Advice(
            code="step-shorter-than-plain",
            text=f"{place}: {text}, so a step would cost R = {steps:.2f} plain ones",
            remedy=remedy,
        )
    if steps > most:
        return Advice(
            code="step-dearer-than-its-tokens",
            text=f"{place}: R = {steps:.1f} plain steps for {one.k + 1} tokens at most",
            remedy="check whether draft and target, or the plain and the speculative figure, are swapped",
        )
    return None


def _reason_of_short_step(one: Measurement) -> str:
    if one.times_faster > (one.k + 1) * (1 + REPEAT_NOISE):
        return (
            f"no step yields more than k + 1 = {one.k + 1} tokens: another baseline, batch or k was measured"
        )
    if one.acceptance_length + 1 <= one.k + 1 and one.acceptance_length + 1 >= one.times_faster:
        return "count the bonus token in E if the engine left it out; else check the plain run beside it"
    return "take E and both times from the same runs; usually the baseline is another, or E is from elsewhere"
