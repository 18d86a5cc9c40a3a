"""What happens at so many requests a second? Every policy at every rate, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import require_count, require_range
from specmath.errors import InputError
from specmath.forecast import BEST_K_LIMIT
from specmath.gates import batch_policy
from specmath.laws import AcceptanceLaw
from specmath.load_arms import LoadQuestion, arms_at
from specmath.load_policies import Machine
from specmath.load_table import LoadTable
from specmath.results import Advice
from specmath.simulation.series import Run, simulate_many
from specmath.simulation.statistics import ServiceLevel
from specmath.sources import BatchSource
from specmath.traffic import DEFAULT_CHUNK, MAX_RATE, Trace, Traffic, TrafficClass
from specmath.winning import Progress

_BURSTY = 1.5
"""Variation of the times between arrivals beyond which, or below its inverse, they are no Poisson process."""
_FEWEST_ARRIVALS = 20
MAX_RATES = 500
"""Rates that are forecast at once."""
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
    if rates.size > MAX_RATES:
        raise InputError("rate_per_s", f"takes {MAX_RATES} rates at most, got {rates.size:,}")
    arms = []
    for done, rate in enumerate(rates.tolist(), 1):
        arms.append(arms_at(question, rate))
        if progress is not None:
            progress(done, rates.size)
    return LoadTable(question=question, rates_per_s=rates, arms=tuple(arms))


def trace_advice(trace: Trace) -> tuple[Advice, ...]:
    """That the arrivals of a trace are no Poisson process, which the closed form takes them for."""
    variation = trace.gap_variation
    if len(trace) < _FEWEST_ARRIVALS or 1 / _BURSTY < variation < _BURSTY:
        return ()
    kind = "in bursts" if variation > 1 else "more evenly"
    return (
        Advice(
            code="not-poisson",
            text=f"the trace arrives {kind} (times between arrivals vary by {variation:.2f} of their mean, 1 "
            "in a Poisson process): verdict and closed form are those of Poisson arrivals at its mean rate",
            remedy="go by the simulated rows, with --simulate",
        ),
    )


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
        trace: Arrivals to serve instead of Poisson ones, played faster or slower to each rate.
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
                    traffic=(question.machine.traffic if trace is None else trace).at(rate),
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
