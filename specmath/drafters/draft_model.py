"""A separate, smaller model: k passes, each over the token that it drafted last."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specmath.drafters.base import RunsModel
from specmath.errors import InputError
from specmath.model import ModelShape


@dataclass(frozen=True, slots=True)
class DraftModel(RunsModel):
    """A draft model: k passes one after another, weights and a cache of its own, on one device by default.

    Under data-parallel attention that is one device for each group: a group drafts for its own sequences.

    Attributes:
        model: The draft model.
        layout: How it is spread; None for the default.

    Source: Leviathan et al. 2022 (arXiv:2211.17192).

    >>> from specmath.model_counts import counts_model
    >>> DraftModel(counts_model("1B", 1e9)).name
    '1B'
    """

    method: ClassVar[str] = "draft-model"
    fitting_law: ClassVar[str] = "one α, or rates by position"

    def require_target(self, target: ModelShape) -> None:
        """Any target will do; a head is no model of its own."""
        if self.model.draft is not None:
            problem = f"{self.model.name} is a draft head ({self.model.draft.kind}), not a model of its own"
            raise InputError("draft", f"{problem}; drop --method")
