"""Plain and speculative decoding of a batch, as it is measured: one loop, without a look at single tokens.

Texts stand at different positions and draw no attention of the host: it waits for the device only when a
text may have reached its end. A text that has goes on in the batch without growing, and is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from calibrate.drafters import Drafter, Texts, prefilled_slots
from calibrate.sampling import (
    Draft,
    Sampling,
    coin_acceptance,
    distribution,
    draw,
    greedy_acceptance,
    modified_rejection,
)
from specmath.checks import MAX_K, require_count, require_range
from specmath.errors import InputError

if TYPE_CHECKING:
    from calibrate.runners import Runner
    from calibrate.timing import Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What was written, and at what expense.

    Attributes:
        tokens: New tokens of each text, its end token included.
        k: Draft tokens of a step; 0 for plain decoding.
        steps: Steps of the batch.
        steps_of: Of them, those in which each text still grew.
        accepted: Accepted tokens in each step that drafted for a text, by text. The step in which a text ends
            counts in full, as engines count.
        target_passes: Passes of the target, without those over prompts.
        draft_passes: The same of the draft.
        seconds: What all steps took; None where no timer was given.
        synthetic: Whether tokens passed by coins, so that text and counts say nothing about the models.
    """

    tokens: tuple[tuple[int, ...], ...]
    k: int
    steps: int
    steps_of: tuple[int, ...]
    accepted: tuple[tuple[int, ...], ...]
    target_passes: int
    draft_passes: int
    seconds: float | None
    synthetic: bool = False

    @property
    def step_s(self) -> float | None:
        """Seconds of a step; None where they were not timed."""
        return None if self.seconds is None else self.seconds / self.steps

    @property
    def drafts(self) -> int:
        """Steps of texts that drafted."""
        return sum(map(len, self.accepted))

    @property
    def histogram(self) -> tuple[int, ...]:
        """Of them, those that accepted exactly 0, 1, …, k tokens; empty for plain decoding."""
        counts = (count for of_text in self.accepted for count in of_text)
        return tuple(np.bincount(list(counts), minlength=self.k + 1).tolist()) if self.k else ()

    @property
    def accepted_at(self) -> tuple[int, ...]:
        """Of them, those in which draft token 1, 2, …, k was accepted."""
        return accepted_at(self.histogram)

    @property
    def match_rate(self) -> float:
        """Share of steps that drafted at all."""
        return self.drafts / sum(self.steps_of)

    @property
    def acceptance_length(self) -> float:
        """Tokens per step, over all steps in which a text grew."""
        return 1 + sum(self.accepted_at) / sum(self.steps_of)


def accepted_at(histogram: Sequence[int]) -> tuple[int, ...]:
    """How often draft token 1, 2, … was accepted, from how often exactly 0, 1, 2, … were.

    >>> accepted_at([5, 2, 1])
    (3, 1)
    """
    return tuple(sum(histogram[place:]) for place in range(1, len(histogram)))


def plain(
    target: Runner,
    prompts: Sequence[Sequence[int]],
    *,
    new_tokens: int,
    sampling: Sampling | None = None,
    eos: Sequence[int] = (),
    vocabulary: int | None = None,
    seed: int = 0,
    timer: Timer | None = None,
    warm_steps: int = 0,
) -> Decoded:
    """Decodes token by token.

    Args:
        target: The model.
        prompts: Token ids of each text, one or more of each.
        new_tokens: Tokens after which a text ends, at least 1.
        sampling: How tokens are chosen; greedy where left out.
        eos: Tokens that end a text.
        vocabulary: Tokens there are; logits beyond are padding.
        seed: Of the samples.
        timer: Times all steps together; the pass over the prompts is not in it.
        warm_steps: Steps that are run before, and undone.
    """
    loop = DecodingLoop(
        target, None, prompts, k=0, new_tokens=new_tokens, sampling=sampling, eos=eos, seed=seed
    )
    loop.vocabulary = min(vocabulary or target.vocabulary, target.vocabulary)
    return loop.run(timer, warm_steps)


def speculative(
    target: Runner,
    drafter: Drafter,
    prompts: Sequence[Sequence[int]],
    *,
    k: int,
    new_tokens: int,
    sampling: Sampling | None = None,
    eos: Sequence[int] = (),
    seed: int = 0,
    timer: Timer | None = None,
    warm_steps: int = 0,
    synthetic_alpha: float | None = None,
) -> Decoded:
    """Decodes with k drafted tokens a step, judged by modified rejection; at T = 0 by equality.

    Args:
        target: The model whose text is written.
        drafter: What proposes tokens.
        prompts: Token ids of each text, one or more of each.
        k: Draft tokens a step, at least 1.
        new_tokens: Tokens after which a text ends, at least 1.
        sampling: How both models choose tokens; greedy where left out.
        eos: Tokens that end a text.
        seed: Of the samples.
        timer: Times all steps together; the passes over the prompts are not in it.
        warm_steps: Steps that are run before, and undone.
        synthetic_alpha: Probability with which any drafted token passes, in place of the judgement.
    """
    loop = DecodingLoop(
        target,
        drafter,
        prompts,
        k=k,
        new_tokens=new_tokens,
        sampling=sampling,
        eos=eos,
        seed=seed,
        synthetic_alpha=synthetic_alpha,
    )
    return loop.run(timer, warm_steps)


class DecodingLoop:
    """The loop itself, step by step: texts, caches, what has ended, and what each step accepted.

    Args:
        target: The model whose text is written.
        drafter: What proposes tokens; None for plain decoding, with k = 0.

    The others are those of `speculative`.
    """

    def __init__(
        self,
        target: Runner,
        drafter: Drafter | None,
        prompts: Sequence[Sequence[int]],
        *,
        k: int,
        new_tokens: int,
        sampling: Sampling | None = None,
        eos: Sequence[int] = (),
        seed: int = 0,
        synthetic_alpha: float | None = None,
    ) -> None:
        require_count("k", k, 1 if drafter else 0, MAX_K if drafter else 0)
        require_count("new_tokens", new_tokens, 1)
        if synthetic_alpha is not None:
            require_range("synthetic_alpha", synthetic_alpha, 0, 1)
        if not prompts or not all(prompts):
            raise InputError("prompts", "must be one or more, each of a token at least")
        self.target, self.drafter, self.k = target, drafter, k
        self.sampling, self.synthetic_alpha = sampling or Sampling(), synthetic_alpha
        self.texts = Texts(prompts, new_tokens + k + 1, target.device)
        self.start = self.texts.length
        self.limit = self.start + new_tokens
        self.eos = torch.tensor(eos, dtype=torch.long, device=target.device)
        self.has_ended = torch.zeros_like(self.start, dtype=torch.bool)
        self.generator = torch.Generator(target.device).manual_seed(seed)
        self._chance = self.generator.get_state()
        own = target.vocabulary
        self.vocabulary = min(own, drafter.vocabulary or own) if drafter else own
        self.history: list[tuple[Tensor, Tensor | None, Tensor | None]] = []

    def run(self, timer: Timer | None, warm_steps: int) -> Decoded:
        """Decodes all texts to their ends; `warm_steps` are run before, and undone."""
        self.begin()
        for _ in range(warm_steps):
            self.step()
        self.rewind()
        seconds = None
        if timer is None:
            self._decode()
        else:
            seconds = timer.seconds(self._decode)
        return self._decoded(seconds)

    def begin(self) -> None:
        """Reads the prompts."""
        self.slots = prefilled_slots(self.target, self.texts)
        if self.drafter:
            self.drafter.begin(self.texts)

    def rewind(self) -> None:
        """Undoes all steps. What they left behind the prompts, in texts and caches, is overwritten."""
        self.texts.length = self.start
        self.has_ended = torch.zeros_like(self.has_ended)
        self.generator.set_state(self._chance)
        self.history.clear()

    def _decode(self) -> None:
        while missing := int(torch.where(self.has_ended, 0, self.limit - self.texts.length).max()):
            sure = (
                1 if len(self.eos) else -(-missing // (self.k + 1))
            )  # steps that the text with most to go needs
            for _ in range(sure):
                self.step()

    @torch.no_grad()
    def step(self) -> None:
        """One step of all texts: a draft, the target's pass over it, and the judgement."""
        length, has_grown = self.texts.length, ~self.has_ended
        if self.drafter is None:
            accepted, offered = None, None
            self.texts.put(length, self._own_tokens(self._logits(length - 1, 1)))
            length_after = length + 1
        else:
            draft = self.drafter.draft(self.texts, self.k, self.sampling, self.generator)
            self.texts.put(length, draft.tokens)
            accepted, follower = self._judged(draft, self._logits(length - 1, self.k + 1))
            self.texts.put(length + accepted, follower.unsqueeze(1))
            offered, length_after = draft.offered, length + accepted + 1
        self.history.append((has_grown, accepted, offered))
        if len(self.eos):
            ends = torch.isin(self.texts.window(length, self.k + 1), self.eos)
            places = length.unsqueeze(1) + torch.arange(self.k + 1, device=length.device)
            self.has_ended = self.has_ended | (ends & (places < length_after.unsqueeze(1))).any(1)
        self.texts.length = torch.where(has_grown, torch.minimum(length_after, self.limit), length)
        self.has_ended = self.has_ended | (self.texts.length >= self.limit)

    def _logits(self, start: Tensor, width: int) -> Tensor:
        logits = self.target.logits(self.slots, self.texts.window(start, width), start)
        return logits[..., : self.vocabulary]

    def _own_tokens(self, logits: Tensor) -> Tensor:
        if self.sampling.temperature == 0:
            return logits.argmax(-1)
        return draw(distribution(logits, self.sampling), self.generator)

    def _judged(self, draft: Draft, logits: Tensor) -> tuple[Tensor, Tensor]:
        if self.synthetic_alpha is not None:
            return coin_acceptance(draft, self.synthetic_alpha, self._own_tokens(logits), self.generator)
        if self.sampling.temperature == 0:
            return greedy_acceptance(draft, logits.argmax(-1))
        return modified_rejection(draft, distribution(logits, self.sampling), self.generator)

    def _decoded(self, seconds: float | None) -> Decoded:
        steps = len(self.history)
        grown = torch.stack([grown for grown, _, _ in self.history]).cpu().numpy()
        return Decoded(
            tokens=self._new_tokens(),
            k=self.k,
            steps=steps,
            steps_of=tuple(grown.sum(0).tolist()),
            accepted=self._accepted(grown),
            target_passes=steps,
            draft_passes=steps * self.k * self.drafter.passes_per_token if self.drafter else 0,
            seconds=seconds,
            synthetic=self.synthetic_alpha is not None,
        )

    def _new_tokens(self) -> tuple[tuple[int, ...], ...]:
        ends = set(self.eos.tolist())
        spans = zip(self.texts.tokens.tolist(), self.start.tolist(), self.texts.length.tolist(), strict=True)
        return tuple(_until_end(row[start:length], ends) for row, start, length in spans)

    def _accepted(self, grown: npt.NDArray[np.bool_]) -> tuple[tuple[int, ...], ...]:
        counts = [accepted for _, accepted, _ in self.history if accepted is not None]
        if not counts:
            return ((),) * self.texts.batch
        of_steps, drafted = torch.stack(counts).cpu().numpy(), grown
        offered = [offer for _, _, offer in self.history if offer is not None]
        if offered:
            drafted = grown & (torch.stack(offered) > 0).cpu().numpy()
        return tuple(
            tuple(of_text[took].tolist()) for of_text, took in zip(of_steps.T, drafted.T, strict=True)
        )


def _until_end(tokens: list[int], ends: set[int]) -> tuple[int, ...]:
    for place, token in enumerate(tokens):
        if token in ends:
            return tuple(tokens[: place + 1])
    return tuple(tokens)
