"""What speculation costs besides the step, each as a term of its own.

Prefix-cache hits lost, prefill in the drafter, room for fewer sequences, a tier of k = 0 that is not off.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specmath.checks import Numbers, like_inputs, require_count, require_range

DEFAULT_UNIT = 16
"""Tokens of a block of vLLM's prefix cache with plain attention."""
SGLANG_RUNNING = 48
"""Requests that SGLang runs at once beside a drafter, unless it is told otherwise (sglang #34290)."""
DROPS_A_UNIT = ("eagle", "eagle3", "mtp", "p-eagle", "dflash", "dspark", "domino")
"""Ways of drafting beside which vLLM drops the last unit matched: those that read hidden states."""
PIECEWISE_COST = 59.6 / 50.0 - 1
"""What a schedule costs vLLM's V1 runner in steps that do not draft, which lose their full CUDA graphs: one
stream ran at 59.6 tokens a second without and at 50.0 with it (vllm #49548)."""
PIECEWISE_SINCE, PIECEWISE_UNTIL = (0, 25), (0, 28)
"""Versions from the first to before the second."""


def loses_prefix_hits(engine: str | None, method: str) -> bool:
    """Whether a drafter of this kind makes the engine drop the last unit of a prefix match.

    >>> loses_prefix_hits("vllm", "eagle3"), loses_prefix_hits("vllm", "ngram")
    (True, False)
    """
    return engine == "vllm" and method in DROPS_A_UNIT


def running_zero_tier_cost(engine: str | None, release: tuple[int, ...] | None) -> float:
    """What k = 0 costs an engine that may draft beyond a plain step, in plain steps; 0 where none is known.

    >>> round(running_zero_tier_cost("vllm", (0, 26)), 3), running_zero_tier_cost("vllm", (0, 32))
    (0.192, 0.0)
    """
    if engine != "vllm" or release is None or not PIECEWISE_SINCE <= release[:2] < PIECEWISE_UNTIL:
        return 0.0
    return PIECEWISE_COST


def prefix_hits(cached_tokens: npt.ArrayLike, unit: npt.ArrayLike, *, drafting: bool) -> Numbers:
    """Prompt tokens that the prefix cache serves, of those that are in it.

        plain      floor((L − 1) / U) · U
        drafting   max(0, floor((L − 1) / U) − 1) · U

    The last token of a prompt is always computed. A drafter that reads hidden states runs one token ahead of
    what was verified, so that the engine drops the last unit matched; prompts shorter than 2 U + 1 never hit.

    Args:
        cached_tokens: L, prompt tokens in the cache, at least 0.
        unit: U, tokens of a unit, at least 1: the block with plain attention, the block enlarged to a page of
            states on hybrid models (1,072 to 2,144 were seen).
        drafting: Whether such a drafter is loaded, whatever its k.

    Returns:
        Tokens, at least 0.

    Raises:
        InputError: for a value out of range.

    Source: vLLM 0.20 to 0.28, issues #38182, #53670, #54360.

    >>> prefix_hits(1500, 16, drafting=False), prefix_hits(1500, 16, drafting=True)
    (1488.0, 1472.0)
    """
    length, size = require_range("cached_tokens", cached_tokens, 0), require_count("unit", unit, 1)
    units = np.maximum(np.floor((length - 1) / size), 0)
    return like_inputs((np.maximum(units - 1, 0) if drafting else units) * size)
