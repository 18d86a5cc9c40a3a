"""Simulated runs of one or more replicas under one policy."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Literal, get_args

import numpy as np

from specmath.checks import require_count
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.mixed_steps import StepTimes, TabulatedSteps
from specmath.simulation.draws import Yields
from specmath.simulation.outcomes import SimulationResult
from specmath.simulation.policies import BatchPolicy
from specmath.simulation.replicas import STEP_FIELDS, Outcomes, Replica
from specmath.simulation.requests import Requests, drawn_requests, traced_requests
from specmath.traffic import Limits, Trace, Traffic

Routing = Literal["round_robin", "least_loaded"]
MAX_REPLICAS = 10_000
_YIELDS = 3
"""Stream of the yields of steps, behind those of the requests."""


def simulate(
    traffic: Traffic | Trace,
    steps: StepTimes,
    limits: Limits,
    policy: BatchPolicy,
    *,
    requests: int | None = None,
    seed: int = 0,
    replicas: int = 1,
    routing: Routing = "round_robin",
    laws: Sequence[AcceptanceLaw] = (),
) -> SimulationResult:
    """Serve requests by continuous batching, step after step, until the last one is done.

    Every decoding sequence gets 1 + accepted tokens from each step, drawn from the law of its class; steps
    carry up to `limits.chunk_tokens` tokens of prompts beside them. Admission is first come, first served;
    where the cache runs full, the request admitted last starts anew (see `specmath.simulation.replicas`).
    Each running sequence keeps k + 1 look-ahead slots, k being the policy's longest.

    Args:
        traffic: Classes of requests at a rate, or a trace; both are of all replicas together.
        steps: Seconds of a mixed step. A table must reach to the limits.
        limits: What each replica admits.
        policy: Which k a step drafts, by its decoding sequences.
        requests: Requests drawn, 10,000 unless given; of a trace, the first so many.
        seed: Of all random numbers, at least 0. Two policies under one seed serve the same requests.
        replicas: Engines with a queue each.
        routing: `round_robin`, or `least_loaded`: the replica with the fewest requests that wait or run.
        laws: For a trace alone: the law of each of its classes, or one for all.

    Returns:
        Arrival, admission, first token, finish, deliveries and longest gap of each request, and the steps.

    Raises:
        InputError: for a value out of range, a k beyond a law, or a request larger than the cache.

    >>> from specmath.acceptance import ConstantAcceptance
    >>> from specmath.simulation.policies import fixed_k
    >>> from specmath.simulation.runs import simulate
    >>> from specmath.traffic import TrafficClass
    >>> class Constant:
    ...     def step_s(self, batch, prefill_tokens, k):
    ...         return 0.01
    >>> chat = TrafficClass(name="chat", share=1, prompt_tokens=9, output_tokens=101,
    ...                     law=ConstantAcceptance(1.0))
    >>> result = simulate(Traffic(rate_per_s=5, classes=(chat,)), Constant(), Limits(max_batch=64),
    ...                   fixed_k(3), requests=1)
    >>> round(float(result.tpot_s[0]), 6)  # 100 tokens in 25 steps
    0.0025
    """
    number = int(require_count("seed", seed))
    engines = int(require_count("replicas", replicas, 1, MAX_REPLICAS))
    if routing not in get_args(Routing):
        raise InputError("routing", f"must be {' or '.join(get_args(Routing))}, got {routing!r}")
    served = _requests(traffic, requests, seed=number, drafting=policy.longest_k > 0, laws=laws)
    served.require_room(inf if limits.kv_tokens is None else limits.kv_tokens, policy.longest_k + 1)
    _require_table(steps, limits, policy)
    served.require_clock(min(float(steps.step_s(1, 0, k)) for k in policy.ks))
    outcomes = Outcomes.unknown(len(served))
    fleet = [
        Replica(
            served,
            outcomes,
            Yields(served.laws, policy.ks, (number, _YIELDS, place)),
            steps=steps,
            limits=limits,
            policy=policy,
        )
        for place in range(engines)
    ]
    (_in_turn if routing == "round_robin" else _by_load)(fleet, served)
    return _result(fleet, served, outcomes, limits)


def _requests(
    traffic: Traffic | Trace,
    count: int | None,
    *,
    seed: int,
    drafting: bool,
    laws: Sequence[AcceptanceLaw],
) -> Requests:
    if isinstance(traffic, Trace):
        return traced_requests(traffic, count, laws)
    if laws:
        raise InputError("laws", "go with a trace; the classes of traffic have their own")
    return drawn_requests(traffic, count, seed=seed, drafting=drafting)


def _require_table(steps: StepTimes, limits: Limits, policy: BatchPolicy) -> None:
    """A table must hold every step that can come."""
    if not isinstance(steps, TabulatedSteps):
        return
    missing = sorted(set(policy.ks) - set(steps.tables))
    if missing:
        raise InputError("steps", f"are not tabulated for k = {', '.join(map(str, missing))}")
    for name, reach in (("max_batch", steps.max_batch), ("chunk_tokens", steps.chunk_tokens)):
        if getattr(limits, name) > reach:
            raise InputError("steps", f"are tabulated to {name} {reach:,}, not to {getattr(limits, name):,}")


def _in_turn(fleet: Sequence[Replica], requests: Requests) -> None:
    """Every replica gets every n-th request; none knows of the others."""
    arrivals = requests.arrival_s.tolist()
    for place, replica in enumerate(fleet):
        for request in range(place, len(requests), len(fleet)):
            replica.run_until(arrivals[request])
            replica.accept(request)
        replica.run_until(inf)


def _by_load(fleet: Sequence[Replica], requests: Requests) -> None:
    """Each request goes where the fewest wait or run as it comes; of equals, to the first."""
    for request, arrival_s in enumerate(requests.arrival_s.tolist()):
        for replica in fleet:
            replica.run_until(arrival_s)
        min(fleet, key=lambda replica: replica.load).accept(request)
    for replica in fleet:
        replica.run_until(inf)


def _result(
    fleet: Sequence[Replica], requests: Requests, outcomes: Outcomes, limits: Limits
) -> SimulationResult:
    steps = [np.frombuffer(replica.log).reshape(-1, len(STEP_FIELDS)) for replica in fleet if replica.log]
    late = [np.array(replica.late).reshape(-1, 2) for replica in fleet]
    most_held = max(replica.most_held for replica in fleet)
    return SimulationResult(
        requests=requests,
        outcomes=outcomes,
        steps=np.concatenate(steps),
        late=np.concatenate(late),
        replicas=len(fleet),
        recomputed=sum(replica.recomputed for replica in fleet),
        kv_peak=np.nan if limits.kv_tokens is None else most_held / limits.kv_tokens,
        most_running=max(replica.most_running for replica in fleet),
    )
