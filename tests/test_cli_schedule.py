"""`specmath schedule` from the outside: histograms in every form, refusals in one line, every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specmath.batch_files import read_batches
from specmath.cli import run

Call = Callable[..., tuple[int, str, str]]
PAIR = "--alpha 0.7"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line; returns status, stdout and stderr."""

    def called(line: str) -> tuple[int, str, str]:
        status = run(["schedule", *line.split()])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return called


def document_of(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    return document


def test_the_main_job(call: Call) -> None:
    status, out, err = call(f"{PAIR} --batches 1=.2,8=.5,64=.3 -f json")
    assert (status, err) == (0, "")
    document = document_of(out)
    assert document["schema"] == "specmath.schedule/1"
    assert document["inputs"]["batches"] == [1, 8, 64]
    assert document["inputs"]["weights"] == [0.2, 0.5, 0.3]
    policies = [row["policy"] for row in document["rows"]]
    assert policies[:3] == ["off", "static", "tiers"]
    assert document["rows"][0]["speedup"] == 1
    assert {row["first_batch"] for row in document["rows"] if row["policy"] != "tier"} == {1}


def test_a_range_weighs_alike_and_is_the_default(call: Call) -> None:
    default, typed = (document_of(call(f"{PAIR} {more} -f json")[1]) for more in ("", "--batches 1:256:x2"))
    assert default == typed
    assert default["inputs"]["batches"] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert default["inputs"].get("weights") is None


@pytest.mark.parametrize("form", ["md", "csv", "json", "latex", "html", "table"])
def test_every_format(call: Call, form: str) -> None:
    status, out, _ = call(f"--beta 5.6/2.3 --batches 1,64 -f {form}")
    assert status == 0
    assert "oracle" in out
    assert not {"nan", "inf", "Infinity"} & set(out.replace(",", " ").split())


def test_csv_is_in_base_units(call: Call) -> None:
    rows = list(csv.DictReader(io.StringIO(call(f"{PAIR} --batches 1,64 -f csv")[1])))
    assert {row["policy"] for row in rows} >= {"off", "static", "tiers", "per_batch", "adaptive"}
    assert rows[0]["next_k"] == ""
    assert rows[0]["speedup"] == "1.0"


def test_a_histogram_from_csv_or_jsonl_is_the_typed_one(call: Call, tmp_path: Path) -> None:
    table, lines = tmp_path / "load.csv", tmp_path / "load.jsonl"
    table.write_text("batch,weight\n8,.5\n1,.2\n64,.3\n")
    lines.write_text(
        '{"batch": 1, "weight": 0.2}\n\n{"batch": 8, "weight": 0.5}\n{"batch": 64, "weight": 0.3}\n'
    )
    typed = call(f"{PAIR} --batches 1=.2,8=.5,64=.3 -f csv")[1]
    assert call(f"{PAIR} --batches {table} -f csv")[1] == typed
    assert call(f"{PAIR} --batches {lines} -f csv")[1] == typed


def test_samples_of_a_gauge_add_up(tmp_path: Path) -> None:
    file = tmp_path / "gauge.csv"
    file.write_text("time,batch\n0,4\n1,0\n2,4\n3,16\n")
    assert read_batches(file) == {4: 2.0, 16: 1.0}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        pytest.param("", "holds no batch", id="empty"),
        pytest.param("batch,weight\n", "holds no batch", id="header alone"),
        pytest.param("batch\n0\n0\n", "holds no batch", id="idle throughout"),
        pytest.param("batch,weight\n4,0\n", "holds no batch", id="weight 0"),
        pytest.param("b,weight\n4,1\n", "line 2: batch: is missing", id="no batch"),
        pytest.param("batch,weight\n,1\n", "line 2: batch: is missing", id="empty cell"),
        pytest.param("batch,batch\n4,4\n", "line 1: column 'batch' stands twice", id="twice"),
        pytest.param("batch,weight\nx,1\n", "line 2: batch: must be a whole number", id="no number"),
        pytest.param("batch,weight\nnan,1\n", "line 2: batch: must be a whole number", id="NaN"),
        pytest.param("batch,weight\n4,inf\n", "line 2: weight: must be a number", id="infinite"),
        pytest.param("batch,weight\n4,-1\n", "line 2: weight: must be a number", id="negative"),
        pytest.param("batch,weight\n4.5,1\n", "line 2: batch: must be a whole number", id="half"),
        pytest.param(
            "batch,weight\n1e9,1\n", "line 2: batch: must be a whole number from 0 to 65536", id="large"
        ),
    ],
)
def test_hostile_csv_ends_in_one_line(call: Call, tmp_path: Path, content: str, problem: str) -> None:
    file = tmp_path / "load.csv"
    file.write_text(content)
    status, out, err = call(f"{PAIR} --batches {file}")
    assert (status, out) == (1, "")
    assert err.startswith(f"specmath: error: {file}: ")
    assert problem in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        pytest.param(
            "--alpha .7 --c .1", "--draft-cost: typed ratios know no batch; a schedule", id="ratios"
        ),
        pytest.param("--alpha .7 --batches 1=.2,1=.3", "--batches: '1' is given twice", id="twice"),
        pytest.param("--alpha .7 --batches 1=.2,1.0=.3", "--batches: 1 is given twice", id="twice, spelled"),
        pytest.param(
            "--alpha .7 --batches 1=-2", "--batches: weights must be from 0 to 1e+15", id="negative"
        ),
        pytest.param("--alpha .7 --batches 1=x", "--batches: ", id="no weight"),
        pytest.param("--alpha .7 --batches x", "--batches: ", id="no batch"),
        pytest.param("--alpha .7 --batches 0", "--batches: must be a whole number from 1", id="zero"),
        pytest.param("--alpha .7 --batches 1:100000", "--batches: must be a whole number", id="too many"),
        pytest.param("--alpha .7 --k-max 0", "--k-max: must be a whole number", id="k_max"),
        pytest.param("--alpha .7 --switch-cost 2", "--switch-cost: must be between 0 and 1", id="bar"),
        pytest.param("--alpha .7 --zero-tier-cost -1", "--zero-tier-cost: must be between", id="price"),
        pytest.param("--alpha .7 --weights-are tokens", "--weights-are: must be time or steps", id="weights"),
        pytest.param("--acceptance-length 2.5", "--k: is missing: --acceptance-length needs", id="no k"),
        pytest.param(
            "--rates .8/.7 --k-max 3", "--k-max: must be at most 2, as far as", id="beyond the rates"
        ),
    ],
)
def test_a_wrong_line_is_told_in_one(call: Call, line: str, problem: str) -> None:
    status, out, err = call(line)
    assert (status, out) == (2, "")
    assert problem in err
    assert err.count("\n") == 1


def test_an_acceptance_length_with_its_k(call: Call) -> None:
    found, alpha = (
        document_of(call(f"{law} --batches 1,8 -f json")[1])["rows"]
        for law in ("--acceptance-length 1.75 --k 2", "--alpha .5")
    )
    assert [row["speedup"] for row in found] == pytest.approx([row["speedup"] for row in alpha], rel=1e-9)


def test_ratios_of_a_project_are_dropped(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("specmath.toml").write_text('draft_cost = 0.1\nalpha = 0.7\n[schedule]\nbatches = "1,8"\n')
    status, out, err = call("-f json")
    assert status == 0
    assert document_of(out)["inputs"]["batches"] == [1, 8]
    assert "draft" not in err
