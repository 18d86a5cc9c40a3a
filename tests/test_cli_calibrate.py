"""`specmath calibrate` from the outside: every way, what each refuses, and what goes where."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from transformers import AutoModelForCausalLM

from calibrate.runs import calibrate_runs
from specmath.calibration_files import read_calibration
from specmath.calibrations import Calibration, MeasuredRuns
from specmath.cli import run
from specmath.cli.calibrate_files import write_checked
from specmath.errors import AccessError, DataError
from specmath.files import atomic_write
from tests.fake_engine import FakeEngine, FakeTime
from tests.test_calibrate_history import NOW_S, Server, asked, off_on_day
from tests.test_calibrate_run import tiny

if TYPE_CHECKING:
    from tests.conftest import Web

HERE = Path(__file__).parent
MICRO, RUNS = HERE / "data" / "micro_pair", HERE / "data" / "runs"
PAIR = f"--target {MICRO / 'target'} --draft {MICRO / 'draft'} --device cpu --threads 1"
SMALL = "--quick --batch 1 --context 32 --k 2 --time-limit 1 --new-tokens 8"
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Runs a command line in a folder of its own; returns status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompts.txt").write_text("def f(x):\n    return x\n\nimport os\n", encoding="utf-8")

    def called(line: str) -> tuple[int, str, str]:
        try:
            status = run(line.split())
        except SystemExit as end:
            status = int(str(end.code))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return called


def refused(call: Call, line: str) -> tuple[int, str]:
    """Status and the one line on stderr."""
    status, out, err = call(line)
    assert out == ""
    assert err.count("\n") == 1, err
    assert err.startswith("specmath: error: ")
    return status, err.removeprefix("specmath: error: ").rstrip("\n")


def codes(document: dict[str, Any]) -> set[str]:
    return {advice["code"] for advice in document["warnings"]}


# ---------------------------------------------------------------- a pair


def test_a_pair_from_end_to_end(call: Call, tmp_path: Path) -> None:
    """The file, the document, what stderr says, and the questions that take the file."""
    status, out, err = call(f"calibrate {PAIR} {SMALL} --prompts prompts.txt -o mine.yaml -f json")
    assert status == 0
    assert err.splitlines() == [
        "specmath: loading the models",
        "specmath: timing 10 cells",
        "specmath: acceptance on 2 prompts",
        "specmath: decoding end to end",
    ]
    document = json.loads(out)
    assert document["schema"] == "specmath.calibration/1"
    assert [(row["temperature"], row["batch"], row["k"], row["context"]) for row in document["rows"]] == [
        (0, 1, 2, 32),
        (1, 1, 2, 32),
    ]
    assert document["verdict"].endswith("use it with --measured mine.yaml,temperature=1")
    assert document["rows"][0]["measured"] is None
    assert document["rows"][1]["error"] == pytest.approx(
        document["rows"][1]["predicted"] / document["rows"][1]["measured"] - 1
    )
    assert {"mine.yaml", "mine.yaml.log.jsonl", "prompts.txt"} == {path.name for path in tmp_path.iterdir()}
    assert isinstance(read_calibration(tmp_path / "mine.yaml"), Calibration)

    kept = read_calibration(tmp_path / "mine.yaml")
    assert isinstance(kept, Calibration)
    told = [(one["rule"], one["temperature"], one["domain"], one["alpha"]) for one in document["acceptance"]]
    assert told == [(one.rule, one.temperature, one.domain, one.alpha) for one in kept.acceptance]
    assert sum("acceptance by" in text for text in document["assumptions"]) == 2

    row = document["rows"][1]
    for question in ("speedup --k 2 --batch 1", "crossover --k 2", "schedule --batches 1=1"):
        status, out, err = call(f"{question} --context 32 --measured mine.yaml,temperature=1 -f json")
        assert status == 0, err
        answer = json.loads(out)
        assert answer["inputs"]["calibration"] == "mine.yaml"
        if question.startswith("speedup"):
            assert answer["rows"][0]["speedup"] == pytest.approx(row["speedup"])
            assert answer["rows"][0]["breakeven_acceptance_length"] == pytest.approx(
                row["breakeven_acceptance_length"]
            )
    status, message = refused(call, "speedup --k 2 --batch 1 --measured mine.yaml")
    assert "choose one after the file, as in mine.yaml,temperature=0" in message

    # what is done is done: a run that resumes measures nothing, and a new one begins anew
    log = (tmp_path / "mine.yaml.log.jsonl").read_bytes()
    status, out, err = call(f"calibrate {PAIR} {SMALL} --prompts prompts.txt -o mine.yaml --resume")
    replaced = re.compile(
        r"specmath: mine\.yaml holds the calibration of 20[-0-9T:+]+, which this run replaces"
    )
    first, *said = err.splitlines()
    assert replaced.fullmatch(first)
    assert (status, said) == (0, ["specmath: loading the models"])
    assert (tmp_path / "mine.yaml.log.jsonl").read_bytes() == log
    status, _, err = call(f"calibrate {PAIR} {SMALL} --skip acceptance,proof -o mine.yaml")
    assert (status, err.splitlines()[2:]) == (0, ["specmath: timing 10 cells"])
    assert (tmp_path / "mine.yaml.log.jsonl").read_bytes() != log


def test_random_weights_on_a_narrow_terminal(call: Call, tmp_path: Path) -> None:
    pair = f"--target {tiny(tmp_path, 'a')} --draft {tiny(tmp_path, 'b')} --device cpu --threads 1"
    status, out, err = call(f"calibrate {pair} {SMALL} -f csv")
    assert status == 0
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["temperature"], row["acceptance_length"], row["speedup"]) == ("", "", "")
    assert float(row["measured"]) > 0
    assert err.count("the weights are random") == 1
    assert "assumes: calibrated: 10 cells of " in err
    assert "specmath: acceptance" not in err
    assert (tmp_path / "calibration.yaml").exists()

    status, message = refused(call, "speedup --k 2 --batch 1 --context 32 --measured calibration.yaml")
    assert "--alpha: is missing: calibration.yaml holds no acceptance" in message
    assert call("speedup --alpha .7 --k 2 --batch 1 --context 32 --measured calibration.yaml")[0] == 0

    command = [sys.executable, "-m", "specmath", *f"calibrate {pair} {SMALL} --resume".split()]
    status, shown = on_a_terminal(command, tmp_path, columns=60)
    assert status == 0, shown
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", shown).splitlines()
    assert max(map(len, lines[1:])) <= 60
    header = next(line for line in lines if line.startswith("batch"))
    assert header.split()[:2] == ["batch", "k"]
    assert "error" in header
    assert any(line.startswith("left out for want of width: ") for line in lines)


def on_a_terminal(command: list[str], folder: Path, columns: int) -> tuple[int, str]:
    """Status and screen of a command whose stdout and stderr are a terminal."""
    controller, terminal = os.openpty()
    environment = os.environ | {"COLUMNS": str(columns), "TERM": "xterm", "NO_COLOR": "1"}
    environment |= {"PYTHONPATH": str(HERE.parent), "PYTHONIOENCODING": "utf-8"}
    screen = b""
    with subprocess.Popen(command, stdout=terminal, stderr=terminal, cwd=folder, env=environment) as process:
        os.close(terminal)
        with suppress(OSError):  # a terminal whose other end is closed
            while piece := os.read(controller, 4096):
                screen += piece
    os.close(controller)
    return process.returncode, screen.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_names_the_way_on(tmp_path: Path, number: signal.Signals) -> None:
    line = f"calibrate {PAIR} {SMALL} --skip acceptance,proof --batch 1,2,3,4,5,6 --time-limit 600"
    log = tmp_path / "calibration.yaml.log.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "specmath", *line.split()],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
    ) as process:
        until = time.monotonic() + 60
        while not (log.exists() and log.read_bytes().count(b"\n") > 20) and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert err.splitlines()[-1] == (
        "specmath: error: interrupted; calibration.yaml.log.jsonl keeps what is done, --resume takes it up"
    )


def test_a_resume_without_a_log_is_said(call: Call, tmp_path: Path) -> None:
    status, _, err = call(f"calibrate {PAIR} {SMALL} --skip acceptance,proof -o new.yaml --resume")
    assert status == 0
    assert err.splitlines()[0] == (
        "specmath: new.yaml.log.jsonl is not there: nothing to take up, a new run begins"
    )


def test_where_the_file_would_lie_is_tried_first(call: Call, tmp_path: Path) -> None:
    """Before models are loaded, and before a server is asked."""
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "full.yaml").symlink_to("/dev/full")
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "other.yaml").write_text("schema: somebody.else/1\nname: kept\n", encoding="utf-8")
    (tmp_path / "text.yaml").write_text("no: [yaml", encoding="utf-8")
    cases = {
        "folder": "is a folder; give the name of a file in it",
        "full": "is no regular file; choose another path",
        "pipe": "is no regular file; choose another path",
        "other": "is no calibration, and would be lost; choose another path",
        "text": "is no calibration, and would be lost; choose another path",
    }
    for way in (PAIR, "--server http://127.0.0.1:9", f"--runs {RUNS}/tensorrt_llm_r1_mtp.csv"):
        for name, said in cases.items():
            assert refused(call, f"calibrate {way} -o {name}.yaml") == (1, f"{name}.yaml: {said}")
    assert (tmp_path / "other.yaml").read_text(encoding="utf-8").endswith("kept\n")
    (tmp_path / "empty.yaml").touch()
    assert call(f"calibrate --runs {RUNS}/tensorrt_llm_r1_mtp.csv -o empty.yaml")[0] == 0


def test_a_folder_that_takes_no_file_is_named(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    status, said = refused(call, f"calibrate {PAIR} -o a.yaml")
    assert (status, said) == (1, "a.yaml: cannot be written (Read-only file system); choose another path")


def test_what_its_reader_refuses_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    good = calibrate_runs(str(RUNS / "tensorrt_llm_r1_mtp.csv"))
    write_checked(good, path)
    kept = path.read_bytes()
    bad = replace(good, runs=(replace(good.runs[0], batch=2 * 10**9),))
    with pytest.raises(DataError, match=r"a\.yaml: is not written, as nothing would read it: .*batch"):
        write_checked(bad, path)
    assert path.read_bytes() == kept
    assert [one.name for one in tmp_path.iterdir()] == ["a.yaml"]


def test_a_lookup_and_a_sigint(call: Call, tmp_path: Path) -> None:
    """A real Ctrl-C in the middle of the passes; what was measured counts in the run that resumes."""
    pair = f"--target {MICRO / 'target'} --draft ngram --device cpu --threads 1 --skip proof"
    line = f"calibrate {pair} --prompts prompts.txt --temperature 0 {SMALL} -o mine.yaml"
    log = tmp_path / "mine.yaml.log.jsonl"
    command = [sys.executable, "-m", "specmath", *line.replace("--time-limit 1", "--time-limit 600").split()]
    command = [*command, "--batch", "1,2,3,4,5,6,7,8"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(HERE.parent)},
    ) as process:
        until = time.monotonic() + 60
        while not (log.exists() and log.read_bytes().count(b"\n") > 20) and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert out == ""
    assert err.splitlines()[2:] == [
        "specmath: error: interrupted; mine.yaml.log.jsonl keeps what is done, --resume takes it up"
    ]
    kept = log.read_bytes()
    assert not (tmp_path / "mine.yaml").exists()

    status, message = refused_after_loading(call, line)
    assert (status, "is the log of a run that did not end; give --resume" in message) == (1, True)
    status, message = refused_after_loading(call, f"{line} --resume --seed 3")
    assert (
        "was measured with seed '0', not '3'; give --fresh to start anew, or another file with -o" in message
    )

    status, out, err = call(f"{line} --resume -f json")
    assert status == 0, err
    assert log.read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])
    document = json.loads(out)
    assert document["inputs"]["method"] == "ngram"
    made = read_calibration(tmp_path / "mine.yaml")
    assert isinstance(made, Calibration)
    (everything,) = [row for row in made.acceptance if row.domain == "all"]
    assert made.match_rate == everything.match_rate
    answer = json.loads(call("speedup --k 2 --batch 1 --context 32 --measured mine.yaml -f json")[1])
    assert answer["rows"][0]["acceptance_length"] == pytest.approx(everything.acceptance_length)
    assert answer["inputs"]["match_rate"] == pytest.approx(everything.match_rate)


def refused_after_loading(call: Call, line: str) -> tuple[int, str]:
    status, out, err = call(line)
    assert out == ""
    loading, message = err.splitlines()
    assert loading == "specmath: loading the models"
    return status, message


def test_a_full_disk_at_the_end_loses_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> Any:
        raise AccessError(str(path), "the disk is full")

    line = f"calibrate {PAIR} {SMALL} --skip acceptance,proof"
    monkeypatch.setattr("specmath.calibration_files.atomic_write", full)
    status, out, err = call(line)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == "specmath: error: calibration.yaml: the disk is full"
    monkeypatch.setattr("specmath.calibration_files.atomic_write", atomic_write)
    assert not (tmp_path / "calibration.yaml").exists()
    log = (tmp_path / "calibration.yaml.log.jsonl").read_bytes()
    assert refused_after_loading(call, line)[0] == 1
    status, _, err = call(f"{line} --resume")
    assert (status, err) == (0, "specmath: loading the models\n")
    assert (tmp_path / "calibration.yaml.log.jsonl").read_bytes() == log
    assert read_calibration(tmp_path / "calibration.yaml")


def test_a_draft_of_another_vocabulary_stops_before_anything_is_measured(call: Call, tmp_path: Path) -> None:
    draft = tmp_path / "draft"
    draft.mkdir()
    for file in (MICRO / "draft").iterdir():
        (draft / file.name).write_bytes(file.read_bytes())
    tokenizer = json.loads((draft / "tokenizer.json").read_text(encoding="utf-8"))
    ids = tokenizer["model"]["vocab"]
    first, second = (token for token, number in ids.items() if number in (300, 301))
    ids[first], ids[second] = ids[second], ids[first]
    (draft / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    status, message = refused_after_loading(
        call, f"calibrate --target {MICRO / 'target'} --draft {draft} --device cpu {SMALL}"
    )
    assert status == 1
    assert "does not speak the language of" in message
    assert "2 tokens have other ids" in message
    assert [path.name for path in tmp_path.glob("calibration*")] == []


# ---------------------------------------------------------------- dry run


@pytest.fixture
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a dry run builds no model")

    for name in ("from_pretrained", "from_config"):
        monkeypatch.setattr(AutoModelForCausalLM, name, refuse)


def test_a_dry_run_measures_nothing(call: Call, nothing_is_built: None, tmp_path: Path) -> None:
    line = f"calibrate {PAIR} --batch 1,2 --context 32,600 --k 2 --dry-run"
    status, out, err = call(line)
    assert (status, err) == (0, "")
    verdict = out.splitlines()[0]
    assert " cells on " in verdict
    assert " MB at most, about " in verdict
    assert " do not fit" in verdict
    assert "601 to 616 tokens are more than the 512 that the pair takes" in out
    assert "of timing, acceptance and proof" in out
    document = json.loads(call(f"{line} -f json")[1])
    assert document["schema"] == "specmath.calibration_plan/1"
    assert document["inputs"]["memory_bytes"] > 4e6
    assert {row["part"] for row in document["rows"]} == {"target", "draft", "plain-host", "step-host"}
    assert [path.name for path in tmp_path.iterdir()] == ["prompts.txt"]


def test_the_help_says_what_to_install(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    status, out, _ = call("calibrate --help")
    assert status == 0
    assert "pip install 'specmath[calibrate]'" in out
    assert "[default: 90, with --quick 20]" in out


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("", 2, "--target: is missing; give --target and --draft, or --server, --runs or --history"),
        ("--target a", 2, "--draft: is missing beside --target; ngram looks drafts up in the text"),
        ("--draft a", 2, "--target: is missing beside --draft"),
        ("--target a --draft b --runs c", 2, "--target: excludes --runs: calibrate one of them at a time"),
        ("--runs a --history b", 2, "--runs: excludes --history: calibrate one of them at a time"),
        ("--runs a --batch 1", 2, "--batch: means nothing beside --runs; leave it out"),
        ("--runs a --quick", 2, "--quick: means nothing beside --runs; leave it out"),
        ("--runs a --seed 1", 2, "--seed: means nothing beside --runs; leave it out"),
        ("--server a --dry-run", 2, "--dry-run: means nothing beside --server; leave it out"),
        ("--server a --skip proof", 2, "--skip: means nothing beside --server; leave it out"),
        ("--history a --baseline b", 2, "--baseline: means nothing beside --history; leave it out"),
        (
            "--target a --draft b --concurrency 2",
            2,
            "--concurrency: means nothing beside --target and --draft",
        ),
        ("--target a --draft b --set-up c", 2, "--set-up: means nothing beside --target and --draft"),
        ("--target a --draft b --resume --fresh", 2, "--resume: excludes --fresh"),
        ("--target a --draft b --skip times", 2, "--skip: must be of acceptance, proof, got 'times'"),
        ("--target a --draft b --k 99", 2, "--k: must be at most 64, got 99"),
        ("--target a --draft b --k two", 2, "--k: "),
        ("--target a --draft b --new-tokens 2", 2, "--new-tokens: "),
        ("--target a --draft b --time-limit 0", 2, "--time-limit: "),
        ("--target a --draft b --top-p 0", 2, "--top-p: "),
        ("--target a --draft b --regime fast", 2, "--regime: must be one of eager, cuda-graph, compile"),
        ("--target a --draft b -o a.json", 2, "--output: must end in .yaml or .yml, got a.json"),
        ("--target a --draft b -o no/a.yaml", 1, "no/a.yaml: the folder does not exist"),
        ("--target random:lama-3.1-8b --draft ngram --dry-run", 1, "unknown model 'lama-3.1-8b'; nearest: "),
        ("--target no-such/folder/x --draft ngram --dry-run", 1, "no-such/folder/x: no such folder"),
        ("--runs missing.csv", 1, "missing.csv: "),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(call: Call, line: str, status: int, message: str) -> None:
    found, said = refused(call, f"calibrate {line}")
    assert (found, said[: len(message)]) == (status, message)


# ---------------------------------------------------------------- from outside


@pytest.mark.parametrize(
    ("file", "constants"),
    [
        ("vllm_20780.csv --set-up method=eagle", (1.087, 0.105)),
        ("vllm_20780.csv --set-up method=eagle3", (1.181, 0.144)),
        ("tensorrt_llm_r1_mtp.csv", (0.987, 0.085)),
    ],
)
def test_published_runs_give_their_constants(
    call: Call, tmp_path: Path, file: str, constants: tuple[float, float]
) -> None:
    status, out, err = call(f"calibrate --runs {RUNS}/{file} -f json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["schema"] == "specmath.measured_runs/1"
    for row in document["rows"]:
        assert (row["fixed_cost"], row["draft_cost"]) == pytest.approx(constants, abs=5.1e-4)
        assert row["line_error"] < 0.03
        assert row["left_out_error"] < 0.05
    assert f"v + o is {constants[0]:.3f} and c {constants[1]:.3f}" in document["verdict"]
    assert [path.name for path in tmp_path.iterdir()] == ["prompts.txt"], "a file only where one is named"


def test_runs_are_kept_where_a_file_is_named(call: Call, tmp_path: Path) -> None:
    status, out, _ = call(f"calibrate --runs {RUNS}/tensorrt_llm_r1_mtp.csv -o runs.yaml")
    assert status == 0
    assert "use them with --measured runs.yaml" in out
    made = read_calibration(tmp_path / "runs.yaml")
    assert isinstance(made, MeasuredRuns)
    assert [one.k for one in made.runs] == [1, 2, 3, 4, 5]
    question = "speedup --k 3 --batch 1 --context 2048 --target deepseek-v3 --draft mtp --measured runs.yaml"
    status, _, err = call(f"{question} -f json")
    assert status == 0, err


def test_a_live_server(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from calibrate.serving import server

    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    clock, measure_server = FakeTime(), server.measure_server
    fast = FakeEngine(clock, k=2, accepts=(0.7, 0.6), step_s=lambda batch: 0.013 + 0.002 * batch)
    slow = FakeEngine(clock, step_s=lambda batch: 0.010 + 0.001 * batch, seed=2)

    def measured(*args: Any, progress: Any, **named: Any) -> Any:
        def told(state: Any) -> None:
            for engine in (fast, slow):
                engine.together = state.concurrency
            progress(state)

        return measure_server(*args, progress=told, clock=clock, wait=lambda _: None, **named)

    monkeypatch.setattr(server, "measure_server", measured)
    try:
        status, out, err = call(
            f"calibrate --server {fast.url} --baseline {slow.url} --concurrency 2 --new-tokens 24 -f json"
        )
    finally:
        fast.close()
        slow.close()
    assert status == 0, err
    document = json.loads(out)
    assert [(row["k"], row["batch"]) for row in document["rows"]] == [(2, 1), (2, 2)]
    for row in document["rows"]:
        assert row["target_s"] == pytest.approx(0.010 + 0.001 * row["batch"])
        assert row["step_s"] == pytest.approx(0.013 + 0.002 * row["batch"])
        assert 1 < row["acceptance_length"] < 3
    bounds, *said = err.splitlines()
    assert bounds.startswith("specmath: at most ")
    assert [line.rpartition(": ")[2] for line in said] == [f"{batch} at a time" for batch in (1, 1, 2, 2)], (
        "each level of each server once"
    )
    made = read_calibration(tmp_path / "calibration.yaml")
    assert isinstance(made, MeasuredRuns)
    assert made.origin == "server"


def test_weeks_of_metrics(call: Call, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: NOW_S)
    source = asked(web, Server(off_on_day(3), days=8), days=8)
    status, out, err = call(f"calibrate --history {source} --k 3 --context 700 -f json")
    assert status == 0, err
    assert err == "specmath: asking Prometheus\n"
    document = json.loads(out)
    assert document["inputs"]["origin"] == "history"
    assert {row["k"] for row in document["rows"]} == {3}
    assert any("a step with k = 3, E = 2.5" in text for text in document["assumptions"])


# ---------------------------------------------------------------- without torch

WITHOUT_TORCH = """
import sys
from importlib.machinery import PathFinder

class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "safetensors"):
            return None
        return super().find_spec(name, path, target)

sys.meta_path[:] = [Without if finder is PathFinder else finder for finder in sys.meta_path]
try:
    import torch
except ModuleNotFoundError:
    pass
else:
    raise SystemExit("torch is there")
from specmath.cli import main
main(sys.argv[1:])
"""


def without_torch(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, "-c", WITHOUT_TORCH, *line.split()]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment, check=False, timeout=60
    )


@pytest.mark.parametrize("dry", ["", " --dry-run"])
def test_a_pair_without_torch_says_what_to_install(tmp_path: Path, dry: str) -> None:
    done = without_torch(tmp_path, f"calibrate {PAIR}{dry}")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "specmath: error: torch: is not installed; pip install 'specmath[calibrate]', "
        "or calibrate a server with --server\n"
    )


def test_the_other_ways_need_no_torch(tmp_path: Path, web: Web) -> None:
    done = without_torch(tmp_path, f"calibrate --runs {RUNS}/tensorrt_llm_r1_mtp.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert "v + o is 0.987 and c 0.085" in done.stdout

    web.serve("/api/v1/query_range", {"status": "success", "data": {"resultType": "matrix", "result": []}})
    done = without_torch(tmp_path, f"calibrate --history prometheus:{web.url}?range=1d&step=30m")
    assert done.returncode == 1
    assert done.stderr.startswith(f"specmath: asking Prometheus\nspecmath: error: {web.url}")
    assert done.stderr.count("\n") == 2

    done = without_torch(tmp_path, "calibrate --server http://127.0.0.1:9")
    assert done.returncode == 1
    assert "http://127.0.0.1:9" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
