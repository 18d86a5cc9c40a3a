"""One forward pass T(B, q, C) as a roofline: components one after another, each bound by bytes or by FLOPs.

    component = ((bytes / (bandwidth·memory_efficiency))^s + (FLOPs / (peak·compute_efficiency))^s)^(1/s)
    T = Σ components + communication + overheads

B sequences of q tokens each, with C tokens of each already in the cache; every count is that of one device of
the layout. docs/formulas.md lists the components with their sources.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, Numbers, like_inputs, require_range
from specmath.errors import InputError
from specmath.execution import IDEAL, ONE_DEVICE, SIXTEEN_BIT, DeviceRates, Efficiency, Layout
from specmath.experts import touched_experts
from specmath.kernels import launched_kernels, logits_per_token, matrix_products, small_kernels
from specmath.model import AttentionGroup, ModelShape

MAX_TOKENS = 1e12
"""Longest context, and most tokens of a sequence in a pass, that are taken for more than a slip."""
WIRE_BYTES = 2
"""Bytes of an activation that travels between devices: 16 bits."""
_SMALLEST = float(np.finfo(float).tiny)
_SQUARES = {2.0: 1, 4.0: 2, 8.0: 3}
"""Sharpness by the squares that make its power: several times faster than a power."""
STATE_ACCESSES = 2
"""Times a recurrent state is moved in a pass over one token: read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPart:
    """One component of a pass, on one device; arrays broadcast over batch, tokens and context.

    Attributes:
        name: dense, experts, attention …, state, activations, latency, communication or overhead.
        bytes: Bytes of memory traffic; of the link for communication.
        flops: FLOPs.
        bytes_s: Seconds of the bytes alone.
        flops_s: Seconds of the FLOPs alone.
        seconds: Seconds of the component.
    """

    name: str
    bytes: FloatArray
    flops: FloatArray
    bytes_s: FloatArray
    flops_s: FloatArray
    seconds: FloatArray

    @property
    def bound(self) -> npt.NDArray[np.str_]:
        """Which side takes longer: bytes or FLOPs; latency where neither takes any time."""
        longer = np.where(self.bytes_s >= self.flops_s, "bytes", "FLOPs")
        return np.where(np.maximum(self.bytes_s, self.flops_s) > 0, longer, "latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardPass:
    """Forward passes of one model, spread by one layout over one kind of device.

    Attributes:
        model: What is read and multiplied.
        rates: What a device does per second; `flops_per_s` has every compute dtype of the model.
        layout: How the model is spread.
        efficiency: How far software is from the datasheet.

    Raises:
        InputError: a layout of several devices whose activations have no link to travel by.
    """

    model: ModelShape
    rates: DeviceRates
    layout: Layout = ONE_DEVICE
    efficiency: Efficiency = IDEAL

    def __post_init__(self) -> None:
        if self.layout.devices > 1 and self.model.hidden and self.rates.link_bytes_per_s is None:
            raise InputError(
                "link", "is missing: the catalogue knows no link of this part; give its bytes/s, one way"
            )

    def time(self, batch: npt.ArrayLike, tokens: npt.ArrayLike, context: npt.ArrayLike) -> Numbers:
        """Seconds of one pass over `tokens` tokens of each of `batch` sequences.

        Args:
            batch: B, sequences, at least 1.
            tokens: q, tokens per sequence, at least 1; not whole where it is a mean.
            context: C, tokens in the cache of each sequence, at least 0.

        Raises:
            InputError: an argument outside its range, or a context for a model without a known cache.

        Source: the roofline of Williams et al. 2009, component by component as in Pope et al. 2022.
        """
        sequences, width, length = self._checked(batch, tokens, context)
        device_s = np.asarray(sum(part.seconds for part in self._device_parts(sequences, width, length)))
        return like_inputs(self._with_overheads(device_s, self._tokens(sequences, width)))

    def parts(self, batch: npt.ArrayLike, tokens: npt.ArrayLike, context: npt.ArrayLike) -> list[PassPart]:
        """The pass taken apart; the seconds of the parts add up to `time`."""
        sequences, width, length = self._checked(batch, tokens, context)
        parts = list(self._device_parts(sequences, width, length))
        device_s = np.asarray(sum(part.seconds for part in parts))
        overhead_s = self._with_overheads(device_s, self._tokens(sequences, width)) - device_s
        zero = np.zeros(())
        overhead = PassPart(
            name="overhead",
            bytes=zero,
            flops=zero,
            bytes_s=zero,
            flops_s=zero,
            seconds=np.asarray(overhead_s),
        )
        return [*parts, overhead]

    def _checked(
        self, batch: npt.ArrayLike, tokens: npt.ArrayLike, context: npt.ArrayLike
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        length = require_range("context", context, 0, MAX_TOKENS)
        if self.model.counts_only and np.any(length > 0):
            problem = (
                f"{self.model.name} is known by its counts alone: only context 0 can be timed; name a model"
            )
            raise InputError("context", problem)
        return require_range("batch", batch, 1), require_range("tokens", tokens, 1, MAX_TOKENS), length

    def _tokens(self, batch: FloatArray, width: FloatArray) -> FloatArray:
        """t of one attention rank, padded to the next captured graph."""
        tokens = self.rank_batch(batch) * width
        sizes = self.efficiency.graph_sizes
        if not sizes:
            return tokens
        places = np.searchsorted(np.array(sizes, dtype=float), tokens)
        padded = np.array([*sizes, np.inf])[places]
        return np.where(np.isfinite(padded), padded, tokens)

    def rank_batch(self, batch: FloatArray) -> FloatArray:
        """Sequences of the busiest data-parallel rank."""
        return np.ceil(batch / self.layout.dp) if self.layout.dp > 1 else batch

    def _device_parts(self, batch: FloatArray, width: FloatArray, context: FloatArray) -> Iterator[PassPart]:
        tokens = self._tokens(batch, width)
        yield self._dense(tokens)
        if self.model.experts:
            yield self._experts(tokens * self.layout.dp, batch, width)
        sequences = self.rank_batch(batch)
        for group in self.model.attention:
            yield self._attention(group, sequences, width, context)
        if self.model.states:
            yield self._state(sequences, width)
        if self.efficiency.activation_bytes or self.efficiency.logit_bytes:
            yield self._activations(tokens)
        if self.efficiency.product_latency_s:
            yield self._latency()
        if self.layout.devices > 1 and self.model.hidden:
            yield self._communication(tokens)

    def _dense(self, tokens: FloatArray) -> PassPart:
        """Everything a pass reads but routed experts and look-up tables, as one component."""
        groups, tp, efficiency = self.model.weights, self.layout.tp, self.efficiency
        read = sum(group.read_params * group.bytes_per_param for group in groups) / tp
        flops = sum(2 * group.multiplied_params for group in groups) / tp
        flops_s = sum(2 * group.multiplied_params / self._rate(group.compute_dtype) for group in groups) / tp
        wide, narrow = self._weights_s()
        bytes_s = np.asarray(wide + narrow)
        if efficiency.product_cost > 1:
            bytes_s = np.where(tokens > 1, efficiency.product_cost, 1.0) * wide + narrow
        if efficiency.wide_cost > 1:
            bytes_s = bytes_s + (self._readings(tokens) - 1) * narrow
        return self._part("dense", np.asarray(read), flops * tokens, bytes_s, flops_s * tokens)

    def _weights_s(self) -> tuple[float, float]:
        """Seconds of reading the dense weights once: those of 16 bits and more, and quantised ones."""
        sums = [0.0, 0.0]
        for group in self.model.weights:
            share = self.efficiency.weight_share(group.bytes_per_param)
            read = group.read_params * group.bytes_per_param / self.layout.tp
            sums[group.bytes_per_param < SIXTEEN_BIT] += read / (self.rates.memory_bytes_per_s * share)
        return sums[0], sums[1]

    def _readings(self, tokens: FloatArray) -> FloatArray:
        """How many readings of quantised weights a pass takes: row by row, at most as the wide kernel."""
        efficiency = self.efficiency
        narrow = np.minimum(1 + efficiency.row_cost * (tokens - 1), efficiency.wide_cost)
        return np.where(tokens <= efficiency.row_limit, narrow, efficiency.wide_cost)

    def _experts(self, tokens: FloatArray, batch: FloatArray, width: FloatArray) -> PassPart:
        """Routed experts: bytes of those touched, FLOPs of those chosen; padding touches none."""
        ranks, efficiency = self.layout.expert_ranks, self.efficiency
        independent = batch * (1 + efficiency.expert_overlap * (width - 1))
        read: FloatArray = np.zeros(())
        bytes_s: FloatArray = np.zeros(())
        flops = flops_s = 0.0
        for group in self.model.experts:
            touched = touched_experts(group.n_experts, group.top_k, independent, efficiency.routing_skew)
            moved = touched * (group.n_layers * group.params_per_expert * group.bytes_per_param / ranks)
            share = efficiency.weight_share(group.bytes_per_param) * efficiency.expert_memory
            read, bytes_s = read + moved, bytes_s + moved / (self.rates.memory_bytes_per_s * share)
            flops += 2 * group.active_params / ranks
            rate = self._rate(group.compute_dtype) * efficiency.expert_compute
            flops_s += 2 * group.active_params / ranks / rate
        return self._part("experts", read, flops * tokens, bytes_s, flops_s * tokens)

    def _attention(
        self, group: AttentionGroup, batch: FloatArray, width: FloatArray, context: FloatArray
    ) -> PassPart:
        """Reading the cache, writing q entries to it, and the products with it, of like layers."""
        kept = np.minimum(context, np.inf if group.window is None else group.window) / group.tokens_per_entry
        attended = kept if group.top_k is None else np.minimum(kept, group.top_k)
        efficiency = self.efficiency
        rereads = 1 + efficiency.reread(latent=group.name.startswith("mla")) * (width - 1)
        # MLA and few KV heads: a rank beyond their number holds a copy, so it saves no bytes.
        entry_bytes = group.kv_bytes_per_entry / min(self.layout.tp, group.kv_heads)
        # Constants multiply the smaller factor: over a grid only one product has its full size.
        read = (batch * entry_bytes) * (rereads * attended + width / group.tokens_per_entry)
        flops = (batch * width * (group.flops_per_pair / self.layout.tp)) * (attended + (width + 1) / 2)
        share = efficiency.memory_efficiency if efficiency.kv_efficiency is None else efficiency.kv_efficiency
        bytes_s = read / (self.rates.memory_bytes_per_s * share)
        flops_s = flops / self._rate(self.model.activation_dtype)
        return self._part(f"attention, {group.name}", read, flops, bytes_s, flops_s)

    def _state(self, batch: FloatArray, width: FloatArray) -> PassPart:
        """Recurrent states, read and written once, and a snapshot after each further token."""
        snapshots = width - 1 if self.efficiency.state_snapshots else np.zeros(())
        moved = batch * (STATE_ACCESSES + snapshots) * (self.model.state_bytes / self.layout.tp)
        return self._traffic("state", moved)

    def _activations(self, tokens: FloatArray) -> PassPart:
        per_token = self.efficiency.activation_bytes * self.model.hidden * self.model.n_layers
        per_token += self.efficiency.logit_bytes * logits_per_token(self.model)
        return self._traffic("activations", tokens * per_token)

    def _latency(self) -> PassPart:
        """What the matrix products take whatever their size."""
        zero = np.zeros(())
        seconds = np.asarray(matrix_products(self.model) * self.efficiency.product_latency_s)
        return PassPart(name="latency", bytes=zero, flops=zero, bytes_s=zero, flops_s=zero, seconds=seconds)

    def _communication(self, tokens: FloatArray) -> PassPart:
        """All-reduces of tensor parallelism, all-to-alls of data-parallel attention, hops between stages."""
        layout = self.layout
        link = np.inf if self.rates.link_bytes_per_s is None else self.rates.link_bytes_per_s
        message = tokens * self.model.hidden * WIRE_BYTES
        reduces = 2 * self.model.n_layers * (layout.tp > 1)
        moved = reduces * (2 * (layout.tp - 1) / layout.tp) * message
        exchanges, ranks = 0, layout.tp * layout.dp
        if layout.dp > 1:
            for group in self.model.experts:
                exchanges += 2 * group.n_layers  # dispatch and combine
                # The tp ranks of a group hold the same tokens after the all-reduce: each sends its share.
                copies = min(group.top_k, ranks) * (ranks - 1) / ranks / layout.tp
                moved = moved + 2 * group.n_layers * copies * message
        moved = moved + (layout.pp - 1) * message
        collectives = reduces + exchanges + layout.pp - 1
        bytes_s = moved / (link * self.efficiency.link_efficiency)
        seconds = bytes_s + collectives * self.efficiency.link_latency_s
        zero = np.zeros(())
        return PassPart(
            name="communication", bytes=moved, flops=zero, bytes_s=bytes_s, flops_s=zero, seconds=seconds
        )

    def _with_overheads(self, device_s: FloatArray, tokens: FloatArray) -> FloatArray:
        """The small kernels and the pass's own overhead; without a graph, at least what launches take."""
        efficiency = self.efficiency
        gaps_s = small_kernels(self.model, efficiency) * efficiency.kernel_gap_s
        if efficiency.graph_sizes is None:
            added_s = gaps_s + efficiency.pass_overhead_s
            return device_s + added_s if added_s else device_s  # a grid is not copied for nothing
        launches_s = launched_kernels(self.model, efficiency) * efficiency.kernel_launch_s
        captured = tokens <= max(efficiency.graph_sizes, default=0)
        busy_s = device_s + gaps_s
        return np.where(captured, busy_s, np.maximum(busy_s, launches_s)) + efficiency.pass_overhead_s

    def _traffic(self, name: str, moved: FloatArray) -> PassPart:
        """A component without FLOPs."""
        zero = np.zeros(())
        bytes_s = moved / (self.rates.memory_bytes_per_s * self.efficiency.memory_efficiency)
        return self._part(name, moved, zero, bytes_s, zero)

    def _part(
        self, name: str, read: FloatArray, flops: FloatArray, bytes_s: FloatArray, flops_s: FloatArray
    ) -> PassPart:
        seconds = blended(bytes_s, flops_s, self.efficiency.sharpness)
        return PassPart(name=name, bytes=read, flops=flops, bytes_s=bytes_s, flops_s=flops_s, seconds=seconds)

    def _rate(self, dtype: str) -> float:
        """FLOPs per second reached in this dtype."""
        return self.rates.flops_per_s[dtype] * self.efficiency.compute_share(dtype)


def blended(bytes_s: FloatArray, flops_s: FloatArray, sharpness: float) -> FloatArray:
    """(a^s + b^s)^(1/s): the larger for s = ∞, the sum for s = 1, in between a rounded corner.

    >>> float(blended(np.array(3.0), np.array(4.0), 2.0))
    5.0
    """
    longer = np.maximum(bytes_s, flops_s)
    if sharpness == np.inf:
        return longer
    if sharpness == 1:
        return np.asarray(bytes_s + flops_s)
    # Scaled by the larger, so that no power overflows or vanishes; in place, since grids are large.
    blend = np.asarray(np.minimum(bytes_s, flops_s) / np.maximum(longer, _SMALLEST))
    squares = _SQUARES.get(sharpness)
    if squares is None:
        np.power(blend, sharpness, out=blend)
        blend += 1
        np.power(blend, 1 / sharpness, out=blend)
    else:
        for _ in range(squares):
            np.square(blend, out=blend)
        blend += 1
        for _ in range(squares):
            np.sqrt(blend, out=blend)
    blend *= longer
    return blend
