"""The speculative config of vLLM as a whole: method, model, draft length, tiers, and how they agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from itertools import pairwise
from typing import Any, Final

from specmath.compatibility.case import Case
from specmath.compatibility.findings import Finding, Span, dotted, within
from specmath.compatibility.vllm_config import plain_config, refused, whole
from specmath.compatibility.vllm_keys import EARLY_MTP, METHODS, MTP_ALIASES_SINCE, MTP_NAMES
from specmath.compatibility.vllm_sampling import drafting_findings, verification_findings
from specmath.engines.configs.versions import Version
from specmath.errors import shown

_SOURCE: Final = "vllm/config/speculative.py"
_NEED_MODEL: Final = ("draft_model", "eagle", "eagle3", "medusa", "mlp_speculator", "dflash", "custom_class")
_NEED_NO_LENGTH: Final = ("mtp", "suffix", "dspark")


def relation_findings(case: Case) -> Iterator[Finding]:
    """What does not go together."""
    if case.settings.config is None:
        return
    config, version = plain_config(case.settings.config), case.version
    method = method_of(config)
    yield from _method(config, method, version)
    yield from _length(config, method)
    yield from _lookup(config, method)
    yield from _tiers(config)
    yield from verification_findings(config, version)
    yield from drafting_findings(config, method, version)


def method_of(config: Mapping[str, Any]) -> str:
    """vLLM's name of the method; empty where the checkpoint has to tell it."""
    named, model = config.get("method"), config.get("model")
    if not isinstance(named, str):
        return "ngram" if model in ("ngram", "[ngram]") else ""
    return {"[ngram]": "ngram"}.get(named, "mtp" if named in MTP_NAMES else named)


def our_method(config: Mapping[str, Any]) -> str | None:
    """specmath's name of the method; None where it cannot be told."""
    name = method_of(config)
    ours = METHODS[name][2] if name in METHODS else None
    if config.get("parallel_drafting") is True:
        return {"draft-model": "pard", "eagle": "p-eagle", "eagle3": "p-eagle"}.get(ours or "", ours)
    return ours


def tiers_of(config: Mapping[str, Any]) -> tuple[tuple[int, int, int], ...] | None:
    """The tiers by batch as far as they can be read; None without them."""
    given = config.get("num_speculative_tokens_per_batch_size")
    if not isinstance(given, list | tuple) or not given:
        return None
    rows = [
        tuple(map(whole, row)) for row in given[:1_000] if isinstance(row, list | tuple) and len(row) == 3
    ]
    read = [(a, b, k) for a, b, k in rows if a is not None and b is not None and k is not None]
    return tuple(read) or None


def _method(config: Mapping[str, Any], method: str, version: Version | None) -> Iterator[Finding]:
    if not method:
        if not config.get("model"):
            yield refused(
                "method",
                "neither a method nor a model is named",
                "name a method, and its model where it has one",
                code="method-missing",
            )
        return
    named = config.get("method", method)
    if method not in METHODS:
        near = get_close_matches(
            method.lower().replace("-", "_")[:100], [*METHODS, *MTP_NAMES], n=1, cutoff=0.6
        )
        remedy = f"write {near[0]}" if near else f"choose one of {', '.join(METHODS)}"
        yield refused("method", f"{shown(named)} is none of any release", remedy, code="method-unknown")
        return
    yield from _method_version(str(named), method, version)
    if method in _NEED_MODEL and not config.get("model"):
        yield refused(
            "model",
            f"is missing: {method} has weights of its own",
            "name the draft or head",
            code="model-missing",
        )


def _method_version(named: str, method: str, version: Version | None) -> Iterator[Finding]:
    first, gone, _ = METHODS[method]
    first = EARLY_MTP.get(named, first)
    if named not in ("mtp", "deepseek_mtp") and method == "mtp":
        yield from within(Span(MTP_ALIASES_SINCE), version, _alias(named))
    if first and version is not None and not version.at_least(*first):
        yield Finding(
            effect="breaks",
            code="method-too-new",
            subject="method",
            text=f"{named} came with {dotted(first)}",
            evidence=_SOURCE,
            remedy=f"upgrade to {dotted(first)} or newer, or draft another way",
            versions=Span((), first).text,
        )
    if gone is not None:
        lost = refused(
            "method",
            f"{named} is gone from {dotted(gone)} on",
            "stay below, or use eagle3 or mtp",
            code="method-removed",
        )
        yield from within(Span(gone), version, lost)
    if method == "draft_model":
        away = refused(
            "method",
            "V1 has no draft models from 0.10 on; they are back with 0.16 (PR 24322)",
            "upgrade to 0.16 or newer, or use eagle3, mtp or ngram",
            code="method-away",
            evidence="vllm/engine/arg_utils.py; PR 24322",
        )
        yield from within(Span((0, 10), (0, 16)), version, away)


def _alias(named: str) -> Finding:
    return Finding(
        effect="bites",
        code="method-alias",
        subject="method",
        text=f"{named} is a deprecated name of mtp",
        evidence=_SOURCE,
        remedy="write mtp",
        versions=Span(MTP_ALIASES_SINCE).text,
    )


def _length(config: Mapping[str, Any], method: str) -> Iterator[Finding]:
    if config.get("num_speculative_tokens") is None and method not in _NEED_NO_LENGTH:
        yield refused(
            "num_speculative_tokens",
            "is missing, and only MTP, suffix and DSpark have a default",
            "give the draft tokens per step; `specmath schedule` finds the best",
            code="length-missing",
        )


def _lookup(config: Mapping[str, Any], method: str) -> Iterator[Finding]:
    least, most = whole(config.get("prompt_lookup_min")), whole(config.get("prompt_lookup_max"))
    if least is not None and most is not None and least > most:
        yield refused(
            "prompt_lookup_min",
            f"{least} is above prompt_lookup_max, {most}",
            "give a minimum that is no larger",
            code="lookup-window",
        )
    if method and method not in ("ngram", "ngram_gpu") and (least is not None or most is not None):
        yield Finding(
            effect="bites",
            code="key-without-effect",
            subject="prompt_lookup_max" if most is not None else "prompt_lookup_min",
            text=f"says nothing to {method}: it is the window of n-gram drafts",
            evidence=_SOURCE,
            remedy="leave it out, or set method to ngram",
        )


def _tiers(config: Mapping[str, Any]) -> Iterator[Finding]:
    key = "num_speculative_tokens_per_batch_size"
    given, tiers = config.get(key), tiers_of(config)
    if not isinstance(given, list | tuple):
        return
    if tiers is None or len(tiers) < min(len(given), 1_000):
        yield refused(
            key,
            "each tier is [first batch, last batch, k] in whole numbers",
            "write [[1, 16, 5], [17, 64, 3]]",
            code="tiers-form",
            evidence="PR 32374",
        )
        return
    problem = _tier_problem(tiers)
    if problem:
        yield refused(
            key,
            problem,
            "let the first begin at 1 and the others follow without overlap",
            code="tiers-order",
            evidence="PR 32374",
        )
    most, k = max(tier[2] for tier in tiers), whole(config.get("num_speculative_tokens"))
    if k is not None and most > k:
        yield Finding(
            effect="bites",
            code="tiers-clamped",
            subject=key,
            text=f"a tier of k = {most} is cut to num_speculative_tokens, {k}",
            evidence="PR 32374",
            remedy=f"set num_speculative_tokens to {most}",
            versions=Span((0, 24)).text,
        )


def _tier_problem(tiers: tuple[tuple[int, int, int], ...]) -> str:
    if tiers[0][0] != 1:
        return f"the first tier begins at batch {tiers[0][0]}, not at 1"
    for first, last, k in tiers:
        if last < first or k < 0:
            return f"[{first}, {last}, {k}] is no tier"
    for (_, end, _), (start, _, _) in pairwise(tiers):
        if start <= end:
            return f"one tier ends at batch {end}, the next begins at {start}"
    return ""
