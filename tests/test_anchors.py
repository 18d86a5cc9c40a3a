"""Anchors: a known distortion of a known source is found again, and what was not measured is not claimed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import ConstantAcceptance
from specmath.additive import AdditiveCost
from specmath.additive_source import Additive
from specmath.anchor_distance import DATASHEET_DRIFT, DRIFT
from specmath.anchors import MAX_MEASUREMENTS, Anchored, anchored, leave_one_out
from specmath.checks import FloatArray
from specmath.corrections import (
    GAIN,
    LEAST_STEP,
    Correction,
    Evidence,
    Growth,
    chosen_correction,
    fitted_correction,
    left_out_errors,
)
from specmath.crossovers import find_crossovers
from specmath.errors import InputError
from specmath.forecast import forecast_speedup
from specmath.measurements import Measurement
from specmath.verdicts import REPEAT_NOISE

SOURCE = Additive(
    cost=AdditiveCost(
        weights_s=8e-3,
        kv_s_per_token=1e-8,
        compute_s_per_token=5e-5,
        kv_reread=0.0,
        draft_fixed_s=1e-3,
        draft_s_per_sequence=1e-5,
        draft_kv_s_per_token=1e-9,
        overhead_s=5e-4,
        plain_overhead_s=1e-3,
    ),
    name="a machine",
)
E = 1.9
"""Acceptance length of every synthetic run."""


def steps(source: Additive | Anchored, k: int, batch: float, context: float = 0.0) -> float:
    return float(source.step_cost(k, batch, context).in_plain_steps)


def distorted(
    truth: Callable[[float, int], float], setups: Sequence[tuple[int, int]], plain: float | None = None
) -> list[Measurement]:
    """Measurements of a machine whose R is truth(R of the source, batch) at each (k, batch)."""
    pairs = []
    for k, batch in setups:
        step = truth(steps(SOURCE, k, batch), batch)
        plain_s = None if plain is None else plain * float(SOURCE.step_cost(k, batch, 0).plain_s)
        pairs.append(Measurement(k=k, batch=batch, acceptance_length=E, speedup=E / step, plain_s=plain_s))
    return pairs


EVERYWHERE = [(k, batch) for k in (1, 2, 3, 5, 8, 12) for batch in (1, 4, 8, 32)]


@pytest.mark.parametrize(
    ("truth", "setups"),
    [
        pytest.param(lambda step, _: 1.4 * step, [(3, 8)], id="a factor from one pair"),
        pytest.param(lambda step, _: 1.4 * step, [(1, 1), (5, 8), (8, 32)], id="a factor from three"),
        pytest.param(lambda step, _: 0.3 + 1.2 * step, [(k, 8) for k in range(1, 7)], id="a line from six"),
        pytest.param(lambda step, _: -0.2 + 1.3 * step, [(k, 8) for k in range(1, 7)], id="a negative start"),
        pytest.param(
            lambda step, batch: 1.1 * batch**0.1 * step, [(3, 1), (3, 32)], id="growth from two batches"
        ),
        pytest.param(
            lambda step, batch: 1.1 * batch**0.1 * step, [(3, 1), (3, 8), (3, 32)], id="growth from three"
        ),
        pytest.param(
            lambda step, batch: batch**0.1 * (0.3 + 1.2 * step),
            [(k, batch) for k in (1, 3, 6) for batch in (1, 8, 32)],
            id="line and growth from nine",
        ),
    ],
)
def test_a_known_distortion_is_found_again(
    truth: Callable[[float, int], float], setups: list[tuple[int, int]]
) -> None:
    """At set-ups that were not measured too."""
    source = anchored(SOURCE, distorted(truth, setups))
    for k, batch in EVERYWHERE:
        assert steps(source, k, batch) == pytest.approx(truth(steps(SOURCE, k, batch), batch), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(
    factor=st.floats(0.5, 3),
    setups=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 64)), min_size=1, max_size=8),
)
def test_a_factor_is_never_mistaken_for_more(factor: float, setups: list[tuple[int, int]]) -> None:
    source = anchored(SOURCE, distorted(lambda step, _: factor * step, setups))
    for k, batch in EVERYWHERE:
        assert steps(source, k, batch) == pytest.approx(factor * steps(SOURCE, k, batch), rel=1e-6)


@pytest.mark.parametrize(
    ("setups", "growth"),
    [
        pytest.param([(k, 8) for k in range(1, 7)], 0.0, id="from six k"),
        pytest.param([(k, batch) for k in (1, 3, 6) for batch in (1, 8, 32)], 0.0, id="from a grid"),
        pytest.param([(k, batch) for k in (1, 3, 6) for batch in (1, 8, 32)], 0.1, id="with growth"),
    ],
)
def test_a_missing_draft_cost_is_found_as_such(setups: list[tuple[int, int]], growth: float) -> None:
    """0.4 plain steps a draft token are missing: a line in R would need a slope of 3 or more."""
    pairs = [
        Measurement(
            k=k,
            batch=batch,
            acceptance_length=E,
            speedup=E / (batch**growth * (1.2 * steps(SOURCE, k, batch) + 0.4 * k)),
        )
        for k, batch in setups
    ]
    source = anchored(SOURCE, pairs)
    assert source.correction.intercept == 0
    assert source.correction.per_token == pytest.approx(0.4, rel=1e-9)
    for k, batch in EVERYWHERE:
        expected = batch**growth * (1.2 * steps(SOURCE, k, batch) + 0.4 * k)
        assert steps(source, k, batch) == pytest.approx(expected, rel=1e-9)


def test_a_draft_cheaper_than_modelled_never_costs_less_than_nothing() -> None:
    dear = replace(SOURCE, cost=replace(SOURCE.cost, draft_fixed_s=4e-3))
    pairs = [
        Measurement(k=k, batch=1, acceptance_length=E, speedup=E / (steps(dear, k, 1) - share * k))
        for k, share in ((1, 0.45), (4, 0.45), (8, 0.45))
    ]
    source = anchored(dear, pairs)
    cost = source.step_cost(np.arange(9), 1, 0)
    assert np.all(cost.draft_cost >= 0)
    assert np.all(cost.verify_cost > 0)
    assert np.all(cost.overhead >= 0)
    measured = [pair.in_plain_steps for pair in pairs]
    assert cost.in_plain_steps[[1, 4, 8]] == pytest.approx(measured, rel=1e-6)


def test_every_question_can_be_asked_of_an_anchored_source() -> None:
    source = anchored(SOURCE, distorted(lambda step, _: 1.4 * step, [(3, 8)]))
    row = next(forecast_speedup(ConstantAcceptance(0.6), 3, 8, cases=[source, SOURCE]).rows())
    assert row["case"] == "measured"
    assert isinstance(low := row["speedup_low"], float)
    assert isinstance(high := row["speedup_high"], float)
    assert isinstance(value := row["speedup"], float)
    assert low < value < high
    assert find_crossovers(ConstantAcceptance(0.6), 3, source=source, max_batch=64).verdict


def test_noise_is_not_taken_for_a_line_nor_for_growth() -> None:
    """A factor of 1.3 measured with ±4 % at six set-ups: the factor, within 3 %."""
    setups = [(2, 4), (3, 4), (4, 4), (2, 16), (3, 16), (4, 16)]
    noise = dict(zip(setups, (1.03, 0.97, 1.04, 0.96, 1.02, 0.98), strict=True))
    pairs = [
        replace(pair, speedup=pair.times_faster * noise[pair.k, pair.batch])
        for pair in distorted(lambda step, _: 1.3 * step, setups)
    ]
    correction = anchored(SOURCE, pairs).correction
    assert correction.intercept == 0
    assert len(correction.growth.knots) == 1
    assert correction.slope == pytest.approx(1.3, rel=0.03)


def test_the_factor_is_the_median_and_not_the_mean() -> None:
    """Ratios of 1.2, 1.3 and 9."""
    modelled = np.array([1.0, 2.0, 3.0])
    spoilt = Evidence(
        k=np.array([1.0, 2.0, 3.0]), batch=np.ones(3), modelled=modelled, measured=modelled * [1.2, 1.3, 9.0]
    )
    assert fitted_correction(spoilt).slope == pytest.approx(1.3, rel=1e-12)


def test_two_neighbouring_k_make_no_line() -> None:
    pairs = distorted(lambda step, _: 0.5 + step, [(3, 1), (4, 1)])
    assert steps(SOURCE, 4, 1) / steps(SOURCE, 3, 1) < 1 + 2 * REPEAT_NOISE
    assert anchored(SOURCE, pairs).correction.intercept == 0


def test_one_spoilt_measurement_among_five_moves_a_factor_little() -> None:
    pairs = distorted(lambda step, _: 1.4 * step, [(2, 4), (3, 8), (4, 16), (5, 4), (6, 8)])
    pairs[2] = replace(pairs[2], speedup=pairs[2].times_faster / 3)
    assert steps(anchored(SOURCE, pairs), 3, 8) == pytest.approx(1.4 * steps(SOURCE, 3, 8), rel=0.02)


def test_growth_is_kept_outside_the_measured_batches_and_straight_in_log_batch_between() -> None:
    growth = Growth.through(np.array([2.0, 8.0]), np.array([1.0, 4.0]))
    assert growth.at([1.0, 2.0, 4.0, 8.0, 1000.0]) == pytest.approx([1, 1, 2, 4, 4], rel=1e-12)


def test_a_line_that_falls_or_undercuts_a_plain_step_is_refused() -> None:
    """R measured 2.0, 1.5, 1.0 where the model says 1, 2, 3: no step gets cheaper with k."""
    falling = Evidence(
        k=np.array([1.0, 2.0, 3.0]),
        batch=np.ones(3),
        modelled=np.array([1.0, 2.0, 3.0]),
        measured=np.array([2.0, 1.5, 1.0]),
    )
    assert fitted_correction(falling, shape="line").intercept == 0
    steep = replace(falling, measured=np.array([0.1, 2.0, 3.9]))  # −1.8 + 1.9·R_model
    assert fitted_correction(steep, shape="line").intercept == 0
    assert Correction(intercept=-3.0, slope=1.0).corrected(1.0, 0, 1) == LEAST_STEP


@pytest.mark.parametrize("intercept", [-0.45, -0.1, 0.0, 0.7])
def test_a_line_keeps_the_parts_of_a_step_positive(intercept: float) -> None:
    pairs = distorted(lambda step, _: intercept + 1.6 * step, [(k, 8) for k in range(1, 9)])
    cost = anchored(SOURCE, pairs).step_cost(np.arange(9), 8, 0)
    assert np.all(cost.overhead >= 0)
    assert np.all(cost.verify_cost > 0)
    model = SOURCE.step_cost(np.arange(9), 8, 0).in_plain_steps
    assert cost.in_plain_steps == pytest.approx(intercept + 1.6 * model, rel=1e-9)


def test_measured_times_scale_the_plain_step() -> None:
    timed = anchored(SOURCE, distorted(lambda step, _: 1.4 * step, [(3, 8)], plain=1.25))
    untimed = anchored(SOURCE, distorted(lambda step, _: 1.4 * step, [(3, 8)]))
    model = float(SOURCE.step_cost(3, 8, 0).plain_s)
    assert float(timed.step_cost(3, 8, 0).plain_s) == pytest.approx(1.25 * model, rel=1e-12)
    assert float(untimed.step_cost(3, 8, 0).plain_s) == pytest.approx(model, rel=1e-12)
    assert steps(timed, 3, 8) == pytest.approx(1.4 * steps(SOURCE, 3, 8), rel=1e-12)


# The range


@dataclass(frozen=True, slots=True)
class Ranged:
    """The source with a range of its own, ×/÷ `factor`."""

    source: Additive
    factor: float

    def __getattr__(self, name: str) -> object:
        return getattr(self.source, name)

    def step_bounds(
        self, k: npt.ArrayLike, batch: npt.ArrayLike, context: npt.ArrayLike, **rest: object
    ) -> tuple[FloatArray, FloatArray]:
        cost = self.source.step_cost(k, batch, context).in_plain_steps
        return cost / self.factor, cost * self.factor


def half_width(source: Anchored, k: int, batch: int, context: float = 0.0) -> float:
    low, high = source.step_bounds(k, batch, context)
    assert float(low) < steps(source, k, batch, context) < float(high)
    return float(np.log(high / low)) / 2


def test_the_range_is_the_repeat_noise_where_measured_and_grows_by_the_root_of_doublings() -> None:
    source = anchored(SOURCE, distorted(lambda step, _: 1.4 * step, [(3, 8)]))
    noise = math.log1p(REPEAT_NOISE)
    assert half_width(source, 3, 8) == pytest.approx(noise, rel=1e-12)
    for k, batch, context, doublings in (
        (3, 32, 0, 2),
        (3, 2, 0, 2),
        (7, 8, 0, 1),
        (3, 8, 3 * 1024, 0.5),
        (3, 8, 15 * 1024, 1),
    ):
        expected = math.hypot(noise, DATASHEET_DRIFT * math.sqrt(doublings))
        assert half_width(source, k, batch, context) == pytest.approx(expected, rel=1e-12)


def test_a_second_batch_narrows_the_range_there_only() -> None:
    def machine(step: float, batch: int) -> float:
        return 1.4 * step

    one = anchored(SOURCE, distorted(machine, [(3, 1)]))
    two = anchored(SOURCE, distorted(machine, [(3, 1), (3, 64)]))
    assert half_width(two, 3, 64) < half_width(one, 3, 64)
    assert (
        half_width(two, 3, 1) == half_width(two, 3, 64) == pytest.approx(math.log1p(REPEAT_NOISE), rel=1e-12)
    )
    assert half_width(two, 3, 8) == pytest.approx(half_width(one, 3, 8), rel=1e-12)  # 3 doublings from either


def test_the_range_is_never_narrower_than_what_left_out_measurements_miss() -> None:
    setups = [(2, 8), (3, 8), (4, 8), (5, 8), (6, 8)]
    pairs = [
        replace(pair, speedup=pair.times_faster * (1.3 if place % 2 else 0.8))
        for place, pair in enumerate(distorted(lambda step, _: 1.4 * step, setups))
    ]
    source = anchored(SOURCE, pairs)
    errors = np.abs(leave_one_out(SOURCE, pairs))
    assert half_width(source, 3, 8) == pytest.approx(math.log1p(float(np.quantile(errors, 0.8))), rel=0.3)
    assert half_width(source, 3, 8) > 2 * math.log1p(REPEAT_NOISE)


def test_between_three_batches_the_range_is_that_of_leaving_one_out() -> None:
    pairs = distorted(lambda step, _: 1.4 * step, [(3, 1), (3, 8), (3, 64)])
    source, noise = anchored(SOURCE, pairs), math.log1p(REPEAT_NOISE)
    assert half_width(source, 3, 3) == pytest.approx(noise, rel=1e-9)
    assert half_width(source, 3, 256) == pytest.approx(
        math.hypot(noise, DATASHEET_DRIFT * math.sqrt(2)), rel=1e-9
    )
    assert half_width(source, 7, 3) == pytest.approx(math.hypot(noise, DATASHEET_DRIFT), rel=1e-9)
    two = anchored(SOURCE, pairs[:2])
    assert half_width(two, 3, 3) > noise


@pytest.mark.parametrize(("own", "expected"), [(1.01, 1.01), (1.15, 1.15), (9.0, None)])
def test_an_anchored_range_is_never_wider_than_the_source_s_own(own: float, expected: float | None) -> None:
    pairs = distorted(lambda step, _: 1.4 * step, [(3, 1)])
    source = anchored(Ranged(SOURCE, own), pairs)  # type: ignore[arg-type]
    unclipped = math.hypot(math.log1p(REPEAT_NOISE), DRIFT * math.sqrt(6))  # six doublings of batch
    expected_log = unclipped if expected is None else math.log(expected)
    assert half_width(source, 3, 64) == pytest.approx(expected_log, rel=1e-9)


# Leaving one out


def test_leave_one_out_is_the_error_of_the_others_prediction() -> None:
    """Factors 1.2, 1.3, 1.5: left out, each is predicted by the median of the other two."""
    factors = {2: 1.2, 3: 1.3, 4: 1.5}
    pairs = [
        Measurement(k=k, batch=8, acceptance_length=E, speedup=E / (factor * steps(SOURCE, k, 8)))
        for k, factor in factors.items()
    ]
    evidence = Evidence(
        k=np.array([2.0, 3.0, 4.0]),
        batch=np.full(3, 8.0),
        modelled=np.array([steps(SOURCE, k, 8) for k in factors]),
        measured=np.array([factor * steps(SOURCE, k, 8) for k, factor in factors.items()]),
    )
    others = np.sqrt([1.3 * 1.5, 1.2 * 1.5, 1.2 * 1.3])
    expected = np.log(others / np.array([1.2, 1.3, 1.5]))
    assert left_out_errors(evidence, shape="factor") == pytest.approx(expected, rel=1e-9)
    richest = np.abs(left_out_errors(evidence, shape="line")).mean()
    chosen = chosen_correction(evidence)
    simplest = np.abs(expected).mean()
    assert np.abs(chosen.left_out).mean() == pytest.approx(richest if richest < GAIN * simplest else simplest)
    assert leave_one_out(SOURCE, pairs) == pytest.approx(np.expm1(chosen.left_out), rel=1e-9)


def test_leave_one_out_is_told_from_three_measurements_on() -> None:
    pairs = distorted(lambda step, _: 1.4 * step, [(2, 8), (3, 8), (4, 16)])
    assert any("left out" in sentence for sentence in anchored(SOURCE, pairs).assumptions)
    assert not any("left out" in sentence for sentence in anchored(SOURCE, pairs[:2]).assumptions)
    with pytest.raises(InputError, match="two measurements"):
        leave_one_out(SOURCE, pairs[:1])


# What is said and refused


@pytest.mark.parametrize(
    ("batches", "warned"),
    [([8], None), ([4, 16], None), ([2], 2), ([4, 64], 64), ([1, 17], 1)],
)
def test_batches_outside_the_measured_ones_are_warned_of(batches: list[int], warned: int | None) -> None:
    source = anchored(SOURCE, distorted(lambda step, _: 1.4 * step, [(3, 4), (3, 16)])).asked(batches)
    found = [advice for advice in source.warnings if advice.code == "outside-the-measured-batches"]
    assert [f"batch {warned} is outside" in advice.text for advice in found] == (
        [] if warned is None else [True]
    )


def test_doubts_about_a_measurement_reach_the_answer() -> None:
    pair = Measurement(k=3, batch=8, acceptance_length=1.8, speedup=2.4)
    assert "step-shorter-than-plain" in {advice.code for advice in anchored(SOURCE, [pair]).warnings}


def test_what_cannot_anchor_is_refused() -> None:
    pair = Measurement(k=3, batch=8, acceptance_length=1.8, speedup=1.2)
    alone = Measurement(k=3, batch=8, acceptance_length=1.8, speculative_s=0.01)
    for pairs, problem in (
        ([], "takes 1 to"),
        ([pair] * (MAX_MEASUREMENTS + 1), "takes 1 to"),
        ([pair, alone], "no run without speculation"),
    ):
        with pytest.raises(InputError, match=problem):
            anchored(SOURCE, pairs)


def test_the_inputs_name_the_measurements() -> None:
    pairs = distorted(lambda step, _: 1.4 * step, [(k, 8) for k in range(1, 11)])
    told = str(anchored(SOURCE, pairs).inputs["measured"])
    assert told.startswith("k=1,batch=8,context=0,speedup=")
    assert told.endswith("… 2 more")


def test_a_run_without_its_plain_one_is_named_with_what_to_add() -> None:
    lone = Measurement(
        k=3, batch=8, acceptance_length=2.4, speculative_s=0.006, where="nobase.csv: line 2", context=512
    )
    words = r"^measured: nobase\.csv: line 2 has no run without .* \(8, 512\); add a row with k = 0 there, or"
    with pytest.raises(InputError, match=words):
        anchored(SOURCE, [lone])
