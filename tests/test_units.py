"""Numbers at the door: quantities as typed, exact texts, and the checks of ranges and counts."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, strategies as st

from specmath.acceptance import ConstantAcceptance
from specmath.checks import MAX_COUNT, require_count, require_range
from specmath.errors import InputError
from specmath.units import exact_text, parse_quantity

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("14.8ms", "s", 0.0148),
        (" 3.35 TB/s ", "B/s", 3.35e12),
        ("3.35\N{NO-BREAK SPACE}TB/s", "B/s", 3.35e12),  # as a web page has it
        ("250µs", "s", 0.00025),
        ("8Ki", "", 8192.0),
        ("1e-3k", "", 1.0),
        ("+.5e1", "", 5.0),
        ("5e-324", "", 5e-324),  # the smallest float above 0
        ("0.000", "", 0.0),
        ("0e-400", "", 0.0),
        ("-0.0e9ms", "s", 0.0),
        ("1.7976931348623157e308", "", 1.7976931348623157e308),
    ],
)
def test_a_quantity_is_read(text: str, unit: str, value: float) -> None:
    assert parse_quantity("x", text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "reason"),
    [
        ("٣", "", "is not a number"),
        ("７0", "", "is not a number"),
        ("8７", "", "no known unit"),
        ("1e٣", "", "no known unit"),
        ("1e-400", "", "too close to 0; write 0"),
        ("-0.001e-400", "", "too close to 0; write 0"),
        ("1e-320ns", "s", "too close to 0; write 0"),
        ("1e-999999999", "", "too close to 0; write 0"),
        ("1e308k", "", "too large a number"),
        ("-1e999999999", "", "too large a number"),
    ],
)
def test_a_quantity_is_refused(text: str, unit: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"^x: .*{re.escape(reason)}"):
        parse_quantity("x", text, unit)


@given(finite)
def test_exact_text_reads_back(value: float) -> None:
    text = exact_text(value)
    assert float(text) == value
    assert not text.endswith(".0")
    assert len(text) <= len(repr(value))


@pytest.mark.parametrize("value", [-0.0, [-0.0, 0.5], np.array([[-0.0]]), -0])
def test_minus_0_is_0(value: npt.ArrayLike) -> None:
    assert not np.signbit(require_range("alpha", value, 0, 1)).any()


def test_survival_of_minus_0_has_no_sign() -> None:
    assert str(ConstantAcceptance(-0.0).survival(2).tolist()) == "[0.0, 0.0]"


def test_a_checked_array_is_not_the_callers() -> None:
    given = np.array([0.5])
    checked = require_range("alpha", given)
    given[0] = 7.0
    assert checked.tolist() == [0.5]


@pytest.mark.parametrize("value", [0, 4.0, MAX_COUNT, float(MAX_COUNT), [1, 2**40], np.uint8(7)])
def test_a_count_passes(value: npt.ArrayLike) -> None:
    count = require_count("batch", value)
    assert count.dtype == np.int64
    assert count.tolist() == np.asarray(value, dtype=np.int64).tolist()


@pytest.mark.parametrize("value", [MAX_COUNT + 1, 1e19, 10**19, 1e300, int(1e300), [1, 10**19], [1, 10**30]])
def test_a_count_above_the_limit_is_told_the_limit(value: npt.ArrayLike) -> None:
    with pytest.raises(
        InputError, match=r"^batch: must be at most 9007199254740992 \(2\*\*53; .*got (?!1\]?$)"
    ):
        require_count("batch", value)


@pytest.mark.parametrize(
    ("value", "fact"),
    [
        (4.5, "a whole number of at least 1, got 4.5"),
        ([3, 0, 10**4], "a whole number of at least 1, got 0"),
        (float("nan"), "a whole number of at least 1, got nan"),
        (float("inf"), "at most 9007199254740992"),
        (10**400, "within the range of a float"),
        ([10**400, 0.5], "within the range of a float"),
        (True, "a number or an array of numbers, got True"),
        ([True, 10**30], "a number or an array of numbers"),
        ("4", "a number or an array of numbers, got '4'"),
        ([[1], [2, 3]], "a number or an array of numbers"),
    ],
)
def test_what_is_no_count_is_refused(value: npt.ArrayLike, fact: str) -> None:
    with pytest.raises(InputError, match=f"^batch: must be {re.escape(fact)}"):
        require_count("batch", value, 1)


def test_a_number_too_long_to_print_is_refused_all_the_same() -> None:
    with pytest.raises(InputError, match=r"^batch: must be within the range of a float"):
        require_count("batch", 10**5000)


def test_a_count_with_a_limit_of_its_own_names_both_ends() -> None:
    with pytest.raises(InputError, match=r"^k: must be a whole number from 0 to 10000, got 1e\+300$"):
        require_count("k", 1e300, 0, 10_000)
    with pytest.raises(InputError, match=r"^k: must be a whole number from 0 to 10000, got 1e\+300$"):
        require_count("k", int(1e300), 0, 10_000)


def test_a_large_whole_number_is_a_float_where_any_number_will_do() -> None:
    assert require_range("x", 10**300) == 1e300
    assert require_range("x", [10**30, 0.5]).tolist() == [1e30, 0.5]
