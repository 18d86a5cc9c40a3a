"""What a calibration of a pair is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from specmath.calibrations import REGIMES
from specmath.checks import require_count, require_range
from specmath.errors import InputError

LOOKUP: Final = "ngram"
PARTS: Final = ("acceptance", "proof")
"""What can be left out."""
MOST_VALUES: Final = 64
"""Of batches, contexts or draft lengths: more are not timed in a day."""
_MOST: Final = {"batch": 65_536, "context": 16_777_216, "k": 64}
TIME_LIMIT_S: Final = 90.0
QUICK_TIME_LIMIT_S: Final = 20.0
SYNTHETIC_ALPHA: Final = 0.7
"""Probability with which tokens pass in the proof of random weights, whose own acceptance is near 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One calibration of a pair; None stands for what suits the device.

    Attributes:
        target: Folder, hub id or `random:NAME`.
        draft: The same, or `ngram` for a lookup in the text.
        device: As torch names it.
        dtype: `bf16`, `fp16` or `fp32`.
        regime: One of `specmath.calibrations.REGIMES`.
        threads: Of torch on a CPU.
        batches: Sequences in a pass.
        contexts: Tokens in the cache.
        ks: Draft lengths that are proved; the longest is drafted for acceptance.
        prompts: File of prompts; None for the packaged ones.
        temperatures: Of sampling; the last one that is asked for is proved.
        top_ps: Of sampling.
        new_tokens: Tokens of each text.
        quick: Whether a coarse grid will do.
        time_limit_s: For the passes.
        skip: Of `PARTS`, those to leave out.
        seed: Of order, texts and coins.
    """

    target: str
    draft: str
    device: str | None = None
    dtype: str | None = None
    regime: str | None = None
    threads: int | None = None
    batches: tuple[int, ...] | None = None
    contexts: tuple[int, ...] | None = None
    ks: tuple[int, ...] = (2, 4, 8)
    prompts: str | None = None
    temperatures: tuple[float, ...] = (0.0, 1.0)
    top_ps: tuple[float, ...] = (1.0,)
    new_tokens: int = 128
    quick: bool = False
    time_limit_s: float | None = None
    skip: frozenset[str] = frozenset()
    seed: int = 0

    def __post_init__(self) -> None:
        for name, values in (("batch", self.batches), ("context", self.contexts), ("k", self.ks)):
            if values is not None:
                require_count(name, list(values), 1)
                if max(values) > _MOST[name]:
                    raise InputError(name, f"must be at most {_MOST[name]:,}, got {max(values):,}")
                if len(set(values)) > MOST_VALUES:
                    raise InputError(name, f"takes at most {MOST_VALUES} values, got {len(set(values)):,}")
        require_range("temperature", list(self.temperatures), 0, 10)
        require_range("top_p", list(self.top_ps), high=1, above=0)
        require_count("new_tokens", self.new_tokens, 8, 100_000)
        require_count("seed", self.seed, 0, 2**31)
        if self.threads is not None:
            require_count("threads", self.threads, 1, 1024)
        if self.time_limit_s is not None:
            require_range("time_limit", self.time_limit_s, 1, 86_400)
        if self.regime is not None and self.regime not in REGIMES:
            raise InputError("regime", f"must be one of {', '.join(REGIMES)}, got {self.regime!r}")
        if strange := sorted(self.skip - set(PARTS)):
            raise InputError("skip", f"must be of {', '.join(PARTS)}, got {strange[0]!r}")

    @property
    def is_lookup(self) -> bool:
        """Whether drafts are looked up in the text."""
        return self.draft == LOOKUP

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that run."""
        return (self.target,) if self.is_lookup else (self.target, self.draft)

    @property
    def limit_s(self) -> float:
        """Seconds for the passes."""
        usual = QUICK_TIME_LIMIT_S if self.quick else TIME_LIMIT_S
        return usual if self.time_limit_s is None else self.time_limit_s
