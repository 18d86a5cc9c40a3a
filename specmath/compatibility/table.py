"""What will break or bite: every rule that applies, as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Final

from specmath.compatibility.case import Case
from specmath.compatibility.findings import Finding
from specmath.compatibility.flag_names import flag_name_findings
from specmath.compatibility.pair import pair_findings
from specmath.compatibility.request_rules import request_findings
from specmath.compatibility.scope import scope_of
from specmath.compatibility.sglang import sglang_findings
from specmath.compatibility.small_engines import llama_cpp_findings, other_findings, tensorrt_findings
from specmath.compatibility.vllm_config import key_findings
from specmath.compatibility.vllm_flags import flag_findings
from specmath.compatibility.vllm_graphs import budget_findings, capture_findings, memory_findings
from specmath.compatibility.vllm_relations import relation_findings
from specmath.compatibility.vllm_serving import (
    adaptive_findings,
    lora_findings,
    parallel_findings,
    prefix_findings,
    scheduling_findings,
)
from specmath.results import CHUNK_ROWS, Advice, Cell, Columns, Result

Rules = tuple[Callable[[Case], Iterator[Finding]], ...]

_VLLM: Final[Rules] = (
    flag_findings,
    key_findings,
    relation_findings,
    parallel_findings,
    adaptive_findings,
    lora_findings,
    scheduling_findings,
    capture_findings,
    budget_findings,
    prefix_findings,
    memory_findings,
)
_RULES: Final[dict[str | None, Rules]] = {
    "vllm": _VLLM,
    "sglang": (sglang_findings,),
    "tensorrt-llm": (tensorrt_findings,),
    "llama.cpp": (llama_cpp_findings,),
    None: (),
}
_LOGGED_AS: Final = {"async-off": "log-async-off", "token-budget-small": "log-token-budget"}
"""Findings of a rule, and the signs by which a log reports the same."""


def check_case(case: Case, notes: Sequence[Advice] = ()) -> CheckTable:
    """Everything that breaks or bites in a case, the breaking ones first.

    Args:
        case: What is known of the server, the models and the requests.
        notes: Warnings of whoever read them.

    >>> from specmath.compatibility.case import Settings
    >>> from specmath.engines.configs.versions import numbered_version
    >>> settings = Settings(tp=4, draft_tp=2)
    >>> table = check_case(Case(engine="vllm", version=numbered_version("0.33"), settings=settings))
    >>> table.verdict
    'BREAKS: 1 finding; BITES: 0'
    """
    rules = _RULES.get(case.engine, (other_findings,))
    found = chain(
        flag_name_findings(case),
        *(rule(case) for rule in rules),
        pair_findings(case),
        request_findings(case),
        iter(case.seen),
    )
    unique = [one for one in dict.fromkeys(found) if not _logged_too(one, case)]
    return CheckTable(
        case=case, findings=tuple(sorted(unique, key=lambda one: one.effect == "bites")), notes=tuple(notes)
    )


def _logged_too(finding: Finding, case: Case) -> bool:
    """Whether the log reports what a rule only expects."""
    logged = {(one.effect, one.code) for one in case.seen}
    return (finding.effect, _LOGGED_AS.get(finding.code, "")) in logged


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTable(Result):
    """What breaks and what bites, a finding a row.

    Attributes:
        case: What was looked at.
        findings: The findings, the breaking ones first.
        notes: Warnings of whoever read the inputs.
    """

    schema: ClassVar[str] = "specmath.check/1"
    keys: ClassVar[tuple[str, ...]] = (
        "effect",
        "code",
        "subject",
        "finding",
        "evidence",
        "remedy",
        "versions",
    )
    data_keys: ClassVar[tuple[str, ...]] = ("code",)

    case: Case
    findings: tuple[Finding, ...]
    notes: tuple[Advice, ...] = ()

    def __len__(self) -> int:
        return len(self.findings)

    def count(self, effect: str) -> int:
        """Findings of an effect."""
        return sum(one.effect == effect for one in self.findings)

    @property
    def inputs(self) -> Mapping[str, Cell]:
        case, settings = self.case, self.case.settings
        return {
            "engine": case.engine,
            "engine_version": None if case.version is None else case.version.text,
            "target": settings.target_name if case.target is None else case.target.name,
            "draft": settings.draft_name if case.draft is None else case.draft.name,
            "method": case.method,
            "k": settings.k,
            "max_num_seqs": settings.max_num_seqs,
            "context": case.context,
            "requests": None if case.requests is None else case.requests.total,
        }

    @property
    def assumptions(self) -> tuple[str, ...]:
        return scope_of(self.case).told

    @property
    def warnings(self) -> tuple[Advice, ...]:
        return (*scope_of(self.case).warnings, *self.notes)

    @property
    def verdict(self) -> str:
        breaks, bites = self.count("breaks"), self.count("bites")
        if not self.findings:
            scope = scope_of(self.case)
            return f"NOTHING FOUND in what was checked: {scope.checked}; not checked: {scope.unchecked}"
        return f"BREAKS: {breaks} finding{'' if breaks == 1 else 's'}; BITES: {bites}"

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[Columns]:
        for start in range(0, len(self.findings), size):
            part = self.findings[start : start + size]
            yield {
                "effect": [one.effect for one in part],
                "code": [one.code for one in part],
                "subject": [one.subject for one in part],
                "finding": [one.text for one in part],
                "evidence": [one.evidence for one in part],
                "remedy": [one.remedy for one in part],
                "versions": [one.versions for one in part],
            }
