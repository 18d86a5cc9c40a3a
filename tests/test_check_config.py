"""The speculative config of vLLM: how it may be written, each key, each relation, each with a silent case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmath.compatibility.findings import Finding
from specmath.compatibility.plain_text import plain_document
from specmath.compatibility.question import check_speculation
from specmath.compatibility.vllm_keys import CONFIG_SINCE, KEYS
from specmath.errors import DataError, InputError


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


NGRAM: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
EAGLE: dict[str, Any] = {"method": "eagle3", "model": "head", "num_speculative_tokens": 3}
DRAFT: dict[str, Any] = {"method": "draft_model", "model": "d", "num_speculative_tokens": 3}
TIERS = "num_speculative_tokens_per_batch_size"


@pytest.mark.parametrize(
    "text",
    [
        '{"method": "ngram", "num_speculative_tokens": 3}',
        "{'method': 'ngram', 'num_speculative_tokens': 3}",
        '\'{"method": "ngram", "num_speculative_tokens": 3}\'',
        r"{\"method\": \"ngram\", \"num_speculative_tokens\": 3}",
        "{method: ngram, num_speculative_tokens: 3}",
        "method: ngram\nnum_speculative_tokens: 3\n",
        "speculative_config:\n  method: ngram\n  num_speculative_tokens: 3\n",
        "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3",
        "--speculative-config.method=ngram --speculative-config.num-speculative-tokens=3",
        "-sc.method ngram -sc.num_speculative_tokens 3",
        '--speculative-config \'{"method": "ngram", "num_speculative_tokens": 3}\'',
        "--spec-method ngram --spec-tokens 3",
    ],
)
def test_every_way_of_writing_it_says_the_same(text: str) -> None:
    settings = check_speculation("vllm@0.33", speculative_config=text).case.settings
    assert settings.config == {"method": "ngram", "num_speculative_tokens": 3}
    assert (settings.method, settings.k) == ("ngram", 3)


@pytest.mark.parametrize("prefix", ["", "@"])
def test_a_file(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps({"method": "ngram", "num_spec_tokens": 3}), encoding="utf-8")
    assert effect("key-misspelt", "vllm@0.33", speculative_config=f"{prefix}{path}") == "breaks"


@pytest.mark.parametrize(
    "text", ["", "5", "[1]", "{", "{'a'", "a: &x 1\nb: *x", "[" * 5_000, '{"a": 1, "a": 2}']
)
def test_what_is_no_table_is_a_fault_of_the_option(text: str) -> None:
    with pytest.raises(InputError) as fault:
        findings("vllm@0.33", speculative_config=text)
    assert "\n" not in str(fault.value)


def test_what_is_no_table_in_a_file_is_a_fault_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(DataError):
        findings("vllm@0.33", speculative_config=f"@{path}")


def test_python_words_are_read() -> None:
    assert plain_document("{'a': True, 'b': None, 'c': .5}", "x") == {"a": True, "b": None, "c": 0.5}


@pytest.mark.parametrize("config", [NGRAM, EAGLE])
def test_a_sound_config_breaks_nothing(config: dict[str, Any]) -> None:
    assert not [
        one for one in findings("vllm@0.33", speculative_config=config).values() if one.effect == "breaks"
    ]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("num_spec_tokens", "num_speculative_tokens"),
        ("num_speculative_token", "num_speculative_tokens"),
        ("num-speculative-tokens-per-batch-sizes", TIERS),
        ("speculative_model", "model"),
        ("draft_tp", "draft_tensor_parallel_size"),
        ("tensor_parallel_size", "draft_tensor_parallel_size"),
        ("ngram_prompt_lookup_max", "prompt_lookup_max"),
        ("rejection_sampling_method", "rejection_sample_method"),
        ("max_draft_len", "num_speculative_tokens"),
    ],
)
def test_the_key_that_was_meant_is_named(wrong: str, right: str) -> None:
    found = findings("vllm@0.33", speculative_config={**NGRAM, wrong: 1})
    (one,) = [one for one in found.values() if one.code in ("key-misspelt", "key-refused")]
    assert (one.effect, one.subject) == ("breaks", wrong)
    assert one.remedy.startswith(f"write {right}")


def test_a_key_that_nothing_resembles() -> None:
    one = findings("vllm@0.33", speculative_config={**NGRAM, "zzz": 1})["key-unknown"]
    assert (one.effect, one.subject) == ("breaks", "zzz")
    assert "key-unknown" not in findings("vllm@0.33", speculative_config=NGRAM)


RELEASES = {
    "0.9": ["speculative_token_tree"],
    "0.11": ["enforce_eager", "disable_padded_drafter_batch"],
    "0.11.1": [
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor",
        "suffix_decoding_min_token_prob",
    ],
    "0.16": ["parallel_drafting"],
    "0.17": ["draft_load_config", "use_local_argmax_reduction"],
    "0.18": ["rejection_sample_method"],
    "0.19": ["moe_backend", "synthetic_acceptance_rate"],
    "0.20": ["synthetic_acceptance_rates", "synthetic_acceptance_length"],
    "0.21": ["attention_backend", "draft_sample_method"],
    "0.24": ["num_speculative_tokens_per_batch_size"],
    "0.25": ["use_heterogeneous_vocab"],
    "0.26": ["kv_cache_dtype"],
    "0.28": ["enable_adaptive_verification", "dspark_draft_topk"],
    "0.29": ["index_share_for_mtp_iteration"],
    "0.30": ["disable_eagle_block_drop"],
    "0.33": [
        "disable_lookahead_block_hashes",
        "draft_lm_head_quantization",
        "fly_window_size",
        "fly_entropy_threshold",
        "fly_entropy_top_k",
        "xpress_topc",
    ],
}
GONE = {
    "0.10": ["acceptance_method", "posterior_threshold", "posterior_alpha", "disable_mqa_scorer"],
    "0.11.1": ["disable_logprobs", "disable_log_stats", "enable_chunked_prefill"],
    "0.17": ["disable_by_batch_size"],
    "0.20": ["synthetic_acceptance_rate"],
    "0.21": ["speculative_token_tree"],
}


def dots(release: tuple[int, ...] | None) -> str | None:
    return None if release is None else ".".join(map(str, release))


def test_releases_are_those_of_the_source_packages() -> None:
    """First and last field lists of `SpeculativeConfig`, read once in the packages 0.8.2 to 0.33.0."""
    first = {key: release for release, keys in RELEASES.items() for key in keys}
    gone = {key: release for release, keys in GONE.items() for key in keys}
    for key, known in KEYS.items():
        assert dots(known.first) == first.get(key, "0.8.2"), key
        assert dots(known.gone) == gone.get(key), key


@pytest.mark.parametrize("key", [key for key, known in KEYS.items() if known.first > CONFIG_SINCE])
def test_a_key_is_too_new_just_before_its_release(key: str) -> None:
    first = KEYS[key].first
    before = max((*first[:-1], first[-1] - 1), CONFIG_SINCE)
    text, earlier = ".".join(map(str, first)), ".".join(map(str, before))
    config = {**EAGLE, key: None}
    assert "key-too-new" not in findings(f"vllm@{text}", speculative_config=config)
    assert effect("key-too-new", f"vllm@{earlier}", speculative_config=config) == "breaks"


@pytest.mark.parametrize("key", [key for key, known in KEYS.items() if known.gone is not None])
def test_a_key_is_gone_from_its_release_on(key: str) -> None:
    gone = KEYS[key].gone
    assert gone is not None
    at, before = ".".join(map(str, gone)), ".".join(map(str, (*gone[:-1], gone[-1] - 1)))
    config = {**EAGLE, key: None}
    assert effect("key-removed", f"vllm@{at}", speculative_config=config) == "breaks"
    assert (
        effect(
            "key-removed",
            f"vllm@{before}.9" if len(gone) == 2 else f"vllm@{before}",
            speculative_config=config,
        )
        is None
    )
    assert effect("key-removed", "vllm", speculative_config=config) == "breaks"


def test_the_dead_key_bites_before_it_breaks() -> None:
    config = {**EAGLE, "disable_by_batch_size": 32}
    assert effect("dead-key", "vllm@0.12", speculative_config=config) == "bites"
    assert effect("dead-key", "vllm@0.9.2", speculative_config=config) is None
    assert effect("dead-key", "vllm@0.17", speculative_config=config) is None
    assert effect("key-removed", "vllm@0.17", speculative_config=config) == "breaks"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_speculative_tokens", 0),
        ("num_speculative_tokens", -3),
        ("num_speculative_tokens", 2.5),
        ("num_speculative_tokens", True),
        ("num_speculative_tokens", "three"),
        ("num_speculative_tokens", [3]),
        ("num_speculative_tokens", float("nan")),
        ("num_speculative_tokens", float("inf")),
        ("method", 5),
        ("prompt_lookup_max", 0),
        ("suffix_decoding_min_token_prob", 1.5),
        ("synthetic_acceptance_rates", 0.7),
        (TIERS, {"1-16": 3}),
        ("parallel_drafting", "maybe"),
    ],
)
def test_a_value_that_will_not_do(key: str, value: Any) -> None:
    found = findings("vllm@0.33", speculative_config={**EAGLE, key: value})
    assert found["value-refused"].subject == key
    assert found["value-refused"].effect == "breaks"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_speculative_tokens", 1),
        ("num_speculative_tokens", 3.0),
        ("suffix_decoding_min_token_prob", 0),
        ("parallel_drafting", False),
        ("max_model_len", None),
    ],
)
def test_a_value_that_will_do(key: str, value: Any) -> None:
    assert "value-refused" not in findings("vllm@0.33", speculative_config={**EAGLE, key: value})


def test_a_number_as_text_bites() -> None:
    assert (
        effect("number-as-text", "vllm@0.33", speculative_config={**NGRAM, "num_speculative_tokens": "3"})
        == "bites"
    )
    assert effect("number-as-text", "vllm@0.33", speculative_config=NGRAM) is None


@pytest.mark.parametrize(
    "key", ["num_speculative_tokens", "draft_tensor_parallel_size", "prompt_lookup_max", "dspark_draft_topk"]
)
def test_one_is_enough(key: str) -> None:
    assert "value-refused" not in findings("vllm@0.33", speculative_config={"method": "dspark", key: 1})


def test_the_remedy_of_a_value_fits_its_kind() -> None:
    tiers = {**EAGLE, TIERS: {"1-16": 3}}
    assert findings("vllm@0.33", speculative_config=tiers)["value-refused"].remedy.startswith(
        "write [[1, 16, 3]]"
    )
    rates = {**EAGLE, "synthetic_acceptance_rates": 0.7}
    assert findings("vllm@0.33", speculative_config=rates)["value-refused"].remedy.startswith("give a list")
