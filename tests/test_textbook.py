"""The values every introduction to speculative decoding computes, to the digits they are quoted with.

A row holds the number as text; the product's answer has to round to it at its last digit. Sources in the
row ids: Leviathan et al. 2023 (arXiv:2211.17192), the roofline model, and two widely read posts,
"Speculative Decoding Made My vLLM Server Slower" (post 1) and "Why Batching Kills Your 3x Speedup" (post 3).
What the posts print and their own formulas do not give is in docs/errata.md.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specmath.acceptance import expected_tokens
from specmath.breakevens import (
    breakeven_alpha,
    breakeven_verify_cost,
    ridge_tokens,
    roofline_breakeven_batch,
    verify_bound_batch,
)
from specmath.checks import Numbers
from specmath.ratios import kept_share, leviathan_speedup, speedup, speedup_from_acceptance_length

H100_PEAK, H100_BANDWIDTH = 989e12, 3.35e12
"""H100 SXM as the posts type it: dense bf16 FLOP/s, B/s."""
TARGET, DRAFT, WIDTH, K = 70e9, 1e9, 2, 4
"""The pair of post 3: parameters of target and draft, bytes a parameter, draft tokens per step."""


def assert_rounds_to(value: Numbers, printed: str) -> None:
    half_a_digit = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    assert value == pytest.approx(float(printed), abs=half_a_digit * (1 + 1e-9), rel=0)


def h100_ridge(bytes_per_param: float, active_share: float = 1.0) -> float:
    return float(
        ridge_tokens(H100_PEAK, H100_BANDWIDTH, bytes_per_param=bytes_per_param, active_share=active_share)
    )


def breakeven_of_the_pair(alpha: float) -> Numbers:
    return roofline_breakeven_batch(
        expected_tokens(alpha, K), K, ridge=h100_ridge(WIDTH), draft_cost=DRAFT / TARGET
    )


CLOSED_FORMS: list[tuple[str, Callable[[], Numbers], str]] = [
    ("Leviathan eq. 1: tokens, alpha .8, k 4", lambda: expected_tokens(0.8, 4), "3.3616"),
    ("Leviathan eq. 1: tokens, alpha .7, k 4", lambda: expected_tokens(0.7, 4), "2.7731"),
    ("Leviathan eq. 1: tokens, alpha .4, k 4", lambda: expected_tokens(0.4, 4), "1.6496"),
    ("Leviathan eq. 1: tokens, alpha .4, k 8", lambda: expected_tokens(0.4, 8), "1.6662"),
    (
        "Leviathan thm 3.8: E/(1+kc), alpha .4, k 8, c .05",
        lambda: leviathan_speedup(0.4, 8, draft_cost=0.05),
        "1.190",
    ),
    *(
        (
            f"Leviathan thm 3.8 with v: E/(v+kc), alpha {alpha}, k 4, c .05, v {v}",
            lambda alpha=alpha, v=v: speedup(alpha, 4, draft_cost=0.05, verify_cost=v, overhead=0),
            printed,
        )
        for alpha, v, printed in [
            (0.7, 1, "2.311"),
            (0.7, 2, "1.261"),
            (0.7, 3, ".867"),
            (0.7, 5, ".533"),
            (0.8, 5, ".646"),
        ]
    ),
    (
        "the same at S = 1: break-even verify cost, alpha .7, k 4, c .05",
        lambda: breakeven_verify_cost(0.7, 4, draft_cost=0.05),
        "2.573",
    ),
    ("vLLM system efficiency: E/(k+1), alpha .8, k 4", lambda: kept_share(0.8, 4), ".672"),
    ("roofline: ridge of an H100, 16-bit weights", lambda: h100_ridge(2), "295.2"),
    ("roofline: ridge of an H100, weight-only int4", lambda: h100_ridge(0.5), "73.8"),
    ("roofline: ridge of an H100, MoE with 1/8 active", lambda: h100_ridge(2, active_share=1 / 8), "2362"),
    ("post 3's pair, own form: break-even batch, alpha .8", lambda: breakeven_of_the_pair(0.8), "195.1"),
    ("post 3's pair, own form: break-even batch, alpha .7", lambda: breakeven_of_the_pair(0.7), "160.4"),
]


@pytest.mark.parametrize(
    ("answer", "printed"), [pytest.param(call, text, id=name) for name, call, text in CLOSED_FORMS]
)
def test_closed_forms(answer: Callable[[], Numbers], printed: str) -> None:
    assert_rounds_to(answer(), printed)


def test_the_last_printed_digit_counts() -> None:
    assert_rounds_to(0.6724, ".672")
    with pytest.raises(AssertionError):
        assert_rounds_to(0.6726, ".672")


def test_load_test_of_post_1_sits_above_the_ridge() -> None:
    """64 sequences at k = 4 put 320 tokens into a verify pass; the ridge is at 295."""
    sequences = 64
    assert sequences * (K + 1) == 320
    assert sequences * (K + 1) > h100_ridge(2)
    assert sequences > float(verify_bound_batch(h100_ridge(2), K)) > sequences - 6


@pytest.mark.parametrize("k", [1, 2, 4, 8])
@pytest.mark.parametrize("c", [0.05, 0.3, 0.9])
def test_smallest_acceptance_worth_it(k: int, c: float) -> None:
    """Leviathan corollary 3.9: k = 1 pays exactly above α = c; a longer draft asks for at least as much."""
    assert breakeven_alpha(1, draft_cost=c, verify_cost=1) == pytest.approx(c, rel=1e-9)
    assert float(breakeven_alpha(k, draft_cost=c, verify_cost=1)) >= c * (1 - 1e-9)


def pass_s(params: float, tokens: int) -> float:
    """One forward pass on an H100 at context 0: weights read once, or every token computed, the longer."""
    return max(params * WIDTH / H100_BANDWIDTH, 2 * params * tokens / H100_PEAK)


def roofline_speedup(alpha: float, batch: int) -> float:
    plain = pass_s(TARGET, batch)
    return float(
        speedup_from_acceptance_length(
            expected_tokens(alpha, K),
            K,
            draft_cost=pass_s(DRAFT, batch) / plain,
            verify_cost=pass_s(TARGET, batch * (K + 1)) / plain,
            overhead=0,
        )
    )


ROOFLINE_TABLE = [
    # batch, then the speed-up at α .9, .8, .6
    (1, "3.874", "3.180", "2.181"),
    (16, "3.874", "3.180", "2.181"),
    (32, "3.874", "3.180", "2.181"),
    (64, "3.589", "2.946", "2.021"),
    (128, "1.841", "1.511", "1.036"),
    (256, ".932", ".765", ".525"),
]


@pytest.mark.parametrize(
    ("batch", "alpha", "printed"),
    [
        pytest.param(batch, alpha, text, id=f"post 3: 70B and 1B, k 4, H100, batch {batch}, alpha {alpha}")
        for batch, *texts in ROOFLINE_TABLE
        for alpha, text in zip((0.9, 0.8, 0.6), texts, strict=True)
    ],
)
def test_roofline_speedup_of_a_known_pair(batch: int, alpha: float, printed: str) -> None:
    assert_rounds_to(roofline_speedup(alpha, batch), printed)


@pytest.mark.parametrize(
    ("alpha", "last_gain"),
    [
        pytest.param(0.8, 195, id="post 3's pair: alpha .8"),
        pytest.param(0.7, 160, id="post 3's pair: alpha .7"),
    ],
)
def test_breakeven_batch_by_scan(alpha: float, last_gain: int) -> None:
    """The closed-form 195.1 and 160.4 by the other route: the last whole batch that still gains."""
    gains = [batch for batch in range(1, 400) if roofline_speedup(alpha, batch) > 1]
    assert gains == list(range(1, last_gain + 1))


def test_tensor_parallelism_leaves_the_ridge_alone() -> None:
    shards = 8
    assert ridge_tokens(shards * H100_PEAK, shards * H100_BANDWIDTH, bytes_per_param=2) == pytest.approx(
        h100_ridge(2), rel=1e-12
    )
