"""All families by model_type, and the architectures that name one."""

from __future__ import annotations

from typing import Final

from specmath.hf import (
    families_blocks,
    families_classic,
    families_dense,
    families_gemma,
    families_latent,
    families_moe,
    families_recurrent,
    families_windowed,
)
from specmath.hf.fields import Traits

FAMILIES: Final[dict[str, Traits]] = {
    **families_dense.FAMILIES,
    **families_classic.FAMILIES,
    **families_gemma.FAMILIES,
    **families_moe.FAMILIES,
    **families_latent.FAMILIES,
    **families_windowed.FAMILIES,
    **families_recurrent.FAMILIES,
    **families_blocks.FAMILIES,
}
_CLASS_ENDINGS: Final = ("forcausallm", "lmheadmodel", "forconditionalgeneration")


def family_of(model_type: str) -> Traits | None:
    """The traits of a model_type; `_text` at its end, case and dashes do not matter."""
    plain = model_type.lower()
    for spelling in (
        plain,
        plain.replace("-", "_"),
        plain.removesuffix("_text"),
        plain.removesuffix("_text").replace("-", "_"),
    ):
        if spelling in FAMILIES:
            return FAMILIES[spelling]
    return None


ARCHITECTURES: Final[dict[str, str]] = {
    name.replace("_", "") + ending: name for name in FAMILIES for ending in _CLASS_ENDINGS
} | {
    "rwforcausallm": "falcon",
    "gptneoxforcausallm": "gpt_neox",
    "gptbigcodeforcausallm": "gpt_bigcode",
    "decilmforcausallm": "nemotron-nas",
    "kimilinearforcausallm": "kimi_linear",
}
"""Class names in lower case to a model_type."""
