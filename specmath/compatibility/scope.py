"""What was checked, and what was not for want of which input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from specmath.compatibility.case import LOOKUPS, Case
from specmath.compatibility.findings import dotted
from specmath.compatibility.samples import trait_names
from specmath.engines.configs.record import Engine
from specmath.engines.names import HOMES
from specmath.results import Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The reach of a check.

    Attributes:
        checked: Areas that were looked at, in words.
        unchecked: Areas that were not, with the option that each needs.
        told: The same as assumptions.
        warnings: What is not known of the engine's version.
    """

    checked: str
    unchecked: str
    told: tuple[str, ...]
    warnings: tuple[Advice, ...]


_KEYS: Final = "keys of the speculative config"
_GRAPHS: Final = "widths of steps against graphs"


def _pair_needs(case: Case) -> str:
    """Models that are missing; a name in a log or a command is no shape."""
    lacks = [] if case.target is not None else ["--target"]
    if case.draft is None and case.method not in (*LOOKUPS, "mtp"):
        lacks.append("--draft or --method" if case.method is None else "--draft")
    named = case.settings.target_name is not None or case.settings.draft_name is not None
    return " and ".join(lacks) + (": a name alone tells no shape" if lacks and named else "")


def _flags_needed(**settings: int | None) -> str:
    lacks = [f"--{name.replace('_', '-')}" for name, value in settings.items() if value is None]
    return " and ".join(", ".join(lacks).rsplit(", ", 1))


def _width_needs(case: Case) -> str:
    return _flags_needed(max_num_seqs=case.settings.max_num_seqs, k=case.settings.k)


def _degrees_needed(case: Case) -> str:
    return _flags_needed(tp=case.settings.tp, dp=case.settings.dp, pp=case.settings.pp)


_AREAS: Final[tuple[tuple[str, Callable[[Case], str]], ...]] = (
    ("the engine's own rules", lambda case: "" if case.engine else "--engine NAME"),
    ("what its version has and has not", lambda case: "" if case.version else "--engine NAME@VERSION"),
    (_KEYS, lambda case: "--speculative-config" if case.settings.config is None else ""),
    ("flags of the server", lambda case: "--server-args or --log" if case.arguments is None else ""),
    ("requests", lambda case: "--requests" if case.requests is None else ""),
    ("the model pair", _pair_needs),
    (_GRAPHS, _width_needs),
    ("parallelism", _degrees_needed),
)
"""What is looked at, and the options that it still needs in a case."""


def scope_of(case: Case) -> Scope:
    """What was checked in a case."""
    skipped = {_KEYS} if case.engine not in ("vllm", None) else set()
    skipped |= {_GRAPHS} if case.settings.cpu else set()
    needs = {name: needed(case) for name, needed in _AREAS if name not in skipped}
    done = [name for name, needed in needs.items() if not needed]
    left = [f"{name} (needs {needed})" for name, needed in needs.items() if needed]
    checked = ", ".join(done) or "nothing"
    unchecked = "; ".join(left) or "weights, tokenizers and chat templates, which only a start shows"
    told = [f"checked: {checked}", f"not checked: {unchecked}"]
    if case.requests is not None:
        told.append(f"of {case.requests.total:,} requests these traits were counted: {trait_names()}")
    told.append("a rule holds for the releases that it names; what no rule knows is not found")
    if case.log_lines is not None:
        told.append(f"log: {case.log_lines:,} lines read")
    return Scope(checked=checked, unchecked=unchecked, told=tuple(told), warnings=_warnings(case))


def _warnings(case: Case) -> tuple[Advice, ...]:
    if case.engine is None:
        return ()
    engine: Engine = import_module(f"specmath.engines.configs.{HOMES[case.engine][0]}").ENGINE
    newest, oldest = dotted(engine.newest), dotted(engine.oldest)
    if case.version is None:
        text = f"no version was given: taken as {newest}, and what older releases break on only bites"
        return (
            Advice(code="no-version", text=text, remedy=f"name yours, as --engine {case.engine}@{newest}"),
        )
    if case.version.release[: len(engine.newest)] > engine.newest:
        text = f"{case.engine} {case.version.text} is newer than {newest}, the newest that was read"
        return (
            Advice(code="version-not-read", text=text, remedy="read its release notes beside this table"),
        )
    if not case.version.at_least(*engine.oldest):
        text = f"{case.engine} {case.version.text} is older than {oldest}, the oldest that was read"
        return (Advice(code="version-not-read", text=text, remedy="upgrade before planning on it"),)
    return ()
