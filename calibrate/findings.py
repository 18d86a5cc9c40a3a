"""What decoding with a pair finds, acceptance and the proof; each finding is kept as soon as it stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from typing import Any, Final

import torch

from calibrate.acceptance import measure_acceptance
from calibrate.grid import large_batch
from calibrate.kept_findings import kept_acceptance, kept_proof
from calibrate.lookups import measure_lookup
from calibrate.opened import OpenPair
from calibrate.prompts import EncodedPrompt
from calibrate.proof import Arms, prove
from calibrate.raw_log import RawLog
from calibrate.request_counts import ALL_DOMAINS, samplings
from calibrate.runners import ModelRunner
from calibrate.sampling import Sampling
from calibrate.timing import out_of_memory_reason
from specmath.calibrated_source import Calibrated
from specmath.calibrations import AcceptanceRow, Calibration, ProofRow
from specmath.errors import DataError
from specmath.results import Advice

Told = Callable[[float, float], None]
"""Told the work done and all of it."""
Watch = Callable[[str], AbstractContextManager[Told | None]]
"""Opens the progress of a piece of work; it yields None where nobody would see it."""
Encoded = tuple[tuple[EncodedPrompt, ...], tuple[Advice, ...]]
"""Prompts as tokens, and what became of them on the way."""
PROOF_TOKENS: Final = 64
"""New tokens of each text of the proof."""
LONGEST_PROMPT: Final = 2048
TEXTS_AT_ONCE: Final = (16, 4, 1)
"""Texts that are decoded together, fewer where memory does not hold them."""


def longest_text(pair: OpenPair) -> int | None:
    """Tokens that both models can read at most; None where neither says."""
    shapes = [one.shape for one in (pair.target, pair.draft) if one is not None]
    return min((shape.max_context for shape in shapes if shape and shape.max_context), default=None)


# ---------------------------------------------------------------- acceptance


def acceptance_prompts(pair: OpenPair) -> Encoded:
    """The prompts as acceptance reads them, as long as new tokens and a draft leave room."""
    request, longest = pair.request, longest_text(pair)
    room = LONGEST_PROMPT if longest is None else longest - request.new_tokens - max(request.ks) - 1
    return pair.prompts(min(LONGEST_PROMPT, max(room, 1)))


def with_acceptance(
    pair: OpenPair, calibration: Calibration, encoded: Encoded, log: RawLog, watch: Watch
) -> Calibration:
    """The calibration with what is accepted at each temperature and top-p that was asked for."""
    request, (prompts, notes) = pair.request, encoded
    found = dict(map(kept_acceptance, log.findings.get("acceptance", ())))
    asked = samplings(request.temperatures, request.top_ps)
    missing = [sampling for sampling in asked if sampling not in found]
    if missing:
        runners = pair.eager_runners()
        with watch(f"acceptance on {len(prompts)} prompts") as told:
            for done, sampling in enumerate(missing):
                seed = request.seed + asked.index(sampling)
                part = _part(told, done, len(missing))
                rows = _measured(pair, runners, prompts, sampling, seed, part)
                found[sampling] = rows
                kept = {"temperature": sampling.temperature, "top_p": sampling.top_p}
                log.keep("acceptance", kept | {"rows": [asdict(row) for row in rows]})
    return replace(
        calibration,
        acceptance=tuple(row for sampling in asked for row in found[sampling]),
        match_rate=next(row.match_rate for row in found[asked[-1]] if row.domain == ALL_DOMAINS),
        warnings=(*calibration.warnings, *notes),
    )


def _part(told: Told | None, done: int, parts: int) -> Callable[[int, int, str], None] | None:
    """Progress of one of several like parts, after some that are done."""
    if told is None:
        return None
    return lambda own, all_of_own, _: told(done * all_of_own + own, parts * all_of_own)


def _measured(
    pair: OpenPair,
    runners: tuple[ModelRunner, ModelRunner | None],
    prompts: Sequence[EncodedPrompt],
    sampling: Sampling,
    seed: int,
    progress: Callable[[int, int, str], None] | None,
) -> tuple[AcceptanceRow, ...]:
    """Acceptance at one setting, of fewer texts at once where memory is short."""
    target, draft = runners
    settings: dict[str, Any] = {
        "temperatures": [sampling.temperature],
        "top_ps": [sampling.top_p],
        "k": max(pair.request.ks),
        "new_tokens": pair.request.new_tokens,
        "eos": pair.end_tokens,
        "seed": seed,
        "progress": progress,
    }
    for texts in TEXTS_AT_ONCE:
        try:
            if draft is None:
                return tuple(one.row for one in measure_lookup(target, prompts, batch=texts, **settings))
            vocabulary = pair.vocabulary
            return measure_acceptance(target, draft, prompts, vocabulary=vocabulary, batch=texts, **settings)
        except (RuntimeError, MemoryError) as error:
            reason = out_of_memory_reason(error)
            if reason is None:
                raise
    problem = f"not even one text fits beside the models ({reason})"
    raise DataError(pair.request.target, f"{problem}; give shorter --prompts, or --skip acceptance")


# ---------------------------------------------------------------- proof


def with_proof(pair: OpenPair, calibration: Calibration, log: RawLog, watch: Watch) -> Calibration:
    """The calibration with decoding end to end; what was kept before is not run again."""
    kept = {(row.batch, row.k): row for row in map(kept_proof, log.findings.get("proof", ()))}
    rows = list(kept.values())
    places = [place for place in proof_places(pair, calibration) if place not in kept]
    warnings = calibration.warnings
    if places:

        def keep(row: ProofRow) -> None:
            log.keep("proof", asdict(row))
            rows.append(row)

        try:
            with watch("decoding end to end") as told, torch.inference_mode():
                # the loop carries k + 1 tokens of each text whether or not a lookup found any
                source = Calibrated(calibration=replace(calibration, match_rate=1.0))
                prove(_arms(pair, calibration), source, places, keep=keep, progress=_part(told, 0, 1))
        except (RuntimeError, MemoryError) as error:
            reason = out_of_memory_reason(error)
            if reason is None:
                raise
            warnings = (*warnings, _cut_short(reason, places, rows))
    return replace(calibration, proof=tuple(rows), warnings=warnings)


def proof_places(pair: OpenPair, calibration: Calibration) -> list[tuple[int, int]]:
    """Batch and k of each run: the smallest, a middle and a large batch of those timed, at every k.

    A k is left out where the texts would outgrow what the models take.
    """
    timed = [cell.place.batch for cell in calibration.cells if cell.place.part == "target"]
    batches = sorted({batch for batch in timed if batch <= large_batch(timed)})
    chosen = sorted({batches[0], batches[(len(batches) - 1) // 2], batches[-1]})
    longest, context = longest_text(pair), _proof_context(calibration)
    ks = [k for k in pair.request.ks if longest is None or context + k + 1 <= longest]
    return [(batch, k) for batch in chosen for k in ks]


def _proof_context(calibration: Calibration) -> int:
    """The smallest context that was timed."""
    return min(cell.place.context for cell in calibration.cells if cell.place.part == "target")


def _cut_short(reason: str, places: Sequence[tuple[int, int]], rows: Sequence[ProofRow]) -> Advice:
    known = {(row.batch, row.k) for row in rows}
    batch = next((batch for batch, k in places if (batch, k) not in known), places[-1][0])
    return Advice(
        code="proof-cut-short",
        text=f"decoding end to end at batch {batch} did not fit ({reason}), and larger batches were left out",
        remedy="ask for smaller --batch, or free memory",
    )


def _arms(pair: OpenPair, calibration: Calibration) -> Arms:
    """What is decoded: texts that end where the smallest context does."""
    context = _proof_context(calibration)
    new_tokens = min(PROOF_TOKENS, max(context // 2, 8))
    prompt_tokens = max(context - new_tokens, 1)
    prompts: list[tuple[int, ...]] = []
    if not pair.is_random:
        prompts = [prompt.tokens for prompt in pair.prompts(prompt_tokens)[0]]
    return Arms(
        target=pair.target_runner,
        drafter=pair.drafter,
        sampling=pair.sampling,
        timer=pair.timer,
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        prompts=prompts,
        synthetic_alpha=pair.synthetic_alpha,
        seed=pair.request.seed,
    )
