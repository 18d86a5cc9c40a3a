"""How many tokens does a step yield? Acceptance length, ceiling and the whole law of accepted tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from specmath.acceptance import ConstantAcceptance
from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import FloatArray, IntArray, require_range
from specmath.laws import AcceptanceLaw
from specmath.results import CHUNK_ROWS, Cell, Columns, Result, brief, cells

CHUNK_NUMBERS = 500_000
"""Numbers evaluated at a time; a row has three vectors of about k of them."""


def tokens_per_step(
    acceptance: AcceptanceLaw | Sequence[AcceptanceLaw], k: npt.ArrayLike, *, context: npt.ArrayLike = 0
) -> TokenTable:
    """What a speculative step yields under every combination of acceptance law, k and context.

    Args:
        acceptance: A law or several; `ConstantAcceptance` over an array of α is one law per α.
        k: Draft tokens per step, one or many, each a whole number of at least 0.
        context: Tokens in the KV cache, one or many; only laws given by context depend on it.

    Raises:
        InputError: for a value out of range, or a k beyond what a law answers for.

    >>> from specmath.acceptance import ConstantAcceptance
    >>> row = next(tokens_per_step(ConstantAcceptance(0.5), 2).rows())
    >>> row["acceptance_length"], row["ceiling"], row["accepted_pmf"]
    (1.75, 2.0, [0.5, 0.25, 0.25])
    """
    axis = AcceptanceAxis.of(acceptance)
    return TokenTable(
        acceptance=axis,
        k=axis.draft_lengths(k),
        context=np.atleast_1d(require_range("context", context, 0)).ravel(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTable(Result):
    """Yield of a step over the grid laws × k × context.

    `ceiling` is the limit of E for k → ∞, None where it is unbounded. `accepted_pmf` lists the probability
    of 0, 1, … k accepted draft tokens, `survival` that of at least 1, 2, … k; the quantiles count accepted
    draft tokens, without the bonus token. `kept_share` is E over the tokens verified, E/(k+1) for a chain.
    """

    schema: ClassVar[str] = "specmath.tokens/1"
    keys: ClassVar[tuple[str, ...]] = (
        "alpha",
        "law",
        "k",
        "context",
        "acceptance_length",
        "ceiling",
        "accepted_over_drafted",
        "kept_share",
        "variance",
        "standard_deviation",
        "accepted_p10",
        "accepted_p50",
        "accepted_p90",
        "survival",
        "conditional",
        "accepted_pmf",
    )

    acceptance: AcceptanceAxis
    k: IntArray
    context: FloatArray

    @property
    def shape(self) -> tuple[int, int, int]:
        """(laws, k, contexts), the order in which rows run through the grid."""
        return (len(self.acceptance), self.k.size, self.context.size)

    def __len__(self) -> int:
        return math.prod(self.shape)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return self.acceptance.inputs | {"k": brief(self.k), "context": brief(self.context)}

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            *self.acceptance.assumptions,
            "E counts the bonus token that the target adds to every step; accepted/drafted is not α",
        )

    @property
    def verdict(self) -> str:
        if len(self) > 1:
            return ""
        length = next(self.rows())["acceptance_length"]
        alpha = self.acceptance.alpha[0]
        told = f"α = {alpha:.4g}: " if np.isfinite(alpha) else ""
        return f"{told}{length:.4g} tokens per step, of {self.k[0] + 1} at best with k = {self.k[0]}"

    @property
    def derivation(self) -> tuple[str, ...]:
        return (self.acceptance.law(0).at(float(self.context[0])).derivation(int(self.k[0])),)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        rows = max(1, min(size, CHUNK_NUMBERS // (3 * int(self.k.max()) + len(self.keys))))
        for start in range(0, len(self), rows):
            yield self._columns(np.arange(start, min(start + rows, len(self))))

    def _columns(self, rows: IntArray) -> Columns:
        """The rows at these places of the grid; those that share law and k are evaluated together."""
        law, k, context = np.unravel_index(rows, self.shape)
        kind = np.where(np.isfinite(self.acceptance.alpha[law]), -1, law)  # all constant laws are one, over α
        order = np.lexsort((k, kind))
        edges = np.flatnonzero(np.diff(k[order]) | np.diff(kind[order])) + 1
        gathered: dict[str, list[Cell]] = {key: [] for key in self.keys}
        for group in np.split(order, edges):
            yields = self._yields(law[group], int(self.k[k[group[0]]]), self.context[context[group]])
            for key, values in yields.items():
                gathered[key].extend(cells(values))
        back = np.argsort(order).tolist()
        return {key: [values[place] for place in back] for key, values in gathered.items()}

    def _yields(self, positions: IntArray, k: int, context: FloatArray) -> dict[str, npt.NDArray[Any]]:
        """What a step of k drafts yields under laws of one kind, each at its context."""
        alpha = self.acceptance.alpha[positions]
        law = self.acceptance.law(int(positions[0])).at(context)
        if isinstance(law, ConstantAcceptance):
            law = ConstantAcceptance(alpha)
        length, drafted = np.asarray(law.acceptance_length(k)), np.asarray(law.drafted(k))
        variance = law.accepted_variance(k)
        with np.errstate(divide="ignore", invalid="ignore"):
            share = (length - 1) / drafted  # does not exist where nothing is drafted
        numbers = {
            "alpha": alpha,
            "law": self.acceptance.labels[positions],
            "k": k,
            "context": context,
            "acceptance_length": length,
            "ceiling": law.ceiling(),
            "accepted_over_drafted": share,
            "kept_share": length / (1 + drafted),
            "variance": variance,
            "standard_deviation": np.sqrt(variance),
            "accepted_p10": law.quantile(0.1, k),
            "accepted_p50": law.quantile(0.5, k),
            "accepted_p90": law.quantile(0.9, k),
        }
        vectors = {
            "survival": law.survival(k),
            "conditional": law.conditional(k),
            "accepted_pmf": law.accepted_pmf(k),
        }
        n = positions.size
        return {key: np.broadcast_to(value, n) for key, value in numbers.items()} | {
            key: np.broadcast_to(vector, (n, vector.shape[-1])) for key, vector in vectors.items()
        }
