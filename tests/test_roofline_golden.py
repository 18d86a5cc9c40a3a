"""The roofline against values of an independent implementation: passes, pairs, and pairs known by counts."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from specmath.acceptance import expected_tokens
from specmath.checks import Numbers
from specmath.execution import DeviceRates, Efficiency, Layout
from specmath.model import AttentionGroup, ExpertGroup, ModelShape, WeightGroup
from specmath.model_catalogue import load_model
from specmath.model_counts import counts_model
from specmath.roofline import ForwardPass

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "roofline.json").read_text())
MODELS: dict[str, Any] = GOLDEN["models"]
CATALOGUED = sorted(name for name in MODELS if name != "llama-3.1-8b-int4")


def rows(function: str) -> list[dict[str, Any]]:
    return [row for row in GOLDEN["rows"] if row["fn"] == function]


def row_id(row: dict[str, Any]) -> str:
    names = ("model", "target", "k", "alpha", "batch", "tokens_per_sequence", "context")
    return " ".join(f"{name}={row[name]}" for name in names if name in row)


def typed(coefficients: dict[str, Any]) -> ModelShape:
    """A shape from typed coefficients, without a configuration in between."""
    weights = [
        WeightGroup(
            name="all",
            stored_params=group["params"],
            read_params=group["params"],
            multiplied_params=group["params"],
            bytes_per_param=group["bytes_per_param"],
            compute_dtype="bf16",
        )
        for group in coefficients["dense"]
    ]
    experts = ExpertGroup(
        n_layers=coefficients["moe_layers"],
        n_experts=coefficients["experts"],
        top_k=coefficients["top_k"],
        params_per_expert=coefficients["expert_params"],
        bytes_per_param=coefficients["expert_bytes_per_param"],
        compute_dtype="bf16",
    )
    attention = [
        AttentionGroup(
            name="full" if group["window"] is None else "window",
            n_layers=1,
            kv_elements_per_entry=group["kv_bytes_per_token"],
            kv_bytes_per_element=1.0,
            flops_per_pair=group["flops_per_pair"],
            kv_heads=group["kv_heads"],
            window=group["window"],
        )
        for group in coefficients["attention"]
    ]
    return ModelShape(
        name=coefficients["name"],
        source="typed in a test",
        weights=tuple(weights),
        experts=(experts,) if coefficients["experts"] else (),
        attention=tuple(attention),
        hidden=coefficients["hidden"],
        n_layers=coefficients["layers"],
    )


def passes(model: ModelShape, machine: dict[str, Any]) -> ForwardPass:
    """`sharpness` null stands for the larger of bytes and FLOPs."""
    return ForwardPass(
        model=model,
        rates=DeviceRates(
            memory_bytes_per_s=machine["memory_bytes_per_s"],
            flops_per_s={"bf16": machine["peak_flops_per_s"]},
            link_bytes_per_s=machine["link_bytes_per_s"],
        ),
        layout=Layout(tp=machine["tp"]),
        efficiency=Efficiency(
            memory_efficiency=machine["memory_efficiency"],
            compute_efficiency=machine["compute_efficiency"],
            sharpness=math.inf if machine["sharpness"] is None else machine["sharpness"],
            kv_reread=machine["kv_reread"],
            link_latency_s=machine["link_latency_s"],
            pass_overhead_s=machine["pass_overhead_s"],
        ),
    )


def row_time(row: dict[str, Any], model: ModelShape) -> Numbers:
    return passes(model, row["hardware"]).time(row["batch"], row["tokens_per_sequence"], row["context"])


def ideal_speedup(row: dict[str, Any], target: ForwardPass, draft: ForwardPass, context: int) -> Numbers:
    k, batch = int(row["k"]), int(row["batch"])
    plain_s, draft_s = target.time(batch, 1, context), draft.time(batch, 1, context)
    step_s = k * draft_s + target.time(batch, k + 1, context)
    return expected_tokens(row["alpha"], k) * plain_s / step_s


def test_every_row_belongs_to_a_test_below() -> None:
    known = ("pass_time", "speedup_ideal", "speedup_params_only")
    assert [len(rows(function)) for function in known] == [40, 36, 36]
    assert len(GOLDEN["rows"]) == 112


@pytest.mark.parametrize("row", rows("pass_time"), ids=row_id)
def test_golden_passes(row: dict[str, Any]) -> None:
    assert row_time(row, typed(MODELS[row["model"]])) == pytest.approx(row["value"], rel=1e-9)


@pytest.mark.parametrize("row", rows("speedup_ideal"), ids=row_id)
def test_golden_ideal_speedups(row: dict[str, Any]) -> None:
    target, draft = (passes(typed(MODELS[row[role]]), GOLDEN["ideal"]) for role in ("target", "draft"))
    assert ideal_speedup(row, target, draft, row["context"]) == pytest.approx(row["value"], rel=1e-9)


@pytest.mark.parametrize("row", rows("speedup_params_only"), ids=row_id)
def test_golden_speedups_of_pairs_known_by_counts(row: dict[str, Any]) -> None:
    rates = DeviceRates(
        memory_bytes_per_s=row["memory_bytes_per_s"], flops_per_s={"bf16": row["peak_flops_per_s"]}
    )
    target, draft = (
        ForwardPass(
            model=counts_model(role, row[f"{role}_params"], bytes_per_param=row["bytes_per_param"]),
            rates=rates,
        )
        for role in ("target", "draft")
    )
    assert ideal_speedup(row, target, draft, 0) == pytest.approx(row["value"], rel=1e-9)


@pytest.mark.parametrize("name", CATALOGUED)
def test_the_catalogue_has_the_same_coefficients(name: str) -> None:
    golden, model = typed(MODELS[name]), load_model(name)
    assert model.dense_params == golden.dense_params
    assert {group.bytes_per_param for group in model.weights} == {2.0}
    assert model.experts == golden.experts
    assert (model.hidden, model.n_layers) == (golden.hidden, golden.n_layers)
    kept, expected = (
        {
            (group.kv_bytes_per_token, group.flops_per_pair, group.kv_heads, group.window)
            for group in shape.attention
        }
        for shape in (model, golden)
    )
    assert kept == expected


@pytest.mark.parametrize("row", [row for row in rows("pass_time") if row["model"] in CATALOGUED], ids=row_id)
def test_golden_passes_of_catalogue_models(row: dict[str, Any]) -> None:
    assert row_time(row, load_model(row["model"])) == pytest.approx(row["value"], rel=1e-9)


def test_int4_differs_from_the_golden_model_by_its_norms_alone() -> None:
    """The golden one packs the norms too; here they keep 16 bits, as in the files of the hub."""
    model = load_model("llama-3.1-8b").with_quantization("int4")
    packed = sum(group.read_params for group in model.weights if group.bytes_per_param == 0.53125)
    (norms,) = (group.read_params for group in model.weights if group.name == "norms")
    assert packed + norms == MODELS["llama-3.1-8b-int4"]["dense"][0]["params"]
