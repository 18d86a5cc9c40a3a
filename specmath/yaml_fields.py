"""The keys of strict YAML, each read with the type that the caller asks for.

A value is the text that was written until somebody asks for a number or a name; `specmath.strict_yaml` makes
the tree.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from math import isfinite, nan
from typing import Final

from yaml.events import ScalarEvent

from specmath.errors import DataError, InputError, shown
from specmath.units import parse_quantity

MAX_TEXT: Final = 500
MAX_NUMBER: Final = 60
"""Characters of a text, a number or quantity."""

Node = ScalarEvent | dict[str, "Node"] | list["Node"]

_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_NUMBER: Final = re.compile(  # what YAML 1.1 reads as a decimal number
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|0|[1-9][0-9_]*)|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
)
_DATE: Final = re.compile("[0-9]{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)?")
_LOOKALIKE: Final = re.compile(r"([-+]?)([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE]([-+]?)([0-9]+))?")


class Fields:
    """The keys of one mapping, each read with the type that the caller asks for.

    An error names the file, the entry and the field. A key whose value is null counts as missing.
    """

    __slots__ = ("_nodes", "_prefix", "entry", "where")

    def __init__(self, nodes: dict[str, Node], where: str, entry: str = "", prefix: str = "") -> None:
        self._nodes = nodes
        self._prefix = prefix
        self.where = where
        self.entry = entry

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._nodes if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: str) -> bool:
        node = self._nodes.get(key)
        return node is not None and not is_null(node)

    def error(self, key: str, problem: str) -> DataError:
        """A DataError about this field."""
        return DataError(self.where, f"{self._prefix}{key}: {problem}", entry=self.entry)

    def only(self, known: Collection[str]) -> None:
        """Refuse the first key that is not in `known`, naming the key it is close to."""
        stray = next((key for key in self._nodes if key not in known), None)
        if stray is not None:
            from difflib import get_close_matches  # only an error pays for this import

            near = get_close_matches(stray, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
            raise self.error(stray, f"unknown key; {hint}")

    def text(self, key: str) -> str:
        """The value as it was written, on one line."""
        return self._text(key, self._node(key))

    def optional_text(self, key: str) -> str | None:
        """The same, None where the key is missing."""
        return self.text(key) if key in self else None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty where the key is missing."""
        return tuple(self._text(key, node) for node in self._list(key))

    def number(self, key: str, unit: str = "") -> float:
        """A finite number in base units, written as a number or as a quantity with its unit (`80 GiB`)."""
        return self._number(key, self._node(key), unit)

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of finite numbers, NaN where null is written; empty where the key is missing."""
        return tuple(
            nan if is_null(node) else self._number(f"{key} {place}", node, "")
            for place, node in enumerate(self._list(key), start=1)
        )

    def rows(self, key: str, width: int) -> tuple[tuple[float, ...], ...]:
        """A list of lists of `width` finite numbers; empty where the key is missing."""
        return tuple(
            self._row(f"{key} {place}", node, width) for place, node in enumerate(self._list(key), 1)
        )

    def value(self, key: str) -> str | float | int:
        """A number where one is written, whole where it has no point; else the text."""
        node = self._node(key)
        plain = isinstance(node, ScalarEvent) and node.implicit[0] and bool(_NUMBER.fullmatch(node.value))
        if not plain:
            return self.text(key)
        number = self.number(key)
        return number if "." in self.text(key) else int(number)

    def optional_number(self, key: str, unit: str = "") -> float | None:
        """The same, None where the key is missing."""
        return self.number(key, unit) if key in self else None

    def optional_count(self, key: str) -> int | None:
        """A whole number, None where the key is missing."""
        number = self.optional_number(key)
        if number is not None and number % 1:
            raise self.error(key, f"must be a whole number, got {number:g}")
        return None if number is None else int(number)

    def flag(self, key: str) -> bool:
        """A truth value, written true or false."""
        text = self.text(key)
        if text not in ("true", "false"):
            raise self.error(key, f"must be true or false, got {shown(text)}")
        return text == "true"

    def optional_date(self, key: str) -> str | None:
        """A date, of a day or of a month, as it was written; None where the key is missing."""
        date = self.optional_text(key)
        if date is not None and not _DATE.fullmatch(date):
            raise self.error(key, f"must be a date like 2026-11 or 2026-11-30, got {shown(date)}")
        return date

    def section(self, key: str) -> Fields:
        """A mapping inside this one; its errors name this key before their own."""
        return self._mapping(key, self._node(key), self.entry, f"{self._prefix}{key}.")

    def optional_section(self, key: str) -> Fields:
        """The same, without keys where the key is missing."""
        return self.section(key) if key in self else Fields({}, self.where, self.entry)

    def sections(self, key: str) -> tuple[Fields, ...]:
        """A list of mappings; empty where the key is missing."""
        return tuple(
            self._mapping(key, node, self.entry, f"{self._prefix}{key} {number}: ")
            for number, node in enumerate(self._list(key), start=1)
        )

    def named(self, key: str) -> Fields:
        """A mapping inside this one that is an entry of its own: its errors name the entry."""
        return self._mapping(key, self._node(key), key, "")

    def part(self, keys: Collection[str]) -> Fields:
        """Those of the keys that are among these."""
        nodes = {key: node for key, node in self._nodes.items() if key in keys}
        return Fields(nodes, self.where, self.entry, self._prefix)

    def over(self, base: Fields, *, without: Collection[str] = ()) -> Fields:
        """These keys on top of those of `base`, mappings merged key by key; errors name this place."""
        lower = {key: node for key, node in base._nodes.items() if key not in without}
        return Fields(_merged(lower, self._nodes), self.where, self.entry, self._prefix)

    def _node(self, key: str) -> Node:
        if key not in self:
            raise self.error(key, "is missing")
        return self._nodes[key]

    def _number(self, key: str, node: Node, unit: str) -> float:
        if not isinstance(node, ScalarEvent):
            raise self.error(key, f"must be a number, got {kind_of(node)}")
        text = node.value.strip()
        if len(text) > MAX_NUMBER:
            raise self.error(key, f"must be a number, got {shown(text)}")
        plain = node.implicit[0]
        if plain and _NUMBER.fullmatch(text):
            value = float(text.replace("_", ""))
        elif lookalike := _LOOKALIKE.fullmatch(text):
            raise self.error(key, _spelling_problem(text, lookalike, quoted=not plain))
        else:
            value = self._quantity(key, text, unit)
        if not isfinite(value):
            raise self.error(key, f"must be finite, got {text}")
        return value

    def _row(self, key: str, node: Node, width: int) -> tuple[float, ...]:
        if not isinstance(node, list) or len(node) != width:
            count = f"a list of {len(node)}" if isinstance(node, list) else kind_of(node)
            raise self.error(key, f"must be a list of {width} numbers, got {count}")
        return tuple(self._number(key, one, "") for one in node)

    def _text(self, key: str, node: Node) -> str:
        if not isinstance(node, ScalarEvent) or is_null(node):
            raise self.error(key, f"must be a text, got {kind_of(node)}")
        text = " ".join(node.value.split())
        if not text or not text.isprintable():
            raise self.error(key, f"must be a text of printable characters, got {shown(text)}")
        if len(text) > MAX_TEXT:
            raise self.error(key, f"must have at most {MAX_TEXT} characters, got {len(text)}")
        return text

    def _list(self, key: str) -> list[Node]:
        node = self._node(key) if key in self else []
        if not isinstance(node, list):
            raise self.error(key, f"must be a list, got {kind_of(node)}")
        return node

    def _mapping(self, key: str, node: Node, entry: str, prefix: str) -> Fields:
        if not isinstance(node, dict):
            raise self.error(key, f"must be a mapping of keys to values, got {kind_of(node)}")
        return Fields(node, self.where, entry, prefix)

    def _quantity(self, key: str, text: str, unit: str) -> float:
        try:
            return parse_quantity(key, text, unit)
        except InputError as error:
            raise self.error(key, error.problem) from error


def is_null(node: Node) -> bool:
    """Whether nothing is written: null, ~ or an empty place."""
    return isinstance(node, ScalarEvent) and node.implicit[0] and node.value in _NULLS


def kind_of(node: Node) -> str:
    """What a node is, for an error line."""
    if isinstance(node, dict):
        return "a mapping"
    if isinstance(node, list):
        return "a list"
    return "nothing" if is_null(node) else shown(node.value)


def _merged(lower: dict[str, Node], upper: dict[str, Node]) -> dict[str, Node]:
    merged = dict(lower)
    for key, node in upper.items():
        match merged.get(key), node:
            case dict(below), dict(above):
                merged[key] = _merged(below, above)
            case _:
                merged[key] = node
    return merged


def _spelling_problem(text: str, lookalike: re.Match[str], *, quoted: bool) -> str:
    """Why YAML 1.1 takes what looks like a number for something else, and how to write the number.

    >>> _spelling_problem("125e12", _LOOKALIKE.fullmatch("125e12"), quoted=False)
    'YAML 1.1 reads 125e12 as text; write 125.0e+12'
    """
    sign, digits, exponent_sign, exponent = lookalike.groups()
    digits = digits.lstrip("0_") or "0"
    right = sign + (f"0{digits}" if digits.startswith(".") else digits)
    if exponent is not None:
        right += f"{'' if '.' in digits else '.0'}e{exponent_sign or '+'}{exponent}"
    if quoted:
        return f"{text!r} is text, because of its quotes; write {right}"
    kind = "text" if exponent or "." in digits else "an octal number"
    return f"YAML 1.1 reads {text} as {kind}; write {right}"
