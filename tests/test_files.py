"""Whole-or-nothing writing: what is there after success, after every kind of failure, and what is said."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from specmath.errors import AccessError, shown_path
from specmath.files import atomic_write


def put(path: Path | str, content: bytes = b"new") -> None:
    with atomic_write(path) as file:
        file.write(content)


def contents(folder: Path) -> dict[str, bytes]:
    return {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.exists()}


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def test_new_file_has_the_bytes_and_the_usual_permissions(tmp_path: Path, umask: int) -> None:
    put(tmp_path / "rows.csv")
    assert permissions(tmp_path / "rows.csv") == 0o666 & ~umask
    assert contents(tmp_path) == {"rows.csv": b"new"}


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o664, 0o755])
def test_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"old and longer")
    path.chmod(mode)
    put(path)
    assert path.read_bytes() == b"new"
    assert permissions(path) == mode


def test_nothing_is_seen_before_the_end(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"x" * 1_000_000)
        file.flush()
        assert path.read_bytes() == b"old"


@pytest.mark.parametrize(
    "failure", [ValueError("bad cell"), KeyboardInterrupt(), SystemExit(3), MemoryError()]
)
@pytest.mark.parametrize("old", [b"old", None])
def test_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, failure: BaseException, old: bytes | None
) -> None:
    path = tmp_path / "rows.csv"
    if old is not None:
        path.write_bytes(old)

    def half() -> Iterator[bytes]:
        yield b"half"
        raise failure

    with pytest.raises(type(failure)) as caught, atomic_write(path) as file:
        file.writelines(half())
    assert caught.value is failure
    assert contents(tmp_path) == ({} if old is None else {"rows.csv": old})


def test_interrupted_process_leaves_nothing(tmp_path: Path) -> None:
    script = f"""
import sys, time
from specmath.files import atomic_write
with atomic_write({str(tmp_path / "rows.csv")!r}) as file:
    file.write(b"half"); file.flush()
    print("writing", flush=True)
    time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"writing\n"
        assert list(contents(tmp_path).values()) == [b"half"]  # the probe can see a draft
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert contents(tmp_path) == {}


def test_symbolic_link_stays_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    target, link = tmp_path / "data" / "real.csv", tmp_path / "link.csv"
    target.write_bytes(b"old")
    link.symlink_to("data/real.csv")
    put(link)
    assert link.is_symlink()
    assert contents(target.parent) == {"real.csv": b"new"}


def test_dangling_link_makes_its_target(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("later.csv")
    put(tmp_path / "link.csv")
    assert (tmp_path / "later.csv").read_bytes() == b"new"


def test_relative_path_is_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put("rows.csv")
    assert contents(tmp_path) == {"rows.csv": b"new"}


def test_device_is_written_directly() -> None:
    put("/dev/null")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("to_file", [False, True], ids=["pipe", "file"])
def test_standard_output_is_written_directly(tmp_path: Path, to_file: bool) -> None:
    script = "from specmath.files import atomic_write\nwith atomic_write('/dev/stdout') as f: f.write(b'new')"
    command = [sys.executable, "-c", script]
    if to_file:
        with (tmp_path / "out").open("wb") as out:
            subprocess.run(command, stdout=out, check=True)
            inode = os.fstat(out.fileno()).st_ino
        assert (tmp_path / "out").stat().st_ino == inode
        assert (tmp_path / "out").read_bytes() == b"new"
    else:
        assert subprocess.run(command, capture_output=True, check=True).stdout == b"new"


def test_named_pipe_is_written_directly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE) as reader:
        put(pipe)
        assert reader.communicate(timeout=30)[0] == b"new"
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def refusal(path: Path | str) -> str:
    with pytest.raises(AccessError) as caught:
        put(path)
    message = str(caught.value)
    assert caught.value.where == shown_path(path)
    assert "\n" not in message
    return message


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"old")
    (tmp_path / "loop").symlink_to("loop")
    assert "create it" in refusal(tmp_path / "missing" / "rows.csv")
    assert "give the name of a file" in refusal(tmp_path)
    assert "not a folder" in refusal(tmp_path / "plain" / "rows.csv")
    assert "shorter" in refusal(tmp_path / ("n" * 300))
    assert "link leads back" in refusal(tmp_path / "loop")
    assert "choose another path" in refusal(f"{tmp_path}/nul\0")
    assert contents(tmp_path) == {"plain": b"old"}


@pytest.mark.parametrize("name", ["/dev/fd/987", "/proc/self/fd/987"])
def test_a_closed_descriptor_is_no_missing_folder(name: str) -> None:
    assert "is not open; open it" in refusal(name)


def test_full_device_is_reported() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    assert "disk is full" in refusal("/dev/full")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_disk_that_fails_at_the_end_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    path = tmp_path / "rows.csv"
    path.write_bytes(b"old")
    monkeypatch.setattr("os.fsync", fail)
    assert "choose another path" in refusal(path)
    assert contents(tmp_path) == {"rows.csv": b"old"}


def test_disk_that_fills_up_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"old")
    script = f"""
import resource, signal
from specmath.errors import AccessError, shown_path
from specmath.files import atomic_write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with atomic_write({str(path)!r}) as file:
        for _ in range(1000): file.write(b"x" * 1000)
except AccessError as fault:
    print(fault)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.startswith(f"{path}: cannot be written (File too large)")
    assert told.stderr == ""
    assert contents(tmp_path) == {"rows.csv": b"old"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_lack_of_permission_is_reported(tmp_path: Path) -> None:
    protected = tmp_path / "protected.csv"
    protected.write_bytes(b"old")
    protected.chmod(0o444)
    assert "no permission" in refusal(protected)
    tmp_path.chmod(0o555)
    assert "no permission" in refusal(tmp_path / "rows.csv")
    tmp_path.chmod(0o755)
    assert protected.read_bytes() == b"old"


def test_fault_of_another_file_keeps_its_own_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="elsewhere"), atomic_write(tmp_path / "rows.csv"):
        (tmp_path / "elsewhere").read_bytes()
    assert contents(tmp_path) == {}


def test_broken_pipe_passes_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), atomic_write(tmp_path / "rows.csv"):
        raise BrokenPipeError(errno.EPIPE, "nobody reads")
