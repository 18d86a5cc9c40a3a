"""JSON read strictly: repeated fields, deep nesting and numbers of a million digits are refused in one line.

Infinity and NaN are no JSON, yet published files hold them in fields nobody counts with; they pass here and
are refused where a number is read. Every message names the file and the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final

from specmath.errors import DataError, shown

LONGEST_NUMBER: Final = 400
"""Characters of a number; the largest float has 309 digits."""
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_GAP: Final = re.compile(r"[ \t\r\n,]*")


def json_document(text: str, where: str) -> Any:
    """The one value that the text is."""
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise _fault(error, where, 1) from None


def json_lines(text: str, where: str) -> Iterator[tuple[int, Any]]:
    """Line and value of each line that is not blank, as in JSONL."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                value = _DECODER.decode(line)
            except (ValueError, RecursionError) as error:
                raise _fault(error, where, number) from None
            yield number, value


def json_entries(text: str, where: str) -> Iterator[tuple[int, Any]]:
    """Line and value of each entry of the lists, and of each value beside them, wherever lines break.

    >>> list(json_entries("[1,\\n 2]\\n3", "a.json"))
    [(1, 1), (2, 2), (3, 3)]
    """
    line, place = 1, 0
    for start, value in _entries(text, where):
        line, place = line + text.count("\n", place, start), start
        yield line, value


def _entries(text: str, where: str) -> Iterator[tuple[int, Any]]:
    """Place and value of each entry. A list is checked as a whole, then walked for the places."""
    end = 0
    while (start := _end_of(_SPACE, text, end)) < len(text):
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError) as error:
            raise _fault(error, where, 1 + text.count("\n", 0, start)) from None
        if not isinstance(value, list):
            yield start, value
            continue
        place = start + 1
        for entry in value:
            place = _end_of(_GAP, text, place)
            yield place, entry
            _, place = _DECODER.raw_decode(text, place)


def _end_of(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


def _fault(error: ValueError | RecursionError, where: str, line: int) -> DataError:
    """What is wrong, at the line of the fault where the parser knows it, else where the value begins."""
    if isinstance(error, RecursionError):
        return DataError(where, "is nested too deeply", entry=f"line {line}")
    if not isinstance(error, JSONDecodeError):
        return DataError(where, str(error), entry=f"line {line}")
    what = f"{error.msg.lower().removesuffix(' at')} at character {error.colno}"
    line = max(line, error.lineno)
    return DataError(where, f"is no JSON: {what}", entry=f"line {line}")


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = sorted(name for name, _ in pairs)
        twice = next(name for name, following in pairwise(names) if name == following)
        raise ValueError(f"field {shown(twice)} stands twice in one table")
    return table


def _whole(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"{shown(digits)} is too long for a number")
    return int(digits)


_DECODER: Final = JSONDecoder(object_pairs_hook=_table, parse_int=_whole)
