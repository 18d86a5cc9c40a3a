"""SGLang: steps, topk and draft tokens together; tiers of k by batch as a file from 0.5.13."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from specmath.engines.configs.record import (
    Answer,
    Engine,
    Step,
    Wanted,
    instead_of,
    quoted,
    refused,
    shell,
    static_steps,
    synthetic_length,
    told,
)
from specmath.results import Advice, Block

_FAMILIES: Final = (
    ((0,), "before 0.5.11"),
    ((0, 5, 11), "0.5.11 and 0.5.12"),
    ((0, 5, 13), "0.5.13"),
    ((0, 5, 14), "0.5.14 and newer"),
)
_ALGORITHMS: Final = {
    "draft-model": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "ngram": "NGRAM",
    "dflash": "DFLASH",
    "dspark": "DSPARK",
}
_WITH_TIERS: Final = ("eagle", "eagle3", "mtp")
_WITHOUT_MODEL: Final = ("mtp", "ngram")
_DEFAULT_RUNNING: Final = 48
_FILE: Final = "adaptive.json"


def configure(wanted: Wanted) -> Answer:
    """Server flags, and the file of the tiers."""
    if wanted.method not in _ALGORITHMS:
        return refused(wanted, "SGLang", "no algorithm of its own", f"choose one of {', '.join(_ALGORITHMS)}")
    if wanted.policy == "static":
        return _static(wanted, [])
    if wanted.policy == "adaptive":
        reason = "it verifies whole drafts; --speculative-adaptive picks the steps by the acceptance it sees"
        return _static(wanted, [instead_of(wanted, "SGLang", reason, "ask for tiers, or measure k fixed")])
    if reason := _against_tiers(wanted):
        return _static(wanted, [instead_of(wanted, "SGLang", reason)])
    return _tiers(wanted)


def _against_tiers(wanted: Wanted) -> str:
    if not wanted.since(0, 5, 11):
        return "--speculative-adaptive came with 0.5.11, tiers by batch with 0.5.13 (PR 24055)"
    if not wanted.since(0, 5, 13):
        return "the file of --speculative-adaptive has no tiers by batch before 0.5.13 (PR 24055)"
    if wanted.method not in _WITH_TIERS:
        return (
            "--speculative-adaptive takes EAGLE and EAGLE3 only and is switched off for "
            f"{_ALGORITHMS[wanted.method]}"
        )
    if wanted.data_parallel > 1:
        return "--speculative-adaptive is switched off with attention data parallel (a warning at start-up)"
    return ""


def _static(wanted: Wanted, notes: list[Advice]) -> Answer:
    if not wanted.k:
        return Answer(policy=None, advice=tuple(notes))
    steps = static_steps(wanted.k)
    server = _launch(wanted, wanted.k)
    return Answer(
        policy="static",
        steps=steps,
        blocks=(Block("server", "sh", shell(server)), *_test(wanted, server, wanted.k)),
        advice=(*notes, *_notes(wanted)),
    )


def _tiers(wanted: Wanted) -> Answer:
    steps = tuple(
        Step(step.first_batch, step.last_batch, max(step.k, _least_k(wanted))) for step in wanted.tiers
    )
    steps = _merged(steps)
    entries = {str(step.first_batch): {"candidate_steps": [step.k]} for step in steps}
    server = [
        *_launch(wanted, wanted.deepest),
        "--speculative-adaptive",
        f"--speculative-adaptive-config {_FILE}",
    ]
    meaning = "the key is the smallest batch of a tier, candidate_steps its k; batches count after padding"
    return Answer(
        policy="tiers",
        steps=steps,
        blocks=(
            Block(f"file {_FILE}", "json", json.dumps(entries)),
            Block("server", "sh", shell(server, f"{_FILE}: {meaning}", *map(told, steps))),
            *_test(wanted, server, wanted.deepest),
        ),
        advice=(*_tier_notes(wanted, steps), *_notes(wanted)),
    )


def _least_k(wanted: Wanted) -> int:
    """0.5.13 refuses a tier without drafting."""
    return 0 if wanted.since(0, 5, 14) else 1


def _merged(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    merged: list[Step] = []
    for step in steps:
        if merged and merged[-1].k == step.k:
            merged[-1] = Step(merged[-1].first_batch, step.last_batch, step.k)
        else:
            merged.append(step)
    return tuple(merged)


def _launch(wanted: Wanted, k: int) -> list[str]:
    draft = (
        []
        if (wanted.method in _WITHOUT_MODEL and wanted.draft is None) or wanted.method == "ngram"
        else [f"--speculative-draft-model-path {quoted(wanted.draft_name)}"]
    )
    running = wanted.planned[1] if wanted.planned and wanted.planned[1] > _DEFAULT_RUNNING else None
    return [
        f"python -m sglang.launch_server --model-path {quoted(wanted.target)}",
        f"--speculative-algorithm {_ALGORITHMS[wanted.method]}",
        *draft,
        *_lengths(wanted.method, k),
        *([] if running is None else [f"--max-running-requests {running}"]),
    ]


def _lengths(method: str, k: int) -> list[str]:
    """k in the terms of the algorithm; steps, topk and draft tokens are given all three or not at all."""
    if method == "dflash":
        return [f"--speculative-dflash-block-size {k + 1}"]
    if method == "dspark":
        return [f"--speculative-dspark-block-size {k}"]
    if method == "ngram":
        return [f"--speculative-num-draft-tokens {k + 1}", "--speculative-ngram-max-bfs-breadth 1"]
    return [
        f"--speculative-num-steps {k}",
        "--speculative-eagle-topk 1",
        f"--speculative-num-draft-tokens {k + 1}",
    ]


def _test(wanted: Wanted, server: list[str], k: int) -> Iterator[Block]:
    survival = wanted.survival[:k]
    if len(survival) < k or wanted.method == "ngram":
        return
    length = synthetic_length(survival)
    yield Block(
        "test of the forecast (its output is rubbish: never serve it)",
        "sh",
        shell(
            [f"SGLANG_SIMULATE_ACC_LEN={length:g} {server[0]}", *server[1:]],
            f"accepts {length:g} tokens per step, bonus token included, whatever the draft says; compare "
            "the time per token",
        ),
    )


def _tier_notes(wanted: Wanted, steps: tuple[Step, ...]) -> Iterator[Advice]:
    if len(steps) > 1:
        yield _padded_edges(steps)
    if wanted.has_off_tier and _least_k(wanted):
        yield Advice(
            code="zero-tier-unknown",
            text="0.5.13 refuses steps of 0: the tier without drafting is printed with k = 1",
            remedy="upgrade to 0.5.14 or newer",
        )
    if wanted.method == "mtp":
        yield Advice(
            code="mtp-tiers",
            text="--speculative-adaptive takes EAGLE and EAGLE3; NEXTN runs as EAGLE, but not every "
            "release takes it under that name here, and multi-layer MTP is refused",
            remedy="look for `speculative_adaptive disabled` in the start-up log; if it is there, name EAGLE",
        )


def _padded_edges(steps: tuple[Step, ...]) -> Advice:
    edges = ", ".join(f"{before.last_batch}|{after.first_batch}" for before, after in pairwise(steps))
    return Advice(
        code="padded-edges",
        text="a batch is padded to the next CUDA-graph size before its tier is looked up, so that "
        f"batches below an edge ({edges}) get the tier above it where no graph ends at the edge",
        remedy="compare the edges with the sizes that the start-up log captures; move each to one",
    )


def _notes(wanted: Wanted) -> Iterator[Advice]:
    planned = "" if wanted.planned is None else f"; batches up to {wanted.planned[1]} are planned"
    ranks = (
        ""
        if wanted.data_parallel == 1
        else f", {_DEFAULT_RUNNING // wanted.data_parallel} for each data-parallel rank"
    )
    yield Advice(
        code="max-running-requests",
        text=f"speculation sets max_running_requests to {_DEFAULT_RUNNING} unless it is given{ranks} "
        f"(sglang #34290){planned}",
        remedy="set --max-running-requests, and read the value in force on the start-up line with "
        "max_total_num_tokens; hybrid models may cap it lower by their state slots (sglang #36889)",
    )
    if wanted.method in ("dflash", "dspark"):
        counted = "block size" if wanted.method == "dflash" else "block size + 1"
        yield Advice(
            code="block-size",
            text=f"{_ALGORITHMS[wanted.method]} verifies {counted} tokens; the flag is set for k drafted "
            "ones",
            remedy="read speculative_num_draft_tokens in the start-up log: k + 1; a checkpoint may fix "
            "its own block",
        )


ENGINE: Final = Engine("sglang", _FAMILIES, (0, 4, 6), (0, 5, 23), configure)
