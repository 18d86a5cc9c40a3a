"""Lookup drafts and laws by context: mixtures of other laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import BetaAcceptance, ConstantAcceptance, PositionAcceptance, expected_tokens
from specmath.errors import InputError
from specmath.mixtures import ContextAcceptance, LookupAcceptance

FADING = ContextAcceptance((16_384, 2_048), (ConstantAcceptance(0.10), ConstantAcceptance(0.62)))


@settings(deadline=None)
@given(h=st.floats(0, 1), alpha=st.floats(0, 0.99), k=st.integers(0, 40))
def test_lookup_against_its_closed_form(h: float, alpha: float, k: int) -> None:
    law = LookupAcceptance(h, ConstantAcceptance(alpha))
    accepted = alpha * (1 - alpha**k) / (1 - alpha)
    assert law.acceptance_length(k) == pytest.approx(1 + h * accepted, rel=1e-12)
    np.testing.assert_allclose(law.survival(k), h * alpha ** np.arange(1, k + 1), rtol=1e-13, atol=1e-300)
    assert law.ceiling() == pytest.approx(1 + h * alpha / (1 - alpha), rel=1e-12)


def test_lookup_rates_jump_after_the_first_position() -> None:
    """InstructCoder traces: .31 at the first position, .90 to .95 at each after it."""
    conditional = LookupAcceptance(0.31 / 0.92, ConstantAcceptance(0.92)).conditional(5)
    np.testing.assert_allclose(conditional, [0.31, 0.92, 0.92, 0.92, 0.92])


def test_lookup_ends() -> None:
    everything = ConstantAcceptance(1.0)
    assert LookupAcceptance(0.0, everything).acceptance_length(9) == 1.0
    assert LookupAcceptance(0.0, everything).ceiling() == 1.0
    assert LookupAcceptance(0.1, everything).ceiling() == np.inf
    matched = PositionAcceptance((0.9, 0.8))
    assert LookupAcceptance(1.0, matched).acceptance_length(2) == matched.acceptance_length(2)
    assert LookupAcceptance(0.5, matched).max_k == 2
    with pytest.raises(InputError, match="k: must be at most 2, got 3: the rates cover 2 positions"):
        LookupAcceptance(0.5, matched).survival(3)
    with pytest.raises(InputError, match=r"match_rate: must be between 0 and 1, got 1\.2"):
        LookupAcceptance(1.2, matched)


@pytest.mark.parametrize(
    ("context", "first_rate"),
    [
        pytest.param(2_048, 0.62, id="measured, first"),
        pytest.param(16_384, 0.10, id="measured, last"),
        pytest.param(0, 0.62, id="before the first: held"),
        pytest.param(1e6, 0.10, id="after the last: held"),
        pytest.param(np.sqrt(2_049 * 16_385) - 1, 0.36, id="half-way in log(1 + context)"),
    ],
)
def test_survival_by_context(context: float, first_rate: float) -> None:
    assert FADING.at(context).survival(1)[0] == pytest.approx(first_rate, rel=1e-12)


def test_between_two_contexts_steps_are_a_mixture_of_both_laws() -> None:
    half = FADING.at(np.sqrt(2_049 * 16_385) - 1)
    both = np.array([ConstantAcceptance(0.62).accepted_pmf(4), ConstantAcceptance(0.10).accepted_pmf(4)])
    np.testing.assert_allclose(half.accepted_pmf(4), both.mean(axis=0))
    assert half.acceptance_length(4) == pytest.approx(
        (float(expected_tokens(0.62, 4)) + float(expected_tokens(0.10, 4))) / 2
    )


def test_many_contexts_at_once() -> None:
    contexts, k = np.array([0.0, 4_000.0, 2e4]), np.array([[1], [3], [7]])
    table = np.asarray(FADING.at(contexts).acceptance_length(k))
    assert table.shape == (3, 3)
    for (row, column), value in np.ndenumerate(table):
        assert FADING.at(contexts[column]).acceptance_length(int(k[row, 0])) == pytest.approx(value)
    assert FADING.at(contexts).survival(4).shape == (3, 4)
    np.testing.assert_array_equal(FADING.covers([2_047, 2_048, 9_000, 16_384, 16_385]), [0, 1, 1, 1, 0])
    assert not FADING.covers(0)


def test_one_context_is_that_law_everywhere() -> None:
    single = ContextAcceptance((4_096,), (BetaAcceptance(2.0, 1.0),))
    assert single.at(100).acceptance_length(5) == BetaAcceptance(2.0, 1.0).acceptance_length(5)
    assert single.covers(4_096)
    assert not single.covers(4_095)


def test_a_lookup_of_laws_by_context_is_read_at_a_context_too() -> None:
    law = LookupAcceptance(0.5, FADING)
    assert law.at(0).survival(2).tolist() == pytest.approx([0.31, 0.5 * 0.62**2])
    assert law.covers([0, 3_000]).tolist() == [False, True]


def test_label_and_assumption_name_the_points() -> None:
    assert FADING.label == "alpha=0.62 at 2048, alpha=0.1 at 16384"
    assert "2,048 and 16,384 tokens" in FADING.assumption
    assert FADING.max_k is None
    shorter = ContextAcceptance((1, 2), (PositionAcceptance((0.5,) * 3), PositionAcceptance((0.5,) * 2)))
    assert shorter.max_k == 2
    with pytest.raises(InputError, match="k: must be at most 2, got 3: the rates cover 2 positions"):
        shorter.at(1).survival(3)


def test_what_a_law_by_context_refuses() -> None:
    missing = r"context: is missing.*law\.at\(context\)"
    with pytest.raises(InputError, match=missing):
        FADING.survival(3)
    with pytest.raises(InputError, match=missing):
        FADING.acceptance_length(3)
    with pytest.raises(InputError, match=missing):
        FADING.ceiling()
    with pytest.raises(InputError, match="context: must be at least 0, got -1"):
        FADING.at(-1)
    with pytest.raises(InputError, match=r"contexts: .*one for each of the 2 laws"):
        ContextAcceptance((1,), (ConstantAcceptance(0.5), ConstantAcceptance(0.6)))
    with pytest.raises(InputError, match="contexts: names a context twice"):
        ContextAcceptance((1, 1), (ConstantAcceptance(0.5), ConstantAcceptance(0.6)))
