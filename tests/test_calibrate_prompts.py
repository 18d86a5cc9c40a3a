"""Prompts from files and from the package, as text and as tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from calibrate.prompts import (
    EncodedPrompt,
    Prompt,
    builtin_prompts,
    encoded_prompts,
    read_prompts,
)
from specmath.errors import AccessError, DataError, InputError, SpecmathError


class Letters:
    """A tokenizer of characters, with a template of roles; what begins with ! it refuses."""

    def __init__(self, template: str | None = "roles") -> None:
        self.chat_template = template

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [0] * add_special_tokens + [ord(letter) for letter in text]

    def apply_chat_template(
        self, conversation: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        if conversation[0]["content"].startswith("!"):
            raise ValueError("roles must\nalternate")
        lines = [f"{message['role']}:{message['content']}" for message in conversation]
        return "|".join(lines) + "|assistant:" * add_generation_prompt


def text_of(prompt: EncodedPrompt) -> str:
    return "".join(map(chr, prompt.tokens))


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def row(**cells: Any) -> str:
    return json.dumps(cells) + "\n"


USER = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("one\ntwo\n\n\nthree\n", [("one\ntwo", 1), ("three", 5)], id="paragraphs"),
        pytest.param("one\n two \nthree", [("one", 1), ("two", 2), ("three", 3)], id="lines"),
        pytest.param("\n\n one\ntwo\n\n", [("one", 3), ("two", 4)], id="blank lines around lines"),
        pytest.param("a\r\nb\r\n \t\r\nc", [("a\nb", 1), ("c", 4)], id="CRLF, a line of spaces"),
        pytest.param("a\n\n  indented\n   more", [("a", 1), ("indented\n   more", 3)], id="indented"),
        pytest.param(b"\xef\xbb\xbfone", [("one", 1)], id="BOM"),
    ],
)
def test_text_files(content: str | bytes, expected: list[tuple[str, int]], tmp_path: Path) -> None:
    path = written(tmp_path, "p.txt", content)
    found = read_prompts(path)
    assert [(one.text, one.where) for one in found] == [
        (text, f"{path}: line {line}") for text, line in expected
    ]
    assert {(one.domain, one.messages) for one in found} == {("file", ())}


def test_rows(tmp_path: Path) -> None:
    content = row(prompt="a b") + "\n" + row(messages=USER, domain="chat") + row(prompt="c", domain=None)
    path = written(tmp_path, "p.jsonl", content)
    assert read_prompts(path) == (
        Prompt(domain="file", text="a b", where=f"{path}: line 1"),
        Prompt(domain="chat", messages=tuple(USER), where=f"{path}: line 3"),
        Prompt(domain="file", text="c", where=f"{path}: line 4"),
    )
    table = written(tmp_path, "p.csv", "prompt,domain\nx,code\n")
    assert [(one.text, one.domain) for one in read_prompts(table)] == [("x", "code")]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (row(prompt="a") + row(text="b"), "line 2: must have `prompt` or `messages`, and not both"),
        (row(prompt="a", messages=USER), "line 1: must have `prompt` or `messages`, and not both"),
        (row(prompt=" "), "line 1: must have `prompt` or `messages`, and not both"),
        (row(prompt=3), "line 1: prompt: must be text, got 3"),
        (row(prompt=["a"]), "line 1: prompt: must be text, got a list"),
        (row(prompt="\ud800"), "line 1: prompt: holds half a character (a lone surrogate)"),
        (row(prompt="a", domain=3), "line 1: domain: must be a short name other than `all`, got 3"),
        (row(prompt="a", domain="all"), "line 1: domain: must be a short name other than `all`, got 'all'"),
        (row(prompt="a", domain="x\ny"), "line 1: domain: must be a short name other than `all`"),
        (row(prompt="a", domain="x" * 41), "line 1: domain: must be a short name other than `all`"),
        (row(messages={}), "line 1: messages: must be a list of one or more, got an object"),
        (row(messages=[]), "line 1: messages: must be a list of one or more, got a list"),
        (row(messages=[*USER, 3]), "line 1: messages: number 2 must have `role` and `content`, both text"),
        (
            row(messages=[{"role": "user", "content": [{"type": "text"}]}]),
            "line 1: messages: number 1 must have `role` and `content`, both text",
        ),
        (row(messages=[{"role": "user", "content": "\udfff"}]), "line 1: messages: holds half a character"),
        (row(prompt="a") + "{", "line 2: is no JSON"),
        ("[1]", "line 1: must be a JSON object"),
        ("", "holds no prompt"),
        ('{"prompt": "a", "prompt": "b"}', "line 1: field 'prompt' stands twice"),
        ("[" * 100_000, "line 1: "),
    ],
)
def test_rows_that_are_no_prompts(content: str, fault: str, tmp_path: Path) -> None:
    path = written(tmp_path, "p.jsonl", content)
    with pytest.raises(DataError) as caught:
        read_prompts(path)
    assert str(caught.value).startswith(f"{path}: {fault}")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("content", ["", " \n\n \t\n", b"\0", b"\xff"])
def test_text_that_is_none(content: str | bytes, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_prompts(written(tmp_path, "p.txt", content))
    assert str(caught.value).startswith(str(tmp_path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="no such file"):
        read_prompts(tmp_path / "p.txt")
    with pytest.raises(DataError, match="more than 10,000"):
        read_prompts(written(tmp_path, "many.txt", "a\n" * 10_001))


@given(
    st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.sampled_from(["txt", "jsonl", "csv"])
)
def test_any_bytes_are_prompts_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, ending: str
) -> None:
    path = written(tmp_path_factory.getbasetemp(), f"any.{ending}", content)
    assert len(refusal_of(path).splitlines()) <= 1


def refusal_of(path: Path) -> str:
    """Why a file is refused; empty where it holds prompts."""
    try:
        assert all(one.text.strip() or one.messages for one in read_prompts(path))
    except SpecmathError as refusal:
        return str(refusal)
    return ""


@given(st.text(alphabet="ab \n\t\r", max_size=40))
def test_text_prompts_begin_where_they_say(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = written(tmp_path_factory.getbasetemp(), "any.txt", text)
    try:
        found = read_prompts(path)
    except DataError:
        assert not text.strip()
        return
    lines = text.replace("\r\n", "\n").split("\n")
    for one in found:
        line = int(one.where.rpartition(" ")[2])
        assert lines[line - 1].strip().startswith(one.text.split("\n")[0].strip())
    assert "".join("".join(one.text.split()) for one in found) == "".join(text.split())


# As tokens


def test_text_is_continued_and_messages_go_through_the_template() -> None:
    prompts = [Prompt(domain="a", text="xy"), Prompt(domain="b", messages=tuple(USER))]
    (first, second), notes = encoded_prompts(prompts, Letters(), most_tokens=99)
    assert (first, notes) == (EncodedPrompt("a", (0, 120, 121)), ())
    assert (second.domain, text_of(second)) == ("b", "user:Hi|assistant:")


def test_long_prompts_keep_their_end_and_are_told_of() -> None:
    prompts = [Prompt(domain="a", text=text) for text in ("abcdef", "abc", "abcd")]
    encoded, (note,) = encoded_prompts(prompts, Letters(), most_tokens=4)
    assert [text_of(one) for one in encoded] == ["cdef", "\0abc", "abcd"]
    assert note.code == "cut-prompts"
    assert note.text == "2 of 3 prompts are longer than 4 tokens; their last 4 are read"


def test_messages_without_a_template() -> None:
    packaged = Prompt(domain="a", messages=({"role": "user", "content": "A"}, {"role": "b", "content": "B"}))
    (plain,), _ = encoded_prompts([packaged], Letters(None), most_tokens=99)
    assert text_of(plain) == "\0A\n\nB\n\n"
    own = Prompt(domain="a", messages=tuple(USER), where="p.jsonl: line 3")
    with pytest.raises(DataError, match=r"^p.jsonl: line 3: messages: the target has no chat template"):
        encoded_prompts([own], Letters(None), most_tokens=99)


def test_messages_that_the_template_refuses() -> None:
    own = Prompt(domain="a", messages=({"role": "user", "content": "!"},), where="p.jsonl: line 3")
    with pytest.raises(DataError, match=r"^p.jsonl: line 3: messages: .* refuses it: 'roles must\\nalter"):
        encoded_prompts([own], Letters(), most_tokens=99)


def test_a_prompt_of_no_tokens() -> None:
    class Deaf(Letters):
        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            return []

    with pytest.raises(DataError, match=r"^p.txt: line 1: prompt: has no tokens; leave it out$"):
        encoded_prompts([Prompt(domain="a", text="x", where="p.txt: line 1")], Deaf(), most_tokens=9)
    with pytest.raises(InputError, match="most_tokens"):
        encoded_prompts([], Letters(), most_tokens=0)


# The packaged set


def test_packaged_prompts() -> None:
    prompts = builtin_prompts()
    domains = [prompt.domain for prompt in prompts]
    assert {name: domains.count(name) for name in domains} == dict.fromkeys(
        ("code", "extraction", "chat", "prose"), 10
    )
    assert len({(prompt.text, str(prompt.messages)) for prompt in prompts}) == len(prompts)
    assert all(prompt.where == "" for prompt in prompts)
    for prompt in prompts:
        roles = [message["role"] for message in prompt.messages]
        assert roles == ["user", "assistant", "user", "assistant"][: len(roles)]
        assert bool(prompt.text) != bool(roles)
        assert not roles or roles[-1] == "user"


def test_packaged_prompts_by_domain() -> None:
    found = builtin_prompts(["prose", "code"])
    assert {prompt.domain for prompt in found} == {"prose", "code"}
    with pytest.raises(InputError, match=r"^domains: must be of code, extraction, chat, prose, got 'maths'$"):
        builtin_prompts(["maths"])
