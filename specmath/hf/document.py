"""Text of a `config.json` to a checked dict, and the text model inside a multimodal wrapper.

Files of strangers come through here: the size is bounded before parsing, nesting, duplicate keys and
numbers of a million digits are refused in one line. Infinity and NaN are no JSON, yet published files
hold them in fields nobody counts with; they pass here and are refused where a count is read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from typing import Any, Final

from specmath.errors import AccessError, DataError, shown_path

MAX_BYTES: Final = 32 * 2**20
"""Largest file read; the longest known quantisation list takes some 6 MB."""
_WRAPPED_IN: Final = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "language_model_config",
)
_SHARED_WITH_ROOT: Final = (
    "tie_word_embeddings",
    "quantization_config",
    "torch_dtype",
    "dtype",
    "architectures",
    "model_type",
)
_MAX_WRAPPERS: Final = 3
_SIBLING: Final = "hf_quant_config.json"


def read_text(path: Path) -> str:
    """The text of a regular file of at most MAX_BYTES. Raises AccessError or DataError, one line each."""
    where = shown_path(path)
    try:
        if not S_ISREG(path.stat().st_mode):  # a pipe may keep its reader waiting for ever
            raise AccessError(where, "is a folder, pipe or device; name a regular file, or - for stdin")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise AccessError(where, (error.strerror or "cannot be read").lower()) from error
    return decoded(content, where)


def read_stdin() -> str:
    """The text of stdin, under the same rules as that of a file."""
    stream = getattr(sys.stdin, "buffer", sys.stdin)
    if stream is None:
        raise AccessError("stdin", "is closed; pipe a config.json into it")
    content = stream.read(MAX_BYTES + 1)
    return decoded(content.encode() if isinstance(content, str) else content, "stdin")


def decoded(content: bytes, where: str) -> str:
    """The text of a config.json. Raises DataError for what is too large or no UTF-8."""
    if len(content) > MAX_BYTES:
        raise DataError(where, f"is larger than {MAX_BYTES // 2**20} MiB; a config.json is a few kilobytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(where, "is no text; expected a config.json") from error


def config_file(path: Path) -> Path:
    """The config.json itself, or the one inside a folder."""
    try:
        inside = path / "config.json" if S_ISDIR(path.stat().st_mode) else path
        inside.stat()
    except FileNotFoundError as error:
        problem = "the folder holds no config.json" if path.is_dir() else "no such file"
        raise AccessError(shown_path(path), problem) from error
    except (OSError, ValueError) as error:  # a loop of links, a name too long, a NUL in it
        problem = getattr(error, "strerror", None) or str(error)
        raise AccessError(shown_path(path), problem.lower()) from error
    return inside


def parse_document(text: str, where: str) -> dict[str, Any]:
    """The JSON table in `text`. Raises DataError with the line for anything else."""
    if len(text) > MAX_BYTES:
        raise DataError(where, f"is larger than {MAX_BYTES // 2**20} MiB; a config.json is a few kilobytes")
    try:
        document = json.loads(text, object_pairs_hook=_table)
    except json.JSONDecodeError as error:
        what = "is empty" if not text.strip() else f"line {error.lineno}: is no JSON ({error.msg.lower()})"
        raise DataError(where, what) from None
    except RecursionError:
        raise DataError(where, "is nested too deeply for a configuration") from None
    except ValueError as error:
        raise DataError(where, str(error).partition(";")[0]) from None
    if not isinstance(document, dict):
        raise DataError(where, f"holds a JSON {type(document).__name__}, expected a table of fields")
    return document


def with_sibling_quantization(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The table with the quantisation that ModelOpt writes beside config.json, where it has none itself."""
    sibling = path.parent / _SIBLING
    missing = not (sibling.exists() or sibling.is_symlink())
    if path.name != "config.json" or "quantization_config" in document or missing:
        return document
    return {**document, "quantization_config": parse_document(read_text(sibling), str(sibling))}


def text_part(document: Mapping[str, Any], where: str) -> tuple[dict[str, Any], bool]:
    """The table of the text model, and whether it was nested in a wrapper.

    Fields of the wrapper that concern the text model are carried over where the inner table has none.
    """
    table, nested = dict(document), False
    for _ in range(_MAX_WRAPPERS):
        name = next((name for name in _WRAPPED_IN if table.get(name) is not None), None)
        if name is None:
            break
        inner = table[name]
        if not isinstance(inner, Mapping):
            raise DataError(where, f"{name}: must be a table, got {type(inner).__name__}")
        carried = {field: table[field] for field in _SHARED_WITH_ROOT if field in table}
        own = {field: value for field, value in inner.items() if value is not None or field not in carried}
        table, nested = carried | own, True
    return table, nested


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        names = sorted(name for name, _ in pairs)
        twice = next(name for name, following in pairwise(names) if name == following)
        raise ValueError(f"field {twice[:60]!r} stands twice in one table")
    return table
