"""Configs of engines: every engine's own rule, applied to what is printed, gives the k that was wanted."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import given, strategies as st

from specmath.engines.configs.making import engine_config
from specmath.engines.configs.record import EngineConfig
from specmath.errors import InputError


class Step(NamedTuple):
    """A tier of a plan."""

    first_batch: int
    last_batch: int
    k: int


TIERS = (Step(1, 16, 5), Step(17, 64, 3), Step(65, 512, 0))
SURVIVAL = (0.8, 0.6, 0.45, 0.3, 0.2)


def words(config: EngineConfig, place: int = 0, language: str = "sh") -> list[str]:
    """A block as the shell takes it apart, its comments left out."""
    blocks = [block for block in config.blocks if block.language == language]
    return shlex.split(blocks[place].text.replace("\\\n", ""), comments=True)


def value_of(option: str, line: Sequence[str]) -> str:
    return line[line.index(option) + 1]


def vllm_document(config: EngineConfig, place: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(value_of("--speculative-config", words(config, place)))
    return document


def trt_documents(config: EngineConfig) -> list[dict[str, Any]]:
    files = [block for block in config.blocks if block.language == "yaml"]
    return [yaml.safe_load(block.text)["speculative_config"] for block in files]


def codes(config: EngineConfig) -> set[str]:
    return {advice.code for advice in config.warnings}


def vllm_k(document: Mapping[str, Any], batch: int) -> int:
    """Inclusive ranges; gaps and the tail carry the k before them; clamped to the start-up k."""
    k = int(document["num_speculative_tokens"])
    for first, _, length in document.get("num_speculative_tokens_per_batch_size", []):
        if batch >= first:
            k = length
    return min(k, int(document["num_speculative_tokens"]))


def sglang_k(tiers: Mapping[str, Any], batch: int) -> int:
    """The largest key that the batch reaches; one candidate leaves no choice."""
    key = max(int(one) for one in tiers if int(one) <= batch)
    (k,) = tiers[str(key)]["candidate_steps"]
    return int(k)


def lower_bound_k(schedule: Mapping[int, int], batch: int) -> int:
    """TensorRT-LLM before 2026-03-13: from this batch on."""
    return schedule[max(one for one in schedule if one <= batch)]


def upper_bound_k(schedule: Mapping[int, int], batch: int) -> int:
    """TensorRT-LLM since 2026-03-13: up to this batch, and 0 above the last."""
    above = [one for one in schedule if one >= batch]
    return schedule[min(above)] if above else 0


def row_k(rows: Sequence[Mapping[str, Any]], batch: int) -> int:
    (k,) = (
        row["k"]
        for row in rows
        if row["first_batch"] <= batch and (row["last_batch"] is None or batch <= row["last_batch"])
    )
    return int(k)


def edges(tiers: Sequence[Step]) -> list[int]:
    """Batches at which a wrong bound would show, and far ones."""
    near = [
        batch + by for step in tiers for batch in (step.first_batch, step.last_batch) for by in (-1, 0, 1)
    ]
    return sorted({batch for batch in near if batch >= 1} | {1, 40_000})


def wanted_k(tiers: Sequence[Step], batch: int) -> int:
    """That of its tier; of the first and the last one outside of all."""
    reached = [step for step in tiers if step.first_batch <= batch]
    return (reached or [*tiers])[-1].k if reached else tiers[0].k


# The table of what to print: k = 5, or k 5 at 1–16, 3 at 17–64, 0 from 65 on


@pytest.mark.parametrize("version", ["vllm@0.24", "vllm@0.27.1", "vllm@0.28", "vllm@0.33", "vllm"])
def test_vllm_tiers(version: str) -> None:
    config = engine_config(version, TIERS, method="eagle3", draft="org/head")
    assert vllm_document(config) == {
        "method": "eagle3",
        "model": "org/head",
        "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": [[1, 16, 5], [17, 64, 3], [65, 65_536, 0]],
    }
    assert "both ends included" in config.blocks[0].text
    assert {"graphs-downgraded", "prefills-count", "zero-tier-keeps-look-ahead"} <= codes(config)


@pytest.mark.parametrize("version", ["vllm@0.8.5", "vllm@0.10.2", "vllm@0.17", "vllm@0.23.1"])
def test_vllm_before_tiers(version: str) -> None:
    config = engine_config(version, TIERS, k=4, method="eagle3")
    assert vllm_document(config)["num_speculative_tokens"] == 4
    assert "per_batch_size" not in config.blocks[0].text
    assert {"one-k-instead", "disable-by-batch-size"} <= codes(config)
    assert [row["k"] for row in config.rows()] == [4]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("vllm@0.6.6", "V0 engine"),
        ("vllm@0.9.2", "V0 engine"),
        ("vllm@0.10", "does nothing"),
        ("vllm@0.16", "does nothing"),
        ("vllm@0.17", "error"),
        ("vllm@0.23", "error"),
    ],
)
def test_what_is_said_of_the_dead_key(version: str, said: str) -> None:
    config = engine_config(version, TIERS, method="eagle3" if version != "vllm@0.6.6" else "eagle")
    (advice,) = (one for one in config.warnings if one.code == "disable-by-batch-size")
    assert said in advice.text
    assert "disable_by_batch_size" not in "".join(block.text for block in config.blocks)


def test_vllm_before_the_json() -> None:
    line = words(engine_config("vllm@0.7.3", k=5, draft="org/small", target="org/large"))
    assert line[:3] == ["vllm", "serve", "org/large"]
    assert (value_of("--speculative-model", line), value_of("--num-speculative-tokens", line)) == (
        "org/small",
        "5",
    )
    assert (
        value_of("--speculative-model", words(engine_config("vllm@0.7.3", k=5, method="ngram"))) == "[ngram]"
    )


@pytest.mark.parametrize("version", ["sglang@0.5.14", "sglang@0.5.23", "sglang"])
def test_sglang_tiers(version: str) -> None:
    config = engine_config(version, TIERS, method="eagle3", draft="org/head")
    assert json.loads(config.blocks[0].text) == {
        "1": {"candidate_steps": [5]},
        "17": {"candidate_steps": [3]},
        "65": {"candidate_steps": [0]},
    }
    line = words(config)
    assert "--speculative-adaptive" in line
    assert value_of("--speculative-adaptive-config", line) == config.blocks[0].label.removeprefix("file ")
    lengths = ("--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens")
    assert [value_of(option, line) for option in lengths] == ["5", "1", "6"]
    assert value_of("--max-running-requests", line) == "512"
    assert {"padded-edges", "max-running-requests"} <= codes(config)


def test_sglang_of_one_release_has_tiers_but_none_of_0() -> None:
    config = engine_config("sglang@0.5.13", TIERS, method="eagle")
    assert json.loads(config.blocks[0].text)["65"] == {"candidate_steps": [1]}
    assert "zero-tier-unknown" in codes(config)
    assert row_k(list(config.rows()), 100) == 1


@pytest.mark.parametrize("version", ["sglang@0.4.6.post5", "sglang@0.5.10", "sglang@0.5.11", "sglang@0.5.12"])
def test_sglang_before_tiers(version: str) -> None:
    config = engine_config(version, TIERS, method="eagle3")
    assert "adaptive" not in config.blocks[0].text
    assert value_of("--speculative-num-steps", words(config)) == "5"
    assert "one-k-instead" in codes(config)


@pytest.mark.parametrize(
    "version", ["tensorrt-llm@1.3", "tensorrt-llm@1.4", "tensorrt-llm@1.4.0rc2", "trtllm"]
)
def test_tensorrt_llm_keys_are_upper_bounds_since_march_2026(version: str) -> None:
    config = engine_config(version, TIERS, method="eagle3", draft="org/head")
    (document,) = trt_documents(config)
    assert document == {
        "decoding_type": "Eagle3",
        "speculative_model": "org/head",
        "max_draft_len": 5,
        "draft_len_schedule": {16: 5, 64: 3},
    }
    assert "largest batch of a tier" in config.blocks[0].text
    assert {"schedule-key-changed", "schedule-excludes-max-concurrency", "zero-tier-goes-stale"} <= codes(
        config
    )


@pytest.mark.parametrize("version", ["tensorrt-llm@1.1", "tensorrt-llm@1.2.0rc6", "tensorrt-llm@1.2"])
def test_tensorrt_llm_keys_were_lower_bounds(version: str) -> None:
    config = engine_config(version, TIERS, method="draft-model", draft="org/small")
    (document,) = trt_documents(config)
    assert document["draft_len_schedule"] == {1: 5, 17: 3, 65: 0}
    assert document["max_draft_len"] == 5
    assert "smallest batch of a tier" in config.blocks[0].text
    assert ("first-version-unknown" in codes(config)) == version.endswith("1.1")


def test_candidates_of_the_release_in_between_get_both_forms() -> None:
    config = engine_config("tensorrt-llm@1.3.0rc5", TIERS, method="ngram")
    newer, older = trt_documents(config)
    assert (newer["draft_len_schedule"], older["draft_len_schedule"]) == (
        {16: 5, 64: 3},
        {1: 5, 17: 3, 65: 0},
    )
    assert "before 2026-03-13" in config.blocks[1].label
    assert {"schedule-key-changed", "before-release"} <= codes(config)


@pytest.mark.parametrize(
    ("engine", "method", "wanted"),
    [
        ("llama.cpp@2026", "draft-model", ["--spec-type", "draft-simple", "--spec-draft-n-max", "5"]),
        ("llama.cpp", "eagle3", ["--spec-type", "draft-eagle3", "--spec-draft-n-max", "5"]),
        ("llama.cpp@2025", "draft-model", ["--draft-max", "5"]),
        ("llama.cpp@b6000", "draft-model", ["--draft-max", "5"]),
        (
            "lmdeploy@0.16",
            "eagle3",
            ["--speculative-algorithm", "eagle3", "--speculative-draft-model", "DRAFT"],
        ),
        ("lmdeploy", "eagle", ["--speculative-num-draft-tokens", "5"]),
        ("tgi@3.3.4", "ngram", ["--speculate", "5"]),
        ("mlx@0.32.2", "draft-model", ["--draft-model", "DRAFT", "--num-draft-tokens", "5"]),
        ("vllm@0.32", "draft-model", []),
        ("sglang@0.5.23", "eagle", ["--speculative-num-steps", "5", "--speculative-eagle-topk", "1"]),
    ],
)
@pytest.mark.parametrize("planned", [False, True])
def test_one_k(engine: str, method: str, wanted: list[str], planned: bool) -> None:
    config = engine_config(engine, TIERS if planned else None, k=5, policy="static", method=method)
    line = words(config)
    assert not wanted or wanted[0] in line
    if wanted:
        start = line.index(wanted[0])
        assert line[start : start + len(wanted)] == wanted
    assert (config.policy, [row["k"] for row in config.rows()]) == ("static", [5])


@pytest.mark.parametrize("engine", ["llama.cpp", "mlx-lm", "transformers"])
def test_engines_with_one_k_say_so_of_tiers(engine: str) -> None:
    config = engine_config(engine, TIERS, k=4)
    (advice,) = (one for one in config.warnings if one.code == "one-k-instead")
    assert "at batch 17 to 64: k = 3" in advice.remedy
    assert config.policy == "static"


def test_transformers_settings() -> None:
    config = engine_config("transformers@5.23", k=3)
    assert json.loads(config.blocks[0].text) == {
        "num_assistant_tokens": 3,
        "num_assistant_tokens_schedule": "constant",
        "assistant_confidence_threshold": 0.0,
    }
    assert "batch-one" in codes(config)
    early = engine_config("transformers", k=3, method="early-exit")
    assert "assistant_early_exit=LAYER" in early.blocks[1].text
    assert "LAYER" in early.assumptions[0]
    lookup = engine_config("transformers", k=3, method="ngram")
    assert json.loads(lookup.blocks[0].text) == {"prompt_lookup_num_tokens": 3}


# The engines' own rules on random tiers


@st.composite
def random_tiers(draw: st.DrawFn) -> tuple[Step, ...]:
    lengths = draw(st.lists(st.integers(1, 200), min_size=1, max_size=6))
    ks = draw(st.lists(st.integers(0, 12), min_size=len(lengths), max_size=len(lengths)))
    first, tiers = draw(st.integers(1, 9)), []
    for length, k in zip(lengths, ks, strict=True):
        tiers.append(Step(first, first + length - 1, k))
        first += length
    return tuple(tiers)


@given(random_tiers())
def test_vllm_runs_the_wanted_k(tiers: tuple[Step, ...]) -> None:
    config = engine_config("vllm@0.32", tiers, method="eagle3")
    for batch in edges(tiers):
        printed = vllm_k(vllm_document(config), batch) if config.blocks else 0
        assert printed == wanted_k(tiers, batch) == row_k(list(config.rows()), batch)
    if config.policy == "tiers":
        ranges = vllm_document(config)["num_speculative_tokens_per_batch_size"]
        assert ranges[0][0] == 1
        assert all(one[1] + 1 == other[0] for one, other in pairwise(ranges))
        assert max(k for *_, k in ranges) == vllm_document(config)["num_speculative_tokens"] > 0


@given(random_tiers(), st.sampled_from(["sglang@0.5.13", "sglang@0.5.23"]))
def test_sglang_runs_the_wanted_k(tiers: tuple[Step, ...], version: str) -> None:
    config = engine_config(version, tiers, method="eagle3")
    least = 0 if version.endswith("23") else 1
    for batch in edges(tiers):
        assert row_k(list(config.rows()), batch) in (wanted_k(tiers, batch), 1)
        if config.policy == "tiers":
            document = json.loads(config.blocks[0].text)
            assert sglang_k(document, batch) == max(least, wanted_k(tiers, batch))
            assert sglang_k(document, batch) == row_k(list(config.rows()), batch)
            assert "1" in document
    if config.policy == "tiers":
        candidates = [entry["candidate_steps"] for entry in json.loads(config.blocks[0].text).values()]
        assert [int(value_of("--speculative-num-steps", words(config)))] in candidates


@given(random_tiers(), st.sampled_from(["tensorrt-llm@1.2", "tensorrt-llm@1.4"]))
def test_tensorrt_llm_runs_the_wanted_k(tiers: tuple[Step, ...], version: str) -> None:
    config = engine_config(version, tiers, method="ngram")
    rule = upper_bound_k if version.endswith("4") else lower_bound_k
    deepest = max(step.k for step in tiers)
    if config.policy != "tiers":
        assert len({step.k for step in tiers}) == 1 or tiers[0].k < deepest
        return
    (document,) = trt_documents(config)
    schedule = document["draft_len_schedule"]
    assert schedule[min(schedule)] == document["max_draft_len"] == deepest  # both generations refuse others
    assert rule is upper_bound_k or min(schedule) == 1
    for batch in edges(tiers):
        assert rule(schedule, batch) == wanted_k(tiers, batch) == row_k(list(config.rows()), batch)


def test_the_two_generations_of_tensorrt_llm_read_one_file_differently() -> None:
    """A check of the checks: with the rules exchanged the k would be wrong."""
    (document,) = trt_documents(engine_config("tensorrt-llm@1.4", TIERS, method="ngram"))
    assert upper_bound_k(document["draft_len_schedule"], 17) == 3
    with pytest.raises(ValueError, match="empty"):
        lower_bound_k(document["draft_len_schedule"], 1)


# Adaptive verification


def test_a_real_shell_takes_the_command_apart_alike() -> None:
    config = engine_config("vllm@0.32", TIERS, method="eagle3", target="it's/a model", draft='"$(x)`y`"')
    function = "vllm() { printf '%s\\n' \"$@\"; }\n"
    done = subprocess.run(
        ["sh", "-c", function + config.blocks[0].text], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == words(config)[1:]


def test_adaptive_verification_of_vllm() -> None:
    config = engine_config("vllm@0.30", TIERS, k=4, adaptive_k=8, policy="adaptive", method="eagle3")
    assert vllm_document(config)["enable_adaptive_verification"] is True
    assert vllm_document(config)["num_speculative_tokens"] == 8
    assert "adaptive-needs" in codes(config)


@pytest.mark.parametrize(
    ("version", "method", "policy"),
    [
        ("0.28", "dspark", "adaptive"),
        ("0.28", "eagle3", "static"),
        ("0.29.1", "mtp", "static"),
        ("0.29.1", "dspark", "adaptive"),
        ("0.30", "mtp", "adaptive"),
    ],
)
def test_adaptive_verification_was_of_dspark_alone_before_0_30(
    version: str, method: str, policy: str
) -> None:
    config = engine_config(f"vllm@{version}", TIERS, k=4, adaptive_k=8, policy="adaptive", method=method)
    assert config.policy == policy
    assert ("enable_adaptive_verification" in config.blocks[0].text) is (policy == "adaptive")
    said = [note.text for note in config.warnings if note.code == "one-k-instead"]
    assert [("dspark alone in 0.28 and 0.29" in text) for text in said] == [True] * (policy == "static")


@pytest.mark.parametrize(
    ("version", "sure", "written"), [("0.8.2", False, False), ("0.8.4", False, True), ("0.8.5", True, True)]
)
def test_eagle3_is_sure_from_0_8_5_on(version: str, sure: bool, written: bool) -> None:
    config = engine_config(f"vllm@{version}", k=4, method="eagle3")
    assert bool(config.blocks) is written
    assert ("first-version-unknown" in codes(config)) is (written and not sure)


@pytest.mark.parametrize(
    ("engine", "more"),
    [
        ("vllm@0.27", {"method": "eagle3"}),
        ("vllm@0.32", {"method": "ngram"}),
        ("vllm@0.32", {"method": "eagle3", "pipeline_parallel": 2}),
        ("sglang", {"method": "eagle3"}),
        ("tensorrt-llm", {"method": "eagle3"}),
        ("llama.cpp", {}),
        ("tgi", {"method": "ngram"}),
    ],
)
def test_where_adaptive_verification_cannot_be_had_the_one_k_is_written(
    engine: str, more: dict[str, Any]
) -> None:
    config = engine_config(engine, TIERS, k=4, adaptive_k=8, policy="adaptive", **more)
    assert (config.policy, [row["k"] for row in config.rows()]) == ("static", [4])
    assert "one-k-instead" in codes(config)


# What each warning waits for


@pytest.mark.parametrize(
    ("code", "engine", "with_it", "without"),
    [
        ("one-k-instead", "vllm@0.32", {"data_parallel": 2}, {}),
        ("one-k-instead", "vllm@0.32", {"method": "suffix"}, {"method": "ngram"}),
        ("one-k-instead", "sglang@0.5.23", {"data_parallel": 2, "method": "eagle3"}, {"method": "eagle3"}),
        ("one-k-instead", "sglang@0.5.23", {"method": "draft-model"}, {"method": "mtp"}),
        ("mtp-tiers", "sglang@0.5.23", {"method": "mtp"}, {"method": "eagle"}),
        ("rank-local-batch", "tensorrt-llm@1.4", {"data_parallel": 4}, {}),
        ("one-model-drafts", "tensorrt-llm@1.2", {"method": "eagle3"}, {"method": "ngram"}),
        ("decoding-type-spelling", "tensorrt-llm@1.4", {"method": "draft-model"}, {"method": "pard"}),
        ("mtp-length-key", "tensorrt-llm@1.3", {"method": "mtp"}, {"method": "eagle3"}),
        ("mtp-multiple", "vllm@0.32", {"method": "mtp"}, {"method": "eagle"}),
        ("mtp-name", "vllm@0.10", {"method": "mtp"}, {"method": "eagle"}),
        ("k-is-a-cap", "vllm@0.32", {"method": "suffix"}, {"method": "ngram"}),
        ("dspark-block", "vllm@0.32", {"method": "dspark"}, {"method": "dflash"}),
        ("first-version-unknown", "vllm@0.32", {"method": "pard"}, {"method": "draft-model"}),
        ("v0-engine", "vllm@0.9.2", {"method": "draft-model"}, {"method": "eagle"}),
        ("block-size", "sglang", {"method": "dflash"}, {"method": "eagle"}),
        ("acceptance-rule", "llama.cpp@2026", {"method": "draft-model"}, {"method": "mtp"}),
    ],
)
def test_warnings_of_set_ups(
    code: str, engine: str, with_it: dict[str, Any], without: dict[str, Any]
) -> None:
    assert code in codes(engine_config(engine, TIERS, **with_it))
    assert code not in codes(engine_config(engine, TIERS, **without))


@pytest.mark.parametrize("code", ["zero-tier-keeps-look-ahead", "zero-tier-goes-stale"])
def test_warnings_of_tiers_without_drafting(code: str) -> None:
    engine = "vllm@0.32" if code.endswith("ahead") else "tensorrt-llm@1.4"
    drafting = (Step(1, 16, 5), Step(17, 64, 3))
    assert code in codes(engine_config(engine, TIERS))
    assert code not in codes(engine_config(engine, drafting))


def test_wide_steps_ask_for_larger_graphs() -> None:
    narrow, wide = (Step(1, 84, 5), Step(85, 128, 3)), (Step(1, 86, 5), Step(87, 88, 3))
    assert "capture-sizes" not in codes(engine_config("vllm@0.32", narrow))  # 84 · 6 = 504, 128 · 4 = 512
    assert "capture-sizes" in codes(engine_config("vllm@0.32", wide))  # 86 · 6 = 516


def test_an_engine_that_starts_deeper_later_cannot_be_told_tiers() -> None:
    config = engine_config("tensorrt-llm@1.4", (Step(1, 4, 2), Step(5, 9, 4)), k=2, method="ngram")
    assert (config.policy, "one-k-instead" in codes(config)) == ("static", True)


def test_flags_of_builds_in_between_are_doubted() -> None:
    doubted = [text for text in ("b9000", "2026-03", "2026-10", "2026") if _doubts(f"llama.cpp@{text}")]
    assert doubted == ["b9000", "2026-03"]


def _doubts(engine: str) -> bool:
    return "flags-renamed" in codes(engine_config(engine, k=3))


# Methods and the versions that have them


@pytest.mark.parametrize(
    ("method", "engine", "has_it"),
    [
        ("draft-model", "vllm@0.9.2", True),
        ("draft-model", "vllm@0.10", False),
        ("draft-model", "vllm@0.15.1", False),
        ("draft-model", "vllm@0.16", True),
        ("suffix", "vllm@0.11.0", False),
        ("suffix", "vllm@0.11.1", True),
        ("dflash", "vllm@0.20.1", False),
        ("dflash", "vllm@0.20.2", True),
        ("dspark", "vllm@0.24", False),
        ("dspark", "vllm@0.25", True),
        ("medusa", "vllm@0.32", True),
        ("medusa", "vllm@0.33", False),
        ("early-exit", "vllm", False),
        ("suffix", "sglang", False),
        ("dspark", "tensorrt-llm", False),
        ("eagle3", "llama.cpp@2025", False),
        ("eagle3", "llama.cpp@2026", True),
        ("eagle3", "tgi", False),
        ("ngram", "mlx", False),
        ("ngram", "lmdeploy", False),
    ],
)
def test_methods_by_version(method: str, engine: str, has_it: bool) -> None:
    config = engine_config(engine, k=3, method=method)
    assert bool(config.blocks) == has_it
    assert ("method-unavailable" in codes(config)) != has_it
    assert [row["k"] for row in config.rows()] == [3 if has_it else 0]


@pytest.mark.parametrize(
    ("engine", "method", "wanted"),
    [
        ("sglang", "dflash", "--speculative-dflash-block-size 6"),
        ("sglang", "dspark", "--speculative-dspark-block-size 5"),
        ("sglang", "ngram", "--speculative-num-draft-tokens 6 --speculative-ngram-max-bfs-breadth 1"),
        ("sglang", "mtp", "--speculative-algorithm NEXTN --speculative-num-steps 5"),
        ("sglang", "draft-model", "--speculative-algorithm STANDALONE --speculative-draft-model-path DRAFT"),
        ("llama.cpp", "ngram", "--spec-type ngram-simple --spec-ngram-simple-size-m 5"),
        ("llama.cpp", "mtp", "-m TARGET --spec-type draft-mtp --spec-draft-n-max 5"),
        ("lmdeploy", "mtp", "--speculative-algorithm deepseek_mtp --speculative-num-draft-tokens 5"),
        ("tensorrt-llm@1.2", "ngram", "trtllm-serve TARGET --config spec.yaml"),
        ("tensorrt-llm@1.1", "ngram", "trtllm-serve TARGET --extra_llm_api_options spec.yaml"),
    ],
)
def test_k_in_the_terms_of_each_method(engine: str, method: str, wanted: str) -> None:
    assert wanted in " ".join(words(engine_config(engine, k=5, method=method)))


@pytest.mark.parametrize(
    ("version", "method", "wanted"),
    [
        ("1.2", "mtp", {"decoding_type": "MTP", "num_nextn_predict_layers": 5}),
        ("1.4", "mtp", {"decoding_type": "MTP", "max_draft_len": 5}),
        ("1.4", "ngram", {"decoding_type": "NGram", "max_draft_len": 5}),
        ("1.2", "eagle3", {"decoding_type": "Eagle3", "speculative_model_dir": "DRAFT", "max_draft_len": 5}),
        ("1.4", "pard", {"decoding_type": "PARD", "speculative_model": "DRAFT", "max_draft_len": 5}),
    ],
)
def test_files_of_tensorrt_llm(version: str, method: str, wanted: dict[str, Any]) -> None:
    assert trt_documents(engine_config(f"tensorrt-llm@{version}", k=5, method=method)) == [wanted]


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("pard", {"method": "draft_model", "parallel_drafting": True, "model": "DRAFT"}),
        ("p-eagle", {"method": "eagle3", "parallel_drafting": True, "model": "DRAFT"}),
        ("mtp", {"method": "mtp"}),
        ("ngram", {"method": "ngram", "prompt_lookup_max": 5, "prompt_lookup_min": 5}),
        ("suffix", {"method": "suffix"}),
        ("dspark", {"method": "dspark", "model": "DRAFT"}),
    ],
)
def test_keys_of_vllm(method: str, wanted: dict[str, Any]) -> None:
    config = engine_config("vllm@0.32", k=7, method=method)
    assert vllm_document(config) == wanted | {"num_speculative_tokens": 7}


def test_before_tiers_tensorrt_llm_can_stop_at_a_batch() -> None:
    config = engine_config("tensorrt-llm@1.0", (Step(1, 16, 5), Step(17, 64, 0)), k=5, method="ngram")
    (advice,) = (one for one in config.warnings if one.code == "one-k-instead")
    assert "max_draft_len 5 and max_concurrency 16" in advice.remedy
    assert "draft_len_schedule" not in config.blocks[0].text


# Tests of the forecast


def test_synthetic_acceptance_of_vllm() -> None:
    config = engine_config("vllm@0.32", k=5, method="eagle3", survival=SURVIVAL)
    document = vllm_document(config, 1)
    assert document["rejection_sample_method"] == "synthetic"
    assert document["synthetic_acceptance_rates"] == list(SURVIVAL)
    assert "rejection_sample_method" not in vllm_document(config)
    single = vllm_document(engine_config("vllm@0.19", k=5, method="eagle3", survival=SURVIVAL), 1)
    assert single["synthetic_acceptance_rate"] == pytest.approx(sum(SURVIVAL) / 5)
    assert len(engine_config("vllm@0.18", k=5, method="eagle3", survival=SURVIVAL).blocks) == 1


def test_synthetic_acceptance_of_the_others() -> None:
    sglang = engine_config("sglang", k=5, method="eagle3", survival=SURVIVAL)
    assert words(sglang, 1)[0] == f"SGLANG_SIMULATE_ACC_LEN={1 + sum(SURVIVAL):g}"
    llama = engine_config("llama.cpp@2026", k=5, survival=SURVIVAL)
    assert value_of("--spec-synth-rates", words(llama, 1)) == "0.8,0.6,0.45,0.3,0.2"
    assert len(engine_config("llama.cpp@2025", k=5, survival=SURVIVAL).blocks) == 1
    tensorrt = engine_config("tensorrt-llm", k=5, method="eagle3", survival=SURVIVAL)
    assert words(tensorrt, 1)[0] == f"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS={sum(SURVIVAL):g}"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_rates_that_vllm_takes(factors: list[float]) -> None:
    survival, reach = [], 1.0
    for factor in factors:
        reach *= factor
        survival.append(reach)
    config = engine_config("vllm", k=len(survival), method="eagle3", survival=survival)
    rates = vllm_document(config, 1)["synthetic_acceptance_rates"]
    assert len(rates) == len(survival)
    assert rates == sorted(rates, reverse=True)
    assert rates == pytest.approx(survival, abs=5.1e-5)


def test_rates_never_rise() -> None:
    config = engine_config("vllm", k=2, method="eagle3", survival=[0.5, 0.50006])
    assert vllm_document(config, 1)["synthetic_acceptance_rates"] == [0.5, 0.5]


def test_lookups_have_no_test_of_that_kind() -> None:
    for engine in ("vllm", "sglang", "llama.cpp"):
        assert len(engine_config(engine, k=5, method="ngram", survival=SURVIVAL).blocks) == 1


def test_a_survival_too_short_for_the_draft_makes_no_test() -> None:
    assert len(engine_config("vllm", k=6, method="eagle3", survival=SURVIVAL).blocks) == 1


@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30))
def test_names_reach_the_engine_as_they_are(name: str) -> None:
    if not (name.isprintable() and name.strip()):
        return
    vllm = engine_config("vllm", k=3, target=name, draft=name)
    assert words(vllm)[2] == name
    assert vllm_document(vllm)["model"] == name
    assert trt_documents(engine_config("tensorrt-llm", k=3, draft=name))[0]["speculative_model"] == name
    assert value_of("-m", words(engine_config("llama.cpp", k=3, target=name))) == name


def test_a_name_that_would_be_pasted_as_an_option_is_refused() -> None:
    with pytest.raises(InputError, match=r"target: '-rf' would be pasted as an option; write \./-rf"):
        engine_config("vllm", k=3, target="-rf")
