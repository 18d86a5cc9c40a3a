"""The load of a server: batch by hand, policies side by side, side costs, goodput, money, words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from specmath.acceptance import BetaAcceptance, ConstantAcceptance
from specmath.catalogue import load_hardware
from specmath.drafters.methods import drafter_of
from specmath.errors import InputError
from specmath.execution import Layout
from specmath.load_arms import Arm, LoadQuestion
from specmath.load_reach import reach_of
from specmath.load_table import LoadTable
from specmath.load_verdicts import best_arm, policy_name
from specmath.loads import MAX_RATES, forecast_load, load_question, simulate_load, trace_advice
from specmath.measurement_files import public_measurements
from specmath.mixtures import LookupAcceptance
from specmath.model_catalogue import load_model
from specmath.profile_catalogue import load_profile
from specmath.profiled_source import forecast_cases
from specmath.simulation.statistics import ServiceLevel
from specmath.traffic import Trace, TrafficClass
from tests.load_machines import Small, linear_machine, real_machine, requests


def rows_of(table: LoadTable, policy: str = "") -> list[dict[str, Any]]:
    return [row for row in table.rows() if policy in ("", row["policy"])]


def arms(question: LoadQuestion, rate: float) -> dict[str, Arm]:
    return {arm.policy: arm for arm in forecast_load(question, rate).arms[0]}


def test_a_constant_step_by_hand() -> None:
    """Without prefill, without prompts that count: B = λ·(N − 1)·T, and T at full acceptance by k + 1."""
    question = load_question([requests(1.0, prompt=1, output=1001)], source=linear_machine(), k=4)
    off, static = rows_of(forecast_load(question, 2.0))[:2]
    assert off["batch"] == pytest.approx(2 * 1000 * 0.01)
    assert off["tpot_s"] == pytest.approx(0.01)
    assert static["batch"] == pytest.approx(
        2 * (1000 / 5 + 0.4) * 0.01
    )  # half of k tokens is lost at the end
    assert static["itl_s"] == pytest.approx(0.01)
    assert static["tpot_s"] == pytest.approx(0.01 * 200.4 / 1000)
    assert static["speedup"] == pytest.approx(1000 / 200.4)
    assert off["tokens_per_s_per_gpu"] == 2 * 1001


def test_replicas_share_the_rate() -> None:
    source = linear_machine(token_s=1e-4)
    one, three = (
        rows_of(forecast_load(load_question([requests()], source=source, k=3, replicas=count), rate), "off")[
            0
        ]
        for count, rate in ((1, 4.0), (3, 12.0))
    )
    assert three["batch"] == pytest.approx(one["batch"])
    assert three["tpot_s"] == pytest.approx(one["tpot_s"])
    assert three["highest_rate_per_s"] == pytest.approx(3 * one["highest_rate_per_s"])
    assert three["tokens_per_s_per_gpu"] == pytest.approx(one["tokens_per_s_per_gpu"])


def test_the_best_k_and_the_tiers_are_no_worse_than_any_k() -> None:
    source = linear_machine(token_s=2e-4, draft_s=3e-4)
    whole = load_question([requests()], source=source)
    for rate in (0.5, 4.0, 10.0):
        found = arms(whole, rate)
        each = [arms(load_question([requests()], source=source, k=k), rate)["static"] for k in range(1, 9)]
        best = min(arm.tpot_s for arm in each)
        assert found["static"].tpot_s == pytest.approx(best)
        assert found["tiers"].tpot_s <= best * 1.02
        assert found["adaptive"].tpot_s <= best * 1.001


def test_speculation_that_pays_at_rest_can_lose_under_load() -> None:
    """Verification costs k + 1 tokens of arithmetic, which a busy machine does not have."""
    question = load_question([requests(0.6)], source=linear_machine(0.01, 3e-4, 5e-4), k=4)
    quiet, busy = arms(question, 0.2), arms(question, 6.0)
    assert quiet["static"].speedup > 1.2
    assert busy["static"].state == "overload"
    assert busy["off"].state == "steady"
    verdict = forecast_load(question, 6.0).verdict
    assert verdict.startswith("SLOWER at 6/s: do not speculate; k = 4 is overloaded")
    assert "no draft is made there by tiers of k" in verdict
    assert busy["tiers"].state == "steady"


def test_overload_is_said_and_no_number_is_made_up() -> None:
    table = forecast_load(load_question([requests()], source=linear_machine(token_s=1e-4), k=2), [1.0, 1e4])
    assert "OVERLOAD at 10,000/s" in table.verdict
    assert [advice.code for advice in table.warnings].count("overload") == 1
    for row in rows_of(table)[4:]:
        assert row["state"] == "overload"
        assert row["highest_rate_per_s"] > 0
        for key in ("batch", "tpot_s", "ttft_s", "e2e_s", "utilisation", "usd_per_million_tokens", "speedup"):
            assert row[key] is None
    for row in rows_of(table):
        assert all(value >= 0 for value in row.values() if isinstance(value, float))


def test_no_speculation_and_speculation_that_serves_what_plain_decoding_cannot() -> None:
    question = load_question([requests(0.9)], source=linear_machine(0.05), k=4, max_batch=32)
    highest = arms(question, 1.0)["off"].highest_rate_per_s
    table = forecast_load(question, 1.5 * highest)
    assert table.verdict.startswith("FASTER")
    assert "and plain decoding is overloaded" in table.verdict


@pytest.mark.parametrize("rate", [1.0, 5.0, 6.5, 7.9, 9.0, 9.6, 12.0])
@pytest.mark.parametrize("alpha", [0.4, 0.85])
def test_the_verdict_is_about_the_best_row_shown(alpha: float, rate: float) -> None:
    """Whatever its policy, adaptive verification included; and it is overload only where all rows are."""
    question = load_question([requests(alpha)], source=linear_machine(0.01, 3e-4, 5e-4), k=4)
    table = forecast_load(question, rate)
    steady = [arm for arm in table.arms[0] if arm.state != "overload"]
    assert ("OVERLOAD" in table.verdict) == (not steady)
    best = best_arm(question, table.arms[0])
    if best is not None:
        assert best.tpot_s <= 1.01 * min(arm.tpot_s for arm in steady)
        assert policy_name(best) in table.verdict or "do not speculate" in table.verdict


def test_adaptive_verification_that_alone_serves_a_rate_is_named() -> None:
    """One k, between its own highest rate and that of adaptive verification; plain decoding is slow."""
    question = load_question([requests(0.6)], source=linear_machine(0.05, 1e-4), k=8, max_batch=64)
    found = arms(question, 1.0)
    ends = {name: arm.highest_rate_per_s for name, arm in found.items()}
    others = max(ends["off"], ends["static"], ends["tiers"])
    assert ends["adaptive"] > 1.05 * others
    table = forecast_load(question, 1.02 * others)
    assert [arm.state for arm in table.arms[0]] == ["overload", "overload", "overload", "steady"]
    assert table.verdict.startswith("FASTER")
    assert "adaptive verification serves it" in table.verdict


def test_a_metastable_row_is_called_so() -> None:
    from dataclasses import replace

    question = load_question([requests(0.9)], source=linear_machine(token_s=1e-4), k=3)
    table = forecast_load(question, 1.0)
    shaken = [replace(arm, state="metastable") for arm in table.arms[0]]
    assert "metastable" not in table.verdict
    assert ", metastable: a burst may end in overload" in replace(table, arms=(tuple(shaken),)).verdict


def test_a_policy_pays_up_to_the_rate_at_which_its_gain_ends() -> None:
    question = load_question([requests(0.6)], source=linear_machine(0.01, 3e-4, 5e-4), k=4)
    reach = reach_of(question, arms(question, 1.0)["static"])
    assert reach is not None
    assert math.isnan(reach.range_per_s)
    below, above = (arms(question, reach.gain_per_s * part)["static"] for part in (0.98, 1.02))
    assert below.speedup > 1 > above.speedup
    table = forecast_load(question, [1.0, 2.0])
    named = best_arm(question, table.arms[-1])
    assert named is not None
    own = reach_of(question, named)
    assert own is not None
    assert f"pays up to {own.gain_per_s:.3g}/s with {policy_name(named)}" in table.verdict


def test_a_range_ends_to_pay_before_its_middle() -> None:
    question = load_question([requests()], source=real_machine(), k=3)
    reach = reach_of(question, arms(question, 1.0)["static"])
    assert reach is not None
    assert 0 < reach.range_per_s < reach.gain_per_s
    below, above = (arms(question, reach.range_per_s * part)["static"] for part in (0.98, 1.02))
    assert below.speedup_low > 1 > above.speedup_low


def test_adaptive_verification_has_a_range() -> None:
    found = arms(load_question([requests()], source=real_machine(), k=3), 5.0)
    adaptive, static = found["adaptive"], found["static"]
    assert adaptive.speedup_low < adaptive.speedup < adaptive.speedup_high
    assert adaptive.speedup_low == pytest.approx(static.speedup_low, rel=0.05)


def test_the_static_k_is_the_best_that_meets_the_level() -> None:
    """The longer draft has the least time per token, and a gap that is too long."""
    source = linear_machine(draft_s=2e-3)
    level = ServiceLevel(gap_s=0.0125)
    free, held = (
        load_question([requests(0.9, prompt=1)], source=source, k=[1, 6], level=one)
        for one in (ServiceLevel(), level)
    )
    assert arms(free, 1.0)["static"].k == 6
    assert arms(held, 1.0)["static"].k == 1
    rows = rows_of(forecast_load(held, 1.0))
    assert [row["slo"] for row in rows[:2]] == ["met", "met"]
    assert "misses gap p99" in {row["slo"] for row in rows}


def test_what_ends_a_goodput_rate_is_told() -> None:
    source = linear_machine(token_s=2e-4)
    for level, bound in (
        (ServiceLevel(tpot_s=0.02, ttft_s=60.0), "TPOT"),
        (ServiceLevel(tpot_s=60.0), "highest rate"),
        (ServiceLevel(end_to_end_s=1e-3, ttft_s=1e-3), "end to end"),
    ):
        question = load_question([requests()], source=source, k=2, level=level)
        assert rows_of(forecast_load(question, 1.0), "off")[0]["goodput_bound"] == bound


def test_a_level_that_nothing_meets_is_said() -> None:
    level = ServiceLevel(tpot_s=1e-4)
    question = load_question([requests()], source=linear_machine(), k=2, level=level)
    verdict = forecast_load(question, 1.0).verdict
    assert verdict.startswith("SLO MISSED at 1/s")
    assert "SLO met at no rate with k = 2 (TPOT)" in verdict


def test_a_simulated_run_that_is_too_short_is_said_to_be() -> None:
    question = load_question([requests()], source=linear_machine(token_s=1e-4), k=2)
    table = simulate_load(forecast_load(question, 8.0), requests=60, processes=1)
    states = {row["state"] for row in rows_of(table) if row["by"] == "simulation"}
    assert states == {"unsettled"}
    told = [advice for advice in table.warnings if advice.code == "run-too-short"]
    assert told
    assert all(advice.remedy.startswith("--simulate ") for advice in told)


def test_memory_caps_each_arm_at_its_own_batch() -> None:
    source = Small(cost=linear_machine(0.05).cost, name="small")
    question = load_question([requests()], source=source, k=2)
    off, static = rows_of(forecast_load(question, 0.3))[:2]
    assert (off["max_batch"], static["max_batch"], static["lost_batch"]) == (8, 6, 2)
    assert off["highest_rate_per_s"] == pytest.approx(8 / (301 * 0.05))  # a step of prefill, 300 of decoding
    full = forecast_load(question, 0.45)
    assert any(advice.code == "waits-for-a-place" for advice in full.warnings)


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(
        InputError, match="prompt_tokens: with its output it has 1,101 tokens, which do not fit"
    ):
        load_question([requests(prompt=800)], source=Small(cost=linear_machine().cost, name="small"), k=2)
    source = Small(cost=linear_machine().cost, name="small", drafting=0.0)
    table = forecast_load(load_question([requests()], source=source, k=2), 0.1)
    assert [row["state"] for row in rows_of(table)] == ["steady", "does not fit", "does not fit"]
    assert "DOES NOT FIT" in table.verdict or "does not fit" in table.verdict


def test_a_cap_of_the_engine_beside_a_drafter() -> None:
    question = load_question([requests()], source=linear_machine(0.01), k=2, max_batch_drafting=48)
    rows = rows_of(forecast_load(question, 1.0))
    assert [row["max_batch"] for row in rows] == [1024, 48, 48, 48]


def test_side_costs_are_terms_of_their_own() -> None:
    question = load_question(
        [requests(prompt=1000, cached=900)], source=linear_machine(token_s=1e-5), k=2, zero_tier_cost=0.2
    )
    off, static = rows_of(forecast_load(question, 1.0))[:2]
    assert (off["lost_prefix_tokens"], static["lost_prefix_tokens"]) == (0, 16)
    assert off["draft_prefill_s"] == 0


def test_a_tier_without_drafting_is_not_off() -> None:
    source = linear_machine(0.01, 3e-4, 5e-4)
    free, dear = (
        arms(load_question([requests(0.3)], source=source, zero_tier_cost=cost), 6.0) for cost in (0.0, 0.2)
    )
    assert free["tiers"].tpot_s == pytest.approx(free["off"].tpot_s, rel=0.02)
    assert dear["tiers"].tpot_s > free["off"].tpot_s
    assert dear["off"].tpot_s == free["off"].tpot_s
    tiers = dear["tiers"]
    assert tiers.service is not None
    assert tiers.equilibrium is not None
    batch = round(tiers.equilibrium.batch)
    held = 0.2 * (0.01 + 3e-4 * batch) if tiers.service.ks[batch - 1] == 0 else 0.0
    assert tiers.side["zero_tier_s"] == pytest.approx(held)


def test_a_longer_prefill_delays_the_first_token_and_the_rest() -> None:
    short, long = (
        arms(load_question([requests(prompt=prompt)], source=linear_machine(token_s=2e-5), k=2), 4.0)["off"]
        for prompt in (100, 1500)
    )
    assert long.latencies[0].ttft_s > short.latencies[0].ttft_s + 1000 * 2e-5
    assert long.tpot_s > short.tpot_s


def test_goodput_is_the_rate_at_which_the_level_is_just_met() -> None:
    source = linear_machine(token_s=2e-4)
    level = ServiceLevel(tpot_s=0.02)
    question = load_question([requests(prompt=1)], source=source, k=2, level=level)
    (off,) = rows_of(forecast_load(question, 1.0), "off")
    at_it = arms(question, off["goodput_rate_per_s"])["off"]
    assert at_it.tpot_s == pytest.approx(0.02, rel=1e-3)
    assert off["goodput_rate_per_s"] < off["highest_rate_per_s"]
    strict = load_question([requests(prompt=1)], source=source, k=2, level=ServiceLevel(tpot_s=0.001))
    assert rows_of(forecast_load(strict, 1.0), "off")[0]["goodput_rate_per_s"] == 0
    assert (
        rows_of(forecast_load(load_question([requests()], source=source, k=2), 1.0))[0]["goodput_rate_per_s"]
        is None
    )


def test_a_level_on_the_gap_and_one_on_the_token_move_against_each_other() -> None:
    """Longer drafts shorten the time per token and lengthen the gap between deliveries."""
    question = load_question([requests(0.9, prompt=1)], source=linear_machine(draft_s=2e-3), k=[1, 6])
    gaps = {}
    for k in (1, 6):
        one = load_question([requests(0.9, prompt=1)], source=linear_machine(draft_s=2e-3), k=k)
        gaps[k] = arms(one, 1.0)["static"].latencies[0]
    assert gaps[6].tpot_s < gaps[1].tpot_s
    assert gaps[6].itl_s > gaps[1].itl_s
    assert arms(question, 1.0)["static"].k == 6


def test_classes_have_rows_of_their_own_that_add_up() -> None:
    classes = [requests(0.6, name="code", share=0.3), requests(0.9, name="chat", share=0.7, output=101)]
    table = forecast_load(load_question(classes, source=linear_machine(token_s=1e-4), k=3), 3.0)
    whole, code, chat = rows_of(table, "static")
    assert [row["class"] for row in (whole, code, chat)] == ["all", "code", "chat"]
    assert whole["e2e_s"] == pytest.approx(0.3 * code["e2e_s"] + 0.7 * chat["e2e_s"])
    assert chat["tpot_s"] < code["tpot_s"]
    assert code["batch"] is None


def test_price_and_power_of_a_real_machine() -> None:
    source = real_machine()
    question = load_question([requests()], source=source, k=3, replicas=2)
    off = rows_of(forecast_load(question, 5.0))[0]
    part = source.typical.accelerator
    tokens = 5 * 301
    assert part.usd_per_hour is not None and part.tdp_w is not None  # noqa: PT018 - one fact of the catalogue
    assert off["usd_per_million_tokens"] == pytest.approx(2 * part.usd_per_hour / 3600 / tokens * 1e6)
    assert off["joules_per_million_tokens"] == pytest.approx(2 * part.tdp_w / tokens * 1e6)


def test_a_range_of_the_source_is_carried_through_the_load() -> None:
    question = load_question([requests()], source=real_machine(), k=3)
    static = rows_of(forecast_load(question, 10.0), "static")[0]
    assert static["speedup_low"] < static["speedup"] < static["speedup_high"]
    rest = rows_of(forecast_load(question, 1e-3), "static")[0]
    # Under load what is wrong about a step comes back through the batch.
    assert static["speedup_high"] / static["speedup_low"] > rest["speedup_high"] / rest["speedup_low"]


def test_simulated_rows_stand_beside_those_of_the_closed_form() -> None:
    question = load_question([requests(prompt=200, output=101)], source=linear_machine(token_s=5e-5), k=3)
    table = simulate_load(forecast_load(question, 6.0), requests=1500, seed=3, processes=1)
    rows = {(row["policy"], row["by"]): row for row in rows_of(table)}
    assert ("adaptive", "simulation") not in rows
    for policy in ("off", "static", "tiers"):
        closed, simulated = rows[policy, "closed form"], rows[policy, "simulation"]
        assert simulated["tpot_s"] == pytest.approx(closed["tpot_s"], rel=0.08)
        assert simulated["ttft_p99_s"] > simulated["ttft_s"]
        assert simulated["within_slo_per_s"] is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"k": 0}, "k: must be a whole number from 1"),
        ({"replicas": 0}, "replicas"),
        ({"max_batch": 0}, "max_batch"),
        ({"chunk_tokens": 0}, "chunk_tokens"),
        ({"zero_tier_cost": -1}, "zero_tier_cost"),
    ],
)
def test_refusals(change: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as fault:
        load_question([requests()], source=linear_machine(), **change)
    assert told in str(fault.value)


def test_rates_must_be_above_0() -> None:
    question = load_question([requests()], source=linear_machine(), k=1)
    for rate in (0, -5, math.inf):
        with pytest.raises(InputError, match="rate_per_s"):
            forecast_load(question, rate)


def test_a_law_of_another_drafter_is_refused() -> None:
    law = LookupAcceptance(0.5, ConstantAcceptance(0.8))
    with pytest.raises(InputError, match="match_rate"):
        load_question([requests(law=law)], source=linear_machine(), k=1)


def test_many_rates_are_told_in_runs() -> None:
    question = load_question([requests(law=BetaAcceptance(5.6, 2.3))], source=linear_machine(token_s=1e-4))
    verdict = forecast_load(question, [0.5, 1, 2, 4, 1000, 2000]).verdict
    assert verdict.startswith("FASTER at 0.5–4/s, OVERLOAD at 1,000–2,000/s")


def test_a_published_row_by_rate_is_as_near_as_the_docs_say() -> None:
    """Qwen3-32B on two H200 at one request a second (llm-d PR 2074); docs/load.md prints the error.

    The lengths were not stated; at one request a second they hardly matter. Nothing was tuned to this row.
    """
    (row,) = (one for one in public_measurements() if one.id == "M26-603")
    assert (row.target, row.hardware, row.devices) == ("qwen3-32b", "h200-sxm", 2)
    assert row.plain_tpot_s is not None
    target, part = load_model("qwen3-32b"), load_hardware("h200-sxm")
    source = forecast_cases(
        load_profile("vllm", part),
        part,
        target,
        drafter_of(target, method="eagle3"),
        layout=Layout(tp=2),
    )[0]
    classes = [requests(prompt=1000, output=250)]
    off = rows_of(forecast_load(load_question(classes, source=source, k=3), row.requests_per_s or 0), "off")[
        0
    ]
    assert off["tpot_s"] / row.plain_tpot_s == pytest.approx(0.95, abs=0.01)


def test_too_many_rates_are_refused_in_one_line() -> None:
    asked = load_question([requests()], source=linear_machine(), k=1)
    with pytest.raises(InputError, match=rf"takes {MAX_RATES} rates at most, got {MAX_RATES + 1}"):
        forecast_load(asked, [1.0] * (MAX_RATES + 1))


def test_requests_beyond_the_model_are_said_at_any_rate() -> None:
    part, target, draft = load_hardware("h100-sxm"), load_model("llama-3.1-8b"), load_model("llama-3.2-1b")
    profile = load_profile("vllm", part)
    leading = forecast_cases(profile, part, target, drafter_of(target, draft))[0]
    longer = TrafficClass(
        name="long", share=1.0, prompt_tokens=131_072, output_tokens=250, law=ConstantAcceptance(0.7)
    )
    for rate in (0.01, 50.0):  # steady, and overload
        warnings = forecast_load(load_question([longer], source=leading, k=2), rate).warnings
        told = {one.code: one.text for one in warnings}
        assert "131,322 tokens are longer than the 131,072" in told["beyond-the-model"]


@pytest.mark.parametrize(
    ("arrivals", "said"),
    [
        pytest.param([0.0] * 199 + [100.0], "in bursts", id="all at once"),
        pytest.param([0.5 * number for number in range(100)], "more evenly", id="a clock"),
        pytest.param(np.random.default_rng(3).exponential(1.0, 500).cumsum().tolist(), None, id="Poisson"),
        pytest.param([0.0, 0.0, 0.0, 9.0], None, id="too few to tell"),
    ],
)
def test_arrivals_that_are_no_poisson_process_are_told(arrivals: list[float], said: str | None) -> None:
    ones = np.full(len(arrivals), 100)
    trace = Trace(
        arrival_s=np.array(arrivals), prompt_tokens=ones, output_tokens=ones, class_of=np.zeros_like(ones)
    )
    texts = [advice.text for advice in trace_advice(trace)]
    assert texts == [] if said is None else said in texts[0]
