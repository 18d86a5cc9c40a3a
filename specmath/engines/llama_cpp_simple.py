"""The summary that llama-speculative and llama-speculative-simple print at the end of a run."""

from __future__ import annotations

import re
from typing import Final

from specmath.engines.llama_cpp_lines import WIDEST, drafts_unknown, reported_rate
from specmath.engines.telemetry import Telemetry

ENGINE: Final = "llama.cpp"
_SUMMARY: Final = re.compile(r"(?:^|\s)(n_draft|n_predict|n_drafted|n_accept) {0,8}= {0,8}(\d{1,12})\s*$")


class SimpleRuns:
    """Adds up runs: n_draft is the longest draft allowed, n_drafted and n_accept are totals."""

    def __init__(self) -> None:
        self.run: dict[str, float] = {}
        self.runs = 0
        self.k = 0
        self.predicted = self.drafted = self.accepted = 0.0

    def feed(self, line: str) -> bool:
        """Take one line; True where it is one of the summary."""
        found = _SUMMARY.search(line) if "n_" in line else None
        if found is None:
            return False
        self.run[found[1]] = float(found[2])
        if found[1] == "n_accept" and "n_drafted" in self.run:
            self._end()
        return True

    def _end(self) -> None:
        self.runs += 1
        self.k = max(self.k, int(min(self.run.get("n_draft", 0), WIDEST)))
        self.predicted += self.run.get("n_predict", 0.0)
        self.drafted += self.run["n_drafted"]
        self.accepted += self.run["n_accept"]
        self.run = {}

    def telemetry(self, source: str) -> Telemetry | None:
        """The runs so far; None before the first has ended."""
        if not self.runs:
            return None
        return Telemetry(
            engine=ENGINE,
            source=source,
            scope="requests",
            k=self.k or None,
            drafted=self.drafted,
            accepted=self.accepted,
            reported_rate=reported_rate(self.accepted, self.drafted),
            generated=self.predicted or None,
            steps=self.predicted - self.accepted if self.predicted > self.accepted else None,
            notes=(drafts_unknown("the summary counts"),),
        )
