"""Flags of `vllm serve`: settings out of them, old flags with what replaces them, flags that it has not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from specmath.compatibility.arguments import Arguments
from specmath.compatibility.case import Case, Settings
from specmath.compatibility.findings import Finding, Span, dotted, within
from specmath.compatibility.plain_text import plain_document, table_of, typed_text
from specmath.compatibility.samples import compact
from specmath.compatibility.vllm_config import plain_config, whole
from specmath.compatibility.vllm_keys import NEW_FLAGS, OLD_FLAGS
from specmath.compatibility.vllm_relations import our_method, tiers_of
from specmath.errors import DataError

_CONFIG_FLAGS: Final = ("speculative-config", "sc")
_COMPILATION: Final = ("compilation-config", "cc", "O")
_NEW_SINCE: Final = (0, 22)
_OLD_GONE: Final = (0, 9)
_SOURCE: Final = "vllm/engine/arg_utils.py"


def settings_of(arguments: Arguments) -> Settings:
    """What the flags of `vllm serve` set."""
    config = config_of(arguments)
    settings = Settings(
        tp=arguments.count("tensor-parallel-size", "tp"),
        dp=arguments.count("data-parallel-size", "dp"),
        pp=arguments.count("pipeline-parallel-size", "pp"),
        max_num_seqs=arguments.count("max-num-seqs"),
        context=arguments.count("max-model-len"),
        token_budget=arguments.count("max-num-batched-tokens"),
        capture=_capture(arguments),
        lora=arguments.switch("enable-lora"),
        eager=arguments.switch("enforce-eager"),
        async_scheduling=arguments.switch("async-scheduling", "no-async-scheduling"),
        v2_runner=_v2_runner(arguments),
        prefix_caching=arguments.switch("enable-prefix-caching", "no-enable-prefix-caching"),
        target_name=arguments.text("model") or _served(arguments),
    )
    return config_settings(config).over(settings) if config is not None else settings


def config_settings(config: dict[str, Any]) -> Settings:
    """What a speculative config sets."""
    plain = plain_config(config)
    model = plain.get("model")
    return Settings(
        config=config,
        method=our_method(plain),
        k=whole(plain.get("num_speculative_tokens")),
        draft_tp=whole(plain.get("draft_tensor_parallel_size")),
        tiers=tiers_of(plain),
        adaptive=plain.get("enable_adaptive_verification") is True,
        draft_name=model if isinstance(model, str) else None,
    )


def config_of(arguments: Arguments) -> dict[str, Any] | None:
    """The speculative config that the flags give or amount to; None where they do not speculate."""
    text = arguments.text(*_CONFIG_FLAGS)
    config = (
        {} if not text else table_of(plain_document(text, "--speculative-config"), "--speculative-config")
    )
    config = {**config, **arguments.under(*_CONFIG_FLAGS)}
    for flags in (NEW_FLAGS, OLD_FLAGS):
        for flag, key in flags.items():
            if arguments.has(flag):
                config.setdefault(key, _flag_value(arguments.text(flag)))
    if not config and text is None:
        return None
    if config.get("model") == "[ngram]":
        config = {"method": "ngram"} | {key: value for key, value in config.items() if key != "model"}
    return config


def _flag_value(text: str | None) -> Any:
    return typed_text(text) if text else True


def flag_findings(case: Case) -> Iterator[Finding]:
    """What becomes of the flags in this release."""
    arguments = case.arguments
    if arguments is None:
        return
    yield from _old_flags(case, arguments)
    new = [flag for flag in NEW_FLAGS if arguments.has(flag)]
    if new and case.version is not None and not case.version.at_least(*_NEW_SINCE):
        yield Finding(
            effect="breaks",
            code="flag-too-new",
            subject=f"--{new[0]}",
            text=f"came with {dotted(_NEW_SINCE)}",
            evidence=_SOURCE,
            remedy="use --speculative-config",
            versions=Span((), _NEW_SINCE).text,
        )
    twice = [flag for flag in new if NEW_FLAGS[flag] in _typed_config(arguments)]
    if twice:
        yield Finding(
            effect="breaks",
            code="flag-twice",
            subject=f"--{twice[0]}",
            text=f"excludes {NEW_FLAGS[twice[0]]} in --speculative-config",
            evidence=_SOURCE,
            remedy="give one of them",
            versions=Span(_NEW_SINCE).text,
        )
    yield from _other_flags(case, arguments)


def _old_flags(case: Case, arguments: Arguments) -> Iterator[Finding]:
    old = [flag for flag in OLD_FLAGS if arguments.has(flag)]
    if not old:
        return
    given = config_of(arguments) or {}
    drop = (
        "acceptance_method",
        "posterior_threshold",
        "posterior_alpha",
        "disable_mqa_scorer",
        "disable_logprobs",
    )
    kept = {key: value for key, value in given.items() if key not in (*drop, "disable_by_batch_size")}
    if "model" in kept and "method" not in kept:
        kept = {"method": "draft_model", **kept}
    gone = Finding(
        effect="breaks",
        code="flags-removed",
        subject=f"--{old[0]}",
        text=f"{', '.join(f'--{flag}' for flag in old)}: gone from {dotted(_OLD_GONE)} on",
        evidence=_SOURCE,
        remedy=f"use --speculative-config '{compact(kept)}'; name eagle, eagle3, … where the model is such "
        "a head",
    )
    yield from within(Span(_OLD_GONE), case.version, gone)


def _typed_config(arguments: Arguments) -> dict[str, Any]:
    text = arguments.text(*_CONFIG_FLAGS)
    try:
        given = table_of(plain_document(text, "--speculative-config"), "") if text else {}
    except DataError:
        given = {}
    return {**given, **arguments.under(*_CONFIG_FLAGS)}


def _other_flags(case: Case, arguments: Arguments) -> Iterator[Finding]:
    """Flags that do not go with speculation."""
    if arguments.has("logits-processors"):
        refused = Finding(
            effect="breaks",
            code="logits-processors",
            subject="--logits-processors",
            text="custom logits processors are refused at start-up once speculation is on",
            evidence="vllm/v1/sample/logits_processor",
            remedy="serve those requests without speculation",
        )
        yield from within(Span((0, 11)), case.version, refused)
    steps = arguments.count("num-scheduler-steps")
    if steps is not None and steps > 1:
        multi = Finding(
            effect="breaks",
            code="multi-step",
            subject="--num-scheduler-steps",
            text=f"{steps} scheduler steps are refused with speculation",
            evidence=_SOURCE,
            remedy="leave it out",
        )
        yield from within(Span((), (0, 10, 1)), case.version, multi)
    shared = arguments.count("decode-context-parallel-size", "dcp")
    if shared is not None and shared > 1:
        yield Finding(
            effect="bites",
            code="context-parallel",
            subject="--decode-context-parallel-size",
            text=f"the drafter's cache is not split over the {shared} ranks: 21 % fewer cache tokens at 1 "
            "rank, 44 % at 8",
            evidence="Kimi-K2.6 with EAGLE-3, 8 cards",
            remedy=f"compare `{'CPU' if case.settings.cpu else 'GPU'} KV cache size` with and without "
            "speculation",
            versions="seen on a 0.20 fork",
        )
    if arguments.has("kv-transfer-config"):
        yield Finding(
            effect="bites",
            code="disaggregated",
            subject="--kv-transfer-config",
            text="drafts left over from the last prefill chunk lower the acceptance on the decode worker",
            evidence="vllm #55055, #46694",
            remedy="compare its acceptance with that of one server on the same prompts",
            versions="open",
        )


def _capture(arguments: Arguments) -> int | None:
    """Tokens of the largest graph, where it is set."""
    sizes = [
        number for word in arguments.flags.get("cuda-graph-sizes", ()) if (number := whole(word)) is not None
    ]
    single = arguments.count("max-cudagraph-capture-size")
    table = dict(arguments.under(*_COMPILATION))
    text = arguments.text(*_COMPILATION)
    if text and text.startswith("{"):
        table.update(table_of(plain_document(text, "--compilation-config"), "--compilation-config"))
    listed = table.get("cudagraph_capture_sizes")
    if isinstance(listed, list):
        sizes += [number for one in listed[:4_096] if (number := whole(one)) is not None]
    largest = [single, whole(table.get("max_cudagraph_capture_size")), whole(table.get("max_capture_size"))]
    return max([one for one in (*largest, *sizes) if one is not None], default=None)


def _v2_runner(arguments: Arguments) -> bool | None:
    value = arguments.environment.get("VLLM_USE_V2_MODEL_RUNNER")
    return None if value is None else value not in ("0", "", "false", "False")


def _served(arguments: Arguments) -> str | None:
    """The model after `vllm serve`."""
    words = list(arguments.words)
    return words[words.index("serve") + 1] if "serve" in words[:-1] else None
