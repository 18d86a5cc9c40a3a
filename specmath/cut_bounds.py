"""What counts by position still tell where some drafts were cut short and only their total is known.

Position 1 is never cut. Which later trials were lost is open, so that the trials of a position lie between
bounds, and one constant probability is refused only where no trials within them would fit it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from specmath.checks import require_count, require_range
from specmath.estimation import chi_square_p_value, wilson_interval

_STEPS = 2001
"""Values of α tried between the lowest and the highest rate possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBounds:
    """Trials by position between bounds.

    Attributes:
        judged_low, judged_high: Fewest and most drafts that can have proposed a token at position 1, 2, …
            with all before it accepted.
        accepted: Those of them whose token there was accepted.
        missing: Draft tokens that full drafts would have held beyond those drafted.
    """

    judged_low: tuple[float, ...]
    judged_high: tuple[float, ...]
    accepted: tuple[float, ...]
    missing: float

    @property
    def conditional(self) -> tuple[tuple[float, float], ...]:
        """Lowest and highest acceptance of each position given that all before it were, errors aside."""
        return tuple(
            (accepted / high if high else math.nan, accepted / low if low else math.nan)
            for low, high, accepted in zip(self.judged_low, self.judged_high, self.accepted, strict=True)
        )

    def conditional_intervals(self) -> tuple[tuple[float, float], ...]:
        """Wilson's 95 % intervals at both bounds taken together; NaN where nothing need have been judged."""
        rows = zip(self.judged_low, self.judged_high, self.accepted, strict=True)
        return tuple(
            (wilson_interval(accepted, high)[0], wilson_interval(accepted, low)[1])
            if low > 0
            else (math.nan, math.nan)
            for low, high, accepted in rows
        )

    @property
    def chi_square(self) -> float:
        """The least Pearson statistic over all α and all trials within the bounds; NaN at one position.

        For one α the trials that fit best are accepted/α, or the bound next to it.
        """
        if self.degrees_of_freedom < 1:
            return math.nan
        ends = [end for pair in self.conditional for end in pair if not math.isnan(end)]
        alpha = np.clip(np.linspace(min(ends), max(ends), _STEPS), 1e-9, 1.0 - 1e-9)
        total = np.zeros_like(alpha)
        for low, high, accepted in zip(self.judged_low, self.judged_high, self.accepted, strict=True):
            judged = np.clip(accepted / alpha, low, high)
            off = (accepted - alpha * judged) ** 2
            total += np.divide(off, judged, out=np.zeros_like(off), where=judged > 0)
        return float(np.min(total / (alpha * (1.0 - alpha))))

    @property
    def degrees_of_freedom(self) -> int:
        """Positions that can have been judged, less one."""
        return sum(judged > 0 for judged in self.judged_high) - 1

    @property
    def p_value(self) -> float:
        """The highest probability of such counts if alpha were constant; NaN likewise."""
        found = self.chi_square
        return math.nan if math.isnan(found) else chi_square_p_value(found, self.degrees_of_freedom)


def bounds_of_cut_drafts(drafts: float, accepted_at: Sequence[float], drafted: float, k: int) -> CutBounds:
    """Bounds of the trials by position where drafts of less than k tokens occur.

    A draft cut before position i lacks k + 1 − i tokens at least, so that of the M = kD − drafted missing
    ones at most M/(k + 1 − i) drafts miss position i: n_(i−1) − M/(k + 1 − i) ≤ judged_i ≤ n_(i−1), and
    never below n_i.

    Args:
        drafts: Drafts D, above 0, each with one token at least.
        accepted_at: Drafts that accepted at least 1, 2, … tokens, n_i; no more than k of them.
        drafted: Draft tokens in all.
        k: Tokens of a full draft.

    >>> bounds_of_cut_drafts(100, [50, 25], 190, 2).judged_low  # 10 drafts held a single token
    (100.0, 40.0)
    """
    total = float(require_range("drafts", drafts, above=0))
    length = int(require_count("k", k, 1))
    reached = np.minimum.accumulate([total, *require_range("accepted_at", list(accepted_at), 0).tolist()])
    missing = max(length * total - float(drafted), 0.0)
    high = tuple(reached[:-1].tolist())
    low = [total]
    for place, (before, after) in enumerate(pairwise(reached[1:].tolist()), 2):
        low.append(max(after, before - missing / max(length + 1 - place, 1)))
    return CutBounds(
        judged_low=tuple(low), judged_high=high, accepted=tuple(reached[1:].tolist()), missing=missing
    )
