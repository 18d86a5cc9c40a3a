"""What a question itself leaves out or stretches, whatever the source of its step times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from specmath.acceptance import ConstantAcceptance
from specmath.acceptance_axis import AcceptanceAxis
from specmath.results import Advice
from specmath.sources import StepTimeSource

FADING_METHODS: Final = ("mtp", "eagle", "eagle3")
"""Heads that draft from their own output, one token after the other."""
FADES_BEYOND: Final = 3
"""Draft length from which their fading acceptance shows."""


def question_advice(
    acceptance: AcceptanceAxis, source: StepTimeSource, *, longest_k: int, context: npt.ArrayLike
) -> tuple[Advice, ...]:
    """What to know about the acceptance and the context that were asked for.

    Args:
        acceptance: The laws.
        source: The leading source of step times; its inputs name the method and the cache.
        longest_k: The longest draft that the answer is about.
        context: Tokens in the cache.
    """
    return tuple(_found(acceptance, source, longest_k, np.asarray(context)))


def _found(
    acceptance: AcceptanceAxis, source: StepTimeSource, longest_k: int, context: npt.NDArray[np.float64]
) -> Iterator[Advice]:
    given = source.inputs
    constant = any(isinstance(law, ConstantAcceptance) for law in acceptance.laws)
    if constant and given.get("method") in FADING_METHODS and longest_k > FADES_BEYOND:
        yield Advice(
            code="constant-alpha",
            text=f"one α for k up to {longest_k}: a head that drafts from its own output loses acceptance "
            "with depth (.92, .85, .77, .74, .71 for the MTP of DeepSeek-R1 at k 1 to 5)",
            remedy="give the rates by position as --rates, or stay at the k that was measured",
        )
    if given.get("kv_bytes_per_token") and float(context.max()) == 0:
        yield Advice(
            code="no-context",
            text="context 0: no cache is read and none fills the memory",
            remedy="give the tokens of a sequence as --context",
        )
