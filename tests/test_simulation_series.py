"""Many runs: the same answers from any number of processes, and none of them lost."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from specmath import __version__
from specmath.acceptance import ConstantAcceptance
from specmath.errors import AccessError, DataError, InputError
from specmath.mixed_steps import tabulated
from specmath.simulation import series
from specmath.simulation.fingerprints import fingerprint
from specmath.simulation.policies import fixed_k
from specmath.simulation.runs import simulate
from specmath.simulation.series import HEAD, Run, simulate_many
from specmath.simulation.statistics import ServiceLevel, Summary
from specmath.traffic import Limits, Trace, Traffic, TrafficClass
from tests.batching_by_hand import LinearSteps

STEPS = LinearSteps(fixed_s=0.01, per_sequence_s=2e-4, per_prompt_token_s=1e-5, per_draft_s=1e-3)
CHAT = TrafficClass(name="chat", share=1, prompt_tokens=100, output_tokens=30, law=ConstantAcceptance(0.7))


def runs(rates: Sequence[float] = (2.0, 20.0, 4_000.0)) -> list[Run]:
    """Little load, more, and overload, each plainly and with drafts."""
    table = tabulated(STEPS, [0, 3], max_batch=64, chunk_tokens=512)
    limits = Limits(max_batch=64, chunk_tokens=512)
    return [
        Run(
            name=f"{rate:g}/s, k = {k}",
            traffic=Traffic(rate_per_s=rate, classes=(CHAT,)),
            steps=table,
            limits=limits,
            policy=fixed_k(k),
            requests=400,
            seed=3,
            level=ServiceLevel(ttft_s=0.1),
        )
        for rate in rates
        for k in (0, 3)
    ]


def rows(summaries: Sequence[Summary]) -> list[str]:
    """As text, in which a NaN is like another."""
    return [json.dumps(summary.as_row()) for summary in summaries]


@cache
def serial() -> list[str]:
    return rows([run.summary() for run in runs()])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "runs.jsonl"


def test_parallel_runs_answer_as_serial_ones(log: Path) -> None:
    told: list[tuple[int, int]] = []
    answered = simulate_many(runs(), processes=2, log=log, progress=lambda *now: told.append(now))
    assert rows(answered) == serial()
    assert told == [(done, 6) for done in range(7)]
    assert len(set(serial())) == 6
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[0] == HEAD
    assert sorted(line["name"] for line in lines[1:]) == sorted(run.name for run in runs())


def test_a_run_is_simulate_and_its_summary() -> None:
    run = runs()[3]
    result = simulate(run.traffic, run.steps, run.limits, run.policy, requests=400, seed=3)
    assert rows(simulate_many([run], processes=1)) == rows([result.summary(run.level)]) == [serial()[3]]


def test_no_runs_have_no_answers(log: Path) -> None:
    assert simulate_many([], log=log) == ()


class Stopped(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_done_outlives_ctrl_c_and_is_not_run_again(
    log: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(done: int, total: int) -> None:
        if done == 2:
            raise Stopped

    with pytest.raises(Stopped):
        simulate_many(runs(), processes=processes, log=log, progress=stop)
    kept = log.read_text().splitlines()
    assert len(kept) == 3
    with log.open("a") as stream:
        stream.write('{"run": "torn')
    again: list[str] = []
    whole = Run.summary

    def counted(self: Run) -> Summary:
        again.append(self.name)
        return whole(self)

    monkeypatch.setattr(Run, "summary", counted)
    told: list[int] = []
    resumed = simulate_many(
        runs(), processes=1, log=log, resume=True, progress=lambda done, _: told.append(done)
    )
    assert rows(resumed) == serial()
    assert told == [2, 3, 4, 5, 6]
    assert len(again) == 4
    assert log.read_text().splitlines()[:3] == kept
    assert rows(simulate_many(runs(), processes=1, log=log, resume=True)) == serial()
    assert len(again) == 4
    assert len(log.read_text().splitlines()) == 7


def test_a_resumed_series_knows_its_runs_by_what_they_ask(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_many(runs()[:1], processes=1, log=log)
    asked = runs()[0]
    for other in (
        replace(asked, seed=4),
        replace(asked, requests=401),
        replace(asked, policy=fixed_k(3)),
        replace(asked, limits=Limits(max_batch=63, chunk_tokens=512)),
        replace(asked, traffic=Traffic(rate_per_s=2.5, classes=(CHAT,))),
        replace(asked, level=None),
        replace(asked, traffic=Traffic(rate_per_s=2, classes=(replace(CHAT, law=ConstantAcceptance(0.8)),))),
        replace(asked, steps=tabulated(STEPS, [0], max_batch=64, chunk_tokens=512)),
    ):
        lines = len(log.read_text().splitlines())
        simulate_many([other], processes=1, log=log, resume=True)
        assert len(log.read_text().splitlines()) == lines + 1
    simulate_many([replace(asked, name="otherwise called")], processes=1, log=log, resume=True)
    assert len(log.read_text().splitlines()) == lines + 1


def test_a_log_is_not_written_over_unless_asked(log: Path) -> None:
    one = runs()[:1]
    simulate_many(one, processes=1, log=log)
    before = log.read_bytes()
    with pytest.raises(AccessError, match="is the log of another series; resume it, start anew"):
        simulate_many(one, processes=1, log=log)
    assert log.read_bytes() == before
    simulate_many(one, processes=1, log=log, fresh=True)
    assert log.read_bytes() == before


HEAD_LINE = json.dumps(HEAD)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"schema": "something else"}\n', "is no log of simulations"),
        (HEAD_LINE.replace(__version__, "0.0.1") + "\n", r"is no log of simulations by specmath \d"),
        (f'{HEAD_LINE}\n{{"run": "x"}}\n', "line 2 is no summary of a run"),
        (f'{HEAD_LINE}\n{{"run": "x", "summary": {{"requests": 1}}}}\n', "line 2 is no summary"),
        (f"{HEAD_LINE}\nnothing\n", "line 2 is no JSON object"),
    ],
)
def test_a_log_of_something_else_is_refused(log: Path, content: str, problem: str) -> None:
    log.write_text(content)
    with pytest.raises(DataError, match=problem):
        simulate_many(runs()[:1], processes=1, log=log, resume=True)
    assert log.read_text() == content


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_that_cannot_be_is_an_input_error_from_any_process(log: Path, processes: int) -> None:
    wrong = replace(runs()[0], limits=Limits(max_batch=64, chunk_tokens=512, kv_tokens=50))
    with pytest.raises(InputError, match=r"kv_tokens: is too small: request 1 takes 130 tokens"):
        simulate_many([*runs()[:1], wrong], processes=processes, log=log)


def test_a_process_that_dies_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import Future
    from concurrent.futures.process import BrokenProcessPool

    broken: Future[object] = Future()
    broken.set_exception(BrokenProcessPool())
    with pytest.raises(AccessError, match="a process was ended from outside"):
        series._summary(broken)


def test_a_summary_survives_its_row() -> None:
    for run in runs():
        row = run.summary().as_row()
        assert Summary.from_row(json.loads(json.dumps(row))).as_row() == row
        assert None in row.values() or row["steady"]
        for key, wrong in (("steady", 1), ("requests", 1.5), ("requests", True), ("ttft_p50_s", "x")):
            with pytest.raises(InputError, match=f"{key}: must be"):
                Summary.from_row(row | {key: wrong})
        with pytest.raises(InputError, match="decoding: must be a number or nothing, got 'missing'"):
            Summary.from_row({key: value for key, value in row.items() if key != "decoding"})


def test_fingerprints_tell_values_apart() -> None:
    trace = Trace(
        arrival_s=np.array([0.0, 1.0]),
        prompt_tokens=np.array([1, 2]),
        output_tokens=np.array([1, 2]),
        class_of=np.array([0, 0]),
    )
    values: list[object] = [
        *(
            1,
            1.0,
            True,
            "1",
            None,
            "",
            (),
            [],
            {},
            (1,),
            [1],
            ("1",),
            (1, 11),
            (11, 1),
            ((1,), 1),
            ("a", "b"),
            ("ab",),
        ),
        *(np.array([1, 2]), np.array([1.0, 2.0]), np.array([[1, 2]]), np.array([1, 3])),
        *(ConstantAcceptance(0.5), ConstantAcceptance(0.6), trace, replace(trace, names=("b",)), {"a": 1}),
        *({"a": 2}, {"b": 1}, fixed_k(0), fixed_k(1), Limits(max_batch=1)),
    ]
    assert len({fingerprint(value) for value in values}) == len(values)
    assert fingerprint(trace) == fingerprint(replace(trace))
    with pytest.raises(InputError, match="hold a object"):
        fingerprint(object())


@pytest.mark.parametrize("fresh", [False, True])
def test_a_log_that_is_no_file_is_refused_unread(tmp_path: Path, fresh: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(AccessError, match="is no file to keep runs in"):
            simulate_many(runs((2.0,)), processes=1, log=place, resume=True, fresh=fresh)
