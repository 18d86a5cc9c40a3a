"""Crossovers: the scan against closed forms, the textbook's values, and every way a curve can lie."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import ConstantAcceptance, expected_tokens
from specmath.additive import AdditiveCost
from specmath.additive_source import Additive
from specmath.breakevens import roofline_breakeven_batch
from specmath.catalogue import load_hardware
from specmath.checks import FloatArray
from specmath.crossovers import CrossoverTable, find_crossovers
from specmath.drafters.draft_model import DraftModel
from specmath.drafters.lookup import Lookup
from specmath.drafters.methods import drafter_of
from specmath.errors import InputError
from specmath.forecast import forecast_speedup
from specmath.laws import AcceptanceLaw
from specmath.mixtures import LookupAcceptance
from specmath.model_catalogue import load_model
from specmath.model_counts import model_from_counts
from specmath.roofline_source import Roofline, roofline_cases
from specmath.sources import StepCost
from specmath.trees import best_tree
from specmath.winning import edge, intervals_of, wins

PAIR = roofline_cases(
    load_hardware("h100-sxm"), model_from_counts("70B"), DraftModel(model_from_counts("1B"))
)


def row_of(alpha: float, k: int, **options: Any) -> dict[str, Any]:
    return next(find_crossovers(ConstantAcceptance(alpha), k, source=PAIR[0], **options).rows())


@pytest.mark.parametrize(("alpha", "breakeven"), [(0.8, 195.1), (0.7, 160.4)])
def test_the_textbook_breakeven_batches(alpha: float, breakeven: float) -> None:
    """Post 3's pair; the catalogue's 989.4 TFLOP/s moves the first from 195.1 to 195.2."""
    found = row_of(alpha, 4)
    assert found["breakeven_batch"] * 989 / 989.4 == pytest.approx(breakeven, abs=0.05)
    assert found["winning_batches"] == [[1, int(found["breakeven_batch"])]]
    assert found["wins"] == "below"


@settings(deadline=None, max_examples=60)
@given(st.floats(0.3, 0.99), st.integers(1, 12))
def test_the_bisected_batch_is_the_closed_form(alpha: float, k: int) -> None:
    found = row_of(alpha, k, max_batch=512)
    closed = roofline_breakeven_batch(
        expected_tokens(alpha, k), k, ridge=PAIR[0].ridge_tokens, draft_cost=1 / 70
    )
    if found["wins"] == "below" and closed > 1.01:
        assert found["breakeven_batch"] == pytest.approx(float(closed), rel=1e-9)
    else:
        assert not closed > 1.01
        assert found["breakeven_batch"] is None


def test_winning_batches_are_those_whose_speedup_exceeds_one() -> None:
    law = LookupAcceptance(0.5, ConstantAcceptance(0.9))
    source = roofline_cases(load_hardware("l4"), model_from_counts("47B/13B"), Lookup(0.5))[0]
    found = next(find_crossovers(law, 6, source=source, max_batch=600).rows())
    table = forecast_speedup(law, 6, np.arange(1, 601), cases=[source])
    winning = {row["batch"] for row in table.rows() if float(str(row["speedup"])) > 1}
    intervals: Any = found["winning_batches"]
    told = {batch for first, last in intervals for batch in range(first, last + 1)}
    assert told == winning


def test_never_and_always() -> None:
    assert row_of(0.01, 8) | {"wins": "never", "breakeven_batch": None, "winning_batches": []} == row_of(
        0.01, 8
    )
    small = row_of(0.8, 4, max_batch=100)
    assert small["wins"] == "always"
    assert small["breakeven_batch"] is None
    assert small["winning_batches"] == [[1, 100]]


@dataclass(frozen=True)
class Curve:
    """The wins of batches 1, 2, … as letters."""

    wins: str
    word: str
    intervals: list[tuple[int, int]]
    edge: float


@pytest.mark.parametrize(
    "curve",
    [
        Curve("WWWW", "always", [(1, 4)], 1),
        Curve("LLLL", "never", [], 1),
        Curve("WWLL", "below", [(1, 2)], 2),
        Curve("LLWW", "above", [(3, 4)], 3),
        Curve("LWWL", "within", [(2, 3)], 1),
        Curve("WLWW", "within", [(1, 1), (3, 4)], 1),
        Curve("W", "always", [(1, 1)], 1),
        Curve("L", "never", [], 1),
    ],
    ids=lambda curve: curve.wins,
)
def test_every_shape_of_curve_has_its_word(curve: Curve) -> None:
    found = intervals_of(np.array([letter == "W" for letter in curve.wins]))
    assert found == curve.intervals
    assert wins(found, len(curve.wins)) == curve.word
    assert edge(found, curve.word) == curve.edge


def test_each_breakeven_value_makes_the_speedup_one() -> None:
    found = row_of(0.7, 4, batch=64)
    cost = PAIR[0].step_cost(4, 64, 0)
    v, c, length = float(cost.verify_cost), float(cost.draft_cost), found["acceptance_length"]
    assert found["speedup"] == pytest.approx(length / (v + 4 * c), rel=1e-14)
    assert float(expected_tokens(found["breakeven_alpha"], 4)) == pytest.approx(v + 4 * c, rel=1e-9)
    assert found["breakeven_acceptance_length"] == pytest.approx(v + 4 * c, rel=1e-14)
    assert length == pytest.approx(v + 4 * found["breakeven_draft_cost"], rel=1e-12)
    assert length == pytest.approx(found["breakeven_verify_cost"] + 4 * c, rel=1e-12)


def test_ridge_and_verify_bound_batch() -> None:
    found = row_of(0.7, 4)
    assert found["ridge_tokens"] == pytest.approx(989.4e12 / 3.35e12, rel=1e-14)
    assert found["verify_bound_batch"] == pytest.approx(989.4e12 / 3.35e12 / 5, rel=1e-14)


def test_a_tree_turns_compute_bound_earlier_and_has_no_breakeven_alpha() -> None:
    tree = best_tree((0.6, 0.2), 24, 4)
    found = next(find_crossovers(tree, 4, source=PAIR[0]).rows())
    assert found["verify_bound_batch"] == pytest.approx(989.4e12 / 3.35e12 / 25, rel=1e-14)
    assert found["breakeven_alpha"] is None


def test_many_rows_are_scanned_in_pieces_with_the_same_result() -> None:
    table = find_crossovers(
        ConstantAcceptance(np.linspace(0.3, 0.95, 7)), [2, 5], source=PAIR[0], max_batch=300
    )
    whole = list(table.rows())
    pieces = [chunk["wins"] for chunk in table.chunks(3)]
    assert [word for piece in pieces for word in piece] == [row["wins"] for row in whole]
    assert len(whole) == len(table) == 14


def test_a_breakeven_verify_cost_below_one_is_warned_of() -> None:
    hopeless, fine = (
        {advice.code for advice in find_crossovers(ConstantAcceptance(alpha), k, source=PAIR[0]).warnings}
        for alpha, k in ((0.01, 8), (0.7, 4))
    )
    assert "more-devices" in hopeless & fine
    assert hopeless - fine == {"no-verify-cost-pays"}


def dense(context: float = 4000.0, **options: Any) -> CrossoverTable:
    source = Roofline(
        accelerator=load_hardware("h100-sxm"),
        target=load_model("qwen3-32b"),
        drafter=DraftModel(load_model("qwen3-0.6b")),
    )
    return find_crossovers(ConstantAcceptance(0.7), 4, source=source, context=context, **options)


def test_memory_cuts_the_winning_batches() -> None:
    row: Any = next(dense().rows())
    assert row["winning_batches"] == [[1, 162]]
    assert row["max_batch_speculative"] == 6 < row["max_batch"]
    assert row["winning_batches_in_memory"] == [[1, 6]]
    sizes = "6 sequences with speculation, 10 without"
    assert dense().verdict.startswith(f"FASTER at batch 1–6, where memory ends it ({sizes}), at the ideal")


def test_where_not_even_one_sequence_fits_the_verdict_says_so() -> None:
    table = dense(context=100_000.0)
    row: Any = next(table.rows())
    assert row["max_batch_speculative"] == 0
    assert row["winning_batches_in_memory"] == []
    assert table.verdict.startswith("DOES NOT FIT beside the weights; if it did, FASTER at every batch up to")
    assert row["critical_context"] < 100_000
    assert "no batch is too large" not in table.verdict  # it has just been said


def test_batches_that_win_beyond_memory_only_are_no_win() -> None:
    target, draft = load_model("qwen3-30b-a3b"), DraftModel(load_model("qwen3-0.6b"))
    source = Roofline(accelerator=load_hardware("h100-sxm"), target=target, drafter=draft)
    table = find_crossovers(ConstantAcceptance(0.7), 4, source=source, context=9000)
    row: Any = next(table.rows())
    assert row["winning_batches"][0][0] > row["max_batch_speculative"] > 0
    assert row["winning_batches_in_memory"] == []
    assert table.verdict.startswith("SLOWER at every batch that memory holds (")
    assert "; beyond, FASTER at batch" in table.verdict


def test_batches_within_memory_are_told_without_it() -> None:
    source = Roofline(
        accelerator=load_hardware("b200"),
        target=load_model("qwen3-32b"),
        drafter=DraftModel(load_model("qwen3-0.6b")),
    )
    table = find_crossovers(ConstantAcceptance(0.5), 8, source=source, context=100)
    row: Any = next(table.rows())
    assert row["winning_batches_in_memory"] == row["winning_batches"]
    assert "memory" not in table.verdict
    assert (
        next(find_crossovers(ConstantAcceptance(0.7), 4, source=PAIR[0]).rows())["winning_batches_in_memory"]
        is None
    )


class Ranged(Additive):
    """Linear costs that may be up to a fifth off either way."""

    def step_bounds(  # type: ignore[override]
        self,
        k: npt.ArrayLike,
        batch: npt.ArrayLike,
        context: npt.ArrayLike,
        *,
        width: npt.ArrayLike | None = None,
        passes: npt.ArrayLike | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        steps = self.step_cost(k, batch, context, width=width, passes=passes).in_plain_steps
        return steps / 1.2, steps * 1.2


LINEAR = AdditiveCost(
    weights_s=8.0,
    kv_s_per_token=0.001,
    compute_s_per_token=0.5,
    kv_reread=0.0,
    draft_fixed_s=0.5,
    draft_s_per_sequence=0.0,
    draft_kv_s_per_token=0.0,
    overhead_s=0.0,
    plain_overhead_s=0.0,
)


def linear_edge(length: float, k: int, context: float) -> float:
    """B at which E·(8 + B·(.001·C + .5)) = 8 + B·(.001·C + .5·(k + 1)) + .5·k."""
    return ((length - 1) * 8 - 0.5 * k) / (0.5 * (k + 1 - length) - (length - 1) * 0.001 * context)


def test_a_range_of_the_step_is_a_range_of_the_breakeven_batch() -> None:
    """A step dearer by a factor is paid for by E over it: the closed form at E/1.2 and at 1.2·E."""
    source, k = Ranged(cost=LINEAR, name="a test"), 4
    row: Any = next(find_crossovers(ConstantAcceptance(0.7), k, source=source).rows())
    length = row["acceptance_length"]
    found = [row[f"breakeven_batch{end}"] for end in ("_low", "", "_high")]
    assert found == pytest.approx([linear_edge(length * f, k, 0) for f in (1 / 1.2, 1, 1.2)], rel=1e-6)
    last = [row[f"winning_batches{end}"][0][1] for end in ("_low", "", "_high")]
    assert last == [int(edge) for edge in found]
    assert (row["speedup_low"], row["speedup_high"]) == pytest.approx(
        (row["speedup"] / 1.2, row["speedup"] * 1.2)
    )


def test_above_its_breakeven_batch_a_dearer_step_wins_later() -> None:
    source = Ranged(cost=replace(LINEAR, draft_fixed_s=100.0), name="a test")
    row: Any = next(find_crossovers(ConstantAcceptance(0.7), 4, source=source, context=50_000.0).rows())
    assert row["wins"] == "above"
    low, middle, high = (row[f"breakeven_batch{end}"] for end in ("_low", "", "_high"))
    assert low < middle < high
    assert row["winning_batches_high"][0][0] == int(np.ceil(low))
    assert row["winning_batches_low"][0][0] == int(np.ceil(high))


def test_an_end_of_the_range_without_an_edge_has_none() -> None:
    """At E = 1.5 the dearest step never pays, the cheapest does up to some batch."""
    source = Ranged(cost=LINEAR, name="a test")
    row: Any = next(find_crossovers(ConstantAcceptance(0.33), 4, source=source).rows())
    assert row["winning_batches_low"] == []
    assert row["breakeven_batch_low"] is None
    assert row["breakeven_batch_high"] == pytest.approx(linear_edge(row["acceptance_length"] * 1.2, 4, 0))


def test_a_range_that_changes_nothing_is_not_told() -> None:
    table = find_crossovers(ConstantAcceptance(0.01), 4, source=Ranged(cost=LINEAR, name="a test"))
    row: Any = next(table.rows())
    assert row["winning_batches_low"] == row["winning_batches_high"] == []
    assert "over its range" not in table.verdict


def test_a_source_without_a_range_has_none() -> None:
    row = row_of(0.7, 4)
    ends = ("breakeven_batch", "winning_batches", "speedup")
    assert {row[f"{name}_{end}"] for name in ends for end in ("low", "high")} == {None}


@pytest.mark.parametrize(
    ("batch", "close"), [(1, False), (7, True), (8, True), (40, False)], ids=lambda value: str(value)
)
def test_the_asked_batch_is_too_close_to_call_within_the_range(batch: int, close: bool) -> None:
    source = Ranged(cost=LINEAR, name="a test")
    table = find_crossovers(ConstantAcceptance(0.7), 4, source=source, batch=batch)
    row: Any = next(table.rows())
    assert (row["speedup_low"] <= 1 <= row["speedup_high"]) is close
    assert table.verdict.startswith(f"TOO CLOSE TO CALL at batch {batch} (") is close
    low, high = (row[f"winning_batches_{end}"][0][1] for end in ("low", "high"))
    assert f" (between batch 1–{low} and batch 1–{high} over its range)" in table.verdict


def test_a_verdict_on_several_set_ups_counts_what_memory_cuts_and_what_is_close() -> None:
    source = Roofline(
        accelerator=load_hardware("h100-sxm"),
        target=load_model("qwen3-32b"),
        drafter=DraftModel(load_model("qwen3-0.6b")),
    )
    laws = ConstantAcceptance(np.array([0.1, 0.7]))
    verdict = find_crossovers(laws, 4, source=source, context=4000).verdict
    assert verdict.startswith("FASTER below a break-even batch of ")
    assert " in 2 of 2, at the ideal roofline of h100-sxm" in verdict
    assert verdict.endswith("; memory ends the winning batches of 1; TOO CLOSE TO CALL at batch 1 in 1")


def test_without_a_range_the_repeat_noise_decides_what_is_close() -> None:
    assert find_crossovers(ConstantAcceptance(0.7), 4, source=PAIR[0], batch=155).verdict.startswith(
        "TOO CLOSE TO CALL at batch 155 (1.0"
    )
    assert find_crossovers(ConstantAcceptance(0.7), 4, source=PAIR[0], batch=100).verdict.startswith("FASTER")


def test_a_one_pass_drafter_breaks_even_over_its_one_pass() -> None:
    target = load_model("llama-3.1-8b")
    source = Roofline(
        accelerator=load_hardware("h100-sxm"), target=target, drafter=drafter_of(target, method="medusa")
    )
    law = ConstantAcceptance(0.8)
    row: Any = next(find_crossovers(law, 4, source=source, batch=8).rows())
    cost = source.step_cost(4, 8, 0)
    v, c, length = float(cost.verify_cost), float(cost.draft_cost), row["acceptance_length"]
    assert float(cost.draft_passes) == 1
    assert length == pytest.approx(v + row["breakeven_draft_cost"], rel=1e-12)
    assert length == pytest.approx(row["breakeven_verify_cost"] + c, rel=1e-12)
    assert float(expected_tokens(row["breakeven_alpha"], 4)) == pytest.approx(v + c, rel=1e-9)


def test_a_sparse_target_with_an_eagle3_head_wins_at_medium_batches_only() -> None:
    """Qwen3-30B-A3B, k 3, E about 2.1: below 1 at batch 1, since verification touches new experts."""
    target = load_model("qwen3-30b-a3b")
    source = Roofline(
        accelerator=load_hardware("h100-sxm"), target=target, drafter=drafter_of(target, method="eagle3")
    )
    table = find_crossovers(ConstantAcceptance(0.56), 3, source=source)
    row: Any = next(table.rows())
    assert row["acceptance_length"] == pytest.approx(2.05, abs=0.01)
    assert row["speedup"] < 1
    assert row["wins"] == "within"
    ((first, last),) = row["winning_batches"]
    length = row["acceptance_length"]
    batches = np.arange(1, 4097)
    gains = length / np.broadcast_to(source.step_cost(3, batches, 0).in_plain_steps, batches.shape)
    assert first <= int(batches[gains.argmax()]) <= last
    np.testing.assert_array_equal(batches[gains > 1], np.arange(first, last + 1))


def test_set_ups_that_share_a_step_share_its_curve() -> None:
    """Two hundred laws cost one scan of the step, and a second look at the table costs none."""
    calls: list[int] = []

    class Counted(Additive):
        def step_cost(self, k: npt.ArrayLike, batch: npt.ArrayLike, *args: Any, **options: Any) -> StepCost:
            calls.append(int(np.size(batch)))
            return super().step_cost(k, batch, *args, **options)

    seen: list[tuple[int, int]] = []
    table = find_crossovers(
        ConstantAcceptance(np.linspace(0.3, 0.9, 200)),
        4,
        source=Counted(cost=LINEAR, name="a test"),
        max_batch=5000,
        progress=lambda done, total: seen.append((done, total)),
    )
    rows = list(table.rows())
    assert calls.count(5000) == 1
    assert seen == [(done, 200) for done in range(1, 201)]
    before = len(calls)
    assert list(table.rows()) == rows
    assert table.verdict
    assert calls.count(5000) == 1
    assert len(calls) - before < 10


def test_a_grid_holds_what_each_set_up_gives_alone() -> None:
    laws: list[AcceptanceLaw] = [ConstantAcceptance(0.6), best_tree((0.6, 0.2), 8, 4)]
    source, axes = Ranged(cost=LINEAR, name="a test"), ((2, 4), (0.0, 500.0, 2000.0))
    grid = list(find_crossovers(laws, axes[0], source=source, context=axes[1], max_batch=300).rows())
    alone = [
        next(find_crossovers(law, k, source=source, context=context, max_batch=300).rows())
        for law in laws
        for k in axes[0]
        for context in axes[1]
    ]
    assert grid == alone
    assert len({str(row["winning_batches"]) for row in grid}) > 6


def test_a_table_of_several_pieces_counts_on_and_has_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specmath.crossovers.PIECE_ROWS", 3)
    seen: list[int] = []
    source = Additive(cost=LINEAR, name="a test")
    table = find_crossovers(
        ConstantAcceptance(np.linspace(0.3, 0.9, 4)),
        [2, 4],
        source=source,
        max_batch=50,
        progress=lambda done, total: seen.append(done),
    )
    rows = list(table.rows())
    assert seen == list(range(1, 9))
    assert table.verdict == ""
    monkeypatch.undo()
    whole = find_crossovers(ConstantAcceptance(np.linspace(0.3, 0.9, 4)), [2, 4], source=source, max_batch=50)
    assert rows == list(whole.rows())
    assert len({row["critical_context"] for row in rows}) == 8


@pytest.mark.parametrize("options", [{"k": 0}, {"batch": 0}, {"max_batch": 0}, {"context": 4096}])
def test_what_is_wrong_is_refused_by_name(options: dict[str, Any]) -> None:
    arguments = {"k": 4} | options
    k = arguments.pop("k")
    name = next(iter(options))
    with pytest.raises(InputError, match=f"^{name}: "):
        list(find_crossovers(ConstantAcceptance(0.7), k, source=PAIR[0], **arguments).rows())
