"""The textbook functions and the constant, by-position and Beta laws, against golden values, exact fractions
and published figures."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate, pairwise
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from specmath import acceptance
from specmath.acceptance import (
    BetaAcceptance,
    ConstantAcceptance,
    PositionAcceptance,
    acceptance_ceiling,
    accepted_over_drafted,
    accepted_pmf,
    accepted_variance,
    beta_expected_tokens,
    expected_tokens,
)
from specmath.checks import MAX_K
from specmath.errors import InputError

EXACT = 1e-12
GOLDEN = json.loads((Path(__file__).parent / "data" / "closed_form.json").read_text(encoding="utf-8"))
OWN = (
    "expected_tokens",
    "accepted_pmf",
    "accepted_variance",
    "accepted_over_drafted",
    "beta_expected_tokens",
)
OWN_ROWS = [row for row in GOLDEN if row["fn"] in OWN]
VLLM_8_HEADS = (0.757, 0.794, 0.828, 0.827, 0.860, 0.842, 0.875, 0.855)
"""Conditional rates of an 8-head MTP draft, published by vLLM."""
NGRAM_TRANSLATION = {
    7: 3.62,
    9: 3.925,
    11: 4.092,
    13: 4.214,
    15: 4.36,
    17: 4.43,
    19: 4.55,
    21: 4.59,
    23: 4.73,
}
"""Tokens per step by draft length, published by TensorRT-LLM for n-gram drafts on translation."""

alphas = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 5e-324, 1e-12, 0.5, 1 - 1e-12, 1 - 1e-8, 1 - 2**-53])
draft_lengths = st.integers(0, 64)
untimed = settings(deadline=None)


def exact_moments(survival: list[Fraction]) -> tuple[Fraction, Fraction]:
    """Mean and variance of the accepted tokens, by their textbook sums."""
    mean = sum(survival, Fraction(0))
    square = sum(((2 * i - 1) * p for i, p in enumerate(survival, start=1)), Fraction(0))
    return mean, square - mean**2


def powers(alpha: float, k: int) -> list[Fraction]:
    return [Fraction(alpha) ** i for i in range(1, k + 1)]


@pytest.mark.parametrize("row", OWN_ROWS, ids=lambda row: f"{row['fn']}-{row.get('alpha')}-{row['k']}")
def test_golden_values(row: dict[str, Any]) -> None:
    arguments = {key: value for key, value in row.items() if key not in ("fn", "value")}
    assert getattr(acceptance, row["fn"])(**arguments) == pytest.approx(row["value"], rel=EXACT)


def test_golden_rows_are_there() -> None:
    assert {row["fn"] for row in OWN_ROWS} == set(OWN)
    assert len(OWN_ROWS) >= 64


@pytest.mark.parametrize(
    ("alpha", "k", "tokens", "variance"),
    [
        pytest.param(0.8, 4, 3.3616, 2.570, id="alpha .8, k 4, by hand"),
        pytest.param(0.5, 7, 1.9922, 1.8828, id="alpha .5, k 7, by hand"),
        pytest.param(0.95, 3, 3.7099, 0.601, id="alpha .95, k 3, by hand"),
        pytest.param(0.0, 6, 1.0, 0.0, id="alpha 0: nothing accepted"),
        pytest.param(1.0, 6, 7.0, 0.0, id="alpha 1: everything accepted"),
        pytest.param(0.3, 0, 1.0, 0.0, id="k 0: plain decoding"),
    ],
)
def test_worked_values(alpha: float, k: int, tokens: float, variance: float) -> None:
    assert expected_tokens(alpha, k) == pytest.approx(tokens, abs=5e-5)
    assert accepted_variance(alpha, k) == pytest.approx(variance, abs=5e-4)


@pytest.mark.parametrize(
    ("alpha", "k", "share"),
    [
        pytest.param(0.7, 5, 0.388, id="simulated counters, alpha .7"),
        pytest.param(0.9, 3, 0.813, id="simulated counters, alpha .9"),
        pytest.param(0.5, 8, 0.125, id="simulated counters, alpha .5"),
        pytest.param(1.0, 10_000, 1.0, id="everything accepted"),
        pytest.param(0.0, 3, 0.0, id="nothing accepted"),
    ],
)
def test_accepted_over_drafted_is_not_alpha(alpha: float, k: int, share: float) -> None:
    assert accepted_over_drafted(alpha, k) == pytest.approx(share, abs=7e-4)


@untimed
@given(alpha=alphas, k=draft_lengths)
def test_the_textbook_functions_against_exact_fractions(alpha: float, k: int) -> None:
    survival = powers(alpha, k)
    mean, variance = exact_moments(survival)
    assert expected_tokens(alpha, k) == pytest.approx(float(1 + mean), rel=1e-14)
    assert accepted_variance(alpha, k) == pytest.approx(float(variance), rel=1e-13, abs=1e-300)
    outcomes = [before - after for before, after in pairwise([Fraction(1), *survival])]
    expected = [float(outcome) for outcome in (*outcomes, [Fraction(1), *survival][-1])]
    assert accepted_pmf(alpha, k).tolist() == pytest.approx(expected, rel=1e-13, abs=1e-300)
    if k:
        assert accepted_over_drafted(alpha, k) == pytest.approx(float(mean / k), rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("k", [100, 9_999, 10_000])
@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-8, 1e-12, 2**-53], ids=lambda gap: f"1-{gap:g}")
def test_long_drafts_near_alpha_1_keep_their_digits(k: int, gap: float) -> None:
    alpha = Fraction(1 - gap)
    exact = (1 - alpha ** (k + 1)) / (1 - alpha)
    assert expected_tokens(1 - gap, k) == pytest.approx(float(exact), rel=EXACT)


def test_ends_are_exact() -> None:
    k = np.arange(MAX_K + 1)
    np.testing.assert_array_equal(expected_tokens(1.0, k), k + 1.0)
    np.testing.assert_array_equal(expected_tokens(0.0, k), np.ones(k.size))
    np.testing.assert_array_equal(accepted_variance([[0.0], [1.0]], k), np.zeros((2, k.size)))
    assert accepted_pmf(1.0, 3).tolist() == [0, 0, 0, 1]
    assert accepted_pmf(0.0, 3).tolist() == [1, 0, 0, 0]
    assert accepted_pmf(0.3, 0).tolist() == [1]


def test_a_value_that_does_not_exist() -> None:
    assert np.isnan(accepted_over_drafted(0.5, 0))
    np.testing.assert_array_equal(acceptance_ceiling([0.0, 0.5, 1.0]), [1.0, 2.0, np.inf])
    assert acceptance_ceiling(1 - 2**-40) == 2.0**40


@untimed
@given(alpha=st.lists(alphas, min_size=1, max_size=4), k=st.lists(draft_lengths, min_size=1, max_size=4))
@pytest.mark.parametrize("function", [expected_tokens, accepted_variance, accepted_over_drafted])
def test_scalar_call_equals_array_cell(
    function: Callable[..., Any], alpha: list[float], k: list[int]
) -> None:
    table = function(np.array(alpha)[:, None], k)
    assert table.shape == (len(alpha), len(k))
    for cell, value in np.ndenumerate(table):
        scalar = function(alpha[cell[0]], k[cell[1]])
        assert type(scalar) is float
        assert scalar == pytest.approx(value, rel=1e-15, nan_ok=True)


@untimed
@given(low=alphas, high=alphas, k=draft_lengths)
def test_tokens_stay_in_bounds_and_rise_with_alpha_and_k(low: float, high: float, k: int) -> None:
    low, high = min(low, high), max(low, high)
    tokens = np.asarray(expected_tokens([low, high], k))
    assert ((tokens >= 1) & (tokens <= k + 1)).all()
    assert tokens[0] <= tokens[1] * (1 + 1e-15)
    assert tokens[1] <= expected_tokens(high, k + 1) * (1 + 1e-15)
    assert tokens[1] <= acceptance_ceiling(high) * (1 + 1e-14)


def test_blocks_of_a_long_array_join_without_a_seam() -> None:
    alpha, k = np.linspace(0, 1, 200_001), np.arange(200_001) % 9
    tokens = np.asarray(expected_tokens(alpha, k))
    np.testing.assert_allclose(
        tokens, np.sum(alpha ** np.arange(9)[:, None] * (np.arange(9)[:, None] <= k), axis=0)
    )
    by_row = np.asarray(expected_tokens(alpha[::-1].reshape(-1, 1)[:70_000], [0, 3, 8]))
    np.testing.assert_allclose(by_row[:, 1], np.sum(alpha[::-1][:70_000] ** np.arange(4)[:, None], axis=0))


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        pytest.param(lambda: expected_tokens(1.3, 4), "alpha: must be between 0 and 1, got 1.3", id="alpha"),
        pytest.param(lambda: expected_tokens(float("nan"), 4), "alpha: .*nan", id="NaN"),
        pytest.param(lambda: expected_tokens(0.5, -1), "k: must be a whole number from 0 to 10000", id="k"),
        pytest.param(lambda: accepted_pmf(0.5, 10_001), "k: .*10001", id="k above the limit"),
        pytest.param(
            lambda: ConstantAcceptance(0.5).survival([1, 2]),  # type: ignore[arg-type]
            "k: .*one number",
            id="k array",
        ),
        pytest.param(lambda: acceptance_ceiling(-0.1), "alpha: ", id="ceiling"),
        pytest.param(
            lambda: beta_expected_tokens(0, 1, 3), r"a: must be above 0 and at most 1e\+12, got 0", id="a"
        ),
        pytest.param(
            lambda: BetaAcceptance(1.0, -2.0), r"b: must be above 0 and at most 1e\+12, got -2", id="b"
        ),
        pytest.param(lambda: BetaAcceptance(1e308, 1e308), r"a: .* at most 1e\+12, got 1e\+308", id="a huge"),
        pytest.param(lambda: beta_expected_tokens(1, [1, 2e12], 4), r"b: .*got 2e\+12", id="b of an array"),
        pytest.param(lambda: PositionAcceptance([0.5, 1.5]), "rates: must be between 0 and 1", id="rate"),  # type: ignore[arg-type]
        pytest.param(lambda: PositionAcceptance([[0.5]]), "rates: must be a flat list", id="nested rates"),  # type: ignore[arg-type]
        pytest.param(lambda: PositionAcceptance(()), "rates: is empty", id="no rates"),
        pytest.param(lambda: PositionAcceptance((0.5,), kind="x"), "kind: .*'x'", id="kind"),  # type: ignore[arg-type]
        pytest.param(
            lambda: PositionAcceptance((0.8, 0.5, 0.6), kind="survival"),
            "rates: .*0.5 at position 2 to 0.6 .*conditional kind",
            id="rising survival",
        ),
        pytest.param(
            lambda: PositionAcceptance((0.8, 0.5)).acceptance_length([1, 3]),
            "k: must be at most 2, got 3: the rates cover 2 positions; a Beta law .*extrapolates",
            id="k beyond the rates",
        ),
    ],
)
def test_errors_name_the_value_and_the_remedy(call: Callable[[], object], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        call()


def test_rates_by_position_as_published() -> None:
    measured = PositionAcceptance(VLLM_8_HEADS)
    assert measured.acceptance_length(8) == pytest.approx(4.40, abs=5e-3)  # vLLM, 8 MTP heads
    assert measured.ceiling() == measured.acceptance_length(8)
    first_three = float(measured.accepted_pmf(3) @ np.arange(4)) / (1 + float(measured.survival(2).sum()))
    assert expected_tokens(first_three, 8) == pytest.approx(4.15, abs=5e-3)  # extrapolated: 6 % too low


def test_rates_of_both_kinds_describe_one_law() -> None:
    conditional = PositionAcceptance((0.8, 0.5, 0.25, 0.0, 0.5))
    survival = PositionAcceptance((0.8, 0.4, 0.1, 0.0, 0.0), kind="survival")
    for law in (conditional, survival):
        np.testing.assert_allclose(law.survival(5), [0.8, 0.4, 0.1, 0.0, 0.0])
        np.testing.assert_allclose(law.conditional(5), [0.8, 0.5, 0.25, 0.0, np.nan])
        np.testing.assert_allclose(law.accepted_pmf(5), [0.2, 0.4, 0.3, 0.1, 0.0, 0.0], atol=1e-16)
        assert law.max_k == 5
    assert (conditional.label, survival.label) == ("rates=0.8/0.5/0.25/0/0.5", "survival=0.8/0.4/0.1/0/0")


@pytest.mark.parametrize(
    ("position", "moment"),
    [pytest.param(1, 0.709, id="i 1"), pytest.param(3, 0.404, id="i 3"), pytest.param(7, 0.176, id="i 7")],
)
def test_beta_moments_of_the_ngram_fit(position: int, moment: float) -> None:
    assert BetaAcceptance(5.6, 2.3).survival(7)[position - 1] == pytest.approx(moment, abs=5e-4)


def test_beta_fit_reaches_what_no_constant_can() -> None:
    assert acceptance_ceiling(0.752) == pytest.approx(4.03, abs=5e-3)  # alpha that fits at 7 drafts
    fitted = np.asarray(beta_expected_tokens(5.6, 2.3, list(NGRAM_TRANSLATION)))
    np.testing.assert_allclose(fitted, list(NGRAM_TRANSLATION.values()), rtol=0.0125)
    none, *_, every = BetaAcceptance(5.6, 2.3).accepted_pmf(7)
    assert (none, every) == pytest.approx((0.29, 0.18), abs=5e-3)


@untimed
@given(a=st.floats(1e-3, 1e3), b=st.floats(1e-3, 1e3), k=st.integers(0, 30))
def test_beta_against_exact_fractions(a: float, b: float, k: int) -> None:
    steps = [(Fraction(a) + j) / (Fraction(a) + Fraction(b) + j) for j in range(k)]
    survival = list(accumulate(steps, mul))
    mean, variance = exact_moments(survival)
    law = BetaAcceptance(a, b)
    np.testing.assert_allclose(law.survival(k), [float(p) for p in survival], rtol=EXACT)
    np.testing.assert_allclose(law.conditional(k), [float(step) for step in steps], rtol=EXACT)
    assert law.acceptance_length(k) == pytest.approx(float(1 + mean), rel=EXACT)
    assert law.accepted_variance(k) == pytest.approx(float(variance), rel=1e-11)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 0.95])
def test_beta_tends_to_the_constant_law(alpha: float) -> None:
    sizes = np.array([1e2, 1e4, 1e6, 1e8])
    mixed = np.asarray(beta_expected_tokens(sizes * alpha, sizes * (1 - alpha), 8))
    errors = np.abs(mixed / expected_tokens(alpha, 8) - 1).tolist()
    for wide, narrow in pairwise(errors):
        assert narrow == pytest.approx(wide / 100, rel=0.2)  # as the variance of Beta(a, b) does


@pytest.mark.parametrize("a", [5e-324, 1e-12, 1.0, 1e12])
@pytest.mark.parametrize("b", [5e-324, 1e-12, 1 + 2**-52, 1e12])
def test_beta_at_the_ends_of_its_parameters(a: float, b: float) -> None:
    steps = [(Fraction(a) + j) / (Fraction(a) + Fraction(b) + j) for j in range(4)]
    mean, _ = exact_moments(list(accumulate(steps, mul)))
    law = BetaAcceptance(a, b)
    assert law.acceptance_length(4) == pytest.approx(float(1 + mean), rel=EXACT)
    assert law.accepted_pmf(4).sum() == pytest.approx(1, rel=EXACT)
    assert law.ceiling() == (1 + a / (b - 1) if b > 1 else np.inf)


def test_beta_ceiling() -> None:
    ceiling = np.asarray(
        BetaAcceptance(np.array([2.0, 2.0, 2.0, 3.0]), np.array([0.5, 1.0, 3.0, 2.5])).ceiling()
    )
    np.testing.assert_allclose(ceiling, [np.inf, np.inf, 2.0, 3.0])
    reached = beta_expected_tokens(2.0, 3.0, [10, 100, 10_000])
    np.testing.assert_allclose(np.asarray(reached)[-1], 2.0, rtol=1e-6)
    grown: npt.NDArray[np.float64] = np.asarray(beta_expected_tokens(2.0, 1.0, [100, 1_000, 10_000]))
    np.testing.assert_allclose(np.diff(grown), 2 * np.log(10), rtol=0.02)  # p_i = 2 / (i + 2): without end
