"""Early exit: the target's own first layers and its head draft, the rest verifies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from specmath.checks import FloatArray, require_count
from specmath.drafters.base import DraftWork, one_by_one
from specmath.errors import InputError
from specmath.execution import HostTimes, Layout
from specmath.model import ModelShape
from specmath.roofline import ForwardPass

_WHOLE_ROLES = frozenset({"head", "embedding"})


@dataclass(frozen=True, slots=True)
class EarlyExit:
    """Early exit: k passes of the first layers and the head; weights and cache are the target's.

    The bonus token needs all layers, so verification reads everything and S = E / (1 + k·c) with
    c = exit_layer/layers + share of the head.

    Attributes:
        target: The target, which drafts for itself.
        exit_layer: Layers that a draft pass runs, from 1 to one less than the target has.

    Source: LayerSkip (arXiv:2404.16710); draft and verify (arXiv:2309.08168).
    """

    target: ModelShape
    exit_layer: int

    method: ClassVar[str] = "early-exit"
    resident: ClassVar[ModelShape | None] = None
    match_rate: ClassVar[float] = 1.0
    max_tokens: ClassVar[int | None] = None
    fitting_law: ClassVar[str] = "one α, or rates by position"

    def __post_init__(self) -> None:
        if self.target.counts_only:
            problem = f"needs layers, and {self.target.name} is known by its counts alone; name the target"
            raise InputError("exit_layer", problem)
        require_count("exit_layer", self.exit_layer, 1)
        if self.exit_layer >= self.target.n_layers:
            problem = f"must be below the {self.target.n_layers} layers of {self.target.name}"
            raise InputError("exit_layer", f"{problem}, got {self.exit_layer}")

    @property
    def name(self) -> str:
        return f"first {self.exit_layer} layers"

    @property
    def model(self) -> ModelShape:
        """The first layers with the head, as a model whose parts are those shares of the target's."""
        share = self.exit_layer / self.target.n_layers
        return replace(
            self.target,
            name=f"{self.name} of {self.target.name}",
            weights=tuple(
                group
                if group.name in _WHOLE_ROLES
                else replace(
                    group,
                    stored_params=round(group.stored_params * share),
                    read_params=round(group.read_params * share),
                    multiplied_params=round(group.multiplied_params * share),
                )
                for group in self.target.weights
            ),
            experts=tuple(
                replace(group, n_layers=max(1, round(group.n_layers * share)))
                for group in self.target.experts
            ),
            attention=tuple(
                replace(
                    group,
                    n_layers=max(1, round(group.n_layers * share)),
                    kv_elements_per_entry=round(group.kv_elements_per_entry * share),
                    flops_per_pair=round(group.flops_per_pair * share),
                )
                for group in self.target.attention
            ),
            states=tuple(
                replace(
                    group,
                    n_layers=max(1, round(group.n_layers * share)),
                    state_bytes=round(group.state_bytes * share),
                )
                for group in self.target.states
            ),
            n_layers=self.exit_layer,
            mtp=None,
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            f"a draft pass runs {self.exit_layer} of {self.target.n_layers} layers, all taken as alike, and "
            "the whole head; its cache is the target's",
        )

    def layout_under(self, target: Layout) -> Layout:
        return replace(target, pp=1)

    def require_target(self, target: ModelShape) -> None:
        """Its own target alone."""
        if target != self.target:
            raise InputError("draft", f"{self.name} are those of {self.target.name}, not of {target.name}")

    def work(self, depth: FloatArray, nodes: FloatArray) -> DraftWork:
        return one_by_one(depth, nodes)

    def host_s(self, host: HostTimes, batch: FloatArray, tokens: FloatArray) -> FloatArray:
        return np.asarray(host.draft_pass_s)

    def verify_s(
        self, target: ForwardPass, batch: FloatArray, width: FloatArray, context: FloatArray
    ) -> FloatArray:
        return np.asarray(target.time(batch, width, context))
