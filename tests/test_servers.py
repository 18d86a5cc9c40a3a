"""Running servers, serving the samples of each engine: what is asked, and what the answers make."""

from __future__ import annotations

import json
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from specmath.engines.exposition import difference, parse_exposition
from specmath.engines.fetching import Limits
from specmath.engines.recognition import read_scrape, read_telemetry
from specmath.engines.server_facts import ServerFacts, facts_of
from specmath.engines.server_telemetry import read_server, telemetry_of
from specmath.engines.servers import ask_server, metrics_of
from specmath.engines.watching import watch_server
from specmath.errors import AccessError, DataError, InputError

if TYPE_CHECKING:
    from tests.conftest import Web

SAMPLES = Path(__file__).with_name("data") / "engine_samples"
SHORT = Limits(connect_s=0.3, total_s=0.3)


def sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def counters(drafts: float, accepted: float, model: str = "m", prefix: str = "vllm") -> str:
    labels = f'{{engine="0",model_name="{model}"}}'
    return "".join(
        f"{prefix}:spec_decode_num_{name}_total{labels} {value}\n"
        for name, value in (("drafts", drafts), ("draft_tokens", 3 * drafts), ("accepted_tokens", accepted))
    )


def models(owner: str, *names: str, **more: Any) -> dict[str, Any]:
    return {"object": "list", "data": [{"id": name, "owned_by": owner, **more} for name in names]}


def in_turn(web: Web, path: str, *bodies: str | bytes) -> None:
    """Answer a path with one body after the other."""
    left = iter(bodies)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        web.serve("/next", next(left))
        web.actions["/next"](handler)

    web.on(path, answer)


VLLM_CONFIG = (
    "model='meta-llama/Llama-3.1-8B-Instruct', speculative_config=SpeculativeConfig(method='eagle3', "
    "model='yuhuili/EAGLE3-LLaMA3.1-Instruct-8B', num_spec_tokens=3), tokenizer='x', dtype=torch.bfloat16, "
    "max_seq_len=8192, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=4, "
    "quantization=fp8, kv_cache_dtype=fp8_e4m3, "
)


# ---------------------------------------------------------------- what each engine is asked


def test_vllm(web: Web) -> None:
    web.serve("/v1/models", models("vllm", "meta-llama/Llama-3.1-8B-Instruct", max_model_len=8192))
    web.serve("/metrics", sample("vllm-0.33.0-dynamic-k-metrics.txt"))
    web.serve("/version", {"version": "0.33.0"})
    [told] = read_telemetry(web.url)
    assert web.paths == ["/v1/models", "/metrics", "/version", "/server_info"]
    assert (told.engine, told.version, told.source) == ("vllm", "0.33.0", f"{web.url}/metrics")
    assert (told.drafts, told.accepted, told.scope) == (6000, 8080, "since start")


def test_sglang_is_read_with_its_version_and_filled_up_from_server_info(web: Web) -> None:
    web.serve("/metrics", sample("sglang-0.5.9-metrics.txt"))
    web.serve("/server_info", json.loads(sample("sglang-0.5.23-server-info.json")) | {"version": "0.5.11"})
    [told] = read_telemetry(web.url)
    assert web.paths == ["/v1/models", "/metrics", "/server_info"]
    assert (told.engine, told.version, told.scope) == ("sglang", "0.5.11", "last interval")
    assert (told.method, told.k) == ("eagle3", 3), "of /server_info"
    assert told.reported_rate is not None
    assert told.reported_rate.meaning == rate_meaning("0.5.11") != rate_meaning(None)


def rate_meaning(version: str | None) -> str:
    """What the rate of the sample is with this version."""
    scrape = replace(parse_exposition(sample("sglang-0.5.9-metrics.txt").decode()), version=version)
    [told] = read_scrape(scrape)
    assert told.reported_rate is not None
    return told.reported_rate.meaning


def test_what_gauges_leave_open_is_in_server_info(web: Web) -> None:
    labels = '{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"}'
    web.serve("/metrics", f"sglang:spec_accept_length{labels} 2.5\nsglang:num_running_reqs{labels} 3\n")
    web.serve("/server_info", sample("sglang-0.5.23-server-info.json"))
    [told] = read_telemetry(web.url)
    assert (told.model, told.acceptance_length, told.load.running) == ("m", 2.5, 3)
    assert (told.k, told.method, told.version) == (3, "eagle3", "0.5.23")


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_sglang_without_metrics_tells_its_life_time_length(web: Web, path: str) -> None:
    web.serve(path, sample("sglang-0.5.23-server-info.json"))
    [told] = read_telemetry(web.url)
    assert (told.engine, told.acceptance_length, told.source) == ("sglang", 2.5533, web.url + path)


def test_llama_cpp_has_its_version_in_props_and_its_model_in_the_list(web: Web) -> None:
    web.serve("/v1/models", models("llamacpp", "qwen"))
    web.serve("/metrics", sample("llamacpp-2026-10-metrics.txt"))
    web.serve("/props", {"build_info": "b11434-abc"})
    [told] = read_telemetry(web.url)
    assert web.paths == ["/v1/models", "/metrics", "/props"]
    assert (told.engine, told.version, told.model) == ("llama.cpp", "b11434-abc", "qwen")


def test_a_llama_server_without_metrics_says_how_to_get_them(web: Web) -> None:
    web.serve("/v1/models", models("llamacpp", "qwen"))
    web.serve("/metrics", {"error": {"code": 501}}, 501)
    web.serve("/props", {"build_info": "b11434-abc"})
    with pytest.raises(DataError, match=r"not /metrics \(501\); start it with --metrics"):
        read_telemetry(web.url)


def test_tgi_has_its_version_in_info(web: Web) -> None:
    web.serve("/metrics", sample("tgi-3.3.6-metrics.txt"))
    web.serve("/info", {"model_id": "Qwen/Qwen3-8B", "version": "3.3.6"})
    [told] = read_telemetry(web.url)
    assert (told.engine, told.version) == ("tgi", "3.3.6")


def test_tensorrt_llm_is_not_drained_where_its_series_count_drafts(web: Web) -> None:
    web.serve("/v1/models", models("tensorrt_llm", "nemotron"))
    web.serve("/prometheus/metrics", sample("trtllm-1.4-prometheus.txt"))
    web.serve("/metrics", sample("trtllm-1.4-iteration-stats.json"))
    web.serve("/version", {"version": "1.4.0"})
    [told] = read_telemetry(web.url)
    assert web.paths == ["/v1/models", "/prometheus/metrics", "/version"]
    assert (told.drafts, told.version) == (9800, "1.4.0")


def test_tensorrt_llm_is_drained_where_nothing_else_counts_and_that_is_said(web: Web) -> None:
    web.serve("/v1/models", models("tensorrt_llm", "nemotron"))
    web.serve("/metrics", sample("trtllm-1.4-iteration-stats.json"))
    [told] = read_telemetry(web.url)
    assert (told.drafts, told.scope, told.model) == (31, "intervals", "nemotron")
    assert "metrics-drained" in [note.code for note in told.notes]


def test_a_list_that_was_emptied_before_says_so(web: Web) -> None:
    web.serve("/metrics", b"[]")
    with pytest.raises(DataError, match="nothing was recorded since it was last read; run some requests"):
        read_telemetry(web.url)


def test_statistics_and_series_are_one_record(web: Web) -> None:
    """Where /metrics was read before anything named the engine, its list fills up the series."""
    web.serve("/metrics", sample("trtllm-1.4-iteration-stats.json"))
    web.serve("/prometheus/metrics", sample("trtllm-1.4-prometheus.txt"))
    [told] = read_telemetry(web.url)
    [statistics] = read_telemetry(SAMPLES / "trtllm-1.4-iteration-stats.json")
    assert told.drafts == 9800
    assert told.load.running_p95 == statistics.load.running_p95 is not None


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize("end", ["", "/", "/v1", "/v1/", "#part"])
def test_base_urls(web: Web, end: str) -> None:
    web.serve("/metrics", counters(10, 14))
    [told] = read_telemetry(web.url + end)
    assert (told.drafts, web.paths[0]) == (10, "/v1/models")
    assert told.source == f"{web.url}/metrics", "the one that answered"


@pytest.mark.parametrize("path", ["/metrics", "/gateway/llama/metrics", "/metrics?model=m"])
def test_a_url_with_a_path_is_used_as_it_is(web: Web, path: str) -> None:
    web.serve(path, counters(10, 14))
    [told] = read_telemetry(web.url + path)
    assert (told.drafts, told.source, web.paths) == (10, web.url + path, [path])


def test_documents_and_logs_have_urls_too(web: Web) -> None:
    web.serve("/response.json", sample("vllm-0.29.0-per-request-summary.json"))
    web.serve("/server.log", sample("vllm-0.33.0-v1-server.log"))
    [response] = read_telemetry(f"{web.url}/response.json")
    assert (response.drafts, response.accepted) == (43, 10)
    assert (
        read_telemetry(f"{web.url}/server.log")[0].drafts
        == read_telemetry(SAMPLES / "vllm-0.33.0-v1-server.log")[0].drafts
    )


def test_models_are_kept_apart_and_an_engine_can_be_named(web: Web) -> None:
    web.serve("/metrics", counters(10, 14, "a") + counters(20, 28, "b"))
    assert [(told.model, told.drafts) for told in read_telemetry(web.url)] == [("a", 10), ("b", 20)]
    assert len(read_telemetry(web.url, engine="vllm")) == 2
    with pytest.raises(DataError, match="holds nothing of sglang"):
        read_telemetry(web.url, engine="sglang")


# ---------------------------------------------------------------- what goes wrong


def test_a_server_of_nothing_names_all_that_was_tried(web: Web) -> None:
    with pytest.raises(AccessError) as caught:
        read_telemetry(web.url)
    message = str(caught.value)
    for path in ("/v1/models", "/metrics", "/version", "/server_info", "/props", "/info"):
        assert path in message
    assert message.count("(404)") == 1
    assert message.endswith("give the URL of its metrics")


def test_a_server_that_asks_for_credentials(web: Web) -> None:
    for path in ("/v1/models", "/metrics", "/version"):
        web.serve(path, "", 401)
    with pytest.raises(AccessError, match="it asks for credentials: set SPECMATH_BEARER_TOKEN"):
        read_telemetry(web.url)


def test_nobody_there_is_said_at_once() -> None:
    with pytest.raises(AccessError, match=r"^http://127\.0\.0\.1:1: nothing listens there"):
        read_server("http://127.0.0.1:1", limits=SHORT)


def test_a_web_page_is_no_metrics(web: Web) -> None:
    web.serve("/metrics", "<!DOCTYPE html><p>log in")
    web.serve("/v1/models", "<html>")
    with pytest.raises(AccessError, match=r"/v1/models, /metrics \(a web page\)"):
        read_telemetry(web.url)


def test_paths_that_fail_do_not_matter_where_another_answers(web: Web) -> None:
    def hang_up(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.close()

    web.on("/v1/models", hang_up)
    web.serve("/version", b"\0\0")
    web.serve("/server_info", b"{" * 5000)
    web.serve("/metrics", counters(10, 14))
    [told] = read_telemetry(web.url)
    assert told.drafts == 10


def test_a_page_too_large_is_told_where_nothing_else_is(web: Web) -> None:
    web.serve("/metrics", b"", headers={"Content-Length": "50000000"})
    with pytest.raises(AccessError, match=r"/metrics \(is larger than 32 MiB"):
        read_telemetry(web.url)


def test_a_path_that_holds_something_else_says_what(web: Web) -> None:
    web.serve("/docs", "<!doctype html><p>API")
    with pytest.raises(DataError, match="is a web page, not an engine's output; give the address of its"):
        read_telemetry(f"{web.url}/docs")


def test_a_password_is_not_shown(web: Web) -> None:
    web.serve("/metrics", counters(10, 14))
    url = web.url.replace("//", "//me:secret@")
    [told] = read_telemetry(url)
    assert told.source == web.url.replace("//", "//…@") + "/metrics"
    assert web.asked[0][2]["Authorization"].startswith("Basic ")
    with pytest.raises(AccessError) as caught:
        read_telemetry(f"{url}/none")
    assert "secret" not in str(caught.value)


# ---------------------------------------------------------------- two scrapes


def test_an_earlier_scrape_is_taken_off(web: Web, tmp_path: Path) -> None:
    earlier = tmp_path / "before.txt"
    earlier.write_text(counters(10, 14), encoding="utf-8")
    web.serve("/metrics", counters(110, 254))
    web.serve("/earlier/metrics", counters(60, 154))
    [told] = read_telemetry(web.url, since=earlier)
    assert (told.drafts, told.accepted, told.scope) == (100, 240, "difference")
    assert told.source == f"{earlier} -> {web.url}/metrics"
    [told] = read_telemetry(web.url, since=f"{web.url}/earlier/metrics")
    assert (told.drafts, told.accepted) == (50, 100)
    later = tmp_path / "after.txt"
    later.write_text(counters(70, 174), encoding="utf-8")
    [told] = read_telemetry(later, since=f"{web.url}/earlier/metrics")
    assert (told.drafts, told.accepted) == (10, 20)


def test_since_goes_with_metrics_alone(web: Web, tmp_path: Path) -> None:
    earlier = tmp_path / "before.txt"
    earlier.write_text("no metrics", encoding="utf-8")
    web.serve("/metrics", counters(110, 254))
    with pytest.raises(InputError, match=r"since: goes with metrics alone, and .*before.txt is none"):
        read_telemetry(web.url, since=earlier)
    web.serve("/metrics", "", 404)
    web.serve("/server_info", sample("sglang-0.5.23-server-info.json"))
    earlier.write_text(counters(10, 14), encoding="utf-8")
    with pytest.raises(InputError, match=r"since: goes with metrics, and .* serves none; give the URL"):
        read_telemetry(web.url, since=earlier)


def test_watching_takes_two_scrapes_and_what_lies_between(web: Web) -> None:
    told_of: list[tuple[int, int]] = []
    in_turn(web, "/metrics", counters(10, 14), counters(110, 254))
    [told] = watch_server(web.url, 0.05, progress=lambda done, total: told_of.append((done, total)))
    assert (told.drafts, told.accepted, told.scope) == (100, 240, "difference")
    assert told_of[0] == (0, 0), "tenths of a second, and 0.05 s have none"


def test_a_restart_while_watching_is_told(web: Web) -> None:
    in_turn(web, "/metrics", counters(1000, 1400), counters(100, 240))
    [told] = watch_server(f"{web.url}/metrics", 0.01)
    assert (told.drafts, told.accepted) == (100, 240), "counted from zero"
    assert "counters-reset" in [note.code for note in told.notes]


@pytest.mark.parametrize(
    ("processes", "restarted", "named"),
    [
        (["a0", "a1", "b0"], ["a0", "a1", "b0"], "the server"),
        (["a0", "a1", "b0"], ["a0", "b0"], "engine 0 of model a, engine 0 of model b"),
        (["a0", "a1", "b0"], ["b0"], "engine 0 of model b"),
        (["a0", "a1"], ["a1"], "engine 1"),
        (["a0", "b0"], ["b0"], "model b"),
    ],
)
def test_of_several_engines_and_models_those_that_restarted_are_named(
    processes: list[str], restarted: list[str], named: str
) -> None:
    assert restart_note(processes, restarted) == named


@pytest.mark.parametrize(
    "processes", [["m0"], ["m0", "m"]], ids=["one engine", "one series without an engine's label"]
)
def test_a_restart_of_the_one_engine_is_one_of_the_server(processes: list[str]) -> None:
    assert restart_note(processes, processes) == "the server"


def restart_note(processes: list[str], restarted: list[str]) -> str:
    """What is said to have restarted, of processes by model and engine; python's restart goes unsaid."""

    def scrape(late: bool) -> str:
        lines = []
        for name in processes:
            rank = f'engine="{name[1:]}",' if name[1:] else ""
            total = 3 if late and name in restarted else 10 + late
            lines.append(f'vllm:drafts_total{{{rank}model_name="{name[0]}"}} {total}')
        return "\n".join([*lines, f'python_gc_total{{engine="{late:d}"}} 1'])

    first, second = (parse_exposition(scrape(late)) for late in (False, True))
    (text,) = [note.text for note in difference(first, second).notes if note.code == "counters-reset"]
    told, _, rest = text.partition(" restarted between the scrapes: counted from zero")
    assert rest == ""
    return told


def test_ctrl_c_ends_the_waiting_and_keeps_what_was_counted(web: Web) -> None:
    def interrupted(_: float) -> None:
        web.serve("/metrics", counters(40, 44))
        raise KeyboardInterrupt

    web.serve("/metrics", counters(10, 14))
    [told] = watch_server(web.url, 3600, wait=interrupted)
    assert (told.drafts, told.accepted) == (30, 30)


def test_watching_a_server_that_hands_iterations_out(web: Web) -> None:
    """What was recorded before the watch is thrown away; the second reading is what happened meanwhile."""
    web.serve("/v1/models", models("tensorrt_llm", "nemotron"))
    in_turn(web, "/metrics", b"[]", sample("trtllm-1.4-iteration-stats.json"))
    [told] = watch_server(web.url, 0.01)
    assert told.drafts == 31


def test_watching_series_that_count_drafts_drains_nothing(web: Web) -> None:
    scrape = sample("trtllm-1.4-prometheus.txt").decode()
    later = scrape.replace("} 9800.0", "} 9900.0").replace("} 7448.0", "} 7500.0")
    web.serve("/v1/models", models("tensorrt_llm", "nemotron"))
    in_turn(web, "/prometheus/metrics", scrape, later)
    [told] = watch_server(web.url, 0.01)
    assert (told.drafts, told.accepted, told.scope) == (100, 52, "difference")
    assert "/metrics" not in web.paths


def test_series_without_drafts_give_way_to_iterations(web: Web) -> None:
    """Tokens alone need a k; iterations count the drafts."""
    web.serve("/v1/models", models("tensorrt_llm", "nemotron"))
    web.serve("/metrics", sample("trtllm-1.4-iteration-stats.json"))
    web.serve(
        "/prometheus/metrics",
        "".join(
            f'trtllm_spec_decode_num_{name}_tokens_total{{model_name="nemotron"}} {value}\n'
            for name, value in (("draft", 300), ("accepted", 160))
        ),
    )
    [told] = read_telemetry(web.url)
    assert (told.drafts, told.scope) == (31, "intervals")


def test_watching_series_that_do_not_count_drafts(web: Web) -> None:
    """The iterations are those of the watch in any case; the gauges beside them are as they were last."""
    web.serve("/v1/models", models("tensorrt_llm", "nemotron"))
    web.serve("/prometheus/metrics", 'trtllm_num_generation_requests{model_name="nemotron"} 7\n')
    in_turn(
        web, "/metrics", sample("trtllm-1.4-iteration-stats.json"), sample("trtllm-1.4-iteration-stats.json")
    )
    [told] = watch_server(web.url, 0.01)
    assert (told.drafts, told.scope, told.model) == (31, "intervals", "nemotron")
    assert web.paths.count("/metrics") == 2


@pytest.mark.parametrize(
    ("source", "seconds", "words"),
    [
        ("metrics.txt", 1, "watch: goes with the URL of a server"),
        ("http://host", 0, "watch: must be above 0 s"),
        ("http://host", float("nan"), "watch: must be above 0 s"),
        ("http://host", 1e9, "watch: must be above 0 s"),
    ],
)
def test_what_cannot_be_watched(source: str, seconds: float, words: str) -> None:
    with pytest.raises(InputError, match=words):
        watch_server(source, seconds)


def test_life_time_figures_cannot_be_watched(web: Web) -> None:
    web.serve("/server_info", sample("sglang-0.5.23-server-info.json"))
    with pytest.raises(InputError, match=r"watch: goes with metrics, and .* serves none"):
        watch_server(web.url, 1)


# ---------------------------------------------------------------- the set-up


def test_facts_of_vllm_in_development_mode(web: Web) -> None:
    web.serve("/v1/models", models("vllm", "served", root="meta-llama/Llama-3.1-8B-Instruct"))
    web.serve("/server_info", {"vllm_config": VLLM_CONFIG})
    lengths = "".join(
        f'vllm:request_{part}_tokens_{end}{{model_name="served"}} {value}\n'
        for part, total in (("prompt", 3000), ("generation", 1000))
        for end, value in (("sum", total), ("count", 10))
    )
    web.serve("/metrics", counters(10, 14, "served") + lengths)
    assert facts_of(ask_server(web.url)) == ServerFacts(
        model="meta-llama/Llama-3.1-8B-Instruct",
        context_limit=8192,
        mean_context=350,
        tp=2,
        pp=1,
        dp=4,
        dtype="bfloat16",
        quantization="fp8",
        kv_cache_dtype="fp8_e4m3",
        method="eagle3",
        draft="yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        k=3,
    )


def test_facts_of_vllm_in_sections(web: Web) -> None:
    web.serve("/v1/models", models("vllm", "m"))
    config = {
        "model_config": {"model": "Qwen/Qwen3-8B", "max_model_len": 4096, "quantization": None},
        "parallel_config": {"tensor_parallel_size": 2},
        "scheduler_config": {"max_num_seqs": 256},
        "speculative_config": {"method": "qwen3_next_mtp", "num_speculative_tokens": 2},
        "cache_config": {"cache_dtype": "auto"},
    }
    web.serve("/server_info", {"vllm_config": config})
    facts = facts_of(ask_server(web.url))
    assert facts == ServerFacts(
        model="Qwen/Qwen3-8B", context_limit=4096, max_requests=256, tp=2, method="mtp", k=2
    )


def test_facts_of_sglang(web: Web) -> None:
    web.serve("/v1/models", models("sglang", "m"))
    told = {
        "model_path": "Qwen/Qwen3-8B", "context_length": 32768, "max_running_requests": 48, "tp_size": 4,
        "dp_size": 1, "pp_size": 1, "ep_size": 4, "quantization": "fp8", "kv_cache_dtype": "auto",
        "speculative_algorithm": "NEXTN", "speculative_draft_model_path": None,
        "speculative_num_draft_tokens": 4,
    }  # fmt: skip
    web.serve("/server_info", told)
    totals = {"prompt_tokens": 800, "generation_tokens": 200, "num_requests": 4}
    lines = (f'sglang:{name}_total{{model_name="m"}} {value}' for name, value in totals.items())
    web.serve("/metrics", "\n".join(lines))
    assert facts_of(ask_server(web.url)) == ServerFacts(
        model="Qwen/Qwen3-8B",
        context_limit=32768,
        mean_context=225,
        max_requests=48,
        tp=4,
        dp=1,
        pp=1,
        ep=4,
        quantization="fp8",
        method="mtp",
        k=3,
    )


def test_facts_of_llama_cpp_and_tgi(web: Web, web_elsewhere: Web) -> None:
    web.serve("/v1/models", models("llamacpp", "m"))
    settings = {"n_ctx": 4096, "params": {"speculative.n_max": 5}}
    web.serve(
        "/props", {"model_path": "/m/x.gguf", "total_slots": 4, "default_generation_settings": settings}
    )
    assert facts_of(ask_server(web.url)) == ServerFacts(
        model="/m/x.gguf", context_limit=4096, max_requests=4, k=5
    )
    web_elsewhere.serve("/metrics", sample("tgi-3.3.6-metrics.txt"))
    web_elsewhere.serve("/info", {"model_id": "m", "max_total_tokens": 2048, "max_concurrent_requests": 128})
    assert facts_of(ask_server(web_elsewhere.url)) == ServerFacts(
        model="m", context_limit=2048, max_requests=128
    )


@pytest.mark.parametrize(
    "document",
    [None, 3, [], {"vllm_config": 3}, {"vllm_config": {"model_config": []}}, {"version": {"a": 1}}, "x" * 9],
)
def test_documents_of_another_make_are_no_facts(web: Web, document: Any) -> None:
    for path in ("/server_info", "/version", "/props", "/info"):
        web.serve(path, document)
    web.serve("/v1/models", {"data": [3, {"id": 4}, {"owned_by": "vllm", "max_model_len": "many"}]})
    server = ask_server(web.url)
    assert facts_of(server) == ServerFacts()
    with pytest.raises(DataError, match="tells nothing of speculation"):
        telemetry_of(server)


def test_a_silent_server_costs_one_time_out(web: Web) -> None:
    for path in ("/v1/models", "/metrics"):
        web.drip(path, b"", every_s=60)
    with pytest.raises(AccessError, match=r"not complete after 0\.3 s"):
        ask_server(web.url, SHORT)
    assert web.paths == ["/v1/models"]


def test_metrics_too_large_to_be_fetched_are_no_lack_of_metrics(web: Web) -> None:
    web.serve("/v1/models", models("vllm", "m"))
    with pytest.raises(DataError, match="serves no metrics; "):
        metrics_of(web.url)
    web.serve("/metrics", "#" * 2000)
    with pytest.raises(
        DataError, match="its /metrics is larger than 1000 bytes, the most that is fetched; save"
    ):
        metrics_of(web.url, Limits(size_bytes=1000))
