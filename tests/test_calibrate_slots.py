"""Room for keys and values: what is written where, what is seen, and which memory it is."""

from __future__ import annotations

import pytest
import torch

from calibrate.slots import LayerShape, SlotPool, Slots, cache_bytes, empty_slots, room

SHAPES = (LayerShape(2, 4, 6, torch.float32), LayerShape(1, 3, 3, torch.float32))
CPU = torch.device("cpu")


def written(
    slots: Slots, layer: int, positions: list[list[int]], value: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """What a layer holds after it was given one value at some positions."""
    shape = SHAPES[layer]
    slots.write_at(torch.tensor(positions))
    size = (slots.batch, shape.heads, len(positions[0]))
    keys, values = torch.full((*size, shape.key_width), value), torch.full((*size, shape.value_width), -value)
    held: tuple[torch.Tensor, torch.Tensor] = slots.cache.update(keys, values, layer)
    return held


@pytest.mark.parametrize("layer", [0, 1])
def test_tokens_lie_at_the_positions_of_their_sequence(layer: int) -> None:
    slots = empty_slots(2, 8, SHAPES, CPU)
    keys, values = written(slots, layer, [[0, 1], [5, 6]], 1.0)
    filled = keys[:, 0, :, 0].tolist()
    assert filled == [[1, 1, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1, 0]]
    assert torch.equal(values[..., 0], -keys[..., 0])
    assert keys.shape == (2, SHAPES[layer].heads, 8, SHAPES[layer].key_width)
    assert values.shape == (2, SHAPES[layer].heads, 8, SHAPES[layer].value_width)


def test_a_smaller_position_overwrites() -> None:
    slots = empty_slots(1, 8, SHAPES, CPU)
    written(slots, 0, [[0, 1, 2, 3]], 1.0)
    keys, _ = written(slots, 0, [[2]], 5.0)
    assert keys[0, 1, :, 3].tolist() == [1, 1, 5, 1, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("window", "rows"),
    [
        (None, [[1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0, 0, 0]]),
        (2, [[0, 1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0, 0, 0]]),
        (1, [[0, 0, 1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 0]]),
    ],
)
def test_a_token_sees_up_to_its_own_position(window: int | None, rows: list[list[int]]) -> None:
    slots = empty_slots(1, 8, SHAPES, CPU)
    mask = slots.mask(torch.tensor([[2, 3]]), window)
    assert mask.shape == (1, 1, 2, 8)
    assert mask[0, 0].int().tolist() == rows


def test_shapes_of_a_pool_share_memory() -> None:
    pool = SlotPool(SHAPES, CPU)
    pool.reserve(4 * 16)
    before = [tensor.data_ptr() for tensor in written(pool.slots(4, 16), 0, [[0]] * 4, 1.0)]
    other = [tensor.data_ptr() for tensor in written(pool.slots(2, 32), 0, [[0]] * 2, 1.0)]
    assert before == other
    keys, _ = written(pool.slots(2, 32), 0, [[0]] * 2, 1.0)
    assert keys.is_contiguous()
    assert keys.std() > 0.5  # noise, not zeros


def test_own_slots_do_not() -> None:
    first, second = (empty_slots(1, 8, SHAPES, CPU) for _ in range(2))
    written(first, 0, [[0]], 1.0)
    keys, _ = written(second, 0, [[1]], 2.0)
    assert keys[0, 0, :2, 0].tolist() == [0, 2]


def test_a_pool_says_what_does_not_fit() -> None:
    pool = SlotPool(SHAPES, CPU)
    pool.reserve(64)
    with pytest.raises(MemoryError, match=r"out of memory: a cache of 2 × 33 tokens takes 8\.32e-06 GB"):
        pool.slots(2, 33)  # 2 · 40 tokens of (2·10 + 1·6)·4 bytes


def test_rooms_are_rounded_up() -> None:
    assert [room(length) for length in (1, 8, 9, 8193)] == [8, 8, 16, 8200]
    slots = empty_slots(1, 9, SHAPES, CPU)
    assert slots.length == 9
    assert slots.mask(torch.tensor([[8]]), None)[0, 0, 0].int().tolist() == [1] * 9 + [0] * 7
    assert cache_bytes(SHAPES, 3, 9) == 3 * 16 * (2 * 10 + 6) * 4
