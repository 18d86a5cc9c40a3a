"""SGLang, TensorRT-LLM, llama.cpp and the smaller engines: each rule with a silent case."""

from __future__ import annotations

from typing import Any

import pytest

from specmath.compatibility.findings import Finding
from specmath.compatibility.question import check_speculation


def findings(engine: str | None = None, **inputs: Any) -> dict[str, Finding]:
    """The findings by code, the first of each."""
    found: dict[str, Finding] = {}
    for one in check_speculation(engine, **inputs).findings:
        found.setdefault(one.code, one)
    return found


BITES = {
    "capture-sizes",
    "chain-tokens",
    "draft-memory",
    "eager",
    "lora-draft",
    "max-running-requests",
    "no-tiers",
    "padded-tiers",
    "row-switch",
    "schedule-meaning",
    "stale-drafter",
    "tree",
    "zero-steps",
}
"""Codes that bite; the others break."""


@pytest.mark.parametrize(
    ("code", "engine", "args", "silent"),
    [
        ("algorithm-missing", "sglang@0.5.23", "--speculative-num-steps 3", "--speculative-algorithm NEXTN"),
        (
            "algorithm-unknown",
            "sglang@0.5.23",
            "--speculative-algorithm EGALE",
            "--speculative-algorithm eagle",
        ),
        ("draft-missing", "sglang@0.5.23", "--speculative-algorithm EAGLE3", "--speculative-algorithm NEXTN"),
        (
            "chain-incomplete",
            "sglang@0.5.23",
            "--speculative-algorithm NEXTN --speculative-num-steps 3",
            "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 4",
        ),
        (
            "chain-tokens",
            "sglang@0.5.23",
            "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 8",
            "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 1 "
            "--speculative-num-draft-tokens 4",
        ),
        (
            "tree",
            "sglang@0.5.23",
            "--speculative-algorithm NEXTN --speculative-eagle-topk 4",
            "--speculative-algorithm NEXTN --speculative-eagle-topk 1",
        ),
        (
            "pipeline-parallel",
            "sglang@0.5.14",
            "--speculative-algorithm NEXTN --pp-size 2",
            "--speculative-algorithm NEXTN",
        ),
        (
            "dspark-data-parallel",
            "sglang@0.5.23",
            "--speculative-algorithm DSPARK --dp-size 2",
            "--speculative-algorithm DSPARK",
        ),
        (
            "lora",
            "sglang@0.5.14",
            "--speculative-algorithm NEXTN --enable-lora",
            "--speculative-algorithm NGRAM --enable-lora",
        ),
        (
            "lora",
            "sglang@0.5.23",
            "--speculative-algorithm STANDALONE --enable-lora",
            "--speculative-algorithm NEXTN --enable-lora",
        ),
        (
            "lora-draft",
            "sglang@0.5.23",
            "--speculative-algorithm NEXTN --lora-paths a=b",
            "--speculative-algorithm NEXTN",
        ),
        (
            "mixed-chunk",
            "sglang@0.5.10",
            "--speculative-algorithm NEXTN --enable-mixed-chunk",
            "--speculative-algorithm NEXTN",
        ),
        (
            "flag-too-new",
            "sglang@0.5.10",
            "--speculative-algorithm EAGLE --speculative-adaptive",
            "--speculative-algorithm EAGLE",
        ),
        (
            "adaptive-method",
            "sglang@0.5.23",
            "--speculative-algorithm NGRAM --speculative-adaptive",
            "--speculative-algorithm EAGLE --speculative-adaptive",
        ),
        (
            "adaptive-data-parallel",
            "sglang@0.5.23",
            "--speculative-algorithm EAGLE --speculative-adaptive --dp 2",
            "--speculative-algorithm EAGLE --speculative-adaptive --dp 1",
        ),
        (
            "zero-steps",
            "sglang@0.5.13",
            "--speculative-algorithm EAGLE --speculative-adaptive",
            "--speculative-algorithm EAGLE",
        ),
        (
            "padded-tiers",
            "sglang@0.5.23",
            "--speculative-algorithm EAGLE --speculative-adaptive",
            "--speculative-algorithm EAGLE",
        ),
        (
            "max-running-requests",
            "sglang@0.5.23",
            "--speculative-algorithm NEXTN",
            "--speculative-algorithm NEXTN --max-running-requests 64",
        ),
        (
            "capture-sizes",
            "sglang@0.5.23",
            "--speculative-algorithm NEXTN --max-running-requests 64 --cuda-graph-max-bs 8",
            "--speculative-algorithm NEXTN --max-running-requests 64 --cuda-graph-max-bs 64",
        ),
        (
            "eager",
            "sglang@0.5.23",
            "--speculative-algorithm NEXTN --disable-cuda-graph",
            "--speculative-algorithm NEXTN",
        ),
        (
            "decoding-type",
            "tensorrt-llm@1.3",
            "speculative_config: {decoding_type: Egale}",
            "speculative_config: {decoding_type: MTP}",
        ),
        (
            "foreign-key",
            "tensorrt-llm@1.3",
            "speculative_config: {decoding_type: MTP, num_speculative_tokens: 3}",
            "speculative_config: {decoding_type: MTP, max_draft_len: 3}",
        ),
        (
            "schedule-form",
            "tensorrt-llm@1.3",
            "speculative_config: {decoding_type: MTP, draft_len_schedule: {a: 3}}",
            "speculative_config: {decoding_type: MTP, draft_len_schedule: {4: 3}}",
        ),
        (
            "schedule-first",
            "tensorrt-llm@1.3",
            "speculative_config: {decoding_type: MTP, max_draft_len: 5, draft_len_schedule: {4: 3}}",
            "speculative_config: {decoding_type: MTP, max_draft_len: 5, draft_len_schedule: {4: 5}}",
        ),
        (
            "schedule-first",
            "tensorrt-llm@1.2",
            "speculative_config: {decoding_type: MTP, max_draft_len: 5, draft_len_schedule: {4: 5}}",
            "speculative_config: {decoding_type: MTP, max_draft_len: 5, draft_len_schedule: {1: 5}}",
        ),
        (
            "schedule-meaning",
            "tensorrt-llm@1.3",
            "speculative_config: {decoding_type: MTP, draft_len_schedule: {1: 5, 8: 0}}",
            "speculative_config: {decoding_type: MTP, draft_len_schedule: {8: 5}}",
        ),
        (
            "schedule-and-concurrency",
            "tensorrt-llm@1.3",
            "speculative_config: {decoding_type: MTP, max_concurrency: 8, draft_len_schedule: {8: 5}}",
            "speculative_config: {decoding_type: MTP, draft_len_schedule: {8: 5}}",
        ),
        (
            "stale-drafter",
            "tensorrt-llm@1.2",
            "speculative_config: {decoding_type: MTP, draft_len_schedule: {1: 5, 8: 0}}",
            "speculative_config: {decoding_type: MTP, draft_len_schedule: {1: 5, 8: 1}}",
        ),
        ("flag-renamed", "llama.cpp@2026-10", "--draft-max 8", "--spec-draft-n-max 8"),
        ("flag-too-new", "llama.cpp@2025", "--spec-draft-n-max 8", "--draft-max 8"),
        (
            "type-unknown",
            "llama.cpp@2026-10",
            "--spec-type draft-egale",
            "--spec-type draft-eagle3,ngram-mod",
        ),
        ("row-switch", "llama.cpp@2026-10", "--spec-draft-n-max 8", "--spec-draft-n-max 7"),
        ("draft-memory", "llama.cpp@2026-10", "--spec-type draft-mtp", "--spec-type draft-eagle3"),
        ("no-tiers", "llama.cpp@2026-10", "-md d --parallel 4", "-md d --parallel 1"),
        ("no-tiers", "tgi@3.3", "--speculate 3", ""),
        ("one-sequence", "mlx", "--draft-model d --max-batch-size 4", "--draft-model d"),
    ],
)
def test_each_rule(code: str, engine: str, args: str, silent: str) -> None:
    assert findings(engine, server_args=args)[code].effect == ("bites" if code in BITES else "breaks")
    if code != "no-tiers" or silent:
        assert code not in findings(engine, server_args=silent or "--x")


@pytest.mark.parametrize(
    ("engine", "args", "told"),
    [
        ("vllm@0.33", "--speculative-confg '{}'", "write --speculative-config"),
        ("vllm@0.33", "--speculative-algorithm EAGLE", "write --"),
        (
            "sglang@0.5.23",
            "--speculative-algorithm NEXTN --speculative-num-step 3",
            "write --speculative-num-steps",
        ),
        ("sglang@0.5.23", "--speculative-config {}", "write --speculative-"),
        ("mlx", "--draft-modl d", "write --draft-model"),
    ],
)
def test_flags_that_an_engine_has_not(engine: str, args: str, told: str) -> None:
    one = findings(engine, server_args=args)["flag-unknown"]
    assert one.effect == "breaks"
    assert one.remedy.startswith(told)


@pytest.mark.parametrize(
    ("engine", "args"),
    [
        ("vllm@0.33", "--speculative-config.method ngram --spec-tokens 3 --max-num-seqs 4"),
        ("sglang@0.5.23", "--speculative-algorithm NEXTN --speculative-num-steps 3"),
        ("mlx", "--draft-model d"),
        ("llama.cpp@2026", "--spec-draft-n-max 3"),
    ],
)
def test_flags_that_an_engine_has(engine: str, args: str) -> None:
    assert "flag-unknown" not in findings(engine, server_args=args)


def test_a_flag_of_another_engine_is_told() -> None:
    one = findings("vllm@0.33", server_args="--speculative-algorithm EAGLE")["flag-unknown"]
    assert one.text == "is no flag of vllm, but of sglang"


@pytest.mark.parametrize(
    ("code", "args", "by_version"),
    [
        (
            "pipeline-parallel",
            "--speculative-algorithm NEXTN --pp-size 2",
            {"0.4.6": "breaks", "0.5.20": "breaks", "0.5.21": "bites", "0.5.23": "bites"},
        ),
        ("pipeline-parallel", "--speculative-algorithm DFLASH --pp-size 2", {"0.5.21": "breaks"}),
        (
            "lora",
            "--speculative-algorithm NEXTN --enable-lora",
            {"0.5.5": None, "0.5.6": "breaks", "0.5.18": "breaks", "0.5.19": None},
        ),
        (
            "lora",
            "--speculative-algorithm STANDALONE --enable-lora",
            {"0.5.18": "breaks", "0.5.19": "breaks"},
        ),
        ("lora-draft", "--speculative-algorithm NEXTN --enable-lora", {"0.5.18": None, "0.5.19": "bites"}),
        (
            "mixed-chunk",
            "--speculative-algorithm NEXTN --enable-mixed-chunk",
            {"0.4.6": None, "0.5.3": "breaks", "0.5.18": "breaks", "0.5.19": None},
        ),
        (
            "zero-steps",
            "--speculative-algorithm EAGLE --speculative-adaptive",
            {"0.5.10": None, "0.5.11": "bites", "0.5.13": "bites", "0.5.14": None},
        ),
        (
            "flag-too-new",
            "--speculative-algorithm EAGLE --speculative-adaptive",
            {"0.5.10": "breaks", "0.5.11": None},
        ),
    ],
)
def test_releases_of_sglang(code: str, args: str, by_version: dict[str, str | None]) -> None:
    for version, told in by_version.items():
        one = findings(f"sglang@{version}", server_args=args).get(code)
        assert (one and one.effect) == told, version


def test_k_of_each_algorithm() -> None:
    for args, k in (
        ("--speculative-algorithm NEXTN --speculative-num-steps 3", 3),
        ("--speculative-algorithm DFLASH --speculative-dflash-block-size 8", 7),
        ("--speculative-algorithm DSPARK --speculative-dspark-block-size 5", 5),
        ("--speculative-algorithm NGRAM --speculative-num-draft-tokens 12", 11),
    ):
        assert check_speculation("sglang", server_args=args).case.settings.k == k


def test_shares_of_data_parallel_ranks_and_slots() -> None:
    args = "--speculative-algorithm NEXTN --speculative-num-steps 3 --dp-size 8"
    assert "6 for each of 8" in findings("sglang@0.5.23", server_args=args)["max-running-requests"].text
    assert (
        "48 unless it is given; plain"
        in findings("sglang@0.5.23", server_args="--speculative-algorithm NEXTN")["max-running-requests"].text
    )
