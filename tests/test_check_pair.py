"""Target and draft beside each other: each rule with a silent case, by the models of the catalogue."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specmath.compatibility.findings import Finding
from specmath.compatibility.question import check_speculation
from specmath.model import ModelShape
from specmath.model_catalogue import load_model


def findings(engine: str | None = None, **inputs: Any) -> dict[str, Finding]:
    """The findings by code, the first of each."""
    found: dict[str, Finding] = {}
    for one in check_speculation(engine, **inputs).findings:
        found.setdefault(one.code, one)
    return found


def pair(target: str, draft: str) -> dict[str, ModelShape]:
    return {"target": load_model(target), "draft": load_model(draft)}


SAME = pair("qwen3-32b", "qwen3-0.6b")
PADDED = pair("qwen2.5-72b", "qwen2.5-0.5b")
FOREIGN = pair("qwen3-32b", "llama-3.2-1b")
HEAD = pair("llama-3.1-8b", "eagle3-llama-3.1-8b")
SHORT = {**HEAD, "draft": replace(HEAD["draft"], max_context=2_048)}
BLOCK = pair("qwen3-8b", "dflash-qwen3-8b")


@pytest.mark.parametrize(
    ("engine", "models", "found"),
    [
        ("vllm@0.33", SAME, None),
        ("vllm@0.33", PADDED, "breaks"),
        ("vllm@0.33", FOREIGN, "breaks"),
        ("llama.cpp@2026", FOREIGN, "breaks"),
        ("llama.cpp@2026", PADDED, None),
        ("transformers", FOREIGN, "bites"),
        ("sglang@0.5.23", FOREIGN, "breaks"),
        ("sglang@0.5.23", SAME, None),
        (None, FOREIGN, "breaks"),
        ("vllm@0.33", HEAD, None),
    ],
)
def test_vocabularies(engine: str | None, models: dict[str, ModelShape], found: str | None) -> None:
    one = findings(engine, **models).get("vocabulary")
    assert (one and one.effect) == found
    if one and engine is not None and engine.startswith("vllm"):
        assert f"{models['draft'].vocab:,}" in one.text
        assert f"{models['target'].vocab:,}" in one.text


def test_padding_is_named_as_such() -> None:
    assert "padding" in findings("vllm@0.33", **PADDED)["vocabulary"].text
    assert "padding" not in findings("vllm@0.33", **FOREIGN)["vocabulary"].text


def test_llama_cpp_takes_128_rows_of_difference() -> None:
    target = load_model("qwen3-32b")
    for apart, found in ((128, False), (129, True)):
        draft = replace(load_model("qwen3-0.6b"), vocab=target.vocab - apart)
        assert ("vocabulary" in findings("llama.cpp", target=target, draft=draft)) is found


def test_two_vocabularies_where_the_config_allows_them() -> None:
    config = {
        "method": "draft_model",
        "model": "d",
        "num_speculative_tokens": 3,
        "use_heterogeneous_vocab": True,
    }
    found = findings("vllm@0.33", speculative_config=config, **FOREIGN)
    assert "vocabulary" not in found
    assert found["vocabulary-shared"].effect == "bites"
    assert "vocabulary-shared" not in findings("vllm@0.33", **FOREIGN)


@pytest.mark.parametrize(
    ("code", "models", "inputs", "silent"),
    [
        ("head-width", pair("llama-3.3-70b", "eagle3-llama-3.1-8b"), {}, HEAD),
        ("head-vocabulary", pair("qwen3-8b", "eagle3-llama-3.1-8b"), {}, HEAD),
        ("head-kind", HEAD, {"method": "eagle"}, HEAD),
        ("draft-larger", pair("qwen3-0.6b", "qwen3-32b"), {}, SAME),
        ("draft-context", SHORT, {"context": 131_072}, {**SHORT, "context": 2_048}),
        ("beyond-depth", BLOCK, {"k": 64}, {**BLOCK, "k": 4}),
        ("block-at-length", BLOCK, {"context": 65_536}, {**BLOCK, "context": 4_096}),
        (
            "mtp-missing",
            {"target": load_model("qwen3-32b")},
            {"method": "mtp"},
            {"target": load_model("deepseek-v3"), "method": "mtp"},
        ),
        (
            "mtp-unused",
            {"target": load_model("deepseek-v3")},
            {"method": "eagle3"},
            {"target": load_model("deepseek-v3"), "method": "mtp"},
        ),
    ],
)
def test_each_rule(code: str, models: dict[str, Any], inputs: dict[str, Any], silent: dict[str, Any]) -> None:
    assert code in findings("vllm@0.33", **models, **inputs)
    assert code not in findings("vllm@0.33", **silent)


def test_the_limit_of_a_draft_model_by_release() -> None:
    models = {**SAME, "context": 131_072}
    for version, effect in (("0.32", "breaks"), ("0.33", "breaks")):
        assert findings(f"vllm@{version}", **models)["draft-context"].effect == effect
    lowered = findings("vllm@0.33", **models)["draft-context"]
    assert "lowers max_model_len" in lowered.text
    assert "40,960" in lowered.remedy


def test_the_limit_of_a_head_by_release() -> None:
    models = {**SHORT, "context": 131_072}
    assert findings("vllm@0.26", **models)["draft-context"].effect == "breaks"
    assert findings("vllm@0.27", **models)["draft-context"].effect == "bites"


def test_the_config_may_shorten_the_draft() -> None:
    config = {"method": "draft_model", "model": "d", "num_speculative_tokens": 3, "max_model_len": 1_024}
    assert "draft-context" in findings("vllm@0.33", speculative_config=config, context=2_048)
    assert "draft-context" not in findings("vllm@0.33", speculative_config=config, context=1_024)


@pytest.mark.parametrize("engine", ["vllm@0.33", "sglang@0.5.23"])
def test_recurrent_targets_hold_state_slots(engine: str) -> None:
    hybrid = load_model("qwen3-next-80b-a3b")
    assert hybrid.states
    assert findings(engine, target=hybrid, method="mtp", k=3)["state-slots"].effect == "bites"
    assert "state-slots" not in findings(engine, target=load_model("qwen3-32b"), method="mtp", k=3)


def test_the_prefix_unit_of_a_hybrid_is_named() -> None:
    told = findings("vllm@0.33", target=load_model("qwen3-next-80b-a3b"), method="mtp", k=1)[
        "prefix-unit"
    ].text
    assert "hybrid model such as this" in told


def test_models_known_by_counts_alone_say_nothing_of_vocabularies() -> None:
    models = pair("70B", "1B")
    assert not [one for one in findings("vllm@0.33", **models).values() if one.effect == "breaks"]
