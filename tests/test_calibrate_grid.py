"""Which places are timed, and what is said of those that do not fit."""

from __future__ import annotations

import pytest

from calibrate.grid import (
    COARSE_WIDTHS,
    DENSE_WIDTHS,
    GPU_BATCHES,
    USABLE_SHARE,
    Grid,
    Models,
    default_grid,
    estimated_s,
    large_batch,
)
from specmath.calibrations import Place
from specmath.model_catalogue import load_model

TARGET = load_model("llama-3.1-8b")
DRAFT = load_model("llama-3.2-1b")
EVERY = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16]


def widths(grid: Grid, batch: int, context: int, part: str = "target") -> list[int]:
    return [
        place.width
        for place in grid.places
        if (place.part, place.batch, place.context) == (part, batch, context)
    ]


def test_every_width_at_the_smallest_and_a_large_batch() -> None:
    grid = default_grid()
    for context in (512, 8192):
        assert widths(grid, 1, context) == widths(grid, 64, context) == EVERY
        for batch in (2, 4, 8, 16, 32, 128, 256):
            assert widths(grid, batch, context) == [1, 2, 5, 9]


def test_the_parts_beside_the_target() -> None:
    grid = default_grid(batches=[4], contexts=[100], ks=[3, 5])
    assert [place for place in grid.places if place.part != "target"] == [
        *(Place(part="draft", batch=4, width=k, context=100) for k in (3, 5)),
        Place(part="plain-host", batch=4, width=1, context=0),
        *(Place(part="step-host", batch=4, width=k + 1, context=0) for k in (3, 5)),
    ]
    bare = default_grid(batches=[4], contexts=[100], has_draft=False, has_host=False)
    assert {place.part for place in bare.places} == {"target"}


def test_places_are_in_order_and_single() -> None:
    grid = default_grid(batches=[8, 1, 8], contexts=[512, 512])
    assert list(grid.places) == sorted(set(grid.places))


def test_quick_is_a_fraction() -> None:
    quick, full = default_grid(quick=True), default_grid()
    assert len(quick.places) < len(full.places) / 4
    assert {place.batch for place in quick.places} == {1, 8, 64}
    assert {place.context for place in quick.places if place.part == "target"} == {512}
    assert widths(quick, 1, 512) == [1, 2, 3, 5, 9]


@pytest.mark.parametrize(
    ("batches", "expected"), [([1], 1), ([1, 8], 8), ([128, 256], 128), (GPU_BATCHES, 64)]
)
def test_the_large_batch(batches: list[int], expected: int) -> None:
    assert large_batch(batches) == expected


def test_what_does_not_fit_is_said_in_figures() -> None:
    free = 80e9
    grid = default_grid(Models(target=TARGET, draft=DRAFT, free_bytes=free))
    whole = default_grid()
    left_out = dict(grid.left_out)
    assert sorted((*grid.places, *left_out)) == list(whole.places)
    for place in whole.places:
        # by hand: 131,072 and 32,768 bytes a token; 16.06 and 2.47 GB of weights; 12 bytes a logit
        cached = place.batch * (place.context + place.width)
        need = 16.06e9 + 2.47e9 + cached * (131_072 + 32_768) + 128_256 * 12 * place.batch * place.width
        if "host" not in place.part and abs(need / (USABLE_SHARE * free) - 1) > 0.01:
            assert (place in left_out) == (need > USABLE_SHARE * free), place
    reason = left_out[Place(part="target", batch=256, width=1, context=8192)]
    assert reason == "needs 362.6 GB, 73.6 GB are usable"
    assert grid.peak_bytes is not None
    assert grid.peak_bytes <= USABLE_SHARE * free


def test_a_context_longer_than_the_pair_takes_is_left_out() -> None:
    grid = default_grid(Models(target=TARGET, draft=load_model("llama-68m"), free_bytes=1e15))
    assert {place.context for place in grid.places if place.part == "target"} == {512}
    reasons = {reason for place, reason in grid.left_out if place.width == 1 and place.batch == 1}
    assert reasons == {"8,193 tokens are more than the 2,048 that the pair takes"}


def test_nothing_is_cut_without_figures() -> None:
    assert default_grid(Models()).left_out == ()
    assert default_grid(Models(target=TARGET)).left_out == ()


def test_the_time_of_a_dry_run_is_that_of_its_passes() -> None:
    grid = Grid(places=(Place(part="target", batch=1, width=1, context=0),))
    seconds = estimated_s(grid, Models(target=TARGET), bytes_per_s=16.06e9, flops_per_s=1e15, fixed_s=0.25)
    assert seconds == pytest.approx(12 * 1.25, rel=0.01)
    chain = Grid(places=(Place(part="draft", batch=1, width=4, context=0),))
    assert estimated_s(chain, Models(), bytes_per_s=1, flops_per_s=1, fixed_s=0.25) == 12 * 4 * 0.25
    wide = Grid(places=(Place(part="target", batch=100, width=10, context=0),))
    seconds = estimated_s(wide, Models(target=TARGET), bytes_per_s=1e15, flops_per_s=1e12, fixed_s=0)
    assert seconds == pytest.approx(12 * 2 * 7.505e9 * 1000 / 1e12, rel=0.01)  # without the table of rows


def test_widths_promised_are_those_of_the_issue() -> None:
    assert list(DENSE_WIDTHS) == EVERY
    assert list(COARSE_WIDTHS) == [1, 2, 5, 9]
