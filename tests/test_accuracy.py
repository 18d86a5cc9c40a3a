"""The rerun of the public measurements: figures that are known from elsewhere, groups, tables, command."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specmath.accuracy import ALL_ROWS, Rerun, rerun_measurements
from specmath.accuracy_tables import accuracy_table, left_out_table, point_table
from specmath.anchors import anchored
from specmath.cli import run
from specmath.errors import InputError, UnknownNameError
from specmath.measured_speedups import MeasuredSpeedup
from specmath.measurement_files import public_measurements
from specmath.measurements import Measurement
from specmath.scoring import Score, score_predictions
from specmath.setups import Prediction, predictions, profiled_of, roofline_of, textbook_speedup
from specmath.sources import Ratios, StepTimeSource
from specmath.strata import DIMENSIONS, evidence_for, evidence_of, stratified
from specmath.verdicts import judgement

PUBLIC = public_measurements()
OLDER = [row for row in PUBLIC if row.collection == "older" and row.is_usable]


@pytest.fixture(scope="module")
def rerun() -> Rerun:
    return rerun_measurements(predictor="ideal")


@pytest.fixture(scope="module")
def forecast() -> Rerun:
    return rerun_measurements()


def predicted(source: StepTimeSource, row: MeasuredSpeedup) -> Prediction:
    return predictions(source, [row])[0]


def score_of(predictions: np.ndarray) -> Score:
    return score_predictions(predictions, np.array([row.speedup for row in OLDER], dtype=float))


def lengths() -> np.ndarray:
    return np.array([row.acceptance_length for row in OLDER], dtype=float)


# The rivals, as an independent evaluation of the same 186 rows found them


def test_e_over_a_constant_on_the_186_older_rows() -> None:
    """Median 20 %, p90 73 %; E alone correlates at .70."""
    score = score_of(lengths() / 1.5)
    assert score.rows == 186
    assert round(score.median_error, 2) == 0.20
    assert round(score.p90_error, 2) == 0.73
    assert round(score.log_correlation, 2) == 0.70


def test_a_constant_on_the_186_older_rows() -> None:
    """1.6 for everything: median 27 %, p90 72 %; wrong on every slowdown."""
    score = score_of(np.full(186, 1.6))
    assert round(score.median_error, 2) == 0.27
    assert round(score.p90_error, 2) == 0.72
    assert score.sign == pytest.approx(1 - score.slowdowns / 186)
    assert score.balanced_sign == 0.5


def test_the_ideal_and_the_textbook_on_the_older_rows_that_can_be_counted() -> None:
    """Elsewhere 24 / 72 and 28 / 97 on all 186; here the 178 with a shape and a part."""
    rerun = rerun_measurements(OLDER, predictor="ideal")
    assert len(rerun.rows) == 178
    groups = {found.predictor: found.score for found in rerun.scores()[:4]}
    ideal, textbook = groups["ideal"], groups["textbook E/(1 + c·k)"]
    assert ideal.median_error == pytest.approx(0.24, abs=0.03)
    assert ideal.p90_error == pytest.approx(0.72, abs=0.06)
    assert ideal.log_correlation == pytest.approx(0.77, abs=0.03)
    assert textbook.median_error == pytest.approx(0.28, abs=0.04)
    assert textbook.p90_error == pytest.approx(0.97, abs=0.06)


def test_a_line_over_k_beats_every_model() -> None:
    """Leave-one-k-out: a median of 1 to 3 % against more than 10 % of the datasheet."""
    found = {group.predictor: group.score for group in rerun_measurements(OLDER, predictor="ideal").scores()}
    assert found["line in k, that k left out"].median_error < 0.03
    assert found["ideal, one anchor"].median_error < found["ideal"].median_error / 2


# Predictions


def test_no_row_is_left_out_for_its_error(rerun: Rerun) -> None:
    """Every usable row but those without a shape or a part is predicted."""
    usable = [row for row in PUBLIC if row.is_usable]
    missing = {row.id for row in usable} - {row.id for row in rerun.rows}
    assert {ident[:3] for ident in missing} == {"N24", "N64", "M26"}
    assert len(missing) == 12
    assert sum(rerun.left_out_counts().values()) + len(rerun.rows) == len(PUBLIC)


def test_a_prediction_is_e_over_the_sources_step() -> None:
    row = next(row for row in PUBLIC if row.id == "V207-03")  # k 4, batch 1, context 350, chain
    cost = roofline_of(row).step_cost(4, 1, 350.0)
    assert predicted(roofline_of(row), row).speedup == pytest.approx(2.39 / float(cost.in_plain_steps))


class Ranged(Ratios):
    """R = 1.5 for every step, known to lie between 1.2 and 2."""

    def step_bounds(self, k: object, batch: object, context: object, **_: object) -> Any:
        return np.array(1.2), np.array(2.0)


def test_the_largest_step_gives_the_low_end_of_the_range() -> None:
    row = MeasuredSpeedup(id="a", source="s", k=1, batch=1, acceptance_length=1.8, speedup=1.1)
    found = predicted(Ranged(draft_cost=0.5), row)
    assert (found.low, found.speedup, found.high) == pytest.approx((0.9, 1.2, 1.5))


def test_a_tree_verifies_its_nodes_and_drafts_its_depth() -> None:
    row = next(row for row in PUBLIC if row.id == "MOE-06")  # 8 levels, 60 nodes
    cost = roofline_of(row).step_cost(8, 1, 350.0, width=61, passes=8)
    assert predicted(roofline_of(row), row).speedup == pytest.approx(3.2 / float(cost.in_plain_steps))


def test_the_textbook_counts_bytes_by_hand() -> None:
    """T5-small on T5-XXL: decoder bytes of the two, one draft pass per token, free verification."""
    row = next(row for row in PUBLIC if row.id == "LEV-01")
    setup = roofline_of(row)
    draft = setup.drafter.model
    assert draft is not None
    cost = draft.read_params * 2 / (setup.target.read_params * 2)
    assert textbook_speedup(row) == pytest.approx(3.5995 / (1 + 7 * cost), rel=1e-9)


def test_weights_stored_in_fewer_bits_are_read_as_such() -> None:
    by_format = {
        weights: roofline_of(
            replace(next(row for row in PUBLIC if row.id == "N79-01"), weights=weights)
        ).target
        for weights in ("bf16", "q8_0", "q4_k")
    }
    widths = {name: shape.weight_bytes / by_format["bf16"].weight_bytes for name, shape in by_format.items()}
    assert 8.5 / 16 < widths["q8_0"] < 0.6
    assert 4.85 / 16 < widths["q4_k"] < 0.4


def test_one_anchor_is_the_factor_of_the_anchors_module(rerun: Rerun) -> None:
    """Two rows of one set-up: the corrected prediction is that of `anchored` with the other as the pair."""
    first, second = (row for row in PUBLIC if row.id in ("V207-01", "V207-05"))
    pair = Measurement(
        k=first.k or 0,
        batch=1,
        context=first.context or 0,
        acceptance_length=first.acceptance_length or 0,
        speedup=first.speedup or 0,
    )
    expected = predicted(anchored(roofline_of(first), [pair]), second).speedup
    plain = [predicted(roofline_of(row), row).speedup for row in (first, second)]
    assert plain[1] * (first.speedup or 0) / plain[0] == pytest.approx(expected, rel=1e-9)


def test_rows_of_one_setup_are_predicted_together_as_one_by_one(forecast: Rerun) -> None:
    for row, prediction in list(zip(forecast.rows, forecast.predicted, strict=True))[::20]:
        alone = predicted(profiled_of(row), row)
        assert prediction.speedup == pytest.approx(alone.speedup, rel=1e-12)
        assert (prediction.low, prediction.high) == pytest.approx((alone.low, alone.high), rel=1e-12)


@pytest.mark.parametrize(
    ("ident", "profile"),
    [
        pytest.param("V207-01", "vllm", id="the engine's"),
        pytest.param("E3-10", "transformers", id="eager research code"),
        pytest.param("LEV-01", "typical", id="compiled research code"),
        pytest.param("N60-01", "llama.cpp-metal", id="the engine's on Apple"),
        pytest.param("N58-01", "cpu", id="the engine's on a CPU"),
    ],
)
def test_a_row_is_predicted_by_the_profile_of_its_engine(ident: str, profile: str) -> None:
    (row,) = (row for row in PUBLIC if row.id == ident)
    assert profiled_of(row).profile.name == profile


def test_one_profile_for_all_rows() -> None:
    row = next(row for row in PUBLIC if row.id == "V207-01")
    assert profiled_of(row, "sglang").profile.name == "sglang"
    rerun = rerun_measurements([row], predictor="sglang")
    assert rerun.predictor == "sglang profile"
    assert rerun.predicted[0].speedup == pytest.approx(predicted(profiled_of(row, "sglang"), row).speedup)


def test_a_row_beyond_its_source_leaves_the_others_alone() -> None:
    """A block drafter fills 16 tokens at most; a row with more has no prediction."""
    row = next(row for row in PUBLIC if row.id == "M26-424")
    rows = [row, replace(row, id="long", k=40), replace(row, id="b", batch=2)]
    found = rerun_measurements(rows)
    assert [one.id for one in found.rows] == [row.id, "b"]
    assert "k: must be at most" in found.reasons[1]


@pytest.mark.parametrize("collection", ["older", "2026"])
def test_the_forecast_beats_each_rival_on_all_rows_of_a_collection(collection: str) -> None:
    """On median, p90 and log correlation at once; what holds with each set-up once, the verdict says."""
    rows = [row for row in PUBLIC if row.collection == collection]
    own, *rivals = (found.score for found in rerun_measurements(rows).scores() if found.group == ALL_ROWS)
    assert len(rivals) == 4
    for rival in rivals:
        assert own.median_error < rival.median_error
        assert own.p90_error < rival.p90_error
        assert np.isnan(rival.log_correlation) or own.log_correlation > rival.log_correlation
    assert own.coverage > 0  # its rows have ranges


def test_your_own_predictor_and_its_range() -> None:
    def guess(row: MeasuredSpeedup) -> Prediction:
        if row.method == "mtp":
            raise InputError("method", "is not mine")
        return Prediction(speedup=1.6, low=0.8, high=3.2)

    rerun = rerun_measurements(OLDER, predictor=guess)
    assert rerun.left_out_counts() == {"method: is not mine": sum(row.method == "mtp" for row in OLDER)}
    score = rerun.scores()[0].score
    assert score.width == pytest.approx(4)
    assert score.slowdowns_in_range == 1
    assert score.coverage == pytest.approx(np.mean((rerun.measured >= 0.8) & (rerun.measured <= 3.2)))
    assert rerun.scores()[0].predictor == "yours"


# Groups and evidence


def test_setups_of_the_public_rows() -> None:
    """Eight of the 2026 ones differ in decode context parallelism only: four of Kimi, four of GLM."""
    setups: dict[str | None, set[object]] = {row.collection: set() for row in PUBLIC}
    for row in PUBLIC:
        if row.is_usable:
            setups[row.collection].add(row.setup)
    assert {name: len(found) for name, found in setups.items()} == {"older": 76, "2026": 15}


def test_the_rivals_are_their_formulas(rerun: Rerun) -> None:
    lengths = np.array([row.acceptance_length for row in rerun.rows], dtype=float)
    np.testing.assert_allclose(rerun.rivals["E/1.5"], lengths / 1.5)
    np.testing.assert_allclose(rerun.rivals["constant 1.6"], 1.6)
    assert set(rerun.rivals) == {"E/1.5", "constant 1.6", "textbook E/(1 + c·k)"}


def test_strata_divide_the_rows(rerun: Rerun) -> None:
    for dimension in DIMENSIONS:
        places = [place for found in stratified(rerun.rows, dimension).values() for place in found]
        assert sorted(places) == list(range(len(rerun.rows)))


def test_evidence_counts_rows_setups_and_sources() -> None:
    base = MeasuredSpeedup(id="a", source="s", k=1, batch=1, acceptance_length=1.5, speedup=1.2)
    rows = [
        base,
        replace(base, id="b", k=2),
        replace(base, id="c", source="t"),
        replace(base, id="d", usable="no"),
    ]
    found = evidence_of(rows)
    assert (found.rows, found.setups, found.sources) == (3, 2, 2)
    assert found.is_thin
    assert not evidence_of([*rows, replace(base, id="e", target="llama-3.1-8b")]).is_thin


def test_a_forecast_is_told_where_nothing_has_been_measured() -> None:
    thin = evidence_for(PUBLIC, method="dspark", batch=64, context=100_000, devices=8)
    assert thin.advice is not None
    assert thin.advice.code == "thin-evidence"
    assert (
        "nothing measured in public for block drafter, batch above 16, context 4k and above"
        in thin.advice.text
    )
    assert evidence_for(PUBLIC, method="eagle", batch=1).advice is None
    assert evidence_for(PUBLIC).rows == 429


def test_a_stratum_of_one_source_is_marked(rerun: Rerun) -> None:
    marks = {row["group"]: row["evidence"] for row in accuracy_table(rerun).rows()}
    assert marks["method: block drafter"] == marks["engine: transformers"] == "thin"
    assert marks["method: mtp"] == ""


# Tables


def test_the_verdict_names_the_rivals_that_are_not_beaten(rerun: Rerun) -> None:
    table = accuracy_table(rerun)
    assert "ideal: median error 27%" in table.verdict
    assert "not better than E/1.5 on all three" in table.verdict
    perfect = rerun_measurements(OLDER, predictor=lambda row: Prediction(speedup=row.speedup or 0))
    assert "better than each rival on all three" in accuracy_table(perfect).verdict
    assert accuracy_table(rerun_measurements([], predictor="ideal")).verdict.startswith("NOTHING TO SCORE")


def test_a_rival_is_scored_on_the_rows_it_can_count() -> None:
    """A predictor that knows all 186 rows stands beside a textbook that lacks eight shapes or parts."""
    perfect = rerun_measurements(OLDER, predictor=lambda row: Prediction(speedup=row.speedup or 0))
    counts = {found.predictor: found.score.rows for found in perfect.scores()[:5]}
    assert counts["yours"] == counts["E/1.5"] == 186
    assert counts["textbook E/(1 + c·k)"] == counts["ideal"] == 178


def test_the_worst_rows_come_first(rerun: Rerun) -> None:
    factors = [abs(np.log(row["speedup"] / row["measured"])) for row in point_table(rerun, worst=20).rows()]  # type: ignore[operator]
    assert len(factors) == 20
    assert factors == sorted(factors, reverse=True)
    assert factors[0] == pytest.approx(np.abs(np.log(rerun.speedups / rerun.measured)).max())


def test_every_row_is_listed_with_its_error_or_its_reason(rerun: Rerun) -> None:
    rows = list(point_table(rerun).rows())
    assert [row["id"] for row in rows] == [row.id for row in PUBLIC]
    assert all((row["error"] is None) == (row["left_out"] is not None) for row in rows)


def test_reasons_are_counted(rerun: Rerun) -> None:
    counts = [row["rows"] for row in left_out_table(rerun).rows()]
    assert counts == sorted(counts, reverse=True)  # type: ignore[type-var]
    assert sum(counts) == len(PUBLIC) - len(rerun.rows)  # type: ignore[arg-type]


def test_gains_above_the_acceptance_length_are_a_warning(rerun: Rerun) -> None:
    (advice,) = accuracy_table(rerun).warnings
    assert "4 rows gain more than their acceptance length (LEV-07, LEV-10, LEV-11, …)" in advice.text


# The command


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["accuracy", *arguments]) == 0
    return capsys.readouterr().out


def test_the_command_prints_what_the_library_returns(
    rerun: Rerun, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(output(capsys, "--profile", "ideal", "-f", "json", "--by", "batch"))
    assert document["rows"] == list(accuracy_table(rerun, by="batch").rows())
    assert document["inputs"] == {"predictor": "ideal", "rows": 816, "by": "batch"}
    rows = list(
        csv.DictReader(io.StringIO(output(capsys, "--profile", "ideal", "--worst", "3", "-f", "csv")))
    )
    assert [row["id"] for row in rows] == [row["id"] for row in point_table(rerun, worst=3).rows()]
    assert "no plain arm" in output(capsys, "--left-out", "-f", "md")


def test_the_command_reads_a_users_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "runs.csv"
    header = "hardware,target,method,draft,k,batch,acceptance_length,speedup"
    line = "h100-sxm,llama-3.1-8b,eagle3,eagle3-llama-3.1-8b"
    path.write_text(f"{header}\n{line},3,1,2.6,1.7\n{line},5,1,3.1,1.6\n", encoding="utf-8")
    rows = json.loads(output(capsys, "--data", str(path), "-f", "json"))["rows"]
    assert rows[0]["rows"] == 2
    assert rows[0]["setups"] == 1
    assert {row["evidence"] for row in rows} == {"thin"}


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        pytest.param(["--by", "colour"], 2, "--by: must be one of collection, engine", id="dimension"),
        pytest.param(["--profile", "vlm"], 1, "unknown engine 'vlm'; nearest: vllm", id="profile"),
        pytest.param(["--rows", "--left-out"], 2, "--left-out: excludes --rows", id="two tables"),
        pytest.param(["--worst", "0"], 2, "--worst: must be a whole number of at least 1", id="worst"),
        pytest.param(["--data", "no/such.jsonl"], 1, "no/such.jsonl: no such file", id="file"),
    ],
)
def test_refusals(arguments: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["accuracy", *arguments]) == status
    error = capsys.readouterr().err
    assert text in error
    assert error.count("\n") == 1


def test_unknown_names_are_refused_by_the_library_too() -> None:
    with pytest.raises(UnknownNameError, match="unknown engine 'mine'"):
        rerun_measurements(predictor="mine")
    with pytest.raises(InputError, match="by: must be one of"):
        rerun_measurements(OLDER[:3]).scores("colour")


def test_what_the_readme_says_of_slowdowns() -> None:
    """How many rows called FASTER were slower, and what slowdowns were called."""
    own = rerun_measurements()
    slower = own.measured < 1
    words = np.array([judgement(one.speedup, one.low, one.high) for one in own.predicted])
    faster, unclear = words == "FASTER", words == "TOO CLOSE TO CALL"
    counts = (slower.sum(), (slower & (own.speedups < 1)).sum(), faster.sum(), (faster & slower).sum())
    told = (
        "of {} measured it puts {} below 1. Its\nverdict does better: "
        "of {} rows called FASTER {} were slower, and {} of the {} were called"
    ).format(*counts, (unclear & slower).sum(), slower.sum())
    assert told in (Path(__file__).parent.parent / "README.md").read_text()


def test_the_figures_of_the_readme() -> None:
    """Errors of the forecasts and of the rivals, and what an anchor and a line in k buy."""
    scores = {(one.group, one.predictor): one.score for one in rerun_measurements().scores()}

    def errors(group: str, predictor: str, digits: int = 0) -> tuple[str, str]:
        score = scores[group, predictor]
        return f"{100 * score.median_error:.{digits}f} %", f"{100 * score.p90_error:.0f} %"

    own, rival, ideal = (errors(ALL_ROWS, name) for name in ("own profile", "E/1.5", "ideal"))
    plain, anchored = (errors("set-ups of several rows", f"own profile{end}") for end in ("", ", one anchor"))
    line, _ = errors("three k or more", "line in k, that k left out", digits=1)
    text = " ".join((Path(__file__).parent.parent / "README.md").read_text().split())
    for told in (
        f"median error is {own[0]}, nine in ten are within {own[1]}, the range holds nine in ten",
        f"E/1.5 has {rival[0]} and {rival[1]}, the ideal roofline {ideal[0]} and {ideal[1]}",
        f"from {plain[0]} to {anchored[0]}, though nine in ten only from {plain[1]} to {anchored[1]}",
        f"a line through three values of k leaves {line}",
    ):
        assert told in text
    assert scores[ALL_ROWS, "own profile"].coverage == pytest.approx(0.9, abs=0.01)
