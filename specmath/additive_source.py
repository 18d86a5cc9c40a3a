"""The linear constants of a fitted machine as a source of step times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from specmath.additive import AdditiveCost, critical_context
from specmath.checks import FloatArray, require_count, require_range
from specmath.results import Advice, Cell
from specmath.sources import StepCost, unknown_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Additive:
    """Step costs of linear terms in seconds, as fitted to a machine.

    Attributes:
        cost: The constants.
        name: What they were fitted to, for verdicts and inputs.
    """

    cost: AdditiveCost
    name: str

    case: ClassVar[str] = "additive"
    warnings: ClassVar[tuple[Advice, ...]] = ()
    ridge_tokens: ClassVar[float] = float("nan")
    match_rate: ClassVar[float] = 1.0
    max_k: ClassVar[int | None] = None

    @property
    def basis(self) -> str:
        return f"by the additive costs of {self.name}"

    @property
    def inputs(self) -> Mapping[str, Cell]:
        constants: dict[str, Cell] = {
            field.name: getattr(self.cost, field.name) for field in fields(self.cost)
        }
        return {"costs": self.name} | constants

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ("a pass is linear in its tokens and cached tokens: no kernel switches, memory not checked",)

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
        verified = drafts + 1 if width is None else require_range("width", width, 1)
        cost, plain_s = self.cost, np.asarray(self.cost.plain_step_s(batch, context))
        sequences = np.asarray(batch, dtype=float)
        cached = sequences * np.asarray(context, dtype=float)
        draft_s = (
            cost.draft_fixed_s + cost.draft_s_per_sequence * sequences + cost.draft_kv_s_per_token * cached
        )
        reads = 1 + cost.kv_reread * (verified - 1)
        verify_s = (
            cost.weights_s
            + cost.kv_s_per_token * cached * reads
            + cost.compute_s_per_token * sequences * verified
        )
        return StepCost(
            plain_s=plain_s,
            draft_cost=draft_s / plain_s,
            draft_passes=drafts if passes is None else require_range("passes", passes, 0),
            verify_cost=verify_s / plain_s,
            overhead=cost.overhead_s / plain_s,
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

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        return np.asarray(critical_context(self.cost, acceptance_length, k))

    def derivation(self, k: int, batch: int, context: float, *, width: int, passes: int) -> tuple[str, ...]:
        cost = self.step_cost(k, batch, context, width=width, passes=passes)
        return (
            f"T_AR = {float(cost.plain_s):.6g} s; v = {float(cost.verify_cost):.4f}, "
            f"c = {float(cost.draft_cost):.4f}, o = {float(cost.overhead):.4f}: "
            f"R = {float(cost.in_plain_steps):.4f} plain steps",
        )
