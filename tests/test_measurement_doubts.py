"""What looks wrong beside a model: plain steps far off, arms that may be swapped; what stays warned of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specmath.anchors import anchored
from specmath.measurement_doubts import doubts_beside_model
from specmath.measurement_files import public_measurements
from specmath.measurements import Measurement
from specmath.results import Advice
from specmath.setups import profiled_of
from specmath.sources import StepCost

PAIR = Measurement(k=3, batch=8, acceptance_length=2.4, speedup=1.6)
H100 = profiled_of(
    next(row for row in public_measurements() if row.hardware == "h100-sxm" and row.method == "eagle3")
)


def modelled(steps: float = 1.5, plain_s: float = 0.01) -> StepCost:
    one = np.asarray(1.0)
    return StepCost(
        plain_s=np.asarray(plain_s),
        draft_cost=np.asarray(0.0),
        draft_passes=one,
        verify_cost=np.asarray(steps),
        overhead=np.asarray(0.0),
    )


def found(pair: Measurement, **model: float) -> list[Advice]:
    return list(doubts_beside_model([pair], [modelled(**model)]))


@pytest.mark.parametrize(
    ("plain_s", "reason"),
    [
        pytest.param(0.010, None, id="as modelled"),
        pytest.param(0.029, None, id="2.9 times"),
        pytest.param(0.0034, None, id="a third and a little more"),
        pytest.param(0.031, "check the unit, and whether a throughput", id="3.1 times"),
        pytest.param(0.0032, "check the unit, and whether a throughput", id="below a third"),
        pytest.param(10.0, "check the unit, s for ms", id="a thousand times: seconds for milliseconds"),
        pytest.param(1e-5, "check the unit, s for ms", id="a thousandth"),
        pytest.param(0.08, "looks like the throughput of one", id="eight times at batch 8"),
        pytest.param(0.00125, "looks like the time over all of them", id="an eighth at batch 8"),
    ],
)
def test_a_plain_step_far_from_the_model_is_doubted(plain_s: float, reason: str | None) -> None:
    advice = found(replace(PAIR, plain_s=plain_s))
    assert [one.code for one in advice] == ([] if reason is None else ["plain-step-far-from-the-model"])
    assert all(reason in one.remedy for one in advice if reason is not None)


def test_ratios_alone_say_nothing_of_the_plain_step() -> None:
    assert found(PAIR) == []
    assert found(replace(PAIR, plain_s=0.01), plain_s=np.nan) == []


@pytest.mark.parametrize(
    ("speedup", "length", "swapped"),
    [
        pytest.param(0.6, 2.5, True, id="R = 4.2 for 1.5; the other way round 1.5"),
        pytest.param(1.6, 2.4, False, id="a gain"),
        pytest.param(0.6, 1.4, False, id="E below the modelled R: a slowdown is expected"),
        pytest.param(0.95, 2.4, False, id="within the repeat noise"),
        pytest.param(0.9, 1.5, False, id="R = 1.67 is no dearer than the model may miss"),
        pytest.param(0.3, 2.5, False, id="the other way round it would be too cheap"),
    ],
)
def test_swapped_arms_are_hinted_at(speedup: float, length: float, swapped: bool) -> None:
    advice = found(replace(PAIR, speedup=speedup, acceptance_length=length))
    assert [one.code for one in advice] == (["arms-may-be-swapped"] if swapped else [])


def test_doubts_beside_the_model_reach_the_answer() -> None:
    source = anchored(H100, [replace(PAIR, plain_s=9.0)])
    assert "plain-step-far-from-the-model" in {advice.code for advice in source.warnings}


def test_scoped_cautions_stay_where_nothing_was_measured() -> None:
    """vLLM beyond batch 16 is a caution of its own, and thin evidence there another."""
    at_1 = anchored(H100, [replace(PAIR, batch=1)])
    at_64 = anchored(H100, [replace(PAIR, batch=64)])
    expected = [one.code for one in H100.warnings_at(3, 64, 64) if one.code != "uncalibrated"]
    assert "busy-engine" in expected
    left = at_1.warnings_at(3, 64, 64)
    assert [one.code for one in left] == expected
    assert {one.remedy for one in left} == {"measure a pair at such a batch too"}
    assert at_1.warnings_at(3, 1, 1) == ()
    assert at_64.warnings_at(3, [32, 256], 32) == ()
    assert anchored(H100, [replace(PAIR, batch=1), replace(PAIR, batch=32)]).warnings_at(3, 64, 64) == ()
