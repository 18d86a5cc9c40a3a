"""HTTP GET within limits of time and size. Nothing but GET is ever sent from here.

The time limit holds for the whole answer, so that a server which drips is left; the size limit holds for what
is received and for what it unpacks to. Proxies are those of the environment (`https_proxy`, `no_proxy`).
"""

from __future__ import annotations

import gzip
import io
import socket
import ssl
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http.client import (
    HTTPConnection,
    HTTPException,
    HTTPResponse,
    HTTPSConnection,
    IncompleteRead,
    RemoteDisconnected,
)
from typing import Any, Final
from urllib.error import URLError
from urllib.request import AbstractHTTPHandler, OpenerDirector, ProxyHandler, Request

from specmath import __version__
from specmath.engines.addresses import TOKEN, Address, next_address, parse_address
from specmath.errors import AccessError, DataError, shown

MAX_REDIRECTS: Final = 5
_BLOCK: Final = 65_536
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_HEADERS: Final = {
    "User-Agent": f"specmath/{__version__}",
    "Accept": "text/plain;version=0.0.4, application/json, */*;q=0.1",
    "Accept-Encoding": "gzip, deflate",
}
_SAVE: Final = "save it to a file and give that"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one answer may take: seconds to connect, seconds in all, bytes as received and as unpacked."""

    connect_s: float = 5.0
    total_s: float = 30.0
    size_bytes: int = 32 * 2**20


USUAL: Final[Limits] = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer: the address that gave it, the status, and the body without its packing."""

    address: Address
    status: int
    body: bytes

    @property
    def is_good(self) -> bool:
        """Whether the status says that the body is what was asked for."""
        return 200 <= self.status < 300

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode("utf-8", "replace").removeprefix("\ufeff")


def fetch(url: str, limits: Limits = USUAL) -> Reply:
    """What a URL holds, by GET.

    Args:
        url: http or https; a name and password in it are sent, and never printed. Without them the token in
            SPECMATH_BEARER_TOKEN is sent, to this server alone.
        limits: Time and size.

    Returns:
        A reply whose status is 2xx.

    Raises:
        AccessError: nobody answers, not in time, not in TLS that can be trusted, or with an error status.
        DataError: the answer is too large, broken, or no text.
        InputError: the URL is none.
    """
    return require_good(get(url, limits))


def get(url: str, limits: Limits = USUAL) -> Reply:
    """As `fetch`, but an error status is an answer, too: other paths of the server may be worth asking."""
    asked, clock = parse_address(url), Clock(limits)
    for _ in range(MAX_REDIRECTS + 1):
        try:
            with _opened(asked, clock) as response:
                if response.status not in _REDIRECTS:
                    return _reply(asked, response, clock)
                asked = next_address(asked, response.headers.get("Location", ""))
        except (OSError, HTTPException, ValueError) as fault:
            if isinstance(fault, DataError):
                raise
            raise AccessError(asked.shown, connection_problem(fault, clock)) from None
    raise AccessError(asked.shown, f"is the {MAX_REDIRECTS}th redirection in a row; give the final address")


def require_good(reply: Reply) -> Reply:
    """The reply; AccessError for an error status."""
    if not reply.is_good:
        raise AccessError(reply.address.shown, f"answers {reply.status}, {_status_problem(reply.status)}")
    return reply


def _status_problem(status: int) -> str:
    if status in (401, 403):
        return f"which asks for credentials; set {TOKEN}"
    if status == 404:
        return "which means that it has no such path; give the server's base URL, or that of its /metrics"
    if status >= 500:
        return "which means that the server failed; wait until it is up, and look into its log"
    return "which is no metrics; check the address"


# ---------------------------------------------------------------- a connection that keeps time


class Clock:
    """What one answer may still take."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.end_s = time.monotonic() + limits.total_s

    def left_s(self) -> float:
        """Seconds that the next wait may last; TimeoutError where none are left."""
        left = self.end_s - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _TimedReads(io.RawIOBase):
    """Reads of a socket, none of which waits beyond the end of the whole."""

    def __init__(self, link: socket.socket, clock: Clock) -> None:
        self.link, self.clock = link, clock
        self.inner = link.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self.link.settimeout(self.clock.left_s())
        return self.inner.readinto(buffer)

    def close(self) -> None:
        self.inner.close()
        super().close()


class TimedLink:
    """What an HTTPResponse takes for its socket; its reads keep the time of a clock."""

    def __init__(self, link: socket.socket, clock: Clock) -> None:
        self.link, self.clock = link, clock

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReads(self.link, self.clock), _BLOCK)


class _Handler(AbstractHTTPHandler):
    http_request = https_request = AbstractHTTPHandler.do_request_

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def http_open(self, request: Request) -> HTTPResponse:
        return self.do_open(partial(self._connection, HTTPConnection), request)

    def https_open(self, request: Request) -> HTTPResponse:
        return self.do_open(partial(self._connection, HTTPSConnection), request)

    def _connection(self, kind: Callable[..., HTTPConnection], host: str, **options: Any) -> HTTPConnection:
        connection = kind(host, **options)
        connection.response_class = self._response  # type: ignore[assignment]
        return connection

    def _response(self, link: socket.socket, *options: Any, **named: Any) -> HTTPResponse:
        return HTTPResponse(TimedLink(link, self.clock), *options, **named)  # type: ignore[arg-type]


def _opened(asked: Address, clock: Clock) -> Any:
    opener = OpenerDirector()
    opener.add_handler(ProxyHandler())
    opener.add_handler(_Handler(clock))
    headers = _HEADERS | ({"Authorization": asked.authorization} if asked.authorization else {})
    request = Request(asked.url, headers=headers, method="GET")
    return opener.open(request, timeout=min(clock.limits.connect_s, clock.left_s()))


def connection_problem(fault: Exception, clock: Clock) -> str:
    """Why a server could not be asked, and what to do."""
    reason = fault.reason if isinstance(fault, URLError) else fault
    match reason:
        case ssl.SSLCertVerificationError():
            said = reason.verify_message or "it cannot be verified"
            return f"its certificate is not trusted ({said[:80]}); name its authority in SSL_CERT_FILE"
        case TimeoutError() if time.monotonic() >= clock.end_s:
            return f"the answer was not complete after {clock.limits.total_s:g} s; {_SAVE}"
        case TimeoutError():
            return f"no connection within {clock.limits.connect_s:g} s; check host, port and firewall"
        case socket.gaierror():
            return "the host is not known; check its name"
        case ConnectionRefusedError():
            return "nothing listens there; start the server, or check host and port"
        case ConnectionError() | IncompleteRead() | RemoteDisconnected() | ssl.SSLEOFError():
            return "the connection broke off; ask again when the server is up"
        case ssl.SSLError():
            return "does not speak TLS as it should; try http://"
        case HTTPException():
            return f"does not speak HTTP ({type(reason).__name__}); check the port, or try https://"
    said = getattr(reason, "strerror", None) or str(reason)
    return f"cannot be reached ({said.lower()[:80]}); check the address"


# ---------------------------------------------------------------- the body


def _reply(asked: Address, response: HTTPResponse, clock: Clock) -> Reply:
    packing = response.headers.get("Content-Encoding", "").strip().lower()
    body = _unpacked(_received(asked, response, clock), packing, asked, clock.limits.size_bytes)
    if b"\0" in body and not body.startswith((b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff")):
        kind = shown(response.headers.get("Content-Type", "unknown"))
        raise DataError(asked.shown, f"is no text (its type is {kind}); give the address of metrics or JSON")
    return Reply(address=asked, status=response.status, body=body)


def _received(asked: Address, response: HTTPResponse, clock: Clock) -> bytes:
    """The body as sent. A read of many bytes waits for all of them, so it is done by blocks."""
    limit = clock.limits.size_bytes
    if (response.length or 0) > limit:
        raise _too_large(asked, limit)
    blocks, size = [], 0
    while block := response.read1(_BLOCK):
        blocks.append(block)
        size += len(block)
        if size > limit:
            raise _too_large(asked, limit)
    if response.length:
        raise IncompleteRead(b"", response.length)
    return b"".join(blocks)


def _too_large(asked: Address, limit: int) -> DataError:
    size = f"{limit // 2**20} MiB" if limit >= 2**20 else f"{limit} bytes"
    return DataError(asked.shown, f"is larger than {size}, the most that is fetched; {_SAVE}")


def _unpacked(body: bytes, packing: str, asked: Address, limit: int) -> bytes:
    if packing in ("", "identity"):
        return body
    try:
        if packing in ("gzip", "x-gzip"):
            plain = gzip.GzipFile(fileobj=io.BytesIO(body)).read(limit + 1)
        elif packing == "deflate":
            plain = _inflated(body, limit)
        else:
            raise DataError(asked.shown, f"is packed as {shown(packing)}, which is not read; {_SAVE}")
    except (gzip.BadGzipFile, zlib.error, EOFError) as fault:
        raise DataError(asked.shown, f"is packed wrongly ({str(fault)[:50]}); {_SAVE}") from None
    if len(plain) > limit:
        raise _too_large(asked, limit)
    return plain


def _inflated(body: bytes, limit: int) -> bytes:
    """Deflate as the standard has it, with a zlib header, or as some servers send it, without."""
    wrapped = body[:1] in (b"\x08", b"\x18", b"\x28", b"\x38", b"\x48", b"\x58", b"\x68", b"\x78")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
    plain = unpacker.decompress(body, limit + 1)
    if len(plain) <= limit and not unpacker.eof:
        raise EOFError("its end is missing")
    return plain
