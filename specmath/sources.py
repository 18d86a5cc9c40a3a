"""Step-time sources: what a plain and a speculative step cost, as functions of k, batch and context.

A source answers one question, `step_cost(k, batch, context)`. *Ratios* are typed by the user and know
neither batch nor seconds; `specmath.additive_source` has the linear constants of a fit, and
`specmath.roofline_source` a model pair on an accelerator. Every question works on `StepCost`, whichever
source it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, require_count, require_range
from specmath.errors import InputError
from specmath.results import Advice, Cell

MAX_RATIO = 1e6
"""Largest cost in plain steps that is taken for one, and not for a slip of units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Cost of one speculative step beside one plain step; the arrays broadcast against each other.

    Attributes:
        plain_s: Seconds of one plain decoding step, T_AR; NaN where the source knows ratios only.
        draft_cost: One draft pass in plain steps, c.
        draft_passes: Draft passes per step: k for sequential drafters, 1 for one-pass drafters.
        verify_cost: The verification pass in plain steps, v.
        overhead: What else a speculative step takes, in plain steps, o.
    """

    plain_s: FloatArray
    draft_cost: FloatArray
    draft_passes: FloatArray
    verify_cost: FloatArray
    overhead: FloatArray

    @property
    def in_plain_steps(self) -> FloatArray:
        """R = v + c · passes + o: the step in plain steps, and the acceptance length that breaks even."""
        return self.verify_cost + self.draft_cost * self.draft_passes + self.overhead


class StepTimeSource(Protocol):
    """What every source of step times offers."""

    @property
    def case(self) -> str:
        """Name of the source in the `case` column."""

    @property
    def basis(self) -> str:
        """Where the numbers come from, as the end of a verdict."""

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """What was given, in base units."""

    @property
    def max_k(self) -> int | None:
        """Longest draft that the source answers for; None where any can be made."""

    @property
    def match_rate(self) -> float:
        """Share of steps in which a lookup draft finds a match; 1 for all other drafts."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the step costs assume, the most important first."""

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """What a reader must know before using them."""

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> StepCost:
        """Cost of a step at draft length k, batch and context; the arguments broadcast.

        `width` is how many tokens of a sequence the verification pass carries, k + 1 unless a tree is
        verified; `passes` how often the draft runs, k unless a tree is shallower.
        """

    def step_bounds(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray] | None:
        """Least and most that R of the same step may be; None where the source knows no range."""

    def warnings_at(self, k: int, batch: npt.ArrayLike, undecided: int) -> tuple[Advice, ...]:
        """What a reader must know at these batches; last, the measurement that would narrow the answer most.

        `undecided` is the batch whose answer is the least certain.
        """

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Largest batch that memory holds without and with speculation; NaN where that is not known."""

    def derivation(self, k: int, batch: int, context: float, *, width: int, passes: int) -> tuple[str, ...]:
        """The step cost of one cell, with its numbers."""


class BatchSource(StepTimeSource, Protocol):
    """A source whose step costs depend on the batch, so that crossovers can be asked for."""

    @property
    def ridge_tokens(self) -> float:
        """Tokens in a pass of the target at which bytes and FLOPs take equally long; NaN where not known."""

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        """Context from which on no batch of chains is too large, in closed form; NaN where there is none."""


def unknown_batches(k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
    """The largest batches of a source that knows no memory."""
    unknown = np.full(np.broadcast_shapes(np.shape(k), np.shape(context)), np.nan)
    return unknown, unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Step costs typed as ratios to the plain step, the textbook's way: v(k) = verify_cost + verify_slope·k.

    Attributes:
        draft_cost: One draft pass in plain steps, c, at least 0.
        verify_cost: v at k = 0, above 0; v itself where `verify_slope` is 0.
        verify_slope: What v gains per draft token, at least 0.
        overhead: What else a speculative step takes, in plain steps, o, at least 0.
        match_rate: Share h of steps in which a lookup draft finds a match; 1 for all other drafts. A step
            without a match is a plain step, so the pass costs h·v + 1 − h on average (batch 1).

    >>> source = Ratios(draft_cost=0.05, verify_slope=0.1)
    >>> round(float(source.step_cost(4, 1, 0).in_plain_steps), 12)  # 1 + 4·0.1 + 4·0.05
    1.6
    """

    draft_cost: float
    verify_cost: float = 1.0
    verify_slope: float = 0.0
    overhead: float = 0.0
    match_rate: float = 1.0

    case: ClassVar[str] = "ratios"
    basis: ClassVar[str] = "from the ratios given"
    max_k: ClassVar[int | None] = None
    warnings: ClassVar[tuple[Advice, ...]] = ()

    def __post_init__(self) -> None:
        for name in ("draft_cost", "overhead"):
            require_range(name, getattr(self, name), 0, MAX_RATIO)
        if not 0 <= self.verify_slope <= MAX_RATIO:
            raise InputError(
                "verify_cost", f"must grow by 0 to {MAX_RATIO:g} per k, got {self.verify_slope:g}"
            )
        require_range("verify_cost", self.verify_cost, high=MAX_RATIO, above=1e-6)
        require_range("match_rate", self.match_rate, 0, 1)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return {
            "draft_cost": self.draft_cost,
            "verify_cost": f"{self.verify_cost:g}+{self.verify_slope:g}k"
            if self.verify_slope
            else self.verify_cost,
            "overhead": self.overhead,
            "match_rate": self.match_rate if self.match_rate < 1 else None,
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"ratios as given, in plain steps: c = {self.draft_cost:g}, {self._verify_text}, "
            f"o = {self.overhead:g}; whether they hold at your batch and context is not checked",
        )

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> StepCost:
        drafts = require_count("k", k).astype(float)
        verify = self.verify_cost + self.verify_slope * drafts
        return StepCost(
            plain_s=np.full(np.broadcast_shapes(drafts.shape, np.shape(batch), np.shape(context)), np.nan),
            draft_cost=np.asarray(self.draft_cost),
            draft_passes=drafts if passes is None else require_range("passes", passes, 0),
            verify_cost=verify if self.match_rate == 1 else self.match_rate * verify + 1 - self.match_rate,
            overhead=np.asarray(self.overhead),
        )

    def step_bounds(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> None:
        return None

    def warnings_at(self, k: int, batch: npt.ArrayLike, undecided: int) -> tuple[Advice, ...]:
        return ()

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        return unknown_batches(k, context)

    def derivation(self, k: int, batch: int, context: float, *, width: int, passes: int) -> tuple[str, ...]:
        cost = self.step_cost(k, batch, context, width=width, passes=passes)
        matched = "" if self.match_rate == 1 else f", h = {self.match_rate:g}"
        terms = f"{float(cost.verify_cost):.4f} + {self.draft_cost:g}·{passes} + {self.overhead:g}"
        total = f"{float(cost.in_plain_steps):.4f} plain steps"
        return (f"R = v + c·k + o = {terms} = {total} ({self._verify_text}{matched})",)

    @property
    def _verify_text(self) -> str:
        slope = f" + {self.verify_slope:g}·k" if self.verify_slope else ""
        return f"v = {self.verify_cost:g}{slope}"
