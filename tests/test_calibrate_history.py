"""A synthetic month of metrics from known constants, served by a real web server, and what it tells."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from calibrate.history import calibrate_history
from calibrate.history_points import LEAST_STEPS, MIXED, RESTART, step_points
from specmath.arm_fits import ArmFit
from specmath.calibration_files import read_calibration, write_calibration
from specmath.calibrations import MeasuredRuns
from specmath.engines.fetching import Limits
from specmath.engines.history import Interval, ask_intervals
from specmath.engines.telemetry import Load, Telemetry
from specmath.errors import AccessError, DataError, InputError, SpecmathError

if TYPE_CHECKING:
    from tests.conftest import Web

NOW_S = 1_780_000_000.0
DAY_S = 86_400.0
STEP_S = 1800.0


@dataclass(frozen=True, kw_only=True)
class Truth:
    """A step of `fixed_s + per_request_s·running + per_token_s·prefill`."""

    fixed_s: float
    per_request_s: float
    per_token_s: float = 20e-6
    length: float = 1.0

    def step_s(self, running: float, prefill: float = 0.0) -> float:
        return self.fixed_s + self.per_request_s * running + self.per_token_s * prefill

    @property
    def constants(self) -> tuple[float, float, float]:
        return self.fixed_s, self.per_request_s, self.per_token_s


PLAIN = Truth(fixed_s=6e-3, per_request_s=40e-6)
ON: dict[int, Truth] = {
    1: Truth(fixed_s=6.8e-3, per_request_s=70e-6, length=1.7),
    3: Truth(fixed_s=7.6e-3, per_request_s=110e-6, length=2.5),
    5: Truth(fixed_s=8.4e-3, per_request_s=150e-6, length=2.9),
}
TRUTHS = {0: PLAIN, **ON}


@dataclass
class Server:
    """Counters of a vLLM that is restarted whenever its k changes; a Prometheus samples them.

    Attributes:
        k_of: k on a day, 0 without speculation; None while nothing runs.
        days: How long.
        noise: Relative standard deviation of the step.
        prompts: Prompt tokens per step from the running requests and a random share.
        base: Running requests at night.
    """

    k_of: Callable[[float], int | None]
    days: int = 30
    noise: float = 0.02
    prompts: Callable[[float, float], float] = lambda running, share: 200 * share
    base: float = 4.0
    labels: dict[str, str] = field(default_factory=lambda: {"model_name": "m", "instance": "a:8000"})
    seed: int = 20_261
    total: dict[str, float] = field(default_factory=dict)
    series: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng, was = random.Random(self.seed), self.k_of(0.0)
        for index in range(int(self.days * DAY_S / STEP_S)):
            day = index * STEP_S / DAY_S
            k = self.k_of(day)
            if k != was:
                self.total, was = {}, k
            busy = random.Random(self.seed + int(day)).uniform(0.6, 1.0) * rng.uniform(0.95, 1.0)
            running = self.base + 50 * busy * (0.5 - 0.5 * math.cos(2 * math.pi * day))
            share, error = rng.random(), rng.gauss(0, self.noise)
            if k is not None:
                self._run(k, running, self.prompts(running, share), error)
            for name, value in self.total.items():
                moment = NOW_S - self.days * DAY_S + (index + 1) * STEP_S
                self.series.setdefault(name, []).append((moment, value))

    def _run(self, k: int, running: float, prefill: float, error: float) -> None:
        truth = TRUTHS[k]
        step_s = truth.step_s(running, prefill) * (1 + error)
        iterations = STEP_S / step_s
        first = iterations * running * 0.005
        steps = iterations * running - first
        for name, grown in {
            "iteration_tokens_total_count": iterations,
            "inter_token_latency_seconds_count": steps,
            "inter_token_latency_seconds_sum": steps * step_s,
            "time_to_first_token_seconds_count": first,
            "generation_tokens_total": steps * truth.length + first,
            "prompt_tokens_total": prefill * iterations,
        }.items():
            self._add(name, grown)
        if k:
            self._add("spec_decode_num_drafts_total", steps)
            self._add("spec_decode_num_draft_tokens_total", steps * k)
            self._add("spec_decode_num_accepted_tokens_total", steps * (truth.length - 1))
            for place in range(k):
                accepted = steps * (truth.length - 1) / k
                self._add(f"spec_decode_num_accepted_tokens_per_pos_total {place}", accepted)

    def _add(self, name: str, grown: float) -> None:
        self.total[name] = self.total.get(name, 0.0) + grown

    def rows(self) -> Iterator[dict[str, Any]]:
        for name, points in self.series.items():
            short, _, place = name.partition(" ")
            position = {"position": place} if place else {}
            metric = {"__name__": f"vllm:{short}", **self.labels, **position}
            yield {"metric": metric, "values": [[moment, str(value)] for moment, value in points]}


def asked(web: Web, *servers: Server, days: int = 30) -> str:
    """A Prometheus with the series of these servers, as a source."""
    rows = [row for server in servers for row in server.rows()]

    def answer(handler: BaseHTTPRequestHandler) -> None:
        query = {key: value[0] for key, value in parse_qs(urlsplit(handler.path).query).items()}
        found = re.match(r'\{__name__=~"(.*?)"', query["query"])
        assert found is not None
        wanted, start_s, end_s = re.compile(found[1]), float(query["start"]), float(query["end"])
        result = [
            {**row, "values": [point for point in row["values"] if start_s <= point[0] <= end_s]}
            for row in rows
            if wanted.fullmatch(row["metric"]["__name__"])
        ]
        web.serve("/now", {"status": "success", "data": {"resultType": "matrix", "result": result}})
        web.actions["/now"](handler)

    web.on("/api/v1/query_range", answer)
    return f"prometheus:{web.url}?range={days}d&step=30m"


def arm_of(found: MeasuredRuns, k: int) -> ArmFit:
    [arm] = [arm for arm in found.arms if arm.k == (k or None)]
    return arm


def fitted(arm: ArmFit) -> list[tuple[float, float | None]]:
    """The constants with their standard errors, in the order of `Truth.constants`."""
    return [
        (arm.fixed_s, arm.fixed_error_s),
        (arm.s_per_request, arm.error_per_request),
        (arm.s_per_prefill_token, arm.error_per_prefill_token),
    ]


def codes(found: MeasuredRuns) -> list[str]:
    return [note.code for note in found.warnings]


def off_on_day(off: int, k: int = 3) -> Callable[[float], int]:
    return lambda day: 0 if off <= day < off + 1 else k


# ---------------------------------------------------------------- both arms


@pytest.mark.parametrize("seed", range(5))
def test_a_month_with_a_day_off_gives_the_constants_of_both_arms(web: Web, seed: int) -> None:
    source = asked(web, Server(off_on_day(12), seed=seed))
    found = calibrate_history(source, now_s=NOW_S)
    for k, truth in ((0, PLAIN), (3, ON[3])):
        arm = arm_of(found, k)
        for (value, error), true in zip(fitted(arm), truth.constants, strict=True):
            assert error is not None
            assert abs(value - true) < 3 * error, (k, true)
            assert error < 0.3 * true
        assert arm.acceptance_length == pytest.approx(truth.length, rel=1e-9)
        assert 0.003 < arm.error < 0.02
        assert 0.003 < arm.left_out_error < 0.025
    assert arm_of(found, 0).intervals == 23
    assert arm_of(found, 3).intervals in range(690, 696)
    assert found.origin == "history"
    assert found.machine["model"] == "m"
    assert "context-unknown" in codes(found)


def test_pairs_stand_at_batches_that_both_arms_saw(web: Web) -> None:
    found = calibrate_history(asked(web, Server(off_on_day(12))), context=700, now_s=NOW_S)
    low = max(arm.running_low for arm in found.arms)
    high = min(arm.running_high for arm in found.arms)
    assert [pair.batch for pair in found.runs] == sorted({pair.batch for pair in found.runs})
    assert len(found.runs) >= 4
    for pair in found.runs:
        assert low - 0.5 <= pair.batch <= high + 0.5
        assert (pair.k, pair.context) == (3, 700)
        assert pair.acceptance_length == pytest.approx(2.5, rel=1e-9)
        assert pair.plain_step_s == pytest.approx(PLAIN.step_s(pair.batch), rel=0.05), "no prefill in it"
        assert pair.step_s == pytest.approx(ON[3].step_s(pair.batch), rel=0.05)
        true = ON[3].step_s(pair.batch) / PLAIN.step_s(pair.batch)
        assert pair.in_plain_steps == pytest.approx(true, rel=0.05)
    assert not {"one-arm", "context-unknown"} & set(codes(found))
    assert "prefill-in-pairs" not in codes(found)


def test_the_intervals_of_a_restart_are_left_out_and_counted(web: Web) -> None:
    found = calibrate_history(asked(web, Server(off_on_day(12))), now_s=NOW_S)
    [note] = [note for note in found.warnings if note.code == "intervals-left-out"]
    assert "2 with a restart" in note.text


def test_prefill_that_goes_with_the_load_stays_in_both_arms(web: Web) -> None:
    """Some five prefilled tokens for each running request: how much either costs is hardly told."""
    server = Server(off_on_day(12), prompts=lambda running, share: 5 * running * (1 + 0.1 * share))
    found = calibrate_history(asked(web, server), now_s=NOW_S)
    [note] = [note for note in found.warnings if note.code == "prefill-in-pairs"]
    matched = re.search(r"hold (\S+) prefilled tokens", note.text)
    assert matched is not None
    prefill = float(matched[1])
    middle = min(found.runs, key=lambda pair: abs(5 * pair.batch - prefill))
    true = [truth.step_s(middle.batch, prefill) for truth in (PLAIN, ON[3])]
    assert (middle.plain_step_s, middle.step_s) == pytest.approx(true, rel=0.03)


def test_what_the_points_do_not_tell_makes_no_pair(web: Web) -> None:
    """Prefill that is always five tokens per request: the steps at other shares are not known at all."""
    server = Server(off_on_day(12), prompts=lambda running, share: 5 * running)
    found = calibrate_history(asked(web, server), now_s=NOW_S)
    [note] = [note for note in found.warnings if note.code == "unknown-pairs"]
    assert "make no pair" in note.text
    batches = {pair.batch for pair in found.runs}
    assert not batches & {int(text) for text in re.findall(r"\d+(?=[, ])", note.text.partition("batch")[2])}
    assert found.arms[0].error < 0.03, "the fit itself holds"


def test_a_wild_interval_has_no_say(web: Web) -> None:
    """In each twelfth interval half of the steps take three times as long, of a stall that is no load."""
    server = Server(off_on_day(12))
    source = asked(web, server)
    quiet = arm_of(calibrate_history(source, now_s=NOW_S), 3)
    sums = server.series["inter_token_latency_seconds_sum"]
    added = 0.0
    for index, (moment, value) in enumerate(list(sums)):
        before = sums[index - 1][1] - added if index else 0.0
        if index % 23 == 6 and value > before:
            added += 2 * (value - before)
        if index and value < before:
            added = 0.0
        sums[index] = (moment, value + added)
    stalled = arm_of(calibrate_history(asked(web, server), now_s=NOW_S), 3)
    assert stalled.fixed_s == pytest.approx(quiet.fixed_s, rel=0.003)
    assert stalled.s_per_request == pytest.approx(quiet.s_per_request, rel=0.005)
    assert stalled.s_per_prefill_token == pytest.approx(quiet.s_per_prefill_token, rel=0.01)


# ---------------------------------------------------------------- several k, one arm, no common load


def test_each_k_has_its_own_fit_and_they_make_a_line(web: Web) -> None:
    """Nine days each of k = 1, 3, 5 and three without: a step of 6 + 0.8k ms and 40 + … µs a request."""
    server = Server(lambda day: (1, 3, 5)[int(day // 9)] if day < 27 else 0)
    found = calibrate_history(asked(web, server), now_s=NOW_S)
    assert {arm.k for arm in found.arms} == {None, 1, 3, 5}
    for k, truth in ON.items():
        assert arm_of(found, k).acceptance_length == pytest.approx(truth.length, rel=1e-9)
    batches = {pair.batch for pair in found.runs}
    assert len(found.runs) == 3 * len(batches), "the same batches for each k"
    assert sorted(line.batch for line in found.lines) == sorted(batches)
    for line in found.lines:
        true = [truth.step_s(line.batch) for truth in (ON[1], ON[3])]
        slope = (true[1] - true[0]) / 2
        assert line.slope_s == pytest.approx(slope, rel=0.15)
        assert line.intercept_s == pytest.approx(true[0] - slope, rel=0.05)
        assert line.worst_left_out is not None
        assert line.worst_left_out < 0.05
    [note] = [note for note in found.warnings if note.code == "several-k"]
    assert note.text.startswith("k was 1, 3, 5 in turn")


def test_a_k_of_a_few_hours_is_named_and_not_used(web: Web) -> None:
    server = Server(lambda day: 0 if 12 <= day < 13 else 5 if 20 <= day < 20.3 else 3)
    found = calibrate_history(asked(web, server), now_s=NOW_S)
    assert {pair.k for pair in found.runs} == {3}
    [note] = [note for note in found.warnings if note.code == "several-k"]
    assert "k was 3, 5 in turn" in note.text
    assert "k = 5 ran too briefly" in note.text


@pytest.mark.parametrize("k", [0, 3])
def test_one_arm_alone_is_fitted_and_makes_no_pair(web: Web, k: int) -> None:
    found = calibrate_history(asked(web, Server(lambda _: k)), now_s=NOW_S)
    assert not found.runs
    assert not found.lines
    [arm] = found.arms
    for (value, error), true in zip(fitted(arm), TRUTHS[k].constants, strict=True):
        assert error is not None
        assert abs(value - true) < 3 * error
    [note] = found.warnings
    assert note.code == "one-arm"
    told = "speculation was never on" if k == 0 else "speculation was never off"
    assert note.text.startswith(told)
    assert f"switch speculation {'on' if k == 0 else 'off'} for a day" in note.remedy


def test_off_for_too_few_hours_is_one_arm_and_says_so(web: Web) -> None:
    server = Server(lambda day: 0 if 12.5 <= day < 12.7 else 3)
    found = calibrate_history(asked(web, server), now_s=NOW_S)
    assert found.runs == ()
    [note] = [note for note in found.warnings if note.code == "one-arm"]
    assert re.match(r"speculation was never off for 8 intervals \(for [234] it was\)", note.text)


def test_arms_that_saw_other_loads_make_no_pair(web: Web) -> None:
    """Off at night alone, and on when 30 more ran."""
    night = Server(lambda _: 0, base=2, days=30)
    night.series = {
        name: [(moment - 15 * DAY_S, value) for moment, value in points]
        for name, points in night.series.items()
    }
    busy = Server(lambda day: None if day < 16 else 3, base=70)
    found = calibrate_history(asked(web, night, replace_instance(busy)), now_s=NOW_S)
    assert found.runs == ()
    [note] = [note for note in found.warnings if note.code == "no-common-batch"]
    assert "with k = 3 " in note.text


def replace_instance(server: Server) -> Server:
    server.labels = {**server.labels, "instance": "b:8000"}
    return server


# ---------------------------------------------------------------- intervals


COUNTS = Telemetry(
    engine="vllm",
    scope="difference",
    k=3,
    drafts=1e6,
    drafted=3e6,
    accepted=1.5e6,
    steps=1e6,
    load=Load(running=10.0, step_s=8e-3, prompt_tokens=5e5, prefix_queries=5e5, prefix_hits=3e5),
)


def interval(record: Telemetry, restarts: int = 0) -> Interval:
    return Interval(start_s=0.0, end_s=3600.0, telemetry=record, restarts=restarts)


def test_a_point_is_the_mean_step_of_an_interval() -> None:
    """1e6 steps of 10 requests are 1e5 steps of the engine, with 2e5 prompt tokens computed."""
    [point], left_out = step_points([interval(COUNTS)])
    assert (point.k, point.running, point.prefill, point.step_s) == (3, 10.0, 2.0, 8e-3)
    assert (point.acceptance_length, point.middle_s) == (2.5, 1800.0)
    assert not left_out


def test_a_time_per_token_becomes_a_step_by_the_acceptance_length() -> None:
    load = replace(COUNTS.load, step_s=None, time_per_token_s=4e-3)
    [point], _ = step_points([interval(replace(COUNTS, load=load))])
    assert point.step_s == pytest.approx(10e-3, rel=1e-12)
    off = replace(COUNTS, k=None, drafts=None, drafted=None, accepted=None, load=load)
    [plain], _ = step_points([interval(off)])
    assert (plain.k, plain.step_s, plain.acceptance_length) == (0, 4e-3, 1.0)


def test_steps_without_a_draft_yield_one_token() -> None:
    """Half of the steps draft and accept 1.5: E is 1.75 over all of them."""
    [point], _ = step_points([interval(replace(COUNTS, steps=2e6))])
    assert point.acceptance_length == 1.75


LACKING: dict[str, tuple[Interval, str]] = {
    "a restart": (interval(COUNTS, restarts=1), RESTART),
    "few steps": (interval(replace(COUNTS, steps=LEAST_STEPS - 1.0)), "with too few steps"),
    "no step time": (
        interval(replace(COUNTS, load=replace(COUNTS.load, step_s=None))),
        "without step time or running requests",
    ),
    "an impossible step time": (
        interval(replace(COUNTS, load=replace(COUNTS.load, step_s=1e9))),
        "without step time or running requests",
    ),
    "no batch": (
        interval(replace(COUNTS, load=replace(COUNTS.load, running=None))),
        "without step time or running requests",
    ),
    "no k": (interval(replace(COUNTS, k=None)), "whose k is not told"),
    "half without drafts": (interval(replace(COUNTS, drafts=5e5)), MIXED),
    "half at another k": (interval(replace(COUNTS, drafted=2e6)), MIXED),
}


@pytest.mark.parametrize("name", LACKING)
def test_an_interval_that_lacks_something_is_counted(name: str) -> None:
    strange, reason = LACKING[name]
    points, left_out = step_points([interval(COUNTS), interval(COUNTS), strange])
    assert (len(points), left_out) == (2, {reason: 1})


def test_k_may_be_given_where_no_series_tells_it() -> None:
    [point], _ = step_points([interval(replace(COUNTS, k=None))], 4)
    assert point.k == 4


def test_intervals_are_as_many_as_samples_allow(web: Web) -> None:
    source = asked(web, Server(off_on_day(1), days=4), days=4)
    found = ask_intervals(source, most=1000, now_s=NOW_S)
    assert len(found) == 4 * 24
    assert sum(one.restarts for one in found) == 2
    assert all(one.end_s - one.start_s == 2 * STEP_S for one in found)
    assert len(ask_intervals(source, most=10, now_s=NOW_S)) == 10


# ---------------------------------------------------------------- what goes wrong


def test_several_models_are_not_mixed(web: Web) -> None:
    other = Server(lambda _: 3, days=2, labels={"model_name": "other", "instance": "b:8000"})
    with pytest.raises(
        DataError, match=r"holds several models \(vllm with 'm', vllm with 'other'\); name one"
    ):
        calibrate_history(asked(web, Server(lambda _: 3, days=2), other, days=2), now_s=NOW_S)


def test_too_short_a_time_is_refused_with_what_was_left_out(web: Web) -> None:
    source = asked(web, Server(lambda day: 3 if day < 0.2 else 0, days=1), days=1).replace("1d", "9h")
    with pytest.raises(DataError) as caught:
        calibrate_history(source, now_s=NOW_S - DAY_S / 2)
    assert re.search(
        r"has \d intervals to draw a step from, of 8 at least \(.*left out\); ask", str(caught.value)
    )


ANSWERS: dict[str, tuple[Any, int, type[SpecmathError], str]] = {
    "a refusal": (
        {"status": "error", "error": "too long"},
        400,
        DataError,
        "Prometheus refuses the query: too",
    ),
    "nothing": ({"status": "success", "data": {"result": []}}, 200, DataError, "has no series of a serving"),
    "another's series": (
        {
            "status": "success",
            "data": {"result": [{"metric": {"__name__": "up"}, "values": [[NOW_S - 9, "1"], [NOW_S, "2"]]}]},
        },
        200,
        DataError,
        "tells nothing of a serving engine",
    ),
    "values of no kind": (
        {"status": "success", "data": {"result": [{"metric": 3, "values": {"a": [1]}}]}},
        200,
        DataError,
        "has no series of a serving engine",
    ),
    "a web page": ("<html>", 200, DataError, "is no Prometheus server"),
    "an error of the server": ("", 503, AccessError, "answers 503"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer_is_one_line(web: Web, name: str) -> None:
    answer, status, kind, words = ANSWERS[name]
    web.serve("/api/v1/query_range", answer, status)
    with pytest.raises(kind) as caught:
        calibrate_history(f"prometheus:{web.url}?range=1h".replace("//", "//me:secret@"), now_s=NOW_S)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_impossible_counters_make_no_number(web: Web) -> None:
    """More accepted than drafted, and times of years."""
    server = Server(lambda _: 3, days=2)
    server.series["spec_decode_num_accepted_tokens_total"] = [
        (moment, 1e3 * value) for moment, value in server.series["spec_decode_num_accepted_tokens_total"]
    ]
    with pytest.raises(DataError):
        calibrate_history(asked(web, server, days=2), now_s=NOW_S)


def test_a_server_that_drips_is_left(web: Web) -> None:
    web.drip("/api/v1/query_range", b"HTTP/1.0 200 OK\r\n\r\n")
    with pytest.raises(AccessError, match=r"not complete after 0\.2 s"):
        calibrate_history(f"prometheus:{web.url}", limits=Limits(total_s=0.2))


def test_a_malformed_source_is_refused_before_anything_is_asked() -> None:
    with pytest.raises(InputError, match="range= must be a time as 14d"):
        calibrate_history("prometheus:http://h?range=2")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"k": 0}, "k: must be a whole number from 1 to 10000"),
        ({"k": 10_001}, "k: must be a whole number from 1 to 10000"),
        ({"context": -1.0}, "context: must be"),
        ({"context": 2e9}, "context: must be"),
        ({"context": math.nan}, "context: must be"),
    ],
)
def test_what_no_run_has_is_refused_before_anything_is_asked(
    web: Web, given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        calibrate_history(f"prometheus:{web.url}", **given)
    assert web.asked == []


def test_progress_is_told(web: Web) -> None:
    done: list[tuple[int, int]] = []
    source = asked(web, Server(off_on_day(12)))
    calibrate_history(source, now_s=NOW_S, progress=lambda i, n: done.append((i, n)))
    assert done == [(0, 2), (1, 2), (2, 2)]


# ---------------------------------------------------------------- what is kept


def test_both_arms_and_their_pairs_are_kept_in_a_file(web: Web, tmp_path: Path) -> None:
    found = calibrate_history(asked(web, Server(off_on_day(12))), now_s=NOW_S)
    path = tmp_path / "month.yaml"
    write_calibration(found, path)
    assert read_calibration(path) == found


def test_an_arm_tells_its_step_in_a_sentence() -> None:
    arm = ArmFit(
        k=3,
        acceptance_length=2.5,
        intervals=400,
        running_low=4,
        running_high=40,
        prefill=100,
        fixed_s=7.6e-3,
        s_per_request=110e-6,
        s_per_prefill_token=0.0,
        fixed_error_s=20e-6,
        error_per_request=1e-6,
        error=0.01,
        left_out_error=0.012,
    )
    assert arm.text == (
        "a step with k = 3, E = 2.5 takes 7.6 ms (±20 µs), 110 µs (±1 µs) per running request and 0 s per "
        "prefilled token; from 400 intervals at 4 to 40 running, which it misses by 1.2% left out"
    )
    assert replace(arm, k=None).text.startswith("a plain step takes 7.6 ms")
