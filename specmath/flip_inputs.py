"""The inputs of a question that can be moved one at a time, and whether speculation wins when they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from specmath.acceptance import ConstantAcceptance
from specmath.checks import FloatArray
from specmath.critical_contexts import CONTEXT_LIMIT
from specmath.drafters.base import RunsModel
from specmath.drafters.early_exit import EarlyExit
from specmath.drafters.lookup import Lookup
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.mixtures import LookupAcceptance
from specmath.model import ModelShape
from specmath.profiles import Profile
from specmath.roofline_source import Roofline
from specmath.sources import BatchSource, StepCost

LONGEST_DRAFT: Final = 64
"""Longest draft tried."""
HARDWARE_REACH: Final = 10.0
"""Rates of the hardware are moved up to this factor either way."""
WIDTHS: Final = (0.25, 4.0)
"""Bytes of a weight, scales included: from 2 bits to 32."""
_MOST_STEPS: Final = 100.0  # a ratio is moved up to this many plain steps
_POINTS: Final = 25

Wins = Callable[[FloatArray], npt.NDArray[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipInput:
    """One input that can be moved.

    Attributes:
        name: Its key.
        unit: Its base unit; empty for a pure number.
        value: What it is now.
        below: Values to try downwards, the present one first.
        above: Values to try upwards, the present one first.
        wins: Whether speculation wins at each of some values.
        whole: Whether it takes whole numbers only.
    """

    name: str
    unit: str = ""
    value: float
    below: FloatArray
    above: FloatArray
    wins: Wins
    whole: bool = False


def flip_inputs(
    law: AcceptanceLaw, k: int, source: BatchSource, batch: int, context: float, max_batch: int
) -> list[FlipInput]:
    """Every input of the set-up that can be moved."""
    set_up = _SetUp(law=law, k=k, source=source, batch=batch, context=context)
    return [
        *set_up.acceptance_inputs(),
        *set_up.ratio_inputs(),
        *set_up.grid_inputs(max_batch),
        *set_up.hardware_inputs(),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SetUp:
    """One set-up, of which one part at a time is replaced."""

    law: AcceptanceLaw
    k: int
    source: BatchSource
    batch: int
    context: float

    def length(self) -> FloatArray:
        return np.asarray(self.law.at(self.context).acceptance_length(self.k))

    def cost(self) -> StepCost:
        return self.source.step_cost(self.k, self.batch, self.context, width=self.width, passes=self.passes)

    def wins(self) -> bool:
        return bool(self.length() > self.cost().in_plain_steps)

    @property
    def width(self) -> int:
        return int(self.law.width(self.k))

    @property
    def passes(self) -> int:
        return int(self.law.draft_passes(self.k))

    def acceptance_inputs(self) -> Iterator[FlipInput]:
        """α where there is one, the match rate of a lookup draft, and the acceptance length of any law."""
        needed = float(self.cost().in_plain_steps)
        constant = self.law.matched if isinstance(self.law, LookupAcceptance) else self.law
        if isinstance(constant, ConstantAcceptance):
            wins = _answers(lambda alpha: self._length_at(alpha) > needed)
            yield _within("alpha", float(constant.alpha), 0, 1, wins)
        moved = _with_match_rate(self.source)
        if isinstance(self.law, LookupAcceptance) and moved is not None:
            wins = _answers(lambda x: self._match_rate_wins(x, moved))
            yield _within("match_rate", float(self.law.match_rate), 0, 1, wins)
        most = 1 + self.source.match_rate * self.passes
        yield _within("acceptance_length", float(self.length()), 1, most, lambda x: x > needed)

    def _length_at(self, alpha: float) -> float:
        """E with another α; the step costs the same."""
        law: AcceptanceLaw = ConstantAcceptance(alpha)
        if isinstance(self.law, LookupAcceptance):
            law = replace(self.law, matched=law)
        return float(np.asarray(law.acceptance_length(self.k)))

    def _match_rate_wins(self, rate: float, moved: Callable[[float], BatchSource]) -> bool:
        assert isinstance(self.law, LookupAcceptance)
        return replace(self, law=replace(self.law, match_rate=rate), source=moved(rate)).wins()

    def ratio_inputs(self) -> Iterator[FlipInput]:
        """c, v and o, which the step costs are linear in."""
        cost, length, passes = self.cost(), float(self.length()), float(self.cost().draft_passes)
        c, v, o = (float(part) for part in (cost.draft_cost, cost.verify_cost, cost.overhead))
        if passes and (c or self.source.match_rate == 1):
            yield _within("draft_cost", c, 0, _MOST_STEPS, lambda x: length > v + x * passes + o)
        yield _within("verify_cost", v, min(v, 1.0), _MOST_STEPS, lambda x: length > x + c * passes + o)
        yield _within("overhead", o, 0, _MOST_STEPS, lambda x: length > v + c * passes + x)

    def grid_inputs(self, max_batch: int) -> Iterator[FlipInput]:
        """Batch, k and context."""
        yield _whole("batch", self.batch, max(max_batch, self.batch), self._batch_wins)
        limits = (limit for limit in (self.law.max_k, self.source.max_k) if limit is not None)
        longest = min(limits, default=max(LONGEST_DRAFT, self.k))
        yield _whole("k", self.k, longest, self._k_wins)
        below, above = (self._contexts(end) for end in (0.0, float(CONTEXT_LIMIT)))
        try:
            self._context_wins(np.array([self.context, above[-1]]))
        except InputError:  # a model known by its counts alone has no cache
            return
        yield FlipInput(name="context", value=self.context, below=below, above=above, wins=self._context_wins)

    def _contexts(self, end: float) -> FloatArray:
        """Contexts from here to an end, or to the last for which the acceptance was given."""
        last, beyond = self.context, end
        if self.law.covers(end):
            last = end
        for _ in range(60 if last != end and self.law.covers(self.context) else 0):
            middle = (last + beyond) / 2
            last, beyond = (middle, beyond) if self.law.covers(middle) else (last, middle)
        grid = np.expm1(np.linspace(np.log1p(self.context), np.log1p(last), 4 * _POINTS))
        grid[[0, -1]] = self.context, last
        return grid

    def _context_wins(self, contexts: FloatArray) -> npt.NDArray[np.bool_]:
        lengths = np.asarray(self.law.at(contexts).acceptance_length(self.k))
        cost = self.source.step_cost(self.k, self.batch, contexts, width=self.width, passes=self.passes)
        return np.asarray(lengths > cost.in_plain_steps)

    def _batch_wins(self, batches: FloatArray) -> npt.NDArray[np.bool_]:
        cost = self.source.step_cost(self.k, batches, self.context, width=self.width, passes=self.passes)
        return np.asarray(self.length() > cost.in_plain_steps)

    def _k_wins(self, drafts: FloatArray) -> npt.NDArray[np.bool_]:
        k, law = drafts.astype(np.int64), self.law
        cost = self.source.step_cost(
            k, self.batch, self.context, width=law.width(k), passes=law.draft_passes(k)
        )
        return np.asarray(law.at(self.context).acceptance_length(k)) > cost.in_plain_steps

    def hardware_inputs(self) -> Iterator[FlipInput]:
        """Bandwidth, peak, link and widths of weights, where the source is a roofline or holds one."""
        found = _roofline_of(self.source)
        if found is None:
            return
        roofline, rebuilt = found
        for name, unit, value, moved in _moved_rooflines(roofline, _profile_of(self.source)):
            reach = (value / HARDWARE_REACH, value * HARDWARE_REACH) if unit else WIDTHS

            def wins(x: float, moved: Callable[[float], Roofline] = moved) -> bool:
                return replace(self, source=rebuilt(moved(x))).wins()

            yield FlipInput(
                name=name,
                unit=unit,
                value=value,
                below=_possible(np.geomspace(value, min(value, reach[0]), _POINTS), moved),
                above=_possible(np.geomspace(value, max(value, reach[1]), _POINTS), moved),
                wins=_answers(wins),
            )


def _with_match_rate(source: BatchSource) -> Callable[[float], BatchSource] | None:
    """The source by the match rate of its lookup; None where its drafter is not known."""
    found = _roofline_of(source)
    if found is None or not isinstance(found[0].drafter, Lookup):
        return None
    roofline, rebuilt = found
    lookup = found[0].drafter
    return lambda rate: rebuilt(replace(roofline, drafter=replace(lookup, match_rate=rate)))


def _moved_rooflines(
    source: Roofline, profile: Profile | None
) -> Iterator[tuple[str, str, float, Callable[[float], Roofline]]]:
    """What of a roofline can be moved, each with the roofline of another value of it."""
    part = replace(source.accelerator, measured=())  # a slower part must not be below what was measured
    yield (
        "memory_bytes_per_s",
        "B/s",
        part.memory_bytes_per_s,
        lambda x: replace(source, accelerator=replace(part, memory_bytes_per_s=x)),
    )
    peak = part.peak(sorted(source.target.compute_dtypes)[0]).flops_per_s

    def with_peak(x: float) -> Roofline:
        peaks = {dtype: rate * (x / peak) for dtype, rate in part.peak_flops_per_s.items()}
        return replace(source, accelerator=replace(part, peak_flops_per_s=peaks))

    yield "peak_flops_per_s", "FLOP/s", peak, with_peak
    link = part.link_bytes_per_s if source.link_bytes_per_s is None else source.link_bytes_per_s
    if source.layout.devices > 1 and link is not None:
        yield "link_bytes_per_s", "B/s", link, lambda x: _with_link(source, profile, x)
    yield (
        "target_bytes_per_param",
        "",
        _mean_width(source.target),
        lambda x: _with_target(source, _with_width(source.target, x)),
    )
    drafter = source.drafter
    if isinstance(drafter, RunsModel) and drafter.model.weight_bytes:
        width = _mean_width(drafter.model)

        def with_draft_width(x: float) -> Roofline:
            return replace(source, drafter=replace(drafter, model=_with_width(drafter.model, x)))

        yield "draft_bytes_per_param", "", width, with_draft_width


def _with_link(source: Roofline, profile: Profile | None, link_bytes_per_s: float) -> Roofline:
    """The roofline with another link, and the latency that its profile gives such a link."""
    if profile is None:
        return replace(source, link_bytes_per_s=link_bytes_per_s)
    efficiency, host = profile.on(
        source.accelerator,
        link_bytes_per_s=link_bytes_per_s,
        graph_sizes=source.efficiency.graph_sizes,
    )
    return replace(source, link_bytes_per_s=link_bytes_per_s, efficiency=efficiency, host=host)


def _with_target(source: Roofline, target: ModelShape) -> Roofline:
    """The roofline with another target, which drafts with its own first layers if it does now."""
    drafter = source.drafter
    if isinstance(drafter, EarlyExit):
        drafter = replace(drafter, target=target)
    return replace(source, target=target, drafter=drafter)


def _profile_of(source: Any) -> Profile | None:
    """The profile inside a source; None where there is none."""
    if isinstance(source, Profile):
        return source
    if isinstance(source, Roofline) or not is_dataclass(source) or isinstance(source, type):
        return None
    found = (_profile_of(getattr(source, field.name)) for field in fields(source))
    return next((profile for profile in found if profile is not None), None)


def _roofline_of(source: Any) -> tuple[Roofline, Callable[[Roofline], Any]] | None:
    """The roofline inside a source, and the source with another one in its place."""
    if isinstance(source, Roofline):
        return source, lambda roofline: roofline
    if not is_dataclass(source) or isinstance(source, type):
        return None
    for field in fields(source):
        inner = _roofline_of(getattr(source, field.name))
        if inner is not None:
            return inner[0], partial(_with_inner, source, field.name, inner[1])
    return None


def _with_inner(source: Any, name: str, rebuilt: Callable[[Roofline], Any], roofline: Roofline) -> Any:
    return replace(source, **{name: rebuilt(roofline)})


def _possible(values: FloatArray, moved: Callable[[float], Roofline]) -> FloatArray:
    """The values up to the first of which no part or model can be made."""
    for place, value in enumerate(values.tolist()):
        try:
            moved(value)
        except InputError:
            return values[: max(1, place)]
    return values


def _mean_width(model: ModelShape) -> float:
    sizes = [(group.stored_params, group.bytes_per_param) for group in model.weights]
    sizes += [(group.stored_params, group.bytes_per_param) for group in model.experts]
    return sum(params * width for params, width in sizes) / sum(params for params, _ in sizes)


def _with_width(model: ModelShape, bytes_per_param: float) -> ModelShape:
    """The model with weights of another mean width, computed in the same dtypes."""
    factor = bytes_per_param / _mean_width(model)
    weights = (replace(group, bytes_per_param=group.bytes_per_param * factor) for group in model.weights)
    experts = (replace(group, bytes_per_param=group.bytes_per_param * factor) for group in model.experts)
    return replace(model, weights=tuple(weights), experts=tuple(experts))


def _within(name: str, value: float, low: float, high: float, wins: Wins) -> FlipInput:
    """An input between two bounds."""
    below = np.linspace(value, low, _POINTS) if value > low else np.array([value])
    above = np.linspace(value, high, _POINTS) if value < high else np.array([value])
    if high == _MOST_STEPS and value > 0:
        above = np.geomspace(value, max(high, value), _POINTS)
    return FlipInput(name=name, value=value, below=below, above=above, wins=wins)


def _whole(name: str, value: int, high: int, wins: Wins) -> FlipInput:
    """An input that takes every whole number from 1."""
    return FlipInput(
        name=name,
        value=float(value),
        below=np.arange(value, 0, -1, dtype=float),
        above=np.arange(value, high + 1, dtype=float),
        wins=wins,
        whole=True,
    )


def _answers(function: Callable[[float], bool]) -> Wins:
    return lambda values: np.array([function(float(value)) for value in values])
