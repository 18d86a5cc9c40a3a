"""`specmath load` from the outside: every option, refusals in one line, every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run

Call = Callable[..., tuple[int, str, str]]
PAIR = "--target llama-3.1-8b --draft eagle3-llama-3.1-8b --engine vllm@0.32"
MAIN = f"--rate 5 --prompt 2k --output 300 --alpha .7 --k 4 {PAIR}"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line; returns status, stdout and stderr."""

    def called(line: str) -> tuple[int, str, str]:
        status = run(["load", *line.split()])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return called


def rows_of(call: Call, line: str) -> list[dict[str, Any]]:
    status, out, err = call(f"{line} -f json")
    assert (status, err) == (0, "")
    rows: list[dict[str, Any]] = json.loads(out)["rows"]
    return rows


def test_the_main_job(call: Call) -> None:
    status, out, err = call(f"{MAIN} -f json")
    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["schema"] == "specmath.load/1"
    assert [row["policy"] for row in document["rows"]] == ["off", "static", "tiers", "adaptive"]
    off, static = document["rows"][:2]
    assert static["k"] == 4
    assert static["batch"] < off["batch"]
    assert static["itl_s"] > off["itl_s"]
    assert off["batch"] == pytest.approx(5 * 299 * off["tpot_s"], rel=1e-3)
    assert document["inputs"]["classes"] == "all: share=1,prompt=2000,output=300,alpha=0.7"


def test_the_verdict_comes_first(call: Call) -> None:
    out = call(f"{MAIN} -f md")[1]
    assert "at 5/s: k = 4 takes" in out.splitlines()[0]


@pytest.mark.parametrize("form", ["md", "csv", "json", "latex", "html", "table"])
def test_every_format(call: Call, form: str) -> None:
    status, out, _ = call(f"{MAIN} -f {form}")
    assert status == 0
    assert "static" in out


def test_a_file(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    assert call(f"{MAIN} -o {path}")[0] == 0
    assert len(list(csv.DictReader(io.StringIO(path.read_text())))) == 4


def test_several_rates_and_classes(call: Call) -> None:
    rows = rows_of(
        call,
        f"--rate 1,4 --k 3 {PAIR} --class name=code,share=.3,prompt=2k,output=300,alpha=.6 "
        "--class share=.7,prompt=500,output=150,alpha=.8",
    )
    assert len(rows) == 2 * 4 * 3
    assert [row["class"] for row in rows[:3]] == ["all", "code", "class 2"]
    assert {row["rate_per_s"] for row in rows} == {1, 4}


def test_a_class_takes_what_it_leaves_out_from_the_options(call: Call) -> None:
    typed = rows_of(call, f"{MAIN} --class share=1,prompt=2k,output=300,name=all")
    assert typed == rows_of(call, MAIN)


def test_overload_is_said(call: Call) -> None:
    status, out, _ = call(f"{MAIN} --rate 500 -f json")
    assert status == 0
    document = json.loads(out)
    assert {row["state"] for row in document["rows"]} == {"overload"}
    assert {row["tpot_s"] for row in document["rows"]} == {None}
    assert any(advice["code"] == "overload" for advice in document["warnings"])


def test_prefix_hits_are_lost_in_vllm_beside_a_head(call: Call) -> None:
    cached = f"{MAIN} --prefix cached=1500,unit=16"
    assert [row["lost_prefix_tokens"] for row in rows_of(call, cached)] == [0, 16, 16, 16]
    other = cached.replace("vllm@0.32", "sglang")
    assert {row["lost_prefix_tokens"] for row in rows_of(call, other)} == {0}


def test_sglang_runs_few_beside_a_drafter(call: Call) -> None:
    line = MAIN.replace("vllm@0.32", "sglang")
    assert rows_of(call, line)[1]["max_batch"] == 48
    assert rows_of(call, f"{line} --max-batch 64")[1]["max_batch"] == 64


def test_the_zero_tier_has_its_cost_by_version(call: Call) -> None:
    for version, cost in (("0.26", 0.192), ("0.32", None)):
        out = call(f"{MAIN.replace('0.32', version)} -f json")[1]
        assert json.loads(out)["inputs"].get("zero_tier_cost") == (cost and pytest.approx(cost, abs=1e-3))


def test_a_service_level_sets_goodput(call: Call) -> None:
    rows = rows_of(call, f"{MAIN} --slo ttft=500ms,tpot=12ms")
    assert all(0 < row["goodput_per_s"] < row["highest_rate_per_s"] for row in rows)


def test_replicas(call: Call) -> None:
    one, two = (rows_of(call, f"{MAIN} --rate {rate} --replicas {n}")[1] for rate, n in ((5, 1), (10, 2)))
    assert two["batch"] == pytest.approx(one["batch"])


def test_the_gate_with_the_config_of_the_engine(call: Call) -> None:
    status, out, _ = call(f"--alpha .6 {PAIR.replace('0.32', '0.26')} --gate -f md")
    assert status == 0
    assert out.startswith("**GATE: k = 3 from batch 1")
    assert "num_speculative_tokens_per_batch_size" in out


def test_the_gate_of_a_profile_without_an_engine(call: Call) -> None:
    status, out, _ = call("--alpha .7 --k 4 --gate -f md --output 50")
    assert status == 0
    assert "```" not in out


def test_pools(call: Call) -> None:
    out = call(
        f"--rate 8 --k 2 {PAIR} --pools -f json --class share=.3,alpha=.2,name=bulk --class share=.7,alpha=.8"
    )[1]
    assert json.loads(out)["schema"] == "specmath.pools/1"
    assert {row["layout"] for row in json.loads(out)["rows"]} == {
        "plain alone",
        "speculative alone",
        "two pools",
    }


def test_simulated_rows(call: Call, tmp_path: Path) -> None:
    log = tmp_path / "runs.jsonl"
    line = f"{MAIN} --simulate 300 --log {log}"
    first = rows_of(call, line)
    assert [row["by"] for row in first if row["policy"] == "static"] == ["closed form", "simulation"]
    assert rows_of(call, line) == first  # the second time out of the log


TRACE = "arrival_s,prompt_tokens,output_tokens,class\n" + "".join(
    f"{second / 4},{100 + second},{40 + second},{'ab'[second % 2]}\n" for second in range(40)
)


def test_a_trace_has_its_own_rate_lengths_and_classes(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    rows = rows_of(call, f"--alpha .7 --k 4 {PAIR} --trace {path} --class name=b,alpha=.5 --simulate 40")
    whole, first, second, simulated = (row for row in rows if row["policy"] == "static")
    assert whole["rate_per_s"] == pytest.approx(4)
    assert [first["class"], second["class"], simulated["by"]] == ["a", "b", "simulation"]
    assert second["tpot_s"] > first["tpot_s"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{MAIN} --rate -2", "--rate: must be above 0"),
        (f"{MAIN} --rate 0", "--rate: must be above 0"),
        (f"{MAIN} --output 0", "--output: must be at least 2, got 0: nothing would be emitted"),
        (f"{MAIN} --output 1", "--output: must be at least 2, got 1: the prefill emits the first token"),
        (f"{MAIN} --output x.csv", "a file to write to is -o"),
        (f"{MAIN} --prompt 5M", "--prompt: with its output it has 5,000,300 tokens, which do not fit"),
        (
            f"{MAIN} --class share=.3 --class share=.6",
            "--class: shares must add up to 1, got 0.3 + 0.6 = 0.9",
        ),
        (f"{MAIN} --class prompt=3k", "--class: class 1 lacks its share"),
        (f"{MAIN} --class share=1,colour=red", "--class: unknown key 'colour'"),
        (f"{MAIN} --alpha .6,.7", "--alpha: takes one acceptance"),
        (f"{MAIN} --slo ttft=0ms", "--slo: must be above 0"),
        (f"{MAIN} --slo speed=5", "--slo: unknown key 'speed'"),
        (f"{MAIN} --prefix cached=3k", "--prefix: must be part of the prompt"),
        (f"{MAIN} --spread uniform", "--spread: must be constant or geometric or lognormal"),
        (f"{MAIN} --gate --pools", "--gate: and --pools exclude each other"),
        (f"{MAIN} --pools --rate 1,2", "--rate: takes one value with --pools"),
        (f"{MAIN} --trace nowhere.csv", "nowhere.csv"),
        ("--alpha .7 --k 4 --c .1", "typed ratios know no batch; a load needs --hardware"),
        (f"--k 4 {PAIR}", "--alpha: give an acceptance"),
    ],
)
def test_refusals_are_one_line(call: Call, line: str, told: str) -> None:
    status, out, err = call(line)
    assert status in (1, 2)
    assert out == ""
    assert err.count("\n") == 1
    assert told in err


def test_an_empty_trace(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n")
    status, out, err = call(f"{MAIN} --trace {path}")
    assert (status, out) == (1, "")
    assert "holds no request" in err
