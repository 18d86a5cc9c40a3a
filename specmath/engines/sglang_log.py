"""SGLang's log: a line for each decode interval (40 steps by default), with the length of that interval."""

from __future__ import annotations

import re
from typing import Final

from specmath.engines.content import LogReader
from specmath.engines.sglang_rates import Rate, chain_note, tree_note
from specmath.engines.telemetry import Load, ReportedRate, Telemetry
from specmath.engines.values import percentile
from specmath.results import Advice

ENGINE: Final = "sglang"
MOST_RANKS: Final = 1024
MOST_BATCHES: Final = 4096
CHAINS: Final = range(2, 66)
"""Draft tokens, the root included, that are tried against lengths and rates."""
_ROUNDED: Final = 0.00501
"""Half of the last digit that the log prints, and the noise of binary fractions."""

_HEAD: Final = re.compile(r"Decode batch(\. | \[\d{1,12}\], |, )#running-req: (\d{1,9}),")
_LENGTH: Final = re.compile(r"accept len: (\d{1,6}\.\d{1,6})")
_RATE: Final = re.compile(r"accept rate: (\d{1,6}\.\d{1,6})")
_QUEUE: Final = re.compile(r"#queue-req: (\d{1,9})")
_THROUGHPUT: Final = re.compile(r"gen throughput \(token/s\): (\d{1,12}\.\d{1,6})")
_USAGE: Final = re.compile(r"token usage: (\d{1,3}\.\d{1,6})")
_RANK: Final = re.compile(r"\b(DP|TP|PP|EP)(\d{1,5})\b")
_ARGUMENT: Final = re.compile(
    r"\b(speculative_num_steps|speculative_num_draft_tokens)['\"]?[=:] ?(\d{1,3})\b"
)
_ADAPTIVE: Final = re.compile(r"\bspeculative_adaptive['\"]?[=:] ?[Tt]rue\b")
_MEANINGS: Final = (Rate.WITH_BONUS, Rate.DRAFTS_ONLY)


class Tally:
    """A weighted mean of intervals."""

    def __init__(self) -> None:
        self.sum = self.weight = 0.0

    def add(self, value: float, weight: float = 1.0) -> None:
        self.sum += value * weight
        self.weight += weight

    @property
    def mean(self) -> float | None:
        return self.sum / self.weight if self.weight else None


class SglangLog(LogReader):
    """Averages intervals by their running requests: each interval has the same number of steps."""

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.length, self.rate, self.running, self.waiting = Tally(), Tally(), Tally(), Tally()
        self.throughput, self.usage = Tally(), Tally()
        self.batches: dict[float, float] = {}
        self.speaker: dict[str, str] = {}  # the rank that speaks for each data-parallel rank
        self.arguments: dict[str, int] = {}
        self.wording: str | None = None
        self.idle = self.reconfigured = self.adaptive = False
        self.fitting = {(meaning, tokens) for meaning in _MEANINGS for tokens in CHAINS}

    def feed(self, line: str) -> bool:
        """Take one line; True where it is a decode interval that tells a length."""
        if "speculative_num_" in line:
            self._configure(line)
        head = _HEAD.search(line) if "Decode batch" in line else None
        length = _LENGTH.search(line, head.end()) if head else None
        if head is None or length is None or not self._speaks(line[: head.start()]):
            return False
        self.wording = ". " if head[1] == ". " else ", " if head[1] == ", " else "["
        self._load(line, running=int(head[2]))
        self._interval(float(length[1]), _RATE.search(line, length.end()), weight=max(int(head[2]), 1))
        return True

    def _configure(self, line: str) -> None:
        """The arguments that a starting server prints: the last start counts."""
        for name, value in _ARGUMENT.findall(line):
            self.reconfigured |= self.arguments.get(name, int(value)) != int(value)
            self.arguments[name] = int(value)
        self.adaptive |= bool(_ADAPTIVE.search(line))

    def _speaks(self, prefix: str) -> bool:
        """Whether the line's rank is the one that speaks for its data-parallel rank: the others repeat it."""
        ranks = dict(_RANK.findall(prefix))
        scheduler = ranks.pop("DP", "")
        if scheduler not in self.speaker and len(self.speaker) >= MOST_RANKS:
            return False
        return self.speaker.setdefault(scheduler, repr(ranks)) == repr(ranks)

    def _load(self, line: str, *, running: int) -> None:
        self.running.add(running)
        if running in self.batches or len(self.batches) < MOST_BATCHES:
            self.batches[running] = self.batches.get(running, 0.0) + 1
        for pattern, tally in ((_QUEUE, self.waiting), (_THROUGHPUT, self.throughput), (_USAGE, self.usage)):
            found = pattern.search(line)
            if found:
                tally.add(float(found[1]))

    def _interval(self, length: float, rate: re.Match[str] | None, *, weight: float) -> None:
        if not 1 <= length < 512:  # 0.00 stands for no data
            self.idle = True
            return
        self.length.add(length, weight)
        if rate is not None:
            self.rate.add(float(rate[1]), weight)
            self.fitting = {
                (meaning, n) for meaning, n in self.fitting if _fits(meaning, n, length, float(rate[1]))
            }

    def result(self) -> list[Telemetry]:
        """The intervals so far as one; empty before the first."""
        if self.wording is None:
            return []
        fitting = self._possible()
        meanings = {meaning for meaning, _ in fitting}
        meaning = meanings.pop() if len(meanings) == 1 else Rate.UNKNOWN
        steps, tokens = self._argued("num_steps"), self._argued("num_draft_tokens")
        implied = next(iter(fitting))[1] if len(fitting) == 1 else None
        k = steps or (tokens - 1 if tokens else None) or (implied - 1 if implied else None)
        return [
            Telemetry(
                engine=ENGINE,
                version=self._version(meaning),
                source=self.source,
                scope="intervals",
                k=k,
                k_varies=self.adaptive,
                acceptance_length=self.length.mean,
                reported_rate=self._reported(meaning),
                load=self._loads(),
                notes=self._notes(meaning, implied=implied if not steps and not tokens else None),
            )
        ]

    def _possible(self) -> set[tuple[Rate, int]]:
        """Meanings and draft tokens that agree with every interval and with the server's own arguments."""
        if self.rate.mean is None:
            return set()
        possible = self.fitting
        if self.wording == "[":  # 0.5.4 and 0.5.5 alone
            possible = {pair for pair in possible if pair[0] is Rate.WITH_BONUS}
        tokens = self._argued("num_draft_tokens")
        return {pair for pair in possible if pair[1] == tokens} if tokens else possible

    def _version(self, meaning: Rate) -> str:
        if self.wording == ". ":
            return "before 0.5.4"
        if self.wording == "[":
            return "0.5.4 or 0.5.5"
        return {Rate.WITH_BONUS: "0.5.6 to 0.5.10", Rate.DRAFTS_ONLY: "0.5.11 or newer"}.get(
            meaning, "0.5.6 or newer"
        )

    def _reported(self, meaning: Rate) -> ReportedRate | None:
        if self.rate.mean is None:
            return None
        return ReportedRate(name="accept rate", value=self.rate.mean, meaning=meaning.value)

    def _loads(self) -> Load:
        schedulers = len(self.speaker)
        running, waiting, throughput = self.running.mean, self.waiting.mean, self.throughput.mean
        return Load(
            running=running * schedulers if running is not None else None,
            running_p95=percentile(self.batches, 0.95) if schedulers == 1 else None,
            waiting=waiting * schedulers if waiting is not None else None,
            cache_usage=self.usage.mean,
            tokens_per_s=throughput * schedulers if throughput else None,
        )

    def _notes(self, meaning: Rate, *, implied: int | None) -> tuple[Advice, ...]:
        notes: list[Advice] = []
        if self.length.mean is None:
            notes.append(
                Advice(
                    code="no-data",
                    text="every interval of the log has an accept len of 0.00: nothing was verified",
                    remedy="take a log during which requests are decoded with speculation on",
                )
            )
        if self.rate.mean is not None and meaning is Rate.UNKNOWN:
            notes.append(
                Advice(
                    code="rate-unknown",
                    text=f"the log's accept rate can mean {meaning.value}: the length alone is used",
                    remedy="give a log that begins with the server's start, which prints its arguments",
                )
            )
        if self.reconfigured:
            notes.append(
                Advice(
                    code="reconfigured",
                    text="the log holds several starts of the server with different draft lengths",
                    remedy="give the part of one start",
                )
            )
        steps, tokens = self._argued("num_steps"), self._argued("num_draft_tokens")
        if steps and tokens and tokens > steps + 1:
            notes.append(tree_note(tokens - 1, steps))
        return (*notes, *((chain_note(implied),) if implied else ()))

    def _argued(self, name: str) -> int | None:
        """An argument of the server; None where it was not printed, or is 0."""
        return self.arguments.get(f"speculative_{name}") or None


def _fits(meaning: Rate, draft_tokens: int, length: float, rate: float) -> bool:
    """Whether length and rate, both rounded to two digits, agree under a meaning.

    >>> _fits(Rate.DRAFTS_ONLY, 4, 2.62, 0.54), _fits(Rate.WITH_BONUS, 4, 2.62, 0.54)
    (True, False)
    """
    bonus, whole = (0, draft_tokens) if meaning is Rate.WITH_BONUS else (1, draft_tokens - 1)
    return abs((length - bonus) / whole - rate) <= _ROUNDED * (1 + 1 / whole)
