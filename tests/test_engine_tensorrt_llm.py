"""TensorRT-LLM: iteration statistics, recorded histograms, and Prometheus series of two kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmath.engines.exposition import difference, parse_exposition
from specmath.engines.telemetry import Telemetry
from specmath.engines.tensorrt_llm import read_histograms, read_iterations, read_metrics

SAMPLES = Path(__file__).parent / "data" / "engine_samples"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def the(telemetry: list[Telemetry]) -> Telemetry:
    (only,) = telemetry
    return only


def codes(telemetry: Telemetry) -> set[str]:
    return {note.code for note in telemetry.notes}


# ---------------------------------------------------------------- iteration statistics


@pytest.mark.parametrize("name", ["trtllm-1.1-iteration-stats.json", "trtllm-1.4-iteration-stats.json"])
def test_iteration_statistics_are_added(name: str) -> None:
    told, right = the(read_iterations(json.loads(sample(name)), name)), EXPECTED[name]
    assert (told.drafts, told.drafted, told.accepted) == (
        right["drafts"],
        right["drafted"],
        right["accepted"],
    )
    assert (told.k, told.k_varies, told.scope) == (3, False, "intervals")
    assert told.drafts is not None
    assert told.accepted is not None
    length = 1 + told.accepted / told.drafts
    assert length == pytest.approx(right["mean_accepted_length_incl_bonus"], abs=1e-6)


def test_prefill_and_plain_iterations_are_no_verification() -> None:
    told = the(read_iterations(json.loads(sample("trtllm-1.4-iteration-stats.json")), "x"))
    assert told.load.step_s == pytest.approx((9.8 + 9.9 + 10.0 + 9.7) / 4e3)
    assert told.load.draft_s == pytest.approx(0.0021)
    assert told.load.running == (8 + 8 + 8 + 7 + 6) / 5
    assert told.load.running_p95 == 8
    assert told.load.prompt_tokens == 4096
    assert codes(told) == {"steps-without-draft"}


def iteration(
    number: int, *, drafts: float = 4, width: float = 3, accepted: float = 5, **more: Any
) -> dict[str, Any]:
    spec = {
        "numDraftTokens": width * drafts,
        "numAcceptedTokens": accepted,
        "numRequestsWithDraftTokens": drafts,
    }
    batching = {"numGenRequests": 4, "numContextRequests": 0}
    row = {
        "iter": number,
        "iterLatencyMS": 10.0,
        "inflightBatchingStats": batching,
        "specDecodingStats": spec,
    }
    return row | more


def test_attention_dp_ranks_repeat_the_speculation_of_rank_0() -> None:
    rows = [iteration(number, attentionDpRank=rank) for number in (1, 2) for rank in range(4)]
    told = the(read_iterations(rows, "x"))
    assert (told.drafts, told.drafted, told.accepted) == (8, 24, 10)
    assert told.load.running == 16  # each rank runs requests of its own


def test_several_readings_are_one_after_the_other() -> None:
    rows = [iteration(1), iteration(2)]
    for document in ([rows, [iteration(3)]], [*rows, iteration(3)]):
        assert the(read_iterations(document, "x")).drafts == 12
    assert the(read_iterations(rows[0], "x")).drafts == 4


@pytest.mark.parametrize(
    ("widths", "k", "varies"), [((3, 3), 3, False), ((3, 1), 3, True), ((2.5, 2.5), 3, True)]
)
def test_drafts_of_several_lengths_are_told(widths: tuple[float, ...], k: int, varies: bool) -> None:
    told = the(
        read_iterations([iteration(n, width=width, accepted=1) for n, width in enumerate(widths)], "x")
    )
    assert (told.k, told.k_varies) == (k, varies)


def test_no_verification_is_no_data() -> None:
    for rows in ([iteration(1, specDecodingStats=None)], [iteration(1, drafts=0, accepted=0)]):
        told = the(read_iterations(rows, "x"))
        assert (told.drafts, told.drafted, told.accepted, told.k) == (0, 0, 0, None)
        assert codes(told) == {"no-data"}
        assert told.load.step_s == 0.01
    assert read_iterations([], "x") == []
    assert read_iterations([{"iter": 3}], "x") == []


def test_dropped_statistics_are_said() -> None:
    assert "statistics-dropped" in codes(the(read_iterations([iteration(1, statsDroppedFrames=12)], "x")))


def test_recorded_histograms_of_ranks() -> None:
    told = the(read_histograms([{"accepted_draft_hist": [5, 3, 2]}, {"accepted_draft_hist": [1, 1, 1]}], "x"))
    assert (told.drafts, told.accepted, told.k) == (13, 10, 2)
    assert list(told.accepted_at) == [7, 3]
    copies = the(read_histograms([{"accepted_draft_hist": [5, 3, 2]}] * 4, "x"))
    assert copies.drafts == 10  # tensor-parallel ranks see the same steps
    assert read_histograms({"accepted_draft_hist": [0, 0]}, "x") == []


# ---------------------------------------------------------------- Prometheus


def test_counts_by_position_have_denominators_of_their_own() -> None:
    name = "trtllm-1.4-prometheus.txt"
    told, right = the(read_metrics(parse_exposition(sample(name)))), EXPECTED[name]["per_position_counters"]
    assert list(told.drafted_at) == right["drafted"]
    assert list(told.accepted_at) == right["accepted"]
    assert (told.drafts, told.drafted, told.accepted) == (right["drafts"], 3 * 9800, right["accepted_total"])
    assert told.drafts is not None
    assert [reached / told.drafts for reached in told.accepted_at] == right["per_position_unconditional"]
    assert (told.k, told.k_varies, told.model) == (3, False, "nemotron-nano-3")
    assert (told.load.running, told.load.step_s, told.generated) == (7, 0.0097, 26100)
    assert told.load.draft_s == pytest.approx(0.0021)
    (note,) = told.notes
    whole = EXPECTED[name]["iteration_counters"]
    assert f"{whole['accepted']} of {whole['drafted']}" in note.text


def test_iteration_counters_alone_tell_no_drafts() -> None:
    lines = [
        line for line in sample("trtllm-1.4-prometheus.txt").splitlines() if "token_position" not in line
    ]
    told, right = the(read_metrics(parse_exposition("\n".join(lines)))), EXPECTED["trtllm-1.4-prometheus.txt"]
    assert (told.drafted, told.accepted) == (
        right["iteration_counters"]["drafted"],
        right["iteration_counters"]["accepted"],
    )
    assert (told.drafts, told.k, told.acceptance_length) == (None, None, None)  # the gauge is one iteration's
    assert codes(told) == {"drafts-unknown"}


def positions(*counts: tuple[int, int]) -> str:
    return "\n".join(
        f'trtllm_spec_decode_{name}_tokens_total{{model_name="m",token_position="{place}"}} {count}'
        for place, pair in enumerate(counts)
        for name, count in zip(("drafted", "accepted"), pair, strict=True)
    )


def test_short_drafts_thin_out_the_later_positions() -> None:
    told = the(read_metrics(parse_exposition(positions((100, 80), (40, 30), (40, 20), (0, 0)))))
    assert [list(told.drafted_at), list(told.accepted_at)] == [[100, 40, 40], [80, 30, 20]]
    assert (told.k, told.k_varies, told.drafts) == (3, True, 100)


def test_a_difference_covers_its_window() -> None:
    first, second = (parse_exposition(positions((n, n // 2), (n, n // 4))) for n in (100, 300))
    told = the(read_metrics(difference(first, second)))
    assert (told.drafts, told.accepted_at, told.scope) == (200, (100, 50), "difference")


def test_the_five_series_of_1_1_are_no_data() -> None:
    names = ("time_to_first_token_seconds", "time_per_output_token_seconds", "e2e_request_latency_seconds")
    lines = [
        f'trtllm_{name}_{end}{{model_name="m"}} {value}'
        for name in names
        for end, value in (("sum", 2), ("count", 40))
    ]
    told = the(
        read_metrics(parse_exposition("\n".join([*lines, 'trtllm_request_success_total{model_name="m"} 40'])))
    )
    assert (told.drafts, told.drafted, told.load.time_per_token_s) == (None, None, 0.05)
    assert codes(told) == {"no-data"}
    assert read_metrics(parse_exposition("vllm:generation_tokens_total 3")) == []
