"""A folder of weights looked at before anything loads it: safetensors only, no code, no surprise.

Nothing here needs torch. What passes can be given to transformers; what does not is refused in one line.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies

from specmath.errors import AccessError, DataError, shown, shown_path
from specmath.hf import drafters
from specmath.hf.document import config_file, parse_document, read_text, text_part
from specmath.hf.families import family_of
from specmath.hf.reader import model_shape
from specmath.model import ModelShape

SERVER_REMEDY: Final = "measure it behind a server with --server"
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILES: Final = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")
_HUB_TIMEOUT_S: Final = 10
_LOGGERS: Final = ("transformers", "huggingface_hub")
_PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_INDEX: Final = "model.safetensors.index.json"
_ATTENTION_FIELDS: Final = ("_attn_implementation", "attn_implementation", "_attn_implementation_internal")
_LEAST_BYTES: Final = 2
"""Of a stored parameter; narrower ones are quantised, which is refused before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A folder that may be loaded.

    Attributes:
        folder: Where it is.
        document: Its config.json.
        shape: What specmath counts for it; None for a family it does not know.
    """

    folder: Path
    document: Mapping[str, Any]
    shape: ModelShape | None


def open_checkpoint(name: str) -> Checkpoint:
    """The checkpoint in a folder, or of a hub id (from the local cache where there is no network).

    Raises:
        AccessError: no such folder or hub id, or no safetensors in it.
        DataError: a config.json or a weight file that is broken, asks for code, or is quantised.
    """
    folder = checkpoint_folder(name)
    document = parse_document(read_text(config_file(folder)), shown_path(folder / "config.json"))
    shape = runnable_shape(document, shown_path(folder / "config.json"), name=folder.name)
    _require_plain_folder(folder)
    stored = sum(_weight_bytes(file) for file in _weight_files(folder))
    if shape is not None and shape.total_params * _LEAST_BYTES > stored:
        counted = f"describes {shape.total_params:,} parameters, its weights hold {stored:,} bytes"
        raise DataError(shown_path(folder / "config.json"), f"{counted}; the two do not belong together")
    return Checkpoint(folder=folder, document=document, shape=shape)


def described(name: str) -> ModelShape | None:
    """The shape of a model: of a hub id that is not on this machine its config.json alone is fetched.

    Raises:
        AccessError, DataError: as `open_checkpoint`, as far as can be told.
    """
    if _folder(name) is not None or _cached(name) is not None:
        return open_checkpoint(name).shape
    where = f"{name}/config.json"
    return runnable_shape(parse_document(read_text(_fetched_config(name)), where), where, name=name)


def checkpoint_folder(name: str) -> Path:
    """The folder that a name means: itself, or the local snapshot of a hub id, fetched where allowed."""
    return _folder(name) or _cached(name) or _fetched(name)


def _folder(name: str) -> Path | None:
    """The folder of that name; None for a hub id. Raises AccessError where it is neither."""
    path = Path(os.path.expanduser(name))  # noqa: PTH111 (pathlib raises for ~nobody)
    remedy = "name a folder with config.json or a hub id"
    if not name.strip():
        raise AccessError(shown_path(name), f"names no model; {remedy}")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if _HUB_ID.fullmatch(name):
            return None
        problem = "no such user on this machine" if str(path).startswith("~") else "no such folder"
        raise AccessError(shown_path(name), f"{problem}; {remedy}") from None
    except (OSError, ValueError) as error:  # links in a circle, no permission; a NUL in the name
        text = (getattr(error, "strerror", None) or str(error)).lower()
        raise AccessError(shown_path(name), f"{text}; {remedy}") from error
    if not S_ISDIR(mode):
        raise AccessError(shown_path(name), "is a file; name the folder that holds it, or a hub id")
    return path


def silence_loggers() -> None:
    """Keeps libraries from writing lines of their own beside the one that an error is told in."""
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def _cached(name: str) -> Path | None:
    """The snapshot of a hub id that lies on this machine; None where there is none with weights."""
    from huggingface_hub import snapshot_download  # heavy: only where a hub id is named

    silence_loggers()
    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except Exception:  # not cached, in one of several ways
        return None
    return folder if any(folder.glob("*.safetensors")) else None


def _fetched_config(name: str) -> Path:
    """The config.json of a hub id, from the cache or fetched."""
    from huggingface_hub import hf_hub_download

    return _from_hub(name, lambda: hf_hub_download(name, "config.json", etag_timeout=_HUB_TIMEOUT_S))


def _fetched(name: str) -> Path:
    """The snapshot of a hub id, fetched."""
    from huggingface_hub import snapshot_download

    return _from_hub(
        name,
        lambda: snapshot_download(
            name, allow_patterns=list(_HUB_FILES), ignore_patterns=["*/*"], etag_timeout=_HUB_TIMEOUT_S
        ),
    )


def _from_hub(name: str, fetch: Callable[[], str]) -> Path:
    """What is fetched; a hub that cannot be reached is not waited for."""
    from huggingface_hub import constants

    silence_loggers()
    try:
        if not constants.HF_HUB_OFFLINE:
            _require_reachable(constants.ENDPOINT)
        return Path(fetch())
    except Exception as error:  # a hub has many ways to fail
        text = next(iter(str(error).splitlines()), type(error).__name__)[:150]
        raise AccessError(
            name, f"not in the local cache and not fetched: {text}; name a local folder"
        ) from error


def _require_reachable(endpoint: str) -> None:
    """One short try, as the hub's own client repeats its own for minutes; none through a proxy."""
    address = urlsplit(endpoint)
    if address.hostname is None or address.scheme in getproxies():
        return
    port = address.port or (443 if address.scheme == "https" else 80)
    try:
        socket.create_connection((address.hostname, port), timeout=_HUB_TIMEOUT_S).close()
    except OSError as error:
        raise ConnectionError(f"the hub cannot be reached ({error.strerror or error})") from error


def runnable_shape(document: Mapping[str, Any], where: str, *, name: str) -> ModelShape | None:
    """The shape of a model whose passes can be timed here; None where specmath does not know the family.

    Raises:
        DataError: it asks for code or a kernel, is quantised, is a draft head, or keeps a recurrent state.
    """
    config, _ = text_part(document, where)
    for table in (document, config):
        _refuse_code(table, where)
        if table.get("quantization_config") or table.get("quantization"):
            raise DataError(where, f"quantized weights take kernels of an engine; {SERVER_REMEDY}")
    if drafters.is_draft(document) or drafters.is_draft(config):
        raise DataError(where, f"a head on its target's features runs in an engine only; {SERVER_REMEDY}")
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or family_of(model_type) is None:
        return None
    shape = model_shape(document, where, name=name)
    if shape.states:
        raise DataError(
            where, f"{model_type} keeps a recurrent state, which has no rollback; {SERVER_REMEDY}"
        )
    return shape


def _refuse_code(table: Mapping[str, Any], where: str) -> None:
    if table.get("auto_map") or table.get("custom_pipelines"):
        raise DataError(where, f"asks for code of its own, which is never run; {SERVER_REMEDY}")
    for field in _ATTENTION_FIELDS:
        if table.get(field) not in (None, "eager", "sdpa"):
            problem = f"{field}: {shown(table[field])} names a kernel to be loaded; remove the field"
            raise DataError(where, problem)


def _require_plain_folder(folder: Path) -> None:
    if (folder / "adapter_config.json").exists():
        raise DataError(shown_path(folder), "holds an adapter, not a model; merge it into its base first")
    if not any(folder.glob("*.safetensors")):
        pickles = sorted(file.name for file in folder.iterdir() if file.suffix in _PICKLES)
        found = f"only {pickles[0]}, a pickle, which is never opened" if pickles else "no weights"
        raise AccessError(shown_path(folder), f"holds {found}; save it as safetensors")


def _weight_files(folder: Path) -> list[Path]:
    """What transformers would load: one file, or the shards that an index names, all inside the folder."""
    index = folder / _INDEX
    if (folder / "model.safetensors").exists() or not index.exists():
        return [folder / "model.safetensors"]
    weight_map = parse_document(read_text(index), shown_path(index)).get("weight_map")
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise DataError(shown_path(index), "weight_map: must be a table of tensors and their files")
    for name in weight_map.values():
        if not isinstance(name, str) or Path(name).name != name:
            raise DataError(shown_path(index), f"weight_map: {shown(name)} is no file of this folder")
    return [folder / name for name in sorted(set(weight_map.values()))]


def _weight_bytes(file: Path) -> int:
    """Bytes of a safetensors file, whose header is checked."""
    from safetensors import SafetensorError, safe_open  # heavy: only where weights are named

    if file.exists() and not file.is_file():
        raise DataError(shown_path(file), "is no regular file; fetch it again")
    try:
        with safe_open(file, framework="np"):
            return file.stat().st_size
    except FileNotFoundError as error:
        raise AccessError(shown_path(file), "no such file; fetch the weights again") from error
    except (SafetensorError, OSError, ValueError) as error:
        text = next(iter(str(error).splitlines()), type(error).__name__)[:150]
        raise DataError(shown_path(file), f"is no valid safetensors file ({text}); fetch it again") from error
