"""The draft lengths that a calibration timed, where a question names none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from specmath.cli.calibrated import names_no_law

if TYPE_CHECKING:
    from specmath.cli.calibrated import Settled
    from specmath.cli.options import AcceptanceOptions


def with_timed_lengths(known: Settled, typed: AcceptanceOptions) -> tuple[Settled, str | None]:
    """The draft lengths of a calibration that brings its acceptance along: a row for each, to choose by.

    None, and nothing said, where a law is typed or further measurements are given: k then has its usual
    default.
    """
    source = known.source
    if source is None or known.measured.measured or not names_no_law(typed):
        return known, None
    rates = known.acceptance.rates
    longest = source.draft_lengths[-1] if rates is None else len(rates.split("/"))
    lengths = [str(k) for k in source.draft_lengths if k <= longest]
    if not lengths:
        return known, None
    told = f"k {', '.join(lengths)}: the draft lengths that were timed; --k asks for others"
    return replace(known, source=replace(source, taken=(told, *source.taken))), ",".join(lengths)
