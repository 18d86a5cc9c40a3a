"""Files of runs: what every spelling means, and one clear line for whatever is wrong in them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from specmath.errors import AccessError, DataError
from specmath.measurements import Run, paired
from specmath.run_files import MAX_BYTES, RunDefaults, read_runs


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
    where = f"{tmp_path / 'vllm.json'} line 1"
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
        ("a.csv", "batch,speedup\n8,1.5\n", "line 2: column k is missing; add it, or give --k"),
        ("a.csv", "k,speedup\n3,1.5\n", "line 2: column batch is missing"),
        ("a.csv", "k,batch,speedup\n3,8,fast\n", "line 2: column speedup: 'fast' is not a number"),
        ("a.csv", "k,batch,speedup\n\n3.5,8,1\n", "line 3: column k: must be a whole number"),
        ("a.csv", "k,batch,speedup\n-3,8,1\n", "column k: must be a whole number of at least 0"),
        ("a.csv", "k,batch,speedup\n3,0,1\n", "column batch: must be a whole number of at least 1"),
        ("a.csv", "k,batch\n3\n", "line 2: 1 cells under 2 columns"),
        ("a.csv", "k,batch,k\n3,8,3\n", "line 1: column 'k' is there twice"),
        ("a.csv", "k,batch,tokens_per_s\n3,8,-1\n", "column tokens_per_s: must be above 0"),
        ("a.csv", 'k,batch\n3,"8\n', "is no CSV"),
        ("a.jsonl", '{"k": 3\n', "line 1: is no JSON"),
        ("a.jsonl", "[3]\n", "line 1: must be an object"),
        ("a.jsonl", '{"k": 3, "batch": 8, "speedup": true}', "column speedup: True is no number"),
        ("a.jsonl", '{"k": 3, "batch": 8, "speedup": NaN}', "NaN is no number"),
        ("a.jsonl", '{"k": 3, "batch": 8, "speedup": Infinity}', "is no number"),
        ("a.jsonl", '{"k": 3, "batch": [8]}', "column batch: .* is no number"),
        ("a.jsonl", '{"k": 3, "batch": 8, "max_concurrency": 8}', "repeats batch"),
        ("a.json", "[" * 100_000, "is nested too deeply|is no JSON"),
        ("a.json", '{"k": ' + "9" * 5_000 + "}", "is no JSON|is no number"),
        ("a.txt", "k,batch\n", "is no .csv, .jsonl or .json file"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_in_one_line(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        read_runs(written(tmp_path, name, text))
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    for name in ("nosuch.csv", "folder.csv", "pipe.csv", "nul\0.csv"):
        with pytest.raises(AccessError):
            read_runs(tmp_path / name)
    (tmp_path / "binary.csv").write_bytes(b"k,batch\n\xff\xfe\n")
    with pytest.raises(DataError, match="UTF-8"):
        read_runs(tmp_path / "binary.csv")
    with (tmp_path / "large.csv").open("wb") as large:
        large.truncate(MAX_BYTES + 1)
    with pytest.raises(DataError, match="larger than 10 MB"):
        read_runs(tmp_path / "large.csv")
