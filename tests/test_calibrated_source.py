"""A calibrated machine as a source: steps by exact arithmetic, tables, ranges, limits, and every question."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from specmath.acceptance import ConstantAcceptance, PositionAcceptance
from specmath.additive import AdditiveCost
from specmath.additive_source import Additive
from specmath.anchor_distance import DRIFT
from specmath.anchors import anchored
from specmath.calibrated_acceptance import acceptance_taken
from specmath.calibrated_source import Calibrated
from specmath.calibration_files import read_calibration
from specmath.calibration_limits import log_half_width
from specmath.calibrations import AcceptanceRow, Calibration, Cell, PartFit, Place, ProofRow
from specmath.crossovers import find_crossovers
from specmath.errors import InputError
from specmath.flips import flip_points
from specmath.forecast import forecast_speedup
from specmath.measurements import Measurement
from specmath.mixtures import LookupAcceptance
from specmath.pass_laws import DraftLaw, HostLaw, PassLaw
from specmath.results import Advice
from specmath.schedule import plan_schedule
from specmath.verdicts import REPEAT_NOISE

TOY = Path(__file__).with_name("data") / "calibrations" / "toy.yaml"
BATCHES, WIDTHS, CONTEXTS = (1, 8, 64), (1, 2, 5, 9), (512, 4096)
LAW = PassLaw(weights_s=8.0, compute_s_per_token=0.25, kv_s_per_token=2.0**-10)
DRAFT = DraftLaw(fixed_s=1.0, s_per_sequence=0.125)


def cell(part: str, batch: int, width: int, context: int, seconds: float, spread: float = 1.0) -> Cell:
    place = Place(part=part, batch=batch, width=width, context=context)
    return Cell(place=place, seconds=seconds, low_s=seconds / spread, high_s=seconds * spread, repeats=9)


def target_cells(miss: dict[tuple[int, int, int], float], spread: float = 1.0) -> tuple[Cell, ...]:
    """The law at every place of the grid, times what it misses there."""
    return tuple(
        cell("target", b, w, c, float(np.asarray(LAW.pass_s(b, w, c))) * miss.get((b, w, c), 1.0), spread)
        for c in CONTEXTS
        for b in BATCHES
        for w in WIDTHS
    )


def calibration(miss: dict[tuple[int, int, int], float] | None = None, **changes: Any) -> Calibration:
    made = Calibration(
        target="llama",
        draft="little",
        method="draft-model",
        regime="eager",
        dtype="bfloat16",
        machine={"device": "a machine"},
        cells=target_cells(miss or {}),
        target_law=LAW,
        draft_law=DRAFT,
        plain_host=HostLaw(fixed_s=0.5),
        step_host=HostLaw(fixed_s=1.0, s_per_token=0.0625),
    )
    return replace(made, **changes)


def source(miss: dict[tuple[int, int, int], float] | None = None, **changes: Any) -> Calibrated:
    return Calibrated(calibration=calibration(miss, **changes))


def test_a_step_taken_apart_by_hand() -> None:
    """k = 4, B = 8, C = 512: the cache takes 4, the plain pass 8 + 2 + 4 = 14, the plain step 14.5.

    Verification 8 + 10 + 4 = 22; a draft pass 1 + 1 = 2; the host 1 + 0.0625·40 = 3.5.
    """
    step = source().step_cost(4, 8, 512)
    assert float(step.plain_s) == pytest.approx(14.5, rel=1e-14)
    assert float(step.verify_cost) == pytest.approx(22 / 14.5, rel=1e-14)
    assert float(step.draft_cost) == pytest.approx(2 / 14.5, rel=1e-14)
    assert float(step.draft_passes) == 4
    assert float(step.overhead) == pytest.approx(3.5 / 14.5, rel=1e-14)
    assert float(step.in_plain_steps) == pytest.approx((22 + 8 + 3.5) / 14.5, rel=1e-14)


def test_a_chain_is_spread_over_its_passes_with_its_round() -> None:
    """2·(1 + 1) + 3 = 7 for two passes; nothing drafted is a plain step."""
    step = source(draft_law=replace(DRAFT, round_s=3.0)).step_cost([0, 2], 8, 512)
    assert (step.draft_cost * step.plain_s)[1] == pytest.approx(3.5, rel=1e-14)
    assert step.in_plain_steps[0] == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_the_table_is_exact_at_every_cell(batch: int, width: int, context: int) -> None:
    rng = np.random.default_rng(1)
    miss = {(b, w, c): float(rng.uniform(0.5, 2)) for b in BATCHES for w in WIDTHS for c in CONTEXTS}
    made = source(miss)
    measured = {
        (one.place.batch, one.place.width, one.place.context): one.seconds for one in made.calibration.cells
    }
    step = made.step_cost(width - 1, batch, context)
    verify_s = float(step.verify_cost * step.plain_s)
    assert verify_s == pytest.approx(measured[batch, width, context], rel=1e-13)
    assert float(step.plain_s) == pytest.approx(measured[batch, 1, context] + 0.5, rel=1e-13)


@pytest.mark.parametrize(
    ("batch", "width", "context", "share"),
    [
        pytest.param(8, 5, 512, 1.0, id="the cell"),
        pytest.param(8, 3, 512, math.log(3 / 2) / math.log(5 / 2), id="width, from 2 on"),
        pytest.param(8, 6, 512, math.log(9 / 6) / math.log(9 / 5), id="width, up to 9"),
        pytest.param(16, 5, 512, 2 / 3, id="batch: a third of the doublings from 8 to 64"),
        pytest.param(8, 5, 2304, 1 / 2, id="context: half way"),
        pytest.param(16, 5, 2304, 1 / 3, id="batch and context"),
        pytest.param(8, 5, 0, 1.0, id="context below: the nearest"),
        pytest.param(1, 5, 512, 0.0, id="another batch"),
        pytest.param(1024, 5, 512, 0.0, id="beyond: the nearest, which the law met"),
        pytest.param(8, 64, 512, 0.0, id="wider than measured"),
    ],
)
def test_between_cells_the_miss_is_joined_straight_in_its_logarithm(
    batch: int, width: int, context: int, share: float
) -> None:
    """The law misses one cell by a factor of 2."""
    step = source({(8, 5, 512): 2.0}).step_cost(width - 1, batch, context)
    law_s = float(np.asarray(LAW.pass_s(batch, width, context)))
    assert float(step.verify_cost * step.plain_s) == pytest.approx(law_s * 2.0**share, rel=1e-12)


def test_draft_and_host_have_tables_too() -> None:
    cells = (
        *target_cells({}),
        *(cell("draft", 8, k, 512, k * 3.0) for k in (1, 4)),
        cell("plain-host", 8, 1, 512, 2.0),
        cell("step-host", 8, 5, 512, 5.0),
    )
    step = source(cells=cells).step_cost(4, 8, 512)
    parts = [float(part * step.plain_s) for part in (step.draft_cost, step.verify_cost, step.overhead)]
    assert float(step.plain_s) == pytest.approx(16.0, rel=1e-13)
    assert parts == pytest.approx([3.0, 22.0, 5.0], rel=1e-13)


def test_a_host_that_takes_no_time_by_its_law_is_left_at_it() -> None:
    free = source(
        plain_host=HostLaw(), step_host=HostLaw(), cells=(*target_cells({}), cell("plain-host", 8, 1, 0, 9.0))
    )
    step = free.step_cost(4, 8, 512)
    assert float(step.plain_s) == pytest.approx(14.0, rel=1e-14)
    assert float(step.overhead) == 0.0


def test_the_fixture_is_what_its_laws_say() -> None:
    """At batch 8, width 5, context 512 the cell is 1.1 times 10 + 2 + 0.04096 ms."""
    record = read_calibration(TOY)
    assert isinstance(record, Calibration)
    step = Calibrated(calibration=record).step_cost(4, 8, 512)
    assert float(step.verify_cost * step.plain_s) == pytest.approx(1.1 * 12.04096e-3, rel=1e-9)
    assert float(step.plain_s) == pytest.approx(10.94096e-3, rel=1e-9)


def test_arrays_broadcast_to_the_cells_one_by_one() -> None:
    made = source({(8, 5, 512): 1.5, (64, 9, 4096): 0.7})
    k, batch, context = np.array([0, 3, 8]), np.array([[1], [9], [200]]), np.array([[[0.0]], [[3000.0]]])
    grid = made.step_cost(k, batch, context).in_plain_steps
    low, high = made.step_bounds(k, batch, context)
    assert grid.shape == low.shape == high.shape == (2, 3, 3)
    for c, b, d in np.ndindex(grid.shape):
        alone = (int(k[d]), int(batch[b, 0]), float(context[c, 0, 0]))
        assert grid[c, b, d] == pytest.approx(float(made.step_cost(*alone).in_plain_steps), rel=1e-14)
        assert [low[c, b, d], high[c, b, d]] == pytest.approx(
            [float(end) for end in made.step_bounds(*alone)]
        )


@given(st.integers(0, 12), st.integers(1, 4096), st.integers(0, 100_000))
def test_without_misses_it_is_the_sum_of_straight_lines(k: int, batch: int, context: int) -> None:
    cost = AdditiveCost(
        weights_s=8.0,
        kv_s_per_token=2.0**-10,
        compute_s_per_token=0.25,
        kv_reread=0.0,
        draft_fixed_s=1.0,
        draft_s_per_sequence=0.125,
        draft_kv_s_per_token=0.0,
        overhead_s=1.0,
        plain_overhead_s=1.0,
    )
    host = HostLaw(fixed_s=1.0)
    made = source(plain_host=host, step_host=host)
    expected = Additive(cost=cost, name="by hand")
    own, other = (one.step_cost(k, batch, context) for one in (made, expected))
    assert float(own.in_plain_steps) == pytest.approx(float(other.in_plain_steps), rel=1e-12)
    assert float(own.plain_s) == pytest.approx(float(other.plain_s), rel=1e-12)
    critical = [float(one.critical_context(2.5, 4)) for one in (made, expected)]
    assert critical[0] == critical[1] == pytest.approx((0.25 * 2.5 + 0.5) / (1.5 / 1024), rel=1e-12)


def test_the_ridge_is_where_computing_takes_as_long_as_the_weights() -> None:
    assert source().ridge_tokens == 32.0
    assert math.isnan(source(target_law=replace(LAW, compute_s_per_token=0.0)).ridge_tokens)


@pytest.mark.parametrize(
    "bent",
    [
        {"target_law": replace(LAW, sharpness=4.0)},
        {"target_law": replace(LAW, experts_s=1.0, expert_counts=(8, 2))},
        {"step_host": HostLaw(s_per_sequence=1.0)},
        {"plain_host": HostLaw(s_per_token=1.0)},
    ],
)
def test_a_law_that_bends_or_a_host_that_grows_has_no_closed_form(bent: dict[str, Any]) -> None:
    straight: dict[str, Any] = {"plain_host": HostLaw(), "step_host": HostLaw(fixed_s=1.0)}
    assert np.isfinite(source(**straight).critical_context([2.0, 3.0], 4)).all()
    found = source(**(straight | bent)).critical_context([2.0, 3.0], 4)
    assert found.shape == (2,)
    assert np.isnan(found).all()


PROOF = ProofRow(
    batch=8,
    k=4,
    context=512,
    acceptance_length=3.0,
    plain_s=14.0,
    step_s=30.0,
    predicted_plain_s=14.0,
    predicted_step_s=30.0 / 1.1,  # a speed-up 10 % too high
)
FIT = PartFit(
    part="target", constants=(), errors=(0.0,) * 5, left_out_errors=(0.05, -0.02, 0.05, math.nan, 0.05)
)


@pytest.mark.parametrize(
    ("changes", "half_width"),
    [
        pytest.param({}, math.log1p(REPEAT_NOISE), id="nothing known: repeat noise"),
        pytest.param({"fits": (FIT,)}, math.hypot(math.log1p(REPEAT_NOISE), math.log(1.05)), id="left out"),
        pytest.param({"proof": (PROOF,)}, math.log(1.1), id="a proof stands above repeats and fits"),
        pytest.param({"proof": (PROOF,), "fits": (FIT,)}, math.log(1.1), id="both"),
        pytest.param(
            {"proof": (PROOF,), "cells": target_cells({}, spread=1.02)},
            math.hypot(math.log(1.1), math.log(1.02)),
            id="quartiles",
        ),
    ],
)  # fmt: skip
def test_the_range_is_the_error_of_the_calibration(changes: dict[str, Any], half_width: float) -> None:
    made = source(**changes)
    assert log_half_width(made.calibration) == pytest.approx(half_width, rel=1e-12)
    steps = float(made.step_cost(4, 8, 512).in_plain_steps)
    low, high = (float(end) for end in made.step_bounds(4, 8, 512))
    assert [math.log(steps / low), math.log(high / steps)] == pytest.approx([half_width] * 2, rel=1e-9)
    assert f"±{math.expm1(half_width):.1%}" in " ".join(made.assumptions)


@pytest.mark.parametrize(
    ("k", "batch", "context", "doublings"),
    [
        pytest.param(4, 8, 512, 0, id="a cell"),
        pytest.param(3, 20, 1000, 0, id="between cells"),
        pytest.param(4, 256, 512, 2, id="batch 4 times the largest"),
        pytest.param(17, 8, 512, 1, id="18 tokens of each, 9 measured"),
        pytest.param(4, 8, 9216, 0.25, id="context: a doubling beyond the grain counts a quarter"),
        pytest.param(4, 256, 9216, 2.25, id="two axes"),
        pytest.param(0, 512, 9216, None, id="a plain step is a plain step"),
    ],
)
def test_the_range_widens_with_the_doublings_outside(
    k: int, batch: int, context: int, doublings: float | None
) -> None:
    made = source(proof=(PROOF,))
    low, high = (float(end) for end in made.step_bounds(k, batch, context))
    width = 0.0 if doublings is None else math.sqrt(math.log(1.1) ** 2 + DRIFT**2 * doublings)
    assert math.log(high / low) / 2 == pytest.approx(width, rel=1e-9, abs=1e-12)


def test_a_corner_that_memory_did_not_hold_is_outside() -> None:
    cells = tuple(one for one in target_cells({}) if (one.place.batch, one.place.context) != (64, 4096))
    made = source(cells=cells, proof=(PROOF,)).asked([512, 4096])
    low, high = (float(end) for end in made.step_bounds(4, 64, 4096))
    assert math.log(high / low) / 2 == pytest.approx(
        math.hypot(math.log(1.1), DRIFT * math.sqrt(3)), rel=1e-9
    )
    (told,) = made.warnings_at(4, 64, 64)
    assert "batch 64 was not measured at context 4,096, the largest there is 8" in told.text
    assert made.warnings_at(4, 8, 8) == ()


def test_a_draft_that_was_timed_in_short_chains_widens_the_range() -> None:
    cells = (
        *target_cells({}),
        *(cell("draft", b, k, c, 2.0 * k) for b in BATCHES for k in (1, 2) for c in CONTEXTS),
    )
    low, high = (float(end) for end in source(cells=cells, proof=(PROOF,)).step_bounds(8, 8, 512))
    assert math.log(high / low) / 2 == pytest.approx(
        math.hypot(math.log(1.1), DRIFT * math.sqrt(2)), rel=1e-9
    )


@pytest.mark.parametrize(
    ("k", "batch", "told", "remedy"),
    [
        (4, 64, [], ""),
        (4, 512, ["batch 512 is outside the calibration (1 to 64), 8 times"], "--batch 1,8,64,512"),
        (17, 8, ["tokens of a pass 18 is outside the calibration (1 to 9), 2 times"], "--k 1,4,8,17"),
    ],
)  # fmt: skip
def test_a_reader_is_warned_outside(k: int, batch: int, told: list[str], remedy: str) -> None:
    found = source().warnings_at(k, [1, batch], batch)
    assert [one.code for one in found] == ["outside-the-calibration"] * len(told)
    assert all(one.text.startswith(text) for one, text in zip(found, told, strict=True))
    assert all(
        "specmath calibrate --target llama --draft little --regime eager" in one.remedy for one in found
    )
    assert all(one.remedy.endswith(remedy) for one in found)


def test_contexts_are_warned_of_once_they_were_asked_for() -> None:
    made = source(warnings=(Advice(code="loaded", text="measured under load 3.1", remedy="quiet"),))
    assert [one.code for one in made.warnings] == ["loaded"]
    assert [one.code for one in made.asked(512).warnings] == ["loaded"]
    below, above = made.asked([0, 8192]).warnings[1:]
    assert "context 0 is outside the calibration (512 to 4,096): " in below.text
    assert below.remedy.startswith("give the tokens of a sequence as --context 512")
    assert "context 8,192 is outside the calibration (512 to 4,096), 2 times the largest" in above.text


def test_a_pass_beyond_the_captured_graphs_is_warned_of() -> None:
    made = source(last_captured_tokens=320)
    assert made.warnings_at(4, 64, 64) == ()  # 64·5 = 320
    (told,) = made.warnings_at(5, 64, 64)
    assert told.code == "beyond-the-captured-graphs"
    assert "384 tokens" in told.text


def test_memory_is_known_where_something_did_not_fit() -> None:
    """Held: 64·(4096 + 9) = 262,720 tokens; at context 508, k 4 that is 512 sequences and a bit."""
    skipped = ((Place(part="target", batch=256, width=1, context=4096), "out of memory: 9 GB"),)
    plain, speculative = source(skipped=skipped).max_batches([0, 4], [[508], [1000]])
    assert plain.tolist() == [[262_720 // 509] * 2, [262_720 // 1001] * 2]
    assert speculative.tolist() == [[262_720 // 509, 262_720 // 513], [262_720 // 1001, 262_720 // 1005]]
    slow = ((skipped[0][0], "the time was up"),)
    for made in (source(), source(skipped=slow)):
        assert all(np.isnan(limit).all() for limit in made.max_batches(4, 512))


def lookup(match_rate: float) -> Calibrated:
    return source({(1, 5, 512): 2.0}, method="ngram", draft="ngram", match_rate=match_rate)


def test_a_lookup_shares_its_pass_in_a_batch_and_matches_or_not_alone() -> None:
    """h = 1/2, k = 4: in a batch 1 + 2 tokens of each, alone half of steps with 5 and half with 1."""
    step = lookup(0.5).step_cost(4, [1, 8], 512)
    verify_s = step.verify_cost * step.plain_s
    alone = (2 * (8 + 5 * 0.25 + 0.5) + 8 + 0.25 + 0.5) / 2  # the law misses the wide pass by a factor of 2
    assert verify_s.tolist() == pytest.approx([alone, 8 + 24 * 0.25 + 4], rel=1e-13)
    assert lookup(0.5).match_rate == 0.5
    assert source(match_rate=0.5).match_rate == 1.0  # a draft model drafts in every step


def test_a_lookup_takes_the_law_of_its_match_rate() -> None:
    law = LookupAcceptance(0.5, ConstantAcceptance(0.8))
    (row,) = forecast_speedup(law, 4, 8, cases=[lookup(0.5)], context=512).rows()
    assert row["acceptance_length"] == pytest.approx(1 + 0.5 * sum(0.8**i for i in range(1, 5)))
    with pytest.raises(InputError, match="match_rate"):
        forecast_speedup(ConstantAcceptance(0.8), 4, 8, cases=[lookup(0.5)])


def test_a_tree_is_priced_by_its_width_and_its_passes() -> None:
    step = source().step_cost(4, 8, 512, width=9, passes=2)
    assert float(step.verify_cost * step.plain_s) == pytest.approx(8 + 18 + 4, rel=1e-13)
    assert float(step.draft_cost * step.draft_passes * step.plain_s) == pytest.approx(4, rel=1e-13)


def test_every_question_can_be_asked_of_it() -> None:
    record = read_calibration(TOY)
    assert isinstance(record, Calibration)
    made = Calibrated(calibration=record, name="toy.yaml")
    law = ConstantAcceptance(0.7)
    crossover = next(find_crossovers(law, 4, source=made, context=512).rows())
    assert (crossover["case"], crossover["wins"]) == ("calibrated", "below")
    needed = float(made.step_cost(4, 1, 512).in_plain_steps)
    assert crossover["breakeven_acceptance_length"] == pytest.approx(needed)
    moved = {row["input"] for row in flip_points(law, 4, source=made, context=512).rows()}
    ratios = {"draft_cost", "verify_cost", "overhead"}
    assert moved == {"alpha", "acceptance_length", "batch", "k", "context"} | ratios
    plan = plan_schedule(law, source=made, batches=[1, 8, 64], context=[512])
    assert {row["case"] for row in plan.rows()} == {"calibrated"}


def test_a_measured_pair_anchors_it() -> None:
    made = source()
    pair = Measurement(k=4, batch=8, context=512, acceptance_length=3.0, speedup=1.0)
    step = anchored(made, [pair]).step_cost(4, 8, 512)
    assert float(step.in_plain_steps) == pytest.approx(3.0, rel=1e-12)


def test_what_it_says_of_itself() -> None:
    made = Calibrated(
        calibration=calibration(created="2026-11-29T10:00:00Z"), name="h100.yaml", taken=("so",)
    )
    assert made.basis == "by the calibration h100.yaml"
    assert made.inputs["hardware"] == "a machine"
    assert replace(made, hardware="h100-sxm").inputs["hardware"] == "h100-sxm"
    first, second, *_ = made.assumptions
    assert first == (
        "calibrated: 24 cells of llama and little timed on 2026-11-29 on a machine, eager, bfloat16, static "
        "cache: batch 1 to 64, tokens of each 1 to 9, context 512 to 4096"
    )
    assert second == "so"
    assert "not timed apart, by the law alone: draft, plain-host, step-host" in made.assumptions
    lines = made.derivation(4, 8, 512, width=5, passes=4)
    assert "22 s, timed" in lines[1]
    assert made.derivation(3, 8, 512, width=4, passes=3)[1].endswith("between timed cells")
    assert made.derivation(4, 128, 512, width=5, passes=4)[1].endswith("outside the timed cells")
    with pytest.raises(InputError, match="cells: hold no pass of the target"):
        source(cells=())


def row(**changes: Any) -> AcceptanceRow:
    made = AcceptanceRow(
        rule="rejection sampling", temperature=1.0, top_p=1.0, domain="all", positions=900, requests=9
    )
    return replace(made, **changes)


RUN_2 = row(k=2, drafts=100, accepted_at=(90, 80))
RUN_4 = row(k=4, drafts=100, accepted_at=(80, 60, 45, 30))
LOGITS = row(alpha=0.7, alpha_low=0.65, alpha_high=0.75)


@pytest.mark.parametrize(
    ("rows", "wanted", "survival", "alpha"),
    [
        pytest.param([LOGITS, RUN_2, RUN_4], {}, (0.8, 0.6, 0.45, 0.3), None, id="the largest k"),
        pytest.param(
            [LOGITS, row(k=1, drafts=900, accepted_at=(900,), domain="code")], {}, (1.0,), None,
            id="a run first",
        ),
        pytest.param([LOGITS], {}, (), 0.7, id="logits alone"),
        pytest.param(
            [LOGITS, row(alpha=0.4, rule="arg-max match", lossless=False)], {}, (), 0.7, id="lossless"
        ),
        pytest.param(
            [LOGITS, RUN_4, row(alpha=0.4, rule="arg-max match", lossless=False)],
            {"rule": "argmax"}, (), 0.4, id="the rule that is named",
        ),
        pytest.param([row(alpha=0.1, domain="code"), LOGITS], {}, (), 0.7, id="all domains together"),
        pytest.param([row(alpha=0.1, domain="code"), LOGITS], {"domain": "code"}, (), 0.1, id="one domain"),
        pytest.param(
            [LOGITS, row(alpha=0.9, temperature=0.0)], {"temperature": 0.0}, (), 0.9, id="temperature"
        ),
        pytest.param([LOGITS, row(alpha=0.2, context=8192.0, positions=9999)], {}, (), 0.7, id="any context"),
    ],
)  # fmt: skip
def test_the_acceptance_taken(
    rows: list[AcceptanceRow], wanted: dict[str, Any], survival: tuple[float, ...], alpha: float | None
) -> None:
    found = acceptance_taken(rows, wanted)
    assert (found.survival, found.alpha, found.rates, found.notes) == (survival, alpha, (), ())
    assert found.told.startswith("acceptance as calibrated: ")


@pytest.mark.parametrize(
    ("rows", "wanted", "problem"),
    [
        ([LOGITS, row(alpha=0.9, temperature=0.0)], {}, r"several acceptances \(temperature 1, 0\); .*re=1"),
        ([RUN_4, row(alpha=0.9, temperature=0.0)], {}, "several acceptances"),
        ([LOGITS, row(alpha=0.9, top_p=0.9)], {}, r"several acceptances \(top-p 1, 0.9\)"),
        ([LOGITS, row(alpha=0.5, rule="another")], {}, r"\(rule rejection sampling, another\)"),
        ([row(alpha=0.5, domain="code"), row(alpha=0.5, domain="chat")], {}, r"\(domain code, chat\)"),
        ([LOGITS], {"temperature": 0.5}, "holds no acceptance of temperature 0.5; it has temperature 1;"),
    ],
)
def test_acceptances_that_nothing_tells_apart_are_listed(
    rows: list[AcceptanceRow], wanted: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        acceptance_taken(rows, wanted)


def test_the_file_and_each_choice_are_named() -> None:
    rows = [row(alpha=0.5, rule=one, temperature=temperature) for one in "ab" for temperature in (0.0, 1.0)]
    with pytest.raises(InputError) as caught:
        acceptance_taken(rows, {}, name="my/h100.yaml")
    assert caught.value.problem == (
        "my/h100.yaml has several acceptances (temperature 0, 1); choose one after the file, as in "
        "my/h100.yaml,temperature=0 or my/h100.yaml,temperature=1"
    )
    with pytest.raises(
        InputError, match=r"as in FILE\.yaml,temperature=1,rule=a or FILE\.yaml,temperature=1,r"
    ):
        acceptance_taken(rows, {"temperature": 1.0})


@pytest.mark.parametrize(
    ("taken", "code", "words"),
    [
        (row(k=1, drafts=1, accepted_at=(1,)), "few-drafts", "rests on 1 drafts: .* known to ±1 at best"),
        (row(k=1, drafts=25, accepted_at=(9,)), "few-drafts", "rests on 25 drafts: .* known to ±0.2 at best"),
        (row(alpha=0.5, positions=64), "few-positions", "rests on 64 positions"),
    ],
)
def test_an_acceptance_of_few_drafts_says_so(taken: AcceptanceRow, code: str, words: str) -> None:
    (note,) = acceptance_taken([taken], {}).notes
    assert note.code == code
    assert re.search(words, note.text)


def test_a_cell_far_off_its_law_is_told_though_the_file_does_not_flag_it() -> None:
    assert "cells-contradict" not in {one.code for one in source({(8, 5, 512): 3.0}).warnings}
    (note,) = [one for one in source({(8, 5, 512): 12.0}).warnings if one.code == "cells-contradict"]
    assert "target at batch 8, 5 tokens, context 512 (12.00 times)" in note.text


def test_a_longer_draft_than_was_run_goes_on_by_the_beta_law_and_is_marked() -> None:
    """300 → 150 → 100: 1/2, then 2/3, the uniform law; the next are 3/4 and 4/5."""
    rising = row(k=2, drafts=300, accepted_at=(150, 100))
    found = acceptance_taken([rising], {}, longest_k=4)
    assert found.rates == pytest.approx([1 / 2, 2 / 3, 3 / 4, 4 / 5], rel=1e-5)
    assert [one.code for one in found.notes] == ["extrapolated"]
    assert "the Beta law" in found.notes[0].text
    falling = acceptance_taken([row(k=2, drafts=100, accepted_at=(80, 40))], {}, longest_k=3)
    assert falling.rates == pytest.approx([0.8, 0.5, 0.5])
    assert "the last rate held" in falling.notes[0].text
    assert PositionAcceptance(found.rates).max_k == 4


def test_contexts_longer_than_the_models_read_are_told() -> None:
    known = read_calibration(TOY)
    assert isinstance(known, Calibration)
    short = replace(known, machine={**known.machine, "max_context": 2048})
    told = [one.code for one in Calibrated(calibration=short).asked([512, 4096]).warnings]
    fits = [one.code for one in Calibrated(calibration=short).asked([512, 2048]).warnings]
    assert ("beyond-the-model" in told, "beyond-the-model" in fits) == (True, False)
