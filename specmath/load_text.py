"""What a load says in words: its verdict, what it assumes, what to be warned of, and how a row came about."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

import numpy as np

from specmath.checks import FloatArray, IntArray
from specmath.latencies import MAX_UTILISATION
from specmath.load_arms import Arm, LoadQuestion, meets
from specmath.mixed_steps import PromptCosts
from specmath.results import Advice, Cell, brief
from specmath.traffic import TrafficClass
from specmath.units import format_quantity
from specmath.verdicts import judgement

TOLD_RATES = 4
"""Rates up to which the verdict speaks of each."""
WORTH = 0.01
"""What a policy must save of the time per token to be named instead of a plainer one."""
SHARP_EDGE = 0.8
"""Share of the highest rate from which small errors of the step move latencies much."""


def load_inputs(question: LoadQuestion) -> dict[str, Cell]:
    """What was asked, the rates aside."""
    machine = question.machine
    classes: list[Cell] = [_class_text(one) for one in machine.traffic.classes]
    level = {f"{name}_at_most": value for name, value in asdict(question.level).items()}
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
    lengths = f"share={one.share:g},prompt={one.prompt_tokens:g},output={one.output_tokens:g}"
    return f"{one.name}: {lengths},{one.law.label}{spread}"


def load_verdict(question: LoadQuestion, rates: FloatArray, arms: Sequence[Sequence[Arm]]) -> str:
    """The answer at each rate, or how often each is given."""
    told = [_rate_text(question, rate, found) for rate, found in zip(rates.tolist(), arms, strict=True)]
    basis = question.machine.source.basis
    if len(told) <= TOLD_RATES:
        return f"{'; '.join(told)}, {basis}"
    words = [text.split(":")[0].split(" at ")[0] for text in told]
    runs = [place for place in range(len(words)) if place == 0 or words[place] != words[place - 1]]
    spans = [
        f"{words[first]} at {rates[first]:g}" + (f"–{rates[last - 1]:g}" if last - first > 1 else "") + "/s"
        for first, last in zip(runs, [*runs[1:], len(words)], strict=True)
    ]
    return f"{', '.join(spans)}, {basis}"


def best_arm(question: LoadQuestion, arms: Sequence[Arm]) -> Arm | None:
    """The plainest arm near the least time per token; of those that meet the level, where any does."""
    steady = [arm for arm in arms if arm.latencies and arm.policy != "adaptive"]
    meeting = [arm for arm in steady if meets(question.level, arm.latencies)] or steady
    least = min((arm.tpot_s for arm in meeting), default=math.nan)
    return next((arm for arm in meeting if arm.tpot_s <= (1 + WORTH) * least), None)


def _rate_text(question: LoadQuestion, rate: float, arms: Sequence[Arm]) -> str:
    off, best = arms[0], best_arm(question, arms)
    where = f"at {rate:g}/s"
    if best is None:
        highest = max((arm for arm in arms if arm.service), key=lambda arm: arm.highest_rate_per_s)
        return (
            f"OVERLOAD {where}: no policy serves it; {_policy(highest)} would reach "
            f"{highest.highest_rate_per_s:.3g}/s"
        )
    if best is off:
        return _off_text(where, arms)
    if not off.latencies:
        return (
            f"FASTER {where}: {_policy(best)} serves it at {_seconds(best.tpot_s)} a token, and without "
            f"speculation it is OVERLOAD above {off.highest_rate_per_s:.3g}/s"
        )
    word = judgement(best.speedup, best.speedup_low, best.speedup_high)
    span = "" if math.isnan(best.speedup_low) else f" ({best.speedup_low:.2f}× to {best.speedup_high:.2f}×)"
    batches = [arm.equilibrium.batch for arm in (best, off) if arm.equilibrium is not None]
    return (
        f"{word} {where}: {_policy(best)} takes {_seconds(best.tpot_s)} a token instead of "
        f"{_seconds(off.tpot_s)}, {best.speedup:.2f}×{span}, "
        f"at batch {batches[0]:.3g} instead of {batches[1]:.3g}; {_limits(best, off)}"
    )


def _off_text(where: str, arms: Sequence[Arm]) -> str:
    off, rival = arms[:2]
    if not rival.latencies:
        lost = "does not fit" if rival.state == "does not fit" else "is overloaded"
        return f"SLOWER {where}: do not speculate; {_policy(rival)} {lost}"
    word = judgement(rival.speedup, rival.speedup_low, rival.speedup_high)
    return (
        f"{word} {where}: do not speculate; {_policy(rival)}, the best one, takes "
        f"{_seconds(rival.tpot_s)} a token against {_seconds(off.tpot_s)}; {_limits(rival, off)}"
    )


def _limits(arm: Arm, off: Arm) -> str:
    return f"highest rate {arm.highest_rate_per_s:.3g}/s against {off.highest_rate_per_s:.3g}/s"


def _policy(arm: Arm) -> str:
    names = {"off": "plain decoding", "tiers": "tiers of k", "adaptive": "adaptive verification"}
    return names.get(arm.policy, f"k = {arm.k}")


def _seconds(value: float) -> str:
    return format_quantity(value, "s", 3)


def load_assumptions(question: LoadQuestion, *, simulated: bool = False) -> Iterator[str]:
    """What the numbers assume, the most important first."""
    machine = question.machine
    prompts: PromptCosts = machine.steps(drafting=True).prompts
    leading, *others = machine.source.assumptions
    yield leading
    yield (
        "Poisson arrivals; running sequences share each step; the running batch has the stationary law of "
        f"that queue, at one mean context of {machine.context:,.0f} tokens; chunks of at most "
        f"{machine.chunk_tokens:,} prompt tokens ride with decoding"
    )
    yield from prompts.assumptions
    if machine.traffic.context and not machine.context:
        yield "a model known by its counts alone has no cache: context 0, and memory limits no batch"
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
        yield "simulated rows serve drawn requests step by step with the same step times"
    yield from others
    for one in machine.traffic.classes:
        yield f"{one.name}: {one.law.label}, {one.law.assumption}"


def _cap_text(question: LoadQuestion) -> Iterator[str]:
    plain, drafting = question.machine.max_batch
    told = f"{plain:,}" if plain == drafting else f"{plain:,} sequences, {drafting:,} beside a drafter,"
    yield f"an engine runs at most {told} at once, fewer where memory holds fewer at the mean context"


def load_warnings(
    question: LoadQuestion, rates: FloatArray, arms: Sequence[Sequence[Arm]]
) -> Iterator[Advice]:
    """Overload, edges, side costs that show, then what the source knows."""
    machine = question.machine
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
    k = max((arm.k or 0 for arm in flat), default=0)
    batches = [arm.equilibrium.batch for arm in flat if arm.equilibrium is not None]
    if batches:
        whole = np.unique(np.maximum(np.rint(batches), 1)).astype(np.int64)
        yield from _beyond_measured(getattr(machine.source, "measured_batches", None), whole)
        yield from machine.source.warnings
        yield from machine.source.warnings_at(k, whole, int(whole[-1]))


def _overload(rates: FloatArray, arms: Sequence[Sequence[Arm]]) -> Iterator[Advice]:
    for rate, found in zip(rates.tolist(), arms, strict=True):
        over = [arm for arm in found if arm.state == "overload"]
        if over:
            told = ", ".join(f"{_policy(arm)} {arm.highest_rate_per_s:.3g}/s" for arm in over)
            yield Advice(
                code="overload",
                text=f"OVERLOAD at {rate:g}/s: queues grow without end; highest rates: {told}",
                remedy="add replicas, or lower the rate",
            )
        elif any(arm.utilisation > SHARP_EDGE for arm in found):
            yield Advice(
                code="near-overload",
                text=f"{rate:g}/s is above {SHARP_EDGE:.0%} of the highest rate of a policy: an error of a "
                "few per cent in the step moves its latencies many times as much",
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
                text=f"{_policy(arm)}: {arm.equilibrium.queueing:.0%} of the requests wait until one of "
                f"{arm.service.limits.max_batch:,} running sequences ends",
                remedy="free memory for the cache, raise the engine's limit, or add replicas",
            )


def load_derivation(question: LoadQuestion, rate: float, arms: Sequence[Arm]) -> Iterator[str]:
    """How each policy's batch came about at a rate, and its side costs as named terms."""
    traffic: Mapping[str, float] = {one.name: one.output_tokens for one in question.machine.traffic.classes}
    per_replica = rate / question.replicas
    yield f"at {rate:g}/s, {per_replica:g}/s a replica, outputs of {traffic}:"
    for arm in arms:
        state, service = arm.equilibrium, arm.service
        if state is None or service is None:
            yield f"{_policy(arm)}: {arm.state}"
            continue
        first = arm.latencies[0]
        steps = state.batch / per_replica / first.itl_s
        side = ", ".join(f"{name} {value:.4g}" for name, value in arm.side.items())
        yield (
            f"{_policy(arm)}: B = rate · steps · T = {per_replica:g} · {steps:.4g} · {first.itl_s:.4g} s = "
            f"{state.batch:.4g}; TPOT {first.tpot_s:.4g} s; side costs: {side}"
        )
