"""Which acceptance rule goes with which engine, method, version and setting."""

from __future__ import annotations

import numpy as np
import pytest

from specmath.engines.recognition import engines
from specmath.engines.rules import acceptance_rule


@pytest.mark.parametrize(
    ("engine", "method", "version", "settings", "name"),
    [
        ("vllm", "eagle3", "0.11.0 or newer", "", "one-hot draft"),
        ("vllm", "draft_model", "0.32.0", '{"draft_sample_method": "probabilistic"}', "rejection sampling"),
        ("vllm", None, "0.6.6 to 0.9.2, V0 engine", "", "rejection sampling"),
        ("vllm", None, "0.7.3", "", "rejection sampling"),
        ("vllm", "ngram", "0.32.0", "", "one-hot draft"),
        ("vllm", "eagle3", None, '{"rejection_sample_method": "block"}', "block verification"),
        ("vllm", "eagle3", None, "rejection_sample_method=fly", "lossy"),
        ("vllm", "eagle3", None, '{"rejection_sample_method": "synthetic"}', "lossy"),
        ("vllm", "medusa", "0.7.3", "acceptance_method=typical_acceptance_sampler", "lossy"),
        ("vllm", "eagle3", None, "--block-size 16", "one-hot draft"),
        ("llama.cpp", "draft-simple", None, "", "target's sample"),
        ("llama.cpp", None, None, "--spec-synth-len 3", "lossy"),
        ("sglang", "EAGLE", None, "", "target's sample"),
        ("sglang", "EAGLE", None, "--speculative-accept-threshold-single 1.0", "target's sample"),
        ("sglang", "EAGLE", None, "--speculative-accept-threshold-acc=0.9", "lossy"),
        ("tensorrt-llm", "MTP", None, "use_relaxed_acceptance_for_thinking: true", "lossy"),
        ("tensorrt-llm", "MTP", None, "use_relaxed_acceptance_for_thinking: false", "target's token"),
        ("mlx", None, None, "", "equal samples"),
        ("another", None, None, "", "unknown"),
    ],
)
def test_the_rule(engine: str, method: str | None, version: str | None, settings: str, name: str) -> None:
    rule = acceptance_rule(engine, method=method, version=version, settings=settings)
    assert rule.name == name
    assert rule.lossless == (name != "lossy")
    assert rule.text


@pytest.mark.parametrize("engine", [name for name in engines() if name != "aiperf"])
def test_every_engine_has_a_rule_in_words(engine: str) -> None:
    assert "not known here" not in acceptance_rule(engine).text
    assert acceptance_rule(engine, temperature=0).alpha == "P(argmax p = argmax q)"


def test_the_formulas_differ_where_sampling_is_flat() -> None:
    """The same pair has another α under every rule, which is why α does not transfer."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.4001, 0.1999])
    alphas = {
        "E[Σ min(p, q)]": np.minimum(p, q).sum(),
        "E[p(argmax q)]": p[q.argmax()],
        "E[Σ p·q]": (p * q).sum(),
    }
    assert [round(float(value), 3) for value in alphas.values()] == [0.9, 0.3, 0.36]
    known = {acceptance_rule(name).alpha for name in ("llama.cpp", "mlx")}
    known.add(acceptance_rule("vllm", settings="draft_sample_method=probabilistic").alpha)
    assert known == set(alphas)
