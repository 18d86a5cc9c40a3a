"""A replica under load: how many sequences run, how long requests take, and which rate is too much.

With n sequences in a step of T(n) seconds, a request that needs M steps leaves at the rate n / (M·T(n)); new
ones come at the rate λ. The number running then has the product form

    π(n) = π(0) · Π_{i ≤ n} λ·M·T(i) / i        up to the largest batch, beyond which requests wait,

exact for short steps and Poisson arrivals whatever the spread of lengths, since all that run share the
machine (a symmetric queue: Kelly 1979; Cohen 1979). For T constant it is Poisson (M/G/∞), for T linear in n
its mean is the root of B = λ·M·T(1 + B), and for T proportional to n it is processor sharing. Prefill takes
steps, or parts of steps, from decoding: T(n) is the mean step with the chunks that arrive meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, IntArray, Numbers, like_inputs, require_range
from specmath.equilibria import Equilibrium, Prefill
from specmath.errors import InputError
from specmath.traffic import Limits, Traffic

_PREFILL_ROUNDS = 40
"""Rounds in which the mean step with its prefill settles; the first that changes nothing ends them."""
_SETTLED = 1e-12
_MOST_BUSY = 0.95
"""Share of the time that slow phases may take where their memory is reckoned."""
_RARE = 0.01
"""Most of the time that may be spent at the edge of overload, so that the edge counts as out of reach."""

Steps = Callable[[FloatArray, FloatArray], FloatArray]
"""Seconds of a step of so many sequences with so many prefill tokens beside them."""


def steps_per_request(
    output_tokens: npt.ArrayLike, acceptance_length: npt.ArrayLike, variance: npt.ArrayLike
) -> Numbers:
    """Mean decoding steps of a request.

        M = (N − 1)/E + (E² + σ² − E) / (2 E²), at least 1

    The prefill emits the first token. The second term is what the last step yields beyond the end, the
    overshoot of a renewal process; it is 0 where a step yields one token.

    Args:
        output_tokens: N, tokens of the output, at least 2.
        acceptance_length: E, mean tokens of a step, at least 1.
        variance: σ², variance of the tokens of a step, at least 0.

    Returns:
        Steps, at least 1 and at most N − 1 where E is at least 1.

    Raises:
        InputError: for a value out of range.

    Source: renewal theory (Feller vol. 1, XIII); exact in the limit of long outputs.

    >>> steps_per_request(301, 1, 0), steps_per_request(301, 2, 0)  # 300 tokens by twos; half a token is lost
    (300.0, 150.25)
    """
    tokens = require_range("output_tokens", output_tokens, 2) - 1
    mean = require_range("acceptance_length", acceptance_length, 1)
    square = mean**2 + require_range("variance", variance, 0)
    return like_inputs(np.maximum(tokens / mean + (square - mean) / (2 * mean**2), 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """How a policy serves a traffic on one replica; arrays over batches run from batch 1 on.

    Attributes:
        name: The policy.
        ks: Draft length at each batch.
        step_s: Step times under the policy.
        lengths: Tokens of a step, E, by class and batch.
        variances: Their variance, by class and batch.
        limits: What the replica admits under the policy; `limits.max_batch` is how many batches there are.
        drafting: Whether a drafter is loaded.
    """

    name: str
    ks: IntArray
    step_s: Steps
    lengths: FloatArray
    variances: FloatArray
    limits: Limits
    drafting: bool

    def __post_init__(self) -> None:
        shape = (self.lengths.shape[0], self.limits.max_batch)
        if self.lengths.shape != shape or self.variances.shape != shape or self.ks.shape != shape[1:]:
            raise InputError("service", f"must have a column for each of {self.limits.max_batch} batches")

    @property
    def k(self) -> int | None:
        """The one k; None where it changes with the batch."""
        return int(self.ks[0]) if np.all(self.ks == self.ks[0]) else None


class Queue:
    """One replica that serves a traffic under a policy: step times, the highest rate, and what happens below.

    Args:
        service: The policy.
        traffic: Classes, and the rate of this replica.
    """

    def __init__(self, service: Service, traffic: Traffic) -> None:
        if service.lengths.shape[0] != len(traffic.classes):
            raise InputError("service", f"must have a row for each of {len(traffic.classes)} classes")
        self.service = service
        self.traffic = traffic
        self.batches = np.arange(1, service.limits.max_batch + 1, dtype=float)
        outputs = np.array([one.output_tokens for one in traffic.classes])
        self.steps = np.asarray(steps_per_request(outputs[:, None], service.lengths, service.variances))
        self.mean_steps = traffic.shares @ self.steps
        self.prompt_tokens = traffic.prefill_tokens(drafting=service.drafting)
        self.chunk_tokens = float(service.limits.chunk_tokens)
        shares, prompts = traffic.prompts(drafting=service.drafting)
        self.prompt_shares, self.prompts = shares[:, None], prompts[:, None]

    @cached_property
    def bare_s(self) -> FloatArray:
        """Step times without prefill, by batch."""
        return np.asarray(self.service.step_s(self.batches, np.zeros_like(self.batches)))

    def prefill(self, arrivals: npt.ArrayLike) -> Prefill:
        """Prefill steps at so many arrivals a step, one number by batch."""
        mean = np.maximum(np.asarray(arrivals, dtype=float), _SETTLED)
        together = mean / -np.expm1(-mean)  # requests of a step that has any
        carried = np.minimum(self.prompts + self.prompt_tokens * (together - 1), self.chunk_tokens)
        added_s = np.asarray(self.service.step_s(self.batches, carried)) - self.bare_s
        steps = self.prompts / carried
        return Prefill(
            carried_tokens=carried,
            steps=np.asarray(self.prompt_shares * steps),
            added_s=added_s,
            slow_s=np.asarray(steps * (self.bare_s + added_s)),
        )

    @cached_property
    def sustained(self) -> FloatArray:
        """Rate at which so many sequences are in balance, by batch: arrivals of a step over its time."""
        return self._balance[0]

    @cached_property
    def _balance(self) -> tuple[FloatArray, FloatArray]:
        """The rate at which each batch is in balance, and the places that decoding and prefill take then."""
        arrivals = np.minimum(self.batches / self.mean_steps, self.chunk_tokens / self.prompt_tokens)
        prefill = self.prefill(arrivals)
        steps = np.minimum(arrivals * prefill.steps.sum(0), 1.0)
        added = steps * (prefill.steps * prefill.added_s).sum(0) / prefill.steps.sum(0)
        rates = np.asarray(arrivals / (self.bare_s + added))
        stays_s = np.maximum(self.prompts / self.chunk_tokens, 1.0) * (self.bare_s + prefill.added_s)
        return rates, self.batches + rates * (self.prompt_shares * stays_s).sum(0)

    @cached_property
    def _full(self) -> tuple[FloatArray, FloatArray]:
        """While requests wait: prompts read a second by decoding sequences, from 0 on, and step times.

        Places that do not decode are prefilled, as much as a chunk holds, and each takes a step at least.
        """
        whole = np.concatenate([[0.0], self.batches])
        carried = np.minimum((whole[-1] - whole) * self.prompt_tokens, self.chunk_tokens)
        seconds = np.asarray(self.service.step_s(whole, carried))
        seconds = np.maximum(seconds, _SETTLED * seconds.max())  # where prompts alone take no time
        return carried / self.prompt_tokens / seconds, seconds

    @cached_property
    def _fastest(self) -> FloatArray:
        """Ratio of π(n) to π(n − 1) while requests wait: prompts are read no faster, whatever comes."""
        read_per_s, seconds = self._full
        return np.asarray(read_per_s[:-1] * self.mean_steps * seconds[1:] / self.batches)

    @cached_property
    def saturated(self) -> tuple[FloatArray, float]:
        """While requests wait: probability of so many decoding sequences, from 0 on, and the rate served.

        up(n) = p / (P·T(n, p)),   p = min((c − n)·P, chunk);   down(n) = n / (M·T(n, p))
        """
        top = _first_hill(self._fastest)
        weights = np.zeros(self.batches.size + 1)
        logs = np.concatenate([[0.0], np.cumsum(np.log(self._fastest[:top]))])
        weights[: top + 1] = np.exp(logs - logs.max())
        law = weights / weights.sum()
        return law, float(law @ self._full[0])

    @cached_property
    def highest_rate_per_s(self) -> float:
        """Requests per second above which the queue grows without end.

        The largest rate in balance, of batches that leave places for prefill and that prefill can bring
        about; or that of a full machine, where it is still rising.
        """
        rates, places = self._balance
        full = np.flatnonzero(self.batches / self.mean_steps >= self.chunk_tokens / self.prompt_tokens)
        reach = int(full[0]) if full.size else rates.size
        free = rates[:reach][places[:reach] <= rates.size]
        return max(float(free.max(initial=0.0)), self.saturated[1])

    def mean_step_s(self, rate_per_s: float) -> tuple[FloatArray, Prefill]:
        """The mean step with its prefill, at most a step that has prompts in it, and the prefill; by batch.

        T = T₀ + λ·T·Σ (P/c)·ΔT(c), over kinds of prompts.
        """
        mean_s = self.bare_s
        for _ in range(_PREFILL_ROUNDS):
            prefill = self.prefill(rate_per_s * mean_s)
            added = (prefill.steps * prefill.added_s).sum(0)
            slow_s = self.bare_s + added / prefill.steps.sum(0)
            settled = np.minimum(self.bare_s / np.maximum(1 - rate_per_s * added, _SETTLED), slow_s)
            if np.all((settled == mean_s) | (np.abs(settled - mean_s) <= _SETTLED * mean_s)):
                break
            mean_s = settled
        return mean_s, prefill

    def slow_phases(self, rate_per_s: float, mean_s: FloatArray, prefill: Prefill) -> FloatArray:
        """Factor, at least 1, by which phases of prefill lengthen stays beyond the mean step, by batch.

        Steps are counted evenly in the mean step, but requests come evenly in time, so that more of them meet
        a slow phase than steps are slow. Over a stay D that is felt for the memory τ of the phases:

            1 + (E[T over time] / T − 1) · τ (1 − exp(−D/τ)) / D,   τ = E[S²] / (2 E[S] (1 − ρ)),   ρ = λ E[S]

        A prompt needs a place: none is read while all decode, and one alone, no run of them, in the last.
        """
        first = (self.prompt_shares * prefill.slow_s).sum(0)
        second = (self.prompt_shares * prefill.slow_s**2).sum(0)
        busy = np.minimum(rate_per_s * first, _MOST_BUSY)
        memory_s = second / (2 * first * (1 - busy))
        slow_step_s = first / prefill.steps.sum(0)
        over_time_s = (1 - busy) * self.bare_s + busy * slow_step_s
        stay_s = self.mean_steps * mean_s
        felt = memory_s / stay_s * -np.expm1(-stay_s / memory_s)
        room = np.minimum((self.batches[-1] - self.batches) / 2, 1.0)
        return np.asarray(1 + np.maximum(over_time_s / mean_s - 1, 0) * felt * room)

    def equilibrium(self) -> Equilibrium | None:
        """How many run and wait at the traffic's rate; None where the queue grows without end."""
        rate = self.traffic.rate_per_s
        if rate >= self.highest_rate_per_s:
            return None
        even_s, prefill = self.mean_step_s(rate)
        even = rate * self.mean_steps * even_s / self.batches
        # Phases lengthen stays, but take no work: what can be sustained, still can.
        ratios = even * self.slow_phases(rate, even_s, prefill)
        ratios = np.where(even < 1, np.minimum(ratios, (1 + even) / 2), ratios)
        phases = ratios / even
        if rate < self.saturated[1]:  # a full machine drains; elsewhere it is where overload ends
            ratios = np.minimum(ratios, self._fastest)
        top = _last_calm(ratios)
        if not top:
            return None
        logs = np.concatenate([[0.0], np.cumsum(np.log(ratios[:top]))])
        weights = np.exp(logs - logs.max())
        tail = rate / self.highest_rate_per_s if top == ratios.size else 0.0
        waiting = weights[-1] * tail / (1 - tail)
        total = weights.sum() + waiting
        if top < ratios.size and weights[-1] > _RARE * total:
            return None
        return Equilibrium(
            running=np.asarray(weights[1:] / total),
            waiting=self.saturated[0][1 : top + 1] * float(waiting / total),
            idle=float(weights[0] / total + waiting / total * self.saturated[0][0]),
            queueing=float((weights[-1] + waiting) / total) if tail else 0.0,
            queue_length=float(waiting / (1 - tail) / total) if tail else 0.0,
            waiting_share=float(waiting / total),
            mean_step_s=(even_s * phases)[:top],
            phases=phases[:top],
            prefill=prefill,
            metastable_beyond=top if top < ratios.size else None,
        )


def _first_hill(ratios: FloatArray) -> int:
    """Last batch before the weights that these ratios multiply up to rise for a second time."""
    falls = ratios < 1
    first = int(np.argmax(falls)) if falls.any() else ratios.size
    rises = np.flatnonzero(~falls[first:])
    return first + int(rises[0]) if rises.size else ratios.size


def _last_calm(ratios: FloatArray) -> int:
    """Largest batch at which requests leave faster than new ones come; 0 where there is none."""
    calm = np.flatnonzero(ratios < 1)
    return int(calm[-1]) + 1 if calm.size else 0
