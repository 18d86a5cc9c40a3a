"""`--from SOURCE`: a serving engine's own output in the place of a typed acceptance.

The options are rewritten as if its figures had been typed; what they rest on goes into the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from specmath.cli.options import (
    LAWS,
    REFINEMENTS,
    AcceptanceOptions,
    MeasuredOptions,
    PairOptions,
    SourceOptions,
)
from specmath.cli.text import option
from specmath.errors import InputError

if TYPE_CHECKING:
    from specmath.diagnosis.setup import Observed
    from specmath.engines.estimates import AcceptanceEstimate
    from specmath.engines.source_law import SourceLaw
    from specmath.results import Advice, Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The options of a question after its source was read; unchanged where none is named.

    Attributes:
        acceptance: With the law of the source.
        k: Draft lengths: those typed, else that of the source; None where neither tells.
        batch: What ran in a step of the source, as text; None where it does not tell.
        measured: With the source's own step time beside a plain run that was typed alone.
        law: The source's law; None without a source.
        notes: What must be known about the measurements.
    """

    acceptance: AcceptanceOptions
    k: str | None
    batch: str | None = None
    measured: MeasuredOptions
    law: SourceLaw | None = None
    notes: tuple[Advice, ...] = ()

    @property
    def observed(self) -> Observed:
        """What the source tells of the run itself; nothing without a source."""
        from specmath.diagnosis.setup import NOTHING_OBSERVED

        if self.law is None:
            return NOTHING_OBSERVED
        from specmath.engines.load_shares import observed_of

        return observed_of(self.law.estimate)

    def told(self, result: Result) -> Result:
        """The result, saying where its acceptance came from."""
        if self.law is None:
            return result
        from specmath.engines.sourced_results import sourced

        return sourced(result, self.law, self.notes)


NOTHING_MEASURED = MeasuredOptions()


def taken_from(
    acceptance: AcceptanceOptions,
    options: SourceOptions,
    k: str | None,
    *,
    measured: MeasuredOptions = NOTHING_MEASURED,
    pair: PairOptions | None = None,
    longest_k: str | None = None,
) -> Taken:
    """The options with what `--from` names in the place of a typed acceptance.

    Args:
        acceptance: The options that name the law.
        options: What is said beside the source.
        k: Draft lengths as typed.
        measured: The measurements, as text.
        pair: The draft, which a lookup source must not contradict; None where the question has none.
        longest_k: The longest draft asked about, where it is not in k.
    """
    if acceptance.from_source is None:
        refuse_strays(options, "--from")
        return Taken(acceptance=acceptance, k=k, measured=measured)
    for name in (*LAWS, *REFINEMENTS):
        if getattr(acceptance, name) is not None:
            raise InputError(name, f"{option(name)} and --from exclude each other; give one")
    if acceptance.from_source == "-" and pair is not None and "-" in (pair.target, *(pair.draft or [])):
        raise InputError("from_source", "- is taken already; stdin can be read once")
    from specmath.engines.source_law import source_law

    lengths = _lengths(k, longest_k)
    estimate = _estimate(acceptance.from_source, options, lengths)
    law = source_law(estimate, longest_k=max(lengths, default=None))
    texts, notes = _completed(measured.measured or [], estimate)
    running = estimate.telemetry.load.running
    typed = _as_typed(acceptance, law, pair)
    applied = typed.match_rate if typed.match_rate is None else _shortened(typed.match_rate)
    return Taken(
        acceptance=typed,
        k=str(estimate.measured_k) if k is None and estimate.measured_k else k,
        batch=str(max(round(running), 1)) if running else None,
        measured=replace(measured, measured=texts or None),
        law=replace(law, applied_match_rate=applied),
        notes=notes,
    )


def refuse_strays(options: SourceOptions, wanted: str) -> None:
    """What says something about a SOURCE needs one."""
    for one in fields(options):
        if getattr(options, one.name) is not None:
            raise InputError(one.name, f"belongs to {wanted}, which was not given")


def _lengths(*texts: str | None) -> list[int]:
    from specmath.axes import parse_axis

    return [length for text in texts if text is not None for length in parse_axis("k", text, whole=True)]


def _estimate(source: str, options: SourceOptions, lengths: Sequence[int]) -> AcceptanceEstimate:
    """What the source says; where it tells no k, the one typed is taken as the one it ran with."""
    from specmath.cli.records import one_record
    from specmath.engines.estimates import estimate_acceptance

    record = one_record(source, options)
    estimate = estimate_acceptance(record)
    if estimate.alpha is None and len(lengths) == 1:
        return estimate_acceptance(record, k=lengths[0])
    return estimate


def _as_typed(acceptance: AcceptanceOptions, law: SourceLaw, pair: PairOptions | None) -> AcceptanceOptions:
    """The law of a source as options."""
    matched = acceptance.match_rate
    if matched is None and law.match_rate is not None and _is_lookup(law, pair):
        matched = repr(law.match_rate)
    if law.alpha is not None:
        return replace(acceptance, from_source=None, alpha=repr(law.alpha), match_rate=matched)
    rates = "/".join(f"{rate:.6g}" for rate in law.rates)
    return replace(acceptance, from_source=None, rates=rates, match_rate=matched)


def _shortened(match_rate: str) -> str:
    """A match rate for the eye; an axis as typed."""
    try:
        return f"{float(match_rate):.3g}"
    except ValueError:
        return match_rate


def _is_lookup(law: SourceLaw, pair: PairOptions | None) -> bool:
    """Whether the draft asked about is looked up; that of the source where none is named."""
    from specmath.engines.rules import LOOKUP

    draft = None if pair is None else pair.method or next(iter(pair.draft or []), None)
    return (draft or law.estimate.telemetry.method or "").startswith(LOOKUP)


def _completed(texts: Sequence[str], estimate: AcceptanceEstimate) -> tuple[list[str], tuple[Advice, ...]]:
    """Measurements as typed, a plain run alone together with the source's own step."""
    from specmath.cli.plain_runs import beside_source, is_plain_run

    kept, notes = [], []
    for text in texts:
        whole, note = beside_source(text, estimate) if is_plain_run(text) else (text, None)
        kept += [whole] if whole is not None else []
        notes += [note] if note is not None else []
    return kept, tuple(notes)
