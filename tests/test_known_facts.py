"""What the field knows about verification, experts and caches, from the packaged models and parts."""

from __future__ import annotations

import numpy as np
import pytest

from specmath.acceptance import expected_tokens
from specmath.catalogue import load_hardware
from specmath.drafters.base import Drafter
from specmath.drafters.draft_model import DraftModel
from specmath.drafters.lookup import Lookup
from specmath.execution import Efficiency, Layout
from specmath.experts import expected_experts
from specmath.memory import sequence_bytes_per_device
from specmath.model import ModelShape
from specmath.model_catalogue import load_model
from specmath.roofline import ForwardPass, PassPart
from specmath.roofline_source import Roofline

LLAMA_70B = load_model("llama-3.1-70b")
DEEPSEEK = load_model("deepseek-v3")
SPARSE_30B = load_model("qwen3-30b-a3b")


def roofline(
    target: ModelShape, *, tp: int = 1, kv_reread: float = 0.0, drafter: Drafter | None = None
) -> Roofline:
    """On as many H100 SXM: 3.35 TB/s, 989.4 TFLOP/s bf16 dense, NVLink 450 GB/s one way."""
    return Roofline(
        accelerator=load_hardware("h100-sxm"),
        target=target,
        drafter=drafter or Lookup(),
        layout=Layout(tp=tp),
        efficiency=Efficiency(kv_reread=kv_reread),
    )


def verify_cost(source: Roofline, k: int, batch: int, context: float) -> float:
    return float(source.step_cost(k, batch, context).verify_cost)


def part_of(forward: ForwardPass, name: str, batch: int, tokens: int, context: float) -> PassPart:
    (found,) = (part for part in forward.parts(batch, tokens, context) if part.name == name)
    return found


@pytest.mark.parametrize(
    ("kv_reread", "expected"),
    [
        pytest.param(0.0, 1.053, id="cache read once"),
        pytest.param(1.0, 3.151, id="cache read per query token"),
    ],
)
def test_verifying_3_tokens_of_a_70b_at_32k_on_8_devices(kv_reread: float, expected: float) -> None:
    """Own arithmetic on H100 SXM figures, per device and at batch 32.

    Weights: 2·69,503,033,344/8 bytes = 5.187 ms. Cache: 32·(32768 + 1)·327680/8 bytes = 12.821 ms; read four
    times 51.285 ms. All-reduces: 160 of 32·8192·2 bytes, 2·7/8 of each over 450 GB/s = 0.326 ms; 1.305 ms
    for four times the tokens. (5.187 + 12.822 + 1.305)/(5.187 + 12.821 + 0.326) = 1.0534, and
    (5.187 + 51.285 + 1.305)/18.334 = 3.1513. FLOPs bind nowhere, so the peak does not matter.
    """
    source = roofline(LLAMA_70B, tp=8, kv_reread=kv_reread)
    assert verify_cost(source, 3, 32, 32768) == pytest.approx(expected, abs=0.0005)
    for tokens in (1, 4):
        for part in source.target_pass().parts(32, tokens, 32768):
            assert str(part.bound) in ("bytes", "latency")


def test_what_verification_adds_there_is_all_reduce_traffic() -> None:
    """All but 0.12 %, which are the entries of three more tokens written to the cache."""
    forward = roofline(LLAMA_70B, tp=8).target_pass()
    plain, verified = (
        {part.name: float(part.seconds) for part in forward.parts(32, tokens, 32768)} for tokens in (1, 4)
    )
    added = sum(verified.values()) - sum(plain.values())
    wire = verified["communication"] - plain["communication"]
    written = verified["attention, full"] - plain["attention, full"]
    assert verified["dense"] == plain["dense"]
    assert wire / added > 0.998
    assert written == pytest.approx(32 * 3 * 327680 / 8 / 3.35e12, rel=1e-6)
    assert wire + written == pytest.approx(added, rel=1e-9)


def test_grouped_queries_verify_for_free_at_long_context_and_mla_does_not() -> None:
    """DeepSeek-V3 (arXiv:2412.19437): 128 heads on one latent vector of 512 + 64 values.

    Absorbed, a cached token costs 128·2·(2·512 + 64) FLOPs on 576·2 bytes: 241.8 FLOP/B per query token,
    just under the 295.3 of an H100. So q = 4 takes 4·241.8/295.3 = 3.27 plain steps, where the 16 FLOP/B of
    Llama-3.1-70B (64 heads on 8) leave 4 tokens at the price of one.
    """
    intensity = 128 * 2 * (2 * 512 + 64) / (576 * 2)
    mla = verify_cost(roofline(DEEPSEEK), 3, 32, 1e9)
    assert mla == pytest.approx(4 * intensity / (989.4 / 3.35), rel=1e-3)
    assert mla > 3.2
    assert verify_cost(roofline(LLAMA_70B), 3, 32, 1e8) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("context", [1024, 8192, 32768, 131072])
def test_verification_gets_cheaper_as_the_context_grows(context: int) -> None:
    """MagicDec (arXiv:2408.11049): where the cache dominates, T_V/T_T tends to 1."""
    source = roofline(load_model("llama-3.1-8b"))
    costs = [verify_cost(source, 4, 256, length) for length in (context // 2, context)]
    assert 1 < costs[1] < costs[0]


def test_29_of_128_experts_are_touched_by_4_tokens() -> None:
    """MoESD (arXiv:2505.19645) on Qwen3-30B-A3B: 128·(1 − (1 − 8/128)⁴) = 29.12."""
    (group,) = SPARSE_30B.experts
    assert (group.n_experts, group.top_k) == (128, 8)
    assert round(float(np.asarray(expected_experts(group.n_experts, group.top_k, 4)))) == 29
    forward = roofline(SPARSE_30B).target_pass()
    one_expert = group.n_layers * group.params_per_expert * group.bytes_per_param
    for batch, tokens in ((1, 4), (2, 2), (4, 1)):
        read = float(part_of(forward, "experts", batch, tokens, 0).bytes)
        assert read / one_expert == pytest.approx(29.1230, abs=5e-5)


@pytest.mark.parametrize(("tokens", "ratio"), [(4, 3.64), (8, 6.45), (16, 10.3), (64, 15.7)])
def test_experts_of_more_tokens_over_those_of_one(tokens: int, ratio: float) -> None:
    """The same model: what verification reads in plain steps, were experts all there is."""
    forward = roofline(SPARSE_30B).target_pass()
    plain, verified = (float(part_of(forward, "experts", 1, width, 0).bytes) for width in (1, tokens))
    assert verified / plain == pytest.approx(ratio, abs=0.05)


def test_a_sparse_target_gains_most_at_a_medium_batch() -> None:
    """MoESD: at batch 1 verification reads new experts; later all are read anyway, and then FLOPs bind."""
    source = roofline(SPARSE_30B, drafter=DraftModel(load_model("qwen3-0.6b")))
    batches = np.array([1, 64, 4096])
    length = float(np.asarray(expected_tokens(0.8, 3)))
    alone, medium, large = length / source.step_cost(3, batches, 0).in_plain_steps
    assert medium > alone
    assert medium > large
    assert large < 1


def test_deepseek_v3_keeps_70272_bytes_a_token_whole_on_every_rank() -> None:
    """DeepSeek-V3 (arXiv:2412.19437): 61 layers of 512 + 64 values of 2 bytes, one head for all ranks."""
    assert DEEPSEEK.kv_bytes_per_token == 61 * (512 + 64) * 2 == 70272
    for tp in (1, 8, 16):
        assert float(sequence_bytes_per_device(DEEPSEEK, Layout(tp=tp), 1000, 1)) == 70_272_000
        read = part_of(roofline(DEEPSEEK, tp=tp).target_pass(), "attention, mla", 4, 1, 999).bytes
        assert float(read) == 4 * 70_272_000


def test_eight_kv_heads_split_over_eight_ranks_and_no_further() -> None:
    """Llama-3.1-70B: 80 layers of 2·8·128 values of 2 bytes; sixteen ranks hold every head twice."""
    assert LLAMA_70B.kv_bytes_per_token == 80 * 2 * 8 * 128 * 2
    held = [float(sequence_bytes_per_device(LLAMA_70B, Layout(tp=tp), 1, 1)) for tp in (1, 4, 8, 16)]
    assert held == [327_680, 81_920, 40_960, 40_960]


@pytest.mark.parametrize(
    ("part", "ridge"),
    [("h100-sxm", 295), ("h200-sxm", 206)],
)
def test_the_ridge_in_16_bits_and_a_quarter_of_it_for_int4(part: str, ridge: float) -> None:
    """FLOP/s over B/s of the datasheets; weight-only int4 moves 4 bits for the same products.

    The head of 128256·8192 parameters stays in 16 bits, and 32 bits of scales serve 128 weights.
    """
    source = Roofline(accelerator=load_hardware(part), target=LLAMA_70B, drafter=Lookup())
    assert source.ridge_tokens == pytest.approx(ridge, abs=0.6)
    narrow = Roofline(
        accelerator=load_hardware(part), target=LLAMA_70B.with_quantization("int4"), drafter=Lookup()
    )
    assert 0.25 < narrow.ridge_tokens / source.ridge_tokens < 0.29
