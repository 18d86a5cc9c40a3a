"""A digest of what a run was asked for, so that a resumed series knows which of its runs are done."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from specmath.errors import InputError


def fingerprint(value: object) -> str:
    """A digest of a value made of records, arrays, lists, mappings, text and numbers; alike values have one.

    Raises:
        InputError: for a part of another kind, which could change unseen.

    >>> fingerprint((1, 2.0)) == fingerprint((1, 2.0)), fingerprint((1, 2)) == fingerprint((1, 2.0))
    (True, False)
    """
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, value: Any) -> None:
    """Every part behind its kind and size, so that no two values run into one another."""
    kind = type(value).__qualname__
    if isinstance(value, np.ndarray):
        digest.update(f"{kind} {value.dtype.str} {value.shape}:".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value) if field.init]  # the others follow from these
        digest.update(f"{kind} {len(names)}:".encode())
        for name in names:
            _feed(digest, name)
            _feed(digest, getattr(value, name))
    elif isinstance(value, list | tuple):
        digest.update(f"{kind} {len(value)}:".encode())
        for part in value:
            _feed(digest, part)
    elif isinstance(value, Mapping):
        digest.update(b"mapping ")
        _feed(digest, list(value.items()))
    elif value is None or isinstance(value, str | bool | int | float | np.number):
        text = repr(value).encode()
        digest.update(f"{kind} {len(text)}:".encode() + text)
    else:
        raise InputError("runs", f"hold a {kind}, by which a resumed run cannot be recognised; leave out log")
