"""Files of runs: what every spelling means, and one clear line for whatever is wrong in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specmath.errors import DataError
from specmath.measurements import Run, paired
from specmath.run_files import MAX_RUNS, RunDefaults, read_runs


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


CSV = """k,batch,context,tpot_ms,acceptance_length,speedup
0,8,512,10,,
3,8,512,6.25,2.4,
4,1,,,2.5,1.7
"""


def test_csv_jsonl_and_json_say_the_same(tmp_path: Path) -> None:
    objects = [
        {"k": 0, "batch": 8, "context": 512, "tpot_ms": 10},
        {"k": 3, "batch": 8, "context": 512, "tpot_s": 0.00625, "acceptance_length": 2.4},
        {"k": 4, "batch": 1, "context": None, "acceptance_length": 2.5, "speedup": 1.7},
    ]
    files = [
        written(tmp_path, "runs.csv", "\ufeff" + CSV),
        written(tmp_path, "runs.jsonl", "".join(json.dumps(row) + "\n" for row in objects)),
        written(tmp_path, "runs.json", json.dumps(objects)),
    ]
    read = [read_runs(path) for path in files]
    bare = [[(run.k, run.batch, run.context, run.seconds_per_token) for run in runs] for runs, _ in read]
    assert bare[0] == [(0, 8, 512.0, 0.010), (3, 8, 512.0, 0.00625), (4, 1, 0.0, None)]
    assert bare[0] == bare[1] == bare[2]
    assert all(notes == () for _, notes in read)
    first, second = paired(read[0][0])
    assert (first.times_faster, second.times_faster) == pytest.approx((1.6, 1.7), rel=1e-12)


def test_the_results_of_benchmarks_are_read(tmp_path: Path) -> None:
    """vLLM writes one object a run; 320 tok/s over 8 sequences are 25 ms a token."""
    vllm = {"max_concurrency": 8, "mean_tpot_ms": 6.0, "spec_decode_acceptance_length": 2.5, "seed": 0}
    runs, (note,) = read_runs(
        written(tmp_path, "vllm.json", json.dumps(vllm)), defaults=RunDefaults(k=3, context=900)
    )
    where = f"{tmp_path / 'vllm.json'}: line 1"
    (run,) = runs
    expected = Run(k=3, batch=8, context=900, acceptance_length=2.5, seconds_per_token=0.006, where=where)
    assert run == expected
    assert note.code == "columns-ignored"
    assert "seed" in note.text
    sglang = {"max_concurrency": 8, "output_throughput": 320.0, "accept_length": 2.5}
    (run,), _ = read_runs(written(tmp_path, "sglang.jsonl", json.dumps(sglang)), defaults=RunDefaults(k=3))
    assert run.seconds_per_token == pytest.approx(0.025, rel=1e-12)


def test_throughputs_are_of_all_sequences_together(tmp_path: Path) -> None:
    text = "k,batch,tokens_per_s,plain_tokens_per_s,acceptance_length\n3,32,5180,3120,2.5\n"
    runs, _ = read_runs(written(tmp_path, "runs.csv", text))
    (pair,) = paired(runs)
    assert pair.plain_step_s == pytest.approx(32 / 3120, rel=1e-12)
    assert pair.times_faster == pytest.approx(5180 / 3120, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.csv", "", "holds no run"),
        ("a.csv", "k,batch\n", "holds no run"),
        ("a.csv", "batch,speedup\n8,1.5\n", "line 2: k: is missing; add the column, or give --k"),
        ("a.csv", "k,speedup\n3,1.5\n", "line 2: batch: is missing"),
        ("a.csv", "k,batch,speedup\n3,8,fast\n", "line 2: speedup: must be a number, got 'fast'"),
        (
            "a.csv",
            "k,batch,speedup\n\n3.5,8,1\n",
            "line 3: k: must be a whole number of at least 0, got '3.5'",
        ),
        ("a.csv", "k,batch,speedup\n-3,8,1\n", "k: must be a whole number of at least 0"),
        ("a.csv", "k,batch,speedup\n3,0,1\n", "batch: must be a whole number of at least 1"),
        ("a.csv", "k,batch,tokens_per_s\n3,8,-1\n", "line 2: tokens_per_s: must be above 0"),
        ("a.jsonl", '{"k": 3, "batch": 8, "speedup": true}', "speedup: must be a number, got True"),
        ("a.jsonl", '{"k": 3, "batch": 8, "speedup": NaN}', "speedup: must be a number, got nan; leave out"),
        ("a.jsonl", '{"k": 3, "batch": 8, "speedup": Infinity}', "speedup: must be a number, got inf"),
        ("a.jsonl", '{"k": 3, "batch": 8, "max_concurrency": 8}', "line 1: 'max_concurrency' repeats batch"),
        ("a.csv", "k,mean_tpot_ms\n3,fast\n", "line 2: mean_tpot_ms: must be a number"),
        ("a.csv", "k,batch\n" + "3,8\n" * (MAX_RUNS + 1), "has more than 10,000 rows"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_in_one_line(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        read_runs(written(tmp_path, name, text))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_infinity_in_a_column_of_no_interest_is_no_fault(tmp_path: Path) -> None:
    """sglang.bench_serving writes its request rate so where requests come all at once."""
    text = '{"max_concurrency": 8, "output_throughput": 320.0, "request_rate": Infinity}'
    (run,), _ = read_runs(written(tmp_path, "a.jsonl", text), defaults=RunDefaults(k=0))
    assert run.seconds_per_token == 0.025
