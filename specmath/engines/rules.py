"""Which acceptance rule an engine applies: α belongs to its rule and does not transfer to another.

p is the target's distribution at a position, q the drafter's. Where method, version or settings decide and
are not known, the text says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LOOKUP: Final = ("ngram", "suffix", "lookup", "prompt-lookup")
"""Beginnings of methods that draft text they have seen, so that their q is one token."""
_LOSSY: Final = (
    (r"typical_acceptance", "typical acceptance: a token passes above a threshold of p, and q plays no part"),
    (
        r"relaxed_acceptance\w{0,30}[\"']?\s?[:=]\s?true",
        "relaxed acceptance: the target's best few tokens pass",
    ),
    (r"rejection_sample_method\W{1,6}fly\b", "`fly`: a mismatch is forgiven where the tokens after it agree"),
    (
        r"rejection_sample_method\W{1,6}synthetic|synthetic_acceptance|SIMULATE_ACC_LEN|spec-synth",
        "synthetic acceptance: tokens pass at rates typed in, so α says nothing about the drafter",
    ),
    (
        r"accept[-_]threshold[-_](?:single|acc)\W{1,4}0?\.\d",
        "an acceptance threshold below 1: more tokens pass than p allows",
    ),
)
"""Settings that change the text the target would write, and what they do."""


@dataclass(frozen=True, slots=True)
class AcceptanceRule:
    """How a draft token passes.

    Attributes:
        name: Stable short name.
        text: One sentence with what α is under it.
        alpha: α as a formula; empty where it depends on what is not known.
        lossless: Whether the text keeps the target's distribution.
    """

    name: str
    text: str
    alpha: str
    lossless: bool = True


_GREEDY: Final = AcceptanceRule(
    "arg-max match",
    "greedy decoding: a token passes where it is the target's best one, so α is how often the two agree",
    "P(argmax p = argmax q)",
)
_REJECTION: Final = AcceptanceRule(
    "rejection sampling",
    "rejection sampling: a token x passes with probability min(1, p(x)/q(x)), so α is the overlap of p and q",
    "E[Σ min(p, q)]",
)
_ONE_HOT: Final = AcceptanceRule(
    "one-hot draft",
    "rejection sampling of the drafter's best token, whose q counts as 1: it passes with probability p, so α"
    " falls as the temperature rises",
    "E[p(argmax q)]",
)
_TARGET_SAMPLE: Final = AcceptanceRule(
    "target's sample",
    "the drafter's best token passes where the target samples the same, so α falls as the temperature rises",
    "E[p(argmax q)]",
)
_BOTH_SAMPLES: Final = AcceptanceRule(
    "equal samples",
    "both models sample, and a token passes where the samples agree, so α is below the overlap of p and q",
    "E[Σ p·q]",
)
_BLOCK: Final = AcceptanceRule(
    "block verification",
    "block verification: the tokens of a draft are accepted jointly, never fewer than one by one",
    "",
)
_SEEN: Final = AcceptanceRule(
    "one-hot draft",
    "the draft is text seen before, with no q of its own: a token x passes with probability p(x)",
    "E[p(draft token)]",
)
_MATCH: Final = AcceptanceRule(
    "target's token",
    "a token passes where it is the target's own, greedy or sampled, unless rejection sampling is configured",
    "",
)
_UNKNOWN: Final = AcceptanceRule("unknown", "the acceptance rule of this engine is not known here", "")
_OF_ENGINES: Final = {
    "llama.cpp": _TARGET_SAMPLE,
    "sglang": _TARGET_SAMPLE,
    "tgi": _TARGET_SAMPLE,
    "mlx": _BOTH_SAMPLES,
    "tensorrt-llm": _MATCH,
    "lmdeploy": AcceptanceRule(
        "unknown", "rejection sampling, its drafter's q being that of the sampling settings", ""
    ),
    "lm-studio": AcceptanceRule(
        "unknown",
        "the rule of the runtime inside: llama.cpp tests the target's sample, MLX equal samples",
        "",
    ),
}


def acceptance_rule(
    engine: str,
    *,
    method: str | None = None,
    version: str | None = None,
    temperature: float | None = None,
    settings: str = "",
) -> AcceptanceRule:
    """The rule by which `engine` accepts draft tokens.

    Args:
        engine: Name of the engine, as in Telemetry.
        method: How it drafts, where known.
        version: Its version, where known.
        temperature: Sampling temperature, where known; at 0 every lossless rule is a match of arg-maxes.
        settings: Configuration or command line, searched for what changes the rule.

    Returns:
        The rule; `unknown` for an engine that is not known.

    >>> acceptance_rule("llama.cpp", method="draft-simple").alpha
    'E[p(argmax q)]'
    >>> acceptance_rule("vllm", settings='{"rejection_sample_method": "fly"}').lossless
    False
    """
    for pattern, text in _LOSSY:
        if re.search(pattern, settings[:100_000], re.IGNORECASE):
            return AcceptanceRule("lossy", f"{text}; α holds for this setting alone", "", lossless=False)
    if temperature == 0:
        return _GREEDY
    if method is not None and method.lower().startswith(LOOKUP):
        return _SEEN
    return _of_vllm(version, settings) if engine == "vllm" else _OF_ENGINES.get(engine, _UNKNOWN)


def _of_vllm(version: str | None, settings: str) -> AcceptanceRule:
    if re.search(r"rejection_sample_method\W{1,6}block\b", settings):
        return _BLOCK
    if re.search(r"draft_sample_method\W{1,6}probabilistic\b", settings) or _is_v0(version or ""):
        return _REJECTION
    note = "`draft_sample_method` greedy, the default; `probabilistic` gives another α"
    return AcceptanceRule(_ONE_HOT.name, f"{_ONE_HOT.text} ({note})", _ONE_HOT.alpha)


def _is_v0(version: str) -> bool:
    """Whether it is the V0 engine for sure; 0.8 and 0.9 hold both."""
    return "V0" in version or bool(re.match(r"v?0\.[0-7](?:\.|\Z)", version))
