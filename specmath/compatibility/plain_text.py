"""A table as people paste it: JSON, a Python literal in single quotes, bare keys, YAML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from specmath.errors import DataError, shown
from specmath.strict_json import LONGEST_NUMBER, json_document

if TYPE_CHECKING:
    from specmath.yaml_fields import Node

MAX_TEXT: Final = 2**20
_INT: Final = re.compile(r"[-+]?[0-9]{1,400}")
_FLOAT: Final = re.compile(r"[-+]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][-+]?[0-9]{1,4})?")
_WORDS: Final = {"true": True, "false": False, "null": None, "none": None, "~": None, "": None}


def plain_document(text: str, where: str) -> Any:
    r"""The value that the text holds.

    >>> plain_document("{'method': 'ngram', 'num_speculative_tokens': 5, 'parallel': True}", "x")
    {'method': 'ngram', 'num_speculative_tokens': 5, 'parallel': True}
    >>> plain_document('{\\"method\\": \\"mtp\\"}', "x")
    {'method': 'mtp'}

    Raises:
        DataError: for what is neither JSON nor YAML, is too long or nested too deeply.
    """
    if len(text) > MAX_TEXT:
        raise DataError(where, f"has {len(text):,} characters; at most {MAX_TEXT:,} are read")
    plain = _unquoted(text.encode("utf-8", "replace").decode().strip())
    try:
        return json_document(plain, where)
    except DataError as fault:
        from specmath.strict_yaml import yaml_tree  # brings yaml, which valid JSON has no need of

        try:
            return plain_value(yaml_tree(plain, where))
        except DataError as other:
            raise (fault if plain.startswith(("{", "[")) and "nested" not in str(other) else other) from None


def _unquoted(text: str) -> str:
    """Without the quotes and backslashes that were for a shell."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" and text[1:2] in "{[ ":
        text = text[1:-1].strip()
    return text.replace('\\"', '"') if text.startswith(('{\\"', '{ \\"')) else text


def plain_value(node: Node) -> Any:
    """Tables, lists and scalars of a YAML tree as Python has them; what is quoted stays text."""
    if isinstance(node, dict):
        return {key: plain_value(value) for key, value in node.items()}
    if isinstance(node, list):
        return [plain_value(value) for value in node]
    return typed_text(node.value) if node.implicit[0] else node.value


def typed_text(text: str) -> Any:
    """A number, truth value, nothing, list or table where the text is one; else the text.

    >>> typed_text("5"), typed_text("0.5"), typed_text("True"), typed_text("eagle3")
    (5, 0.5, True, 'eagle3')
    """
    plain = text.strip()
    if plain.lower() in _WORDS:
        return _WORDS[plain.lower()]
    if len(plain) <= LONGEST_NUMBER and _INT.fullmatch(plain):
        return int(plain)
    if len(plain) <= LONGEST_NUMBER and _FLOAT.fullmatch(plain):
        return float(plain)
    if plain.startswith(("{", "[")):
        try:
            return json_document(plain, "value")
        except DataError:
            return plain
    return plain


def table_of(document: Any, where: str) -> dict[str, Any]:
    """The table that a document is, or that it holds under `speculative_config`."""
    if isinstance(document, dict):
        for name in ("speculative_config", "speculative-config"):
            if isinstance(document.get(name), dict):
                return table_of(document[name], where)
        return document
    kind = "a list" if isinstance(document, list) else shown(document)
    raise DataError(
        where, f'must be a table such as {{"method": "ngram", "num_speculative_tokens": 3}}, got {kind}'
    )
