"""What every test starts from, and a real web server for those that fetch."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine fails no test
settings.load_profile("untimed")

TLS = Path(__file__).with_name("data") / "tls"


@pytest.fixture(autouse=True)
def _no_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue as it is packaged, whatever the developer's shell has set."""
    monkeypatch.delenv("SPECMATH_HARDWARE", raising=False)


Action = Callable[[BaseHTTPRequestHandler], None]


class Web:
    """A web server on this machine. Paths that were not set answer 404.

    Attributes:
        url: Its base URL.
        asked: Method, path and headers of every request, in order.
        closing: Set when the test is over; what drips waits on it.
    """

    def __init__(self, *, tls: bool = False) -> None:
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.closing = threading.Event()
        self.actions: dict[str, Action] = {}
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(TLS / "certificate.pem", TLS / "key.pem")
            self.server.socket = context.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def paths(self) -> list[str]:
        """Paths asked for, in order."""
        return [path for _, path, _ in self.asked]

    def on(self, path: str, action: Action) -> None:
        """Let a function answer a path; queries are left out where the whole path was not set."""
        self.actions[path] = action

    def serve(
        self, path: str, body: bytes | str | Any, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        """Answer a path with bytes, a text or a document."""
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        content = text.encode() if isinstance(text, str) else text

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            for name, value in ({"Content-Length": str(len(content))} | (headers or {})).items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(content)

        self.on(path, answer)

    def redirect(self, path: str, location: str, status: int = 302) -> None:
        """Send a path elsewhere."""
        self.serve(path, b"", status, {"Location": location})

    def drip(self, path: str, start: bytes, every_s: float = 0.02) -> None:
        """Answer byte by byte without an end; `start` is what comes at once, the status line and all."""

        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.wfile.write(start)
            while not self.closing.wait(every_s):
                handler.wfile.write(b"x")
                handler.wfile.flush()

        self.on(path, answer)

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is what half of the tests are about."""


def _handler(web: Web) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            web.asked.append((self.command, self.path, dict(self.headers.items())))
            action = web.actions.get(self.path) or web.actions.get(self.path.partition("?")[0])
            if action is None:
                self.send_error(404)
            else:
                action(self)

        do_HEAD = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_PATCH = do_GET

    return Handler


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A web server; afterwards, that it was asked by GET alone."""
    yield from _served(Web(), monkeypatch)


@pytest.fixture
def web_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """A second one, to which nothing of the first may leak."""
    yield from _served(Web(), monkeypatch)


@pytest.fixture
def web_tls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    """One whose certificate nobody has signed."""
    yield from _served(Web(tls=True), monkeypatch)


def _served(web: Web, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "SPECMATH_BEARER_TOKEN", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    yield web
    web.close()
    assert {method for method, _, _ in web.asked} <= {"GET"}
