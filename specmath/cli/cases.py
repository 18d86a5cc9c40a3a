"""From the options to step-time sources: typed ratios, or a model pair on an accelerator."""

from __future__ import annotations

from dataclasses import fields

from specmath.axes import parse_linear
from specmath.cli.laws import match_rate
from specmath.cli.models import accelerator, degree, efficiency, layout, link, model
from specmath.cli.options import AcceptanceOptions, DeviceOptions, PairOptions, RatioOptions
from specmath.cli.text import given_or, option, parse_number
from specmath.errors import InputError
from specmath.execution import Layout
from specmath.roofline_source import Roofline, roofline_cases
from specmath.sources import Ratios, StepTimeSource

DEFAULT_TARGET, DEFAULT_DRAFT = "70B", "1B"


def step_time_cases(
    acceptance: AcceptanceOptions, device: DeviceOptions, pair: PairOptions, ratios: RatioOptions
) -> tuple[StepTimeSource, ...]:
    """Typed ratios as one case, or the three cases of the roofline."""
    if not _given(ratios):
        return roofline(acceptance, device, pair)
    if strays := _given(device) + _given(pair):
        raise InputError(strays[0], f"excludes {option(_given(ratios)[0])}; give ratios or hardware")
    if ratios.draft_cost is None and acceptance.match_rate is None:
        raise InputError("draft_cost", "is missing; with typed ratios give the cost of one draft pass")
    verify_cost, verify_slope = parse_linear("verify_cost", given_or(ratios.verify_cost, "1"))
    source = Ratios(
        draft_cost=parse_number("draft_cost", given_or(ratios.draft_cost, "0")),
        verify_cost=verify_cost,
        verify_slope=verify_slope,
        overhead=parse_number("overhead", given_or(ratios.overhead, "0")),
        match_rate=match_rate(acceptance),
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
) -> tuple[Roofline, Roofline, Roofline]:
    """The ideal, memory-bound and compute-bound case of the model pair on the accelerator."""
    lookup = acceptance.match_rate is not None
    if pair.target == pair.draft == "-":
        raise InputError("draft", "- is taken by the target; stdin can be read once")
    if lookup and pair.draft is not None:
        raise InputError("draft", "excludes --match-rate: a lookup draft runs no model")
    target = model("target", given_or(pair.target, DEFAULT_TARGET), device)
    if not lookup and pair.draft is None and not target.counts_only:
        raise InputError("draft", f"is missing: name the draft of {target.name}, or give --match-rate")
    draft = None if lookup else model("draft", given_or(pair.draft, DEFAULT_DRAFT), device)
    return roofline_cases(
        accelerator(device),
        target,
        draft,
        layout=layout(device),
        draft_layout=Layout(tp=degree("draft_tp", pair.draft_tp)),
        efficiency=efficiency(device),
        link_bytes_per_s=link(device),
        match_rate=match_rate(acceptance),
    )


def refuse_ratios(ratios: RatioOptions, question: str) -> None:
    """Typed ratios hold at one unknown batch, so no question over batches can be asked of them."""
    if given := _given(ratios):
        problem = f"typed ratios know no batch; {question} needs --hardware, --target and --draft"
        raise InputError(given[0], problem)


def _given(options: DeviceOptions | PairOptions | RatioOptions) -> list[str]:
    return [field.name for field in fields(options) if getattr(options, field.name) is not None]
