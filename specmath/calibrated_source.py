"""A calibrated machine as a source of step times: its table inside the measured range, its laws outside."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from specmath.additive import AdditiveCost, critical_context
from specmath.anchor_distance import DRIFT
from specmath.calibration_limits import (
    beyond_the_model,
    contradiction_advice,
    corner_advice,
    flag_advice,
    held_batches,
    log_half_width,
    outside_advice,
    padding_advice,
    range_text,
)
from specmath.calibrations import Calibration, Cell
from specmath.checks import FloatArray, require_count, require_range
from specmath.errors import InputError
from specmath.measured_passes import MeasuredPasses
from specmath.results import Advice, Cell as Value
from specmath.sources import StepCost
from specmath.units import format_quantity

_TARGET, _DRAFT, _PLAIN, _STEP = "target", "draft", "plain-host", "step-host"


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """Step costs by the passes that were timed on one machine.

        T_AR = T(B, 1, C) + o_ar        step = chain(k) + T(B, width, C) + o_sd

    Each part is its law, times what the law missed at the cells around; outside the measured range the
    correction of the nearest cells is kept. A lookup draft verifies 1 + h·k tokens of a sequence on average,
    alone in the pass it matches or not; its search runs either way.

    Attributes:
        calibration: What was measured.
        name: Where it stands, for verdicts (`h100.yaml`).
        hardware: Name of the machine in the catalogue; empty for the name that it has of itself.
        asked_contexts: First and last context that a question asks for, to warn beyond the measured ones.
        notes: Warnings of whoever read it.
        taken: What else a question took from it, as sentences.
    """

    calibration: Calibration
    name: str = "the calibration"
    hardware: str = ""
    asked_contexts: tuple[float, float] | None = None
    notes: tuple[Advice, ...] = ()
    taken: tuple[str, ...] = ()

    case: ClassVar[str] = "calibrated"
    max_k: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        if self._tables[_TARGET] is None:
            raise InputError("cells", "hold no pass of the target; calibrate it")

    @property
    def basis(self) -> str:
        return f"by the calibration {self.name}"

    @property
    def match_rate(self) -> float:
        """Share of steps in which a lookup draft finds a match; 1 for a draft model."""
        return self.calibration.match_rate if self.is_lookup else 1.0

    @property
    def is_lookup(self) -> bool:
        """Whether drafts are looked up."""
        return self.calibration.method == "ngram"

    @property
    def device(self) -> str:
        """What the machine calls itself."""
        return str(self.calibration.machine.get("device", "")) or "a machine"

    @property
    def inputs(self) -> Mapping[str, Value]:
        known = self.calibration
        return {
            "calibration": self.name,
            "hardware": self.hardware or self.device,
            "target": known.target,
            "draft": known.draft,
            "method": known.method,
            "regime": known.regime,
            "dtype": known.dtype,
            "match_rate": self.match_rate if self.match_rate < 1 else None,
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        known = self.calibration
        when = f" on {known.created[:10]}" if known.created else ""
        parts = {cell.place.part for cell in known.cells}
        unknown = [one for one in (_DRAFT, _PLAIN, _STEP) if one not in parts and not self._is_free(one)]
        return (
            f"calibrated: {len(known.cells)} cells of {known.target} and {known.draft} timed{when} on "
            f"{self.device}, {known.regime}, {known.dtype}, static cache: {self._sizes_text}",
            *self.taken,
            range_text(known),
            "between cells the law is corrected by what it missed at the cells around, outside by that of "
            "the nearest",
            *((f"not timed apart, by the law alone: {', '.join(unknown)}",) if unknown else ()),
            *self._tree_text,
        )

    @property
    def _sizes_text(self) -> str:
        told = zip(("batch", "tokens of each", "context"), range(3), strict=True)
        spans = ((name, *self._target.span(axis)) for name, axis in told)
        return ", ".join(
            f"{name} {low:g}" + (f" to {high:g}" if high > low else "") for name, low, high in spans
        )

    @property
    def _tree_text(self) -> tuple[str, ...]:
        if self.is_lookup:
            return ("a shared pass is timed at its mean width 1 + h·k, not over which sequences match",)
        return ("each draft pass carries one token of a sequence, of a tree too",)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        known = self.calibration
        beyond = outside_advice(known, self._target, context=self.asked_contexts)
        longer = beyond_the_model(known, self.asked_contexts)
        return (*self.notes, *known.warnings, *flag_advice(known), *longer, *beyond)

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """Draft lengths that were timed: of the drafter, else by what the target verified."""
        drafter = self._tables[_DRAFT]
        if drafter is not None and not self.is_lookup:
            return tuple(drafter.values(1))
        return tuple(width - 1 for width in self._target.values(1) if width > 1)

    def asked(self, context: npt.ArrayLike) -> Calibrated:
        """The same source, which warns where one of these contexts is outside the measured ones."""
        contexts = require_range("context", context, 0)
        return replace(self, asked_contexts=(float(contexts.min()), float(contexts.max())))

    def tried_up_to(self, batch: int) -> Calibrated:
        """The same source, which says where batches up to this one go beyond the measured ones."""
        largest = self._target.span(0)[1]
        if batch <= largest:
            return self
        beyond = Advice(
            code="outside-the-calibration",
            text=f"batches above {largest:,.0f} were not timed: what is said of them is the law's, and the "
            "range is wider there",
            remedy="calibrate at such a --batch too",
        )
        return replace(self, notes=(*self.notes, beyond))

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
        tokens = drafts + 1 if width is None else require_range("width", width, 1)
        runs = drafts if passes is None else require_count("passes", passes).astype(float)
        sequences, cached = require_range("batch", batch, 1), require_range("context", context, 0)
        one = np.ones(())
        plain_host_s = self._host_s(_PLAIN, sequences, one, cached)
        plain_s = self._target_s(sequences, one, cached) + plain_host_s
        step_host_s = np.where(tokens > 1, self._host_s(_STEP, sequences, tokens, cached), plain_host_s)
        return StepCost(
            plain_s=plain_s,
            draft_cost=self._draft_pass_s(sequences, runs, cached) / plain_s,
            draft_passes=runs,
            verify_cost=self._verify_s(sequences, tokens, cached) / plain_s,
            overhead=step_host_s / plain_s,
        )

    def _verify_s(self, batch: FloatArray, width: FloatArray, context: FloatArray) -> FloatArray:
        """Mean seconds of the pass that verifies `width` tokens of a sequence with something to verify."""
        h = self.match_rate
        matched = self._target_s(batch, width, context)
        if h == 1:
            return matched
        alone = h * matched + (1 - h) * self._target_s(batch, np.ones(()), context)
        return np.where(batch == 1, alone, self._target_s(batch, 1 + h * (width - 1), context))

    def _target_s(self, batch: FloatArray, width: FloatArray, context: FloatArray) -> FloatArray:
        law_s = self.calibration.target_law.pass_s(batch, width, context)
        return self._target.corrected(law_s, batch, width, context)

    def _draft_pass_s(self, batch: FloatArray, passes: FloatArray, context: FloatArray) -> FloatArray:
        """Seconds of the chain over its passes; of one pass where none is run."""
        chain = np.maximum(passes, 1)
        law_s = self.calibration.draft_law.chain_s(chain, batch, context)
        table = self._tables[_DRAFT]
        chain_s = np.asarray(law_s) if table is None else table.corrected(law_s, batch, chain, context)
        return np.asarray(chain_s / chain)

    def _host_s(self, part: str, batch: FloatArray, width: FloatArray, context: FloatArray) -> FloatArray:
        law = self.calibration.plain_host if part == _PLAIN else self.calibration.step_host
        table, law_s = self._tables[part], np.asarray(law.host_s(batch, width))
        return law_s if table is None else table.corrected(law_s, batch, width, context)

    @property
    def _target(self) -> MeasuredPasses:
        table = self._tables[_TARGET]
        assert table is not None  # checked when made
        return table

    @cached_property
    def _tables(self) -> dict[str, MeasuredPasses | None]:
        """The cells of each part beside its law."""
        known, found = self.calibration, {}
        for part in (_TARGET, _DRAFT, _PLAIN, _STEP):
            cells = [cell for cell in known.cells if cell.place.part == part]
            found[part] = MeasuredPasses.beside(cells, self._law_s(part, cells)) if cells else None
        return found

    def _law_s(self, part: str, cells: list[Cell]) -> FloatArray:
        sizes = np.array([(cell.place.batch, cell.place.width, cell.place.context) for cell in cells])
        return self.calibration.law_s(part, *sizes.T)

    def _is_free(self, part: str) -> bool:
        """Whether a part takes no time at all by its law."""
        known = self.calibration
        one_s = {
            _DRAFT: known.draft_law.chain_s(1, 1, 1),
            _PLAIN: known.plain_host.host_s(1, 1),
            _STEP: known.step_host.host_s(1, 2),
        }
        return one_s[part] == 0

    @cached_property
    def _log_half_width(self) -> float:
        return log_half_width(self.calibration)

    def step_bounds(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """R divided and multiplied by a factor that grows with the distance from what was measured.

        Where measured it is `log_half_width`.
        """
        cost = self.step_cost(k, batch, context, width=width, passes=passes)
        steps, drafts = cost.in_plain_steps, np.asarray(k, dtype=float)
        tokens = drafts + 1 if width is None else np.asarray(width, dtype=float)
        runs = drafts if passes is None else np.asarray(passes, dtype=float)
        away = self._target.doublings_outside(batch, tokens, context)
        table = self._tables[_DRAFT]
        if table is not None:
            away = np.maximum(away, table.doublings_outside(batch, np.maximum(runs, 1), context))
        spread = np.sqrt(self._log_half_width**2 + DRIFT**2 * away)
        spread = np.where((tokens > 1) | (runs > 0), spread, 0.0)  # a plain step is a plain step
        return np.asarray(steps * np.exp(-spread)), np.asarray(steps * np.exp(spread))

    def warnings_at(self, k: int, batch: npt.ArrayLike, undecided: int) -> tuple[Advice, ...]:
        """Where these batches and this k leave the measured range, or the captured graphs."""
        known, tokens = self.calibration, [1, k + 1]
        found = [*outside_advice(known, self._target, batch=batch, tokens=tokens)]
        if self.asked_contexts is not None:
            found += corner_advice(known, self._target, batch, self.asked_contexts)
        found += padding_advice(known, float(np.max(batch)) * (k + 1))
        context = 0.0 if self.asked_contexts is None else self.asked_contexts[0]
        steps = self.step_cost(k, batch, context).in_plain_steps
        return (*found, *contradiction_advice(steps, k, batch))

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        return held_batches(self.calibration, k, context)

    @property
    def ridge_tokens(self) -> float:
        """Tokens in a pass of the target whose computing takes as long as reading the weights, w/τ."""
        law = self.calibration.target_law
        weights_s, token_s = law.weights_s + law.experts_s, law.compute_s_per_token
        return weights_s / token_s if token_s and weights_s else math.nan

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        """In closed form by the laws alone, where they are sums of straight lines; else NaN."""
        cost = self._straight_lines
        if cost is None:
            return np.full(np.broadcast_shapes(np.shape(acceptance_length), np.shape(k)), np.nan)
        return np.asarray(critical_context(cost, acceptance_length, k))

    @property
    def _straight_lines(self) -> AdditiveCost | None:
        """The laws as a sum of straight lines; None where one bends or the host grows with the batch."""
        known = self.calibration
        law, draft, hosts = known.target_law, known.draft_law, (known.plain_host, known.step_host)
        bends = law.sharpness > 1 or law.experts_s > 0 or not law.weights_s + law.fixed_s
        if bends or any(host.s_per_sequence or host.s_per_token for host in hosts):
            return None
        return AdditiveCost(
            weights_s=law.weights_s + law.fixed_s,
            kv_s_per_token=law.kv_s_per_token,
            compute_s_per_token=law.compute_s_per_token,
            kv_reread=law.kv_reread,
            draft_fixed_s=draft.fixed_s,
            draft_s_per_sequence=draft.s_per_sequence,
            draft_kv_s_per_token=draft.kv_s_per_token,
            overhead_s=known.step_host.fixed_s + draft.round_s,
            plain_overhead_s=known.plain_host.fixed_s,
        )

    def derivation(self, k: int, batch: int, context: float, *, width: int, passes: int) -> tuple[str, ...]:
        cost = self.step_cost(k, batch, context, width=width, passes=passes)
        least, most = self.step_bounds(k, batch, context, width=width, passes=passes)
        target, (v, c, o) = self._target, map(float, (cost.verify_cost, cost.draft_cost, cost.overhead))
        away = float(target.doublings_outside(batch, width, context))
        measured = (batch, width, context) in target.places
        where = "timed" if measured else "between timed cells" if away == 0 else "outside the timed cells"
        steps, verify = float(cost.in_plain_steps), format_quantity(v * float(cost.plain_s), "s")
        return (
            f"T_AR = {format_quantity(float(cost.plain_s), 's')} at batch {batch}, context {context:g}",
            f"verification of {width} tokens of each: {verify}, {where}",
            f"v = {v:.4f}, c = {c:.4f}, o = {o:.4g}: R = v + c·{passes} + o = {steps:.4f} plain steps",
            f"R lies between {float(least):.4f} and {float(most):.4f}: {range_text(self.calibration)}",
        )
