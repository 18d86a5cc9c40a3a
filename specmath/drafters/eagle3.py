"""EAGLE-3: three fused hidden states, one wider layer, and a head over a reduced vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from specmath.drafters.base import Head
from specmath.drafters.derivation import DecoderLayer, dense, head_shape
from specmath.drafters.eagle import Eagle
from specmath.model import DraftHead, ModelShape

REDUCED_VOCAB: Final = 32_000
"""Rows of the head of most published EAGLE-3 drafts."""


@dataclass(frozen=True, slots=True)
class Eagle3(Head):
    """EAGLE-3: k passes of a layer and a reduced head; the fusion of 3h·h is counted in each.

    Source: EAGLE-3 (arXiv:2503.01840).
    """

    method: ClassVar[str] = "eagle3"
    fitting_law: ClassVar[str] = Eagle.fitting_law


def derived_eagle3(target: ModelShape) -> ModelShape:
    """The head that EAGLE-3 would have: a layer that reads 2h + fusion 3h·h + a head of 32,000 rows."""
    layer, rows = DecoderLayer.of(target), min(REDUCED_VOCAB, target.vocab)
    return head_shape(
        target,
        layer,
        DraftHead(kind="eagle3", one_pass=False, draft_vocab=rows, target_features=3),
        (
            dense(target, "fusion", 3 * target.hidden**2),
            *layer.weights(target, attention_in=2 * target.hidden),
            dense(target, "head", rows * target.hidden),
        ),
        f"EAGLE-3 head derived from the target: one decoder layer that reads 2h, a fusion of 3h·h, a head of "
        f"{rows:,} rows",
    )
