"""The acceptance that a calibration measured, as the law of a question that names none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from specmath.beta_fits import fitted_beta
from specmath.calibrations import AcceptanceRow
from specmath.counted_acceptance import counts_by_position
from specmath.errors import InputError, shown_path
from specmath.results import Advice
from specmath.units import format_significant

CHOICES: Final = ("temperature", "top_p", "rule", "domain")
"""What parts the acceptances of one file."""
ALL: Final = "all"
LEAST_COUNTED: Final = 100
"""Drafts, or positions, below which a rate near a half is not even known to ±0.1."""

_LISTED: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceTaken:
    """What a question takes.

    Attributes:
        alpha: One probability for all positions; None where survival or rates are given instead.
        survival: Share of drafts whose first 1, 2, … tokens were accepted, as counted.
        rates: Conditional acceptance where a longer draft than measured is asked about, else empty.
        match_rate: Share of steps in which a lookup found a match, at this very setting; 1 where not told.
        told: Where it comes from, as a sentence.
        notes: What must be known about it.
    """

    alpha: float | None
    survival: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    match_rate: float = 1.0
    told: str
    notes: tuple[Advice, ...] = ()


def acceptance_taken(
    rows: Sequence[AcceptanceRow],
    wanted: Mapping[str, str | float],
    *,
    longest_k: int = 0,
    name: str = "",
) -> AcceptanceTaken:
    """The acceptance of the one setting that was asked for.

    Counts of a speculative run at its largest k are taken before α from the logits, a lossless rule before a
    lossy one, all domains together before one. A longer draft than was run goes on by the Beta law of the
    counts where acceptance rises with the position, else at the last rate.

    Args:
        rows: What was measured.
        wanted: Some of `CHOICES`; a rule by the beginning of its name.
        longest_k: The longest draft asked about; 0 where it follows from the acceptance.
        name: The file as it was typed, for messages; empty where it is not known.

    Raises:
        InputError: no row, or rows of several settings; lists what there is to choose from.

    >>> row = AcceptanceRow(rule="rejection sampling", temperature=1.0, top_p=1.0, domain="all",
    ...                     positions=0, requests=9, k=2, drafts=100, accepted_at=(80, 40))
    >>> acceptance_taken([row], {}).survival
    (0.8, 0.4)
    """
    row = _chosen(rows, wanted, name)
    setting = f"{row.rule}, temperature {row.temperature:g}, top-p {row.top_p:g}, domain {row.domain}"
    if not row.survival:
        assert row.alpha is not None  # a row holds one or the other
        ends = "" if row.alpha_low is None else f" ({row.alpha_low:.3f} to {row.alpha_high:.3f})"
        told = f"α {row.alpha:.3f}{ends} over {row.positions:,} positions of {row.requests} texts"
        told = f"acceptance as calibrated: {told}, {setting}"
        return AcceptanceTaken(alpha=row.alpha, told=told, notes=tuple(_few(row.positions, "positions")))
    rates = "/".join(format_significant(one, 3) for one in row.survival)
    told = f"acceptance as calibrated: survival {rates} of {row.drafts:,} drafts, {setting}"
    beyond, notes = _beyond(row, longest_k)
    return AcceptanceTaken(
        alpha=None,
        survival=row.survival,
        rates=beyond,
        match_rate=row.match_rate,
        told=told,
        notes=(*_few(row.drafts or 0, "drafts"), *notes),
    )


def _few(counted: int, name: str) -> Iterator[Advice]:
    """That the acceptance rests on little."""
    if counted < LEAST_COUNTED:
        known = f"a rate near a half is known to ±{min(1 / math.sqrt(max(counted, 1)), 1):.2g} at best"
        yield Advice(
            code=f"few-{name}",
            text=f"the acceptance rests on {counted:,} {name}: {known}",
            remedy="calibrate with more prompts or tokens, or give --alpha or its kin",
        )


def _chosen(rows: Sequence[AcceptanceRow], wanted: Mapping[str, str | float], file: str) -> AcceptanceRow:
    fitting = [row for row in rows if all(_is(row, name, value) for name, value in wanted.items())]
    if not fitting:
        asked = ", ".join(f"{name.replace('_', '-')} {_shown(value)}" for name, value in wanted.items())
        problem = f"holds no acceptance of {asked}; it has {_told(rows, CHOICES)}"
        raise InputError("measured", f"{file} {problem}".lstrip())
    for name in ("temperature", "top_p"):
        _require_one(fitting, name, wanted, file)
    preferences: list[Callable[[AcceptanceRow], bool]] = [
        lambda row: bool(row.survival),
        lambda row: row.context is None,
        lambda row: row.lossless,
        lambda row: row.domain == ALL,
    ]
    for prefers in preferences:
        fitting = [row for row in fitting if prefers(row)] or fitting
    for name in ("rule", "domain"):
        _require_one(fitting, name, wanted, file)
    return max(fitting, key=lambda row: (row.k or 0, row.drafts or row.positions))


def _is(row: AcceptanceRow, name: str, value: str | float) -> bool:
    own = getattr(row, name)
    if isinstance(value, str):
        return _squeezed(own).startswith(_squeezed(value))
    return math.isclose(own, value, abs_tol=1e-9)


def _require_one(
    rows: Sequence[AcceptanceRow], name: str, wanted: Mapping[str, str | float], file: str
) -> None:
    """InputError that shows what to type for each of several acceptances."""
    values = list(dict.fromkeys(getattr(row, name) for row in rows))
    if len(values) > 1:
        typed = "".join(f",{key.replace('_', '-')}={_shown(value)}" for key, value in wanted.items())
        key = name.replace("_", "-")
        choices = [
            shown_path(f"{file or 'FILE.yaml'}{typed},{key}={_shown(value)}") for value in values[:_LISTED]
        ]
        more = f", … ({len(values)} in all)" if len(values) > _LISTED else ""
        problem = (
            f"{file} has several acceptances ({_told(rows, [name])}); choose one after the file".lstrip()
        )
        raise InputError("measured", f"{problem}, as in {' or '.join(choices)}{more}")


def _told(rows: Sequence[AcceptanceRow], names: Sequence[str]) -> str:
    """What there is to choose from."""
    if not rows:
        return "none"
    listed = {name: dict.fromkeys(_shown(getattr(row, name)) for row in rows) for name in names}
    return "; ".join(f"{name.replace('_', '-')} {', '.join(values)}" for name, values in listed.items())


def _shown(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _squeezed(name: str) -> str:
    return re.sub(r"[-_ ]", "", name.lower())


def _beyond(row: AcceptanceRow, longest_k: int) -> tuple[tuple[float, ...], tuple[Advice, ...]]:
    """Conditional rates up to a longer draft than was run, and the mark; nothing where it is not longer."""
    measured_k = len(row.accepted_at)
    if longest_k <= measured_k:
        return (), ()
    counts = counts_by_position(row.drafts or 0, row.accepted_at)
    told = [0.0 if math.isnan(rate) else rate for rate in counts.conditional]
    beta, places = fitted_beta(counts.judged, counts.accepted), range(measured_k, longest_k)
    if beta is None:
        further, how = [told[-1]] * len(places), "the last rate held"
    else:
        a, b = float(beta.a), float(beta.b)
        further, how = [(a + place) / (a + b + place) for place in places], "the Beta law of the counts"
    advice = Advice(
        code="extrapolated",
        text=f"acceptance was measured at k = {measured_k}; up to {longest_k} it is extrapolated by {how}",
        remedy=f"stay at k up to {measured_k}, or calibrate with a longer draft: --k {longest_k}",
    )
    return (*told, *further), (advice,)
