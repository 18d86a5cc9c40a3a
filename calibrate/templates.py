"""A chat template of a model folder, rendered within limits: it is a program of its author.

The sandbox of transformers keeps it from files and attributes. Time and memory are kept here, where the
system can: a template that loops or multiplies a text without end is one error, not the end of the machine.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

from specmath.errors import shown

LIMIT_S: Final = 10.0
"""Seconds for one conversation."""
LIMIT_BYTES: Final = 2**30
"""Memory that rendering may take beyond what the process has."""
MAX_CHARACTERS: Final = 4_000_000
"""Of a rendered conversation."""
_STATM: Final = Path("/proc/self/statm")


class TemplateFault(Exception):
    """What is wrong with a template, in words that end a sentence."""


def rendered(tokenizer: Any, messages: Sequence[Mapping[str, str]]) -> str:
    """The conversation as the tokenizer's template writes it, the answer to follow.

    Raises:
        TemplateFault: it refuses the conversation, or takes too much time or memory.
    """
    conversation = [dict(message) for message in messages]
    try:
        with _bounded():
            text = str(
                tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)
            )
    except MemoryError:
        raise TemplateFault(f"takes more than {LIMIT_BYTES >> 20} MiB of memory") from None
    except TimeoutError:
        raise TemplateFault(f"takes more than {LIMIT_S:g} s") from None
    except Exception as fault:  # an author's program raises what it likes
        raise TemplateFault(f"refuses it: {shown(str(fault) or type(fault).__name__)}") from None
    if len(text) > MAX_CHARACTERS:
        raise TemplateFault(f"writes {len(text):,} characters, at most {MAX_CHARACTERS:,} are read")
    return text


@contextmanager
def _bounded() -> Iterator[None]:
    with _limited_memory(), _limited_time():
        yield


@contextmanager
def _limited_memory() -> Iterator[None]:
    """Address space for `LIMIT_BYTES` more, where /proc tells how much there is."""
    if not _STATM.exists():
        yield
        return
    import resource  # not on every system

    used = int(_STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    before = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = used + LIMIT_BYTES
    if soft == resource.RLIM_INFINITY or wanted < soft:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@contextmanager
def _limited_time() -> Iterator[None]:
    """An alarm after `LIMIT_S`; none outside the main thread, which alone is told of signals."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> NoReturn:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
