"""Both arms of a server at one load, and what in them a reader must know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from calibrate.serving.counters import Counted
from calibrate.serving.load import Level
from calibrate.serving.load_plan import LoadPlan
from specmath.results import Advice

DISAGREE: Final = 0.1
"""How far tokens of a delivery may be from E, where each step is a delivery."""
SCATTER: Final = 0.05
"""Relative standard error of a step's mean time from which on it is told."""
_FEW_RUNNING: Final = 0.5
"""Share of the nominal requests that must run on average, begin and end of the rounds included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedLevel:
    """Both arms at one number of requests at a time.

    Attributes:
        speculative: The server that speculates.
        counted: What it counted meanwhile.
        plain: The one that does not; None without a baseline.
        plain_counted: What that one counted.
    """

    speculative: Level
    counted: Counted
    plain: Level | None = None
    plain_counted: Counted | None = None

    @property
    def is_by_steps(self) -> bool:
        """Whether the steps of the server that speculates can be told apart from outside.

        No delivery holds more tokens than a step can yield, and their mean is near E.
        """
        one, length, k = self.speculative, self.counted.acceptance_length, self.counted.k
        if length is None or k is None or not one.is_by_steps(k):
            return False
        return abs(one.tokens_per_delivery / length - 1) <= DISAGREE

    @property
    def tpot_s(self) -> float:
        """Seconds per token with speculation: mean step over E where steps can be told apart.

        E is of all steps. Over the time in which all decode alone it would be too large: that time ends with
        the first answer, which is mostly one of large E.
        """
        one, length = self.speculative, self.counted.acceptance_length
        return one.delivery_s / length if self.is_by_steps and length else one.tpot_s

    @property
    def speedup(self) -> float | None:
        """S; None without a baseline."""
        return None if self.plain is None else self.plain.tpot_s / self.tpot_s


def warnings_of(levels: Sequence[ServedLevel], plan: LoadPlan) -> tuple[Advice, ...]:
    """What a reader must know of the levels, the first of each kind."""
    found = [advice for one in levels for advice in _level_warnings(one, plan)]
    return tuple({advice.code: advice for advice in reversed(found)}.values())[::-1]


def _level_warnings(level: ServedLevel, plan: LoadPlan) -> list[Advice]:
    found = [*level.counted.warnings, *(level.plain_counted.warnings if level.plain_counted else ())]
    arms = [level.speculative, *([level.plain] if level.plain else [])]
    place = f"at concurrency {level.speculative.concurrency}"
    if any(arm.counted == "characters" for arm in arms):
        text = f"{place} events hold several tokens whose number is not told: shared out by their characters"
        found.append(Advice(code="tokens-by-characters", text=text, remedy="ask for more output tokens"))
    if any(arm.cut_short for arm in arms):
        text = f"{place} answers ended before {plan.output_tokens} tokens, at an end of text"
        remedy = "let the end of text be ignored, or ask for fewer output tokens"
        found.append(Advice(code="answers-ended", text=text, remedy=remedy))
    if any(arm.ttft_s is None for arm in arms):
        text = f"{place} all prompts had been sent before, so that no time to the first token is told"
        found.append(Advice(code="prompts-repeated", text=text, remedy="give more prompts"))
    if any(SCATTER < arm.delivery_error < math.inf for arm in arms):
        worst = max(arm.delivery_error for arm in arms)
        text = f"{place} the mean time of a step has a standard error of {worst:.0%} between rounds"
        remedy = "leave the machine to the server alone, or allow more rounds"
        found.append(Advice(code="times-scatter", text=text, remedy=remedy))
    found.extend(_yield_warnings(level, place))
    return found


def _yield_warnings(level: ServedLevel, place: str) -> list[Advice]:
    """Where the stream and the counters do not tell the same."""
    one, counted = level.speculative, level.counted
    length, running = counted.acceptance_length or 1.0, counted.running
    found = []
    if one.counted == "usage" and abs(one.tokens_per_delivery / length - 1) > DISAGREE:
        text = f"{place} a delivery holds {one.tokens_per_delivery:.2f} tokens, and the counters tell E = "
        remedy = "leave the server to this load alone, and run the client where it is not slowed down"
        found.append(Advice(code="yield-disagrees", text=f"{text}{length:.2f}", remedy=remedy))
    if running is not None and running < _FEW_RUNNING * one.concurrency:
        text = f"{place} the server counts {running:.1f} requests in a step on average"
        remedy = "ask for more output tokens, or check how many requests it runs at a time"
        found.append(Advice(code="fewer-running", text=text, remedy=remedy))
    return found
