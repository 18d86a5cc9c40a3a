"""One server under load: its model, what each request asks for, and its levels."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

from calibrate.serving.answers import Answer, read_answer
from calibrate.serving.counters import Counted, Counters
from calibrate.serving.load import Level
from calibrate.serving.load_plan import LoadPlan, LoadProgress, Prompt, PromptPool
from calibrate.serving.streaming import Halt, StreamLimits, stream
from specmath.engines.addresses import parse_address
from specmath.engines.server_facts import ServerFacts, facts_of
from specmath.engines.servers import MODELS, Server, ask_server
from specmath.engines.values import text
from specmath.errors import AccessError, DataError, shown

ENGINES_IGNORING_EOS: Final = ("vllm", "sglang", "llama.cpp", "tensorrt-llm", "lmdeploy")
"""Engines that take `ignore_eos` in a request; others may refuse a request that has it."""
ENGINES_COUNTING: Final = ("vllm", "sglang")
"""Engines that tell the tokens so far in each event, where asked to."""


class Arm:
    """One of the two servers."""

    def __init__(
        self,
        url: str,
        prompts: Sequence[Prompt],
        plan: LoadPlan,
        model: str | None,
        k: int | None,
        progress: Callable[[LoadProgress], None] | None,
        clock: Callable[[], float],
        wait: Callable[[float], None],
        halt: Halt,
    ) -> None:
        self.server: Server = ask_server(url)
        if MODELS not in self.server.answers:
            problem = f"has no {MODELS}; give the base URL of an OpenAI-compatible server"
            raise AccessError(self.server.shown, problem)
        self.base, self.shown, self.engine = self.server.base, self.server.shown, self.server.engine
        self.model = _model(self.server, model)
        self.plan, self.progress, self.clock, self.halt = plan, progress, clock, halt
        self.pool = PromptPool(prompts)
        self.counters = Counters(url, self.model, k, wait)
        self.limits = StreamLimits(total_s=plan.request_s, lines=4 * plan.output_tokens + 64)

    @property
    def facts(self) -> ServerFacts:
        """Its set-up, as far as it tells."""
        return facts_of(self.server, self.model)

    def tell(self, concurrency: int, done: int) -> None:
        """Say where the load stands, before a round."""
        if self.progress is not None:
            most = 1 + self.plan.most_rounds
            self.progress(LoadProgress(server=self.shown, concurrency=concurrency, done=done, most=most))

    def warmed(self) -> None:
        """Read the counters before what is timed."""
        self.counters.begin()

    def counted(self, level: Level) -> Counted:
        """What the server counted meanwhile."""
        return self.counters.end(level)

    def ask(self, prompt: Prompt) -> Answer:
        """The answer to one prompt."""
        path, question = (
            ("/v1/completions", {"prompt": prompt})
            if isinstance(prompt, str)
            else ("/v1/chat/completions", {"messages": list(prompt)})
        )
        body = json.dumps({"model": self.model, **question, **self.settings}).encode()
        address = parse_address(self.base + path)
        return read_answer(stream(address, body, self.clock, limits=self.limits, halt=self.halt))

    @property
    def settings(self) -> dict[str, Any]:
        """What each request asks for, beside the prompt."""
        told: dict[str, Any] = {"include_usage": True}
        if self.engine in ENGINES_COUNTING:
            told["continuous_usage_stats"] = True
        asked: dict[str, Any] = {
            "max_tokens": self.plan.output_tokens,
            "temperature": self.plan.temperature,
            "seed": self.plan.seed,
            "stream": True,
            "stream_options": told,
        }
        if self.plan.ignore_eos and self.engine in ENGINES_IGNORING_EOS:
            asked["ignore_eos"] = True
        return asked


def _model(server: Server, wanted: str | None) -> str:
    names = [name for one in server.models() if (name := text(one.get("id")))]
    if wanted is not None:
        if names and wanted not in names:
            raise DataError(server.shown, f"serves no model {shown(wanted)}; it has {_listed(names)}")
        return wanted
    if len(names) != 1:
        problem = f"serves {_listed(names)}; name one of them" if names else "names no model; name it"
        raise DataError(server.shown, problem)
    return names[0]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(shown(name) for name in names[:5]) + more
