"""The record of one measured speed-up: a set-up at one k, batch and context, beside its plain arm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specmath.evidence import BLOCK_METHODS

METHODS: Final = (
    *("draft-model", "eagle", "eagle3", "mtp", "medusa", "gemma4-assistant"),
    *BLOCK_METHODS,
    *("ngram", "suffix", "early-exit", "lookup-tree"),
)
"""The ways of drafting of `specmath.drafters`, and `lookup-tree`: a tree that no model drafted."""
USABLE: Final = ("full", "assumed", "no")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpeedup:
    """One measured point: a set-up at one k, batch and context, with its speed-up over the plain arm.

    Attributes:
        id: Name of the row, unique in its file.
        source: Where it was published.
        collection: Which gathering of rows it belongs to: `2026` came after `older` had been studied.
        point: Which point of the source.
        engine: `vllm`, `sglang`, `tensorrt-llm`, `llama.cpp`, `mlx`, `transformers`, or `custom`.
        engine_version: Where it matters and is stated.
        graphs: Whether the speculative arm ran under captured graphs (or compiled); None where not stated.
        plain_graphs: The same for the plain arm.
        hardware: Catalogue name of the part; None where the catalogue has none or it is not stated.
        stated_hardware: What the source calls it, where the catalogue has no name.
        memory_bytes_per_s: Bandwidth of a part that is not in the catalogue.
        flops_per_s: Its peak in 16 bit.
        vendor: Who makes it.
        kind: `gpu`, `cpu`, `soc`, `apu`, `npu` or `tpu`.
        devices: Devices in all.
        tp, dp, ep, pp: The layout; None for 1.
        dcp: Ranks over which the cache of one sequence is spread (decode context parallel); None for 1.
        target: Catalogue name of the target; None where the catalogue has no such shape.
        stated_target: What the source calls it, where that is another name.
        method: One of `METHODS`.
        draft: Catalogue name of the draft or head; None where it follows from the target, or is not known.
        stated_draft: What the source calls it, where that says more.
        weights: Format of the target's weights (`bf16`, `fp8`, `nvfp4`, `q4_k`, …).
        kv: Format of the cache.
        k: Draft tokens in sequence per step; the depth of a tree.
        tree_nodes: Drafted nodes of a tree; None for a chain.
        drafted_per_step: Mean tokens drafted where that is not k.
        batch: Sequences in the batch, over all ranks.
        requests_per_s: Arrival rate, where the source gives that.
        context: Tokens in the cache per sequence.
        context_basis: `given` by the source, or typical of its `dataset`.
        acceptance_length: Mean tokens per step, bonus token included.
        alpha: Acceptance rate, where the source gives that.
        survival: Probability that position i is accepted, by i.
        lossy: Whether the acceptance rule changes the target's distribution.
        speedup: Plain time per token over speculative time per token.
        plain_tpot_s: Seconds per token and sequence of the plain arm.
        tpot_s: The same of the speculative arm.
        pass_s: Seconds of one forward pass, for rows that give nothing else.
        usable: `full` where everything is stated, `assumed` where `assumed` lists what is not, `no`.
        assumed: What was assumed, `field: what`.
        left_out: Why the row cannot be scored.
        duplicate_of: The row or rows that give the same measurement.
        note: What else a reader should know.
        stated: Further words of the source, for a row that is left out.
    """

    id: str
    source: str
    collection: str | None = None
    point: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    graphs: bool | None = None
    plain_graphs: bool | None = None
    hardware: str | None = None
    stated_hardware: str | None = None
    memory_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    vendor: str | None = None
    kind: str | None = None
    devices: int | None = None
    tp: int | None = None
    dp: int | None = None
    ep: int | None = None
    pp: int | None = None
    dcp: int | None = None
    target: str | None = None
    stated_target: str | None = None
    method: str | None = None
    draft: str | None = None
    stated_draft: str | None = None
    weights: str | None = None
    kv: str | None = None
    k: int | None = None
    tree_nodes: int | None = None
    drafted_per_step: float | None = None
    batch: int | None = None
    requests_per_s: float | None = None
    context: float | None = None
    context_basis: str | None = None
    acceptance_length: float | None = None
    alpha: float | None = None
    survival: tuple[float, ...] | None = None
    lossy: bool | None = None
    speedup: float | None = None
    plain_tpot_s: float | None = None
    tpot_s: float | None = None
    pass_s: float | None = None
    usable: str = "full"
    assumed: tuple[str, ...] = ()
    left_out: str | None = None
    duplicate_of: str | None = None
    note: str | None = None
    stated: str | None = None

    @property
    def is_usable(self) -> bool:
        """Whether everything needed for a score is there."""
        return self.usable != "no"

    @property
    def setup(self) -> tuple[object, ...]:
        """What rows of one set-up share: all but k, tree, batch, context and acceptance."""
        names = ("source", "engine", "engine_version", "graphs", "plain_graphs", "hardware")
        layout = ("stated_hardware", "devices", "tp", "dp", "ep", "pp", "dcp")
        models = ("target", "stated_target", "method", "draft", "stated_draft", "weights", "kv")
        return tuple(getattr(self, name) for name in names + layout + models)

    @property
    def step_ratio(self) -> float:
        """R = E/S, the speculative step in plain steps, as measured; for usable rows."""
        assert self.acceptance_length is not None
        assert self.speedup is not None
        return self.acceptance_length / self.speedup
