"""Attention of a few tokens over a long cache, without a copy of the cache for every query head.

transformers repeats the keys and values of grouped-query attention as soon as a pass carries two tokens of a
sequence and a mask: the cache is then written and read again several times over, which no inference engine
does, and a pass of two tokens costs far more than one of one. Here the query heads that share keys are laid
one after another as if they were further tokens. The result is the same, and the cache is read once.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

FOLDED: Final = "specmath_folded_sdpa"
"""Its name among the attention implementations of transformers."""


def folded_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Scaled dot-product attention with [batch, heads, q, width] queries over fewer key heads.

    The mask has q rows, or heads / key heads · q where the caller has folded it once for all layers. What is
    special (no mask, a mask per head, a bias by position) goes to the implementation of transformers.
    """
    batch, heads, q, width = query.shape
    groups = heads // key.shape[1]
    per_head = attention_mask is not None and attention_mask.shape[1] > 1
    if groups == 1 or attention_mask is None or per_head or kwargs.get("position_bias") is not None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    folded = query.reshape(batch, key.shape[1], groups * q, width)
    mask = attention_mask if attention_mask.shape[2] == groups * q else folded_mask(attention_mask, groups)
    output = torch.nn.functional.scaled_dot_product_attention(
        folded, key, value, mask, dropout, scale=scaling
    )
    return output.reshape(batch, heads, q, -1).transpose(1, 2).contiguous(), None


def folded_mask(mask: Tensor, groups: int) -> Tensor:
    """A mask [batch, 1, q, length] with its rows once for every query head that shares keys."""
    return mask.repeat(1, 1, groups, 1)


def query_groups(model: PreTrainedModel) -> int:
    """Query heads that share keys, where folded attention runs and all layers agree; else 1."""
    named = [getattr(module, "num_key_value_groups", None) for module in model.modules()]
    counts = {groups for groups in named if isinstance(groups, int)}
    return counts.pop() if len(counts) == 1 and model.config._attn_implementation == FOLDED else 1


def register_folded_attention() -> None:
    """Make it known to transformers under the name `FOLDED`, with masks as for its own implementation."""
    AttentionInterface.register(FOLDED, folded_attention)
    AttentionMaskInterface.register(FOLDED, sdpa_mask)
