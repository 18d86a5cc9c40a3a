"""How much faster is it? The speed-up S = E · T_AR / T_step over a grid of laws, k, batch and context.

The grid is planned first and evaluated late, a chunk of rows at a time, so its size is limited by the disk
and not by memory. Within a chunk, acceptance lengths are one small table over (law, k, context), step costs
another over (case, k, batch, context), and a row is a look-up in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import FloatArray, IntArray, require_count, require_range
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result, brief
from specmath.sources import StepTimeSource
from specmath.verdicts import REPEAT_NOISE, judgement, told_along

BEST_K_LIMIT = 16
"""Longest draft tried when the best k is sought; engines seldom draft further."""
MAX_BATCH = 10**9
"""Most sequences in a pass that are taken for more than a slip."""
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
        "max_batch",
        "max_batch_speculative",
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
        found = [advice for case in self.cases for advice in case.warnings]
        return tuple(dict.fromkeys([*self._misfits(), *found]))

    def checked(self) -> SpeedupTable:
        """The table itself, once every case has answered for a cell: faults show before a row is written."""
        for case in self.cases:
            case.step_cost(int(self.k[-1]), int(self.batch[-1]), float(self.context.max()))
        return self

    def speedups(self) -> FloatArray:
        """The speed-ups alone, all in memory, of shape `shape`: for a plot, or where speed matters."""
        lengths = self.acceptance.lengths(self.k, self.context)
        return lengths[:, :, None, :, None] / _Box(self, [slice(None)] * 4).steps()

    @property
    def lowest(self) -> float:
        """The smallest speed-up of the leading case over the whole grid."""
        return min(float(np.min(leading)) for leading in self._leading())

    @property
    def verdict(self) -> str:
        if len(self) > VERDICT_ROWS:
            return ""
        leading = np.concatenate(list(self._leading()))
        words = [judgement(float(value)) for value in leading]
        low, high = (f"{value:.2f}×" for value in (leading.min(), leading.max()))
        span = low if low == high else f"{low} to {high}"
        told = words[0] if len(set(words)) == 1 else told_along(words, self._varying_axis())
        noise = f" (too close: within {REPEAT_NOISE:.0%} of 1, what a repeated measurement may differ by)"
        fits = "" if self._fits else "DOES NOT FIT; if it did, "
        return f"{fits}{told}: {span} {self.cases[0].basis}{noise if 'TOO CLOSE TO CALL' in words else ''}"

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
        n_cases = len(self.cases)
        for start in range(0, len(self), size):
            stop = min(start + size, len(self))
            first, last = start // n_cases, -(-stop // n_cases)  # whole cells, then cut
            cut = slice(start - first * n_cases, stop - first * n_cases)
            columns = _Box.columns_of(self, first, last)
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

    def _leading(self) -> Iterator[FloatArray]:
        """Speed-ups of the leading case, a chunk of the grid at a time."""
        stride = len(self.cases)
        for chunk in self.chunks(CHUNK_ROWS // stride * stride):
            yield np.asarray(chunk["speedup"])[::stride]

    @property
    def _best_k_limit(self) -> int:
        return min(max(BEST_K_LIMIT, int(self.k.max())), self.acceptance.max_k)


class _Box:
    """The part of a grid that holds some consecutive cells, and the look-up of their rows in it.

    Acceptance lengths of the box have shape (laws, k, contexts); step costs, one record per case, broadcast
    to (laws, k, batches, contexts), with one entry for all laws unless trees are among them. A box is hardly
    larger than its cells, since these run through the grid in order.
    """

    def __init__(self, table: SpeedupTable, spans: Sequence[slice]) -> None:
        self.table = table
        self.laws, ks, batches, contexts = spans
        self.ks, self.batches, self.contexts = table.k[ks], table.batch[batches], table.context[contexts]

    @classmethod
    def columns_of(cls, table: SpeedupTable, first: int, last: int) -> Columns:
        """The rows of cells first … last of the table, a row per case, by column."""
        cells = np.unravel_index(np.arange(first, last), table.shape[:-1])
        spans = [slice(int(index.min()), int(index.max()) + 1) for index in cells]
        inside = [index - span.start for index, span in zip(cells, spans, strict=True)]
        return cls(table, spans).columns(*inside)

    def columns(self, law: IntArray, k: IntArray, batch: IntArray, context: IntArray) -> Columns:
        """The rows of the cells at these places of the box."""
        table, n_cases = self.table, len(self.table.cases)
        costs = self._costs(self.ks)
        lengths = table.acceptance.lengths(self.ks, self.contexts, self.laws)[law, k, context]
        place = (law if len(costs[0]["overhead"]) > 1 else 0, k, batch, context)
        by_case = [{name: value[place] for name, value in cost.items()} for cost in costs]
        cost = {name: np.stack([one[name] for one in by_case], axis=-1) for name in by_case[0]}
        plain, speculative = self._max_batches()
        best_k, best_speedup = self._best()
        low, high = (np.stack([bound[place] for bound in ends], axis=-1) for ends in self._bounds())
        columns: Columns = {
            "case": np.broadcast_to(_case_names(table.cases), low.shape),
            "alpha": _per_case(table.acceptance.alpha[self.laws][law], n_cases),
            "law": _per_case(table.acceptance.labels[self.laws][law], n_cases),
            "k": _per_case(self.ks[k], n_cases),
            "batch": _per_case(self.batches[batch], n_cases),
            "context": _per_case(self.contexts[context], n_cases),
            "acceptance_length": _per_case(lengths, n_cases),
            "draft_cost": cost["draft_cost"],
            "verify_cost": cost["verify_cost"],
            "overhead": cost["overhead"],
            "speedup": lengths[:, None] / cost["in_plain_steps"],
            "speedup_low": lengths[:, None] / high,
            "speedup_high": lengths[:, None] / low,
            "breakeven_acceptance_length": cost["in_plain_steps"],
            "best_k": best_k[law, batch, context],
            "best_speedup": best_speedup[law, batch, context],
            "target_s": cost["plain_s"],
            "draft_s": cost["draft_cost"] * cost["plain_s"],
            "verify_s": cost["verify_cost"] * cost["plain_s"],
            "step_s": cost["in_plain_steps"] * cost["plain_s"],
            "max_batch": plain[k, context],
            "max_batch_speculative": speculative[k, context],
        }
        return {key: np.asarray(column).ravel() for key, column in columns.items()}

    def steps(self) -> FloatArray:
        """Step costs in plain steps, shape (laws or 1, k, batches, contexts, cases)."""
        return _stacked_steps(self._costs(self.ks))

    def _costs(self, k: IntArray) -> list[dict[str, FloatArray]]:
        names = ("plain_s", "draft_cost", "verify_cost", "overhead", "in_plain_steps")
        cells, shape = self._cells(k)
        costs = [case.step_cost(**cells) for case in self.table.cases]
        return [{name: np.broadcast_to(getattr(cost, name), shape) for name in names} for cost in costs]

    def _bounds(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """Least and most a step may cost, one array per case; NaN where a case knows no range."""
        cells, shape = self._cells(self.ks)
        unknown = (np.full((), np.nan), np.full((), np.nan))
        bounds = [case.step_bounds(**cells) or unknown for case in self.table.cases]
        low, high = ([np.broadcast_to(bound[end], shape) for bound in bounds] for end in (0, 1))
        return low, high

    def _cells(self, k: IntArray) -> tuple[dict[str, Any], tuple[int, ...]]:
        """Arguments of the step costs of the box at these k, and the shape they broadcast to."""
        axis = self.table.acceptance
        width, passes = axis.widths(k, self.laws), axis.draft_passes(k, self.laws)
        cells = {
            "k": k[:, None, None],
            "batch": self.batches[:, None],
            "context": self.contexts,
            "width": width[..., None, None],
            "passes": passes[..., None, None],
        }
        return cells, (max(len(width), len(passes)), k.size, self.batches.size, self.contexts.size)

    def _max_batches(self) -> tuple[FloatArray, FloatArray]:
        """Largest batch of each arm, shape (k, contexts, cases)."""
        arms = [case.max_batches(self.ks[:, None], self.contexts) for case in self.table.cases]
        shape = (self.ks.size, self.contexts.size)
        plain, speculative = (
            np.stack([np.broadcast_to(arm[place], shape) for arm in arms], axis=-1) for place in (0, 1)
        )
        return plain, speculative

    def _best(self) -> tuple[IntArray, FloatArray]:
        """Best k and its speed-up, shape (laws, batches, contexts, cases). Off is 1 by definition."""
        tried = np.arange(self.table._best_k_limit + 1)
        steps = _stacked_steps(self._costs(tried))
        lengths = self.table.acceptance.lengths(tried, self.contexts, self.laws)
        speedups = lengths[:, :, None, :, None] / steps
        speedups[:, 0] = 1.0
        best = speedups.argmax(axis=1)
        return best, np.take_along_axis(speedups, best[:, None], axis=1)[:, 0]


def _stacked_steps(costs: Sequence[Mapping[str, FloatArray]]) -> FloatArray:
    return np.stack([cost["in_plain_steps"] for cost in costs], axis=-1)


def _per_case(column: npt.NDArray[Any], n_cases: int) -> npt.NDArray[Any]:
    """A column of cells, repeated for each case."""
    return np.broadcast_to(column[:, None], (column.size, n_cases))


def _case_names(cases: Sequence[StepTimeSource]) -> npt.NDArray[np.object_]:
    return np.array([case.case for case in cases], dtype=object)
