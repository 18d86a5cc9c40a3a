"""llama.cpp: timings, logs of three wordings, /metrics of six digits, and the times of its benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmath.engines.content import fed
from specmath.engines.exposition import difference, parse_exposition
from specmath.engines.llama_cpp import FORMATS, read_metrics, read_responses, read_speed_bench
from specmath.engines.llama_cpp_bench import read_benchmark, step_times
from specmath.engines.llama_cpp_lines import request_line
from specmath.engines.llama_cpp_log import MOST_REQUESTS, LlamaCppLog
from specmath.engines.telemetry import Telemetry

DATA = Path(__file__).parent / "data"
SAMPLES, REAL = DATA / "engine_samples", DATA / "engine_samples_real"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))


def sample(name: str, folder: Path = SAMPLES) -> str:
    return (folder / name).read_text(encoding="utf-8")


def the(telemetry: list[Telemetry]) -> Telemetry:
    (only,) = telemetry
    return only


def codes(telemetry: Telemetry) -> set[str]:
    return {note.code for note in telemetry.notes}


def log(*lines: str) -> Telemetry:
    return the(fed(LlamaCppLog("x.log"), lines))


def close(right: list[float]) -> Any:
    return pytest.approx(right, abs=1e-6)


# ---------------------------------------------------------------- metrics


def test_metrics_tell_drafts_and_positions() -> None:
    name = "llamacpp-2026-10-metrics.txt"
    told, right = the(read_metrics(parse_exposition(sample(name)))), EXPECTED[name]
    assert (told.drafts, told.drafted, told.accepted, told.k) == (2500, 7500, 4700, 3)
    assert told.drafts is not None
    assert [reached / told.drafts for reached in told.accepted_at] == close(
        right["per_position_unconditional"]
    )
    assert not told.k_varies
    assert told.steps == 7300 - 4700
    assert told.load.step_s == pytest.approx(66.1 / 2600)
    assert told.load.running == 1.02
    assert told.notes == ()


def test_speculation_that_is_off_is_no_data() -> None:
    told = the(read_metrics(parse_exposition(sample("llamacpp-2026-10-metrics-spec-off.txt"))))
    assert (told.drafts, told.drafted, told.accepted, told.accepted_at) == (0, 0, 0, ())
    assert (told.k, told.k_varies) == (None, False)
    assert codes(told) == {"no-data"}
    older = the(read_metrics(parse_exposition("llamacpp:tokens_predicted_total 5")))
    assert older.drafts is None
    assert codes(older) == {"no-data"}


REAL_RUNS = [
    ("T0", 338, 1329, 419, (0.571, 0.334, 0.195, 0.139)),
    ("T1", 538, 2113, 219, (0.270, 0.089, 0.030, 0.019)),
]


@pytest.mark.parametrize(("name", "drafts", "drafted", "accepted", "rates"), REAL_RUNS)
def test_two_scrapes_of_a_real_server(
    name: str, drafts: int, drafted: int, accepted: int, rates: tuple[float, ...]
) -> None:
    scrapes = [
        parse_exposition(sample(f"llama_server_b11434_pair_draft_{name}.metrics.{when}.txt", REAL))
        for when in ("before", "after")
    ]
    told = the(read_metrics(difference(*scrapes)))
    assert (told.drafts, told.drafted, told.accepted) == (drafts, drafted, accepted)
    assert [reached / drafts for reached in told.accepted_at] == pytest.approx(rates, abs=0.0005)
    assert (told.k, told.k_varies) == (4, True)  # a request's last draft is cut to what is left of it


def test_positions_are_exact_where_totals_have_six_digits() -> None:
    told = the(
        read_metrics(
            parse_exposition(
                "llamacpp:spec_decode_num_drafts_total 1.23457e+06\n"
                "llamacpp:spec_decode_num_draft_tokens_total 2.46914e+06\n"
                "llamacpp:spec_decode_num_accepted_tokens_total 1.5e+06\n"
                'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 1000003\n'
                'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 500004\n'
            )
        )
    )
    assert told.accepted == 1500007
    assert (told.k, told.k_varies) == (2, False)
    assert codes(told) == {"six-digits"}


# ---------------------------------------------------------------- responses


def test_a_response_tells_passes_but_no_drafts() -> None:
    name = "llamacpp-2026-10-chat-response.json"
    told, right = the(read_responses(json.loads(sample(name)), name)), EXPECTED[name]
    assert (told.drafts, told.drafted, told.accepted) == (None, right["drafted"], right["accepted"])
    assert told.generated is not None
    assert told.steps == 85
    assert told.generated / told.steps == pytest.approx(right["tokens_per_target_step"], abs=1e-6)
    assert (told.model, told.version) == ("qwen", "b9999-0c1e57098")
    assert told.load.time_per_token_s == 0.02
    assert told.load.step_s == pytest.approx(5.12 / 85)


def test_a_response_without_drafts_is_no_data() -> None:
    told = the(read_responses(json.loads(sample("llamacpp-2026-10-chat-response-no-draft.json")), "x"))
    assert (told.drafts, told.drafted, told.accepted) == (0, 0, 0)
    assert codes(told) == {"no-data"}
    assert told.load.step_s == told.load.time_per_token_s == 4 / 128


def timed(predicted: int, drafted: int | None = None, accepted: int = 0, **more: Any) -> dict[str, Any]:
    timings = {"predicted_n": predicted, "predicted_ms": 10.0 * predicted, "prompt_n": 7, "cache_n": 3}
    return {
        "timings": timings | ({"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {}),
        **more,
    }


def test_responses_are_added_those_without_a_draft_too() -> None:
    told = the(read_responses([timed(100, 60, 40, id="a"), timed(50, id="a"), [timed(50, 30, 10)]], "x"))
    assert (told.drafted, told.accepted, told.generated, told.steps) == (90, 50, 200, 150)
    assert (told.load.prompt_tokens, told.load.prefix_queries, told.load.prefix_hits) == (21, 30, 9)


def test_the_last_chunk_of_a_stream_counts() -> None:
    chunks = [timed(n, 2 * n, n // 2, id="c", object="chat.completion.chunk") for n in (10, 20, 40)]
    assert the(read_responses([{"choices": []}, *chunks], "x")).drafted == 80
    plain = [timed(10, 20, 5, stop=False), timed(20, 44, 9, stop=True)]
    assert the(read_responses(plain, "x")).drafted == 44


def test_speed_bench_results_by_sample_or_by_category() -> None:
    rows = [
        {"category": "math", "draft_n": 30, "draft_n_accepted": 20},
        {"category": "qa", "draft_n": 10, "draft_n_accepted": 1},
    ]
    summary = [*rows, {"category": "overall", "draft_n": 40, "draft_n_accepted": 21}]
    for saved in ({"results": rows, "summary": summary}, {"results": [{}], "summary": summary}):
        told = the(read_speed_bench(saved, "x"))
        assert (told.drafted, told.accepted) == (40, 21)


# ---------------------------------------------------------------- logs


def test_the_log_of_2025_tells_no_drafts() -> None:
    name = "llamacpp-2025-08-server.log"
    told, right = log(*sample(name).splitlines()), EXPECTED[name]
    assert (told.drafts, told.drafted, told.accepted) == (None, right["drafted"], right["accepted"])
    assert told.generated == 256 + 100
    assert told.steps is not None
    assert told.generated / told.steps == pytest.approx(right["tokens_per_target_step"], abs=1e-6)
    assert told.reported_rate is not None
    assert told.reported_rate.value == pytest.approx(right["draft_acceptance_rate"], abs=1e-6)
    assert told.load.prompt_tokens == 94 + 50
    assert codes(told) == {"drafts-unknown"}


def test_the_log_of_june_2026_tells_positions_and_counts_drafts() -> None:
    name = "llamacpp-2026-06-server.log"
    told, right = log(*sample(name).splitlines()), EXPECTED[name]
    assert (told.drafts, told.drafted, told.accepted, told.k) == (88, 264, 165, 3)
    assert [reached / 88 for reached in told.accepted_at] == close(right["per_position_unconditional"])
    assert told.method == "eagle3"
    assert told.load.draft_s == pytest.approx((0.005 + 325.555 + 0.114) / 1e3 / 88)


def test_the_log_of_october_2026_allows_one_number_of_drafts() -> None:
    name = "llamacpp-2026-10-server.log"
    told, right = log(*sample(name).splitlines()), EXPECTED[name]
    assert (told.drafts, told.drafted, told.accepted, told.k) == (right["drafts"], 264, 165, 3)
    assert list(told.accepted_at) == []
    traced = log(
        *sample(name).splitlines(),
        "slot print_timing: id 1 | task 0 |      acc per pos = (0.795, 0.614, 0.466)",
    )
    assert list(traced.accepted_at) == [70, 54, 41]


def test_a_real_log_recovers_the_drafts_that_the_counters_counted() -> None:
    lines = sample("llama_server_b11434_pair_draft.server.log", REAL).splitlines()
    reader, ends = LlamaCppLog("x"), []
    for line in lines:
        if reader.feed(line):
            ends.append(the(reader.result()))
    warm, after = ends[0], ends[8]  # the scrapes at T = 0 stand before and after eight requests
    assert (warm.drafts, warm.drafted, warm.accepted) == (52, 205, 43)
    assert (after.drafts, after.drafted, after.accepted, after.generated) == (390, 1534, 462, 864)
    assert (after.k, after.k_varies, len(after.requests)) == (4, True, 9)


@pytest.mark.parametrize("drafts", [1, 7, 52, 88, 140])
def test_drafts_follow_from_length_and_positions(drafts: int) -> None:
    for accepted in range(1, 3 * drafts, max(drafts // 5, 1)):
        rates = [
            min(accepted, drafts) / drafts,
            max(accepted - drafts, 0) / drafts / 2,
            max(accepted - drafts, 0) / drafts / 2,
        ]
        printed = ", ".join(f"{rate:.3f}" for rate in rates)
        line = request_line(
            f"draft acceptance = 0.62500 ( {accepted:4} accepted / {3 * drafts:5} generated), "
            f"mean acceptance length = {1 + accepted / drafts:5.2f}, "
            f"acceptance rate per position = ({printed})"
        )
        assert line is not None
        assert line.drafts == pytest.approx(drafts, abs=0.5 + drafts * 0.01)


def test_requests_that_accept_nothing_are_as_long_as_the_others() -> None:
    none = "draft acceptance = 0.00000 (    0 accepted /    30 generated), mean len =  1.00"
    some = "draft acceptance = 0.50000 (   30 accepted /    60 generated), mean len =  2.50"
    assert log(some, none).drafts == 30  # 20 of three tokens, and ten more of three
    assert log(none).drafts is None


def statistics(name: str, *, calls: str, drafts: int, drafted: int, accepted: int, more: str = "") -> str:
    tokens = f"#gen tokens = {drafted:6}, #acc tokens = {accepted:5}"
    counts = f"#gen drafts = {drafts:6}, #acc drafts = {drafts // 2:5}, {tokens}"
    return f"statistics {name:>15}: {calls}, {counts}{more}"


@pytest.mark.parametrize(
    ("calls", "verified"),
    [("#calls(b,g,a) =    1     90     88", 88), ("#calls = 810", 90)],
    ids=["begin, generate, accept", "one count"],
)
def test_statistics_are_cumulative_for_each_way_to_draft(calls: str, verified: int) -> None:
    early = statistics("ngram_mod", calls=calls, drafts=10, drafted=30, accepted=9)
    late = statistics("ngram_mod", calls=calls, drafts=90, drafted=270, accepted=99)
    told = log(early, late)
    assert (told.drafts, told.drafted, told.accepted) == (verified, 270, 99)
    assert (told.method, told.scope) == ("ngram", "since start")
    both = log(late, statistics("draft-mtp", calls=calls, drafts=90, drafted=180, accepted=100))
    assert (both.drafts, both.drafted, both.accepted, both.method) == (2 * verified, 450, 199, None)
    assert codes(both) == {"several-drafters"}


def test_statistics_that_hold_more_than_the_log_are_left_aside() -> None:
    request = "draft acceptance = 0.50000 (   30 accepted /    60 generated), mean len =  2.50"
    calls = "#calls(b,g,a) = 1 90 88"
    told = log(request, statistics("draft-mtp", calls=calls, drafts=90, drafted=270, accepted=99))
    assert (told.drafts, told.drafted, told.accepted, told.scope) == (20, 60, 30, "requests")


def test_requests_kept_one_by_one_are_a_regular_sample() -> None:
    reader = LlamaCppLog("x")
    for number in range(3 * MOST_REQUESTS):
        drafted = 20 + number % 2
        reader.feed(
            f"draft acceptance = 0.5 (   10 accepted /   {drafted} generated), mean len =  2.00".replace(
                "0.5 ", "0.50000 "
            )
        )
    told = the(reader.result())
    assert told.drafts == 10 * 3 * MOST_REQUESTS
    assert MOST_REQUESTS / 2 <= len(told.requests) < MOST_REQUESTS
    assert the(reader.result()) == told  # asking changes nothing


def test_speculative_simple() -> None:
    name = "llamacpp-speculative-simple.log"
    told, right = log(*sample(name).splitlines()), EXPECTED[name]
    assert (told.k, told.drafted, told.accepted, told.drafts) == (
        right["k_max"],
        right["drafted"],
        right["accepted"],
        None,
    )
    assert told.generated is not None
    assert told.steps is not None
    assert told.generated / told.steps == pytest.approx(right["tokens_per_target_step"], abs=1e-6)
    assert told.reported_rate is not None
    assert told.reported_rate.value == pytest.approx(right["draft_acceptance_rate"], abs=1e-6)
    twice = log(*sample(name).splitlines() * 2)
    assert (twice.drafted, twice.steps) == (2 * right["drafted"], 2 * told.steps)
    calls = "#calls(b,g,a) = 1 57 57"
    counted = log(
        *sample(name).splitlines(),
        statistics("draft-simple", calls=calls, drafts=57, drafted=912, accepted=313),
    )
    assert (counted.drafts, counted.k, counted.steps) == (57, 16, told.steps)


def test_a_log_without_drafts_tells_nothing() -> None:
    reader = LlamaCppLog("x")
    assert not reader.feed("       eval time =    5120.00 ms /   256 tokens (   20.00 ms per token, 50 t/s)")
    assert not reader.feed("generate: n_ctx = 4096, n_batch = 2048, n_predict = 128, n_keep = 1")
    assert reader.result() == []


# ---------------------------------------------------------------- benchmarks


def test_step_times_by_batch() -> None:
    name = "llamacpp-batched-bench.jsonl"
    document = [json.loads(line) for line in sample(name).splitlines()]
    times, right = step_times(document, name), EXPECTED[name]["step_time_s_by_batch"]
    assert times is not None
    assert {str(batch): seconds for batch, seconds in times.decode_s.items()} == pytest.approx(
        right, abs=5e-7
    )
    assert (times.pass_s, times.context) == ({}, 128 + 64)
    assert codes(the(read_benchmark(document, name))) == {"step-times-only"}


def test_pass_times_by_width() -> None:
    name = "llamacpp-llama-bench.json"
    times, right = step_times(json.loads(sample(name)), name), EXPECTED[name]
    assert times is not None
    widths = {str(width): 1e3 * seconds for width, seconds in times.pass_s.items() if width < 512}
    assert widths == pytest.approx(right["pass_ms"])
    assert 1e3 * times.decode_s[1] == pytest.approx(right["decode_step_ms"], abs=1e-6)
    assert times.model == "qwen2 7B Q4_K - Medium"


def test_benchmarks_of_others_have_no_step_times() -> None:
    assert step_times([{"pl": 1, "tg": 0, "t_tg": 3.0}, {"n_prompt": 3}], "x") is None
    assert read_benchmark({"a": 1}, "x") == []


def test_every_format_has_a_name_and_one_reader() -> None:
    for form in FORMATS:
        readers = (form.read_exposition, form.read_document, form.log)
        assert sum(reader is not None for reader in readers) == 1
        assert form.name.startswith("llama.cpp")
