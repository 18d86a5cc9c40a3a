"""From a place to the work that is timed there: a pass, a chain of draft passes, or the host of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from calibrate.timing import Work, out_of_memory_reason
from specmath.calibrations import Place
from specmath.errors import InputError

if TYPE_CHECKING:
    from calibrate.runners import ModelRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """What `calibrate.timing.measure` prepares places with.

    Attributes:
        target: Runs the passes of part `target`.
        draft: Runs the chains of part `draft`; None where drafts are looked up.
        lookup: Makes the work of a lookup ready: of `batch` texts of `context` tokens, for k tokens each.
        plain_host: Makes the work of the host in a plain step ready, for `batch` sequences.
        step_host: The same in a speculative step, for `batch` sequences and k draft tokens.
        seed: Of the token ids.
    """

    target: ModelRunner
    draft: ModelRunner | None = None
    lookup: Callable[[int, int, int], Work] | None = None
    plain_host: Callable[[int], Work] | None = None
    step_host: Callable[[int, int], Work] | None = None
    seed: int = 0

    def reserve(self, places: Sequence[Place]) -> None:
        """Take the memory that the places share, once: for the largest, or the largest that gets it."""
        for part, runner in (("target", self.target), ("draft", self.draft)):
            if runner is not None:
                _reserve(runner, [place for place in places if place.part == part])

    def prepare(self, place: Place) -> Work:
        """The work of a place, ready to run.

        Raises:
            InputError: nothing was given that runs this part.
            MemoryError, RuntimeError: the place does not fit.
        """
        if place.part == "target":
            return self._target_pass(place)
        if place.part == "draft" and self.draft is not None:
            return self._draft_chain(self.draft, place)
        if place.part == "draft" and self.lookup is not None:
            return self.lookup(place.batch, place.width, place.context)
        if place.part == "plain-host" and self.plain_host is not None:
            return self.plain_host(place.batch)
        if place.part == "step-host" and self.step_host is not None:
            return self.step_host(place.batch, place.width - 1)
        raise InputError("places", f"hold {place.part!r}, for which nothing to run was given")

    def _target_pass(self, place: Place) -> Work:
        runner = self.target
        slots = runner.shared_slots(place.batch, slot_length(place))
        tokens = self._tokens(runner, place.batch, place.width)
        start = torch.full((place.batch,), place.context, device=runner.device)

        def target_pass() -> torch.Tensor:
            return runner.logits(slots, tokens, start)

        return target_pass

    def _draft_chain(self, runner: ModelRunner, place: Place) -> Work:
        """k passes, each fed by the best token of the one before.

        The first carries two tokens of each sequence, as it does in decoding: the last draft token of a step
        that accepted all of them is in no cache of the draft yet.
        """
        slots = runner.shared_slots(place.batch, slot_length(place))
        first = self._tokens(runner, place.batch, 2)
        starts = torch.arange(place.width, device=runner.device)[:, None] + place.context + 1
        later = list(starts.expand(-1, place.batch).contiguous())
        start = later[0] - 1

        def draft_chain() -> torch.Tensor:
            logits = runner.logits(slots, first, start)
            for position in later[1:]:
                logits = runner.logits(slots, logits[:, -1].argmax(-1, keepdim=True), position)
            return logits[:, -1].argmax(-1)

        return draft_chain

    def _tokens(self, runner: ModelRunner, batch: int, width: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randint(runner.vocabulary, (batch, width), generator=generator).to(runner.device)


def slot_length(place: Place) -> int:
    """Tokens that a sequence needs room for at a place: the context and what the passes add.

    >>> slot_length(Place(part="draft", batch=1, width=4, context=512))  # two, then three more
    517
    """
    return place.context + place.width + (1 if place.part == "draft" else 0)


def _reserve(runner: ModelRunner, places: Sequence[Place]) -> None:
    from calibrate.slots import room

    for tokens in sorted({place.batch * room(slot_length(place)) for place in places}, reverse=True):
        try:
            runner.pool.reserve(tokens)
            break
        except (RuntimeError, MemoryError) as error:
            if out_of_memory_reason(error) is None:
                raise
    widest = [place.batch * (place.width if place.part == "target" else 2) for place in places]
    runner.reserve_logits(max(widest, default=0))
