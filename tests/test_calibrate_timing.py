"""Timing on a clock that the work itself moves on."""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median

import pytest

from calibrate.timing import (
    DRIFT_REPEATS,
    WARM_UPS,
    ClockTimer,
    Work,
    cell_of,
    measure,
    median_error,
    out_of_memory_reason,
)
from specmath.calibrations import Place

PLACES = tuple(Place(part="target", batch=batch, width=1, context=0) for batch in range(1, 9))


class FakeMachine:
    """A clock, and places that move it on: `law(place, seconds so far)` each time, in turn noted."""

    def __init__(self, law: Callable[[Place, float], float]) -> None:
        self.law = law
        self.now_s = 0.0
        self.ran: list[Place] = []
        self.prepared: list[Place] = []

    def clock(self) -> float:
        return self.now_s

    def timer(self) -> ClockTimer:
        return ClockTimer(clock=self.clock)

    def prepare(self, place: Place) -> Work:
        self.prepared.append(place)

        def work() -> None:
            self.ran.append(place)
            self.now_s += self.law(place, self.now_s)

        return work


def noisy(share: float, seed: int = 3) -> FakeMachine:
    chance = random.Random(seed)
    return FakeMachine(lambda place, _: place.batch * (1 + chance.gauss(0, share)))


@pytest.mark.parametrize(
    ("repeats", "low", "middle", "high"),
    [
        ([3.0], 3.0, 3.0, 3.0),
        ([1.0, 2.0], 1.25, 1.5, 1.75),
        ([4.0, 1.0, 3.0, 2.0], 1.75, 2.5, 3.25),
        ([5.0, 1.0, 2.0, 4.0, 3.0], 2.0, 3.0, 4.0),
    ],
)
def test_quartiles_of_repeats(repeats: list[float], low: float, middle: float, high: float) -> None:
    cell = cell_of(PLACES[0], repeats)
    assert (cell.low_s, cell.seconds, cell.high_s, cell.repeats) == (low, middle, high, len(repeats))


def test_the_error_of_a_median_is_that_of_repeated_medians() -> None:
    chance = random.Random(1)
    samples = [[chance.gauss(10, 0.5) for _ in range(101)] for _ in range(400)]
    medians = [median(sample) for sample in samples]
    centre = sum(medians) / len(medians)
    spread = (sum((one - centre) ** 2 for one in medians) / len(medians)) ** 0.5
    told = sum(map(median_error, samples)) / len(samples)
    assert told == pytest.approx(spread / 10, rel=0.1)


def test_all_places_are_warm_before_any_is_timed() -> None:
    machine = noisy(0.0)
    measure(PLACES, machine.prepare, machine.timer(), clock=machine.clock)
    assert machine.prepared == list(PLACES)
    assert machine.ran[: WARM_UPS * len(PLACES)] == [place for place in PLACES for _ in range(WARM_UPS)]


def test_rounds_are_shuffled_and_hold_each_place_once() -> None:
    told: list[Place] = []
    machine = noisy(0.0)
    measure(
        PLACES,
        machine.prepare,
        machine.timer(),
        min_repeats=4,
        told=lambda place, _: told.append(place),
        clock=machine.clock,
    )
    rounds = [told[start : start + len(PLACES)] for start in range(0, len(told), len(PLACES))]
    assert len(rounds) == 4
    assert all(sorted(one) == list(PLACES) for one in rounds)
    assert len({tuple(one) for one in rounds}) == 4


@pytest.mark.parametrize("seed", [0, 1])
def test_the_seed_sets_the_order(seed: int) -> None:
    orders: list[list[Place]] = []
    for _ in range(2):
        machine = noisy(0.0)
        measure(PLACES, machine.prepare, machine.timer(), seed=seed, clock=machine.clock)
        orders.append(machine.ran)
    other = noisy(0.0)
    measure(PLACES, other.prepare, other.timer(), seed=seed + 1, clock=other.clock)
    assert orders[0] == orders[1] != other.ran


def test_places_are_repeated_to_the_precision() -> None:
    machine = noisy(0.05)
    measured = measure(
        PLACES, machine.prepare, machine.timer(), precision=0.01, max_repeats=1000, clock=machine.clock
    )
    assert not [advice for advice in measured.warnings if advice.code == "noisy-cells"]
    for cell in measured.cells:
        assert cell.seconds == pytest.approx(cell.place.batch, rel=0.04)
        # 1.25·0.05/√n ≤ 0.01 takes 39 repeats; the quartiles of few repeats say it sooner or later
        assert 5 <= cell.repeats <= 120
    assert sum(cell.repeats for cell in measured.cells) > 100


def test_quiet_places_get_the_least_repeats() -> None:
    machine = noisy(0.0)
    measured = measure(PLACES, machine.prepare, machine.timer(), min_repeats=7, clock=machine.clock)
    assert {cell.repeats for cell in measured.cells} == {7}
    assert measured.warnings == ()
    assert measured.drift == 0


def test_the_budget_ends_the_rounds_but_not_the_least_repeats() -> None:
    machine = noisy(0.3)
    measured = measure(
        PLACES, machine.prepare, machine.timer(), precision=1e-4, budget_s=1.0, clock=machine.clock
    )
    assert {cell.repeats for cell in measured.cells} == {5}
    assert [advice.code for advice in measured.warnings if advice.code == "noisy-cells"] == ["noisy-cells"]
    assert "8 of 8 medians" in measured.warnings[-1].text

    longer = noisy(0.3)
    budget_s = 1000.0
    more = measure(
        PLACES, longer.prepare, longer.timer(), precision=1e-4, budget_s=budget_s, clock=longer.clock
    )
    assert all(cell.repeats > 5 for cell in more.cells)
    assert longer.now_s < budget_s + 3 * DRIFT_REPEATS * 8 + 8


def test_a_place_is_done_at_the_most_repeats() -> None:
    machine = noisy(0.3)
    measured = measure(
        PLACES, machine.prepare, machine.timer(), precision=1e-9, max_repeats=20, clock=machine.clock
    )
    assert {cell.repeats for cell in measured.cells} == {20}


@pytest.mark.parametrize("slope", [0.0, 0.001, -0.0005])
def test_drift_is_found_in_the_witnesses(slope: float) -> None:
    machine = FakeMachine(lambda place, now_s: place.batch * (1 + slope * now_s))
    measured = measure(PLACES, machine.prepare, machine.timer(), clock=machine.clock, precision=1)
    assert measured.drift is not None
    start_s, end_s = WARM_UPS * 36, machine.now_s
    expected = (1 + slope * end_s) / (1 + slope * start_s) - 1
    assert measured.drift == pytest.approx(expected, rel=0.35, abs=1e-12)
    assert [advice.code for advice in measured.warnings] == (["drift"] if slope else [])


def test_a_hump_in_the_middle_is_drift() -> None:
    machine = FakeMachine(lambda place, now_s: place.batch * (1.5 if 200 < now_s < 280 else 1.0))
    measured = measure(PLACES, machine.prepare, machine.timer(), clock=machine.clock, precision=1)
    assert measured.drift == pytest.approx(0.5)


def test_known_repeats_count_and_whole_places_are_not_run_again() -> None:
    machine = noisy(0.0)
    known = {PLACES[0]: [1.0] * 5, PLACES[1]: [2.0] * 3}
    told: list[Place] = []
    measured = measure(
        PLACES[:3],
        machine.prepare,
        machine.timer(),
        known=known,
        told=lambda place, _: told.append(place),
        clock=machine.clock,
    )
    assert machine.prepared == [PLACES[1], PLACES[2]]
    assert sorted(told) == [PLACES[1]] * 2 + [PLACES[2]] * 5
    assert [cell.repeats for cell in measured.cells] == [5, 5, 5]


def test_nothing_runs_where_everything_is_known() -> None:
    machine = noisy(0.0)
    measured = measure(PLACES[:1], machine.prepare, machine.timer(), known={PLACES[0]: [1.0] * 5})
    assert (machine.prepared, measured.drift) == ([], None)
    assert measured.cells[0].repeats == 5


def test_what_was_told_stays_told_after_an_interrupt() -> None:
    told: list[float] = []

    def law(place: Place, _: float) -> float:
        if len(told) == 11:
            raise KeyboardInterrupt
        return float(place.batch)

    machine = FakeMachine(law)
    with pytest.raises(KeyboardInterrupt):
        measure(PLACES, machine.prepare, machine.timer(), told=lambda _, seconds: told.append(seconds))
    assert len(told) == 11


@pytest.mark.parametrize("stage", ["prepare", "warm-up", "timing"])
@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("CUDA out of memory. Tried 2 GiB.\nMore"), MemoryError("out: 3 GB")]
)
def test_a_place_without_memory_is_skipped_with_its_reason(stage: str, error: Exception) -> None:
    machine = noisy(0.0)
    big = PLACES[-1]

    def prepare(place: Place) -> Work:
        work = machine.prepare(place)
        if place != big:
            return work
        if stage == "prepare":
            raise error
        left = iter(range(0 if stage == "warm-up" else WARM_UPS + 2))

        def scarce() -> None:
            if next(left, None) is None:
                raise error
            work()

        return scarce

    measured = measure(PLACES, prepare, machine.timer(), clock=machine.clock)
    assert [(place, reason) for place, reason in measured.skipped] == [(big, out_of_memory_reason(error))]
    full = [cell.place for cell in measured.cells if cell.repeats >= 5]
    assert full == list(PLACES[:-1])
    assert "\n" not in measured.skipped[0][1]


def test_other_errors_are_no_lack_of_memory() -> None:
    def prepare(place: Place) -> Work:
        raise RuntimeError("shape mismatch")

    with pytest.raises(RuntimeError, match="shape mismatch"):
        measure(PLACES, prepare, ClockTimer())


def test_progress_rises_to_its_end() -> None:
    machine = noisy(0.02)
    seen: list[tuple[float, float]] = []
    measure(
        PLACES,
        machine.prepare,
        machine.timer(),
        progress=lambda done, total: seen.append((done, total)),
        clock=machine.clock,
    )
    done = [one for one, _ in seen]
    assert done == sorted(done)
    assert all(one <= total for one, total in seen)
    assert seen[-1][0] == seen[-1][1]
    assert seen[0][1] == pytest.approx(len(PLACES) * (WARM_UPS + 5), rel=0.1)  # as if all were like the first
    warm = seen[len(PLACES) - 1]
    assert warm[1] == pytest.approx(36 * (WARM_UPS + 5), rel=0.1)


def test_a_clock_timer_waits_for_the_device() -> None:
    machine = noisy(0.0)
    waits: list[int] = []
    timer = ClockTimer(clock=machine.clock, synchronise=lambda: waits.append(len(machine.ran)))
    assert timer.seconds(machine.prepare(PLACES[2])) == 3
    assert waits == [0, 1]
