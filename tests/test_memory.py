"""What fits on a device: weights, caches, look-ahead slots and states, by hand and for catalogue models."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specmath.catalogue import load_hardware
from specmath.drafters.draft_model import DraftModel
from specmath.errors import InputError
from specmath.execution import ONE_DEVICE, Layout
from specmath.memory import MEMORY_SHARE, Residents, sequence_bytes_per_device, weight_bytes_per_device
from specmath.model import AttentionGroup, ExpertGroup, ModelShape, StateGroup, WeightGroup
from specmath.model_catalogue import load_model
from specmath.model_counts import model_from_counts
from specmath.roofline_source import Roofline

# 100 read and 20 looked-up parameters, 240 bytes; experts: 2 layers of 8, 10 parameters each, 160 bytes.
DENSE = WeightGroup(
    name="mlp",
    stored_params=120,
    read_params=100,
    multiplied_params=100,
    bytes_per_param=2,
    compute_dtype="bf16",
)
EXPERTS = ExpertGroup(
    n_layers=2, n_experts=8, top_k=2, params_per_expert=10, bytes_per_param=1.0, compute_dtype="bf16"
)
FULL = AttentionGroup(
    name="full", n_layers=2, kv_elements_per_entry=10, kv_bytes_per_element=2.0, flops_per_pair=40, kv_heads=2
)
WINDOW = replace(FULL, name="window", window=8)
COMPRESSED = replace(FULL, name="compressed_4", kv_heads=1, tokens_per_entry=4)
STATE = StateGroup(name="mamba2", n_layers=2, state_bytes=60)
TARGET = ModelShape(
    name="target", source="typed in a test", weights=(DENSE,), attention=(FULL,), hidden=5, n_layers=2
)
DRAFT = ModelShape(
    name="draft",
    source="typed in a test",
    weights=(replace(DENSE, stored_params=20, read_params=20, multiplied_params=20),),  # 40 bytes
    attention=(replace(FULL, kv_elements_per_entry=2),),  # 4 bytes per token
    hidden=5,
    n_layers=1,
)


def residents(
    free: float,
    target: ModelShape = TARGET,
    draft: ModelShape | None = None,
    layout: Layout = ONE_DEVICE,
    draft_layout: Layout = ONE_DEVICE,
) -> Residents:
    """A device on which the engine takes `free` bytes beside the target's weights."""
    taken = free + weight_bytes_per_device(target, layout)
    return Residents(
        target=target,
        target_layout=layout,
        draft=draft,
        draft_layout=draft_layout,
        memory_bytes=taken / MEMORY_SHARE,
    )


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(), 400),
        (Layout(tp=4), 100),
        (Layout(tp=4, ep=2), 60 + 80),
        (Layout(dp=4), 240 + 40),
        (Layout(tp=2, dp=2), 120 + 40),
        (Layout(tp=2, dp=2, ep=2), 120 + 80),
        (Layout(tp=2, pp=4), 50),
    ],
    ids=str,
)
def test_weights_of_a_device(layout: Layout, expected: float) -> None:
    """240 bytes over tp, 160 over the experts' ranks, both over pp."""
    assert weight_bytes_per_device(replace(TARGET, experts=(EXPERTS,)), layout) == expected


@pytest.mark.parametrize(
    ("model", "layout", "tokens", "states", "expected"),
    [
        pytest.param(TARGET, Layout(), 10, 1, 200, id="full: 10 · 20"),
        pytest.param(TARGET, Layout(tp=2), 10, 1, 100, id="two heads on two ranks"),
        pytest.param(TARGET, Layout(tp=8), 10, 1, 100, id="two heads on eight ranks"),
        pytest.param(TARGET, Layout(dp=8), 10, 1, 200, id="dp: whole on its rank"),
        pytest.param(TARGET, Layout(tp=2, pp=2), 10, 1, 50, id="half of the layers on a stage"),
        pytest.param(replace(TARGET, attention=(FULL, WINDOW)), Layout(), 10, 1, 360, id="window: + 8 · 20"),
        pytest.param(replace(TARGET, attention=(FULL, WINDOW)), Layout(), 5, 1, 200, id="below the window"),
        pytest.param(replace(TARGET, attention=(COMPRESSED,)), Layout(tp=2), 40, 1, 200, id="40/4 · 20"),
        pytest.param(replace(TARGET, states=(STATE,)), Layout(), 10, 4, 440, id="four states: + 4 · 60"),
        pytest.param(replace(TARGET, states=(STATE,)), Layout(tp=2), 10, 4, 220, id="states over tp"),
    ],
)
def test_what_a_sequence_holds(
    model: ModelShape, layout: Layout, tokens: int, states: int, expected: float
) -> None:
    assert float(sequence_bytes_per_device(model, layout, tokens, states)) == expected


def test_the_largest_batch_keeps_a_slot_for_the_token_in_work() -> None:
    # 9 + 1 tokens of 20 bytes.
    assert residents(1000).max_batch(9) == 5
    assert residents(999.9).max_batch(9) == 4
    assert residents(1000).max_batch(10) == 4


def test_speculation_takes_draft_weights_draft_cache_and_slots() -> None:
    # Draft: 40 bytes of weights. k = 3: 6 + 4 tokens of 20 + 4 bytes: 240 each, of 1000 − 40 = 960.
    both = residents(1000, draft=DRAFT)
    assert both.max_batch_speculative(3, 6) == 4
    assert residents(999.9, draft=DRAFT).max_batch_speculative(3, 6) == 3
    # Without a draft: 10 tokens of 20 bytes of 1000.
    assert residents(1000).max_batch_speculative(3, 6) == 5
    assert both.max_batch(9) == 5  # the other arm has no draft at all


def test_speculation_takes_a_state_per_token_that_may_be_refused() -> None:
    # k = 3: 10 tokens of 20 bytes and 4 states of 60: 440 bytes against 7 · 20 + 60 = 200.
    target = replace(TARGET, states=(STATE,))
    assert residents(880, target).max_batch_speculative(3, 6) == 2
    assert residents(879, target).max_batch_speculative(3, 6) == 1
    assert residents(880, target).max_batch(6) == 4


def test_layouts_of_target_and_draft() -> None:
    # tp = 2: 10 tokens of 10 bytes a rank; dp = 3 such groups.
    assert residents(1000, layout=Layout(tp=2, dp=3)).max_batch(9) == 30
    # k = 0, the draft whole on its device: (1000 − 40) / (10 · (10 + 4)) = 6.86; split in two, where its two
    # heads split too: (1000 − 20) / (10 · (10 + 2)) = 8.17.
    assert residents(1000, draft=DRAFT, layout=Layout(tp=2)).max_batch_speculative(0, 9) == 6
    split = residents(1000, draft=DRAFT, layout=Layout(tp=2), draft_layout=Layout(tp=2))
    assert split.max_batch_speculative(0, 9) == 8


def test_a_draft_of_each_group_holds_its_own_sequences() -> None:
    # Three groups, k = 0: (1000 − 40) / (10 · (20 + 4)) = 4 on a device of each. One draft for all three
    # groups holds 3 sequences for each of a group's: (1000 − 40) / (10 · (20 + 3 · 4)) = 3.
    each, shared = (
        residents(1000, draft=DRAFT, layout=Layout(dp=3), draft_layout=Layout(dp=dp)) for dp in (3, 1)
    )
    assert each.max_batch_speculative(0, 9) == 4 * 3
    assert shared.max_batch_speculative(0, 9) == 3 * 3


def test_arrays_of_k_and_context() -> None:
    both = residents(1000, draft=DRAFT)
    grid = np.asarray(both.max_batch_speculative(np.arange(4)[:, None], np.array([0, 6, 99])))
    assert grid.shape == (4, 3)
    for k, place in np.ndindex(grid.shape):
        assert grid[k, place] == both.max_batch_speculative(k, [0, 6, 99][place])
    assert isinstance(both.max_batch(5), float)


def test_nothing_fits_where_the_weights_do_not() -> None:
    full = residents(-1)
    assert full.free_bytes == pytest.approx(-1)
    assert full.max_batch(9) == 0
    assert full.max_batch_speculative(3, 9) == 0
    # The target fits, the draft no longer.
    assert residents(39, draft=DRAFT).max_batch(0) == 1
    assert residents(39, draft=DRAFT).max_batch_speculative(1, 0) == 0


def test_what_is_not_known_is_nan() -> None:
    counts = residents(1e9, model_from_counts("7B"))
    assert not counts.known
    assert math.isnan(float(np.asarray(counts.max_batch(100))))
    assert math.isnan(float(np.asarray(counts.max_batch_speculative(3, 100))))
    weightless = residents(1000, replace(TARGET, attention=()))
    assert weightless.known
    assert math.isnan(float(np.asarray(weightless.max_batch(100))))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: residents(1000).max_batch(-1), "context"),
        (lambda: residents(1000).max_batch_speculative(-1, 0), "k"),
        (lambda: residents(1000).max_batch_speculative(1.5, 0), "k"),
        (lambda: residents(1000).max_batch_speculative(1, math.nan), "context"),
    ],
)
def test_what_is_wrong_is_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: "):
        call()


def test_both_arms_of_a_pair_on_eight_devices() -> None:
    """Llama-3.1-70B and a 1B draft on 8 H100, 32k: 70,553,706,496 and 1,235,814,400 parameters of 2 bytes.

    A rank holds one of 8 KV heads: 327,680/8 = 40,960 bytes per token; the draft sits whole on one device,
    32,768 bytes per token.
    """
    part = load_hardware("h100-sxm")
    source = Roofline(
        accelerator=part,
        target=load_model("llama-3.1-70b"),
        drafter=DraftModel(load_model("llama-3.2-1b")),
        layout=Layout(tp=8),
    )
    free = 0.9 * part.memory_bytes - 2 * 70_553_706_496 / 8
    plain = math.floor(free / (32_769 * 40_960))
    speculative = math.floor((free - 2 * 1_235_814_400) / (32_772 * (40_960 + 32_768)))
    found = source.max_batches(3, 32_768)
    assert [float(batch) for batch in found] == [plain, speculative]
    assert (plain, speculative) == (44, 23)


def test_a_hybrid_pays_for_its_states() -> None:
    """Qwen3-Next: a delta-net state has to be kept after each of k + 1 tokens; its cache hardly grows."""
    model = load_model("qwen3-next-80b-a3b")
    one, five = (float(sequence_bytes_per_device(model, Layout(), 4096, n)) for n in (1, 5))
    assert five - one == 4 * model.state_bytes
    both = Residents(
        target=model, target_layout=Layout(tp=4), draft=None, draft_layout=Layout(), memory_bytes=80e9
    )
    assert float(np.asarray(both.max_batch_speculative(4, 4096))) < 0.6 * float(
        np.asarray(both.max_batch(4096))
    )
