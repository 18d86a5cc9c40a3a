"""The proof on models whose passes take known times, and the host's share of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, cast

import pytest
import torch
from torch import Tensor

from calibrate import host_steps
from calibrate.decoding import DecodingLoop
from calibrate.drafters import LookupDrafter, ModelDrafter
from calibrate.host_steps import HostSteps, StillRunner
from calibrate.proof import WARM_STEPS, Arms, prove
from calibrate.sampling import Sampling
from calibrate.slots import Slots
from calibrate.timing import ClockTimer
from specmath.calibrated_source import Calibrated
from specmath.calibrations import Calibration, Cell, Place, ProofRow
from specmath.pass_laws import DraftLaw, PassLaw

VOCABULARY = 7
TARGET = PassLaw(weights_s=8.0, compute_s_per_token=0.25, kv_s_per_token=2.0**-7)
DRAFT = DraftLaw(fixed_s=1.0, s_per_sequence=0.125, kv_s_per_token=2.0**-9)
PROMPT, NEW = 24, 40
CONTEXT = PROMPT + NEW


class Held(NamedTuple):
    """Room without memory, that knows its size."""

    batch: int
    length: int


@dataclass
class Machine:
    """A clock that passes move on."""

    now_s: float = 0.0
    passes: list[str] = field(default_factory=list)

    def clock(self) -> float:
        return self.now_s

    def timer(self) -> ClockTimer:
        return ClockTimer(clock=self.clock)


class Timed:
    """A model that answers the token after the last one, and takes the time of a law.

    The context of a pass is what its slots hold beside the tokens that the step adds.
    """

    device = torch.device("cpu")
    vocabulary = VOCABULARY

    def __init__(self, machine: Machine, name: str, law: Callable[[int, int, int], float]) -> None:
        self.machine, self.name, self.law = machine, name, law

    def slots(self, batch: int, length: int) -> Slots:
        return cast(Slots, Held(batch, length))

    def logits(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        width = tokens.shape[1]
        self.machine.passes.append(f"{self.name}{width}")
        self.machine.now_s += self.law(tokens.shape[0], width, slots.length)
        return torch.nn.functional.one_hot((tokens + 1) % VOCABULARY, VOCABULARY).float() * 50


def target_of(machine: Machine, extra_s: Callable[[int, float], float] = lambda width, now_s: 0.0) -> Timed:
    def law(batch: int, width: int, length: int) -> float:
        return float(TARGET.pass_s(batch, width, length - width)) + extra_s(width, machine.now_s)

    return Timed(machine, "target", law)


def drafter_of(machine: Machine, k: int) -> ModelDrafter:
    """Its cache has room for the whole step, k + 1 tokens, too."""
    return ModelDrafter(
        Timed(
            machine,
            "draft",
            lambda batch, width, length: float(DRAFT.chain_s(1, batch, length - k - 1)),
        )
    )


def source(*batches: int) -> Calibrated:
    """A calibration that knows the machine."""
    places = [
        Place(part="target", batch=b, width=w, context=CONTEXT) for b in batches or (1, 8) for w in (1, 5)
    ]
    seconds = [float(TARGET.pass_s(one.batch, one.width, one.context)) for one in places]
    cells = [
        Cell(place=place, seconds=s, low_s=s, high_s=s, repeats=5)
        for place, s in zip(places, seconds, strict=True)
    ]
    return Calibrated(
        calibration=Calibration(
            target="target",
            draft="draft",
            method="draft-model",
            regime="eager",
            dtype="fp32",
            machine={},
            cells=tuple(cells),
            target_law=TARGET,
            draft_law=DRAFT,
        )
    )


def arms(machine: Machine, k: int, **changes: Any) -> Arms:
    made = Arms(
        target=target_of(machine),
        drafter=drafter_of(machine, k),
        sampling=Sampling(),
        timer=machine.timer(),
        prompt_tokens=PROMPT,
        new_tokens=NEW,
    )
    return replace(made, **changes)


def plain_s(batch: int) -> float:
    return 8 + 0.25 * batch + batch * CONTEXT / 128


def step_s(batch: int, k: int) -> float:
    verify = 8 + 0.25 * batch * (k + 1) + batch * CONTEXT / 128
    return verify + k * (1 + 0.125 * batch + batch * CONTEXT / 512)


# ---------------------------------------------------------------- proof


@pytest.mark.parametrize(("batch", "k"), [(1, 1), (1, 4), (8, 4), (3, 6)])
def test_a_step_takes_the_sum_of_its_parts(batch: int, k: int) -> None:
    (row,) = prove(arms(Machine(), k), source(), [(batch, k)])
    assert row.plain_s == pytest.approx(plain_s(batch), rel=1e-12)
    assert row.step_s == pytest.approx(step_s(batch, k), rel=1e-12)
    assert row.predicted_plain_s == pytest.approx(plain_s(batch), rel=1e-12)
    assert row.predicted_step_s == pytest.approx(step_s(batch, k), rel=1e-12)
    assert row.error == pytest.approx(0, abs=1e-12)
    assert row.speedup == pytest.approx((k + 1) * plain_s(batch) / step_s(batch, k), rel=1e-12)
    assert (row.batch, row.k, row.context, row.acceptance_length) == (batch, k, CONTEXT, k + 1)


@pytest.mark.parametrize(
    ("extra", "sign"),
    [
        pytest.param(lambda width, _: 2.0 if width > 1 else 0.0, 1, id="verification is dearer than known"),
        pytest.param(lambda width, _: 2.0 if width == 1 else 0.0, -1, id="the plain pass is"),
    ],
)
def test_a_cost_that_the_calibration_lacks_is_the_error(
    extra: Callable[[int, float], float], sign: int
) -> None:
    machine, k = Machine(), 4
    (row,) = prove(arms(machine, k, target=target_of(machine, extra)), source(), [(1, k)])
    true = step_s(1, k) if sign > 0 else plain_s(1)
    assert row.error == pytest.approx((1 + 2 / true) ** sign - 1, rel=1e-12)
    assert row.error * sign > 0.05


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_coins_set_the_acceptance_length(alpha: float) -> None:
    k, machine = 3, Machine()
    (row,) = prove(arms(machine, k, synthetic_alpha=alpha, new_tokens=NEW), source(), [(64, k)])
    expected = sum(alpha**place for place in range(k + 1))
    assert row.acceptance_length == pytest.approx(expected, rel=0.03)
    assert row.step_s == pytest.approx(step_s(64, k), rel=1e-12)  # whatever is accepted


def test_runs_take_turns_and_rows_are_kept_as_they_stand() -> None:
    machine, events = Machine(), list[str]()
    told: list[tuple[int, int, str]] = []

    def note(done: int, total: int, what: str) -> None:
        told.append((done, total, what))
        events.append(what)

    places = [(1, 1), (1, 3), (4, 1), (4, 3)]
    rows = prove(
        arms(machine, 3),
        source(),
        places,
        rounds=2,
        keep=lambda row: events.append(f"kept {row.batch}, {row.k}"),
        progress=note,
    )
    assert [(row.batch, row.k) for row in rows] == places
    turn = {
        b: [f"plain decoding at batch {b}", *(f"decoding at batch {b}, k {k}" for k in (1, 3))]
        for b in (1, 4)
    }
    assert events == [
        *turn[1] * 2,
        *("kept 1, 1", "kept 1, 3"),
        *turn[4] * 2,
        *("kept 4, 1", "kept 4, 3"),
        "done",
    ]
    assert [done for done, _, _ in told] == [*range(12), 12]
    assert {total for _, total, _ in told} == {12}


def test_a_hiccup_in_one_round_is_not_in_the_row() -> None:
    machine, k = Machine(), 2
    steady = prove(arms(machine, k), source(), [(1, k)])
    ends_s = machine.now_s
    machine = Machine()
    late = target_of(machine, lambda _, now_s: 5.0 if now_s < ends_s / 4 else 0.0)
    (row,) = prove(arms(machine, k, target=late), source(), [(1, k)])
    assert row == steady[0]


def test_warm_steps_are_not_timed() -> None:
    machine, k = Machine(), 1
    cold = target_of(
        machine, lambda width, _: 100.0 if machine.passes.count(f"target{width}") <= WARM_STEPS else 0.0
    )
    (row,) = prove(arms(machine, k, target=cold), source(), [(1, k)], rounds=1)
    assert row.plain_s == pytest.approx(plain_s(1), rel=1e-12)
    assert row.step_s == pytest.approx(step_s(1, k), rel=1e-12)


def test_the_way_of_sampling_stands_in_the_row() -> None:
    machine = Machine()
    (row,) = prove(arms(machine, 2, sampling=Sampling(0.7, 0.9)), source(), [(2, 2)])
    assert (row.temperature, row.top_p) == (0.7, 0.9)
    assert isinstance(row, ProofRow)


def test_texts_are_of_one_length_whatever_the_prompts() -> None:
    prompts = [[1, 2, 3], [place * place % VOCABULARY for place in range(60)]]
    made = arms(Machine(), 2, prompts=prompts)
    texts = made.texts(3)
    assert [len(text) for text in texts] == [PROMPT] * 3
    assert texts[0] == texts[2] == [1, 2, 3] * (PROMPT // 3)
    assert texts[1] == prompts[1][-PROMPT:]
    at_random = arms(Machine(), 2).texts(4)
    assert at_random == arms(Machine(), 2).texts(4) != arms(Machine(), 2, seed=1).texts(4)
    assert all(0 <= token < VOCABULARY for text in at_random for token in text)


def test_a_lookup_is_proved_too() -> None:
    """Texts that count on repeat themselves: once around, every draft is found and right."""
    machine, k = Machine(), 4
    free = replace(source().calibration, draft="ngram", method="ngram", draft_law=DraftLaw(fixed_s=0.0))
    made = arms(machine, k, drafter=LookupDrafter(), prompts=[[*range(VOCABULARY)]])
    (row,) = prove(made, Calibrated(calibration=free), [(1, k)])
    assert row.error == pytest.approx(0, abs=1e-12)
    assert row.acceptance_length == k + 1


# ---------------------------------------------------------------- the host of a step


@dataclass
class Seen:
    """The loops that were made, and the widths of passes by who ran them."""

    loops: list[DecodingLoop] = field(default_factory=list)
    passes: list[tuple[int, int]] = field(default_factory=list)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    made, logits = Seen(), StillRunner.logits

    class Loop(DecodingLoop):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            made.loops.append(self)

    def noted(self: StillRunner, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        made.passes.append((self.vocabulary, tokens.shape[1]))
        return logits(self, slots, tokens, positions)

    monkeypatch.setattr(host_steps, "DecodingLoop", Loop)
    monkeypatch.setattr(StillRunner, "logits", noted)
    return made


def steps(**changes: Any) -> HostSteps:
    made = HostSteps(vocabulary=32, draft_vocabulary=16, device=torch.device("cpu"), sampling=Sampling(1.0))
    return replace(made, **changes)


WAYS: Sequence[dict[str, Any]] = (
    {"sampling": Sampling(0.0)},
    {"sampling": Sampling(1.0)},
    {"sampling": Sampling(1.0, 0.8)},
    {"sampling": Sampling(0.0), "synthetic_alpha": 0.7},
    {"sampling": Sampling(1.0), "synthetic_alpha": 0.7},
)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("is_lookup", [False, True])
@pytest.mark.parametrize("k", [0, 1, 4])
def test_a_step_of_the_host_is_a_step_that_leaves_no_trace(
    seen: Seen, way: dict[str, Any], is_lookup: bool, k: int
) -> None:
    host, batch = steps(is_lookup=is_lookup, **way), 3
    work = host.speculative(batch, k) if k else host.plain(batch)
    (loop,) = seen.loops
    before = loop.texts.length.clone(), loop.generator.get_state().clone(), loop.has_ended.clone()
    for _ in range(2):
        seen.passes.clear()
        work()
        drafts = [] if is_lookup or not k else [(16, 2), *[(16, 1)] * (k - 1)]
        assert seen.passes == [*drafts, (32, k + 1)]
        after = loop.texts.length, loop.generator.get_state(), loop.has_ended
        assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
        assert loop.history == []


@pytest.mark.parametrize("is_lookup", [False, True])
def test_the_host_judges_every_draft(seen: Seen, is_lookup: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rewind: all are offered, and coins of 1 accept them all."""
    monkeypatch.setattr(DecodingLoop, "rewind", lambda self: None)
    work = steps(is_lookup=is_lookup, synthetic_alpha=1.0, sampling=Sampling(0.0)).speculative(2, 5)
    work()
    ((has_grown, accepted, offered),) = seen.loops[0].history
    assert accepted is not None
    assert accepted.tolist() == [5, 5]
    assert has_grown.tolist() == [True, True]
    assert offered is None or offered.tolist() == [5, 5]
