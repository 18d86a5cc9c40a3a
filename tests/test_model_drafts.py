"""Draft heads: what they own, what they borrow, and how they draft."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specmath.errors import DataError
from specmath.hf.reader import read_config
from specmath.model_catalogue import load_model

Config = dict[str, Any]


def read(config: Config, draft_kind: str | None = None) -> Any:
    return read_config(json.dumps(config), "config.json", draft_kind=draft_kind)


@pytest.mark.parametrize(
    ("name", "kind", "one_pass", "draft_vocab", "max_tokens", "features"),
    [
        ("eagle-vicuna-7b", "eagle", False, 32000, None, 1),
        ("eagle3-llama-3.1-8b", "eagle3", False, 32000, None, 3),
        ("eagle3-qwen2.5-7b", "eagle3", False, 16000, None, 3),
        ("peagle-qwen3-8b", "p-eagle", True, 32000, None, 3),
        ("medusa-vicuna-7b", "medusa", True, 32000, 5, 1),
        ("dflash-qwen3-4b", "dflash", True, 151936, 16, 5),
        ("dspark-glm-5.2", "dspark", True, 154880, 7, 5),
        ("domino-qwen3-8b", "domino", True, 151936, 16, 5),
    ],
)
def test_how_a_head_drafts(
    name: str, kind: str, one_pass: bool, draft_vocab: int, max_tokens: int | None, features: int
) -> None:
    draft = load_model(name).draft
    assert draft is not None
    assert (draft.kind, draft.one_pass, draft.draft_vocab) == (kind, one_pass, draft_vocab)
    assert (draft.max_tokens, draft.target_features) == (max_tokens, features)


def test_eagle3_by_hand() -> None:
    """Fusion of three features, q/k/v over embedding and feature, MLP, four norms, a head of 32,000 rows."""
    hidden, inner = 4096, 14336
    attention = 2 * hidden * (hidden + 2 * 1024) + hidden * hidden
    expected = 3 * hidden**2 + attention + 3 * hidden * inner + 4 * hidden + 32000 * hidden
    assert load_model("eagle3-llama-3.1-8b").total_params == expected


def test_a_borrowed_head_is_read_but_takes_no_memory() -> None:
    model = load_model("eagle-llama-3-8b")
    assert model.read_params - model.total_params == 128256 * 4096
    head = next(group for group in model.weights if group.name == "head")
    assert (head.stored_params, head.read_params) == (0, 128256 * 4096)


def test_speculators_file_written_as_a_difference() -> None:
    """The layer of a speculators file leaves out what equals the Llama class."""
    layer = {
        "model_type": "llama",
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
    model = read(
        {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "speculators_config": {"proposal_methods": [{"speculative_tokens": 3}], "verifier": {}},
            "transformer_layer_config": layer,
            "draft_vocab_size": 32000,
            "target_hidden_size": None,
        }
    )
    assert model.total_params == load_model("eagle3-llama-3.1-8b").total_params
    assert model.draft.kind == "eagle3"
    assert "class defaults of llama: hidden_size=4096" in model.assumed[0]


def test_norm_before_fc_adds_norms() -> None:
    base = load_model("eagle3-qwen3-30b-a3b").total_params
    assert load_model("eagle3.1-qwen3-30b-a3b").total_params - base == 3 * 2048


def test_a_target_of_another_width() -> None:
    """The fusion reads features of the target's width, three of them."""
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "vocab_size": 1000,
        "draft_vocab_size": 100,
    }
    same, wide = read(config), read(config | {"target_hidden_size": 256})
    assert wide.total_params - same.total_params == 3 * (256 - 64) * 64


def test_the_first_eagle_heads_look_like_one_layer_llamas() -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 1,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
        "bias": True,
    }
    as_model = read(config)
    assert as_model.draft is None
    assert any("EAGLE head" in sentence for sentence in as_model.assumed)
    head = read(config, "eagle")
    assert head.total_params == load_model("eagle-vicuna-7b").total_params - 4096
    assert head.draft.kind == "eagle"


def test_gemma4_assistant() -> None:
    """A small Gemma on its target's cache; 77,731,328 parameters in transformers 5.24 on the meta device."""
    inner = {
        "model_type": "gemma4_text",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "global_head_dim": 512,
        "intermediate_size": 2048,
        "vocab_size": 262144,
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 4,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
        "sliding_window": 512,
    }
    config = {"model_type": "gemma4_assistant", "backbone_hidden_size": 1536, "text_config": inner}
    model = read(config | {"use_ordered_embeddings": True})
    assert model.total_params == 77_731_328
    assert model.kv_bytes_per_token == 0
    assert sum(group.flops_per_pair for group in model.attention) == 4 * 4 * (3 * 256 + 512)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"speculators_model_type": "mlp"}, "draft head of kind 'mlp' is not known; one of dflash"),
        ({"architectures": ["MedusaModel"], "medusa_num_heads": 5}, "hidden_size: is missing"),
        ({"architectures": ["DFlashDraftModel"], "model_type": "qwen3"}, "is missing"),
        ({"speculators_model_type": "eagle3", "transformer_layer_config": [1]}, "must be a table"),
    ],
)
def test_heads_that_are_refused(config: Config, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read(config)


def test_a_quantised_head() -> None:
    block = {"quant_method": "fp8", "activation_scheme": "dynamic"}
    config = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "vocab_size": 1000,
        "quantization_config": block,
    }
    widths = {group.name: group.bytes_per_param for group in read(config).weights}
    assert widths == {"fusion": 1.0, "head": 2.0, "norms": 2.0, "attention": 1.0, "mlp": 1.0}
