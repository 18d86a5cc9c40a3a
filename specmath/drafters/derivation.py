"""The weights that a head would have for a target of this shape, where no file of one is given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from specmath.errors import InputError
from specmath.model import AttentionGroup, DraftHead, ExpertGroup, ModelShape, WeightGroup
from specmath.number_formats import plain_format

_GROUPED: Final = ("full", "window", "chunked")
"""Attention groups whose keys and values are one vector per KV head."""
_INDEXER: Final = "indexer"
_LATENT_HEADS, _LATENT_HEAD_DIM = 8, 128
_MLP_WIDTHS: Final = 6
"""Width of a dense MLP in hidden sizes where the target has none: 6 for most published heads of sparse
targets (5.7 to 8; 2.7 in one)."""
_GATED: Final = 3
"""Matrices of a gated MLP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderLayer:
    """One dense decoder layer of a target's sizes.

    Attributes:
        hidden: Width of the residual stream.
        query: Width of all queries.
        key: Width of all keys, and of all values.
        kv_heads: KV heads.
        mlp_params: Parameters of the MLP.
        assumed: What was taken for granted, one sentence each.
    """

    hidden: int
    query: int
    key: int
    kv_heads: int
    mlp_params: int
    assumed: tuple[str, ...] = ()

    @classmethod
    def of(cls, target: ModelShape) -> DecoderLayer:
        """A layer like the target's own; dense where the target routes to experts."""
        _require_shape(target)
        grouped = [group for group in target.attention if group.name in _GROUPED]
        assumed = []
        if grouped:
            group = grouped[-1]
            query = group.flops_per_pair // (4 * group.n_layers)
            key, kv_heads = group.kv_elements_per_entry // (2 * group.n_layers), group.kv_heads
        else:
            query, key, kv_heads = target.hidden, _LATENT_HEADS * _LATENT_HEAD_DIM, _LATENT_HEADS
            assumed.append(
                f"The derived layer has queries as wide as the target and {kv_heads} KV heads of "
                f"{_LATENT_HEAD_DIM}, as heads of targets with latent attention have."
            )
        mlp = sum(group.stored_params for group in target.weights if group.name == "mlp")
        if target.experts or not mlp:
            mlp_params = _GATED * _MLP_WIDTHS * target.hidden**2
            assumed.append(
                f"The derived layer is dense, {_MLP_WIDTHS} hidden sizes wide: published heads of sparse "
                "targets come out within 12 % of that, but for one that is 30 % smaller."
            )
        else:
            mlp_params = round(mlp / target.n_layers)
        return cls(
            hidden=target.hidden,
            query=query,
            key=key,
            kv_heads=kv_heads,
            mlp_params=mlp_params,
            assumed=tuple(assumed),
        )

    def weights(
        self, target: ModelShape, *, n_layers: int = 1, attention_in: int | None = None
    ) -> tuple[WeightGroup, ...]:
        """Projections and MLP of `n_layers` such layers; `attention_in` is how much the queries read."""
        inward = self.hidden if attention_in is None else attention_in
        attention = inward * (self.query + 2 * self.key) + self.query * self.hidden
        return (
            dense(target, "attention", n_layers * attention),
            dense(target, "mlp", n_layers * self.mlp_params),
        )

    def attention(self, target: ModelShape, n_layers: int) -> AttentionGroup:
        """The cache of `n_layers` such layers, in the dtype of the target's."""
        widths = [group.kv_bytes_per_element for group in target.attention]
        return AttentionGroup(
            name="full",
            n_layers=n_layers,
            kv_elements_per_entry=2 * self.key * n_layers,
            kv_bytes_per_element=max(widths, default=2.0),
            flops_per_pair=4 * self.query * n_layers,
            kv_heads=self.kv_heads,
        )


def head_shape(
    target: ModelShape,
    layer: DecoderLayer | None,
    draft: DraftHead,
    weights: tuple[WeightGroup, ...],
    sentence: str,
    *,
    n_layers: int = 1,
) -> ModelShape:
    """A derived head as a model; without a layer it has no cache."""
    _require_shape(target)
    return ModelShape(
        name=f"{draft.kind} of {target.name}",
        source="derived from the target",
        weights=weights,
        attention=() if layer is None else (layer.attention(target, n_layers),),
        hidden=target.hidden,
        n_layers=0 if layer is None else n_layers,
        vocab=target.vocab,
        activation_dtype=target.activation_dtype,
        draft=draft,
        assumed=(f"{sentence}; name its file for its real sizes.", *(layer.assumed if layer else ())),
    )


def dense(target: ModelShape, role: str, params: int) -> WeightGroup:
    """Unquantised weights, all stored, read and multiplied."""
    number_format = plain_format(target.activation_dtype)
    return WeightGroup(
        name=role,
        stored_params=params,
        read_params=params,
        multiplied_params=params,
        bytes_per_param=number_format.bytes_per_param,
        compute_dtype=number_format.name,
    )


def borrowed_head(target: ModelShape) -> WeightGroup:
    """The target's head: read in every pass, stored once, with the target."""
    own = next((group for group in target.weights if group.name == "head"), None)
    params = target.vocab * target.hidden
    group = dense(target, "head", params) if own is None else own
    return replace(group, stored_params=0, read_params=params, multiplied_params=params)


def own_layer(
    target: ModelShape,
) -> tuple[tuple[WeightGroup, ...], tuple[ExpertGroup, ...], tuple[AttentionGroup, ...]]:
    """One more layer of the target: its mean attention layer with its last kind of feed-forward."""
    _require_shape(target)
    main = [group for group in target.attention if group.name != _INDEXER]
    indexers = [group for group in target.attention if group.name == _INDEXER]
    sparse = sum(group.n_layers for group in target.experts)
    layers = {"attention": sum(group.n_layers for group in main), "router": sparse, "shared_experts": sparse}
    if not sparse:
        layers["mlp"] = target.n_layers
    weights = [_one_of(layers[group.name], group) for group in target.weights if layers.get(group.name)]
    experts = (replace(group, n_layers=1) for group in target.experts[-1:])
    return tuple(weights), tuple(experts), tuple(_one_layer(group) for group in main[-1:] + indexers)


def _one_of(layers: int, group: WeightGroup) -> WeightGroup:
    return replace(
        group,
        stored_params=round(group.stored_params / layers),
        read_params=round(group.read_params / layers),
        multiplied_params=round(group.multiplied_params / layers),
    )


def _one_layer(group: AttentionGroup) -> AttentionGroup:
    return replace(
        group,
        n_layers=1,
        kv_elements_per_entry=group.kv_elements_per_entry // group.n_layers,
        flops_per_pair=group.flops_per_pair // group.n_layers,
    )


def _require_shape(target: ModelShape) -> None:
    if target.counts_only:
        problem = f"{target.name} is known by its counts alone; a head needs the shape of its target"
        raise InputError("target", f"{problem}, so name it, or name the head")
