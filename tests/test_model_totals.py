"""Every catalogue entry against reference counts.

`model_facts.csv` holds, per model, parameter totals that transformers 5.24 gives on the meta device
(check = ref), that the training class of the draft head gives (code), or that a published exact count gives
(exact); rows without a check are formula only. Figures such as 7.505B are rounded to four digits.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from specmath.model import ModelShape
from specmath.model_catalogue import load_model, model_names

TABLE = Path(__file__).with_name("model_facts.csv").read_text()
FACTS = {row["name"]: row for row in csv.DictReader(TABLE.splitlines())}
PREFIXES = {"B": 1e9, "M": 1e6}


def rounded(text: str) -> tuple[float, float]:
    """A figure and the half unit of its last digit: 7.505B is 7.505e9 within 5e5."""
    factor = PREFIXES.get(text[-1], 1.0)
    digits = text.rstrip("BM")
    decimals = len(digits.partition(".")[2])
    return float(digits) * factor, 0.501 * factor * 10**-decimals if factor > 1 else 0.0


def assert_rounds_to(value: float, text: str) -> None:
    figure, half_unit = rounded(text)
    assert abs(value - figure) <= half_unit, f"{value} is not {text}"


def flops(model: ModelShape, kind: str) -> int:
    """FLOPs per pair of the window layers, of indexers, or of everything else."""
    chosen: dict[str, list[int]] = {"window": [], "indexer": [], "full": []}
    for group in model.attention:
        key = "window" if group.window else "indexer" if group.name == "indexer" else "full"
        chosen[key].append(group.flops_per_pair)
    return sum(chosen[kind])


def test_the_table_names_the_catalogue() -> None:
    assert tuple(sorted(FACTS)) == model_names()


@pytest.mark.parametrize("name", FACTS)
def test_parameters(name: str) -> None:
    facts, model = FACTS[name], load_model(name)
    assert model.total_params == int(facts["total"])
    if facts["active"]:
        assert_rounds_to(model.active_params, facts["active"])
    if facts["read"]:
        assert_rounds_to(model.read_params, facts["read"])


@pytest.mark.parametrize("name", [name for name in FACTS if FACTS[name]["kv_bytes"]])
def test_cache_and_state(name: str) -> None:
    facts, model = FACTS[name], load_model(name).with_kv_cache_dtype("bf16")
    assert model.kv_bytes_per_token == int(facts["kv_bytes"])
    assert model.kv_growth_bytes_per_token == int(facts["kv_growth"])
    if facts["state_bytes"]:
        assert model.state_bytes == int(facts["state_bytes"])


@pytest.mark.parametrize("name", [name for name in FACTS if FACTS[name]["full_flops"]])
def test_attention_work(name: str) -> None:
    facts, model = FACTS[name], load_model(name)
    for kind in ("full", "window", "indexer"):
        assert flops(model, kind) == int(facts[f"{kind}_flops"] or 0)
    assert sum(group.flops_per_token for group in model.states) == int(facts["state_flops"] or 0)


@pytest.mark.parametrize("name", [name for name in FACTS if FACTS[name]["mtp_params"]])
def test_mtp_module(name: str) -> None:
    facts, model = FACTS[name], load_model(name)
    assert model.mtp is not None
    assert model.mtp.draft is not None
    assert model.mtp.draft.kind == "mtp"
    assert_rounds_to(model.mtp.total_params, facts["mtp_params"])
    assert_rounds_to(model.mtp.read_params, facts["mtp_read"])
