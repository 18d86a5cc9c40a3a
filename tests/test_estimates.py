"""What telemetry says about acceptance: every sample's answer, what is concluded, and what is refused."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.counted_acceptance import counts_of_cut_drafts
from specmath.engines.alpha_table import alpha_table, speedup_command
from specmath.engines.estimates import AcceptanceEstimate, estimate_acceptance
from specmath.engines.findings import findings
from specmath.engines.load_shares import observed_of, prefill_share, prefilled_tokens, prefix_hit_rate
from specmath.engines.recognition import read_telemetry
from specmath.engines.source_law import source_law
from specmath.engines.telemetry import Load, RequestCounts, Telemetry
from specmath.engines.totals import has_data, totals_of
from specmath.engines.typed_counts import typed_counts
from specmath.errors import DataError, InputError

DATA = Path(__file__).parent / "data"
EXPECTED = json.loads((DATA / "engine_samples" / "expected.json").read_text(encoding="utf-8"))


def sample(name: str) -> Path:
    return next(path for path in DATA.glob("engine_samples*/*") if path.name == name)


def estimate_of(name: str, k: int | None = None) -> AcceptanceEstimate:
    [record] = read_telemetry(sample(name))
    return estimate_acceptance(record, k=k)


def told(**fields: Any) -> Telemetry:
    return Telemetry(**{"engine": "vllm", "scope": "since start"} | fields)


def codes(estimate: AcceptanceEstimate) -> set[str]:
    return {advice.code for advice in findings(estimate)}


# ---------------------------------------------------------------- samples


def answers(key: str) -> list[Any]:
    rows = [(name, answer) for name, answer in EXPECTED.items() if answer.get(key) and (" " not in name)]
    return [pytest.param(name, answer[key], id=name) for name, answer in rows]


@pytest.mark.parametrize(("name", "length"), answers("mean_accepted_length_incl_bonus"))
def test_every_sample_gives_its_acceptance_length(name: str, length: float) -> None:
    k = EXPECTED[name]["k"] if name == "vllm-0.7.3-v0-metrics.txt" else None
    found = estimate_of(name, 5 if k else None)
    assert found.acceptance_length == pytest.approx(length, rel=1e-3)


@pytest.mark.parametrize(("name", "rates"), answers("per_position_conditional"))
def test_every_sample_gives_its_conditionals(name: str, rates: list[float | None]) -> None:
    known = [math.nan if rate is None else rate for rate in rates]
    assert estimate_of(name).conditional == pytest.approx(known, abs=1e-3, nan_ok=True)


@pytest.mark.parametrize(("name", "ratio"), answers("draft_acceptance_rate"))
def test_accepted_over_drafted_is_the_ratio_and_not_alpha(name: str, ratio: float) -> None:
    found = estimate_of(name)
    if found.telemetry.drafted and found.telemetry.accepted is not None:
        assert found.accepted_over_drafted == pytest.approx(ratio, rel=1e-4)
    if found.alpha is not None and found.k != 1:
        assert found.alpha.alpha > ratio


@pytest.mark.parametrize(
    ("name", "k", "alpha"),
    [
        pytest.param("vllm-0.8.5-v1-metrics.txt", None, 4750 / (2500 + 1900 + 1330 + 905), id="positions"),
        pytest.param("vllm-0.33.0-bench-serve.json", None, 28_823 / (22_173 + 15_521 + 9312), id="bench"),
        pytest.param("vllm-0.29.0-per-request-summary.json", None, 10 / 50, id="histogram: 10 of 43 + 4 + 3"),
        pytest.param("trtllm-1.4-prometheus.txt", None, 15_680 / (9800 + 7448 + 5096), id="own denominators"),
        pytest.param("vllm-0.33.0-v1-server.log", None, 0.0, id="nothing accepted"),
    ],
)
def test_alpha_of_samples_by_hand(name: str, k: int | None, alpha: float) -> None:
    found = estimate_of(name, k)
    assert found.alpha is not None
    assert found.alpha.alpha == pytest.approx(alpha, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "typed", "k", "length"),
    [
        pytest.param("vllm-0.8.3-v1-metrics.txt", 2, 2, 1 + 1284 / 1200, id="k typed, 2400 drafted"),
        pytest.param("vllm-0.7.3-v0-metrics.txt", 5, 5, 3.025, id="efficiency times 6"),
        pytest.param("vllm-0.7.3-v0-server.log", None, 5, 3630 / 1200, id="emitted over drafts"),
        pytest.param("sglang-0.5.23-server.log", None, 3, 2.57, id="length of the log"),
        pytest.param("trtllm-1.4-iteration-stats.json", None, 3, 1 + 49 / 31, id="49 of 31 drafts"),
        pytest.param("tgi-3.3.6-metrics.txt", None, 2, 1.9, id="length over all steps"),
    ],
)
def test_alpha_of_a_length_is_the_root_of_its_polynomial(
    name: str, typed: int | None, k: int, length: float
) -> None:
    roots = np.roots([*[1.0] * k, 1.0 - length])
    [root] = [root.real for root in roots if abs(root.imag) < 1e-9 and root.real > 0]
    found = estimate_of(name, typed).alpha
    assert found is not None
    assert found.alpha == pytest.approx(root, rel=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "vllm-0.13.0-zero-drafts-metrics.txt",
        "vllm-0.13.0-no-spec-metrics.txt",
        "vllm-0.29.0-per-request-zero.json",
        "llamacpp-2026-10-metrics-spec-off.txt",
        "llamacpp-2026-10-chat-response-no-draft.json",
        "vllm_cpu_0.32.0_pair_none_T0.metrics.after.txt",
    ],
)
def test_no_data_is_no_zero(name: str) -> None:
    [record] = read_telemetry(sample(name))
    with pytest.raises(DataError, match="no data: ") as caught:
        estimate_acceptance(record)
    assert ";" in caught.value.problem  # what to do
    with pytest.raises(DataError, match="no data: "):
        alpha_table([record])


def test_variable_k_is_flagged_and_its_alpha_is_near_that_of_the_tiers() -> None:
    """4,000 drafts of 3 and 2,000 of 1: α = 8080/(6000 + 3000 + 2160), which the counters do not tell."""
    found = estimate_of("vllm-0.33.0-dynamic-k-metrics.txt")
    assert found.alpha is not None
    assert found.alpha.alpha == pytest.approx(8080 / 11_160, abs=0.01)
    assert found.alpha.alpha_low < 8080 / 11_160 < found.alpha.alpha_high
    assert found.tokens_per_step == pytest.approx(1.734545, abs=1e-6)
    assert {"k-varies", "steps-without-drafts"} <= codes(found)
    assert math.isnan(found.p_value)


def test_the_interval_of_cut_drafts_holds_every_way_of_cutting() -> None:
    at = (9000, 8100, 6900, 6200)  # most drafts of four, some of two
    ways = [one.alpha for one in counts_of_cut_drafts(10_000, at, 39_000)]
    found = estimate_acceptance(told(drafts=10_000, drafted=39_000, accepted_at=at, k=4, k_varies=True)).alpha
    assert found is not None
    assert found.alpha == ways[0].alpha
    assert found.alpha_low == min(one.alpha_low for one in ways) < ways[0].alpha_low
    assert found.alpha_high == max(one.alpha_high for one in ways) > ways[0].alpha_high


def test_a_lookup_draft_is_told_by_its_steps() -> None:
    """154 of 567 steps drafted; 855 tokens of 567 steps."""
    found = estimate_of("vllm_cpu_0.32.0_pair_ngram_T0.metrics.after.txt")
    assert found.tokens_per_step == pytest.approx(855 / 567)
    assert found.drafting_share == pytest.approx(154 / 567)
    advice = next(one for one in findings(found) if one.code == "steps-without-drafts")
    assert "--match-rate 0.272" in advice.remedy


TRAINED = "vllm_cpu_0.32.0_trained_{}_T0.metrics.{}.txt"


def between(kind: str) -> AcceptanceEstimate:
    [record] = read_telemetry(
        sample(TRAINED.format(kind, "after")), since=sample(TRAINED.format(kind, "before"))
    )
    return estimate_acceptance(record)


def test_a_real_draft_model() -> None:
    """Figures computed apart from the scrapes, with formulas of the counts alone."""
    found = between("draft")
    record, alpha = found.telemetry, found.alpha
    assert (record.drafts, record.drafted, record.accepted) == (1695, 6780, 3106)
    assert record.accepted_at == (1247.0, 866.0, 597.0, 396.0)
    assert found.acceptance_length == pytest.approx(2.832448377581121, rel=1e-12)
    assert alpha is not None
    assert alpha.alpha == pytest.approx(0.7051078320090806, rel=1e-12)
    assert alpha.alpha_low == pytest.approx(0.6914679280263618, rel=1e-9)
    assert alpha.alpha_high == pytest.approx(0.7183903118032346, rel=1e-9)
    assert found.chi_square == pytest.approx(14.34995, abs=1e-5)
    told = next(advice.text for advice in findings(found) if advice.code == "not-constant")
    assert told.startswith("acceptance falls with position, 0.74, 0.69, 0.69, 0.66 ")


def test_why_fewer_tokens_a_step_come_out_is_said() -> None:
    """1,695 of 1,695 steps drafted, E is 2.832, and 2.802 tokens came out of a step."""
    cut = "the last steps of requests are cut at max_tokens"
    assumed = alpha_table([between("draft").telemetry]).assumptions
    assert next(one for one in assumed if cut in one).startswith(
        "tokens per step, 2.802, fall short of the 2.832 "
    )
    exact = told(drafts=100, k=2, accepted_at=(50, 25), steps=100, generated=175)
    assert not [one for one in alpha_table([exact]).assumptions if cut in one]


def test_a_real_lookup_draft_is_refused_one_alpha_in_spite_of_short_drafts() -> None:
    """95 of 5108 tokens missing cannot raise .643 at position 1, where every draft has a token."""
    found = between("ngram")
    record, alpha = found.telemetry, found.alpha
    assert (record.drafts, record.drafted, record.accepted) == (1277, 5013, 2314)
    assert record.accepted_at == (821.0, 619.0, 485.0, 389.0)
    assert alpha is not None
    assert found.conditional_intervals()[0] == pytest.approx((0.616, 0.669), abs=5e-4)
    assert found.conditional_intervals()[0][1] < alpha.alpha_low
    assert found.p_value < 1e-9
    assert found.bounds is not None
    assert found.bounds.conditional[1] == pytest.approx((619 / 821, 619 / (821 - 95 / 3)))
    law = source_law(found)
    assert law.alpha is None
    assert law.rates == pytest.approx((821 / 1277, 619 / 821, 485 / 619, 389 / 485))
    assert 1 + float(np.cumprod(law.rates).sum()) == pytest.approx(1 + 2314 / 1277)
    texts = {advice.code: advice.text for advice in findings(found)}
    assert "95 tokens short of full drafts" in texts["k-varies"]
    assert "0.75 to 0.78, 0.78 to 0.85, 0.80 to 1.00" in texts["k-varies"]
    assert texts["not-constant"].startswith("acceptance rises with position, 0.64, ")


def test_a_heavy_dilution_leaves_one_alpha() -> None:
    """Falling as counted, but 2,000 missing tokens may be all of it."""
    found = estimate_acceptance(
        told(drafts=2000, drafted=4000, accepted_at=(1400, 500, 180), k=3, k_varies=True)
    )
    assert found.is_constant
    assert math.isnan(found.chi_square)
    assert source_law(found).alpha is not None
    assert found.conditional_intervals()[1][0] < 0.7 < found.conditional_intervals()[1][1]


@pytest.mark.parametrize(
    ("at", "way"),
    [
        pytest.param(
            (800, 560, 448, 403), "differs between positions, 0.80, 0.70, 0.80, 0.90 ", id="neither"
        ),
        pytest.param((500, 300, 240, 216), "rises with position, 0.50, 0.60, 0.80, 0.90 ", id="rises"),
        pytest.param((900, 720, 500, 250), "falls with position, 0.90, 0.80, 0.69, 0.50 ", id="falls"),
    ],
)
def test_how_acceptance_goes_along_the_positions(at: tuple[float, ...], way: str) -> None:
    found = estimate_acceptance(told(drafts=1000, k=4, accepted_at=at))
    text = next(advice.text for advice in findings(found) if advice.code == "not-constant")
    assert text.startswith(f"acceptance {way}")


def test_derivations_are_true() -> None:
    """Each left side is worked out again from the numbers shown."""
    cut = alpha_table([between("ngram").telemetry]).derivation
    shown = cut[0].removeprefix("judged by position = ").partition(", an equal share")[0]
    judged = [float(one.replace(",", "")) for one in shown.split("/")]
    assert judged[0] == 1277
    assert sum(judged) == pytest.approx(3178, abs=2)
    assert cut[1] == "α = accepted/judged = 2,314/3,178 = 0.7281"
    assert f"{2314 / 3178:.4f}" == "0.7281"
    assert cut[-1] == "E = 1 + accepted/drafts = 2.8121"
    [mixed] = alpha_table([typed_counts(drafts=100, drafted=250, accepted=120)]).derivation
    assert mixed == "1 + 0.5·(α + … + α^2) + 0.5·(α + … + α^3) = 2.2000 at α = 0.6466"
    length = 1 + 0.6466 + 0.6466**2 + 0.6466**3 / 2
    assert length == pytest.approx(2.2, abs=2e-4)


def test_drafts_that_are_not_counted_are_presumed_and_said_to_be() -> None:
    found = estimate_of("llamacpp-2026-10-chat-response.json")
    assert (found.totals.drafts, math.isnan(found.acceptance_length)) == (None, True)
    assert found.tokens_per_step == pytest.approx(3.011765, abs=1e-6)
    assert "drafts-presumed" in codes(found)


def test_without_k_there_is_no_alpha() -> None:
    found = estimate_of("vllm-0.8.4-v1-server.log")
    assert found.alpha is None
    assert "k-unknown" in codes(found)
    with pytest.raises(DataError, match="--k"):
        source_law(found)
    assert alpha_table([found.telemetry]).verdict.startswith("α CANNOT BE TOLD")


def test_a_length_beyond_k_is_refused() -> None:
    with pytest.raises(DataError, match="impossible with k = 1"):
        estimate_acceptance(told(acceptance_length=2.6), k=1)
    with pytest.raises(DataError, match="leaves the bonus token out"):
        estimate_acceptance(told(acceptance_length=0.8), k=1)


# ---------------------------------------------------------------- estimates


def test_the_interval_of_the_length_holds_the_truth_as_often_as_it_says() -> None:
    """Positions of simulated runs; E of α = .7 at k = 4 is 2.7731."""
    rng, inside = np.random.default_rng(3), 0
    for _ in range(300):
        accepted = np.minimum(rng.geometric(0.3, 400) - 1, 4)
        at = tuple(float((accepted >= place).sum()) for place in range(1, 5))
        low, high = estimate_acceptance(told(drafts=400, k=4, accepted_at=at)).length_interval
        inside += low <= 2.7731 <= high
    assert 0.92 <= inside / 300 <= 0.98


def test_histograms_that_leave_out_what_never_occurred_still_count_the_rejections() -> None:
    """k = 3, no draft accepted 3: the 10 that reached position 3 were all rejected there."""
    short = told(drafts=100, k=3, accepted_at=(40, 10))
    found = estimate_acceptance(short)
    assert found.counts is not None
    assert found.counts.judged == pytest.approx((100, 40, 10))
    assert found.alpha is not None
    assert found.alpha.alpha == pytest.approx(50 / 150)


def test_shares_give_alpha_without_an_error() -> None:
    found = estimate_acceptance(told(k=2, accepted_at=(0.5, 0.25)))
    assert found.alpha is not None
    assert (found.alpha.alpha, found.acceptance_length) == (0.5, 1.75)
    assert math.isnan(found.alpha.standard_error)


def test_nothing_accepted_bounds_the_length_by_alphas_bound() -> None:
    found = estimate_acceptance(told(drafts=50, k=2, accepted_at=(0, 0)))
    assert found.alpha is not None
    high = found.alpha.alpha_high
    assert found.length_interval == pytest.approx((1.0, 1 + high + high**2))


def test_requests_that_differ_widen_the_error() -> None:
    """Ten requests, half of them accepting nothing at all: 1/2 ± 1/2 each, over √10."""
    requests = tuple(RequestCounts(drafts=40, drafted=40, accepted=40 * (n % 2)) for n in range(10))
    found = estimate_acceptance(told(drafts=400, drafted=400, accepted=200, k=1, requests=requests))
    assert found.alpha is not None
    assert found.alpha.standard_error == pytest.approx(0.5 / math.sqrt(9))
    assert found.clustering == pytest.approx(math.sqrt(400) / 3)
    assert (found.alpha.alpha_low, found.alpha.alpha_high) == pytest.approx((0.19, 0.81), abs=0.02)
    assert found.length_interval == pytest.approx((1.5 - 2.262 / 6, 1.5 + 2.262 / 6), abs=0.01)
    assert {"clustered", "few-requests"} <= codes(found)


def test_histograms_by_request_are_counted_by_trials() -> None:
    """Two requests of k = 2: 3 of 4 and 1 of 3 judged tokens accepted; residuals ±(3 − 4·4/7)."""
    requests = (
        RequestCounts(drafts=2, drafted=4, accepted=3, histogram=(0, 1, 1)),
        RequestCounts(drafts=2, drafted=4, accepted=1, histogram=(1, 1, 0)),
    )
    found = estimate_acceptance(told(drafts=4, k=2, accepted_at=(3, 1), requests=requests))
    assert found.alpha is not None
    assert found.alpha.alpha == pytest.approx(4 / 7)
    spread = abs(3 - 4 * 4 / 7) * math.sqrt(2 * 2) / 7
    assert found.alpha.standard_error == pytest.approx(max(spread, math.sqrt(4 / 7 * 3 / 7 / 7)))


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        pytest.param({"accepted_at": (400, 160, 64)}, "mismatched-draft", id="α .4"),
        pytest.param({"accepted_at": (100, 80, 70)}, "collapse-at-first", id="first token .1, then .8"),
        pytest.param({"accepted_at": (0, 0, 0)}, "collapse-at-first", id="nothing at all"),
        pytest.param({"accepted_at": (600, 300, 50)}, "k-beyond-use", id="third position at 5 %"),
        pytest.param({"accepted_at": (700, 500, 200)}, "not-constant", id="falls"),
        pytest.param({"accepted_at": (510, 500, 490)}, "two-workloads", id="all or nothing"),
        pytest.param({"accepted_at": (700, 490, 343), "k_varies": True, "drafted": 2500}, "k-varies", id="k"),
        pytest.param({"accepted_at": (7, 5, 3), "drafts": 10}, "few-drafts", id="ten drafts"),
        pytest.param(
            {"accepted_at": (700, 490, 343), "steps": 4000, "generated": 6000}, "steps-without-drafts", id="h"
        ),
        pytest.param(
            {"accepted_at": (700, 490, 343), "method": "suffix"}, "steps-without-drafts", id="suffix"
        ),
    ],
)
def test_what_stands_out_is_said(fields: dict[str, Any], code: str) -> None:
    assert code in codes(estimate_acceptance(told(**{"drafts": 1000, "k": 3} | fields)))


def test_a_sound_draft_is_not_warned_of() -> None:
    assert not codes(estimate_acceptance(told(drafts=10_000, k=3, accepted_at=(7000, 4900, 3430))))


def test_the_drafts_asked_for_give_the_error_promised() -> None:
    few = estimate_acceptance(told(drafts=20, k=1, accepted_at=(14,)))
    advice = next(one for one in findings(few) if one.code == "few-drafts")
    wanted = int(advice.remedy.split("about ")[1].split(" for")[0].replace(",", ""))
    many = estimate_acceptance(told(drafts=wanted, k=1, accepted_at=(0.7 * wanted,))).alpha
    assert many is not None
    assert (many.alpha_high - many.alpha_low) / 2 == pytest.approx(0.025, rel=0.2)


def test_a_benchmark_on_made_up_prompts_is_said_to_be_void() -> None:
    forced = read_telemetry(sample("vllm-0.33.0-bench-serve.json"))[0]
    assert "forced-length" in codes(estimate_acceptance(forced))
    drawn_at_random = read_telemetry(sample("sglang-0.5.23-bench-serving.jsonl"))[0]
    assert {"random-prompts", "forced-length"} <= codes(estimate_acceptance(drawn_at_random))


# ---------------------------------------------------------------- the law of a source


def test_one_alpha_where_it_is_constant_and_rates_where_not() -> None:
    flat = source_law(estimate_acceptance(told(drafts=1000, k=2, accepted_at=(700, 490))))
    fading = source_law(estimate_acceptance(told(drafts=1000, k=2, accepted_at=(800, 400))))
    assert (flat.alpha, flat.rates) == (0.7, ())
    assert (fading.alpha, fading.rates) == (None, (0.8, 0.5))
    assert "by position" in fading.sentence
    assert "1,000 drafts at k = 2" in flat.sentence


def test_beyond_the_measured_positions_rates_are_extrapolated_and_said_to_be() -> None:
    rising = source_law(estimate_acceptance(told(drafts=3000, k=2, accepted_at=(1500, 1000))), longest_k=4)
    assert rising.rates == pytest.approx((1 / 2, 2 / 3, 3 / 4, 4 / 5), rel=1e-6)  # the uniform law
    falling = source_law(estimate_acceptance(told(drafts=1000, k=2, accepted_at=(800, 400))), longest_k=4)
    assert falling.rates == (0.8, 0.5, 0.5, 0.5)
    for law in (rising, falling):
        assert "extrapolated" in {advice.code for advice in law.notes}
    assert not source_law(rising.estimate, longest_k=2).notes


# ---------------------------------------------------------------- load


def test_shares_of_the_load() -> None:
    load = Load(prompt_tokens=1000, prefix_queries=1000, prefix_hits=400, step_s=0.01)
    record = told(drafts=90, drafted=270, accepted_at=(60, 40, 20), steps=130, generated=250, k=3, load=load)
    assert prefilled_tokens(record) == 600
    assert prefill_share(record) == pytest.approx(600 / (600 + 130 + 270))
    assert prefix_hit_rate(record) == 0.4
    observed = observed_of(estimate_acceptance(record))
    assert observed.step_s == 0.01
    assert observed.draftless_share == pytest.approx(40 / 130)
    assert observed.survival == pytest.approx((60 / 90, 40 / 90, 20 / 90))
    assert prefill_share(told()) is None
    assert prefix_hit_rate(told()) is None


# ---------------------------------------------------------------- typed counts


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "drafts"),
        ({"drafts": 10}, "drafts"),
        ({"drafts": 10, "accepted_at": (5, 6)}, "positions"),
        ({"accepted_at": (5, 3)}, "drafts"),
        ({"drafted": 10, "accepted": 11}, "accepted"),
        ({"drafts": 10, "drafted": 9}, "drafted"),
        ({"drafts": 10, "drafted": 30, "k": 2}, "k"),
        ({"drafts": 10, "accepted": 30, "k": 2}, "accepted"),
        ({"drafts": 10, "accepted": 3, "accepted_at": (9, 8)}, "accepted"),
        ({"acceptance_length": 0.5}, "acceptance_length"),
        ({"acceptance_length": 1.5, "k": 0}, "k"),
        ({"drafts": math.nan, "drafted": 3}, "drafts"),
    ],
)
def test_typed_counts_that_contradict_each_other_are_refused(fields: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError) as caught:
        typed_counts(**fields)
    assert caught.value.name == name


def test_typed_counts_find_k() -> None:
    assert typed_counts(drafts=10, drafted=30, accepted=12).k == 3
    assert typed_counts(drafts=10, accepted_at=(5, 2)).k == 2
    uneven = typed_counts(drafts=10, drafted=25, accepted=12)
    assert (uneven.k, uneven.k_varies) == (None, True)
    assert typed_counts(drafts=10, drafted=25, accepted=12, k=3).k_varies


def test_typed_zero_drafts_are_no_data() -> None:
    with pytest.raises(DataError, match="no data"):
        estimate_acceptance(typed_counts(drafts=0, drafted=0, accepted=0))


# ---------------------------------------------------------------- the table


def test_rows_without_data_stay_empty_beside_others() -> None:
    table = alpha_table([told(drafts=0, k=3, model="idle"), told(drafts=100, accepted_at=(50,), k=1)])
    idle, busy = table.rows()
    assert (idle["model"], idle["drafts"], idle["alpha"], idle["acceptance_length"]) == (
        "idle",
        0,
        None,
        None,
    )
    assert busy["alpha"] == 0.5
    assert "no-data" in {advice.code for advice in table.warnings}
    with pytest.raises(DataError):
        alpha_table([])


def test_the_engines_own_rate_and_its_rule_are_told() -> None:
    [record] = read_telemetry(sample("sglang-0.5.9-metrics.txt"))
    sentences = " ".join(alpha_table([record]).assumptions)
    assert "`spec_accept_rate` 0.640 is length/(k + 1)" in sentences
    assert "α does not transfer to another rule" in sentences


def test_the_derivation_has_the_numbers() -> None:
    table = alpha_table([told(drafts=100, accepted_at=(50, 25), k=2)])
    assert table.derivation[0] == "α = accepted/judged = 75/150 = 0.5000"
    assert table.verdict == "α = 0.500 (95 %: 0.421 to 0.579), 1.750 tokens per step at k = 2"


def test_the_next_command_is_quoted() -> None:
    command = speedup_command("a b", since="c'd", record=told())
    assert shlex.split(command)[:8] == [
        *("specmath", "speedup", "--from", "a b", "--since", "c'd", "--engine", "vllm")
    ]


# ---------------------------------------------------------------- fuzz

REQUESTS = st.builds(
    RequestCounts,
    drafts=st.integers(0, 50).map(float),
    drafted=st.integers(0, 200).map(float),
    accepted=st.integers(0, 200).map(float),
    histogram=st.lists(st.integers(0, 9).map(float), max_size=5).map(tuple),
)
NUMBERS = st.none() | st.floats(0, 2**53) | st.integers(0, 10**6).map(float) | st.just(0.0)


@settings(deadline=None, max_examples=300)
@given(
    drafts=NUMBERS,
    drafted=NUMBERS,
    accepted=NUMBERS,
    at=st.lists(st.floats(0, 1e6), max_size=6).map(lambda values: tuple(sorted(values, reverse=True))),
    k=st.none() | st.integers(1, 12),
    varies=st.booleans(),
    length=st.none() | st.floats(0, 20),
    steps=NUMBERS,
    generated=NUMBERS,
    requests=st.lists(REQUESTS, max_size=4).map(tuple),
)
def test_any_record_gives_figures_within_their_ranges_or_one_error(
    drafts: float | None,
    drafted: float | None,
    accepted: float | None,
    at: tuple[float, ...],
    k: int | None,
    varies: bool,
    length: float | None,
    steps: float | None,
    generated: float | None,
    requests: tuple[RequestCounts, ...],
) -> None:
    record = told(
        drafts=drafts,
        drafted=drafted,
        accepted=accepted,
        accepted_at=at,
        k=k,
        k_varies=varies,
        acceptance_length=length,
        steps=steps,
        generated=generated,
        requests=requests,
    )
    try:
        table = alpha_table([record])
    except DataError:
        return
    assert has_data(record)
    [row] = table.rows()
    assert table.verdict
    assert table.assumptions
    for advice in table.warnings:
        assert advice.text
        assert advice.remedy
    if row["alpha"] is not None:
        assert 0 <= float(str(row["alpha"])) <= 1
    if row["alpha_low"] is not None:
        low, alpha, high = (float(str(row[key])) for key in ("alpha_low", "alpha", "alpha_high"))
        assert -1e-9 <= low <= alpha + 1e-9
        assert alpha <= high + 1e-9 <= 1 + 2e-9


def test_an_engine_that_writes_a_length_of_one_for_no_drafts_has_no_data() -> None:
    assert not has_data(told(drafts=0, acceptance_length=1.0))
    assert has_data(told(drafts=10, acceptance_length=1.0))


def test_totals_follow_from_each_other() -> None:
    assert totals_of(told(drafts=100, acceptance_length=2.5), 3).accepted == 150
    assert totals_of(told(drafted=240, accepted=100), 2).presumed == "k"
    assert totals_of(told(histogram=(5, 5), drafted=10, accepted=5)).drafts == 10
    with pytest.raises(InputError):
        totals_of(told(drafted=240, accepted=100), 0)
    with pytest.raises(DataError, match="no engine drafts so many"):
        totals_of(told(drafts=1, drafted=100_000, accepted=1))


@pytest.mark.parametrize("counts", [{"accepted": 1773.0, "drafts": 1000.0}, {"accepted_at": (0.9, 0.873)}])
def test_a_typed_length_that_the_counts_contradict_is_refused(counts: dict[str, Any]) -> None:
    assert typed_counts(**counts, k=4, acceptance_length=2.77).acceptance_length == 2.77
    with pytest.raises(InputError, match=r"acceptance_length: contradicts the counts, which give 2\.773"):
        typed_counts(**counts, k=4, acceptance_length=2.5)


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ({"drafts": 10, "drafted": 10, "accepted_at": (9, 9, 9)}, "positions: sum to 27, more than the 10"),
        ({"drafted": 7, "accepted": 7, "accepted_at": (0.7, 0.5)}, "accepted: 1 of the drafted contradicts"),
        ({"accepted_at": (1, 1, 1), "acceptance_length": 1}, "acceptance_length: contradicts the counts"),
        ({"drafts": 10, "accepted_at": (9, 9), "k": 1}, "positions: must be at most k = 1, got 2"),
        ({"drafts": 1e308, "drafted": 1e308, "accepted": 1e308}, "drafts: must be between 0 and"),
        ({"drafts": 10, "accepted_at": (1e308, 1e308)}, "positions: must be between 0 and"),
    ],
)
def test_typed_counts_that_no_run_can_have_are_refused(counts: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        typed_counts(**counts)
