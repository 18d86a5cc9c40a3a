"""Measured pairs that correct a source of step times: the source keeps the shape, they set the level.

One measured pair fixes the factor on R = E/S that the model missed, several k how it runs over k, several
batches how it grows. The result is a source like any other, of case `measured`, and every
question can be asked of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from specmath.anchor_distance import DATASHEET_DRIFT, DRIFT, doublings_away
from specmath.checks import FloatArray, require_range
from specmath.corrected_steps import corrected_step
from specmath.corrections import Correction, Evidence, Growth, chosen_correction
from specmath.errors import InputError
from specmath.measurement_doubts import doubts_beside_model
from specmath.measurements import Measurement, context_text, doubts
from specmath.results import Advice, Cell
from specmath.sources import BatchSource, StepCost
from specmath.units import format_significant
from specmath.verdicts import REPEAT_NOISE

MAX_MEASUREMENTS = 500
"""Most measurements taken at once: each of them is left out once."""
ROUNDING = 1e-9
"""What a range is wider, so that rounding does not shut out the measurements that it is drawn from."""
REMEDY = "measure a pair at such a batch too"


def anchored(source: BatchSource, measurements: Sequence[Measurement]) -> Anchored:
    """The source, corrected so that it agrees with measured pairs.

        R = g(B)·(a + b·R_model + d·k)

    A single pair sets b, and a = d = 0. Two k at one batch set a factor each, joined between them and held
    outside; with a third pair they may set a as well, or else d. Several batches set g, straight in log batch
    between those measured and constant outside them. From three measurements on, what does not predict
    left-out ones better is left away. Where times were measured, the plain step is scaled to them as well.

    Assumes that all measurements are of the set-up that the source describes.

    Args:
        source: Step times of the model pair.
        measurements: Pairs with and without speculation, one to `MAX_MEASUREMENTS`.

    Raises:
        InputError: for no measurement, too many, or one without a plain run to compare with.

    >>> from specmath.additive import AdditiveCost
    >>> from specmath.additive_source import Additive
    >>> zero = dict.fromkeys(["kv_s_per_token", "kv_reread", "draft_s_per_sequence", "draft_kv_s_per_token",
    ...                       "overhead_s", "plain_overhead_s", "compute_s_per_token"], 0.0)
    >>> source = Additive(cost=AdditiveCost(weights_s=0.010, draft_fixed_s=0.001, **zero), name="a toy")
    >>> pair = Measurement(k=2, batch=1, acceptance_length=2.4, speedup=1.6)  # R = 1.5, modelled 1.2
    >>> measured = anchored(source, [pair])
    >>> round(float(measured.step_cost(4, 1, 0).in_plain_steps), 12)  # 1.25 times the modelled 1.4
    1.75
    """
    pairs = tuple(measurements)
    if not 0 < len(pairs) <= MAX_MEASUREMENTS:
        raise InputError("measured", f"takes 1 to {MAX_MEASUREMENTS} measurements, got {len(pairs)}")
    modelled = [_modelled(source, pair) for pair in pairs]
    evidence = _evidence(pairs, [float(cost.in_plain_steps) for cost in modelled])
    fit = chosen_correction(evidence)
    return Anchored(
        source=source,
        measurements=pairs,
        correction=fit.correction,
        left_out=fit.left_out,
        residuals=fit.residuals,
        doubts=(*doubts(pairs), *doubts_beside_model(pairs, modelled)),
        plain_growth=_plain_growth(pairs, [float(cost.plain_s) for cost in modelled]),
    )


def leave_one_out(source: BatchSource, measurements: Sequence[Measurement]) -> FloatArray:
    """Relative error of R at each measurement, the source being anchored to all others.

    The kind of correction is the one chosen from all of them.

    Raises:
        InputError: as `anchored`, and for a single measurement.
    """
    if len(measurements) < 2:
        raise InputError("measured", "must hold two measurements at least, to leave one out")
    return np.asarray(np.expm1(anchored(source, measurements).left_out))


def _modelled(source: BatchSource, pair: Measurement) -> StepCost:
    return source.step_cost(pair.k, pair.batch, pair.context, width=pair.width, passes=pair.passes)


def _evidence(pairs: Sequence[Measurement], modelled: Sequence[float]) -> Evidence:
    measured = np.array([pair.in_plain_steps for pair in pairs])
    if np.isnan(measured).any():
        pair = pairs[int(np.flatnonzero(np.isnan(measured))[0])]
        place = pair.where or pair.text
        text = f"{place} has no run without speculation at its batch and context ({pair.batch}, "
        told = f"{text}{context_text(pair.context)})"
        raise InputError("measured", f"{told}; add a row with k = 0 there, or give both arms: off=…,on=…")
    return Evidence(
        k=np.array([float(pair.k) for pair in pairs]),
        batch=np.array([float(pair.batch) for pair in pairs]),
        modelled=np.asarray(modelled),
        measured=measured,
        width=np.array([float(_widening(pair)[0]) for pair in pairs]),
    )


def _widening(pair: Measurement) -> tuple[int, int]:
    """Width and passes, those of a chain where the measurement names none."""
    width = pair.k + 1 if pair.width is None else pair.width
    return width, pair.k if pair.passes is None else pair.passes


def _plain_growth(pairs: Sequence[Measurement], modelled_s: Sequence[float]) -> Growth | None:
    """The factor on the plain step; None where no time was measured or modelled."""
    factors = np.array([pair.plain_step_s for pair in pairs]) / np.asarray(modelled_s)
    known = np.isfinite(factors)
    if not known.any():
        return None
    return Growth.through(np.array([float(pair.batch) for pair in pairs])[known], factors[known])


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchored:
    """A source of step times that was corrected by measurements; `anchored` makes it.

    Attributes:
        source: The source that gives the shape.
        measurements: What was measured.
        correction: From the source's R to the measured one.
        left_out: log(predicted/measured) of each measurement, left out of the fit.
        residuals: The same, taken into the fit: how far measurements of one place contradict each other.
        plain_growth: The factor on the source's plain step; None where no times were measured.
        asked_batches: First and last batch that a question asks for, to warn beyond the measured ones.
        doubts: Warnings of what in the measurements looks wrong.
        notes: Warnings of whoever read the measurements.
        taken: What else was taken from the measurements, as sentences.
    """

    source: BatchSource
    measurements: tuple[Measurement, ...]
    correction: Correction
    left_out: tuple[float, ...]
    residuals: tuple[float, ...] = ()
    plain_growth: Growth | None = None
    asked_batches: tuple[float, float] | None = None
    doubts: tuple[Advice, ...] = ()
    notes: tuple[Advice, ...] = ()
    taken: tuple[str, ...] = ()

    @property
    def case(self) -> str:
        return "measured"

    @property
    def basis(self) -> str:
        return f"by the {self.source.case} model scaled to {_counted(len(self.measurements))}"

    @property
    def inputs(self) -> Mapping[str, Cell]:
        told = [pair.text for pair in self.measurements[:8]]
        more = len(self.measurements) - len(told)
        return {**self.source.inputs, "measured": "; ".join(told) + (f"; … {more} more" if more else "")}

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"step cost scaled to {_counted(len(self.measurements))}: {self.correction.text}",
            *self.taken,
            self._range_text,
            *self._left_out_text,
            *self._plain_text,
            *self.source.assumptions,
        )

    @property
    def _range_text(self) -> str:
        low, high = self.measured_batches
        batches = f"batch {low:g}" if low == high else f"batch {low:g} to {high:g}"
        return (
            f"measured at {batches}; elsewhere the nearest correction is kept and the range widens from "
            f"±{math.expm1(self._base):.0%} with the doublings of batch, k + 1 and context in between"
        )

    @property
    def _left_out_text(self) -> tuple[str, ...]:
        if len(self.measurements) < 3:
            return ()
        errors = np.abs(np.expm1(np.asarray(self.left_out)))
        told = f"{np.median(errors):.1%} (median) and {errors.max():.1%} (worst)"
        return (f"each measurement left out in turn, the others predict its step within {told}",)

    @property
    def _plain_text(self) -> tuple[str, ...]:
        if self.plain_growth is None:
            return ("times are the model's: only ratios were measured",)
        factors = np.exp(self.plain_growth.log_factors)
        low, high = (format_significant(float(value), 3) for value in (factors.min(), factors.max()))
        told = low if low == high else f"{low} to {high}"
        return (f"the plain step is {told} times the modelled one, as measured",)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        left = [advice for advice in self.source.warnings if not advice.until_measured]
        return (*self.notes, *self.doubts, *self._beyond(), *left)

    def _beyond(self) -> tuple[Advice, ...]:
        if self.asked_batches is None:
            return ()
        (low, high), (first, last) = self.measured_batches, self.asked_batches
        outside = [batch for batch in (first, last) if not low <= batch <= high]
        if not outside:
            return ()
        farthest = max(outside, key=lambda batch: max(batch / high, low / batch))
        measured = f"{low:g}" if low == high else f"{low:g} to {high:g}"
        return (
            Advice(
                code="outside-the-measured-batches",
                text=f"batch {farthest:,.0f} is outside the measured batches ({measured}): "
                "the nearest correction is kept there and the range is wider",
                remedy=f"measure a pair at batch {farthest:,.0f} too",
            ),
        )

    @property
    def measured_batches(self) -> tuple[int, int]:
        """The smallest and the largest batch measured."""
        batches = [pair.batch for pair in self.measurements]
        return min(batches), max(batches)

    def asked(
        self, batch: npt.ArrayLike, *, notes: Sequence[Advice] = (), taken: Sequence[str] = ()
    ) -> Anchored:
        """The same source, which warns where one of these batches is outside the measured ones."""
        batches = require_range("batch", batch, above=0)
        ends = (float(batches.min()), float(batches.max()))
        return replace(self, asked_batches=ends, notes=tuple(notes), taken=tuple(taken))

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> StepCost:
        """The source's cost, its total corrected; the parts are those of `corrected_step`."""
        cost = self.source.step_cost(k, batch, context, width=width, passes=passes)
        plain_factor = 1.0 if self.plain_growth is None else self.plain_growth.at(batch)
        return corrected_step(cost, self.correction, k, batch, plain_factor=plain_factor)

    def step_bounds(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """R divided and multiplied by a factor that grows with the distance from what was measured.

        Where measured it is the repeat noise, or the error of measurements left out where that is larger;
        never wider than the range of the source itself, unless the measurements lie farther from the fit.
        """
        steps = self.step_cost(k, batch, context, width=width, passes=passes).in_plain_steps
        own = self.source.step_bounds(k, batch, context, width=width, passes=passes)
        tokens = np.asarray(k) + 1 if width is None else width
        place = (k, batch, context, tokens, k if passes is None else passes)
        drift = DATASHEET_DRIFT if own is None else DRIFT
        spread = np.sqrt(self._base**2 + drift**2 * doublings_away(self._points, place))
        if own is not None:
            least, most = own
            known = np.log(most / least) / 2  # 0 where nothing is drafted
            spread = np.where(known > 0, np.maximum(np.minimum(spread, known), self._disagreement), 0.0)
        return np.asarray(steps * np.exp(-spread)), np.asarray(steps * np.exp(spread))

    @property
    def _points(self) -> set[tuple[float, float, float, float, float]]:
        return {(pair.k, pair.batch, pair.context, *_widening(pair)) for pair in self.measurements}

    @property
    def _base(self) -> float:
        """Log half-width of the range at a measured point."""
        noise = max(math.log1p(REPEAT_NOISE), self._disagreement)
        if len(self.measurements) < 3:
            return noise
        return max(noise, float(np.quantile(np.abs(self.left_out), 0.8)))

    @property
    def _disagreement(self) -> float:
        """How far four in five measurements lie from the fit; 0 within the repeat noise."""
        apart = float(np.quantile(np.abs(self.residuals), 0.8, method="higher")) if self.residuals else 0.0
        return apart * (1 + ROUNDING) if apart > math.log1p(REPEAT_NOISE) else 0.0

    def warnings_at(self, k: int, batch: npt.ArrayLike, undecided: int) -> tuple[Advice, ...]:
        """What the source warns of at these batches, and not at the measured ones too."""
        measured = np.unique([pair.batch for pair in self.measurements])
        over = self.source.warnings_at(k, measured, undecided)
        left = [advice for advice in self.source.warnings_at(k, batch, undecided) if advice not in over]
        return tuple(replace(advice, remedy=REMEDY) if advice.until_measured else advice for advice in left)

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        return self.source.max_batches(k, context)

    @property
    def max_k(self) -> int | None:
        return self.source.max_k

    @property
    def ridge_tokens(self) -> float:
        return self.source.ridge_tokens

    @property
    def match_rate(self) -> float:
        return self.source.match_rate

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        """Not known: the closed form of the source does not hold for corrected costs."""
        return np.full(np.broadcast_shapes(np.shape(acceptance_length), np.shape(k)), np.nan)

    def derivation(self, k: int, batch: int, context: float, *, width: int, passes: int) -> tuple[str, ...]:
        lines = self.source.derivation(k, batch, context, width=width, passes=passes)
        modelled = self.source.step_cost(k, batch, context, width=width, passes=passes).in_plain_steps
        steps = self.step_cost(k, batch, context, width=width, passes=passes).in_plain_steps
        told = f"R_model = {float(modelled):.4f}, corrected R = {float(steps):.4f}"
        return (*lines, f"measured: {self.correction.text}: {told}")


def _counted(count: int) -> str:
    return "1 measured pair" if count == 1 else f"{count} measured pairs"
