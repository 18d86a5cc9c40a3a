"""The policies that a replica may run under a traffic: off, each fixed k, tiers of k, adaptive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from specmath.adaptive import adaptive_acceptance_length, verification_width
from specmath.checks import FloatArray, IntArray
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.mixed_steps import End, MixedSteps, TabulatedSteps, batch_knots, prefill_knots, tabulated
from specmath.policies import tier_ks
from specmath.prompt_costs import prompt_costs
from specmath.queueing import Service, steps_per_request
from specmath.sources import BatchSource
from specmath.traffic import Limits, Traffic

ADAPTIVE_DEPTHS = 8
"""Verified tokens tried per drafted one."""
SWITCH_COST = 0.002
"""Share of the time, over batches that weigh alike factor by factor, that a change of k must save."""
_ROOM_STEPS = 1025
"""Contexts tried from that at which memory holds some sequences to that of one more."""
_OWN = 0
"""Key of the one table of a policy whose k is fixed by the batch."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """One replica and what it may run.

    Attributes:
        source: Step times that depend on the batch.
        traffic: Classes of requests; the rate does not matter here.
        ks: Draft lengths above 0 that are tried, rising.
        max_batch: Most sequences that the engine runs at once, without and with a drafter loaded.
        chunk_tokens: Prefill tokens of a step at most.
        zero_tier_cost: What k = 0 costs an engine that may draft, in plain steps.
        end: Which end of the source's range: its typical value, the cheapest or the dearest step.
    """

    source: BatchSource
    traffic: Traffic
    ks: tuple[int, ...]
    max_batch: tuple[int, int]
    chunk_tokens: int
    zero_tier_cost: float = 0.0
    end: End = "typical"

    def __post_init__(self) -> None:
        for k in self.ks:
            if len({int(law.width(k)) for law in self.laws}) > 1:
                raise InputError("classes", "must share the shape of a draft: all chains, or one tree")
        if all(self.limits(k) is None for k in (0, *self.ks)):
            raise self._no_room()

    def _no_room(self) -> InputError:
        """Memory holds no request: its weights, or the mean context of those that run, are too much."""
        remedy = "add devices, or quantise"
        if not self.context or float(self.source.max_batches(0, 1.0)[0]) < 1:
            return InputError("target", f"does not fit: its weights leave no room for a request; {remedy}")
        told = f"requests that run have a mean context of {self.context:,.0f} tokens, long ones weighing more"
        return InputError(
            "prompt_tokens", f"do not fit beside the weights: {told}; {remedy}, or shorten them"
        )

    @cached_property
    def context(self) -> float:
        """Mean context of a running sequence; 0 where the model has none to speak of."""
        return self.traffic.context if knows_context(self.source) else 0.0

    @cached_property
    def laws(self) -> tuple[AcceptanceLaw, ...]:
        """The law of each class at its own context."""
        return tuple(one.law.at(one.context) for one in self.traffic.classes)

    def held(self, k: int) -> float:
        """Sequences that memory holds when the engine drafts k, 0 without a drafter; NaN where not known."""
        plain, speculative = self.source.max_batches(k, self.context)
        return float(speculative if k else plain)

    def limits(self, k: int) -> Limits | None:
        """What a replica admits when its longest draft is k; None where not one request fits."""
        held, cap = self.held(k), self.max_batch[1 if k else 0]
        room = cap if np.isnan(held) else min(cap, int(held))
        if room < 1:
            return None
        return Limits(
            max_batch=room,
            kv_tokens=None if np.isnan(held) else self._kv_tokens(k, held),
            chunk_tokens=self.chunk_tokens,
        )

    def _kv_tokens(self, k: int, held: float) -> float:
        """Tokens of the cache: the longest context at which it still holds as many sequences, for all.

        What whole sequences of the mean context leave free is room, too: of few places it is much, and
        without it those that grow beyond the mean would be put back time and again.
        """
        wider = np.linspace(self.context, (self.context + k + 1) * (held + 1) / held, _ROOM_STEPS)
        fits = self.source.max_batches(k, wider)[1 if k else 0] >= held
        return float(held * (wider[int(np.flatnonzero(fits)[-1])] + k + 1))

    def at_end(self, end: End) -> Machine:
        """The same replica at an end of the source's range."""
        return replace(self, end=end)

    def steps(self, *, drafting: bool) -> MixedSteps:
        """Step times of an engine without a drafter, or with one."""
        return MixedSteps(
            source=self.source,
            prompts=prompt_costs(self.source, self.traffic, self.chunk_tokens, drafting=drafting),
            law=self.laws[0],
            context=self.context,
            drafter_loaded=drafting,
            zero_tier_cost=self.zero_tier_cost,
            end=self.end,
        )

    @cached_property
    def plain(self) -> TabulatedSteps:
        """Steps of an engine without a drafter."""
        room = self.limits(0)
        top = self.max_batch[0] if room is None else room.max_batch
        return tabulated(self.steps(drafting=False), [0], max_batch=top, chunk_tokens=self.chunk_tokens)

    @cached_property
    def drafting(self) -> TabulatedSteps:
        """Steps of an engine with a drafter, for every k and 0."""
        rooms = [room.max_batch for k in self.ks if (room := self.limits(k)) is not None]
        times = self.steps(drafting=True)
        top = max(rooms, default=1)
        return tabulated(times, [0, *self.ks], max_batch=top, chunk_tokens=self.chunk_tokens)

    @cached_property
    def draft_prefill_s(self) -> float:
        """Seconds that the drafter spends on the prompt of a request, a mean over requests."""
        times = self.steps(drafting=True)
        return times.prompts.draft_s * self.traffic.prefill_tokens(drafting=True)

    @cached_property
    def token_shares(self) -> FloatArray:
        """Share of the decoded tokens that each class has."""
        tokens = self.traffic.shares * [one.output_tokens for one in self.traffic.classes]
        return np.asarray(tokens / tokens.sum())

    def lengths(self, ks: IntArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the tokens of a step, by class and entry of `ks`."""
        rows = [
            (np.asarray(law.acceptance_length(ks)), np.asarray(law.accepted_variance(ks)))
            for law in self.laws
        ]
        means, variances = zip(*rows, strict=True)
        return np.array(means), np.array(variances)

    def request_steps(self, lengths: FloatArray, variances: FloatArray) -> FloatArray:
        """Mean steps of a request, what the last of them wastes included; classes are the first axis."""
        traffic = self.traffic
        outputs = np.array([one.output_tokens for one in traffic.classes])
        across = outputs.reshape(-1, *[1] * (lengths.ndim - 1))
        return np.tensordot(traffic.shares, np.asarray(steps_per_request(across, lengths, variances)), 1)

    def off(self) -> Service | None:
        """No drafter."""
        return self._fixed("off", 0, self.plain, self.limits(0))

    def static(self, k: int) -> Service | None:
        """One k at every batch."""
        return self._fixed("static", k, self.drafting, self.limits(k))

    @cached_property
    def zero_tier(self) -> Service | None:
        """k = 0 at every batch of an engine that may draft."""
        return self._fixed("tiers", 0, self.drafting, self.limits(self.ks[0]))

    def _fixed(self, name: str, k: int, table: TabulatedSteps, limits: Limits | None) -> Service | None:
        if limits is None:
            return None
        ks = np.full(limits.max_batch, k, dtype=np.int64)
        lengths, variances = self.lengths(ks)
        return Service(
            name=name,
            ks=ks,
            step_s=partial(_looked_up, table, k),
            lengths=lengths,
            variances=variances,
            limits=limits,
            drafting=name != "off",
        )

    @cached_property
    def tiers(self) -> Service | None:
        """The best k at each batch, where each change of k has to earn its keep; 0 among them."""
        limits = self.limits(self.ks[-1])
        if limits is None:
            return None
        ks = self._tier_ks(limits.max_batch)
        if not ks.any():
            limits = self.limits(self.ks[0]) or limits
            ks = np.zeros(limits.max_batch, dtype=np.int64)
        lengths, variances = self.lengths(ks)
        return Service(
            name="tiers",
            ks=ks,
            step_s=partial(_looked_up, stitched(self.drafting, ks), _OWN),
            lengths=lengths,
            variances=variances,
            limits=limits,
            drafting=True,
        )

    def _tier_ks(self, top: int) -> IntArray:
        batches, tried = np.arange(1, top + 1, dtype=float), np.array([0, *self.ks])
        steps = self.request_steps(*self.lengths(tried))
        costs = np.array([np.asarray(self.drafting.step_s(batches, 0, k)) for k in tried.tolist()])
        costs *= steps[:, None]
        shares = 1 / batches  # small and large batches count alike, factor by factor
        chosen = tier_ks(costs / costs[0], shares, SWITCH_COST)
        return np.asarray(tried[chosen])

    def same_policy(self, service: Service) -> Service:
        """A policy with the step times of this machine; adaptive verification chooses its depth anew."""
        if service.name == "adaptive":
            return self._adaptive(int(service.ks[0]), service.limits, self.steps(drafting=True))
        table = self.drafting if service.drafting else self.plain
        if service.k is None:
            return replace(service, step_s=partial(_looked_up, stitched(table, service.ks), _OWN))
        return replace(service, step_s=partial(_looked_up, table, service.k))

    def adaptive(self) -> Iterator[Service]:
        """Adaptive verification by position, for each k; none where trees are drafted."""
        times = self.steps(drafting=True)
        for k in self.ks:
            limits = self.limits(k)
            if limits is not None and all(int(law.width(k)) == k + 1 for law in self.laws):
                yield self._adaptive(k, limits, times)

    def _adaptive(self, k: int, limits: Limits, times: MixedSteps) -> Service:
        """The depth of verification at each batch that ends most requests a second."""
        knots = batch_knots(limits.max_batch)[1:]
        depth = np.arange(k * ADAPTIVE_DEPTHS + 1) / ADAPTIVE_DEPTHS
        verified = np.floor(depth * knots[:, None]) / knots[:, None]  # whole tokens of the batch
        means = np.array([np.asarray(adaptive_acceptance_length(law, k, verified)) for law in self.laws])
        width = verification_width(verified, knots[:, None])
        seconds = np.asarray(times.narrow_step_s(knots[:, None], 0.0, k, width=width))
        steps = self.request_steps(means, self._depth_variances(k, means))
        best = np.argmin(steps * seconds, axis=1)[:, None]
        chosen = np.take_along_axis(width, best, axis=1)
        prompt = prefill_knots(limits.chunk_tokens)
        table = np.asarray(times.narrow_step_s(knots[:, None], prompt, k, width=chosen))
        alone = np.asarray(times.step_s(0.0, np.maximum(prompt, 1.0), k))
        tabled = TabulatedSteps(
            batches=np.concatenate([[0.0], knots]),
            chunk_tokens=limits.chunk_tokens,
            tables={_OWN: np.vstack([alone, table])},
        )
        batches = np.arange(1, limits.max_batch + 1, dtype=float)
        drawn = [np.interp(batches, knots, np.take_along_axis(row, best, axis=1)[:, 0]) for row in means]
        return Service(
            name="adaptive",
            ks=np.full(limits.max_batch, k, dtype=np.int64),
            step_s=partial(_looked_up, tabled, _OWN),
            lengths=np.array(drawn),
            variances=self._depth_variances(k, np.array(drawn)),
            limits=limits,
            drafting=True,
        )

    def _depth_variances(self, k: int, means: FloatArray) -> FloatArray:
        """Variances that go with mean tokens of a step, by class: depths between whole ones draw both."""
        whole, variances = self.lengths(np.arange(k + 1))
        squares = [
            np.interp(row, lengths, variance + lengths**2)
            for row, lengths, variance in zip(means, whole, variances, strict=True)
        ]
        return np.maximum(np.array(squares) - means**2, 0.0)


def stitched(steps: TabulatedSteps, ks: Sequence[int] | IntArray) -> TabulatedSteps:
    """The table of a policy with the given k at batches 1, 2, …; its one key is 0."""
    chosen = np.concatenate([[ks[0]], ks])
    batches = np.arange(chosen.size, dtype=float)
    prompt = prefill_knots(steps.chunk_tokens)
    rows = np.empty((chosen.size, prompt.size))
    for k in np.unique(chosen).tolist():
        where = chosen == k
        rows[where] = np.asarray(steps.step_s(batches[where][:, None], prompt, k))
    return TabulatedSteps(batches=batches, chunk_tokens=steps.chunk_tokens, tables={_OWN: rows})


def knows_context(source: BatchSource) -> bool:
    """Whether a source can be asked at a context: a model known by its counts alone cannot."""
    try:
        source.step_cost(0, 1, 1)
    except InputError as fault:
        if fault.name == "context":
            return False
        raise
    return True


def _looked_up(table: TabulatedSteps, k: int, batch: FloatArray, prompt: FloatArray) -> FloatArray:
    return np.asarray(table.step_s(batch, prompt, k))
