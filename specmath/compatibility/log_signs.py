"""Lines by which a start-up log reports on speculation itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from specmath.compatibility.findings import Effect, Finding


@dataclass(frozen=True, slots=True)
class Sign:
    """A line by which a log reports something itself."""

    pattern: re.Pattern[str]
    effect: Effect
    code: str
    subject: str
    text: str
    remedy: str
    evidence: str = "this log"

    def finding(self, line: str) -> Finding:
        number = re.search(r"\bto ([0-9]{1,9})\b", line)
        told = f"{self.text} ({number[1]})" if number else self.text
        return Finding(
            effect=self.effect, code=self.code, subject=self.subject, text=told, evidence=self.evidence,
            remedy=self.remedy, versions="this server",
        )  # fmt: skip


SIGNS: Final = (
    Sign(
        re.compile(r"min_p and logit_bias parameters won't work"),
        "bites",
        "log-sampling-parameters",
        "min_p, logit_bias",
        "the log says that they do not work with speculation",
        "check a sample of requests with --requests",
    ),
    Sign(
        re.compile(r"[Aa]sync(?:hronous)? scheduling.{0,200}will be disabled"),
        "bites",
        "log-async-off",
        "async scheduling",
        "the log says that it is off",
        "count the host's time in every step, or use an EAGLE or MTP head",
    ),
    Sign(
        re.compile(r"Overriding cudagraph_mode"),
        "bites",
        "log-graphs-downgraded",
        "CUDA graphs",
        "the log says that full graphs were given up for piecewise ones",
        "compare with one k for all batches",
    ),
    Sign(
        re.compile(r"Disabling num_speculative_tokens_per_batch_size"),
        "breaks",
        "log-tiers-off",
        "tiers",
        "the log says that the tiers are switched off",
        "see its reason; run replicas, or one k",
    ),
    Sign(
        re.compile(r"[Ss]etting attention block size to [0-9]"),
        "bites",
        "log-block-size",
        "prefix cache",
        "the log says that the attention block was enlarged to the state page: the unit that a drafter drops",
        "lengthen shared prefixes beyond two units",
    ),
    Sign(
        re.compile(r"capped to [0-9]{1,9} by the mamba state cache"),
        "bites",
        "log-capped",
        "recurrent state",
        "the log says that running requests are capped by the state slots",
        "raise --max-mamba-cache-size",
    ),
    Sign(
        re.compile(r"speculative_adaptive disabled"),
        "breaks",
        "log-adaptive-off",
        "--speculative-adaptive",
        "the log says that it is off",
        "see its reason; fix the steps",
    ),
    Sign(
        re.compile(r"max_num_scheduled_tokens is set to [0-9]"),
        "bites",
        "log-token-budget",
        "--max-num-batched-tokens",
        "the log warns that draft tokens leave little room for prompts",
        "raise --max-num-batched-tokens",
    ),
    Sign(
        re.compile(r"reducing max_model_len to [0-9]"),
        "breaks",
        "log-context-cut",
        "context",
        "the log says that the longest sequence was cut to the draft's",
        "take a draft with a longer context",
    ),
    Sign(
        re.compile(r"Speculative tokenization mismatch|vocab.{0,80}(?:mismatch|not compatible|incompatible)"),
        "breaks",
        "log-vocabulary",
        "vocabulary",
        "the log says that the vocabularies do not agree",
        "use a draft with the target's tokenizer",
    ),
    Sign(
        re.compile(r"[Uu]sing the V1 model runner"),
        "bites",
        "log-v1-runner",
        "model runner",
        "the log says that the V1 runner is used",
        "see its reason; what needs the V2 runner does not run here",
    ),
    Sign(
        re.compile(r"multiple times of forward on same MTP layer"),
        "bites",
        "log-mtp-layer",
        "num_speculative_tokens",
        "the log says that one MTP layer runs several times",
        "take α from a server at this very k",
    ),
)
"""Every sign that is looked for; each is told once."""

_WARNING: Final = re.compile(
    r"(?<![A-Z])WARN(?:ING)?\b[ :]{0,3}(?:[^\[\]]{0,40}\[[^\]]{1,80}\] ?)?(.{1,600})"
)
_OF_SPECULATION: Final = re.compile(r"speculati|spec[ _-]?decod|\bdraft", re.IGNORECASE)
_SENTENCE: Final = re.compile(r".{20,}?[.;](?= |$)")
_QUOTED: Final = 160


def own_warning(line: str) -> Finding | None:
    """What a log's own warning about speculation says, its first sentence quoted; None for any other line.

    >>> own_warning("WARNING 11-29 17:54 [a.py:1] Drafts are slow on this device. See the guide.").text
    'the log warns: "Drafts are slow on this device."'
    """
    found = _WARNING.search(line[:2_000])
    if found is None or not _OF_SPECULATION.search(found[1]):
        return None
    said = "".join(char if char.isprintable() else " " for char in found[1]).strip()
    sentence = _SENTENCE.match(said)
    said = sentence[0] if sentence else said
    quoted = said if len(said) <= _QUOTED else f"{said[: _QUOTED - 3]}..."
    return Finding(
        effect="bites",
        code="log-warning",
        subject="the server's log",
        text=f'the log warns: "{quoted}"',
        evidence="this log",
        remedy="do what the line in the log asks for, and measure again",
        versions="this server",
    )
