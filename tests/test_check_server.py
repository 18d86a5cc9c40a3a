"""Arguments of each server: how they are read, and each rule with a silent case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specmath.compatibility.arguments import parse_arguments
from specmath.compatibility.findings import Finding
from specmath.compatibility.question import check_speculation
from specmath.errors import InputError


def findings(engine: str | None = None, **inputs: Any) -> dict[str, Finding]:
    """The findings by code, the first of each."""
    found: dict[str, Finding] = {}
    for one in check_speculation(engine, **inputs).findings:
        found.setdefault(one.code, one)
    return found


def effect(code: str, engine: str | None = None, **inputs: Any) -> str | None:
    """What a finding does; None where it is not found."""
    found = findings(engine, **inputs)
    return found[code].effect if code in found else None


NGRAM = '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\''
EAGLE = '--speculative-config \'{"method": "eagle3", "model": "h", "num_speculative_tokens": 3}\''
TIERS = {
    "method": "eagle3",
    "model": "h",
    "num_speculative_tokens": 3,
    "num_speculative_tokens_per_batch_size": [[1, 16, 3], [17, 64, 0]],
}
ADAPTIVE = {"method": "dspark", "enable_adaptive_verification": True}


def test_a_command_line() -> None:
    given = parse_arguments(
        "VLLM_USE_V2_MODEL_RUNNER=0 vllm serve org/model \\\n  --max_num_seqs=64 -tp 2 # "
        "two\n--enable-lora --a.b-c x"
    )
    assert given.engine == "vllm"
    assert given.environment == {"VLLM_USE_V2_MODEL_RUNNER": "0"}
    assert (given.count("max-num-seqs"), given.text("enable-lora")) == (64, "")
    assert given.under("a") == {"b_c": "x"}


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("vllm serve m", "vllm"),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("python -m sglang.launch_server --model-path m", "sglang"),
        ("trtllm-serve m --config spec.yaml", "tensorrt-llm"),
        ("./bin/llama-server -m m.gguf", "llama.cpp"),
        ("lmdeploy serve api_server m", "lmdeploy"),
        ("text-generation-launcher --speculate 3", "tgi"),
        ("mlx_lm.server --model m", "mlx"),
        ("--max-num-seqs 3", None),
    ],
)
def test_the_engine_of_a_command(text: str, engine: str | None) -> None:
    assert parse_arguments(text).engine == engine


def test_yaml_and_json_of_flags(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    path.write_text(
        "max-num-seqs: 64\nenable_lora: true\nspeculative-config: {method: ngram}\n", encoding="utf-8"
    )
    settings = check_speculation("vllm@0.33", server_args=f"@{path}").case.settings
    assert (settings.max_num_seqs, settings.lora, settings.method) == (64, True, "ngram")
    assert parse_arguments('{"max_num_seqs": 64}').count("max-num-seqs") == 64


@pytest.mark.parametrize("text", ["--a 'b", "x" * 70_000])
def test_arguments_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError):
        findings("vllm", server_args=text)


def test_inputs_of_two_engines_exclude_each_other() -> None:
    with pytest.raises(InputError, match="is of sglang"):
        findings("vllm", server_args="python -m sglang.launch_server")


def test_what_is_typed_goes_first_and_a_difference_is_said() -> None:
    table = check_speculation("vllm@0.33", server_args=f"{EAGLE} --max-num-seqs 64", k=5)
    assert table.case.settings.k == 5
    assert [one.code for one in table.notes] == ["inputs-differ"]
    assert not check_speculation("vllm@0.33", server_args=EAGLE, k=3).notes


BITES = {
    "capture-ladder",
    "capture-sizes",
    "capture-truncated",
    "context-parallel",
    "disaggregated",
    "draft-cache",
    "eager",
    "lora-draft",
    "mtp-multiple",
    "prefix-unit",
    "token-budget",
    "token-budget-small",
}
"""Codes that bite; the others break."""


@pytest.mark.parametrize(
    ("code", "engine", "args", "silent"),
    [
        ("flags-removed", "vllm@0.9", "--speculative-model d --num-speculative-tokens 3", EAGLE),
        ("flag-too-new", "vllm@0.21", "--spec-method ngram --spec-tokens 3", EAGLE),
        ("flag-twice", "vllm@0.33", f"{EAGLE} --spec-tokens 3", EAGLE),
        ("logits-processors", "vllm@0.33", f"{EAGLE} --logits-processors a:B", EAGLE),
        ("multi-step", "vllm@0.10", f"{EAGLE} --num-scheduler-steps 8", f"{EAGLE} --num-scheduler-steps 1"),
        ("context-parallel", "vllm@0.33", f"{EAGLE} --decode-context-parallel-size 4", f"{EAGLE} -dcp 1"),
        ("disaggregated", "vllm@0.33", f"{EAGLE} --kv-transfer-config '{{}}'", EAGLE),
        ("pipeline-parallel", "vllm@0.33", f"{EAGLE} -pp 2", f"{EAGLE} -pp 1"),
        (
            "lora-budget",
            "vllm@0.33",
            f"{EAGLE} --enable-lora --max-num-batched-tokens 100 --max-num-seqs 64",
            f"{EAGLE} --enable-lora --max-num-batched-tokens 256 --max-num-seqs 64",
        ),
        ("lora-lookup", "vllm@0.8.5", f"{NGRAM} --enable-lora", NGRAM),
        ("lora-draft", "vllm@0.33", f"{EAGLE} --enable-lora", EAGLE),
        ("async-refused", "vllm@0.11", f"{EAGLE} --async-scheduling", EAGLE),
        ("async-off", "vllm@0.32", NGRAM, EAGLE),
        (
            "async-off",
            "vllm@0.32",
            f"{NGRAM} --async-scheduling",
            f"VLLM_USE_V2_MODEL_RUNNER=1 vllm serve m {NGRAM}",
        ),
        ("eager", "vllm@0.33", f"{EAGLE} --enforce-eager", EAGLE),
        (
            "needs-v2-runner",
            "vllm@0.33",
            "VLLM_USE_V2_MODEL_RUNNER=0 vllm serve m --spec-method dspark",
            "--spec-method dspark",
        ),
        (
            "needs-v1-runner",
            "vllm@0.33",
            "VLLM_USE_V2_MODEL_RUNNER=1 vllm serve m --spec-method suffix",
            "--spec-method suffix",
        ),
        ("capture-sizes", "vllm@0.28", f"{EAGLE} --max-num-seqs 256", f"{EAGLE} --max-num-seqs 128"),
        (
            "capture-sizes",
            "vllm@0.12",
            f"{EAGLE} --max-num-seqs 8",
            f"{EAGLE} --max-num-seqs 8 --enforce-eager",
        ),
        (
            "capture-sizes",
            "vllm@0.33",
            f"{EAGLE} --max-num-seqs 64 --max-cudagraph-capture-size 128",
            f"{EAGLE} --max-num-seqs 64 --max-cudagraph-capture-size 256",
        ),
        (
            "capture-sizes",
            "vllm@0.33",
            f"{EAGLE} --max-num-seqs 64 -cc.max_cudagraph_capture_size 128",
            f"{EAGLE} --max-num-seqs 64 --compilation-config '{{\"cudagraph_capture_sizes\": [1, 256]}}'",
        ),
        (
            "capture-truncated",
            "vllm@0.33",
            f"{EAGLE} --max-num-seqs 10 --max-cudagraph-capture-size 42",
            f"{EAGLE} --max-num-seqs 10 --max-cudagraph-capture-size 40",
        ),
        (
            "capture-ladder",
            "vllm@0.28",
            "--spec-method ngram --spec-tokens 2 --max-num-seqs 8",
            f"{NGRAM} --max-num-seqs 8",
        ),
        (
            "token-budget",
            "vllm@0.33",
            f"{EAGLE} --max-num-batched-tokens 100 --max-num-seqs 64",
            f"{EAGLE} --max-num-batched-tokens 256 --max-num-seqs 64",
        ),
        (
            "token-budget-small",
            "vllm@0.33",
            f"{EAGLE} --max-num-batched-tokens 2048",
            f"{EAGLE} --max-num-batched-tokens 8192",
        ),
        ("token-budget-small", "vllm@0.20", f"{EAGLE} --max-num-batched-tokens 2048", EAGLE),
        ("prefix-unit", "vllm@0.33", EAGLE, f"{EAGLE} --no-enable-prefix-caching"),
        ("prefix-unit", "vllm@0.33", EAGLE, NGRAM),
        ("draft-cache", "vllm@0.33", EAGLE, NGRAM),
        (
            "mtp-multiple",
            "vllm@0.33",
            "--spec-method mtp --spec-tokens 2",
            "--spec-method mtp --spec-tokens 1",
        ),
    ],
)
def test_each_rule(code: str, engine: str, args: str, silent: str) -> None:
    bites = code in BITES or (code == "async-off" and "--async-scheduling" not in args)
    assert effect(code, engine, server_args=args) == ("bites" if bites else "breaks")
    assert code not in findings(engine, server_args=silent)


@pytest.mark.parametrize(
    ("code", "config", "inputs", "silent"),
    [
        ("tiers-data-parallel", TIERS, {"dp": 2}, {"dp": 1}),
        ("draft-degree", {**TIERS, "draft_tensor_parallel_size": 2}, {"tp": 4}, {"tp": 2}),
        ("adaptive-lora", ADAPTIVE, {"server_args": "--enable-lora"}, {}),
        ("adaptive-pipeline", ADAPTIVE, {"pp": 2}, {"pp": 1}),
        ("adaptive-eager", ADAPTIVE, {"server_args": "--enforce-eager"}, {}),
        ("adaptive-runner", ADAPTIVE, {"server_args": "VLLM_USE_V2_MODEL_RUNNER=0 vllm serve m"}, {}),
    ],
)
def test_settings_beside_the_config(
    code: str, config: dict[str, Any], inputs: dict[str, Any], silent: dict[str, Any]
) -> None:
    assert effect(code, "vllm@0.33", speculative_config=config, **inputs) == "breaks"
    assert effect(code, "vllm@0.33", speculative_config=config, **silent) is None


def test_tiers_bite_by_the_runner() -> None:
    v2 = {"server_args": "VLLM_USE_V2_MODEL_RUNNER=1 vllm serve m"}
    assert effect("graphs-downgraded", "vllm@0.33", speculative_config=TIERS) == "bites"
    assert effect("graphs-downgraded", "vllm@0.33", speculative_config=TIERS, **v2) is None
    assert effect("tiers-v2-runner", "vllm@0.33", speculative_config=TIERS, **v2) == "bites"
    assert effect("zero-tier", "vllm@0.33", speculative_config=TIERS) == "bites"
    no_zero = {**TIERS, "num_speculative_tokens_per_batch_size": [[1, 16, 3]]}
    assert effect("zero-tier", "vllm@0.33", speculative_config=no_zero) is None
    other = {**TIERS, "method": "dspark"}
    assert effect("tiers-method", "vllm@0.33", speculative_config=other) == "breaks"
    assert effect("tiers-method", "vllm@0.32", speculative_config=other) is None


@pytest.mark.parametrize(
    ("version", "found"), [("0.8.5", None), ("0.9", "breaks"), ("0.33", "breaks"), ("", "breaks")]
)
def test_old_flags_and_the_config_that_replaces_them(version: str, found: str | None) -> None:
    engine = f"vllm@{version}" if version else "vllm"
    args = "--speculative-model '[ngram]' --num-speculative-tokens 5 --ngram-prompt-lookup-max 4"
    assert effect("flags-removed", engine, server_args=args) == found
    if found:
        remedy = findings(engine, server_args=args)["flags-removed"].remedy
        assert '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}' in remedy


def test_old_flags_of_a_draft_model() -> None:
    remedy = findings("vllm@0.33", server_args="--speculative-model d --num-speculative-tokens 5")[
        "flags-removed"
    ].remedy
    assert '{"method": "draft_model", "model": "d", "num_speculative_tokens": 5}' in remedy


@pytest.mark.parametrize(
    ("flag", "version", "found"),
    [("", "0.12", "before 0.13"), ("", "0.28", "0.13 to before 0.29"), ("", "", "before 0.29")],
)
def test_default_capture_by_release(flag: str, version: str, found: str) -> None:
    engine = f"vllm@{version}" if version else "vllm"
    one = findings(engine, server_args=EAGLE, max_num_seqs=256)["capture-sizes"]
    assert one.versions == found
    assert "1,024 tokens" in one.text
    assert "capture-sizes" not in findings("vllm@0.29", server_args=EAGLE, max_num_seqs=256)


def test_remedies_name_the_number() -> None:
    short = findings("vllm@0.28", server_args=EAGLE, max_num_seqs=250)["capture-sizes"]
    assert "max_cudagraph_capture_size to 1,000," in short.remedy
    off = findings("vllm@0.33", server_args=f"{EAGLE} --max-num-seqs 10 --max-cudagraph-capture-size 42")
    assert "42 to 40" in off["capture-truncated"].text
    assert off["capture-truncated"].remedy == "set it to 48"
    ladder = findings("vllm@0.28", server_args="--spec-method ngram --spec-tokens 2 --max-num-seqs 8")[
        "capture-ladder"
    ]
    assert ladder.remedy == "choose k = 3, or list multiples of 3 as capture sizes"
    assert "3 look-ahead slots" in findings("vllm@0.33", server_args=EAGLE)["draft-cache"].text
    held = findings("vllm@0.33", server_args=f"{EAGLE} --max-num-batched-tokens 100 --max-num-seqs 64")[
        "token-budget"
    ]
    assert held.text.startswith("100 tokens a step hold 25 of 64 sequences at k + 1 = 4")


def test_counts_that_are_out_of_range() -> None:
    for name, least in (
        ("k", 0),
        ("tp", 1),
        ("dp", 1),
        ("pp", 1),
        ("draft_tp", 1),
        ("max_num_seqs", 1),
        ("context", 1),
    ):
        findings("vllm@0.33", **{name: least})
        with pytest.raises(InputError):
            findings("vllm@0.33", **{name: least - 1})
