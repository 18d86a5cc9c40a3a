"""Time of a step that decodes a batch and carries a chunk of prefill with it.

Chunked prefill puts prompt tokens into the same pass of the target as the tokens that are decoded:

    T(B, p, k) = step of k at batch B and the mean context + T₀(B·q + p) − T₀(B·q) + (attention + draft)·p

T₀(t) is a pass of the target over t tokens with an empty cache, q the tokens of a decoding sequence in it:
prompt tokens read no cache but their own. Attention is what a prompt token spends on the keys before it,
draft the drafter's own pass over the prompt.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, Numbers, like_inputs, require_count
from specmath.laws import AcceptanceLaw
from specmath.sources import BatchSource

WHOLE_BATCHES = 128
"""Batches up to which each is tabulated; beyond, knots are a few per cent apart."""
KNOT_GROWTH = 1 / 32
PREFILL_CELLS = 64
"""Cells into which the prefill tokens of a step are divided, times are straight within one."""


End = Literal["typical", "cheapest", "dearest"]
"""Which end of a source's range of step costs."""


class StepTimes(Protocol):
    """Seconds of a mixed step at the context that the times were made for."""

    def step_s(self, batch: npt.ArrayLike, prefill_tokens: npt.ArrayLike, k: int) -> Numbers:
        """Seconds of a step of `batch` decoding sequences that draft k, with prefill tokens beside them.

        Batch 0 is a pass of prefill alone. Nothing at all is no step, and not asked for.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCosts:
    """What prompt tokens cost, beside what rides in the pass for nothing.

    Attributes:
        pass_s: Seconds of a pass of the target over that many tokens with an empty cache, the host's with it.
        attention_s: Seconds that a prompt token spends on the keys before it, a mean over the prompt.
        draft_s: Seconds of the drafter for a prompt token.
        assumptions: What these assume.
    """

    pass_s: Callable[[FloatArray], FloatArray]
    attention_s: float = 0.0
    draft_s: float = 0.0
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedSteps:
    """Step times straight from a source.

    Attributes:
        source: Step times that depend on the batch.
        prompts: What prompt tokens cost.
        law: How wide a verification pass of k is, and how many draft passes it takes.
        context: Mean tokens in the cache of a decoding sequence.
        drafter_loaded: Whether the engine may draft in other steps, so that every prompt passes through the
            drafter and k = 0 is not off.
        zero_tier_cost: What a step of k = 0 costs such an engine beyond a plain one, in plain steps.
        end: The step of the source itself, or the least or most that it may be; of a step that drafts.
    """

    source: BatchSource
    prompts: PromptCosts
    law: AcceptanceLaw
    context: float
    drafter_loaded: bool = False
    zero_tier_cost: float = 0.0
    end: End = "typical"

    def step_s(self, batch: npt.ArrayLike, prefill_tokens: npt.ArrayLike, k: int) -> Numbers:
        """Seconds of a mixed step; see `StepTimes`."""
        return self.narrow_step_s(batch, prefill_tokens, k, width=None)

    def narrow_step_s(
        self, batch: npt.ArrayLike, prefill_tokens: npt.ArrayLike, k: int, *, width: npt.ArrayLike | None
    ) -> Numbers:
        """The same where a pass verifies `width` tokens of a sequence, not all that were drafted."""
        verified = np.asarray(self.law.width(k) if width is None else width, dtype=float)
        sequences, prompt, verified = np.broadcast_arrays(
            np.asarray(batch, dtype=float), np.asarray(prefill_tokens, dtype=float), verified
        )
        # A lookup carries more than one token of a sequence only where it found a match.
        carried = sequences * (1 + self.source.match_rate * (verified - 1))
        alone = self.prompts.pass_s(np.maximum(carried, 1.0))
        together = self.prompts.pass_s(np.maximum(carried + prompt, 1.0))
        decoding = sequences > 0
        step = np.where(decoding, self._decoding_s(np.maximum(sequences, 1.0), k, verified), 0.0)
        own = self.prompts.attention_s + (self.prompts.draft_s if k > 0 or self.drafter_loaded else 0.0)
        added = np.where(decoding, np.maximum(together - alone, 0.0), together) + own * prompt
        return like_inputs(step + np.where(prompt > 0, added, 0.0))

    def _decoding_s(self, batch: FloatArray, k: int, width: FloatArray) -> FloatArray:
        """Seconds of the step without prefill."""
        whole, passes = float(self.law.width(k)), int(self.law.draft_passes(k))
        cost = self.source.step_cost(k, batch, self.context, width=whole, passes=passes)
        if k == 0:
            return np.asarray(cost.plain_s * (1 + self.zero_tier_cost * self.drafter_loaded))
        verify = cost.verify_cost
        if np.any(width != whole):
            verify = self.source.step_cost(k, batch, self.context, width=width, passes=passes).verify_cost
        steps = verify + cost.draft_cost * cost.draft_passes + cost.overhead
        return np.asarray(cost.plain_s * steps * self._share_of_end(cost.in_plain_steps, k, batch))

    def _share_of_end(self, typical: FloatArray, k: int, batch: FloatArray) -> FloatArray:
        """The end of the range over its typical value; 1 where the source knows no range."""
        if self.end == "typical":
            return np.ones(())
        sequences = np.unique(batch)
        shape = {"width": int(self.law.width(k)), "passes": int(self.law.draft_passes(k))}
        bounds = self.source.step_bounds(k, sequences, self.context, **shape)
        if bounds is None:
            return np.ones(())
        end = np.broadcast_to(bounds[0 if self.end == "cheapest" else 1], sequences.shape)
        return np.asarray(end[np.searchsorted(sequences, batch)] / typical)


def batch_knots(max_batch: int) -> FloatArray:
    """Batches that are tabulated: 0, every one to `WHOLE_BATCHES`, then a few per cent apart, and the last.

    >>> batch_knots(3).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    top = int(require_count("max_batch", max_batch, 1))
    knots = list(range(min(top, WHOLE_BATCHES) + 1))
    while knots[-1] < top:
        knots.append(min(top, knots[-1] + max(1, int(knots[-1] * KNOT_GROWTH))))
    return np.array(knots, dtype=float)


def prefill_knots(chunk_tokens: int) -> FloatArray:
    """Prefill tokens that are tabulated, equally spaced from 0 to a full chunk.

    >>> prefill_knots(2).tolist()
    [0.0, 1.0, 2.0]
    """
    return np.linspace(0, chunk_tokens, min(PREFILL_CELLS, chunk_tokens) + 1)


def tabulated(times: StepTimes, ks: Sequence[int], *, max_batch: int, chunk_tokens: int) -> TabulatedSteps:
    """The step times as a table, for look-ups in a hot loop.

    Args:
        times: The step times.
        ks: Draft lengths that will be asked for.
        max_batch: Largest batch that will be asked for, at least 1.
        chunk_tokens: Most prefill tokens of a step, at least 1.
    """
    knots = batch_knots(max_batch)
    chunk = int(require_count("chunk_tokens", chunk_tokens, 1))
    across = prefill_knots(chunk)
    prompt = np.broadcast_to(across, (knots.size, across.size)).copy()
    prompt[0] = np.maximum(prompt[0], 1)  # a pass without decoding has a token at least
    tables = {k: np.asarray(times.step_s(knots[:, None], prompt, k)) for k in sorted(set(ks))}
    return TabulatedSteps(batches=knots, chunk_tokens=chunk, tables=tables)


@dataclass(frozen=True, slots=True, kw_only=True)
class TabulatedSteps:
    """Step times straight between the knots of a table.

    Attributes:
        batches: Batches of the knots, rising from 0.
        chunk_tokens: Most prefill tokens of a step.
        tables: Seconds by k: a row for each batch, a column for each of equally spaced prefill tokens.

    `fast_step_s` takes plain numbers inside the table and checks nothing.
    """

    batches: FloatArray
    chunk_tokens: int
    tables: dict[int, FloatArray]
    _rows: dict[int, list[list[float]]] = field(init=False, repr=False)
    _knots: list[float] = field(init=False, repr=False)
    _cell: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        columns = next(iter(self.tables.values())).shape[1]
        object.__setattr__(self, "_rows", {k: table.tolist() for k, table in self.tables.items()})
        object.__setattr__(self, "_knots", self.batches.tolist())
        object.__setattr__(self, "_cell", self.chunk_tokens / (columns - 1))

    @property
    def max_batch(self) -> int:
        """Largest batch of the table."""
        return int(self.batches[-1])

    def fast_step_s(self, batch: int, prefill_tokens: float, k: int) -> float:
        """Seconds of a step, for one whole batch within the table."""
        rows, knots = self._rows[k], self._knots
        if batch < WHOLE_BATCHES or knots[-1] <= WHOLE_BATCHES:
            row, share = rows[batch], 0.0
        else:
            place = min(bisect_right(knots, batch), len(knots) - 1) - 1
            row, share = rows[place], (batch - knots[place]) / (knots[place + 1] - knots[place])
        if not prefill_tokens:
            return row[0] if not share else row[0] + share * (rows[place + 1][0] - row[0])
        cell = prefill_tokens / self._cell
        column = min(int(cell), len(row) - 2)
        part = cell - column
        seconds = row[column] + part * (row[column + 1] - row[column])
        if share:
            above = rows[place + 1]
            seconds += share * (above[column] + part * (above[column + 1] - above[column]) - seconds)
        return seconds

    def step_s(self, batch: npt.ArrayLike, prefill_tokens: npt.ArrayLike, k: int) -> Numbers:
        """Seconds of mixed steps; batches and prefill tokens beyond the table are those of its end."""
        table = self.tables[k]
        sequences = np.clip(np.asarray(batch, dtype=float), 0, self.batches[-1])
        above = np.clip(np.searchsorted(self.batches, sequences, side="right"), 1, self.batches.size - 1)
        low, high = self.batches[above - 1], self.batches[above]
        share = (sequences - low) / (high - low)
        cell = np.clip(np.asarray(prefill_tokens, dtype=float), 0, self.chunk_tokens) / self._cell
        column = np.minimum(cell.astype(np.int64), table.shape[1] - 2)
        part = cell - column
        lower = table[above - 1, column] * (1 - part) + table[above - 1, column + 1] * part
        upper = table[above, column] * (1 - part) + table[above, column + 1] * part
        return like_inputs(lower * (1 - share) + upper * share)
