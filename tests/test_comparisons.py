"""Several drafters side by side: their rows by hand, who wins, memory and throughput of both arms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from specmath.acceptance import ConstantAcceptance, expected_tokens
from specmath.catalogue import load_hardware
from specmath.comparisons import Contender, DrafterComparison, compare_drafters
from specmath.crossovers import find_crossovers
from specmath.drafters.base import Drafter
from specmath.drafters.draft_model import DraftModel
from specmath.drafters.eagle3 import Eagle3
from specmath.drafters.early_exit import EarlyExit
from specmath.drafters.lookup import Lookup
from specmath.errors import InputError
from specmath.execution import Layout
from specmath.flips import flip_points
from specmath.forecast import forecast_speedup
from specmath.laws import AcceptanceLaw
from specmath.mixtures import LookupAcceptance
from specmath.model_catalogue import load_model
from specmath.model_counts import counts_model
from specmath.roofline_source import Roofline
from specmath.schedule import plan_schedule

LLAMA = load_model("llama-3.1-8b")
SMALL = DraftModel(load_model("llama-3.2-1b"))
EAGLE3 = Eagle3(load_model("eagle3-llama-3.1-8b"))
PART = load_hardware("h100-sxm")


def contender(drafter: Drafter, alpha: float, k: int, **options: Any) -> Contender:
    law: AcceptanceLaw = ConstantAcceptance(alpha)
    if drafter.match_rate < 1:
        law = LookupAcceptance(drafter.match_rate, law)
    return Contender(
        roofline=Roofline(accelerator=PART, target=LLAMA, drafter=drafter, **options), acceptance=law, k=k
    )


def compared(*contenders: Contender, batch: Any = 1, context: Any = 4096) -> DrafterComparison:
    return compare_drafters(contenders, batch, context=context)


def rows_of(table: DrafterComparison) -> list[dict[str, Any]]:
    return list(table.rows())


def test_rows_are_those_of_a_forecast_of_each_drafter() -> None:
    pairs = [contender(SMALL, 0.7, 3), contender(EAGLE3, 0.6, 4)]
    table = compared(*pairs, batch=[1, 64], context=[0, 4096])
    found = rows_of(table)
    assert len(found) == len(table) == 8
    expected = [
        row
        for pair in pairs
        for row in forecast_speedup(
            pair.acceptance, pair.k, [1, 64], cases=[pair.roofline], context=[0, 4096]
        ).rows()
    ]
    for row, other in zip(found, expected, strict=True):
        assert {key: row[key] for key in row if key in other} == {
            key: other[key] for key in row if key in other
        }
    assert [row["draft"] for row in found[::4]] == ["llama-3.2-1b", "eagle3-llama-3.1-8b"]
    assert [row["method"] for row in found[::4]] == ["draft-model", "eagle3"]


def test_memory_and_throughput_by_hand() -> None:
    """Llama-3.1-8B, 131,072 bytes a token, and a 1B draft of 32,768, at context 4096, k = 3.

    The draft keeps its weights and 64·4100 tokens; each arm's tokens per second are E·B/(step) at its own
    largest batch, here from passes of the roofline at these batches.
    """
    pair = contender(SMALL, 0.7, 3)
    (row,) = rows_of(compared(pair, batch=64))
    assert row["draft_memory_bytes"] == 2 * 1_235_814_400 + 64 * 4100 * 32_768
    free = 0.9 * PART.memory_bytes - LLAMA.weight_bytes
    plain = free // (4097 * 131_072)
    speculative = (free - 2 * 1_235_814_400) // (4100 * (131_072 + 32_768))
    assert (row["max_batch"], row["max_batch_speculative"]) == (plain, speculative)
    target, draft = pair.roofline.target_pass(), pair.roofline.draft_pass()
    assert draft is not None
    plain_s = float(np.asarray(target.time(plain, 1, 4096)))
    step_s = float(np.asarray(target.time(speculative, 4, 4096)))
    step_s += 3 * float(np.asarray(draft.time(speculative, 1, 4096)))
    assert row["plain_tokens_per_s"] == pytest.approx(plain / plain_s, rel=1e-12)
    assert row["speculative_tokens_per_s"] == pytest.approx(
        float(expected_tokens(0.7, 3)) * speculative / step_s, rel=1e-12
    )


def test_lookup_and_early_exit_keep_nothing() -> None:
    found = rows_of(compared(contender(Lookup(0.4), 0.9, 4), contender(EarlyExit(LLAMA, 8), 0.8, 3)))
    assert [row["draft_memory_bytes"] for row in found] == [0, 0]
    assert found[0]["draft_cost"] == 0


def test_a_draft_spread_over_devices_keeps_its_share() -> None:
    split = DraftModel(load_model("llama-3.2-1b"), Layout(tp=2))
    (row,) = rows_of(compared(contender(split, 0.7, 3, layout=Layout(tp=2)), batch=2))
    assert row["draft_memory_bytes"] == 1_235_814_400 + 2 * 4100 * 32_768 / 2


def test_a_draft_of_each_data_parallel_group_keeps_its_own_sequences() -> None:
    """Two groups of 33 sequences at most, 4100 tokens of 32,768 bytes each."""
    (row,) = rows_of(compared(contender(SMALL, 0.7, 3, layout=Layout(dp=2)), batch=65))
    assert row["draft_memory_bytes"] == 2 * 1_235_814_400 + 33 * 4100 * 32_768


def test_throughput_is_that_of_a_batch_that_engines_run() -> None:
    """Without a context hundreds of thousands of sequences fit; 1024 are run."""
    pair = contender(SMALL, 0.7, 3)
    table = compared(pair, context=0)
    (row,) = rows_of(table)
    assert row["max_batch"] > 400_000
    cost = pair.roofline.step_cost(3, 1024, 0)
    assert row["plain_tokens_per_s"] == pytest.approx(1024 / float(cost.plain_s), rel=1e-12)
    step_s = float(cost.plain_s * cost.in_plain_steps)
    assert row["speculative_tokens_per_s"] == pytest.approx(
        float(expected_tokens(0.7, 3)) * 1024 / step_s, rel=1e-12
    )
    assert any("at most 1,024 sequences" in sentence for sentence in table.assumptions)


def test_where_nothing_fits_there_is_no_throughput() -> None:
    big = load_model("llama-3.1-70b")
    pair = Contender(
        roofline=Roofline(accelerator=PART, target=big, drafter=SMALL),
        acceptance=ConstantAcceptance(0.7),
        k=3,
    )
    (row,) = rows_of(compared(pair))
    assert row["max_batch"] == 0
    assert row["plain_tokens_per_s"] is row["speculative_tokens_per_s"] is None
    unknown = Roofline(
        accelerator=PART, target=counts_model("8B", 8e9), drafter=DraftModel(counts_model("1B", 1e9))
    )
    pair = Contender(roofline=unknown, acceptance=ConstantAcceptance(0.7), k=3)
    (row,) = rows_of(compared(pair, context=0))
    assert row["max_batch"] is row["plain_tokens_per_s"] is None


@pytest.mark.parametrize(
    ("contenders", "batch", "told"),
    [
        pytest.param(
            [contender(SMALL, 0.7, 3), contender(EAGLE3, 0.7, 3)],
            1,
            "eagle3-llama-3.1-8b IS FASTEST: eagle3-llama-3.1-8b 2.17×, llama-3.2-1b 1.69×, at the ideal",
            id="a clear winner",
        ),
        pytest.param(
            [contender(EAGLE3, 0.7, 3), contender(EAGLE3, 0.7, 4)],
            1,
            "eagle3-llama-3.1-8b k=4 IS FASTEST: eagle3-llama-3.1-8b k=4 2.",
            id="one drafter at several k: its best",
        ),
        pytest.param(
            [contender(EAGLE3, 0.7, 3), contender(EAGLE3, 0.2, 3)],
            1,
            "eagle3-llama-3.1-8b k=3 alpha=0.7 IS FASTEST: ",
            id="the law in the names",
        ),
        pytest.param(
            [contender(SMALL, 0.1, 3), contender(EarlyExit(LLAMA, 24), 0.5, 3)],
            1,
            "NONE PAYS: llama-3.2-1b 0.74×, first 24 layers 0.57×, ",
            id="slower all",
        ),
        pytest.param(
            [contender(SMALL, 0.35, 3), contender(SMALL, 0.1, 3)],
            1,
            "TOO CLOSE TO CALL whether llama-3.2-1b k=3 alpha=0.35 pays: ",
            id="one at 1",
        ),
        pytest.param(
            [contender(SMALL, 0.9, 3), contender(EAGLE3, 0.6, 3)],
            [1, 8, 4096],
            "llama-3.2-1b IS FASTEST at batch 1–8, NONE PAYS at 4096: 0.77× to ",
            id="along the batch",
        ),
    ],
)
def test_the_verdict_names_the_winner(contenders: Sequence[Contender], batch: Any, told: str) -> None:
    context = 4096 if batch == 1 else 0
    assert compare_drafters(contenders, batch, context=context).verdict.startswith(told)


@dataclass(frozen=True)
class Ranged:
    """A roofline whose steps may cost a fifth less or a half more."""

    roofline: Roofline

    def __getattr__(self, name: str) -> Any:
        return getattr(self.roofline, name)

    def step_bounds(self, *cell: Any, **shape: Any) -> tuple[Any, Any]:
        step = self.roofline.step_cost(*cell, **shape).in_plain_steps
        return step / 1.25, step * 1.5


def test_a_range_reaches_rows_verdict_and_lowest() -> None:
    """Speed-ups 2.17 and 1.69 at the ideal: lows are those over 1.5, highs those times 1.25."""
    pairs = [contender(SMALL, 0.7, 3), contender(EAGLE3, 0.7, 3)]
    ranged = [replace(pair, source=Ranged(pair.roofline)) for pair in pairs]
    table = compared(*ranged)
    for row in rows_of(table):
        assert row["speedup_low"] == pytest.approx(row["speedup"] / 1.5, rel=1e-12)
        assert row["speedup_high"] == pytest.approx(row["speedup"] * 1.25, rel=1e-12)
    told = "eagle3-llama-3.1-8b 2.17× (1.45 to 2.71), llama-3.2-1b 1.69× (1.12 to 2.11)"
    assert table.verdict.startswith(f"eagle3-llama-3.1-8b IS FASTEST: {told}, ")
    assert table.lowest == rows_of(table)[1]["speedup_low"]
    slow = contender(SMALL, 0.5, 3)
    verdict = compared(replace(slow, source=Ranged(slow.roofline))).verdict
    assert verdict.startswith("TOO CLOSE TO CALL whether llama-3.2-1b pays: ")


def test_the_lowest_is_that_of_the_best_drafter() -> None:
    table = compared(contender(SMALL, 0.7, 3), contender(EAGLE3, 0.7, 3), batch=[1, 64, 512], context=0)
    best = np.array([row["speedup"] for row in rows_of(table)]).reshape(2, 3).max(axis=0)
    assert table.lowest == pytest.approx(best.min(), rel=1e-14)


def test_it_says_what_all_share_and_which_law_fits() -> None:
    table = compared(contender(SMALL, 0.7, 3), contender(EAGLE3, 0.7, 3))
    assert table.inputs["target"] == "llama-3.1-8b"
    assert not {"draft", "method", "draft_weight_bytes"} & set(table.inputs)
    assert any(line.startswith("eagle3-llama-3.1-8b: the law that fits is") for line in table.assumptions)
    assert any(line.startswith("llama-3.2-1b: S = E / R") for line in table.derivation)


def test_a_law_that_cannot_describe_its_drafter_is_refused() -> None:
    lookup = Roofline(accelerator=PART, target=LLAMA, drafter=Lookup(0.4))
    model = Roofline(accelerator=PART, target=LLAMA, drafter=SMALL)
    mixed, plain = LookupAcceptance(0.4, ConstantAcceptance(0.9)), ConstantAcceptance(0.9)
    for pair, law in ((lookup, mixed), (model, plain)):
        assert len(compared(Contender(roofline=pair, acceptance=law, k=3))) == 1
    for pair, law in ((lookup, plain), (model, mixed)):
        with pytest.raises(InputError, match=r"match_rate: is .* in the acceptance .* in the step costs"):
            compared(Contender(roofline=pair, acceptance=law, k=3))
        for ask in (find_crossovers, flip_points):
            with pytest.raises(InputError, match="match_rate: "):
                ask(law, 3, source=pair)
        with pytest.raises(InputError, match="match_rate: "):
            forecast_speedup(law, 3, cases=[pair])
        with pytest.raises(InputError, match="match_rate: "):
            plan_schedule(law, source=pair, batches=[1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: compare_drafters([]), "contenders: must be a list"),
        (lambda: compared(contender(SMALL, 0.7, 3), batch=0), "batch: must be"),
        (
            lambda: compared(
                Contender(
                    roofline=Roofline(accelerator=PART, target=LLAMA, drafter=SMALL),
                    acceptance=ConstantAcceptance(np.array([0.6, 0.7])),
                    k=3,
                )
            ),
            "acceptance: must be one law for each drafter, not several for llama-3.2-1b",
        ),
    ],
)
def test_what_is_wrong_is_refused_by_name(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        call()
