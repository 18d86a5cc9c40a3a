"""ModelShape against the numbers that enter the roofline, and its changes of format."""

from __future__ import annotations

import pytest

from specmath.errors import InputError
from specmath.model import ModelShape
from specmath.model_catalogue import load_model
from specmath.model_counts import counts_model, model_from_counts

# name: dense parameters read, (experts, top-k, MoE layers, parameters of one expert),
# [(KV bytes per token, FLOPs per pair, window, KV heads)], hidden, layers; all in 16 bit.
ROOFLINE_INPUTS = {
    "llama-3.1-70b": (69503033344, None, [(327680, 2621440, None, 8)], 8192, 80),
    "llama-3.1-8b": (7504924672, None, [(131072, 524288, None, 8)], 4096, 32),
    "llama-3.2-1b": (1235814400, None, [(32768, 131072, None, 8)], 2048, 16),
    "qwen3-32b": (31984210944, None, [(262144, 2097152, None, 8)], 5120, 64),
    "qwen3-0.6b": (596049920, None, [(114688, 229376, None, 8)], 1024, 28),
    "qwen3-30b-a3b": (1229928448, (128, 8, 48, 4718592), [(98304, 786432, None, 4)], 2048, 48),
    "mixtral-8x7b": (1474564096, (8, 2, 32, 176160768), [(131072, 524288, None, 8)], 4096, 32),
    "deepseek-v3": (16190954496, (256, 8, 58, 44040192), [(70272, 16990208, None, 1)], 7168, 61),
    "gemma-3-27b": (
        27009346304,
        None,
        [(425984, 851968, 1024, 16), (81920, 163840, None, 16)],
        5376,
        62,
    ),
}


@pytest.mark.parametrize("name", ROOFLINE_INPUTS)
def test_roofline_inputs(name: str) -> None:
    dense, experts, attention, hidden, layers = ROOFLINE_INPUTS[name]
    model = load_model(name)
    assert model.dense_params == dense
    assert model.multiplied_params == model.read_params
    assert {group.bytes_per_param for group in model.weights} == {2.0}
    found = [
        (group.n_experts, group.top_k, group.n_layers, group.params_per_expert) for group in model.experts
    ]
    assert found == ([experts] if experts else [])
    assert [
        (group.kv_bytes_per_token, group.flops_per_pair, group.window, group.kv_heads)
        for group in model.attention
    ] == attention
    assert (model.hidden, model.n_layers) == (hidden, layers)


def test_int4_of_llama_8b() -> None:
    """4 bits, and a 16-bit scale and zero point a group of 128: 0.53125 bytes; the head keeps 16 bits.

    The matrices and the norms add up to the 6,979,588,096 parameters of the layers; only matrices shrink.
    """
    model = load_model("llama-3.1-8b").with_quantization("int4")
    width = {group.name: group.bytes_per_param for group in model.weights}
    params = {group.name: group.read_params for group in model.weights}
    assert width == {"head": 2.0, "embedding": 2.0, "norms": 2.0, "attention": 0.53125, "mlp": 0.53125}
    assert params["attention"] + params["mlp"] + params["norms"] == 6979588096
    assert params["norms"] == 65 * 4096
    assert params["head"] == 525336576
    assert {group.compute_dtype for group in model.weights} == {"bf16"}


@pytest.mark.parametrize(
    ("quantization", "bytes_per_param", "compute_dtype"),
    [
        ("fp8", 1 + 4 / 128**2, "fp8"),
        ("int8", 1.0, "int8"),
        ("int4", 0.53125, "bf16"),
        ("nf4", 0.5625, "bf16"),
        ("nvfp4", 0.5625, "fp4"),
        ("mxfp4", 0.53125, "bf16"),
        ("fp16", 2.0, "fp16"),
        ("fp32", 4.0, "fp32"),
    ],
)
def test_every_format(quantization: str, bytes_per_param: float, compute_dtype: str) -> None:
    model = load_model("deepseek-v3").with_quantization(quantization)
    assert model.experts[0].bytes_per_param == bytes_per_param
    assert model.experts[0].compute_dtype == compute_dtype
    assert model.mtp is not None
    assert model.mtp.experts[0].bytes_per_param == bytes_per_param
    assert any(quantization in sentence for sentence in model.assumed)
    assert model.total_params == load_model("deepseek-v3").total_params


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"quantization: 'int3' is not known; use one of fp8, int8, int4"):
        load_model("llama-3.1-8b").with_quantization("int3")
    with pytest.raises(InputError, match="dtype: fp8 quantises weights; a dtype is one of fp32, bf16, fp16"):
        load_model("llama-3.1-8b").with_dtype("fp8")
    with pytest.raises(InputError, match="kv_cache_dtype: 'q4' is not known"):
        load_model("llama-3.1-8b").with_kv_cache_dtype("q4")


def test_dequantising_a_quantised_file() -> None:
    """nvidia's Qwen3.6-27B has three widths; asked for bf16, everything has 2 bytes, the fp8 cache stays."""
    model = load_model("qwen3.6-27b-nvfp4")
    assert len({group.bytes_per_param for group in model.weights}) == 3
    plain = model.with_dtype("bf16")
    assert plain.weight_bytes == 2 * model.total_params
    assert plain.kv_bytes_per_token == model.kv_bytes_per_token


def test_cache_dtypes() -> None:
    model = load_model("deepseek-v3")
    assert model.kv_bytes_per_token == 70272
    assert model.with_kv_cache_dtype("fp8").kv_bytes_per_token == 35136
    assert model.with_kv_cache_dtype("torch.float32").kv_bytes_per_token == 140544


def test_cache_of_a_context() -> None:
    """Gemma 3 27B at 10,000 tokens: 10 full layers hold all, 52 window layers hold 1,024."""
    model = load_model("gemma-3-27b")
    assert model.kv_bytes(10_000) == 10_000 * 81920 + 1024 * 425984
    assert model.kv_bytes(100) == 100 * (81920 + 425984)
    assert model.kv_bytes(0) == 0


def test_groups_of_sparse_attention() -> None:
    """DeepSeek V3.2: an indexer of 64 heads scores every token, attention reads at most 2,048 of them."""
    attention, indexer = load_model("deepseek-v3.2").attention
    assert (attention.name, attention.top_k, attention.kv_heads) == ("mla_sparse", 2048, 1)
    assert attention.kv_bytes_per_token == 61 * (512 + 64) * 2
    assert (indexer.name, indexer.top_k, indexer.kv_bytes_per_token) == ("indexer", None, 61 * 128 * 2)


def test_groups_of_block_sparse_attention() -> None:
    """MiniMax M3: 16 blocks of 128 tokens on 57 layers, 3 layers whole."""
    groups = {group.name: group for group in load_model("minimax-m3").attention}
    assert groups["block_sparse"].top_k == 16 * 128
    assert {name: group.n_layers for name, group in groups.items()} == {
        "full": 3,
        "block_sparse": 57,
        "indexer": 57,
    }


def test_groups_with_their_own_heads() -> None:
    """MiMo V2 Flash: 8 KV heads on window layers, 4 on full ones; widths 192 and 128."""
    groups = {group.name: group for group in load_model("mimo-v2-flash").attention}
    assert groups["window"].kv_heads == 8
    assert groups["window"].kv_elements_per_entry == 39 * 8 * (192 + 128)
    assert groups["full"].kv_heads == 4
    assert groups["full"].kv_elements_per_entry == 9 * 4 * (192 + 128)


def test_borrowed_caches() -> None:
    """Gemma 4 E2B: the last 20 of 35 layers attend to an earlier layer's cache."""
    groups = {group.name: group for group in load_model("gemma-4-e2b").attention}
    layers = {name: group.n_layers for name, group in groups.items()}
    assert layers == {"window": 12, "full": 3, "window_borrowed_kv": 16, "full_borrowed_kv": 4}
    assert groups["full_borrowed_kv"].kv_elements_per_entry == 0
    assert groups["full_borrowed_kv"].flops_per_pair == 4 * 4 * 8 * 512


def test_cache_of_compressed_layers() -> None:
    """DeepSeek V4 at 1,000 tokens: 128 in the window, 250 entries of 4 tokens (and their keys), 7 of 128."""
    model = load_model("deepseek-v4-flash").with_kv_cache_dtype("bf16")
    window, every_4, keys_4, every_128 = 43 * 512 * 2, 21 * 512 * 2, 21 * 128 * 2, 20 * 512 * 2
    assert model.kv_bytes(1000) == 128 * window + 250 * (every_4 + keys_4) + 7 * every_128


@pytest.mark.parametrize("text", ["70B", "70b", "70e9", " 70B "])
def test_counts_dense(text: str) -> None:
    if text == "70b":
        with pytest.raises(InputError, match="no known unit"):
            model_from_counts(text)
        return
    model = model_from_counts(text)
    assert (model.total_params, model.active_params, model.read_params) == (70 * 10**9,) * 3
    assert model.weight_bytes == 140e9
    assert not model.has_kv
    assert model.kv_bytes_per_token == 0


def test_counts_of_a_mixture() -> None:
    """The textbook MoE: bytes of all, FLOPs of the active ones."""
    model = load_model("47B/13B")
    assert model.dense_params == 47 * 10**9
    assert model.multiplied_params == model.active_params == 13 * 10**9
    assert any("too slow at small batch" in sentence for sentence in model.assumed)


@pytest.mark.parametrize(
    ("total", "active", "width", "problem"),
    [
        (0, None, 2.0, "total_params: must be between 1 and 1e16"),
        (float("nan"), None, 2.0, "total_params: must be between 1 and 1e16"),
        (1e17, None, 2.0, "total_params: must be between 1 and 1e16"),
        (1e9, 2e9, 2.0, "active_params: must be at most the total"),
        (1e9, None, 0.0, "bytes_per_param: must be above 0"),
        (1e9, None, float("nan"), "bytes_per_param: must be above 0"),
    ],
)
def test_counts_out_of_range(total: float, active: float | None, width: float, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        counts_model("x", total, active, width)


def test_a_shape_is_frozen_and_equal_by_value() -> None:
    assert load_model("qwen3-8b") == load_model("qwen3-8b")
    assert isinstance(load_model("qwen3-8b"), ModelShape)
    assert hash(load_model("qwen3-8b")) == hash(load_model("qwen3-8b"))
