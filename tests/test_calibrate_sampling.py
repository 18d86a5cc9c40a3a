"""Sampling and acceptance rules: worked values, and laws of tiny vocabularies by enumeration."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import Tensor

from calibrate.sampling import (
    GREEDY_FORMULAS,
    LOSSY_RULES,
    SAMPLING_FORMULAS,
    Draft,
    Sampling,
    accepted_prefix,
    argmax_match,
    best_token_mass,
    coin_acceptance,
    collision,
    distribution,
    draw,
    greedy_acceptance,
    modified_rejection,
    overlap,
    position_alphas,
    relaxed_match,
    typical_match,
)
from specmath.engines.rules import acceptance_rule
from specmath.errors import InputError

DRAWS = 120_000
Law = dict[tuple[int, int], float]
"""Probability of (accepted tokens, next token)."""


def surprise(counts: Mapping[tuple[int, int], int], law: Law, draws: int) -> float:
    """χ² of counts against a law, as a number of standard deviations (Wilson and Hilferty 1931)."""
    cells = {cell: chance for cell, chance in law.items() if chance > 0}
    assert set(counts) <= set(cells), "what cannot happen happened"
    chi2 = sum(
        (counts.get(cell, 0) - draws * chance) ** 2 / (draws * chance) for cell, chance in cells.items()
    )
    degrees = len(cells) - 1
    return float((chi2 / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))


def counted(accepted: Tensor, follower: Tensor) -> dict[tuple[int, int], int]:
    return dict(Counter(zip(accepted.tolist(), follower.tolist(), strict=True)))


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fractions_of(rng: np.random.Generator, rows: int, vocabulary: int) -> list[list[Fraction]]:
    """Laws of multiples of 1/64, which float32 holds exactly; some have zeros."""
    laws = []
    for _ in range(rows):
        cuts = sorted(rng.integers(0, 65, vocabulary - 1).tolist())
        edges = [0, *cuts, 64]
        laws.append([Fraction(high - low, 64) for low, high in itertools.pairwise(edges)])
    return laws


def enumerated(p: list[list[Fraction]], q: list[list[Fraction]]) -> dict[tuple[int, int], Fraction]:
    """The law of (accepted, next token) as the algorithm is written in the papers, in exact numbers."""
    law: dict[tuple[int, int], Fraction] = {}
    reached = Fraction(1)
    for place, (target, draft) in enumerate(zip(p, q, strict=False)):
        passes = sum(
            (d * min(Fraction(1), t / d) for t, d in zip(target, draft, strict=True) if d), Fraction(0)
        )
        left = [max(t - d, Fraction(0)) for t, d in zip(target, draft, strict=True)]
        for token, weight in enumerate(left):
            if weight:
                law[place, token] = reached * (1 - passes) * weight / sum(left)
        reached *= passes
    for token, chance in enumerate(p[len(q)]):
        if chance * reached:
            law[len(q), token] = reached * chance
    return law


def tensor(laws: list[list[Fraction]]) -> Tensor:
    return torch.tensor([[float(chance) for chance in law] for law in laws])


def drafted(q: Tensor, seed: int, draws: int = DRAWS) -> Tensor:
    """Tokens [draws, k] sampled by numpy, apart from the code under test."""
    rng = np.random.default_rng(seed)
    columns = [rng.choice(q.shape[1], draws, p=law / law.sum()) for law in q.double().numpy()]
    return torch.from_numpy(np.stack(columns, 1))


# Distributions


def test_top_p_against_a_loop() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(50, 9)).astype(np.float32)
    for temperature, top_p in itertools.product((0.3, 1.0, 2.5), (0.2, 0.7, 0.95, 1.0)):
        found = distribution(torch.from_numpy(logits), Sampling(temperature, top_p)).numpy()
        for row, ours in zip(logits.astype(float), found, strict=True):
            weights = np.exp(row / temperature) / np.exp(row / temperature).sum()
            kept, mass = np.zeros_like(weights), 0.0
            for token in np.argsort(-weights):
                if mass < top_p:
                    kept[token] = weights[token]
                mass += weights[token]
            np.testing.assert_allclose(ours, kept / kept.sum(), atol=1e-6)


@pytest.mark.parametrize("top_p", [1e-9, 0.5, 1.0])
def test_at_temperature_0_all_is_on_the_best_token(top_p: float) -> None:
    assert distribution(torch.tensor([[0.0, 3.0, 1.0]]), Sampling(0.0, top_p)).tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("temperature", "top_p", "name"),
    [(-1.0, 1.0, "temperature"), (math.nan, 1.0, "temperature"), (1.0, 0.0, "top_p"), (1.0, 1.1, "top_p")],
)
def test_settings_that_mean_nothing(temperature: float, top_p: float, name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: must be"):
        Sampling(temperature, top_p)


def test_draws_follow_their_weights() -> None:
    weights = torch.tensor([3.0, 0.0, 1.0, 4.0])
    tokens = draw(weights.expand(DRAWS, 4), generator(5))
    law = {(0, 0): 3 / 8, (0, 2): 1 / 8, (0, 3): 4 / 8}
    assert surprise(counted(torch.zeros_like(tokens), tokens), law, DRAWS) < 4


# α at a position

P = [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4), Fraction(0)]
Q = [Fraction(1, 8), Fraction(1, 2), Fraction(1, 8), Fraction(1, 4)]
ENTROPY = 0.5 * math.log(2) + 0.5 * math.log(4)


@pytest.mark.parametrize(
    ("formula", "alpha"),
    [
        pytest.param(overlap, sum(map(min, P, Q)), id="Leviathan 2023: Σ min(p, q)"),
        pytest.param(best_token_mass, P[1], id="p(argmax q)"),
        pytest.param(collision, sum(p * q for p, q in zip(P, Q, strict=True)), id="Σ p·q"),
        pytest.param(argmax_match, 0, id="argmax p = 0, argmax q = 1"),
        pytest.param(typical_match, 1, id="1/4 > min(.09, .3·exp(−1.04))"),
        pytest.param(relaxed_match, 1, id="1/4 is within .6 of 1/2"),
    ],
)
def test_worked_alphas(formula: object, alpha: Fraction | int) -> None:
    assert callable(formula)
    p, q = tensor([P]), tensor([Q])
    assert formula(p, q).tolist() == [float(alpha)]


@pytest.mark.parametrize("factor", [0.999, 1.001])
def test_edges_of_the_lossy_rules(factor: float) -> None:
    p, q = tensor([P]), tensor([Q])
    passes = factor < 1
    by_epsilon = typical_match(p, q, epsilon=0.25 * factor, delta=100.0)
    by_delta = typical_match(p, q, epsilon=1.0, delta=0.25 * factor * math.exp(ENTROPY))
    assert by_epsilon.item() == by_delta.item() == passes
    assert relaxed_match(p, q, delta=0.25 / factor).item() == passes
    assert relaxed_match(tensor([P]), tensor([[Fraction(0)] * 3 + [Fraction(1)]]), top=3).item() == 0


def test_rules_bear_the_names_of_the_engines() -> None:
    told = {
        acceptance_rule("vllm", method="draft_model", temperature=0.0).name,
        acceptance_rule("vllm", method="draft_model").name,
        acceptance_rule("vllm", settings="draft_sample_method=probabilistic").name,
        acceptance_rule("llama.cpp").name,
        acceptance_rule("mlx").name,
    }
    assert told == (SAMPLING_FORMULAS.keys() | GREEDY_FORMULAS.keys()) - LOSSY_RULES


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_rules_by_temperature(temperature: float) -> None:
    logits = torch.randn(2, 3, 8, generator=generator(1))
    found = position_alphas(logits, logits.roll(1, -1), Sampling(temperature))
    assert found.keys() == (SAMPLING_FORMULAS if temperature else GREEDY_FORMULAS).keys()
    assert {alphas.shape for alphas in found.values()} == {(2, 3)}


# Modified rejection


@pytest.mark.parametrize(("vocabulary", "k"), [(v, k) for v in (3, 4, 5) for k in (1, 2, 3)])
def test_law_of_a_step(vocabulary: int, k: int) -> None:
    rng = np.random.default_rng([vocabulary, k])
    p, q = fractions_of(rng, k + 1, vocabulary), fractions_of(rng, k, vocabulary)
    law = {cell: float(chance) for cell, chance in enumerated(p, q).items()}
    assert math.isclose(sum(law.values()), 1)
    claim = tensor(q).expand(DRAWS, k, vocabulary)
    draft = Draft(drafted(tensor(q), k), claim)
    found = counted(*modified_rejection(draft, tensor(p).expand(DRAWS, k + 1, vocabulary), generator(7)))
    assert surprise(found, law, DRAWS) < 4


@pytest.mark.parametrize("vocabulary", [3, 5])
def test_law_of_a_certain_draft(vocabulary: int) -> None:
    p = fractions_of(np.random.default_rng(vocabulary), 3, vocabulary)
    tokens = torch.tensor([[1, 0]])
    q = [[Fraction(int(token == x)) for token in range(vocabulary)] for x in (1, 0)]
    law = {cell: float(chance) for cell, chance in enumerated(p, q).items()}
    found = modified_rejection(
        Draft(tokens.expand(DRAWS, 2)), tensor(p).expand(DRAWS, 3, vocabulary), generator(8)
    )
    assert surprise(counted(*found), law, DRAWS) < 4


def first_token_law(p: list[list[Fraction]], q: list[list[Fraction]]) -> list[Fraction]:
    """Law of the first token written, over all drafts: an accepted one, or the one in its place."""
    passed = [min(t, d) for t, d in zip(p[0], q[0], strict=True)]
    law = enumerated(p, q)
    return [mass + law.get((0, token), Fraction(0)) for token, mass in enumerate(passed)]


@pytest.mark.parametrize("seed", range(8))
def test_the_enumerated_text_is_the_targets_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, q = fractions_of(rng, 2, 4), fractions_of(rng, 1, 4)
    assert first_token_law(p, q) == p[0]


def surprise_of_first_token(claimed: Sampling, real: Sampling) -> float:
    """Of the text against the target's own, where drafts come from `real` and q is that of `claimed`."""
    logits = torch.randn(2, 5, generator=generator(11))
    p, q = distribution(logits[:1], Sampling(1.0, 0.9)), distribution(logits[1:], claimed)
    tokens = drafted(distribution(logits[1:], real), 12)
    draft = Draft(tokens, q.expand(DRAWS, 1, 5))
    both = torch.stack([p, p], 1).expand(DRAWS, 2, 5)
    accepted, follower = modified_rejection(draft, both, generator(13))
    first = torch.where(accepted > 0, tokens[:, 0], follower)
    law = {(0, token): chance for token, chance in enumerate(p[0].tolist())}
    return surprise(counted(torch.zeros_like(first), first), law, DRAWS)


def test_a_top_p_that_the_draft_does_not_tell_is_caught() -> None:
    told, other = Sampling(1.0, 0.9), Sampling(1.0, 0.75)
    assert surprise_of_first_token(told, told) < 4
    assert surprise_of_first_token(told, other) > 20
    assert surprise_of_first_token(other, other) < 4  # a mismatch with the target alone loses nothing


def test_a_text_without_an_offer_gets_the_targets_token() -> None:
    p = tensor([[Fraction(0), Fraction(1), Fraction(0)]] * 3)
    draft = Draft(torch.ones(4, 2, dtype=torch.long), None, torch.tensor([0, 1, 2, 0]))
    accepted, follower = modified_rejection(draft, p.expand(4, 3, 3), generator(1))
    assert (accepted.tolist(), follower.tolist()) == ([0, 1, 2, 0], [1, 1, 1, 1])


def test_equal_laws_refuse_nothing() -> None:
    p = torch.softmax(torch.randn(DRAWS, 3, 4, generator=generator(2)), -1)
    tokens = draw(p[:, :2].reshape(-1, 4), generator(3)).view(-1, 2)
    accepted, _ = modified_rejection(Draft(tokens, p[:, :2]), p, generator(4))
    assert accepted.min() == 2


def test_nothing_left_but_rounding_is_the_targets_own_law() -> None:
    law = tensor([[Fraction(0), Fraction(0), Fraction(1)]])
    draft = Draft(torch.zeros(1, 1, dtype=torch.long), law.unsqueeze(0))  # refused, though p = q
    accepted, follower = modified_rejection(draft, law.expand(1, 2, 3), generator(1))
    assert (accepted.tolist(), follower.tolist()) == ([0], [2])


def test_greedy_drafts_pass_while_they_are_the_best() -> None:
    draft = Draft(
        torch.tensor([[5, 6, 7], [5, 0, 7], [0, 6, 7], [5, 6, 7]]), None, torch.tensor([3, 3, 3, 1])
    )
    accepted, follower = greedy_acceptance(draft, torch.tensor([[5, 6, 7, 8]]).expand(4, 4))
    assert (accepted.tolist(), follower.tolist()) == ([3, 1, 0, 1], [8, 6, 5, 6])


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.8, 1.0])
def test_coins_accept_as_often_as_asked(alpha: float) -> None:
    draft = Draft(torch.zeros(DRAWS, 2, dtype=torch.long))
    own = torch.tensor([[4, 5, 6]]).expand(DRAWS, 3)
    accepted, follower = coin_acceptance(draft, alpha, own, generator(9))
    law = {(0, 4): 1 - alpha, (1, 5): alpha * (1 - alpha), (2, 6): alpha**2}
    if 0 < alpha < 1:
        assert surprise(counted(accepted, follower), law, DRAWS) < 4
    else:
        assert set(accepted.tolist()) == {2 * alpha}


def test_nothing_passes_behind_the_first_that_fails() -> None:
    passes = torch.tensor([[False, True, True], [True, False, True], [True, True, True]])
    assert accepted_prefix(passes).tolist() == [0, 1, 3]
    assert accepted_prefix(passes, torch.tensor([3, 0, 2])).tolist() == [0, 0, 2]
