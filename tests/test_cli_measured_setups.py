"""Files of runs that name set-ups: only the rows of the one asked about correct it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run

QUESTION = (
    "speedup --alpha 0.7 --k 3 --batch 8 --hardware h100-sxm --engine vllm --target llama-3.1-8b "
    "--draft eagle3-llama-3.1-8b --case measured -f json"
)
HEADER = "hardware,engine,target,method,draft,tp,k,batch,speedup,acceptance_length"
OWN = "h100-sxm,vllm,llama-3.1-8b,eagle3,eagle3-llama-3.1-8b,1,3,8,1.6,2.4"


def asked(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, *rows: str, line: str = QUESTION
) -> dict[str, Any]:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join([HEADER, *rows, ""]), encoding="utf-8")
    status = run([*line.split(), "--measured", str(path)])
    captured = capsys.readouterr()
    if status:
        return {"status": status, "err": captured.err}
    document: dict[str, Any] = json.loads(captured.out)
    return document


@pytest.mark.parametrize(
    "row",
    [
        OWN,
        "H100 SXM5,VLLM,meta-llama/Llama-3.1-8B-Instruct,EAGLE-3,eagle3-llama-3.1-8b,1,3,8,1.6,2.4",
        "h100,vllm@0.9,Llama-3.1-8B,,,,3,8,1.6,2.4",
        ",,,,,,3,8,1.6,2.4",
    ],
)
def test_a_row_of_this_set_up_counts_however_it_is_spelled(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, row: str
) -> None:
    document = asked(capsys, tmp_path, row)
    assert document["rows"][0]["breakeven_acceptance_length"] == pytest.approx(1.5, rel=1e-9)
    codes = {warning["code"] for warning in document["warnings"]}
    assert not codes & {"rows-of-another-set-up", "columns-ignored", "several-set-ups"}


@pytest.mark.parametrize(
    ("column", "row"),
    [
        ("hardware 'mi300x'", OWN.replace("h100-sxm", "mi300x")),
        ("hardware 'h100-pcie'", OWN.replace("h100-sxm", "h100-pcie")),
        ("engine 'sglang'", OWN.replace("vllm", "sglang")),
        ("target 'llama-3.1-70b'", OWN.replace(",llama-3.1-8b", ",llama-3.1-70b")),
        ("target 'no-such-model'", OWN.replace(",llama-3.1-8b", ",no-such-model")),
        ("target '70B'", OWN.replace(",llama-3.1-8b", ",70B")),
        ("method 'mtp'", OWN.replace(",eagle3,", ",mtp,")),
        ("draft 'eagle-llama-3-8b'", OWN.replace("eagle3-llama-3.1-8b", "eagle-llama-3-8b")),
        ("tp '4'", OWN.replace(",1,3,8", ",4,3,8")),
    ],
)
def test_a_row_of_another_set_up_is_left_out_or_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, column: str, row: str
) -> None:
    strange = row.replace("1.6,2.4", "0.5,2.4")
    document = asked(capsys, tmp_path, OWN, strange, strange)
    assert document["rows"][0]["breakeven_acceptance_length"] == pytest.approx(1.5, rel=1e-9)
    (told,) = [one["text"] for one in document["warnings"] if one["code"] == "rows-of-another-set-up"]
    assert "2 of 3 rows left out" in told
    assert f"line 3 has {column}" in told
    refused = asked(capsys, tmp_path, strange)
    assert refused["status"] == 1
    assert f"holds no run of this set-up: line 2 has {column}" in refused["err"]


def test_a_plain_run_does_not_say_how_it_would_draft(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "method,k,batch,tpot_ms,acceptance_length\noff,0,8,12,\neagle3,3,8,9,2.4\n", encoding="utf-8"
    )
    assert run([*QUESTION.split(), "--measured", str(path)]) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert row["breakeven_acceptance_length"] == pytest.approx(2.4 * 9 / 12, rel=1e-9)


def test_what_the_question_leaves_open_is_not_mixed_silently(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = QUESTION.replace("--engine vllm ", "")
    document = asked(capsys, tmp_path, OWN, OWN.replace("vllm", "sglang"), line=line)
    (told,) = [one["text"] for one in document["warnings"] if one["code"] == "several-set-ups"]
    assert "engine 'vllm', 'sglang'" in told


def test_a_target_known_by_its_counts_is_compared_by_its_parameters(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    line = "speedup --alpha 0.7 --k 3 --batch 8 --target 70B --draft 1B --case measured -f json"
    row = ",,{},,,,3,8,1.6,2.4"
    assert "rows" in asked(capsys, tmp_path, row.format("llama-3.1-70b"), line=line)
    assert asked(capsys, tmp_path, row.format("llama-3.1-8b"), line=line)["status"] == 1
