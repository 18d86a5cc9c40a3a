"""What cannot be true of one calibration: laws against cells, α against counts, an E longer than its draft.

A file that says so was edited, mixed of two machines, or holds another unit. It is refused where it is read,
for every answer would be wrong by as much, without a word.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

import numpy as np

from specmath.calibrations import PARTS, AcceptanceRow, Calibration, Cell
from specmath.checks import FloatArray
from specmath.errors import InputError, shown
from specmath.units import format_quantity

LEAST_S: Final = 1e-9
"""Shortest cell of a file, and shortest law: no processor does anything in less than a clock or two."""
MOST_RATIO: Final = 100.0
"""A law was drawn from its own cells. Kernels that switch, and a busy machine, move a pass by a factor of a
few; two orders of magnitude are another unit, or another machine."""
MOST_UNTIMED: Final = 1_000.0
"""Longest step of one token that a law may tell, over the longest pass that was timed: an order more than the
factor above, for parts of which no cell was timed."""
MOST_GAP: Final = 0.3
"""Largest distance of α from the share of first tokens accepted, beside noise. Both are of the same prompts,
but the run stops at other places of the text: less than a tenth apart where it was measured."""
RULES: Final[dict[str, bool | None]] = {
    "arg-max match": True,
    "rejection sampling": True,
    "one-hot draft": True,
    "target's sample": True,
    "target's token": True,
    "equal samples": True,
    "block verification": True,
    "typical acceptance": False,
    "relaxed acceptance": False,
    "lossy": False,
    "unknown": None,
}
"""Acceptance rules by name, and whether they keep the target's distribution; None where it is not known."""
_SMALLEST: Final = {"target": 1, "draft": 1, "plain-host": 1, "step-host": 2}
"""Width of the smallest step of each part."""


def require_consistent(known: Calibration) -> Calibration:
    """The calibration, which does not contradict itself.

    Args:
        known: What was read.

    Raises:
        InputError: named after the place in the file: a law, a cell, a row.
    """
    longest_s = max(cell.seconds for cell in known.cells if cell.place.part == "target")
    for part in PARTS:
        _require_time(known, part, longest_s)
        _require_near(known, part)
    for number, row in enumerate(known.acceptance, start=1):
        _require_row(row, f"acceptance {number}")
    for number, proof in enumerate(known.proof, start=1):
        if proof.acceptance_length > proof.k + 1:
            allowed = f"counts the bonus token, so must be between 1 and {proof.k + 1}"
            raise InputError(
                f"proof {number}: acceptance_length", f"{allowed}, got {proof.acceptance_length:g}"
            )
    for number, fit in enumerate(known.fits, start=1):
        for name in ("errors", "left_out_errors"):
            if (least := min(getattr(fit, name), default=0.0)) <= -1:
                problem = f"are law over cell minus 1, so must be above -1, got {least:g}"
                raise InputError(f"fits {number}: {name}", problem)
    return known


# ---------------------------------------------------------------- laws and cells


def _require_time(known: Calibration, part: str, longest_s: float) -> None:
    """That the law of a part takes a time that a machine can take, or none at all beside the target's."""
    least_s = float(known.law_s(part, 1, _SMALLEST[part], 0))
    cached_s = float(known.law_s(part, 1, _SMALLEST[part], 1))
    where = f"laws.{part}"
    if least_s < LEAST_S and (least_s or part == "target"):
        problem = f"takes {least_s:.3g} s for one token, and nothing is done in less than 1 ns"
        raise InputError(where, f"{problem}; check the unit, or calibrate again")
    if cached_s > MOST_UNTIMED * longest_s:
        told = format_quantity(longest_s, "s")
        problem = f"takes {format_quantity(cached_s, 's')} for one token, and the longest pass timed {told}"
        raise InputError(where, f"{problem}; check the unit, or calibrate again")


def _require_near(known: Calibration, part: str) -> None:
    """That no cell is off its law by orders of magnitude."""
    cells, logs = missed_by_law(known, part)
    if not cells:
        return
    worst = int(np.argmax(np.abs(logs)))
    if abs(logs[worst]) > math.log(MOST_RATIO):
        law_s = cells[worst].seconds * math.exp(-logs[worst])
        raise InputError(f"cells.{part} {worst + 1}", _far_text(cells[worst], law_s))


def missed_by_law(known: Calibration, part: str) -> tuple[list[Cell], FloatArray]:
    """The cells of a part, and log(measured/law) of each; infinite where the law takes no time."""
    cells = [cell for cell in known.cells if cell.place.part == part]
    if not cells:
        return cells, np.zeros(0)
    sizes = np.array([(cell.place.batch, cell.place.width, cell.place.context) for cell in cells])
    law_s = np.broadcast_to(known.law_s(part, *sizes.T), len(cells))
    law_log = np.log(law_s, out=np.full(len(cells), -np.inf), where=law_s > 0)
    return cells, np.log([cell.seconds for cell in cells]) - law_log


def _far_text(cell: Cell, law_s: float) -> str:
    place = cell.place
    took = f"[{place.batch}, {place.width}, {place.context}] took {format_quantity(cell.seconds, 's')}"
    return (
        f"{took}, and its law says {format_quantity(law_s, 's')}: more than {MOST_RATIO:g} times "
        "apart, they are not of one machine; check units, or calibrate again"
    )


# ---------------------------------------------------------------- acceptance


def _require_row(row: AcceptanceRow, where: str) -> None:
    problem = next(_row_problems(row), None)
    if problem is not None:
        name, text = problem
        raise InputError(f"{where}: {name}", text)


def _row_problems(row: AcceptanceRow) -> Iterator[tuple[str, str]]:
    """What of a row cannot be, with the name of the field."""
    known = {_squeezed(name): is_lossless for name, is_lossless in RULES.items()}
    rule = _squeezed(row.rule)
    if rule not in known:
        near = get_close_matches(row.rule, RULES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it is one of {', '.join(RULES)}"
        yield "rule", f"{shown(row.rule)} is no acceptance rule; {hint}"
    elif known[rule] not in (None, row.lossless):
        yield "lossless", f"must be {str(known[rule]).lower()} for {row.rule}"
    if row.alpha is None:
        return
    low, high = row.alpha_low, row.alpha_high
    if not (0 if low is None else low) <= row.alpha <= (1 if high is None else high):
        ends = " to ".join("?" if end is None else f"{end:g}" for end in (low, high))
        yield "alpha", f"must lie in its own interval ({ends}), got {row.alpha:g}"
    if row.survival and row.drafts:
        first, noise = row.survival[0], 1.5 / math.sqrt(row.drafts)  # three standard errors at a half
        if abs(row.alpha - first) > MOST_GAP + noise:
            counted = f"{first:.3g} of {row.drafts:,} first tokens were accepted"
            yield "alpha", f"{row.alpha:g} contradicts the counts, where {counted}; keep those of one run"


def _squeezed(name: str) -> str:
    """A rule's name without what people write in different ways."""
    return re.sub(r"[-_ ]", "", name.lower())
