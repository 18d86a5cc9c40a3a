"""Experts touched under even and skewed routing, against exact sums and simulation."""

from __future__ import annotations

import numpy as np
import pytest

from specmath.experts import expected_experts, expert_popularity, touched_experts


@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (128, 8), (256, 8), (384, 8)])
@pytest.mark.parametrize("skew", [0.0, 0.3, 0.6, 1.0])
def test_popularity_adds_up_to_the_experts_of_a_token(experts: int, top_k: int, skew: float) -> None:
    popularity = expert_popularity(experts, top_k, skew)
    assert popularity.sum() == pytest.approx(top_k, rel=1e-12)
    assert np.all(popularity <= 1)
    assert np.all(np.diff(popularity) <= 1e-15), "the most popular first"


@pytest.mark.parametrize("tokens", [1, 2, 5, 40, 1000])
def test_the_table_is_the_sum_over_experts(tokens: int) -> None:
    missed = (1 - expert_popularity(128, 8, 0.6)) ** tokens
    assert touched_experts(128, 8, np.array(float(tokens)), 0.6) == pytest.approx(
        (1 - missed).sum(), rel=1e-4
    )


@pytest.mark.parametrize(("experts", "top_k"), [(8, 2), (128, 1), (128, 8), (512, 10)])
@pytest.mark.parametrize("skew", [0.05, 0.3, 0.6, 0.9, 1.5, 2.5, 4.0])
def test_the_table_is_as_near_as_it_says_at_every_skew(experts: int, top_k: int, skew: float) -> None:
    tokens = np.geomspace(1, 1e7, 1511)
    missed = (1 - expert_popularity(experts, top_k, skew)) ** tokens[:, None]
    error = touched_experts(experts, top_k, tokens, skew) / (1 - missed).sum(axis=1) - 1
    assert np.abs(error).max() < 5e-5


def test_more_tokens_than_the_table_has_count_as_its_last() -> None:
    last, beyond = touched_experts(512, 10, np.array([1e7, 1e9]), 4.0)
    assert last == beyond < 512


def test_no_skew_is_even_routing_exactly() -> None:
    tokens = np.array([1.0, 3.0, 17.5, 400.0])
    even = np.asarray(expected_experts(128, 8, tokens))
    assert touched_experts(128, 8, tokens, 0.0).tolist() == even.tolist()


def test_one_token_touches_its_own_experts_whatever_the_skew() -> None:
    for skew in (0.2, 0.6, 1.5):
        assert touched_experts(256, 8, np.array(1.0), skew) == pytest.approx(8, rel=1e-12)


def test_skew_against_simulated_routing() -> None:
    """Tokens that visit expert i with probability p_i, drawn one by one."""
    random, popularity = np.random.default_rng(7), expert_popularity(64, 4, 0.6)
    drawn = random.random((4000, 12, 64)) < popularity
    mean = drawn.any(axis=1).sum(axis=1).mean()
    assert touched_experts(64, 4, np.array(12.0), 0.6) == pytest.approx(mean, rel=0.01)


def test_pairs_of_random_tokens_share_what_was_measured() -> None:
    """Cascade: random tokens share 0.12 of 8 of 128 experts; even routing would give 0.0625."""
    shared = {skew: float((expert_popularity(128, 8, skew) ** 2).sum() / 8) for skew in (0.0, 0.6)}
    assert shared[0.0] == pytest.approx(0.0625)
    assert shared[0.6] == pytest.approx(0.12, abs=0.005)


def test_neighbours_share_what_was_measured() -> None:
    """Cascade: adjacent tokens share 0.38, so two touch 1.62 · 8: x = 0.69 of the second token."""
    touched = touched_experts(128, 8, np.array(1 + 0.69), 0.6)
    assert touched == pytest.approx(1.62 * 8, rel=0.01)
