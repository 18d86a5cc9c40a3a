"""The simulator and the closed form of `queueing` were derived apart; away from saturation they agree."""

from __future__ import annotations

import numpy as np
import pytest

from specmath.acceptance import ConstantAcceptance
from specmath.latencies import latencies
from specmath.queueing import Queue, Service
from specmath.simulation.policies import fixed_k
from specmath.simulation.runs import simulate
from specmath.traffic import Limits, Spread, Traffic, TrafficClass
from tests.batching_by_hand import LinearSteps

STEPS = LinearSteps(fixed_s=0.01, per_sequence_s=2e-4, per_prompt_token_s=1e-5, per_draft_s=1e-3)
LIMITS = Limits(max_batch=64)
ERRORS = 3.0
SLACK = 0.02
"""What the closed form leaves out: steps are no points in time."""


def queue(traffic: Traffic, k: int) -> Queue:
    """The closed form for the same steps."""
    laws = [one.law for one in traffic.classes]
    across = np.ones(LIMITS.max_batch)
    service = Service(
        name=f"k = {k}",
        ks=np.full(LIMITS.max_batch, k),
        step_s=lambda batch, prompt: np.asarray(STEPS.step_s(batch, prompt, k)),
        lengths=np.outer([law.acceptance_length(k) for law in laws], across),
        variances=np.outer([law.accepted_variance(k) for law in laws], across),
        limits=LIMITS,
        drafting=k > 0,
    )
    return Queue(service, traffic)


def chat(output: float, prompt: float, spread: Spread) -> Traffic:
    law = ConstantAcceptance(0.7)
    one = TrafficClass(
        name="chat", share=1, prompt_tokens=prompt, output_tokens=output, law=law, spread=spread
    )
    return Traffic(rate_per_s=1, classes=(one,))


MIXED = Traffic(
    rate_per_s=1,
    classes=(
        TrafficClass(
            name="chat",
            share=0.6,
            prompt_tokens=800,
            output_tokens=150,
            law=ConstantAcceptance(0.8),
            spread="geometric",
        ),
        TrafficClass(
            name="bulk", share=0.4, prompt_tokens=300, output_tokens=400, law=ConstantAcceptance(0.4)
        ),
    ),
)


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize(
    "traffic",
    [
        pytest.param(chat(300, 500, "constant"), id="300 tokens each"),
        pytest.param(chat(60, 1000, "geometric"), id="long prompts, short outputs of all lengths"),
        pytest.param(MIXED, id="two classes that share steps"),
    ],
)
def test_batch_and_latencies_agree(traffic: Traffic, load: float, k: int) -> None:
    offered = traffic.at(load * queue(traffic, k).highest_rate_per_s)
    closed = queue(offered, k)
    state = closed.equilibrium()
    assert state is not None
    result = simulate(offered, STEPS, LIMITS, fixed_k(k), requests=6_000, seed=1)
    seen = result.summary()
    assert seen.steady
    assert_like("batch", state.batch, seen.decoding, seen.decoding_error)
    for latency in latencies(closed, state)[: 1 if len(traffic.classes) == 1 else None]:
        own = seen if latency.name == "all" else result.summary(class_name=latency.name)
        error = own.tpot_s.mean_error * own.token_s / own.tpot_s.mean
        assert_like(f"{latency.name} TPOT", latency.tpot_s, own.token_s, error)
        spread = own.end_to_end_s
        assert_like(f"{latency.name} end to end", latency.e2e_s, spread.mean, spread.mean_error)
        if traffic.classes[0].spread == "constant":  # for others see below
            assert_like("TTFT", latency.ttft_s, own.ttft_s.mean, own.ttft_s.mean_error)


SHORT_AND_LONG = Traffic(
    rate_per_s=1,
    classes=tuple(
        TrafficClass(
            name=name, share=share, prompt_tokens=prompt, output_tokens=60, law=ConstantAcceptance(0.7)
        )
        for name, share, prompt in (("short", 0.8, 300), ("long", 0.2, 4000))
    ),
)


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(chat(60, 1000, "geometric"), id="geometric: 14 % too low for equal ones"),
        pytest.param(SHORT_AND_LONG, id="short and long: 20 % too low for equal ones"),
    ],
)
def test_the_spread_of_prompts_is_in_the_time_to_the_first_token(shape: Traffic) -> None:
    """Unequal prompts wait longer than equal ones; docs/load.md tells what is still left out."""
    offered = shape.at(0.7 * queue(shape, 0).highest_rate_per_s)
    closed = queue(offered, 0)
    state = closed.equilibrium()
    assert state is not None
    seen = simulate(offered, STEPS, LIMITS, fixed_k(0), requests=20_000, seed=1).summary()
    error = latencies(closed, state)[0].ttft_s / seen.ttft_s.mean - 1
    assert abs(error) < 0.1


def assert_like(name: str, closed: float, simulated: float, error: float) -> None:
    """Within three standard errors or two per cent."""
    assert simulated == pytest.approx(closed, abs=max(ERRORS * error, SLACK * closed)), name


@pytest.mark.parametrize("k", [0, 3])
def test_both_say_where_it_is_too_much(k: int) -> None:
    """A tenth beyond the highest rate the queue grows; what is served then is the highest rate.

    It is a little less, as much as a prompt that is being read takes one of the 64 places for a step.
    """
    shape = chat(60, 500, "geometric")
    highest = queue(shape, k).highest_rate_per_s
    beyond = shape.at(1.1 * highest)
    assert queue(beyond, k).equilibrium() is None
    seen = simulate(beyond, STEPS, LIMITS, fixed_k(k), requests=8_000, seed=2).summary()
    assert not seen.steady
    assert seen.requests_per_s == pytest.approx(highest, rel=0.05)
    assert simulate(shape.at(0.9 * highest), STEPS, LIMITS, fixed_k(k), requests=8_000).summary().steady
