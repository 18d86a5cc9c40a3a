"""Blocks of layers and a quantisation scheme to the groups of a `ModelShape`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from specmath.hf.layers import Block
from specmath.hf.quantization import Scheme
from specmath.hf.weights import Experts, Weight
from specmath.model import AttentionGroup, ExpertGroup, StateGroup, WeightGroup
from specmath.number_formats import NumberFormat, cache_bytes, plain_format

_CONV_BYTES: Final = 2
"""Convolution columns are kept in 16 bit."""


class Formats:
    """The format of each module: a scheme applied to paths, on top of a plain dtype."""

    __slots__ = ("dtype", "plain", "scheme")

    def __init__(self, dtype: str, scheme: Scheme | None) -> None:
        self.dtype = dtype
        self.plain = plain_format(dtype)
        self.scheme = scheme

    def of(self, weight: Weight, layer: int | None) -> NumberFormat:
        """The format of a weight in one layer, or outside all layers."""
        if self.scheme is None or not weight.in_features:
            return self.plain
        packed = self.scheme.packed(weight.path, layer, weight.role)
        return self.plain if packed is None else packed.at(weight.in_features)

    def distinct(self, layers: tuple[int, ...]) -> list[tuple[int, int]]:
        """Layers to ask one by one, each with the number of layers it stands for."""
        if self.scheme is None or not self.scheme.numbered:
            return [(layers[0], len(layers))]
        return [(layer, 1) for layer in layers]

    def compute_dtype(self, number_format: NumberFormat) -> str:
        """The dtype of the product of weights in that format."""
        return number_format.compute_dtype or self.dtype


def weight_groups(
    blocks: Sequence[Block], outside: Iterable[Weight], formats: Formats
) -> tuple[WeightGroup, ...]:
    """Dense weights summed by role and format; the width of a group is the mean over its bytes."""
    sums: dict[tuple[str, str, str], list[float]] = {}

    def add(weight: Weight, layer: int | None, times: int) -> None:
        number_format = formats.of(weight, layer)
        compute = formats.compute_dtype(number_format)
        total = sums.setdefault((weight.role, number_format.name, compute), [0, 0, 0.0, 0.0])
        stored = 0 if weight.borrowed else weight.params * times
        total[0] += stored
        total[1] += weight.params * weight.reads * times
        total[2] += stored * number_format.bytes_per_param
        total[3] = number_format.bytes_per_param

    for weight in outside:
        add(weight, None, 1)
    for block in blocks:
        for layer, times in formats.distinct(block.layers):
            for weight in block.part.weights:
                add(weight, layer, times)
    return tuple(
        WeightGroup(
            name=role,
            stored_params=int(stored),
            read_params=int(read),
            multiplied_params=int(read),
            bytes_per_param=in_bytes / stored if stored and in_bytes != stored * last else last,
            compute_dtype=compute,
        )
        for (role, _, compute), (stored, read, in_bytes, last) in sums.items()
    )


def expert_groups(blocks: Sequence[Block], formats: Formats) -> tuple[ExpertGroup, ...]:
    """Routed experts summed over layers with equal experts in equal formats."""
    counts: dict[tuple[int, int, int, float, str], int] = {}
    for block in blocks:
        for experts in block.part.experts:
            params = sum(weight.params for weight in experts.weights)
            for layer, times in formats.distinct(block.layers):
                width, compute = _expert_format(experts, layer, formats)
                identity = (experts.n_experts, experts.top_k, params, width, compute)
                counts[identity] = counts.get(identity, 0) + times
    return tuple(
        ExpertGroup(
            n_layers=n_layers,
            n_experts=n_experts,
            top_k=top_k,
            params_per_expert=params,
            bytes_per_param=width,
            compute_dtype=compute,
        )
        for (n_experts, top_k, params, width, compute), n_layers in counts.items()
    )


def _expert_format(experts: Experts, layer: int, formats: Formats) -> tuple[float, str]:
    """Mean width of an expert's parameters, biases included, and the dtype of its matrices."""
    params, in_bytes, compute = 0, 0.0, formats.dtype
    for weight in experts.weights:
        number_format = formats.of(weight, layer)
        params += weight.params
        in_bytes += weight.params * number_format.bytes_per_param
        if weight.in_features:
            compute = formats.compute_dtype(number_format)
    return in_bytes / params, compute


def attention_groups(blocks: Sequence[Block], kv_cache_dtype: str) -> tuple[AttentionGroup, ...]:
    """Caches and pair work summed over layers that attend alike."""
    width = cache_bytes(kv_cache_dtype)
    sums: dict[tuple[str, int, int | None, int | None, int], list[int]] = {}
    for block in blocks:
        for cache in block.part.caches:
            identity = (cache.name, cache.kv_heads, cache.window, cache.top_k, cache.tokens_per_entry)
            total = sums.setdefault(identity, [0, 0, 0])
            total[0] += len(block.layers)
            total[1] += len(block.layers) * cache.elements
            total[2] += len(block.layers) * cache.flops_per_pair
    return tuple(
        AttentionGroup(
            name=name,
            n_layers=n_layers,
            kv_elements_per_entry=elements,
            kv_bytes_per_element=width,
            flops_per_pair=flops,
            kv_heads=kv_heads,
            window=window,
            top_k=top_k,
            tokens_per_entry=tokens,
        )
        for (name, kv_heads, window, top_k, tokens), (n_layers, elements, flops) in sums.items()
    )


def state_groups(blocks: Sequence[Block], state_bytes_per_element: float) -> tuple[StateGroup, ...]:
    """Recurrent states summed over layers that recur alike."""
    sums: dict[str, list[int]] = {}
    for block in blocks:
        for state in block.part.states:
            total, n_layers = sums.setdefault(state.name, [0, 0, 0]), len(block.layers)
            in_bytes = int(state.elements * state_bytes_per_element) + state.conv_elements * _CONV_BYTES
            total[0] += n_layers
            total[1] += n_layers * in_bytes
            total[2] += n_layers * state.elements * state.flops_per_element
    return tuple(
        StateGroup(name=name, n_layers=n_layers, state_bytes=in_bytes, flops_per_token=flops)
        for name, (n_layers, in_bytes, flops) in sums.items()
    )
