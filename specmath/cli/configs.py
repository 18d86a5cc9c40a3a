"""From the options to the config of an engine: names as the engine knows them, and k without a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from specmath.acceptance_axis import AcceptanceAxis
from specmath.cli.cases import engine_choice
from specmath.cli.drafts import Choice, only_choice
from specmath.cli.laws import acceptance_laws
from specmath.cli.models import layout, model
from specmath.cli.options import LAWS, AcceptanceOptions, DeviceOptions, PairOptions
from specmath.cli.text import parse_count
from specmath.drafters.methods import infer_method
from specmath.engines.configs.making import TierLike, engine_config
from specmath.engines.configs.record import TARGET, EngineConfig
from specmath.engines.configs.scheduled import ConfiguredSchedule, configured_schedule
from specmath.engines.names import CONFIG_ENGINES
from specmath.errors import InputError, SpecmathError, shown
from specmath.model_catalogue import hub_ids
from specmath.model_counts import looks_like_counts
from specmath.schedule import ScheduleTable

_MEASURED_AT_K = ("acceptance_length", "accepted_over_drafted")


def asks_for_fixed_k(acceptance: AcceptanceOptions, device: DeviceOptions) -> bool:
    """Whether a typed k is the answer itself: nothing was measured at it, and the engine has a config."""
    measured = any(getattr(acceptance, name) is not None for name in _MEASURED_AT_K)
    return not measured and engine_choice(device).name is not None


def fixed_config(
    k: str, acceptance: AcceptanceOptions, device: DeviceOptions, pair: PairOptions, contexts: Sequence[float]
) -> EngineConfig:
    """The config of one k; with an acceptance it holds the test of the forecast, too."""
    drafts = parse_count("k", k)
    choice = only_choice(acceptance, pair)
    return engine_config(
        str(device.engine),
        k=drafts,
        method=_method(choice, device),
        survival=_survival(acceptance, drafts, contexts),
        **_names(choice, device, pair),
    )


def tiers_config(
    tiers: Sequence[TierLike],
    method: str,
    acceptance: AcceptanceOptions,
    device: DeviceOptions,
    pair: PairOptions,
) -> EngineConfig:
    """The config of tiers that were found elsewhere, such as the gate of a load."""
    return engine_config(
        str(device.engine), tiers, method=method, **_names(only_choice(acceptance, pair), device, pair)
    )


def with_config(
    table: ScheduleTable,
    policy: str | None,
    acceptance: AcceptanceOptions,
    device: DeviceOptions,
    pair: PairOptions,
) -> ScheduleTable | ConfiguredSchedule:
    """The plan with the config of its engine; the plan alone where the profile is no engine's."""
    if engine_choice(device).name is None:
        if policy is not None:
            problem = f"picks what to write for an engine; give --engine, one of {', '.join(CONFIG_ENGINES)}"
            raise InputError("policy", problem)
        return table
    return configured_schedule(
        table,
        str(device.engine),
        policy=policy,  # type: ignore[arg-type]  # checked there
        method=str(table.source.inputs["method"]),
        **_names(only_choice(acceptance, pair), device, pair),
    )


def _names(choice: Choice, device: DeviceOptions, pair: PairOptions) -> dict[str, Any]:
    spread = layout(device)
    return {
        "target": _served_name(pair.target) or TARGET,
        "draft": _served_name(choice.name),
        "data_parallel": spread.dp,
        "pipeline_parallel": spread.pp,
    }


def _served_name(text: str | None) -> str | None:
    """The name by which an engine finds a model; None where only its shape was given."""
    if text is None or text == "-" or looks_like_counts(text):
        return None
    if Path(text).name == "config.json":
        return str(Path(text).parent)
    ids = hub_ids(text)
    return ids[0] if len(ids) == 1 else text


def _method(choice: Choice, device: DeviceOptions) -> str:
    """How the draft drafts; by its own configuration where the options do not say."""
    if choice.means is not None:
        return choice.means
    if choice.name is None or looks_like_counts(choice.name):
        return "draft-model"
    try:
        return infer_method(model("draft", choice.name, device))
    except SpecmathError as fault:
        raise InputError("method", f"is missing: {shown(choice.name)} does not tell it ({fault})") from fault


def _survival(acceptance: AcceptanceOptions, k: int, contexts: Sequence[float]) -> tuple[float, ...]:
    """What the first law named expects of a chain of k; nothing where none is named, or a tree."""
    if all(getattr(acceptance, name) is None for name in LAWS):
        others = (one.name for one in fields(acceptance) if one.name != "match_rate")  # names a lookup
        if strays := [name for name in others if getattr(acceptance, name) is not None]:
            raise InputError(strays[0], "belongs to an acceptance law, and none was given")
        return ()
    law = AcceptanceAxis.of(acceptance_laws(acceptance, [k])).law(0).at(float(contexts[0]))
    if not k or int(law.width(k)) != k + 1:
        return ()
    return tuple(law.survival(k).ravel().tolist())
