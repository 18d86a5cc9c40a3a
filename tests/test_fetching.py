"""HTTP GET within limits, from a real server that does all that servers do."""

from __future__ import annotations

import gzip
import socket
import time
import tracemalloc
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from specmath.engines.addresses import Address, is_url, next_address, parse_address, shown_url
from specmath.engines.fetching import Limits, fetch, get
from specmath.errors import AccessError, DataError, InputError, SpecmathError

if TYPE_CHECKING:
    from tests.conftest import Web

TLS = Path(__file__).with_name("data") / "tls"
ROOMY = Limits(connect_s=20, total_s=60, size_bytes=100_000)
SHORT = Limits(connect_s=0.3, total_s=0.3, size_bytes=100_000)
METRICS = "vllm:spec_decode_num_drafts_total 10\n"


def test_a_body_comes_as_it_is(web: Web) -> None:
    web.serve("/metrics", METRICS)
    reply = fetch(f"{web.url}/metrics")
    assert (reply.text, reply.status, reply.address.shown) == (METRICS, 200, f"{web.url}/metrics")
    (_, _, headers) = web.asked[0]
    assert headers["User-Agent"].startswith("specmath/")
    assert "Authorization" not in headers


# ---------------------------------------------------------------- packing

_RAW = zlib.compressobj(wbits=-15)
PACKED = {
    "gzip": gzip.compress(METRICS.encode()),
    "x-gzip": gzip.compress(METRICS[:10].encode()) + gzip.compress(METRICS[10:].encode()),
    "deflate": zlib.compress(METRICS.encode()),
    "Deflate": _RAW.compress(METRICS.encode()) + _RAW.flush(),
    "identity": METRICS.encode(),
}


@pytest.mark.parametrize("packing", PACKED)
def test_packing_is_undone(web: Web, packing: str) -> None:
    web.serve("/", PACKED[packing], headers={"Content-Encoding": packing})
    assert fetch(web.url).text == METRICS


def test_a_file_that_is_packed_itself_stays_so(web: Web) -> None:
    """Readers unpack a .gz by themselves, within their own limit."""
    web.serve("/server.log.gz", PACKED["gzip"])
    assert fetch(f"{web.url}/server.log.gz").body == PACKED["gzip"]


# ---------------------------------------------------------------- what goes wrong


def reset_midway(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b"vllm:")
    handler.wfile.flush()
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    handler.connection.close()  # with a linger of 0 s, the peer gets a reset


def endless(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:  # until the client leaves
        handler.wfile.write(b"x" * 65_536)


def other_protocol(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"SSH-2.0-OpenSSH\r\n")


HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n"
FAULTS: dict[str, tuple[Callable[[Web], None], type[SpecmathError], str]] = {
    "404": (lambda web: None, AccessError, "answers 404, which means that it has no such path"),
    "401": (lambda web: web.serve("/", "", 401), AccessError, "401, which asks for credentials"),
    "403": (lambda web: web.serve("/", "", 403), AccessError, "set SPECMATH_BEARER_TOKEN"),
    "503": (lambda web: web.serve("/", "", 503), AccessError, "503, which means that the server failed"),
    "418": (lambda web: web.serve("/", "", 418), AccessError, "answers 418, which is no metrics"),
    "drip of a body": (lambda web: web.drip("/", HEAD + b"\r\n"), AccessError, "not complete after 0.3 s"),
    "drip of a header": (lambda web: web.drip("/", HEAD + b"X-A: "), AccessError, "not complete after 0.3 s"),
    "drip of a status": (lambda web: web.drip("/", b"HTTP/1.0 "), AccessError, "not complete after 0.3 s"),
    "silence": (lambda web: web.drip("/", b"", every_s=60), AccessError, "not complete after 0.3 s"),
    "cut short": (
        lambda web: web.serve("/", "abc", headers={"Content-Length": "1000"}),
        AccessError,
        "the connection broke off",
    ),
    "reset midway": (lambda web: web.on("/", reset_midway), AccessError, "the connection broke off"),
    "hangs up": (lambda web: web.on("/", lambda handler: None), AccessError, "the connection broke off"),
    "no HTTP": (
        lambda web: web.on("/", other_protocol),
        AccessError,
        "does not speak HTTP (BadStatusLine)",
    ),
    "too large, as announced": (
        lambda web: web.serve("/", "abc", headers={"Content-Length": "50000000"}),
        DataError,
        "is larger than 100000 bytes, the most that is fetched; save it to a file",
    ),
    "too large, without an end": (lambda web: web.on("/", endless), DataError, "is larger than 100000 bytes"),
    "gzip bomb": (
        lambda web: web.serve("/", gzip.compress(b"0" * 5_000_000), headers={"Content-Encoding": "gzip"}),
        DataError,
        "is larger than 100000 bytes",
    ),
    "deflate bomb": (
        lambda web: web.serve("/", zlib.compress(b"0" * 5_000_000), headers={"Content-Encoding": "deflate"}),
        DataError,
        "is larger than 100000 bytes",
    ),
    "gzip cut short": (
        lambda web: web.serve("/", PACKED["gzip"][:-9], headers={"Content-Encoding": "gzip"}),
        DataError,
        "is packed wrongly",
    ),
    "deflate cut short": (
        lambda web: web.serve("/", PACKED["deflate"][:-6], headers={"Content-Encoding": "deflate"}),
        DataError,
        "is packed wrongly",
    ),
    "no gzip": (
        lambda web: web.serve("/", METRICS, headers={"Content-Encoding": "gzip"}),
        DataError,
        "is packed wrongly",
    ),
    "brotli": (
        lambda web: web.serve("/", METRICS, headers={"Content-Encoding": "br"}),
        DataError,
        "is packed as 'br', which is not read",
    ),
    "no text": (
        lambda web: web.serve("/", b"\x89PNG\0\0", headers={"Content-Type": "image/png"}),
        DataError,
        "is no text (its type is 'image/png')",
    ),
    "redirect in a circle": (lambda web: web.redirect("/", "/"), AccessError, "5th redirection in a row"),
    "redirect to a file": (
        lambda web: web.redirect("/", "file:///etc/passwd"),
        AccessError,
        "redirects to file:, which is not followed",
    ),
    "redirect to ftp": (lambda web: web.redirect("/", "ftp://127.0.0.1/x"), AccessError, "redirects to ftp:"),
    "redirect nowhere": (lambda web: web.serve("/", "", 302), AccessError, "redirects without saying where"),
    "redirect to no address": (lambda web: web.redirect("/", "http://:0"), AccessError, "what is no address"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_line_that_says_what_to_do(web: Web, name: str) -> None:
    prepare, kind, words = FAULTS[name]
    prepare(web)
    began = time.monotonic()
    with pytest.raises(kind) as caught:
        fetch(web.url, SHORT if "not complete" in words else ROOMY)
    message = str(caught.value)
    assert words in message
    assert message.startswith(web.url)
    assert "; " in message, "what to do"
    assert "\n" not in message
    assert time.monotonic() - began < 50, "left to itself it takes for ever"


def test_50_mb_are_refused_without_being_read(web: Web) -> None:
    sent = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(500):
            handler.wfile.write(b"x" * 100_000)
            sent.append(100_000)

    web.on("/metrics", answer)
    with pytest.raises(DataError, match="is larger than 32 MiB"):
        fetch(f"{web.url}/metrics")
    web.close()
    assert sum(sent) < 45_000_000


def test_a_bomb_is_not_unpacked_beyond_the_limit(web: Web) -> None:
    bomb = gzip.compress(b"0" * 100_000_000, 1)
    web.serve("/", bomb, headers={"Content-Encoding": "gzip"})
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match="is larger than 1 MiB"):
            fetch(web.url, Limits(size_bytes=2**20))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("http://127.0.0.1:1", AccessError, "nothing listens there; start the server"),
        ("http://engine.invalid", AccessError, "the host is not known; check its name"),
        ("http://", InputError, "is no address"),
        ("http://host:port/", InputError, "is no address"),
        ("http://host:99999/", InputError, "is no address"),
        ("http://[::1", InputError, "is no address"),
        ("ftp://host/x", InputError, "is no address"),
        ("file:///etc/passwd", InputError, "is no address"),
        ("http://" + "a" * 70, InputError, "is no address"),
        ("http://host/a\r\nX-Evil: 1", InputError, "is no address"),
    ],
)
def test_what_cannot_be_asked(url: str, kind: type[SpecmathError], words: str, web: Web) -> None:
    with pytest.raises(kind, match=words):
        fetch(url, ROOMY)


def test_no_connection_in_time(monkeypatch: pytest.MonkeyPatch, web: Web) -> None:
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    port = full.getsockname()[1]
    fillers = [socket.socket() for _ in range(4)]
    for one in fillers:
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", port))
    with pytest.raises(AccessError, match=r"no connection within 0\.2 s; check host, port and firewall"):
        fetch(f"http://127.0.0.1:{port}", Limits(connect_s=0.2, total_s=20))
    for one in (full, *fillers):
        one.close()


# ---------------------------------------------------------------- TLS


def test_a_certificate_that_nobody_signed_is_refused(web_tls: Web) -> None:
    with pytest.raises(AccessError, match=r"its certificate is not trusted \(self-signed.*SSL_CERT_FILE"):
        fetch(web_tls.url, ROOMY)
    assert web_tls.asked == []


def test_a_certificate_that_is_trusted_is_taken(web_tls: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(TLS / "certificate.pem"))
    web_tls.serve("/metrics", METRICS)
    assert fetch(f"{web_tls.url}/metrics").text == METRICS
    web_tls.redirect("/down", "http://127.0.0.1:1/metrics")
    with pytest.raises(AccessError, match="from https to http"):
        fetch(f"{web_tls.url}/down")
    web_tls.drip("/drip", HEAD + b"\r\n")
    with pytest.raises(AccessError, match=r"not complete after 0\.3 s"):
        fetch(f"{web_tls.url}/drip", SHORT)


def test_tls_where_none_is_spoken(web: Web) -> None:
    with pytest.raises(AccessError, match="does not speak TLS as it should; try http://"):
        fetch(web.url.replace("http:", "https:"), ROOMY)


# ---------------------------------------------------------------- redirects and credentials


def test_redirects_are_followed_with_credentials_to_the_same_server_alone(
    web: Web, web_elsewhere: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECMATH_BEARER_TOKEN", "s3cret")
    web.redirect("/", "/here", 301)
    web.redirect("/here", f"{web_elsewhere.url}/there", 307)
    web_elsewhere.redirect("/there", f"{web.url}/back", 308)
    web.serve("/back", METRICS)
    reply = fetch(web.url)
    assert (reply.text, reply.address.url) == (METRICS, f"{web.url}/back")
    sent = [headers.get("Authorization") for _, _, headers in web.asked]
    assert sent == ["Bearer s3cret", "Bearer s3cret", None], "credentials do not come back"
    assert [headers.get("Authorization") for _, _, headers in web_elsewhere.asked] == [None]


def test_name_and_password_are_sent_and_never_shown(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMATH_BEARER_TOKEN", "s3cret")
    with pytest.raises(AccessError) as caught:
        fetch(web.url.replace("//", "//me:p%40ss@"))
    assert web.asked[0][2]["Authorization"] == "Basic bWU6cEBzcw=="
    assert "p%40ss" not in str(caught.value)
    assert str(caught.value).startswith(web.url)


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "käse"])
def test_a_token_that_no_header_may_hold(token: str, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECMATH_BEARER_TOKEN", token)
    with pytest.raises(AccessError, match="SPECMATH_BEARER_TOKEN: holds signs that no token has") as caught:
        fetch(web.url)
    assert token not in str(caught.value)


def test_a_proxy_is_asked_where_the_environment_names_one(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", web.url)
    web.serve("http://engine.invalid/metrics", METRICS)
    assert fetch("http://engine.invalid/metrics").text == METRICS


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:secret@host:8000/metrics", "http://…@host:8000/metrics"),
        ("http://me:s/e@c?r#et@host/", "http://…@host/"),
        ("http://host/metrics?token=abc&step=1", "http://host/metrics?token=…&step=1"),
        ("http://host/?X-Amz-Signature=abc", "http://host/?X-Amz-Signature=…"),
        ("http://host/\x1b[31m", "'http://host/\\x1b[31m'"),
    ],
)
def test_what_of_a_url_is_shown(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_an_address_that_cannot_be_asked_hides_its_password_too(web: Web) -> None:
    with pytest.raises(InputError) as caught:
        fetch("http://me:secret@host:port/")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(parse_address("http://me:secret@host/"))


def test_signs_that_no_request_may_hold_are_quoted(web: Web) -> None:
    assert parse_address("http://host/a b?q=é").url == "http://host/a%20b?q=%C3%A9"
    assert parse_address("http://bücher.example:80/").url == "http://xn--bcher-kva.example:80/"
    assert parse_address("http://[::1]:8000/x").url == "http://[::1]:8000/x"


def test_origins_differ_by_scheme_host_and_port() -> None:
    asked = Address("http://host/a", "Basic x")
    same = ("/b", "http://host:80/b", "http://HOST/b")
    other = ("http://host:81/b", "https://host/b")
    assert [next_address(asked, one).authorization for one in same] == ["Basic x"] * 3
    assert [next_address(asked, one).authorization for one in other] == [""] * 2


@pytest.mark.parametrize("location", ["http://host.example/b", "https://other/b", "//other/b"])
def test_no_redirection_leads_to_another_host(location: str) -> None:
    words = r"^http://host/a: redirects from host to (other|host\.example), and no other host is asked; give"
    with pytest.raises(AccessError, match=words):
        next_address(Address("http://host/a", "Basic x"), location)


def test_another_host_is_not_asked_even_on_this_machine(web: Web, web_elsewhere: Web) -> None:
    web.redirect("/", web_elsewhere.url.replace("127.0.0.1", "localhost"))
    with pytest.raises(AccessError, match=r"redirects from 127\.0\.0\.1 to localhost"):
        fetch(web.url)
    assert web_elsewhere.asked == []


def test_urls_are_told_from_paths_and_texts() -> None:
    told = ("http://a", "HTTPS://a", "http://a\nb", "metrics.txt", Path("http:/a"), 3)
    assert [is_url(source) for source in told] == [True, True, False, False, False, False]


def test_an_error_status_is_an_answer_where_other_paths_may_be_asked(web: Web) -> None:
    assert (get(web.url).status, get(web.url).is_good) == (404, False)
