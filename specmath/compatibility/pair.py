"""The target and the draft beside each other: vocabularies, widths, contexts, depths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from specmath.compatibility.case import HEADS, LOOKUPS, Case
from specmath.compatibility.findings import Effect, Finding, Span, within
from specmath.model import ModelShape

_OWN_MODEL: Final = ("draft-model", "pard", None)
_LLAMA_CPP_SLACK: Final = 128
_HEAD_SLACK: Final = 0.01
_LONG: Final = 32_768
_VLLM: Final = "vllm/config/speculative.py"


def _found(
    effect: Effect, code: str, subject: str, text: str, evidence: str, remedy: str, versions: str = "all read"
) -> Finding:
    return Finding(
        effect=effect,
        code=code,
        subject=subject,
        text=text,
        evidence=evidence,
        remedy=remedy,
        versions=versions,
    )


def pair_findings(case: Case) -> Iterator[Finding]:
    """What the two models' configurations say."""
    if case.target is not None and case.draft is not None:
        if case.draft.draft is None:
            yield from _vocabularies(case, case.target, case.draft)
        else:
            yield from _head(case, case.target, case.draft)
        yield from _sizes(case.target, case.draft)
    yield from _context(case)
    yield from _depth(case)
    yield from _module(case)


def _vocabularies(case: Case, target: ModelShape, draft: ModelShape) -> Iterator[Finding]:
    if not target.vocab or not draft.vocab or target.vocab == draft.vocab or case.method not in _OWN_MODEL:
        return
    apart = abs(target.vocab - draft.vocab)
    sizes = f"{draft.name} has {draft.vocab:,} rows, {target.name} {target.vocab:,}"
    padded = "; where both have one tokenizer the difference is padding" if apart <= 2_048 else ""
    match case.engine:
        case "vllm":
            yield from _vllm_vocabularies(case, sizes + padded)
        case "llama.cpp" if apart <= _LLAMA_CPP_SLACK:
            return
        case "llama.cpp":
            yield _found(
                "breaks",
                "vocabulary",
                "vocabulary",
                f"{sizes}: more than {_LLAMA_CPP_SLACK} apart",
                "common/speculative.cpp",
                "use a draft of the same family; every token's text must agree, too",
            )
        case "transformers":
            yield _found(
                "bites",
                "vocabulary",
                "vocabulary",
                f"{sizes}: generate() refuses the pair unless both tokenizers are given (universal "
                "assisted generation), "
                "which translates every draft through text",
                "transformers 4.46 and newer",
                "pass tokenizer and assistant_tokenizer; expect a lower acceptance",
            )
        case _:
            yield _found(
                "breaks",
                "vocabulary",
                "vocabulary",
                f"{sizes}{padded}: token ids of one mean other text in the other",
                "a draft is verified id by id",
                "use a draft with the target's tokenizer",
            )


def _vllm_vocabularies(case: Case, sizes: str) -> Iterator[Finding]:
    config = case.settings.config or {}
    if config.get("use_heterogeneous_vocab") is True:
        shared = _found(
            "bites",
            "vocabulary-shared",
            "vocabulary",
            f"{sizes}: drafts are confined to the tokens that both share, and are greedy",
            _VLLM,
            "measure the acceptance; a draft of the same family gets more",
        )
        yield from within(Span((0, 25)), case.version, shared)
        return
    remedy = "use a draft with the target's vocabulary; from 0.25 use_heterogeneous_vocab takes another"
    yield _found("breaks", "vocabulary", "vocabulary", f"{sizes}: sizes must be equal", _VLLM, remedy)


def _head(case: Case, target: ModelShape, draft: ModelShape) -> Iterator[Finding]:
    head = draft.draft
    assert head is not None
    reads = head.target_hidden or draft.hidden
    if target.hidden and reads and reads != target.hidden:
        yield _found(
            "breaks",
            "head-width",
            draft.name,
            f"reads hidden states of {reads:,}, and {target.name} has {target.hidden:,}",
            "the two configurations",
            "name the head that was made for this target",
        )
    if target.vocab and draft.vocab and abs(draft.vocab - target.vocab) > _HEAD_SLACK * target.vocab:
        yield _found(
            "breaks",
            "head-vocabulary",
            draft.name,
            f"has a vocabulary of {draft.vocab:,}, and {target.name} {target.vocab:,}",
            "the two configurations",
            "name the head that was made for this target",
        )
    named = case.settings.method
    same = {named, head.kind} <= {"eagle3", "p-eagle"} or {named, head.kind} <= {"dspark", "dflash", "domino"}
    if named is not None and named != head.kind and not same:
        yield _found(
            "breaks",
            "head-kind",
            draft.name,
            f"is a head of kind {head.kind}, and the method is {named}",
            "its configuration",
            f"set the method to {head.kind}, or name another draft",
        )


def _sizes(target: ModelShape, draft: ModelShape) -> Iterator[Finding]:
    if draft.active_params > target.active_params:
        yield _found(
            "bites",
            "draft-larger",
            "model pair",
            f"{draft.name} runs {draft.active_params / 1e9:.3g}B parameters a token, {target.name} "
            f"{target.active_params / 1e9:.3g}B: a draft pass costs more than a plain step",
            "the two configurations",
            "swap them, or take a smaller draft; `specmath speedup` has the break-even",
        )


def _context(case: Case) -> Iterator[Finding]:
    draft, needed = case.draft, case.context
    limit = None if draft is None else draft.max_context
    given = (case.settings.config or {}).get("max_model_len")
    if isinstance(given, int) and not isinstance(given, bool):
        limit = given if limit is None else min(limit, given)
    if limit is None or needed is None or limit >= needed:
        return
    name = "the draft" if draft is None else draft.name
    text = f"{name} ends at {limit:,} tokens, sequences reach {needed:,}"
    if case.engine == "vllm":
        yield from _vllm_context(case, text, limit)
        return
    yield _found(
        "breaks",
        "draft-context",
        "context",
        f"{text}: beyond it drafts are out of its range",
        "the draft's configuration",
        f"limit the context to {limit:,}, or take a draft with a longer one",
    )


def _vllm_context(case: Case, text: str, limit: int) -> Iterator[Finding]:
    remedy = f"set --max-model-len to {limit:,}, or take a draft with a longer context"
    if case.method in HEADS:
        gather = _found(
            "breaks",
            "draft-context",
            "context",
            f"{text}: its table of positions is read out of bounds",
            "vllm #48894",
            remedy,
        )
        raised = _found(
            "bites",
            "draft-context",
            "context",
            f"{text}: the server raises the limit, but the head was not trained beyond it and accepts less "
            "there",
            _VLLM,
            "measure the acceptance at your own context",
        )
        yield from within(Span((), (0, 27)), case.version, gather)
        yield from within(Span((0, 27)), case.version, raised)
        return
    skipped = _found(
        "breaks",
        "draft-context",
        "context",
        f"{text}: longer sequences are not drafted for, or cut to it",
        _VLLM,
        remedy,
    )
    lowered = _found(
        "breaks",
        "draft-context",
        "context",
        f"{text}: the V2 runner lowers max_model_len to the draft's",
        "vllm/config/vllm.py",
        remedy,
    )
    yield from within(Span((), (0, 33)), case.version, skipped)
    yield from within(Span((0, 33)), case.version, lowered)


def _depth(case: Case) -> Iterator[Finding]:
    head = None if case.draft is None else case.draft.draft
    k = case.settings.k
    if head is not None and head.max_tokens is not None and k is not None and k > head.max_tokens:
        assert case.draft is not None
        yield _found(
            "breaks",
            "beyond-depth",
            "k",
            f"k = {k} exceeds the {head.max_tokens} tokens that {case.draft.name} drafts in a pass",
            "its configuration",
            f"set k to {head.max_tokens} or less",
        )
    if case.method in ("dflash", "dspark", "domino") and (case.context or 0) >= _LONG:
        yield _found(
            "bites",
            "block-at-length",
            "context",
            "block drafters lose acceptance and speed with the context: 200 tok/s at 500 tokens and 24 at "
            "64k, 70 to "
            "73 % accepted when short and 16 to 32 % at 172k",
            "z-lab/dflash #66; GLM-5.3 kit #73",
            "measure at your own context",
        )


def _module(case: Case) -> Iterator[Finding]:
    """Whether the target has the module that MTP runs, and what is left where nothing names a draft."""
    target = case.target
    if target is None or case.draft is not None or target.counts_only:
        return
    if case.method == "mtp" and target.mtp is None and case.settings.draft_name is None:
        yield _found(
            "breaks",
            "mtp-missing",
            "method",
            f"the configuration of {target.name} names no MTP module",
            "its config.json",
            "draft another way (eagle3, ngram), or name a checkpoint with the module",
        )
    if case.method is not None and case.method not in (*LOOKUPS, "mtp") and target.mtp is not None:
        yield _found(
            "bites",
            "mtp-unused",
            "method",
            f"{target.name} has an MTP module of its own, which {case.method} leaves out",
            "its config.json",
            "compare --method mtp",
        )
