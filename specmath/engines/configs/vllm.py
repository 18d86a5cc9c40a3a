"""vLLM: `--speculative-config`, with tiers from 0.24, adaptive verification from 0.28 (wider from 0.30)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from specmath.engines.configs.record import (
    LAST_BATCH,
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
    synthetic_rates,
    told,
)
from specmath.results import Advice, Block

_FAMILIES: Final = (
    ((0,), "before 0.8.2"),
    ((0, 8, 2), "0.8.2 to 0.9"),
    ((0, 10), "0.10 to 0.16"),
    ((0, 17), "0.17 to 0.23"),
    ((0, 24), "0.24 to 0.27"),
    ((0, 28), "0.28 and newer"),
)
_METHODS: Final[dict[str, tuple[dict[str, Any], bool, tuple[int, ...], tuple[int, ...] | None]]] = {
    "draft-model": ({"method": "draft_model"}, True, (0,), None),
    "pard": ({"method": "draft_model", "parallel_drafting": True}, True, (0, 16), None),
    "eagle": ({"method": "eagle"}, True, (0,), None),
    "eagle3": ({"method": "eagle3"}, True, (0, 8, 2), None),
    "p-eagle": ({"method": "eagle3", "parallel_drafting": True}, True, (0, 16), None),
    "mtp": ({"method": "mtp"}, False, (0, 8, 2), None),
    "ngram": ({"method": "ngram", "prompt_lookup_max": 5, "prompt_lookup_min": 5}, False, (0,), None),
    "suffix": ({"method": "suffix"}, False, (0, 11, 1), None),
    "dflash": ({"method": "dflash"}, True, (0, 20, 2), None),
    "dspark": ({"method": "dspark"}, True, (0, 25), None),
    "medusa": ({"method": "medusa"}, True, (0,), (0, 33)),
}
"""The keys of each method, whether it names a model, its first release, and the first without it."""
_WITH_TIERS: Final = ("draft-model", "pard", "eagle", "eagle3", "p-eagle", "mtp", "ngram", "dflash")
_LOOKUPS: Final = ("ngram", "suffix")
_DEFAULT_CAPTURE: Final = 512


def configure(wanted: Wanted) -> Answer:
    """`--speculative-config` for this version."""
    if reason := _unavailable(wanted):
        return refused(wanted, "vLLM", *reason)
    if not wanted.since(0, 8, 2):
        return _old_flags(wanted)
    notes = list(_notes(wanted))
    if wanted.policy == "static":
        return _static(wanted, notes)
    reason_against = _against_tiers(wanted) if wanted.policy == "tiers" else _against_adaptive(wanted)
    if reason_against:
        notes = [instead_of(wanted, "vLLM", *reason_against), *_dead_key(wanted), *notes]
        return _static(wanted, notes)
    return _tiers(wanted, notes) if wanted.policy == "tiers" else _adaptive(wanted, notes)


def _unavailable(wanted: Wanted) -> tuple[str, str] | None:
    """Why the version has no such method, and what to do."""
    if wanted.method not in _METHODS:
        return "no release that was read has it", f"choose one of {', '.join(_METHODS)}"
    _, _, first, gone = _METHODS[wanted.method]
    if wanted.method == "draft-model" and wanted.since(0, 10) and not wanted.since(0, 16):
        return (
            "V1 dropped draft models at 0.10 and has them again from 0.16 (PR 24322)",
            "upgrade to 0.16 or newer, or use eagle3, mtp or ngram",
        )
    if wanted.method == "eagle3" and not wanted.since(0, 8, 3):
        return "0.8.2 has no eagle3 yet", "upgrade to 0.8.5 or newer"
    if not wanted.since(*first):
        return f"it came with {_dotted(first)}", f"upgrade to {_dotted(first)} or newer"
    if gone is not None and wanted.since(*gone):
        return f"it is gone from {_dotted(gone)} on", "stay on 0.32, or use eagle3 or mtp"
    return None


def _against_tiers(wanted: Wanted) -> tuple[str, str] | None:
    if not wanted.since(0, 24):
        return "num_speculative_tokens_per_batch_size came with 0.24 (PR 32374)", ""
    if wanted.data_parallel > 1:
        return (
            "num_speculative_tokens_per_batch_size is switched off with data parallel > 1 (a warning at "
            f"start-up from 0.26 on), and data parallel is {wanted.data_parallel}",
            "run independent replicas of data parallel 1 behind a router, each with its own tiers",
        )
    if wanted.method not in _WITH_TIERS:
        return f"the V1 runner takes tiers for {', '.join(_WITH_TIERS)} only, not for {wanted.method}", ""
    return None


def _against_adaptive(wanted: Wanted) -> tuple[str, str] | None:
    if not wanted.since(0, 28):
        return "enable_adaptive_verification came with 0.28", "upgrade, or ask for tiers"
    if wanted.method in (*_LOOKUPS, "medusa"):
        return "enable_adaptive_verification takes drafters that run a model", "ask for tiers"
    if wanted.method != "dspark" and not wanted.since(0, 30):
        return (
            "enable_adaptive_verification takes dspark alone in 0.28 and 0.29, other drafters that run a "
            "model from 0.30 on",
            "upgrade to 0.30 or newer, or ask for tiers",
        )
    if wanted.pipeline_parallel > 1:
        return "adaptive verification does not run with pipeline parallel", "ask for tiers, or use --pp 1"
    return None


def _static(wanted: Wanted, notes: list[Advice]) -> Answer:
    if not wanted.k:
        return Answer(policy=None, advice=tuple(notes))
    config = _config(wanted, wanted.k)
    notes += _capture(static_steps(wanted.k), wanted)
    return Answer(
        policy="static",
        steps=static_steps(wanted.k),
        blocks=(_serve(wanted, config), *_test(wanted, config)),
        advice=tuple(notes),
    )


def _tiers(wanted: Wanted, notes: list[Advice]) -> Answer:
    ranges = [[step.first_batch, step.last_batch or LAST_BATCH, step.k] for step in wanted.tiers]
    config = _config(wanted, wanted.deepest) | {"num_speculative_tokens_per_batch_size": ranges}
    return Answer(
        policy="tiers",
        steps=wanted.tiers,
        blocks=(
            _serve(
                wanted,
                config,
                "[first batch, last batch, k], both ends included; batch = requests in the step, prefills "
                "too",
                *map(told, wanted.tiers),
            ),
            *_test(wanted, config),
        ),
        advice=(*_tier_notes(wanted), *_capture(wanted.tiers, wanted), *notes),
    )


def _adaptive(wanted: Wanted, notes: list[Advice]) -> Answer:
    config = _config(wanted, wanted.adaptive_k) | {"enable_adaptive_verification": True}
    needs = Advice(
        code="adaptive-needs",
        text="enable_adaptive_verification needs varlen decode graphs in every attention back end of the "
        "target (start-up is refused elsewhere; SM90 was reported broken), and goes with no eager mode, "
        "LoRA, pipeline parallel or output log-probabilities (vllm #47808, #52783, #54011)",
        remedy="start the server once before planning on it; measure it beside k fixed: on ROCm it lost 5 "
        "to 8 % up to 32 requests and won 6 to 70 % from 64 on (vllm #52362)",
    )
    return Answer(
        policy="adaptive",
        steps=static_steps(wanted.adaptive_k),
        blocks=(
            _serve(
                wanted,
                config,
                f"every step drafts {wanted.adaptive_k} and verifies as many as pay, by a cost profile "
                "taken at start-up",
            ),
            *_test(wanted, config),
        ),
        advice=(needs, *_capture(static_steps(wanted.adaptive_k), wanted), *notes),
    )


def _config(wanted: Wanted, k: int) -> dict[str, Any]:
    keys, runs_model, _, _ = _METHODS[wanted.method]
    named = {"model": wanted.draft_name} if runs_model or (wanted.method == "mtp" and wanted.draft) else {}
    method = {"method": "deepseek_mtp"} if wanted.method == "mtp" and not wanted.since(0, 10) else {}
    return keys | method | named | {"num_speculative_tokens": k}


def _serve(wanted: Wanted, config: dict[str, Any], *comments: str) -> Block:
    command = [f"vllm serve {quoted(wanted.target)}", f"--speculative-config {quoted(json.dumps(config))}"]
    return Block("server", "sh", shell(command, *comments))


def _test(wanted: Wanted, config: dict[str, Any]) -> Iterator[Block]:
    """The same server with acceptance made up as forecast, so that only the step times are tried."""
    k = config["num_speculative_tokens"]
    survival = wanted.survival[:k]
    if len(survival) < k or not wanted.since(0, 19) or wanted.method in _LOOKUPS:
        return
    if wanted.since(0, 20):
        made_up: dict[str, Any] = {"synthetic_acceptance_rates": synthetic_rates(survival)}
    else:
        made_up = {"synthetic_acceptance_rate": round(sum(survival) / k, 4)}
    synthetic = config | {"rejection_sample_method": "synthetic"} | made_up
    length = synthetic_length(survival)
    yield Block(
        "test of the forecast (its output is rubbish: never serve it)",
        "sh",
        _serve(
            wanted,
            synthetic,
            f"accepts as forecast, {length:g} tokens per step at k = {k}, whatever the draft says; "
            "compare the time per token",
        ).text,
    )


def _old_flags(wanted: Wanted) -> Answer:
    """Before 0.8.2: a flag for each setting, and the V0 engine."""
    notes = (
        []
        if wanted.policy == "static"
        else [instead_of(wanted, "vLLM", "these releases take one k"), *_dead_key(wanted)]
    )
    if not wanted.k:
        return Answer(policy=None, advice=tuple(notes))
    lookup = wanted.method == "ngram"
    model = "'[ngram]'" if lookup else quoted(wanted.draft_name)
    command = [
        f"vllm serve {quoted(wanted.target)}",
        f"--speculative-model {model}",
        f"--num-speculative-tokens {wanted.k}",
        *(["--ngram-prompt-lookup-max 5", "--ngram-prompt-lookup-min 5"] if lookup else []),
    ]
    block = Block("server", "sh", shell(command))
    return Answer(policy="static", steps=static_steps(wanted.k), blocks=(block,), advice=tuple(notes))


def _dead_key(wanted: Wanted) -> Iterator[Advice]:
    """What is still advised for switching drafting off by batch."""
    if wanted.policy != "tiers" or not wanted.has_off_tier or wanted.since(0, 24):
        return
    if not wanted.since(0, 10):
        batch = next(step.first_batch for step in wanted.tiers if step.k == 0)
        does = "stops drafting above a number of queued requests on the V0 engine, which V1 ignores"
        remedy = f"on the V0 engine set it to {max(2, batch - 1)}; later releases drop it silently"
    elif not wanted.since(0, 17):
        does, remedy = "is accepted and does nothing in 0.10 to 0.16", "leave it out"
    else:
        does, remedy = (
            "is an unknown key, hence an error, from 0.17 on",
            "leave it out; 0.24 has tiers in its place",
        )
    yield Advice(code="disable-by-batch-size", text=f"disable_by_batch_size {does}", remedy=remedy)


def _tier_notes(wanted: Wanted) -> Iterator[Advice]:
    yield Advice(
        code="graphs-downgraded",
        text="tiers make the V1 runner give up full CUDA graphs for piecewise ones, with a warning at "
        "start-up: 59.6 to 50.0 tok/s for one stream (vllm #49548); the V2 runner keeps them but has "
        "drafted on with the largest k whatever the tier said (vllm #51510)",
        remedy="measure the tiers beside one k; the warning names VLLM_USE_V2_MODEL_RUNNER for the other "
        "runner",
    )
    yield Advice(
        code="prefills-count",
        text="the batch that picks a tier counts the prefills of the step: one of them beside a few "
        "decodes can switch to the next tier for that step (8 requests: 232 to 24–157 tok/s, vllm #49548)",
        remedy="leave a margin at the edges of tiers, above all before one without drafting",
    )
    if wanted.has_off_tier:
        yield Advice(
            code="zero-tier-keeps-look-ahead",
            text=f"in a tier with k = 0 each request still holds the {wanted.deepest} look-ahead slots of "
            "the start-up k (vllm #49548)",
            remedy="count them as memory; where the load stays high, run a server without drafting",
        )


def _capture(steps: tuple[Step, ...], wanted: Wanted) -> Iterator[Advice]:
    """Decode steps wider than the largest captured graph run eager."""
    if wanted.planned is None:
        return
    ends = [min(step.last_batch or LAST_BATCH, wanted.planned[1]) * (step.k + 1) for step in steps]
    most = max(ends)
    if most > _DEFAULT_CAPTURE:
        yield Advice(
            code="capture-sizes",
            text=f"batch × (k + 1) reaches {most:,} tokens in a step, but releases before mid 2026 "
            f"capture graphs up to {_DEFAULT_CAPTURE} at most and run wider steps eager (vllm #50488); a "
            "maximum off the ladder of sizes was cut to the one below (vllm #37865)",
            remedy=f"set max_cudagraph_capture_size in --compilation-config to {most:,} and read the "
            "captured sizes in the start-up log",
        )


def _notes(wanted: Wanted) -> Iterator[Advice]:
    """What belongs to the method."""
    if wanted.method == "draft-model" and not wanted.since(0, 10):
        yield Advice(
            code="v0-engine",
            text="draft models run on the V0 engine here, whose acceptance counters add up running totals",
            remedy="take acceptance from its log lines, not from /metrics",
        )
    if wanted.method == "eagle3" and not wanted.since(0, 8, 5):
        yield Advice(
            code="first-version-unknown",
            text="0.8.2 has no eagle3 and 0.8.5 has it; which release between them took it first was not "
            "found out",
            remedy="upgrade to 0.8.5 or newer where the method is refused",
        )
    if wanted.method in ("pard", "p-eagle"):
        yield Advice(
            code="first-version-unknown",
            text=f"{wanted.method} goes by parallel_drafting; which release has it first was not found out",
            remedy="an unknown key is an error at start-up: upgrade where it is refused",
        )
    if wanted.method == "mtp" and max(wanted.k, wanted.adaptive_k, wanted.deepest) > 1:
        yield Advice(
            code="mtp-multiple",
            text="k above the MTP layers of the checkpoint (n_predict) must be a multiple of them; one "
            "layer run several times accepts less at every further position",
            remedy="take α from a server at this very k",
        )
    if wanted.method == "mtp" and not wanted.since(0, 11):
        yield Advice(
            code="mtp-name",
            text="older releases name MTP by family (deepseek_mtp, …); which release takes mtp first was "
            "not found out",
            remedy="put the name that the start-up error lists",
        )
    if wanted.method == "suffix":
        yield Advice(
            code="k-is-a-cap",
            text="suffix decoding drafts fewer than num_speculative_tokens where it is unsure, and needs "
            "the package arctic-inference",
            remedy="take tokens per step of the whole run from generation tokens over steps, not from the "
            "drafts",
        )
    if wanted.method == "dspark":
        yield Advice(
            code="dspark-block",
            text="num_speculative_tokens has to reach the block size of a DSpark checkpoint, which is its "
            "default",
            remedy="leave the key out where a smaller k is refused",
        )


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))


ENGINE: Final = Engine("vllm", _FAMILIES, (0, 6, 6), (0, 33), configure)
