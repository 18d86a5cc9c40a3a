"""Text of a file or of stdin, of bounded size. Files of strangers come through here.

What cannot be read is an AccessError, what is no text a DataError, each in one line that ends in what to do.
"""

from __future__ import annotations

import sys
from errno import EINVAL
from pathlib import Path
from stat import S_ISREG
from typing import Final

from specmath.errors import AccessError, DataError, shown_path

MAX_BYTES: Final = 32 * 2**20
"""Most that is read: the longest published config.json takes some 6 MB, a million rows 20 MB."""


def file_text(path: str | Path, *, remedy: str) -> str:
    """The text of a regular file. `remedy` is what to do where there is none, for messages."""
    where = shown_path(path)
    try:
        content = _content(Path(path))
    except (OSError, ValueError) as error:  # the latter for a NUL in the name
        problem = (getattr(error, "strerror", None) or str(error)).lower()
        raise AccessError(where, f"{problem}; {remedy}") from error
    return _decoded(content, where, remedy)


def stdin_text(*, remedy: str) -> str:
    """The text of stdin, under the same rules as that of a file."""
    stream = getattr(sys.stdin, "buffer", sys.stdin)
    if stream is None:
        raise AccessError("stdin", "is closed; pipe a file into it")
    content = stream.read(MAX_BYTES + 1)
    return _decoded(content.encode() if isinstance(content, str) else content, "stdin", remedy)


def refuse_large(size: int, where: str) -> None:
    """Raises DataError for a size above MAX_BYTES."""
    if size > MAX_BYTES:
        raise DataError(where, f"is larger than {MAX_BYTES // 2**20} MiB, the most that is read")


def _content(path: Path) -> bytes:
    if not S_ISREG(path.stat().st_mode):  # a pipe may keep its reader waiting for ever
        raise OSError(EINVAL, "is a folder, pipe or device")
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES + 1)


def _decoded(content: bytes, where: str, remedy: str) -> str:
    refuse_large(len(content), where)
    try:
        if b"\0" in content:
            raise UnicodeError("NUL")
        return content.decode("utf-8-sig")
    except UnicodeError:
        raise DataError(where, f"is no text in UTF-8; {remedy}") from None
