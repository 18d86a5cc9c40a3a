"""One value of a configuration by its name in the code, whatever the family calls it.

A family is a dict from the code's names to a constant, which its architecture fixes, a function of the
other fields, or a `Key`, which names the fields of the file in order of preference and the class default
of an absent one. `Fields` resolves and checks these, and remembers which were defaulted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from specmath.errors import DataError

MAX_COUNT: Final = 10**9
"""Largest size accepted; the widest table known has 262,400 rows."""
MAX_LAYERS: Final = 10_000


class _Required:
    """Marks a field without a default."""


REQUIRED: Final = _Required()


@dataclass(frozen=True, slots=True)
class Key:
    """Where a value stands in the file.

    Attributes:
        names: File fields, the preferred one first; a dot reaches into a nested table.
        default: Value of an absent field: a constant, or a function of the fields; REQUIRED refuses.
        null: Value of a field that is null, where that differs from an absent one.
        quiet: True where the default is a definition (head_dim is hidden over heads), not a class default.
    """

    names: tuple[str, ...]
    default: Any = REQUIRED
    null: Any = REQUIRED
    quiet: bool = False


def key(*names: str, default: Any = REQUIRED, null: Any = REQUIRED, quiet: bool = False) -> Key:
    """A `Key` written short, for the tables."""
    return Key(names, default, null, quiet)


Traits = Mapping[str, Any]
"""A family, or the deviations of a layer: code name to constant or Key."""


class Fields:
    """The fields of one configuration, seen through one family."""

    __slots__ = ("_cache", "_traits", "config", "defaulted", "where")

    def __init__(
        self,
        config: Mapping[str, Any],
        traits: Traits,
        where: str,
        *,
        defaulted: dict[str, Any] | None = None,
    ) -> None:
        self.config = config
        self.where = where
        self.defaulted: dict[str, Any] = {} if defaulted is None else defaulted
        self._traits = traits
        self._cache: dict[str, Any] = {}

    def with_traits(self, traits: Traits) -> Fields:
        """The same file with some code names fixed otherwise, for one kind of layer."""
        merged = {**self._traits, **traits}
        return Fields(self.config, merged, self.where, defaulted=self.defaulted)

    def raw(self, name: str) -> Any:
        """The value as it stands, after names, nulls and defaults."""
        if name not in self._cache:
            trait = self._traits[name]
            value = self._looked_up(trait) if isinstance(trait, Key) else trait
            self._cache[name] = value(self) if callable(value) else value
        return self._cache[name]

    def reads(self, file_field: str) -> bool:
        """Whether the family has a use for a field of the file."""
        keys = (trait for trait in self._traits.values() if isinstance(trait, Key))
        return any(name.partition(".")[0] == file_field for trait in keys for name in trait.names)

    def knows(self, name: str) -> bool:
        """Whether the family has that name at all."""
        return name in self._traits

    def count(self, name: str, low: int = 1, high: int = MAX_COUNT) -> int:
        """A whole number from `low` to `high`."""
        return self._whole(name, self.raw(name), low, high)

    def size(self, name: str) -> int:
        """A whole number that may be 0; null and false are 0."""
        return self._whole(name, self.raw(name) or 0, 0, MAX_COUNT)

    def optional(self, name: str) -> int | None:
        """A positive whole number, or None for null, absent and 0."""
        value = self.raw(name)
        return None if value in (None, 0, False) else self._whole(name, value, 1, 2**62)

    def flag(self, name: str) -> bool:
        """True or false; null is false."""
        value = self.raw(name)
        if value is None:
            return False
        if isinstance(value, bool) or value in (0, 1):
            return bool(value)
        raise self.error(name, f"must be true or false, got {shown(value)}")

    def text(self, name: str) -> str:
        """A short string."""
        value = self.raw(name)
        if isinstance(value, str):
            return value
        raise self.error(name, f"must be text, got {shown(value)}")

    def items(self, name: str) -> list[Any]:
        """A list of at most MAX_LAYERS entries."""
        value = self.raw(name)
        if not isinstance(value, list | tuple) or len(value) > MAX_LAYERS:
            raise self.error(name, f"must be a list of at most {MAX_LAYERS} entries, got {shown(value)}")
        return list(value)

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers, such as layer numbers."""
        return [self._whole(name, entry, 0, MAX_LAYERS) for entry in self.items(name)]

    def per_layer(self, name: str, n_layers: int, low: int = 0) -> list[int]:
        """A whole number for each layer: one number for all, or a list with an entry for each."""
        value = self.raw(name)
        if not isinstance(value, list | tuple):
            return [self._whole(name, value or 0, low, MAX_COUNT)] * n_layers
        if len(value) < n_layers:
            raise self.error(name, f"has {len(value)} entries for {n_layers} layers")
        return [self._whole(name, entry or 0, low, MAX_COUNT) for entry in value[:n_layers]]

    def choice(self, name: str, known: Mapping[str, Any] | tuple[str, ...]) -> str:
        """Text that must be one of `known`."""
        value = self.text(name)
        if value not in known:
            raise self.error(name, f"{value!r} is not a kind this version knows ({', '.join(sorted(known))})")
        return value

    def error(self, name: str, problem: str) -> DataError:
        """An error that names the file's own field."""
        return DataError(self.where, f"{self.file_name(name)}: {problem}")

    def file_name(self, name: str) -> str:
        """What the file calls a field: the name present in it, else the usual one."""
        trait = self._traits.get(name)
        if not isinstance(trait, Key):
            return name
        present = [candidate for candidate in trait.names if candidate in self.config]
        return (present or list(trait.names))[0]

    def _looked_up(self, trait: Key) -> Any:
        found_null = False
        for name in trait.names:
            value = self._reached(name)
            if value is not None:
                return value
            found_null = found_null or (name in self.config)
        if found_null and trait.null is not REQUIRED:
            return trait.null
        if trait.default is REQUIRED:
            others = f" (or {', '.join(trait.names[1:])})" if len(trait.names) > 1 else ""
            state = "is null" if found_null else "is missing"
            raise DataError(
                self.where, f"{trait.names[0]}{others}: {state}, and no class default stands for it"
            )
        default = trait.default(self) if callable(trait.default) else trait.default
        if not trait.quiet:
            self.defaulted[trait.names[0]] = default
        return default

    def _reached(self, name: str) -> Any:
        head, _, rest = name.partition(".")
        value = self.config.get(head)
        for part in rest.split(".") if rest else ():
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def _whole(self, name: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, list | tuple) and value and all(entry == value[0] for entry in value):
            value = value[0]  # ERNIE and Hunyuan write one number as a list of equal ones
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if not whole or isinstance(value, bool) or not low <= value <= high:
            raise self.error(name, f"must be a whole number from {low} to {high}, got {shown(value)}")
        return int(value)


def shown(value: object) -> str:
    """A value for an error line, cut to a readable length."""
    if isinstance(value, list | dict):
        return f"a {'list' if isinstance(value, list) else 'table'} of {len(value)} entries"
    text = (
        repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "an integer of over 30 digits"
    )
    return text if len(text) <= 60 else text[:57] + "..."
