"""What holds for every law of acceptance, whatever its parameters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import BetaAcceptance, ConstantAcceptance, PositionAcceptance
from specmath.best_trees import BestTree
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.mixtures import ContextAcceptance, LookupAcceptance
from specmath.trees import best_tree

K = 12
"""Every law built here answers up to this k."""

units = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 1e-12, 1 - 1e-12])
shapes = st.floats(1e-3, 1e3)
untimed = settings(deadline=None)

constants = st.builds(ConstantAcceptance, units)
positions = st.builds(PositionAcceptance, st.lists(units, min_size=K, max_size=K).map(tuple))
survivals = st.builds(
    PositionAcceptance,
    st.lists(units, min_size=K, max_size=K).map(lambda rates: tuple(sorted(rates, reverse=True))),
    kind=st.just("survival"),
)
betas = st.builds(BetaAcceptance, shapes, shapes)
ranks = st.lists(st.floats(0.01, 1), min_size=2, max_size=4).map(
    lambda weights: tuple(w / 4 for w in weights)
)
trees = st.builds(best_tree, ranks, st.integers(0, 24), st.just(K))
simple = constants | positions | survivals | betas | trees
lookups = st.builds(LookupAcceptance, units, simple)
by_context = st.builds(
    lambda first, second, context: ContextAcceptance((100, 9_000), (first, second)).at(context),
    simple,
    simple,
    st.floats(0, 1e5),
)
laws = simple | lookups | by_context
ks = st.integers(0, K)


@untimed
@given(law=laws, k=ks)
def test_survival_falls_and_its_ratios_are_the_conditionals(law: AcceptanceLaw, k: int) -> None:
    reach = np.concatenate([[1.0], law.survival(k)])
    assert reach.shape == (k + 1,)
    assert ((reach >= 0) & (reach <= 1 + 1e-15)).all()
    assert (np.diff(reach) <= 1e-15).all()
    conditional = law.conditional(k)
    known = ~np.isnan(conditional)
    assert known[reach[:-1] > 0].all()
    ended = np.flatnonzero(conditional == 0)
    assert not known[ended.min(initial=k) + 1 :].any()
    np.testing.assert_allclose((reach[:-1] * conditional)[known], reach[1:][known], rtol=1e-12, atol=1e-300)


@untimed
@given(law=laws, k=ks)
def test_the_law_of_accepted_tokens_has_the_stated_mean_and_variance(law: AcceptanceLaw, k: int) -> None:
    pmf = law.accepted_pmf(k)
    assert pmf.shape == (k + 1,)
    assert (pmf >= 0).all()
    assert pmf.sum() == pytest.approx(1, rel=1e-12)
    count = np.arange(k + 1)
    mean = float(pmf @ count)
    assert law.acceptance_length(k) == pytest.approx(1 + mean, rel=1e-12)
    assert law.accepted_variance(k) == pytest.approx(float(pmf @ (count - mean) ** 2), rel=1e-9, abs=1e-24)
    np.testing.assert_allclose(pmf[::-1].cumsum()[::-1][1:], law.survival(k), rtol=1e-11, atol=1e-15)


@untimed
@given(law=laws, k=ks, q=units)
def test_a_quantile_is_where_the_distribution_passes_q(law: AcceptanceLaw, k: int, q: float) -> None:
    n = law.quantile(q, k)
    assert isinstance(n, int)
    cdf = law.accepted_pmf(k).cumsum()
    slack = 1e-12  # a q that falls on a step of the distribution belongs to either side of it
    assert cdf[n] >= q - slack
    assert n == 0 or cdf[n - 1] < q + slack


@untimed
@given(law=laws, k=st.lists(ks, min_size=1, max_size=5))
def test_one_k_gives_a_float_and_many_give_the_same(law: AcceptanceLaw, k: list[int]) -> None:
    for method in (law.acceptance_length, law.accepted_variance):
        assert [type(method(each)) for each in k] == [float] * len(k)
        np.testing.assert_allclose(np.asarray(method(k)), [float(method(each)) for each in k], rtol=1e-14)
    assert np.asarray(law.quantile(0.5, k)).tolist() == [law.quantile(0.5, each) for each in k]
    assert np.asarray(law.width(k)).tolist() == [law.width(each) for each in k]
    assert type(law.width(k[0])) is int


@untimed
@given(law=laws)
def test_tokens_rise_with_k_towards_the_ceiling(law: AcceptanceLaw) -> None:
    k = np.arange(K + 1)
    tokens = np.asarray(law.acceptance_length(k))
    assert tokens[0] == pytest.approx(1, rel=1e-15)
    assert (tokens <= (k + 1) * (1 + 1e-15)).all()
    assert (np.diff(tokens) >= -1e-14).all()
    assert tokens[-1] <= law.ceiling() * (1 + 1e-12)


TABLES = [
    pytest.param(
        ConstantAcceptance(np.array([0.0, 0.3, 1.0])),
        [ConstantAcceptance(a) for a in (0.0, 0.3, 1.0)],
        id="alpha",
    ),
    pytest.param(
        BetaAcceptance(np.array([0.5, 2.0, 9.0]), 1.5),
        [BetaAcceptance(a, 1.5) for a in (0.5, 2.0, 9.0)],
        id="beta",
    ),
    pytest.param(
        LookupAcceptance(np.array([0.0, 0.3, 1.0]), BetaAcceptance(2.0, 1.5)),
        [LookupAcceptance(h, BetaAcceptance(2.0, 1.5)) for h in (0.0, 0.3, 1.0)],
        id="match rate",
    ),
    pytest.param(
        LookupAcceptance(0.3, ConstantAcceptance(np.array([0.0, 0.3, 1.0]))),
        [LookupAcceptance(0.3, ConstantAcceptance(a)) for a in (0.0, 0.3, 1.0)],
        id="matched alpha",
    ),
]


@pytest.mark.parametrize(("many", "singles"), TABLES)
def test_an_array_of_parameters_is_one_law_per_cell(
    many: AcceptanceLaw, singles: list[AcceptanceLaw]
) -> None:
    for method in ("survival", "conditional", "accepted_pmf"):
        table = getattr(many, method)(4)
        np.testing.assert_allclose(table, [getattr(law, method)(4) for law in singles], rtol=1e-14)
    for k in (4, [1, 4, 0], [[2], [5]]):
        shape = np.broadcast_shapes((3,), np.shape(k))
        for method in ("acceptance_length", "accepted_variance"):
            table = getattr(many, method)(k)
            cells = [getattr(law, method)(column) for law, column in zip(singles, _columns(k), strict=True)]
            assert table.shape == shape
            np.testing.assert_allclose(table, np.stack(cells, axis=-1), rtol=1e-14)
    np.testing.assert_array_equal(
        many.quantile([0.1, 0.5, 0.9], 4),
        [law.quantile(q, 4) for law, q in zip(singles, (0.1, 0.5, 0.9), strict=True)],
    )
    np.testing.assert_allclose(np.asarray(many.ceiling()), [float(law.ceiling()) for law in singles])


def _columns(k: object) -> list[object]:
    """The k of each of three cells on the last axis."""
    array = np.asarray(k)
    wide = np.broadcast_to(array, np.broadcast_shapes((3,), array.shape))
    return [wide[..., cell] for cell in range(3)]


@pytest.mark.parametrize(
    ("q", "k", "accepted"),
    [
        pytest.param(0.0, 5, 0, id="q 0 is the smallest outcome"),
        pytest.param(0.5, 5, 0, id="half of the steps accept nothing"),
        pytest.param(0.500001, 5, 1, id="just above a half"),
        pytest.param(0.97, 5, 5, id="the best 3 % accept all"),
        pytest.param(1.0, 200, 200, id="q 1 is the largest outcome, however rare"),
        pytest.param([0.0, 0.6, 1.0], 5, [0, 1, 5], id="array of q"),
    ],
)
def test_quantiles_at_alpha_one_half(q: float | list[float], k: int, accepted: int | list[int]) -> None:
    assert np.array_equal(ConstantAcceptance(0.5).quantile(q, k), accepted)


def test_quantiles_at_the_ends_of_alpha() -> None:
    assert ConstantAcceptance(1.0).quantile(1e-300, 7) == 7
    assert ConstantAcceptance(0.0).quantile(1.0, 7) == 0


@pytest.mark.parametrize(
    "law", [ConstantAcceptance(1 - 1e-12), BetaAcceptance(2.0, 2e-12), PositionAcceptance((1 - 1e-12,) * 8)]
)
def test_variance_keeps_its_digits_where_nearly_all_is_accepted(law: AcceptanceLaw) -> None:
    """To first order a step stops after j tokens with probability f_j: Var = Σ f_j (k − j)²."""
    stops = law.accepted_pmf(8)[:-1]
    assert law.accepted_variance(8) == pytest.approx(float(stops @ np.arange(8, 0, -1) ** 2), rel=1e-9)


@pytest.mark.parametrize(
    ("law", "label"),
    [
        (ConstantAcceptance(0.7), "alpha=0.7"),
        (ConstantAcceptance(np.array([0.5, 0.9])), "alpha=0.5..0.9"),
        (PositionAcceptance((0.8, 0.7, 0.6)), "rates=0.8/0.7/0.6"),
        (BetaAcceptance(5.6, 2.3), "beta=5.6/2.3"),
        (BetaAcceptance(2.00000001, 1.0), "beta=2.00000001/1"),
        (PositionAcceptance((0.123456789, 1.0)), "rates=0.123456789/1"),
        (BestTree((0.1234567, 0.0), 5), "ranks=0.1234567/0 best 5 nodes"),
        (
            ContextAcceptance((1.23456789012345e15, 0), (ConstantAcceptance(0.1 + 0.2),) * 2),
            "alpha=0.30000000000000004 at 0, alpha=0.30000000000000004 at 1234567890123450",
        ),
        (best_tree((0.6, 0.2000001), 5, 3), "ranks=0.6/0.2000001 nodes=5"),
        (LookupAcceptance(0.3, ConstantAcceptance(0.9)), "match-rate=0.3 alpha=0.9"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_label_and_sentence(law: AcceptanceLaw, label: str) -> None:
    assert law.label == label
    assert law.assumption[0].islower() or law.assumption[0].isdigit()
    assert not law.assumption.endswith(".")


TREE = best_tree((0.5, 0.25), 3, 5)
"""Two levels: 0.5, 0.25 and 0.5²."""


@pytest.mark.parametrize(
    ("law", "passes"),
    [
        pytest.param(ConstantAcceptance(0.7), [0, 1, 2, 7], id="a chain: k"),
        pytest.param(TREE, [0, 1, 2, 2], id="a tree: its depth"),
        pytest.param(BestTree((0.5, 0.25), 3), [0, 1, 2, 2], id="best trees: the depth of that for k"),
        pytest.param(LookupAcceptance(0.3, TREE), [0, 1, 2, 2], id="lookup: those of a match"),
        pytest.param(
            ContextAcceptance((0, 9), (TREE, best_tree((0.5,), 3, 3))).at(4),
            [0, 1, 2, 3],
            id="the most of two",
        ),
        pytest.param(
            LookupAcceptance(0.3, ContextAcceptance((0,), (TREE,))).at([0, 9]), [0, 1, 2, 2], id="nested"
        ),
    ],
)
def test_draft_passes(law: AcceptanceLaw, passes: list[int]) -> None:
    ks = [0, 1, 2, 7 if law.max_k is None else law.max_k]
    assert np.asarray(law.draft_passes(ks)).tolist() == passes
    assert np.asarray(law.draft_passes([ks, ks])).tolist() == [passes, passes]
    assert [law.draft_passes(k) for k in ks] == passes
    assert {type(law.draft_passes(k)) for k in ks} == {int}
    with pytest.raises(InputError, match="k: "):
        law.draft_passes(-1)


def test_draft_passes_stop_where_the_law_does() -> None:
    with pytest.raises(InputError, match="k: must be at most 2, got 3"):
        LookupAcceptance(0.5, PositionAcceptance((0.5, 0.5))).draft_passes([1, 3])


def test_derivation_shows_the_sum() -> None:
    law = ConstantAcceptance(0.5)
    assert law.derivation(2) == "E = 1 + 0.5 + 0.25 = 1.7500 tokens per step (alpha=0.5, k = 2)"
    assert law.derivation(20).startswith("E = 1 + 0.5 + 0.25 + 0.125 + ... + 9.537e-07 = 2.0000 ")
    assert law.derivation(0) == "E = 1 = 1.0000 tokens per step (alpha=0.5, k = 0)"
    assert ConstantAcceptance(np.array([0.5, 0.6])).derivation(1).startswith("E = 1 + 0.5 = 1.5000 ")


def test_a_law_without_context_holds_at_all() -> None:
    law = ConstantAcceptance(0.7)
    assert law.at(8_192) is law
    assert law.covers([0, 1e6]).all()
    assert law.max_k is None
    with pytest.raises(InputError, match="q: must be between 0 and 1"):
        law.quantile(1.5, 3)
