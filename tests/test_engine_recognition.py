"""Which engine wrote it, from a path, stdin, text or stream; and what is said where none did."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from specmath.engines import reading, recognition
from specmath.engines.exposition import parse_exposition
from specmath.engines.recognition import engine_name, engines, formats, read_scrape, read_telemetry
from specmath.engines.spec_counts import require_possible
from specmath.engines.telemetry import SCOPES, Telemetry
from specmath.errors import AccessError, DataError, InputError, SpecmathError, UnknownNameError

SAMPLES = Path(__file__).parent / "data" / "engine_samples"
REAL = Path(__file__).parent / "data" / "engine_samples_real"
NO_OUTPUT = (
    "README.md",
    "expected.json",
    "sglang-0.5.23-adaptive-config.json",
    "trtllm-1.4-draft-len-schedule.yaml",
)
ENGINE_OF = {
    "vllm": "vllm",
    "llamacpp": "llama.cpp",
    "llama": "llama.cpp",
    "sglang": "sglang",
    "trtllm": "tensorrt-llm",
    "lmdeploy": "lmdeploy",
    "tgi": "tgi",
}
LINE = (
    "(APIServer pid=1) INFO 05-01 09:00:00 [metrics.py:100] SpecDecoding metrics:"
    " Mean acceptance length: 2.90, Accepted throughput: 475.00 tokens/s,"
    " Drafted throughput: 1000.00 tokens/s, Accepted: 4750 tokens, Drafted: 10000 tokens,"
    " Per-position acceptance rate: 0.760, 0.532, 0.362, 0.246, Avg Draft acceptance rate: 47.5%\n"
)


@pytest.mark.parametrize(
    "path", sorted([*SAMPLES.iterdir(), *REAL.iterdir()]), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_sample_is_recognised_as_its_engines(path: Path) -> None:
    if path.name in NO_OUTPUT:
        with pytest.raises(DataError, match=r"is none of the formats known|holds no measurement"):
            read_telemetry(path)
        return
    found = read_telemetry(path)
    assert {one.engine for one in found} == {ENGINE_OF[re.split("[-_]", path.name)[0]]}
    assert {one.scope for one in found} <= set(SCOPES)
    assert {one.source for one in found} == {str(path)}
    assert read_telemetry(path, engine=found[0].engine) == found


@pytest.mark.parametrize(
    "path", [*SAMPLES.glob("vllm*metrics*.txt"), *SAMPLES.glob("vllm*.json")], ids=lambda p: p.name
)
@pytest.mark.parametrize("change", ["crlf", "bom", "gzip", "utf-16", "text"])
def test_the_wrapping_does_not_matter(path: Path, change: str) -> None:
    text = path.read_text()
    content = {
        "crlf": text.replace("\n", "\r\n").encode(),
        "bom": text.encode("utf-8-sig"),
        "gzip": gzip.compress(text.encode()),
        "utf-16": text.encode("utf-16"),
    }
    source = io.BytesIO(content[change]) if change in content else text + "\n"
    assert read_telemetry(source, name="x") == read_telemetry(path, name="x")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_logs_in_any_encoding_with_colours(encoding: str) -> None:
    text = "\x1b[1;36m(APIServer pid=1)\x1b[0;0m caf\u00e9\n" + LINE.rstrip("\n") + "\x1b[0m\r\n" + LINE
    content = text.encode(encoding)
    if encoding == "utf-16-le":
        content = b"\xff\xfe" + content
    (telemetry,) = read_telemetry(io.BytesIO(content))
    assert (telemetry.drafts, telemetry.accepted) == (5000, 9500)
    assert telemetry.accepted_at == (3800, 2660, 1810, 1230)


def test_lines_have_no_ends_and_no_colours() -> None:
    with reading.opened("\x1b[1;36mone\x1b[0m\r\ntwo\n" + "x" * (reading.MAX_LINE + 3)) as content:
        assert list(content.lines()) == ["one", "two", "x" * reading.MAX_LINE, "xxx"]


def test_a_log_without_speculation_says_so() -> None:
    line = (
        "INFO Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 9.0 tokens/s,"
        " Running: 3 reqs, Waiting: 0 reqs\n"
    )
    (telemetry,) = read_telemetry(line)
    assert [note.code for note in telemetry.notes] == ["speculation-off"]
    assert [one.drafts for one in read_telemetry(line + LINE)] == [2500]


def test_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LINE.encode())))
    (telemetry,) = read_telemetry("-")
    assert (telemetry.drafts, telemetry.source) == (2500, "stdin")
    monkeypatch.setattr(sys, "stdin", io.StringIO(LINE * 500 + "\u4e2d" * 70_000))
    assert read_telemetry("-")[0].drafts == 2500 * 500
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(AccessError, match="is closed"):
        read_telemetry("-")


def test_two_scrapes(tmp_path: Path) -> None:
    earlier, later = (SAMPLES / f"vllm-0.13.0-dp2-metrics-{number}.txt" for number in (1, 2))
    (telemetry,) = read_telemetry(later, since=earlier)
    assert (telemetry.drafts, telemetry.accepted, telemetry.scope) == (5500, 8690, "difference")
    assert telemetry.source == f"{earlier} -> {later}"
    log = tmp_path / "a.log"
    log.write_text(LINE)
    with pytest.raises(InputError, match="since: goes with metrics alone"):
        read_telemetry(later, since=log)


def test_an_exposition_of_two_engines_tells_of_both() -> None:
    text = "".join(
        f'{prefix}spec_decode_num_drafts_total{{model_name="m"}} 5\n' for prefix in ("vllm:", "lmdeploy:")
    )
    assert [one.engine for one in read_telemetry(text)] == ["vllm", "lmdeploy"]
    assert [one.engine for one in read_scrape(parse_exposition(text), engine="lmdeploy")] == ["lmdeploy"]


def test_a_log_of_two_engines_tells_of_both() -> None:
    other = (SAMPLES / "sglang-0.5.23-server.log").read_text()
    found = read_telemetry(LINE + other + LINE)
    assert [one.engine for one in found] == ["vllm", "sglang"]
    assert found[0].drafts == 5000


def test_a_few_lines_of_metrics_are_metrics() -> None:
    text = "vllm:spec_decode_num_drafts_total 5\nvllm:spec_decode_num_draft_tokens_total 15\nnoise\n"
    (telemetry,) = read_telemetry(text + "vllm:spec_decode_num_accepted_tokens_total 7\n")
    assert telemetry.accepted == 7
    assert [note.code for note in telemetry.notes] == ["lines-left-out"]


RESPONSE = json.loads((SAMPLES / "vllm-0.29.0-per-request-summary.json").read_text())


def test_lines_of_json_and_event_streams() -> None:
    first, second = json.dumps(RESPONSE), json.dumps(RESPONSE | {"id": "b"})
    for text in (
        f"{first}\n{second}\n",
        f'data: {{"id": "b", "choices": []}}\n\ndata: {first}\n\ndata: {second}\n\ndata: [DONE]\n',
        f"event: x\ndata: {first}\n\ndata: {second}\n",
    ):
        (telemetry,) = read_telemetry(text)
        assert (telemetry.drafts, len(telemetry.requests), telemetry.notes) == (86, 2, ())


def test_a_cut_line_of_json_is_counted() -> None:
    whole = json.dumps(RESPONSE)
    (telemetry,) = read_telemetry(f"{whole}\n{whole[:90]}\n")
    assert telemetry.drafts == 43
    assert [note.code for note in telemetry.notes] == ["lines-left-out"]


def test_log_lines_wrapped_in_json_are_a_log() -> None:
    wrapped = json.dumps({"log": LINE, "stream": "stderr"})
    (telemetry,) = read_telemetry(f"{wrapped}\n{wrapped}\n")
    assert telemetry.drafts == 5000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("\n", "is empty", id="empty"),
        pytest.param("hello\nworld\n", "is none of the formats known: vllm, sglang", id="prose"),
        pytest.param("<!DOCTYPE html>\n<html>\n", "is a web page", id="a web page"),
        pytest.param("[]\n", "is an empty list", id="a drained list"),
        pytest.param('{"a": 1}\n', "is none of the formats known", id="someone else's JSON"),
        pytest.param("{oh\n", "is no JSON", id="broken JSON"),
        pytest.param("[" * 100_000 + "\n", "is nested too deeply", id="a tower of brackets"),
        pytest.param('{"a":' * 200 + "1" + "}" * 200 + "\n", "nested too deeply", id="200 objects"),
        pytest.param('{"a":' * 5_000 + "1" + "}" * 5_000 + "\n", "nested too deeply", id="objects"),
        pytest.param("# TYPE up gauge\nup 1\n", "is none of the formats known", id="another exporter"),
        pytest.param("# TYPE up gauge\n", "is none of the formats known", id="no sample"),
        pytest.param("a" * 200_000 + "\n\x1b[31m\n", "is none of the formats known", id="a long line"),
    ],
)  # fmt: skip
def test_what_is_no_engines_output(text: str, problem: str) -> None:
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        read_telemetry(text, name="a.txt")
    message = str(caught.value)
    assert message.startswith("a.txt: ")
    assert message.isprintable()
    assert len(message) < 400


def test_a_named_engine_is_the_only_one_asked() -> None:
    with pytest.raises(DataError, match="holds nothing of sglang; leave the engine out"):
        read_telemetry(LINE + LINE, engine="SGLang")
    with pytest.raises(UnknownNameError, match="unknown engine 'vlm'; nearest: vllm"):
        read_telemetry(LINE + LINE, engine="vlm")
    assert engine_name(" TRTLLM ") == "tensorrt-llm"
    assert {one.engine for one in formats()} == set(engines())


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        pytest.param(lambda place: place / "none.txt", "no such file", id="missing"),
        pytest.param(lambda place: place, "is a folder or device", id="a folder"),
        pytest.param(lambda place: "a\0b", "null", id="a NUL in the name"),
        pytest.param(lambda place: "/dev/zero", "is a folder or device", id="a device"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, make: Any, problem: str) -> None:
    with pytest.raises(AccessError, match=problem):
        read_telemetry(make(tmp_path))


def test_a_broken_stream_and_a_cut_archive() -> None:
    class Broken(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            raise OSError(5, "Input/output error")

    with pytest.raises(AccessError, match="input/output error"):
        read_telemetry(io.BufferedReader(Broken()))
    for content in (gzip.compress(LINE.encode() * 99)[:-20], b"\x1f\x8bnonsense"):
        with pytest.raises(DataError, match="is no whole gzip file"):
            read_telemetry(io.BytesIO(content))


def test_a_pipe_is_read() -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, LINE.encode())
    os.close(write_end)
    with os.fdopen(read_end, "rb") as stream:
        assert read_telemetry(stream)[0].drafts == 2500


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_WHOLE", 100_000)
    monkeypatch.setattr(reading, "MAX_LOG", 300_000)
    with pytest.raises(DataError, match="the most that is read of metrics or JSON"):
        read_telemetry("vllm:spec_decode_num_drafts_total 1\n" * 4000)
    bomb = gzip.compress(b"x" * 1_000_000)
    with pytest.raises(DataError, match="the most that is read of a log"):
        read_telemetry(io.BytesIO(bomb))


@pytest.mark.parametrize(
    ("block", "words"),
    [
        pytest.param("y\n", "tells nothing of speculation in its first", id="noise"),
        pytest.param("y", "tells nothing of speculation in its first", id="noise of one line"),
        pytest.param(LINE + "noise\n" * 400, "the most that is read of a log", id="a log"),
    ],
)
def test_stdin_without_an_end_is_left(monkeypatch: pytest.MonkeyPatch, block: str, words: str) -> None:
    """What tells nothing for long is refused soon; a log may go on to its own limit."""
    monkeypatch.setattr(recognition, "MAX_UNKNOWN", 200_000)
    monkeypatch.setattr(reading, "MAX_LOG", 3_000_000)
    content = (block * 4000)[:8000].encode()
    stdin = Endless(1_000_000, content)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(stdin, len(content))))
    with pytest.raises(DataError, match=words):
        read_telemetry("-")
    assert 1_000_000 - stdin.left < (1000 if block.startswith(LINE) else 100)


def test_a_file_may_begin_with_much_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognition, "MAX_UNKNOWN", 100_000)
    file = io.BytesIO(("noise \n" * 20_000 + LINE).encode())
    assert read_telemetry(file)[0].drafts == 2500


class Endless(io.RawIOBase):
    """A log of `blocks` blocks that exists nowhere."""

    def __init__(self, blocks: int, block: bytes) -> None:
        self.left, self.block = blocks, block

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.left:
            return 0
        self.left -= 1
        buffer[: len(self.block)] = self.block
        return len(self.block)


@pytest.mark.parametrize(
    ("block", "drafts"),
    [
        pytest.param((LINE + "noise " * 2 + "\n") * 24, 2500 * 24 * 1500, id="many lines"),
        pytest.param("x" * 8000, None, id="one line"),
    ],
)
def test_a_long_log_is_read_in_constant_memory(block: str, drafts: float | None) -> None:
    """Twelve megabytes and more pass through; what is held at a time may not reach two."""
    content = block.encode()
    stream = io.BufferedReader(Endless(1500, content), len(content))
    tracemalloc.start()
    if drafts is None:
        with pytest.raises(DataError, match="none of the formats"):
            read_telemetry(stream)
    else:
        (telemetry,) = read_telemetry(stream, engine="vllm")
        assert telemetry.drafts == drafts
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


# Counts that no engine can have

POSSIBLE = Telemetry(
    engine="vllm", scope="typed", model="m", drafts=10, drafted=30, accepted=12, accepted_at=(8, 3, 1)
)


def test_possible_counts_pass() -> None:
    assert require_possible(POSSIBLE) is POSSIBLE
    require_possible(Telemetry(engine="tgi", scope="typed"))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"accepted": 40}, "more draft tokens were accepted than drafted, 40 against 30"),
        ({"drafts": 50}, "more drafts than draft tokens"),
        ({"accepted_at": (13, 3)}, "more drafts reached a position than the one before it, 13 against 10"),
        ({"accepted_at": (5, 8)}, "8 against 5"),
    ],
)
def test_impossible_counts_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        require_possible(replace(POSSIBLE, **change))
    assert "model 'm'" in str(caught.value)


def test_impossible_scrapes_are_refused() -> None:
    text = "vllm:spec_decode_num_draft_tokens_total 10\nvllm:spec_decode_num_accepted_tokens_total 90\n"
    with pytest.raises(DataError, match="more draft tokens were accepted"):
        read_telemetry(text)


# Hostile input


def contents() -> Iterator[bytes]:
    for path in sorted([*SAMPLES.iterdir(), *REAL.glob("*.log")]):
        yield path.read_bytes()[:6000]


CONTENT = st.sampled_from(list(contents()))


@settings(max_examples=200, deadline=None)
@given(CONTENT, CONTENT, st.data())
def test_cut_mixed_and_garbled_sources_are_read_or_refused(
    first: bytes, second: bytes, data: st.DataObject
) -> None:
    start, end = data.draw(st.integers(0, len(first))), data.draw(st.integers(0, len(second)))
    content = first[start:] + data.draw(st.binary(max_size=20)) + second[:end]
    try:
        found = read_telemetry(io.BytesIO(content), name="x")
    except SpecmathError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert str(error).isprintable()  # noqa: PT017
    else:
        assert found
        assert {one.scope for one in found} <= set(SCOPES)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with pytest.raises(SpecmathError):
        read_telemetry(io.BytesIO(content))


def test_a_pipe_that_nobody_writes_to_ends_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="is empty"):
        read_telemetry(tmp_path / "pipe")
