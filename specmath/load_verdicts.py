"""The answer of a load in a sentence: the best of the rows shown, by name, at each rate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from specmath.checks import FloatArray
from specmath.load_arms import Arm, LoadQuestion
from specmath.load_levels import level_shares, meets, missed_levels
from specmath.load_reach import reach_of
from specmath.units import format_quantity, format_significant
from specmath.verdicts import judgement

TOLD_RATES = 4
"""Rates up to which the verdict speaks of each."""
WORTH = 0.01
"""What a policy must save of the time per token to be named instead of a plainer one."""


def load_verdict(question: LoadQuestion, rates: FloatArray, arms: Sequence[Sequence[Arm]]) -> str:
    """The answer at each rate, then, once, how far each policy goes."""
    answers = list(zip(rates.tolist(), arms, strict=True))
    if len(answers) == 1:
        told = _whole_text(question, *answers[0])
    elif len(answers) <= TOLD_RATES:
        told = "; ".join(_short_text(question, rate, found) for rate, found in answers)
    else:
        told = _spans_text([_word(question, found) for found in arms], rates)
    limits = [text for text in _limits(question, arms) if text]
    return f"{'; '.join([told, *limits])}, {question.machine.source.basis}"


def best_arm(question: LoadQuestion, arms: Sequence[Arm]) -> Arm | None:
    """The plainest arm near the least time per token; of those that meet the level, where any does."""
    steady = [arm for arm in arms if arm.latencies]
    meeting = [arm for arm in steady if meets(question.level, arm.latencies)] or steady
    least = min((arm.tpot_s for arm in meeting), default=math.nan)
    return next((arm for arm in meeting if arm.tpot_s <= (1 + WORTH) * least), None)


def policy_name(arm: Arm) -> str:
    """A policy as a sentence names it."""
    names = {"off": "plain decoding", "tiers": "tiers of k", "adaptive": "adaptive verification"}
    return names.get(arm.policy, "speculation" if arm.k is None else f"k = {arm.k}")


def rate_text(rate_per_s: float) -> str:
    """A rate as a sentence tells it."""
    return f"{format_significant(rate_per_s)}/s"


def _rival(arms: Sequence[Arm]) -> Arm | None:
    """The best arm that drafts; where all are overloaded, the one that goes furthest."""
    return min(
        (arm for arm in arms[1:] if arm.service is not None and (_drafts(arm) or not arm.latencies)),
        key=lambda arm: (arm.tpot_s, -arm.highest_rate_per_s),
        default=None,
    )


def _drafts(arm: Arm) -> bool:
    """Whether a policy drafts at the batch that runs."""
    if arm.service is None or arm.equilibrium is None:
        return False
    place = min(max(round(arm.equilibrium_batch), 1), arm.service.limits.max_batch) - 1
    return bool((arm.service.lengths[:, place] > 1).any())


def _word(question: LoadQuestion, arms: Sequence[Arm]) -> str:
    """The one word of an answer."""
    off, best, rival = arms[0], best_arm(question, arms), _rival(arms)
    if best is None:
        return "OVERLOAD"
    if not meets(question.level, best.latencies):
        return "SLO MISSED"
    if best is off:
        if rival is None or not rival.latencies:
            return "SLOWER"
        word = judgement(rival.speedup, rival.speedup_low, rival.speedup_high)
        return "SLO MISSED" if word == "FASTER" and not meets(question.level, rival.latencies) else word
    if not off.latencies:
        return "FASTER"
    return judgement(best.speedup, best.speedup_low, best.speedup_high)


def _whole_text(question: LoadQuestion, rate: float, arms: Sequence[Arm]) -> str:
    """The answer at the only rate, with its figures."""
    off, best = arms[0], best_arm(question, arms)
    head = f"{_word(question, arms)} at {rate_text(rate)}"
    if best is None:
        furthest = max((arm for arm in arms if arm.service), key=lambda arm: arm.highest_rate_per_s)
        return f"{head}: no policy serves it; {policy_name(furthest)} {_verb(furthest, 'reach')} furthest"
    if best is off:
        return f"{head}: {_off_text(question, arms)}"
    told = f"{head}: {policy_name(best)} {_verb(best, 'serve' if not off.latencies else 'take')} "
    if not off.latencies:
        told += f"it at {_seconds(best.tpot_s)} a token{_batch(best)}, and plain decoding is overloaded"
    else:
        told += (
            f"{_seconds(best.tpot_s)} a token instead of {_seconds(off.tpot_s)}, "
            f"{best.speedup:.2f}×{_span(best)}{_batch(best)} instead of {off.equilibrium_batch:.3g}"
        )
    return told + _state(best) + _level_text(question, arms)


def _short_text(question: LoadQuestion, rate: float, arms: Sequence[Arm]) -> str:
    """The answer at one of several rates."""
    off, best = arms[0], best_arm(question, arms)
    head = f"{_word(question, arms)} at {rate_text(rate)}"
    if best is None:
        return head
    if best is off:
        return f"{head}: do not speculate{_level_text(question, arms)}"
    if not off.latencies:
        gain = f"{_seconds(best.tpot_s)} a token, plain decoding overloaded"
    else:
        gain = f"{best.speedup:.2f}×{_span(best)}"
    return f"{head}: {policy_name(best)}, {gain}{_state(best)}{_level_text(question, arms)}"


def _off_text(question: LoadQuestion, arms: Sequence[Arm]) -> str:
    """Why plain decoding is the answer."""
    off, rival = arms[0], _rival(arms)
    if rival is None:
        return "do not speculate; beside the drafter nothing fits: it does not fit"
    told = ["do not speculate"]
    if rival.latencies:
        times = f"{_seconds(rival.tpot_s)} a token against {_seconds(off.tpot_s)}"
        batches = f"{_batch(rival)} instead of {off.equilibrium_batch:.3g}"
        told.append(f"{policy_name(rival)}, the best that drafts, {_verb(rival, 'take')} {times}{batches}")
    if over := [arm for arm in arms[1:] if arm.state == "overload"]:
        told.append(_overloaded(over))
    if idle := [policy_name(arm) for arm in arms[1:] if arm.latencies and not _drafts(arm)]:
        told.append(f"no draft is made there by {' or '.join(idle)}")
    return "; ".join(told) + _state(off) + _level_text(question, arms)


def _verb(arm: Arm, verb: str) -> str:
    """A verb beside the name of a policy."""
    return verb if arm.policy == "tiers" else f"{verb}{'es' if verb.endswith(('ss', 'ch')) else 's'}"


def _overloaded(arms: Sequence[Arm]) -> str:
    """That policies are overloaded."""
    are = len(arms) > 1 or arms[0].policy == "tiers"
    return f"{' and '.join(map(policy_name, arms))} {'are' if are else 'is'} overloaded"


def _span(arm: Arm) -> str:
    return "" if math.isnan(arm.speedup_low) else f" ({arm.speedup_low:.2f}× to {arm.speedup_high:.2f}×)"


def _batch(arm: Arm) -> str:
    return f", at batch {arm.equilibrium_batch:.3g}"


def _state(arm: Arm) -> str:
    return "" if arm.state == "steady" else f", {arm.state}: a burst may end in overload"


def _seconds(value: float) -> str:
    return format_quantity(value, "s", 3)


def _level_text(question: LoadQuestion, arms: Sequence[Arm]) -> str:
    """Who meets the level, and what the others miss."""
    if not question.has_level:
        return ""
    told, groups = [], _alike(arms)
    met = [name for name, arm in groups if arm.latencies and meets(question.level, arm.latencies)]
    if met:
        told.append(f"the SLO is met by {' and '.join(met)}")
    for name, arm in groups:
        if arm.latencies and (missed := missed_levels(question.level, arm.latencies)):
            share = level_shares(question.level, arm.latencies)[missed[0]]
            far = "" if math.isinf(share) else f" ({share:.2f} times its limit)"
            told.append(f"{name} {_verb(arm, 'miss')} {' and '.join(missed)}{far}")
    return f"; {', '.join(told)}" if told else ""


def _alike(arms: Sequence[Arm]) -> list[tuple[str, Arm]]:
    """The arms with their names, without those that may draft and take as long as one before."""
    kept: list[tuple[str, Arm]] = []
    for arm in arms:
        alike = (
            other.policy != "off" and math.isclose(arm.tpot_s, other.tpot_s, rel_tol=WORTH)
            for _, other in kept
        )
        if arm.service is not None and not any(alike):
            kept.append((policy_name(arm), arm))
    return kept


def _limits(question: LoadQuestion, arms: Sequence[Sequence[Arm]]) -> Iterator[str]:
    """How far each policy goes, once for all rates."""
    best = [best_arm(question, found) for found in arms]
    named = next((arm for arm in reversed(best) if arm is not None and arm.policy != "off"), None)
    drafting = named or _rival(arms[-1])
    shown = [*([] if drafting is None else [drafting]), *arms[-1]]
    yield "highest rate " + ", ".join(
        f"{_rate3(arm.highest_rate_per_s)} with {name}"
        for name, arm in _apart(shown, "highest_rate_per_s").items()
    )
    if question.has_level:
        yield "SLO met " + ", ".join(
            f"up to {_rate3(arm.goodput_rate_per_s)} with {name} (then {arm.goodput_bound})"
            if arm.goodput_rate_per_s
            else f"at no rate with {name} ({arm.goodput_bound})"
            for name, arm in _apart(shown, "goodput_rate_per_s").items()
        )
    if drafting is not None:
        yield _reach_text(question, drafting)


def _apart(arms: Sequence[Arm], key: str) -> dict[str, Arm]:
    """Arms by name, without those that may draft and whose value is that of one before."""
    kept: dict[str, Arm] = {}
    for arm in arms:
        alike = (
            "off" not in (arm.policy, other.policy)
            and math.isclose(getattr(arm, key), getattr(other, key), rel_tol=WORTH)
            for other in kept.values()
        )
        if arm.service is not None and not any(alike):
            kept.setdefault(policy_name(arm), arm)
    return kept


def _rate3(rate_per_s: float) -> str:
    return rate_text(float(f"{rate_per_s:.3g}"))


def _reach_text(question: LoadQuestion, arm: Arm) -> str:
    """Up to which rate an arm pays, and from which its range says otherwise."""
    reach = reach_of(question, arm)
    if reach is None:
        return ""
    name = policy_name(arm)
    if not reach.gain_per_s:
        return f"does not pay at the lowest rates with {name}"
    told = "pays up to "
    told += "its highest rate" if math.isinf(reach.gain_per_s) else _rate3(reach.gain_per_s)
    told += f" with {name}"
    if math.isnan(reach.range_per_s) or reach.range_per_s == reach.gain_per_s:
        return told
    low = f"up to {_rate3(reach.range_per_s)}" if reach.range_per_s else "at none"
    return f"{told} (at the low end of its range {low})"


def _spans_text(words: Sequence[str], rates: FloatArray) -> str:
    """Where each word holds, along the rates."""
    edges = [0, *(place for place in range(1, len(words)) if words[place] != words[place - 1]), len(words)]
    spans = []
    for first, end in pairwise(edges):
        last = "" if end - first == 1 else f"–{format_significant(rates[end - 1])}"
        spans.append(f"{words[first]} at {format_significant(rates[first])}{last}/s")
    return ", ".join(spans)
