"""Drafting methods by name: the drafter of each, and the head that it would have for a target.

A drafter's file is imported when its method is used, as start-up is a feature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Final

from specmath.drafters.base import Drafter
from specmath.errors import InputError
from specmath.execution import Layout
from specmath.model import ModelShape

_OPTIONAL: Final = ("draft", "layout", "match_rate", "exit_layer")
_NEEDED: Final = {
    "draft": "a draft by name or file",
    "match_rate": "the share of steps that find a match",
    "exit_layer": "the number of layers that a draft pass runs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a drafter is made of; see `drafter_of`."""

    method: str
    target: ModelShape
    draft: ModelShape | None
    layout: Layout | None
    match_rate: float | None
    exit_layer: int | None

    def given(self) -> list[str]:
        """Names of the arguments that were given, the target aside."""
        return [name for name in _OPTIONAL if getattr(self, name) is not None]


@dataclass(frozen=True, slots=True)
class Method:
    """One way of drafting.

    Attributes:
        home: Its file beside this one.
        drafter: The class in it.
        arguments: Those of the class, from what is wanted.
        takes: Arguments of `drafter_of` that say something to it.
        needs: Those of them that must be given.
        head: What makes its head for a target, in the same file; empty where the head must be named.
    """

    home: str
    drafter: str
    arguments: Callable[[Wanted], tuple[Any, ...]]
    takes: tuple[str, ...]
    needs: tuple[str, ...] = ()
    head: str = ""

    def of(self, wanted: Wanted) -> Drafter:
        """The drafter that is wanted, with the head it would have where none is named."""
        if self.head and wanted.draft is None:
            wanted = replace(wanted, draft=self.part(self.head)(wanted.target))
        drafter: Drafter = self.part(self.drafter)(*self.arguments(wanted))
        return drafter

    def part(self, name: str) -> Any:
        """Something of its file."""
        return getattr(import_module(f"specmath.drafters.{self.home}"), name)


def _model(home: str, drafter: str, head: str = "") -> Method:
    """A drafter that runs a model or a head."""
    needs = () if head else ("draft",)
    return Method(
        home, drafter, lambda wanted: (wanted.draft, wanted.layout), ("draft", "layout"), needs, head
    )


_LOOKUP: Final = Method(
    "lookup",
    "Lookup",
    lambda wanted: (wanted.match_rate, wanted.method),
    ("match_rate",),
    ("match_rate",),
)

METHODS: Final[dict[str, Method]] = {
    "draft-model": _model("draft_model", "DraftModel"),
    "pard": _model("parallel_model", "ParallelModel"),
    "eagle": _model("eagle", "Eagle", "derived_eagle"),
    "eagle3": _model("eagle3", "Eagle3", "derived_eagle3"),
    "mtp": _model("mtp", "Mtp", "own_mtp"),
    "p-eagle": _model("p_eagle", "PEagle"),
    "medusa": _model("medusa", "Medusa", "derived_medusa"),
    "dflash": _model("block", "DFlash", "derived_dflash"),
    "dspark": _model("block", "DSpark"),
    "domino": _model("block", "Domino"),
    "gemma4-assistant": _model("assistant", "Assistant"),
    "ngram": _LOOKUP,
    "suffix": _LOOKUP,
    "early-exit": Method(
        "early_exit",
        "EarlyExit",
        lambda wanted: (wanted.target, wanted.exit_layer),
        ("exit_layer",),
        ("exit_layer",),
    ),
}
"""Every method; a new one is a line here and a file beside this one."""
_DERIVED: Final = {
    "eagle": "derived_eagle",
    "eagle3": "derived_eagle3",
    "mtp": "derived_mtp",
    "medusa": "derived_medusa",
    "dflash": "derived_dflash",
}


def derived_head(target: ModelShape, kind: str) -> ModelShape:
    """The head that a drafting method would have for a target, from the target's shape alone.

    EAGLE: one decoder layer + 2h·h + the target's head. EAGLE-3: one layer that reads 2h + 3h·h + a head of
    32,000 rows. MTP: one more layer of the target, experts included, + 2h·h + its head. Medusa: five heads of
    h·h + vocabulary·h. DFlash: five layers + 5h·h + the target's head. What was taken for granted stands in
    `assumed`. Published heads of dense targets come out within 0.1 % but for two with fewer KV heads or a
    smaller vocabulary, of sparse ones within 12 % but for one; MTP modules within 0.1 % but for a few.

    Args:
        target: The target, known by its shape.
        kind: eagle, eagle3, mtp, medusa or dflash.

    Raises:
        InputError: a kind that cannot be derived, or a target known by its counts alone.

    >>> from specmath.model_catalogue import load_model
    >>> head = derived_head(load_model("llama-3.1-8b"), "eagle3")
    >>> round(head.read_params / 1e6)  # 50 fusion + 67 attention + 176 MLP + 131 head
    425
    """
    if kind not in _DERIVED:
        raise InputError("kind", f"{kind!r} cannot be derived; one of {', '.join(_DERIVED)}")
    head: ModelShape = METHODS[kind].part(_DERIVED[kind])(target)
    return head


def infer_method(model: ModelShape) -> str:
    """The method that a draft's own configuration names: its kind of head, else draft-model.

    >>> from specmath.model_counts import counts_model
    >>> infer_method(counts_model("1B", 1e9))
    'draft-model'
    """
    return "draft-model" if model.draft is None else model.draft.kind


def drafter_of(
    target: ModelShape,
    draft: ModelShape | None = None,
    *,
    method: str | None = None,
    layout: Layout | None = None,
    match_rate: float | None = None,
    exit_layer: int | None = None,
) -> Drafter:
    """The drafter that a method name and its arguments mean.

    Args:
        target: The target.
        draft: The draft model or head; None for a method that needs none or whose head is derived.
        method: One of `METHODS`; None to infer it from the draft, or a lookup from `match_rate`.
        layout: How the draft is spread; None for one device of each data-parallel group, and for heads the
            target's ranks.
        match_rate: Share of steps with a match, for ngram and suffix only.
        exit_layer: Layers that a draft pass runs, for early-exit only.

    Raises:
        InputError: an unknown method, one that lacks an argument or is given another's, or a draft that does
            not fit the target.
    """
    named = method or _inferred(target, draft, match_rate, exit_layer)
    if named not in METHODS:
        raise InputError("method", f"{named!r} is none of {', '.join(METHODS)}")
    wanted = Wanted(
        method=named,
        target=target,
        draft=draft,
        layout=layout,
        match_rate=match_rate,
        exit_layer=exit_layer,
    )
    given, chosen = wanted.given(), METHODS[named]
    for name in _OPTIONAL:
        if name in given and name not in chosen.takes:
            takes = " and ".join(chosen.takes)
            raise InputError(name, f"says nothing to {named}, which takes {takes}")
        if name in chosen.needs and name not in given:
            raise InputError(name, f"is missing: {named} needs {_NEEDED[name]}")
    drafter = chosen.of(wanted)
    drafter.require_target(target)
    return drafter


def _inferred(
    target: ModelShape, draft: ModelShape | None, match_rate: float | None, exit_layer: int | None
) -> str:
    """The method that what was given means."""
    if draft is not None:
        return infer_method(draft)
    if match_rate is not None:
        return "ngram"
    if exit_layer is not None:
        return "early-exit"
    raise InputError("draft", f"is missing: name the draft of {target.name}, or a method that needs none")
