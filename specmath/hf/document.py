"""Text of a `config.json` to a checked dict, and the text model inside a multimodal wrapper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from stat import S_ISDIR
from typing import Any, Final

from specmath.errors import AccessError, DataError, shown_path
from specmath.strict_json import json_document
from specmath.text_files import file_text, refuse_large, stdin_text

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
    "quantization",
    "torch_dtype",
    "dtype",
    "architectures",
    "model_type",
)
_MAX_WRAPPERS: Final = 3
_SIBLING: Final = "hf_quant_config.json"


def read_text(path: Path) -> str:
    """The text of a config.json. Raises AccessError or DataError, one line each."""
    return file_text(path, remedy="name a regular file, or - for stdin")


def read_stdin() -> str:
    """The text of stdin, under the same rules as that of a file."""
    return stdin_text(remedy="pipe a config.json into it")


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
    refuse_large(len(text), where)
    if not text.strip():
        raise DataError(where, "is empty")
    document = json_document(text, where)
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
