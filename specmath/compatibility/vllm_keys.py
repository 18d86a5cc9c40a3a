"""The keys of vLLM's speculative config: their types, and the releases that take them.

Read off the field lists of `SpeculativeConfig` in the source packages from 0.8.2 to 0.33.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from specmath.compatibility.findings import Span

Kind = Literal["whole number", "number", "text", "truth value", "list", "anything"]
CONFIG_SINCE: Final = (0, 8, 2)
"""The release that took `--speculative-config` first."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key.

    Attributes:
        kind: What its value must be.
        low, high: Ends of its range.
        first: First release that takes it.
        gone: First release without it.
        instead: What does its job where it is gone.
    """

    kind: Kind
    low: float | None = None
    high: float | None = None
    first: tuple[int, ...] = CONFIG_SINCE
    gone: tuple[int, ...] | None = None
    instead: str = "leave it out"

    @property
    def span(self) -> Span:
        return Span(self.first, self.gone)


_V0_ONLY: Final = "leave it out: it belonged to the V0 engine"
_TIERS: Final = "leave it out; num_speculative_tokens_per_batch_size with a tier of 0 does its job from 0.24"
_WHOLE: Final[Kind] = "whole number"
_NUMBER: Final[Kind] = "number"
_TEXT: Final[Kind] = "text"
_TRUTH: Final[Kind] = "truth value"

KEYS: Final[dict[str, Key]] = {
    "method": Key(_TEXT),
    "model": Key(_TEXT),
    "num_speculative_tokens": Key(_WHOLE, 1),
    "draft_tensor_parallel_size": Key(_WHOLE, 1),
    "quantization": Key(_TEXT),
    "max_model_len": Key(_WHOLE, 1),
    "revision": Key(_TEXT),
    "code_revision": Key(_TEXT),
    "prompt_lookup_max": Key(_WHOLE, 1),
    "prompt_lookup_min": Key(_WHOLE, 1),
    "acceptance_method": Key(_TEXT, gone=(0, 10), instead=_V0_ONLY),
    "posterior_threshold": Key(_NUMBER, gone=(0, 10), instead=_V0_ONLY),
    "posterior_alpha": Key(_NUMBER, gone=(0, 10), instead=_V0_ONLY),
    "disable_mqa_scorer": Key(_TRUTH, gone=(0, 10), instead=_V0_ONLY),
    "disable_logprobs": Key(_TRUTH, gone=(0, 11, 1), instead=_V0_ONLY),
    "disable_log_stats": Key(
        _TRUTH, gone=(0, 11, 1), instead="leave it out; --disable-log-stats is the server's"
    ),
    "enable_chunked_prefill": Key(
        _TRUTH, gone=(0, 11, 1), instead="leave it out; --enable-chunked-prefill is the server's"
    ),
    "disable_by_batch_size": Key(_WHOLE, 2, gone=(0, 17), instead=_TIERS),
    "speculative_token_tree": Key(
        _TEXT,
        first=(0, 9),
        gone=(0, 21),
        instead="leave it out: chains are drafted; set num_speculative_tokens",
    ),
    "enforce_eager": Key(_TRUTH, first=(0, 11)),
    "disable_padded_drafter_batch": Key(_TRUTH, first=(0, 11)),
    "suffix_decoding_max_tree_depth": Key(_WHOLE, 1, first=(0, 11, 1)),
    "suffix_decoding_max_cached_requests": Key(_WHOLE, 0, first=(0, 11, 1)),
    "suffix_decoding_max_spec_factor": Key(_NUMBER, 0, first=(0, 11, 1)),
    "suffix_decoding_min_token_prob": Key(_NUMBER, 0, 1, first=(0, 11, 1)),
    "parallel_drafting": Key(_TRUTH, first=(0, 16)),
    "draft_load_config": Key("anything", first=(0, 17)),
    "use_local_argmax_reduction": Key(_TRUTH, first=(0, 17)),
    "moe_backend": Key(_TEXT, first=(0, 19)),
    "rejection_sample_method": Key(_TEXT, first=(0, 18)),
    "synthetic_acceptance_rate": Key(
        _NUMBER,
        0,
        1,
        first=(0, 19),
        gone=(0, 20),
        instead="synthetic_acceptance_rates, one rate for each position",
    ),
    "synthetic_acceptance_rates": Key("list", first=(0, 20)),
    "synthetic_acceptance_length": Key(_NUMBER, 1, first=(0, 20)),
    "attention_backend": Key(_TEXT, first=(0, 21)),
    "draft_sample_method": Key(_TEXT, first=(0, 21)),
    "num_speculative_tokens_per_batch_size": Key("list", first=(0, 24)),
    "use_heterogeneous_vocab": Key(_TRUTH, first=(0, 25)),
    "kv_cache_dtype": Key(_TEXT, first=(0, 26)),
    "enable_adaptive_verification": Key(_TRUTH, first=(0, 28)),
    "dspark_draft_topk": Key(_WHOLE, 1, first=(0, 28)),
    "index_share_for_mtp_iteration": Key(_TRUTH, first=(0, 29)),
    "disable_eagle_block_drop": Key(_TRUTH, first=(0, 30)),
    "disable_lookahead_block_hashes": Key(_TRUTH, first=(0, 33)),
    "draft_lm_head_quantization": Key(_TEXT, first=(0, 33)),
    "fly_window_size": Key(_WHOLE, 1, first=(0, 33)),
    "fly_entropy_threshold": Key(_NUMBER, first=(0, 33)),
    "fly_entropy_top_k": Key(_WHOLE, 1, first=(0, 33)),
    "xpress_topc": Key(_WHOLE, 0, first=(0, 33)),
}
"""Every key that a user may set, in any release."""

REFUSED: Final = {"tensor_parallel_size": "draft_tensor_parallel_size"}
"""Keys that exist only to be refused."""
OTHER_NAMES: Final = {
    "tensor_parallel_size": "draft_tensor_parallel_size",
    "draft_tp": "draft_tensor_parallel_size",
    "draft_tp_size": "draft_tensor_parallel_size",
    "speculative_model": "model",
    "draft_model": "model",
    "speculative_model_path": "model",
    "speculative_draft_model_path": "model",
    "model_path": "model",
    "speculative_method": "method",
    "speculative_algorithm": "method",
    "decoding_type": "method",
    "k": "num_speculative_tokens",
    "max_draft_len": "num_speculative_tokens",
    "num_spec_tokens": "num_speculative_tokens",
    "spec_tokens": "num_speculative_tokens",
    "num_draft_tokens": "num_speculative_tokens",
    "speculative_num_draft_tokens": "num_speculative_tokens",
    "speculative_num_steps": "num_speculative_tokens",
    "num_lookahead_tokens": "num_speculative_tokens",
    "ngram_prompt_lookup_max": "prompt_lookup_max",
    "ngram_prompt_lookup_min": "prompt_lookup_min",
    "prompt_lookup_num_tokens": "num_speculative_tokens",
    "speculative_disable_by_batch_size": "disable_by_batch_size",
    "speculative_max_model_len": "max_model_len",
    "draft_len_schedule": "num_speculative_tokens_per_batch_size",
    "spec_decoding_acceptance_method": "acceptance_method",
}
"""What other engines, older releases and habit call a key."""

OLD_FLAGS: Final = {
    "speculative-model": "model",
    "num-speculative-tokens": "num_speculative_tokens",
    "speculative-model-quantization": "quantization",
    "speculative-draft-tensor-parallel-size": "draft_tensor_parallel_size",
    "speculative-max-model-len": "max_model_len",
    "speculative-disable-by-batch-size": "disable_by_batch_size",
    "speculative-disable-mqa-scorer": "disable_mqa_scorer",
    "ngram-prompt-lookup-max": "prompt_lookup_max",
    "ngram-prompt-lookup-min": "prompt_lookup_min",
    "spec-decoding-acceptance-method": "acceptance_method",
    "typical-acceptance-sampler-posterior-threshold": "posterior_threshold",
    "typical-acceptance-sampler-posterior-alpha": "posterior_alpha",
    "disable-logprobs-during-spec-decoding": "disable_logprobs",
}
"""Flags of the releases before 0.9, and the keys that they became."""
NEW_FLAGS: Final = {"spec-method": "method", "spec-model": "model", "spec-tokens": "num_speculative_tokens"}
"""Flags from 0.22 on that stand for a key each."""

METHODS: Final[dict[str, tuple[tuple[int, ...], tuple[int, ...] | None, str]]] = {
    "ngram": ((), None, "ngram"),
    "eagle": ((0, 8, 2), None, "eagle"),
    "eagle3": ((0, 8, 5), None, "eagle3"),
    "medusa": ((), (0, 33), "medusa"),
    "mlp_speculator": ((), (0, 33), "mlp-speculator"),
    "draft_model": ((), None, "draft-model"),
    "deepseek_mtp": ((0, 8, 2), None, "mtp"),
    "mtp": ((0, 11), None, "mtp"),
    "suffix": ((0, 11, 1), None, "suffix"),
    "extract_hidden_states": ((0, 17), None, "extract-hidden-states"),
    "ngram_gpu": ((0, 18), None, "ngram"),
    "dflash": ((0, 20), None, "dflash"),
    "custom_class": ((0, 22), None, "custom"),
    "dspark": ((0, 25), None, "dspark"),
}
"""First release of each method, the first without it, and specmath's name for it."""
MTP_ALIASES_SINCE: Final = (0, 11)
EARLY_MTP: Final = {"deepseek_mtp": (0, 8, 2), "ernie_mtp": (0, 10, 2), "qwen3_next_mtp": (0, 10, 2)}
"""Names of MTP by family that came before `mtp` itself."""
MTP_NAMES: Final = (
    "bailing_hybrid_mtp",
    "bailing_hybrid_v3_mtp",
    "deepseek_mtp",
    "dots3_note_mtp",
    "ernie_mtp",
    "exaone4_5_mtp",
    "exaone_moe_mtp",
    "gemma4_mtp",
    "glm4_moe_lite_mtp",
    "glm4_moe_mtp",
    "glm5_next_mtp",
    "glm_ocr_mtp",
    "hy_v3_mtp",
    "hy_v4_mtp",
    "inkling_mtp",
    "kimi_k3_mtp",
    "longcat_flash_mtp",
    "mimo_mtp",
    "mimo_v2_mtp",
    "minimax_m3_mtp",
    "mtp",
    "nemotron_h_mtp",
    "pangu_ultra_moe_mtp",
    "qwen3_5_mtp",
    "qwen3_next_mtp",
    "qwen4_exp_mtp",
    "step3p5_mtp",
    "step5_mtp",
)
"""Names of MTP that some release takes."""
REJECTION_METHODS: Final[dict[str, Span]] = {
    "strict": Span((0, 18), (0, 21)),
    "probabilistic": Span((0, 18), (0, 21)),
    "standard": Span((0, 21)),
    "synthetic": Span((0, 19)),
    "block": Span((0, 25)),
    "fly": Span((0, 33)),
}
DRAFT_SAMPLING: Final = ("greedy", "probabilistic")
