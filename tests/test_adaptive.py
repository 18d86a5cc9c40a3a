"""Adaptive verification: against sorting the survivals of a batch, and against simulated steps."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import BetaAcceptance, ConstantAcceptance, PositionAcceptance
from specmath.adaptive import (
    adaptive_acceptance_length,
    best_adaptive,
    beta_nodes,
    knows_spread,
    verification_width,
)
from specmath.additive import AdditiveCost
from specmath.additive_source import Additive
from specmath.errors import InputError
from specmath.mixtures import ContextAcceptance, LookupAcceptance
from specmath.sources import StepCost

MACHINE = Additive(
    cost=AdditiveCost(
        weights_s=10e-3,
        kv_s_per_token=0,
        compute_s_per_token=0.1e-3,
        kv_reread=0,
        draft_fixed_s=0.5e-3,
        draft_s_per_sequence=0.01e-3,
        draft_kv_s_per_token=0,
        overhead_s=0.2e-3,
        plain_overhead_s=0.1e-3,
    ),
    name="a machine whose verification grows with its tokens",
)
"""At batch 64 a drafted token costs 6.4 ms to verify beside 16.5 ms of a plain step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Padded(Additive):
    """MACHINE with passes padded to whole graphs of 12 tokens."""

    def step_cost(
        self, k: Any, batch: Any, context: Any, *, width: Any = None, passes: Any = None
    ) -> StepCost:
        sequences = np.asarray(batch, dtype=float)
        verified = np.asarray(k) + 1.0 if width is None else width
        padded = np.ceil(sequences * verified / 12) * 12 / sequences
        return Additive.step_cost(self, k, batch, context, width=padded, passes=passes)


def step_s(batch: int, k: int, verified: float) -> float:
    """The step of MACHINE, written out: k draft passes, the pass of N + m tokens, the host."""
    return 10e-3 + 0.1e-3 * (batch + verified) + k * (0.5e-3 + 0.01e-3 * batch) + 0.2e-3


def plain_s(batch: int) -> float:
    return 10e-3 + 0.1e-3 * batch + 0.1e-3


@pytest.mark.parametrize("batch", [1, 5, 16])
def test_alike_sequences_are_sorted_by_hand(batch: int) -> None:
    """Every m is tried, with the m largest of the batch's survivals added up one by one."""
    k, survivals = 6, [0.7, 0.45, 0.3, 0.2, 0.1, 0.05]
    law = PositionAcceptance(tuple(survivals), kind="survival")
    by_k = []
    for drafted in range(1, k + 1):
        ranked = sorted(survivals[:drafted] * batch, reverse=True)
        tokens = [(batch + sum(ranked[:m])) / batch for m in range(len(ranked) + 1)]
        by_k.append(max(plain_s(batch) * one / step_s(batch, drafted, m) for m, one in enumerate(tokens)))
    found = best_adaptive(law, MACHINE, np.array([batch]), context=0, time_share=np.ones(1), k_max=k)
    assert 1 / found.token_cost[0] == pytest.approx(max(by_k), rel=1e-12)
    assert found.k == 1 + int(np.argmax(by_k))


def test_a_graph_is_filled_to_its_last_token() -> None:
    """Eleven sequences of graphs of 12 tokens verify one draft, not none and not eleven."""
    cost = AdditiveCost(**{**dict.fromkeys(AdditiveCost.__dataclass_fields__, 0.0), "weights_s": 1e-3,
                           "compute_s_per_token": 1e-3})  # fmt: skip
    source = Padded(cost=cost, name="graphs of 12")
    plan = best_adaptive(
        ConstantAcceptance(0.5), source, np.array([11]), context=0, time_share=np.ones(1), k_max=1
    )
    assert plan.verified[0] * 11 == pytest.approx(1, rel=1e-12)
    assert plan.acceptance_length[0] == pytest.approx(1 + 0.5 / 11, rel=1e-12)
    assert plan.step_cost[0] * 12e-3 == pytest.approx(13e-3, rel=1e-12)


def simulated_rate(law: BetaAcceptance, batch: int, k: int, steps: int, *, knows: bool) -> float:
    """Tokens of a sequence per second of steps that choose m anew each time, drafts drawn one by one."""
    rng = np.random.default_rng(20260)
    acceptance = rng.beta(law.a, law.b, (steps, batch))
    seen = acceptance[..., None] ** np.arange(1, k + 1) if knows else np.asarray(law.survival(k))
    told = np.broadcast_to(seen, (steps, batch, k)).reshape(steps, -1)
    order = np.argsort(-told, axis=1, kind="stable")
    best_sum = np.cumsum(np.take_along_axis(told, order, axis=1), axis=1)
    m = np.arange(batch * k + 1)
    gains = np.concatenate([np.zeros((steps, 1)), best_sum], axis=1)
    seconds = np.array([step_s(batch, k, tokens) for tokens in m.tolist()])
    chosen = np.argmax((batch + gains) / seconds, axis=1)
    verified = np.zeros_like(told, dtype=bool)
    np.put_along_axis(verified, order, np.arange(batch * k) < chosen[:, None], axis=1)
    accepted = rng.random((steps, batch, k)) < acceptance[..., None]
    tokens = steps * batch + np.sum(np.cumprod(accepted & verified.reshape(steps, batch, k), axis=2))
    return float(tokens / batch / seconds[chosen].sum())


@pytest.mark.parametrize(
    ("batch", "steps", "tolerance"),
    [
        pytest.param(1, 200_000, 0.02, id="alone, where the batch holds no mix"),
        pytest.param(8, 40_000, 0.01, id="batch 8"),
        pytest.param(64, 8_000, 0.004, id="batch 64"),
        pytest.param(256, 2_000, 0.004, id="batch 256"),
    ],
)
@pytest.mark.parametrize("confidence", ["position", "perfect"])
def test_simulated_steps_of_a_beta_law(batch: int, steps: int, tolerance: float, confidence: str) -> None:
    law = BetaAcceptance(2.0, 1.0)
    rate = simulated_rate(law, batch, 5, steps, knows=confidence == "perfect")
    assert speedup_of(law, batch, 5, confidence) == pytest.approx(rate * plain_s(batch), rel=tolerance)


def speedup_of(law: BetaAcceptance, batch: int, k: int, confidence: str) -> float:
    """Speed-up of adaptive verification at one batch with drafts of k tokens."""
    m = np.arange(batch * k + 1)
    tokens = np.asarray(adaptive_acceptance_length(law, k, m / batch, confidence=confidence))  # type: ignore[arg-type]
    seconds = np.array([step_s(batch, k, one) for one in m.tolist()])
    return float(np.max(tokens / seconds)) * plain_s(batch)


def test_knowing_the_steps_is_worth_something_where_verification_costs() -> None:
    law, shares = BetaAcceptance(0.6, 0.4), np.ones(1)
    blind, oracle = (
        best_adaptive(
            law, MACHINE, np.array([256]), context=0, time_share=shares, k_max=8, confidence=confidence
        )
        for confidence in ("position", "perfect")
    )
    fixed = max(
        float(law.acceptance_length(k)) / (step_s(256, k, 256 * k) / plain_s(256)) for k in range(1, 9)
    )
    assert fixed <= 1 / blind.token_cost[0] * (1 + 1e-12)
    assert 1 / oracle.token_cost[0] > 1.05 / blind.token_cost[0]


@settings(deadline=None, max_examples=60)
@given(st.floats(0.05, 20), st.floats(0.05, 20), st.integers(1, 8), st.floats(0, 1))
def test_more_knowledge_never_hurts_and_everything_verified_is_the_law(
    a: float, b: float, k: int, part: float
) -> None:
    law = BetaAcceptance(a, b)
    blind, oracle = (
        float(adaptive_acceptance_length(law, k, part * k, confidence=confidence))
        for confidence in ("position", "perfect")
    )
    assert oracle >= blind - 1e-12
    for confidence in ("position", "perfect"):
        full = adaptive_acceptance_length(law, k, k, confidence=confidence)
        assert full == pytest.approx(float(law.acceptance_length(k)), rel=1e-9)
        assert adaptive_acceptance_length(law, k, 0, confidence=confidence) == 1


def test_perfect_confidence_of_two_kinds_of_steps() -> None:
    """Beta(ε, ε) is a coin: half of all steps accept everything, half nothing; half the tokens do it all."""
    law = BetaAcceptance(1e-6, 1e-6)
    assert adaptive_acceptance_length(law, 4, 2, confidence="perfect") == pytest.approx(3, abs=1e-4)
    assert adaptive_acceptance_length(law, 4, 2) == pytest.approx(2, abs=1e-4)


@pytest.mark.parametrize(("a", "b"), [(1, 1), (5, 2), (1, 3), (12, 7)])
def test_the_nodes_have_the_moments_of_the_law(a: int, b: int) -> None:
    nodes, shares = beta_nodes(float(a), float(b))
    moment = Fraction(1)
    for power in range(1, 40):
        moment *= Fraction(a + power - 1, a + b + power - 1)
        assert float(shares @ nodes**power) == pytest.approx(float(moment), rel=1e-12)


def test_a_lookup_spends_its_verification_on_matches() -> None:
    matched = BetaAcceptance(2.0, 1.0)
    law = LookupAcceptance(0.25, matched)
    inner = float(adaptive_acceptance_length(matched, 4, 2, confidence="perfect"))
    found = float(adaptive_acceptance_length(law, 4, 2, confidence="perfect"))
    assert found == pytest.approx(1 + 0.25 * (inner - 1), rel=1e-12)


def test_who_knows_how_steps_differ() -> None:
    assert knows_spread(BetaAcceptance(1, 1))
    assert knows_spread(LookupAcceptance(0.5, BetaAcceptance(1, 1)))
    assert not knows_spread(ConstantAcceptance(0.5))
    mixed = ContextAcceptance((0, 8), (ConstantAcceptance(1.0), ConstantAcceptance(0.0)))
    assert not knows_spread(mixed.at(2))


def test_the_draft_runs_in_full_even_where_nothing_is_verified() -> None:
    plan = best_adaptive(
        ConstantAcceptance(0.0), MACHINE, np.array([4]), context=0, time_share=np.ones(1), k_max=3
    )
    assert plan.k == 1
    assert plan.verified.tolist() == [0]
    assert plan.step_cost[0] == pytest.approx(step_s(4, 1, 0) / plain_s(4), rel=1e-12)


@settings(deadline=None)
@given(st.integers(1, 70_000), st.integers(0, 10**6))
def test_a_pass_is_never_a_hair_longer_than_its_tokens(batch: int, verified: int) -> None:
    """A hair would pad it to the next captured graph."""
    sequences = np.array(float(batch))
    width = float(verification_width(np.array(verified / batch), sequences))
    assert width * batch <= batch + verified
    assert width * batch == pytest.approx(batch + verified, rel=1e-12)


def test_refusals() -> None:
    with pytest.raises(InputError, match="confidence: must be position or perfect"):
        adaptive_acceptance_length(ConstantAcceptance(0.5), 2, 1, confidence="blind")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="verified: must be between 0 and 2"):
        adaptive_acceptance_length(ConstantAcceptance(0.5), 2, 2.5)
