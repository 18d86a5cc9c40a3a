"""Step costs of typed ratios and of the roofline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specmath.accelerator import Accelerator, Source
from specmath.acceptance import expected_tokens
from specmath.catalogue import load_hardware
from specmath.drafters.draft_model import DraftModel
from specmath.drafters.lookup import Lookup
from specmath.errors import InputError
from specmath.execution import Efficiency, Layout
from specmath.model import ModelShape
from specmath.model_catalogue import load_model
from specmath.model_counts import counts_model
from specmath.ratios import lookup_speedup
from specmath.roofline_source import Roofline, roofline_cases
from specmath.sources import Ratios

ROOFLINE = json.loads((Path(__file__).parent / "data" / "roofline.json").read_text())
GOLDEN = [row for row in ROOFLINE["rows"] if row["fn"] == "speedup_params_only"]


def device(peak: float, bandwidth: float) -> Accelerator:
    return Accelerator(
        name="typed",
        title="typed rates",
        vendor="none",
        kind="gpu",
        peak_flops_per_s={"bf16": peak},
        memory_bytes=80 * 2**30,
        memory_bytes_per_s=bandwidth,
        confidence="high",
        sources=(Source(key="typed", title="typed in a test", kind="derived"),),
    )


def dense(params: float) -> ModelShape:
    return counts_model(f"{params:g}", params)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"alpha={row['alpha']} batch={row['batch']}")
def test_golden_speedups_of_pairs_known_by_counts(row: dict[str, Any]) -> None:
    source = Roofline(
        accelerator=device(row["peak_flops_per_s"], row["memory_bytes_per_s"]),
        target=dense(row["target_params"]),
        drafter=DraftModel(dense(row["draft_params"])),
    )
    step = source.step_cost(row["k"], row["batch"], 0).in_plain_steps
    assert float(expected_tokens(row["alpha"], row["k"]) / step) == pytest.approx(row["value"], rel=1e-9)


def test_the_memory_bound_case_verifies_for_free_at_a_byte_ratio() -> None:
    _, memory, compute = roofline_cases(load_hardware("h100-sxm"), dense(70e9), DraftModel(dense(1e9)))
    for batch in (1, 64, 4096):
        cost = memory.step_cost(4, batch, 0)
        assert float(cost.verify_cost) == 1.0
        assert float(cost.draft_cost) == pytest.approx(1 / 70, rel=1e-14)
        cost = compute.step_cost(4, batch, 0)
        assert float(cost.verify_cost) == pytest.approx(5, rel=1e-14)
        assert float(cost.draft_cost) == pytest.approx(1 / 70, rel=1e-14)


def test_a_sparse_draft_has_its_own_flop_ratio_in_the_compute_bound_case() -> None:
    draft = counts_model("4B/1B", 4e9, 1e9)
    _, memory, compute = roofline_cases(load_hardware("h100-sxm"), dense(70e9), DraftModel(draft))
    assert float(memory.step_cost(4, 8, 0).draft_cost) == pytest.approx(4 / 70, rel=1e-14)
    assert float(compute.step_cost(4, 8, 0).draft_cost) == pytest.approx(1 / 70, rel=1e-14)


def test_ratios_give_back_what_was_typed_and_grow_with_k() -> None:
    cost = Ratios(draft_cost=0.05, verify_cost=1.1, verify_slope=0.02, overhead=0.03).step_cost(
        [0, 2, 5], 1, 0
    )
    assert cost.verify_cost == pytest.approx([1.1, 1.14, 1.2], rel=1e-15)
    assert cost.in_plain_steps == pytest.approx([1.13, 1.27, 1.48], rel=1e-15)
    assert np.isnan(cost.plain_s).all()


def test_a_lookup_draft_by_ratios_is_the_closed_form() -> None:
    source = Ratios(draft_cost=0, verify_cost=1.4, overhead=0.05, match_rate=0.3)
    length = 1 + 0.3 * (float(expected_tokens(0.8, 4)) - 1)
    expected = lookup_speedup(0.8, 4, match_rate=0.3, verify_cost=1.4, overhead=0.05)
    assert length / float(source.step_cost(4, 1, 0).in_plain_steps) == pytest.approx(expected, rel=1e-14)


def test_a_lookup_draft_alone_averages_steps_and_in_a_batch_shares_the_pass() -> None:
    ideal, *_ = roofline_cases(device(4e12, 2e12), dense(1e9), Lookup(0.5))
    # Ridge at 2 tokens: 4e12 · 2 bytes / (2 · 2e12).
    assert ideal.ridge_tokens == pytest.approx(2)
    alone = 0.5 * (8 / 2) + 0.5 * 1  # 8 tokens are 4 × the plain step, no match is the plain step
    assert float(ideal.step_cost(7, 1, 0).verify_cost) == pytest.approx(alone, rel=1e-14)
    shared = 4 * (1 + 0.5 * 7) / 4  # 18 tokens against 4, both beyond the ridge
    assert float(ideal.step_cost(7, 4, 0).verify_cost) == pytest.approx(shared, rel=1e-14)
    assert float(ideal.step_cost(7, 4, 0).draft_cost) == 0


def test_a_tree_verifies_its_nodes_not_its_depth() -> None:
    ideal, *_ = roofline_cases(device(4e12, 2e12), dense(1e9), DraftModel(dense(1e8)))
    chain, tree = ideal.step_cost(4, 1, 0), ideal.step_cost(4, 1, 0, width=20)
    assert float(tree.verify_cost) == pytest.approx(float(chain.verify_cost) * 20 / 5, rel=1e-14)
    assert float(tree.draft_passes) == 4


def test_a_warning_counts_the_devices_that_the_weights_want() -> None:
    ideal, *_ = roofline_cases(load_hardware("h100-sxm"), dense(70e9), DraftModel(dense(1e9)))
    (advice,) = ideal.warnings
    assert advice.code == "more-devices"
    assert "142 GB" in advice.text
    assert "85.52 GB of a h100-sxm: at least 2" in advice.text
    fits, *_ = roofline_cases(load_hardware("h100-sxm"), dense(8e9), DraftModel(dense(1e9)))
    assert fits.warnings == ()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: Ratios(draft_cost=-0.1), "draft_cost"),
        (lambda: Ratios(draft_cost=0.1, verify_cost=0), "verify_cost"),
        (lambda: Ratios(draft_cost=0.1, overhead=float("nan")), "overhead"),
        (lambda: Ratios(draft_cost=0.1, match_rate=1.1), "match_rate"),
        (lambda: roofline_cases(load_hardware("t4"), dense(7e9), Lookup()), "dtype"),
        (
            lambda: roofline_cases(load_hardware("l4"), dense(7e9), Lookup())[0].step_cost(4, 1, 2048),
            "context",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(call: Any, name: str) -> None:
    with pytest.raises(InputError, match=f"^{name}: "):
        call()


def test_the_derivation_of_typed_ratios_adds_up() -> None:
    source = Ratios(draft_cost=0.05, verify_cost=1.1, verify_slope=0.1, overhead=0.2)
    (line,) = source.derivation(4, 1, 0, width=5, passes=4)
    assert line == "R = v + c·k + o = 1.5000 + 0.05·4 + 0.2 = 1.9000 plain steps (v = 1.1 + 0.1·k)"


def test_the_derivation_of_a_lookup_draft_shows_the_shared_pass() -> None:
    ideal, *_ = roofline_cases(load_hardware("h100-sxm"), dense(70e9), Lookup(0.25))
    lines = ideal.derivation(4, 8, 0, width=5, passes=4)
    assert any(line.startswith("shared verification, h matched, 2 tokens of 8 sequences") for line in lines)


def test_the_limits_are_free_of_communication() -> None:
    cases = roofline_cases(
        load_hardware("h100-sxm"),
        load_model("llama-3.1-8b"),
        Lookup(),
        layout=Layout(tp=2),
        efficiency=Efficiency(link_latency_s=1.0),
    )
    seconds = [float(np.asarray(case.target_pass().time(1, 1, 0))) for case in cases]
    assert seconds[0] > 64  # two all-reduces in each of 32 layers
    assert max(seconds[1:]) < 0.1


def test_expert_parallelism_wants_experts() -> None:
    part, layout = load_hardware("h100-sxm"), Layout(tp=2, ep=2)
    assert roofline_cases(part, load_model("qwen3-30b-a3b"), Lookup(), layout=layout)
    with pytest.raises(InputError, match=r"^ep: .* has none"):
        roofline_cases(part, load_model("llama-3.1-8b"), Lookup(), layout=layout)


@pytest.mark.parametrize("rate", [-0.1, 1.5])
def test_a_match_rate_is_a_share(rate: float) -> None:
    with pytest.raises(InputError, match=r"^match_rate: "):
        roofline_cases(load_hardware("h100-sxm"), dense(8e9), Lookup(rate))
