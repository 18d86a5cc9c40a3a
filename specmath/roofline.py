"""One forward pass on one device, as a roofline: bytes over bandwidth against FLOPs over peak.

The rates may be infinite: a pass with an infinite peak is free of FLOPs (memory-bound limit), one with an
infinite bandwidth is free of bytes (compute-bound limit).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import Numbers, like_inputs, require_count, require_range
from specmath.errors import InputError
from specmath.model import ModelCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRates:
    """What a device reads and computes per second.

    Attributes:
        memory_bytes_per_s: Bytes read from memory per second; infinite for the compute-bound limit.
        flops_per_s: Dense FLOPs per second in the dtype of the product; infinite for the memory-bound limit.
    """

    memory_bytes_per_s: float
    flops_per_s: float

    def without_flops(self) -> DeviceRates:
        """The same device with free arithmetic."""
        return DeviceRates(memory_bytes_per_s=self.memory_bytes_per_s, flops_per_s=math.inf)

    def without_bytes(self) -> DeviceRates:
        """The same device with free memory traffic."""
        return DeviceRates(memory_bytes_per_s=math.inf, flops_per_s=self.flops_per_s)


def counts_pass_time(
    model: ModelCounts, tokens: npt.ArrayLike, *, rates: DeviceRates, bytes_per_param: float
) -> Numbers:
    """Seconds of one forward pass over `tokens` tokens (all sequences together), weights only.

        T = max(P_total · w / bandwidth, 2 · P_active · tokens / peak)

    Assumes context 0 (no KV cache), one device, no communication and no overhead; bytes and FLOPs overlap
    perfectly. A datasheet figure: neither a forecast nor a bound.

    Args:
        model: Parameter counts.
        tokens: Tokens in the pass, above 0; scalar or array. It need not be whole: a lookup draft verifies
            1 + h·k tokens per sequence on average.
        rates: Memory and arithmetic rate of the device.
        bytes_per_param: Width w of a stored weight in bytes (2 for bf16).

    Source: Leviathan et al. 2023 assume the memory-bound end; the two-sided form is the roofline of
    Williams et al. 2009.

    >>> h100 = DeviceRates(memory_bytes_per_s=3.35e12, flops_per_s=989e12)
    >>> dense = ModelCounts(name="70B", total_params=70e9, active_params=70e9)
    >>> round(counts_pass_time(dense, 1, rates=h100, bytes_per_param=2) * 1e3, 2)  # 140 GB / 3.35 TB/s
    41.79
    """
    count = require_range("tokens", tokens, above=0)
    bytes_s = model.total_params * bytes_per_param / rates.memory_bytes_per_s
    flops_s = 2 * model.active_params * count / rates.flops_per_s
    return like_inputs(np.maximum(bytes_s, flops_s))


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
