"""Reading config.json: switches, wrappers, defaults."""

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
