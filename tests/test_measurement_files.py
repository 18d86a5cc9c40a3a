"""The public measurements and the reader of the user's own: schema, what is completed, what is refused."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from specmath.acceptance import expected_tokens
from specmath.catalogue import hardware_names
from specmath.errors import DataError, SpecmathError
from specmath.measured_speedups import METHODS, MeasuredSpeedup
from specmath.measurement_files import MAX_ROWS, public_measurements, read_measurements
from specmath.model_catalogue import model_names

ROW: dict[str, Any] = {"k": 3, "batch": 8, "acceptance_length": 2.5, "speedup": 1.7}


def written(tmp_path: Path, *rows: dict[str, Any] | str, name: str = "runs.jsonl") -> Path:
    path = tmp_path / name
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def only(tmp_path: Path, **changes: Any) -> MeasuredSpeedup:
    fields = {name: value for name, value in (ROW | changes).items() if value is not None}
    (row,) = read_measurements(written(tmp_path, fields))
    return row


# The public rows


def test_no_public_row_is_missing() -> None:
    """522 older rows, 294 of 2026; 186 and 243 of them state enough to be scored."""
    rows = public_measurements()
    assert Counter((row.collection, row.is_usable) for row in rows) == {
        ("older", True): 186,
        ("older", False): 336,
        ("2026", True): 243,
        ("2026", False): 51,
    }


def test_public_rows_use_the_catalogues_names() -> None:
    rows = public_measurements()
    assert {row.hardware for row in rows} - {None} <= set(hardware_names())
    assert ({row.target for row in rows} | {row.draft for row in rows}) - {None} <= set(model_names())
    assert {row.method for row in rows if row.is_usable} <= set(METHODS)


def test_methods_are_those_of_the_drafters_and_trees_that_no_model_drafts() -> None:
    from specmath.drafters.methods import METHODS as drafted

    assert set(METHODS) == {*drafted, "lookup-tree"}


def test_every_public_row_says_what_it_is() -> None:
    for row in public_measurements():
        assert row.source
        assert (row.left_out is None) == row.is_usable
        assert (row.usable == "assumed") == bool(row.assumed and row.is_usable)
        if row.is_usable and row.target is None:
            assert row.stated_target, row.id
        if row.is_usable and row.hardware is None:
            assert row.stated_hardware, row.id


def test_a_public_rate_agrees_with_its_acceptance_length() -> None:
    """Where a source gives α of a chain, E = 1 + α + … + α^k to the digits given (tables 2 and 4 of LEV)."""
    given = [row for row in public_measurements() if row.alpha is not None and row.is_usable]
    assert len(given) > 12
    for row in given:
        assert row.k is not None
        assert row.alpha is not None
        assert row.acceptance_length == pytest.approx(float(expected_tokens(row.alpha, row.k)), abs=2e-4)


def test_a_step_ratio_is_e_over_s(tmp_path: Path) -> None:
    assert only(tmp_path, acceptance_length=3.0, speedup=1.5).step_ratio == 2.0


# The user's own rows


def test_what_a_row_defaults_to(tmp_path: Path) -> None:
    path = written(tmp_path, "", ROW)
    (row,) = read_measurements(path)
    assert (row.id, row.source, row.usable, row.assumed) == ("row 2", str(path), "full", ())
    assert (row.tp, row.target, row.context) == (None, None, None)


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        pytest.param({"speedup": None, "plain_tpot_s": 0.02, "tpot_s": 0.01}, "speedup", 2.0, id="two times"),
        pytest.param({"acceptance_length": None, "alpha": 0.5}, "acceptance_length", 1.875, id="alpha"),
        pytest.param(
            {"acceptance_length": None, "survival": [0.8, 0.5, 0.2]}, "acceptance_length", 2.5, id="survival"
        ),
        pytest.param({"speedup": 1.7, "plain_tpot_s": 9, "tpot_s": 1}, "speedup", 1.7, id="given wins"),
    ],
)
def test_what_other_fields_give(tmp_path: Path, given: dict[str, Any], field: str, expected: float) -> None:
    assert getattr(only(tmp_path, **given), field) == pytest.approx(expected)


def test_csv_and_jsonl_read_alike(tmp_path: Path) -> None:
    fields = ROW | {
        "id": "a",
        "source": "me",
        "graphs": True,
        "survival": [0.8, 0.5, 0.2],
        "usable": "assumed",
    }
    (from_json,) = read_measurements(written(tmp_path, fields | {"assumed": ["batch: a guess", "k: too"]}))
    header = "id,source,k,batch,acceptance_length,speedup,graphs,survival,usable,assumed,note"
    line = "a,me, 3,8,2.5,1.7,TRUE,.8/.5/.2,assumed,batch: a guess; k: too,"
    (from_csv,) = read_measurements(written(tmp_path, header, line, "", name="runs.CSV"))
    assert from_csv == from_json


def test_an_unusable_row_needs_its_reason_only(tmp_path: Path) -> None:
    (row,) = read_measurements(written(tmp_path, {"usable": "no", "left_out": "no plain arm"}))
    assert not row.is_usable


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        pytest.param({"speedup": None}, "line 1: speedup: is missing; give it, or `usable: no`", id="no S"),
        pytest.param({"batch": None}, "batch: is missing", id="no batch"),
        pytest.param({"acceptance_length": None}, "acceptance_length: is missing", id="no E"),
        pytest.param({"k": "three"}, "k: must be a whole number from 0 to 10000, got 'three'", id="text"),
        pytest.param({"k": 2.5}, "k: must be a whole number from 0 to 10000, got 2.5", id="fraction"),
        pytest.param({"k": True}, "k: must be a whole number from 0 to 10000, got True", id="boolean"),
        pytest.param(
            {"speedup": -1.0}, "speedup: must be a number from 0.001 to 1000, got -1.0", id="negative"
        ),
        pytest.param({"speedup": 10**350}, "speedup: must be a number from 0.001 to 1000", id="huge"),
        pytest.param({"acceptance_length": 4.1}, "must be at most k \\+ 1 = 4, got 4.1", id="E above k + 1"),
        pytest.param({"acceptance_length": 0.7}, "from 1 to 10001, got 0.7", id="E without the bonus"),
        pytest.param({"speed_up": 2}, "unknown field 'speed_up'; nearest: speedup", id="unknown field"),
        pytest.param({"method": "magic"}, "method: must be one of draft-model, eagle", id="method"),
        pytest.param({"graphs": "yes"}, "graphs: must be true or false, got 'yes'", id="flag"),
        pytest.param({"survival": []}, "survival: must be a list of 1 to 1,000 numbers", id="no numbers"),
        pytest.param(
            {"survival": [1.2]}, "survival: must be a number from 0 to 1, got 1.2", id="probability"
        ),
        pytest.param({"source": 7}, "source: must be a text of up to 1,000 characters, got 7", id="no text"),
        pytest.param({"usable": "no"}, "left_out: is missing; say why the row is not usable", id="no reason"),
        pytest.param({"usable": "assumed"}, "assumed: is missing", id="nothing assumed"),
        pytest.param({"tpot_s": 0}, "tpot_s: must be a number from 1e-09 to 1e\\+06, got 0", id="no time"),
    ],
)
def test_refused_fields(tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        only(tmp_path, **changes)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        pytest.param("a.jsonl", b"", "holds no measurement; give one JSON object a line", id="empty"),
        pytest.param("a.jsonl", b'{"k":NaN}', "line 1: k: must be a whole number .*, got nan", id="nan"),
        pytest.param("a.csv", b"k\n", "holds no measurement", id="header only"),
        pytest.param("a.csv", b"k;batch\n1;2\n", "line 2: unknown field 'k;batch'", id="semicolons"),
    ],
)
def test_refused_files(tmp_path: Path, name: str, content: bytes, text: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=text) as caught:
        read_measurements(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert str(tmp_path / name) in str(caught.value)


def test_refused_repeats_and_lengths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2: id: 'a' stands twice"):
        read_measurements(written(tmp_path, ROW | {"id": "a"}, ROW | {"id": "a"}))
    with pytest.raises(DataError, match="has more than 10,000 rows"):
        read_measurements(written(tmp_path, *[json.dumps(ROW)] * (MAX_ROWS + 1)))


def test_every_refusal_is_specmaths_own(tmp_path: Path) -> None:
    """Bytes cut and swapped anywhere end in a SpecmathError or a valid table."""
    good = b"".join(json.dumps(ROW | {"id": str(place)}).encode() + b"\n" for place in range(3))
    for place in range(len(good)):
        for bad in (
            good[:place],
            good[:place] + b"\x00" + good[place + 1 :],
            good[:place] + b'"' + good[place:],
        ):
            (tmp_path / "bad.jsonl").write_bytes(bad)
            with suppress(SpecmathError):
                read_measurements(tmp_path / "bad.jsonl")
