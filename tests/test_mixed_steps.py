"""Mixed steps against their sources, and the table against the steps it was made of."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from specmath.acceptance import ConstantAcceptance
from specmath.additive import AdditiveCost
from specmath.additive_source import Additive
from specmath.catalogue import load_hardware
from specmath.checks import FloatArray
from specmath.drafters.methods import drafter_of
from specmath.mixed_steps import End, MixedSteps, TabulatedSteps, batch_knots, prefill_knots, tabulated
from specmath.model_catalogue import load_model
from specmath.profile_catalogue import load_profile
from specmath.profiled_source import Profiled, forecast_cases
from specmath.prompt_costs import prompt_costs, roofline_beneath
from specmath.traffic import Traffic, TrafficClass

LAW = ConstantAcceptance(0.7)
COST = AdditiveCost(
    weights_s=8e-3,
    kv_s_per_token=1e-8,
    compute_s_per_token=2e-5,
    kv_reread=0.3,
    draft_fixed_s=5e-4,
    draft_s_per_sequence=1e-6,
    draft_kv_s_per_token=0,
    overhead_s=1e-3,
    plain_overhead_s=5e-4,
)
LINEAR = Additive(cost=COST, name="toy")


def traffic(prompt: float = 2000, cached: float = 0) -> Traffic:
    one = TrafficClass(
        name="chat", share=1, prompt_tokens=prompt, output_tokens=300, law=LAW, prefix_tokens=cached
    )
    return Traffic(rate_per_s=1, classes=(one,))


def linear_steps() -> MixedSteps:
    prompts = prompt_costs(LINEAR, traffic(), 2048, drafting=True)
    return MixedSteps(source=LINEAR, prompts=prompts, law=LAW, context=1000)


def profiled() -> Profiled:
    target, part = load_model("llama-3.1-8b"), load_hardware("h100-sxm")
    drafter = drafter_of(target, load_model("eagle3-llama-3.1-8b"))
    case = forecast_cases(load_profile("vllm", part), part, target, drafter)[0]
    assert isinstance(case, Profiled)
    return case


@pytest.mark.parametrize("k", [0, 3])
@pytest.mark.parametrize("batch", [1, 7, 300])
def test_without_prefill_it_is_the_step_of_the_source(k: int, batch: int) -> None:
    expected = COST.plain_step_s(batch, 1000) if k == 0 else COST.speculative_step_s(k, batch, 1000)
    assert linear_steps().step_s(batch, 0, k) == pytest.approx(expected)


@pytest.mark.parametrize("k", [0, 3])
def test_a_prompt_token_costs_its_arithmetic_and_reads_no_cache_of_others(k: int) -> None:
    steps = linear_steps()
    added = np.asarray(steps.step_s(50, [1, 64, 2048], k)) - np.asarray(steps.step_s(50, 0, k))
    assert added == pytest.approx(2e-5 * np.array([1, 64, 2048]))


def test_prefill_alone_is_a_pass_of_its_tokens() -> None:
    assert linear_steps().step_s(0, 100, 3) == pytest.approx(8e-3 + 100 * 2e-5 + 5e-4)


def test_prompt_tokens_ride_for_little_below_the_ridge_and_cost_their_flops_above() -> None:
    source = profiled()
    prompts = prompt_costs(source, traffic(), 2048, drafting=False)
    steps = MixedSteps(source=source, prompts=prompts, law=LAW, context=2000)
    few, many = (float(steps.step_s(8, tokens, 0)) - float(steps.step_s(8, 0, 0)) for tokens in (16, 2048))
    assert few / 16 < 0.25 * many / 2048
    assert many > 2048 * 2 * 7.5e9 / 989e12  # no faster than the datasheet's arithmetic


def test_the_drafter_reads_prompts_only_where_it_is_loaded() -> None:
    source = profiled()
    prompts = prompt_costs(source, traffic(), 2048, drafting=True)
    assert prompts.draft_s > 0
    off, loaded = (
        MixedSteps(source=source, prompts=prompts, law=LAW, context=2000, drafter_loaded=is_loaded)
        for is_loaded in (False, True)
    )
    more = float(loaded.step_s(4, 1000, 0)) - float(off.step_s(4, 1000, 0))
    assert more == pytest.approx(1000 * prompts.draft_s)
    assert loaded.step_s(4, 1000, 2) == off.step_s(4, 1000, 2)


def test_a_tier_without_drafting_costs_what_is_said() -> None:
    prompts = prompt_costs(LINEAR, traffic(), 2048, drafting=True)
    tier = MixedSteps(
        source=LINEAR, prompts=prompts, law=LAW, context=1000, drafter_loaded=True, zero_tier_cost=0.25
    )
    assert tier.step_s(9, 0, 0) == pytest.approx(1.25 * float(linear_steps().step_s(9, 0, 0)))
    assert tier.step_s(9, 0, 2) == linear_steps().step_s(9, 0, 2)


def test_attention_over_a_long_prompt_grows_with_it() -> None:
    source = profiled()
    costs = [
        prompt_costs(source, traffic(prompt), 2048, drafting=False).attention_s for prompt in (2_000, 34_048)
    ]
    # 16,000 keys more on average, 32 layers of 32 heads of 128, products of queries, keys and values
    ideal_s = 16_000 * 4 * 32 * 128 * 32 / 989.4e12
    assert costs[0] == 0
    assert ideal_s < costs[1] < 2 * ideal_s


def test_the_roofline_is_found_beneath_what_corrects_it() -> None:
    source = profiled()
    assert roofline_beneath(source) is source.typical
    assert roofline_beneath(LINEAR) is None


def test_the_ends_of_the_range_are_those_of_the_source() -> None:
    source = profiled()
    bounds = source.step_bounds(4, 16, 2000)
    typical = float(source.step_cost(4, 16, 2000).in_plain_steps)
    prompts = prompt_costs(source, traffic(), 2048, drafting=True)
    found = {}
    for end in get_args(End):
        steps = MixedSteps(source=source, prompts=prompts, law=LAW, context=2000, end=end)
        found[end] = float(np.asarray(steps.step_s([8, 16], 0, 4))[1])
    low, middle, high = (found[end] for end in ("cheapest", "typical", "dearest"))
    assert low / middle == pytest.approx(float(bounds[0]) / typical)
    assert high / middle == pytest.approx(float(bounds[1]) / typical)


class Curved:
    """Steps that no table holds exactly."""

    def step_s(self, batch: Any, prefill_tokens: Any, k: int) -> FloatArray:
        sequences, prompt = np.asarray(batch, dtype=float), np.asarray(prefill_tokens, dtype=float)
        return np.asarray(1 + k + np.sqrt(sequences) + prompt**2 / 1e6)


def table() -> TabulatedSteps:
    return tabulated(Curved(), [0, 3], max_batch=1000, chunk_tokens=2048)


def test_every_small_batch_is_in_the_table_exactly() -> None:
    steps, cell = table(), 2048 // 64
    for batch in (1, 2, 77, 128):
        for tokens in (0, cell, 10 * cell, 2048):
            exact = float(Curved().step_s(batch, tokens, 3))
            assert steps.fast_step_s(batch, tokens, 3) == pytest.approx(exact)
            assert steps.step_s(batch, tokens, 3) == pytest.approx(exact)


def test_between_knots_the_table_is_close_and_both_look_ups_agree() -> None:
    steps, rng = table(), np.random.default_rng(1)
    for batch, tokens in zip(rng.integers(1, 1000, 200), rng.integers(0, 2048, 200), strict=True):
        fast = steps.fast_step_s(int(batch), float(tokens), 0)
        assert fast == pytest.approx(float(steps.step_s(batch, tokens, 0)))
        assert fast == pytest.approx(float(Curved().step_s(batch, tokens, 0)), rel=2e-3)


def test_beyond_its_end_the_table_says_its_end() -> None:
    assert table().step_s(5000, 9999, 0) == table().step_s(1000, 2048, 0)


def test_knots() -> None:
    knots = batch_knots(1000)
    assert knots[:129].tolist() == list(range(129))
    assert knots[-1] == 1000
    assert (np.diff(knots)[129:] / knots[129:-1]).max() < 0.04
    assert prefill_knots(2048).size == 65
