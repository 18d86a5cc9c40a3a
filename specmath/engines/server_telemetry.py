"""What the answers of a running server tell of speculation, as one record for each model.

Metrics come first. Documents fill up what they leave out: k and method from SGLang's /server_info, load from
TensorRT-LLM's iterations, versions and models from wherever they are told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from io import BytesIO
from typing import Final

from specmath.engines.content import Exposition
from specmath.engines.exposition import difference, parse_exposition
from specmath.engines.fetching import USUAL, Limits
from specmath.engines.reading import Source, opened
from specmath.engines.recognition import engine_name, read_scrape, read_telemetry
from specmath.engines.servers import METRICS, Server, ask_server, failures_of, is_json, remedy_of
from specmath.engines.telemetry import Telemetry
from specmath.engines.totals import has_data
from specmath.engines.values import text
from specmath.errors import DataError, InputError
from specmath.results import Advice

_DRAINED: Final = Advice(
    code="metrics-drained",
    text="/metrics hands each iteration out once: what was read here is gone for other readers",
    remedy="let one reader alone ask it, or read /prometheus/metrics",
)


def read_server(
    url: str,
    *,
    engine: str | None = None,
    version: str | None = None,
    since: Source | None = None,
    limits: Limits = USUAL,
) -> list[Telemetry]:
    """What a running server tells about speculation, one record for each model.

    Args:
        url: As for `ask_server`.
        engine: Name of the engine, where recognition needs help.
        version: Version of the engine, where it does not tell.
        since: An earlier scrape of the same server, taken off.
        limits: Time for each answer, and size.

    Raises:
        AccessError: nobody answers.
        DataError: what it answers holds nothing of a known engine.
        InputError: the URL is none, or `since` does not go with what it serves.
    """
    earlier = None if since is None else earlier_scrape(since)
    return telemetry_of(ask_server(url, limits, version=version), engine=engine, since=earlier)


def earlier_scrape(since: Source) -> Exposition:
    """The metrics in a file, or at a URL, that another scrape is compared with."""
    with opened(since) as content:
        found = parse_exposition(content.text(), source=content.name)
    if not found.samples:
        raise InputError("since", f"goes with metrics alone, and {content.name} is none; leave it out")
    return found


def telemetry_of(
    server: Server, *, engine: str | None = None, since: Exposition | None = None, drains: bool = True
) -> list[Telemetry]:
    """The records that the answers of a server make together.

    Args:
        server: Its answers.
        engine: Name of the engine, where recognition needs help.
        since: An earlier scrape, taken off.
        drains: Whether TensorRT-LLM's iteration statistics may be read, where its series count no drafts.

    Raises:
        DataError: they hold nothing of a known engine.
        InputError: `since` with a server that has no metrics.
    """
    if since is not None and server.metrics is None:
        raise InputError("since", f"goes with metrics, and {server.shown} serves none; {remedy_of(server)}")
    scraped, fault = _scraped(server, engine, since)
    told = [record for path in list(server.answers) for record in _told(server, path, engine)]
    if drains and METRICS not in server.answers and wants_iterations(server, [*scraped, *told]):
        told = _told(server, METRICS, engine) if server.ask(METRICS) else []
    found = _joined(scraped, told, whole=since is None)
    if not found:
        raise fault or DataError(server.shown, _nothing(server, engine))
    return [_named(record, server) for record in found]


def wants_iterations(server: Server, records: Sequence[Telemetry]) -> bool:
    """Whether it is a TensorRT-LLM that counts drafts in its iteration statistics alone."""
    return server.engine == "tensorrt-llm" and all(record.drafts is None for record in records)


def _scraped(
    server: Server, engine: str | None, since: Exposition | None
) -> tuple[list[Telemetry], DataError | None]:
    """What the metrics tell, or why nothing."""
    if server.metrics is None:
        return [], None
    metrics = server.metrics if since is None else difference(since, server.metrics)
    try:
        return read_scrape(replace(metrics, version=server.version), engine=engine), None
    except DataError as fault:
        return [], fault


def _told(server: Server, path: str, engine: str | None) -> list[Telemetry]:
    """What a document tells; nothing where it is metrics or of no known format."""
    reply = server.answers[path]
    if not (is_json(reply) or (path == "" and server.metrics is None)):
        return []
    try:
        found = read_telemetry(BytesIO(reply.body), name=server.shown + path, engine=engine)
    except DataError as fault:
        if path == "":
            raise
        if path == METRICS:
            server.faults[path] = fault.problem
        return []
    return found if path != METRICS else [replace(one, notes=(*one.notes, _DRAINED)) for one in found]


def _joined(scraped: list[Telemetry], told: list[Telemetry], *, whole: bool) -> list[Telemetry]:
    """The records of the metrics, filled up from documents; those of documents where metrics have none."""
    if not scraped:
        return told if whole else []
    return [_filled(record, _of_same_model(record, told), whole=whole) for record in scraped]


def _of_same_model(record: Telemetry, told: list[Telemetry]) -> Telemetry | None:
    of_engine = [one for one in told if one.engine == record.engine]
    same = [one for one in of_engine if one.model == record.model]
    alike = same or of_engine
    return alike[0] if len(alike) == 1 else None


def _filled(record: Telemetry, other: Telemetry | None, *, whole: bool) -> Telemetry:
    if other is None:
        return record
    whole |= other.scope == "intervals"  # iterations are those since the last reading, at any time
    open_ones = record.drafts is None and record.acceptance_length is None
    better = not has_data(record) or (open_ones and other.drafts is not None)
    leading, rest = (other, record) if whole and has_data(other) and better else (record, other)
    load = {
        one.name: getattr(leading.load, one.name)
        if getattr(leading.load, one.name) is not None
        else getattr(rest.load, one.name)
        for one in fields(leading.load)
    }
    return replace(
        leading,
        version=leading.version or rest.version,
        model=leading.model or rest.model,
        method=leading.method or rest.method,
        k=leading.k or rest.k,
        k_varies=leading.k_varies or rest.k_varies,
        load=replace(leading.load, **load) if whole else leading.load,
        notes=leading.notes,
    )


def _named(record: Telemetry, server: Server) -> Telemetry:
    """With the version and the model that the server gives, the latter where it serves a single one."""
    if server.engine not in (None, record.engine):
        return record
    models = [text(model.get("id")) for model in server.models()]
    alone = models[0] if len(models) == 1 else None
    notes = record.notes
    if server.named_version:
        notes = (*notes, *version_notes(server.named_version, replace(server, named_version=None).version))
    version = server.version or record.version
    return replace(record, version=version, model=record.model or alone, notes=notes)


def version_notes(named: str, told: str | None) -> tuple[Advice, ...]:
    """A warning where the version that was named is not the one that the source tells.

    >>> version_notes("0.32", "0.32.0"), version_notes("0.8", "0.8.3 or newer")
    ((), ())
    """
    if told is None or " " in told or f"{told}.".startswith(f"{named}."):
        return ()
    text = f"the source says that its version is {told}, and the {named} named is taken in its place"
    remedy = "leave the version out of --source-engine, unless the source is wrong"
    return (Advice(code="version-overridden", text=text, remedy=remedy),)


def _nothing(server: Server, engine: str | None) -> str:
    answered = ", ".join(path for path in server.answers if path not in server.faults)
    wanted = engine_name(engine) if engine else "speculation"
    without = f", not {failures_of(server)}" if server.faults else ""
    return f"tells nothing of {wanted}: it answers {answered}{without}; {remedy_of(server)}"
