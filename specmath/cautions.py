"""Where a profile's evidence is thin: what goes wrong, by how much the range is widened, what to do.

The factors are round judgements made after looking at where the public measurements missed the profiles; for
small targets there are no public rows at all. So the coverage that `specmath accuracy` prints of all rows is
in part of the data's own making; that of its row "each source left out" is not. None of them moves the
forecast itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray
from specmath.drafters.base import Drafter
from specmath.evidence import BLOCK_METHODS, MEDIUM_BATCH, measured_evidence
from specmath.execution import SIXTEEN_BIT
from specmath.model import ModelShape
from specmath.results import Advice
from specmath.roofline_source import Roofline

SMALL_TARGET_PARAMS = 2e9
"""Dense targets below this run at the pace of the host in most engines."""
BUSY_BATCH = MEDIUM_BATCH
"""Batch beyond which engines spend host time per request that no constant of the profiles covers well."""
MEASURE = "give one measured pair as --measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """One weak spot of a forecast.

    Attributes:
        advice: Code, reason and remedy.
        dearer: Factor by which the step may cost more than the range says, at least 1.
        cheaper: Factor by which it may cost less, at least 1.
        above_batch, up_to_batch: It holds for batches between them only.
    """

    advice: Advice
    dearer: float
    cheaper: float = 1.0
    above_batch: float = 0
    up_to_batch: float = math.inf

    @property
    def scoped(self) -> bool:
        """Whether it holds at some batches only."""
        return self.above_batch > 0 or self.up_to_batch < math.inf

    def applies(self, batch: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """At which of these batches it holds."""
        sequences = np.asarray(batch)
        return np.asarray((sequences > self.above_batch) & (sequences <= self.up_to_batch))


def cautions(source: Roofline) -> tuple[Caution, ...]:
    """The weak spots of a profile's forecast for this pair on this part.

    Source: judgement, from misses of profile forecasts against public measurements; see docs/accuracy.md.
    """
    return tuple(_found(source))


def widened(
    least: FloatArray, most: FloatArray, found: tuple[Caution, ...], batch: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """The range of a step cost, widened where a caution holds."""
    for caution in found:
        holds = caution.applies(batch)
        most = np.where(holds, most * caution.dearer, most)
        least = np.where(holds, least / caution.cheaper, least)
    return least, most


def _found(source: Roofline) -> Iterator[Caution]:
    target, drafter = source.target, source.drafter
    if not target.counts_only and not target.experts and target.total_params < SMALL_TARGET_PARAMS:
        yield _small_target(target)
    if source.accelerator.vendor == "Apple" and _quantized(target):
        yield _quantized_metal(target)
    if drafter.method in BLOCK_METHODS:
        yield _block_drafter(drafter)
    if source.name in ("vllm", "sglang"):
        yield _busy_engine(source.name)
    yield from _thin_evidence(drafter.method, source.layout.devices)


def _thin_evidence(method: str, devices: int) -> Iterator[Caution]:
    """Batches for which too little of this way of drafting has been measured in public."""
    edges = {1: (0, 1), MEDIUM_BATCH: (1, MEDIUM_BATCH), MEDIUM_BATCH + 1: (MEDIUM_BATCH, math.inf)}
    for batch, (above, up_to) in edges.items():
        advice = measured_evidence(method, devices, batch).advice
        if advice is not None:
            yield Caution(advice=advice, dearer=1.15, cheaper=1.1, above_batch=above, up_to_batch=up_to)


def _small_target(target: ModelShape) -> Caution:
    text = f"{target.name} has {target.total_params / 1e9:.2g}B parameters: below 2B the host sets the pace"
    return Caution(advice=_to_measure("small-target", text), dearer=1.5, cheaper=1.3)


def _quantized_metal(target: ModelShape) -> Caution:
    text = f"what a row of {target.name} costs in Metal's quantised kernels differs twofold between versions"
    return Caution(advice=_to_measure("quantised-metal", text), dearer=1.1, cheaper=1.1)


def _block_drafter(drafter: Drafter) -> Caution:
    text = f"the draft time of {drafter.method} is not measured; implementations differ widely"
    return Caution(advice=_to_measure("block-drafter", text), dearer=1.3, cheaper=1.1)


def _busy_engine(name: str) -> Caution:
    text = f"above batch {BUSY_BATCH} {name} spends host time on each request that differs between versions"
    return Caution(advice=_to_measure("busy-engine", text), dearer=1.2, above_batch=BUSY_BATCH)


def _to_measure(code: str, text: str) -> Advice:
    return Advice(code=code, text=text, remedy=MEASURE, until_measured=True)


def _quantized(target: ModelShape) -> bool:
    read = sum(group.read_params for group in target.weights)
    narrow = sum(group.read_params for group in target.weights if group.bytes_per_param < SIXTEEN_BIT)
    return narrow > read / 2
