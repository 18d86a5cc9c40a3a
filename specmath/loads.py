"""What happens at so many requests a second? Every policy at every rate, side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import FloatArray, require_count, require_range
from specmath.errors import InputError
from specmath.forecast import BEST_K_LIMIT
from specmath.gates import batch_policy
from specmath.latencies import Latency
from specmath.laws import AcceptanceLaw
from specmath.load_arms import Arm, LoadQuestion, arms_at
from specmath.load_policies import Machine
from specmath.load_text import load_assumptions, load_derivation, load_inputs, load_verdict, load_warnings
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result, brief
from specmath.simulation.series import Run, simulate_many
from specmath.simulation.statistics import ServiceLevel, Summary
from specmath.sources import BatchSource
from specmath.traffic import DEFAULT_CHUNK, MAX_RATE, Trace, Traffic, TrafficClass
from specmath.winning import Progress

DEFAULT_MAX_BATCH = 1024
"""Sequences that run at once at most where neither memory nor the caller sets a limit below."""
MOST_BATCH = 16_384
LONGEST_K = 64


def forecast_load(
    question: LoadQuestion, rates_per_s: npt.ArrayLike, *, progress: Progress | None = None
) -> LoadTable:
    """What a server does at arrival rates under each policy: off, the best static k, tiers, adaptive.

    The running batch follows from the rate: it is the stationary law of a queue whose sequences share each
    step (`specmath.queueing`), prefill takes its part of the steps, and memory caps the batch of each policy.

    Args:
        question: The server and its requests, from `load_question`.
        rates_per_s: Requests per second of all replicas together, above 0; one or many.
        progress: Called with the rates done and the rates in all.

    Raises:
        InputError: for a rate out of range.

    >>> from specmath.acceptance import ConstantAcceptance
    >>> from specmath.additive import AdditiveCost
    >>> from specmath.additive_source import Additive
    >>> from specmath.traffic import TrafficClass
    >>> constant = AdditiveCost(weights_s=0.01, kv_s_per_token=0, compute_s_per_token=0, kv_reread=0,
    ...                         draft_fixed_s=0, draft_s_per_sequence=0, draft_kv_s_per_token=0,
    ...                         overhead_s=0, plain_overhead_s=0)
    >>> chat = TrafficClass(name="chat", share=1, prompt_tokens=1, output_tokens=101,
    ...                     law=ConstantAcceptance(1.0))
    >>> question = load_question([chat], source=Additive(cost=constant, name="toy"), k=3)
    >>> rows = forecast_load(question, 5).rows()
    >>> [(row["policy"], round(row["batch"], 2)) for row in rows][:2]  # 5/s · 100 or 25.4 steps · 10 ms
    [('off', 5.0), ('static', 1.27)]
    """
    rates = np.atleast_1d(require_range("rate_per_s", rates_per_s, high=MAX_RATE, above=0)).ravel()
    arms = []
    for done, rate in enumerate(rates.tolist(), 1):
        arms.append(arms_at(question, rate))
        if progress is not None:
            progress(done, rates.size)
    return LoadTable(question=question, rates_per_s=rates, arms=tuple(arms))


def load_question(
    classes: Sequence[TrafficClass],
    *,
    source: BatchSource,
    k: npt.ArrayLike | None = None,
    replicas: int = 1,
    max_batch: int | None = None,
    max_batch_drafting: int | None = None,
    chunk_tokens: int = DEFAULT_CHUNK,
    level: ServiceLevel | None = None,
    zero_tier_cost: float = 0.0,
) -> LoadQuestion:
    """A server and its requests, for `forecast_load`, `find_gate` and `find_pools`.

    Args:
        classes: Classes of requests whose shares add up to 1.
        source: Step times that depend on the batch; typed ratios do not.
        k: Draft lengths tried, at least 1; by default 1 to 16, or as far as laws and drafter go.
        replicas: Engines that share the requests evenly.
        max_batch: Most sequences that the engine runs at once; memory may set a lower limit.
        max_batch_drafting: The same where a drafter is loaded; None for `max_batch`.
        chunk_tokens: Prefill tokens of a step at most.
        level: What a request must meet; sets goodput.
        zero_tier_cost: What a step of k = 0 costs an engine that may draft beyond a plain one, in plain
            steps.

    Raises:
        InputError: for a value out of range, a request that memory does not hold, or a k beyond what a law or
            the drafter answers for.
    """
    engines = int(require_count("replicas", replicas, 1, 10_000))
    traffic = Traffic(rate_per_s=1.0, classes=tuple(classes))
    for one in classes:
        AcceptanceAxis.of(one.law).require_match_rate(source.match_rate)
    top = _cap(DEFAULT_MAX_BATCH if max_batch is None else max_batch)
    machine = Machine(
        source=source,
        traffic=traffic,
        ks=_ks(traffic, source, k),
        max_batch=(top, top if max_batch_drafting is None else min(top, _cap(max_batch_drafting))),
        chunk_tokens=int(require_count("chunk_tokens", chunk_tokens, 1, 10**6)),
        zero_tier_cost=float(require_range("zero_tier_cost", zero_tier_cost, 0, 1e6)),
    )
    _require_room(machine)
    return LoadQuestion(machine=machine, replicas=engines, level=level or ServiceLevel())


def _cap(batch: int) -> int:
    return int(require_count("max_batch", batch, 1, MOST_BATCH))


def _ks(traffic: Traffic, source: BatchSource, k: npt.ArrayLike | None) -> tuple[int, ...]:
    """Draft lengths in rising order, within what laws and drafter answer for."""
    limits = [one.law.max_k for one in traffic.classes] + [source.max_k]
    longest = min((limit for limit in limits if limit is not None), default=LONGEST_K)
    if k is None:
        return tuple(range(1, min(BEST_K_LIMIT, longest) + 1))
    given = np.unique(require_count("k", k, 1, LONGEST_K))
    if given[-1] > longest:
        raise InputError(
            "k", f"must be at most {longest}, as far as acceptance and draft go, got {given[-1]}"
        )
    return tuple(given.tolist())


def _require_room(machine: Machine) -> None:
    """Refuse a request that memory does not hold."""
    if not machine.context:
        return
    tokens = machine.traffic.longest_context
    room = float(machine.source.max_batches(0, tokens)[0])
    if room < 1:
        problem = f"with its output it has {tokens:,.0f} tokens, which do not fit beside the weights"
        raise InputError("prompt_tokens", f"{problem}; add devices, quantise, or shorten it")


@dataclass(frozen=True, kw_only=True)
class LoadTable(Result):
    """A row per rate and policy, and one per class below it where there are several.

    Attributes:
        question: The machine, the replicas and the service level.
        rates_per_s: Rates of all replicas together.
        arms: The policies at each rate.
        simulated: Summaries of simulated runs by place of rate and policy; empty without a simulation.
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
        "goodput_per_s",
        "usd_per_million_tokens",
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
        return tuple(dict.fromkeys(load_warnings(self.question, self.rates_per_s, self.arms)))

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
            yield dict.fromkeys(self.keys) | common | own | of_all | {"class": latency.name}

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
            "tpot_s": summary.tpot_s.mean,
            "itl_s": summary.gap_s.mean,
            "itl_p99_s": summary.gap_s.p99,
            "ttft_s": summary.ttft_s.mean,
            "ttft_p99_s": summary.ttft_s.p99,
            "e2e_s": summary.end_to_end_s.mean,
            "e2e_p50_s": summary.end_to_end_s.p50,
            "e2e_p95_s": summary.end_to_end_s.p95,
            "e2e_p99_s": summary.end_to_end_s.p99,
            "tokens_per_s_per_gpu": summary.tokens_per_s / self.question.devices,
            "goodput_per_s": summary.goodput_per_s if self.question.has_level else math.nan,
        }
        told: dict[str, Cell] = {key: _cell(value) for key, value in found.items()}
        told |= {"by": "simulation", "state": "steady" if summary.steady else "overload"}
        return dict.fromkeys(self.keys) | self._common(rate, arm) | told


_LATENCIES = tuple(one.name for one in fields(Latency) if one.name != "name")


def simulate_load(
    table: LoadTable,
    *,
    requests: int = 10_000,
    seed: int = 0,
    trace: Trace | None = None,
    laws: Sequence[AcceptanceLaw] = (),
    processes: int | None = None,
    log: Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> LoadTable:
    """The same table with a simulated run beside each policy that has a k by batch, for tails.

    Args:
        table: What `forecast_load` answered.
        requests: Requests of each run; of a trace the first so many.
        seed: Of all random numbers; every policy serves the same requests.
        trace: Arrivals to serve instead of Poisson ones at each rate; then its own rate must be the only one.
        laws: Acceptance of the trace's classes.
        processes, log, resume, progress: As `specmath.simulation.series.simulate_many` has them.
    """
    question, places, runs = table.question, [], []
    for place, (rate, arms) in enumerate(zip(table.rates_per_s.tolist(), table.arms, strict=True)):
        for arm in arms:
            if arm.service is None or arm.policy == "adaptive":
                continue
            places.append((place, arm.policy))
            runs.append(
                Run(
                    name=f"{arm.policy} at {rate:g}/s",
                    traffic=question.machine.traffic.at(rate) if trace is None else trace,
                    steps=question.machine.drafting if arm.service.drafting else question.machine.plain,
                    limits=arm.service.limits,
                    policy=batch_policy(arm.service.ks.tolist()),
                    requests=requests,
                    seed=seed,
                    replicas=question.replicas,
                    laws=() if trace is None else tuple(laws),
                    level=question.level,
                )
            )
    found = simulate_many(runs, processes=processes, log=log, resume=resume, progress=progress)
    return replace(table, simulated=dict(zip(places, found, strict=True)))


def _cell(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
