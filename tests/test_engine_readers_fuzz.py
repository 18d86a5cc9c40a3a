"""Readers of SGLang, TensorRT-LLM, llama.cpp and the small ones against whatever a file may hold.

Each answers with records of finite counts, or with one clear error: no crash, no absurd figure.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from specmath.engines import aiperf, llama_cpp, lm_studio, mlx, sglang, tensorrt_llm, tgi
from specmath.engines.content import Exposition, Format, LogReader, Sample, fed
from specmath.engines.exposition import parse_exposition
from specmath.engines.llama_cpp_bench import step_times
from specmath.engines.llama_cpp_log import MOST_REQUESTS, MOST_WAYS, LlamaCppLog
from specmath.engines.sglang_log import MOST_BATCHES, MOST_RANKS, SglangLog
from specmath.engines.telemetry import SCOPES, Load, Telemetry
from specmath.errors import DataError

SAMPLES = Path(__file__).parent / "data" / "engine_samples"
MODULES = (aiperf, llama_cpp, lm_studio, mlx, sglang, tensorrt_llm, tgi)
FORMATS: list[Format] = [form for module in MODULES for form in module.FORMATS]
DOCUMENTS = [form for form in FORMATS if form.read_document]
EXPOSITIONS = [form for form in FORMATS if form.read_exposition]
LOGS: list[Callable[[str], LogReader]] = [form.log for form in FORMATS if form.log]
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in SAMPLES.iterdir() if path.suffix != ".md"}
LOG_LINES = [line for name, text in TEXTS.items() if name.endswith(".log") for line in text.splitlines()]


def figures(record: Any) -> Iterator[float]:
    """Every number of a record, those of its parts too."""
    if isinstance(record, int | float):
        yield record
    elif isinstance(record, tuple):
        for part in record:
            yield from figures(part)
    elif dataclasses.is_dataclass(record):
        for field in dataclasses.fields(record):
            yield from figures(getattr(record, field.name))


def sensible(telemetry: list[Telemetry]) -> None:
    for one in telemetry:
        assert one.scope in SCOPES
        assert all(math.isfinite(figure) and figure >= 0 for figure in figures(one))
        assert one.k is None or 1 <= one.k <= 10_000
        assert one.acceptance_length is None or one.acceptance_length >= 1
        assert all(note.text.isprintable() and note.remedy for note in one.notes)


def answered(read: Callable[[], list[Telemetry]]) -> None:
    with suppress(DataError):  # contradictory counts, in one line
        sensible(read())


# ---------------------------------------------------------------- documents

WORDS = """
    meta_info spec_verify_ct completion_tokens finish_reason id internal_states avg_spec_accept_length
    model_path speculative_num_steps speculative_num_draft_tokens accept_length backend output_throughput
    iter iterLatencyMS specDecodingStats numDraftTokens numAcceptedTokens attentionDpRank kvCacheStats
    numRequestsWithDraftTokens inflightBatchingStats numGenRequests tokensPerBlock accepted_draft_hist
    timings predicted_n predicted_ms draft_n draft_n_accepted stop draft_rounds summary results
    pl tg t_tg n_prompt n_gen avg_ns stats totalDraftTokensCount acceptedDraftTokensCount tokensPerSecond
    predictedTokensCount avg from_draft metrics value 0 1 7
"""
KEYS = [*WORDS.split(), *sglang.ACCEPTED_KEYS, *sglang.DRAFTED_KEYS, *sglang.HISTOGRAM_KEYS]
KEYS += [*aiperf.TOTALS, *aiperf.PER_REQUEST, aiperf.HISTOGRAM]
ODD = st.sampled_from(
    [None, True, "", "3", "EAGLE", math.nan, math.inf, -1, -0.5, 10**400, 1e308, 2**53, 0, 1, 1e-300]
)
SCALARS = st.one_of(ODD, st.integers(0, 40), st.floats(0, 4))
TREES = st.recursive(
    SCALARS,
    lambda parts: st.one_of(
        st.lists(parts, max_size=4), st.dictionaries(st.sampled_from(KEYS), parts, max_size=7)
    ),
    max_leaves=25,
)


@pytest.mark.parametrize("form", DOCUMENTS, ids=lambda form: form.name)
@given(document=TREES)
@settings(max_examples=60, deadline=None)
def test_documents_of_any_shape(form: Format, document: Any) -> None:
    assert form.read_document is not None
    answered(lambda: form.read_document(document, "x") if form.read_document else [])
    step_times(document, "x")


def documents() -> list[Any]:
    parsed = []
    for name, text in TEXTS.items():
        if name.endswith(".json"):
            parsed.append(json.loads(text))
        if name.endswith(".jsonl"):
            parsed.append([json.loads(line) for line in text.splitlines()])
    return parsed


def mutated(value: Any, data: st.DataObject) -> Any:
    """The same document with some of its values changed."""
    if isinstance(value, dict):
        return {key: mutated(part, data) for key, part in value.items()}
    if isinstance(value, list):
        return [mutated(part, data) for part in value[:3]]
    return data.draw(SCALARS) if data.draw(st.integers(0, 3)) == 0 else value


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_documents_that_were_tampered_with(data: st.DataObject) -> None:
    document = mutated(data.draw(st.sampled_from(documents())), data)
    for form in DOCUMENTS:
        assert form.read_document is not None
        answered(lambda read=form.read_document: read(document, "x"))  # type: ignore[misc]


def test_each_document_is_read_by_its_own_engine_alone() -> None:
    owners = {"sglang": "sglang", "trtllm": "tensorrt-llm", "llamacpp": "llama.cpp", "tgi": "tgi"}
    for name, text in TEXTS.items():
        if not name.endswith((".json", ".jsonl")) or name == "expected.json" or "adaptive-config" in name:
            continue
        document = (
            json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
        )
        found = [
            form.engine for form in DOCUMENTS if form.read_document and form.read_document(document, name)
        ]
        owner = owners.get(name.split("-")[0])
        assert found == ([owner] if owner else []), name


# ---------------------------------------------------------------- expositions

SERIES = sorted(
    {
        sample.name
        for name, text in TEXTS.items()
        if name.endswith(".txt")
        for sample in parse_exposition(text).samples
    }
)
VALUES = st.one_of(
    st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 1e300, 0.0]), st.floats(0, 1e6), st.integers(0, 9)
)
LABELS = st.dictionaries(
    st.sampled_from(
        ["model_name", "tp_rank", "dp_rank", "moe_ep_rank", "position", "token_position", "quantile"]
    ),
    st.sampled_from(["", "0", "1", "2", "x", "²", "-1", "1e9", "99999999999999999999"]),
    max_size=4,
)


@given(samples=st.lists(st.builds(Sample, st.sampled_from(SERIES), LABELS, VALUES.map(float)), max_size=40))
@settings(max_examples=200, deadline=None)
def test_expositions_of_several_engines_with_absurd_values(samples: list[Sample]) -> None:
    for form in EXPOSITIONS:
        assert form.read_exposition is not None
        for scope in ("since start", "difference"):
            exposition = Exposition(samples=tuple(samples), scope=scope)
            answered(lambda read=form.read_exposition, given=exposition: read(given))  # type: ignore[misc]


def test_each_exposition_is_read_by_its_own_engine_alone() -> None:
    owners = {"sglang": "sglang", "trtllm": "tensorrt-llm", "llamacpp": "llama.cpp", "tgi": "tgi"}
    for name, text in TEXTS.items():
        if name.endswith(".txt"):
            exposition = parse_exposition(text, source=name)
            found = [
                form.engine
                for form in EXPOSITIONS
                if form.read_exposition and form.read_exposition(exposition)
            ]
            owner = owners.get(name.split("-")[0])
            assert found == ([owner] if owner else []), name


# ---------------------------------------------------------------- logs


@pytest.mark.parametrize("make", LOGS)
@given(data=st.data())
@settings(max_examples=120, deadline=None)
def test_logs_of_several_engines_torn_and_spliced(
    make: Callable[[str], LogReader], data: st.DataObject
) -> None:
    lines = []
    for _ in range(data.draw(st.integers(1, 12))):
        line = data.draw(st.sampled_from(LOG_LINES))
        cut = data.draw(st.integers(0, len(line)))
        middle = data.draw(
            st.one_of(st.just(""), st.text(max_size=8), st.sampled_from(["9" * 40, "-1", "nan", "\x1b[31m"]))
        )
        lines.append(line[:cut] + middle + line[data.draw(st.integers(cut, len(line))) :])
    answered(lambda: fed(make("x"), lines))


@pytest.mark.parametrize("make", LOGS)
@given(raw=st.lists(st.binary(max_size=60), max_size=8))
@settings(max_examples=60, deadline=None)
def test_logs_of_wrong_encodings(make: Callable[[str], LogReader], raw: list[bytes]) -> None:
    for encoding in ("utf-8", "utf-16", "latin-1"):
        answered(lambda used=encoding: fed(make("x"), (part.decode(used, "replace") for part in raw)))  # type: ignore[misc]


HOSTILE = (
    "Decode batch, #running-req: 1, " + "accept len: " * 20_000,
    "Decode batch" * 20_000,
    "draft acceptance = " * 20_000,
    "draft acceptance = 0.50000 (" + " " * 100_000 + "accepted",
    "statistics " + "a" * 100_000 + ": #calls",
    "statistics" + " " * 100_000 + "x: #calls(b,g,a) = 1",
    "acc per pos = (" + "0.5, " * 20_000,
    "n_drafted" + " " * 100_000 + "= 3",
    "eval time = " * 20_000,
    "speculative_num_steps=" * 20_000,
    "DP1 TP2 " * 20_000 + "Decode batch, #running-req: 1, accept len: 2.00",
)


@pytest.mark.parametrize("make", LOGS)
@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_long_lines_made_to_be_slow_are_passed_over(make: Callable[[str], LogReader], line: str) -> None:
    answered(lambda: fed(make("x"), [line, line]))  # a pattern that is not linear never comes back


def test_what_a_log_reader_keeps_is_bounded() -> None:
    sg, llama = SglangLog("x"), LlamaCppLog("x")
    for number in range(3 * MOST_BATCHES):
        head = f"DP{number} TP0] Decode batch, #running-req: {number}, accept len: 2.00, accept rate: 0.33, "
        sg.feed(head)
        sg.feed(head.replace(f"DP{number} ", ""))
        llama.feed("draft acceptance = 0.50000 (   10 accepted /    20 generated), mean len =  2.00")
        llama.feed(
            f"statistics way-{number}: #calls = 1, #gen drafts = 2, #acc drafts = 1, "
            "#gen tokens = 4, #acc tokens = 2"
        )
    assert len(sg.speaker) == MOST_RANKS
    assert len(sg.batches) == MOST_BATCHES
    assert len(llama.ways) == MOST_WAYS
    assert len(llama.requests) < MOST_REQUESTS
    sensible(sg.result() + llama.result())


def test_a_record_has_no_number_that_the_checks_above_would_miss() -> None:
    record = Telemetry(engine="x", scope="typed", drafts=3, accepted_at=(2.0, math.nan), load=Load(step_s=-1))
    assert len(list(figures(record))) == 5  # drafts, two positions, the step, and k_varies
    with pytest.raises(AssertionError):
        sensible([record])
