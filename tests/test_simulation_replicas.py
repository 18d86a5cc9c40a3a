"""Continuous batching: by pencil, against a plain second writing, and what must hold whatever comes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import ConstantAcceptance, PositionAcceptance
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.mixed_steps import TabulatedSteps, tabulated
from specmath.mixtures import ContextAcceptance
from specmath.simulation.draws import Yields
from specmath.simulation.outcomes import SimulationResult
from specmath.simulation.policies import BatchPolicy, fixed_k
from specmath.simulation.replicas import STEP_FIELDS
from specmath.simulation.requests import drawn_requests
from specmath.simulation.runs import simulate
from specmath.traffic import Limits, Trace, Traffic, TrafficClass
from tests.batching_by_hand import LinearSteps, Request, served_by_hand

ALL_ACCEPTED = ConstantAcceptance(1.0)


def trace_of(*requests: tuple[float, int, int]) -> Trace:
    """Arrival, prompt and output of each."""
    arrival, prompt, output = zip(*requests, strict=True)
    return Trace(
        arrival_s=np.array(arrival, dtype=float),
        prompt_tokens=np.array(prompt),
        output_tokens=np.array(output),
        class_of=np.zeros(len(requests), dtype=np.int64),
    )


def column(result: SimulationResult, name: str) -> list[float]:
    values: list[float] = result.steps[:, STEP_FIELDS.index(name)].tolist()
    return values


def test_a_trace_by_pencil() -> None:
    """A step takes 1 s and .1 s a prompt token; chunks of 10 tokens, two sequences at most.

    0.0  reads 10 of A's 15                                    2.0
    2.0  reads 5 of A and all 4 of B, one chunk                3.9: A and B their first; B is done
    3.9  A gets its second, C is read (came at 2.2)            5.9: C its first
    5.9  A and C                                               6.9: both done
    6.9  D came at 8: idle until then; 3 prompt tokens         9.3: D its first and only one
    """
    trace = trace_of((0, 15, 3), (0.5, 4, 1), (2.2, 10, 2), (8, 3, 1))
    limits = Limits(max_batch=2, chunk_tokens=10)
    result = simulate(
        trace, LinearSteps(per_prompt_token_s=0.1), limits, fixed_k(0), laws=[ConstantAcceptance(0.5)]
    )
    outcomes = result.outcomes
    np.testing.assert_allclose(outcomes.admitted_s, [0, 2, 3.9, 8])
    np.testing.assert_allclose(outcomes.first_token_s, [3.9, 3.9, 5.9, 9.3])
    np.testing.assert_allclose(outcomes.finish_s, [6.9, 3.9, 6.9, 9.3])
    np.testing.assert_allclose(outcomes.longest_gap_s, [2.0, 0, 1.0, 0])
    assert outcomes.deliveries.tolist() == [3, 1, 2, 1]
    np.testing.assert_allclose(column(result, "start_s"), [0, 2, 3.9, 5.9, 8])
    assert column(result, "prefill_tokens") == [10, 9, 10, 0, 3]
    assert column(result, "decoding") == [0, 0, 1, 2, 0]
    assert column(result, "running") == [1, 2, 2, 2, 1]
    assert column(result, "decoded") == [0, 0, 1, 2, 0]
    assert column(result, "firsts") == [0, 2, 1, 0, 1]
    summary = result.summary(warm_up=0, cool_down=0)  # to 8 s: a gap of 2 s and one of 1 s for A, 1 s for C
    assert summary.gap_s.mean == pytest.approx(4 / 3)
    assert (round(summary.gap_s.p50, 9), round(summary.gap_s.p95, 9)) == (1, 2)
    assert summary.token_s == pytest.approx(4 / 3)
    assert summary.tpot_s.mean == pytest.approx((1.5 + 1) / 2)


def test_accepted_drafts_by_pencil() -> None:
    """Four tokens a step, all accepted: 10 are 1 + 4 + 4 + 1, the last step's surplus is lost."""
    result = simulate(
        trace_of((0, 5, 10)), LinearSteps(), Limits(max_batch=1), fixed_k(3), laws=[ALL_ACCEPTED]
    )
    assert result.outcomes.finish_s.tolist() == [4.0]
    assert result.outcomes.deliveries.tolist() == [4]
    assert sum(column(result, "decoded")) == 9
    assert result.tpot_s.tolist() == [pytest.approx(3 / 9)]


def test_a_preemption_by_pencil() -> None:
    """Room for 20 tokens; both requests hold 6 + what they got + 1 slot.

    After four steps both have 4: 10 + 10 + 2 slots are more than 20, and B goes. A ends at 6. Then B's
    6 + 4 tokens are read again, which yields its fifth at 7, three seconds after its fourth.
    """
    limits = Limits(max_batch=8, kv_tokens=20)
    result = simulate(
        trace_of((0, 6, 6), (0, 6, 6)), LinearSteps(), limits, fixed_k(0), laws=[ConstantAcceptance(0)]
    )
    assert result.outcomes.finish_s.tolist() == [6, 8]
    assert result.outcomes.preemptions.tolist() == [0, 1]
    assert result.outcomes.longest_gap_s.tolist() == [1, 3]
    assert result.outcomes.deliveries.tolist() == [6, 6]
    assert result.late.tolist() == [[7, 3]]
    assert result.recomputed == 10
    assert result.kv_peak == 1.0
    later = simulate(
        trace_of((0, 6, 6), (0, 6, 6), (9, 1, 1)),
        LinearSteps(),
        limits,
        fixed_k(0),
        laws=[ConstantAcceptance(0)],
    )
    summary = later.summary(warm_up=0, cool_down=0)
    assert summary.gap_s.mean == pytest.approx((9 * 1 + 3) / 10)
    assert (summary.gap_s.p50, summary.gap_s.p99) == (1, 3)
    assert (summary.preemptions, summary.recomputed_tokens) == (1, 10)


def test_look_ahead_slots_take_room_even_where_the_tier_is_off() -> None:
    """6 + 1 prompt and 5 slots of k = 4 fit once into 20 tokens, with one slot they fit twice."""
    tiers = BatchPolicy(ks=(0, 4), first_batches=(0, 99))
    limits = Limits(max_batch=8, kv_tokens=20)
    trace = trace_of((0, 6, 2), (0, 6, 2))
    for policy, most in ((tiers, 1), (fixed_k(0), 2)):
        result = simulate(trace, LinearSteps(), limits, policy, laws=[ConstantAcceptance(0)])
        assert result.most_running == most


@pytest.mark.parametrize(
    ("prompt", "chunk", "steps"), [(10, 10, 1), (11, 10, 2), (20, 10, 2), (1, 1, 1), (25, 10, 3)]
)
def test_a_prompt_is_read_in_chunks(prompt: int, chunk: int, steps: int) -> None:
    limits = Limits(max_batch=1, chunk_tokens=chunk)
    result = simulate(trace_of((0, prompt, 1)), LinearSteps(), limits, fixed_k(0), laws=[ALL_ACCEPTED])
    assert result.ttft_s.tolist() == [steps]
    assert sum(column(result, "prefill_tokens")) == prompt


def test_cached_tokens_are_not_read_but_held() -> None:
    """Of 64 tokens in a cache of units of 16, three units are found; beside a drafter one less."""
    shape = {"share": 1.0, "prompt_tokens": 64, "output_tokens": 2, "prefix_tokens": 64}
    one = TrafficClass(name="chat", law=ALL_ACCEPTED, **shape)  # type: ignore[arg-type]
    for k, read in ((0, 16), (1, 32)):
        result = simulate(
            Traffic(rate_per_s=1, classes=(one,)),
            LinearSteps(),
            Limits(max_batch=1, kv_tokens=100),
            fixed_k(k),
            requests=1,
        )
        assert sum(column(result, "prefill_tokens")) == read
        assert result.kv_peak == pytest.approx((65 + k + 1) / 100)


GAPS_S = st.sampled_from([0.0, 0.3, 1.0, 2.5, 7.0])
SHAPES = st.tuples(GAPS_S, st.integers(1, 30), st.integers(1, 25), st.integers(0, 1))
"""Seconds since the request before, prompt, output and class of a request."""


@given(
    drawn=st.lists(SHAPES, min_size=1, max_size=25),
    max_batch=st.integers(1, 8),
    room=st.one_of(st.none(), st.integers(60, 160)),
    chunk=st.integers(1, 40),
    policy=st.sampled_from(
        [
            fixed_k(0),
            fixed_k(3),
            BatchPolicy(ks=(3, 1, 0), first_batches=(0, 3, 5), hysteresis=1),
            BatchPolicy(ks=(0, 2), first_batches=(0, 2)),
        ]
    ),
    seed=st.integers(0, 99),
)
@settings(max_examples=150, deadline=None)
def test_as_a_plain_writing_has_it(
    drawn: list[tuple[float, int, int, int]],
    max_batch: int,
    room: int | None,
    chunk: int,
    policy: BatchPolicy,
    seed: int,
) -> None:
    """Steps that go by at once change nothing, whatever is admitted, chunked and put back."""
    gaps, prompts, outputs, classes = (np.array(values) for values in zip(*drawn, strict=True))
    arrivals = gaps.cumsum()
    laws: list[AcceptanceLaw] = [ConstantAcceptance(0.6), PositionAcceptance((0.9, 0.5, 0.1))]
    trace = Trace(
        arrival_s=arrivals,
        prompt_tokens=prompts,
        output_tokens=outputs,
        class_of=classes,
        names=("a", "b"),
    )
    steps = LinearSteps(per_sequence_s=0.125, per_prompt_token_s=0.0625, per_draft_s=0.25)
    limits = Limits(max_batch=max_batch, kv_tokens=room, chunk_tokens=chunk)
    result = simulate(trace, steps, limits, policy, laws=laws, seed=seed)
    plain = [
        Request(float(when), int(prompt), 0, int(output), int(kind))
        for when, prompt, output, kind in zip(arrivals, prompts, outputs, classes, strict=True)
    ]
    served_by_hand(plain, Yields(laws, policy.ks, (seed, 3, 0)), steps, limits, policy)
    outcomes = result.outcomes
    np.testing.assert_allclose(
        outcomes.admitted_s, np.array([one.admitted_s for one in plain], dtype=float), atol=1e-6
    )
    np.testing.assert_allclose(outcomes.first_token_s, [one.times[0] for one in plain])
    np.testing.assert_allclose(outcomes.finish_s, [one.times[-1] for one in plain])
    longest = [max([0.0, *np.diff(one.times)]) for one in plain]
    np.testing.assert_allclose(outcomes.longest_gap_s, longest, atol=1e-9)
    assert outcomes.deliveries.tolist() == [len(one.times) for one in plain]
    assert outcomes.preemptions.tolist() == [one.preemptions for one in plain]
    assert sum(column(result, "decoded")) + sum(column(result, "firsts")) == outputs.sum()
    assert result.most_running <= max_batch
    assert room is None or result.kv_peak <= 1
    if not outcomes.preemptions.any():
        assert np.all(np.diff(outcomes.admitted_s) >= 0), "first come, first served"
        assert sum(column(result, "prefill_tokens")) == prompts.sum()


def test_preemptions_happen_in_the_property_test_above() -> None:
    """A narrow room with long outputs: the branch is not left untried."""
    trace = trace_of(*((0.0, 20, 25) for _ in range(6)))
    result = simulate(
        trace, LinearSteps(), Limits(max_batch=8, kv_tokens=100), fixed_k(3), laws=[ConstantAcceptance(0.6)]
    )
    assert result.outcomes.preemptions.sum() > 0
    assert sum(column(result, "prefill_tokens")) == 6 * 20 + result.recomputed


def test_a_prompt_longer_than_memory_is_refused() -> None:
    """30 + 10 − 1 tokens and two slots are 41."""
    trace = trace_of((0, 3, 3), (1, 30, 10))
    with pytest.raises(InputError, match=r"kv_tokens: is too small: request 2 takes 41 tokens"):
        simulate(trace, LinearSteps(), Limits(max_batch=2, kv_tokens=40), fixed_k(1), laws=[ALL_ACCEPTED])
    result = simulate(
        trace, LinearSteps(), Limits(max_batch=2, kv_tokens=41), fixed_k(1), laws=[ALL_ACCEPTED]
    )
    assert result.outcomes.preemptions.sum() == 0
    assert result.kv_peak == 1.0


STRAIGHT = LinearSteps(per_sequence_s=0.1, per_prompt_token_s=0.01, per_draft_s=0.2)


def table() -> TabulatedSteps:
    return tabulated(STRAIGHT, [0, 2], max_batch=8, chunk_tokens=64)


def test_a_table_answers_as_its_source_does() -> None:
    trace = trace_of(*((0.4 * i, 10 + i, 5) for i in range(20)))
    limits = Limits(max_batch=8, chunk_tokens=64)
    for k in (0, 2):
        one, other = (
            simulate(trace, steps, limits, fixed_k(k), laws=[ConstantAcceptance(0.5)])
            for steps in (STRAIGHT, table())
        )
        np.testing.assert_allclose(one.outcomes.finish_s, other.outcomes.finish_s, rtol=1e-9)


@pytest.mark.parametrize(
    ("limits", "policy", "problem"),
    [
        (Limits(max_batch=9, chunk_tokens=64), fixed_k(0), "tabulated to max_batch 8, not to 9"),
        (Limits(max_batch=8, chunk_tokens=65), fixed_k(0), "tabulated to chunk_tokens 64, not to 65"),
        (Limits(max_batch=8, chunk_tokens=64), fixed_k(3), "not tabulated for k = 3"),
    ],
)
def test_a_table_must_reach_to_the_limits(limits: Limits, policy: BatchPolicy, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        simulate(trace_of((0, 1, 1)), table(), limits, policy, laws=[ALL_ACCEPTED])


@pytest.mark.parametrize("step_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_step_takes_time(step_s: float) -> None:
    with pytest.raises(InputError, match="must take a finite time above 0"):
        simulate(
            trace_of((0, 1, 3)),
            LinearSteps(fixed_s=step_s),
            Limits(max_batch=1),
            fixed_k(0),
            laws=[ALL_ACCEPTED],
        )


@pytest.mark.parametrize("rate", [1e-300, 1e-9])
def test_a_rate_at_which_the_clock_resolves_no_step_is_refused(rate: float) -> None:
    one = TrafficClass(name="one", share=1, prompt_tokens=1, output_tokens=5, law=ALL_ACCEPTED)
    asked = Traffic(rate_per_s=rate, classes=(one,))
    with pytest.raises(InputError, match="rate_per_s: is too low to simulate"):
        simulate(asked, LinearSteps(fixed_s=0.01), Limits(max_batch=1), fixed_k(0), requests=50)
    slow = simulate(asked.at(1e-3), LinearSteps(fixed_s=0.01), Limits(max_batch=1), fixed_k(0), requests=50)
    assert slow.tpot_s == pytest.approx(0.01, rel=1e-6)


def test_acceptance_by_context_is_taken_at_the_mean_context_of_each_class() -> None:
    by_context = ContextAcceptance((100, 1100), (ConstantAcceptance(1.0), ConstantAcceptance(0.0)))
    short, long = (
        TrafficClass(name=f"{prompt}", share=0.5, prompt_tokens=prompt, output_tokens=20, law=by_context)
        for prompt in (90, 1090)
    )
    limits = Limits(max_batch=99)
    drawn = drawn_requests(Traffic(rate_per_s=1, classes=(short, long)), 20, seed=0, drafting=True)
    assert [law.acceptance_length(3) for law in drawn.laws] == [4.0, 1.0]
    steps = LinearSteps(fixed_s=0.01)
    result = simulate(Traffic(rate_per_s=1, classes=(short, long)), steps, limits, fixed_k(3), requests=20)
    taken = [result.outcomes.deliveries[result.requests.class_index == place].mean() for place in (0, 1)]
    assert taken == [5 + 1, 19 + 1]  # the first token, then 19 by fours or one by one
    trace = replace(trace_of((0, 90, 20), (9, 1090, 20)), class_of=np.array([0, 1]), names=("a", "b"))
    traced = simulate(trace, steps, limits, fixed_k(3), laws=[by_context])
    assert traced.outcomes.deliveries.tolist() == [6, 20]
