"""TGI, LM Studio, AIPerf and MLX: what little each tells."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmath.engines import aiperf, lm_studio, mlx, tgi
from specmath.engines.exposition import difference, parse_exposition
from specmath.engines.telemetry import Telemetry

SAMPLES = Path(__file__).parent / "data" / "engine_samples"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def the(telemetry: list[Telemetry]) -> Telemetry:
    (only,) = telemetry
    return only


def codes(telemetry: Telemetry) -> set[str]:
    return {note.code for note in telemetry.notes}


# ---------------------------------------------------------------- TGI


def test_tgi_tells_tokens_of_all_steps() -> None:
    name = "tgi-3.3.6-metrics.txt"
    told, right = the(tgi.read_metrics(parse_exposition(sample(name)))), EXPECTED[name]
    assert (told.steps, told.accepted, told.drafted, told.drafts) == (
        right["steps"],
        right["accepted"],
        None,
        None,
    )
    assert told.acceptance_length == right["mean_accepted_length_incl_bonus"]
    assert told.generated == right["steps"] + right["accepted"]
    assert told.k == 2  # the highest quantile
    assert told.load.time_per_token_s == 0.52 / 40


def skipped(total: float, count: int) -> str:
    return f"tgi_request_skipped_tokens_sum {total}\ntgi_request_skipped_tokens_count {count}"


def test_tgi_without_speculation_looks_like_no_acceptance_and_is_no_data() -> None:
    for text in (skipped(0, 100), skipped(0, 0), "tgi_queue_size 3"):
        told = the(tgi.read_metrics(parse_exposition(text)))
        assert (told.acceptance_length, told.accepted) == (None, None)
        assert codes(told) == {"no-data"}


def test_tgi_between_two_scrapes() -> None:
    told = the(
        tgi.read_metrics(difference(parse_exposition(skipped(10, 20)), parse_exposition(skipped(60, 120))))
    )
    assert (told.acceptance_length, told.scope, told.k) == (1.5, "difference", None)


# ---------------------------------------------------------------- LM Studio

SDK = {
    "usedDraftModelKey": "qwen-0.5b",
    "predictedTokensCount": 200,
    "totalDraftTokensCount": 180,
    "acceptedDraftTokensCount": 90,
    "rejectedDraftTokensCount": 60,
    "ignoredDraftTokensCount": 30,
    "tokensPerSecond": 50.0,
}
SNAKE = {
    "used_draft_model_key": "qwen-0.5b",
    "predicted_tokens_count": 200,
    "total_draft_tokens_count": 180,
    "accepted_draft_tokens_count": 90,
    "ignored_draft_tokens_count": 30,
    "tokens_per_second": 50.0,
}


@pytest.mark.parametrize("stats", [SDK, SNAKE], ids=["camel case", "snake case, no rejected"])
def test_lm_studio_verified_what_it_did_not_ignore(stats: dict[str, Any]) -> None:
    for document in (stats, {"stats": stats, "content": "…"}):
        told = the(lm_studio.read_predictions(document, "x"))
        assert (told.drafts, told.drafted, told.accepted) == (None, 150, 90)
        assert (told.generated, told.steps, told.load.time_per_token_s) == (200, 110, 0.02)
        assert told.reported_rate is None  # accepted/predicted is the example's, not the engine's
        assert codes(told) == {"drafts-unknown"}


def test_lm_studio_predictions_are_added() -> None:
    rest = {
        "model": "qwen-7b",
        "usage": {"completion_tokens": 100},
        "stats": SNAKE | {"predicted_tokens_count": None},
    }
    told = the(lm_studio.read_predictions([{"stats": SDK, "model": "qwen-7b"}, rest], "x"))
    assert (told.drafted, told.accepted, told.generated, told.model) == (300, 180, 300, "qwen-7b")


def test_lm_studio_without_a_draft_model_is_no_data() -> None:
    told = the(
        lm_studio.read_predictions({"stats": {"predictedTokensCount": 5, "timeToFirstTokenSec": 0.1}}, "x")
    )
    assert (told.drafts, told.drafted, told.accepted) == (0, 0, 0)
    assert codes(told) == {"no-data"}
    assert lm_studio.read_predictions({"stats": {"a": 1}}, "x") == []


# ---------------------------------------------------------------- AIPerf


def metric(value: float, unit: str = "ratio") -> dict[str, Any]:
    return {"unit": unit, "avg": value}


EXPORT: dict[str, Any] = {
    "aiperf_version": "0.13.0",
    "spec_decode_acceptance_length": metric(2.9),
    "spec_decode_token_weighted_acceptance_length": metric(2.8181818),
    "spec_decode_overall_draft_acceptance_rate": metric(45.454545, "%"),
    "spec_decode_draft_acceptance_rate": metric(47.0, "%"),
    "total_spec_decode_steps": metric(11),
    "total_accepted_draft_tokens": metric(20),
    "total_draft_tokens": metric(44),
    "pooled_spec_decode_acceptance_histogram": {"0": 2, "1": 3, "2": 2, "3": 3, "4": 1},
    "inter_token_latency": metric(12.0, "ms"),
    "input_config": {"endpoint": {"model_names": ["qwen"]}},
}


def test_aiperf_totals_and_histogram_agree() -> None:
    told = the(aiperf.read_export(EXPORT, "x"))
    assert (told.drafts, told.drafted, told.accepted, told.k, told.k_varies) == (11, 44, 20, 4, False)
    assert list(told.histogram) == [2, 3, 2, 3, 1]
    assert list(told.accepted_at) == [9, 6, 4, 1]
    assert told.acceptance_length is None  # counts tell it
    assert told.reported_rate is not None
    assert (told.reported_rate.value, told.reported_rate.meaning) == (0.45454545, "accepted/drafted")
    assert (told.model, told.version, told.load.time_per_token_s) == ("qwen", "0.13.0", 0.012)


def test_aiperf_with_less_than_everything() -> None:
    histogram = the(aiperf.read_export({"pooled_spec_decode_acceptance_histogram": {"2": 4, "0": 6}}, "x"))
    assert (histogram.drafts, histogram.accepted, histogram.histogram, histogram.k) == (10, 8, (6, 0, 4), 2)
    mean = the(aiperf.read_export({"spec_decode_acceptance_length": metric(2.5)}, "x"))
    assert (mean.acceptance_length, mean.drafts) == (2.5, None)
    assert codes(mean) == {"mean-over-requests"}
    weighted = the(
        aiperf.read_export({"metrics": {"spec_decode_token_weighted_acceptance_length": metric(2.4)}}, "x")
    )
    assert (weighted.acceptance_length, weighted.notes) == (2.4, ())
    none = the(aiperf.read_export({"total_spec_decode_steps": metric(0)}, "x"))
    assert codes(none) == {"no-data"}


def test_aiperf_records_of_requests() -> None:
    def record(steps: int, drafted: int, accepted: int) -> dict[str, Any]:
        values = {"steps": steps, "draft_tokens": drafted, "accepted_draft_tokens": accepted}
        return {
            "metrics": {
                f"spec_decode_{name}": {"value": value, "unit": "tokens"} for name, value in values.items()
            }
        }

    told = the(aiperf.read_records([record(8, 32, 18), {"metrics": {}}, record(3, 12, 2)], "x"))
    assert (told.drafts, told.drafted, told.accepted, told.k) == (11, 44, 20, 4)
    assert [request.drafts for request in told.requests] == [8, 3]


def test_the_results_of_vllm_bench_serve_are_not_aiperf() -> None:
    document = json.loads(sample("vllm-0.33.0-bench-serve.json"))
    assert aiperf.read_export(document, "x") == aiperf.read_records(document, "x") == []


# ---------------------------------------------------------------- MLX


def stream(marks: str, **last: Any) -> list[dict[str, Any]]:
    """Tokens of a stream, D from the draft and T from the target."""
    tokens: list[dict[str, Any]] = [{"from_draft": mark == "D", "finish_reason": None} for mark in marks]
    return [*tokens[:-1], tokens[-1] | last]


def test_mlx_runs_of_draft_tokens_are_what_steps_accepted() -> None:
    told = the(mlx.read_stream(stream("TDDDTDTTDDT", finish_reason="stop", generation_tps=80.0), "x"))
    assert list(told.histogram) == [2, 1, 1, 1]
    assert (told.drafts, told.accepted, told.drafted, told.k) == (5, 6, None, 3)
    assert list(told.accepted_at) == [3, 2, 1]
    assert (told.generated, told.load.tokens_per_s) == (11, 80)


def test_mlx_steps_cut_by_the_end_of_a_request_are_left_out() -> None:
    two = [*stream("DTDD", finish_reason="length"), *stream("DDT", finish_reason="stop")]
    told = the(mlx.read_stream(two, "x"))
    assert (told.histogram, told.drafts, told.accepted) == ((0, 1, 1), 2, 3)
    assert "2 tokens" in told.notes[0].text


def test_mlx_without_a_draft_model_is_no_data() -> None:
    told = the(mlx.read_stream(stream("TTTT"), "x"))
    assert (told.drafts, told.accepted, told.histogram, told.k) == (None, None, (), None)
    assert codes(told) == {"no-data"}
    assert the(mlx.read_stream(stream("DD"), "x")).k is None
    assert mlx.read_stream([{"text": "a"}], "x") == []


def test_mlx_vlm_counts_rounds() -> None:
    timings = {"draft_kind": "eagle3", "draft_rounds": 10, "draft_n": 30, "draft_n_accepted": 17}
    told = the(mlx.read_rounds([{"timings": timings}, {"timings": timings | {"draft_n": 25}}], "x"))
    assert (told.drafts, told.drafted, told.accepted, told.method) == (20, 55, 34, "eagle3")
    assert (told.k, told.k_varies, len(told.requests)) == (3, True, 2)
