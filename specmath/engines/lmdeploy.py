"""LMDeploy: counters and log lines after vLLM's, with gauges of their means beside them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from specmath.engines.content import Exposition, Format, LogReader
from specmath.engines.spec_counts import count
from specmath.engines.spec_lines import MARK, Intervals, spec_line
from specmath.engines.telemetry import Load, ReportedRate, Telemetry

_OWN: Final = re.compile(r"lmdeploy[:_]")
_LINE: Final = "Avg thr "
_RATE: Final = "spec_decode_mean_accept_rate"
_PER_POSITION: Final = "spec_decode_num_accepted_tokens_per_pos"


@dataclass
class _Model:
    """Sums over ranks by short name, the number of ranks, and drafts by position."""

    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    ranks: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    positions: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def take(self, name: str, labels: Mapping[str, str], value: float) -> None:
        if count(value) is None:
            return
        if name == _PER_POSITION:
            self.positions[labels.get("position", "")] += value
        else:
            self.sums[name] += value
            self.ranks[name] += 1

    def total(self, name: str) -> float | None:
        return self.sums.get(name)

    def mean(self, name: str) -> float | None:
        return self.sums[name] / self.ranks[name] if name in self.ranks else None

    def reached(self) -> tuple[float, ...]:
        known = next(
            (n for n in range(len(self.positions)) if str(n) not in self.positions), len(self.positions)
        )
        return tuple(self.positions[str(place)] for place in range(known))


def read_exposition(exposition: Exposition) -> list[Telemetry]:
    """Telemetry of each model of an LMDeploy server, ranks added up; empty for another engine's."""
    models: dict[str | None, _Model] = defaultdict(_Model)
    for sample in exposition.samples:
        own = _OWN.match(sample.name)
        if own and not sample.name.endswith(("_created", "_bucket")):
            name = sample.name[own.end() :].removesuffix("_total")
            models[sample.labels.get("model_name")].take(name, sample.labels, sample.value)
    return [_telemetry(name, model, exposition) for name, model in models.items()]


def _telemetry(name: str | None, model: _Model, exposition: Exposition) -> Telemetry:
    drafts, drafted = model.total("spec_decode_num_drafts"), model.total("spec_decode_num_draft_tokens")
    reached, rate = model.reached(), model.mean(_RATE)
    generated, first = model.total("generation_tokens"), model.total("time_to_first_token_seconds_count")
    return Telemetry(
        engine="lmdeploy",
        version="0.16.0 or newer" if drafts is not None else None,
        model=name,
        source=exposition.source,
        scope=exposition.scope,
        k=len(reached) or None,
        k_varies=bool(reached and drafts and drafted is not None and drafted < len(reached) * drafts - 0.5),
        drafts=drafts,
        drafted=drafted,
        accepted=model.total("spec_decode_num_accepted_tokens"),
        accepted_at=reached,
        reported_rate=ReportedRate(name=_RATE, value=rate, meaning="accepted/drafted")
        if rate is not None
        else None,
        generated=None if generated is None else max(generated - (first or 0), 0),
        load=Load(
            running=model.mean("num_requests_running"),
            waiting=model.total("num_requests_waiting"),
            cache_usage=model.mean("gpu_cache_usage_perc"),
            prompt_tokens=model.total("prompt_tokens"),
        ),
        notes=exposition.notes,
    )


class LmdeployLog(LogReader):
    """Reads the statistics lines of an LMDeploy log, which hold a `SpecDecoding metrics` part."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.intervals = Intervals()

    def feed(self, line: str) -> bool:
        """Take one line; True where it told something about speculation."""
        if MARK not in line or _LINE not in line:
            return False
        if (found := spec_line(line)) is not None:
            self.intervals.add(found)
        return True

    def result(self) -> list[Telemetry]:
        """What the lines told so far; empty where they told nothing."""
        found = self.intervals
        if not found.lines:
            return []
        return [
            Telemetry(
                engine="lmdeploy",
                source=self.source,
                scope="intervals",
                k=found.k,
                k_varies=found.varies,
                drafts=None if found.drafts is None else found.drafts.likely,
                drafted=float(found.drafted),
                accepted=float(found.accepted),
                accepted_at=found.reached(),
                reported_rate=found.rate("Draft acceptance rate"),
                notes=found.notes(),
            )
        ]


FORMATS: Final = (
    Format(engine="lmdeploy", name="LMDeploy metrics", read_exposition=read_exposition),
    Format(engine="lmdeploy", name="LMDeploy log", log=LmdeployLog),
)
"""LMDeploy's formats."""
