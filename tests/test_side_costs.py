"""Side costs against the published figures that they were taken from."""

from __future__ import annotations

import pytest

from specmath.errors import InputError
from specmath.side_costs import loses_prefix_hits, prefix_hits, running_zero_tier_cost


@pytest.mark.parametrize(
    ("tokens", "share"),
    [
        pytest.param(3_784, 0.0, id="vllm #54360, 3,784"),
        pytest.param(7_542, 0.57, id="vllm #54360, 7,542"),
        pytest.param(11_292, 0.76, id="vllm #54360, 11,292"),
        pytest.param(15_019, 0.86, id="vllm #54360, 15,019"),
        pytest.param(18_770, 0.80, id="vllm #54360, 18,770"),
    ],
)
def test_hits_of_an_exact_repeat_on_a_hybrid_model(tokens: int, share: float) -> None:
    """Units of 2,144 tokens, rounded to whole per cents in the thread."""
    assert float(prefix_hits(tokens, 2_144, drafting=True)) / tokens == pytest.approx(share, abs=0.006)


@pytest.mark.parametrize(
    ("cached", "unit", "plain", "drafting"),
    [(0, 16, 0, 0), (1, 16, 0, 0), (16, 16, 0, 0), (17, 16, 16, 0), (32, 16, 16, 0), (33, 16, 32, 16)],
)
def test_the_last_token_is_always_computed(cached: int, unit: int, plain: int, drafting: int) -> None:
    assert prefix_hits(cached, unit, drafting=False) == plain
    assert prefix_hits(cached, unit, drafting=True) == drafting


def test_a_drafter_never_gains_hits_and_loses_one_unit_at_most() -> None:
    for unit in (1, 16, 1_600):
        for cached in range(0, 5_000, 37):
            lost = prefix_hits(cached, unit, drafting=False) - prefix_hits(cached, unit, drafting=True)
            assert lost in (0, unit)


@pytest.mark.parametrize(("cached", "unit"), [(-1, 16), (10, 0), (10, 1.5)])
def test_refusals(cached: float, unit: float) -> None:
    with pytest.raises(InputError):
        prefix_hits(cached, unit, drafting=True)


def test_hits_are_lost_in_vllm_beside_heads_that_read_hidden_states() -> None:
    assert loses_prefix_hits("vllm", "mtp")
    assert not loses_prefix_hits("vllm", "draft-model")
    assert not loses_prefix_hits("sglang", "eagle3")
    assert not loses_prefix_hits(None, "eagle3")


@pytest.mark.parametrize(
    ("engine", "release", "cost"),
    [
        ("vllm", (0, 24, 9), 0.0),
        ("vllm", (0, 25), 0.192),
        ("vllm", (0, 27, 1), 0.192),
        ("vllm", (0, 28), 0.0),
        ("vllm", None, 0.0),
        ("sglang", (0, 26), 0.0),
    ],
)
def test_the_zero_tier_by_version(engine: str, release: tuple[int, ...] | None, cost: float) -> None:
    assert running_zero_tier_cost(engine, release) == pytest.approx(cost, abs=1e-3)
