"""`specmath schedule --engine NAME@VERSION` from the outside: what is printed in every format, and when."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specmath.cli import run

Call = Callable[..., tuple[int, str, str]]
TIERED = "schedule --beta 5.6/2.3 --batches 1=.2,8=.4,64=.3,200=.1"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command line; returns status, stdout and stderr."""

    def called(line: str) -> tuple[int, str, str]:
        status = run(shlex.split(line))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return called


def document_of(answer: tuple[int, str, str]) -> dict[str, Any]:
    status, out, err = answer
    assert (status, err) == (0, "")
    document: dict[str, Any] = json.loads(out)
    return document


def speculative(document: dict[str, Any]) -> dict[str, Any]:
    words = shlex.split(document["config"][0]["text"].replace("\\\n", ""), comments=True)
    parsed: dict[str, Any] = json.loads(words[words.index("--speculative-config") + 1])
    return parsed


def test_a_plan_ends_with_the_tiers_that_it_recommends(call: Call) -> None:
    document = document_of(call(f"{TIERED} --engine vllm@0.32 -f json"))
    tiers = [row for row in document["rows"] if row["policy"] == "tier"]
    assert document["schema"] == "specmath.schedule/1"
    assert document["inputs"]["engine"] == "vllm"
    assert document["inputs"]["engine_version"] == "0.32"
    assert " with tiers (" in document["verdict"]
    config = speculative(document)
    printed = config["num_speculative_tokens_per_batch_size"]
    assert [k for *_, k in printed] == [row["k"] for row in tiers]
    assert [end for _, end, _ in printed[:-1]] == [row["last_batch"] for row in tiers[:-1]]
    assert config["num_speculative_tokens"] == max(row["k"] for row in tiers)
    assert "graphs-downgraded" in {warning["code"] for warning in document["warnings"]}
    test = document["config"][1]["text"]
    assert "synthetic_acceptance_rates" in test
    assert {block["language"] for block in document["config"]} == {"sh"}


def test_a_policy_can_be_asked_for(call: Call) -> None:
    plan = f"{TIERED} --engine vllm@0.32 -f json"
    static, tiers, adaptive = (
        document_of(call(f"{plan} --policy {policy}")) for policy in ("static", "tiers", "adaptive")
    )
    rows = {row["policy"]: row for row in static["rows"]}
    assert speculative(static)["num_speculative_tokens"] == rows["static"]["k"]
    assert "per_batch_size" not in static["config"][0]["text"]
    assert "num_speculative_tokens_per_batch_size" in speculative(tiers)
    assert speculative(adaptive)["enable_adaptive_verification"] is True
    assert speculative(adaptive)["num_speculative_tokens"] == rows["adaptive"]["k"]
    older = document_of(call(f"{TIERED} --engine vllm@0.20 -f json --policy adaptive"))
    assert speculative(older)["num_speculative_tokens"] == rows["static"]["k"]


def test_a_fixed_k_needs_no_plan(call: Call) -> None:
    document = document_of(call("schedule --k 3 --engine vllm@0.32 -f json"))
    assert document["schema"] == "specmath.config/1"
    assert document["rows"] == [{"policy": "static", "first_batch": 1, "last_batch": None, "k": 3}]
    assert speculative(document) == {"method": "draft_model", "model": "DRAFT", "num_speculative_tokens": 3}
    assert len(document["config"]) == 1
    with_alpha = document_of(call("schedule --k 3 --alpha .5 --engine vllm@0.32 -f json"))
    assert '"synthetic_acceptance_rates": [0.5, 0.25, 0.125]' in with_alpha["config"][1]["text"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("--draft eagle3-llama-3.1-8b", '"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"'),
        ("--draft qwen3-0.6b", '"method": "draft_model", "model": "qwen3-0.6b"'),
        ("--draft my/head --method eagle", '"method": "eagle", "model": "my/head"'),
        ("--method mtp", '{"method": "mtp", "num_speculative_tokens": 3}'),
        ("--draft ngram", '"method": "ngram"'),
        ("--target 70B --draft 1B", "vllm serve TARGET"),
        ("--target qwen3-32b", "vllm serve Qwen/Qwen3-32B"),
        ("--target some/where/config.json", "vllm serve some/where \\\n"),
    ],
)
def test_methods_and_names(call: Call, options: str, wanted: str) -> None:
    document = document_of(call(f"schedule --k 3 --engine vllm@0.32 -f json {options}"))
    assert wanted in document["config"][0]["text"]


def test_the_method_of_an_unknown_draft_is_asked_for(call: Call) -> None:
    status, out, err = call("schedule --k 3 --engine vllm --draft nobody/knows")
    assert (status, out) == (2, "")
    assert err.startswith("specmath: error: --method: is missing: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("engine", "wanted"),
    [
        ("vllm@0.32.1rc1", "--speculative-config"),
        ("sglang@0.5.23", "--speculative-num-steps"),
        ("tensorrt-llm@1.4", "decoding_type: Draft_Target"),
        ("llama.cpp@b6000", "--draft-max"),
        ("llama.cpp@2026", "--spec-draft-n-max"),
    ],
)
def test_engines(call: Call, engine: str, wanted: str) -> None:
    status, out, _ = call(f"{TIERED} --engine {engine} -f md")
    assert status == 0
    assert wanted in out
    assert out.index("| policy") < out.index("```") < out.index("- Assumes")


def test_an_engine_without_a_profile_of_its_own_goes_by_typical(call: Call) -> None:
    document = document_of(call("speedup --alpha .7 --engine tgi@3.3 -f json"))
    assert document["rows"][0]["case"] == "typical"
    plan = document_of(
        call(
            "schedule --alpha .7 --batches 1,8 --engine lmdeploy --method eagle3 "
            "--target llama-3.1-8b -f json"
        )
    )
    assert "lmdeploy serve" in plan["config"][0]["text"]
    assert plan["inputs"]["profile"] == "typical"


@pytest.mark.parametrize("engine", ["ideal", "typical"])
def test_profiles_of_no_engine_print_no_config(call: Call, engine: str) -> None:
    document = document_of(call(f"{TIERED} --engine {engine} -f json"))
    assert "config" not in document
    assert "engine" not in document["inputs"]
    status, _, err = call(f"{TIERED} --engine {engine} --policy tiers")
    assert (status, err[:27]) == (2, "specmath: error: --policy: ")


def test_where_drafting_does_not_pay_there_is_nothing_to_paste(call: Call) -> None:
    document = document_of(call("schedule --alpha .05 --batches 256 --engine vllm@0.32 -f json"))
    assert "do not speculate" in document["verdict"]
    assert "config" not in document
    assert "off" in {warning["code"] for warning in document["warnings"]}


def test_data_parallel_takes_the_tiers_away(call: Call) -> None:
    document = document_of(
        call(
            f"{TIERED} --engine vllm@0.32 --target qwen3-32b --draft qwen3-0.6b --dp 2 --policy tiers -f json"
        )
    )
    assert "per_batch_size" not in document["config"][0]["text"]
    assert "one-k-instead" in {warning["code"] for warning in document["warnings"]}


def test_several_set_ups_get_the_config_of_the_first(call: Call) -> None:
    plan = "schedule --alpha .8,.5 --batches 1,8 --engine vllm@0.32 -f json"
    document = document_of(call(plan))
    assert document["warnings"][0]["code"] == "first-set-up"
    alone = document_of(call(plan.replace(".8,.5", ".8")))
    assert document["config"] == alone["config"]


def test_a_measured_plan_has_a_config_too(call: Call) -> None:
    pair = "--measured k=3,batch=8,speedup=1.7,acceptance-length=2.8"
    document = document_of(call(f"schedule --alpha .7 --batches 1,8 --engine vllm@0.32 {pair} -f json"))
    assert speculative(document)["method"] == "draft_model"


def test_a_tree_is_planned_but_not_written(call: Call) -> None:
    plan = "schedule --ranks .6/.2/.1 --tree-nodes 12 --batches 1,8 --engine vllm@0.32 -f json"
    (told,) = (one for one in document_of(call(plan))["warnings"] if one["code"] == "tree-not-written")
    assert "a tree of 12 nodes" in told["text"]
    assert "--speculative-num-draft-tokens 13" in told["remedy"]
    status, _, err = call(f"{plan} --policy adaptive")
    assert (status, "--policy: adaptive verification" in err) == (2, True)


def test_a_match_rate_alone_names_a_lookup(call: Call) -> None:
    document = document_of(call("schedule --k 3 --match-rate .4 --engine vllm@0.32 -f json"))
    assert speculative(document)["method"] == "ngram"
    status, _, err = call("schedule --k 3 --tree-nodes 4 --engine vllm@0.32 -f json")
    assert (status, err.count("\n"), "--tree-nodes: belongs" in err) == (2, 1, True)


@pytest.mark.parametrize("form", ["csv", "latex"])
def test_formats_without_room_leave_it_to_stderr(call: Call, form: str) -> None:
    status, out, err = call(f"schedule --k 3 --engine vllm@0.32 -f {form}")
    assert status == 0
    assert "--speculative-config" not in out
    assert "vllm serve TARGET \\\n" in err


@pytest.mark.parametrize("form", ["table", "md", "html"])
def test_formats_with_room_show_it_unbroken(call: Call, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    status, out, err = call(f"{TIERED} --engine sglang@0.5.23 --draft eagle3 --target llama-3.1-8b -f {form}")
    assert (status, err) == (0, "")
    text = out.replace("&quot;", '"')
    assert re.search(
        r'^(<pre><code>)?\{"1": \{"candidate_steps": \[\d+\]\}.*\}\}(</code></pre>)?$', text, re.M
    )


def test_parquet_holds_it_in_its_metadata(call: Call, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path / "config.parquet"
    assert call(f"schedule --k 3 --engine vllm@0.32 -o {file}")[0] == 0
    metadata = json.loads(parquet.read_schema(file).metadata[b"specmath"])
    assert metadata["config"][0]["label"] == "server"


def test_a_k_of_the_project_does_not_stand_for_a_plan(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "specmath.toml").write_text('alpha = 0.7\nk = 3\nengine = "vllm@0.32"\n')
    status, out, _ = call("schedule --batches 1,8 -f json")
    assert (status, json.loads(out)["schema"]) == (0, "specmath.schedule/1")
    status, out, _ = call("schedule --k 5 -f json")
    assert (status, json.loads(out)["schema"]) == (0, "specmath.config/1")


@pytest.mark.parametrize("command", ["speedup --k 3", "crossover --k 3", "schedule --batches 1,8"])
@pytest.mark.parametrize(
    ("engine", "status", "said"),
    [
        ("vllm@0.32", 0, ""),
        ("vllm@latest", 2, "--engine: 'latest' is no version"),
        ("vllm@", 2, "--engine: '' is no version"),
        ("typical@1", 2, "--engine: typical is no engine"),
        ("vlllm@0.32", 1, "unknown engine 'vlllm'; nearest: vllm"),
        ("vllm@\x1b[31m", 2, "is no version"),
    ],
)
def test_versions_in_every_command(call: Call, command: str, engine: str, status: int, said: str) -> None:
    got, _, err = call(f"{command} --alpha .7 --engine '{engine}' -f json")
    assert got == status
    assert said in err
    assert "\x1b" not in err


def test_show_pass_takes_a_version_too(call: Call) -> None:
    status, out, _ = call("show pass --target llama-3.1-8b --engine vllm@0.32 -f json")
    assert (status, json.loads(out)["schema"]) == (0, "specmath.pass/1")


def test_hostile_names_cannot_break_out(call: Call) -> None:
    line = shlex.quote("$(touch /tmp/x)`'\"```")
    document = document_of(call(f"schedule --k 3 --engine vllm@0.32 -f json --method eagle --draft {line}"))
    assert speculative(document)["model"] == shlex.split(line)[0]
    _, markdown, _ = call(f"schedule --k 3 --engine vllm@0.32 -f md --method eagle --draft {line}")
    assert "````sh\n" in markdown
