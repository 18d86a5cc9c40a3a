"""A live OpenAI-compatible server measured from outside, with and without speculation.

Both servers are loaded in turn, round by round, with the same prompts at each number of requests at a time.
What comes out are runs: E of the level from the server's own counters, and the times per token of both arms.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from calibrate.serving.counters import NO_K
from calibrate.serving.load import Refused, measured_levels
from calibrate.serving.load_plan import USUAL, LoadPlan, LoadProgress, Prompt
from calibrate.serving.served_levels import ServedLevel, warnings_of
from calibrate.serving.server_arm import Arm
from calibrate.serving.streaming import Halt
from specmath import __version__
from specmath.calibrations import MeasuredRuns
from specmath.checks import MAX_K, require_count
from specmath.engines.addresses import parse_address
from specmath.errors import AccessError, DataError, InputError, SpecmathError, shown
from specmath.measurements import Measurement
from specmath.results import Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedRuns:
    """What was measured on a server: the runs for a file, and the levels behind them."""

    runs: MeasuredRuns
    levels: tuple[ServedLevel, ...]


def measure_server(
    url: str,
    prompts: Sequence[Prompt],
    plan: LoadPlan = USUAL,
    *,
    baseline: str | None = None,
    model: str | None = None,
    k: int | None = None,
    progress: Callable[[LoadProgress], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    wait: Callable[[float], None] = time.sleep,
) -> ServedRuns:
    """Load a server that speculates, and its like that does not, and make runs of their times.

    Requests are sent to the two hosts named, which may be foreign, and to no other. Ctrl-C ends them, and the
    levels done are the answer.

    Args:
        url: Base URL of the server that speculates.
        prompts: Texts, or messages of a chat. As many as `plan.most_requests` keep each one fresh.
        plan: How large the load becomes, and when it is enough.
        baseline: Base URL of a server of the same model without speculation.
        model: Name of the model, where a server has several.
        k: Draft tokens per step, where the server does not tell.
        progress: Called before each round.
        clock: Seconds, for tests.
        wait: How to wait, for tests.

    Raises:
        AccessError: a server does not answer as it should before a level is done.
        DataError: it does not speculate, or does not tell how well; the baseline speculates.
        InputError: there are no prompts, a URL is none, the two are one, or k is out of range.
    """
    if k is not None:
        require_count("k", k, 1, MAX_K)
    origin = _origin("url", url)
    if baseline is not None and _origin("baseline", baseline) == origin:
        raise InputError("baseline", "is the server itself; give one of the same model without speculation")
    halt = Halt()

    def arm(address: str, drafts: int | None) -> Arm:
        return Arm(address, prompts, plan, model, drafts, progress, clock, wait, halt)

    first = arm(url, k)
    second = None if baseline is None else arm(baseline, None)
    levels, warnings = _levels(plan, first, second)
    return ServedRuns(
        runs=MeasuredRuns(
            source=first.shown,
            origin="server",
            machine=_machine(first, second, plan, levels),
            runs=tuple(_measurement(one, first) for one in levels),
            warnings=(*warnings, *warnings_of(levels, plan), *_pair_warnings(first, second)),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            specmath_version=__version__,
        ),
        levels=levels,
    )


def _levels(
    plan: LoadPlan, first: Arm, second: Arm | None
) -> tuple[tuple[ServedLevel, ...], tuple[Advice, ...]]:
    """The levels up to the first that cannot be used, and why that one cannot."""
    levels: list[ServedLevel] = []
    for concurrency in plan.levels:
        try:
            levels.append(_both_arms(concurrency, first, second))
        except (Refused, AccessError, DataError) as fault:
            if not levels:
                raise _error_of(fault, first) from None
            text = f"concurrency {concurrency} and above were left out: {fault}"
            remedy = f"lower the concurrency to {levels[-1].speculative.concurrency}"
            return tuple(levels), (Advice(code="level-refused", text=text, remedy=remedy),)
        except KeyboardInterrupt:
            if not levels:
                raise
            text = f"ended by hand at concurrency {concurrency}, which is left out"
            return tuple(levels), (Advice(code="interrupted", text=text, remedy="measure again for all"),)
    return tuple(levels), ()


def _error_of(fault: Exception, first: Arm) -> SpecmathError:
    """Where the first level fails, its fault is the answer."""
    found = fault.__cause__ if isinstance(fault, Refused) else fault
    return found if isinstance(found, SpecmathError) else AccessError(first.shown, str(fault))


def _both_arms(concurrency: int, first: Arm, second: Arm | None) -> ServedLevel:
    arms = [first] if second is None else [first, second]
    levels = measured_levels(concurrency, first.plan, arms, halt=first.halt, clock=first.clock)
    counted = [arm.counted(level) for arm, level in zip(arms, levels, strict=True)]
    if counted[0].acceptance_length is None or counted[0].k is None:
        raise DataError(first.shown, f"its acceptance cannot be told: {counted[0].missing or NO_K}")
    if second is None:
        return ServedLevel(speculative=levels[0], counted=counted[0])
    if counted[1].drafts:
        raise DataError(second.shown, "speculates itself; give a baseline without speculation")
    return ServedLevel(speculative=levels[0], counted=counted[0], plain=levels[1], plain_counted=counted[1])


def _origin(name: str, url: str) -> object:
    try:
        return parse_address(url).origin
    except InputError as fault:
        raise InputError(name, fault.problem) from fault


def is_on_this_machine(url: str) -> bool:
    """Whether a server runs on this machine, so that its load is the one seen here.

    >>> is_on_this_machine("http://127.0.0.1:8000"), is_on_this_machine("https://api.example.com")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ---------------------------------------------------------------- what is made of it


def _measurement(level: ServedLevel, first: Arm) -> Measurement:
    counted, one = level.counted, level.speculative
    k = counted.k or 1
    length = min(max(counted.acceptance_length or 1.0, 1.0), k + 1.0)
    return Measurement(
        k=k,
        batch=one.concurrency,
        acceptance_length=length,
        context=one.context,
        plain_s=None if level.plain is None else level.plain.tpot_s,
        speculative_s=level.tpot_s,
        where=f"{first.shown} at concurrency {one.concurrency}",
    )


def _machine(
    first: Arm, second: Arm | None, plan: LoadPlan, levels: Sequence[ServedLevel]
) -> Mapping[str, str | float | int]:
    facts = first.facts
    told: dict[str, str | float | int | None] = {
        "engine": first.engine,
        "version": first.server.version,
        "model": facts.model or first.model,
        "method": facts.method or next((one.counted.method for one in levels), None),
        "draft": facts.draft,
        "dtype": facts.dtype,
        "tp": facts.tp,
        "max_requests": facts.max_requests,
        "baseline": second.shown if second else None,
        "baseline_version": second.server.version if second else None,
        "sent": json.dumps(first.settings),
        "output_tokens": plan.output_tokens,
        "load_average": _load_average() if is_on_this_machine(first.base) else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _load_average() -> float | None:
    """Processes that want to run on this machine, mean of the last minute; None where it cannot be told."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _pair_warnings(first: Arm, second: Arm | None) -> tuple[Advice, ...]:
    if second is None:
        text = "there is no baseline: the times of speculative steps alone are known, no speed-up and no R"
        remedy = "give a server of the same model without speculation as baseline"
        return (Advice(code="no-baseline", text=text, remedy=remedy),)
    if second.model == first.model or second.facts.model == first.facts.model:
        return ()
    text = f"the baseline serves {shown(second.model)}, the server {shown(first.model)}"
    return (Advice(code="other-model", text=text, remedy="let both serve the same model"),)
