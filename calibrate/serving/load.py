"""A load of known size on a server: rounds of requests sent together, timed while all of them decode.

A round is as many requests as the level says, begun at once. Between the last first token and the first last
delivery exactly so many sequences decode and none is prefilled: the time per token is taken there alone, so
that its batch is the nominal one. The first round of a level warms up and is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final, Protocol

from calibrate.serving.answers import Answer
from calibrate.serving.load_plan import LoadPlan, Prompt, PromptPool
from calibrate.serving.rounds import Window, asked_together, window_of
from calibrate.serving.streaming import Halt
from specmath.clustered_errors import ratio_standard_error
from specmath.errors import SpecmathError
from specmath.measurements import MIN_SECONDS

MERGED: Final = 0.005
"""Share of deliveries with the tokens of several steps that is still passed over."""
_COUNTS: Final = ("characters", "events", "usage")
"""How tokens are told apart, the roughest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A server at one number of requests at a time.

    Attributes:
        concurrency: Requests at a time.
        requests: Sent and timed, those that failed included, those of warming up not.
        failed: Of them, those without a whole answer.
        rounds: Rounds in which all of them decoded for a while.
        tpot_s: Seconds per output token of a sequence while all decode; the median of the rounds, since a
            busy moment of the machine is to spoil a round and not the level.
        tpot_error: Its relative standard error, rounds being the unit; infinite for one round.
        delivery_error: The same of `delivery_s`: what is left where acceptance varies between prompts.
        delivery_s: Mean time between deliveries of a sequence, meanwhile, the median of the rounds; that of a
            step where each is delivered on its own.
        itl_s: Median time between deliveries, which is called the inter-token latency.
        bursts: Tokens of each delivery, meanwhile.
        tokens_per_delivery: Mean tokens of a delivery over whole answers, without the first; E where each
            step is delivered on its own. The mean of `bursts` is above it: answers that are quick to end the
            time in which all decode are those of large E.
        tokens_per_s: Output tokens of all sequences per second, meanwhile.
        ttft_s: Median time to the first token, all requests coming at once; None where every prompt had been
            sent before, and may lie in a cache.
        context: Mean tokens in the cache: prompt, and half of the output.
        prompt_tokens: Mean of a prompt.
        output_tokens: Mean of an answer.
        sent_tokens: Output tokens of all requests.
        counted: How tokens were told apart in a stream: `usage`, `events` or `characters`.
        cut_short: Requests that ended before the tokens asked for.
        answers: The answers themselves.
    """

    concurrency: int
    requests: int
    failed: int
    rounds: int
    tpot_s: float
    tpot_error: float
    delivery_error: float
    delivery_s: float
    itl_s: float
    bursts: tuple[float, ...]
    tokens_per_delivery: float
    tokens_per_s: float
    ttft_s: float | None
    context: float
    prompt_tokens: float
    output_tokens: float
    sent_tokens: int
    counted: str
    cut_short: int
    answers: tuple[Answer, ...]

    def is_by_steps(self, k: int) -> bool:
        """Whether each step is delivered on its own, as far as can be seen: none has more than k + 1 tokens.

        Where two steps arrive as one, more than k + 1 tokens soon come together.
        """
        merged = sum(burst > k + 1.5 for burst in self.bursts)
        return self.counted != "characters" and merged <= MERGED * len(self.bursts)


class Arm(Protocol):
    """A server under load."""

    @property
    def pool(self) -> PromptPool:
        """Its prompts in turn."""

    def ask(self, prompt: Prompt) -> Answer:
        """The answer to one prompt."""

    def tell(self, concurrency: int, done: int) -> None:
        """Called before each round with the rounds done at this level."""

    def warmed(self) -> None:
        """Called when the round that warms up is over; counters are read there."""


class Refused(Exception):
    """A level from which no figure can be taken, with the reason and what to do."""


class LevelRun:
    """What the rounds of a level have brought so far."""

    def __init__(self, concurrency: int, plan: LoadPlan) -> None:
        self.concurrency, self.plan = concurrency, plan
        self.answers: list[Answer] = []
        self.fresh: list[Answer] = []
        self.failures: list[SpecmathError] = []
        self.windows: list[Window] = []
        self.rounds = 0

    def take(self, outcomes: Sequence[Answer | SpecmathError], is_fresh: Sequence[bool]) -> None:
        """Add a round; one with a failure is not timed, since fewer decoded than it says."""
        self.rounds += 1
        answers = [one for one in outcomes if isinstance(one, Answer)]
        self.failures.extend(one for one in outcomes if isinstance(one, SpecmathError))
        self.answers.extend(answers)
        self.fresh.extend(
            one for one, new in zip(outcomes, is_fresh, strict=True) if new and isinstance(one, Answer)
        )
        if len(answers) == len(outcomes) and (window := window_of(answers)):
            self.windows.append(window)

    def is_enough(self, took_s: float) -> bool:
        """Whether no further round is wanted."""
        plan = self.plan
        if self.rounds < plan.least_rounds:
            return False
        return (
            self.rounds >= plan.most_rounds
            or took_s >= plan.level_s
            or self.error(self.tokens) <= plan.precision
        )

    def error(self, parts: Sequence[float]) -> float:
        """Relative standard error of the time per token or delivery; infinite for fewer than two rounds."""
        if len(self.windows) < 2:
            return math.inf
        seconds = [one.seconds for one in self.windows]
        return ratio_standard_error(seconds, parts) * sum(parts) / sum(seconds)

    @property
    def tokens(self) -> list[float]:
        """Tokens of each round, while all decode."""
        return [one.tokens for one in self.windows]

    def level(self) -> Level:
        """The level as measured.

        Raises:
            Refused: too many requests failed, at no time did all of them decode, or in no time.
        """
        windows, requests = self.windows, len(self.answers) + len(self.failures)
        failed = len(self.failures)
        if failed > self.plan.failed_share * requests:
            raise Refused(f"{failed} of {requests} requests failed, the first so: {self.failures[0]}")
        if not windows:
            raise Refused(
                f"at no time did all {self.concurrency} requests decode at once; let the server run as many "
                "at a time, ask for more output tokens, or lower the concurrency"
            )
        tpot_s = median(one.seconds / one.tokens for one in windows)
        if tpot_s < MIN_SECONDS:
            raise Refused(
                f"a token took {tpot_s:.1g} s, so that answers do not come as they are made; let the server, "
                "and every proxy before it, send each token at once"
            )
        gaps = [gap for one in windows for gap in one.gaps_s]
        prompt = fmean(one.prompt_tokens for one in self.answers)
        output = fmean(one.output_tokens for one in self.answers)
        return Level(
            concurrency=self.concurrency,
            requests=requests,
            failed=failed,
            rounds=len(windows),
            tpot_s=tpot_s,
            tpot_error=self.error(self.tokens),
            delivery_error=self.error([len(one.gaps_s) for one in windows]),
            delivery_s=median(one.seconds / len(one.gaps_s) for one in windows),
            itl_s=median(gaps),
            bursts=tuple(burst for one in windows for burst in one.bursts),
            tokens_per_delivery=_tokens_per_delivery(self.answers),
            tokens_per_s=self.concurrency / tpot_s,
            ttft_s=median(one.ttft_s for one in self.fresh) if self.fresh else None,
            context=prompt + output / 2,
            prompt_tokens=prompt,
            output_tokens=output,
            sent_tokens=sum(one.output_tokens for one in self.answers),
            counted=min((one.counted for one in self.answers), key=_COUNTS.index),
            cut_short=sum(one.output_tokens < self.plan.output_tokens for one in self.answers),
            answers=tuple(self.answers),
        )


def _tokens_per_delivery(answers: Sequence[Answer]) -> float:
    tokens = sum(one.deliveries[-1].tokens - one.deliveries[0].tokens for one in answers)
    return tokens / max(sum(len(one.deliveries) - 1 for one in answers), 1)


def measured_levels(
    concurrency: int,
    plan: LoadPlan,
    arms: Sequence[Arm],
    *,
    halt: Halt,
    clock: Callable[[], float],
) -> tuple[Level, ...]:
    """A level of each server: one round to warm up, then rounds in turn until the plan has enough of all.

    Rounds of the servers take turns, so that a machine that slows down or speeds up does so for all of them.

    Args:
        concurrency: Requests at a time.
        plan: When it is enough.
        arms: The servers.
        halt: Ends all requests on Ctrl-C.
        clock: Seconds.

    Raises:
        Refused: no figure can be taken from one of them.
    """
    for arm in arms:
        warming = LevelRun(concurrency, plan)
        _one_round(arm, warming, 0, halt)
        if len(warming.failures) == concurrency:
            raise Refused(str(warming.failures[0])) from warming.failures[0]
        arm.warmed()
    began_s, runs = clock(), [LevelRun(concurrency, plan) for _ in arms]
    while not all(run.is_enough((clock() - began_s) / len(arms)) for run in runs):
        for arm, run in zip(arms, runs, strict=True):
            _one_round(arm, run, 1 + run.rounds, halt)
    return tuple(run.level() for run in runs)


def _one_round(arm: Arm, run: LevelRun, done: int, halt: Halt) -> None:
    arm.tell(run.concurrency, done)
    taken = arm.pool.take(run.concurrency)
    prompts, is_fresh = [prompt for prompt, _ in taken], [fresh for _, fresh in taken]
    run.take(asked_together(arm.ask, prompts, halt), is_fresh)
