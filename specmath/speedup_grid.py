"""Part of a grid of speed-ups, evaluated: small tables of lengths and step costs, and look-ups in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, IntArray
from specmath.results import Columns
from specmath.sources import StepTimeSource

if TYPE_CHECKING:
    from specmath.forecast import SpeedupTable


class GridBox:
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
        tried = np.arange(self.table.best_k_limit + 1)
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
