"""Values as they are typed on a command line: lists, ranges, vectors, records, straight lines.

    1,4,16          a list                      .8/.7/.6      a vector: several numbers, one value
    1:256:x2        a range, times 2            k=3,batch=8   a record
    0.5:0.9:0.1     a range, in steps of 0.1    1+.05k        a straight line in k
    1:8             a range, in steps of 1

The end of a range belongs to it where the steps meet it. A number may have a unit (`1k:16k:x2`, `14.8ms`).
Every function raises InputError, in one line with a right example, for whatever it cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import chain, islice
from math import lcm, log
from typing import Final, Literal, overload

from specmath.errors import InputError
from specmath.units import parse_quantity

_RECORDS: Final = {
    "alpha_at": "2k=.62,16k=.10",
    "batches": "1=.2,8=.5,64=.3",
    "draft": "llama-3.2-1b,k=4,alpha=.7",
    "choice": "temperature=1,rule=rejection",
    "measured": "k=4,batch=8,speedup=1.7",
}
"""A record of each parameter as an example."""
MAX_VALUES: Final = 10_000_000
"""Longest axis that is read."""
_LONGEST_NUMBER: Final = 64
_NUMBER: Final = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_LINE: Final = re.compile(rf"([+-]?{_NUMBER})(?:([+-]{_NUMBER})\*?k)?", re.ASCII)


@overload
def parse_axis(name: str, text: str, unit: str = "", whole: Literal[False] = False) -> list[float]: ...
@overload
def parse_axis(name: str, text: str, unit: str = "", *, whole: Literal[True]) -> list[int]: ...
def parse_axis(name: str, text: str, unit: str = "", whole: bool = False) -> list[float] | list[int]:
    """The values of an axis in the order typed, repeats dropped, in base units.

    Args:
        name: The parameter the values are for.
        text: Values, ranges `first:last`, `first:last:step`, `first:last:xfactor`, or several with commas.
        unit: What the values are measured in (`s`, `B/s`), empty for a pure number.
        whole: Whether the values must be whole; they are then ints.

    Raises:
        InputError: for what is no number, a range without end or backwards, more than 10 million values.

    >>> parse_axis("alpha", "0.5:0.9:0.1")
    [0.5, 0.6, 0.7, 0.8, 0.9]
    >>> parse_axis("batch", "1,2,4:64:x4", whole=True)
    [1, 2, 4, 16, 64]
    >>> parse_axis("step", "14.8ms,1", "s")
    [0.0148, 1.0]
    """
    items = [item.strip() for item in text.split(",")]
    try:
        found = chain.from_iterable(_item_values(name, item, unit) for item in items)
        values = list(islice(found, MAX_VALUES + 1))
        _refuse_endless(name, text, len(values) - 1)
        distinct = values if len(items) == 1 else list(dict.fromkeys(values))
        return [_whole(name, value) for value in distinct] if whole else distinct
    except InputError as fault:
        raise InputError(name, f"{fault.problem}; for example {_example(unit, whole)}") from None


def parse_vector(name: str, text: str) -> tuple[float, ...]:
    """The numbers of a vector.

    >>> parse_vector("rates", ".8/.7/.6")
    (0.8, 0.7, 0.6)
    """
    try:
        return tuple(_number(name, part.strip()) for part in text.split("/"))
    except InputError as fault:
        raise InputError(name, f"{fault.problem}; for example .8/.7/.6") from None


def parse_record(name: str, text: str, fields: Collection[str] | None = None) -> dict[str, str]:
    """The values of a record by key, as text.

    Args:
        name: The parameter the record is for.
        text: `key=value` pairs with commas between them.
        fields: The keys allowed; a dash in the text stands for their underscore. None allows any key.

    >>> parse_record("alpha_at", "2k=.62,16k=.10")
    {'2k': '.62', '16k': '.10'}
    >>> parse_record("measured", "acceptance-length=2.8", ["k", "acceptance_length"])
    {'acceptance_length': '2.8'}
    """
    record: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not (key and equals and value):
            raise InputError(name, f"{_quoted(pair)} is no key=value pair; for example {_pairs(name)}")
        if fields is not None:
            key = key.replace("-", "_")
        if fields is not None and key not in fields:
            known = ", ".join(fields).replace("_", "-")
            raise InputError(name, f"unknown key {_quoted(key)}; use {known}, as in {_pairs(name)}")
        if key in record:
            raise InputError(name, f"{_quoted(key)} is given twice; keep one, as in {_pairs(name)}")
        record[key] = value
    return record


def parse_linear(name: str, text: str) -> tuple[float, float]:
    """Intercept and slope of a quantity that is a number or grows with k.

    >>> parse_linear("verify_cost", "1+.05k"), parse_linear("verify_cost", "1.2")
    ((1.0, 0.05), (1.2, 0.0))
    """
    match = _LINE.fullmatch("".join(text.split()))
    try:
        if match is None:
            raise InputError(name, f"{_quoted(text)} is neither a number nor a line in k")
        intercept, slope = (_number(name, part or "0") for part in match.groups())
    except InputError as fault:
        raise InputError(name, f"{fault.problem}; for example 1.2 or 1+.05k") from None
    return intercept, slope


def _item_values(name: str, item: str, unit: str) -> Iterator[float]:
    first, *rest = (part.strip() for part in item.split(":"))
    if not rest:
        return iter([_number(name, first, unit)])
    if len(rest) > 2:
        raise InputError(name, f"{_quoted(item)} has more parts than first:last:step")
    low, high = _number(name, first, unit), _number(name, rest[0], unit)
    if low > high:
        raise InputError(name, f"{_quoted(item)} runs backwards, the smaller end comes first")
    if len(rest) == 1 and not (low.is_integer() and high.is_integer()):
        raise InputError(name, f"{_quoted(item)} needs a step")
    step = rest[1] if len(rest) == 2 else "1"
    if step.startswith("x"):
        return _geometric(name, item, (low, high, _number(name, step[1:])))
    return _arithmetic(name, item, (low, high, _number(name, step, unit)))


def _arithmetic(name: str, item: str, numbers: tuple[float, float, float]) -> Iterator[float]:
    """low, low + step, … in exact decimals, each rounded once: 0.7, never 0.7000000000000001."""
    from decimal import Decimal  # here and below: only a range pays for the import

    low, high, step = numbers
    if step <= 0:
        raise InputError(name, f"{_quoted(item)} needs a step above 0")
    _refuse_endless(name, item, (high - low) / step)
    ratios = [Decimal(repr(number)).as_integer_ratio() for number in numbers]
    scale = lcm(*(denominator for _, denominator in ratios))
    start, stop, stride = (numerator * (scale // denominator) for numerator, denominator in ratios)
    for place in range(start, stop + 1, stride):
        yield place / scale


def _geometric(name: str, item: str, numbers: tuple[float, float, float]) -> Iterator[float]:
    from decimal import Context, Decimal

    low, high, factor = numbers
    if factor <= 1 or low <= 0:
        raise InputError(name, f"{_quoted(item)} needs a factor above 1 and a start above 0")
    _refuse_endless(name, item, (log(high) - log(low)) / log(factor))
    exact = Context(prec=50)
    value, end, times = (Decimal(repr(number)) for number in numbers)
    while value <= end:
        yield float(value)
        value = exact.multiply(value, times)


def _refuse_endless(name: str, text: str, steps: float) -> None:
    if steps >= MAX_VALUES:
        raise InputError(name, f"{_quoted(text)} has more than {MAX_VALUES:,} values")


def _number(name: str, text: str, unit: str = "") -> float:
    if not text:
        raise InputError(name, "a value is missing")
    if len(text) > _LONGEST_NUMBER:
        raise InputError(name, f"{_quoted(text)} is too long for a number")
    if re.match(r"[+-]?0\d", text):
        raise InputError(name, f"{_quoted(text)} begins with a zero; write thousands without a comma, 1024")
    return parse_quantity(name, text, unit)


def _whole(name: str, value: float) -> int:
    if not value.is_integer():
        raise InputError(name, f"{value} is not a whole number")
    return int(value)


def _example(unit: str, whole: bool) -> str:
    if unit == "s":
        return "14.8ms or 10ms:50ms:10ms"
    return "1,4,16 or 1:256:x2" if whole or unit else "0.7 or 0.5:0.9:0.1"


def _pairs(name: str) -> str:
    """Pairs as they may be typed for a record."""
    return _RECORDS.get(name, "key=value,key=value")


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_NUMBER else text[: _LONGEST_NUMBER - 1] + "…")
