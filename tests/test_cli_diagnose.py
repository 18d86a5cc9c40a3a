"""`specmath diagnose`: sources, what they take from the options, output, refusals."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run

GLM_OCR = "k=1,batch=1,acceptance-length=1.69,off=465.31tok/s,on=260.37tok/s"
MODEL = "--hardware h100-sxm --engine vllm --target llama-3.1-8b --draft eagle3-llama-3.1-8b --context 400"


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    status = run(["diagnose", *words, "-f", "json"])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    parsed: dict[str, Any] = json.loads(captured.out)
    return parsed


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = run(["diagnose", *words])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    return status, captured.err


@pytest.mark.parametrize("words", [[GLM_OCR], ["--measured", GLM_OCR]], ids=["argument", "option"])
def test_a_pair_without_a_model(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    """1.69·465.31/260.37 = 3.020: graphs, as the thread found."""
    told = document(capsys, *words, "--engine", "vllm@0.17", "--method", "mtp")
    (row,) = told["rows"]
    assert row["step_cost"] == pytest.approx(1.69 * 465.31 / 260.37, rel=1e-9)
    assert told["schema"] == "specmath.diagnosis/1"
    assert told["verdict"].startswith("DEARER THAN EXPECTED: a step costs 3.02 plain ones")
    assert told["warnings"][0]["code"] == "graphs-lost"
    assert told["inputs"] == {"engine": "vllm", "method": "mtp"}


def test_a_file_of_runs_stands_beside_the_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(
        "k,batch,acceptance_length,tpot_ms\n0,1,,7.07\n2,1,2.36,4.32\n4,1,3.08,4.05\n7,1,3.54,4.29\n",
        encoding="utf-8",
    )
    told = document(capsys, str(path), *MODEL.split())
    cases = [row["case"] for row in told["rows"]]
    assert cases == ["measured", "vllm", "ideal"] * 3 + ["line over k"]
    assert told["rows"][0]["left_out_error"] is not None
    assert told["rows"][0]["context"] == 400
    assert told["inputs"]["target"] == "llama-3.1-8b"


def test_the_acceptance_and_the_place_come_from_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["speedup=1.5", "--alpha", "0.5", "--k", "2", "--batch", "8"]
    (row,) = document(capsys, *words)["rows"]
    assert (row["k"], row["batch"], row["acceptance_length"]) == (2, 8, 1.75)
    assert row["step_cost"] == pytest.approx(1.75 / 1.5)


def test_causes_as_rows(capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["diagnose", GLM_OCR, "--engine", "vllm", "--causes", "-f", "csv"])
    captured = capsys.readouterr()
    assert status == 0
    rows = list(csv.DictReader(io.StringIO(captured.out)))
    assert rows[0]["cause"] == "graphs-lost"
    assert [row["rank"] for row in rows] == [str(place) for place in range(1, len(rows) + 1)]
    assert "graphs" not in captured.err.split("assumes", 1)[0]


def test_a_baseline_beyond_the_roof_is_said_outright(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "k=3,acceptance-length=4,off=1700tok/s@4,on=6200tok/s@4 --hardware h200-sxm --target llama-3.3-70b"
    )
    told = document(capsys, *words.split(), "--quantization", "fp8", "--method", "eagle3")
    assert told["verdict"].startswith("BASELINE BEYOND THE BANDWIDTH ROOF")
    assert "25 streams at least" in told["warnings"][0]["text"]  # 4 · 14.7 ms / 2.35 ms


def test_a_draft_s_layout_is_known_where_it_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    words = "k=4,batch=1,acceptance-length=3,speedup=0.6 --target llama-3.1-70b --draft llama-3.2-1b --tp 4"

    def codes(*more: str) -> list[str]:
        return [one["code"] for one in document(capsys, *words.split(), *more)["warnings"]]

    assert "draft-at-target-tp" in codes()
    assert "draft-at-target-tp" in codes("--draft-tp", "4")
    assert "draft-at-target-tp" not in codes("--draft-tp", "1")


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        ("", 2, "--measured: is missing: name a file of runs"),
        ("k=3,batch=1,speedup=1.5", 2, "--measured: acceptance-length: is missing; add it"),
        ("speedup=1.5 --alpha .7 --batch 1", 2, "--measured: lacks its k"),
        ("k=3,batch=1,speedup=1.5,acceptance-length=9", 2, "--measured: acceptance-length: "),
        ("k=3,batch=1,acceptance-length=2,on=9ms", 2, "no run without speculation, and no model"),
        (f"{GLM_OCR} --hardware h100-sxm", 2, "--hardware: needs --target beside it"),
        (f"{GLM_OCR} --engine vlm", 1, "vlm"),
        (f"{GLM_OCR} --alpha 2", 2, "--alpha: "),
        ("nowhere.csv", 1, "nowhere.csv"),
    ],
)
def test_what_is_refused_and_how(
    capsys: pytest.CaptureFixture[str], words: str, status: int, problem: str
) -> None:
    found, err = refused(capsys, *words.split())
    assert (found, problem in err) == (status, True), err


def scrape(tmp_path: Path) -> str:
    """n-gram drafts in 400 of 1000 steps, 3 requests in a step; 1.4 tokens per step, 2 of those that drafted.

    A step takes 20 ms.
    """
    labels = 'engine="0",model_name="m"'
    told = {
        "spec_decode_num_drafts_total": 400,
        "spec_decode_num_draft_tokens_total": 1200,
        "spec_decode_num_accepted_tokens_total": 400,
        "inter_token_latency_seconds_count": 1000,
        "inter_token_latency_seconds_sum": 20,
        "generation_tokens_total": 1400,
        "num_requests_running": 3,
    }
    lines = [f"vllm:{name}{{{labels}}} {value}\n" for name, value in told.items()]
    lines += [
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{{labels},position="{place}"}} {count}\n'
        for place, count in enumerate((220, 110, 70))
    ]
    path = tmp_path / "metrics.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def test_a_plain_run_that_does_not_go_with_its_source_is_told_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, err = refused(capsys, "off=6.33ms@1", "--from", scrape(tmp_path))
    assert status == 2
    assert err == (
        "specmath: error: --measured: `off=6.33ms@1` was left out: "
        "the source ran 3 requests in a step, not 1; "
        "run both at one batch, or give the speculative run, too: on=…\n"
    )


@pytest.mark.parametrize(
    ("typed", "length"),
    [
        ("off=10ms@3", 1.4),
        ("off=10ms@3,on=14.2857ms@3", 1.4),
        ("k=3,off=10ms@3,on=14.2857ms@3", 1.4),
        ("off=10ms@3,on=14.2857ms@3,acceptance-length=2", 2.0),
    ],
)
def test_a_source_s_e_is_that_of_all_its_steps(
    typed: str, length: float, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = document(capsys, typed, "--from", scrape(tmp_path), "--method", "ngram")
    (row,) = told["rows"]
    assert row["acceptance_length"] == pytest.approx(length)
    assert row["step_cost"] == pytest.approx(length / 0.7, rel=1e-5)
    assert ("lookup-misses" in [one["code"] for one in told["warnings"]]) is (length == 2.0)


def test_another_k_has_the_acceptance_of_the_source_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """1 + α once matched, α = 400/(400 + 220 + 110) by position, and a match in 40 % of the steps."""
    words = ["k=1,off=10ms@3,on=14.2857ms@3", "--from", scrape(tmp_path), "--method", "ngram"]
    (row,) = document(capsys, *words)["rows"]
    assert row["acceptance_length"] == pytest.approx(1 + 0.4 * 400 / 730)


@pytest.mark.parametrize(("pair", "lacks"), [("k=3,speedup=1.2", "batch"), ("batch=8,speedup=1.2", "k")])
def test_a_pair_without_its_place_is_not_said_to_have_several(
    pair: str, lacks: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["diagnose", pair]) == 2
    assert f"lacks its {lacks}, and the question has none; add" in capsys.readouterr().err
