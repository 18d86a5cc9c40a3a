"""`--measured FILE.yaml`: what a calibration answers, what it takes the place of, and what contradicts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run

TOY = Path(__file__).with_name("data") / "calibrations" / "toy.yaml"
AT_1 = f"{TOY},temperature=1"
DATASHEET = ["ideal", "memory_bound", "compute_bound"]
QUESTION = "speedup --batch 8 --context 512 --target llama-3.1-8b --draft llama-3.2-1b"
R_AT_4 = (13.245056 + 4 * 1.08 + 1.0) / 10.94096
"""Milliseconds of the cells at batch 8, context 512: verification, four draft passes, host; a plain step."""
SURVIVAL = (0.7, 0.49, 0.343, 0.24)
RUNS = """\
schema: specmath.calibration/1
kind: runs
source: http://localhost:8000
origin: server
warnings:
  - {code: loaded, text: another process ran, remedy: measure it alone}
runs:
  - {k: 3, batch: 8, context: 512.0, acceptance_length: 2.5, plain_s: 0.012, speculative_s: 0.008}
"""


def asked(capsys: pytest.CaptureFixture[str], line: str, *words: str) -> dict[str, Any]:
    status = run([*line.split(), *words, "-f", "json"])
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


def changed(tmp_path: Path, *changes: tuple[str, str]) -> str:
    """The fixture with some of its lines changed."""
    text = TOY.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "changed.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_calibration_leads_and_brings_its_acceptance(capsys: pytest.CaptureFixture[str]) -> None:
    document = asked(capsys, "speedup --batch 8 --context 512", "--measured", AT_1)
    cases = [(row["case"], row["k"]) for row in document["rows"]]
    drafted = (1, 4)  # lengths that were timed, up to as many as were decoded
    assert cases == [(case, k) for k in drafted for case in ("calibrated", *DATASHEET)]
    assert "k 1, 4: the draft lengths that were timed; --k asks for others" in document["assumptions"]
    rows = document["rows"][4:]
    assert rows[0]["breakeven_acceptance_length"] == pytest.approx(R_AT_4, rel=1e-9)
    assert rows[0]["acceptance_length"] == pytest.approx(1 + sum(SURVIVAL), rel=1e-12)
    assert rows[0]["speedup"] == pytest.approx((1 + sum(SURVIVAL)) / R_AT_4, rel=1e-9)
    assert rows[0]["speedup_low"] < rows[0]["speedup"] < rows[0]["speedup_high"]
    assert any("acceptance as calibrated: survival 0.7/0.49" in text for text in document["assumptions"])
    assert document["inputs"]["hardware"] == "h100-sxm"
    assert document["warnings"] == []


def test_a_smaller_k_is_cut_from_the_survival_and_a_larger_marked(capsys: pytest.CaptureFixture[str]) -> None:
    two = asked(capsys, "speedup --k 2 --batch 8 --context 512", "--measured", AT_1)["rows"][0]
    assert two["acceptance_length"] == pytest.approx(1 + 0.7 + 0.49, rel=1e-12)
    six = asked(capsys, "speedup --k 6 --batch 8 --context 512", "--measured", AT_1)
    assert [one["code"] for one in six["warnings"]] == ["extrapolated"]
    assert six["rows"][0]["acceptance_length"] > 1 + sum(SURVIVAL)


@pytest.mark.parametrize(
    ("choice", "length"),
    [
        ("temperature=0", 1 + 0.8 + 0.56 + 0.392 + 0.274),
        ("temperature=1,domain=code", 1 + (225 + 203 + 182 + 164) / 250),
        ("temperature=1,rule=rejection,top-p=1", 1 + sum(SURVIVAL)),
    ],
)
def test_one_of_its_acceptances_is_chosen(
    capsys: pytest.CaptureFixture[str], choice: str, length: float
) -> None:
    row = asked(capsys, "speedup --batch 8 --context 512 --k 4", "--measured", f"{TOY},{choice}")["rows"][0]
    assert row["acceptance_length"] == pytest.approx(length, rel=1e-12)


def test_a_typed_law_stands_before_that_of_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    row = asked(capsys, "speedup --alpha 0.5 --k 4 --batch 8 --context 512", "--measured", str(TOY))["rows"][
        0
    ]
    assert row["acceptance_length"] == pytest.approx(1.9375)
    assert row["breakeven_acceptance_length"] == pytest.approx(R_AT_4, rel=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("NVIDIA H100 80GB HBM3", "AMD Ryzen 9"), id="a machine of no catalogue"),
        pytest.param(("llama-3.1-8b", "/models/mine"), id="a model of no catalogue"),
        pytest.param(("llama-3.2-1b", "/models/little"), id="a draft of no catalogue"),
    ],
)
def test_without_known_names_the_calibrated_case_stands_alone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: tuple[str, str]
) -> None:
    path = changed(tmp_path, change)
    rows = asked(capsys, "speedup --alpha .7 --batch 8 --context 512", "--measured", path)["rows"]
    assert [row["case"] for row in rows] == ["calibrated"]
    assert rows[0]["breakeven_acceptance_length"] == pytest.approx(R_AT_4, rel=1e-9)


def test_what_the_file_leaves_open_may_be_typed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = changed(tmp_path, ("NVIDIA H100 80GB HBM3", "a machine"))
    line = "speedup --alpha .7 --batch 8 --hardware l40s --target meta-llama/Llama-3.1-8B --tp 1 --dtype bf16"
    document = asked(capsys, line, "--measured", path)
    assert [row["case"] for row in document["rows"]] == ["calibrated", *DATASHEET]
    assert document["inputs"]["hardware"] == "l40s"


def test_random_weights_of_a_catalogue_model_are_that_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = changed(tmp_path, ("llama-3.1-8b", "random:llama-3.1-8b"))
    line = "speedup --alpha .7 --batch 8 --target llama-3.1-8b"
    rows = asked(capsys, line, "--measured", path)["rows"]
    assert [row["case"] for row in rows] == ["calibrated", *DATASHEET]


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--target llama-3.1-70b", "--target: 'llama-3.1-70b' is not the 'llama-3.1-8b' that toy.yaml was"),
        ("--target 70B", "--target: '70B' is not the"),
        ("--draft qwen3-0.6b", "--draft: 'qwen3-0.6b' is not the 'llama-3.2-1b'"),
        ("--draft ngram", "--draft: 'ngram' is not the"),
        ("--method eagle3", "--method: 'eagle3' is not the 'draft-model'"),
        ("--hardware a100-sxm-80gb", "--hardware: 'a100-sxm-80gb' is not the 'NVIDIA H100 80GB HBM3'"),
        ("--dtype fp16", "--dtype: 'fp16' is not the 'bfloat16'"),
        ("--tp 2", "--tp: is settled by the calibration"),
        ("--quantization fp8", "--quantization: is settled by the calibration"),
        ("--draft-tp 2", "--draft-tp: is settled by the calibration"),
        ("--graph-sizes 1,2,4", "--graph-sizes: is settled by the calibration"),
        ("--c .1", "--draft-cost: excludes a calibration"),
        ("--match-rate .5", "--match-rate: is for a lookup draft"),
        ("--draft llama-3.2-1b --draft ngram", "--measured: corrects one set-up, and several drafts"),
        ("--alpha .7", "--measured: 'temperature=1' chooses an acceptance of the file, and another is given"),
    ],
)
def test_what_contradicts_the_calibration_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], option: str, problem: str
) -> None:
    status, err = refused(capsys, f"speedup --batch 8 {option}", "--measured", AT_1)
    assert (status, problem in err) == (2, True), err


@pytest.mark.parametrize(
    ("text", "status", "problem"),
    [
        (str(TOY), 2, "toy.yaml has several acceptances (temperature 0, 1); choose one after the file"),
        (f"{TOY},temperature=3", 2, "holds no acceptance of temperature 3; it has temperature 0, 1"),
        (f"{TOY},heat=3", 2, "toy.yaml: unknown key 'heat'; use temperature, top-p, rule, domain"),
        (f"{TOY},temperature=warm", 2, "toy.yaml: 'warm' is not a number"),
        ("nosuch.yaml", 1, "nosuch.yaml: cannot be read: no such file"),
        ("nosuch.yml,temperature=1", 1, "nosuch.yml: cannot be read: no such file"),
    ],
)
def test_a_choice_or_a_file_that_is_wrong(
    capsys: pytest.CaptureFixture[str], text: str, status: int, problem: str
) -> None:
    for question in ("speedup --batch 8", "crossover", "schedule"):
        found, err = refused(capsys, question, "--measured", text)
        assert (found, problem in err) == (status, True), err


def test_a_calibration_without_acceptance_asks_for_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = TOY.read_text(encoding="utf-8")
    start, end = text.index("acceptance:\n"), text.index("fits:\n")
    path = tmp_path / "times.yaml"
    path.write_text(text[:start] + text[end:], encoding="utf-8")
    status, err = refused(capsys, "speedup --batch 8", "--measured", str(path))
    assert (status, "--alpha: is missing: times.yaml holds no acceptance; give --alpha" in err) == (2, True)
    assert asked(capsys, "speedup --batch 8 --alpha .7", "--measured", str(path))["rows"]


def test_two_calibrations_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    status, err = refused(capsys, "speedup", "--measured", AT_1, "--measured", str(TOY))
    assert (status, "names two calibrations" in err) == (2, True)


def test_a_pair_beside_it_anchors_it(capsys: pytest.CaptureFixture[str]) -> None:
    line = "speedup --k 4 --batch 8 --context 512"
    without = asked(capsys, line, "--measured", AT_1, "--measured", "speedup=1.5")["rows"]
    assert [row["case"] for row in without] == ["measured", *DATASHEET]
    assert without[0]["speedup"] == pytest.approx(1.5, rel=1e-9)
    assert without[0]["acceptance_length"] == pytest.approx(1 + sum(SURVIVAL), rel=1e-12)
    own = asked(capsys, line, "--measured", str(TOY), "--measured", "speedup=1.5,acceptance-length=2.5")
    assert own["rows"][0]["speedup"] == pytest.approx(1.5, rel=1e-9)
    assert own["rows"][0]["acceptance_length"] == pytest.approx(2.5, rel=1e-9)


def test_crossover_flips_and_schedule_take_it(capsys: pytest.CaptureFixture[str]) -> None:
    rows = asked(capsys, "crossover --context 512", "--measured", AT_1)["rows"]
    assert [row["k"] for row in rows] == [1, 4]  # lengths that were timed
    row = rows[-1]
    assert (row["case"], row["wins"], row["k"]) == ("calibrated", "below", 4)
    assert row["ridge_tokens"] == pytest.approx(200)  # 10 ms of weights over 50 µs a token
    moved = asked(capsys, "crossover --flips --context 512", "--measured", AT_1)["rows"]
    assert {one["input"] for one in moved} >= {"acceptance_length", "draft_cost", "batch"}
    assert not {one["input"] for one in moved} & {"memory_bytes_per_s", "peak_flops_per_s"}
    line = "schedule --batches 1,8,64 --context 512 --engine vllm"
    plan = asked(capsys, line, "--measured", AT_1)
    assert plan["rows"][0]["case"] == "calibrated"
    assert "engine-not-calibrated" in [one["code"] for one in plan["warnings"]]
    assert run([*line.split(), "--measured", AT_1, "-f", "md"]) == 0
    assert "vllm serve llama-3.1-8b" in capsys.readouterr().out


def test_diagnose_holds_runs_against_it(capsys: pytest.CaptureFixture[str]) -> None:
    pair = "k=4,batch=8,speedup=1.2,acceptance-length=2.6"
    line = "diagnose --context 512 --engine vllm"
    for words in (["--measured", AT_1, "--measured", pair], [str(TOY), pair]):
        rows = asked(capsys, line, *words)["rows"]
        assert [row["case"] for row in rows] == ["measured", "calibrated", "ideal"]
        assert rows[1]["step_cost"] == pytest.approx(R_AT_4, rel=1e-9)
    status, err = refused(capsys, "diagnose", str(TOY))
    assert (status, "--measured: is missing: name a file of runs" in err) == (2, True)


def test_a_lookup_brings_its_match_rate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = changed(
        tmp_path,
        ('method: "draft-model"', 'method: "ngram"'),
        ('draft: "llama-3.2-1b"', 'draft: "ngram"'),
        ("match_rate: 1.0", "match_rate: 0.5"),
    )
    line = "speedup --k 4 --batch 8 --context 512"
    rows = asked(capsys, line, "--measured", f"{path},temperature=1")["rows"]
    assert [row["case"] for row in rows] == ["calibrated", *DATASHEET]
    assert rows[0]["acceptance_length"] == pytest.approx(1 + 0.5 * sum(SURVIVAL), rel=1e-12)
    typed = asked(capsys, f"{line} --match-rate .25 --alpha .5", "--measured", path)["rows"][0]
    assert typed["acceptance_length"] == pytest.approx(1 + 0.25 * 0.9375, rel=1e-12)
    for draft, status in (("--draft ngram", 0), ("--method ngram", 0), ("--draft llama-3.2-1b", 2)):
        assert run([*line.split(), *draft.split(), "--measured", f"{path},temperature=1"]) == status
    capsys.readouterr()


def test_runs_from_outside_are_pairs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "server.yaml"
    path.write_text(RUNS, encoding="utf-8")
    document = asked(capsys, f"{QUESTION} --tp 2", "--measured", str(path))
    row = document["rows"][0]
    assert (row["case"], row["k"]) == ("measured", 3)
    assert row["speedup"] == pytest.approx(1.5, rel=1e-9)
    assert row["acceptance_length"] == pytest.approx(2.5, rel=1e-9)
    assert "loaded" in [one["code"] for one in document["warnings"]]
    both = asked(
        capsys, "speedup --k 3 --batch 8 --context 512", "--measured", str(TOY), "--measured", str(path)
    )
    assert both["rows"][0]["speedup"] == pytest.approx(1.5, rel=1e-9)
    assert "calibration" in both["inputs"]
    diagnosed = asked(capsys, "diagnose", str(path))["rows"][0]
    assert diagnosed["step_cost"] == pytest.approx(2.5 / 1.5, rel=1e-9)
    status, err = refused(capsys, "speedup --batch 8", "--measured", f"{path},temperature=1")
    assert (status, "this file holds runs, each with its own" in err) == (2, True)


@pytest.mark.parametrize("line", ["alpha", "speedup --from"])
def test_it_is_no_output_of_an_engine(capsys: pytest.CaptureFixture[str], line: str) -> None:
    status, err = refused(capsys, line, str(TOY))
    assert (status, "toy.yaml: is a calibration: a question takes its acceptance by --measured" in err) == (
        1,
        True,
    )


def test_a_calibration_beside_a_source_is_no_plain_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    metrics = tmp_path / "vllm.txt"
    names = {"num_drafts": 1000, "num_draft_tokens": 4000, "num_accepted_tokens": 1500}
    lines = [f'vllm:spec_decode_{name}_total{{model_name="m"}} {value}' for name, value in names.items()]
    metrics.write_text("\n".join([*lines, ""]), encoding="utf-8")
    rows = asked(capsys, f"speedup --from {metrics} --batch 8 --context 512", "--measured", str(TOY))["rows"]
    assert rows[0]["case"] == "calibrated"
    assert rows[0]["acceptance_length"] == pytest.approx(2.5, rel=1e-3)
    status, err = refused(capsys, f"speedup --from {metrics} --batch 8", "--measured", AT_1)
    assert (status, "'temperature=1' chooses an acceptance of the file" in err) == (2, True), err
