"""How a column is headed: title, unit, decimals, and how much it matters when space is short.

One record per key. A key that is not listed still prints: its title is the key in words, and its unit is
read off the suffix (`queue_s`, `host_bytes`). Nothing here touches data formats, which write key and value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Column:
    """How the values under one key are shown to a reader.

    Attributes:
        key: Name in data formats and in the library.
        title: The field's short term, for a header.
        unit: Base unit of the values, empty for a pure number; a prefix is chosen per table.
        decimals: Digits after the point, or None for four significant digits.
        importance: In a terminal too narrow for all columns the least important go first.
    """

    key: str
    title: str
    unit: str = ""
    decimals: int | None = None
    importance: int = 30


COLUMNS: Final[dict[str, Column]] = {
    column.key: column
    for column in (
        # What a row is about
        Column("case", "case", importance=95),
        Column("law", "law", importance=15),
        Column("model", "model", importance=95),
        Column("method", "method", importance=70),
        Column("policy", "policy", importance=95),
        Column("alpha", "α", importance=85),
        Column("k", "k", importance=90),
        Column("batch", "batch", importance=90),
        Column("context", "context", decimals=0, importance=75),
        Column("constant", "constant", importance=95),
        Column("low", "low end", importance=80),
        Column("typical", "typical", importance=90),
        Column("high", "high end", importance=80),
        Column("cited", "cited", importance=64),
        Column("read_from", "read from", importance=62),
        # Acceptance
        Column("acceptance_length", "E", decimals=3, importance=80),
        Column("ceiling", "ceiling of E", decimals=3, importance=45),
        Column("variance", "variance", decimals=3, importance=40),
        Column("standard_deviation", "standard deviation", decimals=3, importance=42),
        Column("kept_share", "kept share", decimals=3, importance=44),
        Column("accepted_over_drafted", "accepted/drafted", decimals=3, importance=56),
        Column("survival", "survival", decimals=3, importance=48),
        Column("conditional", "conditional", decimals=3, importance=57),
        Column("accepted_p10", "accepted p10", importance=38),
        Column("accepted_p50", "accepted p50", importance=39),
        Column("accepted_p90", "accepted p90", importance=38),
        Column("accepted_pmf", "P(accepted)", decimals=3, importance=41),
        Column("drafts", "drafts", importance=50),
        Column("drafted", "drafted", importance=35),
        Column("accepted", "accepted", importance=36),
        Column("standard_error", "standard error of α", decimals=4, importance=43),
        Column("alpha_low", "α low", importance=62),
        Column("alpha_high", "α high", importance=62),
        # Acceptance that an engine told
        Column("engine", "engine", importance=84),
        Column("engine_version", "version", importance=22),
        Column("scope", "counts of", importance=23),
        Column("acceptance_length_low", "E low", decimals=3, importance=61),
        Column("acceptance_length_high", "E high", decimals=3, importance=61),
        Column("p_value", "p of constancy", importance=37),
        Column("clustering", "error by requests", decimals=2, importance=26),
        Column("rule", "acceptance rule", importance=24),
        Column("tokens_per_step", "tokens per step", decimals=3, importance=49),
        Column("drafting_share", "steps drafting", decimals=3, importance=51),
        Column("running", "running", decimals=1, importance=54),
        Column("running_p95", "running p95", decimals=1, importance=32),
        Column("waiting", "waiting", decimals=1, importance=28),
        Column("preemptions", "preemptions", decimals=0, importance=27),
        Column("prefill_share", "prefill share", decimals=3, importance=31),
        Column("prefix_hit_rate", "prefix hits", decimals=3, importance=29),
        Column("engine_step_s", "step", "s", importance=53),
        Column("engine_draft_s", "drafting", "s", importance=33),
        Column("time_per_token_s", "per token", "s", importance=34),
        Column("tokens_per_s", "throughput", "tok/s", importance=35),
        Column("alpha_from", "α from", importance=21),
        Column("source_engine", "its engine", importance=20),
        # Step cost, in plain steps and in seconds
        Column("draft_cost", "c", decimals=3, importance=65),
        Column("verify_cost", "v", decimals=3, importance=66),
        Column("overhead", "o", decimals=3, importance=58),
        Column("target_s", "AR step", "s", importance=56),
        Column("draft_s", "draft pass", "s", importance=51),
        Column("verify_s", "verify", "s", importance=52),
        Column("step_s", "SD step", "s", importance=55),
        # The answer
        Column("speedup", "speed-up", decimals=2, importance=100),
        Column("speedup_low", "low", decimals=2, importance=98),
        Column("speedup_high", "high", decimals=2, importance=98),
        Column("best_k", "best k", decimals=0, importance=72),
        Column("best_speedup", "best speed-up", decimals=2, importance=71),
        Column("regret", "regret", decimals=3, importance=60),
        # Break-even values
        Column("breakeven_alpha", "break-even α", decimals=3, importance=64),
        Column("breakeven_acceptance_length", "break-even E", decimals=3, importance=63),
        Column("breakeven_draft_cost", "break-even c", decimals=3, importance=54),
        Column("breakeven_verify_cost", "break-even v", decimals=3, importance=53),
        # Crossover and schedule
        Column("wins", "wins", importance=97),
        Column("breakeven_batch", "break-even batch", decimals=1, importance=96),
        Column("breakeven_batch_low", "break-even batch, low", decimals=1, importance=62),
        Column("breakeven_batch_high", "break-even batch, high", decimals=1, importance=62),
        Column("winning_batches", "winning batches", importance=92),
        Column("winning_batches_low", "winning batches, low", importance=33),
        Column("winning_batches_high", "winning batches, high", importance=33),
        Column("winning_batches_in_memory", "winning batches in memory", importance=91),
        Column("critical_context", "critical context", decimals=0, importance=68),
        Column("verify_bound_batch", "verify-bound batch", decimals=1, importance=61),
        Column("ridge_tokens", "ridge", "tokens", decimals=1, importance=59),
        Column("ridge_flops_per_byte", "ridge", "FLOP/B", decimals=1, importance=57),
        Column("draft_memory_bytes", "draft memory", "B", importance=67),
        Column("plain_tokens_per_s", "at max batch", "tok/s", importance=58),
        Column("speculative_tokens_per_s", "at max batch (SD)", "tok/s", importance=68),
        Column("max_batch", "max batch", decimals=0, importance=56),
        Column("max_batch_speculative", "max batch (SD)", decimals=0, importance=57),
        Column("first_batch", "from batch", decimals=0, importance=93),
        Column("last_batch", "to batch", decimals=0, importance=93),
        Column("time_share", "share of time", decimals=3, importance=55),
        Column("verified_tokens", "verified", decimals=2, importance=50),
        Column("gain", "over static", decimals=3, importance=78),
        Column("gain_low", "gain, low", decimals=3, importance=34),
        Column("gain_high", "gain, high", decimals=3, importance=34),
        Column("next_k", "next k", decimals=0, importance=57),
        Column("margin", "margin to it", decimals=3, importance=56),
        Column("marks", "marks", importance=77),
        Column("k_max", "longest k", decimals=0),
        # Accuracy
        Column("group", "rows of", importance=99),
        Column("predictor", "predictor", importance=98),
        Column("rows", "rows", decimals=0, importance=80),
        Column("setups", "set-ups", decimals=0, importance=79),
        Column("sources", "sources", decimals=0, importance=60),
        Column("median_error", "median |error|", decimals=3, importance=97),
        Column("p90_error", "p90 |error|", decimals=3, importance=96),
        Column("bias", "bias", decimals=3, importance=93),
        Column("log_correlation", "log correlation", decimals=2, importance=92),
        Column("sign", "sign", decimals=2, importance=70),
        Column("balanced_sign", "balanced sign", decimals=2, importance=84),
        Column("slowdowns", "slowdowns", decimals=0, importance=62),
        Column("slowdowns_in_range", "slowdowns in range", decimals=2, importance=76),
        Column("coverage", "coverage", decimals=2, importance=91),
        Column("width", "high/low", decimals=2, importance=90),
        Column("evidence", "evidence", importance=88),
        Column("id", "id", importance=99),
        Column("measured", "measured", decimals=2, importance=99),
        Column("error", "error", decimals=3, importance=97),
        Column("left_out", "left out", importance=40),
        # Diagnosis
        Column("step_cost", "R", decimals=2, importance=99),
        Column("step_cost_low", "R, low", decimals=2, importance=82),
        Column("step_cost_high", "R, high", decimals=2, importance=82),
        Column("token_cost", "(R − 1)/k", decimals=3, importance=74),
        Column("fixed_cost", "v + o", decimals=3, importance=73),
        Column("line_error", "error of the line", decimals=3, importance=44),
        Column("left_out_error", "that k left out", decimals=3, importance=45),
        Column("likelihood", "likelihood", importance=98),
        Column("cause", "cause", importance=103),
        Column("fit", "fit", decimals=2, importance=50),
        Column("shown_by", "shown by", importance=102),
        Column("remedy", "remedy", importance=101),
        Column("to_check", "to check", importance=89),
        Column("seen_in", "seen in", importance=87),
        # Compatibility
        Column("effect", "effect", importance=103),
        Column("code", "code", importance=30),
        Column("subject", "subject", importance=102),
        Column("finding", "finding", importance=101),
        Column("versions", "versions", importance=60),
        Column("max_num_seqs", "max_num_seqs", decimals=0, importance=50),
        # Calibration
        Column("temperature", "T", decimals=2, importance=86),
        Column("top_p", "top-p", decimals=2, importance=25),
        Column("predicted", "predicted", decimals=2, importance=99),
        Column("pass_width", "tokens of each", decimals=0, importance=90),
        # Flip points
        Column("rank", "rank", decimals=0, importance=99),
        Column("input", "input", importance=103),
        Column("now", "now", importance=101),
        Column("turns_at", "answer turns at", importance=102),
        Column("change", "by a factor of", decimals=3, importance=70),
        # Accelerators
        Column("hardware", "hardware", importance=95),
        Column("name", "name", importance=94),
        Column("dtype", "dtype", importance=67),
        Column("peak_flops_per_s", "peak", "FLOP/s", importance=74),
        Column("memory_bytes", "memory", "B", importance=73),
        Column("memory_bytes_per_s", "bandwidth", "B/s", importance=73),
        Column("link_bytes_per_s", "link", "B/s", importance=49),
        Column("tdp_w", "TDP", "W", importance=20),
        Column("bf16_flops_per_s", "bf16", "FLOP/s", importance=74),
        Column("fp8_flops_per_s", "fp8", "FLOP/s", importance=72),
        Column("fp4_flops_per_s", "fp4", "FLOP/s", importance=55),
        Column("title", "title", importance=12),
        Column("vendor", "vendor", importance=14),
        Column("kind", "kind", importance=13),
        Column("release_year", "year", decimals=0, importance=25),
        Column("confidence", "confidence", importance=40),
        Column("computes_in", "computes in", importance=60),
        # Models and passes
        Column("target", "target", importance=94),
        Column("draft", "draft", importance=93),
        Column("total_params", "total", decimals=0, importance=80),
        Column("active_params", "active", decimals=0, importance=75),
        Column("read_params", "read", decimals=0, importance=74),
        Column("stored_params", "stored", decimals=0, importance=80),
        Column("multiplied_params", "multiplied", decimals=0, importance=73),
        Column("weight_bytes", "weights", "B", importance=72),
        Column("bytes", "bytes", "B", importance=72),
        Column("kv_bytes_per_token", "cache a token", "B", importance=70),
        Column("kv_growth_bytes_per_token", "cache growth a token", "B", importance=35),
        Column("state_bytes", "state", "B", importance=34),
        Column("compute_dtypes", "computed in", importance=60),
        Column("target_weight_bytes", "target weights", "B", importance=60),
        Column("draft_weight_bytes", "draft weights", "B", importance=60),
        Column("component", "component", importance=95),
        Column("part", "part", importance=95),
        Column("traffic_bytes", "traffic", "B", importance=80),
        Column("flops", "work", "FLOP", importance=79),
        Column("bytes_s", "bytes alone", "s", importance=70),
        Column("flops_s", "FLOPs alone", "s", importance=70),
        Column("time_s", "time", "s", importance=90),
        Column("share", "share", decimals=3, importance=85),
        Column("bound", "bound by", importance=84),
        Column("llc_bytes", "last cache", "B", importance=10),
        Column("host_link_bytes_per_s", "host link", "B/s", importance=10),
        Column("bytes_per_param", "bytes a weight", decimals=2, importance=50),
        # Load
        Column("rate_per_s", "rate", "1/s", importance=99),
        Column("class", "class", importance=97),
        Column("by", "by", importance=98),
        Column("state", "state", importance=96),
        Column("tpot_s", "TPOT", "s", importance=99),
        Column("itl_s", "gap (ITL)", "s", importance=82),
        Column("itl_p99_s", "gap p99", "s", importance=58),
        Column("ttft_s", "TTFT", "s", importance=88),
        Column("ttft_p99_s", "TTFT p99", "s", importance=40),
        Column("e2e_s", "end to end", "s", importance=86),
        Column("e2e_p50_s", "end to end p50", "s", importance=52),
        Column("e2e_p95_s", "end to end p95", "s", importance=54),
        Column("e2e_p99_s", "end to end p99", "s", importance=53),
        Column("tokens_per_s_per_gpu", "a device", "tok/s", importance=72),
        Column("utilisation", "utilisation", decimals=2, importance=74),
        Column("highest_rate_per_s", "highest rate", "1/s", importance=87),
        Column("slo", "SLO", importance=94),
        Column("slo_ttft_s", "SLO TTFT", "s"),
        Column("slo_tpot_s", "SLO TPOT", "s"),
        Column("slo_gap_s", "SLO gap p99", "s"),
        Column("slo_end_to_end_s", "SLO end to end", "s"),
        Column("goodput_rate_per_s", "goodput rate", "1/s", importance=85),
        Column("goodput_bound", "goodput ends by", importance=50),
        Column("within_slo_per_s", "within the SLO", "1/s", importance=84),
        Column("usd_per_million_tokens", "a million tokens", "USD", decimals=2, importance=70),
        Column("joules_per_million_tokens", "a million tokens", "J", decimals=0, importance=45),
        Column("lost_batch", "places lost to the draft", decimals=0, importance=49),
        Column("lost_prefix_tokens", "cache hits lost a request", "tokens", decimals=0, importance=48),
        Column("draft_prefill_s", "drafter's part of prefill", "s", importance=47),
        Column("zero_tier_s", "cost of k = 0", "s", importance=46),
        Column("chunk_step_s", "longest step with prefill", "s", importance=44),
        Column("falls_below", "left below", decimals=0, importance=91),
        Column("first_speedup", "speed-up at first", decimals=2, importance=99),
        Column("last_speedup", "at last batch", decimals=2, importance=97),
        Column("from_rate_per_s", "from rate", "1/s", importance=92),
        Column("back_rate_per_s", "back at rate", "1/s", importance=70),
        Column("layout", "layout", importance=99),
        Column("pool", "pool", importance=98),
        Column("classes", "classes", importance=98),
        Column("engines", "replicas", decimals=0, importance=97),
        Column("devices", "devices", decimals=0, importance=80),
    )
}

_SUFFIX_UNITS: Final = {  # longest first: `_bytes_per_s` also ends in `_s`
    "_flops_per_byte": "FLOP/B",
    "_tokens_per_s": "tok/s",
    "_flops_per_s": "FLOP/s",
    "_bytes_per_s": "B/s",
    "_tokens": "tokens",
    "_per_s": "1/s",
    "_bytes": "B",
    "_s": "s",
    "_w": "W",
}


def column_of(key: str) -> Column:
    """The record of a key; for an unknown key a plain one.

    >>> column_of("target_s").title
    'AR step'
    >>> column_of("queue_s")
    Column(key='queue_s', title='queue s', unit='s', decimals=None, importance=30)
    """
    if key in COLUMNS:
        return COLUMNS[key]
    unit = next((unit for suffix, unit in _SUFFIX_UNITS.items() if key.endswith(suffix)), "")
    return Column(key, key.replace("_", " "), unit)
