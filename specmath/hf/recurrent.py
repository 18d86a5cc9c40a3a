"""Recurrent token mixers of one layer: their weights and the state that one sequence carries.

The state is constant in the context. Convolutions keep the last kernel - 1 columns of their input.
FLOPs per state element count decay, read-out and update: about 7 with a delta correction, 5 without.
"""

from __future__ import annotations

from specmath.hf.fields import Fields
from specmath.hf.weights import Part, State, Weight, matrix, norm, vector


def delta_net(fields: Fields) -> Part:
    """Gated delta net (Qwen3-Next, Qwen3.5): value heads grouped on key heads, a gate, two scalars."""
    hidden, kernel = fields.count("hidden"), fields.count("conv_kernel")
    keys = fields.count("linear_key_heads") * fields.count("linear_key_dim")
    value_heads, value_dim = fields.count("linear_value_heads"), fields.count("linear_value_dim")
    values, convolved = value_heads * value_dim, 2 * keys + value_heads * value_dim
    weights = matrix("linear_attn.in_proj_qkv", "recurrent", convolved, hidden)
    weights += matrix("linear_attn.in_proj_z", "recurrent", values, hidden)
    weights += matrix("linear_attn.in_proj_b", "norms", value_heads, hidden)
    weights += matrix("linear_attn.in_proj_a", "norms", value_heads, hidden)
    weights += [vector("linear_attn.conv1d", convolved * kernel), vector("linear_attn.A_log", value_heads)]
    weights += [vector("linear_attn.dt_bias", value_heads), vector("linear_attn.norm", value_dim)]
    weights += matrix("linear_attn.out_proj", "recurrent", hidden, values)
    state = State(
        name="delta_net",
        elements=value_heads * fields.count("linear_key_dim") * value_dim,
        conv_elements=convolved * (kernel - 1),
        flops_per_element=7,
    )
    return Part(weights=tuple(weights), states=(state,))


def kda(fields: Fields) -> Part:
    """Kimi delta attention: a decay for every key channel, gates, three short convolutions."""
    hidden, heads, width = fields.count("hidden"), fields.count("linear_heads"), fields.count("linear_dim")
    kernel, inner = fields.count("conv_kernel"), fields.count("linear_heads") * fields.count("linear_dim")
    weights: list[Weight] = []
    for name in ("q", "k", "v"):
        weights += matrix(f"self_attn.{name}_proj", "recurrent", inner, hidden)
        weights.append(vector(f"self_attn.{name}_conv1d", inner * kernel))
    weights += matrix("self_attn.f_a_proj", "recurrent", width, hidden)
    weights += matrix("self_attn.f_b_proj", "recurrent", inner, width)
    weights += matrix("self_attn.b_proj", "recurrent", heads, hidden)
    if fields.flag("full_rank_gate"):
        weights += matrix("self_attn.g_proj", "recurrent", inner, hidden)
    else:
        weights += matrix("self_attn.g_a_proj", "recurrent", width, hidden)
        weights += matrix("self_attn.g_b_proj", "recurrent", inner, width)
    weights += [vector("self_attn.A_log", heads), vector("self_attn.dt_bias", inner)]
    weights.append(vector("self_attn.o_norm", width))
    weights += matrix("self_attn.o_proj", "recurrent", hidden, inner)
    state = State(
        name="kda",
        elements=heads * width * width,
        conv_elements=3 * inner * (kernel - 1),
        flops_per_element=7,
    )
    return Part(weights=tuple(weights), states=(state,))


def mamba2(fields: Fields) -> Part:
    """Mamba-2: heads with one decay each, groups that share the input and output maps of the state."""
    hidden, heads, inner = fields.count("hidden"), fields.count("ssm_heads"), fields.count("ssm_inner")
    maps = 2 * fields.count("ssm_groups") * fields.count("ssm_state")
    kernel, convolved, bias = fields.count("conv_kernel"), inner + maps, fields.flag("ssm_bias")
    weights = matrix("mixer.in_proj", "recurrent", 2 * inner + maps + heads, hidden, bias)
    weights.append(vector("mixer.conv1d", convolved * (kernel + fields.flag("conv_bias"))))
    weights += [vector(f"mixer.{name}", heads) for name in ("dt_bias", "A_log", "D")]
    if fields.flag("ssm_norm"):
        weights.append(vector("mixer.norm", inner))
    weights += matrix("mixer.out_proj", "recurrent", hidden, inner, fields.flag("ssm_out_bias"))
    state = State(
        name="mamba2",
        elements=inner * fields.count("ssm_state"),
        conv_elements=convolved * (kernel - 1),
        flops_per_element=5,
    )
    return Part(weights=tuple(weights), states=(state,))


def mamba(fields: Fields) -> Part:
    """Mamba-1: one state vector per inner channel, its maps computed from the input at low rank."""
    hidden, inner, state_size = fields.count("hidden"), fields.count("ssm_inner"), fields.count("ssm_state")
    rank, kernel, bias = fields.count("ssm_rank"), fields.count("conv_kernel"), fields.flag("ssm_bias")
    weights = matrix("mixer.in_proj", "recurrent", 2 * inner, hidden, bias)
    weights.append(vector("mixer.conv1d", inner * (kernel + fields.flag("conv_bias"))))
    weights += matrix("mixer.x_proj", "recurrent", rank + 2 * state_size, inner)
    weights += matrix("mixer.dt_proj", "recurrent", inner, rank, bias=True)
    weights += [vector("mixer.A_log", inner * state_size), vector("mixer.D", inner)]
    if fields.flag("ssm_norm"):
        weights.append(vector("mixer.dt_b_c_norms", rank + 2 * state_size))
    weights += matrix("mixer.out_proj", "recurrent", hidden, inner, bias)
    state = State(
        name="mamba", elements=inner * state_size, conv_elements=inner * (kernel - 1), flops_per_element=5
    )
    return Part(weights=tuple(weights), states=(state,))


def short_conv(fields: Fields) -> Part:
    """Gated short convolution (LFM2): it keeps kernel - 1 columns and nothing else."""
    hidden, kernel, bias = fields.count("hidden"), fields.count("conv_kernel"), fields.flag("conv_bias")
    weights = matrix("conv.in_proj", "recurrent", 3 * hidden, hidden, bias)
    weights.append(vector("conv.conv", hidden * (kernel + bias)))
    weights += matrix("conv.out_proj", "recurrent", hidden, hidden, bias)
    state = State(name="short_conv", elements=0, conv_elements=hidden * (kernel - 1))
    return Part(weights=tuple(weights), states=(state,))


def lightning(fields: Fields) -> Part:
    """Lightning attention (MiniMax-01): linear attention with a fixed decay a head and an output gate."""
    hidden, heads, width = fields.count("hidden"), fields.count("n_heads"), fields.count("head_dim")
    inner = heads * width
    weights = matrix("self_attn.qkv_proj", "recurrent", 3 * inner, hidden)
    weights += matrix("self_attn.output_gate", "recurrent", inner, hidden)
    weights += norm(fields, "self_attn.norm", inner)
    weights += matrix("self_attn.out_proj", "recurrent", hidden, inner)
    state = State(name="lightning", elements=heads * width * width, flops_per_element=5)
    return Part(weights=tuple(weights), states=(state,))


def rg_lru(fields: Fields) -> Part:
    """Recurrent block of Griffin (RecurrentGemma): two branches, a convolution, block-diagonal gates."""
    hidden, width, heads = fields.count("hidden"), fields.count("lru_width"), fields.count("n_heads")
    kernel = fields.count("conv_kernel")
    weights: list[Weight] = []
    for name in ("linear_x", "linear_y"):
        weights += matrix(f"temporal_block.{name}", "recurrent", width, hidden, bias=True)
    weights += matrix("temporal_block.linear_out", "recurrent", hidden, width, bias=True)
    weights.append(vector("temporal_block.conv_1d", width * (kernel + 1)))
    gates = 2 * (width * (width // heads) + width)
    weights += [vector("temporal_block.rg_lru.gates", gates), vector("temporal_block.rg_lru.param", width)]
    state = State(name="rg_lru", elements=width, conv_elements=width * (kernel - 1), flops_per_element=5)
    return Part(weights=tuple(weights), states=(state,))


def rwkv(fields: Fields) -> Part:
    """RWKV-4 time mixing: four square maps and, per channel, a decay, a bonus and three mixing weights."""
    hidden, inner = fields.count("hidden"), fields.count("attention_width")
    weights: list[Weight] = []
    for name in ("key", "value", "receptance"):
        weights += matrix(f"attention.{name}", "recurrent", inner, hidden)
    weights += matrix("attention.output", "recurrent", hidden, inner)
    weights += [vector("attention.time_decay_and_first", 2 * inner), vector("attention.time_mix", 3 * hidden)]
    state = State(name="rwkv", elements=2 * hidden + 3 * inner, flops_per_element=5)
    return Part(weights=tuple(weights), states=(state,))


def rwkv5(fields: Fields) -> Part:
    """RWKV-5 time mixing: heads with a matrix state, a gate and a group norm."""
    hidden, inner, width = fields.count("hidden"), fields.count("attention_width"), fields.count("linear_dim")
    weights: list[Weight] = []
    for name in ("key", "value", "receptance", "gate"):
        weights += matrix(f"attention.{name}", "recurrent", inner, hidden)
    weights += matrix("attention.output", "recurrent", hidden, inner)
    weights += [vector("attention.time_decay_and_faaaa", 2 * inner), vector("attention.ln_x", 2 * inner)]
    weights.append(vector("attention.time_mix", 4 * hidden))
    state = State(name="rwkv5", elements=2 * hidden + inner * width, flops_per_element=5)
    return Part(weights=tuple(weights), states=(state,))


def rwkv_channel_mix(fields: Fields) -> Part:
    """RWKV-4 channel mixing: a squared-ReLU MLP with a receptance gate."""
    hidden, width = fields.count("hidden"), fields.count("mlp_width")
    weights = matrix("feed_forward.key", "mlp", width, hidden)
    weights += matrix("feed_forward.receptance", "mlp", hidden, hidden)
    weights += matrix("feed_forward.value", "mlp", hidden, width)
    return Part(weights=(*weights, vector("feed_forward.time_mix", 2 * hidden)))
