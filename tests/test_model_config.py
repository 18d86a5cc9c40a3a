"""Reading config.json: field variants of real files, what is refused, hostile input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specmath.errors import DataError
from specmath.hf.reader import read_config
from specmath.model import ModelShape
from specmath.model_catalogue import catalogue_entry

Config = dict[str, Any]


def read(config: Config) -> ModelShape:
    return read_config(json.dumps(config), "config.json")


def entry(name: str, **changes: Any) -> Config:
    """A catalogue file with fields changed; None in `changes` is written as null."""
    return catalogue_entry(name) | changes


def without(config: Config, *fields: str) -> Config:
    return {field: value for field, value in config.items() if field not in fields}


LLAMA: Config = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}
LAYER = 64 * 64 * 2 + 2 * 64 * 16 + 3 * 64 * 160 + 2 * 64
"""Query and output maps, key and value maps of 2 heads of 8, three MLP matrices, two norms."""
PLAIN = 2 * 64 * 1000 + 3 * LAYER + 64


def test_a_small_llama_by_hand() -> None:
    model = read(LLAMA)
    assert model.total_params == model.active_params == PLAIN
    assert model.read_params == PLAIN - 64 * 1000
    assert model.kv_bytes_per_token == 3 * 2 * 2 * 8 * 2
    assert model.attention[0].flops_per_pair == 3 * 4 * 64


@pytest.mark.parametrize(
    ("change", "params"),
    [
        pytest.param({"tie_word_embeddings": True}, PLAIN - 64_000, id="tied head counts once"),
        pytest.param({"num_key_value_heads": None}, PLAIN + 3 * 2 * 64 * 48, id="null KV heads: all heads"),
        pytest.param(
            {"head_dim": 16}, PLAIN + 3 * (64 * 64 * 2 + 2 * 64 * 16), id="head_dim wins over hidden / heads"
        ),
        pytest.param({"head_dim": 0}, PLAIN, id="head_dim 0 is no head_dim"),
        pytest.param({"head_dim": None}, PLAIN, id="head_dim null is no head_dim"),
        pytest.param({"attention_bias": True}, PLAIN + 3 * (64 + 16 + 16 + 64), id="q, k, v, o biases"),
        pytest.param({"mlp_bias": True}, PLAIN + 3 * (160 + 160 + 64), id="MLP biases"),
        pytest.param({"hidden_size": 64.0}, PLAIN, id="a whole float is a whole number"),
        pytest.param({"unknown_switch": [1, 2]}, PLAIN, id="unknown fields do not matter"),
    ],
)
def test_switches(change: Config, params: int) -> None:
    assert read(LLAMA | change).total_params == params


# One published layout a row: (file, total parameters, KV bytes per token in 16 bit).
VARIANTS: dict[str, tuple[Config, int, int]] = {
    "GPT-2: n_embd, n_layer, n_head, no inner size, tied": (
        {
            "model_type": "gpt2",
            "n_embd": 768,
            "n_layer": 12,
            "n_head": 12,
            "n_positions": 1024,
            "vocab_size": 50257,
        },
        124_439_808,
        36_864,
    ),
    "BLOOM-560M": (
        {
            "model_type": "bloom",
            "n_embed": 1024,
            "hidden_size": 1024,
            "n_layer": 24,
            "num_attention_heads": 16,
            "n_head": 16,
            "vocab_size": 250880,
        },
        559_214_592,
        98_304,
    ),
    "Falcon-7B: multi_query, parallel attention, head tied": (
        {
            "model_type": "falcon",
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "multi_query": True,
            "parallel_attn": True,
            "new_decoder_architecture": False,
            "bias": False,
            "vocab_size": 65024,
        },
        6_921_720_704,
        8_192,
    ),
    "Falcon-40B: new architecture, 8 KV heads, two norms": (
        {
            "model_type": "falcon",
            "hidden_size": 8192,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_kv_heads": 8,
            "new_decoder_architecture": True,
            "bias": False,
            "vocab_size": 65024,
        },
        41_303_293_952,
        122_880,
    ),
    "GPT-J-6B: parallel, no attention bias, head bias": (
        {
            "model_type": "gptj",
            "n_embd": 4096,
            "n_layer": 28,
            "n_head": 16,
            "n_positions": 2048,
            "n_inner": None,
            "vocab_size": 50400,
            "tie_word_embeddings": False,
        },
        6_050_882_784,
        458_752,
    ),
    "MPT-7B: d_model, attn_config, no biases, tied": (
        {
            "model_type": "mpt",
            "d_model": 4096,
            "n_heads": 32,
            "n_layers": 32,
            "expansion_ratio": 4,
            "max_seq_len": 2048,
            "no_bias": True,
            "vocab_size": 50432,
        },
        6_649_286_656,
        524_288,
    ),
    "Phi-2: parallel block, biases, head bias": (
        {
            "model_type": "phi",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "vocab_size": 51200,
            "tie_word_embeddings": False,
        },
        2_779_683_840,
        327_680,
    ),
    "StarCoder2-7B: two-matrix MLP, biases": (
        {
            "model_type": "starcoder2",
            "hidden_size": 4608,
            "intermediate_size": 18432,
            "num_hidden_layers": 32,
            "num_attention_heads": 36,
            "num_key_value_heads": 4,
            "vocab_size": 49152,
            "sliding_window": 4096,
            "max_position_embeddings": 16384,
            "tie_word_embeddings": True,
        },
        7_173_923_840,
        65_536,
    ),
    "StarCoderBase-1B: multi_query means one KV head": (
        {
            "model_type": "gpt_bigcode",
            "n_embd": 2048,
            "n_layer": 24,
            "n_head": 16,
            "n_inner": 8192,
            "n_positions": 8192,
            "multi_query": True,
            "vocab_size": 49152,
        },
        1_137_207_296,
        12_288,
    ),
    "Qwen-1.8B: intermediate_size is twice the width": (
        {
            "model_type": "qwen",
            "hidden_size": 2048,
            "intermediate_size": 11008,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "kv_channels": 128,
            "seq_length": 8192,
            "vocab_size": 151936,
            "tie_word_embeddings": False,
        },
        1_836_828_672,
        196_608,
    ),
    "ChatGLM3-6B: padded_vocab_size, multi_query_group_num": (
        {
            "model_type": "chatglm",
            "hidden_size": 4096,
            "ffn_hidden_size": 13696,
            "num_layers": 28,
            "num_attention_heads": 32,
            "kv_channels": 128,
            "multi_query_attention": True,
            "multi_query_group_num": 2,
            "padded_vocab_size": 65024,
            "add_qkv_bias": True,
            "seq_length": 8192,
        },
        6_243_584_000,
        28_672,
    ),
    "Baichuan2-7B: no KV heads, model_max_length": (
        {
            "model_type": "baichuan",
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "vocab_size": 125696,
            "model_max_length": 4096,
        },
        7_505_973_248,
        524_288,
    ),
    "Aya-23-8B: tie absent, the class says true": (
        {
            "model_type": "cohere",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 256000,
            "use_qk_norm": False,
        },
        8_028_033_024,
        131_072,
    ),
    "DeepSeek-MoE-16B: one dense layer, two shared experts, plain heads": (
        {
            "model_type": "deepseek",
            "hidden_size": 2048,
            "intermediate_size": 10944,
            "moe_intermediate_size": 1408,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "n_routed_experts": 64,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "moe_layer_freq": 1,
            "vocab_size": 102400,
        },
        16_375_728_128,
        229_376,
    ),
    "Mamba-2.8B: no attention, no cache": (
        {
            "model_type": "mamba",
            "hidden_size": 2560,
            "intermediate_size": 5120,
            "num_hidden_layers": 64,
            "state_size": 16,
            "conv_kernel": 4,
            "time_step_rank": 160,
            "vocab_size": 50280,
        },
        2_768_345_600,
        0,
    ),
    "RWKV-5-World-3B: no heads, intermediate_size null (formula)": (
        {
            "model_type": "rwkv5",
            "hidden_size": 2560,
            "attention_hidden_size": 2560,
            "head_size": 64,
            "intermediate_size": None,
            "num_hidden_layers": 32,
            "vocab_size": 65536,
            "tie_word_embeddings": False,
        },
        3_062_999_040,
        0,
    ),
    "Qwen2-57B-A14B: shared expert with a gate": (
        {
            "model_type": "qwen2_moe",
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "moe_intermediate_size": 2560,
            "shared_expert_intermediate_size": 20480,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "vocab_size": 151936,
            "tie_word_embeddings": False,
        },
        57_408_658_944,
        57_344,
    ),
}


@pytest.mark.parametrize("layout", VARIANTS)
def test_field_variants(layout: str) -> None:
    config, params, kv_bytes = VARIANTS[layout]
    model = read(config)
    assert model.total_params == params
    assert model.kv_bytes_per_token == kv_bytes


def test_nested_difference_from_the_class() -> None:
    """LLaVA-1.5-7B writes its Vicuna as a difference from the Llama class."""
    inner = {"_name_or_path": "lmsys/vicuna-7b-v1.5", "model_type": "llama", "vocab_size": 32064}
    model = read({"model_type": "llava", "text_config": inner, "vision_config": {"hidden_size": 1024}})
    assert model.total_params == 6_738_415_616 + 2 * 64 * 4096
    assert any("class defaults of llama: hidden_size=4096" in sentence for sentence in model.assumed)


def test_a_file_of_its_own_is_never_completed() -> None:
    with pytest.raises(DataError, match=r"config.json: num_hidden_layers \(or n_layer, .*\): is missing"):
        read({"model_type": "llama", "vocab_size": 32064})


def test_gemma3_text_table_without_heads() -> None:
    inner = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    model = read({"model_type": "gemma3", "text_config": inner})
    assert model.total_params == 3_880_263_168
    assert model.kv_growth_bytes_per_token == 20_480


def test_quantisation_and_tie_at_the_root() -> None:
    block = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
    inner = without(LLAMA, "tie_word_embeddings")
    model = read(
        {"text_config": inner, "tie_word_embeddings": True, "quantization_config": block, "dtype": "float16"}
    )
    assert model.total_params == PLAIN - 64_000
    assert {group.name: group.compute_dtype for group in model.weights} == {
        "head": "fp16",
        "norms": "fp16",
        "attention": "fp8",
        "mlp": "fp8",
    }


def test_a_wrapper_that_contradicts_its_text_model() -> None:
    model = read({"text_config": LLAMA, "tie_word_embeddings": True})
    assert model.total_params == PLAIN
    assert any("the inner one counts" in sentence for sentence in model.assumed)
    assert not any("the inner one" in sentence for sentence in read({"text_config": LLAMA}).assumed)


def test_thinker_in_two_wrappers() -> None:
    assert read({"thinker_config": {"text_config": LLAMA}}).total_params == PLAIN


def test_an_architecture_names_the_family() -> None:
    model = read(LLAMA | {"model_type": "Yi", "architectures": ["LlamaForCausalLM"]})
    assert model.total_params == PLAIN
    model = read(LLAMA | {"model_type": "brandnew", "architectures": ["LlamaForCausalLM"]})
    assert any("counted as LlamaForCausalLM" in sentence for sentence in model.assumed)
    assert read(without(LLAMA, "model_type") | {"architectures": ["LlamaForCausalLM"]}).total_params == PLAIN


@pytest.mark.parametrize(
    ("window", "use", "expected"),
    [
        (None, None, None),
        (4096, None, 4096),
        (32_767, None, 32_767),
        (32_768, None, None),
        (4096, False, 4096),
    ],
)
def test_mistral_window(window: int | None, use: bool | None, expected: int | None) -> None:
    """A window as long as the context never bites; use_sliding_window is no field of Mistral."""
    config = entry("mistral-7b-v0.1", sliding_window=window, max_position_embeddings=32768)
    config |= {} if use is None else {"use_sliding_window": use}
    assert read(config).attention[0].window == expected


def test_qwen_window_is_off_unless_asked_for() -> None:
    config = entry("qwen2.5-7b", sliding_window=4096, max_window_layers=20)
    assert {group.window for group in read(config | {"use_sliding_window": False}).attention} == {None}
    groups = read(config | {"use_sliding_window": True}).attention
    assert {group.window: group.n_layers for group in groups} == {None: 20, 4096: 8}


@pytest.mark.parametrize("name", ["n_shared_experts", "num_shared_experts"])
def test_a_shared_count_of_null_or_zero_is_none(name: str) -> None:
    config = without(entry("deepseek-v3"), "n_shared_experts")
    for value in (None, 0):
        assert not [group for group in read(config | {name: value}).weights if group.name == "shared_experts"]


def test_top_k_above_the_experts_is_refused() -> None:
    with pytest.raises(
        DataError, match="num_experts_per_tok: must be at most the 8 experts of a layer, got 9"
    ):
        read(entry("mixtral-8x7b", num_experts_per_tok=9))


def test_a_field_of_another_layout_is_refused() -> None:
    with pytest.raises(DataError, match="num_local_experts: 8 is no part of the 'llama' layout"):
        read(LLAMA | {"num_local_experts": 8})
    with pytest.raises(DataError, match="kv_lora_rank: 512 is no part of the 'qwen3' layout"):
        read(entry("qwen3-8b", kv_lora_rank=512))


@pytest.mark.parametrize(
    ("field", "usual"),
    [
        ("hidden_size", "hidden_size"),
        ("num_hidden_layers", "num_hidden_layers"),
        ("num_attention_heads", "num_attention_heads"),
        ("vocab_size", "vocab_size"),
        ("intermediate_size", "intermediate_size"),
    ],
)
def test_a_missing_field_is_named(field: str, usual: str) -> None:
    with pytest.raises(DataError, match=f"config.json: {usual} .*is missing"):
        read(without(LLAMA, field))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads: must be a whole number from 1"),
        ({"hidden_size": -64}, "hidden_size: must be a whole number from 1"),
        ({"hidden_size": [64, 32]}, "hidden_size: must be a whole number .* got a list of 2 entries"),
        ({"hidden_size": {}}, "hidden_size: must be a whole number .* got a table of 0 entries"),
        ({"hidden_size": "64"}, "hidden_size: must be a whole number .* got '64'"),
        ({"hidden_size": True}, "hidden_size: must be a whole number .* got True"),
        ({"hidden_size": 64.5}, "hidden_size: must be a whole number .* got 64.5"),
        ({"hidden_size": float("nan")}, "hidden_size: must be a whole number .* got nan"),
        ({"hidden_size": float("inf")}, "hidden_size: must be a whole number .* got inf"),
        ({"hidden_size": 10**40}, "hidden_size: must be .* got an integer of over 30 digits"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers: must be a whole number from 1 to 10000"),
        (
            {"num_attention_heads": 7, "num_key_value_heads": 7},
            "head_dim: is missing, and 64 is no multiple of 7 heads",
        ),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings: must be true or false, got 'yes'"),
        (
            {"layer_types": ["full_attention", "astral_attention", "full_attention"]},
            "layer_types: 'astral_attention' is not a kind",
        ),
        ({"layer_types": ["full_attention"]}, "layer_types: has 1 entries for 3 layers"),
        ({"layer_types": "full"}, "layer_types: must be a list"),
        ({"model_type": "lama"}, "model_type: 'lama' is not a layout this version knows; nearest: llama"),
        ({"model_type": None}, "model_type: is missing"),
        ({"model_type": 7}, "model_type: 7 is not a layout"),
        ({"text_config": 5}, "text_config: must be a table"),
        ({"quantization_config": []}, "quantization_config: must be a table"),
        ({"quantization_config": {}}, "quant_method is missing"),
        ({"quantization_config": {"quant_method": "magic"}}, "quant_method 'magic' is not known"),
    ],
)
def test_wrong_values_are_refused_in_one_line(change: Config, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        read(LLAMA | change)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("   \n", "is empty"),
        ("{", "line 1: is no JSON"),
        ('{"a": 1,}', "is no JSON"),
        ("[1, 2]", "holds a JSON list, expected a table"),
        ("null", "holds a JSON NoneType"),
        ('{"a": 1, "a": 2}', "field 'a' stands twice in one table"),
        ('{"text_config": {"b": 1, "b": 1}}', "field 'b' stands twice"),
        ("[" * 200_000, "is nested too deeply"),
        ('{"a":' * 200_000, "is nested too deeply"),
        ('{"hidden_size": ' + "9" * 10_000 + "}", "Exceeds the limit"),
        (" " * (33 * 2**20), "is larger than 32 MiB"),
        ("{}", "model_type: is missing"),
        ('{"text_config": ' * 50 + "{}" + "}" * 50, "model_type: is missing"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
def test_hostile_text(text: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        read_config(text, "config.json")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("config.json: ")


def test_infinity_in_a_field_nobody_counts_with() -> None:
    """Nemotron-H files hold Infinity, which is no JSON, in time_step_limit."""
    text = json.dumps(LLAMA | {"time_step_limit": [0.0, float("inf")]})
    assert "Infinity" in text
    assert read_config(text, "config.json").total_params == PLAIN


def test_defaults_are_listed() -> None:
    model = read(without(LLAMA, "tie_word_embeddings"))
    listed = next(sentence for sentence in model.assumed if sentence.startswith("Absent fields"))
    assert "class defaults of llama" in listed
    assert "tie_word_embeddings=False" in listed
    assert "attention_bias=False" in listed


def test_the_dtype_of_a_file() -> None:
    assert read(LLAMA | {"torch_dtype": "float16"}).activation_dtype == "fp16"
    assert read(LLAMA | {"dtype": "bfloat16"}).activation_dtype == "bf16"
    wide = read(LLAMA | {"torch_dtype": "float32"})
    assert wide.weight_bytes == 2 * PLAIN
    assert any("float32" in sentence for sentence in wide.assumed)
