"""`specmath check`: exit status, verdict, formats, what was not checked, and refusals."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run
from specmath.compatibility.question import check_speculation

SOUND = '{"method": "ngram", "num_speculative_tokens": 3}'
WRONG = '{"method": "ngram", "num_spec_tokens": 3}'


def output(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = run(["check", *words])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    _, out, _ = output(capsys, *words, "-f", "json")
    parsed: dict[str, Any] = json.loads(out)
    return parsed


@pytest.mark.parametrize(("config", "status"), [(SOUND, 0), (WRONG, 1)])
def test_the_exit_status_tells_whether_something_breaks(
    capsys: pytest.CaptureFixture[str], config: str, status: int
) -> None:
    assert output(capsys, "--engine", "vllm@0.33", "--speculative-config", config)[0] == status


@pytest.mark.parametrize("form", ["table", "md", "csv", "json", "latex", "html"])
def test_every_format(capsys: pytest.CaptureFixture[str], form: str) -> None:
    status, out, _ = output(capsys, "--engine", "vllm@0.33", "--speculative-config", WRONG, "-f", form)
    assert status == 1
    assert "breaks" in out


def test_a_file_and_the_status(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "check.csv"
    assert output(capsys, "--engine", "vllm@0.33", "--speculative-config", WRONG, "-o", str(path))[0] == 1
    (first, *_) = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
    assert list(first) == ["effect", "code", "subject", "finding", "evidence", "remedy", "versions"]
    assert (first["code"], first["remedy"]) == ("key-misspelt", "write num_speculative_tokens")


def test_the_verdict_counts(capsys: pytest.CaptureFixture[str]) -> None:
    told = document(capsys, "--engine", "vllm@0.32", "--speculative-config", WRONG)
    assert told["verdict"] == "BREAKS: 1 finding; BITES: 1"
    assert told["schema"] == "specmath.check/1"
    assert [row["effect"] for row in told["rows"]] == ["breaks", "bites"]


def test_nothing_found_says_what_was_and_was_not_checked(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = output(capsys, "--engine", "vllm@0.33")
    assert status == 0
    assert "NOTHING FOUND in what was checked: the engine's own rules" in out
    assert "requests (needs --requests)" in out
    assert "keys of the speculative config (needs --speculative-config)" in out


def test_what_every_input_adds_is_no_longer_missing(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_text('{"n": 1, "temperature": 0}\n', encoding="utf-8")
    table = check_speculation("vllm@0.33", requests=path)
    assert "requests (needs" not in table.assumptions[1]
    assert "of 1 requests these traits were counted" in table.assumptions[2]
    assert table.inputs["requests"] == 1


@pytest.mark.parametrize(
    ("engine", "code"),
    [
        ("vllm", "no-version"),
        ("vllm@0.34", "version-not-read"),
        ("vllm@0.5", "version-not-read"),
        ("vllm@0.33", None),
    ],
)
def test_what_is_not_known_of_a_version_is_said(engine: str, code: str | None) -> None:
    codes = [advice.code for advice in check_speculation(engine).warnings]
    assert codes == ([] if code is None else [code])


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ([], 2, "nothing to check"),
        (["--engine", "typical"], 2, "has no rules to check"),
        (["--engine", "vllm@x"], 2, "is no version"),
        (["--engine", "vlm@0.3"], 1, "nearest: vllm"),
        (["--engine", "sglang", "--speculative-config", SOUND], 2, "is of vllm"),
        (["--speculative-config", "{"], 2, "--speculative-config"),
        (["--speculative-config", "[" * 100_000], 2, "nested"),
        (["--speculative-config", "@missing.json"], 1, "no such file"),
        (["--server-args", "--x 'y"], 2, "cannot be split"),
        (["--engine", "vllm", "--server-args", "--max-num-seqs many"], 2, "whole number"),
        (["--log", "missing.log"], 1, "no such file"),
        (["--requests", "missing.jsonl"], 1, "no such file"),
        (["--engine", "vllm", "--method", "egale"], 2, "is none of"),
        (["--engine", "vllm", "--k", "-1"], 2, "--k"),
        (["--engine", "vllm", "--tp", "0"], 2, "--tp"),
        (["--engine", "vllm", "--max-num-seqs", "1,2"], 2, "takes one value"),
        (["--target", "no-such-model"], 1, "unknown model"),
        (["--requests", "-", "--log", "-"], 2, "stdin can be read once"),
    ],
)
def test_refusals_are_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str], status: int, told: str
) -> None:
    found, out, err = output(capsys, *words)
    assert (found, out) == (status, "")
    assert err.count("\n") == 1
    assert told in err


def test_escape_codes_do_not_come_out(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("table", "md", "csv", "json", "html"):
        _, out, err = output(
            capsys,
            "--engine",
            "vllm",
            "--speculative-config",
            '{"me\\u001b[31mthod": "a\\u001b[2J"}',
            "-f",
            form,
        )
        assert "\x1b" not in out + err


def test_a_typed_model_pair(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--engine", "vllm@0.32", "--target", "qwen3-32b", "--draft", "llama-3.2-1b", "--k", "4"]
    told = document(capsys, *words)
    assert "vocabulary" in [row["code"] for row in told["rows"]]
    assert (told["inputs"]["target"], told["inputs"]["draft"]) == ("qwen3-32b", "llama-3.2-1b")
