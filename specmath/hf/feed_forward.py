"""Feed-forward part of one layer: a dense MLP, routed experts with shared ones, or both side by side."""

from __future__ import annotations

from specmath.hf.fields import Fields
from specmath.hf.weights import Experts, Part, Weight, matrix, norm, vector


def dense(fields: Fields) -> Part:
    """Two matrices, or three where a gate multiplies the inner values; width 0 is no MLP."""
    width = fields.size("mlp_width")
    return Part(weights=tuple(_mlp(fields, "mlp", "mlp", width) if width else ()))


def _mlp(fields: Fields, path: str, role: str, width: int) -> list[Weight]:
    hidden, bias = fields.count("hidden"), fields.flag("mlp_bias")
    weights = matrix(f"{path}.gate_proj", role, width, hidden, bias) if fields.flag("gated") else []
    weights += matrix(f"{path}.up_proj", role, width, hidden, bias)
    return weights + matrix(f"{path}.down_proj", role, hidden, width, fields.flag("mlp_down_bias"))


def moe(fields: Fields) -> Part:
    """A router, experts of which each token visits `top_k`, and shared experts every token visits."""
    hidden, n_experts, top_k = fields.count("hidden"), fields.count("n_experts"), fields.count("top_k")
    if top_k > n_experts:
        raise fields.error("top_k", f"must be at most the {n_experts} experts of a layer, got {top_k}")
    rows = fields.count("router_rows")
    weights = matrix("mlp.gate", "router", rows, hidden, fields.flag("router_bias"))
    if fields.flag("router_correction"):
        weights.append(vector("mlp.gate.e_score_correction_bias", n_experts))
    latent = fields.optional("expert_latent")
    if latent:
        weights += matrix("mlp.latent_down_proj", "mlp", latent, hidden)
        weights += matrix("mlp.latent_up_proj", "mlp", hidden, latent)
        if fields.flag("latent_norm"):
            weights += norm(fields, "mlp.latent_norm", latent)
    experts = Experts(n_experts=n_experts, top_k=top_k, weights=_expert(fields, latent or hidden))
    return Part(weights=tuple(weights), experts=(experts,)) + shared(fields)


def _expert(fields: Fields, inward: int) -> tuple[Weight, ...]:
    width, bias = fields.count("expert_width"), fields.flag("expert_bias")
    gated = fields.flag("gated")
    weights = matrix("mlp.experts.gate_proj", "experts", width, inward, bias) if gated else []
    weights += matrix("mlp.experts.up_proj", "experts", width, inward, bias)
    return (*weights, *matrix("mlp.experts.down_proj", "experts", inward, width, bias))


def shared(fields: Fields) -> Part:
    """Experts that every token visits, with the one-column gate of the Qwen families."""
    width = fields.size("shared_width")
    if not width:
        return Part()
    weights = _mlp(fields, "mlp.shared_experts", "shared_experts", width)
    if fields.flag("shared_gate"):
        weights += matrix("mlp.shared_expert_gate", "router", 1, fields.count("hidden"))
    return Part(weights=tuple(weights))
