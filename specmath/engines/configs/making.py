"""From an engine's name and a plan to its config: names, versions, and tiers without gaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Final, Protocol

from specmath.checks import MAX_K, require_count, require_range
from specmath.engines.configs.record import (
    LAST_BATCH,
    POLICIES,
    TARGET,
    Engine,
    EngineConfig,
    Policy,
    Step,
    Wanted,
    static_steps,
)
from specmath.engines.configs.versions import Version
from specmath.engines.names import CONFIG_ENGINES, HOMES, parse_engine
from specmath.errors import InputError, shown
from specmath.results import Advice

MAX_NAME: Final = 1_000


class TierLike(Protocol):
    """A tier of a plan: a row of `ScheduleTable.tiers`, for one."""

    @property
    def first_batch(self) -> int: ...

    @property
    def last_batch(self) -> int: ...

    @property
    def k(self) -> int | None: ...


def engine_config(
    engine: str,
    tiers: Sequence[TierLike] | None = None,
    *,
    k: int | None = None,
    adaptive_k: int | None = None,
    policy: Policy | None = None,
    method: str = "draft-model",
    target: str = TARGET,
    draft: str | None = None,
    survival: Sequence[float] = (),
    data_parallel: int = 1,
    pipeline_parallel: int = 1,
) -> EngineConfig:
    """What to paste for an engine: one k, tiers of k by batch, or adaptive verification, in its own words.

    Where an engine or its version cannot be told what is asked, the one k is written and a warning says why.
    Batches below the first tier and above the last one go with them.

    Args:
        engine: `vllm`, `sglang`, `tensorrt-llm`, `llama.cpp`, `lmdeploy`, `tgi`, `mlx` or `transformers`,
            with its version after an @; without a version the newest known.
        tiers: k by batch, rising and without overlap, as `ScheduleTable.tiers` has it for each set-up.
        k: Draft tokens, from 0 (off): the one k, also written where tiers or adaptive verification cannot be
            told. None with tiers for that of the first one.
        adaptive_k: What adaptive verification drafts, from 0; None for k.
        policy: `static`, `tiers` or `adaptive`; None for tiers where there are several, else static.
        method: How it drafts, by the names of `--method`.
        target, draft: The models as the engine knows them; capitals stand for those not named.
        survival: Expected survival p_1, p_2, … up to the longest draft, in [0, 1]: adds the command that
            makes up the acceptance as forecast, to test the forecast on hardware.
        data_parallel, pipeline_parallel: Degrees, at least 1; some features exclude them.

    Returns:
        A result whose `blocks` are to be pasted; none where the plan or the engine says not to.

    Raises:
        InputError: for a value out of range, tiers that overlap, or an engine without a config.

    >>> config = engine_config("llama.cpp@2026", k=3, draft="draft.gguf", target="target.gguf")
    >>> print(config.blocks[0].text)
    llama-server -m target.gguf \\
      -md draft.gguf \\
      --spec-type draft-simple \\
      --spec-draft-n-max 3
    """
    choice = parse_engine(engine)
    if choice.name is None:
        raise InputError("engine", f"{shown(engine)} has no config; one of {', '.join(CONFIG_ENGINES)}")
    if policy not in (None, *POLICIES):
        raise InputError("policy", f"must be one of {', '.join(POLICIES)}, got {policy!r}")
    steps, planned = _steps(tiers)
    if k is None and not steps:
        raise InputError("k", "is missing: give the draft tokens per step, or tiers of them")
    one_k = steps[0].k if k is None else int(require_count("k", k, 0, MAX_K))
    asked: Policy = policy or ("tiers" if len(steps) > 1 else "static")
    if asked == "tiers" and len({step.k for step in steps}) < 2:
        one_k, asked = (steps[0].k if steps else one_k), "static"
    wanted = Wanted(
        version=choice.version,
        policy=asked,
        k=one_k,
        adaptive_k=one_k if adaptive_k is None else int(require_count("adaptive_k", adaptive_k, 0, MAX_K)),
        tiers=steps or (Step(1, None, one_k),),
        planned=planned,
        method=method,
        target=_name("target", target),
        draft=None if draft is None else _name("draft", draft),
        survival=tuple(require_range("survival", survival, 0, 1).tolist()) if len(survival) else (),
        data_parallel=int(require_count("data_parallel", data_parallel, 1)),
        pipeline_parallel=int(require_count("pipeline_parallel", pipeline_parallel, 1)),
    )
    return _config(wanted, choice.name)


def _config(wanted: Wanted, name: str) -> EngineConfig:
    home, _ = HOMES[name]
    engine: Engine = import_module(f"specmath.engines.configs.{home}").ENGINE
    drafted = {"static": wanted.k, "adaptive": wanted.adaptive_k, "tiers": wanted.deepest}
    nothing = drafted[wanted.policy] == 0
    answer = None if nothing else engine.configure(wanted)
    advice = [*_off(wanted)] if answer is None else [*answer.advice, *_ends(wanted, answer.steps)]
    return EngineConfig(
        engine=engine.name,
        version=None if wanted.version is None else wanted.version.text,
        family=_family(engine, wanted.version),
        method=wanted.method,
        asked=wanted.policy,
        policy=None if answer is None else answer.policy,
        steps=static_steps(0) if answer is None or answer.policy is None else answer.steps,
        advice=(*_version_advice(engine, wanted.version), *advice),
        blocks=() if answer is None else answer.blocks,
    )


def _steps(tiers: Sequence[TierLike] | None) -> tuple[tuple[Step, ...], tuple[int, int] | None]:
    """Tiers from batch 1 to no end, neighbours of one k merged; and the batches that were planned."""
    rows = [] if tiers is None else list(tiers)
    if not rows:
        return (), None
    checked = [
        (
            int(require_count("tiers", row.first_batch, 1, LAST_BATCH)),
            int(require_count("tiers", row.last_batch, 1, LAST_BATCH)),
            int(require_count("tiers", -1 if row.k is None else row.k, 0, MAX_K)),
        )
        for row in rows
    ]
    for first, last, _ in checked:
        if last < first:
            raise InputError("tiers", f"the tier from batch {first} ends at {last}")
    for (_, end, _), (start, _, _) in pairwise(checked):
        if start <= end:
            raise InputError(
                "tiers", f"must rise without overlap, but one ends at {end} and the next begins at {start}"
            )
    kept = [row for place, row in enumerate(checked) if place == 0 or row[2] != checked[place - 1][2]]
    starts = [1, *(first for first, _, _ in kept[1:])]
    ends = [*(start - 1 for start in starts[1:]), None]
    steps = tuple(Step(start, end, row[2]) for start, end, row in zip(starts, ends, kept, strict=True))
    return steps, (checked[0][0], checked[-1][1])


def _family(engine: Engine, version: Version | None) -> str:
    names = [name for first, name in engine.families if version is None or version.at_least(*first)]
    return names[-1] if names else engine.families[0][1]


def _version_advice(engine: Engine, version: Version | None) -> Iterator[Advice]:
    """What is not known of the version."""
    if version is None:
        yield Advice(
            code="no-version",
            text=f"no version was given: written for {engine.name} {engine.families[-1][1]}",
            remedy=f"name yours, as --engine {engine.name}@{_release_text(engine.newest)}",
        )
        return
    newest, oldest = _release_text(engine.newest), _release_text(engine.oldest)
    places = len(engine.newest)
    if version.release[:places] > engine.newest:
        text = (
            f"{engine.name} {version.text} is newer than {newest}, the newest that was read: taken as "
            "that one"
        )
        yield Advice(
            code="version-not-read", text=text, remedy="check the keys against its own documentation"
        )
    elif not version.at_least(*engine.oldest):
        text = (
            f"{engine.name} {version.text} is older than {oldest}, the oldest that was read: taken as "
            "that one"
        )
        yield Advice(
            code="version-not-read", text=text, remedy="check the keys against its own documentation"
        )
    elif version.before_release and any(version.is_release(*first) for first, _ in engine.families):
        text = (
            f"{engine.name} {version.text} counts as its release, though candidates may lack what came last"
        )
        yield Advice(
            code="before-release", text=text, remedy="where a key is refused, name the release before it"
        )


def _release_text(release: tuple[int, ...]) -> str:
    """`0.32`, or `2026-08` for a date."""
    return "-".join(f"{part:02}" for part in release) if release[0] > 2000 else ".".join(map(str, release))


def _off(wanted: Wanted) -> Iterator[Advice]:
    yield Advice(
        code="off",
        text="nothing to paste: the plan says not to draft"
        if wanted.planned
        else "nothing to paste: k = 0 is off",
        remedy="start the server without its speculative options; a k of your own gives a config all the "
        "same",
    )


def _ends(wanted: Wanted, steps: Sequence[Step]) -> Iterator[Advice]:
    """Batches that nobody planned for."""
    if len(steps) < 2 or wanted.planned is None:
        return
    first, last = wanted.planned
    below = f"below {first} go with k = {steps[0].k}, " if first > 1 else ""
    yield Advice(
        code="beyond-the-plan",
        text=f"the plan covers batches {first:,} to {last:,}: {below}those above go with k = {steps[-1].k}",
        remedy="plan up to the largest batch that the server takes",
    )


def _name(role: str, text: str) -> str:
    if not (0 < len(text) <= MAX_NAME and text.isprintable() and text.strip()):
        raise InputError(
            role, f"{shown(text)} is no name to paste; give 1 to {MAX_NAME:,} printable characters"
        )
    if text.startswith("-"):
        raise InputError(role, f"{shown(text)} would be pasted as an option; write ./{shown(text)[1:-1]}")
    return text
