"""What `show profile` shows: all profiles side by side, or the constants of one with their evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from specmath.accelerator import Accelerator, Source
from specmath.profile_catalogue import load_profile, profile_names
from specmath.profiles import Profile, measured_constants
from specmath.results import CHUNK_ROWS, Cell, Columns, Result

_EVIDENCE = "constants come from evidence about components; none was fitted to a speed-up"
_MEASURED_HERE = "measured on the part"


def list_profiles(*, hardware_file: str | Path | None = None) -> ProfileList:
    """All profiles of the catalogue, one a row.

    Args:
        hardware_file: A YAML file whose profiles add to the catalogue or override it.

    >>> [row["name"] for row in list_profiles().rows()][:2]
    ['typical', 'vllm']
    """
    names = profile_names(hardware_file=hardware_file)
    return ProfileList(profiles=tuple(load_profile(name, hardware_file=hardware_file) for name in names))


def profile_sheet(profile: Profile, part: Accelerator | None = None) -> ProfileSheet:
    """The constants of one profile, a row each, as they hold on a part.

    Args:
        profile: The profile, `load_profile`.
        part: The accelerator; what was measured on it replaces the general shares. None for the shares alone.

    >>> rows = list(profile_sheet(load_profile("vllm")).rows())
    >>> [(row["low"], row["typical"], row["high"]) for row in rows if row["constant"] == "plain_step_s"]
    [(0.0005, 0.0012, 0.002)]
    """
    return ProfileSheet(profile=profile, part=part)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileList(Result):
    """Profiles side by side.

    Attributes:
        profiles: One a row.
    """

    profiles: tuple[Profile, ...]

    schema: ClassVar[str] = "specmath.profiles/1"
    keys: ClassVar[tuple[str, ...]] = (
        "name",
        "title",
        "captured",
        "constants",
        "judgements",
        "least",
        "most",
    )

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """None: the list takes no question."""
        return {}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the columns mean."""
        return (
            _EVIDENCE,
            "judgements: how many of the constants no measurement stands behind, wholly or in part",
            "least, most: a range divides and multiplies the speed-up by no less than these",
        )

    def __len__(self) -> int:
        return len(self.profiles)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` profiles at a time."""
        for start in range(0, len(self), size):
            rows = [_profile_row(profile) for profile in self.profiles[start : start + size]]
            yield {key: [row[key] for row in rows] for key in self.keys}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSheet(Result):
    """The constants of one profile with their ends and their evidence, in SI units.

    Attributes:
        profile: The profile.
        part: The accelerator it is shown for; None for no one in particular.
    """

    profile: Profile
    part: Accelerator | None

    schema: ClassVar[str] = "specmath.profile/1"
    keys: ClassVar[tuple[str, ...]] = ("constant", "low", "typical", "high", "cited", "read_from")

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """The profile and the part."""
        return {"profile": self.profile.name, "hardware": self.part.name if self.part else None}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the profile is, and where its sources are."""
        cited = {
            source.key: source for constant in self.profile.constants.values() for source in constant.sources
        }
        floor = f"a range is never narrower than ÷{self.profile.least:g} … ×{self.profile.most:g}"
        graphs = (
            "passes are replayed from captured graphs" if self.profile.captured else "every pass runs eagerly"
        )
        return (
            f"{self.profile.title}: {graphs}; {floor}",
            _EVIDENCE,
            "names and units are those of the fields of Efficiency and HostTimes; what is missing is ideal",
            *self.profile.notes,
            *(f"{key}: {_source_text(source)}" for key, source in cited.items()),
        )

    def __len__(self) -> int:
        return len(self.profile.constants)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` constants at a time."""
        rows = self._rows()
        for start in range(0, len(self), size):
            yield {key: [row[key] for row in rows[start : start + size]] for key in self.keys}

    def _rows(self) -> list[dict[str, Cell]]:
        here = measured_constants(self.part) if self.part and self.profile.library_products else {}
        rows: list[dict[str, Cell]] = []
        for name, constant in self.profile.constants.items():
            ends = {
                end: self.profile.value(name, end, measured=here.get(name))
                for end in ("low", "typical", "high")
            }
            cited = "/".join(source.key for source in constant.sources)
            note = _MEASURED_HERE if name in here else constant.note
            rows.append({"constant": name, **ends, "cited": cited, "read_from": note or None})
        return rows


def _profile_row(profile: Profile) -> dict[str, Cell]:
    judged = sum(
        any(source.key == "judgement" for source in constant.sources)
        for constant in profile.constants.values()
    )
    return {
        "name": profile.name,
        "title": profile.title,
        "captured": "yes" if profile.captured else "no",
        "constants": len(profile.constants),
        "judgements": judged,
        "least": profile.least,
        "most": profile.most,
    }


def _source_text(source: Source) -> str:
    return source.title if source.date is None else f"{source.title}, {source.date}"
