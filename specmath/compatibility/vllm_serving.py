"""vLLM's other settings beside speculation: parallelism, LoRA, adaptive verification, scheduling, graphs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specmath.compatibility.case import CHAINED, LOOKUPS, Case
from specmath.compatibility.findings import Effect, Finding, Span, within

_CONFIG: Final = "vllm/config/vllm.py"
_ASYNC_METHODS: Final = ("eagle", "eagle3", "p-eagle", "mtp", "dflash", "dspark", "draft-model", "pard")
_V1_TIERS: Final = ("ngram", "eagle", "eagle3", "p-eagle", "mtp", "draft-model", "pard", "dflash")
_TIERS: Final = "num_speculative_tokens_per_batch_size"
_ADAPTIVE: Final = "enable_adaptive_verification"
_WHY_V1: Final = "leave VLLM_USE_V2_MODEL_RUNNER=0 out, or see the log's reason for the V1 runner"


def _found(
    effect: Effect, code: str, subject: str, text: str, remedy: str, evidence: str = _CONFIG
) -> Finding:
    return Finding(effect=effect, code=code, subject=subject, text=text, evidence=evidence, remedy=remedy)


def parallel_findings(case: Case) -> Iterator[Finding]:
    """Degrees of parallelism."""
    settings, version = case.settings, case.version
    if settings.tiers and (settings.dp or 1) > 1:
        yield from within(
            Span((0, 24)),
            version,
            _found(
                "breaks",
                "tiers-data-parallel",
                _TIERS,
                f"is switched off with data parallel {settings.dp}, a warning at start-up from 0.26 on: k "
                "stays "
                f"{settings.k or 'fixed'} at every batch",
                "run replicas of data parallel 1 behind a router",
                f"{_CONFIG}; ranks could choose different k",
            ),
        )
    if (settings.pp or 1) > 1:
        yield _found(
            "breaks",
            "pipeline-parallel",
            "--pipeline-parallel-size",
            f"{settings.pp} stages: without async scheduling, which the V1 runner switches off under "
            "pipeline "
            "parallel, speculation gave wrong output",
            "use tensor parallel, or compare greedy output with and without speculation first",
            "vllm #52071 (0.26.1 dev, 2 to 8 stages); PR 32359",
        )
    tp, draft = settings.tp, settings.draft_tp
    if draft is not None and tp is not None and draft not in (1, tp):
        yield _found(
            "breaks",
            "draft-degree",
            "draft_tensor_parallel_size",
            f"{draft} is neither 1 nor the target's {tp}",
            f"give 1 or {tp}; left out it is {tp}",
            "vllm/config/speculative.py",
        )


def adaptive_findings(case: Case) -> Iterator[Finding]:
    """What adaptive verification and tiers ask of the rest."""
    settings, version = case.settings, case.version
    if settings.adaptive:
        yield from _adaptive(case)
    if not settings.tiers:
        return
    if settings.v2_runner:
        yield _found(
            "bites",
            "tiers-v2-runner",
            _TIERS,
            "the V2 runner drafted on with the largest k whatever the tier said; fixed in part",
            "measure the tiers beside one k",
            "vllm #51510, #57053",
        )
    else:
        if not settings.cpu:
            yield _found(
                "bites",
                "graphs-downgraded",
                _TIERS,
                "the V1 runner gives up full CUDA graphs for piecewise ones: 59.6 to 50.0 tok/s for one "
                "stream",
                "measure the tiers beside one k; the V2 runner keeps the graphs",
                "vllm #49548, #48494",
            )
        if case.method is not None and case.method not in _V1_TIERS:
            off = _found(
                "breaks",
                "tiers-method",
                _TIERS,
                f"the V1 runner switches tiers off for {case.method}",
                "use the V2 runner, or one k",
            )
            yield from within(Span((0, 33)), version, off)
    if any(k == 0 for _, _, k in settings.tiers):
        yield _found(
            "bites",
            "zero-tier",
            _TIERS,
            f"a tier of 0 still holds the look-ahead of k = "
            f"{settings.k or max(k for _, _, k in settings.tiers)} for each "
            "request, and the prefills of a step count: one beside a few decodes can switch drafting off",
            "leave a margin before that tier; where the load stays high, serve without drafting",
            "vllm #49548",
        )


def _adaptive(case: Case) -> Iterator[Finding]:
    settings, version = case.settings, case.version
    since = Span((0, 28))
    if settings.lora:
        yield from within(
            since,
            version,
            _found("breaks", "adaptive-lora", _ADAPTIVE, "is refused with LoRA", "leave one of them out"),
        )
    if (settings.pp or 1) > 1:
        text = "is refused with pipeline parallel"
        yield from within(
            since, version, _found("breaks", "adaptive-pipeline", _ADAPTIVE, text, "use --pp 1, or tiers")
        )
    if settings.cpu:
        text = "needs full CUDA graphs, and a CPU has none"
        yield from within(
            since, version, _found("breaks", "adaptive-cpu", _ADAPTIVE, text, "leave it out; choose one k")
        )
        return
    if settings.eager:
        text = "needs full CUDA graphs, and --enforce-eager takes them away"
        yield from within(
            since, version, _found("breaks", "adaptive-eager", _ADAPTIVE, text, "leave --enforce-eager out")
        )
    if settings.v2_runner is False:
        text = "runs on the V2 runner alone, and the V1 runner is set or logged"
        yield from within(since, version, _found("breaks", "adaptive-runner", _ADAPTIVE, text, _WHY_V1))
    text = (
        "needs varlen decode graphs in every attention back end of the target; elsewhere start-up is "
        "refused. "
        "On ROCm it lost 5 to 8 % up to 32 requests and won 6 to 70 % from 64 on"
    )
    needs = _found(
        "bites",
        "adaptive-graphs",
        _ADAPTIVE,
        text,
        "start the server once, and measure it beside k fixed",
        "vllm #47808, #52783, #54011, #52362",
    )
    yield from within(since, version, needs)


def lora_findings(case: Case) -> Iterator[Finding]:
    """LoRA beside speculation."""
    settings = case.settings
    if not settings.lora:
        return
    budget, seqs, width = settings.token_budget, settings.max_num_seqs, case.width
    if budget is not None and seqs is not None and width is not None and budget < seqs * width:
        short = _found(
            "breaks",
            "lora-budget",
            "--max-num-batched-tokens",
            f"with LoRA it must reach max_num_seqs·(k + 1) = {seqs * width:,}, and is {budget:,}",
            f"set --max-num-batched-tokens to {seqs * width:,} or more",
            "vllm/engine/arg_utils.py",
        )
        yield from within(Span((0, 12)), case.version, short)
    if case.method in LOOKUPS:
        old = _found(
            "breaks",
            "lora-lookup",
            "--enable-lora",
            "n-gram drafts met shape errors with LoRA",
            "try one adapter request before relying on it",
            "vllm #4872",
        )
        yield from within(Span((), (0, 10)), case.version, old)
    yield _found(
        "bites",
        "lora-draft",
        "--enable-lora",
        "the drafter was trained on the base model: an adapter that moves the output lowers the acceptance",
        "measure the acceptance of each adapter",
        "no figures found",
    )


def scheduling_findings(case: Case) -> Iterator[Finding]:
    """Async scheduling, the runner, eager mode."""
    settings, version, method = case.settings, case.version, case.method
    if settings.async_scheduling:
        early = _found(
            "breaks",
            "async-refused",
            "--async-scheduling",
            "is refused with speculation",
            "leave it out, or upgrade",
            "vllm/engine/arg_utils.py; vllm #19970",
        )
        yield from within(Span((0, 10), (0, 11, 1)), version, early)
    padded_off = (settings.config or {}).get("disable_padded_drafter_batch") is True
    if method is not None and (method not in _ASYNC_METHODS or padded_off) and not settings.v2_runner:
        why = "disable_padded_drafter_batch" if padded_off else f"{method} drafts"
        if settings.async_scheduling:
            text, effect = f"is refused with {why} on the V1 runner", "breaks"
        else:
            text, effect = (
                f"is switched off by {why} on the V1 runner: the host's work shows in every step",
                "bites",
            )
        found = Finding(
            effect="breaks" if effect == "breaks" else "bites",
            code="async-off",
            subject="async scheduling",
            text=text,
            evidence=f"{_CONFIG}; PR 24799, PR 31998",
            remedy="use an EAGLE or MTP head, or count the host's time in",
        )
        yield from within(Span((0, 14)), version, found)
    if settings.eager and settings.cpu:
        yield _found(
            "bites",
            "eager",
            "--enforce-eager",
            "draft passes and verification run without torch.compile, and there are k + 1 passes in a step",
            "leave it out, and compare the time per token",
            "vLLM's own warning under eager mode",
        )
    elif settings.eager:
        yield _found(
            "bites",
            "eager",
            "--enforce-eager",
            "draft passes and verification run without graphs: a fixed cost in every pass, and there are k "
            "+ 1 of them",
            "leave it out: GLM-OCR went from .56 to 1.53 of plain decoding with graphs",
            "vllm #37551",
        )
    if settings.v2_runner is False and method == "dspark":
        runner = _found(
            "breaks",
            "needs-v2-runner",
            "VLLM_USE_V2_MODEL_RUNNER",
            "dspark runs on the V2 runner alone, and the V1 runner is set or logged",
            _WHY_V1,
        )
        yield from within(Span((0, 29)), version, runner)
    if settings.v2_runner and method in ("suffix", "custom", "pard", "p-eagle"):
        runner = _found(
            "breaks",
            "needs-v1-runner",
            "VLLM_USE_V2_MODEL_RUNNER",
            f"the V2 runner has no {method} drafts",
            "leave the variable out",
        )
        yield from within(Span((0, 24)), version, runner)


def prefix_findings(case: Case) -> Iterator[Finding]:
    """The prefix-cache unit that a drafter drops."""
    settings = case.settings
    chained = case.method in (*CHAINED, "dflash", "dspark")
    dropped = (settings.config or {}).get("disable_eagle_block_drop") is not True
    if not chained or settings.prefix_caching is False or not dropped:
        return
    if case.method in ("dflash", "dspark") and case.version is not None and case.version.at_least(0, 33):
        return
    unit = (
        "1,072 to 2,144 tokens on a hybrid model such as this"
        if case.hybrid
        else "16 tokens, 1,072 to 2,144 on hybrid models"
    )
    yield _found(
        "bites",
        "prefix-unit",
        "prefix cache",
        f"the last matched unit is dropped ({unit}), so that prompts shorter than two units never hit: a "
        "hit rate "
        "of 97.5 fell to 87–92 % on a hybrid",
        "repeat a prompt and read vllm:prefix_cache_hits_total; lengthen shared prefixes beyond two units; "
        "from "
        "0.30 disable_eagle_block_drop tries it without",
        "vllm #53670, #54360, #38182",
    )
