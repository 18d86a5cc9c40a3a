"""The decoding loop: against models of whole histories whose laws are known, and on the micro pair."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from calibrate import drafters
from calibrate.decoding import Decoded, accepted_at, plain, speculative
from calibrate.drafters import Drafter, LookupDrafter, ModelDrafter, Texts
from calibrate.runners import ModelRunner
from calibrate.sampling import Sampling
from calibrate.slots import Slots
from specmath.errors import InputError

MICRO = Path(__file__).with_name("data") / "micro_pair"
STATES = 11
POISON = 5
"""What unwritten slots hold: it changes the state of everything behind it."""
WARM = Sampling(1.0)


class Toy:
    """A model whose next token depends on every token before it: a row of a table, by a hash of them all.

    Its slots hold the tokens themselves, so that a token that lacks, or stands elsewhere, changes the text.
    """

    device = torch.device("cpu")

    def __init__(self, seed: int, vocabulary: int, spread: float = 1.5) -> None:
        rng = np.random.default_rng(seed)
        self.table = torch.from_numpy(rng.normal(scale=spread, size=(STATES, vocabulary))).float()
        self.vocabulary = vocabulary
        self.widths: list[int] = []

    def slots(self, batch: int, length: int) -> Slots:
        return cast(Slots, torch.full((batch, length), POISON))

    def logits(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        memory = cast(Tensor, slots)
        self.widths.append(tokens.shape[1])
        places = positions[:, None] + torch.arange(tokens.shape[1])
        memory.scatter_(1, places, tokens)
        weights = torch.arange(memory.shape[1]) % 7 + 1
        states = (memory * weights + 1).cumsum(1) % STATES
        return self.table[states.gather(1, places)]

    def after(self, text: Sequence[int]) -> list[float]:
        """Logits after a text, in plain Python."""
        state = sum(token * (place % 7 + 1) + 1 for place, token in enumerate(text)) % STATES
        return list(map(float, self.table[state]))

    def best(self, text: Sequence[int]) -> int:
        row = self.after(text)
        return row.index(max(row))

    def law(self, text: Sequence[int]) -> list[float]:
        weights = [math.exp(value) for value in self.after(text)]
        return [weight / sum(weights) for weight in weights]


PROMPTS = [[2, 0, 1, 1], [1], [0, 2], [2, 2, 1, 0, 1, 0, 2]]


def greedy(model: Toy, prompt: Sequence[int], new_tokens: int) -> list[int]:
    text = list(prompt)
    for _ in range(new_tokens):
        text.append(model.best(text))
    return text[len(prompt) :]


def accepted_by_hand(
    propose: Callable[[list[int]], list[int]], text: list[int], prompt: int, until: int
) -> list[int]:
    """Accepted tokens of each greedy step over a known text, up to the step that reaches `until`."""
    counts = []
    length = prompt
    while length < until:
        count = 0
        for ours, theirs in zip(propose(text[:length]), text[length:], strict=False):
            if ours != theirs:
                break
            count += 1
        counts.append(count)
        length += count + 1
    return counts


def chained(draft: Toy, k: int) -> Callable[[list[int]], list[int]]:
    return lambda text: greedy(draft, text, k)


# Greedy decoding of toys, against plain Python


@pytest.mark.parametrize("k", [1, 3, 5])
def test_greedy_text_and_counts(k: int) -> None:
    target, draft = Toy(1, 3), Toy(1, 3)
    draft.table = draft.table + torch.from_numpy(np.random.default_rng(4).normal(size=(STATES, 3))).float()
    run = speculative(target, ModelDrafter(draft), PROMPTS, k=k, new_tokens=20)
    alone = plain(target, PROMPTS, new_tokens=20)
    for row, prompt in enumerate(PROMPTS):
        text = prompt + greedy(target, prompt, 20 + k + 1)
        expected = accepted_by_hand(chained(draft, k), text, len(prompt), len(prompt) + 20)
        assert list(run.tokens[row]) == list(alone.tokens[row]) == text[len(prompt) :][:20]
        assert list(run.accepted[row]) == expected
        assert run.steps_of[row] == len(expected)
    assert 0 < run.drafts < sum(map(sum, run.accepted)) + run.drafts  # some pass, some do not
    assert run.steps == run.target_passes == max(run.steps_of)
    assert run.draft_passes == k * run.steps
    assert (alone.steps, alone.draft_passes, alone.drafts) == (20, 0, 0)
    assert (alone.histogram, alone.accepted_at, alone.acceptance_length) == ((), (), 1.0)


@pytest.mark.parametrize("batch", [1, 4])
def test_a_draft_like_the_target_lacks_no_token(batch: int) -> None:
    run = speculative(Toy(1, 3), ModelDrafter(Toy(1, 3)), PROMPTS[-batch:], k=3, new_tokens=21)
    assert run.accepted == ((3,) * 6,) * batch  # 21 tokens in steps of 4: the sixth goes beyond
    assert run.acceptance_length == 4
    assert all(len(tokens) == 21 for tokens in run.tokens)


def test_passes_are_as_wide_as_they_are_told_to_be() -> None:
    target, draft = Toy(1, 3), Toy(2, 3)
    speculative(target, ModelDrafter(draft), PROMPTS, k=3, new_tokens=5)
    assert (target.widths[0], set(target.widths[1:])) == (6, {4})
    assert draft.widths[:4] == [6, 2, 1, 1]
    assert set(draft.widths[1:]) == {2, 1}


def test_prompts_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = plain(Toy(1, 3), PROMPTS, new_tokens=8)
    monkeypatch.setattr(drafters, "PREFILL_LOGITS", 4 * 3 * 4)
    target = Toy(1, 3)
    assert plain(target, PROMPTS, new_tokens=8).tokens == whole.tokens
    assert target.widths == [4, 4] + [1] * 8


@pytest.mark.parametrize("seed", range(4))
def test_texts_end_at_their_end_token(seed: int) -> None:
    target, draft = Toy(6, 3), Toy(7 + seed, 3)
    full = [prompt + greedy(target, prompt, 30) for prompt in PROMPTS]
    run = speculative(target, ModelDrafter(draft), PROMPTS, k=2, new_tokens=24, eos=[2])
    alone = plain(target, PROMPTS, new_tokens=24, eos=[2])
    lengths = set()
    for row, (prompt, text) in enumerate(zip(PROMPTS, full, strict=True)):
        new = text[len(prompt) :][:24]
        new = new[: new.index(2) + 1] if 2 in new else new
        lengths.add(len(new))
        assert list(run.tokens[row]) == list(alone.tokens[row]) == new
        expected = accepted_by_hand(chained(draft, 2), text, len(prompt), len(prompt) + len(new))
        assert list(run.accepted[row]) == expected
        assert alone.steps_of[row] == len(new)
    assert len(lengths) > 1
    assert run.steps == max(run.steps_of)


# Sampled texts of toys, against the exact law


def surprise(counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """χ² as a number of standard deviations (Wilson and Hilferty 1931)."""
    draws, degrees = sum(counts.values()), len(law) - 1
    chi2 = sum((counts[cell] - draws * chance) ** 2 / (draws * chance) for cell, chance in law.items())
    return float((chi2 / degrees) ** (1 / 3) - (1 - 2 / (9 * degrees))) / math.sqrt(2 / (9 * degrees))


def text_law(model: Toy, prompt: list[int], length: int) -> dict[tuple[int, ...], float]:
    return {
        text: math.prod(model.law([*prompt, *text[:at]])[text[at]] for at in range(length))
        for text in itertools.product(range(model.vocabulary), repeat=length)
    }


TARGET, DRAFT = Toy(21, 3, 0.8), Toy(22, 3, 0.8)
BATCH = 30_000
WAYS: dict[str, Callable[[list[list[int]]], Decoded]] = {
    "plain": lambda prompts: plain(TARGET, prompts, new_tokens=4, sampling=WARM, seed=1),
    "k = 1": lambda prompts: sampled(ModelDrafter(DRAFT), prompts, 1),
    "k = 3": lambda prompts: sampled(ModelDrafter(DRAFT), prompts, 3),
    "the draft's best token": lambda prompts: sampled(ModelDrafter(DRAFT, takes_best=True), prompts, 2),
    "lookup": lambda prompts: sampled(LookupDrafter(), prompts, 2),
}


def sampled(drafter: Drafter, prompts: list[list[int]], k: int) -> Decoded:
    return speculative(TARGET, drafter, prompts, k=k, new_tokens=4, sampling=WARM, seed=2)


@pytest.mark.parametrize("way", WAYS)
def test_joint_law_of_the_text(way: str) -> None:
    prompt = [0, 1, 2, 0, 1]
    run = WAYS[way]([prompt] * BATCH)
    assert surprise(Counter(run.tokens), text_law(TARGET, prompt, 4)) < 4
    assert surprise(Counter(run.tokens), text_law(DRAFT, prompt, 4)) > 20  # the test can tell laws apart
    if way != "plain":
        assert 0.1 < run.accepted_at[0] / run.drafts < 0.9


def test_seeds_make_texts() -> None:
    first, again, other = (
        plain(TARGET, PROMPTS, new_tokens=9, sampling=WARM, seed=seed).tokens for seed in (3, 3, 4)
    )
    assert first == again != other


# Lookup


def offers(text: list[int], k: int, **lengths: int) -> list[int]:
    texts = Texts([text, [9]], 5, torch.device("cpu"))
    draft = LookupDrafter(**lengths).draft(texts, k, Sampling(), torch.Generator())
    assert draft.offered is not None
    assert draft.tokens.shape == (2, k)
    assert draft.offered[1] == 0
    return cast("list[int]", draft.tokens[0, : int(draft.offered[0])].tolist())


@pytest.mark.parametrize(
    ("text", "k", "offered"),
    [
        pytest.param([1, 2, 3, 4, 1, 2], 2, [3, 4], id="what followed 1 2"),
        pytest.param([1, 2, 3, 4, 1, 2], 9, [3, 4, 1, 2], id="no more than there is"),
        pytest.param([1, 2, 3, 4, 5, 2], 2, [], id="one token is no match"),
        pytest.param([7, 2, 8, 1, 2, 9, 1, 2], 1, [9], id="two tokens beat one"),
        pytest.param([1, 2, 5, 0, 1, 2, 6, 7, 1, 2], 1, [5], id="the earliest of equal matches"),
        pytest.param([1, 2, 5, 3, 1, 2, 6, 3, 1, 2], 1, [6], id="the longest match, though later"),
        pytest.param([8, 1, 2, 3, 4, 5, 9, 1, 2, 3, 4, 6, 8, 1, 2, 3, 4], 1, [5], id="four tokens at most"),
        pytest.param([1, 1, 1], 3, [1], id="a match may overlap the end"),
        pytest.param([4, 4], 3, [], id="too short"),
        pytest.param([5], 3, [], id="one token"),
        pytest.param([0, 0, 3, 0, 0], 2, [3, 0], id="token 0 is one like others"),
    ],
)
def test_what_a_lookup_offers(text: list[int], k: int, offered: list[int]) -> None:
    assert offers(text, k) == offered


def test_lengths_of_a_match() -> None:
    assert offers([2, 5, 1, 2], 1, shortest=1) == [5]
    assert offers([1, 2, 5, 1, 2], 1, shortest=3) == []
    assert offers([1, 2, 5, 3, 1, 2, 6, 3, 1, 2], 1, longest=2) == [5]


def lookup_by_hand(text: list[int], k: int) -> list[int]:
    for length in (4, 3, 2):
        for start in range(len(text) - length):
            if length < len(text) and text[start : start + length] == text[-length:]:
                return text[start + length :][:k]
    return []


def test_lookup_text_and_counts() -> None:
    target, k = Toy(6, 3), 3
    run = speculative(target, LookupDrafter(), PROMPTS, k=k, new_tokens=40)
    drafts, steps = 0, 0
    for row, prompt in enumerate(PROMPTS):
        text = prompt + greedy(target, prompt, 40 + k + 1)
        assert list(run.tokens[row]) == text[len(prompt) :][:40]
        of_step: list[int] = []

        def propose(known: list[int], sizes: list[int] = of_step) -> list[int]:
            sizes.append(len(lookup_by_hand(known, k)))
            return lookup_by_hand(known, k)

        counts = accepted_by_hand(propose, text, len(prompt), len(prompt) + 40)
        expected = [count for count, size in zip(counts, of_step, strict=True) if size]
        assert list(run.accepted[row]) == expected
        drafts, steps = drafts + len(expected), steps + len(counts)
    assert 0 < drafts < steps
    assert run.match_rate == drafts / steps
    assert run.acceptance_length == pytest.approx(1 + sum(map(sum, run.accepted)) / steps)
    assert run.draft_passes == 0


# The rest of the record


class CountingTimer:
    """A timer that says how many passes a piece of work made."""

    def __init__(self, model: Toy) -> None:
        self.model = model

    def seconds(self, work: Callable[[], object]) -> float:
        before = len(self.model.widths)
        work()
        return float(len(self.model.widths) - before)


@pytest.mark.parametrize("sampling", [Sampling(), WARM])
def test_warm_steps_leave_no_trace_and_are_not_timed(sampling: Sampling) -> None:
    target = Toy(1, 3)
    cold = speculative(target, ModelDrafter(DRAFT), PROMPTS, k=2, new_tokens=9, sampling=sampling)
    warm = speculative(
        target,
        ModelDrafter(DRAFT),
        PROMPTS,
        k=2,
        new_tokens=9,
        sampling=sampling,
        warm_steps=7,
        timer=CountingTimer(target),
    )
    assert (warm.tokens, warm.accepted, warm.steps) == (cold.tokens, cold.accepted, cold.steps)
    assert (cold.seconds, cold.step_s) == (None, None)
    assert (warm.seconds, warm.step_s) == (warm.steps, 1.0)


def test_synthetic_acceptance() -> None:
    def run(alpha: float) -> Decoded:
        return speculative(
            TARGET, ModelDrafter(DRAFT), [[1, 2]] * 500, k=3, new_tokens=60, synthetic_alpha=alpha
        )

    assert run(0.0).acceptance_length == 1
    assert run(1.0).acceptance_length == 4
    some = run(0.7)
    assert some.synthetic
    for place, count in enumerate(some.accepted_at, 1):
        chance = 0.7**place
        assert abs(count / some.drafts - chance) < 4 * math.sqrt(chance * (1 - chance) / some.drafts)


def test_histogram_and_counts_by_position() -> None:
    run = Decoded(
        tokens=((1,), (2,)),
        k=3,
        steps=4,
        steps_of=(4, 3),
        accepted=((0, 3, 1), (2, 0)),
        target_passes=4,
        draft_passes=12,
        seconds=2.0,
    )
    assert run.histogram == (2, 1, 1, 1)
    assert run.accepted_at == accepted_at(run.histogram) == (3, 2, 1)
    assert (run.drafts, run.step_s) == (5, 0.5)
    assert (run.match_rate, run.acceptance_length) == (5 / 7, 1 + 6 / 7)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"k": 0}, "k"),
        ({"new_tokens": 0}, "new_tokens"),
        ({"prompts": []}, "prompts"),
        ({"prompts": [[1], []]}, "prompts"),
        ({"synthetic_alpha": 1.5}, "synthetic_alpha"),
    ],
)
def test_what_cannot_be_decoded(change: dict[str, Any], name: str) -> None:
    settings: dict[str, Any] = {"prompts": PROMPTS, "k": 2, "new_tokens": 3} | change
    with pytest.raises(InputError, match=f"^{name}: must be"):
        speculative(TARGET, ModelDrafter(DRAFT), **settings)


# The micro pair


def load(role: str) -> ModelRunner:
    model: Any = AutoModelForCausalLM.from_pretrained(MICRO / role, dtype=torch.float32)
    return ModelRunner(model.eval())


@pytest.fixture(scope="module")
def target() -> ModelRunner:
    return load("target")


@pytest.fixture(scope="module")
def draft() -> ModelRunner:
    return load("draft")


RAGGED = [[70, 300, 12, 45, 99, 210, 8], [0], [411, 20, 33], [200] * 20]


@pytest.fixture(scope="module")
def greedy_texts(target: ModelRunner) -> list[tuple[int, ...]]:
    """By whole forward passes without a cache."""
    texts = []
    for prompt in RAGGED:
        text = list(prompt)
        for _ in range(24):
            with torch.no_grad():
                logits = target.model(torch.tensor([text]), use_cache=False).logits
            text.append(int(logits[0, -1].argmax()))
        texts.append(tuple(text[len(prompt) :]))
    return texts


@pytest.mark.parametrize(
    ("k", "rows"), [(0, slice(None)), (1, slice(None)), (4, slice(None)), (4, slice(1, 2)), (7, slice(2, 4))]
)
def test_greedy_text_of_the_micro_pair(
    k: int, rows: slice, target: ModelRunner, draft: ModelRunner, greedy_texts: list[tuple[int, ...]]
) -> None:
    prompts = RAGGED[rows]
    if k:
        run = speculative(target, ModelDrafter(draft), prompts, k=k, new_tokens=24)
        assert run.acceptance_length > 1.2
    else:
        run = plain(target, prompts, new_tokens=24)
    assert list(run.tokens) == greedy_texts[rows]
