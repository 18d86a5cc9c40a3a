"""Models by name: the packaged catalogue, files and folders, hub ids, and counts alone.

One model is one file, `specmath/models/NAME.json`, in the field names of its `config.json`; naming a model
opens that file and no other. Hub ids and other names stand in one small index, opened only for a name that
is no file.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from specmath.errors import AccessError, UnknownNameError
from specmath.hf.document import config_file, parse_document, read_text, with_sibling_quantization
from specmath.hf.reader import model_shape
from specmath.model import ModelShape
from specmath.model_counts import looks_like_counts, model_from_counts

MODELS: Final = Path(__file__).with_name("models")
_INDEX: Final = MODELS / "_index.json"
_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")
_TUNING: Final = re.compile(r"-(instruct|chat|it|pt|base|hf|bf16)$")
MAX_NAME: Final = 1_000
_SOURCE: Final = "_source"
_RELEASED_IN: Final = "_released_in"
"""Format of the released weights, where the packaged configuration has no quantisation block to say it."""


def model_names() -> tuple[str, ...]:
    """Names of the catalogue, in alphabetical order."""
    return tuple(sorted(path.stem for path in MODELS.glob("[!_]*.json")))


def load_model(name: str, *, draft_kind: str | None = None) -> ModelShape:
    """The model of that name: catalogue name or alias, hub id, config.json or its folder, or counts.

    A plain name is looked up in the catalogue first; a folder of the same name is meant by `./name`.

    Args:
        name: `llama-3.1-8b`, `meta-llama/Llama-3.1-8B-Instruct`, `path/config.json`, `70B`, `47B/13B`.
        draft_kind: Read a file as a draft head of that kind; see `specmath.hf.reader.read_config`.

    Raises:
        UnknownNameError: with the nearest catalogue names; for a hub id, asking for its config.json.
        AccessError, DataError: for a file that cannot be read or counted.

    >>> load_model("deepseek-v3").kv_bytes_per_token
    70272.0
    """
    if not 0 < len(name) <= MAX_NAME:
        raise UnknownNameError("model", name, (), f"a name or path has 1 to {MAX_NAME:,} characters")
    if looks_like_counts(name):
        return model_from_counts(name)
    path = MODELS / f"{name}.json"
    if _is_plain(name) and path.is_file():
        return _packaged(name)
    if _looks_like_path(name):
        return _from_file(Path(os.path.expanduser(name)), draft_kind)  # noqa: PTH111 (pathlib raises for ~nobody)
    known = catalogue_name(name)
    if known is None:
        remedy = "give the path of its config.json" if _HUB_ID.fullmatch(name) else ""
        raise UnknownNameError("model", name, _nearby(name), remedy)
    return _packaged(known)


def catalogue_entry(name: str) -> dict[str, Any]:
    """The packaged file of a catalogue name, parsed."""
    return parse_document(read_text(MODELS / f"{name}.json"), f"{name}.json")


def hub_ids(name: str) -> tuple[str, ...]:
    """Hub ids that mean this catalogue entry."""
    return tuple(hub_id for hub_id, entry in _index()["hub_ids"].items() if entry == name)


def _packaged(name: str) -> ModelShape:
    entry = catalogue_entry(name)
    shape = model_shape(entry, f"{name}.json", name=name, source=str(entry.get(_SOURCE, "")))
    if released := entry.get(_RELEASED_IN):
        note = f"The checkpoint is released in {released}, which its file does not say: "
        note += "quantise it so for its real sizes."
        shape = replace(shape, released_in=str(released), assumed=(note, *shape.assumed))
    return shape


def _from_file(path: Path, draft_kind: str | None) -> ModelShape:
    file = config_file(path)
    document = with_sibling_quantization(parse_document(read_text(file), str(file)), file)
    name = path.absolute().parent.name if path.name == "config.json" else path.name
    return model_shape(document, str(file), name=name, draft_kind=draft_kind)


def _is_plain(name: str) -> bool:
    return bool(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name))


def _looks_like_path(name: str) -> bool:
    if name.endswith(".json") or name.startswith(("/", "./", "../", "~")) or "\\" in name:
        return True
    try:
        return Path(name).exists() or name.count("/") > 1
    except (OSError, ValueError):
        return True


def catalogue_name(name: str) -> str | None:
    """The catalogue's name for a hub id, an alias, or a spelling that differs in case, dashes or `-instruct`.

    Files are not looked at. None for a model that is not packaged.

    >>> catalogue_name("Qwen/Qwen3-8B"), catalogue_name("my-finetune")
    ('qwen3-8b', None)
    """
    lower = name.lower()
    index = _index()
    for table in (index["hub_ids"], index["aliases"]):
        found = {key.lower(): entry for key, entry in table.items()}.get(lower)
        if found is not None:
            return str(found)
    squeezed = _squeezed(lower)
    matching = [known for known in model_names() if _squeezed(known) == squeezed]
    return matching[0] if len(matching) == 1 and "/" not in name else None


def _squeezed(name: str) -> str:
    return re.sub(r"[-_ ]", "", _TUNING.sub("", name))


def _nearby(name: str) -> list[str]:
    return [] if _HUB_ID.fullmatch(name) and "/" in name else [*model_names(), *_index()["aliases"]]


@cache
def _index() -> dict[str, dict[str, str]]:
    try:
        index: dict[str, dict[str, str]] = json.loads(_INDEX.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AccessError(str(_INDEX), "the index of the model catalogue cannot be read") from error
    return index
