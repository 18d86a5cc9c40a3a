"""What an engine file is given and what it answers; the record for the user is `EngineConfig`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from specmath.engines.configs.versions import Version
from specmath.results import CHUNK_ROWS, Advice, Block, Cell, Columns, Result

Policy = Literal["static", "tiers", "adaptive"]
POLICIES: Final[tuple[Policy, ...]] = ("static", "tiers", "adaptive")
LAST_BATCH: Final = 65_536
"""The end of the last tier, for engines that want one: larger than any batch they run."""
TARGET, DRAFT, LAYER = "TARGET", "DRAFT", "LAYER"
"""What stands for a model that was not named, and for the layer of an early exit."""


@dataclass(frozen=True, slots=True)
class Step:
    """k at the batches first … last; the last tier has no end."""

    first_batch: int
    last_batch: int | None
    k: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an engine is to be told.

    Attributes:
        version: None for the newest that is known.
        policy: One k, tiers, or adaptive verification.
        k: The one k, also where something else was asked for and cannot be had.
        adaptive_k: What adaptive verification drafts.
        tiers: k by batch, without gaps from batch 1 on.
        planned: Batches that the plan was made for; None where there was no plan.
        method: How it drafts, by the name that specmath has for it.
        target, draft: Models as the engine knows them; a draft of None has no name, or needs none.
        survival: Expected survival p_1 … p_k, for a test with synthetic acceptance; empty where not known.
        data_parallel, pipeline_parallel: Degrees.
    """

    version: Version | None
    policy: Policy
    k: int
    adaptive_k: int
    tiers: tuple[Step, ...]
    planned: tuple[int, int] | None
    method: str
    target: str
    draft: str | None
    survival: tuple[float, ...]
    data_parallel: int
    pipeline_parallel: int

    def since(self, *release: int) -> bool:
        """Whether the version is this release or a later one."""
        return self.version is None or self.version.at_least(*release)

    @property
    def draft_name(self) -> str:
        return DRAFT if self.draft is None else self.draft

    @property
    def deepest(self) -> int:
        """The longest draft of the tiers."""
        return max(step.k for step in self.tiers)

    @property
    def has_off_tier(self) -> bool:
        return any(step.k == 0 for step in self.tiers)

    @property
    def version_text(self) -> str:
        return "its newest versions" if self.version is None else self.version.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an engine file makes of it.

    Attributes:
        policy: What the blocks tell the engine; None where it can be told nothing.
        steps: k by batch as the engine will run it.
        blocks: What to paste.
        advice: What belongs to it.
    """

    policy: Policy | None
    steps: tuple[Step, ...] = ()
    blocks: tuple[Block, ...] = ()
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: where its versions part, and the function that writes for it.

    Attributes:
        name: Name.
        families: First release of each family of versions, with its name, rising.
        oldest, newest: The releases between which the engine's own source was read.
        configure: Makes the answer.
    """

    name: str
    families: tuple[tuple[tuple[int, ...], str], ...]
    oldest: tuple[int, ...]
    newest: tuple[int, ...]
    configure: Callable[[Wanted], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig(Result):
    """What to paste for an engine, and what belongs to it; its rows are k by batch as the engine runs it.

    Attributes:
        engine: Name of the engine.
        version: The version that was named; None for the newest that is known.
        family: The versions that it holds for.
        method: How it drafts.
        asked: The policy that was asked for.
        policy: The one that the engine is told; None where there is nothing to paste.
        steps: k by batch; 0 at every batch where there is nothing to paste.
        blocks: What to paste.
        advice: The warnings.
    """

    schema: ClassVar[str] = "specmath.config/1"
    keys: ClassVar[tuple[str, ...]] = ("policy", "first_batch", "last_batch", "k")

    engine: str
    version: str | None
    family: str
    method: str
    asked: Policy
    policy: Policy | None
    steps: tuple[Step, ...]
    advice: tuple[Advice, ...]
    blocks: tuple[Block, ...]

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        return {"engine": self.engine, "engine_version": self.version}

    @property
    def assumptions(self) -> tuple[str, ...]:
        if not self.blocks:
            return ()
        text = "\n".join(block.text for block in self.blocks)
        capitals = [name for name in (TARGET, DRAFT, LAYER) if name in text]
        stand_in = f"; put your own for {' and '.join(capitals)}" if capitals else ""
        return (
            f"config in the words of {self.engine} {self.family}{stand_in}",
            "only what speculation needs is written: add the model's path or hub id where a catalogue name "
            "stands, and your own parallelism, slots and context",
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return self.advice

    @property
    def verdict(self) -> str:
        name = f"{self.engine} {self.version or self.family}"
        if self.policy is None:
            return f"{name}: nothing to paste, no drafting"
        if self.policy == "tiers":
            runs = ", ".join(f"{_k_text(step.k)} {_batches_text(step)}" for step in self.steps)
            return f"{name}: tiers, {runs}"
        suffix = ", verified adaptively" if self.policy == "adaptive" else " at every batch"
        return f"{name}: k = {self.steps[0].k}{suffix}"

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        yield {
            "policy": [self.policy or "off"] * len(self.steps),
            "first_batch": [step.first_batch for step in self.steps],
            "last_batch": [step.last_batch for step in self.steps],
            "k": [step.k for step in self.steps],
        }


def static_steps(k: int) -> tuple[Step, ...]:
    """One k at every batch."""
    return (Step(1, None, k),)


def shell(command: Iterable[str], *comments: str) -> str:
    """A command on one line per argument group, under its comments.

    >>> print(shell(["vllm serve TARGET", "--port 8000"], "first"))
    # first
    vllm serve TARGET \\
      --port 8000
    """
    return "\n".join([*(f"# {comment}" for comment in comments), " \\\n  ".join(command)])


def quoted(text: str) -> str:
    """A word of a shell."""
    return shlex.quote(text)


def told(step: Step) -> str:
    """A tier in words, for a comment."""
    return f"{_batches_text(step)}: {_k_text(step.k)}"


def refused(wanted: Wanted, engine: str, reason: str, remedy: str) -> Answer:
    """Nothing to paste: the engine does not draft in this way."""
    text = f"{engine} ({wanted.version_text}) has no config for {wanted.method}: {reason}"
    return Answer(policy=None, advice=(Advice(code="method-unavailable", text=text, remedy=remedy),))


def instead_of(wanted: Wanted, engine: str, reason: str, remedy: str = "") -> Advice:
    """One k is printed although something else was asked for."""
    named = "tiers of k by batch" if wanted.policy == "tiers" else "adaptive verification"
    given = (
        f"k = {wanted.k} at every batch is printed"
        if wanted.k
        else "nothing is printed: off is the best one k"
    )
    tiers = "; ".join(told(step) for step in wanted.tiers)
    others = f"measure it, or run one server for each tier ({tiers})"
    return Advice(
        code="one-k-instead",
        text=f"{engine} ({wanted.version_text}) cannot be told {named}: {reason}; {given}",
        remedy=remedy or (others if len(wanted.tiers) > 1 else "measure it beside plain decoding"),
    )


def synthetic_rates(survival: Sequence[float]) -> list[float]:
    """Survival to four digits, never rising, for switches that refuse a rise."""
    rates: list[float] = []
    for rate in survival:
        rates.append(min([round(float(rate), 4), *rates[-1:]]))
    return rates


def synthetic_length(survival: Sequence[float]) -> float:
    """Acceptance length, bonus token included."""
    return round(1 + sum(map(float, survival)), 4)


def _k_text(k: int) -> str:
    return f"k = {k}" if k else "no drafting"


def _batches_text(step: Step) -> str:
    if step.last_batch is None:
        return "at every batch" if step.first_batch == 1 else f"from batch {step.first_batch}"
    if step.first_batch == step.last_batch:
        return f"at batch {step.first_batch}"
    return f"at batch {step.first_batch} to {step.last_batch}"
