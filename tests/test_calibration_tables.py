"""The tables of a calibration and of runs, against calibrations made by hand."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specmath.calibration_files import read_calibration
from specmath.calibration_tables import CalibrationTable, RunsTable
from specmath.calibration_text import acceptance_lines, accepted_text, fit_lines
from specmath.calibrations import (
    AcceptanceRow,
    Calibration,
    Flag,
    MeasuredRuns,
    PartFit,
    Place,
    ProofRow,
    RunLine,
)
from specmath.columns import COLUMNS
from specmath.measurements import Measurement

TOY = Path(__file__).with_name("data") / "calibrations" / "toy.yaml"
SURVIVAL = {0.0: (0.8, 0.56, 0.392, 0.274), 1.0: (0.7, 0.49, 0.343, 0.24)}
R_AT_4 = (13.245056 + 4 * 1.08 + 1.0) / 10.94096
"""Milliseconds of the cells at batch 8, context 512: verification, four draft passes, host; a plain step."""
PROOF = ProofRow(
    batch=8,
    k=4,
    context=512,
    acceptance_length=2.7,
    plain_s=0.011,
    step_s=0.018,
    predicted_plain_s=0.011,
    predicted_step_s=0.0185,
    temperature=1.0,
)


def toy(**changes: Any) -> Calibration:
    made = read_calibration(TOY)
    assert isinstance(made, Calibration)
    return replace(made, **changes)


def table(k: tuple[int, ...] = (2, 4), file: str = "", **changes: Any) -> CalibrationTable:
    return CalibrationTable(calibration=toy(**changes), k=k, file=file)


def rows_at(made: CalibrationTable, **wanted: Any) -> list[dict[str, Any]]:
    return [row for row in made.rows() if all(row[key] == value for key, value in wanted.items())]


def codes(made: CalibrationTable) -> list[str]:
    return [advice.code for advice in made.warnings]


# ---------------------------------------------------------------- rows


def test_a_row_by_hand() -> None:
    made = table()
    for temperature, survival in SURVIVAL.items():
        (row,) = rows_at(made, temperature=temperature, batch=8, k=4, context=512)
        assert row["target_s"] == pytest.approx(10.94096e-3, rel=1e-12)
        assert row["draft_s"] == pytest.approx(1.08e-3, rel=1e-12)
        assert row["verify_s"] == pytest.approx(13.245056e-3, rel=1e-12)
        assert row["step_s"] == pytest.approx(R_AT_4 * 10.94096e-3, rel=1e-12)
        assert row["draft_cost"] == pytest.approx(1.08 / 10.94096, rel=1e-12)
        assert row["verify_cost"] == pytest.approx(13.245056 / 10.94096, rel=1e-12)
        assert row["overhead"] == pytest.approx(1 / 10.94096, rel=1e-12)
        assert row["breakeven_acceptance_length"] == pytest.approx(R_AT_4, rel=1e-12)
        assert row["acceptance_length"] == pytest.approx(1 + sum(survival), rel=1e-12)
        assert row["speedup"] == pytest.approx((1 + sum(survival)) / R_AT_4, rel=1e-12)
        assert row["speedup_low"] < row["speedup"] < row["speedup_high"]
        assert row["speedup_low"] * row["speedup_high"] == pytest.approx(row["speedup"] ** 2, rel=1e-12)


def test_every_batch_context_and_k_in_each_way_of_sampling() -> None:
    made = table(k=(1, 2, 4))
    places = {(row["temperature"], row["batch"], row["k"], row["context"]) for row in made.rows()}
    grid = {(t, b, k, c) for t in (0, 1) for b in (1, 8, 64) for k in (1, 2, 4) for c in (512, 4096)}
    proved = {(t, 8, k, 600) for t in (0, 1) for k in (1, 2, 4)}
    assert places == grid | proved
    assert len(made) == len(places)
    assert set(made.keys) <= COLUMNS.keys(), "each has its title"


def test_without_acceptance_there_are_costs_alone() -> None:
    made = table(acceptance=(), proof=())
    (row,) = rows_at(made, batch=8, k=4, context=512)
    assert row["breakeven_acceptance_length"] == pytest.approx(R_AT_4, rel=1e-12)
    absent = (
        "temperature",
        "top_p",
        "alpha",
        "acceptance_length",
        "speedup",
        "speedup_low",
        "measured",
        "error",
    )
    assert {row[key] for key in absent} == {None}
    assert made.verdict == "measured, not proved end to end"


def test_a_longer_draft_than_was_decoded_has_no_acceptance() -> None:
    (row,) = rows_at(table(k=(6,)), temperature=1, batch=8, context=512)
    assert (row["acceptance_length"], row["speedup"], row["speedup_low"]) == (None, None, None)
    assert row["breakeven_acceptance_length"] > 1


def test_alpha_stands_in_the_row_of_the_rule_that_decides() -> None:
    row = AcceptanceRow(
        rule="rejection sampling",
        temperature=1.0,
        top_p=0.9,
        domain="all",
        positions=100,
        requests=4,
        alpha=0.6,
        k=2,
        drafts=10,
        accepted_at=(6, 3),
    )
    others = [
        replace(row, rule="one-hot draft", alpha=0.5, k=None, drafts=None, accepted_at=()),
        replace(row, domain="code", alpha=0.9),
        replace(row, context=700.0, alpha=0.3),
    ]
    made = table(k=(2,), acceptance=(*others, row), proof=())
    told = {(one["alpha"], one["temperature"], one["top_p"], one["acceptance_length"]) for one in made.rows()}
    assert told == {(0.6, 1.0, 0.9, 1.9)}


def test_a_lookup_has_a_match_rate_at_each_temperature() -> None:
    """E = 1 + h·Σ; at batch 1 a step costs h of a wide pass and 1 − h of a plain one."""
    row = AcceptanceRow(
        rule="arg-max match",
        temperature=0.0,
        top_p=1.0,
        domain="all",
        positions=0,
        requests=4,
        k=4,
        drafts=100,
        accepted_at=(80, 60, 40, 20),
        match_rate=0.75,
    )
    warm = replace(row, rule="one-hot draft", temperature=1.0, match_rate=0.25)
    made = table(
        k=(4,),
        method="ngram",
        draft="ngram",
        acceptance=(row, warm),
        proof=(),
        match_rate=0.25,
        draft_law=replace(toy().draft_law, fixed_s=0.0, s_per_sequence=0.0),
        cells=tuple(cell for cell in toy().cells if cell.place.part == "target"),
    )
    for temperature, h in ((0, 0.75), (1, 0.25)):
        (one,) = rows_at(made, temperature=temperature, batch=1, context=512)
        assert one["acceptance_length"] == pytest.approx(1 + h * 2, rel=1e-12)
        verify_s = h * 10.25512e-3 + (1 - h) * 10.05512e-3
        assert one["verify_s"] == pytest.approx(verify_s, rel=1e-12)
    assert "a match in 75% of the steps, E 2.500" in "".join(made.assumptions)


def test_a_lookup_that_never_matches_is_a_plain_step() -> None:
    row = AcceptanceRow(
        rule="one-hot draft",
        temperature=1.0,
        top_p=1.0,
        domain="all",
        positions=9,
        requests=1,
        k=2,
        drafts=0,
        accepted_at=(0, 0),
        match_rate=0.0,
    )
    assert (row.survival, row.acceptance_length) == ((0.0, 0.0), 1.0)
    made = table(k=(2,), method="ngram", draft="ngram", acceptance=(row,), match_rate=0.0, proof=())
    assert {one["acceptance_length"] for one in made.rows()} == {1.0}


# ---------------------------------------------------------------- proof


def test_the_proof_stands_where_it_was_run_and_as_it_was_sampled() -> None:
    made = table(proof=(PROOF,))
    proved = [row for row in made.rows() if row["measured"] is not None]
    assert [(row["temperature"], row["batch"], row["k"], row["context"]) for row in proved] == [
        (1, 8, 4, 512)
    ]
    assert proved[0]["measured"] == pytest.approx(2.7 * 11 / 18, rel=1e-12)
    assert proved[0]["predicted"] == pytest.approx(2.7 * 11 / 18.5, rel=1e-12)
    assert proved[0]["error"] == pytest.approx(18 / 18.5 - 1, rel=1e-12)
    other = table(proof=(replace(PROOF, top_p=0.9),))
    assert [row for row in other.rows() if row["measured"] is not None] == []
    bare = table(proof=(PROOF,), acceptance=())
    assert [row["k"] for row in bare.rows() if row["measured"] is not None] == [4]


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((), "measured, not proved end to end"),
        ((0.0185,), "the predicted speed-up is 2.7% off in one end-to-end run"),
        (
            (0.0185, 0.018, 0.0198),
            "the predicted speed-up is 2.7% off (median) and 9.1% at worst in 3 end-to-end runs",
        ),
    ],
)
def test_the_verdict_begins_with_the_own_error(steps: tuple[float, ...], words: str) -> None:
    proof = tuple(replace(PROOF, predicted_step_s=step, k=k) for k, step in enumerate(steps, 1))
    assert table(proof=proof).verdict.startswith(words + ";")


def test_the_verdict_says_where_it_wins() -> None:
    """E of 1.8 and 1.1, R of 1.45 at batch 1 and 2.4 at batch 64."""
    row = next(row for row in toy().acceptance if row.accepted_at and row.domain == "all")
    rows = (
        replace(row, accepted_at=(500, 200, 100, 0)),
        replace(row, temperature=1.0, accepted_at=(100, 0, 0, 0)),
    )
    proof = (replace(PROOF, predicted_step_s=0.018),)
    exact = tuple(replace(cell, low_s=cell.seconds, high_s=cell.seconds) for cell in toy().cells)
    verdict = table(k=(4,), proof=proof, cells=exact, acceptance=rows).verdict
    assert "; T = 0, context 512: FASTER at batch 1–8, SLOWER at 64; T = 0, context 4,096: " in verdict
    one_context = tuple(cell for cell in exact if cell.place.context == 512)
    verdict = table(k=(4,), proof=proof, cells=one_context, acceptance=rows).verdict
    wins = "T = 0: FASTER at batch 1–8, SLOWER at 64; T = 1: SLOWER at batch 1–64 (best k of each)"
    assert verdict.endswith(f"; {wins}")
    more = table(k=(1, 4), proof=proof, cells=one_context, acceptance=rows).verdict
    assert "T = 0: FASTER at batch 1–64" in more, "at k = 1"


@pytest.mark.parametrize(
    ("settings", "choice"),
    [
        ([(1.0, 1.0)], ""),
        ([(0.0, 1.0), (1.0, 1.0)], ",temperature=1"),
        ([(0.0, 1.0), (1.0, 1.0), (1.0, 0.9)], ",temperature=1,top-p=0.9"),
    ],
)
def test_the_verdict_ends_in_what_to_type(settings: list[tuple[float, float]], choice: str) -> None:
    row = next(row for row in toy().acceptance if row.accepted_at and row.domain == "all")
    rows = tuple(replace(row, temperature=t, top_p=p) for t, p in settings)
    made = table(file="mine.yaml", acceptance=rows)
    assert made.verdict.endswith(f"; use it with --measured mine.yaml{choice}")
    assert "mine.yaml" in made.source.basis
    assert "--measured" not in table(acceptance=rows).verdict


def test_acceptances_are_a_table_of_their_own() -> None:
    made = table()
    rows = toy().acceptance
    assert [row["alpha"] for row in made.details["acceptance"]] == [row.alpha for row in rows]
    lines = made.derivation[-len(rows) - 1 :]
    assert lines[0].split() == [
        "rule",
        "T",
        "top-p",
        "domain",
        "context",
        "α",
        "95",
        "%",
        "interval",
        "texts",
        "k",
        "E",
    ]
    for line, row in zip(lines[1:], rows, strict=True):
        assert line.startswith(row.rule)
        assert row.acceptance_length is None or line.endswith(f"{row.acceptance_length:.3f}")
    deciding = [row for row in rows if row.accepted_at and row.domain == "all" and row.context is None]
    told = [text for text in made.assumptions if text.startswith("acceptance by")]
    assert len(told) == len(deciding) < len(rows) or len(rows) == len(deciding)
    assert list(acceptance_lines(())) == []


def test_remarks_say_why_cells_are_empty_and_speedups_differ() -> None:
    alone, differ = table(proof=(PROOF,)).remarks
    assert alone.startswith("the proof ran at T = 1 alone")
    assert "rows of other sampling have no measured, predicted and error" in alone
    assert differ.startswith("speed-up takes E of the acceptance run")
    assert table(proof=()).remarks == ()
    one = tuple(row for row in toy().acceptance if row.temperature == 1)
    assert len(table(proof=(PROOF,), acceptance=one).remarks) == 1


def test_drift_is_told_in_words() -> None:
    made = table(machine={"device": "a", "drift": -0.0504})
    assert made.inputs["drift"] == "-5.0% of the time of a pass, from the start of the run"


# ---------------------------------------------------------------- warnings


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"predicted_step_s": 0.0201}, ["proof-missed"]),
        ({"predicted_step_s": 0.0162}, ["proof-missed"]),
        ({"predicted_step_s": 0.0197}, []),
        ({"step_s": 0.031, "predicted_step_s": 0.031}, ["slower-end-to-end"]),
        ({"step_s": 0.031, "predicted_step_s": 0.018}, ["proof-missed", "slower-end-to-end"]),
    ],
)
def test_a_missed_or_a_bad_proof_is_said(changes: dict[str, Any], expected: list[str]) -> None:
    assert codes(table(proof=(replace(PROOF, **changes),))) == expected


def test_warnings_tell_the_figures() -> None:
    slow = replace(PROOF, step_s=0.031, predicted_step_s=0.018)
    missed, slower = table(proof=(slow, replace(slow, k=2, step_s=0.04))).warnings
    assert missed.text == (
        "at batch 8, k 2, context 512 the passes predict 1.65×, decoding end to end gave 0.74× (+122.2%)"
    )
    assert slower.text == (
        "every end-to-end run was slower with speculation; the best, at batch 8, k 4, context 512, "
        "gave 0.96× with E 2.70"
    )
    assert codes(table(proof=(slow, PROOF))) == ["proof-missed"]


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {},
            "acceptance by rejection sampling at T = 1: α 0.700 over 4,000 positions of 24 texts",
        ),
        (
            {"alpha_low": 0.68, "alpha_high": 0.72, "top_p": 0.9, "domain": "code", "context": 2048.0},
            "acceptance by rejection sampling at T = 1, top-p 0.9, code, near context 2,048: "
            "α 0.700 (0.680–0.720) over 4,000 positions of 24 texts",
        ),
        (
            {"lossless": False, "k": 2, "drafts": 10, "accepted_at": (8, 5)},
            "acceptance by rejection sampling (lossy) at T = 1: α 0.700 over 4,000 positions of 24 texts; "
            "decoded with k = 2: E 2.300, survival 0.800/0.500",
        ),
        (
            {"alpha": None, "k": 1, "drafts": 10, "accepted_at": (8,), "match_rate": 0.5},
            "acceptance by rejection sampling at T = 1: decoded with k = 1: a match in 50% of the steps, "
            "E 1.400, survival 0.800",
        ),
    ],
)
def test_acceptance_in_words(changes: dict[str, Any], text: str) -> None:
    row = AcceptanceRow(
        rule="rejection sampling",
        temperature=1.0,
        top_p=1.0,
        domain="all",
        positions=4000,
        requests=24,
        alpha=0.7,
    )
    assert accepted_text(replace(row, **changes)) == text


def test_a_fit_in_words() -> None:
    (constant,) = toy().fits[0].constants
    place = Place(part="draft", batch=8, width=4, context=512)
    fit = PartFit(
        part="draft",
        constants=(
            constant,
            replace(constant, name="kv_reread", value=0.5, largest_share=0.05, standard_error=None),
        ),
        errors=(0.01, -0.03),
        left_out_errors=(0.02, float("nan")),
        flags=(Flag(place=place, kind="cliff", ratio=1.5),),
    )
    assert list(fit_lines(fit)) == [
        "draft: weights_s = 10 ms ± 1.0%, 98% at most",
        "draft: kv_reread = 0.5, 5% at most, not identified",
        "draft: the law misses its 2 cells by 2.0% (median) and 3.0% (worst); cells left out: 2.0% (median) "
        "and 2.0% (worst)",
        "draft: cliff at batch 8, 4 passes, context 512, 1.50 times",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = list(fit_lines(replace(fit, constants=(), left_out_errors=(float("nan"),) * 2, flags=())))
    assert alone == ["draft: the law misses its 2 cells by 2.0% (median) and 3.0% (worst)"]


# ---------------------------------------------------------------- runs


def runs(*batches: int, plain: float | None = 0.010, **changes: Any) -> MeasuredRuns:
    """Steps of 11 + 1k ms at batch 1, of 22 + 2k at batch 2, with E = 2."""
    pairs = [
        Measurement(
            k=k,
            batch=b,
            acceptance_length=2.0,
            plain_s=plain and plain,
            speculative_s=b * (11e-3 + 1e-3 * k) / 2,
        )
        for b in batches
        for k in (1, 3)
    ]
    lines = [
        RunLine(
            batch=b,
            context=0,
            intercept_s=b * 11e-3,
            slope_s=b * 1e-3,
            plain_s=plain,
            worst_error=0.01,
            worst_left_out=None,
        )
        for b in batches
    ]
    made = MeasuredRuns(
        source="mine.csv", origin="runs", machine={"engine": "vllm"}, runs=tuple(pairs), lines=tuple(lines)
    )
    return replace(made, **changes)


def test_runs_are_rows_with_their_line() -> None:
    made = RunsTable(measured=runs(1))
    first, second = made.rows()
    assert (first["k"], second["k"]) == (1, 3)
    assert first["step_s"] == pytest.approx(0.012)
    assert first["step_cost"] == pytest.approx(1.2)
    assert first["speedup"] == pytest.approx(2 / 1.2)
    assert (first["fixed_cost"], first["draft_cost"]) == pytest.approx((1.1, 0.1))
    assert (first["line_error"], first["left_out_error"]) == (0.01, None)
    assert set(made.keys) <= COLUMNS.keys()
    assert made.inputs == {"source": "mine.csv", "origin": "runs", "engine": "vllm"}, "the same on any day"
    assert made.assumptions[1] == "batch 1, context not told: E·TPOT = 11 ms + 1 ms·k, 1.0% off at worst"
    json.dumps(list(made.rows()), allow_nan=False)


@pytest.mark.parametrize(
    ("measured", "file", "verdict"),
    [
        (runs(1), "", "2 runs, 1.43× to 1.67×; in plain steps v + o is 1.100 and c 0.100"),
        (
            runs(1, 2),
            "a.yaml",
            "4 runs, 0.71× to 1.67×; in plain steps v + o is 1.100 to 2.200 and c 0.100 to 0.200; "
            "use them with --measured a.yaml --engine vllm --target MODEL --draft MODEL",
        ),
        (runs(1, plain=None), "a.yaml", "2 runs, no plain run beside them; a step takes 11 ms + 1 ms·k"),
        (runs(1, 2, plain=None), "", "4 runs, no plain run beside them"),
        (runs(1, lines=(), runs=runs(1).runs[:1]), "", "1 run, 1.67× to 1.67×"),
    ],
)
def test_the_verdict_of_runs(measured: MeasuredRuns, file: str, verdict: str) -> None:
    assert RunsTable(measured=measured, file=file).verdict == verdict


def test_a_run_without_a_line_or_a_plain_run_has_empty_cells() -> None:
    (row, _) = RunsTable(measured=runs(1, plain=None, lines=())).rows()
    assert {row[key] for key in ("target_s", "step_cost", "speedup", "fixed_cost", "line_error")} == {None}
    assert row["step_s"] == pytest.approx(0.012)
    assert row["acceptance_length"] == 2
