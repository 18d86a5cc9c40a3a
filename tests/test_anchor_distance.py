"""How anchored ranges grow: with which distance, by how much, and never beyond the source's own."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from specmath.anchor_distance import DATASHEET_DRIFT, DRIFT, covering_drift, doublings_away
from specmath.anchors import Anchored, anchored
from specmath.checks import FloatArray
from specmath.corrections import Evidence, chosen_correction, fitted_correction
from specmath.errors import SpecmathError
from specmath.measured_speedups import MeasuredSpeedup
from specmath.measurement_files import public_measurements
from specmath.measurements import Measurement
from specmath.setups import UNSTATED_CONTEXT, profiled_of, roofline_of
from specmath.verdicts import REPEAT_NOISE

PUBLIC = [row for row in public_measurements() if row.is_usable]
H100 = profiled_of(next(row for row in PUBLIC if row.hardware == "h100-sxm" and row.method == "eagle3"))
NOISE = math.log1p(REPEAT_NOISE)


def half_width(source: Anchored, k: int, batch: int, **shape: int) -> float:
    low, high = source.step_bounds(k, batch, 0, **shape)
    return float(np.log(high / low)) / 2


def measured(steps: dict[int, float]) -> list[Measurement]:
    """Pairs at batch 1 whose R is that of each k."""
    return [Measurement(k=k, batch=1, acceptance_length=1.9, speedup=1.9 / R) for k, R in steps.items()]


# The distance


@pytest.mark.parametrize(
    ("place", "doublings"),
    [
        pytest.param((3, 8, 0, 4, 3), 0, id="the chain measured"),
        pytest.param((7, 8, 0, 8, 7), 1, id="a longer chain: its width is no distance of its own"),
        pytest.param((3, 8, 0, 64, 3), 4, id="a tree of 63 nodes, of the same depth"),
        pytest.param((7, 8, 0, 8, 1), 3, id="a block of 7 in one pass"),
        pytest.param((3, 32, 0, 16, 3), 4, id="batch and width together"),
    ],
)
def test_distance_counts_widening_and_passes(place: tuple[int, int, int, int, int], doublings: float) -> None:
    assert doublings_away([(3, 8, 0, 4, 3)], place) == pytest.approx(doublings, abs=1e-12)


def test_a_chain_anchor_says_less_about_a_tree() -> None:
    free = Measurement(k=4, batch=1, acceptance_length=2.5, speedup=2.5 / 1.4)
    source = anchored(roofline_of(PUBLIC[0]), [free])
    assert half_width(source, 4, 1) == pytest.approx(NOISE, rel=1e-9)
    widened = math.hypot(NOISE, DATASHEET_DRIFT * math.sqrt(math.log2(65 / 5)))
    assert half_width(source, 4, 1, width=65) == pytest.approx(widened, rel=1e-9)
    tree = anchored(roofline_of(PUBLIC[0]), [replace(free, width=65, passes=4)])
    assert half_width(tree, 4, 1, width=65) == pytest.approx(NOISE, rel=1e-9)
    assert half_width(tree, 4, 1) == pytest.approx(widened, rel=1e-9)


# The range


@pytest.mark.parametrize("steps", [(1.2, 1.9), (1.9, 1.2), (1.2, 1.21)])
def test_contradicting_repeats_widen_the_range(steps: tuple[float, float]) -> None:
    """R = 1.2 and 1.9 at one point: the range holds both."""
    pairs = [*measured({3: steps[0]}), *measured({3: steps[1]})]
    for model in (H100, roofline_of(PUBLIC[0])):  # with and without a range of its own
        low, high = anchored(model, pairs).step_bounds(3, 1, 0)
        assert float(low) <= min(steps)
        assert float(high) >= max(steps)
        if max(steps) < 1.08 * min(steps):
            assert float(high / low) == pytest.approx(1.08**2, rel=1e-9)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_repeats_that_contradict_more_than_the_source_allows_are_held_too(count: int) -> None:
    pairs = [pair for place in range(count) for pair in measured({3: 1.0 if place % 2 else 3.0})]
    low, high = anchored(H100, pairs).step_bounds(3, 1, 0)
    assert float(low) <= 1.0
    assert float(high) >= 3.0


@pytest.mark.parametrize(
    "series", [{3: 1.5}, {1: 1.2, 7: 1.9}, {1: 1.1, 3: 1.45, 5: 1.5}, {1: 1.1, 3: 1.4, 5: 1.5, 7: 1.6}]
)
def test_an_anchored_range_is_never_wider_than_the_source_s_own(series: dict[int, float]) -> None:
    source = anchored(H100, measured(series))
    k, batch = np.arange(0, 17)[:, None], np.array([1, 2, 8, 64, 512])
    (low, high), (least, most) = (one.step_bounds(k, batch, 2000) for one in (source, H100))
    assert np.all(high / low <= most / least * (1 + 1e-12))


@dataclass(frozen=True, slots=True)
class Sure:
    """The profile with a range of its own of ×/÷ 1.1."""

    def __getattr__(self, name: str) -> object:
        return getattr(H100, name)

    def step_bounds(
        self, k: npt.ArrayLike, batch: npt.ArrayLike, context: npt.ArrayLike, **shape: npt.ArrayLike
    ) -> tuple[FloatArray, FloatArray]:
        steps = H100.step_cost(k, batch, context).in_plain_steps
        return steps / 1.1, steps * 1.1


def test_left_out_errors_do_not_widen_beyond_the_source_s_own() -> None:
    """Three pairs on a line with a missing host time: left out, each is missed by more than a tenth."""
    series = {1: 1.1, 3: 1.9, 5: 1.6, 7: 2.1}
    source = anchored(Sure(), measured(series))  # type: ignore[arg-type]
    apart = float(np.quantile(np.abs(source.residuals), 0.8, method="higher"))
    assert np.quantile(np.abs(source.left_out), 0.8) > max(apart, math.log(1.1))
    assert half_width(source, 3, 1) == pytest.approx(max(apart, math.log(1.1)), rel=1e-6)


# The constants, chosen with one source left out


@dataclass(frozen=True, slots=True)
class Point:
    """A public row: where it stands, log(modelled/measured R), log half-width of the profile's range, R."""

    setup: Hashable
    source: str
    place: tuple[float, float, float, float, float]
    missed: dict[str, float]
    own: float
    modelled: float


@dataclass(frozen=True, slots=True)
class Pairs:
    """Every public row anchored by every other of its set-up, each set-up counting once."""

    errors: FloatArray
    doublings: FloatArray
    own: FloatArray
    weights: FloatArray
    sources: npt.NDArray[np.str_]

    def drift(self, chosen: npt.NDArray[np.bool_]) -> float:
        return covering_drift(
            self.errors[chosen],
            self.doublings[chosen],
            share=0.8,
            weights=self.weights[chosen],
            own=self.own[chosen],
        )

    @property
    def left_out_drifts(self) -> list[float]:
        return [self.drift(self.sources != name) for name in np.unique(self.sources)]


@cache
def points() -> tuple[Point, ...]:
    return tuple(found for row in PUBLIC if (found := point(row)) is not None)


def point(row: MeasuredSpeedup) -> Point | None:
    assert row.k is not None
    assert row.batch is not None
    try:
        profiled, datasheet = profiled_of(row), roofline_of(row)
    except SpecmathError:
        return None
    drafted = row.k if row.drafted_per_step is None else row.drafted_per_step
    width, context = (row.tree_nodes or drafted) + 1, UNSTATED_CONTEXT if row.context is None else row.context
    cells = (row.k, row.batch, context)
    steps = {
        "profile": profiled.step_cost(*cells, width=width, passes=drafted),
        "datasheet": datasheet.step_cost(*cells, width=width, passes=drafted),
    }
    least, most = profiled.step_bounds(*cells, width=width, passes=drafted)
    missed = {name: math.log(float(cost.in_plain_steps) / row.step_ratio) for name, cost in steps.items()}
    own, modelled = math.log(float(most / least)) / 2, float(steps["profile"].in_plain_steps)
    return Point(row.setup, row.source, (*cells, width, drafted), missed, own, modelled)


@cache
def pairs_of(model: str) -> Pairs:
    setups: dict[Hashable, list[Point]] = {}
    for one in points():
        setups.setdefault(one.setup, []).append(one)
    found = []
    for members in setups.values():
        for anchor in members:
            others = [one for one in members if one is not anchor]
            if others:
                away = doublings_away([anchor.place], np.transpose([one.place for one in others]))  # type: ignore[arg-type]
                for one, distance in zip(others, away.tolist(), strict=True):
                    own = one.own if model == "profile" else math.inf
                    error = one.missed[model] - anchor.missed[model]
                    weight = 1 / (len(members) * len(others))
                    found.append((error, distance, own, weight, one.source))
    return Pairs(*map(np.array, zip(*found, strict=True)))


@pytest.mark.parametrize(("model", "drift"), [("profile", DRIFT), ("datasheet", DATASHEET_DRIFT)])
def test_the_drift_is_what_every_choice_of_sources_but_one_asks_for_at_most(model: str, drift: float) -> None:
    """With two hundredths to spare, as a profile's constants move by a little."""
    assert drift - 0.02 < max(pairs_of(model).left_out_drifts) <= drift


def test_what_is_said_of_the_drift_holds() -> None:
    """The figures beside `DRIFT`; `specmath accuracy` prints those of the errors."""
    found = pairs_of("profile")
    widths = np.minimum(np.sqrt(NOISE**2 + DRIFT**2 * found.doublings), found.own)
    within = np.average(np.abs(found.errors) <= widths, weights=found.weights)
    mean, own = (np.average(np.expm1(half), weights=found.weights) for half in (widths, found.own))
    assert len(points()) == 417
    assert within == pytest.approx(0.82, abs=0.01)
    assert mean == pytest.approx(0.21, abs=0.01)
    assert mean < own / 2


def test_two_k_held_miss_a_k_outside_them_less_than_a_line_does() -> None:
    """Public chains of three k or more, each two of them asked for each k outside; set-ups count once."""
    series: dict[tuple[Hashable, float, float], list[Point]] = {}
    for one in points():
        k, batch, context, width, _ = one.place
        if width == k + 1:
            series.setdefault((one.setup, batch, context), []).append(one)
    missed: dict[Hashable, list[tuple[float, float]]] = {}
    for (setup, _, _), members in series.items():
        by_k = {one.place[0]: one for one in members}
        for low, high in combinations(sorted(by_k), 2):
            for k in (k for k in by_k if not low <= k <= high):
                missed.setdefault(setup, []).append(held_and_line(by_k[low], by_k[high], by_k[k]))
    assert len(missed) == 9
    held, line = np.mean([np.mean(errors, axis=0) for errors in missed.values()], axis=0)
    assert held == pytest.approx(0.05, abs=0.01)
    assert line == pytest.approx(0.08, abs=0.015)


def held_and_line(low: Point, high: Point, asked: Point) -> tuple[float, float]:
    """|log(predicted/measured)| of R by the correction chosen from two points, and by a line through both."""
    two = [low, high]
    evidence = Evidence(
        k=np.array([one.place[0] for one in two]),
        batch=np.array([one.place[1] for one in two]),
        modelled=np.array([one.modelled for one in two]),
        measured=np.array([one.modelled / math.exp(one.missed["profile"]) for one in two]),
    )
    chosen = chosen_correction(evidence).correction
    line = chosen
    if len(chosen.joined.knots) > 1:
        line = fitted_correction(evidence, shape="line")
        line = fitted_correction(evidence, shape="tokens") if line.is_factor else line
    k, batch, *_ = asked.place
    truth = asked.modelled / math.exp(asked.missed["profile"])
    found = (float(one.corrected(asked.modelled, k, batch)) for one in (chosen, line))
    held, drawn = (abs(math.log(step / truth)) for step in found)
    return held, drawn


def test_covering_drift_by_hand() -> None:
    """Errors of 0, 0.5 at one doubling and 0.5 at four; a source's own range of 0.4 never covers 0.5."""
    near, far = (math.sqrt((0.25 - NOISE**2) / doublings) for doublings in (1, 4))
    given = {"errors": [0.0, 0.5, -0.5], "doublings": [9, 1, 4], "weights": [2, 1, 1]}
    for share, expected in ((0.5, 0.0), (0.75, far), (1.0, near)):
        assert covering_drift(**given, share=share) == pytest.approx(expected, rel=1e-12)  # type: ignore[arg-type]
    assert covering_drift(**given, share=0.75, own=0.4) == math.inf  # type: ignore[arg-type]
    assert covering_drift([0.5], [0], share=1, weights=[1]) == math.inf
