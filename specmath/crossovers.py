"""Up to which batch does it pay? Ridge, verify-bound and break-even batch, and what would turn the answer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.breakevens import (
    breakeven_alpha,
    breakeven_draft_cost_from_acceptance_length,
    breakeven_verify_cost_from_acceptance_length,
)
from specmath.checks import FloatArray, IntArray, require_count, require_range
from specmath.laws import AcceptanceLaw
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result, brief
from specmath.sources import BatchSource, StepCost

SCAN_LIMIT = 4096
"""Largest batch scanned unless the caller says otherwise; engines default to 256–1024 running sequences."""
SCAN_CELLS = 2_000_000
"""Cells (rows × batches) scanned at a time."""


def find_crossovers(
    acceptance: AcceptanceLaw | Sequence[AcceptanceLaw],
    k: npt.ArrayLike,
    *,
    source: BatchSource,
    batch: int = 1,
    context: npt.ArrayLike = 0,
    max_batch: int = SCAN_LIMIT,
) -> CrossoverTable:
    """The batches at which speculation wins, for every combination of acceptance law, k and context.

    Every whole batch from 1 to `max_batch` is tried, since the curve need not be monotone; the break-even
    batch itself is the real number at which S = 1, found by bisection next to the last winning batch.

    Args:
        acceptance: A law or several.
        k: Draft tokens per step, each at least 1.
        source: Step times that depend on the batch; typed ratios do not.
        batch: The batch at which the break-even α, E, c and v are taken.
        context: Tokens in the KV cache per sequence, one or many.
        max_batch: Largest batch tried.

    Raises:
        InputError: for a value out of range, or a k beyond what a law answers for.
    """
    axis = AcceptanceAxis.of(acceptance)
    return CrossoverTable(
        acceptance=axis,
        k=axis.draft_lengths(k, at_least=1),
        context=np.atleast_1d(require_range("context", context, 0)).ravel(),
        source=source,
        batch=int(require_count("batch", batch, 1)),
        max_batch=int(require_count("max_batch", max_batch, 1, 2**20)),
    ).checked()


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossoverTable(Result):
    """Crossovers over the grid laws × k × context.

    `wins` tells how to read `breakeven_batch`: `below` and `above` it, or None with `always` (at every batch
    tried), `never`, or `within` (several or inner intervals: see `winning_batches`, pairs of first and last).
    The break-even α, E, c and v hold at `batch`, each with the other three as they are.
    """

    schema: ClassVar[str] = "specmath.crossover/1"
    keys: ClassVar[tuple[str, ...]] = (
        "case",
        "alpha",
        "law",
        "k",
        "context",
        "acceptance_length",
        "ridge_tokens",
        "verify_bound_batch",
        "wins",
        "breakeven_batch",
        "winning_batches",
        "critical_context",
        "max_batch",
        "max_batch_speculative",
        "batch",
        "speedup",
        "breakeven_alpha",
        "breakeven_acceptance_length",
        "breakeven_draft_cost",
        "breakeven_verify_cost",
    )

    acceptance: AcceptanceAxis
    k: IntArray
    context: FloatArray
    source: BatchSource
    batch: int
    max_batch: int

    def checked(self) -> CrossoverTable:
        """The table itself, once the source has answered for a cell: faults show before a row is written."""
        self.source.step_cost(int(self.k[-1]), self.max_batch, float(self.context.max()))
        return self

    @property
    def shape(self) -> tuple[int, int, int]:
        """(laws, k, contexts), the order in which rows run through the grid."""
        return (len(self.acceptance), self.k.size, self.context.size)

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        asked: dict[str, Cell] = {
            "k": brief(self.k),
            "context": brief(self.context),
            "batch": self.batch,
            "max_batch_tried": self.max_batch,
        }
        return self.acceptance.inputs | asked | dict(self.source.inputs)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            *self.source.assumptions,
            *self.acceptance.assumptions,
            f"every batch from 1 to {self.max_batch} is tried; `always` means up to there",
            f"break-even α, E, c and v are those at batch {self.batch}",
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        hopeless = Advice(
            code="no-verify-cost-pays",
            text="a break-even verify cost below 1 means that no verify cost pays",
            remedy="raise acceptance or lower k or the draft cost",
        )
        lowest = min(float(np.min(np.asarray(chunk["breakeven_verify_cost"]))) for chunk in self.chunks())
        return self.source.warnings + ((hopeless,) if lowest < 1 else ())

    @property
    def verdict(self) -> str:
        rows = list(self.rows())
        if len(rows) == 1:
            return f"{_sentence(rows[0], self.max_batch)}, {self.source.basis}{self._memory_end(rows[0])}"
        words = [str(row["wins"]) for row in rows]
        edges = [float(str(row["breakeven_batch"])) for row in rows if row["wins"] == "below"]
        counts = {word: words.count(word) for word in dict.fromkeys(words) if word != "below"}
        told = [f"{_WINS[word]} in {count} of {len(rows)} set-ups" for word, count in counts.items()]
        if edges:
            low, high = min(edges), max(edges)
            told.insert(
                0,
                f"FASTER below a break-even batch of {low:.1f} to {high:.1f} in {len(edges)} of {len(rows)}",
            )
        return f"{', '.join(told)}, {self.source.basis}"

    def _memory_end(self, row: Mapping[str, Cell]) -> str:
        """Where memory ends the winning batches, as the end of the verdict."""
        held, intervals = row["max_batch_speculative"], list(row["winning_batches"] or [])  # type: ignore[arg-type]
        if held is None or not intervals or float(str(held)) >= intervals[-1][1]:
            return ""
        return f"; but memory holds {float(str(held)):,.0f} sequences with speculation"

    @property
    def derivation(self) -> tuple[str, ...]:
        k, context = int(self.k[0]), float(self.context[0])
        row = next(self.rows())
        law = self.acceptance.law(0).at(context)
        width, passes = int(law.width(k)), int(law.draft_passes(k))
        step = self.source.derivation(k, self.batch, context, width=width, passes=passes)
        lines = [law.derivation(k), *step]
        if row["verify_bound_batch"] is not None:
            lines.append(
                f"N* over the tokens verified of a sequence: {row['verify_bound_batch']:.1f} sequences"
            )
        if row["breakeven_batch"] is not None:
            length, edge = row["acceptance_length"], row["breakeven_batch"]
            lines.append(f"a step costs E = {length:.4f} plain steps at batch {edge:.1f}")
        return tuple(lines)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        rows = max(1, min(size, SCAN_CELLS // self.max_batch))
        for start in range(0, len(self), rows):
            yield self._columns(start, min(start + rows, len(self)))

    def _columns(self, start: int, stop: int) -> Columns:
        law, k_index, context_index = np.unravel_index(np.arange(start, stop), self.shape)
        some_laws = slice(int(law[0]), int(law[-1]) + 1)
        lengths = self.acceptance.lengths(self.k, self.context, some_laws)
        widths, passes = self.acceptance.widths(self.k), self.acceptance.draft_passes(self.k)
        rows = _Rows(
            source=self.source,
            length=lengths[law - law[0], k_index, context_index],
            k=self.k[k_index],
            width=widths[law if len(widths) > 1 else 0, k_index],
            passes=passes[law if len(passes) > 1 else 0, k_index],
            context=self.context[context_index],
        )
        ridge = np.full(stop - start, self.source.ridge_tokens)
        limits = self.source.max_batches(rows.k, rows.context)
        plain, speculative = (np.broadcast_to(limit, rows.k.shape) for limit in limits)
        return {
            "case": [self.source.case] * (stop - start),
            "alpha": self.acceptance.alpha[law],
            "law": self.acceptance.labels[law],
            "k": rows.k,
            "context": rows.context,
            "acceptance_length": rows.length,
            "ridge_tokens": ridge,
            "verify_bound_batch": ridge / (1 + self.source.match_rate * (rows.width - 1)),
            **rows.wins(self.max_batch),
            "critical_context": self.source.critical_context(rows.length, rows.k),
            "max_batch": plain,
            "max_batch_speculative": speculative,
            **rows.breakevens(self.batch),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """The set-ups of some rows, as equally long arrays."""

    source: BatchSource
    length: FloatArray
    k: IntArray
    width: IntArray
    passes: IntArray
    context: FloatArray

    def step_cost(self, batch: npt.ArrayLike) -> StepCost:
        return self.source.step_cost(self.k, batch, self.context, width=self.width, passes=self.passes)

    def wins(self, max_batch: int) -> Columns:
        """The winning batches of each row, and the break-even batch where there is one."""
        batches = np.arange(1, max_batch + 1)[:, None]
        pays = self.length > self.step_cost(batches).in_plain_steps
        intervals = [_intervals(row) for row in pays.T]
        wins = [_wins(found, max_batch) for found in intervals]
        return {
            "wins": wins,
            "breakeven_batch": self._breakeven_batch(intervals, wins),
            "winning_batches": [[list(pair) for pair in found] for found in intervals],
        }

    def _breakeven_batch(self, intervals: list[list[tuple[int, int]]], wins: list[str]) -> FloatArray:
        """The real batch at which S = 1, bisected between a winning and a losing neighbour."""
        winning = np.array([_edge(found, word) for found, word in zip(intervals, wins, strict=True)])
        losing = winning + np.where(np.array(wins) == "above", -1.0, 1.0)
        known = np.isin(wins, ("below", "above"))
        for _ in range(60):  # halves an interval of width 1 down to rounding
            middle = np.where(known, (winning + losing) / 2, 1.0)
            pays = self.length > self.step_cost(middle).in_plain_steps
            winning, losing = np.where(pays, middle, winning), np.where(pays, losing, middle)
        return np.where(known, winning, np.nan)

    def breakevens(self, batch: int) -> Columns:
        """What each of α, E, c and v would have to be for S = 1 at this batch, the others as they are."""
        cost = self.step_cost(batch)
        needed = cost.in_plain_steps
        ratios = {"draft_cost": cost.draft_cost, "verify_cost": cost.verify_cost, "overhead": cost.overhead}
        one_alpha = (self.width == self.k + 1) & (self.source.match_rate == 1)  # trees and lookups have none
        return {
            "batch": np.full(self.k.size, batch),
            "speedup": self.length / needed,
            "breakeven_alpha": np.where(one_alpha, breakeven_alpha(self.k, **ratios), np.nan),
            "breakeven_acceptance_length": needed,
            "breakeven_draft_cost": np.asarray(
                breakeven_draft_cost_from_acceptance_length(
                    self.length, self.passes, verify_cost=cost.verify_cost, overhead=cost.overhead
                )
            ),
            "breakeven_verify_cost": np.asarray(
                breakeven_verify_cost_from_acceptance_length(
                    self.length, self.passes, draft_cost=cost.draft_cost, overhead=cost.overhead
                )
            ),
        }


_WINS = {
    "always": "FASTER at every batch",
    "never": "SLOWER at every batch",
    "above": "FASTER above a break-even batch",
    "within": "FASTER at some batches",
}


def _intervals(winning: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last batch of each run of wins; element 0 is batch 1.

    >>> _intervals(np.array([True, True, False, True]))
    [(1, 2), (4, 4)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[False], winning, [False]])))
    return [(int(first) + 1, int(last)) for first, last in zip(edges[::2], edges[1::2], strict=True)]


def _wins(intervals: list[tuple[int, int]], max_batch: int) -> str:
    if not intervals:
        return "never"
    first, last = intervals[0]
    if len(intervals) > 1 or (first > 1 and last < max_batch):
        return "within"
    if first > 1:
        return "above"
    return "always" if last == max_batch else "below"


def _edge(intervals: list[tuple[int, int]], wins: str) -> float:
    """The winning batch next to the break-even batch; 1 where there is none to seek."""
    if wins == "below":
        return float(intervals[0][1])
    return float(intervals[0][0]) if wins == "above" else 1.0


def _sentence(row: Mapping[str, Cell], max_batch: int) -> str:
    """The answer of one row in words."""
    wins, at = row["wins"], row["breakeven_batch"]
    if wins == "never":
        return f"SLOWER at every batch up to {max_batch}"
    if wins == "always":
        return f"FASTER at every batch up to {max_batch}"
    if wins == "within":
        intervals: Any = row["winning_batches"]
        told = ", ".join(f"{first}–{last}" if first < last else f"{first}" for first, last in intervals)
        return f"FASTER at batch {told} only"
    return f"FASTER {wins} batch {at:.1f}, SLOWER {'above' if wins == 'below' else 'below'} it"
