"""The exceptions of specmath.

    SpecmathError
    ├── InputError        a value is wrong in itself: out of range, malformed, contradictory   exit 2
    ├── UnknownNameError  a name that no catalogue knows; lists the nearest ones               exit 1
    ├── DataError         a file or stream was read, but its content is wrong                  exit 1
    └── AccessError       something cannot be read, written or imported                        exit 1

Each message is one line: what is wrong, where, and what to do. The library raises them, the command
line prints them; neither has a second text for the same fault.
"""

from __future__ import annotations

from collections.abc import Iterable


def shown(value: object) -> str:
    """A value as an error line may show it: 60 characters at most.

    >>> shown("h100"), len(shown("x" * 50_000))
    ("'h100'", 60)
    """
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def shown_path(path: object) -> str:
    """A path as an error line may show it: in quotes where it is blank or would break the line, cut if long.

    >>> shown_path("my.yaml"), shown_path(""), shown_path("two\\nlines")
    ('my.yaml', "''", "'two\\\\nlines'")
    """
    text = str(path)
    if not (text.isprintable() and text.strip()):
        text = repr(text)
    return text if len(text) <= 300 else "..." + text[-297:]


class SpecmathError(Exception):
    """Base of every error that specmath raises on purpose."""

    exit_code = 1


class InputError(SpecmathError, ValueError):
    """A value is wrong in itself. `name` is the parameter's name in the library (`draft_cost`).

    >>> str(InputError("alpha", "must be between 0 and 1, got 1.3"))
    'alpha: must be between 0 and 1, got 1.3'
    """

    exit_code = 2

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name}: {problem}")
        self.name = name
        self.problem = problem


class UnknownNameError(SpecmathError, LookupError):
    """A name is in no catalogue. The nearest known names are listed, none is picked.

    >>> str(UnknownNameError("hardware", "h100sxm", ["h100-sxm", "h100-pcie", "tpu-v4"]))
    "unknown hardware 'h100sxm'; nearest: h100-sxm, h100-pcie"
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], remedy: str = "") -> None:
        from difflib import get_close_matches  # only an error pays for this import

        nearest = get_close_matches(name.lower(), list(known), n=4, cutoff=0.5)
        hint = f"nearest: {', '.join(nearest)}" if nearest else remedy or f"`specmath show {kind}` lists all"
        super().__init__(f"unknown {kind} {shown(name)}; {hint}")
        self.kind = kind
        self.name = name
        self.nearest = tuple(nearest)


class DataError(SpecmathError, ValueError):
    """A file was read, but its content is wrong. Names the place: file, then entry or line, then field.

    >>> str(DataError("my.yaml", "memory.bandwidth: must be positive, got 0", entry="h100-sxm"))
    'my.yaml: h100-sxm: memory.bandwidth: must be positive, got 0'
    """

    def __init__(self, where: str, problem: str, *, entry: str = "") -> None:
        super().__init__(": ".join(part for part in (where, entry, problem) if part))
        self.where = where
        self.entry = entry
        self.problem = problem


class AccessError(SpecmathError):
    """A file, folder, address or optional package cannot be used.

    >>> str(AccessError("out/x.csv", "the folder does not exist"))
    'out/x.csv: the folder does not exist'
    """

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where}: {problem}")
        self.where = where
        self.problem = problem
