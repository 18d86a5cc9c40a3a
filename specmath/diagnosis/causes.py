"""Causes of a step that is not what it should be: what each is, what to do, how to check, who has seen it.

The rules decide which of them stand, how well the evidence fits, and which number shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

OUTRIGHT, LIKELY, POSSIBLE = 0.9, 0.5, 0.25
"""From which fit on a cause is said outright, called likely, called possible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseKind:
    """What is true of a cause wherever it stands.

    Attributes:
        remedy: What to do about it.
        check: The observation that confirms or rules it out.
        evidence: Where it has been seen.
    """

    remedy: str
    check: str
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One cause that the evidence allows.

    Attributes:
        code: Stable short name, for programs (`graphs-lost`).
        fit: How well the evidence fits, from 0 to 1; no probability, it orders the causes.
        text: What is the matter, with the number that shows it.
        remedy: What to do about it.
        check: The observation that confirms it or rules it out.
        evidence: Where it has been seen.
    """

    code: str
    fit: float
    text: str
    remedy: str
    check: str
    evidence: str

    @property
    def likelihood(self) -> str:
        """certain, likely, possible or not ruled out."""
        for word, least in (("certain", OUTRIGHT), ("likely", LIKELY), ("possible", POSSIBLE)):
            if self.fit >= least:
                return word
        return "not ruled out"


def cause(code: str, fit: float, text: str) -> Cause:
    """The cause of this code, with how well it fits here and what shows it."""
    kind = CAUSES[code]
    return Cause(
        code=code,
        fit=min(max(fit, 0.0), 1.0),
        text=text,
        remedy=kind.remedy,
        check=kind.check,
        evidence=kind.evidence,
    )


CAUSES: Final[dict[str, CauseKind]] = {
    "baseline-beyond-the-roof": CauseKind(
        remedy="correct the hardware, the dtype, --tp or the batch: a throughput of all streams "
        "together needs "
        "their number",
        check="divide the throughput by the requests that ran at once; compare with bytes of weights "
        "over bandwidth",
        evidence="EAGLE-3 on H200 (Spheron blog): 1,700 tok/s claimed for 70 GB of weights at batch 1 to 4",
    ),
    "draft-and-target-swapped": CauseKind(
        remedy="swap the two models: the small one drafts",
        check="the sizes of the models that the start-up log loads as target and as draft",
        evidence="ggml-org/llama.cpp#10455: a 7B drafting for a 0.5B, 11 against 230 tok/s",
    ),
    "arms-swapped": CauseKind(
        remedy="exchange the figures of the plain and the speculative run",
        check="run without speculation once more",
        evidence="own derivation: E·S instead of E/S",
    ),
    "other-baseline": CauseKind(
        remedy="run the same engine, build, graphs and batch with nothing but speculation switched off",
        check="the start-up logs of both runs, line by line; the plain step against the model's",
        evidence="sgl-project/sglang#5502: 3.6 against eager research code, 1.5 in the engine, same drafter",
    ),
    "bonus-left-out": CauseKind(
        remedy="add 1 to the acceptance length",
        check="vLLM 0.8.5 logs it without the bonus token, later versions with it; E = 1 + accepted/drafts",
        evidence="vLLM 0.8.5 log format; llama.cpp and LM Studio count accepted tokens alone",
    ),
    "ratio-taken-for-alpha": CauseKind(
        remedy="give the rate as --accepted-over-drafted, not as --alpha",
        check="E = 1 + k·accepted/drafted from the same counters",
        evidence="ggml-org/llama.cpp#3649: 208 of 260 at k 5 is E = 5.0, not the 3.7 of α = .8",
    ),
    "acceptance-from-another-run": CauseKind(
        remedy="take E from the very run that was timed",
        check="the engine's own step time (vLLM: inter-token latency) must equal E·TPOT",
        evidence="z-lab/dflash#66 and others: acceptance falls with context, temperature and workload",
    ),
    "as-expected": CauseKind(
        remedy="to gain more, raise the acceptance or lower the batch; the step is what it should be",
        check="`specmath crossover` with the same options and --measured",
        evidence="repeat runs differ by 1 to 8 %, one engine against another by more",
    ),
    "acceptance-collapse": CauseKind(
        remedy="check the drafter: made for this very target, right checkpoint, same tokenizer and "
        "chat template",
        check="the same prompts in another engine; acceptance at position 1",
        evidence="vllm-project/vllm#46367: length 1.05 to 1.06 from a healthy server is a broken drafter",
    ),
    "low-acceptance": CauseKind(
        remedy="a drafter trained on this target and this kind of text; a lower temperature; else a "
        "smaller k",
        check="acceptance by workload; conditional rates by position",
        evidence="sgl-project/sglang#11948: length near 2 on this head and data",
    ),
    "draft-too-long": CauseKind(
        remedy="lower k to the one that `specmath schedule` with these measurements gives",
        check="one run at the smaller k",
        evidence="vllm-project/vllm#20780: best at k 3 (EAGLE) and 4 (EAGLE-3), falling to k 7",
    ),
    "lookup-misses": CauseKind(
        remedy="take tokens per step from all steps: output tokens over steps; or draft by a model",
        check="generation tokens over inter-token-latency count (vLLM); steps with a proposal are "
        "counted alone",
        evidence="vllm-project/vllm#19254, #8439: lookups propose for some requests only",
    ),
    "graphs-lost": CauseKind(
        remedy="a backend and version that capture the speculative path; capture sizes of "
        "max_num_seqs·(k + 1)",
        check="both arms with graphs off: where the speed-up then returns, this was it; --cudagraph-metrics",
        evidence="zai-org/GLM-OCR#218, vllm-project/vllm#37551: 1.53 without graphs, .56 with; 1Cat-vLLM#58",
    ),
    "beyond-captured-graphs": CauseKind(
        remedy="capture up to max_num_seqs·(k + 1) tokens, a size that the ladder has",
        check="start-up log of captured sizes; one request less in the batch",
        evidence="vllm-project/vllm#54933: 25 against 133 tok/s at 6 streams, k 6; #50488",
    ),
    "draft-not-captured": CauseKind(
        remedy="a version whose draft loop is captured and samples on the device; a one-pass drafter; "
        "a smaller k",
        check="a profile: gaps between kernels of the draft passes; the slope of the step time over k",
        evidence="vllm-project/vllm#31845 (gaps in the drafter loop); sglang#4247 (graphs worth 1.37 "
        "at equal E)",
    ),
    "draft-at-target-tp": CauseKind(
        remedy="run the draft on one device (draft_tensor_parallel_size 1)",
        check="the draft alone, timed at both degrees",
        evidence="vllm-project/vllm#4840: opt-125m takes .35 s at tp 1 and 1.30 s at tp 2; speed-up "
        "1.22 to .59",
    ),
    "draft-too-large": CauseKind(
        remedy="a smaller draft, a head (EAGLE-3, MTP), or fewer bits for the draft's weights",
        check="time the draft alone: c is its step over the target's",
        evidence="ggml-org/llama.cpp#10455: 3B for 32B, 10 ms a draft token beside a 91 ms step",
    ),
    "experts-read": CauseKind(
        remedy="a smaller k, fewer tree nodes, or a batch at which all experts are read anyway",
        check="time one pass of 1 and of k + 1 tokens; experts should not lie in host memory",
        evidence="SpecForge#339, AngelSlim#163 (Qwen3-30B-A3B, .72 to .93); llama.cpp#22673 (R 1.56 to 3.14)",
    ),
    "cache-read-again": CauseKind(
        remedy="an attention kernel that reads the cache once per sequence in a pass of k + 1; a "
        "draft window",
        check="the same at a short context: a step that grows with context more than the plain one",
        evidence="vllm-metal#465, #482 (70 of 95 ms); MTPLX#506; sgl-project/sglang#27382",
    ),
    "quantised-rows": CauseKind(
        remedy="k of 1 or 2; an engine whose quantised kernels take several rows at the price of one",
        check="time passes of 1, 2, 4 and 8 tokens (llama-bench -p 1,2,4,8 -n 0)",
        evidence="lmstudio-ai/mlx-engine#103: slower in five pairs of five",
    ),
    "row-switch": CauseKind(
        remedy="keep batch·(k + 1) at 8 or below",
        check="time passes of 8 and of 9 tokens",
        evidence="llama.cpp: another matrix kernel from 9 rows on, up to 2.6 times the time",
    ),
    "host-per-step": CauseKind(
        remedy="asynchronous or overlapped scheduling; a newer runner; no logging or grammar in the loop",
        check="the step at k = 1: a fixed cost stays; iteration time less device time in a profile",
        evidence="InventiveHQ (2026): 1.85 on a 24 ms step, .95 on a 12 ms one; mlx-lm#250: 135 to "
        "205 ms at k 0",
    ),
    "host-per-request": CauseKind(
        remedy="batched sampling and metadata on the device; a smaller largest batch; drafting off above it",
        check="the step at two batches of equal k: what grows beside the plain step",
        evidence="vllm-project/vllm#47277: rejection sampling, metadata and slot mapping in every step",
    ),
    "compute-bound": CauseKind(
        remedy="a smaller k at this batch, or none: `specmath schedule` gives the tiers",
        check="the speed-up at a quarter of the batch",
        evidence="SpecForge#164: 48 requests of 32 tree tokens; vllm-project/vllm#48944: .79 at 256 requests",
    ),
    "prefill-bursts": CauseKind(
        remedy="measure decoding alone, or give chunked prefill fewer tokens",
        check="prompt tokens per second while it was measured; the same load with short prompts",
        evidence="vllm-project/vllm#19254: 7 to 11 k prompt tok/s beside; #49548",
    ),
}
"""Every cause by its code."""
