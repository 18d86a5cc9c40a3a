"""Whether target and draft speak one language: vocabulary, special tokens and chat template.

Tokens that differ make every draft wrong, or make the comparison of p and q meaningless, so a mismatch stops.
Rows that pad an embedding to a round number hold no token and do no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from calibrate.checkpoints import checkpoint_folder, silence_loggers
from calibrate.templates import TemplateFault, rendered
from specmath.errors import AccessError, DataError, shown, shown_path
from specmath.hf.document import parse_document, read_text
from specmath.results import Advice

_FILES: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
"""One of which every tokenizer that transformers reads has."""
_SPECIAL: Final = ("bos_token", "eos_token", "pad_token")
_CONVERSATION: Final = (
    {"role": "user", "content": "How many?"},
    {"role": "assistant", "content": "Four."},
    {"role": "user", "content": "Sure?"},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """What a tokenizer reads and writes.

    Attributes:
        name: Of the model, for messages.
        ids: Token to id.
        special: Names of the special tokens (`eos_token`) to the token; None for one that is missing.
        added: Added tokens to whether each is special.
        template: Chat template, None where there is none.
        rendered: A fixed conversation through it; None where it refuses it.
        rows: Rows of the embedding; None where not known.
    """

    name: str
    ids: Mapping[str, int]
    special: Mapping[str, str | None]
    added: Mapping[str, bool]
    template: str | None
    rendered: str | None = None
    rows: int | None = None


def load_tokenizer(model: str) -> Any:
    """The tokenizer of a folder or hub id, without any code of its author.

    Raises:
        AccessError: where there is none to be read.
        DataError: where its files are broken.
    """
    folder = checkpoint_folder(model)
    where = shown_path(model)
    if not any((folder / name).is_file() for name in _FILES):
        raise AccessError(where, f"holds no tokenizer; name a folder with {_FILES[0]}, or a hub id")
    _refuse_code(folder / "tokenizer_config.json")
    from transformers import AutoTokenizer  # seconds to import

    silence_loggers()
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (KeyboardInterrupt, SystemExit):
        raise
    except OSError as fault:
        problem = f"no tokenizer can be read: {_first_line(fault)}"
        raise AccessError(where, f"{problem}; name a folder with {_FILES[0]}, or a hub id") from None
    except BaseException as fault:  # the Rust part panics outside of Exception
        raise _broken(where, fault) from None


def _refuse_code(file: Path) -> None:
    if file.is_file() and parse_document(read_text(file), shown_path(file)).get("auto_map"):
        raise DataError(shown_path(file), "asks for code of its own, which is never run; remove auto_map")


def language_of(model: str, tokenizer: Any, *, rows: int | None = None) -> Language:
    """What a tokenizer of transformers reads and writes.

    Args:
        model: Name of the model, for messages.
        tokenizer: As `load_tokenizer` gives it.
        rows: Rows of the model's embedding, `vocab_size` of its config.

    Raises:
        DataError: where it does not answer, being broken.
    """
    where = shown_path(model)
    try:
        template = tokenizer.chat_template
        return Language(
            name=where,
            ids=dict(tokenizer.get_vocab()),
            special={name: getattr(tokenizer, name, None) for name in _SPECIAL},
            added={str(token): bool(token.special) for token in tokenizer.added_tokens_decoder.values()},
            template=template if template is None or isinstance(template, str) else repr(template),
            rendered=_rendered(tokenizer) if template else None,
            rows=rows,
        )
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:
        raise _broken(where, fault) from None


def compared_pair(
    target: Language, draft: Language, *, any_template: bool = False
) -> tuple[int, tuple[Advice, ...]]:
    """How many token ids the pair shares, and what is unlike but does no harm.

    Args:
        target: Of the target.
        draft: Of the draft.
        any_template: Whether templates that differ are a warning: the draft's is never applied.

    Returns:
        Ids below which both models mean the same tokens, and warnings.

    Raises:
        DataError: naming what differs first.
    """
    shared = _shared_vocabulary(target, draft)
    warnings = [*_row_notes(target, draft), *_token_notes(target, draft)]
    _compare_special(target, draft)
    _compare_added(target, draft)
    warnings += _special_notes(target, draft)
    warnings += _template_notes(target, draft, any_template)
    return shared, tuple(warnings)


def _mismatch(target: Language, draft: Language, problem: str) -> DataError:
    remedy = "take a draft of the target's own family"
    return DataError(draft.name, f"does not speak the language of {target.name}: {problem}; {remedy}")


def _shared_vocabulary(target: Language, draft: Language) -> int:
    """Ids that are below every end: no token may differ there."""
    moved = [token for token, number in target.ids.items() if draft.ids.get(token, number) != number]
    if moved:
        first = min(moved, key=target.ids.__getitem__)
        ids = f"{target.ids[first]} in the target, {draft.ids[first]} in the draft"
        raise _mismatch(target, draft, f"{len(moved):,} tokens have other ids, {shown(first)} {ids}")
    by_id, other = _by_id(target), _by_id(draft)
    unlike = sorted(number for number in by_id.keys() & other.keys() if by_id[number] != other[number])
    if unlike:
        pair = f"{shown(by_id[unlike[0]])} in the target, {shown(other[unlike[0]])} in the draft"
        raise _mismatch(target, draft, f"{len(unlike):,} ids mean other tokens, {unlike[0]} {pair}")
    common = by_id.keys() & other.keys()
    holes = [number for number in by_id.keys() ^ other.keys() if number < max(common, default=-1)]
    if holes or not common:
        number = min(holes, default=0)
        token = by_id.get(number, other.get(number, ""))
        side = "target" if number in by_id else "draft"
        raise _mismatch(target, draft, f"token {number} {shown(token)} is known to the {side} alone")
    if draft.rows is not None and max(by_id) >= draft.rows:
        problem = f"the target writes token {max(by_id):,}, the draft's embedding ends at {draft.rows:,}"
        raise _mismatch(target, draft, problem)
    return min(rows for rows in (max(by_id) + 1, target.rows, draft.rows) if rows is not None)


def _by_id(language: Language) -> dict[int, str]:
    return {number: token for token, number in language.ids.items()}


def _row_notes(target: Language, draft: Language) -> Iterator[Advice]:
    if target.rows and draft.rows and target.rows != draft.rows:
        rows = f"the target's embedding has {target.rows:,} rows, the draft's {draft.rows:,}"
        yield Advice(
            code="padded-vocabulary",
            text=f"{rows}; those that hold no token are padding",
            remedy="some engines refuse such a pair",
        )


def _token_notes(target: Language, draft: Language) -> Iterator[Advice]:
    for side, more, fewer in (("target", target, draft), ("draft", draft, target)):
        if extra := sorted(more.ids.keys() - fewer.ids.keys(), key=more.ids.__getitem__):
            known = f"the {side} alone knows {len(extra):,} tokens at the end of its vocabulary"
            yield Advice(
                code="longer-vocabulary",
                text=f"{known}, the first {shown(extra[0])}",
                remedy="drafts fail where they occur",
            )


def _compare_special(target: Language, draft: Language) -> None:
    for name in _SPECIAL:
        mine, other = target.special.get(name), draft.special.get(name)
        if mine != other and not (name == "pad_token" and None in (mine, other)):
            pair = f"{_token(mine)} in the target, {_token(other)} in the draft"
            raise _mismatch(target, draft, f"{name} is {pair}")


def _token(token: str | None) -> str:
    return "missing" if token is None else shown(token)


def _compare_added(target: Language, draft: Language) -> None:
    for token in sorted(target.added.keys() | draft.added.keys()):
        is_shared = token in target.ids and token in draft.ids
        mine, other = target.added.get(token), draft.added.get(token)
        if is_shared and mine != other:
            kinds = {None: "an ordinary token", False: "an added token", True: "a special token"}
            pair = f"{kinds[mine]} in the target, {kinds[other]} in the draft"
            raise _mismatch(target, draft, f"{shown(token)} is {pair}")


def _special_notes(target: Language, draft: Language) -> Iterator[Advice]:
    mine, other = target.special.get("pad_token"), draft.special.get("pad_token")
    if (mine is None) != (other is None):
        text = f"pad_token is {_token(mine)} in the target, {_token(other)} in the draft"
        yield Advice(code="pad-token", text=text, remedy="nothing to do: no text is padded with it here")


def _template_notes(target: Language, draft: Language, any_template: bool) -> Iterator[Advice]:
    if target.template == draft.template:
        return
    if target.template is None or draft.template is None:
        side = "target" if target.template is None else "draft"
        text = f"the {side} has no chat template, so that one of the two may not know conversations"
        yield Advice(
            code="one-template", text=text, remedy="expect a lower α on chat prompts than on plain text"
        )
        return
    same_result = target.rendered is not None and target.rendered == draft.rendered
    if not (same_result or any_template):
        raise _mismatch(target, draft, _template_difference(target, draft))
    how = "write a plain conversation alike" if same_result else "write a plain conversation differently"
    text = f"the chat templates of target and draft differ, and {how}"
    yield Advice(code="templates", text=text, remedy="the target's is used for both")


def _template_difference(target: Language, draft: Language) -> str:
    """Where the two write a conversation differently, or their sources where one writes none."""
    mine, other = target.rendered, draft.rendered
    if mine is None or other is None:
        mine, other = target.template or "", draft.template or ""
    at = next((place for place, (a, b) in enumerate(zip(mine, other, strict=False)) if a != b), None)
    place = min(len(mine), len(other)) if at is None else at
    pair = f"{shown(mine[place : place + 20])} in the target, {shown(other[place : place + 20])} in the draft"
    return f"the chat templates part at character {place + 1}, {pair}"


def _rendered(tokenizer: Any) -> str | None:
    try:
        return rendered(tokenizer, _CONVERSATION)
    except TemplateFault:
        return None


def _broken(where: str, fault: BaseException) -> DataError:
    kind = type(fault).__name__
    return DataError(where, f"its tokenizer is broken ({kind}: {_first_line(fault)}); fetch its files again")


def _first_line(fault: BaseException) -> str:
    text = next(iter(str(fault).strip().splitlines()), "") or type(fault).__name__
    return text if len(text) <= 200 and text.isprintable() else shown(text)
