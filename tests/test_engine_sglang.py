"""SGLang: gauges whose rate changed its meaning twice, logs, responses, server info and bench_serving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specmath.engines.content import Exposition, fed
from specmath.engines.exposition import difference, parse_exposition
from specmath.engines.sglang import (
    read_bench,
    read_responses,
    read_server_info,
    refuse_adaptive_config,
)
from specmath.engines.sglang_log import SglangLog
from specmath.engines.sglang_metrics import read_metrics
from specmath.engines.sglang_rates import Rate, meanings_of, reading_of
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError

SAMPLES = Path(__file__).parent / "data" / "engine_samples"
EXPECTED = json.loads((SAMPLES / "expected.json").read_text(encoding="utf-8"))


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def the(telemetry: list[Telemetry]) -> Telemetry:
    (only,) = telemetry
    return only


def known(value: float | None) -> float:
    assert value is not None
    return value


def codes(telemetry: Telemetry) -> set[str]:
    return {note.code for note in telemetry.notes}


def metrics(*lines: str, version: str | None = None) -> Telemetry:
    parsed = parse_exposition("\n".join(lines))
    return the(read_metrics(Exposition(samples=parsed.samples, version=version)))


def log(*lines: str) -> Telemetry:
    return the(fed(SglangLog("x.log"), lines))


# ---------------------------------------------------------------- metrics


def test_metrics_of_0_5_9_divide_the_length_by_all_draft_tokens() -> None:
    name = "sglang-0.5.9-metrics.txt"
    told, right = the(read_metrics(parse_exposition(sample(name)))), EXPECTED[name]
    assert told.acceptance_length == right["mean_accepted_length_incl_bonus"]
    assert told.reported_rate is not None
    assert told.reported_rate.value == right["gauge_accept_rate"]
    assert told.reported_rate.meaning == Rate.WITH_BONUS.value
    assert told.k == right["speculative_num_draft_tokens"] - 1
    assert (known(told.acceptance_length) - 1) / known(told.k) == pytest.approx(
        right["draft_acceptance_rate"]
    )
    assert (told.version, told.scope, told.model) == ("0.5.9 or 0.5.10", "last interval", "Qwen/Qwen3-8B")
    assert (told.load.running, told.load.waiting, told.load.tokens_per_s) == (8, 0, 812.4)


def test_metrics_of_0_5_23_leave_the_bonus_out_and_count_verifications() -> None:
    name = "sglang-0.5.23-metrics.txt"
    told, right = the(read_metrics(parse_exposition(sample(name)))), EXPECTED[name]
    assert told.acceptance_length == right["mean_accepted_length_incl_bonus"]
    assert told.reported_rate is not None
    assert told.reported_rate.value == right["draft_acceptance_rate"]
    assert told.reported_rate.meaning == Rate.DRAFTS_ONLY.value
    assert told.k == right["speculative_num_steps"]
    assert told.generated == right["cumulative"]["generation_tokens"]  # both values of is_streaming
    assert told.steps == right["cumulative"]["verify_calls"]
    assert known(told.generated) / known(told.steps) == right["cumulative"]["tokens_per_verify"]
    assert told.version == "0.5.13 or newer"


GAUGES = (
    'sglang:spec_accept_length{model_name="m",tp_rank="0"} 2.0',
    'sglang:spec_accept_rate{model_name="m",tp_rank="0"} 0.5',
)
RANKED = tuple(line.replace("tp_rank", 'moe_ep_rank="0",tp_rank') for line in GAUGES)


@pytest.mark.parametrize(
    ("lines", "version", "meaning", "k", "family"),
    [
        (GAUGES, None, Rate.WITH_BONUS, 3, "0.5.4 to 0.5.8"),
        (GAUGES, "0.5.5", Rate.WITH_BONUS, 3, "0.5.5"),
        (GAUGES, "0.5.11", Rate.DRAFTS_ONLY, 2, "0.5.11"),
        (RANKED, None, Rate.UNKNOWN, None, "0.5.9 to 0.5.12"),  # 4 draft tokens, or 3
        (RANKED, "0.5.10.post1", Rate.WITH_BONUS, 3, "0.5.10.post1"),
        (
            (*GAUGES, 'sglang:spec_num_steps{model_name="m",tp_rank="0"} 2'),
            None,
            Rate.DRAFTS_ONLY,
            2,
            "0.5.13 or newer",
        ),
        ([line.replace(',tp_rank="0"', "") for line in GAUGES], None, Rate.UNKNOWN, None, None),
    ],
    ids=("labels", "named old", "named new", "both fit", "post release", "steps gauge", "no rank label"),
)
def test_the_family_decides_what_the_rate_means(
    lines: tuple[str, ...], version: str | None, meaning: Rate, k: int | None, family: str | None
) -> None:
    told = metrics(*lines, version=version)
    assert told.reported_rate is not None
    assert (told.reported_rate.meaning, told.k, told.version) == (meaning.value, k, family)
    assert ("rate-unknown" in codes(told)) is (meaning is Rate.UNKNOWN)
    assert told.acceptance_length == 2


def test_both_forms_of_a_ratio_imply_their_own_draft_tokens() -> None:
    both = meanings_of(None)
    for tokens in range(2, 17):
        for length in (1.37, 2.03):
            old = reading_of(length, length / tokens, allowed=both)
            new = reading_of(length, (length - 1) / (tokens - 1), allowed=both)
            assert (old.meaning, old.draft_tokens) == (Rate.WITH_BONUS, tokens)
            if tokens > 2:  # one draft token divides any rate
                assert (new.meaning, new.draft_tokens) == (Rate.DRAFTS_ONLY, tokens)


def test_before_0_5_4_there_is_a_length_and_no_rate() -> None:
    told = metrics('sglang:spec_accept_length{model_name="m",tp_rank="0"} 2.5')
    assert (told.acceptance_length, told.reported_rate, told.k, told.version) == (
        2.5,
        None,
        None,
        "before 0.5.4",
    )


def test_copies_on_tensor_parallel_ranks_are_counted_once() -> None:
    ranks = [
        f'sglang:{name}{{model_name="m",tp_rank="{rank}",pp_rank="0"}} {value}'
        for name, value in (("spec_accept_length", 3.0), ("num_running_reqs", 8), ("gen_throughput", 100))
        for rank in range(4)
    ]
    told = metrics(*ranks)
    assert (told.acceptance_length, told.load.running, told.load.tokens_per_s) == (3, 8, 100)


def test_data_parallel_ranks_are_schedulers_of_their_own_weighted_by_steps() -> None:
    told = metrics(
        *(
            f'sglang:{name}{{model_name="m",dp_rank="{rank}",tp_rank="{rank}"}} {value}'
            for rank, values in enumerate(((3.0, 5, 300), (2.0, 7, 100)))
            for name, value in zip(
                ("spec_accept_length", "num_running_reqs", "gen_throughput"), values, strict=True
            )
        )
    )
    assert told.load.running == 12
    assert told.acceptance_length == pytest.approx(400 / (300 / 3 + 100 / 2))


def test_a_rank_that_reports_zero_has_no_data() -> None:
    for first, second in ((0.0, 2.5), (2.5, 0.0), (2.5, 9.0)):  # the lowest rank that tells anything
        told = metrics(
            f'sglang:spec_accept_length{{model_name="m",tp_rank="0"}} {first}',
            f'sglang:spec_accept_length{{model_name="m",tp_rank="1"}} {second}',
        )
        assert told.acceptance_length == 2.5
    idle = metrics('sglang:spec_accept_length{model_name="m",tp_rank="0"} 0.0')
    assert idle.acceptance_length is None
    assert idle.reported_rate is None
    assert "no-data" in codes(idle)


def test_models_are_kept_apart() -> None:
    lines = [
        f'sglang:spec_accept_length{{model_name="{model}",tp_rank="0"}} {length}'
        for model, length in (("a", 2), ("b", 3))
    ]
    told = read_metrics(parse_exposition("\n".join(lines)))
    assert [(one.model, one.acceptance_length) for one in told] == [("a", 2), ("b", 3)]


def test_a_difference_takes_the_counters_and_not_the_gauge() -> None:
    def scrape(tokens: int, verified: int, requests: int) -> Exposition:
        lines = (
            f'sglang:generation_tokens_total{{model_name="m"}} {tokens}',
            f'sglang:spec_verify_calls_total{{model_name="m"}} {verified}',
            f'sglang:num_requests_total{{model_name="m"}} {requests}',
            'sglang:spec_accept_length{model_name="m",tp_rank="0"} 1.5',
        )
        return parse_exposition("\n".join(lines))

    told = the(read_metrics(difference(scrape(1000, 400, 10), scrape(3510, 1400, 20))))
    assert (told.scope, told.generated, told.steps) == ("difference", 2510, 1000)
    assert told.acceptance_length == 2.5  # the first token of each of 10 requests comes from its prefill


@pytest.mark.parametrize("prefix", ["sglang:", "sglang_", "ray_sglang_"])
def test_prefixes_of_collectors_are_cut_off(prefix: str) -> None:
    assert metrics(f'{prefix}spec_accept_length{{model_name="m",tp_rank="0"}} 2.5').acceptance_length == 2.5


def test_a_tree_has_as_many_levels_as_steps() -> None:
    told = metrics(
        'sglang:spec_accept_length{model_name="m",tp_rank="0"} 3.0',
        'sglang:spec_num_steps{model_name="m",tp_rank="0"} 5',
        'sglang:spec_num_draft_tokens{model_name="m",tp_rank="0"} 8',
    )
    assert told.k == 5
    assert "tree" in codes(told)


def test_tokens_found_in_the_prefix_cache_are_summed_over_where_they_were_found() -> None:
    told = metrics(
        'sglang:spec_accept_length{model_name="m",tp_rank="0"} 3.0',
        'sglang:prompt_tokens_total{model_name="m"} 100',
        'sglang:cached_tokens_total{model_name="m",cache_source="device"} 30',
        'sglang:cached_tokens_total{model_name="m",cache_source="host"} 10',
        'sglang:inter_token_latency_seconds_sum{model_name="m"} 2',
        'sglang:inter_token_latency_seconds_count{model_name="m"} 100',
    )
    assert (told.load.prefix_queries, told.load.prefix_hits) == (100, 40)
    assert told.load.time_per_token_s == 0.02
    assert told.load.step_s is None  # SGLang shares a chunk's time out among its tokens


def test_another_engine_is_left_alone() -> None:
    assert read_metrics(parse_exposition('vllm:num_requests_running{model_name="m"} 3')) == []
    assert read_metrics(parse_exposition("sglang_router_requests_total 3")) == []


# ---------------------------------------------------------------- logs


@pytest.mark.parametrize("name", ["sglang-0.4.6-server.log", "sglang-0.5.23-server.log"])
def test_logs_of_both_wordings(name: str) -> None:
    told, right = log(*sample(name).splitlines()), EXPECTED[name]
    assert told.acceptance_length == pytest.approx(right["mean_accepted_length_incl_bonus"])
    assert told.scope == "intervals"
    assert told.load.running == told.load.running_p95 == 8
    if told.reported_rate is None:
        assert (told.k, told.version) == (None, "before 0.5.4")
    else:
        assert told.k == right["num_draft_tokens"] - 1
        assert told.version == "0.5.11 or newer"
        assert told.reported_rate.value == pytest.approx(right["draft_acceptance_rate"], abs=0.005)


def interval(
    length: float, rate: float | None, *, head: str = ", ", rank: str = "TP0", running: int = 8
) -> str:
    told = "" if rate is None else f"accept rate: {rate:.2f}, "
    return (
        f"[2026-11-29 07:00:05 {rank}] Decode batch{head}#running-req: {running}, #token: 4800, "
        f"token usage: 0.12, accept len: {length:.2f}, {told}cuda graph: True, "
        "gen throughput (token/s): 790.11, #queue-req: 3"
    )


def test_intervals_are_weighted_by_their_requests() -> None:
    told = log(interval(3, None, running=9, head=". "), interval(2, None, running=1, head=". "))
    assert told.acceptance_length == pytest.approx(2.9)
    assert (told.load.running, told.load.running_p95, told.load.waiting) == (5, 9, 3)


@pytest.mark.parametrize(
    ("head", "lengths", "tokens", "bonus", "version", "meaning"),
    [
        (" [40], ", (2.62, 2.51), 4, 0, "0.5.4 or 0.5.5", Rate.WITH_BONUS),
        (", ", (2.62, 2.51, 2.1, 1.3), 4, 0, "0.5.6 to 0.5.10", Rate.WITH_BONUS),
        (", ", (2.62, 2.51, 2.1, 1.3), 6, 1, "0.5.11 or newer", Rate.DRAFTS_ONLY),
        (", ", (2.0,), 4, 0, "0.5.6 or newer", Rate.UNKNOWN),
    ],
)
def test_the_wording_or_the_figures_tell_the_family(
    head: str, lengths: tuple[float, ...], tokens: int, bonus: int, version: str, meaning: Rate
) -> None:
    told = log(*(interval(length, (length - bonus) / (tokens - bonus), head=head) for length in lengths))
    assert told.version == version
    assert told.reported_rate is not None
    assert told.reported_rate.meaning == meaning.value
    assert told.k == (tokens - 1 if meaning is not Rate.UNKNOWN else None)


def test_the_arguments_of_the_server_decide_where_figures_cannot() -> None:
    start = "server_args=ServerArgs(speculative_num_steps=3, speculative_num_draft_tokens=4)"
    told = log(start, interval(2.0, 0.5))
    assert (told.version, told.k) == ("0.5.6 to 0.5.10", 3)
    tree = log(start.replace("=4)", "=8)"), interval(2.5, 0.21))
    assert tree.k == 3
    assert "tree" in codes(tree)
    assert "reconfigured" in codes(log(start, start.replace("steps=3", "steps=5"), interval(2.0, 0.5)))


def test_copies_of_a_rank_in_the_log_are_counted_once_and_schedulers_each() -> None:
    ranks = [(scheduler, copy) for scheduler in (0, 1) for copy in (0, 1)]
    lines = [interval(3 + copy, None, rank=f"DP{dp} TP{copy}", running=4) for dp, copy in ranks]
    told = log(*lines, *lines)
    assert told.acceptance_length == 3
    assert told.load.running == 8  # four on each of two schedulers


def test_hybrid_models_and_new_fields_do_not_hide_the_length() -> None:
    told = log(
        "[2026-11-29 07:00:05 DP1 PP0 TP0] Decode batch, #running-req: 8, #full token: 4800, "
        "full token usage: 0.12, swa token usage: 0.3, accept len: 2.62, accept rate: 0.54, "
        "cap len: 4.0, block accept len: 3.1,"
        " cuda graph: True, gen throughput (token/s): 790.11, #queue-req: 0, "
    )
    assert told.acceptance_length == 2.62


def test_intervals_without_data_are_no_lengths() -> None:
    told = log(interval(0, 0), interval(2.6, None))
    assert told.acceptance_length == 2.6
    idle = log(interval(0, 0))
    assert idle.acceptance_length is None
    assert "no-data" in codes(idle)
    assert fed(SglangLog("x"), ["Decode batch. #running-req: 3, gen throughput (token/s): 3.0"]) == []


# ---------------------------------------------------------------- responses


def test_a_response_with_a_histogram() -> None:
    name = "sglang-0.5.23-generate-response.json"
    told, right = the(read_responses(json.loads(sample(name)), name)), EXPECTED[name]
    assert (told.drafts, told.drafted, told.accepted) == (
        right["drafts"],
        right["drafted"],
        right["accepted"],
    )
    assert told.accepted is not None
    assert told.drafts is not None
    assert 1 + told.accepted / told.drafts == pytest.approx(right["mean_accepted_length_incl_bonus"])
    assert [reached / told.drafts for reached in told.accepted_at] == right["per_position_unconditional"]
    assert (told.k, told.k_varies, told.acceptance_length) == (
        3,
        False,
        None,
    )  # 2.57 counts the prefill's token
    assert told.reported_rate is not None
    assert told.reported_rate.value == right["draft_acceptance_rate"]


def test_a_response_that_counts_verifications_alone() -> None:
    name = "sglang-0.5.3-generate-response.json"
    told, right = the(read_responses(json.loads(sample(name)), name)), EXPECTED[name]
    assert (told.drafts, told.accepted, told.drafted) == (right["drafts"], None, None)
    assert told.acceptance_length == right["mean_accepted_length_incl_bonus"]
    assert "first-tokens" in codes(told)


def response(**info: Any) -> dict[str, Any]:
    return {"text": "", "meta_info": {"id": "r", "completion_tokens": 10, **info}}


NEW = ("spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_correct_drafts_histogram")
OLD = ("spec_accept_token_num", "spec_draft_token_num", "spec_accept_histogram")


@pytest.mark.parametrize("names", [NEW, OLD], ids=["from 0.5.12", "to 0.5.11"])
def test_requests_are_added_and_kept(names: tuple[str, str, str]) -> None:
    first = response(
        spec_verify_ct=10, **dict(zip(names, (12, 30, [4, 2, 2, 2]), strict=True)), finish_reason={}
    )
    second = response(spec_verify_ct=5, **dict(zip(names, (2, 15, [3, 2]), strict=True)), finish_reason={})
    told = the(read_responses([first, second], "x"))
    assert (told.drafts, told.drafted, told.accepted, told.k) == (15, 45, 14, 3)
    assert list(told.histogram) == [7, 4, 2, 2]
    assert list(told.accepted_at) == [8, 4, 2]
    assert [request.accepted for request in told.requests] == [12, 2]


def test_chunks_of_a_stream_are_one_request() -> None:
    chunks = [response(spec_verify_ct=count, finish_reason=None) for count in (1, 2)]
    done = response(spec_verify_ct=4, finish_reason={"type": "stop"})
    assert the(read_responses([*chunks, done], "x")).drafts == 4
    assert the(read_responses(chunks, "x")).drafts == 2


def test_a_tree_is_seen_by_its_histogram() -> None:
    tree = response(
        spec_verify_ct=100,
        spec_num_correct_drafts=207,
        spec_num_proposed_drafts=700,
        spec_correct_drafts_histogram=[20, 25, 15, 20, 8, 12],
    )
    told = the(read_responses(tree, "x"))
    assert (told.k, told.accepted_at) == (5, (80, 55, 40, 20, 12))
    assert "tree" in codes(told)
    short = response(
        spec_verify_ct=100,
        spec_num_correct_drafts=21,
        spec_num_proposed_drafts=300,
        spec_correct_drafts_histogram=[80, 19, 1],
    )
    chain = the(read_responses(short, "x"))
    assert chain.k == 3  # a weak chain need not have reached its end
    assert codes(chain) == {"chain-presumed"}


def test_responses_without_verification_are_no_data() -> None:
    for info in ({}, {"spec_verify_ct": 0, "spec_accept_rate": 0.0, "spec_accept_length": 0.0}):
        told = the(read_responses(response(**info), "x"))
        assert (told.drafts, told.acceptance_length, told.reported_rate) == (None, None, None)
        assert codes(told) == {"no-data"}


def test_counts_that_contradict_each_other_are_refused() -> None:
    impossible = response(spec_verify_ct=10, spec_num_correct_drafts=99, spec_num_proposed_drafts=30)
    with pytest.raises(DataError, match="99 against 30"):
        read_responses(impossible, "x")


# ---------------------------------------------------------------- server info, bench_serving


def test_server_info_is_the_average_since_the_start() -> None:
    name = "sglang-0.5.23-server-info.json"
    told, right = the(read_server_info(json.loads(sample(name)), name)), EXPECTED[name]
    assert told.acceptance_length == right["mean_accepted_length_incl_bonus"]
    assert (told.k, told.version, told.method, told.scope) == (right["k"], "0.5.23", "eagle3", "since start")
    assert (known(told.acceptance_length) - 1) / known(told.k) == pytest.approx(
        right["draft_acceptance_rate"], abs=1e-6
    )


def test_server_info_of_several_ranks_of_a_tree_and_of_no_data() -> None:
    info = json.loads(sample("sglang-0.5.23-server-info.json"))
    info |= {"speculative_num_steps": 5, "speculative_num_draft_tokens": 8, "speculative_adaptive": True}
    info["internal_states"] = [{"avg_spec_accept_length": length} for length in (2.0, 3.0, 0.0)]
    told = the(read_server_info(info, "x"))
    assert (told.acceptance_length, told.k, told.k_varies) == (2.5, 5, True)
    assert codes(told) == {"tree", "ranks-unweighted"}
    info["internal_states"] = [{"avg_spec_accept_length": 0.0}]
    assert "no-data" in codes(the(read_server_info(info, "x")))
    assert the(read_server_info(info, "x")).acceptance_length is None


def test_bench_lines_tell_the_average_of_the_server() -> None:
    name = "sglang-0.5.23-bench-serving.jsonl"
    document = [json.loads(line) for line in sample(name).splitlines()]
    assert document[0]["request_rate"] == float("inf")
    told = read_bench(document, name)
    right = EXPECTED[name]["lines"]
    assert [one.acceptance_length for one in told] == [
        line["mean_accepted_length_incl_bonus"] for line in right
    ]
    assert [one.load.running for one in told] == [15.6, 60.2]  # kept up, not the limit of 16 and 64
    assert [one.load.time_per_token_s for one in told] == [0.0192, 0.0192]
    void = {"random-prompts", "forced-length"}
    assert [codes(one) for one in told] == [{"lifetime-average", *void}, {"no-data", *void}]


def test_an_adaptive_configuration_is_no_telemetry() -> None:
    name = "sglang-0.5.23-adaptive-config.json"
    document = json.loads(sample(name))
    assert [read(document, name) for read in (read_responses, read_server_info, read_bench)] == [[], [], []]
    for one in (document, document["8"]):  # by batch from 0.5.13, flat before
        with pytest.raises(DataError, match="holds no measurement"):
            refuse_adaptive_config(one, name)
    assert refuse_adaptive_config({}, "x") == refuse_adaptive_config([document], "x") == []
