"""What a dry run says: places, memory and time, from the configurations alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from calibrate.grid import USABLE_SHARE
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


def test_every_place_is_a_row() -> None:
    plan = small()
    rows = list(plan.rows())
    assert len(plan) == len(rows)
    of_target = [(row["batch"], row["pass_width"]) for row in rows if row["part"] == "target"]
    assert of_target == [(b, q) for b in (1, 2) for q in (1, 2, 3, 5, 9)]
    of_draft = [(row["batch"], row["pass_width"]) for row in rows if row["part"] == "draft"]
    assert of_draft == [(b, k) for b in (1, 2) for k in (1, 2)]
    assert sum(row["part"] == "step-host" for row in rows) == 4
    assert {row["left_out"] for row in rows} == {None}
    assert [len(chunk["part"]) for chunk in plan.chunks(8)] == [8, 8, 4]


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
    reasons = {
        (row["part"], row["batch"], row["pass_width"], row["context"]): row["left_out"] for row in plan.rows()
    }
    assert reasons["target", 1, 9, 508] == "517 tokens are more than the 512 that the pair takes"
    large = reasons["target", 256, 1, 32]
    assert isinstance(large, str)
    assert large.startswith("needs ")
    assert large.endswith(f"{4.5 * USABLE_SHARE:.2f} MB are usable")
    left_out = sum(reason is not None for reason in reasons.values())
    assert f"; {left_out} do not fit" in plan.verdict


def test_a_pair_that_fits_nowhere_is_said_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calibrate.plans.free_bytes", lambda device: 1e6)
    plan = small()
    assert plan.verdict.startswith(f"nothing can be timed on {plan.where}: needs 3.")
    assert plan.seconds < 0.1, "of the host alone"


def test_the_time_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0.1 < small().seconds < 2  # passes of about a millisecond, twelve of each
    monkeypatch.setattr("calibrate.plans._CPU_RATES", (1e3, 1e3))
    assert small().seconds == 20  # of --quick
    assert small(quick=False).seconds == 90
    assert small(time_limit_s=7.0).seconds == 7
    assert "about 7 s of timing" in small(time_limit_s=7.0).verdict
    assert "the time limit of 7 s; acceptance and proof not counted" in small(time_limit_s=7.0).assumptions[0]
    skipping = small(time_limit_s=7.0, skip=frozenset({"acceptance"}))
    assert skipping.assumptions[0].endswith("of 7 s; proof not counted")


def test_a_known_device_is_as_fast_as_its_datasheet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading 141 GB takes 42 ms of an H100 and 14 s of a core, at 10 GB/s."""
    pair = {"target": "random:llama-3.1-70b", "draft": "ngram", "dtype": "bf16", "time_limit_s": 86_400.0}
    monkeypatch.setattr("calibrate.plans.free_bytes", lambda device: None)
    core = small(**pair)
    monkeypatch.setattr("calibrate.plans.device_name", lambda device: "NVIDIA H100 80GB HBM3")
    known = small(**pair)
    assert known.where == "NVIDIA H100 80GB HBM3"
    assert known.seconds * 100 < core.seconds


def test_random_weights_and_a_lookup_need_no_folder() -> None:
    plan = planned(request(target="random:llama-3.2-1b", draft="ngram", batches=(1,), contexts=(32,)))
    assert plan.inputs["draft"] == "ngram"
    assert plan.inputs["dtype"] == "fp32"
    assert [row["part"] for row in plan.rows()].count("draft") == 4  # 1, 2, 4, 8
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
