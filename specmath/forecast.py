"""How much faster is it? The speed-up S = E · T_AR / T_step over a grid of laws, k, batch and context.

The grid is planned first and evaluated late: acceptance lengths are one small table over (law, k, context),
step costs another over (case, k, batch, context), and a row is a look-up in both. A chunk of rows is
evaluated at a time, so the size of the grid is limited by the disk, not by memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import FloatArray, IntArray, require_count, require_range
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result, brief
from specmath.sources import StepTimeSource

BEST_K_LIMIT = 16
"""Longest draft tried when the best k is sought; engines seldom draft further."""
REPEAT_NOISE = 0.08
"""The same configuration measured twice differs by 1–8 % inside one engine version, so a speed-up this close
to 1 cannot be told from 1. It is no error bar of the model, which is larger."""
VERDICT_ROWS = 100_000
"""Rows up to which the verdict counts wins and losses; beyond, evaluating the grid twice is not worth it."""


def forecast_speedup(
    acceptance: AcceptanceLaw | Sequence[AcceptanceLaw],
    k: npt.ArrayLike,
    batch: npt.ArrayLike = 1,
    *,
    cases: Sequence[StepTimeSource],
    context: npt.ArrayLike = 0,
) -> SpeedupTable:
    """Speed-up of every combination of acceptance law, k, batch and context, under each step-time source.

        S = E / (v + c·k + o)

    Args:
        acceptance: A law or several; `ConstantAcceptance` over an array of α is one law per α.
        k: Draft tokens per step, one or many, each a whole number of at least 0.
        batch: Sequences in the pass, one or many, each a whole number of at least 1.
        cases: Step-time sources, the one that leads first; `roofline_cases` gives the usual three.
        context: Tokens in the KV cache per sequence, one or many.

    Returns:
        A lazy table; `rows()`, `to_frame()` and the writers of `specmath.tables` evaluate it.

    Raises:
        InputError: for a value out of range, or a k beyond what a law answers for.

    >>> from specmath.acceptance import ConstantAcceptance
    >>> from specmath.sources import Ratios
    >>> table = forecast_speedup(ConstantAcceptance(0.5), 1, cases=[Ratios(draft_cost=0.5)])
    >>> next(table.rows())["speedup"]  # 1.5 tokens in 1.5 plain steps
    1.0
    """
    axis = AcceptanceAxis.of(acceptance)
    if not cases:
        raise InputError("cases", "is empty; give at least one step-time source")
    return SpeedupTable(
        acceptance=axis,
        k=axis.draft_lengths(k),
        batch=np.atleast_1d(require_count("batch", batch, 1)).ravel(),
        context=np.atleast_1d(require_range("context", context, 0)).ravel(),
        cases=tuple(cases),
    )


def judgement(speedup: float, low: float | None = None, high: float | None = None) -> str:
    """FASTER, SLOWER or TOO CLOSE TO CALL: by the range where there is one, else by the repeat noise.

    >>> judgement(1.5), judgement(1.05), judgement(1.5, low=0.9, high=1.8)
    ('FASTER', 'TOO CLOSE TO CALL', 'TOO CLOSE TO CALL')
    """
    floor = speedup / (1 + REPEAT_NOISE) if low is None else low
    ceiling = speedup * (1 + REPEAT_NOISE) if high is None else high
    if floor > 1:
        return "FASTER"
    return "SLOWER" if ceiling < 1 else "TOO CLOSE TO CALL"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupTable(Result):
    """Speed-ups over the grid laws × k × batch × context, one row per case, the cases running fastest.

    `speedup_low` and `speedup_high` do not exist for a datasheet roofline or for typed ratios: neither
    knows how far off it is. `draft_s` is one draft pass; `step_s` the whole speculative step.
    """

    schema: ClassVar[str] = "specmath.speedup/1"
    keys: ClassVar[tuple[str, ...]] = (
        "case",
        "alpha",
        "law",
        "k",
        "batch",
        "context",
        "acceptance_length",
        "draft_cost",
        "verify_cost",
        "overhead",
        "speedup",
        "speedup_low",
        "speedup_high",
        "breakeven_acceptance_length",
        "best_k",
        "best_speedup",
        "target_s",
        "draft_s",
        "verify_s",
        "step_s",
    )

    acceptance: AcceptanceAxis
    k: IntArray
    batch: IntArray
    context: FloatArray
    cases: tuple[StepTimeSource, ...]

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """(laws, k, batches, contexts, cases), the order in which rows run through the grid."""
        return (len(self.acceptance), self.k.size, self.batch.size, self.context.size, len(self.cases))

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        axes: dict[str, Cell] = {
            "k": brief(self.k),
            "batch": brief(self.batch),
            "context": brief(self.context),
        }
        return self.acceptance.inputs | axes | dict(self.cases[0].inputs)

    @property
    def assumptions(self) -> tuple[str, ...]:
        sentences = [*self.cases[0].assumptions, *self.acceptance.assumptions]
        sentences += [sentence for case in self.cases[1:] for sentence in case.assumptions]
        sentences.append(f"the best k is sought from 0 (off, speed-up 1) to {self._best_k_limit}")
        return tuple(dict.fromkeys(sentences))

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return tuple(dict.fromkeys(advice for case in self.cases for advice in case.warnings))

    def speedups(self) -> FloatArray:
        """The speed-ups alone, all in memory, of shape `shape`: for a plot, or where speed matters."""
        lengths = self.acceptance.lengths(self.k, self.context)
        return lengths[:, :, None, :, None] / _Grid(self).costs["in_plain_steps"]

    @property
    def lowest(self) -> float:
        """The smallest speed-up of the leading case over the whole grid."""
        return min(float(np.min(leading)) for leading in self._leading())

    @property
    def verdict(self) -> str:
        if len(self) > VERDICT_ROWS:
            return ""
        leading = np.concatenate(list(self._leading()))
        basis = self.cases[0].basis
        if leading.size == 1:
            return f"{judgement(float(leading[0]))}: {leading[0]:.2f}× {basis}"
        words = [judgement(float(value)) for value in leading]
        counts = {word: words.count(word) for word in ("FASTER", "TOO CLOSE TO CALL", "SLOWER")}
        told = ", ".join(f"{word} in {count}" for word, count in counts.items() if count)
        return f"{told} of {leading.size} set-ups, {leading.min():.2f}× to {leading.max():.2f}×, {basis}"

    @property
    def derivation(self) -> tuple[str, ...]:
        row = next(self.rows())
        k, batch, context = int(self.k[0]), int(self.batch[0]), float(self.context[0])
        lines = [self.acceptance.law(0).at(context).derivation(k)]
        lines += self.cases[0].derivation(k, batch, context)
        length, step = row["acceptance_length"], row["breakeven_acceptance_length"]
        lines.append(f"S = E / R = {length:.4f} / {step:.4f} = {row['speedup']:.4f}")
        return tuple(lines)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        grid = _Grid(self)
        for start in range(0, len(self), size):
            yield grid.columns(start, min(start + size, len(self)))

    def _leading(self) -> Iterator[FloatArray]:
        """Speed-ups of the leading case, a chunk of the grid at a time."""
        stride = len(self.cases)
        for chunk in self.chunks(CHUNK_ROWS // stride * stride):
            yield np.asarray(chunk["speedup"])[::stride]

    @property
    def _best_k_limit(self) -> int:
        return min(BEST_K_LIMIT, self.acceptance.max_k)


class _Grid:
    """The two tables behind a `SpeedupTable`, and the look-up of rows in them.

    Acceptance lengths have shape (laws, k, contexts); each step-cost quantity has shape
    (laws, k, batches, contexts, cases), with one entry for all laws unless trees are among them. Both are
    small beside the grid itself.
    """

    def __init__(self, table: SpeedupTable) -> None:
        self.table = table
        self.tried = np.arange(table._best_k_limit + 1)
        costs = self._costs(table.k)
        shape = costs["in_plain_steps"].shape
        self.costs = {key: np.broadcast_to(value, shape) for key, value in costs.items()}
        self.tried_steps = self._costs(self.tried)["in_plain_steps"]

    def _costs(self, k: IntArray) -> dict[str, FloatArray]:
        table = self.table
        lengths, batches = k[:, None, None], table.batch[:, None]
        width = table.acceptance.widths(k)[..., None, None]
        costs = [case.step_cost(lengths, batches, table.context, width=width) for case in table.cases]
        names = ("plain_s", "draft_cost", "verify_cost", "overhead", "in_plain_steps")
        return {name: np.stack([getattr(cost, name) for cost in costs], axis=-1) for name in names}

    def columns(self, start: int, stop: int) -> Columns:
        """Rows start … stop of the table, by column."""
        table = self.table
        law, k, batch, context, case = np.unravel_index(np.arange(start, stop), table.shape)
        first_law = int(law[0])
        some_laws = slice(first_law, int(law[-1]) + 1)
        lengths = table.acceptance.lengths(table.k, table.context, some_laws)
        best_k, best_speedup = self._best(some_laws)
        cell = (law if len(self.tried_steps) > 1 else 0, k, batch, context, case)
        cost = {key: value[cell] for key, value in self.costs.items()}
        acceptance_length = lengths[law - first_law, k, context]
        best_cell = (law - first_law, batch, context, case)
        unknown = np.full(stop - start, np.nan)
        return {
            "case": _case_names(table.cases)[case],
            "alpha": table.acceptance.alpha[law],
            "law": table.acceptance.labels[law],
            "k": table.k[k],
            "batch": table.batch[batch],
            "context": table.context[context],
            "acceptance_length": acceptance_length,
            "draft_cost": cost["draft_cost"],
            "verify_cost": cost["verify_cost"],
            "overhead": cost["overhead"],
            "speedup": acceptance_length / cost["in_plain_steps"],
            "speedup_low": unknown,
            "speedup_high": unknown,
            "breakeven_acceptance_length": cost["in_plain_steps"],
            "best_k": best_k[best_cell],
            "best_speedup": best_speedup[best_cell],
            "target_s": cost["plain_s"],
            "draft_s": cost["draft_cost"] * cost["plain_s"],
            "verify_s": cost["verify_cost"] * cost["plain_s"],
            "step_s": cost["in_plain_steps"] * cost["plain_s"],
        }

    def _best(self, some_laws: slice) -> tuple[IntArray, FloatArray]:
        """Best k and its speed-up, shape (laws, batches, contexts, cases). Off is 1 by definition."""
        lengths = self.table.acceptance.lengths(self.tried, self.table.context, some_laws)
        steps = self.tried_steps[some_laws] if len(self.tried_steps) > 1 else self.tried_steps
        speedups = lengths[:, :, None, :, None] / steps
        speedups[:, 0] = 1.0
        best = speedups.argmax(axis=1)
        return best, np.take_along_axis(speedups, best[:, None], axis=1)[:, 0]


def _case_names(cases: Sequence[StepTimeSource]) -> npt.NDArray[np.object_]:
    return np.array([case.case for case in cases], dtype=object)
