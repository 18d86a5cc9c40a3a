"""How a server is to be loaded: levels, limits, and prompts in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specmath.checks import require_count, require_range
from specmath.errors import InputError

MAX_CONCURRENCY = 1024
MAX_OUTPUT = 8192
MIN_OUTPUT = 8
"""Fewer tokens leave no time in which all requests decode."""

Prompt = str | Sequence[Mapping[str, str]]
"""A text to be completed, or the messages of a chat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """How a server is loaded, and when it is enough.

    Attributes:
        concurrency: Most requests at a time, from 1 to `MAX_CONCURRENCY`.
        output_tokens: Tokens of an answer, from `MIN_OUTPUT` to `MAX_OUTPUT`.
        temperature: Of sampling; 0 for greedy decoding.
        seed: Of sampling, the same for each request.
        ignore_eos: Whether engines that can are told to go on beyond an end of text, so that answers are
            equally long.
        precision: Relative standard error of the time per token that ends a level.
        least_rounds: Rounds timed at a level, at least.
        most_rounds: At most.
        level_s: Seconds of a server at a level after which no further round is begun, the least being done.
        request_s: Most seconds of a request.
        failed_share: Share of the requests of a level that may fail.
    """

    concurrency: int = 8
    output_tokens: int = 128
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = True
    precision: float = 0.02
    least_rounds: int = 3
    most_rounds: int = 12
    level_s: float = 60.0
    request_s: float = 180.0
    failed_share: float = 0.05

    def __post_init__(self) -> None:
        require_count("concurrency", self.concurrency, 1, MAX_CONCURRENCY)
        require_count("output_tokens", self.output_tokens, MIN_OUTPUT, MAX_OUTPUT)
        require_range("temperature", self.temperature, 0, 10)
        require_range("precision", self.precision, 0, 1)
        require_count("least_rounds", self.least_rounds, 1, 1000)
        require_count("most_rounds", self.most_rounds, self.least_rounds, 1000)
        require_range("level_s", self.level_s, 0, 86_400)
        require_range("request_s", self.request_s, high=86_400, above=0)
        require_range("failed_share", self.failed_share, 0, 1)

    @property
    def levels(self) -> tuple[int, ...]:
        """Requests at a time: powers of two, and the most.

        >>> LoadPlan(concurrency=6).levels
        (1, 2, 4, 6)
        """
        powers = (1 << power for power in range(self.concurrency.bit_length()))
        return tuple(dict.fromkeys((*powers, self.concurrency)))

    @property
    def most_requests(self) -> int:
        """Requests that one server may be sent, rounds of warming up included."""
        return sum(self.levels) * (1 + self.most_rounds)

    def bounds(self, servers: int = 1) -> str:
        """What is done at most, in words, to be told before it is begun."""
        requests = servers * self.most_requests
        minutes = servers * len(self.levels) * (self.level_s + (2 + self.least_rounds) * self.request_s) / 60
        levels = ", ".join(str(level) for level in self.levels)
        return (
            f"at most {requests} requests of {self.output_tokens} output tokens each, {levels} at a time; "
            f"no round is begun after {self.level_s:g} s at a level; {minutes:.0f} min if every request "
            f"takes its {self.request_s:g} s"
        )


USUAL = LoadPlan()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """Where the load stands, before each round.

    Attributes:
        server: The server, fit to be printed.
        concurrency: Requests of the round.
        done: Rounds done at this level, that of warming up included.
        most: Rounds of the level at most.
    """

    server: str
    concurrency: int
    done: int
    most: int


class PromptPool:
    """Prompts in turn; from the second time on they may be in the server's cache."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        if not prompts:
            raise InputError("prompts", "are none; give at least one")
        self.prompts = prompts
        self.taken = 0

    def take(self, number: int) -> list[tuple[Prompt, bool]]:
        """The next prompts, each with whether it is fresh."""
        places = range(self.taken, self.taken + number)
        self.taken += number
        return [(self.prompts[place % len(self.prompts)], place < len(self.prompts)) for place in places]
