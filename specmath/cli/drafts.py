"""From `--draft`, `--method` and their kin to drafters, one or several to compare.

--draft llama-3.2-1b                                a model or head by name, file or hub id
--draft eagle3-llama-3.1-8b,alpha=.75,k=5           with an acceptance and k of its own
--draft eagle3,rates=.8/.7/.6 --draft mtp           a method whose head is derived or the target's own
--draft ngram,match-rate=.4,alpha=.9                a lookup
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from specmath.axes import parse_record
from specmath.cli.laws import match_rate
from specmath.cli.models import degree, model
from specmath.cli.options import LAWS, REFINEMENTS, AcceptanceOptions, DeviceOptions, PairOptions
from specmath.cli.text import parameter, parse_count
from specmath.drafters.base import Drafter
from specmath.drafters.methods import METHODS, drafter_of
from specmath.errors import InputError
from specmath.execution import Layout
from specmath.model import ModelShape

DEFAULT_DRAFT: Final = "1B"
_LAW_KEYS: Final = (*LAWS, *REFINEMENTS)
_KEYS: Final = ("method", "k", "tp", "exit_layer", "match_rate", "quantization", *_LAW_KEYS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One draft that was asked for, still as text.

    Attributes:
        name: Model or head; None where the method needs none.
        method: How it drafts; None to infer it.
        tp: Its tensor parallelism.
        exit_layer: Layers that a pass of early exit runs.
        quantization: Format of its layer weights; None as its file says.
        k: Its own k; None for that of the question.
        acceptance: Its own acceptance, else that of the question.
        record: What was typed, where it gives the draft options of its own.
    """

    name: str | None
    method: str | None
    tp: str | None
    exit_layer: str | None
    quantization: str | None
    k: str | None
    acceptance: AcceptanceOptions
    record: str | None = None

    @property
    def means(self) -> str | None:
        """The method, as far as the text alone tells it; None for that of the draft's own configuration."""
        if self.method is not None or self.name is not None:
            return self.method
        if self.acceptance.match_rate is not None:
            return "ngram"
        return None if self.exit_layer is None else "early-exit"

    def takes(self, argument: str) -> bool:
        """Whether an argument of `drafter_of` says something to it; a draft by name takes a layout alone."""
        method = METHODS.get(self.means or "draft-model")
        return method is None or argument in method.takes


def draft_choices(acceptance: AcceptanceOptions, pair: PairOptions) -> list[Choice]:
    """Every draft asked for; where none is, the one choice that the other options mean.

    An option of the question that says something to one of several drafts is not held against the others.
    """
    texts: list[str | None] = [*(pair.draft or [])] or [None]
    choices = [_choice(text, acceptance, pair) for text in texts]
    if not any(choice.takes("match_rate") for choice in choices) and acceptance.match_rate is not None:
        raise InputError("draft", "excludes --match-rate: a lookup draft runs no model")
    taken = {name: any(choice.takes(name) for choice in choices) for name in ("exit_layer", "layout")}
    return [_without_strays(choice, taken) for choice in choices]


def only_choice(acceptance: AcceptanceOptions, pair: PairOptions) -> Choice:
    """The one draft of a command that takes one, without an acceptance or k of its own."""
    choices = draft_choices(acceptance, pair)
    if len(choices) > 1:
        raise InputError("draft", "takes one here; `specmath speedup` compares several")
    if choices[0].k is not None or choices[0].acceptance != acceptance:
        raise InputError("draft", "takes no acceptance and no k of its own here; give --alpha and --k")
    return choices[0]


def with_own_law(
    acceptance: AcceptanceOptions, pair: PairOptions
) -> tuple[AcceptanceOptions, str | None, PairOptions]:
    """The acceptance and the k that the one draft brings along, and the pair without them.

    Returns:
        The acceptance, the draft's own k or None, and the pair; all as typed where it brings nothing.
    """
    choices = draft_choices(acceptance, pair)
    if len(choices) > 1:
        raise InputError("draft", "takes one here; `specmath speedup` compares several")
    own = choices[0]
    if own.record is None:
        return acceptance, None, pair
    plain = replace(
        pair,
        draft=None if own.name is None else [own.name],
        method=own.method,
        draft_tp=own.tp,
        exit_layer=own.exit_layer,
        draft_quantization=own.quantization,
    )
    return own.acceptance, own.k, plain


@contextmanager
def naming(choice: Choice) -> Iterator[None]:
    """Lets an error in a draft's own record name the draft, and not an option of the question."""
    try:
        yield
    except InputError as error:
        if choice.record is None or error.name == "draft":
            raise
        key = parameter(error.name).removeprefix("draft_").replace("_", "-")
        raise InputError("draft", f"{choice.record}: {key}: {error.problem}") from error


def drafter(choice: Choice, target: ModelShape, device: DeviceOptions) -> Drafter:
    """The drafter that was chosen, for this target."""
    with naming(choice):
        return _drafter(choice, target, device)


def _drafter(choice: Choice, target: ModelShape, device: DeviceOptions) -> Drafter:
    name, matched = choice.name, choice.acceptance.match_rate
    if name is None and choice.means is None:
        if not target.counts_only:
            problem = f"is missing: name the draft of {target.name}, or give --method or --match-rate"
            raise InputError("draft", problem)
        name = DEFAULT_DRAFT
    return drafter_of(
        target,
        None if name is None else _draft_model(name, choice, device),
        method=choice.method,
        layout=_draft_layout(choice, device),
        match_rate=None if matched is None else match_rate(choice.acceptance),
        exit_layer=None if choice.exit_layer is None else parse_count("exit_layer", choice.exit_layer),
    )


def _draft_model(name: str, choice: Choice, device: DeviceOptions) -> ModelShape:
    shape = model("draft", name, device, draft_kind=_head_kind(choice.method))
    if choice.quantization is None:
        return shape
    try:
        return shape.with_quantization(choice.quantization)
    except InputError as error:
        raise InputError("draft_quantization", error.problem) from error


def _draft_layout(choice: Choice, device: DeviceOptions) -> Layout | None:
    """What was asked for; vLLM runs a draft model on the ranks of its target, others on one device."""
    if choice.tp is not None:
        return Layout(tp=degree("draft_tp", choice.tp), dp=degree("dp", device.dp))
    own_model = choice.name is not None and choice.means in (None, "draft-model")
    if own_model and (device.engine or "").lower().partition("@")[0] == "vllm":
        return Layout(tp=degree("tp", device.tp), dp=degree("dp", device.dp))
    return None


def _head_kind(method: str | None) -> str | None:
    """The kind of head to read a file as, where the method names one."""
    return None if method in (None, "draft-model", "pard", "mtp") else method


def _choice(text: str | None, acceptance: AcceptanceOptions, pair: PairOptions) -> Choice:
    name, record = (text, {}) if text is None else _split(text)
    method = record.get("method", pair.method)
    if name in METHODS and method is None:
        name, method = None, name
    choice = Choice(
        name=name,
        method=method,
        tp=record.get("tp", pair.draft_tp),
        exit_layer=record.get("exit_layer", pair.exit_layer),
        quantization=record.get("quantization", pair.draft_quantization),
        k=record.get("k"),
        acceptance=_own_acceptance(acceptance, record),
        record=text if record else None,
    )
    if "match_rate" in record and not choice.takes("match_rate"):
        raise InputError("draft", f"{text}: match-rate: is for a lookup draft, which runs no model")
    return choice


def _split(text: str) -> tuple[str | None, dict[str, str]]:
    """The name in front of a record, and the record; a text without `=` and `,` is a name."""
    if "=" not in text and "," not in text:
        return text, {}
    name, _, rest = text.partition(",")
    if "=" in name:
        return None, parse_record("draft", text, _KEYS)
    return name.strip() or None, parse_record("draft", rest, _KEYS)


def _own_acceptance(acceptance: AcceptanceOptions, record: dict[str, str]) -> AcceptanceOptions:
    """The question's acceptance with the draft's own law, match rate or both in its place."""
    own = {key: record[key] for key in _LAW_KEYS if key in record}
    matched = record.get("match_rate", acceptance.match_rate)
    if own:
        return AcceptanceOptions(**own, match_rate=matched)
    return replace(acceptance, match_rate=matched)


def _without_strays(choice: Choice, taken: dict[str, bool]) -> Choice:
    """The choice without what the question says to others; what no draft takes is left to be refused."""
    matched = choice.acceptance.match_rate if choice.takes("match_rate") else None
    return replace(
        choice,
        exit_layer=choice.exit_layer if choice.takes("exit_layer") or not taken["exit_layer"] else None,
        tp=choice.tp if choice.takes("layout") or not taken["layout"] else None,
        acceptance=replace(choice.acceptance, match_rate=matched),
    )
