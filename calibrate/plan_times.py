"""How long a calibration takes, before anything was timed: on a quiet machine and on a slow, noisy one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from calibrate.findings import LONGEST_PROMPT, PROOF_TOKENS, TEXTS_AT_ONCE
from calibrate.grid import Grid, Models, estimated_s, large_batch
from calibrate.models import RANDOM
from calibrate.proof import ROUNDS, WARM_STEPS
from calibrate.request_counts import samplings
from calibrate.requests import Request
from calibrate.timing import DRIFT_CELLS, DRIFT_REPEATS, MIN_REPEATS, WARM_UPS
from specmath.calibrations import Place
from specmath.units import format_quantity

_SLOW: Final = 5.0
"""Factor by which a machine may be slower than the rates assumed, with kernels launched one by one."""
_DRIFT_STAGES: Final = 3
_TYPICAL_PROMPT: Final = 128
"""Tokens of a prompt, which are not counted before the tokenizer is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Rates of a device: bytes and FLOP per second."""

    bytes_per_s: float
    flops_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTime:
    """Seconds of a run, at least and at most as far as sizes tell."""

    least_s: float
    most_s: float

    @property
    def text(self) -> str:
        """Both ends in words."""
        ends = [format_quantity(_rounded(end), "s") for end in (self.least_s, self.most_s)]
        return f"about {' to '.join(dict.fromkeys(ends))}"


def planned_time(request: Request, grid: Grid, models: Models, speed: Speed, *, prompts: int) -> PlannedTime:
    """What a run takes: warm-ups, the least repeats and, at most, all up to the limit; acceptance; the proof.

    Args:
        request: What is asked.
        grid: What is timed.
        models: Shapes of the pair.
        speed: Of the device, at best.
        prompts: Texts that are decoded for acceptance.
    """

    def spent_s(places: Grid, repeats: int) -> float:
        rates = {"bytes_per_s": speed.bytes_per_s, "flops_per_s": speed.flops_per_s}
        return estimated_s(places, models, **rates, repeats=repeats)

    once = spent_s(grid, 1)
    drift_s = DRIFT_CELLS * DRIFT_REPEATS * _DRIFT_STAGES * once / max(len(grid.places), 1)
    repeated_s = spent_s(grid, WARM_UPS + MIN_REPEATS) + drift_s
    decoded_s = sum(steps * spent_s(step, 1) for step, steps in _decoded(request, grid, prompts))
    timing_s = max(request.limit_s, _SLOW * repeated_s) if grid.places else 0.0
    return PlannedTime(least_s=repeated_s + decoded_s, most_s=timing_s + _SLOW * decoded_s)


def _decoded(request: Request, grid: Grid, prompts: int) -> Iterator[tuple[Grid, int]]:
    """Steps of acceptance and proof, each as its passes, and how many of them there are."""
    timed = [place for place in grid.places if place.part == "target"]
    if not timed:
        return
    is_random = any(name.startswith(RANDOM) for name in request.models)
    if "acceptance" not in request.skip and not is_random:
        texts = min(TEXTS_AT_ONCE[0], prompts)
        context = min(LONGEST_PROMPT, _TYPICAL_PROMPT) + request.new_tokens
        ways = len(samplings(request.temperatures, request.top_ps)) * -(-prompts // texts)
        yield _step(texts, 0, context), ways * request.new_tokens
        yield _step(texts, max(request.ks), context), ways * request.new_tokens
    if "proof" not in request.skip:
        batches = sorted({place.batch for place in timed})
        batches = [batch for batch in batches if batch <= large_batch(batches)]
        context = min(place.context for place in timed)
        steps = ROUNDS * (min(PROOF_TOKENS, max(context // 2, 8)) + WARM_STEPS)
        for batch in sorted({batches[0], batches[(len(batches) - 1) // 2], batches[-1]}):
            for k in (0, *request.ks):
                yield _step(batch, k, context), steps


def _step(batch: int, k: int, context: int) -> Grid:
    """The passes of one step and its host; k = 0 is a plain step."""
    target = Place(part="target", batch=batch, width=k + 1, context=context)
    if not k:
        return Grid(places=(target, Place(part="plain-host", batch=batch, width=1, context=0)))
    draft = Place(part="draft", batch=batch, width=k, context=context)
    return Grid(places=(target, draft, Place(part="step-host", batch=batch, width=k + 1, context=0)))


def _rounded(seconds: float) -> float:
    """Two digits: it is a guess."""
    return float(f"{seconds:.1e}")
