"""What every way of drafting tells the cost model, and the two bases that most of them share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from specmath.checks import FloatArray
from specmath.errors import InputError
from specmath.execution import HostTimes, Layout
from specmath.model import DraftHead, ModelShape
from specmath.roofline import ForwardPass

VOCAB_PADDING = 0.01
"""Share by which padding may make two tables of the same vocabulary differ."""
ONE_TOKEN = np.ones(())


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftWork:
    """Draft work of one step; the arrays broadcast.

    Attributes:
        passes: Passes of the draft, one after another.
        tokens: Tokens of each sequence in one of them, a mean where the passes differ.
    """

    passes: FloatArray
    tokens: FloatArray


class Drafter(Protocol):
    """What every drafter offers. Depth is how many draft tokens follow one another, nodes how many there are.

    A chain of k has depth k and k nodes; a tree has more nodes than depth.
    """

    @property
    def method(self) -> str:
        """Name of the method, as `specmath.drafters.methods` lists it."""

    @property
    def name(self) -> str:
        """The draft, for a reader."""

    @property
    def model(self) -> ModelShape | None:
        """What a draft pass runs; None where none is run."""

    @property
    def resident(self) -> ModelShape | None:
        """What it keeps in memory beside the target: weights and a cache of its own."""

    @property
    def match_rate(self) -> float:
        """Share of steps in which a lookup finds a match; 1 for all other drafters."""

    @property
    def max_tokens(self) -> int | None:
        """Longest draft it can make; None where k is free."""

    @property
    def fitting_law(self) -> str:
        """Which acceptance law describes it."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What its cost assumes, one sentence each."""

    def layout_under(self, target: Layout) -> Layout:
        """How it is spread beside a target spread like this."""

    def require_target(self, target: ModelShape) -> None:
        """Raise InputError where it cannot draft for this target."""

    def work(self, depth: FloatArray, nodes: FloatArray) -> DraftWork:
        """Draft passes of a step and the tokens in each."""

    def host_s(self, host: HostTimes, batch: FloatArray, tokens: FloatArray) -> FloatArray:
        """Seconds of the host per draft pass of `tokens` tokens of each of `batch` sequences of a rank."""

    def verify_s(
        self, target: ForwardPass, batch: FloatArray, width: FloatArray, context: FloatArray
    ) -> FloatArray:
        """Mean seconds of the pass that verifies `width` tokens of a sequence with something to verify."""


def one_by_one(depth: FloatArray, nodes: FloatArray) -> DraftWork:
    """A pass per level. A chain's carries one token; a tree's the level's nodes, their mean here."""
    chain = bool(np.all(nodes == depth))
    tokens = ONE_TOKEN if chain else np.maximum(nodes / np.maximum(depth, 1), 1)
    return DraftWork(passes=depth, tokens=tokens)


def all_at_once(depth: FloatArray, tokens: FloatArray) -> DraftWork:
    """One pass for the whole draft; none where nothing is drafted."""
    return DraftWork(passes=np.minimum(depth, 1), tokens=np.maximum(tokens, 1))


@dataclass(frozen=True, slots=True)
class RunsModel:
    """Base of the drafters that keep a model of their own and run it.

    Attributes:
        model: What a pass runs.
        layout: How it is spread; None for the method's default.
    """

    model: ModelShape
    layout: Layout | None = None

    match_rate: ClassVar[float] = 1.0

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def resident(self) -> ModelShape | None:
        return self.model

    @property
    def max_tokens(self) -> int | None:
        return None if self.model.draft is None else self.model.draft.max_tokens

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ()

    def layout_under(self, target: Layout) -> Layout:
        """One device, or one for each data-parallel group, which drafts for its own sequences."""
        return Layout(dp=target.dp) if self.layout is None else self.layout

    def work(self, depth: FloatArray, nodes: FloatArray) -> DraftWork:
        return one_by_one(depth, nodes)

    def host_s(self, host: HostTimes, batch: FloatArray, tokens: FloatArray) -> FloatArray:
        return np.asarray(host.draft_pass_s)

    def verify_s(
        self, target: ForwardPass, batch: FloatArray, width: FloatArray, context: FloatArray
    ) -> FloatArray:
        return np.asarray(target.time(batch, width, context))


@dataclass(frozen=True, slots=True)
class Head(RunsModel):
    """Base of the heads that draft from the target's hidden states and run on the target's ranks."""

    method: ClassVar[str]

    def __post_init__(self) -> None:
        kind = "model of its own" if self.model.draft is None else f"head of kind {self.model.draft.kind}"
        if self.model.draft is None or self.model.draft.kind != self.method:
            raise InputError("draft", f"{self.model.name} is a {kind}, not {self.method}; drop --method")

    @property
    def head(self) -> DraftHead:
        """How the head drafts."""
        assert self.model.draft is not None
        return self.model.draft

    def layout_under(self, target: Layout) -> Layout:
        """That of the target, on its last pipeline stage, unless one was given."""
        if self.layout is not None:
            return self.layout
        return Layout(tp=target.tp, dp=target.dp, ep=target.ep)

    def require_target(self, target: ModelShape) -> None:
        """A head reads the target's hidden states and its table: both must have the target's sizes."""
        head, reads = self.model, self.head.target_hidden or self.model.hidden
        if target.counts_only:
            problem = f"{head.name} reads hidden states, and {target.name} is known by its counts alone"
            raise InputError("draft", f"{problem}; name the target")
        if reads != target.hidden:
            sizes = f"hidden states of {reads:,}, and {target.name} has {target.hidden:,}"
            raise InputError("draft", f"{head.name} reads {sizes}; it was made for another target")
        if abs(head.vocab - target.vocab) > VOCAB_PADDING * target.vocab:
            sizes = f"a vocabulary of {head.vocab:,}, and {target.name} has {target.vocab:,}"
            raise InputError("draft", f"{head.name} has {sizes}; it was made for another target")
