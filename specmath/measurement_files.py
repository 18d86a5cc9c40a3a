"""Measured speed-ups, one object a point: the public ones shipped with the package, or a file of the user's.

The schema is `MeasuredSpeedup`. In JSONL a line is one object, in CSV the header names the fields. Values are
in base units; a field that is not known is left out, null or an empty cell. In a CSV cell a list of numbers
is `a/b/c`, and `;` stands between sentences. A row that cannot be scored stays in the file with `usable: no`
and its reason in `left_out`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

from specmath.accelerator import KINDS
from specmath.acceptance import expected_tokens
from specmath.errors import AccessError, DataError, UnknownNameError, shown, shown_path
from specmath.measured_speedups import METHODS, USABLE, MeasuredSpeedup

PUBLIC: Final = Path(__file__).with_name("measured_speedups.jsonl")
MAX_BYTES: Final = 32 * 2**20
"""Largest file read."""
MAX_ROWS: Final = 100_000
_LONGEST_NUMBER: Final = 400


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
        path: The file; CSV where it ends in .csv.

    Raises:
        AccessError: where it cannot be read.
        DataError: for anything else than such rows; names file, line and field.
    """
    name = str(path)
    where = "stdin" if name == "-" else shown_path(path)
    text = _decoded(
        sys.stdin.buffer.read(MAX_BYTES + 1) if name == "-" else _content(Path(path), where), where
    )
    return _checked_rows(
        _csv_rows(text, where) if name.lower().endswith(".csv") else _json_rows(text, where), where
    )


@cache
def _packaged() -> tuple[MeasuredSpeedup, ...]:
    return read_measurements(PUBLIC)


def _content(path: Path, where: str) -> bytes:
    try:
        if not S_ISREG(path.stat().st_mode):  # a pipe may keep its reader waiting for ever
            raise AccessError(where, "is a folder, pipe or device; name a JSONL or CSV file, or - for stdin")
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "cannot be read"
        raise AccessError(where, f"{reason.lower()}; name a JSONL or CSV file of measurements") from error


def _decoded(content: bytes, where: str) -> str:
    if len(content) > MAX_BYTES:
        raise DataError(where, f"is larger than {MAX_BYTES // 2**20} MiB; split it")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(where, "is no UTF-8 text; expected JSONL or CSV") from None


def _json_rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, **_STRICT)
        except json.JSONDecodeError as error:
            raise DataError(
                where, f"is no JSON object ({error.msg.lower()})", entry=f"line {number}"
            ) from None
        except RecursionError:
            raise DataError(where, "is nested too deeply", entry=f"line {number}") from None
        except ValueError as error:
            raise DataError(where, str(error), entry=f"line {number}") from None
        if not isinstance(row, dict):
            raise DataError(where, f"must be a JSON object, got {shown(row)}", entry=f"line {number}")
        yield number, row


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = sorted(name for name, _ in pairs)
    if twice := [name for name, following in pairwise(names) if name == following]:
        raise ValueError(f"field {shown(twice[0])} stands twice")
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number; leave the field out")


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"{shown(digits)} is too long for a number")
    return int(digits)


_STRICT: Final[dict[str, Any]] = {
    "object_pairs_hook": _without_repeats,
    "parse_constant": _refuse_constant,
    "parse_int": _whole,
}


def _csv_rows(text: str, where: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        _without_repeats([(name, None) for name in header])
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(header):
                raise ValueError(f"has {len(cells)} cells, the header {len(header)}")
            yield reader.line_num, {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
    except (csv.Error, ValueError) as error:
        raise DataError(where, str(error), entry=f"line {max(reader.line_num, 1)}") from None


def _checked_rows(rows: Iterator[tuple[int, Mapping[str, Any]]], where: str) -> tuple[MeasuredSpeedup, ...]:
    found: dict[str, MeasuredSpeedup] = {}
    for number, raw in rows:
        try:
            row = _checked(raw, f"row {number}", where)
            if row.id in found:
                raise ValueError(f"id: {shown(row.id)} stands twice; each row needs its own")
        except ValueError as error:
            raise DataError(where, str(error), entry=f"line {number}") from None
        found[row.id] = row
        if len(found) > MAX_ROWS:
            raise DataError(where, f"has more than {MAX_ROWS:,} rows; split it")
    if not found:
        raise DataError(where, "holds no measurement; give one JSON object a line, or a CSV with a header")
    return tuple(found.values())


def _checked(raw: Mapping[str, Any], default_id: str, where: str) -> MeasuredSpeedup:
    values: dict[str, Any] = {"id": default_id, "source": where}
    for name, value in raw.items():
        if name not in _KINDS:
            raise ValueError(str(UnknownNameError("field", name, _KINDS, f"known are {', '.join(_KINDS)}")))
        if value is not None and value != "":
            values[name] = _KINDS[name].value(name, value)
    _complete(values)
    row = MeasuredSpeedup(**values)
    _require_consistent(row)
    return row


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
            raise ValueError(f"{name}: must be a text of up to 1,000 characters, got {shown(value)}")
        if self.choices and value not in self.choices:
            raise ValueError(f"{name}: must be one of {', '.join(self.choices)}, got {shown(value)}")
        return value

    def _flag(self, name: str, value: Any) -> bool:
        known = {"true": True, "false": False}
        flag = known.get(value.lower()) if isinstance(value, str) else value
        if not isinstance(flag, bool):
            raise ValueError(f"{name}: must be true or false, got {shown(value)}")
        return flag

    def _number(self, name: str, value: Any) -> float | int:
        number = _as_float(value)
        whole = self.type == "count"
        if number is None or not self.low <= number <= self.high or (whole and not number.is_integer()):
            kind = "a whole number" if whole else "a number"
            raise ValueError(f"{name}: must be {kind} from {self.low:g} to {self.high:g}, got {shown(value)}")
        return int(number) if whole else number

    def _numbers(self, name: str, value: Any) -> tuple[float, ...]:
        parts = value.split("/") if isinstance(value, str) else value
        if not isinstance(parts, list) or not 0 < len(parts) <= 1_000:
            raise ValueError(f"{name}: must be a list of 1 to 1,000 numbers, got {shown(value)}")
        return tuple(self._number(name, part) for part in parts)

    def _texts(self, name: str, value: Any) -> tuple[str, ...]:
        parts = [part.strip() for part in value.split(";")] if isinstance(value, str) else value
        if not isinstance(parts, list) or len(parts) > 100:
            raise ValueError(f"{name}: must be a list of at most 100 sentences, got {shown(value)}")
        return tuple(self._text(name, part) for part in parts)


def _as_float(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


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
