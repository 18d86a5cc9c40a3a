"""Calibrations and measured runs as files: versioned YAML that a person can read and every question takes.

One file holds all of it: what ran, the laws with their errors, acceptance, the proof, what to know, and the
median of every cell. `kind: passes` is a `Calibration`, `kind: runs` are `MeasuredRuns`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final

from specmath.arm_fits import ArmFit
from specmath.calibration_contradictions import require_consistent
from specmath.calibrations import (
    METHODS,
    PARTS,
    REGIMES,
    AcceptanceRow,
    Calibration,
    Cell,
    FittedConstant,
    Flag,
    MeasuredRuns,
    PartFit,
    Place,
    ProofRow,
    RunLine,
)
from specmath.errors import DataError, InputError, shown, shown_path
from specmath.files import atomic_write
from specmath.measurements import Measurement
from specmath.pass_laws import DraftLaw, HostLaw, PassLaw
from specmath.record_yaml import (
    LIMITS,
    key_text,
    numbers_text,
    out_of_range,
    read_record,
    readable,
    record_text,
    value_text,
)
from specmath.results import Advice
from specmath.strict_yaml import MAX_BYTES, read_yaml
from specmath.yaml_fields import Fields

SCHEMA: Final = "specmath.calibration/1"
ENDINGS: Final = (".yaml", ".yml")
ORIGINS: Final = ("server", "runs", "history")
_STEM, _VERSION = SCHEMA.rsplit("/", 1)
_COMMON: Final = ("schema", "kind", "created", "specmath_version")
_NAMES: Final = ("target", "draft", "method", "regime", "dtype")
_PASSES: Final = (
    *(*_COMMON, *_NAMES, "match_rate", "last_captured_tokens", "machine", "warnings", "laws", "proof"),
    *("acceptance", "fits", "skipped", "cells"),
)
_RUNS: Final = (*_COMMON, "source", "origin", "machine", "warnings", "arms", "lines", "runs")
_CELL: Final = ("batch", "width", "context", "seconds", "low_s", "high_s", "repeats")
_COUNTS: Final = ("batch", "width", "context", "repeats")
_MANY_RUNS: Final = ("runs", "average repeats, or keep the rows of fewer batches")
_LAWS: Final = ("target", "draft", "plain-host", "step-host")


def write_calibration(record: Calibration | MeasuredRuns, path: str | Path) -> None:
    """Write a calibration or measured runs, whole or not at all.

    Cells are written part by part. Texts become one line of printable characters.

    Args:
        record: What was measured.
        path: A file that ends in .yaml or .yml, or a device.

    Raises:
        AccessError: where the system refuses.
        InputError: where the file would be larger than what is read back.
    """
    name = readable(Path(path).name)
    lines = _passes(record, name) if isinstance(record, Calibration) else _runs(record, name)
    content = "".join(f"{line}\n" for line in lines).encode()
    if len(content) > MAX_BYTES:
        name, remedy = ("cells", "measure a coarser grid") if isinstance(record, Calibration) else _MANY_RUNS
        raise InputError(name, f"make {len(content):,} bytes, at most {MAX_BYTES:,}; {remedy}")
    with atomic_write(path) as file:
        file.write(content)


def read_calibration(path: str | Path) -> Calibration | MeasuredRuns:
    """What a file of `write_calibration` holds.

    Raises:
        AccessError: the file cannot be read.
        DataError: it is not strict YAML, no calibration, of a newer schema, or a value is out of place; one
            line with file and place.
    """
    top = read_yaml(Path(path))
    _require_schema(top)
    kind = top.text("kind")
    if kind not in ("passes", "runs"):
        raise top.error("kind", f"must be passes or runs, got {shown(kind)}")
    try:
        return require_consistent(_calibration(top)) if kind == "passes" else _measured_runs(top)
    except InputError as fault:  # of records that know each other
        raise DataError(shown_path(path), f"{fault.name}: {fault.problem}") from fault


def _require_schema(top: Fields) -> None:
    schema = top.optional_text("schema") or ""
    stem, _, version = schema.rpartition("/")
    if stem == _STEM and version.isdecimal() and len(version) < 9 and int(version) > int(_VERSION):
        problem = f"{schema} is newer than what this specmath reads; upgrade specmath, or calibrate again"
        raise top.error("schema", problem)
    if schema != SCHEMA:
        found = f"got {shown(schema)}" if schema else "is missing"
        raise top.error("schema", f"{found}; a calibration begins with `schema: {SCHEMA}`")


def _passes(record: Calibration, name: str) -> Iterator[str]:
    pair = record.target if record.method == "ngram" else f"{record.target} and {record.draft}"
    yield f"# What single passes of {readable(pair)} take on one machine, as specmath measured it:"
    yield "# seconds of every cell, laws drawn from them, acceptance, and a proof by decoding end to end."
    yield f"# Every question takes it:  specmath speedup --measured {name} --k 4 --batch 8"
    yield f"# A cell is [{', '.join(_CELL)}], low and high being"
    yield "# quartiles. The width of a draft is the passes of its chain, that of step-host is k + 1."
    yield from _head(record, "passes")
    yield from (f"{one}: {value_text(getattr(record, one))}" for one in _NAMES)
    yield f"match_rate: {value_text(float(record.match_rate))}"
    if record.last_captured_tokens is not None:
        yield f"last_captured_tokens: {record.last_captured_tokens}"
    yield from _machine(record.machine)
    yield from _listed("warnings", map(record_text, record.warnings))
    yield "laws:"
    laws = (record.target_law, record.draft_law, record.plain_host, record.step_host)
    yield from (f"  {part}: {record_text(law)}" for part, law in zip(_LAWS, laws, strict=True))
    yield from _listed("proof", map(record_text, record.proof))
    yield from _listed("acceptance", map(record_text, record.acceptance))
    yield from _fits(record.fits)
    skipped = (f"{record_text(place)[:-1]}, reason: {value_text(why)}}}" for place, why in record.skipped)
    yield from _listed("skipped", skipped)
    yield "cells:"
    for part, cells in groupby(sorted(record.cells, key=_part_of), key=_part_of):
        yield f"  {PARTS[part]}:"
        yield from (f"    - {_cell_text(cell)}" for cell in cells)


def _runs(record: MeasuredRuns, name: str) -> Iterator[str]:
    yield "# Runs of an engine with and without speculation, as specmath took them from outside."
    yield f"# Every question takes them:  specmath speedup --measured {name} --target MODEL --draft MODEL"
    yield from _head(record, "runs")
    yield f"source: {value_text(record.source)}"
    yield f"origin: {value_text(record.origin)}"
    yield from _machine(record.machine)
    yield from _listed("warnings", map(record_text, record.warnings))
    yield from _listed("arms", map(record_text, record.arms))
    yield from _listed("lines", map(record_text, record.lines))
    yield from _listed("runs", map(record_text, record.runs))


def _head(record: Calibration | MeasuredRuns, kind: str) -> Iterator[str]:
    yield f"schema: {SCHEMA}"
    yield f"kind: {kind}"
    for name in ("created", "specmath_version"):
        if text := getattr(record, name):
            yield f"{name}: {value_text(text)}"


def _machine(machine: Mapping[str, str | float | int]) -> Iterator[str]:
    if machine:
        yield "machine:"
    for key, value in machine.items():
        yield f"  {key_text(key)}: {value_text(value)}"


def _listed(key: str, items: Iterator[str]) -> Iterator[str]:
    """A list, one item a line; nothing where it is empty."""
    for place, item in enumerate(items):
        if not place:
            yield f"{key}:"
        yield f"  - {item}"


def _fits(fits: tuple[PartFit, ...]) -> Iterator[str]:
    if fits:
        yield "fits:"
    for fit in fits:
        yield f"  - part: {fit.part}"
        yield from (f"    {line}" for line in _listed("constants", map(record_text, fit.constants)))
        yield f"    errors: {numbers_text(fit.errors, 6)}"
        yield f"    left_out_errors: {numbers_text(fit.left_out_errors, 6)}"
        yield from (f"    {line}" for line in _listed("flags", map(_flag_text, fit.flags)))


def _flag_text(flag: Flag) -> str:
    return f"{record_text(flag.place)[:-1]}, {record_text(flag, without=['place'])[1:]}"


def _part_of(cell: Cell) -> int:
    return PARTS.index(cell.place.part)


def _cell_text(cell: Cell) -> str:
    place = cell.place
    sizes = (place.batch, place.width, place.context)
    return value_text((*sizes, cell.seconds, cell.low_s, cell.high_s, cell.repeats))


def _calibration(top: Fields) -> Calibration:
    top.only(_PASSES)
    for name, known in (("method", METHODS), ("regime", REGIMES)):
        if top.text(name) not in known:
            raise top.error(name, f"must be one of {', '.join(known)}, got {shown(top.text(name))}")
    laws = top.section("laws")
    laws.only(_LAWS)
    captured = top.optional_count("last_captured_tokens")
    match_rate = top.number("match_rate") if "match_rate" in top else 1.0
    for name, value in (("match_rate", match_rate), ("last_captured_tokens", captured or 1)):
        if not LIMITS[name][0] <= value <= LIMITS[name][1]:
            raise out_of_range(top, name, value)
    return Calibration(
        target=top.text("target"),
        draft=top.text("draft"),
        method=top.text("method"),
        regime=top.text("regime"),
        dtype=top.text("dtype"),
        machine=_machine_of(top),
        cells=_cells(top),
        target_law=read_record(PassLaw, laws.section("target")),
        draft_law=read_record(DraftLaw, laws.section("draft")),
        plain_host=read_record(HostLaw, laws.optional_section("plain-host")),
        step_host=read_record(HostLaw, laws.optional_section("step-host")),
        fits=tuple(map(_fit, top.sections("fits"))),
        acceptance=tuple(map(_acceptance, top.sections("acceptance"))),
        proof=tuple(read_record(ProofRow, one) for one in top.sections("proof")),
        last_captured_tokens=captured,
        match_rate=match_rate,
        skipped=tuple(map(_skipped, top.sections("skipped"))),
        warnings=_warnings(top),
        created=top.optional_text("created") or "",
        specmath_version=top.optional_text("specmath_version") or "",
    )


def _measured_runs(top: Fields) -> MeasuredRuns:
    top.only(_RUNS)
    if top.text("origin") not in ORIGINS:
        problem = f"must be one of {', '.join(ORIGINS)}, got {shown(top.text('origin'))}"
        raise top.error("origin", problem)
    return MeasuredRuns(
        source=top.text("source"),
        origin=top.text("origin"),
        machine=_machine_of(top),
        runs=tuple(read_record(Measurement, one) for one in top.sections("runs")),
        arms=tuple(read_record(ArmFit, one) for one in top.sections("arms")),
        lines=tuple(read_record(RunLine, one) for one in top.sections("lines")),
        warnings=_warnings(top),
        created=top.optional_text("created") or "",
        specmath_version=top.optional_text("specmath_version") or "",
    )


def _machine_of(top: Fields) -> dict[str, str | float | int]:
    machine = top.optional_section("machine")
    return {key: machine.value(key) for key in machine}


def _warnings(top: Fields) -> tuple[Advice, ...]:
    return tuple(read_record(Advice, one) for one in top.sections("warnings"))


def _fit(section: Fields) -> PartFit:
    section.only(("part", "constants", "errors", "left_out_errors", "flags"))
    if section.text("part") not in PARTS:
        raise section.error("part", f"must be one of {', '.join(PARTS)}, got {shown(section.text('part'))}")
    return PartFit(
        part=section.text("part"),
        constants=tuple(read_record(FittedConstant, one) for one in section.sections("constants")),
        errors=section.numbers("errors"),
        left_out_errors=section.numbers("left_out_errors"),
        flags=tuple(_flag(one) for one in section.sections("flags")),
    )


def _flag(section: Fields) -> Flag:
    place, rest = _place_of(section)
    return read_record(Flag, rest, without={"place": place})


def _skipped(section: Fields) -> tuple[Place, str]:
    place, rest = _place_of(section)
    rest.only(("reason",))
    return place, rest.text("reason")


def _place_of(section: Fields) -> tuple[Place, Fields]:
    """The place that a section begins with, and what else it holds."""
    own = ("part", "batch", "width", "context")
    return read_record(Place, section.part(own)), section.part([key for key in section if key not in own])


def _acceptance(section: Fields) -> AcceptanceRow:
    row = read_record(AcceptanceRow, section)
    drafts, reached = row.drafts or 0, row.accepted_at
    if any(later > before for before, later in zip((drafts, *reached), reached, strict=False)):
        problem = f"must not grow, from the drafts on ({drafts}), got {value_text(reached)}"
        raise section.error("accepted_at", problem)
    if reached and len(reached) != row.k:
        raise section.error("accepted_at", f"must have a count for each of k = {row.k}, got {len(reached)}")
    if row.alpha is None and not reached:
        raise section.error("alpha", "is missing; give it, or k, drafts and accepted_at")
    return row


def _cells(top: Fields) -> tuple[Cell, ...]:
    parts = top.section("cells")
    parts.only(PARTS)
    cells = tuple(cell for part in PARTS for cell in _cells_of(parts, part))
    if not any(cell.place.part == "target" for cell in cells):
        raise parts.error("target", "is missing; a calibration has at least one pass of the target")
    return cells


def _cells_of(parts: Fields, part: str) -> Iterator[Cell]:
    seen: set[Place] = set()
    for number, row in enumerate(parts.rows(part, len(_CELL)), start=1):
        problem = next(filter(None, map(_number_problem, _CELL, row)), None)
        sizes, (seconds, low_s, high_s, repeats) = row[:3], row[3:]
        if problem is None and not low_s <= seconds <= high_s:
            problem = (
                f"the median must lie between its quartiles, got {seconds:g} for {low_s:g} to {high_s:g}"
            )
        if problem is not None:
            raise parts.error(f"{part} {number}", problem)
        batch, width, context = map(int, sizes)
        place = Place(part=part, batch=batch, width=width, context=context)
        if place in seen:
            raise parts.error(f"{part} {number}", f"{[batch, width, context]} is given twice; keep one")
        seen.add(place)
        yield Cell(place=place, seconds=seconds, low_s=low_s, high_s=high_s, repeats=int(repeats))


def _number_problem(name: str, value: float) -> str | None:
    """What is wrong with one number of a cell; None where nothing is."""
    least, most = LIMITS[name]
    whole = name in _COUNTS
    if least <= value <= most and (value.is_integer() or not whole):
        return None
    kind = "a whole number" if whole else "a number"
    return f"{name} must be {kind} from {least:g} to {most:g}, got {value:g}"
