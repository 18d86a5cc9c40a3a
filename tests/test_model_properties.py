"""Generated configurations: groups add up, nothing is negative, every format works."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from specmath.errors import SpecmathError
from specmath.hf.reader import read_config
from specmath.model import ModelShape
from specmath.number_formats import CACHE_BYTES, PLAIN, QUANTIZED

Config = dict[str, Any]
BLOCKS: list[Config | None] = [
    None,
    {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 32,
        "modules_to_not_convert": ["model.layers.0", "gate"],
    },
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head", "*self_attn*"]},
]


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """A decoder of one of four families, dense or sparse, with or without windows and MLA."""
    family = draw(st.sampled_from(["llama", "qwen3_moe", "deepseek_v3", "qwen3_next", "gemma3_text"]))
    kv_heads = draw(st.integers(1, 4))
    n_layers = draw(st.integers(1, 9))
    config: Config = {
        "model_type": family,
        "hidden_size": 16 * draw(st.integers(1, 8)),
        "intermediate_size": draw(st.integers(1, 300)),
        "num_hidden_layers": n_layers,
        "num_attention_heads": kv_heads * draw(st.integers(1, 4)),
        "num_key_value_heads": kv_heads,
        "head_dim": 2 * draw(st.integers(1, 16)),
        "vocab_size": draw(st.integers(1, 5000)),
        "tie_word_embeddings": draw(st.booleans()),
        "sliding_window": draw(st.integers(1, 64)),
        "max_position_embeddings": 128,
        "num_nextn_predict_layers": draw(st.integers(0, 1)) if family == "deepseek_v3" else 0,
    }
    block = draw(st.sampled_from(BLOCKS))
    if block is not None:
        config["quantization_config"] = block
    if family in ("qwen3_moe", "deepseek_v3", "qwen3_next"):
        experts = draw(st.integers(1, 12))
        config |= {
            "n_routed_experts": experts,
            "num_experts_per_tok": draw(st.integers(1, experts)),
            "moe_intermediate_size": draw(st.integers(1, 64)),
            "first_k_dense_replace": draw(st.integers(0, n_layers)),
        }
    if family == "deepseek_v3":
        config |= {"kv_lora_rank": 8, "q_lora_rank": draw(st.sampled_from([None, 12]))}
        config |= {
            "qk_nope_head_dim": 6,
            "qk_rope_head_dim": 4,
            "v_head_dim": 5,
            "n_shared_experts": draw(st.integers(0, 2)),
        }
    if family in ("qwen3_moe", "deepseek_v3"):
        config = {
            key: value
            for key, value in config.items()
            if family == "deepseek_v3" or key != "first_k_dense_replace"
        }
    if family == "qwen3_next":
        config |= {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4}
        config |= {"linear_value_head_dim": 6, "linear_conv_kernel_dim": 4}
    return config


def parts(model: ModelShape) -> list[float]:
    values: list[float] = []
    for group in model.weights:
        values += [group.stored_params, group.read_params, group.multiplied_params, group.bytes_per_param]
    for experts in model.experts:
        values += [experts.stored_params, experts.active_params, experts.bytes_per_param]
    for attention in model.attention:
        values += [attention.kv_bytes_per_token, attention.flops_per_pair, attention.kv_heads]
    return values + [state.state_bytes for state in model.states]


@settings(max_examples=150, deadline=None)
@given(configs())
def test_groups_add_up(config: Config) -> None:
    model = read_config(json.dumps(config), "config.json")
    dense = sum(group.stored_params for group in model.weights)
    assert model.total_params == dense + sum(group.stored_params for group in model.experts)
    assert 0 < model.read_params <= model.active_params <= model.total_params
    assert min(parts(model)) >= 0
    layers = sum(group.n_layers for group in model.attention) + sum(group.n_layers for group in model.states)
    assert layers == config["num_hidden_layers"]
    assert model.weight_bytes <= 2 * model.total_params * (1 + 1e-12)
    assert model.kv_growth_bytes_per_token <= model.kv_bytes_per_token


@settings(max_examples=60, deadline=None)
@given(configs(), st.sampled_from([*PLAIN, *QUANTIZED]), st.sampled_from([*CACHE_BYTES]))
def test_every_format_path(config: Config, weights: str, cache: str) -> None:
    model = read_config(json.dumps(config), "config.json")
    changed = model.with_quantization(weights).with_kv_cache_dtype(cache)
    assert changed.total_params == model.total_params
    assert changed.read_params == model.read_params
    assert min(parts(changed)) >= 0
    plain = model.with_dtype("bf16")
    assert plain.weight_bytes == 2 * model.total_params
    assert (changed.weight_bytes <= plain.weight_bytes) == (weights != "fp32")


@settings(max_examples=60, deadline=None)
@given(configs(), st.integers(0, 300))
def test_the_cache_grows_with_the_context(config: Config, context: int) -> None:
    model = read_config(json.dumps(config), "config.json")
    assert model.kv_bytes(context) <= model.kv_bytes(context + 1)
    assert model.kv_bytes(context) <= context * model.kv_bytes_per_token


@settings(max_examples=200, deadline=None)
@given(configs(), st.data())
def test_a_broken_field_is_refused_or_harmless(config: Config, data: st.DataObject) -> None:
    """Whatever one field is replaced with, the outcome is a shape or one of the package's own errors."""
    field = data.draw(st.sampled_from(sorted(config)))
    junk = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(),
        st.text(max_size=5),
        st.lists(st.integers(-3, 3), max_size=3),
        st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    )
    model = shape_or_none(json.dumps(config | {field: data.draw(junk)}))
    assert model is None or min(parts(model)) >= 0


def shape_or_none(text: str) -> ModelShape | None:
    """The shape, or None for one of the package's own errors; anything else is a failure."""
    try:
        return read_config(text, "config.json")
    except SpecmathError:
        return None


def test_the_generator_covers_mixtures() -> None:
    """A meta-test: the strategy must be able to make sparse and recurrent models."""
    seen: set[str] = set()

    @settings(max_examples=60, deadline=None, database=None)
    @given(configs())
    def collect(config: Config) -> None:
        seen.add(config["model_type"])

    collect()
    assert len(seen) >= 4
    with pytest.raises(SpecmathError):
        read_config("{}", "config.json")
