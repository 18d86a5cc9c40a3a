"""From which context on does a large batch win? For any source of step times, by its step costs alone."""

from __future__ import annotations

from typing import Final

import numpy as np

from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import FloatArray, IntArray
from specmath.errors import InputError
from specmath.sources import BatchSource

LARGE_BATCH: Final = 1e12
"""Sequences at which weights and fixed times no longer count: the limit of large batch."""
CONTEXT_LIMIT: Final = 10_000_000
"""Longest context tried, in tokens."""
_GRID: Final = np.concatenate([[0.0], np.geomspace(1, CONTEXT_LIMIT, 141)])  # 20 points a decade
_BISECTIONS: Final = 45  # a step of the grid down to rounding


def critical_contexts(
    acceptance: AcceptanceAxis, k: IntArray, source: BatchSource, laws: slice = slice(None)
) -> FloatArray:
    """Least context from which on speculation wins however large the batch, shape (laws, k).

    E(C) > R(k, B, C) for B → ∞ and all C from there to the longest context that is tried, or to which the
    acceptance was measured. Contexts are scanned, since the answer may come and go with a window layer or
    a fading acceptance, and the last change is bisected. A source's own closed form is taken where it has
    one, of a chain whose acceptance does not fade. What memory holds plays no part.

    Returns:
        Tokens; 0 where every context wins, NaN where none does or the source knows no context.
    """
    scan = _Scan(acceptance, k, source, laws)
    closed = scan.closed_form()
    if np.isfinite(closed).all():
        return closed
    try:
        return np.where(np.isfinite(closed), closed, scan.critical())
    except InputError:  # a model known by its counts alone has no cache
        return closed


class _Scan:
    """The laws and draft lengths of a grid, read at the same or at each its own context."""

    def __init__(self, acceptance: AcceptanceAxis, k: IntArray, source: BatchSource, laws: slice) -> None:
        self.k, self.source = k, source
        self.lengths = acceptance.lengths(k, _GRID, laws)
        self.laws = [acceptance.law(place) for place in range(len(acceptance))[laws]]
        self.covered = np.array([law.covers(_GRID) for law in self.laws])
        self.fades = bool((self.lengths != self.lengths[..., :1]).any())
        widths, passes = acceptance.widths(k, laws), acceptance.draft_passes(k, laws)
        self.width, self.passes = widths[..., None], passes[..., None]

    def closed_form(self) -> FloatArray:
        """The source's own answer; NaN where it has none."""
        lengths = self.lengths[..., 0]
        chain = (self.width[..., 0] == self.k + 1) & (self.passes[..., 0] == self.k)
        known = chain & (self.source.match_rate == 1) & (not self.fades)
        return np.where(known, self.source.critical_context(lengths, self.k), np.nan)

    def critical(self) -> FloatArray:
        """The last context at which a change of the answer is seen, bisected."""
        loses = ~np.asarray(self.lengths > self._steps(_GRID)) & self.covered[:, None]
        last_covered = _GRID.size - 1 - np.argmax(self.covered[:, ::-1], axis=1)[:, None]
        last_loss = np.where(loses.any(axis=2), _GRID.size - 1 - np.argmax(loses[..., ::-1], axis=2), -1)
        known = np.any(self.covered, axis=1, keepdims=True) & (last_loss < last_covered)
        first = _GRID[np.argmax(self.covered, axis=1)][:, None]
        bracketed = known & (last_loss >= 0)
        losing = _GRID[np.where(bracketed, last_loss, 0)]
        winning = _GRID[np.where(bracketed, last_loss + 1, 1)]
        for _ in range(_BISECTIONS):
            middle = (losing + winning) / 2
            pays = self._lengths_at(middle) > self._steps(middle[..., None])[..., 0]
            losing, winning = np.where(pays, losing, middle), np.where(pays, middle, winning)
        return np.where(bracketed, winning, np.where(known, first, np.nan))

    def _steps(self, context: FloatArray) -> FloatArray:
        """R at a large batch, shape (laws or 1, k, contexts)."""
        cost = self.source.step_cost(
            self.k[:, None], LARGE_BATCH, context, width=self.width, passes=self.passes
        )
        return cost.in_plain_steps

    def _lengths_at(self, context: FloatArray) -> FloatArray:
        """E of each law and k at a context of its own, shape (laws, k)."""
        if not self.fades:
            return self.lengths[..., 0]
        pairs = zip(self.laws, context, strict=True)
        return np.array([law.at(row).acceptance_length(self.k) for law, row in pairs])
