"""Passes over slots against plain passes of transformers without a cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from calibrate.attention import FOLDED, folded_mask, query_groups, register_folded_attention
from calibrate.runners import ModelRunner, mask_windows, require_agreement
from specmath.errors import AccessError, DataError, InputError
from tests.tiny_models import TINY, tiny_model

VOCABULARY = 61
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def runner_of(
    model_type: str, *, folded: bool = False, regime: str = "eager", device: str = "cpu"
) -> ModelRunner:
    register_folded_attention()
    model: Any = tiny_model(model_type)
    model.to(device)
    if folded and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(FOLDED)
    return ModelRunner(model, name=model_type, regime=regime)


@torch.no_grad()
def plain_logits(model_type: str, text: Tensor) -> Tensor:
    """By the model itself, in its own attention, from the whole text at once."""
    logits: Tensor = tiny_model(model_type)(input_ids=text, use_cache=False).logits
    return logits


def random_text(batch: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("folded", [False, True], ids=["as loaded", "folded"])
@pytest.mark.parametrize("model_type", TINY)
def test_passes_at_ragged_positions_equal_a_plain_pass(model_type: str, folded: bool) -> None:
    text, starts = random_text(3, 24), [2, 9, 17]
    expected = plain_logits(model_type, text)
    runner = runner_of(model_type, folded=folded)
    slots = runner.slots(3, 30)
    runner.logits(slots, random_text(3, 30, seed=5), torch.zeros(3, dtype=torch.long))  # rejected whole
    prompt = runner.logits(slots, text[:, :17], torch.zeros(3, dtype=torch.long))
    torch.testing.assert_close(prompt, expected[:, :17], rtol=1e-3, atol=1e-3)
    tokens = torch.stack([row[start : start + 4] for row, start in zip(text, starts, strict=True)])
    ragged = runner.logits(slots, tokens, torch.tensor(starts))
    for row, start in enumerate(starts):
        torch.testing.assert_close(ragged[row], expected[row, start : start + 4], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "gemma3_text", "deepseek_v3", "qwen3_moe"])
def test_a_rollback_is_a_smaller_position(model_type: str) -> None:
    text, draft = random_text(2, 14), random_text(2, 5, seed=9)
    expected = plain_logits(model_type, text)
    runner = runner_of(model_type, folded=True)
    slots = runner.slots(2, 20)
    runner.logits(slots, text[:, :8], torch.zeros(2, dtype=torch.long))
    accepted = torch.tensor([8, 8])
    runner.logits(slots, draft, accepted)  # five tokens that are all rejected
    for place in range(8, 14):  # then one by one
        step = runner.logits(slots, text[:, place : place + 1], accepted)
        torch.testing.assert_close(step[:, 0], expected[:, place], rtol=1e-3, atol=1e-3)
        accepted = accepted + 1


def test_logits_are_float32_of_the_whole_vocabulary() -> None:
    model: Any = tiny_model("llama")
    runner = ModelRunner(model.to(torch.bfloat16), name="bf16")
    logits = runner.logits(runner.slots(2, 8), random_text(2, 3), torch.zeros(2, dtype=torch.long))
    assert (logits.dtype, logits.shape) == (torch.float32, (2, 3, VOCABULARY))
    assert runner.layers[0].dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("model_type", "windows", "by_kind"),
    [
        ("llama", [None], False),
        ("mistral", [5], False),
        ("qwen3_moe", [None], False),
        ("gemma3_text", [None, 5], True),
        ("gpt_oss", [None, 5], True),
    ],
)
def test_windows_of_the_layers(model_type: str, windows: list[int | None], by_kind: bool) -> None:
    found, takes_kinds = mask_windows(tiny_model(model_type), model_type)
    assert (list(found.values()), takes_kinds) == (windows, by_kind)
    assert runner_of(model_type).has_windows == (5 in windows)


def test_latent_attention_keeps_what_it_compresses() -> None:
    first = runner_of("deepseek_v3").layers[0]
    assert (first.heads, first.key_width, first.value_width) == (1, 12, 8)


@pytest.mark.parametrize(
    ("model_type", "groups"), [("llama", 2), ("opt", 1), ("gpt_oss", 1), ("deepseek_v3", 1)]
)
def test_query_heads_that_share_keys_are_folded(model_type: str, groups: int) -> None:
    assert query_groups(runner_of(model_type, folded=True).model) == groups
    assert query_groups(runner_of(model_type, folded=False).model) == 1


def test_a_folded_mask_repeats_its_rows_by_head() -> None:
    mask = torch.tensor([[[[1, 0], [1, 1]]]])
    assert folded_mask(mask, 2)[0, 0].tolist() == [[1, 0], [1, 1], [1, 0], [1, 1]]


@pytest.mark.parametrize("model_type", TINY)
def test_agreement_is_found(model_type: str) -> None:
    require_agreement(runner_of(model_type, folded=True))


@pytest.mark.parametrize("wrong", [{"full_attention": 1}, {"full_attention": 3}])
def test_a_family_that_masks_otherwise_is_refused(wrong: dict[str, int]) -> None:
    runner = runner_of("llama")
    runner._windows = wrong
    with pytest.raises(DataError, match="differ from a plain pass"):
        require_agreement(runner)


@pytest.mark.parametrize("fields", [{"model_type": "lfm2", "layer_types": ["conv", "full_attention"]}])
def test_a_layer_that_keeps_a_state_is_refused(fields: dict[str, object]) -> None:
    model = tiny_model(**fields)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"--server"):
        ModelRunner(model, name="lfm2")


def test_regimes_that_cannot_run_are_refused() -> None:
    with pytest.raises(InputError, match="regime"):
        runner_of("llama", regime="turbo")
    if not torch.cuda.is_available():
        with pytest.raises(
            AccessError, match="cuda-graph: needs a CUDA device, llama runs on cpu; use eager"
        ):
            runner_of("llama", regime="cuda-graph")


def test_compile_without_a_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_of("llama")
    runner.regime = "compile"

    def broken(*_: object) -> Tensor:
        from torch._inductor.exc import InvalidCxxCompiler

        raise InvalidCxxCompiler

    monkeypatch.setattr(runner, "_run", broken)
    with pytest.raises(AccessError, match=r"^compile: torch.compile does not work here: .*; use eager$"):
        runner.logits(runner.slots(1, 8), random_text(1, 1), torch.zeros(1, dtype=torch.long))


@needs_cuda
@pytest.mark.parametrize("model_type", TINY)
def test_a_captured_pass_equals_an_eager_one(model_type: str) -> None:
    eager = runner_of(model_type, folded=True, device="cuda")
    graphs = runner_of(model_type, folded=True, regime="cuda-graph", device="cuda")
    text, start = random_text(2, 12).cuda(), torch.tensor([0, 3]).cuda()
    slots, captured = eager.slots(2, 20), graphs.slots(2, 20)
    for width in (1, 4, 1, 2):
        tokens = text[:, :width]
        expected = eager.logits(slots, tokens, start)
        torch.testing.assert_close(graphs.logits(captured, tokens, start), expected, rtol=1e-2, atol=1e-2)
        start = start + width
    assert graphs.captured_tokens == 8
