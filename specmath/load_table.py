"""The answer of a load as rows: every policy at every rate, each class, closed form and simulated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import ClassVar

from specmath.checks import FloatArray
from specmath.latencies import Latency
from specmath.load_arms import Arm, LoadQuestion
from specmath.load_levels import missed_levels
from specmath.load_text import (
    load_assumptions,
    load_derivation,
    load_inputs,
    load_remarks,
    load_warnings,
    simulation_warnings,
)
from specmath.load_verdicts import load_verdict
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result, brief
from specmath.simulation.statistics import Summary


@dataclass(frozen=True, kw_only=True)
class LoadTable(Result):
    """A row per rate and policy, and one per class below it where there are several.

    Attributes:
        question: The machine, the replicas and the service level.
        rates_per_s: Rates of all replicas together.
        arms: The policies at each rate.
        simulated: Summaries of simulated runs by place of rate and policy; empty without a simulation.
        notes: Warnings of whoever asked.
    """

    schema: ClassVar[str] = "specmath.load/1"
    keys: ClassVar[tuple[str, ...]] = (
        "case",
        "rate_per_s",
        "policy",
        "class",
        "by",
        "k",
        "batch",
        "state",
        "tpot_s",
        "itl_s",
        "itl_p99_s",
        "ttft_s",
        "ttft_p99_s",
        "e2e_s",
        "e2e_p50_s",
        "e2e_p95_s",
        "e2e_p99_s",
        "speedup",
        "speedup_low",
        "speedup_high",
        "tokens_per_s_per_gpu",
        "utilisation",
        "highest_rate_per_s",
        "slo",
        "goodput_rate_per_s",
        "goodput_bound",
        "within_slo_per_s",
        "usd_per_million_tokens",
        "joules_per_million_tokens",
        "max_batch",
        "lost_batch",
        "lost_prefix_tokens",
        "draft_prefill_s",
        "zero_tier_s",
        "chunk_step_s",
    )

    data_keys: ClassVar[tuple[str, ...]] = (
        "case",
        "e2e_p50_s",
        "joules_per_million_tokens",
        "max_batch",
        "lost_batch",
        "lost_prefix_tokens",
        "draft_prefill_s",
        "zero_tier_s",
        "chunk_step_s",
    )

    question: LoadQuestion
    rates_per_s: FloatArray
    arms: tuple[tuple[Arm, ...], ...]
    simulated: Mapping[tuple[int, str], Summary] = field(default_factory=dict)
    notes: tuple[Advice, ...] = ()

    @property
    def shown_keys(self) -> tuple[str, ...]:
        """Without what is alike in every row, and what `remarks` tells."""
        alike = {
            "class": len(self.question.machine.traffic.classes) == 1,
            "by": not self.simulated,
            "e2e_p95_s": not self.simulated,
            "state": all(row["state"] == "steady" for row in self._rows()),
            "tokens_per_s_per_gpu": self.rates_per_s.size == 1,
            "usd_per_million_tokens": self.rates_per_s.size == 1,
        }
        return tuple(key for key in super().shown_keys if not alike.get(key, False))

    @property
    def remarks(self) -> tuple[str, ...]:
        return tuple(load_remarks(self.question, self.rates_per_s, self.arms))

    def __len__(self) -> int:
        return sum(1 for _ in self.rows())

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return {"rate_per_s": brief(self.rates_per_s)} | load_inputs(self.question)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return tuple(load_assumptions(self.question, simulated=bool(self.simulated)))

    @property
    def warnings(self) -> tuple[Advice, ...]:
        found = [
            *self.notes,
            *load_warnings(self.question, self.rates_per_s, self.arms),
            *simulation_warnings(self.rates_per_s, self.arms, self.simulated),
        ]
        return tuple(dict.fromkeys(found))

    @property
    def verdict(self) -> str:
        return load_verdict(self.question, self.rates_per_s, self.arms)

    @property
    def derivation(self) -> tuple[str, ...]:
        return tuple(load_derivation(self.question, float(self.rates_per_s[0]), self.arms[0]))

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        rows = list(self._rows())
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield {key: [row[key] for row in part] for key in self.keys}

    def _rows(self) -> Iterator[dict[str, Cell]]:
        for place, (rate, arms) in enumerate(zip(self.rates_per_s.tolist(), self.arms, strict=True)):
            for arm in arms:
                yield from self._arm_rows(rate, arm)
                if summary := self.simulated.get((place, arm.policy)):
                    yield self._simulated_row(rate, arm, summary)

    def _arm_rows(self, rate: float, arm: Arm) -> Iterator[dict[str, Cell]]:
        common = self._common(rate, arm)
        if not arm.latencies:
            yield dict.fromkeys(self.keys) | common | arm.of_all()
        for place, latency in enumerate(arm.latencies):
            own = {name: _cell(getattr(latency, name)) for name in _LATENCIES}
            of_all = arm.of_all() if place == 0 else {}
            told = {"class": latency.name, "slo": self._slo([latency] if place else arm.latencies)}
            yield dict.fromkeys(self.keys) | common | own | of_all | told

    def _slo(self, found: Sequence[Latency]) -> str | None:
        """Whether the level is met, or what is missed."""
        if not self.question.has_level:
            return None
        missed = missed_levels(self.question.level, found)
        return f"misses {', '.join(missed)}" if missed else "met"

    def _common(self, rate: float, arm: Arm) -> dict[str, Cell]:
        return {
            "case": self.question.machine.source.case,
            "rate_per_s": rate,
            "policy": arm.policy,
            "class": "all",
            "by": "closed form",
            "k": arm.k,
            "state": arm.state,
        }

    def _simulated_row(self, rate: float, arm: Arm, summary: Summary) -> dict[str, Cell]:
        found = {
            "batch": summary.decoding / self.question.replicas,
            "tpot_s": summary.token_s,
            "itl_s": summary.gap_s.mean,
            "itl_p99_s": summary.gap_s.p99,
            "ttft_s": summary.ttft_s.mean,
            "ttft_p99_s": summary.ttft_s.p99,
            "e2e_s": summary.end_to_end_s.mean,
            "e2e_p50_s": summary.end_to_end_s.p50,
            "e2e_p95_s": summary.end_to_end_s.p95,
            "e2e_p99_s": summary.end_to_end_s.p99,
            "tokens_per_s_per_gpu": summary.tokens_per_s / self.question.devices,
            "within_slo_per_s": summary.goodput_per_s if self.question.has_level else math.nan,
        }
        told: dict[str, Cell] = {key: _cell(value) for key, value in found.items()}
        told |= {"by": "simulation", "state": summary.state}
        return dict.fromkeys(self.keys) | self._common(rate, arm) | told


_LATENCIES = tuple(one.name for one in fields(Latency) if one.name != "name")


def _cell(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
