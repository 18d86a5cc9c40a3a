"""One replica of a serving engine: continuous batching with chunked prefill, step after step.

A step carries one pass of every decoding sequence and up to `chunk_tokens` tokens of prompts, in the order in
which they came. Requests wait in one queue and are admitted first come, first served while the cap on running
sequences and the room in the cache allow; their whole prompt is held from then on. Where the room ends in the
middle of decoding, the request admitted last is put back at the head of the queue; its cache is lost, and its
prompt and the tokens it has got are prefilled again.

Between two events (an arrival, a finish, the end of the room) steps are alike, and as many as there are go by
at once. What comes out is the same as step by step, since draws are read in the order of the steps.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, isnan

import numpy as np

from specmath.checks import FloatArray, IntArray
from specmath.errors import InputError
from specmath.mixed_steps import StepTimes, TabulatedSteps
from specmath.simulation.draws import Stretch, Yields, stretch_of
from specmath.simulation.policies import BatchPolicy
from specmath.simulation.requests import Requests
from specmath.simulation.sequences import Decoder, Decoders, Prompt, PutBack
from specmath.traffic import Limits

STEP_FIELDS = (
    "start_s",
    "step_s",
    "steps",
    "decoding",
    "running",
    "prefill_tokens",
    "k",
    "decoded",
    "firsts",
)
"""What is noted of each run of like steps: `decoded` tokens, and `firsts`, one for each prompt that ended."""
_SAME_TIME = 1e-6
"""Share of a step by which two times may differ through rounding and still be one."""
_ROWS = 4096
"""Most steps that go by at once."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What became of each request, in order of arrival; NaN until it is known.

    Attributes:
        admitted_s: When it first left the queue.
        first_token_s: When its first token came.
        finish_s: When its last token came.
        longest_gap_s: Longest time between two deliveries; 0 where there was one only.
        deliveries: Steps that brought it tokens.
        preemptions: How often it was put back.
    """

    admitted_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    longest_gap_s: FloatArray
    deliveries: IntArray
    preemptions: IntArray

    @classmethod
    def unknown(cls, count: int) -> Outcomes:
        """Of requests that are still to be served."""
        admitted, first, finish = (np.full(count, np.nan) for _ in range(3))
        deliveries, preemptions = (np.zeros(count, dtype=np.int64) for _ in range(2))
        return cls(admitted, first, finish, np.zeros(count), deliveries, preemptions)


class Replica:
    """One engine with its queue. It accepts requests in order of arrival, each once its clock stands there.

    Attributes:
        now_s: Its clock, at the end of a step.
        most_held: Most tokens held at the start of a step, look-ahead slots included.
        most_running: Most sequences running at once.
        recomputed: Tokens prefilled once more after preemptions.
        late: End and length of each gap that a preemption made, one after the other.
        log: The steps, `STEP_FIELDS` one after the other.
    """

    def __init__(
        self,
        requests: Requests,
        outcomes: Outcomes,
        yields: Yields,
        *,
        steps: StepTimes,
        limits: Limits,
        policy: BatchPolicy,
    ) -> None:
        self.requests, self.outcomes, self.yields = requests, outcomes, yields
        self.steps, self.limits, self.policy = steps, limits, policy
        self.room = inf if limits.kv_tokens is None else limits.kv_tokens
        self.slots = policy.longest_k + 1
        self.now_s = 0.0
        self.most_held = self.most_running = self.recomputed = 0
        self.late, self.log = array("d"), array("d")
        self._waiting: deque[int] = deque()
        self._prompts: list[Prompt] = []
        self._decoders = Decoders.of(())
        self._put_back: dict[int, PutBack] = {}
        self._held = self._tier = self._steps_taken = 0
        self._step_s = steps.fast_step_s if isinstance(steps, TabulatedSteps) else self._any_step_s
        self._last_step_s = 0.0
        self._expected = {
            k: float(max(law.acceptance_length(k) for law in requests.laws)) for k in set(policy.ks)
        }

    @property
    def load(self) -> int:
        """Requests that wait or run."""
        return len(self._waiting) + self._running

    def accept(self, request: int) -> None:
        """Put a request into the queue."""
        if not self.load:
            self.now_s = max(self.now_s, float(self.requests.arrival_s[request]))
        self._waiting.append(request)

    def run_until(self, horizon_s: float) -> None:
        """Take every step that starts before `horizon_s`; the last one may end after it."""
        while self.load and horizon_s - self.now_s > _SAME_TIME * self._last_step_s:
            self._make_room()
            if self._waiting:
                self._admit()
            self.most_held = max(self.most_held, self._held + self._running * self.slots)
            self.most_running = max(self.most_running, self._running)
            self._tier = self.policy.tier_at(len(self._decoders), self._tier)
            k = self.policy.ks[self._tier]
            if self._prompts:
                self._mixed_step(k)
            else:
                self._decode(k, horizon_s)

    @property
    def _running(self) -> int:
        return len(self._prompts) + len(self._decoders)

    def _any_step_s(self, batch: int, prefill_tokens: float, k: int) -> float:
        return float(self.steps.step_s(batch, prefill_tokens, k))

    def _make_room(self) -> None:
        """Put requests back, the last one admitted first, until the next step fits.

        None comes back in the same step: the last one put back is at the head of the queue, and does not fit.
        """
        while self._held + self._running * self.slots > self.room:
            self._preempt()

    def _preempt(self) -> None:
        if self._prompts:
            prompt = self._prompts.pop()
            request, unread = prompt.request, prompt.left
        else:
            request, unread = self._pause(self._decoders.last), 0
        length = self._length(request)
        self._held -= length
        self.recomputed += self._to_prefill(request, length) - unread
        self.outcomes.preemptions[request] += 1
        self._waiting.appendleft(request)

    def _pause(self, last: Decoder) -> int:
        emitted = int(self.requests.output_tokens[last.request]) - last.left
        deliveries = self._steps_taken - last.origin
        self._put_back[last.request] = PutBack(emitted, deliveries, last.longest_gap_s, self.now_s)
        self._decoders = self._decoders.chosen(slice(-1))
        return last.request

    def _length(self, request: int) -> int:
        """Tokens to be held when a request is admitted: its prompt, and what it got before a preemption."""
        back = self._put_back.get(request)
        return int(self.requests.prompt_tokens[request]) + (back.emitted if back else 0)

    def _to_prefill(self, request: int, length: int) -> int:
        return max(1, length - int(self.requests.cached_tokens[request]))

    def _admit(self) -> None:
        """First come, first served, while the step has room for prompts and the cache for a sequence more."""
        budget = self.limits.chunk_tokens - sum(prompt.left for prompt in self._prompts)
        while self._waiting and budget > 0 and self._running < self.limits.max_batch:
            request = self._waiting[0]
            length = self._length(request)
            if self._held + length + (self._running + 1) * self.slots > self.room:
                return
            self._waiting.popleft()
            self._held += length
            left = self._to_prefill(request, length)
            self._prompts.append(Prompt(request, left))
            budget -= left
            if isnan(self.outcomes.admitted_s[request]):
                self.outcomes.admitted_s[request] = max(self.now_s, self.requests.arrival_s[request])

    def _mixed_step(self, k: int) -> None:
        """One step with prompt tokens in it, and the decoding sequences where there are any."""
        batch, running = len(self._decoders), self._running
        ended, tokens = self._chunk()
        step_s = self._time_of(batch, tokens, k)
        started = self._pass_by(step_s, 1)
        decoded = 0
        if batch:
            yields = self._yields(k, 1)[0] if k else np.ones(batch, dtype=np.int64)
            self._leave_behind(k, 1)
            decoded = self._deliver(yields, int(yields.sum()), step_s)
        self.log.extend((started, step_s, 1, batch, running, tokens, k, decoded, len(ended)))
        if ended:
            self._begin(ended)

    def _chunk(self) -> tuple[list[int], int]:
        """Read as much of the prompts as one step takes: the requests whose prompt ends, and the tokens."""
        tokens, ended = 0, []
        for prompt in self._prompts:
            taken = min(prompt.left, self.limits.chunk_tokens - tokens)
            prompt.left -= taken
            tokens += taken
            if not prompt.left:
                ended.append(prompt.request)
        del self._prompts[: len(ended)]
        return ended, tokens

    def _begin(self, ended: Sequence[int]) -> None:
        """The end of a prompt yields one token: the first one, or the next one after a preemption."""
        self._held += len(ended)
        begun = [self._begun(request) for request in ended]
        more = [one for one in begun if one.left]
        if len(more) < len(begun):
            self._finish(Decoders.of([one for one in begun if not one.left]))
        if more:
            self._decoders = self._decoders.with_more(Decoders.of(more))

    def _begun(self, request: int) -> Decoder:
        left = int(self.requests.output_tokens[request]) - 1
        back = self._put_back.pop(request, None)
        if back is None:
            self.outcomes.first_token_s[request] = self.now_s
            return Decoder(request, left, 0.0, self._steps_taken - 1)
        gap_s = self.now_s - back.last_s
        self.late.extend((self.now_s, gap_s))
        origin = self._steps_taken - 1 - back.deliveries
        return Decoder(request, left - back.emitted, max(back.longest_gap_s, gap_s), origin)

    def _decode(self, k: int, horizon_s: float) -> None:
        """Steps of decoding alone, until something changes: a finish, an arrival, or the end of the room."""
        batch, running = len(self._decoders), self._running
        step_s = self._time_of(batch, 0, k)
        spare = self.room - self._held - batch * self.slots
        most = min(_ROWS, (horizon_s - self.now_s) / step_s - _SAME_TIME)
        least_left = int(self._decoders.left.min())
        if k:
            rows = max(1, ceil(min(most, least_left / self._expected[k] + 1)))
            stretch = stretch_of(self._yields(k, rows), self._decoders.left, spare)
            self._leave_behind(k, stretch.steps)
        else:
            rows = max(1, ceil(min(most, least_left, spare // batch + 1 if spare < inf else inf)))
            stretch = Stretch(rows, rows, rows * batch, batch)
        self.most_held = max(self.most_held, self._held + stretch.total - stretch.last + running * self.slots)
        started = self._pass_by(step_s, stretch.steps)
        decoded = self._deliver(stretch.yields, stretch.total, step_s)
        self.log.extend((started, step_s, stretch.steps, batch, running, 0, k, decoded, 0))

    def _time_of(self, batch: int, tokens: int, k: int) -> float:
        step_s = self._step_s(batch, tokens, k)
        if not 0 < step_s < inf:
            told = f"{step_s:g} s at batch {batch} with {tokens} prefill tokens and k = {k}"
            raise InputError("steps", f"must take a finite time above 0, got {told}")
        return step_s

    def _pass_by(self, step_s: float, steps: int) -> float:
        """Let the time of some like steps pass; when the first of them began."""
        started = self.now_s
        self.now_s += steps * step_s
        self._steps_taken += steps
        self._last_step_s = step_s
        return started

    def _yields(self, k: int, rows: int) -> IntArray:
        """Draws of the next steps, one row a step, one column a sequence."""
        if len(self.requests.laws) == 1:
            batch = len(self._decoders)
            return self.yields.ahead(0, k, rows * batch).reshape(rows, batch)
        classes = self.requests.class_index[self._decoders.requests]
        draws = np.empty((rows, classes.size), dtype=np.int64)
        for place in range(len(self.requests.laws)):
            mine = np.flatnonzero(classes == place)
            draws[:, mine] = self.yields.ahead(place, k, rows * mine.size).reshape(rows, mine.size)
        return draws

    def _leave_behind(self, k: int, rows: int) -> None:
        if not k:
            return
        classes = self.requests.class_index[self._decoders.requests]
        for place, count in enumerate(np.bincount(classes, minlength=len(self.requests.laws)).tolist()):
            self.yields.taken(place, k, rows * count)

    def _deliver(self, yields: IntArray | int, total: int, step_s: float) -> int:
        """Hand out tokens; those that a finished request no longer takes are lost. The tokens taken."""
        decoders = self._decoders
        np.subtract(decoders.left, yields, out=decoders.left)
        np.maximum(decoders.longest_gap_s, step_s, out=decoders.longest_gap_s)
        ends = decoders.left <= 0
        if ends.any():
            done = decoders.chosen(ends)
            total += int(done.left.sum())
            self._decoders = decoders.chosen(~ends)
            self._finish(done)
        self._held += total
        return total

    def _finish(self, done: Decoders) -> None:
        which, outcomes = done.requests, self.outcomes
        outcomes.finish_s[which] = self.now_s
        outcomes.longest_gap_s[which] = done.longest_gap_s
        outcomes.deliveries[which] = self._steps_taken - done.origin
        self._held -= int(self.requests.prompt_tokens[which].sum() + self.requests.output_tokens[which].sum())
