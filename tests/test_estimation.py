"""Acceptance probability from lengths, ratios and counters; published examples and exact distributions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from specmath.acceptance import accepted_over_drafted, expected_tokens
from specmath.errors import InputError
from specmath.estimation import (
    alpha_from_acceptance_length,
    alpha_from_accepted_over_drafted,
    alpha_from_counters,
    chi_square_p_value,
)

GOLDEN = json.loads((Path(__file__).parent / "data" / "closed_form.json").read_text(encoding="utf-8"))
LENGTHS = [row for row in GOLDEN if row["fn"] == "alpha_from_acceptance_length"]
COUNTERS = [row for row in GOLDEN if row["fn"] == "alpha_from_counters"]
untimed = settings(deadline=None)


@pytest.mark.parametrize("row", LENGTHS, ids=lambda row: f"{row['acceptance_length']:.4f}-{row['k']}")
def test_golden_lengths(row: dict[str, Any]) -> None:
    assert alpha_from_acceptance_length(row["acceptance_length"], row["k"]) == pytest.approx(
        row["value"], rel=1e-9
    )


@pytest.mark.parametrize("row", COUNTERS, ids=lambda row: str(row["drafts"]))
def test_golden_counters(row: dict[str, Any]) -> None:
    estimate = alpha_from_counters(row["drafts"], row["accepted_per_position"])
    assert estimate.alpha == pytest.approx(row["value"], rel=1e-12)
    assert estimate.standard_error == pytest.approx(row["standard_error"], rel=1e-12)
    assert estimate.acceptance_length == pytest.approx(row["acceptance_length"], rel=1e-12)


def test_golden_rows_are_there() -> None:
    assert len(LENGTHS) >= 10
    assert len(COUNTERS) >= 10


@untimed
@given(alpha=st.floats(0, 1), k=st.integers(1, 60))
def test_the_inverses_return_what_went_in(alpha: float, k: int) -> None:
    tokens, share = expected_tokens(alpha, k), accepted_over_drafted(alpha, k)
    assert alpha_from_acceptance_length(tokens, k) == pytest.approx(alpha, rel=1e-12, abs=1e-15)
    assert alpha_from_accepted_over_drafted(share, k) == pytest.approx(alpha, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("k", [1, 2, 7, 100, 10_000])
def test_ends_are_exact(k: int) -> None:
    assert alpha_from_acceptance_length(1, k) == 0.0
    assert alpha_from_acceptance_length(k + 1, k) == 1.0
    assert alpha_from_accepted_over_drafted(0, k) == 0.0
    assert alpha_from_accepted_over_drafted(1, k) == 1.0


def test_one_draft_token_needs_no_inverse() -> None:
    assert alpha_from_acceptance_length(1.3, 1) == pytest.approx(0.3, rel=1e-15)
    assert alpha_from_accepted_over_drafted(0.3, 1) == 0.3


@pytest.mark.parametrize(
    ("tokens", "k", "alpha"),
    [
        pytest.param(1 + 12_208 / 4_816, 7, 0.744, id="4816 drafts, 12208 accepted"),
        pytest.param(3.62, 7, 0.752, id="TensorRT-LLM n-gram, translation"),
        pytest.param(1.875, 3, 0.5, id="1 + 1/2 + 1/4 + 1/8"),
    ],
)
def test_worked_lengths(tokens: float, k: int, alpha: float) -> None:
    assert alpha_from_acceptance_length(tokens, k) == pytest.approx(alpha, abs=5e-4)


def test_worked_ratio() -> None:
    """4,816 drafts of 7 tokens, 12,208 accepted: .362 of the drafted, 3.53 tokens per step, alpha .744."""
    share = 12_208 / 33_712
    assert share == pytest.approx(0.362, abs=5e-4)
    assert expected_tokens(alpha_from_accepted_over_drafted(share, 7), 7) == pytest.approx(3.53, abs=5e-3)


def test_arrays_broadcast_and_scalars_stay_scalars() -> None:
    tokens, k = np.array([[1.2], [1.9], [2.0]]), np.array([1, 4, 30])
    table = np.asarray(alpha_from_acceptance_length(tokens, k))
    assert table.shape == (3, 3)
    for (row, column), value in np.ndenumerate(table):
        single = alpha_from_acceptance_length(float(tokens[row, 0]), int(k[column]))
        assert type(single) is float
        assert single == value
    assert np.asarray(alpha_from_accepted_over_drafted([0.2, 0.4], [[1], [5]])).shape == (2, 2)


def test_counters_by_hand() -> None:
    estimate = alpha_from_counters(100, [50, 20, 15])
    assert estimate.k == 3
    assert (estimate.drafted, estimate.accepted, estimate.trials) == (300, 85, 170)
    assert estimate.alpha == 0.5
    assert estimate.standard_error == pytest.approx(math.sqrt(0.25 / 170))
    assert estimate.accepted_over_drafted == pytest.approx(85 / 300)
    assert estimate.acceptance_length == 1.85
    assert estimate.survival == (0.5, 0.2, 0.15)
    assert estimate.conditional == (0.5, 0.4, 0.75)
    assert estimate.conditional_standard_error == pytest.approx(
        (math.sqrt(0.25 / 100), math.sqrt(0.24 / 50), math.sqrt(0.1875 / 20))
    )
    # (50 − 50)²/25 + (20 − 25)²/12.5 + (15 − 10)²/5, the variances being n α (1 − α)
    assert estimate.chi_square == pytest.approx(0 + 2 + 5)
    assert estimate.degrees_of_freedom == 2
    assert estimate.p_value == pytest.approx(math.exp(-3.5))
    with pytest.raises(FrozenInstanceError):
        estimate.alpha = 0.6  # type: ignore[misc]


@untimed
@given(drafts=st.integers(1, 10_000), data=st.data())
def test_alpha_is_accepted_over_accepted_and_rejected(drafts: int, data: st.DataObject) -> None:
    counts = sorted(data.draw(st.lists(st.integers(0, drafts), min_size=1, max_size=12)), reverse=True)
    estimate = alpha_from_counters(drafts, counts)
    rejections = drafts - counts[-1]
    assert estimate.trials == sum(counts) + rejections
    assert estimate.alpha == pytest.approx(sum(counts) / (sum(counts) + rejections), rel=1e-15)
    assert 0 <= estimate.alpha_low <= estimate.alpha <= estimate.alpha_high <= 1
    assert estimate.acceptance_length == pytest.approx(1 + sum(estimate.survival), rel=1e-12)


@untimed
@given(successes=st.integers(0, 500), failures=st.integers(0, 500))
def test_interval_ends_are_where_alpha_is_just_at_its_limit(successes: int, failures: int) -> None:
    """Wilson: the ends p solve (α − p)² = z² p (1 − p) / n, z = 1.96."""
    assume(successes + failures > 0)
    trials = successes + failures
    estimate = alpha_from_counters(trials, [successes])
    for end in (estimate.alpha_low, estimate.alpha_high):
        assert (estimate.alpha - end) ** 2 == pytest.approx(
            1.959963984540054**2 * end * (1 - end) / trials, abs=1e-12
        )
    assert estimate.alpha_low < estimate.alpha_high


def test_no_rejection_at_all() -> None:
    estimate = alpha_from_counters(20, [20, 20])
    assert (estimate.alpha, estimate.standard_error, estimate.alpha_high) == (1.0, 0.0, 1.0)
    assert 0.05 ** (1 / 40) - 0.03 < estimate.alpha_low < 1  # near the exact one-sided bound .05^(1/A) = .928
    assert math.isnan(estimate.chi_square)
    assert math.isnan(estimate.p_value)


def test_nothing_accepted() -> None:
    estimate = alpha_from_counters(20, [0, 0])
    assert (estimate.alpha, estimate.standard_error, estimate.alpha_low) == (0.0, 0.0, 0.0)
    assert 0 < estimate.alpha_high < 0.2
    assert estimate.conditional[0] == 0.0
    assert math.isnan(estimate.conditional[1])
    assert math.isnan(estimate.conditional_standard_error[1])
    assert estimate.degrees_of_freedom == 0


def test_positions_never_judged_do_not_count_in_the_test() -> None:
    assert alpha_from_counters(10, [4, 0, 0, 0]).degrees_of_freedom == 1
    assert math.isnan(alpha_from_counters(10, [4]).p_value)


@pytest.mark.parametrize(
    ("degrees_of_freedom", "critical", "p_value"),
    [
        pytest.param(1, 3.841, 0.05, id="table: 1 dof, 5 %"),
        pytest.param(1, 10.828, 0.001, id="table: 1 dof, .1 %"),
        pytest.param(2, 9.210, 0.01, id="table: 2 dof, 1 %"),
        pytest.param(3, 0.352, 0.95, id="table: 3 dof, 95 %"),
        pytest.param(5, 11.070, 0.05, id="table: 5 dof, 5 %"),
        pytest.param(7, 24.322, 0.001, id="table: 7 dof, .1 %"),
        pytest.param(10, 18.307, 0.05, id="table: 10 dof, 5 %"),
        pytest.param(30, 43.773, 0.05, id="table: 30 dof, 5 %"),
        pytest.param(100, 124.342, 0.05, id="table: 100 dof, 5 %"),
    ],
)
def test_chi_square_against_the_published_table(
    degrees_of_freedom: int, critical: float, p_value: float
) -> None:
    assert chi_square_p_value(critical, degrees_of_freedom) == pytest.approx(p_value, rel=1.5e-3)


@pytest.mark.parametrize("degrees_of_freedom", [3, 4, 9, 20, 1_999, 2_000])
@pytest.mark.parametrize("relative", [0.3, 0.9, 1.0, 1.1, 2.0])
def test_chi_square_against_integration_of_its_density(degrees_of_freedom: int, relative: float) -> None:
    half = degrees_of_freedom / 2
    low, spread = relative * degrees_of_freedom, math.sqrt(2 * degrees_of_freedom)
    x = np.linspace(low, max(low, degrees_of_freedom) + 40 * spread + 100, 400_001)
    density = np.exp((half - 1) * np.log(x / 2) - x / 2 - math.lgamma(half)) / 2
    step = float(x[1] - x[0])
    weights = np.where(np.arange(x.size) % 2 == 1, 4.0, 2.0)
    weights[[0, -1]] = 1.0
    integral = float(density @ weights) * step / 3  # Simpson
    assert chi_square_p_value(low, degrees_of_freedom) == pytest.approx(integral, rel=1e-9, abs=1e-300)


def test_chi_square_of_no_deviation() -> None:
    assert [chi_square_p_value(0.0, dof) for dof in (1, 2, 9)] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        pytest.param(
            lambda: alpha_from_acceptance_length(0.7, 3), "acceptance_length: counts the bonus token", id="E"
        ),
        pytest.param(
            lambda: alpha_from_acceptance_length([2, 4.1], 3), r"between 1 and 4, got 4\.1", id="E above"
        ),
        pytest.param(
            lambda: alpha_from_acceptance_length(1.0, 0), "k: must be a whole number from 1", id="k"
        ),
        pytest.param(
            lambda: alpha_from_accepted_over_drafted(1.2, 3), "accepted_over_drafted: .*1.2", id="share"
        ),
        pytest.param(lambda: alpha_from_counters(0, [0]), "drafts: no drafts", id="no drafts"),
        pytest.param(lambda: alpha_from_counters(-1, [0]), "drafts: must be a whole number", id="negative"),
        pytest.param(
            lambda: alpha_from_counters(10, []), "accepted_per_position: is empty", id="no positions"
        ),
        pytest.param(lambda: alpha_from_counters(10, [2.5]), "accepted_per_position: .*2.5", id="fraction"),  # type: ignore[list-item]
        pytest.param(lambda: alpha_from_counters(10, [[2]]), "accepted_per_position: .*flat", id="nested"),  # type: ignore[list-item]
        pytest.param(
            lambda: alpha_from_counters(10, [11, 4]), "11 at position 1 after 10 drafts", id="beyond drafts"
        ),
        pytest.param(
            lambda: alpha_from_counters(10, [5, 6]), "6 at position 2 after 5 at position 1", id="rising"
        ),
        pytest.param(lambda: chi_square_p_value(-1.0, 2), "chi_square: must be at least 0", id="chi-square"),
        pytest.param(lambda: chi_square_p_value(1.0, 0), "degrees_of_freedom: ", id="dof"),
    ],
)
def test_errors_name_the_value_and_the_rule(call: Callable[[], object], fact: str) -> None:
    with pytest.raises(InputError, match=fact):
        call()
