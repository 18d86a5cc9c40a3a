"""vLLM: captured graphs, tokens of a step, and memory beside speculation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specmath.compatibility.case import HEADS, Case
from specmath.compatibility.findings import ALWAYS, Finding, Span, within

_LARGEST: Final = 512
_DECODE_SIZES_SINCE: Final = (0, 29)
"""From here on the sizes of full decode batches are captured whatever the ladder ends at."""
_BY_WIDTH_SINCE: Final = (0, 13)


def capture_findings(case: Case) -> Iterator[Finding]:
    """Steps wider than the largest graph run eager."""
    seqs, width, settings = case.settings.max_num_seqs, case.width, case.settings
    if seqs is None or width is None or settings.eager or settings.cpu:
        return
    step = seqs * width
    if settings.capture is not None:
        if settings.capture < step:
            yield _short(step, f"--max-cudagraph-capture-size is {settings.capture:,}", ALWAYS)
        elif settings.capture > 8 and settings.capture % 8:
            yield _off_the_ladder(settings.capture)
        return
    wide = (
        Span((), _DECODE_SIZES_SINCE) if case.version is None else Span(_BY_WIDTH_SINCE, _DECODE_SIZES_SINCE)
    )
    defaults = [(wide, min(2 * step, _LARGEST))]
    if case.version is not None:
        defaults.append((Span((), _BY_WIDTH_SINCE), min(2 * seqs, _LARGEST)))
    for span, most in defaults:
        if most < step:
            yield from within(span, case.version, _short(step, f"the default ends at {most:,}", span))
    if width & (width - 1):
        uneven = Finding(
            effect="bites",
            code="capture-ladder",
            subject="capture sizes",
            text=f"k + 1 = {width} does not divide the ladder of sizes: about half of the batches fall "
            "from full to "
            "piecewise graphs",
            evidence="vllm #52000, #53407",
            remedy=f"choose k = {_next_power(width) - 1}, or list multiples of {width} as capture sizes",
        )
        yield from within(Span((), _DECODE_SIZES_SINCE), case.version, uneven)


def _short(step: int, why: str, span: Span) -> Finding:
    return Finding(
        effect="bites",
        code="capture-sizes",
        subject="capture sizes",
        text=f"a full decode step has max_num_seqs·(k + 1) = {step:,} tokens, and {why}: above it every "
        "step runs eager",
        evidence="vllm #50488; 25.3 against 133.3 tok/s in #54933",
        remedy=f"set max_cudagraph_capture_size to {-(-step // 8) * 8:,}, or lower --max-num-seqs; read "
        "the captured "
        "sizes in the log",
        versions=span.text,
    )


def _off_the_ladder(capture: int) -> Finding:
    return Finding(
        effect="bites",
        code="capture-truncated",
        subject="capture sizes",
        text=f"a maximum off the ladder of sizes is cut to the one below ({capture} to "
        f"{capture // 8 * 8}), and the full "
        "batch runs eager",
        evidence="vllm #37865, #54933 (42 to 40: 25.3 against 133.3 tok/s)",
        remedy=f"set it to {-(-capture // 8) * 8}",
        versions="seen in Sep 2026",
    )


def _next_power(width: int) -> int:
    return 1 << (width - 1).bit_length()


def budget_findings(case: Case) -> Iterator[Finding]:
    """Tokens of a step: decodes take k + 1 each before a prompt gets any."""
    settings, width = case.settings, case.width
    seqs, budget = settings.max_num_seqs, settings.token_budget
    if budget is None or width is None:
        return
    if seqs is not None and budget < seqs * width:
        yield Finding(
            effect="bites",
            code="token-budget",
            subject="--max-num-batched-tokens",
            text=f"{budget:,} tokens a step hold {budget // width:,} of {seqs:,} sequences at k + 1 = "
            f"{width}; the others "
            "wait, and prompts get none",
            evidence="the budget counts draft tokens",
            remedy=f"set it above max_num_seqs·(k + 1) = {seqs * width:,}",
        )
    elif budget < 8_192:
        small = Finding(
            effect="bites",
            code="token-budget-small",
            subject="--max-num-batched-tokens",
            text=f"{budget:,} is below 8,192: the server warns that speculation leaves little room for "
            "prompts",
            evidence="vllm/config/vllm.py",
            remedy="set it to 8,192 or more",
        )
        yield from within(Span((0, 20)), case.version, small)


def memory_findings(case: Case) -> Iterator[Finding]:
    """Cache and state slots that are held for drafts."""
    k = case.settings.k
    if case.hybrid and k:
        yield Finding(
            effect="bites",
            code="state-slots",
            subject="recurrent state",
            text=f"every request is charged {k} more state blocks for its drafts: 9 of 45 blocks at k 3, "
            "and one 27B "
            "hybrid ran about 3 sequences at batch 4 and more",
            evidence="vllm #57261, #55533",
            remedy="compare `Maximum concurrency` in the log with and without speculation; lower k",
            versions="open",
        )
    if case.method in (*HEADS, "draft-model", "pard") and case.settings.cpu:
        yield Finding(
            effect="bites",
            code="draft-cache",
            subject="KV cache",
            text=f"the drafter's cache comes out of the same space as the target's, and {k or 'k'} "
            "look-ahead slots are held for each request",
            evidence="vllm/v1/worker/cpu_worker.py",
            remedy="compare `CPU KV cache size` in the log with and without speculation; raise "
            "VLLM_CPU_KVCACHE_SPACE",
        )
    elif case.method in (*HEADS, "draft-model", "pard"):
        yield Finding(
            effect="bites",
            code="draft-cache",
            subject="KV cache",
            text="drafter and wider graphs take memory from the cache: 21 % fewer tokens with EAGLE-3 on "
            "Kimi-K2.6, "
            f"and {k or 'k'} look-ahead slots are held for each request",
            evidence="437,264 to 343,664 tokens on 8 cards",
            remedy="compare `GPU KV cache size`, at the same max_model_len; `specmath speedup` counts the "
            "largest batch",
        )
    if case.method == "mtp" and k and k > 1:
        yield Finding(
            effect="bites",
            code="mtp-multiple",
            subject="num_speculative_tokens",
            text=f"k = {k} above the checkpoint's n_predict must be a multiple of it, and one MTP layer "
            f"run {k} times "
            "accepts less at every further position",
            evidence="vllm/config/speculative.py",
            remedy="take α from a server at this very k",
        )
