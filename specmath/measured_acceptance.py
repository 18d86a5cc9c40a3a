"""The acceptance that measurements brought along: as a law of its own, and beside a law that was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from specmath.acceptance import ConstantAcceptance, PositionAcceptance
from specmath.acceptance_axis import AcceptanceAxis
from specmath.estimation import alpha_from_acceptance_length
from specmath.laws import AcceptanceLaw
from specmath.measurements import Measurement
from specmath.results import Advice
from specmath.units import format_significant

CONTRADICTION: Final = 0.1
"""Share by which a law may miss a measured acceptance length: more is another workload, or another draft."""


def measured_law(measurements: Sequence[Measurement], *, longest_k: int = 0) -> tuple[AcceptanceLaw, str]:
    """The law that the measured acceptance lengths tell, and what was taken, as a sentence.

        p_i = E(i) − E(i − 1)                 where every k from 1 to the longest asked was measured
        E = 1 + α + … + α^k, solved for α     at the largest k measured, elsewhere

    Repeated lengths of one k are averaged, over batches and contexts too.

    Args:
        measurements: Chains, one at least.
        longest_k: The longest draft that is asked about; 0 where it may follow from the law.

    >>> law, told = measured_law([Measurement(k=2, batch=1, acceptance_length=1.75, speedup=1.2)])
    >>> law.acceptance_length(2), told
    (1.75, 'α 0.5 from the measured acceptance length 1.75 at k 2')
    """
    lengths = _lengths(measurements)
    k = max(lengths)
    survival = -np.diff([-1.0, *(-lengths[one] for one in sorted(lengths))])
    is_whole = len(lengths) == k > 1 and longest_k <= k
    if is_whole and np.all(np.diff([1.0, *survival]) <= 0) and survival[-1] >= 0:
        rates = tuple(survival.tolist())
        told = "/".join(format_significant(rate, 3) for rate in rates)
        return (
            PositionAcceptance(rates, kind="survival"),
            f"survival {told} from the acceptance lengths measured at k 1 to {k}",
        )
    alpha = float(alpha_from_acceptance_length(lengths[k], k))
    told = f"α {format_significant(alpha, 3)} from the measured acceptance length {lengths[k]:.3g} at k {k}"
    others = "" if len(lengths) == 1 else f", the largest of {len(lengths)} k measured"
    return ConstantAcceptance(alpha), told + others


def _lengths(measurements: Sequence[Measurement]) -> dict[int, float]:
    found: dict[int, list[float]] = {}
    for one in measurements:
        found.setdefault(one.k, []).append(one.acceptance_length)
    return {k: sum(lengths) / len(lengths) for k, lengths in found.items()}


def acceptance_contradiction(
    laws: Sequence[AcceptanceLaw], measurements: Sequence[Measurement]
) -> tuple[Advice, ...]:
    """That no law asked about agrees with a measured acceptance length, at the measurement it misses most.

    Args:
        laws: The laws asked about.
        measurements: What was measured.
    """
    if not laws:
        return ()
    missed = [(one, _nearest(laws, one)) for one in measurements]
    known = [(one, length) for one, length in missed if length is not None]
    if not known:
        return ()
    one, length = max(known, key=lambda found: abs(found[1] / found[0].acceptance_length - 1))
    if abs(length / one.acceptance_length - 1) <= CONTRADICTION:
        return ()
    return (
        Advice(
            code="acceptance-contradicts-the-measured",
            text=f"the acceptance given yields E = {length:.3g} at k {one.k}, and "
            f"{one.acceptance_length:.3g} was measured there ({one.where or one.text})",
            remedy="leave the acceptance option out to take what was measured",
        ),
    )


def _nearest(laws: Sequence[AcceptanceLaw], one: Measurement) -> float | None:
    """The acceptance length, of those the laws give at the place of a measurement, that is nearest to it."""
    axis = AcceptanceAxis.of(laws)
    if axis.max_k < one.k:
        return None
    lengths = axis.lengths(np.array([one.k]), np.array([one.context])).ravel()
    return float(lengths[np.argmin(np.abs(lengths - one.acceptance_length))])
