"""Rules for a speculative step that costs more than it should: which part of it, and why."""

from __future__ import annotations

import math
from collections.abc import Iterator

from specmath.diagnosis.causes import Cause, cause
from specmath.diagnosis.steps import NOISE, Parts, Step, Symptoms
from specmath.units import format_quantity

SHORT_STEP_S = 0.006
"""Plain steps below this leave no room for launches and host work."""
LARGE_DRAFT_COST = 0.25
MANY_ROWS = 128
"""Rows of a pass from which tensor cores of any part are near their ridge; used where no ridge is known."""
LLAMA_CPP_ROWS = 8
_PARTS = {"fixed": "fixed", "per_token": "per draft token", "per_sequence": "per sequence"}


def dear_step_causes(symptoms: Symptoms) -> Iterator[Cause]:
    """The causes of a dear step that the evidence allows."""
    for rule in (*_STRUCTURAL, *(_IN_EXCESS if symptoms.is_dear else ())):
        yield from rule(symptoms)


def split_text(parts: Parts | None) -> str:
    """How the excess divides, in words; empty where that is not known."""
    if parts is None:
        return ""
    return ", ".join(f"{getattr(parts, name):.0%} is {_PARTS[name]}" for name in parts.asked)


def _weight(symptoms: Symptoms) -> float:
    """How much a cause of excess weighs: little inside the range, fully beyond it."""
    return 0.4 + 0.6 * symptoms.dearness


def _split(symptoms: Symptoms, part: str, gain: float) -> float:
    """What the division of the excess adds to a cause of this part; nothing where it is not known."""
    parts = symptoms.parts
    if parts is None or part not in parts.asked:
        return 0.0
    share = float(getattr(parts, part))
    return gain * share if share >= 0.4 else -2 * gain * (0.4 - share)


def _told(step: Step) -> str:
    """The step in words."""
    place = f"k {step.pair.k}, batch {step.pair.batch}"
    return f"R = {step.steps:.2f} at {place}, {step.expected.steps:.2f} expected"


def _and_split(symptoms: Symptoms, step: Step, part: str) -> str:
    """The step, and how much of the excess is of this kind."""
    parts = symptoms.parts
    if parts is None or part not in parts.asked:
        return _told(step)
    return f"{_told(step)}; {getattr(parts, part):.0%} of the excess is {_PARTS[part]}"


def _beyond_rows(step: Step) -> bool:
    """Whether decoding the tokens of the step one by one would have been cheaper: no matter of rows, then."""
    draft = 0.0 if math.isnan(step.expected.draft_cost) else step.expected.draft_cost
    return step.steps > NOISE * (
        (step.pair.width or step.pair.k + 1) + draft * (step.pair.passes or step.pair.k)
    )


def _graphs(symptoms: Symptoms) -> Iterator[Cause]:
    step, setup = symptoms.worst, symptoms.setup
    if not setup.captures_graphs:
        return
    fit = 0.3 + _split(symptoms, "fixed", 0.3)
    if step.steps >= 2 and step.pair.k <= 3:
        fit += 0.3 if _beyond_rows(step) else 0.1
    fit += 0.2 if step.pair.plain_step_s < SHORT_STEP_S else 0.0
    fit -= 0.2 if step.plain_ratio > 1.6 else 0.0
    plain = step.pair.plain_step_s
    beside = "" if math.isnan(plain) else f" beside a plain step of {format_quantity(plain, 's', 3)}"
    yield cause("graphs-lost", fit * _weight(symptoms), f"{_and_split(symptoms, step, 'fixed')}{beside}")


def _captured(symptoms: Symptoms) -> Iterator[Cause]:
    sizes, step = symptoms.setup.graph_sizes, max(symptoms.steps, key=lambda one: one.rows)
    if not symptoms.setup.captures_graphs:
        return
    if sizes and step.rows > max(sizes) and step.ratio > NOISE:
        text = f"{step.rows} tokens in a verification, captured up to {max(sizes)}: no graph; {_told(step)}"
        yield cause("beyond-captured-graphs", 0.9, text)
    elif symptoms.jump is not None and symptoms.jump[2] > 1.6:
        less, more, rise = symptoms.jump
        text = (
            f"R jumps {rise:.1f} times as far as expected from batch {less.pair.batch} to {more.pair.batch} "
            f"({less.rows} to {more.rows} tokens)"
        )
        yield cause("beyond-captured-graphs", 0.75, text)


def _uncaptured_draft(symptoms: Symptoms) -> Iterator[Cause]:
    step, setup = symptoms.worst, symptoms.setup
    if not setup.drafts_one_by_one:
        return
    modelled, most = step.expected.draft_cost, step.dearest_draft_cost
    fit = 0.28 + _split(symptoms, "per_token", 0.35)
    fit += 0.1 if setup.method == "draft-model" and setup.engine.startswith(("vllm", "transformers")) else 0.0
    fit -= 0.1 if step.pair.k == 1 else 0.0
    told = "" if math.isnan(modelled) else f", {modelled:.2f} by the model"
    text = (
        f"a draft token costs up to {most:.2f} plain steps{told}; {_and_split(symptoms, step, 'per_token')}"
    )
    yield cause("draft-not-captured", fit * _weight(symptoms), text)


def _draft_tp(symptoms: Symptoms) -> Iterator[Cause]:
    setup, step = symptoms.setup, symptoms.worst
    if setup.tp == 1 or setup.method != "draft-model" or setup.draft_tp not in (None, setup.tp):
        return
    fit = 0.62 + _split(symptoms, "per_token", 0.2)
    spread = (
        f"the draft runs on {setup.tp} devices too" if setup.draft_tp else "the draft may run on all devices"
    )
    text = f"{spread}: a small pass waits for {setup.tp} of them; {_and_split(symptoms, step, 'per_token')}"
    yield cause("draft-at-target-tp", fit * _weight(symptoms), text)


def _host(symptoms: Symptoms) -> Iterator[Cause]:
    step = symptoms.worst
    fixed_s = (step.steps - step.expected.steps) * step.pair.plain_step_s
    fit = 0.27 + _split(symptoms, "fixed", 0.25)
    fit += 0.15 if step.pair.plain_step_s < 2 * SHORT_STEP_S else 0.0
    told = "" if math.isnan(fixed_s) else f"{format_quantity(fixed_s, 's', 3)} a step more than expected; "
    text = f"{told}{_and_split(symptoms, step, 'fixed')}"
    yield cause("host-per-step", fit * _weight(symptoms), text)


def _host_per_request(symptoms: Symptoms) -> Iterator[Cause]:
    step, batch = symptoms.worst, max(one.pair.batch for one in symptoms.steps)
    grows = symptoms.growth > NOISE
    if batch <= 4 or (not grows and len({one.pair.batch for one in symptoms.steps}) > 1):
        return
    fit = (0.35 if grows else 0.15) + _split(symptoms, "per_sequence", 0.35)
    text = (
        f"R over its expectation grows {symptoms.growth:.2f} times with the batch" if grows else _told(step)
    )
    yield cause("host-per-request", fit * _weight(symptoms), f"{text}, up to batch {batch}")


def _prefill(symptoms: Symptoms) -> Iterator[Cause]:
    """Prompts of other requests in the same pass; one stream has none, and its own come in both arms."""
    share, step = symptoms.observed.prefill_share, symptoms.worst
    if step.pair.batch == 1:
        return
    if share is not None and share > 0.3:
        text = f"{share:.0%} of the tokens of all passes were prompt tokens; {_told(step)}"
        yield cause("prefill-bursts", 0.65, text)
    elif share is None:
        yield cause("prefill-bursts", 0.15 * _weight(symptoms), _told(step))


def _another_run(symptoms: Symptoms) -> Iterator[Cause]:
    step = symptoms.worst
    fits = step.pair.times_faster * step.expected.steps
    if symptoms.observed.step_s is None and fits >= 1 / NOISE:
        length = f"E = {step.pair.acceptance_length:.2f}"
        text = f"a step as dear as expected would fit E = {fits:.2f} instead of {length}"
        yield cause("acceptance-from-another-run", 0.25 * _weight(symptoms), text)


def _experts(symptoms: Symptoms) -> Iterator[Cause]:
    step = symptoms.worst
    if not symptoms.setup.experts:
        return
    fit = 0.62 + _split(symptoms, "per_token", 0.15) + (0.1 if step.rows <= 64 else -0.1)
    fit *= max(symptoms.burden, _weight(symptoms) if symptoms.is_dear else 0.0)
    modelled = step.expected.verify_cost
    told = "" if math.isnan(modelled) else f" (v = {modelled:.2f} by the model)"
    fit *= 0.6 if _beyond_rows(step) else 1.0
    text = f"{step.rows} tokens read the experts of each{told}; {_and_split(symptoms, step, 'per_token')}"
    yield cause("experts-read", fit, text)


def _cache(symptoms: Symptoms) -> Iterator[Cause]:
    step, growth = symptoms.worst, symptoms.context_growth
    several = len({one.pair.context for one in symptoms.steps}) > 1
    if growth > 1.15:
        text = f"R over its expectation grows {growth:.2f} times with the context"
        yield cause("cache-read-again", (0.6 + min(0.25, growth - 1.15)) * _weight(symptoms), text)
    elif not several and step.pair.context >= 4096 and symptoms.is_dear:
        fit = 0.35 + (0.1 if symptoms.setup.latent or symptoms.setup.is_apple else 0.0)
        fit += 0.15 if step.pair.k > 1 and step.dearest_draft_cost > 1 else 0.0
        yield cause(
            "cache-read-again", fit * _weight(symptoms), f"{_told(step)} and context {step.pair.context:,.0f}"
        )


def _rows(symptoms: Symptoms) -> Iterator[Cause]:
    setup, step = symptoms.setup, symptoms.worst
    if setup.is_apple and setup.quantised and symptoms.burden > 0:
        fit = 0.62 * max(symptoms.burden, _weight(symptoms) if symptoms.is_dear else 0.0)
        fit *= 0.6 if _beyond_rows(step) else 1.0
        yield cause("quantised-rows", fit, f"{step.rows} rows of quantised weights on Metal; {_told(step)}")
    elif setup.engine.startswith("llama.cpp") and step.rows > LLAMA_CPP_ROWS and symptoms.burden > 0:
        few = [one.ratio for one in symptoms.steps if one.rows <= LLAMA_CPP_ROWS]
        rise = step.ratio / min(few) if few else math.nan
        fit = 0.35 if math.isnan(rise) else (0.75 if rise > 1.3 else 0.05)
        told = "" if math.isnan(rise) else f", {rise:.2f} times as dear as up to 8"
        yield cause("row-switch", fit, f"{step.rows} rows in a verification{told}; {_told(step)}")


def _saturated(symptoms: Symptoms) -> Iterator[Cause]:
    step = max(symptoms.steps, key=lambda one: (one.rows, one.ratio))
    ridge = math.nan if symptoms.source is None else symptoms.source.ridge_tokens
    least = MANY_ROWS if math.isnan(ridge) else 0.5 * ridge
    if step.rows < least or step.steps < 1.2:
        return
    fit = min(0.45 + 0.1 * math.log2(step.rows / least), 0.75)
    fit += _split(symptoms, "per_sequence", 0.1)
    told = "" if math.isnan(ridge) else f", the ridge is at {ridge:,.0f}"
    yield cause("compute-bound", fit, f"{step.rows:,} tokens in a verification{told}; R = {step.steps:.2f}")


def _large_draft(symptoms: Symptoms) -> Iterator[Cause]:
    step, setup = symptoms.worst, symptoms.setup
    modelled, most = step.expected.draft_cost, step.dearest_draft_cost
    if not setup.drafts_one_by_one or (setup.method and setup.method != "draft-model"):
        return
    measured = (step.steps - 1) / (step.pair.passes or step.pair.k)
    if modelled >= LARGE_DRAFT_COST and measured * NOISE >= modelled:
        yield cause(
            "draft-too-large", 0.75, f"a draft pass costs {modelled:.2f} plain steps by the model alone"
        )
    elif modelled >= LARGE_DRAFT_COST and measured >= LARGE_DRAFT_COST:
        text = f"(R − 1)/k = {measured:.2f} as measured, and {modelled:.2f} for a draft pass by the model"
        yield cause("draft-too-large", 0.3, text)
    elif most >= LARGE_DRAFT_COST and math.isnan(modelled) and setup.method:
        text = f"a draft token costs up to {most:.2f} plain steps; {_told(step)}"
        yield cause("draft-too-large", 0.45 + _split(symptoms, "per_token", 0.2), text)


_IN_EXCESS = (_graphs, _uncaptured_draft, _draft_tp, _host, _host_per_request, _prefill, _another_run)
_STRUCTURAL = (_captured, _experts, _cache, _rows, _saturated, _large_draft)
"""Causes that stand even where the model expects them."""
