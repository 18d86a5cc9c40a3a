"""Files are written whole or not at all: a crash, Ctrl-C or a full disk leaves the old file as it was."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from specmath.errors import AccessError, shown_path

_DESCRIPTORS: Final = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
_REMEDIES: Final = {
    errno.ENOENT: "the folder does not exist; create it or choose another path",
    errno.ENOTDIR: "a part of the path is a file, not a folder; choose another path",
    errno.EISDIR: "is a folder; give the name of a file in it",
    errno.EACCES: "no permission to write there; choose another path",
    errno.EPERM: "no permission to write there; choose another path",
    errno.EROFS: "the disk is read-only; choose another path",
    errno.ENOSPC: "the disk is full; free some space or choose another path",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another path",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
    errno.EBADF: "is not open; open it, as in `9>rows.csv`, or choose another path",
    errno.ELOOP: "the symbolic link leads back to itself; choose another path",
}


@contextmanager
def atomic_write(path: str | Path) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends without an exception.

    The bytes go to a temporary file in the same folder, reach the disk, and are renamed in one step. A
    symbolic link stays and the file behind it is replaced; permissions are those of the replaced file,
    else the usual ones. Pipes and devices (`/dev/stdout`) cannot be replaced and are written directly.

    Raises:
        AccessError: in one line, where the system refuses. A broken pipe passes as it is.
    """
    place = Path(path)
    target = draft = place
    try:
        special = _is_special(place)
        target = place if special else place.resolve()
        draft = target.with_name(f".specmath-{secrets.token_hex(8)}.tmp")
        with target.open("wb") if special else _replacement(target, draft) as file:
            yield file
    except BrokenPipeError:
        raise
    except OSError as fault:
        if fault.filename is not None and Path(fault.filename) not in (place, target, draft):
            raise
        raise AccessError(shown_path(path), _reason(fault)) from fault


def _is_special(place: Path) -> bool:
    """Whether `place` is something other than a file, or a name for an open one (`/dev/stdout`)."""
    try:
        mode = place.stat().st_mode
    except FileNotFoundError as fault:
        if str(place).startswith(_DESCRIPTORS):
            raise OSError(errno.EBADF, "is not open", str(place)) from fault
        return False
    except ValueError as fault:
        raise OSError(errno.EINVAL, "not a possible path", str(place)) from fault
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder", str(place))
    return not stat.S_ISREG(mode) or str(place).startswith(_DESCRIPTORS)


@contextmanager
def _replacement(target: Path, draft: Path) -> Iterator[BinaryIO]:
    try:
        with draft.open("xb") as file:
            _copy_permissions(target, draft)
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


def _copy_permissions(target: Path, draft: Path) -> None:
    if not target.exists():
        return
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "is write-protected", str(target))
    with suppress(PermissionError):  # some file systems know no permissions
        draft.chmod(stat.S_IMODE(target.stat().st_mode))


def _reason(fault: OSError) -> str:
    return _REMEDIES.get(
        fault.errno or 0, f"cannot be written ({fault.strerror or fault}); choose another path"
    )
