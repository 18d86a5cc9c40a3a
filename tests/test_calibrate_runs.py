"""Tables of runs as calibrations: the lines of published sweeps, and what is said where something lacks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from calibrate.runs import MOST_PAIRS, calibrate_runs
from specmath.calibration_files import write_calibration
from specmath.calibrations import MeasuredRuns, RunLine
from specmath.errors import DataError, InputError
from specmath.k_lines import run_lines
from specmath.measurements import Measurement
from specmath.run_files import RunDefaults

SWEEPS = Path(__file__).with_name("data") / "runs"

PUBLISHED: dict[str, tuple[str, dict[str, str], tuple[float, float], float]] = {
    # file, set-up, (v + o, c), half a unit of the last digit that was published, with an ulp
    "vLLM 20780, EAGLE": ("vllm_20780.csv", {"method": "eagle"}, (1.087, 0.105), 0.0005001),
    "vLLM 20780, EAGLE-3": ("vllm_20780.csv", {"method": "eagle3"}, (1.181, 0.144), 0.0005001),
    "TensorRT-LLM blog 1, R1 MTP": ("tensorrt_llm_r1_mtp.csv", {}, (0.987, 0.085), 0.0005001),
}


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def codes(found: MeasuredRuns) -> list[str]:
    return [note.code for note in found.warnings]


def only_line(found: MeasuredRuns) -> RunLine:
    [line] = found.lines
    return line


def in_plain_steps(line: RunLine) -> tuple[float, float]:
    assert line.plain_s is not None
    return line.intercept_s / line.plain_s, line.slope_s / line.plain_s


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sweeps_give_their_constants(name: str) -> None:
    file, set_up, constants, half = PUBLISHED[name]
    found = calibrate_runs(SWEEPS / file, set_up=set_up)
    line = only_line(found)
    assert in_plain_steps(line) == pytest.approx(constants, abs=half)
    assert line.worst_error < 0.03
    assert line.worst_left_out is not None
    assert line.worst_error < line.worst_left_out < 0.05
    assert (found.origin, codes(found)) == ("runs", [])
    assert all(pair.times_faster > 1 for pair in found.runs)


def test_a_published_sweep_without_a_plain_run_gives_seconds() -> None:
    """xLLM 1929: 7.51 ms and 0.996 ms."""
    found = calibrate_runs(SWEEPS / "xllm_1929.csv")
    line = only_line(found)
    assert (line.intercept_s, line.slope_s) == pytest.approx((7.51e-3, 0.996e-3), rel=1e-3)
    assert line.plain_s is None
    assert line.worst_error < 0.03
    assert line.worst_left_out is not None
    assert line.worst_left_out < 0.05
    assert codes(found) == ["no-plain-run"]
    assert "k = 0" in found.warnings[0].remedy
    assert len(found.runs) == 5, "kept for the line"


def test_a_line_is_drawn_at_each_batch_and_context(tmp_path: Path) -> None:
    """Steps of 10 + 2k ms at batch 1, of 20 + 3k at batch 8, with E = 2: TPOT is half of that."""
    rows = ["k,batch,context,tpot_ms,acceptance_length"]
    for batch, context, fixed, slope, plain in ((8, 512, 20, 3, 16), (1, 64, 10, 2, 8)):
        rows += [f"0,{batch},{context},{plain},"]
        rows += [f"{k},{batch},{context},{(fixed + slope * k) / 2},2" for k in (1, 2, 4)]
    rows += ["3,2,64,5,2"]
    found = calibrate_runs(written(tmp_path, "runs.csv", "\n".join(rows)))
    told = [(line.batch, line.context, line.intercept_s, line.slope_s, line.plain_s) for line in found.lines]
    assert told[0] == pytest.approx((1, 64, 0.010, 0.002, 0.008), rel=1e-9)
    assert told[1] == pytest.approx((8, 512, 0.020, 0.003, 0.016), rel=1e-9)
    assert [line.worst_left_out for line in found.lines] == pytest.approx([0, 0], abs=1e-9)
    assert len(found.runs) == 7
    alone = next(note for note in found.warnings if note.code == "one-k")
    assert alone.text.startswith("batch 2, context 64: k = 3 alone")
    assert alone.remedy.startswith("run k = 1 ")


def test_the_left_out_error_leaves_out_a_k_with_all_its_repeats() -> None:
    """Steps 4, 4, 5, 9: without k = 3 the line is 3 + k; the repeat of k = 1 does not keep k = 1 in."""
    steps = [(1, 4), (1, 4), (2, 5), (3, 9)]
    runs = [Measurement(k=k, batch=1, acceptance_length=1.0, speculative_s=float(s)) for k, s in steps]
    [line] = run_lines(runs)
    of_three = abs(Fraction(6, 9) - 1)
    of_one = abs(Fraction(1, 4) - 1)  # through (2, 5) and (3, 9): 1 at k = 1
    of_two = abs(Fraction(13, 2) / 5 - 1)  # through (1, 4) twice and (3, 9)
    assert line.worst_left_out == pytest.approx(float(max(of_one, of_two, of_three)), rel=1e-12)


def test_a_plain_time_of_each_row_is_averaged() -> None:
    runs = [
        Measurement(k=k, batch=1, acceptance_length=2.0, speculative_s=step / 2, plain_s=plain)
        for k, step, plain in ((1, 10.0, 7.0), (3, 12.0, 9.0))
    ]
    assert run_lines(runs)[0].plain_s == 8.0
    half = [runs[0], replace(runs[1], plain_s=None)]
    assert run_lines(half)[0].plain_s == 7.0


def test_speed_ups_alone_tell_the_line_in_plain_steps(tmp_path: Path) -> None:
    """R = 1.1 + 0.1k, E = 2: S = 2/R."""
    rows = [{"k": k, "batch": 4, "acceptance_length": 2, "speedup": 2 / (1.1 + 0.1 * k)} for k in (1, 3, 5)]
    found = calibrate_runs(written(tmp_path, "runs.json", json.dumps(rows)))
    assert found.lines == ()
    assert codes(found) == ["speed-ups-alone"]
    assert "v + o = 1.1 and c = 0.1, and no seconds" in found.warnings[0].text


def test_one_set_up_of_several_is_named() -> None:
    path = SWEEPS / "vllm_20780.csv"
    with pytest.raises(
        InputError, match=r"several set-ups \(method 'eagle', 'eagle3'\); name one, as method=eagle"
    ):
        calibrate_runs(path)
    found = calibrate_runs(path, set_up={"method": "EAGLE3 "})
    assert {pair.acceptance_length for pair in found.runs} == {2.36, 2.79, 3.08, 3.32, 3.46, 3.54}
    assert found.machine["method"] == "eagle3"
    assert found.machine["hardware"] == "H100"


SETUPS: dict[str, tuple[dict[str, str], str]] = {
    "a value that no row has": ({"method": "mtp"}, "has no method 'mtp'; the column holds 'eagle', 'eagle3'"),
    "a column that is none": ({"flavour": "x"}, "'flavour' is no column of a set-up; they are hardware, "),
    "an empty column": ({"tp": "8"}, "has no tp '8'; the column holds nothing"),
}


@pytest.mark.parametrize("name", SETUPS)
def test_a_set_up_that_is_none_is_refused(name: str) -> None:
    set_up, words = SETUPS[name]
    with pytest.raises(InputError) as caught:
        calibrate_runs(SWEEPS / "vllm_20780.csv", set_up=set_up)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_and_letters_that_mean_the_same_are_one_set_up(tmp_path: Path) -> None:
    rows: list[Mapping[str, Any]] = [
        {"k": 1, "batch": 1, "tpot_ms": 5, "acceptance_length": 1.5, "tp": 8, "engine": "vLLM"},
        {"k": 3, "batch": 1, "tpot_ms": 5, "acceptance_length": 2.0, "tp": "8", "engine": "vllm"},
        {"k": 5, "batch": 1, "tpot_ms": 5, "acceptance_length": 2.5, "tp": 8.0},
    ]
    found = calibrate_runs(written(tmp_path, "runs.json", json.dumps(rows)))
    assert found.machine == {"tp": "8", "engine": "vLLM"}
    assert len(found.runs) == 3


SAID: dict[str, tuple[str, str, str]] = {
    # rows of k, TPOT in ms and E at batch 1; the plain step takes 10 ms
    "two k": ("1,6,1.8\n3,5,2.6", "two-k", "run a third k"),
    "one k": ("2,6,1.8", "one-k", "run k = 5 "),
    "a falling line": ("1,9,1.8\n3,5,2.6\n5,4,2.7", "impossible-line", "counts the bonus token"),
    "no line": ("1,6,1.8\n2,5.4,2.2\n3,9,2.6", "no-line", "captured graph sizes"),
    "E without the bonus token": (
        "1,6,1\n3,5,1.6",
        "step-shorter-than-plain",
        "count the bonus token in E if the engine left it out",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_what_a_table_lacks_is_said_with_what_to_do(tmp_path: Path, name: str) -> None:
    rows, code, words = SAID[name]
    text = "k,batch,tpot_ms,acceptance_length\n0,1,10,\n" + "".join(
        f"{k},1,{rest}\n" for k, rest in (row.split(",", 1) for row in rows.split("\n"))
    )
    found = calibrate_runs(written(tmp_path, "runs.csv", text))
    remedies = [note.remedy for note in found.warnings if note.code == code]
    assert any(words in remedy for remedy in remedies), found.warnings


def test_a_sound_table_is_left_alone(tmp_path: Path) -> None:
    text = "k,batch,tpot_ms,acceptance_length\n0,1,10,\n1,1,6.5,1.8\n2,1,5.8,2.2\n3,1,5.2,2.6\n"
    found = calibrate_runs(written(tmp_path, "runs.csv", text))
    assert found.warnings == ()
    assert math.isclose(found.lines[0].plain_s or 0, 0.01)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("k,batch,tpot_ms\n0,1,10\n", "holds no run with speculation; add rows with k of 1 or more"),
        ("k,batch,tpot_ms\n3,1,10\n", "line 2: acceptance_length: is missing for k = 3"),
        ("k,tpot_ms,acceptance_length\n3,10,2\n", "line 2: batch: is missing"),
        ("k,batch,tpot_ms,acceptance_length\n3,1,10,5\n", "line 2: acceptance_length: "),
        ("", "holds no run; give a row for each"),
    ],
)
def test_a_table_that_tells_nothing_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError) as caught:
        calibrate_runs(written(tmp_path, "runs.csv", text))
    assert words in str(caught.value)


def test_more_runs_than_a_calibration_holds_are_refused_as_they_are_read(tmp_path: Path) -> None:
    text = "k,batch,tpot_ms,acceptance_length\n" + "3,8,10,2\n" * (MOST_PAIRS + 1)
    with pytest.raises(
        DataError, match="holds 5,001 runs with speculation, of 5,000 at most in a calibration"
    ):
        calibrate_runs(written(tmp_path, "runs.csv", text))
    whole = written(tmp_path, f"{'r' * 40}.csv", text.removesuffix("3,8,10,2\n"))
    write_calibration(calibrate_runs(whole), tmp_path / "runs.yaml")  # there is room for all of them
    with pytest.raises(InputError, match=r"^runs: make .* bytes, at most 1,048,576; average repeats"):
        write_calibration(replace(found := calibrate_runs(whole), runs=found.runs * 3), tmp_path / "x.yaml")


def test_a_context_that_no_column_tells_is_not_told(tmp_path: Path) -> None:
    text = "k,batch,tpot_ms,acceptance_length\n3,1,5,2\n"
    warnings = calibrate_runs(written(tmp_path, "runs.csv", text)).warnings
    assert all("batch 1, context not told" in note.text for note in warnings if note.code == "no-plain-run")
    assert not any("context 0" in note.text for note in warnings)


def test_defaults_hold_where_a_column_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path, "runs.csv", "k,tpot_ms,acceptance_length\n1,5,1.5\n3,5,2\n")
    found = calibrate_runs(path, defaults=RunDefaults(batch=4, context=700))
    assert [(pair.batch, pair.context) for pair in found.runs] == [(4, 700), (4, 700)]
