"""The one reader of tables: what it takes from CSV, JSONL and JSON, and one line for whatever is wrong."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from specmath.batch_files import read_batches
from specmath.errors import AccessError, DataError, SpecmathError
from specmath.measurement_files import read_measurements
from specmath.row_files import Row, described, number_in, read_rows
from specmath.run_files import read_runs

READERS: tuple[Callable[[Path], Any], ...] = (read_batches, read_measurements, read_runs)


def rows_of(folder: Path, name: str, content: bytes | str) -> list[tuple[int, dict[str, Any]]]:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return [(row.line, dict(row.cells)) for row in read_rows(folder / name)]


# What is read


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        pytest.param("a.csv", "k,note\n3,x\n", [(2, {"k": "3", "note": "x"})], id="CSV"),
        pytest.param("A.CSV", "k\n3", [(2, {"k": "3"})], id="ending in capitals, no line end"),
        pytest.param("a.csv", b"\xef\xbb\xbfk\r\n3\r\n", [(2, {"k": "3"})], id="CSV, BOM and CRLF"),
        pytest.param("a.csv", " k , n\n 3 , \n", [(2, {"k": "3", "n": None})], id="spaces, an empty cell"),
        pytest.param("a.csv", "k\n\n3\n ,\n", [(3, {"k": "3"})], id="blank lines, also of commas"),
        pytest.param(
            "a.csv",
            'k,n\n3,"two\nlines"\n4,"a ""b"""\n',
            [(2, {"k": "3", "n": "two\nlines"}), (4, {"k": "4", "n": 'a "b"'})],
            id="quotes",
        ),
        pytest.param("a.csv", ",k,,\n0,3,,\n", [(2, {"": None, "k": "3"})], id="nameless columns"),
        pytest.param("a.csv", "k\n", [], id="header alone"),
        pytest.param("a.csv", "", [], id="empty CSV"),
        pytest.param("a.jsonl", '{"k": 3}\n\n{"k": null}\n', [(1, {"k": 3}), (3, {"k": None})], id="JSONL"),
        pytest.param("a.jsonl", b'\xef\xbb\xbf{"k": " "}\r\n', [(1, {"k": None})], id="JSONL, BOM and CRLF"),
        pytest.param("a.json", '{"k":\n 3}', [(1, {"k": 3})], id="one object"),
        pytest.param(
            "a.json",
            '\n[{"k": 3},\n\n {"n":\n [1, 2]}\n,{"k": 5}\n]\n',
            [(2, {"k": 3}), (4, {"n": [1, 2]}), (6, {"k": 5})],
            id="a list",
        ),
        pytest.param("a.json", '{"k": 3}\n{"k": 4}', [(1, {"k": 3}), (2, {"k": 4})], id="results appended"),
        pytest.param("a.json", "[]", [], id="an empty list"),
        pytest.param("a.jsonl", f'{{"k": {10**300}}}', [(1, {"k": 10**300})], id="a long integer"),
    ],
)
def test_what_is_read(
    tmp_path: Path, name: str, content: bytes | str, expected: list[tuple[int, dict[str, Any]]]
) -> None:
    assert rows_of(tmp_path, name, content) == expected


def test_infinity_and_nan_pass_where_nobody_counts_with_them(tmp_path: Path) -> None:
    ((_, cells),) = rows_of(tmp_path, "a.jsonl", '{"rate": Infinity, "std": NaN, "k": 3}')
    assert cells["rate"] == math.inf
    assert math.isnan(cells["std"])


def test_a_dash_is_jsonl_from_stdin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'\n{"batch": 4}\n')))
    (row,) = read_rows("-")
    assert (row.where, row.cells) == ("stdin: line 2", {"batch": 4})
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(AccessError, match="stdin: is closed"):
        list(read_rows("-"))


# What is refused


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        pytest.param("a.csv", "k,batch\n3\n", "line 2: has 1 cells, the header 2", id="short line"),
        pytest.param("a.csv", "k\n3\n3,4\n", "line 3: has 2 cells, the header 1", id="long line"),
        pytest.param("a.csv", "k,batch, k\n", "line 1: column 'k' stands twice", id="column twice"),
        pytest.param("a.csv", 'k\n"1\n2\n3\n', "line 2: is no CSV: unexpected end of data", id="open quote"),
        pytest.param("a.csv", 'k\n"1"2\n', "line 2: is no CSV: ',' expected after '\"'", id="after a quote"),
        pytest.param("a.csv", "k\n" + "1" * 200_000, "line 2: is no CSV: field larger than", id="huge cell"),
        pytest.param("a.jsonl", '{"k": 3}\n{"k"', "line 2: is no JSON: expecting ':'", id="half"),
        pytest.param("a.jsonl", '{"k": ]}', "line 1: is no JSON: expecting value at character 7", id="place"),
        pytest.param(
            "a.jsonl",
            '{"k',
            "line 1: is no JSON: unterminated string starting at character 2",
            id="open text",
        ),
        pytest.param(
            "a.jsonl", "[1]", 'line 1: must be a JSON object such as {"k": 3}, got a list', id="list"
        ),
        pytest.param("a.jsonl", "\n3", "line 2: must be a JSON object such as", id="number"),
        pytest.param("a.jsonl", '{"k": 1, "k": 2}', "line 1: field 'k' stands twice", id="field twice"),
        pytest.param("a.jsonl", '{"k":' + "[" * 200_000, "line 1: is nested too deeply", id="deep"),
        pytest.param("a.jsonl", '\n{"k":' + "9" * 9_000 + "}", "line 2: '999", id="thousands of digits"),
        pytest.param("a.json", '[{"k": 3},\n\n 4]', "line 3: must be a JSON object", id="entry"),
        pytest.param("a.json", '[{"k": 3},\n{"k": }]', "line 2: is no JSON: expecting value", id="in a list"),
        pytest.param("a.json", '{"k": 3}\n]', "line 2: is no JSON", id="after an object"),
        pytest.param("a.json", "\n" + "[" * 100_000, "line 2: is nested too deeply", id="deep list"),
        pytest.param("a.csv", b"k\n\xff\xfe\n", "is no text in UTF-8; name a .csv", id="binary"),
        pytest.param("a.csv", "k\n3".encode("utf-16-le"), "is no text in UTF-8", id="UTF-16"),
        pytest.param("a.jsonl", b'{"k": 3}\n\0', "is no text in UTF-8", id="NUL"),
        pytest.param("a.txt", "k\n3", "is no .csv, .jsonl or .json file, but .txt", id="ending"),
        pytest.param("a", "k\n3", "is no .csv, .jsonl or .json file, but without an ending", id="no ending"),
    ],
)
def test_what_is_no_table(tmp_path: Path, name: str, content: bytes | str, problem: str) -> None:
    with pytest.raises(DataError) as caught:
        rows_of(tmp_path, name, content)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / name}: {problem}")
    assert "\n" not in message
    assert len(message) < 400


def test_too_many_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("k\n1\n2\n3\n")
    assert len(list(read_rows(tmp_path / "a.csv", most=3))) == 3
    with pytest.raises(DataError, match="has more than 2 rows; split it"):
        list(read_rows(tmp_path / "a.csv", most=2))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        pytest.param("absent.csv", "no such file or directory", id="absent"),
        pytest.param("folder.csv", "is a folder, pipe or device", id="folder"),
        pytest.param("pipe.csv", "is a folder, pipe or device", id="pipe"),
        pytest.param("zero.csv", "is a folder, pipe or device", id="device"),
        pytest.param("loop.csv", "too many levels of symbolic links", id="loop of links"),
        pytest.param("a\0.csv", "embedded null byte", id="NUL in the name"),
        pytest.param("x" * 5_000, "file name too long", id="long name"),
    ],
)
def test_every_reader_refuses_what_cannot_be_opened(
    tmp_path: Path, reader: Callable[[Path], Any], name: str, problem: str
) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    with pytest.raises(AccessError) as caught:
        reader(tmp_path / name)
    assert str(caught.value).endswith(f": {problem}; name a .csv, .jsonl or .json file")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        pytest.param("a.csv", "k,batch,k\n3,8,3\n", "line 1: column 'k' stands twice", id="CSV"),
        pytest.param("a.jsonl", '{"batch": 8, "batch": 8}', "line 1: field 'batch' stands twice", id="JSONL"),
        pytest.param("a.json", "\n[3]", "line 2: must be a JSON object", id="JSON"),
        pytest.param("a.csv", "batch\nx\n", "line 2: batch: must be a whole number .*, got 'x'", id="number"),
        pytest.param(
            "a.jsonl", '{"batch": [8]}', "line 1: batch: must be a whole number .*, got a list", id="type"
        ),
        pytest.param(
            "a.jsonl", '{"batch": NaN}', "line 1: batch: must be a whole number .*, got nan", id="NaN"
        ),
    ],
)
def test_every_reader_tells_the_same_fault_alike(
    tmp_path: Path, reader: Callable[[Path], Any], name: str, content: str, problem: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=f"^{tmp_path / name}: {problem}"):
        reader(tmp_path / name)


@pytest.mark.parametrize("reader", READERS)
def test_a_file_too_large_is_not_read_whole(tmp_path: Path, reader: Callable[[Path], Any]) -> None:
    with (tmp_path / "a.csv").open("wb") as file:
        file.truncate(2**40)  # a hole; its terabyte would not fit in memory
    with pytest.raises(DataError, match="is larger than 32 MiB, the most that is read"):
        reader(tmp_path / "a.csv")


@given(st.binary(max_size=60), st.sampled_from(["a.csv", "a.jsonl", "a.json"]))
def test_no_bytes_end_in_a_foreign_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    path = tmp_path_factory.getbasetemp() / name
    path.write_bytes(content)
    with suppress(SpecmathError):
        assert all(isinstance(row, Row) for row in read_rows(path))


@given(st.lists(st.dictionaries(st.sampled_from(["k", "batch", "ä b"]), st.integers(-9, 9)), max_size=5))
def test_json_and_jsonl_tell_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, objects: list[dict[str, int]]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    lines = rows_of(folder, "b.jsonl", "\n".join(map(json.dumps, objects)))
    listed = rows_of(folder, "b.json", "[" + "\n,".join(map(json.dumps, objects)) + "]")
    assert lines == listed == list(enumerate(objects, 1))


# Numbers


@pytest.mark.parametrize(
    ("value", "expected"),
    [("8k", 8000.0), (" 1e3", 1000.0), ("007", 7.0), (".5", 0.5), ("-2", -2.0), (3, 3.0), (0.25, 0.25)],
)
def test_numbers(value: Any, expected: float) -> None:
    number = number_in(value)
    assert (number, type(number)) == (expected, float)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        pytest.param("fast", "got 'fast'", id="text"),
        pytest.param("1_000", "got '1_000'", id="underscore"),
        pytest.param("٣", "got '٣'", id="other digits"),
        pytest.param("8K", "got '8K'; write 8k for thousands or 8Ki for 1024s", id="ambiguous prefix"),
        pytest.param("3ms", "got '3ms'; use one of k, M, ", id="unit"),
        pytest.param("1e-999", "got '1e-999'; write 0 if that is meant", id="underflow"),
        pytest.param("1e999", "got '1e999'", id="overflow"),
        pytest.param("9" * 400, "got '999", id="overflow of digits"),
        pytest.param("9" * 401, "got '999", id="too many digits"),
        pytest.param("NaN", "got 'NaN'; leave out what is not known", id="NaN in CSV"),
        pytest.param(math.nan, "got nan; leave out what is not known", id="NaN in JSON"),
        pytest.param(math.inf, "got inf", id="infinity"),
        pytest.param(-math.inf, "got -inf", id="minus infinity"),
        pytest.param(10**350, "got 1000", id="an integer beyond floats"),
        pytest.param(True, "got True", id="truth"),
        pytest.param([3], "got a list", id="list"),
        pytest.param({"k": 3}, "got an object", id="object"),
    ],
)
def test_what_is_no_number(value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=r"^must be a number, ") as caught:
        number_in(value)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("value", "bounds", "problem"),
    [
        ("4", {"low": 1, "high": 3}, "must be a number from 1 to 3, got '4'"),
        (0.5, {"low": 1}, "must be a number of at least 1, got 0.5"),
        (2.5, {"low": 0, "high": 10_000, "whole": True}, "must be a whole number from 0 to 10000, got 2.5"),
        ("1.5", {"whole": True}, "must be a whole number, got '1.5'"),
    ],
)
def test_bounds(value: Any, bounds: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        number_in(value, **bounds)


def test_bounds_themselves_are_allowed() -> None:
    assert number_in("1", low=1, high=3, whole=True) == 1
    assert number_in(3, low=1, high=3) == 3


def test_a_row_names_the_column() -> None:
    row = Row("a.csv", 7, {"k": "x", "batch": None, "weight": "2"})
    assert (row.number("batch"), row.number("absent"), row.number("weight")) == (None, None, 2.0)
    with pytest.raises(DataError, match=r"^a\.csv: line 7: k: must be a number, got 'x'$"):
        row.number("k")
    assert (row.where, str(row.fault("is odd"))) == ("a.csv: line 7", "a.csv: line 7: is odd")


def test_what_is_nested_as_deep_as_can_be_read_can_be_told() -> None:
    nested: list[Any] = []
    for _ in range(100_000):
        nested = [nested]
    assert described(nested) == "a list"
    assert len(described("x" * 10_000)) == 60


def test_a_header_may_be_spelled_as_options_are(tmp_path: Path) -> None:
    ((_, row),) = rows_of(tmp_path, "a.csv", "k,acceptance-length\n4,2.8\n")
    assert row == {"k": "4", "acceptance_length": "2.8"}
