"""Gates and pools: edges where a hand finds them, hysteresis, and pools no larger than they need be."""

from __future__ import annotations

import math
from typing import Any

import pytest

from specmath.errors import InputError
from specmath.gates import batch_policy, find_gate, gate_rows
from specmath.loads import forecast_load, load_question
from specmath.pools import find_pools
from specmath.queueing import Queue
from specmath.simulation.statistics import ServiceLevel
from tests.load_machines import Small, linear_machine, requests

BUSY = linear_machine(0.01, 3e-4, 5e-4)
ALPHA = 0.6
LENGTH = 1 + ALPHA  # of k = 1


def breakeven() -> float:
    """Batch at which k = 1 decodes as many tokens a second as plain decoding, by hand."""
    # 1.6 · (w + τB) = w + d + 2τB
    return (LENGTH * 0.01 - 0.01 - 5e-4) / (3e-4 * (2 - LENGTH))


def test_the_policy_of_a_list_of_k() -> None:
    policy = batch_policy([3, 3, 1, 0, 0], hysteresis=2)
    assert policy.first_batches == (0, 3, 4)
    assert policy.ks == (3, 1, 0)
    assert [policy.ks[policy.tier_at(batch, 0)] for batch in range(1, 6)] == [3, 3, 1, 0, 0]


def test_drafting_ends_where_it_stops_to_pay() -> None:
    first, last = gate_rows(load_question([requests(ALPHA)], source=BUSY, k=1))
    assert (first.first_batch, first.k, last.k) == (1, 1, 0)
    assert last.first_batch == math.ceil(breakeven())
    assert first.last_batch == last.first_batch - 1
    assert first.first_speedup == pytest.approx(LENGTH * 0.0103 / (0.01 + 5e-4 + 2 * 3e-4))
    assert (last.first_speedup, last.last_speedup) == (1, 1)
    batch = first.last_batch
    own_s = 0.01 + 5e-4 + 2 * 3e-4 * batch
    assert first.last_speedup == pytest.approx(LENGTH * (0.01 + 3e-4 * batch) / own_s)


def test_the_band_is_the_root_of_the_edge() -> None:
    _, last = gate_rows(load_question([requests(ALPHA)], source=BUSY, k=1))
    assert last.falls_below == last.first_batch - round(math.sqrt(last.first_batch))


def test_the_rate_of_an_edge_is_that_at_which_the_mean_batch_gets_there() -> None:
    question = load_question([requests(ALPHA, prompt=1)], source=BUSY, k=1)
    _, last = gate_rows(question)
    service = question.machine.static(1)
    assert service is not None
    state = Queue(service, question.machine.traffic.at(last.from_rate_per_s)).equilibrium()
    assert state is not None
    # In balance at n is a mean of n or a little more: a request sees itself.
    assert last.first_batch < state.batch < last.first_batch * 1.35
    assert last.back_rate_per_s < last.from_rate_per_s * 1.05


def test_replicas_move_rates_and_no_batches() -> None:
    one, two = (
        gate_rows(load_question([requests(ALPHA)], source=BUSY, k=1, replicas=count))[1] for count in (1, 2)
    )
    assert two.first_batch == one.first_batch
    assert two.from_rate_per_s == pytest.approx(2 * one.from_rate_per_s)


def test_one_k_that_always_pays_needs_no_gate() -> None:
    table = find_gate(load_question([requests(0.9)], source=linear_machine(), k=3))
    assert len(table) == 1
    row = next(table.rows())
    told = f"{row['first_speedup']:.2f}× to {row['last_speedup']:.2f}×"
    assert table.verdict.startswith(f"NO GATE: k = 3 from batch 1 to {row['last_batch']}, {told}")
    assert row["falls_below"] is None


def test_a_drafter_that_does_not_fit_has_no_gate() -> None:
    source = Small(cost=BUSY.cost, name="small", drafting=0.0)
    table = find_gate(load_question([requests()], source=source, k=1))
    assert table.verdict.startswith("DOES NOT FIT")
    assert list(table.rows()) == []


MIXED = [
    requests(0.9, name="chat", share=0.6, prompt=50, output=101),
    requests(0.1, name="bulk", share=0.4, prompt=50, output=401),
]


def test_pools_are_sized_to_the_rate() -> None:
    question = load_question(MIXED, source=BUSY, k=[1, 2, 3])
    table = find_pools(question, 30.0)
    rows: list[dict[str, Any]] = list(table.rows())
    assert [row["layout"] for row in rows] == ["plain alone", "speculative alone", "two pools", "two pools"]
    plain = rows[0]
    highest = forecast_load(question, 0.1).arms[0][0].highest_rate_per_s
    assert plain["engines"] == math.ceil(30 / (0.8 * highest))
    assert plain["utilisation"] <= 0.8
    assert {row["pool"]: row["classes"] for row in rows[2:]} == {"speculative": "chat", "plain": "bulk"}
    assert rows[2]["rate_per_s"] == pytest.approx(18)


def test_pools_meet_the_level_or_say_that_nothing_does() -> None:
    level = ServiceLevel(tpot_s=0.013)
    table = find_pools(load_question(MIXED, source=BUSY, k=[1, 2, 3], level=level), 30.0)
    for row in table.pools:
        if row.engines is not None:
            assert row.tpot_s <= 0.013 * 1.001
    hopeless = load_question(MIXED, source=BUSY, k=1, level=ServiceLevel(tpot_s=1e-4))
    told = find_pools(hopeless, 1.0)
    assert told.verdict.startswith("NONE SERVES IT")
    assert [row["engines"] for row in told.rows()] == [None] * len(told)


def test_one_class_needs_no_second_pool() -> None:
    table = find_pools(load_question([requests()], source=BUSY, k=1), 1.0)
    assert [row.layout for row in table.pools] == ["plain alone", "speculative alone"]


def test_too_many_classes_are_refused() -> None:
    many = [requests(name=f"{number}", share=1 / 7) for number in range(7)]
    with pytest.raises(InputError, match="at most 6"):
        find_pools(load_question(many, source=BUSY, k=1), 1.0)
