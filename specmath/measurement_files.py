"""Measured speed-ups, one object a point: the public ones shipped with the package, or a file of the user's.

The schema is `MeasuredSpeedup`; a row has its fields as columns. Values are in base units; a field that is
not known is left out, null or an empty cell. In a CSV cell a list of numbers is `a/b/c`, and `;` stands
between sentences. A row that cannot be scored stays in the file with `usable: no` and its reason in
`left_out`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Final

from specmath.accelerator import KINDS
from specmath.acceptance import expected_tokens
from specmath.errors import DataError, UnknownNameError, shown
from specmath.measured_speedups import METHODS, USABLE, MeasuredSpeedup
from specmath.row_files import Row, described, file_name, number_in, read_rows

PUBLIC: Final = Path(__file__).with_name("measured_speedups.jsonl")
MAX_ROWS: Final = 10_000


def public_measurements() -> tuple[MeasuredSpeedup, ...]:
    """The public measurements shipped with the package, unusable ones included, in the order of their file.

    >>> rows = public_measurements()
    >>> len(rows), sum(row.is_usable for row in rows)
    (816, 429)
    """
    return _packaged()


def read_measurements(path: str | Path) -> tuple[MeasuredSpeedup, ...]:
    """The measurements of a JSONL or CSV file in the schema of `MeasuredSpeedup`.

    A row needs `speedup` (or `plain_tpot_s` and `tpot_s`), `k`, `batch` and `acceptance_length` (or
    `survival`, or `alpha`); without them it must say `usable: no` and why in `left_out`. `id` and `source`
    default to the line and the file. `-` reads JSONL from stdin.

    Args:
        path: A `.csv`, `.jsonl` or `.json` file.

    Raises:
        AccessError: where it cannot be read.
        DataError: for anything else than such rows; names file, line and field.
    """
    found: dict[str, MeasuredSpeedup] = {}
    for row in read_rows(path, most=MAX_ROWS):
        try:
            measured = _checked(row)
            if measured.id in found:
                raise ValueError(f"id: {shown(measured.id)} stands twice; each row needs its own")
        except ValueError as error:
            raise row.fault(str(error)) from None
        found[measured.id] = measured
    if not found:
        problem = "holds no measurement; give one JSON object a line, or a CSV with a header"
        raise DataError(file_name(path), problem)
    return tuple(found.values())


@cache
def _packaged() -> tuple[MeasuredSpeedup, ...]:
    return read_measurements(PUBLIC)


def _checked(row: Row) -> MeasuredSpeedup:
    values: dict[str, Any] = {"id": f"row {row.line}", "source": row.file}
    for name, value in row.cells.items():
        if name not in _KINDS:
            raise ValueError(str(UnknownNameError("field", name, _KINDS, f"known are {', '.join(_KINDS)}")))
        if value is not None:
            values[name] = _KINDS[name].value(name, value)
    _complete(values)
    measured = MeasuredSpeedup(**values)
    _require_consistent(measured)
    return measured


def _complete(values: dict[str, Any]) -> None:
    """Fills the speed-up and the acceptance length where other fields give them."""
    if "speedup" not in values and {"plain_tpot_s", "tpot_s"} <= values.keys():
        values["speedup"] = values["plain_tpot_s"] / values["tpot_s"]
    if "acceptance_length" in values or "k" not in values or values.get("tree_nodes"):
        return
    if len(values.get("survival", ())) == values["k"] > 0:
        values["acceptance_length"] = 1 + sum(values["survival"])
    elif "alpha" in values:
        values["acceptance_length"] = float(expected_tokens(values["alpha"], values["k"]))


def _require_consistent(row: MeasuredSpeedup) -> None:
    if not row.is_usable:
        if row.left_out is None:
            raise ValueError("left_out: is missing; say why the row is not usable")
        return
    for name in ("speedup", "k", "batch", "acceptance_length"):
        if getattr(row, name) is None:
            raise ValueError(f"{name}: is missing; give it, or `usable: no` with the reason in left_out")
    assert row.k is not None
    assert row.acceptance_length is not None
    if row.acceptance_length > (most := row.k + 1) + 1e-9:
        raise ValueError(f"acceptance_length: must be at most k + 1 = {most}, got {row.acceptance_length:g}")
    if row.usable == "assumed" and not row.assumed:
        raise ValueError("assumed: is missing; list what was assumed, or say `usable: full`")


@dataclass(frozen=True, slots=True)
class _Kind:
    """How the values of a field are read: from JSON, or from the text of a CSV cell."""

    type: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()

    def value(self, name: str, value: Any) -> Any:
        readers = {"text": self._text, "flag": self._flag, "numbers": self._numbers, "texts": self._texts}
        return readers.get(self.type, self._number)(name, value)

    def _text(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or len(value) > 1_000:
            raise ValueError(f"{name}: must be a text of up to 1,000 characters, got {described(value)}")
        if self.choices and value not in self.choices:
            raise ValueError(f"{name}: must be one of {', '.join(self.choices)}, got {described(value)}")
        return value

    def _flag(self, name: str, value: Any) -> bool:
        known = {"true": True, "false": False}
        flag = known.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(flag, bool):
            raise ValueError(f"{name}: must be true or false, got {described(value)}")
        return flag

    def _number(self, name: str, value: Any) -> float | int:
        whole = self.type == "count"
        try:
            number = number_in(value, low=self.low, high=self.high, whole=whole)
        except ValueError as fault:
            raise ValueError(f"{name}: {fault}") from None
        return int(number) if whole else number

    def _numbers(self, name: str, value: Any) -> tuple[float, ...]:
        parts = value.split("/") if isinstance(value, str) else value
        if not isinstance(parts, list) or not 0 < len(parts) <= 1_000:
            raise ValueError(f"{name}: must be a list of 1 to 1,000 numbers, got {described(value)}")
        return tuple(self._number(name, part) for part in parts)

    def _texts(self, name: str, value: Any) -> tuple[str, ...]:
        parts = [part.strip() for part in value.split(";")] if isinstance(value, str) else value
        if not isinstance(parts, list) or len(parts) > 100:
            raise ValueError(f"{name}: must be a list of at most 100 sentences, got {described(value)}")
        return tuple(self._text(name, part) for part in parts)


_TEXT: Final = _Kind("text")
_DEGREE: Final = _Kind("count", 1, 100_000)
_SECONDS: Final = _Kind("number", 1e-9, 1e6)
_PROBABILITY: Final = _Kind("number", 0, 1)
_KINDS: Final[dict[str, _Kind]] = {field.name: _TEXT for field in fields(MeasuredSpeedup)} | {
    **dict.fromkeys(("graphs", "plain_graphs", "lossy"), _Kind("flag")),
    **dict.fromkeys(("devices", "tp", "dp", "ep", "pp", "dcp"), _DEGREE),
    **dict.fromkeys(("plain_tpot_s", "tpot_s", "pass_s"), _SECONDS),
    **dict.fromkeys(("memory_bytes_per_s", "flops_per_s"), _Kind("number", 1e6, 1e18)),
    "kind": _Kind("text", choices=KINDS),
    "method": _Kind("text", choices=METHODS),
    "k": _Kind("count", 0, 10_000),
    "tree_nodes": _Kind("count", 1, 100_000),
    "drafted_per_step": _Kind("number", 0, 100_000),
    "batch": _Kind("count", 1, 10_000_000),
    "requests_per_s": _Kind("number", 0, 1e9),
    "context": _Kind("number", 0, 1e9),
    "context_basis": _Kind("text", choices=("given", "dataset")),
    "acceptance_length": _Kind("number", 1, 10_001),
    "alpha": _PROBABILITY,
    "survival": _Kind("numbers", 0, 1),
    "speedup": _Kind("number", 1e-3, 1e3),
    "usable": _Kind("text", choices=USABLE),
    "assumed": _Kind("texts"),
}
