"""The log that outlives its run: whole lines stand, a torn last one goes, a full disk is said."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from specmath.append_log import MAX_BYTES, AppendLog, kept_lines
from specmath.errors import AccessError, DataError

REMEDY = "start anew"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def test_what_is_appended_is_read_back(path: Path) -> None:
    with AppendLog(path) as log:
        log.append({"a": 1})
        assert path.read_text() == '{"a": 1}\n', "a line is in the file before the next one comes"
        log.append({"b": "é"})
    assert kept_lines(path, REMEDY) == [({"a": 1}, 9), ({"b": "é"}, 21)]


@pytest.mark.parametrize("torn", [b'{"c', b'{"c": 3}', b"\xff", b"\r", b"x" * 99])
def test_a_torn_last_line_is_cut_off(path: Path, torn: bytes) -> None:
    path.write_bytes(b'{"a": 1}\n{"b": 2}\n' + torn)
    lines = kept_lines(path, REMEDY)
    assert [line for line, _ in lines] == [{"a": 1}, {"b": 2}]
    with AppendLog(path, lines[-1][1]) as log:
        log.append({"d": 4})
    assert path.read_bytes() == b'{"a": 1}\n{"b": 2}\n{"d": 4}\n'


def test_without_kept_bytes_a_log_starts_anew(path: Path) -> None:
    path.write_text("anything")
    with AppendLog(path):
        pass
    assert path.read_bytes() == b""
    assert kept_lines(path, REMEDY) == []


@pytest.mark.parametrize("line", [b"[1]", b"oops", b"\xff", b"", b'{"a": 1, "a": 2}'])
def test_a_whole_line_that_is_no_object_is_refused(path: Path, line: bytes) -> None:
    path.write_bytes(b'{"a": 1}\n' + line + b"\n")
    with pytest.raises(DataError, match="line 2 is no JSON object; start anew"):
        kept_lines(path, REMEDY)


def test_no_infinity_gets_in(path: Path) -> None:
    with AppendLog(path) as log, pytest.raises(ValueError, match="not JSON compliant"):
        log.append({"a": float("inf")})
    assert path.read_bytes() == b""


class Full:
    """A file on a disk that is full, from the middle of a line on or from its start."""

    def __init__(self, takes: int) -> None:
        self.takes = takes

    def write(self, text: bytes) -> int:
        if not self.takes:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.takes

    def close(self) -> None: ...


@pytest.mark.parametrize("takes", [0, 3])
def test_a_full_disk_is_said_and_keeps_what_is_there(
    path: Path, monkeypatch: pytest.MonkeyPatch, takes: int
) -> None:
    with AppendLog(path) as log:
        log.append({"a": 1})
        log._file.close()
        monkeypatch.setattr(log, "_file", Full(takes))
        with pytest.raises(AccessError, match=r"the disk is full; .* what is done is kept"):
            log.append({"a": 2})
    assert kept_lines(path, REMEDY) == [({"a": 1}, 9)]


def test_what_cannot_be_opened_or_is_too_large_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="cannot be used"):
        AppendLog(tmp_path)
    with pytest.raises(AccessError, match="cannot be used"):
        kept_lines(path, REMEDY)
    with path.open("wb") as stream:
        stream.truncate(MAX_BYTES + 1)
    with pytest.raises(DataError, match="is larger than 256 MiB; start anew"):
        kept_lines(path, REMEDY)


def test_lines_are_json(path: Path) -> None:
    with AppendLog(path) as log:
        log.append({"text": "two\nlines", "none": None})
    assert json.loads(path.read_text()) == {"text": "two\nlines", "none": None}
