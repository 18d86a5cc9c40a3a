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


_AREAS: Final[tuple[tuple[str, str, Callable[[Case], bool]], ...]] = (
    ("the engine's own rules", "--engine NAME", lambda case: case.engine is not None),
    ("what its version has and has not", "--engine NAME@VERSION", lambda case: case.version is not None),
    (
        "keys of the speculative config",
        "--speculative-config",
        lambda case: case.settings.config is not None,
    ),
    ("flags of the server", "--server-args or --log", lambda case: case.arguments is not None),
    ("requests", "--requests", lambda case: case.requests is not None),
    (
        "the model pair",
        "--target and --draft or --method",
        lambda case: case.target is not None and (case.draft is not None or case.method in (*LOOKUPS, "mtp")),
    ),
    (
        "widths of steps against graphs",
        "--max-num-seqs and --k",
        lambda case: case.settings.max_num_seqs is not None and case.settings.k is not None,
    ),
    (
        "parallelism",
        "--tp, --dp and --pp",
        lambda case: None not in (case.settings.tp, case.settings.dp, case.settings.pp),
    ),
)


def scope_of(case: Case) -> Scope:
    """What was checked in a case."""
    areas = [area for area in _AREAS if area[1] != "--speculative-config" or case.engine in ("vllm", None)]
    done = [name for name, _, holds in areas if holds(case)]
    left = [f"{name} (needs {option})" for name, option, holds in areas if not holds(case)]
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
