"""Benchmarks whose α is worth nothing: random prompts, and outputs forced on beyond their natural end."""

from __future__ import annotations

from typing import Any, Final

from specmath.results import Advice

LEAST: Final = 8
"""Requests from which equal lengths of all of them are no chance."""
_REMEDY: Final = "measure on prompts that you serve, with their natural end"


def synthetic_notes(
    dataset: Any, *, requests: float | None, prompt_tokens: float | None, output_tokens: float | None
) -> tuple[Advice, ...]:
    """What a benchmark's own record says against its acceptance.

    Args:
        dataset: Name of its data set, where told.
        requests, prompt_tokens, output_tokens: Totals; lengths that divide evenly were fixed.

    >>> notes = synthetic_notes("random", requests=200, prompt_tokens=102400, output_tokens=51200)
    >>> [note.code for note in notes]
    ['random-prompts', 'forced-length']
    >>> synthetic_notes("sharegpt", requests=200, prompt_tokens=43211, output_tokens=38007)
    ()
    """
    notes = []
    if isinstance(dataset, str) and dataset.startswith("random"):
        text = f"the data set is {dataset!r}: on tokens drawn at random α says nothing about real text"
        notes.append(Advice(code="random-prompts", text=text, remedy=_REMEDY))
    totals = (prompt_tokens, output_tokens)
    if requests and requests >= LEAST and all(total and total % requests == 0 for total in totals):
        lengths = " and ".join(f"{total / requests:,.0f}" for total in totals if total)
        told = f"all requests have equal lengths, {lengths} tokens"
        text = f"{told}: prompts made up, or outputs forced on by ignore_eos, give an α of their own"
        notes.append(Advice(code="forced-length", text=text, remedy=_REMEDY))
    return tuple(notes)
