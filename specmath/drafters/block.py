"""Block drafters (DFlash, DSpark, Domino): a few layers over fused features fill a block in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from specmath.checks import FloatArray
from specmath.drafters.base import DraftWork, Head, all_at_once
from specmath.drafters.derivation import DecoderLayer, borrowed_head, dense, head_shape
from specmath.drafters.parallel_model import ParallelModel
from specmath.model import DraftHead, ModelShape

LAYERS: Final = 5
"""Layers and fused hidden states of most published block drafters."""
BLOCK: Final = 16
"""Tokens of a block of the published DFlash drafts."""


@dataclass(frozen=True, slots=True)
class DFlash(Head):
    """DFlash: one pass over the last token and k masks, up to the block it was trained on.

    Source: DFlash (arXiv:2602.06036).
    """

    method: ClassVar[str] = "dflash"
    fitting_law: ClassVar[str] = ParallelModel.fitting_law

    def work(self, depth: FloatArray, nodes: FloatArray) -> DraftWork:
        return all_at_once(depth, depth + 1)


@dataclass(frozen=True, slots=True)
class DSpark(DFlash):
    """DSpark: DFlash with a low-rank bigram correction of the logits, drawn in the same pass."""

    method: ClassVar[str] = "dspark"


@dataclass(frozen=True, slots=True)
class Domino(DFlash):
    """Domino: DFlash with a memory of earlier tokens and a two-step correction of the logits."""

    method: ClassVar[str] = "domino"


def derived_dflash(target: ModelShape) -> ModelShape:
    """The drafter that DFlash would have: five dense layers + fusion 5h·h + the target's head."""
    layer = DecoderLayer.of(target)
    return head_shape(
        target,
        layer,
        DraftHead(
            kind="dflash",
            one_pass=True,
            draft_vocab=target.vocab,
            max_tokens=BLOCK,
            target_features=LAYERS,
        ),
        (
            dense(target, "fusion", LAYERS * target.hidden**2),
            *layer.weights(target, n_layers=LAYERS),
            borrowed_head(target),
        ),
        f"DFlash drafter derived from the target: {LAYERS} decoder layers, a fusion of {LAYERS}h·h, "
        "the target's head",
        n_layers=LAYERS,
    )
