"""Forecasts by a profile: how the range is built, where it is widened, and what is known to be true."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from specmath.acceptance import ConstantAcceptance
from specmath.catalogue import load_hardware
from specmath.cautions import cautions, widened
from specmath.drafters.methods import drafter_of
from specmath.evidence import BATCHES, MEASURED, batch_stratum, device_stratum, method_stratum
from specmath.execution import ONE_DEVICE, Layout
from specmath.forecast import forecast_speedup
from specmath.measurement_files import public_measurements
from specmath.model import ModelShape
from specmath.model_catalogue import load_model
from specmath.model_counts import counts_model
from specmath.profile_catalogue import load_profile
from specmath.profiled_source import Profiled, forecast_cases
from specmath.profiles import Constant, Profile

H100 = load_hardware("h100-sxm")
LLAMA = load_model("llama-3.1-8b")


def forecast(
    engine: str,
    target: ModelShape = LLAMA,
    *,
    method: str = "eagle3",
    draft: str | None = None,
    hardware: str = "h100-sxm",
    layout: Layout = ONE_DEVICE,
    draft_layout: Layout | None = None,
) -> Profiled:
    part = load_hardware(hardware)
    named = None if draft is None else load_model(draft)
    drafter = drafter_of(target, named, method=method, layout=draft_layout)
    return forecast_cases(load_profile(engine, part), part, target, drafter, layout=layout)[0]


def speedups(source: Profiled, length: float, k: int, batches: list[int], context: int = 350) -> list[float]:
    cost = source.step_cost(k, batches, context)
    return [float(one) for one in np.broadcast_to(length / cost.in_plain_steps, len(batches))]


# ---- the range


def own_profile(**constants: tuple[float, float, float]) -> Profile:
    ends = {
        name: Constant(low=low, typical=typical, high=high)
        for name, (low, typical, high) in constants.items()
    }
    return Profile(name="own", title="Own", constants=ends, library_products=False)


def test_the_range_of_one_constant_is_that_of_its_ends() -> None:
    """o_sd of 1, 2, 4 ms against T_AR: R moves by exactly the difference."""
    profile = own_profile(speculative_step_s=(1e-3, 2e-3, 4e-3))
    source, *_ = forecast_cases(profile, H100, LLAMA, drafter_of(LLAMA, None, method="eagle3"))
    cost = source.step_cost(3, 1, 1000)
    least, most = source.step_bounds(3, 1, 1000)
    assert float(least) == pytest.approx(float(cost.in_plain_steps - 1e-3 / cost.plain_s), rel=1e-12)
    assert float(most) == pytest.approx(float(cost.in_plain_steps + 2e-3 / cost.plain_s), rel=1e-12)


def test_two_constants_add_in_quadrature_of_logarithms() -> None:
    single = {
        name: own_profile(**{name: ends})
        for name, ends in {"speculative_step_s": (0.0, 1e-3, 3e-3), "draft_pass_s": (0.0, 2e-4, 9e-4)}.items()
    }
    both = own_profile(speculative_step_s=(0.0, 1e-3, 3e-3), draft_pass_s=(0.0, 2e-4, 9e-4))
    drafter = drafter_of(LLAMA, None, method="eagle3")
    source, *_ = forecast_cases(both, H100, LLAMA, drafter)
    typical = float(source.step_cost(3, 1, 1000).in_plain_steps)
    logs = []
    for name, (low, high) in {"speculative_step_s": (0.0, 3e-3), "draft_pass_s": (0.0, 9e-4)}.items():
        moved = [source.profile.on(H100, swing=(name, end)) for end in ("low", "high")]
        steps = [source.typical.with_constants(*one).step_cost(3, 1, 1000).in_plain_steps for one in moved]
        assert [getattr(host, name) for _, host in moved] == [low, high]
        logs.append([math.log(float(step) / typical) for step in steps])
    down, up = (math.sqrt(sum(log[end] ** 2 for log in logs)) for end in (0, 1))
    least, most = source.step_bounds(3, 1, 1000)
    assert float(least) == pytest.approx(typical * math.exp(-down), rel=1e-12)
    assert float(most) == pytest.approx(typical * math.exp(up), rel=1e-12)
    assert set(single) == set(both.constants)


def test_a_range_is_never_narrower_than_the_floor() -> None:
    profile = Profile(name="own", title="Own", constants={}, least=1.4, most=1.25)
    source, *_ = forecast_cases(profile, H100, LLAMA, drafter_of(LLAMA, None, method="eagle3"))
    step = float(source.step_cost(3, 1, 1000).in_plain_steps)
    assert [float(end) for end in source.step_bounds(3, 1, 1000)] == pytest.approx([step / 1.25, step * 1.4])


def test_bounds_broadcast_and_hold_the_forecast() -> None:
    source = forecast("vllm")
    batch, context = np.array([1, 8, 64, 256])[:, None], np.array([0.0, 1000.0, 32_000.0])
    least, most = source.step_bounds(3, batch, context)
    step = source.step_cost(3, batch, context).in_plain_steps
    assert least.shape == most.shape == (4, 3)
    assert np.all((least < step) & (step < most))
    one = [[float(source.step_bounds(3, b, c)[0]) for c in context] for b in batch.ravel()]
    assert least.ravel().tolist() == pytest.approx(np.ravel(one).tolist(), rel=1e-12)


def test_asking_again_gives_the_same_and_other_cells_their_own() -> None:
    source = forecast("vllm")
    first, second = source.step_bounds(3, 1, 0), source.step_bounds(5, 1, 0)
    assert float(first[0]) != float(second[0])
    assert [float(end) for end in source.step_bounds(3, 1, 0)] == [float(end) for end in first]


@pytest.mark.parametrize("engine", ["typical", "vllm", "sglang", "tensorrt-llm", "transformers", "llama.cpp"])
def test_constants_that_are_skipped_would_not_have_moved_anything(engine: str) -> None:
    """A dense 16-bit pair on one device: experts, latent caches, links and narrow weights do not matter."""
    source = forecast(engine)
    step = float(source.step_cost(3, 1, 1000).in_plain_steps)
    counted = {id(one) for ends in source._swung for one in ends}
    moved = 0
    for swing in source.profile.swings():
        other = source.typical.with_constants(*source.profile.on(H100, swing=swing))
        moved += not math.isclose(float(other.step_cost(3, 1, 1000).in_plain_steps), step, rel_tol=1e-12)
    assert moved <= len(counted)


COUNTS = counts_model("70B", 70e9)
PAIRS: dict[str, tuple[ModelShape, str, str | None, Layout, tuple[int, ...] | None]] = {
    "dense": (LLAMA, "eagle3", None, ONE_DEVICE, None),
    "dense, out of its graphs": (LLAMA, "eagle3", None, ONE_DEVICE, (1,)),
    "a draft of a target known by counts": (COUNTS, "draft-model", "llama-3.2-1b", ONE_DEVICE, None),
    "a sparse draft of a dense target": (LLAMA, "draft-model", "qwen3-30b-a3b", ONE_DEVICE, None),
    "a dense draft of a recurrent target": (
        replace(load_model("qwen3-next-80b-a3b"), attention=()),
        "draft-model",
        "qwen3-0.6b",
        Layout(tp=4),
        None,
    ),
    "latent and narrow": (
        load_model("deepseek-v3").with_quantization("fp8"),
        "mtp",
        None,
        Layout(tp=8),
        None,
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_constant_that_moves_any_of_the_models_is_swung(
    pair: tuple[ModelShape, str, str | None, Layout, tuple[int, ...] | None],
) -> None:
    """Every swing that is left out leaves the step alone, in the target and in the draft."""
    target, method, draft, layout, sizes = pair
    drafter = drafter_of(target, None if draft is None else load_model(draft), method=method)
    profile = load_profile("typical", H100)
    source = forecast_cases(profile, H100, target, drafter, layout=layout, graph_sizes=sizes)[0]
    context = 0 if target.counts_only else 1000
    swung = [(one.efficiency, one.host) for ends in source._swung for one in ends]
    step = float(source.step_cost(3, 4, context).in_plain_steps)
    for swing in profile.swings():
        moved = profile.on(H100, graph_sizes=sizes, swing=swing)
        if moved not in swung:
            other = source.typical.with_constants(*moved).step_cost(3, 4, context).in_plain_steps
            assert float(other) == pytest.approx(step, rel=1e-12), swing


# ---- how it is told


def test_the_forecast_leads_and_the_datasheet_follows() -> None:
    cases = forecast_cases(load_profile("vllm", H100), H100, LLAMA, drafter_of(LLAMA, None, method="eagle3"))
    assert [case.case for case in cases] == ["vllm", "ideal", "memory_bound", "compute_bound"]
    table = forecast_speedup(ConstantAcceptance(0.7), 3, [1, 64], cases=cases, context=1000)
    rows = list(table.rows())
    assert all(row["speedup_low"] < row["speedup"] < row["speedup_high"] for row in rows[::4])  # type: ignore[operator]
    assert all(row["speedup_low"] is row["speedup_high"] is None for row in rows[1::4])
    assert table.lowest == min(row["speedup_low"] for row in rows[::4])  # type: ignore[type-var]
    assert "range" in table.verdict
    assert "by the vllm profile of h100-sxm" in table.verdict


def test_a_verdict_is_judged_by_the_range() -> None:
    """At batch 64 the forecast is above 1 and its low end below."""
    cases = forecast_cases(load_profile("vllm", H100), H100, LLAMA, drafter_of(LLAMA, None, method="eagle3"))
    table = forecast_speedup(ConstantAcceptance(0.6), 3, [1, 256], cases=cases, context=1000)
    low, high = (float(np.asarray(row["speedup_low"])) for row in list(table.rows())[::4])
    assert low > 1 > high
    assert table.verdict.startswith("FASTER at batch 1, TOO CLOSE TO CALL at 256")


# ---- where the evidence is thin


def block_drafted() -> Profiled:
    return forecast("typical", load_model("qwen3-8b"), method="dflash", draft="dflash-qwen3-8b")


def on_metal() -> Profiled:
    return forecast("mlx", LLAMA.with_dtype("fp16").with_quantization("int4"), hardware="m4-max")


WEAK: dict[str, Callable[[], Profiled]] = {
    "busy-engine": lambda: forecast("sglang"),
    "small-target": lambda: forecast("typical", load_model("qwen3-1.7b")),
    "quantised-metal": on_metal,
    "block-drafter": block_drafted,
}


@pytest.mark.parametrize(("code", "make"), WEAK.items())
def test_each_weak_spot_is_said_with_a_remedy(code: str, make: Callable[[], Profiled]) -> None:
    source = make()
    found = {advice.code: advice for advice in (*source.warnings, *source.warnings_at(4, [64], 64))}
    assert code in found
    assert "--measured" in found[code].remedy


def test_a_well_supported_pair_has_no_caution() -> None:
    """MTP on several devices has been measured at every batch, six set-ups of two sources and more."""
    assert forecast("typical", load_model("deepseek-v3"), method="mtp", layout=Layout(tp=8)).cautions == ()


def test_a_kind_that_was_hardly_measured_says_so_and_widens_there_only() -> None:
    """EAGLE-3 on one device: five set-ups of five sources at batch 1, one beyond."""
    source = forecast("tensorrt-llm")
    at = {batch: source.warnings_at(3, [batch], batch)[:-1] for batch in (1, 8, 64)}
    assert [len(found) for found in at.values()] == [0, 1, 1]
    assert at[8][0].text.startswith(
        "1 set-up of 1 source measured in public for eagle3 on one device at batch 2"
    )
    ones = np.ones(3)
    assert widened(ones, ones, source.cautions, [1, 2, 200])[1].tolist() == [1, 1.15, 1.15]


def test_the_counts_are_those_of_the_public_measurements() -> None:
    counted: dict[tuple[str, str], list[tuple[set[object], set[str]]]] = {}
    for row in public_measurements():
        if row.is_usable:
            kind = (method_stratum(row.method), device_stratum(row.devices))
            places = counted.setdefault(kind, [(set(), set()) for _ in BATCHES])
            setups, sources = places[BATCHES.index(batch_stratum(row.batch or 1))]
            setups.add(row.setup)
            sources.add(row.source)
    found = {kind: tuple((len(a), len(b)) for a, b in places) for kind, places in counted.items()}
    assert found == MEASURED


def test_a_caution_widens_where_it_holds_and_moves_no_forecast() -> None:
    source = forecast("vllm")
    busy = next(one for one in cautions(source.typical) if one.advice.code == "busy-engine")
    least, most = widened(np.ones(2), np.ones(2), (busy,), [16, 17])
    assert (least.tolist(), most.tolist()) == ([1, 1], [1, busy.dearer])
    assert busy.dearer > 1


def test_counts_alone_know_no_layers() -> None:
    pair = counts_model("70B", 70e9), counts_model("1B", 1e9)
    drafter = drafter_of(pair[0], pair[1], method="draft-model")
    source, *_ = forecast_cases(load_profile("typical", H100), H100, pair[0], drafter)
    cost = source.step_cost(4, 1, 0)
    streamed = 140e9 / (H100.memory_bytes_per_s * 2.92 / 3.35)
    assert float(cost.plain_s) == pytest.approx(streamed + 8e-4, rel=1e-3)


# ---- what is known


def test_eagle3_on_an_8b_costs_a_tenth_of_a_step_in_an_engine() -> None:
    """vLLM, Llama-3.1-8B on an H100: c = 0.105 (EAGLE) and 0.144 (EAGLE-3) measured, 0.05 by bytes."""
    ideal = forecast_cases(load_profile("vllm"), H100, LLAMA, drafter_of(LLAMA, None, method="eagle3"))[1]
    assert float(ideal.step_cost(3, 1, 350).draft_cost) == pytest.approx(0.055, abs=0.005)
    for method in ("eagle", "eagle3"):
        assert 0.10 <= float(forecast("vllm", method=method).step_cost(3, 1, 350).draft_cost) <= 0.15


def test_a_small_moe_loses_at_batch_one_and_peaks_at_medium_batch() -> None:
    """Qwen3-30B-A3B with EAGLE-3 on H100: .72–.93 measured at batch 1 with 1.9–2.2 tokens a step, k 3."""
    source = forecast("sglang", load_model("qwen3-30b-a3b"), draft="eagle3-qwen3-30b-a3b")
    found = speedups(source, 2.05, 3, [1, 64, 1024])
    assert found[0] < 1 < found[1] > found[2]


@pytest.mark.parametrize(
    ("engine", "hardware", "weights"),
    [("vllm", "h200-sxm", "fp8"), ("sglang", "h200-sxm", "fp8"), ("tensorrt-llm", "b200-sxm", "nvfp4")],
)
def test_a_large_moe_gains_from_mtp_although_independent_routing_says_no(
    engine: str, hardware: str, weights: str
) -> None:
    """DeepSeek-R1 on 8 GPUs, MTP k 3, about 2.6 tokens a step: gains measured at batch 1 to 8."""
    target, part = load_model("deepseek-r1").with_quantization(weights), load_hardware(hardware)
    cases = forecast_cases(
        load_profile(engine, part), part, target, drafter_of(target, None, method="mtp"), layout=Layout(tp=8)
    )
    ideal = 2.6 / np.asarray(cases[1].step_cost(3, [1, 2, 4, 8], 1000).in_plain_steps)
    assert np.all(ideal < 1)
    assert min(speedups(cases[0], 2.6, 3, [1, 2, 4, 8], 1000)) > 1


def test_a_tiny_draft_forced_to_the_ranks_of_its_target_pays_their_collectives() -> None:
    """OPT-125M at the tp 4 of its OPT-30B target lost in practice: 24 all-reduces a pass.

    By bytes alone four ranks would make it cheaper.
    """
    target, draft, part = load_model("opt-30b"), load_model("opt-125m"), load_hardware("a100-sxm-40gb")
    costs = []
    for ranks in (1, 4):
        drafter = drafter_of(target, draft, method="draft-model", layout=Layout(tp=ranks))
        cases = forecast_cases(load_profile("vllm", part), part, target, drafter, layout=Layout(tp=4))
        costs.append([float(case.step_cost(5, 1, 500).draft_cost) for case in cases[:2]])
    (one, one_by_bytes), (four, four_by_bytes) = costs
    assert four_by_bytes < one_by_bytes
    assert four > one
