"""Requests by domain, and what true decoding of them has accepted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from calibrate.decoding import Decoded, accepted_at, speculative
from calibrate.drafters import Drafter
from calibrate.prompts import EncodedPrompt
from calibrate.sampling import Sampling
from specmath.calibrations import AcceptanceRow
from specmath.checks import require_count
from specmath.errors import InputError

if TYPE_CHECKING:
    from calibrate.runners import Runner

ALL_DOMAINS: Final = "all"
Progress = Callable[[int, int, str], None]
"""Told the work done, all of it, and what comes next."""


@dataclass(frozen=True, slots=True)
class Requests:
    """What is decoded, and how.

    Attributes:
        prompts: Tokens and domain of each request.
        k: Draft tokens of a step.
        new_tokens: Tokens after which a text ends.
        batch: Texts at a time.
        eos: Tokens that end a text.

    Raises:
        InputError: no prompts, or a domain that is called `all`.
    """

    prompts: Sequence[EncodedPrompt]
    k: int
    new_tokens: int
    batch: int
    eos: Sequence[int]

    def __post_init__(self) -> None:
        require_count("k", self.k, 1)
        require_count("new_tokens", self.new_tokens, 1)
        require_count("batch", self.batch, 1)
        if not self.prompts:
            raise InputError("prompts", "must be one or more")
        if any(prompt.domain == ALL_DOMAINS for prompt in self.prompts):
            raise InputError("prompts", f"must be of a domain with another name than {ALL_DOMAINS!r}")

    @property
    def batches(self) -> list[Sequence[EncodedPrompt]]:
        """The prompts, some at a time, in their order."""
        return [self.prompts[at : at + self.batch] for at in range(0, len(self.prompts), self.batch)]

    def domains(self) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
        """Each domain and which prompts are of it, all of them first; one domain alone is `all`."""
        of = np.array([prompt.domain for prompt in self.prompts])
        yield ALL_DOMAINS, np.ones(len(of), dtype=np.bool_)
        names = list(dict.fromkeys(of.tolist()))
        if len(names) > 1:
            yield from ((name, of == name) for name in names)


def samplings(temperatures: Sequence[float], top_ps: Sequence[float]) -> tuple[Sampling, ...]:
    """Each temperature with each top-p; greedy decoding once, as top-p leaves its token alone.

    >>> [(one.temperature, one.top_p) for one in samplings([0, 1], [1, 0.9])]
    [(0, 1.0), (1, 1), (1, 0.9)]
    """
    pairs = [Sampling(t, top_p if t else 1.0) for t in temperatures for top_p in top_ps]
    return tuple(dict.fromkeys(pairs))


def named_sampling(sampling: Sampling) -> str:
    """Temperature and top-p in words.

    >>> named_sampling(Sampling(0.7, 0.9))
    'temperature 0.7, top-p 0.9'
    """
    top_p = "" if sampling.top_p == 1 else f", top-p {sampling.top_p:g}"
    return f"temperature {sampling.temperature:g}{top_p}"


class Work:
    """Progress through a known number of pieces of work."""

    def __init__(self, all_of_them: int, progress: Progress | None) -> None:
        self.done, self.all_of_them, self.progress = 0, all_of_them, progress

    def next(self, what: str) -> None:
        """Says that this comes next."""
        if self.progress:
            self.progress(self.done, self.all_of_them, what)
        self.done += 1

    def finish(self) -> None:
        """Says that all is done."""
        if self.progress:
            self.progress(self.all_of_them, self.all_of_them, "done")


@dataclass(frozen=True, slots=True)
class Counts:
    """Of each request: steps, and how many of them accepted exactly 0, 1, …, k tokens."""

    steps: npt.NDArray[np.int64]
    histogram: npt.NDArray[np.int64]

    @property
    def accepted(self) -> npt.NDArray[np.int64]:
        """Accepted tokens of each request."""
        total: npt.NDArray[np.int64] = self.histogram @ np.arange(self.histogram.shape[1])
        return total


def decoded_counts(
    target: Runner,
    drafter: Drafter,
    requests: Requests,
    sampling: Sampling,
    seeds: Iterator[int],
    work: Work,
) -> Counts:
    """Decodes all requests with drafts and counts; each batch takes the next seed."""
    runs: list[Decoded] = []
    for some in requests.batches:
        work.next(f"decoding at {named_sampling(sampling)}")
        run = speculative(
            target,
            drafter,
            [prompt.tokens for prompt in some],
            k=requests.k,
            new_tokens=requests.new_tokens,
            sampling=sampling,
            eos=requests.eos,
            seed=next(seeds),
        )
        runs.append(run)
    wide = requests.k + 1
    return Counts(
        np.array([steps for run in runs for steps in run.steps_of]),
        np.array(
            [
                np.bincount(np.array(one, dtype=np.int64), minlength=wide)
                for run in runs
                for one in run.accepted
            ]
        ),
    )


def with_counts(row: AcceptanceRow, counts: Counts, requests: Requests) -> AcceptanceRow:
    """The row with the counts of its domain."""
    of_domain = next(chosen for domain, chosen in requests.domains() if domain == row.domain)
    histogram = counts.histogram[of_domain].sum(0).tolist()
    return replace(row, k=requests.k, drafts=sum(histogram), accepted_at=accepted_at(histogram))
