"""Decoding end to end, plain and speculative, on the machine that was calibrated: does the prediction hold?

Both arms run the same prompts in the same loop, in turn, so that a machine that drifts drifts under both. The
prediction takes the acceptance length of the very run: what is proved is the cost of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch

from calibrate.decoding import Decoded, plain, speculative
from calibrate.drafters import Drafter
from calibrate.request_counts import Progress, Work
from calibrate.runners import Runner
from calibrate.sampling import Sampling
from calibrate.timing import Timer
from specmath.calibrations import ProofRow
from specmath.sources import StepTimeSource

ROUNDS = 3
"""Runs of each arm; the median of their steps counts."""
WARM_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """What is decoded to prove a calibration.

    Attributes:
        target: The target.
        drafter: What drafts for it.
        sampling: How tokens are chosen.
        timer: Times a run.
        prompt_tokens: Length of each prompt; their content is random, as it does not matter to a step.
        new_tokens: Tokens that each text grows by.
        prompts: Texts to decode, for the acceptance of real ones; random tokens where there are none.
        synthetic_alpha: As in `calibrate.decoding.speculative`; None for the judgement of the models.
        seed: Of prompts and samples.
    """

    target: Runner
    drafter: Drafter
    sampling: Sampling
    timer: Timer
    prompt_tokens: int
    new_tokens: int
    prompts: Sequence[Sequence[int]] = ()
    synthetic_alpha: float | None = None
    seed: int = 0

    @property
    def context(self) -> int:
        """Tokens in the cache that a pass reads: a static cache is read whole, however full it is."""
        return self.prompt_tokens + self.new_tokens

    def texts(self, batch: int) -> list[list[int]]:
        """Prompts of one length for a batch, the real ones in turn where there are some."""
        if self.prompts:
            chosen = [self.prompts[place % len(self.prompts)] for place in range(batch)]
            return [_stretched(text, self.prompt_tokens) for text in chosen]
        generator = torch.Generator().manual_seed(self.seed)
        tokens = torch.randint(self.target.vocabulary, (batch, self.prompt_tokens), generator=generator)
        return [[int(token) for token in row] for row in tokens]


def prove(
    arms: Arms,
    source: StepTimeSource,
    places: Sequence[tuple[int, int]],
    *,
    rounds: int = ROUNDS,
    keep: Callable[[ProofRow], None] | None = None,
    progress: Progress | None = None,
) -> tuple[ProofRow, ...]:
    """Measured beside predicted steps at each place.

    Args:
        arms: What is decoded.
        source: The calibration, as a source of step times.
        places: Batch and k of each run; runs of one batch share its plain arm.
        rounds: Runs of each arm.
        keep: Told each row as it stands.
        progress: Told the runs done, all of them, and what comes next.
    """
    rows: list[ProofRow] = []
    batches = list(dict.fromkeys(batch for batch, _ in places))
    work = Work(rounds * (len(batches) + len(places)), progress)
    for batch in batches:
        ks = [k for one, k in places if one == batch]
        for row in _at_batch(arms, source, batch, ks, rounds, work):
            rows.append(row)
            if keep:
                keep(row)
    work.finish()
    return tuple(rows)


def _at_batch(
    arms: Arms, source: StepTimeSource, batch: int, ks: Sequence[int], rounds: int, work: Work
) -> list[ProofRow]:
    texts = arms.texts(batch)
    plain_s: list[float] = []
    runs: dict[int, list[Decoded]] = {k: [] for k in ks}
    for number in range(rounds):
        work.next(f"plain decoding at batch {batch}")
        plain_s.append(_step_s(_plain(arms, texts, number)))
        for k in ks:
            work.next(f"decoding at batch {batch}, k {k}")
            runs[k].append(_speculative(arms, texts, k, number))
    return [_row(arms, source, batch, k, median(plain_s), runs[k]) for k in ks]


def _plain(arms: Arms, texts: Sequence[Sequence[int]], number: int) -> Decoded:
    return plain(
        arms.target,
        texts,
        new_tokens=arms.new_tokens,
        sampling=arms.sampling,
        seed=arms.seed + number,
        timer=arms.timer,
        warm_steps=WARM_STEPS,
    )


def _speculative(arms: Arms, texts: Sequence[Sequence[int]], k: int, number: int) -> Decoded:
    return speculative(
        arms.target,
        arms.drafter,
        texts,
        k=k,
        new_tokens=arms.new_tokens,
        sampling=arms.sampling,
        seed=arms.seed + number,
        timer=arms.timer,
        warm_steps=WARM_STEPS,
        synthetic_alpha=arms.synthetic_alpha,
    )


def _row(
    arms: Arms, source: StepTimeSource, batch: int, k: int, plain_s: float, runs: Sequence[Decoded]
) -> ProofRow:
    cost = source.step_cost(k, batch, arms.context)
    grown = sum(sum(run.steps_of) for run in runs)
    accepted = sum(sum(run.accepted_at) for run in runs)
    return ProofRow(
        batch=batch,
        k=k,
        context=arms.context,
        acceptance_length=1 + accepted / grown,
        plain_s=plain_s,
        step_s=median(map(_step_s, runs)),
        predicted_plain_s=float(cost.plain_s),
        predicted_step_s=float(cost.plain_s * cost.in_plain_steps),
        temperature=arms.sampling.temperature,
        top_p=arms.sampling.top_p,
    )


def _step_s(run: Decoded) -> float:
    assert run.step_s is not None  # a timer was given
    return run.step_s


def _stretched(text: Sequence[int], length: int) -> list[int]:
    """The last `length` tokens of a text that is repeated until it has as many."""
    repeated = list(text) * -(-length // len(text))
    return repeated[-length:]
