"""Names, versions and edges of engine configs: what is read, what is doubted, what is refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, strategies as st

from specmath.engines.configs.making import engine_config
from specmath.engines.configs.record import EngineConfig
from specmath.engines.configs.versions import dated_version, numbered_version
from specmath.engines.names import CONFIG_ENGINES, parse_engine
from specmath.errors import InputError, UnknownNameError


class Step(NamedTuple):
    """A tier of a plan."""

    first_batch: int
    last_batch: int
    k: int


TIERS = (Step(1, 16, 5), Step(17, 64, 3), Step(65, 512, 0))


def codes(config: EngineConfig) -> set[str]:
    return {advice.code for advice in config.warnings}


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("0.32", (0, 32)),
        ("v0.32.1rc1", (0, 32, 1)),
        ("0.4.6.post5", (0, 4, 6)),
        ("0.9.2+cu118", (0, 9, 2)),
        ("1.2.0rc6.post2", (1, 2, 0)),
        ("0.17.0-dev3", (0, 17, 0)),
    ],
)
def test_versions_are_read(text: str, release: tuple[int, ...]) -> None:
    assert numbered_version(text).release == release


@pytest.mark.parametrize(
    "text", ["", "x", "0..1", "0.1.", "1" * 80, "0.32 rc1", "latest", "0,32", "-1", "٣", "1e400", "0.32e5"]
)
def test_what_is_no_version(text: str) -> None:
    with pytest.raises(InputError, match="is no version"):
        parse_engine(f"vllm@{text}")


@pytest.mark.parametrize("text", ["", "b", "b-1", "0.3.16", "1999", "2026-13", "bx", "b" + "9" * 60])
def test_what_is_no_build(text: str) -> None:
    with pytest.raises(InputError, match="is no build"):
        dated_version(text)


@given(st.text(max_size=80))
def test_no_text_breaks_the_reader_of_engines(text: str) -> None:
    for name in ("", "vllm@", "llama.cpp@"):
        said = ""
        try:
            parse_engine(name + text)
        except (InputError, UnknownNameError) as fault:
            said = str(fault)
        assert "\n" not in said


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("vllm@0.40", "newer than 0.33"),
        ("vllm@0.5.4", "older than 0.6.6"),
        ("vllm@0.33.1", None),
        ("sglang@0.5.24", "newer than 0.5.23"),
        ("sglang@0.4.1", "older than 0.4.6"),
        ("llama.cpp@2027", "newer than 2026-10"),
        ("llama.cpp@2024", "older than 2025"),
        ("lmdeploy@0.10", "older than 0.16"),
        ("tensorrt-llm@0.21", "older than 1.0"),
        ("transformers@5.30", "newer than 5.23"),
    ],
)
def test_versions_that_nobody_read_are_said(engine: str, said: str | None) -> None:
    config = engine_config(engine, k=3, method="ngram" if "llama" not in engine else "draft-model")
    told = [advice.text for advice in config.warnings if advice.code == "version-not-read"]
    assert len(told) == (said is not None)
    assert said is None or said in told[0]


@pytest.mark.parametrize("engine", CONFIG_ENGINES)
def test_without_a_version_the_newest_family_is_taken_and_said(engine: str) -> None:
    config = engine_config(engine, k=3, method="draft-model")
    (advice,) = (one for one in config.warnings if one.code == "no-version")
    assert config.family in advice.text
    named = advice.remedy.rsplit(" ", 1)[1]
    assert {"no-version", "version-not-read"} & codes(engine_config(named, k=3)) == set()


def test_a_candidate_at_a_border_counts_as_its_release() -> None:
    config = engine_config("vllm@0.24.0rc1", TIERS)
    assert (config.policy, "before-release" in codes(config)) == ("tiers", True)
    assert "before-release" not in codes(engine_config("vllm@0.25.0rc1", TIERS))


@pytest.mark.parametrize("engine", ["ideal@1", "typical@2", "cpu@1"])
def test_profiles_of_no_engine_have_no_version(engine: str) -> None:
    with pytest.raises(InputError, match="is no engine"):
        parse_engine(engine)


def test_names() -> None:
    assert parse_engine("VLLM").name == "vllm"
    assert (parse_engine("mlx-lm").profile, parse_engine("trtllm").name) == ("mlx", "tensorrt-llm")
    assert parse_engine("typical").name is None
    with pytest.raises(UnknownNameError, match="nearest: vllm"):
        parse_engine("vlm@0.32")


# Edges


def test_off_gives_nothing_and_says_why() -> None:
    for config in (engine_config("vllm", k=0), engine_config("sglang", [Step(1, 64, 0)])):
        assert (config.blocks, config.policy) == ((), None)
        assert "off" in codes(config)
        assert [row["policy"] for row in config.rows()] == ["off"]


def test_off_as_the_one_k_in_place_of_tiers() -> None:
    config = engine_config("llama.cpp", TIERS, k=0)
    assert config.blocks == ()
    (advice,) = (one for one in config.warnings if one.code == "one-k-instead")
    assert "off is the best one k" in advice.text


def test_batches_outside_the_plan_are_said() -> None:
    tiers = (Step(4, 8, 5), Step(9, 20, 2))
    config = engine_config("vllm", tiers)
    (advice,) = (one for one in config.warnings if one.code == "beyond-the-plan")
    assert "below 4 go with k = 5" in advice.text
    assert "above go with k = 2" in advice.text


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "k: is missing"),
        ({"k": -1}, "k: must be"),
        ({"k": 2.5}, "k: must be"),
        ({"k": 3, "policy": "best"}, "policy: must be one of"),
        ({"k": 3, "target": ""}, "target: "),
        ({"k": 3, "draft": "a\nb"}, "draft: "),
        ({"k": 3, "data_parallel": 0}, "data_parallel: "),
        ({"k": 3, "survival": [1.5]}, "survival: "),
        ({"tiers": [Step(1, 8, 2), Step(8, 9, 1)]}, "without overlap"),
        ({"tiers": [Step(8, 4, 2)]}, "ends at 4"),
        ({"tiers": [Step(0, 4, 2)]}, "tiers: must be"),
        ({"tiers": [Step(1, 65_537, 2)]}, "tiers: must be"),
    ],
)
def test_refusals(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        engine_config("vllm@0.32", **arguments)
    with pytest.raises(InputError, match="has no config"):
        engine_config("typical", k=3)


@pytest.mark.parametrize("engine", CONFIG_ENGINES)
def test_capitals_stand_for_what_was_not_named(engine: str) -> None:
    method = {"tgi": "ngram", "lmdeploy": "eagle3"}.get(engine, "draft-model")
    config = engine_config(engine, k=3, method=method)
    if engine != "transformers":
        assert "TARGET" in "".join(block.text for block in config.blocks)
        assert "TARGET" in config.assumptions[0]
    assert config.schema == "specmath.config/1"
