"""What a calibration found on one machine, as records: passes, laws, acceptance and their proof.

A `Calibration` is measured on the passes themselves, with the weights at hand. `MeasuredRuns` come from
outside: a server under load, a table of runs, weeks of metrics. Both are kept in files of one format
(`specmath.calibration_files`) and taken by every question as `--measured FILE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from specmath.arm_fits import ArmFit
from specmath.checks import FloatArray
from specmath.errors import InputError
from specmath.measurements import Measurement
from specmath.pass_laws import DraftLaw, HostLaw, PassLaw
from specmath.results import Advice

PARTS: Final = ("target", "draft", "plain-host", "step-host")
"""What a cell times: a pass of the target, a chain of draft passes, the host in a plain and in a speculative
step."""
REGIMES: Final = ("eager", "cuda-graph", "compile")
METHODS: Final = ("draft-model", "ngram")
IDENTIFIED_SHARE: Final = 0.1
"""A constant whose term is nowhere this share of the time cannot be told from noise."""
PRECISE_ERROR: Final = 0.01
"""A standard error of this share of the value at most: three of them are 3 percent."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Place:
    """What was timed, and at which size.

    Attributes:
        part: One of `PARTS`.
        batch: Sequences, at least 1.
        width: Tokens of each in the pass; of a draft the passes of the chain, which is its k; of the host in
            a speculative step k + 1. At least 1.
        context: Tokens of each in the cache.
    """

    part: str
    batch: int
    width: int
    context: int

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise InputError("part", f"must be one of {', '.join(PARTS)}, got {self.part!r}")
        for name, least in (("batch", 1), ("width", 1), ("context", 0)):
            if getattr(self, name) < least:
                raise InputError(name, f"must be at least {least}, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One place and what it took.

    Attributes:
        place: What was timed.
        seconds: Median of the repeats.
        low_s: First quartile of the repeats.
        high_s: Third quartile.
        repeats: How often it was timed.
    """

    place: Place
    seconds: float
    low_s: float
    high_s: float
    repeats: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedConstant:
    """One constant of a law as it was drawn from cells.

    Attributes:
        name: Name of the field of the law.
        value: Its value.
        standard_error: Of the value; None where it stands at a bound or one cell alone sets it.
        largest_share: Largest share of a cell's time that its term makes up.
    """

    name: str
    value: float
    standard_error: float | None
    largest_share: float

    @property
    def is_identified(self) -> bool:
        """Whether its term is anywhere large enough to be told from noise."""
        return self.largest_share >= IDENTIFIED_SHARE

    @property
    def is_precise(self) -> bool:
        """Whether it is identified, and known to 3 percent.

        One at a bound other than 0, a cache that is read once per token, has no standard error to ask for.
        """
        return self.is_identified and (self.standard_error or 0.0) <= PRECISE_ERROR * self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A cell that the law does not explain.

    Attributes:
        place: Where.
        kind: `cliff` where a little more work takes far longer, `dip` where more work takes less time,
            `far-off` where the law misses the cell.
        ratio: Seconds over those of the neighbour (cliff, dip) or of the law (far-off).
    """

    place: Place
    kind: str
    ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartFit:
    """How the law of one part was drawn, and how well it holds.

    Attributes:
        part: One of `PARTS`.
        constants: What was fitted.
        errors: Relative error of the law at each cell, in the order of the cells.
        left_out_errors: The same with the cell, and its like at the same batch and width, left out.
        flags: Cells that it does not explain.
    """

    part: str
    constants: tuple[FittedConstant, ...]
    errors: tuple[float, ...]
    left_out_errors: tuple[float, ...]
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceRow:
    """α or the acceptance length under one rule and one setting.

    Attributes:
        rule: As `specmath.engines.rules` names it.
        temperature: 0 for greedy decoding.
        top_p: In (0, 1].
        domain: What the prompts were about; `all` for all of them together.
        alpha: Mean over positions of the target's own text; None where counts alone were taken.
        alpha_low: Low end of its 95 % interval, requests being the unit.
        alpha_high: High end.
        positions: Positions that it is a mean of.
        requests: Texts that they stand in.
        lossless: Whether the rule keeps the target's distribution.
        k: Draft length of a speculative run; None where logits alone were compared.
        drafts: Steps of the run that drafted.
        accepted_at: Of them, those in which draft token 1, 2, … was accepted.
        match_rate: Share of all steps that drafted; below 1 for a lookup alone.
        context: Mean tokens in the cache where positions were parted by context; None for all.
    """

    rule: str
    temperature: float
    top_p: float
    domain: str
    positions: int
    requests: int
    alpha: float | None = None
    alpha_low: float | None = None
    alpha_high: float | None = None
    lossless: bool = True
    k: int | None = None
    drafts: int | None = None
    accepted_at: tuple[int, ...] = ()
    match_rate: float = 1.0
    context: float | None = None

    @property
    def survival(self) -> tuple[float, ...]:
        """Share of drafts whose first i tokens were accepted; empty where nothing was decoded."""
        return tuple(count / max(self.drafts or 0, 1) for count in self.accepted_at)

    @property
    def acceptance_length(self) -> float | None:
        """E over all steps of the run, bonus token included; None where nothing was decoded."""
        return None if self.k is None else self.acceptance_length_at(self.k)

    def acceptance_length_at(self, k: int) -> float | None:
        """E at a shorter draft, by the counts of the run; None where none was as long."""
        if len(self.accepted_at) < k:
            return None
        return 1 + self.match_rate * sum(self.survival[:k])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofRow:
    """Decoding end to end, plain and speculative, beside what the passes predict.

    Attributes:
        batch: Sequences.
        k: Draft tokens per step.
        context: Mean tokens in the cache over the run.
        acceptance_length: E of this run.
        plain_s: Seconds of a plain step, measured.
        step_s: Seconds of a speculative step, measured.
        predicted_plain_s: The same from cells and laws.
        predicted_step_s: The same.
        temperature: Of sampling; 0 for greedy decoding.
        top_p: Of sampling.
    """

    batch: int
    k: int
    context: float
    acceptance_length: float
    plain_s: float
    step_s: float
    predicted_plain_s: float
    predicted_step_s: float
    temperature: float = 0.0
    top_p: float = 1.0

    @property
    def speedup(self) -> float:
        """S as measured."""
        return self.acceptance_length * self.plain_s / self.step_s

    @property
    def predicted_speedup(self) -> float:
        """S as the passes predict it, with the acceptance length of the run."""
        return self.acceptance_length * self.predicted_plain_s / self.predicted_step_s

    @property
    def error(self) -> float:
        """Predicted over measured speed-up, minus 1."""
        return self.predicted_speedup / self.speedup - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What one machine takes for one pair of models in one regime.

    Attributes:
        target: Name of the target as it was given.
        draft: Name of the draft; `ngram` for a lookup.
        method: One of `METHODS`.
        regime: One of `REGIMES`.
        dtype: Of weights and cache.
        machine: What ran it: device, threads, load, clocks, versions, attention kernel.
        cells: What was timed.
        target_law: Law of the target's pass.
        draft_law: Law of drafting.
        plain_host: Law of the host in a plain step.
        step_host: Law of the host in a speculative step.
        fits: How the laws were drawn.
        acceptance: What was accepted; empty where timing alone was asked for.
        proof: Decoding end to end; empty where it was not run.
        last_captured_tokens: Tokens of the largest captured graph; None outside that regime.
        match_rate: Share of steps in which a lookup draft finds a match; 1 for other methods.
        skipped: Places that were not timed, each with its reason; it names memory where that did not hold.
        warnings: What a reader must know.
        created: Date and time, UTC, ISO 8601.
        specmath_version: Of the package that measured.
    """

    target: str
    draft: str
    method: str
    regime: str
    dtype: str
    machine: Mapping[str, str | float | int]
    cells: tuple[Cell, ...]
    target_law: PassLaw
    draft_law: DraftLaw
    plain_host: HostLaw = field(default_factory=HostLaw)
    step_host: HostLaw = field(default_factory=HostLaw)
    fits: tuple[PartFit, ...] = ()
    acceptance: tuple[AcceptanceRow, ...] = ()
    proof: tuple[ProofRow, ...] = ()
    last_captured_tokens: int | None = None
    match_rate: float = 1.0
    skipped: tuple[tuple[Place, str], ...] = ()
    warnings: tuple[Advice, ...] = ()
    created: str = ""
    specmath_version: str = ""

    def law_s(
        self, part: str, batch: npt.ArrayLike, width: npt.ArrayLike, context: npt.ArrayLike
    ) -> FloatArray:
        """Seconds of one of `PARTS` by its law alone; all broadcast."""
        if part == "target":
            return np.asarray(self.target_law.pass_s(batch, width, context))
        if part == "draft":
            return np.asarray(self.draft_law.chain_s(width, batch, context))
        host = self.plain_host if part == "plain-host" else self.step_host
        return np.asarray(host.host_s(batch, width))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLine:
    """The E·TPOT line over k at one batch and context: what verification and a draft pass cost.

    Attributes:
        batch: Sequences.
        context: Tokens in the cache.
        intercept_s: (v + o)·T_AR.
        slope_s: c·T_AR.
        plain_s: T_AR; None where no plain run belongs to it.
        worst_error: Largest relative error of the line.
        worst_left_out: Largest relative error with one k left out; None below three k.
    """

    batch: float
    context: float
    intercept_s: float
    slope_s: float
    plain_s: float | None
    worst_error: float
    worst_left_out: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRuns:
    """Runs of an engine from outside: step costs without a look at single passes.

    Attributes:
        source: Where they come from: a server, a file, a Prometheus server.
        origin: `server`, `runs` or `history`.
        machine: What is known of what ran them.
        runs: Pairs of a speculative and a plain run.
        lines: The line over k at each batch and context that has two k or more.
        arms: What a history tells of the step with and without speculation; empty for other origins.
        warnings: What a reader must know.
        created: Date and time, UTC, ISO 8601.
        specmath_version: Of the package that measured.
    """

    source: str
    origin: str
    machine: Mapping[str, str | float | int]
    runs: tuple[Measurement, ...]
    lines: tuple[RunLine, ...] = ()
    arms: tuple[ArmFit, ...] = ()
    warnings: tuple[Advice, ...] = ()
    created: str = ""
    specmath_version: str = ""
