"""TensorRT-LLM, llama.cpp, LMDeploy, TGI, mlx-lm: their flags and the few rules that are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from specmath.compatibility.arguments import Arguments
from specmath.compatibility.case import Case, Settings
from specmath.compatibility.findings import Effect, Finding, Span, within
from specmath.compatibility.plain_text import plain_document
from specmath.compatibility.vllm_config import whole

_TRT_METHODS: Final = {
    "mtp": "mtp",
    "eagle3": "eagle3",
    "eagle": "eagle3",
    "ngram": "ngram",
    "draft_target": "draft-model",
    "drafttarget": "draft-model",
    "pard": "pard",
    "dflash": "dflash",
    "sa": "suffix",
    "auto": "auto",
}
_LLAMA_TYPES: Final = {
    "draft-simple": "draft-model",
    "draft-eagle3": "eagle3",
    "draft-mtp": "mtp",
    "draft-dflash": "dflash",
    "draft-dspark": "dspark",
    "ngram-simple": "ngram",
    "ngram-map-k": "ngram",
    "ngram-map-k4v": "ngram",
    "ngram-mod": "ngram",
    "ngram-cache": "ngram",
}
_LLAMA_OLD: Final = {
    "draft-max": "--spec-draft-n-max",
    "draft": "--spec-draft-n-max",
    "draft-n": "--spec-draft-n-max",
    "draft-min": "--spec-draft-n-min",
    "draft-p-min": "--spec-draft-p-min",
    "spec-ngram-size-n": "--spec-ngram-simple-size-n",
}
_LLAMA_NEW: Final = ("spec-type", "spec-draft-n-max", "spec-draft-n-min", "spec-draft-p-min", "spec-default")
_MLX: Final = "mlx-lm's generate and server"


def _found(effect: Effect, code: str, subject: str, text: str, remedy: str, evidence: str) -> Finding:
    return Finding(effect=effect, code=code, subject=subject, text=text, evidence=evidence, remedy=remedy)


def tensorrt_settings(arguments: Arguments) -> Settings:
    """What the YAML or the flags of `trtllm-serve` set."""
    config = _speculative(arguments)
    kind = str(config.get("decoding_type", "")).lower()
    model = config.get("speculative_model", config.get("speculative_model_dir"))
    return Settings(
        method=_TRT_METHODS.get(kind),
        k=whole(config.get("max_draft_len")),
        tp=arguments.count("tensor-parallel-size", "tp-size"),
        pp=arguments.count("pipeline-parallel-size", "pp-size"),
        max_num_seqs=arguments.count("max-batch-size"),
        context=arguments.count("max-seq-len"),
        token_budget=arguments.count("max-num-tokens"),
        draft_name=model if isinstance(model, str) else None,
    )


def _speculative(arguments: Arguments) -> dict[str, Any]:
    text = arguments.text("speculative-config")
    document = plain_document(text, "speculative_config") if text else {}
    return document if isinstance(document, dict) else {}


def tensorrt_findings(case: Case) -> Iterator[Finding]:
    """The YAML of TensorRT-LLM."""
    config = {} if case.arguments is None else _speculative(case.arguments)
    kind = config.get("decoding_type")
    if config and (not isinstance(kind, str) or kind.lower() not in (*_TRT_METHODS, "medusa", "lookahead")):
        yield _found(
            "breaks",
            "decoding-type",
            "decoding_type",
            f"{str(kind)[:40]!r} is none that was read",
            "choose MTP, Eagle3, NGram, Draft_Target, PARD, DFlash, SA or AUTO",
            "llmapi/llm_args.py",
        )
    if "num_speculative_tokens" in config:
        yield _found(
            "breaks",
            "foreign-key",
            "num_speculative_tokens",
            "is vLLM's name of it",
            "write max_draft_len",
            "llmapi/llm_args.py",
        )
    schedule = config.get("draft_len_schedule")
    if isinstance(schedule, dict) and schedule:
        yield from _schedule(case, config, schedule)


def _schedule(case: Case, config: dict[str, Any], schedule: dict[Any, Any]) -> Iterator[Finding]:
    subject = "draft_len_schedule"
    longest, keys = whole(config.get("max_draft_len")), [whole(key) for key in schedule]
    lengths = [whole(length) for length in schedule.values()]
    if None in keys or None in lengths:
        yield _found(
            "breaks",
            "schedule-form",
            subject,
            "is batch: length in whole numbers",
            "write {16: 5, 64: 3}",
            "PR 10860",
        )
        return
    order = sorted(zip((key or 0 for key in keys), (length or 0 for length in lengths), strict=True))
    yield from _first_tier(case, order[0], longest)
    if order[0][0] == 1:
        turned = _found(
            "bites",
            "schedule-meaning",
            subject,
            "since 2026-03-13 the key is the LARGEST batch of a tier and above the last k is 0: a first "
            "key of 1 drafts that "
            "long at batch 1 alone",
            "write the upper ends of the tiers",
            "PR 10860; before it the key was the smallest batch",
        )
        yield from within(Span((1, 3)), case.version, turned)
    if config.get("max_concurrency") is not None:
        both = _found(
            "breaks",
            "schedule-and-concurrency",
            subject,
            "excludes max_concurrency",
            "give one of them",
            "PR 10860",
        )
        yield from within(Span((1, 3)), case.version, both)
    if any(length == 0 for length in lengths) or case.version is None or case.version.at_least(1, 3):
        yield _found(
            "bites",
            "stale-drafter",
            subject,
            "tiers of 0 let the drafter's state go stale: acceptance collapses afterwards",
            "keep k at 1 or more",
            "PR 16888 (open)",
        )


def _first_tier(case: Case, tier: tuple[int, int], longest: int | None) -> Iterator[Finding]:
    """What the first tier must be: key 1 where keys are lower ends, max_draft_len in both readings."""
    lower = _found(
        "breaks",
        "schedule-first",
        "draft_len_schedule",
        f"the key is the smallest batch of a tier: 1 is required and maps to max_draft_len, here "
        f"{tier[0]}: {tier[1]}",
        "begin with 1",
        "PR 8194",
    )
    upper = _found(
        "breaks",
        "schedule-first",
        "draft_len_schedule",
        f"the smallest key must map to max_draft_len ({longest}), here {tier[1]}",
        "repeat max_draft_len there",
        "PR 10860",
    )
    if tier[0] != 1 or (longest is not None and tier[1] != longest):
        yield from within(Span((), (1, 3)), case.version, lower)
    if longest is not None and tier[1] != longest:
        yield from within(Span((1, 3)), case.version, upper)


def llama_cpp_settings(arguments: Arguments) -> Settings:
    """What the flags of `llama-server` set."""
    kinds = [
        _LLAMA_TYPES[one] for one in (arguments.text("spec-type") or "").split(",") if one in _LLAMA_TYPES
    ]
    draft = arguments.text("md", "model-draft", "spec-draft-model", "hfd", "hf-repo-draft")
    return Settings(
        method=kinds[0] if kinds else ("draft-model" if draft else None),
        k=arguments.count("spec-draft-n-max", "draft-max", "draft", "draft-n"),
        max_num_seqs=arguments.count("np", "parallel"),
        context=arguments.count("c", "ctx-size"),
        target_name=arguments.text("m", "model", "hf", "hf-repo"),
        draft_name=draft,
    )


def llama_cpp_findings(case: Case) -> Iterator[Finding]:
    """Flags that were renamed between 2025 and 2026, and what drafting costs there."""
    arguments = case.arguments
    if arguments is not None:
        for flag in (one for one in _LLAMA_OLD if arguments.has(one)):
            gone = _found(
                "breaks",
                "flag-renamed",
                f"--{flag}",
                "was removed in 2026: an error that names the new flag",
                f"write {_LLAMA_OLD[flag]}",
                "common/arg.cpp",
            )
            yield from within(Span((2026,)), case.version, gone)
        for flag in (one for one in _LLAMA_NEW if arguments.has(one)):
            young = _found(
                "breaks",
                "flag-too-new",
                f"--{flag}",
                "is a flag of 2026",
                "use --draft-max and its kin, or upgrade",
                "common/arg.cpp",
            )
            if case.version is not None:
                yield from within(Span((), (2026,)), case.version, young)
        yield from _llama_types(arguments)
    if case.settings.k is not None and (case.settings.max_num_seqs or 1) * (case.settings.k + 1) > 8:
        yield _found(
            "bites",
            "row-switch",
            "k",
            f"slots·(k + 1) = {(case.settings.max_num_seqs or 1) * (case.settings.k + 1)} rows: above 8 "
            "the kernel changes and a verification gets dearer at once",
            "measure the pass by width with llama-bench -p 1,2,4,8,16",
            "matrix-vector against matrix kernels",
        )
    if case.method == "mtp":
        yield _found(
            "bites",
            "draft-memory",
            "memory",
            "MTP buffers take some 1.4 GB at 256k of context, and its prefill copies hidden "
            "states to the host",
            "lower --ctx-size, or quantise further",
            "llama.cpp #22673",
        )
    if (case.settings.max_num_seqs or 1) > 1:
        yield _found(
            "bites",
            "no-tiers",
            "concurrency",
            "no schedule by batch: k stays the same however many slots are busy, and "
            "acceptance was seen to fall with concurrency",
            "one server for each load, or a smaller k",
            "llama.cpp #27117",
        )


def _llama_types(arguments: Arguments) -> Iterator[Finding]:
    for named in (arguments.text("spec-type") or "").split(","):
        if named and named not in (*_LLAMA_TYPES, "none"):
            yield _found(
                "breaks",
                "type-unknown",
                "--spec-type",
                f"{named[:40]!r} is none that was read",
                f"choose one of {', '.join(_LLAMA_TYPES)}",
                "common/arg.cpp",
            )


def other_settings(arguments: Arguments) -> Settings:
    """What the flags of LMDeploy, TGI or mlx-lm set."""
    algorithm = (arguments.text("speculative-algorithm") or "").lower()
    draft = arguments.text("draft-model", "speculative-draft-model")
    method = "mtp" if algorithm.endswith("mtp") else algorithm or ("draft-model" if draft else None)
    return Settings(
        method=method,
        k=arguments.count("num-draft-tokens", "speculative-num-draft-tokens", "speculate"),
        tp=arguments.count("tp", "num-shard"),
        max_num_seqs=arguments.count("max-batch-size", "max-concurrent-requests"),
        context=arguments.count("session-len", "max-total-tokens"),
        target_name=arguments.text("model", "model-id"),
        draft_name=draft,
    )


def other_findings(case: Case) -> Iterator[Finding]:
    """transformers and mlx-lm draft for one sequence; the others have no control by batch."""
    if case.engine in ("transformers", "mlx") and (case.settings.max_num_seqs or 1) > 1:
        name = "assisted generation" if case.engine == "transformers" else _MLX
        yield _found(
            "breaks",
            "one-sequence",
            "batch",
            f"{name} drafts for one sequence at a time",
            "serve one request at a time",
            "batch size 1",
        )
    yield _found(
        "bites",
        "no-tiers",
        "concurrency",
        "no k by batch: drafting stays on where the load makes it a loss",
        "plan one k with `specmath schedule`, for the busiest batch",
        "engine has no such control",
    )
