"""SGLang: flags of `sglang.launch_server` and the rules between them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specmath.compatibility.arguments import Arguments
from specmath.compatibility.case import CHAINED, Case, Settings
from specmath.compatibility.findings import Effect, Finding, Span, dotted, within

_METHODS: Final = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "STANDALONE": "draft-model",
    "NGRAM": "ngram",
    "DFLASH": "dflash",
    "DSPARK": "dspark",
    "UNO": "uno",
}
_CHAIN: Final = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
_SOURCE: Final = "srt/arg_groups/speculative_hook.py"
_RUNNING: Final = 48


def settings_of(arguments: Arguments) -> Settings:
    """What the flags of the server set."""
    algorithm = (arguments.text("speculative-algorithm", "speculative-algo") or "").upper()
    draft = arguments.text("speculative-draft-model-path", "speculative-draft-model")
    return Settings(
        method=_METHODS.get(algorithm),
        k=_draft_tokens(arguments, algorithm),
        tp=arguments.count("tp-size", "tp", "tensor-parallel-size"),
        dp=arguments.count("dp-size", "dp", "data-parallel-size"),
        pp=arguments.count("pp-size", "pp", "pipeline-parallel-size"),
        max_num_seqs=arguments.count("max-running-requests"),
        context=arguments.count("context-length"),
        capture=arguments.count("cuda-graph-max-bs"),
        lora=arguments.switch("enable-lora") or (True if arguments.has("lora-paths") else None),
        eager=arguments.switch("disable-cuda-graph"),
        prefix_caching=False if arguments.switch("disable-radix-cache") else None,
        mixed_chunk=arguments.switch("enable-mixed-chunk"),
        adaptive=arguments.switch("speculative-adaptive"),
        target_name=arguments.text("model-path", "model"),
        draft_name=draft,
    )


def _draft_tokens(arguments: Arguments, algorithm: str) -> int | None:
    """k: the steps of a chain, or a block's tokens without the root."""
    steps = arguments.count("speculative-num-steps")
    tokens = arguments.count("speculative-num-draft-tokens")
    if algorithm == "DSPARK" and (gamma := arguments.count("speculative-dspark-block-size")) is not None:
        return gamma
    if algorithm == "DFLASH":
        tokens = arguments.count("speculative-dflash-block-size") or tokens
    elif steps is not None:
        return steps
    return None if tokens is None else max(tokens - 1, 0)


def _found(
    effect: Effect, code: str, subject: str, text: str, remedy: str, evidence: str = _SOURCE
) -> Finding:
    return Finding(effect=effect, code=code, subject=subject, text=text, evidence=evidence, remedy=remedy)


def sglang_findings(case: Case) -> Iterator[Finding]:
    """What the server makes of its flags."""
    if case.arguments is not None:
        yield from _algorithm(case, case.arguments)
        yield from _chain(case, case.arguments)
    yield from _parallel(case)
    yield from _refusals(case)
    yield from _adaptive(case)
    yield from _concurrency(case)


def _algorithm(case: Case, arguments: Arguments) -> Iterator[Finding]:
    named = arguments.text("speculative-algorithm", "speculative-algo")
    speculative = [flag for flag in arguments.flags if flag.startswith("speculative-")]
    if named is None:
        if speculative:
            yield _found(
                "breaks",
                "algorithm-missing",
                "--speculative-algorithm",
                f"is missing: --{speculative[0]} alone switches nothing on",
                "name EAGLE3, NEXTN, STANDALONE, NGRAM, …",
            )
        return
    if named.upper() not in _METHODS:
        yield _found(
            "breaks",
            "algorithm-unknown",
            "--speculative-algorithm",
            f"{named[:40]!r} is none that was read",
            f"choose one of {', '.join(_METHODS)}",
            "srt/arg_groups/fields/spec.py",
        )
        return
    needs_draft = named.upper() in ("EAGLE", "EAGLE3", "STANDALONE", "DFLASH")
    if needs_draft and not arguments.has("speculative-draft-model-path", "speculative-draft-model"):
        remedy = "name the draft; a model with an MTP module of its own runs as NEXTN without one"
        yield _found(
            "bites" if named.upper() == "EAGLE" else "breaks",
            "draft-missing",
            "--speculative-draft-model-path",
            f"is missing for {named.upper()}",
            remedy,
        )


def _chain(case: Case, arguments: Arguments) -> Iterator[Finding]:
    given = [flag for flag in _CHAIN if arguments.has(flag)]
    if case.method in (*CHAINED, "draft-model") and 0 < len(given) < len(_CHAIN):
        missing = ", ".join(f"--{flag}" for flag in _CHAIN if flag not in given)
        yield _found(
            "breaks",
            "chain-incomplete",
            f"--{given[0]}",
            f"steps, topk and draft tokens go together; missing: {missing}",
            "give all three (k, 1, k + 1), or none",
        )
    steps, topk, tokens = (arguments.count(flag) for flag in _CHAIN)
    if topk == 1 and steps is not None and tokens is not None and tokens != steps + 1:
        yield _found(
            "bites",
            "chain-tokens",
            "--speculative-num-draft-tokens",
            f"{tokens} becomes {steps + 1}: with topk 1 draft tokens are steps + 1, the root included",
            f"set it to {steps + 1}",
        )
    if topk is not None and topk > 1:
        yield _found(
            "bites",
            "tree",
            "--speculative-eagle-topk",
            f"topk {topk} drafts a tree: the counted rate is over its nodes, at most "
            f"{steps or 'num_steps'} are accepted, and "
            "the overlap scheduler was off for it for long",
            "compare topk 1",
            "sglang #27582",
        )


def _parallel(case: Case) -> Iterator[Finding]:
    stages = case.settings.pp or 1
    if stages > 1:
        refused = _found(
            "breaks",
            "pipeline-parallel",
            "--pp-size",
            f"{stages} stages: pipeline parallel is refused with speculation",
            "use tensor parallel",
            "srt/server_args.py",
        )
        yield from within(Span((0, 4, 6), (0, 5, 21)), case.version, refused)
        open_yet = _found(
            "breaks" if case.method in ("dflash", "dspark") else "bites",
            "pipeline-parallel",
            "--pp-size",
            f"{stages} stages: DFLASH and DSPARK are refused, and there is no overlap with speculation",
            "use tensor parallel",
            f"{_SOURCE}; sglang #31139, #23162",
        )
        yield from within(Span((0, 5, 21)), case.version, open_yet)
    if (case.settings.dp or 1) > 1 and case.method == "dspark":
        yield _found(
            "breaks",
            "dspark-data-parallel",
            "--dp-size",
            "DSPARK was refused with attention data parallel",
            "use tensor parallel, or try a newer release",
            "sglang #33083 (July 2026)",
        )


def _refusals(case: Case) -> Iterator[Finding]:
    settings, method = case.settings, case.method
    if settings.lora and method not in ("ngram", None):
        narrow = _found(
            "breaks",
            "lora",
            "--enable-lora",
            f"LoRA goes with NGRAM alone, not with {method}",
            "serve adapters without it",
            "srt/server_args.py",
        )
        yield from within(Span((0, 5, 6), (0, 5, 19)), case.version, narrow)
        if method not in ("eagle", "eagle3", "mtp", "dflash", "dspark"):
            wide = _found(
                "breaks",
                "lora",
                "--enable-lora",
                f"LoRA goes with NGRAM, EAGLE, NEXTN, EAGLE3, DFLASH and DSPARK, not {method}",
                "serve adapters without it",
                "srt/arg_groups/lora_hook.py",
            )
            yield from within(Span((0, 5, 19)), case.version, wide)
        else:
            yield from within(Span((0, 5, 19)), case.version, _unadapted())
    if settings.mixed_chunk:
        mixed = _found(
            "breaks",
            "mixed-chunk",
            "--enable-mixed-chunk",
            "is refused with speculation; newer releases switch it off",
            "leave it out",
            "srt/server_args.py",
        )
        yield from within(Span((0, 5, 3), (0, 5, 19)), case.version, mixed)


def _unadapted() -> Finding:
    return _found(
        "bites",
        "lora-draft",
        "--enable-lora",
        "adapters apply to the target only: the draft runs unadapted and is accepted less",
        "measure the acceptance of each adapter",
        "srt/arg_groups/lora_hook.py",
    )


def _adaptive(case: Case) -> Iterator[Finding]:
    settings, version = case.settings, case.version
    if not settings.adaptive:
        return
    subject = "--speculative-adaptive"
    if version is not None and not version.at_least(0, 5, 11):
        yield _found(
            "breaks",
            "flag-too-new",
            subject,
            f"came with {dotted((0, 5, 11))}",
            "upgrade, or fix the steps",
            "PR 21599",
        )
    if case.method not in ("eagle", "eagle3", "mtp", None):
        yield _found(
            "breaks",
            "adaptive-method",
            subject,
            f"is switched off for {case.method}: it takes EAGLE and EAGLE3 with topk 1",
            "fix the steps",
            "srt/speculative/adaptive_spec_params.py",
        )
    if (settings.dp or 1) > 1:
        yield _found(
            "breaks",
            "adaptive-data-parallel",
            subject,
            "is switched off with attention data parallel",
            "fix the steps",
            "srt/speculative/adaptive_spec_params.py",
        )
    zero = _found(
        "bites",
        "zero-steps",
        subject,
        "steps of 0 are refused: a tier cannot switch drafting off",
        "upgrade to 0.5.14",
        "srt/speculative/adaptive_spec_params.py",
    )
    yield from within(Span((0, 5, 11), (0, 5, 14)), version, zero)
    yield _found(
        "bites",
        "padded-tiers",
        subject,
        "the batch is padded to the next graph size before its tier is looked up",
        "let tiers end where graphs do",
        "srt/speculative/adaptive_spec_params.py",
    )


def _concurrency(case: Case) -> Iterator[Finding]:
    settings, k = case.settings, case.settings.k
    ranks = settings.dp or 1
    if settings.max_num_seqs is None:
        yield _found(
            "bites",
            "max-running-requests",
            "--max-running-requests",
            f"speculation sets it to {_RUNNING} unless it is given"
            + (f", {_RUNNING // ranks} for each of {ranks} data-parallel ranks" if ranks > 1 else "")
            + "; plain default seen: 4,096",
            "set it, and read the value in force beside max_total_num_tokens in the log",
            "sglang #34290, #3986",
        )
    if case.hybrid:
        held = "1 + draft tokens" if k is None else f"{k + 2}"
        yield _found(
            "bites",
            "state-slots",
            "recurrent state",
            f"every running request holds {held} state slots, and the cap is silent: with 10 slots 2 of 8 "
            "streams ran",
            "raise --max-mamba-cache-size: 40 slots gave up to 75 % more throughput",
            "sglang #36889",
        )
    if (
        settings.capture is not None
        and settings.max_num_seqs is not None
        and settings.capture < settings.max_num_seqs
    ):
        yield _found(
            "bites",
            "capture-sizes",
            "--cuda-graph-max-bs",
            f"graphs end at {settings.capture} requests, and {settings.max_num_seqs} may run: above, steps "
            "run eager",
            f"set it to {settings.max_num_seqs}: capture up to the real batch gave 6.5 % at 8 streams",
            "dgx-spark-qwen38",
        )
    if settings.eager:
        yield _found(
            "bites",
            "eager",
            "--disable-cuda-graph",
            "draft passes and verification run without graphs, k + 1 times a step",
            "leave it out",
            "a fixed cost in every pass",
        )
