"""The roofline of a target and its drafter on an accelerator as a source of step times."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from specmath.accelerator import Accelerator
from specmath.checks import FloatArray, require_count, require_range
from specmath.drafters.base import Drafter
from specmath.errors import InputError
from specmath.execution import IDEAL, NO_HOST, ONE_DEVICE, DeviceRates, Efficiency, HostTimes, Layout
from specmath.memory import Residents
from specmath.model import ModelShape
from specmath.results import Advice, Cell, brief
from specmath.roofline import ForwardPass
from specmath.roofline_text import (
    LIMIT_TEXTS,
    device_warnings,
    dtype_texts,
    host_texts,
    layout_texts,
    memory_text,
    model_texts,
    pair_warnings,
    pass_text,
    roofline_text,
)
from specmath.sources import StepCost
from specmath.units import format_quantity

_LIMITS = {"memory": "memory_bound", "compute": "compute_bound"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """Step costs of a target and its drafter on one kind of accelerator.

    T_AR = T(B, 1, C) + o_ar, and a step takes drafting + T(B, width, C) + o_sd. With the defaults this is the
    ideal; other constants make a profile, which has a name and says where they come from.

    Attributes:
        accelerator: The device; both models run on it.
        target: The target.
        drafter: How the draft is made; see `specmath.drafters`.
        layout: How the target is spread.
        efficiency: How far software is from the datasheet, in passes of the target and of the draft.
        host: What the host takes beside the device.
        link_bytes_per_s: One direction, instead of the catalogue's; None for the catalogue's.
        limit: "" for the roofline itself, "memory" for passes free of FLOPs, "compute" for passes free of
            bytes; both free of communication and of the host.
        name: Name of the profile whose constants these are; empty for the ideal.
        described: What stands first among the assumptions of a profile.
    """

    accelerator: Accelerator
    target: ModelShape
    drafter: Drafter
    layout: Layout = ONE_DEVICE
    efficiency: Efficiency = IDEAL
    host: HostTimes = NO_HOST
    link_bytes_per_s: float | None = None
    limit: str = ""
    name: str = ""
    described: str = ""

    def __post_init__(self) -> None:
        if self.limit not in ("", *_LIMITS):
            raise InputError(
                "limit", f"must be one of {', '.join(map(repr, ['', *_LIMITS]))}, got {self.limit!r}"
            )
        if self.link_bytes_per_s is not None:
            require_range("link", self.link_bytes_per_s, 1, 1e18)
        if self.target.draft is not None:
            problem = (
                f"{self.target.name} is a draft head ({self.target.draft.kind}), which runs on its target"
            )
            raise InputError("target", f"{problem}; give a model of its own")
        if isinstance(self.drafter, ModelShape):
            named = self.drafter.name
            raise InputError("drafter", f"{named} is a model; wrap it, as in drafter_of(target, {named})")
        self.drafter.require_target(self.target)
        if self.draft_layout.devices > self.layout.devices:
            raise InputError("draft_tp", f"must be at most the target's {self.layout.devices} devices")
        self._require_layout()
        self.target_pass()  # refuses a dtype or a link that the part lacks
        self.draft_pass()

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
        return _LIMITS.get(self.limit, self.name or "ideal")

    @property
    def basis(self) -> str:
        devices = f"{self.layout.devices} × " if self.layout.devices > 1 else ""
        where = f"{devices}{self.accelerator.name}"
        if self.name and not self.limit:
            return f"by the {self.name} profile of {where}"
        return f"at the {self.case} roofline of {where}, a datasheet figure, not a forecast"

    @property
    def match_rate(self) -> float:
        """Share of steps in which a lookup draft finds a match; 1 for all other drafts."""
        return self.drafter.match_rate

    @property
    def max_k(self) -> int | None:
        """Longest draft that the drafter can make; None where k is free."""
        return self.drafter.max_tokens

    @property
    def draft_layout(self) -> Layout:
        """How the draft is spread."""
        return self.drafter.layout_under(self.layout)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        layout = {name: getattr(self.layout, name) for name in ("tp", "dp", "ep", "pp")}
        dtypes, resident = sorted(self.target.compute_dtypes), self.drafter.resident
        return {
            "hardware": self.accelerator.name,
            "target": self.target.name,
            "draft": self.drafter.name,
            "method": self.drafter.method,
            **{name: degree if degree > 1 else None for name, degree in layout.items()},
            "draft_tp": self.draft_layout.tp if self.draft_layout.tp > 1 else None,
            "compute_dtypes": "/".join(dtypes),
            "target_weight_bytes": self.target.weight_bytes,
            "draft_weight_bytes": None if resident is None else resident.weight_bytes,
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
        models = [model for model in (self.target, self.drafter.resident) if model is not None]
        ideal = roofline_text(self.accelerator, self.target)
        return (
            self.described if self.name and not self.limit else ideal,
            *model_texts(models),
            *self.drafter.assumptions,
            *layout_texts(self.residents, self.efficiency),
            memory_text(self.residents),
            *dtype_texts(self.accelerator, self.target),
            *LIMIT_TEXTS[self.limit],
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
        """What target and draft keep on one device, to see what fits."""
        return Residents(
            target=self.target,
            target_layout=self.layout,
            draft=self.drafter.resident,
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

    def with_constants(self, efficiency: Efficiency, host: HostTimes) -> Roofline:
        """The same set-up, checked already, with other constants."""
        other = copy(self)
        object.__setattr__(other, "efficiency", efficiency)
        object.__setattr__(other, "host", host)
        return other

    def target_pass(self) -> ForwardPass:
        """Forward passes of the target."""
        return self._pass(self.target, self.layout)

    def draft_pass(self) -> ForwardPass | None:
        """Forward passes of the draft; None where none is run."""
        model = self.drafter.model
        return None if model is None else self._pass(model, self.draft_layout)

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> StepCost:
        depth = self._drafts(k)
        nodes = depth if width is None else require_range("width", width, 1) - 1
        if passes is not None:
            depth = require_range("passes", passes, 0)
        sequences, length = require_range("batch", batch, 1), require_range("context", context, 0)
        target, work, host = self.target_pass(), self.drafter.work(depth, nodes), self._host
        ranked = target.rank_batch(sequences)
        plain_s = np.asarray(target.time(sequences, 1, length)) + host.plain_step_s
        draft_s = self._draft_s(sequences, ranked, work.tokens, length)
        return StepCost(
            plain_s=plain_s,
            draft_cost=draft_s / plain_s,
            draft_passes=work.passes,
            verify_cost=self.drafter.verify_s(target, sequences, nodes + 1, length) / plain_s,
            overhead=self._host_s(nodes, ranked) / plain_s if host != NO_HOST else np.zeros(()),
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

    def warnings_at(self, k: int, batch: npt.ArrayLike, undecided: int) -> tuple[Advice, ...]:
        """One pair to measure, with and without speculation, as commands of the engine."""
        from specmath.measuring import uncalibrated  # after the answer, so not on the way to it

        pair = ("TARGET" if self.target.counts_only else self.target.name, self.drafter, self.layout.tp)
        return (uncalibrated(self.case, *pair, k=max(k, 1), batch=undecided),)

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        held = self.residents
        return np.asarray(held.max_batch(context)), np.asarray(held.max_batch_speculative(k, context))

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        """Not known: the roofline has no closed form for it."""
        return np.full(np.broadcast_shapes(np.shape(acceptance_length), np.shape(k)), np.nan)

    def derivation(self, k: int, batch: int, context: float, *, width: int, passes: int) -> tuple[str, ...]:
        cost = self.step_cost(k, batch, context, width=width, passes=passes)
        work = self.drafter.work(np.asarray(float(passes)), np.asarray(width - 1.0))
        target, draft = self.target_pass(), self.draft_pass()
        lines = [pass_text("T_AR", target, batch, 1, context)]
        if draft is not None:
            lines.append(pass_text("draft pass", draft, batch, float(work.tokens), context))
        lines.append(pass_text("verification", target, batch, width, context))
        if self.match_rate < 1:
            shared = 1 + self.match_rate * (width - 1)
            lines.append(pass_text("shared verification, h matched", target, batch, shared, context))
        v, c, o = (float(part) for part in (cost.verify_cost, cost.draft_cost, cost.overhead))
        terms = f"v = {v:.4f}, c = {c:.4f}, o = {o:.4g}: R = v + c·{float(work.passes):g} + o"
        return (*lines, *host_texts(self._host), f"{terms} = {float(cost.in_plain_steps):.4f} plain steps")

    @property
    def _host(self) -> HostTimes:
        """Time of the host; the limits are free of it."""
        return NO_HOST if self.limit else self.host

    def _host_s(self, nodes: FloatArray, ranked: FloatArray) -> FloatArray:
        """o of a step: that of speculation where something is verified, else that of a plain step.

        `ranked` are the sequences of a data-parallel rank, which has a host process of its own.
        """
        return np.where(nodes > 0, self._host.speculative_s(ranked), self._host.plain_step_s)

    def _drafts(self, k: npt.ArrayLike) -> FloatArray:
        """k, once the drafter can draft that far."""
        drafts, longest = require_count("k", k), self.max_k
        if longest is not None and np.any(drafts > longest):
            problem = f"must be at most {longest}, the draft of {self.drafter.name}, got {drafts.max()}"
            raise InputError("k", problem)
        return drafts.astype(float)

    def _draft_s(
        self, batch: FloatArray, ranked: FloatArray, tokens: FloatArray, context: FloatArray
    ) -> FloatArray:
        """Seconds of one draft pass, the host's with it."""
        draft, host_s = self.draft_pass(), self.drafter.host_s(self._host, ranked, tokens)
        return host_s if draft is None else np.asarray(draft.time(batch, tokens, context)) + host_s

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


def roofline_cases(
    accelerator: Accelerator,
    target: ModelShape,
    drafter: Drafter,
    *,
    layout: Layout = ONE_DEVICE,
    efficiency: Efficiency = IDEAL,
    link_bytes_per_s: float | None = None,
) -> tuple[Roofline, Roofline, Roofline]:
    """The three cases of a roofline: ideal, memory-bound and compute-bound, in this order."""
    ideal = Roofline(
        accelerator=accelerator,
        target=target,
        drafter=drafter,
        layout=layout,
        efficiency=efficiency,
        link_bytes_per_s=link_bytes_per_s,
    )
    return ideal, replace(ideal, limit="memory"), replace(ideal, limit="compute")
