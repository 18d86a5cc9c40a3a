"""The files of the catalogue: hardware.yaml and the user's own over it, by section and name.

Three layers, the later one wins: the packaged catalogue, the files named in `$SPECMATH_HARDWARE`, the file
given in the call. `specmath.catalogue` makes accelerators of them, `specmath.profile_catalogue` profiles.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from specmath.accelerator import Source
from specmath.errors import AccessError, InputError, shown, shown_path

if TYPE_CHECKING:
    from specmath.yaml_fields import Fields

ENVIRONMENT_VARIABLE: Final = "SPECMATH_HARDWARE"
"""Overlay files, separated as in PATH. `_overlay_paths` reads it, nothing else in specmath does."""

SCHEMA_VERSION: Final = 1
MAX_ENTRIES: Final = 2_000  # of one file
_TOP_KEYS: Final = ("schema_version", "accelerators", "profiles", "sources")


class Layer(NamedTuple):
    """One file: its accelerators and profiles by name, its sources by key."""

    entries: Mapping[str, Fields]
    profiles: Mapping[str, Fields]
    sources: Mapping[str, Source]


def catalogue_layers(hardware_file: str | Path | None = None) -> list[Layer]:
    """The packaged catalogue and the user's files over it, lowest first."""
    return [_packaged(), *(_layer(path, given_by) for path, given_by in _overlay_paths(hardware_file))]


def _overlay_paths(hardware_file: str | Path | None) -> list[tuple[Path, str]]:
    """The user's files, lowest first, each with the way it was given."""
    listed = os.environ.get(ENVIRONMENT_VARIABLE, "").split(os.pathsep)
    paths = [(path, f"; named in ${ENVIRONMENT_VARIABLE}") for path in listed if path.strip()]
    if hardware_file == "":
        raise AccessError(shown_path(""), "is no path; name a YAML file")
    if hardware_file is not None:
        paths.append((str(hardware_file), ""))
    # pathlib raises for an unknown ~user; os.path leaves it as it is, which then is no file
    return [(Path(os.path.expanduser(path)), given_by) for path, given_by in paths]  # noqa: PTH111


@cache
def _packaged() -> Layer:
    """The catalogue that comes with specmath: beside this file when installed, else atop the checkout."""
    package = Path(__file__).parent
    beside = package / "hardware.yaml"
    return _layer(beside if beside.is_file() else package.parent / "hardware.yaml", "")


def _layer(path: Path, given_by: str) -> Layer:
    from specmath.strict_yaml import read_yaml  # imports yaml: only where a catalogue is read

    try:
        top = read_yaml(path)
    except AccessError as error:
        raise AccessError(error.where, error.problem + given_by) from error
    top.only(_TOP_KEYS)
    if "schema_version" in top and top.number("schema_version") != SCHEMA_VERSION:
        raise top.error("schema_version", f"must be {SCHEMA_VERSION}, got {top.text('schema_version')}")
    sources = top.optional_section("sources")
    return Layer(
        entries=_named_sections(top, "accelerators"),
        profiles=_named_sections(top, "profiles") if "profiles" in top else {},
        sources={key: _source(key, sources.section(key)) for key in sources},
    )


def _named_sections(top: Fields, key: str) -> dict[str, Fields]:
    """The entries under a key by name."""
    listed = top.section(key)
    if len(listed) > MAX_ENTRIES:
        raise top.error(key, f"must be at most {MAX_ENTRIES}, got {len(listed)}; split the file")
    for name in listed:
        if name != (plain := normalised(name)):
            raise listed.error(name, f"write the name as {plain}" if plain else "needs a letter or digit")
    return {name: listed.named(name) for name in listed}


def normalised(name: str) -> str:
    """Lower case, words joined by single dashes.

    >>> normalised(" NVIDIA_H100 80GB  (HBM3) ")
    'nvidia-h100-80gb-hbm3'
    """
    return "-".join(re.findall(r"[^\s_\-(),/]+", name.lower()))


def _source(key: str, fields: Fields) -> Source:
    fields.only(("title", "kind", "date"))
    title, kind, date = fields.text("title"), fields.text("kind"), fields.optional_date("date")
    try:
        return Source(key=key, title=title, kind=kind, date=date)
    except InputError as error:
        raise fields.error(error.name, error.problem) from error


def cited(key: str, fields: Fields, field: str, sources: Mapping[str, Source]) -> Source:
    """The source behind a key; one that is not in the list is refused."""
    if key not in sources:
        remedy = f"add it at the end of the file under `sources:`, as `{key[:60]}: {{title: ..., kind: ...}}`"
        raise fields.error(field, f"{shown(key)} is not a known source; {remedy}")
    return sources[key]
