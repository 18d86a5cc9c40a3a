"""Arguments of a server as people paste them: a command line, its flags alone, or a YAML file of them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from specmath.compatibility.plain_text import plain_document, typed_text
from specmath.errors import DataError, InputError, shown
from specmath.row_files import number_in

MAX_TEXT: Final = 2**16
MOST: Final = 2**53
_FLAG: Final = re.compile(r"--?[A-Za-z][A-Za-z0-9._\-]{0,120}")
_SETTING: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,100})=(.*)", re.DOTALL)
_KEY: Final = re.compile(r"[ \t]*[{'\" \t]{0,4}[A-Za-z_][\w\-]{0,100}['\"]?[ \t]*:([ \t]|$)", re.MULTILINE)
_COMMANDS: Final = {
    "vllm": ("vllm", "vllm.entrypoints"),
    "sglang": ("sglang", "sglang.launch_server"),
    "tensorrt-llm": ("trtllm-serve", "trtllm-llmapi-launch"),
    "llama.cpp": ("llama-server", "llama-cli", "llama-speculative"),
    "lmdeploy": ("lmdeploy",),
    "tgi": ("text-generation-launcher",),
    "mlx": ("mlx_lm.server", "mlx_lm.generate"),
}


@dataclass(frozen=True, slots=True)
class Arguments:
    """The flags of a server, in the order in which they stand.

    Attributes:
        flags: Words after each flag, by its name without dashes in front and with dashes inside.
        environment: Variables set in front of the command.
        words: Words before the first flag.
    """

    flags: Mapping[str, tuple[str, ...]]
    environment: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()

    def has(self, *names: str) -> bool:
        """Whether one of the flags is given."""
        return any(name in self.flags for name in names)

    def text(self, *names: str) -> str | None:
        """What follows the first of these flags that is given; empty for a switch."""
        return next((" ".join(self.flags[name]) for name in names if name in self.flags), None)

    def count(self, *names: str) -> int | None:
        """The whole number after a flag, `8k` too; None where none of them is given."""
        text = self.text(*names)
        if text is None:
            return None
        try:
            return int(number_in(text, low=-MOST, high=MOST, whole=True))
        except ValueError as fault:
            raise InputError("server_args", f"--{names[0]} {fault}") from None

    def switch(self, on: str, off: str = "") -> bool | None:
        """Whether a switch is on; None where neither form is given."""
        if off and off in self.flags:
            return False
        value = self.text(on)
        return None if value is None else value.lower() not in ("false", "0", "off", "no")

    def under(self, *names: str) -> dict[str, Any]:
        """Dotted flags (`--name.key value`) as a table."""
        table: dict[str, Any] = {}
        for flag, words in self.flags.items():
            head, dot, key = flag.partition(".")
            if dot and key and head in names:
                table[key.replace("-", "_")] = typed_text(" ".join(words)) if words else True
        return table

    @property
    def engine(self) -> str | None:
        """The engine whose command it is; None where only flags are given."""
        for word in self.words:
            name = word.rsplit("/", 1)[-1]
            for engine, commands in _COMMANDS.items():
                if name in commands or any(name.startswith(f"{command}.") for command in commands):
                    return engine
        return None


def parse_arguments(text: str) -> Arguments:
    """The arguments in a text: a command line, flags alone, or YAML or JSON with a key for each of them.

    >>> given = parse_arguments("X=1 vllm serve m --max_num_seqs=64 -tp 2 --enable-lora")
    >>> given.engine, given.count("max-num-seqs"), given.count("tp"), given.switch("enable-lora")
    ('vllm', 64, 2, True)

    Raises:
        InputError: for a text that is too long, or quotes that do not end.
        DataError: for YAML that cannot be read.
    """
    if len(text) > MAX_TEXT:
        raise InputError("server_args", f"has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    if _looks_like_yaml(text):
        return arguments_of(plain_document(text, "--server-args"))
    lines = (line for line in text.replace("\\\n", " ").splitlines() if not line.lstrip().startswith("#"))
    try:
        words = shlex.split(" ".join(lines))
    except ValueError as fault:
        raise InputError("server_args", f"cannot be split into words: {str(fault).lower()}") from None
    return _from_words(words)


def _looks_like_yaml(text: str) -> bool:
    return bool(_KEY.match(text.lstrip("\n\r"))) and not re.search(r"(?:^|\s)--[A-Za-z]", text)


def _from_words(words: list[str]) -> Arguments:
    flags: dict[str, tuple[str, ...]] = {}
    environment: dict[str, str] = {}
    before: list[str] = []
    name = ""
    for word in words:
        flag, equals, value = word.partition("=")
        if before[-1:] == ["-m"] or (word == "-m" and not name and _is_python(before)):
            before.append(word)
        elif _FLAG.fullmatch(flag):
            name = flag.lstrip("-").replace("_", "-") if "." not in flag else _dotted_name(flag)
            flags[name] = (value,) if equals else ()
        elif name:
            flags[name] = (*flags[name], word) if len(flags[name]) < 4_096 else flags[name]
        elif found := _SETTING.fullmatch(word):
            environment[found[1]] = found[2]
        else:
            before.append(word)
    return Arguments(flags, environment, tuple(before))


def _is_python(words: list[str]) -> bool:
    return words[-1:] != [] and words[-1].rsplit("/", 1)[-1].startswith("python")


def _dotted_name(flag: str) -> str:
    head, _, key = flag.lstrip("-").partition(".")
    return f"{head.replace('_', '-')}.{key}"


def arguments_of(document: Any) -> Arguments:
    """The flags that a table stands for."""
    if not isinstance(document, dict):
        raise DataError("--server-args", "must be flags, or a table of them in YAML or JSON")
    flags = {}
    for key, value in document.items():
        if not isinstance(key, str) or not re.fullmatch(r"-{0,2}[A-Za-z][\w.\-]{0,120}", key):
            raise DataError("--server-args", f"{shown(key)} is no name of a flag")
        flags[key.lstrip("-").replace("_", "-")] = _value_words(value)
    return Arguments(flags)


def _value_words(value: Any) -> tuple[str, ...]:
    if value is True:
        return ()
    if isinstance(value, dict | list):
        return (json.dumps(value, ensure_ascii=False),)
    return ("false" if value is False or value is None else str(value),)


def text_or_file(name: str, text: str) -> str:
    """The text itself, or that of the file that it names, with or without an @ in front."""
    from specmath.text_files import file_text

    plain = text.strip()
    if plain.startswith("@"):
        return file_text(plain[1:], remedy=f"name the file after the @ of --{name.replace('_', '-')}")
    if plain and "\n" not in plain and len(plain) < 1_000 and not plain.startswith(("{", "-")):
        try:
            if Path(plain).is_file():
                return file_text(plain, remedy="check the path")
        except (OSError, ValueError):
            return text
    return text
