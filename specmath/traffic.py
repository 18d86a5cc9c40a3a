"""What arrives at a server: classes of requests with lengths and acceptance, at a rate or as a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import fsum, log, sqrt
from statistics import NormalDist
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from specmath.checks import FloatArray, IntArray, require_count, require_range
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.side_costs import DEFAULT_UNIT, prefix_hits

Spread = Literal["constant", "geometric", "lognormal"]
DEFAULT_CHUNK = 2048
"""Prefill tokens of a step at most, unless a caller says otherwise."""
PROMPT_KINDS = 8
"""Lengths that stand for prompts of a class whose lengths vary."""
SHARES_SLACK = 1e-6
"""How far shares may be from adding up to 1, for what rounding leaves of them."""
MAX_LENGTH = 1e8
"""Longest prompt or output taken for more than a slip of units."""
MOST_CLASSES = 100
"""Most classes of a traffic: each is a row, and more than a reader looks at."""
MAX_RATE = 1e6
"""Highest rate taken for more than a slip of units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass:
    """Requests that are alike: how many of them, how long, and how well their drafts are accepted.

    Attributes:
        name: Its name, for a reader.
        share: Share of the requests, above 0 and at most 1.
        prompt_tokens: Mean tokens of a prompt, at least 1.
        output_tokens: Mean tokens of an output, at least 2: the prefill emits the first, so that an output of
            one token is never decoded.
        law: Law of accepted tokens.
        spread: How both lengths vary about their means, each by itself: not at all, geometrically from 1 on,
            or lognormally.
        variation: Standard deviation over mean of a lognormal length, at least 0.
        prefix_tokens: Tokens of a prompt that are in the prefix cache when it arrives, at least 0.
        prefix_unit: Tokens of the cache's unit, at least 1; see `specmath.side_costs.prefix_hits`.
        loses_prefix: Whether a drafter makes the engine drop the last unit that it matched.
    """

    name: str
    share: float
    prompt_tokens: float
    output_tokens: float
    law: AcceptanceLaw
    spread: Spread = "constant"
    variation: float = 0.0
    prefix_tokens: float = 0.0
    prefix_unit: int = DEFAULT_UNIT
    loses_prefix: bool = True

    def __post_init__(self) -> None:
        require_range("share", self.share, high=1, above=0)
        require_range("prompt_tokens", self.prompt_tokens, 1, MAX_LENGTH)
        _require_output(self.output_tokens)
        if self.spread not in get_args(Spread):
            raise InputError("spread", f"must be {' or '.join(get_args(Spread))}, got {self.spread!r}")
        require_range("variation", self.variation, 0, 100)
        if self.variation and self.spread != "lognormal":
            raise InputError("variation", f"goes with lognormal lengths, not with {self.spread} ones")
        require_range("prefix_tokens", self.prefix_tokens, 0, MAX_LENGTH)
        if self.prefix_tokens > self.prompt_tokens:
            told = f"{self.prefix_tokens:,.0f} of {self.prompt_tokens:,.0f}"
            raise InputError("prefix_tokens", f"must be part of the prompt, got {told} tokens")
        require_count("prefix_unit", self.prefix_unit, 1)

    def hits(self, *, drafting: bool) -> float:
        """Prompt tokens taken from the prefix cache, fewer beside a drafter."""
        loses = drafting and self.loses_prefix
        return float(prefix_hits(self.prefix_tokens, self.prefix_unit, drafting=loses))

    def prefill_tokens(self, *, drafting: bool) -> float:
        """Mean prompt tokens to be computed."""
        return self.prompt_tokens - self.hits(drafting=drafting)

    def prompt_kinds(self, *, drafting: bool, count: int = PROMPT_KINDS) -> FloatArray:
        """Prompt tokens to be computed: a few lengths of equal shares that stand for all, with their mean."""
        levels = (np.arange(count) + 0.5) / count
        alike = squared_variation(self.prompt_tokens, self.spread, self.variation) == 0
        lengths = length_quantile(
            self.prompt_tokens, self.spread, self.variation, np.array([0.5]) if alike else levels
        )
        return np.asarray(lengths * (self.prefill_tokens(drafting=drafting) / lengths.mean()))

    @property
    def prompt_variation(self) -> float:
        """Variance over squared mean of the prompts."""
        return squared_variation(self.prompt_tokens, self.spread, self.variation)

    @property
    def squared_variation(self) -> float:
        """Variance over squared mean of the output lengths."""
        return squared_variation(self.output_tokens, self.spread, self.variation)

    @property
    def context(self) -> float:
        """Mean tokens in the cache of a running sequence: P + E[N²] / (2 E[N]); long outputs run longer."""
        return self.prompt_tokens + self.output_tokens * (1 + self.squared_variation) / 2

    def lengths(self, count: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Prompt and output tokens of `count` requests, whole numbers of at least 1."""
        prompts, outputs = (
            drawn_lengths(mean, self.spread, self.variation, count, rng)
            for mean in (self.prompt_tokens, self.output_tokens)
        )
        return prompts, outputs

    def output_quantile(self, q: FloatArray) -> FloatArray:
        """Output length below which a share q of the outputs is, each q in (0, 1)."""
        return length_quantile(self.output_tokens, self.spread, self.variation, q)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Requests at a rate, as classes whose shares add up to 1.

    Attributes:
        rate_per_s: Requests per second of all classes together, above 0; of all replicas, where a question
            has several.
        classes: The classes, at least one.

    >>> from specmath.acceptance import ConstantAcceptance
    >>> chat = TrafficClass(name="chat", share=1, prompt_tokens=2000, output_tokens=300,
    ...                     law=ConstantAcceptance(0.7))
    >>> Traffic(rate_per_s=5, classes=(chat,)).output_tokens_per_s
    1500.0
    """

    rate_per_s: float
    classes: tuple[TrafficClass, ...]

    def __post_init__(self) -> None:
        require_range("rate_per_s", self.rate_per_s, high=MAX_RATE, above=0)
        if not self.classes:
            raise InputError("classes", "are missing; give at least one class of traffic")
        if len(self.classes) > MOST_CLASSES:
            told = f"must be at most {MOST_CLASSES}, got {len(self.classes):,}"
            raise InputError("classes", f"{told}; put those together that are alike")
        total = fsum(one.share for one in self.classes)
        if abs(total - 1) > SHARES_SLACK:
            told = " + ".join(f"{one.share:g}" for one in self.classes)
            raise InputError("share", f"shares must add up to 1, got {told} = {total:g}")
        names = [one.name for one in self.classes]
        if len(set(names)) < len(names):
            raise InputError("classes", f"must have different names, got {', '.join(names)}")

    @property
    def shares(self) -> FloatArray:
        """Share of each class."""
        return np.array([one.share for one in self.classes])

    @property
    def output_tokens_per_s(self) -> float:
        """Tokens emitted per second where all requests are served."""
        return self.rate_per_s * fsum(one.share * one.output_tokens for one in self.classes)

    @property
    def context(self) -> float:
        """Mean tokens in the cache of a running sequence, classes weighted by the tokens they decode."""
        weights = [one.share * one.output_tokens for one in self.classes]
        tokens = fsum(weight * one.context for weight, one in zip(weights, self.classes, strict=True))
        return tokens / fsum(weights)

    @property
    def longest_context(self) -> float:
        """Tokens in the cache of the longest class's mean request when it ends."""
        return max(one.prompt_tokens + one.output_tokens for one in self.classes)

    def prefill_tokens(self, *, drafting: bool) -> float:
        """Mean prompt tokens to be computed for a request."""
        return fsum(one.share * one.prefill_tokens(drafting=drafting) for one in self.classes)

    def prompts(self, *, drafting: bool) -> tuple[FloatArray, FloatArray]:
        """Kinds of prompts: the share of requests of each, and its tokens to be computed."""
        kinds = [one.prompt_kinds(drafting=drafting) for one in self.classes]
        shares = [
            np.full(kind.size, one.share / kind.size) for one, kind in zip(self.classes, kinds, strict=True)
        ]
        return np.concatenate(shares), np.concatenate(kinds)

    def at(self, rate_per_s: float) -> Traffic:
        """The same classes at another rate."""
        return replace(self, rate_per_s=rate_per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a replica admits.

    Attributes:
        max_batch: Sequences that run at once, by memory or by the engine's cap; at least 1.
        kv_tokens: Tokens that the cache has room for; a request holds its prompt, its output so far and
            k + 1 look-ahead slots. None where the room is not known.
        chunk_tokens: Prefill tokens of a step at most, at least 1.
    """

    max_batch: int
    kv_tokens: float | None = None
    chunk_tokens: int = DEFAULT_CHUNK

    def __post_init__(self) -> None:
        require_count("max_batch", self.max_batch, 1)
        require_count("chunk_tokens", self.chunk_tokens, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Arrivals with their lengths, in order of arrival.

    Attributes:
        arrival_s: Seconds of each arrival, not falling, the first at least 0.
        prompt_tokens: Tokens of each prompt, at least 1.
        output_tokens: Tokens of each output, at least 1.
        class_of: Number of the class of each request in `names`.
        names: Names of the classes.
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    class_of: IntArray
    names: tuple[str, ...] = ("all",)

    def __post_init__(self) -> None:
        if not self.arrival_s.size:
            raise InputError("trace", "is empty; give at least two requests")
        if self.arrival_s[0] < 0 or np.any(np.diff(self.arrival_s) < 0):
            raise InputError("trace", "must have its arrivals in rising order, from 0 s on")
        for name in ("prompt_tokens", "output_tokens"):
            require_count(name, getattr(self, name), 1)

    def __len__(self) -> int:
        return self.arrival_s.size

    @property
    def rate_per_s(self) -> float:
        """Requests per second, from the first arrival to the last.

        Raises:
            InputError: for fewer than two requests, or arrivals that are all at once.
        """
        span = float(self.arrival_s[-1] - self.arrival_s[0])
        if span <= 0:
            raise InputError("trace", "has no rate: it needs two requests that arrive apart")
        return (len(self) - 1) / span

    @property
    def gap_variation(self) -> float:
        """Standard deviation over mean of the times between arrivals: 1 for a Poisson process."""
        gaps = np.diff(self.arrival_s)
        return float(gaps.std() / gaps.mean())

    def at(self, rate_per_s: float) -> Trace:
        """The same requests at another rate: arrivals come faster or slower, in the same order."""
        return replace(self, arrival_s=self.arrival_s * (self.rate_per_s / rate_per_s))

    def traffic(self, laws: Sequence[AcceptanceLaw]) -> Traffic:
        """Its classes as means with the spread of their lengths; a law for each, or one for all."""
        if len(laws) not in (1, len(self.names)):
            problem = f"has {len(self.names)} classes, and {len(laws)} acceptances are given"
            raise InputError("trace", problem)
        laws = [laws[0]] * len(self.names) if len(laws) == 1 else laws
        found = [
            self._class(number, law) for number, law in enumerate(laws) if (self.class_of == number).any()
        ]
        return Traffic(rate_per_s=self.rate_per_s, classes=tuple(found))

    def _class(self, number: int, law: AcceptanceLaw) -> TrafficClass:
        chosen = self.class_of == number
        outputs = self.output_tokens[chosen]
        variation = float(outputs.std() / outputs.mean())
        return TrafficClass(
            name=self.names[number],
            share=float(chosen.mean()),
            prompt_tokens=float(self.prompt_tokens[chosen].mean()),
            output_tokens=float(outputs.mean()),
            law=law,
            spread="lognormal" if variation else "constant",
            variation=variation,
        )


def squared_variation(mean: float, spread: Spread, variation: float) -> float:
    """Variance over squared mean of a length."""
    return {"constant": 0.0, "geometric": 1 - 1 / mean, "lognormal": variation**2}[spread]


def drawn_lengths(
    mean: float, spread: Spread, variation: float, count: int, rng: np.random.Generator
) -> IntArray:
    """Whole lengths of at least 1 whose mean is `mean`; a mean between two whole numbers draws both."""
    if spread == "geometric":
        return np.asarray(rng.geometric(1 / mean, count), dtype=np.int64)
    lengths = np.full(count, mean)
    if spread == "lognormal":
        sigma = sqrt(log(1 + variation**2))
        lengths = rng.lognormal(log(mean) - sigma**2 / 2, sigma, count)
    whole = np.floor(lengths + rng.random(count))
    return np.asarray(np.maximum(whole, 1), dtype=np.int64)


def length_quantile(mean: float, spread: Spread, variation: float, q: FloatArray) -> FloatArray:
    """Quantiles of a length, q in (0, 1), as a real number."""
    if spread == "geometric":
        with np.errstate(divide="ignore"):  # a mean of 1 is a length of 1
            return np.asarray(np.maximum(np.log1p(-q) / np.log1p(-1 / mean), 1.0))
    if spread == "constant" or not variation:
        return np.full(q.shape, mean)
    sigma = sqrt(log(1 + variation**2))
    normal = np.array([NormalDist().inv_cdf(level) for level in q.ravel()]).reshape(q.shape)
    return np.asarray(np.exp(log(mean) - sigma**2 / 2 + sigma * normal))


def _require_output(tokens: npt.ArrayLike) -> None:
    length = float(require_range("output_tokens", tokens, high=MAX_LENGTH))
    if length <= 0:
        raise InputError("output_tokens", f"must be at least 2, got {length:g}: nothing would be emitted")
    if length < 2:
        problem = f"must be at least 2, got {length:g}: the prefill emits the first token, nothing is decoded"
        raise InputError("output_tokens", problem)
