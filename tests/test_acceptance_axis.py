"""Many laws as one axis: which law stands where, under which α and label."""

from __future__ import annotations

import numpy as np
import pytest

from specmath.acceptance import ConstantAcceptance, PositionAcceptance, expected_tokens
from specmath.acceptance_axis import AcceptanceAxis
from specmath.errors import InputError
from specmath.mixtures import ContextAcceptance
from specmath.trees import best_tree

RATES = PositionAcceptance((0.8, 0.5, 0.2))
"""E = 1 + .8 + .8·.5 + .8·.5·.2: 1.8, 2.2 and 2.28 at k = 1, 2, 3."""
FADING = ContextAcceptance((0, 8), (ConstantAcceptance(1.0), ConstantAcceptance(0.0)))
MIXED = AcceptanceAxis.of([ConstantAcceptance(np.array([0.5, 0.6])), RATES, ConstantAcceptance(0.9)])


def test_an_array_of_alphas_among_other_laws_counts_once_per_alpha() -> None:
    assert len(MIXED) == 4
    np.testing.assert_array_equal(MIXED.alpha, [0.5, 0.6, np.nan, 0.9])
    assert MIXED.labels.tolist() == ["constant", "constant", RATES.label, "constant"]
    assert [MIXED.law(place) for place in (0, 1, 3)] == [ConstantAcceptance(a) for a in (0.5, 0.6, 0.9)]
    assert MIXED.law(2) is RATES


def test_two_laws_are_enough_to_spread_an_array() -> None:
    pair = AcceptanceAxis.of([ConstantAcceptance(np.array([0.5, 0.6])), RATES])
    assert [pair.law(place) for place in range(3)] == [
        ConstantAcceptance(0.5),
        ConstantAcceptance(0.6),
        RATES,
    ]


def test_one_constant_law_stays_one_and_is_read_alpha_by_alpha() -> None:
    alone = AcceptanceAxis.of(ConstantAcceptance(np.array([0.5, 0.6, 0.7])))
    assert len(alone.laws) == 1
    assert len(alone) == 3
    assert alone.labels.tolist() == ["constant"] * 3
    assert [alone.law(place) for place in range(3)] == [ConstantAcceptance(a) for a in (0.5, 0.6, 0.7)]


def test_a_list_of_one_law_is_that_law() -> None:
    listed, alone = AcceptanceAxis.of([RATES]), AcceptanceAxis.of(RATES)
    assert listed.laws == alone.laws == (RATES,)
    assert listed.labels.tolist() == alone.labels.tolist() == [RATES.label]
    assert len(listed) == 1
    assert listed.law(0) is RATES


@pytest.mark.parametrize("wrong", [[], 0.7, "alpha", [0.7], [ConstantAcceptance(0.7), 0.7]], ids=repr)
def test_what_is_no_law_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match="acceptance: must be a law, such as"):
        AcceptanceAxis.of(wrong)  # type: ignore[arg-type]


def test_lengths_are_those_of_each_law() -> None:
    k, contexts = np.array([1, 3]), np.array([0.0, 100.0])
    lengths = MIXED.lengths(k, contexts)
    assert lengths.shape == (4, 2, 2)
    for place, alpha in ((0, 0.5), (1, 0.6), (3, 0.9)):
        expected = np.asarray(expected_tokens(alpha, k))
        np.testing.assert_allclose(lengths[place], np.stack([expected, expected], axis=1), rtol=1e-15)
    np.testing.assert_allclose(lengths[2], [[1.8, 1.8], [2.28, 2.28]], rtol=1e-15)


@pytest.mark.parametrize(
    "axis",
    [MIXED, AcceptanceAxis.of(ConstantAcceptance(np.array([0.2, 0.4, 0.6, 0.8])))],
    ids=["several laws", "one law of several α"],
)
def test_some_positions_have_the_lengths_of_the_whole(axis: AcceptanceAxis) -> None:
    k, contexts = np.array([2]), np.array([0.0])
    whole = axis.lengths(k, contexts)
    np.testing.assert_array_equal(axis.lengths(k, contexts, slice(1, 3)), whole[1:3])


def test_a_fading_law_is_read_at_each_context() -> None:
    lengths = AcceptanceAxis.of(FADING).lengths(np.array([4]), np.array([0.0, 2.0, 8.0]))
    np.testing.assert_allclose(lengths, [[[5.0, 3.0, 1.0]]], rtol=1e-15)  # log 3 is half of log 9


def test_laws_that_agree_share_their_widths_and_a_tree_has_its_own() -> None:
    k = np.array([1, 3])
    tree = best_tree((0.6, 0.2), 5, 3)
    assert MIXED.widths(k).tolist() == [[2, 4]]
    assert MIXED.draft_passes(k).tolist() == [[1, 3]]
    with_tree = AcceptanceAxis.of([ConstantAcceptance(0.5), tree])
    assert with_tree.widths(np.array([3])).tolist() == [[4], [6]]
    assert with_tree.widths(np.array([3]), slice(1, 2)).tolist() == [[6]]


def test_the_shortest_limit_on_k_holds_for_all() -> None:
    assert MIXED.max_k == 3
    assert AcceptanceAxis.of(ConstantAcceptance(0.5)).max_k == 10_000
    with pytest.raises(InputError, match="k: must be at most 3, got 4"):
        MIXED.draft_lengths([1, 4])
    assert MIXED.draft_lengths(2).tolist() == [2]
    with pytest.raises(InputError, match="k"):
        MIXED.draft_lengths(0, at_least=1)


def test_inputs_and_assumptions_say_each_thing_once() -> None:
    assert MIXED.inputs["alpha"] == [0.5, 0.6, 0.9]
    assert MIXED.inputs["law"] == sorted(["constant", RATES.label])
    assert len(MIXED.assumptions) == len(set(MIXED.assumptions)) == 2
