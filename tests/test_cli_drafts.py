"""Drafts on the command line: methods, records with an acceptance of their own, comparisons."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specmath.acceptance import expected_tokens
from specmath.cli import run
from specmath.model_catalogue import MODELS

Call = Callable[..., tuple[int, Any, str]]
TARGET = "--target llama-3.1-8b"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs a command line for JSON in an empty folder; returns status, document and stderr."""
    monkeypatch.chdir(tmp_path)

    def called(line: str) -> tuple[int, Any, str]:
        status = run([*line.split(), "-f", "json"])
        captured = capsys.readouterr()
        return status, json.loads(captured.out) if captured.out else None, captured.err

    return called


@pytest.mark.parametrize(
    ("options", "draft", "method"),
    [
        ("--draft llama-3.2-1b", "llama-3.2-1b", "draft-model"),
        ("--draft llama-3.2-1b --method pard", "llama-3.2-1b", "pard"),
        ("--draft eagle3-llama-3.1-8b", "eagle3-llama-3.1-8b", "eagle3"),
        ("--draft eagle3-llama-3.1-8b --method eagle3", "eagle3-llama-3.1-8b", "eagle3"),
        ("--method eagle3", "eagle3 of llama-3.1-8b", "eagle3"),
        ("--draft eagle3", "eagle3 of llama-3.1-8b", "eagle3"),
        ("--draft method=eagle", "eagle of llama-3.1-8b", "eagle"),
        ("--method dflash", "dflash of llama-3.1-8b", "dflash"),
        ("--method ngram --match-rate .4", "ngram lookup", "ngram"),
        ("--match-rate .4", "ngram lookup", "ngram"),
        ("--draft suffix,match-rate=.4", "suffix lookup", "suffix"),
        ("--method early-exit --exit-layer 8", "first 8 layers", "early-exit"),
        ("--exit-layer 8", "first 8 layers", "early-exit"),
        ("--draft early-exit,exit-layer=8", "first 8 layers", "early-exit"),
    ],
)
@pytest.mark.parametrize("command", ["speedup", "crossover --max-batch 8"])
def test_methods_and_names(call: Call, command: str, options: str, draft: str, method: str) -> None:
    if command != "speedup" and "match-rate=" in options:
        return  # an acceptance of its own is for comparisons
    status, document, err = call(f"{command} --alpha .7 --k 3 {TARGET} {options}")
    assert (status, err) == (0, "")
    assert (document["inputs"]["draft"], document["inputs"]["method"]) == (draft, method)


def test_mtp_is_the_targets_own(call: Call) -> None:
    _, document, _ = call("speedup --acceptance-length 2.6 --k 3 --target deepseek-r1 --method mtp --tp 8")
    assert document["inputs"]["draft"] == "mtp of deepseek-r1"
    assert document["inputs"]["draft_tp"] == 8


def test_a_file_is_read_as_the_head_that_the_method_names(call: Call, tmp_path: Path) -> None:
    entry = json.loads((MODELS / "eagle-llama-3-8b.json").read_text(encoding="utf-8"))
    entry["architectures"] = ["Unheard"]
    entry["model_type"] = "llama"
    (tmp_path / "head.json").write_text(json.dumps(entry), encoding="utf-8")
    _, document, _ = call(f"speedup --alpha .7 --k 3 {TARGET} --draft ./head.json --method eagle")
    _, known, _ = call(f"speedup --alpha .7 --k 3 {TARGET} --draft eagle-llama-3-8b")
    assert document["rows"][0]["draft_cost"] == known["rows"][0]["draft_cost"]


def test_a_draft_may_bring_its_own_acceptance_and_k(call: Call) -> None:
    _, document, _ = call(f"speedup --alpha .5 --k 2 {TARGET} --draft llama-3.2-1b,alpha=.8,k=5")
    assert {(row["alpha"], row["k"]) for row in document["rows"]} == {(0.8, 5)}
    _, document, _ = call(f"speedup --k 2 {TARGET} --draft llama-3.2-1b,rates=.9/.8 ")
    assert document["rows"][0]["acceptance_length"] == pytest.approx(1 + 0.9 + 0.72)


def test_several_drafts_are_compared(call: Call) -> None:
    line = f"speedup --alpha .7 --k 3 --batch 1,64 {TARGET} --draft llama-3.2-1b --draft eagle3,alpha=.6,k=4"
    status, document, err = call(f"{line} --draft ngram,match-rate=.4,alpha=.9")
    assert (status, err) == (0, "")
    assert document["schema"] == "specmath.drafters/1"
    rows = document["rows"]
    assert [(row["method"], row["k"], row["alpha"]) for row in rows[::2]] == [
        ("draft-model", 3, 0.7),
        ("eagle3", 4, 0.6),
        ("ngram", 3, None),
    ]
    assert rows[4]["acceptance_length"] == pytest.approx(1 + 0.4 * (float(expected_tokens(0.9, 3)) - 1))
    assert {row["case"] for row in rows} == {"typical"}
    assert all(row["speedup_low"] < row["speedup"] < row["speedup_high"] for row in rows)
    single = call(f"speedup --alpha .6 --k 4 --batch 64 {TARGET} --method eagle3")[1]["rows"][0]
    for key in ("speedup", "speedup_low", "draft_cost", "verify_cost", "best_k", "max_batch_speculative"):
        assert rows[3][key] == single[key]


def test_lists_multiply_the_contenders(call: Call) -> None:
    _, document, _ = call(f"speedup --alpha .6,.7 --k 2:4 {TARGET} --draft eagle3 --draft llama-3.2-1b,k=1")
    assert [(row["method"], row["alpha"], row["k"]) for row in document["rows"]] == [
        *(("eagle3", alpha, k) for alpha in (0.6, 0.7) for k in (2, 3, 4)),
        *(("draft-model", alpha, 1) for alpha in (0.6, 0.7)),
    ]


def test_what_the_question_says_goes_to_the_drafts_that_take_it(call: Call) -> None:
    line = f"speedup --alpha .7 --k 3 --tp 2 {TARGET} --draft llama-3.2-1b --draft ngram --draft early-exit"
    status, document, err = call(f"{line} --match-rate .3 --exit-layer 8 --draft-tp 2")
    assert (status, err) == (0, "")
    assert [row["law"] for row in document["rows"]] == ["constant", "match-rate=0.3 alpha=0.7", "constant"]


def test_the_case_asked_for_is_compared(call: Call) -> None:
    line = f"speedup --alpha .7 --k 3 {TARGET} --draft llama-3.2-1b --draft eagle3"
    _, document, _ = call(f"{line} --case memory_bound")
    assert {row["case"] for row in document["rows"]} == {"memory_bound"}
    assert call(f"{line} --engine ideal --at-least 2")[0] == 0
    assert call(f"{line} --engine ideal --at-least 2.3")[0] == 3
    best = max(call(line)[1]["rows"], key=lambda row: row["speedup"])
    assert call(f"{line} --at-least {best['speedup_low'] - 0.01}")[0] == 0  # by the low end of the range
    assert call(f"{line} --at-least {best['speedup_low'] + 0.01}")[0] == 3


@pytest.mark.parametrize(
    ("options", "status", "facts"),
    [
        ("", 2, ["--draft", "is missing", "--method"]),
        ("--method guess", 2, ["--method", "'guess'", "draft-model"]),
        ("--method ngram", 2, ["--match-rate", "is missing"]),
        ("--method early-exit", 2, ["--exit-layer", "is missing"]),
        ("--method mtp", 2, ["--method", "names none", "eagle3"]),
        ("--method p-eagle", 2, ["--draft", "p-eagle needs"]),
        ("--draft llama-3.2-1b --match-rate .4", 2, ["--draft", "--match-rate"]),
        ("--draft llama-3.2-1b --exit-layer 4", 2, ["--exit-layer", "draft-model"]),
        ("--draft eagle3-llama-3.3-70b", 2, ["--draft", "8,192", "4,096"]),
        ("--draft medusa-vicuna-7b --k 6", 2, ["--draft", "32,000", "128,256"]),
        ("--method medusa --k 6", 2, ["--k", "at most 5"]),
        ("--method ngram --match-rate .4 --draft-tp 2", 2, ["--draft-tp", "ngram"]),
        ("--draft llama-3.2-1b,tp,k=3", 2, ["--draft", "key=value"]),
        ("--draft llama-3.2-1b,color=red", 2, ["--draft", "color", "exit-layer"]),
        ("--draft llama-3.2-1b,alpha=2", 2, ["--alpha", "between 0 and 1"]),
        ("--draft llama-3.2-1b --draft nothing", 1, ["nothing"]),
        ("--draft - --draft -", 2, ["--draft", "stdin can be read once"]),
        ("--draft llama-3.2-1b --draft eagle3 --c .1", 2, ["--draft-cost", "comparison of drafts"]),
        (
            "--draft llama-3.2-1b --draft eagle3 --measured k=3,batch=1,speedup=1.5",
            2,
            ["--measured", "several drafts"],
        ),
    ],
)
def test_a_fault_is_one_line_that_names_what_and_where(
    call: Call, options: str, status: int, facts: list[str]
) -> None:
    told, document, err = call(f"speedup --alpha .7 {TARGET} {options}")
    assert (told, document) == (status, None)
    assert err.count("\n") == 1
    for fact in facts:
        assert fact in err


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ("--draft llama-3.2-1b --draft eagle3", "takes one here"),
        ("--draft llama-3.2-1b,alpha=.8", "takes no acceptance"),
        ("--draft llama-3.2-1b,k=3", "takes no acceptance and no k"),
    ],
)
def test_other_commands_take_one_plain_draft(call: Call, options: str, fact: str) -> None:
    status, _, err = call(f"crossover --alpha .7 {TARGET} {options}")
    assert status == 2
    assert err.startswith(f"specmath: error: --draft: {fact}")


def test_a_project_names_its_draft(call: Call, tmp_path: Path) -> None:
    (tmp_path / "specmath.toml").write_text('target = "llama-3.1-8b"\ndraft = "eagle3,k=5"\nalpha = 0.7\n')
    _, document, _ = call("speedup")
    assert (document["inputs"]["method"], document["inputs"]["k"]) == ("eagle3", 5)
    _, document, _ = call("speedup --exit-layer 4")
    assert document["inputs"]["method"] == "early-exit"
    _, document, _ = call("speedup --draft llama-3.2-1b")
    assert document["inputs"]["method"] == "draft-model"


def test_a_draft_has_a_quantization_of_its_own(call: Call) -> None:
    line = "speedup --alpha .7 --k 3 --context 2k --engine ideal --draft llama-3.2-1b"
    _, plain, _ = call(f"{line} {TARGET}")
    _, narrow, _ = call(f"{line} {TARGET} --draft-quantization int4")
    _, document, _ = call(f"{line},quantization=int4 --draft llama-3.1-8b {TARGET}")
    full, packed = plain["rows"][0], narrow["rows"][0]
    assert packed["target_s"] == full["target_s"], "the target stays as it was"
    assert packed["draft_cost"] < full["draft_cost"]
    assert document["rows"][0]["speedup"] == packed["speedup"]
    status, _, err = call(f"{line} {TARGET} --draft-quantization int5")
    assert (status, err.count("\n")) == (2, 1)
    assert "--draft-quantization" in err


def test_vllm_spreads_a_draft_model_as_its_target(call: Call) -> None:
    line = "speedup --alpha .7 --k 3 --context 2k --target llama-3.1-70b --draft llama-3.2-1b --tp 4"
    _, default, _ = call(f"{line} --engine vllm")
    _, spread, _ = call(f"{line} --engine vllm --draft-tp 4")
    _, single, _ = call(f"{line} --engine vllm --draft-tp 1")
    _, other, _ = call(f"{line} --engine sglang")
    assert default["rows"] == spread["rows"] != single["rows"]
    said = "the draft runs on 1 of the 4 devices; --draft-tp spreads it"
    assert said in other["assumptions"]
    assert said not in default["assumptions"]


def test_one_alpha_for_a_head_that_fades_is_warned_of(call: Call) -> None:
    def codes(line: str) -> list[str]:
        _, document, _ = call(f"{line} {TARGET} --context 2k")
        return [advice["code"] for advice in document["warnings"]]

    assert "constant-alpha" in codes("speedup --alpha .7 --k 5 --method eagle3")
    assert "constant-alpha" in codes("schedule --alpha .7 --k-max 6 --method eagle3 --batches 1")
    assert "constant-alpha" not in codes("speedup --alpha .2 --k 3 --method eagle3")
    assert "constant-alpha" not in codes("speedup --rates .7/.6/.5/.4/.3 --k 5 --method eagle3")
    assert "constant-alpha" not in codes("speedup --alpha .7 --k 5 --draft llama-3.2-1b")


def test_a_context_of_zero_is_warned_of(call: Call) -> None:
    line = f"speedup --alpha .7 {TARGET} --draft llama-3.2-1b"
    _, empty, _ = call(line)
    _, filled, _ = call(f"{line} --context 2k")
    assert "no-context" in [advice["code"] for advice in empty["warnings"]]
    assert "no-context" not in [advice["code"] for advice in filled["warnings"]]


def test_a_checkpoint_whose_file_hides_its_format_is_warned_of(call: Call) -> None:
    line = "speedup --alpha .7 --target gpt-oss-120b --method eagle3 --context 2k"
    _, document, _ = call(line)
    assert "released-format" in [advice["code"] for advice in document["warnings"]]
    _, document, _ = call(f"{line} --quantization mxfp4")
    assert "released-format" not in [advice["code"] for advice in document["warnings"]]


def test_without_a_draft_token_the_range_is_a_point(call: Call) -> None:
    _, document, _ = call(
        f"speedup --alpha .7 --k 0 {TARGET} --draft llama-3.2-1b --context 2k --engine vllm"
    )
    row = document["rows"][0]
    assert (row["speedup"], row["speedup_low"], row["speedup_high"]) == (1.0, 1.0, 1.0)
