"""Ways of drafting: their step cost by hand, what they keep in memory, and what does not fit together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from specmath.accelerator import Accelerator, Source
from specmath.acceptance import ConstantAcceptance, expected_tokens
from specmath.catalogue import load_hardware
from specmath.drafters.base import Drafter
from specmath.drafters.block import DFlash
from specmath.drafters.draft_model import DraftModel
from specmath.drafters.eagle import Eagle
from specmath.drafters.eagle3 import Eagle3
from specmath.drafters.early_exit import EarlyExit
from specmath.drafters.lookup import Lookup
from specmath.drafters.medusa import Medusa
from specmath.drafters.methods import METHODS, derived_head, drafter_of, infer_method
from specmath.drafters.mtp import Mtp
from specmath.drafters.parallel_model import ParallelModel
from specmath.errors import InputError
from specmath.estimation import alpha_from_acceptance_length
from specmath.execution import Efficiency, HostTimes, Layout
from specmath.mixtures import LookupAcceptance
from specmath.model import AttentionGroup, DraftHead, ModelShape, WeightGroup
from specmath.model_catalogue import load_model
from specmath.model_counts import counts_model
from specmath.roofline_source import Roofline, roofline_cases

LLAMA_8B = load_model("llama-3.1-8b")
LLAMA_70B = load_model("llama-3.1-70b")
QWEN_8B = load_model("qwen3-8b")
SPARSE_30B = load_model("qwen3-30b-a3b")
R1 = load_model("deepseek-r1").with_quantization("fp8")  # as released
H100 = load_hardware("h100-sxm")
# A gigabyte a millisecond and FLOPs that never bind. Parameters and cache elements take a gigabyte each.
BYTES = Accelerator(
    name="typed",
    title="typed rates",
    vendor="none",
    kind="gpu",
    peak_flops_per_s={"bf16": 1e15},
    memory_bytes=1e15,
    memory_bytes_per_s=1e12,
    confidence="high",
    sources=(Source(key="typed", title="typed in a test", kind="derived"),),
)


def group(name: str, params: int, *, stored: int | None = None) -> WeightGroup:
    return WeightGroup(
        name=name,
        stored_params=params if stored is None else stored,
        read_params=params,
        multiplied_params=params,
        bytes_per_param=1e9,
        compute_dtype="bf16",
    )


# 800 GB of layers and 200 of head; 16 GB of cache a token in 8 layers.
TARGET = ModelShape(
    name="target",
    source="typed in a test",
    weights=(group("mlp", 800), group("head", 200)),
    attention=(
        AttentionGroup(
            name="full",
            n_layers=8,
            kv_elements_per_entry=16,
            kv_bytes_per_element=1e9,
            flops_per_pair=0,
            kv_heads=2,
        ),
    ),
    hidden=4,
    n_layers=8,
    vocab=50,
)


def head(kind: str, *, one_pass: bool = False, max_tokens: int | None = None) -> ModelShape:
    """100 GB of its own and the target's head of 200; 2 GB of cache a token."""
    return ModelShape(
        name=kind,
        source="typed in a test",
        weights=(group("mlp", 100), group("head", 200, stored=0)),
        attention=(
            AttentionGroup(
                name="full",
                n_layers=1,
                kv_elements_per_entry=2,
                kv_bytes_per_element=1e9,
                flops_per_pair=0,
                kv_heads=2,
            ),
        ),
        hidden=4,
        n_layers=1,
        vocab=50,
        draft=DraftHead(kind=kind, one_pass=one_pass, draft_vocab=50, max_tokens=max_tokens),
    )


def source(drafter: Drafter, **options: Any) -> Roofline:
    return Roofline(accelerator=BYTES, target=TARGET, drafter=drafter, **options)


@pytest.mark.parametrize(
    ("drafter", "draft_gb", "passes"),
    [
        # A pass over q tokens of 2 sequences, 10 tokens in the cache: weights + 2·(10 + q)·cache.
        pytest.param(
            DraftModel(counts_model("100 GB", 50e9)), None, 3, id="a model by counts: context 0 only"
        ),
        pytest.param(Eagle(head("eagle")), 300 + 2 * 11 * 2, 3, id="EAGLE: 300 read, one token a pass"),
        pytest.param(Eagle3(head("eagle3")), 300 + 2 * 11 * 2, 3, id="EAGLE-3"),
        pytest.param(Mtp(head("mtp")), 300 + 2 * 11 * 2, 3, id="MTP"),
        pytest.param(DFlash(head("dflash", one_pass=True)), 300 + 2 * 14 * 2, 1, id="block: k + 1 tokens"),
        pytest.param(
            drafter_of(TARGET, head("p-eagle", one_pass=True)), 300 + 2 * 13 * 2, 1, id="P-EAGLE: k tokens"
        ),
        pytest.param(Medusa(head("medusa", one_pass=True)), 300 + 2 * 11 * 2, 1, id="Medusa: one token"),
        pytest.param(EarlyExit(TARGET, 2), 800 / 4 + 200 + 2 * 11 * 4, 3, id="2 of 8 layers and the head"),
        pytest.param(Lookup(1.0), 0, 3, id="a lookup is free of the device"),
    ],
)
def test_drafting_by_hand(drafter: Drafter, draft_gb: float | None, passes: int) -> None:
    """k = 3, batch 2. The plain step reads 1000 + 2·11·16 GB, verification 1000 + 2·14·16."""
    context = 0 if draft_gb is None else 10
    cost = source(drafter).step_cost(3, 2, context)
    plain = 1000 + 2 * (context + 1) * 16
    drafted = 100 if draft_gb is None else draft_gb
    assert float(cost.plain_s) == pytest.approx(plain / 1e3, rel=1e-12)
    assert float(cost.draft_cost) == pytest.approx(drafted / plain, rel=1e-12)
    assert float(cost.draft_passes) == passes
    assert float(cost.verify_cost) == pytest.approx((plain + 2 * 3 * 16) / plain, rel=1e-12)
    assert float(cost.overhead) == 0


def test_the_host_adds_its_times_by_the_equation_of_the_cost_model() -> None:
    """Seconds: T_AR = 1.032 + .1, a pass .322 + .02; o_sd = .3, three passes, batch 1, context 1."""
    host = HostTimes(plain_step_s=0.1, speculative_step_s=0.3, draft_pass_s=0.018, lookup_token_s=0.01)
    cost = source(Eagle(head("eagle")), host=host).step_cost(3, 1, 1)
    assert float(cost.plain_s) == pytest.approx(1.132, rel=1e-12)
    assert float(cost.draft_cost) == pytest.approx((0.304 + 0.018) / 1.132, rel=1e-12)
    assert float(cost.verify_cost) == pytest.approx((1.032 + 3 * 0.016) / 1.132, rel=1e-12)
    assert float(cost.overhead) == pytest.approx(0.3 / 1.132, rel=1e-12)
    for limit in ("memory", "compute"):
        limited = source(Eagle(head("eagle")), host=host, limit=limit).step_cost(3, 1, 1)
        assert float(limited.overhead) == 0


def test_a_lookup_pays_the_host_per_proposed_token() -> None:
    """Half of 4 sequences propose 3 tokens each: 6 of 10 ms, on a plain step of 1.064 s at context 0."""
    cost = source(Lookup(0.5), host=HostTimes(lookup_token_s=0.01)).step_cost(3, 4, 0)
    assert float(cost.draft_cost * cost.draft_passes) == pytest.approx(6 * 0.01 / 1.064, rel=1e-12)


def test_each_data_parallel_group_drafts_for_its_own_sequences() -> None:
    """Qwen3-30B-A3B with a 0.6B draft on 8 devices, 8k, 64 sequences: a device drafts for 8 of them.

    Its weights and 8 · 8193 tokens of 114,688 bytes; on one device alone that would be 64 · 8193.
    """
    draft = load_model("qwen3-0.6b")
    spread = Roofline(
        accelerator=H100, target=SPARSE_30B, drafter=DraftModel(draft), layout=Layout(dp=8, ep=8)
    )
    alone = Roofline(
        accelerator=H100, target=SPARSE_30B, drafter=DraftModel(draft, Layout()), layout=Layout(dp=8, ep=8)
    )
    held = [8 * 8193 * 114_688, 64 * 8193 * 114_688]
    for pair, cache in zip((spread, alone), held, strict=True):
        cost = pair.step_cost(3, 64, 8192)
        expected = (draft.read_params * 2 + cache) / H100.memory_bytes_per_s
        assert float(cost.draft_cost * cost.plain_s) == pytest.approx(expected, rel=1e-4)
    most = [float(pair.max_batches(3, 8192)[1]) for pair in (spread, alone)]
    assert most[0] > 3 * most[1]


HOST = HostTimes(speculative_step_s=0.3, speculative_sequence_s=0.1, lookup_token_s=0.01)


@pytest.mark.parametrize(("batch", "ranked"), [(1, 1), (4, 1), (5, 2), (64, 16)])
def test_the_host_of_a_rank_sees_its_own_sequences(batch: int, ranked: int) -> None:
    """4 groups: o_sd = .3 + .1 a sequence of the busiest, and half propose 3 tokens of 10 ms each."""
    pair = source(Lookup(0.5), host=HOST, layout=Layout(dp=4), link_bytes_per_s=1e9)
    cost = pair.step_cost(3, batch, 0)
    assert float(cost.overhead * cost.plain_s) == pytest.approx(0.3 + 0.1 * ranked, rel=1e-12)
    looked_up = float(cost.draft_cost * cost.draft_passes * cost.plain_s)
    assert looked_up == pytest.approx(0.5 * ranked * 3 * 0.01, rel=1e-12)


def test_a_lookup_is_alone_where_each_rank_has_one_sequence() -> None:
    """Up to 8 sequences on 8 ranks a step is matched or plain, half of the time each; 9 share passes."""
    pair = roofline_cases(H100, SPARSE_30B, Lookup(0.5), layout=Layout(dp=8, ep=8))[0]
    run = pair.target_pass()
    for batch in (1, 8, 9):
        plain, matched, shared = (float(np.asarray(run.time(batch, q, 0))) for q in (1, 5, 3))
        alone = (plain + matched) / 2
        assert shared != pytest.approx(alone, rel=1e-3)
        cost = pair.step_cost(4, batch, 0)
        expected = shared if batch > 8 else alone
        assert float(cost.verify_cost * cost.plain_s) == pytest.approx(expected, rel=1e-12)


def test_the_error_of_the_mean_width_is_what_the_lookup_says() -> None:
    """Over the number of matched sequences of a batch, binomial with h, for k 8 and the worst h and batch."""

    def too_long(target: str, h: float, batch: int) -> float:
        tp = 2 if target == "mixtral-8x7b" else 1
        run = roofline_cases(H100, load_model(target), Lookup(h), layout=Layout(tp=tp))[0].target_pass()
        chance = [math.comb(batch, n) * h**n * (1 - h) ** (batch - n) for n in range(batch + 1)]
        widths = 1 + 8 * np.arange(batch + 1) / batch
        mean = float(chance @ np.asarray(run.time(batch, widths, 0)))
        return float(np.asarray(run.time(batch, 1 + 8 * h, 0))) / mean - 1

    assert too_long("qwen3-30b-a3b", 0.3, 2) == pytest.approx(0.094, abs=0.001)
    assert too_long("mixtral-8x7b", 0.2, 2) == pytest.approx(0.235, abs=0.001)
    assert too_long("llama-3.1-8b", 0.5, 64) == pytest.approx(-0.0124, abs=0.0005)
    (said,) = Lookup(0.3).assumptions
    assert "1.3 % for dense models" in said
    assert "up to 9 % for 8 of 128 experts, 24 % for 2 of 8" in said
    assert Lookup(1.0).assumptions == ()
    assert said in roofline_cases(H100, LLAMA_8B, Lookup(0.3))[0].assumptions


def test_nothing_drafted_takes_no_pass() -> None:
    for drafter in (Eagle(head("eagle")), DFlash(head("dflash", one_pass=True)), Lookup(0.5)):
        cost = source(drafter).step_cost(0, 2, 10)
        assert float(cost.in_plain_steps) == 1


def test_a_level_of_a_tree_is_one_pass_over_its_nodes() -> None:
    """20 nodes on 4 levels: a pass writes 5 entries of 2 GB a sequence where a chain's writes one."""
    tree = source(Eagle(head("eagle"))).step_cost(4, 1, 10, width=21, passes=4)
    assert float(tree.draft_cost * tree.plain_s) == pytest.approx((300 + 15 * 2) / 1e3, rel=1e-12)
    chain = source(Eagle(head("eagle"))).step_cost(4, 1, 10)
    assert float(chain.draft_cost * chain.plain_s) == pytest.approx((300 + 11 * 2) / 1e3, rel=1e-12)
    assert float(tree.draft_passes) == 4


def test_one_pass_drafters_grow_with_k_by_compute_and_cache_alone() -> None:
    """DFlash on Qwen3-8B at batch 1: 1.049 B own parameters and the target's head, whatever k."""
    cost = roofline_cases(H100, QWEN_8B, drafter_of(QWEN_8B, load_model("dflash-qwen3-8b")))[0].step_cost(
        np.array([1, 7, 15]), 1, 1024
    )
    drafting = cost.draft_cost * cost.draft_passes
    assert drafting[2] == pytest.approx(drafting[0], rel=1e-3)
    assert drafting[0] == pytest.approx(1.671e9 / (QWEN_8B.read_params), rel=0.01)


def test_eagle3_on_an_8b_target_costs_a_twentieth_by_bytes() -> None:
    """425 M parameters read (50 fusion, 67 attention, 176 MLP, 131 head) of 7.505 B: c = .0566."""
    ideal = roofline_cases(H100, LLAMA_8B, drafter_of(LLAMA_8B, load_model("eagle3-llama-3.1-8b")))[0]
    read = (12288 * 4096) + (8192 * 6144 + 4096 * 4096) + (3 * 4096 * 14336) + 32000 * 4096
    target = 32 * (2.5 * 4096**2 + 3 * 4096 * 14336) + 128256 * 4096
    assert float(ideal.step_cost(3, 1, 0).draft_cost) == pytest.approx(read / target, rel=2e-4)
    assert 0.05 < read / target < 0.06


@pytest.mark.parametrize("exit_layer", [4, 8, 16])
def test_early_exit_costs_its_share_of_layers_and_the_head(exit_layer: int) -> None:
    """c = L_e/L + h, where L_e/L is of what is not head: LayerSkip (arXiv:2404.16710)."""
    head_share = 128256 * 4096 / LLAMA_8B.read_params
    cost = roofline_cases(H100, LLAMA_8B, EarlyExit(LLAMA_8B, exit_layer))[1].step_cost(3, 1, 0)
    assert float(cost.draft_cost) == pytest.approx(exit_layer / 32 * (1 - head_share) + head_share, rel=1e-4)


DERIVED = [
    # head, target, how far what is read may be off
    ("eagle-llama-2-70b", "llama-2-70b", 1e-4),
    ("eagle-llama-3-8b", "llama-3-8b", 1e-4),
    ("eagle-llama-3-70b", "llama-3-70b", 1e-4),
    ("eagle-qwen2-7b", "qwen2.5-7b", 1e-4),
    ("eagle-vicuna-7b", "vicuna-7b", 1e-4),
    ("eagle-vicuna-33b", "vicuna-33b", 0.09),  # its file has 13 of the target's 52 KV heads
    ("eagle3-llama-3.1-8b", "llama-3.1-8b", 1e-4),
    ("eagle3-llama-3.3-70b", "llama-3.3-70b", 1e-4),
    ("eagle3-phi-4", "phi-4", 1e-4),
    ("eagle3-gemma-3-1b", "gemma-3-1b", 1e-4),
    ("eagle3-qwen3-32b", "qwen3-32b", 1e-4),
    ("eagle3-qwen2.5-7b", "qwen2.5-7b", 0.17),  # a head of 16,000 rows
    ("eagle3-qwen3-30b-a3b", "qwen3-30b-a3b", 1e-4),
    ("eagle3-qwen3-235b-a22b", "qwen3-235b-a22b", 1e-4),
    ("eagle3-gpt-oss-120b", "gpt-oss-120b", 1e-4),
    ("eagle3-deepseek-v3", "deepseek-v3", 0.031),  # 5.7 hidden sizes
    ("eagle3-llama-4-scout", "llama-4-scout-17b-16e", 0.038),  # 6.4
    ("eagle3-qwen3-next-80b-a3b", "qwen3-next-80b-a3b", 0.121),  # 8
    ("eagle3-qwen3-coder-480b", "qwen3-coder-480b-a35b", 0.44),  # 2.7
    ("medusa-vicuna-7b", "vicuna-7b", 1e-4),
    ("medusa-vicuna-33b", "vicuna-33b", 1e-4),
    ("dflash-qwen3-4b", "qwen3-4b", 1e-4),
    ("dflash-qwen3-8b", "qwen3-8b", 1e-4),
    ("dflash-qwen3.5-35b-a3b", "qwen3.5-35b-a3b", 0.02),  # eight narrower layers
]


@pytest.mark.parametrize(("name", "target", "tolerance"), DERIVED)
def test_derived_heads_against_published_ones(name: str, target: str, tolerance: float) -> None:
    published = load_model(name)
    assert published.draft is not None
    found = derived_head(load_model(target), published.draft.kind)
    error = abs(found.read_params / published.read_params - 1)
    assert tolerance / 5 < error < tolerance or error < tolerance == 1e-4
    assert any("derived from the target" in sentence for sentence in found.assumed)


@pytest.mark.parametrize(
    "name", ["deepseek-v3", "glm-4.5", "glm-5", "qwen3.5-27b", "qwen3.5-35b-a3b", "qwen3.5-397b-a17b"]
)
def test_a_derived_mtp_module_is_the_configured_one(name: str) -> None:
    target = load_model(name)
    assert target.mtp is not None
    found = derived_head(target, "mtp")
    for field in ("total_params", "read_params", "multiplied_params", "kv_bytes_per_token"):
        assert getattr(found, field) == pytest.approx(getattr(target.mtp, field), rel=2e-4)
    assert found.experts == target.mtp.experts


def test_heads_run_on_the_ranks_of_their_target_and_models_on_one() -> None:
    layout = Layout(tp=4, dp=2, pp=2)
    assert Eagle(head("eagle")).layout_under(layout) == Layout(tp=4, dp=2)
    assert Eagle(head("eagle"), Layout(tp=2)).layout_under(layout) == Layout(tp=2)
    assert DraftModel(TARGET).layout_under(layout) == Layout(dp=2)
    assert DraftModel(TARGET).layout_under(Layout(tp=4)) == Layout()
    assert DraftModel(TARGET, Layout(tp=2)).layout_under(layout) == Layout(tp=2)
    assert EarlyExit(TARGET, 2).layout_under(layout) == Layout(tp=4, dp=2)


def test_what_each_drafter_keeps_in_memory() -> None:
    """Of 900,000 GB: 1000 of the target; EAGLE 100 and 2 a token beside the target's 16."""
    for drafter, weights, per_token in (
        (Eagle(head("eagle")), 100, 18),
        (DraftModel(TARGET), 1000, 32),
        (Lookup(0.5), 0, 16),
        (EarlyExit(TARGET, 2), 0, 16),
    ):
        plain, speculative = source(drafter).max_batches(3, 96)
        assert float(plain) == 899_000 // (97 * 16)
        assert float(speculative) == (899_000 - weights) // (100 * per_token)


def test_mtp_counts_its_experts_in_memory() -> None:
    """One more MoE layer of DeepSeek-R1 in fp8: 256 + 1 experts of 44 M, 11.5 GB beside the target."""
    mtp = drafter_of(R1, method="mtp")
    assert mtp.resident is not None
    assert 11.3e9 < mtp.resident.weight_bytes < 11.9e9
    assert mtp.name == "mtp of deepseek-r1"


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("llama-3.2-1b", "draft-model"),
        ("eagle-llama-3-8b", "eagle"),
        ("eagle3-llama-3.1-8b", "eagle3"),
        ("peagle-qwen3-8b", "p-eagle"),
        ("medusa-vicuna-7b", "medusa"),
        ("dflash-qwen3-8b", "dflash"),
        ("dspark-qwen3-8b", "dspark"),
        ("domino-qwen3-8b", "domino"),
    ],
)
def test_the_method_is_inferred_from_the_draft(name: str, method: str) -> None:
    draft = load_model(name)
    assert infer_method(draft) == method
    if draft.draft is not None:
        with pytest.raises(InputError, match=r"^draft: .*counts alone"):
            drafter_of(counts_model("70B", 70e9), draft)


def test_every_method_makes_a_drafter_of_its_own_name() -> None:
    options: dict[str, dict[str, Any]] = {
        "ngram": {"match_rate": 0.5},
        "suffix": {"match_rate": 0.5},
        "early-exit": {"exit_layer": 2},
        "draft-model": {"draft": TARGET},
        "pard": {"draft": TARGET},
    }
    for method in METHODS:
        drafter = drafter_of(TARGET, method=method, **options.get(method, {"draft": head(method)}))
        assert drafter.method == method
        assert drafter.fitting_law
        assert float(source(drafter).step_cost(2, 1, 0).in_plain_steps) > 1


@pytest.mark.parametrize("method", ["eagle", "eagle3", "medusa", "dflash"])
def test_a_method_without_a_draft_derives_its_head_and_says_so(method: str) -> None:
    ideal = roofline_cases(H100, LLAMA_8B, drafter_of(LLAMA_8B, method=method))[0]
    assert any("derived from the target" in sentence for sentence in ideal.assumptions)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: drafter_of(LLAMA_8B), "draft: is missing: name the draft of llama-3.1-8b"),
        (lambda: drafter_of(LLAMA_8B, method="guess"), "method: 'guess' is none of draft-model"),
        (lambda: drafter_of(LLAMA_8B, method="ngram"), "match_rate: is missing"),
        (lambda: drafter_of(LLAMA_8B, method="early-exit"), "exit_layer: is missing"),
        (lambda: drafter_of(LLAMA_8B, method="p-eagle"), "draft: is missing"),
        (lambda: drafter_of(LLAMA_8B, method="mtp"), "method: mtp needs a module"),
        (lambda: drafter_of(LLAMA_8B, method="eagle3", match_rate=0.5), "match_rate: says nothing to eagle3"),
        (lambda: drafter_of(LLAMA_8B, LLAMA_8B, match_rate=0.5), "match_rate: says nothing to draft-model"),
        (lambda: drafter_of(LLAMA_8B, LLAMA_8B, method="ngram", match_rate=0.5), "draft: says nothing"),
        (
            lambda: drafter_of(LLAMA_8B, method="early-exit", exit_layer=32),
            "exit_layer: must be below the 32",
        ),
        (lambda: drafter_of(LLAMA_8B, method="early-exit", exit_layer=0), "exit_layer: must be a whole"),
        (
            lambda: drafter_of(counts_model("8B", 8e9), exit_layer=4),
            "exit_layer: needs layers, and 8B is known",
        ),
        (lambda: drafter_of(counts_model("8B", 8e9), method="eagle3"), "target: 8B is known by its counts"),
        (
            lambda: drafter_of(LLAMA_8B, load_model("eagle3-llama-3.3-70b")),
            "draft: eagle3-llama-3.3-70b reads hidden states of 8,192, and llama-3.1-8b has 4,096",
        ),
        (
            lambda: drafter_of(LLAMA_8B, load_model("eagle3-qwen3-8b")),
            "draft: eagle3-qwen3-8b has a vocabulary of 151,936, and llama-3.1-8b has 128,256",
        ),
        (
            lambda: drafter_of(LLAMA_8B, load_model("eagle3-llama-3.1-8b"), method="draft-model"),
            "draft: eagle3-llama-3.1-8b is a draft head",
        ),
        (
            lambda: drafter_of(LLAMA_8B, load_model("eagle3-llama-3.1-8b"), method="eagle"),
            "draft: eagle3-llama-3.1-8b is a head of kind eagle3, not eagle",
        ),
        (lambda: drafter_of(LLAMA_8B, LLAMA_8B, method="eagle"), "draft: llama-3.1-8b is a model of its own"),
        (lambda: source(DraftModel(TARGET, Layout(tp=2))), "draft_tp: must be at most"),
        (lambda: source(EarlyExit(LLAMA_8B, 2)), "draft: first 2 layers are those of llama-3.1-8b"),
        (
            lambda: source(Medusa(head("medusa", one_pass=True, max_tokens=5))).step_cost([2, 6], 1, 0),
            "k: must be at most 5, the draft of medusa, got 6",
        ),
        (lambda: derived_head(LLAMA_8B, "pard"), "kind: 'pard' cannot be derived"),
        (lambda: Lookup(1.5), "match_rate: must be"),
        (
            lambda: Roofline(accelerator=H100, target=load_model("eagle3-qwen3-8b"), drafter=Lookup()),
            "target: eagle3-qwen3-8b is a draft head",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        call()


def test_a_profile_has_its_name_and_says_where_it_comes_from() -> None:
    profile = source(Lookup(), name="typical", described="typical: constants of engines")
    assert profile.case == "typical"
    assert profile.basis == "by the typical profile of typed"
    assert profile.assumptions[0] == "typical: constants of engines"
    limited = source(Lookup(), name="typical", described="typical: constants of engines", limit="memory")
    assert limited.case == "memory_bound"
    assert limited.assumptions[0].startswith("ideal: datasheet peaks")


def test_a_lookup_is_no_single_alpha() -> None:
    """A trace whose first token is accepted in .31 of the steps and each later one in .92 (InstructCoder).

    The α that fits the first token promises a quarter of what k = 8 adds; the α that fits k = 8 promises
    twice what k = 1 does. The mixture, h = .31/.92, has both: 1.31 and 1 + .31·(1 − .92⁸)/.08.
    """
    lookup = LookupAcceptance(0.31 / 0.92, ConstantAcceptance(0.92))
    short, long = (float(np.asarray(lookup.acceptance_length(k))) for k in (1, 8))
    assert (short, long) == pytest.approx((1.31, 1 + 0.31 * (1 - 0.92**8) / 0.08), rel=1e-12)
    first = float(expected_tokens(0.31, 8))
    assert (first - 1) / (long - 1) < 0.25
    fitted = float(np.asarray(alpha_from_acceptance_length(long, 8)))
    assert fitted / 0.31 > 2


def test_a_parallel_model_takes_one_pass() -> None:
    """PARD (arXiv:2504.18583): the model itself, once, over k tokens."""
    one, many = (source(kind(TARGET)).step_cost(4, 1, 0) for kind in (ParallelModel, DraftModel))
    assert float(one.draft_passes) == 1
    assert float(many.draft_passes) == 4
    assert float(one.draft_cost) == pytest.approx((1000 + 4 * 16) / 1016, rel=1e-12)


def speedups(
    target: ModelShape, drafter: Drafter, length: float, batches: list[int], context: float, tp: int = 1
) -> list[float]:
    """Ideal speed-ups at k = 3 on as many H100 SXM."""
    ideal = Roofline(accelerator=H100, target=target, drafter=drafter, layout=Layout(tp=tp))
    found: list[float] = (length / ideal.step_cost(3, np.array(batches), context).in_plain_steps).tolist()
    return found


def test_a_draft_on_one_device_is_a_rule_for_short_contexts() -> None:
    """70B on 8 H100 with a 1B draft, α .7, k 3, 32k, batch 32: wins spread, loses on one rank.

    Plain 18.33 ms, verified 19.31 ms. The draft's cache is 32·32769·32768 bytes: 10.26 ms of a pass on one
    device, over ten times its weights (.74 ms), and 34 GB beside the 23 sequences that fit.
    """
    length = float(expected_tokens(0.7, 3))
    draft = load_model("llama-3.2-1b")
    (spread,) = speedups(LLAMA_70B, DraftModel(draft, Layout(tp=8)), length, [32], 32768, 8)
    (alone,) = speedups(LLAMA_70B, DraftModel(draft), length, [32], 32768, 8)
    assert spread == pytest.approx(1.98, abs=0.01)
    assert alone == pytest.approx(0.89, abs=0.01)
    source = Roofline(accelerator=H100, target=LLAMA_70B, drafter=DraftModel(draft), layout=Layout(tp=8))
    assert float(source.max_batches(3, 32768)[1]) < 32 < float(source.max_batches(3, 32768)[0])
    cache, weights = 32 * 32769 * draft.kv_bytes_per_token, draft.read_params * 2
    assert cache > 10 * weights


def test_a_tiny_draft_spread_over_the_ranks_of_its_target_waits_for_all_reduces() -> None:
    """OPT-125M forced to the tp 4 of OPT-30B: 24 collectives of 8 µs against some 90 µs of bytes saved.

    .125 G of 2 bytes take .12 ms on one A100 at 2.04 TB/s and .03 ms on four; datasheet rates alone make
    the spread draft look cheaper.
    """
    target, draft = load_model("opt-30b"), load_model("opt-125m")

    def draft_ms(tp: int, latency_s: float) -> float:
        pair = Roofline(
            accelerator=load_hardware("a100-sxm-80gb"),
            target=target,
            drafter=DraftModel(draft, Layout(tp=tp)),
            layout=Layout(tp=4),
            efficiency=Efficiency(link_latency_s=latency_s),
        ).draft_pass()
        assert pair is not None
        return float(np.asarray(pair.time(1, 1, 0))) * 1e3

    assert draft_ms(4, 0) < draft_ms(1, 0) == pytest.approx(0.122, abs=0.003)
    assert draft_ms(4, 8e-6) > 1.5 * draft_ms(1, 8e-6)
    assert draft_ms(4, 8e-6) - draft_ms(4, 0) == pytest.approx(2 * 12 * 8e-3, rel=1e-9)


@pytest.mark.parametrize("length", [1.9, 2.2])
@pytest.mark.parametrize("published", [True, False])
def test_eagle3_on_a_sparse_30b_loses_alone_and_gains_at_a_medium_batch(
    length: float, published: bool
) -> None:
    """Independent routing: four tokens read 3.6 times the experts of one, so E below about 2.5 loses."""
    draft = load_model("eagle3-qwen3-30b-a3b") if published else None
    found = speedups(
        SPARSE_30B, drafter_of(SPARSE_30B, draft, method="eagle3"), length, [1, 4, 64, 512], 1024
    )
    assert found[0] < 1
    assert found[2] > max(found[0], found[1], found[3])


def test_independent_routing_says_no_to_mtp_on_deepseek_r1() -> None:
    """8 H200-class devices, k 3, E 2.6: .86 to .95 at batch 1 to 8, where engines gain."""
    found = speedups(R1, drafter_of(R1, method="mtp"), 2.6, [1, 2, 4, 8], 1024, 8)
    assert min(found) == pytest.approx(0.86, abs=0.03)
    assert max(found) == pytest.approx(0.95, abs=0.03)
