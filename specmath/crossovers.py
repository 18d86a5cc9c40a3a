"""Up to which batch does it pay? Ridge, verify-bound and break-even batch, and from which context on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.breakevens import breakeven_alpha
from specmath.checks import FloatArray, IntArray, require_count, require_range
from specmath.critical_contexts import CONTEXT_LIMIT, critical_contexts
from specmath.crossover_text import told_of_many, told_of_one
from specmath.flips import Flip, flip_lines, nearest_flips, set_up_flips
from specmath.laws import AcceptanceLaw
from specmath.question_advice import question_advice
from specmath.results import Advice, Cell, Columns, Result, brief
from specmath.sources import BatchSource
from specmath.winning import LARGEST_SCAN, Intervals, Progress, SetUps, clipped, wins

SCAN_LIMIT = 4096
"""Largest batch scanned unless the caller says otherwise; engines default to 256–1024 running sequences."""
PIECE_ROWS = 16_384
"""Rows evaluated at a time. A table of one piece is evaluated once and kept; a larger one has no verdict."""


def find_crossovers(
    acceptance: AcceptanceLaw | Sequence[AcceptanceLaw],
    k: npt.ArrayLike,
    *,
    source: BatchSource,
    batch: int = 1,
    context: npt.ArrayLike = 0,
    max_batch: int = SCAN_LIMIT,
    progress: Progress | None = None,
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
        progress: Called with the rows done and the rows in all while batches are tried.

    Raises:
        InputError: for a value out of range, or a k beyond what a law answers for.
    """
    axis = AcceptanceAxis.of(acceptance)
    axis.require_match_rate(source.match_rate)
    return CrossoverTable(
        acceptance=axis,
        k=axis.draft_lengths(k, at_least=1),
        context=np.atleast_1d(require_range("context", context, 0)).ravel(),
        source=source,
        batch=int(require_count("batch", batch, 1, LARGEST_SCAN)),
        max_batch=int(require_count("max_batch", max_batch, 1, LARGEST_SCAN)),
        progress=progress,
    ).checked()


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossoverTable(Result):
    """Crossovers over the grid laws × k × context.

    `wins` tells how to read `breakeven_batch`: `below` and `above` it, or None with `always` (at every batch
    tried), `never`, or `within` (several or inner intervals: see `winning_batches`, pairs of first and last).
    The break-even α, E, c and v hold at `batch`, each with the other three as they are. Where the source
    knows a range, `winning_batches_low` and `_high` are those of the dearest and of the cheapest step, and
    `breakeven_batch_low` and `_high` the lower and the higher of their break-even batches.
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
        "breakeven_batch_low",
        "breakeven_batch_high",
        "winning_batches",
        "winning_batches_low",
        "winning_batches_high",
        "winning_batches_in_memory",
        "critical_context",
        "max_batch",
        "max_batch_speculative",
        "batch",
        "speedup",
        "speedup_low",
        "speedup_high",
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
    progress: Progress | None = field(default=None, repr=False, compare=False)
    _kept: list[Columns] = field(default_factory=list, init=False, repr=False, compare=False)

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
            "winning batches are those of the step times, whatever fits; those in memory end where "
            "speculation no longer fits, and there plain decoding still takes more sequences",
            "the critical context is where E = R in the limit of large batch, memory aside: from there on "
            f"no batch is too large; sought up to {CONTEXT_LIMIT / 1e6:g} million tokens",
            f"break-even α, E, c and v are those at batch {self.batch}",
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        hopeless = Advice(
            code="no-verify-cost-pays",
            text="a break-even verify cost below 1 means that no verify cost pays",
            remedy="raise acceptance or lower k or the draft cost",
        )
        pieces = (self._breakevens(self._set_ups(*span)) for span in self._spans(PIECE_ROWS))
        lowest = min(float(np.min(np.asarray(piece["breakeven_verify_cost"]))) for piece in pieces)
        asked = (
            *question_advice(self.acceptance, self.source, longest_k=int(self.k.max()), context=self.context),
            *self.source.warnings_at(int(self.k[-1]), self.batch, self.batch),
        )
        return (*self.source.warnings, *((hopeless,) if lowest < 1 else ()), *asked)

    @property
    def verdict(self) -> str:
        if len(self) > PIECE_ROWS:
            return ""
        rows = list(self.rows())
        if len(rows) > 1:
            return told_of_many(rows, self.source.basis)
        turns = nearest_flips(self._flips())
        return told_of_one(rows[0], self.max_batch, self.source.basis, turns)

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
        return (*lines, *flip_lines(self._flips(), self.batch))

    def _flips(self) -> Sequence[Flip]:
        """What would turn the answer of the first row."""
        context = float(self.context[0])
        return set_up_flips(
            self.acceptance.law(0), int(self.k[0]), self.source, self.batch, context, self.max_batch
        )

    def chunks(self, size: int = PIECE_ROWS) -> Iterator[Columns]:
        if len(self) > min(size, PIECE_ROWS):
            yield from (self._columns(*span) for span in self._spans(min(size, PIECE_ROWS)))
            return
        if not self._kept:
            self._kept.append(self._columns(0, len(self)))
        yield from self._kept

    def _spans(self, size: int) -> Iterator[tuple[int, int]]:
        """First row and end of each piece."""
        for start in range(0, len(self), size):
            yield start, min(start + size, len(self))

    def _places(self, start: int, stop: int) -> tuple[IntArray, IntArray, IntArray]:
        law, k, context = np.unravel_index(np.arange(start, stop), self.shape)
        return law, k, context

    def _set_ups(self, start: int, stop: int) -> SetUps:
        law, k, context = self._places(start, stop)
        lengths = self.acceptance.lengths(self.k, self.context, _span(law))
        widths, passes = self.acceptance.widths(self.k), self.acceptance.draft_passes(self.k)
        return SetUps(
            source=self.source,
            length=lengths[law - law[0], k, context],
            k=self.k[k],
            width=widths[law if len(widths) > 1 else 0, k],
            passes=passes[law if len(passes) > 1 else 0, k],
            context=self.context[context],
        )

    def _columns(self, start: int, stop: int) -> Columns:
        law, k, _ = self._places(start, stop)
        rows = self._set_ups(start, stop)
        ridge = np.full(stop - start, self.source.ridge_tokens)
        critical = critical_contexts(self.acceptance, self.k, self.source, _span(law))
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
            **self._winning(rows, speculative, start),
            "critical_context": critical[law - law[0], k],
            "max_batch": plain,
            "max_batch_speculative": speculative,
            **self._breakevens(rows),
        }

    def _winning(self, rows: SetUps, held: FloatArray, done: int) -> Columns:
        """The winning batches of each row, and the break-even batch where there is one."""
        found = rows.winning(self.max_batch, self._counter(done))
        edges = [rows.breakeven_batch(each, self.max_batch, bound) for bound, each in enumerate(found)]
        unknown: list[None] = [None] * rows.k.size
        within = [
            None if math.isnan(limit) else _listed(clipped(each, limit))
            for each, limit in zip(found[0], held.tolist(), strict=True)
        ]
        words = [np.array([wins(one, self.max_batch) for one in each]) for each in found]
        ranged = len(found) > 1
        low, high = _edge_range(edges[1:], words[1:]) if ranged else (unknown, unknown)
        return {
            "wins": words[0].tolist(),
            "breakeven_batch": edges[0],
            "breakeven_batch_low": low,
            "breakeven_batch_high": high,
            "winning_batches": [_listed(each) for each in found[0]],
            "winning_batches_low": [_listed(each) for each in found[2]] if ranged else unknown,
            "winning_batches_high": [_listed(each) for each in found[1]] if ranged else unknown,
            "winning_batches_in_memory": within,
        }

    def _counter(self, done: int) -> Callable[[int], None]:
        """Counts rows on from `done` for whoever watches."""
        watch, total = self.progress, len(self)
        if watch is None:
            return lambda _: None
        count = itertools.count(done + 1)
        return lambda _: watch(next(count), total)

    def _breakevens(self, rows: SetUps) -> Columns:
        """What each of α, E, c and v would have to be for S = 1 at this batch, the others as they are."""
        cost, length, k = rows.step_cost(self.batch), rows.length, rows.k
        needed, *bounds = rows.steps(self.batch)
        least, most = bounds or (np.nan, np.nan)
        passes = np.broadcast_to(cost.draft_passes, k.shape)
        each = np.where(passes > 0, passes, np.nan)
        ratios = {"verify_cost": cost.verify_cost, "overhead": cost.overhead}
        ratios["draft_cost"] = cost.draft_cost * passes / k  # spread over k where one pass drafts them all
        one_alpha = (rows.width == k + 1) & (self.source.match_rate == 1)  # trees and lookups have none
        return {
            "batch": np.full(k.size, self.batch),
            "speedup": length / needed,
            "speedup_low": length / most,
            "speedup_high": length / least,
            "breakeven_alpha": np.where(one_alpha, breakeven_alpha(k, **ratios), np.nan),
            "breakeven_acceptance_length": needed,
            "breakeven_draft_cost": (length - cost.verify_cost - cost.overhead) / each,
            "breakeven_verify_cost": length - cost.draft_cost * passes - cost.overhead,
        }


def _edge_range(
    edges: Sequence[FloatArray], words: Sequence[npt.NDArray[np.str_]]
) -> tuple[FloatArray, FloatArray]:
    """The lower and the higher break-even batch of the cheapest and the dearest step; NaN where one is none.

    Below its break-even batch a dearer step wins up to a lower one, above it from a higher one on.
    """
    (cheap, dear), (at_best, at_worst) = edges, words
    low = np.where(at_worst == "below", dear, np.where(at_best == "above", cheap, np.nan))
    high = np.where(at_best == "below", cheap, np.where(at_worst == "above", dear, np.nan))
    return low, high


def _span(places: IntArray) -> slice:
    """From the first to the last of some rising places."""
    return slice(int(places[0]), int(places[-1]) + 1)


def _listed(intervals: Intervals) -> list[Cell]:
    return [list(pair) for pair in intervals]
