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
from collections.abc import Callable
from errno import EINVAL
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Final, NoReturn

import yaml
from yaml.events import MappingEndEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent, StreamEndEvent

from specmath.errors import AccessError, DataError, shown, shown_path
from specmath.yaml_fields import Fields, Node, kind_of

MAX_BYTES: Final = 2**20
MAX_DEPTH: Final = 16
MAX_KEY: Final = 100
"""Characters of a key."""

_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")


def read_yaml(path: Path) -> Fields:
    """The mapping at the top of a YAML file.

    Raises:
        AccessError: the file cannot be read.
        DataError: it is not strict YAML, or something else than a mapping; names the line.
    """
    where = shown_path(path)
    root = _Composer(_read_text(path, where), where).document()
    if not isinstance(root, dict):
        raise DataError(where, f"must be a mapping of keys to values at the top, got {kind_of(root)}")
    return Fields(root, where)


def yaml_tree(text: str, where: str) -> Node:
    """The tree of a YAML text: mappings, lists, and scalars as they were written."""
    return _Composer(text, where).document()


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
