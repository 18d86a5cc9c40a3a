"""PARD: a separate model that was taught to fill k mask tokens in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specmath.checks import FloatArray
from specmath.drafters.base import DraftWork, all_at_once
from specmath.drafters.draft_model import DraftModel


@dataclass(frozen=True, slots=True)
class ParallelModel(DraftModel):
    """PARD: one pass of a draft model over the last token and k − 1 masks; the model counts as it is.

    Source: PARD (arXiv:2504.18583).
    """

    method: ClassVar[str] = "pard"
    fitting_law: ClassVar[str] = "rates by position: later tokens are drafted without the earlier ones"

    def work(self, depth: FloatArray, nodes: FloatArray) -> DraftWork:
        return all_at_once(depth, depth)
