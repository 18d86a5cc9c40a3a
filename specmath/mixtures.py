"""Laws of acceptance made of other laws: steps that differ in kind, and laws measured by context.

Of a mixture with shares w, survival is Σ w·p_i and the acceptance length Σ w·E: both are averages over steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from specmath.acceptance import ConstantAcceptance
from specmath.checks import Counts, FloatArray, Numbers, like_inputs, require_range
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw, label_text, like_counts
from specmath.units import exact_text


class _Mixture(AcceptanceLaw):
    """A law whose steps follow one of several laws, each in a share of the steps."""

    __slots__ = ()

    @property
    @abstractmethod
    def _laws(self) -> Sequence[AcceptanceLaw]: ...

    @property
    @abstractmethod
    def _shares(self) -> Sequence[FloatArray]:
        """Share of the steps that follow each law; the shares sum to 1."""

    @property
    def max_k(self) -> int | None:
        """Largest k that every one of the laws can answer for."""
        return min((law.max_k for law in self._laws if law.max_k is not None), default=None)

    @property
    def _limit_reason(self) -> str:
        return next(law._limit_reason for law in self._laws if law.max_k == self.max_k)

    def ceiling(self) -> Numbers:
        """Average of the laws' ceilings; a law without steps adds nothing, even where its own is infinite."""
        bounds = (np.asarray(law.ceiling()) for law in self._laws)
        pairs = zip(self._shares, bounds, strict=True)
        return like_inputs(_total(share * np.where(share > 0, bound, 0.0) for share, bound in pairs))

    def acceptance_length(self, k: npt.ArrayLike) -> Numbers:
        """Average of the laws' acceptance lengths."""
        counts = self._require_k(k)
        lengths = (np.asarray(law.acceptance_length(counts)) for law in self._laws)
        pairs = zip(self._shares, lengths, strict=True)
        return like_inputs(_total(share * length for share, length in pairs))

    def width(self, k: npt.ArrayLike) -> Counts:
        """The widest verify pass of the laws: the engine reserves it for every step."""
        counts = self._require_k(k)
        return like_counts(np.max([np.asarray(law.width(counts)) for law in self._laws], axis=0))

    def draft_passes(self, k: npt.ArrayLike) -> Counts:
        """The most draft passes that one of the laws makes."""
        counts = self._require_k(k)
        return like_counts(np.max([np.asarray(law.draft_passes(counts)) for law in self._laws], axis=0))

    def _reach(self, k: int) -> FloatArray:
        return self._average([law._reach(k) for law in self._laws])

    def _stops(self, k: int) -> FloatArray:
        return self._average([law._stops(k) for law in self._laws])

    def _average(self, tables: Sequence[FloatArray]) -> FloatArray:
        pairs = zip(self._shares, tables, strict=True)
        return _total(share[..., None] * table for share, table in pairs)


@dataclass(frozen=True, slots=True)
class LookupAcceptance(_Mixture):
    """Lookup drafts (n-gram, suffix): a step finds a match or drafts nothing.

    With probability h there is a match and the step follows the law `matched`; hence p_i = h·p_i(matched) and
    E = 1 + h·A, A the tokens accepted in a matched step. One constant probability is wrong both ways here.

    Attributes:
        match_rate: Share h of the steps that find a match, in [0, 1], a number or an array.
        matched: Law of the steps that do.

    >>> LookupAcceptance(0.5, ConstantAcceptance(1.0)).acceptance_length(4)
    3.0
    """

    match_rate: Numbers
    matched: AcceptanceLaw

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "match_rate", like_inputs(require_range("match_rate", self.match_rate, 0, 1))
        )

    @property
    def label(self) -> str:
        return f"match-rate={label_text(self.match_rate)} {self.matched.label}"

    @property
    def assumption(self) -> str:
        return f"{label_text(self.match_rate)} of all steps find a match; in these, {self.matched.assumption}"

    @property
    def _laws(self) -> tuple[AcceptanceLaw, AcceptanceLaw]:
        return self.matched, ConstantAcceptance(0.0)

    @property
    def _shares(self) -> tuple[FloatArray, FloatArray]:
        rate = np.asarray(self.match_rate)
        return rate, np.asarray(1.0 - rate)

    def drafted(self, k: npt.ArrayLike) -> Numbers:
        """Mean draft tokens in a step: none in a step without a match."""
        return like_inputs(np.asarray(self.match_rate) * self.matched.drafted(k))

    def draft_passes(self, k: npt.ArrayLike) -> Counts:
        """Draft passes of a step that finds a match; the others make none."""
        return self.matched.draft_passes(self._require_k(k))

    def at(self, context: npt.ArrayLike) -> LookupAcceptance:
        """The same match rate, with the law of matched steps at that context."""
        return replace(self, matched=self.matched.at(context))

    def covers(self, context: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each context lies within the range for which `matched` was given."""
        return self.matched.covers(context)


@dataclass(frozen=True, slots=True)
class ContextAcceptance(_Mixture):
    """Laws measured at several contexts, for drafters whose acceptance fades with context.

    Survival is interpolated linearly in log(1 + context) between the two neighbours, so that in between
    the steps are a mixture of both laws; outside the measured range it is that of the nearest end, and
    `covers` tells. The law answers once it is read at a context: `law.at(8192).acceptance_length(3)`.

    Attributes:
        contexts: Tokens in the cache at which the laws were measured, each once, in any order.
        laws: One law for each context.
        context: Where the law is read, a number or an array; None until `at` sets it.

    >>> fading = ContextAcceptance((0, 8), (ConstantAcceptance(1.0), ConstantAcceptance(0.0)))
    >>> fading.at(2).acceptance_length(4)  # log 3 is half of log 9
    3.0
    """

    contexts: tuple[float, ...]
    laws: tuple[AcceptanceLaw, ...]
    context: Numbers | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        contexts = require_range("contexts", self.contexts, 0)
        if contexts.ndim != 1 or len(self.laws) != contexts.size:
            raise InputError("contexts", f"must be a flat list, one for each of the {len(self.laws)} laws")
        order = np.argsort(contexts)
        ordered = tuple(contexts[order].tolist())
        if len(set(ordered)) < len(ordered):
            raise InputError("contexts", "names a context twice; give each once")
        object.__setattr__(self, "contexts", ordered)
        object.__setattr__(self, "laws", tuple(self.laws[index] for index in order))
        if self.context is not None:
            object.__setattr__(self, "context", like_inputs(require_range("context", self.context, 0)))

    @property
    def label(self) -> str:
        points = zip(self.contexts, self.laws, strict=True)
        return ", ".join(f"{law.label} at {exact_text(context)}" for context, law in points)

    @property
    def assumption(self) -> str:
        first, last = self.contexts[0], self.contexts[-1]
        return (
            f"acceptance is interpolated in log(1 + context) between contexts of {first:,.0f} and "
            f"{last:,.0f} tokens and held constant outside"
        )

    @property
    def _laws(self) -> tuple[AcceptanceLaw, ...]:
        return self.laws

    @property
    def _shares(self) -> tuple[FloatArray, ...]:
        if self.context is None:
            raise InputError(
                "context", "is missing: this acceptance depends on it; read it with law.at(context)"
            )
        where, points = np.log1p(self.context), np.log1p(self.contexts)
        return tuple(np.asarray(np.interp(where, points, own)) for own in np.eye(points.size))

    def at(self, context: npt.ArrayLike) -> ContextAcceptance:
        """The law at that many tokens of context, a number or an array."""
        return replace(self, context=cast("Numbers", context))  # checked on creation

    def covers(self, context: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each context lies between the first and the last one measured."""
        where = require_range("context", context, 0)
        return np.asarray((where >= self.contexts[0]) & (where <= self.contexts[-1]))


def _total(parts: Iterable[FloatArray]) -> FloatArray:
    return np.asarray(sum(parts))
