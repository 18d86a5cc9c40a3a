"""Flip points: each is evaluated on both sides by another route than the one that found it."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from specmath.acceptance import BetaAcceptance, ConstantAcceptance, PositionAcceptance
from specmath.additive import AdditiveCost, additive_breakeven
from specmath.additive_source import Additive
from specmath.anchors import anchored
from specmath.breakevens import breakeven_alpha
from specmath.catalogue import load_hardware
from specmath.crossovers import find_crossovers
from specmath.drafters.draft_model import DraftModel
from specmath.drafters.early_exit import EarlyExit
from specmath.drafters.lookup import Lookup
from specmath.estimation import alpha_from_acceptance_length
from specmath.execution import Layout
from specmath.flip_inputs import flip_inputs
from specmath.flips import Flip, flip_lines, flip_points, nearest_flips, set_up_flips
from specmath.forecast import forecast_speedup
from specmath.laws import AcceptanceLaw
from specmath.measurements import Measurement
from specmath.mixtures import ContextAcceptance, LookupAcceptance
from specmath.model import ModelShape
from specmath.model_catalogue import load_model
from specmath.model_counts import model_from_counts
from specmath.profile_catalogue import load_profile
from specmath.profiled_source import Profiled, forecast_cases
from specmath.roofline_source import Roofline
from specmath.sources import BatchSource
from specmath.tables import write

H100 = load_hardware("h100-sxm")
DENSE = Roofline(
    accelerator=H100, target=load_model("qwen3-32b"), drafter=DraftModel(load_model("qwen3-0.6b"))
)
SPARSE = Roofline(
    accelerator=H100, target=load_model("qwen3-30b-a3b"), drafter=DraftModel(load_model("qwen3-0.6b"))
)
SPREAD = Roofline(
    accelerator=H100,
    target=load_model("llama-3.1-70b"),
    drafter=DraftModel(load_model("llama-3.2-1b")),
    layout=Layout(tp=4),
)
COST = AdditiveCost(
    weights_s=8.0,
    kv_s_per_token=0.001,
    compute_s_per_token=0.5,
    kv_reread=0.0,
    draft_fixed_s=1.0,
    draft_s_per_sequence=0.25,
    draft_kv_s_per_token=0.0001,
    overhead_s=0.5,
    plain_overhead_s=0.2,
)
LINEAR = Additive(cost=COST, name="a test")
EPSILON = 1e-7


def speedup(law: AcceptanceLaw, k: int, source: BatchSource, batch: int, context: float) -> float:
    table = forecast_speedup(law, k, batch, cases=[source], context=context)
    return float(str(next(table.rows())["speedup"]))


def by_name(flips: list[Flip]) -> dict[str, Flip]:
    return {flip.input: flip for flip in flips}


def widened(model: ModelShape, factor: float) -> ModelShape:
    return replace(
        model,
        weights=tuple(replace(one, bytes_per_param=one.bytes_per_param * factor) for one in model.weights),
        experts=tuple(replace(one, bytes_per_param=one.bytes_per_param * factor) for one in model.experts),
    )


def moved_speedup(
    flip: Flip, x: float, alpha: float, k: int, source: Any, batch: int, context: float
) -> float:
    """S with one input moved, written out anew for each input."""
    law = ConstantAcceptance(alpha)
    length = float(np.asarray(law.acceptance_length(k)))
    cost = source.step_cost(k, batch, context)
    c, v, o = float(cost.draft_cost), float(cost.verify_cost), float(cost.overhead)
    factor = x / flip.value if flip.value else math.nan

    def on_part(**changes: Any) -> float:
        part = replace(source.accelerator, measured=(), **changes)
        return speedup(law, k, replace(source, accelerator=part), batch, context)

    moves: dict[str, Callable[[], float]] = {
        "alpha": lambda: speedup(ConstantAcceptance(x), k, source, batch, context),
        "acceptance_length": lambda: x / (v + k * c + o),
        "draft_cost": lambda: length / (v + k * x + o),
        "verify_cost": lambda: length / (x + k * c + o),
        "overhead": lambda: length / (v + k * c + x),
        "batch": lambda: speedup(law, k, source, int(x), context),
        "k": lambda: speedup(law, int(x), source, batch, context),
        "context": lambda: speedup(law, k, source, batch, x),
        "memory_bytes_per_s": lambda: on_part(memory_bytes_per_s=x),
        "peak_flops_per_s": lambda: on_part(
            peak_flops_per_s={
                name: rate * factor for name, rate in source.accelerator.peak_flops_per_s.items()
            }
        ),
        "link_bytes_per_s": lambda: speedup(law, k, replace(source, link_bytes_per_s=x), batch, context),
        "target_bytes_per_param": lambda: speedup(
            law, k, replace(source, target=widened(source.target, factor)), batch, context
        ),
        "draft_bytes_per_param": lambda: speedup(
            law,
            k,
            replace(source, drafter=DraftModel(widened(source.drafter.model, factor))),
            batch,
            context,
        ),
    }
    return moves[flip.input]()


def require_true_flips(alpha: float, k: int, source: BatchSource, batch: int, context: float) -> None:
    """On the far side of each flip point the answer is another, on the near side it is the present one."""
    now = speedup(ConstantAcceptance(alpha), k, source, batch, context) > 1
    for flip in set_up_flips(ConstantAcceptance(alpha), k, source, batch, context, 512):
        for point, inwards in ((flip.below, 1), (flip.above, -1)):
            if point is None:
                continue
            assert (point < flip.value) if inwards == 1 else (point > flip.value)
            near = point + inwards if flip.whole else point * (1 + inwards * EPSILON)
            there, here = (
                moved_speedup(flip, x, alpha, k, source, batch, context) > 1 for x in (point, near)
            )
            assert there is not now, flip
            assert here is now, flip


@settings(deadline=None, max_examples=25)
@given(
    st.floats(0.05, 0.98),
    st.integers(1, 8),
    st.sampled_from([DENSE, SPARSE, SPREAD, LINEAR]),
    st.integers(1, 300),
    st.floats(1, 200_000),
)
def test_every_flip_point_turns_the_answer(
    alpha: float, k: int, source: BatchSource, batch: int, context: float
) -> None:
    require_true_flips(alpha, k, source, batch, context)


@settings(deadline=None, max_examples=60)
@given(st.floats(0.05, 0.98), st.integers(1, 8), st.integers(1, 200), st.floats(0, 20_000))
def test_the_flips_of_linear_costs_are_their_closed_forms(
    alpha: float, k: int, batch: int, context: float
) -> None:
    law = ConstantAcceptance(alpha)
    flips = by_name(set_up_flips(law, k, LINEAR, batch, context))
    cost, length = LINEAR.step_cost(k, batch, context), float(np.asarray(law.acceptance_length(k)))
    c, v, o = float(cost.draft_cost), float(cost.verify_cost), float(cost.overhead)
    needed = float(np.asarray(breakeven_alpha(k, draft_cost=c, verify_cost=v, overhead=o)))
    require_at(flips["alpha"], needed, 0.0)
    require_at(flips["draft_cost"], (length - v - o) / k, 0.0)
    require_at(flips["overhead"], length - v - k * c, 0.0)
    require_at(flips["verify_cost"], length - k * c - o, 1.0)
    closed = additive_breakeven(COST, length, k, context)
    points = [point for point in (flips["batch"].below, flips["batch"].above) if point is not None]
    if closed.wins in ("always", "never"):
        assert points == []
    elif closed.breakeven_batch < 4000:
        (point,) = points
        assert abs(point - float(closed.breakeven_batch)) <= 1


def require_at(flip: Flip, point: float, low: float) -> None:
    """The one flip point is there, or there is none where it would lie below what the input can be."""
    if point > low:
        assert flip.nearest == pytest.approx(point, rel=1e-6)
    elif math.isnan(point) or point < low:
        assert not flip.turns


def test_every_crossing_of_the_context_is_told_on_its_side() -> None:
    """An acceptance that rises and falls again wins in between: there are two flips, and both are found."""
    contexts = (100.0, 1000.0, 100_000.0)
    law = ContextAcceptance(contexts, tuple(ConstantAcceptance(alpha) for alpha in (0.05, 0.9, 0.05)))
    flip = by_name(set_up_flips(law, 4, DENSE, 8, 1000.0))["context"]
    assert flip.below is not None
    assert flip.above is not None
    for point, inside in ((flip.below, 1.001), (flip.above, 0.999)):
        assert not speedup(law, 4, DENSE, 8, point) > 1
        assert speedup(law, 4, DENSE, 8, point * inside) > 1
    fine = np.geomspace(100, 100_000, 4001)
    lengths = np.asarray(law.at(fine).acceptance_length(4))
    winning = fine[lengths > DENSE.step_cost(4, 8, fine).in_plain_steps]
    assert winning.min() == pytest.approx(flip.below, rel=0.01)
    assert winning.max() == pytest.approx(flip.above, rel=0.01)


def test_acceptance_is_not_followed_beyond_where_it_was_measured() -> None:
    law = ContextAcceptance((1000.0, 2000.0), (ConstantAcceptance(0.9), ConstantAcceptance(0.5)))
    assert not by_name(set_up_flips(law, 4, DENSE, 8, 1500.0))["context"].turns
    assert not by_name(set_up_flips(law, 4, DENSE, 8, 3000.0))["context"].turns  # nothing is known there
    fading = ContextAcceptance((1000.0, 2000.0), (ConstantAcceptance(0.9), ConstantAcceptance(0.01)))
    assert not by_name(set_up_flips(fading, 4, DENSE, 8, 3000.0))["context"].turns
    ending = ContextAcceptance((100.0, 8000.0), (ConstantAcceptance(0.9), ConstantAcceptance(0.05)))
    above = by_name(set_up_flips(ending, 4, DENSE, 8, 1000.0))["context"].above
    assert above is not None
    assert 1000 < above < 8000


def test_the_batch_of_a_sparse_target_flips_on_both_sides() -> None:
    table = find_crossovers(ConstantAcceptance(0.7), 4, source=SPARSE, context=4000)
    intervals: Any = next(table.rows())["winning_batches"]
    (first, last), *rest = intervals
    assert not rest
    assert first > 1
    inside = by_name(set_up_flips(ConstantAcceptance(0.7), 4, SPARSE, (first + last) // 2, 4000.0))["batch"]
    assert (inside.below, inside.above) == (first - 1, last + 1)
    before = by_name(set_up_flips(ConstantAcceptance(0.7), 4, SPARSE, 1, 4000.0))["batch"]
    assert (before.below, before.above) == (None, first)


def test_a_lookup_draft_has_a_match_rate_and_no_draft_cost() -> None:
    law = LookupAcceptance(0.5, ConstantAcceptance(0.7))
    source = Roofline(accelerator=H100, target=load_model("qwen3-32b"), drafter=Lookup(0.5))
    flips = by_name(set_up_flips(law, 4, source, 256, 1000.0))
    assert "draft_cost" not in flips

    def moved(name: str, x: float) -> float:
        if name == "alpha":
            return speedup(replace(law, matched=ConstantAcceptance(x)), 4, source, 256, 1000.0)
        there = replace(source, drafter=Lookup(x))
        return speedup(replace(law, match_rate=x), 4, there, 256, 1000.0)

    for name, value in (("alpha", 0.7), ("match_rate", 0.5)):
        assert flips[name].value == value
        if (point := flips[name].nearest) is not None:
            assert (moved(name, point) > 1) is not (moved(name, value) > 1)
    assert flips["alpha"].turns


@pytest.mark.parametrize(
    ("law", "named"),
    [
        (ConstantAcceptance(0.7), True),
        (BetaAcceptance(5.6, 2.3), False),
        (PositionAcceptance((0.8, 0.7, 0.6, 0.5)), False),
    ],
    ids=["constant", "beta", "rates"],
)
def test_laws_of_several_numbers_are_moved_by_their_acceptance_length(
    law: AcceptanceLaw, named: bool
) -> None:
    flips = set_up_flips(law, 4, DENSE, 64, 1000.0)
    assert ("alpha" in by_name(flips)) is named
    length = by_name(flips)["acceptance_length"]
    needed = float(DENSE.step_cost(4, 64, 1000.0).in_plain_steps)
    assert length.nearest == pytest.approx(needed, rel=1e-9)
    assert ("acceptance length" in nearest_flips(flips, 20)) is not named


def test_rates_know_no_longer_draft_than_was_measured() -> None:
    short, long = (
        by_name(set_up_flips(law, 2, DENSE, 256, 1000.0))["k"]
        for law in (PositionAcceptance((0.9, 0.1, 0.1)), BetaAcceptance(9.0, 1.0))
    )
    assert short.above is None or short.above <= 3
    assert long.above is None or long.above > 3


def test_the_nearest_come_first_and_the_idle_last() -> None:
    flips = set_up_flips(ConstantAcceptance(0.7), 4, DENSE, 64, 4000.0)
    distances = [flip.distance for flip in flips]
    assert distances == sorted(distances)
    assert [flip.turns for flip in flips] == sorted((flip.turns for flip in flips), reverse=True)
    assert not flips[-1].turns
    assert flips[-1].distance == math.inf


@pytest.mark.parametrize(
    ("flip", "nearest", "distance"),
    [
        (("verify_cost", 2.0, 1.0, 8.0), 1.0, math.log(2)),
        (("verify_cost", 2.0, 0.5, 6.0), 6.0, math.log(3)),
        (("context", 0.0, None, 99.0), 99.0, math.log(100)),
        (("overhead", 1.0, None, 5.0), 5.0, math.log(3)),
        (("draft_cost", 0.0, None, 1.0), 1.0, math.log(2)),
        (("alpha", 0.5, 0.0, None), 0.0, math.inf),
        (("alpha", 0.5, None, None), None, math.inf),
    ],
)
def test_distance_is_the_logarithm_of_the_change(
    flip: tuple[str, float, float | None, float | None], nearest: float | None, distance: float
) -> None:
    name, value, below, above = flip
    found = Flip(input=name, unit="", value=value, whole=False, below=below, above=above)
    assert found.nearest == nearest
    assert found.distance == pytest.approx(distance)


@pytest.mark.parametrize(
    ("flip", "text"),
    [
        (("alpha", "", 0.7, False, 0.25, None), "α < 0.25"),
        (("k", "", 4.0, True, 2.0, 9.0), "k ≤ 2 or k ≥ 9"),
        (("memory_bytes_per_s", "B/s", 3e12, False, 1.21e12, None), "memory bandwidth < 1.21 TB/s"),
        (("context", "", 4000.0, False, None, 12_345.6), "context > 12,346"),
        (("peak_flops_per_s", "FLOP/s", 1e15, False, None, None), "peak: nowhere"),
    ],
)
def test_a_flip_is_told_with_its_side_and_unit(
    flip: tuple[str, str, float, bool, float | None, float | None], text: str
) -> None:
    name, unit, value, whole, below, above = flip
    assert Flip(input=name, unit=unit, value=value, whole=whole, below=below, above=above).text == text


def test_the_short_list_names_no_input_twice() -> None:
    flips = set_up_flips(ConstantAcceptance(0.7), 4, DENSE, 64, 4000.0)
    told = nearest_flips(flips)
    assert told.count(",") == 2
    assert "acceptance length" not in told
    assert "overhead" not in told
    turning, idle = flip_lines(flips, 64)
    assert turning.startswith("the answer at batch 64 turns at α < 0.511; acceptance length < 1.97; ")
    assert idle.startswith("alone, these cannot turn it: ")
    assert turning.count("; ") + idle.count(", ") + 1 == len(flips)


def test_a_counts_only_pair_has_no_context_and_one_device_no_link() -> None:
    pair = Roofline(
        accelerator=H100, target=model_from_counts("70B"), drafter=DraftModel(model_from_counts("1B"))
    )
    names = by_name(set_up_flips(ConstantAcceptance(0.7), 4, pair, 8, 0.0))
    assert "context" not in names
    assert "link_bytes_per_s" not in names
    assert "link_bytes_per_s" in by_name(set_up_flips(ConstantAcceptance(0.7), 4, SPREAD, 8, 0.0))
    assert "memory_bytes_per_s" not in by_name(set_up_flips(ConstantAcceptance(0.7), 4, LINEAR, 8, 0.0))


def test_the_hardware_inside_a_measured_source_is_moved_and_the_correction_kept() -> None:
    pair = Measurement(k=4, batch=8, context=4000, acceptance_length=2.8, speedup=1.7)
    measured, law = anchored(DENSE, [pair]), ConstantAcceptance(0.7)
    flip = by_name(set_up_flips(law, 4, measured, 80, 4000.0))["memory_bytes_per_s"]
    assert flip.below is not None
    part = replace(H100, measured=(), memory_bytes_per_s=flip.below)
    moved = replace(measured, source=replace(DENSE, accelerator=part))
    assert not speedup(law, 4, measured, 80, 4000.0) > 1
    assert speedup(law, 4, moved, 80, 4000.0) > 1


def test_the_width_of_a_target_that_drafts_for_itself_moves_in_both_roles() -> None:
    source = Roofline(
        accelerator=H100, target=load_model("llama-3.1-8b"), drafter=EarlyExit(load_model("llama-3.1-8b"), 8)
    )
    law = ConstantAcceptance(0.7)
    flip = by_name(set_up_flips(law, 3, source, 64, 1000.0))["target_bytes_per_param"]
    now = speedup(law, 3, source, 64, 1000.0) > 1
    assert flip.nearest is not None
    target = widened(source.target, flip.nearest / flip.value)
    moved = replace(source, target=target, drafter=EarlyExit(target, 8))
    assert (speedup(law, 3, moved, 64, 1000.0) > 1) is not now


def test_a_slower_link_has_the_latency_of_a_bus() -> None:
    """A profile's collectives take 3.75 times as long from a link below 100 GB/s on, as --link has it."""
    profile, target, draft = load_profile("typical"), load_model("llama-3.1-70b"), load_model("llama-3.2-1b")

    def forecast(link: float | None) -> Profiled:
        drafter = DraftModel(draft)
        return forecast_cases(profile, H100, target, drafter, layout=Layout(tp=4), link_bytes_per_s=link)[0]

    slow, kept = 60e9, forecast(None)
    bus = float(forecast(slow).step_cost(3, 16, 1000.0).in_plain_steps)
    wrong = replace(kept, typical=replace(kept.typical, link_bytes_per_s=slow))
    fabric = float(wrong.step_cost(3, 16, 1000.0).in_plain_steps)
    # The acceptance lies between what the step takes with one latency and with the other.
    law = ConstantAcceptance(float(np.asarray(alpha_from_acceptance_length((bus + fabric) / 2, 3))))
    moved = {one.name: one for one in flip_inputs(law, 3, kept, 16, 1000.0, 512)}["link_bytes_per_s"]
    assert bool(moved.wins(np.array([slow]))[0]) is (bus < fabric)


def test_the_table_holds_every_set_up_with_its_ranks() -> None:
    seen: list[tuple[int, int]] = []
    table = flip_points(
        ConstantAcceptance(np.array([0.6, 0.8])),
        [2, 4],
        source=LINEAR,
        batch=8,
        context=[0.0, 500.0],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(place, 8) for place in range(1, 9)]
    assert len(table.flips) == 8
    rows = list(table.rows())
    assert len(rows) == len(table) == sum(map(len, table.flips))
    assert [(row["alpha"], row["k"], row["context"]) for row in rows if row["rank"] == 1] == [
        (alpha, k, context) for alpha in (0.6, 0.8) for k in (2, 4) for context in (0.0, 500.0)
    ]
    row: Any
    for row in rows:
        expected = speedup(ConstantAcceptance(row["alpha"]), row["k"], LINEAR, 8, row["context"])
        assert row["speedup"] == pytest.approx(expected)
        ends = [row["flips_below"], row["flips_above"]]
        assert (row["rank"] is None) is (row["turns_at"] is None) is (ends == [None, None])
        if row["change"] is not None:
            assert row["change"] * row["value"] in [pytest.approx(end) for end in ends]


def test_a_reader_gets_text_and_a_program_numbers() -> None:
    table = flip_points(ConstantAcceptance(0.7), 4, source=LINEAR, batch=8)
    page, data = io.StringIO(), io.StringIO()
    write(table, page, "md")
    write(table, data, "csv")
    assert "answer turns at" in page.getvalue()
    assert not any(title in page.getvalue() for title in ("flips below", "flips above", "| value", "| unit"))
    assert set(table.data_keys) < set(data.getvalue().splitlines()[0].split(","))


def test_the_verdict_names_the_nearest_three() -> None:
    table = flip_points(ConstantAcceptance(0.7), 4, source=DENSE, batch=64, context=4000)
    assert table.verdict.startswith("FASTER at batch 64: ")
    assert table.verdict.endswith(nearest_flips(table.flips[0]))
    assert flip_points(ConstantAcceptance(0.01), 8, source=DENSE, batch=64).verdict.startswith("SLOWER")
    near = flip_points(ConstantAcceptance(0.7), 4, source=DENSE, batch=150, context=4000)
    assert near.verdict.startswith("TOO CLOSE TO CALL at batch 150: 1.0")
    crossover = find_crossovers(ConstantAcceptance(0.7), 4, source=DENSE, batch=64, context=4000)
    assert crossover.verdict.endswith(f"the answer at batch 64 turns at {nearest_flips(table.flips[0])}")
    assert crossover.derivation[-2:] == tuple(flip_lines(table.flips[0], 64))
