"""The one measurement that would narrow an answer most, as commands for the user's engine."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from specmath.checks import require_count, require_range
from specmath.drafters.base import Drafter
from specmath.results import Advice

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
    tp: int

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
    tp: int = 1,
) -> str:
    """How to measure the pair at this k and batch on an engine, and how to feed it back, a line each.

    The lines hold the run without and with speculation and the `--measured` that takes the result. Prompts
    should be the user's own, as long as in production: drafts accept next to nothing on random tokens. Names
    are those of the catalogue: the engine wants its own, a hub id or a path.

    Args:
        engine: `vllm`, `sglang`, `tensorrt-llm`, `llama.cpp`, `mlx`, `transformers` (a version after @ is
            allowed); for any other name the wording is general.
        k: Draft tokens per step, at least 1.
        batch: Sequences in the pass.
        target: Name of the target, as the engine knows it.
        draft: Name of the draft; None where the method runs none of its own.
        method: `draft-model`, `eagle`, `eagle3`, `mtp` or `ngram`; for any other name a place holder stands
            where the engine wants its own.
        tp: Tensor parallelism of the target.

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
        tp=int(require_count("tp", tp, 1)),
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
    needs_draft = setup.method not in ("mtp", "ngram", "suffix")
    model = setup.draft if setup.draft is not None or not needs_draft else "DRAFT"
    named = {"method": _VLLM_METHODS.get(setup.method, "METHOD"), "model": model}
    texts = [f'"{key}":{_in_json(value)}' for key, value in named.items() if value is not None]
    config = "{" + ",".join([*texts, f'"num_speculative_tokens":{setup.k}']) + "}"
    ranks = f" --tensor-parallel-size {setup.tp}" if setup.tp > 1 else ""
    bench = (
        f"vllm bench serve --model {setup.typed_target} --dataset-name custom --dataset-path prompts.jsonl "
        f"--max-concurrency {setup.batch} --num-prompts {setup.prompts}"
    )
    serve = f"vllm serve {setup.typed_target}{ranks}"
    return f"{serve}, then {bench}", f"add --speculative-config {shlex.quote(config)}, then the same bench"


def _in_json(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _sglang(setup: _Setup) -> tuple[str, str]:
    ranks = f" --tp {setup.tp}" if setup.tp > 1 else ""
    launch = f"python -m sglang.launch_server --model-path {setup.typed_target}{ranks}"
    needs_draft = setup.method not in ("mtp", "ngram", "suffix")
    drafted = f"--speculative-draft-model-path {setup.typed_draft} " if needs_draft or setup.draft else ""
    bench = (
        "python -m sglang.bench_serving --backend sglang --dataset-name sharegpt "
        f"--max-concurrency {setup.batch} --num-prompts {setup.prompts}"
    )
    return f"{launch}, then {bench}", (
        f"add --speculative-algorithm {_SGLANG_METHODS.get(setup.method, 'ALGORITHM')} {drafted}"
        f"--speculative-num-steps {setup.k} --speculative-eagle-topk 1 "
        f"--speculative-num-draft-tokens {setup.k + 1}, then the same bench"
    )


def _tensorrt_llm(setup: _Setup) -> tuple[str, str]:
    ranks = f" --tp {setup.tp}" if setup.tp > 1 else ""
    bench = (
        f"trtllm-bench --model {setup.typed_target} throughput --backend pytorch --dataset prompts.jsonl "
        f"--concurrency {setup.batch}{ranks}"
    )
    return bench, (
        f"add --extra_llm_api_options spec.yaml (--config in newer ones), the file with "
        f"speculative_config: {{decoding_type: …, max_draft_len: {setup.k}}}"
    )


def _llama_cpp(setup: _Setup) -> tuple[str, str]:
    launch = f"llama-server -m {setup.typed_target} -np {setup.batch}"
    draft = "" if setup.draft is None else f"-md {shlex.quote(setup.draft)} "
    kind = _LLAMA_CPP_METHODS.get(setup.method, "TYPE")
    return f"{launch}, then {setup.batch} requests at a time; tok/s of all together", (
        f"add {draft}--spec-type {kind} --spec-draft-n-max {setup.k} (in 2025: --draft-max {setup.k}), "
        "then the same; E = predicted_n/(predicted_n − draft_n_accepted) of the answers' timings"
    )


def _mlx(setup: _Setup) -> tuple[str, str]:
    generate = f"mlx_lm.generate --model {setup.typed_target} --max-tokens 512 --prompt PROMPT"
    return generate, (
        f"add --draft-model {setup.typed_draft} --num-draft-tokens {setup.k}; "
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


def uncalibrated(case: str, target: str, drafter: Drafter, tp: int, *, k: int, batch: int) -> Advice:
    """Nothing was measured; the remedy is the pair to measure, with and without speculation."""
    resident = drafter.resident
    named = resident is not None and not resident.counts_only and " " not in drafter.name
    draft = drafter.name if named else None
    lines = next_measurement(case, k=k, batch=batch, target=target, draft=draft, method=drafter.method, tp=tp)
    return Advice(
        code="uncalibrated",
        text=f"not calibrated: one measured pair at k {k} and batch {batch} narrows this most",
        remedy="; ".join(" ".join(line.split()) for line in lines.splitlines()),
        until_measured=True,
    )
