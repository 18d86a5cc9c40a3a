"""A model as the cost model sees it: weights, caches and states by group of like parts, and their sums.

Three counts of the same weights stay apart. *Stored* parameters fill memory. *Read* parameters are what
one forward pass streams: all stored ones except tables of which a token reads a row, and experts that no
token chose. *Multiplied* parameters are what one token costs in arithmetic, at 2 FLOPs each. Bytes follow
from a width of each group, scales included. Nothing here reads a file; `specmath.hf` and
`specmath.model_catalogue` make these records.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from specmath.number_formats import NumberFormat, cache_bytes, dtype_name, plain_format, quantized_format

QUANTIZED_ROLES: Final = frozenset({"attention", "mlp", "recurrent", "shared_experts", "fusion", "all"})
"""Roles that a quantisation changes; embedding, head, norms and router keep 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightGroup:
    """Dense weights of one role and one storage format, summed over the layers.

    Attributes:
        name: The role: attention, mlp, recurrent, shared_experts, router, norms, embedding, head, fusion.
        stored_params: Parameters in memory; 0 for a part borrowed from the target.
        read_params: Parameters one pass reads; 0 for a table that is only looked up.
        multiplied_params: Parameters one token is multiplied with.
        bytes_per_param: Bytes of one parameter, scales included.
        compute_dtype: Dtype of the matrix product.
    """

    name: str
    stored_params: int
    read_params: int
    multiplied_params: int
    bytes_per_param: float
    compute_dtype: str

    @property
    def active_params(self) -> int:
        """The stored ones, or what a token is multiplied with where a pass reads more than that."""
        return self.stored_params if self.multiplied_params >= self.read_params else self.multiplied_params

    def stored_as(self, number_format: NumberFormat, activation_dtype: str) -> WeightGroup:
        """The same weights in another format."""
        return replace(
            self,
            bytes_per_param=number_format.bytes_per_param,
            compute_dtype=number_format.compute_dtype or activation_dtype,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertGroup:
    """Routed experts of like layers.

    Attributes:
        n_layers: Layers with these experts.
        n_experts: Experts of one layer.
        top_k: Experts one token visits in a layer.
        params_per_expert: Parameters of one expert of one layer.
        bytes_per_param: Bytes of one parameter, scales included.
        compute_dtype: Dtype of the matrix product.
    """

    n_layers: int
    n_experts: int
    top_k: int
    params_per_expert: int
    bytes_per_param: float
    compute_dtype: str

    @property
    def stored_params(self) -> int:
        """Parameters of all experts of all layers."""
        return self.n_layers * self.n_experts * self.params_per_expert

    @property
    def active_params(self) -> int:
        """Parameters one token is multiplied with."""
        return self.n_layers * self.top_k * self.params_per_expert


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGroup:
    """Cache and pair work of like attention layers, summed over these layers.

    Attributes:
        name: full, window, chunked, mla, indexer, compressed_4, ...
        n_layers: Layers in the group.
        kv_elements_per_entry: Elements of one cached entry; 0 where the layers borrow a cache.
        kv_bytes_per_element: Bytes of a cached element.
        flops_per_pair: FLOPs of one query against one cached entry.
        kv_heads: Heads over which tensor parallelism can split the cache; 1 for MLA.
        window: Tokens kept; None for all.
        top_k: Entries attended at most, chosen by an indexer; None for all.
        tokens_per_entry: Tokens that one cached entry stands for; above 1 where the cache is compressed.
    """

    name: str
    n_layers: int
    kv_elements_per_entry: int
    kv_bytes_per_element: float
    flops_per_pair: int
    kv_heads: int
    window: int | None = None
    top_k: int | None = None
    tokens_per_entry: int = 1

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes one token adds to the cache while it is inside the window."""
        return self.kv_bytes_per_entry / self.tokens_per_entry

    @property
    def kv_bytes_per_entry(self) -> float:
        """Bytes of one cached entry: of one token, where nothing is compressed."""
        return self.kv_elements_per_entry * self.kv_bytes_per_element


@dataclass(frozen=True, slots=True, kw_only=True)
class StateGroup:
    """Recurrent state of like layers, summed over these layers; constant in the context.

    Attributes:
        name: delta_net, kda, mamba, mamba2, short_conv, ...
        n_layers: Layers in the group.
        state_bytes: Bytes of one sequence's state, convolution columns included.
        flops_per_token: FLOPs of updating and reading the state for one token.
    """

    name: str
    n_layers: int
    state_bytes: int
    flops_per_token: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHead:
    """What makes a model a drafter that lives on its target's features.

    Attributes:
        kind: mtp, eagle, eagle3, p-eagle, medusa, dflash, dspark, domino.
        one_pass: True where one pass gives all draft tokens, False where each token takes a pass.
        draft_vocab: Rows of the draft's own head; the target's vocabulary where it has none.
        max_tokens: Tokens one pass can give (block size, number of Medusa heads); None where k is free.
        target_features: Hidden states of the target that it reads per token.
        target_hidden: Width of the target that it reads; None where it is its own.
    """

    kind: str
    one_pass: bool
    draft_vocab: int
    max_tokens: int | None = None
    target_features: int = 1
    target_hidden: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Everything the cost model asks of a model.

    Attributes:
        name: Catalogue name, or the file it was read from.
        source: Where the figures come from.
        weights: Dense weights by role and format.
        experts: Routed experts by group of like layers.
        attention: Attention by group of like layers.
        states: Recurrent state by group of like layers.
        hidden: Width of the residual stream; 0 for a model known by its counts alone.
        n_layers: Decoder layers; 0 for a model known by its counts alone.
        vocab: Rows of the embedding table; 0 for a model known by its counts alone.
        activation_dtype: Dtype of activations, and of what is not quantised.
        max_context: Longest context the configuration names; None where it names none.
        mtp: The model's own multi-token-prediction module, one layer of it; None where it has none.
        draft: Set where the model is a draft head.
        released_in: Format of the released weights where the file does not say so; None otherwise.
        assumed: Class defaults and readings that were applied, one sentence each.
    """

    name: str
    source: str
    weights: tuple[WeightGroup, ...]
    experts: tuple[ExpertGroup, ...] = ()
    attention: tuple[AttentionGroup, ...] = ()
    states: tuple[StateGroup, ...] = ()
    hidden: int = 0
    n_layers: int = 0
    vocab: int = 0
    activation_dtype: str = "bf16"
    max_context: int | None = None
    mtp: ModelShape | None = None
    draft: DraftHead | None = None
    released_in: str | None = None
    assumed: tuple[str, ...] = field(default=())

    @property
    def total_params(self) -> int:
        """Parameters in memory, a tied table once, without the MTP module."""
        dense = sum(group.stored_params for group in self.weights)
        return dense + sum(group.stored_params for group in self.experts)

    @property
    def active_params(self) -> int:
        """The total without the experts that a token does not visit."""
        dense = sum(group.active_params for group in self.weights)
        return dense + sum(group.active_params for group in self.experts)

    @property
    def read_params(self) -> int:
        """Parameters a pass over one token reads: the active ones without tables that are only looked up."""
        return self.dense_params + sum(group.active_params for group in self.experts)

    @property
    def dense_params(self) -> int:
        """Parameters every pass reads, whatever the router chooses."""
        return sum(group.read_params for group in self.weights)

    @property
    def multiplied_params(self) -> int:
        """Parameters one token is multiplied with; 2 FLOPs each."""
        dense = sum(group.multiplied_params for group in self.weights)
        return dense + sum(group.active_params for group in self.experts)

    @property
    def counts_only(self) -> bool:
        """Whether nothing but parameter counts is known: no sizes, so neither cache nor communication."""
        return self.n_layers == 0 and self.hidden == 0

    @property
    def compute_dtypes(self) -> frozenset[str]:
        """Dtypes of the matrix products: of each group of weights, and of attention."""
        experts = {group.compute_dtype for group in self.experts}
        return frozenset({self.activation_dtype} | experts | {group.compute_dtype for group in self.weights})

    @property
    def weight_bytes(self) -> float:
        """Bytes of all stored weights, scales included."""
        dense = sum(group.stored_params * group.bytes_per_param for group in self.weights)
        return dense + sum(group.stored_params * group.bytes_per_param for group in self.experts)

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes one token adds to the cache while every window still holds it."""
        return sum(group.kv_bytes_per_token for group in self.attention)

    @property
    def kv_growth_bytes_per_token(self) -> float:
        """Bytes one more token adds once every window is full."""
        return sum(group.kv_bytes_per_token for group in self.attention if group.window is None)

    @property
    def state_bytes(self) -> int:
        """Bytes of recurrent state of one sequence, whatever its length."""
        return sum(group.state_bytes for group in self.states)

    @property
    def has_kv(self) -> bool:
        """Whether the cache is known to exist; False for recurrent models and for counts alone."""
        return any(group.kv_elements_per_entry for group in self.attention)

    def kv_bytes(self, context: int) -> float:
        """Bytes of the cache of one sequence that is `context` tokens long.

        A window layer holds min(context, window) tokens, a compressed one whole entries only.
        """
        return sum(
            (min(context, group.window or context) // group.tokens_per_entry) * group.kv_bytes_per_entry
            for group in self.attention
        )

    def with_dtype(self, dtype: str) -> ModelShape:
        """All weights unquantised in `dtype` (fp32, bf16 or fp16); an unquantised cache follows."""
        number_format = plain_format(dtype)
        name, width = number_format.name, number_format.bytes_per_param
        experts = (
            replace(group, bytes_per_param=width, compute_dtype=number_format.name) for group in self.experts
        )
        attention = (
            replace(group, kv_bytes_per_element=width) if group.kv_bytes_per_element >= 2 else group
            for group in self.attention
        )
        return replace(
            self,
            weights=tuple(group.stored_as(number_format, name) for group in self.weights),
            experts=tuple(experts),
            attention=tuple(attention),
            activation_dtype=name,
            mtp=self.mtp and self.mtp.with_dtype(dtype),
            released_in=None,
            assumed=(*self.assumed, f"All weights are counted in {name}, as asked."),
        )

    def with_quantization(self, quantization: str) -> ModelShape:
        """Layer weights quantised in the usual layout of fp8, int8, int4, nf4, nvfp4 or mxfp4.

        Embedding, head, norms and router keep the format they have. A dtype name gives `with_dtype`.
        """
        if dtype_name(quantization) in ("fp32", "bf16", "fp16"):
            return self.with_dtype(quantization)
        number_format = quantized_format(quantization)
        activation = self.activation_dtype
        weights = (
            group.stored_as(number_format, activation) if group.name in QUANTIZED_ROLES else group
            for group in self.weights
        )
        experts = (
            replace(
                group,
                bytes_per_param=number_format.bytes_per_param,
                compute_dtype=number_format.compute_dtype or activation,
            )
            for group in self.experts
        )
        sentence = (
            f"Layer weights are counted in {number_format.name}, {number_format.bytes_per_param:.6g} bytes "
            "each with scales; embedding, head, norms and router keep their width."
        )
        return replace(
            self,
            weights=tuple(weights),
            experts=tuple(experts),
            mtp=self.mtp and self.mtp.with_quantization(quantization),
            released_in=None,
            assumed=(*self.assumed, sentence),
        )

    def with_kv_cache_dtype(self, kv_cache_dtype: str) -> ModelShape:
        """The cache, indexer keys included, in fp32, bf16, fp16, fp8, int8, int4 or nvfp4."""
        width = cache_bytes(kv_cache_dtype)
        return replace(
            self,
            attention=tuple(replace(group, kv_bytes_per_element=width) for group in self.attention),
            mtp=self.mtp and self.mtp.with_kv_cache_dtype(kv_cache_dtype),
            assumed=(*self.assumed, f"The KV cache is counted in {dtype_name(kv_cache_dtype)}, as asked."),
        )
