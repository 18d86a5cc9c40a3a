"""Flags about speculation that an engine does not have: another engine's, or misspelt."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Final

from specmath.compatibility.case import Case
from specmath.compatibility.findings import Finding
from specmath.compatibility.vllm_keys import NEW_FLAGS, OLD_FLAGS

_SGLANG: Final = (
    "speculative-accept-threshold-acc",
    "speculative-accept-threshold-single",
    "speculative-adaptive",
    "speculative-adaptive-config",
    "speculative-algo",
    "speculative-algorithm",
    "speculative-attention-mode",
    "speculative-boundary-reduction",
    "speculative-dflash-block-size",
    "speculative-dflash-draft-window-size",
    "speculative-domino-candidate-pool-size",
    "speculative-draft-attention-backend",
    "speculative-draft-kv-cache-dtype",
    "speculative-draft-load-format",
    "speculative-draft-model",
    "speculative-draft-model-path",
    "speculative-draft-model-quantization",
    "speculative-draft-model-revision",
    "speculative-draft-sink-size",
    "speculative-draft-window-size",
    "speculative-dsa-topk-backend",
    "speculative-dspark-align-verify-tokens-to-graph-tier",
    "speculative-dspark-block-size",
    "speculative-dspark-confidence-sts-path",
    "speculative-dspark-sps-table-path",
    "speculative-eagle-topk",
    "speculative-enable-w4a4-mxfp4-megamoe",
    "speculative-moe-a2a-backend",
    "speculative-moe-runner-backend",
    "speculative-ngram-branch-length",
    "speculative-ngram-capacity",
    "speculative-ngram-external-corpus-max-tokens",
    "speculative-ngram-external-corpus-path",
    "speculative-ngram-external-sam-budget",
    "speculative-ngram-match-type",
    "speculative-ngram-max-bfs-breadth",
    "speculative-ngram-max-match-window-size",
    "speculative-ngram-max-trie-depth",
    "speculative-ngram-min-bfs-breadth",
    "speculative-ngram-min-match-window-size",
    "speculative-num-draft-tokens",
    "speculative-num-steps",
    "speculative-skip-dp-mlp-sync",
    "speculative-token-map",
    "speculative-use-block-verification",
    "speculative-use-rejection-sampling",
)
_KNOWN: Final = {
    "vllm": ("speculative-config", "sc", *NEW_FLAGS, *OLD_FLAGS),
    "sglang": _SGLANG,
    "lmdeploy": ("speculative-algorithm", "speculative-draft-model", "speculative-num-draft-tokens"),
    "tgi": ("speculate",),
    "mlx": ("draft-model", "num-draft-tokens"),
}
_ABOUT: Final = ("spec", "draft", "num-spec", "num-draft")


def flag_name_findings(case: Case) -> Iterator[Finding]:
    """Flags about speculation that no release of the engine that was read has."""
    known = _KNOWN.get(case.engine or "")
    if case.arguments is None or known is None:
        return
    for flag in case.arguments.flags:
        name = flag.partition(".")[0]
        if not name.startswith(_ABOUT) or name in known:
            continue
        near = get_close_matches(name[:100], known, n=1, cutoff=0.6)
        owner = next((engine for engine, flags in _KNOWN.items() if name in flags), None)
        yield Finding(
            effect="breaks",
            code="flag-unknown",
            subject=f"--{name[:100]}",
            text=f"is no flag of {case.engine}" + (f", but of {owner}" if owner else ""),
            evidence="flags of the releases that were read",
            remedy=f"write --{near[0]}" if near else "leave it out",
        )
