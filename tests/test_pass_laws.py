"""Laws of passes against exact arithmetic, and in their limits."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from specmath.errors import InputError
from specmath.pass_laws import MAX_SHARPNESS, DraftLaw, HostLaw, PassLaw

PUBLISHED = PassLaw(weights_s=5.886e-3, compute_s_per_token=21.0e-6, kv_s_per_token=39.26e-9)


@pytest.mark.parametrize("batch", [1, 8, 256])
@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("context", [0, 512, 8192])
def test_the_plain_sum_in_fractions(batch: int, width: int, context: int) -> None:
    law = PassLaw(weights_s=0.5, compute_s_per_token=0.125, kv_s_per_token=0.0625, kv_reread=0.25)
    cached = Fraction(1, 16) * batch * context * (1 + Fraction(1, 4) * (width - 1))
    exact = Fraction(1, 2) + Fraction(1, 8) * batch * width + cached
    assert law.pass_s(batch, width, context) == float(exact)


def test_a_published_fit() -> None:
    """Llama-3.1-8B on an H100: 5.886 + 1.217 + 0.021 ms at 31,000 cached tokens."""
    assert PUBLISHED.pass_s(1, 1, 31_000) == pytest.approx(7.12406e-3, rel=1e-9)


@pytest.mark.parametrize(("tokens", "seconds"), [(1, 5.0990195), (5, 7.0710678), (12, 13.0)])
def test_a_corner_of_sharpness_2_is_the_root_of_the_sum_of_squares(tokens: int, seconds: float) -> None:
    law = PassLaw(weights_s=5.0, compute_s_per_token=1.0, sharpness=2.0)
    assert law.pass_s(1, tokens, 0) == pytest.approx(seconds, rel=1e-7)
    assert PassLaw(weights_s=5.0, compute_s_per_token=1.0, sharpness=2.0, fixed_s=3.0).pass_s(
        1, tokens, 0
    ) == pytest.approx(seconds + 3, rel=1e-7)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e-9])
def test_limits_of_the_sharpness_whatever_the_unit(unit: float) -> None:
    """The sum at 1; from 1 to 2^(1/32) times the larger at the largest; powers of 1e-9 s would be 0."""
    tokens = np.arange(1, 20)
    larger = np.maximum(7.0, tokens) * unit
    blunt, sharp = (
        np.asarray(PassLaw(weights_s=7 * unit, compute_s_per_token=unit, sharpness=s).pass_s(1, tokens, 0))
        for s in (1.0, MAX_SHARPNESS)
    )
    np.testing.assert_allclose(blunt, (7.0 + tokens) * unit, rtol=1e-12)
    assert np.all(sharp >= larger)
    assert np.all(sharp <= larger * 2 ** (1 / 32) * (1 + 1e-12))
    assert sharp[6] / larger[6] == pytest.approx(2 ** (1 / 32), rel=1e-12)


def test_more_sharpness_takes_less_time() -> None:
    times = [
        PassLaw(weights_s=5.0, compute_s_per_token=1.0, sharpness=s).pass_s(1, 5, 0) for s in (1, 2, 8, 32)
    ]
    assert times == sorted(times, reverse=True)


def test_a_single_token_has_its_own_time_and_the_cache_on_top() -> None:
    law = PassLaw(weights_s=8, compute_s_per_token=1, kv_s_per_token=0.5, single_token_s=3.0)
    assert law.pass_s([1, 1, 2], [1, 2, 1], 4) == pytest.approx([3 + 2, 8 + 2 + 2, 8 + 2 + 4])


@pytest.mark.parametrize(
    ("tokens", "touched"),
    [(1, Fraction(1, 4)), (2, Fraction(7, 16)), (3, Fraction(37, 64))],  # 1 − (3/4)^t
)
def test_experts_by_the_share_that_is_touched(tokens: int, touched: Fraction) -> None:
    law = PassLaw(weights_s=1.0, compute_s_per_token=0.0, experts_s=64.0, expert_counts=(8, 2))
    assert law.pass_s(tokens, 1, 0) == pytest.approx(float(1 + 64 * touched), rel=1e-12)


def test_a_chain_of_no_drafts_takes_no_time() -> None:
    law = DraftLaw(fixed_s=1.0, s_per_sequence=0.25, kv_s_per_token=0.125, round_s=0.5)
    assert law.chain_s([0, 1, 3], 2, 4) == pytest.approx([0, 2.5 + 0.5, 7.5 + 0.5])


def test_host_time_by_sequence_and_by_token() -> None:
    assert HostLaw(fixed_s=1, s_per_sequence=2, s_per_token=3).host_s(4, 5) == 1 + 8 + 60


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        pytest.param({"weights_s": -1.0, "compute_s_per_token": 1.0}, "weights_s", id="below 0"),
        pytest.param({"weights_s": 0.0, "compute_s_per_token": 0.0}, "weights_s", id="nothing takes time"),
        pytest.param(
            {"weights_s": 1.0, "compute_s_per_token": 1.0, "kv_reread": 1.5}, "kv_reread", id="ρ > 1"
        ),
        pytest.param(
            {"weights_s": 1.0, "compute_s_per_token": 1.0, "sharpness": 0.5}, "sharpness", id="s < 1"
        ),
        pytest.param(
            {"weights_s": 1.0, "compute_s_per_token": 1.0, "experts_s": 1.0}, "expert_counts", id="N?"
        ),
    ],
)
def test_impossible_laws_are_refused(fields: dict[str, float], name: str) -> None:
    with pytest.raises(InputError, match=name):
        PassLaw(**fields)  # type: ignore[arg-type]
