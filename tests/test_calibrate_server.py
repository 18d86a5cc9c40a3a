"""A server measured from outside: what comes out is what the fake engine knows of itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from calibrate.serving.answers import Answer, Delivery, read_answer
from calibrate.serving.load_plan import LoadPlan, LoadProgress, PromptPool
from calibrate.serving.rounds import asked_together, window_of
from calibrate.serving.server import ServedRuns, measure_server
from calibrate.serving.streaming import CalledOff, Halt, Stream, StreamLimits, stream
from specmath.calibration_files import read_calibration, write_calibration
from specmath.calibrations import MeasuredRuns
from specmath.engines.addresses import parse_address
from specmath.errors import AccessError, DataError, InputError, SpecmathError
from tests.fake_engine import FakeEngine, FakeTime

PROMPTS = [f"word {number} and some more of them" for number in range(200)]
SHORT = LoadPlan(concurrency=1, output_tokens=24, least_rounds=2, most_rounds=2, precision=0.0)


def plain_law(batch: int) -> float:
    return 0.010 + 0.001 * batch


def speculative_law(batch: int) -> float:
    return 0.014 + 0.003 * batch


class Bench:
    """Engines on one clock, and the load on them."""

    def __init__(self) -> None:
        self.clock = FakeTime()
        self.engines: list[FakeEngine] = []
        self.told: list[LoadProgress] = []

    def engine(self, **settings: Any) -> FakeEngine:
        made = FakeEngine(self.clock, **settings)
        self.engines.append(made)
        return made

    def speculative(self, **settings: Any) -> FakeEngine:
        usual = {"k": 3, "accepts": (0.8, 0.6, 0.5), "step_s": speculative_law}
        return self.engine(**(usual | settings))

    def plain(self, **settings: Any) -> FakeEngine:
        return self.engine(**({"step_s": plain_law, "seed": 2} | settings))

    def measure(
        self, engine: FakeEngine, plan: LoadPlan = SHORT, prompts: Any = PROMPTS, **named: Any
    ) -> ServedRuns:
        def tell(state: LoadProgress) -> None:
            self.told.append(state)
            for one in self.engines:
                one.together = state.concurrency
            noted(state)

        noted: Callable[[LoadProgress], None] = named.pop("noted", lambda _: None)
        return measure_server(
            engine.url, prompts, plan, progress=tell, clock=self.clock, wait=lambda _: None, **named
        )


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "SPECMATH_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    made = Bench()
    yield made
    for engine in made.engines:
        engine.close()


def codes(runs: ServedRuns) -> set[str]:
    return {advice.code for advice in runs.runs.warnings}


# ---------------------------------------------------------------- figures that the engine knows


@pytest.mark.parametrize("kind", ["vllm", "llama.cpp"])
def test_both_arms_at_rising_concurrency(bench: Bench, kind: str) -> None:
    draft, plain = bench.speculative(kind=kind), bench.plain(kind=kind)
    plan = LoadPlan(concurrency=6, output_tokens=40, least_rounds=2, most_rounds=2, precision=0.0)
    edges: dict[int, list[int]] = {}

    def note(state: LoadProgress) -> None:
        edges.setdefault(state.concurrency, []).append(len(draft.steps))

    found = bench.measure(draft, plan, baseline=plain.url, noted=note)
    assert [one.speculative.concurrency for one in found.levels] == [1, 2, 4, 6]
    assert codes(found) == set()
    for run, level in zip(found.runs.runs, found.levels, strict=True):
        batch = level.speculative.concurrency
        begin = edges[batch][1]  # the round that warms up is over, and the other arm's begins
        end = edges[batch][5]  # the last round of the other arm begins
        steps = draft.steps[begin:end]
        assert run.acceptance_length == pytest.approx(1 + sum(steps) / len(steps), rel=1e-12)
        assert run.plain_s == pytest.approx(plain_law(batch), rel=1e-9)
        assert run.step_s == pytest.approx(speculative_law(batch), rel=1e-9)
        assert run.in_plain_steps == pytest.approx(speculative_law(batch) / plain_law(batch), rel=1e-9)
        assert (run.k, run.batch, run.context) == (3, batch, 7 + 40 / 2)
        middle = (batch + 1) / 2 * 0.05  # prompts that come together are prefilled one after another
        assert level.speculative.ttft_s == pytest.approx(middle, rel=1e-9)
        assert level.speculative.tokens_per_s * level.speculative.tpot_s == pytest.approx(batch)
        assert (level.speculative.requests, level.speculative.failed) == (2 * batch, 0)
        assert level.speculative.counted == {"vllm": "usage", "llama.cpp": "events"}[kind]


@pytest.mark.parametrize("accepts", [(1.0, 1.0, 1.0), (1.0, 0.0, 0.0)])
def test_steps_that_come_two_by_two_tell_no_time_of_a_step(
    bench: Bench, accepts: tuple[float, float, float]
) -> None:
    """Tokens over time then; the first case is seen by the tokens of a delivery, the second by their mean."""
    length = 1 + sum(accepts)
    found = bench.measure(bench.speculative(accepts=accepts, holds_back=True))
    (level,) = found.levels
    assert level.speculative.tokens_per_delivery > 1.8 * length
    assert "yield-disagrees" in codes(found)
    assert found.runs.runs[0].speculative_s == pytest.approx(speculative_law(1) / length, rel=1e-9)


def test_a_delivery_of_more_than_a_step_is_seen(bench: Bench) -> None:
    (level,) = bench.measure(bench.speculative()).levels
    assert level.speculative.is_by_steps(3)
    assert not level.speculative.is_by_steps(2)  # a step of k = 2 yields no four tokens


def test_acceptance_from_the_timings_of_answers(bench: Bench) -> None:
    engine = bench.speculative(kind="llama.cpp")
    engine.serves_metrics = False
    warm: list[int] = []
    found = bench.measure(engine, k=3, noted=lambda _: warm.append(len(engine.steps)))
    steps = engine.steps[warm[1] :]
    assert found.runs.runs[0].acceptance_length == pytest.approx(1 + sum(steps) / len(steps), rel=1e-12)
    with pytest.raises(DataError, match="cannot be told: it does not tell k, the draft tokens per step"):
        bench.measure(engine)


def test_what_is_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMATH_BEARER_TOKEN", "word")
    engine = bench.speculative()
    found = bench.measure(engine, k=None)
    posts = [(path, headers, body) for method, path, headers, body in engine.asked if method == "POST"]
    assert len(posts) == 3  # one to warm up, two timed
    assert [body.pop("prompt") for _, _, body in posts] == PROMPTS[:3]
    for path, headers, body in posts:
        assert path == "/v1/completions"
        assert headers["Authorization"] == "Bearer word"
        assert body == {
            "model": "m",
            "max_tokens": 24,
            "temperature": 0.0,
            "seed": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }
    assert found.runs.origin == "server"
    assert found.runs.machine["engine"] == "vllm"
    assert found.runs.machine["version"] == "0.32.0"
    assert json.loads(str(found.runs.machine["sent"]))["ignore_eos"] is True


def test_messages_go_to_the_chat_path(bench: Bench) -> None:
    engine = bench.speculative()
    chats = [[{"role": "user", "content": text}] for text in PROMPTS]
    bench.measure(engine, prompts=chats)
    (first, *_) = [(path, body) for method, path, _, body in engine.asked if method == "POST"]
    assert first[0] == "/v1/chat/completions"
    assert first[1]["messages"] == chats[0]
    assert "prompt" not in first[1]


# ---------------------------------------------------------------- what a reader is told


def test_fewer_running_than_asked_is_told(bench: Bench) -> None:
    engine = bench.speculative(reports_running=0.4)
    found = bench.measure(engine)
    (advice,) = [one for one in found.runs.warnings if one.code == "fewer-running"]
    assert advice.text == "at concurrency 1 the server counts 0.4 requests in a step on average"


def test_the_runs_go_through_a_file(bench: Bench, tmp_path: Path) -> None:
    runs = bench.measure(bench.speculative(), baseline=bench.plain().url).runs
    write_calibration(runs, tmp_path / "server.yaml")
    again = read_calibration(tmp_path / "server.yaml")
    assert isinstance(again, MeasuredRuns)
    assert (again.origin, dict(again.machine)) == ("server", dict(runs.machine))
    (first,), (second,) = runs.runs, again.runs
    assert second.in_plain_steps == pytest.approx(first.in_plain_steps, rel=1e-4)


def test_a_busy_round_is_told_and_spoils_no_figure(bench: Bench) -> None:
    busy = bench.speculative(step_s=lambda _: 0.05 if bench.told[-1].done == 2 else 0.01)
    plan = LoadPlan(concurrency=1, output_tokens=24, least_rounds=3, most_rounds=3, precision=0.0)
    found = bench.measure(busy, plan)
    assert "times-scatter" in codes(found)
    assert found.runs.runs[0].step_s == pytest.approx(0.01, rel=1e-9)


def test_servers_take_turns_by_rounds(bench: Bench) -> None:
    draft, plain = bench.speculative(), bench.plain()
    bench.measure(draft, baseline=plain.url)
    order = [(state.server == draft.url, state.done) for state in bench.told]
    assert order == [(True, 0), (False, 0), (True, 1), (False, 1), (True, 2), (False, 2)]


def test_without_a_baseline_times_alone(bench: Bench) -> None:
    found = bench.measure(bench.speculative())
    assert found.runs.runs[0].plain_s is None
    assert found.levels[0].speedup is None
    assert codes(found) == {"no-baseline"}


def test_other_traffic_is_seen(bench: Bench) -> None:
    engine = bench.speculative()

    def disturb(state: LoadProgress) -> None:
        engine.others = 3 if state.done == 2 else 0

    found = bench.measure(engine, noted=disturb)
    (advice,) = [one for one in found.runs.warnings if one.code == "other-traffic"]
    counted = "5 requests where 2 were sent and 348 output tokens where 48 were received"
    assert f"counted {counted} at concurrency 1: it has other users" in advice.text


def test_steps_without_a_draft_count_as_steps_of_one_token(bench: Bench) -> None:
    engine = bench.speculative(drafting_share=0.5)
    warm: list[int] = []

    def note(state: LoadProgress) -> None:
        warm.append(len(engine.steps))

    found = bench.measure(engine, noted=note)
    steps = engine.steps[warm[1] :]
    assert "steps-without-draft" in codes(found)
    (run,) = found.runs.runs
    assert run.acceptance_length == pytest.approx(1 + sum(steps) / len(steps), rel=1e-12)
    assert run.step_s == pytest.approx(speculative_law(1), rel=1e-9)


def test_prompts_sent_before_tell_no_time_to_the_first_token(bench: Bench) -> None:
    found = bench.measure(bench.speculative(), prompts=PROMPTS[:2])
    assert found.levels[0].speculative.ttft_s == pytest.approx(0.05)  # of the one prompt that is fresh
    found = bench.measure(bench.speculative(), prompts=PROMPTS[:1])
    assert found.levels[0].speculative.ttft_s is None
    assert "prompts-repeated" in codes(found)


def test_a_level_that_never_runs_in_full_ends_the_rise(bench: Bench) -> None:
    plan = LoadPlan(concurrency=4, output_tokens=24, least_rounds=1, most_rounds=1)
    found = bench.measure(bench.speculative(most_running=2), plan)
    assert [one.speculative.concurrency for one in found.levels] == [1, 2]
    (advice,) = [one for one in found.runs.warnings if one.code == "level-refused"]
    assert "at no time did all 4 requests decode at once" in advice.text
    assert advice.remedy == "lower the concurrency to 2"


def test_a_server_that_goes_away_leaves_the_levels_done(bench: Bench) -> None:
    engine = bench.speculative()

    def leave(state: LoadProgress) -> None:
        if (state.concurrency, state.done) == (2, 1):
            engine.serves_metrics = False

    found = bench.measure(engine, LoadPlan(concurrency=4, output_tokens=24, most_rounds=3), noted=leave)
    assert [one.speculative.concurrency for one in found.levels] == [1]
    (advice,) = [one for one in found.runs.warnings if one.code == "level-refused"]
    assert "no longer serves its metrics" in advice.text


def test_failed_requests_are_counted_and_their_round_is_left_out(bench: Bench) -> None:
    engine = bench.speculative()
    fails = answer_of(503)

    def fail(handler: BaseHTTPRequestHandler) -> None:
        engine.together = 1  # the other one of the round goes on alone
        fails(handler)

    engine.faults = {5 + 2 + 2: fail}  # five posts at a level of one, two to warm up, two of the first round
    plan = LoadPlan(
        concurrency=2, output_tokens=24, least_rounds=4, most_rounds=4, precision=0.0, failed_share=0.125
    )
    found = bench.measure(engine, plan)
    level = found.levels[1].speculative
    assert (level.requests, level.failed, level.rounds) == (8, 1, 3)
    assert level.delivery_s == pytest.approx(speculative_law(2))


def test_too_many_failures_refuse_the_level(bench: Bench) -> None:
    engine = bench.speculative()
    engine.faults = {2: answer_of(503, {"error": {"message": "no room"}})}
    with pytest.raises(AccessError, match=r"1 of 2 requests failed.*503 \(no room\); look into"):
        bench.measure(engine)


def test_ctrl_c_keeps_the_levels_done(bench: Bench) -> None:
    engine = bench.speculative()
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        if bench.told[-1].concurrency == 2 and not engine.is_closing.is_set():
            engine.is_closing.set()  # it has nothing more to say
            signal.pthread_kill(main, signal.SIGINT)

    engine.on_step = interrupt
    found = bench.measure(engine, LoadPlan(concurrency=4, output_tokens=24, least_rounds=1, most_rounds=1))
    assert [one.speculative.concurrency for one in found.levels] == [1]
    assert "interrupted" in codes(found)


def test_ctrl_c_ends_requests_that_wait(bench: Bench) -> None:
    engine, halt = bench.engine(), Halt()
    arrived = threading.Event()

    def wait(_: BaseHTTPRequestHandler) -> None:
        arrived.set()
        engine.is_closing.wait(60)

    engine.faults[-1] = wait
    main, address = threading.main_thread().ident or 0, parse_address(f"{engine.url}/v1/completions")
    ended = threading.Event()

    def ask(_: object) -> Answer:
        try:
            return read_answer(stream(address, b"{}", bench.clock, limits=StreamLimits(), halt=halt))
        except CalledOff:
            ended.set()
            raise

    def interrupt() -> None:
        arrived.wait(30)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        asked_together(ask, ["a"], halt)
    assert ended.wait(30)
    with pytest.raises(CalledOff):
        stream(address, b"{}", bench.clock, limits=StreamLimits(), halt=halt)


# ---------------------------------------------------------------- servers that fail


def answer_of(status: int, document: Any = None, headers: dict[str, str] | None = None) -> Any:
    content = json.dumps(document).encode() if document is not None else b""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def raw(*parts: bytes, until: threading.Event | None = None, drip: bytes = b"") -> Any:
    """What is written after a good status line; `drip` again and again until the test is over."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for part in parts:
            handler.wfile.write(part)
        while until is not None and not until.wait(0.001):
            handler.wfile.write(drip)
            handler.wfile.flush()

    return answer


def streamed(*documents: Any) -> Any:
    """A whole stream at once."""
    return raw(*(b"data: " + json.dumps(one).encode() + b"\n\n" for one in documents), b"data: [DONE]\n\n")


CHUNK = b'data: {"choices": [{"text": "a", "finish_reason": null}]}\n\n'

FAULTS = {
    "credentials": (answer_of(401), "answers 401; set SPECMATH_BEARER_TOKEN"),
    "model": (
        answer_of(404, {"object": "error", "message": "The model `x` does not exist."}),
        "answers 404 (The model `x` does not exist.); check the address, and the name of the model",
    ),
    "too long": (
        answer_of(400, {"error": {"message": "maximum context length is 512 tokens"}}),
        "answers 400 (maximum context length is 512 tokens); give shorter prompts",
    ),
    "busy": (answer_of(429), "answers 429; lower the concurrency"),
    "failed": (answer_of(500, {"error": "out of\nmemory"}), "answers 500 (out of memory); look into"),
    "elsewhere": (answer_of(307, headers={"Location": "http://192.0.2.1/"}), "a request is not sent on"),
    "dropped": (raw(CHUNK), "the stream broke off; look into the server's log"),
    "no stream": (raw(b"<html>"), "answers without a stream of events; give the base URL"),
    "garbage": (raw(b"data: x\n\n"), "streams events that are no JSON; give the base URL"),
    "error event": (raw(b'data: {"error": {"message": "gone"}}\n\n'), "broke off with an error (gone)"),
    "no usage": (raw(CHUNK, b"data: [DONE]\n\n"), "tells no usage"),
    "usage that falls": (
        streamed(
            *(
                {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 5, "completion_tokens": n}}
                for n in (8, 9, 4)
            )
        ),
        "counts 4 output tokens after 9, so that its usage cannot be right; look into the server",
    ),
    "usage that stands still": (
        streamed(*[{"choices": [{"text": "a"}], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}] * 3),
        "counts 7 output tokens after 7, so that its usage cannot be right",
    ),
    "no tokens": (raw(b"data: [DONE]\n\n"), "streams no tokens"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_failing_server_is_one_line(bench: Bench, name: str) -> None:
    engine = bench.speculative()
    engine.faults[-1], words = FAULTS[name]
    with pytest.raises(SpecmathError) as fault:
        bench.measure(engine)
    assert words in str(fault.value)
    assert str(fault.value).startswith(f"{engine.url}/v1/completions: ")
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize(
    ("drip", "limits", "words"),
    [
        (CHUNK, StreamLimits(lines=50), "does not end after 50 events"),
        (b": still here\n", StreamLimits(size_bytes=500), "does not end after 0 events"),
        (b"x", StreamLimits(total_s=0.2), "the answer did not end within 0.2 s"),
        (b"", StreamLimits(silent_s=0.1), "nothing came for 0.1 s"),
    ],
)
def test_an_endless_answer_is_left(bench: Bench, drip: bytes, limits: StreamLimits, words: str) -> None:
    engine = bench.engine()
    engine.faults[-1] = raw(until=engine.is_closing, drip=drip)
    address = parse_address(f"{engine.url}/v1/completions")
    with pytest.raises(SpecmathError, match=words):
        stream(address, b"{}", bench.clock, limits=limits, halt=Halt())


def test_nothing_is_sent_to_where_a_redirection_leads(bench: Bench) -> None:
    engine, elsewhere = bench.speculative(), bench.plain()
    engine.faults[-1] = answer_of(307, headers={"Location": f"{elsewhere.url}/v1/completions"})
    with pytest.raises(AccessError, match="a request is not sent on"):
        bench.measure(engine)
    assert elsewhere.asked == []


def test_what_does_not_speculate_is_refused(bench: Bench) -> None:
    with pytest.raises(DataError, match=r"acceptance cannot be told: .*speculation"):
        bench.measure(bench.plain())


def test_a_k_that_the_server_contradicts_is_refused(bench: Bench) -> None:
    with pytest.raises(DataError, match=r"it drafts 3 tokens a step, and k = 10,000 was given; give 3, or l"):
        bench.measure(bench.speculative(), k=10_000)


def test_metrics_too_large_to_be_fetched_are_no_lack_of_metrics(bench: Bench) -> None:
    engine = bench.speculative()
    engine.padding = 33 * 2**20
    with pytest.raises(DataError, match=r"cannot be told: its /metrics is larger than 32 MiB") as caught:
        bench.measure(engine)
    assert "serves no metrics" not in str(caught.value)


def test_answers_that_take_no_time_are_refused(bench: Bench) -> None:
    with pytest.raises(AccessError, match=r"a token took .* s, so that answers do not come as they are made"):
        bench.measure(bench.speculative(step_s=lambda _: 1e-12))


def test_a_server_without_metrics_is_refused(bench: Bench) -> None:
    engine = bench.speculative()
    engine.serves_metrics = False
    with pytest.raises(DataError, match="serves no metrics; start it with them"):
        bench.measure(engine)


def test_a_baseline_that_speculates_is_refused(bench: Bench) -> None:
    with pytest.raises(DataError, match="speculates itself"):
        bench.measure(bench.speculative(), baseline=bench.speculative().url)


def test_inputs(bench: Bench) -> None:
    engine = bench.speculative()
    with pytest.raises(InputError, match="baseline: is the server itself"):
        bench.measure(engine, baseline=engine.url + "/v1")
    with pytest.raises(InputError, match=r"^url: foo is no address that can be asked"):
        measure_server("foo", PROMPTS)
    with pytest.raises(InputError, match=r"^baseline: foo is no address that can be asked"):
        bench.measure(engine, baseline="foo")
    with pytest.raises(InputError, match="prompts: are none"):
        bench.measure(engine, prompts=[])
    with pytest.raises(DataError, match="serves no model 'x'; it has 'm'"):
        bench.measure(engine, model="x")
    with pytest.raises(InputError, match="k: must be"):
        bench.measure(engine, k=0)
    with pytest.raises(InputError, match="concurrency"):
        LoadPlan(concurrency=0)


# ---------------------------------------------------------------- pieces


def events(*documents: Any, times: list[float]) -> Stream:
    lines = [b"[DONE]" if one is None else json.dumps(one).encode() for one in documents]
    stamped = tuple((at_s, b"data: " + line) for at_s, line in zip(times, lines, strict=True))
    return Stream(where="http://here", sent_s=1.0, lines=stamped)


def piece(text: str, tokens: int | None = None, finish: str | None = None) -> Any:
    usage = {} if tokens is None else {"usage": {"prompt_tokens": 5, "completion_tokens": tokens}}
    return {"choices": [{"text": text, "finish_reason": finish}], **usage}


def usage(tokens: int) -> Any:
    return {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": tokens}}


@pytest.mark.parametrize(
    ("stream_", "counted", "expected"),
    [
        pytest.param(
            events(
                piece("a", 1), piece("bc", 3), piece("", 4, "length"), usage(4), None, times=[2, 3, 4, 5, 5]
            ),
            "usage",
            [(2, 1), (3, 3), (4, 4)],
            id="each event tells its tokens, an empty text too",
        ),
        pytest.param(
            events(
                piece("a"),
                piece("bc"),
                piece("d"),
                piece("e", None, "stop"),
                usage(4),
                times=[2, 3, 3.01, 4, 4],
            ),
            "events",
            [(2, 1), (3.01, 3), (4, 4)],
            id="one token each, two of them together",
        ),
        pytest.param(
            events(piece("aa"), piece("bbbb"), piece("cc", None, "length"), usage(8), times=[2, 3, 4, 4]),
            "characters",
            [(2, 2), (3, 6), (4, 8)],
            id="shared out by characters",
        ),
    ],
)
def test_answers(stream_: Stream, counted: str, expected: list[tuple[float, float]]) -> None:
    found = read_answer(stream_)
    assert found.counted == counted
    assert [(one.at_s, one.tokens) for one in found.deliveries] == expected
    assert (found.prompt_tokens, found.ttft_s) == (5, 1.0)


def test_the_role_of_a_chat_is_no_token() -> None:
    role = {"choices": [{"delta": {"role": "assistant", "content": ""}}]}
    thought = {"choices": [{"delta": {"reasoning_content": "hm"}}]}
    found = read_answer(events(role, thought, piece("a", None, "stop"), usage(2), times=[2, 3, 4, 4]))
    assert found.first_s == 3


def answer(*deliveries: tuple[float, float]) -> Answer:
    return Answer(
        sent_s=0.0,
        first_s=deliveries[0][0],
        deliveries=tuple(Delivery(at_s=at_s, tokens=tokens) for at_s, tokens in deliveries),
        prompt_tokens=5,
        output_tokens=int(deliveries[-1][1]),
        counted="usage",
        ended="length",
        document={},
    )


def test_the_window_is_where_all_decode() -> None:
    early = answer((1, 1), (2, 3), (3, 4), (4, 6), (5, 8))
    late = answer((2.5, 1), (3.5, 3), (4.5, 5), (5.5, 6), (6, 8))
    window = window_of([early, late])
    assert window is not None  # from 2.5, when the late one has its first, to 4, before the last of the early
    inside_early, inside_late = [3, 4], [2.5, 3.5]
    expected = [
        later - earlier for times in (inside_early, inside_late) for earlier, later in pairwise(times)
    ]
    assert list(window.gaps_s) == expected
    assert list(window.bursts) == [2, 2]
    assert (window.seconds, window.tokens) == (2, 4)


@pytest.mark.parametrize("standing", [((1, 1), (1, 3), (1, 4), (1, 5)), ((1, 4), (2, 4), (3, 4), (4, 5))])
def test_no_window_without_time_or_tokens(standing: tuple[tuple[float, float], ...]) -> None:
    assert window_of([answer(*standing)]) is None


def test_no_window_where_one_ends_before_another_begins() -> None:
    assert window_of([answer((1, 1), (2, 2), (3, 3)), answer((4, 1), (5, 2), (6, 3))]) is None


def test_a_pool_knows_which_prompts_are_fresh() -> None:
    pool = PromptPool(["a", "b", "c"])
    assert pool.take(2) == [("a", True), ("b", True)]
    assert pool.take(2) == [("c", True), ("a", False)]


def test_the_plan_tells_its_bounds() -> None:
    plan = LoadPlan(concurrency=3, output_tokens=10, most_rounds=4, least_rounds=2)
    assert plan.levels == (1, 2, 3)
    assert plan.most_requests == 6 * 5
    assert plan.bounds(2).startswith("at most 60 requests of 10 output tokens each, 1, 2, 3 at a time; ")


def test_no_model_library_is_needed() -> None:
    code = "import sys, calibrate.serving.server; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "calibrate.serving.server" in loaded.split()
    assert not {"torch", "transformers", "pandas"} & set(loaded.split())


# ---------------------------------------------------------------- a real engine


@pytest.mark.engine
@pytest.mark.skipif(
    "SPECMATH_ENGINE_URL" not in os.environ,
    reason="no engine: set SPECMATH_ENGINE_URL to the base URL of a vLLM or llama-server that speculates",
)
def test_a_real_engine() -> None:
    plan = LoadPlan(concurrency=2, output_tokens=48, least_rounds=2, most_rounds=3, level_s=30)
    found = measure_server(
        os.environ["SPECMATH_ENGINE_URL"],
        PROMPTS,
        plan,
        baseline=os.environ.get("SPECMATH_BASELINE_URL"),
    )
    for run, level in zip(found.runs.runs, found.levels, strict=True):
        assert 1 <= run.acceptance_length <= run.k + 1
        assert level.speculative.tokens_per_delivery == pytest.approx(run.acceptance_length, rel=0.1)
        assert (run.speculative_s or 0) > 0
