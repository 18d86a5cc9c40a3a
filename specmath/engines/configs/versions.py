"""Versions as people write them: `0.32`, `v0.32.1rc1`, `0.4.6.post5`, llama.cpp's `b6000` or `2026-08`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from specmath.errors import InputError, shown

MAX_LENGTH: Final = 60
BUILDS_OF_2025: Final = 7500
"""llama.cpp's builds up to this one are of 2025 or before; later ones count as of 2026, some wrongly."""
_NUMBERED: Final = re.compile(
    r"v?([0-9]{1,6}(?:\.[0-9]{1,6}){0,5})(?:[.\-_]?((?!e[0-9])[a-z][0-9a-z.\-]*))?(?:\+[0-9a-z.\-]+)?"
)
"""Numbers, then a suffix that is no exponent (`1e400`), then a local version."""
_BUILD: Final = re.compile(r"b([0-9]{1,7})")
_DATED: Final = re.compile(r"(20[0-9]{2})(?:-(0[1-9]|1[0-2])(?:-[0-9]{2})?)?")
_BEFORE_RELEASE: Final = ("rc", "a", "b", "dev", "alpha", "beta", "pre")


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of an engine.

    Attributes:
        text: As it was written.
        release: Its numbers; year and month where it is a date, the year where it is a build.
        suffix: What follows them (`rc1`, `post5`).
        build: The number of a build, for an engine that counts builds.
    """

    text: str
    release: tuple[int, ...]
    suffix: str = ""
    build: int | None = None

    def at_least(self, *release: int) -> bool:
        """Whether it is this release or a later one; a release candidate counts as its release.

        >>> numbered_version("0.24.1rc1").at_least(0, 24), numbered_version("0.9.2").at_least(0, 24)
        (True, False)
        """
        return _padded(self.release) >= _padded(release)

    @property
    def before_release(self) -> bool:
        """Whether it came before the release that it is named after."""
        return self.suffix.startswith(_BEFORE_RELEASE)

    def is_release(self, *release: int) -> bool:
        """Whether its numbers are these."""
        return _padded(self.release) == _padded(release)


def numbered_version(text: str) -> Version:
    """A version of numbers and dots.

    Raises:
        InputError: for any other text.

    >>> numbered_version("v0.32.1rc1").release, numbered_version("0.4.6.post5").suffix
    ((0, 32, 1), 'post5')
    """
    found = _NUMBERED.fullmatch(text.strip().lower()) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise InputError("engine", f"{shown(text)} is no version; write it as 0.32 or 0.32.1rc1")
    numbers = tuple(int(part) for part in found[1].split("."))
    return Version(text=text.strip(), release=numbers, suffix=found[2] or "")


def dated_version(text: str) -> Version:
    """A build (`b6000`) or a date (`2026`, `2026-08`), of an engine without releases.

    Raises:
        InputError: for any other text.

    >>> dated_version("b6000").build, dated_version("2026-08").release
    (6000, (2026, 8))
    """
    plain = text.strip().lower() if len(text) <= MAX_LENGTH else ""
    if found := _BUILD.fullmatch(plain):
        build = int(found[1])
        return Version(text=plain, release=(2025,) if build <= BUILDS_OF_2025 else (2026,), build=build)
    if found := _DATED.fullmatch(plain):
        return Version(text=plain, release=tuple(int(part) for part in found.groups() if part))
    raise InputError(
        "engine", f"{shown(text)} is no build; write it as b6000, or its date as 2026 or 2026-08"
    )


def _padded(release: tuple[int, ...]) -> tuple[int, ...]:
    return release + (0,) * (6 - len(release))
