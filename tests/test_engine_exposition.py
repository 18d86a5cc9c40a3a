"""Exposition text: what is read, what is passed over, and what two scrapes differ by."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from specmath.engines.content import Exposition
from specmath.engines.exposition import MAX_LINE, difference, parse_exposition, plain_name
from specmath.errors import DataError

DATA = Path(__file__).parent / "data"


def values(exposition: Exposition) -> dict[str, float]:
    """Values by name and labels, as in `a{b=c}`."""
    return {
        sample.name
        + "".join(f"{{{key}={value}}}" for key, value in sorted(sample.labels.items())): sample.value
        for sample in exposition.samples
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a 1\nb 2", {"a": 1, "b": 2}, id="no TYPE"),
        pytest.param("a 1\r\nb 2\r\n", {"a": 1, "b": 2}, id="CRLF"),
        pytest.param("\ufeffa 1\n", {"a": 1}, id="byte order mark"),
        pytest.param("# TYPE a counter\na_total 3\n# EOF\n", {"a_total": 3}, id="OpenMetrics"),
        pytest.param(
            "# TYPE vllm:a counter\nvllm_a_total 3\n# EOF\n", {"vllm_a_total": 3}, id="colon in TYPE only"
        ),
        pytest.param("# TYPE a counter\na 3\n", {"a": 3}, id="counter without _total keeps its name"),
        pytest.param('a{x="1",} 3 1700000000000\n', {"a{x=1}": 3}, id="timestamp and trailing comma"),
        pytest.param('a{x="1"} 3 1700000000.5\n', {"a{x=1}": 3}, id="OpenMetrics timestamp"),
        pytest.param('a{x="1"} 3 # {trace="t u"} 0.7 17.5\n', {"a{x=1}": 3}, id="exemplar"),
        pytest.param('a{x="}, \\"y\\" #"} 3\n', {'a{x=}, "y" #}': 3}, id="awkward label value"),
        pytest.param('{"vllm:a",x="1"} 3\n', {"vllm:a{x=1}": 3}, id="quoted name"),
        pytest.param("a +Inf\nb -Inf\n", {"a": math.inf, "b": -math.inf}, id="infinities"),
        pytest.param("# a comment\n\n#\n# HELP\n# TYPE a\na 1", {"a": 1}, id="comments"),
        pytest.param("", {}, id="empty"),
    ],
)
def test_samples_are_read_as_they_are_written(text: str, expected: dict[str, float]) -> None:
    exposition = parse_exposition(text)
    assert values(exposition) == expected
    assert exposition.notes == ()


def test_not_a_number_stays_in() -> None:
    (sample,) = parse_exposition("a NaN").samples
    assert math.isnan(sample.value)


@pytest.mark.parametrize(
    "line",
    [
        *("a", "a{", 'a{x="1"', 'a{x="1} 3', "a{x=1} 3", "a one", "9a 1", "a{} ", "<html>", "\x00", "a b c"),
        pytest.param("a" * (MAX_LINE + 1) + " 1", id="a line too long"),
        pytest.param('a{x="1",x="2"} 3', id="a label twice"),
    ],
)
def test_a_bad_line_costs_that_line_alone(line: str) -> None:
    exposition = parse_exposition(f"before 1\n{line}\nafter 2\n")
    assert values(exposition) == {"before": 1, "after": 2}
    (note,) = exposition.notes
    assert note.code == "lines-left-out"
    assert "1 line could not be read" in note.text
    assert "\x1b" not in note.text


def test_types_are_kept_under_their_own_names() -> None:
    exposition = parse_exposition('# TYPE a counter\n#  TYPE   b   gauge\n# TYPE "c.d" histogram\n')
    assert exposition.types == {"a": "counter", "b": "gauge", "c.d": "histogram"}


def between(earlier: str, later: str) -> dict[str, float]:
    return values(difference(parse_exposition(earlier), parse_exposition(later)))


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        pytest.param("a_total 3", "a_total 5", {"a_total": 2}, id="untyped total"),
        pytest.param("# TYPE a gauge\na 3", "# TYPE a gauge\na 5", {"a": 5}, id="gauge as it was last"),
        pytest.param(
            "# TYPE a_total gauge\na_total 3",
            "# TYPE a_total gauge\na_total 5",
            {"a_total": 5},
            id="gauge called total",
        ),
        pytest.param("# TYPE a counter\na 3", "# TYPE a counter\na 5", {"a": 2}, id="counter without suffix"),
        pytest.param("vllm:a_total 3", "vllm_a_total 5", {"vllm_a_total": 2}, id="colon, then underscore"),
        pytest.param(
            "a_sum 1.5\na_count 2", "a_sum 4\na_count 7", {"a_sum": 2.5, "a_count": 5}, id="histogram"
        ),
        pytest.param(
            'a_total{e="0"} 3',
            'a_total{e="0"} 4\na_total{p="1"} 9',
            {"a_total{e=0}": 1, "a_total{p=1}": 9},
            id="a new series counts from zero",
        ),
        pytest.param("a_total 3\nb_total 1", "a_total 4", {"a_total": 1}, id="a series that vanished"),
        pytest.param("a_total 900", "a_total 40", {"a_total": 40}, id="a reset counts from zero"),
        pytest.param(
            "a_total 900\na_b_total 5",
            "a_total 40\na_b_total 7",
            {"a_total": 40, "a_b_total": 7},
            id="a reset of one is that of its process",
        ),
        pytest.param(
            "a_total 3\na_created 100",
            "a_total 5\na_created 200",
            {"a_total": 5},
            id="created later: a reset that outgrew",
        ),
        pytest.param(
            "a_total 3\na_created 100", "a_total 5\na_created 100", {"a_total": 2}, id="created unchanged"
        ),
        pytest.param(
            "# TYPE n_busy_slots_per_decode counter\nn_busy_slots_per_decode 1.5\nx_total 1",
            "# TYPE n_busy_slots_per_decode counter\nn_busy_slots_per_decode 1.2\nx_total 3",
            {"n_busy_slots_per_decode": 1.2, "x_total": 2},
            id="a mean called counter",
        ),
    ],
)
def test_the_difference_of_two_scrapes(earlier: str, later: str, expected: dict[str, float]) -> None:
    assert between(earlier, later) == expected


def test_one_engine_restarts_and_the_other_goes_on() -> None:
    first = 'v:a_total{engine="0"} 100\nv:a_total{engine="1"} 100\nv:b_total{engine="0",position="0"} 9'
    second = 'v:a_total{engine="0"} 10\nv:a_total{engine="1"} 130\nv:b_total{engine="0",position="0"} 12'
    found = difference(parse_exposition(first), parse_exposition(second))
    assert values(found) == {
        "v:a_total{engine=0}": 10,
        "v:a_total{engine=1}": 30,
        "v:b_total{engine=0}{position=0}": 12,
    }
    assert [note.code for note in found.notes] == ["counters-reset"]
    assert found.notes[0].text == "engine 0 restarted between the scrapes: counted from zero"


def test_engines_that_come_and_go_are_named() -> None:
    first, second = 'v:a_total{engine="0"} 1', 'v:a_total{engine="1"} 1'
    notes = difference(parse_exposition(first), parse_exposition(second)).notes
    assert [(note.code, note.text[:11]) for note in notes] == [
        ("series-gone", "v{engine=0}"),
        ("series-new", "v{engine=1}"),
    ]


def test_scrapes_in_the_wrong_order_are_refused() -> None:
    place = DATA / "engine_samples_real"
    name = "vllm_cpu_0.32.0_pair_draft_T0.metrics.{}.txt"
    before, after = (
        parse_exposition((place / name.format(when)).read_text(), source=when) for when in ("before", "after")
    )
    assert difference(before, after).scope == "difference"
    with pytest.raises(DataError, match="give the earlier one with --since"):
        difference(after, before)


def test_a_scrape_minus_itself_is_zero() -> None:
    text = (DATA / "engine_samples" / "vllm-0.13.0-dp2-metrics-1.txt").read_text()
    scrape = parse_exposition(text)
    found = difference(scrape, scrape)
    assert found.notes == ()
    assert {
        sample.value for sample in found.samples if sample.name.endswith(("_total", "_sum", "_bucket"))
    } == {0}
    assert not [sample for sample in found.samples if sample.name.endswith("_created")]


def test_names_are_matched_whatever_signs_they_hold() -> None:
    assert plain_name("vllm:a.b-c_total") == "vllm_a_b_c_total"


@given(st.text())
def test_any_text_is_read_or_passed_over(text: str) -> None:
    parse_exposition(text)


LINES = st.lists(
    st.tuples(
        st.sampled_from(["a_total", "a_count", "b", "a_created", "v:a_total"]),
        st.sampled_from(["", '{engine="0"}', '{engine="1",position="2"}']),
        st.one_of(st.floats(), st.integers(-(10**400), 10**400)),
    ).map(lambda parts: f"{parts[0]}{parts[1]} {parts[2]}"),
    max_size=8,
).map("\n".join)


@given(LINES, LINES)
def test_any_two_scrapes_differ_by_something_or_are_refused(earlier: str, later: str) -> None:
    try:
        found = between(earlier, later)
    except DataError as error:
        assert "give the earlier one" in str(error)  # noqa: PT017
    else:
        assert all(value >= 0 or math.isnan(value) or "total" not in name or "-" in later + earlier
                   for name, value in found.items())  # fmt: skip


@given(st.data())
def test_cut_and_garbled_scrapes_keep_what_is_whole(data: st.DataObject) -> None:
    text = (DATA / "engine_samples" / "vllm-0.8.5-v1-metrics.txt").read_text()
    end = data.draw(st.integers(0, len(text)))
    place = data.draw(st.integers(0, end))
    garbled = text[:place] + data.draw(st.text(max_size=5)) + text[place:end]
    assert len(parse_exposition(garbled).samples) <= text.count("\n") + 6


def test_scrapes_of_two_servers_are_refused() -> None:
    with pytest.raises(DataError, match="no metric in common"):
        difference(parse_exposition("a_total 3"), parse_exposition("b_total 5"))
