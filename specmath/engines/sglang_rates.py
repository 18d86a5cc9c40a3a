"""What SGLang calls its acceptance rate: three things, by version.

| versions | rate |
| --- | --- |
| 0.5.4, 0.5.5 | length/(steps + 1) |
| 0.5.6 to 0.5.10 | length/draft tokens |
| from 0.5.11 | (length − 1)/(draft tokens − 1) |

The length has the bonus token in it, and the draft tokens the root, so that a chain of k has k + 1 of them:
the first two are one thing for a chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from specmath.engines.values import dotted
from specmath.results import Advice

BONUS_LEFT_OUT: Final = (0, 5, 11)
MOST_DRAFT_TOKENS: Final = 512


class Rate(Enum):
    """A meaning of the word, as a formula."""

    WITH_BONUS = "length/(k + 1), the bonus token in both"
    DRAFTS_ONLY = "accepted/drafted, which is (length − 1)/k"
    UNKNOWN = "length/(k + 1) up to 0.5.10, accepted/drafted from 0.5.11"


@dataclass(frozen=True, slots=True)
class Reading:
    """A rate understood.

    Attributes:
        meaning: What it is.
        draft_tokens: Tokens verified per step, the root included, as length and rate imply them; None where
            they imply no whole number.
    """

    meaning: Rate
    draft_tokens: int | None = None


def meanings_of(version: str | None) -> tuple[Rate, ...]:
    """What the rate can be in a version.

    >>> meanings_of("0.5.9"), meanings_of("0.5.23")
    ((<Rate.WITH_BONUS: 'length/(k + 1), the bonus token in both'>,), \
(<Rate.DRAFTS_ONLY: 'accepted/drafted, which is (length − 1)/k'>,))
    """
    numbers = dotted(version)
    if not numbers:
        return (Rate.WITH_BONUS, Rate.DRAFTS_ONLY)
    return (Rate.DRAFTS_ONLY,) if numbers >= BONUS_LEFT_OUT else (Rate.WITH_BONUS,)


def implied_draft_tokens(meaning: Rate, length: float, rate: float) -> float:
    """Draft tokens, the root included, under a meaning of the rate; 0 where there is nothing to divide by.

    >>> implied_draft_tokens(Rate.WITH_BONUS, 2.56, 0.64), implied_draft_tokens(Rate.DRAFTS_ONLY, 2.56, 0.52)
    (4.0, 4.0)
    """
    if not rate > 0:
        return 0.0
    return length / rate if meaning is Rate.WITH_BONUS else (length - 1) / rate + 1


def reading_of(length: float, rate: float, *, allowed: tuple[Rate, ...]) -> Reading:
    """The rate as one of the allowed meanings: the only one, or the only one that implies a whole number.

    >>> reading_of(2.56, 0.64, allowed=(Rate.WITH_BONUS, Rate.DRAFTS_ONLY)).meaning.name
    'WITH_BONUS'
    >>> reading_of(2, 0.5, allowed=(Rate.WITH_BONUS, Rate.DRAFTS_ONLY)).meaning.name  # 4 or 3 draft tokens
    'UNKNOWN'
    """
    whole = {meaning: _whole(implied_draft_tokens(meaning, length, rate)) for meaning in allowed}
    fitting = [meaning for meaning, tokens in whole.items() if tokens is not None]
    if len(allowed) == 1:
        return Reading(allowed[0], whole[allowed[0]])
    return Reading(fitting[0], whole[fitting[0]]) if len(fitting) == 1 else Reading(Rate.UNKNOWN)


def _whole(tokens: float) -> int | None:
    """The count that a quotient of rounded figures stands for; a thousandth off is chance no more."""
    if not 1.5 < tokens < MOST_DRAFT_TOKENS or abs(tokens - round(tokens)) > 2e-3:
        return None
    return round(tokens)


def tree_note(verified: int, depth: int) -> Advice:
    """That drafts are trees, so that a rate over nodes is no rate over positions."""
    return Advice(
        code="tree",
        text=f"the draft is a tree of {verified} nodes and {depth} levels: its rate is a share of nodes",
        remedy="use the acceptance length, and k = the number of levels",
    )


def chain_note(draft_tokens: int) -> Advice:
    """That k was taken from the draft tokens, as is right for a chain."""
    return Advice(
        code="chain-presumed",
        text=f"{draft_tokens} draft tokens, the root included, are read as a chain of {draft_tokens - 1}",
        remedy="with --speculative-eagle-topk above 1 give the number of steps as --k",
    )
