"""Machines whose loads can be told by hand, and a real one."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specmath.acceptance import ConstantAcceptance
from specmath.additive import AdditiveCost
from specmath.additive_source import Additive
from specmath.catalogue import load_hardware
from specmath.checks import FloatArray
from specmath.drafters.methods import drafter_of
from specmath.laws import AcceptanceLaw
from specmath.model_catalogue import load_model
from specmath.profile_catalogue import load_profile
from specmath.profiled_source import Profiled, forecast_cases
from specmath.traffic import TrafficClass


def linear_machine(
    weights_s: float = 0.01, token_s: float = 0.0, draft_s: float = 0.0, name: str = "toy"
) -> Additive:
    """T = weights + token·B·q, and `draft_s` a draft pass."""
    cost = AdditiveCost(
        weights_s=weights_s,
        kv_s_per_token=0,
        compute_s_per_token=token_s,
        kv_reread=0,
        draft_fixed_s=draft_s,
        draft_s_per_sequence=0,
        draft_kv_s_per_token=0,
        overhead_s=0,
        plain_overhead_s=0,
    )
    return Additive(cost=cost, name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Small(Additive):
    """A machine whose memory holds few sequences, fewer with a drafter; none of more than 1,000 tokens."""

    plain: float = 8.0
    drafting: float = 6.0
    longest: float = field(default=1000.0)

    def max_batches(self, k: npt.ArrayLike, context: npt.ArrayLike) -> tuple[FloatArray, FloatArray]:
        shape = np.broadcast_shapes(np.shape(k), np.shape(context))
        fits = np.asarray(context) <= self.longest
        return np.broadcast_to(self.plain * fits, shape), np.broadcast_to(self.drafting * fits, shape)


def requests(
    alpha: float = 0.7,
    *,
    name: str = "chat",
    share: float = 1.0,
    prompt: float = 100,
    output: float = 301,
    law: AcceptanceLaw | None = None,
    cached: float = 0.0,
) -> TrafficClass:
    """A class of requests."""
    return TrafficClass(
        name=name,
        share=share,
        prompt_tokens=prompt,
        output_tokens=output,
        law=ConstantAcceptance(alpha) if law is None else law,
        prefix_tokens=cached,
    )


def real_machine() -> Profiled:
    """An 8B model with an EAGLE-3 head on one H100 under vLLM."""
    target, part = load_model("llama-3.1-8b"), load_hardware("h100-sxm")
    drafter = drafter_of(target, load_model("eagle3-llama-3.1-8b"))
    case = forecast_cases(load_profile("vllm", part), part, target, drafter)[0]
    assert isinstance(case, Profiled)
    return case
