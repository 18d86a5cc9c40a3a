"""One streamed completion over HTTP: lines stamped as they arrive, within limits of time, size and number.

The connection is direct, without a proxy, whose time would be measured too. Redirections are not followed: a
prompt and a token go to the address that the user named, and to no other.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Final
from urllib.parse import urlsplit

from specmath import __version__
from specmath.engines.addresses import TOKEN, Address
from specmath.engines.fetching import Clock, Limits, TimedLink, connection_problem
from specmath.engines.values import mapping, text
from specmath.errors import AccessError, DataError
from specmath.strict_json import json_document

DONE: Final = b"data: [DONE]"
MAX_LINE: Final = 1 << 20
_MAX_ERROR: Final = 65_536
_HEADERS: Final = {
    "User-Agent": f"specmath/{__version__}",
    "Accept": "text/event-stream",
    "Content-Type": "application/json",
}


class CalledOff(Exception):
    """The load was ended while a request was under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLimits:
    """What one streamed answer may take.

    Attributes:
        connect_s: Seconds to connect.
        silent_s: Seconds without a byte.
        total_s: Seconds in all.
        size_bytes: Bytes in all.
        lines: Events in all; each token may come in one of its own.
    """

    connect_s: float = 5.0
    silent_s: float = 60.0
    total_s: float = 180.0
    size_bytes: int = 16 * 2**20
    lines: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A streamed answer as it came.

    Attributes:
        where: The address, fit to be printed.
        sent_s: When the request was sent, the connection being there.
        lines: Time and content of each event.
    """

    where: str
    sent_s: float
    lines: tuple[tuple[float, bytes], ...]


class Halt:
    """Ends all requests under way at once, and keeps new ones from starting."""

    def __init__(self) -> None:
        self.is_called = False
        self._links: set[socket.socket] = set()
        self._lock = threading.Lock()

    def call(self) -> None:
        """End them."""
        with self._lock:
            self.is_called = True
            for link in self._links:
                with suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def holding(self, link: socket.socket) -> Iterator[None]:
        """A connection that ends with the rest; CalledOff where that has happened."""
        with self._lock:
            if self.is_called:
                raise CalledOff
            self._links.add(link)
        try:
            yield
        finally:
            with self._lock:
                self._links.discard(link)


class _Patience(Clock):
    """Time of one answer in all, and between any two bytes of it."""

    def __init__(self, limits: StreamLimits) -> None:
        super().__init__(Limits(connect_s=limits.connect_s, total_s=limits.total_s))
        self.silent_s = limits.silent_s
        self.is_connected = False

    def left_s(self) -> float:
        return min(super().left_s(), self.silent_s)

    @property
    def is_over(self) -> bool:
        """Whether no time is left in all."""
        with suppress(TimeoutError):
            self.left_s()
            return False
        return True


def stream(
    address: Address, body: bytes, clock: Callable[[], float], *, limits: StreamLimits, halt: Halt
) -> Stream:
    """POST a request, and stamp the events of its answer.

    Args:
        address: Where to; its credentials are sent there alone.
        body: A JSON document.
        clock: Called once when the request is sent, and once for each event.
        limits: Time, size and number of events.
        halt: Ends the answer early.

    Raises:
        AccessError: nobody answers, not in time, not to the end, or with an error status.
        CalledOff: `halt` was called.
        DataError: the answer is too long.
    """
    patience = _Patience(limits)
    connection = _connection(address, patience)
    try:
        connection.connect()
        patience.is_connected = True
        with halt.holding(connection.sock):
            sent_s = clock()
            connection.request("POST", _path(address), body, _headers(address))
            with connection.getresponse() as response:
                _require_good(address, response)
                events = _events(address, response, clock, limits)
            return Stream(where=address.shown, sent_s=sent_s, lines=events)
    except (OSError, HTTPException, ValueError) as fault:
        if halt.is_called:
            raise CalledOff from None
        if isinstance(fault, DataError):
            raise
        raise AccessError(address.shown, _problem(fault, patience, limits)) from None
    finally:
        connection.close()


def _connection(address: Address, patience: _Patience) -> HTTPConnection:
    parts = urlsplit(address.url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=patience.limits.connect_s)

    def response(link: socket.socket, *options: Any, **named: Any) -> HTTPResponse:
        return HTTPResponse(TimedLink(link, patience), *options, **named)  # type: ignore[arg-type]

    connection.response_class = response  # type: ignore[assignment]
    return connection


def _path(address: Address) -> str:
    parts = urlsplit(address.url)
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _headers(address: Address) -> dict[str, str]:
    return _HEADERS | ({"Authorization": address.authorization} if address.authorization else {})


def _events(
    address: Address, response: HTTPResponse, clock: Callable[[], float], limits: StreamLimits
) -> tuple[tuple[float, bytes], ...]:
    """The `data:` lines up to the mark of the end; what is none is left out."""
    lines: list[tuple[float, bytes]] = []
    size = 0
    while line := response.readline(MAX_LINE):
        size += len(line)
        if size > limits.size_bytes or len(lines) >= limits.lines:
            problem = f"does not end after {len(lines)} events and {size} bytes; look into the server's log"
            raise DataError(address.shown, problem)
        if line.startswith(b"data:"):
            lines.append((clock(), line.strip()))
            if line.strip() == DONE:
                break
    return tuple(lines)


# ---------------------------------------------------------------- what went wrong


def _require_good(address: Address, response: HTTPResponse) -> None:
    status = response.status
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        problem = "redirects, and a request is not sent on; give the final address"
        raise AccessError(address.shown, f"answers {status}: {problem}")
    said = _said(response.read(_MAX_ERROR))
    raise AccessError(address.shown, f"answers {status}{f' ({said})' if said else ''}; {_remedy(status)}")


def _said(body: bytes) -> str:
    """The server's own words, as far as a line may show them."""
    try:
        return error_text(json_document(body.decode("utf-8", "replace"), "answer"))
    except DataError:
        return ""


def error_text(document: Any) -> str:
    """What a document says of an error; empty where it tells of none.

    >>> error_text({"error": {"message": "no such model"}}), error_text({"choices": []})
    ('no such model', '')
    """
    told = mapping(document)
    fault = told.get("error", told if told.get("object") == "error" else None)
    said = text(fault) or text(mapping(fault).get("message")) or ""
    if not said and fault:
        said = "an error without words"
    plain = "".join(sign if sign.isprintable() else " " for sign in said[:1000])
    return " ".join(plain.split())[:160]


def _remedy(status: int) -> str:
    match status:
        case 401 | 403:
            return f"set {TOKEN}"
        case 404:
            return "check the address, and the name of the model"
        case 400 | 413 | 422:
            return "give shorter prompts or fewer output tokens, or another model"
        case 429:
            return "lower the concurrency, or ask when the server is idle"
    return "look into the server's log"


def _problem(fault: Exception, patience: _Patience, limits: StreamLimits) -> str:
    if not (isinstance(fault, TimeoutError) and patience.is_connected):
        return connection_problem(fault, patience)
    if patience.is_over:
        return f"the answer did not end within {limits.total_s:g} s; ask for fewer output tokens"
    return f"nothing came for {limits.silent_s:g} s; look into the server's log"
