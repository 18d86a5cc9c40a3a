"""Models by name: the packaged catalogue, files and folders, hub ids, and counts alone.

One model is one file, `specmath/models/NAME.json`, in the field names of its `config.json`; naming a model
opens that file and no other. Hub ids and other names stand in one small index, opened only for a name that
is no file.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from specmath.errors import AccessError, InputError, UnknownNameError
from specmath.hf.document import config_file, parse_document, read_text, with_sibling_quantization
from specmath.hf.reader import model_shape
from specmath.model import ModelShape, WeightGroup
from specmath.units import parse_quantity

MODELS: Final = Path(__file__).with_name("models")
_INDEX: Final = MODELS / "_index.json"
_COUNTS: Final = re.compile(r"\s*\d[\d.]*\s*[kMBTG]?(?:\s*/\s*\d[\d.]*\s*[kMBTG]?)?\s*")
_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")
_TUNING: Final = re.compile(r"-(instruct|chat|it|pt|base|hf|bf16)$")
_SOURCE: Final = "_source"


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
    if _COUNTS.fullmatch(name):
        return model_from_counts(name)
    path = MODELS / f"{name}.json"
    if _is_plain(name) and path.is_file():
        return _packaged(name)
    if _looks_like_path(name):
        return _from_file(Path(name).expanduser(), draft_kind)
    known = _resolved(name)
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


def model_from_counts(text: str) -> ModelShape:
    """A model known by its counts alone, from `70B` or, total and active, `47B/13B`.

    >>> model_from_counts("47B/13B").multiplied_params
    13000000000
    """
    total, slash, active = text.partition("/")
    active_params = parse_quantity("active_params", active) if slash else None
    return counts_model(text.strip(), parse_quantity("total_params", total), active_params)


def counts_model(
    name: str, total_params: float, active_params: float | None = None, bytes_per_param: float = 2.0
) -> ModelShape:
    """A model known by its counts alone: the bytes of all its parameters, the FLOPs of the active ones.

    One dense component, no cache, no layers: the textbook model, and the textbook MoE where fewer are
    active. Such an MoE reads every expert in every pass, which is too slow at small batch.

    Args:
        name: What to call it.
        total_params: Stored parameters, from 1 to 1e16.
        active_params: Parameters one token is multiplied with, at most the total; None for all.
        bytes_per_param: Bytes of one parameter, above 0 and at most 16.

    >>> counts_model("47B/13B", 47e9, 13e9).weight_bytes
    94000000000.0
    """
    total = _whole("total_params", total_params)
    active = total if active_params is None else _whole("active_params", active_params)
    if active > total:
        raise InputError("active_params", f"must be at most the total of {total:,}, got {active:,}")
    if not 0 < bytes_per_param <= 16:
        raise InputError("bytes_per_param", f"must be above 0 and at most 16, got {bytes_per_param!r}")
    group = WeightGroup(
        name="all",
        stored_params=total,
        read_params=total,
        multiplied_params=active,
        bytes_per_param=float(bytes_per_param),
        compute_dtype="bf16",
    )
    assumed = ["Known by its count alone: no KV cache, no layers, every parameter read in each pass."]
    if active < total:
        assumed.append("All experts are read in every pass, which is too slow at small batch.")
    return ModelShape(name=name, source="counts given by the user", weights=(group,), assumed=tuple(assumed))


def _whole(name: str, value: float) -> int:
    if not 1 <= value <= 1e16:
        raise InputError(name, f"must be between 1 and 1e16 parameters, got {value!r}")
    return round(value)


def _packaged(name: str) -> ModelShape:
    entry = catalogue_entry(name)
    return model_shape(entry, f"{name}.json", name=name, source=str(entry.get(_SOURCE, "")))


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


def _resolved(name: str) -> str | None:
    """A catalogue name for a hub id, an alias, or a spelling that differs in case, dashes or `-instruct`."""
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
