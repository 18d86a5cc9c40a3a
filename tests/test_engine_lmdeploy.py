"""LMDeploy: counters after vLLM's, and its log lines inside its own statistics lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from specmath.engines.content import fed
from specmath.engines.exposition import difference, parse_exposition
from specmath.engines.lmdeploy import LmdeployLog, read_exposition

SAMPLES = Path(__file__).parent / "data" / "engine_samples"
NAME = "lmdeploy-0.16.0-metrics.txt"
TEXT = (SAMPLES / NAME).read_text()


def test_a_scrape() -> None:
    expected = json.loads((SAMPLES / "expected.json").read_text())[NAME]
    (telemetry,) = read_exposition(parse_exposition(TEXT))
    assert (telemetry.drafts, telemetry.drafted, telemetry.accepted, telemetry.k) == (2000, 6000, 3250, 3)
    assert [reached / 2000 for reached in telemetry.accepted_at] == expected["per_position_unconditional"]
    assert (telemetry.model, telemetry.k_varies) == ("deepseek-v3", False)
    assert telemetry.reported_rate is not None
    assert telemetry.reported_rate.value == pytest.approx(expected["draft_acceptance_rate"], abs=1e-6)


def test_ranks_are_added_and_gauges_are_not() -> None:
    (telemetry,) = read_exposition(parse_exposition(TEXT + TEXT.replace('engine="0"', 'engine="1"')))
    assert (telemetry.drafts, telemetry.accepted, telemetry.accepted_at) == (4000, 6500, (3000, 2100, 1400))
    assert telemetry.reported_rate is not None
    assert telemetry.reported_rate.value == pytest.approx(3250 / 6000)


def test_two_scrapes() -> None:
    later = parse_exposition(TEXT.replace("2000.0", "2600.0").replace("3250.0", "4000.0"))
    (telemetry,) = read_exposition(difference(parse_exposition(TEXT), later))
    assert (telemetry.drafts, telemetry.accepted, telemetry.drafted) == (600, 750, 0)


def test_the_series_of_others_are_left_to_them() -> None:
    assert read_exposition(parse_exposition(TEXT.replace("lmdeploy:", "vllm:"))) == []


LINE = (
    "[2026-11-29 07:00:05 DP0] Avg thr (in/out): 10.0 / 20.0 tokens/s, Running: 3 reqs, SpecDecoding metrics:"
    " Draft acceptance rate: 54.17%, Mean acceptance length: 2.62, Accepted: 3250 tokens,"
    " Drafted: 6000 tokens, Per-position acceptance rate: 0.750, 0.525, 0.350"
)


def test_log_lines_are_added() -> None:
    (telemetry,) = fed(LmdeployLog("a.log"), [LINE, LINE.replace("DP0", "DP1"), LINE[:90], "other"])
    assert (telemetry.engine, telemetry.scope, telemetry.k) == ("lmdeploy", "intervals", 3)
    assert (telemetry.drafts, telemetry.drafted, telemetry.accepted) == (4000, 12000, 6500)


def test_a_line_of_vllm_is_left_to_vllm() -> None:
    assert fed(LmdeployLog("a.log"), [LINE.partition("reqs, ")[2]]) == []


@given(st.integers(0, len(LINE)), st.text())
def test_cut_lines_are_read_or_passed_over(end: int, noise: str) -> None:
    for telemetry in fed(LmdeployLog("a.log"), [LINE[:end] + noise]):
        assert telemetry.drafted == 6000
