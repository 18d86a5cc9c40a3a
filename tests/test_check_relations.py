"""The speculative config of vLLM as a whole: each relation and each method, with a silent case."""

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


def effect(code: str, engine: str | None = None, **inputs: Any) -> str | None:
    """What a finding does; None where it is not found."""
    found = findings(engine, **inputs)
    return found[code].effect if code in found else None


NGRAM: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 4}
EAGLE: dict[str, Any] = {"method": "eagle3", "model": "head", "num_speculative_tokens": 3}
DRAFT: dict[str, Any] = {"method": "draft_model", "model": "d", "num_speculative_tokens": 3}
TIERS = "num_speculative_tokens_per_batch_size"


BITES = {
    "adaptive-and-tiers",
    "key-without-effect",
    "lossy",
    "method-alias",
    "tiers-clamped",
}
"""Codes that bite; the others break."""


@pytest.mark.parametrize(
    ("code", "engine", "config", "silent"),
    [
        ("config-empty", "vllm@0.33", {}, NGRAM),
        ("method-missing", "vllm@0.33", {"num_speculative_tokens": 3}, NGRAM),
        ("method-unknown", "vllm@0.33", {**NGRAM, "method": "egale"}, NGRAM),
        ("model-missing", "vllm@0.33", {"method": "eagle3", "num_speculative_tokens": 3}, EAGLE),
        ("length-missing", "vllm@0.33", {"method": "ngram"}, {"method": "suffix"}),
        ("lookup-window", "vllm@0.33", {**NGRAM, "prompt_lookup_min": 5}, {**NGRAM, "prompt_lookup_min": 4}),
        ("key-without-effect", "vllm@0.33", {**EAGLE, "prompt_lookup_max": 4}, NGRAM),
        ("method-alias", "vllm@0.33", {"method": "qwen3_next_mtp"}, {"method": "mtp"}),
        ("tiers-form", "vllm@0.33", {**EAGLE, TIERS: [[1, 16]]}, {**EAGLE, TIERS: [[1, 16, 3]]}),
        (
            "tiers-order",
            "vllm@0.33",
            {**EAGLE, TIERS: [[2, 16, 3]]},
            {**EAGLE, TIERS: [[1, 16, 3], [17, 64, 1]]},
        ),
        ("tiers-order", "vllm@0.33", {**EAGLE, TIERS: [[1, 16, 3], [16, 64, 1]]}, EAGLE),
        ("tiers-order", "vllm@0.33", {**EAGLE, TIERS: [[1, 0, 3]]}, EAGLE),
        ("tiers-clamped", "vllm@0.33", {**EAGLE, TIERS: [[1, 16, 4]]}, {**EAGLE, TIERS: [[1, 16, 3]]}),
        ("rejection-method", "vllm@0.33", {**EAGLE, "rejection_sample_method": "strict"}, EAGLE),
        ("rejection-method", "vllm@0.24", {**EAGLE, "rejection_sample_method": "block"}, EAGLE),
        (
            "lossy",
            "vllm@0.33",
            {**EAGLE, "rejection_sample_method": "fly"},
            {**EAGLE, "rejection_sample_method": "block"},
        ),
        (
            "synthetic-alone",
            "vllm@0.33",
            {**EAGLE, "synthetic_acceptance_length": 2.5},
            {**EAGLE, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 2.5},
        ),
        (
            "synthetic-form",
            "vllm@0.33",
            {**EAGLE, "rejection_sample_method": "synthetic"},
            {**EAGLE, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.8, 0.6, 0.4]},
        ),
        (
            "synthetic-rates",
            "vllm@0.33",
            {**EAGLE, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.8, 0.9, 0.4]},
            {**EAGLE, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.8, 0.8, 0.4]},
        ),
        (
            "synthetic-length",
            "vllm@0.33",
            {**EAGLE, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.8]},
            {**EAGLE, "rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.8, 0.8, 0.4]},
        ),
        (
            "synthetic-length",
            "vllm@0.33",
            {**EAGLE, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4.1},
            {**EAGLE, "rejection_sample_method": "synthetic", "synthetic_acceptance_length": 4},
        ),
        ("synthetic", "vllm@0.33", {**EAGLE, "rejection_sample_method": "synthetic"}, EAGLE),
        (
            "draft-sampling",
            "vllm@0.33",
            {**EAGLE, "draft_sample_method": "random"},
            {**EAGLE, "draft_sample_method": "greedy"},
        ),
        (
            "two-vocabularies",
            "vllm@0.33",
            {**EAGLE, "use_heterogeneous_vocab": True},
            {**DRAFT, "use_heterogeneous_vocab": True},
        ),
        (
            "two-vocabularies-sampling",
            "vllm@0.33",
            {**DRAFT, "use_heterogeneous_vocab": True, "draft_sample_method": "probabilistic"},
            {**DRAFT, "use_heterogeneous_vocab": True, "draft_sample_method": "greedy"},
        ),
        (
            "two-vocabularies-argmax",
            "vllm@0.33",
            {**DRAFT, "use_heterogeneous_vocab": True, "use_local_argmax_reduction": True},
            {**DRAFT, "use_local_argmax_reduction": True},
        ),
        (
            "parallel-drafting",
            "vllm@0.33",
            {**NGRAM, "parallel_drafting": True},
            {**EAGLE, "parallel_drafting": True},
        ),
        (
            "adaptive-method",
            "vllm@0.33",
            {**NGRAM, "enable_adaptive_verification": True},
            {**EAGLE, "enable_adaptive_verification": True},
        ),
        (
            "adaptive-method",
            "vllm@0.29",
            {**EAGLE, "enable_adaptive_verification": True},
            {"method": "dspark", "enable_adaptive_verification": True},
        ),
        (
            "adaptive-argmax",
            "vllm@0.33",
            {**EAGLE, "enable_adaptive_verification": True, "use_local_argmax_reduction": True},
            {**EAGLE, "enable_adaptive_verification": True},
        ),
        (
            "adaptive-and-tiers",
            "vllm@0.33",
            {**EAGLE, "enable_adaptive_verification": True, TIERS: [[1, 8, 3]]},
            {**EAGLE, TIERS: [[1, 8, 3]]},
        ),
        (
            "mtp-only",
            "vllm@0.33",
            {**EAGLE, "index_share_for_mtp_iteration": True},
            {"method": "mtp", "index_share_for_mtp_iteration": True},
        ),
        (
            "dspark-only",
            "vllm@0.33",
            {**EAGLE, "dspark_draft_topk": 4},
            {"method": "dspark", "dspark_draft_topk": 4},
        ),
        ("too-many-keys", "vllm@0.33", {f"x{number}": 1 for number in range(50)}, NGRAM),
    ],
)
def test_what_goes_together(code: str, engine: str, config: dict[str, Any], silent: dict[str, Any]) -> None:
    assert effect(code, engine, speculative_config=config) == ("bites" if code in BITES else "breaks")
    assert code not in findings(engine, speculative_config=silent)


@pytest.mark.parametrize(
    ("method", "code", "breaks", "holds"),
    [
        ("suffix", "method-too-new", "0.11.0", "0.11.1"),
        ("dflash", "method-too-new", "0.19", "0.20"),
        ("dspark", "method-too-new", "0.24", "0.25"),
        ("eagle3", "method-too-new", "0.8.4", "0.8.5"),
        ("mtp", "method-too-new", "0.10.2", "0.11"),
        ("medusa", "method-removed", "0.33", "0.32"),
        ("draft_model", "method-away", "0.10", "0.16"),
        ("draft_model", "method-away", "0.15", "0.9.2"),
        ("extract_hidden_states", "method-too-new", "0.16", "0.17"),
        ("qwen3_next_mtp", "method-too-new", "0.10.1", "0.10.2"),
        ("ngram_gpu", "method-too-new", "0.17", "0.18"),
        ("custom_class", "method-too-new", "0.21", "0.22"),
        ("mlp_speculator", "method-removed", "0.33", "0.32"),
    ],
)
def test_a_method_at_the_ends_of_its_releases(method: str, code: str, breaks: str, holds: str) -> None:
    config = {"method": method, "model": "m", "num_speculative_tokens": 3}
    assert effect(code, f"vllm@{breaks}", speculative_config=config) == "breaks"
    assert effect(code, f"vllm@{holds}", speculative_config=config) is None


@pytest.mark.parametrize("method", ["strict", "probabilistic", "standard", "synthetic", "block", "fly"])
@pytest.mark.parametrize("version", ["0.18", "0.19", "0.20", "0.21", "0.24", "0.25", "0.32", "0.33"])
def test_rejection_methods_by_release(method: str, version: str) -> None:
    """As the literals of `RejectionSampleMethod` have them in each source package."""
    known = {
        "0.18": {"strict", "probabilistic"},
        "0.19": {"strict", "probabilistic", "synthetic"},
        "0.20": {"strict", "probabilistic", "synthetic"},
        "0.21": {"standard", "synthetic"},
        "0.24": {"standard", "synthetic"},
        "0.25": {"standard", "synthetic", "block"},
        "0.32": {"standard", "synthetic", "block"},
        "0.33": {"standard", "synthetic", "block", "fly"},
    }
    config = {**EAGLE, "rejection_sample_method": method}
    refused = effect("rejection-method", f"vllm@{version}", speculative_config=config) is not None
    assert refused is (method not in known[version])


def test_a_method_that_only_older_releases_lack_bites_where_the_version_is_unknown() -> None:
    assert effect("method-away", "vllm", speculative_config=DRAFT) == "bites"
    assert effect("needs-version", "vllm", speculative_config={**EAGLE, TIERS: [[1, 8, 3]]}) == "bites"
    assert effect("needs-version", "vllm", speculative_config=EAGLE) is None
    assert effect("needs-version", "vllm@0.33", speculative_config={**EAGLE, TIERS: [[1, 8, 3]]}) is None


def test_before_the_config_there_were_flags() -> None:
    assert effect("config-too-new", "vllm@0.7.3", speculative_config=NGRAM) == "breaks"
    assert effect("config-too-new", "vllm@0.8.2", speculative_config=NGRAM) is None


def test_adaptive_verification_takes_dspark_alone_in_two_releases() -> None:
    config = {**EAGLE, "enable_adaptive_verification": True}
    told = {
        version: effect("adaptive-method", f"vllm@{version}", speculative_config=config)
        for version in ("0.28", "0.29", "0.30")
    }
    assert told == {"0.28": "breaks", "0.29": "breaks", "0.30": None}


def test_names_of_mtp_by_family() -> None:
    for name, version in (
        ("deepseek_mtp", "0.9"),
        ("deepseek_mtp", "0.33"),
        ("mtp", "0.33"),
        ("glm_ocr_mtp", "0.33"),
    ):
        found = findings(f"vllm@{version}", speculative_config={"method": name})
        assert not [one for one in found.values() if one.effect == "breaks"], name
    one = findings("vllm@0.33", speculative_config={"method": "deepsek_mtp"})["method-unknown"]
    assert one.remedy == "write deepseek_mtp"
