"""Addresses of servers: what can be asked, with which credentials, and what of it may be printed."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from specmath.errors import AccessError, InputError, shown_path

SCHEMES: Final = ("http", "https")
TOKEN: Final = "SPECMATH_BEARER_TOKEN"
"""Environment variable with the token that goes to the server named, as `Authorization: Bearer …`."""
MAX_LENGTH: Final = 8_000
_CREDENTIALS: Final = re.compile(r"//.*@", re.DOTALL)
_SECRET: Final = re.compile(r"((?:^|[?&;])[^=&;]*(?:token|key|secret|passw|sig|auth)[^=&;]*=)[^&;]*", re.I)
_SAFE: Final = "/%:@!$&'()*+,;=~-._[]?"


@dataclass(frozen=True, slots=True)
class Address:
    """A place to ask, its credentials set apart from what is sent and shown as its URL."""

    url: str
    authorization: str = field(default="", repr=False)

    @property
    def origin(self) -> tuple[str, str | None, int | None]:
        """Scheme, host and port: credentials go to no other."""
        parts = urlsplit(self.url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}[parts.scheme]

    @property
    def shown(self) -> str:
        """The URL as a message may show it."""
        return shown_url(self.url)


def is_url(source: object) -> bool:
    """Whether it is an address to be asked, rather than a path or a text.

    >>> is_url("http://localhost:8000"), is_url("metrics.txt"), is_url("http://a\\nvllm:x 1")
    (True, False, False)
    """
    return (
        isinstance(source, str) and "\n" not in source and source.lower().startswith(("http://", "https://"))
    )


def shown_url(url: str) -> str:
    """A URL as a message may show it: no name and password, no token, 300 characters at most.

    >>> shown_url("http://me:secret@host:8000/metrics?api_key=1")
    'http://…@host:8000/metrics?api_key=…'
    """
    return shown_path(_SECRET.sub(r"\1…", _CREDENTIALS.sub("//…@", url)))


def parse_address(text: str) -> Address:
    """The address that a text names: name and password in it, or else the environment's token, set apart.

    Raises:
        InputError: it is no http or https URL.
        AccessError: the environment's token cannot be sent.

    >>> parse_address("http://me:word@host:8000/metrics")
    Address(url='http://host:8000/metrics')
    """
    parts = _split(text.strip())
    return Address(_assembled(parts), _basic(parts) or _bearer())


def next_address(asked: Address, location: str) -> Address:
    """Where a redirection leads, with the credentials where it stays on the same server.

    Only the host that was named is asked: what another one answers would be taken for its own.

    Raises:
        AccessError: it leads to another host, to another scheme than http or https, from https to http, or
            nowhere.
    """
    from urllib.parse import urljoin

    remedy = "give the address it should lead to"
    target = urljoin(asked.url, location.strip())
    scheme = target.partition(":")[0].lower()
    if not location.strip():
        raise AccessError(asked.shown, f"redirects without saying where to; {remedy}")
    if scheme not in SCHEMES:
        raise AccessError(asked.shown, f"redirects to {scheme[:20]}:, which is not followed; {remedy}")
    if scheme == "http" and asked.origin[0] == "https":
        raise AccessError(asked.shown, f"redirects from https to http, which is not followed; {remedy}")
    try:
        found = Address(_assembled(_split(target)))
    except InputError:
        raise AccessError(asked.shown, f"redirects to what is no address; {remedy}") from None
    named, other = urlsplit(asked.url).hostname, urlsplit(found.url).hostname
    if other != named:
        problem = f"redirects from {named} to {other}, and no other host is asked; give that address itself"
        raise AccessError(asked.shown, problem)
    return Address(found.url, asked.authorization if found.origin == asked.origin else "")


def _split(text: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        known = parts.scheme in SCHEMES and bool(parts.hostname) and parts.port != 0
        (parts.hostname or "").encode("idna")
    except ValueError:  # a port that is no number, brackets that do not close, a label too long
        known = False
    if not known or len(text) > MAX_LENGTH or not text.isprintable():
        problem = "is no address that can be asked; give http://HOST:PORT or https://HOST"
        raise InputError("source", f"{shown_url(text)} {problem}")
    return parts


def _assembled(parts: SplitResult) -> str:
    host = (parts.hostname or "").encode("idna").decode("ascii")
    place = f"[{host}]" if ":" in host else host
    if parts.port is not None:
        place += f":{parts.port}"
    path, query = (quote(part, safe=_SAFE) for part in (parts.path, parts.query))
    return urlunsplit((parts.scheme, place, path, query, ""))


def _basic(parts: SplitResult) -> str:
    if parts.username is None:
        return ""
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return f"Basic {b64encode(pair.encode()).decode()}"


def _bearer() -> str:
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        return ""
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise AccessError(TOKEN, "holds signs that no token has; set it to the token alone")
    return f"Bearer {token}"
