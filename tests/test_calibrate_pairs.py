"""Whether two tokenizers speak one language: what stops a pair, what is only noted, and hostile files."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calibrate.pairs import Language, compared_pair, language_of, load_tokenizer
from specmath.errors import AccessError, DataError, SpecmathError

MICRO = Path(__file__).with_name("data") / "micro_pair"
TARGET = Language(
    name="target",
    ids={"<s>": 0, "a": 1, "b": 2, "<x>": 3},
    special={"bos_token": "<s>", "eos_token": "<s>", "pad_token": None},
    added={"<s>": True, "<x>": False},
    template="{{ messages }}",
    rendered="user: How many?",
    rows=8,
)
DRAFT = replace(TARGET, name="draft")
LONGER = {**TARGET.ids, "c": 4, "d": 5}


def codes(target: Language, draft: Language, **options: bool) -> list[str]:
    return [note.code for note in compared_pair(target, draft, **options)[1]]


def special(**tokens: str | None) -> dict[str, str | None]:
    return {**TARGET.special, **tokens}


def test_a_pair_of_one_language() -> None:
    assert compared_pair(TARGET, DRAFT) == (4, ())


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        pytest.param(
            {"ids": {"<s>": 0, "b": 1, "a": 2, "<x>": 3}},
            ["2 tokens have other ids", "'a' 1 in the target, 2 in the draft"],
            id="two tokens in each other's place",
        ),
        pytest.param(
            {"ids": {"<s>": 0, "a": 1, "z": 2, "<x>": 3}},
            ["1 ids mean other tokens", "2 'b' in the target, 'z' in the draft"],
            id="another token",
        ),
        pytest.param(
            {"ids": {"<s>": 0, "a": 1, "<x>": 3}}, ["token 2 'b' is known to the target alone"], id="a hole"
        ),
        pytest.param({"ids": {}}, ["token 0 '<s>' is known to the target alone"], id="no tokens"),
        pytest.param(
            {"rows": 3},
            ["the target writes token 3, the draft's embedding ends at 3"],
            id="an embedding that ends too early",
        ),
        pytest.param(
            {"special": special(eos_token="b")},
            ["eos_token is '<s>' in the target, 'b' in the draft"],
            id="eos",
        ),
        pytest.param(
            {"special": special(bos_token=None)},
            ["bos_token is '<s>' in the target, missing in the draft"],
            id="no bos",
        ),
        pytest.param(
            {"added": {"<s>": True, "<x>": True}},
            ["'<x>' is an added token in the target, a special token in the draft"],
            id="added token that is special",
        ),
        pytest.param(
            {"added": {"<s>": True}},
            ["'<x>' is an added token in the target, an ordinary token in the draft"],
            id="added token that is ordinary",
        ),
        pytest.param(
            {"template": "{{ other }}", "rendered": "user> How many?"},
            ["the chat templates part at character 5", "': How many?' in the target, '> How many?' in"],
            id="template",
        ),
        pytest.param(
            {"template": "{{ messages }}!", "rendered": None},
            ["the chat templates part at character 15, '' in the target, '!' in the draft"],
            id="template that fails",
        ),
    ],
)
def test_a_mismatch_stops(change: dict[str, Any], facts: list[str]) -> None:
    with pytest.raises(DataError) as caught:
        compared_pair(TARGET, replace(DRAFT, **change))
    message = str(caught.value)
    assert message.startswith("draft: does not speak the language of target: ")
    assert message.endswith("; take a draft of the target's own family")
    assert "\n" not in message
    for fact in facts:
        assert fact in message


def test_two_pad_tokens_stop() -> None:
    pads = [replace(TARGET, special=special(pad_token=token)) for token in ("a", "b")]
    with pytest.raises(DataError, match="pad_token is 'a' in the target, 'b' in the draft"):
        compared_pair(*pads)


@pytest.mark.parametrize(
    ("change", "shared", "code"),
    [
        pytest.param({"rows": 16}, 4, "padded-vocabulary", id="more padding"),
        pytest.param({"ids": LONGER, "rows": 8}, 4, "longer-vocabulary", id="tokens behind the target's"),
        pytest.param({"special": special(pad_token="<x>")}, 4, "pad-token", id="pad on one side"),
        pytest.param({"template": None, "rendered": None}, 4, "one-template", id="template on one side"),
        pytest.param({"template": "{{messages}}"}, 4, "templates", id="template that writes the same"),
    ],
)
def test_what_is_only_noted(change: dict[str, Any], shared: int, code: str) -> None:
    found, notes = compared_pair(TARGET, replace(DRAFT, **change))
    assert (found, [note.code for note in notes]) == (shared, [code])
    assert codes(replace(DRAFT, **change), TARGET) == [code]


def test_a_target_with_more_tokens_shares_all_that_the_draft_has_rows_for() -> None:
    longer = replace(TARGET, ids=LONGER)
    assert compared_pair(longer, DRAFT)[0] == 6
    assert "the first 'c'" in compared_pair(longer, DRAFT)[1][0].text
    with pytest.raises(DataError, match="target writes token 5, the draft's embedding ends at 5"):
        compared_pair(longer, replace(DRAFT, rows=5))


def test_templates_that_differ_can_be_let_pass() -> None:
    other = replace(DRAFT, template="{{ other }}", rendered="user> How many?")
    (note,) = compared_pair(TARGET, other, any_template=True)[1]
    assert note.code == "templates"
    assert "differently" in note.text


# Real files


def language(folder: Path) -> Language:
    return language_of(str(folder), load_tokenizer(str(folder)), rows=512)


@pytest.fixture
def draft_folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MICRO / "draft", tmp_path / "draft"))


def edited(folder: Path, name: str, change: dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | change), encoding="utf-8")
    return folder


def test_the_micro_pair_speaks_one_language() -> None:
    target = language(MICRO / "target")
    assert compared_pair(target, language(MICRO / "draft")) == (512, ())
    assert target.special == dict.fromkeys(("bos_token", "eos_token", "pad_token"), "<|endoftext|>")
    assert (target.added, target.template) == ({"<|endoftext|>": True}, None)


def test_tokens_changed_in_a_file(draft_folder: Path) -> None:
    path = draft_folder / "tokenizer.json"
    path.write_text(
        path.read_text(encoding="utf-8").replace('"!": 1,', '"!": 2,').replace('"\\"": 2,', '"\\"": 1,')
    )
    with pytest.raises(DataError, match="2 tokens have other ids, '!' 1 in the target, 2 in the draft"):
        compared_pair(language(MICRO / "target"), language(draft_folder))


def test_templates_are_rendered(draft_folder: Path) -> None:
    config = {"chat_template": "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"}
    found = language(edited(draft_folder, "tokenizer_config.json", config))
    assert found.rendered == "user:How many?;assistant:Four.;user:Sure?;"
    config = {"chat_template": "{{ raise_exception('no') }}"}
    assert language(edited(draft_folder, "tokenizer_config.json", config)).rendered is None


def model_of(model: dict[str, Any]) -> bytes:
    return json.dumps({"version": "1.0", "added_tokens": [], "model": model}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b'{"model": 3}',
        b'{"added_tokens": [], "model": 3}',
        b"[" * 100_000,
        model_of({"type": "BPE", "vocab": {"a": -1}, "merges": []}),
        model_of({"type": "BPE", "vocab": {"a": 0}, "merges": ["b c"]}),
        model_of({"type": "WordLevel", "vocab": {"a": 99_999_999_999}, "unk_token": "a"}),
        model_of({"type": "none of these"}),
    ],
)
def test_broken_files_of_tokens(content: bytes, draft_folder: Path) -> None:
    (draft_folder / "tokenizer.json").write_bytes(content)
    with pytest.raises((DataError, AccessError)) as caught:
        language(draft_folder)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    "config",
    [
        {"tokenizer_class": "NoSuchTokenizer", "auto_map": {"AutoTokenizer": ["x.Evil", None]}},
        {"eos_token": 3},
        {"eos_token": {"content": [1]}},
        {"added_tokens_decoder": {"x": 1}},
        {"chat_template": 7},
        {"chat_template": "{% for %}"},
    ],
    ids=str,
)
def test_broken_settings_of_tokens(config: dict[str, Any], draft_folder: Path) -> None:
    (draft_folder / "x.py").write_text("raise SystemExit('code of a stranger ran')")
    edited(draft_folder, "tokenizer_config.json", config)
    assert len(refusal_of(draft_folder).splitlines()) <= 1


def refusal_of(folder: Path) -> str:
    """Why a folder is refused; empty where it is taken."""
    try:
        language(folder)
    except SpecmathError as refusal:
        return str(refusal)
    return ""


def test_a_folder_without_tokens(tmp_path: Path) -> None:
    with pytest.raises((AccessError, DataError)) as caught:
        load_tokenizer(str(tmp_path))
    assert str(caught.value).startswith(str(tmp_path))
    assert len(str(caught.value).splitlines()) == 1
