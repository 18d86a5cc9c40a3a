"""Diagnosis: planted causes come first, published cases give the cause found, nothing crashes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import ConstantAcceptance
from specmath.additive import AdditiveCost
from specmath.additive_source import Additive
from specmath.anchors import anchored
from specmath.catalogue import load_hardware
from specmath.diagnosis.causes import CAUSES
from specmath.diagnosis.setup import Observed, SetUp
from specmath.diagnosis.table import DiagnosisTable, diagnose
from specmath.drafters.methods import drafter_of
from specmath.errors import InputError
from specmath.execution import ONE_DEVICE, Layout
from specmath.measurements import Measurement
from specmath.model_catalogue import load_model
from specmath.profile_catalogue import load_profile
from specmath.profiled_source import Profiled, forecast_cases
from specmath.roofline_source import Roofline

LAW = ConstantAcceptance(0.75)


def cases(
    target: str = "llama-3.1-8b",
    draft: str | None = "eagle3-llama-3.1-8b",
    *,
    hardware: str = "h100-sxm",
    engine: str = "vllm",
    method: str | None = None,
    quantization: str | None = None,
    tp: int = 1,
    draft_tp: int | None = None,
    graph_sizes: tuple[int, ...] | None = None,
) -> tuple[Profiled, Roofline]:
    part, model = load_hardware(hardware), load_model(target)
    drafting = None if draft is None else load_model(draft)
    if hardware.startswith("m"):  # no bf16 on Apple
        model = model.with_dtype("fp16")
        drafting = None if drafting is None else drafting.with_dtype("fp16")
    if quantization is not None:
        model = model.with_quantization(quantization)
    spread = None if draft_tp is None else Layout(tp=draft_tp)
    drafter = drafter_of(model, drafting, method=method, layout=spread)
    profiled, ideal, *_ = forecast_cases(
        load_profile(engine, part),
        part,
        model,
        drafter,
        layout=Layout(tp=tp) if tp > 1 else ONE_DEVICE,
        graph_sizes=graph_sizes,
    )
    return profiled, ideal


VLLM, IDEAL = cases()


def planted(
    steps: Callable[[Measurement, float], float],
    *,
    source: Profiled = VLLM,
    k: tuple[int, ...] = (3,),
    batch: tuple[int, ...] = (1,),
    context: tuple[float, ...] = (1000.0,),
    length: float | None = None,
) -> list[Measurement]:
    """Pairs whose plain step is the model's, and whose R is what `steps` makes of the model's."""
    pairs = []
    for tokens in k:
        for sequences in batch:
            for cached in context:
                cost = source.step_cost(tokens, sequences, cached)
                plain_s = float(cost.plain_s)
                measured = float(LAW.acceptance_length(tokens)) if length is None else length
                pair = Measurement(
                    k=tokens,
                    batch=sequences,
                    context=cached,
                    acceptance_length=measured,
                    plain_s=plain_s,
                    speedup=1.0,
                )
                wanted = steps(pair, float(cost.in_plain_steps))
                pairs.append(replace(pair, speedup=None, speculative_s=plain_s * wanted / measured))
    return pairs


def diagnosed(pairs: list[Measurement], source: Profiled = VLLM, ideal: Roofline = IDEAL) -> DiagnosisTable:
    return diagnose(pairs, source=source, beside=[ideal])


def codes(table: DiagnosisTable) -> list[str]:
    return [one.code for one in table.causes]


def test_nothing_planted_nothing_found() -> None:
    table = diagnosed(planted(lambda pair, modelled: modelled, k=(1, 3, 5), batch=(1, 4)))
    assert codes(table) == ["as-expected"]
    assert table.verdict.startswith("AS EXPECTED")


SMALL_MOE, SMALL_MOE_IDEAL = cases("qwen3-30b-a3b", "eagle3-qwen3-30b-a3b", engine="sglang")
TP_PAIR, TP_IDEAL = cases("llama-3.1-70b", "llama-3.2-1b", tp=4, draft_tp=4)
CAPTURED, CAPTURED_IDEAL = cases(graph_sizes=(1, 2, 4, 8, 16))
MAC, MAC_IDEAL = cases(
    "llama-3.1-8b", "eagle3-llama-3.1-8b", hardware="m3-ultra", engine="mlx", quantization="int4"
)
LLAMA_CPP, LLAMA_CPP_IDEAL = cases(
    "llama-3.1-8b", "eagle3-llama-3.1-8b", engine="llama.cpp", quantization="int4"
)
FAT_DRAFT, FAT_IDEAL = cases("llama-3.1-8b", "llama-3.2-3b")


@pytest.mark.parametrize(
    ("cause", "pairs", "source", "ideal"),
    [
        pytest.param(
            "graphs-lost",
            planted(lambda pair, modelled: modelled + 2.5, k=(1,)),
            VLLM,
            IDEAL,
            id="2.5 plain steps more at k 1",
        ),
        pytest.param(
            "graphs-lost",
            planted(lambda pair, modelled: modelled + 1.5, k=(1, 3, 5)),
            VLLM,
            IDEAL,
            id="1.5 plain steps more at every k",
        ),
        pytest.param(
            "draft-not-captured",
            planted(lambda pair, modelled: modelled + 0.35 * pair.k, k=(1, 3, 5)),
            VLLM,
            IDEAL,
            id="a third of a plain step more for each draft token",
        ),
        pytest.param(
            "draft-at-target-tp",
            planted(lambda pair, modelled: modelled + 0.5 * pair.k, source=TP_PAIR, k=(2, 5)),
            TP_PAIR,
            TP_IDEAL,
            id="the same where the draft is spread as its target",
        ),
        pytest.param(
            "host-per-request",
            planted(lambda pair, modelled: modelled + 0.04 * pair.batch, batch=(1, 8, 16, 32)),
            VLLM,
            IDEAL,
            id="0.04 plain steps more for each sequence",
        ),
        pytest.param(
            "beyond-captured-graphs",
            planted(lambda pair, modelled: modelled * (3 if pair.batch > 4 else 1), batch=(1, 2, 4, 5, 6)),
            VLLM,
            IDEAL,
            id="three times the step from batch 5 on",
        ),
        pytest.param(
            "beyond-captured-graphs",
            planted(lambda pair, modelled: modelled * 2, source=CAPTURED, batch=(8,)),
            CAPTURED,
            CAPTURED_IDEAL,
            id="32 tokens, captured up to 16",
        ),
        pytest.param(
            "cache-read-again",
            planted(
                lambda pair, modelled: modelled * (1 + pair.context / 16_000), context=(1000, 8000, 32_000)
            ),
            VLLM,
            IDEAL,
            id="a step that grows with context",
        ),
        pytest.param(
            "experts-read",
            planted(lambda pair, modelled: modelled * 1.8, source=SMALL_MOE),
            SMALL_MOE,
            SMALL_MOE_IDEAL,
            id="a dear step of experts",
        ),
        pytest.param(
            "quantised-rows",
            planted(lambda pair, modelled: 0.8 * (pair.k + 1) + 0.2, source=MAC, k=(1, 2, 3)),
            MAC,
            MAC_IDEAL,
            id="rows of 4-bit weights at nearly full price on Metal",
        ),
        pytest.param(
            "row-switch",
            planted(
                lambda pair, modelled: modelled * (2.2 if pair.k > 7 else 1), source=LLAMA_CPP, k=(3, 7, 9)
            ),
            LLAMA_CPP,
            LLAMA_CPP_IDEAL,
            id="llama.cpp from 9 rows on",
        ),
        pytest.param(
            "compute-bound",
            planted(lambda pair, modelled: modelled, batch=(256,)),
            VLLM,
            IDEAL,
            id="1,024 tokens in a pass, as expected",
        ),
        pytest.param(
            "draft-too-large",
            planted(lambda pair, modelled: modelled, source=FAT_DRAFT),
            FAT_DRAFT,
            FAT_IDEAL,
            id="3B for 8B, as expected",
        ),
        pytest.param(
            "acceptance-collapse",
            planted(lambda pair, modelled: modelled, length=1.05),
            VLLM,
            IDEAL,
            id="E of a broken drafter",
        ),
        pytest.param(
            "baseline-beyond-the-roof",
            [replace(pair, plain_s=0.002, speculative_s=0.0014) for pair in planted(lambda pair, one: one)],
            VLLM,
            IDEAL,
            id="8B in 2 ms where 16 GB take 4.8",
        ),
    ],
)
def test_a_planted_cause_comes_first(
    cause: str, pairs: list[Measurement], source: Profiled, ideal: Roofline
) -> None:
    found = [code for code in codes(diagnosed(pairs, source, ideal)) if code != "as-expected"]
    assert found[0] == cause, found


def test_low_acceptance_is_said_of_a_step_that_costs_what_it_should() -> None:
    table = diagnosed(planted(lambda pair, modelled: modelled, k=(1,), length=1.25))
    assert "low-acceptance" in codes(table)[:2]


def test_a_draft_that_is_too_long_is_named_with_the_better_k() -> None:
    """α = .5 yields less than 2 tokens, and each draft token costs .3: S falls from 1.1 at k 1."""
    lengths = {k: 2 - 0.5**k for k in (1, 2, 4, 8)}
    pairs = [
        Measurement(k=k, batch=1, acceptance_length=length, speedup=length / (1 + 0.3 * k))
        for k, length in lengths.items()
    ]
    table = diagnose(pairs, setup=SetUp(method="draft-model"))
    (cause,) = [one for one in table.causes if one.code == "draft-too-long"]
    assert "k 8 gives 0.59 and k 1 1.15, 97% more" in cause.text
    alone = diagnose(pairs[-1:], setup=SetUp(method="eagle"))
    assert "k 1 would give" in next(one.text for one in alone.causes if one.code == "draft-too-long")


SPEEDUP_BEYOND_E: dict[str, Callable[[float, int], float]] = {
    "bonus-left-out": lambda length, k: length - 1,
    "ratio-taken-for-alpha": lambda length, k: float(
        ConstantAcceptance((length - 1) / k).acceptance_length(k)
    ),
}


@pytest.mark.parametrize("cause", SPEEDUP_BEYOND_E)
def test_a_miscounted_length_is_found(cause: str) -> None:
    """R as modelled, which is the E told or more."""
    k, length = {"bonus-left-out": (3, 2.3), "ratio-taken-for-alpha": (8, 4.6)}[cause]
    (pair,) = planted(lambda pair, modelled: modelled, k=(k,), length=length)
    told = SPEEDUP_BEYOND_E[cause](length, k)
    table = diagnosed([replace(pair, acceptance_length=told)])
    assert cause == codes(table)[0]
    assert table.verdict.startswith("SPEED-UP BEYOND E")
    assert f"E = {length:.2f} and R = {table.symptoms.best.expected.steps:.2f}" in table.causes[0].text


def test_no_length_explains_a_speedup_beyond_k_and_one() -> None:
    table = diagnosed([Measurement(k=2, batch=1, acceptance_length=2.5, speedup=4.5)])
    assert codes(table)[0] == "other-baseline"
    assert table.causes[0].likelihood == "certain"
    assert "no step of k = 2 yields more than 3" in table.causes[0].text
    assert "bonus-left-out" not in codes(table)


def test_a_slow_baseline_shows_in_the_plain_step() -> None:
    """The plain arm ran twice as long as it should, the speculative arm as it should."""
    (pair,) = planted(lambda pair, modelled: modelled, k=(5,))
    table = diagnosed([replace(pair, plain_s=2 * pair.plain_step_s)])
    assert codes(table)[0] == "other-baseline"
    assert "2.00 times the expected" in table.causes[0].text


def test_swapped_models_are_said_outright_by_size_and_by_cost() -> None:
    sizes = SetUp(method="draft-model", target_bytes=0.5e9, draft_bytes=7e9)
    pair = Measurement(k=3, batch=1, acceptance_length=3.2, speedup=0.9)
    table = diagnose([pair], setup=sizes)
    assert table.verdict.startswith("DRAFT AND TARGET SWAPPED")
    unknown = diagnose([replace(pair, speedup=0.2)], setup=SetUp(method="draft-model"))  # R = 16
    assert codes(unknown)[0] == "draft-and-target-swapped"
    alike = replace(sizes, target_bytes=8e9)
    assert "draft-and-target-swapped" not in codes(diagnose([replace(pair, speedup=0.2)], setup=alike))


def test_exchanged_arms_are_thought_of_but_not_preferred() -> None:
    table = diagnosed(planted(lambda pair, modelled: pair.acceptance_length**2 / modelled))
    assert "arms-swapped" in codes(table)
    assert codes(table)[0] != "arms-swapped"


def test_lookups_count_steps_with_a_match_alone() -> None:
    """E = 4 in a step with a match, a match in one step of three: S = 1 + 3/3 = 2 at v = 1."""
    pair = Measurement(k=5, batch=1, acceptance_length=4.0, speedup=2.0)
    table = diagnose([pair], setup=SetUp(method="ngram"))
    assert codes(table)[0] == "lookup-misses"
    assert "a match in 33% of the steps" in table.causes[0].text
    told = diagnose([pair], setup=SetUp(method="ngram"), observed=Observed(draftless_share=0.6))
    assert told.causes[0].likelihood == "certain"
    whole = Observed(draftless_share=0.6, tokens_per_step=2.2)
    assert codes(diagnose([pair], setup=SetUp(method="ngram"), observed=whole))[0] == "lookup-misses"


def test_an_e_of_all_steps_has_no_misses_left_to_explain_it() -> None:
    """vLLM 0.32 with n-gram drafts: 1.784 tokens per step over all, at half the plain speed."""
    pair = Measurement(k=4, batch=1, acceptance_length=1.784, speedup=0.5)
    observed = Observed(draftless_share=0.556, tokens_per_step=1.784)
    assert "lookup-misses" not in codes(diagnose([pair], setup=SetUp(method="ngram"), observed=observed))
    (typed,) = [
        one for one in diagnose([pair], setup=SetUp(method="ngram")).causes if one.code == "lookup-misses"
    ]
    assert (typed.likelihood, "0%" in typed.text) == ("not ruled out", False)


def test_the_engine_s_own_step_time_settles_where_e_came_from() -> None:
    (pair,) = planted(lambda pair, modelled: modelled * 1.5)
    elsewhere = diagnose([pair], source=VLLM, observed=Observed(step_s=pair.step_s / 1.5))
    assert codes(elsewhere)[0] == "acceptance-from-another-run"
    assert f"E of the timed run is {pair.acceptance_length / 1.5:.2f}" in elsewhere.causes[0].text
    same = diagnose([pair], source=VLLM, observed=Observed(step_s=pair.step_s))
    assert "acceptance-from-another-run" not in codes(same)


def test_prefill_that_the_engine_tells_of_is_blamed() -> None:
    pairs = planted(lambda pair, modelled: modelled * 1.7, batch=(8,))
    table = diagnose(pairs, source=VLLM, observed=Observed(prefill_share=0.6))
    assert codes(table)[0] == "prefill-bursts"
    quiet = diagnose(pairs, source=VLLM, observed=Observed(prefill_share=0.05))
    assert "prefill-bursts" not in codes(quiet)
    alone = planted(lambda pair, modelled: modelled * 1.7, batch=(1,))
    table = diagnose(alone, source=VLLM, observed=Observed(prefill_share=0.6))
    assert "prefill-bursts" not in codes(table), "no other request that could prefill"


@pytest.mark.parametrize(
    ("per_token", "likelihood"),
    [(1.0, "likely"), (0.7, "possible"), (0.1, None)],
    ids=["as the model", "below the model, yet large", "cheap, whatever the model"],
)
def test_a_draft_is_no_larger_than_its_step_was_measured(per_token: float, likelihood: str | None) -> None:
    """(R - 1)/k as measured is the most that a draft token may cost."""
    (drafted,) = planted(lambda pair, modelled: modelled, source=FAT_DRAFT)
    cost = float(FAT_DRAFT.step_cost(drafted.k, 1, 1000.0).draft_cost)
    pairs = planted(lambda pair, _: 1 + per_token * cost * pair.k, source=FAT_DRAFT)
    told = [one for one in diagnosed(pairs, FAT_DRAFT, FAT_IDEAL).causes if one.code == "draft-too-large"]
    assert [one.likelihood for one in told] == ([likelihood] if likelihood else [])
    if likelihood == "possible":
        assert f"(R − 1)/k = {per_token * cost:.2f} as measured, and {cost:.2f}" in told[0].text


def test_one_pair_leaves_causes_alike_and_says_what_would_separate_them() -> None:
    table = diagnosed(planted(lambda pair, modelled: modelled * 1.6))
    (advice,) = [one for one in table.warnings if one.code == "not-separable"]
    assert "measure k 1 at batch 1 too" in advice.remedy


def test_the_parts_of_the_excess_are_those_planted() -> None:
    def dearer(pair: Measurement, modelled: float) -> float:
        seconds = 0.001 + 0.0005 * pair.k + 0.0002 * pair.batch
        return modelled + seconds / float(VLLM.step_cost(pair.k, pair.batch, 1000).plain_s)

    table = diagnosed(planted(dearer, k=(1, 3, 5), batch=(1, 4, 16)))
    parts = table.symptoms.parts
    assert parts is not None
    total = 0.001 + 0.0005 * 3 + 0.0002 * 7  # at the mean k and batch
    expected = (0.001 / total, 0.0015 / total, 0.0014 / total)
    assert (parts.fixed, parts.per_token, parts.per_sequence) == pytest.approx(expected, rel=1e-6)


def test_the_line_over_k_is_that_of_the_published_series() -> None:
    """vllm-project/vllm#20780: 8.35 + 1.016·k ms beside a plain step of 7.07 ms."""
    (line,) = [row for row in diagnose(E3).rows() if row["case"] == "line over k"]
    assert line["fixed_cost"] == pytest.approx(8.35 / 7.07, rel=2e-3)
    assert line["draft_cost"] == pytest.approx(1.016 / 7.07, rel=2e-3)
    ratios = [replace(one, speedup=one.times_faster, plain_s=None, speculative_s=None) for one in E3]
    (unitless,) = [row for row in diagnose(ratios).rows() if row["case"] == "line over k"]
    assert unitless["fixed_cost"] == pytest.approx(line["fixed_cost"], rel=1e-9)
    assert unitless["target_s"] is None


def test_rows_hold_the_measurement_and_every_source_beside_it() -> None:
    table = diagnosed(planted(lambda pair, modelled: modelled * 1.5, k=(2, 4)))
    rows: list[dict[str, Any]] = list(table.rows())
    assert len(table) == len(rows)
    assert [row["case"] for row in rows] == ["measured", "vllm", "ideal"] * 2 + ["line over k"]
    measured, vllm, ideal = rows[:3]
    assert measured["step_cost"] == pytest.approx(1.5 * vllm["step_cost"], rel=1e-9)
    assert measured["token_cost"] == pytest.approx((measured["step_cost"] - 1) / 2, rel=1e-12)
    parts = vllm["verify_cost"] + vllm["overhead"] + vllm["draft_cost"] * 2
    assert parts == pytest.approx(vllm["step_cost"], rel=1e-9)
    assert vllm["step_cost_low"] < vllm["step_cost"] < vllm["step_cost_high"]
    assert ideal["step_cost_low"] is None
    assert table.verdict.startswith("DEARER THAN EXPECTED") or "WITHIN" in table.verdict


def test_a_plain_run_that_is_missing_is_the_model_s_and_said() -> None:
    pair = Measurement(k=3, batch=1, acceptance_length=2.5, speculative_s=0.004)
    table = diagnose([pair], source=VLLM)
    assert table.symptoms.steps[0].plain_ratio == pytest.approx(1)
    assert "plain-step-modelled" in [one.code for one in table.warnings]
    with pytest.raises(InputError, match="no run without speculation, and no model"):
        diagnose([pair])
    with pytest.raises(InputError, match="takes 1 to 500"):
        diagnose([])


def test_causes_as_rows_are_the_causes() -> None:
    table = diagnosed(planted(lambda pair, modelled: modelled * 2))
    rows = list(table.as_causes().rows())
    assert [row["cause"] for row in rows] == codes(table)
    assert [row["rank"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(row["remedy"] and row["to_check"] and row["seen_in"] for row in rows)
    told = {one.code for one in table.warnings}
    assert not told & {one.code for one in table.as_causes().warnings} - {"not-separable"}


# Published cases: the numbers, and the cause that their threads give.


def both(
    k: int, length: float, plain: float, speculative: float, *, batch: int = 1, width: int | None = None
) -> Measurement:
    """A pair from tokens per second of all sequences together."""
    return Measurement(
        k=k,
        batch=batch,
        acceptance_length=length,
        plain_s=batch / plain,
        speculative_s=batch / speculative,
        width=width,
        passes=None if width is None else k,
    )


def series(plain_ms: float, points: dict[int, tuple[float, float]]) -> list[Measurement]:
    return [
        Measurement(k=k, batch=1, acceptance_length=e, plain_s=plain_ms * 1e-3, speculative_s=tpot_ms * 1e-3)
        for k, (e, tpot_ms) in points.items()
    ]


E1 = series(
    7.07,
    {2: (2.1, 4.37), 3: (2.29, 4.29), 4: (2.39, 4.48), 5: (2.43, 4.71), 6: (2.45, 4.94), 7: (2.47, 5.2)},
)
E3 = series(
    7.07,
    {2: (2.36, 4.32), 3: (2.79, 4.09), 4: (3.08, 4.05), 5: (3.32, 4.13), 6: (3.46, 4.2), 7: (3.54, 4.29)},
)
MTP_VLLM = SetUp(engine="vllm", method="mtp")
MOE_MTP = SetUp(engine="llama.cpp", method="mtp", experts=True, quantised=True)
V100 = SetUp(engine="vllm", method="mtp", experts=True, quantised=True, tp=2)
MLX = SetUp(engine="mlx", method="mtp", experts=True, quantised=True)
MOE_EAGLE = SetUp(engine="sglang", method="eagle3", experts=True)
ROWS_N41 = [(3, 1.86, 159.78, 4), (3, 2.2, 172.99, 8), (3, 1.99, 207.62, 4), (7, 2.52, 191.9, 16)]
ROWS_N42 = [(3, 2.017, 170.35, 4), (3, 2.216, 185.28, 8), (4, 2.54, 185.64, 16), (7, 3.034, 193.31, 64)]
QWEN_70B, QWEN_IDEAL = cases("llama-3.3-70b", None, hardware="h200-sxm", method="eagle3", quantization="fp8")

FIELD: dict[str, tuple[set[str], list[Measurement], dict[str, Any]]] = {
    "vllm#20780, EAGLE: drafts cost more than they bring": (
        {"draft-too-long", "draft-not-captured"},
        E1,
        {"setup": SetUp(engine="vllm", method="eagle")},
    ),
    "vllm#20780, EAGLE-3: the cost per draft token erodes the length": (
        {"draft-too-long", "draft-not-captured"},
        E3,
        {"source": VLLM},
    ),
    "GLM-OCR#218, receipt: graphs of the speculative path": (
        {"graphs-lost"},
        [both(1, 1.69, 465.31, 260.37)],
        {"setup": MTP_VLLM},
    ),
    "GLM-OCR#218, demo: the same": (
        {"graphs-lost"},
        [both(1, 1.81, 397.39, 277.29)],
        {"setup": MTP_VLLM},
    ),
    "GLM-OCR#218, receipt, eager: nothing wrong": (
        {"as-expected"},
        [both(1, 1.69, 60.08, 91.79)],
        {"setup": MTP_VLLM},
    ),
    "GLM-OCR#218, demo, eager: nothing wrong": (
        {"as-expected"},
        [both(1, 1.81, 59.48, 90.69)],
        {"setup": MTP_VLLM},
    ),
    "vllm-mlx#245, 35B-A3B: experts of two tokens": (
        {"experts-read"},
        [both(1, 1.795, 73.7, 85.9)],
        {"setup": MLX},
    ),
    "vllm-mlx#245, 122B-A10B: the same": (
        {"experts-read"},
        [both(1, 1.755, 46.4, 52.0)],
        {"setup": MLX},
    ),
    **{
        f"SpecForge#339, {k} steps, {width} nodes: experts, launches": (
            {"experts-read", "graphs-lost"},
            [both(k, e, 222.47, rate, width=width)],
            {"setup": MOE_EAGLE},
        )
        for k, e, rate, width in ROWS_N41
    },
    **{
        f"AngelSlim#163, {k} steps, {width} nodes: experts": (
            {"experts-read"},
            [both(k, e, 218.89, rate, width=width)],
            {"setup": MOE_EAGLE},
        )
        for k, e, rate, width in ROWS_N42
    },
    "llama.cpp#10455: draft too large and too deep": (
        {"draft-too-large", "draft-too-long"},
        [both(16, 6.4, 11, 10.78)],
        {"setup": SetUp(engine="llama.cpp", method="draft-model", hardware="m4-pro", quantised=True)},
    ),
    "llama.cpp#10455, reply: swapped": (
        {"draft-and-target-swapped"},
        [both(10, 1.0, 230, 11)],  # E is not told; 1 is the least
        {"setup": SetUp(engine="llama.cpp", method="draft-model", target_bytes=0.5e9, draft_bytes=7.6e9)},
    ),
    "llama.cpp#22673: experts in host memory": (
        {"experts-read"},
        [
            both(k, 1 + r * k, 22.92, s)
            for k, r, s in ((1, 0.8835, 27.58), (2, 0.815, 29.39), (3, 0.7127, 27.78), (4, 0.6421, 26.09))
        ],
        {"setup": MOE_MTP},
    ),
    "llama.cpp#22673, iGPU: experts": (
        {"experts-read"},
        [both(1, 1.6, 26.6, 28.3)],  # k is not told; taken as 1
        {"setup": MOE_MTP},
    ),
    "1Cat-vLLM#58, flash backend: graphs lost": (
        {"graphs-lost"},
        [both(1, 1.6, 100, 46)],
        {"setup": V100},
    ),
    "1Cat-vLLM#58, triton: draft and verification of a small MoE": (
        {"experts-read", "draft-not-captured"},
        [both(1, 1.6, 100, 77)],
        {"setup": V100},
    ),
    "vllm-metal#482: the proposer reads the context again": (
        {"cache-read-again"},
        [
            Measurement(
                k=3, batch=1, context=8000, acceptance_length=4, plain_s=0.014, speculative_s=0.109 / 4
            )
        ],
        {
            "setup": SetUp(
                engine="mlx", method="draft-model", quantised=False, target_bytes=1.2e9, draft_bytes=1.2e9
            )
        },
    ),
    "Spheron: a baseline that cannot be": (
        {"baseline-beyond-the-roof"},
        [both(4, 4.0, 1700, 6200, batch=4)],  # k and E are not told
        {"source": QWEN_70B, "beside": [QWEN_IDEAL]},
    ),
    "vllm#16937, EAGLE at k 2 to 7: the cost of the draft": (
        {"draft-too-long", "draft-not-captured"},
        [both(k, e, 133, s) for k, e, s in ((2, 2.1, 201.69), (4, 2.39, 198), (7, 2.47, 169.92))],
        {"setup": SetUp(engine="vllm", method="eagle")},
    ),
}
"""Of the public threads with a cause, those that tell E and both speeds; and what they tell of the set-up."""
MISSED_AS_FIRST = {
    "vllm#20780, EAGLE: drafts cost more than they bring",
    "vllm#16937, EAGLE at k 2 to 7: the cost of the draft",
}
"""Here the step is as dear as elsewhere in public; the cause given comes second."""


@pytest.mark.parametrize("name", FIELD)
def test_a_published_case_gives_the_cause_that_was_found(name: str) -> None:
    stated, pairs, known = FIELD[name]
    found = codes(diagnose(pairs, **known))
    assert stated & set(found[:2]), found
    assert bool(stated & set(found[:1])) == (name not in MISSED_AS_FIRST), found


def test_how_many_published_causes_come_first() -> None:
    """The figure that docs/commands.md gives."""
    assert len(FIELD) - len(MISSED_AS_FIRST) == 22
    assert len(FIELD) == 24


measurements = st.builds(
    lambda k, batch, share, context, speedup, plain: Measurement(
        k=k,
        batch=batch,
        acceptance_length=1 + share * k,
        context=context,
        speedup=speedup,
        plain_s=plain,
    ),
    st.integers(1, 64),
    st.integers(1, 2048),
    st.floats(0, 1),
    st.floats(0, 200_000),
    st.floats(1e-3, 1e3),
    st.none() | st.floats(1e-6, 1e3),
)
setups = st.builds(
    SetUp,
    engine=st.sampled_from(["", "vllm", "sglang", "llama.cpp", "llama.cpp-metal", "mlx", "transformers"]),
    method=st.sampled_from(["", "draft-model", "eagle3", "mtp", "ngram", "dflash"]),
    tp=st.sampled_from([1, 8]),
    experts=st.none() | st.booleans(),
    quantised=st.none() | st.booleans(),
    graph_sizes=st.sampled_from([(), (1, 8, 64)]),
)
observations = st.builds(
    Observed,
    step_s=st.none() | st.floats(1e-6, 1e3),
    prefill_share=st.none() | st.floats(0, 1),
    draftless_share=st.none() | st.floats(0, 1),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(measurements, min_size=1, max_size=8), setups, observations)
def test_any_measurements_give_causes_in_order(
    pairs: list[Measurement], setup: SetUp, observed: Observed
) -> None:
    require_sound(diagnose(pairs, setup=setup, observed=observed))


@settings(max_examples=40, deadline=None)
@given(st.lists(measurements, min_size=1, max_size=4))
def test_so_do_any_beside_a_model(pairs: list[Measurement]) -> None:
    require_sound(diagnose(pairs, source=VLLM, beside=[IDEAL]))


def require_sound(table: DiagnosisTable) -> None:
    fits = [one.fit for one in table.causes]
    assert table.causes
    assert fits == sorted(fits, reverse=True)
    assert all(0 < fit <= 1 for fit in fits)
    assert len(set(codes(table))) == len(fits)
    assert set(codes(table)) <= set(CAUSES)
    said = [table.verdict, *table.assumptions, *table.derivation]
    said += [text for one in table.warnings for text in (one.text, one.remedy)]
    assert not any(word in text.lower().split() for text in said for word in ("nan", "inf"))
    for row in table.rows():
        assert all(not isinstance(value, float) or math.isfinite(value) for value in row.values())


def text_of(table: DiagnosisTable, code: str) -> str:
    return next(one.text for one in table.causes if one.code == code)


def test_the_numbers_that_show_a_cause_are_those_of_the_step() -> None:
    """R = 3 where 1.45 is usual, plain step 10 ms, E = 3: 15.5 ms too many, and E = 1·1.45 would fit."""
    pair = Measurement(k=3, batch=1, acceptance_length=3.0, plain_s=0.01, speculative_s=0.01)
    table = diagnose([pair], setup=SetUp(engine="vllm", method="eagle3"))
    assert text_of(table, "host-per-step").startswith("15.5 ms a step more than expected")
    assert "would fit E = 1.45 instead of E = 3.00" in text_of(table, "acceptance-from-another-run")
    assert "up to 0.67 plain steps" in text_of(table, "draft-not-captured")  # (3 − 1)/3
    short = diagnose([replace(pair, speculative_s=0.0025)])  # S = 4: R = 0.75
    assert "needs E = 5.80" in text_of(short, "acceptance-from-another-run")  # 4·1.45


def test_a_draft_token_costs_what_verification_and_overhead_leave() -> None:
    (pair,) = planted(lambda pair, modelled: modelled + 0.9)
    (step,) = diagnosed([pair]).symptoms.steps
    assert step.dearest_draft_cost == pytest.approx(step.expected.draft_cost + 0.3, rel=1e-9)
    (row,) = [row for row in diagnosed([pair]).rows() if row["case"] == "vllm"]
    assert row["fixed_cost"] == pytest.approx(step.expected.verify_cost + step.expected.overhead)
    assert row["step_s"] == pytest.approx(step.expected.steps * step.expected.plain_s)


def test_the_worst_of_several_measurements_is_judged() -> None:
    fine = Measurement(k=3, batch=1, acceptance_length=2.9, speedup=2.0)
    odd = replace(fine, speedup=4.5)
    roofless = diagnosed([replace(fine, plain_s=0.007), replace(fine, plain_s=0.002)])
    assert codes(roofless)[0] == "baseline-beyond-the-roof"
    assert "2 ms at batch 1" in roofless.causes[0].text
    assert codes(diagnose([fine, odd]))[0] == "other-baseline"
    sizes = SetUp(engine="vllm", method="eagle3", graph_sizes=(1, 2, 4, 8, 16))
    dear = [replace(fine, speedup=1.0), replace(fine, batch=8, speedup=1.0)]
    assert text_of(diagnose(dear, setup=sizes), "beyond-captured-graphs").startswith("32 tokens")


@pytest.mark.parametrize(("method", "allowed"), [("eagle3", True), ("ngram", False), ("dflash", False)])
def test_drafts_made_at_once_have_no_loop_to_capture(method: str, allowed: bool) -> None:
    pair = Measurement(k=3, batch=1, acceptance_length=2.9, speedup=1.0)
    assert ("draft-not-captured" in codes(diagnose([pair], setup=SetUp(method=method)))) == allowed


def test_nothing_is_blamed_on_graphs_where_none_are_captured() -> None:
    pair = Measurement(k=1, batch=1, acceptance_length=1.7, speedup=0.5)
    for engine, allowed in (("vllm", True), ("", True), ("mlx", False), ("transformers", False)):
        assert ("graphs-lost" in codes(diagnose([pair], setup=SetUp(engine=engine)))) == allowed


@pytest.mark.parametrize(
    ("pairs", "setup", "measurement"),
    [
        pytest.param([both(4, 2.5, 100, 70)], MOE_EAGLE, "measure k 1 at batch 1 too", id="one pair"),
        pytest.param([both(1, 1.8, 100, 70)], MOE_EAGLE, "measure k 3 at batch 1 too", id="one pair at k 1"),
        pytest.param(
            [both(k, 1.8, 100, 180 / (2.4 + 0.15 * k), batch=64) for k in (1, 4)],
            SetUp(engine="vllm", method="dflash"),
            "measure batch 8 at k 4 too",
            id="two k at one batch",
        ),
        pytest.param(
            [Measurement(k=3, batch=1, acceptance_length=2.0, speedup=2.4)],
            SetUp(),
            "time a plain and a speculative step",
            id="beyond E",
        ),
    ],
)
def test_the_one_measurement_depends_on_what_was_measured(
    pairs: list[Measurement], setup: SetUp, measurement: str
) -> None:
    table = diagnose(pairs, setup=setup)
    (advice,) = [one for one in table.warnings if one.code == "not-separable"]
    assert advice.remedy.startswith(measurement), (advice, codes(table))


def test_a_long_context_is_named_as_one_possibility_and_growth_with_it_as_the_likely_one() -> None:
    one = [Measurement(k=3, batch=1, acceptance_length=2.9, speedup=1.0, context=32_000)]
    assert next(c for c in diagnose(one).causes if c.code == "cache-read-again").likelihood == "possible"
    short = [replace(one[0], context=500)]
    assert "cache-read-again" not in codes(diagnose(short))
    both_lengths = [replace(one[0], context=500, speedup=2.0), *one]
    growing = next(c for c in diagnose(both_lengths).causes if c.code == "cache-read-again")
    assert growing.likelihood == "likely"
    assert "2.00 times" in growing.text


def test_collapse_outweighs_low_acceptance_and_low_acceptance_a_dear_step_only_where_it_is_not() -> None:
    def fit(code: str, **changed: Any) -> float:
        pair = Measurement(k=4, batch=1, acceptance_length=1.4, speedup=1.0)
        return next((c.fit for c in diagnose([replace(pair, **changed)]).causes if c.code == code), 0.0)

    assert fit("acceptance-collapse", acceptance_length=1.05) >= 0.9
    assert fit("acceptance-collapse") == 0
    assert fit("low-acceptance") > fit("low-acceptance", speedup=0.5) > 0
    assert fit("low-acceptance", acceptance_length=2.2) == 0


def test_an_anchored_or_additive_source_can_set_the_expectations() -> None:
    """Anchored to a pair, a step that costs the same is as expected, whatever the profile says."""
    pair = Measurement(k=3, batch=1, context=1000, acceptance_length=2.7, speedup=1.0)
    table = diagnose([pair], source=anchored(VLLM, [pair]))
    assert codes(table)[0] == "as-expected"
    assert table.symptoms.setup.engine == "vllm"
    linear = AdditiveCost(
        weights_s=0.010,
        kv_s_per_token=0.0,
        compute_s_per_token=0.0,
        kv_reread=0.0,
        draft_fixed_s=0.001,
        draft_s_per_sequence=0.0,
        draft_kv_s_per_token=0.0,
        overhead_s=0.0,
        plain_overhead_s=0.0,
    )
    beside = diagnose([pair], source=Additive(cost=linear, name="toy"))  # R = 1.3, no range of its own
    assert beside.symptoms.steps[0].expected.steps == pytest.approx(1.3)
    assert beside.verdict.startswith("DEARER THAN EXPECTED: a step costs 2.70")
