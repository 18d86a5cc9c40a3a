"""Kinds of measured rows, and how much public evidence there is for a question of that kind.

`evidence_for` looks for a kind among the rows themselves; a forecast asks the table of `specmath.evidence`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from specmath.errors import InputError
from specmath.evidence import (
    UNSTATED,
    MeasuredEvidence,
    batch_stratum,
    context_stratum,
    device_stratum,
    method_stratum,
)
from specmath.measured_speedups import MeasuredSpeedup

DIMENSIONS: Final[dict[str, Callable[[MeasuredSpeedup], str]]] = {
    "collection": lambda row: row.collection or "your own",
    "engine": lambda row: row.engine or UNSTATED,
    "method": lambda row: method_stratum(row.method),
    "batch": lambda row: batch_stratum(row.batch or 1),
    "context": lambda row: context_stratum(row.context),
    "tp": lambda row: device_stratum(row.devices),
    "source": lambda row: row.source,
}
"""What rows are sorted by: the name of the stratum of a row, by dimension."""


def evidence_of(rows: Iterable[MeasuredSpeedup], stratum: str = "these rows") -> MeasuredEvidence:
    """Rows, set-ups and sources among the usable rows."""
    usable = [row for row in rows if row.is_usable]
    return MeasuredEvidence(
        stratum=stratum,
        rows=len(usable),
        setups=len({row.setup for row in usable}),
        sources=len({row.source for row in usable}),
    )


def evidence_for(
    measurements: Iterable[MeasuredSpeedup],
    *,
    method: str | None = None,
    batch: int | None = None,
    context: float | None = None,
    devices: int | None = None,
    engine: str | None = None,
) -> MeasuredEvidence:
    """What has been measured of the kind of a question; what is None is not asked about.

    Args:
        measurements: The rows to look among, such as `public_measurements()`.
        method: Way of drafting, as in `MeasuredSpeedup.method`.
        batch: Sequences in the pass; rows count whose batch is in the same stratum (1, 2–16, above).
        context: Tokens in the cache; below 4k, or from there on.
        devices: One, or several.
        engine: Serving engine.

    >>> from specmath.measurement_files import public_measurements
    >>> evidence_for(public_measurements(), method="dflash", batch=64).is_thin
    True
    """
    wanted: dict[str, str] = {}
    if engine is not None:
        wanted["engine"] = engine
    if method is not None:
        wanted["method"] = method_stratum(method)
    if batch is not None:
        wanted["batch"] = batch_stratum(batch)
    if context is not None:
        wanted["context"] = context_stratum(context)
    if devices is not None:
        wanted["tp"] = device_stratum(devices)
    found = [row for row in measurements if all(DIMENSIONS[key](row) == name for key, name in wanted.items())]
    words = [name if key in ("engine", "method", "tp") else f"{key} {name}" for key, name in wanted.items()]
    return evidence_of(found, ", ".join(words) or "any set-up")


def stratified(rows: Iterable[MeasuredSpeedup], dimension: str) -> dict[str, list[int]]:
    """Places of the rows of each stratum, in the order in which the strata first occur."""
    if dimension not in DIMENSIONS:
        raise InputError("by", f"must be one of {', '.join(DIMENSIONS)}, got {dimension!r}")
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(DIMENSIONS[dimension](row), []).append(place)
    return places
