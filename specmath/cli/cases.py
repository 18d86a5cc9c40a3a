"""From the options to step-time sources: typed ratios, or a model pair on an accelerator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from specmath.axes import parse_linear
from specmath.cli.drafts import Choice, drafter, only_choice
from specmath.cli.laws import match_rate
from specmath.cli.models import accelerator, efficiency, layout, link, model
from specmath.cli.options import AcceptanceOptions, DeviceOptions, PairOptions, RatioOptions
from specmath.cli.text import given_or, option, parse_number
from specmath.drafters.base import Drafter
from specmath.engines.names import EngineChoice, parse_engine
from specmath.errors import InputError
from specmath.model import ModelShape
from specmath.profile_catalogue import IDEAL_PROFILE, load_profile
from specmath.profiled_source import Profiled, forecast_cases
from specmath.roofline_source import Roofline, roofline_cases
from specmath.sources import BatchSource, Ratios, StepTimeSource

DEFAULT_TARGET, DEFAULT_ENGINE = "70B", "typical"


def step_time_cases(
    choice: Choice, device: DeviceOptions, pair: PairOptions, ratios: RatioOptions
) -> tuple[StepTimeSource, ...]:
    """Typed ratios as one case, or the three cases of the roofline."""
    if not _given(ratios):
        return drafted_cases([choice], device, pair)[0]
    if strays := _given(device) + _given(pair):
        raise InputError(strays[0], f"excludes {option(_given(ratios)[0])}; give ratios or hardware")
    if ratios.draft_cost is None and choice.acceptance.match_rate is None:
        raise InputError("draft_cost", "is missing; with typed ratios give the cost of one draft pass")
    verify_cost, verify_slope = parse_linear("verify_cost", given_or(ratios.verify_cost, "1"))
    source = Ratios(
        draft_cost=parse_number("draft_cost", given_or(ratios.draft_cost, "0")),
        verify_cost=verify_cost,
        verify_slope=verify_slope,
        overhead=parse_number("overhead", given_or(ratios.overhead, "0")),
        match_rate=match_rate(choice.acceptance),
    )
    return (source,)


def chosen_cases(cases: tuple[StepTimeSource, ...], text: str | None) -> tuple[StepTimeSource, ...]:
    """The cases named, in the order of the table."""
    if text is None:
        return cases
    known = [source.case for source in cases]
    named = [name.strip() for name in text.split(",")]
    if strange := [name for name in named if name not in known]:
        raise InputError("case", f"{strange[0]!r} is none of {', '.join(known)}")
    return tuple(source for source in cases if source.case in named)


def roofline(
    acceptance: AcceptanceOptions, device: DeviceOptions, pair: PairOptions
) -> tuple[BatchSource, ...]:
    """The cases of the one draft that the options name: the engine's profile first, then the datasheet."""
    return drafted_cases([only_choice(acceptance, pair)], device, pair)[0]


def drafted_cases(
    choices: Sequence[Choice], device: DeviceOptions, pair: PairOptions
) -> list[tuple[Profiled | Roofline, ...]]:
    """The cases of each draft of the target: the engine's profile, ideal, memory-bound and compute-bound."""
    if [pair.target, *(choice.name for choice in choices)].count("-") > 1:
        raise InputError("draft", "- is taken already; stdin can be read once")
    target = model("target", given_or(pair.target, DEFAULT_TARGET), device)
    return [source_cases(target, drafter(choice, target, device), device) for choice in choices]


def source_cases(
    target: ModelShape, drafter: Drafter, device: DeviceOptions
) -> tuple[Profiled | Roofline, ...]:
    """The engine's profile, where one is asked for, and the datasheet cases."""
    part = accelerator(device)
    spread, typed_link, captured = layout(device), link(device), efficiency(device)
    profile = engine_choice(device).profile
    if profile == IDEAL_PROFILE:
        return roofline_cases(
            part, target, drafter, layout=spread, efficiency=captured, link_bytes_per_s=typed_link
        )
    return forecast_cases(
        load_profile(profile, part, hardware_file=device.hardware_file),
        part,
        target,
        drafter,
        layout=spread,
        link_bytes_per_s=typed_link,
        graph_sizes=captured.graph_sizes,
    )


def engine_choice(device: DeviceOptions) -> EngineChoice:
    """The engine of the options, its version and its profile."""
    return parse_engine(given_or(device.engine, DEFAULT_ENGINE))


def refuse_ratios(ratios: RatioOptions, question: str) -> None:
    """Typed ratios hold at one unknown batch, so no question over batches can be asked of them."""
    if given := _given(ratios):
        problem = f"typed ratios know no batch; {question} needs --hardware, --target and --draft"
        raise InputError(given[0], problem)


def _given(options: DeviceOptions | PairOptions | RatioOptions) -> list[str]:
    return [field.name for field in fields(options) if getattr(options, field.name) not in (None, [])]
