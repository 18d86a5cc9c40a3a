"""Corrected steps: the parts add up to the corrected total, and what was measured is answered."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.anchors import anchored
from specmath.catalogue import load_hardware
from specmath.corrected_steps import corrected_step
from specmath.corrections import Correction, Evidence, Growth, fitted_correction
from specmath.drafters.methods import drafter_of
from specmath.measurements import Measurement
from specmath.model_catalogue import load_model
from specmath.profile_catalogue import load_profile
from specmath.profiled_source import Profiled, forecast_cases
from specmath.sources import StepCost

E = 1.9
"""Acceptance length of every synthetic run."""
K = np.arange(0, 13)


def eagle3_on_vllm() -> Profiled:
    part, target = load_hardware("h100-sxm"), load_model("llama-3.1-8b")
    drafter = drafter_of(target, load_model("eagle3-llama-3.1-8b"), method="eagle3")
    return forecast_cases(load_profile("vllm", part), part, target, drafter)[0]


H100 = eagle3_on_vllm()


def measured(steps: dict[int, float], batch: int = 1) -> list[Measurement]:
    """Pairs whose R is that of each k."""
    return [Measurement(k=k, batch=batch, acceptance_length=E, speedup=E / R) for k, R in steps.items()]


def steps_at(source: Profiled, correction: Correction, batch: float) -> tuple[StepCost, StepCost]:
    cost = source.step_cost(K, batch, 1000)
    return cost, corrected_step(cost, correction, K, batch)


@settings(max_examples=200, deadline=None)
@given(
    intercept=st.floats(-3, 3),
    slope=st.floats(0.05, 2),
    per_token=st.floats(-0.5, 0.5),
    growth=st.floats(-0.5, 0.5),
    joined=st.floats(-0.5, 0.5),
    batch=st.integers(1, 256),
)
def test_the_parts_add_up_to_the_corrected_total(
    intercept: float, slope: float, per_token: float, growth: float, joined: float, batch: int
) -> None:
    correction = Correction(
        intercept=intercept,
        slope=slope,
        per_token=per_token,
        growth=Growth(knots=(1.0, 64.0), log_factors=(0.0, growth)),
        joined=Growth(knots=(2.0, 6.0), log_factors=(joined, 0.0)),
    )
    cost, step = steps_at(H100, correction, batch)
    expected = correction.corrected(cost.in_plain_steps, K, batch)
    assert step.in_plain_steps == pytest.approx(expected, rel=1e-12)
    assert np.all(step.verify_cost > 0)
    assert np.all(step.draft_cost >= 0)
    assert np.all(step.overhead >= 0)


def test_a_flat_series_is_answered_within_1_percent() -> None:
    """The modelled step rises three times as fast as the measured one, so the slope is well below a half."""
    series = {1: 1.30, 3: 1.36, 5: 1.42, 7: 1.48}
    source = anchored(H100, measured(series))
    assert source.correction.slope < 0.6
    answered = source.step_cost(np.array(list(series)), 1, 0).in_plain_steps
    assert answered == pytest.approx(list(series.values()), rel=0.01)


@pytest.mark.parametrize("steps", [(1.30, 1.48), (1.30, 1.31), (1.0, 3.5), (1.1, 1.8)])
def test_a_line_through_two_points_answers_both(steps: tuple[float, float]) -> None:
    """Drawn as a line, or as two pairs are anchored: both measured points come back."""
    k = np.array([1.0, 7.0])
    modelled = H100.step_cost(k, 1, 0).in_plain_steps
    evidence = Evidence(k=k, batch=np.ones(2), modelled=modelled, measured=np.array(steps))
    line = fitted_correction(evidence, shape="line")
    if not line.is_factor:  # refused where it would be too steep
        corrected = corrected_step(H100.step_cost(k, 1, 0), line, k, 1)
        assert corrected.in_plain_steps == pytest.approx(steps, rel=1e-9)
    source = anchored(H100, measured({1: steps[0], 7: steps[1]}))
    assert source.step_cost(k, 1, 0).in_plain_steps == pytest.approx(steps, rel=1e-9)


def test_two_k_are_joined_between_and_held_outside() -> None:
    modelled = H100.step_cost(np.array([1, 2, 4, 8, 16]), 1, 0).in_plain_steps
    source = anchored(H100, measured({2: 1.1 * modelled[1], 8: 1.6 * modelled[3]}))
    factors = source.step_cost(np.array([1, 2, 4, 8, 16]), 1, 0).in_plain_steps / modelled
    between = math.sqrt(1.1 * 1.6)  # 4 lies halfway in log k
    assert factors == pytest.approx([1.1, 1.1, between, 1.6, 1.6], rel=1e-9)
    assert source.correction.text == "R = f·R_model, f = 1.1 at k 2, 1.6 at k 8"


@pytest.mark.parametrize("noise", [0.02, 0.04])
def test_two_noisy_k_extrapolate_no_worse_than_one_pair(noise: float) -> None:
    """Truth 1.1·model, k 1 and 3 measured, asked at k 10; one pair is that of either k."""
    draws = np.random.default_rng(7).normal(0, noise, (300, 2))
    modelled = {k: float(H100.step_cost(k, 1, 0).in_plain_steps) for k in (1, 3, 10)}
    one: list[float] = []
    two: list[float] = []
    for first, second in draws:
        runs = {1: 1.1 * modelled[1] * math.exp(first), 3: 1.1 * modelled[3] * math.exp(second)}
        for chosen in (runs, {1: runs[1]}, {3: runs[3]}):
            source = anchored(H100, measured(chosen))
            error = math.log(float(source.step_cost(10, 1, 0).in_plain_steps) / (1.1 * modelled[10]))
            (two if len(chosen) == 2 else one).append(error)
    root_mean_square = [float(np.sqrt(np.mean(np.square(errors)))) for errors in (one, two)]
    assert root_mean_square[1] < 1.2 * root_mean_square[0]
    assert np.quantile(np.abs(two), 0.9) < 1.2 * np.quantile(np.abs(one), 0.9)


def test_a_tree_and_a_chain_make_no_line() -> None:
    """Two k at one batch, one of them a tree: nothing says that both lie on one line over k."""
    chain, tree = 1.3, 2.4
    k, modelled = np.array([2.0, 6.0]), np.array([1.2, 1.6])
    alike = Evidence(k=k, batch=np.ones(2), modelled=modelled, measured=np.array([chain, tree]))
    assert alike.has_line
    assert Evidence(
        k=k,
        batch=np.ones(2),
        modelled=modelled,
        measured=np.array([chain, tree]),
        width=np.array([9.0, 61.0]),
    ).has_line
    mixed = Evidence(
        k=k,
        batch=np.ones(2),
        modelled=modelled,
        measured=np.array([chain, tree]),
        width=np.array([3.0, 61.0]),
    )
    assert not mixed.has_line
    assert not mixed.at(np.array([True, True])).has_line
