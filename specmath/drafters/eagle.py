"""EAGLE and EAGLE-2: one decoder layer over the last hidden state, and the target's whole head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specmath.drafters.base import Head
from specmath.drafters.derivation import DecoderLayer, borrowed_head, dense, head_shape
from specmath.model import DraftHead, ModelShape

_FITTING = "rates by position: each pass builds on features that were drafted"


@dataclass(frozen=True, slots=True)
class Eagle(Head):
    """EAGLE: k passes of fusion, layer and the target's head, which dominates; trees drafted level by level.

    Source: EAGLE (arXiv:2401.15077), EAGLE-2 (arXiv:2406.16858).
    """

    method: ClassVar[str] = "eagle"
    fitting_law: ClassVar[str] = _FITTING


def derived_eagle(target: ModelShape) -> ModelShape:
    """The head that EAGLE would have for this target: layer + 2h·h + the target's head."""
    layer = DecoderLayer.of(target)
    return head_shape(
        target,
        layer,
        DraftHead(kind="eagle", one_pass=False, draft_vocab=target.vocab),
        (
            dense(target, "fusion", 2 * target.hidden**2),
            *layer.weights(target),
            borrowed_head(target),
        ),
        "EAGLE head derived from the target: one decoder layer, a fusion of 2h·h, the target's head",
    )
