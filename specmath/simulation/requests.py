"""The requests of a simulated run, drawn from classes of traffic or taken from a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from specmath.checks import FloatArray, IntArray, require_count
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.traffic import Trace, Traffic

DEFAULT_REQUESTS = 10_000
MAX_REQUESTS = 1_000_000
_CLOCK_SHARE = 1e-6
"""Share of a step that the clock must resolve at the last arrival."""
_ARRIVALS, _CLASSES, _LENGTHS = range(3)
"""Streams of random numbers: arrivals and lengths of a seed are the same whatever serves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests in order of arrival.

    Attributes:
        arrival_s: Time of arrival, not falling.
        prompt_tokens: Tokens of the prompt.
        cached_tokens: Those of them that the prefix cache holds.
        output_tokens: Tokens of the output.
        class_index: Number of its class.
        names: Names of the classes.
        laws: Acceptance laws of the classes.
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    cached_tokens: IntArray
    output_tokens: IntArray
    class_index: IntArray
    names: tuple[str, ...]
    laws: tuple[AcceptanceLaw, ...]

    def __len__(self) -> int:
        return self.arrival_s.size

    def require_room(self, kv_tokens: float, slots: int) -> None:
        """Refuse a request that the whole cache cannot hold, with `slots` look-ahead slots."""
        held = self.prompt_tokens + self.output_tokens - 1 + slots
        largest = int(np.argmax(held))
        if held[largest] > kv_tokens:
            told = f"request {largest + 1} takes {held[largest]:,} tokens of the cache at its end"
            problem = f"{told}, which has room for {kv_tokens:,.0f}"
            raise InputError("kv_tokens", f"is too small: {problem}; leave out such requests or give it room")

    def require_clock(self, step_s: float) -> None:
        """Refuse arrivals so far apart that the clock does not resolve a step of so many seconds."""
        last_s = float(self.arrival_s[-1])
        if 0 < step_s < inf and not np.spacing(last_s) < _CLOCK_SHARE * step_s:
            problem = f"the last request comes after {last_s:.3g} s, when a clock no longer resolves a step"
            raise InputError("rate_per_s", f"is too low to simulate: {problem} of {step_s:.3g} s; raise it")


def drawn_requests(traffic: Traffic, count: int | None, *, seed: int, drafting: bool) -> Requests:
    """Poisson arrivals at the traffic's rate; class and lengths of each request are drawn by themselves.

    The prefix cache holds the same share of every prompt of a class.

    Args:
        traffic: Rate and classes.
        count: Requests; `DEFAULT_REQUESTS` where None.
        seed: The same one draws the same requests.
        drafting: Whether a drafter is loaded, beside which fewer tokens are taken from the prefix cache.
    """
    number = int(require_count("requests", DEFAULT_REQUESTS if count is None else count, 1, MAX_REQUESTS))
    arrivals, classes, lengths = (
        np.random.default_rng([seed, stream]) for stream in (_ARRIVALS, _CLASSES, _LENGTHS)
    )
    shares = traffic.shares
    which = classes.choice(shares.size, size=number, p=shares / shares.sum())
    prompts, outputs, cached = (np.empty(number, dtype=np.int64) for _ in range(3))
    for place, one in enumerate(traffic.classes):
        mine = which == place
        prompts[mine], outputs[mine] = one.lengths(int(mine.sum()), lengths)
        hits = one.hits(drafting=drafting) / one.prompt_tokens
        cached[mine] = np.floor(prompts[mine] * hits)
    return Requests(
        arrival_s=arrivals.exponential(1 / traffic.rate_per_s, number).cumsum(),
        prompt_tokens=prompts,
        cached_tokens=cached,
        output_tokens=outputs,
        class_index=which.astype(np.int64),
        names=tuple(one.name for one in traffic.classes),
        laws=tuple(one.law.at(one.context) for one in traffic.classes),
    )


def traced_requests(trace: Trace, count: int | None, laws: Sequence[AcceptanceLaw]) -> Requests:
    """The first `count` requests of a trace, all where None; nothing of it is in a prefix cache.

    Args:
        trace: Arrivals and lengths.
        count: Requests, at most those of the trace.
        laws: Acceptance law of each class of the trace, or one for all.
    """
    number = int(require_count("requests", len(trace) if count is None else count, 1, len(trace)))
    if len(laws) not in (1, len(trace.names)):
        problem = f"must be one, or one for each of the {len(trace.names)} classes of the trace"
        raise InputError("laws", f"{problem}, got {len(laws)}")
    own = tuple(laws) * (len(trace.names) if len(laws) == 1 else 1)
    return Requests(
        arrival_s=trace.arrival_s[:number],
        prompt_tokens=trace.prompt_tokens[:number],
        cached_tokens=np.zeros(number, dtype=np.int64),
        output_tokens=trace.output_tokens[:number],
        class_index=trace.class_of[:number],
        names=trace.names,
        laws=tuple(law.at(_context(trace, place)) for place, law in enumerate(own)),
    )


def _context(trace: Trace, place: int) -> float:
    """Mean tokens in the cache of a running sequence of a class; of any class where it has no requests."""
    mine = trace.class_of == place
    chosen = mine if mine.any() else np.ones_like(mine)
    outputs = trace.output_tokens[chosen].astype(float)
    return float(trace.prompt_tokens[chosen].mean() + (outputs**2).mean() / (2 * outputs.mean()))
