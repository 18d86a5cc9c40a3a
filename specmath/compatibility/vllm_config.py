"""The speculative config of vLLM key by key: unknown, removed, too new, of the wrong type, out of range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from math import isfinite
from typing import Any, Final

from specmath.compatibility.case import Case
from specmath.compatibility.findings import ALWAYS, Finding, Span, dotted, within
from specmath.compatibility.samples import compact
from specmath.compatibility.vllm_keys import CONFIG_SINCE, KEYS, OTHER_NAMES, REFUSED, Key
from specmath.engines.configs.versions import Version
from specmath.errors import shown
from specmath.row_files import described

_SOURCE: Final = "vllm/config/speculative.py"
_MOST: Final = 40
"""Keys that get a finding of their own; of a config with more of them the rest are counted."""


def key_findings(case: Case) -> Iterator[Finding]:
    """What vLLM says to each key of the config."""
    config = case.settings.config
    if config is None:
        return
    yield from _config_itself(config, case.version)
    for key in list(config)[:_MOST]:
        if key in KEYS:
            yield from _known(key, KEYS[key], config[key], case.version)
        else:
            yield _unknown(key, case.version)
    if len(config) > _MOST:
        yield Finding(
            effect="breaks",
            code="too-many-keys",
            subject="speculative config",
            text=f"{len(config):,} keys, of which the first {_MOST} were looked at",
            evidence=_SOURCE,
            remedy="give a speculative config, which has some ten keys",
        )
    yield from _needs_version(config, case.version)


def plain_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys as vLLM has them where habit calls them otherwise, without those that no release knows."""
    plain: dict[str, Any] = {}
    for key, value in config.items():
        name = key if key in KEYS else _nearest(key)
        if name in KEYS and name not in plain and name not in config.keys() - {key}:
            plain[name] = value
    return plain


def whole(value: Any) -> int | None:
    """The whole number that a value is, as text too; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        return int(value)
    if isinstance(value, float) and isfinite(value) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) else None


def refused(subject: str, text: str, remedy: str, *, code: str, evidence: str = _SOURCE) -> Finding:
    """A finding that the config is refused."""
    return Finding(effect="breaks", code=code, subject=subject, text=text, evidence=evidence, remedy=remedy)


def _config_itself(config: Mapping[str, Any], version: Version | None) -> Iterator[Finding]:
    if version is not None and not version.at_least(*CONFIG_SINCE):
        yield Finding(
            effect="breaks",
            code="config-too-new",
            subject="--speculative-config",
            text=f"came with {dotted(CONFIG_SINCE)}; before, each setting was a flag",
            evidence="vllm/engine/arg_utils.py",
            remedy="use --speculative-model and --num-speculative-tokens, or upgrade",
            versions=Span((), CONFIG_SINCE).text,
        )
    if not config:
        yield Finding(
            effect="breaks",
            code="config-empty",
            subject="speculative config",
            text="is empty: nothing says how to draft",
            evidence=_SOURCE,
            remedy='give at least {"method": "ngram", "num_speculative_tokens": 3}',
        )


def _known(key: str, known: Key, value: Any, version: Version | None) -> Iterator[Finding]:
    if known.gone is not None:
        yield from within(Span(known.gone), version, _removed(key, known))
    if version is not None and not version.at_least(*known.first) and version.at_least(*CONFIG_SINCE):
        yield _too_new(key, known, version)
    if key == "disable_by_batch_size":
        yield from within(Span((0, 10), (0, 17)), version, _dead_key())
    if value is not None and (problem := _problem(known, value)):
        yield Finding(
            effect="breaks",
            code="value-refused",
            subject=key,
            text=f"{problem}, got {described(value)}",
            evidence=_SOURCE,
            remedy=_remedy(known, value),
            versions=known.span.text if known.first != CONFIG_SINCE or known.gone else ALWAYS.text,
        )
    elif isinstance(value, str) and known.kind in ("whole number", "number", "truth value"):
        yield Finding(
            effect="bites",
            code="number-as-text",
            subject=key,
            text=f"is text, {shown(value)}: releases with pydantic convert it, older ones compare it with "
            "numbers and fail",
            evidence=_SOURCE,
            remedy="leave the quotes out",
        )


def _removed(key: str, known: Key) -> Finding:
    return Finding(
        effect="breaks",
        code="key-removed",
        subject=key,
        text=f"is gone from {dotted(known.gone or ())} on, and an unknown key is an error at start-up",
        evidence=_SOURCE,
        remedy=known.instead if known.instead.startswith("leave") else f"use {known.instead}",
    )


def _too_new(key: str, known: Key, version: Version) -> Finding:
    return Finding(
        effect="breaks",
        code="key-too-new",
        subject=key,
        text=f"came with {dotted(known.first)}; {version.text} refuses it as an unknown key",
        evidence=_SOURCE,
        remedy=f"upgrade to {dotted(known.first)} or newer, or leave it out",
        versions=Span((), known.first).text,
    )


def _dead_key() -> Finding:
    return Finding(
        effect="bites",
        code="dead-key",
        subject="disable_by_batch_size",
        text="is accepted and does nothing: drafting stays on at every batch",
        evidence=f"{_SOURCE}: only config code mentions it",
        remedy="leave it out; 0.24 has num_speculative_tokens_per_batch_size",
    )


def _unknown(key: str, version: Version | None) -> Finding:
    near = _nearest(key)
    if key in REFUSED:
        text, code = "is there only to be refused: the draft's degree has a name of its own", "key-refused"
    elif near:
        text, code = f"is no key of any release; near it: {near}", "key-misspelt"
    else:
        text, code = "is no key of any release, and an unknown key is an error at start-up", "key-unknown"
    known = [name for name, one in KEYS.items() if version is None or one.span.holds(version)]
    remedy = f"write {near}" if near else f"leave it out; keys: {', '.join(known[:8])}, …"
    if near == "num_speculative_tokens_per_batch_size":
        remedy += " as a list of [first batch, last batch, k]"
    return Finding(
        effect="breaks", code=code, subject=_named(key), text=text, evidence=_SOURCE, remedy=remedy
    )


def _named(key: str) -> str:
    """A key as a table may show it."""
    plain = key.replace("-", "_").isidentifier() and len(key) <= 60
    return key if plain else shown(key)


def _nearest(key: str) -> str:
    """The key that was meant; empty where none is near."""
    plain = key.replace("-", "_").lower()[:100]
    if plain in KEYS:
        return plain
    if plain in OTHER_NAMES:
        return OTHER_NAMES[plain]
    near = get_close_matches(plain, [*KEYS, *OTHER_NAMES], n=1, cutoff=0.75)
    return OTHER_NAMES.get(near[0], near[0]) if near else ""


def _problem(known: Key, value: Any) -> str:
    """Why a value will not do; empty where it does."""
    match known.kind:
        case "text":
            return "" if isinstance(value, str) else "must be text"
        case "truth value":
            true = isinstance(value, bool) or str(value).lower() in ("true", "false", "0", "1")
            return "" if true else "must be true or false"
        case "list":
            return "" if isinstance(value, list | tuple) else "must be a list"
        case "whole number" | "number":
            return _number_problem(known, value)
        case _:
            return ""


def _number_problem(known: Key, value: Any) -> str:
    ends = "" if known.low is None else f" of at least {known.low:g}"
    if known.high is not None:
        ends = f" from {known.low:g} to {known.high:g}"
    kind = "a whole number" if known.kind == "whole number" else "a number"
    try:
        number = (
            float(value) if not isinstance(value, bool | list | dict) and value is not None else float("nan")
        )
    except (ValueError, OverflowError):
        number = float("nan")
    below, above = (
        known.low is not None and number < known.low,
        known.high is not None and number > known.high,
    )
    fraction = known.kind == "whole number" and isfinite(number) and number % 1
    return f"must be {kind}{ends}" if not isfinite(number) or below or above or fraction else ""


def _remedy(known: Key, value: Any) -> str:
    if known.kind == "list" and isinstance(value, dict):
        return f"write {compact([[1, 16, 3]])}: first batch, last batch, k"
    if known.kind == "truth value":
        return "write true or false"
    return f"give {'a' if known.kind != 'anything' else ''} {known.kind} in the range, or leave the key out"


def _needs_version(config: Mapping[str, Any], version: Version | None) -> Iterator[Finding]:
    """Of an unknown version: the release that the keys together need."""
    if version is not None:
        return
    young = {key: KEYS[key].first for key in config if key in KEYS and KEYS[key].first > CONFIG_SINCE}
    if young:
        least = max(young.values())
        named = ", ".join(f"{key} ({dotted(first)})" for key, first in young.items())
        yield Finding(
            effect="bites",
            code="needs-version",
            subject="vLLM",
            text=f"the keys need {dotted(least)} or newer: {named}",
            evidence=_SOURCE,
            remedy=f"name yours, as --engine vllm@{dotted(least)}",
            versions=Span((), least).text,
        )
