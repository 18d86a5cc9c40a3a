"""Totals of a record of telemetry: drafts, draft tokens and accepted ones, told or following from others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from specmath.checks import MAX_K, require_count
from specmath.counted_acceptance import equal_lengths
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError, shown

_SOLVED: Final = "α solves 1 + α + … + α^k = E, the same at every position, which totals cannot test"
_REASONS: Final = ("speculation-off", "diffusion", "step-times-only", "no-data")
"""Notes of a reader that say why there is nothing to conclude from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Totals of a record.

    Attributes:
        k: Draft tokens per step; None where neither told nor given.
        drafts: Steps that drafted; None where neither told nor following from k.
        drafted: Draft tokens.
        accepted: Accepted draft tokens.
        trials: Steps behind the mean of the accepted tokens: drafts, or all steps where every one is taken to
            have drafted.
        acceptance_length: Mean tokens per drafting step, the bonus token included; NaN where not known.
        lengths: Share of the drafts by length, as far as it must be known for α; empty where it is not.
        basis: How α follows from the totals, in words.
        presumed: What is taken for granted to get them: `drafts` where each step is taken to have drafted,
            `k` where each draft is taken to be full, empty where nothing is.
    """

    k: int | None
    drafts: float | None
    drafted: float | None
    accepted: float | None
    trials: float | None
    acceptance_length: float
    lengths: Mapping[int, float] = field(default_factory=dict)
    basis: str = _SOLVED
    presumed: str = ""


def totals_of(telemetry: Telemetry, k: int | None = None) -> Totals:
    """The totals of a record, with k where the record does not tell it.

    Raises:
        DataError: nothing was drafted, or the acceptance length is impossible with k.
        InputError: k is no whole number from 1 to 10,000.

    >>> totals_of(Telemetry(engine="typed", scope="typed", drafted=2400, accepted=1284), 2).drafts
    1200.0
    """
    _require_data(telemetry)
    if k is not None:
        require_count("k", k, 1, MAX_K)
    known = k or telemetry.k or (None if telemetry.k_varies else len(telemetry.accepted_at) or None)
    drafts, presumed = _drafts(telemetry, k)
    accepted, length = _accepted(telemetry, drafts, known)
    trials = drafts
    if drafts is None and telemetry.steps and accepted is not None:
        trials, presumed = telemetry.steps, "drafts"
    _require_possible(telemetry, length, known, trials)
    lengths = _lengths(telemetry, known, trials, k is not None)
    return Totals(
        k=known,
        drafts=drafts,
        drafted=telemetry.drafted,
        accepted=accepted,
        trials=trials,
        acceptance_length=length,
        lengths=lengths,
        basis=_basis(lengths, presumed),
        presumed=presumed if lengths else "",
    )


def has_data(telemetry: Telemetry) -> bool:
    """Whether anything was drafted, as far as the record tells.

    >>> has_data(Telemetry(engine="vllm", scope="since start", drafts=0, acceptance_length=1.0))
    False
    """
    if telemetry.drafts == 0 or telemetry.drafted == 0:
        return False
    told = (telemetry.drafts and telemetry.accepted is not None, telemetry.drafted, telemetry.accepted_at)
    return bool(any(told) or telemetry.acceptance_length or telemetry.efficiency)


def _require_data(telemetry: Telemetry) -> None:
    if has_data(telemetry):
        return
    note = next((note for code in _REASONS for note in telemetry.notes if note.code == code), None)
    text = note.text if note else "no draft was verified, so nothing tells α"
    remedy = note.remedy if note else "run requests with speculation on, then read again"
    step = telemetry.load.step_s
    beside = f" (a plain step takes {step * 1e3:.4g} ms)" if step and not telemetry.drafted else ""
    raise DataError(
        telemetry.source or telemetry.engine, f"no data: {text}{beside}; {remedy}", entry=_entry(telemetry)
    )


def _entry(telemetry: Telemetry) -> str:
    return "" if telemetry.model is None else f"model {shown(telemetry.model)}"


def _drafts(telemetry: Telemetry, k: int | None) -> tuple[float | None, str]:
    """Drafts, and whether each was taken to be full to get them."""
    if telemetry.drafts is not None:
        return telemetry.drafts, ""
    if telemetry.histogram and sum(telemetry.histogram):
        return sum(telemetry.histogram), ""
    if telemetry.drafted and k:
        return telemetry.drafted / k, "k"
    if telemetry.drafted and telemetry.k and not telemetry.k_varies and not telemetry.steps:
        return telemetry.drafted / telemetry.k, "k"
    return None, ""


def _accepted(telemetry: Telemetry, drafts: float | None, k: int | None) -> tuple[float | None, float]:
    """Accepted tokens and the acceptance length, each from the other where one is not told."""
    accepted = telemetry.accepted
    if accepted is None and telemetry.accepted_at and telemetry.drafts:
        accepted = math.fsum(telemetry.accepted_at)
    if accepted is not None and drafts:
        return accepted, 1.0 + accepted / drafts
    length = telemetry.acceptance_length
    if length is None and telemetry.efficiency is not None and k:
        length = telemetry.efficiency * (k + 1)
    if length is None and telemetry.accepted_at and not telemetry.drafts:
        length = 1.0 + math.fsum(telemetry.accepted_at)
    if accepted is None and drafts and length is not None:
        accepted = (length - 1.0) * drafts
    return accepted, math.nan if length is None else length


def _lengths(
    telemetry: Telemetry, k: int | None, trials: float | None, is_typed: bool
) -> Mapping[int, float]:
    """How long the drafts were: all k, or alike on average where only their total is known."""
    full = {k: 1.0} if k and (is_typed or not telemetry.k_varies) else {}
    if full and (is_typed or telemetry.drafts or not telemetry.drafted):
        return full
    if telemetry.drafted and trials and telemetry.drafted >= trials:
        return equal_lengths(telemetry.drafted, trials)
    return full


def _basis(lengths: Mapping[int, float], presumed: str) -> str:
    if presumed == "drafts":
        return f"{_SOLVED}; the engine does not count drafts, and every step is taken to have drafted"
    return _SOLVED if len(lengths) < 2 else f"{_SOLVED}; drafts of all lengths are taken as equally long"


def _require_possible(telemetry: Telemetry, length: float, k: int | None, trials: float | None) -> None:
    problem = ""
    if k and length > (k + 1) * 1.01:
        most = (
            f"an acceptance length of {length:.4g} is impossible with k = {k}, which yields {k + 1} at most"
        )
        problem = f"{most}; check k, and that steps and tokens are of the same run"
    if length < 1:
        problem = f"an acceptance length of {length:.4g} leaves the bonus token out; add 1 to it"
    if telemetry.drafted and trials and telemetry.drafted > MAX_K * trials:
        told = f"{telemetry.drafted:.6g} draft tokens in {trials:.6g} drafts"
        problem = f"{told}: no engine drafts so many at once; take the counts again"
    if problem:
        raise DataError(telemetry.source or telemetry.engine, problem, entry=_entry(telemetry))
