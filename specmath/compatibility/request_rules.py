"""Requests that an engine refuses once it speculates, drafts nothing for, or answers otherwise than asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from specmath.compatibility.case import LOOKUPS, Case
from specmath.compatibility.findings import ALWAYS, Effect, Finding, Span, share, within


@dataclass(frozen=True, slots=True)
class Rule:
    """What an engine does to requests with a trait.

    Attributes:
        trait: The trait, by its name in a sample.
        effect: Whether it breaks or bites.
        does: What happens, after the count.
        evidence: Where that is known from.
        remedy: What to do.
        span: Releases.
        adaptive: Whether it holds under adaptive verification alone.
        methods: Methods that it holds for; empty for all.
    """

    trait: str
    effect: Effect
    does: str
    evidence: str
    remedy: str
    span: Span = ALWAYS
    adaptive: bool = False
    methods: tuple[str, ...] = ()


_WITHOUT: Final = "send them to a server without speculation, or leave the parameter out"
_REFUSED: Final = "answered with an error 400"
_SKIPPED: Final = "no n-gram draft is made for them: they run at plain speed"
_MODELS: Final = ("eagle", "eagle3", "p-eagle", "mtp", "draft-model", "pard", "dflash", "dspark", "medusa")
_V1_CHECK: Final = "vllm/v1/engine/input_processor.py (PR 31982)"
_CHECK: Final = "SamplingParams._validate_spec_decode; vllm #42744"
_LISTED: Final = "vllm/v1/spec_decode/utils.py"

_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "vllm": (
        Rule("min_p", "breaks", _REFUSED, f"{_V1_CHECK}; {_CHECK}", _WITHOUT, Span((0, 14))),
        Rule("logit_bias", "breaks", _REFUSED, f"{_V1_CHECK}; {_CHECK}", _WITHOUT, Span((0, 14))),
        Rule("min_tokens", "breaks", _REFUSED, _V1_CHECK, _WITHOUT, Span((0, 14), (0, 17))),
        Rule("min_p", "bites", _SKIPPED, _LISTED, "upgrade", Span((0, 8, 2), (0, 14)), methods=LOOKUPS),
        Rule(
            "penalties",
            "bites",
            _SKIPPED,
            _LISTED,
            "upgrade to 0.14",
            Span((0, 8, 2), (0, 14)),
            methods=LOOKUPS,
        ),
        Rule(
            "logprobs",
            "bites",
            _SKIPPED,
            _LISTED,
            "upgrade to 0.14",
            Span((0, 8, 2), (0, 14)),
            methods=LOOKUPS,
        ),
        Rule(
            "logit_bias",
            "breaks",
            "the bias is dropped with no more than a warning at start-up",
            "vllm/v1/sample/logits_processor: min_p and logit_bias won't work",
            _WITHOUT,
            Span((0, 11), (0, 14)),
        ),
        Rule(
            "logprobs",
            "breaks",
            "output log-probabilities are refused under adaptive verification",
            "vllm #47808",
            "leave enable_adaptive_verification out, or the parameter",
            Span((0, 28)),
            adaptive=True,
        ),
        Rule(
            "n > 1",
            "bites",
            "their per-request metrics of speculation are null",
            "PR 48915",
            "take the acceptance from /metrics",
            Span((0, 29)),
        ),
        Rule(
            "sampling",
            "bites",
            "drafts count as one-hot unless draft_sample_method is probabilistic: fewer are accepted than "
            "greedily",
            "vllm/config/speculative.py",
            "try draft_sample_method probabilistic, and take α at your own temperature",
            Span((0, 21)),
            methods=_MODELS,
        ),
    ),
    "sglang": (
        Rule(
            "min_p",
            "breaks",
            "not applied to every token with EAGLE",
            "sglang #10617 (open)",
            _WITHOUT,
            methods=("eagle", "eagle3", "mtp", "draft-model"),
        ),
        Rule(
            "logit_bias",
            "breaks",
            "not applied to every token with EAGLE",
            "sglang #10617 (open)",
            _WITHOUT,
            methods=("eagle", "eagle3", "mtp", "draft-model"),
        ),
    ),
    "tensorrt-llm": (
        Rule(
            "logprobs",
            "breaks",
            "log-probabilities are refused with speculation; before 2026-08-29 they could hang the server",
            "TensorRT-LLM PR 18401",
            _WITHOUT,
        ),
    ),
    "transformers": (
        Rule(
            "n > 1",
            "breaks",
            "assisted generation runs one sequence",
            "batch size 1",
            "ask for them one by one",
        ),
        Rule(
            "beam search", "breaks", "assisted generation excludes beams", "batch size 1", "use num_beams 1"
        ),
    ),
    "llama.cpp": (
        Rule(
            "sampling",
            "bites",
            "a draft token is accepted where the target's own sample is the draft's likeliest one: fewer "
            "than greedily",
            "common/speculative.cpp",
            "take α from this engine's timings at your own temperature",
            methods=("draft-model",),
        ),
    ),
}
_ANY_ENGINE: Final = (
    Rule(
        "structured output",
        "bites",
        "the grammar has to check drafts and roll them back: drafts outside it are cut, on the host in "
        "every step",
        "no figures found; vLLM counts them in num_invalid_spec_tokens",
        "measure them apart",
    ),
    Rule(
        "ignore_eos",
        "bites",
        "what follows the end is no text of the load: acceptance measured with it does not hold",
        "measurement trap",
        "take α without ignore_eos",
    ),
    Rule(
        "seed",
        "bites",
        "greedy or seeded output still differs token by token from plain decoding (10 of 10 prompts; GSM8K "
        "equal)",
        "order of reductions in wider passes",
        "compare quality on a benchmark, not texts",
    ),
)


def request_findings(case: Case) -> Iterator[Finding]:
    """What happens to the requests of the sample."""
    if case.requests is None:
        return
    for rule in (*_RULES.get(case.engine or "", ()), *_ANY_ENGINE):
        if _applies(rule, case) and (count := case.requests.count(rule.trait)):
            yield from within(rule.span, case.version, _found(rule, count, case.requests.total))
    yield from _adapters(case)


def _applies(rule: Rule, case: Case) -> bool:
    if rule.adaptive and not case.settings.adaptive:
        return False
    sampled = (case.settings.config or {}).get("draft_sample_method") == "probabilistic"
    if rule.trait == "sampling" and sampled:
        return False
    return not rule.methods or case.method is None or case.method in rule.methods


def _found(rule: Rule, count: int, total: int) -> Finding:
    return Finding(
        effect=rule.effect,
        code=f"requests-{rule.trait.replace(' > ', '-above-').replace(' ', '-').replace('_', '-').lower()}",
        subject=rule.trait,
        text=f"{share(count, total)}: {rule.does}",
        evidence=rule.evidence,
        remedy=rule.remedy,
    )


def _adapters(case: Case) -> Iterator[Finding]:
    """Adapter requests where adaptive verification refuses LoRA altogether."""
    assert case.requests is not None
    count = case.requests.count("LoRA")
    if not count:
        return
    yield Finding(
        effect="breaks" if case.engine == "vllm" and case.settings.adaptive else "bites",
        code="requests-lora",
        subject="LoRA",
        text=f"{share(count, case.requests.total)} name an adapter: the drafter was trained on the base model"
        + (", and adaptive verification refuses LoRA" if case.settings.adaptive else ""),
        evidence="vllm/config/vllm.py" if case.engine == "vllm" else "no figures found",
        remedy="measure the acceptance of each adapter, or serve them without speculation",
    )
