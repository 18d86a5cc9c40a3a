"""Multi-token prediction: the target's own extra layer, run k times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from specmath.drafters.base import Head
from specmath.drafters.derivation import borrowed_head, dense, head_shape, own_layer
from specmath.drafters.eagle import Eagle
from specmath.errors import InputError
from specmath.model import DraftHead, ModelShape


@dataclass(frozen=True, slots=True)
class Mtp(Head):
    """MTP: k passes of the target's own module, experts included, and the target's head.

    Source: DeepSeek-V3 (arXiv:2412.19437), section 2.2.
    """

    method: ClassVar[str] = "mtp"
    fitting_law: ClassVar[str] = Eagle.fitting_law

    @property
    def assumptions(self) -> tuple[str, ...]:
        return ("MTP: one layer drafts every token, its weights and those of the head are read in each pass",)


def own_mtp(target: ModelShape) -> ModelShape:
    """The module that the target's configuration names."""
    if target.mtp is None:
        problem = f"mtp needs a module of the target's own, and the configuration of {target.name} names none"
        raise InputError("method", f"{problem}; take another, such as eagle3")
    return replace(target.mtp, name=f"mtp of {target.name}")


def derived_mtp(target: ModelShape) -> ModelShape:
    """The module that MTP would have: one more of the target's layers + 2h·h + the target's head."""
    weights, experts, attention = own_layer(target)
    shape = head_shape(
        target,
        None,
        DraftHead(kind="mtp", one_pass=False, draft_vocab=target.vocab),
        (dense(target, "fusion", 2 * target.hidden**2), *weights, borrowed_head(target)),
        "MTP module derived from the target: one more of its layers, a fusion of 2h·h, the target's head",
    )
    return replace(shape, experts=experts, attention=attention, n_layers=1)
