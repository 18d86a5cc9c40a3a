"""The start-up log of a server: engine, version, settings, and what it warns of; in constant memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from specmath.compatibility.arguments import Arguments, arguments_of
from specmath.compatibility.findings import Finding
from specmath.compatibility.log_signs import SIGNS, own_warning
from specmath.compatibility.plain_text import plain_document, typed_text
from specmath.engines.addresses import is_url
from specmath.engines.reading import opened
from specmath.errors import DataError, InputError, SpecmathError

_VLLM_VERSION: Final = re.compile(
    r"(?:vLLM API server version|LLM engine \(v|vLLM version:?) ?v?([0-9][0-9A-Za-z.+\-]{0,40})"
)
_TRT_VERSION: Final = re.compile(r"TensorRT[- ]LLM version:? ?([0-9][0-9A-Za-z.+\-]{0,40})")
_LLAMA_BUILD: Final = re.compile(r"\bbuild(?: ?:|_info:)? ?b?([0-9]{3,6})[ -]")
_SGLANG_VERSION: Final = re.compile(
    r"sglang(?:==|[ _]version[:= ]+)v?([0-9][0-9A-Za-z.+\-]{0,40})", re.IGNORECASE
)
_FIELD: Final = re.compile(r"\b([a-z][a-z0-9_]{1,60})=('[^']{0,400}'|\"[^\"]{0,400}\"|[^,()\s\[\]{}']{1,60})")
_SPECULATION: Final = re.compile(r"SpeculativeConfig\(([^)]{0,2000})\)")
_LLAMA_COUNT: Final = re.compile(
    r"\b(n_ctx_slot|n_ctx|n_seq_max|n_parallel|n_slots) {0,20}= {0,20}([0-9]{1,12})\b"
)
_LLAMA_DRAFT: Final = re.compile(r"loading draft model '([^']{1,400})'")
_LLAMA_FLAGS: Final = {
    "n_ctx": "ctx-size",
    "n_ctx_slot": "ctx-size",
    "n_seq_max": "parallel",
    "n_parallel": "parallel",
    "n_slots": "parallel",
}
_MAX_TABLE: Final = 60_000
_WARNED_AT_MOST: Final = 10
_DIGITS: Final = re.compile("[0-9]+")
_ON_CPU: Final = re.compile(r"\bdevice_config='?cpu\b")
_WORDS: Final = re.compile(
    "version|build|non-default args|LLM "
    "engine|ServerArgs\\(|SpeculativeConfig\\(|speculative|Speculative|max_running_requests"
    "|WARN|min_p and logit_bias|sync|attention block "
    "size|cudagraph|CUDAGraph|n_ctx|n_seq_max|n_parallel|loading draft|EngineCore|mamba state cache"
)
"""A line without any of these tells nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartLog:
    """What a log told.

    Attributes:
        engine, version: As far as they were recognised; the version as it was written.
        arguments: Flags in force, by the names of the engine's command line.
        seen: What the log reports itself.
        lines: Lines that were read.
        cpu: Whether it says that the engine runs on a CPU.
        v1_runner: Whether it says that vLLM's V1 runner is used.
    """

    engine: str | None
    version: str | None
    arguments: Arguments
    seen: tuple[Finding, ...]
    lines: int
    cpu: bool = False
    v1_runner: bool = False


def read_log(path: str | Path) -> StartLog:
    """The start-up log in a file; `-` is stdin.

    Raises:
        AccessError: where it cannot be read.
        DataError: where it tells neither engine nor settings.
        InputError: for a URL.
    """
    if is_url(path):
        raise InputError("log", "takes a file, not an address")
    reader = _Reader()
    with opened(Path(path) if str(path) != "-" else "-") as content:
        for line in content.lines():
            reader.feed(line)
        name = content.name
    found = reader.result()
    if found.engine is None and not found.arguments.flags and not found.seen:
        raise DataError(
            name,
            "tells no engine and no settings; give the log from the server's first line on, or --server-args",
        )
    return found


class _Reader:
    """Reads line by line; keeps settings, and one finding for each sign."""

    def __init__(self) -> None:
        self.engine: str | None = None
        self.version: str | None = None
        self.flags: dict[str, tuple[str, ...]] = {}
        self.seen: dict[str, Finding] = {}
        self.warned: dict[str, Finding] = {}
        self.cpu = False
        self.lines = 0

    def feed(self, line: str) -> None:
        self.lines += 1
        if not _WORDS.search(line):
            return
        self._versions(line)
        if "non-default args:" in line:
            self._table(line)
        elif "LLM engine (v" in line or "LLM engine with config" in line or "ServerArgs(" in line:
            self._fields(line)
        elif "max_total_num_tokens=" in line:
            self.engine = self.engine or "sglang"
            self._take("max_running_requests", line)
        elif _LLAMA_COUNT.search(line) or _LLAMA_DRAFT.search(line):
            self._llama(line)
        signs = [sign for sign in SIGNS if sign.pattern.search(line)]
        for sign in signs:
            if sign.code not in self.seen:
                self.seen[sign.code] = sign.finding(line)
        if not signs and len(self.warned) < _WARNED_AT_MOST and (said := own_warning(line)):
            # the same line comes from every worker, with other numbers in it
            self.warned.setdefault(_DIGITS.sub("0", said.text), said)

    def _versions(self, line: str) -> None:
        for engine, pattern in (
            ("vllm", _VLLM_VERSION),
            ("tensorrt-llm", _TRT_VERSION),
            ("sglang", _SGLANG_VERSION),
            ("llama.cpp", _LLAMA_BUILD),
        ):
            found = pattern.search(line)
            if found and self.engine in (None, engine) and self.version is None:
                self.engine = engine
                self.version = f"b{found[1]}" if engine == "llama.cpp" else found[1].rstrip(".)")

    def _table(self, line: str) -> None:
        """vLLM's `non-default args: {…}`."""
        text = line.partition("non-default args:")[2].strip()[:_MAX_TABLE]
        self.engine = self.engine or "vllm"
        try:
            table = plain_document(text, "log")
            given = arguments_of(table)
        except SpecmathError:
            return
        self.flags = {**given.flags, **self.flags}

    def _fields(self, line: str) -> None:
        """`key=value` pairs of a record that was printed."""
        sglang = "ServerArgs(" in line
        self.engine = self.engine or ("sglang" if sglang else "vllm")
        self.cpu = self.cpu or (not sglang and bool(_ON_CPU.search(line)))
        if found := _SPECULATION.search(line):
            self._speculation(found[1])
            line = line[: found.start()] + line[found.end() :]
        for name, value in _FIELD.findall(line[:_MAX_TABLE]):
            plain = value.strip("'\"")
            flag = _RENAMED.get(name, name).replace("_", "-")
            if plain not in ("None", "") and flag not in self.flags and flag in _KEPT:
                self.flags[flag] = (plain,)

    def _speculation(self, text: str) -> None:
        config = {name: typed_text(value.strip("'\"")) for name, value in _FIELD.findall(text)}
        if "num_spec_tokens" in config:
            config["num_speculative_tokens"] = config.pop("num_spec_tokens")
        if config and "speculative-config" not in self.flags:
            self.flags["speculative-config"] = arguments_of({"speculative_config": config}).flags[
                "speculative-config"
            ]

    def _take(self, name: str, line: str) -> None:
        for key, value in _FIELD.findall(line):
            if key == name:
                self.flags[name.replace("_", "-")] = (value.strip("'\""),)

    def _llama(self, line: str) -> None:
        """llama.cpp prints `n_ctx = 4096` and its kin, and the draft by name."""
        self.engine = self.engine or "llama.cpp"
        for name, number in _LLAMA_COUNT.findall(line):
            self.flags.setdefault(_LLAMA_FLAGS[name], (number,))
        if found := _LLAMA_DRAFT.search(line):
            self.flags.setdefault("model-draft", (found[1],))

    def result(self) -> StartLog:
        return StartLog(
            engine=self.engine,
            version=self.version,
            arguments=Arguments(self.flags),
            seen=(*self.seen.values(), *self.warned.values()),
            lines=self.lines,
            cpu=self.cpu,
            v1_runner="log-v1-runner" in self.seen,
        )


_RENAMED: Final = {"max_seq_len": "max_model_len"}
_KEPT: Final = frozenset(
    {
        "tensor-parallel-size",
        "pipeline-parallel-size",
        "data-parallel-size",
        "max-model-len",
        "max-num-seqs",
        "enforce-eager",
        "enable-prefix-caching",
        "max-num-batched-tokens",
        "enable-lora",
        "model",
        "model-path",
        "tp-size",
        "dp-size",
        "pp-size",
        "context-length",
        "max-running-requests",
        "cuda-graph-max-bs",
        "speculative-algorithm",
        "speculative-draft-model-path",
        "speculative-num-steps",
        "speculative-eagle-topk",
        "speculative-num-draft-tokens",
        "speculative-adaptive",
        "speculative-dflash-block-size",
        "speculative-dspark-block-size",
        "disable-cuda-graph",
        "disable-radix-cache",
        "enable-mixed-chunk",
    }
)
"""Flags out of a printed record that a rule looks at."""
