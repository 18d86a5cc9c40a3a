"""The measurement that is asked for: on which engine, at which batch, and how it is fed back."""

from __future__ import annotations

import json
import shlex

import pytest

from specmath.axes import parse_record
from specmath.cli.measured import FIELDS
from specmath.errors import InputError
from specmath.measuring import next_measurement, undecided_batch

ENGINES = ("ideal", "typical", "vllm", "sglang", "tensorrt-llm", "llama.cpp", "mlx", "transformers", "new")


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_is_told_both_arms_and_the_way_back(engine: str) -> None:
    text = next_measurement(engine, k=5, batch=48, target="T", draft="D")
    off, on, then = text.splitlines()
    assert off.startswith("off: ")
    assert on.startswith("on:  ")
    assert "5" in on
    record = parse_record("measured", then.removeprefix("then: --measured "), FIELDS)
    assert (record["k"], record["batch"]) == ("5", "48")
    assert record.keys() == {"k", "batch", "off", "on", "acceptance_length"}
    assert record["on"] == ("…ms" if engine in ("vllm", "sglang") else "…tok/s")


def test_vllm_gets_a_config_that_is_json_and_names_shell_safe() -> None:
    text = next_measurement(
        "vllm@0.32", k=3, batch=8, target="my models/T", draft="it's D", method="eagle3", tp=4
    )
    off, on, _ = text.splitlines()
    assert "--max-concurrency 8 --num-prompts 32" in off
    served = shlex.split(off.partition(", then")[0])
    assert served[served.index("serve") + 1 :] == ["my models/T", "--tensor-parallel-size", "4"]
    words = shlex.split(on.partition(", then")[0])
    config = json.loads(words[words.index("--speculative-config") + 1])
    assert config == {"method": "eagle3", "model": "it's D", "num_speculative_tokens": 3}


@pytest.mark.parametrize(
    ("method", "vllm", "sglang"),
    [
        ("draft-model", '"draft_model"', "STANDALONE"),
        ("mtp", '"mtp"', "NEXTN"),
        ("ngram", '"ngram"', "NGRAM"),
        ("dflash", '"METHOD"', "ALGORITHM"),
    ],
)
def test_methods_are_called_as_the_engine_calls_them(method: str, vllm: str, sglang: str) -> None:
    assert vllm in next_measurement("vllm", k=3, batch=8, method=method)
    text = next_measurement("sglang", k=3, batch=8, method=method)
    assert f"--speculative-algorithm {sglang} " in text
    assert "--speculative-num-steps 3 " in text
    assert "--speculative-num-draft-tokens 4" in text
    runs_a_draft = method not in ("mtp", "ngram")
    assert ("--speculative-draft-model-path DRAFT " in text) == runs_a_draft, (
        "a place holder where none is named"
    )


def test_the_undecided_batch_is_the_one_measured() -> None:
    low, high = [1.4, 1.1, 0.9, 0.7, 0.5], [1.9, 1.5, 1.4, 1.05, 0.8]
    assert undecided_batch([1, 4, 16, 64, 256], low, high) == 16  # .9 … 1.4 leaves most room on both sides
    assert undecided_batch([1, 4], [1.4, 1.1], [1.9, 1.5]) == 4  # all faster: the one nearest to 1
    assert undecided_batch([64, 256], [0.6, 0.5], [0.9, 0.8]) == 64


def test_a_measurement_of_nothing_is_refused() -> None:
    for k, batch in ((0, 8), (3, 0)):
        with pytest.raises(InputError):
            next_measurement("vllm", k=k, batch=batch)
