"""The roofline of a model pair on an accelerator as a source of step times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from specmath.accelerator import Accelerator
from specmath.checks import FloatArray, require_count, require_range
from specmath.errors import InputError
from specmath.execution import IDEAL, ONE_DEVICE, DeviceRates, Efficiency, Layout
from specmath.memory import Residents
from specmath.model import ModelShape
from specmath.results import Advice, Cell, brief
from specmath.roofline import ForwardPass
from specmath.roofline_text import (
    device_warnings,
    dtype_texts,
    layout_texts,
    memory_text,
    model_texts,
    pair_warnings,
    pass_text,
    roofline_text,
)
from specmath.sources import StepCost
from specmath.units import format_quantity

_CASES = {"": "ideal", "memory": "memory_bound", "compute": "compute_bound"}
_LIMIT_TEXTS: dict[str, tuple[str, ...]] = {
    "": (),
    "memory": ("memory_bound: both passes free of FLOPs and communication; c is a ratio of bytes",),
    "compute": ("compute_bound: both passes free of bytes and communication; c is a ratio of FLOPs",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Step costs of a model pair on one kind of accelerator.

    Attributes:
        accelerator: The device; both models run on it.
        target: The target.
        draft: The draft model; None for a lookup draft, which costs no pass.
        layout: How the target is spread.
        draft_layout: How the draft is spread; by default it runs on one device.
        efficiency: How far software is from the datasheet.
        link_bytes_per_s: One direction, instead of the catalogue's; None for the catalogue's.
        limit: "" for the roofline itself, "memory" for passes free of FLOPs, "compute" for passes free of
            bytes.
        match_rate: Share of steps in which a lookup draft finds a match; 1 for all other drafts.
    """

    accelerator: Accelerator
    target: ModelShape
    draft: ModelShape | None
    layout: Layout = ONE_DEVICE
    draft_layout: Layout = ONE_DEVICE
    efficiency: Efficiency = IDEAL
    link_bytes_per_s: float | None = None
    limit: str = ""
    match_rate: float = 1.0

    def __post_init__(self) -> None:
        require_range("match_rate", self.match_rate, 0, 1)
        if self.limit not in _CASES:
            raise InputError("limit", f"must be one of {', '.join(map(repr, _CASES))}, got {self.limit!r}")
        if self.link_bytes_per_s is not None:
            require_range("link", self.link_bytes_per_s, 1, 1e18)
        for name, model in (("target", self.target), ("draft", self.draft)):
            if model is not None and model.draft is not None:
                problem = (
                    f"{model.name} is a draft head ({model.draft.kind}), which runs on its target's features"
                )
                raise InputError(name, f"{problem}; give a model of its own, or --draft-cost")
        if self.draft_layout.devices > self.layout.devices:
            raise InputError("draft_tp", f"must be at most the target's {self.layout.devices} devices")
        self._require_layout()
        self.target_pass(), self.draft_pass()  # refuses a dtype or a link that the part lacks

    @property
    def _link(self) -> float | None:
        """The link that was given, else the catalogue's."""
        given = self.link_bytes_per_s
        return self.accelerator.link_bytes_per_s if given is None else given

    def _require_layout(self) -> None:
        if self.target.counts_only:
            return
        part = self.accelerator
        if self.layout.devices > 1 and self._link is None:
            host = part.host_link_bytes_per_s
            hint = f", such as the {format_quantity(host, 'B/s')} of its host link" if host else ""
            raise InputError("link", f"is missing: no link of {part.name} is known; give one, one way{hint}")
        if self.layout.ep > 1 and not self.target.experts:
            raise InputError("ep", f"spreads routed experts, and {self.target.name} has none")

    @property
    def case(self) -> str:
        return _CASES[self.limit]

    @property
    def basis(self) -> str:
        devices = f"{self.layout.devices} × " if self.layout.devices > 1 else ""
        where = f"{self.case} roofline of {devices}{self.accelerator.name}"
        return f"at the {where}, a datasheet figure, not a forecast"

    @property
    def inputs(self) -> Mapping[str, Cell]:
        layout = {name: getattr(self.layout, name) for name in ("tp", "dp", "ep", "pp")}
        dtypes = sorted(self.target.compute_dtypes)
        return {
            "hardware": self.accelerator.name,
            "target": self.target.name,
            "draft": None if self.draft is None else self.draft.name,
            **{name: degree if degree > 1 else None for name, degree in layout.items()},
            "draft_tp": self.draft_layout.tp if self.draft_layout.tp > 1 else None,
            "compute_dtypes": "/".join(dtypes),
            "target_weight_bytes": self.target.weight_bytes,
            "draft_weight_bytes": None if self.draft is None else self.draft.weight_bytes,
            "kv_bytes_per_token": self.target.kv_bytes_per_token if self.target.has_kv else None,
            "link_bytes_per_s": self.link_bytes_per_s,
            "graph_sizes": brief(np.array(self.efficiency.graph_sizes or [], dtype=np.int64)),
            "match_rate": self.match_rate if self.match_rate < 1 else None,
            "peak_flops_per_s": brief(
                np.array([self.accelerator.peak(dtype).flops_per_s for dtype in dtypes])
            ),
            "memory_bytes_per_s": self.accelerator.memory_bytes_per_s,
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        models = [model for model in (self.target, self.draft) if model is not None]
        return (
            roofline_text(self.accelerator, self.target),
            *model_texts(models),
            *layout_texts(self.residents),
            memory_text(self.residents),
            *dtype_texts(self.accelerator, self.target),
            *_LIMIT_TEXTS[self.limit],
            *(
                f"{model.name}: {sentence}"
                for model in models
                if not model.counts_only
                for sentence in model.assumed
            ),
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        typed_link = self.link_bytes_per_s is not None
        found = pair_warnings(self.residents, spans_hosts=self.layout.devices > 8 and not typed_link)
        return (*device_warnings(self.accelerator, self.residents), *found)

    @property
    def residents(self) -> Residents:
        """Both models on one device, to see what fits."""
        return Residents(
            target=self.target,
            target_layout=self.layout,
            draft=self.draft,
            draft_layout=self.draft_layout,
            memory_bytes=self.accelerator.memory_bytes,
        )

    @property
    def ridge_tokens(self) -> float:
        """N*: tokens in a pass of the target at which all weights' bytes and FLOPs take equally long."""
        target = self.target
        groups = [(group.multiplied_params, group.compute_dtype) for group in target.weights]
        groups += [(group.active_params, group.compute_dtype) for group in target.experts]
        read = sum(group.read_params * group.bytes_per_param for group in target.weights)
        read += sum(group.stored_params * group.bytes_per_param for group in target.experts)
        token_s = sum(2 * params / self.accelerator.peak(dtype).flops_per_s for params, dtype in groups)
        return read / self.accelerator.memory_bytes_per_s / token_s

    def target_pass(self) -> ForwardPass:
        """Forward passes of the target."""
        return self._pass(self.target, self.layout)

    def draft_pass(self) -> ForwardPass | None:
        """Forward passes of the draft; None where none is run."""
        return None if self.draft is None else self._pass(self.draft, self.draft_layout)

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
        target, draft = self.target_pass(), self.draft_pass()
        plain_s = np.asarray(target.time(batch, 1, context))
        draft_s = np.zeros(()) if draft is None else np.asarray(draft.time(batch, 1, context))
        verified = drafts + 1 if width is None else require_range("width", width, 1)
        return StepCost(
            plain_s=plain_s,
            draft_cost=draft_s / plain_s,
            draft_passes=drafts if passes is None else require_range("passes", passes, 0),
            verify_cost=self._verify_s(target, verified, batch, context, plain_s) / plain_s,
            overhead=np.zeros(()),
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
        """None: a datasheet does not know how far off it is."""
        return

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        plain, speculative = (
            self.residents.max_batch(context),
            self.residents.max_batch_speculative(k, context),
        )
        return np.asarray(plain), np.asarray(speculative)

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        """Not known: the roofline has no closed form for it."""
        return np.full(np.broadcast_shapes(np.shape(acceptance_length), np.shape(k)), np.nan)

    def derivation(self, k: int, batch: int, context: float, *, width: int, passes: int) -> tuple[str, ...]:
        cost = self.step_cost(k, batch, context, width=width, passes=passes)
        target, draft = self.target_pass(), self.draft_pass()
        lines = [pass_text("T_AR", target, batch, 1, context)]
        if draft is not None:
            lines.append(pass_text("draft pass", draft, batch, 1, context))
        lines.append(pass_text("verification", target, batch, width, context))
        if self.match_rate < 1:
            shared = 1 + self.match_rate * (width - 1)
            lines.append(pass_text("shared verification, h matched", target, batch, shared, context))
        return (
            *lines,
            f"v = {float(cost.verify_cost):.4f}, c = {float(cost.draft_cost):.4f}, o = 0: "
            f"R = v + c·{passes} + o = {float(cost.in_plain_steps):.4f} plain steps",
        )

    def _pass(self, model: ModelShape, layout: Layout) -> ForwardPass:
        rates = DeviceRates(
            memory_bytes_per_s=self.accelerator.memory_bytes_per_s,
            flops_per_s={dtype: self.accelerator.peak(dtype).flops_per_s for dtype in model.compute_dtypes},
            link_bytes_per_s=self._link,
        )
        limited = {"": rates, "memory": rates.without_flops(), "compute": rates.without_bytes()}[self.limit]
        # The limits are free of communication: of its bytes and of its latency.
        efficiency = replace(self.efficiency, link_latency_s=0.0) if self.limit else self.efficiency
        return ForwardPass(model=model, rates=limited, layout=layout, efficiency=efficiency)

    def _verify_s(
        self,
        target: ForwardPass,
        width: FloatArray,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        plain_s: FloatArray,
    ) -> FloatArray:
        """Mean seconds of the verification pass.

        Alone, a lookup draft without a match takes a plain step; in a batch, matched and unmatched
        sequences share each pass, which then carries 1 + h·k tokens per sequence.
        """
        h = self.match_rate
        matched = np.asarray(target.time(batch, width, context))
        if h == 1:
            return matched
        shared = target.time(batch, 1 + h * (width - 1), context)
        return np.where(np.asarray(batch) == 1, h * matched + (1 - h) * plain_s, shared)


def roofline_cases(
    accelerator: Accelerator,
    target: ModelShape,
    draft: ModelShape | None,
    *,
    layout: Layout = ONE_DEVICE,
    draft_layout: Layout = ONE_DEVICE,
    efficiency: Efficiency = IDEAL,
    link_bytes_per_s: float | None = None,
    match_rate: float = 1.0,
) -> tuple[Roofline, Roofline, Roofline]:
    """The three cases of a roofline: ideal, memory-bound and compute-bound, in this order."""
    ideal = Roofline(
        accelerator=accelerator,
        target=target,
        draft=draft,
        layout=layout,
        draft_layout=draft_layout,
        efficiency=efficiency,
        link_bytes_per_s=link_bytes_per_s,
        match_rate=match_rate,
    )
    return ideal, replace(ideal, limit="memory"), replace(ideal, limit="compute")
