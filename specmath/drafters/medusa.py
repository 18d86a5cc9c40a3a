"""Medusa: heads on the last hidden state, one per draft position, all in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from specmath.checks import FloatArray
from specmath.drafters.base import ONE_TOKEN, DraftWork, Head, all_at_once
from specmath.drafters.derivation import dense, head_shape
from specmath.drafters.parallel_model import ParallelModel
from specmath.model import DraftHead, ModelShape

HEADS: Final = 5
"""Heads of the published drafts."""


@dataclass(frozen=True, slots=True)
class Medusa(Head):
    """Medusa: one pass of all heads over one hidden state of each sequence, whatever the tree they fill.

    Source: Medusa (arXiv:2401.10774).
    """

    method: ClassVar[str] = "medusa"
    fitting_law: ClassVar[str] = ParallelModel.fitting_law

    def work(self, depth: FloatArray, nodes: FloatArray) -> DraftWork:
        return all_at_once(depth, ONE_TOKEN)


def derived_medusa(target: ModelShape) -> ModelShape:
    """The heads that Medusa would have: five of a residual block h·h and an output map of the vocabulary."""
    return head_shape(
        target,
        None,
        DraftHead(kind="medusa", one_pass=True, draft_vocab=target.vocab, max_tokens=HEADS),
        (
            dense(target, "mlp", HEADS * target.hidden**2),
            dense(target, "head", HEADS * target.vocab * target.hidden),
        ),
        f"Medusa heads derived from the target: {HEADS} of h·h and an output map each",
    )
