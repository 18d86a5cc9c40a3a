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
MAIN = f"--rate 5 --prompt 2k --output-tokens 300 --alpha .7 --k 4 {PAIR}"


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
    assert all(0 < row["goodput_rate_per_s"] < row["highest_rate_per_s"] for row in rows)


def test_replicas(call: Call) -> None:
    one, two = (rows_of(call, f"{MAIN} --rate {rate} --replicas {n}")[1] for rate, n in ((5, 1), (10, 2)))
    assert two["batch"] == pytest.approx(one["batch"])


def test_the_gate_with_the_config_of_the_engine(call: Call) -> None:
    status, out, _ = call(f"--alpha .6 {PAIR.replace('0.32', '0.26')} --gate -f md")
    assert status == 0
    assert out.startswith("**GATE: k = 3 from batch 1")
    assert "num_speculative_tokens_per_batch_size" in out


def test_the_gate_of_a_profile_without_an_engine(call: Call) -> None:
    status, out, _ = call("--alpha .7 --k 4 --gate -f md --output-tokens 50")
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


def test_a_trace_is_played_to_each_rate(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    line = f"--alpha .7 --k 4 {PAIR} --trace {path} --simulate 40"
    own, faster = rows_of(call, f"{line} --rate 4,8"), rows_of(call, f"{line} --rate 8")
    simulated = [row for row in own if row["by"] == "simulation" and row["policy"] == "off"]
    assert [row["rate_per_s"] for row in simulated] == [4, 8]
    assert simulated[1]["tokens_per_s_per_gpu"] > 1.5 * simulated[0]["tokens_per_s_per_gpu"]
    assert simulated[1] == next(row for row in faster if row["by"] == "simulation" and row["policy"] == "off")


def test_a_trace_has_no_more_requests_than_it_has(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    err = call(f"--alpha .7 {PAIR} --trace {path} --simulate 41")[2]
    assert "--simulate: must be from 1 to 40, the requests of the trace, got 41" in err


def test_a_draft_brings_its_own_acceptance_and_k(call: Call) -> None:
    asked = f"--rate 5 --target llama-3.1-8b {PAIR.split('eagle3-llama-3.1-8b')[1]}"
    record = rows_of(call, f"{asked} --draft eagle3-llama-3.1-8b,alpha=.6,k=3")
    assert record == rows_of(call, f"{asked} --draft eagle3-llama-3.1-8b --alpha .6 --k 3")
    assert record[1]["k"] == 3
    method = rows_of(call, f"{asked} --draft eagle3,alpha=.75,k=2")
    assert method == rows_of(call, f"{asked} --method eagle3 --alpha .75 --k 2")


def test_a_model_known_by_counts_is_not_said_to_have_an_empty_cache(call: Call) -> None:
    told = json.loads(call("--rate 1 --alpha .7 --k 3 --prompt 1k -f json")[1])["assumptions"]
    assert not any("mean context of 0" in text for text in told)
    assert any("counts of parameters do not tell" in text for text in told)


def codes(call: Call, line: str) -> set[str]:
    return {advice["code"] for advice in json.loads(call(f"{line} -f json")[1])["warnings"]}


def test_thin_evidence_is_said_until_something_was_measured(call: Call) -> None:
    measured = f"{MAIN} --measured k=4,batch=8,speedup=1.7,acceptance-length=2.8"
    assert {"thin-load-evidence", "uncalibrated"} <= codes(call, MAIN)
    assert "thin-load-evidence" not in codes(call, measured)


def test_one_alpha_for_a_deep_draft_is_said_as_in_speedup(call: Call) -> None:
    assert "constant-alpha" in codes(call, MAIN)
    assert "constant-alpha" not in codes(call, MAIN.replace("--k 4", "--k 3"))
    assert "constant-alpha" in codes(call, f"--alpha .8 {PAIR} --gate")
    assert "constant-alpha" in codes(call, f"--alpha .8 {PAIR} --pools")


def header(out: str) -> list[str]:
    return [title.strip() for title in out.splitlines()[2].strip("| ").split("|")]


def test_the_table_of_a_reader_has_what_tells_policies_apart(call: Call) -> None:
    out = call(f"{MAIN} -f md")[1]
    assert len(header(out)) <= 14
    assert not {"case", "class", "by", "state"} & set(header(out))
    assert "- Note: in the figures of k = 4: 10 of 216 places lost to the draft" in out
    assert "- Note: tiers of k and adaptive verification take as long as the best k here" in out
    several = header(call(f"{MAIN} --rate 5,500 -f md")[1])
    assert {"rate (1/s)", "state"} <= set(several)
    assert "by" in header(call(f"{MAIN} --simulate 50 -f md")[1])


def test_a_level_is_in_the_verdict_and_in_the_rows(call: Call) -> None:
    out = call(f"{MAIN} --slo tpot=8ms,ttft=500ms -f md")[1].splitlines()[0]
    assert "the SLO is met by k = 4, plain decoding misses TPOT (1.37 times its limit)" in out
    assert "SLO met up to 8" in out
    off, static, *_ = rows_of(call, f"{MAIN} --slo tpot=8ms,ttft=500ms")
    assert (off["slo"], static["slo"]) == ("misses TPOT", "met")
    assert (off["goodput_bound"], static["goodput_bound"]) == ("TPOT", "TPOT")


def test_what_repeats_is_said_once(call: Call) -> None:
    verdict = call(f"{MAIN} --rate 2,5,9 -f md")[1].splitlines()[0]
    assert verdict.count("highest rate") == 2  # the list of them, and "pays up to its highest rate"
    assert verdict.count("pays up to") == 1


def test_a_narrow_terminal_keeps_what_tells_rows_apart() -> None:
    from rich.console import Console

    from specmath.exporters import terminal
    from specmath.loads import forecast_load, load_question, simulate_load
    from specmath.pools import find_pools
    from tests.load_machines import linear_machine, requests

    classes = [requests(0.9, name="chat", share=0.6), requests(0.1, name="bulk", share=0.4)]
    question = load_question(classes, source=linear_machine(token_s=1e-4), k=2)
    table = simulate_load(forecast_load(question, [1.0, 2.0]), requests=200, processes=1)
    for result, kept in ((table, "by"), (find_pools(question, 5.0), "classes")):
        screen = io.StringIO()
        terminal.show(result, Console(file=screen, width=80))
        head = screen.getvalue().split("─")[0].splitlines()[-1]
        assert kept in head.split()


def test_a_rate_and_lengths_of_a_trace_are_told_briefly(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(TRACE.replace("9.75,", "9.81234567,"))
    out = call(f"--alpha .7 --k 4 {PAIR} --trace {path} -f md")[1]
    assert " at 3.975/s: k = 4" in out
    assert "spread=lognormal,variation=0.1" in out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{MAIN} --rate -2", "--rate: must be above 0"),
        (f"{MAIN} --rate 0", "--rate: must be above 0"),
        (f"{MAIN} --output-tokens 0", "--output-tokens: must be at least 2, got 0: nothing would be emitted"),
        (f"{MAIN} --output-tokens 1", "--output-tokens: must be at least 2, got 1: the prefill emits the"),
        (f"{MAIN} --output 300", "--output: is a file to write to; tokens of an output are --output-tokens"),
        (f"{MAIN} --slo tpot=30", "--slo: tpot=30 needs a unit, as in tpot=30ms"),
        (f"{MAIN} --simulate 0", "--simulate: must be from 1 to 1,000,000, got 0"),
        (f"{MAIN} --log runs.jsonl", "--log: keeps simulated runs; give --simulate N, too"),
        (f"{MAIN} --gate", "--rate: says nothing to --gate"),
        (f"--alpha .7 {PAIR} --gate --slo tpot=30ms", "--slo: says nothing to --gate"),
        (f"{MAIN} --pools --simulate 50", "--simulate: says nothing to --pools"),
        (f"{MAIN} --draft mtp", "--draft: takes one here; `specmath speedup` compares several"),
        (f"{MAIN} --prompt 5M", "do not fit beside the weights"),
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
        (f"{MAIN} --trace nowhere.csv", "--prompt-tokens: says nothing to --trace"),
        (f"--alpha .7 --k 4 {PAIR} --trace nowhere.csv", "nowhere.csv"),
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
    status, out, err = call(f"--alpha .7 {PAIR} --trace {path}")
    assert (status, out) == (1, "")
    assert "holds no request" in err
