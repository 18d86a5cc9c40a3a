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
        ("a.csv", "batch,speedup\n8,1.5\n", "line 2: k: is missing; add the column$"),
        ("a.csv", "k,speedup\n3,1.5\n", "line 2: batch: is missing"),
        ("a.csv", "k,batch,speedup\n3,8,fast\n", "line 2: speedup: must be a number, got 'fast'"),
        (
            "a.csv",
            "k,batch,speedup\n\n3.5,8,1\n",
            "line 3: k: must be a whole number from 0 to 10000, got '3.5'",
        ),
        ("a.csv", "k,batch,speedup\n-3,8,1\n", "k: must be a whole number from 0 to 10000"),
        ("a.csv", "k,batch,speedup\n10001,8,1\n", "k: must be a whole number from 0 to 10000, got '10001'"),
        ("a.csv", "k,batch,context\n3,8,-1\n", "context: must be a number from 0 to 1e\\+09, got '-1'"),
        ("a.csv", "k,Batch,speedup\n3,8,1\n", "line 2: batch: is missing; call the column 'Batch' batch"),
        ("a.csv", "k,Batch Size,speedup\n3,8,1\n", "batch: is missing; call the column 'Batch Size' batch"),
        (
            "a.csv",
            "k,batch,TPOT (ms),acceptance_length\n3,8,6,2\n",
            r"line 2: the time per token: is missing; call the column 'TPOT \(ms\)' tpot_ms",
        ),
        (
            "a.csv",
            "k,batch,tpot_ms,Acceptance length\n3,8,6,2\n",
            "acceptance_length: is missing; call the column 'Acceptance length' acceptance_length",
        ),
        (
            "a.csv",
            "k,batch,tpot_s,tpot_ms\n0,8,0.006,7\n",
            "line 2: tpot_s and tpot_ms contradict each other; leave one",
        ),
        ("a.csv", "k,batch,speedup\n3,0,1\n", "batch: must be a whole number from 1 to"),
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


def test_an_option_is_named_where_the_question_has_it(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "k,speedup\n3,1.5\n")
    with pytest.raises(DataError, match=r"batch: is missing; add the column, or give --batch$"):
        read_runs(path, defaults=RunDefaults(k=3))


def test_a_column_of_another_spelling_is_named_where_it_is_left_out(tmp_path: Path) -> None:
    text = "k,batch,Context,mood,tpot_ms\n0,8,512,good,10\n"
    _, (note,) = read_runs(written(tmp_path, "a.csv", text))
    assert note.text.endswith("not used: Context (call it context), mood")


PLAIN = "k,batch,tpot_ms\n0,8,10\n0,4,7\n0,8,{}\n"


def test_plain_runs_that_differ_by_more_than_repeats_do_are_told_with_their_lines(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", PLAIN.format(13))
    _, (note,) = read_runs(path)
    assert note.code == "plain-runs-differ"
    assert note.text.startswith(f"{path}: line 2 (10 ms) and {path}: line 4 (13 ms) are both without spec")
    assert "context not told, and differ by 30%: the mean of 2 such runs is used" in note.text
    assert read_runs(written(tmp_path, "b.csv", PLAIN.format(10.7)))[1] == ()


@pytest.mark.parametrize(("throughput", "ratio"), [(800, None), (750, None), (400, "2"), (1600, "0.5")])
def test_a_throughput_beside_a_time_that_differs_is_told(
    tmp_path: Path, throughput: float, ratio: str | None
) -> None:
    """8 sequences at 10 ms a token are 800 tokens a second; a tenth goes to prefill and waiting."""
    path = written(tmp_path, "a.csv", f"k,batch,tpot_ms,tokens_per_s\n0,8,10,{throughput}\n")
    (run,), notes = read_runs(path)
    assert run.seconds_per_token == 0.01
    assert [note.code for note in notes] == ([] if ratio is None else ["times-differ"])
    assert all(f"line 2, where batch / throughput is {ratio} times" in note.text for note in notes)
