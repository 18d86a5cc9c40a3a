"""What fits: weights, caches and states on one device, and the largest batch of both arms of a comparison.

Speculation costs memory: the draft's weights and cache, k + 1 look-ahead slots in the target's cache, and
k + 1 copies of a recurrent state. The arm without it keeps that room for more sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, Numbers, like_inputs, require_count, require_range
from specmath.execution import Layout
from specmath.model import ModelShape

MEMORY_SHARE = 0.9
"""Share of the device's memory that an engine takes, vLLM's default `gpu_memory_utilization`. What
activations and captured graphs need of it is not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residents:
    """The models that share a device.

    Attributes:
        target: The target and how it is spread.
        draft: The draft; None where none is run.
        memory_bytes: Memory of one device.
    """

    target: ModelShape
    target_layout: Layout
    draft: ModelShape | None
    draft_layout: Layout
    memory_bytes: float

    @property
    def known(self) -> bool:
        """Whether the target's cache is known: not for a model known by its counts alone."""
        return not self.target.counts_only

    @property
    def free_bytes(self) -> float:
        """What the weights of the target leave of a device; negative where they do not fit."""
        return self.memory_bytes * MEMORY_SHARE - weight_bytes_per_device(self.target, self.target_layout)

    def max_batch(self, context: npt.ArrayLike) -> Numbers:
        """Largest batch of plain decoding at `context` tokens in the cache; 0 where not even the weights fit.

        One slot is kept for the token being decoded. NaN where the cache is not known, or where a sequence
        takes no memory at all.
        """
        length = require_range("context", context, 0)
        per_sequence = sequence_bytes_per_device(self.target, self.target_layout, length + 1, 1)
        return self._fitting(self.free_bytes, per_sequence)

    def max_batch_speculative(self, k: npt.ArrayLike, context: npt.ArrayLike) -> Numbers:
        """The same with the draft beside the target, k + 1 look-ahead slots and k + 1 states a sequence."""
        slots = require_count("k", k, 0) + 1
        tokens = require_range("context", context, 0) + slots
        per_sequence = sequence_bytes_per_device(self.target, self.target_layout, tokens, slots)
        free = self.free_bytes
        if self.draft is not None:
            drafted = sequence_bytes_per_device(self.draft, self.draft_layout, tokens, slots)
            # For each sequence of a rank of the target, a device of the draft holds this many.
            per_sequence = per_sequence + drafted * (self.target_layout.dp / self.draft_layout.dp)
            free -= weight_bytes_per_device(self.draft, self.draft_layout)
        return self._fitting(free, per_sequence)

    def _fitting(self, free: float, per_sequence: FloatArray) -> Numbers:
        if not self.known:
            return like_inputs(np.full(per_sequence.shape, np.nan))
        share = np.maximum(free, 0.0) / np.where(per_sequence > 0, per_sequence, np.nan)
        return like_inputs(np.floor(share) * self.target_layout.dp)


def weight_bytes_per_device(model: ModelShape, layout: Layout) -> float:
    """Bytes of stored weights on one device, the embedding table included.

    Dense weights are split over tp, routed experts over their ranks, layers over pp. Assumes even splits.

    >>> from specmath.model_counts import counts_model
    >>> weight_bytes_per_device(counts_model("70B", 70e9), Layout(tp=2))
    70000000000.0
    """
    dense = sum(group.stored_params * group.bytes_per_param for group in model.weights) / layout.tp
    experts = sum(group.stored_params * group.bytes_per_param for group in model.experts)
    return (dense + experts / layout.expert_ranks) / layout.pp


def sequence_bytes_per_device(
    model: ModelShape, layout: Layout, tokens: npt.ArrayLike, states: npt.ArrayLike
) -> FloatArray:
    """Bytes that one sequence of `tokens` tokens holds on one device, with `states` copies of its state.

    A window layer keeps its window only; a cache with fewer heads than ranks is held whole by several.
    """
    length, copies = np.asarray(tokens, dtype=float), np.asarray(states, dtype=float)
    held = copies * (model.state_bytes / layout.tp)
    for group in model.attention:
        kept = np.minimum(length, np.inf if group.window is None else group.window)
        ranks = min(layout.tp, group.kv_heads)
        held = held + kept * (group.kv_bytes_per_token / ranks)
    return np.asarray(held / layout.pp)
