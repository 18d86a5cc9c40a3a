"""What the reader refuses, in one line that names the field: wrong values, unknown layouts, hostile text."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from specmath.errors import AccessError, DataError
from specmath.hf.reader import read_config
from specmath.model import ModelShape
from specmath.model_catalogue import catalogue_entry, load_model

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


def test_top_k_above_the_experts_is_refused() -> None:
    with pytest.raises(
        DataError, match="num_experts_per_tok: must be at most the 8 experts of a layer, got 9"
    ):
        read(entry("mixtral-8x7b", num_experts_per_tok=9))


def test_a_pattern_of_another_length_is_refused() -> None:
    with pytest.raises(DataError, match="hybrid_override_pattern: has 56 entries for 57 layers"):
        read(entry("nemotron-nano-9b-v2", num_hidden_layers=57))


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
        ('{"hidden_size": ' + "9" * 10_000 + "}", "line 1: .* is too long for a number"),
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


NO_FILE = "is a folder, pipe or device; name a regular file, or - for stdin"


def refusal(name: str) -> str:
    with pytest.raises(AccessError) as caught:
        load_model(name)
    return str(caught.value)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no /dev here")
def test_pipes_devices_and_folders_are_not_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, json.dumps(LLAMA).encode())  # a good file, so that a reader who takes it does not wait
    os.close(writing)
    (tmp_path / "config.json").symlink_to("/dev/zero")
    (tmp_path / "my.json").mkdir()
    (tmp_path / "my.json" / "config.json").mkdir()
    assert refusal(f"/dev/fd/{reading}") == f"/dev/fd/{reading}: {NO_FILE}"
    assert refusal("/dev/zero") == f"/dev/zero: {NO_FILE}"
    assert refusal(str(tmp_path)) == f"{tmp_path}/config.json: {NO_FILE}"
    assert refusal(f"{tmp_path}/my.json") == f"{tmp_path}/my.json/config.json: {NO_FILE}"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("~nobody-of-this-name/x", "~nobody-of-this-name/x: no such file"),
        ("./\udcff", r"'\udcff': no such file"),
        ("./two\nlines", r"'two\nlines': no such file"),
    ],
)
def test_a_path_that_is_no_file_is_named(name: str, problem: str) -> None:
    assert refusal(name) == problem


def test_the_home_folder_may_be_written_as_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_model("~/config.json").name == tmp_path.name


def quantised(block: dict[str, object]) -> str:
    return json.dumps({**LLAMA, "quantization_config": block})


@pytest.mark.parametrize(
    "pattern",
    [
        "re:" + ".*" * 14 + "X$",
        "re:(.|.)*X$",
        "re:(m|mo|o|[a-z])*X$",
        "re:(?=.*).*X",
        "re:" + ".?" * 31 + "X",
    ],
)
def test_a_pattern_that_might_never_come_back_is_refused(pattern: str) -> None:
    weights = {"num_bits": 4, "type": "int", "group_size": 128, "strategy": "group"}
    block: dict[str, object] = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "ignore": [pattern],
        "config_groups": {"g": {"targets": ["Linear"], "weights": weights}},
    }
    with pytest.raises(DataError, match="more than the name of a module needs"):
        read_config(quantised(block), "config.json")


@pytest.mark.parametrize(
    ("bits", "group", "problem"),
    [
        (-4, 128, "bits: must be a whole number"),
        (0, 128, "bits: must be 1 to 32"),
        (1000, 128, "bits: must be 1 to 32"),
        (4.5, 128, "bits: must be a whole number"),
        (4, 0, "group_size: must be -1 or at least 8"),
        (4, -7, "group_size: must be a whole number"),
    ],
)
def test_a_width_that_is_none_is_refused(bits: float, group: int, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read_config(quantised({"quant_method": "gptq", "bits": bits, "group_size": group}), "config.json")


def test_a_sibling_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    (tmp_path / "hf_quant_config.json").symlink_to(tmp_path / "nowhere")
    with pytest.raises(AccessError, match="hf_quant_config"):
        load_model(str(tmp_path))


@pytest.mark.parametrize("kv_heads", [3, 16])
def test_kv_heads_divide_the_heads(kv_heads: int) -> None:
    with pytest.raises(DataError, match=f"must divide the 8 attention heads, got {kv_heads}"):
        read({**LLAMA, "num_key_value_heads": kv_heads})
