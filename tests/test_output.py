"""Writing a result: which format, what a fault leaves behind, colour and width, vectors of any length."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import pytest

from specmath import tables
from specmath.errors import InputError
from specmath.results import Cell, Columns, Result

READABLE = ["table", "md", "latex", "html"]


class Fake(Result):
    """A result of given columns, in one chunk."""

    schema = "specmath.fake/1"
    keys: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[Columns] = {}
    inputs: Mapping[str, Cell] = MappingProxyType({})
    assumptions: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def chunks(self, size: int = 0) -> Iterator[Columns]:
        yield self.columns


def fake(columns: Columns, **attributes: Any) -> Result:
    made = type("Made", (Fake,), {"columns": columns, "keys": tuple(columns), **attributes})()
    assert isinstance(made, Result)
    return made


def written(result: Result, form: str) -> str:
    stream = io.StringIO(newline="")
    tables.write(result, stream, form, explain=True)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("path", "form", "chosen"),
    [
        ("rows.csv", None, "csv"),
        ("ROWS.MD", "md", "md"),
        (Path("a.b/rows.tex"), None, "latex"),
        ("rows", "json", "json"),
        ("rows.dat", "parquet", "parquet"),
        ("/dev/stdout", "table", "table"),
    ],
)
def test_the_ending_chooses_the_format_and_the_option_where_it_cannot(
    path: str | Path, form: str | None, chosen: str
) -> None:
    assert tables.chosen_format(path, form) == chosen


def test_a_format_that_contradicts_the_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^format: 'md' contradicts '.*rows\.csv', whose ending asks for csv"
    ):
        tables.save(fake({"k": [1]}), tmp_path / "rows.csv", "md")
    with pytest.raises(InputError, match=r"^path: 'rows\.dat' names no known format; end it in one of"):
        tables.chosen_format("rows.dat")
    assert list(tmp_path.iterdir()) == []


def _fail(result: Result) -> Any:
    raise InputError("alpha", "is wrong")


@pytest.mark.parametrize("form", ["csv", "json", *READABLE])
@pytest.mark.parametrize("part", ["chunks", "assumptions", "verdict", "derivation"])
def test_a_fault_before_the_first_row_leaves_nothing_written(form: str, part: str) -> None:
    late = {"csv": {"chunks"}, "latex": {"chunks"}}.get(form, {part})  # formats without a place for notes
    stream = io.StringIO()
    made = property(_fail) if part != "chunks" else lambda result, size=3: _fail(result)
    broken = fake({"k": [1]}, **{part: made})
    if part in late:
        with pytest.raises(InputError, match="is wrong"):
            tables.write(broken, stream, form, explain=True)
        assert stream.getvalue() == ""
    else:
        tables.write(broken, stream, form, explain=True)


def test_vectors_are_written_as_their_numbers_are() -> None:
    vectors: list[Cell] = [
        [0.1, 0.0, 1e-300],
        [0.1, -0.0],
        [-0.5, 0.0],
        [1, 1.0],
        [None, 0.5],
        [],
        [0.30000000000000004],
    ]
    result = fake({"survival": vectors})
    rows = [row[0] for row in csv.reader(io.StringIO(written(result, "csv")))][1:]
    assert rows == ["0.1/0.0/1e-300", "0.1/-0.0", "-0.5/0.0", "1/1.0", "/0.5", "", "0.30000000000000004"]
    assert str([row["survival"] for row in json.loads(written(result, "json"))["rows"]]) == str(vectors)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def colours(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


def test_forced_colour_is_for_stdout_and_never_for_a_file(
    colours: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    colours.setenv("FORCE_COLOR", "1")
    result = fake({"k": [1]}, verdict="FASTER: 2×")
    tables.save(result, tmp_path / "rows.txt")
    assert "\x1b" not in (tmp_path / "rows.txt").read_text(encoding="utf-8")
    assert "\x1b" not in written(result, "table")
    stdout = io.StringIO()
    colours.setattr("sys.stdout", stdout)
    tables.write(result, stdout, "table")
    assert "\x1b" in stdout.getvalue()


@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_a_width_of_0_is_none(colours: pytest.MonkeyPatch, stream: type[io.StringIO]) -> None:
    texts = {}
    for columns in ("0", "80"):
        colours.setenv("COLUMNS", columns)
        out = stream()
        tables.write(fake({"k": [1]}, verdict="FASTER: 2×"), out, "table")
        texts[columns] = out.getvalue()
    assert texts["0"] == texts["80"]


def test_vectors_of_more_numbers_than_anybody_reads_are_refused() -> None:
    vector = [0.5] * 999
    assert written(fake({"survival": [vector] * 1000}), "md").count("/") == 998_000
    with pytest.raises(InputError, match=r"format: .*1,000,000 numbers; use csv, json or parquet"):
        written(fake({"survival": [vector] * 1000, "k": [1] * 1001}), "md")
