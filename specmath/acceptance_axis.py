"""Many acceptance laws as one axis of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specmath.acceptance import ConstantAcceptance
from specmath.checks import MAX_K, FloatArray, IntArray, require_count
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw, label_text
from specmath.results import Cell, brief


@dataclass(frozen=True, slots=True)
class AcceptanceAxis:
    """The acceptance laws of a grid, one after the other.

    Attributes:
        laws: One law per position; or a single constant law that holds the α of all positions.
        alpha: α by position on the axis; NaN where a law is not one α.
        labels: What the `law` column says, by position.
    """

    laws: tuple[AcceptanceLaw, ...]
    alpha: FloatArray
    labels: npt.NDArray[np.object_]

    @classmethod
    def of(cls, acceptance: AcceptanceLaw | Sequence[AcceptanceLaw]) -> AcceptanceAxis:
        """The axis of one law or several; a constant law over an array of α counts once per α."""
        laws = (acceptance,) if isinstance(acceptance, AcceptanceLaw) else acceptance
        if (
            not isinstance(laws, Sequence)
            or not laws
            or not all(isinstance(law, AcceptanceLaw) for law in laws)
        ):
            raise InputError(
                "acceptance", "must be a law, such as ConstantAcceptance(0.7), or a list of laws"
            )
        laws = tuple(laws)
        if len(laws) > 1:
            laws = tuple(single for law in laws for single in _singles(law))
        alpha = np.concatenate([_alphas(law) for law in laws])
        labels = ["constant" if isinstance(law, ConstantAcceptance) else law.label for law in laws]
        return cls(laws, alpha, np.array(labels * (alpha.size if len(laws) == 1 else 1), dtype=object))

    def __len__(self) -> int:
        return int(self.alpha.size)

    @property
    def max_k(self) -> int:
        """The longest draft that every law of the axis answers for."""
        return min((law.max_k for law in self.laws if law.max_k is not None), default=MAX_K)

    def require_match_rate(self, match_rate: float) -> None:
        """Refuse laws of another drafter than the step costs are of: lookups alone have steps without match.

        Args:
            match_rate: Share of steps with a match that the step costs are for; 1 where a model drafts.
        """
        for law in self.laws:
            own = np.asarray(getattr(law, "match_rate", 1.0))
            if (own != match_rate).any():
                given = f"is {label_text(own)} in the acceptance ({law.label})"
                raise InputError("match_rate", f"{given} and {match_rate:g} in the step costs; make them one")

    def draft_lengths(self, k: npt.ArrayLike, at_least: int = 0) -> IntArray:
        """`k` as an axis, after every law has said that it answers for the longest of them."""
        lengths = np.atleast_1d(require_count("k", k, at_least, MAX_K)).ravel()
        for law in self.laws:
            law.width(int(lengths.max()))
        return lengths

    def law(self, position: int) -> AcceptanceLaw:
        """The law at one position of the axis, of scalar parameters."""
        if isinstance(self.laws[0], ConstantAcceptance) and len(self.laws) == 1:
            return ConstantAcceptance(float(self.alpha[position]))
        return self.laws[position]

    @property
    def inputs(self) -> dict[str, Cell]:
        """The axis as the `inputs` of a result tell it."""
        return {
            "law": brief(np.array(sorted(set(self.labels.tolist())), dtype=object)),
            "alpha": brief(self.alpha[np.isfinite(self.alpha)]),
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the laws assume, each sentence once."""
        return tuple(dict.fromkeys(law.assumption for law in self.laws))

    def lengths(self, k: IntArray, context: FloatArray, positions: slice = slice(None)) -> FloatArray:
        """Acceptance lengths of the laws at `positions` of the axis, shape (laws, k, contexts)."""
        if len(self.laws) == 1:  # one constant law over many α: slice the α, not the result
            return _lengths(self.laws[0], k, context, positions)
        return np.concatenate([_lengths(law, k, context, slice(None)) for law in self.laws[positions]])

    def widths(self, k: IntArray, positions: slice = slice(None)) -> IntArray:
        """Tokens of a sequence in a verify pass, shape (laws, k); (1, k) where every law drafts a chain."""
        return _shared([np.asarray(law.width(k)) for law in self._at(positions)])

    def draft_passes(self, k: IntArray, positions: slice = slice(None)) -> IntArray:
        """Sequential draft passes of a step, shape (laws, k); (1, k) where the laws agree."""
        return _shared([np.asarray(law.draft_passes(k)) for law in self._at(positions)])

    def _at(self, positions: slice) -> Sequence[AcceptanceLaw]:
        return self.laws if len(self.laws) == 1 else self.laws[positions]


def _shared(rows: Sequence[IntArray]) -> IntArray:
    """Equal rows as one."""
    stacked = np.array(rows)
    return stacked[:1] if (stacked == stacked[0]).all() else stacked


def _alphas(law: AcceptanceLaw) -> FloatArray:
    alpha = law.alpha if isinstance(law, ConstantAcceptance) else np.nan
    return np.atleast_1d(np.asarray(alpha, dtype=np.float64)).ravel()


def _singles(law: AcceptanceLaw) -> Sequence[AcceptanceLaw]:
    if not isinstance(law, ConstantAcceptance):
        return (law,)
    return [ConstantAcceptance(alpha) for alpha in _alphas(law).tolist()]


def _lengths(law: AcceptanceLaw, k: IntArray, context: FloatArray, positions: slice) -> FloatArray:
    shape = (k.size, context.size)
    if isinstance(law, ConstantAcceptance):
        many = ConstantAcceptance(_alphas(law)[positions].reshape(-1, 1, 1))
        lengths = np.asarray(many.acceptance_length(k[:, None]))
    else:
        lengths = np.asarray(law.at(context).acceptance_length(k[:, None]))[None]
    return np.broadcast_to(lengths, (len(lengths), *shape))
