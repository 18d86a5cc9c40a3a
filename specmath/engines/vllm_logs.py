"""vLLM's server log: the interval lines of V1, the cumulative ones of V0, and the load beside them.

A log may hold several servers one after another or side by side. Lines belong to what their process was
started with; those of the engines of one server bear no number and are added up.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from specmath.engines.content import LogReader
from specmath.engines.spec_lines import MARK, Intervals, spec_line
from specmath.engines.telemetry import Load, ReportedRate, Telemetry
from specmath.results import Advice

MAX_SERVERS: Final = 64
LOOKUP: Final = ("ngram", "ngram_gpu", "suffix")
"""Methods that draft as many tokens as they find."""
_FOREIGN: Final = "Avg thr "
_V0_MARK: Final = "Speculative metrics: "
_LOAD_MARK: Final = "Avg prompt throughput: "
_START_MARK: Final = "non-default args: "
_PID: Final = re.compile(r"\(\w{1,40} pid=(\d{1,10})\)")
_VERSION: Final = re.compile(
    r"\bversion (\d{1,3}\.\d{1,3}\.\d[\w.+]{0,30})|\(v(\d{1,3}\.\d{1,3}\.\d[\w.+]{0,30})\)"
)
_SERVED: Final = re.compile(r"'served_model_name': \[?'([^']{1,200})'")
_MODEL: Final = re.compile(r"'model(?:_tag)?': '([^']{1,200})'")
_METHOD: Final = re.compile(r"""["']method["']: ?["']([\w-]{1,40})["']""")
_TOKENS: Final = re.compile(r"""["']num_speculative_tokens["']: ?(\d{1,5})""")
_V0: Final = re.compile(
    r"Draft acceptance rate: ([\d.]{1,20}|nan), System efficiency: ([\d.]{1,20}|nan),"
    r" Number of speculative tokens: (\d{1,5}), Number of accepted tokens: (\d{1,15}),"
    r" Number of draft tokens(?: tokens)?: (\d{1,15}), Number of emitted tokens(?: tokens)?: (\d{1,15})\."
)
_LOAD: Final = re.compile(
    r"(?:Engine (\d{1,6}): |(\d{1,6}) Engines Aggregated: )?Avg prompt throughput: [\d.]{1,20} tokens/s, "
    r"Avg generation throughput: ([\d.]{1,20}) tokens/s, "
    r"Running: (\d{1,7}) reqs, (?:Swapped: \d{1,7} reqs, )?"
    r"(?:Waiting|Pending): (\d{1,7}) reqs(?:, \w+ KV cache usage: ([\d.]{1,8})%)?"
)
_OFFLINE: Final = re.compile(
    r"\s*(num_drafts|num_draft_tokens|num_accepted_tokens|acceptance at token (\d{1,4})): ([\d.]{1,20})\s*"
)


class VllmLog(LogReader):
    """Reads a vLLM log, or the output of its offline speculation example."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.servers: dict[_Start, _Server] = {}
        self.starts: dict[str, _Start] = {}
        self.latest = _Start()
        self.version: str | None = None
        self.offline: dict[str, float] = {}

    def feed(self, line: str) -> bool:
        """Take one line; True where it told something about speculation."""
        if MARK in line:
            return _FOREIGN not in line and self._server(line).interval(line)
        if _V0_MARK in line:
            return self._server(line).cumulative(line)
        if _LOAD_MARK in line:
            self._server(line).load(line)
        elif _START_MARK in line:
            self._start(line)
        elif "version " in line or "(v" in line:
            self._note_version(line)
        elif match := _OFFLINE.fullmatch(line):
            self.offline[match[1]] = float(match[3]) if match[3].count(".") < 2 else 0.0
            return True
        return False

    def result(self) -> list[Telemetry]:
        """What each server's lines told; servers that never drafted only where no other did."""
        if "num_drafts" in self.offline:
            return [_offline(self.offline, self.source)]
        drafting = [server for server in self.servers.values() if server.told]
        return [server.telemetry(self.source) for server in drafting or self.servers.values() if server.seen]

    def _server(self, line: str) -> _Server:
        pid = _PID.search(line)
        start = self.starts.get(pid[1], self.latest) if pid else self.latest
        if start not in self.servers and len(self.servers) >= MAX_SERVERS:
            start = next(iter(self.servers))
        return self.servers.setdefault(start, _Server(start, self.version))

    def _start(self, line: str) -> None:
        arguments = line.partition(_START_MARK)[2][:20_000]
        model, speculation = arguments.partition("speculative_config")[::2]
        served = _SERVED.search(arguments) or _MODEL.search(model)
        method, tokens = _METHOD.search(speculation), _TOKENS.search(speculation)
        self.latest = _Start(
            served[1] if served else None, method[1] if method else None, int(tokens[1]) if tokens else None
        )
        if (pid := _PID.search(line)) and len(self.starts) < MAX_SERVERS:
            self.starts[pid[1]] = self.latest

    def _note_version(self, line: str) -> None:
        if match := _VERSION.search(line[:2000]):
            self.version = match[1] or match[2]
            if self.latest in self.servers:
                self.servers[self.latest].version = self.version


@dataclass(frozen=True, slots=True)
class _Start:
    """What a server was started with, as far as its log tells."""

    model: str | None = None
    method: str | None = None
    k: int | None = None


@dataclass
class _Cumulative:
    """V0's running totals: the last line, and the totals of earlier starts."""

    k: int = 0
    last: tuple[int, int, int] = (0, 0, 0)
    drafts: float = 0
    drafted: float = 0
    emitted: float = 0
    raw: float = 0
    restarts: int = 0
    lengths: set[int] = field(default_factory=set)

    def add(self, k: int, raw: int, drafted: int, emitted: int) -> None:
        if self.k and (drafted < self.last[1] or emitted < self.last[2] or k != self.k):
            self._close()
            self.restarts += 1
        self.k, self.last = k, (raw, drafted, emitted)
        self.lengths.add(k)

    def _close(self) -> None:
        raw, drafted, emitted = self.last
        self.drafts += drafted / self.k
        self.drafted, self.emitted, self.raw = self.drafted + drafted, self.emitted + emitted, self.raw + raw
        self.last = (0, 0, 0)

    def totals(self) -> tuple[float, float, float, float]:
        """Drafts, draft tokens, emitted tokens, and tokens accepted wherever they stood."""
        raw, drafted, emitted = self.last
        drafts = self.drafts + drafted / self.k
        return drafts, float(self.drafted + drafted), self.emitted + emitted, self.raw + raw


@dataclass
class _Server:
    """One server's lines."""

    start: _Start
    version: str | None
    intervals: Intervals = field(default_factory=Intervals)
    v0: _Cumulative = field(default_factory=_Cumulative)
    running: Counter[float] = field(default_factory=Counter)
    waiting: float = 0
    cache: float = 0
    throughput: dict[str, tuple[float, int]] = field(default_factory=dict)
    broken: int = 0

    @property
    def told(self) -> bool:
        """Whether any line told about speculation."""
        return bool(self.intervals.lines or self.v0.k)

    @property
    def seen(self) -> bool:
        """Whether any line told anything."""
        return self.told or bool(self.running)

    def interval(self, line: str) -> bool:
        found = spec_line(line)
        if found is None:
            self.broken += 1
        else:
            self.intervals.add(found)
        return True

    def cumulative(self, line: str) -> bool:
        found = _V0.search(line)
        counts = [int(found[place]) for place in (3, 4, 5, 6)] if found else [0]
        if not counts[0] or counts[3] * counts[0] < counts[2]:  # each draft emits a token at least
            self.broken += 1
        else:
            self.v0.add(counts[0], counts[1], counts[2], counts[3])
        return True

    def load(self, line: str) -> None:
        found = _LOAD.search(line)
        if not found:
            return
        engines = int(found[2] or 1) or 1
        throughput = _number(found[3])
        running = int(found[4]) / engines
        name = found[1] or ""
        if throughput and (len(self.throughput) < 1000 or name in self.throughput):
            so_far, number = self.throughput.get(name, (0.0, 0))
            self.throughput[name] = (so_far + throughput, number + 1)
        if running and (
            len(self.running) < 10_000 or running in self.running
        ):  # an idle engine makes no step
            self.running[running] += 1
            self.waiting += int(found[5])
            self.cache += _number(found[6] or "0") / 100

    def telemetry(self, source: str) -> Telemetry:
        return self._of_v0(source) if self.v0.k else self._of_v1(source)

    def _of_v1(self, source: str) -> Telemetry:
        found = self.intervals
        drafts = found.drafts.likely if found.drafts is not None and found.lines else None
        off = () if found.lines else (_without_lines(),)
        return Telemetry(
            engine="vllm",
            version=self.version,
            model=self.start.model,
            source=source,
            scope="intervals",
            method=self.start.method,
            k=found.k or self.start.k,
            k_varies=found.varies or self.start.method in LOOKUP,
            drafts=drafts,
            drafted=float(found.drafted) if found.lines else None,
            accepted=float(found.accepted) if found.lines else None,
            accepted_at=found.reached(),
            reported_rate=found.rate("Avg Draft acceptance rate"),
            load=self._load(),
            notes=(*(found.notes() if found.lines else off), *self._broken()),
        )

    def _of_v0(self, source: str) -> Telemetry:
        drafts, drafted, emitted, raw = self.v0.totals()
        meaning = "accepted/drafted, tokens after a rejection counted"
        rate = (
            ReportedRate(name="Draft acceptance rate", value=raw / drafted, meaning=meaning)
            if drafted
            else None
        )
        return Telemetry(
            engine="vllm",
            version=self.version or "0.5 to 0.9.2, V0 engine",
            model=self.start.model,
            source=source,
            scope="since start",
            method=self.start.method,
            k=max(self.v0.lengths),
            k_varies=len(self.v0.lengths) > 1,
            drafts=drafts,
            drafted=drafted,
            accepted=emitted - drafts,
            reported_rate=rate,
            load=self._load(),
            notes=(*self._restarts(), *self._broken()),
        )

    def _load(self) -> Load:
        lines = self.running.total()
        if not lines:
            return Load()
        return Load(
            running=sum(value * number for value, number in self.running.items()) / lines,
            running_p95=_percentile(self.running, 0.95),
            waiting=self.waiting / lines,
            cache_usage=self.cache / lines,
            tokens_per_s=sum(tokens / number for tokens, number in self.throughput.values()) or None,
        )

    def _restarts(self) -> tuple[Advice, ...]:
        if not self.v0.restarts:
            return ()
        text = f"the log holds {self.v0.restarts + 1} starts, whose totals were added up"
        return (Advice(code="counters-reset", text=text, remedy="cut the log to the run that counts"),)

    def _broken(self) -> tuple[Advice, ...]:
        if not self.broken:
            return ()
        text = f"{self.broken} lines about speculation are cut off or contradict themselves and were left out"
        return (Advice(code="lines-left-out", text=text, remedy="take the whole log"),)


def _without_lines() -> Advice:
    text = "the log has no line about speculation: it is off, or nothing was drafted"
    return Advice(code="speculation-off", text=text, remedy="start the server with --speculative-config")


def _number(text: str) -> float:
    return float(text) if text.count(".") < 2 and text != "." else 0.0


def _percentile(values: Counter[float], share: float) -> float:
    """The smallest value that at least `share` of the observations do not exceed."""
    reached = 0
    for value in sorted(values):
        reached += values[value]
        if reached >= share * values.total():
            return value
    return max(values)


def _offline(found: dict[str, float], source: str) -> Telemetry:
    """The totals of vLLM's offline example, whose positions are printed to two digits."""
    shares: list[float] = []
    while (share := found.get(f"acceptance at token {len(shares)}")) is not None:
        shares.append(share)
    drafts, drafted = found["num_drafts"], found.get("num_draft_tokens")
    return Telemetry(
        engine="vllm",
        source=source,
        scope="since start",
        k=len(shares) or None,
        k_varies=drafted is not None and bool(shares) and drafted < len(shares) * drafts - 0.5,
        drafts=drafts,
        drafted=drafted,
        accepted=found.get("num_accepted_tokens"),
        accepted_at=tuple(share * drafts for share in shares),
    )
