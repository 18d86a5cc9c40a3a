"""Which way of drafting pays most? Several drafters of one target side by side."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import FloatArray, IntArray, require_count, require_range
from specmath.errors import InputError
from specmath.forecast import MAX_BATCH, VERDICT_ROWS, SpeedupTable, forecast_speedup
from specmath.laws import AcceptanceLaw
from specmath.memory import sequence_bytes_per_device, weight_bytes_per_device
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
from specmath.roofline_source import Roofline
from specmath.sources import StepCost, StepTimeSource
from specmath.verdicts import REPEAT_NOISE, judgement, told_along

MAX_RUNNING = 1024
"""Most running sequences of an engine: the defaults of engines lie between 256 and this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One drafter of a comparison, with the acceptance that it reaches.

    Attributes:
        roofline: The target with this drafter on the accelerator.
        acceptance: Its acceptance law, one law.
        k: Its draft tokens per step.
        source: Step times to go by, where they are not those of the roofline: a profile, or measured ones.
    """

    roofline: Roofline
    acceptance: AcceptanceLaw
    k: int
    source: StepTimeSource | None = None

    @property
    def leading(self) -> StepTimeSource:
        """What the step times come from."""
        return self.roofline if self.source is None else self.source

    @property
    def name(self) -> str:
        """The draft, for a reader."""
        return self.roofline.drafter.name

    def table(self, batch: IntArray, context: FloatArray) -> SpeedupTable:
        """Its speed-ups over batches and contexts."""
        return forecast_speedup(self.acceptance, self.k, batch, cases=[self.leading], context=context)

    def memory_bytes(self, batch: FloatArray, context: FloatArray) -> FloatArray:
        """Weights, cache and states that the draft keeps on one of its devices."""
        both = self.roofline.residents
        if both.draft is None:
            return np.zeros(np.broadcast_shapes(batch.shape, context.shape))
        slots = self.k + 1
        held = sequence_bytes_per_device(both.draft, both.draft_layout, context + slots, slots)
        sequences = np.ceil(batch / both.draft_layout.dp)
        return np.asarray(weight_bytes_per_device(both.draft, both.draft_layout) + sequences * held)

    def throughputs(self, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Tokens per second without and with speculation, each at the largest batch that memory holds.

        At most `MAX_RUNNING`, since an engine takes no more sequences however little memory they need.
        """
        plain, speculative = (
            np.minimum(np.broadcast_to(limit, context.shape), MAX_RUNNING)
            for limit in self.leading.max_batches(self.k, context)
        )
        length = AcceptanceAxis.of(self.acceptance).lengths(np.array([self.k]), context)[0, 0]
        plain_s = self._cost(plain, context).plain_s
        drafting = self._cost(speculative, context)
        step_s = drafting.plain_s * drafting.in_plain_steps
        return _per_second(plain, plain_s), _per_second(speculative, step_s) * length

    def _cost(self, batch: FloatArray, context: FloatArray) -> StepCost:
        """A step at its k; at batch 1 where nothing fits or what fits is not known."""
        width, passes = self.acceptance.width(self.k), self.acceptance.draft_passes(self.k)
        tried = np.where(batch >= 1, batch, 1.0)
        return self.leading.step_cost(self.k, tried, context, width=width, passes=passes)


def _per_second(batch: FloatArray, step_s: FloatArray) -> FloatArray:
    """Steps of all sequences per second; NaN where not one fits."""
    return np.where(batch >= 1, batch / step_s, np.nan)


def compare_drafters(
    contenders: Sequence[Contender], batch: npt.ArrayLike = 1, *, context: npt.ArrayLike = 0
) -> DrafterComparison:
    """Drafters of one target side by side: step cost, speed-up, best k, memory, largest batch and throughput.

    Each has its own acceptance and k, since those are what a drafter buys with its cost; R = v + c·passes + o
    is the acceptance length at which it breaks even. Memory decides too: each arm's throughput is taken at
    the largest batch that fits it.

    Args:
        contenders: The drafters, two or more to compare, each with one acceptance law and one k.
        batch: Sequences in the pass, one or many.
        context: Tokens in the KV cache per sequence, one or many.

    Raises:
        InputError: no contender, a contender with several laws, or a value out of range.

    >>> from specmath.acceptance import ConstantAcceptance
    >>> from specmath.catalogue import load_hardware
    >>> from specmath.drafters.methods import drafter_of
    >>> from specmath.model_catalogue import load_model
    >>> target = load_model("llama-3.1-8b")
    >>> drafters = [drafter_of(target, method="eagle3"), drafter_of(target, load_model("llama-3.2-1b"))]
    >>> part = load_hardware("h100-sxm")
    >>> pairs = [Roofline(accelerator=part, target=target, drafter=drafter) for drafter in drafters]
    >>> law = ConstantAcceptance(0.7)
    >>> table = compare_drafters([Contender(roofline=pair, acceptance=law, k=3) for pair in pairs])
    >>> [(row["method"], round(row["breakeven_acceptance_length"], 2)) for row in table.rows()]
    [('eagle3', 1.17), ('draft-model', 1.49)]
    """
    if not isinstance(contenders, Sequence) or not contenders:
        raise InputError("contenders", "must be a list of drafters, at least one")
    for contender in contenders:
        axis = AcceptanceAxis.of(contender.acceptance)
        if len(axis) != 1:
            raise InputError(
                "acceptance", f"must be one law for each drafter, not several for {contender.name}"
            )
        axis.require_match_rate(contender.leading.match_rate)
    return DrafterComparison(
        contenders=tuple(contenders),
        batch=np.atleast_1d(require_count("batch", batch, 1, MAX_BATCH)).ravel(),
        context=np.atleast_1d(require_range("context", context, 0)).ravel(),
    ).checked()


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterComparison(Result):
    """One row per drafter × batch × context, the drafters one after another.

    `draft_memory_bytes` is what the draft keeps on one of its devices; `plain_tokens_per_s` and
    `speculative_tokens_per_s` are those of each arm at its own largest batch, up to `MAX_RUNNING`.
    """

    schema: ClassVar[str] = "specmath.drafters/1"
    keys: ClassVar[tuple[str, ...]] = (
        "draft",
        "method",
        "case",
        "alpha",
        "law",
        "k",
        "batch",
        "context",
        "acceptance_length",
        "draft_cost",
        "verify_cost",
        "overhead",
        "speedup",
        "speedup_low",
        "speedup_high",
        "breakeven_acceptance_length",
        "best_k",
        "best_speedup",
        "draft_memory_bytes",
        "max_batch",
        "max_batch_speculative",
        "plain_tokens_per_s",
        "speculative_tokens_per_s",
    )

    contenders: tuple[Contender, ...]
    batch: IntArray
    context: FloatArray

    def __len__(self) -> int:
        return len(self.contenders) * self._cells

    @property
    def _cells(self) -> int:
        return self.batch.size * self.context.size

    def checked(self) -> DrafterComparison:
        """The comparison itself, once every drafter has answered for a cell."""
        for contender in self.contenders:
            contender.table(self.batch, self.context)
        return self

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """What all drafters share; the rest stands in the rows."""
        first, *others = [table.inputs for table in self._tables()]
        return {
            key: value for key, value in first.items() if all(other.get(key) == value for other in others)
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        sentences = [sentence for table in self._tables() for sentence in table.assumptions]
        fitting = (
            f"{one.name}: the law that fits is {one.roofline.drafter.fitting_law}" for one in self.contenders
        )
        running = f"tokens per second are at each arm's largest batch, at most {MAX_RUNNING:,} sequences"
        return tuple(dict.fromkeys([*sentences, running, *fitting]))

    @property
    def warnings(self) -> tuple[Advice, ...]:
        found = [advice for table in self._tables() for advice in table.warnings]
        once = [advice for advice in found if advice.code != "uncalibrated"]
        best = self._tables()[self._best].warnings  # one pair to measure: that of the best drafter
        once += [advice for advice in best if advice.code == "uncalibrated"]
        return tuple(dict.fromkeys(once))

    @property
    def _best(self) -> int:
        """The contender that is fastest on the whole."""
        speedup, _, _ = self._speedups()
        return int(np.log(speedup).mean(axis=1).argmax())

    @property
    def derivation(self) -> tuple[str, ...]:
        return tuple(
            f"{label}: {line}"
            for label, table in zip(self._labels, self._tables(), strict=True)
            for line in table.derivation
        )

    @property
    def verdict(self) -> str:
        if len(self) > VERDICT_ROWS:
            return ""
        speedup, low, high = self._speedups()
        words = [
            self._word(*(bound[:, cell] for bound in (speedup, low, high))) for cell in range(self._cells)
        ]
        basis = self.contenders[0].leading.basis
        if len(words) == 1:
            return f"{words[0]}: {self._ranking(speedup[:, 0], low[:, 0], high[:, 0])}, {basis}"
        best = speedup.max(axis=0)
        return f"{self._told(words)}: {best.min():.2f}× to {best.max():.2f}×, {basis}"

    @property
    def lowest(self) -> float:
        """The smallest speed-up of the best drafter, at the low end of its range."""
        speedup, low, _ = self._speedups()
        best = speedup.argmax(axis=0)
        floors = np.where(np.isnan(low), speedup, low)
        return float(np.take_along_axis(floors, best[None], axis=0).min())

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        for contender, table in zip(self.contenders, self._tables(), strict=True):
            for chunk in table.chunks(size):
                yield {key: chunk[key] for key in self.keys if key in chunk} | self._own(contender, chunk)

    def _own(self, contender: Contender, chunk: Columns) -> Columns:
        """The columns of a drafter beside those of its speed-ups."""
        batch, context = (np.asarray(chunk[key], dtype=float) for key in ("batch", "context"))
        plain, speculative = contender.throughputs(context)
        drafter = contender.roofline.drafter
        return {
            "draft": np.full(batch.shape, drafter.name, dtype=object),
            "method": np.full(batch.shape, drafter.method, dtype=object),
            "draft_memory_bytes": contender.memory_bytes(batch, context),
            "plain_tokens_per_s": plain,
            "speculative_tokens_per_s": speculative,
        }

    def _tables(self) -> list[SpeedupTable]:
        return [contender.table(self.batch, self.context) for contender in self.contenders]

    def _speedups(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Speed-ups and their bounds, shape (drafters, cells); NaN where no range is known."""
        columns = list(self.chunks())
        shape = (len(self.contenders), self._cells)
        speedup, low, high = (
            np.concatenate([np.asarray(chunk[key], dtype=float) for chunk in columns]).reshape(shape)
            for key in ("speedup", "speedup_low", "speedup_high")
        )
        return speedup, low, high

    @property
    def _labels(self) -> list[str]:
        """Names of the drafters, with k or the law where a name alone does not tell them apart."""
        names = [one.name for one in self.contenders]
        told = [f"{one.name} k={one.k}" for one in self.contenders]
        whole = [f"{one.name} k={one.k} {one.acceptance.label}" for one in self.contenders]
        return next((labels for labels in (names, told, whole) if len(set(labels)) == len(labels)), whole)

    def _word(self, speedup: FloatArray, low: FloatArray, high: FloatArray) -> str:
        """Who wins a cell: bounds say whether anything pays, the repeat noise who is ahead."""
        best = int(speedup.argmax())
        judged = judgement(*(float(values[best]) for values in (speedup, low, high)))
        if judged == "SLOWER":
            return "NONE PAYS"
        if judged != "FASTER":
            return f"TOO CLOSE TO CALL whether {self._labels[best]} pays"
        close = [
            place for place in self._leaders(speedup) if speedup[place] * (1 + REPEAT_NOISE) > speedup[best]
        ]
        if len(close) > 1:
            return f"TOO CLOSE TO CALL between {' and '.join(self._labels[rival] for rival in close)}"
        return f"{self._labels[best]} IS FASTEST"

    def _ranking(self, speedup: FloatArray, low: FloatArray, high: FloatArray) -> str:
        """Each drafter at its best k, the fastest first, with its range where it has one."""
        told = [
            f"{label} {value:.2f}×" + ("" if math.isnan(least) else f" ({least:.2f} to {most:.2f})")
            for label, value, least, most in zip(self._labels, speedup, low, high, strict=True)
        ]
        return ", ".join(told[place] for place in self._leaders(speedup))

    def _leaders(self, speedup: FloatArray) -> list[int]:
        """The best contender of each drafter, the fastest first."""
        leaders: dict[str, int] = {}
        for place in np.argsort(-speedup, kind="stable").tolist():
            leaders.setdefault(self.contenders[place].name, place)
        return list(leaders.values())

    def _told(self, words: list[str]) -> str:
        if len(set(words)) == 1:
            return words[0]
        axes: dict[str, npt.NDArray[Any]] = {"batch": self.batch, "context": self.context}
        varying = [(name, [f"{value:g}" for value in axis]) for name, axis in axes.items() if axis.size > 1]
        if len(varying) == 1:
            return told_along(words, varying[0])
        return ", ".join(f"{word} in {count} of {len(words)}" for word, count in Counter(words).most_common())
