"""What `accuracy` shows: scores by group, single rows with their errors, and why rows have no prediction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from specmath.accuracy import ALL_ROWS, EACH_SETUP_ONCE, Rerun, ScoredGroup
from specmath.checks import require_count
from specmath.evidence import MIN_SETUPS, MIN_SOURCES
from specmath.measured_speedups import MeasuredSpeedup
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result
from specmath.scoring import Score
from specmath.setups import FILLED, Prediction

_NOISE = (
    "noise floor: one configuration measured twice differs by 1 to 8 % within an engine version, 15 % over "
    "builds, up to 57 % between papers"
)
_WORST_SHOWN = 5
_REASONS_SHOWN = 3
_ROUNDING = 1.02
"""How far a speed-up may lie above its acceptance length by rounding."""
_ERROR = "error = predicted/measured − 1; above 0 the prediction is too optimistic"


def accuracy_table(rerun: Rerun, *, by: str | None = None) -> AccuracyTable:
    """Scores of a rerun: summary and rivals, what an anchor and a line in k buy, then strata.

    Args:
        rerun: What `rerun_measurements` returned.
        by: Strata of one dimension instead of the usual ones: collection, engine, method, batch, context, tp
            or source.

    Raises:
        InputError: for an unknown dimension.

    >>> from specmath.accuracy import rerun_measurements
    >>> table = accuracy_table(rerun_measurements(), by="tp")
    >>> [row["group"] for row in table.rows()][-2:]
    ['tp: one device', 'tp: several devices']
    """
    return AccuracyTable(rerun=rerun, by=by, groups=rerun.scores(by))


def point_table(rerun: Rerun, *, worst: int | None = None) -> PointTable:
    """Every row with its prediction and error, in file order.

    Args:
        rerun: What `rerun_measurements` returned.
        worst: Only so many rows, those with the largest factor between predicted and measured first.
    """
    rows = list(zip(rerun.measurements, rerun.predictions, rerun.reasons, strict=True))
    if worst is not None:
        require_count("worst", worst, 1)
        scored = [point for point in rows if point[1] is not None]
        rows = sorted(scored, key=lambda point: -_factor(point[0], point[1]))[:worst]
    return PointTable(rerun=rerun, points=tuple(rows))


def left_out_table(rerun: Rerun) -> LeftOutTable:
    """Why rows have no prediction, and how many each reason takes, the most frequent first."""
    return LeftOutTable(rerun=rerun)


@dataclass(frozen=True, kw_only=True)
class _RerunTable(Result):
    """What the tables of one rerun share."""

    rerun: Rerun

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """Predictor and number of rows."""
        return {"predictor": self.rerun.predictor, "rows": len(self.rerun.measurements)}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What an error is, how far measurements agree, and what was filled in."""
        return (_ERROR, _NOISE, *FILLED)

    def _columns(self, rows: Sequence[Mapping[str, Cell]], size: int) -> Iterator[Columns]:
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield {key: [row[key] for row in part] for key in self.keys}


@dataclass(frozen=True, kw_only=True)
class AccuracyTable(_RerunTable):
    """Scores, one group of rows and one predictor a row.

    Attributes:
        rerun: The rows and their predictions.
        by: The dimension that was asked for; None for the usual ones.
        groups: The scores.
    """

    by: str | None
    groups: tuple[ScoredGroup, ...]

    schema: ClassVar[str] = "specmath.accuracy/1"
    keys: ClassVar[tuple[str, ...]] = (
        "group",
        "predictor",
        *(field.name for field in fields(Score)),
        "sources",
        "evidence",
    )

    @property
    def inputs(self) -> Mapping[str, Cell]:
        """Predictor, number of rows, and the dimension asked for."""
        return {**super().inputs, "by": self.by}

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What an error is, rows used and left out, then the rest."""
        base = super().assumptions
        thin = f"evidence is thin below {MIN_SETUPS} set-ups or {MIN_SOURCES} sources"
        once = "each set-up once: the n rows of a set-up weigh 1/n each, since they share their mistakes"
        anchor = (
            "one anchor: each row of a set-up in turn corrects the others by one factor; its rows are pairs"
        )
        return (base[0], self._used, base[1], once, anchor, thin, *base[2:])

    @property
    def _used(self) -> str:
        used, counts = len(self.rerun.rows), self.rerun.left_out_counts()
        reasons = [f"{count} {reason}" for reason, count in counts.items()]
        listed = "; ".join(reasons[:_REASONS_SHOWN] + ["…"] * (len(reasons) > _REASONS_SHOWN))
        told = f", {sum(counts.values())} left out ({listed})" if counts else ""
        return f"{used} of {len(self.rerun.measurements)} rows used{told}; none for its error"

    @property
    def verdict(self) -> str:
        """Error, order and rivals in one sentence."""
        if not self.groups:
            return "NOTHING TO SCORE: no row has a prediction"
        own, score = self.groups[0].predictor, self.groups[0].score
        correlation = (
            "" if np.isnan(score.log_correlation) else f", log correlation {score.log_correlation:.2f}"
        )
        figures = f"median error {score.median_error:.0%}, p90 {score.p90_error:.0%}{correlation}"
        worse = self._unbeaten()
        told = f"not better than {', '.join(worse)}" if worse else "better than each rival"
        return f"{own}: {figures} on {score.rows} rows of {score.setups} set-ups; {told} on all three"

    def _unbeaten(self) -> list[str]:
        """Rivals that are as good on median, p90 or log correlation, on all rows or with each set-up once."""
        found = []
        for group in (ALL_ROWS, EACH_SETUP_ONCE):
            own, *rivals = (one for one in self.groups if one.group == group)
            found += [rival.predictor for rival in rivals if not _beats(own.score, rival.score)]
        return list(dict.fromkeys(found))

    @property
    def derivation(self) -> tuple[str, ...]:
        """The rows that are furthest off."""
        return tuple(
            f"far off: {row.id}, {row.method} in {row.engine}, predicted {guess.speedup:.2f}, "
            f"measured {row.speedup:.2f}"
            for row, guess, _ in point_table(self.rerun, worst=_WORST_SHOWN).points
            if guess is not None
        )

    @property
    def warnings(self) -> tuple[Advice, ...]:
        """Rows that gain more than their acceptance length: a step shorter than a plain one is doubtful."""
        rows = self.rerun.rows
        above = [row.id for row in rows if (row.speedup or 0) > _ROUNDING * (row.acceptance_length or 0)]
        if not above:
            return ()
        listed = ", ".join(above[:3]) + (", …" if len(above) > 3 else "")
        text = f"{len(above)} rows gain more than their acceptance length ({listed})"
        remedy = "check that both arms and the acceptance are of the same run"
        return (Advice(code="above-acceptance-length", text=text, remedy=remedy),)

    def __len__(self) -> int:
        return len(self.groups)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` groups at a time."""
        return self._columns([_group_row(found) for found in self.groups], size)


@dataclass(frozen=True, kw_only=True)
class PointTable(_RerunTable):
    """Measured rows with their predictions.

    Attributes:
        rerun: The rerun they come from.
        points: Row, prediction (or None) and why there is none.
    """

    points: tuple[tuple[MeasuredSpeedup, Prediction | None, str], ...]

    schema: ClassVar[str] = "specmath.accuracy-rows/1"
    keys: ClassVar[tuple[str, ...]] = (
        *("id", "source", "engine", "hardware", "target", "method", "draft", "k", "batch", "context"),
        *("acceptance_length", "measured", "speedup", "speedup_low", "speedup_high", "error"),
        *("assumed", "left_out"),
    )

    def __len__(self) -> int:
        return len(self.points)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` rows at a time."""
        return self._columns([_point_row(*point) for point in self.points], size)


@dataclass(frozen=True, kw_only=True)
class LeftOutTable(_RerunTable):
    """Reasons for which rows have no prediction."""

    schema: ClassVar[str] = "specmath.accuracy-left-out/1"
    keys: ClassVar[tuple[str, ...]] = ("left_out", "rows")

    @property
    def assumptions(self) -> tuple[str, ...]:
        """That no row is dropped for its error."""
        return ("a row is left out for what its source or the catalogue does not say, never for its error",)

    def __len__(self) -> int:
        return len(self.rerun.left_out_counts())

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        """The columns, at most `size` reasons at a time."""
        counts = self.rerun.left_out_counts().items()
        return self._columns([{"left_out": reason, "rows": count} for reason, count in counts], size)


def _group_row(found: ScoredGroup) -> dict[str, Cell]:
    return {
        "group": found.group,
        "predictor": found.predictor,
        **{field.name: getattr(found.score, field.name) for field in fields(Score)},
        "sources": found.sources,
        "evidence": "thin" if found.is_thin else "",
    }


def _point_row(row: MeasuredSpeedup, prediction: Prediction | None, reason: str) -> dict[str, Cell]:
    own = ("id", "source", "engine", "hardware", "target", "method", "draft", "k", "batch", "context")
    return {
        **{name: getattr(row, name) for name in own},
        "hardware": row.hardware or row.stated_hardware,
        "target": row.target or row.stated_target,
        "draft": row.draft or row.stated_draft,
        "acceptance_length": row.acceptance_length,
        "measured": row.speedup,
        "speedup": prediction and prediction.speedup,
        "speedup_low": prediction and prediction.low,
        "speedup_high": prediction and prediction.high,
        "error": prediction and prediction.speedup / (row.speedup or np.nan) - 1,
        "assumed": "; ".join(row.assumed) or None,
        "left_out": reason or None,
    }


def _factor(row: MeasuredSpeedup, prediction: Prediction | None) -> float:
    return float(abs(np.log((prediction.speedup if prediction else np.nan) / (row.speedup or np.nan))))


def _beats(one: Score, other: Score) -> bool:
    """Whether median, p90 and log correlation are all better; a constant has no correlation to beat."""
    ordered = np.isnan(other.log_correlation) or one.log_correlation > other.log_correlation
    return bool(one.median_error < other.median_error and one.p90_error < other.p90_error and ordered)
