"""TensorRT-LLM: `speculative_config` in YAML. The keys of `draft_len_schedule` changed meaning in 2026-03."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from specmath.engines.configs.record import (
    LAST_BATCH,
    Answer,
    Engine,
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
    ((0,), "before 1.1"),
    ((1, 1), "1.1 and 1.2"),
    ((1, 3), "1.3 (2026-03 and newer)"),
    ((1, 4), "1.4 and newer"),
)
_TYPES: Final = {
    "draft-model": "Draft_Target",
    "pard": "PARD",
    "eagle3": "Eagle3",
    "mtp": "MTP",
    "ngram": "NGram",
    "dflash": "DFlash",
    "suffix": "SA",
}
_WITHOUT_MODEL: Final = ("mtp", "ngram", "suffix")
_OLD_TYPES: Final = ("draft-model", "eagle3", "mtp", "ngram")
_TWO_MODELS: Final = ("draft-model", "ngram")
_FILE: Final = "spec.yaml"
_UPPER: Final = (
    "draft_len_schedule: the key is the largest batch of a tier (PR 10860, 2026-03-13); above the last, 0"
)
_LOWER: Final = "draft_len_schedule: the key is the smallest batch of a tier (before PR 10860 of 2026-03-13)"


def configure(wanted: Wanted) -> Answer:
    """The YAML of `--config`."""
    known = _TYPES if wanted.since(1, 3) else _OLD_TYPES
    if wanted.method not in known:
        return refused(
            wanted, "TensorRT-LLM", "no decoding_type of its own", f"choose one of {', '.join(known)}"
        )
    if wanted.policy == "static":
        return _static(wanted, [])
    if reason := "it has no such thing" if wanted.policy == "adaptive" else _against_tiers(wanted):
        return _static(wanted, [instead_of(wanted, "TensorRT-LLM", reason, _cut_off(wanted))])
    return _tiers(wanted)


def _against_tiers(wanted: Wanted) -> str:
    if not wanted.since(1, 1):
        return "draft_len_schedule came in 2025-10 (PR 8194), after 1.0"
    if wanted.tiers[0].k < wanted.deepest:
        return (
            "draft_len_schedule must begin with max_draft_len, and the first tier (k = "
            f"{wanted.tiers[0].k}) is not the deepest ({wanted.deepest})"
        )
    return ""


def _cut_off(wanted: Wanted) -> str:
    """What `max_concurrency` can do where tiers cannot be told."""
    if wanted.policy == "tiers" and len(wanted.tiers) == 2 and wanted.tiers[1].k == 0:
        first = wanted.tiers[0]
        return (
            f"set max_draft_len {first.k} and max_concurrency {first.last_batch}, which stops drafting "
            "above it"
        )
    return ""


def _static(wanted: Wanted, notes: list[Advice]) -> Answer:
    if not wanted.k:
        return Answer(policy=None, advice=tuple(notes))
    return Answer(
        policy="static",
        steps=static_steps(wanted.k),
        blocks=(_yaml(wanted, wanted.k, None), _serve(wanted), *_test(wanted, wanted.k)),
        advice=(*notes, *_notes(wanted)),
    )


def _tiers(wanted: Wanted) -> Answer:
    k = wanted.deepest
    upper, lower = _upper(wanted), {step.first_batch: step.k for step in wanted.tiers}
    if not wanted.since(1, 3):
        files = [_yaml(wanted, k, lower, _LOWER)]
    elif _may_be_older(wanted):
        files = [_yaml(wanted, k, upper, _UPPER), _yaml(wanted, k, lower, _LOWER, other=True)]
    else:
        files = [_yaml(wanted, k, upper, _UPPER)]
    return Answer(
        policy="tiers",
        steps=wanted.tiers,
        blocks=(*files, _serve(wanted), *_test(wanted, k)),
        advice=(*_tier_notes(wanted), *_notes(wanted)),
    )


def _upper(wanted: Wanted) -> dict[int, int]:
    """Largest batch of each tier; a last tier without drafting is what the engine does by itself."""
    *others, last = wanted.tiers
    ends = {step.last_batch or LAST_BATCH: step.k for step in others}
    return ends | ({LAST_BATCH: last.k} if last.k else {})


def _may_be_older(wanted: Wanted) -> bool:
    """Candidates of 1.3 were cut on both sides of the change."""
    version = wanted.version
    return version is not None and version.before_release and version.is_release(1, 3)


def _yaml(
    wanted: Wanted, k: int, schedule: dict[int, int] | None, meaning: str = "", *, other: bool = False
) -> Block:
    lines = ["speculative_config:", f"  decoding_type: {_TYPES[wanted.method]}"]
    if wanted.method not in _WITHOUT_MODEL:
        key = "speculative_model" if wanted.since(1, 3) else "speculative_model_dir"
        lines.append(f"  {key}: {json.dumps(wanted.draft_name, ensure_ascii=False)}")
    layers = wanted.method == "mtp" and not wanted.since(1, 3)
    lines.append(f"  {'num_nextn_predict_layers' if layers else 'max_draft_len'}: {k}")
    if schedule is not None:
        told_tiers = [f"  # {told(step)}" for step in wanted.tiers]
        pairs = ", ".join(f"{batch}: {length}" for batch, length in schedule.items())
        lines += [f"  # {meaning}", *told_tiers, f"  draft_len_schedule: {{{pairs}}}"]
    label = f"file {_FILE}, for a build before 2026-03-13" if other else f"file {_FILE}"
    return Block(label, "yaml", "\n".join(lines))


def _serve(wanted: Wanted) -> Block:
    option = "--config" if wanted.since(1, 2) else "--extra_llm_api_options"
    return Block("server", "sh", shell([f"trtllm-serve {quoted(wanted.target)} {option} {_FILE}"]))


def _test(wanted: Wanted, k: int) -> Iterator[Block]:
    survival = wanted.survival[:k]
    if len(survival) < k or not wanted.since(1, 3) or wanted.method in ("ngram", "suffix"):
        return
    accepted = round(synthetic_length(survival) - 1, 4)
    command = f"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS={accepted:g} {_serve(wanted).text}"
    yield Block(
        "test of the forecast (its output is rubbish: never serve it)",
        "sh",
        shell(
            [command],
            f"accepts {accepted:g} draft tokens a step, the bonus token not counted; a build may take "
            "whole numbers alone",
        ),
    )


def _tier_notes(wanted: Wanted) -> Iterator[Advice]:
    yield Advice(
        code="schedule-key-changed",
        text="draft_len_schedule changed its meaning with PR 10860 (merged 2026-03-13): {4: 4, 8: 2} "
        "was `from this batch on` and is `up to this batch`; a newer build reads the older form without "
        f"complaint, and {_told_version(wanted)}",
        remedy="an older build refuses a schedule whose first key is not 1: try the newer form first, and "
        "check with specDecodingStats at a batch beside an edge",
    )
    yield Advice(
        code="schedule-excludes-max-concurrency",
        text="draft_len_schedule and max_concurrency exclude each other; the latter is the schedule "
        "{max_concurrency: max_draft_len}",
        remedy="remove max_concurrency from the file",
    )
    if not wanted.since(1, 2):
        yield Advice(
            code="first-version-unknown",
            text="draft_len_schedule came in 2025-10 (PR 8194); whether 1.1 has it was not found out",
            remedy="an unknown key is refused at start-up: upgrade, or keep one k",
        )
    if not wanted.since(1, 3) and wanted.method not in _TWO_MODELS:
        yield Advice(
            code="one-model-drafts",
            text="draft_len_schedule worked with NGram and two-model drafts before 2026-03 (PR 8194); "
            f"one-model {_TYPES[wanted.method]} got it with PR 10860 and PR 12262",
            remedy="check with specDecodingStats that numDraftTokens falls from tier to tier; upgrade if not",
        )
    if wanted.has_off_tier:
        yield Advice(
            code="zero-tier-goes-stale",
            text="in one-engine mode the drafter's state goes stale while a tier of 0 is in force, and "
            "acceptance collapses for the requests that come back from it (PR 16888, open: a floor of 1)",
            remedy="watch the acceptance length after a peak of load; give the last tier 1 if it stays low",
        )
    if wanted.data_parallel > 1:
        yield Advice(
            code="rank-local-batch",
            text="with attention data parallel each rank picks its tier by its own batch",
            remedy=f"plan the tiers for the batch of one rank, 1/{wanted.data_parallel} of the whole",
        )


def _told_version(wanted: Wanted) -> str:
    if wanted.version is None or wanted.since(1, 4):
        return "1.4 is on the newer side"
    if wanted.since(1, 3):
        return "candidates of 1.3 were cut on both sides of that date"
    return "1.1 and 1.2 are on the older side as far as could be told"


def _notes(wanted: Wanted) -> Iterator[Advice]:
    if wanted.method == "draft-model":
        yield Advice(
            code="decoding-type-spelling",
            text="the decoding type of a draft model is spelt Draft_Target in the builds read, "
            "DraftTarget in others",
            remedy="put the other one where the file is refused",
        )
    if wanted.method == "mtp" and not wanted.since(1, 4):
        yield Advice(
            code="mtp-length-key",
            text="MTP took num_nextn_predict_layers first and takes max_draft_len since 2026, the older "
            "key then being deprecated",
            remedy="put the other key where the file is refused",
        )


ENGINE: Final = Engine("tensorrt-llm", _FAMILIES, (1, 0), (1, 4), configure)
