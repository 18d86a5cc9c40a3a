"""A model as the cost model sees it: what a forward pass reads and what it multiplies."""

from __future__ import annotations

from dataclasses import dataclass

from specmath.errors import InputError
from specmath.units import parse_quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCounts:
    """A model known by its parameter counts alone: the textbook's model, at context 0.

    A pass reads all weights once and multiplies the active ones, 2 FLOPs per parameter and token. For a
    mixture of experts that is the textbook's simplification: a small batch really reads fewer experts, so
    the plain step comes out too slow there.

    Attributes:
        name: What the user typed, `70B` or `47B/13B`.
        total_params: Parameters stored and read per pass.
        active_params: Parameters multiplied per token; equal to `total_params` for a dense model.
    """

    name: str
    total_params: float
    active_params: float

    @property
    def active_share(self) -> float:
        """Active over total parameters: 1 for a dense model."""
        return self.active_params / self.total_params


def model_from_counts(text: str, name: str = "target") -> ModelCounts:
    """The model that `70B` (dense) or `47B/13B` (total/active) stands for.

    `name` is the parameter that an error names.

    Raises:
        InputError: if the text is not such a count, or more parameters are active than stored.

    >>> model_from_counts("47B/13B").active_share.__round__(3)
    0.277
    """
    total_text, slash, active_text = text.partition("/")
    total = parse_quantity(name, total_text)
    active = parse_quantity(name, active_text) if slash else total
    if not 0 < active <= total or total > 1e15:
        raise InputError(name, f"{text!r}: need 0 < active <= total parameters, as in 70B or 47B/13B")
    return ModelCounts(name=text, total_params=total, active_params=active)
