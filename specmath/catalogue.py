"""From hardware.yaml, and the user's own files over it, to records.

An entry replaces the entry of its name whole, unless it says `base: NAME` and so starts
from the fields of another. The packaged file is parsed whole, but only the entries asked for become records;
a user's file is checked whole, so that a slip shows before it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from specmath.accelerator import Accelerator, Measurement, Source
from specmath.catalogue_files import Layer, catalogue_layers, cited, normalised
from specmath.errors import InputError, UnknownNameError, shown

if TYPE_CHECKING:
    from specmath.yaml_fields import Fields

MAX_BASES: Final = 16  # from an entry to its base, the base of that, and so on, in one file
MAX_CANDIDATES: Final = 12
_ENTRY_KEYS: Final = (
    *("title", "aliases", "base", "vendor", "kind", "form_factor", "release_year"),
    *("peak_flops_per_s", "fp16_accumulate_flops_per_s", "memory", "llc_bytes", "compute_units"),
    *("link", "host_link", "tdp_w", "price", "measured", "confidence", "checked", "sources", "notes"),
)
_MEASURED_UNITS: Final = {
    "flops_per_s": "FLOP/s",
    "best_flops_per_s": "FLOP/s",
    "bytes_per_s": "B/s",
    "best_bytes_per_s": "B/s",
    "fixed_s": "s",
    "fraction_of_peak": "",
}
_MEASURED_KEYS: Final = ("what", "dtype", *_MEASURED_UNITS, "source", "conditions")
_OWN_KEYS: Final = ("aliases", "base", "measured", "confidence", "checked", "sources", "notes")
"""What `base` does not hand down: it speaks of the other part, or of the evidence for its figures."""

_FIELD_KEYS: Final = {  # the record's name of a field: its place in the file
    "memory_bytes": "memory.bytes",
    "memory_bytes_per_s": "memory.bytes_per_s",
    "memory_basis": "memory.basis",
    "link_bytes_per_s": "link.bytes_per_s",
    "host_link_bytes_per_s": "host_link.bytes_per_s",
    "usd_per_hour": "price.usd_per_hour",
}


def load_hardware(name: str, *, hardware_file: str | Path | None = None) -> Accelerator:
    """The accelerator of that name or alias; case, spaces, underscores and dashes do not matter.

    Args:
        name: `h100-sxm`, `H100 SXM5`, `NVIDIA H100 80GB HBM3`.
        hardware_file: A YAML file whose entries add to the catalogue or override it.

    Raises:
        UnknownNameError: no part has this name, or it may mean several; lists them, picks none.
        DataError: a file is wrong; names file, entry and field.
        AccessError: a file cannot be read.

    >>> load_hardware("H100 SXM5").name
    'h100-sxm'
    >>> load_hardware("h100")
    Traceback (most recent call last):
    specmath.errors.UnknownNameError: unknown hardware 'h100'; say which: h100-pcie, h100-sxm, h100-nvl
    """
    catalogue = _catalogue(hardware_file)
    return catalogue.accelerator(catalogue.resolved(name))


def hardware_names(*, hardware_file: str | Path | None = None) -> tuple[str, ...]:
    """Names of all accelerators, in the order of the files; aliases are left out.

    >>> hardware_names()[:2]
    ('v100-sxm2-32gb', 't4')
    """
    return tuple(_catalogue(hardware_file).entries)


def hardware_catalogue(*, hardware_file: str | Path | None = None) -> dict[str, Accelerator]:
    """All accelerators by name, in the order of the files.

    >>> len(hardware_catalogue())
    65
    """
    catalogue = _catalogue(hardware_file)
    return {name: catalogue.accelerator(name) for name in catalogue.entries}


class _Entry(NamedTuple):
    """The keys of an accelerator, those of its base included, and the sources that they may cite."""

    fields: Fields
    sources: Mapping[str, Source]


class _Catalogue:
    """The layers put on top of each other."""

    def __init__(self) -> None:
        self.entries: dict[str, _Entry] = {}
        self._known: dict[str, tuple[str, str]] = {}  # normalised name or alias: name, alias as it is spelt
        self._aliases: dict[str, list[str]] = {}  # by name
        self._sources: dict[str, Source] = {}

    def add(self, layer: Layer) -> None:
        """Put a file on top of those already there."""
        self._known |= _known_names(layer, self.entries)
        self._aliases = {}
        for part, spelt in self._known.values():
            if spelt != part:
                self._aliases.setdefault(part, []).append(spelt)
        self._sources |= layer.sources
        sources = dict(self._sources)
        self.entries |= {name: _Entry(self._with_base(name, layer), sources) for name in layer.entries}

    def accelerator(self, name: str) -> Accelerator:
        """The record of an entry."""
        return _record(name, self.entries[name], tuple(self._aliases.get(name, ())))

    def resolved(self, name: str) -> str:
        """The name in the catalogue of what was typed."""
        if known := self._known.get(normalised(name)):
            return known[0]
        candidates = self._candidates(set(normalised(name).split("-")))
        if not candidates:
            raise UnknownNameError("hardware", name, self._known)
        more = len(candidates) - MAX_CANDIDATES
        listed = ", ".join(candidates[:MAX_CANDIDATES]) + (f" and {more} more" if more > 0 else "")
        raise UnknownNameError("hardware", name, (), f"say which: {listed}")

    def _candidates(self, words: set[str]) -> list[str]:
        """The parts that a short name may mean: each of its words begins a word of their names or title."""
        spoken = {
            name: set(normalised(entry.fields.optional_text("title") or "").split("-"))
            for name, entry in self.entries.items()
        }
        for known, (name, _) in self._known.items():
            spoken.setdefault(name, set()).update(known.split("-"))
        if not any(words):
            return []
        return [
            name
            for name, known_words in spoken.items()
            if all(any(known.startswith(word) for known in known_words) for word in words)
        ]

    def _with_base(self, name: str, layer: Layer, trail: tuple[str, ...] = ()) -> Fields:
        fields = layer.entries[name]
        if "base" not in fields:
            return fields
        try:
            base = self.resolved(fields.text("base"))
        except UnknownNameError as error:
            raise fields.error("base", str(error)) from error
        if base in trail:
            raise fields.error("base", f"{' → '.join((*trail, name, base))} goes round in a circle")
        if len(trail) == MAX_BASES:
            raise fields.error("base", f"is one base too many for {trail[0]}: at most {MAX_BASES} in a chain")
        if base in layer.entries and base != name:
            lower = self._with_base(base, layer, (*trail, name))
        elif base in self.entries:  # an entry may refine the one that it overrides
            lower = self.entries[base].fields
        else:
            raise fields.error("base", f"{base} is in no file below this one; give the figures here")
        return fields.over(lower, without=_OWN_KEYS)


def _catalogue(hardware_file: str | Path | None) -> _Catalogue:
    catalogue = _Catalogue()
    packaged, *overlays = catalogue_layers(hardware_file)
    catalogue.add(packaged)
    for layer in overlays:
        catalogue.add(layer)
        for name in layer.entries:
            catalogue.accelerator(name)  # checks it
    return catalogue


def _known_names(layer: Layer, lower: Mapping[str, _Entry]) -> dict[str, tuple[str, str]]:
    """What `_Catalogue` knows of one file's names; an alias that would hide another name is refused."""
    known = {name: (name, name) for name in layer.entries}
    for name, fields in layer.entries.items():
        for alias in fields.texts("aliases"):
            key = normalised(alias)
            if not key:
                raise fields.error("aliases", f"{shown(alias)} needs a letter or digit")
            if key in known or key in lower:
                raise fields.error("aliases", f"{shown(alias)} already names {known.get(key, (key,))[0]}")
            known[key] = (name, alias)
    return known


def _record(name: str, entry: _Entry, aliases: tuple[str, ...]) -> Accelerator:
    """One entry as a record; what the record refuses is reported at the entry's key."""
    fields, sources = entry.fields, entry.sources
    fields.only(_ENTRY_KEYS)
    memory, price = fields.section("memory"), fields.optional_section("price")
    memory.only(("bytes", "basis", "marketed", "bytes_per_s", "type"))
    price.only(("usd_per_hour", "source", "date"))
    link, host_link = _link(fields, "link"), _link(fields, "host_link")
    try:
        return Accelerator(
            name=name,
            title=fields.text("title"),
            vendor=fields.text("vendor"),
            kind=fields.text("kind"),
            peak_flops_per_s=_rates(fields.section("peak_flops_per_s")),
            memory_bytes=memory.number("bytes", "B"),
            memory_bytes_per_s=memory.number("bytes_per_s", "B/s"),
            confidence=fields.text("confidence"),
            sources=tuple(cited(key, fields, "sources", sources) for key in fields.texts("sources")),
            form_factor=fields.optional_text("form_factor"),
            release_year=fields.optional_count("release_year"),
            aliases=aliases,
            fp16_accumulate_flops_per_s=_rates(fields.optional_section("fp16_accumulate_flops_per_s")),
            memory_type=memory.optional_text("type"),
            memory_basis=memory.optional_text("basis"),
            marketed_memory=memory.optional_text("marketed"),
            link_type=link.text("type") if link else None,
            link_bytes_per_s=link.number("bytes_per_s", "B/s") if link else None,
            host_link_type=host_link.text("type") if host_link else None,
            host_link_bytes_per_s=host_link.number("bytes_per_s", "B/s") if host_link else None,
            llc_bytes=fields.optional_number("llc_bytes", "B"),
            compute_units=fields.optional_count("compute_units"),
            tdp_w=fields.optional_number("tdp_w", "W"),
            usd_per_hour=price.number("usd_per_hour") if price else None,
            price_source=cited(price.text("source"), price, "source", sources) if price else None,
            price_date=price.optional_date("date"),
            measured=tuple(_measurement(part, sources) for part in fields.sections("measured")),
            notes=fields.texts("notes"),
            checked=fields.optional_date("checked"),
        )
    except InputError as error:
        raise fields.error(_FIELD_KEYS.get(error.name, error.name), error.problem) from error


def _rates(fields: Fields) -> dict[str, float]:
    return {dtype: fields.number(dtype, "FLOP/s") for dtype in fields}


def _link(fields: Fields, key: str) -> Fields:
    """The keys of a link; refuses a marketed figure that is not twice the one-direction rate."""
    link = fields.optional_section(key)
    link.only(("type", "bytes_per_s", "marketed_bytes_per_s"))
    marketed = link.optional_number("marketed_bytes_per_s", "B/s")
    if marketed is not None and abs(marketed / 2 - link.number("bytes_per_s", "B/s")) > 0.02 * marketed:
        problem = f"must be one direction, {marketed / 2:g} B/s: marketed_bytes_per_s adds both"
        raise link.error("bytes_per_s", problem)
    return link


def _measurement(fields: Fields, sources: Mapping[str, Source]) -> Measurement:
    fields.only(_MEASURED_KEYS)
    figures = {key: fields.optional_number(key, unit) for key, unit in _MEASURED_UNITS.items()}
    return Measurement(
        what=fields.text("what"),
        source=cited(fields.text("source"), fields, "source", sources),
        dtype=fields.optional_text("dtype"),
        conditions=fields.optional_text("conditions") or "",
        **figures,
    )
