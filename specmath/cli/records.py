"""From a SOURCE and the options beside it to records of telemetry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmath.cli.named_files import refuse_calibrations
from specmath.cli.options import SourceOptions
from specmath.engines.recognition import read_telemetry
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError, InputError, UnknownNameError, shown


def records_of(sources: Sequence[str], options: SourceOptions) -> list[Telemetry]:
    """The records that the sources hold, one for each model, or those of the one model that is named."""
    refuse_calibrations(sources)
    if list(sources).count("-") + (options.since == "-") > 1:
        raise InputError("source", "- is taken already; stdin can be read once")
    if options.since is not None and len(sources) > 1:
        raise InputError("since", "goes with one SOURCE, the later scrape of the same server")
    engine, _, version = (options.source_engine or "").partition("@")
    if options.watch is not None:
        found = _watched(sources, options, engine or None, version or None)
    else:
        found = [
            record
            for source in sources
            for record in read_telemetry(
                source, engine=engine or None, version=version or None, since=options.since
            )
        ]
    if version:
        found = [_as_version(record, version) for record in found]
    return found if options.model is None else _of_model(found, options.model)


def _as_version(record: Telemetry, version: str) -> Telemetry:
    """The record as of the version named, with a warning where it tells another one."""
    from specmath.engines.server_telemetry import version_notes

    return replace(record, version=version, notes=(*record.notes, *version_notes(version, record.version)))


def _watched(
    sources: Sequence[str], options: SourceOptions, engine: str | None, version: str | None
) -> list[Telemetry]:
    """What a server counts from now on, with a bar on stderr meanwhile."""
    from specmath.cli.progress import progress_shown
    from specmath.engines.watching import watch_server
    from specmath.units import parse_quantity

    if options.since is not None or len(sources) != 1:
        raise InputError("watch", "goes with one URL, and without --since: both scrapes are taken now")
    seconds = parse_quantity("watch", str(options.watch), "s")
    with progress_shown("watching; Ctrl-C ends it") as progress:
        return watch_server(sources[0], seconds, engine=engine, version=version, progress=progress)


def one_record(source: str, options: SourceOptions) -> Telemetry:
    """The record of the one model of a source; an error that names the models where there are several."""
    found = records_of([source], options)
    if len(found) > 1:
        where, named = found[0].source, list(dict.fromkeys(one.model for one in found if one.model))
        if len(named) < 2:
            problem = f"holds {len(found)} runs that nothing tells apart; give a file with one of them"
            raise DataError(where, problem)
        problem = f"is missing: {shown(where)} tells of {len(named)} models; pick one: {', '.join(named)}"
        raise InputError("model", problem)
    if not found:
        raise DataError("source", "no data: it holds no record")
    return found[0]


def _of_model(found: list[Telemetry], name: str) -> list[Telemetry]:
    chosen = [record for record in found if record.model == name]
    known = [record.model for record in found if record.model]
    if not chosen:
        told = (
            f"the source tells of {', '.join(known)}" if known else "the source names no model; leave it out"
        )
        raise UnknownNameError("model", name, known, told)
    return chosen
