"""Room for keys and values: a static cache whose sequences stand at different positions.

A layer keeps [batch, heads, length, width] of keys and of values. A pass writes its tokens at their own
positions and reads the whole length; the mask hides what lies beyond a token. So a rollback is a smaller
position, and nothing is moved or cleared. Shapes that are only timed share one buffer per layer (`SlotPool`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

ROOM_STEP: Final = 8
"""Lengths are rounded up to it: fused kernels copy a mask whose rows are not aligned, in every layer."""


def room(length: int) -> int:
    """Tokens that a sequence of at most `length` gets room for.

    >>> room(512), room(513)
    (512, 520)
    """
    return -(-length // ROOM_STEP) * ROOM_STEP


class LayerShape(NamedTuple):
    """What one layer keeps of one token; keys and values may differ in width, as latent attention's do."""

    heads: int
    key_width: int
    value_width: int
    dtype: torch.dtype

    @property
    def token_bytes(self) -> int:
        """Bytes of one token."""
        return self.heads * (self.key_width + self.value_width) * self.dtype.itemsize


class Slots:
    """Keys and values of `batch` sequences of at most `length` tokens each.

    Attributes:
        batch: Sequences.
        length: Tokens of each at most; a pass reads all of them, however few are filled.
        cache: What a transformers model takes.
        replays: Captured passes over these slots by their width; owned by the runner.
    """

    def __init__(self, batch: int, length: int, layers: Sequence[tuple[Tensor, Tensor]]) -> None:
        self.batch, self.length = batch, length
        device = layers[0][0].device
        self._rows = torch.arange(batch, device=device)[:, None]
        self._slot_of = torch.arange(layers[0][0].shape[2], device=device)
        self._layers = [_SlotLayer(keys, values) for keys, values in layers]
        self.cache = Cache(layers=list(self._layers))
        self.replays: dict[int, Any] = {}

    @property
    def device(self) -> torch.device:
        """Where the keys and values lie."""
        return self._rows.device

    def write_at(self, positions: Tensor) -> None:
        """Say where the tokens of the next pass go: positions [batch, q]."""
        for layer in self._layers:
            layer.rows, layer.positions = self._rows, positions

    def mask(self, positions: Tensor, window: int | None) -> Tensor:
        """[batch, 1, q, length], True where a token sees a slot: up to its own, or the last `window`."""
        own = positions[:, None, :, None]
        visible = self._slot_of <= own
        return visible if window is None else visible & (self._slot_of > own - window)


class SlotPool:
    """One buffer per layer for all shapes that are timed, never two at once; filled with noise once."""

    def __init__(self, shapes: Sequence[LayerShape], device: torch.device) -> None:
        self._shapes, self._device = shapes, device
        self._buffers: list[tuple[Tensor, Tensor]] = []
        self.tokens = 0

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` in all sequences together. Slots made before keep the buffers they have."""
        self._buffers, self.tokens = [], 0  # freed before the larger ones are asked for
        self._buffers = [
            (
                self._noise(tokens * one.heads * one.key_width, one),
                self._noise(tokens * one.heads * one.value_width, one),
            )
            for one in self._shapes
        ]
        self.tokens = tokens

    def slots(self, batch: int, length: int) -> Slots:
        """A view of the buffers for that shape; its content is whatever was written last.

        Raises:
            MemoryError: the buffers are smaller; `reserve` was not asked for as much, or did not get it.
        """
        held = batch * room(length)
        if held > self.tokens:
            need = cache_bytes(self._shapes, batch, length)
            raise MemoryError(
                f"out of memory: a cache of {batch} × {length:,} tokens takes {need / 1e9:.3g} GB"
            )
        layers = [
            (
                keys[: held * one.heads * one.key_width].view(batch, one.heads, room(length), -1),
                values[: held * one.heads * one.value_width].view(batch, one.heads, room(length), -1),
            )
            for one, (keys, values) in zip(self._shapes, self._buffers, strict=True)
        ]
        return Slots(batch, length, layers)

    def _noise(self, elements: int, shape: LayerShape) -> Tensor:
        return torch.empty(elements, dtype=shape.dtype, device=self._device).normal_()


def empty_slots(batch: int, length: int, shapes: Sequence[LayerShape], device: torch.device) -> Slots:
    """Slots with memory of their own, zeroed: what has never been written must not be NaN behind the mask."""
    layers = [
        (
            torch.zeros(batch, one.heads, room(length), one.key_width, dtype=one.dtype, device=device),
            torch.zeros(batch, one.heads, room(length), one.value_width, dtype=one.dtype, device=device),
        )
        for one in shapes
    ]
    return Slots(batch, length, layers)


class _SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer, in the shape that transformers asks of a cache layer."""

    is_compileable = True

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values = keys, values
        self.rows, self.positions = keys, keys  # set before every pass by `Slots.write_at`
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the buffers are there."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write [batch, heads, q, width] at the positions of the pass; the whole length comes back."""
        keys, values = self.keys, self.values
        assert keys is not None
        assert values is not None
        keys[self.rows, :, self.positions] = key_states.transpose(1, 2)
        values[self.rows, :, self.positions] = value_states.transpose(1, 2)
        return keys, values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length and offset; masks are given, so that only a model that makes its own would ask."""
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        """0: sequences stand at positions of their own, which are given with every pass."""
        return 0

    def get_max_length(self) -> int:
        """Tokens that a sequence has room for."""
        assert self.keys is not None
        return int(self.keys.shape[2])


def cache_bytes(shapes: Sequence[LayerShape], batch: int, length: int) -> int:
    """Bytes of slots of that shape.

    >>> cache_bytes([LayerShape(2, 64, 64, torch.float32)] * 3, 4, 104)  # 3·2·128·4 bytes a token
    1277952
    """
    return batch * room(length) * sum(one.token_bytes for one in shapes)
