"""From the `profiles:` of hardware.yaml, and of the user's own files over it, to records."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from specmath.accelerator import KINDS, Accelerator, Source
from specmath.catalogue_files import ENVIRONMENT_VARIABLE, Layer, catalogue_layers, cited
from specmath.errors import InputError, UnknownNameError
from specmath.profiles import Constant, Profile, require_constant

if TYPE_CHECKING:
    from specmath.yaml_fields import Fields

IDEAL_PROFILE: Final = "ideal"
"""The datasheet: no profile at all."""
_PROFILE_KEYS: Final = (
    *("title", "base", "engines", "vendor", "kind", "captured", "own_kernels", "row_limit"),
    *("least", "most", "constants", "notes"),
)
_CONSTANT_KEYS: Final = ("low", "typical", "high", "sources", "note")
MAX_BASES: Final = 16


def load_profile(
    engine: str, part: Accelerator | None = None, *, hardware_file: str | Path | None = None
) -> Profile:
    """The profile of an engine on a part.

    Where an engine has several, the one made for the part's vendor or kind is taken: `llama.cpp` on Apple is
    `llama.cpp-metal`, `typical` on Apple is `mlx`. A profile's own name names it, too.

    Args:
        engine: `typical`, `vllm`, `sglang`, `tensorrt-llm`, `transformers`, `llama.cpp`, `mlx`, …
        part: The accelerator it runs on.
        hardware_file: A YAML file whose profiles add to the catalogue or override it.

    Raises:
        UnknownNameError: no profile has this name; lists them.
        InputError: none of the engine's profiles is made for this part.
        DataError: a file is wrong; names file, entry and field.

    >>> load_profile("vllm").title
    'vLLM with CUDA graphs'
    """
    catalogue = _catalogue(hardware_file)
    wanted = engine.strip().lower()
    candidates = [name for name, entry in catalogue.items() if wanted in (name, *entry.engines)]
    if not candidates:
        known = dict.fromkeys(
            [IDEAL_PROFILE, *catalogue, *(e for one in catalogue.values() for e in one.engines)]
        )
        raise UnknownNameError("engine", engine, known, "`specmath show profile` lists all")
    fitting = [name for name in candidates if part is None or catalogue[name].fits(part)]
    if not fitting and part is not None:
        made_for = " or ".join(catalogue[name].place for name in candidates)
        raise InputError("engine", f"{engine} is known on {made_for}, not on {part.name}; try typical")
    best = max(fitting, key=lambda name: catalogue[name].closeness(part))
    return catalogue[best].profile


def profile_names(*, hardware_file: str | Path | None = None) -> tuple[str, ...]:
    """Names of all profiles, in the order of the files.

    >>> profile_names()[:2]
    ('typical', 'vllm')
    """
    return tuple(_catalogue(hardware_file))


class _Entry:
    """A profile and where it holds; made when it is asked for, since the catalogue has several."""

    def __init__(self, name: str, layer: Layer, below: _Below) -> None:
        fields = layer.profiles[name]
        self._made_of = (name, layer, below)
        self.engines = fields.texts("engines")
        self.vendor, self.kind = fields.optional_text("vendor"), fields.optional_text("kind")

    @cached_property
    def profile(self) -> Profile:
        """The profile itself."""
        return _profile(*self._made_of)

    @property
    def place(self) -> str:
        """What it runs on, in words."""
        return {"cpu": "CPUs"}.get(self.kind or "", self.vendor or "GPUs and their like")

    def fits(self, part: Accelerator) -> bool:
        """Whether it is made for this part."""
        if self.vendor or self.kind:
            return (self.vendor or part.vendor, self.kind or part.kind) == (part.vendor, part.kind)
        return part.vendor != "Apple" and part.kind != "cpu"

    def closeness(self, part: Accelerator | None) -> int:
        """How closely it is made for this part, among profiles that fit."""
        return 0 if part is None else sum(wanted is not None for wanted in (self.vendor, self.kind))


class _Below(NamedTuple):
    """What a profile may build on and cite: profiles of the files below its own, sources of all up to it."""

    entries: Mapping[str, _Entry]
    sources: Mapping[str, Source]


def _catalogue(hardware_file: str | Path | None) -> dict[str, _Entry]:
    """The profiles of all files; read once for what is named, here and in the environment."""
    named = None if hardware_file is None else str(hardware_file)
    return _entries(named, os.environ.get(ENVIRONMENT_VARIABLE))


@cache
def _entries(hardware_file: str | None, _environment: str | None) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    sources: dict[str, Source] = {}
    for place, layer in enumerate(catalogue_layers(hardware_file)):
        sources |= layer.sources
        below = _Below(dict(found), dict(sources))
        found |= {name: _Entry(name, layer, below) for name in layer.profiles}
        if place:  # a user's file is checked whole, so that a slip shows before it is needed
            for name in layer.profiles:
                _checked(found[name].profile, layer.profiles[name])
    return found


def _checked(profile: Profile, fields: Fields) -> None:
    """Refuse a profile of the user's with values no part could run with, at its place in the file."""
    kind = fields.optional_text("kind")
    if kind is not None and kind not in KINDS:
        raise fields.error("kind", f"must be one of {', '.join(KINDS)}, got {kind}")
    typed = fields.optional_section("constants")
    for key in typed:
        constant = profile.constants[key]
        if not constant.sources and not constant.note:
            raise typed.named(key).error(
                "sources", "names nothing, and there is no note to say where it comes from"
            )
        try:
            require_constant(key, constant)
        except InputError as error:
            raise typed.error(key, error.problem) from error


def _profile(name: str, layer: Layer, below: _Below, trail: tuple[str, ...] = ()) -> Profile:
    fields = layer.profiles[name]
    fields.only(_PROFILE_KEYS)
    base = _base(name, layer, below, trail)
    typed = fields.section("constants") if base is None else fields.optional_section("constants")
    constants = {key: _constant(typed.named(key), below.sources) for key in typed}
    try:
        return Profile(
            name=name,
            title=fields.text("title"),
            constants=({} if base is None else dict(base.constants)) | constants,
            captured=_flag(fields, "captured", True if base is None else base.captured),
            row_limit=int(_told(fields.optional_count("row_limit"), 1 if base is None else base.row_limit)),
            library_products=not _flag(fields, "own_kernels", base is not None and not base.library_products),
            least=_told(fields.optional_number("least"), 1.0 if base is None else base.least),
            most=_told(fields.optional_number("most"), 1.0 if base is None else base.most),
            notes=fields.texts("notes"),
        )
    except InputError as error:
        raise fields.error(error.name, error.problem) from error


def _told(typed: float | None, default: float) -> float:
    return default if typed is None else typed


def _base(name: str, layer: Layer, below: _Below, trail: tuple[str, ...]) -> Profile | None:
    fields = layer.profiles[name]
    base = fields.optional_text("base")
    if base is None:
        return None
    if base in trail or len(trail) == MAX_BASES:
        raise fields.error("base", f"{' → '.join((*trail, name, base))} goes round in a circle or too far")
    if base in layer.profiles and base != name:
        return _profile(base, layer, below, (*trail, name))
    if base in below.entries:
        return below.entries[base].profile
    raise fields.error("base", f"{base} is no profile of this file or of one below it")


def _constant(fields: Fields, sources: Mapping[str, Source]) -> Constant:
    fields.only(_CONSTANT_KEYS)
    try:
        return Constant(
            low=fields.number("low"),
            typical=fields.number("typical"),
            high=fields.number("high"),
            sources=tuple(cited(key, fields, "sources", sources) for key in fields.texts("sources")),
            note=fields.optional_text("note") or "",
        )
    except InputError as error:
        raise fields.error("typical", error.problem) from error


def _flag(fields: Fields, key: str, default: bool) -> bool:
    text = fields.optional_text(key)
    if text is None:
        return default
    if text not in ("true", "false"):
        raise fields.error(key, f"must be true or false, got {text}")
    return text == "true"
