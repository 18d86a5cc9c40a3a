"""A plain run typed beside `--from`: the speculative run that belongs to it is the source itself."""

from __future__ import annotations

import math
from typing import Final

from specmath.axes import parse_record
from specmath.cli.named_files import names_a_file
from specmath.cli.text import parse_count
from specmath.engines.estimates import AcceptanceEstimate
from specmath.results import Advice

NEAR: Final = 1.25
"""Factor by which the batches of the two runs may differ and still count as one."""
_REMEDY: Final = "run both at one batch, or give the speculative run, too: on=…"


def is_plain_run(text: str) -> bool:
    """Whether a measurement is a run without speculation alone.

    >>> is_plain_run("off=3120tok/s@32"), is_plain_run("off=1ms@8,on=2ms@8"), is_plain_run("runs.csv")
    (True, False, False)
    """
    if names_a_file(text):
        return False
    record = parse_record("measured", text)
    return "off" in record and not record.keys() & {"on", "speedup"}


def beside_source(text: str, estimate: AcceptanceEstimate) -> tuple[str | None, Advice | None]:
    """The plain run with the source's own step as the other arm, and what must be known about it.

    Seconds per token of a sequence are the mean step over the tokens that a step yields. The run alone says
    nothing about a speed-up, so that it is left out where the source tells no step or ran another batch.
    """
    record, load = parse_record("measured", text), estimate.telemetry.load
    batch, running, length = _batch(record), load.running, estimate.tokens_per_step
    length = estimate.acceptance_length if math.isnan(length) else length
    if load.step_s is None or not running or math.isnan(length) or estimate.k is None:
        told = "the source tells no step time, no batch or no k"
        return None, _left_out(text, f"{told}, so there is nothing to compare it with")
    if batch is not None and not batch / NEAR <= running <= batch * NEAR:
        return None, _left_out(text, f"the source ran {running:.3g} requests in a step, not {batch}")
    own = {"on": f"{load.step_s / length!r}s", "k": str(estimate.k), "acceptance-length": repr(length)}
    if batch is None:
        own["batch"] = str(max(round(running), 1))
    known = {key.replace("_", "-") for key in record}
    whole = ",".join([text, *(f"{key}={value}" for key, value in own.items() if key not in known)])
    step = f"{load.step_s * 1e3:.4g} ms at batch {running:.3g}"
    note = f"`{text}` is compared with the source's own step of {step}"
    remedy = "both runs must have been of the same requests on the same machine"
    return whole, Advice(code="plain-run-beside-source", text=note, remedy=remedy)


def _batch(record: dict[str, str]) -> int | None:
    behind = record["off"].partition("@")[2] or record.get("batch")
    return parse_count("measured", behind) if behind else None


def _left_out(text: str, reason: str) -> Advice:
    return Advice(code="plain-run-alone", text=f"`{text}` was left out: {reason}", remedy=_REMEDY)
