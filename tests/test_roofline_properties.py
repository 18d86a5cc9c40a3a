"""What holds for every model, layout and efficiency: sums, signs, and which way each input pulls."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.execution import DeviceRates, Efficiency, Layout
from specmath.experts import expected_experts
from specmath.memory import Residents, sequence_bytes_per_device, weight_bytes_per_device
from specmath.model import AttentionGroup, ExpertGroup, ModelShape, StateGroup, WeightGroup
from specmath.roofline import ForwardPass

DTYPES = ("bf16", "fp8", "fp4")
ROUNDING = 1 + 1e-11
many = settings(deadline=None, max_examples=80)


@st.composite
def weight_groups(draw: st.DrawFn) -> WeightGroup:
    read = draw(st.integers(0, 10**10))
    return WeightGroup(
        name="mlp",
        stored_params=read + draw(st.integers(0, 10**9)),
        read_params=read,
        multiplied_params=draw(st.integers(0, read)),
        bytes_per_param=draw(st.sampled_from([0.53125, 1.0, 2.0, 4.0])),
        compute_dtype=draw(st.sampled_from(DTYPES)),
    )


@st.composite
def expert_groups(draw: st.DrawFn) -> ExpertGroup:
    experts = draw(st.integers(1, 512))
    return ExpertGroup(
        n_layers=draw(st.integers(1, 100)),
        n_experts=experts,
        top_k=draw(st.integers(1, experts)),
        params_per_expert=draw(st.integers(1, 10**8)),
        bytes_per_param=draw(st.sampled_from([0.53125, 1.0, 2.0])),
        compute_dtype=draw(st.sampled_from(DTYPES)),
    )


@st.composite
def attention_groups(draw: st.DrawFn) -> AttentionGroup:
    return AttentionGroup(
        name="full",
        n_layers=draw(st.integers(1, 100)),
        kv_elements_per_entry=draw(st.integers(0, 10**6)),
        kv_bytes_per_element=draw(st.sampled_from([0.5, 1.0, 2.0])),
        flops_per_pair=draw(st.integers(0, 10**7)),
        kv_heads=draw(st.sampled_from([1, 2, 8, 32])),
        window=draw(st.sampled_from([None, 1, 512, 4096])),
        top_k=draw(st.sampled_from([None, None, 2048])),
        tokens_per_entry=draw(st.sampled_from([1, 1, 4])),
    )


states = st.builds(
    StateGroup, name=st.just("mamba2"), n_layers=st.integers(1, 100), state_bytes=st.integers(0, 10**8)
)
models = st.builds(
    ModelShape,
    name=st.just("generated"),
    source=st.just("generated"),
    weights=st.lists(weight_groups(), min_size=1, max_size=3).map(tuple),
    experts=st.lists(expert_groups(), max_size=2).map(tuple),
    attention=st.lists(attention_groups(), max_size=2).map(tuple),
    states=st.lists(states, max_size=2).map(tuple),
    hidden=st.integers(1, 20_000),
    n_layers=st.integers(1, 200),
    vocab=st.integers(1, 300_000),
)
degrees = st.sampled_from([1, 2, 3, 8])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    tp, dp, pp = draw(degrees), draw(degrees), draw(degrees)
    return Layout(tp=tp, dp=dp, pp=pp, ep=draw(st.sampled_from([1, tp, dp, tp * dp])))


shares = st.floats(0.05, 1)
sizes = st.one_of(st.none(), st.lists(st.integers(1, 600), max_size=6).map(tuple))
efficiencies = st.builds(
    Efficiency,
    memory_efficiency=shares,
    compute_efficiency=shares,
    sharpness=st.sampled_from([1.0, 1.5, 4.0, math.inf]),
    kv_reread=st.floats(0, 1),
    expert_overlap=shares,
    activation_bytes=st.sampled_from([0.0, 20.0]),
    logit_bytes=st.sampled_from([0.0, 4.0]),
    state_snapshots=st.booleans(),
    link_latency_s=st.sampled_from([0.0, 8e-6]),
    kernels_per_layer=st.sampled_from([0.0, 12.0]),
    kernel_launch_s=st.sampled_from([0.0, 5e-6]),
    graph_sizes=sizes,
    pass_overhead_s=st.sampled_from([0.0, 1e-4]),
)
"""Without kernel gaps: a pass that leaves its graph leaves them too, so more tokens could cost less."""
rates = st.builds(
    DeviceRates,
    memory_bytes_per_s=st.floats(1e11, 1e13),
    flops_per_s=st.tuples(*[st.floats(1e13, 1e16)] * len(DTYPES)).map(
        lambda peaks: dict(zip(DTYPES, peaks, strict=True))
    ),
    link_bytes_per_s=st.floats(1e9, 1e12),
)
passes = st.builds(ForwardPass, model=models, rates=rates, layout=layouts(), efficiency=efficiencies)


@dataclass(frozen=True)
class At:
    """One cell: sequences, tokens of each, tokens in the cache of each."""

    batch: int
    tokens: float
    context: int


cells = st.builds(
    At, batch=st.integers(1, 600), tokens=st.floats(1, 40), context=st.sampled_from([0, 1, 511, 513, 100_000])
)


def seconds(run: ForwardPass, at: At) -> float:
    return float(np.asarray(run.time(at.batch, at.tokens, at.context)))


def with_(run: ForwardPass, **efficiency: Any) -> ForwardPass:
    return replace(run, efficiency=replace(run.efficiency, **efficiency))


@many
@given(passes, cells)
def test_the_parts_add_up_and_none_is_negative(run: ForwardPass, at: At) -> None:
    parts = run.parts(at.batch, at.tokens, at.context)
    assert sum(float(part.seconds) for part in parts) == pytest.approx(seconds(run, at), rel=1e-12)
    for part in parts:
        assert float(part.bytes) >= 0
        assert float(part.flops) >= 0
        assert float(part.seconds) >= -1e-12 * seconds(run, at)  # the overhead is a difference
        assert math.isfinite(float(part.seconds))


@many
@given(passes, cells)
def test_every_component_lies_between_the_larger_side_and_the_sum(run: ForwardPass, at: At) -> None:
    for part in run.parts(at.batch, at.tokens, at.context):
        if part.name in ("communication", "overhead"):
            continue
        larger, both = max(part.bytes_s, part.flops_s), part.bytes_s + part.flops_s
        assert larger / ROUNDING <= part.seconds <= both * ROUNDING


@many
@given(passes, cells)
def test_bytes_and_flops_follow_from_the_sums_of_the_model(run: ForwardPass, at: At) -> None:
    model, tp = run.model, run.layout.tp
    bare = with_(run, graph_sizes=None)
    parts = {part.name: part for part in bare.parts(at.batch, at.tokens, at.context)}
    tokens = math.ceil(at.batch / run.layout.dp) * at.tokens
    dense = sum(group.read_params * group.bytes_per_param for group in model.weights)
    assert float(parts["dense"].bytes) == pytest.approx(dense / tp, rel=1e-12)
    multiplied = model.multiplied_params - sum(group.active_params for group in model.experts)
    assert float(parts["dense"].flops) == pytest.approx(2 * multiplied * tokens / tp, rel=1e-12)
    if model.experts:
        stored = weight_bytes_per_device(replace(model, weights=()), replace(run.layout, pp=1))
        assert float(parts["experts"].bytes) <= stored * ROUNDING


@many
@given(passes, cells, cells)
def test_more_tokens_never_cost_less(run: ForwardPass, at: At, other: At) -> None:
    less, more = sorted([at.batch, other.batch])
    assert seconds(run, replace(at, batch=less)) <= seconds(run, replace(at, batch=more)) * ROUNDING
    fewer, further = sorted([at.tokens, other.tokens])
    assert seconds(run, replace(at, tokens=fewer)) <= seconds(run, replace(at, tokens=further)) * ROUNDING
    short, long = sorted([at.context, other.context])
    assert seconds(run, replace(at, context=short)) <= seconds(run, replace(at, context=long)) * ROUNDING


@many
@given(passes, cells)
def test_two_batches_in_one_pass_cost_no_more_than_two_passes(run: ForwardPass, at: At) -> None:
    whole = with_(run, graph_sizes=None)
    together = seconds(whole, replace(at, batch=2 * at.batch))
    assert together <= 2 * seconds(whole, at) * ROUNDING


@many
@given(passes, cells)
def test_a_scalar_is_the_cell_of_an_array(run: ForwardPass, at: At) -> None:
    grid = run.time([at.batch, at.batch + 1], [[at.tokens], [at.tokens + 1]], at.context)
    assert isinstance(grid, np.ndarray)
    assert grid.shape == (2, 2)
    assert grid[0, 0] == seconds(run, at)
    assert grid[1, 1] == seconds(run, At(at.batch + 1, at.tokens + 1, at.context))


def unconnected(run: ForwardPass) -> ForwardPass:
    """The same devices with a wire that costs nothing."""
    return replace(with_(run, link_latency_s=0.0), rates=replace(run.rates, link_bytes_per_s=math.inf))


@many
@given(passes, cells)
def test_every_group_twice_takes_devices_twice_as_fast(run: ForwardPass, at: At) -> None:
    """Dense groups, experts, attention and states add up, each of them."""
    once = unconnected(
        with_(run, kernels_per_layer=0.0, pass_overhead_s=0.0, activation_bytes=0.0, logit_bytes=0.0)
    )
    model, slow = once.model, once.rates
    twice = replace(
        model,
        weights=model.weights * 2,
        experts=model.experts * 2,
        attention=model.attention * 2,
        states=model.states * 2,
    )
    fast = replace(
        slow,
        memory_bytes_per_s=2 * slow.memory_bytes_per_s,
        flops_per_s={dtype: 2 * peak for dtype, peak in slow.flops_per_s.items()},
    )
    assert seconds(replace(once, model=twice, rates=fast), at) == pytest.approx(seconds(once, at), rel=1e-11)


@many
@given(passes, cells, degrees)
def test_more_ranks_are_never_slower_without_communication(run: ForwardPass, at: At, more: int) -> None:
    free = replace(unconnected(run), layout=replace(run.layout, ep=1))
    wider = replace(free, layout=replace(free.layout, tp=free.layout.tp * more))
    assert seconds(wider, at) <= seconds(free, at) * ROUNDING
    assert seconds(wider, at) * more >= seconds(free, at) / ROUNDING  # and no faster than all shared


@many
@given(passes, cells)
def test_a_sharper_corner_is_never_slower(run: ForwardPass, at: At) -> None:
    times = [seconds(with_(run, sharpness=s), at) for s in (math.inf, 50.0, 4.0, 1.5, 1.0)]
    assert all(sharper <= rounder * ROUNDING for sharper, rounder in pairwise(times))
    assert times[1] == pytest.approx(times[0], rel=0.02)  # 2^(1/50) − 1


@many
@given(passes, cells, shares)
def test_an_efficiency_below_one_is_never_faster(run: ForwardPass, at: At, share: float) -> None:
    for side in ("memory_efficiency", "compute_efficiency"):
        slow, fast = (seconds(with_(run, **{side: value}), at) for value in (share, 1.0))
        assert fast <= slow * ROUNDING
        assert slow <= fast / share * ROUNDING


@many
@given(passes, cells, st.floats(0, 1), st.floats(0, 1))
def test_rereading_the_cache_is_never_faster(run: ForwardPass, at: At, one: float, other: float) -> None:
    less, more = (seconds(with_(run, kv_reread=value), at) for value in sorted([one, other]))
    assert less <= more * ROUNDING
    single = replace(at, tokens=1)  # nothing to read again
    assert seconds(with_(run, kv_reread=one), single) == seconds(with_(run, kv_reread=other), single)


@many
@given(passes, cells, shares, shares)
def test_experts_in_common_are_never_slower(run: ForwardPass, at: At, one: float, other: float) -> None:
    less, more = (seconds(with_(run, expert_overlap=value), at) for value in sorted([one, other]))
    assert less <= more * ROUNDING
    single = replace(at, tokens=1)
    assert seconds(with_(run, expert_overlap=one), single) == pytest.approx(
        seconds(with_(run, expert_overlap=other), single), rel=1e-12
    )


@many
@given(passes, cells)
def test_padding_and_snapshots_are_never_faster(run: ForwardPass, at: At) -> None:
    assert seconds(with_(run, graph_sizes=None), at) <= seconds(run, at) * ROUNDING
    without, kept = (seconds(with_(run, state_snapshots=value), at) for value in (False, True))
    assert without <= kept * ROUNDING


@many
@given(passes, cells)
def test_the_limits_bound_a_device_without_a_wire(run: ForwardPass, at: At) -> None:
    """Free FLOPs or free bytes never slow a pass; both together are at least the larger of the two."""
    whole = seconds(replace(run, rates=replace(run.rates, link_bytes_per_s=math.inf)), at)
    memory = seconds(replace(run, rates=run.rates.without_flops()), at)
    compute = seconds(replace(run, rates=run.rates.without_bytes()), at)
    assert max(memory, compute) <= whole * ROUNDING
    assert whole <= (memory + compute) * ROUNDING


@many
@given(expert_groups(), st.floats(0, 5000), st.floats(0, 5000))
def test_experts_touched_grow_with_tokens_at_a_falling_pace(
    group: ExpertGroup, one: float, other: float
) -> None:
    low, middle, high = (
        float(np.asarray(expected_experts(group.n_experts, group.top_k, tokens)))
        for tokens in (min(one, other), (one + other) / 2, max(one, other))
    )
    assert low <= middle * ROUNDING + 1e-9
    assert middle <= high * ROUNDING + 1e-9
    assert middle >= (low + high) / 2 - 1e-9  # concave


contexts = st.integers(0, 200_000)


@many
@given(models, layouts(), contexts, contexts, st.integers(1, 40))
def test_what_a_sequence_holds_grows_and_is_never_negative(
    model: ModelShape, layout: Layout, one: int, other: int, copies: int
) -> None:
    short, long = sorted([one, other])
    held = [float(sequence_bytes_per_device(model, layout, tokens, copies)) for tokens in (short, long)]
    assert 0 <= held[0] <= held[1] * ROUNDING
    more = float(sequence_bytes_per_device(model, layout, long, copies + 1))
    assert more - held[1] == pytest.approx(
        model.state_bytes / layout.tp / layout.pp, rel=1e-6, abs=1e-9 * more
    )
    alone = float(sequence_bytes_per_device(model, Layout(), long, copies))
    assert held[1] * layout.tp * layout.pp >= alone / ROUNDING  # ranks and stages together hold it whole


@many
@given(models, st.one_of(st.none(), models), layouts(), contexts, st.integers(0, 40), st.integers(0, 40))
def test_speculation_never_fits_more_than_plain_decoding(
    model: ModelShape, draft: ModelShape | None, layout: Layout, context: int, one: int, other: int
) -> None:
    both = Residents(
        target=model, target_layout=layout, draft=draft, draft_layout=Layout(), memory_bytes=1.41e11
    )
    few, many_tokens = sorted([one, other])
    fitting = [both.max_batch_speculative(k, context) for k in (many_tokens, few)] + [both.max_batch(context)]
    known = [batch for batch in fitting if not math.isnan(float(np.asarray(batch)))]
    assert known == sorted(known)
