"""A profile's roofline as a source of step times: a forecast with a range.

The range has three parts. Each constant is moved to its low and its high end, and the moves of R add up as
independent errors do, in quadrature of logarithms. It is never narrower than the profile's floor, which the
public measurements set. And it is widened where the evidence is known to be thin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from specmath.accelerator import Accelerator
from specmath.cautions import Caution, cautions, widened
from specmath.checks import FloatArray
from specmath.drafters.base import Drafter
from specmath.execution import EIGHT_BIT, ONE_DEVICE, SIXTEEN_BIT, Layout
from specmath.model import ModelShape
from specmath.profiles import Profile
from specmath.results import Advice, Cell
from specmath.roofline_source import Roofline, roofline_cases
from specmath.sources import StepCost


@dataclass(frozen=True, kw_only=True)
class Profiled:
    """Step costs of a target and its drafter by a profile, with the range that its evidence supports.

    Attributes:
        typical: The roofline at the profile's typical constants; `forecast_cases` builds it.
        profile: The constants with their ends.
    """

    typical: Roofline
    profile: Profile

    @property
    def case(self) -> str:
        return self.typical.case

    @property
    def basis(self) -> str:
        return self.typical.basis

    @property
    def max_k(self) -> int | None:
        """Longest draft that the drafter can make; None where k is free."""
        return self.typical.max_k

    @property
    def match_rate(self) -> float:
        """Share of steps in which a lookup draft finds a match; 1 for all other drafters."""
        return self.typical.match_rate

    @property
    def ridge_tokens(self) -> float:
        """N* of the datasheet."""
        return self.typical.ridge_tokens

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return {**self.typical.inputs, "profile": self.profile.name}

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.typical.assumptions

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return (*self.typical.warnings, *(one.advice for one in self.cautions if not one.scoped))

    @cached_property
    def cautions(self) -> tuple[Caution, ...]:
        """Where the evidence for this pair on this part is thin."""
        return cautions(self.typical)

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> StepCost:
        return self.typical.step_cost(k, batch, context, width=width, passes=passes)

    def step_bounds(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Least and most of R: what the constants' ends give, the floor of the profile, and the cautions."""
        typical = self.step_cost(k, batch, context, width=width, passes=passes).in_plain_steps
        up, down = np.zeros(typical.shape), np.zeros(typical.shape)
        for ends in self._swung:
            moves = [
                np.log(one.step_cost(k, batch, context, width=width, passes=passes).in_plain_steps / typical)
                for one in ends
            ]
            up = up + np.maximum(np.maximum.reduce(moves), 0) ** 2
            down = down + np.minimum(np.minimum.reduce(moves), 0) ** 2
        most = typical * np.maximum(np.exp(np.sqrt(up)), self.profile.least)
        least = typical / np.maximum(np.exp(np.sqrt(down)), self.profile.most)
        least, most = widened(least, most, self.cautions, batch)
        drafts = np.asarray(k) > 0  # without a draft a step is a plain step, known exactly
        return np.where(drafts, least, typical), np.where(drafts, most, typical)

    def warnings_at(self, k: int, batch: npt.ArrayLike, undecided: int) -> tuple[Advice, ...]:
        """Where the evidence is thin at these batches, then the pair to measure."""
        scoped = [one.advice for one in self.cautions if one.scoped and np.any(one.applies(batch))]
        return (*scoped, *self.typical.warnings_at(k, batch, undecided))

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        return self.typical.max_batches(k, context)

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        """As the roofline has it."""
        return self.typical.critical_context(acceptance_length, k)

    def derivation(self, k: int, batch: int, context: float, *, width: int, passes: int) -> tuple[str, ...]:
        lines = self.typical.derivation(k, batch, context, width=width, passes=passes)
        least, most = self.step_bounds(k, batch, context, width=width, passes=passes)
        return (*lines, f"R lies between {float(least):.4f} and {float(most):.4f}: {self._range_text}")

    @property
    def _range_text(self) -> str:
        floor = f"the speed-up at least ÷{self.profile.least:g} … ×{self.profile.most:g}"
        return f"each constant at its low and high end, in quadrature, and {floor}"

    @cached_property
    def _swung(self) -> tuple[tuple[Roofline, ...], ...]:
        """The roofline with each constant that matters here at its ends."""
        ends: dict[str, list[Roofline]] = {}
        for name, end in self.profile.swings():
            if _MATTERS.get(name, _always)(self.typical):
                ends.setdefault(name, []).append(self._at(name, end))
        return tuple(map(tuple, ends.values()))

    def _at(self, name: str, end: str) -> Roofline:
        typical = self.typical
        efficiency, host = self.profile.on(
            typical.accelerator,
            link_bytes_per_s=typical.link_bytes_per_s,
            graph_sizes=typical.efficiency.graph_sizes,
            swing=(name, end),
        )
        return typical.with_constants(efficiency, host)


def forecast_cases(
    profile: Profile,
    accelerator: Accelerator,
    target: ModelShape,
    drafter: Drafter,
    *,
    layout: Layout = ONE_DEVICE,
    link_bytes_per_s: float | None = None,
    graph_sizes: tuple[int, ...] | None = None,
) -> tuple[Profiled, Roofline, Roofline, Roofline]:
    """The profile's forecast, then the datasheet: ideal, memory-bound and compute-bound.

    Args:
        profile: How far the engine is from the datasheet, `load_profile`.
        accelerator: The device.
        target: The target.
        drafter: How it is drafted for.
        layout: How the target is spread.
        link_bytes_per_s: One direction, instead of the catalogue's.
        graph_sizes: Captured sizes, if they are known.
    """
    ideal, memory, compute = roofline_cases(
        accelerator, target, drafter, layout=layout, link_bytes_per_s=link_bytes_per_s
    )
    efficiency, host = profile.on(accelerator, link_bytes_per_s=link_bytes_per_s, graph_sizes=graph_sizes)
    typical = replace(
        ideal, efficiency=efficiency, host=host, name=profile.name, described=described(profile, accelerator)
    )
    return Profiled(typical=typical, profile=profile), ideal, memory, compute


def described(profile: Profile, part: Accelerator) -> str:
    """What a profile is, as the first assumption."""
    floor = f"never less than ÷{profile.least:g} … ×{profile.most:g}"
    return (
        f"{profile.name}: {profile.title}; constants of its kernels and host "
        f"on {part.name}, none fitted to a speed-up; the range is what their low and high ends give, {floor}"
    )


def _always(source: Roofline) -> bool:
    return True


def _models(source: Roofline) -> list[ModelShape]:
    return [model for model in (source.target, source.drafter.model) if model is not None]


def _widths(source: Roofline) -> set[float]:
    models = _models(source)
    dense = {group.bytes_per_param for model in models for group in model.weights}
    return dense | {group.bytes_per_param for model in models for group in model.experts}


def _computes_in(*dtypes: str) -> Callable[[Roofline], bool]:
    return lambda source: any(model.compute_dtypes & set(dtypes) for model in _models(source))


def _has_experts(source: Roofline) -> bool:
    return any(model.experts for model in _models(source))


def _is_latent(source: Roofline) -> bool:
    return any(group.name.startswith("mla") for model in _models(source) for group in model.attention)


def _narrow(source: Roofline) -> bool:
    return any(width < SIXTEEN_BIT for width in _widths(source))


def _spread(source: Roofline) -> bool:
    return max(source.layout.devices, source.draft_layout.devices) > 1


def _layered(source: Roofline) -> bool:
    return any(not model.counts_only for model in _models(source))


def _cached(source: Roofline) -> bool:
    return any(model.has_kv for model in _models(source))


def _launched(source: Roofline) -> bool:
    return _layered(source) and source.efficiency.graph_sizes is not None


_MATTERS: dict[str, Callable[[Roofline], bool]] = {
    "eight_bit_memory": lambda source: any(EIGHT_BIT <= width < SIXTEEN_BIT for width in _widths(source)),
    "four_bit_memory": lambda source: any(width < EIGHT_BIT for width in _widths(source)),
    "eight_bit_compute": _computes_in("fp8", "int8"),
    "four_bit_compute": _computes_in("fp4"),
    "kv_efficiency": _cached,
    "kv_reread": _cached,
    "expert_memory": _has_experts,
    "expert_compute": _has_experts,
    "expert_overlap": _has_experts,
    "routing_skew": _has_experts,
    "expert_kernels": _has_experts,
    "latent_reread": _is_latent,
    "latent_kernels": _is_latent,
    "row_cost": _narrow,
    "wide_cost": _narrow,
    "link_efficiency": _spread,
    "link_latency_s": _spread,
    "activation_bytes": _layered,
    "logit_bytes": _layered,
    "product_latency_s": _layered,
    "kernels_per_layer": _layered,
    "kernel_gap_s": _layered,
    "kernel_launch_s": _launched,
    "draft_pass_s": lambda source: source.drafter.model is not None,
    "lookup_token_s": lambda source: source.drafter.model is None,
}
"""Where a constant has an effect at all; elsewhere moving it is time wasted."""
