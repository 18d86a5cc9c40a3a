"""Field names of published layouts that the catalogue does not hold, with their known totals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specmath.hf.reader import read_config

Config = dict[str, Any]

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
    "a small Zamba2: two shared blocks on three layers, adapters, Mamba-2 (meta device)": (
        {
            "model_type": "zamba2",
            "hidden_size": 128,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "intermediate_size": 96,
            "vocab_size": 1000,
            "adapter_rank": 8,
            "num_mem_blocks": 2,
            "use_shared_attention_adapter": True,
            "mamba_d_state": 64,
            "layers_block_type": ["mamba", "hybrid"] * 3,
            "num_hidden_layers": 6,
        },
        1_463_312,
        3 * 2 * 4 * 64 * 2,
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
    model = read_config(json.dumps(config), "config.json")
    assert model.total_params == params
    assert model.kv_bytes_per_token == kv_bytes
