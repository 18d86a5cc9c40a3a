"""Draft heads that live on a target's hidden states: EAGLE, EAGLE-3, P-EAGLE, Medusa, DFlash, DSpark, Domino.

Their files look like small Llamas and repeat the target's vocabulary and width. What they own follows from
the architecture's name: the input table is the target's, and so is the head where they have no reduced one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from specmath.errors import DataError
from specmath.hf.assembly import Formats, attention_groups, weight_groups
from specmath.hf.class_defaults import class_dimensions
from specmath.hf.families_common import LLAMA, same_as
from specmath.hf.families_dense import QWEN3
from specmath.hf.families_gemma import GEMMA4
from specmath.hf.fields import MAX_LAYERS, Fields, Traits, key, shown
from specmath.hf.layers import Block, blocks, outside_layers
from specmath.hf.mtp import borrowed_head
from specmath.hf.patterns import layer_kinds
from specmath.hf.quantization import read_scheme
from specmath.hf.weights import LayerKind, Weight, matrix, norm, table, vector
from specmath.model import DraftHead, ModelShape
from specmath.number_formats import dtype_name

_ARCHITECTURES: Final = {
    "eaglehead": "eagle",
    "eaglemodel": "eagle",
    "eaglellamaforcausallm": "eagle",
    "llamaforcausallmeagle": "eagle",
    "llamaforcausallmeagle3": "eagle3",
    "eagle3llamaforcausallm": "eagle3",
    "eagle3draftmodel": "eagle3",
    "eagle3speculator": "eagle3",
    "qwen3forcausallmeagle3": "eagle3",
    "peagledraftmodel": "p-eagle",
    "dflashdraftmodel": "dflash",
    "dsparkdraftmodel": "dspark",
    "dominodraftmodel": "domino",
    "medusaheads": "medusa",
    "medusamodel": "medusa",
    "medusaforcausallm": "medusa",
}
_MODEL_TYPES: Final = {
    "gemma4_assistant": "gemma4-assistant",
    "gemma4_unified_assistant": "gemma4-assistant",
    "eagle": "eagle",
    "eagle3": "eagle3",
    "medusa": "medusa",
    "dflash": "dflash",
    "peagle": "p-eagle",
}

_HEAD: Final[Traits] = {
    **LLAMA,
    "n_layers": key("num_hidden_layers", default=1),
    "fused": key("fc_in_features", default=None, quiet=True),
    "fc_bias": key("fc_bias", "fusion_bias", default=False, quiet=True),
    "target_hidden": key(
        "target_hidden_size", "target_model_hidden_size", default=same_as("hidden"), quiet=True
    ),
    "draft_vocab": key("draft_vocab_size", default=same_as("vocab"), quiet=True),
    "o_bias": False,
    "fc_norm": key("fc_norm", "norm_before_fc", default=False, quiet=True),
    "tie": False,
}
_BLOCK: Final[Traits] = {
    **QWEN3,
    "target_layers": key("dflash_config.target_layer_ids", "target_layer_ids"),
    "block_size": key("block_size", "dflash_config.block_size"),
    "markov_rank": key("dflash_config.markov_rank", default=0, quiet=True),
    "confidence": key("dflash_config.enable_confidence_head", default=False, quiet=True),
    "confidence_markov": key("dflash_config.confidence_head_with_markov", default=False, quiet=True),
    "gru": key("dflash_config.gru_hidden_dim", default=0, quiet=True),
    "correction": key("dflash_config.emb_dim", "emb_dim", default=0, quiet=True),
}
_ASSISTANT: Final[Traits] = {
    **GEMMA4,
    "per_layer_dim": 0,
    "backbone": key("backbone_hidden_size"),
    "ordered": key("use_ordered_embeddings", default=False),
    "centroids": key("num_centroids", default=2048, quiet=True),
}
_MEDUSA: Final[Traits] = {
    "hidden": key("hidden_size"),
    "vocab": key("vocab_size"),
    "n_heads": key("medusa_num_heads", "num_heads"),
    "n_layers": key("medusa_num_layers", "num_hidden_layers", default=1),
    "norm": "rms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What a kind of head consists of: layers, weights outside them, and how it drafts."""

    blocks: tuple[Block, ...]
    outside: tuple[Weight, ...]
    draft: DraftHead


def is_draft(config: Mapping[str, Any]) -> bool:
    """Whether the file describes a draft head rather than a model of its own."""
    return _kind(config) is not None


def _kind(config: Mapping[str, Any]) -> str | None:
    speculator = config.get("speculators_model_type")
    if isinstance(speculator, str):
        return _MODEL_TYPES.get(speculator.replace("_", ""), f"?{speculator}")
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    named = _ARCHITECTURES.get(first.lower()) if isinstance(first, str) else None
    model_type = config.get("model_type")
    return named or (_MODEL_TYPES.get(model_type) if isinstance(model_type, str) else None)


def draft_shape(
    config: Mapping[str, Any], where: str, *, name: str, source: str, kind: str | None = None
) -> ModelShape:
    """The shape of a draft head, of the given kind or of the file's; see `specmath.hf.reader.read_config`."""
    kind = kind or _kind(config) or ""
    if kind not in _PLANS:
        known = ", ".join(sorted(_PLANS))
        raise DataError(where, f"draft head of kind {kind.lstrip('?')!r} is not known; one of {known}")
    flat, assumed = _flattened(config, where)
    traits, plan_of = _PLANS[kind]
    fields = Fields(flat, traits, where)
    plan = plan_of(fields)
    named = flat.get("torch_dtype") or flat.get("dtype")
    dtype = dtype_name(named) if isinstance(named, str) else ""
    formats = Formats(
        dtype if dtype in ("bf16", "fp16") else "bf16", read_scheme(flat.get("quantization_config"), where)
    )
    if kind != "gemma4-assistant":
        assumed.append("The input table is the target's." + (" So is the head." if _borrows(plan) else ""))
    if fields.defaulted:
        listed = ", ".join(f"{field}={shown(value)}" for field, value in sorted(fields.defaulted.items()))
        assumed.append(f"Absent fields, defaults of {kind} heads: {listed}.")
    return ModelShape(
        name=name,
        source=source,
        weights=weight_groups(plan.blocks, plan.outside, formats),
        attention=attention_groups(plan.blocks, formats.dtype),
        hidden=fields.count("hidden"),
        n_layers=sum(len(block.layers) for block in plan.blocks),
        vocab=fields.count("vocab"),
        activation_dtype=formats.dtype,
        draft=plan.draft,
        assumed=tuple(assumed),
    )


def _borrows(plan: _Plan) -> bool:
    return any(weight.borrowed for weight in plan.outside)


def _flattened(config: Mapping[str, Any], where: str) -> tuple[dict[str, Any], list[str]]:
    """A speculators file holds its layer as a difference from a model class; most others are flat."""
    field = next((field for field in ("transformer_layer_config", "text_config") if config.get(field)), None)
    if field is None:
        return dict(config), []
    inner = config[field]
    if not isinstance(inner, Mapping):
        raise DataError(where, f"{field}: must be a table, got {shown(inner)}")
    model_type = str(inner.get("model_type", "llama"))
    defaults = class_dimensions(model_type)
    own = {field: value for field, value in config.items() if value is not None}
    taken = sorted(set(defaults) - set(inner))
    listed = ", ".join(f"{field}={shown(defaults[field])}" for field in taken)
    note = [f"Absent from {field}, class defaults of {model_type}: {listed}."] if taken else []
    flat = {**defaults, **inner, **own}
    if "num_hidden_layers" not in inner and field == "transformer_layer_config":
        flat["num_hidden_layers"] = 1
    return flat, note


def _eagle(fields: Fields) -> _Plan:
    """EAGLE-1 and -2: a fusion of embedding and feature, one layer without input norm, the target's head."""
    hidden, vocab = fields.count("hidden"), fields.count("vocab")
    own = fields.with_traits({"mixer_norms": 0, "tie": False})
    weights = matrix("fc", "fusion", hidden, fields.optional("fused") or 2 * hidden, fields.flag("fc_bias"))
    layers = blocks(own, [LayerKind(mixer="full", ffn="mlp")] * fields.count("n_layers", 1, MAX_LAYERS))
    return _Plan(
        blocks=tuple(layers),
        outside=(*weights, borrowed_head(vocab, hidden)),
        draft=DraftHead(kind="eagle", one_pass=False, draft_vocab=vocab),
    )


def _eagle3(fields: Fields, kind: str = "eagle3") -> _Plan:
    """EAGLE-3: three fused features, a first layer that reads them beside the embedding, an own head."""
    hidden, draft_vocab, n_layers = (
        fields.count("hidden"),
        fields.count("draft_vocab"),
        fields.count("n_layers", 1, MAX_LAYERS),
    )
    fused = fields.optional("fused") or 3 * fields.count("target_hidden")
    outside = matrix("fc", "fusion", hidden, fused, fields.flag("fc_bias"))
    outside += matrix("lm_head", "head", draft_vocab, hidden) + norm(fields, "norm", hidden)
    if fields.flag("fc_norm"):
        outside += norm(fields, "fc_norm", fused)
    if kind == "p-eagle":
        outside.append(vector("mask_hidden", fused))
    first = LayerKind(mixer="full", ffn="mlp").having(attention_in=2 * hidden, mixer_norms=2)
    kinds = [first, *[LayerKind(mixer="full", ffn="mlp")] * (n_layers - 1)]
    return _Plan(
        blocks=tuple(blocks(fields, kinds)),
        outside=tuple(outside),
        draft=DraftHead(
            kind=kind,
            one_pass=kind == "p-eagle",
            draft_vocab=draft_vocab,
            target_features=3,
            target_hidden=fields.count("target_hidden"),
        ),
    )


def _p_eagle(fields: Fields) -> _Plan:
    """P-EAGLE: an EAGLE-3 first layer, plain layers after it, a learned mask vector; one pass."""
    return _eagle3(fields, "p-eagle")


def _block_drafter(fields: Fields, kind: str) -> _Plan:
    """DFlash and its kin: Qwen3 layers over fused target features, a whole block in one pass."""
    hidden, vocab, features = (
        fields.count("hidden"),
        fields.count("vocab"),
        len(fields.items("target_layers")),
    )
    outside = matrix("fc", "fusion", hidden, features * hidden)
    outside += norm(fields, "hidden_norm", hidden) + norm(fields, "norm", hidden)
    outside.append(borrowed_head(vocab, hidden))
    if kind == "dspark":
        outside += _bigram(fields, hidden, vocab)
    if kind == "domino":
        outside += _token_memory(fields, hidden, vocab)
    kinds = [LayerKind(mixer="full", ffn="mlp")] * fields.count("n_layers", 1, MAX_LAYERS)
    head = DraftHead(
        kind=kind,
        one_pass=True,
        draft_vocab=vocab,
        max_tokens=fields.count("block_size"),
        target_features=features,
    )
    return _Plan(blocks=tuple(blocks(fields, kinds)), outside=tuple(outside), draft=head)


def _bigram(fields: Fields, hidden: int, vocab: int) -> list[Weight]:
    """DSpark: a low-rank bigram correction of the logits and a confidence of one number."""
    rank = fields.count("markov_rank")
    weights = [table("markov_embedding", vocab * rank), *matrix("markov_head", "head", vocab, rank)]
    if fields.flag("confidence"):
        inward = hidden + (rank if fields.flag("confidence_markov") else 0)
        weights += matrix("confidence_head", "head", 1, inward, bias=True)
    return weights


def _token_memory(fields: Fields, hidden: int, vocab: int) -> list[Weight]:
    """Domino: a GRU over earlier tokens and a two-step correction of the logits."""
    memory, width = fields.count("gru"), fields.count("correction")
    weights = matrix("gru", "fusion", 3 * memory, hidden + memory)
    weights += matrix("correction_in", "head", width, hidden + memory)
    return weights + matrix("correction_out", "head", vocab, width)


def _medusa(fields: Fields) -> _Plan:
    """Medusa: per head residual blocks of the target's width and an own output map; one pass."""
    hidden, vocab, heads = (
        fields.count("hidden"),
        fields.count("vocab"),
        fields.count("n_heads", 1, MAX_LAYERS),
    )
    outside: list[Weight] = []
    for head in range(heads):
        for block in range(fields.count("n_layers", 0, 100)):
            outside += matrix(f"medusa_head.{head}.{block}.linear", "mlp", hidden, hidden, bias=True)
        outside += matrix(f"medusa_head.{head}.lm_head", "head", vocab, hidden)
    draft = DraftHead(kind="medusa", one_pass=True, draft_vocab=vocab, max_tokens=heads)
    return _Plan(blocks=(), outside=tuple(outside), draft=draft)


def _assistant(fields: Fields) -> _Plan:
    """Gemma 4 assistant: a small Gemma between maps of the target's width, on the target's cache."""
    hidden, backbone = fields.count("hidden"), fields.count("backbone")
    own = fields.with_traits({"n_borrowing": fields.count("n_layers", 1, MAX_LAYERS)})
    outside = [*outside_layers(own).weights, *matrix("pre_projection", "fusion", hidden, 2 * backbone)]
    outside += matrix("post_projection", "fusion", backbone, hidden)
    if fields.flag("ordered"):
        outside += matrix("masked_embedding.centroids", "head", fields.count("centroids"), hidden)
    return _Plan(
        blocks=tuple(blocks(own, layer_kinds(own))),
        outside=tuple(outside),
        draft=DraftHead(
            kind="gemma4-assistant",
            one_pass=False,
            draft_vocab=fields.count("vocab"),
            target_hidden=backbone,
        ),
    )


_PLANS: Final[dict[str, tuple[Traits, Callable[[Fields], _Plan]]]] = {
    "eagle": (_HEAD, _eagle),
    "eagle3": (_HEAD, _eagle3),
    "p-eagle": (_HEAD, _p_eagle),
    "dflash": (_BLOCK, lambda fields: _block_drafter(fields, "dflash")),
    "dspark": (_BLOCK, lambda fields: _block_drafter(fields, "dspark")),
    "domino": (_BLOCK, lambda fields: _block_drafter(fields, "domino")),
    "medusa": (_MEDUSA, _medusa),
    "gemma4-assistant": (_ASSISTANT, _assistant),
}
