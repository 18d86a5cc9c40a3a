"""Values as typed on the command line: worked examples, refusals, and what any text whatever may do."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from specmath.axes import MAX_VALUES, parse_axis, parse_linear, parse_record, parse_vector
from specmath.errors import InputError

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("0.7", "", [0.7]),
        (" 1 , 4,16 ", "", [1.0, 4.0, 16.0]),
        ("1:8", "", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
        ("4:4", "", [4.0]),
        ("0.5:0.9:0.1", "", [0.5, 0.6, 0.7, 0.8, 0.9]),
        ("0.1:0.7:0.2", "", [0.1, 0.3, 0.5, 0.7]),
        ("-1:1:.5", "", [-1.0, -0.5, 0.0, 0.5, 1.0]),
        ("1:10:4", "", [1.0, 5.0, 9.0]),  # the steps do not meet the end
        ("1:256:x2", "", [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
        ("1:1.61051:x1.1", "", [1.0, 1.1, 1.21, 1.331, 1.4641, 1.61051]),
        ("1k:16k:x2", "", [1000.0, 2000.0, 4000.0, 8000.0, 16000.0]),
        ("2k,8Ki", "", [2000.0, 8192.0]),
        ("10ms:50ms:20ms", "s", [0.01, 0.03, 0.05]),
        ("3.35TB/s", "B/s", [3.35e12]),
        ("1,2,4:8,2,1", "", [1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0]),  # repeats dropped, order kept
        ("4,1:2", "", [4.0, 1.0, 2.0]),
    ],
)
def test_axis_is_read(text: str, unit: str, expected: list[float]) -> None:
    assert parse_axis("alpha", text, unit) == expected


def test_whole_axis_gives_ints() -> None:
    values = parse_axis("batch", "1,2.0,4:64:x4", whole=True)
    assert values == [1, 2, 4, 16, 64]
    assert {type(value) for value in values} == {int}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "missing"),
        ("1,,4", "missing"),
        ("1:8:", "missing"),
        ("1:8:x", "missing"),
        ("nan", "not a number"),
        ("inf", "not a number"),
        ("1:inf", "not a number"),
        ("1e999", "too large"),
        ("1e999999999k", "too large"),
        ("8:1", "backwards"),
        ("1:8:0", "step above 0"),
        ("1:8:-1", "step above 0"),
        ("1:8:x1", "factor above 1"),
        ("1:8:x.5", "factor above 1"),
        ("0:8:x2", "start above 0"),
        ("1:2:3:4", "more parts"),
        ("1.5:4.5", "needs a step"),
        ("4.5", "not a whole number"),
        ("1:4:1.5", "not a whole number"),
        ("1,024", "write thousands without a comma"),
        ("8K", "ambiguous"),
        ("1:1e9", "more than 10,000,000"),
        ("1:1e300:1", "more than 10,000,000"),
        ("1:10:x1.0000000001", "more than 10,000,000"),
        ("1" * 100, "too long"),
        ("1e-400", "too close to 0"),
        ("٣", "not a number"),
        ("1:７", "not a number"),
    ],
)
def test_axis_refusal_names_the_parameter_and_a_right_example(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        parse_axis("batch", text, whole=True)
    message = str(caught.value)
    assert message.startswith("batch: ")
    assert message.isprintable()
    example = message.rsplit("for example ", 1)[1]
    assert [parse_axis("batch", one, whole=True) for one in example.split(" or ")]


def test_several_ranges_together_stay_below_the_limit() -> None:
    with pytest.raises(InputError, match="more than"):
        parse_axis("alpha", f"1:{MAX_VALUES},1:2")


@given(st.lists(finite, min_size=1))
def test_written_list_is_read_back(values: list[float]) -> None:
    assert parse_axis("alpha", ",".join(map(repr, values))) == list(dict.fromkeys(values))


@given(st.lists(finite, min_size=1))
def test_written_vector_is_read_back(values: list[float]) -> None:
    assert parse_vector("rates", "/".join(map(repr, values))) == tuple(values)


@given(finite, finite)
def test_written_line_is_read_back(intercept: float, slope: float) -> None:
    assert parse_linear("verify_cost", f"{intercept!r}{slope:+}k") == (intercept, slope)


@given(st.integers(-1000, 1000), st.integers(1, 500), st.integers(0, 300), st.integers(0, 4))
def test_range_steps_are_exact_decimals(start: int, step: int, steps: int, places: int) -> None:
    unit = Fraction(1, 10**places)
    expected = [float((start + i * step) * unit) for i in range(steps + 1)]
    ends = f"{expected[0]!r}:{expected[-1]!r}:{float(step * unit)!r}"
    assert parse_axis("alpha", ends) == expected


@given(st.integers(1, 9), st.integers(2, 10), st.integers(0, 12))
def test_geometric_range_is_exact(start: int, factor: int, steps: int) -> None:
    text = f"{start}:{start * factor**steps}:x{factor}"
    assert parse_axis("batch", text, whole=True) == [start * factor**i for i in range(steps + 1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.2", (1.2, 0.0)),
        ("1+.05k", (1.0, 0.05)),
        (" 1 + 0.05 * k ", (1.0, 0.05)),
        ("1-5e-2k", (1.0, -0.05)),
        ("2e-1+1E1k", (0.2, 10.0)),
        ("0", (0.0, 0.0)),
        ("1-0k", (1.0, 0.0)),
    ],
)
def test_line_is_read(text: str, expected: tuple[float, float]) -> None:
    assert parse_linear("verify_cost", text) == expected


@pytest.mark.parametrize(
    "text", ["", "k", "1+k", ".05k", "1+.05", "1++.05k", "1e999", "1+1e999k", "1e-400", "1+1e-400k", "one"]
)
def test_line_refusal_shows_both_forms(text: str) -> None:
    with pytest.raises(InputError, match=r"^verify_cost: .*; for example 1\.2 or 1\+\.05k$"):
        parse_linear("verify_cost", text)


@pytest.mark.parametrize("text", ["", "1//2", "/", ".8/x", ".8/nan", ".8,.7"])
def test_vector_refusal_shows_a_vector(text: str) -> None:
    with pytest.raises(InputError, match=r"^rates: .*; for example \.8/\.7/\.6$"):
        parse_vector("rates", text)


def test_record_is_read() -> None:
    assert parse_record("alpha_at", "2k=.62, 16k = .10") == {"2k": ".62", "16k": ".10"}
    assert parse_record("measured", "off=3120tok/s@32,on=a=b") == {"off": "3120tok/s@32", "on": "a=b"}
    fields = ("k", "acceptance_length")
    assert parse_record("measured", "acceptance-length=2.8,k=3", fields) == {
        "acceptance_length": "2.8",
        "k": "3",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no key=value pair"),
        ("k", "no key=value pair"),
        ("k=", "no key=value pair"),
        ("=3", "no key=value pair"),
        ("k=3,", "no key=value pair"),
        ("k=3,k=4", "'k' is given twice"),
        ("batch-size=3,batch_size=4", "'batch_size' is given twice"),
        ("bach=3", "unknown key 'bach'; use k, batch-size"),
    ],
)
def test_record_refusal_names_the_key(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        parse_record("measured", text, ("k", "batch_size"))
    assert str(caught.value).endswith("k=4,batch=8,speedup=1.7")


spoilt = st.text() | st.text(alphabet="0123456789.:,x-+eEkKMmsu=/ \x00\x1b٣½", max_size=12)


def _read(parse: Callable[[], Any]) -> Any:
    """What was read, or None after a refusal of one line."""
    try:
        return parse()
    except InputError as fault:
        refusal = str(fault)
    assert refusal.isprintable()
    return None


@settings(deadline=None)  # 0:9999999 is a lawful axis
@given(spoilt, st.sampled_from(["", "s", "tok/s"]))
def test_any_text_is_an_axis_or_refused(text: str, unit: str) -> None:
    values = _read(lambda: parse_axis("x", text, unit))
    assert values is None or (values and all(map(math.isfinite, values)))


@settings(deadline=None)
@given(spoilt)
def test_any_text_is_a_whole_axis_or_refused(text: str) -> None:
    values = _read(lambda: parse_axis("x", text, whole=True))
    assert values is None or {type(value) for value in values} == {int}


@pytest.mark.parametrize("parse", [parse_vector, parse_linear, parse_record])
@given(text=spoilt)
def test_any_text_is_a_value_or_refused(parse: Callable[[str, str], Any], text: str) -> None:
    value = _read(lambda: parse("x", text))
    assert value is None or value
