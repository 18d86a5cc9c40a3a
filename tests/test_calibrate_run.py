"""Whole calibrations: of a machine whose laws are known, and of the micro pair, interrupted anywhere."""

from __future__ import annotations

import copy
import errno
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibrate.acceptance import measure_acceptance
from calibrate.drafters import LookupDrafter
from calibrate.findings import Told, proof_places
from calibrate.grid import default_grid
from calibrate.opened import OpenPair, open_pair
from calibrate.proof import prove
from calibrate.requests import Request
from calibrate.run import calibrate_pair
from calibrate.timing import ClockTimer, Work, measure
from specmath.append_log import AppendLog
from specmath.calibrated_source import Calibrated
from specmath.calibration_files import read_calibration, write_calibration
from specmath.calibrations import Calibration, PartFit, Place
from specmath.errors import AccessError, DataError, InputError
from specmath.pass_fits import fitted_draft_law, fitted_host_law, fitted_pass_law
from specmath.pass_laws import DraftLaw, HostLaw, PassLaw

MICRO = Path(__file__).with_name("data") / "micro_pair"
QUIET = 3e-3
"""Seconds of every pass of a timer that knows no noise."""

# ---------------------------------------------------------------- a synthetic machine

TARGET = PassLaw(weights_s=7e-3, compute_s_per_token=30e-6, kv_s_per_token=9e-9)
DRAFT = DraftLaw(fixed_s=0.9e-3, s_per_sequence=8e-6, kv_s_per_token=1.5e-9, round_s=0.2e-3)
PLAIN_HOST = HostLaw(fixed_s=0.2e-3, s_per_sequence=4e-6)
STEP_HOST = HostLaw(fixed_s=0.4e-3, s_per_sequence=5e-6, s_per_token=2e-6)
LAWS = {"target": TARGET, "draft": DRAFT, "plain-host": PLAIN_HOST, "step-host": STEP_HOST}


def law_s(place: Place) -> float:
    """Seconds of a place by the known laws."""
    if place.part == "target":
        return float(TARGET.pass_s(place.batch, place.width, place.context))
    if place.part == "draft":
        return float(DRAFT.chain_s(place.width, place.batch, place.context))
    host = PLAIN_HOST if place.part == "plain-host" else STEP_HOST
    return float(host.host_s(place.batch, place.width))


class Machine:
    """A clock that work moves on, by the law of its place and some noise."""

    def __init__(self, noise: float, seed: int) -> None:
        self.now_s, self.noise, self.chance = 0.0, noise, random.Random(seed)

    def clock(self) -> float:
        return self.now_s

    def prepare(self, place: Place) -> Work:
        def work() -> None:
            self.now_s += law_s(place) * (1 + self.chance.gauss(0, self.noise))

        return work


def synthetic(seed: int, noise: float = 0.01) -> Calibration:
    """All of a calibration that timing tells."""
    machine = Machine(noise, seed)
    measured = measure(
        default_grid().places, machine.prepare, ClockTimer(machine.clock), seed=seed, clock=machine.clock
    )
    target_law, target_fit = fitted_pass_law(measured.cells)
    draft_law, draft_fit = fitted_draft_law(measured.cells)
    plain_host, plain_fit = fitted_host_law(measured.cells, "plain-host")
    step_host, step_fit = fitted_host_law(measured.cells, "step-host")
    return Calibration(
        target="target",
        draft="draft",
        method="draft-model",
        regime="cuda-graph",
        dtype="bf16",
        machine={},
        cells=measured.cells,
        target_law=target_law,
        draft_law=draft_law,
        plain_host=plain_host,
        step_host=step_host,
        fits=(target_fit, draft_fit, plain_fit, step_fit),
    )


@pytest.mark.parametrize("seed", range(6))
def test_a_machine_of_known_laws_comes_back(seed: int) -> None:
    made = synthetic(seed)
    found = {"target": made.target_law, "draft": made.draft_law}
    found_hosts = {"plain-host": made.plain_host, "step-host": made.step_host}
    told = 0
    for fit in made.fits:
        for constant in fit.constants:
            if constant.is_identified and constant.standard_error:
                truth = getattr(LAWS[fit.part], constant.name)
                assert abs(constant.value - truth) <= 3 * constant.standard_error, (fit.part, constant)
                told += 1
        assert max(map(abs, fit.errors)) < 0.03
    assert told >= 7
    assert {"weights_s", "compute_s_per_token", "kv_s_per_token"} <= identified(made.fits[0])
    assert found["target"] != TARGET
    assert {*found, *found_hosts} == set(LAWS)


def identified(fit: PartFit) -> set[str]:
    return {constant.name for constant in fit.constants if constant.is_identified}


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("batch", [1, 8, 48, 256])
@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("context", [512, 3000, 8192])
def test_what_verification_and_drafting_cost_is_right(seed: int, batch: int, k: int, context: int) -> None:
    """At timed places and between them: 48 sequences, 3 tokens and a context of 3000 are none."""
    cost = Calibrated(calibration=quiet(seed)).step_cost(k, batch, context)
    plain_s = float(TARGET.pass_s(batch, 1, context)) + float(PLAIN_HOST.host_s(batch, 1))
    verify_s, host_s = float(TARGET.pass_s(batch, k + 1, context)), float(STEP_HOST.host_s(batch, k + 1))
    draft_s = float(DRAFT.chain_s(k, batch, context)) / k
    assert float(cost.plain_s) == pytest.approx(plain_s, rel=0.01)
    assert float(cost.verify_cost) == pytest.approx(verify_s / plain_s, rel=0.02)
    assert float(cost.draft_cost) == pytest.approx(draft_s / plain_s, rel=0.02)
    assert float(cost.overhead) == pytest.approx(host_s / plain_s, rel=0.03)


made_before: dict[int, Calibration] = {}


def quiet(seed: int) -> Calibration:
    if seed not in made_before:
        made_before[seed] = synthetic(seed, noise=0.005)
    return made_before[seed]


# ---------------------------------------------------------------- the micro pair


class Watched:
    """What was watched, in order; whether it ends in Ctrl-C, and after how many reports of the last."""

    def __init__(self, until: tuple[str, int] | None = None) -> None:
        self.begun: list[str] = []
        self.reports: Counter[str] = Counter()
        self.until = until

    @contextmanager
    def __call__(self, what: str) -> Iterator[Told | None]:
        phase = what.split()[0]
        self.begun.append(phase)

        def told(done: float, total: float) -> None:
            assert 0 <= done <= total + 1e-9
            self.reports[phase] += 1
            if self.until == (phase, self.reports[phase]):
                raise KeyboardInterrupt

        yield told


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "prompts.txt"
    path.write_text("def f(x):\n    return x\n\nimport os\nimport sys\n", encoding="utf-8")
    return path


def request(prompts: Path, **changes: Any) -> Request:
    usual: dict[str, Any] = {
        "target": str(MICRO / "target"),
        "draft": str(MICRO / "draft"),
        "device": "cpu",
        "threads": 1,
        "batches": (1, 2),
        "contexts": (32,),
        "ks": (2,),
        "prompts": str(prompts),
        "new_tokens": 8,
        "quick": True,
        "time_limit_s": 1.0,
    }
    return Request(**(usual | changes))


@pytest.fixture
def timed_work(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every piece of work takes `QUIET` by the timer, so that five repeats are enough; one entry for each."""
    return quieten(monkeypatch)


def quieten(patch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []

    class Quiet:
        def seconds(self, work: Work) -> float:
            work()
            seconds.append(QUIET)
            return QUIET

    patch.setattr(OpenPair, "timer", property(lambda self: Quiet()))
    return seconds


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def repeats(log: Path) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(line["place"]) for line in lines_of(log) if "place" in line)


def counted(log: Path, kind: str) -> int:
    return sum(kind in line for line in lines_of(log))


def test_the_file_holds_all_that_was_found(tmp_path: Path, prompts: Path) -> None:
    log, watched = tmp_path / "log.jsonl", Watched()
    asked = request(prompts, temperatures=(0.0, 1.0), top_ps=(1.0, 0.9))
    made = calibrate_pair(open_pair(asked), log, watch=watched)
    assert watched.begun == ["timing", "acceptance", "decoding"]
    assert min(watched.reports.values()) > 3

    path = tmp_path / "made.yaml"
    write_calibration(made, path)
    read = read_calibration(path)
    assert isinstance(read, Calibration)
    places = {cell.place for cell in read.cells}
    expected = default_grid(on_gpu=False, batches=(1, 2), contexts=(32,), ks=(1, 2), quick=True).places
    assert places == set(expected)
    assert all(cell.seconds > 0 and cell.repeats >= 5 for cell in read.cells)
    assert [fit.part for fit in read.fits] == ["target", "draft", "plain-host", "step-host"]
    assert read.target_law.weights_s + read.target_law.fixed_s > 0
    assert read.draft_law.fixed_s > 0
    assert read.machine["threads"] == 1
    decoded = [
        (row.rule, row.temperature, row.top_p)
        for row in read.acceptance
        if row.accepted_at and row.domain == "all"
    ]
    rejection = "rejection sampling"
    assert decoded == [("arg-max match", 0, 1), (rejection, 1, 1), (rejection, 1, 0.9)]
    assert {row.temperature for row in read.acceptance if row.rule == "typical acceptance"} == {1}
    assert all(0 <= row.alpha <= 1 for row in read.acceptance if row.alpha is not None)
    assert [(row.batch, row.k) for row in read.proof] == [(1, 2), (2, 2)]
    assert {(row.temperature, row.top_p, row.context) for row in read.proof} == {(1, 0.9, 32)}
    assert all(1 <= row.acceptance_length <= row.k + 1 and row.plain_s > 0 for row in read.proof)
    assert read.match_rate == 1
    assert read.specmath_version
    alike: dict[str, Any] = {
        "machine": {},
        "fits": (),
        "cells": tuple(sorted(made.cells, key=lambda cell: cell.place)),
    }
    assert {*read.cells} == {*made.cells}
    assert replace(read, **alike) == replace(made, **alike)
    assert sum(repeats(log).values()) == sum(cell.repeats for cell in read.cells)
    assert lines_of(log)[0]["setup"]["target_params"] == 869_504


PHASES = ["timing", "acceptance", "decoding"]
INTERRUPTED = {
    # phase and report at which Ctrl-C comes: acceptances and rows of the proof that were kept
    ("timing", 63): (0, 0),
    ("acceptance", 4): (1, 0),
    ("decoding", 8): (2, 1),
}


@pytest.fixture(scope="module")
def pair(prompts: Path) -> OpenPair:
    return open_pair(request(prompts))


@pytest.fixture(scope="module")
def whole(pair: OpenPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calibration]:
    """The calibration of that pair by a quiet timer, without any interruption."""
    with pytest.MonkeyPatch.context() as patch:
        quieten(patch)
        yield calibrate_pair(pair, tmp_path_factory.mktemp("whole") / "log.jsonl", watch=Watched())


@pytest.mark.parametrize("until", INTERRUPTED, ids=lambda until: f"{until[0]} {until[1]}")
def test_an_interrupted_run_is_taken_up_where_it_stood(
    tmp_path: Path, pair: OpenPair, whole: Calibration, timed_work: list[float], until: tuple[str, int]
) -> None:
    log = tmp_path / "log.jsonl"
    with pytest.raises(KeyboardInterrupt):
        calibrate_pair(pair, log, watch=Watched(until))
    kept = log.read_bytes()
    assert (counted(log, "acceptance"), counted(log, "proof")) == INTERRUPTED[until]
    assert counted(log, "timing") == (until[0] != "timing")
    assert sum(repeats(log).values()) == (43 if until[0] == "timing" else 100)

    with pytest.raises(AccessError, match="did not end; give --resume to take it up"):
        calibrate_pair(pair, log, watch=Watched())
    assert log.read_bytes() == kept

    watched = Watched()
    made = calibrate_pair(pair, log, watch=watched, resume=True)
    assert watched.begun == PHASES[PHASES.index(until[0]) :]
    assert log.read_bytes().startswith(kept)
    assert set(repeats(log).values()) == {5}, "none once more, none lost"
    assert (counted(log, "timing"), counted(log, "acceptance"), counted(log, "proof")) == (1, 2, 2)
    assert made.cells == whole.cells
    assert made.acceptance == whole.acceptance
    assert made.target_law == whole.target_law
    assert [(row.batch, row.k) for row in made.proof] == [(1, 2), (2, 2)]
    assert [row.acceptance_length for row in made.proof] == [row.acceptance_length for row in whole.proof]


def test_a_larger_grid_times_the_new_places_alone(
    tmp_path: Path, prompts: Path, timed_work: list[float]
) -> None:
    log = tmp_path / "log.jsonl"
    skip = frozenset({"acceptance", "proof"})
    calibrate_pair(open_pair(request(prompts, skip=skip)), log, watch=Watched())
    before = repeats(log)
    watched = Watched()
    larger = open_pair(request(prompts, skip=skip, batches=(1, 2, 3)))
    made = calibrate_pair(larger, log, watch=watched, resume=True)
    assert watched.begun == ["timing"]
    assert {cell.place.batch for cell in made.cells} == {1, 2, 3}
    assert {place: count for place, count in repeats(log).items() if place[1] < 3} == before


def test_a_run_of_another_set_up_is_not_taken_up(
    tmp_path: Path, prompts: Path, pair: OpenPair, timed_work: list[float]
) -> None:
    log = tmp_path / "log.jsonl"
    with pytest.raises(KeyboardInterrupt):
        calibrate_pair(pair, log, watch=Watched(("timing", 9)))
    kept = log.read_bytes()
    others: list[tuple[dict[str, Any], str]] = [
        ({"new_tokens": 9}, "new_tokens '8', not '9'"),
        ({"ks": (1, 2)}, "ks "),
        ({"seed": 1}, "seed '0', not '1'"),
        ({"target": str(MICRO / "draft")}, "target"),
        ({"dtype": "bf16"}, "dtype 'fp32', not 'bf16'"),
    ]
    for changes, words in others:
        with pytest.raises(DataError, match=f"was measured with .*{words}.*give --fresh to start anew"):
            calibrate_pair(open_pair(request(prompts, **changes)), log, watch=Watched(), resume=True)
        assert log.read_bytes() == kept
    skip = frozenset({"acceptance", "proof"})
    fresh = calibrate_pair(
        open_pair(request(prompts, new_tokens=9, skip=skip)), log, watch=Watched(), fresh=True
    )
    assert set(repeats(log).values()) == {5}
    assert lines_of(log)[0]["setup"]["new_tokens"] == 9
    assert (fresh.acceptance, fresh.proof) == ((), ())


def test_a_log_that_somebody_wrote_into_is_refused(
    tmp_path: Path, pair: OpenPair, timed_work: list[float]
) -> None:
    log = tmp_path / "log.jsonl"
    made = calibrate_pair(pair, log, watch=Watched())
    timed_work.clear()
    again = calibrate_pair(pair, log, watch=Watched(), resume=True)
    assert timed_work == [], "what has ended is read"
    assert replace(again, created=made.created) == made
    text = log.read_text(encoding="utf-8")
    for old, new in (('"rule"', '"role"'), ('"step_s"', '"s"'), ('"drift"', '"drifts"')):
        assert old in text
        log.write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(DataError, match=r"log.jsonl: line \d+: a finding is broken: .*give --fresh"):
            calibrate_pair(pair, log, watch=Watched(), resume=True)


BROKEN: list[tuple[str, list[Any], Any, str]] = [
    # kind, path to a value, the value, what is said
    ("timing", ["drift"], 1e300, "drift: must be above -1 and at most 100"),
    ("timing", ["drift"], "x", "drift: 'x' is not a number"),
    ("timing", ["captured"], 0, "captured: must be between 1 and"),
    ("timing", ["skipped"], [[1, "no"]], "skipped: must be a mapping"),
    ("timing", ["warnings"], "none", "warnings: must be a list"),
    ("acceptance", ["rows"], [], "rows: must hold a row of domain all"),
    ("acceptance", ["rows"], "x", "rows: must be a list"),
    ("acceptance", ["temperature"], 1e30, "temperature: must be between 0 and 100"),
    ("acceptance", ["temperature"], 0.5, "rows 1: is of another temperature"),
    ("acceptance", ["top_p"], 0, "top_p: must be above 0"),
    ("acceptance", ["rows", 0, "alpha"], "x", "rows 1: alpha: 'x' is not a number"),
    ("acceptance", ["rows", 0, "alpha"], 7, "rows 1: alpha: must be between 0 and 1"),
    ("acceptance", ["rows", 0, "accepted_at"], [10**7, 1], "accepted_at: must not grow, from the drafts on"),
    ("acceptance", ["rows", 0, "accepted_at"], [1], "accepted_at: must have a count for each of k = 2"),
    ("acceptance", ["rows", 0, "k"], 10**30, "k: must be between 1 and 10000"),
    ("acceptance", ["rows", 0, "positions"], None, "positions: is missing"),
    ("proof", ["batch"], 10**30, "batch: must be between 1 and 1e+09"),
    ("proof", ["plain_s"], 0, "plain_s: must be between"),
    ("proof", ["step_s"], 1e308, "step_s: must be between"),
    ("proof", ["predicted_step_s"], "0.1", "predicted_step_s: "),
    ("proof", ["acceptance_length"], 3.5, "acceptance_length: counts the bonus token"),
]


@pytest.fixture(scope="module")
def finished(pair: OpenPair, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The log of a whole run."""
    log = tmp_path_factory.mktemp("finished") / "log.jsonl"
    with pytest.MonkeyPatch.context() as patch:
        quieten(patch)
        calibrate_pair(pair, log, watch=Watched())
    return log.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("kind", "place", "value", "said"), BROKEN, ids=[f"{row[0]}-{row[3]}" for row in BROKEN]
)
def test_a_finding_that_its_reader_would_refuse_is_one_line(
    tmp_path: Path, pair: OpenPair, finished: str, kind: str, place: list[Any], value: Any, said: str
) -> None:
    lines = [json.loads(line) for line in finished.splitlines()]
    number = next(number for number, line in enumerate(lines) if kind in line)
    inside = lines[number][kind]
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with pytest.raises(DataError) as fault:
        calibrate_pair(pair, log, watch=Watched(), resume=True)
    text = str(fault.value)
    assert text.startswith(f"{log}: line {number + 1}: a finding is broken: ")
    assert said in text
    assert "\n" not in text


def test_prompts_are_read_before_anything_is_timed(tmp_path: Path, timed_work: list[float]) -> None:
    log = tmp_path / "log.jsonl"
    with pytest.raises(AccessError, match=r"nowhere\.txt"):
        open_pair(request(tmp_path / "nowhere.txt"))
    empty = tmp_path / "rows.jsonl"
    empty.write_text('{"messages": [{"role": "user", "content": "a"}]}\n', encoding="utf-8")
    with pytest.raises(DataError, match="the target has no chat template"):
        calibrate_pair(open_pair(request(empty)), log, watch=Watched())
    assert timed_work == []
    assert not log.exists(), "nothing blocks the next run"


def test_a_path_is_the_same_however_it_is_written(
    tmp_path: Path, prompts: Path, pair: OpenPair, timed_work: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log.jsonl"
    with pytest.raises(KeyboardInterrupt):
        calibrate_pair(pair, log, watch=Watched(("timing", 9)))
    monkeypatch.chdir(MICRO.parent)
    relative = request(prompts, target="micro_pair/target", draft="./micro_pair/../micro_pair/draft")
    made = calibrate_pair(open_pair(relative), log, watch=Watched(), resume=True)
    assert made.target == "micro_pair/target"


def test_the_load_of_the_first_run_stays(
    tmp_path: Path, prompts: Path, pair: OpenPair, timed_work: list[float]
) -> None:
    log = tmp_path / "log.jsonl"
    busy, calm = replace(pair, load=5.6), replace(pair, load=0.2)
    with pytest.raises(KeyboardInterrupt):
        calibrate_pair(busy, log, watch=Watched(("timing", 9)))
    made = calibrate_pair(calm, log, watch=Watched(), resume=True)
    assert made.machine["load"] == 5.6
    assert "5.6 processes wanted a core" in next(
        one.text for one in made.warnings if one.code == "busy-machine"
    )
    calmer = calibrate_pair(calm, log, watch=Watched(), fresh=True)
    assert calmer.machine["load"] == 0.2
    assert "busy-machine" not in {one.code for one in calmer.warnings}


@pytest.mark.parametrize(
    ("ends", "kept", "said"),
    [
        ([1e30, -1, "x"], None, "eos_token_id: must be a token id or a list of them, got '1e\\+30'"),
        ([0, "x"], None, "got 'x'"),
        ([True], None, "got 'True'"),
        ([0, -1, 600], (0,), "eos_token_id -1 of the target is outside its vocabulary of 512 tokens"),
        (3, (3,), ""),
        (None, (), ""),
    ],
)
def test_end_tokens_are_token_ids(pair: OpenPair, ends: Any, kept: tuple[int, ...] | None, said: str) -> None:
    from calibrate.opened import end_tokens

    target = copy.copy(pair.target.model)
    target.generation_config = copy.deepcopy(target.generation_config)
    target.generation_config.eos_token_id = ends
    loaded = replace(pair.target, model=target)
    if kept is None:
        with pytest.raises(DataError, match=said):
            end_tokens(loaded, 512)
        return
    found, notes = end_tokens(loaded, 512)
    assert found == kept
    assert [said in note.text for note in notes] == ([True] if said else [])


class FullDisk:
    """A file on a disk that is full."""

    def write(self, text: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def close(self) -> None:
        pass


@pytest.mark.parametrize("lines", [60, 104, 106])
def test_a_full_disk_loses_nothing(
    tmp_path: Path, pair: OpenPair, timed_work: list[float], monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    """In the middle of the passes, between two acceptances, in the proof."""
    log = tmp_path / "log.jsonl"
    append, number = AppendLog.append, itertools.count(1)

    def filling(self: AppendLog, line: Any) -> None:
        if next(number) == lines:
            self._file.close()
            monkeypatch.setattr(self, "_file", FullDisk())
        append(self, line)

    monkeypatch.setattr(AppendLog, "append", filling)
    with pytest.raises(AccessError, match="the disk is full; free some space and resume"):
        calibrate_pair(pair, log, watch=Watched())
    monkeypatch.setattr(AppendLog, "append", append)
    kept = log.read_bytes()
    assert kept.count(b"\n") == lines - 1
    made = calibrate_pair(pair, log, watch=Watched(), resume=True)
    assert log.read_bytes().startswith(kept)
    assert set(repeats(log).values()) == {5}
    assert (counted(log, "timing"), counted(log, "acceptance"), counted(log, "proof")) == (1, 2, 2)
    assert len(made.proof) == 2


# ---------------------------------------------------------------- other pairs


def tiny(folder: Path, name: str, **changes: Any) -> str:
    """`random:FILE` of a Llama of a few thousand parameters."""
    document = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "vocab_size": 61,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 128,
        "tie_word_embeddings": True,
    }
    path = folder / name
    path.mkdir()
    (path / "config.json").write_text(json.dumps(document | changes), encoding="utf-8")
    return f"random:{path / 'config.json'}"


def test_random_weights_have_times_and_coins(tmp_path: Path, prompts: Path, timed_work: list[float]) -> None:
    pair = open_pair(request(prompts, target=tiny(tmp_path, "a"), draft=tiny(tmp_path, "b")))
    watched = Watched()
    made = calibrate_pair(pair, tmp_path / "log.jsonl", watch=watched)
    assert watched.begun == ["timing", "decoding"]
    assert made.acceptance == ()
    (random_weights,) = [advice for advice in made.warnings if advice.code == "random-weights"]
    assert "none was measured; in the proof a coin accepts each token, with α = 0.7" in random_weights.text
    for row in made.proof:
        assert row.acceptance_length == pytest.approx(1 + 0.7 + 0.49, abs=0.3)
    again = open_pair(
        request(prompts, target=pair.request.target, draft=pair.request.draft, skip=frozenset({"proof"}))
    )
    timed = calibrate_pair(again, tmp_path / "other.jsonl", watch=Watched())
    assert timed.proof == ()
    assert timed.warnings[-1].text.endswith("none was measured")


def test_a_lookup_tells_how_often_it_finds_something(
    tmp_path: Path, prompts: Path, timed_work: list[float]
) -> None:
    asked = request(prompts, draft="ngram", temperatures=(0.0, 1.0), new_tokens=48)
    made = calibrate_pair(open_pair(asked), tmp_path / "log.jsonl", watch=Watched())
    assert (made.method, made.draft) == ("ngram", "ngram")
    greedy, warm = [row for row in made.acceptance if row.domain == "all"]
    assert (greedy.rule, warm.rule) == ("arg-max match", "one-hot draft")
    for row in (greedy, warm):
        steps = row.positions - sum(row.accepted_at)
        assert row.match_rate == pytest.approx((row.drafts or 0) / steps)
        assert row.acceptance_length == pytest.approx(row.positions / steps)
    assert 0 < greedy.match_rate < 1
    assert made.match_rate == warm.match_rate
    assert len(made.proof) == 2


def test_a_lookup_searches_texts_of_the_context(prompts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = open_pair(request(prompts, draft="ngram"))
    sizes: list[tuple[int, int, int]] = []
    draft = LookupDrafter.draft

    def noted(self: Any, texts: Any, k: int, *rest: Any) -> Any:
        sizes.append((texts.batch, int(texts.length.max()), k))
        return draft(self, texts, k, *rest)

    monkeypatch.setattr(LookupDrafter, "draft", noted)
    pair.passes().prepare(Place(part="draft", batch=2, width=3, context=32))()
    assert sizes == [(2, 32, 3)]


def test_the_proof_of_a_lookup_counts_the_whole_pass(
    tmp_path: Path, prompts: Path, timed_work: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop carries k + 1 tokens of each text in every step, with a match or without."""
    sources: list[Calibrated] = []

    def noted(arms: Any, source: Calibrated, *rest: Any, **named: Any) -> Any:
        sources.append(source)
        return prove(arms, source, *rest, **named)

    monkeypatch.setattr("calibrate.findings.prove", noted)
    asked = request(prompts, draft="ngram", new_tokens=48)
    made = calibrate_pair(open_pair(asked), tmp_path / "log.jsonl", watch=Watched())
    assert made.match_rate < 1
    assert [source.match_rate for source in sources] == [1]


def test_cells_that_do_not_fit_are_said(tmp_path: Path, prompts: Path, timed_work: list[float]) -> None:
    """The pair takes 512 tokens: of context 508, passes of 5 tokens do not fit, nor does k = 4."""
    asked = request(prompts, contexts=(508,), batches=(1,), ks=(2, 4), skip=frozenset({"acceptance"}))
    pair = open_pair(asked)
    made = calibrate_pair(pair, tmp_path / "log.jsonl", watch=Watched())
    skipped = {(place.part, place.width) for place, _ in made.skipped}
    assert skipped == {("target", 5), ("target", 9)}
    (left_out,) = [advice for advice in made.warnings if advice.code == "cells-left-out"]
    assert left_out.text == (
        "2 cells were left out, first target at batch 1, 5 tokens, context 508: "
        "513 tokens are more than the 512 that the pair takes"
    )
    assert [row.k for row in made.proof] == [2]
    assert proof_places(pair, made) == [(1, 2)]


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"contexts": (600,)}, DataError, "nothing of part target could be timed: 601 tokens are more than"),
        (
            {"new_tokens": 509},
            InputError,
            "new_tokens: must be at most 508, got 509: the pair takes 512 tokens",
        ),
    ],
)
def test_what_fits_nowhere_stops_with_the_reason(
    tmp_path: Path,
    prompts: Path,
    timed_work: list[float],
    changes: dict[str, Any],
    kind: type[Exception],
    words: str,
) -> None:
    with pytest.raises(kind, match=words):
        calibrate_pair(open_pair(request(prompts, **changes)), tmp_path / "log.jsonl", watch=Watched())


def test_little_memory_makes_fewer_texts_at_once(
    tmp_path: Path, prompts: Path, timed_work: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []

    def short(most: int) -> Callable[..., Any]:
        def tried(*args: Any, batch: int, **named: Any) -> Any:
            batches.append(batch)
            if batch > most:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
            return measure_acceptance(*args, batch=batch, **named)

        return tried

    pair = open_pair(request(prompts, temperatures=(0.0,), skip=frozenset({"proof"})))
    monkeypatch.setattr("calibrate.findings.measure_acceptance", short(4))
    made = calibrate_pair(pair, tmp_path / "log.jsonl", watch=Watched())
    assert batches == [16, 4]
    assert made.acceptance
    monkeypatch.setattr("calibrate.findings.measure_acceptance", short(0))
    with pytest.raises(DataError, match="not even one text fits beside the models"):
        calibrate_pair(pair, tmp_path / "other.jsonl", watch=Watched())


def test_a_proof_that_does_not_fit_ends_early(
    tmp_path: Path, prompts: Path, timed_work: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = open_pair(request(prompts, skip=frozenset({"acceptance"})))
    slots = pair.target_runner.slots

    def short(batch: int, length: int) -> Any:
        if batch > 1:
            raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
        return slots(batch, length)

    monkeypatch.setattr(pair.target_runner, "slots", short)
    made = calibrate_pair(pair, tmp_path / "log.jsonl", watch=Watched())
    assert [(row.batch, row.k) for row in made.proof] == [(1, 2)]
    (cut,) = [advice for advice in made.warnings if advice.code == "proof-cut-short"]
    assert cut.text.startswith("decoding end to end at batch 2 did not fit (CUDA out of memory.")


@pytest.mark.parametrize(
    ("batches", "proved"),
    [
        ((1,), [1]),
        ((3, 5), [3, 5]),
        ((1, 2, 4, 8), [1, 2, 8]),
        ((1, 2, 4, 8, 16, 32, 64, 128, 256), [1, 8, 64]),
        ((100, 200), [100]),
    ],
)
def test_the_proof_runs_at_a_small_a_middle_and_a_large_batch(
    pair: OpenPair, batches: tuple[int, ...], proved: list[int]
) -> None:
    made = quiet(0)
    (one,) = [
        cell for cell in made.cells if cell.place == Place(part="target", batch=1, width=1, context=512)
    ]
    cells = tuple(replace(one, place=replace(one.place, batch=batch, context=32)) for batch in batches)
    places = proof_places(pair, replace(made, cells=cells))
    assert places == [(batch, 2) for batch in proved]
