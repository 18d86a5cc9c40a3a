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

from specmath.checks import FloatArray, Numbers, like_inputs, require_count, require_range
from specmath.errors import InputError
from specmath.execution import IDEAL, ONE_DEVICE, DeviceRates, Efficiency, Layout
from specmath.model import AttentionGroup, ModelShape

MAX_TOKENS = 1e12
"""Longest context, and most tokens of a sequence in a pass, that are taken for more than a slip."""
WIRE_BYTES = 2
"""Bytes of an activation that travels between devices: 16 bits."""
_SMALLEST = float(np.finfo(float).tiny)
STATE_ACCESSES = 2
"""Times a recurrent state is moved in a pass over one token: read and written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassPart:
    """One component of a pass, on one device; arrays broadcast over batch, tokens and context.

    Attributes:
        name: dense, experts, attention …, state, activations, communication or overhead.
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
        tokens = self._rank_batch(batch) * width
        sizes = self.efficiency.graph_sizes
        if not sizes:
            return tokens
        places = np.searchsorted(np.array(sizes, dtype=float), tokens)
        padded = np.array([*sizes, np.inf])[places]
        return np.where(np.isfinite(padded), padded, tokens)

    def _rank_batch(self, batch: FloatArray) -> FloatArray:
        """Sequences of the busiest data-parallel rank."""
        return np.ceil(batch / self.layout.dp) if self.layout.dp > 1 else batch

    def _device_parts(self, batch: FloatArray, width: FloatArray, context: FloatArray) -> Iterator[PassPart]:
        tokens = self._tokens(batch, width)
        yield self._dense(tokens)
        if self.model.experts:
            yield self._experts(tokens * self.layout.dp, batch, width)
        sequences = self._rank_batch(batch)
        for group in self.model.attention:
            yield self._attention(group, sequences, width, context)
        if self.model.states:
            yield self._state(sequences, width)
        if self.efficiency.activation_bytes or self.efficiency.logit_bytes:
            yield self._activations(tokens)
        if self.layout.devices > 1 and self.model.hidden:
            yield self._communication(tokens)

    def _dense(self, tokens: FloatArray) -> PassPart:
        """Everything a pass reads but routed experts and look-up tables, as one component."""
        groups, tp = self.model.weights, self.layout.tp
        read = sum(group.read_params * group.bytes_per_param for group in groups) / tp
        seconds = sum(2 * group.multiplied_params / self._peak(group.compute_dtype) for group in groups) / tp
        flops = sum(2 * group.multiplied_params for group in groups) / tp
        return self._part("dense", np.asarray(read), flops * tokens, seconds * tokens)

    def _experts(self, tokens: FloatArray, batch: FloatArray, width: FloatArray) -> PassPart:
        """Routed experts: bytes of those touched, FLOPs of those chosen; padding touches none."""
        ranks, overlap = self.layout.expert_ranks, self.efficiency.expert_overlap
        independent = batch * (1 + overlap * (width - 1))
        read: FloatArray = np.zeros(())
        flops = seconds = 0.0
        for group in self.model.experts:
            touched = expected_experts(group.n_experts, group.top_k, independent)
            read = read + touched * (group.n_layers * group.params_per_expert * group.bytes_per_param / ranks)
            flops += 2 * group.active_params / ranks
            seconds += 2 * group.active_params / ranks / self._peak(group.compute_dtype)
        return self._part("experts", read, flops * tokens, seconds * tokens)

    def _attention(
        self, group: AttentionGroup, batch: FloatArray, width: FloatArray, context: FloatArray
    ) -> PassPart:
        """Reading the cache, writing q entries to it, and the products with it, of like layers."""
        kept = np.minimum(context, np.inf if group.window is None else group.window) / group.tokens_per_entry
        attended = kept if group.top_k is None else np.minimum(kept, group.top_k)
        rereads = 1 + self.efficiency.kv_reread * (width - 1)
        # MLA and few KV heads: a rank beyond their number holds a copy, so it saves no bytes.
        entry_bytes = group.kv_bytes_per_entry / min(self.layout.tp, group.kv_heads)
        # Constants multiply the smaller factor: over a grid only one product has its full size.
        read = (batch * entry_bytes) * (rereads * attended + width / group.tokens_per_entry)
        flops = (batch * width * (group.flops_per_pair / self.layout.tp)) * (attended + (width + 1) / 2)
        return self._part(
            f"attention, {group.name}", read, flops, flops / self._peak(self.model.activation_dtype)
        )

    def _state(self, batch: FloatArray, width: FloatArray) -> PassPart:
        """Recurrent states, read and written once, and a snapshot after each further token."""
        snapshots = width - 1 if self.efficiency.state_snapshots else np.zeros(())
        moved = batch * (STATE_ACCESSES + snapshots) * (self.model.state_bytes / self.layout.tp)
        return self._part("state", moved, np.zeros(()), np.zeros(()))

    def _activations(self, tokens: FloatArray) -> PassPart:
        per_token = self.efficiency.activation_bytes * self.model.hidden * self.model.n_layers
        per_token += self.efficiency.logit_bytes * self.model.vocab
        return self._part("activations", tokens * per_token, np.zeros(()), np.zeros(()))

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
        bytes_s = moved / link
        seconds = bytes_s + collectives * self.efficiency.link_latency_s
        zero = np.zeros(())
        return PassPart(
            name="communication", bytes=moved, flops=zero, bytes_s=bytes_s, flops_s=zero, seconds=seconds
        )

    def _with_overheads(self, device_s: FloatArray, tokens: FloatArray) -> FloatArray:
        """Gaps between captured kernels, or the host that launches them one by one, and the pass's own."""
        efficiency = self.efficiency
        kernels = efficiency.kernels_per_layer * self.model.n_layers
        replayed = device_s + np.float64(kernels * efficiency.kernel_gap_s)
        if efficiency.graph_sizes is None:
            return np.asarray(replayed + efficiency.pass_overhead_s)
        eager = np.maximum(device_s, kernels * efficiency.kernel_launch_s)
        captured = tokens <= max(efficiency.graph_sizes, default=0)
        return np.where(captured, replayed, eager) + efficiency.pass_overhead_s

    def _part(self, name: str, read: FloatArray, flops: FloatArray, flops_s: FloatArray) -> PassPart:
        bytes_s = read / (self.rates.memory_bytes_per_s * self.efficiency.memory_efficiency)
        efficiency = self.efficiency.compute_efficiency
        by_flops = flops_s if efficiency == 1 else flops_s / efficiency
        seconds = blended(bytes_s, by_flops, self.efficiency.sharpness)
        return PassPart(
            name=name, bytes=read, flops=flops, bytes_s=bytes_s, flops_s=by_flops, seconds=seconds
        )

    def _peak(self, dtype: str) -> float:
        return self.rates.flops_per_s[dtype]


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
    np.power(blend, sharpness, out=blend)
    blend += 1
    np.power(blend, 1 / sharpness, out=blend)
    blend *= longer
    return blend


def expected_experts(experts: npt.ArrayLike, top_k: npt.ArrayLike, tokens: npt.ArrayLike) -> Numbers:
    """Expected number of distinct experts that `tokens` tokens touch in one MoE layer.

        U = N · (1 − (1 − K/N)^t)

    Assumes independent, uniform routing; real routing of neighbouring tokens overlaps, so U is a ceiling.

    Args:
        experts: N, routed experts of the layer, at least 1.
        top_k: K, experts a token is routed to, 0 … N.
        tokens: t, tokens in the pass, at least 0.

    Returns:
        Experts touched: 0 at t = 0, K at t = 1, towards N for many tokens.

    Source: MoESD (arXiv 2505.19645).

    >>> expected_experts(8, 2, 1), round(expected_experts(128, 8, 4), 1)
    (2.0, 29.1)
    """
    n = require_count("experts", experts, 1).astype(float)
    active = require_count("top_k", top_k, 0).astype(float)
    if np.any(active > n):
        raise InputError("top_k", "must not exceed experts")
    count = require_range("tokens", tokens, 0)
    return like_inputs(n * (1 - (1 - active / n) ** count))
