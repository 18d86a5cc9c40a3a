"""What is known of a set-up beside its measurements: the software, the models, what the engine tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specmath.anchors import Anchored
from specmath.calibrated_source import Calibrated
from specmath.drafters.base import Drafter
from specmath.execution import SIXTEEN_BIT
from specmath.profiled_source import Profiled
from specmath.roofline_source import Roofline
from specmath.sources import StepTimeSource

LOOKUPS: Final = ("ngram", "suffix")
ONE_PASS: Final = ("medusa", "pard", "p-eagle", "dflash", "dspark", "domino")
"""Methods whose draft pass does not grow with k."""
_APPLE: Final = ("apple", "m1", "m2", "m3", "m4", "m5")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """What a diagnosis is told of a set-up; what is not known stays empty, and no cause leans on it.

    Attributes:
        engine: vllm, sglang, tensorrt-llm, llama.cpp, mlx, transformers; empty where not known.
        method: How it drafts.
        hardware: Name of the accelerator.
        tp: Tensor parallelism of the target.
        draft_tp: That of the draft; None where not known.
        experts: Whether the target has routed experts.
        quantised: Whether its weights are narrower than 16 bits.
        latent: Whether its attention is latent (MLA).
        target_bytes: Weights of the target.
        draft_bytes: Weights of the draft.
        graph_sizes: Tokens per pass for which the engine has captured graphs.
    """

    engine: str = ""
    method: str = ""
    hardware: str = ""
    tp: int = 1
    draft_tp: int | None = None
    experts: bool | None = None
    quantised: bool | None = None
    latent: bool | None = None
    target_bytes: float | None = None
    draft_bytes: float | None = None
    graph_sizes: tuple[int, ...] = ()

    @classmethod
    def of(cls, source: StepTimeSource | None) -> SetUp:
        """What the source of the expected step times tells of it."""
        while isinstance(source, Anchored):
            source = source.source
        if isinstance(source, Calibrated):
            return cls(method=source.calibration.method, hardware=source.hardware, draft_tp=1)
        roofline = source.typical if isinstance(source, Profiled) else source
        if not isinstance(roofline, Roofline):
            return cls()
        target, drafter = roofline.target, roofline.drafter
        widths = [group.bytes_per_param for group in target.weights]
        widths += [group.bytes_per_param for group in target.experts]
        return cls(
            engine="" if roofline.name == "typical" else roofline.name,
            method=drafter.method,
            hardware=roofline.accelerator.name,
            tp=roofline.layout.tp,
            draft_tp=roofline.draft_layout.tp,
            experts=bool(target.experts),
            quantised=any(width < SIXTEEN_BIT for width in widths),
            latent=any(group.name.startswith("mla") for group in target.attention),
            target_bytes=target.weight_bytes,
            draft_bytes=_resident_bytes(drafter),
            graph_sizes=tuple(roofline.efficiency.graph_sizes or ()),
        )

    @property
    def is_apple(self) -> bool:
        """Whether it runs on Metal."""
        return self.engine.endswith(("mlx", "metal")) or self.hardware.lower().startswith(_APPLE)

    @property
    def is_lookup(self) -> bool:
        """Whether drafts are looked up."""
        return self.method in LOOKUPS

    @property
    def drafts_one_by_one(self) -> bool:
        """Whether each draft token takes a pass of its own, as far as is known."""
        return not self.is_lookup and self.method not in ONE_PASS

    @property
    def captures_graphs(self) -> bool:
        """Whether the engine may replay captured graphs; so may one that is not known."""
        return not self.is_apple and not self.engine.startswith(("llama.cpp", "transformers"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What the engine tells of the speculative run itself; None where it does not.

    The counterpart of an engine's telemetry: whoever reads one fills it in.

    Attributes:
        step_s: Mean seconds of a decoding step, as vLLM's inter-token latency is.
        prefill_share: Share of the tokens of all passes that were prompt tokens.
        draftless_share: Share of the steps without any draft token.
        tokens_per_step: Output tokens over all steps, those without a draft included.
        survival: Share of drafts that accepted at least 1, 2, … tokens.
    """

    step_s: float | None = None
    prefill_share: float | None = None
    draftless_share: float | None = None
    tokens_per_step: float | None = None
    survival: tuple[float, ...] = ()


NOTHING_OBSERVED: Final = Observed()


def _resident_bytes(drafter: Drafter) -> float | None:
    return None if drafter.resident is None else drafter.resident.weight_bytes
