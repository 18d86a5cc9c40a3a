"""How a pass is executed: over which devices, at which rates, and how far from the datasheet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from specmath.checks import require_count, require_range
from specmath.errors import InputError

MAX_GRAPHS = 8192
"""Most captured sizes: engines capture some dozens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a model is spread over devices.

    Attributes:
        tp: Tensor parallelism: ranks that share every layer.
        dp: Data-parallel attention: groups of tp ranks that each hold all but the experts, and see B/dp
            sequences; experts see all of them.
        ep: Expert parallelism: ranks over which whole experts are spread; 1 splits each expert over tp·dp.
        pp: Pipeline stages, run in series for one pass.
    """

    tp: int = 1
    dp: int = 1
    ep: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "dp", "ep", "pp"):
            require_count(name, getattr(self, name), 1, 4096)
        if self.ep > 1 and (self.tp * self.dp) % self.ep:
            raise InputError("ep", f"must divide tp · dp = {self.tp * self.dp}, got {self.ep}")

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.tp * self.dp * self.pp

    @property
    def expert_ranks(self) -> int:
        """Ranks over which the bytes and FLOPs of the routed experts are spread."""
        return self.ep if self.ep > 1 else self.tp * self.dp


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """How far software is from the datasheet. The defaults are the ideal: peaks and no overhead.

    Attributes:
        memory_efficiency: Share of the memory bandwidth reached, (0, 1].
        compute_efficiency: Share of the peak FLOP rate reached, (0, 1].
        sharpness: s of a component: infinite for the larger of bytes and FLOPs, 1 for their sum.
        kv_reread: ρ in [0, 1]: 0 where a pass reads the cache once per sequence, 1 once per query token.
        expert_overlap: x in (0, 1]: the experts touched are those of B·(1 + x·(q − 1)) independent tokens.
        activation_bytes: Activation traffic per token, in bytes per unit of hidden·layers.
        logit_bytes: The same per token and entry of the vocabulary.
        state_snapshots: Whether a pass over q tokens writes a state after each, to fall back to.
        link_latency_s: Seconds of a collective without its bytes.
        kernels_per_layer: Kernels launched per layer.
        kernel_gap_s: Seconds between kernels inside a captured graph.
        kernel_launch_s: Seconds the host takes to launch a kernel in eager mode.
        graph_sizes: Captured tokens per pass, ascending: t is padded to the next one, and beyond the last the
            pass runs eager. None for every size captured; empty for eager throughout.
        pass_overhead_s: Seconds added to every pass.
    """

    memory_efficiency: float = 1.0
    compute_efficiency: float = 1.0
    sharpness: float = math.inf
    kv_reread: float = 0.0
    expert_overlap: float = 1.0
    activation_bytes: float = 0.0
    logit_bytes: float = 0.0
    state_snapshots: bool = True
    link_latency_s: float = 0.0
    kernels_per_layer: float = 0.0
    kernel_gap_s: float = 0.0
    kernel_launch_s: float = 0.0
    graph_sizes: tuple[int, ...] | None = None
    pass_overhead_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("memory_efficiency", "compute_efficiency", "expert_overlap"):
            require_range(name, getattr(self, name), high=1, above=0)
        if not self.sharpness >= 1:
            raise InputError("sharpness", f"must be at least 1, got {self.sharpness}")
        require_range("kv_reread", self.kv_reread, 0, 1)
        for name in ("activation_bytes", "logit_bytes", "link_latency_s", "kernels_per_layer"):
            require_range(name, getattr(self, name), 0)
        for name in ("kernel_gap_s", "kernel_launch_s", "pass_overhead_s"):
            require_range(name, getattr(self, name), 0)
        if self.graph_sizes is not None:
            object.__setattr__(self, "graph_sizes", tuple(self.graph_sizes))
        if len(self.graph_sizes or ()) > MAX_GRAPHS:
            raise InputError("graph_sizes", f"must be at most {MAX_GRAPHS:,} sizes")
        if self.graph_sizes:
            sizes = require_count("graph_sizes", self.graph_sizes, 1)
            object.__setattr__(self, "graph_sizes", tuple(sorted(set(sizes.tolist()))))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """What the host takes beside the device, overlapping with nothing. The defaults are the ideal: no time.

    Attributes:
        plain_step_s: Seconds of scheduling and sampling per plain step, o_ar.
        speculative_step_s: The same per speculative step, o_sd, drafting aside.
        draft_pass_s: Seconds per draft pass.
        lookup_token_s: Seconds per token that a lookup draft proposes.
    """

    plain_step_s: float = 0.0
    speculative_step_s: float = 0.0
    draft_pass_s: float = 0.0
    lookup_token_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("plain_step_s", "speculative_step_s", "draft_pass_s", "lookup_token_s"):
            require_range(name, getattr(self, name), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """What one device does per second.

    Attributes:
        memory_bytes_per_s: Bytes read from memory; infinite for the compute-bound limit.
        flops_per_s: Dense FLOPs by compute dtype; infinite for the memory-bound limit.
        link_bytes_per_s: Bytes to its peers, one direction; None where there is no link.
    """

    memory_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    link_bytes_per_s: float | None = None

    def __post_init__(self) -> None:
        rates = (self.memory_bytes_per_s, *self.flops_per_s.values())
        if not all(rate > 0 for rate in rates) or (
            self.link_bytes_per_s is not None and not self.link_bytes_per_s > 0
        ):
            raise InputError("rates", "must all be above 0; infinite where a side is free")

    def without_flops(self) -> DeviceRates:
        """The same device with free arithmetic and communication."""
        return replace(self, flops_per_s=dict.fromkeys(self.flops_per_s, math.inf), link_bytes_per_s=math.inf)

    def without_bytes(self) -> DeviceRates:
        """The same device with free memory traffic and communication."""
        return replace(self, memory_bytes_per_s=math.inf, link_bytes_per_s=math.inf)


IDEAL = Efficiency()
"""Datasheet peaks, perfect overlap, no overhead."""
NO_HOST = HostTimes()
"""A host that takes no time."""
ONE_DEVICE = Layout()
"""A model on a single device."""
