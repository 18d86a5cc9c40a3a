"""A log of JSON lines that outlives the run that writes it: what is appended once is kept.

One JSON object a line, flushed one by one. Whatever ends the run, a full disk or Ctrl-C, all lines but a torn
last one are kept, and a run that resumes appends behind them.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from specmath.errors import AccessError, DataError, SpecmathError, shown_path
from specmath.strict_json import json_document

MAX_BYTES: Final = 256 * 2**20


def kept_lines(path: Path, remedy: str) -> list[tuple[dict[str, Any], int]]:
    """The whole lines of a log, each with the place in the file where it ends; a torn last line is left out.

    Args:
        path: Where it lies.
        remedy: What to do where it cannot be used, as the end of an error.

    Raises:
        AccessError: where it cannot be read.
        DataError: where a whole line is no JSON object.
    """
    where = shown_path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(where, f"is larger than {MAX_BYTES >> 20} MiB; {remedy}")
        content = path.read_bytes()
    except OSError as fault:
        raise AccessError(where, _reason(fault)) from fault
    return list(_documents(content, where, remedy))


class AppendLog:
    """A log open for more lines. Use it as a context manager.

    Args:
        path: Where it lies.
        kept_bytes: Bytes of it that stand; what is behind them is cut off, all of it where 0.
    """

    def __init__(self, path: Path, kept_bytes: int = 0) -> None:
        self.path = path
        try:
            self._file = path.open("r+b" if kept_bytes else "wb", buffering=0)
            self._file.seek(kept_bytes)
            self._file.truncate()
        except OSError as fault:
            raise AccessError(shown_path(path), _reason(fault)) from fault

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line.

        Raises:
            AccessError: where it cannot be written, the disk being full for one.
        """
        try:
            text = json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n"
            if self._file.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as fault:
            raise AccessError(shown_path(self.path), _reason(fault)) from fault


def _documents(content: bytes, where: str, remedy: str) -> Iterator[tuple[dict[str, Any], int]]:
    end = 0
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        end += len(line) + 1
        try:
            document = json_document(line.decode(), where)
        except (UnicodeDecodeError, SpecmathError):
            document = None
        if not isinstance(document, dict):
            raise DataError(where, f"line {number} is no JSON object; {remedy}")
        yield document, end


def _reason(fault: OSError) -> str:
    if fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full; free some space and resume: what is done is kept"
    return f"cannot be used ({fault.strerror or fault})"
