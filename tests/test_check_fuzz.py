"""Hostile input of every kind ends in findings or in one of the errors of specmath, in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from specmath.compatibility.question import check_speculation
from specmath.compatibility.start_log import read_log
from specmath.compatibility.vllm_keys import KEYS, METHODS, NEW_FLAGS, OLD_FLAGS
from specmath.engines.names import CONFIG_ENGINES
from specmath.errors import SpecmathError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**300, max_value=10**320)
    | st.floats()
    | st.text(max_size=30)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
TIERS = st.lists(st.lists(st.integers(-3, 10**30), max_size=4), max_size=5)
CONFIGS = st.dictionaries(
    st.sampled_from([*KEYS, "num_spec_tokens", "tensor_parallel_size"]) | st.text(max_size=12),
    VALUES,
    max_size=8,
)
VERSIONS = st.sampled_from(["", "@0.8.2", "@0.9", "@0.13.1rc1", "@0.24", "@0.28.dev3", "@0.33", "@99"])
FLAGS = [
    *OLD_FLAGS,
    *NEW_FLAGS,
    "max-num-seqs",
    "tensor-parallel-size",
    "enable-lora",
    "speculative-config",
    "sc.method",
    "compilation-config",
    "cuda-graph-sizes",
    "speculative-algorithm",
    "speculative-num-steps",
    "speculative-adaptive",
    "speculative-dspark-block-size",
    "draft-max",
    "spec-type",
    "spec-draft-n-max",
    "np",
    "num-draft-tokens",
    "speculate",
]
QUIET = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def tried(*engine: str, **inputs: Any) -> None:
    """Runs a check; nothing but its own errors, each of one line, may come out."""
    fault = None
    try:
        table = check_speculation(*engine, **inputs)
    except SpecmathError as error:
        fault = str(error)
    if fault is not None:
        assert "\n" not in fault
        assert len(fault) < 1_000
        return
    rows = list(table.rows())
    assert len(rows) == len(table)
    json.dumps(rows, allow_nan=False)
    assert table.verdict
    assert table.assumptions
    for row in rows:
        assert row["effect"] in ("breaks", "bites")
        assert all(isinstance(value, str) and value for value in row.values()), row


@QUIET
@given(config=CONFIGS, version=VERSIONS)
def test_configs(config: dict[str, Any], version: str) -> None:
    tried(f"vllm{version}", speculative_config=config)


@QUIET
@given(tiers=TIERS | VALUES, method=st.sampled_from([*METHODS, "glm4_moe_mtp", "[ngram]"]), version=VERSIONS)
def test_tiers(tiers: Any, method: str, version: str) -> None:
    config = {
        "method": method,
        "model": "m",
        "num_speculative_tokens": 3,
        "num_speculative_tokens_per_batch_size": tiers,
    }
    tried(f"vllm{version}", speculative_config=config, dp=2, max_num_seqs=64)


@QUIET
@given(text=st.text(max_size=200) | st.text(alphabet="{}[]'\":, \\\n-&*!abn01e.", max_size=200))
def test_texts_of_configs(text: str) -> None:
    tried("vllm@0.33", speculative_config=text)


@QUIET
@given(config=CONFIGS, cut=st.integers(0, 200))
def test_truncated_configs(config: dict[str, Any], cut: int) -> None:
    tried("vllm@0.33", speculative_config=json.dumps(config)[:cut])


@QUIET
@given(
    engine=st.sampled_from(CONFIG_ENGINES),
    pairs=st.lists(
        st.tuples(st.sampled_from(FLAGS), VALUES.map(str) | st.sampled_from(["1", "eagle3", "NEXTN", "8k"])),
        max_size=8,
    ),
)
def test_arguments(engine: str, pairs: list[tuple[str, str]]) -> None:
    tried(engine, server_args=" ".join(f"--{flag} {value}" for flag, value in pairs))


@QUIET
@given(
    text=st.text(max_size=200) | st.text(alphabet="-=.'\" \\\n:{}abc019", max_size=200),
    engine=st.sampled_from(CONFIG_ENGINES),
)
def test_texts_of_arguments(text: str, engine: str) -> None:
    tried(engine, server_args=text)


@QUIET
@given(
    bodies=st.lists(
        st.dictionaries(
            st.sampled_from(
                [
                    "min_p",
                    "n",
                    "best_of",
                    "logit_bias",
                    "logprobs",
                    "body",
                    "extra_body",
                    "sampling_params",
                    "response_format",
                    "tool_choice",
                    "seed",
                    "temperature",
                    "min_tokens",
                    "ignore_eos",
                    "lora_path",
                ]
            ),
            VALUES,
            max_size=6,
        ),
        max_size=6,
    ),
    engine=st.sampled_from(["vllm@0.33", "vllm@0.12", "sglang", "tensorrt-llm", "transformers", "llama.cpp"]),
)
def test_requests(tmp_path: Path, bodies: list[dict[str, Any]], engine: str) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), encoding="utf-8")
    tried(engine, requests=path)


@QUIET
@given(content=st.binary(max_size=300))
def test_bytes_of_requests_and_logs(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "input"
    path.write_bytes(content)
    tried("vllm@0.33", requests=path)
    tried("vllm@0.33", log=path)


@QUIET
@given(
    head=st.sampled_from(
        ["non-default args: {", "LLM engine (v0.32.0) with config: ", "server_args=ServerArgs(", "n_ctx = "]
    ),
    tail=st.text(alphabet="abc_='\"{}[](),: 0189.-\\x1b\n", max_size=200),
)
def test_lines_of_logs(tmp_path: Path, head: str, tail: str) -> None:
    path = tmp_path / "server.log"
    path.write_text(f"{head}{tail}\n", encoding="utf-8")
    tried(log=path)


@pytest.mark.parametrize(
    "word", ["build ", "n_ctx  = ", "SpeculativeConfig(", "a='", "async scheduling ", "vocab "]
)
def test_patterns_of_a_log_take_linear_time(tmp_path: Path, word: str) -> None:
    path = tmp_path / "server.log"
    path.write_text("vLLM API server version 0.33.0\n" + word * 100_000 + "\n", encoding="utf-8")
    assert read_log(path).engine == "vllm"
