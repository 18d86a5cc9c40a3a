"""What a comparison of policies says in words: the verdict of a load, and what to be warned of."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from specmath.batch_policies import PolicyRow
from specmath.results import Advice
from specmath.verdicts import REPEAT_NOISE, judgement

_WORDS = ("FASTER", "TOO CLOSE TO CALL", "SLOWER", "DOES NOT FIT")


def load_sentence(rows: Sequence[PolicyRow], switch_cost: float) -> str:
    """The answer for one load: which policy, and why not the next one."""
    by_name = {row.policy: row for row in rows}
    static, tiers = by_name["static"], by_name["tiers"]
    parts = [row for row in rows if row.policy == "tier"]
    held = recommended_policy(by_name)
    answer = (
        _without_tiers(static, tiers, parts, switch_cost)
        if held is static
        else _with_tiers(tiers, parts, static.k)
    )
    fits = "DOES NOT FIT; if it did, " if static.max_batch == 0 else ""
    return f"{fits}{answer}{_adaptive_end(by_name, held)}{_memory_end(held)}"


def loads_sentence(loads: Sequence[Sequence[PolicyRow]], switch_cost: float) -> str:
    """How often each answer is given, for more loads than a sentence can take one by one."""
    told = [load_sentence(rows, switch_cost) for rows in loads]
    words = {word: sum(one.startswith(word) for one in told) for word in _WORDS}
    answers = [recommended_policy({row.policy: row for row in rows}) for rows in loads]
    kinds = {
        "do not speculate": sum(held.k == 0 for held in answers),
        "one k": sum(bool(held.k) for held in answers),
        "tiers": sum(held.k is None for held in answers),
    }
    word_part, kind_part = (
        ", ".join(f"{name} in {count}" for name, count in counts.items() if count)
        for counts in (words, kinds)
    )
    return f"{word_part} of {len(loads)} set-ups: {kind_part}"


def recommended_policy(rows: Mapping[str, PolicyRow]) -> PolicyRow:
    """Tiers where their gain shows, and where no end of the range makes them lose as visibly; else one k."""
    tiers = rows["tiers"]
    shows = tiers.gain > REPEAT_NOISE and not tiers.gain_low < -REPEAT_NOISE  # NaN where there is no range
    return tiers if tiers.k is None and shows else rows["static"]


def _without_tiers(
    static: PolicyRow, tiers: PolicyRow, parts: Sequence[PolicyRow], switch_cost: float
) -> str:
    """One k, or none, for all batches; why tiers are left alone."""
    close = "inside_error" in static.marks
    told = f"; tiers ({_listed(parts)}) would gain {_gain(tiers)}, inside the error: do not add them yet"
    if static.k:
        word = "TOO CLOSE TO CALL" if close else "FASTER"
        why = told if parts else f"; do not add tiers, no change of k saves {switch_cost:.1%}"
        return f"{word}: {_speedup(static)} with k = {static.k} at every batch{why}"
    word = "TOO CLOSE TO CALL" if close or parts else "SLOWER"
    lost = "" if static.next_k is None else f"; k = {static.next_k}, the next best, loses {static.margin:.1%}"
    return f"{word}: do not speculate{lost}{told if parts else ''}"


def _with_tiers(tiers: PolicyRow, parts: Sequence[PolicyRow], static_k: int | None) -> str:
    beside = f"k = {static_k} at every batch" if static_k else "plain decoding"
    word = judgement(tiers.speedup, tiers.speedup_low, tiers.speedup_high)
    return f"{word}: {_speedup(tiers)} with tiers ({_listed(parts)}), {_gain(tiers)} more than {beside}"


def _speedup(row: PolicyRow) -> str:
    """The speed-up with its range where it has one."""
    span = "" if math.isnan(row.speedup_low) else f" ({row.speedup_low:.2f}× to {row.speedup_high:.2f}×)"
    return f"{row.speedup:.2f}×{span}"


def _gain(row: PolicyRow) -> str:
    span = "" if math.isnan(row.gain_low) else f" ({row.gain_low:.1%} to {row.gain_high:.1%})"
    return f"{row.gain:.1%}{span}"


def _listed(parts: Sequence[PolicyRow]) -> str:
    """The tiers as `k 3 at batch 1–8, 1 at 9–64, off at 65–256`."""
    runs = []
    for place, row in enumerate(parts):
        last = "" if row.first_batch == row.last_batch else f"–{row.last_batch}"
        name = f"{'k ' if place == 0 else ''}{row.k}" if row.k else "off"
        runs.append(f"{name} at {'batch ' if place == 0 else ''}{row.first_batch}{last}")
    return ", ".join(runs)


def _adaptive_end(rows: Mapping[str, PolicyRow], held: PolicyRow) -> str:
    """Adaptive verification, where it would do visibly better than what is recommended."""
    reached = [rows[name].speedup for name in ("adaptive", "adaptive_oracle") if name in rows]
    if not reached or max(reached) <= held.speedup * (1 + REPEAT_NOISE):
        return ""
    span = f"{reached[0]:.2f}×" + (f" to {reached[-1]:.2f}×" if len(reached) > 1 else "")
    return f"; adaptive verification would reach {span}"


def _memory_end(held: PolicyRow) -> str:
    if "beyond_memory" not in held.marks:
        return ""
    limit = held.max_batch_speculative if held.k != 0 else held.max_batch
    return f"; but memory holds {limit:,.0f} sequences"


def schedule_warnings(loads: Sequence[Sequence[PolicyRow]], zero_tier_cost: float | None) -> Iterator[Advice]:
    """What a schedule costs in running engines, where one is offered; and batches that do not fit."""
    rows = [row for load in loads for row in load]
    parts = [row for row in rows if row.policy == "tier"]
    off = [row for row in parts if row.k == 0]
    if off and zero_tier_cost is None:
        batch = min(row.first_batch for row in off)
        yield Advice(
            code="zero-tier-is-not-off",
            text=f"the tier without drafting (from batch {batch:,}) counts as plain decoding, but an engine "
            "that may draft again keeps its KV look-ahead and may have lost its full CUDA graphs: vLLM's V1 "
            "runner did, 59.6 to 50.0 tok/s for one stream (vllm #49548)",
            remedy="give the zero-tier cost in plain steps; 0.19 is what those figures make",
        )
    if parts:
        yield Advice(
            code="measure-the-schedule",
            text="schedules of k have lost to a fixed k in practice: .69 against .79 of plain decoding at "
            "256 requests (vllm #48944), and single prefills that switch drafting off (vllm #49548)",
            remedy="measure the schedule beside the best static k before it goes live",
        )
    if beyond := [row for row in rows if "beyond_memory" in row.marks and row.policy in ("off", "static")]:
        row = beyond[-1]
        limit, arm = (
            (row.max_batch_speculative, f"speculation with k = {row.k}")
            if row.k
            else (row.max_batch, "plain decoding")
        )
        yield Advice(
            code="batch-does-not-fit",
            text=f"batch {row.last_batch:,} does not fit: memory holds {limit:,.0f} sequences of {arm}",
            remedy="leave such batches out of the histogram, or compare each arm at its own largest batch",
        )
