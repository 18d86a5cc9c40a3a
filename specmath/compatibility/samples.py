"""A sample of requests, JSONL of OpenAI-style or an engine's own bodies: which of them carry what.

Only counts are kept, so that a file of any size takes constant memory.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

from specmath.engines.addresses import is_url
from specmath.engines.reading import Content, opened
from specmath.errors import DataError, InputError
from specmath.results import Advice
from specmath.strict_json import json_document

MAX_BODY: Final = 16 * 2**20
"""Bytes of one request; a longer line is counted as one that cannot be read."""
MAX_REQUESTS: Final = 10_000_000
_WRAPPERS: Final = ("body", "request", "request_body", "params", "json", "payload")
_INSIDE: Final = (
    "extra_body",
    "sampling_params",
    "parameters",
    "generation_config",
    "guided_options_request",
)
_CONSTRAINTS: Final = (
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "structural_tag",
    "guided_decoding",
    "json_schema",
    "regex",
    "ebnf",
    "grammar",
)
_PENALTIES: Final = (
    ("frequency_penalty", 0.0),
    ("presence_penalty", 0.0),
    ("repetition_penalty", 1.0),
    ("repeat_penalty", 1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What a sample holds.

    Attributes:
        source: The file, fit to be printed.
        total: Requests that were read.
        with_: Requests that carry each trait, by its name.
        notes: What could not be read.
    """

    source: str
    total: int
    with_: Mapping[str, int]
    notes: tuple[Advice, ...] = ()

    def count(self, trait: str) -> int:
        """Requests that carry a trait."""
        return self.with_.get(trait, 0)


def read_requests(path: str | Path) -> Requests:
    """The traits of the requests in a JSONL file; `-` is stdin, a gzip file is unpacked.

    Args:
        path: One JSON object a line: a body of the OpenAI routes, of SGLang's `/generate` or llama.cpp's
            `/completion`, or such a body under `body` or `request`, as in a batch file.

    Raises:
        AccessError: where it cannot be read.
        DataError: where no line is a request.
        InputError: for a URL.
    """
    if is_url(path):
        raise InputError("requests", "takes a file of JSONL, not an address")
    counts: Counter[str] = Counter()
    total, bad, first_bad = 0, 0, ""
    with opened(Path(path) if str(path) != "-" else "-") as content:
        for number, line in enumerate(_lines(content), 1):
            if not line.strip():
                continue
            body = _body(line, f"{content.name}: line {number}")
            if isinstance(body, str):
                bad, first_bad = bad + 1, first_bad or body
                continue
            total += 1
            counts.update(name for name, holds in TRAITS.items() if holds(body))
            if total >= MAX_REQUESTS:
                break
        name = content.name
    if not total:
        reason = f"; {first_bad}" if first_bad else ""
        raise DataError(name, f"holds no request{reason}; give JSONL with one request body a line")
    return Requests(source=name, total=total, with_=counts, notes=tuple(_notes(name, bad, first_bad)))


def _notes(name: str, bad: int, first: str) -> Iterator[Advice]:
    if bad:
        text = f"{bad:,} lines of {name} are no request and were left out; the first: {first}"
        yield Advice(code="lines-left-out", text=text, remedy="give one JSON object a line")


def _lines(content: Content) -> Iterator[bytes]:
    """Lines of the stream; one beyond MAX_BODY comes as far as the limit, its rest is dropped."""
    kept, dropping, block = b"", False, content.start
    while block:
        *whole, rest = (kept + block).split(b"\n")
        for line in whole:
            if not dropping:
                yield line
            dropping = False
        kept = rest
        if len(kept) > MAX_BODY:
            if not dropping:
                yield kept[: MAX_BODY + 1]
            kept, dropping = b"", True
        block = content.stream.read(2**18)
    if kept and not dropping:
        yield kept


def _body(line: bytes, where: str) -> dict[str, Any] | str:
    """The request's fields on one level, or why there are none."""
    if len(line) > MAX_BODY:
        return f"{where}: is longer than {MAX_BODY // 2**20} MiB"
    try:
        value = json_document(line.decode("utf-8-sig").strip(), where.rpartition(": ")[0])
    except UnicodeDecodeError:
        return f"{where}: is no UTF-8"
    except DataError as fault:
        return f"{where}: {fault.problem}"
    for name in _WRAPPERS:
        if isinstance(value, dict) and isinstance(value.get(name), dict):
            value = value[name]
    if not isinstance(value, dict):
        return f"{where}: is no JSON object"
    fields = dict(value)
    for name in _INSIDE:
        inner = value.get(name)
        if isinstance(inner, dict):
            fields = {**fields, **inner}
    return fields


def _number(fields: Mapping[str, Any], name: str, default: float) -> float:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return default
    try:
        number = float(value)
    except OverflowError:
        return default
    return number if isfinite(number) else default


def _constrained(fields: Mapping[str, Any]) -> bool:
    form = fields.get("response_format")
    kind = form.get("type") if isinstance(form, dict) else None
    forced = fields.get("tool_choice")
    return (
        any(fields.get(name) for name in _CONSTRAINTS)
        or kind in ("json_object", "json_schema", "structural_tag", "regex", "grammar")
        or isinstance(forced, dict)
        or forced == "required"
    )


def _wants_logprobs(fields: Mapping[str, Any]) -> bool:
    asked = fields.get("logprobs")
    return (
        (asked is not None and asked is not False)
        or bool(fields.get("return_logprob"))
        or _number(fields, "top_logprobs", 0) > 0
        or _number(fields, "n_probs", 0) > 0
    )


def _filled(name: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda fields: bool(fields.get(name))


TRAITS: Final[dict[str, Callable[[Mapping[str, Any]], bool]]] = {
    "min_p": lambda fields: _number(fields, "min_p", 0) > 1e-5,
    "logit_bias": _filled("logit_bias"),
    "min_tokens": lambda fields: _number(fields, "min_tokens", 0) > 1,
    "penalties": lambda fields: any(_number(fields, name, off) != off for name, off in _PENALTIES),
    "logprobs": _wants_logprobs,
    "prompt_logprobs": lambda fields: fields.get("prompt_logprobs") is not None,
    "structured output": _constrained,
    "n > 1": lambda fields: max(_number(fields, "n", 1), _number(fields, "best_of", 1)) > 1,
    "beam search": lambda fields: bool(fields.get("use_beam_search")) or _number(fields, "num_beams", 1) > 1,
    "LoRA": lambda fields: any(
        fields.get(name) for name in ("lora_path", "lora_request", "lora", "adapter_id")
    ),
    "logits processors": lambda fields: any(
        fields.get(name) for name in ("logits_processors", "custom_logit_processor", "vllm_xargs")
    ),
    "sampling": lambda fields: (
        _number(fields, "temperature", 1.0) > 0 and fields.get("do_sample") is not False
    ),
    "seed": lambda fields: fields.get("seed") is not None,
    "ignore_eos": lambda fields: fields.get("ignore_eos") is True,
}
"""Whether a request carries a trait, by the trait's name."""


def trait_names() -> str:
    """The traits in words."""
    return ", ".join(TRAITS)


def compact(value: Any) -> str:
    """A value as JSON on one line, for a remedy."""
    return json.dumps(value, ensure_ascii=False)
