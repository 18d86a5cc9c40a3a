"""What a check finds, and the releases of an engine that it holds for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from specmath.engines.configs.versions import Version

Effect = Literal["breaks", "bites"]


@dataclass(frozen=True, slots=True)
class Span:
    """Releases from `first` on, up to the one that is `gone` again; empty and None where there is no end.

    >>> Span((0, 10), (0, 17)).text, Span().text
    ('0.10 to before 0.17', 'all read')
    """

    first: tuple[int, ...] = ()
    gone: tuple[int, ...] | None = None

    def holds(self, version: Version) -> bool:
        """Whether the version is one of these releases."""
        return version.at_least(*self.first) and not (self.gone and version.at_least(*self.gone))

    @property
    def text(self) -> str:
        if self.gone is None:
            return f"from {dotted(self.first)}" if self.first else "all read"
        return (
            f"{dotted(self.first)} to before {dotted(self.gone)}"
            if self.first
            else f"before {dotted(self.gone)}"
        )


ALWAYS: Final = Span()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that breaks, or that bites.

    Attributes:
        effect: `breaks` where the server refuses it, fails, or gives another answer than was asked for;
            `bites` where it costs speed, memory or acceptance.
        code: Stable short name, for programs.
        subject: The key, flag, request field or model that it is about.
        text: What is the matter, with the numbers that show it.
        evidence: Where that is known from, in short.
        remedy: The one thing to do.
        versions: The releases that it holds for, in words.
    """

    effect: Effect
    code: str
    subject: str
    text: str
    evidence: str
    remedy: str
    versions: str = ALWAYS.text


def within(span: Span, version: Version | None, finding: Finding) -> Iterator[Finding]:
    """The finding where the version is in the span; of an unknown version, taken as the newest, what older
    releases break on only bites.
    """
    dated = replace(finding, versions=span.text)
    if version is None:
        yield dated if span.gone is None else replace(dated, effect="bites")
    elif span.holds(version):
        yield dated


def dotted(release: tuple[int, ...]) -> str:
    """`0.24` for (0, 24), `2026-08` for a date."""
    return (
        "-".join(f"{part:02}" for part in release) if release[:1] > (2000,) else ".".join(map(str, release))
    )


def share(part: int, whole: int) -> str:
    """`12 of 400 requests (3 %)`.

    >>> share(12, 400)
    '12 of 400 requests (3 %)'
    """
    percent = 100 * part / whole
    rounded = f"{percent:.0f}" if percent >= 1 or not part else "under 1"
    return f"{part:,} of {whole:,} requests ({rounded} %)"
