"""Prometheus 0.0.4 and OpenMetrics text: the samples of a scrape, and the difference of two scrapes.

Every line goes through the parser of `prometheus_client` on its own, so that one it refuses costs that line
alone. TYPE lines are read here: names stay as they are written, whatever a client library makes of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from specmath.engines.content import Exposition, Sample
from specmath.errors import DataError, shown
from specmath.results import Advice

MAX_LINE: Final = 16_384
"""Most characters of a line; the longest an engine writes, that of its cache settings, has some 1500."""
_TYPE: Final = re.compile(r'#[ \t]+TYPE[ \t]+"?([^\s"]+)"?[ \t]+(\w+)')


def parse_exposition(text: str, *, source: str = "") -> Exposition:
    """The samples of an exposition, in order, names and labels as written.

    Lines may end in CRLF, carry timestamps and exemplars, and come without TYPE; a byte order mark and
    `# EOF` are passed over. A line that is no sample, or has more than 16384 characters, is left out and
    counted.

    Args:
        text: The exposition.
        source: Where it came from, for messages.

    Returns:
        The samples, with the scope `since start`. NaN and infinities stay in; readers leave them out.

    >>> parse_exposition('a_total{engine="0"} 3').samples
    (Sample(name='a_total', labels={'engine': '0'}, value=3.0),)
    """
    samples: list[Sample] = []
    types: dict[str, str] = {}
    refused: list[str] = []
    for line in map(str.strip, text.removeprefix("\ufeff").split("\n")):
        if line.startswith("#"):
            if declared := _TYPE.match(line[:MAX_LINE]):
                types[declared[1]] = declared[2]
        elif line:
            sample = None if len(line) > MAX_LINE else _sample(line)
            if sample is None:
                refused.append(line[:60])
            else:
                samples.append(sample)
    return Exposition(samples=tuple(samples), types=types, source=source, notes=_left_out(refused))


def _sample(line: str) -> Sample | None:
    from prometheus_client.parser import text_string_to_metric_families  # 20 ms, only here

    try:
        for family in text_string_to_metric_families(line):
            for sample in family.samples:
                return Sample(sample.name, sample.labels, float(sample.value))
    except (ValueError, OverflowError, IndexError):  # IndexError: an opening brace that ends the line
        pass
    return None


def _left_out(refused: list[str]) -> tuple[Advice, ...]:
    if not refused:
        return ()
    count = f"{len(refused)} line{'s' if len(refused) > 1 else ''}"
    text = f"{count} could not be read as a sample and {'were' if len(refused) > 1 else 'was'} left out"
    example = f"the first begins with {shown(refused[0])}"
    return (Advice(code="lines-left-out", text=f"{text}; {example}", remedy="take the scrape again"),)


_Series = tuple[str, frozenset[tuple[str, str]]]
Process = tuple[str, tuple[tuple[str, str], ...]]

_SUFFIXES: Final = ("_total", "_count", "_sum", "_bucket")
_NOT_TOTALS: Final = ("n_tokens_max", "n_busy_slots_per_decode")
"""llama.cpp calls these counters; they are a maximum and a mean."""
_BYSTANDERS: Final = ("python", "process", "http", "go")
"""Namespaces whose restart goes without saying."""
_ONE_RUN: Final = "take two scrapes of one run, with no restart between them"
_PROCESS_LABELS: Final = frozenset(
    (
        *("model_name", "model", "engine", "engine_index", "engine_type", "worker_id", "workerid"),
        *("replica", "replicaid", "dp_rank", "tp_rank", "pp_rank", "moe_ep_rank"),
        *("instance", "job", "pod", "container", "namespace", "node", "host", "hostname"),
    )
)
"""Labels, in lower case, that tell one counting process from another; the rest tell its series apart."""


def difference(earlier: Exposition, later: Exposition) -> Exposition:
    """What was counted between two scrapes of the same server: totals subtracted, gauges as they were last.

    A restart is seen where a total fell or a `_created` time moved on; all series of that process (the same
    engine, model, rank and host) then count from zero, since a restart spares none of them. A series that
    appeared counts from zero, too. Series are matched whether names are written with colons or underscores.

    Args:
        earlier: The first scrape.
        later: The second one.

    Returns:
        The difference, with the scope `difference` and a note for every kind of restart or loss.

    Raises:
        DataError: totals fell though nothing restarted, so that the two were given in the wrong order.

    >>> first, second = parse_exposition("a_total 3"), parse_exposition("a_total 5")
    >>> difference(first, second).samples[0].value
    2.0
    """
    types = _plain_types(earlier) | _plain_types(later)
    before, after = _by_series(earlier), _by_series(later)
    if before and after and not {name for name, _ in before} & {name for name, _ in after}:
        problem = f"has no metric in common with {earlier.source or 'the earlier scrape'}"
        raise DataError(later.source or "scrape", f"{problem}; give the earlier one of the same server")
    restarted = _restarted(before, after, types)
    _refuse_swapped(before, after, types, restarted, earlier.source)
    samples = tuple(
        Sample(sample.name, sample.labels, _since(sample, before, types, restarted))
        for series, sample in after.items()
        if not series[0].endswith("_created")
    )
    return Exposition(
        samples=samples,
        types=dict(later.types),
        scope="difference",
        source=" -> ".join(dict.fromkeys(part for part in (earlier.source, later.source) if part)),
        notes=(*later.notes, *_change_notes(before, after, restarted)),
    )


def plain_name(name: str) -> str:
    """A name with every sign that some exporters replace by an underscore replaced."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def _since(
    sample: Sample, before: Mapping[_Series, Sample], types: Mapping[str, str], restarted: frozenset[Process]
) -> float:
    was = before.get(_series(sample))
    if was is None or not is_total(sample.name, types) or process_of(sample) in restarted:
        return sample.value
    return sample.value - was.value


def _plain_types(exposition: Exposition) -> dict[str, str]:
    return {plain_name(name): kind for name, kind in exposition.types.items()}


def _series(sample: Sample) -> _Series:
    return plain_name(sample.name), frozenset(sample.labels.items())


def _by_series(exposition: Exposition) -> dict[_Series, Sample]:
    return {_series(sample): sample for sample in exposition.samples}


def process_of(sample: Sample) -> Process:
    """The counting process that a series belongs to: a restart spares none of its series."""
    own = (item for item in sample.labels.items() if item[0].lower() in _PROCESS_LABELS)
    return plain_name(sample.name).partition("_")[0], tuple(sorted(own))


def is_total(name: str, types: Mapping[str, str]) -> bool:
    """Whether a value only ever grows, so that two of them may be subtracted."""
    plain = plain_name(name)
    if plain.endswith(_NOT_TOTALS):
        return False
    if plain in types:
        return types[plain] == "counter" or (
            types[plain] not in ("gauge", "summary") and _suffix(plain) != ""
        )
    suffix = _suffix(plain)
    return suffix != "" and types.get(plain.removesuffix(suffix), "untyped") not in (
        "gauge",
        "gaugehistogram",
    )


def _suffix(name: str) -> str:
    return next((suffix for suffix in _SUFFIXES if name.endswith(suffix)), "")


def _fell(sample: Sample, before: Mapping[_Series, Sample], types: Mapping[str, str]) -> bool:
    was = before.get(_series(sample))
    counts = sample.name.endswith(("_total", "_count")) and is_total(sample.name, types)
    return was is not None and counts and sample.value < was.value * (1 - 1e-9)


def _created_after(series: _Series, sample: Sample, before: Mapping[_Series, Sample]) -> bool:
    was = before.get(series)
    return was is not None and series[0].endswith("_created") and sample.value > was.value


def _restarted(
    before: Mapping[_Series, Sample], after: Mapping[_Series, Sample], types: Mapping[str, str]
) -> frozenset[Process]:
    return frozenset(
        process_of(sample)
        for series, sample in after.items()
        if _fell(sample, before, types) or _created_after(series, sample, before)
    )


def _refuse_swapped(
    before: Mapping[_Series, Sample],
    after: Mapping[_Series, Sample],
    types: Mapping[str, str],
    restarted: frozenset[Process],
    source: str,
) -> None:
    for series, sample in after.items():
        if process_of(sample) not in restarted or not _fell(sample, before, types):
            continue
        created = (series[0].removesuffix("_total").removesuffix("_count") + "_created", series[1])
        if created in before and created in after and after[created].value <= before[created].value:
            problem = (
                f"is later than the scrape it is taken from: {sample.name} was higher and did not restart"
            )
            raise DataError(source or "since", f"{problem}; give the earlier one with --since")


def _change_notes(
    before: Mapping[_Series, Sample], after: Mapping[_Series, Sample], restarted: frozenset[Process]
) -> tuple[Advice, ...]:
    first, second = (_labelled(scrape.values()) for scrape in (before, after))
    told = frozenset(process for process in restarted if process[0] not in _BYSTANDERS)
    text = f"{_restarted_parts(told, first | second)} restarted between the scrapes: counted from zero"
    reset = (Advice(code="counters-reset", text=text, remedy=_ONE_RUN),) if told else ()
    found = (
        ("series-gone", first - second, "vanished between the scrapes: what was counted there is lost"),
        ("series-new", second - first if first else (), "appeared between the scrapes: counted from zero"),
    )
    changes = (
        Advice(code=code, text=f"{_listed(processes)} {text}", remedy=_ONE_RUN)
        for code, processes, text in found
        if processes
    )
    return (*reset, *changes)


def _restarted_parts(restarted: frozenset[Process], processes: frozenset[Process]) -> str:
    """The server, or those of its engines, models or ranks that restarted while others went on."""
    own = [process for process in processes if process[0] not in _BYSTANDERS]
    values: dict[str, set[str]] = {}
    for key, value in (label for _, labels in own for label in labels):
        values.setdefault(key, set()).add(value)
    several = frozenset(key for key, told in values.items() if len(told) > 1)
    parts = {_part(process, several) for process in restarted} - {""}
    everything = {_part(process, several) for process in own} - {""}
    if parts == everything or not parts:
        return "the server"
    more = f" and {len(parts) - 3} more" if len(parts) > 3 else ""
    return ", ".join(part[:80] for part in sorted(parts)[:3]) + more


def _part(process: Process, several: frozenset[str]) -> str:
    """A process by the labels that tell it from others; empty where none does."""
    return " of ".join(
        f"{key.removesuffix('_name').replace('_', ' ')} {value}"
        for key, value in process[1]
        if key in several
    )


def _labelled(samples: Iterable[Sample]) -> frozenset[Process]:
    """The processes that bear labels: of the others a series may come with the first request."""
    return frozenset(process for process in map(process_of, samples) if process[1])


def _listed(processes: Iterable[Process]) -> str:
    names = sorted(
        f"{namespace}{{{', '.join(f'{key}={value}' for key, value in labels)}}}" if labels else namespace
        for namespace, labels in processes
    )
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(name[:80] for name in names[:3]) + more
