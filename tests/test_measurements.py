"""Measured pairs: what they say about the step, what is refused, what is doubted."""

from __future__ import annotations

import math
from typing import Any

import pytest

from specmath.errors import DataError, InputError
from specmath.k_lines import k_line
from specmath.measurements import Measurement, Run, doubts, paired


def test_the_two_times_and_the_speedup_say_the_same() -> None:
    """E = 2.4, plain 9 ms, speculative 6 ms a token: a step of 14.4 ms is 1.6 plain ones."""
    times = Measurement(k=3, batch=1, acceptance_length=2.4, plain_s=0.009, speculative_s=0.006)
    assert times.times_faster == pytest.approx(1.5, rel=1e-12)
    assert times.in_plain_steps == pytest.approx(1.6, rel=1e-12)
    assert times.step_s == pytest.approx(0.0144, rel=1e-12)
    mixed = Measurement(k=3, batch=1, acceptance_length=2.4, speedup=1.5, speculative_s=0.006)
    assert mixed.plain_step_s == pytest.approx(0.009, rel=1e-12)
    typed = Measurement(k=3, batch=1, acceptance_length=2.4, speedup=1.5, plain_s=0.009)
    assert typed.step_s == pytest.approx(0.0144, rel=1e-12)
    ratio = Measurement(k=3, batch=1, acceptance_length=2.4, speedup=1.5)
    assert math.isnan(ratio.step_s)
    assert ratio.in_plain_steps == pytest.approx(1.6, rel=1e-12)


@pytest.mark.parametrize(
    ("given", "name", "problem"),
    [
        ({"speedup": 0.0}, "speedup", "above 0"),
        ({"speedup": -1.7}, "speedup", "above 0"),
        ({"speedup": math.nan}, "speedup", "above 0"),
        ({"plain_s": -0.009, "speculative_s": 0.006}, "plain_s", "above 0"),
        ({"plain_s": 0.009, "speculative_s": 0.0}, "speculative_s", "above 0"),
        ({"plain_s": 9e9, "speculative_s": 0.006}, "plain_s", "at most"),
        ({"speedup": 1.5, "k": 0}, "k", "at least 1"),
        ({"speedup": 1.5, "batch": 0}, "batch", "at least 1"),
        ({"speedup": 1.5, "acceptance_length": 4.2}, "acceptance_length", "between 1 and 4"),
        ({"speedup": 1.5, "acceptance_length": 0.7}, "acceptance_length", "between 1 and 4"),
        ({"speedup": 1.5, "context": -1.0}, "context", "at least 0"),
        ({}, "speedup", "is missing"),
        ({"plain_s": 0.009}, "speedup", "is missing"),
        ({"speedup": 1.7, "plain_s": 0.009, "speculative_s": 0.006}, "speedup", "contradicts"),
    ],
)
def test_nonsense_is_refused_by_name(given: dict[str, Any], name: str, problem: str) -> None:
    whole = {"k": 3, "batch": 1, "acceptance_length": 2.4} | given
    with pytest.raises(InputError, match=problem) as caught:
        Measurement(**whole)
    assert caught.value.name == name


@pytest.mark.parametrize(
    ("k", "length", "speedup", "code", "reason"),
    [
        pytest.param(3, 2.8, 2.7, None, "", id="R just above 1"),
        pytest.param(3, 2.8, 2.9, None, "", id="R below 1 by less than the repeat noise"),
        pytest.param(3, 1.8, 2.2, "step-shorter-than-plain", "bonus token", id="E without the bonus token"),
        pytest.param(3, 2.8, 4.5, "step-shorter-than-plain", "another baseline, batch or k", id="S > k + 1"),
        pytest.param(3, 3.2, 3.9, "step-shorter-than-plain", "E is from elsewhere", id="S > E otherwise"),
        pytest.param(3, 2.8, 0.36, None, "", id="R = 7.8, slow but possible"),
        pytest.param(3, 2.8, 0.33, "step-dearer-than-its-tokens", "swapped", id="R = 8.5"),
    ],
)
def test_what_is_doubted_and_why(
    k: int, length: float, speedup: float, code: str | None, reason: str
) -> None:
    found = doubts(
        [Measurement(k=k, batch=8, acceptance_length=length, speedup=speedup, where="runs line 2")]
    )
    assert [advice.code for advice in found] == ([] if code is None else [code])
    assert all(reason in advice.remedy and "runs line 2" in advice.text for advice in found)


def test_runs_are_paired_by_batch_and_context() -> None:
    runs = [
        Run(k=0, batch=1, seconds_per_token=0.006),
        Run(k=0, batch=1, seconds_per_token=0.010),  # averaged with the first
        Run(k=0, batch=8, seconds_per_token=0.020),
        Run(k=2, batch=1, acceptance_length=2.0, seconds_per_token=0.005),
        Run(k=2, batch=8, acceptance_length=2.0, seconds_per_token=0.016),
        Run(k=2, batch=8, context=512, acceptance_length=2.0, seconds_per_token=0.016),
        Run(k=2, batch=8, acceptance_length=2.0, seconds_per_token=0.016, plain_s=0.024),
    ]
    pairs = paired(runs)
    assert [pair.times_faster for pair in pairs[:2]] == pytest.approx([1.6, 1.25], rel=1e-12)
    assert math.isnan(pairs[2].times_faster), "no plain run at context 512"
    assert pairs[3].times_faster == pytest.approx(1.5, rel=1e-12)


@pytest.mark.parametrize(
    ("run", "problem"),
    [
        (Run(k=2, batch=1, speedup=1.5), "acceptance_length: is missing for k = 2"),
        (Run(k=0, batch=1), "plain_s: is missing"),
        (Run(k=0, batch=1, seconds_per_token=-1.0), "plain_s: must be above 0"),
        (Run(k=2, batch=1, acceptance_length=5.0, speedup=1.5), "between 1 and 3"),
    ],
)
def test_a_faulty_run_is_named(run: Run, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        paired([run])
    placed = Run(**{name: getattr(run, name) for name in run.__slots__} | {"where": "runs.csv line 4"})
    with pytest.raises(DataError, match=f"^runs.csv line 4: .*{problem[:8]}"):
        paired([placed])


SERIES: dict[str, tuple[dict[int, tuple[float, float]], tuple[float, float, float]]] = {
    # k: (E, TPOT in ms); published line: intercept and slope in ms, largest error
    "vLLM PR 20780, EAGLE, H100, batch 1": (
        {2: (2.10, 4.37), 3: (2.29, 4.29), 4: (2.39, 4.48), 5: (2.43, 4.71), 6: (2.45, 4.94), 7: (2.47, 5.2)},
        (7.69, 0.740, 0.008),
    ),
    "vLLM PR 20780, EAGLE-3, H100, batch 1": (
        {2: (2.36, 4.32), 3: (2.79, 4.09), 4: (3.08, 4.05), 5: (3.32, 4.13), 6: (3.46, 4.2), 7: (3.54, 4.29)},
        (8.35, 1.016, 0.021),
    ),
    "xLLM PR 1929, MTP, two NPUs": (
        {1: (1.883, 4.497), 2: (2.665, 3.589), 3: (3.228, 3.268), 4: (3.680, 3.077), 5: (4.079, 3.082)},
        (7.51, 0.996, 0.015),
    ),
    "TensorRT-LLM, DeepSeek-R1 MTP, 8 × B200": (  # tokens per second of one user
        {
            1: (1.92, 1e3 / 198),
            2: (2.58, 1e3 / 250),
            3: (2.82, 1e3 / 253),
            4: (2.99, 1e3 / 245),
            5: (3.01, 1e3 / 239),
        },
        (8.89, 0.768, 0.020),
    ),
}


def runs_of(points: dict[int, tuple[float, float]]) -> list[Measurement]:
    return [
        Measurement(k=k, batch=1, acceptance_length=length, speculative_s=tpot_ms / 1e3)
        for k, (length, tpot_ms) in points.items()
    ]


@pytest.mark.parametrize("name", SERIES)
def test_published_step_times_are_lines_in_k(name: str) -> None:
    points, (intercept_ms, slope_ms, largest) = SERIES[name]
    line = k_line(runs_of(points))
    assert line.intercept_s * 1e3 == pytest.approx(intercept_ms, abs=0.006)
    assert line.slope_s * 1e3 == pytest.approx(slope_ms, abs=0.0006)
    assert max(map(abs, line.errors)) == pytest.approx(largest, abs=0.0006)


@pytest.mark.parametrize("name", SERIES)
def test_a_published_k_left_out_is_predicted_within_5_percent(name: str) -> None:
    line = k_line(runs_of(SERIES[name][0]))
    assert max(map(abs, line.left_out_errors)) < 0.05


def test_the_line_in_plain_steps_is_what_the_sheet_says() -> None:
    """T_AR = 7.07 ms: v + o = 1.087 and c = .105 for EAGLE."""
    verify, draft = k_line(runs_of(SERIES["vLLM PR 20780, EAGLE, H100, batch 1"][0])).in_plain_steps(7.07e-3)
    assert (verify, draft) == pytest.approx((1.087, 0.105), abs=0.0006)


def test_what_has_no_line_is_refused() -> None:
    one = Measurement(k=2, batch=1, acceptance_length=2.0, speculative_s=0.005)
    for other, name in (
        (Measurement(k=3, batch=1, acceptance_length=2.0, speedup=1.5), "speculative_s"),
        (Measurement(k=3, batch=2, acceptance_length=2.0, speculative_s=0.005), "batch"),
        (one, "k"),
    ):
        with pytest.raises(InputError) as caught:
            k_line([one, other])
        assert caught.value.name == name


def test_a_line_over_two_k_knows_no_left_out_error() -> None:
    line = k_line(runs_of({1: (1.5, 6.0), 3: (2.0, 6.0)}))
    assert line.step_s(5) == pytest.approx(0.015, rel=1e-12)  # 9, 12, so 15 ms
    assert all(math.isnan(error) for error in line.left_out_errors)


@pytest.mark.parametrize(("name", "value"), [("speedup", 1e-5), ("plain_s", 1e-9), ("speculative_s", 5e-324)])
def test_what_is_too_small_to_have_been_measured_is_refused(name: str, value: float) -> None:
    figures: dict[str, Any] = {"plain_s": 0.01, "speculative_s": 0.01} if name != "speedup" else {}
    with pytest.raises(InputError, match=f"{name}: must be at least"):
        Measurement(k=3, batch=8, acceptance_length=2.5, **figures | {name: value})
