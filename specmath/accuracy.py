"""How wrong is this tool? Measured rows rerun against a predictor, with trivial rivals on the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Final

import numpy as np

from specmath.checks import FloatArray
from specmath.errors import InputError, SpecmathError
from specmath.measured_speedups import MeasuredSpeedup
from specmath.measurement_files import public_measurements
from specmath.profile_catalogue import IDEAL_PROFILE, load_profile
from specmath.scoring import (
    Score,
    anchored_predictions,
    left_out_line,
    left_out_ranges,
    range_floor,
    score_predictions,
    setup_weights,
)
from specmath.setups import Prediction, predictions, profiled_of, roofline_of, textbook_speedup
from specmath.sources import StepTimeSource
from specmath.strata import DIMENSIONS, evidence_of, stratified

OWN: Final = "own"
"""Each row by the profile of its own engine."""
SHOWN_DIMENSIONS: Final = ("collection", "batch", "context", "tp", "method", "engine")
"""Strata shown where none are asked for; `source` has too many."""
FLOOR_SHARE: Final = 0.8
"""Share of the rows that a floor of the range is to hold."""
ALL_ROWS: Final = "all rows"
EACH_SETUP_ONCE: Final = "each set-up once"
CONSTANT: Final = 1.6
DIVISOR: Final = 1.5
"""The trivial rivals' constants: round figures near the middle of what has been published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredGroup:
    """The score of one predictor on one group of rows.

    Attributes:
        group: The rows in words.
        predictor: Whose predictions.
        score: What they are worth.
        sources: Sources of the rows.
        is_thin: Whether the group has too few set-ups or sources for its figures to mean anything.
    """

    group: str
    predictor: str
    score: Score
    sources: int
    is_thin: bool


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """Measured rows with their predictions.

    Attributes:
        measurements: All rows, usable or not.
        predictions: Of each row; None where there is none.
        reasons: Why there is none, by row; empty where there is one.
        predictor: Name of the predictor.
    """

    measurements: tuple[MeasuredSpeedup, ...]
    predictions: tuple[Prediction | None, ...]
    reasons: tuple[str, ...]
    predictor: str

    @cached_property
    def rows(self) -> tuple[MeasuredSpeedup, ...]:
        """The rows with a prediction."""
        pairs = zip(self.measurements, self.predictions, strict=True)
        return tuple(row for row, prediction in pairs if prediction is not None)

    @cached_property
    def predicted(self) -> tuple[Prediction, ...]:
        """Their predictions."""
        return tuple(prediction for prediction in self.predictions if prediction is not None)

    @cached_property
    def measured(self) -> FloatArray:
        """Their measured speed-ups."""
        return np.array([row.speedup for row in self.rows], dtype=np.float64)

    @cached_property
    def speedups(self) -> FloatArray:
        """Their predicted speed-ups."""
        return np.array([prediction.speedup for prediction in self.predicted])

    @cached_property
    def rivals(self) -> Mapping[str, FloatArray]:
        """What trivial means and the ideal roofline say of the same rows; NaN where they cannot tell."""
        lengths = np.array([row.acceptance_length for row in self.rows], dtype=np.float64)
        rivals = {
            f"E/{DIVISOR:g}": lengths / DIVISOR,
            f"constant {CONSTANT:g}": np.full(lengths.shape, CONSTANT),
            "textbook E/(1 + c·k)": _each(self.rows, textbook_speedup),
        }
        if self.predictor != IDEAL_PROFILE:
            rivals[IDEAL_PROFILE] = _each(
                self.rows, lambda row: predictions(roofline_of(row), [row])[0].speedup
            )
        return rivals

    @cached_property
    def setups(self) -> tuple[tuple[object, ...], ...]:
        """Their set-ups, made once: anchors ask for them in every pair."""
        return tuple(row.setup for row in self.rows)

    def left_out_counts(self) -> dict[str, int]:
        """Rows without a prediction, by reason, the most frequent first."""
        counts: dict[str, int] = {}
        for reason in filter(None, self.reasons):
            counts[reason] = counts.get(reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def scores(self, by: str | None = None) -> tuple[ScoredGroup, ...]:
        """All groups of the table: summary and rivals, what an anchor and a line in k buy, the strata.

        Args:
            by: One of `DIMENSIONS`, to see its strata instead of the usual ones.
        """
        if by is not None and by not in DIMENSIONS:
            raise InputError("by", f"must be one of {', '.join(DIMENSIONS)}, got {by!r}")
        if not self.rows:
            return ()
        everything = list(range(len(self.rows)))
        found = [*self._beside_rivals(ALL_ROWS, everything, once=False)]
        found += self._beside_rivals(EACH_SETUP_ONCE, everything, once=True)
        found += [*self._floor(), *self._anchors(), *self._k_lines()]
        for dimension in SHOWN_DIMENSIONS if by is None else (by,):
            for stratum, places in stratified(self.rows, dimension).items():
                found.append(self._group(f"{dimension}: {stratum}", places))
        return tuple(found)

    def _beside_rivals(self, group: str, places: list[int], *, once: bool) -> Iterator[ScoredGroup]:
        yield self._group(group, places, once=once)
        for name, speedups in self.rivals.items():
            known = [place for place in places if not np.isnan(speedups[place])]
            if known:
                yield self._scored(group, name, known, speedups[known], once=once)

    def _group(self, group: str, places: list[int], *, once: bool = False) -> ScoredGroup:
        """The predictor's own score, with its ranges where it has any."""
        ranges = [(self.predicted[place].low, self.predicted[place].high) for place in places]
        low, high = zip(*ranges, strict=True)
        known = None not in low
        return self._scored(
            *(group, self.predictor, places, self.speedups[places]),
            low=low if known else None,
            high=high if known else None,
            once=once,
        )

    def _scored(
        self,
        group: str,
        predictor: str,
        places: Sequence[int],
        speedups: FloatArray,
        *,
        low: Sequence[float | None] | None = None,
        high: Sequence[float | None] | None = None,
        once: bool = False,
    ) -> ScoredGroup:
        evidence = evidence_of(self.rows[place] for place in dict.fromkeys(places))
        score = score_predictions(
            speedups,
            self.measured[list(places)],
            low=None if low is None else np.array(low, dtype=np.float64),
            high=None if high is None else np.array(high, dtype=np.float64),
            setups=[self.setups[place] for place in places],
            each_setup_once=once,
        )
        return ScoredGroup(
            group=group,
            predictor=predictor,
            score=score,
            sources=evidence.sources,
            is_thin=evidence.is_thin,
        )

    def _floor(self) -> Iterator[ScoredGroup]:
        """How often a range that the other sources set holds what a source measured."""
        sources, setups = [row.source for row in self.rows], self.setups
        if len(set(sources)) > 1:
            low, high = left_out_ranges(self.speedups, self.measured, sources, setups, share=FLOOR_SHARE)
            least, most = range_floor(
                self.speedups, self.measured, share=FLOOR_SHARE, weights=setup_weights(setups)
            )
            name, places = f"{self.predictor}, ÷{least:.2f} … ×{most:.2f}", list(range(len(self.rows)))
            ranges = {"low": low.tolist(), "high": high.tolist()}
            yield self._scored("each source left out", name, places, self.speedups, **ranges, once=True)

    def _anchors(self) -> Iterator[ScoredGroup]:
        """Each row of a set-up as the anchor of its others, beside the same rows without one."""
        places, corrected, _ = anchored_predictions(self.speedups, self.measured, self.setups)
        if not places.size:
            return
        group, several = "set-ups of several rows", sorted(set(places.tolist()))
        yield self._scored(group, self.predictor, several, self.speedups[several], once=True)
        yield self._scored(group, f"{self.predictor}, one anchor", places.tolist(), corrected, once=True)

    def _k_lines(self) -> Iterator[ScoredGroup]:
        """Each k of a chain from a line through the other k, beside the same rows without one."""
        series = [(row.setup, row.batch, row.context, row.tree_nodes is None or row.id) for row in self.rows]
        lengths = np.array([row.acceptance_length for row in self.rows], dtype=np.float64)
        k = np.array([max(row.k or 0, 1) for row in self.rows])
        line = lengths / left_out_line(k, lengths / self.measured, series)
        places = np.flatnonzero(line > 0).tolist()
        if places:
            group = "three k or more"
            yield self._scored(group, self.predictor, places, self.speedups[places])
            yield self._scored(group, "line in k, that k left out", places, line[places])


def rerun_measurements(
    measurements: Iterable[MeasuredSpeedup] | None = None,
    *,
    predictor: str | Callable[[MeasuredSpeedup], Prediction] = OWN,
) -> Rerun:
    """Measured rows, each predicted from its own fields; nothing is fitted and nothing dropped for its error.

    Args:
        measurements: The rows; None for the public ones of `public_measurements`.
        predictor: `own` for the profile of each row's own engine, the name of one profile for all, `ideal`
            for the datasheet roofline; or a function of a row that returns a `Prediction` or raises one of
            specmath's errors, which then says why the row is left out.

    Raises:
        UnknownNameError: no profile has this name.

    >>> rerun = rerun_measurements(predictor="ideal")
    >>> len(rerun.measurements), len(rerun.rows)
    (816, 417)
    """
    rows = public_measurements() if measurements is None else tuple(measurements)
    if isinstance(predictor, str):
        outcomes = _by_source(rows, _source_of(predictor))
    else:
        outcomes = [_outcome(row, predictor) for row in rows]
    return Rerun(
        measurements=rows,
        predictions=tuple(prediction for prediction, _ in outcomes),
        reasons=tuple(reason for _, reason in outcomes),
        predictor=_label(predictor) if isinstance(predictor, str) else "yours",
    )


def _label(name: str) -> str:
    return name if name == IDEAL_PROFILE else f"{name} profile"


_Outcome = tuple[Prediction | None, str]


def _source_of(name: str) -> Callable[[MeasuredSpeedup], StepTimeSource]:
    """From a row to the source that predicts it; rows of one set-up share one."""
    if name == IDEAL_PROFILE:
        return roofline_of
    if name == OWN:
        return profiled_of
    load_profile(name)  # refuses an unknown name at once
    return partial(profiled_of, profile=name)


def _by_source(
    rows: Sequence[MeasuredSpeedup], source_of: Callable[[MeasuredSpeedup], StepTimeSource]
) -> list[_Outcome]:
    """Rows that share a source are predicted in one go: evaluating it costs as much for one as for all."""
    outcomes: list[_Outcome] = [(None, "") for _ in rows]
    shared: dict[int, tuple[StepTimeSource, list[int]]] = {}
    for place, row in enumerate(rows):
        try:
            if not row.is_usable:
                outcomes[place] = None, row.left_out or "not usable"
                continue
            source = source_of(row)
            shared.setdefault(id(source), (source, []))[1].append(place)
        except SpecmathError as error:
            outcomes[place] = None, str(error)
    for source, places in shared.values():
        for place, outcome in zip(places, _together(source, [rows[place] for place in places]), strict=True):
            outcomes[place] = outcome
    return outcomes


def _together(source: StepTimeSource, rows: Sequence[MeasuredSpeedup]) -> list[_Outcome]:
    """Predictions of rows that share a source; each for itself where one of them is beyond it."""
    try:
        return [(prediction, "") for prediction in predictions(source, rows)]
    except SpecmathError:
        return [_outcome(row, lambda one: predictions(source, [one])[0]) for row in rows]


def _outcome(row: MeasuredSpeedup, predict: Callable[[MeasuredSpeedup], Prediction]) -> _Outcome:
    if not row.is_usable:
        return None, row.left_out or "not usable"
    try:
        return predict(row), ""
    except SpecmathError as error:
        return None, str(error)


def _each(rows: Sequence[MeasuredSpeedup], speedup: Callable[[MeasuredSpeedup], float]) -> FloatArray:
    """The speed-up of each row; NaN where the row cannot be counted."""

    def known(row: MeasuredSpeedup) -> float:
        try:
            return speedup(row)
        except SpecmathError:
            return np.nan

    return np.array([known(row) for row in rows])
