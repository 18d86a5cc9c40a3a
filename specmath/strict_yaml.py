"""YAML read strictly, and read once: plain mappings, lists and texts that know where they stand.

A file is refused for what makes YAML surprising or dangerous: a key given twice, anchors and aliases (the
billion laughs), merge keys, tags, several documents, deep nesting, control characters, more than 1 MiB. The
tree is built from the parser's events, without PyYAML's guesses about types: a value stays the text that
was written until somebody asks for a number or a name. That is strict (nothing turns into a date or a
truth value by itself) and twice as fast as a load, since only the values asked for are converted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from errno import EINVAL
from math import isfinite
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Final, NoReturn

import yaml
from yaml.events import MappingEndEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent, StreamEndEvent

from specmath.errors import AccessError, DataError, InputError, shown, shown_path
from specmath.units import parse_quantity

MAX_BYTES: Final = 2**20
MAX_DEPTH: Final = 16
MAX_KEY: Final = 100
MAX_TEXT: Final = 500
MAX_NUMBER: Final = 60
"""Characters of a key, a text, a number or quantity."""

Node = ScalarEvent | dict[str, "Node"] | list["Node"]

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})
_NUMBER: Final = re.compile(  # what YAML 1.1 reads as a decimal number
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|0|[1-9][0-9_]*)|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?"
)
_DATE: Final = re.compile("[0-9]{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12][0-9]|3[01]))?)?")
_LOOKALIKE: Final = re.compile(r"([-+]?)([0-9][0-9_]*\.?[0-9_]*|\.[0-9][0-9_]*)(?:[eE]([-+]?)([0-9]+))?")


def read_yaml(path: Path) -> Fields:
    """The mapping at the top of a YAML file.

    Raises:
        AccessError: the file cannot be read.
        DataError: it is not strict YAML, or something else than a mapping; names the line.
    """
    where = shown_path(path)
    root = _Composer(_read_text(path, where), where).document()
    if not isinstance(root, dict):
        raise DataError(where, f"must be a mapping of keys to values at the top, got {_kind(root)}")
    return Fields(root, where)


def yaml_tree(text: str, where: str) -> Node:
    """The tree of a YAML text: mappings, lists, and scalars as they were written."""
    return _Composer(text, where).document()


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
        return node is not None and not _is_null(node)

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
        node = self._node(key)
        if not isinstance(node, ScalarEvent):
            raise self.error(key, f"must be a number, got {_kind(node)}")
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

    def optional_number(self, key: str, unit: str = "") -> float | None:
        """The same, None where the key is missing."""
        return self.number(key, unit) if key in self else None

    def optional_count(self, key: str) -> int | None:
        """A whole number, None where the key is missing."""
        number = self.optional_number(key)
        if number is not None and number % 1:
            raise self.error(key, f"must be a whole number, got {number:g}")
        return None if number is None else int(number)

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

    def over(self, base: Fields, *, without: Collection[str] = ()) -> Fields:
        """These keys on top of those of `base`, mappings merged key by key; errors name this place."""
        lower = {key: node for key, node in base._nodes.items() if key not in without}
        return Fields(_merged(lower, self._nodes), self.where, self.entry, self._prefix)

    def _node(self, key: str) -> Node:
        if key not in self:
            raise self.error(key, "is missing")
        return self._nodes[key]

    def _text(self, key: str, node: Node) -> str:
        if not isinstance(node, ScalarEvent) or _is_null(node):
            raise self.error(key, f"must be a text, got {_kind(node)}")
        text = " ".join(node.value.split())
        if not text or not text.isprintable():
            raise self.error(key, f"must be a text of printable characters, got {shown(text)}")
        if len(text) > MAX_TEXT:
            raise self.error(key, f"must have at most {MAX_TEXT} characters, got {len(text)}")
        return text

    def _list(self, key: str) -> list[Node]:
        node = self._node(key) if key in self else []
        if not isinstance(node, list):
            raise self.error(key, f"must be a list, got {_kind(node)}")
        return node

    def _mapping(self, key: str, node: Node, entry: str, prefix: str) -> Fields:
        if not isinstance(node, dict):
            raise self.error(key, f"must be a mapping of keys to values, got {_kind(node)}")
        return Fields(node, self.where, entry, prefix)

    def _quantity(self, key: str, text: str, unit: str) -> float:
        try:
            return parse_quantity(key, text, unit)
        except InputError as error:
            raise self.error(key, error.problem) from error


class _Composer:
    """Builds the tree of one document from the parser's events, and refuses what is not strict."""

    def __init__(self, text: str, where: str) -> None:
        loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
        self._next: Callable[[], Any] = loader(text).get_event  # the stubs know no field of an event
        self._where = where

    def document(self) -> Node:
        try:
            self._next()  # the start of the stream
            if isinstance(start := self._next(), StreamEndEvent):
                raise DataError(self._where, "is empty")
            root = self._compose(self._next(), 0)
            self._next()  # the end of the document
            if not isinstance(start := self._next(), StreamEndEvent):
                self._refuse(start, "a second document starts here; one file is one document")
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = f"line {mark.line + 1}: " if mark else ""
            problem = (getattr(error, "problem", None) or str(error).splitlines()[0])[:120]
            raise DataError(self._where, f"{line}not YAML: {problem}") from error
        return root

    def _compose(self, event: Any, depth: int) -> Node:
        if event.anchor is not None:  # of an alias too
            self._refuse(event, "anchors and aliases (&, *) are not read; write the value out")
        if event.tag is not None:
            self._refuse(event, f"tags ({shown(event.tag)}) are not read; write the plain value")
        if type(event) is ScalarEvent:
            return event
        if depth == MAX_DEPTH:
            self._refuse(event, f"nested more than {MAX_DEPTH} levels deep")
        return self._sequence(depth) if type(event) is SequenceStartEvent else self._mapping(depth)

    def _sequence(self, depth: int) -> list[Node]:
        nodes: list[Node] = []
        while type(event := self._next()) is not SequenceEndEvent:
            nodes.append(self._compose(event, depth + 1))
        return nodes

    def _mapping(self, depth: int) -> dict[str, Node]:
        nodes: dict[str, Node] = {}
        while type(event := self._next()) is not MappingEndEvent:
            key = event.value if type(event) is ScalarEvent else ""
            if not key or not key.isprintable():
                self._refuse(event, "a key must be a text of printable characters")
            if len(key) > MAX_KEY:
                self._refuse(event, f"a key must have at most {MAX_KEY} characters, got {len(key)}")
            if key in nodes:
                self._refuse(event, f"key {key!r} is given twice")
            if key == "<<":
                self._refuse(event, "merge keys (<<) are not read; write the keys out")
            if event.anchor is not None or event.tag is not None:
                self._compose(event, depth)  # refuses it
            value = self._next()
            plain = type(value) is ScalarEvent and value.anchor is None and value.tag is None
            nodes[key] = value if plain else self._compose(value, depth + 1)
        return nodes

    def _refuse(self, event: Any, problem: str) -> NoReturn:
        raise DataError(self._where, f"line {event.start_mark.line + 1}: {problem}")


def _read_text(path: Path, where: str) -> str:
    try:
        raw = _regular_bytes(path)
    except (OSError, ValueError) as error:  # the latter for a NUL in the name
        problem = getattr(error, "strerror", None) or str(error)
        raise AccessError(where, f"cannot be read: {problem.lower()}") from error
    if len(raw) > MAX_BYTES:
        raise DataError(where, f"is larger than {MAX_BYTES // 2**20} MiB; split it into several files")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(where, f"line {line}: is not UTF-8; save the file as UTF-8") from error
    if bad := _CONTROL.search(text):
        line = text.count("\n", 0, bad.start()) + 1
        raise DataError(where, f"line {line}: contains the control character U+{ord(bad.group()):04X}")
    return text


def _regular_bytes(path: Path) -> bytes:
    """At most MAX_BYTES + 1 bytes of a regular file: a pipe may keep its reader waiting for ever."""
    _require_regular(path.stat())  # before it is opened, which some devices answer with an action
    with open(path, "rb", opener=_without_waiting) as stream:
        _require_regular(os.fstat(stream.fileno()))  # the name may mean another file by now
        return stream.read(MAX_BYTES + 1)


def _require_regular(status: os.stat_result) -> None:
    if not S_ISREG(status.st_mode):
        kind = "is a directory" if S_ISDIR(status.st_mode) else "is a pipe or device"
        raise OSError(EINVAL, f"{kind}; name a regular file")


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarEvent) and node.implicit[0] and node.value in _NULLS


def _kind(node: Node) -> str:
    if isinstance(node, dict):
        return "a mapping"
    if isinstance(node, list):
        return "a list"
    return "nothing" if _is_null(node) else shown(node.value)


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
