"""What a calibrated machine takes: laws of a forward pass, of a chain of draft passes, and of the host.

Each law is one formula with constants in seconds. `specmath.pass_fits` draws the constants from measured
passes; `specmath.calibrated_source` asks the laws where no measured pass is near.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, Numbers, like_inputs, require_count, require_range
from specmath.errors import InputError
from specmath.experts import expected_experts

MAX_SHARPNESS = 32.0
"""Sharpness from which on the sum of powers is the larger of the two to within 3 percent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassLaw:
    """Seconds of one forward pass of a model: B sequences, q tokens of each, C tokens of each in the cache.

        T = f + (w^s + (τ·t)^s)^(1/s) + x·U(t)/N + κ·B·C·(1 + ρ·(q − 1)),   t = B·q

    s = 1 is the plain sum, in which f and w are one constant. A pass of a single token may run other kernels
    (a product with a vector, not with a matrix): there `single_token_s` stands for all but the cache term.

    Attributes:
        weights_s: w, reading the weights once, at least 0; with s = 1 launches too.
        compute_s_per_token: τ, computing one token, at least 0.
        kv_s_per_token: κ, reading one cached token, at least 0.
        kv_reread: ρ, share of the cache read once more per further token of a sequence, in [0, 1].
        fixed_s: f, what no batch changes and nothing hides, at least 0; 0 where s = 1.
        sharpness: s, from 1 (sum) to `MAX_SHARPNESS` (the larger of the two).
        experts_s: x, reading all routed experts, at least 0.
        expert_counts: N routed experts of a layer and K that a token visits; None for a dense model.
        single_token_s: A pass of one token without its cache term, above 0; None where the law holds there.

    >>> law = PassLaw(weights_s=8.0, compute_s_per_token=0.5, kv_s_per_token=0.001)
    >>> law.pass_s(2, 3, 1000)  # 8 + 0.5·6 + 0.001·2000
    13.0
    """

    weights_s: float
    compute_s_per_token: float
    kv_s_per_token: float = 0.0
    kv_reread: float = 0.0
    fixed_s: float = 0.0
    sharpness: float = 1.0
    experts_s: float = 0.0
    expert_counts: tuple[int, int] | None = None
    single_token_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("weights_s", "compute_s_per_token", "kv_s_per_token", "fixed_s", "experts_s"):
            require_range(name, getattr(self, name), 0)
        require_range("kv_reread", self.kv_reread, 0, 1)
        require_range("sharpness", self.sharpness, 1, MAX_SHARPNESS)
        if self.single_token_s is not None:
            require_range("single_token_s", self.single_token_s, above=0)
        if self.experts_s and self.expert_counts is None:
            raise InputError("expert_counts", "is missing; a time of experts needs their number")
        if not self.weights_s + self.fixed_s + self.compute_s_per_token > 0:
            raise InputError("weights_s", "must be above 0 where nothing else takes time")

    def pass_s(self, batch: npt.ArrayLike, width: npt.ArrayLike, context: npt.ArrayLike) -> Numbers:
        """Seconds of a pass.

        Args:
            batch: B, sequences, above 0.
            width: q, tokens of each sequence, at least 1; a mean need not be whole.
            context: C, tokens of each in the cache, at least 0.

        Returns:
            Seconds, above 0.
        """
        sequences = require_range("batch", batch, above=0)
        tokens = require_range("width", width, 1)
        cached = sequences * require_range("context", context, 0)
        kv_s = self.kv_s_per_token * cached * (1 + self.kv_reread * (tokens - 1))
        return like_inputs(np.asarray(self._without_cache_s(sequences * tokens) + kv_s))

    def _without_cache_s(self, tokens: FloatArray) -> FloatArray:
        compute_s, s = self.compute_s_per_token * tokens, self.sharpness
        longer = np.maximum(self.weights_s, compute_s)
        shorter = np.minimum(self.weights_s, compute_s)
        ratio = np.divide(shorter, longer, out=np.zeros_like(longer), where=longer > 0)
        seconds = self.fixed_s + longer * (1 + ratio**s) ** (1 / s)  # powers of seconds would underflow
        if self.expert_counts is not None:
            experts, top_k = self.expert_counts
            seconds = seconds + self.experts_s * expected_experts(experts, top_k, tokens) / experts
        if self.single_token_s is None:
            return np.asarray(seconds)
        return np.where(tokens == 1, self.single_token_s, seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLaw:
    """Seconds of drafting k tokens for B sequences in k passes one after another, at context C.

        k·(d0 + d1·B + κ_d·B·C) + r

    Attributes:
        fixed_s: d0, what no batch changes of one pass, at least 0.
        s_per_sequence: d1, what each sequence adds to a pass, at least 0.
        kv_s_per_token: κ_d, reading one cached token of the draft, at least 0.
        round_s: r, what a round takes beside its passes, at least 0.

    >>> DraftLaw(fixed_s=1.0, s_per_sequence=0.25, round_s=0.5).chain_s(3, 2, 0)  # 3·1.5 + 0.5
    5.0
    """

    fixed_s: float
    s_per_sequence: float = 0.0
    kv_s_per_token: float = 0.0
    round_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            require_range(field.name, getattr(self, field.name), 0)

    def chain_s(self, passes: npt.ArrayLike, batch: npt.ArrayLike, context: npt.ArrayLike) -> Numbers:
        """Seconds of `passes` draft passes in a row; 0 for none."""
        k = require_count("passes", passes)
        sequences = require_range("batch", batch, above=0)
        cached = sequences * require_range("context", context, 0)
        one_s = self.fixed_s + self.s_per_sequence * sequences + self.kv_s_per_token * cached
        return like_inputs(np.asarray(np.where(k > 0, k * one_s + self.round_s, 0.0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLaw:
    """Seconds that a step takes beside its passes: sampling, judging the draft, keeping the books.

        h0 + h1·B + h2·B·q

    Attributes:
        fixed_s: h0, at least 0.
        s_per_sequence: h1, at least 0.
        s_per_token: h2 for each token whose distribution is looked at, at least 0.

    >>> HostLaw(fixed_s=1.0, s_per_sequence=0.5).host_s(4, 1)
    3.0
    """

    fixed_s: float = 0.0
    s_per_sequence: float = 0.0
    s_per_token: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            require_range(field.name, getattr(self, field.name), 0)

    def host_s(self, batch: npt.ArrayLike, width: npt.ArrayLike) -> Numbers:
        """Seconds beside the passes of a step whose verification carries `width` tokens of each sequence."""
        sequences = require_range("batch", batch, above=0)
        tokens = sequences * require_range("width", width, 1)
        seconds = self.fixed_s + self.s_per_sequence * sequences + self.s_per_token * tokens
        return like_inputs(np.asarray(seconds))
