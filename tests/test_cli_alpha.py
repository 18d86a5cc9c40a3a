"""`specmath alpha` from the outside: sources, typed counts, formats, refusals in one line."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run
from specmath.engines.alpha_table import AlphaTable

Call = Callable[..., tuple[int, str, str]]
SAMPLES = Path(__file__).parent / "data" / "engine_samples"
FIRST, SECOND = (SAMPLES / f"vllm-0.13.0-dp2-metrics-{place}.txt" for place in (1, 2))
KEYS = {
    *("model", "drafts", "drafted", "accepted", "accepted_over_drafted", "acceptance_length", "k"),
    *("alpha", "standard_error", "alpha_low", "alpha_high", "survival", "conditional"),
}
"""The names that other programs rely on."""


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line; returns status, stdout and stderr."""

    def called(*words: object) -> tuple[int, str, str]:
        status = run(["alpha", *map(str, words)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return called


def document_of(text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    return document


def test_the_main_job(call: Call) -> None:
    status, out, err = call(SECOND, "--since", FIRST, "-f", "json")
    document = document_of(out)
    [row] = document["rows"]
    assert (status, err, document["schema"]) == (0, "", "specmath.alpha/1")
    assert row.keys() >= KEYS
    assert (row["drafts"], row["drafted"], row["accepted"], row["k"]) == (5500, 16_500, 8690, 3)
    assert row["acceptance_length"] == pytest.approx(2.58)
    assert row["alpha"] == pytest.approx(8690 / (5500 + 4080 + 2790))
    assert row["survival"] == pytest.approx([4080 / 5500, 2790 / 5500, 1820 / 5500])
    assert row["alpha_low"] < row["alpha"] < row["alpha_high"]
    assert row["engine_step_s"] == pytest.approx(0.012574, abs=1e-5)
    assert document["warnings"][-1]["code"] == "next-step"
    assert f"specmath speedup --from {SECOND} --since {FIRST} " in document["warnings"][-1]["remedy"]


def test_markdown_says_the_verdict_and_what_the_rate_is(call: Call) -> None:
    status, out, _ = call(SAMPLES / "sglang-0.5.9-metrics.txt")
    assert status == 0
    assert out.startswith("**α = 0.707, 2.560 tokens per step at k = 3**")
    assert "is length/(k + 1), the bonus token in both; it is not α" in out


@pytest.mark.parametrize("form", ["table", "md", "csv", "json", "latex", "html"])
def test_every_format(call: Call, form: str) -> None:
    status, out, _ = call(SECOND, "-f", form)
    assert status == 0
    assert "9300" in out.replace(",", "").replace("9300.0", "9300")


def test_csv_has_every_key(call: Call) -> None:
    _, out, err = call(SECOND, "-f", "csv")
    [row] = csv.DictReader(io.StringIO(out))
    assert tuple(row) == AlphaTable.keys
    assert "is not α" in err


@pytest.mark.parametrize(
    ("words", "alpha", "k"),
    [
        pytest.param("--drafts 100 --positions 60,36", 96 / 160, 2, id="positions with commas"),
        pytest.param("--drafts 100 --positions 60/36", 96 / 160, 2, id="positions with slashes"),
        pytest.param("--drafts 100 --positions 60,60", 120 / 160, 2, id="equal positions stay two"),
        pytest.param("--drafts 100 --accepted 75 --k 2", 0.5, 2, id="accepted and k"),
        pytest.param("--drafts 100 --drafted 200 --accepted 75", 0.5, 2, id="accepted and drafted"),
        pytest.param("--drafted 200 --accepted 75 --k 2", 0.5, 2, id="drafted and k"),
        pytest.param("--acceptance-length 1.75 --k 2", 0.5, 2, id="length and k"),
        pytest.param("--positions .5/.25", 0.5, 2, id="shares"),
    ],
)
def test_typed_counts(call: Call, words: str, alpha: float, k: int) -> None:
    status, out, err = call(*words.split(), "-f", "json")
    [row] = document_of(out)["rows"]
    assert (status, err) == (0, "")
    assert row["alpha"] == pytest.approx(alpha)
    assert (row["engine"], row["k"]) == ("typed", k)


def test_stdin(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SECOND.read_bytes())))
    status, out, _ = call("-", "-f", "json")
    document = document_of(out)
    assert (status, document["rows"][0]["drafts"]) == (0, 9300)
    assert "next-step" not in {one["code"] for one in document["warnings"]}  # stdin cannot be read again


def two_models(tmp_path: Path) -> Path:
    lines = [
        f'vllm:spec_decode_num_{name}_total{{model_name="{model}"}} {value * factor}'
        for model, factor in (("small", 1), ("large", 2))
        for name, value in (("drafts", 100), ("draft_tokens", 100), ("accepted_tokens", 60 // factor))
    ]
    path = tmp_path / "two.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_several_models_have_a_row_each_and_one_can_be_picked(call: Call, tmp_path: Path) -> None:
    path = two_models(tmp_path)
    rows = document_of(call(path, "--k", 1, "-f", "json")[1])["rows"]
    assert {row["model"]: row["alpha"] for row in rows} == {"small": 0.6, "large": 0.3}
    [row] = document_of(call(path, "--k", 1, "--model", "large", "-f", "json")[1])["rows"]
    assert row["drafts"] == 200
    status, _, err = call(path, "--model", "largo")
    assert (status, err.count("\n")) == (1, 1)
    assert "unknown model 'largo'; nearest: large" in err


def test_several_sources_have_a_row_each(call: Call) -> None:
    rows = document_of(call(FIRST, SECOND, "-f", "json")[1])["rows"]
    assert [row["drafts"] for row in rows] == [3800, 9300]


def test_the_engine_and_its_version_can_be_named(call: Call) -> None:
    path = SAMPLES / "sglang-0.5.9-metrics.txt"
    [row] = document_of(call(path, "--source-engine", "sglang@0.5.12", "-f", "json")[1])["rows"]
    assert (row["engine_version"], row["alpha"]) == ("0.5.12", None)  # there, .64 is another rate
    log = SAMPLES / "vllm-0.10.0-v1-server.log"
    [row] = document_of(call(log, "--source-engine", "vllm@0.10.1", "-f", "json")[1])["rows"]
    assert row["engine_version"] == "0.10.1"
    status, _, err = call(path, "--source-engine", "sglong")
    assert (status, "unknown engine 'sglong'; nearest: sglang" in err) == (1, True)


@pytest.mark.parametrize(
    ("words", "status", "problem"),
    [
        pytest.param([], 2, "--drafts: is missing: give two of", id="nothing"),
        pytest.param(["--k", 3], 2, "--drafts: is missing", id="k alone"),
        pytest.param([SECOND, "--drafts", 3], 2, "--drafts: excludes SOURCE", id="both"),
        pytest.param(["--since", FIRST], 2, "--since: belongs to SOURCE", id="since alone"),
        pytest.param(
            [FIRST, SECOND, "--since", FIRST], 2, "--since: goes with one SOURCE", id="since of two"
        ),
        pytest.param(["-", "-"], 2, "SOURCE: - is taken already", id="stdin twice"),
        pytest.param(["--drafts", "x", "--accepted", 1], 2, "--drafts: ", id="no number"),
        pytest.param(["--drafts", "1,2", "--accepted", 1], 2, "--drafts: takes one value", id="a list"),
        pytest.param(["--drafts", 9, "--positions", "5/6"], 2, "--positions: cannot rise", id="rising"),
        pytest.param([SECOND, "--k", 0], 2, "--k: must be a whole number from 1", id="k of 0"),
        pytest.param(["--drafts", 0, "--drafted", 0, "--accepted", 0], 1, "no data: no draft", id="zero"),
        pytest.param([SAMPLES / "vllm-0.13.0-zero-drafts-metrics.txt"], 1, "no data: ", id="idle server"),
        pytest.param([SAMPLES / "vllm-0.13.0-no-spec-metrics.txt"], 1, "no data: there are no", id="off"),
        pytest.param(["nowhere.txt"], 1, "nowhere.txt: ", id="no file"),
        pytest.param([__file__], 1, "none of the formats known", id="no engine's output"),
    ],
)
def test_a_wrong_line_is_told_in_one(call: Call, words: list[object], status: int, problem: str) -> None:
    found, out, err = call(*words)
    assert (found, out, err.count("\n")) == (status, "", 1)
    assert problem in err


def test_names_from_a_source_never_reach_the_terminal_as_commands(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "evil.txt"
    model = "a\\n\x1b[31m\u202eb"
    path.write_text(
        f'vllm:spec_decode_num_drafts_total{{model_name="{model}"}} 10\n'
        f'vllm:spec_decode_num_accepted_tokens_total{{model_name="{model}"}} 4\n'
        f'vllm:spec_decode_num_draft_tokens_total{{model_name="{model}"}} 10\n',
        encoding="utf-8",
    )
    for form in ("md", "table", "json", "csv"):
        status, out, err = call(path, "--k", 1, "-f", form)
        assert status == 0
        assert "\x1b[31m" not in out + err
        assert "\u202e" not in out + err or form == "csv"
