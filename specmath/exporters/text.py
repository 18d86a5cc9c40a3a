"""Text on its way out: made harmless, and values that are lists made into one cell."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Final

from specmath.results import Cell

CODE_SPAN: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
"""A command or a name inside a sentence of ours, as in "run `specmath show hardware`"."""

_LONG_FRACTION: Final = re.compile(r"(?<!\w)(?<!\d\.)\d+\.\d{6,}(?!\w|\.\d)", re.ASCII)


def printable(text: str) -> str:
    """One line without control characters, lone surrogates or invisible direction marks.

    Names come from files of other people; a terminal would obey an escape sequence inside one.

    >>> printable("a\\x1b[31mred\\tb")
    'a[31mred b'
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else " " * sign.isspace() for sign in text)


def rounded(text: str) -> str:
    """The text with decimal fractions of six places or more at four digits; data formats keep them all.

    >>> rounded("survival=0.578921568627451/0.25 of 0.5..0.987654321, vllm 0.25.1")
    'survival=0.5789/0.25 of 0.5..0.9877, vllm 0.25.1'
    """
    return _LONG_FRACTION.sub(lambda found: f"{float(found[0]):.4g}", text)


def vector_text(value: Sequence[Any], item: Callable[[Cell], str]) -> str:
    """A list in one cell, as the command line reads it: `0.8/0.7`, pairs as `1-195/300-400`.

    Texts are set apart by semicolons, since a slash is common inside them.

    >>> vector_text([0.8, 0.7], str), vector_text([[1, 195], [300, 400]], str), vector_text(["a/b", "c"], str)
    ('0.8/0.7', '1-195/300-400', 'a/b; c')
    """
    joint = "; " if any(isinstance(part, str) for part in value) else "/"
    return joint.join(
        "-".join(map(item, part)) if isinstance(part, list | tuple) else item(part) for part in value
    )


def screen_width(text: str) -> int:
    """Columns that a line takes on a screen: a CJK sign takes two, a combining mark none.

    >>> screen_width("µs"), screen_width("速度")
    (2, 4)
    """
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) else 1 + (unicodedata.east_asian_width(sign) in "WF")
        for sign in text
    )
