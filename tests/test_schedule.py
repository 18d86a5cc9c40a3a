"""Schedules: limits, regrets, a published table of steps, what is marked, and what a reader is told."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import BetaAcceptance, ConstantAcceptance, PositionAcceptance
from specmath.additive import AdditiveCost
from specmath.additive_source import Additive
from specmath.checks import FloatArray
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.mixtures import ContextAcceptance, LookupAcceptance
from specmath.policies import mixed_speedup
from specmath.results import Advice, Cell
from specmath.schedule import ScheduleTable, plan_schedule
from specmath.sources import StepCost
from specmath.trees import uniform_tree


def additive(**constants: float) -> Additive:
    """A machine whose steps take a second for the weights, and nothing else unless it is said."""
    zero = dict.fromkeys(AdditiveCost.__dataclass_fields__, 0.0)
    return Additive(cost=AdditiveCost(**{**zero, "weights_s": 1.0, **constants}), name="test machine")


GROWING = additive(compute_s_per_token=0.02, draft_fixed_s=0.02)
"""Verification costs more the larger the batch: k falls with it, and in the end drafting stops to pay."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Measured steps by k and batch in ms, linear in between; draft and verification together."""

    ms: Mapping[int, Mapping[int, float]]
    """Steps by batch, and of each by k."""
    spread: tuple[float, float] | None = None
    held: tuple[float, float] = (float("nan"), float("nan"))

    case: ClassVar[str] = "steps"
    basis: ClassVar[str] = "by measured steps"
    inputs: ClassVar[Mapping[str, Cell]] = {}
    assumptions: ClassVar[tuple[str, ...]] = ("steps as measured",)
    warnings: ClassVar[tuple[Advice, ...]] = ()
    max_k: ClassVar[int | None] = None
    ridge_tokens: ClassVar[float] = float("nan")
    match_rate: float = 1.0

    def _seconds(self, k: npt.ArrayLike, batch: npt.ArrayLike) -> FloatArray:
        batches = np.array(sorted(self.ms), dtype=float)
        ks = np.array(sorted(self.ms[int(batches[0])]), dtype=float)
        table = np.array([[self.ms[int(b)][int(n)] for n in ks] for b in batches]) / 1e3
        drafts, sequences = np.broadcast_arrays(np.asarray(k, dtype=float), np.asarray(batch, dtype=float))
        along = np.array([np.interp(sequences.ravel(), batches, column) for column in table.T])
        found = [np.interp(n, ks, column) for n, column in zip(drafts.ravel(), along.T, strict=True)]
        return np.array(found).reshape(sequences.shape)

    def step_cost(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> StepCost:
        plain, whole = self._seconds(0, batch), self._seconds(k, batch)
        zero = np.zeros(whole.shape if width is None else np.broadcast_shapes(whole.shape, np.shape(width)))
        return StepCost(
            plain_s=plain, draft_cost=zero, draft_passes=zero, verify_cost=whole / plain + zero, overhead=zero
        )

    def step_bounds(
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray] | None:
        step = self.step_cost(k, batch, context, width=width, passes=passes).in_plain_steps
        return None if self.spread is None else (step * self.spread[0], step * self.spread[1])

    def warnings_at(self, k: int, batch: npt.ArrayLike, undecided: int) -> tuple[Advice, ...]:
        return ()

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        plain, speculative = self.held
        return np.asarray(plain), np.asarray(speculative)

    def critical_context(self, acceptance_length: npt.ArrayLike, k: npt.ArrayLike) -> FloatArray:
        return np.full(np.broadcast_shapes(np.shape(acceptance_length), np.shape(k)), np.nan)

    def derivation(self, k: int, batch: int, context: float, *, width: int, passes: int) -> tuple[str, ...]:
        return (f"step of k = {k} at batch {batch}",)


PROFILED = {
    1: {0: 6.5206, 1: 7.3676, 3: 8.8407, 5: 10.3265},
    4: {0: 6.6015, 1: 7.4728, 3: 8.9812, 5: 10.4003},
    16: {0: 6.8988, 1: 7.8523, 3: 9.5183, 5: 11.1964},
    64: {0: 7.7741, 1: 9.6564, 3: 13.4979, 5: 16.8312},
    256: {0: 14.4914, 1: 27.1381, 3: 41.8484, 5: 57.4042},
}
"""Steps in ms of Llama-3.1-8B with EAGLE as vLLM PR 32374 (dynamic speculation) profiled them."""
PROFILED_LAW = PositionAcceptance((0.6812, 0.3914, 0.2035, 0.1014, 0.0514), kind="survival")
"""The acceptance by position that the same pull request states: E = 1.6812, 2.2761, 2.4289 at k = 1, 3, 5."""


@dataclass
class Rows:
    """The rows of the first set-up, by policy."""

    table: ScheduleTable
    by_policy: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.by_policy = {row.policy: row for row in self.table.policies[0] if row.policy != "tier"}

    def __getattr__(self, name: str) -> Any:
        return self.by_policy[name]

    @property
    def spans(self) -> list[tuple[int, int, int | None]]:
        return [(tier.first_batch, tier.last_batch, tier.k) for tier in self.table.tiers[0]]


def rows(law: AcceptanceLaw, source: Any, batches: Any, **options: Any) -> Rows:
    return Rows(plan_schedule(law, source=source, batches=batches, **options))


def test_the_profiled_steps_of_vllm_break_even_between_64_and_256() -> None:
    found = rows(PROFILED_LAW, Steps(ms=PROFILED), [1, 4, 16, 64, 256], switch_cost=0)
    assert found.per_batch.regret == 0
    ks = [tier[2] or 0 for tier in found.spans]
    assert ks[0] == 3  # 1.6788 at batch 1, beside 1.4879 with 1 and 1.5337 with 5
    assert ks[-1] == 0  # .8977 at best at 256
    assert ks == sorted(ks, reverse=True)
    first_off = found.spans[-1][0]
    assert 64 < first_off <= 256


@pytest.mark.parametrize(
    ("k", "batch", "speedup"),
    [(1, 1, 1.4879), (3, 1, 1.6788), (5, 1, 1.5337), (1, 64, 1.3535), (3, 64, 1.3109), (1, 256, 0.8977)],
)
def test_the_speedups_of_vllm_32374(k: int, batch: int, speedup: float) -> None:
    step = Steps(ms=PROFILED).step_cost(k, batch, 0).in_plain_steps
    assert float(PROFILED_LAW.acceptance_length(k)) / float(step) == pytest.approx(speedup, abs=1e-4)


def test_at_every_batch_the_vllm_table_is_searched_in_full() -> None:
    for batch in (1, 4, 16, 64, 256):
        found = rows(PROFILED_LAW, source := Steps(ms=PROFILED), [batch])
        speedups = [1.0] + [
            float(PROFILED_LAW.acceptance_length(k)) / float(source.step_cost(k, batch, 0).in_plain_steps)
            for k in range(1, 6)
        ]
        assert found.static.k == int(np.argmax(speedups))
        assert found.static.speedup == pytest.approx(max(speedups), rel=1e-12)
        others = [speedup for k, speedup in enumerate(speedups) if k != found.static.k]
        assert found.static.margin == pytest.approx(1 - max(others) / max(speedups), rel=1e-9)


def test_nothing_accepted_is_not_worth_drafting() -> None:
    found = rows(ConstantAcceptance(0.0), GROWING, [1, 8, 64])
    assert found.static.k == found.tiers.k == 0
    assert found.static.speedup == found.tiers.speedup == found.per_batch.speedup == 1
    assert found.adaptive.speedup < 1
    assert found.table.verdict.startswith("SLOWER: do not speculate; k = 1, the next best, loses 20.3%")
    cheap = rows(ConstantAcceptance(0.0), additive(draft_fixed_s=0.05), [1, 8])
    assert cheap.table.verdict.startswith("TOO CLOSE TO CALL: do not speculate; k = 1, the next best, loses")


def test_free_drafts_and_free_verification_take_the_longest_draft_everywhere() -> None:
    found = rows(ConstantAcceptance(0.7), additive(), [1, 16, 256])
    assert found.static.k == 16
    assert found.spans == [(1, 256, 16)]
    assert found.static.speedup == pytest.approx(float(ConstantAcceptance(0.7).acceptance_length(16)))
    assert found.adaptive.speedup == pytest.approx(found.static.speedup, rel=1e-12)
    assert "do not add tiers" in found.table.verdict
    assert found.tiers.marks == ("below_switch_cost",)


def test_the_speedup_over_the_histogram_is_that_of_simulated_steps() -> None:
    """Shares of steps: 10,000 plain steps are decoded, then the same tokens with the tiers."""
    histogram = {1: 2000, 8: 5000, 40: 3000}
    law, options = ConstantAcceptance(0.6), {"k_max": 6, "switch_cost": 0.0}
    found = rows(law, GROWING, histogram, weights_are="steps", **options)
    k_at = {batch: k for first, last, k in found.spans for batch in range(first, last + 1)}
    plain = sd = 0.0
    for batch, steps in histogram.items():
        plain_s, tokens = 1 + 0.02 * batch, steps * batch
        plain += steps * plain_s
        k = k_at[batch] or 0
        sd_s = plain_s if k == 0 else 1 + 0.02 * batch * (k + 1) + k * 0.02
        sd += tokens / (batch * float(law.acceptance_length(k))) * sd_s
    assert found.tiers.speedup == pytest.approx(plain / sd, rel=1e-12)
    by_time = rows(law, GROWING, histogram, **options)
    assert by_time.tiers.speedup != pytest.approx(plain / sd, rel=1e-3)
    in_time = {batch: steps * (1 + 0.02 * batch) for batch, steps in histogram.items()}
    assert rows(law, GROWING, in_time, **options).tiers.speedup == pytest.approx(plain / sd, rel=1e-12)


@settings(deadline=None, max_examples=40)
@given(
    st.floats(0, 0.95),
    st.floats(0, 0.1),
    st.floats(0, 0.3),
    st.dictionaries(st.integers(1, 60), st.integers(0, 5), min_size=1, max_size=5).filter(
        lambda load: any(load.values())
    ),
    st.sampled_from([0.0, 0.02, 0.2]),
)
def test_against_every_assignment(
    alpha: float, compute: float, draft: float, load: dict[int, int], bar: float
) -> None:
    """The rows beside an enumeration of all k at all batches of the load."""
    law, source = ConstantAcceptance(alpha), additive(compute_s_per_token=compute, draft_fixed_s=draft)
    found = rows(law, source, load, k_max=3, switch_cost=bar)
    batches = sorted(load)
    shares = np.array([load[batch] for batch in batches]) / sum(load.values())

    def cost(k: int, batch: int) -> float:
        step = 1 + compute * batch * (k + 1) + k * draft
        return step / (1 + compute * batch) / float(law.acceptance_length(k)) if k else 1.0

    def total(ks: tuple[int, ...]) -> float:
        return float(sum(s * cost(k, b) for s, k, b in zip(shares, ks, batches, strict=True)))

    singles = [total((k,) * len(batches)) for k in range(4)]
    every = list(itertools.product(range(4), repeat=len(batches)))
    assert 1 / found.static.speedup == pytest.approx(min(singles), rel=1e-9)
    assert 1 / found.per_batch.speedup == pytest.approx(min(map(total, every)), rel=1e-9)
    paid = bar * min(singles)
    best = min(total(ks) + paid * sum(a != b for a, b in itertools.pairwise(ks)) for ks in every)
    changes = len(found.spans) - 1
    assert 1 / found.tiers.speedup + paid * changes <= best + 1e-5
    for name in ("off", "static", "tiers", "per_batch"):
        assert found.by_policy[name].regret >= -1e-12
    assert found.per_batch.regret == 0
    assert found.adaptive.speedup >= max(1 / single for single in singles[1:]) - 1e-9


def test_regret_and_gain_of_off_and_static() -> None:
    found = rows(ConstantAcceptance(0.7), GROWING, [1, 64])
    best = found.per_batch.speedup
    assert found.off.regret == pytest.approx(1 - 1 / best, rel=1e-12)
    assert found.static.regret == pytest.approx(1 - found.static.speedup / best, rel=1e-12)
    assert found.tiers.gain == pytest.approx(found.tiers.speedup / found.static.speedup - 1, rel=1e-12)


def test_tiers_add_up_to_their_sum() -> None:
    found = rows(ConstantAcceptance(0.7), GROWING, {1: 1, 4: 2, 64: 5, 200: 2})
    tiers = found.table.tiers[0]
    assert len(tiers) > 1
    assert sum(tier.time_share for tier in tiers) == pytest.approx(1, rel=1e-12)
    ends = [(tier.first_batch, tier.last_batch) for tier in tiers]
    assert all(last + 1 == first for (_, last), (first, _) in itertools.pairwise(ends))
    together = mixed_speedup([tier.speedup for tier in tiers], [tier.time_share for tier in tiers])
    assert together == pytest.approx(found.tiers.speedup, rel=1e-5)


def test_batches_that_are_not_listed_say_where_a_tier_ends() -> None:
    """Between 1 and 200 the best k falls to 0 where it does at every whole batch, scanned one by one."""
    source, law = additive(compute_s_per_token=0.01), ConstantAcceptance(0.5)
    found = rows(law, source, [1, 200], k_max=1, switch_cost=0.01)
    pays = [b for b in range(1, 201) if 1.5 * (1 + 0.01 * b) > 1 + 0.02 * b]
    assert found.spans == [(1, pays[-1], 1), (pays[-1] + 1, 200, 0)]


def test_a_bar_merges_tiers_and_the_verdict_says_so() -> None:
    law, load = ConstantAcceptance(0.7), [1, 4, 16]
    low, high = (rows(law, GROWING, load, switch_cost=bar) for bar in (0.0, 0.5))
    assert len(low.spans) > 1
    assert len(high.spans) == 1
    assert high.tiers.speedup == high.static.speedup <= low.tiers.speedup
    assert "do not add tiers, no change of k saves 50.0%" in high.table.verdict


def test_a_tier_without_drafts_has_its_price() -> None:
    law, load = ConstantAcceptance(0.7), {1: 1, 300: 1}
    free, dear, absurd = (rows(law, GROWING, load, zero_tier_cost=cost) for cost in (0, 0.05, 50))
    middle = rows(law, GROWING, load, zero_tier_cost=0.15)  # k = 1 at batch 300 costs 1.095 plain steps
    assert (len(middle.spans), middle.spans[-1][2]) == (2, 1)
    assert free.spans[-1][2] == dear.spans[-1][2] == 0
    assert free.table.tiers[0][-1].speedup == 1
    assert dear.table.tiers[0][-1].speedup == pytest.approx(1 / 1.05, rel=1e-9)
    assert all(k for *_, k in absurd.spans) or absurd.spans == [(1, 300, 0)]
    assert absurd.off.speedup == 1
    for found in (free, dear, absurd):
        assert found.per_batch.speedup == free.per_batch.speedup
        assert found.tiers.regret >= 0


def test_off_for_good_beats_tiers_that_pay_for_being_able_to_draft() -> None:
    """Tiers would save 1 % at batch 1 and pay 10 % at batch 100."""
    source, law = additive(compute_s_per_token=0.02, draft_fixed_s=0.35), ConstantAcceptance(0.4)
    load = {1: 1, 100: 1}
    assert len(rows(law, source, load, switch_cost=0, zero_tier_cost=0, k_max=1).spans) == 2
    found = rows(law, source, load, switch_cost=0, zero_tier_cost=0.1, k_max=1)
    assert found.static.k == found.tiers.k == 0
    assert found.tiers.speedup == 1


def test_the_unknown_price_is_warned_of_only_where_it_matters() -> None:
    law = ConstantAcceptance(0.7)
    codes = [
        {advice.code for advice in plan_schedule(law, source=GROWING, **options).warnings}
        for options in (
            {"batches": [1, 300]},
            {"batches": [1, 300], "zero_tier_cost": 0.0},
            {"batches": [1, 2]},
        )
    ]
    assert codes == [{"zero-tier-is-not-off", "measure-the-schedule"}, {"measure-the-schedule"}, set()]


def test_a_range_of_the_source_is_that_of_each_policy() -> None:
    steps = Steps(ms=PROFILED, spread=(0.8, 1.25))
    found = rows(PROFILED_LAW, steps, {4: 1, 16: 3})
    for name in ("static", "per_batch", "adaptive"):
        row = found.by_policy[name]
        assert row.speedup_low == pytest.approx(row.speedup / 1.25, rel=1e-12)
        assert row.speedup_high == pytest.approx(row.speedup / 0.8, rel=1e-12)
    assert (found.off.speedup_low, found.off.speedup_high) == (1, 1)


def test_no_range_where_the_source_knows_none() -> None:
    assert np.isnan(rows(ConstantAcceptance(0.7), GROWING, [1]).static.speedup_low)
    row = next(plan_schedule(ConstantAcceptance(0.7), source=GROWING, batches=[1]).rows())
    assert row["speedup_low"] is None


@pytest.mark.parametrize(
    ("spread", "unsure"),
    [
        pytest.param((0.99, 1.01), False, id="narrow"),
        pytest.param((0.5, 1.01), True, id="steps may be cheap enough to draft at batch 256"),
    ],
)
def test_a_tier_is_marked_where_its_gain_is_inside_the_range(
    spread: tuple[float, float], unsure: bool
) -> None:
    found = rows(PROFILED_LAW, Steps(ms=PROFILED, spread=spread), {16: 4, 256: 1})
    off = found.table.tiers[0][-1]
    assert (off.first_batch > 64, off.k) == (True, 0)
    assert ("inside_error" in off.marks) is unsure


def test_the_gain_has_the_range_of_both_ends() -> None:
    """At either end of the range every step costs as much more, so that off alone gains or loses by it."""
    load, spread = {16: 4, 256: 1}, (0.8, 1.25)
    found = rows(PROFILED_LAW, Steps(ms=PROFILED, spread=spread), load)
    shares = np.array([0.8, 0.2])

    def total(ks: tuple[int, int], factor: float) -> float:
        source = Steps(ms=PROFILED)
        costs = [
            float(source.step_cost(k, batch, 0).in_plain_steps) * factor
            / float(PROFILED_LAW.acceptance_length(k)) if k else 1.0
            for k, batch in zip(ks, load, strict=True)
        ]  # fmt: skip
        return float(shares @ costs)

    k, static = found.spans[0][2] or 0, found.static.k
    gains = [total((static, static), f) / total((k, 0), f) - 1 for f in (*spread, 1.0)]
    assert found.spans[-1][2] == 0
    assert found.tiers.gain == pytest.approx(gains[2], rel=1e-9)
    assert found.tiers.gain_low == pytest.approx(min(gains), rel=1e-9)
    assert found.tiers.gain_high == pytest.approx(max(gains), rel=1e-9)
    assert (found.static.gain_low, found.static.gain_high) == (0, 0)


@pytest.mark.parametrize(
    ("low_end", "offered"),
    [
        pytest.param(0.99, True, id="the gain is sure"),
        pytest.param(0.82, True, id="at worst a loss that no measurement shows"),
        pytest.param(0.4, False, id="at worst a loss to be seen"),
    ],
)
def test_tiers_are_offered_unless_an_end_of_the_range_makes_them_lose(low_end: float, offered: bool) -> None:
    found = rows(PROFILED_LAW, Steps(ms=PROFILED, spread=(low_end, 1.01)), {16: 1, 256: 2})
    assert found.tiers.gain > 0.08
    assert ("with tiers (" in found.table.verdict) is offered
    assert ("do not add them yet" in found.table.verdict) is not offered
    assert f"({found.tiers.gain_low:.1%} to {found.tiers.gain_high:.1%})" in found.table.verdict


def test_small_gains_of_tiers_are_not_offered() -> None:
    """Tiers that gain less than a repeated measurement differs are told, and not recommended."""
    found = rows(ConstantAcceptance(0.7), GROWING, {1: 2, 2: 1, 4: 1}, switch_cost=0)
    assert 0 < found.tiers.gain < 0.08
    assert "inside_error" in found.tiers.marks
    assert f"k = {found.static.k} at every batch; tiers (k " in found.table.verdict
    assert "inside the error: do not add them yet" in found.table.verdict


def test_tiers_with_a_clear_gain_are_offered() -> None:
    found = rows(ConstantAcceptance(0.8), GROWING, {1: 1, 300: 1}, zero_tier_cost=0.0)
    assert found.tiers.gain > 0.08
    first, *_, last = found.spans
    assert f"with tiers (k {first[2]} at batch 1–{first[1]}" in found.table.verdict
    assert f"off at {last[0]}–300)" in found.table.verdict


@pytest.mark.parametrize(
    ("held", "marked", "told"),
    [
        pytest.param((1e4, 1e4), False, "", id="room"),
        pytest.param(
            (300.0, 10.0), True, "; but memory holds 10 sequences", id="too little beside the draft"
        ),
    ],
)
def test_batches_beyond_memory_are_marked(held: tuple[float, float], marked: bool, told: str) -> None:
    table = plan_schedule(PROFILED_LAW, source=Steps(ms=PROFILED, held=held), batches=[4, 16])
    found = Rows(table)
    assert ("beyond_memory" in found.static.marks) is marked
    assert "beyond_memory" not in found.off.marks
    assert found.static.max_batch_speculative == held[1]
    assert table.verdict.endswith(f"{told}, by measured steps")
    assert ("batch-does-not-fit" in {advice.code for advice in table.warnings}) is marked


def test_weights_that_do_not_fit() -> None:
    table = plan_schedule(PROFILED_LAW, source=Steps(ms=PROFILED, held=(0.0, 0.0)), batches=[4])
    assert table.verdict.startswith("DOES NOT FIT; if it did, FASTER")


def test_each_context_has_its_plan() -> None:
    fading = ContextAcceptance((1000, 30_000), (ConstantAcceptance(0.8), ConstantAcceptance(0.05)))
    table = plan_schedule(fading, source=GROWING, batches=[1, 64], context=[1000, 30_000])
    assert len(table.policies) == len(table.tiers) == 2
    near, far = (
        Rows(plan_schedule(fading, source=GROWING, batches=[1, 64], context=c)) for c in (1000, 30_000)
    )
    assert [rows[1].k for rows in table.policies] == [near.static.k, far.static.k]
    assert near.static.k > far.static.k == 0
    assert "context 1,000: FASTER" in table.verdict
    assert "; context 30,000: " in table.verdict
    assert {row["context"] for row in table.rows()} == {1000, 30_000}


def test_progress_counts_the_setups() -> None:
    told: list[tuple[int, int]] = []
    plan_schedule(
        ConstantAcceptance(np.array([0.5, 0.7])),
        source=GROWING,
        batches=[1],
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 2), (2, 2)]


def test_many_setups_are_counted() -> None:
    table = plan_schedule(ConstantAcceptance(np.array([0, 0.7, 0.8, 0.9])), source=GROWING, batches=[1, 8])
    assert table.verdict.startswith(
        "FASTER in 3, SLOWER in 1 of 4 set-ups: do not speculate in 1, one k in 3, by the additive costs"
    )
    two = plan_schedule(
        ConstantAcceptance(np.array([0.7, 0.75, 0.8, 0.85])), source=GROWING, batches={1: 1, 300: 1}
    )
    assert two.verdict.startswith("FASTER in 4 of 4 set-ups: tiers in 4, by")


def test_rows_have_every_key_and_plain_values() -> None:
    table = plan_schedule(BetaAcceptance(2.0, 1.0), source=GROWING, batches={1: 1, 200: 3})
    found = list(table.rows())
    assert len(found) == len(table)
    assert all(tuple(row) == table.keys for row in found)
    assert [row["policy"] for row in found if row["policy"] != "tier"] == [
        "off",
        "static",
        "tiers",
        "per_batch",
        "adaptive",
        "adaptive_oracle",
    ]
    assert found[0]["marks"] is None
    whole = table.to_frame()
    assert len(whole) == len(table)
    assert len(next(table.chunks(4))["policy"]) == 4


def test_trees_are_planned_without_adaptive_verification() -> None:
    tree = uniform_tree((0.6, 0.2), (2, 2))
    names = {row.policy for row in plan_schedule(tree, source=GROWING, batches=[1, 8], k_max=2).policies[0]}
    assert names >= {"off", "static", "tiers", "per_batch"}
    assert "adaptive" not in names


def test_the_longest_draft_is_as_long_as_law_and_drafter_allow() -> None:
    rates = PositionAcceptance((0.9, 0.9))
    assert plan_schedule(rates, source=additive(), batches=[1]).k_max == 2
    assert plan_schedule(ConstantAcceptance(0.5), source=additive(), batches=[1]).k_max == 16
    with pytest.raises(InputError, match="k_max: must be at most 2"):
        plan_schedule(rates, source=additive(), batches=[1], k_max=3)


def test_the_derivation_ends_in_the_first_numbers() -> None:
    table = plan_schedule(ConstantAcceptance(0.7), source=GROWING, batches=[2, 8])
    lines = table.derivation
    assert lines[0].startswith("at batch 2 and k = ")
    assert f"{Rows(table).static.speedup:.4f}" in lines[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"batches": []}, "batches: is empty", id="no batch"),
        pytest.param({"batches": [0]}, "batches: must be a whole number from 1 to 65536", id="batch 0"),
        pytest.param({"batches": [10**6]}, "batches: must be a whole number from 1", id="too large"),
        pytest.param({"batches": {1: 0.0}}, "batches: weights must be from 0", id="no weight"),
        pytest.param({"batches": {1: 1.0, 2: -1.0}}, "batches: weights must be from 0", id="negative"),
        pytest.param({"batches": {1: float("nan")}}, "batches: weights must be from 0", id="NaN"),
        pytest.param({"batches": {}}, "batches: is empty", id="empty record"),
        pytest.param({"batches": [1], "k_max": 0}, "k_max: must be a whole number", id="k_max 0"),
        pytest.param({"batches": [1], "switch_cost": -0.1}, "switch_cost: must be between", id="bar"),
        pytest.param({"batches": [1], "zero_tier_cost": -1}, "zero_tier_cost: must be between", id="price"),
        pytest.param({"batches": [1], "weights_are": "tokens"}, "weights_are: must be time or", id="weights"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan_schedule(ConstantAcceptance(0.5), source=GROWING, **options)


def test_a_lookup_verifies_more_than_one_token_where_it_matches_alone() -> None:
    """Half of the steps find a match: 1 + k/2 tokens of a sequence in a pass, not 1 + k."""
    law = LookupAcceptance(0.5, ConstantAcceptance(0.9))
    steps = Steps(ms={1: {0: 10, 1: 10.5, 2: 11, 3: 11.5, 4: 12}, 8: {0: 10, 1: 12, 2: 14, 3: 16, 4: 18}})
    table = plan_schedule(law, k_max=4, source=replace(steps, match_rate=0.5), batches=[1, 8])
    verified = {(row["policy"], row["k"]): row["verified_tokens"] for row in table.rows()}
    assert verified["off", 0] == 1
    drafted = [(k, tokens) for (policy, k), tokens in verified.items() if policy in ("static", "tier")]
    assert drafted
    assert all(tokens == pytest.approx(1 + 0.5 * float(str(k))) for k, tokens in drafted)
