"""Acceptance of a pair on its own prompts: α under every rule by logits, and what true decoding accepts.

Texts are the target's own samples at each temperature and top-p; requests are the unit of the intervals,
as the positions of one text are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import torch

from calibrate.decoding import plain
from calibrate.drafters import PREFILL_LOGITS, ModelDrafter, Texts, prefilled_slots
from calibrate.prompts import EncodedPrompt
from calibrate.request_counts import (
    ALL_DOMAINS,
    Progress,
    Requests,
    Work,
    decoded_counts,
    named_sampling,
    samplings,
    with_counts,
)
from calibrate.sampling import GREEDY_RULE, LOSSY_RULES, REJECTION_RULE, Sampling, position_alphas
from specmath.calibrations import AcceptanceRow
from specmath.clustered_errors import interval_factor, ratio_standard_error

if TYPE_CHECKING:
    from calibrate.runners import Runner

CONTEXT_EDGES: Final = (512, 2_048, 8_192, 32_768, 131_072)
"""Tokens in the cache at which positions are parted, where texts lie on both sides."""
_Grid = npt.NDArray[np.float64]


def measure_acceptance(
    target: Runner,
    draft: Runner,
    prompts: Sequence[EncodedPrompt],
    *,
    temperatures: Sequence[float],
    top_ps: Sequence[float] = (1.0,),
    k: int,
    new_tokens: int = 128,
    batch: int = 16,
    eos: Sequence[int] = (),
    vocabulary: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[AcceptanceRow, ...]:
    """Acceptance under every rule, by temperature, top-p and domain, and by context where texts are long.

    The rule that decides the speculative run (rejection sampling; arg-max match at T = 0) carries its counts.

    Args:
        target: The target.
        draft: The draft.
        prompts: Tokens and domain of each request.
        temperatures: At least 0 each.
        top_ps: In (0, 1] each.
        k: Draft tokens of the speculative run, the largest that is of interest.
        new_tokens: Tokens of each text at most.
        batch: Texts at a time.
        eos: Tokens that end a text.
        vocabulary: Tokens that the pair shares; logits beyond are padding.
        seed: Of all samples.
        progress: Told before each batch, and at the end.
    """
    requests = Requests(prompts, k, new_tokens, batch, eos)
    chosen = samplings(temperatures, top_ps)
    work = Work(len(chosen) * 2 * len(requests.batches), progress)
    shared = min(vocabulary or target.vocabulary, target.vocabulary, draft.vocabulary)
    seeds = count(seed * 1_000_003)
    drafter = ModelDrafter(draft, shared)
    rows: list[AcceptanceRow] = []
    for sampling in chosen:
        scores = _Scores(requests)
        for place, some in enumerate(requests.batches):
            work.next(f"logits at {named_sampling(sampling)}")
            tokens = [prompt.tokens for prompt in some]
            own = plain(
                target,
                tokens,
                new_tokens=new_tokens,
                sampling=sampling,
                eos=eos,
                vocabulary=shared,
                seed=next(seeds),
            ).tokens
            scores.add(place * batch, tokens, own, _alphas(target, draft, tokens, own, sampling, shared))
        counts = decoded_counts(target, drafter, requests, sampling, seeds, work)
        rule = REJECTION_RULE if sampling.temperature else GREEDY_RULE
        for row in scores.rows(sampling):
            is_whole = row.rule == rule and row.context is None
            rows.append(with_counts(row, counts, requests) if is_whole else row)
    work.finish()
    return tuple(rows)


# α by logits


def _alphas(
    target: Runner,
    draft: Runner,
    prompts: Sequence[Sequence[int]],
    own: Sequence[Sequence[int]],
    sampling: Sampling,
    vocabulary: int,
) -> dict[str, _Grid]:
    """α of every new token of every text, [B, n]; behind the end of a text it means nothing.

    Both models read the texts a few positions at a time, so that logits take a bounded room.
    """
    texts = Texts(prompts, max(map(len, own)), target.device)
    first, longest = texts.length - 1, max(map(len, own))
    fill = torch.zeros((len(own), longest), dtype=torch.long)
    for row, tokens in zip(fill, own, strict=True):
        row[: len(tokens)] = torch.tensor(tokens)
    target_slots, draft_slots = prefilled_slots(target, texts), prefilled_slots(draft, texts)
    texts.put(texts.length, fill.to(target.device))
    width = min(longest, max(1, PREFILL_LOGITS // (4 * len(own) * target.vocabulary)))
    parts: dict[str, list[_Grid]] = {}
    for begin in range(0, longest, width):
        start = first + begin
        piece = texts.window(start, min(width, longest - begin))
        with torch.no_grad():
            p_logits = target.logits(target_slots, piece, start)[..., :vocabulary]
            q_logits = draft.logits(draft_slots, piece, start)[..., :vocabulary]
            for rule, alphas in position_alphas(p_logits, q_logits, sampling).items():
                parts.setdefault(rule, []).append(alphas.double().cpu().numpy())
    return {rule: np.concatenate(some, 1) for rule, some in parts.items()}


class _Scores:
    """α under each rule of each new token, on a grid of requests and new tokens."""

    def __init__(self, requests: Requests) -> None:
        self.requests = requests
        shape = len(requests.prompts), requests.new_tokens
        self.is_text = np.zeros(shape, dtype=np.bool_)
        self.context = np.zeros(shape)
        self.alphas: dict[str, _Grid] = {}

    def add(
        self,
        first: int,
        prompts: Sequence[Sequence[int]],
        own: Sequence[Sequence[int]],
        alphas: dict[str, _Grid],
    ) -> None:
        """Takes in a batch whose first request is number `first`."""
        for row, (prompt, tokens) in enumerate(zip(prompts, own, strict=True), first):
            self.is_text[row, : len(tokens)] = True
            self.context[row] = len(prompt) + np.arange(self.requests.new_tokens)
        for rule, some in alphas.items():
            grid = self.alphas.setdefault(rule, np.zeros(self.is_text.shape))
            grid[first : first + len(own), : some.shape[1]] = some

    def rows(self, sampling: Sampling) -> Iterator[AcceptanceRow]:
        """A row for each rule and domain, then for each rule and stretch of contexts."""
        for rule in self.alphas:
            for domain, of_domain in self.requests.domains():
                yield self._row(rule, sampling, domain, self.is_text & of_domain[:, np.newaxis])
        stretch = np.digitize(self.context, CONTEXT_EDGES)
        present = np.unique(stretch[self.is_text])
        for rule in self.alphas if len(present) > 1 else ():
            for one in present:
                where = self.is_text & (stretch == one)
                row = self._row(rule, sampling, ALL_DOMAINS, where)
                yield replace(row, context=float(self.context[where].mean()))

    def _row(self, rule: str, sampling: Sampling, domain: str, where: npt.NDArray[np.bool_]) -> AcceptanceRow:
        alphas, positions = (self.alphas[rule] * where).sum(1), where.sum(1)
        has_any = positions > 0
        mean, low, high = _interval(alphas[has_any], positions[has_any])
        return AcceptanceRow(
            rule=rule,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            domain=domain,
            positions=int(positions.sum()),
            requests=int(has_any.sum()),
            alpha=mean,
            alpha_low=low,
            alpha_high=high,
            lossless=rule not in LOSSY_RULES,
        )


def _interval(sums: _Grid, positions: npt.NDArray[np.int64]) -> tuple[float, float | None, float | None]:
    """α over all positions and its 95 % interval, requests being the unit; one request has none."""
    mean = min(float(sums.sum() / positions.sum()), 1.0)  # Σ min(p, q) of equal laws may round above 1
    if len(sums) < 2:
        return mean, None, None
    error = ratio_standard_error(sums.tolist(), positions.astype(np.float64).tolist())
    reach = interval_factor(len(sums)) * error
    return mean, max(mean - reach, 0.0), min(mean + reach, 1.0)
