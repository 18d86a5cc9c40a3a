"""What a calibration found, as rows: step costs by batch and k beside their proof; or runs and lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from specmath.calibrated_source import Calibrated
from specmath.calibration_text import (
    acceptance_lines,
    accepted_text,
    fit_lines,
    line_seconds_text,
    line_text,
    place_text,
    proof_remarks,
    set_up_options,
    span_text,
    way_text,
)
from specmath.calibrations import AcceptanceRow, Calibration, MeasuredRuns
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
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

    Where the pair was decoded, a row for each temperature and top-p has α by the rule that decides there, its
    acceptance length and its speed-up;
    `measured` is the speed-up of decoding end to end at that very batch and k, `error` the prediction's.

    Attributes:
        calibration: What was measured.
        k: Draft lengths.
        file: Where it was written, for the next command; empty where it was not.
    """

    schema: ClassVar[str] = "specmath.calibration/1"
    keys: ClassVar[tuple[str, ...]] = (
        *("temperature", "top_p", "alpha", "batch", "k", "context"),
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
        machine = dict(known.machine)
        drift = machine.get("drift")
        if isinstance(drift, int | float):
            machine["drift"] = f"{drift:+.1%} of the time of a pass, from the start of the run"
        return {name: getattr(known, name) for name in told} | machine

    @cached_property
    def source(self) -> Calibrated:
        """The calibration as a source of step times."""
        return Calibrated(calibration=self.calibration, name=self.file or "this calibration")

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (*self.source.assumptions, *map(accepted_text, self._decoded))

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return (*self.source.warnings, *self._missed(), *self._slow())

    @property
    def remarks(self) -> tuple[str, ...]:
        return tuple(proof_remarks(self.calibration.proof, self._decoded))

    @property
    def derivation_title(self) -> str:
        return "Constants, acceptance and fit"

    @property
    def derivation(self) -> tuple[str, ...]:
        fits = tuple(line for fit in self.calibration.fits for line in fit_lines(fit))
        return (*fits, *acceptance_lines(self.calibration.acceptance))

    @property
    def details(self) -> Mapping[str, Sequence[_Row]]:
        return {"acceptance": [asdict(row) for row in self.calibration.acceptance]}

    @property
    def verdict(self) -> str:
        parts = [self._proved, self._judged]
        if self.file:
            parts.append(f"use it with --measured {self.file}{self._choice}")
        return "; ".join(part for part in parts if part)

    @property
    def _proved(self) -> str:
        if not self.calibration.proof:
            return "measured, not proved end to end"
        errors = np.abs([row.error for row in self.calibration.proof])
        if errors.size == 1:
            return f"the predicted speed-up is {errors[0]:.1%} off in one end-to-end run"
        missed = f"{np.median(errors):.1%} off (median) and {errors.max():.1%} at worst"
        return f"the predicted speed-up is {missed} in {errors.size} end-to-end runs"

    @property
    def _judged(self) -> str:
        """Where speculation wins, at the best k of each batch; nothing where no acceptance was measured."""
        best: dict[str, dict[int, tuple[float, float, float]]] = {}
        contexts = {row["context"] for row in self._made}
        for row in self._made:
            if row["speedup"] is not None:
                where = _setting(row) + (f", context {row['context']:,g}" if len(contexts) > 1 else "")
                ends = (_real(row["speedup"]), _real(row["speedup_low"]), _real(row["speedup_high"]))
                of_batch = best.setdefault(where, {})
                of_batch[_whole(row["batch"])] = max(of_batch.get(_whole(row["batch"]), (0.0,) * 3), ends)
        told = [
            f"{where}: {told_along([judgement(*ends) for ends in of.values()], ('batch', [*map(str, of)]))}"
            for where, of in best.items()
        ]
        return "; ".join(told) + (" (best k of each)" if told else "")

    @property
    def _choice(self) -> str:
        """Which acceptance a question takes, behind the name of the file; nothing where there is one."""
        settings = dict.fromkeys((row.temperature, row.top_p) for row in self._decoded)
        if len(settings) < 2:
            return ""
        temperature, top_p = list(settings)[-1]
        several = len({one for temperature_, one in settings if temperature_ == temperature}) > 1
        return f",temperature={temperature:g}" + (f",top-p={top_p:g}" if several else "")

    @property
    def _decoded(self) -> list[AcceptanceRow]:
        """Acceptance of whole runs, one row for each way of sampling."""
        rows = self.calibration.acceptance
        return [row for row in rows if row.accepted_at and row.domain == "all" and row.context is None]

    def _listed(self) -> Sequence[_Row]:
        return self._made

    @cached_property
    def _made(self) -> list[_Row]:
        places = [cell.place for cell in self.calibration.cells if cell.place.part == "target"]
        grid = {(float(place.context), place.batch) for place in places}
        grid |= {(float(row.context), row.batch) for row in self.calibration.proof}
        return [
            self._row(source, accepted, batch, k, context)
            for accepted, source in self._sources()
            for context, batch in sorted(grid)
            for k in self.k
        ]

    def _sources(self) -> Iterator[tuple[AcceptanceRow | None, Calibrated]]:
        """Each way of sampling, with the step costs that go with it: a lookup finds more or fewer matches."""
        if not self._decoded:
            yield None, self.source
        for row in self._decoded:
            known = replace(self.calibration, match_rate=row.match_rate)
            is_like = row.match_rate == self.source.match_rate
            yield row, self.source if is_like else replace(self.source, calibration=known)

    def _row(
        self, source: Calibrated, accepted: AcceptanceRow | None, batch: int, k: int, context: float
    ) -> _Row:
        cost = source.step_cost(k, batch, context)
        plain_s, steps = float(cost.plain_s), float(cost.in_plain_steps)
        length = None if accepted is None else accepted.acceptance_length_at(k)
        low, high = (float(end) for end in source.step_bounds(k, batch, context))
        return {
            "temperature": None if accepted is None else accepted.temperature,
            "top_p": None if accepted is None else accepted.top_p,
            "alpha": None if accepted is None else accepted.alpha,
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
                text=f"at {place_text(worst)} the passes predict {worst.predicted_speedup:.2f}×, decoding "
                f"end to end gave {worst.speedup:.2f}× ({worst.error:+.1%})",
                remedy="repeat on an idle machine; if it stays, the loop does something that no pass shows",
            )

    def _slow(self) -> Iterator[Advice]:
        proof = self.calibration.proof
        if proof and all(row.speedup < 1 for row in proof):
            best = max(proof, key=lambda row: row.speedup)
            yield Advice(
                code="slower-end-to-end",
                text=f"every end-to-end run was slower with speculation; the best, at {place_text(best)}, "
                f"gave {best.speedup:.2f}× with E {best.acceptance_length:.2f}",
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
        return {"source": known.source, "origin": known.origin} | dict(known.machine)

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (
            "runs as they were measured: R = E/S is a step in plain steps; (v + o) and c are intercept and "
            "slope of the line of E·TPOT over k, what verifying one more token costs being in the slope",
            *map(line_text, self.measured.lines),
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
        typed = f"--measured {self.file}{set_up_options(self.measured.machine)}"
        return f"{runs}{span}{self._costs}" + (f"; use them with {typed}" if self.file and speedups else "")

    @property
    def _costs(self) -> str:
        """What one line says of a step, or several lines at their ends."""
        costs = [
            (line.intercept_s / line.plain_s, line.slope_s / line.plain_s)
            for line in self.measured.lines
            if line.plain_s is not None
        ]
        if costs:
            fixed, drafts = (span_text(values) for values in zip(*costs, strict=True))
            return f"; in plain steps v + o is {fixed} and c {drafts}"
        if len(self.measured.lines) == 1:
            line = self.measured.lines[0]
            return f"; a step takes {line_seconds_text(line)}"
        return ""

    def _listed(self) -> Sequence[_Row]:
        lines = {(line.batch, line.context): line for line in self.measured.lines}
        rows: list[_Row] = []
        for run in self.measured.runs:
            line = lines.get((run.batch, run.context))
            row: _Row = {
                "batch": run.batch,
                "k": run.k,
                "context": run.context or None,
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


def _setting(row: _Row) -> str:
    return way_text(row["temperature"], row["top_p"])


def _whole(value: Cell) -> int:
    assert isinstance(value, int)
    return value


def _real(value: Cell) -> float:
    assert isinstance(value, float)
    return value
