"""From what a user has at hand (config, arguments, log, requests, models) to the check of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from specmath.checks import MAX_K, require_count
from specmath.compatibility.arguments import Arguments, parse_arguments, text_or_file
from specmath.compatibility.case import Case, Settings
from specmath.compatibility.findings import Finding, share
from specmath.compatibility.layers import layered, version_disagreement
from specmath.compatibility.plain_text import plain_document, table_of
from specmath.compatibility.samples import Requests, read_requests
from specmath.compatibility.sglang import settings_of as sglang_settings
from specmath.compatibility.small_engines import llama_cpp_settings, other_settings, tensorrt_settings
from specmath.compatibility.start_log import StartLog, read_log
from specmath.compatibility.table import CheckTable, check_case
from specmath.compatibility.vllm_flags import config_settings, settings_of as vllm_settings
from specmath.engines.configs.versions import Version
from specmath.engines.names import CONFIG_ENGINES, parse_engine
from specmath.errors import DataError, InputError, shown
from specmath.model import ModelShape
from specmath.model_catalogue import catalogue_name, load_model

_SETTINGS: Final[dict[str | None, Callable[[Arguments], Settings]]] = {
    "vllm": vllm_settings,
    "sglang": sglang_settings,
    "tensorrt-llm": tensorrt_settings,
    "llama.cpp": llama_cpp_settings,
}
_COUNTS: Final = {"k": 0, "tp": 1, "dp": 1, "pp": 1, "draft_tp": 1, "max_num_seqs": 1, "context": 1}


def check_speculation(
    engine: str | None = None,
    *,
    speculative_config: str | Mapping[str, Any] | None = None,
    server_args: str | None = None,
    log: str | Path | None = None,
    requests: str | Path | None = None,
    target: ModelShape | None = None,
    draft: ModelShape | None = None,
    method: str | None = None,
    k: int | None = None,
    tp: int | None = None,
    dp: int | None = None,
    pp: int | None = None,
    draft_tp: int | None = None,
    max_num_seqs: int | None = None,
    context: int | None = None,
) -> CheckTable:
    """What will break and what will bite when an engine speculates with this config, load and model pair.

    Everything is optional, but something must be given. What is typed goes before the server's arguments, and
    these before its log. Nothing is started and nothing is fetched.

    Args:
        engine: `vllm`, `sglang`, `tensorrt-llm`, `llama.cpp`, `lmdeploy`, `tgi`, `mlx` or `transformers`,
            with its version after an @; None for that of the log or of the command in `server_args`.
        speculative_config: vLLM's, as JSON, a Python literal, YAML, dotted flags, a file or a table.
        server_args: Command line or flags of the server, or the file of them.
        log: Start-up log of the server; `-` is stdin.
        requests: JSONL of request bodies; `-` is stdin.
        target, draft: The models; else those that config, arguments or log name, where they are packaged.
        method: How it drafts, by the names of `--method`.
        k: Draft tokens per step, from 0.
        tp, dp, pp, draft_tp: Degrees of parallelism, at least 1.
        max_num_seqs: Sequences that run at once at most, at least 1.
        context: Tokens of the longest sequence, at least 1.

    Returns:
        A finding a row, the breaking ones first; `count("breaks")` is 0 where nothing breaks.

    Raises:
        InputError: where nothing is given, for a value out of range, or an engine that no rule is known of.
        AccessError, DataError: for a file that cannot be read.

    >>> table = check_speculation("vllm@0.33", speculative_config="{'method': 'ngram', 'num_spec_tokens': 3}")
    >>> [(one.code, one.remedy) for one in table.findings if one.effect == "breaks"]
    [('key-misspelt', 'write num_speculative_tokens')]
    """
    given = {key: value for key, value in locals().items() if value is not None}
    if not given:
        raise InputError(
            "engine", "nothing to check: give --engine, --speculative-config, --server-args, --log, …"
        )
    name, version = _engine(engine)
    read = None if log is None else read_log(log)
    arguments = None if server_args is None else _arguments(server_args)
    name = _one_engine(name, arguments, read, speculative_config is not None)
    logged = _logged_version(name, read)
    counts: dict[str, Any] = {key: _count(key, given[key]) for key in _COUNTS if key in given}
    typed = Settings(method=method, **counts)
    own = _SETTINGS.get(name, other_settings)
    layers = [typed, _config_settings(speculative_config, name)]
    layers += [] if arguments is None else [own(arguments)]
    layers += [] if read is None else [_logged_settings(read, own(read.arguments))]
    settings, differing = layered(layers)
    sample = None if requests is None else read_requests(requests)
    case = Case(
        engine=name,
        version=version or logged,
        settings=settings,
        arguments=_merged(arguments, read),
        requests=sample,
        target=target or _packaged(settings.target_name),
        draft=draft or _packaged(settings.draft_name),
        seen=() if read is None else tuple(_seen(read, sample)),
        log_lines=None if read is None else read.lines,
    )
    notes = (*version_disagreement(version, logged), *differing)
    return check_case(case, (*notes, *(() if sample is None else sample.notes)))


def _packaged(name: str | None) -> ModelShape | None:
    """The model of this name where the catalogue has it; no path is opened for a name in a log."""
    known = None if name is None else catalogue_name(name)
    return None if known is None else load_model(known)


def _engine(text: str | None) -> tuple[str | None, Version | None]:
    if text is None:
        return None, None
    choice = parse_engine(text)
    if choice.name is None:
        raise InputError("engine", f"{shown(text)} has no rules to check; one of {', '.join(CONFIG_ENGINES)}")
    return choice.name, choice.version


def _one_engine(
    name: str | None, arguments: Arguments | None, log: StartLog | None, config: bool
) -> str | None:
    """The engine that every input means; an input of another engine is an error."""
    inputs = (
        ("server_args", None if arguments is None else arguments.engine),
        ("log", None if log is None else log.engine),
        ("speculative_config", "vllm" if config else None),
    )
    for source, told in inputs:
        if told is not None and name not in (None, told):
            raise InputError(source, f"is of {told}, and the engine is {name}; give one engine's")
        name = name or told
    return name


def _logged_version(name: str | None, log: StartLog | None) -> Version | None:
    if log is None or log.version is None or log.engine != name:
        return None
    try:
        return parse_engine(f"{name}@{log.version}").version
    except InputError:
        return None


def _count(name: str, value: Any) -> int:
    return int(require_count(name, value, _COUNTS[name], MAX_K if name == "k" else None))


def _config_settings(config: str | Mapping[str, Any] | None, engine: str | None) -> Settings:
    if config is None:
        return Settings()
    if isinstance(config, Mapping):
        return config_settings({str(key): value for key, value in config.items()})
    text = text_or_file("speculative_config", config)
    with _typed("speculative_config", text is config):
        return _text_settings(text)


def _text_settings(text: str) -> Settings:
    if text.lstrip().startswith("-"):
        given = vllm_settings(parse_arguments(text))
        if given.config is None:
            raise DataError(
                "--speculative-config",
                "flags without one of speculation; give JSON or --speculative-config.key value",
            )
        return given
    return config_settings(table_of(plain_document(text, "--speculative-config"), "--speculative-config"))


def _arguments(server_args: str) -> Arguments:
    text = text_or_file("server_args", server_args)
    with _typed("server_args", text is server_args):
        return parse_arguments(text)


@contextmanager
def _typed(name: str, typed: bool) -> Iterator[None]:
    """Makes what is wrong in a typed text a fault of its option, and leaves that of a file as it is."""
    try:
        yield
    except DataError as fault:
        if not typed:
            raise
        problem = ": ".join(part for part in (fault.entry, fault.problem) if part)
        raise InputError(name, problem) from None


def _logged_settings(log: StartLog, settings: Settings) -> Settings:
    """The settings of a log's flags, and what else it tells of the server."""
    return replace(settings, cpu=log.cpu or None, v2_runner=False if log.v1_runner else settings.v2_runner)


def _merged(arguments: Arguments | None, log: StartLog | None) -> Arguments | None:
    if log is None or arguments is None:
        return arguments if log is None else log.arguments
    return replace(arguments, flags={**log.arguments.flags, **arguments.flags})


def _seen(log: StartLog, sample: Requests | None) -> Iterator[Finding]:
    """What the log reports itself; of request fields only what the sample, where there is one, holds."""
    for one in log.seen:
        if sample is None or one.code != "log-sampling-parameters":
            yield one
        elif count := max(sample.count("min_p"), sample.count("logit_bias")):
            yield replace(
                one,
                text=f"{share(count, sample.total)} have one: {one.text}",
                remedy="leave them out, or send those requests to a server without speculation",
            )
