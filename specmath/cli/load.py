"""`specmath load`: what happens at five requests a second?"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from specmath.cli.load_options import AnswerOptions, ServerOptions, TrafficOptions
from specmath.cli.options import (
    AcceptanceOptions,
    DeviceOptions,
    MeasuredOptions,
    OutputOptions,
    PairOptions,
    RatioOptions,
    SourceOptions,
    with_options,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specmath.engines.names import EngineChoice
    from specmath.laws import AcceptanceLaw
    from specmath.load_arms import LoadQuestion
    from specmath.results import Cell, Result
    from specmath.sources import BatchSource
    from specmath.traffic import Trace, TrafficClass


@with_options
def load(
    acceptance: AcceptanceOptions,
    k: Annotated[
        str | None,
        typer.Option(
            "--k",
            metavar="k",
            help=r"Draft tokens per step, one or several to choose from. \[default: 1 to 16, or as far as "
            r"acceptance and draft go]",
        ),
    ] = None,
    *,
    traffic: TrafficOptions,
    server: ServerOptions,
    answer: AnswerOptions,
    device: DeviceOptions,
    pair: PairOptions,
    ratios: RatioOptions,
    measured: MeasuredOptions,
    source: SourceOptions,
    output: OutputOptions,
) -> None:
    """What happens at five requests a second? Batch, latency, throughput, highest rate, cost.

    Off, the best k, tiers of k and adaptive verification at each rate; the batch follows from the rate.
    """
    from specmath.cli.calibrated import settled
    from specmath.cli.cases import refuse_ratios, roofline
    from specmath.cli.drafts import with_own_law
    from specmath.cli.from_source import taken_from
    from specmath.cli.load_traffic import class_records, rates, with_class_alpha
    from specmath.cli.measured import question
    from specmath.cli.output import emit
    from specmath.trace_files import read_trace

    refuse_ratios(ratios, "a load")
    _refuse_strays(traffic, server, answer, output)
    acceptance, own_k, pair = with_own_law(acceptance, pair)
    k = k if own_k is None else own_k
    acceptance = with_class_alpha(acceptance, class_records(traffic))
    taken = taken_from(acceptance, source, k, measured=measured, pair=pair)
    trace = None if traffic.trace is None else read_trace(traffic.trace)
    context = _context(traffic, trace)
    known = settled(taken.acceptance, taken.measured, device, pair, context=[context], k=[k])
    times = known.source or roofline(known.acceptance, known.device, known.pair)[0]
    asked = question(
        known.acceptance,
        known.measured,
        known.device,
        source=times,
        k=taken.k,
        batch=[1],
        context=[context],
        default_k=[],
        longest_k=0 if k is None else None,
    )
    # Which batches run is the answer; how far they are from the measured ones is said there.
    asked = replace(asked, batch=[pair.batch for pair in asked.pairs] or asked.batch)
    laws, classes = _requests(traffic, trace, asked.laws, known.device, method=times.inputs.get("method"))
    posed = _posed(classes, asked.corrected(times), k, server, known.device)
    if answer.gate or answer.pools:
        result = _instead(posed, rates(traffic, trace), answer, known.acceptance, known.device, known.pair)
    else:
        result = _table(posed, rates(traffic, trace), answer, trace, laws)
    emit(taken.told(result), output)


def _refuse_strays(
    traffic: TrafficOptions, server: ServerOptions, answer: AnswerOptions, output: OutputOptions
) -> None:
    """Options that say nothing to the answer asked for; a number where a file is meant."""
    from specmath.errors import InputError

    if answer.gate and answer.pools:
        raise InputError("gate", "and --pools exclude each other; give one")
    instead = "gate" if answer.gate else "pools" if answer.pools else None
    given = {"simulate": answer.simulate, "log": answer.log}
    if answer.gate:
        given |= {"rate": traffic.rate, "slo": server.slo}
    for name, value in given.items():
        if instead is not None and value is not None:
            raise InputError(name, f"says nothing to --{instead}; drop one of them")
    for name in ("prompt_tokens", "output_tokens", "spread", "variation", "prefix"):
        if traffic.trace is not None and getattr(traffic, name) is not None:
            raise InputError(name, "says nothing to --trace, whose requests stand in it; drop one of them")
    if answer.log is not None and answer.simulate is None:
        raise InputError("log", "keeps simulated runs; give --simulate N, too")
    if output.output is not None and output.output.replace(".", "").isdecimal():
        problem = f"is a file to write to; tokens of an output are --output-tokens {output.output}"
        raise InputError("output", problem)


def _requests(
    traffic: TrafficOptions,
    trace: Trace | None,
    laws: Sequence[AcceptanceLaw],
    device: DeviceOptions,
    *,
    method: Cell,
) -> tuple[list[AcceptanceLaw], list[TrafficClass]]:
    """The laws of a trace's classes, none without a trace, and the classes of requests."""
    from specmath.acceptance_axis import AcceptanceAxis
    from specmath.cli.cases import engine_choice
    from specmath.cli.load_traffic import class_records, trace_laws, traffic_classes
    from specmath.errors import InputError
    from specmath.side_costs import loses_prefix_hits

    axis = AcceptanceAxis.of(laws)
    if len(axis) != 1:
        raise InputError("alpha", "takes one acceptance; repeat --class for several kinds of requests")
    law, records = axis.law(0), class_records(traffic)
    if trace is None:
        loses = loses_prefix_hits(engine_choice(device).name, str(method))
        return [], traffic_classes(records, traffic, law, loses_prefix=loses)
    own = trace_laws(trace, records, law, typed=traffic.traffic_class is not None)
    return own, list(trace.traffic(own).classes)


def _posed(
    classes: Sequence[TrafficClass],
    source: BatchSource,
    k: str | None,
    server: ServerOptions,
    device: DeviceOptions,
) -> LoadQuestion:
    """The server and its requests."""
    from specmath.axes import parse_axis
    from specmath.cli.cases import engine_choice
    from specmath.cli.load_traffic import largest_batches, service_level
    from specmath.cli.models import layout
    from specmath.cli.text import parse_count
    from specmath.loads import load_question

    engine = engine_choice(device)
    cap, cap_drafting = largest_batches(server, engine.name, layout(device).dp)
    return load_question(
        classes,
        source=source,
        k=None if k is None else parse_axis("k", k, whole=True),
        replicas=parse_count("replicas", server.replicas),
        max_batch=cap,
        max_batch_drafting=cap_drafting,
        chunk_tokens=parse_count("chunk", server.chunk),
        level=service_level(server.slo),
        zero_tier_cost=_zero_tier_cost(server, engine),
    )


def _context(traffic: TrafficOptions, trace: Trace | None) -> float:
    """A context near that of the running sequences, at which a law or a measurement is taken."""
    from specmath.cli.load_traffic import DEFAULT_OUTPUT, DEFAULT_PROMPT
    from specmath.cli.text import given_or, parse_number

    if trace is not None:
        return float(trace.prompt_tokens.mean() + trace.output_tokens.mean() / 2)
    prompt = parse_number("prompt_tokens", given_or(traffic.prompt_tokens, DEFAULT_PROMPT))
    output = parse_number("output_tokens", given_or(traffic.output_tokens, DEFAULT_OUTPUT))
    return max(prompt, 0) + max(output, 0) / 2


def _zero_tier_cost(server: ServerOptions, engine: EngineChoice) -> float:
    """What was typed, else what the engine's version is known for."""
    from specmath.cli.text import parse_number
    from specmath.side_costs import running_zero_tier_cost

    if server.zero_tier_cost is not None:
        return parse_number("zero_tier_cost", server.zero_tier_cost)
    return running_zero_tier_cost(engine.name, None if engine.version is None else engine.version.release)


def _table(
    posed: LoadQuestion,
    rates_per_s: list[float],
    answer: AnswerOptions,
    trace: Trace | None,
    laws: list[AcceptanceLaw],
) -> Result:
    """Every policy at every rate, simulated too where that is asked."""
    from pathlib import Path

    from specmath.cli.progress import progress_shown
    from specmath.cli.text import parse_count
    from specmath.loads import forecast_load, simulate_load, trace_advice

    count = None if answer.simulate is None else _simulated_requests(answer.simulate, trace)
    with progress_shown("trying every policy") as progress:
        table = forecast_load(posed, rates_per_s, progress=progress)
    if trace is not None:
        table = replace(table, notes=trace_advice(trace))
    if count is None:
        return table
    log = None if answer.log is None else Path(answer.log)
    with progress_shown("simulating") as progress:
        return simulate_load(
            table,
            requests=count,
            seed=parse_count("seed", answer.seed),
            trace=trace,
            laws=laws,
            log=log,
            resume=log is not None and log.exists(),
            progress=progress,
        )


def _simulated_requests(text: str, trace: Trace | None) -> int:
    """Requests of each run, at most those of the trace."""
    from specmath.cli.text import parse_count
    from specmath.errors import InputError
    from specmath.simulation.requests import MAX_REQUESTS

    count = parse_count("simulate", text)
    most, whose = (MAX_REQUESTS, "") if trace is None else (len(trace), ", the requests of the trace")
    if not 1 <= count <= most:
        raise InputError("simulate", f"must be from 1 to {most:,}{whose}, got {count:,}")
    return count


def _instead(
    posed: LoadQuestion,
    rates_per_s: list[float],
    answer: AnswerOptions,
    acceptance: AcceptanceOptions,
    device: DeviceOptions,
    pair: PairOptions,
) -> Result:
    """The gate, with the engine's config where there is one; or the pools."""
    from specmath.cli.cases import engine_choice
    from specmath.cli.configs import tiers_config
    from specmath.errors import InputError
    from specmath.gates import find_gate, gate_rows
    from specmath.pools import find_pools

    if answer.pools:
        if len(rates_per_s) > 1:
            raise InputError("rate", "takes one value with --pools")
        return find_pools(posed, rates_per_s[0])
    rows = gate_rows(posed)
    if engine_choice(device).name is None or not rows:
        return find_gate(posed)
    method = str(posed.machine.source.inputs["method"])
    return find_gate(posed, tiers_config(rows, method, acceptance, device, pair))
