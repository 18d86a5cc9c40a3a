"""Measured steps beside expected ones, and what a table of them says about the parts of the difference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from specmath.checks import FloatArray
from specmath.diagnosis.setup import NOTHING_OBSERVED, Observed, SetUp
from specmath.estimation import alpha_from_acceptance_length
from specmath.k_lines import KLine, k_line
from specmath.measurements import Measurement
from specmath.sources import BatchSource
from specmath.verdicts import REPEAT_NOISE

USUAL_STEP: Final = (1.15, 0.10)
"""R of public measurements without a model: about 1.5 at the usual k of 3 to 4, and more with k."""
USUAL_SPREAD: Final = 1.5
NOISE: Final = 1 + REPEAT_NOISE


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledStep:
    """One step as a source has it: v, c, passes, o, R and its range in plain steps; seconds of a plain one.

    Where no model is asked, v, c and o are NaN and R is what public measurements show.
    """

    steps: float
    low: float
    high: float
    verify_cost: float = math.nan
    draft_cost: float = math.nan
    draft_passes: float = math.nan
    overhead: float = math.nan
    plain_s: float = math.nan

    @classmethod
    def of(cls, source: BatchSource, pairs: Sequence[Measurement]) -> tuple[ModelledStep, ...]:
        """The steps of the measurements by the source."""
        k, batch = ([getattr(pair, name) for pair in pairs] for name in ("k", "batch"))
        context = [pair.context for pair in pairs]
        width, passes = (
            [pair.width or pair.k + 1 for pair in pairs],
            [pair.passes or pair.k for pair in pairs],
        )
        cost = source.step_cost(k, batch, context, width=width, passes=passes)
        bounds = source.step_bounds(k, batch, context, width=width, passes=passes)
        low, high = (math.nan, math.nan) if bounds is None else bounds
        columns = {
            "steps": cost.in_plain_steps,
            "low": low,
            "high": high,
            "verify_cost": cost.verify_cost,
            "draft_cost": cost.draft_cost,
            "draft_passes": cost.draft_passes,
            "overhead": cost.overhead,
            "plain_s": cost.plain_s,
        }
        rows = zip(*(np.broadcast_to(one, len(pairs)).tolist() for one in columns.values()), strict=True)
        return tuple(cls(**dict(zip(columns, row, strict=True))) for row in rows)

    @classmethod
    def usual(cls, pair: Measurement) -> ModelledStep:
        """What a step of so many drafts costs in public measurements."""
        steps = USUAL_STEP[0] + USUAL_STEP[1] * pair.k
        return cls(steps=steps, low=1.0, high=steps * USUAL_SPREAD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One measurement, the step that is expected for it, and the roof of its plain step.

    Attributes:
        pair: What was measured.
        expected: What the first source, or else experience, makes of it.
        roof_s: Least seconds of a plain step that the datasheet allows; NaN where not known.
    """

    pair: Measurement
    expected: ModelledStep
    roof_s: float = math.nan

    @property
    def steps(self) -> float:
        """R as measured."""
        return self.pair.in_plain_steps

    @property
    def ratio(self) -> float:
        """R as measured over R as expected."""
        return self.steps / self.expected.steps

    @property
    def ends(self) -> tuple[float, float]:
        """What R may be: the range, or the typical value where there is none, and the repeat noise."""
        low, high, steps = self.expected.low, self.expected.high, self.expected.steps
        return (steps if math.isnan(low) else low) / NOISE, (steps if math.isnan(high) else high) * NOISE

    @property
    def dearness(self) -> float:
        """0 at what is expected, 1 at the dear end of the range and beyond."""
        reach = math.log(self.ends[1] / self.expected.steps)
        return min(max(math.log(self.ratio) / reach, 0.0), 1.0)

    @property
    def rows(self) -> int:
        """Tokens in the verification pass."""
        return self.pair.batch * (self.pair.width or self.pair.k + 1)

    @property
    def is_chain(self) -> bool:
        return self.pair.width in (None, self.pair.k + 1)

    @property
    def alpha(self) -> float:
        """The α of a chain with this acceptance length; NaN for a tree."""
        if not self.is_chain:
            return math.nan
        return float(alpha_from_acceptance_length(self.pair.acceptance_length, self.pair.k))

    @property
    def plain_ratio(self) -> float:
        """The plain step as measured over the expected one; NaN where one of them is not known."""
        return self.pair.plain_step_s / self.expected.plain_s

    @property
    def dearest_draft_cost(self) -> float:
        """c if all of R beyond one plain step and the expected overhead were draft passes."""
        beside = 1.0 if math.isnan(self.expected.verify_cost) else self.expected.verify_cost
        overhead = 0.0 if math.isnan(self.expected.overhead) else self.expected.overhead
        return max((self.steps - beside - overhead) / (self.pair.passes or self.pair.k), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """How the cost beyond what is expected divides, as shares that add up to 1.

    Attributes:
        fixed: The same in every step.
        per_token: With k.
        per_sequence: With the batch.
        asked: Which of them the table can tell apart.
    """

    fixed: float
    per_token: float
    per_sequence: float
    asked: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Symptoms:
    """All that the rules look at.

    Attributes:
        steps: The measurements, in the order given.
        setup: What is known of the set-up.
        observed: What the engine tells.
        source: The source that set the expectations; None where experience did.
    """

    steps: tuple[Step, ...]
    setup: SetUp
    observed: Observed = NOTHING_OBSERVED
    source: BatchSource | None = None

    @cached_property
    def worst(self) -> Step:
        """The step furthest above what is expected."""
        return max(self.steps, key=lambda step: step.ratio)

    @cached_property
    def best(self) -> Step:
        """The step furthest below it."""
        return min(self.steps, key=lambda step: step.ratio)

    @property
    def dearness(self) -> float:
        return self.worst.dearness

    @property
    def burden(self) -> float:
        """0 up to 1.2 plain steps, 1 from 2 on: whether there is a cost to explain at all."""
        return min(max((self.worst.steps - 1.2) / 0.8, 0.0), 1.0)

    @property
    def is_dear(self) -> bool:
        return self.worst.ratio > NOISE

    @cached_property
    def lines(self) -> tuple[tuple[tuple[Step, ...], KLine], ...]:
        """The line over k of each batch and context with two k or more, in seconds or in plain steps."""
        groups = _grouped([step for step in self.steps if step.is_chain], _place)
        several = [group for group in groups if len({step.pair.k for step in group}) > 1]
        return tuple((group, k_line([_timed(step.pair, group) for step in group])) for group in several)

    @cached_property
    def parts(self) -> Parts | None:
        """How the excess divides; None where one point cannot tell, or nothing is in excess."""
        return _parts(self.steps)

    @cached_property
    def growth(self) -> float:
        """By what R over its expectation grows from the smallest batch to the largest; 1 for one batch."""
        return _growth(self.steps, lambda step: step.pair.batch, ("k", "context"))

    @cached_property
    def context_growth(self) -> float:
        """The same from the shortest context to the longest."""
        return _growth(self.steps, lambda step: step.pair.context, ("k", "batch"))

    @cached_property
    def jump(self) -> tuple[Step, Step, float] | None:
        """The largest rise of R over its expectation between neighbouring batches; None without any."""
        rises = [
            (less, more, more.ratio / less.ratio)
            for group in _grouped(self.steps, lambda step: (step.pair.k, step.pair.context))
            for less, more in itertools.pairwise(sorted(group, key=lambda step: step.pair.batch))
            if more.pair.batch > less.pair.batch
        ]
        return max(rises, key=lambda rise: rise[2], default=None)


def _place(step: Step) -> tuple[int, float]:
    return step.pair.batch, step.pair.context


def _grouped(steps: Sequence[Step], key: Callable[[Step], object]) -> list[tuple[Step, ...]]:
    groups: dict[object, list[Step]] = {}
    for step in steps:
        groups.setdefault(key(step), []).append(step)
    return [tuple(group) for group in groups.values()]


def has_times(group: Sequence[Step]) -> bool:
    """Whether a line over these steps is one in seconds."""
    return not any(math.isnan(step.pair.step_s) for step in group)


def _timed(pair: Measurement, group: Sequence[Step]) -> Measurement:
    """The measurement with plain steps as its unit of time where seconds are not known."""
    if has_times(group):
        return pair
    return replace(pair, speedup=None, plain_s=1.0, speculative_s=1 / pair.times_faster)


def _growth(steps: Sequence[Step], along: Callable[[Step], float], alike: tuple[str, ...]) -> float:
    grown = [1.0]
    for group in _grouped(steps, lambda step: tuple(getattr(step.pair, name) for name in alike)):
        ordered = sorted(group, key=along)
        if along(ordered[-1]) > along(ordered[0]):
            grown.append(ordered[-1].ratio / ordered[0].ratio)
    return max(grown)


def _parts(steps: Sequence[Step]) -> Parts | None:
    """Excess = fixed + per token·k + per sequence·B, no part negative; the set of parts with the least error.

    In seconds of the plain step where one is known, else in plain steps. A further part must halve the error.
    """
    columns = {
        "fixed": np.ones(len(steps)),
        "per_token": np.array([float(step.pair.k) for step in steps]),
        "per_sequence": np.array([float(step.pair.batch) for step in steps]),
    }
    varying = [name for name in ("per_token", "per_sequence") if np.unique(columns[name]).size > 1]
    excess = _excess(steps)
    if not varying or excess.sum() <= 0:
        return None
    asked = ("fixed", *varying)
    found: tuple[float, dict[str, float]] = (math.inf, {})
    for count in range(1, len(asked) + 1):
        for names in itertools.combinations(asked, count):
            error, shares = _fit(excess, {name: columns[name] for name in names})
            if min(shares.values()) >= 0 and error < found[0] * (0.5 if len(names) > len(found[1]) else 1.0):
                found = (error, shares)
    total = sum(found[1].values())
    if not total > 0:
        return None
    shares = {name: found[1].get(name, 0.0) / total for name in columns}
    return Parts(**shares, asked=asked)


def _excess(steps: Sequence[Step]) -> FloatArray:
    modelled = [step.expected.steps if step.expected.plain_s > 0 else 1.0 for step in steps]
    beyond = np.array([step.steps for step in steps]) - np.array(modelled)
    unit = np.array([step.pair.plain_step_s for step in steps])
    if np.isnan(unit).any():
        unit = np.array([step.expected.plain_s for step in steps])
    return np.asarray(beyond if np.isnan(unit).any() else beyond * unit)


def _fit(excess: FloatArray, columns: dict[str, FloatArray]) -> tuple[float, dict[str, float]]:
    """Squared error of the least-squares fit, and what each column gives on average."""
    matrix = np.stack(list(columns.values()), axis=1)
    weights = np.linalg.lstsq(matrix, excess, rcond=None)[0]
    error = float(np.sum((matrix @ weights - excess) ** 2)) + 1e-12 * float(np.sum(excess**2))
    return error, dict(zip(columns, (weights * matrix.mean(axis=0)).tolist(), strict=True))
