"""vLLM: every series, log line and document, against the answers that stand beside the samples."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from specmath.engines.content import Exposition, Sample, fed
from specmath.engines.exposition import difference, parse_exposition
from specmath.engines.spec_lines import Drafts, SpecLine, drafts_of, spec_line
from specmath.engines.telemetry import Telemetry
from specmath.engines.vllm_documents import read_document
from specmath.engines.vllm_logs import VllmLog
from specmath.engines.vllm_metrics import read_exposition

SAMPLES = Path(__file__).parent / "data" / "engine_samples"
REAL = Path(__file__).parent / "data" / "engine_samples_real"
EXPECTED: dict[str, Any] = json.loads((SAMPLES / "expected.json").read_text())


def metrics(*texts: str) -> list[Telemetry]:
    """Telemetry of one scrape, or of the difference of two."""
    scrapes = [parse_exposition(text, source=f"scrape {number}") for number, text in enumerate(texts)]
    return read_exposition(scrapes[0] if len(scrapes) == 1 else difference(*scrapes))


def log(*lines: str) -> list[Telemetry]:
    return fed(VllmLog("a.log"), lines)


def codes(telemetry: Telemetry) -> list[str]:
    return [note.code for note in telemetry.notes]


def check(telemetry: Telemetry, expected: dict[str, Any]) -> None:
    """Counts, positions and k against an entry of expected.json."""
    for key in ("drafts", "drafted", "accepted", "k"):
        if key in expected:
            assert getattr(telemetry, key) == expected[key], key
    if telemetry.drafts and telemetry.accepted is not None:
        length = 1 + telemetry.accepted / telemetry.drafts
        assert length == pytest.approx(expected["mean_accepted_length_incl_bonus"], abs=1e-6)
    if telemetry.drafts and expected.get("per_position_unconditional"):
        shares = [reached / telemetry.drafts for reached in telemetry.accepted_at]
        assert shares == pytest.approx(expected["per_position_unconditional"], abs=2e-4)


@pytest.mark.parametrize(
    "name",
    [name for name in EXPECTED if name.startswith("vllm") and name.endswith(".txt") and "0.7.3" not in name],
)
def test_a_scrape_of_v1(name: str) -> None:
    (telemetry,) = metrics((SAMPLES / name).read_text())
    assert (telemetry.engine, telemetry.scope) == ("vllm", "since start")
    assert telemetry.model == "meta-llama/Llama-3.1-8B-Instruct"
    check(telemetry, EXPECTED[name])


def test_the_difference_of_two_scrapes_of_two_engines() -> None:
    texts = [(SAMPLES / f"vllm-0.13.0-dp2-metrics-{number}.txt").read_text() for number in (1, 2)]
    (telemetry,) = metrics(*texts)
    check(telemetry, EXPECTED["vllm-0.13.0-dp2-metrics-1.txt -> -2.txt (difference)"])
    assert telemetry.scope == "difference"
    assert (telemetry.load.running, telemetry.load.waiting) == (8.5, 0)
    assert codes(telemetry) == ["engines-summed"]


def test_speculation_off_leaves_the_plain_step_time() -> None:
    (telemetry,) = metrics((SAMPLES / "vllm-0.13.0-no-spec-metrics.txt").read_text())
    assert (telemetry.drafts, telemetry.drafted, telemetry.k) == (None, None, None)
    assert telemetry.load.step_s == pytest.approx(0.0098)
    assert codes(telemetry) == ["speculation-off"]


def test_an_idle_server_has_counted_nothing() -> None:
    (telemetry,) = metrics((SAMPLES / "vllm-0.13.0-zero-drafts-metrics.txt").read_text())
    assert (telemetry.drafts, telemetry.accepted, telemetry.load.step_s) == (0, 0, None)
    assert telemetry.reported_rate is None


def test_steps_without_drafts_are_told_beside_the_drafts() -> None:
    (telemetry,) = metrics((SAMPLES / "vllm-0.33.0-dynamic-k-metrics.txt").read_text())
    assert telemetry.k_varies
    assert telemetry.generated is not None
    assert telemetry.steps is not None
    assert telemetry.generated / telemetry.steps == pytest.approx(1.734545, abs=1e-6)
    assert telemetry.load.step_s == pytest.approx(0.0151)


def test_the_counters_of_v0_are_refused_and_its_gauges_read() -> None:
    (telemetry,) = metrics((SAMPLES / "vllm-0.7.3-v0-metrics.txt").read_text())
    expected = EXPECTED["vllm-0.7.3-v0-metrics.txt"]
    assert (telemetry.drafts, telemetry.drafted, telemetry.accepted) == (None, None, None)
    assert telemetry.efficiency is not None
    assert telemetry.efficiency * 6 == pytest.approx(expected["mean_accepted_length_incl_bonus"])
    assert telemetry.reported_rate is not None
    assert telemetry.reported_rate.value == expected["per_token_acceptance"]
    assert "after a rejection" in telemetry.reported_rate.meaning
    assert codes(telemetry) == ["v0-counters"]


def test_gauges_of_v0_cover_the_life_of_the_server_whatever_is_taken_off() -> None:
    text = (SAMPLES / "vllm-0.7.3-v0-metrics.txt").read_text()
    (telemetry,) = metrics(text, text.replace("7082", "9000"))
    assert (telemetry.scope, telemetry.accepted) == ("since start", None)


def test_v0_before_any_data_says_nothing() -> None:
    text = "vllm:spec_decode_efficiency NaN\nvllm:spec_decode_num_accepted_tokens_total 0\n"
    (telemetry,) = metrics(text)
    assert (telemetry.efficiency, telemetry.reported_rate, telemetry.accepted) == (None, None, None)
    assert codes(telemetry) == ["v0-counters"]


@pytest.mark.parametrize(
    ("run", "counts", "positions"),
    [
        ("pair_draft_T0", (337, 1348, 432), (197, 114, 71, 50)),
        ("pair_draft_T1", (760, 3040, 0), (0, 0, 0, 0)),
        ("pair_ngram_T0", (140, 533, 279), (97, 72, 63, 47)),
    ],
)
def test_a_server_that_ran(run: str, counts: tuple[int, ...], positions: tuple[int, ...]) -> None:
    names = [f"vllm_cpu_0.32.0_{run}.metrics.{when}.txt" for when in ("before", "after")]
    (telemetry,) = metrics(*[(REAL / name).read_text() for name in names])
    assert [telemetry.drafts, telemetry.drafted, telemetry.accepted] == list(counts)
    assert list(telemetry.accepted_at) == list(positions)
    assert (telemetry.version, telemetry.model, telemetry.k) == ("0.11.0 or newer", "m", 4)
    assert telemetry.k_varies == ("ngram" in run)
    assert telemetry.load.running == 1  # one request at a time, prompts included
    assert telemetry.generated == 8 * 95
    assert telemetry.steps is not None
    assert telemetry.accepted is not None
    undelivered = telemetry.steps + telemetry.accepted - 760  # tokens beyond the limit of a request
    assert 0 <= undelivered < 8 * 4


def test_a_server_that_ran_without_speculation() -> None:
    names = [f"vllm_cpu_0.32.0_pair_none_T0.metrics.{when}.txt" for when in ("before", "after")]
    (telemetry,) = metrics(*[(REAL / name).read_text() for name in names])
    assert telemetry.drafts is None
    assert telemetry.steps == telemetry.generated == 760


SERIES = """
{p}spec_decode_num_drafts_total{{model_name="m",engine="0"}} 10
{p}spec_decode_num_draft_tokens_total{{model_name="m",engine="0"}} 30
{p}spec_decode_num_accepted_tokens_total{{model_name="m",engine="0"}} 12
{p}spec_decode_num_accepted_tokens_per_pos_total{{model_name="m",engine="0",position="1"}} 4
{p}spec_decode_num_accepted_tokens_per_pos_total{{model_name="m",engine="0",position="0"}} 8
{p}spec_decode_num_drafts_created{{model_name="m",engine="0"}} 1.7e9
"""


@pytest.mark.parametrize(
    "prefix", ["vllm:", "vllm_", "ray_vllm_", "ray_vllm:", "", "acme:", "acme_vllm_fork_"]
)
def test_prefixes(prefix: str) -> None:
    (telemetry,) = metrics(SERIES.format(p=prefix))
    assert (telemetry.drafts, telemetry.drafted, telemetry.accepted) == (10, 30, 12)
    assert list(telemetry.accepted_at) == [8, 4]
    assert ("prefix-unknown" in codes(telemetry)) == ("vllm" not in prefix or prefix.startswith("acme"))


@pytest.mark.parametrize("prefix", ["lmdeploy:", "llamacpp:", "trtllm_", "sglang:", "ray_sglang_"])
def test_the_series_of_other_engines_are_left_to_them(prefix: str) -> None:
    assert metrics(SERIES.format(p=prefix)) == []


def test_models_are_kept_apart_and_engines_added() -> None:
    text = "".join(
        f'vllm:spec_decode_num_drafts_total{{engine="{engine}",model_name="{model}"}} {drafts}\n'
        for engine, model, drafts in [(0, "a", 1), (1, "a", 2), (0, "b", 10)]
    )
    assert [(one.model, one.drafts) for one in metrics(text)] == [("a", 3), ("b", 10)]


def test_replicas_under_ray_are_added() -> None:
    text = "".join(
        f'ray_vllm_spec_decode_num_drafts_total{{ReplicaId="{name}",model_name="m"}} 5\n' for name in "xyz"
    )
    assert [one.drafts for one in metrics(text)] == [15]


def test_a_model_of_diffusion_does_not_speculate() -> None:
    (telemetry,) = metrics('vllm:diffusion_num_denoising_steps_total{model_name="m"} 9\n')
    assert telemetry.drafts is None
    assert codes(telemetry) == ["diffusion"]


@pytest.mark.parametrize("value", ["-5", "+Inf", "1e300", "9007199254740993000"])
def test_impossible_counts_are_left_out(value: str) -> None:
    text = f"vllm:spec_decode_num_drafts_total {value}\nvllm:spec_decode_num_draft_tokens_total 3\n"
    (telemetry,) = metrics(text)
    assert (telemetry.drafts, telemetry.drafted) == (None, 3)
    assert codes(telemetry) == ["impossible-counts"]


def test_the_older_name_of_the_step_time_gives_way_to_the_newer() -> None:
    both = "".join(f"vllm:{name}_sum {total}\nvllm:{name}_count 10\n" for name, total in [
        ("time_per_output_token_seconds", 1), ("inter_token_latency_seconds", 2)])  # fmt: skip
    (telemetry,) = metrics(both)
    assert telemetry.load.step_s == 0.2


def test_running_is_the_mean_over_the_steps_counted() -> None:
    text = "vllm:inter_token_latency_seconds_count 90\nvllm:inter_token_latency_seconds_sum 1\n"
    text += "vllm:time_to_first_token_seconds_count 10\nvllm:iteration_tokens_total_count 25\n"
    (telemetry,) = metrics(text + "vllm:num_requests_running 77\n")
    assert telemetry.load.running == 4


def test_a_gap_in_the_positions_ends_them() -> None:
    text = "".join(
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{p}"}} {9 - p}\n' for p in (0, 1, 3)
    )
    (telemetry,) = metrics(text)
    assert list(telemetry.accepted_at) == [9, 8]


def test_other_load_series() -> None:
    text = (
        "vllm:num_preemptions_total 3\nvllm:prefix_cache_queries_total 100\nvllm:prefix_cache_hits_total 40\n"
        "vllm:kv_cache_usage_perc 0.5\nvllm:prompt_tokens_total 60\nvllm:num_requests_waiting 2\n"
        'vllm:num_requests_waiting_by_reason{reason="capacity"} 9\n'
        "vllm:request_time_per_output_token_seconds_sum 1\n"
        "vllm:request_time_per_output_token_seconds_count 50\n"
    )
    load = metrics(text)[0].load
    assert (load.preemptions, load.prefix_queries, load.prefix_hits, load.waiting) == (3, 100, 40, 2)
    assert (load.cache_usage, load.prompt_tokens, load.time_per_token_s) == (0.5, 60, 0.02)


# Logs


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("vllm-0.10.0-v1-server.log", EXPECTED["vllm-0.10.0-v1-server.log"]),
        ("vllm-0.13.0-v1-server.log", EXPECTED["vllm-0.13.0-v1-server.log"]["sum"]),
        ("vllm-0.33.0-v1-server.log", EXPECTED["vllm-0.33.0-v1-server.log"]),
        ("vllm-0.8.4-v1-server.log", EXPECTED["vllm-0.8.4-v1-server.log"]),
    ],
)
def test_a_log_of_v1(name: str, entry: dict[str, Any]) -> None:
    (telemetry,) = log(*(SAMPLES / name).read_text().splitlines())
    assert telemetry.scope == "intervals"
    check(telemetry, entry)
    assert telemetry.reported_rate is not None
    assert telemetry.reported_rate.value == pytest.approx(entry["accepted"] / entry["drafted"])


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("vllm-0.7.3-v0-server.log", EXPECTED["vllm-0.7.3-v0-server.log"]["last"]),
        ("vllm-0.5.3-v0-server.log", EXPECTED["vllm-0.5.3-v0-server.log"]),
    ],
)
def test_a_log_of_v0_is_cumulative(name: str, entry: dict[str, Any]) -> None:
    (telemetry,) = log(*(SAMPLES / name).read_text().splitlines())
    assert telemetry.scope == "since start"
    check(telemetry, entry)
    assert telemetry.accepted == entry["emitted"] - entry["drafts"]
    assert telemetry.reported_rate is not None
    assert telemetry.reported_rate.value == pytest.approx(entry["per_token_acceptance"])


def v0(drafted: int, emitted: int, k: int = 5) -> str:
    return (
        "INFO 02-06 03:05:53 metrics.py:475] Speculative metrics: Draft acceptance rate: 0.500,"
        f" System efficiency: 0.500, Number of speculative tokens: {k},"
        f" Number of accepted tokens: {drafted // 2}, Number of draft tokens: {drafted},"
        f" Number of emitted tokens: {emitted}."
    )


def test_a_restart_of_v0_starts_its_totals_again() -> None:
    (telemetry,) = log(v0(1000, 600), v0(2000, 1200), v0(500, 300), v0(1000, 600))
    assert (telemetry.drafts, telemetry.drafted, telemetry.accepted) == (600, 3000, 1200)
    assert codes(telemetry) == ["counters-reset"]
    (telemetry,) = log(v0(1000, 300), v0(900, 400))  # more tokens from fewer drafts: another start
    assert (telemetry.drafts, telemetry.accepted) == (380, 320)


@pytest.mark.parametrize(
    ("name", "counts", "positions", "method"),
    [
        # the counters of the same server after its last request
        ("vllm_cpu_0.32.0_pair_draft", (1244, 4976, 475), (221, 124, 76, 54), "draft_model"),
        ("vllm_cpu_0.32.0_pair_ngram", (181, 689, 299), (109, 76, 66, 48), "ngram"),
        ("vllm_cpu_0.32.0_smollm2_ngram", (77, 306, 117), (36, 30, 26, 25), "ngram"),
    ],
)
def test_the_log_of_a_server_that_ran(
    name: str, counts: tuple[int, ...], positions: tuple[int, ...], method: str
) -> None:
    with (REAL / f"{name}.server.log").open(encoding="utf-8") as lines:
        (telemetry,) = fed(VllmLog(name), lines)
    assert [telemetry.drafts, telemetry.drafted, telemetry.accepted] == list(counts)
    assert list(telemetry.accepted_at) == list(positions)
    assert (telemetry.version, telemetry.model, telemetry.method, telemetry.k) == ("0.32.0", "m", method, 4)
    assert telemetry.k_varies == (method == "ngram")


MIDDLE = "Accepted: 4750 tokens, Drafted: 10000 tokens"
FLOW = "Accepted throughput: 475.00 tokens/s, Drafted throughput: 1000.00 tokens/s"
LAST = "Avg Draft acceptance rate: 47.5%"
POSITIONS = "Per-position acceptance rate: 0.760, 0.532, 0.362, 0.246"


OLD = f"Draft acceptance rate: 47.5%, Mean acceptance length: 2.90, {MIDDLE}, {POSITIONS}"


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(OLD.replace("2.90", "1.90"), id="0.8.5: no bonus"),
        pytest.param(OLD, id="0.9.0"),
        pytest.param(OLD.replace(MIDDLE, f"{FLOW}, {MIDDLE}"), id="PR 24127"),
        pytest.param(f"Mean acceptance length: 2.90, {FLOW}, {MIDDLE}, {POSITIONS}, {LAST}", id="0.10.2"),
    ],
)
def test_the_shapes_of_a_line(line: str) -> None:
    for prefix in (
        "INFO 05-01 09:00:00 [metrics.py:84] ",
        "(APIServer pid=1) INFO ",
        "2 Engines Aggregated: ",
        "",
    ):
        (telemetry,) = log(prefix + "SpecDecoding metrics: " + line)
        assert (telemetry.drafts, telemetry.drafted, telemetry.accepted) == (2500, 10000, 4750)
        assert list(telemetry.accepted_at) == [1900, 1330, 905, 615]


def printed(drafts: int, reached: list[int], drafted: int) -> SpecLine:
    """A line as vLLM rounds it."""
    length = float(f"{1 + sum(reached) / drafts:.2f}")
    return SpecLine(sum(reached), drafted, length, tuple(float(f"{n / drafts:.3f}") for n in reached))


@given(st.integers(1, 20_000), st.integers(1, 12), st.data())
def test_the_number_of_drafts_lies_within_the_rounding(drafts: int, k: int, data: st.DataObject) -> None:
    reached: list[int] = []
    for _ in range(k):
        reached.append(data.draw(st.integers(0, reached[-1] if reached else drafts)))
    drafted = data.draw(st.integers(max(drafts, sum(reached)), k * drafts))
    found = drafts_of(printed(drafts, reached, drafted))
    assert found is not None
    assert found.low <= found.likely <= found.high
    if sum(reached):
        assert found.low <= drafts <= found.high
    if drafted == k * drafts:
        assert found.likely == drafts


def test_a_length_without_the_bonus_is_taken_for_what_it_is() -> None:
    reached = [1209, 1103, 1087, 1020, 1010, 1000, 964, 921, 892, 887, 822, 777, 735, 724, 715, 693, 627, 625]
    line = printed(1261, [*reached, 593, 580, 573, 540, 512, 502], 21633)
    assert drafts_of(replace(line, length=None)) != Drafts(1261, 1261, 1261)  # the length narrows it down
    assert line.length is not None
    for length in (line.length, line.length - 1):
        assert drafts_of(replace(line, length=length)) == Drafts(1261, 1261, 1261)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param(
            SpecLine(0, 495, 1.0, (0.0,) * 5), Drafts(99, 99, 99), id="nothing accepted: full length"
        ),
        pytest.param(
            SpecLine(0, 15, 1.0, (0.0,) * 4), Drafts(4, 4, 4), id="15 tokens fill four drafts of four"
        ),
        pytest.param(SpecLine(5, 35, 1.56, (0.222, 0.111, 0.111, 0.111)), Drafts(9, 9, 9), id="5/0.555"),
        pytest.param(SpecLine(0, 0, None, ()), Drafts(0, 0, 0), id="nothing drafted"),
        pytest.param(SpecLine(1284, 2400), None, id="0.8.4"),
    ],
)
def test_the_number_of_drafts(line: SpecLine, expected: Drafts | None) -> None:
    assert drafts_of(line) == expected


NEW = (
    "SpecDecoding metrics: Mean acceptance length: {}, Accepted throughput: 1.00 tokens/s,"
    " Drafted throughput: 2.00 tokens/s, Accepted: {} tokens, Drafted: {} tokens,"
    " Per-position acceptance rate: {}, Avg Draft acceptance rate: {}%"
)
WHOLE = NEW.format("2.90", 4750, 10000, "0.760, 0.532, 0.362, 0.246", 47.5)


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(WHOLE[:150], id="cut before the counts"),
        pytest.param(WHOLE[: WHOLE.index(", 0.362")], id="cut between positions"),
        pytest.param(NEW.format("2.90", 475000, 10000, "0.760", 1), id="more accepted than drafted"),
        pytest.param("SpecDecoding metrics: ", id="nothing behind it"),
        pytest.param("Speculative metrics: Draft acceptance rate: 0.5", id="V0, cut"),
        pytest.param(v0(1000, 100), id="V0: fewer tokens than drafts"),
    ],
)
def test_broken_lines_are_counted_and_left_out(line: str) -> None:
    (telemetry,) = log(WHOLE, line)
    assert (telemetry.drafts, telemetry.accepted) == (2500, 4750)
    assert codes(telemetry)[-1] == "lines-left-out"


def test_an_interval_without_drafts_adds_nothing() -> None:
    (telemetry,) = log(WHOLE, NEW.format("nan", 0, 0, "nan, nan, nan, nan", "nan"))
    assert (telemetry.drafts, telemetry.drafted, telemetry.k) == (2500, 10000, 4)
    assert list(telemetry.accepted_at) == [1900, 1330, 905, 615]


def test_diffusion_and_lmdeploy_lines_are_not_taken() -> None:
    text = (SAMPLES / "vllm-0.33.0-v1-server.log").read_text().splitlines()[-1]
    assert "DiffusionDecoding" in text
    assert log(text, f"[2026-11-29 07:00:05 DP0] Avg thr (in/out): 1.0 / 2.0 tokens/s, {WHOLE}") == []


def test_the_load_of_a_log() -> None:
    line = (
        "INFO Engine {:03}: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: {} tokens/s,"
        " Running: {} reqs, Waiting: 1 reqs, GPU KV cache usage: 20.0%, Prefix cache hit rate: 0.0%"
    )
    (telemetry,) = log(
        line.format(0, 100.0, 4),
        line.format(1, 50.0, 2),
        line.format(0, 200.0, 6),
        line.format(1, 0.0, 0),
        WHOLE,
    )
    load = telemetry.load
    assert (load.running, load.running_p95, load.waiting) == (4, 6, 1)
    assert load.cache_usage == pytest.approx(0.2)
    assert load.tokens_per_s == 150 + 50


def test_the_running_requests_of_aggregated_engines_are_shared_out() -> None:
    (telemetry,) = log(
        "INFO 2 Engines Aggregated: Avg prompt throughput: 1.0 tokens/s,"
        " Avg generation throughput: 9.0 tokens/s, Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%"
    )
    assert (telemetry.load.running, telemetry.load.tokens_per_s) == (4, 9)


def test_a_log_without_speculation_tells_its_load() -> None:
    line = (
        "INFO Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.0 tokens/s,"
        " Running: 3 reqs, Waiting: 0 reqs"
    )
    (telemetry,) = log(line)
    assert (telemetry.drafts, telemetry.drafted, telemetry.load.running) == (None, None, 3)
    assert codes(telemetry) == ["speculation-off"]


def test_servers_in_one_log_are_kept_apart_by_process() -> None:
    start = (
        "(APIServer pid={0}) INFO non-default args: {{'model': 'x/{1}', 'speculative_config':"
        " {{'method': 'eagle3', 'model': 'd', 'num_speculative_tokens': 4}}}}"
    )
    lines = [start.format(1, "a"), start.format(2, "b")]
    found = log(
        *lines, f"(APIServer pid=1) {WHOLE}", f"(APIServer pid=2) {WHOLE}", f"(APIServer pid=2) {WHOLE}"
    )
    assert [(one.model, one.method, one.drafts) for one in found] == [
        ("x/a", "eagle3", 2500),
        ("x/b", "eagle3", 5000),
    ]


def test_drafts_of_another_length_are_flagged() -> None:
    (telemetry,) = log(WHOLE, NEW.format("1.80", 80, 100, "0.800", 80.0))
    assert telemetry.k_varies
    assert telemetry.drafts == 2600
    assert list(telemetry.accepted_at) == [1980, 1330, 905, 615]


def test_the_offline_example_prints_totals() -> None:
    text = "num_drafts: 100\nnum_draft_tokens: 300\nnum_accepted_tokens: 150\nmean acceptance length: 2.50\n"
    text += "acceptance at token 0: 0.74\nacceptance at token 1: 0.50\nacceptance at token 2: 0.26\n"
    (telemetry,) = log(WHOLE, *text.splitlines())
    assert (telemetry.drafts, telemetry.drafted, telemetry.accepted, telemetry.k) == (100, 300, 150, 3)
    assert telemetry.accepted_at == pytest.approx((74, 50, 26))


# Documents


def document(name: str) -> Any:
    return json.loads((SAMPLES / name).read_text())


@pytest.mark.parametrize("name", [name for name in EXPECTED if name.startswith("vllm") and "json" in name])
def test_a_document(name: str) -> None:
    (telemetry,) = read_document(document(name), name)
    check(telemetry, EXPECTED[name])


def test_a_benchmark() -> None:
    (telemetry,) = read_document(document("vllm-0.33.0-bench-serve.json"), "b")
    load, rate = telemetry.load, telemetry.reported_rate
    assert (load.running, load.tokens_per_s) == (16, 800)
    assert load.step_s == pytest.approx(0.0446)
    assert load.time_per_token_s == pytest.approx(0.0194)
    assert rate is not None
    assert rate.value == pytest.approx(28823 / 66519)
    assert list(telemetry.accepted_at) == [15521, 9312, 3990]
    assert telemetry.generated == 51200 - 200


def test_a_benchmark_without_drafts_or_a_limit() -> None:
    table = {
        key: value for key, value in document("vllm-0.33.0-bench-serve.json").items() if "spec" not in key
    }
    table |= {"max_concurrency": None, "mean_e2el_ms": 3200.0, "itls": [[0.1, 0.2], [0.3], []]}
    (telemetry,) = read_document(table, "b")
    assert (telemetry.drafts, telemetry.steps) == (None, 3)
    assert telemetry.load.running == pytest.approx(200 * 3.2 / 64)  # Little's law
    assert codes(telemetry) == ["speculation-off", "forced-length"]


def request(
    histogram: list[int], *, name: str = "", model: str = "m", tokens: int | None = None
) -> dict[str, Any]:
    """A response as vLLM writes it, k = 3."""
    steps, accepted = sum(histogram), sum(j * n for j, n in enumerate(histogram))
    inner = {
        "mean_acceptance_length": 1.0,
        "draft_acceptance_rate": 0.0,
        "acceptance_histogram": histogram,
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": 3 * steps,
        "num_spec_tokens": 3,
    }
    usage = {"completion_tokens": tokens} if tokens else None
    return {"id": name, "model": model, "usage": usage, "metrics": {"speculative_decoding": inner}}


def test_requests_are_pooled_and_kept() -> None:
    (telemetry,) = read_document([request([1, 2, 0, 3]), request([4, 0, 0, 1]), request([0, 0, 0, 0])], "r")
    assert (telemetry.drafts, telemetry.drafted, telemetry.accepted, telemetry.k) == (11, 33, 14, 3)
    assert list(telemetry.histogram) == [5, 2, 0, 4]
    assert list(telemetry.accepted_at) == [6, 4, 4]
    assert [one.accepted for one in telemetry.requests] == [
        11,
        3,
    ]  # the request without a draft tells nothing
    assert telemetry.scope == "requests"


def test_a_stream_counts_once() -> None:
    chunk = {"id": "c", "model": "m", "choices": [{"delta": {"content": "x"}}], "metrics": None}
    chunks = [chunk, request([1, 1, 0, 0], name="c"), request([2, 1, 1, 0], name="c")]
    (telemetry,) = read_document(chunks, "s")
    assert list(telemetry.histogram) == [2, 1, 1, 0]


def test_requests_of_two_models_stay_apart() -> None:
    found = read_document([request([1, 0, 0, 0], model="a"), request([0, 0, 0, 2], model="b")], "r")
    assert [(one.model, one.drafts, one.accepted) for one in found] == [("a", 1, 0), ("b", 2, 6)]


def test_all_steps_follow_from_the_tokens_of_the_answer() -> None:
    name = "vllm-0.29.0-per-request-summary.json"
    (telemetry,) = read_document(document(name), name)
    assert (telemetry.generated, telemetry.steps) == (53, 43)  # 54 tokens, the first from the prompt's step


def test_detailed_metrics_tell_the_drafts_by_length() -> None:
    table = request([1, 1, 1, 0])
    inner = table["metrics"]["speculative_decoding"]
    inner |= {"per_step_accepted": [0, 1, 2], "per_step_drafted": [3, 1, 2], "num_draft_tokens": 6}
    (telemetry,) = read_document(table, "d")
    assert list(telemetry.drafted_at) == [3, 2, 1]
    assert telemetry.k_varies


def test_metrics_are_found_inside_other_records() -> None:
    bare = request([1, 0, 0, 1])["metrics"]["speculative_decoding"]
    for table in (
        bare,
        {"response_metrics": {"speculative_decoding": bare}},
        {"a": [{"b": [request([1, 0, 0, 1])]}]},
    ):
        (telemetry,) = read_document(table, "n")
        assert (telemetry.drafts, telemetry.accepted) == (2, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"num_spec_steps": -1},
        {"num_spec_steps": True},
        {"num_draft_tokens": "12"},
        {"num_accepted_draft_tokens": 10**400},
        {"acceptance_histogram": [9, 9, 9, 9]},
        {"acceptance_histogram": [9, 2, 0, 3]},
        {"num_accepted_draft_tokens": 2},
    ],
)
def test_metrics_that_contradict_themselves_are_left_out(change: dict[str, Any]) -> None:
    broken = request([1, 2, 0, 3])
    broken["metrics"]["speculative_decoding"] |= change
    (telemetry,) = read_document([broken, request([4, 0, 0, 1])], "r")
    assert (telemetry.drafts, telemetry.accepted) == (5, 3)
    assert codes(telemetry) == ["requests-left-out"]


@pytest.mark.parametrize(
    "other", [None, 3, "text", [], {}, [1, 2], {"metrics": None}, {"timings": {"draft_n": 3}}]
)
def test_documents_of_others_are_left_to_them(other: Any) -> None:
    assert read_document(other, "x") == []


# Hostile input

KEYS = st.sampled_from(
    [
        *(
            "num_spec_steps",
            "num_draft_tokens",
            "num_accepted_draft_tokens",
            "acceptance_histogram",
            "duration",
        ),
        *("per_step_drafted", "name", "labels", "value", "values", "spec_decode_num_drafts", "itls", "usage"),
        *("spec_decode_per_position_acceptance_rates", "model", "id", "completed", "total_output_tokens"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=30,
)


@given(JSON)
def test_any_document_is_read_or_refused(table: Any) -> None:
    for telemetry in read_document(table, "x"):
        assert telemetry.engine == "vllm"


SERVED = (SAMPLES / "vllm-0.13.0-v1-server.log").read_text().splitlines()
CUT = st.sampled_from([WHOLE, v0(1000, 600), "num_drafts: 5", *SERVED]).flatmap(
    lambda line: st.integers(0, len(line)).map(lambda end: line[:end])
)


@given(st.lists(CUT, max_size=12), st.text())
def test_cut_lines_in_any_order_are_read_or_counted(lines: list[str], noise: str) -> None:
    for telemetry in log(*lines, noise, *[line + noise for line in lines]):
        if telemetry.drafted is not None and telemetry.accepted is not None:
            assert telemetry.accepted <= telemetry.drafted


@given(st.text(alphabet="0123456789.,nan% :", max_size=60))
def test_any_figures_in_a_line_are_read_or_refused(text: str) -> None:
    for line in (
        f"SpecDecoding metrics: Accepted: {text} tokens, Drafted: 9 tokens",
        "SpecDecoding metrics: " + text,
    ):
        spec_line(line)


@given(st.lists(st.tuples(st.sampled_from(["drafts", "draft_tokens", "accepted_tokens", "accepted_tokens_per_pos"]), st.text(max_size=3), st.floats()), max_size=8))  # fmt: skip  # noqa: E501
def test_any_series_are_read_or_left_out(series: list[tuple[str, str, float]]) -> None:
    samples = tuple(
        Sample(f"vllm:spec_decode_num_{name}_total", {"position": label}, value)
        for name, label, value in series
    )
    for telemetry in read_exposition(Exposition(samples=samples)):
        assert telemetry.drafts is None or telemetry.drafts >= 0
