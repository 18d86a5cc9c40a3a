"""`specmath.toml`: what it sets, what beats it, and what is wrong in it."""

from __future__ import annotations

import json
import os
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
        "alpha = 0.8, hardware = h200-sxm, k = 3, batch = 1,64, explain = true\n"
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
        ("alpha = [0.8, 0.9]", ["alpha: must be a text or a number", "--alpha"]),
        ("alpha = 2024-01-01", ["alpha: must be a text"]),
        ("alpha = true", ["alpha: must be a text or a number"]),
        ('[tokens]\nexplain = "maybe"', ["explain: must be true or false"]),
        ("debug = true", ["unknown option 'debug'"]),
        ("k = " + "9" * 5000, ["is not TOML"]),
        ("k = " + "[" * 5000, ["nested too deeply"]),
        ("x" * 70_000, ["larger than 64 kB"]),
        ("alpha = 1.7", ["specmath.toml: --alpha: must be between 0 and 1"]),
    ],
)
def test_what_is_wrong_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, facts: list[str]
) -> None:
    (folder / "specmath.toml").write_text(text, encoding="utf-8")
    status, _, err = answer("tokens --k 4", capsys)
    assert status == 1, "a file is the world, not the command line"
    error = err.splitlines()[-1]
    assert error.startswith("specmath: error: ")
    for fact in facts:
        assert fact in error


def test_a_folder_of_that_name_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "specmath.toml").mkdir()
    assert answer("tokens --alpha .7", capsys)[0] == 1


def test_a_typed_law_drops_what_refines_the_files_law(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "specmath.toml").write_text('ranks = ".6/.2"\ntree-nodes = 4\n', encoding="utf-8")
    status, document, err = answer("tokens --alpha .6", capsys)
    assert (status, err) == (0, "")
    assert document["inputs"]["alpha"] == 0.6


def test_typed_ratios_drop_the_case_of_a_roofline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "specmath.toml").write_text('case = "ideal"\nalpha = 0.7\n', encoding="utf-8")
    status, document, _ = answer("speedup --c .1", capsys)
    assert (status, document["rows"][0]["case"]) == (0, "ratios")


def test_a_typed_draft_drops_the_match_rate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "specmath.toml").write_text('match-rate = 0.3\nalpha = "0.7"\n', encoding="utf-8")
    status, document, _ = answer("speedup --draft 2B", capsys)
    assert (status, document["inputs"]["draft"]) == (0, "2B")


def test_a_crossover_takes_no_ratios_from_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "specmath.toml").write_text("c = 0.1\nalpha = 0.7\n", encoding="utf-8")
    assert answer("crossover", capsys)[0] == 0
    assert answer("speedup", capsys)[1]["rows"][0]["case"] == "ratios"


def test_nothing_of_the_file_reaches_the_terminal_raw(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'alpha = "\\u001b[31m0.5"\nk = """4\nspecmath: forged"""\n'
    (folder / "specmath.toml").write_text(text, encoding="utf-8")
    _, _, err = answer("tokens", capsys)
    assert "\x1b" not in err
    assert [line for line in err.splitlines() if line.startswith("specmath: forged")] == []


def test_a_loop_of_links_and_a_pipe_are_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "specmath.toml").symlink_to(folder / "specmath.toml")
    assert answer("tokens --alpha .7", capsys)[0] == 1
    (folder / "specmath.toml").unlink()
    os.mkfifo(folder / "specmath.toml")
    status, _, err = answer("tokens --alpha .7", capsys)
    assert (status, "no regular file" in err) == (1, True)


def test_what_a_source_counts_is_not_overridden_by_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scrape = Path(__file__).parent / "data" / "engine_samples" / "vllm-0.8.5-v1-metrics.txt"
    (folder / "specmath.toml").write_text("alpha = 0.6\nk = 8\nbatch = 70\n", encoding="utf-8")
    _, counted, _ = answer(f"alpha {scrape}", capsys)
    assert counted["inputs"]["k"] == 4
    _, told, _ = answer(f"tokens --from {scrape}", capsys)
    assert told["inputs"]["k"] == 4
    _, forecast, _ = answer(f"speedup --from {scrape}", capsys)
    assert forecast["inputs"]["batch"] != 70
