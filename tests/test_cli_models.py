"""Models on the command line: names, files, stdin, layouts, dtypes, memory, and one pass taken apart."""

from __future__ import annotations

import builtins
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run
from specmath.model_catalogue import MODELS

Call = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line for JSON; returns status, document and stderr."""

    def called(line: str) -> tuple[int, Any, str]:
        status = run([*line.split(), "-f", "json"])
        captured = capsys.readouterr()
        return status, json.loads(captured.out) if captured.out else None, captured.err

    return called


CONFIG = MODELS / "llama-3.1-8b.json"
PAIR = "--target llama-3.1-70b --draft llama-3.2-1b --tp 4 --engine ideal"


def codes(document: Any) -> list[str]:
    """Codes of the warnings, but for the standing one that nothing was measured."""
    found = [advice["code"] for advice in document["warnings"]]
    return [code for code in found if code != "uncalibrated"]


def test_a_catalogue_name_a_hub_id_a_file_a_folder_and_stdin_are_one_model(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = CONFIG.read_text(encoding="utf-8")
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    answers = []
    for target in (
        "llama-3.1-8b",
        "meta-llama/Llama-3.1-8B-Instruct",
        f"{tmp_path}/config.json",
        str(tmp_path),
        "-",
    ):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        status, document, err = call(
            f"speedup --alpha .7 --target {target} --draft llama-3.2-1b --context 4k"
        )
        assert (status, err) == (0, "")
        answers.append(document["rows"][0]["target_s"])
    assert len(set(answers)) == 1


def test_naming_a_model_opens_its_file_and_no_other(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    real_open = io.open

    def watched(file: Any, *arguments: Any, **options: Any) -> Any:
        opened.append(str(file))
        return real_open(file, *arguments, **options)

    monkeypatch.setattr(io, "open", watched)
    monkeypatch.setattr(builtins, "open", watched)
    call("show model qwen3-32b")
    assert [
        Path(name).name for name in opened if "/models/" in name and not name.endswith("_index.json")
    ] == ["qwen3-32b.json"]


def test_context_layout_and_dtypes_change_the_pass_as_they_should(call: Call) -> None:
    def plain_s(options: str) -> float:
        return float(call(f"speedup --alpha .7 --batch 32 {PAIR} {options}")[1]["rows"][0]["target_s"])

    base = plain_s("--context 8k")
    assert plain_s("--context 32k") > base
    assert plain_s("--context 8k --quantization fp8") < base
    assert plain_s("--context 8k --kv-cache-dtype fp8") < base
    assert plain_s("--context 8k --link 50GB/s") > base
    assert plain_s("--context 8k --graph-sizes 64") >= base


def test_memory_bounds_the_batch_of_both_arms(call: Call) -> None:
    _, document, _ = call(f"speedup --alpha .7 --batch 60 --context 8k {PAIR}")
    row = document["rows"][0]
    weights, cache, slots = 70_553_706_496 * 2 / 4, 327_680 / 4, 8001
    assert row["max_batch"] == (85_520_809_984 * 0.9 - weights) // (slots * cache)
    assert row["max_batch_speculative"] < row["max_batch"]
    assert codes(document) == ["batch-does-not-fit"]
    assert any("speculation with k = 4" in advice["text"] for advice in document["warnings"])
    _, document, _ = call("speedup --alpha .7 --target llama-3.1-70b --draft llama-3.2-1b --engine ideal")
    assert codes(document) == ["weights-do-not-fit", "no-context"]


def test_crossover_of_a_mixture_of_experts_is_an_interval(call: Call) -> None:
    _, document, _ = call(
        "crossover --alpha .7 --target qwen3-30b-a3b --draft qwen3-0.6b --context 4k --engine ideal"
    )
    (row,) = document["rows"]
    assert row["wins"] == "within"
    (interval,) = row["winning_batches"]
    assert 1 < interval[0] < interval[1] < 4096
    assert row["winning_batches_in_memory"] == [[interval[0], 17]]
    assert row["breakeven_batch"] is None


def test_crossover_ranks_what_would_turn_the_answer(call: Call) -> None:
    line = "crossover --alpha .7 --target qwen3-32b --draft qwen3-0.6b --context 4k --batch 64 --engine ideal"
    _, document, _ = call(f"{line} --flips")
    assert document["schema"] == "specmath.flips/1"
    rows = {row["input"]: row for row in document["rows"]}
    assert [row["rank"] for row in document["rows"]] == [*range(1, 11), None, None]
    assert rows["alpha"]["turns_at"] == "< 0.511"
    assert rows["alpha"]["flips_below"] == pytest.approx(0.511, abs=5e-4)
    assert rows["memory_bytes_per_s"]["unit"] == "B/s"
    _, crossover, _ = call(line)
    assert crossover["verdict"].endswith(
        "at batch 64 turns at α < 0.511, verify cost > 1.84, draft cost > 0.433"
    )
    assert crossover["rows"][0]["breakeven_alpha"] == pytest.approx(rows["alpha"]["flips_below"])


def test_the_critical_context_of_a_pair_is_told(call: Call) -> None:
    _, document, _ = call(
        "crossover --alpha .7,.69 --k 4 --target qwen3-32b --draft qwen3-0.6b --engine ideal"
    )
    assert [row["critical_context"] for row in document["rows"]] == [pytest.approx(82_489, abs=1), None]


def test_show_model_lists_filters_and_takes_one_apart(call: Call) -> None:
    _, document, _ = call("show model")
    assert len(document["rows"]) == 173
    _, document, _ = call("show model --match qwen3* --models")
    assert {row["kind"] for row in document["rows"]} == {"model"}
    _, document, _ = call("show model deepseek-v3")
    assert document["inputs"]["kv_bytes_per_token"] == 70_272
    assert document["inputs"]["total_params"] == 671_026_404_352
    _, document, _ = call("show model llama-3.1-8b --quantization fp8")
    assert document["inputs"]["weight_bytes"] < 8.1e9 + 1.1e9 * 2


def test_show_pass_adds_up_to_the_plain_step_of_speedup(call: Call) -> None:
    _, document, _ = call("show pass --target llama-3.1-70b --tp 4 --batch 32 --context 8k --engine ideal")
    rows = {row["component"]: row for row in document["rows"]}
    parts = [row for name, row in rows.items() if name != "total"]
    assert set(rows) == {"dense", "attention, full", "communication", "total"}
    assert sum(row["time_s"] for row in parts) == pytest.approx(rows["total"]["time_s"], rel=1e-14)
    assert sum(row["share"] for row in parts) == pytest.approx(1, rel=1e-14)
    assert rows["dense"]["traffic_bytes"] == 69_503_033_344 * 2 / 4
    _, document, _ = call(f"speedup --alpha .7 --batch 32 --context 8k {PAIR}")
    assert document["rows"][0]["target_s"] == pytest.approx(rows["total"]["time_s"], rel=1e-14)


def test_an_int4_model_fits_a_24_gb_card(call: Call) -> None:
    _, document, _ = call(
        "speedup --alpha .7 --hardware rtx-4090 --target qwen3-32b --quantization int4 --draft qwen3-0.6b "
        "--context 2k --batch 1 --engine ideal"
    )
    assert codes(document) == []
    assert document["rows"][0]["max_batch"] >= 1


@pytest.mark.parametrize(
    ("line", "status", "facts"),
    [
        ("--target llama-3.1-8b", 2, ["--draft", "llama-3.1-8b", "--match-rate"]),
        ("--target llama-3.1-9b --draft 1B", 1, ["llama-3.1-9b", "nearest", "llama-3.1-8b"]),
        ("--target some/unknown-7b --draft 1B", 1, ["some/unknown-7b", "config.json"]),
        ("--target /no/config.json --draft 1B", 1, ["/no/config.json"]),
        ("--target llama-3.2-1b --draft eagle3-llama-3.1-8b", 2, ["--draft", "4,096", "2,048"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --hardware rtx-4090 --tp 2", 2, ["--link"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --tp 0", 2, ["--tp"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --tp 2 --ep 3", 2, ["--ep", "divide"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --draft-tp 2", 2, ["--draft-tp", "at most"]),
        (
            "--target llama-3.1-8b --draft llama-3.2-1b --quantization fp7",
            2,
            ["--quantization", "fp7", "fp8"],
        ),
        ("--target llama-3.1-8b --draft llama-3.2-1b --dtype int3", 2, ["--dtype", "int3"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --kv-cache-dtype x", 2, ["--kv-cache-dtype"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --link fast", 2, ["--link", "fast"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --graph-sizes 0", 2, ["--graph-sizes"]),
        ("--target - --draft -", 2, ["--draft", "stdin can be read once"]),
        (
            "--target llama-3.1-8b --draft llama-3.2-1b --tp 2 --link 1e-300B/s",
            2,
            ["--link", "between 1 and"],
        ),
        ("--target llama-3.1-8b --draft llama-3.2-1b --context 1e308", 2, ["--context", "1e+12"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --batch 1e15", 2, ["--batch", "1000000000"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --graph-sizes 1:10000", 2, ["--graph-sizes", "8,192"]),
        ("--target llama-3.1-8b --draft llama-3.2-1b --tp 2 --ep 2", 2, ["--ep", "has none"]),
        ("--kv-cache-dtype zz", 2, ["--kv-cache-dtype", "zz"]),
        ("--case worst", 2, ["--case", "worst", "memory_bound"]),
    ],
)
def test_a_fault_is_one_line_that_names_what_and_where(
    call: Call, line: str, status: int, facts: list[str]
) -> None:
    told, document, err = call(f"speedup --alpha .7 {line}")
    assert (told, document) == (status, None)
    assert err.startswith("specmath: error: ")
    assert err.count("\n") == 1
    for fact in facts:
        assert fact in err


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--target llama-3.1-70b --draft qwen3-0.6b --tp 4", "vocabularies-differ"),
        ("--target llama-3.1-70b --draft llama-3.2-1b --tp 3", "uneven-heads"),
        ("--target llama-3.1-70b --draft llama-3.2-1b --tp 8 --dp 2", "several-hosts"),
        ("--target 47B/13B --draft 1B --tp 2", "textbook-moe"),
    ],
)
def test_what_does_not_fit_together_is_warned_of(call: Call, options: str, code: str) -> None:
    _, document, _ = call(f"speedup --alpha .7 {options}")
    assert code in codes(document)
    _, document, _ = call(f"speedup --alpha .7 {PAIR} --context 1k")
    assert codes(document) == []


def test_a_link_that_is_typed_is_taken_for_that_between_hosts(call: Call) -> None:
    _, document, _ = call(f"speedup --alpha .7 {PAIR.replace('tp 4', 'tp 16')} --link 50GB/s")
    assert "several-hosts" not in [advice["code"] for advice in document["warnings"]]


def test_the_verdict_says_what_memory_does_not_hold(call: Call) -> None:
    _, document, _ = call("speedup --alpha .7 --target llama-3.1-405b --draft llama-3.1-8b --tp 4")
    assert document["verdict"].startswith("DOES NOT FIT; if it did, FASTER")
    _, document, _ = call(
        "crossover --alpha .7 --target qwen3-30b-a3b --draft qwen3-0.6b --context 4k --engine ideal"
    )
    assert "where memory ends it (17 sequences with speculation, 40 without)" in document["verdict"]


def test_where_the_draft_runs_and_in_what_the_target_computes_is_said(call: Call) -> None:
    _, document, _ = call(f"speedup --alpha .7 {PAIR} --quantization fp8")
    assert "the draft runs on 1 of the 4 devices; --draft-tp spreads it" in document["assumptions"]
    assert document["inputs"]["compute_dtypes"] == "bf16/fp8"
    assert document["inputs"]["peak_flops_per_s"] == [989.4e12, 1978.9e12], "one peak for each dtype"
    _, lookup, _ = call("speedup --alpha .7 --match-rate .5 --target llama-3.1-70b --tp 4")
    assert not any("the draft runs on" in sentence for sentence in lookup["assumptions"])
    assert "1.979 PFLOP/s fp8 dense" in document["assumptions"][0]


def test_a_packaged_file_without_its_quantisation_says_so(call: Call) -> None:
    _, document, _ = call("show model deepseek-v3")
    told = (
        "The checkpoint is released in fp8, which its file does not say: quantise it so for its real sizes."
    )
    assert told in document["assumptions"]
    _, quantised, _ = call("show model deepseek-v3 --quantization fp8")
    assert quantised["inputs"]["weight_bytes"] < 0.52 * document["inputs"]["weight_bytes"]
    assert any("Layer weights are counted in fp8" in sentence for sentence in quantised["assumptions"])


def test_show_pass_answers_whether_verifying_is_free(call: Call) -> None:
    verify = call("show pass --target llama-3.1-70b --tp 4 --batch 32 --context 8k --tokens 5")[1]
    plain = call("show pass --target llama-3.1-70b --tp 4 --batch 32 --context 8k")[1]
    ratio = verify["rows"][-1]["time_s"] / plain["rows"][-1]["time_s"]
    assert f"{ratio:.3f} plain passes" in verify["verdict"]
    assert "plain passes" not in plain["verdict"]


def test_what_was_typed_about_the_devices_is_told(call: Call) -> None:
    _, document, _ = call(f"speedup --alpha .7 {PAIR} --link 5GB/s --graph-sizes 8,16")
    assert document["inputs"]["link_bytes_per_s"] == 5e9
    assert document["inputs"]["graph_sizes"] == [8, 16]


@pytest.mark.parametrize("content", [b"\xff\xfe{\x00", b"", b"not json"])
def test_stdin_that_is_no_config_is_one_line(
    call: Call, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    status, document, err = call("show model -")
    assert (status, document) == (1, None)
    assert err.startswith("specmath: error: stdin: ")
    assert err.count("\n") == 1


def test_a_byte_order_mark_on_stdin_is_no_fault(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"\xef\xbb\xbf" + CONFIG.read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert call("show model -")[0] == 0
