"""Which engine's output is it? Metrics, JSON and logs are told apart, then each format is asked in turn."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import import_module
from math import inf
from typing import Any, Final

from specmath.engines.content import Exposition, Format, LogReader
from specmath.engines.exposition import difference, parse_exposition
from specmath.engines.reading import MAX_UNKNOWN, Content, Source, opened, remote_reader
from specmath.engines.spec_counts import require_possible
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError, InputError, UnknownNameError
from specmath.results import Advice

_MODULES: Final = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt-llm": "tensorrt_llm",
    "llama.cpp": "llama_cpp",
    "lmdeploy": "lmdeploy",
    "tgi": "tgi",
    "lm-studio": "lm_studio",
    "mlx": "mlx",
    "aiperf": "aiperf",
}
"""Modules that hold the formats of an engine."""
_ALIASES: Final = {
    "trtllm": "tensorrt-llm",
    "trt-llm": "tensorrt-llm",
    "llamacpp": "llama.cpp",
    "lmstudio": "lm-studio",
}
_SAMPLE: Final = re.compile(r"[A-Za-z_:][\w:]*(?:\{.*\})?[ \t]+[-+]?(?:\d|\.\d|NaN|[Ii]nf)\S*(?:[ \t]+\S+)?")
_REMEDY: Final = "give the metrics, log or JSON of a serving engine, or name it with --source-engine"
MAX_DEPTH: Final = 100


def engines() -> tuple[str, ...]:
    """Names of the engines whose output is read."""
    return tuple(_MODULES)


def engine_name(name: str) -> str:
    """The engine's own name for `name`; UnknownNameError for none.

    >>> engine_name("TRT-LLM")
    'tensorrt-llm'
    """
    plain = name.strip().lower()
    plain = _ALIASES.get(plain, plain)
    if plain not in _MODULES:
        raise UnknownNameError("engine", name, _MODULES, f"known: {', '.join(_MODULES)}")
    return plain


def formats(engine: str | None = None) -> tuple[Format, ...]:
    """The formats of an engine, or of all."""
    names = _MODULES if engine is None else (engine_name(engine),)
    modules = (import_module(f"specmath.engines.{_MODULES[name]}") for name in names)
    return tuple(one for module in modules for one in module.FORMATS)


def read_telemetry(
    source: Source,
    *,
    name: str = "",
    engine: str | None = None,
    version: str | None = None,
    since: Source | None = None,
) -> list[Telemetry]:
    """What a serving engine's output tells about speculation, one record for each model.

    Metrics in Prometheus or OpenMetrics text, JSON and JSONL (also a stream of `data:` lines), and logs are
    told apart by their beginning; the engine by its own names in them. gzip is unpacked. Logs are read in
    constant memory up to 8 GiB, everything else up to 64 MiB.

    Args:
        source: A path, `-` for stdin, an http(s) URL of a server or of its metrics, `prometheus:URL`, a text
            that holds a line break, or an open binary stream.
        name: What to call the source in messages.
        engine: Name of the engine, where recognition needs help.
        version: Version of the engine, where metrics do not tell what a series means in it.
        since: An earlier scrape of the same metrics, taken off.

    Returns:
        The records, in the order in which the engines are asked; counts of one model are never mixed with
        those of another.

    Raises:
        AccessError: the source cannot be read.
        DataError: it is no known format, or its counts contradict each other.
        InputError: `since` with something other than metrics.
        UnknownNameError: no such engine.

    >>> [one] = read_telemetry("vllm:spec_decode_num_drafts_total 10\\n")
    >>> one.engine, one.drafts
    ('vllm', 10.0)
    """
    known = formats(engine)
    if ask := remote_reader(source):
        return ask(source, engine=engine, version=version, since=since)
    with opened(source, name) as content:
        if since is not None:
            with opened(since) as earlier:
                found = _scrapes(earlier, content, known, version)
        else:
            found = _read(content, known, version)
        if not found:
            raise DataError(content.name, _unknown(content.head, engine))
        return [require_possible(telemetry) for telemetry in found]


def read_scrape(exposition: Exposition, *, engine: str | None = None) -> list[Telemetry]:
    """What an exposition tells, one record for each model; DataError where no known engine wrote it."""
    found = _asked(exposition, formats(engine))
    if not found:
        raise DataError(exposition.source or "metrics", _unknown("# TYPE", engine))
    return [require_possible(telemetry) for telemetry in found]


def _read(content: Content, known: Iterable[Format], version: str | None) -> list[Telemetry]:
    if _is_exposition(content.head):
        scrape = parse_exposition(content.text(), source=content.name)
        return _asked(replace(scrape, version=version), known)
    if _is_json(content.head):
        return _documents_or_log(content.text(), content.name, known)
    patience = MAX_UNKNOWN if content.may_be_endless else inf
    return _log(content.lines(), content.name, known, patience)


def _documents_or_log(text: str, name: str, known: Iterable[Format]) -> list[Telemetry]:
    """A document, or a log whose lines are wrapped in JSON or begin like it."""
    try:
        if found := _documents(text, name, known):
            return found
    except DataError:
        if found := _log(text.split("\n"), name, known):
            return found
        raise
    return _log(text.split("\n"), name, known)


def _scrapes(
    earlier: Content, later: Content, known: Iterable[Format], version: str | None
) -> list[Telemetry]:
    for content in (earlier, later):
        if not _is_exposition(content.head):
            problem = f"goes with metrics alone, and {content.name} is none; leave it out"
            raise InputError("since", problem)
    first, second = (parse_exposition(one.text(), source=one.name) for one in (earlier, later))
    return _asked(replace(difference(first, second), version=version), known)


def _asked(exposition: Exposition, known: Iterable[Format]) -> list[Telemetry]:
    if not exposition.samples:
        return []
    readers = (one.read_exposition for one in known if one.read_exposition)
    return [telemetry for read in readers for telemetry in read(exposition)]


def _is_exposition(head: str) -> bool:
    lines = [line.strip() for line in head.lstrip("\ufeff").split("\n")[:200] if line.strip()]
    if lines and lines[0].startswith(("# HELP ", "# TYPE ")):
        return True
    samples = [line for line in lines if not line.startswith("#")]
    return bool(samples) and sum(bool(_SAMPLE.fullmatch(line[:2000])) for line in samples) > 0.7 * len(
        samples
    )


def _is_json(head: str) -> bool:
    start = head.lstrip("\ufeff \t\r\n")
    return start.startswith(("{", "data:", "event:")) or bool(re.match(r"\[\s*[\[{\]]", start))


def _documents(text: str, name: str, known: Iterable[Format]) -> list[Telemetry]:
    """The first format that knows the document. A stream of several values is one list of them."""
    document, skipped = _parsed(text, name)
    for one in known:
        if one.read_document and (found := one.read_document(document, name)):
            return [replace(telemetry, notes=(*telemetry.notes, *_skipped(skipped))) for telemetry in found]
    return []


def _parsed(text: str, name: str) -> tuple[Any, int]:
    """The JSON value, or the values of lines, and the number of lines that are none."""
    try:
        return _loads(text), 0
    except (ValueError, RecursionError) as fault:
        first = fault
    lines = [line for line in map(_payload, text.split("\n")) if line]
    values, skipped = [], 0
    for line in lines:
        try:
            values.append(_loads(line))
        except (ValueError, RecursionError):
            skipped += 1
    if not any(isinstance(value, dict | list) for value in values):
        problem = (
            "is nested too deeply" if isinstance(first, RecursionError) else f"is no JSON: {str(first)[:80]}"
        )
        raise DataError(name, f"{problem}; {_REMEDY}")
    return values, skipped


def _payload(line: str) -> str:
    """The value in a line of JSONL or of an event stream."""
    line = line.strip()
    if line.startswith("data:"):
        line = line[5:].strip()
    return "" if line == "[DONE]" or line.startswith(("event:", "id:", "retry:", ":")) else line


def _loads(text: str) -> Any:
    value = json.loads(text, parse_int=_whole)
    _require_shallow(value)
    return value


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < 400 else float("inf")


def _require_shallow(value: Any) -> None:
    """Readers may walk a document by recursion, so one of thousands of levels is refused here."""
    level = [value]
    for _ in range(MAX_DEPTH):
        nested = (one for one in level if isinstance(one, dict | list))
        level = [
            inner
            for one in nested
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise RecursionError


def _skipped(number: int) -> tuple[Advice, ...]:
    if not number:
        return ()
    text = (
        "a line is no JSON and was left out"
        if number == 1
        else f"{number} lines are no JSON and were left out"
    )
    return (Advice(code="lines-left-out", text=text, remedy="take the whole file"),)


def _log(lines: Iterable[str], name: str, known: Iterable[Format], patience: float = inf) -> list[Telemetry]:
    """All that the logs of the known engines tell, those without speculation only where no other has any.

    `patience` is how many characters are read before the first line that tells something.
    """
    makers: list[Callable[[str], LogReader]] = [one.log for one in known if one.log]
    readers = [make(name) for make in makers]
    feeds = [reader.feed for reader in readers]
    for line in lines:
        told = [feed(line) for feed in feeds]  # each reader must see each line
        if any(told):
            patience = inf
        elif (patience := patience - len(line) - 1) < 0:
            limit = f"tells nothing of speculation in its first {MAX_UNKNOWN // 2**20} MiB"
            raise DataError(name, f"{limit}; save it to a file and give that, if it is a log")
    found = [telemetry for reader in readers for telemetry in reader.result()]
    return [
        one for one in found if one.drafts or one.drafted or one.acceptance_length or one.histogram
    ] or found


def _unknown(head: str, engine: str | None) -> str:
    start = head.lstrip("\ufeff \t\r\n")
    if not start:
        return f"is empty; {_REMEDY}"
    if start[:200].lower().startswith(("<!doctype", "<html")):
        return "is a web page, not an engine's output; give the address of its /metrics"
    if re.fullmatch(r"\[\s*\]\s*", start):
        return (
            "is an empty list: nothing was recorded since it was last read; run some requests and read again"
        )
    if engine:
        return f"holds nothing of {engine_name(engine)}; leave the engine out to have it recognised"
    return f"is none of the formats known: {', '.join(_MODULES)}; {_REMEDY}"
