"""Two readings of a running server, some seconds apart, and what happened between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from typing import Final

from specmath.engines.addresses import is_url
from specmath.engines.fetching import USUAL, Limits
from specmath.engines.server_telemetry import telemetry_of, wants_iterations
from specmath.engines.servers import METRICS, Server, ask_server
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError, InputError

MAX_S: Final = 7 * 86_400.0
_TICK_S: Final = 0.5


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
    first = ask_server(url, limits)
    drains = _drains(first, engine)
    if drains:  # what was recorded before is handed out, and gone
        first.ask(METRICS)
    elif first.metrics is None:
        raise InputError("watch", f"goes with metrics, and {first.shown} serves none")
    with suppress(KeyboardInterrupt):
        _pass(seconds, progress, wait)
    second = ask_server(url, limits, version=version)
    return telemetry_of(second, engine=engine, since=first.metrics, drains=drains)


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
