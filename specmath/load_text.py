"""What a load says in words: what it assumes, what to be warned of, and how a row came about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import numpy as np

from specmath.acceptance_axis import AcceptanceAxis
from specmath.checks import FloatArray, IntArray
from specmath.latencies import MAX_UTILISATION
from specmath.load_arms import Arm, LoadQuestion
from specmath.load_policies import Machine
from specmath.load_verdicts import policy_name, rate_text
from specmath.mixed_steps import PromptCosts
from specmath.prompt_costs import roofline_beneath
from specmath.question_advice import question_advice
from specmath.results import Advice, Cell, brief
from specmath.simulation.statistics import Summary
from specmath.traffic import TrafficClass
from specmath.units import format_quantity, format_significant

SHARP_EDGE = 0.8
"""Share of the highest rate from which small errors of the step move latencies much."""


def load_inputs(question: LoadQuestion) -> dict[str, Cell]:
    """What was asked, the rates aside."""
    machine = question.machine
    classes: list[Cell] = [_class_text(one) for one in machine.traffic.classes]
    level = {f"slo_{name}": value for name, value in asdict(question.level).items()}
    asked: dict[str, Cell] = {
        "classes": classes[0] if len(classes) == 1 else classes,
        "k": brief(np.array(machine.ks)),
        "replicas": question.replicas,
        "max_running": list(machine.max_batch),
        "chunk_tokens": machine.chunk_tokens,
        "zero_tier_cost": machine.zero_tier_cost or None,
        **level,
    }
    return asked | dict(machine.source.inputs)


def _class_text(one: TrafficClass) -> str:
    """A class as it may be typed."""
    spread = "" if one.spread == "constant" else f",spread={one.spread}"
    if one.variation:
        spread += f",variation={one.variation:.4g}"
    lengths = f"share={one.share:g},prompt={one.prompt_tokens:g},output={one.output_tokens:g}"
    return f"{one.name}: {lengths},{one.law.label}{spread}"


def load_assumptions(question: LoadQuestion, *, simulated: bool = False) -> Iterator[str]:
    """What the numbers assume, the most important first."""
    machine = question.machine
    prompts: PromptCosts = machine.steps(drafting=True).prompts
    leading, *others = machine.source.assumptions
    yield leading
    yield (
        "Poisson arrivals; running sequences share each step; the running batch has the stationary law of "
        f"that queue, {_context_text(machine)}; chunks of at most "
        f"{machine.chunk_tokens:,} prompt tokens ride with decoding"
    )
    yield from prompts.assumptions
    yield (
        f"percentiles are approximations, given up to {MAX_UTILISATION:.0%} of the highest rate and not "
        "beside long prompts; TTFT and waits are means. A step brings E tokens at once: the gap between "
        "deliveries is the step, not TPOT"
    )
    yield from _cap_text(question)
    if question.replicas > 1:
        yield f"{question.replicas} replicas share the requests evenly, each a Poisson stream of its own"
    yield (
        "USD are list prices of devices that run all the time; joules are the boards' full power, a ceiling; "
        "both per output token delivered"
    )
    yield "adaptive verification knows the position of a draft token only, as in `schedule`"
    if simulated:
        yield "simulated rows serve requests, drawn or of a trace, step by step with the same step times"
    yield from others
    for one in machine.traffic.classes:
        yield f"{one.name}: {one.law.label}, {one.law.assumption}"


def _context_text(machine: Machine) -> str:
    """What a running sequence has in the cache."""
    if machine.context:
        return f"at one mean context of {machine.context:,.0f} tokens"
    return "no step reading a cache, whose size counts of parameters do not tell, and none filling memory"


def _cap_text(question: LoadQuestion) -> Iterator[str]:
    plain, drafting = question.machine.max_batch
    told = f"{plain:,}" if plain == drafting else f"{plain:,} sequences, {drafting:,} beside a drafter,"
    memory = ", fewer where memory holds fewer at the mean context" if question.machine.context else ""
    yield f"an engine runs at most {told} at once{memory}"


def load_warnings(
    question: LoadQuestion, rates: FloatArray, arms: Sequence[Sequence[Arm]]
) -> Iterator[Advice]:
    """Overload, edges, side costs that show, then what the source knows."""
    flat = [arm for found in arms for arm in found]
    yield from _overload(rates, arms)
    yield from _memory(flat)
    if any(arm.state == "metastable" for arm in flat):
        yield Advice(
            code="metastable",
            text="a larger batch is served more slowly than requests come: a burst that reaches it ends in "
            "overload, though the mean rate is below the highest",
            remedy="cap the running sequences below that batch, with --max-batch",
        )
    lost = max((arm.side.get("lost_prefix_tokens", 0.0) for arm in flat), default=0.0)
    if lost > 0:
        yield Advice(
            code="prefix-hits-lost",
            text=f"a drafter loses {lost:,.0f} cached prompt tokens a request: the last matched unit is "
            "dropped (vllm #38182, #53670, #54360)",
            remedy="compare `vllm:prefix_cache_hits_total` with and without on an exact repeat",
        )
    longest = max((int(arm.service.ks.max()) for arm in flat if arm.service is not None), default=0)
    batches = [arm.equilibrium_batch for arm in flat if arm.equilibrium is not None]
    yield from source_warnings(question, longest, np.array(batches))


def _beyond_the_model(question: LoadQuestion) -> Iterator[Advice]:
    """Requests longer than the target was made for."""
    roofline = roofline_beneath(question.machine.source)
    most = None if roofline is None else roofline.target.max_context
    longest = max(one.prompt_tokens + one.output_tokens for one in question.machine.traffic.classes)
    if most and longest > most:
        yield Advice(
            code="beyond-the-model",
            text=f"requests of {longest:,.0f} tokens are longer than the {most:,} that the target takes",
            remedy="shorten them, or name a model for longer contexts",
        )


def source_warnings(question: LoadQuestion, longest_k: int, batches: FloatArray) -> Iterator[Advice]:
    """What the source and the acceptance leave open at the batches that run; of none the source alone."""
    machine = question.machine
    yield from _beyond_the_model(question)
    if not batches.size:
        yield from (advice for advice in machine.source.warnings if not advice.until_measured)
        return
    whole = np.unique(np.maximum(np.rint(batches), 1)).astype(np.int64)
    yield from _beyond_measured(getattr(machine.source, "measured_batches", None), whole)
    known = [*machine.source.warnings, *machine.source.warnings_at(longest_k, whole, int(whole[-1]))]
    yield from known
    if any(advice.until_measured for advice in known):
        yield Advice(
            code="thin-load-evidence",
            text="load curves measured in public are three rows, and on one of their servers 13 % was lost "
            "at 8/s where the forecast's whole range had a gain or next to none",
            remedy="measure off and on at the batches that run, as --measured, before it decides",
            until_measured=True,
        )
    laws = AcceptanceAxis.of([one.law for one in machine.traffic.classes])
    yield from question_advice(laws, machine.source, longest_k=longest_k, context=machine.traffic.context)


def simulation_warnings(
    rates: FloatArray, arms: Sequence[Sequence[Arm]], simulated: Mapping[tuple[int, str], Summary]
) -> Iterator[Advice]:
    """Runs too short to tell, and runs that contradict the closed form."""
    for (place, policy), summary in simulated.items():
        arm = next(one for one in arms[place] if one.policy == policy)
        where = f"{policy_name(arm)} at {rate_text(float(rates[place]))}"
        if summary.state == "unsettled":
            yield Advice(
                code="run-too-short",
                text=f"simulated {where}: {summary.requests:,} requests last {summary.stays:.2g} mean stays, "
                "too short to tell steady from overload; the batch may still have been filling",
                remedy=f"--simulate {format_significant(summary.requests_to_settle, 2)} or more".replace(
                    ",", ""
                ),
            )
        elif summary.state == "overload" and arm.state != "overload":
            yield Advice(
                code="simulated-overload",
                text=f"simulated {where} is overload, and the closed form has it {arm.state}",
                remedy="believe the simulation, and plan below that rate",
            )


def load_remarks(question: LoadQuestion, rates: FloatArray, arms: Sequence[Sequence[Arm]]) -> Iterator[str]:
    """What speculation costs besides the step, what all policies deliver, and which of them do alike."""
    last = arms[-1]
    drafting = next((arm for arm in last[1:] if arm.service is not None), None)
    if drafting is not None:
        yield f"in the figures of {policy_name(drafting)}: {', '.join(_side_texts(last[0], drafting, last))}"
    flat = [arm for found in arms for arm in found if arm.latencies]
    if rates.size == 1 and flat:
        yield _delivered_text(flat[0])
    alike = [
        policy_name(found[0])
        for found in zip(*[found[2:] for found in arms], strict=True)
        if all(_does_as(arm, static[1]) for arm, static in zip(found, arms, strict=True))
    ]
    if alike:
        yield f"{' and '.join(alike)} take as long as the best k here, batch by batch"


def _does_as(arm: Arm, other: Arm) -> bool:
    return bool(arm.latencies and other.latencies) and abs(arm.tpot_s - other.tpot_s) <= 1e-3 * other.tpot_s


def _side_texts(off: Arm, arm: Arm, arms: Sequence[Arm]) -> Iterator[str]:
    """What a drafter costs besides the step, zeros left out."""
    side = arm.side
    assert off.service is not None
    if side["lost_batch"] > 0:
        yield f"{side['lost_batch']:,.0f} of {off.service.limits.max_batch:,} places lost to the draft"
    if side["lost_prefix_tokens"]:
        yield f"{side['lost_prefix_tokens']:,.0f} cache hits lost a request"
    if side["draft_prefill_s"]:
        yield f"{format_quantity(side['draft_prefill_s'], 's', 3)} of prefill in the drafter a request"
    dearest = max((one.side["zero_tier_s"] for one in arms if one.side), default=0.0)
    if dearest:
        yield f"{format_quantity(dearest, 's', 3)} a step of k = 0 above plain decoding"
    yield (
        f"the longest step with prefill {format_quantity(side['chunk_step_s'], 's', 3)}, "
        f"{format_quantity(off.side['chunk_step_s'], 's', 3)} without a drafter"
    )


def _delivered_text(arm: Arm) -> str:
    told = (
        f"every policy that keeps up delivers {format_quantity(arm.tokens_per_s_per_gpu, 'tok/s')} a device"
    )
    if not math.isnan(arm.usd_per_million_tokens):
        told += f", {arm.usd_per_million_tokens:.2f} USD a million tokens"
    if not math.isnan(arm.joules_per_million_tokens):
        told += f", at most {format_significant(arm.joules_per_million_tokens / 1e3)} kJ"
    return told


def _overload(rates: FloatArray, arms: Sequence[Sequence[Arm]]) -> Iterator[Advice]:
    for rate, found in zip(rates.tolist(), arms, strict=True):
        over = [arm for arm in found if arm.state == "overload"]
        if over:
            told = ", ".join(f"{policy_name(arm)} {arm.highest_rate_per_s:.3g}/s" for arm in over)
            yield Advice(
                code="overload",
                text=f"OVERLOAD at {rate_text(rate)}: queues grow without end; highest rates: {told}",
                remedy="add replicas, or lower the rate",
            )
        elif any(arm.utilisation > SHARP_EDGE for arm in found):
            yield Advice(
                code="near-overload",
                text=f"{rate_text(rate)} is above {SHARP_EDGE:.0%} of the highest rate of a policy: an error "
                "of a few per cent in the step moves its latencies many times as much",
                remedy="plan below, or simulate",
            )


def _beyond_measured(measured: tuple[int, int] | None, batches: IntArray) -> Iterator[Advice]:
    """Batches that run far from those at which something was measured."""
    if measured is None or (batches[0] >= measured[0] / 2 and batches[-1] <= measured[1] * 2):
        return
    ends = "" if batches[0] == batches[-1] else f" to {batches[-1]}"
    span = f"{measured[0]}" if measured[0] == measured[1] else f"{measured[0]} to {measured[1]}"
    yield Advice(
        code="beyond-the-measured-batches",
        text=f"batch {batches[0]}{ends} runs, and {span} was measured: the nearest correction is kept",
        remedy="measure a pair near the batches that run, too",
    )


def _memory(arms: Sequence[Arm]) -> Iterator[Advice]:
    for arm in arms:
        if arm.state == "does not fit":
            yield Advice(
                code="drafter-does-not-fit",
                text=f"{arm.policy}: beside the drafter memory holds no request of this traffic",
                remedy="add devices, quantise, or take a smaller drafter",
            )
        elif arm.equilibrium is not None and arm.equilibrium.queueing > 0.01 and arm.service is not None:
            yield Advice(
                code="waits-for-a-place",
                text=f"{policy_name(arm)}: {arm.equilibrium.queueing:.0%} of the requests wait until one of "
                f"{arm.service.limits.max_batch:,} running sequences ends",
                remedy="free memory for the cache, raise the engine's limit, or add replicas",
            )


def load_derivation(question: LoadQuestion, rate: float, arms: Sequence[Arm]) -> Iterator[str]:
    """How each policy's batch came about at a rate, and its side costs as named terms."""
    traffic: Mapping[str, float] = {one.name: one.output_tokens for one in question.machine.traffic.classes}
    per_replica = rate / question.replicas
    yield f"at {rate_text(rate)}, {rate_text(per_replica)} a replica, outputs of {traffic}:"
    for arm in arms:
        state, service = arm.equilibrium, arm.service
        if state is None or service is None:
            yield f"{policy_name(arm)}: {arm.state}"
            continue
        first = arm.latencies[0]
        steps = state.batch / per_replica / first.itl_s
        side = ", ".join(f"{name} {value:.4g}" for name, value in arm.side.items())
        yield (
            f"{policy_name(arm)}: B = rate · steps · T = {per_replica:.4g} · {steps:.4g} · "
            f"{first.itl_s:.4g} s = {state.batch:.4g}; TPOT {first.tpot_s:.4g} s; side costs: {side}"
        )
