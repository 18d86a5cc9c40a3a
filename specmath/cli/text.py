"""From the text of an option to numbers, and from a parameter of the library back to its option."""

from __future__ import annotations

from specmath.axes import parse_axis
from specmath.errors import InputError

_OPTION_OF = {
    "from_source": "from",
    "kv_dtype": "kv_cache_dtype",
    "kind": "method",
    "rate_per_s": "rate",
    "share": "class",
    "classes": "class",
    "chunk_tokens": "chunk",
    "prefix_tokens": "prefix",
    "prefix_unit": "prefix",
    "layout": "draft_tp",
    "a": "beta",
    "b": "beta",
    "branching": "tree_branching",
    "contexts": "alpha_at",
    "depth_limit": "k",
    "nodes": "tree_nodes",
    "path": "output",
}
"""Option behind a parameter of the library, where the two names differ."""
_FROM = {"source": "from_source"}
_OPTION_IN = {
    "calibrate": {
        "output_tokens": "new_tokens",
        "level_s": "time_limit",
        "url": "server",
        "source": "history",
    },
    **dict.fromkeys(("speedup", "crossover", "schedule", "load"), _FROM),
}
"""The same where a command has an option of its own for it."""


def parameter(name: str, command: str = "") -> str:
    """The name that the command line, or one command of it, has for a parameter of the library."""
    own = _OPTION_IN.get(command, {}).get(name, name)
    return _OPTION_OF.get(own, own)


def option(name: str, command: str = "") -> str:
    """The option that sets a parameter of the library: `--draft-cost` for `draft_cost`."""
    known = parameter(name, command)
    return "SOURCE" if known == "source" else "--" + known.replace("_", "-")


def given_or(value: str | None, default: str) -> str:
    """What was typed, an empty text too, else the default."""
    return default if value is None else value


def only_one(given: dict[str, str | None], wanted: str) -> str:
    """The one option that was given; an error that names them otherwise."""
    named = [name for name, value in given.items() if value is not None]
    if len(named) == 1:
        return named[0]
    options = ", ".join(option(name) for name in (named or given))
    if not named:
        raise InputError(next(iter(given)), f"give {wanted}: one of {options}")
    raise InputError(named[0], f"{options} exclude each other; give one")


def parse_number(name: str, text: str) -> float:
    """One number; a list or range is an error that names the option."""
    values = parse_axis(name, text)
    if len(values) != 1:
        raise InputError(name, f"takes one value, got {text!r}")
    return float(values[0])


def parse_count(name: str, text: str) -> int:
    """One whole number; a list or range is an error that names the option."""
    values = parse_axis(name, text, whole=True)
    if len(values) != 1:
        raise InputError(name, f"takes one value, got {text!r}")
    return values[0]
