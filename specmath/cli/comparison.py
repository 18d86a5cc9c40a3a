"""Several drafts in one `specmath speedup`: from the options to a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from specmath.acceptance_axis import AcceptanceAxis
from specmath.cli.cases import chosen_cases, drafted_cases, refuse_ratios
from specmath.cli.drafts import Choice, naming
from specmath.cli.laws import acceptance_laws, draft_lengths
from specmath.cli.options import DeviceOptions, MeasuredOptions, PairOptions, RatioOptions
from specmath.comparisons import Contender, DrafterComparison, compare_drafters
from specmath.errors import InputError
from specmath.roofline_source import Roofline


def comparison(
    choices: Sequence[Choice],
    *,
    k: str | None,
    batch: Sequence[int],
    context: Sequence[float],
    case: str | None,
    device: DeviceOptions,
    pair: PairOptions,
    ratios: RatioOptions,
    measured: MeasuredOptions,
) -> DrafterComparison:
    """Each draft with each of its acceptances and k, by the first of the cases asked for."""
    refuse_ratios(ratios, "a comparison of drafts")
    if measured.measured:
        raise InputError("measured", "corrects one set-up, and several drafts are compared; ask about one")
    contenders = []
    for choice, cases in zip(choices, drafted_cases(choices, device, pair), strict=True):
        with naming(choice):
            ks = draft_lengths(k if choice.k is None else choice.k, choice.acceptance)
            axis = AcceptanceAxis.of(acceptance_laws(choice.acceptance, ks))
            axis.draft_lengths(ks)
        datasheet = next(source for source in cases if isinstance(source, Roofline))
        leading = chosen_cases(cases, case)[0]
        contenders += [
            Contender(roofline=datasheet, acceptance=axis.law(place), k=one, source=leading)
            for place in range(len(axis))
            for one in ks
        ]
    _refuse_twice(contenders)
    return compare_drafters(contenders, batch, context=context)


def _refuse_twice(contenders: Sequence[Contender]) -> None:
    for one, other in combinations(contenders, 2):
        if (one.k, repr(one.acceptance), one.roofline) == (other.k, repr(other.acceptance), other.roofline):
            raise InputError("draft", f"{one.name} with k = {one.k} is given twice; keep one")
