"""A Prometheus server's history: what is asked, and what the samples make, restarts and all."""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from fractions import Fraction
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings, strategies as st

from specmath.engines.addresses import Address
from specmath.engines.content import Exposition
from specmath.engines.exposition import parse_exposition
from specmath.engines.fetching import Limits, Reply
from specmath.engines.history import _QUERY, PARTS, _data, _points, ask_history, read_history
from specmath.engines.increases import parts_of
from specmath.engines.prometheus_ranges import parse_range
from specmath.engines.recognition import read_scrape, read_telemetry
from specmath.errors import AccessError, DataError, InputError, SpecmathError

if TYPE_CHECKING:
    from tests.conftest import Web

NOW_S = 1_780_000_000.0
HOUR_S = 3600.0
LABELS = {"model_name": "m", "engine": "0", "instance": "a:8000", "job": "vllm"}
Values = list[tuple[float, float]]


class Prometheus:
    """Answers range queries out of series, as the real one does: by step, within start and end."""

    def __init__(self, web: Web) -> None:
        self.web = web
        self.series: list[tuple[dict[str, str], Values]] = []
        self.asked: list[dict[str, str]] = []
        web.on("/api/v1/query_range", self.answer)

    @property
    def source(self) -> str:
        return f"prometheus:{self.web.url}"

    def add(self, name: str, values: Values, **labels: str) -> None:
        self.series.append(({"__name__": name, **LABELS, **labels}, values))

    def add_counts(self, drafts: Values, accepted: Values, **labels: str) -> None:
        """The counters of a draft of 3 tokens."""
        tripled = [(moment, 3 * value) for moment, value in drafts]
        self.add("vllm:spec_decode_num_drafts_total", drafts, **labels)
        self.add("vllm:spec_decode_num_draft_tokens_total", tripled, **labels)
        self.add("vllm:spec_decode_num_accepted_tokens_total", accepted, **labels)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        query = {key: value[0] for key, value in parse_qs(urlsplit(handler.path).query).items()}
        self.asked.append(query)
        found = re.match(r'\{__name__=~"(.*?)"', query["query"])
        assert found is not None
        wanted, start_s, end_s = re.compile(found[1]), float(query["start"]), float(query["end"])
        result = [
            {"metric": labels, "values": [[t, str(v)] for t, v in values if start_s <= t <= end_s]}
            for labels, values in self.series
            if wanted.fullmatch(labels["__name__"])
        ]
        self.web.serve("/now", {"status": "success", "data": {"resultType": "matrix", "result": result}})
        self.web.actions["/now"](handler)


def every(step_s: float, *values: float | None) -> Values:
    """Samples up to now; None leaves one out."""
    start_s = NOW_S - step_s * (len(values) - 1)
    return [(start_s + i * step_s, value) for i, value in enumerate(values) if value is not None]


# ---------------------------------------------------------------- what is counted


def test_increases_over_the_range(web: Web) -> None:
    server = Prometheus(web)
    server.add_counts(every(HOUR_S, 100, 150, 200, 300), every(HOUR_S, 10, 60, 160, 360))
    history = ask_history(f"{server.source}?range=3h&step=1h", now_s=NOW_S)
    [told] = history.telemetry
    assert (told.drafts, told.drafted, told.accepted) == (200, 600, 350)
    assert (told.scope, told.model, told.engine) == ("difference", "m", "vllm")
    assert told.source == f"{web.url} over 3 h"
    assert [one.telemetry.drafts for one in history.intervals] == [50, 50, 100]
    width_s = 3 * HOUR_S / PARTS
    assert [(one.end_s - one.start_s) for one in history.intervals] == pytest.approx([width_s] * 3)
    assert history.intervals[-1].end_s == NOW_S


def test_it_is_a_source_like_others(web: Web) -> None:
    server = Prometheus(web)
    now_s = time.time()
    server.add_counts([(now_s - 60, 10), (now_s - 30, 30)], [(now_s - 60, 5), (now_s - 30, 35)])
    [told] = read_telemetry(f"{server.source}?range=10m&step=30s")
    assert (told.drafts, told.accepted) == (20, 30)
    with pytest.raises(InputError, match="since: goes with a scrape; a Prometheus server takes"):
        read_history(server.source, since="before.txt")


RESTARTS: dict[str, tuple[Values, Values, int, int, bool]] = {
    "none": (every(60, 10, 20, 30), every(60, 5, 15, 25), 20, 20, False),
    "both fall": (every(60, 100, 150, 20, 60), every(60, 50, 90, 30, 80), 50 + 20 + 40, 40 + 30 + 50, True),
    "one does not fall": (every(60, 100, 150, 20), every(60, 10, 20, 30), 50 + 20, 10 + 30, True),
    "to zero": (every(60, 100, 0, 0, 10), every(60, 100, 0, 0, 10), 10, 10, True),
    "with a gap": (every(60, 100, None, None, 20), every(60, 90, None, None, 10), 20, 10, True),
    "a gap alone": (every(60, 100, None, 150), every(60, 90, None, 120), 50, 30, False),
    "accepted comes later": (every(60, 10, 20, 30), every(60, None, 4, 9), 20, 9, False),
    "twice": (every(60, 9, 1, 2, 1), every(60, 9, 1, 2, 1), 1 + 1 + 1, 1 + 1 + 1, True),
}


@pytest.mark.parametrize("name", RESTARTS)
def test_a_restart_lets_every_series_of_its_process_count_from_zero(web: Web, name: str) -> None:
    drafts, accepted, counted, kept, noted = RESTARTS[name]
    server = Prometheus(web)
    server.add_counts(drafts, accepted)
    [told] = ask_history(f"{server.source}?range=10m&step=1m", now_s=NOW_S).telemetry
    assert (told.drafts, told.accepted) == (counted, kept)
    assert ("counters-reset" in [note.code for note in told.notes]) is noted


def test_one_engine_restarts_and_the_other_does_not(web: Web) -> None:
    server = Prometheus(web)
    server.add_counts(every(60, 100, 30), every(60, 100, 30), engine="0")
    server.add_counts(every(60, 100, 130), every(60, 100, 150), engine="1")
    [told] = ask_history(f"{server.source}?range=10m&step=1m", now_s=NOW_S).telemetry
    assert (told.drafts, told.accepted) == (60, 80)
    assert any("restarted once" in note.text for note in told.notes)


def test_models_are_kept_apart_and_instances_added(web: Web) -> None:
    server = Prometheus(web)
    for instance in ("a:8000", "b:8000"):
        server.add_counts(every(60, 10, 20), every(60, 10, 25), instance=instance)
    server.add_counts(every(60, 10, 110), every(60, 10, 210), model_name="other")
    history = ask_history(f"{server.source}?range=10m&step=1m", now_s=NOW_S)
    told = {one.model: (one.drafts, one.accepted) for one in history.telemetry}
    assert told == {"m": (20, 30), "other": (100, 200)}


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=2, max_size=30),
    st.integers(2, 12),
)
def test_nothing_is_lost_between_restarts(steps: list[tuple[int, bool]], parts: int) -> None:
    """Whatever is counted and however the range is cut, the parts add up to what a process counted."""
    value, counted, points = 1000, Fraction(0), [(0.0, 1000.0)]
    for index, (grown, restarts) in enumerate(steps, 1):
        value = grown if restarts else value + grown
        fell = value < points[-1][1]
        counted += value if fell else value - Fraction(points[-1][1])
        points.append((float(index), float(value)))
    series = {("a_total", frozenset({("engine", "0")})): points}
    edges = [len(steps) * index / parts for index in range(parts + 1)]
    found, _ = parts_of(series, edges)
    assert sum(sum(part.values()) for part in found) == counted


# ---------------------------------------------------------------- load


def test_load_over_time_is_seen(web: Web) -> None:
    server = Prometheus(web)
    drafts = every(HOUR_S, *[100 * i for i in range(25)])
    accepted = every(HOUR_S, *[100 * i if i < 12 else 1200 + 200 * (i - 12) for i in range(25)])
    server.add_counts(drafts, accepted)
    running = [0.0, 4.0] + [4.0] * 11 + [60.0] * 12
    server.add("vllm:num_requests_running", every(HOUR_S, *running))
    history = ask_history(f"{server.source}?range=1d&step=1h", now_s=NOW_S)
    [told] = history.telemetry
    assert (told.drafts, told.accepted) == (2400, 3600)
    assert told.load.running == pytest.approx((12 * 4 + 12 * 60) / 24), "the hour without any is left out"
    assert told.load.running_p95 == 60
    [varies] = [note for note in told.notes if note.code == "load-varies"]
    assert varies.text == (
        "over intervals of 1 h: running batch from 4 to 60 and acceptance length from 2 to 3"
    )
    assert len(history.intervals) == PARTS


def test_a_steady_load_is_not_worth_a_note(web: Web) -> None:
    server = Prometheus(web)
    server.add_counts(every(HOUR_S, 0, 10, 20), every(HOUR_S, 0, 20, 40))
    server.add("vllm:num_requests_running", every(HOUR_S, 8, 8, 8, 9, 10))
    history = ask_history(f"{server.source}?range=1d&step=1h", now_s=NOW_S)
    assert history.telemetry[0].notes == ()
    assert len(history.intervals) == 2, "those in which anything was drafted"


def test_gauges_are_means_over_time(web: Web) -> None:
    labels = {"engine_type": "unified", "tp_rank": "0"}
    server = Prometheus(web)
    idle = [0.0] * 30
    server.add("sglang:spec_accept_length", every(60, *idle, 2, 3), **labels)
    server.add("sglang:num_running_reqs", every(60, *idle, 10, 20), **labels)
    server.add("sglang:token_usage", every(60, *idle, 0.4, 0.56), **labels)
    [told] = ask_history(f"{server.source}?range=1h&step=1m", now_s=NOW_S).telemetry
    assert (told.engine, told.acceptance_length, told.load.running) == ("sglang", 2.5, 15)
    assert told.load.running_p95 == 20, "of the time in which any ran"
    assert told.load.cache_usage == pytest.approx(0.03), "a cache is empty while idle"


def test_samples_without_a_value_are_none() -> None:
    told = [[1, "+Inf"], [2, "NaN"], [3, "-1"], [4, "7"], [float("inf"), "1"], [5], "xy", None]
    assert list(_points(told)) == [(4.0, 7.0)]


@pytest.mark.parametrize("prefix", ["llamacpp:", "trtllm_", "lmdeploy:", "vllm_", "ray_vllm_"])
def test_other_engines_are_asked_for_too(web: Web, prefix: str) -> None:
    server = Prometheus(web)
    for name, factor in (("num_drafts", 1), ("num_draft_tokens", 2), ("num_accepted_tokens", 1)):
        server.add(f"{prefix}spec_decode_{name}_total", every(60, 0, 100 * factor))
    [told] = ask_history(f"{server.source}?range=10m&step=1m", now_s=NOW_S).telemetry
    assert (told.drafted, told.accepted) == (200, 100)


# ---------------------------------------------------------------- what is asked


def test_a_long_range_takes_several_queries_that_do_not_overlap(web: Web) -> None:
    server = Prometheus(web)
    points: Values = [(NOW_S - 60 * i, float(3000 - i)) for i in reversed(range(3001))]
    server.add_counts(points, points)
    done: list[tuple[int, int]] = []
    source = f'{server.source}/prom/api/v1/?range=50h&step=1m&match=model_name="m",job=vllm'
    web.on("/prom/api/v1/query_range", server.answer)
    [told] = ask_history(source, now_s=NOW_S, progress=lambda i, n: done.append((i, n))).telemetry
    assert (told.drafts, told.accepted) == (3000, 3000)
    assert len(server.asked) == 3
    assert done == [(0, 3), (1, 3), (2, 3), (3, 3)]
    ends = [float(query["end"]) for query in server.asked]
    starts = [float(query["start"]) for query in server.asked]
    assert [later - sooner for sooner, later in zip(ends, starts[1:], strict=False)] == [60, 60]
    assert (starts[0], ends[-1]) == (NOW_S - 50 * HOUR_S, NOW_S)
    assert server.asked[0]["query"].endswith(',model_name="m",job="vllm"}')


def test_every_series_that_readers_use_is_asked_for() -> None:
    """The samples hold what engines serve; what the query leaves out changes no figure."""
    samples = Path(__file__).with_name("data")
    for path in sorted(samples.glob("engine_samples*/*metrics*.txt")):
        whole = parse_exposition(path.read_text(encoding="utf-8"))
        asked = tuple(one for one in whole.samples if re.fullmatch(_QUERY, one.name))
        if not any("spec" in one.name for one in asked):
            continue
        [told] = read_scrape(Exposition(samples=asked))
        [full] = read_scrape(Exposition(samples=whole.samples))
        assert (told.drafts, told.drafted, told.accepted_at) == (full.drafts, full.drafted, full.accepted_at)
        assert told.steps == full.steps, path.name
        assert told.load.running == full.load.running, path.name
        assert told.load.step_s == full.load.step_s, path.name


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("prometheus:http://h?range=2", "range= must be a time as 14d"),
        ("prometheus:http://h?range=0s", "range= must be above 0"),
        ("prometheus:http://h?range=20y", "at most 10y"),
        ("prometheus:http://h?range=1d&step=1s", "range over step must be from 1 to 11,000, got 86400"),
        ("prometheus:http://h?range=1m&step=1h", "range over step must be from 1"),
        (
            "prometheus:http://h?rnage=2d",
            "unknown option 'rnage'; prometheus:URL takes range, step, end, match",
        ),
        ("prometheus:http://h?match=a", "match= takes matchers as"),
        ('prometheus:http://h?match=a="b"}) or up', "match= takes matchers as"),
        ('prometheus:http://h?match=a="b"xc="d"', "match= takes matchers as"),
        ("prometheus:http://h?end=tomorrow", "end= must be a time as"),
        ("prometheus:", "is no address"),
        ("prometheus:file:///etc/passwd", "is no address"),
        ("prometheus:http://h:port", "is no address"),
    ],
)
def test_what_cannot_be_asked(source: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        ask_history(source)


def test_sources_as_people_write_them() -> None:
    plain = parse_range("prometheus:http://h:9090", NOW_S)
    assert (plain.url, plain.end_s - plain.start_s, plain.step_s) == ("http://h:9090", 86_400, 87)
    for source in (
        "prometheus:h:9090/prom",
        "prometheus://h:9090/prom/",
        "prometheus:http://h:9090/prom/api/v1",
    ):
        assert parse_range(source, NOW_S).url == "http://h:9090/prom"
    ends = ("2026-05-28T20:26:40", "2026-05-28T22:26:40+02:00", "1780000000")
    for end in ends:
        asked = parse_range(f"prometheus:h?range=1h30m&step=90s&end={end.replace('+', '%2B')}", 0)
        assert (asked.end_s, asked.start_s, asked.step_s) == (NOW_S, NOW_S - 5400, 90)
    asked = parse_range('prometheus:h?match={a="x",b=~"y.*"}&match=c!=z', NOW_S)
    assert asked.matchers == 'a="x",b=~"y.*",c!="z"'
    assert "secret" not in parse_range("prometheus:http://me:secret@h", NOW_S).shown


# ---------------------------------------------------------------- what goes wrong

ERROR = {"status": "error", "errorType": "bad_data", "error": "exceeded maximum resolution"}
ANSWERS: dict[str, tuple[Any, int, type[SpecmathError], str]] = {
    "an error": (
        ERROR,
        400,
        DataError,
        "Prometheus refuses the query: exceeded maximum resolution; change range",
    ),
    "an error with 200": (ERROR, 200, DataError, "Prometheus refuses the query"),
    "nothing": ({"status": "success", "data": {"result": []}}, 200, DataError, "has no series of a serving"),
    "no Prometheus": ({"a": 1}, 200, DataError, "is no Prometheus server; give its base URL"),
    "a web page": ("<html>", 200, DataError, "is no Prometheus server"),
    "404": ("", 404, AccessError, "answers 404"),
    "401": ("", 401, AccessError, "set SPECMATH_BEARER_TOKEN"),
    "502": ("bad gateway", 502, AccessError, "answers 502, which means that the server failed"),
    "no samples": (
        {"status": "success", "data": {"result": [{"metric": {"__name__": "a"}, "values": [[1, "NaN"]]}]}},
        200,
        DataError,
        "has no series of a serving engine",
    ),
    "no lists": (
        {
            "status": "success",
            "data": {"result": [{"metric": 3, "values": 4}, {"values": [3, [], ["x", "y"]]}]},
        },
        200,
        DataError,
        "has no series of a serving engine",
    ),
    "another's": (
        {
            "status": "success",
            "data": {"result": [{"metric": {"__name__": "up"}, "values": [[NOW_S - 9, "1"], [NOW_S, "1"]]}]},
        },
        200,
        DataError,
        "is none of the formats known",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_fault_is_one_line(web: Web, name: str) -> None:
    answer, status, kind, words = ANSWERS[name]
    web.serve("/api/v1/query_range", answer, status)
    with pytest.raises(kind) as caught:
        ask_history(f"prometheus:{web.url}?range=1h", now_s=NOW_S)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{web.url} over 1 h: "), "without the query"
    assert "\n" not in str(caught.value)


def test_a_slow_server_is_left(web: Web) -> None:
    web.drip("/api/v1/query_range", b"HTTP/1.0 200 OK\r\n\r\n")
    with pytest.raises(AccessError, match="not complete after"):
        ask_history(f"prometheus:{web.url}", limits=Limits(total_s=0.2))


@settings(deadline=None)
@given(st.data())
def test_answers_of_any_shape_are_read_or_refused(data: st.DataObject) -> None:
    leaf = st.none() | st.booleans() | st.floats() | st.text(max_size=5)
    document = data.draw(
        st.recursive(
            leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner)
        )
    )
    reply = Reply(address=Address("http://h"), status=200, body=json.dumps(document).encode())
    asked = parse_range("prometheus:http://h", NOW_S)
    with suppress(DataError):
        _data(reply, asked)
    for moment, value in _points(document):
        assert moment == moment
        assert value >= 0


@pytest.mark.parametrize("typed", ["http://127.0.0.1:99999", "file:///etc/passwd", "http://", "http://["])
def test_an_address_that_is_none_is_shown_as_it_was_typed(typed: str) -> None:
    with pytest.raises(InputError, match=re.escape(typed) + ".* is no address") as caught:
        parse_range(f"prometheus:{typed}", now_s=0)
    assert "query" not in str(caught.value)
