"""Prompts to measure acceptance on: from a file, or a small packaged set by domain.

A `.jsonl`, `.json` or `.csv` file has in each row `prompt`, text that is continued as it stands, or
`messages`, a conversation that goes through the target's chat template, and optionally `domain`. Any other
file is text: paragraphs parted by blank lines, one prompt each, or, where no line is blank, lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Protocol

from calibrate.templates import TemplateFault, rendered
from specmath.checks import require_count
from specmath.errors import DataError, InputError, shown
from specmath.results import Advice
from specmath.row_files import Row, described, file_name, read_rows
from specmath.strict_json import json_lines
from specmath.text_files import file_text

MOST_PROMPTS: Final = 10_000
FILE_DOMAIN: Final = "file"
"""Domain of a prompt whose file names none."""
_ROWS: Final = (".jsonl", ".json", ".csv")
_BUILTIN: Final = "prompts.jsonl"
_REMEDY: Final = "name a text file, or rows of `prompt` or `messages` in .jsonl, .json or .csv"
_CHARACTERS_A_TOKEN: Final = 64
"""More than tokens have on average, whatever the text."""
_BLANK_LINE: Final = r"\n[^\S\n]*\n\s*"

Messages = tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request before it is tokens.

    Attributes:
        domain: What it is about.
        text: To be continued as it stands; empty where there are messages.
        messages: `role` and `content` of each, for the chat template.
        where: File and line, for messages of error; empty for a packaged one.
    """

    domain: str
    text: str = ""
    messages: Messages = ()
    where: str = ""

    @property
    def as_text(self) -> str:
        """The prompt as it would stand without a chat template."""
        if not self.messages:
            return self.text
        return "\n\n".join(message["content"] for message in self.messages) + "\n\n"


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """One request as the target reads it.

    Attributes:
        domain: What it is about.
        tokens: Token ids, one or more.
    """

    domain: str
    tokens: tuple[int, ...]


class Tokenizer(Protocol):
    """What is asked of a tokenizer of transformers."""

    chat_template: Any

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...
    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> Any: ...


def builtin_prompts(domains: Sequence[str] = ()) -> tuple[Prompt, ...]:
    """The packaged prompts of the domains named, of all where none is: code, extraction, chat and prose.

    Raises:
        InputError: for a domain that the set does not have.
    """
    text = files("calibrate").joinpath(_BUILTIN).read_text(encoding="utf-8")
    rows = [Row(_BUILTIN, line, cells) for line, cells in json_lines(text, _BUILTIN)]
    prompts = [Prompt(domain=p.domain, text=p.text, messages=p.messages) for p in map(_prompt, rows)]
    known = list(dict.fromkeys(prompt.domain for prompt in prompts))
    for name in domains:
        if name not in known:
            raise InputError("domains", f"must be of {', '.join(known)}, got {shown(name)}")
    return tuple(prompt for prompt in prompts if not domains or prompt.domain in domains)


def read_prompts(path: str | Path) -> tuple[Prompt, ...]:
    """The prompts of a file; `-` is JSONL from stdin.

    Raises:
        AccessError: where it cannot be read.
        DataError: for what holds no prompts, with file and line.
    """
    if str(path) == "-" or Path(path).suffix.lower() in _ROWS:
        prompts = [_prompt(row) for row in read_rows(path, most=MOST_PROMPTS)]
    else:
        prompts = list(_text_prompts(path))
    if not prompts:
        raise DataError(file_name(path), f"holds no prompt; {_REMEDY}")
    return tuple(prompts)


def encoded_prompts(
    prompts: Sequence[Prompt], tokenizer: Tokenizer, *, most_tokens: int
) -> tuple[tuple[EncodedPrompt, ...], tuple[Advice, ...]]:
    """Prompts as tokens of the target; of a longer one the last `most_tokens`, where its continuation begins.

    A packaged conversation is read as plain text by a target without a chat template.

    Returns:
        The prompts, and a note where some were cut.

    Raises:
        DataError: for messages of a file where the target has no template or its template refuses them, and
            for a prompt of no tokens.
    """
    require_count("most_tokens", most_tokens, 1)
    encoded: list[EncodedPrompt] = []
    cut = 0
    for prompt in prompts:
        tokens = _tokens(_shortened(prompt, most_tokens), tokenizer)
        if not tokens:
            raise DataError(prompt.where or _BUILTIN, "prompt: has no tokens; leave it out")
        cut += len(tokens) > most_tokens
        encoded.append(EncodedPrompt(prompt.domain, tuple(tokens[-most_tokens:])))
    if not cut:
        return tuple(encoded), ()
    text = f"{cut} of {len(prompts)} prompts are longer than {most_tokens:,} tokens"
    note = Advice(
        code="cut-prompts",
        text=f"{text}; their last {most_tokens:,} are read",
        remedy="allow more tokens, or shorten the prompts",
    )
    return tuple(encoded), (note,)


def _shortened(prompt: Prompt, most_tokens: int) -> Prompt:
    """The prompt without what is certainly cut: no tokenizer is given megabytes to read their end."""
    most = most_tokens * _CHARACTERS_A_TOKEN
    return prompt if len(prompt.text) <= most else replace(prompt, text=prompt.text[-most:])


def _tokens(prompt: Prompt, tokenizer: Tokenizer) -> list[int]:
    if not prompt.messages:
        return tokenizer.encode(prompt.text, add_special_tokens=True)
    if tokenizer.chat_template is None:
        if prompt.where:
            problem = "messages: the target has no chat template; give `prompt` instead"
            raise DataError(prompt.where, problem)
        return tokenizer.encode(prompt.as_text, add_special_tokens=True)
    try:
        text = rendered(tokenizer, prompt.messages)
    except TemplateFault as fault:
        problem = f"messages: the chat template of the target {fault}"
        raise DataError(prompt.where or _BUILTIN, problem) from None
    return tokenizer.encode(text, add_special_tokens=False)


def _text_prompts(path: str | Path) -> Iterator[Prompt]:
    """Prompts of a text file, each with the line at which it begins."""
    text, file = file_text(path, remedy=_REMEDY).replace("\r\n", "\n"), file_name(path)
    begin, stripped = 0, text.strip()
    gap = _BLANK_LINE if re.search(_BLANK_LINE, stripped) else r"\n"
    line = 1 + text[: len(text) - len(text.lstrip())].count("\n")
    for number, (end, after) in enumerate(_gaps(gap, stripped), 1):
        if number > MOST_PROMPTS:
            raise DataError(file, f"has more than {MOST_PROMPTS:,} prompts; split it")
        if piece := stripped[begin:end].strip():
            yield Prompt(domain=FILE_DOMAIN, text=piece, where=f"{file}: line {line}")
        line += stripped.count("\n", begin, after)
        begin = after


def _gaps(pattern: str, text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of each gap, the end of the text being the last."""
    yield from (match.span() for match in re.finditer(pattern, text))
    yield len(text), len(text)


def _prompt(row: Row) -> Prompt:
    text, messages = row.cells.get("prompt"), row.cells.get("messages")
    if (text is None) == (messages is None):
        raise row.fault("must have `prompt` or `messages`, and not both")
    domain = row.cells.get("domain") or FILE_DOMAIN
    if not isinstance(domain, str) or not domain.isprintable() or len(domain) > 40 or domain == "all":
        raise row.fault(f"domain: must be a short name other than `all`, got {described(domain)}")
    if messages is not None:
        return Prompt(domain=domain, messages=tuple(_messages(row, messages)), where=row.where)
    if not isinstance(text, str):
        raise row.fault(f"prompt: must be text, got {described(text)}")
    _refuse_surrogates(row, "prompt", text)
    return Prompt(domain=domain, text=text, where=row.where)


def _messages(row: Row, messages: Any) -> Iterator[Mapping[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise row.fault(f"messages: must be a list of one or more, got {described(messages)}")
    for number, message in enumerate(messages, 1):
        content = message.get("content") if isinstance(message, dict) else None
        role = message.get("role") if isinstance(message, dict) else None
        if not isinstance(role, str) or not isinstance(content, str):
            raise row.fault(f"messages: number {number} must have `role` and `content`, both text")
        _refuse_surrogates(row, "messages", role + content)
        yield {"role": role, "content": content}


def _refuse_surrogates(row: Row, field: str, text: str) -> None:
    """JSON can escape half a character, which no tokenizer takes."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise row.fault(f"{field}: holds half a character (a lone surrogate)")
