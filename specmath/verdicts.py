"""FASTER, SLOWER or TOO CLOSE TO CALL, and where each holds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

REPEAT_NOISE = 0.08
"""The same configuration measured twice differs by 1–8 % inside one engine version, so a speed-up this close
to 1 cannot be told from 1. It is no error bar of the model, which is larger."""


def judgement(speedup: float, low: float | None = None, high: float | None = None) -> str:
    """FASTER, SLOWER or TOO CLOSE TO CALL: by the range where there is one, else by the repeat noise.

    An end that is None or NaN is not known.

    >>> judgement(1.5), judgement(1.05), judgement(1.5, low=0.9, high=1.8)
    ('FASTER', 'TOO CLOSE TO CALL', 'TOO CLOSE TO CALL')
    """
    floor = speedup / (1 + REPEAT_NOISE) if low is None or math.isnan(low) else low
    ceiling = speedup * (1 + REPEAT_NOISE) if high is None or math.isnan(high) else high
    if floor > 1:
        return "FASTER"
    return "SLOWER" if ceiling < 1 else "TOO CLOSE TO CALL"


def told_along(words: Sequence[str], axis: tuple[str, list[str]] | None) -> str:
    """Where each word holds: along the one axis that varies, else how often.

    >>> told_along(["FASTER", "FASTER", "SLOWER"], ("batch", ["1", "8", "64"]))
    'FASTER at batch 1–8, SLOWER at 64'
    """
    if axis is None:
        counts = {word: words.count(word) for word in ("FASTER", "TOO CLOSE TO CALL", "SLOWER")}
        told = ", ".join(f"{word} in {count}" for word, count in counts.items() if count)
        return f"{told} of {len(words)} set-ups"
    name, values = axis
    starts = [0, *(place for place in range(1, len(words)) if words[place] != words[place - 1]), len(words)]
    runs = [
        f"{words[first]} at {name if first == 0 else ''} {values[first]}"
        + ("" if last - first == 1 else f"–{values[last - 1]}")
        for first, last in itertools.pairwise(starts)
    ]
    return ", ".join(" ".join(run.split()) for run in runs)
