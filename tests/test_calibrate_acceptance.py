"""Acceptance of the micro pair against numpy on whole passes, and the bookkeeping against toys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from calibrate import acceptance, drafters
from calibrate.acceptance import measure_acceptance
from calibrate.lookups import LookupRow, measure_lookup
from calibrate.prompts import EncodedPrompt
from calibrate.request_counts import samplings
from calibrate.runners import ModelRunner
from calibrate.sampling import LOSSY_RULES, SAMPLING_FORMULAS
from calibrate.slots import Slots
from specmath.calibrations import AcceptanceRow
from specmath.clustered_errors import interval_factor, ratio_standard_error
from specmath.errors import InputError

MICRO = Path(__file__).with_name("data") / "micro_pair"
Array = npt.NDArray[np.float64]
PROMPTS, NEW, K = 24, 24, 3
SETTINGS = [(0.0, 1.0), (1.0, 1.0), (0.7, 0.8)]


# A second computation, of numpy and whole passes, that shares no code with the first


def law(logits: Array, temperature: float, top_p: float) -> Array:
    if temperature == 0:
        return cast(Array, np.eye(logits.shape[-1])[logits.argmax(-1)])
    weights = np.exp((logits - logits.max(-1, keepdims=True)) / temperature)
    weights /= weights.sum(-1, keepdims=True)
    if top_p == 1:
        return cast(Array, weights)
    order = np.argsort(-weights, axis=-1)
    mass = np.take_along_axis(weights, order, -1)
    keep = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(keep, order, np.cumsum(mass, -1) - mass < top_p, -1)
    weights = np.where(keep, weights, 0.0)
    return cast(Array, weights / weights.sum(-1, keepdims=True))


@dataclass
class Reference:
    """Both models by whole forward passes over texts that all have the same length of prompt."""

    target: Any
    draft: Any
    temperature: float
    top_p: float
    rng: np.random.Generator

    def laws(self, model: Any, texts: npt.NDArray[np.int64], at: npt.NDArray[np.int64]) -> Array:
        """Of the token after each place of `at` [requests, places]."""
        with torch.no_grad():
            logits = model(torch.from_numpy(texts), use_cache=False).logits.numpy()
        chosen = np.take_along_axis(logits, at[..., np.newaxis], 1).astype(np.float64)
        return law(chosen, self.temperature, self.top_p)

    def tokens(self, laws: Array) -> npt.NDArray[np.int64]:
        """One token of each law, by its cumulated mass."""
        drawn = self.rng.random((len(laws), 1)) * laws.sum(-1, keepdims=True)
        return cast("npt.NDArray[np.int64]", (laws.cumsum(-1) <= drawn).sum(-1).clip(max=laws.shape[-1] - 1))

    def alphas(self, prompts: npt.NDArray[np.int64]) -> dict[str, Array]:
        """α [requests, new tokens] of each rule on texts that the target samples here."""
        texts = prompts
        for _ in range(NEW):
            last = np.full((len(texts), 1), texts.shape[1] - 1)
            texts = np.column_stack([texts, self.tokens(self.laws(self.target, texts, last)[:, 0])])
        places = np.tile(np.arange(NEW) + prompts.shape[1] - 1, (len(texts), 1))
        p, q = (self.laws(model, texts, places) for model in (self.target, self.draft))
        best = q.argmax(-1)
        p_best = np.take_along_axis(p, best[..., np.newaxis], -1)[..., 0]
        if self.temperature == 0:
            return {"arg-max match": (best == p.argmax(-1)).astype(float)}
        entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1)
        return {
            "rejection sampling": (p + q - np.abs(p - q)).sum(-1) / 2,
            "one-hot draft": p_best,
            "target's sample": p_best,
            "equal samples": np.einsum("rnv,rnv->rn", p, q),
            "typical acceptance": (p_best > np.minimum(0.09, 0.3 * np.exp(-entropy))).astype(float),
        }

    def counts(self, prompts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Steps, then steps that accepted draft token 1, 2, …, of each request, [requests, 1 + K]."""
        texts = [list(map(int, prompt)) for prompt in prompts]
        found = np.zeros((len(texts), 1 + K), dtype=np.int64)
        start = prompts.shape[1]
        while min(map(len, texts)) < start + NEW:
            longest = max(map(len, texts))
            known = np.zeros((len(texts), longest + K), dtype=np.int64)
            for row, text in enumerate(texts):
                known[row, : len(text)] = text
            ends = np.array(list(map(len, texts)))
            rows = np.arange(len(texts))
            q = []
            for place in range(K):
                q.append(self.laws(self.draft, known, (ends + place - 1)[:, np.newaxis])[:, 0])
                known[rows, ends + place] = self.tokens(q[-1])
            p = self.laws(self.target, known, ends[:, np.newaxis] - 1 + np.arange(K + 1))
            for row, text in enumerate(texts):
                if ends[row] < start + NEW:
                    self._judge(text, known[row], p[row], [of_place[row] for of_place in q], found[row])
        return found

    def _judge(
        self,
        text: list[int],
        known: npt.NDArray[np.int64],
        p: Array,
        q: list[Array],
        found: npt.NDArray[np.int64],
    ) -> None:
        found[0] += 1
        end = len(text)
        for place in range(K):
            token = int(known[end + place])
            here = p[place]
            if self.rng.random() * q[place][token] >= here[token]:
                left = np.maximum(here - q[place], 0)
                text.append(int(self.tokens(left[np.newaxis])[0]))
                return
            text.append(token)
            found[1 + place] += 1
        text.append(int(self.tokens(p[K][np.newaxis])[0]))


@pytest.fixture(scope="module")
def models() -> tuple[Any, Any]:
    load = AutoModelForCausalLM.from_pretrained
    target: Any = load(MICRO / "target", dtype=torch.float32)
    draft: Any = load(MICRO / "draft", dtype=torch.float32)
    return target.eval(), draft.eval()


@pytest.fixture(scope="module")
def prompts() -> npt.NDArray[np.int64]:
    return np.random.default_rng(5).integers(1, 512, (PROMPTS, 6))


@pytest.fixture(scope="module", params=SETTINGS, ids=lambda pair: f"T={pair[0]:g} top-p={pair[1]:g}")
def both(
    request: pytest.FixtureRequest, models: tuple[Any, Any], prompts: npt.NDArray[np.int64]
) -> tuple[dict[str, AcceptanceRow], Reference]:
    temperature, top_p = request.param
    rows = measure_acceptance(
        ModelRunner(models[0]),
        ModelRunner(models[1]),
        [EncodedPrompt("noise", tuple(prompt)) for prompt in prompts.tolist()],
        temperatures=[temperature],
        top_ps=[top_p],
        k=K,
        new_tokens=NEW,
        batch=16,
        seed=3,
    )
    return {row.rule: row for row in rows}, Reference(*models, temperature, top_p, np.random.default_rng(7))


def test_alpha_under_each_rule(
    both: tuple[dict[str, AcceptanceRow], Reference], prompts: npt.NDArray[np.int64]
) -> None:
    rows, reference = both
    alphas = reference.alphas(prompts)
    assert alphas.keys() == rows.keys() - {"relaxed acceptance"}
    for rule, expected in alphas.items():
        row = rows[rule]
        assert (row.positions, row.requests, row.domain) == (PROMPTS * NEW, PROMPTS, "all")
        assert row.alpha is not None
        assert row.alpha_high is not None
        ours = (row.alpha_high - row.alpha) / interval_factor(PROMPTS)
        theirs = expected.mean(1).std(ddof=1) / math.sqrt(PROMPTS)
        exact = 1e-12 if reference.temperature == 0 else 4 * math.hypot(ours, theirs)
        assert abs(row.alpha - expected.mean()) <= exact
        assert ours == pytest.approx(theirs, rel=0.7)
        assert row.lossless == (rule not in LOSSY_RULES)


def test_counts_by_position(
    both: tuple[dict[str, AcceptanceRow], Reference], prompts: npt.NDArray[np.int64]
) -> None:
    rows, reference = both
    decoded = [row for row in rows.values() if row.k is not None]
    assert [row.rule for row in decoded] == [
        "rejection sampling" if reference.temperature else "arg-max match"
    ]
    row = decoded[0]
    counts = reference.counts(prompts)
    assert row.k == K
    steps = counts[:, 0].tolist()
    for place, share in enumerate(row.survival, 1):
        error = math.sqrt(2) * ratio_standard_error(counts[:, place].tolist(), steps)
        exact = 1e-12 if reference.temperature == 0 else 4 * error
        assert abs(share - counts[:, place].sum() / sum(steps)) <= exact


def test_relaxed_acceptance_passes_more_than_the_best_token(
    both: tuple[dict[str, AcceptanceRow], Reference],
) -> None:
    rows, reference = both
    if reference.temperature:
        assert "relaxed acceptance" not in rows
    else:
        relaxed, best = rows["relaxed acceptance"], rows["arg-max match"]
        assert not relaxed.lossless
        assert relaxed.alpha is not None
        assert best.alpha is not None
        assert relaxed.alpha > best.alpha + 0.05


# Bookkeeping, on a model that knows its last token alone


class Chain:
    """A Markov chain: logits are a row of a table, by the last token; slots hold nothing."""

    device = torch.device("cpu")

    def __init__(self, table: Tensor) -> None:
        self.table = table
        self.vocabulary = table.shape[1]
        self.largest = 0

    def slots(self, batch: int, length: int) -> Slots:
        return cast(Slots, object())

    def logits(self, slots: Slots, tokens: Tensor, positions: Tensor) -> Tensor:
        self.largest = max(self.largest, tokens.numel() * self.vocabulary)
        return self.table[tokens]


def chains() -> tuple[Chain, Chain]:
    table = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    return Chain(table), Chain(table + torch.randn(4, 4, generator=torch.Generator().manual_seed(2)))


def requests() -> list[EncodedPrompt]:
    return [EncodedPrompt("ab"[row % 2], (row % 4,) * (1 + row)) for row in range(10)]


def by_domain(rows: tuple[AcceptanceRow, ...], rule: str) -> dict[str, AcceptanceRow]:
    return {row.domain: row for row in rows if row.rule == rule and row.context is None}


def test_domains_add_up() -> None:
    rows = measure_acceptance(*chains(), requests(), temperatures=[1], k=2, new_tokens=30, batch=4, eos=[3])
    for rule in SAMPLING_FORMULAS:
        of = by_domain(rows, rule)
        assert list(of) == ["all", "a", "b"]
        every, a, b = of.values()
        assert every.positions == a.positions + b.positions < 300  # texts end at token 3
        assert (every.requests, a.requests, b.requests) == (10, 5, 5)
        assert every.alpha is not None
        assert a.alpha is not None
        assert b.alpha is not None
        weighted = a.alpha * a.positions + b.alpha * b.positions
        assert every.alpha * every.positions == pytest.approx(weighted)
    every, a, b = by_domain(rows, "rejection sampling").values()
    assert a.drafts
    assert b.drafts
    assert every.drafts == a.drafts + b.drafts
    both = zip(a.accepted_at, b.accepted_at, strict=True)
    assert every.accepted_at == tuple(x + y for x, y in both)
    assert len(every.accepted_at) == 2


def test_alpha_of_a_chain_is_that_of_its_table() -> None:
    target, draft = chains()
    prompts = [EncodedPrompt("a", (row,)) for row in range(4)]
    rows = measure_acceptance(target, draft, prompts, temperatures=[1], k=1, new_tokens=1)
    p, q = (torch.softmax(model.table.double(), -1) for model in (target, draft))
    each = torch.minimum(p, q).sum(-1)
    row = by_domain(rows, "rejection sampling")["all"]
    assert row.alpha == pytest.approx(float(each.mean()))
    reach = 3.182 * float(each.std()) / 2  # Student's law with three degrees of freedom
    assert row.alpha_low == pytest.approx(float(each.mean()) - reach, abs=1e-6)
    assert row.alpha_high == pytest.approx(min(float(each.mean()) + reach, 1.0), abs=1e-6)


def test_one_request_has_no_interval() -> None:
    rows = measure_acceptance(*chains(), requests()[:1], temperatures=[0], k=1, new_tokens=5)
    assert {(row.alpha_low, row.alpha_high, row.domain) for row in rows} == {(None, None, "all")}


def test_long_texts_are_parted_by_context() -> None:
    prompts = [EncodedPrompt("a", (1,) * length) for length in (510, 505, 2046)]
    rows = measure_acceptance(*chains(), prompts, temperatures=[1], k=1, new_tokens=10)
    found = [row for row in rows if row.rule == "one-hot draft"]
    whole, short, middle, long = found
    assert (whole.context, whole.k) == (None, None)
    parts = [  # of ten places from 510, 505 and 2046 on
        [510, 511, *range(505, 512)],
        [*range(512, 520), *range(512, 515), 2046, 2047],
        [*range(2048, 2056)],
    ]
    assert [row.context for row in found[1:]] == [pytest.approx(sum(part) / len(part)) for part in parts]
    assert (short.positions, middle.positions, long.positions) == (9, 13, 8)
    assert (short.requests, middle.requests, long.requests) == (2, 3, 1)
    assert all(row.drafts is None for row in rows if row.context is not None)


def test_logits_are_taken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows_and_largest() -> tuple[tuple[AcceptanceRow, ...], int]:
        target, draft = chains()
        rows = measure_acceptance(target, draft, requests(), temperatures=[1], k=1, new_tokens=30, batch=5)
        return rows, max(target.largest, draft.largest)

    whole, much = rows_and_largest()
    monkeypatch.setattr(drafters, "PREFILL_LOGITS", 480)
    monkeypatch.setattr(acceptance, "PREFILL_LOGITS", 480)
    pieces, little = rows_and_largest()
    assert pieces == whole
    assert little <= 480 < much


def test_padding_of_the_vocabulary_is_never_written() -> None:
    target, draft = chains()
    target.table = torch.cat(
        [target.table, torch.full((4, 3), 50.0)], 1
    )  # padding no tokenizer knows, likely
    target.vocabulary = 7
    rows = measure_acceptance(target, draft, requests(), temperatures=[0, 1], k=2, new_tokens=9)
    plainly = measure_acceptance(*chains(), requests(), temperatures=[0, 1], k=2, new_tokens=9)
    assert rows == plainly


def test_settings_are_each_measured_once_and_told() -> None:
    assert [(one.temperature, one.top_p) for one in samplings([0, 0.5, 0], [1.0, 0.9])] == [
        (0, 1.0),
        (0.5, 1.0),
        (0.5, 0.9),
    ]
    told: list[tuple[int, int, str]] = []
    rows = measure_acceptance(
        *chains(),
        requests(),
        temperatures=[0, 0.5],
        top_ps=[1.0, 0.9],
        k=1,
        new_tokens=3,
        batch=5,
        progress=lambda *step: told.append(step),
    )
    assert [done for done, _, _ in told] == [*range(12), 12]
    assert {every for _, every, _ in told} == {12}
    assert told[-2][2] == "decoding at temperature 0.5, top-p 0.9"
    assert [(row.temperature, row.top_p) for row in by_settings(rows)] == [(0, 1.0), (0.5, 1.0), (0.5, 0.9)]


def by_settings(rows: tuple[AcceptanceRow, ...]) -> Iterator[AcceptanceRow]:
    return (row for row in rows if row.k is not None and row.domain == "all")


@pytest.mark.parametrize(
    "change",
    [
        {"prompts": []},
        {"prompts": [EncodedPrompt("all", (1,))]},
        {"batch": 0},
        {"k": 0},
        {"temperatures": [-1]},
        {"top_ps": [0]},
    ],
    ids=str,
)
def test_what_cannot_be_measured(change: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"prompts": requests(), "temperatures": [1], "k": 1} | change
    with pytest.raises(InputError):
        measure_acceptance(*chains(), **settings)


def test_lookup_counts_steps_without_a_match() -> None:
    found = measure_lookup(chains()[0], requests(), temperatures=[0, 1], k=3, new_tokens=30, batch=4)
    assert [(one.row.domain, one.row.rule) for one in found] == [
        (domain, rule) for rule in ("arg-max match", "one-hot draft") for domain in ("all", "a", "b")
    ]
    for every, a, b in (found[:3], found[3:]):
        assert every.steps == a.steps + b.steps > (every.row.drafts or 0) > 0
        assert every.match_rate == (every.row.drafts or 0) / every.steps
        written = every.steps + sum(every.row.accepted_at)
        assert every.row.positions == written >= 300
        assert every.acceptance_length == pytest.approx(written / every.steps)


def test_lookup_by_hand() -> None:
    cycle = Chain(torch.eye(4).roll(1, 1) * 50)  # 0 1 2 3 0 1 …
    (one,) = measure_lookup(cycle, [EncodedPrompt("a", (0, 1))], temperatures=[0], k=4, new_tokens=9)
    # 2, 3, 0, 1 one by one; then 0 1 matches and 2 3 0 1 pass, with 2 after them
    assert one == LookupRow(row=one.row, steps=5)
    assert (one.row.drafts, one.row.accepted_at) == (1, (1, 1, 1, 1))
    assert (one.match_rate, one.acceptance_length) == (0.2, 1.8)
