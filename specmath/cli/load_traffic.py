"""From the options of `specmath load` to classes of traffic, limits and service levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from specmath.axes import parse_axis, parse_record
from specmath.cli.load_options import ServerOptions, TrafficOptions
from specmath.cli.options import LAWS, AcceptanceOptions
from specmath.cli.text import given_or, parse_count, parse_number
from specmath.errors import InputError
from specmath.laws import AcceptanceLaw
from specmath.side_costs import DEFAULT_UNIT, SGLANG_RUNNING
from specmath.simulation.statistics import ServiceLevel
from specmath.traffic import Trace, TrafficClass
from specmath.units import parse_quantity

_CLASS = ("name", "share", "prompt", "output", "alpha", "spread", "variation", "cached", "unit")
_LEVELS = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "gap_s", "e2e": "end_to_end_s"}
DEFAULT_PROMPT, DEFAULT_OUTPUT = "1k", "250"
_CLASS_EXAMPLE = "as in share=.3,prompt=2k,output=300,alpha=.6"


def class_records(options: TrafficOptions) -> list[dict[str, str]]:
    """The classes as typed; one of everything where none is."""
    texts = options.traffic_class or []
    records = [_faults_of("class", text) for text in texts] or [{"share": "1"}]
    for number, record in enumerate(records, 1):
        record.setdefault("name", f"class {number}" if texts else "all")
    return records


def with_class_alpha(acceptance: AcceptanceOptions, records: Sequence[dict[str, str]]) -> AcceptanceOptions:
    """The acceptance options, with the α of the first class where every class has one and no option does."""
    named = any(getattr(acceptance, name) is not None for name in (*LAWS, "from_source"))
    if named or not all("alpha" in record for record in records):
        return acceptance
    return replace(acceptance, alpha=records[0]["alpha"])


def traffic_classes(
    records: Sequence[dict[str, str]],
    options: TrafficOptions,
    law: AcceptanceLaw,
    *,
    loses_prefix: bool,
) -> list[TrafficClass]:
    """The classes, with what each leaves out taken from the options."""
    missing = [record for record in records if "share" not in record]
    if missing:
        raise InputError("class", f"{missing[0]['name']} lacks its share; {_CLASS_EXAMPLE}")
    prefix = {} if options.prefix is None else parse_record("prefix", options.prefix, ("cached", "unit"))
    shared = {
        "prompt": given_or(options.prompt_tokens, DEFAULT_PROMPT),
        "output": given_or(options.output_tokens, DEFAULT_OUTPUT),
        "spread": given_or(options.spread, "constant"),
        "variation": given_or(options.variation, "0"),
        "cached": "0",
        "unit": str(DEFAULT_UNIT),
        **prefix,
    }
    return [_class({**shared, **record}, law, loses_prefix) for record in records]


def _class(record: dict[str, str], law: AcceptanceLaw, loses_prefix: bool) -> TrafficClass:
    return TrafficClass(
        name=record["name"],
        share=parse_number("share", record["share"]),
        prompt_tokens=parse_number("prompt_tokens", record["prompt"]),
        output_tokens=parse_number("output_tokens", record["output"]),
        law=own_law(record, law),
        spread=record["spread"],  # type: ignore[arg-type]  # checked there
        variation=parse_number("variation", record["variation"]),
        prefix_tokens=parse_number("cached", record["cached"]),
        prefix_unit=parse_count("unit", record["unit"]),
        loses_prefix=loses_prefix,
    )


def own_law(record: dict[str, str], law: AcceptanceLaw) -> AcceptanceLaw:
    """The law of a class: its own α, or that of the options."""
    if "alpha" not in record:
        return law
    from specmath.acceptance import ConstantAcceptance
    from specmath.mixtures import LookupAcceptance

    own = ConstantAcceptance(parse_number("alpha", record["alpha"]))
    return LookupAcceptance(law.match_rate, own) if isinstance(law, LookupAcceptance) else own


def trace_laws(
    trace: Trace, records: Sequence[dict[str, str]], law: AcceptanceLaw, *, typed: bool
) -> list[AcceptanceLaw]:
    """The law of each class of a trace; a --class names one, and may give its α."""
    if not typed:
        return [law] * len(trace.names)
    named = {record["name"]: record for record in records}
    if strays := [name for name in named if name not in trace.names]:
        raise InputError("class", f"{strays[0]!r} is none of the trace's: {', '.join(trace.names)}")
    for record in records:
        if extra := [key for key in record if key not in ("name", "alpha")]:
            raise InputError("class", f"{extra[0]} comes from the trace; give name and alpha alone")
    return [own_law(named.get(name, {}), law) for name in trace.names]


def rates(options: TrafficOptions, trace: Trace | None) -> list[float]:
    """The rates asked about; that of the trace, or one a second, where none is typed."""
    if options.rate is None:
        return [1.0 if trace is None else trace.rate_per_s]
    return parse_axis("rate", options.rate)


def service_level(text: str | None) -> ServiceLevel:
    """What a request must meet."""
    if text is None:
        return ServiceLevel()
    record = parse_record("slo", text, tuple(_LEVELS))
    for name, value in record.items():
        if not value.endswith("s"):
            raise InputError("slo", f"{name}={value} needs a unit, as in {name}=30ms or {name}=2s")
    try:
        limits = {_LEVELS[name]: parse_quantity("slo", value, "s") for name, value in record.items()}
        return ServiceLevel(**limits)
    except InputError as fault:
        raise InputError("slo", fault.problem) from None


def largest_batches(options: ServerOptions, engine: str | None, ranks: int) -> tuple[int | None, int | None]:
    """Requests that run at once at most, without and beside a drafter; None for the default."""
    if options.max_batch is not None:
        return parse_count("max_batch", options.max_batch), None
    return None, max(1, SGLANG_RUNNING // ranks) * ranks if engine == "sglang" else None


def _faults_of(name: str, text: str) -> dict[str, str]:
    return parse_record(name, text, _CLASS)
