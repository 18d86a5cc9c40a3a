"""Lists of module names as quantisation blocks write them: full names, endings, globs, regular expressions.

Published lists name modules of the checkpoint (`model.language_model.layers.*.self_attn*`), engines'
prefixes come and go, and some hold seven hundred entries. A plain name or glob therefore matches where its
dotted parts stand next to each other anywhere in the module's path, from the layer number on where it names
one; `re:` entries match from the start of any of the usual full names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

_PREFIXES: Final = ("model.", "language_model.model.", "model.language_model.", "")
_OTHER_NAMES: Final = {
    "q_proj": ("qkv_proj", "W_pack", "query_key_value", "c_attn", "Wqkv"),
    "k_proj": ("qkv_proj", "W_pack", "query_key_value", "c_attn", "Wqkv"),
    "v_proj": ("qkv_proj", "W_pack", "query_key_value", "c_attn", "Wqkv"),
    "gate_proj": ("gate_up_proj", "w1"),
    "up_proj": ("gate_up_proj", "w3"),
    "down_proj": ("w2",),
    "q_a_proj": ("fused_qkv_a_proj",),
    "shared_experts": ("shared_expert", "shared_mlp"),
    "mlp": ("block_sparse_moe", "feed_forward", "moe", "mixer"),
    "self_attn": ("attention", "mixer"),
    "gate": ("router",),
    "mixer": ("mamba", "linear_attn"),
}
"""What other checkpoints call the same module."""
_MAX_PATTERN: Final = 2_000
_MAX_PATTERNS: Final = 5_000
_SEVERAL_STARS: Final = re.compile(r"(?:\.\*)+")
_ESCAPED: Final = re.compile(r"\\.|\[[^\]]*\]")
_REPEATS: Final = re.compile(r"[*+{]")
_HOSTILE: Final = re.compile(r"\)[*+{?]|\(\?[^:]")
"""A repeated group, or a group that looks around: with these a search may never come back."""
_MAX_REPEATS, _MAX_OPTIONAL = 4, 8
"""Repeats of single signs in one expression; with these few a search stays short on a module's name."""
_ONE_EXPERT: Final = re.compile(r"experts\.(?:\d+|\*)\.")
_NUMBERED: Final = re.compile(r"(?<!mtp\.)layers\W{0,3}[(\[]?\d")
"""A pattern that names single layers; all others say the same of every layer."""


class ModuleNames:
    """A set of module name patterns.

    Attributes:
        numbered: Whether any of them names single layers.
    """

    __slots__ = ("_cache", "_compiled", "_literal", "_regexes", "numbered")

    def __init__(self, patterns: Iterable[object]) -> None:
        self._literal: set[str] = set()
        self._cache: dict[str, bool] = {}
        self.numbered = False
        globs: list[str] = []
        regexes: list[str] = []
        for pattern in patterns:
            if not isinstance(pattern, str) or not pattern or len(pattern) > _MAX_PATTERN:
                continue
            self.numbered = self.numbered or _NUMBERED.search(pattern) is not None
            if pattern.startswith("re:"):
                regexes.append(pattern[3:])
            elif "*" in pattern:
                globs.append(_SEVERAL_STARS.sub(".*", re.escape(_from_layer(pattern)).replace(r"\*", ".*")))
            else:
                self._literal.add(_from_layer(pattern))
        if len(globs) + len(regexes) > _MAX_PATTERNS:
            raise ValueError(f"more than {_MAX_PATTERNS} patterns of module names")
        self._compiled = [re.compile(rf"(?:^|\.)(?:{glob})(?:$|\.)") for glob in globs]
        self._regexes = [_compiled(text) for text in regexes]

    def covers(self, path: str, layer: int | None) -> bool:
        """Whether the module at `path`, in that layer or outside all layers, is named."""
        full = path if layer is None else f"layers.{layer}.{path}"
        if full not in self._cache:
            head = full.removesuffix(path)
            self._cache[full] = any(self._names(head + candidate) for candidate in _spellings(path))
        return self._cache[full]

    def _names(self, full: str) -> bool:
        if self._literal and not self._literal.isdisjoint(_runs(full)):
            return True
        if any(pattern.search(full) for pattern in self._compiled):
            return True
        return any(regex.match(prefix + full) for regex in self._regexes for prefix in _PREFIXES)


def _from_layer(pattern: str) -> str:
    """The pattern without what stands before `layers.` and without numbers of single experts."""
    pattern = _ONE_EXPERT.sub("experts.", pattern)
    head, found, rest = pattern.partition("layers.")
    if found and not head.endswith("mtp."):
        return f"layers.{rest}"
    return pattern.removeprefix("model.").removeprefix("language_model.")


def _runs(full: str) -> set[str]:
    """Every run of dotted parts of a path: `a.b.c` gives a, a.b, a.b.c, b, b.c, c."""
    parts = full.split(".")
    return {
        ".".join(parts[first:last])
        for first in range(len(parts))
        for last in range(first + 1, len(parts) + 1)
    }


@cache
def _spellings(full: str) -> list[str]:
    """The path under its own and other checkpoints' names, one part replaced at a time or two."""
    spellings = [full]
    for index, part in enumerate(full.split(".")):
        for other in _OTHER_NAMES.get(part, ()):
            replaced = []
            for spelling in spellings:
                parts = spelling.split(".")
                parts[index] = other
                replaced.append(".".join(parts))
            spellings = list(dict.fromkeys(spellings + replaced))
    return spellings


def _compiled(text: str) -> re.Pattern[str]:
    plain = _ESCAPED.sub("x", text)  # what is left of escapes and classes are operators
    repeats, optional = len(_REPEATS.findall(plain)), plain.count("?")
    if _HOSTILE.search(plain) or repeats > _MAX_REPEATS or optional > _MAX_OPTIONAL:
        raise ValueError(f"module name pattern {text[:60]!r} repeats more than the name of a module needs")
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(
            f"module name pattern {text[:60]!r} is no regular expression ({error.msg})"
        ) from error
