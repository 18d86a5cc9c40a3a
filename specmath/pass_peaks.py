"""What a measured law reaches of an accelerator's peaks."""

from __future__ import annotations

from specmath.accelerator import Accelerator
from specmath.model import ModelShape
from specmath.pass_laws import PassLaw


def peak_fractions(law: PassLaw, accelerator: Accelerator, model: ModelShape) -> dict[str, float]:
    """Shares of the peaks at which a law of the target's pass reads and computes, by name of the constant.

        weights_s             dense bytes that a pass reads / memory bandwidth / w
        experts_s             bytes of all routed experts / memory bandwidth / x
        kv_s_per_token        bytes of the cache per token / memory bandwidth / κ
        compute_s_per_token   2 · parameters that a token is multiplied with / peak / τ

    Counts as the roofline does: tables that are only looked up are neither read nor multiplied. Published
    figures often count all parameters, and are so much higher. Assumes one device. Where launches are part of
    w, as in the plain sum, its share is a lower bound.

    Args:
        law: Of passes on one such accelerator.
        accelerator: What ran them.
        model: The target, in the dtype that it ran in.

    Returns:
        For each constant above 0 of a size that is known; above 1 one of the two is wrong.

    Raises:
        InputError: where the accelerator has no rate for a dtype of the model.

    Source: own derivation.
    """
    bandwidth = accelerator.memory_bytes_per_s
    flops_s = sum(
        2 * params / accelerator.peak(dtype).flops_per_s
        for params, dtype in [
            *((group.multiplied_params, group.compute_dtype) for group in model.weights),
            *((group.active_params, group.compute_dtype) for group in model.experts),
        ]
    )
    least_s = {
        "weights_s": sum(group.read_params * group.bytes_per_param for group in model.weights) / bandwidth,
        "experts_s": sum(group.stored_params * group.bytes_per_param for group in model.experts) / bandwidth,
        "kv_s_per_token": model.kv_bytes_per_token / bandwidth,
        "compute_s_per_token": flops_s,
    }
    measured_s = {name: getattr(law, name) for name in least_s}
    return {name: least_s[name] / measured_s[name] for name in least_s if least_s[name] and measured_s[name]}
