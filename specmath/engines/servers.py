"""A running server: which of the paths that engines serve it answers.

A base URL is asked for its models first, which names most engines, then for metrics and for what that engine
tells elsewhere. A URL with a path is used as it is. trtllm-serve's /metrics is emptied by reading, so it is
read only where its Prometheus series do not count drafts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from specmath.engines.addresses import TOKEN, parse_address, shown_url
from specmath.engines.content import Exposition
from specmath.engines.exposition import parse_exposition
from specmath.engines.fetching import USUAL, Limits, Reply, fetch, get
from specmath.engines.values import bare_name, mapping, objects, text
from specmath.errors import AccessError, DataError
from specmath.strict_json import json_document

MODELS: Final = "/v1/models"
METRICS: Final = "/metrics"
PROMETHEUS: Final = "/prometheus/metrics"
INFO: Final = ("/server_info", "/get_server_info")
"""SGLang's; the second is the name of older versions. vLLM has the first in development mode."""
_DETAILS: Final = {
    "vllm": ("/version", INFO[0]),
    "sglang": (*INFO, "/get_model_info"),
    "tensorrt-llm": ("/version",),
    "llama.cpp": ("/props",),
    "tgi": ("/info",),
    "lmdeploy": (),
}
_ANY: Final = ("/version", *INFO, "/get_model_info", "/props", "/info")
_OWNERS: Final = {"llamacpp": "llama.cpp", "tensorrt_llm": "tensorrt-llm"}
_PREFIXES: Final = {"trtllm": "tensorrt-llm", "llamacpp": "llama.cpp"}
_SWITCHES: Final = {
    "sglang": "start it with --enable-metrics",
    "llama.cpp": "start it with --metrics",
    "tensorrt-llm": "set enable_iter_perf_stats and return_perf_metrics",
}
_SUPERSEDED: Final = {INFO[1]: INFO[0], "/get_model_info": INFO[0]}


@dataclass(slots=True)
class Server:
    """The answers of a server by path, and why other paths gave none."""

    base: str = field(repr=False)
    shown: str
    limits: Limits
    answers: dict[str, Reply] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)
    metrics: Exposition | None = None
    is_up: bool = False
    named_version: str | None = None

    def document(self, *paths: str) -> Any:
        """The JSON of the first of the paths that has some; None where none has."""
        for path in paths:
            if path in self.answers:
                try:
                    return json_document(self.answers[path].text, self.shown + path)
                except DataError:
                    continue
        return None

    @property
    def engine(self) -> str | None:
        """The engine, where its list of models or its metrics name it."""
        owners = (text(model.get("owned_by")) for model in self.models())
        named = (_OWNERS.get(owner, owner) for owner in owners if owner is not None)
        return next((name for name in named if name in _DETAILS), None) or _engine_of(self.metrics)

    @property
    def version(self) -> str | None:
        """The engine's version, where it was named or a path tells it."""
        if self.named_version:
            return self.named_version
        told = [mapping(self.document(path)) for path in ("/version", *INFO, "/info")]
        versions = [text(one.get("version")) for one in told]
        versions.append(text(mapping(self.document("/props")).get("build_info")))
        return next((version for version in versions if version), None)

    def models(self) -> Sequence[Any]:
        """The models that it lists, adapters left out."""
        listed = objects(mapping(self.document(MODELS)).get("data"))
        return [model for model in listed if not model.get("parent")]

    def ask(self, path: str) -> bool:
        """Ask one path; whether it answered with what is asked for."""
        try:
            reply = get(self.base + path, self.limits)
        except (AccessError, DataError) as fault:
            self.faults[path] = fault.problem
            self.is_up |= isinstance(fault, DataError)
            return False
        self.is_up = True
        if not reply.is_good or reply.text[:200].lstrip().lower().startswith(("<!doctype", "<html")):
            self.faults[path] = str(reply.status) if not reply.is_good else "a web page"
            return False
        self.answers[path] = reply
        return True


def ask_server(url: str, limits: Limits = USUAL, *, version: str | None = None) -> Server:
    """What a server answers, by GET alone.

    Args:
        url: Its base URL (`/v1` at the end is left out), or the URL of its metrics or of another document,
            which is used as it is.
        limits: Time for each answer, and size.
        version: Version of the engine, where it does not tell.

    Raises:
        AccessError: nobody answers there, or none of the paths is known.
        InputError: the URL is none.
    """
    path = urlsplit(parse_address(url).url).path.rstrip("/")
    if path in ("", "/v1"):
        base = url.strip().partition("?")[0].partition("#")[0].rstrip("/").removesuffix("/v1")
        return _discovered(Server(base, shown_url(base), limits, named_version=version))
    server = Server(
        url.strip(), shown_url(url.strip()), limits, answers={"": fetch(url, limits)}, named_version=version
    )
    server.metrics = _exposition(server, "")
    return server


def _discovered(server: Server) -> Server:
    end_s = time.monotonic() + server.limits.total_s
    server.ask(MODELS)
    if MODELS in server.faults and time.monotonic() >= end_s:
        raise AccessError(server.shown, server.faults[MODELS])  # silent: other paths would cost as much again
    drains = server.engine == "tensorrt-llm"
    if drains or (server.ask(METRICS) and is_json(server.answers[METRICS])):
        server.ask(PROMETHEUS)
    if not server.is_up:
        raise AccessError(server.shown, server.faults[MODELS])
    server.metrics = _exposition(server, METRICS, PROMETHEUS)
    engine = server.engine
    for path in _ANY if engine is None else _DETAILS[engine]:
        if time.monotonic() < end_s and _SUPERSEDED.get(path) not in server.answers:
            server.ask(path)
    if not server.answers:
        raise AccessError(server.shown, _refusal(server))
    return server


def _refusal(server: Server) -> str:
    asks = {"401", "403"} & set(server.faults.values())
    remedy = f"it asks for credentials: set {TOKEN}" if asks else "give the URL of its metrics"
    return f"answers none of the paths of a serving engine: {failures_of(server)}; {remedy}"


def failures_of(server: Server) -> str:
    """The paths that gave nothing, those that failed alike together."""
    alike: dict[str, list[str]] = {}
    for path, fault in server.faults.items():
        alike.setdefault(fault[:80], []).append(path)
    return ", ".join(f"{', '.join(paths)} ({fault})" for fault, paths in alike.items())


def _exposition(server: Server, *paths: str) -> Exposition | None:
    for path in paths:
        if path in server.answers and not is_json(server.answers[path]):
            found = parse_exposition(server.answers[path].text, source=server.shown + path)
            if found.samples:
                return found
    return None


def is_json(reply: Reply) -> bool:
    return reply.body[:100].lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"{", b"["))


def _engine_of(metrics: Exposition | None) -> str | None:
    names = [sample.name for sample in metrics.samples] if metrics else []
    for prefix in ("vllm", "sglang", "trtllm", "llamacpp", "lmdeploy", "tgi"):
        if any(bare_name(name, prefix) for name in names):
            return _PREFIXES.get(prefix, prefix)
    return None


def remedy_of(server: Server) -> str:
    """What to do where it serves no metrics."""
    return _SWITCHES.get(server.engine or "", "give the URL of its metrics, or a log")


def broken_metrics(server: Server) -> str:
    """What is wrong with metrics that it serves, but that cannot be taken; empty where it serves none."""
    fault = server.faults.get(METRICS, "")
    is_there = " " in fault and not fault.startswith("a web page")  # else the number of a status
    return f"its {METRICS} {fault}" if is_there else ""


def metrics_of(url: str, limits: Limits = USUAL) -> Reply:
    """The metrics page of a server, or what a URL with a path holds, as it came."""
    server = ask_server(url, limits)
    if server.metrics is None and "" not in server.answers and METRICS not in server.answers:
        broken = broken_metrics(server)
        raise DataError(server.shown, broken or f"serves no metrics; {remedy_of(server)}")
    return next(server.answers[path] for path in ("", METRICS, PROMETHEUS) if path in server.answers)
