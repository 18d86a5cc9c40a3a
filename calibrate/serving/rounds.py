"""Requests sent together, and the part of their answers in which all of them decode."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from calibrate.serving.answers import Answer
from calibrate.serving.load_plan import Prompt
from calibrate.serving.streaming import Halt
from specmath.errors import SpecmathError


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of a round in which all its requests decode.

    Attributes:
        seconds: Between first and last delivery inside, added over the requests.
        tokens: Those that came meanwhile.
        gaps_s: Time before each of those deliveries.
        bursts: Tokens of each.
    """

    seconds: float
    tokens: float
    gaps_s: tuple[float, ...]
    bursts: tuple[float, ...]


def asked_together(
    ask: Callable[[Prompt], Answer], prompts: Sequence[Prompt], halt: Halt
) -> list[Answer | SpecmathError]:
    """The answers to prompts asked at once, or why there is none. Ctrl-C ends all of them."""
    found: list[Answer | Exception | None] = [None] * len(prompts)
    together = threading.Barrier(len(prompts))

    def work(place: int) -> None:
        try:
            together.wait()
            found[place] = ask(prompts[place])
        except Exception as fault:
            found[place] = fault

    threads = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(len(prompts))]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
    except BaseException:
        together.abort()
        halt.call()
        raise
    return [_outcome(one) for one in found]


def _outcome(found: Answer | Exception | None) -> Answer | SpecmathError:
    if isinstance(found, Answer | SpecmathError):
        return found
    raise found or RuntimeError("a request ended without an answer")


def window_of(answers: Sequence[Answer]) -> Window | None:
    """The time in which all of them decode; None where there is none.

    The last delivery of each is left out: it is cut where the answer has its full length.
    """
    whole = [answer.deliveries[:-1] for answer in answers]
    if not whole or any(len(one) < 2 for one in whole):
        return None
    start_s, end_s = max(one[0].at_s for one in whole), min(one[-1].at_s for one in whole)
    inside = [[one for one in deliveries if start_s <= one.at_s <= end_s] for deliveries in whole]
    if any(len(one) < 2 for one in inside):
        return None
    steps = [step for one in inside for step in pairwise(one)]
    gaps_s = tuple(later.at_s - earlier.at_s for earlier, later in steps)
    bursts = tuple(later.tokens - earlier.tokens for earlier, later in steps)
    if sum(gaps_s) <= 0 or sum(bursts) <= 0:  # all at once, or a usage that stands still
        return None
    return Window(seconds=sum(gaps_s), tokens=sum(bursts), gaps_s=gaps_s, bursts=bursts)
