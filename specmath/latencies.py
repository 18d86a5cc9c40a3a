"""Latencies of a replica under load, from the law of its running batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray
from specmath.equilibria import Equilibrium
from specmath.queueing import Queue
from specmath.traffic import TrafficClass

LENGTHS = 101
"""Output lengths that stand for a class, each for as many requests."""
MAX_UTILISATION = 0.8
"""Share of the highest rate up to which percentiles are given in closed form."""
MAX_PHASES = 1.05
"""Factor by which phases of prefill may lengthen stays where they are: long prompts make broad tails."""
MAX_QUEUEING = 0.02
"""Share of requests that may wait for a place where they are."""
MAX_OTHERS = 0.01
"""Share of a stay that may pass at another k, or beyond a valley of the law of batches, where they are."""
QUANTILES = (0.5, 0.95, 0.99)
_BISECTIONS = 60
_TOGETHER = 6
"""Most prompts that are counted in one step where gaps are concerned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """Latencies of a class, or of all requests; NaN where they do not exist or no closed form holds.

    Attributes:
        name: The class; "all" for all of them.
        tpot_s: Mean time per output token after the first, T/E with what the last step wastes.
        itl_s: Mean time between two deliveries to a request, which bring E tokens each.
        itl_p99_s: Time that 1 % of them exceed.
        ttft_s: Mean time to the first token.
        e2e_s: Mean time to the last token.
        e2e_p50_s, e2e_p95_s, e2e_p99_s: Its quantiles.
    """

    name: str
    tpot_s: float
    itl_s: float
    itl_p99_s: float
    ttft_s: float
    e2e_s: float
    e2e_p50_s: float
    e2e_p95_s: float
    e2e_p99_s: float


def latencies(queue: Queue, state: Equilibrium) -> tuple[Latency, ...]:
    """Latencies of all requests, then of each class where there are several.

    TTFT is the wait for a place, for the step under way, and for earlier prompts, then the prompt's own
    chunks. The decoding time of a request is in proportion to its steps; about its mean it varies with the
    length of the output, the tokens accepted, and the batches met.
    """
    return _Latencies(queue, state).answers()


class _Latencies:
    def __init__(self, queue: Queue, state: Equilibrium) -> None:
        self.queue, self.state = queue, state
        self.top = state.running.size
        self.shares = queue.traffic.shares
        self.steps = queue.steps[:, : self.top]
        self._busy = queue.traffic.rate_per_s / queue.highest_rate_per_s
        seen = state.seen
        # Steps of a request go by at the rate 1/T over the time it spends at each batch; in all by Little.
        decode_s = 1 / ((1 / (self.steps * state.mean_step_s)) @ seen)
        scale = state.batch / queue.traffic.rate_per_s / float(self.shares @ decode_s)
        self.decode_s = decode_s * scale
        self.itl_s = scale / float((1 / state.mean_step_s) @ seen)
        self.tail_s = self._tail_s()
        self.ttft_s = [self._wait_s() + self._prefill_s(one) for one in queue.traffic.classes]

    def answers(self) -> tuple[Latency, ...]:
        classes = self.queue.traffic.classes
        outputs = np.array([one.output_tokens for one in classes])
        names = ["all"] if len(classes) == 1 else ["all", *(one.name for one in classes)]
        weights = [self.shares, *np.eye(len(classes))][: len(names)]
        return tuple(self._of(name, weight, outputs) for name, weight in zip(names, weights, strict=True))

    def _of(self, name: str, weight: FloatArray, outputs: FloatArray) -> Latency:
        decode_s, ttft_s = float(weight @ self.decode_s), float(weight @ np.array(self.ttft_s))
        quantiles = self._quantiles(weight)
        return Latency(
            name=name,
            tpot_s=decode_s / float(weight @ (outputs - 1)),
            itl_s=self.itl_s,
            itl_p99_s=self.tail_s,
            ttft_s=ttft_s,
            e2e_s=ttft_s + decode_s,
            e2e_p50_s=quantiles[0],
            e2e_p95_s=quantiles[1],
            e2e_p99_s=quantiles[2],
        )

    def _tail_s(self) -> float:
        """Step time that 1 % of the steps of a request exceed: some batches, some with prompts in them.

        A step reads the prompts that came in the step before, a Poisson number, more of them after a slow
        step; tokens of several prompts are spread as those of one are, by the root of their number.
        """
        queue, state = self.queue, self.state
        bare, added_s = queue.bare_s[: self.top], state.prefill.added_s[:, : self.top].mean(0)
        share = queue.traffic.rate_per_s * state.mean_step_s * state.prefill.steps[:, : self.top].sum(0)
        share = np.minimum(share, 1.0)
        number = np.arange(1, _TOGETHER + 1)[:, None]
        count = (1 - share) * _poisson(number, queue.traffic.rate_per_s * bare)
        count += share * _poisson(number, queue.traffic.rate_per_s * (bare + added_s))
        slow = count[:, None] * queue.prompt_shares * np.maximum(queue.prompts / queue.chunk_tokens, 1.0)
        slow *= share / np.maximum(slow.sum((0, 1)), 1e-300)
        apart = (queue.prompts - queue.prompt_tokens) * np.sqrt(number[:, None])
        tokens = np.minimum(queue.prompt_tokens * number[:, None] + apart, queue.chunk_tokens)
        slow_s = queue.service.step_s(queue.batches[: self.top], np.broadcast_to(tokens, slow.shape))
        seconds = np.concatenate([bare, slow_s.ravel()])
        weights = np.concatenate([state.step_shares * (1 - share), (state.step_shares * slow).ravel()])
        order = np.argsort(seconds, kind="stable")
        reached = np.cumsum(weights[order]) / weights.sum()
        return float(seconds[order][min(int(np.searchsorted(reached, 0.99)), order.size - 1)])

    def _wait_s(self) -> float:
        """Mean wait for a place among the running, for the step under way, and for the prompts before."""
        state, rate = self.state, self.queue.traffic.rate_per_s
        place_s = state.queue_length / rate * (1 + self._service_variation()) / 2
        steps = state.step_shares
        mean_s = float(steps @ state.mean_step_s)
        residual_s = (1 - state.idle) * float(steps @ state.mean_step_s**2) / (2 * mean_s)
        return place_s + residual_s + self._prompts_before_s()

    def _service_variation(self) -> float:
        """Squared coefficient of variation of the steps of a request, all classes together."""
        means = self.steps[:, -1]
        squares = [
            mean**2 * (1 + one.squared_variation)
            for mean, one in zip(means, self.queue.traffic.classes, strict=True)
        ]
        mean = float(self.shares @ means)
        return float(self.shares @ np.array(squares)) / mean**2 - 1

    def _full_chunk_s(self) -> float:
        """Mean step with a full chunk of prefill, over the batches that an arrival finds."""
        queue, state = self.queue, self.state
        chunks = np.full(queue.batches.size, queue.chunk_tokens)
        seconds = np.asarray(queue.service.step_s(queue.batches, chunks))[: self.top]
        return float(state.in_place @ seconds) / max(1 - state.idle, 1e-300)

    def _prompts_before_s(self) -> float:
        """Mean wait for prompts that came before, as in a queue of several servers (Sakasegawa 1977).

        The servers are the prompts that fit a chunk, of the length that a prompt token is in at a mean.
        """
        queue, variation = self.queue, self._prompt_variation()
        at_once = max(queue.chunk_tokens / (queue.prompt_tokens * (1 + variation)), 1.0)
        service_s = queue.prompt_tokens / queue.chunk_tokens * self._full_chunk_s()
        # What the highest rate leaves free, prefill has free at least.
        load = min(queue.traffic.rate_per_s * service_s, self._busy)
        wait_s = load ** (math.sqrt(2 * (at_once + 1)) - 1) / (1 - load) * service_s
        return float(wait_s * (1 + variation) / 2)

    def _prompt_variation(self) -> float:
        """Squared coefficient of variation of the prompts to be computed, all classes together."""
        queue = self.queue
        squares = [
            one.share * one.prefill_tokens(drafting=queue.service.drafting) ** 2 * (1 + one.prompt_variation)
            for one in queue.traffic.classes
        ]
        return math.fsum(squares) / queue.prompt_tokens**2 - 1

    def _prefill_s(self, one: TrafficClass) -> float:
        """Mean time of a class's own prompts: whole chunks, and a step for the rest with what coincides."""
        queue, state = self.queue, self.state
        prompts = one.prompt_kinds(drafting=queue.service.drafting, count=LENGTHS)
        chunks, rest = np.divmod(prompts, queue.chunk_tokens)
        arrivals = queue.traffic.rate_per_s * self.itl_s
        tokens = np.minimum(rest + arrivals * queue.prompt_tokens, queue.chunk_tokens)
        batches = np.concatenate([[0.0], queue.batches[: self.top]])[:, None]
        seconds = np.asarray(
            queue.service.step_s(batches, np.broadcast_to(tokens, (batches.size, rest.size)))
        )
        last_s = np.concatenate([[state.idle], state.in_place]) @ seconds
        return float(np.mean(chunks * self._full_chunk_s() + np.where(rest > 0, last_s, 0.0)))

    def _quantiles(self, weight: FloatArray) -> tuple[float, ...]:
        """Quantiles of the end-to-end time; NaN near saturation and beside long prompts."""
        state = self.state
        broad = float(state.seen @ state.phases) > MAX_PHASES or state.queueing > MAX_QUEUEING
        if self._busy > MAX_UTILISATION or broad or self._mixes():
            return (math.nan,) * len(QUANTILES)
        chosen = np.flatnonzero(weight)
        parts = [self._spread(int(place)) for place in chosen]
        means, deviations = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
        shares = np.repeat(weight[chosen] / LENGTHS, LENGTHS)
        return tuple(_mixture_quantile(q, means, deviations, shares) for q in QUANTILES)

    def _mixes(self) -> bool:
        """Whether k changes within the batches that requests meet, or those fall into two groups."""
        seen, running, ks = self.state.seen, self.state.in_place, self.queue.service.ks[: self.top]
        mostly = max(float(seen[ks == k].sum()) for k in np.unique(ks))
        rises = np.diff(running) > 0
        valleys = np.flatnonzero(rises[1:] & ~rises[:-1]) + 1
        sides = [min(float(seen[:valley].sum()), float(seen[valley:].sum())) for valley in valleys]
        return mostly < 1 - MAX_OTHERS or max(sides, default=0.0) > MAX_OTHERS

    def _spread(self, place: int) -> tuple[FloatArray, FloatArray]:
        """End-to-end time of requests of a class: means by output length, and deviations about each."""
        state, one = self.state, self.queue.traffic.classes[place]
        levels = (np.arange(LENGTHS) + 0.5) / LENGTHS
        tokens = np.maximum(one.output_quantile(levels) - 1, 1)
        means = self.ttft_s[place] + self.decode_s[place] * tokens / (one.output_tokens - 1)
        seen = state.seen
        length = float(seen @ self.queue.service.lengths[place, : self.top])
        variance = float(seen @ self.queue.service.variances[place, : self.top])
        of_acceptance = self.itl_s**2 * tokens * variance / length**3
        of_batches = (tokens / length) ** 2 * self._batch_variance()
        of_prompts = self._prompt_variance() * tokens / length * self.itl_s
        between = np.gradient(means) ** 2 / 12  # lengths between those that stand for all
        return means, np.sqrt(of_acceptance + of_batches + of_prompts + between + self.itl_s**2 / 12)

    def _prompt_variance(self) -> float:
        """Variance that prompts of others add to a stay, per second of it: that of a delay busy period.

        Each of them adds δ to the stay, and those that come in that time theirs: λδ²/(1 − λδ)².
        """
        prefill, queue = self.state.prefill, self.queue
        added = (prefill.steps * prefill.added_s)[:, : self.top] / queue.prompt_shares
        squares = float((queue.prompt_shares * added**2).sum(0) @ self.state.seen)
        busy = float((queue.prompt_shares * added).sum(0) @ self.state.seen) * queue.traffic.rate_per_s
        return queue.traffic.rate_per_s * squares / max(1 - busy, 0.1) ** 2

    def _batch_variance(self) -> float:
        """Variance of the mean step over a stay: that over batches, averaged over a stay.

        At a constant step the number running loses memory linearly over a stay, and 2/3 of the variance are
        left of its mean; feedback makes it last longer, by as much as it amplifies the batch.
        """
        state = self.state
        mean = float(state.seen @ state.mean_step_s)
        variance = float(state.seen @ (state.mean_step_s - mean) ** 2)
        return variance * min(1.0, (2 / 3) / (1 - self._busy))


def _poisson(count: npt.NDArray[np.int64], mean: FloatArray) -> FloatArray:
    """Poisson probabilities of counts of at least 1."""
    factorials = np.array([math.factorial(int(one)) for one in count.ravel()]).reshape(count.shape)
    return np.asarray(np.exp(-mean) * mean**count / factorials)


def _mixture_quantile(q: float, means: FloatArray, deviations: FloatArray, shares: FloatArray) -> float:
    """Quantile of a mixture of lognormal laws, in which delays that add up to delays are skewed."""
    sigmas = np.sqrt(np.log1p((deviations / means) ** 2))
    middles = np.log(means) - sigmas**2 / 2
    parts = list(zip(middles.tolist(), sigmas.tolist(), shares.tolist(), strict=True))
    low, high = float((middles - 8 * sigmas).min()), float((middles + 8 * sigmas).max())
    for _ in range(_BISECTIONS):
        level = (low + high) / 2
        below = sum(
            share * math.erfc((middle - level) / (math.sqrt(2) * sigma)) / 2 for middle, sigma, share in parts
        )
        low, high = (level, high) if below < q else (low, level)
    return math.exp(high)
