"""n-gram and suffix lookup: the draft is copied from earlier text, where it has a match."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from specmath.checks import FloatArray, require_range
from specmath.drafters.base import DraftWork, one_by_one
from specmath.execution import ONE_DEVICE, HostTimes, Layout
from specmath.model import ModelShape
from specmath.roofline import ForwardPass


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup draft: no model, no memory, the host's time per proposed token, and steps without a match.

    Alone on its rank, a step without a match is a plain step. In a batch, sequences with and without a match
    share each pass, which carries 1 + h·k tokens of a sequence on average.

    Attributes:
        match_rate: Share h of the steps of a sequence in which a match is found, in [0, 1].
        method: "ngram", or "suffix" where a suffix tree is searched; the cost is the same.

    Source: prompt lookup (Saxena 2023), REST (arXiv:2311.08252), SuffixDecoding (arXiv:2411.04975).

    >>> Lookup(0.5).name
    'ngram lookup'
    """

    match_rate: float = 1.0
    method: str = "ngram"

    model: ClassVar[ModelShape | None] = None
    resident: ClassVar[ModelShape | None] = None
    max_tokens: ClassVar[int | None] = None
    fitting_law: ClassVar[str] = "a match rate, and an acceptance that holds once matched"

    def __post_init__(self) -> None:
        object.__setattr__(self, "match_rate", float(require_range("match_rate", self.match_rate, 0, 1)))

    @property
    def name(self) -> str:
        return f"{self.method} lookup"

    @property
    def assumptions(self) -> tuple[str, ...]:
        if self.match_rate in (0, 1):
            return ()
        return (
            "a shared pass is timed at its mean width 1 + h·k, not over which sequences match: up to k 8 "
            "within 1.3 % for dense models, and too long by up to 9 % for 8 of 128 experts, 24 % for 2 of 8",
        )

    def layout_under(self, target: Layout) -> Layout:
        return ONE_DEVICE

    def require_target(self, target: ModelShape) -> None:
        """Any target will do."""

    def work(self, depth: FloatArray, nodes: FloatArray) -> DraftWork:
        return one_by_one(depth, nodes)

    def host_s(self, host: HostTimes, batch: FloatArray, tokens: FloatArray) -> FloatArray:
        return np.asarray(host.lookup_token_s * self.match_rate * batch * tokens)

    def verify_s(
        self, target: ForwardPass, batch: FloatArray, width: FloatArray, context: FloatArray
    ) -> FloatArray:
        h = self.match_rate
        matched = np.asarray(target.time(batch, width, context))
        if h == 1:
            return matched
        alone = h * matched + (1 - h) * np.asarray(target.time(batch, 1, context))
        shared = target.time(batch, 1 + h * (width - 1), context)
        return np.where(target.rank_batch(batch) == 1, alone, shared)
