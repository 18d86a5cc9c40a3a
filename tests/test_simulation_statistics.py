"""Quantiles, batch means and the trend test, against sums by hand and samples whose error is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from specmath.acceptance import ConstantAcceptance
from specmath.errors import InputError
from specmath.simulation.policies import fixed_k
from specmath.simulation.runs import simulate
from specmath.simulation.statistics import ServiceLevel, falls_behind, growth_per_s, spread_of, time_mean
from specmath.traffic import Limits, Trace, Traffic, TrafficClass
from tests.batching_by_hand import LinearSteps


def test_quantiles_are_values_that_so_many_do_not_exceed() -> None:
    """Of 1 … 100: the 50th, 95th and 99th; NaN does not count."""
    values = np.concatenate([np.arange(100.0, 0, -1), [math.nan]])
    spread = spread_of(values)
    assert (spread.mean, spread.p50, spread.p95, spread.p99) == (50.5, 50, 95, 99)
    assert math.isnan(spread.mean_error), "too few for batches"


def test_a_weight_is_so_many_values() -> None:
    rng = np.random.default_rng(1)
    values, weights = rng.random(300), rng.integers(1, 9, 300)
    at = np.arange(300) / 300
    heavy = spread_of(values, weights.astype(float), at)
    each = spread_of(np.repeat(values, weights), at=np.repeat(at, weights))
    for name in heavy.__dataclass_fields__:
        assert getattr(heavy, name) == pytest.approx(getattr(each, name), rel=1e-12), name


def test_nothing_has_no_spread() -> None:
    spread = spread_of(np.array([math.nan]))
    assert all(math.isnan(getattr(spread, name)) for name in spread.__dataclass_fields__)


def test_batch_means_know_the_error_of_independent_values() -> None:
    """Exponential values: mean 1 ± 1/√n; the median ln 2 ± 1/√n, for its density there is 1/2."""
    count = 20_000
    spreads = [spread_of(np.random.default_rng(seed).exponential(size=count)) for seed in range(30)]
    for name, truth in (("mean", 1.0), ("p50", math.log(2))):
        errors = np.array([getattr(spread, f"{name}_error") for spread in spreads])
        assert math.sqrt(float((errors**2).mean())) == pytest.approx(1 / math.sqrt(count), rel=0.15)
        off = np.array([getattr(spread, name) - truth for spread in spreads]) / errors
        assert np.sum(abs(off) > 2) <= 5


def test_batch_means_know_the_error_of_values_that_hang_together() -> None:
    """x' = .9 x + noise: the variance of a mean is (1 + .9)/(1 − .9) = 19 times that of independent ones."""
    count = 40_000
    found = []
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(size=count)
        x = np.empty(count)
        value = 0.0
        for place, kick in enumerate(noise.tolist()):
            value = 0.9 * value + kick
            x[place] = value
        found.append(spread_of(x).mean_error)
    expected = math.sqrt(19 / (1 - 0.81) / count)
    assert math.sqrt(float(np.mean(np.square(found)))) == pytest.approx(expected, rel=0.15)


def test_a_mean_over_time_counts_seconds() -> None:
    """4 for 5 s, 1 for 10 s, nothing for 5 s of 20."""
    mean, error = time_mean(np.array([4.0, 1.0]), np.array([5.0, 10.0]), np.array([0.0, 0.25]), 20.0)
    assert mean == 1.5
    assert error > 0


def test_steps_that_reach_over_the_window_count_with_their_part() -> None:
    """Ten arrivals a second apart, each one step of half a second: decoding none, busy half the time."""
    trace = Trace(
        arrival_s=np.arange(10.0),
        prompt_tokens=np.ones(10, dtype=np.int64),
        output_tokens=np.ones(10, dtype=np.int64),
        class_of=np.zeros(10, dtype=np.int64),
    )
    result = simulate(
        trace, LinearSteps(fixed_s=0.5), Limits(max_batch=1), fixed_k(0), laws=[ConstantAcceptance(0)]
    )
    whole = result.summary(warm_up=0, cool_down=0)
    assert (whole.utilisation, whole.running, whole.decoding) == (0.5, 0.5, 0.0)
    assert (whole.requests, whole.rate_per_s, whole.requests_per_s, whole.tokens_per_s) == (10, 1, 1, 1)
    assert (whole.ttft_s.mean, whole.wait_s.p99, whole.end_to_end_s.p50) == (0.5, 0.0, 0.5)
    assert math.isnan(whole.tpot_s.mean)
    assert math.isnan(whole.gap_s.mean)
    assert math.isnan(whole.tokens_per_step)
    assert math.isnan(whole.kv_peak)
    later = result.summary(warm_up=0.5, cool_down=0)
    assert (later.requests, later.utilisation) == (5, 0.5)
    with pytest.raises(InputError, match=r"warm_up: must be between 0 and 0\.9"):
        result.summary(warm_up=0.95)


def test_a_burst_at_once_is_measured_to_its_end() -> None:
    """Four requests at 0, one at a time, a second each."""
    trace = Trace(
        arrival_s=np.zeros(4),
        prompt_tokens=np.ones(4, dtype=np.int64),
        output_tokens=np.ones(4, dtype=np.int64),
        class_of=np.zeros(4, dtype=np.int64),
    )
    result = simulate(trace, LinearSteps(), Limits(max_batch=1), fixed_k(0), laws=[ConstantAcceptance(0)])
    summary = result.summary(warm_up=0)
    assert summary.steady
    assert summary.ttft_s.mean == 2.5
    assert summary.utilisation == 1.0


@pytest.mark.parametrize("count", [1, 2, 3, 19, 201])
def test_a_short_run_has_a_summary(count: int) -> None:
    """Ten seconds apart, two steps of a second each: whatever the window, each is alone."""
    trace = Trace(
        arrival_s=np.arange(10.0 * count, step=10.0),
        prompt_tokens=np.ones(count, dtype=np.int64),
        output_tokens=np.full(count, 2),
        class_of=np.zeros(count, dtype=np.int64),
    )
    result = simulate(trace, LinearSteps(), Limits(max_batch=3), fixed_k(0), laws=[ConstantAcceptance(0)])
    summary = result.summary()
    assert summary.steady
    assert (summary.ttft_s.p99, summary.token_s, summary.end_to_end_s.mean) == (1, 1, 2)
    assert summary.gap_s.p50 == 1


def test_growth_is_seen_where_it_is() -> None:
    """Arrivals at 10/s; they leave after 1 s, or after ever longer."""
    arrival = np.arange(5_000) / 10
    assert growth_per_s(arrival, arrival + 1, 50, 450) == 0
    assert growth_per_s(arrival, arrival * 1.25, 50, 450) == pytest.approx(10 - 8, rel=0.05)
    assert growth_per_s(arrival, arrival * 1.001, 50, 450) == 0, "a hundredth of a request a second is noise"


def varied(load: float, places: int) -> Traffic:
    """Outputs of 300 tokens, lognormal, at a share of what a machine of so many places decodes."""
    one = TrafficClass(
        name="all",
        share=1,
        prompt_tokens=50,
        output_tokens=300,
        law=ConstantAcceptance(0.0),
        spread="lognormal",
        variation=1.0,
    )
    rate = load / (300 * (0.01 / places + 1e-4) + 50 * 1e-4)
    return Traffic(rate_per_s=rate, classes=(one,))


VARIED_STEPS = LinearSteps(fixed_s=0.01, per_sequence_s=1e-4, per_prompt_token_s=1e-4)


@pytest.mark.parametrize("requests", [30, 300, 1500])
@pytest.mark.parametrize("load", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("places", [48, 1024])
def test_a_machine_that_is_filling_is_no_overload(places: int, load: float, requests: int) -> None:
    for seed in range(3):
        traffic, limits = varied(load, places), Limits(max_batch=places)
        summary = simulate(traffic, VARIED_STEPS, limits, fixed_k(0), requests=requests, seed=seed).summary()
        assert summary.state != "overload"
        assert summary.steady
        if requests == 30:
            assert summary.state == "unsettled"
        if (load, requests) == (0.3, 1500):
            assert summary.state == "steady"
        assert math.isfinite(summary.end_to_end_s.mean)


def test_a_machine_that_fills_slowly_is_no_overload() -> None:
    """At 0.9 of what it decodes a batch of hundreds takes some stays to fill, in a run of twelve."""
    traffic, limits = varied(0.9, 1024), Limits(max_batch=1024)
    summary = simulate(traffic, VARIED_STEPS, limits, fixed_k(0), requests=6_000, seed=0).summary()
    assert summary.stays > 10
    assert summary.state == "steady"


@pytest.mark.parametrize("seed", range(3))
def test_a_short_run_far_beyond_the_highest_rate_is_overload(seed: int) -> None:
    traffic, limits = varied(3.0, 48), Limits(max_batch=48)
    summary = simulate(traffic, VARIED_STEPS, limits, fixed_k(0), requests=300, seed=seed).summary()
    assert summary.state == "overload"
    assert summary.stays < 10
    assert math.isnan(summary.end_to_end_s.mean)


def test_a_run_says_how_many_requests_would_settle_it() -> None:
    traffic, limits = varied(0.5, 1024), Limits(max_batch=1024)
    short = simulate(traffic, VARIED_STEPS, limits, fixed_k(0), requests=200).summary()
    assert short.state == "unsettled"
    more = max(short.requests_to_settle * 2, 400)
    assert simulate(traffic, VARIED_STEPS, limits, fixed_k(0), requests=more).summary().state == "steady"


@pytest.mark.parametrize(
    ("delivered", "inside", "wanted", "behind"),
    [
        ([100, 100], [50, 80], 200, True),  # half of it, and no more with more requests
        ([100, 150], [50, 80], 200, False),  # it still rises with the requests: filling
        ([100, 100], [80, 84], 200, False),  # no more requests are there
        ([190, 190], [50, 80], 200, False),  # nearly all is delivered
    ],
)
def test_falling_behind(delivered: list[float], inside: list[float], wanted: float, behind: bool) -> None:
    assert falls_behind(np.array(delivered), np.array(inside), wanted) is behind


@pytest.mark.parametrize("name", ["ttft_s", "tpot_s", "gap_s", "end_to_end_s"])
def test_a_level_is_above_zero(name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: must be above 0"):
        ServiceLevel(**{name: 0.0})
