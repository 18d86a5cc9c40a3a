"""The context from which no batch is too large: against closed forms, a finer scan, and a known case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings, strategies as st

from specmath.acceptance import ConstantAcceptance, expected_tokens
from specmath.acceptance_axis import AcceptanceAxis
from specmath.additive import AdditiveCost, critical_context
from specmath.additive_source import Additive
from specmath.catalogue import load_hardware
from specmath.checks import FloatArray
from specmath.critical_contexts import CONTEXT_LIMIT, critical_contexts
from specmath.crossovers import find_crossovers
from specmath.drafters.draft_model import DraftModel
from specmath.laws import AcceptanceLaw
from specmath.mixtures import ContextAcceptance
from specmath.model_catalogue import load_model
from specmath.model_counts import model_from_counts
from specmath.roofline_source import Roofline
from specmath.sources import BatchSource, StepCost
from specmath.trees import best_tree

COST = AdditiveCost(
    weights_s=8.0,
    kv_s_per_token=0.001,
    compute_s_per_token=0.5,
    kv_reread=0.0,
    draft_fixed_s=1.0,
    draft_s_per_sequence=0.25,
    draft_kv_s_per_token=0.0001,
    overhead_s=0.0,
    plain_overhead_s=0.0,
)


class Scanned(Additive):
    """Linear costs whose closed form is kept to themselves, so that the scan has to find it."""

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        return np.full(np.broadcast_shapes(np.shape(acceptance_length), np.shape(k)), np.nan)


def critical(law: AcceptanceLaw, k: int, source: BatchSource) -> float:
    return float(critical_contexts(AcceptanceAxis.of(law), np.array([k]), source)[0, 0])


def pair(draft_has_cache: bool = True) -> Roofline:
    draft = load_model("qwen3-0.6b")
    return Roofline(
        accelerator=load_hardware("h100-sxm"),
        target=load_model("qwen3-32b"),
        drafter=DraftModel(draft if draft_has_cache else replace(draft, attention=())),
    )


@pytest.mark.parametrize(
    ("alpha", "draft_has_cache", "expected"),
    [
        pytest.param(0.70, True, 82_000, id="about 82k at .7"),
        pytest.param(0.70, False, 1_070, id="1.07k if the draft had no cache"),
        pytest.param(0.69, True, None, id="none at .69"),
        pytest.param(0.60, True, None, id="none at .6"),
        pytest.param(0.30, True, None, id="none at .3"),
    ],
)
def test_qwen3_32b_with_a_draft_of_0_6b(alpha: float, draft_has_cache: bool, expected: float | None) -> None:
    """k 4, one H100, ideal: at E = 2.7731 the draft's own cache takes all but a hair of what is gained."""
    found = critical(ConstantAcceptance(alpha), 4, pair(draft_has_cache))
    assert found == pytest.approx(expected, rel=0.01) if expected else np.isnan(found)


def test_the_closed_form_of_the_roofline_in_the_limit_of_large_batch() -> None:
    """There a pass computes for τ·q and reads the cache for κ·C at once: E·(τ ∨ κC) = 5·τ ∨ κC + 4·draft.

    Past the ridge of attention E·κ·C + E·τ = κ·C + 5·τ + 4·(τ_d + κ_d·C), all of them separate components.
    """
    source, length = pair(), float(np.asarray(expected_tokens(0.7, 4)))
    rate, peak = 3.35e12, 989.4e12
    target, draft = source.target, load_model("qwen3-0.6b")
    flops = [2 * sum(group.multiplied_params for group in model.weights) / peak for model in (target, draft)]
    reads = [model.kv_bytes_per_token / rate for model in (target, draft)]
    added = (5 - length) * flops[0] + 4 * flops[1]
    saved = (length - 1) * reads[0] - 4 * reads[1]
    # One slot a query token is written too, and is a drop beside 82,000 that are read.
    assert critical(ConstantAcceptance(0.7), 4, source) == pytest.approx(added / saved, rel=0.01)


@settings(deadline=None, max_examples=60)
@given(
    st.floats(0.05, 0.98),
    st.integers(1, 8),
    st.floats(0, 1),
    st.floats(1e-6, 1e-2),
    st.floats(0, 1e-3),
    st.floats(0, 0.5),
)
def test_the_scan_finds_the_closed_form(
    alpha: float, k: int, reread: float, kv_s: float, draft_kv_s: float, draft_s: float
) -> None:
    cost = replace(
        COST,
        kv_reread=reread,
        kv_s_per_token=kv_s,
        draft_kv_s_per_token=draft_kv_s,
        draft_s_per_sequence=draft_s,
    )
    closed = float(np.asarray(critical_context(cost, expected_tokens(alpha, k), k)))
    assume(not closed > CONTEXT_LIMIT / 2)
    found = critical(ConstantAcceptance(alpha), k, Scanned(cost=cost, name="a test"))
    assert found == pytest.approx(closed, rel=1e-6, abs=1e-3, nan_ok=True)


def test_a_source_with_a_closed_form_is_asked_for_it() -> None:
    source = Additive(cost=COST, name="a test")
    closed = critical_context(COST, expected_tokens(0.7, 3), 3)
    assert critical(ConstantAcceptance(0.7), 3, source) == closed


def test_beyond_the_longest_context_only_a_closed_form_is_told() -> None:
    far = replace(COST, kv_s_per_token=1e-9, draft_kv_s_per_token=0.0)
    assert critical(ConstantAcceptance(0.7), 3, Additive(cost=far, name="a test")) > CONTEXT_LIMIT
    assert np.isnan(critical(ConstantAcceptance(0.7), 3, Scanned(cost=far, name="a test")))
    axis = AcceptanceAxis.of([ConstantAcceptance(0.7), best_tree((0.6, 0.2), 12, 3)])
    chain, tree = critical_contexts(axis, np.array([3]), Additive(cost=far, name="a test"))[:, 0]
    assert chain > CONTEXT_LIMIT
    assert np.isnan(tree)


def test_a_tree_verifies_more_than_the_closed_form_of_a_chain_knows() -> None:
    source = Additive(cost=COST, name="a test")
    tree = best_tree((0.6, 0.2), 12, 3)
    context = critical(tree, 3, source)
    length = float(np.asarray(tree.acceptance_length(3)))
    for factor, wins in ((0.999, False), (1.001, True)):
        step = source.step_cost(3, 1e9, context * factor, width=13, passes=3)
        assert (length > float(step.in_plain_steps)) is wins


def test_an_acceptance_that_fades_away_has_no_critical_context() -> None:
    source = Additive(cost=COST, name="a test")
    steady = critical(ConstantAcceptance(0.8), 3, source)
    measured = (0.0, 100 * steady)
    fading = ContextAcceptance(measured, (ConstantAcceptance(0.8), ConstantAcceptance(0.1)))
    growing = ContextAcceptance(measured, (ConstantAcceptance(0.1), ConstantAcceptance(0.8)))
    assert np.isnan(critical(fading, 3, source))
    context = critical(growing, 3, source)
    length = float(np.asarray(growing.at(context).acceptance_length(3)))
    assert float(source.step_cost(3, 1e12, context).in_plain_steps) == pytest.approx(length, rel=1e-6)
    assert steady < context < measured[1]


def test_acceptance_is_not_trusted_beyond_where_it_was_measured() -> None:
    """Up to half of the critical context nothing wins, and what lies beyond was not measured."""
    source = Additive(cost=COST, name="a test")
    steady = critical(ConstantAcceptance(0.8), 3, source)
    constant = (ConstantAcceptance(0.8), ConstantAcceptance(0.8))
    assert np.isnan(critical(ContextAcceptance((0.0, steady / 2), constant), 3, source))
    assert critical(ContextAcceptance((0.0, steady * 2), constant), 3, source) == pytest.approx(steady)
    late = ContextAcceptance((steady * 2, steady * 4), constant)
    assert steady * 2 <= critical(late, 3, source) < steady * 2.3  # all that is known of it wins


def test_where_every_context_wins_it_is_zero() -> None:
    free = replace(COST, compute_s_per_token=0.0, draft_s_per_sequence=0.0, draft_kv_s_per_token=0.0)
    assert critical(ConstantAcceptance(0.7), 3, Scanned(cost=free, name="a test")) == 0
    assert critical(ConstantAcceptance(0.7), 3, Comes(wins=(0.0, 1e9))) == 0


class Comes(Additive):
    """A source that wins at some contexts only, whatever the batch."""

    def __init__(self, wins: tuple[float, float]) -> None:
        super().__init__(cost=COST, name="a test")
        object.__setattr__(self, "name", f"{wins[0]} {wins[1]}")

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        return np.full(np.broadcast_shapes(np.shape(acceptance_length), np.shape(k)), np.nan)

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> StepCost:
        first, last = map(float, self.name.split())
        cost = super().step_cost(k, batch, context, width=width, passes=passes)
        inside = (np.asarray(context) >= first) & (np.asarray(context) <= last)
        return replace(cost, verify_cost=np.where(inside, 0.1, 1000.0), draft_cost=np.zeros(()))


def test_a_win_that_ends_again_is_no_critical_context() -> None:
    law = ConstantAcceptance(0.7)
    assert np.isnan(critical(law, 3, Comes(wins=(1000.0, 50_000.0))))
    assert critical(law, 3, Comes(wins=(1000.0, 1e9))) == pytest.approx(1000.0, rel=1e-9)


def test_many_laws_and_k_are_read_at_once() -> None:
    laws = [ConstantAcceptance(np.array([0.6, 0.8])), best_tree((0.6, 0.2), 12, 3), ConstantAcceptance(0.9)]
    axis, source, k = AcceptanceAxis.of(laws), Scanned(cost=COST, name="a test"), np.array([2, 3])
    found = critical_contexts(axis, k, source)
    singly = [[critical(axis.law(place), int(each), source) for each in k] for place in range(4)]
    np.testing.assert_allclose(found, singly, rtol=1e-12)
    np.testing.assert_allclose(critical_contexts(axis, k, source, slice(1, 3)), singly[1:3], rtol=1e-12)


def test_a_model_known_by_its_counts_has_none() -> None:
    source = Roofline(
        accelerator=load_hardware("h100-sxm"),
        target=model_from_counts("70B"),
        drafter=DraftModel(model_from_counts("1B")),
    )
    assert np.isnan(critical(ConstantAcceptance(0.9), 4, source))


def test_a_crossover_tells_it_for_any_source() -> None:
    row = next(find_crossovers(ConstantAcceptance(0.7), 4, source=pair(), context=4000).rows())
    assert row["critical_context"] == pytest.approx(82_489, abs=1)
    table = find_crossovers(ConstantAcceptance(0.7), 4, source=pair(), context=4000)
    assert "from context 82,489 on no batch is too large" in table.verdict
    assert any("critical context" in sentence for sentence in table.assumptions)
