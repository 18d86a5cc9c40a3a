"""Profiles: their evidence, what they resolve to on a part, and what each constant does to a pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specmath.catalogue import load_hardware
from specmath.errors import DataError, InputError, UnknownNameError
from specmath.execution import IDEAL, NO_HOST, Efficiency, HostTimes
from specmath.kernels import matrix_products, small_kernels
from specmath.model_catalogue import load_model
from specmath.profile_catalogue import load_profile, profile_names
from specmath.profiles import CONSTANTS, Constant, Profile, measured_constants
from specmath.roofline import ForwardPass, PassPart

H100 = load_hardware("h100-sxm")
LLAMA, DEEPSEEK, QWEN_MOE = map(load_model, ("llama-3.1-8b", "deepseek-v3", "qwen3-30b-a3b"))


# ---- the evidence


@pytest.mark.parametrize("name", profile_names())
def test_every_constant_has_a_source_and_ordered_ends(name: str) -> None:
    profile = load_profile(name)
    assert profile.constants, "a profile without constants is the ideal"
    for key, constant in profile.constants.items():
        assert constant.sources, f"{name}.{key} cites nothing"
        assert constant.low <= constant.typical <= constant.high


@pytest.mark.parametrize("name", profile_names())
def test_a_range_is_never_narrower_than_its_floor(name: str) -> None:
    profile = load_profile(name)
    assert profile.least > 1
    assert profile.most > 1


def test_engines_with_evidence_have_a_profile() -> None:
    engines = ("typical", "vllm", "sglang", "tensorrt-llm", "transformers", "llama.cpp", "mlx", "cpu")
    assert set(engines) <= set(profile_names())


@pytest.mark.parametrize(
    ("engine", "part", "found"),
    [
        ("vllm", "h100-sxm", "vllm"),
        ("VLLM", "mi300x", "vllm"),
        ("typical", "h100-sxm", "typical"),
        ("typical", "m4-max", "mlx"),
        ("typical", "epyc-9654", "cpu"),
        ("llama.cpp", "rtx-4090", "llama.cpp"),
        ("llama.cpp", "m3-ultra", "llama.cpp-metal"),
        ("llama.cpp", "epyc-9654", "cpu"),
        ("llama.cpp-metal", "m3-ultra", "llama.cpp-metal"),
        ("transformers", "epyc-9654", "cpu"),
    ],
)
def test_an_engine_means_the_profile_made_for_the_part(engine: str, part: str, found: str) -> None:
    assert load_profile(engine, load_hardware(part)).name == found


@pytest.mark.parametrize(
    ("engine", "part"), [("vllm", "m4-max"), ("mlx", "h100-sxm"), ("sglang", "epyc-9654")]
)
def test_an_engine_on_a_part_without_evidence_is_refused(engine: str, part: str) -> None:
    with pytest.raises(InputError, match=f"engine: {engine} is known on .*, not on {part}"):
        load_profile(engine, load_hardware(part))


def test_an_unknown_engine_lists_those_known() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown engine 'vlm'.*vllm"):
        load_profile("vlm")


# ---- what it resolves to


def test_measured_products_of_the_part_replace_the_general_shares() -> None:
    """H100 in the catalogue: 1.8 µs + bytes / 2.92 TB/s in bf16, 2.78 in fp8, of 3.35; GEMM 798 of 989.4."""
    found = measured_constants(H100)
    assert found["memory_efficiency"] == pytest.approx(2.92 / 3.35)
    assert found["eight_bit_memory"] == pytest.approx(2.78 / 2.92)
    assert found["product_latency_s"] == 1.8e-6
    assert found["compute_efficiency"] == pytest.approx(798 / 989.4, rel=1e-3)
    efficiency, _ = load_profile("vllm").on(H100)
    assert {name: getattr(efficiency, name) for name in found} == found
    assert load_profile("llama.cpp").on(H100)[0].memory_efficiency == 0.7, "has kernels of its own"


def test_a_part_without_measurements_takes_the_general_shares() -> None:
    part = load_hardware("rtx-3090")
    assert measured_constants(part) == {}
    assert load_profile("vllm").on(part)[0].memory_efficiency == 0.87


def test_a_swing_moves_one_constant_and_nothing_else() -> None:
    profile = load_profile("vllm")
    plain, host = profile.on(H100)
    moved, same = profile.on(H100, swing=("kv_reread", "high"))
    assert (moved, same) == (replace(plain, kv_reread=0.5), host)
    assert profile.on(H100, swing=("draft_pass_s", "low"))[1] == replace(host, draft_pass_s=5e-5)


def test_a_measured_constant_swings_by_the_same_factor_and_stays_a_share() -> None:
    profile = load_profile("vllm")
    low = profile.on(H100, swing=("memory_efficiency", "low"))[0].memory_efficiency
    assert low == pytest.approx(2.92 / 3.35 * 0.78 / 0.87)
    high = profile.on(load_hardware("rtx-pro-6000-blackwell-server"), swing=("memory_efficiency", "high"))[0]
    assert high.memory_efficiency <= 1


@pytest.mark.parametrize(("link", "latency_s"), [(None, 8e-6), (450e9, 8e-6), (63e9, 30e-6)])
def test_a_collective_over_a_bus_takes_longer(link: float | None, latency_s: float) -> None:
    efficiency, _ = load_profile("vllm").on(H100, link_bytes_per_s=link)
    assert efficiency.link_latency_s == pytest.approx(latency_s)


def test_eager_code_captures_nothing_and_graphs_may_be_given() -> None:
    assert load_profile("transformers").on(H100)[0].graph_sizes == ()
    assert load_profile("vllm").on(H100)[0].graph_sizes is None
    assert load_profile("vllm").on(H100, graph_sizes=(1, 8))[0].graph_sizes == (1, 8)


def test_every_field_is_a_constant_or_a_setting() -> None:
    settings = {"graph_sizes", "state_snapshots", "row_limit"}
    fields = set(Efficiency.__dataclass_fields__) | set(HostTimes.__dataclass_fields__)
    assert fields - settings == CONSTANTS


# ---- what a constant does: a pass of one dense layer group, by hand


def parts(model: Any, batch: int, tokens: int, context: int, **constants: Any) -> dict[str, PassPart]:
    from specmath.execution import DeviceRates

    rates = DeviceRates(
        memory_bytes_per_s=H100.memory_bytes_per_s,
        flops_per_s={dtype: H100.peak(dtype).flops_per_s for dtype in model.compute_dtypes},
    )
    run = ForwardPass(model=model, rates=rates, efficiency=Efficiency(**constants))
    return {part.name: part for part in run.parts(batch, tokens, context)}


def seconds(part: PassPart) -> float:
    return float(np.asarray(part.seconds))


FACTORS: dict[str, tuple[Any, str, dict[str, Any], float]] = {
    "eight-bit weights": (LLAMA.with_quantization("fp8"), "dense", {"eight_bit_memory": 0.5}, 2.0),
    "experts": (QWEN_MOE, "experts", {"expert_memory": 0.25}, 4.0),
    "cache": (LLAMA, "attention, full", {"kv_efficiency": 0.5}, 2.0),
    "products of two rows": (LLAMA, "dense", {"product_cost": 3.0}, 3.0),
}


@pytest.mark.parametrize(("model", "part", "constants", "factor"), FACTORS.values(), ids=FACTORS)
def test_a_share_stretches_the_bytes_of_its_component(
    model: Any, part: str, constants: dict[str, Any], factor: float
) -> None:
    plain, moved = (parts(model, 1, 2, 4000, **given)[part] for given in ({}, constants))
    assert float(moved.bytes) == float(plain.bytes), "the traffic itself is what it was"
    low = factor if part != "dense" or "product_cost" in constants else 1.8  # norms and head keep 16 bits
    assert low <= seconds(moved) / seconds(plain) <= factor * (1 + 1e-12)


def test_quantised_rows_are_paid_one_by_one_up_to_the_limit() -> None:
    model = LLAMA.with_quantization("int4")
    constants: dict[str, Any] = {"row_cost": 0.25, "row_limit": 5, "wide_cost": 3.0}
    narrow = sum(
        group.read_params * group.bytes_per_param for group in model.weights if group.bytes_per_param < 1.5
    )
    wide = sum(group.read_params * group.bytes_per_param for group in model.weights) - narrow
    for tokens, readings in {1: 1.0, 2: 1.25, 5: 2.0, 6: 3.0, 30: 3.0}.items():
        expected = (wide + narrow * readings) / H100.memory_bytes_per_s
        assert seconds(parts(model, 1, tokens, 0, **constants)["dense"]) == pytest.approx(expected, rel=1e-12)


def test_rows_of_unquantised_weights_cost_nothing() -> None:
    plain, rowed = (
        parts(LLAMA, 1, 4, 0, **given)["dense"] for given in ({}, {"row_cost": 0.5, "row_limit": 8})
    )
    assert seconds(plain) == seconds(rowed)


def test_latent_attention_rereads_by_its_own_factor() -> None:
    cached = {
        reread: parts(DEEPSEEK, 1, 5, 100_000, latent_reread=reread)["attention, mla"]
        for reread in (0.0, 1.0)
    }
    assert float(cached[1.0].bytes) / float(cached[0.0].bytes) == pytest.approx(5, rel=1e-3)
    same = parts(DEEPSEEK, 1, 5, 100_000, kv_reread=1.0)["attention, mla"]
    assert float(same.bytes) == float(cached[1.0].bytes), "None follows kv_reread"


def test_products_have_a_latency_of_their_own() -> None:
    """4 products in each of 32 dense layers; latent attention has 6, routed experts add 5 a layer."""
    assert seconds(parts(LLAMA, 1, 1, 0, product_latency_s=1e-6)["latency"]) == pytest.approx(128e-6)
    assert matrix_products(LLAMA) == 4 * 32
    assert matrix_products(DEEPSEEK) == 6 * 61 + 5 * 58
    assert matrix_products(QWEN_MOE) == (4 + 5) * 48


def test_small_kernels_by_kind_of_layer() -> None:
    efficiency = Efficiency(kernels_per_layer=6, latent_kernels=4, expert_kernels=5)
    counted = [small_kernels(model, efficiency) for model in (LLAMA, DEEPSEEK, QWEN_MOE)]
    assert counted == [6 * 32, (6 + 4) * 61 + 5 * 58, (6 + 5) * 48]


def test_compute_shares_by_dtype() -> None:
    efficiency = Efficiency(compute_efficiency=0.5, eight_bit_compute=0.5, four_bit_compute=0.2)
    shares = [efficiency.compute_share(dtype) for dtype in ("bf16", "fp8", "int8", "fp4")]
    assert shares == [0.5, 0.25, 0.25, 0.1]


def test_the_host_adds_a_share_for_every_sequence() -> None:
    host = HostTimes(speculative_step_s=1e-3, speculative_sequence_s=1e-5)
    assert host.speculative_s([1, 100]).tolist() == pytest.approx([1.01e-3, 2e-3])
    assert NO_HOST.speculative_s(5) == 0


# ---- refusals


ONE = Constant(low=1, typical=1, high=1)
REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: Constant(low=2, typical=1, high=3), "low <= typical <= high"),
    (lambda: Constant(low=0, typical=math.nan, high=3), "low <= typical <= high"),
    (
        lambda: Profile(name="x", title="x", constants={"nonsense": Constant(low=1, typical=1, high=1)}),
        "nonsense",
    ),
    (lambda: Profile(name="x", title="x", constants={}, least=0.5), "least"),
    (lambda: Efficiency(row_cost=-1), "row_cost"),
    (lambda: Efficiency(wide_cost=0.5), "wide_cost"),
    (lambda: Efficiency(routing_skew=9), "routing_skew"),
    (lambda: Efficiency(latent_reread=1.5), "latent_reread"),
    (lambda: Efficiency(kv_efficiency=0), "kv_efficiency"),
    (lambda: HostTimes(draft_pass_s=-1e-3), "draft_pass_s"),
    (lambda: HostTimes(plain_step_s=math.inf), "plain_step_s"),
]


@pytest.mark.parametrize(("make", "named"), REFUSED, ids=[named for _, named in REFUSED])
def test_a_constant_out_of_range_is_refused_by_name(make: Callable[[], object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        make()


# ---- the user's own


OWN = """
schema_version: 1
accelerators: {{}}
profiles:
  mine:
    title: "My engine"
    base: vllm
    engines: [mine-too]
    constants:
      {constant}
sources:
  bench: {{title: "own bench", kind: measurement}}
"""


def own(tmp_path: Path, constant: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(OWN.format(constant=constant))
    return path


def test_a_profile_of_ones_own_starts_from_another(tmp_path: Path) -> None:
    path = own(tmp_path, "draft_pass_s: {low: 0.0001, typical: 0.0002, high: 0.0003, sources: [bench]}")
    profile = load_profile("mine-too", H100, hardware_file=path)
    assert profile.constants["draft_pass_s"].typical == 0.0002
    assert profile.constants["plain_step_s"] == load_profile("vllm").constants["plain_step_s"]
    assert profile.least == load_profile("vllm").least


@pytest.mark.parametrize(
    ("constant", "problem"),
    [
        ("draft_pass_s: {low: 0.3, typical: 0.2, high: 0.1, sources: [bench]}", "low <= typical <= high"),
        ("draft_pass_s: {typical: 0.2, high: 0.3}", "low"),
        (
            "draft_pass_s: {low: 0.1, typical: 0.2, high: 0.3, sources: [hearsay]}",
            "'hearsay' is not a known source",
        ),
        ("warp_speed: {low: 1, typical: 1, high: 1, sources: [bench]}", "is no constant of a profile"),
        ("draft_pass_s: 5", "draft_pass_s"),
    ],
)
def test_a_wrong_profile_is_refused_where_it_is_wrong(tmp_path: Path, constant: str, problem: str) -> None:
    with pytest.raises(DataError, match=f"mine.yaml: .*{problem}"):
        load_profile("mine", hardware_file=own(tmp_path, constant))


def test_profiles_that_build_on_each_other_in_a_circle_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    text = "schema_version: 1\naccelerators: {}\nprofiles:\n"
    for name, base in (("a", "b"), ("b", "a")):
        text += f"  {name}: {{title: x, base: {base}, constants: {{}}}}\n"
    path.write_text(text)
    with pytest.raises(DataError, match="circle"):
        load_profile("a", hardware_file=path)


def test_the_ideal_is_no_profile() -> None:
    assert Efficiency() == IDEAL
    with pytest.raises(UnknownNameError):
        load_profile("ideal")
