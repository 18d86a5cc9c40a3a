"""A crossover in words: where speculation wins, what ends it, and what would turn the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specmath.results import Cell
from specmath.verdicts import judgement
from specmath.winning import spelled

_WINS = {
    "always": "FASTER at every batch tried",
    "never": "SLOWER at every batch",
    "above": "FASTER above a break-even batch",
    "within": "FASTER at some batches",
}


def told_of_one(row: Mapping[str, Any], max_batch: int, basis: str, turns: str) -> str:
    """The verdict on one set-up."""
    middle = (
        "in the middle of the range " if row["winning_batches_low"] == [] and row["winning_batches"] else ""
    )
    told = f"{_close_call(row)}{middle}{_where(row, max_batch)}, {basis}{_range_text(row)}"
    critical = row["critical_context"]
    if critical is not None and row["wins"] != "always":
        told += f"; from context {critical:,.0f} on no batch is too large"
    return f"{told}; the answer at batch {row['batch']} turns at {turns}" if turns else told


def told_of_many(rows: Sequence[Mapping[str, Any]], basis: str) -> str:
    """The verdict on several set-ups: how many go which way, and between which batches they turn."""
    words = [str(row["wins"]) for row in rows]
    edges = [row["breakeven_batch"] for row in rows if row["wins"] == "below"]
    counts = {word: words.count(word) for word in dict.fromkeys(words) if word != "below"}
    told = [f"{_WINS[word]} in {count} of {len(rows)} set-ups" for word, count in counts.items()]
    if edges:
        span = f"{min(edges):.1f} to {max(edges):.1f}"
        told.insert(0, f"FASTER below a break-even batch of {span} in {len(edges)} of {len(rows)}")
    cut = sum(_cut_by_memory(row) for row in rows)
    memory = f"; memory ends the winning batches of {cut}" if cut else ""
    close = sum(_is_close(row) for row in rows)
    calls = f"; TOO CLOSE TO CALL at batch {rows[0]['batch']} in {close}" if close else ""
    return f"{', '.join(told)}, {basis}{memory}{calls}"


def _cut_by_memory(row: Mapping[str, Cell]) -> bool:
    held = row["winning_batches_in_memory"]
    return held is not None and held != row["winning_batches"]


def _where(row: Mapping[str, Any], max_batch: int) -> str:
    """Where speculation wins, within memory where that is known to end it."""
    plain, held = row["max_batch"], row["max_batch_speculative"]
    if held is not None and held < 1:
        return f"DOES NOT FIT beside the weights; if it did, {_sentence(row, max_batch)}"
    if not _cut_by_memory(row):
        return _sentence(row, max_batch)
    within = row["winning_batches_in_memory"]
    sizes = f"{held:,.0f} sequences with speculation, {plain:,.0f} without"
    if not within:
        return f"SLOWER at every batch that memory holds ({sizes}); beyond, {_sentence(row, max_batch)}"
    return f"FASTER at batch {spelled(within)}, where memory ends it ({sizes})"


def _sentence(row: Mapping[str, Any], max_batch: int) -> str:
    """Where speculation wins by its step times alone."""
    wins, at = row["wins"], row["breakeven_batch"]
    if wins == "never":
        return f"SLOWER at every batch up to {max_batch}"
    if wins == "always":
        return f"FASTER at every batch up to {max_batch}"
    if wins == "within":
        return f"FASTER at batch {spelled(row['winning_batches'])} only"
    return f"FASTER {wins} batch {at:.1f}, SLOWER {'above' if wins == 'below' else 'below'} it"


def _close_call(row: Mapping[str, Any]) -> str:
    """The asked batch, where its answer cannot be told from 1."""
    if not _is_close(row):
        return ""
    low, high = row["speedup_low"], row["speedup_high"]
    span = f"{row['speedup']:.2f}×" if low is None else f"{low:.2f}× to {high:.2f}×"
    return f"TOO CLOSE TO CALL at batch {row['batch']} ({span}); "


def _is_close(row: Mapping[str, Any]) -> bool:
    return judgement(row["speedup"], row["speedup_low"], row["speedup_high"]) == "TOO CLOSE TO CALL"


def _range_text(row: Mapping[str, Any]) -> str:
    """The winning batches at either end of the range of the step times."""
    low, high = row["winning_batches_low"], row["winning_batches_high"]
    if low is None or low == high:
        return ""
    ends = [f"batch {spelled(found)}" if found else "none" for found in (low, high)]
    return f" (between {ends[0]} and {ends[1]} over its range)"
