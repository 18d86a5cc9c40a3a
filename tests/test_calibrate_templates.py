"""Chat templates are programs of strangers: they end in time, within memory, or in one line."""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calibrate import templates
from calibrate.checkpoints import checkpoint_folder
from calibrate.pairs import load_tokenizer
from calibrate.prompts import Prompt, encoded_prompts
from calibrate.templates import TemplateFault, rendered
from specmath.errors import AccessError, DataError

MICRO = Path(__file__).with_name("data") / "micro_pair" / "target"
HELLO = [{"role": "user", "content": "hello"}]


class Writes:
    """A tokenizer whose template is a function."""

    chat_template = "there is one"

    def __init__(self, write: Callable[[], Any]) -> None:
        self.write = write

    def apply_chat_template(self, *_: object, **__: object) -> Any:
        return self.write()


def test_a_template_that_multiplies_a_text_without_end() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(TemplateFault, match=r"takes more than 1024 MiB of memory"):
        rendered(Writes(lambda: "a" * 6_000_000_000), HELLO)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_template_that_loops_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "LIMIT_S", 0.2)

    def loop() -> None:
        while True:
            pass

    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TemplateFault, match=r"takes more than 0.2 s"):
        rendered(Writes(loop), HELLO)
    assert signal.getsignal(signal.SIGALRM) == before
    time.sleep(0.3)  # no alarm is left behind


def test_a_text_of_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "MAX_CHARACTERS", 10)
    with pytest.raises(TemplateFault, match="writes 11 characters, at most 10 are read"):
        rendered(Writes(lambda: "a" * 11), HELLO)
    assert rendered(Writes(lambda: "a" * 10), HELLO) == "a" * 10


def test_a_real_template_of_that_kind_is_one_line(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(MICRO))
    tokenizer.chat_template = "{{ 'a' * 6000000000 }}"
    prompt = Prompt(domain="a", messages=(HELLO[0],), where="p.jsonl: line 3")
    with pytest.raises(DataError, match=r"line 3: messages: the chat template of the target takes more"):
        encoded_prompts([prompt], tokenizer, most_tokens=8)


def test_a_megabyte_is_not_tokenised_for_its_last_words() -> None:
    seen: list[int] = []

    class Counts:
        chat_template = None

        def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
            seen.append(len(text))
            return list(range(len(text) // 2))

        def apply_chat_template(self, *_: object, **__: object) -> None: ...

    (one,), (note,) = encoded_prompts([Prompt(domain="a", text="ab" * 10**6)], Counts(), most_tokens=4)
    assert (seen, len(one.tokens), note.code) == ([4 * 64], 4, "cut-prompts")


def test_a_tokenizer_that_asks_for_code_is_refused(tmp_path: Path) -> None:
    for file in MICRO.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["x.X", null]}}')
    with pytest.raises(DataError, match="asks for code of its own, which is never run"):
        load_tokenizer(str(tmp_path))


def test_a_folder_without_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match=r"holds no tokenizer; name a folder with tokenizer\.json"):
        load_tokenizer(str(tmp_path))


def test_a_hub_that_cannot_be_reached_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(AccessError, match=r"not in the local cache and not fetched: the hub cannot"):
        checkpoint_folder("nobody/nothing")
