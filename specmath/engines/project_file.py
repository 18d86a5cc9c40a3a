"""A `specmath.toml` from what a running server tells, with comments on what it cannot see.

Only what the commands take is written as a value: each is tried first, and becomes a comment where it fails.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import PurePosixPath
from typing import Final

from specmath.acceptance import ConstantAcceptance
from specmath.drafters.methods import METHODS, drafter_of
from specmath.engines.estimates import estimate_acceptance
from specmath.engines.findings import FULL_SHARE
from specmath.engines.names import parse_engine
from specmath.engines.rules import LOOKUP
from specmath.engines.server_facts import ServerFacts, facts_of
from specmath.engines.servers import Server
from specmath.engines.source_law import SourceLaw, source_law
from specmath.engines.telemetry import Telemetry
from specmath.errors import DataError, SpecmathError
from specmath.exporters.text import printable
from specmath.model import ModelShape
from specmath.model_catalogue import catalogue_name, load_model
from specmath.number_formats import cache_bytes

_WEIGHTS: Final = {
    **{name: name for name in ("fp8", "int8", "int4", "nf4", "nvfp4", "mxfp4")},
    "awq": "int4",
    "awq_marlin": "int4",
    "bitsandbytes": "nf4",
    "modelopt_fp4": "nvfp4",
    "fbgemm_fp8": "fp8",
    "w8a8_fp8": "fp8",
    "w8a8_int8": "int8",
}
"""Weight formats by the engines' names for what makes them."""
_SUFFIXES: Final = {
    "-FP8": "fp8", "-FP8-dynamic": "fp8", "-AWQ": "int4", "-AWQ-INT4": "int4", "-GPTQ-Int4": "int4",
    "-GPTQ-Int8": "int8", "-NVFP4": "nvfp4", "-bnb-4bit": "nf4", "-quantized.w4a16": "int4",
}  # fmt: skip
_GGUF: Final = re.compile(r"([\w.-]{1,100}?)[-.](?:I?Q(\d)\w{0,8}|BF16|F16|F32)\.gguf", re.I)
_WIDTH: Final = 30
_ON_CPUS_TOO: Final = ("vllm", "sglang", "llama.cpp")
"""Engines with builds for CPUs, while their profiles are of GPUs; no server tells which one it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the file: an option and its value, or a suggestion to be filled in.

    Attributes:
        key: The option without its dashes.
        value: Its value; for a suggestion an example.
        comment: Where it comes from, or how to fill it in.
        known: Whether it is set; else the line is a comment.
        guessed: Whether it stands in for what the server does not tell.
    """

    key: str
    value: str | int
    comment: str
    known: bool = True
    guessed: bool = False

    def line(self) -> str:
        """As TOML, harmless whatever a server put into it."""
        shown = printable(self.value) if isinstance(self.value, str) else self.value
        written = f"{self.key} = {json.dumps(shown, ensure_ascii=False)}"
        return f"{'' if self.known else '# '}{written:<{_WIDTH}}  # {printable(self.comment)[:200]}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFile:
    """The entries of a `specmath.toml` and where they come from."""

    source: str
    entries: tuple[Entry, ...]

    @property
    def known(self) -> tuple[str, ...]:
        """Options that are set."""
        return tuple(entry.key for entry in self.entries if entry.known and not entry.guessed)

    @property
    def missing(self) -> tuple[str, ...]:
        """Options that the server does not tell, those with a stand-in among them."""
        return tuple(dict.fromkeys(one.key for one in self.entries if one.guessed or not one.known))

    @property
    def text(self) -> str:
        """The file."""
        told = [entry.line() for entry in self.entries if entry.known]
        open_ones = [entry.line() for entry in self.entries if not entry.known]
        return "\n".join(
            (
                f"# Defaults of specmath, by `specmath init` from what {printable(self.source)} tells.",
                "# What is typed on a command line wins.",
                "",
                *told,
                "",
                "# Not seen from outside. Fill in what you know, and take the first # away.",
                *open_ones,
                "",
            )
        )


def project_file(server: Server, record: Telemetry | None = None) -> ProjectFile:
    """Defaults for the questions about a server.

    Args:
        server: Its answers, from `ask_server`.
        record: Its telemetry of the model meant; None where it tells nothing of speculation.
    """
    facts = facts_of(server, record.model if record else None)
    target, format_name = _known_model(facts.model)
    law = _law(record)
    entries = [
        *_engine(server, record),
        *_target(facts, target, format_name),
        *_draft(facts, record, law, target),
    ]
    has_caches = target is not None and not any(entry.guessed for entry in entries)
    load = _load(facts, record, has_caches=has_caches)
    entries += [*_acceptance(record, law), *load, *_unseen(facts)]
    return ProjectFile(source=server.shown, entries=tuple(entries))


def _engine(server: Server, record: Telemetry | None) -> Iterator[Entry]:
    name = (record.engine if record else None) or server.engine
    if name is None:
        yield Entry(key="engine", value="vllm@0.32", comment="the software and its version", known=False)
        return
    version = (server.version or "").partition("-")[0]
    for typed in (f"{name}@{version}", name) if version else (name,):
        with suppress(SpecmathError):
            if parse_engine(typed).profile is not None:
                cpu = "; known on GPUs: for a CPU build write cpu, or typical" if name in _ON_CPUS_TOO else ""
                said = f"as it says: {name} {server.version or ''}".strip()
                yield Entry(key="engine", value=typed, comment=said + cpu)
                return
    yield Entry(key="engine", value="typical", comment=f"no profile is known for {name}")


def _known_model(name: str | None) -> tuple[ModelShape | None, str]:
    """A packaged model behind a name or a path, and the format of its weights that the name tells."""
    if name is None:
        return None, ""
    last = PurePosixPath(name).name
    if file := _GGUF.fullmatch(last):
        return _packaged(file[1]), {"4": "int4", "8": "int8"}.get(file[2] or "", "")
    for plain in dict.fromkeys((name, last)):
        for suffix, weights in {"": "", **_SUFFIXES}.items():
            if plain.lower().endswith(suffix.lower()):
                shape = _packaged(plain[: len(plain) - len(suffix)])
                if shape is not None:
                    return shape, weights
    return None, ""


def _packaged(name: str) -> ModelShape | None:
    """The packaged model of that name; files that a server happens to name are not opened."""
    known = catalogue_name(name)
    return None if known is None else load_model(known)


def _target(facts: ServerFacts, target: ModelShape | None, format_name: str) -> Iterator[Entry]:
    if target is None:
        called = f"the server calls it {facts.model}; " if facts.model else ""
        comment = f"{called}give its config.json or a catalogue name; 70B until then"
        yield Entry(key="target", value="PATH/config.json", comment=comment, known=False)
    else:
        yield Entry(key="target", value=target.name, comment=f"served as {facts.model}")
    yield from _weights(facts, format_name)
    if facts.kv_cache_dtype is not None:
        known = _works(lambda: cache_bytes(str(facts.kv_cache_dtype)))
        yield Entry(key="kv-cache-dtype", value=facts.kv_cache_dtype, comment="as it says", known=known)
    for name in ("tp", "dp", "pp", "ep"):
        degree = getattr(facts, name)
        if degree is not None and degree > 1:
            yield Entry(key=name, value=degree, comment="as it says")
        elif degree is None and name == "tp":
            yield Entry(key=name, value=1, comment="devices that share the target", known=False)


def _weights(facts: ServerFacts, format_name: str) -> Iterator[Entry]:
    said = facts.quantization
    weights = _WEIGHTS.get(said.lower(), "") if said else format_name
    if weights:
        comment = f"it says {said}" if said else "by the model's name"
        yield Entry(key="quantization", value=weights, comment=comment)
    else:
        comment = f"it says {said}" if said else "where the target's weights are quantised"
        yield Entry(key="quantization", value="fp8", comment=comment, known=False)


def _draft(
    facts: ServerFacts, record: Telemetry | None, law: SourceLaw | None, target: ModelShape | None
) -> Iterator[Entry]:
    method = (record.method if record else None) or facts.method
    if method is not None and method.startswith(LOOKUP):
        yield from _lookup(method, law)
        return
    if law is not None and law.estimate.drafting_share < FULL_SHARE:
        may_look_up = method is None and facts.draft is None
        yield _match_rate(law, known=may_look_up)
        if may_look_up:
            yield Entry(key="method", value="ngram", comment="or suffix, which it does not tell", known=False)
            return
    draft, _ = _known_model(facts.draft)
    method_works = method in METHODS and _drafts(target, draft, method)
    yield Entry(key="method", value=method or "eagle3", comment="how it drafts", known=method_works)
    if draft is not None and (method_works or _drafts(target, draft, None)):
        yield Entry(key="draft", value=draft.name, comment=f"served as {facts.draft}")
        return
    named = f"the server calls it {facts.draft}; " if facts.draft else ""
    if method_works or target is None:
        comment = f"{named}give its config.json, a catalogue name or 1B"
        yield Entry(key="draft", value="PATH/config.json", comment=comment, known=False)
    else:
        comment = f"a stand-in: {named or 'the server does not tell; '}name the real one, or a method"
        yield Entry(key="draft", value="1B", comment=comment, guessed=True)


def _drafts(target: ModelShape | None, draft: ModelShape | None, method: str | None) -> bool:
    return target is not None and _works(lambda: drafter_of(target, draft, method=method))


def _lookup(method: str, law: SourceLaw | None) -> Iterator[Entry]:
    told = law is not None and law.match_rate is not None
    yield Entry(key="method", value=method, comment="as it says", known=told)
    if law is not None and told:
        yield _match_rate(law)
    else:
        yield Entry(key="match-rate", value="0.4", comment="share of the steps that draft", known=False)


def _match_rate(law: SourceLaw, *, known: bool = True) -> Entry:
    """h of a lookup draft, such that 1 + h·(E − 1) is the record's tokens per step.

    It is the share of the steps that drafted where each draft had k tokens and no request ended within one.
    """
    share, per_step = law.estimate.drafting_share, law.estimate.tokens_per_step
    accepted = _length(law) - 1
    rate = share if math.isnan(per_step) or accepted <= 0 else min(max((per_step - 1) / accepted, 0.0), 1.0)
    counted = "" if math.isnan(per_step) else f"; {per_step:.3f} tokens per step over all"
    told = f"{share:.1%} of the steps drafted{counted}; for lookup drafts (n-gram, suffix) alone"
    return Entry(key="match-rate", value=f"{rate:.4f}", comment=told, known=known)


def _length(law: SourceLaw) -> float:
    """Tokens of a step that drafts, by the law that is written."""
    k = law.estimate.k or len(law.rates)
    if law.alpha is not None:
        return float(ConstantAcceptance(law.alpha).acceptance_length(k))
    return 1.0 + math.fsum(accumulate(law.rates[:k], mul))


def _law(record: Telemetry | None) -> SourceLaw | None:
    if record is None:
        return None
    try:
        return source_law(estimate_acceptance(record))
    except DataError:
        return None


def _acceptance(record: Telemetry | None, law: SourceLaw | None) -> Iterator[Entry]:
    if law is None or law.estimate.alpha is None:
        comment = "no draft was counted: run requests with speculation on, then `specmath alpha`"
        yield Entry(key="alpha", value="0.7", comment=comment, known=False)
        return
    estimate = law.estimate.alpha
    if law.rates:
        rates = "/".join(f"{rate:.4g}" for rate in law.rates)
        comment = (
            f"by position, since a test refuses one α; α = {estimate.alpha:.4f}, {_counted(law, record)}"
        )
        yield Entry(key="rates", value=rates, comment=comment)
    else:
        yield Entry(key="alpha", value=f"{estimate.alpha:.4f}", comment=_counted(law, record))
    if law.estimate.k is not None:
        varies = "the longest; drafts vary" if record and record.k_varies else "as it drafts now"
        yield Entry(key="k", value=law.estimate.k, comment=varies)


def _counted(law: SourceLaw, record: Telemetry | None) -> str:
    """Interval, number of drafts and what they cover, in words."""
    alpha, drafts = law.estimate.alpha, law.estimate.totals.drafts
    if alpha is None or alpha.alpha_low != alpha.alpha_low:  # NaN: of how many steps is not told
        ranged = "its error is not told"
    else:
        ranged = f"95 % from {alpha.alpha_low:.3f} to {alpha.alpha_high:.3f}"
    told = (ranged, f"{drafts:,.0f} drafts" if drafts else "", record.scope if record else "")
    return ", ".join(part for part in told if part)


def _load(facts: ServerFacts, record: Telemetry | None, *, has_caches: bool) -> Iterator[Entry]:
    running = record.load.running if record else None
    if running is not None and running > 0:
        comment = f"requests in a step, {running:.4g} on average"
        yield Entry(key="batch", value=max(round(running), 1), comment=comment)
    else:
        yield Entry(key="batch", value=8, comment="requests in a step, as many as run at a time", known=False)
    limit = f"; {facts.context_limit:,} at most" if facts.context_limit else ""
    if facts.mean_context:
        comment = f"mean prompt and half of the mean answer{limit}"
        comment += "" if has_caches else "; needs a named target and draft beside it"
        context = max(round(facts.mean_context), 1)
        yield Entry(key="context", value=context, comment=comment, known=has_caches)
    else:
        comment = f"tokens in the cache of a sequence on average{limit}"
        yield Entry(key="context", value="4k", comment=comment, known=False)
    if facts.max_requests is not None:
        yield Entry(key="max-batch", value=facts.max_requests, comment="requests at most, as it says")


def _unseen(facts: ServerFacts) -> Iterator[Entry]:
    rows = (
        ("hardware", "h100-sxm", "no server tells it; `specmath show hardware` lists what is known"),
        ("link", "450GB/s", "between devices, one way, where it is not the catalogue's"),
        ("graph-sizes", "1,2,4,8:512:8", "captured tokens per pass, from the start-up log"),
        ("draft-tp", 1, "devices that share the draft"),
        ("draft-quantization", "fp8", "where the draft's weights are quantised"),
    )
    for key, value, comment in rows:
        yield Entry(key=key, value=value, comment=comment, known=False)
    if facts.dtype is None:
        yield Entry(
            key="dtype", value="bf16", comment="where the weights are not in the model's own", known=False
        )


def _works(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except SpecmathError:
        return False
    return True
