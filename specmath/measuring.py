"""The one measurement that would narrow an answer most, as commands for the user's engine."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from specmath.checks import require_count, require_range

PROMPTS_PER_SEQUENCE: Final = 4
"""Requests a sequence slot serves in a run: enough that its start and its end do not count."""
LEAST_PROMPTS: Final = 16
_PRINTS_TPOT: Final = ("vllm", "sglang")
"""Engines whose benchmark prints the mean time per output token, free of the time to the first."""
_VLLM_METHODS: Final = {
    "draft-model": "draft_model",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "mtp": "mtp",
    "ngram": "ngram",
}
_SGLANG_METHODS: Final = {
    "draft-model": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
    "ngram": "NGRAM",
}
_LLAMA_CPP_METHODS: Final = {
    "draft-model": "draft-simple",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
    "ngram": "ngram-simple",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setup:
    target: str
    draft: str | None
    k: int
    batch: int
    method: str

    @property
    def prompts(self) -> int:
        return max(LEAST_PROMPTS, PROMPTS_PER_SEQUENCE * self.batch)

    @property
    def typed_target(self) -> str:
        return shlex.quote(self.target)

    @property
    def typed_draft(self) -> str:
        return "DRAFT" if self.draft is None else shlex.quote(self.draft)


def next_measurement(
    engine: str,
    *,
    k: int,
    batch: int,
    target: str = "TARGET",
    draft: str | None = None,
    method: str = "draft-model",
) -> str:
    """How to measure the pair at this k and batch on an engine, and how to feed it back, a line each.

    The lines hold the run without and with speculation and the `--measured` that takes the result. Prompts
    should be the user's own: drafts accept next to nothing on random tokens.

    Args:
        engine: `vllm`, `sglang`, `tensorrt-llm`, `llama.cpp`, `mlx`, `transformers` (a version after @ is
            allowed); for any other name the wording is general.
        k: Draft tokens per step, at least 1.
        batch: Sequences in the pass.
        target: Name of the target, as the engine knows it.
        draft: Name of the draft; None where the method runs none of its own.
        method: `draft-model`, `eagle`, `eagle3`, `mtp` or `ngram`; for any other name a place holder stands
            where the engine wants its own.

    >>> print(next_measurement("typical", k=3, batch=8))
    off: generate from the same prompts with 8 requests in flight, and note output tokens per second
    on:  the same with k = 3 draft tokens per step; note the tokens per step too, bonus token included
    then: --measured k=3,batch=8,off=…tok/s,on=…tok/s,acceptance-length=…
    """
    setup = _Setup(
        target=target,
        draft=draft,
        k=int(require_count("k", k, 1)),
        batch=int(require_count("batch", batch, 1)),
        method=method,
    )
    name = engine.partition("@")[0]
    off, on = _COMMANDS.get(name, _generic)(setup)
    unit = "ms" if name in _PRINTS_TPOT else "tok/s"
    feedback = f"k={setup.k},batch={setup.batch},off=…{unit},on=…{unit},acceptance-length=…"
    return f"off: {off}\non:  {on}\nthen: --measured {feedback}"


def undecided_batch(batch: npt.ArrayLike, low: npt.ArrayLike, high: npt.ArrayLike) -> int:
    """The batch worth measuring: where the range of the speed-up straddles 1, and most evenly.

    Where the range leaves no batch open, the one whose nearer end is closest to 1.

    Args:
        batch: Batches, each at least 1.
        low: Low end of the speed-up at each, above 0.
        high: High end.

    >>> undecided_batch([1, 8, 64], [1.3, 0.9, 0.6], [1.8, 1.3, 0.9])
    8
    """
    batches = np.atleast_1d(require_count("batch", batch, 1))
    least, most = (
        np.log(np.atleast_1d(require_range(name, value, above=0)))
        for name, value in (("low", low), ("high", high))
    )
    gap = np.maximum(least, -most)  # below 0 where the range straddles 1; at its lowest in the middle
    return int(batches[int(np.argmin(gap))])


def _vllm(setup: _Setup) -> tuple[str, str]:
    named = {"method": _VLLM_METHODS.get(setup.method, "METHOD"), "model": setup.draft}
    texts = [f'"{key}":{_in_json(value)}' for key, value in named.items() if value is not None]
    config = "{" + ",".join([*texts, f'"num_speculative_tokens":{setup.k}']) + "}"
    bench = (
        f"vllm bench serve --model {setup.typed_target} --dataset-name custom --dataset-path prompts.jsonl "
        f"--max-concurrency {setup.batch} --num-prompts {setup.prompts}"
    )
    return f"vllm serve {setup.typed_target}, then {bench}", (
        f"vllm serve {setup.typed_target} --speculative-config {shlex.quote(config)}, then the "
        "same bench; it prints the mean TPOT and the acceptance length"
    )


def _in_json(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _sglang(setup: _Setup) -> tuple[str, str]:
    launch = f"python -m sglang.launch_server --model-path {setup.typed_target}"
    draft = "" if setup.draft is None else f"--speculative-draft-model-path {shlex.quote(setup.draft)} "
    bench = (
        "python -m sglang.bench_serving --backend sglang --dataset-name sharegpt "
        f"--max-concurrency {setup.batch} --num-prompts {setup.prompts}"
    )
    return f"{launch}, then {bench}", (
        f"{launch} --speculative-algorithm {_SGLANG_METHODS.get(setup.method, 'ALGORITHM')} {draft}"
        f"--speculative-num-steps {setup.k} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {setup.k + 1}, then the same bench; it prints the mean TPOT and the "
        "accept length"
    )


def _tensorrt_llm(setup: _Setup) -> tuple[str, str]:
    bench = (
        f"trtllm-bench --model {setup.typed_target} throughput --backend pytorch --dataset prompts.jsonl "
        f"--concurrency {setup.batch}"
    )
    return bench, (
        f"{bench} --extra_llm_api_options spec.yaml (--config in newer ones), the file with "
        f"speculative_config: {{decoding_type: …, max_draft_len: {setup.k}}}"
    )


def _llama_cpp(setup: _Setup) -> tuple[str, str]:
    launch = f"llama-server -m {setup.typed_target} -np {setup.batch}"
    draft = "" if setup.draft is None else f"-md {shlex.quote(setup.draft)} "
    kind = _LLAMA_CPP_METHODS.get(setup.method, "TYPE")
    return f"{launch}, then {setup.batch} requests at a time; tok/s of all together", (
        f"{launch} {draft}--spec-type {kind} --spec-draft-n-max {setup.k} (in 2025: --draft-max {setup.k}), "
        "then the same; E = predicted_n/(predicted_n − draft_n_accepted) of the answers' timings"
    )


def _mlx(setup: _Setup) -> tuple[str, str]:
    generate = f"mlx_lm.generate --model {setup.typed_target} --max-tokens 512 --prompt PROMPT"
    return generate, (
        f"{generate} --draft-model {setup.typed_draft} --num-draft-tokens {setup.k}; "
        "E = tokens/(tokens not `from_draft`)"
    )


def _transformers(setup: _Setup) -> tuple[str, str]:
    generate = "model.generate(**inputs, max_new_tokens=512"
    return f"time {generate})", (
        f"time {generate}, assistant_model=draft) with num_assistant_tokens = {setup.k} and a constant "
        "schedule in the draft's generation_config; E = tokens per forward pass of the target"
    )


def _generic(setup: _Setup) -> tuple[str, str]:
    requests = f"{setup.batch} requests in flight" if setup.batch > 1 else "one request at a time"
    return f"generate from the same prompts with {requests}, and note output tokens per second", (
        f"the same with k = {setup.k} draft tokens per step; note the tokens per step too, "
        "bonus token included"
    )


_COMMANDS: Final[dict[str, Callable[[_Setup], tuple[str, str]]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "tensorrt-llm": _tensorrt_llm,
    "llama.cpp": _llama_cpp,
    "mlx": _mlx,
    "transformers": _transformers,
}
