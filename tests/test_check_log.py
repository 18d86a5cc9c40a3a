"""Start-up logs: the real ones, each sign, hostile ones, and that memory stays constant."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from specmath.compatibility.log_signs import SIGNS
from specmath.compatibility.question import check_speculation
from specmath.compatibility.start_log import read_log
from specmath.errors import DataError, InputError

REAL = Path(__file__).parent / "data" / "engine_samples_real"
SGLANG = (
    "[2026-11-29 07:00:05] server_args=ServerArgs(model_path='m', tp_size=2, dp_size=1, pp_size=1, "
    "context_length=None, "
    "speculative_algorithm='NEXTN', speculative_num_steps=3, speculative_eagle_topk=1, "
    "speculative_num_draft_tokens=4, "
    "disable_cuda_graph=False, enable_mixed_chunk=False)\n"
    "[2026-11-29 07:01:00] max_total_num_tokens=1000, chunked_prefill_size=8192, max_running_requests=48, "
    "context_len=4096\n"
)


@pytest.mark.parametrize(
    ("name", "method", "context"),
    [
        ("vllm_cpu_0.32.0_pair_draft.server.log", "draft-model", 512),
        ("vllm_cpu_0.32.0_pair_ngram.server.log", "ngram", 512),
        ("vllm_cpu_0.32.0_smollm2_ngram.server.log", "ngram", 1_024),
    ],
)
def test_real_logs_of_vllm(name: str, method: str, context: int) -> None:
    table = check_speculation(log=REAL / name)
    case = table.case
    assert (case.engine, case.version and case.version.text) == ("vllm", "0.32.0")
    assert (case.method, case.settings.k, case.settings.max_num_seqs) == (method, 4, 8)
    assert (case.context, case.settings.tp, case.settings.dp, case.settings.pp) == (context, 1, 1, 1)
    codes = {one.code for one in table.findings}
    assert {"eager", "log-sampling-parameters", "log-token-budget"} <= codes
    assert ("log-async-off" in codes) is (method == "ngram")


def test_a_real_log_of_llama_cpp() -> None:
    case = check_speculation(log=REAL / "llama_server_b11434_pair_draft.server.log").case
    assert (case.engine, case.method) == ("llama.cpp", "draft-model")
    assert (case.settings.max_num_seqs, case.settings.context) == (1, 512)


def test_a_log_of_sglang(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(SGLANG, encoding="utf-8")
    case = check_speculation(log=path).case
    assert (case.engine, case.method, case.settings.k) == ("sglang", "mtp", 3)
    assert (case.settings.tp, case.settings.max_num_seqs) == (2, 48)
    assert not case.settings.eager


def test_a_version_line_of_tensorrt_llm(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text("[11/29/2026-07:00:00] [TRT-LLM] [I] TensorRT LLM version: 1.2.0rc3\n", encoding="utf-8")
    found = read_log(path)
    assert (found.engine, found.version) == ("tensorrt-llm", "1.2.0rc3")


_LINES = {
    "log-sampling-parameters": "WARNING min_p and logit_bias parameters won't work with speculative "
    "decoding.",
    "log-async-off": "Async scheduling not supported with ngram-based speculative decoding and will be "
    "disabled.",
    "log-graphs-downgraded": "Overriding cudagraph_mode from FULL_AND_PIECEWISE to PIECEWISE for "
    "reliability.",
    "log-tiers-off": "Disabling num_speculative_tokens_per_batch_size and falling back to static "
    "num_speculative_tokens=3",
    "log-block-size": "Setting attention block size to 2096 tokens to ensure that attention page size is "
    ">= mamba page size.",
    "log-capped": "max_running_requests is capped to 6 by the mamba state cache",
    "log-adaptive-off": "speculative_adaptive disabled: attention DP.",
    "log-token-budget": "max_num_scheduled_tokens is set to 2048 based on the speculative decoding settings.",
    "log-context-cut": "The draft model version is smaller; reducing max_model_len to 2048.",
    "log-vocabulary": "the target and draft vocabs: vocab mismatch between models, version 1",
    "log-v1-runner": "WARNING Model Runner V2 requires Triton; using the V1 model runner instead.",
    "log-mtp-layer": "Enabling num_speculative_tokens > 1 will run multiple times of forward on same MTP "
    "layer",
}


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.code)
def test_each_sign(tmp_path: Path, sign: object) -> None:
    code = sign.code  # type: ignore[attr-defined]
    path = tmp_path / "server.log"
    path.write_text(f"INFO vLLM API server version 0.33.0\n{_LINES[code]}\n", encoding="utf-8")
    (one,) = [one for one in check_speculation(log=path).findings if one.code == code]
    breaks = ("log-tiers-off", "log-adaptive-off", "log-context-cut", "log-vocabulary")
    assert one.effect == ("breaks" if code in breaks else "bites")
    path.write_text("INFO vLLM API server version 0.33.0\nINFO ready\n", encoding="utf-8")
    assert code not in {one.code for one in check_speculation(log=path).findings}


def test_what_is_typed_goes_before_the_log(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(SGLANG, encoding="utf-8")
    table = check_speculation("sglang@0.5.23", log=path, tp=4)
    assert table.case.settings.tp == 4
    assert [one.code for one in table.notes] == ["inputs-differ"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello\n",
        b"\x1b[31m\x00\xff" * 100,
        b"x" * 200_000,
        b"non-default args: {" + b"{" * 70_000 + b"\n",
    ],
)
def test_a_log_that_tells_nothing_or_little(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(content)
    if b"non-default" in content:
        assert read_log(path).engine == "vllm"
    else:
        with pytest.raises(DataError, match="tells no engine"):
            read_log(path)


def test_a_url_is_not_fetched() -> None:
    with pytest.raises(InputError):
        read_log("http://localhost/log")


def test_a_long_log_takes_constant_memory(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    line = "INFO 11-29 Avg prompt throughput: 1.0 tokens/s, cudagraph version speculative_x=1\n"
    with path.open("w", encoding="utf-8") as log:
        log.write("INFO vLLM API server version 0.33.0\n")
        for _ in range(100):
            log.write(line * 1_000)
    tracemalloc.start()
    found = read_log(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.lines == 100_001
    assert peak < 2_000_000


def test_escape_codes_of_a_log_do_not_come_out(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_text(
        "non-default args: {'model': 'a\x1b[2Jb', 'speculative_config': {'me\x1b[31mthod': 'x'}}\n",
        encoding="utf-8",
    )
    from specmath.exporters.readable import notes_of, readable_columns

    table = check_speculation(log=path)
    told = [cell for column in readable_columns(table) for cell in column.cells]
    told += [note.text for note in notes_of(table, explain=True)]
    assert not any("\x1b" in text for text in told)
