"""How many kernels a pass of a model runs, counted by kind of layer."""

from __future__ import annotations

from specmath.execution import Efficiency
from specmath.model import ModelShape

DENSE_PRODUCTS, LATENT_PRODUCTS, EXPERT_PRODUCTS = 4, 6, 5
"""Matrix products of a layer: fused query-key-value, output, gate and up, down; of latent attention with its
low-rank factors; what routed experts add: router, two grouped products, two of a shared expert."""


def matrix_products(model: ModelShape) -> int:
    """Matrix products of one pass.

    >>> from specmath.model_counts import counts_model
    >>> matrix_products(counts_model("70B", 70e9))  # nothing is known of its layers
    0
    """
    each = LATENT_PRODUCTS if _is_latent(model) else DENSE_PRODUCTS
    return each * model.n_layers + EXPERT_PRODUCTS * _expert_layers(model)


def small_kernels(model: ModelShape, efficiency: Efficiency) -> float:
    """Kernels of one pass beside its matrix products."""
    latent = efficiency.latent_kernels if _is_latent(model) else 0.0
    plain = (efficiency.kernels_per_layer + latent) * model.n_layers
    return plain + efficiency.expert_kernels * _expert_layers(model)


def _is_latent(model: ModelShape) -> bool:
    return any(group.name.startswith("mla") for group in model.attention)


def _expert_layers(model: ModelShape) -> int:
    return sum(group.n_layers for group in model.experts)
