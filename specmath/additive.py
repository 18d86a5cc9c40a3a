"""Break-even batch and critical context in closed form, for a machine whose step times are straight lines.

Measured engines near the ridge follow a sum of a fixed time, a time per KV token read and a time per token
computed better than the larger of them. With such a law the advantage of a speculative step is a straight
line in the batch, so that its sign at batch 1 and at large batches tells the whole story.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from specmath.checks import (
    MAX_K,
    FloatArray,
    IntArray,
    Numbers,
    like_inputs,
    require_acceptance_length,
    require_count,
    require_range,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveCost:
    """A machine whose target and draft passes are sums of linear terms, all in seconds.

    A target pass of B sequences with q tokens each, at context C, takes
    w + κ·B·C·(1 + ρ·(q − 1)) + τ·B·q; one draft pass takes d0 + d1·B + κ_d·B·C.

    Attributes:
        weights_s: w, the part of a target pass that no batch changes: reading weights, launches. Above 0.
        kv_s_per_token: κ, reading one token of the target's KV cache, at least 0.
        compute_s_per_token: τ, computing one token of a target pass, at least 0.
        kv_reread: ρ, share of the KV cache read once more per further query token, in [0, 1]: 0 where the
            attention kernel reads it once per sequence, 1 where once per query token.
        draft_fixed_s: d0, the part of a draft pass that no batch changes, at least 0.
        draft_s_per_sequence: d1, what each sequence adds to a draft pass, at least 0.
        draft_kv_s_per_token: κ_d, reading one token of the draft's KV cache in a draft pass, at least 0.
        overhead_s: o_sd, host time of a speculative step, at least 0.
        plain_overhead_s: o_ar, host time of a plain step, at least 0.

    >>> cost = AdditiveCost(weights_s=8, kv_s_per_token=0.001, compute_s_per_token=0.5, kv_reread=0,
    ...                     draft_fixed_s=1, draft_s_per_sequence=0.25, draft_kv_s_per_token=0,
    ...                     overhead_s=2, plain_overhead_s=1)
    >>> cost.plain_step_s(2, 1000)
    12.0
    >>> cost.speculative_step_s(3, 2, 1000)
    20.5
    """

    weights_s: float
    kv_s_per_token: float
    compute_s_per_token: float
    kv_reread: float
    draft_fixed_s: float
    draft_s_per_sequence: float
    draft_kv_s_per_token: float
    overhead_s: float
    plain_overhead_s: float

    def __post_init__(self) -> None:
        for field in fields(self):
            require_range(field.name, getattr(self, field.name), 0, 1 if field.name == "kv_reread" else None)
        require_range("weights_s", self.weights_s, above=0)

    def plain_step_s(self, batch: npt.ArrayLike, context: npt.ArrayLike) -> Numbers:
        """Time of one plain decoding step, w + κ·B·C + τ·B + o_ar.

        Args:
            batch: B, sequences per pass, above 0; a mean batch need not be whole.
            context: C, tokens in the KV cache per sequence, at least 0; a mean need not be whole.

        Returns:
            Seconds, above 0.

        Raises:
            InputError: an argument outside its range.
        """
        sequences = require_range("batch", batch, above=0)
        cached = sequences * require_range("context", context, 0)
        pass_s = self.weights_s + self.kv_s_per_token * cached + self.compute_s_per_token * sequences
        return like_inputs(pass_s + self.plain_overhead_s)

    def speculative_step_s(self, k: npt.ArrayLike, batch: npt.ArrayLike, context: npt.ArrayLike) -> Numbers:
        """Time of one speculative step: k draft passes, one target pass over k + 1 tokens, host time.

        k·(d0 + d1·B + κ_d·B·C) + w + κ·B·C·(1 + ρ·k) + τ·B·(k + 1) + o_sd.

        Args:
            k: Draft tokens per step, a whole number of at least 0.
            batch: B, sequences per pass, above 0; a mean batch need not be whole.
            context: C, tokens in the KV cache per sequence, at least 0; a mean need not be whole.

        Returns:
            Seconds, above 0.

        Raises:
            InputError: an argument outside its range.
        """
        drafts = require_count("k", k, 0, MAX_K)
        sequences = require_range("batch", batch, above=0)
        cached = sequences * require_range("context", context, 0)
        draft_s = self.draft_fixed_s + self.draft_s_per_sequence * sequences
        draft_s = draft_s + self.draft_kv_s_per_token * cached
        verify_s = self.weights_s + self.kv_s_per_token * cached * (1.0 + self.kv_reread * drafts)
        verify_s = verify_s + self.compute_s_per_token * sequences * (drafts + 1)
        return like_inputs(drafts * draft_s + verify_s + self.overhead_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdditiveBreakeven:
    """At which batches speculation wins. Arrays where the inputs were arrays.

    Attributes:
        breakeven_batch: B*, the batch at which the speed-up is 1, as a real number of at least 1; NaN
            where `wins` is always or never.
        wins: `always` or `never` (at whole batches of at least 1), `below` B*, or `above` B*.
    """

    breakeven_batch: Numbers
    wins: str | npt.NDArray[np.str_]


def additive_breakeven(
    cost: AdditiveCost, acceptance_length: npt.ArrayLike, k: npt.ArrayLike, context: npt.ArrayLike
) -> AdditiveBreakeven:
    """The batch at which speculation breaks even, and on which side of it speculation wins.

    B* = [(E − 1)·w − k·d0 − (o_sd − E·o_ar)] / D with D = τ·(k + 1 − E) + k·d1 − G·C and
    G = (E − 1 − ρ·k)·κ − k·κ_d. Speculation wins at B exactly where the numerator exceeds B·D: the
    numerator is what a step gains whatever the batch, D what each sequence takes away from it.

    * wins at batch 1 and at large batches: always
    * at batch 1 only: below B* (D > 0, the usual case)
    * at large batches only: above B* (D < 0: the cache reads saved outweigh all else at long context)
    * at neither: never

    Args:
        cost: The machine's step times.
        acceptance_length: E, mean tokens per step with the bonus token, in [1, k + 1].
        k: Draft tokens per step, a whole number of at least 0.
        context: C, tokens in the KV cache per sequence, at least 0.

    Returns:
        B* and the winning side. A speed-up of exactly 1 is no win.

    Raises:
        InputError: an argument outside its range.

    Source: own derivation from E·T_AR > T_step, checked by scans over whole batches.

    >>> cost = AdditiveCost(weights_s=8, kv_s_per_token=0.001, compute_s_per_token=0.5, kv_reread=0,
    ...                     draft_fixed_s=1, draft_s_per_sequence=0, draft_kv_s_per_token=0,
    ...                     overhead_s=0, plain_overhead_s=0)
    >>> additive_breakeven(cost, 2.0, 3, context=0)
    AdditiveBreakeven(breakeven_batch=5.0, wins='below')
    >>> additive_breakeven(cost, 2.0, 3, context=2000)
    AdditiveBreakeven(breakeven_batch=nan, wins='always')
    """
    drafts = require_count("k", k, 0, MAX_K)
    tokens = require_acceptance_length(acceptance_length, drafts)
    added_s, saved_s = _per_sequence(cost, tokens, drafts)
    loss_s = added_s - saved_s * require_range("context", context, 0)
    gain_s = (tokens - 1.0) * cost.weights_s - drafts * cost.draft_fixed_s
    gain_s = gain_s - (cost.overhead_s - tokens * cost.plain_overhead_s)

    at_one = gain_s > loss_s
    batch = _quotient(gain_s, loss_s)
    crosses = (at_one != (loss_s < 0)) & np.isfinite(batch)  # at D = 0 batch 1 decides for all
    wins = np.where(crosses, np.where(at_one, "below", "above"), np.where(at_one, "always", "never"))
    batch = np.where(crosses, batch, np.nan)
    return AdditiveBreakeven(breakeven_batch=like_inputs(batch), wins=wins if wins.ndim else str(wins))


def critical_context(cost: AdditiveCost, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> Numbers:
    """Context above which a larger batch helps speculation instead of hurting it.

    C_crit = [τ·(k + 1 − E) + k·d1] / G with G = (E − 1 − ρ·k)·κ − k·κ_d: there D of `additive_breakeven`
    is 0. A plain decoder reads the cache E times for E tokens, a speculative one once (and its draft's);
    from C_crit on, that saving per sequence outweighs the tokens computed in vain.

    Args:
        cost: The machine's step times.
        acceptance_length: E, mean tokens per step with the bonus token, in [1, k + 1].
        k: Draft tokens per step, a whole number of at least 0.

    Returns:
        C_crit in tokens per sequence, as a real number of at least 0; NaN where no context is long enough,
        the re-reads or the draft's own cache costing all that is saved (G ≤ 0).

    Raises:
        InputError: an argument outside its range.

    Source: own derivation; MagicDec (arXiv:2408.11049) found the regime by measurement.

    >>> cost = AdditiveCost(weights_s=8, kv_s_per_token=0.001, compute_s_per_token=0.5, kv_reread=0,
    ...                     draft_fixed_s=1, draft_s_per_sequence=0, draft_kv_s_per_token=0,
    ...                     overhead_s=0, plain_overhead_s=0)
    >>> critical_context(cost, 2.0, 3)
    1000.0
    """
    drafts = require_count("k", k, 0, MAX_K)
    tokens = require_acceptance_length(acceptance_length, drafts)
    added_s, saved_s = _per_sequence(cost, tokens, drafts)
    context = _quotient(added_s, saved_s)
    return like_inputs(np.where((saved_s > 0) & np.isfinite(context), context, np.nan))


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """A ratio that may be infinite or NaN, silently: the caller tells what it means."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.asarray(numerator / denominator)


def _per_sequence(cost: AdditiveCost, tokens: FloatArray, drafts: IntArray) -> tuple[FloatArray, FloatArray]:
    """Seconds that a sequence adds to a speculative step, and that it saves per token of its context."""
    added_s = cost.compute_s_per_token * (drafts + 1 - tokens) + drafts * cost.draft_s_per_sequence
    rereads = tokens - 1.0 - cost.kv_reread * drafts
    return added_s, rereads * cost.kv_s_per_token - drafts * cost.draft_kv_s_per_token
