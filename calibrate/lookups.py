"""Acceptance of a lookup in the text, which has no distribution to compare: true decoding alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from calibrate.drafters import LookupDrafter
from calibrate.prompts import EncodedPrompt
from calibrate.request_counts import Progress, Requests, Work, decoded_counts, samplings, with_counts
from calibrate.sampling import GREEDY_RULE, ONE_HOT_RULE
from specmath.calibrations import AcceptanceRow

if TYPE_CHECKING:
    from calibrate.runners import Runner


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRow:
    """What a lookup in the text had accepted.

    Attributes:
        row: Counts over the steps that found a match.
        steps: All steps.
    """

    row: AcceptanceRow
    steps: int

    @property
    def match_rate(self) -> float:
        """Share of steps that found a match."""
        return self.row.match_rate

    @property
    def acceptance_length(self) -> float:
        """E over all steps; a step without a match yields one token."""
        return 1 + sum(self.row.accepted_at) / self.steps


def measure_lookup(
    target: Runner,
    prompts: Sequence[EncodedPrompt],
    *,
    temperatures: Sequence[float],
    top_ps: Sequence[float] = (1.0,),
    k: int,
    new_tokens: int = 128,
    batch: int = 16,
    eos: Sequence[int] = (),
    seed: int = 0,
    progress: Progress | None = None,
) -> tuple[LookupRow, ...]:
    """What a lookup in the text has accepted in true decoding, by temperature, top-p and domain.

    Arguments are those of `measure_acceptance`.
    """
    requests = Requests(prompts, k, new_tokens, batch, eos)
    chosen = samplings(temperatures, top_ps)
    work = Work(len(chosen) * len(requests.batches), progress)
    seeds = count(seed * 1_000_003)
    rows: list[LookupRow] = []
    for sampling in chosen:
        counts = decoded_counts(target, LookupDrafter(), requests, sampling, seeds, work)
        for domain, of_domain in requests.domains():
            steps = int(counts.steps[of_domain].sum())
            row = AcceptanceRow(
                rule=ONE_HOT_RULE if sampling.temperature else GREEDY_RULE,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                domain=domain,
                positions=steps + int(counts.accepted[of_domain].sum()),
                requests=int(of_domain.sum()),
            )
            row = with_counts(row, counts, requests)
            rows.append(LookupRow(row=replace(row, match_rate=(row.drafts or 0) / steps), steps=steps))
    work.finish()
    return tuple(rows)
