"""What the host takes in a step: the decoding loop itself, over models whose passes take no time.

The loop is the one that the proof times, so that nothing it does is left out of the prediction. Sampling in
draft passes is part of it; the passes themselves are not.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from calibrate.decoding import DecodingLoop
from calibrate.drafters import Drafter, ModelDrafter, Texts
from calibrate.sampling import Draft, Sampling
from calibrate.slots import LayerShape, Slots, empty_slots
from calibrate.timing import Work

_PROMPT = 4
"""Tokens of the texts: how long they are makes no difference to the host."""


class StillRunner:
    """A model that answers at once, with the same logits whatever it is asked.

    Attributes:
        vocabulary: Width of the logits.
        device: Where they lie.
    """

    def __init__(self, vocabulary: int, device: torch.device, seed: int) -> None:
        self.vocabulary, self.device = vocabulary, device
        self._generator = torch.Generator(device).manual_seed(seed)
        self._made: dict[tuple[int, ...], Tensor] = {}

    def slots(self, batch: int, length: int) -> Slots:
        """Room for nothing."""
        return empty_slots(batch, 1, [LayerShape(1, 1, 1, torch.float32)], self.device)

    def logits(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        """The logits made for this shape."""
        shape = tuple(tokens.shape)
        if shape not in self._made:
            size = (*shape, self.vocabulary)
            self._made[shape] = torch.randn(size, generator=self._generator, device=self.device)
        return self._made[shape]


class StillLookup:
    """A lookup that finds the same k tokens for each text at once."""

    passes_per_token = 0
    vocabulary: int | None = None

    def begin(self, texts: Texts) -> None:
        """Makes the draft of all steps."""
        self._found = torch.zeros_like(texts.tokens), torch.zeros_like(texts.length)

    def draft(self, texts: Texts, k: int, sampling: Sampling, generator: torch.Generator) -> Draft:
        """k tokens for each text, as many as are offered."""
        tokens, none = self._found
        return Draft(tokens[:, :k], None, none + k)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSteps:
    """Steps of a pair without its passes.

    Attributes:
        vocabulary: Tokens of the target.
        draft_vocabulary: Tokens that the pair shares.
        device: Where the pair runs.
        sampling: How tokens are chosen.
        synthetic_alpha: As in `calibrate.decoding.speculative`.
        is_lookup: Whether drafts come from the text, with nothing to sample.
        seed: Of logits and coins.
    """

    vocabulary: int
    draft_vocabulary: int
    device: torch.device
    sampling: Sampling
    synthetic_alpha: float | None = None
    is_lookup: bool = False
    seed: int = 0

    def plain(self, batch: int) -> Work:
        """The host in a plain step of `batch` sequences."""
        return self._work(batch, 0, None)

    def speculative(self, batch: int, k: int) -> Work:
        """The host in a step that drafts k tokens for each of `batch` sequences."""
        if self.is_lookup:
            return self._work(batch, k, StillLookup())
        still = StillRunner(self.draft_vocabulary, self.device, self.seed + 1)
        return self._work(batch, k, ModelDrafter(still))

    def _work(self, batch: int, k: int, drafter: Drafter | None) -> Work:
        loop = DecodingLoop(
            StillRunner(self.vocabulary, self.device, self.seed),
            drafter,
            [[0] * _PROMPT] * batch,
            k=k,
            new_tokens=k + 1,
            sampling=self.sampling,
            seed=self.seed,
            synthetic_alpha=self.synthetic_alpha,
        )
        loop.begin()

        def step() -> None:
            loop.step()
            loop.rewind()

        return step
