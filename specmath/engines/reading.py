"""Bytes of a source: a file, stdin or a body already fetched, unpacked and decoded within limits.

A log is read line by line in constant memory; only documents and expositions are held whole.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EINVAL
from pathlib import Path
from stat import S_ISFIFO, S_ISREG
from typing import IO, Any, Final

from specmath.engines.addresses import is_url
from specmath.engines.telemetry import Telemetry
from specmath.errors import AccessError, DataError, shown_path

MAX_WHOLE: Final = 64 * 2**20
"""Most bytes of an exposition or a JSON document, unpacked."""
MAX_LOG: Final = 8 * 2**30
"""Most bytes of a log, unpacked; at 50 MB/s that is three minutes."""
MAX_UNKNOWN: Final = 64 * 2**20
"""Most characters of a log from stdin before its first line about speculation: a pipe may never end."""
MAX_LINE: Final = 65_536
"""Most characters of a log line; a longer one is read in pieces."""
HEAD: Final = 65_536
"""Bytes at the beginning by which a format is recognised."""
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_COLOURS: Final = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]")

Source = str | Path | IO[bytes]
"""A path, `-` for stdin, a URL, a text that holds a line break, or an open binary stream."""


class Content:
    """An open source: its head, and the rest as text or as lines.

    Attributes:
        name: What messages call it.
        may_be_endless: Whether nothing tells that it ends.
    """

    def __init__(self, stream: IO[bytes], name: str, *, may_be_endless: bool = False) -> None:
        self.may_be_endless = may_be_endless
        packed = io.BufferedReader(_Raw(stream), HEAD)
        self.name = name
        with _faults(name):
            gzipped = packed.peek(2)[:2] == b"\x1f\x8b"
        self.stream = io.BufferedReader(_Raw(gzip.GzipFile(fileobj=packed)), HEAD) if gzipped else packed
        with _faults(name):
            start = self.stream.read(HEAD)
        self.encoding = next((encoding for mark, encoding in _MARKS if start.startswith(mark)), "utf-8")
        self.start = start

    @property
    def head(self) -> str:
        """The beginning, whatever its encoding."""
        return self.start.decode(self.encoding, "replace")

    def text(self) -> str:
        """The whole text; DataError beyond MAX_WHOLE."""
        with _faults(self.name):
            content = self.start + self.stream.read(MAX_WHOLE + 1 - len(self.start))
        if len(content) > MAX_WHOLE:
            limit = f"is larger than {MAX_WHOLE // 2**20} MiB, the most that is read of metrics or JSON"
            raise DataError(self.name, f"{limit}; cut it into parts")
        return content.decode(self.encoding, "replace").removeprefix("\ufeff")

    def lines(self) -> Iterator[str]:
        """The lines without their ends and colour codes; DataError beyond MAX_LOG."""
        decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        kept, size, block = "", 0, self.start
        while block:
            size += len(block)
            if size > MAX_LOG:
                limit = f"is larger than {MAX_LOG // 2**30} GiB, the most that is read of a log"
                raise DataError(self.name, f"{limit}; cut it to the run that counts")
            kept += decoder.decode(block)
            *whole, kept = kept.split("\n")
            yield from map(_plain, whole)
            while len(kept) > MAX_LINE:
                yield _plain(kept[:MAX_LINE])
                kept = kept[MAX_LINE:]
            with _faults(self.name):
                block = self.stream.read(HEAD)
        if kept:
            yield _plain(kept)


class _Raw(io.RawIOBase):
    """Any stream with `read` as a raw one, so that its head can be looked at."""

    def __init__(self, stream: IO[bytes] | gzip.GzipFile) -> None:
        self.inner = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]
        block: bytes | str = self.inner.read(
            max(1, len(view) // 4)
        )  # a sign of text takes four bytes at most
        block = block.encode("utf-8", "replace") if isinstance(block, str) else block
        view[: len(block)] = block
        return len(block)


def remote_reader(source: Source) -> Callable[..., list[Telemetry]] | None:
    """Who asks a source that is a server: of an engine, or a Prometheus with its history; else None."""
    if isinstance(source, str) and source.startswith("prometheus:") and "\n" not in source:
        from specmath.engines.history import read_history

        return read_history
    if is_url(source):
        from specmath.engines.server_telemetry import read_server

        return read_server
    return None


def _plain(line: str) -> str:
    return (_COLOURS.sub("", line) if "\x1b" in line else line).rstrip("\r")


@contextmanager
def _faults(name: str) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, zlib.error, EOFError) as fault:
        raise DataError(name, f"is no whole gzip file ({str(fault)[:60]}); unpack it by hand") from None
    except OSError as fault:
        problem = (fault.strerror or str(fault)).lower()
        raise AccessError(name, f"{problem}; check the path") from fault


@contextmanager
def opened(source: Source, name: str = "") -> Iterator[Content]:
    """The content of `source`, closed afterwards unless it was handed in open.

    Raises:
        AccessError: it cannot be read.
    """
    if isinstance(source, str) and "\n" in source:
        yield Content(io.BytesIO(source.encode("utf-8", "replace")), name or "text")
    elif is_url(source):
        from specmath.engines.servers import metrics_of  # urllib takes 20 ms, only here

        page = metrics_of(str(source))
        yield Content(io.BytesIO(page.body), name or page.address.shown)
    elif isinstance(source, str | Path) and str(source) == "-":
        stdin: Any = getattr(sys.stdin, "buffer", sys.stdin)
        if stdin is None:
            raise AccessError("stdin", "is closed; pipe a file into it")
        yield Content(stdin, name or "stdin", may_be_endless=True)
    elif isinstance(source, str | Path):
        where = name or shown_path(source)
        with _file(source, where) as stream:
            yield Content(stream, where)
    else:
        yield Content(source, name or "stream")


def _without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to ends at once; one with a writer is read as usual."""
    number = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    os.set_blocking(number, True)
    return number


def _file(path: str | Path, where: str) -> IO[bytes]:
    try:
        mode = Path(path).stat().st_mode
        if not (S_ISREG(mode) or S_ISFIFO(mode)):
            raise OSError(EINVAL, "is a folder or device")
        return open(path, "rb", opener=_without_waiting)
    except (OSError, ValueError) as fault:  # the latter for a NUL in the name
        problem = (getattr(fault, "strerror", None) or str(fault)).lower()
        remedy = "give a file of metrics, a log, a JSON document, or - for stdin"
        raise AccessError(where, f"{problem}; {remedy}") from fault
