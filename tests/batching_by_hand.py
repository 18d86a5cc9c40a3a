"""Continuous batching once more, as plainly as it can be written: one step, one request, one token at a time.

The simulator is held against it. Nothing of it is shared but the draws of accepted tokens.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specmath.checks import Numbers, like_inputs
from specmath.simulation.draws import Yields
from specmath.simulation.policies import BatchPolicy
from specmath.traffic import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearSteps:
    """A step that grows with the batch, the prompt tokens and k."""

    fixed_s: float = 1.0
    per_sequence_s: float = 0.0
    per_prompt_token_s: float = 0.0
    per_draft_s: float = 0.0

    def step_s(self, batch: npt.ArrayLike, prefill_tokens: npt.ArrayLike, k: int) -> Numbers:
        sequences, prompt = np.asarray(batch, dtype=float), np.asarray(prefill_tokens, dtype=float)
        rows = self.per_sequence_s * sequences + self.per_prompt_token_s * prompt
        return like_inputs(self.fixed_s + rows + self.per_draft_s * k)


@dataclass(slots=True)
class Request:
    arrival_s: float
    prompt: int
    cached: int
    output: int
    class_index: int
    unread: int = 0
    got: int = 0
    times: list[float] = field(default_factory=list)
    admitted_s: float | None = None
    preemptions: int = 0


def served_by_hand(
    requests: list[Request], yields: Yields, steps: LinearSteps, limits: Limits, policy: BatchPolicy
) -> None:
    """Serve the requests; the times of their deliveries are written into them."""
    room = float("inf") if limits.kv_tokens is None else limits.kv_tokens
    slots = max(policy.ks) + 1
    coming, waiting = deque(requests), deque[Request]()
    running: list[Request] = []
    now, tier = 0.0, 0

    def taken() -> int:
        return sum(one.prompt + one.got + slots for one in running)

    while coming or waiting or running:
        if not waiting and not running:
            now = max(now, coming[0].arrival_s)
        while coming and coming[0].arrival_s <= now + 1e-9:
            waiting.append(coming.popleft())
        hindered = False
        while taken() > room:
            last = running.pop()
            last.preemptions += 1
            waiting.appendleft(last)
            hindered = True
        budget = limits.chunk_tokens - sum(one.unread for one in running)
        while not hindered and waiting and budget > 0 and len(running) < limits.max_batch:
            first = waiting[0]
            if taken() + first.prompt + first.got + slots > room:
                break
            running.append(waiting.popleft())
            first.unread = max(1, first.prompt + first.got - first.cached)
            budget -= first.unread
            first.admitted_s = max(now, first.arrival_s) if first.admitted_s is None else first.admitted_s
        assert taken() <= room
        assert len(running) <= limits.max_batch
        decoding = [one for one in running if not one.unread]
        tier = policy.tier_at(len(decoding), tier)
        k = policy.ks[tier]
        prefilled, delivered = 0, []
        for one in running:
            if one.unread:
                part = min(one.unread, limits.chunk_tokens - prefilled)
                prefilled += part
                one.unread -= part
                if not one.unread:
                    delivered.append((one, 1))
        for one in decoding:
            tokens = int(yields.ahead(one.class_index, k, 1)[0])
            yields.taken(one.class_index, k, 1)
            delivered.append((one, tokens))
        now += float(steps.step_s(len(decoding), prefilled, k))
        for one, tokens in delivered:
            one.got = min(one.output, one.got + tokens)
            one.times.append(now)
        running = [one for one in running if one.got < one.output]
