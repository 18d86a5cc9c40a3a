"""Which places are timed: every width where widths matter most, a few elsewhere, and only what fits.

Nothing here needs torch: the grid of a dry run is made from the counts of the catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from specmath.calibrations import Place
from specmath.model import ModelShape
from specmath.units import format_quantity

DENSE_WIDTHS: Final = (*range(1, 10), 12, 16)
COARSE_WIDTHS: Final = (1, 2, 5, 9)
QUICK_DENSE_WIDTHS: Final = (1, 2, 3, 5, 9)
QUICK_COARSE_WIDTHS: Final = (1, 5, 9)
KS: Final = (1, 2, 4, 8)
QUICK_KS: Final = (1, 4)
GPU_BATCHES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)
GPU_CONTEXTS: Final = (512, 8192)
CPU_BATCHES: Final = (1, 2, 4, 8)
CPU_CONTEXTS: Final = (128, 1024)
LARGE_BATCH: Final = 64
"""Batch at most at which every width is timed beside the smallest."""
USABLE_SHARE: Final = 0.92
"""Of the free memory; the rest goes to activations, captured graphs and fragments."""
_LOGITS_BYTES: Final = 12
"""Of one logit: in the model's dtype, in float32, and a copy of that."""
REPEATS: Final = 12
"""Warm-ups, repeats to the usual precision, and getting ready, in passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Places to be timed, and those that were left out.

    Attributes:
        places: In ascending order of part, batch, width, context.
        left_out: Places that do not fit, each with the reason in figures.
        peak_bytes: Memory of weights, caches and logits at the largest place; None without the shape.
    """

    places: tuple[Place, ...]
    left_out: tuple[tuple[Place, str], ...] = ()
    peak_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The pair as the grid needs it.

    Attributes:
        target: Its shape in the dtype that runs; None where specmath does not know it, and nothing is cut.
        draft: The same of the draft model; None also for a lookup.
        free_bytes: Memory free before the weights are loaded; None where it is not known.
    """

    target: ModelShape | None = None
    draft: ModelShape | None = None
    free_bytes: float | None = None

    @property
    def weight_bytes(self) -> float:
        """Bytes of the weights of both."""
        return sum(shape.weight_bytes for shape in (self.target, self.draft) if shape)

    def needed_bytes(self, batch: int, context: int, width: int) -> float:
        """Bytes of weights, both caches as they are held here (windows whole), and logits of a pass."""
        cached = batch * (context + width)
        caches = sum(shape.kv_bytes_per_token * cached for shape in (self.target, self.draft) if shape)
        logits = self.target.vocab * batch * width * _LOGITS_BYTES if self.target else 0
        return self.weight_bytes + caches + logits


def default_grid(
    models: Models | None = None,
    *,
    on_gpu: bool = True,
    batches: Sequence[int] | None = None,
    contexts: Sequence[int] | None = None,
    widths: Sequence[int] | None = None,
    ks: Sequence[int] | None = None,
    quick: bool = False,
    has_draft: bool = True,
    has_host: bool = True,
) -> Grid:
    """The places of a calibration.

    At the smallest batch and at a large one (the largest up to `LARGE_BATCH`) every width from 1 to 9, then
    12 and 16; 1, 2, 5 and 9 elsewhere. Draft chains of each k at each batch and context; the host at each
    batch.

    Args:
        models: The pair and the free memory; None cuts nothing.
        on_gpu: Whether the defaults are those of a GPU.
        batches: Sequences; None for the default.
        contexts: Tokens in the cache; None for the default.
        widths: Tokens of each sequence in a target pass, at every batch; None for the above.
        ks: Draft lengths; None for 1, 2, 4, 8.
        quick: Fewer batches and widths, the first context only.
        has_draft: Whether drafting takes time of its own.
        has_host: Whether the host is timed.

    Returns:
        The places that fit, and the others with the reason.
    """
    models = models or Models()
    batches = sorted(set(batches or _defaults(GPU_BATCHES if on_gpu else CPU_BATCHES, quick, step=3)))
    contexts = sorted(set(contexts or _defaults(GPU_CONTEXTS if on_gpu else CPU_CONTEXTS, quick, step=2)))
    ks = sorted(set(ks or (QUICK_KS if quick else KS)))
    asked = list(_target_places(batches, contexts, widths, quick))
    if has_draft:
        asked += [
            Place(part="draft", batch=batch, width=k, context=context)
            for batch in batches
            for context in contexts
            for k in ks
        ]
    if has_host:
        asked += [Place(part="plain-host", batch=batch, width=1, context=0) for batch in batches]
        asked += [
            Place(part="step-host", batch=batch, width=k + 1, context=0) for batch in batches for k in ks
        ]
    return _fitting(models, sorted(asked))


def large_batch(batches: Iterable[int]) -> int:
    """The largest batch up to `LARGE_BATCH`; the smallest one where all are larger.

    >>> large_batch([1, 8, 64, 256])
    64
    """
    ordered = sorted(batches)
    return max((batch for batch in ordered if batch <= LARGE_BATCH), default=ordered[0])


def estimated_s(
    grid: Grid,
    models: Models,
    *,
    bytes_per_s: float,
    flops_per_s: float,
    fixed_s: float = 1e-3,
    repeats: int = REPEATS,
) -> float:
    """Seconds that timing the grid takes, roughly: for a dry run, before anything was timed.

    Args:
        grid: The places.
        models: Their shapes; unknown ones count as nothing but `fixed_s`.
        bytes_per_s: Bandwidth of the memory in B/s, above 0.
        flops_per_s: Rate of the arithmetic in FLOP/s, above 0.
        fixed_s: Of one pass beside both.
        repeats: How often each place runs.
    """
    return repeats * sum(_pass_s(place, models, bytes_per_s, flops_per_s, fixed_s) for place in grid.places)


def _pass_s(place: Place, models: Models, bytes_per_s: float, flops_per_s: float, fixed_s: float) -> float:
    if place.part in ("plain-host", "step-host"):
        return fixed_s
    is_target = place.part == "target"
    shape = models.target if is_target else models.draft
    passes, width = (1, place.width) if is_target else (place.width, 1)
    if shape is None:
        return passes * fixed_s
    read = shape.weight_bytes + shape.kv_bytes_per_token * place.batch * (place.context + width)
    arithmetic = 2 * shape.multiplied_params * place.batch * width
    return passes * (fixed_s + max(read / bytes_per_s, arithmetic / flops_per_s))


def _defaults(values: Sequence[int], quick: bool, *, step: int) -> Sequence[int]:
    return values[::step] if quick else values


def _target_places(
    batches: Sequence[int], contexts: Sequence[int], widths: Sequence[int] | None, quick: bool
) -> Iterable[Place]:
    dense, coarse = (QUICK_DENSE_WIDTHS, QUICK_COARSE_WIDTHS) if quick else (DENSE_WIDTHS, COARSE_WIDTHS)
    every = {batches[0], large_batch(batches)}
    for batch in batches:
        for width in widths or (dense if batch in every else coarse):
            for context in contexts:
                yield Place(part="target", batch=batch, width=width, context=context)


def _fitting(models: Models, asked: Sequence[Place]) -> Grid:
    reasons = {place: reason for place in asked if (reason := _reason(models, place))}
    kept = tuple(place for place in asked if place not in reasons)
    passes = [place for place in kept if place.part in ("target", "draft")]
    peak = max((models.needed_bytes(one.batch, one.context, one.width) for one in passes), default=0.0)
    return Grid(places=kept, left_out=tuple(reasons.items()), peak_bytes=peak if models.target else None)


def _reason(models: Models, place: Place) -> str:
    """Why a place cannot run; empty where it can."""
    if place.part not in ("target", "draft"):
        return ""
    longest = [shape.max_context for shape in (models.target, models.draft) if shape and shape.max_context]
    if longest and place.context + place.width > min(longest):
        return (
            f"{place.context + place.width:,} tokens are more than the {min(longest):,} that the pair takes"
        )
    needed = models.needed_bytes(place.batch, place.context, place.width)
    usable = None if models.free_bytes is None else USABLE_SHARE * models.free_bytes
    if usable is None or needed <= usable:
        return ""
    return f"needs {format_quantity(needed, 'B')}, {format_quantity(usable, 'B')} are usable"
