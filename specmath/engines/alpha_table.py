"""What is my α? One row a source and model, with its error, its positions, and what else the engine told."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, ClassVar, Final

from specmath.engines.alpha_rows import NOT_TOLD, derivation_of, estimate_row, record_row, rule_of
from specmath.engines.estimates import REFUSED, AcceptanceEstimate, estimate_acceptance
from specmath.engines.findings import findings
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result

_PROFILED: Final = ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "mlx")
"""Engines that a forecast has a profile of."""

_SHORT: Final = 0.998
"""Tokens per step over those that E gives, below which the difference is explained."""


def alpha_table(records: Sequence[Telemetry], *, k: int | None = None, next_step: str = "") -> AlphaTable:
    """α of each record of telemetry, with its error and what must be known about it.

    Args:
        records: What readers found, or counts typed by hand; one row each.
        k: Draft tokens per step, where the records do not tell.
        next_step: Command that puts α to use, for the last line.

    Returns:
        The table. A record without data has a row without figures; where no record has any, that is an error.

    Raises:
        DataError: no record has data, or counts contradict k.

    >>> told = Telemetry(engine="vllm", scope="since start", k=2, drafts=100, accepted_at=(50, 25))
    >>> next(alpha_table([told]).rows())["alpha"]
    0.5
    """
    found: list[AcceptanceEstimate | None] = []
    faults: list[DataError] = []
    for one in records:
        try:
            found.append(estimate_acceptance(one, k=k))
        except DataError as fault:
            found.append(None)
            faults.append(fault)
    if not any(found):
        raise faults[0] if faults else DataError("source", "no data: it holds no record")
    return AlphaTable(
        records=tuple(records), estimates=tuple(found), faults=tuple(faults), next_step=next_step
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AlphaTable(Result):
    """Estimates of acceptance, one row each.

    Attributes:
        records: The telemetry of each row.
        estimates: What it says; None where it holds no data.
        faults: Why those hold none.
        next_step: Command that puts α to use; empty for none.
    """

    schema: ClassVar[str] = "specmath.alpha/1"
    keys: ClassVar[tuple[str, ...]] = (
        "source",
        "model",
        "engine",
        "engine_version",
        "scope",
        "drafts",
        "drafted",
        "accepted",
        "accepted_over_drafted",
        "acceptance_length",
        "acceptance_length_low",
        "acceptance_length_high",
        "alpha",
        "standard_error",
        "alpha_low",
        "alpha_high",
        "survival",
        "survival_low",
        "survival_high",
        "conditional",
        "conditional_low",
        "conditional_high",
        "k",
        "k_varies",
        "chi_square",
        "p_value",
        "beta_a",
        "beta_b",
        "clustering",
        "requests",
        "engine_rate",
        "engine_rate_is",
        "rule",
        "tokens_per_step",
        "drafting_share",
        "running",
        "running_p95",
        "waiting",
        "preemptions",
        "cache_usage",
        "prefill_share",
        "prefix_hit_rate",
        "engine_step_s",
        "engine_draft_s",
        "time_per_token_s",
        "tokens_per_s",
    )
    data_keys: ClassVar[tuple[str, ...]] = (
        "survival_low",
        "survival_high",
        "conditional_low",
        "conditional_high",
        "k_varies",
        "chi_square",
        "acceptance_length_low",
        "acceptance_length_high",
        "beta_a",
        "beta_b",
        "requests",
        "engine_rate",
        "engine_rate_is",
        "cache_usage",
    )

    records: tuple[Telemetry, ...]
    estimates: tuple[AcceptanceEstimate | None, ...]
    faults: tuple[DataError, ...] = ()
    next_step: str = ""

    def __len__(self) -> int:
        return len(self.records)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        rows = list(self._rows())
        shared = ("source", "model", "engine", "engine_version", "scope", "k", "rule")
        return {key: rows[0][key] for key in shared if all(row[key] == rows[0][key] for row in rows)}

    @property
    def told(self) -> tuple[AcceptanceEstimate, ...]:
        """The estimates of the rows that hold data."""
        return tuple(one for one in self.estimates if one is not None)

    @property
    def assumptions(self) -> tuple[str, ...]:
        sentences = [
            *_cut_ends(self.told),
            *_engine_rates(self.told),
            *(f"{one.basis}{_constancy(one)}" for one in self.told if one.alpha is not None),
            *_rules(self.told),
            "E counts the bonus token that the target adds to every step",
            "intervals are of 95 %: Wilson's for rates, by requests for α where they are told apart",
            "random prompts, ignore_eos and repeated texts give an α of their own; measure on what you serve",
        ]
        return tuple(dict.fromkeys(sentences))

    @property
    def warnings(self) -> tuple[Advice, ...]:
        several = len(self) > 1
        told = [
            replace(advice, text=f"{_name(one.telemetry)}: {advice.text}") if several else advice
            for one in self.told
            for advice in findings(one)
        ]
        empty = [Advice(code="no-data", text=str(fault), remedy="its row is empty") for fault in self.faults]
        known = any(one.alpha is not None for one in self.told)
        closing = [_next(self.next_step)] if self.next_step and known else []
        return tuple(dict.fromkeys([*told, *empty, *closing]))

    @property
    def verdict(self) -> str:
        known = [one for one in self.told if one.alpha is not None]
        if not known:
            length = self.told[0].acceptance_length
            figure = f": {length:.4g} tokens per step" if not math.isnan(length) else ""
            return f"α CANNOT BE TOLD without k{figure}"
        if len(self) == 1:
            return _sentence(known[0])
        alphas = [one.alpha.alpha for one in known if one.alpha is not None]
        return f"α from {min(alphas):.3f} to {max(alphas):.3f} in {len(known)} of {len(self)} rows"

    @property
    def derivation(self) -> tuple[str, ...]:
        return derivation_of(self.told[0])

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        rows = list(self._rows())
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield {key: [row[key] for row in part] for key in self.keys}

    def _rows(self) -> Iterator[dict[str, Any]]:
        for record, estimate in zip(self.records, self.estimates, strict=True):
            row: dict[str, Any] = dict.fromkeys(self.keys) | record_row(record)
            yield row if estimate is None else row | estimate_row(estimate)


def _rules(told: Sequence[AcceptanceEstimate]) -> Iterator[str]:
    for one in told:
        if one.telemetry.engine != "typed":
            rule = rule_of(one.telemetry)
            applied = f"acceptance rule of {one.telemetry.engine}: {rule.text}"
            yield f"{applied}; α does not transfer to another rule"


def _cut_ends(told: Sequence[AcceptanceEstimate]) -> Iterator[str]:
    """Why fewer tokens a step came out than the steps that drafted yield."""
    for one in told:
        share = min(one.drafting_share, 1.0)
        expected = 1.0 + share * (one.acceptance_length - 1.0)
        if one.tokens_per_step < expected * _SHORT:
            text = (
                f"tokens per step, {one.tokens_per_step:.3f}, fall short of the {expected:.3f} that E gives"
            )
            yield f"{text}: the last steps of requests are cut at max_tokens or at the end of the text"


def _engine_rates(told: Sequence[AcceptanceEstimate]) -> Iterator[str]:
    """What the engine's own acceptance rate is, beside what is used here; figures where it is one row's."""
    for one in told:
        rate, ratio = one.telemetry.reported_rate, one.accepted_over_drafted
        if rate is not None:
            value = f" {rate.value:.3f}" if len(told) == 1 else ""
            yield f"the engine's `{rate.name}`{value} is {rate.meaning}; it is not α"
        elif not math.isnan(ratio):
            value = f" {ratio:.3f}" if len(told) == 1 else ""
            yield f"accepted/drafted{value}, which servers call acceptance rate, is not α"


def _constancy(estimate: AcceptanceEstimate) -> str:
    if math.isnan(estimate.p_value):
        return ""
    kept = "nothing speaks against" if estimate.is_constant else "refused by"
    if estimate.is_constant:
        return f"; {kept} one α at all positions (χ² {estimate.chi_square:.3g}, p {estimate.p_value:.2g})"
    return f"; one α at all positions is {kept} the χ² test (p below {REFUSED})"


def _name(record: Telemetry) -> str:
    return " ".join(part for part in (record.source, record.model) if part) or record.engine


def _next(command: str) -> Advice:
    return Advice(code="next-step", text="α alone is no speed-up", remedy=f"ask `{command}`")


def _sentence(estimate: AcceptanceEstimate) -> str:
    alpha = estimate.alpha or NOT_TOLD
    ranged = (
        "" if math.isnan(alpha.alpha_low) else f" (95 %: {alpha.alpha_low:.3f} to {alpha.alpha_high:.3f})"
    )
    length = (
        ""
        if math.isnan(estimate.acceptance_length)
        else f", {estimate.acceptance_length:.3f} tokens per step"
    )
    at_k = "" if estimate.k is None else f" at k = {estimate.k}"
    return f"α = {alpha.alpha:.3f}{ranged}{length}{at_k}"


def speedup_command(
    source: str, *, since: str | None = None, model: str | None = None, record: Telemetry | None = None
) -> str:
    """The command that asks about a speed-up with a source's acceptance.

    Args:
        source: The source, as typed.
        since: The earlier scrape, as typed.
        model: The model picked, as typed.
        record: What the source told, for the profile of its engine.

    >>> print(speedup_command("my metrics.txt"))
    specmath speedup --from 'my metrics.txt' --hardware h100-sxm --target MODEL --draft MODEL
    """
    engine = record.engine if record is not None and record.engine in _PROFILED else None
    beside = {"--since": since, "--model": model, "--engine": engine}
    told = "".join(f" {name} {quote(value)}" for name, value in beside.items() if value is not None)
    return f"specmath speedup --from {quote(source)}{told} --hardware h100-sxm --target MODEL --draft MODEL"
