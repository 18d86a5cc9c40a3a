"""What a pass of a model runs: its matrix products, its small kernels, and the logits it writes."""

from __future__ import annotations

from typing import Final

from specmath.execution import Efficiency
from specmath.model import AttentionGroup, ModelShape

MIXER_PRODUCTS: Final = 2
"""Products of an attention or a recurrent layer: fused projections in, one out."""
LATENT_PRODUCTS: Final = 2
"""What the low-rank factors of latent attention add to these."""
MLP_PRODUCTS: Final = 2
"""Products of a dense MLP, gate and up fused; of grouped experts, and of a shared one, as many."""
_INDEXER: Final = "indexer"
_ONE_BLOCK: Final = 0.7
"""Hybrids whose layers are one block each, a mixer or an MLP, have mixers in less than this share of them."""


def matrix_products(model: ModelShape) -> int:
    """Matrix products of one pass, counted by the roles of its weights.

    A layer has 2 for attention (4 where it is latent) or recurrence and 2 for a dense MLP; a layer of routed
    experts 1 for the router, 2 grouped ones, and 2 for a shared expert. Fusion and head take one each; Medusa
    one residual block and one head for each token it drafts.

    >>> from specmath.model_counts import counts_model
    >>> matrix_products(counts_model("70B", 70e9))  # nothing is known of its layers
    0
    """
    roles = {group.name for group in model.weights if group.read_params}
    if model.counts_only:
        return 0
    if model.draft is not None and model.draft.kind == "medusa":
        return len(roles & {"mlp", "head"}) * drafted_at_once(model)
    return _layer_products(model, roles) + len(roles & {"fusion", "head"})


def small_kernels(model: ModelShape, efficiency: Efficiency) -> float:
    """Kernels of one pass beside its matrix products."""
    latent = efficiency.latent_kernels if _latent_layers(model) else 0.0
    plain = (efficiency.kernels_per_layer + latent) * model.n_layers
    return plain + efficiency.expert_kernels * _expert_layers(model)


def launched_kernels(model: ModelShape, efficiency: Efficiency) -> float:
    """Kernels that the host launches one by one where no graph replays them.

    Products are launched, too, where they are told apart from the small kernels: where they have a latency.
    """
    products = matrix_products(model) if efficiency.product_latency_s else 0
    return small_kernels(model, efficiency) + products


def logits_per_token(model: ModelShape) -> int:
    """Entries of the logits that each token of a pass gets: those of a draft's own, smaller vocabulary.

    Medusa writes a row for each token that it drafts.
    """
    if model.draft is None:
        return model.vocab
    rows = drafted_at_once(model) if model.draft.kind == "medusa" else 1
    return rows * model.draft.draft_vocab


def drafted_at_once(model: ModelShape) -> int:
    """Tokens that a draft gives in one pass at most; 1 where that is not known."""
    return 1 if model.draft is None or model.draft.max_tokens is None else model.draft.max_tokens


def _layer_products(model: ModelShape, roles: set[str]) -> int:
    """Products of all layers; weights of no known role count as attention and an MLP in each."""
    if "all" in roles:
        return (MIXER_PRODUCTS + MLP_PRODUCTS) * model.n_layers
    recurrent = sum(group.n_layers for group in model.states) if "recurrent" in roles else 0
    attention = min(sum(group.n_layers for group in _caches(model)), model.n_layers - recurrent)
    mixers, sparse = attention + recurrent, _expert_layers(model)
    wide = model.n_layers - (mixers if mixers < _ONE_BLOCK * model.n_layers else 0)
    counted = {
        "attention": MIXER_PRODUCTS * attention + LATENT_PRODUCTS * min(_latent_layers(model), attention),
        "recurrent": MIXER_PRODUCTS * recurrent,
        "mlp": MLP_PRODUCTS * (wide - sparse or wide),  # beside the experts where every layer has these
        "router": sparse,
        "shared_experts": MLP_PRODUCTS * sparse,
    }
    return MLP_PRODUCTS * sparse + sum(products for role, products in counted.items() if role in roles)


def _caches(model: ModelShape) -> list[AttentionGroup]:
    return [group for group in model.attention if group.name != _INDEXER]


def _latent_layers(model: ModelShape) -> int:
    return sum(group.n_layers for group in model.attention if group.name.startswith("mla"))


def _expert_layers(model: ModelShape) -> int:
    return sum(group.n_layers for group in model.experts)
