"""What a server counted under load: the difference of its metrics, and whether the load was alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from math import isnan
from typing import Final

from calibrate.serving.load import Level
from specmath.engines.content import Exposition
from specmath.engines.estimates import AcceptanceEstimate, estimate_acceptance
from specmath.engines.exposition import difference
from specmath.engines.increases import RUNNING, short_name
from specmath.engines.recognition import read_telemetry
from specmath.engines.server_telemetry import telemetry_of
from specmath.engines.servers import Server, ask_server, broken_metrics
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError
from specmath.results import Advice

NO_K: Final = "it does not tell k, the draft tokens per step; give it"
_REQUESTS: Final = ("request_success_total", "num_requests_total")
"""Counters of requests that ended, by engine."""
_OUTPUT: Final = ("generation_tokens_total", "tokens_predicted_total")
"""Counters of output tokens."""
_TOLERANCE: Final = 0.01
_TRIES: Final = 20
_TRY_S: Final = 0.1
_DRAFTED_ALWAYS: Final = 0.95
"""Share of the steps that drafted from which on the rest is put down to first and last steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What was counted at one level.

    Attributes:
        acceptance_length: Mean tokens per step, bonus included, steps without a draft too; None where
            nothing tells it.
        k: Draft tokens per step; None where not told.
        running: Mean requests in a step, as the server counts; None where it does not.
        method: How it drafts, where told.
        drafts: Steps that drafted; None where not told.
        warnings: What a reader must know.
        missing: Why nothing tells the acceptance length.
    """

    acceptance_length: float | None = None
    k: int | None = None
    running: float | None = None
    method: str | None = None
    drafts: float | None = None
    warnings: tuple[Advice, ...] = ()
    missing: str = ""


class Counters:
    """The counters of a server, read before and after a load.

    Args:
        url: The server.
        model: The model under load.
        k: Draft tokens per step, where the server does not tell.
        wait: How to wait for counters that lag behind.
    """

    def __init__(self, url: str, model: str, k: int | None, wait: Callable[[float], None]) -> None:
        self.url, self.model, self.k, self.wait = url, model, k, wait
        self.before: Server | None = None

    def begin(self) -> None:
        """Read them before the load."""
        self.before = self._settled(None, 0)

    def end(self, level: Level) -> Counted:
        """Read them after the load, and take off what was there before."""
        if self.before is None or self.before.metrics is None:
            return self._of_answers(level)
        after = self._settled(self.before, level.requests - level.failed)
        if after.metrics is None:
            return Counted(missing=f"{after.shown} no longer serves its metrics")
        try:
            grown = difference(self.before.metrics, after.metrics)
            records = telemetry_of(after, since=self.before.metrics, drains=False)
        except DataError as fault:
            return Counted(missing=fault.problem)
        counted = self._counted(_of_model(records, self.model), level)
        alone = _not_alone(grown, level, self.model, after.shown)
        lapses = tuple(note for note in grown.notes if note.code == "counters-reset")
        return replace(counted, warnings=(*counted.warnings, *alone, *lapses))

    def _settled(self, before: Server | None, requests: int) -> Server:
        """The server's answers once it has counted the requests sent; the last of them lag behind."""
        server = ask_server(self.url)
        for _ in range(_TRIES):
            if _is_settled(before, server, requests, self.model):
                break
            self.wait(_TRY_S)
            server = ask_server(self.url)
        return server

    def _of_answers(self, level: Level) -> Counted:
        """From the timings in the answers, which llama.cpp gives without metrics, too."""
        documents = [answer.document for answer in level.answers if answer.document]
        if not documents:
            broken = "" if self.before is None else broken_metrics(self.before)
            none = "the server serves no metrics; start it with them (llama.cpp: --metrics)"
            return Counted(missing=broken or none)
        lines = "\n".join(json.dumps(document) for document in documents)
        (record,) = read_telemetry(BytesIO(lines.encode()), name=f"{self.url}: timings", engine="llama.cpp")
        return self._counted(record, level)

    def _counted(self, record: Telemetry | None, level: Level) -> Counted:
        if record is None:
            return Counted(missing=f"its metrics tell nothing of the model {self.model}")
        common = Counted(running=record.load.running, method=record.method, drafts=record.drafts)
        try:
            found = estimate_acceptance(record, k=self.k)
        except DataError as fault:
            return replace(common, missing=fault.problem)
        if contradiction := _contradicted(self.k, record):
            return replace(common, missing=contradiction)
        length, notes = _length(found, level)
        if isnan(length):
            told = "it tells no acceptance length" if found.k else NO_K
            return replace(common, missing=told)
        warnings = (*notes, *_last_interval(record))
        return replace(common, acceptance_length=length, k=found.k, warnings=warnings)


def _contradicted(given: int | None, record: Telemetry) -> str:
    """Why a k that was given cannot be that of the server; empty where it can."""
    told = record.k or (None if record.k_varies else len(record.accepted_at) or None)
    if given is None or told is None or told == given:
        return ""
    return f"it drafts {told} tokens a step, and k = {given:,} was given; give {told}, or leave k out"


def _of_model(records: Sequence[Telemetry], model: str) -> Telemetry | None:
    named_so = [record for record in records if record.model == model]
    alike = named_so or [record for record in records if record.model is None] or list(records)
    return alike[0] if len(alike) == 1 else None


def _length(found: AcceptanceEstimate, level: Level) -> tuple[float, tuple[Advice, ...]]:
    """E of all steps. Steps without a draft yield one token; a step's time is that of all of them."""
    record, accepted = found.telemetry, found.totals.accepted
    steps = record.steps or 0.0
    if record.engine == "llama.cpp":
        steps -= len(level.answers)  # it counts the pass over a prompt, too
    if not record.drafts or accepted is None or record.drafts >= _DRAFTED_ALWAYS * steps:
        return found.acceptance_length, ()
    text = (
        f"{record.drafts / steps:.0%} of the steps drafted: E counts the others, too, as steps of one token"
    )
    remedy = "compare with runs of the same drafter alone; E of the drafts alone is larger"
    return 1 + accepted / steps, (Advice(code="steps-without-draft", text=text, remedy=remedy),)


def _last_interval(record: Telemetry) -> tuple[Advice, ...]:
    if record.scope != "last interval":
        return ()
    text = f"{record.engine} tells the acceptance of its last interval alone, not that of the level"
    return (Advice(code="last-interval", text=text, remedy="ask for more output tokens"),)


# ---------------------------------------------------------------- whether the load was alone


def _grown(grown: Exposition, names: tuple[str, ...], model: str) -> float | None:
    """What counters of one of the names grew by for a model; None where the server has none."""
    found = [
        sample.value
        for sample in grown.samples
        if short_name(sample.name) in names and sample.labels.get("model_name") in (None, model)
    ]
    return sum(found) if found else None


def _is_settled(before: Server | None, now: Server, requests: int, model: str) -> bool:
    if now.metrics is None:
        return True
    if before is None or before.metrics is None:
        return not any(one.value for one in now.metrics.samples if short_name(one.name) in RUNNING)
    ended = _grown(difference(before.metrics, now.metrics), _REQUESTS, model)
    return ended is None or ended >= requests


def _not_alone(grown: Exposition, level: Level, model: str, shown: str) -> tuple[Advice, ...]:
    """A warning where the server counted more than was sent. Requests that failed may have been counted."""
    sent = level.requests
    ended, output = _grown(grown, _REQUESTS, model), _grown(grown, _OUTPUT, model)
    others = []
    if ended is not None and ended > sent:
        others.append(f"{ended:.0f} requests where {sent} were sent")
    if output is not None and not level.failed and output > level.sent_tokens * (1 + _TOLERANCE) + sent:
        others.append(f"{output:.0f} output tokens where {level.sent_tokens} were received")
    if not others:
        return ()
    text = f"{shown} counted {' and '.join(others)} at concurrency {level.concurrency}: it has other users"
    remedy = "measure a server that nobody else uses; times and acceptance are of a mixture"
    return (Advice(code="other-traffic", text=text, remedy=remedy),)
