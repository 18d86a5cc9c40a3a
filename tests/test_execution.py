"""Layouts, rates by dtype, and what software adds to a pass: more traffic, kernels, captured graphs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specmath.accelerator import Accelerator, Source
from specmath.drafters.lookup import Lookup
from specmath.errors import InputError
from specmath.execution import IDEAL, DeviceRates, Efficiency, Layout
from specmath.model import AttentionGroup, ExpertGroup, ModelShape, WeightGroup
from specmath.model_catalogue import load_model
from specmath.roofline import ForwardPass, PassPart
from specmath.roofline_source import Roofline

RATES = DeviceRates(memory_bytes_per_s=1000.0, flops_per_s={"bf16": 400.0}, link_bytes_per_s=100.0)
# 20 bytes of weights, 20 FLOPs a token, nothing else: 0.02 s against 0.05 s per token.
DENSE = WeightGroup(
    name="mlp",
    stored_params=10,
    read_params=10,
    multiplied_params=10,
    bytes_per_param=2,
    compute_dtype="bf16",
)
MODEL = ModelShape(name="toy", source="typed in a test", weights=(DENSE,), hidden=5, n_layers=2, vocab=7)


def seconds(batch: float, tokens: float, *, dp: int = 1, **efficiency: Any) -> float:
    forward = ForwardPass(model=MODEL, rates=RATES, layout=Layout(dp=dp), efficiency=Efficiency(**efficiency))
    return float(np.asarray(forward.time(batch, tokens, 0)))


def part_of(forward: ForwardPass, name: str, batch: float, tokens: float, context: float = 0) -> PassPart:
    (found,) = (part for part in forward.parts(batch, tokens, context) if part.name == name)
    return found


def on_one(**efficiency: Any) -> ForwardPass:
    return ForwardPass(model=MODEL, rates=RATES, efficiency=Efficiency(**efficiency))


@pytest.mark.parametrize(
    ("layout", "devices", "expert_ranks"),
    [
        (Layout(), 1, 1),
        (Layout(tp=8), 8, 8),
        (Layout(tp=2, dp=4), 8, 8),
        (Layout(tp=2, dp=4, pp=3), 24, 8),
        (Layout(tp=8, ep=8), 8, 8),
        (Layout(tp=4, dp=2, ep=4), 8, 4),
    ],
    ids=str,
)
def test_a_layout_counts_its_devices(layout: Layout, devices: int, expert_ranks: int) -> None:
    assert layout.devices == devices
    assert layout.expert_ranks == expert_ranks


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Layout(tp=0), "tp"),
        (lambda: Layout(dp=-1), "dp"),
        (lambda: Layout(pp=5000), "pp"),
        (lambda: Layout(tp=1.5), "tp"),  # type: ignore[arg-type]
        (lambda: Layout(tp=True), "tp"),
        (lambda: Layout(tp=2, dp=3, ep=4), "ep"),
        (lambda: Layout(tp=2, pp=2, ep=4), "ep"),  # stages share no experts
        (lambda: Efficiency(memory_efficiency=0), "memory_efficiency"),
        (lambda: Efficiency(memory_efficiency=1.01), "memory_efficiency"),
        (lambda: Efficiency(compute_efficiency=-0.5), "compute_efficiency"),
        (lambda: Efficiency(compute_efficiency=math.nan), "compute_efficiency"),
        (lambda: Efficiency(expert_overlap=0), "expert_overlap"),
        (lambda: Efficiency(sharpness=0.9), "sharpness"),
        (lambda: Efficiency(sharpness=math.nan), "sharpness"),
        (lambda: Efficiency(kv_reread=1.1), "kv_reread"),
        (lambda: Efficiency(kv_reread=-0.1), "kv_reread"),
        (lambda: Efficiency(activation_bytes=-1), "activation_bytes"),
        (lambda: Efficiency(logit_bytes=math.inf), "logit_bytes"),
        (lambda: Efficiency(link_latency_s=-1e-6), "link_latency_s"),
        (lambda: Efficiency(kernels_per_layer=-1), "kernels_per_layer"),
        (lambda: Efficiency(kernel_gap_s=-1), "kernel_gap_s"),
        (lambda: Efficiency(kernel_launch_s=-1), "kernel_launch_s"),
        (lambda: Efficiency(pass_overhead_s=-1), "pass_overhead_s"),
        (lambda: Efficiency(graph_sizes=(1, 0)), "graph_sizes"),
        (lambda: Efficiency(graph_sizes=(1, 2.5)), "graph_sizes"),  # type: ignore[arg-type]
    ],
)
def test_what_is_wrong_is_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: "):
        call()


def test_the_ideal_is_the_datasheet() -> None:
    assert Efficiency() == IDEAL
    assert (IDEAL.memory_efficiency, IDEAL.compute_efficiency, IDEAL.sharpness) == (1, 1, math.inf)
    assert seconds(1, 1) == 0.05
    assert [part.name for part in ForwardPass(model=MODEL, rates=RATES).parts(1, 1, 0)] == [
        "dense",
        "overhead",
    ]


def test_each_efficiency_slows_its_own_side() -> None:
    dense = part_of(on_one(memory_efficiency=0.5, compute_efficiency=0.8), "dense", 2, 1)
    assert float(dense.bytes_s) == pytest.approx(0.04, rel=1e-15)
    assert float(dense.flops_s) == pytest.approx(0.125, rel=1e-15)
    assert (float(dense.bytes), float(dense.flops)) == (20, 40)


def test_activations_and_logits_are_bytes_of_every_token() -> None:
    # t = 4: 3 · hidden 5 · 2 layers, and 2 · vocabulary 7.
    part = part_of(on_one(activation_bytes=3.0, logit_bytes=2.0), "activations", 2, 2)
    assert float(part.bytes) == 4 * (30 + 14)
    assert float(part.seconds) == pytest.approx(0.176, rel=1e-15)
    assert float(part_of(on_one(logit_bytes=2.0), "activations", 2, 2).bytes) == 4 * 14
    assert (
        float(part_of(on_one(activation_bytes=3.0, memory_efficiency=0.5), "activations", 2, 2).seconds)
        == 0.24
    )


def test_captured_kernels_leave_gaps() -> None:
    # 4 kernels in each of 2 layers, 8 gaps of 0.5 s, whatever the pass takes.
    assert seconds(1, 1, kernels_per_layer=4, kernel_gap_s=0.5, kernel_launch_s=9) == 0.05 + 4
    assert seconds(400, 1, kernels_per_layer=4, kernel_gap_s=0.5) == 20 + 4


@pytest.mark.parametrize(
    ("batch", "expected"),
    [(1, 16.0), (240, 16.0), (400, 24.0)],
    ids=["bound by the host", "equal", "bound by the device"],
)
def test_an_eager_pass_waits_for_the_host_or_hides_it(batch: int, expected: float) -> None:
    # 8 launches of 2 s against 0.05 s per token and 8 small kernels of 0.5 s.
    kernels: dict[str, Any] = {"kernels_per_layer": 4, "kernel_launch_s": 2.0, "kernel_gap_s": 0.5}
    assert seconds(batch, 1, graph_sizes=(), **kernels) == pytest.approx(expected, rel=1e-15)


def test_a_host_launches_products_that_are_told_apart_from_the_small_kernels() -> None:
    # 2 layers with an MLP of 2 products: 8 + 4 launches of 2 s; the products alone add 0.3 s to the device.
    kernels: dict[str, Any] = {"kernels_per_layer": 4, "kernel_launch_s": 2.0}
    assert seconds(1, 1, graph_sizes=(), **kernels) == 16
    assert seconds(1, 1, graph_sizes=(), product_latency_s=0.075, **kernels) == 24
    assert seconds(600, 1, graph_sizes=(), product_latency_s=0.075, **kernels) == pytest.approx(30.3)


@pytest.mark.parametrize("launch_s", [0.0, 1.0])
def test_leaving_the_graphs_makes_no_pass_cheaper(launch_s: float) -> None:
    # 16 tokens: 0.8 s and 8 small kernels of 0.5 s; the 17th takes its own 0.05 s, or waits for 8 launches.
    kernels: dict[str, Any] = {"kernels_per_layer": 4, "kernel_gap_s": 0.5, "kernel_launch_s": launch_s}
    inside, outside = (seconds(tokens, 1, graph_sizes=(16,), **kernels) for tokens in (16, 17))
    assert inside == pytest.approx(4.8, rel=1e-14)
    assert outside == pytest.approx(max(4.85, 8 * launch_s), rel=1e-14)


STAIRS = [
    # tokens in the pass, tokens it is padded to; None: beyond the largest, eager
    (1, 2),
    (2, 2),
    (2.5, 4),
    (3, 4),
    (4, 4),
    (5, 16),
    (16, 16),
    (17, None),
    (40, None),
]


@pytest.mark.parametrize(("tokens", "padded"), STAIRS)
def test_tokens_are_padded_to_the_next_captured_size(tokens: float, padded: int | None) -> None:
    """Sizes 2, 4, 16; 8 kernels: 0.8 s of gaps in a graph, 4 s of launches without one."""
    kernels: dict[str, Any] = {"kernels_per_layer": 4, "kernel_gap_s": 0.1, "kernel_launch_s": 0.5}
    expected = max(tokens * 0.05, 4.0) if padded is None else padded * 0.05 + 0.8
    assert seconds(1, tokens, graph_sizes=(2, 4, 16), pass_overhead_s=1, **kernels) == pytest.approx(
        expected + 1, rel=1e-14
    )
    assert seconds(tokens, 1, graph_sizes=(2, 4, 16), pass_overhead_s=1, **kernels) == pytest.approx(
        expected + 1, rel=1e-14
    )


def test_the_staircase_is_the_same_in_an_array() -> None:
    sizes = (2, 4, 16)
    forward = ForwardPass(model=MODEL, rates=RATES, efficiency=Efficiency(graph_sizes=sizes))
    found = forward.time([tokens for tokens, _ in STAIRS], 1, 0)
    assert found == pytest.approx([(padded or tokens) * 0.05 for tokens, padded in STAIRS], rel=1e-14)


def test_data_parallel_ranks_pad_what_they_see() -> None:
    # 7 sequences on 2 ranks: 4 on the busier one, which is a captured size; 7 would have been padded to 16.
    assert seconds(7, 1, dp=2, graph_sizes=(2, 4, 16)) == pytest.approx(0.2, rel=1e-14)
    assert seconds(7, 1, graph_sizes=(2, 4, 16)) == pytest.approx(0.8, rel=1e-14)


def test_attention_is_not_padded() -> None:
    attention = AttentionGroup(
        name="full",
        n_layers=2,
        kv_elements_per_entry=1,
        kv_bytes_per_element=2.0,
        flops_per_pair=4,
        kv_heads=1,
    )
    model = replace(MODEL, attention=(attention,))
    plain, padded = (
        ForwardPass(model=model, rates=RATES, efficiency=Efficiency(graph_sizes=sizes)).parts(3, 1, 100)
        for sizes in (None, (8,))
    )
    assert float(padded[0].flops) == float(plain[0].flops) / 3 * 8
    assert (padded[1].name, padded[1].seconds) == (plain[1].name, plain[1].seconds)


def test_padding_is_multiplied_with_experts_but_touches_none() -> None:
    # One token padded to 8 on each of 2 ranks: 2 of 8 experts touched, 16·2·10·2 FLOPs, both halved.
    group = ExpertGroup(
        n_layers=1, n_experts=8, top_k=2, params_per_expert=10, bytes_per_param=1.0, compute_dtype="bf16"
    )
    forward = replace(on_one(graph_sizes=(8,)), model=replace(MODEL, experts=(group,)), layout=Layout(dp=2))
    experts = part_of(forward, "experts", 1, 1)
    assert (float(experts.bytes), float(experts.flops)) == (10, 320)


def test_padding_travels_too() -> None:
    # t = 3 padded to 8: 8·5·2 bytes, half of them twice, 4 reductions, 100 B/s.
    forward = ForwardPass(
        model=MODEL, rates=RATES, layout=Layout(tp=2), efficiency=Efficiency(graph_sizes=(8,))
    )
    assert float(part_of(forward, "communication", 3, 1).seconds) == pytest.approx(4 * 80 / 100, rel=1e-15)


def test_graph_sizes_may_come_in_any_order() -> None:
    assert Efficiency(graph_sizes=(16, 2, 4, 2)).graph_sizes == (2, 4, 16)
    typed_as_list: Any = [4, 1, 2]
    assert Efficiency(graph_sizes=typed_as_list).graph_sizes == (1, 2, 4)
    assert Efficiency(graph_sizes=()).graph_sizes == ()
    assert hash(Efficiency(graph_sizes=typed_as_list)) == hash(Efficiency(graph_sizes=(1, 2, 4)))


def test_every_size_captured_and_none_differ_in_their_kernels_alone() -> None:
    kernels: dict[str, Any] = {"kernels_per_layer": 4, "kernel_gap_s": 0.5, "kernel_launch_s": 2.0}
    assert seconds(3, 1, graph_sizes=None, **kernels) == pytest.approx(0.15 + 4, rel=1e-15)
    assert seconds(3, 1, graph_sizes=(), **kernels) == 16
    assert seconds(3, 1, graph_sizes=None) == seconds(3, 1, graph_sizes=())


def test_limits_free_one_side_and_the_wire() -> None:
    memory, compute = RATES.without_flops(), RATES.without_bytes()
    assert memory.memory_bytes_per_s == 1000.0
    assert memory.flops_per_s == {"bf16": math.inf}
    assert compute.memory_bytes_per_s == math.inf
    assert compute.flops_per_s == {"bf16": 400.0}
    assert memory.link_bytes_per_s == compute.link_bytes_per_s == math.inf
    two = Layout(tp=2)
    assert ForwardPass(model=MODEL, rates=memory, layout=two).time(1000, 1, 0) == 0.01
    assert ForwardPass(model=MODEL, rates=compute, layout=two).time(1000, 1, 0) == 25.0


TYPED = {
    "old": {"fp16": 64e12, "fp32": 8e12},
    "middle": {"bf16": 300e12, "fp16": 300e12, "int8": 600e12},
    "new": {"bf16": 1000e12, "fp8": 2000e12, "int8": 2000e12},
    "newest": {"bf16": 2000e12, "fp8": 4000e12, "fp4": 8000e12},
}


def part_named(name: str) -> Accelerator:
    return Accelerator(
        name=name,
        title=name,
        vendor="none",
        kind="gpu",
        confidence="low",
        peak_flops_per_s=TYPED[name],
        memory_bytes=80e9,
        memory_bytes_per_s=2e12,
        sources=(Source(key="typed", title="typed in a test", kind="derived"),),
    )


@pytest.mark.parametrize(
    ("part", "quantization", "width", "layers_peak", "head_peak"),
    [
        ("old", "fp16", 2.0, 64e12, 64e12),
        ("middle", "bf16", 2.0, 300e12, 300e12),
        ("middle", "fp8", 1 + 4 / 128**2, 300e12, 300e12),  # no fp8 there: the next wider one
        ("middle", "int8", 1.0, 600e12, 300e12),
        ("middle", "int4", 0.53125, 300e12, 300e12),
        ("new", "fp8", 1 + 4 / 128**2, 2000e12, 1000e12),
        ("new", "int8", 1.0, 2000e12, 1000e12),
        ("new", "int4", 0.53125, 1000e12, 1000e12),  # weight-only: a narrow peak is of no use
        ("new", "nf4", 0.5625, 1000e12, 1000e12),
        ("new", "mxfp4", 0.53125, 1000e12, 1000e12),
        ("new", "nvfp4", 0.5625, 2000e12, 1000e12),  # fp4 → fp6 → fp8
        ("newest", "nvfp4", 0.5625, 8000e12, 2000e12),
    ],
)
def test_every_dtype_path(
    part: str, quantization: str, width: float, layers_peak: float, head_peak: float
) -> None:
    """Llama-3.1-8B: layers of 2.5·4096² attention and 3·4096·14336 MLP; head and norms keep 16 bits."""
    layers = 32 * (4096 * 4096 * 5 // 2 + 3 * 4096 * 14336)
    kept = 128256 * 4096 + 65 * 4096  # head and norms
    model = load_model("llama-3.1-8b")
    base = model.with_dtype("fp16") if part == "old" else model
    forward = Roofline(
        accelerator=part_named(part), target=base.with_quantization(quantization), drafter=Lookup()
    ).target_pass()
    dense = part_of(forward, "dense", 8, 4)
    assert float(dense.bytes_s) == pytest.approx((layers * width + kept * 2) / 2e12, rel=1e-12)
    assert float(dense.flops_s) == pytest.approx(
        32 * 2 * (layers / layers_peak + kept / head_peak), rel=1e-12
    )


def test_experts_compute_in_their_own_dtype() -> None:
    """Qwen3-30B-A3B in fp8: 48 layers, 8 of 128 experts of 3·2048·768."""
    forward = Roofline(
        accelerator=part_named("new"),
        target=load_model("qwen3-30b-a3b").with_quantization("fp8"),
        drafter=Lookup(),
    ).target_pass()
    experts = part_of(forward, "experts", 1, 1)
    one = 3 * 2048 * 768
    assert float(experts.bytes) == pytest.approx(48 * 8 * one * (1 + 4 / 128**2), rel=1e-12)
    assert float(experts.flops_s) == pytest.approx(2 * 48 * 8 * one / 2000e12, rel=1e-12)


def test_an_fp8_cache_halves_the_bytes_of_attention_and_none_of_its_flops() -> None:
    model = load_model("llama-3.1-8b")
    wide, narrow = (
        part_of(
            Roofline(accelerator=part_named("new"), target=target, drafter=Lookup()).target_pass(),
            *("attention, full", 4, 3, 1000),
        )
        for target in (model, model.with_kv_cache_dtype("fp8"))
    )
    assert float(narrow.bytes) == float(wide.bytes) / 2
    assert float(narrow.flops) == float(wide.flops)


def test_a_part_without_bf16_refuses_a_model_in_it() -> None:
    with pytest.raises(InputError, match=r"^dtype: "):
        Roofline(accelerator=part_named("old"), target=MODEL, drafter=Lookup())


def test_a_link_that_is_typed_replaces_that_of_the_part() -> None:
    part = part_named("middle")
    with pytest.raises(InputError, match=r"^link: "):
        Roofline(accelerator=part, target=MODEL, drafter=Lookup(), layout=Layout(tp=2))
    typed = Roofline(
        accelerator=part, target=MODEL, drafter=Lookup(), layout=Layout(tp=2), link_bytes_per_s=10.0
    )
    # One token: 4 reductions of 10 bytes at 10 B/s.
    assert float(part_of(typed.target_pass(), "communication", 1, 1).seconds) == 4.0


def test_sizes_given_as_a_list_are_kept_as_a_tuple() -> None:
    assert Efficiency(graph_sizes=[]).graph_sizes == ()  # type: ignore[arg-type]
    assert Efficiency(graph_sizes=[8, 4]).graph_sizes == (4, 8)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "rates", [(0.0, 1.0, None), (1.0, 0.0, None), (1.0, 1.0, 0.0), (float("nan"), 1.0, None)]
)
def test_rates_are_positive(rates: tuple[float, float, float | None]) -> None:
    memory, flops, link = rates
    with pytest.raises(InputError, match="rates"):
        DeviceRates(memory_bytes_per_s=memory, flops_per_s={"bf16": flops}, link_bytes_per_s=link)
