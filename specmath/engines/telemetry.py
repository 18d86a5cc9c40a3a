"""What an engine's own output tells about the speculation of one model, in the field's terms.

Readers translate an engine's words into this record and nothing more: no rate is turned into another, nothing
is estimated. What an engine does not tell stays None. `specmath.engines.estimates` draws conclusions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specmath.results import Advice

SCOPES: Final = ("difference", "since start", "intervals", "last interval", "requests", "typed")
"""What the counts cover: two scrapes, the life of the server, intervals of a log added up, one interval only,
the requests listed, or numbers typed by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRate:
    """The engine's own "acceptance rate".

    Attributes:
        name: What the engine calls it.
        value: As a share, percentages divided by 100.
        meaning: What it is, as a formula: accepted/drafted, length/(k + 1), …
    """

    name: str
    value: float
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCounts:
    """Counts of one request, for errors that respect that steps of a request are alike.

    Attributes:
        drafts: Steps with at least one draft token.
        drafted: Draft tokens verified.
        accepted: Draft tokens accepted, bonus tokens left out.
        histogram: Steps with 0, 1, … draft tokens accepted; empty where not told.
    """

    drafts: float
    drafted: float
    accepted: float
    histogram: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What else the engine did meanwhile; None where it does not tell.

    Attributes:
        running: Mean requests in a step.
        running_p95: Their 95th percentile.
        waiting: Mean requests that wait.
        preemptions: Requests put off for want of memory.
        cache_usage: Share of the KV cache in use.
        prompt_tokens: Tokens prefilled.
        prefix_queries, prefix_hits: Prompt tokens looked up in the prefix cache, and found.
        step_s: Mean seconds of one decoding step.
        draft_s: Those of them that go into drafting.
        time_per_token_s: Mean seconds per output token of a request.
        tokens_per_s: Output tokens of all requests per second.
    """

    running: float | None = None
    running_p95: float | None = None
    waiting: float | None = None
    preemptions: float | None = None
    cache_usage: float | None = None
    prompt_tokens: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    step_s: float | None = None
    draft_s: float | None = None
    time_per_token_s: float | None = None
    tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Speculation of one model on one engine, as far as its output tells.

    Attributes:
        engine: vllm, sglang, tensorrt-llm, llama.cpp, lmdeploy, tgi, lm-studio, mlx, aiperf, or typed.
        version: The version, or the family that the format belongs to (`0.10.2 or newer`).
        model: Name the engine serves it by.
        source: File or URL it was read from, fit to be printed.
        scope: One of `SCOPES`.
        method: How it drafts, where told: draft-model, eagle, eagle3, mtp, ngram, suffix, …
        k: Draft tokens per step as configured, or the longest seen; None where not told.
        k_varies: Whether drafts shorter than k are known to occur, so that later positions are diluted.
        drafts: Request-steps that verified at least one draft token.
        drafted: Draft tokens verified.
        accepted: Draft tokens accepted, bonus tokens left out.
        accepted_at: Drafts that accepted at least 1, 2, … tokens; as shares where drafts is None.
        drafted_at: Drafts that proposed at least 1, 2, … tokens, where the engine counts them.
        histogram: Steps with 0, 1, … draft tokens accepted.
        acceptance_length: Mean tokens per step, bonus included, where the engine gives it without counts.
        efficiency: Acceptance length over k + 1, where the engine gives that alone; of use where k is known.
        reported_rate: The engine's own "acceptance rate".
        requests: Counts by request, where told.
        generated: Output tokens of all steps, with and without drafts.
        steps: Request-steps in all, with and without drafts.
        load: What else the engine did meanwhile.
        notes: What a reader must know: resets, format traps, series left out.
    """

    engine: str
    scope: str
    source: str = ""
    version: str | None = None
    model: str | None = None
    method: str | None = None
    k: int | None = None
    k_varies: bool = False
    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    accepted_at: tuple[float, ...] = ()
    drafted_at: tuple[float, ...] = ()
    histogram: tuple[float, ...] = ()
    acceptance_length: float | None = None
    efficiency: float | None = None
    reported_rate: ReportedRate | None = None
    requests: tuple[RequestCounts, ...] = ()
    generated: float | None = None
    steps: float | None = None
    load: Load = Load()
    notes: tuple[Advice, ...] = ()
