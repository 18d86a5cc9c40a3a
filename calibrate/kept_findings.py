"""Findings of a log read back as records, by the very rules that the calibration file is read by.

A log is a file like any other: it may have been edited, mixed or cut. What it says ends in the calibration,
so that nothing is taken from it which the reader of the calibration would refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple, TypeVar

from yaml.events import ScalarEvent

from calibrate.sampling import Sampling
from specmath.calibrations import AcceptanceRow, Place, ProofRow
from specmath.errors import DataError, InputError
from specmath.record_yaml import LIMITS, number_text, out_of_range, read_record, readable
from specmath.results import Advice
from specmath.yaml_fields import Fields, Node

KINDS: Final = ("timing", "acceptance", "proof")
MOST_DRIFT: Final = 100.0
"""Largest relative change of a machine that is believed; the least is −1, no time at all."""
_REMEDY: Final = "somebody wrote into the log; give --fresh to start anew"
_PLACE: Final = ("part", "batch", "width", "context")
_Read = TypeVar("_Read")


class Finding(NamedTuple):
    """One finding as it lies in a log.

    Attributes:
        where: File and line.
        document: What is written there.
    """

    where: str
    document: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptTiming:
    """What timing found beside the repeats.

    Attributes:
        drift: As in `calibrate.timing.Measured`.
        captured: Tokens of the largest captured graph; None for none.
        skipped: Places that could not run, and why.
        warnings: What a reader must know.
    """

    drift: float | None
    captured: int | None
    skipped: tuple[tuple[Place, str], ...] = ()
    warnings: tuple[Advice, ...] = ()

    @property
    def document(self) -> dict[str, Any]:
        """As the log keeps it."""
        return {
            "drift": self.drift,
            "captured": self.captured,
            "skipped": [asdict(place) | {"reason": reason} for place, reason in self.skipped],
            "warnings": [asdict(advice) for advice in self.warnings],
        }


def kept_timing(finding: Finding) -> KeptTiming:
    """What timing found. Raises DataError where the line is none of the kind."""
    return _read(finding, _timing)


def kept_acceptance(finding: Finding) -> tuple[Sampling, tuple[AcceptanceRow, ...]]:
    """A way of sampling and its rows. Raises DataError where the line is none of the kind."""
    return _read(finding, _acceptance)


def kept_proof(finding: Finding) -> ProofRow:
    """A row of the proof. Raises DataError where the line is none of the kind."""
    return _read(finding, _proof)


def _read(finding: Finding, read: Callable[[Fields], _Read]) -> _Read:
    try:
        nodes = {str(key): _node(value) for key, value in finding.document.items()}
        return read(Fields(nodes, finding.where))
    except DataError as fault:
        raise DataError(fault.where, f"a finding is broken: {fault.problem}; {_REMEDY}") from fault
    except InputError as fault:  # of a way of sampling
        problem = f"a finding is broken: {fault.name}: {fault.problem}; {_REMEDY}"
        raise DataError(finding.where, problem) from fault


def _node(value: Any) -> Node:
    """A value of JSON as a node of strict YAML."""
    if isinstance(value, dict):
        return {str(key): _node(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_node(one) for one in value]
    if isinstance(value, str):
        return ScalarEvent(None, None, (False, True), readable(value))
    if value is None or isinstance(value, bool):
        plain = "null" if value is None else str(value).lower()
    else:
        plain = number_text(value)
    return ScalarEvent(None, None, (True, False), plain)


def _timing(top: Fields) -> KeptTiming:
    top.only(("drift", "captured", "skipped", "warnings"))
    drift, captured = top.optional_number("drift"), top.optional_count("captured")
    if drift is not None and not -1 < drift <= MOST_DRIFT:
        raise top.error("drift", f"must be above -1 and at most {MOST_DRIFT:g}, got {drift:g}")
    least, most = LIMITS["last_captured_tokens"]
    if captured is not None and not least <= captured <= most:
        raise top.error("captured", f"must be between {least:g} and {most:g}, got {captured:g}")
    return KeptTiming(
        drift=drift,
        captured=captured,
        skipped=tuple(map(_skipped, top.sections("skipped"))),
        warnings=tuple(read_record(Advice, one) for one in top.sections("warnings")),
    )


def _skipped(section: Fields) -> tuple[Place, str]:
    section.only((*_PLACE, "reason"))
    return read_record(Place, section.part(_PLACE)), section.text("reason")


def _acceptance(top: Fields) -> tuple[Sampling, tuple[AcceptanceRow, ...]]:
    top.only(("temperature", "top_p", "rows"))
    sampling = Sampling(_within(top, "temperature"), _within(top, "top_p"))
    rows = tuple(map(_acceptance_row, top.sections("rows")))
    if not any(row.domain == "all" and row.context is None for row in rows):
        raise top.error("rows", "must hold a row of domain all")
    for number, row in enumerate(rows, 1):
        if (row.temperature, row.top_p) != (sampling.temperature, sampling.top_p):
            raise top.error(f"rows {number}", "is of another temperature or top_p than the finding")
    return sampling, rows


def _acceptance_row(section: Fields) -> AcceptanceRow:
    row = read_record(AcceptanceRow, section)
    drafts, reached = row.drafts or 0, row.accepted_at
    if any(later > before for before, later in zip((drafts, *reached), reached, strict=False)):
        told = ", ".join(map(str, reached))
        raise section.error("accepted_at", f"must not grow, from the drafts on ({drafts}), got {told}")
    if reached and len(reached) != row.k:
        raise section.error("accepted_at", f"must have a count for each of k = {row.k}, got {len(reached)}")
    if row.alpha is None and not reached:
        raise section.error("alpha", "is missing, and so is accepted_at")
    return row


def _proof(top: Fields) -> ProofRow:
    row = read_record(ProofRow, top)
    if row.acceptance_length > row.k + 1:
        allowed = f"counts the bonus token, so must be between 1 and {row.k + 1}"
        raise top.error("acceptance_length", f"{allowed}, got {row.acceptance_length:g}")
    return row


def _within(top: Fields, name: str) -> float:
    value = top.number(name)
    if not LIMITS[name][0] <= value <= LIMITS[name][1]:
        raise out_of_range(top, name, value)
    return value
