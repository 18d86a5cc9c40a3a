"""Settings of several inputs, one over another, and where two of them disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from specmath.compatibility.case import LOOKUPS, Settings
from specmath.engines.configs.versions import Version
from specmath.results import Advice

_COMPARED: Final = {
    "method": "method",
    "k": "k",
    "tp": "tp",
    "dp": "dp",
    "pp": "pp",
    "draft_tp": "draft_tp",
    "max_num_seqs": "max_num_seqs",
    "context": "context",
    "target_name": "target",
    "draft_name": "draft",
    "v2_runner": "the V2 runner",
}
"""Settings that two inputs may tell differently, and their names in a warning."""


def layered(layers: Sequence[Settings]) -> tuple[Settings, tuple[Advice, ...]]:
    """The settings of the first layer that tells each, and a warning for each that a later one contradicts.

    A speculative config is one thing: what a lower one alone says of draft and tiers is not added to a higher
    one, and a lookup has no draft at all.

    >>> settings, notes = layered([Settings(k=3), Settings(k=4, tp=2)])
    >>> settings.k, settings.tp, notes[0].text
    (3, 2, 'k is 3 in one input and 4 in another: 3 was taken')
    """
    settings, notes = layers[0], list[Advice]()
    for below in layers[1:]:
        notes += _disagreements(settings, below)
        whole = settings.config is not None and below.config is not None
        settings = settings.over(
            replace(below, draft_name=None, draft_tp=None, tiers=None) if whole else below
        )
    if settings.method in LOOKUPS:
        settings = replace(settings, draft_name=None, draft_tp=None)
    return settings, tuple(dict.fromkeys(notes))


def version_disagreement(given: Version | None, logged: Version | None) -> Iterator[Advice]:
    """A warning where the version that is given is not the log's; `0.32` agrees with 0.32.0 and 0.32.1."""
    if given is None or logged is None:
        return
    digits = min(len(given.release), len(logged.release))
    same = given.release[:digits] == logged.release[:digits]
    builds = None not in (given.build, logged.build)
    if (given.build != logged.build) if builds else not same:
        yield _differs("version", given.text, logged.text)


def _disagreements(above: Settings, below: Settings) -> Iterator[Advice]:
    lookup = above.method in LOOKUPS
    for name, words in _COMPARED.items():
        first, second = getattr(above, name), getattr(below, name)
        if None not in (first, second) and first != second and not (lookup and name == "draft_name"):
            yield _differs(words, _words(first), _words(second))


def _differs(words: str, first: str, second: str) -> Advice:
    text = f"{words} is {first} in one input and {second} in another: {first} was taken"
    return Advice(code="inputs-differ", text=text, remedy="give the one that will be served")


def _words(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return f"{value:,}"
    text = "".join(char if char.isprintable() else "?" for char in value[:81])
    return text if len(text) <= 80 else f"{text[:77]}..."
