"""How a pass is executed: over which devices, at which rates, and how far from the datasheet."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from specmath.checks import require_count, require_range
from specmath.errors import InputError

MAX_GRAPHS = 8192
"""Most captured sizes: engines capture some dozens."""
SIXTEEN_BIT, EIGHT_BIT = 1.5, 0.9
"""Bytes per parameter, scales included, from which weights count as 16-bit and as 8-bit."""
_SHARES = (
    *("memory_efficiency", "eight_bit_memory", "four_bit_memory"),
    *("compute_efficiency", "eight_bit_compute", "four_bit_compute"),
    *("expert_memory", "expert_compute", "expert_overlap", "link_efficiency"),
)
_NOT_NEGATIVE = (
    *("row_cost", "activation_bytes", "logit_bytes", "link_latency_s", "product_latency_s"),
    *("kernels_per_layer", "latent_kernels", "expert_kernels"),
    *("kernel_gap_s", "kernel_launch_s", "pass_overhead_s"),
)


def _require(name: str, value: float, low: float = 0.0, high: float = math.inf, above: float = -1.0) -> None:
    """Refuse a constant outside its range; compared first, since ranges build dozens of these records."""
    if not (low <= value <= high and above < value < math.inf):
        bounds = {"high": high} if above < 0 else {"high": high, "above": above}
        require_range(name, value, **({"low": low} if above < 0 else {}), **bounds)


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
        memory_efficiency: Share of the memory bandwidth that 16-bit weights reach, (0, 1].
        eight_bit_memory, four_bit_memory: What weights of about 8 and 4 bits reach of that share, (0, 1].
        kv_efficiency: Share of the memory bandwidth that reading a cache reaches; None for memory_efficiency.
        compute_efficiency: Share of the peak FLOP rate that 16-bit products reach, (0, 1].
        eight_bit_compute, four_bit_compute: What products in 8 and 4 bits reach of that share, (0, 1].
        expert_memory, expert_compute: What routed experts reach of the shares of dense layers, (0, 1].
        sharpness: s of a component: infinite for the larger of bytes and FLOPs, 1 for their sum.
        kv_reread: ρ in [0, 1]: 0 where a pass reads the cache once per sequence, 1 once per query token.
        latent_reread: The same for the compressed cache of latent attention (MLA); None for kv_reread.
        expert_overlap: x in (0, 1]: the experts touched are those of B·(1 + x·(q − 1)) tokens.
        routing_skew: Exponent of the Zipf law of expert popularity; 0 for even routing.
        row_cost: What each token beyond the first adds to reading quantised weights, as a share of one
            reading, in kernels that take a few rows one by one; 0 where reading serves all rows.
        row_limit: Tokens up to which those kernels run.
        wide_cost: Readings that more tokens cost, in the kernel that takes over beyond `row_limit`.
        product_cost: Readings of 16-bit weights that two tokens and more cost, where one token has a faster
            kernel of its own.
        activation_bytes: Activation traffic per token, in bytes per unit of hidden·layers.
        logit_bytes: The same per token and entry of the vocabulary.
        state_snapshots: Whether a pass over q tokens writes a state after each, to fall back to.
        link_efficiency: Share of the link's bandwidth reached, (0, 1].
        link_latency_s: Seconds of a collective without its bytes.
        product_latency_s: Seconds of a matrix product without its bytes and FLOPs.
        kernels_per_layer: Small kernels per layer, matrix products aside.
        latent_kernels, expert_kernels: More of them in a layer of latent attention, and of routed experts.
        kernel_gap_s: Seconds of a small kernel inside a captured graph.
        kernel_launch_s: Seconds the host takes to launch a kernel in eager mode.
        graph_sizes: Captured tokens per pass, ascending: t is padded to the next one, and beyond the last the
            pass runs eager. None for every size captured; empty for eager throughout.
        pass_overhead_s: Seconds added to every pass.
    """

    memory_efficiency: float = 1.0
    eight_bit_memory: float = 1.0
    four_bit_memory: float = 1.0
    kv_efficiency: float | None = None
    compute_efficiency: float = 1.0
    eight_bit_compute: float = 1.0
    four_bit_compute: float = 1.0
    expert_memory: float = 1.0
    expert_compute: float = 1.0
    sharpness: float = math.inf
    kv_reread: float = 0.0
    latent_reread: float | None = None
    expert_overlap: float = 1.0
    routing_skew: float = 0.0
    row_cost: float = 0.0
    row_limit: int = 1
    wide_cost: float = 1.0
    product_cost: float = 1.0
    activation_bytes: float = 0.0
    logit_bytes: float = 0.0
    state_snapshots: bool = True
    link_efficiency: float = 1.0
    link_latency_s: float = 0.0
    product_latency_s: float = 0.0
    kernels_per_layer: float = 0.0
    latent_kernels: float = 0.0
    expert_kernels: float = 0.0
    kernel_gap_s: float = 0.0
    kernel_launch_s: float = 0.0
    graph_sizes: tuple[int, ...] | None = None
    pass_overhead_s: float = 0.0

    def __post_init__(self) -> None:
        for name in _SHARES:
            _require(name, getattr(self, name), high=1, above=0)
        if self.kv_efficiency is not None:
            _require("kv_efficiency", self.kv_efficiency, high=1, above=0)
        if not self.sharpness >= 1:
            raise InputError("sharpness", f"must be at least 1, got {self.sharpness}")
        _require("kv_reread", self.kv_reread, 0, 1)
        if self.latent_reread is not None:
            _require("latent_reread", self.latent_reread, 0, 1)
        _require("routing_skew", self.routing_skew, 0, 4)
        for name in _NOT_NEGATIVE:
            _require(name, getattr(self, name), 0)
        require_count("row_limit", self.row_limit, 1, 4096)
        for name in ("wide_cost", "product_cost"):
            _require(name, getattr(self, name), 1)
        self._settle_graph_sizes()

    def _settle_graph_sizes(self) -> None:
        """Ascending, without repeats, as a tuple."""
        if self.graph_sizes is not None:
            object.__setattr__(self, "graph_sizes", tuple(self.graph_sizes))
        if len(self.graph_sizes or ()) > MAX_GRAPHS:
            raise InputError("graph_sizes", f"must be at most {MAX_GRAPHS:,} sizes")
        if self.graph_sizes:
            sizes = require_count("graph_sizes", self.graph_sizes, 1)
            object.__setattr__(self, "graph_sizes", tuple(sorted(set(sizes.tolist()))))

    def weight_share(self, bytes_per_param: float) -> float:
        """Share of the memory bandwidth that weights of this width reach."""
        if bytes_per_param >= SIXTEEN_BIT:
            return self.memory_efficiency
        narrow = self.eight_bit_memory if bytes_per_param >= EIGHT_BIT else self.four_bit_memory
        return self.memory_efficiency * narrow

    def compute_share(self, dtype: str) -> float:
        """Share of the peak that products in this dtype reach."""
        if dtype == "fp4":
            return self.compute_efficiency * self.four_bit_compute
        return self.compute_efficiency * (self.eight_bit_compute if dtype in ("fp8", "int8") else 1.0)

    def reread(self, *, latent: bool) -> float:
        """ρ of a kind of attention."""
        return self.latent_reread if latent and self.latent_reread is not None else self.kv_reread


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTimes:
    """What the host takes beside the device, overlapping with nothing. The defaults are the ideal: no time.

    Attributes:
        plain_step_s: Seconds of scheduling and sampling per plain step, o_ar.
        speculative_step_s: The same per speculative step, o_sd, drafting aside.
        speculative_sequence_s: What each sequence of a data-parallel rank adds to a speculative step.
        draft_pass_s: Seconds per draft pass.
        lookup_token_s: Seconds per token that a lookup draft proposes.
    """

    plain_step_s: float = 0.0
    speculative_step_s: float = 0.0
    speculative_sequence_s: float = 0.0
    draft_pass_s: float = 0.0
    lookup_token_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            _require(field.name, getattr(self, field.name), 0)

    def speculative_s(self, batch: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """o_sd of a step over `batch` sequences of a rank."""
        sequences = np.asarray(batch, dtype=float)
        return np.asarray(self.speculative_step_s + self.speculative_sequence_s * sequences)


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
