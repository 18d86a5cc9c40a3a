"""Quantities as people write them, base units as the code computes: the only file that knows prefixes.

Inside specmath a time is in seconds, a size in bytes, a rate per second. Text becomes such a number in
`parse_quantity`, at the edge; a column becomes readable in `display_scale`, one unit for the whole column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isfinite
from typing import Final

from specmath.errors import InputError, shown

DECIMAL: Final = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
BINARY: Final = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
SUBMULTIPLES: Final = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9}

_SCALES: Final[dict[str, dict[str, float]]] = {
    "s": {prefix + "s": factor for prefix, factor in ({"": 1.0} | SUBMULTIPLES).items()},
    "B": {prefix + "B": factor for prefix, factor in (DECIMAL | BINARY).items()},
    "B/s": {prefix + "B/s": factor for prefix, factor in (DECIMAL | BINARY).items()},
    "FLOP/s": {prefix + "FLOP/s": factor for prefix, factor in DECIMAL.items()}
    | {prefix + "OP/s": factor for prefix, factor in DECIMAL.items()}
    | {prefix + "FLOPS": factor for prefix, factor in DECIMAL.items()},
    "tok/s": {prefix + "tok/s": factor for prefix, factor in (DECIMAL | BINARY).items()},
    "W": {prefix + "W": factor for prefix, factor in DECIMAL.items()},
    # A bare count. B is the field's word for 1e9 parameters; K is left out: 1000 or 1024?
    "": DECIMAL | BINARY | {"B": 1e9},
}
_NUMBER: Final = re.compile(r"\s*([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*(\S*)\s*")


def parse_quantity(name: str, text: str, unit: str = "") -> float:
    """A number with an optional unit, in base units. `unit` is what the quantity is measured in.

    Decimal prefixes are powers of 1000 (`8k` is 8,000, `80GB` is 80e9), binary ones say so (`8Ki`,
    `80GiB`). A number without a unit is in base units.

    Raises:
        InputError: naming `name`, for text that is no number, has a unit of another kind, or is a number
            too large or too close to 0 for a float.

    >>> parse_quantity("step", "14.8ms", "s")
    0.0148
    >>> parse_quantity("bandwidth", "3.35 TB/s", "B/s")
    3350000000000.0
    >>> parse_quantity("params", "70B")
    70000000000.0
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise InputError(name, f"{shown(text)} is not a number" + (f" of {unit}" if unit else ""))
    number, suffix = match.groups()
    scales = _SCALES[unit]
    if suffix and suffix not in scales:
        if unit == "" and suffix == "K":
            raise InputError(
                name, f"{shown(text)} is ambiguous; write {number}k for thousands or {number}Ki for 1024s"
            )
        known = ", ".join(key for key in scales if key)
        raise InputError(
            name, f"{shown(text)} has no known unit; use one of {known}, or none for {unit or 'a count'}"
        )
    value = _exact_product(number, scales[suffix] if suffix else 1.0)
    if not isfinite(value):
        raise InputError(name, f"{shown(text)} is too large a number")
    if value == 0 and re.match("[-+.0]*[1-9]", number):
        raise InputError(name, f"{shown(text)} is too close to 0; write 0 if that is meant")
    return value


def _exact_product(number: str, factor: float) -> float:
    """number × factor rounded once, so that 14.8ms is 0.0148 and not 0.014800000000000001."""
    from decimal import Context, Decimal  # imported only when a quantity is typed

    context = Context(prec=50, traps=[])  # no traps: 1e999999999 becomes infinity, at once
    typed = context.create_decimal(number)
    if factor >= 1:
        return float(context.multiply(typed, Decimal(factor)))
    return float(context.divide(typed, Decimal(round(1 / factor))))


def display_scale(values: Iterable[float | None], unit: str) -> tuple[float, str]:
    """One divisor and unit label for a whole column: the largest prefix that keeps its median at least 1.

    >>> display_scale([0.0148, 0.02], "s")
    (0.001, 'ms')
    >>> display_scale([85899345920], "B")
    (1000000000.0, 'GB')
    """
    present = sorted(abs(value) for value in values if value)
    if not present or unit not in ("s", "B", "B/s", "FLOP", "FLOP/s", "tok/s", "W"):
        return 1.0, unit
    prefixes = {"": 1.0, "m": 1e-3, "µ": 1e-6, "n": 1e-9} if unit == "s" else DECIMAL
    middle = present[len(present) // 2]
    fitting = [(factor, prefix) for prefix, factor in prefixes.items() if middle >= factor]
    factor, prefix = max(fitting) if fitting else min((factor, prefix) for prefix, factor in prefixes.items())
    return factor, prefix + unit


def exact_text(value: float) -> str:
    """A number as the shortest text that reads back as it, a whole one without a fraction.

    >>> exact_text(0.7), exact_text(2.00000001), exact_text(16384.0)
    ('0.7', '2.00000001', '16384')
    """
    return repr(value).removesuffix(".0")


def format_significant(value: float, digits: int = 4) -> str:
    """A number with `digits` significant digits, thousands separated, without a trailing fraction of zeros.

    >>> format_significant(2.430271), format_significant(195.1), format_significant(86016.0)
    ('2.43', '195.1', '86,016')
    """
    if value == 0:
        return "0"
    magnitude = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    if magnitude >= digits:
        return f"{value:,.0f}"
    if abs(value) < 1e-4:
        return f"{value:.{digits - 1}g}"
    return f"{value:.{digits}g}"


def format_quantity(value: float, unit: str, digits: int = 4) -> str:
    """A quantity in the prefix that suits it, for a sentence; columns use `display_scale`.

    >>> format_quantity(989.4e12, "FLOP/s"), format_quantity(0.0418, "s")
    ('989.4 TFLOP/s', '41.8 ms')
    """
    factor, label = display_scale([value], unit)
    return f"{format_significant(value / factor, digits)} {label}"
