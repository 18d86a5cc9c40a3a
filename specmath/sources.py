"""Step-time sources: what a plain and a speculative step cost, as functions of k, batch and context.

A source answers one question, `step_cost(k, batch, context)`. *Ratios* are typed by the user and know
neither batch nor seconds; the *roofline* takes a model pair on an accelerator. Every question works on
`StepCost`, whichever source it came from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from specmath.accelerator import DTYPE_BYTES, Accelerator
from specmath.breakevens import ridge_tokens
from specmath.checks import FloatArray, require_count, require_range
from specmath.errors import InputError
from specmath.model import ModelCounts
from specmath.results import Advice, Cell
from specmath.roofline import DeviceRates, counts_pass_time
from specmath.units import format_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCost:
    """Cost of one speculative step beside one plain step; all arrays of one broadcast shape.

    Attributes:
        plain_s: Seconds of one plain decoding step, T_AR; NaN where the source knows ratios only.
        draft_cost: One draft pass in plain steps, c.
        draft_passes: Draft passes per step: k for sequential drafters, 1 for one-pass drafters.
        verify_cost: The verification pass in plain steps, v.
        overhead: What else a speculative step takes, in plain steps, o.
    """

    plain_s: FloatArray
    draft_cost: FloatArray
    draft_passes: FloatArray
    verify_cost: FloatArray
    overhead: FloatArray

    @property
    def in_plain_steps(self) -> FloatArray:
        """R = v + c · passes + o: the step in plain steps, and the acceptance length that breaks even."""
        return self.verify_cost + self.draft_cost * self.draft_passes + self.overhead


class StepTimeSource(Protocol):
    """What every source of step times offers."""

    @property
    def case(self) -> str:
        """Name of the source in the `case` column."""

    @property
    def basis(self) -> str:
        """Where the numbers come from, as the end of a verdict."""

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """What was given, in base units."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the step costs assume, the most important first."""

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """What a reader must know before using them."""

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
    ) -> StepCost:
        """Cost of a step at draft length k, batch and context; the arguments broadcast.

        `width` is how many tokens of a sequence the verification pass carries: k + 1 for a chain, more for
        a tree of k levels.
        """

    def derivation(self, k: int, batch: int, context: float) -> tuple[str, ...]:
        """The step cost of one cell, with its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratios:
    """Step costs typed as ratios to the plain step, the textbook's way: v(k) = verify_cost + verify_slope·k.

    Attributes:
        draft_cost: One draft pass in plain steps, c, at least 0.
        verify_cost: v at k = 0, above 0; v itself where `verify_slope` is 0.
        verify_slope: What v gains per draft token, at least 0.
        overhead: What else a speculative step takes, in plain steps, o, at least 0.
        match_rate: Share h of steps in which a lookup draft finds a match; 1 for all other drafts. A step
            without a match is a plain step, so the pass costs h·v + 1 − h on average (batch 1).

    >>> source = Ratios(draft_cost=0.05, verify_slope=0.1)
    >>> round(float(source.step_cost(4, 1, 0).in_plain_steps), 12)  # 1 + 4·0.1 + 4·0.05
    1.6
    """

    draft_cost: float
    verify_cost: float = 1.0
    verify_slope: float = 0.0
    overhead: float = 0.0
    match_rate: float = 1.0

    case: ClassVar[str] = "ratios"
    basis: ClassVar[str] = "from the ratios given"
    warnings: ClassVar[tuple[Advice, ...]] = ()

    def __post_init__(self) -> None:
        for name in ("draft_cost", "verify_slope", "overhead"):
            require_range(name, getattr(self, name), 0)
        require_range("verify_cost", self.verify_cost, above=0)
        require_range("match_rate", self.match_rate, 0, 1)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        names = ("draft_cost", "verify_cost", "verify_slope", "overhead")
        return {name: getattr(self, name) for name in names} | {
            "match_rate": self.match_rate if self.match_rate < 1 else None
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"ratios as given, in plain steps: c = {self.draft_cost:g}, {self._verify_text}, "
            f"o = {self.overhead:g}; whether they hold at your batch and context is not checked",
        )

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
    ) -> StepCost:
        k_array, *_ = _broadcast(k, batch, context, width)
        verify = self.verify_cost + self.verify_slope * k_array
        return StepCost(
            plain_s=np.full(k_array.shape, np.nan),
            draft_cost=np.full(k_array.shape, self.draft_cost),
            draft_passes=k_array,
            verify_cost=self.match_rate * verify + 1 - self.match_rate,
            overhead=np.full(k_array.shape, self.overhead),
        )

    def derivation(self, k: int, batch: int, context: float) -> tuple[str, ...]:
        cost = self.step_cost(k, batch, context)
        matched = "" if self.match_rate == 1 else f", h = {self.match_rate:g}"
        return (
            f"R = v + c·k + o = {float(cost.verify_cost):.4f} + {self.draft_cost:g}·{k} + {self.overhead:g} "
            f"= {float(cost.in_plain_steps):.4f} plain steps ({self._verify_text}{matched})",
        )

    @property
    def _verify_text(self) -> str:
        slope = f" + {self.verify_slope:g}·k" if self.verify_slope else ""
        return f"v = {self.verify_cost:g}{slope}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Step costs of a model pair on one accelerator at its datasheet rates.

    Attributes:
        accelerator: The device; both models run on it.
        target: Parameter counts of the target.
        draft: Parameter counts of the draft; None for a lookup draft, which costs no pass.
        dtype: Dtype in which both models are stored and multiplied.
        limit: "" for the roofline itself (`ideal`), "memory" for passes free of FLOPs, "compute" for
            passes free of bytes.
        match_rate: Share of steps in which a lookup draft finds a match; 1 for all other drafts.
    """

    accelerator: Accelerator
    target: ModelCounts
    draft: ModelCounts | None
    dtype: str
    limit: str = ""
    match_rate: float = 1.0

    def __post_init__(self) -> None:
        require_range("match_rate", self.match_rate, 0, 1)
        if self.limit not in _CASES:
            raise InputError("limit", f"must be one of {', '.join(map(repr, _CASES))}, got {self.limit!r}")
        if self.dtype not in DTYPE_BYTES:
            raise InputError("dtype", f"must be one of {', '.join(DTYPE_BYTES)}, got {self.dtype!r}")
        self.accelerator.peak(self.dtype)  # refuses bf16 on a part without it

    @property
    def case(self) -> str:
        return _CASES[self.limit]

    @property
    def basis(self) -> str:
        return f"at the {self.case} roofline of {self.accelerator.name}, a datasheet figure, not a forecast"

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return {
            "hardware": self.accelerator.name,
            "target": self.target.name,
            "draft": None if self.draft is None else self.draft.name,
            "dtype": self.dtype,
            "match_rate": self.match_rate if self.match_rate < 1 else None,
            "peak_flops_per_s": self.accelerator.peak(self.dtype).flops_per_s,
            "memory_bytes_per_s": self.accelerator.memory_bytes_per_s,
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (self._roofline_text, self._models_text, *self._dtype_texts, *_LIMIT_TEXTS[self.limit])

    @property
    def warnings(self) -> tuple[Advice, ...]:
        needed = self._weight_bytes / self.accelerator.memory_bytes
        if needed <= 1:
            return ()
        devices = math.ceil(needed)
        weights = format_quantity(self._weight_bytes, "B")
        advice = Advice(
            code="more-devices",
            text=f"{weights} of weights want at least {devices} {self.accelerator.name}",
            remedy=f"the ratios stand if both models are split {devices} ways at no communication cost; "
            "the seconds are those of one device",
        )
        return (advice,)

    @property
    def rates(self) -> DeviceRates:
        """Bandwidth and dense peak of the accelerator in this dtype, after the limit is applied."""
        rates = DeviceRates(
            memory_bytes_per_s=self.accelerator.memory_bytes_per_s,
            flops_per_s=self.accelerator.peak(self.dtype).flops_per_s,
        )
        if self.limit == "memory":
            return rates.without_flops()
        return rates.without_bytes() if self.limit == "compute" else rates

    @property
    def ridge_tokens(self) -> float:
        """N*: tokens in a pass of the target at which bytes and FLOPs take equally long."""
        peak = self.accelerator.peak(self.dtype).flops_per_s
        width = DTYPE_BYTES[self.dtype]
        bandwidth = self.accelerator.memory_bytes_per_s
        share = self.target.active_share
        return float(np.asarray(ridge_tokens(peak, bandwidth, bytes_per_param=width, active_share=share)))

    def pass_time(self, model: ModelCounts, tokens: npt.ArrayLike) -> FloatArray:
        """Seconds of one pass of `model` over `tokens` tokens."""
        width = DTYPE_BYTES[self.dtype]
        return np.asarray(counts_pass_time(model, tokens, rates=self.rates, bytes_per_param=width))

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
    ) -> StepCost:
        k_array, sequences, contexts, widths = _broadcast(k, batch, context, width)
        if np.any(contexts > 0):
            raise InputError(
                "context", "models known by parameter counts have no KV cache; only 0 can be timed"
            )
        plain_s = self.pass_time(self.target, sequences)
        draft_s = np.zeros_like(plain_s) if self.draft is None else self.pass_time(self.draft, sequences)
        return StepCost(
            plain_s=plain_s,
            draft_cost=draft_s / plain_s,
            draft_passes=k_array,
            verify_cost=self._verify_s(widths, sequences) / plain_s,
            overhead=np.zeros_like(plain_s),
        )

    def derivation(self, k: int, batch: int, context: float) -> tuple[str, ...]:
        cost = self.step_cost(k, batch, context)
        lines = [self._pass_text("T(target, B)", self.target, batch)]
        if self.draft is not None:
            lines.append(self._pass_text("T(draft, B)", self.draft, batch))
        lines.append(self._pass_text("T(target, B·(k+1))", self.target, batch * (k + 1)))
        lines.append(
            f"v = {float(cost.verify_cost):.4f}, c = {float(cost.draft_cost):.4f}, o = 0: "
            f"R = v + c·k + o = {float(cost.in_plain_steps):.4f} plain steps"
        )
        return tuple(lines)

    def _verify_s(self, width: FloatArray, batch: FloatArray) -> FloatArray:
        """Mean seconds of the verification pass.

        Alone, a lookup draft without a match takes a plain step; in a batch, matched and unmatched
        sequences share each pass, which then carries 1 + h·k tokens per sequence.
        """
        h = self.match_rate
        matched = self.pass_time(self.target, batch * width)
        if h == 1:
            return matched
        shared = self.pass_time(self.target, batch * (1 + h * (width - 1)))
        alone = h * matched + (1 - h) * self.pass_time(self.target, batch)
        return np.where(batch == 1, alone, shared)

    def _pass_text(self, symbol: str, model: ModelCounts, tokens: float) -> str:
        rates, width = self.rates, DTYPE_BYTES[self.dtype]
        bytes_s = model.total_params * width / rates.memory_bytes_per_s
        flops_s = 2 * model.active_params * tokens / rates.flops_per_s
        bound = "bytes" if bytes_s >= flops_s else "FLOPs"
        by_bytes, by_flops, longer = (
            format_quantity(t, "s") for t in (bytes_s, flops_s, max(bytes_s, flops_s))
        )
        return (
            f"{symbol} = max({by_bytes} of bytes, {by_flops} of FLOPs) = {longer}: {tokens:g} tokens, {bound}"
        )

    @property
    def _weight_bytes(self) -> float:
        draft = 0.0 if self.draft is None else self.draft.total_params
        return (self.target.total_params + draft) * DTYPE_BYTES[self.dtype]

    @property
    def _roofline_text(self) -> str:
        peak = format_quantity(self.accelerator.peak(self.dtype).flops_per_s, "FLOP/s")
        bandwidth = format_quantity(self.accelerator.memory_bytes_per_s, "B/s")
        return (
            f"ideal: datasheet peaks of {self.accelerator.name} ({peak} dense, {bandwidth}), no overhead; "
            "real software differs, so this is neither a forecast nor a bound, and has no range"
        )

    @property
    def _models_text(self) -> str:
        draft = "no draft model" if self.draft is None else f"draft {self.draft.name}"
        return (
            f"target {self.target.name}, {draft}, {self.dtype}, known by parameter counts alone: context 0, "
            "no KV cache; memory is not checked"
        )

    @property
    def _dtype_texts(self) -> tuple[str, ...]:
        peak = self.accelerator.peak(self.dtype)
        sparse = self.target.active_share < 1
        texts = (
            [f"{self.accelerator.name} has no {self.dtype} path: computed in {peak.dtype}"]
            if peak.widened
            else []
        )
        if sparse:
            texts.append("textbook MoE: every pass reads all experts, too slow a plain step at small batch")
        return tuple(texts)


_CASES = {"": "ideal", "memory": "memory_bound", "compute": "compute_bound"}
_LIMIT_TEXTS: dict[str, tuple[str, ...]] = {
    "": (),
    "memory": ("memory_bound: both passes free of FLOPs, so v = 1 and c is a ratio of bytes",),
    "compute": ("compute_bound: both passes free of bytes, so v = k + 1 and c is a ratio of FLOPs",),
}


def roofline_cases(
    accelerator: Accelerator,
    target: ModelCounts,
    draft: ModelCounts | None,
    *,
    dtype: str = "bf16",
    match_rate: float = 1.0,
) -> tuple[Roofline, Roofline, Roofline]:
    """The three cases of a roofline: ideal, memory-bound and compute-bound, in this order."""
    ideal = Roofline(accelerator=accelerator, target=target, draft=draft, dtype=dtype, match_rate=match_rate)
    return ideal, replace(ideal, limit="memory"), replace(ideal, limit="compute")


def _broadcast(
    k: npt.ArrayLike, batch: npt.ArrayLike, context: npt.ArrayLike, width: npt.ArrayLike | None
) -> tuple[FloatArray, ...]:
    lengths = require_count("k", k).astype(float)
    return np.broadcast_arrays(
        lengths,
        require_range("batch", batch, 1),
        require_range("context", context, 0),
        lengths + 1 if width is None else require_range("width", width, 1),
    )
