"""YAML that is refused, each with one clear line, and how numbers, quantities and texts are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, reject, strategies as st

from specmath.errors import AccessError, DataError, SpecmathError
from specmath.strict_yaml import MAX_BYTES, MAX_DEPTH, MAX_KEY, read_yaml
from specmath.yaml_fields import MAX_TEXT, Fields

LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(letter)}: &{chr(letter)} [{', '.join([f'*{chr(letter - 1)}'] * 9)}]\n" for letter in range(98, 123)
)


def read(tmp_path: Path, content: str | bytes) -> Fields:
    path = tmp_path / "my.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_yaml(path)


def refusal(tmp_path: Path, content: str | bytes) -> str:
    with pytest.raises(SpecmathError) as caught:
        read(tmp_path, content)
    line = str(caught.value)
    assert "\n" not in line
    assert isinstance(caught.value, DataError)
    return line.removeprefix(f"{tmp_path / 'my.yaml'}: ")


HOSTILE = [
    pytest.param(LAUGHS, "line 1: anchors and aliases (&, *) are not read; write the value out", id="laughs"),
    pytest.param(
        "a: 1\nb: *a\n", "line 2: anchors and aliases (&, *) are not read; write the value out", id="alias"
    ),
    pytest.param(
        "a: &x {a: *x}\n", "line 1: anchors and aliases (&, *) are not read; write the value out", id="loop"
    ),
    pytest.param("a: 1\nb: 2\na: 3\n", "line 3: key 'a' is given twice", id="key twice"),
    pytest.param(
        "x: {a: 1, b: {c: 1, c: 2}}", "line 1: key 'c' is given twice", id="key twice, deep in a line"
    ),
    pytest.param('a: 1\n"a": 2\n', "line 2: key 'a' is given twice", id="key twice, once in quotes"),
    pytest.param("<<: {a: 1}\n", "line 1: merge keys (<<) are not read; write the keys out", id="merge key"),
    pytest.param(
        "a: !!python/object/apply:os.system ['true']\n",
        "line 1: tags ('tag:yaml.org,2002:python/object/apply:os.system') are not read; "
        "write the plain value",
        id="tag of a python object",
    ),
    pytest.param(
        "a: !!binary aGk=\n",
        "line 1: tags ('tag:yaml.org,2002:binary') are not read; write the plain value",
        id="tag of a standard type",
    ),
    pytest.param(
        "!mine {a: 1}\n", "line 1: tags ('!mine') are not read; write the plain value", id="tag of one's own"
    ),
    pytest.param(
        f"!{'x' * 50_000} a\n",
        f"line 1: tags ('!{'x' * 55}...) are not read; write the plain value",
        id="long tag",
    ),
    pytest.param(
        "!a%0Ab c\n", r"line 1: tags ('!a\nb') are not read; write the plain value", id="broken tag"
    ),
    pytest.param(
        "k" * (MAX_KEY + 1) + ": 1\n",
        f"line 1: a key must have at most {MAX_KEY} characters, got {MAX_KEY + 1}",
        id="long key",
    ),
    pytest.param("? [a]\n: 1\n", "line 1: a key must be a text of printable characters", id="list as key"),
    pytest.param('"a\\tb": 1\n', "line 1: a key must be a text of printable characters", id="tab in a key"),
    pytest.param('"": 1\n', "line 1: a key must be a text of printable characters", id="empty key"),
    pytest.param("a: " + "[" * 500, f"line 1: nested more than {MAX_DEPTH} levels deep", id="deep in a line"),
    pytest.param(
        "\n".join(" " * depth + "a:" for depth in range(1000)),
        f"line {MAX_DEPTH + 1}: nested more than {MAX_DEPTH} levels deep",
        id="deep by indentation",
    ),
    pytest.param("", "is empty", id="empty"),
    pytest.param("# nothing but this\n", "is empty", id="comment only"),
    pytest.param(
        "- a\n- b\n", "must be a mapping of keys to values at the top, got a list", id="list at the top"
    ),
    pytest.param(
        "h100\n", "must be a mapping of keys to values at the top, got 'h100'", id="text at the top"
    ),
    pytest.param(
        "--- \n", "must be a mapping of keys to values at the top, got nothing", id="null at the top"
    ),
    pytest.param(
        "a: 1\n---\nb: 2\n", "line 2: a second document starts here; one file is one document", id="two"
    ),
    pytest.param(
        "a: 1\n---\n", "line 2: a second document starts here; one file is one document", id="empty second"
    ),
    pytest.param("a: 1\nb: [1,\n", "line 3: not YAML: ", id="cut short"),
    pytest.param(
        "a: b: c\n", "line 1: not YAML: mapping values are not allowed in this context", id="two colons"
    ),
    pytest.param("a: 1\n\tb: 2\n", "line 2: not YAML: ", id="tab as indentation"),
    pytest.param(
        b"a: 1\nb: \xff\xfe\n", "line 2: is not UTF-8; save the file as UTF-8", id="latin or binary"
    ),
    pytest.param("a: 1\n".encode("utf-16"), "line 1: is not UTF-8; save the file as UTF-8", id="utf-16"),
    pytest.param(b"a: 1\nb: \x00\n", "line 2: contains the control character U+0000", id="NUL"),
    pytest.param(b"a: \x1b[31m\n", "line 1: contains the control character U+001B", id="escape"),
    pytest.param(
        b"\x89PNG\r\n\x1a\n" + bytes(40), "line 1: is not UTF-8; save the file as UTF-8", id="picture"
    ),
    pytest.param(
        "a: 1 #" + "x" * MAX_BYTES, "is larger than 1 MiB; split it into several files", id="too large"
    ),
]


@pytest.mark.parametrize(("content", "problem"), HOSTILE)
def test_hostile_yaml_ends_in_one_clear_line(tmp_path: Path, content: str | bytes, problem: str) -> None:
    line = refusal(tmp_path, content)
    assert line.startswith(problem) if problem.endswith("not YAML: ") else line == problem


@pytest.mark.parametrize(("content", "problem"), HOSTILE)
def test_the_parser_written_in_python_refuses_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | bytes, problem: str
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    line = refusal(tmp_path, content)
    assert line.split("not YAML")[0] == problem.split("not YAML")[0]


@pytest.mark.parametrize("opening", ["[", "a: [", "- ", "{a: ", "? "])
def test_a_hundred_thousand_levels_are_refused_without_harm(tmp_path: Path, opening: str) -> None:
    assert refusal(tmp_path, opening * 100_000).startswith("line 1: ")


@pytest.mark.parametrize("libyaml", [True, False])
def test_both_parsers_read_the_packaged_catalogue_alike(
    monkeypatch: pytest.MonkeyPatch, libyaml: bool
) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", libyaml)
    path = Path(__file__).parent.parent / "hardware.yaml"
    fields = read_yaml(path).section("accelerators")
    plain = yaml.safe_load(path.read_text(encoding="utf-8"))["accelerators"]
    assert list(fields) == list(plain)
    for name in fields:
        assert fields.named(name).texts("sources") == tuple(plain[name]["sources"])
        memory = fields.named(name).section("memory")
        assert memory.number("bytes_per_s", "B/s") == plain[name]["memory"]["bytes_per_s"]


@pytest.mark.parametrize("name", ["gone.yaml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(AccessError) as caught:
        read_yaml(tmp_path / name)
    problem = "is a directory; name a regular file" if name == "." else "no such file or directory"
    assert str(caught.value) == f"{tmp_path / name}: cannot be read: {problem}"


PIPE_OR_DEVICE = "cannot be read: is a pipe or device; name a regular file"


def a_pipe() -> Path:
    """A pipe that holds a good file, so that a reader who takes it does not wait."""
    reading, writing = os.pipe()
    os.write(writing, b"a: 1\n")
    os.close(writing)
    return Path(f"/dev/fd/{reading}")


needs_devices = pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no /dev here")


@needs_devices
def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "zero").symlink_to("/dev/zero")
    for path in (Path("/dev/null"), Path("/dev/zero"), tmp_path / "zero", a_pipe()):
        with pytest.raises(AccessError) as caught:
            read_yaml(path)
        assert str(caught.value) == f"{path}: {PIPE_OR_DEVICE}"


@needs_devices
def test_a_pipe_that_takes_the_place_of_the_file_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fifo").symlink_to(a_pipe())
    regular = Path(__file__).stat()
    monkeypatch.setattr(Path, "stat", lambda _: regular)
    with pytest.raises(AccessError, match=PIPE_OR_DEVICE):
        read_yaml(tmp_path / "fifo")


@pytest.mark.parametrize(
    ("name", "where"),
    [("", "."), ("\udcff", r"'\udcff'"), ("two\nlines", r"'two\nlines'"), ("a\0b", r"'a\x00b'")],
)
def test_a_path_is_named_so_that_it_can_be_read(name: str, where: str) -> None:
    with pytest.raises(AccessError) as caught:
        read_yaml(Path(name))
    assert str(caught.value).startswith(f"{where}: cannot be read: ")


def test_a_path_of_any_length_leaves_room_for_the_problem(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"^\.\.\..*/long/x: cannot be read: file name too long$") as caught:
        read_yaml(tmp_path / ("long/" * 10_000) / "x")
    assert len(str(caught.value)) < 400


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    fields = read(tmp_path, b"\xef\xbb\xbfa: one\r\nb: 2\r\n")
    assert (list(fields), fields.text("a"), fields.number("b")) == (["a", "b"], "one", 2)


@pytest.mark.parametrize(
    ("written", "unit", "value"),
    [
        ("80", "B", 80),
        ("-3", "", -3),
        ("85_899_345_920", "B", 80 * 2**30),
        ("125.0e+12", "FLOP/s", 125e12),
        ("1.0e-06", "s", 1e-6),
        (".5", "", 0.5),
        ("3.", "", 3),
        ("80 GiB", "B", 80 * 2**30),
        ('"3.35 TB/s"', "B/s", 3.35e12),
        ("125e12 FLOP/s", "FLOP/s", 125e12),
        ("989.4 TFLOP/s", "FLOP/s", 989.4e12),
        ("1.8us", "s", 1.8e-6),
        ("700W", "W", 700),
    ],
)
def test_a_number_or_quantity_is_read_in_base_units(
    tmp_path: Path, written: str, unit: str, value: float
) -> None:
    assert read(tmp_path, f"a: {written}\n").number("a", unit) == value


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ("125e12", "YAML 1.1 reads 125e12 as text; write 125.0e+12"),
        ("125e+12", "YAML 1.1 reads 125e+12 as text; write 125.0e+12"),
        ("4.8e12", "YAML 1.1 reads 4.8e12 as text; write 4.8e+12"),
        ("1e-6", "YAML 1.1 reads 1e-6 as text; write 1.0e-6"),
        ("-.5e3", "YAML 1.1 reads -.5e3 as text; write -0.5e+3"),
        ("-.5", "YAML 1.1 reads -.5 as text; write -0.5"),
        ("007", "YAML 1.1 reads 007 as an octal number; write 7"),
        ('"80"', "'80' is text, because of its quotes; write 80"),
        ("'1e12'", "'1e12' is text, because of its quotes; write 1.0e+12"),
        ("0x10", "'0x10' has no known unit"),
        ("1:30", "'1:30' has no known unit"),
        ("true", "'true' is not a number"),
        (".inf", "'.inf' is not a number"),
        ("2026-11", "'2026-11' has no known unit"),
        ("9.0e+999", "must be finite, got 9.0e+999"),
        ("{}", "must be a number, got a mapping"),
        ("８０", "'８０' is not a number"),
        ("٨٠", "'٨٠' is not a number"),
        ("8０", "'8０' has no known unit"),
        ("1.5e+1２", "'1.5e+1２' has no known unit"),
        ("0" * 50_000, f"must be a number, got '{'0' * 56}..."),
        ("[" + "0" * 50_000 + "]", "must be a number, got a list"),
    ],
)
def test_what_only_looks_like_a_number_is_refused_with_the_right_spelling(
    tmp_path: Path, written: str, problem: str
) -> None:
    with pytest.raises(DataError) as caught:
        read(tmp_path, f"a: {written}\n").number("a")
    assert str(caught.value).removeprefix(f"{tmp_path / 'my.yaml'}: a: ").startswith(problem)


@given(st.from_regex(r"[-+]?[0-9]{0,3}\.?[0-9]{0,3}([eE][-+]?[0-9]{1,2})?", fullmatch=True))
def test_a_number_is_read_as_yaml_1_1_reads_it_or_not_at_all(text: str) -> None:
    node = yaml.ScalarEvent(None, None, (True, False), text)
    try:
        known = yaml.safe_load(f"a: {text}\n")["a"]
    except yaml.YAMLError:
        reject()  # a lone dash begins a list
    try:
        value = Fields({"a": node}, "x").number("a")
    except DataError:
        assert known is None or isinstance(known, str) or text.lstrip("+-").startswith("0")
    else:
        assert value == known


def test_a_suggested_spelling_is_the_number_that_was_meant(tmp_path: Path) -> None:
    for text in ("125e12", "+4.8E12", "-1e-6", "5.e3", "1_000e3", "-.5", "+.5e3", "00.5e1"):
        with pytest.raises(DataError) as caught:
            read(tmp_path, f"a: {text}\n").number("a")
        spelling = str(caught.value).rpartition("write ")[2]
        assert read(tmp_path, f"a: {spelling}\n").number("a") == float(text.replace("_", ""))


def test_a_text_is_what_was_written_on_one_line(tmp_path: Path) -> None:
    fields = read(tmp_path, 'a: 2026-11\nb: yes\nc: "x\\n  y"\nd: |\n  two\n  lines\ne: ~\nf: "~"\n')
    assert [fields.text(key) for key in "abcdf"] == ["2026-11", "yes", "x y", "two lines", "~"]
    assert fields.optional_text("e") is None
    assert (list(fields), len(fields), "e" in fields) == (["a", "b", "c", "d", "f"], 5, False)


@pytest.mark.parametrize("date", ["２０２６-11", "2026-1", "26-11", "2026-11-31x", "2026-13"])
def test_a_date_is_written_in_ascii_digits(tmp_path: Path, date: str) -> None:
    with pytest.raises(DataError, match=f"a: must be a date like 2026-11 or 2026-11-30, got '{date}'$"):
        read(tmp_path, f"a: {date}\n").optional_date("a")
    assert read(tmp_path, "a: 2026-11-30\n").optional_date("a") == "2026-11-30"


def test_a_text_ends_somewhere(tmp_path: Path) -> None:
    assert read(tmp_path, f"a: {'x' * MAX_TEXT}\n").text("a") == "x" * MAX_TEXT
    with pytest.raises(DataError, match=f"a: must have at most {MAX_TEXT} characters, got {MAX_TEXT + 1}$"):
        read(tmp_path, f"a: {'x' * (MAX_TEXT + 1)}\n").text("a")
    with pytest.raises(DataError, match=r"must be a mapping of keys to values, got 'x{56}\.\.\.$"):
        read(tmp_path, f"a: {'x' * MAX_TEXT}\n").section("a")


def test_mappings_are_merged_key_by_key_and_lists_replaced(tmp_path: Path) -> None:
    base = read(tmp_path, "a: {x: 1, y: {p: 1, q: 2}}\nb: [1, 2]\nc: base\nd: 4\n")
    above = read(tmp_path, "a: {y: {q: 3}, z: 9}\nb: [7]\nd: null\n")
    merged = above.over(base, without=("c",))
    inner = merged.section("a")
    assert [inner.number("x"), inner.section("y").number("p"), inner.section("y").number("q")] == [1, 1, 3]
    assert (inner.number("z"), merged.texts("b"), list(merged)) == (9, ("7",), ["a", "b"])
    assert base.section("a").section("y").number("q") == 2  # untouched
