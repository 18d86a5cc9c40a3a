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
from specmath.drafters.methods import derived_head, drafter_of
from specmath.errors import DataError, InputError, UnknownNameError
from specmath.execution import IDEAL, NO_HOST, DeviceRates, Efficiency, HostTimes
from specmath.kernels import logits_per_token, matrix_products, small_kernels
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


def test_rows_one_by_one_never_cost_more_than_the_wide_kernel() -> None:
    """1 + 0.73·15 = 12 readings of 16 rows, but for the kernel that takes 4 for any number."""
    model = LLAMA.with_quantization("int4")
    rowed = [
        seconds(parts(model, 1, tokens, 0, row_cost=0.73, row_limit=16, wide_cost=4.0)["dense"])
        for tokens in (4, 5, 6, 16, 17)
    ]
    assert rowed[0] < rowed[1] < rowed[2]
    assert rowed[2] == rowed[3] == rowed[4]


def test_rows_of_unquantised_weights_cost_nothing() -> None:
    plain, rowed = (
        parts(LLAMA, 1, 4, 0, **given)["dense"]
        for given in ({}, {"row_cost": 0.5, "row_limit": 8, "wide_cost": 4.0})
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
    """4 products in each of 32 dense layers, and the head."""
    assert seconds(parts(LLAMA, 1, 1, 0, product_latency_s=1e-6)["latency"]) == pytest.approx(129e-6)


PRODUCTS = [
    # attention 2, latent 4; MLP 2; router 1, grouped 2, shared 2; fusion 1, head 1
    ("llama-3.1-8b", 32 * (2 + 2) + 1),
    ("deepseek-v3", 61 * 4 + 3 * 2 + 58 * (1 + 2 + 2) + 1),
    ("deepseek-v3.2", 61 * 4 + 3 * 2 + 58 * (1 + 2 + 2) + 1),  # its indexer is no layer of its own
    ("qwen3-30b-a3b", 48 * (2 + 1 + 2) + 1),
    ("qwen3-next-80b-a3b", 48 * (2 + 1 + 2 + 2) + 1),
    ("gemma-4-26b-a4b", 30 * (2 + 2 + 1 + 2) + 1),  # an MLP beside the experts
    ("llama-4-maverick-17b-128e", 48 * 2 + 24 * 2 + 24 * (1 + 2 + 2) + 1),
    ("deepseek-v4-flash", 43 * (2 + 1 + 2 + 2) + 1),  # several caches in a layer
    ("nemotron-3-nano-30b-a3b", (6 + 23) * 2 + 23 * (1 + 2 + 2) + 1),  # one block a layer
    ("nemotron-nano-9b-v2", (4 + 27) * 2 + 25 * 2 + 1),
    ("eagle3-llama-3.1-8b", 2 + 2 + 1 + 1),
    ("eagle-llama-3-8b", 2 + 2 + 1 + 1),
    ("dflash-qwen3-8b", 5 * (2 + 2) + 1 + 1),
    ("medusa-vicuna-7b", 5 * (1 + 1)),
]


@pytest.mark.parametrize(("name", "products"), PRODUCTS, ids=[name for name, _ in PRODUCTS])
def test_products_are_counted_by_the_roles_of_the_weights(name: str, products: int) -> None:
    assert matrix_products(load_model(name)) == products


def test_products_of_derived_heads() -> None:
    counted = [matrix_products(derived_head(LLAMA, kind)) for kind in ("eagle3", "eagle", "medusa", "dflash")]
    assert counted == [6, 6, 10, 22]
    assert DEEPSEEK.mtp is not None
    assert matrix_products(DEEPSEEK.mtp) == matrix_products(derived_head(DEEPSEEK, "mtp")) == 4 + 5 + 1 + 1
    first = drafter_of(LLAMA, method="early-exit", exit_layer=8).model
    assert first is not None
    assert matrix_products(first) == 8 * 4 + 1


@pytest.mark.parametrize(
    ("name", "entries"),
    [
        ("llama-3.1-8b", 128_256),
        ("eagle3-llama-3.1-8b", 32_000),  # of the target's 128,256
        ("eagle-llama-3-8b", 128_256),
        ("medusa-vicuna-7b", 5 * 32_000),  # a row for each head
        ("dflash-qwen3-8b", 151_936),  # its tokens are in the pass
    ],
)
def test_a_token_has_the_logits_of_its_own_vocabulary(name: str, entries: int) -> None:
    model = load_model(name)
    assert logits_per_token(model) == entries
    moved = parts(model, 2, 3, 0, logit_bytes=7.0)["activations"]
    assert float(moved.bytes) == 7 * entries * 6


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


# ---- more tokens never take less


PARTS = {"mlx": "m3-ultra", "llama.cpp-metal": "m3-ultra", "cpu": "epyc-9654"}


@pytest.mark.parametrize("sizes", [None, (1, 2, 4, 8, 16, 32)], ids=["all captured", "up to 32"])
@pytest.mark.parametrize("name", profile_names())
def test_more_tokens_never_take_less_at_any_end_of_a_constant(
    name: str, sizes: tuple[int, ...] | None
) -> None:
    """By batch and by width, in and out of the graphs: 16-bit, 4-bit and 8-bit weights, latent and sparse."""
    part, profile = load_hardware(PARTS.get(name, "h100-sxm")), load_profile(name)
    dtype = "fp16" if part.vendor == "Apple" else "bf16"
    models = [LLAMA.with_dtype(dtype), LLAMA.with_dtype(dtype).with_quantization("int4")]
    models += [QWEN_MOE.with_dtype(dtype), DEEPSEEK.with_dtype(dtype).with_quantization("int4")]
    batch, width = np.array([1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65])[:, None], np.arange(1, 19)
    for swing in (None, *profile.swings()):
        efficiency, _ = profile.on(part, graph_sizes=sizes, swing=swing)
        for model in models:
            rates = DeviceRates(
                memory_bytes_per_s=part.memory_bytes_per_s,
                flops_per_s={one: part.peak(one).flops_per_s for one in model.compute_dtypes},
            )
            run = ForwardPass(model=model, rates=rates, efficiency=efficiency)
            taken = np.asarray(run.time(batch, width, 4000))
            for axis in (0, 1):
                assert np.all(np.diff(taken, axis=axis) >= -1e-12 * taken.max()), (swing, model.name)


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_knows_what_a_launch_takes(name: str) -> None:
    """Eager code has 45 kernels in a dense layer, its 4 products among them."""
    profile = load_profile(name)
    assert profile.constants["kernel_launch_s"].typical > 0
    if not profile.captured:
        kernels = profile.constants["kernels_per_layer"]
        assert [kernels.low + 4, kernels.typical + 4, kernels.high + 4] == [40, 45, 55]


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


@pytest.mark.parametrize(
    ("body", "fact"),
    [
        ("least: 0", "ours: least: must be at least 1 and at most 100, got 0"),
        ("most: 1.0e+300", "ours: most: must be at least 1 and at most 100, got 1e\\+300"),
        ("row_limit: 0", "ours: row_limit: must be"),
        ("kind: foo", "ours: kind: must be one of gpu, cpu"),
        (
            "constants: {draft_pass_s: {low: 0, typical: 11, high: 12, note: x}}",
            "draft_pass_s: must be at most 10",
        ),
        (
            "constants: {draft_pass_s: {low: -1, typical: 1, high: 2, note: x}}",
            "draft_pass_s: must be between 0",
        ),
        (
            "constants: {compute_efficiency: {low: 0, typical: 0, high: 0, note: x}}",
            "compute_efficiency: must be above 0",
        ),
        (
            "constants: {kernels_per_layer: {low: 1, typical: 1, high: 1}}",
            "kernels_per_layer: sources: names nothing",
        ),
    ],
)
def test_a_profile_no_part_could_run_with_is_refused_when_it_is_read(
    tmp_path: Path, body: str, fact: str
) -> None:
    path = tmp_path / "mine.yaml"
    head = "schema_version: 1\naccelerators: {}\nprofiles:\n  ours:\n"
    path.write_text(f"{head}    title: Ours\n    base: vllm\n    {body}\n")
    with pytest.raises(DataError, match=rf"mine\.yaml: .*{fact}"):
        load_profile("typical", hardware_file=path)


def test_a_profile_over_its_own_name_keeps_what_it_does_not_change(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "schema_version: 1\naccelerators: {}\nprofiles:\n  vllm: {title: Ours, base: vllm, least: 2}\n"
    )
    changed, packaged = load_profile("vllm", hardware_file=path), load_profile("vllm")
    assert (changed.least, changed.most) == (2, packaged.most)
    assert changed.constants == packaged.constants


def test_a_file_named_in_the_environment_later_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("schema_version: 1\naccelerators: {}\nprofiles:\n  vllm: {title: Ours, base: vllm}\n")
    assert load_profile("vllm").title != "Ours"
    monkeypatch.setenv("SPECMATH_HARDWARE", str(path))
    assert load_profile("vllm").title == "Ours"
