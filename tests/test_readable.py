"""What a reader sees: columns made readable, a terminal of any width, and text that stays text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console

from specmath import tables
from specmath.columns import COLUMNS, column_of
from specmath.exporters import terminal
from specmath.exporters.readable import notes_of, readable_columns
from specmath.results import Advice, Cell, Columns, Result


class Fake(Result):
    """A result of given columns, whose verdict and assumption are one text."""

    schema = "specmath.fake/1"
    keys: ClassVar[tuple[str, ...]] = ()
    columns: ClassVar[Columns] = {}
    text: ClassVar[str] = ""
    inputs: Mapping[str, Cell] = MappingProxyType({})

    @property
    def verdict(self) -> str:
        return self.text

    @property
    def assumptions(self) -> tuple[str, ...]:
        return (self.text,) * bool(self.text)

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return (Advice(code="x", text=self.text, remedy=self.text),) * bool(self.text)

    @property
    def derivation(self) -> tuple[str, ...]:
        return self.assumptions

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def chunks(self, size: int = 0) -> Iterator[Columns]:
        yield self.columns


def fake(columns: Columns, text: str = "", inputs: Mapping[str, Cell] = MappingProxyType({})) -> Result:
    fields = {"columns": columns, "keys": tuple(columns), "text": text, "inputs": inputs}
    made = type("Made", (Fake,), fields)()
    assert isinstance(made, Result)
    return made


def written(result: Result, form: str) -> str:
    stream = io.StringIO()
    tables.write(result, stream, form, explain=True)
    return stream.getvalue()


def shown(result: Result, width: int) -> str:
    """What a terminal of that width shows, without colour."""
    stream = io.StringIO()
    terminal.show(result, Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("key", "values", "header", "cells"),
    [
        ("speedup", [1.5, 2.004, 0.0, -0.001], "speed-up", ["1.50", "2.00", "0.00", "0.00"]),
        ("acceptance_length", [2.7731, None], "E", ["2.773", "–"]),
        ("alpha", [0.7, 0.85], "α", ["0.70", "0.85"]),
        ("alpha", [0.7, 0.6], "α", ["0.7", "0.6"]),
        ("alpha", [0.71234], "α", ["0.7123"]),
        ("batch", [1, 1024], "batch", ["1", "1024"]),
        ("batch", [1, 16384, 1024], "batch", ["1", "16,384", "1,024"]),
        ("context", [2048.0, 0.0], "context", ["2048", "0"]),
        ("target_s", [0.0418, 0.2], "AR step (ms)", ["41.8", "200.0"]),
        ("target_s", [12.5e-6], "AR step (µs)", ["12.5"]),
        ("target_s", [75], "AR step (s)", ["75"]),
        ("memory_bytes", [80e9, None, 141e9], "memory (GB)", ["80", "–", "141"]),
        ("memory_bytes_per_s", [3.35e12, 900e9], "bandwidth (TB/s)", ["3.35", "0.90"]),
        ("peak_flops_per_s", [989.4e12], "peak (TFLOP/s)", ["989.4"]),
        ("queue_s", [0.001], "queue s (ms)", ["1"]),
        ("odd", [1e-7, 1.0, 123456.0], "odd", ["1e-07", "1", "123,456"]),
        ("odd", [1e300, 2.0], "odd", ["1.000e+300", "2"]),
        ("odd", [0.0], "odd", ["0"]),
        ("odd", ["a", 2, True], "odd", ["a", "2", "yes"]),
        ("survival", [[0.7, 0.49], []], "survival", ["0.700/0.490", "–"]),
        ("winning_batches", [[[1, 12000], [13000, 14000]]], "winning batches", ["1-12000/13000-14000"]),
        ("names", [["a/b", "c"]], "names", ["a/b; c"]),
    ],
)  # fmt: skip
def test_readable_column(key: str, values: list[Cell], header: str, cells: list[str]) -> None:
    (column,) = readable_columns(fake({key: values}))
    assert (column.header, column.cells) == (header, cells)


def test_long_fractions_in_texts_are_shortened_for_readers_alone() -> None:
    class Laws(Fake):
        keys = ("law",)
        columns: ClassVar[Columns] = {"law": ["survival=0.578921568627451/0.25", "rates=0.81/0.7"]}
        text = "survival=0.578921568627451, vllm 0.25.1"

    result = Laws()
    assert readable_columns(result)[0].cells == ["survival=0.5789/0.25", "rates=0.81/0.7"]
    assert notes_of(result, explain=False)[0].text == "survival=0.5789, vllm 0.25.1"
    data = io.StringIO()
    tables.write(result, data, "csv")
    assert "survival=0.578921568627451/0.25" in data.getvalue()


def test_remarks_stand_below_a_reader_s_table() -> None:
    class Remarked(Fake):
        keys = ("k", "batch")
        columns: ClassVar[Columns] = {"k": [1, 2], "batch": [3, 3]}
        shown_keys = ("k",)
        remarks = ("batch 3 in all rows",)

    for format, line in (("md", "- Note: batch 3 in all rows"), ("table", "note: batch 3 in all rows")):
        page = io.StringIO()
        tables.write(Remarked(), page, format)
        assert line in page.getvalue()
        assert page.getvalue().count("batch") == 1


def test_every_title_is_unique_and_every_key_its_own() -> None:
    assert all(key == column.key for key, column in COLUMNS.items())
    assert len({(column.title, column.unit) for column in COLUMNS.values()}) == len(COLUMNS)
    for key, unit in [("x_bytes_per_s", "B/s"), ("x_flops_per_s", "FLOP/s"), ("x_w", "W"), ("alphas", "")]:
        assert column_of(key).unit == unit


def test_column_without_any_value_is_left_out() -> None:
    result = fake({"k": [1, 2], "low": np.full(2, np.nan), "law": [None, None], "alpha": [None, 0.5]})
    for form in ("table", "md", "html"):
        text = written(result, form)
        assert "law" not in text
        assert "low" not in text
        assert "α" in text
    assert written(result, "latex").splitlines()[3] == r"k & $\alpha$ \\"
    assert written(result, "csv").startswith("k,low,law,alpha")


@pytest.mark.parametrize("form", ["table", "md", "html", "latex"])
def test_nothing_is_trimmed(form: str) -> None:
    columns: Columns = {f"c{i}": [f"r{n}c{i}" for n in range(80)] for i in range(40)}
    columns["long"] = ["x" * 300] * 80
    names = ("display.max_rows", "display.max_columns", "display.max_colwidth", "styler.render.max_elements")
    limits: list[Any] = [part for name in names for part in (name, 5)]
    with pd.option_context(*limits):
        text = written(fake(columns), form)
    assert len(set(re.findall(r"r\d+c\d+", text))) == 80 * 40
    assert text.count("x" * 300) == 80


# ---------------------------------------------------------------- the terminal


def wide() -> Result:
    survival = [round(0.7**i, 4) for i in range(1, 9)]
    return fake(
        {
            "case": ["typical", "memory_bound"],
            "alpha": [0.7, 0.7],
            "k": [8, 8],
            "batch": [1, 256],
            "acceptance_length": [2.7731, 2.7731],
            "survival": [survival, survival],
            "verify_cost": [1.02, 1.31],
            "speedup": [2.27, 1.84],
            "target_s": [0.0418, 0.061],
            "note": ["a sentence that goes on for longer than any table has room for", "short"],
        },
    )


def headers_in(text: str) -> set[str]:
    return {column.header for column in readable_columns(wide()) if column.header in text}


@pytest.mark.parametrize("width", range(8, 200))
def test_terminal_of_any_width_shows_whole_cells(width: int) -> None:
    text = shown(wide(), width)
    lines = text.splitlines()
    assert max(map(cell_len, lines)) <= width
    assert "…" not in text
    assert "2.27" in text  # the speed-up goes last
    if width >= 60:
        assert {"typical", "memory_bound", "256"} <= set(text.split())


def test_narrow_terminal_says_what_it_left_out() -> None:
    everything = {column.header for column in readable_columns(wide())}
    for width in (200, 120, 80, 60, 40):
        text = " ".join(shown(wide(), width).split())
        _, _, told = text.partition("left out for want of width: ")
        left_out = set(told.removesuffix(" (-f md shows all)").split(", ")) - {""}
        assert left_out <= everything
        least_kept = min(
            column.importance for column in readable_columns(wide()) if column.header not in left_out
        )
        for column in readable_columns(wide()):
            if column.header in left_out:
                assert column.importance <= least_kept
        assert bool(left_out) == (width < 120)


def test_vector_is_wrapped_between_its_numbers() -> None:
    text = shown(fake({"survival": [[0.7**i for i in range(12)]]}), 40)
    lines = [line.strip() for line in text.splitlines() if "/" in line]
    assert len(lines) == 3
    assert re.fullmatch(r"(\d\.\d{3}/?)+", "".join(lines))
    assert all(re.fullmatch(r"(\d\.\d{3}/)+(\d\.\d{3})?", line) for line in lines[:-1])
    one_line = shown(fake({"survival": [[0.7**i for i in range(12)]]}), 80)
    assert sum("/" in line for line in one_line.splitlines()) == 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def colours(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return monkeypatch


@pytest.mark.parametrize(
    ("variable", "value", "escapes"),
    [("LANG", "C", True), ("NO_COLOR", "1", False), ("TERM", "dumb", False), ("NO_COLOR", "", True)],
)
def test_colour_is_for_terminals_that_want_it(
    colours: pytest.MonkeyPatch, variable: str, value: str, escapes: bool
) -> None:
    colours.setenv(variable, value)
    stream = Terminal()
    tables.write(fake({"k": [1]}, "FASTER: 2×"), stream, "table")
    assert ("\x1b" in stream.getvalue()) == escapes


def test_anything_but_a_terminal_gets_full_width_and_no_escapes(colours: pytest.MonkeyPatch) -> None:
    text = written(wide(), "table")
    assert "\x1b" not in text
    assert headers_in(text) == {column.header for column in readable_columns(wide())}
    assert "goes on for longer than any table has room for" in text


# ---------------------------------------------------------------- text that stays text

HOSTILE = [
    "[red]x[/red] :smile:",
    "<script>alert(1)</script>&amp;",
    "a|b | c",
    r"\textbf{x} 50% $x^2$ #1 a_b ~",
    "*a* **b** _c_ `d` [e](f) ![g](h) ~~i~~ \\| \\",
    "``x`` a`b `c|d`",
    "__0__ a__b __c",
    "1. x",
    "| - | - |",
]


class Page(HTMLParser):
    """The tags of a page, and the text of its cells and of everything else, blanks collapsed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.inside: list[str] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)
        if tag in ("th", "td", "li", "strong", "p", "pre"):
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.texts:
            self.texts[-1] += data

    @property
    def blocks(self) -> list[str]:
        return [" ".join(text.split()) for text in self.texts]


def rendered(markdown: str) -> Page:
    return Page(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("form", ["md", "html"])
def test_hostile_text_is_shown_as_it_stands(form: str, text: str) -> None:
    page_text = written(fake({"case": [text], "k": [1]}, text), form)
    page = rendered(page_text) if form == "md" else Page(page_text)
    assert not page.tags & {"script", "em", "a", "img", "s", "ol", "h1"}
    prose = re.sub("(?<!`)`([^`]+)`(?!`)", r"\1", text)  # what stands in backticks is code
    verdict, *table, assumed, warned, _, _ = [block for block in page.blocks if block]
    assert verdict == prose
    assert table == ["case", "k", text, "1"]
    assert assumed == f"Assumes: {prose}"
    assert warned.startswith("Warning: ")
    assert page.blocks[-1] == text  # the derivation, verbatim


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_plain_in_terminal_and_latex(text: str) -> None:
    result = fake({"case": [text], "k": [1]}, text)
    assert f"{text}  1\n" in written(result, "table")
    assert f"assumes: {text}\n" in written(result, "table")
    cell = written(result, "latex").splitlines()[5].removesuffix(r" & 1 \\")
    assert not set(re.sub(r"\\([&%$#_{}]|(text[a-z]+|space)(\{\}| ))|\{[*[]\}", "", cell)) & set(
        "\\{}$&#^_~%<>|"
    )


def test_latex_row_does_not_begin_with_what_the_row_before_would_take() -> None:
    rows = written(fake({"case": ["[x]", "[2cm]", "*"]}), "latex").splitlines()
    assert rows[5:8] == [r"{[}x] \\", r"{[}2cm] \\", r"{*} \\"]


@given(st.text())
def test_any_name_is_one_harmless_cell(name: str) -> None:
    result = fake({"case": [name], "k": [1]}, name)
    (cell,) = readable_columns(result)[0].cells
    assert cell.isprintable()
    for form in ("table", "md"):
        text = written(result, form)
        assert text.replace("\n", "").isprintable()
        assert cell in text or form == "md"
    seen = rendered(written(fake({"case": [name], "k": [1]}), "md")).blocks
    assert seen == ["case", "k", " ".join(cell.split()), "1"]


def test_escape_sequences_do_not_reach_the_terminal() -> None:
    text = "\x1b]0;owned\x07\x1b[31mred\x9b31m\u202egpj\r\nsecond"
    result = fake({"case": [text], "k": [1]}, text)
    for form in ("table", "md", "latex", "html", "csv", "json"):
        assert written(result, form).replace("\r\n", "").replace("\n", "").isprintable()


def test_a_column_that_repeats_an_input_is_told_once() -> None:
    result = fake({"k": [4, 4], "batch": [1, 8], "speedup": [2.0, 1.5]}, inputs={"k": 4, "batch": [1, 8]})
    assert [column.header for column in readable_columns(result)] == ["batch", "speed-up"]
    assert notes_of(result, explain=False)[0] == ("for", "k 4, batch 1/8")


def test_inputs_are_told_in_the_unit_of_their_column() -> None:
    result = fake(
        {"k": [4]}, inputs={"memory_bytes_per_s": 3.35e12, "draft": None, "tdp_w": 700.0, "alpha": []}
    )
    assert notes_of(result, explain=False)[0].text == "bandwidth 3.35 TB/s, TDP 700 W"
