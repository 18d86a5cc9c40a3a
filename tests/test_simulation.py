"""The laws against a seeded simulation of what they describe, within four standard errors.

The rejection rule itself is played: a draft token x ~ draft_probs is kept with min(1, target/draft), a
rejected one is replaced from the residual, and a fully accepted draft is followed by a token of the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest

from specmath.acceptance import BetaAcceptance, ConstantAcceptance, PositionAcceptance
from specmath.estimation import alpha_from_counters
from specmath.laws import AcceptanceLaw
from specmath.mixtures import LookupAcceptance
from specmath.trees import RankedTree, best_tree, uniform_tree

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STEPS = 100_000
ERRORS = 4.0

TARGET = np.array([0.5, 0.3, 0.15, 0.05])
DRAFTS = {
    "close": np.array([0.6, 0.2, 0.1, 0.1]),
    "far": np.array([0.1, 0.1, 0.2, 0.6]),
    "missing a token": np.array([0.7, 0.3, 0.0, 0.0]),
    "greedy one-hot": np.array([1.0, 0.0, 0.0, 0.0]),
    "equal": TARGET,
}


def overlap(target_probs: Floats, draft_probs: Floats) -> float:
    return float(np.minimum(target_probs, draft_probs).sum())


def play(
    rng: np.random.Generator, target_probs: Floats, draft_probs: Sequence[Floats], steps: int
) -> tuple[Ints, Ints]:
    """Accepted draft tokens of each step, and the first token that each step emits."""
    accepted, first = np.zeros(steps, dtype=np.int64), np.full(steps, -1)
    alive = np.arange(steps)
    for probs in draft_probs:
        token = rng.choice(probs.size, size=alive.size, p=probs)
        kept = rng.random(alive.size) < np.minimum(1.0, target_probs[token] / probs[token])
        residual = np.maximum(target_probs - probs, 0.0)
        if residual.sum() > 0:  # there is none where the draft equals the target, and no rejection either
            token[~kept] = rng.choice(probs.size, size=int((~kept).sum()), p=residual / residual.sum())
        first[alive] = np.where(first[alive] < 0, token, first[alive])
        alive = alive[kept]
        accepted[alive] += 1
    bonus = rng.choice(target_probs.size, size=alive.size, p=target_probs)
    first[alive] = np.where(first[alive] < 0, bonus, first[alive])
    return accepted, first


def assert_within_errors(
    measured: Floats | float, expected: Floats | float, standard_error: Floats | float
) -> None:
    """Each |measured − expected| is at most four standard errors; an event that cannot happen does not."""
    np.testing.assert_array_less(
        np.abs(np.asarray(measured) - expected), ERRORS * np.asarray(standard_error) + 1e-12
    )


def assert_follows(accepted: Ints, law: AcceptanceLaw, k: int) -> None:
    """Mean, variance and every outcome of a sample of accepted tokens agree with the law."""
    steps, pmf, variance = accepted.size, law.accepted_pmf(k), float(law.accepted_variance(k))
    assert_within_errors(
        float(accepted.mean()) + 1, float(law.acceptance_length(k)), math.sqrt(variance / steps)
    )
    measured = np.bincount(accepted, minlength=k + 1) / steps
    assert_within_errors(measured, pmf, np.sqrt(pmf * (1 - pmf) / steps))
    fourth = float(pmf @ (np.arange(k + 1) - pmf @ np.arange(k + 1)) ** 4)
    assert_within_errors(
        float(accepted.var()), variance, math.sqrt(max(fourth - variance**2, 0.0) / steps) + 1 / steps
    )


@pytest.mark.parametrize("name", DRAFTS)
@pytest.mark.parametrize("k", [1, 4, 7])
def test_rejection_sampling_follows_the_constant_law(name: str, k: int) -> None:
    """alpha is Σ min(target, draft), whatever the two distributions; the output is the target's."""
    draft_probs = DRAFTS[name]
    alpha = overlap(TARGET, draft_probs)
    accepted, first = play(np.random.default_rng(20_230_518), TARGET, [draft_probs] * k, STEPS)
    assert_follows(accepted, ConstantAcceptance(alpha), k)
    emitted = np.bincount(first, minlength=TARGET.size) / STEPS
    assert_within_errors(emitted, TARGET, np.sqrt(TARGET * (1 - TARGET) / STEPS))
    counted = alpha_from_counters(STEPS, [int((accepted >= i).sum()) for i in range(1, k + 1)])
    assert_within_errors(counted.alpha, alpha, counted.standard_error)


def test_a_drafter_that_drifts_follows_the_law_by_position() -> None:
    drifting = [(1 - drift) * DRAFTS["close"] + drift * DRAFTS["far"] for drift in (0.0, 0.3, 0.6, 0.9)]
    law = PositionAcceptance(tuple(overlap(TARGET, probs) for probs in drifting))
    accepted, _ = play(np.random.default_rng(1), TARGET, drifting, STEPS)
    assert_follows(accepted, law, 4)
    assert_follows(np.minimum(accepted, 2), law, 2)  # rates measured at one k serve a smaller one


def truncated_geometric(rng: np.random.Generator, alpha: Floats, k: int) -> Ints:
    """Accepted tokens of steps that each have their own alpha: k tries, up to the first failure."""
    tries = rng.random((alpha.size, k)) < alpha[:, None]
    return np.asarray(np.cumprod(tries, axis=1).sum(axis=1), dtype=np.int64)


@pytest.mark.parametrize(("a", "b"), [(5.6, 2.3), (0.5, 0.5), (1.0, 4.0)])
def test_steps_of_their_own_alpha_follow_the_beta_law(a: float, b: float) -> None:
    rng = np.random.default_rng(2)
    assert_follows(truncated_geometric(rng, rng.beta(a, b, STEPS), 7), BetaAcceptance(a, b), 7)


@pytest.mark.parametrize(
    "tree",
    [
        best_tree((0.6, 0.2, 0.1), 12, 4),
        uniform_tree((0.5, 0.3), (2, 1, 2)),
        RankedTree((0.4, 0.35), ((1,), (1, 0), (1, 0, 1))),
    ],
    ids=["best of 12 nodes", "uniform", "second choice first"],
)
def test_walks_down_a_tree_follow_its_law(tree: RankedTree) -> None:
    """At each node the rank to be accepted is drawn; the walk ends where the tree has no such child."""
    rng = np.random.default_rng(3)
    nodes, steps = set(tree.paths), 20_000
    none = 1 - sum(tree.ranks)
    drawn = rng.choice(len(tree.ranks) + 1, size=(steps, tree.depth), p=[*tree.ranks, none])
    accepted = np.array([_walk(nodes, ranks) for ranks in drawn.tolist()])
    assert_follows(accepted, tree, tree.depth)
    assert_follows(np.minimum(accepted, 2), tree, 2)  # the tree cut to its first two levels


def _walk(nodes: set[tuple[int, ...]], ranks: list[int]) -> int:
    depth = 0
    while depth < len(ranks) and tuple(ranks[: depth + 1]) in nodes:
        depth += 1
    return depth


@pytest.mark.parametrize("h", [0.0, 0.3, 1.0])
def test_steps_with_and_without_a_match_follow_the_lookup_law(h: float) -> None:
    rng = np.random.default_rng(4)
    matched = rng.random(STEPS) < h
    accepted = np.where(matched, truncated_geometric(rng, np.full(STEPS, 0.92), 5), 0)
    assert_follows(accepted, LookupAcceptance(h, ConstantAcceptance(0.92)), 5)


@pytest.mark.parametrize(
    ("alpha", "k", "steps", "spread"),
    [(0.7, 5, 2_000, 0.0062), (0.9, 3, 2_000, 0.0041), (0.5, 8, 500, 0.0158)],
)
def test_the_estimate_is_unbiased_and_its_standard_error_true(
    alpha: float, k: int, steps: int, spread: float
) -> None:
    """√(α (1 − α) / (n (1 − α^k)/(1 − α))) gives the spreads in the table."""
    rng, runs = np.random.default_rng(5), 400
    estimates = []
    for _ in range(runs):
        accepted = truncated_geometric(rng, np.full(steps, alpha), k)
        estimates.append(alpha_from_counters(steps, [int((accepted >= i).sum()) for i in range(1, k + 1)]))
    found = np.array([estimate.alpha for estimate in estimates])
    stated = np.array([estimate.standard_error for estimate in estimates])
    assert stated.mean() == pytest.approx(spread, rel=0.02)
    assert_within_errors(float(found.mean()), alpha, spread / math.sqrt(runs))
    assert_within_errors(float(found.std()), spread, spread / math.sqrt(2 * runs))
    inside = np.mean([estimate.alpha_low <= alpha <= estimate.alpha_high for estimate in estimates])
    assert_within_errors(float(inside), 0.95, math.sqrt(0.95 * 0.05 / runs))
    refused = np.mean([estimate.p_value < 0.2 for estimate in estimates])
    assert_within_errors(float(refused), 0.2, math.sqrt(0.2 * 0.8 / runs))


def test_the_test_of_constancy_refuses_a_beta_law() -> None:
    rng = np.random.default_rng(6)
    accepted = truncated_geometric(rng, rng.beta(5.6, 2.3, 5_000), 7)
    estimate = alpha_from_counters(5_000, [int((accepted >= i).sum()) for i in range(1, 8)])
    assert estimate.p_value < 1e-6
    assert estimate.conditional[6] > estimate.conditional[0]
