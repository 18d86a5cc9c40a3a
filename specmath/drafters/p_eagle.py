"""P-EAGLE: an EAGLE-3 head, a few layers deep, that fills k mask tokens in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specmath.checks import FloatArray
from specmath.drafters.base import DraftWork, Head, all_at_once
from specmath.drafters.parallel_model import ParallelModel


@dataclass(frozen=True, slots=True)
class PEagle(Head):
    """P-EAGLE: one pass over k tokens."""

    method: ClassVar[str] = "p-eagle"
    fitting_law: ClassVar[str] = ParallelModel.fitting_law

    def work(self, depth: FloatArray, nodes: FloatArray) -> DraftWork:
        return all_at_once(depth, depth)
