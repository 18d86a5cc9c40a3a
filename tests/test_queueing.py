"""The queue of a replica against closed forms: M/G/∞, processor sharing, M/M/c, conserved tokens."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from specmath.acceptance import BetaAcceptance, ConstantAcceptance
from specmath.checks import FloatArray
from specmath.errors import InputError
from specmath.latencies import latencies
from specmath.laws import AcceptanceLaw
from specmath.queueing import Queue, Service, steps_per_request
from specmath.traffic import Limits, Spread, Traffic, TrafficClass

LAW = ConstantAcceptance(0.7)
Steps = Callable[[FloatArray, FloatArray], FloatArray]


def linear(fixed_s: float, per_sequence_s: float = 0.0, per_token_s: float = 0.0) -> Steps:
    """T = a + b·B + c·p."""
    return lambda batch, prompt: fixed_s + per_sequence_s * batch + per_token_s * prompt


def queue(
    step_s: Steps,
    rate: float,
    *,
    k: int = 4,
    output: float = 301,
    prompt: float = 1000,
    cap: int = 512,
    spread: Spread = "constant",
    laws: tuple[AcceptanceLaw, ...] = (LAW,),
) -> Queue:
    classes = tuple(
        TrafficClass(
            name=f"{place}",
            share=1 / len(laws),
            prompt_tokens=prompt,
            output_tokens=output,
            law=law,
            spread=spread,
        )
        for place, law in enumerate(laws)
    )
    across = np.ones(cap)
    service = Service(
        name="static",
        ks=np.full(cap, k),
        step_s=step_s,
        lengths=np.outer([law.acceptance_length(k) for law in laws], across),
        variances=np.outer([law.accepted_variance(k) for law in laws], across),
        limits=Limits(max_batch=cap),
        drafting=k > 0,
    )
    return Queue(service, Traffic(rate_per_s=rate, classes=classes))


def balance(of: Queue) -> tuple[float, float]:
    """Mean batch and TPOT."""
    state = of.equilibrium()
    assert state is not None
    return state.batch, latencies(of, state)[0].tpot_s


@pytest.mark.parametrize("law", [ConstantAcceptance(0.7), BetaAcceptance(2.0, 1.0)])
@pytest.mark.parametrize(("tokens", "k"), [(20, 0), (20, 3), (101, 5), (400, 2)])
def test_steps_of_a_request_by_renewal(law: AcceptanceLaw, tokens: int, k: int) -> None:
    """M(n) = 1 + Σ p_j M(n − j), exactly, against its limit for long outputs."""
    pmf = law.accepted_pmf(k)
    needed = np.zeros(tokens)
    for left in range(1, tokens):
        needed[left] = 1 + sum(share * needed[max(left - 1 - j, 0)] for j, share in enumerate(pmf))
    expected = steps_per_request(tokens, law.acceptance_length(k), law.accepted_variance(k))
    assert expected == pytest.approx(needed[-1], rel=2e-3)


def test_a_request_takes_a_step_at_least() -> None:
    assert steps_per_request(2, 5, 0) == 1
    with pytest.raises(InputError, match="output_tokens"):
        steps_per_request(1, 2, 0)


@pytest.mark.parametrize("rate", [0.1, 3.0, 10.0])
@pytest.mark.parametrize("k", [0, 4])
def test_a_constant_step_makes_the_batch_rate_times_steps_times_step(rate: float, k: int) -> None:
    """M/G/∞: the number running is Poisson."""
    of = queue(linear(0.02), rate, k=k)
    state = of.equilibrium()
    assert state is not None
    mean = rate * float(of.mean_steps[0]) * 0.02
    assert state.batch == pytest.approx(mean)
    if k == 0:
        assert mean == pytest.approx(rate * 300 * 0.02)
    counts = np.arange(1, 20)
    poisson = [math.exp(-mean + n * math.log(mean) - math.lgamma(n + 1)) for n in counts]
    assert state.running[:19] == pytest.approx(poisson)
    assert state.idle == pytest.approx(math.exp(-mean))


@pytest.mark.parametrize("rate", [0.1, 5.0, 10.0])
def test_a_linear_step_has_the_closed_root(rate: float) -> None:
    """B = λ·M·(a + b·(1 + B)), the request itself among those it shares its steps with."""
    fixed, per_sequence = 0.02, 2e-4
    of = queue(linear(fixed, per_sequence), rate)
    offered = rate * float(of.mean_steps[0])
    assert balance(of)[0] == pytest.approx(offered * (fixed + per_sequence) / (1 - offered * per_sequence))


def test_prefill_takes_its_part_of_the_steps() -> None:
    """T = a + b·B + c·p with p = λ·P·T, whatever the chunks; phases add what they add."""
    fixed, per_sequence, per_token, rate = 0.02, 2e-4, 1e-5, 8.0
    of = queue(linear(fixed, per_sequence, per_token), rate)
    mean_s, _ = of.mean_step_s(rate)
    expected = (fixed + per_sequence * of.batches) / (1 - rate * 1000 * per_token)
    assert mean_s == pytest.approx(expected)
    offered = rate * float(of.mean_steps[0]) / (1 - rate * 1000 * per_token)
    root = offered * (fixed + per_sequence) / (1 - offered * per_sequence)
    assert balance(of)[0] == pytest.approx(root, rel=1e-3)


def test_a_step_in_proportion_to_the_batch_is_processor_sharing() -> None:
    load = 5.0 * 300 * 5e-4
    of = queue(linear(0.0, 5e-4), 5.0, k=0, cap=2000)
    state = of.equilibrium()
    assert state is not None
    assert state.idle == pytest.approx(1 - load)
    assert state.batch == pytest.approx(load / (1 - load))


def test_a_full_batch_waits_as_in_a_queue_of_several_servers() -> None:
    """M/M/c at a constant step and geometric lengths; Erlang's C by its sum."""
    servers, rate = 8, 1.1
    of = queue(linear(0.02), rate, k=0, cap=servers, output=301, spread="geometric", prompt=1)
    state = of.equilibrium()
    assert state is not None
    offered = rate * 300 * 0.02
    terms = [offered**n / math.factorial(n) for n in range(servers)]
    last = offered**servers / math.factorial(servers) / (1 - offered / servers)
    erlang = last / (sum(terms) + last)
    # A place is taken for one step more, that of the prompt: a hundredth of a step's wait counts much here.
    assert state.queueing == pytest.approx(erlang, rel=0.02)
    assert state.queue_length == pytest.approx(erlang * offered / (servers - offered), rel=0.04)
    assert state.batch == pytest.approx(offered, rel=0.002)


def test_a_rare_request_runs_alone() -> None:
    of = queue(linear(0.02, 1e-3), 1e-6)
    batch, tpot_s = balance(of)
    assert tpot_s == pytest.approx(float(of.mean_steps[0]) * 0.021 / 300)
    assert batch == pytest.approx(1e-6 * 300 * tpot_s)


def test_tokens_are_conserved() -> None:
    """What steps deliver a second is what arrives: Σ n·π(n)/T(n) tokens of E, less what overshoots."""
    for rate in (2.0, 9.0):
        of = queue(linear(0.02, 2e-4), rate, laws=(LAW, ConstantAcceptance(0.3)))
        state = of.equilibrium()
        assert state is not None
        delivered = (
            float(state.in_place @ (state.batches / state.mean_step_s)) / float(of.mean_steps[0]) * 300
        )
        assert delivered == pytest.approx(rate * 300, rel=1e-3)


def test_speculation_amplifies_below_saturation() -> None:
    """At one rate the batch falls by more than the speed-up of the step: fewer sequences make it shorter."""
    plain, drafting = (queue(linear(step, 3e-4), 8.0, k=k) for step, k in ((0.02, 0), (0.024, 4)))
    batch = balance(plain)[0]
    length = float(LAW.acceptance_length(4))
    same_batch = length * (0.02 + 3e-4 * batch) / (0.024 + 3e-4 * batch)
    assert batch / balance(drafting)[0] > same_batch * 1.2


def test_classes_share_steps_and_differ_in_tokens() -> None:
    of = queue(linear(0.02, 2e-4), 5.0, laws=(ConstantAcceptance(0.9), ConstantAcceptance(0.2)))
    state = of.equilibrium()
    assert state is not None
    whole, quick, slow = latencies(of, state)
    assert [quick.itl_s, slow.itl_s] == [whole.itl_s] * 2
    steps = of.steps[:, 0]
    assert slow.tpot_s / quick.tpot_s == pytest.approx(steps[1] / steps[0])
    assert whole.tpot_s == pytest.approx((quick.tpot_s + slow.tpot_s) / 2)


def test_more_than_the_highest_rate_is_overload_and_less_is_not() -> None:
    step_s = linear(0.02, 2e-4, 1e-5)
    of = queue(step_s, 1.0, prompt=100)
    highest = of.highest_rate_per_s
    assert queue(step_s, highest * 1.001, prompt=100).equilibrium() is None
    assert queue(step_s, highest * 0.999, prompt=100).equilibrium() is not None
    # A request takes its share of steps of 512, and its prompt.
    steps = float(of.mean_steps[-1])
    decoding = 512 / (1 + 1 / steps)  # each of 512 places is a step in prefill before it decodes
    expected = 1 / (steps / decoding * (0.02 + 2e-4 * decoding) + 100 * 1e-5)
    assert highest == pytest.approx(expected, rel=1e-4)


def test_prefill_alone_can_be_too_much() -> None:
    of = queue(linear(0.02, 0.0, 1e-5), 1.0, prompt=20_000, output=2)
    assert of.highest_rate_per_s == pytest.approx(2048 / 20_000 / (0.02 + 2048e-5), rel=1e-3)


def test_an_edge_beyond_which_steps_are_long_is_metastable() -> None:
    def cliff(batch: FloatArray, prompt: FloatArray) -> FloatArray:
        return np.where(batch > 200, 5.0, 0.02) + 0 * prompt

    calm = queue(cliff, 50.0, prompt=1)
    state = calm.equilibrium()
    assert state is not None
    assert state.metastable_beyond == 200
    assert state.batch == pytest.approx(50 * float(calm.mean_steps[0]) * 0.02, rel=1e-6)
    assert queue(cliff, calm.highest_rate_per_s * 0.99, prompt=1).equilibrium() is None


def test_quantiles_of_geometric_outputs_at_a_constant_step() -> None:
    """The end-to-end time is then the number of steps: −ln(1 − q) of its mean, but for the first token."""
    of = queue(linear(0.01), 2.0, k=0, output=2001, prompt=1, spread="geometric")
    state = of.equilibrium()
    assert state is not None
    found = latencies(of, state)[0]
    for q, value in ((0.5, found.e2e_p50_s), (0.95, found.e2e_p95_s), (0.99, found.e2e_p99_s)):
        assert value == pytest.approx(-math.log(1 - q) * 2000 * 0.01, rel=0.03)


def test_percentiles_are_left_out_near_saturation() -> None:
    highest = queue(linear(0.02, 2e-4), 1.0).highest_rate_per_s
    of = queue(linear(0.02, 2e-4), 0.95 * highest)
    state = of.equilibrium()
    assert state is not None
    found = latencies(of, state)[0]
    assert math.isnan(found.e2e_p99_s)
    assert found.e2e_s > 0


def test_a_gap_with_prefill_in_it_is_in_the_tail() -> None:
    of = queue(linear(0.02, 0.0, 1e-4), 2.0)
    state = of.equilibrium()
    assert state is not None
    found = latencies(of, state)[0]
    assert found.itl_p99_s == pytest.approx(0.02 + 1000 * 1e-4, rel=0.1)
    assert found.itl_s < 0.03


def test_a_service_of_another_shape_is_refused() -> None:
    of = queue(linear(0.02), 1.0)
    two = queue(linear(0.02), 1.0, laws=(LAW, LAW))
    with pytest.raises(InputError, match="a row for each of 2 classes"):
        Queue(of.service, two.traffic)
