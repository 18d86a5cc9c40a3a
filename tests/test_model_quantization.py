"""Quantisation blocks: which module is stored how, scales counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specmath.errors import DataError
from specmath.hf.module_names import ModuleNames
from specmath.hf.reader import read_config
from specmath.model import ModelShape
from specmath.model_catalogue import catalogue_entry, load_model

Config = dict[str, Any]
GROUP_16 = {"num_bits": 4, "type": "float", "group_size": 16}
TENSOR_8 = {"num_bits": 8, "type": "float"}
FP8_BLOCK = 1 + 4 / 128**2


def quantized(name: str, block: Config, **changes: Any) -> ModelShape:
    config = catalogue_entry(name) | {"quantization_config": block} | changes
    return read_config(json.dumps(config), "config.json")


def widths(model: ModelShape) -> dict[str, float]:
    return {group.name: group.bytes_per_param for group in model.weights}


def computes(model: ModelShape) -> dict[str, str]:
    return {group.name: group.compute_dtype for group in model.weights}


@pytest.mark.parametrize(
    ("block", "width", "compute"),
    [
        pytest.param(
            {"quant_method": "awq", "bits": 4, "group_size": 128}, 0.5 + 2.5 / 128, "bf16", id="AWQ"
        ),
        pytest.param(
            {"w_bit": 4, "q_group_size": 64, "zero_point": True}, 0.5 + 2.5 / 64, "bf16", id="AWQ, old names"
        ),
        pytest.param(
            {"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": True},
            1 + 3 / 128,
            "bf16",
            id="GPTQ 8 bit",
        ),
        pytest.param(
            {"bits": 4, "group_size": 32, "desc_act": False},
            0.5 + 2.5 / 32,
            "bf16",
            id="GPTQ without quant_method",
        ),
        pytest.param({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5 + 4 / 64, "bf16", id="nf4"),
        pytest.param(
            {"load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            0.5 + (1 + 4 / 256) / 64,
            "bf16",
            id="nf4, scales quantised",
        ),
        pytest.param(
            {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
            FP8_BLOCK,
            "fp8",
            id="DeepSeek fp8",
        ),
        pytest.param(
            {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None},
            1.0,
            "fp8",
            id="fp8 a tensor",
        ),
        pytest.param(
            {"quant_algo": "FP8", "producer": {"name": "modelopt"}},
            1.0,
            "fp8",
            id="ModelOpt without quant_method",
        ),
        pytest.param({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625, "fp4", id="NVFP4"),
        pytest.param(
            {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"},
            0.5625,
            "bf16",
            id="NVFP4, weights only",
        ),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "g": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
                    }
                },
            },
            0.5 + 2 / 128,
            "bf16",
            id="compressed-tensors int4",
        ),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "g": {"targets": ["Linear"], "weights": GROUP_16, "input_activations": GROUP_16}
                },
                "format": "nvfp4-pack-quantized",
            },
            0.5625,
            "fp4",
            id="compressed-tensors nvfp4",
        ),
        pytest.param(
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "g": {
                        "targets": ["Linear"],
                        "weights": {
                            "num_bits": 8,
                            "type": "float",
                            "strategy": "block",
                            "block_structure": [128, 128],
                        },
                        "input_activations": TENSOR_8,
                    }
                },
            },
            1 + 2 / 128**2,
            "fp8",
            id="compressed-tensors fp8 blocks",
        ),
    ],
)
def test_methods(block: Config, width: float, compute: str) -> None:
    model = quantized("llama-3.1-8b", block)
    assert widths(model)["attention"] == pytest.approx(width, rel=1e-12)
    assert widths(model)["mlp"] == pytest.approx(width, rel=1e-12)
    assert computes(model)["mlp"] == compute
    assert widths(model) | {"attention": 0, "mlp": 0} == {
        "head": 2,
        "embedding": 2,
        "norms": 2,
        "attention": 0,
        "mlp": 0,
    }


def test_a_scale_a_row() -> None:
    """int8 with a 16-bit scale a row: 2 bytes per 4096 weights, per 14336 in the down projection."""
    weights = {"num_bits": 8, "type": "int", "strategy": "channel"}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": {"num_bits": 8, "type": "int"}}
    model = quantized("llama-3.1-8b", {"quant_method": "compressed-tensors", "config_groups": {"g": group}})
    rows = 32 * (2 * 14336 + 4096)
    mlp = next(group for group in model.weights if group.name == "mlp")
    assert mlp.stored_params * mlp.bytes_per_param == pytest.approx(mlp.stored_params + 2 * rows, rel=1e-12)
    assert mlp.compute_dtype == "int8"


@pytest.mark.parametrize(
    ("patterns", "path", "layer", "covered"),
    [
        (["lm_head"], "lm_head", None, True),
        (["lm_head"], "self_attn.q_proj", 0, False),
        (["model.layers.1"], "mlp.up_proj", 1, True),
        (["model.layers.1"], "mlp.up_proj", 10, False),
        (["language_model.model.layers.0*"], "self_attn.o_proj", 0, True),
        (["language_model.model.layers.0*"], "self_attn.o_proj", 10, False),
        (["model.language_model.layers.*.self_attn*"], "self_attn.o_proj", 7, True),
        (["model.language_model.layers.*.self_attn*"], "mlp.up_proj", 7, False),
        (["re:.*self_attn.*"], "self_attn.q_b_proj", 3, True),
        ([r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"], "mlp.experts.gate_proj", 3, False),
        ([r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"], "mlp.gate_proj", 3, True),
        (["gate"], "mlp.gate", 3, True),
        (["gate"], "mlp.gate_proj", 3, False),
        (["model.layers.5.self_attn.qkv_proj"], "self_attn.k_proj", 5, True),
        (["model.layers.5.mlp.gate_up_proj"], "mlp.up_proj", 5, True),
        (["model.layers.*.block_sparse_moe.gate"], "mlp.gate", 5, True),
        (["model.layers.*.mlp.shared_expert.*"], "mlp.shared_experts.up_proj", 5, True),
        (["mtp*"], "mtp.layers.0.mlp.up_proj", 40, True),
        (["mtp.layers.0*"], "mlp.up_proj", 0, False),
        (["model.layers.3.mlp.experts.17.gate_proj"], "mlp.experts.gate_proj", 3, True),
        (["model.layers.*.mlp.experts.*.w2"], "mlp.experts.down_proj", 3, True),
        ([None, 3, ""], "lm_head", None, False),
    ],
)
def test_module_names(patterns: list[object], path: str, layer: int | None, covered: bool) -> None:
    assert ModuleNames(patterns).covers(path, layer) is covered


def test_mlx_counts_the_known_size_of_a_four_bit_checkpoint() -> None:
    """Matrices and the table: 4 bits, a 16-bit scale and bias per 64. The published file has 4.52 GB."""
    config = catalogue_entry("llama-3.1-8b") | {"quantization": {"group_size": 64, "bits": 4}}
    model = read_config(json.dumps(config), "config.json")
    norms = 65 * 4096 * 2
    assert model.weight_bytes == (model.total_params - 65 * 4096) * (4 + 32 / 64) / 8 + norms
    assert model.weight_bytes == pytest.approx(4.52e9, rel=1e-3)


def test_mlx_rules_by_module_and_other_modes() -> None:
    block: Config = {"bits": 4, "group_size": 64, "model.embed_tokens": False, "lm_head": {"bits": 8}}
    model = read_config(json.dumps(catalogue_entry("llama-3.1-8b") | {"quantization": block}), "config.json")
    table = 128_256 * 4096
    layers = model.total_params - 2 * table - 65 * 4096
    assert model.weight_bytes == layers * 0.5625 + table * 2 + table * (8 + 32 / 64) / 8 + 65 * 4096 * 2
    mx = catalogue_entry("llama-3.1-8b") | {"quantization": {"mode": "mxfp4", "bits": 4, "group_size": 32}}
    assert read_config(json.dumps(mx), "config.json").weight_bytes < model.weight_bytes
    mx["quantization"]["mode"] = "no-such-mode"
    with pytest.raises(DataError, match="no-such-mode"):
        read_config(json.dumps(mx), "config.json")


def test_seven_hundred_names() -> None:
    """GLM-5-FP8 excludes modules one by one, in any order; half the layers' attention here."""
    names = [f"model.layers.{layer}.self_attn.{part}_proj" for layer in range(16) for part in "qkvo"]
    names += [f"model.layers.{layer}.input_layernorm" for layer in range(600)]
    block = {"quant_method": "fp8", "activation_scheme": "dynamic", "modules_to_not_convert": names[::-1]}
    groups = [group for group in quantized("llama-3.1-8b", block).weights if group.name == "attention"]
    assert sorted((group.stored_params, group.bytes_per_param) for group in groups) == [
        (16 * 41_943_040, 1.0),
        (16 * 41_943_040, 2.0),
    ]


def test_widths_by_module() -> None:
    """GPTQModel's `dynamic`: a rule may change the width, or with a minus leave a module alone."""
    dynamic = {r"-:.*\.self_attn\..*": {}, r"+:.*\.down_proj.*": {"bits": 8}}
    block = {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": dynamic}
    model = quantized("llama-3.1-8b", block)
    assert widths(model)["attention"] == 2.0
    assert sorted(group.bytes_per_param for group in model.weights if group.name == "mlp") == [
        0.5 + 2.5 / 128,
        1 + 3 / 128,
    ]


def test_gpt_oss_experts_alone() -> None:
    """Released gpt-oss files quantise experts; the biases of the experts keep 16 bits."""
    names = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    model = quantized("gpt-oss-20b", {"quant_method": "mxfp4", "modules_to_not_convert": names})
    assert set(widths(model).values()) == {2.0}
    (experts,) = model.experts
    matrices, biases = 3 * 2880 * 2880, 3 * 2880
    assert experts.params_per_expert == matrices + biases
    expected = (matrices * 0.53125 + biases * 2) / (matrices + biases)
    assert experts.bytes_per_param == pytest.approx(expected, rel=1e-12)
    assert experts.compute_dtype == "bf16"


def test_kimi_k2_5_is_590_gb_not_2_tb() -> None:
    """int4 experts in groups of 32, everything else excluded by regular expressions: about 0.59 TB."""
    model = load_model("kimi-k2.5")
    assert model.experts[0].bytes_per_param == 0.5625
    assert set(widths(model).values()) == {2.0}
    assert model.weight_bytes == pytest.approx(0.594e12, rel=1e-3)


def test_deepseek_v4_keeps_experts_in_four_bits() -> None:
    """expert_dtype fp4 stands beside an fp8 block; fp8 for all would nearly double the bytes."""
    model = load_model("deepseek-v4-flash")
    assert model.experts[0].bytes_per_param == 0.53125
    assert widths(model)["attention"] == pytest.approx(FP8_BLOCK)
    assert model.mtp is not None
    assert model.mtp.experts[0].bytes_per_param == 0.53125


def test_two_schemes_in_one_block() -> None:
    """nvidia's DeepSeek-V4-Flash-NVFP4 mixes keys: fp8 outside, NVFP4 experts."""
    block = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
    mixed = block | {"moe_quant_algo": "NVFP4", "config_groups": {"group_0": {"weights": GROUP_16}}}
    model = quantized("deepseek-v4-flash", mixed)
    assert model.experts[0].bytes_per_param == 0.5625
    assert widths(model)["attention"] == pytest.approx(FP8_BLOCK)


def test_mixed_precision_by_module() -> None:
    """nvidia's Qwen3.6-27B: NVFP4 MLP and head, fp8 attention and delta net, the MTP module left alone."""
    model = load_model("qwen3.6-27b-nvfp4")
    assert widths(model) == {
        "head": 0.5625,
        "embedding": 2.0,
        "norms": 2.0,
        "recurrent": 1.0,
        "mlp": 0.5625,
        "attention": 1.0,
    }
    assert computes(model)["mlp"] == "bf16"
    assert computes(model)["attention"] == "fp8"
    assert model.mtp is not None
    assert {group.bytes_per_param for group in model.mtp.weights if group.stored_params} == {2.0}


def test_a_table_of_every_expert_projection() -> None:
    """ModelOpt names each projection of each expert of each layer: 24,576 names here, two formats."""
    layers = {
        f"model.layers.{layer}.mlp.experts.{expert}.{part}_proj": {"quant_algo": "NVFP4", "group_size": 16}
        for layer in range(48)
        for expert in range(128)
        for part in ("gate", "up", "down")
    }
    layers |= {f"model.layers.{layer}.self_attn.q_proj": {"quant_algo": "FP8"} for layer in range(24)}
    block = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    model = quantized("qwen3-30b-a3b", block)
    assert [(group.n_layers, group.bytes_per_param) for group in model.experts] == [(48, 0.5625)]
    fp8 = [group for group in model.weights if group.bytes_per_param == 1.0]
    assert [(group.name, group.stored_params) for group in fp8] == [("attention", 24 * 2048 * 4096)]


def test_the_mtp_experts_of_an_excluded_module_keep_16_bits() -> None:
    mtp = load_model("qwen3.6-35b-a3b-nvfp4").mtp
    assert mtp is not None
    assert mtp.experts[0].bytes_per_param == 2.0


@pytest.mark.parametrize(
    ("block", "kv_bytes"),
    [
        ({"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}, 65536),
        ({"quant_algo": "FP8", "kv_cache_quant_algo": None}, 131072),
        ({"quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, 65536),
        ({"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}, 36864),
    ],
)
def test_cache_named_by_the_block(block: Config, kv_bytes: float) -> None:
    model = quantized("llama-3.1-8b", block)
    assert model.kv_bytes_per_token == kv_bytes
    assert any("KV cache" in sentence for sentence in model.assumed) == (kv_bytes != 131072)


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ({"quant_method": "awq"}, "quantization_config.bits: is missing"),
        (
            {"quant_method": "awq", "bits": "four"},
            "bits: must be a whole number .*, got 'four'",
        ),
        (
            {"quant_method": "awq", "bits": float("nan")},
            "quantization_config.bits: must be a whole number .*, got nan",
        ),
        ({"quant_method": "fp8", "weight_block_size": ["a"]}, "weight_block_size: must be a whole number"),
        ({"quant_method": "modelopt", "quant_algo": "FP3"}, "quant_algo: 'FP3' is not known"),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["re:("]}, "is no regular expression"),
        (
            {"quant_method": "awq", "bits": 4, "ignore": ["re:(.+)+x"]},
            "more than the name of a module needs",
        ),
        ({"quant_method": "awq", "bits": 4, "ignore": [f"a*{n}" for n in range(6000)]}, "more than 5000"),
        ({"quant_method": "aqlm"}, "quant_method 'aqlm' is not known; one of auto-round, awq"),
    ],
)
def test_blocks_that_are_refused(block: Config, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        quantized("llama-3.1-8b", block)
