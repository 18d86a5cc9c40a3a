"""The simulator where queueing theory knows the answer, and what policies, seeds and replicas do to it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from specmath.acceptance import BetaAcceptance, ConstantAcceptance
from specmath.checks import FloatArray
from specmath.errors import InputError, UnknownNameError
from specmath.laws import AcceptanceLaw
from specmath.simulation.draws import Yields
from specmath.simulation.outcomes import SimulationResult
from specmath.simulation.policies import BatchPolicy, fixed_k, k_by_batch
from specmath.simulation.replicas import STEP_FIELDS
from specmath.simulation.runs import simulate
from specmath.simulation.statistics import ServiceLevel
from specmath.traffic import Limits, Spread, Trace, Traffic, TrafficClass
from tests.batching_by_hand import LinearSteps

STEP_S = 0.01
CONSTANT = LinearSteps(fixed_s=STEP_S)
ALONE = Limits(max_batch=1)
ROOMY = Limits(max_batch=10_000)
DENSE = LinearSteps(fixed_s=0.01, per_sequence_s=2e-4, per_prompt_token_s=1e-5, per_draft_s=1e-3)


def traffic(
    rate: float,
    output: float,
    *,
    law: AcceptanceLaw | None = None,
    spread: Spread = "constant",
    prompt: float = 100,
) -> Traffic:
    one = TrafficClass(
        name="chat",
        share=1,
        prompt_tokens=prompt,
        output_tokens=output,
        law=law or ConstantAcceptance(0.7),
        spread=spread,
    )
    return Traffic(rate_per_s=rate, classes=(one,))


def poisson_trace(rate: float, outputs: FloatArray, *, prompt: int = 1, seed: int = 7) -> Trace:
    gaps = np.random.default_rng(seed).exponential(1 / rate, outputs.size)
    return Trace(
        arrival_s=gaps.cumsum(),
        prompt_tokens=np.full(outputs.size, prompt),
        output_tokens=outputs.astype(np.int64),
        class_of=np.zeros(outputs.size, dtype=np.int64),
    )


def steps_law(law: AcceptanceLaw, k: int, tokens: int) -> FloatArray:
    """P(M = m) of the steps until `tokens` are there, by summing over every path."""
    chances = law.accepted_pmf(k)
    lacking = np.zeros(tokens + 1)
    lacking[tokens] = 1.0
    ended = [0.0]
    while lacking[1:].sum() > 1e-15:
        after = np.zeros(tokens + 1)
        for left in range(1, tokens + 1):
            for accepted, chance in enumerate(chances):
                after[max(0, left - 1 - accepted)] += lacking[left] * chance
        ended.append(float(after[0]))
        after[0] = 0.0
        lacking = after
    return np.array(ended)


def pollaczek_khinchine(rate: float, service_s: FloatArray, chances: FloatArray) -> float:
    """Mean wait of M/G/1: λ·E[S²] / (2·(1 − ρ))."""
    busy = rate * float(service_s @ chances)
    return rate * float(service_s**2 @ chances) / (2 * (1 - busy))


def geometric(mean: float) -> tuple[FloatArray, FloatArray]:
    lengths = np.arange(1.0, 2000.0)
    return lengths, np.asarray((1 - 1 / mean) ** (lengths - 1) / mean)


SPECULATIVE = steps_law(ConstantAcceptance(0.7), 3, 8)


@pytest.mark.parametrize("load", [0.3, 0.7])
@pytest.mark.parametrize(
    ("outputs", "k", "service", "chances"),
    [
        pytest.param("one", 0, np.array([1.0]), np.array([1.0]), id="M/D/1: one token, one step"),
        pytest.param("geometric", 0, *geometric(5), id="M/Geo/1, the M/M/1 of whole steps"),
        pytest.param(
            "nine", 3, 1.0 + np.arange(SPECULATIVE.size), SPECULATIVE, id="M/G/1: prefill and drafted steps"
        ),
    ],
)
def test_one_at_a_time_waits_as_pollaczek_and_khinchine_say(
    outputs: str, k: int, service: FloatArray, chances: FloatArray, load: float
) -> None:
    count = 20_000
    rate = load / (STEP_S * float(service @ chances))
    lengths = {
        "one": np.ones(count),
        "geometric": np.random.default_rng(3).geometric(0.2, count).astype(float),
        "nine": np.full(count, 9.0),
    }[outputs]
    result = simulate(
        poisson_trace(rate, lengths), CONSTANT, ALONE, fixed_k(k), laws=[ConstantAcceptance(0.7)]
    )
    summary = result.summary()
    expected = pollaczek_khinchine(rate, STEP_S * service, chances)
    assert summary.steady
    assert summary.wait_s.mean_error < 0.1 * expected
    assert summary.wait_s.mean == pytest.approx(expected, abs=3.5 * summary.wait_s.mean_error)
    assert summary.utilisation == pytest.approx(load, rel=0.02)


@pytest.mark.parametrize(("k", "output"), [(0, 50), (3, 50)])
@pytest.mark.parametrize("spread", ["constant", "geometric"])
def test_with_room_for_all_little_gives_the_batch(k: int, output: int, spread: Spread) -> None:
    """B = λ·T·M: a request decodes M steps of a constant length, whatever the others do."""
    law = ConstantAcceptance(0.7)
    rate = 40.0
    result = simulate(
        traffic(rate, output, law=law, spread=spread), CONSTANT, ROOMY, fixed_k(k), requests=12_000
    )
    summary = result.summary()
    if spread == "constant":
        chances = steps_law(law, k, output - 1)
        steps = float(np.arange(chances.size) @ chances)
    else:
        steps = float((result.outcomes.deliveries - 1).mean())
    measured = summary.rate_per_s * STEP_S * steps
    assert measured == pytest.approx(rate * STEP_S * steps, rel=0.03)
    assert summary.decoding_error < 0.03 * summary.decoding
    assert summary.decoding == pytest.approx(measured, abs=3.5 * summary.decoding_error)
    assert summary.gap_s.p50 == summary.gap_s.p99 == pytest.approx(STEP_S)
    if k == 0:
        assert summary.tpot_s.mean == pytest.approx(STEP_S)
        assert summary.tokens_per_step == 1


@pytest.mark.parametrize(
    ("law", "k"),
    [(ConstantAcceptance(0.7), 4), (BetaAcceptance(2.0, 1.0), 5), (ConstantAcceptance(1.0), 3)],
)
def test_yields_follow_the_law(law: AcceptanceLaw, k: int) -> None:
    count = 200_000
    drawn = Yields([law], [k], (11,)).ahead(0, k, count)
    variance = float(law.accepted_variance(k))
    assert drawn.min() >= 1
    assert drawn.max() == k + 1
    assert drawn.mean() == pytest.approx(
        law.acceptance_length(k), abs=4 * math.sqrt(variance / count) + 1e-12
    )
    fourth = float(((drawn - drawn.mean()) ** 4).mean())
    error = math.sqrt(max(0.0, fourth - variance**2) / count)
    assert drawn.var() == pytest.approx(variance, abs=4 * error + 1e-12)


def test_a_stream_is_the_same_however_it_is_read() -> None:
    laws = [ConstantAcceptance(0.5), ConstantAcceptance(0.9)]
    whole = Yields(laws, [2], (1,)).ahead(1, 2, 100_000).tolist()
    pieces = Yields(laws, [2], (1,))
    read: list[int] = []
    for size in (1, 40_000, 7, 59_992):
        read += pieces.ahead(1, 2, size).tolist()
        pieces.ahead(0, 2, 5)
        pieces.taken(1, 2, size)
    assert read == whole


def test_steps_of_a_request_follow_the_renewal_of_its_law() -> None:
    law = ConstantAcceptance(0.7)
    result = simulate(traffic(20, 30, law=law), DENSE, ROOMY, fixed_k(3), requests=8_000)
    chances = steps_law(law, 3, 29)
    steps = np.arange(chances.size)
    mean = float(steps @ chances)
    error = math.sqrt(float((steps - mean) ** 2 @ chances) / 8_000)
    assert float((result.outcomes.deliveries - 1).mean()) == pytest.approx(mean, abs=4 * error)


@pytest.mark.parametrize("seed", range(4))
def test_overload_is_said_and_no_latency_told(seed: int) -> None:
    """Twice and 1.05 times what one server takes; what it serves is its own rate."""
    for load, count in ((2.0, 3_000), (1.05, 20_000)):
        outputs = np.ones(count)
        trace = poisson_trace(load / STEP_S, outputs, seed=seed)
        summary = simulate(
            trace, CONSTANT, ALONE, fixed_k(0), laws=[ConstantAcceptance(0)], seed=seed
        ).summary(ServiceLevel(ttft_s=1))
        assert not summary.steady
        assert summary.growth_per_s == pytest.approx(summary.rate_per_s - 1 / STEP_S, rel=0.15)
        assert math.isnan(summary.ttft_s.p50)
        assert math.isnan(summary.wait_s.mean)
        assert math.isnan(summary.end_to_end_s.p99)
        assert math.isnan(summary.goodput_per_s)
        assert summary.requests_per_s == pytest.approx(1 / STEP_S, rel=0.01)
        assert summary.utilisation == pytest.approx(1, abs=0.01)
        assert summary.as_row()["ttft_p99_s"] is None


@pytest.mark.parametrize("seed", range(6))
def test_a_busy_queue_is_no_overload(seed: int) -> None:
    for count in (1_000, 20_000):
        trace = poisson_trace(0.9 / STEP_S, np.ones(count), seed=seed)
        result = simulate(trace, CONSTANT, ALONE, fixed_k(0), laws=[ConstantAcceptance(0)])
        assert result.summary().steady
        shared = simulate(
            traffic(8, 300, spread="geometric"), DENSE, ROOMY, fixed_k(3), requests=1_000, seed=seed
        )
        assert shared.summary().steady


def decoding_and_k(result: SimulationResult) -> list[tuple[int, int]]:
    names = [STEP_FIELDS.index(name) for name in ("decoding", "k")]
    return [(int(batch), int(k)) for batch, k in result.steps[:, names]]


def test_tiers_change_k_at_their_batches() -> None:
    policy = BatchPolicy(ks=(4, 2, 0), first_batches=(0, 5, 12))
    result = simulate(traffic(20, 60, spread="geometric"), DENSE, ROOMY, policy, requests=1_000)
    seen = decoding_and_k(result)
    assert {k for _, k in seen} == {0, 2, 4}
    for batch, k in seen:
        assert k == (4 if batch < 5 else 2 if batch < 12 else 0)


def test_a_table_changes_k_in_every_step() -> None:
    table = k_by_batch([5, 5, 4, 3, 2, 1, 0])
    result = simulate(traffic(6, 60, spread="geometric"), DENSE, ROOMY, table, requests=1_000)
    seen = decoding_and_k(result)
    assert {k for _, k in seen} == {0, 1, 2, 3, 4, 5}
    assert all(k == [5, 5, 4, 3, 2, 1, 0][min(batch, 6)] for batch, k in seen)


def test_hysteresis_holds_a_tier_until_the_batch_is_well_below() -> None:
    shape = traffic(20, 60, spread="geometric")
    changes = []
    for hysteresis in (0, 3):
        policy = BatchPolicy(ks=(3, 0), first_batches=(0, 10), hysteresis=hysteresis)
        seen = decoding_and_k(simulate(shape, DENSE, ROOMY, policy, requests=3_000))
        changes.append(sum(a != b for (_, a), (_, b) in pairwise(seen)))
        assert all(k == 0 for batch, k in seen if batch >= 10)
        assert all(k == 3 for batch, k in seen if batch < 10 - hysteresis)
        between = {k for batch, k in seen if 10 - hysteresis <= batch < 10}
        assert between == (set() if not hysteresis else {0, 3})
    assert 0 < changes[1] < 0.7 * changes[0]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"ks": ()}, "ks: is empty"),
        ({"ks": (1, 2)}, "one for each k, got 1 for 2"),
        ({"ks": (1, 2), "first_batches": (1, 5)}, "must rise from 0"),
        ({"ks": (1, 2), "first_batches": (0, 0)}, "must rise from 0"),
        ({"ks": (-1,)}, "ks: must be"),
        ({"ks": (1,), "hysteresis": -1}, "hysteresis"),
    ],
)
def test_a_policy_without_sense_is_refused(given: dict[str, tuple[int, ...]], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        BatchPolicy(**given)  # type: ignore[arg-type]


def test_a_seed_repeats_a_run_and_gives_all_policies_the_same_requests() -> None:
    shape = traffic(10, 60, spread="lognormal")
    shape = replace(shape, classes=(replace(shape.classes[0], variation=0.8),))
    first, again, other = (
        simulate(shape, DENSE, ROOMY, fixed_k(3), requests=500, seed=seed) for seed in (5, 5, 6)
    )
    plain = simulate(shape, DENSE, ROOMY, fixed_k(0), requests=500, seed=5)
    np.testing.assert_array_equal(first.outcomes.finish_s, again.outcomes.finish_s)
    assert not np.array_equal(first.outcomes.finish_s, other.outcomes.finish_s)
    np.testing.assert_array_equal(first.requests.arrival_s, plain.requests.arrival_s)
    np.testing.assert_array_equal(first.requests.output_tokens, plain.requests.output_tokens)
    assert not np.array_equal(first.requests.output_tokens, other.requests.output_tokens)


def test_drawn_requests_are_of_their_classes() -> None:
    chat = TrafficClass(
        name="chat",
        share=0.3,
        prompt_tokens=400,
        output_tokens=50,
        law=ConstantAcceptance(0.7),
        spread="geometric",
    )
    bulk = TrafficClass(
        name="bulk",
        share=0.7,
        prompt_tokens=90,
        output_tokens=200,
        law=ConstantAcceptance(0.3),
        spread="lognormal",
        variation=0.5,
        prefix_tokens=64,
        prefix_unit=16,
    )
    count = 10_000
    result = simulate(Traffic(rate_per_s=10, classes=(chat, bulk)), DENSE, ROOMY, fixed_k(2), requests=count)
    requests = result.requests
    mine = requests.class_index == 0
    assert mine.mean() == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / count))
    assert requests.arrival_s[-1] == pytest.approx(count / 10, rel=4 / math.sqrt(count))
    for which, one in ((mine, chat), (~mine, bulk)):
        for lengths, mean in (
            (requests.prompt_tokens[which], one.prompt_tokens),
            (requests.output_tokens[which], one.output_tokens),
        ):
            assert lengths.mean() == pytest.approx(mean, abs=4 * lengths.std() / math.sqrt(lengths.size))
    read = (requests.prompt_tokens - requests.cached_tokens)[~mine]
    # A cache of 64 tokens in units of 16 gives 32 beside a drafter; whole tokens of it lose half of one.
    assert read.mean() == pytest.approx(90 - 32 + 0.5, abs=0.5)
    own = {name: result.summary(class_name=name) for name in ("chat", "bulk")}
    assert own["chat"].tpot_s.mean < own["bulk"].tpot_s.mean, "the better law streams faster in shared steps"
    assert own["chat"].requests + own["bulk"].requests == result.summary().requests
    assert own["chat"].rate_per_s + own["bulk"].rate_per_s == pytest.approx(result.summary().rate_per_s)
    with pytest.raises(UnknownNameError, match="chat"):
        result.summary(class_name="chatt")


def test_replicas_share_the_load_and_the_least_loaded_one_waits_less() -> None:
    shape = traffic(30, 40, spread="geometric")
    limits = Limits(max_batch=8)
    turn, least = (
        simulate(shape, DENSE, limits, fixed_k(0), requests=3_000, replicas=3, routing=routing).summary()
        for routing in ("round_robin", "least_loaded")
    )
    one = simulate(traffic(10, 40, spread="geometric"), DENSE, limits, fixed_k(0), requests=3_000).summary()
    assert turn.decoding == pytest.approx(3 * one.decoding, rel=0.05)
    assert turn.utilisation == pytest.approx(one.utilisation, rel=0.05)
    assert least.wait_s.p99 < turn.wait_s.p99
    with pytest.raises(InputError, match="routing: must be round_robin or least_loaded"):
        simulate(shape, DENSE, limits, fixed_k(0), routing="random")  # type: ignore[arg-type]


def test_one_replica_is_the_same_by_turn_and_by_load() -> None:
    shape = traffic(8, 40, spread="geometric")
    by_turn, by_load = (
        simulate(shape, DENSE, ROOMY, fixed_k(3), requests=500, routing=routing)
        for routing in ("round_robin", "least_loaded")
    )
    np.testing.assert_allclose(by_turn.outcomes.finish_s, by_load.outcomes.finish_s)


def test_goodput_counts_who_meets_every_limit() -> None:
    result = simulate(traffic(8, 60, spread="geometric"), DENSE, ROOMY, fixed_k(3), requests=2_000)
    every = result.summary()
    assert every.goodput_per_s == pytest.approx(every.rate_per_s)
    half = result.summary(ServiceLevel(ttft_s=every.ttft_s.p50))
    assert half.goodput_per_s == pytest.approx(every.rate_per_s / 2, rel=0.01)
    both = result.summary(ServiceLevel(ttft_s=every.ttft_s.p50, tpot_s=every.tpot_s.p50))
    assert 0.1 * every.rate_per_s < both.goodput_per_s < half.goodput_per_s
    assert result.summary(ServiceLevel(gap_s=1e-4)).goodput_per_s == pytest.approx(
        every.rate_per_s * float(np.mean(result.requests.output_tokens[200:1900] == 1))
    )
    late = result.summary(ServiceLevel(end_to_end_s=every.end_to_end_s.p95)).goodput_per_s
    assert late == pytest.approx(0.95 * every.rate_per_s, rel=0.01)


def test_arguments_that_do_not_go_together_are_refused() -> None:
    trace = poisson_trace(1, np.ones(3))
    with pytest.raises(InputError, match="laws: must be one, or one for each of the 1 classes"):
        simulate(trace, CONSTANT, ALONE, fixed_k(0))
    with pytest.raises(InputError, match="laws: go with a trace"):
        simulate(traffic(1, 5), CONSTANT, ALONE, fixed_k(0), laws=[ConstantAcceptance(0.5)])
    with pytest.raises(InputError, match="requests: must be a whole number from 1 to 3"):
        simulate(trace, CONSTANT, ALONE, fixed_k(0), laws=[ConstantAcceptance(0.5)], requests=4)
    with pytest.raises(InputError, match="must be one law for each class"):
        simulate(traffic(1, 5, law=ConstantAcceptance(np.array([0.5, 0.6]))), CONSTANT, ALONE, fixed_k(2))
