"""The command line from the outside: answers, exit statuses, one-line errors, files whole or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run
from specmath.forecast import SpeedupTable

PROGRAM = [sys.executable, "-c", "from specmath.cli import main; main()"]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line; returns status, stdout and stderr."""

    def called(line: str) -> tuple[int, str, str]:
        status = run(line.split())
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return called


def rows_of(text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(text)["rows"]
    return rows


def test_the_main_job_needs_no_other_option(call: Call) -> None:
    status, out, err = call("speedup --alpha 0.7 --k 4 --batch 64 -f json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["schema"] == "specmath.speedup/1"
    cases = ["typical", "ideal", "memory_bound", "compute_bound"]
    assert [row["case"] for row in document["rows"]] == cases
    forecast, ideal = document["rows"][:2]
    assert document["verdict"].startswith(f"FASTER: {forecast['speedup']:.2f}×, range ")
    assert forecast["speedup_low"] < forecast["speedup"] < forecast["speedup_high"]
    assert forecast["speedup"] < ideal["speedup"] == pytest.approx(2.43, abs=0.005)
    assert ideal["acceptance_length"] == pytest.approx(2.7731, rel=1e-12)
    assert ideal["speedup_low"] is None
    assert document["inputs"]["hardware"] == "h100-sxm"
    assert document["inputs"]["target"] == "70B"
    assert "h100-sxm" in document["assumptions"][0]
    assert document["warnings"][0]["code"] == "more-devices"
    assert set(document["warnings"][0]) == {"code", "text", "remedy"}


def test_markdown_is_what_a_pipe_gets(call: Call) -> None:
    status, out, _ = call("speedup --alpha 0.7 --k 4 --batch 64")
    assert status == 0
    assert out == call("speedup --alpha 0.7 --k 4 --batch 64 -f md")[1]
    assert out.startswith("**FASTER: 1.")
    assert "\x1b" not in out


def test_lists_and_ranges_make_their_product(call: Call) -> None:
    _, out, err = call("speedup --alpha 0.5:0.9:0.2 --k 1,4 --batch 1:64:x8 -f csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    ideal = [(row["alpha"], row["k"], row["batch"]) for row in rows if row["case"] == "ideal"]
    assert ideal == [(a, k, b) for a in ("0.5", "0.7", "0.9") for k in ("1", "4") for b in ("1", "8", "64")]
    assert "assumes: typical: a serving engine" in err


def test_typed_ratios_give_one_case_and_the_best_k(call: Call) -> None:
    _, out, _ = call("speedup --alpha 0.7 --k 4 --c 0.05 --verify-cost 1+.1k -f json")
    (row,) = rows_of(out)
    assert row["case"] == "ratios"
    assert row["speedup"] == pytest.approx(2.7731 / 1.6, rel=1e-12)
    assert row["best_k"] == 3
    assert row["target_s"] is None


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("calibrate --server foo", "--server: foo is no address"),
        ("calibrate --server http://localhost:1 --baseline foo", "--baseline: foo is no address"),
        (
            "calibrate --server http://localhost:1 --new-tokens 3",
            "--new-tokens: must be a whole number from 8",
        ),
        (
            "calibrate --server http://localhost:1 --time-limit -1",
            "--time-limit: must be between 0 and 86400",
        ),
        ("calibrate --history prometheus:", "--history: http:// is no address"),
        ("calibrate --history prometheus:http://localhost:1 --k 0", "--k: must be a whole number from 1"),
        ("speedup --from prometheus:", "--from: http:// is no address"),
        ("alpha prometheus:", "SOURCE: http:// is no address"),
    ],
)
def test_a_fault_names_the_option_that_was_typed(call: Call, line: str, typed: str) -> None:
    status, _, err = call(line)
    assert status == 2
    assert err.splitlines()[-1].startswith(f"specmath: error: {typed}")


@pytest.mark.parametrize(
    ("options", "length"),
    [
        ("--alpha 0.5 --k 2", 1.75),
        ("--acceptance-length 1.75 --k 2", 1.75),
        ("--accepted-over-drafted 0.375 --k 2", 1.75),
        ("--rates .5/.5 --k 2", 1.75),
        ("--rates .5/.25 --rates-kind survival --k 2", 1.75),
        ("--beta 1/1 --k 2", 1 + 1 / 2 + 1 / 3),
        ("--ranks .5/.25 --tree-nodes 3 --k 2", 1 + 0.5 + 0.25 + 0.25),
        ("--ranks .5/.25 --tree-branching 2/1 --k 2", 1 + 0.75 + 0.375),
        ("--alpha-at 0=1,15=0 --context 3 --k 4", 3),
        ("--alpha 0.5 --match-rate 0.5 --k 2", 1.375),
    ],
)
def test_every_way_to_give_an_acceptance(call: Call, options: str, length: float) -> None:
    status, out, _ = call(f"tokens {options} -f json")
    assert status == 0
    assert rows_of(out)[0]["acceptance_length"] == pytest.approx(length, rel=1e-9)


def test_a_lookup_draft_runs_no_model(call: Call) -> None:
    _, out, _ = call("speedup --alpha 0.9 --match-rate 0.4 --k 8 -f json")
    forecast, ideal = rows_of(out)[:2]
    assert 0 < forecast["draft_cost"] < 1e-3, "the host looks tokens up"
    assert ideal["draft_cost"] == 0
    assert json.loads(out)["inputs"]["draft"] == "ngram lookup"
    assert json.loads(out)["inputs"]["draft_weight_bytes"] is None


def test_crossover_of_the_textbook_pair(call: Call) -> None:
    status, out, _ = call("crossover --alpha 0.8 --k 4 --engine ideal -f json")
    (row,) = rows_of(out)
    assert status == 0
    assert row["wins"] == "below"
    assert row["breakeven_batch"] == pytest.approx(195.18, abs=0.01)
    assert row["winning_batches"] == [[1, 195]]
    assert row["critical_context"] is row["max_batch"] is None


def test_show_hardware_lists_all_and_tells_one(call: Call) -> None:
    _, out, _ = call("show hardware -f json")
    assert len(rows_of(out)) == 65
    _, out, _ = call("show hardware H100_SXM -f md")
    for fact in ("3.35 TB/s", "450 GB/s", "high", "295.3", "NVIDIA H100 Tensor Core GPU data sheet"):
        assert fact in out, fact


@pytest.mark.parametrize(
    ("line", "status", "facts"),
    [
        ("speedup --alpha 1.3", 2, ["--alpha", "between 0 and 1", "1.3"]),
        ("speedup --alpha nan", 2, ["--alpha", "nan"]),
        ("speedup --alpha ,", 2, ["--alpha"]),
        ("speedup --alpha 0.7 --k 2.5", 2, ["--k", "2.5", "whole number"]),
        ("speedup --alpha 0.7 --k -1", 2, ["--k", "-1"]),
        ("speedup --alpha 0.7 --batch 0", 2, ["--batch", "from 1 to 1000000000"]),
        ("speedup --alpha 0.7 --batch 8:1", 2, ["--batch", "8:1"]),
        ("speedup --alpha 0.7 --alpha-at 2k=.5", 2, ["--alpha", "--alpha-at", "exclude"]),
        ("speedup --k 4", 2, ["--alpha", "--acceptance-length", "--beta"]),
        ("speedup --acceptance-length 2.8 --k 3,4", 2, ["--k", "one k"]),
        ("speedup --acceptance-length 9 --k 4", 2, ["--acceptance-length", "between 1 and 5", "bonus"]),
        ("speedup --rates .8/.7 --k 3", 2, ["--k", "2 positions"]),
        ("speedup --rates .8/.7 --rates-kind odd --k 2", 2, ["--rates-kind", "odd"]),
        ("speedup --alpha 0.7 --rates-kind survival", 2, ["--rates-kind", "--rates"]),
        ("speedup --alpha 0.7 --tree-nodes 8", 2, ["--tree-nodes", "--ranks"]),
        ("speedup --ranks .6/.2", 2, ["--tree-nodes", "--tree-branching"]),
        ("speedup --beta 5", 2, ["--beta", "5.6/2.3"]),
        ("speedup --alpha 0.7 --c 0.1 --hardware h200-sxm", 2, ["--hardware", "--draft-cost"]),
        ("speedup --alpha 0.7 --verify-cost 2", 2, ["--draft-cost", "missing"]),
        ("speedup --alpha 0.7 --c -1", 2, ["--draft-cost"]),
        ("speedup --alpha 0.7 --match-rate 0.5 --draft 1B", 2, ["--draft", "--match-rate"]),
        ("speedup --alpha 0.7 --target 13B/47B", 2, ["--target", "at most the total of 13,000,000,000"]),
        ("speedup --alpha 0.7 --context 8k", 2, ["--context", "70B is known by its counts alone"]),
        ("speedup --alpha 0.7 --hardware t4", 2, ["--dtype", "bf16", "fp16"]),
        ("speedup --alpha 0.7 --dtype bf15", 2, ["--dtype", "bf15", "fp16"]),
        ("speedup --alpha 0.7 --hardware h100-smx", 1, ["h100-smx", "h100-sxm"]),
        ("speedup --alpha 0.7 --hardware-file /no/such.yaml", 1, ["/no/such.yaml"]),
        ("speedup --alpha 0.7 -f pdf", 2, ["--format", "pdf", "latex"]),
        ("speedup --alpha 0.7 -o x.pdf", 2, ["--output", "x.pdf", ".parquet"]),
        ("speedup --alpha 0.7 -o /no/folder/x.csv", 1, ["/no/folder/x.csv"]),
        ("speedup --alpha 0:1:0.0001 -f md", 2, ["--format", "10,000", "csv"]),
        ("speedup --alhpa 0.7", 2, ["--alhpa", "--alpha"]),
        ("sped", 2, ["sped"]),
        ("crossover --alpha 0.7 --c 0.1", 2, ["--draft-cost", "batch"]),
        ("crossover --alpha 0.7 --k 0", 2, ["--k", "from 1 to 10000"]),
        ("crossover --alpha 0.7 --batch 1,2", 2, ["--batch", "one value"]),
        ("show hardware h100", 1, ["h100", "h100-sxm", "h100-pcie"]),
        ("show hardware --vendor nvidai", 1, ["nvidai", "nvidia"]),
    ],
)
def test_a_fault_is_one_line_that_names_what_and_where(
    call: Call, line: str, status: int, facts: list[str]
) -> None:
    told, out, err = call(line)
    assert (told, out) == (status, "")
    assert err.startswith("specmath: error: ")
    assert err.count("\n") == 1
    for fact in facts:
        assert fact in err


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        run(["speedup", "--alpha", "1.3", "--debug"])


def test_at_least_exits_3_below_it(call: Call) -> None:
    assert call("speedup --alpha 0.7 --batch 64 --at-least 2.4 --engine ideal")[0] == 0
    status, out, err = call("speedup --alpha 0.7 --batch 64,256 --at-least 1.2 --engine ideal")
    assert status == 3
    assert "SLOWER" in out
    assert "0.63" in err
    assert "--at-least 1.2" in err


def test_at_least_judges_the_low_end_of_a_range(call: Call) -> None:
    row = rows_of(call("speedup --alpha 0.7 --batch 64 -f json")[1])[0]
    between = (row["speedup_low"] + row["speedup"]) / 2
    assert call(f"speedup --alpha 0.7 --batch 64 --at-least {between}")[0] == 3
    assert call(f"speedup --alpha 0.7 --batch 64 --at-least {row['speedup_low'] * 0.999}")[0] == 0


def test_a_file_is_written_in_the_format_of_its_ending(call: Call, tmp_path: Path) -> None:
    for ending in ("csv", "json", "md", "tex", "html", "txt"):
        path = tmp_path / f"x.{ending}"
        status, out, _ = call(f"speedup --alpha 0.7 --batch 64 -o {path}")
        assert (status, out) == (0, "")
        assert "2.43" in path.read_text(encoding="utf-8")


def test_the_format_option_serves_an_ending_that_tells_none(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "rows.out"
    assert call(f"speedup --alpha 0.7 --batch 64 -f csv -o {path}")[0] == 0
    assert path.read_text(encoding="utf-8").startswith("case,alpha,law,k,batch")
    status, _, err = call(f"speedup --alpha 0.7 -f json -o {tmp_path / 'x.csv'}")
    assert (status, list(tmp_path.glob("x.csv"))) == (2, [])
    assert "--format" in err
    assert "csv" in err


def test_a_dash_is_stdout(call: Call) -> None:
    assert call("tokens --alpha 0.7 -o - -f csv")[1].startswith("alpha,law,k")


def test_parquet_comes_back_as_the_same_rows(call: Call, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "grid.parquet"
    assert call(f"speedup --alpha 0.5:0.9:0.1 --k 1:4 --batch 1,64 -o {path}")[0] == 0
    frame = pandas.read_parquet(path)
    assert list(frame.columns) == list(SpeedupTable.keys)
    assert len(frame) == 5 * 4 * 2 * 4
    ideal = frame[frame["case"] == "ideal"]
    assert ideal["speedup"].iloc[0] == pytest.approx(1.5 / (1 + 1 / 70), rel=1e-12)


def test_a_failure_leaves_the_old_file_alone(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "kept.md"
    path.write_text("mine", encoding="utf-8")
    assert call(f"speedup --alpha 0:1:0.0001 -o {path}")[0] == 2
    assert path.read_text(encoding="utf-8") == "mine"
    assert [found.name for found in tmp_path.iterdir()] == ["kept.md"]


def test_an_overlay_is_used(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = tmp_path / "mine.yaml"
    overlay.write_text(
        "accelerators:\n  my-h100:\n    base: h100-sxm\n    title: mine\n    memory: {bytes_per_s: 2.0e+12}\n"
        "    confidence: medium\n    sources: [run]\nsources:\n  run: {title: own run, kind: measurement}\n",
        encoding="utf-8",
    )
    _, out, _ = call(f"speedup --alpha 0.7 --hardware my-h100 --hardware-file {overlay} -f json")
    assert json.loads(out)["inputs"]["memory_bytes_per_s"] == 2e12
    monkeypatch.setenv("SPECMATH_HARDWARE", str(overlay))
    _, out, _ = call("show hardware my-h100 -f json")
    assert json.loads(out)["inputs"]["hardware"] == "my-h100"


def test_version_and_help(call: Call) -> None:
    assert call("--version")[1].startswith("specmath 0.")
    status, out, _ = call("--help")
    assert status == 0
    for command in ("tokens", "speedup", "crossover", "schedule", "show"):
        assert command in out
        help_status, page, _ = call(f"{command} -h" if command != "show" else "show hardware -h")
        assert help_status == 0
        assert "Usage" in page
    for command in ("tokens", "speedup", "crossover", "schedule"):
        assert call(f"{command} --help")[1].count("$ specmath") == 2, "two worked examples"


def test_a_reader_that_stops_early_is_no_error() -> None:
    line = "speedup --alpha 0:1:0.0001 --k 1:8 -f csv"
    process = subprocess.Popen([*PROGRAM, *line.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 0
    assert b"Traceback" not in errors


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*PROGRAM, "tokens", "--alpha", "0.7"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr.decode().count("\n") == 1
    assert b"space" in done.stderr


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_escape_codes_where_none_are_wanted(setting: dict[str, str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")}
    done = subprocess.run(
        [*PROGRAM, "speedup", "--alpha", "0.7", "-f", "table"],
        env=environment | setting,
        capture_output=True,
        check=True,
    )
    assert b"\x1b" not in done.stdout


def test_explain_adds_the_derivation_and_all_assumptions(call: Call) -> None:
    _, short, _ = call("speedup --alpha 0.7 --k 4 --batch 64 -f md")
    _, long, _ = call("speedup --alpha 0.7 --k 4 --batch 64 -f md --explain")
    assert "with --explain" in short
    assert "compute_bound: both passes free of bytes" in long
    assert "S = E / R = 2.7731 / " in long
    assert "R lies between" in long


def test_python_dash_m_runs_it() -> None:
    done = subprocess.run([sys.executable, "-m", "specmath", "--version"], capture_output=True, check=True)
    assert done.stdout.startswith(b"specmath ")


@pytest.mark.parametrize("form", ["csv", "json", "md"])
def test_an_error_leaves_stdout_empty(call: Call, form: str) -> None:
    status, out, err = call(f"speedup --alpha 0.7 --context 1 -f {form}")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1


def test_a_closed_stdout_is_no_traceback() -> None:
    line = "from specmath.cli import main; main(['tokens', '--alpha', '.7'])"
    done = subprocess.run(
        ["sh", "-c", f'exec "{sys.executable}" -c "{line}" >&-'], capture_output=True, check=False
    )
    assert b"Traceback" not in done.stderr


def test_a_typed_verify_cost_keeps_its_digits(call: Call) -> None:
    _, out, _ = call("speedup --alpha 0.7 --c 0.1 --verify-cost 1.2 -f json")
    assert rows_of(out)[0]["verify_cost"] == 1.2


def test_a_tree_shallower_than_k_runs_its_draft_for_its_levels_only(call: Call) -> None:
    tree = "--ranks .6/.2/.1 --tree-branching 3/2"
    deep = rows_of(call(f"speedup {tree} --k 9 -f json")[1])[0]["speedup"]
    assert deep == rows_of(call(f"speedup {tree} --k 2 -f json")[1])[0]["speedup"]


def test_a_row_does_not_depend_on_its_neighbours(call: Call) -> None:
    tree = "speedup --ranks .6/.2/.1 --tree-nodes 16 -f json"
    alone = rows_of(call(f"{tree} --k 4")[1])[0]
    among = next(row for row in rows_of(call(f"{tree} --k 3:8")[1]) if row["k"] == 4)
    assert {key: among[key] for key in alone} == alone


@pytest.mark.parametrize(
    "options",
    [
        "--ranks .6/.2/.1 --tree-nodes 16 --batch 64",
        "--match-rate .3 --alpha .7 --batch 128",
        "--alpha .7 --batch 64",
    ],
)
def test_the_derivation_ends_in_the_numbers_of_the_row(call: Call, options: str) -> None:
    document = json.loads(call(f"speedup {options} --k 4 --explain -f json")[1])
    row = document["rows"][0]
    last = document["derivation"][-1]
    step = row["breakeven_acceptance_length"]
    assert last == f"S = E / R = {row['acceptance_length']:.4f} / {step:.4f} = {row['speedup']:.4f}"
    assert f"R = v + c·4 + o = {step:.4f} plain steps" in document["derivation"][-3]
    assert f"v = {row['verify_cost']:.4f}" in document["derivation"][-3]
    low, high = (row["acceptance_length"] / row[key] for key in ("speedup_high", "speedup_low"))
    assert document["derivation"][-2].startswith(f"R lies between {low:.4f} and {high:.4f}")


def test_an_interrupt_is_said(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("specmath.cli.output.emit", interrupted)
    status, out, err = call("tokens --alpha 0.7")
    assert (status, out) == (130, "")
    assert err.startswith("specmath: error: interrupted")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "option", ["--method", "--engine", "--measured", "--hardware", "--output", "--draft"]
)
def test_an_option_without_a_value_is_refused(
    option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["speedup", "--alpha", ".7", option, ""]) == 2
    assert capsys.readouterr() == ("", f"specmath: error: {option}: a value is missing\n")


def test_a_reader_of_the_output_path_may_leave_early(tmp_path: Path) -> None:
    line = "speedup --alpha .7 --k 1:200 --batch 1:200:1 -f csv -o /dev/stdout"
    with subprocess.Popen(
        [sys.executable, "-m", "specmath", *line.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read().count(b"error") == 0
        assert process.wait(60) == 0


@pytest.mark.parametrize(("own", "used"), [(None, "1"), ("4", "4")])
def test_threads_with_nothing_to_do_are_not_started(own: str | None, used: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    if own is not None:
        environment["OPENBLAS_NUM_THREADS"] = own
    code = "import atexit, os; atexit.register(lambda: print(os.environ['OPENBLAS_NUM_THREADS']))\n"
    code += "from specmath.cli import main; main(['--version'])"
    told = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert told.stdout.split()[-1] == used
