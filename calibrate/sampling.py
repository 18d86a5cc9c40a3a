"""Distributions after temperature and top-p, α of two of them under every rule, and modified rejection.

p is the target's distribution at a position and q the draft's, along the last dimension. The rules are
those that `specmath.engines.rules` finds in engines, under the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from specmath.checks import require_range


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is chosen.

    Attributes:
        temperature: At least 0; 0 takes the best token.
        top_p: Share of the mass that is kept, in (0, 1].
    """

    temperature: float = 0.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        require_range("temperature", self.temperature, 0)
        require_range("top_p", self.top_p, high=1, above=0)


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities of the next token: softmax of logits/T, then the fewest tokens that hold top_p of it.

    At T = 0 all of it lies on the best token. Of equal tokens at the edge of top-p the sort decides.

    >>> distribution(torch.tensor([2.0, 1.0]).log(), Sampling(1.0, 0.6)).tolist()
    [1.0, 0.0]
    """
    if sampling.temperature == 0:
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
    probabilities = torch.softmax(logits / sampling.temperature, -1)
    if sampling.top_p == 1:
        return probabilities
    ordered, places = probabilities.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered  # mass of the better tokens: 0 for the best, which always stays
    kept = ordered.masked_fill_(before >= sampling.top_p, 0.0)
    kept /= kept.sum(-1, keepdim=True)
    return torch.zeros_like(probabilities).scatter_(-1, places, kept)


def draw(weights: Tensor, generator: torch.Generator) -> Tensor:
    """One index per row, with probability proportional to its weight.

    The first of exponential clocks of those rates to ring; `torch.multinomial` would wait for the device.
    """
    clocks = torch.empty_like(weights).exponential_(generator=generator)
    return (weights / clocks.clamp_min_(torch.finfo(weights.dtype).tiny)).argmax(-1)


# α at a position


def argmax_match(p: Tensor, q: Tensor) -> Tensor:
    """1 where argmax p = argmax q, else 0: greedy decoding."""
    return (p.argmax(-1) == q.argmax(-1)).to(p.dtype)


def overlap(p: Tensor, q: Tensor) -> Tensor:
    """Σ min(p, q): rejection sampling of a draft token that was sampled from q.

    Source: Leviathan et al. 2023, Corollary 3.6; Chen et al. 2023.

    >>> overlap(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])).item()
    0.5
    """
    return torch.minimum(p, q).sum(-1)


def best_token_mass(p: Tensor, q: Tensor) -> Tensor:
    """p(argmax q): the draft's best token, taken by rejection sampling with q = 1, or by the target's sample.

    >>> best_token_mass(torch.tensor([0.25, 0.75]), torch.tensor([0.6, 0.4])).item()
    0.25
    """
    return p.gather(-1, q.argmax(-1, keepdim=True)).squeeze(-1)


def collision(p: Tensor, q: Tensor) -> Tensor:
    """Σ p·q: both models sample, and a token passes where the samples are equal.

    >>> collision(torch.tensor([0.5, 0.5]), torch.tensor([1.0, 0.0])).item()
    0.5
    """
    return (p * q).sum(-1)


def typical_match(p: Tensor, q: Tensor, *, epsilon: float = 0.09, delta: float = 0.3) -> Tensor:
    """1 where p(argmax q) > min(ε, δ·exp(−H)), H the entropy of p in nats. Not lossless.

    Source: Cai et al. 2024 (Medusa), section 2.3.1; ε and δ as its code sets them.

    >>> typical_match(torch.tensor([0.9, 0.1]), torch.tensor([0.2, 0.8])).item()  # 0.1 > 0.09
    1.0
    """
    threshold = (delta * torch.exp(-torch.special.entr(p).sum(-1))).clamp_max(epsilon)
    return (best_token_mass(p, q) > threshold).to(p.dtype)


def relaxed_match(p: Tensor, q: Tensor, *, top: int = 10, delta: float = 0.6) -> Tensor:
    """1 where argmax q is among the `top` best of p and within δ of the best one. Not lossless.

    Source: relaxed acceptance of TensorRT-LLM, with the settings its documents show for thinking models.

    >>> relaxed_match(torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.0, 1.0, 0.0]), top=2).item()
    1.0
    """
    best = p.topk(min(top, p.shape[-1]), -1).values
    least = torch.maximum(best[..., -1], best[..., 0] - delta)
    return (best_token_mass(p, q) >= least).to(p.dtype)


Formula = Callable[[Tensor, Tensor], Tensor]
"""α at each position, of p and q."""
GREEDY_RULE: Final = "arg-max match"
REJECTION_RULE: Final = "rejection sampling"
ONE_HOT_RULE: Final = "one-hot draft"
RELAXED_RULE: Final = "relaxed acceptance"
SAMPLING_FORMULAS: Final[Mapping[str, Formula]] = {
    REJECTION_RULE: overlap,
    ONE_HOT_RULE: best_token_mass,
    "target's sample": best_token_mass,
    "equal samples": collision,
    "typical acceptance": typical_match,
}
"""Rules at a temperature above 0."""
GREEDY_FORMULAS: Final[Mapping[str, Formula]] = {GREEDY_RULE: argmax_match, RELAXED_RULE: relaxed_match}
"""Rules of greedy decoding; both take p and q at temperature 1, whose order is the same."""
LOSSY_RULES: Final = frozenset({"typical acceptance", RELAXED_RULE})
"""Rules that change the text; their α here is that on the target's own text, not on the text they write."""


def position_alphas(target_logits: Tensor, draft_logits: Tensor, sampling: Sampling) -> dict[str, Tensor]:
    """α at each position under every rule that applies at that temperature.

    Args:
        target_logits: Of any shape, tokens along the last dimension.
        draft_logits: Of the same shape.
        sampling: Applied to both models.
    """
    formulas = SAMPLING_FORMULAS if sampling.temperature else GREEDY_FORMULAS
    applied = sampling if sampling.temperature else Sampling(1.0)
    p, q = distribution(target_logits, applied), distribution(draft_logits, applied)
    return {rule: formula(p, q) for rule, formula in formulas.items()}


# Judging a draft


@dataclass(frozen=True, slots=True)
class Draft:
    """What a batch of sequences is proposed.

    Attributes:
        tokens: [B, k].
        q: Distributions they were sampled from, [B, k, V]; None where each was certain (q = 1).
        offered: How many of the k are meant, [B]; None for all.
    """

    tokens: Tensor
    q: Tensor | None = None
    offered: Tensor | None = None


def modified_rejection(draft: Draft, p: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """How many tokens of each draft are accepted, and the token that follows them.

    Token x passes with probability min(1, p(x)/q(x)). At the first that does not, the next token comes from
    max(p − q, 0), normalised; after a whole draft from the target's own next distribution. What is written is
    distributed as the target's samples, whatever q is, as long as the draft was sampled from it.

    Args:
        draft: k tokens for each of B sequences.
        p: The target's distributions, [B, k + 1, V].
        generator: Of the device of p.

    Returns:
        Accepted tokens [B], from 0 to k, and next tokens [B].

    Source: Leviathan et al. 2023, Algorithm 1; Chen et al. 2023, Algorithm 2.
    """
    tokens, k = draft.tokens, draft.tokens.shape[1]
    target_mass = p[:, :k].gather(2, tokens.unsqueeze(2)).squeeze(2)
    draft_mass = torch.ones_like(target_mass)
    if draft.q is not None:
        draft_mass = draft.q.gather(2, tokens.unsqueeze(2)).squeeze(2)
    coins = torch.rand(target_mass.shape, generator=generator, device=p.device)
    accepted = accepted_prefix(coins * draft_mass < target_mass, draft.offered)
    left = _residual(draft, p, accepted)
    return accepted, draw(left, generator)


def _residual(draft: Draft, p: Tensor, accepted: Tensor) -> Tensor:
    """Weights [B, V] of the token after the accepted ones."""
    rows, k = torch.arange(len(p), device=p.device), draft.tokens.shape[1]
    here = p[rows, accepted]
    rejected_at = accepted.clamp_max(k - 1)
    is_rejected = accepted < (k if draft.offered is None else draft.offered)
    if draft.q is not None:
        left = here - draft.q[rows, rejected_at] * is_rejected.unsqueeze(1)
    else:
        left = here.clone()
        left[rows, draft.tokens[rows, rejected_at]] -= is_rejected.to(p.dtype)
    left = left.clamp_min_(0.0)
    lost = left.sum(1, keepdim=True) == 0  # p = q: refused by rounding alone
    return torch.where(lost, here, left)


def greedy_acceptance(draft: Draft, best: Tensor) -> tuple[Tensor, Tensor]:
    """Accepted tokens and the next one at T = 0: drafts pass as long as they are the target's best tokens.

    Args:
        draft: k tokens for each of B sequences.
        best: The target's best tokens, [B, k + 1].
    """
    accepted = accepted_prefix(draft.tokens == best[:, :-1], draft.offered)
    return accepted, best.gather(1, accepted.unsqueeze(1)).squeeze(1)


def coin_acceptance(
    draft: Draft, alpha: float, own: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Synthetic acceptance: each token passes with probability α, whatever it is.

    It gives models with random weights the steps of a real pair. The text means nothing.

    Args:
        draft: k tokens for each of B sequences.
        alpha: In [0, 1].
        own: The target's own tokens at each position, [B, k + 1].
        generator: Of the device of the tokens.
    """
    coins = torch.rand(draft.tokens.shape, generator=generator, device=own.device)
    accepted = accepted_prefix(coins < alpha, draft.offered)
    return accepted, own.gather(1, accepted.unsqueeze(1)).squeeze(1)


def accepted_prefix(passes: Tensor, offered: Tensor | None = None) -> Tensor:
    """How many tokens pass before the first that does not, of those that were offered.

    >>> accepted_prefix(torch.tensor([[True, False, True], [True, True, True]])).tolist()
    [1, 3]
    """
    if offered is not None:
        passes = passes & (torch.arange(passes.shape[1], device=passes.device) < offered.unsqueeze(1))
    return passes.long().cumprod(1).sum(1)
