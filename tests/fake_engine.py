"""A serving engine that is none: it streams completions by a law of time and of acceptance that it knows.

Time is its own. A step moves it on, sends each sequence its tokens, and waits until the client has looked at
the clock once for each event; so every stamp is exact, however busy the machine is.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import Any

PATIENCE_S = 20.0
"""Real seconds after which a client that does not look at the clock fails the test."""
CACHED = 0.001
"""Seconds of the pass over a prompt that was seen before."""
OTHER_TOKENS = 100
"""Output tokens of a request of somebody else."""


class FakeTime:
    """Seconds that pass when told to; who asks is counted."""

    def __init__(self) -> None:
        self.now_s, self.asked = 1000.0, 0
        self.changed = threading.Condition()

    def __call__(self) -> float:
        with self.changed:
            self.asked += 1
            self.changed.notify_all()
            return self.now_s

    def advance(self, seconds: float) -> None:
        with self.changed:
            self.now_s += seconds

    def wait_for(self, asked: int, is_over: Callable[[], bool]) -> None:
        """Wait until it was asked so often, or all is over."""
        with self.changed:
            seen = self.changed.wait_for(lambda: self.asked >= asked or is_over(), PATIENCE_S)
        assert seen, "nobody reads the stream"


@dataclass
class Sequence:
    """A request under way."""

    body: dict[str, Any]
    handler: BaseHTTPRequestHandler
    is_chat: bool
    sent: int = 0
    held: int = 0
    steps: list[int] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def limit(self) -> int:
        return int(self.body["max_tokens"])

    @property
    def prompt(self) -> str:
        return str(self.body.get("prompt") or self.body["messages"][-1]["content"])

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt.split())


Fault = Callable[[BaseHTTPRequestHandler], None]


class FakeEngine:
    """A server on this machine.

    Args:
        clock: Its time; the client's, too.
        k: Draft tokens per step; 0 without speculation.
        accepts: Probability of each draft token, given that all before it were accepted.
        step_s: Seconds of a step by the sequences in it.
        prefill_s: Seconds of the pass over each prompt.
        kind: `vllm` or `llama.cpp`: names of its metrics, and how it sends a burst.
        most_running: Sequences that it runs at a time.
        seed: Of what is accepted.
        drafting_share: Share of the steps that draft, as where a lookup finds no match.
        holds_back: Whether the tokens of every other step wait for those of the next.
        reports_running: Share of the requests in a step that its counters tell of.

    Attributes:
        url: Its base URL.
        asked: Method, path, headers and body of each request.
        together: Requests that it waits for before it begins.
        faults: By number of the POST request, from 0 and −1 for all, what answers in place of the engine.
        others: Requests of somebody else, which its counters show with the next ones.
        steps: Accepted draft tokens of each request-step.
        on_step: Called before each step.
    """

    def __init__(
        self,
        clock: FakeTime,
        *,
        k: int = 0,
        accepts: Iterable[float] = (),
        step_s: Callable[[int], float] = lambda batch: 0.01 + 0.001 * batch,
        prefill_s: float = 0.05,
        kind: str = "vllm",
        most_running: int = 64,
        seed: int = 1,
        drafting_share: float = 1.0,
        holds_back: bool = False,
        reports_running: float = 1.0,
    ) -> None:
        self.reports_running = reports_running
        self.clock, self.k, self.accepts = clock, k, tuple(accepts)
        self.step_s, self.prefill_s, self.kind, self.most_running = step_s, prefill_s, kind, most_running
        self.random, self.drafting_share, self.holds_back = Random(seed), drafting_share, holds_back
        self.asked: list[tuple[str, str, dict[str, str], dict[str, Any]]] = []
        self.together, self.others, self.posts, self.number = 1, 0, 0, 0
        self.faults: dict[int, Fault] = {}
        self.seen: set[str] = set()
        self.serves_metrics, self.padding = True, 0
        self.model = "m"
        self.on_step: Callable[[], None] = lambda: None
        self.steps: list[int] = []
        self.counts: dict[str, float] = {}
        self.reached = [0] * k
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.changed = threading.Condition()
        self.is_closing = threading.Event()
        self.server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.threads = [
            threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True),
            threading.Thread(target=self._run, daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        self.is_closing.set()
        for changed in (self.changed, self.clock.changed):
            with changed:
                changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
        for thread in self.threads:
            thread.join(PATIENCE_S)

    @property
    def acceptance_length(self) -> float:
        """E of all steps so far."""
        return 1 + sum(self.steps) / len(self.steps)

    # ------------------------------------------------------------ decoding

    def take(self, sequence: Sequence) -> None:
        with self.changed:
            self.waiting.append(sequence)
            self.changed.notify_all()
        while not (sequence.done.wait(0.1) or self.is_closing.is_set()):
            pass

    def _run(self) -> None:
        while not self.is_closing.is_set():
            with self.changed:
                ready = self.changed.wait_for(
                    lambda: len(self.waiting) >= self.together or self.is_closing.is_set(), 0.1
                )
            if ready and not self.is_closing.is_set():
                self._round()

    def _round(self) -> None:
        """Those that wait, to their end; who comes later waits for the next round."""
        with self.changed:
            admitted, self.waiting = self.waiting, []
        while (admitted or self.running) and not self.is_closing.is_set():
            while admitted and len(self.running) < self.most_running:
                self._prefill(admitted.pop(0))
            self.on_step()
            self._step()

    def _prefill(self, one: Sequence) -> None:
        cached = one.prompt in self.seen
        self.clock.advance(CACHED if cached else self.prefill_s)
        self.seen.add(one.prompt)
        prompt = one.prompt_tokens
        self._add(prompt_tokens=prompt, first_tokens=1, iterations=1 / self.reports_running)
        self.running.append(one)
        self._send([(one, 1)])

    def _step(self) -> None:
        self.clock.advance(self.step_s(len(self.running)))
        self.number += 1
        for one in self.running:
            accepted = self._accepted()
            self.steps.append(accepted)
            one.steps.append(accepted)
            one.held = min(one.held + 1 + accepted, one.limit - one.sent)
        self._add(steps=len(self.running), iterations=1 / self.reports_running)
        keeps = self.holds_back and self.number % 2 == 1
        ready = [one for one in self.running if not keeps or one.sent + one.held >= one.limit]
        self._send([(one, one.held) for one in ready])

    def _accepted(self) -> int:
        if not self.k or self.random.random() >= self.drafting_share:
            return 0
        accepted = 0
        while accepted < self.k and self.random.random() < self.accepts[accepted]:
            self.reached[accepted] += 1
            accepted += 1
        self._add(drafts=1, drafted=self.k, accepted=accepted)
        return accepted

    def _send(self, bursts: list[tuple[Sequence, int]]) -> None:
        """Each its tokens, and the end where that is reached; then wait until all was seen."""
        asked = self.clock.asked
        expected = 0
        for one, tokens in bursts:
            one.sent += tokens
            one.held = 0
            self._add(generated=tokens)
            ended = one.sent >= one.limit
            if ended:
                self.running.remove(one)
                self._add(ended=1 + self.others, generated=OTHER_TOKENS * self.others)
                self.others = 0
            events = self._events(one, tokens, ended)
            if _written(one, events):
                expected += len(events)
            elif one in self.running:
                self.running.remove(one)
        self.clock.wait_for(asked + expected, self.is_closing.is_set)
        for one, _ in bursts:
            if one not in self.running:
                one.done.set()

    def _events(self, one: Sequence, tokens: int, ended: bool) -> list[str]:
        singly = self.kind == "llama.cpp"
        parts = [1] * tokens if singly else [tokens]
        first = one.sent - tokens
        events = []
        for part in parts:
            first += part
            last = ended and first == one.sent
            events.append(self._event(one, "ab " * part, "length" if last else None, first))
        if ended:
            usage = {"prompt_tokens": one.prompt_tokens, "completion_tokens": one.sent}
            whole = {"choices": [], "usage": usage} | self._timings(one)
            events += [json.dumps(whole), "[DONE]"]
        return events

    def _timings(self, one: Sequence) -> dict[str, Any]:
        if self.kind != "llama.cpp":
            return {}
        drafted, accepted = self.k * len(one.steps), sum(one.steps)
        told = {"prompt_n": one.prompt_tokens, "predicted_n": one.sent, "predicted_ms": 1000.0}
        return {"timings": told | {"draft_n": drafted, "draft_n_accepted": accepted}}

    def _event(self, one: Sequence, text: str, finish: str | None, so_far: int) -> str:
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish}
        choice |= {"delta": {"content": text}} if one.is_chat else {"text": text}
        event: dict[str, Any] = {"choices": [choice]}
        if one.body["stream_options"].get("continuous_usage_stats"):
            event["usage"] = {"prompt_tokens": one.prompt_tokens, "completion_tokens": so_far}
        return json.dumps(event)

    # ------------------------------------------------------------ what it tells

    def _add(self, **counts: float) -> None:
        for name, value in counts.items():
            self.counts[name] = self.counts.get(name, 0) + value

    def metrics(self) -> str:
        write = self._vllm if self.kind == "vllm" else self._llama_cpp
        return "\n".join(write()) + "\n" + "#" * self.padding

    def _vllm(self) -> Iterable[str]:
        label = f'engine="0",model_name="{self.model}"'
        of = self.counts.get
        yield f"vllm:num_requests_running{{{label}}} {len(self.running)}"
        for name, key in (
            ("prompt_tokens_total", "prompt_tokens"),
            ("generation_tokens_total", "generated"),
            ("time_to_first_token_seconds_count", "first_tokens"),
            ("inter_token_latency_seconds_count", "steps"),
            ("iteration_tokens_total_count", "iterations"),
        ):
            yield f"vllm:{name}{{{label}}} {of(key, 0)}"
        yield f'vllm:request_success_total{{{label},finished_reason="length"}} {of("ended", 0)}'
        if self.k:
            yield f"vllm:spec_decode_num_drafts_total{{{label}}} {of('drafts', 0)}"
            yield f"vllm:spec_decode_num_draft_tokens_total{{{label}}} {of('drafted', 0)}"
            yield f"vllm:spec_decode_num_accepted_tokens_total{{{label}}} {of('accepted', 0)}"
            for place, reached in enumerate(self.reached):
                name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
                yield f'{name}{{{label},position="{place}"}} {reached}'

    def _llama_cpp(self) -> Iterable[str]:
        of = self.counts.get
        yield f"llamacpp:prompt_tokens_total {of('prompt_tokens', 0)}"
        yield f"llamacpp:tokens_predicted_total {of('generated', 0)}"
        yield f"llamacpp:requests_processing {len(self.running)}"
        if self.k:
            yield f"llamacpp:spec_decode_num_draft_tokens_total {of('drafted', 0)}"
            yield f"llamacpp:spec_decode_num_accepted_tokens_total {of('accepted', 0)}"
            yield f"llamacpp:spec_decode_num_drafts_total {of('drafts', 0)}"
            for place, reached in enumerate(self.reached):
                name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
                yield f'{name}{{position="{place}"}} {reached}'

    def document(self, path: str) -> str | None:
        """What a GET answers."""
        owner = "vllm" if self.kind == "vllm" else "llamacpp"
        if path == "/v1/models":
            return json.dumps({"object": "list", "data": [{"id": self.model, "owned_by": owner}]})
        if path == "/version" and self.kind == "vllm":
            return json.dumps({"version": "0.32.0"})
        return self.metrics() if path == "/metrics" and self.serves_metrics else None


def _written(one: Sequence, events: Iterable[str]) -> bool:
    """Whether the client was still there."""
    try:
        one.handler.wfile.write("".join(f"data: {event}\n\n" for event in events).encode())
        one.handler.wfile.flush()
    except OSError:
        return False
    return True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left."""


def _handler(engine: FakeEngine) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            engine.asked.append(("GET", self.path, dict(self.headers.items()), {}))
            document = engine.document(self.path)
            if document is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(document.encode())))
            self.end_headers()
            self.wfile.write(document.encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            engine.asked.append(("POST", self.path, dict(self.headers.items()), body))
            with engine.changed:
                fault = engine.faults.get(engine.posts) or engine.faults.get(-1)
                engine.posts += 1
            if fault is not None:
                fault(self)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            engine.take(Sequence(body, self, self.path.endswith("/chat/completions")))

    return Handler
