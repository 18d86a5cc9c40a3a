"""One forward pass against hand arithmetic and the published values of its limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from specmath.errors import InputError
from specmath.execution import DeviceRates
from specmath.experts import expected_experts
from specmath.model_counts import model_from_counts
from specmath.roofline import ForwardPass, blended

H100 = DeviceRates(memory_bytes_per_s=3.35e12, flops_per_s={"bf16": 989e12})


def seconds(text: str, tokens: float, rates: DeviceRates = H100) -> float:
    """One pass over `tokens` sequences of a model known by its counts."""
    return float(np.asarray(ForwardPass(model=model_from_counts(text), rates=rates).time(tokens, 1, 0)))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param(1, 140e9 / 3.35e12, id="one token: bytes"),
        pytest.param(295, 140e9 / 3.35e12, id="just under the ridge of 295.2: bytes"),
        pytest.param(296, 140e9 * 296 / 989e12, id="just over the ridge: FLOPs"),
    ],
)
def test_a_pass_takes_the_longer_of_bytes_and_flops(tokens: int, expected: float) -> None:
    assert seconds("70B", tokens) == pytest.approx(expected, rel=1e-15)


def test_the_limits_drop_one_side_each() -> None:
    assert seconds("70B", 10_000, H100.without_flops()) == pytest.approx(140e9 / 3.35e12, rel=1e-15)
    assert seconds("70B", 1, H100.without_bytes()) == pytest.approx(140e9 / 989e12, rel=1e-15)


def test_a_sparse_model_known_by_counts_reads_all_and_multiplies_the_active_share() -> None:
    assert seconds("47B/13B", 1) == pytest.approx(94e9 / 3.35e12, rel=1e-15)
    assert seconds("47B/13B", 5000) == pytest.approx(26e9 * 5000 / 989e12, rel=1e-15)


@pytest.mark.parametrize(
    ("sharpness", "expected"),
    [(np.inf, 4.0), (1.0, 7.0), (2.0, 5.0), (3.0, (27 + 64) ** (1 / 3))],
)
def test_a_component_blends_bytes_and_flops(sharpness: float, expected: float) -> None:
    assert float(blended(np.array(3.0), np.array(4.0), sharpness)) == pytest.approx(expected, rel=1e-14)
    assert float(blended(np.array(0.0), np.array(4.0), sharpness)) == 4.0
    assert float(blended(np.array(0.0), np.array(0.0), sharpness)) == 0.0


@pytest.mark.parametrize(
    ("experts", "top_k", "tokens", "touched"),
    [
        pytest.param(128, 8, 4, 29.1, id="theory: MoESD, 128/8 at 4 tokens"),
        pytest.param(256, 8, 4, 30.5, id="theory: 256/8 at 4 tokens"),
        pytest.param(60, 4, 8, 25.5, id="theory: 60/4 at 8 tokens"),
        pytest.param(8, 2, 5, 6.10, id="theory: 8/2 at 5 tokens"),
    ],
)
def test_expected_experts_as_published(experts: int, top_k: int, tokens: int, touched: float) -> None:
    assert float(expected_experts(experts, top_k, tokens)) == pytest.approx(touched, abs=0.05)


def test_expected_experts_against_random_routing() -> None:
    rng = np.random.default_rng(20261129)
    trials, experts, top_k, tokens = 4000, 16, 3, 5
    picks = rng.random((trials, tokens, experts)).argsort(axis=-1)[..., :top_k]
    touched = np.array([np.unique(trial).size for trial in picks])
    error = touched.std(ddof=1) / math.sqrt(trials)
    assert abs(touched.mean() - float(expected_experts(experts, top_k, tokens))) < 4 * error


@given(st.integers(1, 512), st.integers(0, 512), st.integers(0, 100_000))
def test_expected_experts_stays_between_top_k_and_all(experts: int, top_k: int, tokens: int) -> None:
    if top_k > experts:
        with pytest.raises(InputError, match="top_k"):
            expected_experts(experts, top_k, tokens)
        return
    touched = float(expected_experts(experts, top_k, tokens))
    least = top_k if tokens else 0
    assert least - 1e-9 <= touched <= experts
