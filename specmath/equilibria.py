"""The law of the number of sequences that run on a replica, and the prefill beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specmath.checks import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Prefill steps by kind of prompt, and by batch.

    Attributes:
        carried_tokens: Prefill tokens of a step with such a prompt in it.
        steps: Such steps for each arrival of any kind.
        added_s: Seconds by which prefill lengthens such a step.
        slow_s: Seconds from the first to the last such step of a prompt.
    """

    carried_tokens: FloatArray
    steps: FloatArray
    added_s: FloatArray
    slow_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Equilibrium:
    """The law of the number of sequences that run, batches from 1 on, while none or some wait.

    Attributes:
        running: Probability of each batch while none waits for a place.
        waiting: The same while some wait, when places that do not decode are prefilled.
        idle: Probability that none decodes.
        queueing: Probability that an arrival must wait for a place.
        queue_length: Mean number that wait for a place.
        waiting_share: Probability that some wait.
        mean_step_s: Mean step with its prefill as requests feel it, by batch.
        phases: Factor in it for prefill that comes in phases, by batch.
        prefill: Prefill steps, by kind of prompt and batch.
        metastable_beyond: Batch beyond which requests leave more slowly than new ones come, so that a burst
            that reaches it ends in overload; None where there is none.
    """

    running: FloatArray
    waiting: FloatArray
    idle: float
    queueing: float
    queue_length: float
    waiting_share: float
    mean_step_s: FloatArray
    phases: FloatArray
    prefill: Prefill
    metastable_beyond: int | None

    @property
    def batches(self) -> FloatArray:
        return np.arange(1, self.running.size + 1, dtype=float)

    @property
    def in_place(self) -> FloatArray:
        """Probability of each batch, whether others wait or not."""
        return np.asarray(self.running + self.waiting)

    @property
    def batch(self) -> float:
        """Mean number of running sequences."""
        return float(self.in_place @ self.batches)

    @property
    def seen(self) -> FloatArray:
        """Share of the time of a running sequence spent at each batch."""
        weights = self.in_place * self.batches
        return np.asarray(weights / weights.sum())

    @property
    def step_shares(self) -> FloatArray:
        """Share of the steps of a running sequence at each batch."""
        weights = self.seen / self.mean_step_s
        return np.asarray(weights / weights.sum())
