"""A sample of requests: what is counted, what each engine and release does to it, what cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from specmath.compatibility.findings import Finding, share
from specmath.compatibility.question import check_speculation
from specmath.compatibility.samples import MAX_BODY, TRAITS, read_requests
from specmath.errors import AccessError, DataError, InputError


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


def sample(folder: Path, *bodies: Any) -> str:
    path = folder / "sample.jsonl"
    path.write_text("".join(json.dumps(body) + "\n" for body in bodies), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("trait", "with_it", "without"),
    [
        ("min_p", {"min_p": 0.1}, {"min_p": 0}),
        ("logit_bias", {"logit_bias": {"5": 1}}, {"logit_bias": {}}),
        ("min_tokens", {"min_tokens": 2}, {"min_tokens": 1}),
        ("penalties", {"frequency_penalty": 0.5}, {"frequency_penalty": 0}),
        ("penalties", {"repetition_penalty": 1.1}, {"repetition_penalty": 1}),
        ("logprobs", {"logprobs": True}, {"logprobs": False}),
        ("logprobs", {"logprobs": 0}, {"logprobs": None}),
        ("logprobs", {"return_logprob": True}, {"top_logprobs": 0}),
        ("logprobs", {"n_probs": 3}, {"n_probs": 0}),
        ("prompt_logprobs", {"prompt_logprobs": 0}, {}),
        (
            "structured output",
            {"response_format": {"type": "json_schema"}},
            {"response_format": {"type": "text"}},
        ),
        ("structured output", {"guided_json": {}, "guided_regex": "a"}, {"guided_json": None}),
        ("structured output", {"tool_choice": "required"}, {"tool_choice": "auto"}),
        ("n > 1", {"n": 2}, {"n": 1}),
        ("n > 1", {"best_of": 3}, {}),
        ("beam search", {"use_beam_search": True}, {"num_beams": 1}),
        ("LoRA", {"lora_path": "a"}, {}),
        ("logits processors", {"logits_processors": ["x"]}, {}),
        ("sampling", {}, {"temperature": 0}),
        ("sampling", {"temperature": 0.7}, {"do_sample": False}),
        ("seed", {"seed": 0}, {"seed": None}),
        ("ignore_eos", {"ignore_eos": True}, {"ignore_eos": False}),
    ],
)
def test_each_trait(trait: str, with_it: dict[str, Any], without: dict[str, Any]) -> None:
    assert TRAITS[trait](with_it)
    assert not TRAITS[trait](without)


@pytest.mark.parametrize(
    "body",
    [
        {"min_p": 0.1},
        {"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"min_p": 0.1}},
        {"request": {"min_p": 0.1}},
        {"extra_body": {"min_p": 0.1}},
        {"text": "x", "sampling_params": {"min_p": 0.1}},
        {"body": {"extra_body": {"min_p": 0.1}}},
    ],
)
def test_wherever_a_body_puts_it(tmp_path: Path, body: dict[str, Any]) -> None:
    assert read_requests(sample(tmp_path, body)).count("min_p") == 1


@pytest.mark.parametrize("value", ["0.1", [0.1], {"a": 1}, None, True, float("nan"), 10**399])
def test_odd_values_are_no_trait_and_no_crash(tmp_path: Path, value: Any) -> None:
    assert read_requests(sample(tmp_path, {"min_p": value})).count("min_p") == 0


@pytest.mark.parametrize(
    ("version", "found"), [("0.13", None), ("0.14", "breaks"), ("0.33", "breaks"), ("", "breaks")]
)
def test_min_p_is_refused_from_0_14_on(tmp_path: Path, version: str, found: str | None) -> None:
    engine = f"vllm@{version}" if version else "vllm"
    requests = sample(tmp_path, {"min_p": 0.1}, {"min_p": 0})
    assert effect("requests-min-p", engine, requests=requests, method="eagle3") == found
    if found:
        text = findings(engine, requests=requests, method="eagle3")["requests-min-p"].text
        assert text.startswith("1 of 2 requests (50 %)")


@pytest.mark.parametrize(
    ("version", "found"), [("0.13", None), ("0.14", "breaks"), ("0.16", "breaks"), ("0.17", None)]
)
def test_min_tokens_is_refused_by_three_releases(tmp_path: Path, version: str, found: str | None) -> None:
    assert (
        effect("requests-min-tokens", f"vllm@{version}", requests=sample(tmp_path, {"min_tokens": 5}))
        == found
    )


@pytest.mark.parametrize(
    ("code", "engine", "body", "silent", "inputs"),
    [
        ("requests-logit-bias", "vllm@0.33", {"logit_bias": {"1": 1}}, {}, {}),
        ("requests-logit-bias", "vllm@0.12", {"logit_bias": {"1": 1}}, {}, {}),
        ("requests-penalties", "vllm@0.12", {"presence_penalty": 1}, {}, {"method": "ngram"}),
        ("requests-logprobs", "vllm@0.12", {"logprobs": 1}, {}, {"method": "ngram"}),
        ("requests-n-above-1", "vllm@0.29", {"n": 2}, {}, {}),
        ("requests-sampling", "vllm@0.33", {}, {"temperature": 0}, {"method": "mtp"}),
        ("requests-structured-output", "vllm@0.33", {"guided_regex": "a"}, {}, {}),
        ("requests-ignore-eos", "vllm@0.33", {"ignore_eos": True}, {}, {}),
        ("requests-seed", "vllm@0.33", {"seed": 1}, {}, {}),
        ("requests-lora", "vllm@0.33", {"lora_request": "a"}, {}, {}),
        ("requests-min-p", "sglang@0.5.23", {"min_p": 0.1}, {}, {"method": "eagle3"}),
        ("requests-logit-bias", "sglang@0.5.23", {"logit_bias": {"1": 1}}, {}, {"method": "eagle3"}),
        ("requests-logprobs", "tensorrt-llm@1.3", {"logprobs": True}, {}, {}),
        ("requests-n-above-1", "transformers", {"n": 2}, {}, {}),
        ("requests-beam-search", "transformers", {"num_beams": 4}, {}, {}),
        ("requests-sampling", "llama.cpp@2026", {}, {"temperature": 0}, {"method": "draft-model"}),
    ],
)
def test_each_rule(
    tmp_path: Path,
    code: str,
    engine: str,
    body: dict[str, Any],
    silent: dict[str, Any],
    inputs: dict[str, Any],
) -> None:
    breaks = code in ("requests-logit-bias", "requests-min-p", "requests-beam-search") or (code, engine) in (
        ("requests-logprobs", "tensorrt-llm@1.3"),
        ("requests-n-above-1", "transformers"),
    )
    told = effect(code, engine, requests=sample(tmp_path, body), **inputs)
    assert told == ("breaks" if breaks else "bites")
    assert code not in findings(engine, requests=sample(tmp_path, silent), **inputs)


@pytest.mark.parametrize(
    ("code", "body", "inputs", "by_version"),
    [
        (
            "requests-min-p",
            {"min_p": 0.1},
            {"method": "ngram"},
            {"0.8": None, "0.8.2": "bites", "0.13": "bites", "0.14": "breaks"},
        ),
        (
            "requests-penalties",
            {"presence_penalty": 1},
            {"method": "ngram"},
            {"0.8.2": "bites", "0.13": "bites", "0.14": None},
        ),
        ("requests-penalties", {"presence_penalty": 1}, {"method": "eagle3"}, {"0.13": None}),
        (
            "requests-logprobs",
            {"logprobs": 1},
            {"method": "ngram"},
            {"0.8.2": "bites", "0.13": "bites", "0.14": None},
        ),
        (
            "requests-logit-bias",
            {"logit_bias": {"1": 1}},
            {},
            {"0.10": None, "0.11": "breaks", "0.13": "breaks", "0.33": "breaks"},
        ),
        ("requests-n-above-1", {"n": 2}, {}, {"0.28": None, "0.29": "bites"}),
        ("requests-sampling", {}, {"method": "mtp"}, {"0.20": None, "0.21": "bites"}),
    ],
)
def test_releases_of_vllm(
    tmp_path: Path, code: str, body: dict[str, Any], inputs: dict[str, Any], by_version: dict[str, str | None]
) -> None:
    for version, told in by_version.items():
        assert effect(code, f"vllm@{version}", requests=sample(tmp_path, body), **inputs) == told, version


def test_log_probabilities_break_under_adaptive_verification_alone(tmp_path: Path) -> None:
    requests = sample(tmp_path, {"logprobs": True}, {"lora_path": "a"})
    config = {"method": "dspark", "enable_adaptive_verification": True}
    assert effect("requests-logprobs", "vllm@0.33", requests=requests, speculative_config=config) == "breaks"
    assert effect("requests-lora", "vllm@0.33", requests=requests, speculative_config=config) == "breaks"
    assert (
        effect("requests-logprobs", "vllm@0.33", requests=requests, speculative_config={"method": "dspark"})
        is None
    )


def test_adapters_only_bite_elsewhere(tmp_path: Path) -> None:
    requests = sample(tmp_path, {"lora_path": "a"})
    assert findings("vllm@0.33", requests=requests)["requests-lora"].evidence == "vllm/config/vllm.py"
    one = findings("sglang", requests=requests, server_args="--speculative-adaptive")["requests-lora"]
    assert (one.effect, one.evidence) == ("bites", "no figures found")


def test_probabilistic_drafts_silence_the_rule_of_sampling(tmp_path: Path) -> None:
    config = {"method": "mtp", "draft_sample_method": "probabilistic"}
    assert (
        effect("requests-sampling", "vllm@0.33", requests=sample(tmp_path, {}), speculative_config=config)
        is None
    )


def test_lookups_do_not_care_how_a_draft_samples(tmp_path: Path) -> None:
    assert effect("requests-sampling", "vllm@0.33", requests=sample(tmp_path, {}), method="ngram") is None


def test_what_cannot_be_read_is_counted_and_named(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_bytes(b'{"n": 2}\n\nnot json\n[1]\n\xff\xfe\n{"n": 1}')
    read = read_requests(path)
    assert (read.total, read.count("n > 1")) == (2, 1)
    (note,) = read.notes
    assert note.text.startswith("3 lines of")
    assert "line 3" in note.text


def test_a_line_beyond_the_limit_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_bytes(b'{"prompt": "' + b"x" * (MAX_BODY + 2**19) + b'"}\n{"n": 2}\n')
    read = read_requests(path)
    assert (read.total, read.count("n > 1")) == (1, 1)
    assert "longer than 16 MiB" in read.notes[0].text


def test_a_long_line_within_the_limit_is_read(tmp_path: Path) -> None:
    assert read_requests(sample(tmp_path, {"prompt": "x" * 300_000, "n": 2})).count("n > 1") == 1


def test_gzip_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "sample.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"n": 2}\n'))
    assert read_requests(path).count("n > 1") == 1


@pytest.mark.parametrize("content", ["", "\n\n", "x\n", "[1, 2]\n", "{" * 3_000])
def test_a_file_without_requests(tmp_path: Path, content: str) -> None:
    path = tmp_path / "sample.jsonl"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError):
        read_requests(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(AccessError):
        read_requests(tmp_path / "missing.jsonl")
    with pytest.raises(AccessError):
        read_requests(tmp_path)
    with pytest.raises(InputError):
        read_requests("http://localhost/sample.jsonl")


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 5, "0 of 5 requests (0 %)"),
        (1, 2_000, "1 of 2,000 requests (under 1 %)"),
        (5, 5, "5 of 5 requests (100 %)"),
    ],
)
def test_shares(part: int, whole: int, text: str) -> None:
    assert share(part, whole) == text
