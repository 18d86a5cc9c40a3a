"""The Gemma 4 assistant: a small model between maps of the target's width, on the target's cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specmath.drafters.base import Head
from specmath.drafters.eagle import Eagle


@dataclass(frozen=True, slots=True)
class Assistant(Head):
    """Gemma 4 assistant: k passes of a small Gemma that reads the target's cache and keeps none."""

    method: ClassVar[str] = "gemma4-assistant"
    fitting_law: ClassVar[str] = Eagle.fitting_law
