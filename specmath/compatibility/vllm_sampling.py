"""How vLLM's speculative config drafts and verifies: sampling, synthetic and adaptive verification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import isfinite
from typing import Any, Final

from specmath.compatibility.case import LOOKUPS
from specmath.compatibility.findings import Finding, Span, within
from specmath.compatibility.vllm_config import refused, whole
from specmath.compatibility.vllm_keys import DRAFT_SAMPLING, METHODS, REJECTION_METHODS
from specmath.engines.configs.versions import Version
from specmath.errors import shown

_SOURCE: Final = "vllm/config/speculative.py"
_PARALLEL: Final = ("draft_model", "eagle", "eagle3", "dflash", "dspark")
_NO_MODEL: Final = ("ngram", "suffix", "medusa", "mlp-speculator", "custom", "extract-hidden-states")


def verification_findings(config: Mapping[str, Any], version: Version | None) -> Iterator[Finding]:
    method = config.get("rejection_sample_method")
    rates, length = config.get("synthetic_acceptance_rates"), config.get("synthetic_acceptance_length")
    if isinstance(method, str):
        span = REJECTION_METHODS.get(method)
        known = [name for name, one in REJECTION_METHODS.items() if version is None or one.holds(version)]
        if span is None or method not in known:
            text = (
                f"{shown(method)} is none of this release"
                if span
                else f"{shown(method)} is none of any release"
            )
            yield refused(
                "rejection_sample_method",
                text,
                f"choose one of {', '.join(known) or 'a newer release'}",
                code="rejection-method",
            )
    if method == "synthetic":
        yield from _synthetic(config, rates, length)
    elif rates is not None or length is not None:
        yield refused(
            "synthetic_acceptance_rates" if rates is not None else "synthetic_acceptance_length",
            "needs rejection_sample_method synthetic",
            "add it, for a test of a forecast only",
            code="synthetic-alone",
        )
    if method == "fly":
        yield Finding(
            effect="bites",
            code="lossy",
            subject="rejection_sample_method",
            text="fly is lossy: the output is no longer distributed as the target's",
            evidence=_SOURCE,
            remedy="compare the quality, or use standard or block",
            versions=Span((0, 33)).text,
        )


def _synthetic(config: Mapping[str, Any], rates: Any, length: Any) -> Iterator[Finding]:
    yield refused(
        "rejection_sample_method",
        "synthetic accepts drafts by a made-up rate: the output is rubbish",
        "use it to test a forecast, never to serve",
        code="synthetic",
    )
    k = whole(config.get("num_speculative_tokens"))
    single = config.get("synthetic_acceptance_rate")
    if (rates is None) + (length is None) + (single is None) != 2:
        yield refused(
            "synthetic_acceptance_rates",
            "synthetic takes either rates or a length, and exactly one of them",
            "give one",
            code="synthetic-form",
        )
    if isinstance(rates, list):
        numbers = [rate for rate in rates if isinstance(rate, int | float) and not isinstance(rate, bool)]
        proper = len(numbers) == len(rates) and all(0 <= rate <= 1 for rate in numbers)
        if not proper or any(after > before for before, after in pairwise(numbers)):
            yield refused(
                "synthetic_acceptance_rates",
                "must be numbers from 0 to 1 that never rise (survival, not conditional)",
                "give survival by position",
                code="synthetic-rates",
            )
        if k is not None and len(rates) != k:
            yield refused(
                "synthetic_acceptance_rates",
                f"has {len(rates)} entries for num_speculative_tokens {k}",
                "give one for each position",
                code="synthetic-length",
            )
    if k is not None and isinstance(length, int | float) and isfinite(length) and length > k + 1:
        yield refused(
            "synthetic_acceptance_length",
            f"{length:g} exceeds num_speculative_tokens + 1 = {k + 1}",
            "it counts the bonus token: at most k + 1",
            code="synthetic-length",
        )


def drafting_findings(config: Mapping[str, Any], method: str, version: Version | None) -> Iterator[Finding]:
    sampling = config.get("draft_sample_method")
    if isinstance(sampling, str) and sampling not in DRAFT_SAMPLING:
        yield refused(
            "draft_sample_method",
            f"{shown(sampling)} is none of greedy, probabilistic",
            "greedy is the default",
            code="draft-sampling",
        )
    if config.get("use_heterogeneous_vocab") is True:
        yield from _two_vocabularies(config, method, sampling)
    if config.get("parallel_drafting") is True and method and method not in _PARALLEL:
        yield refused(
            "parallel_drafting",
            f"takes draft models and EAGLE heads, not {method}",
            "leave it out",
            code="parallel-drafting",
        )
    if config.get("enable_adaptive_verification") is True:
        yield from _adaptive(config, method, version)
    if config.get("index_share_for_mtp_iteration") is not None and method and method != "mtp":
        yield refused(
            "index_share_for_mtp_iteration", f"is for mtp, not {method}", "leave it out", code="mtp-only"
        )
    if config.get("dspark_draft_topk") is not None and method and method != "dspark":
        yield refused("dspark_draft_topk", f"is for dspark, not {method}", "leave it out", code="dspark-only")
    if config.get("disable_eagle_block_drop") is True and method in LOOKUPS:
        yield Finding(
            effect="bites",
            code="key-without-effect",
            subject="disable_eagle_block_drop",
            text=f"says nothing to {method}: lookups drop no block",
            evidence=_SOURCE,
            remedy="leave it out",
        )


def _two_vocabularies(config: Mapping[str, Any], method: str, sampling: Any) -> Iterator[Finding]:
    key = "use_heterogeneous_vocab"
    if method and method != "draft_model":
        yield refused(key, f"takes draft models, not {method}", "leave it out", code="two-vocabularies")
    if sampling == "probabilistic":
        yield refused(
            key, "drafts greedily only", "leave draft_sample_method out", code="two-vocabularies-sampling"
        )
    if config.get("use_local_argmax_reduction") is True:
        yield refused(
            key,
            "excludes use_local_argmax_reduction, which bypasses its token map",
            "leave that key out",
            code="two-vocabularies-argmax",
            evidence="vllm #51561",
        )


def _adaptive(config: Mapping[str, Any], method: str, version: Version | None) -> Iterator[Finding]:
    key = "enable_adaptive_verification"
    if method in METHODS and METHODS[method][2] in _NO_MODEL:
        yield refused(
            key,
            f"takes drafters that run a model, not {method}",
            "leave it out, or use tiers by batch",
            code="adaptive-method",
        )
    elif method and method != "dspark":
        early = refused(
            key,
            f"takes dspark only, not {method}",
            "upgrade to 0.30, or leave it out",
            code="adaptive-method",
        )
        yield from within(Span((0, 28), (0, 30)), version, early)
    if config.get("use_local_argmax_reduction") is True:
        yield refused(
            key,
            "needs the draft's logits, which use_local_argmax_reduction never makes",
            "leave one of them out",
            code="adaptive-argmax",
        )
    if config.get("num_speculative_tokens_per_batch_size"):
        yield Finding(
            effect="bites",
            code="adaptive-and-tiers",
            subject=key,
            text="stands beside tiers by batch: two rules that both cut the draft",
            evidence=_SOURCE,
            remedy="keep one of them",
            versions=Span((0, 28)).text,
        )
