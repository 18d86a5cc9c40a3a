"""The raw log: what was measured stays, whatever ends the run."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calibrate.kept_findings import Finding
from calibrate.raw_log import RawLog
from specmath.calibrations import Place
from specmath.errors import AccessError, DataError

SETUP = {"target": "a", "draft": "b", "threads": 1}
PLACE = Place(part="target", batch=2, width=3, context=128)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cal.log.jsonl"


def log(path: Path, *, resume: bool = False, fresh: bool = False, **setup: Any) -> RawLog:
    return RawLog(path, SETUP | setup, resume=resume, fresh=fresh)


def begun(path: Path) -> None:
    with log(path) as open_log:
        open_log.tell(PLACE, 0.25)
        open_log.tell(PLACE, 0.5)
        open_log.keep("proof", {"batch": 1})


def test_a_resumed_run_knows_repeats_and_findings(path: Path) -> None:
    begun(path)
    with log(path, resume=True) as again:
        assert again.repeats == {PLACE: [0.25, 0.5]}
        assert again.findings == {"proof": [Finding(f"{path}: line 4", {"batch": 1})]}
        again.tell(PLACE, 0.75)
    with log(path, resume=True) as third:
        assert third.repeats == {PLACE: [0.25, 0.5, 0.75]}


def test_each_line_is_on_its_way_to_the_disk_when_tell_returns(path: Path) -> None:
    with log(path) as open_log:
        open_log.tell(PLACE, 0.25)
        assert len(path.read_text().splitlines()) == 2


def test_a_torn_last_line_is_dropped_and_written_over(path: Path) -> None:
    begun(path)
    with path.open("a") as file:
        file.write('{"place": ["target", 2, 3, 128], "seco')
    with log(path, resume=True) as again:
        assert again.repeats == {PLACE: [0.25, 0.5]}
        again.tell(PLACE, 1.0)
    with log(path, resume=True) as third:
        assert third.repeats == {PLACE: [0.25, 0.5, 1.0]}


def test_a_log_torn_in_its_first_line_is_begun_anew(path: Path) -> None:
    path.write_text('{"schema": "specm')
    with log(path, resume=True) as again:
        assert not again.repeats
    assert len(path.read_text().splitlines()) == 1


def test_an_unfinished_run_is_not_written_over_unasked(path: Path) -> None:
    begun(path)
    with pytest.raises(AccessError, match=r"did not end; give --resume to take it up, or give --fresh"):
        log(path)
    with log(path, fresh=True) as anew:
        assert not anew.repeats
    assert len(path.read_text().splitlines()) == 1


def test_another_set_up_is_refused_by_name(path: Path) -> None:
    begun(path)
    with pytest.raises(DataError, match=r"was measured with threads '1', not '2'"):
        log(path, resume=True, threads=2)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("[]\n", "line 1 is no JSON object"),
        ('{"schema": "other"}\n', "is no log of a calibration"),
        ("\xff\n", "is no log|no JSON object"),
        ('{HEAD}\n{"place": ["moon", 1, 1, 1], "seconds": 1}\n', r"line 2: place: must be"),
        ('{HEAD}\n{"place": ["target", 0, 1, 1], "seconds": 1}\n', r"line 2: place: must be"),
        ('{HEAD}\n{"place": ["target", true, 1, 1], "seconds": 1}\n', r"line 2: place: must be"),
        ('{HEAD}\n{"place": ["target", 1, 1, 1], "seconds": -1}\n', r"line 2: seconds: must be between"),
        ('{HEAD}\n{"place": ["target", 1, 1, 1], "seconds": NaN}\n', r"line 2: seconds: must be between"),
        ('{HEAD}\n{"place": 3, "seconds": 1}\n', r"line 2: place: must be"),
        ('{HEAD}\n{"place": ["target", 1' + 30 * "0" + ', 1, 1], "seconds": 1}\n', r"line 2: place: must be"),
        (
            '{HEAD}\n{"moon": {}}\n',
            r"line 2: must be a repeat or one of timing, acceptance, proof, got 'moon'",
        ),
        ('{HEAD}\n{"proof": {}, "timing": {}}\n', r"line 2: must be a repeat or one of"),
        ("{HEAD}\n{}\n", r"line 2: must be a repeat or one of"),
        ('{HEAD}\n{"proof": [1]}\n', r"line 2: proof: must be a table"),
        (
            '{"schema": "specmath.calibration-log/1", "setup": {}, "load": "x"}\n',
            "was measured with|load: must",
        ),
    ],
)
def test_a_broken_log_is_one_clear_line(path: Path, lines: str, problem: str) -> None:
    head = json.dumps({"schema": "specmath.calibration-log/1", "setup": SETUP})
    path.write_text(lines.replace("{HEAD}", head), encoding="latin-1")
    with pytest.raises(DataError, match=problem) as fault:
        log(path, resume=True)
    assert "\n" not in str(fault.value)


def test_a_full_disk_keeps_what_was_measured(path: Path) -> None:
    open_log = log(path)
    open_log.tell(PLACE, 0.25)

    class Full:
        def write(self, _: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    whole, open_log._log._file = open_log._log._file, Full()  # type: ignore[assignment]
    with pytest.raises(AccessError, match=r"disk is full; .*resume: what is done is kept"):
        open_log.tell(PLACE, 0.5)
    whole.close()
    os.close(open_log._lock)
    with log(path, resume=True) as again:
        assert again.repeats == {PLACE: [0.25]}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="cannot be used"):
        log(tmp_path / "none" / "cal.log.jsonl")


def test_a_pipe_or_a_device_is_no_log(path: Path) -> None:
    os.mkfifo(path)
    for asked in ({}, {"resume": True}, {"fresh": True}):
        with pytest.raises(AccessError, match="is no regular file"):
            log(path, **asked)
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(AccessError, match="is no regular file"):
        log(path)


def test_one_run_at_a_time_writes_a_log(path: Path) -> None:
    begun(path)
    with log(path, resume=True) as first:
        for asked in ({"resume": True}, {"fresh": True}):
            with pytest.raises(AccessError, match="is being written by another run"):
                log(path, **asked)
        first.tell(PLACE, 0.75)
    with log(path, resume=True) as again:
        assert again.repeats == {PLACE: [0.25, 0.5, 0.75]}


def test_a_process_that_was_killed_holds_nothing(path: Path) -> None:
    script = (
        "import os, sys\nfrom pathlib import Path\nfrom calibrate.raw_log import RawLog\n"
        f"log = RawLog(Path(sys.argv[1]), {SETUP!r}, resume=False, fresh=False)\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -9
    assert path.stat().st_size > 0
    log(path, resume=True).__exit__()


def test_the_heavier_load_of_both_runs_counts(path: Path) -> None:
    with RawLog(path, SETUP, load=5.6, resume=False, fresh=False) as first:
        assert first.load == 5.6
    for now, told in ((1.0, 5.6), (7.0, 7.0)):
        with RawLog(path, SETUP, load=now, resume=True, fresh=False) as again:
            assert again.load == told
