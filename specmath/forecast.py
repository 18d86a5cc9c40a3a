"""How much faster is it? The speed-up S = E · T_AR / T_step over a grid of laws, k, batch and context.

The grid is planned first and evaluated late, a chunk of rows at a time, so its size is limited by the disk
and not by memory. Within a chunk, acceptance lengths are one small table over (law, k, context), step costs
another over (case, k, batch, context), and a row is a look-up in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import FloatArray, IntArray, require_count, require_range
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.measuring import undecided_batch
from specmath.question_advice import question_advice
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result, brief
from specmath.sources import StepTimeSource
from specmath.speedup_grid import GridBox
from specmath.verdicts import REPEAT_NOISE, judgement, told_along

BEST_K_LIMIT = 16
"""Longest draft tried when the best k is sought; engines seldom draft further."""
MAX_BATCH = 10**9
"""Most sequences in a pass that are taken for more than a slip."""
KEPT_ROWS = 1_000
"""Rows up to which a table keeps what it has evaluated."""
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
    if not isinstance(cases, Sequence) or not cases:
        raise InputError("cases", "must be a list of step-time sources, at least one")
    for case in cases:
        axis.require_match_rate(case.match_rate)
    return SpeedupTable(
        acceptance=axis,
        k=axis.draft_lengths(k),
        batch=np.atleast_1d(require_count("batch", batch, 1, MAX_BATCH)).ravel(),
        context=np.atleast_1d(require_range("context", context, 0)).ravel(),
        cases=tuple(cases),
    ).checked()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedupTable(Result):
    """Speed-ups over the grid laws × k × batch × context, one row per case, the cases running fastest.

    `speedup_low` and `speedup_high` are the range of a profile or of a measurement. They do not exist for a
    datasheet roofline or for typed ratios: neither knows how far off it is. `draft_s` is one draft pass;
    `step_s` the whole speculative step.
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
        "max_batch",
        "max_batch_speculative",
    )

    acceptance: AcceptanceAxis
    k: IntArray
    batch: IntArray
    context: FloatArray
    cases: tuple[StepTimeSource, ...]
    _kept: dict[str, Columns] = field(default_factory=dict, init=False, repr=False, compare=False)

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
        sentences.append(f"the best k is sought from 0 (off, speed-up 1) to {self.best_k_limit}")
        return tuple(dict.fromkeys(sentences))

    @property
    def warnings(self) -> tuple[Advice, ...]:
        found = [advice for case in self.cases for advice in case.warnings]
        longest = int(max(self.k.max(), self._best_ks.max(initial=0)))
        found += question_advice(self.acceptance, self.cases[0], longest_k=longest, context=self.context)
        found += self.cases[0].warnings_at(int(self.k[-1]), self.batch, self._undecided_batch)
        return tuple(dict.fromkeys([*self._misfits(), *found]))

    @property
    def _best_ks(self) -> IntArray:
        """The best k of the leading case, where the table is small enough to look."""
        if len(self) > KEPT_ROWS:
            return np.zeros(0, dtype=np.int64)
        return np.concatenate([np.asarray(chunk["best_k"])[:: len(self.cases)] for chunk in self.chunks()])

    @property
    def _undecided_batch(self) -> int:
        """The batch whose verdict is the least certain."""
        if len(self) > VERDICT_ROWS or self.batch.size == 1:
            return int(self.batch[0])
        value, low, high = (np.concatenate(parts) for parts in zip(*self._leading(), strict=True))
        batches = np.broadcast_to(self.batch[:, None], self.shape[:-1]).ravel()
        return undecided_batch(batches, np.fmin(value, low), np.fmax(value, high))

    def checked(self) -> SpeedupTable:
        """The table itself, once every case has answered for a cell: faults show before a row is written."""
        for case in self.cases:
            case.step_cost(int(self.k[-1]), int(self.batch[-1]), float(self.context.max()))
        return self

    def speedups(self) -> FloatArray:
        """The speed-ups alone, all in memory, of shape `shape`: for a plot, or where speed matters."""
        lengths = self.acceptance.lengths(self.k, self.context)
        return lengths[:, :, None, :, None] / GridBox(self, [slice(None)] * 4).steps()

    @property
    def lowest(self) -> float:
        """The smallest speed-up of the leading case over the grid: the low end where there is a range."""
        return min(float(np.min(np.fmin(value, low))) for value, low, _ in self._leading())

    @property
    def verdict(self) -> str:
        if len(self) > VERDICT_ROWS:
            return ""
        value, low, high = (np.concatenate(parts) for parts in zip(*self._leading(), strict=True))
        words = [judgement(*ends) for ends in zip(value.tolist(), low.tolist(), high.tolist(), strict=True)]
        told = words[0] if len(set(words)) == 1 else told_along(words, self._varying_axis())
        fits = "" if self._fits else "DOES NOT FIT; if it did, "
        ranged = bool(np.isfinite(low).any())
        span = f"{_span(value)}{f', range {_span(low, high)},' if ranged else ''}"
        noise = f" (too close: within {REPEAT_NOISE:.0%} of 1, what a repeated measurement may differ by)"
        close = noise if "TOO CLOSE TO CALL" in words and not ranged else ""
        return f"{fits}{told}: {span} {self.cases[0].basis}{close}"

    @property
    def _fits(self) -> bool:
        """Whether memory holds a single sequence beside the weights; True where that is not known."""
        plain, _ = self.cases[0].max_batches(0, float(self.context.min()))
        return float(plain) != 0

    def _varying_axis(self) -> tuple[str, list[str]] | None:
        """Name and values of the one axis that varies; None where several do."""
        axes = {"α": self.acceptance.alpha, "k": self.k, "batch": self.batch, "context": self.context}
        varying = [(name, values) for name, values in axes.items() if values.size > 1]
        if len(varying) != 1 or len(self.acceptance) != max(1, len(self.acceptance) * (varying[0][0] == "α")):
            return None
        name, values = varying[0]
        return name, [f"{value:g}" for value in values.tolist()]

    @property
    def derivation(self) -> tuple[str, ...]:
        row = next(self.rows())
        k, batch, context = int(self.k[0]), int(self.batch[0]), float(self.context[0])
        law = self.acceptance.law(0).at(context)
        width, passes = int(law.width(k)), int(law.draft_passes(k))
        lines = [law.derivation(k), *self.cases[0].derivation(k, batch, context, width=width, passes=passes)]
        length, step = row["acceptance_length"], row["breakeven_acceptance_length"]
        lines.append(f"S = E / R = {length:.4f} / {step:.4f} = {row['speedup']:.4f}")
        return tuple(lines)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        if len(self) <= min(size, KEPT_ROWS):  # a verdict, its warnings and the rows ask for the same
            if not self._kept:
                self._kept["all"] = GridBox.columns_of(self, 0, len(self) // len(self.cases))
            yield self._kept["all"]
            return
        n_cases = len(self.cases)
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            first, last = start // n_cases, -(-stop // n_cases)  # whole cells, then cut
            cut = slice(start - first * n_cases, stop - first * n_cases)
            columns = GridBox.columns_of(self, first, last)
            yield {key: np.asarray(column)[cut] for key, column in columns.items()}

    def _misfits(self) -> Iterator[Advice]:
        """Whether the largest batch asked for fits in memory, for each arm."""
        k, context, batch = int(self.k.max()), float(self.context.max()), int(self.batch.max())
        plain, speculative = map(float, self.cases[0].max_batches(k, context))
        if plain == 0:
            text = f"not even one sequence fits beside the weights at context {context:,.0f}"
            yield Advice(code="weights-do-not-fit", text=text, remedy="quantise, or add devices")
            return
        for arm, limit in {"plain decoding": plain, f"speculation with k = {k}": speculative}.items():
            if batch > limit:  # never where the limit is not known
                held = f"memory holds {limit:,.0f} sequences of {arm} at context {context:,.0f}"
                remedy = "compare each arm at its own largest batch"
                yield Advice(
                    code="batch-does-not-fit", text=f"batch {batch:,} does not fit: {held}", remedy=remedy
                )

    def _leading(self) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
        """Speed-ups of the leading case and the ends of their range, a chunk of the grid at a time."""
        stride, keys = len(self.cases), ("speedup", "speedup_low", "speedup_high")
        for chunk in self.chunks(CHUNK_ROWS // stride * stride):
            value, low, high = (np.asarray(chunk[key])[::stride] for key in keys)
            yield value, low, high

    @property
    def best_k_limit(self) -> int:
        """Longest draft among which the best k is sought."""
        longest = [case.max_k for case in self.cases if case.max_k is not None]
        return min(max(BEST_K_LIMIT, int(self.k.max())), self.acceptance.max_k, *longest)


def _span(low: FloatArray, high: FloatArray | None = None) -> str:
    """From the smallest to the largest, in one figure where they print alike."""
    ends = [f"{np.nanmin(low):.2f}×", f"{np.nanmax(low if high is None else high):.2f}×"]
    return " to ".join(dict.fromkeys(ends))
