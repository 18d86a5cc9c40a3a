"""Counts typed by hand, as a record of telemetry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from specmath.checks import MAX_COUNT, MAX_K, require_count, require_range
from specmath.engines.telemetry import Telemetry
from specmath.errors import InputError


def typed_counts(
    *,
    drafts: float | None = None,
    drafted: float | None = None,
    accepted: float | None = None,
    accepted_at: Sequence[float] = (),
    acceptance_length: float | None = None,
    k: int | None = None,
) -> Telemetry:
    """Telemetry of counts that a reader copied by hand.

    Args:
        drafts: Steps that drafted, at least 0.
        drafted: Draft tokens, at least `drafts`.
        accepted: Accepted draft tokens, the bonus token left out; at most `drafted`.
        accepted_at: Drafts that accepted at least 1, 2, … tokens; their shares where `drafts` is not given.
        acceptance_length: Mean tokens per step, the bonus token included, where counts are not known.
        k: Draft tokens per step; else as many as positions, or drafted/drafts where that is whole.

    Returns:
        The record; `k_varies` where fewer than k tokens were drafted on average.

    Raises:
        InputError: nothing was given, or counts contradict each other.

    >>> typed_counts(drafts=100, drafted=300, accepted=156).k
    3
    """
    given = {"drafts": drafts, "drafted": drafted, "accepted": accepted}
    counts = {name: _count(name, value) for name, value in given.items()}
    reached = _positions(accepted_at, counts["drafts"])
    length = _length(acceptance_length)
    if length is None and not reached and sum(value is not None for value in counts.values()) < 2:
        problem = (
            "is missing: give two of drafts, drafted and accepted, positions, or an acceptance length with k"
        )
        raise InputError("drafts", problem)
    per_draft = _mean_length(counts)
    whole = per_draft is not None and per_draft == round(per_draft)
    told = k if k is not None else len(reached) or (int(per_draft) if per_draft and whole else None)
    if told is not None:
        require_count("k", told, 1, MAX_K)
    _require_possible(counts, reached, per_draft, told)
    _require_one_length(counts, reached, length)
    return Telemetry(
        engine="typed",
        scope="typed",
        k=told,
        k_varies=per_draft is not None and (told is None or per_draft < told),
        accepted_at=reached,
        acceptance_length=length,
        drafts=counts["drafts"],
        drafted=counts["drafted"],
        accepted=counts["accepted"],
    )


def _count(name: str, value: float | None) -> float | None:
    return None if value is None else float(require_range(name, value, 0, MAX_COUNT))


def _length(value: float | None) -> float | None:
    return None if value is None else float(require_range("acceptance_length", value, 1))


def _mean_length(counts: dict[str, float | None]) -> float | None:
    drafts, drafted = counts["drafts"], counts["drafted"]
    return drafted / drafts if drafts and drafted is not None else None


def _positions(accepted_at: Sequence[float], drafts: float | None) -> tuple[float, ...]:
    if not accepted_at:
        return ()
    most = math.inf if drafts is None else drafts
    reached = tuple(require_range("positions", list(accepted_at), 0, MAX_COUNT).tolist())
    if drafts is None and max(reached) > 1:
        raise InputError(
            "drafts", "is missing: positions above 1 are counts, and need the drafts they are of"
        )
    for before, after in pairwise((most, *reached)):
        if after > before:
            problem = (
                f"cannot rise, from {before:.12g} to {after:.12g}: each holds the drafts that reached it"
            )
            raise InputError("positions", problem)
    return reached


def _require_one_length(
    counts: dict[str, float | None], reached: tuple[float, ...], length: float | None
) -> None:
    """Refuse a length beside counts that give another; one of a percent is rounding."""
    drafts = counts["drafts"]
    accepted = (
        counts["accepted"] if counts["accepted"] is not None else math.fsum(reached) if reached else None
    )
    if length is None or accepted is None or (drafts is None and counts["accepted"] is not None):
        return
    counted = 1 + accepted / (drafts or 1)
    if abs(length - counted) > 0.01 * counted:
        raise InputError(
            "acceptance_length", f"contradicts the counts, which give {counted:.4g}, got {length:.4g}"
        )


def _require_possible(
    counts: dict[str, float | None], reached: tuple[float, ...], per_draft: float | None, k: int | None
) -> None:
    drafts, drafted, accepted = counts["drafts"], counts["drafted"], counts["accepted"]
    if drafted is not None and accepted is not None and accepted > drafted:
        raise InputError(
            "accepted", f"must be at most the drafted tokens, {drafted:.12g}, got {accepted:.12g}"
        )
    if per_draft is not None and per_draft < 1:
        raise InputError("drafted", "must be at least as many as drafts: a draft holds one token or more")
    if k is not None and per_draft is not None and per_draft > k * (1 + 1e-9):
        raise InputError("k", f"must be at least {per_draft:.4g}, the draft tokens of a draft, got {k}")
    if drafts and accepted is not None and k is not None and accepted > drafts * k * (1 + 1e-9):
        raise InputError("accepted", f"must be at most k tokens of each draft, {drafts * k:.12g}")
    if reached:
        _require_these_positions(counts, reached, k)


def _require_these_positions(
    counts: dict[str, float | None], reached: tuple[float, ...], k: int | None
) -> None:
    """Refuse positions that other counts contradict; as shares where the drafts are not told."""
    drafts, drafted, accepted = counts["drafts"], counts["drafted"], counts["accepted"]
    summed = math.fsum(reached)
    if k is not None and k < len(reached):
        raise InputError("positions", f"must be at most k = {k}, got {len(reached)}")
    if drafts and accepted is not None and abs(summed - accepted) > 0.01 * accepted + 1:
        raise InputError("accepted", f"contradicts positions, which sum to {summed:.12g}")
    if drafts and drafted is not None and summed > drafted * (1 + 1e-9):
        raise InputError("positions", f"sum to {summed:.12g}, more than the {drafted:.12g} drafted tokens")
    if not drafts and drafted and accepted is not None and k is not None:
        share = accepted / drafted
        if abs(summed / k - share) > 0.01:
            problem = (
                f"{share:.4g} of the drafted contradicts positions, which give {summed / k:.4g} at k = {k}"
            )
            raise InputError("accepted", problem)
