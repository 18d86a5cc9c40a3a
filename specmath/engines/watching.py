"""Two readings of a running server, some seconds apart, and what happened between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from typing import Final

from specmath.engines.addresses import is_url
from specmath.engines.content import Exposition
from specmath.engines.exposition import difference
from specmath.engines.fetching import USUAL, Limits
from specmath.engines.increases import short_name
from specmath.engines.server_telemetry import telemetry_of, wants_iterations
from specmath.engines.servers import METRICS, Server, ask_server
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError, InputError

MAX_S: Final = 7 * 86_400.0
_TICK_S: Final = 0.5
_OUTPUT: Final = ("generation_tokens_total", "tokens_predicted_total")
"""Counters of output tokens, by engine."""


def watch_server(
    url: str,
    seconds: float,
    *,
    engine: str | None = None,
    version: str | None = None,
    limits: Limits = USUAL,
    progress: Callable[[int, int], None] | None = None,
    wait: Callable[[float], None] = time.sleep,
) -> list[Telemetry]:
    """What a server counted during some seconds, one record for each model.

    Ctrl-C ends the waiting and not the work: what was counted until then is the answer.

    Args:
        url: As for `ask_server`.
        seconds: How long to watch, above 0, a week at most.
        engine: Name of the engine, where recognition needs help.
        version: Version of the engine, where it does not tell.
        limits: Time for each answer, and size.
        progress: Called with tenths of a second done and in all.
        wait: How to wait, for tests.

    Raises:
        AccessError: nobody answers.
        DataError: what it answers holds nothing of a known engine.
        InputError: it is no URL, serves no metrics, or `seconds` is out of range.
    """
    if not is_url(url):
        raise InputError("watch", "goes with the URL of a server; compare two files with --since")
    if not (isfinite(seconds) and 0 < seconds <= MAX_S):
        raise InputError("watch", f"must be above 0 s and at most {MAX_S:.0f} s, got {seconds:g}")
    began_s = time.monotonic()
    first = ask_server(url, limits)
    drains = _drains(first, engine)
    if drains:  # what was recorded before is handed out, and gone
        first.ask(METRICS)
    elif first.metrics is None:
        raise InputError("watch", f"goes with metrics, and {first.shown} serves none")
    with suppress(KeyboardInterrupt):
        _pass(seconds, progress, wait)
    took_s = time.monotonic() - began_s  # from one asking to the next, each reading lying alike behind it
    second = ask_server(url, limits, version=version)
    found = telemetry_of(second, engine=engine, since=first.metrics, drains=drains)
    if first.metrics is None or second.metrics is None:
        return found
    between = difference(first.metrics, second.metrics)
    return [_paced(record, between, took_s) for record in found]


def _paced(record: Telemetry, between: Exposition, took_s: float) -> Telemetry:
    """With the output tokens per second, where they are counted and the engine does not tell them itself."""
    counted = [
        sample.value
        for sample in between.samples
        if short_name(sample.name) in _OUTPUT and sample.labels.get("model_name") in (None, record.model)
    ]
    if not counted or record.load.tokens_per_s is not None:
        return record
    return replace(record, load=replace(record.load, tokens_per_s=sum(counted) / took_s))


def _drains(server: Server, engine: str | None) -> bool:
    """Whether iterations are what is watched."""
    if server.engine != "tensorrt-llm":
        return False
    try:
        return wants_iterations(server, telemetry_of(server, engine=engine, drains=False))
    except DataError:
        return wants_iterations(server, [])


def _pass(seconds: float, progress: Callable[[int, int], None] | None, wait: Callable[[float], None]) -> None:
    end_s = time.monotonic() + seconds
    while (left := end_s - time.monotonic()) > 0:
        if progress is not None:
            progress(round(10 * (seconds - left)), round(10 * seconds))
        wait(min(left, _TICK_S))
