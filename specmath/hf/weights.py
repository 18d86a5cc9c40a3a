"""The weights of a layer as a list: module path, role, number of parameters.

A count is a sum over this list, a storage format a look-up of the module path. Paths are those of the
Hugging Face checkpoints below the layer (`self_attn.q_proj`), so that exclusion lists apply as written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from specmath.hf.fields import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """One weight, or one kind of weight of every expert.

    Attributes:
        path: Module path below the layer, or from the root for weights outside the layers.
        role: Group it belongs to; see `specmath.model.WeightGroup`.
        params: Parameters.
        in_features: Input width of a matrix that quantisation can reach; 0 for anything else.
        reads: How often one pass reads it: 0 for a looked-up table, above 1 for a shared block.
        borrowed: True where it belongs to the target and takes no memory of its own.
    """

    path: str
    role: str
    params: int
    in_features: int = 0
    reads: int = 1
    borrowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cache:
    """Attention of one layer: what `AttentionGroup` holds, per layer."""

    name: str
    elements: int
    flops_per_pair: int
    kv_heads: int
    window: int | None = None
    top_k: int | None = None
    tokens_per_entry: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Recurrent state of one layer, in elements."""

    name: str
    elements: int
    conv_elements: int = 0
    flops_per_element: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Routed experts of one layer; `weights` are those of one expert."""

    n_experts: int
    top_k: int
    weights: tuple[Weight, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a sublayer adds to its layer."""

    weights: tuple[Weight, ...] = ()
    caches: tuple[Cache, ...] = ()
    states: tuple[State, ...] = ()
    experts: tuple[Experts, ...] = ()

    def __add__(self, other: Part) -> Part:
        return Part(
            weights=self.weights + other.weights,
            caches=self.caches + other.caches,
            states=self.states + other.states,
            experts=self.experts + other.experts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """What a layer is: kind of token mixer, kind of feed-forward, and fields that differ from the model's.

    Layers of equal kind are counted once and multiplied.
    """

    mixer: str
    ffn: str
    traits: tuple[tuple[str, object], ...] = field(default=())

    def having(self, **traits: object) -> LayerKind:
        """The same kind with further fields of its own."""
        return replace(self, traits=(*self.traits, *traits.items()))


def matrix(path: str, role: str, rows: int, columns: int, bias: bool = False) -> list[Weight]:
    """A linear layer from `columns` to `rows` values, its bias counted with the norms."""
    weights = [Weight(path=path, role=role, params=rows * columns, in_features=columns)]
    if bias:
        weights.append(vector(f"{path}.bias", rows))
    return weights


def vector(path: str, params: int) -> Weight:
    """Norm weights, biases and other vectors, which quantisation leaves alone."""
    return Weight(path=path, role="norms", params=params)


def norm(fields: Fields, path: str, width: int, kind: str | None = None) -> list[Weight]:
    """A normalisation of `width` values, of the family's kind."""
    per_value = {"rms": 1, "layernorm": 2, "layernorm_no_bias": 1, "none": 0}[kind or fields.text("norm")]
    return [vector(path, per_value * width)] if per_value else []


def table(path: str, params: int, columns: int = 0) -> Weight:
    """A table of which a token reads one row: stored, but not read by a pass.

    With `columns` a quantisation block may name it; without, it keeps its plain dtype.
    """
    return Weight(path=path, role="embedding", params=params, in_features=columns, reads=0)
