"""`--measured` on the command line: each spelling, what it takes from the question, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run

QUESTION = "speedup --alpha 0.7 --k 3 --batch 32 -f json"
E_AT_3 = 1 + 0.7 + 0.49 + 0.343


def asked(capsys: pytest.CaptureFixture[str], line: str, *words: str) -> dict[str, Any]:
    status = run([*line.split(), *words])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    document: dict[str, Any] = json.loads(captured.out)
    return document


def refused(capsys: pytest.CaptureFixture[str], line: str, *words: str) -> tuple[int, str]:
    status = run([*line.split(), *words])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    return status, captured.err


@pytest.mark.parametrize(
    ("text", "step"),
    [
        pytest.param("k=3,batch=32,speedup=1.6,acceptance-length=2.4", 2.4 / 1.6, id="a pair"),
        pytest.param("speedup=1.6", E_AT_3 / 1.6, id="all else from the question"),
        pytest.param("off=3120tok/s@32,on=5180tok/s@32", E_AT_3 * 3120 / 5180, id="throughputs"),
        pytest.param("off=3.12ktok/s,on=5.18ktok/s@32", E_AT_3 * 3120 / 5180, id="with prefixes, one batch"),
        pytest.param("off=14.2ms@32,on=8.1ms", E_AT_3 * 8.1 / 14.2, id="times per token"),
        pytest.param("off=10ms,on=3200tok/s,batch=32", E_AT_3, id="one of each: 32/3200 s is 10 ms"),
        pytest.param("off=10ms,speedup=2,acceptance_length=3", 1.5, id="plain time and speed-up"),
    ],
)
def test_every_spelling_reproduces_what_was_measured(
    capsys: pytest.CaptureFixture[str], text: str, step: float
) -> None:
    rows = asked(capsys, QUESTION, "--measured", text)["rows"]
    assert [row["case"] for row in rows][:2] == ["measured", "ideal"]
    assert rows[0]["breakeven_acceptance_length"] == pytest.approx(step, rel=1e-9)
    assert rows[0]["speedup_low"] < rows[0]["speedup"] < rows[0]["speedup_high"]


@pytest.mark.parametrize("engine", ["ideal", "typical"])
def test_the_measured_case_takes_the_place_of_the_profile_s_and_the_datasheet_follows(
    capsys: pytest.CaptureFixture[str], engine: str
) -> None:
    rows = asked(capsys, QUESTION, "--engine", engine, "--measured", "speedup=1.6")["rows"]
    assert [row["case"] for row in rows] == ["measured", "ideal", "memory_bound", "compute_bound"]


def test_arms_may_come_from_two_options(capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, QUESTION, "--measured", "off=12ms", "--measured", "on=8ms")["rows"]
    assert rows[0]["breakeven_acceptance_length"] == pytest.approx(E_AT_3 * 8 / 12, rel=1e-9)
    assert rows[0]["target_s"] == pytest.approx(0.012, rel=1e-9)


def test_a_file_of_runs_is_read_and_its_strange_columns_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("k,tpot_ms,gpu\n0,12,h100\n2,9,h100\n6,10,h100\n", encoding="utf-8")
    document = asked(capsys, QUESTION, "--measured", str(path))
    expected = [(1 + 0.7 + 0.49) * 9 / 12, sum(0.7**i for i in range(7)) * 10 / 12]
    table = asked(capsys, QUESTION.replace("--k 3", "--k 2,6"), "--measured", str(path))
    steps = [row["breakeven_acceptance_length"] for row in table["rows"] if row["case"] == "measured"]
    assert steps == pytest.approx(expected, rel=1e-9)
    (note,) = [warning for warning in document["warnings"] if warning["code"] == "columns-ignored"]
    assert "gpu" in note["text"]


def test_a_crossover_is_corrected_too(capsys: pytest.CaptureFixture[str]) -> None:
    line = "crossover --alpha 0.7 --k 3 --batch 8 -f json"
    plain = asked(capsys, line)["rows"][0]
    (row,) = asked(capsys, line, "--measured", "speedup=1.7")["rows"]
    assert row["case"] == "measured"
    assert row["speedup"] == pytest.approx(1.7, rel=1e-9)
    assert row["breakeven_batch"] < plain["breakeven_batch"]


def test_a_crossover_warns_only_of_the_batch_it_is_asked_at(capsys: pytest.CaptureFixture[str]) -> None:
    line = "crossover --alpha 0.7 --k 3 --batch 8 -f json --measured batch=4,speedup=1.7"
    codes = [warning["code"] for warning in asked(capsys, line)["warnings"]]
    assert codes.count("outside-the-measured-batches") == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("speedup=-1", "--measured: speedup: must be above 0"),
        ("speedup=0", "--measured: speedup: must be above 0"),
        ("off=-3ms,on=2ms", "--measured: off=-3ms must be above 0"),
        ("off=3120,on=5180", "off=3120 needs a unit"),
        ("off=3120tok/s@32,on=5180tok/s@64", "names batch 32 and 64"),
        ("off=3120tok/s@32", "holds no run with speculation"),
        ("on=8ms", "no run without speculation at its batch"),
        ("k=0,speedup=2", "k must be at least 1"),
        ("batch=0,speedup=2", "batch must be at least 1"),
        ("k=3", "--measured: speedup: is missing"),
        ("speedup=2,acceptance-length=4.5", "acceptance-length: counts the bonus token"),
        ("speed=2", "unknown key 'speed'"),
        ("speedup=fast", "'fast' is not a number"),
    ],
)
def test_nonsense_is_refused_by_name(capsys: pytest.CaptureFixture[str], text: str, problem: str) -> None:
    status, err = refused(capsys, QUESTION, "--measured", text)
    assert (status, problem in err) == (2, True), err


def test_several_values_leave_a_measurement_without_its_place(capsys: pytest.CaptureFixture[str]) -> None:
    for question, problem in (
        ("speedup --alpha 0.7 --k 3,4 --batch 8", "lacks its k"),
        ("speedup --alpha 0.7 --k 3 --batch 8,16", "lacks its batch"),
        ("speedup --alpha 0.6,0.7 --k 3 --batch 8", "several acceptances"),
    ):
        status, err = refused(capsys, question, "--measured", "speedup=1.7")
        assert (status, problem in err) == (2, True), err


def test_typed_ratios_are_no_model_to_correct(capsys: pytest.CaptureFixture[str]) -> None:
    status, err = refused(capsys, "speedup --alpha 0.7 --c .1 --measured k=3,batch=8,speedup=2")
    assert (status, "typed ratios are no model" in err) == (2, True)


def test_a_faulty_file_is_the_world_s_fault(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("k,batch,speedup\n3,8,-1\n", encoding="utf-8")
    status, err = refused(capsys, QUESTION, "--measured", str(path))
    assert (status, "runs.csv: line 2: speedup: must be above 0" in err) == (1, True), err
    status, err = refused(capsys, QUESTION, "--measured", "nosuch.csv")
    assert (status, "no such file" in err) == (1, True)


def test_a_project_may_keep_its_measurement(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specmath.toml").write_text('measured = "k=3,batch=32,speedup=1.7"\n', encoding="utf-8")
    rows = asked(capsys, QUESTION)["rows"]
    assert (rows[0]["case"], rows[0]["speedup"]) == ("measured", pytest.approx(1.7, rel=1e-9))
    assert asked(capsys, QUESTION, "--measured", "speedup=1.2")["rows"][0]["speedup"] == pytest.approx(1.2)
    assert asked(capsys, "speedup --alpha 0.7 --c .1 -f json")["rows"][0]["case"] == "ratios"
