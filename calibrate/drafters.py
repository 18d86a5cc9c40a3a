"""What proposes tokens to a batch of texts: a second model, or a look into the text so far."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from calibrate.sampling import Draft, Sampling, distribution, draw

if TYPE_CHECKING:
    from calibrate.runners import Runner
    from calibrate.slots import Slots

PREFILL_LOGITS = 2**27
"""Logits of a pass over prompts at most, 512 MiB in float32."""


class Texts:
    """A batch of texts, prompts at first, that grow at different rates.

    Attributes:
        tokens: [B, room]; what stands behind the length of a text is not part of it.
        length: Tokens of each text, [B], at least 1. The last one is in no cache yet.
    """

    def __init__(self, prompts: Sequence[Sequence[int]], room: int, device: torch.device) -> None:
        rows = torch.zeros(len(prompts), max(map(len, prompts)) + room, dtype=torch.long)
        for row, prompt in zip(rows, prompts, strict=True):
            row[: len(prompt)] = torch.tensor(prompt, dtype=torch.long)
        self.tokens = rows.to(device)
        self.length = torch.tensor([len(prompt) for prompt in prompts], device=device)

    @property
    def batch(self) -> int:
        """Texts."""
        return self.tokens.shape[0]

    @property
    def room(self) -> int:
        """Tokens that the longest text can grow to."""
        return self.tokens.shape[1]

    def window(self, start: Tensor, width: int) -> Tensor:
        """`width` tokens of each text from position start[b] on, [B, width]."""
        return self.tokens.gather(1, start.unsqueeze(1) + torch.arange(width, device=start.device))

    def put(self, start: Tensor, tokens: Tensor) -> None:
        """Writes tokens [B, w] at positions start[b] and following, without a change of length."""
        places = start.unsqueeze(1) + torch.arange(tokens.shape[1], device=start.device)
        self.tokens.scatter_(1, places, tokens)


@torch.no_grad()
def prefilled_slots(runner: Runner, texts: Texts) -> Slots:
    """Room for the texts as far as they can grow, which holds every token but the last of each.

    Passes are of one width, over the longest text; what they leave behind shorter ones is overwritten later.
    """
    slots = runner.slots(texts.batch, texts.room)
    longest = int(texts.length.max()) - 1
    width = min(longest, max(1, PREFILL_LOGITS // (texts.batch * runner.vocabulary)))
    for begin in range(0, longest, max(width, 1)):
        start = torch.full_like(texts.length, min(begin, longest - width))
        runner.logits(slots, texts.window(start, width), start)
    return slots


class Drafter(Protocol):
    """What the decoding loop asks for drafts.

    Attributes:
        vocabulary: Tokens it can propose; None for those of the target.
        passes_per_token: Forward passes that a drafted token takes.
    """

    @property
    def vocabulary(self) -> int | None: ...
    @property
    def passes_per_token(self) -> int: ...

    def begin(self, texts: Texts) -> None:
        """Gets ready for texts, of which all but the last token is read now."""

    def draft(self, texts: Texts, k: int, sampling: Sampling, generator: torch.Generator) -> Draft:
        """k tokens that may follow each text."""


class ModelDrafter:
    """A draft model, k passes one after another.

    Its cache lacks the last token of a draft that was accepted whole, so that the first pass always carries
    two tokens: the last of the text and the one before, which it may know already.

    Args:
        runner: The model.
        vocabulary: Tokens it shares with the target; logits beyond are padding.
        takes_best: Whether it proposes its best token at any temperature, with q = 1.
    """

    passes_per_token = 1

    def __init__(self, runner: Runner, vocabulary: int | None = None, *, takes_best: bool = False) -> None:
        self.runner = runner
        self.vocabulary: int | None = vocabulary or runner.vocabulary
        self.takes_best = takes_best
        self._slots: Slots

    def begin(self, texts: Texts) -> None:
        """Reads the prompts."""
        self._slots = prefilled_slots(self.runner, texts)

    def draft(self, texts: Texts, k: int, sampling: Sampling, generator: torch.Generator) -> Draft:
        """k tokens that may follow each text, with the distributions they were sampled from."""
        tokens: list[Tensor] = []
        laws: list[Tensor] = []
        logits = self._after_text(texts)
        for place in range(k):
            if place:
                logits = self._logits(tokens[-1].unsqueeze(1), texts.length + place - 1)[:, 0]
            if self.takes_best or sampling.temperature == 0:
                tokens.append(logits.argmax(-1))
            else:
                laws.append(distribution(logits, sampling))
                tokens.append(draw(laws[-1], generator))
        return Draft(torch.stack(tokens, 1), torch.stack(laws, 1) if laws else None)

    def _after_text(self, texts: Texts) -> Tensor:
        # before a text of one token stands nothing: what follows it then is void, and overwritten
        start = (texts.length - 2).clamp_min(0)
        logits = self._logits(texts.window(start, 2), start)
        return logits[torch.arange(texts.batch, device=start.device), texts.length - 1 - start]

    def _logits(self, tokens: Tensor, positions: Tensor) -> Tensor:
        return self.runner.logits(self._slots, tokens, positions)[..., : self.vocabulary]


class LookupDrafter:
    """Prompt lookup: finds the end of the text earlier in it, and proposes what followed there.

    The longest match counts, of equally long ones the earliest, which leaves most to copy. A text without a
    match is offered nothing; one whose match lies close to its end fewer than k tokens.

    Args:
        shortest: Tokens a match has at least.
        longest: Tokens that are compared at most.

    Source: Saxena 2023, prompt lookup decoding; match lengths as engines set them.
    """

    passes_per_token = 0
    vocabulary: int | None = None

    def __init__(self, shortest: int = 2, longest: int = 4) -> None:
        self.shortest = shortest
        self.longest = longest

    def begin(self, texts: Texts) -> None:
        """Nothing to get ready: the text is all it reads."""

    def draft(self, texts: Texts, k: int, sampling: Sampling, generator: torch.Generator) -> Draft:
        """What followed the longest match, and how many tokens of it each text is offered."""
        places = torch.arange(texts.room, device=texts.tokens.device)
        run = self._match_lengths(texts, places)
        found = run >= self.shortest
        preference = torch.where(found, run * texts.room - places, -texts.room)
        end = preference.argmax(1)
        has_match = found.gather(1, end.unsqueeze(1)).squeeze(1)
        follows = torch.where(has_match, end + 1, 0)
        offered = torch.where(has_match, (texts.length - follows).clamp_max(k), 0)
        window = (follows.unsqueeze(1) + torch.arange(k, device=end.device)).clamp_max(texts.room - 1)
        return Draft(texts.tokens.gather(1, window), None, offered)

    def _match_lengths(self, texts: Texts, places: Tensor) -> Tensor:
        """How many tokens up to each place equal the end of the text, [B, room]; 0 at its end and behind."""
        last = texts.length.unsqueeze(1) - 1
        equal = (places < last).expand_as(texts.tokens)
        run = torch.zeros_like(texts.tokens)
        for back in range(self.longest):
            wanted = texts.tokens.gather(1, (last - back).clamp_min(0))
            equal = equal & (texts.tokens.roll(back, 1) == wanted) & (places >= back)
            run += equal
        return run
