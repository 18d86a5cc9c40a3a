"""The policies of a replica at a rate: which k each takes, how they do, and what they cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from specmath.equilibria import Equilibrium
from specmath.latencies import Latency, latencies
from specmath.load_levels import CAPACITY, is_asked, meets, missed_levels
from specmath.load_policies import Machine
from specmath.prompt_costs import roofline_beneath
from specmath.queueing import Queue, Service
from specmath.results import Cell
from specmath.simulation.statistics import ServiceLevel

MILLION = 1e6
_HALVINGS = 30


@dataclass(frozen=True, kw_only=True)
class LoadQuestion:
    """Replicas of a machine, and what their requests must meet.

    Attributes:
        machine: One replica.
        replicas: How many share the requests evenly.
        level: What a request must meet.
    """

    machine: Machine
    replicas: int
    level: ServiceLevel

    @cached_property
    def services(self) -> dict[tuple[str, int | None], Service | None]:
        """Every policy that is tried, by name and k."""
        machine = self.machine
        found = {("off", 0): machine.off(), ("tiers", None): machine.tiers}
        found |= {("static", k): machine.static(k) for k in machine.ks}
        found |= {("adaptive", int(one.ks[0])): one for one in machine.adaptive()}
        return found

    @cached_property
    def ends(self) -> tuple[Machine, Machine]:
        """The machine at the dearest and at the cheapest step that the source allows."""
        return self.machine.at_end("dearest"), self.machine.at_end("cheapest")

    @cached_property
    def services_at_ends(self) -> dict[tuple[str, int | None], tuple[Service, Service]]:
        """Policies at both ends, as far as they were asked for."""
        return {}

    def at_ends(self, service: Service) -> tuple[Service, Service]:
        """A policy at the dearest and at the cheapest step; adaptive verification chooses its depth anew."""
        key = (service.name, service.k)
        if key not in self.services_at_ends:
            dearest, cheapest = (machine.same_policy(service) for machine in self.ends)
            self.services_at_ends[key] = dearest, cheapest
        return self.services_at_ends[key]

    @cached_property
    def has_range(self) -> bool:
        """Whether the source knows a range."""
        machine = self.machine
        return machine.source.step_bounds(machine.ks[0], 1, machine.context) is not None

    @cached_property
    def devices(self) -> int:
        """Devices of all replicas; one a replica where the source does not tell."""
        roof = roofline_beneath(self.machine.source)
        return self.replicas * (1 if roof is None else roof.layout.devices)

    @cached_property
    def price(self) -> tuple[float, float]:
        """USD an hour and W of all devices; NaN where they are not known."""
        roof = roofline_beneath(self.machine.source)
        if roof is None:
            return math.nan, math.nan
        part = roof.accelerator
        usd, watts = (math.nan if one is None else one for one in (part.usd_per_hour, part.tdp_w))
        return usd * self.devices, watts * self.devices

    @cached_property
    def goodputs(self) -> dict[tuple[str, int | None], tuple[float, str]]:
        """Goodput rate of a policy, and what ends it, as far as it was asked for."""
        return {}

    @property
    def has_level(self) -> bool:
        """Whether anything is asked of a request."""
        return is_asked(self.level)

    def bare_arm(self, policy: str, service: Service | None, rate_per_s: float) -> Arm:
        """A policy at a rate, before it is set beside others."""
        if service is None:
            return Arm(
                policy=policy,
                k=None,
                service=None,
                equilibrium=None,
                latencies=(),
                highest_rate_per_s=math.nan,
                state="does not fit",
                utilisation=math.nan,
                side={},
            )
        queue = Queue(service, self.machine.traffic.at(rate_per_s / self.replicas))
        state, highest = queue.equilibrium(), queue.highest_rate_per_s * self.replicas
        word = "overload" if state is None else "steady" if state.metastable_beyond is None else "metastable"
        return Arm(
            policy=policy,
            k=service.k,
            service=service,
            equilibrium=state,
            latencies=() if state is None else latencies(queue, state),
            highest_rate_per_s=highest,
            state=word,
            utilisation=math.nan if state is None else rate_per_s / highest,
            side={},
        )

    def goodput(self, service: Service) -> tuple[float, str]:
        """Highest rate of all replicas at which the means meet the level, and what is missed beyond it.

        NaN and nothing where nothing is asked.
        """
        if not self.has_level:
            return math.nan, ""
        key = (service.name, service.k)
        if key not in self.goodputs:
            rate_per_s, bound = self._goodput(service)
            self.goodputs[key] = self.replicas * rate_per_s, bound
        return self.goodputs[key]

    def _goodput(self, service: Service) -> tuple[float, str]:
        low, high = 0.0, Queue(service, self.machine.traffic).highest_rate_per_s
        bound = CAPACITY
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            queue = Queue(service, self.machine.traffic.at(middle))
            state = queue.equilibrium()
            missed = (CAPACITY,) if state is None else missed_levels(self.level, latencies(queue, state))
            low, high = (low, middle) if missed else (middle, high)
            bound = missed[0] if missed else bound
        return low, bound


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A policy at a rate; figures are those of all replicas where they add up, else of one.

    Attributes:
        policy: off, static, tiers or adaptive.
        k: Draft length; None where it changes with the batch, or nothing fits.
        service: How it serves; None where no request fits.
        equilibrium: How many run; None at overload, or where nothing fits.
        latencies: Of all requests, then of each class where there are several; empty at overload.
        highest_rate_per_s: Rate above which queues grow without end; NaN where nothing fits.
        state: steady, metastable, overload, or does not fit.
        goodput_rate_per_s: Highest rate at which the means meet the level; NaN where nothing is asked.
        goodput_bound: What ends it: a latency that is missed beyond it, or the highest rate itself.
        speedup: TPOT without speculation over that with it, at this rate.
        speedup_low, speedup_high: The same at both ends of the source's range.
        side: What speculation costs besides the step, by key of the table.
    """

    policy: str
    k: int | None
    service: Service | None
    equilibrium: Equilibrium | None
    latencies: tuple[Latency, ...]
    highest_rate_per_s: float
    state: str
    utilisation: float
    goodput_rate_per_s: float = math.nan
    goodput_bound: str = ""
    speedup: float = math.nan
    speedup_low: float = math.nan
    speedup_high: float = math.nan
    tokens_per_s_per_gpu: float = math.nan
    usd_per_million_tokens: float = math.nan
    joules_per_million_tokens: float = math.nan
    side: dict[str, float]

    @property
    def tpot_s(self) -> float:
        """Mean TPOT of all requests; infinite at overload."""
        return self.latencies[0].tpot_s if self.latencies else math.inf

    @property
    def equilibrium_batch(self) -> float:
        """Mean running sequences; NaN at overload."""
        return math.nan if self.equilibrium is None else self.equilibrium.batch

    def of_all(self) -> dict[str, Cell]:
        """What the row of all requests says beside the latencies."""
        found = {
            "batch": self.equilibrium_batch,
            "speedup": self.speedup,
            "speedup_low": self.speedup_low,
            "speedup_high": self.speedup_high,
            "tokens_per_s_per_gpu": self.tokens_per_s_per_gpu,
            "utilisation": self.utilisation,
            "highest_rate_per_s": self.highest_rate_per_s,
            "goodput_rate_per_s": self.goodput_rate_per_s,
            "usd_per_million_tokens": self.usd_per_million_tokens,
            "joules_per_million_tokens": self.joules_per_million_tokens,
            "max_batch": math.nan if self.service is None else self.service.limits.max_batch,
            **self.side,
        }
        told: dict[str, Cell] = {
            key: None if math.isnan(value) else float(value) for key, value in found.items()
        }
        return told | {"goodput_bound": self.goodput_bound or None}


def arms_at(question: LoadQuestion, rate_per_s: float) -> tuple[Arm, ...]:
    """Off, the best static k, tiers and the best adaptive verification at a rate of all replicas."""
    off = question.bare_arm("off", question.services["off", 0], rate_per_s)
    found = [off]
    for policy in ("static", "tiers", "adaptive"):
        tried = [
            question.bare_arm(policy, service, rate_per_s)
            for (name, _), service in question.services.items()
            if name == policy
        ]
        if tried:
            found.append(_beside(question, min(tried, key=partial(_rank, question)), off, rate_per_s))
    return (_priced(question, off, rate_per_s), *found[1:])


def _rank(question: LoadQuestion, arm: Arm) -> tuple[bool, float, float]:
    """The best arm of a policy is least: of those that meet the level, the one with the least TPOT."""
    highest = 0.0 if math.isnan(arm.highest_rate_per_s) else arm.highest_rate_per_s
    return not (arm.latencies and meets(question.level, arm.latencies)), arm.tpot_s, -highest


def _beside(question: LoadQuestion, arm: Arm, off: Arm, rate_per_s: float) -> Arm:
    """The arm beside off, with its range."""
    if arm.equilibrium is None or off.equilibrium is None:
        return _priced(question, arm, rate_per_s)
    low, high = _ends(question, arm, off, rate_per_s)
    compared = replace(arm, speedup=off.tpot_s / arm.tpot_s, speedup_low=low, speedup_high=high)
    return _priced(question, compared, rate_per_s)


def _ends(question: LoadQuestion, arm: Arm, off: Arm, rate_per_s: float) -> tuple[float, float]:
    """Speed-up at the dearest and the cheapest step; 0 where the dearest is overloaded."""
    if arm.service is None or not question.has_range:
        return math.nan, math.nan
    ends = [
        off.tpot_s / question.bare_arm(arm.policy, service, rate_per_s).tpot_s
        for service in question.at_ends(arm.service)
    ]
    return min(ends), max(ends)


def _priced(question: LoadQuestion, arm: Arm, rate_per_s: float) -> Arm:
    """The arm with what it delivers and costs."""
    if arm.service is None:
        return arm
    side = _side_costs(question, arm)
    goodput, bound = question.goodput(arm.service)
    arm = replace(arm, side=side, goodput_rate_per_s=goodput, goodput_bound=bound)
    if arm.equilibrium is None:
        return arm
    tokens_per_s = question.machine.traffic.at(rate_per_s).output_tokens_per_s
    usd_per_hour, watts = question.price
    return replace(
        arm,
        tokens_per_s_per_gpu=tokens_per_s / question.devices,
        usd_per_million_tokens=usd_per_hour / 3600 / tokens_per_s * MILLION,
        joules_per_million_tokens=watts / tokens_per_s * MILLION,
    )


def _side_costs(question: LoadQuestion, arm: Arm) -> dict[str, float]:
    """What a policy costs besides its step; all 0 but the chunk for off."""
    machine, service = question.machine, arm.service
    assert service is not None
    drafting = service.drafting
    shares, classes = machine.traffic.shares, machine.traffic.classes
    lost = [one.hits(drafting=False) - one.hits(drafting=drafting) for one in classes]
    plain = machine.limits(0)
    room = math.nan if plain is None else plain.max_batch - service.limits.max_batch
    batch = 1 if arm.equilibrium is None else max(round(arm.equilibrium.batch), 1)
    k = int(service.ks[min(batch, service.ks.size) - 1])
    where = np.array([float(batch)])
    plain_s = float(np.asarray(machine.plain.step_s(where, 0.0, 0))[0])
    return {
        "lost_batch": float(room),
        "lost_prefix_tokens": float(shares @ np.array(lost)),
        "draft_prefill_s": machine.draft_prefill_s if drafting else 0.0,
        "zero_tier_s": machine.zero_tier_cost * plain_s if drafting and k == 0 else 0.0,
        "chunk_step_s": float(service.step_s(where, np.array([float(machine.chunk_tokens)]))[0]),
    }
