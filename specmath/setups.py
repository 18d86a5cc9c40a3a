"""From a measured row to the step-time source that predicts it: models, drafter, part, layout.

What a row leaves open is filled in one way for all rows and said in `FILLED`. A row that no source can be
made for raises one of specmath's errors, whose text is the reason why it has no prediction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from specmath.accelerator import Accelerator, Rates, Source
from specmath.catalogue import load_hardware
from specmath.drafters.base import Drafter
from specmath.drafters.methods import drafter_of
from specmath.errors import InputError
from specmath.execution import Layout
from specmath.measured_speedups import MeasuredSpeedup
from specmath.model import QUANTIZED_ROLES, ExpertGroup, ModelShape, WeightGroup
from specmath.model_catalogue import load_model
from specmath.number_formats import PLAIN, quantized_format
from specmath.profile_catalogue import load_profile
from specmath.profiled_source import Profiled, forecast_cases
from specmath.roofline_source import Roofline
from specmath.sources import StepTimeSource

UNSTATED_CONTEXT: Final = 500.0
"""Tokens in the cache where a source does not say: the middle of a chat turn."""
FILLED: Final = (
    f"a context that is not stated counts as {UNSTATED_CONTEXT:g} tokens",
    "a head without a file of its own is derived from its target",
    "lookup drafts count as matched in every step, since sources give no match rate",
    "parts without a known link between them use their host link",
    "weights of GGUF and MLX files are counted by their bits per weight, and multiplied in 16 bit",
)
"""What is taken for granted about rows that do not say."""
_MEMORY_UNKNOWN: Final = 1e15
_BY_BITS: Final = {
    "q4": (4.5, 4.5),  # MLX: groups of 64 with a 16-bit scale and bias
    "q4_k": (4.85, 6.56),  # GGUF: layers, then head
    "q5": (5.5, 6.56),
    "q8_0": (8.5, 8.5),
}
"""Bits per weight with scales, of the layers and of the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A predicted speed-up and its range; None where the source knows none."""

    speedup: float
    low: float | None = None
    high: float | None = None


def predictions(source: StepTimeSource, rows: Sequence[MeasuredSpeedup]) -> tuple[Prediction, ...]:
    """S = E/R of rows of one set-up, with R from the source at each row's k, tree, batch and context."""
    lengths = np.array([row.acceptance_length for row in rows], dtype=np.float64)
    drafted = np.array(
        [row.k if row.drafted_per_step is None else row.drafted_per_step for row in rows], float
    )
    nodes = np.array([row.tree_nodes or many for row, many in zip(rows, drafted, strict=True)])
    contexts = [UNSTATED_CONTEXT if row.context is None else row.context for row in rows]
    cells = (*np.array([(row.k, row.batch) for row in rows], dtype=np.float64).T, np.array(contexts))
    cost = source.step_cost(*cells, width=nodes + 1, passes=drafted)
    bounds = source.step_bounds(*cells, width=nodes + 1, passes=drafted)
    speedups = np.broadcast_to(lengths / cost.in_plain_steps, lengths.shape).tolist()
    if bounds is None:
        return tuple(Prediction(speedup=speedup) for speedup in speedups)
    low, high = (np.broadcast_to(lengths / bounds[end], lengths.shape).tolist() for end in (1, 0))
    return tuple(
        Prediction(speedup=speedup, low=least, high=most)
        for speedup, least, most in zip(speedups, low, high, strict=True)
    )


def profiled_of(row: MeasuredSpeedup, profile: str | None = None) -> Profiled:
    """The forecast of a row's set-up by a profile; None takes that of the row's engine.

    Research code and engines that are not stated count as eager code where the speculative arm ran eagerly,
    else as a typical engine.

    Raises:
        InputError, UnknownNameError: where the row names no target or part that can be counted, or where the
            profile is not made for the part.
    """
    named = profile or row.engine or "custom"
    if named == "custom":
        named = "transformers" if row.graphs is False else "typical"
    return _profiled(_Parts.of(row), named)


def roofline_of(row: MeasuredSpeedup) -> Roofline:
    """The ideal roofline of a row's set-up.

    Raises:
        InputError, UnknownNameError: where the row names no target or part that can be counted.
    """
    return _roofline(_Parts.of(row))


def textbook_speedup(row: MeasuredSpeedup) -> float:
    """E/(1 + c·passes), c the bytes of a draft pass over those of a plain step: free verification, no caches.

    Experts count with those that one token visits.
    """
    setup = roofline_of(row)
    draft, depth = setup.drafter.model, np.asarray(float(row.k or 0))
    passes = float(setup.drafter.work(depth, depth).passes)
    cost = 0.0 if draft is None else _active_bytes(draft) / _active_bytes(setup.target)
    return (row.acceptance_length or np.nan) / (1 + cost * passes)


def _active_bytes(shape: ModelShape) -> float:
    dense = sum(group.read_params * group.bytes_per_param for group in shape.weights)
    return dense + sum(group.active_params * group.bytes_per_param for group in shape.experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The fields of a row that a roofline depends on: rows that agree in them share one."""

    hardware: str | None
    stated_hardware: str | None
    memory_bytes_per_s: float | None
    flops_per_s: float | None
    vendor: str | None
    kind: str | None
    layout: Layout
    target: str | None
    stated_target: str | None
    method: str | None
    draft: str | None
    weights: str | None
    kv: str | None

    @classmethod
    def of(cls, row: MeasuredSpeedup) -> _Parts:
        degrees = {name: getattr(row, name) or 1 for name in ("tp", "dp", "ep", "pp")}
        return cls(
            hardware=row.hardware,
            stated_hardware=row.stated_hardware,
            memory_bytes_per_s=row.memory_bytes_per_s,
            flops_per_s=row.flops_per_s,
            vendor=row.vendor,
            kind=row.kind,
            layout=Layout(**degrees),
            target=row.target,
            stated_target=row.stated_target,
            method=row.method,
            draft=row.draft,
            weights=row.weights,
            kv=row.kv,
        )


@lru_cache(maxsize=4096)
def _profiled(parts: _Parts, profile: str) -> Profiled:
    ideal = _roofline(parts)
    return forecast_cases(
        load_profile(profile, ideal.accelerator),
        ideal.accelerator,
        ideal.target,
        ideal.drafter,
        layout=ideal.layout,
        link_bytes_per_s=ideal.link_bytes_per_s,
    )[0]


@lru_cache(maxsize=4096)
def _roofline(parts: _Parts) -> Roofline:
    part = _accelerator(parts)
    if parts.target is None:
        raise InputError("target", f"the catalogue has no {parts.stated_target or 'target of this row'}")
    target = _stored(load_model(parts.target), parts.weights, part)
    if parts.kv is not None and parts.kv not in PLAIN:
        target = target.with_kv_cache_dtype(parts.kv)
    link = None if part.link_bytes_per_s is not None else part.host_link_bytes_per_s
    return Roofline(
        accelerator=part,
        target=target,
        drafter=_drafter(parts, target, part),
        layout=parts.layout,
        link_bytes_per_s=link,
    )


def _accelerator(parts: _Parts) -> Accelerator:
    if parts.hardware is not None:
        return load_hardware(parts.hardware)
    if parts.memory_bytes_per_s is None or parts.flops_per_s is None:
        name = parts.stated_hardware or "part of this row"
        raise InputError("hardware", f"the bandwidth and peak of the {name} are not known")
    source = Source(key="row", title="the measured row", kind="derived")
    return Accelerator(
        name=parts.stated_hardware or "stated",
        title=parts.stated_hardware or "stated part",
        vendor=parts.vendor or "",
        kind=parts.kind or "gpu",
        peak_flops_per_s=Rates({"bf16": parts.flops_per_s, "fp16": parts.flops_per_s}),
        memory_bytes=_MEMORY_UNKNOWN,
        memory_bytes_per_s=parts.memory_bytes_per_s,
        confidence="low",
        sources=(source,),
    )


def _drafter(parts: _Parts, target: ModelShape, part: Accelerator) -> Drafter:
    method = "ngram" if parts.method == "lookup-tree" else parts.method
    if method is None:
        raise InputError("method", "is missing; say how the row drafts")
    if method in ("ngram", "suffix"):
        return drafter_of(target, method=method, match_rate=1.0)
    if parts.draft is None:
        return drafter_of(target, method=method)  # the target's own module, or a head derived from it
    draft = load_model(parts.draft)
    formatted = parts.weights if method == "draft-model" and parts.weights in _BY_BITS else None
    return drafter_of(target, _stored(draft, formatted, part), method=method)


def _stored(shape: ModelShape, weights: str | None, part: Accelerator) -> ModelShape:
    """The model as it is stored in a format; one that is as narrow already stays as it was released."""
    half = part.half_dtype
    if weights in PLAIN:
        return shape.with_dtype(weights) if weights in part.peak_flops_per_s else shape.with_dtype(half)
    if shape.activation_dtype == "bf16" != half:
        shape = shape.with_dtype(half)
    if weights is None:
        return shape
    if weights in _BY_BITS:
        return _by_bits(shape, weights)
    width = quantized_format(weights).bytes_per_param
    stored = [group.bytes_per_param for group in shape.weights]
    narrowest = min(stored + [group.bytes_per_param for group in shape.experts])
    return shape if narrowest <= width * 1.1 else shape.with_quantization(weights)


def _by_bits(shape: ModelShape, weights: str) -> ModelShape:
    layers, head = (bits / 8 for bits in _BY_BITS[weights])
    widths = dict.fromkeys(QUANTIZED_ROLES, layers) | {"head": head}

    def stored(group: WeightGroup) -> WeightGroup:
        return replace(group, bytes_per_param=widths.get(group.name, group.bytes_per_param))

    def routed(group: ExpertGroup) -> ExpertGroup:
        return replace(group, bytes_per_param=layers)

    return replace(
        shape,
        weights=tuple(map(stored, shape.weights)),
        experts=tuple(map(routed, shape.experts)),
        mtp=shape.mtp and _by_bits(shape.mtp, weights),
    )
