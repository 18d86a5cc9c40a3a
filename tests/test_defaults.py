"""`specmath.toml`: what it sets, what beats it, and what is wrong in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(line: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any, str]:
    status = run([*line.split(), "-f", "json"])
    captured = capsys.readouterr()
    return status, json.loads(captured.out) if captured.out else None, captured.err


TOML = """
alpha = 0.8
hardware = "h200-sxm"
k = 3

[speedup]
batch = "1,64"
explain = true
"""


def test_values_of_all_commands_and_of_one_are_taken_and_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "specmath.toml").write_text(TOML, encoding="utf-8")
    status, document, err = answer("speedup", capsys)
    assert status == 0
    assert err == (
        "specmath: defaults from specmath.toml: "
        "alpha = 0.8, hardware = h200-sxm, k = 3, batch = 1,64, explain = True\n"
    )
    inputs = document["inputs"]
    assert (inputs["alpha"], inputs["hardware"], inputs["k"], inputs["batch"]) == (
        0.8,
        "h200-sxm",
        3,
        [1, 64],
    )
    assert document["derivation"]
    _, document, err = answer("tokens", capsys)
    assert document["inputs"]["k"] == 3
    assert "hardware" not in err, "tokens has no such option"


def test_the_command_line_wins_and_drops_what_it_excludes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "specmath.toml").write_text(TOML, encoding="utf-8")
    _, document, err = answer("speedup --rates=.9/.8/.7 --c .1 --batch 2", capsys)
    assert document["inputs"]["batch"] == 2
    assert document["rows"][0]["case"] == "ratios"
    assert document["rows"][0]["alpha"] is None
    assert "alpha" not in err
    assert "hardware" not in err


def test_help_does_not_need_a_good_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "specmath.toml").write_text("][", encoding="utf-8")
    assert run(["speedup", "--help"]) == 0
    assert run(["show", "hardware", "h100-sxm"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("][", ["is not TOML", "line 1"]),
        ("alhpa = 0.8", ["unknown option 'alhpa'", "alpha"]),
        ("[speedpu]\nk = 3", ["unknown command 'speedpu'", "speedup"]),
        ("[tokens]\nbatch = 3", ["unknown option 'batch'"]),
        ("alpha = [0.8, 0.9]", ["alpha: must be a text, a number or true/false", "--alpha"]),
        ("alpha = 2024-01-01", ["alpha: must be a text"]),
        ("alpha = 1.7", ["--alpha: must be between 0 and 1"]),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, facts: list[str]
) -> None:
    (folder / "specmath.toml").write_text(text, encoding="utf-8")
    status, _, err = answer("tokens --k 4", capsys)
    assert status in (1, 2)
    error = err.splitlines()[-1]
    assert error.startswith("specmath: error: ")
    for fact in facts:
        assert fact in error


def test_a_folder_of_that_name_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "specmath.toml").mkdir()
    assert answer("tokens --alpha .7", capsys)[0] == 1
