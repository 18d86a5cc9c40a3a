"""What a dry run says: places, memory and time, from the configurations alone."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from calibrate.grid import USABLE_SHARE
from calibrate.opened import chosen_device
from calibrate.plans import PlanTable, planned
from calibrate.requests import Request
from specmath.errors import AccessError, InputError, UnknownNameError

MICRO = Path(__file__).with_name("data") / "micro_pair"
PARAMS = {"target": 869_504, "draft": 83_136}
"""Of the micro pair, embeddings tied; 512 tokens of vocabulary."""
KV_BYTES = (4 * 2 * 128 + 1 * 2 * 64) * 4
"""Of a token of both, at most: layers, keys and values, width, fp32."""


@pytest.fixture(autouse=True)
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a dry run builds no model")

    for name in ("from_pretrained", "from_config"):
        monkeypatch.setattr(AutoModelForCausalLM, name, refuse)
    monkeypatch.setattr("calibrate.opened.load_tokenizer", refuse)


def request(**changes: Any) -> Request:
    usual: dict[str, Any] = {"target": str(MICRO / "target"), "draft": str(MICRO / "draft"), "device": "cpu"}
    return Request(**(usual | changes))


def small(**changes: Any) -> PlanTable:
    return planned(request(**({"batches": (1, 2), "contexts": (32,), "ks": (2,), "quick": True} | changes)))


def places_of(plan: PlanTable) -> dict[tuple[str, int, int, int], str | None]:
    """Every place that the rows tell, and why it is left out."""
    rows: list[dict[str, Any]] = list(plan.rows())
    return {
        (row["part"], batch, width, context): row["left_out"]
        for row in rows
        for batch, width, context in product(row["batch"], row["pass_width"], row["context"])
    }


def test_alike_places_share_a_row() -> None:
    plan = small()
    assert len(plan) == len(list(plan.rows())) == 4
    rows = {row["part"]: row for row in plan.rows()}
    assert (rows["target"]["batch"], rows["target"]["pass_width"]) == ([1, 2], [1, 2, 3, 5, 9])
    assert (rows["draft"]["batch"], rows["draft"]["pass_width"]) == ([1, 2], [1, 2])
    assert rows["step-host"]["pass_width"] == [2, 3]
    assert {row["left_out"] for row in rows.values()} == {None}
    assert [len(chunk["part"]) for chunk in plan.chunks(3)] == [3, 1]
    told = {(place.part, place.batch, place.width, place.context) for place in plan.grid.places}
    assert set(places_of(plan)) == told


@pytest.mark.parametrize("free", [3e6, 4.5e6, 8e6])
def test_every_place_is_in_one_row(monkeypatch: pytest.MonkeyPatch, free: float) -> None:
    monkeypatch.setattr("calibrate.plans.free_bytes", lambda device: free)
    plan = planned(request(contexts=(32, 500, 508), batches=(1, 2, 16, 256)))
    asked = [*plan.grid.places, *(place for place, _ in plan.grid.left_out)]
    rows: list[dict[str, Any]] = list(plan.rows())
    cells = sum(len(row["batch"]) * len(row["pass_width"]) * len(row["context"]) for row in rows)
    assert cells == len(asked)
    told = {(part, b, q, c) for part, b, q, c in places_of(plan)}
    assert told == {(place.part, place.batch, place.width, place.context) for place in asked}
    out = {key for key, reason in places_of(plan).items() if reason}
    assert out == {(p.part, p.batch, p.width, p.context) for p, _ in plan.grid.left_out}


def test_memory_is_that_of_the_largest_place() -> None:
    """Weights, both caches at batch 2 and 32 + 9 tokens, and 12 bytes for each logit."""
    weights = 4 * sum(PARAMS.values())
    memory = small().inputs["memory_bytes"]
    assert isinstance(memory, int | float)
    expected = weights + KV_BYTES * 2 * 41 + 512 * 2 * 9 * 12
    assert expected * 0.85 < memory <= expected


def test_what_does_not_fit_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrate.plans.free_bytes", lambda device: 4.5e6)
    plan = small(batches=(1, 256), contexts=(32, 508))
    reasons = places_of(plan)
    assert reasons["target", 1, 9, 508] == "513 to 517 tokens are more than the 512 that the pair takes"
    large = reasons["target", 256, 1, 32]
    assert large is not None
    assert large.startswith("needs ")
    assert large.endswith(f"{4.5 * USABLE_SHARE:.2f} MB are usable")
    left_out = sum(reason is not None for reason in reasons.values())
    assert f"; {left_out} do not fit" in plan.verdict


def test_a_pair_that_fits_nowhere_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrate.plans.free_bytes", lambda device: 1e6)
    plan = small()
    assert plan.verdict.startswith(f"nothing can be timed on {plan.where}: needs 3.")
    assert plan.inputs["memory_bytes"] is None


def test_a_narrower_dtype_that_fits_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of 3.8 MB in fp32 and 1.9 MB in bf16."""
    monkeypatch.setattr("calibrate.plans.free_bytes", lambda device: 3.5e6)
    plan = small()
    assert plan.verdict.endswith("; give --dtype bf16, in which some fit")
    (advice,) = plan.warnings
    assert advice.text == "in bf16 20 of 20 cells fit, in fp32 6"
    assert advice.remedy == "give --dtype bf16"
    assert small(dtype="bf16").warnings == ()
    monkeypatch.setattr("calibrate.plans.free_bytes", lambda device: 1e9)
    assert small(contexts=(508,)).warnings == (), "no dtype makes room for longer texts"


def test_the_time_is_a_range_of_all_that_is_done() -> None:
    """Passes of about a millisecond: 8 of each of 20 places, and drift; all prompts in two ways."""
    timing = small(skip=frozenset({"acceptance", "proof"})).time
    assert 0.16 < timing.least_s < 0.5
    assert timing.most_s == 20  # of --quick
    proof = small(skip=frozenset({"acceptance"})).time
    steps = 3 * (16 + 2) * 2  # rounds of 16 new tokens and two warm ones, plain and speculative
    assert proof.least_s - timing.least_s == pytest.approx(2 * steps * 3.6e-3, rel=0.4)
    assert proof.most_s - 20 == pytest.approx(5 * (proof.least_s - timing.least_s))
    whole = small().time
    assert whole.least_s > proof.least_s + 1
    assert small(new_tokens=256).time.least_s > whole.least_s
    assert small(time_limit_s=7.0).time.most_s == pytest.approx(whole.most_s - 13)
    assert "of timing, acceptance and proof; " in small().assumptions[0]
    assert "time limit of 20 s" in small().assumptions[0]
    assert "of timing and proof; " in small(skip=frozenset({"acceptance"})).assumptions[0]
    assert " to " in small().verdict.partition("about ")[2]


def test_a_known_device_is_as_fast_as_its_datasheet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading 141 GB takes 42 ms of an H100 and 14 s of a core, at 10 GB/s."""
    pair = {"target": "random:llama-3.1-70b", "draft": "ngram", "dtype": "bf16", "time_limit_s": 86_400.0}
    monkeypatch.setattr("calibrate.plans.free_bytes", lambda device: None)
    core = small(**pair)
    monkeypatch.setattr("calibrate.plans.device_name", lambda device: "NVIDIA H100 80GB HBM3")
    known = small(**pair)
    assert known.where == "NVIDIA H100 80GB HBM3"
    assert known.time.least_s * 100 < core.time.least_s


def test_a_part_of_the_catalogue_is_planned_for_without_it() -> None:
    plan = planned(request(target="random:llama-3.1-8b", draft="random:llama-3.2-1b", device="h100-sxm"))
    assert (plan.where, plan.dtype) == ("h100-sxm", "bf16")
    assert max(batch for _, batch, _, _ in places_of(plan)) == 256
    assert any("usable" in str(row["left_out"]) for row in plan.rows())
    with pytest.raises(AccessError, match="another part of the catalogue, is planned for without it"):
        planned(request(device="cuda:77"))
    with pytest.raises(InputError, match="for a part of the catalogue --dry-run plans alone"):
        chosen_device("h100-sxm")


def test_prompts_are_read_in_a_dry_run_too(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="no such file"):
        small(prompts=str(tmp_path / "nowhere.txt"))


def test_random_weights_and_a_lookup_need_no_folder() -> None:
    plan = planned(request(target="random:llama-3.2-1b", draft="ngram", batches=(1,), contexts=(32,)))
    assert plan.inputs["draft"] == "ngram"
    assert plan.inputs["dtype"] == "fp32"
    assert [row["pass_width"] for row in plan.rows() if row["part"] == "draft"] == [[1, 2, 4, 8]]
    memory = plan.inputs["memory_bytes"]
    assert isinstance(memory, float)
    assert 4 * 1.236e9 < memory < 4 * 1.3e9


def test_a_plan_is_a_document() -> None:
    document = json.dumps(list(small().rows()), allow_nan=False)
    assert '"left_out": null' in document


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"target": "random:lama-3.1-8b"}, UnknownNameError, "nearest: .*llama-3.1-8b"),
        ({"target": "no/such-folder/at all"}, AccessError, "no such folder"),
        ({"device": "cuda:7"}, AccessError, "no such device: torch sees"),
        ({"regime": "cuda-graph"}, AccessError, "needs a CUDA device, and this is cpu; give --regime eager"),
        ({"device": "tpu"}, InputError, "must be cpu, cuda"),
        ({"device": "not a device"}, InputError, "must be cpu, cuda"),
    ],
)
def test_what_would_stop_the_run_stops_the_plan(
    changes: dict[str, Any], kind: type[Exception], words: str
) -> None:
    if changes.get("device") == "cuda:7" and torch.cuda.device_count() > 7:
        pytest.skip("there is such a device")
    with pytest.raises(kind, match=words):
        planned(request(**changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"ks": (0,)}, "k: must be"),
        ({"ks": (65,)}, "k: must be at most 64, got 65"),
        ({"batches": (10**12,)}, "batch: must be at most 65,536, got 1,000,000,000,000"),
        ({"batches": tuple(range(1, 66))}, "batch: takes at most 64 values, got 65"),
        ({"contexts": (10**9,)}, "context: must be at most 16,777,216"),
        ({"batches": (0,)}, "batch: must be"),
        ({"contexts": (0,)}, "context: must be"),
        ({"temperatures": (-1.0,)}, "temperature: must be"),
        ({"top_ps": (0.0,)}, "top_p: must be"),
        ({"new_tokens": 4}, "new_tokens: must be"),
        ({"threads": 0}, "threads: must be"),
        ({"time_limit_s": 0.5}, "time_limit: must be"),
        ({"regime": "graph"}, "regime: must be one of eager, cuda-graph, compile, got 'graph'"),
        ({"skip": frozenset({"proofs"})}, "skip: must be of acceptance, proof, got 'proofs'"),
        ({"seed": -1}, "seed: must be"),
    ],
)
def test_a_request_is_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        request(**changes)
