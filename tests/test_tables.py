"""Any result in any format: what is written reads back, and what a reader sees is whole and harmless.

The golden files in `data/formats` are rewritten by `SPECMATH_REWRITE_GOLDEN=1 pytest tests/test_tables.py`.
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from specmath import __version__, tables
from specmath.axes import parse_vector
from specmath.errors import AccessError, InputError
from specmath.exporters.text import printable
from specmath.results import Advice, Cell, Columns, Result

GOLDEN = Path(__file__).parent / "data" / "formats"
READABLE = ["table", "md", "latex", "html"]


class Fake(Result):
    """A result of given columns, in chunks of three rows."""

    schema = "specmath.fake/1"
    keys: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[Columns] = {}
    inputs: Mapping[str, Cell] = MappingProxyType({})
    assumptions: tuple[str, ...] = ()
    warnings: tuple[Advice, ...] = ()
    verdict = ""
    derivation: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def chunks(self, size: int = 3) -> Iterator[Columns]:
        for start in range(0, len(self), 3):
            yield {key: values[start : start + 3] for key, values in self.columns.items()}


def fake(columns: Columns, **attributes: Any) -> Result:
    made = type("Made", (Fake,), {"columns": columns, "keys": tuple(columns), **attributes})()
    assert isinstance(made, Result)
    return made


def written(result: Result, form: str, explain: bool = False) -> str:
    stream = io.StringIO(newline="")
    tables.write(result, stream, form, explain=explain)
    return stream.getvalue()


def sweep() -> Result:
    """A table like that of `speedup`, with every kind of column."""
    verify = np.array([1.02, 1.05, 1.31, 2.4])
    return fake(
        {
            "case": np.array(["typical", "ideal", "typical", "ideal"], dtype=object),
            "alpha": np.full(4, 0.7),
            "k": np.full(4, 4),
            "batch": np.array([1, 16, 256, 16384]),
            "acceptance_length": np.full(4, 2.7731),
            "survival": [[0.7, 0.49, 0.343, 0.2401]] * 4,
            "verify_cost": verify,
            "speedup": 2.7731 / (verify + 0.2),
            "speedup_low": np.full(4, np.nan),
            "breakeven_batch": np.array([195.08, np.nan, 195.08, np.inf]),
            "winning_batches": [[[1, 195]], [], [[1, 195], [300, 400]], None],
            "target_s": np.array([0.0418, 0.042, 0.061, 0.21]),
            "memory_bytes": [80 * 10**9, None, 80 * 10**9, 141 * 10**9],
            "tied": [True, False, None, True],
            "note": ['a, "quoted" name', "a|b_c", "<b>50 %</b>", None],
        },
        verdict="FASTER: 2.27× at batch 1, by the datasheet roofline",
        inputs={"hardware": "h100-sxm", "k": 4, "alpha": 0.7, "rates": [0.8, float("nan")]},
        assumptions=(
            "bf16 weights",
            "peaks of the datasheet",
            "constant acceptance",
            "no scheduler overhead",
        ),
        warnings=(Advice(code="devices", text="140 GB do not fit.", remedy="add `--tp 2|4`"),),
        derivation=("E = 1 + 0.7 + 0.49 + 0.343 + 0.2401 = 2.7731", "S = E / (v + c·k + o) = 2.2730"),
    )


@pytest.mark.parametrize("ending", [ending for ending in tables.ENDINGS if ending != ".parquet"])
def test_output_is_that_of_the_golden_file(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"sweep{ending}"
    tables.save(sweep(), path, explain=ending in (".md", ".json"))
    text = path.read_bytes().replace(__version__.encode(), b"VERSION")
    if os.environ.get("SPECMATH_REWRITE_GOLDEN"):
        (GOLDEN / path.name).write_bytes(text)
    assert text.decode() == (GOLDEN / path.name).read_bytes().decode()


# ---------------------------------------------------------------- data formats


def from_csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def test_csv_holds_every_digit_and_every_row() -> None:
    header, *rows = from_csv(written(sweep(), "csv"))
    assert header == list(sweep().keys)
    for row, expected in zip(rows, sweep().rows(), strict=True):
        read = dict(zip(header, row, strict=True))
        assert float(read["speedup"]) == expected["speedup"]
        assert read["speedup_low"] == ""
        assert list(parse_vector("survival", read["survival"])) == expected["survival"]
        assert read["note"] == (expected["note"] or "")
    assert [row[header.index("winning_batches")] for row in rows] == ["1-195", "", "1-195/300-400", ""]
    assert [row[header.index("tied")] for row in rows] == ["true", "false", "", "true"]
    assert written(sweep(), "csv").count("\r\n") == 5


@pytest.mark.parametrize("spelt", ["1 1.0 true", "0.0 -0.0 0", "-0.0 0.0 -0.0"])
def test_equal_cells_keep_their_own_spelling(spelt: str) -> None:
    rows = from_csv(written(fake({"x": [json.loads(text) for text in spelt.split()]}), "csv"))
    assert [row[0] for row in rows[1:]] == spelt.split()


def test_csv_of_one_column_keeps_its_empty_rows() -> None:
    assert from_csv(written(fake({"k": [None, 1, None]}), "csv")) == [["k"], [""], ["1"], [""]]


number = st.floats(allow_nan=False, allow_infinity=False)
kinds: list[st.SearchStrategy[Any]] = [
    number,
    st.integers(),
    st.text(),
    st.text(alphabet='a ,"/'),
    st.booleans(),
    st.lists(number | st.none()),
    number | st.text(),
    st.sampled_from([0, 1, 0.0, 1.0, True, False]),  # equal, and written differently
]
column = st.one_of([st.lists(kind | st.none(), min_size=7, max_size=7) for kind in kinds])


@given(column, st.lists(number, min_size=7, max_size=7))
def test_any_cells_survive_json_and_keep_their_place_in_csv(cells: list[Cell], numbers: list[float]) -> None:
    result = fake({"cells": cells, "n%s": np.array(numbers)})
    document = json.loads(written(result, "json"), parse_constant=pytest.fail)
    assert document["rows"] == list(result.rows())
    assert document["rows"] == [{"cells": one, "n%s": two} for one, two in zip(cells, numbers, strict=True)]
    rows = from_csv(written(result, "csv"))[1:]
    assert [float(row[1]) for row in rows] == numbers
    for (text, _), cell in zip(rows, cells, strict=True):
        assert text.isprintable()
        if cell is None:
            assert text == ""
        if isinstance(cell, str):
            assert text == printable(cell)
        if isinstance(cell, int | float):
            assert text == (repr(cell).lower() if isinstance(cell, bool) else repr(cell))


def test_json_is_one_document_that_explains_itself() -> None:
    document = json.loads(written(sweep(), "json", explain=True), parse_constant=pytest.fail)
    assert list(document) == [
        "schema", "specmath_version", "verdict", "inputs", "assumptions", "warnings", "derivation", "rows"
    ]  # fmt: skip
    assert document["inputs"]["rates"] == [0.8, None]
    assert document["assumptions"] == list(sweep().assumptions)
    assert document["warnings"] == [
        {"code": "devices", "text": "140 GB do not fit.", "remedy": "add `--tp 2|4`"}
    ]
    assert document["rows"] == list(sweep().rows())
    assert "derivation" not in json.loads(written(sweep(), "json"))


@pytest.mark.parametrize("form", ["json", "csv", *READABLE])
def test_result_without_rows_has_its_header(form: str) -> None:
    text = written(fake({"speedup": np.array([]), "case": []}), form)
    assert json.loads(text)["rows"] == [] if form == "json" else "case" in text


def parquet(result: Result, tmp_path: Path) -> Any:
    tables.save(result, tmp_path / "rows.parquet")
    return pq.read_table(tmp_path / "rows.parquet")


def test_parquet_holds_rows_and_notes(tmp_path: Path) -> None:
    table = parquet(sweep(), tmp_path)
    assert table.to_pylist() == list(sweep().rows())
    document = json.loads(written(sweep(), "json"))
    del document["rows"]
    assert json.loads(table.schema.metadata[b"specmath"]) == document
    assert pq.ParquetFile(tmp_path / "rows.parquet").num_row_groups == 2  # chunks of three rows


@pytest.mark.parametrize(
    ("cells", "kind", "read"),
    [
        ([None] * 4 + [1.5], "double", None),
        ([None] * 4 + [3], "int64", None),
        ([None] * 4 + ["a"], "string", None),
        ([None] * 5, "double", None),
        ([1, None, 2, 3, None], "int64", None),
        ([1, 2, 3, 4.5, None], "double", None),
        ([1.5, 2.5, 3.5, 4, 2**60], "double", None),
        ([None, None, None, [1, 2], []], "list<element: int64>", None),
        ([[], [], [], [1], [1.5]], "list<element: double>", None),
        ([[], None, [], [], []], "list<element: double>", None),
        ([[[1, 195]], [], [], [[1, 2], [3, 4]], None], "list<element: list<element: int64>>", None),
        ([1, 2, 3, "unbounded", None], "string", ["1", "2", "3", "unbounded", None]),
        ([True, 1, 2.5, None, [1]], "string", ["true", "1", "2.5", None, "[1]"]),
        (["a\udcff", "b", None, "", "c"], "string", ["a?", "b", None, "", "c"]),
        ([2**70, 1, None, 1, 1], "string", [str(2**70), "1", None, "1", "1"]),
        (np.array([np.nan, np.nan, np.nan, np.inf, 1.0]), "double", [None] * 4 + [1.0]),
        (np.array([1, 2, 3, 4, 5], dtype=np.int32), "int64", [1, 2, 3, 4, 5]),
    ],
)
def test_parquet_finds_the_type_that_holds_every_chunk(
    cells: Any, kind: str, read: list[Cell] | None, tmp_path: Path
) -> None:
    table = parquet(fake({"cells": cells, "k": np.arange(5)}), tmp_path)
    assert str(table.schema.field("cells").type) == kind
    assert table["cells"].to_pylist() == (cells if read is None else read)
    assert table["k"].to_pylist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("form", ["csv", "json", "parquet"])
def test_chunks_are_written_and_forgotten(form: str, tmp_path: Path) -> None:
    alive: set[int] = set()
    most = 0

    class Watched(Fake):
        keys = ("speedup",)

        def __len__(self) -> int:
            return 20_000

        def chunks(self, size: int = 1000) -> Iterator[Columns]:
            nonlocal most
            for start in range(0, len(self), 1000):
                values = np.arange(start, start + 1000) + 0.5
                alive.add(start)
                weakref.finalize(values, alive.discard, start)
                most = max(most, len(alive))
                chunk: Columns = {"speedup": values}
                del values
                yield chunk
                del chunk

    tables.save(Watched(), tmp_path / f"rows.{form}")
    assert 1 <= most <= 3  # of 20


# ---------------------------------------------------------------- refusals, notes, imports


def test_notes_are_inputs_three_assumptions_and_the_warnings() -> None:
    assert tables.notes(sweep()) == [
        "for: hardware h100-sxm, k 4, α 0.7, rates 0.8/–",
        "assumes: bf16 weights",
        "assumes: peaks of the datasheet",
        "assumes: constant acceptance (1 more with --explain)",
        "warning: 140 GB do not fit; add `--tp 2|4`",
    ]


def test_explained_notes_are_all_of_them_and_the_derivation() -> None:
    lines = tables.notes(sweep(), explain=True)
    assert lines[3:5] == ["assumes: constant acceptance", "assumes: no scheduler overhead"]
    assert lines[6:] == [f"derivation: {step}" for step in sweep().derivation]


@pytest.mark.parametrize("form", READABLE)
def test_long_table_for_a_reader_is_refused(form: str, tmp_path: Path) -> None:
    written(fake({"k": np.arange(10_000)}), "md")
    with pytest.raises(InputError, match=r"10,000 rows, this one has 10,001; use csv, json or parquet"):
        tables.save(fake({"k": np.arange(10_001)}), tmp_path / "rows", form)
    assert list(tmp_path.iterdir()) == []
    assert written(fake({"k": np.arange(10_001)}), "csv").count("\n") == 10_002


def test_unknown_names_are_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"format: 'xls' is unknown; use one of table, md, csv"):
        written(sweep(), "xls")
    with pytest.raises(
        InputError, match=r"path: .*rows\.xls' names no known format; end it in one of \.csv, \.json"
    ):
        tables.save(sweep(), tmp_path / "rows.xls")
    with pytest.raises(InputError, match="format: parquet is not text"):
        written(sweep(), "parquet")
    tables.save(sweep(), tmp_path / "rows.xls", "csv")  # an ending that tells nothing leaves it to the format
    assert (tmp_path / "rows.xls").read_text().startswith("case,")


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "specmath.exporters.parquet", raising=False)
    with pytest.raises(AccessError, match=r'needs pyarrow; run `pip install "specmath\[parquet\]"`'):
        tables.save(sweep(), tmp_path / "rows.parquet")
    assert list(tmp_path.iterdir()) == []


def test_failing_result_leaves_the_old_file(tmp_path: Path) -> None:
    class Failing(Fake):
        keys = ("k",)

        def chunks(self, size: int = 1) -> Iterator[Columns]:
            yield {"k": [1]}
            raise KeyboardInterrupt

    for ending in (".csv", ".json", ".parquet"):
        path = tmp_path / f"rows{ending}"
        path.write_text("old")
        with pytest.raises(KeyboardInterrupt):
            tables.save(Failing(), path)
        assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("form", "imported"),
    [("csv", set()), ("json", set()), ("md", set()), ("table", {"rich"}), ("html", {"pandas"})],
)
def test_a_format_imports_only_what_it_needs(form: str, imported: set[str]) -> None:
    script = f"""
import sys
from specmath import tables
from specmath.results import Result
class Empty(Result):
    schema, keys, inputs, assumptions = "specmath.empty/1", ("k",), {{}}, ()
    def __len__(self): return 1
    def chunks(self, size=1): yield {{"k": [1]}}
tables.write(Empty(), sys.stderr, {form!r})
print(*sorted({{"rich", "pandas", "pyarrow", "jinja2"}} & set(sys.modules)))
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert imported <= set(told.stdout.split())
    assert imported or not told.stdout.split()
