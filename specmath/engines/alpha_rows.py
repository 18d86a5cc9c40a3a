"""Rows of a table of acceptance: what a record tells, what is concluded, and how."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from specmath.counted_acceptance import AlphaEstimate
from specmath.engines.estimates import AcceptanceEstimate, cut_counts
from specmath.engines.load_shares import prefill_share, prefix_hit_rate
from specmath.engines.rules import AcceptanceRule, acceptance_rule
from specmath.engines.telemetry import Telemetry

NOT_TOLD = AlphaEstimate(alpha=math.nan)


def record_row(record: Telemetry) -> dict[str, Any]:
    """What the record tells without any estimate."""
    load, rate = record.load, record.reported_rate
    return {
        "source": record.source or None,
        "model": record.model,
        "engine": record.engine,
        "engine_version": record.version,
        "scope": record.scope,
        "drafts": record.drafts,
        "drafted": record.drafted,
        "accepted": record.accepted,
        "k": record.k,
        "k_varies": record.k_varies,
        "requests": len(record.requests) or None,
        "engine_rate": rate.value if rate else None,
        "engine_rate_is": rate.meaning if rate else None,
        "rule": None if record.engine == "typed" else rule_of(record).name,
        "running": load.running,
        "running_p95": load.running_p95,
        "waiting": load.waiting,
        "preemptions": load.preemptions,
        "cache_usage": load.cache_usage,
        "prefill_share": prefill_share(record),
        "prefix_hit_rate": prefix_hit_rate(record),
        "engine_step_s": load.step_s,
        "engine_draft_s": load.draft_s,
        "time_per_token_s": load.time_per_token_s,
        "tokens_per_s": load.tokens_per_s,
    }


def estimate_row(estimate: AcceptanceEstimate) -> dict[str, Any]:
    """What is concluded; NaN becomes null on the way out."""
    alpha = estimate.alpha or NOT_TOLD
    survival, conditional = estimate.survival_intervals(), estimate.conditional_intervals()
    beta = estimate.beta
    return {
        "drafts": estimate.totals.drafts,
        "accepted_over_drafted": estimate.accepted_over_drafted,
        "acceptance_length": estimate.acceptance_length,
        "acceptance_length_low": estimate.length_interval[0],
        "acceptance_length_high": estimate.length_interval[1],
        "alpha": alpha.alpha,
        "standard_error": alpha.standard_error,
        "alpha_low": alpha.alpha_low,
        "alpha_high": alpha.alpha_high,
        "survival": list(estimate.survival) or None,
        "survival_low": [low for low, _ in survival] or None,
        "survival_high": [high for _, high in survival] or None,
        "conditional": list(estimate.conditional) or None,
        "conditional_low": [low for low, _ in conditional] or None,
        "conditional_high": [high for _, high in conditional] or None,
        "k": estimate.k,
        "chi_square": estimate.chi_square,
        "p_value": estimate.p_value,
        "beta_a": None if beta is None else float(beta.a),
        "beta_b": None if beta is None else float(beta.b),
        "clustering": estimate.clustering,
        "tokens_per_step": estimate.tokens_per_step,
        "drafting_share": estimate.drafting_share,
    }


def rule_of(record: Telemetry) -> AcceptanceRule:
    """The acceptance rule that the engine of the record applies."""
    return acceptance_rule(record.engine, method=record.method, version=record.version)


def derivation_of(estimate: AcceptanceEstimate) -> tuple[str, ...]:
    """How α came about, with its numbers; empty where it is not told."""
    alpha, counts, totals = estimate.alpha, estimate.counts, estimate.totals
    if alpha is None:
        return ()
    cut: tuple[str, ...] = ()
    if counts is None and estimate.telemetry.accepted_at and estimate.telemetry.drafts:
        counts = cut_counts(estimate.telemetry, totals)[0]
        judged_at = "/".join(f"{one:,.0f}" for one in counts.judged)
        cut = (f"judged by position = {judged_at}, an equal share of the drafts going on at each",)
        cut = cut if totals.drafted else ()
    if counts is not None and estimate.telemetry.drafts:
        accepted, judged = math.fsum(counts.accepted), math.fsum(counts.judged)
        spread = math.sqrt(alpha.alpha * (1.0 - alpha.alpha) / judged)
        return (
            *cut,
            f"α = accepted/judged = {accepted:,.0f}/{judged:,.0f} = {alpha.alpha:.4f}",
            f"standard error of independent steps = √(α(1 − α)/{judged:,.0f}) = {spread:.4f}",
            f"E = 1 + accepted/drafts = {estimate.acceptance_length:.4f}",
        )
    if math.isnan(totals.acceptance_length):
        return (f"α = {alpha.alpha:.4f}: {estimate.basis}",)
    mean = _accepted_mean(totals.lengths)
    return (f"1 + {mean} = {totals.acceptance_length:.4f} at α = {alpha.alpha:.4f}",)


def _accepted_mean(lengths: Mapping[int, float]) -> str:
    """Mean accepted tokens as a formula: α + … + α^k, weighed where drafts have two lengths."""
    if len(lengths) < 2:
        return "α + … + α^k"
    return " + ".join(f"{share:.3g}·(α + … + α^{length})" for length, share in lengths.items())
