"""The closed form of a load against the simulator: highest rates, few places, mixed prompts, gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from specmath.acceptance import ConstantAcceptance
from specmath.additive_source import Additive
from specmath.checks import FloatArray
from specmath.equilibria import Equilibrium
from specmath.errors import InputError
from specmath.gates import batch_policy
from specmath.latencies import Latency, latencies
from specmath.load_arms import LoadQuestion
from specmath.loads import load_question
from specmath.queueing import Queue, Service
from specmath.simulation.runs import simulate
from specmath.simulation.statistics import Summary
from specmath.sources import BatchSource
from specmath.traffic import Spread, TrafficClass
from tests.load_machines import linear_machine, real_machine

FEW = linear_machine(0.01, 2e-5, 1e-3)


def question(
    source: BatchSource,
    prompt: float,
    output: float,
    *,
    alpha: float = 0.7,
    cap: int | None = None,
    chunk: int = 2048,
    spread: Spread = "constant",
    variation: float = 0.0,
) -> LoadQuestion:
    one = TrafficClass(
        name="all",
        share=1,
        prompt_tokens=prompt,
        output_tokens=output,
        law=ConstantAcceptance(alpha),
        spread=spread,
        variation=variation,
    )
    return load_question([one], source=source, k=4, max_batch=cap, chunk_tokens=chunk)


def service(of: LoadQuestion, policy: str) -> Service:
    machine = of.machine
    found = {"off": machine.off(), "static": machine.static(4), "tiers": machine.tiers}[policy]
    assert found is not None
    return found


def closed(of: LoadQuestion, policy: str, rate: float) -> tuple[Queue, Equilibrium, Latency]:
    queue = Queue(service(of, policy), of.machine.traffic.at(rate))
    state = queue.equilibrium()
    assert state is not None
    return queue, state, latencies(queue, state)[0]


def served(of: LoadQuestion, policy: str, rate: float, requests: int = 5000) -> Summary:
    chosen, machine = service(of, policy), of.machine
    return simulate(
        machine.traffic.at(rate),
        machine.drafting if chosen.drafting else machine.plain,
        chosen.limits,
        batch_policy(chosen.ks.tolist()),
        requests=requests,
    ).summary()


SATURATED = [
    pytest.param(question(real_machine(), 100_000, 250), "off", id="four places of 100k"),
    pytest.param(question(real_machine(), 100_000, 250), "static", id="four places of 100k, drafting"),
    pytest.param(question(real_machine(), 8000, 100, cap=4), "off", id="four places of 8k"),
    pytest.param(question(real_machine(), 8000, 100, cap=4), "static", id="four places of 8k, drafting"),
    pytest.param(question(real_machine(), 1000, 2, cap=4), "off", id="half of the places in prefill"),
    pytest.param(question(FEW, 4000, 50, cap=8), "off", id="toy"),
    pytest.param(question(FEW, 4000, 50, cap=8), "static", id="toy, drafting"),
    pytest.param(
        question(real_machine(), 1000, 250, alpha=0.6, chunk=512), "tiers", id="chunks end below the tier"
    ),
]


@pytest.mark.parametrize(("of", "policy"), SATURATED)
def test_the_highest_rate_is_what_a_full_machine_serves(of: LoadQuestion, policy: str) -> None:
    highest = Queue(service(of, policy), of.machine.traffic).highest_rate_per_s
    run = served(of, policy, 1.5 * highest, 4000)
    assert run.state == "overload"
    assert highest == pytest.approx(run.requests_per_s, rel=0.05)


def test_a_rate_beyond_batches_that_prefill_cannot_bring_about_is_overload() -> None:
    """k = 0 from batch 143 on could serve 21.5/s; with full chunks no more than 56 sequences ever decode."""
    of = question(real_machine(), 1000, 250, alpha=0.6, chunk=512)
    tiers = service(of, "tiers")
    assert Queue(tiers, of.machine.traffic.at(17)).equilibrium() is not None
    assert Queue(tiers, of.machine.traffic.at(19)).equilibrium() is None
    assert served(of, "tiers", 19, 8000).state == "overload"


@pytest.mark.parametrize("policy", ["off", "static"])
@pytest.mark.parametrize("share", [0.5, 0.76, 0.9])
def test_the_batch_of_few_places(policy: str, share: float) -> None:
    of = question(real_machine(), 8000, 100, cap=4)
    rate = share * Queue(service(of, policy), of.machine.traffic).highest_rate_per_s
    run, (_, state, found) = served(of, policy, rate), closed(of, policy, rate)
    assert state.batch == pytest.approx(run.decoding, rel=0.12)
    assert found.tpot_s == pytest.approx(run.token_s, rel=0.12)


@pytest.mark.parametrize(("rate", "policy"), [(5, "off"), (15, "off"), (10, "static")])
def test_the_first_token_of_mixed_prompts(rate: float, policy: str) -> None:
    of = question(real_machine(), 1000, 250, spread="lognormal", variation=1.5)
    run, (*_, found) = served(of, policy, rate, 8000), closed(of, policy, rate)
    assert found.ttft_s == pytest.approx(run.ttft_s.mean, rel=0.15)


@pytest.mark.parametrize(("rate", "prompt"), [(10, 1000), (15, 1000), (15, 500)])
def test_prompts_that_coincide_are_in_the_tail_of_gaps(rate: float, prompt: float) -> None:
    of = question(real_machine(), prompt, 250)
    run, (*_, found) = served(of, "static", rate), closed(of, "static", rate)
    assert found.itl_p99_s == pytest.approx(run.gap_s.p99, rel=0.08)


@pytest.mark.parametrize(("policy", "chunk"), [("off", 512), ("off", 2048), ("tiers", 512)])
def test_a_steady_row_has_a_time_to_the_first_token(policy: str, chunk: int) -> None:
    """It rises with the rate under one k, up to the highest rate."""
    of = question(real_machine(), 1000, 250, alpha=0.6, chunk=chunk)
    highest = Queue(service(of, policy), of.machine.traffic).highest_rate_per_s
    found = [closed(of, policy, share * highest)[2].ttft_s for share in np.linspace(0.05, 0.999, 20)]
    assert np.all(np.diff(found) > 0)
    assert np.all(np.isfinite(found))


def test_percentiles_are_left_out_where_k_changes_within_a_stay() -> None:
    of = question(linear_machine(0.02, 2e-4, 1e-3), 10, 400, alpha=0.6)
    edge = service(of, "tiers").ks.argmin() + 1
    _, state, found = closed(of, "tiers", 3.35)
    assert state.batch == pytest.approx(edge, rel=0.2)
    assert math.isnan(found.e2e_p95_s)
    _, state, found = closed(of, "tiers", 5.6)
    assert state.batch > 1.9 * edge
    assert found.e2e_p95_s == pytest.approx(served(of, "tiers", 5.6).end_to_end_s.p95, rel=0.03)


def test_two_hills_of_one_k_have_no_percentiles() -> None:
    def bump(batch: FloatArray, prompt: FloatArray) -> FloatArray:
        return 0.02 + 0.02 * np.clip((batch - 30) / 12, 0, 1) + 0 * prompt

    base = question(linear_machine(), 1, 301)
    plain = service(base, "off")
    hilly = Service(
        name="off",
        ks=plain.ks,
        step_s=bump,
        lengths=plain.lengths,
        variances=plain.variances,
        limits=plain.limits,
        drafting=False,
    )
    found = []
    for rate in (3.0, 3.8, 4.6):  # on the first hill, on both, on the second
        queue = Queue(hilly, base.machine.traffic.at(rate))
        state = queue.equilibrium()
        assert state is not None
        found.append((float(state.seen[:34].sum()), math.isnan(latencies(queue, state)[0].e2e_p50_s)))
    assert [nothing for _, nothing in found] == [False, True, False]
    assert 0.2 < found[1][0] < 0.8


@pytest.mark.parametrize("prompt", [1, 1000])
def test_an_output_of_one_step_is_not_drafted_for(prompt: float) -> None:
    """Two tokens of output are one step at any k, and the least step is the one without a draft."""
    of = question(linear_machine(draft_s=1e-3), prompt, 2)
    tiers = of.machine.tiers
    assert tiers is not None
    assert not tiers.ks.any()
    assert closed(of, "tiers", 2)[2].tpot_s <= closed(of, "off", 2)[2].tpot_s * (1 + 1e-9)
    adaptive = next(iter(of.machine.adaptive()))
    assert adaptive.lengths[0] == pytest.approx(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens(Additive):
    """A machine whose cache holds a number of tokens."""

    room: float

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        held = np.floor(self.room / (np.asarray(context) + np.asarray(k)))
        return held, held


def test_room_beyond_whole_sequences_is_not_lost() -> None:
    """4.7 sequences of 1,050 tokens are four places, and the room of 4.7."""
    of = question(Tokens(cost=FEW.cost, name="toy", room=4935.0), 1000, 100)
    limits = of.machine.limits(0)
    assert limits is not None
    assert limits.max_batch == 4
    assert limits.kv_tokens == pytest.approx(4935 + 4, rel=1e-3)


@pytest.mark.parametrize(
    ("room", "told"),
    [(0.5, "target: does not fit: its weights leave no room"), (900.0, "a mean context of 1,050 tokens")],
)
def test_a_machine_without_room_is_refused(room: float, told: str) -> None:
    with pytest.raises(InputError, match=told):
        question(Tokens(cost=FEW.cost, name="toy", room=room), 1000, 100).machine.limits(0)
