"""What a log tells beside its flags: disagreements with other inputs, its own warnings, the runner, a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specmath.compatibility.case import Settings
from specmath.compatibility.layers import layered
from specmath.compatibility.log_signs import own_warning
from specmath.compatibility.question import check_speculation
from specmath.compatibility.start_log import read_log
from specmath.compatibility.table import CheckTable

REAL = Path(__file__).parent / "data" / "engine_samples_real"
DRAFT_LOG = REAL / "vllm_cpu_0.32.0_pair_draft.server.log"
NGRAM_LOG = REAL / "vllm_cpu_0.32.0_pair_ngram.server.log"
ON_GPU = (
    "INFO 11-29 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: model='t', "
    "speculative_config=SpeculativeConfig(method='draft_model', model='d', num_spec_tokens=4), "
    "data_parallel_size=1, tensor_parallel_size=1, pipeline_parallel_size=1, enforce_eager=True, "
    "max_num_seqs=8, device_config=cuda, seed=0\n"
)


def log_file(folder: Path, *lines: str) -> Path:
    path = folder / "server.log"
    path.write_text(ON_GPU + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def codes(table: CheckTable) -> list[str]:
    return [one.code for one in table.findings]


def told(table: CheckTable, code: str) -> str:
    """Text and remedy of a finding; empty where it is not found."""
    return next((f"{one.text}; {one.remedy}" for one in table.findings if one.code == code), "")


# Disagreements


@pytest.mark.parametrize(
    ("engine", "inputs", "texts"),
    [
        ("vllm@0.31", {}, ["version is 0.31 in one input and 0.32.0 in another: 0.31 was taken"]),
        ("vllm@0.32.1", {}, ["version is 0.32.1 in one input and 0.32.0 in another: 0.32.1 was taken"]),
        ("vllm@0.32", {}, []),
        ("vllm", {"method": "draft-model", "k": 4}, []),
        (
            None,
            {"method": "eagle3"},
            ["method is eagle3 in one input and draft-model in another: eagle3 was taken"],
        ),
        (
            None,
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}},
            ["method is ngram in one input and draft-model in another: ngram was taken"],
        ),
        (
            None,
            {
                "speculative_config": {
                    "method": "draft_model",
                    "model": "org/other",
                    "num_speculative_tokens": 4,
                }
            },
            ["draft is org/other in one input and d in another: org/other was taken"],
        ),
        (
            None,
            {"server_args": "VLLM_USE_V2_MODEL_RUNNER=1 vllm serve t"},
            ["the V2 runner is on in one input and off in another: on was taken"],
        ),
    ],
)
def test_a_disagreement_with_the_log_is_said(
    tmp_path: Path, engine: str | None, inputs: dict[str, Any], texts: list[str]
) -> None:
    log = log_file(tmp_path, "WARNING [vllm.py:725] using the V1 model runner instead.")
    table = check_speculation(engine, log=log, **inputs)
    assert [note.text for note in table.notes if note.code == "inputs-differ"] == texts


def test_a_count_that_is_typed_is_compared_with_the_config() -> None:
    config = {"method": "ngram", "num_speculative_tokens": 3}
    table = check_speculation("vllm@0.32", speculative_config=config, k=4)
    assert [note.text for note in table.notes] == ["k is 4 in one input and 3 in another: 4 was taken"]


@pytest.mark.parametrize("inputs", [{"speculative_config": {"method": "ngram"}}, {"method": "suffix"}])
def test_a_lookup_has_no_draft_of_the_log(inputs: dict[str, Any]) -> None:
    assert check_speculation(log=DRAFT_LOG).inputs["draft"] is not None
    assert check_speculation(log=DRAFT_LOG, **inputs).inputs["draft"] is None


def test_names_in_a_warning_are_bounded_and_printable() -> None:
    below = Settings(target_name="a\x1b[2J" + "b" * 300)
    _, (note,) = layered([Settings(target_name="org/m"), below])
    assert note.text.isprintable()
    assert len(note.text) < 200


def test_a_config_is_one_thing() -> None:
    above = Settings(config={"method": "mtp"}, method="mtp", k=2)
    below = Settings(config={"method": "mtp"}, method="mtp", draft_name="d", tiers=((1, 8, 2),), tp=2)
    settings, notes = layered([above, below])
    assert (settings.draft_name, settings.tiers, settings.tp, notes) == (None, None, 2, ())


# Warnings of the log itself


def test_a_real_log_warns_of_speculation_itself() -> None:
    table = check_speculation(log=DRAFT_LOG)
    assert told(table, "log-warning").startswith(
        'the log warns: "Speculative decoding on CPU without Intel OpenMP in LD_PRELOAD will cause '
        'significant performance loss."'
    )
    assert codes(table).count("log-warning") == 1
    assert "V1 runner" in told(table, "log-v1-runner")
    assert table.case.settings.v2_runner is False


@pytest.mark.parametrize(
    ("line", "quote"),
    [
        (
            "(W pid=1) WARNING 11-29 17:54:20 [a.py:1] Speculative steps are slow here",
            "Speculative steps are",
        ),
        ("INFO 11-29 17:54:20 [a.py:1] Speculative decoding is on", None),
        ("WARNING 11-29 17:54:20 [a.py:1] libiomp is not found in LD_PRELOAD", None),
        ("WARNING 11-29 17:54:20 [speculative.py:1] Triton is not installed", None),
    ],
)
def test_which_lines_are_warnings_of_speculation(line: str, quote: str | None) -> None:
    found = own_warning(line)
    assert (found is not None) is (quote is not None)
    if found is not None and quote is not None:
        assert found.text.startswith(f'the log warns: "{quote}')


def test_a_warning_is_quoted_short_and_printable() -> None:
    found = own_warning("WARNING [a.py:1] draft \x1b]0;x\x07\x00" + "y" * 10_000)
    assert found is not None
    assert found.text.isprintable()
    assert len(found.text) <= 180


def test_warnings_are_told_once_and_not_without_end(tmp_path: Path) -> None:
    same = [
        f"\x1b[33mWARNING\x1b[0m [a.py:1] the \x1b[1mdraft\x1b[0m of rank {rank} is slow"
        for rank in range(50)
    ]
    assert codes(check_speculation(log=log_file(tmp_path, *same))).count("log-warning") == 1
    other = [f"WARNING [a.py:1] the draft is {'x' * many}" for many in range(50)]
    assert len(read_log(log_file(tmp_path, *other)).seen) == 10


@pytest.mark.parametrize(("runner", "effect"), [("V1", "breaks"), ("V2", None)])
def test_the_runner_of_the_log_decides(tmp_path: Path, runner: str, effect: str | None) -> None:
    log = log_file(tmp_path, f"WARNING [vllm.py:725] using the {runner} model runner instead.")
    config = {"method": "dspark", "model": "d", "enable_adaptive_verification": True}
    found = {one.code: one.effect for one in check_speculation(log=log, speculative_config=config).findings}
    assert (found.get("needs-v2-runner"), found.get("adaptive-runner")) == (effect, effect)


# A CPU


def on_cpu(path: Path) -> Path:
    path.write_text(path.read_text(encoding="utf-8").replace("=cuda", "=cpu"), encoding="utf-8")
    return path


def test_on_a_cpu_nothing_is_said_of_cuda_graphs(tmp_path: Path) -> None:
    tiers = {
        "method": "draft_model",
        "model": "d",
        "num_speculative_tokens": 4,
        "num_speculative_tokens_per_batch_size": [[1, 8, 4]],
    }
    gpu = check_speculation(log=log_file(tmp_path), speculative_config=tiers)
    assert "graphs" in told(gpu, "eager")
    assert "GPU KV cache size" in told(gpu, "draft-cache")
    assert "graphs-downgraded" in codes(gpu)
    cpu = check_speculation(log=on_cpu(log_file(tmp_path)), speculative_config=tiers)
    every = " ".join(f"{one.text} {one.remedy}" for one in cpu.findings)
    assert "graph" not in every
    assert "GPU" not in every
    assert "torch.compile" in told(cpu, "eager")
    assert "CPU KV cache size" in told(cpu, "draft-cache")
    assert not any("graphs" in text for text in cpu.assumptions)


@pytest.mark.parametrize(("device", "found"), [("cuda", True), ("cpu", False)])
def test_widths_against_graphs_are_for_a_gpu(tmp_path: Path, device: str, found: bool) -> None:
    path = tmp_path / "server.log"
    text = ON_GPU.replace("enforce_eager=True, ", "").replace("=cuda", f"={device}")
    path.write_text(text, encoding="utf-8")
    assert ("capture-sizes" in codes(check_speculation("vllm@0.12", log=path, max_num_seqs=512))) is found


@pytest.mark.parametrize(("device", "code"), [("cuda", "adaptive-eager"), ("cpu", "adaptive-cpu")])
def test_adaptive_verification_needs_the_graphs_of_a_gpu(tmp_path: Path, device: str, code: str) -> None:
    path = log_file(tmp_path)
    path = on_cpu(path) if device == "cpu" else path
    config = {"method": "dspark", "model": "d", "enable_adaptive_verification": True}
    found = codes(check_speculation(log=path, speculative_config=config))
    assert [one for one in found if one in ("adaptive-eager", "adaptive-cpu")] == [code]


# What is still needed


@pytest.mark.parametrize(
    ("inputs", "needs", "absent"),
    [
        ({"log": DRAFT_LOG}, "(needs --target and --draft: a name alone tells no shape)", "--method"),
        ({"log": NGRAM_LOG}, "(needs --target: a name alone tells no shape)", "--draft"),
        ({"engine": "vllm@0.32"}, "(needs --target and --draft or --method)", "a name alone"),
        ({"engine": "vllm@0.32", "k": 3}, "against graphs (needs --max-num-seqs)", "--k"),
        ({"engine": "vllm@0.32", "max_num_seqs": 3}, "against graphs (needs --k)", "--max-num-seqs"),
        ({"engine": "vllm@0.32", "tp": 2}, "parallelism (needs --dp and --pp)", "--tp"),
        ({"engine": "vllm@0.32"}, "parallelism (needs --tp, --dp and --pp)", "--tp and"),
    ],
)
def test_only_what_is_missing_is_asked_for(inputs: dict[str, Any], needs: str, absent: str) -> None:
    unchecked = check_speculation(**inputs).assumptions[1]
    assert needs in unchecked
    assert absent not in unchecked


# Requests beside a log


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"prompt": "a", "temperature": 0}', None),
        ('{"prompt": "a", "min_p": 0.1}', "1 of 1 requests (100 %) have one"),
    ],
)
def test_the_parameters_of_the_log_are_those_of_the_sample(
    tmp_path: Path, body: str, text: str | None
) -> None:
    sample = tmp_path / "sample.jsonl"
    sample.write_text(f"{body}\n", encoding="utf-8")
    assert "--requests" in told(check_speculation(log=DRAFT_LOG), "log-sampling-parameters")
    found = told(check_speculation(log=DRAFT_LOG, requests=sample), "log-sampling-parameters")
    assert "--requests" not in found
    assert (text or "") in found
    assert bool(found) is (text is not None)


def test_what_log_and_rule_both_tell_is_told_once() -> None:
    assert [code for code in codes(check_speculation(log=NGRAM_LOG)) if code.endswith("async-off")] == [
        "log-async-off"
    ]
    assert "async-off" in codes(check_speculation("vllm@0.32", method="ngram"))


def test_packaged_models_that_only_the_config_names_are_compared() -> None:
    config = {"method": "eagle3", "model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 4}
    named = check_speculation("vllm@0.24", speculative_config=config, server_args="vllm serve Qwen/Qwen3-8B")
    assert any("vocabulary" in finding.text for finding in named.findings)
    other = check_speculation("vllm@0.24", speculative_config=config, server_args="vllm serve /models/own")
    assert not any("vocabulary" in finding.text for finding in other.findings)
