"""What a streamed completion says: when which of its tokens came, and how many they were.

A speculative step delivers a burst of tokens, in one event or in several at once, so events are no tokens:
their number is the one that the server tells. Events that come together are one delivery.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from calibrate.serving.streaming import DONE, Stream, error_text
from specmath.engines.spec_counts import count
from specmath.engines.values import mapping, objects, text
from specmath.errors import AccessError, DataError

TOGETHER: Final = 0.1
"""Events closer than this share of the mean time of a token came together."""
_REASONING: Final = ("content", "reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Tokens that came together.

    Attributes:
        at_s: When the last of them came.
        tokens: Output tokens up to and with them.
    """

    at_s: float
    tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One completion.

    Attributes:
        sent_s: When it was asked for.
        first_s: When its first token came.
        deliveries: Its tokens by time.
        prompt_tokens: As the server counts them.
        output_tokens: Likewise.
        counted: How tokens were told apart: `usage` of each event, `events` of one token each, or
            `characters` in proportion to the tokens in all.
        ended: Why it ended: `length`, `stop`, …
        document: The last event that has timings of the server; empty where none has.
    """

    sent_s: float
    first_s: float
    deliveries: tuple[Delivery, ...]
    prompt_tokens: int
    output_tokens: int
    counted: str
    ended: str
    document: Mapping[str, Any]

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token."""
        return self.first_s - self.sent_s


@dataclass(frozen=True, slots=True)
class _Piece:
    at_s: float
    characters: int
    tokens: float | None


def read_answer(stream: Stream) -> Answer:
    """The completion in a stream.

    Raises:
        AccessError: the server broke it off.
        DataError: it is none, or its tokens are not told.
    """
    if not stream.lines:
        problem = "answers without a stream of events; give the base URL of an OpenAI-compatible server"
        raise DataError(stream.where, problem)
    events = list(_documents(stream))
    ended = [reason for _, event in events if (reason := text(_choice(event).get("finish_reason")))]
    if not ended and not (stream.lines and stream.lines[-1][1] == DONE):
        raise AccessError(stream.where, "the stream broke off; look into the server's log")
    usage = _usage(event for _, event in events)
    pieces = [piece for at_s, event in events if (piece := _piece(at_s, event))]
    if usage is None or not pieces:
        what = "tells no usage" if pieces else "streams no tokens"
        problem = f"{what}, so that no time per token can be told; check that it completes text"
        raise DataError(stream.where, problem)
    prompt, output = usage
    tokens, counted = _cumulated(pieces, output, stream.where)
    return Answer(
        sent_s=stream.sent_s,
        first_s=pieces[0].at_s,
        deliveries=_deliveries([piece.at_s for piece in pieces], tokens),
        prompt_tokens=prompt,
        output_tokens=output,
        counted=counted,
        ended=ended[-1] if ended else "",
        document=next((event for _, event in reversed(events) if "timings" in event), {}),
    )


def _documents(stream: Stream) -> Iterator[tuple[float, Mapping[str, Any]]]:
    for at_s, line in stream.lines:
        if line == DONE:
            return
        try:
            event = json.loads(line.removeprefix(b"data:"))
        except (ValueError, RecursionError):
            event = None
        if not isinstance(event, dict):
            problem = "streams events that are no JSON; give the base URL of an OpenAI-compatible server"
            raise DataError(stream.where, problem)
        if said := error_text(event):
            raise AccessError(stream.where, f"broke off with an error ({said}); look into the server's log")
        yield at_s, event


def _choice(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter(objects(event.get("choices"))), {})


def _usage(events: Iterator[Mapping[str, Any]]) -> tuple[int, int] | None:
    """Tokens of prompt and answer, as the last event tells that tells them."""
    told = None
    for event in events:
        usage = mapping(event.get("usage"))
        prompt, output = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
        if prompt is not None and output:
            told = int(prompt), int(output)
    return told


def _piece(at_s: float, event: Mapping[str, Any]) -> _Piece | None:
    """The tokens of an event; None where it brings none, as the first of a chat and the last of all do."""
    choice = _choice(event)
    delta = mapping(choice.get("delta"))
    parts = [text(choice.get("text")), *(text(delta.get(name)) for name in _REASONING)]
    characters = sum(len(part) for part in parts if part)
    tokens = count(mapping(event.get("usage")).get("completion_tokens")) if choice else None
    return _Piece(at_s, characters, tokens) if characters or tokens else None


def _cumulated(pieces: Sequence[_Piece], output: int, where: str) -> tuple[list[float], str]:
    """Tokens up to each piece, and how they are known."""
    told = [piece.tokens for piece in pieces if piece.tokens is not None]
    if len(told) == len(pieces):
        fall = next(((one, then) for one, then in pairwise(told) if then < one), None)
        if fall or (len(told) > 1 and told[-1] == told[0]):
            one, then = fall or (told[0], told[-1])
            problem = f"counts {then:g} output tokens after {one:g}, so that its usage cannot be right"
            raise DataError(where, f"{problem}; look into the server, or a proxy before it")
        return told, "usage"
    if abs(len(pieces) - output) <= 1:
        return [float(number + 1) for number in range(len(pieces))], "events"
    seen, whole, shares = 0, sum(piece.characters for piece in pieces), []
    for piece in pieces:
        seen += piece.characters
        shares.append(output * seen / whole)
    return shares, "characters"


def _deliveries(times: Sequence[float], tokens: Sequence[float]) -> tuple[Delivery, ...]:
    """Pieces that came together made one, at the time of the last."""
    close_s = TOGETHER * (times[-1] - times[0]) / max(tokens[-1] - tokens[0], 1)
    found: list[Delivery] = []
    before_s = -float("inf")
    for at_s, so_far in zip(times, tokens, strict=True):
        delivery = Delivery(at_s=at_s, tokens=so_far)
        if at_s - before_s < close_s:
            found[-1] = delivery
        else:
            found.append(delivery)
        before_s = at_s
    return tuple(found)
