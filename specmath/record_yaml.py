"""Records of plain fields as strict YAML: one line each, and read back by the types of their fields.

Numbers are written so that YAML 1.1 and 1.2 read them as numbers (1.0e-06, never 1e-06), and so that the
float read is the float written. A field at its default is left out.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, Final, TypeVar

from specmath.checks import MAX_COUNT
from specmath.errors import DataError, InputError
from specmath.yaml_fields import MAX_TEXT, Fields

LINE: Final = 88
"""Characters from which a list of numbers goes on in another line."""
_PLAIN_KEY: Final = re.compile("[a-z][a-z0-9_-]{2,}")
_NOT_A_KEY: Final = frozenset({"yes", "off", "true", "false", "null"})
Record = TypeVar("Record")


def number_text(value: float) -> str:
    """A number as any reader of YAML takes it for one; null where it is none.

    >>> number_text(1e-6), number_text(3), number_text(0.25), number_text(float("nan"))
    ('1.0e-06', '3', '0.25', 'null')
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "null"
    text = repr(value)
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def value_text(value: object) -> str:
    """A number, a truth value, a text in quotes, or a list of them, on one line.

    >>> value_text("two\\nlines"), value_text(True), value_text((1, 0.5))
    ('"two lines"', 'true', '[1, 0.5]')
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return number_text(value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return json.dumps(readable(str(value)), ensure_ascii=False)


def readable(text: str) -> str:
    """A text as strict YAML takes it: one line, printable, not empty, not too long.

    >>> readable("an  H100\\x1b"), readable("")
    ('an H100?', '-')
    """
    plain = "".join(one if one.isprintable() else "?" for one in " ".join(text.split()))
    return (plain if len(plain) <= MAX_TEXT else plain[: MAX_TEXT - 1] + "…") or "-"


def key_text(key: str) -> str:
    """A key, in quotes where a reader of YAML might take it for something else."""
    return key if _PLAIN_KEY.fullmatch(key) and key not in _NOT_A_KEY else value_text(key[:100])


def record_text(record: Any, *, without: Sequence[str] = ()) -> str:
    """The fields of a record on one line, those at their default left out.

    >>> from specmath.pass_laws import HostLaw
    >>> record_text(HostLaw(fixed_s=1e-6))
    '{fixed_s: 1.0e-06}'
    """
    values = {one.name: getattr(record, one.name) for one in fields(record) if one.name not in without}
    defaults = {one.name: one.default for one in fields(record)}
    told = (f"{name}: {value_text(value)}" for name, value in values.items() if value != defaults[name])
    return "{" + ", ".join(told) + "}"


def numbers_text(values: Sequence[float], indent: int) -> str:
    """A list of numbers, over several lines where it is long."""
    lines, start = [""], " " * indent
    for text in map(number_text, values):
        if lines[-1] and len(start) + len(lines[-1]) + len(text) + 3 > LINE:
            lines.append("")
        lines[-1] += f"{text}, "
    return f"[{f'{chr(10)}{start}'.join(line.rstrip() for line in lines).rstrip(',')}]"


def read_record(kind: type[Record], section: Fields, *, without: Mapping[str, Any] | None = None) -> Record:
    """The record of a section: each field by its type, within what its name allows.

    Args:
        kind: A dataclass whose annotations are texts.
        section: The keys.
        without: Fields that the section does not hold, with their values.

    Raises:
        DataError: for a key that is no field, a field that is missing, or a value out of place.
    """
    given = dict(without or {})
    own = [one for one in fields(kind) if one.name not in given]  # type: ignore[arg-type]
    section.only([one.name for one in own])
    for one in own:
        if one.name in section:
            given[one.name] = _READERS[str(one.type)](section, one.name)
            _require_within(section, one.name, given[one.name])
        elif one.default is MISSING and str(one.type).endswith("| None"):
            given[one.name] = None
        elif one.default is MISSING:
            raise section.error(one.name, "is missing")
    try:
        return kind(**given)
    except InputError as fault:
        raise section.error(fault.name, fault.problem) from fault


def _require_within(section: Fields, name: str, value: Any) -> None:
    least, most = LIMITS.get(name, (-math.inf, math.inf))
    for one in value if isinstance(value, tuple) else (value,):
        if isinstance(one, float | int) and not math.isnan(one) and not least <= one <= most:
            raise out_of_range(section, name, one)


def out_of_range(section: Fields, name: str, value: float) -> DataError:
    """The fault of a number that its name does not allow."""
    least, most = LIMITS[name]
    allowed = f"must be between {least:g} and {most:g}"
    return section.error(name, f"{allowed}, got {value:g}")


def count(section: Fields, name: str) -> int:
    """A whole number that is there."""
    value = section.optional_count(name)
    if value is None:
        raise section.error(name, "is missing")
    return value


def _counts(section: Fields, name: str) -> tuple[int, ...]:
    values = section.numbers(name)
    for value in values:
        if not float(value).is_integer():
            raise section.error(name, f"must be whole numbers, got {value:g}")
    return tuple(map(int, values))


def _pair(section: Fields, name: str) -> tuple[int, ...]:
    values = _counts(section, name)
    if len(values) != 2 or not 0 < values[1] <= values[0]:
        raise section.error(
            name, f"must be two numbers, routed experts and those visited, got {list(values)}"
        )
    return values


_READERS: Final[dict[str, Callable[[Fields, str], Any]]] = {
    "str": Fields.text,
    "float": Fields.number,
    "float | None": Fields.number,
    "int": count,
    "int | None": count,
    "bool": Fields.flag,
    "tuple[int, ...]": _counts,
    "tuple[int, int] | None": _pair,
    "tuple[float, ...]": Fields.numbers,
}
"""How a field is read, by its annotation."""
_SECONDS: Final = (1e-9, 1e5)
LIMITS: Final[dict[str, tuple[float, float]]] = {
    **dict.fromkeys(("seconds", "low_s", "high_s", "plain_s", "step_s", "speculative_s"), _SECONDS),
    **dict.fromkeys(("predicted_plain_s", "predicted_step_s"), _SECONDS),
    **dict.fromkeys(("intercept_s", "slope_s"), (-1e5, 1e5)),
    **dict.fromkeys(("alpha", "alpha_low", "alpha_high", "match_rate", "top_p"), (0, 1)),
    **dict.fromkeys(("positions", "requests", "drafts", "accepted_at"), (0, MAX_COUNT)),
    **dict.fromkeys(("repeats", "batch", "width", "last_captured_tokens"), (1, 1e9)),
    **dict.fromkeys(("value", "standard_error", "largest_share", "ratio"), (0, 1e9)),
    **dict.fromkeys(("weights_s", "compute_s_per_token", "kv_s_per_token", "fixed_s"), (0, 1e5)),
    **dict.fromkeys(("experts_s", "single_token_s", "round_s", "s_per_sequence", "s_per_token"), (0, 1e5)),
    "context": (0, 1e9),
    "temperature": (0, 100),
    "acceptance_length": (1, 10_001),
    "k": (1, 10_000),
}
"""Least and most of a number, by the name of its field."""
