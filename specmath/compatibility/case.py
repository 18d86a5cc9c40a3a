"""What is known of a server before it is asked to speculate: settings, models, a sample of requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from specmath.compatibility.arguments import Arguments
from specmath.compatibility.findings import Finding
from specmath.compatibility.samples import Requests
from specmath.engines.configs.versions import Version
from specmath.model import ModelShape

HEADS: Final = ("eagle", "eagle3", "p-eagle", "mtp", "dflash", "dspark", "domino", "medusa")
"""Methods that read the target's hidden states."""
LOOKUPS: Final = ("ngram", "suffix")
CHAINED: Final = ("eagle", "eagle3", "p-eagle", "mtp")
"""Heads whose cache runs one token ahead, so that the last matched prefix unit is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings that every engine has under some name; None where nothing tells them.

    Attributes:
        method: How it drafts, by specmath's name.
        k: Draft tokens per step, as the engine reserves for them.
        tp, dp, pp, draft_tp: Degrees.
        max_num_seqs: Sequences that run at once at most.
        context: Tokens of the longest sequence that is served.
        token_budget: Tokens of a step at most.
        capture: Tokens of the largest captured graph.
        lora, eager, async_scheduling, v2_runner, prefix_caching, mixed_chunk: Switches.
        cpu: Whether the engine runs on a CPU, which has no graphs.
        tiers: Draft tokens by batch (first, last, k), as far as they could be read.
        adaptive: Whether the verification or the steps adapt.
        config: vLLM's speculative config.
        target_name, draft_name: The models as the engine was told them.
    """

    method: str | None = None
    k: int | None = None
    tp: int | None = None
    dp: int | None = None
    pp: int | None = None
    draft_tp: int | None = None
    max_num_seqs: int | None = None
    context: int | None = None
    token_budget: int | None = None
    capture: int | None = None
    lora: bool | None = None
    eager: bool | None = None
    async_scheduling: bool | None = None
    v2_runner: bool | None = None
    prefix_caching: bool | None = None
    mixed_chunk: bool | None = None
    cpu: bool | None = None
    tiers: tuple[tuple[int, int, int], ...] | None = None
    adaptive: bool | None = None
    config: Mapping[str, Any] | None = None
    target_name: str | None = None
    draft_name: str | None = None

    def over(self, base: Settings) -> Settings:
        """These settings, and those of `base` where nothing tells them."""
        gaps = {one.name: getattr(base, one.name) for one in fields(self) if getattr(self, one.name) is None}
        return replace(self, **gaps)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Everything a rule may look at.

    Attributes:
        engine: Name of the engine; None where nothing tells it.
        version: Its version; None where nothing tells it.
        settings: What was typed, over the server's arguments, over its log.
        arguments: The server's arguments as they were given.
        requests: What the sample of requests holds.
        target, draft: The models' shapes.
        seen: What the log itself reports.
        log_lines: Lines of the log that were read; None without a log.
    """

    engine: str | None = None
    version: Version | None = None
    settings: Settings = field(default_factory=Settings)
    arguments: Arguments | None = None
    requests: Requests | None = None
    target: ModelShape | None = None
    draft: ModelShape | None = None
    seen: tuple[Finding, ...] = ()
    log_lines: int | None = None

    @property
    def method(self) -> str | None:
        """How it drafts; by the draft's own configuration where no setting tells it."""
        if self.settings.method is not None or self.draft is None:
            return self.settings.method
        return "draft-model" if self.draft.draft is None else self.draft.draft.kind

    @property
    def width(self) -> int | None:
        """Tokens of a sequence in a verification."""
        return None if self.settings.k is None else self.settings.k + 1

    @property
    def hybrid(self) -> bool:
        """Whether the target keeps recurrent state beside a cache."""
        return self.target is not None and bool(self.target.states)

    @property
    def context(self) -> int | None:
        """Longest sequence: what is asked for, or what the target takes."""
        if self.settings.context is not None or self.target is None:
            return self.settings.context
        return self.target.max_context
