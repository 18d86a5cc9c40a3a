"""What a calibration found, as rows: step costs by batch and k beside their proof; or runs and lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from specmath.calibrated_source import Calibrated
from specmath.calibrations import AcceptanceRow, Calibration, MeasuredRuns, PartFit, ProofRow, RunLine
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
from specmath.units import format_quantity, format_significant
from specmath.verdicts import judgement, told_along

FAR_OFF = 0.1
"""Error of a proof from which on a reader is told to distrust the calibration."""
_Row = dict[str, Cell]


class _Rows(Result):
    """A result whose rows are few and made one by one."""

    __slots__ = ()

    def _listed(self) -> Sequence[_Row]:
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self._listed())

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        rows = self._listed()
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            yield {key: [row.get(key) for row in some] for key in self.keys}


@dataclass(frozen=True, kw_only=True)
class CalibrationTable(_Rows):
    """Step costs of a calibrated machine at its own batches, contexts and draft lengths.

    Where the pair was decoded, a row for each temperature and top-p has its acceptance length and speed-up;
    `measured` is the speed-up of decoding end to end at that very batch and k, `error` the prediction's.

    Attributes:
        calibration: What was measured.
        k: Draft lengths.
        file: Where it was written, for the next command; empty where it was not.
    """

    schema: ClassVar[str] = "specmath.calibration/1"
    keys: ClassVar[tuple[str, ...]] = (
        *("temperature", "top_p", "batch", "k", "context"),
        *("target_s", "draft_s", "verify_s", "step_s", "draft_cost", "verify_cost", "overhead"),
        *("breakeven_acceptance_length", "acceptance_length", "speedup", "speedup_low", "speedup_high"),
        *("measured", "predicted", "error"),
    )

    calibration: Calibration
    k: tuple[int, ...]
    file: str = ""

    @property
    def inputs(self) -> Mapping[str, Cell]:
        known = self.calibration
        told = ("target", "draft", "method", "regime", "dtype", "created")
        return {name: getattr(known, name) for name in told} | dict(known.machine)

    @cached_property
    def source(self) -> Calibrated:
        """The calibration as a source of step times."""
        return Calibrated(calibration=self.calibration, name=self.file or "this calibration")

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (*self.source.assumptions, *map(_accepted, self.calibration.acceptance))

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return (*self.source.warnings, *self._missed(), *self._slow())

    @property
    def derivation(self) -> tuple[str, ...]:
        return tuple(line for fit in self.calibration.fits for line in _fitted(fit))

    @property
    def verdict(self) -> str:
        parts = [self._proved, self._judged]
        if self.file:
            parts.append(f"use it with --measured {self.file}")
        return "; ".join(part for part in parts if part)

    @property
    def _proved(self) -> str:
        if not self.calibration.proof:
            return "measured, not proved end to end"
        errors = np.abs([row.error for row in self.calibration.proof])
        runs = f"{errors.size} end-to-end runs" if errors.size > 1 else "one end-to-end run"
        worst = f", {errors.max():.1%} at worst," if errors.size > 1 else ""
        return f"predicts the speed-up of {runs} within {np.median(errors):.1%}{worst} as measured here"

    @property
    def _judged(self) -> str:
        """Where speculation wins, at the best k of each batch; nothing where no acceptance was measured."""
        best: dict[tuple[str, int], tuple[float, float, float]] = {}
        for row in self._listed():
            if row["speedup"] is not None:
                place = _setting(row), _whole(row["batch"])
                ends = (_real(row["speedup"]), _real(row["speedup_low"]), _real(row["speedup_high"]))
                best[place] = max(best.get(place, (0.0, 0.0, 0.0)), ends)
        told = []
        for setting in dict.fromkeys(setting for setting, _ in best):
            batches = {batch: judgement(*ends) for (where, batch), ends in best.items() if where == setting}
            along = told_along(list(batches.values()), ("batch", [str(batch) for batch in batches]))
            told.append(f"{setting}: {along}")
        return ", ".join(told) + (" (best k of each)" if told else "")

    def _listed(self) -> Sequence[_Row]:
        return self._made

    @cached_property
    def _made(self) -> list[_Row]:
        places = [cell.place for cell in self.calibration.cells if cell.place.part == "target"]
        grid = sorted({(place.context, place.batch) for place in places})
        decoded: list[AcceptanceRow | None] = [
            row for row in self.calibration.acceptance if row.drafts and row.domain == "all"
        ]
        proofs = {(row.context, row.batch) for row in self.calibration.proof}
        return [
            self._row(accepted, batch, k, context)
            for accepted in decoded or [None]
            for context, batch in sorted({*grid, *proofs})
            for k in self.k
        ]

    def _row(self, accepted: AcceptanceRow | None, batch: int, k: int, context: float) -> _Row:
        cost = self.source.step_cost(k, batch, context)
        plain_s, steps = float(cost.plain_s), float(cost.in_plain_steps)
        length = _length(accepted, k)
        low, high = (float(end) for end in self.source.step_bounds(k, batch, context))
        return {
            "temperature": None if accepted is None else accepted.temperature,
            "top_p": None if accepted is None else accepted.top_p,
            "batch": batch,
            "k": k,
            "context": context,
            "target_s": plain_s,
            "draft_s": plain_s * float(cost.draft_cost),
            "verify_s": plain_s * float(cost.verify_cost),
            "step_s": plain_s * steps,
            "draft_cost": float(cost.draft_cost),
            "verify_cost": float(cost.verify_cost),
            "overhead": float(cost.overhead),
            "breakeven_acceptance_length": steps,
            "acceptance_length": length,
            "speedup": length and length / steps,
            "speedup_low": length and length / high,
            "speedup_high": length and length / low,
            **self._proof_at(accepted, batch, k, context),
        }

    def _proof_at(self, accepted: AcceptanceRow | None, batch: int, k: int, context: float) -> _Row:
        """The proof at this place, which was sampled in one way."""
        for row in self.calibration.proof:
            sampled = accepted is None or (row.temperature, row.top_p) == (
                accepted.temperature,
                accepted.top_p,
            )
            if sampled and (row.batch, row.k, row.context) == (batch, k, context):
                return {"measured": row.speedup, "predicted": row.predicted_speedup, "error": row.error}
        return {}

    def _missed(self) -> Iterator[Advice]:
        worst = max(self.calibration.proof, key=lambda row: abs(row.error), default=None)
        if worst is not None and abs(worst.error) > FAR_OFF:
            yield Advice(
                code="proof-missed",
                text=f"at {_place(worst)} the passes predict {worst.predicted_speedup:.2f}×, decoding end to "
                f"end gave {worst.speedup:.2f}× ({worst.error:+.1%})",
                remedy="repeat on an idle machine; if it stays, the loop does something that no pass shows",
            )

    def _slow(self) -> Iterator[Advice]:
        proof = self.calibration.proof
        if proof and all(row.speedup < 1 for row in proof):
            best = max(proof, key=lambda row: row.speedup)
            yield Advice(
                code="slower-end-to-end",
                text=f"every end-to-end run was slower with speculation; the best, at {_place(best)}, "
                f"gave {best.speedup:.2f}×",
                remedy="a cheaper draft, a shorter k, or no speculation on this machine",
            )


@dataclass(frozen=True, kw_only=True)
class RunsTable(_Rows):
    """Runs of an engine as they were measured, with the line over k that they lie on.

    Attributes:
        measured: The runs.
        file: Where they were written; empty where they were not.
    """

    schema: ClassVar[str] = "specmath.measured_runs/1"
    keys: ClassVar[tuple[str, ...]] = (
        *("batch", "k", "context", "acceptance_length", "target_s", "step_s", "step_cost"),
        *("speedup", "fixed_cost", "draft_cost", "line_error", "left_out_error"),
    )

    measured: MeasuredRuns
    file: str = ""

    @property
    def inputs(self) -> Mapping[str, Cell]:
        known = self.measured
        return {"source": known.source, "origin": known.origin, "created": known.created} | dict(
            known.machine
        )

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "runs as they were measured: R = E/S is a step in plain steps; (v + o) and c are intercept and "
            "slope of the line of E·TPOT over k, what verifying one more token costs being in the slope",
            *map(_line_text, self.measured.lines),
            *(arm.text for arm in self.measured.arms),
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return self.measured.warnings

    @property
    def verdict(self) -> str:
        speedups = [run.times_faster for run in self.measured.runs if not np.isnan(run.times_faster)]
        runs = f"{len(self.measured.runs)} run" + ("s" if len(self.measured.runs) != 1 else "")
        span = f", {min(speedups):.2f}× to {max(speedups):.2f}×" if speedups else ", no plain run beside them"
        use = f"; use them with --measured {self.file}" if self.file and speedups else ""
        return f"{runs}{span}{use}"

    def _listed(self) -> Sequence[_Row]:
        lines = {(line.batch, line.context): line for line in self.measured.lines}
        rows: list[_Row] = []
        for run in self.measured.runs:
            line = lines.get((run.batch, run.context))
            row: _Row = {
                "batch": run.batch,
                "k": run.k,
                "context": run.context,
                "acceptance_length": run.acceptance_length,
                "target_s": run.plain_step_s,
                "step_s": run.step_s,
                "step_cost": run.in_plain_steps,
                "speedup": run.times_faster,
            }
            if line is not None:
                row["line_error"], row["left_out_error"] = line.worst_error, line.worst_left_out
                if line.plain_s is not None:
                    row["fixed_cost"] = line.intercept_s / line.plain_s
                    row["draft_cost"] = line.slope_s / line.plain_s
            rows.append(row)
        return rows


def _length(accepted: AcceptanceRow | None, k: int) -> float | None:
    """E at k by the counts of a run of at least k; None without one."""
    if accepted is None or len(accepted.survival) < k:
        return None
    return 1 + sum(accepted.survival[:k])


def _setting(row: _Row) -> str:
    top_p = "" if row["top_p"] == 1 else f", top-p {row['top_p']:g}"
    return f"T = {row['temperature']:g}{top_p}"


def _whole(value: Cell) -> int:
    assert isinstance(value, int)
    return value


def _real(value: Cell) -> float:
    assert isinstance(value, float)
    return value


def _place(row: ProofRow) -> str:
    return f"batch {row.batch}, k {row.k}, context {row.context:g}"


def _accepted(row: AcceptanceRow) -> str:
    """One row of acceptance as a sentence."""
    top_p = "" if row.top_p == 1 else f", top-p {row.top_p:g}"
    where = "" if row.domain == "all" else f", {row.domain}"
    where += "" if row.context is None else f", near context {row.context:,.0f}"
    lossy = "" if row.lossless else " (lossy)"
    told = f"acceptance by {row.rule}{lossy} at T = {row.temperature:g}{top_p}{where}:"
    if row.alpha is not None:
        told += f" α {row.alpha:.3f}"
        if row.alpha_low is not None and row.alpha_high is not None:
            told += f" ({row.alpha_low:.3f}–{row.alpha_high:.3f})"
        told += f" over {row.positions:,} positions of {row.requests} texts"
    if row.drafts:
        positions = "/".join(f"{share:.3f}" for share in row.survival)
        told += f"; decoded with k = {row.k}: E {row.acceptance_length:.3f}, survival {positions}"
    return told


def _fitted(fit: PartFit) -> Iterator[str]:
    """The constants of a law with their errors, and how well it holds."""
    for constant in fit.constants:
        unit = "s" if constant.name.endswith(("_s", "_per_token", "_per_sequence")) else ""
        value = format_quantity(constant.value, unit) if unit else format_significant(constant.value)
        error = constant.standard_error
        spread = f" ± {error / constant.value:.1%}" if error and constant.value else ""
        known = "" if constant.is_identified else ", not identified"
        yield f"{fit.part}: {constant.name} = {value}{spread}, {constant.largest_share:.0%} at most{known}"
    errors, left_out = np.abs(fit.errors), np.abs(fit.left_out_errors)
    if errors.size:
        told = f"{np.median(errors):.1%} (median) and {errors.max():.1%} (worst)"
        outside = f"; cells left out: {np.nanmedian(left_out):.1%} and {np.nanmax(left_out):.1%}"
        yield f"{fit.part}: the law misses its {errors.size} cells by {told}" + (
            outside if np.isfinite(left_out).any() else ""
        )
    for flag in fit.flags:
        place = flag.place
        where = f"batch {place.batch}, {place.width} tokens, context {place.context:,}"
        yield f"{fit.part}: {flag.kind} at {where}, {flag.ratio:.2f} times"


def _line_text(line: RunLine) -> str:
    intercept, slope = format_quantity(line.intercept_s, "s"), format_quantity(line.slope_s, "s")
    left = "" if line.worst_left_out is None else f", {line.worst_left_out:.1%} with that k left out"
    return (
        f"batch {line.batch:g}, context {line.context:g}: E·TPOT = {intercept} + {slope}·k, "
        f"{line.worst_error:.1%} off at worst{left}"
    )
