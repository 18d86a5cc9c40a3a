"""From a place to its work: which tokens go where, and a small grid timed from end to end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from calibrate.grid import default_grid
from calibrate.models import load_pass_model
from calibrate.passes import Passes, slot_length
from calibrate.runners import ModelRunner
from calibrate.slots import Slots, room
from calibrate.timing import ClockTimer, Work, measure
from specmath.calibrations import Place
from specmath.errors import InputError
from tests.tiny_models import tiny_model

PAIR = Path(__file__).parent / "data" / "micro_pair"


class Noted(ModelRunner):
    """A runner that notes its passes."""

    def __init__(self) -> None:
        super().__init__(tiny_model("llama"), name="llama")
        self.passes: list[tuple[Slots, Tensor, Tensor]] = []
        self.outputs: list[Tensor] = []

    def logits(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        self.passes.append((slots, tokens, positions))
        self.outputs.append(super().logits(slots, tokens, positions))
        return self.outputs[-1]


def noted(*places: Place) -> tuple[Passes, Noted, Noted]:
    target, draft = Noted(), Noted()
    passes = Passes(target=target, draft=draft)
    passes.reserve(places)
    return passes, target, draft


def test_a_target_pass_stands_behind_its_context() -> None:
    place = Place(part="target", batch=3, width=5, context=40)
    passes, target, draft = noted(place)
    work = passes.prepare(place)
    assert target.passes == []  # getting ready runs nothing
    work()
    work()
    (slots, tokens, positions), again = target.passes
    assert (slots.batch, slots.length) == (3, 45)
    assert tokens.shape == (3, 5)
    assert len(set(tokens.flatten().tolist())) > 5
    assert positions.tolist() == [40] * 3
    assert again[0] is slots
    assert draft.passes == []


@pytest.mark.parametrize("k", [1, 2, 4])
def test_a_draft_chain_is_k_passes_each_fed_by_the_one_before(k: int) -> None:
    place = Place(part="draft", batch=2, width=k, context=16)
    passes, target, draft = noted(place)
    passes.prepare(place)()
    assert [tokens.shape[1] for _, tokens, _ in draft.passes] == [2] + [1] * (k - 1)
    assert [positions.tolist() for _, _, positions in draft.passes] == [
        [16, 16],
        *([place_of] * 2 for place_of in range(18, 17 + k)),
    ]
    for output, (_, tokens, _) in zip(draft.outputs[:-1], draft.passes[1:], strict=True):
        assert tokens[:, 0].tolist() == output[:, -1].argmax(-1).tolist()
    assert slot_length(place) == 16 + k + 1  # the last pass stands at the last slot
    assert target.passes == []


def test_host_and_lookup_are_what_was_given() -> None:
    asked: list[tuple[object, ...]] = []

    def noting(*sizes: int) -> Work:
        return lambda: asked.append(sizes)

    passes = Passes(target=Noted(), lookup=noting, plain_host=noting, step_host=noting)
    for place in (
        Place(part="draft", batch=2, width=4, context=30),
        Place(part="plain-host", batch=3, width=1, context=0),
        Place(part="step-host", batch=5, width=4, context=0),
    ):
        passes.prepare(place)()
    assert asked == [(2, 4, 30), (3,), (5, 3)]


@pytest.mark.parametrize("part", ["draft", "plain-host", "step-host"])
def test_a_part_without_anything_to_run_is_refused(part: str) -> None:
    with pytest.raises(InputError, match=part):
        Passes(target=Noted()).prepare(Place(part=part, batch=1, width=2, context=0))


def test_memory_is_taken_once_for_the_largest_place() -> None:
    small = Place(part="target", batch=4, width=1, context=10)
    large = Place(part="target", batch=2, width=9, context=100)
    passes, target, draft = noted(small, large)
    assert target.pool.tokens == 2 * room(109)
    assert draft.pool.tokens == 0
    passes.prepare(large)
    with pytest.raises(MemoryError, match="out of memory"):
        passes.prepare(replace(large, batch=3))


def test_the_largest_place_that_gets_memory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Noted()
    reserve = target.pool.reserve

    def scarce(tokens: int) -> None:
        if tokens > 100:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1 GiB")
        reserve(tokens)

    monkeypatch.setattr(target.pool, "reserve", scarce)
    places = [Place(part="target", batch=batch, width=1, context=15) for batch in (1, 2, 4, 8, 16)]
    passes = Passes(target=target)
    passes.reserve(places)
    measured = measure(places, passes.prepare, ClockTimer(), precision=1, min_repeats=2)
    assert [cell.place.batch for cell in measured.cells] == [1, 2, 4]
    assert [place.batch for place, _ in measured.skipped] == [8, 16]


def test_the_micro_pair_is_timed() -> None:
    pair = {part: load_pass_model(str(PAIR / part)) for part in ("target", "draft")}
    target, draft = (ModelRunner(pair[part].model, name=part) for part in ("target", "draft"))
    grid = default_grid(on_gpu=False, batches=[1, 2], contexts=[32], widths=[1, 4], ks=[2], has_host=False)
    passes = Passes(target=target, draft=draft)
    passes.reserve(grid.places)
    measured = measure(grid.places, passes.prepare, ClockTimer(), precision=1)
    assert [cell.place for cell in measured.cells] == list(grid.places)
    assert all(0 < cell.low_s <= cell.seconds <= cell.high_s for cell in measured.cells)
    assert not measured.skipped
    assert bool(torch.isfinite(passes.prepare(grid.places[0])()).all())  # type: ignore[arg-type]
